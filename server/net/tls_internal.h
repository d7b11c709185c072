/* tls_internal.h: what the files of TLS share. */
#ifndef HOLDFAST_NET_TLS_INTERNAL_H
#define HOLDFAST_NET_TLS_INTERNAL_H

#include "tls.h"

/* ---- tls_files.c: from files to what OpenSSL works with ---- */

struct tls_key {
	X509 *cert;
	STACK_OF(X509) *chain; /* NULL: none */
	EVP_PKEY *key;
};
void tls_key_clear(struct tls_key *k);

struct tls_trust {
	STACK_OF(X509) *cas;     /* NULL: none asked for */
	STACK_OF(X509_CRL) *crls;
};
void tls_trust_clear(struct tls_trust *t);

/* Each: ERR_IO or ERR_MALFORMED with em, and nothing to clear. */
enum err tls_key_load(const char *cert_file, const char *key_file, struct tls_key *ret, struct errmsg *em);
enum err tls_trust_load(const char *ca_file, const char *crl_file, struct tls_trust *ret, struct errmsg *em);

/* The last of OpenSSL's errors in words, and none is left. */
const char *tls_why(char text[TLS_CAUSE_MAX]);
int64_t tls_time_of(const ASN1_TIME *t); /* seconds since 1970; 0: not a time */

/* ---- tls_self.c: a certificate of our own making ---- */

/* Takes the one in the config's directory when it is fit for use, and makes and keeps one otherwise. */
enum err tls_self_make(const struct tls_config *c, int64_t now, struct tls_key *ret, struct errmsg *em);
/* When to make the next: well before it expires. */
int64_t tls_self_renew_at(const struct tls_config *c, const X509 *cert);

/* ---- tls_names.c: what certificates say ---- */

/* The subject's common name: the last one, as Go reads it. Empty: none, or none that is text. Free text.ptr by OPENSSL_free. */
struct slice tls_common_name(const X509 *cert);
struct identity *tls_names_identity(const X509 *cert, const char *address); /* cert NULL: none was asked for */
bool tls_is_allowed(const struct tls_config *c, X509 *cert);
bool tls_is_address(const char *host);

/* ---- tls_suites.c ---- */

/* OpenSSL's lists, for 1.2 and for 1.3; empty: leave the default. */
bool tls_suites_split(const char *suites, struct buf *ret_12, struct buf *ret_13, struct errmsg *em);

#endif
