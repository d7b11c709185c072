/* tls_files.c: certificates, keys and lists of revoked ones, from files, whole or not at all.
 *
 * Everything is parsed before anything is used, and what belongs together is compared: a key with its certificate, a list with the CA that signed it. So a
 * file that is half written, or of another pair, is an error here, and not one in every handshake later. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tls_internal.h"

#define FILE_MAX_BYTES (16U << 20)

const char *tls_why(char text[TLS_CAUSE_MAX])
{
	unsigned long e = ERR_peek_last_error();
	const char *reason = e ? ERR_reason_error_string(e) : NULL;
	snprintf(text, TLS_CAUSE_MAX, "%s", reason ? reason : e ? "unknown" : "no reason given");
	ERR_clear_error();
	return text;
}

int64_t tls_time_of(const ASN1_TIME *t)
{
	struct tm tm;
	return t && ASN1_TIME_to_tm(t, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

void tls_key_clear(struct tls_key *k)
{
	X509_free(k->cert);
	sk_X509_pop_free(k->chain, X509_free);
	EVP_PKEY_free(k->key);
	memset(k, 0, sizeof(*k));
}

void tls_trust_clear(struct tls_trust *t)
{
	sk_X509_pop_free(t->cas, X509_free);
	sk_X509_CRL_pop_free(t->crls, X509_CRL_free);
	memset(t, 0, sizeof(*t));
}

/* The whole file, read once: what is parsed twice must be the same. */
static BIO *read_file(const char *path, struct errmsg *em)
{
	FILE *f = fopen(path, "re");
	BIO *bio;
	char bytes[8192];
	size_t n, sum = 0;
	if (!f) {
		errmsg_set(em, "cannot open '%s': %s", path, strerror(errno));
		return NULL;
	}
	bio = BIO_new(BIO_s_mem());
	ASSERT(bio);
	while ((n = fread(bytes, 1, sizeof(bytes), f)) > 0 && (sum += n) <= FILE_MAX_BYTES)
		ASSERT(BIO_write(bio, bytes, (int)n) == (int)n);
	if (ferror(f) || sum > FILE_MAX_BYTES) {
		errmsg_set(em, "cannot read '%s': %s", path, ferror(f) ? "error on reading" : "too large");
		BIO_free(bio);
		bio = NULL;
	}
	fclose(f);
	return bio;
}

/* A key with a passphrase must not make a server ask on its terminal. */
static int no_passphrase(char *buf, int size, int rwflag, void *arg)
{
	(void)buf, (void)size, (void)rwflag, (void)arg;
	return 0;
}

/* Reads to the end. False: something that looks like a certificate is none. */
static bool read_certs(BIO *bio, STACK_OF(X509) *ret)
{
	for (;;) {
		X509 *x = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL);
		if (!x)
			break;
		ASSERT(sk_X509_push(ret, x) > 0);
	}
	if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		return false;
	ERR_clear_error();
	return true;
}

static STACK_OF(X509) *load_certs(const char *path, struct errmsg *em)
{
	STACK_OF(X509) *certs;
	char cause[TLS_CAUSE_MAX];
	BIO *bio = read_file(path, em);
	if (!bio)
		return NULL;
	certs = sk_X509_new_null();
	ERR_clear_error();
	if (!read_certs(bio, certs))
		errmsg_set(em, "'%s' is not a PEM file of certificates: %s", path, tls_why(cause));
	else if (sk_X509_num(certs) == 0)
		errmsg_set(em, "'%s' holds no certificate in PEM", path);
	else
		goto out;
	sk_X509_pop_free(certs, X509_free);
	certs = NULL;
out:
	BIO_free(bio);
	return certs;
}

enum err tls_key_load(const char *cert_file, const char *key_file, struct tls_key *ret, struct errmsg *em)
{
	struct tls_key k = { .cert = NULL };
	char cause[TLS_CAUSE_MAX];
	BIO *bio;
	k.chain = load_certs(cert_file, em);
	if (!k.chain)
		return ERR_IO;
	k.cert = sk_X509_shift(k.chain);
	bio = read_file(key_file, em);
	if (!bio)
		goto fail;
	ERR_clear_error();
	k.key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
	BIO_free(bio);
	if (!k.key) {
		errmsg_set(em, "'%s' holds no private key in PEM without a passphrase: %s", key_file, tls_why(cause));
		goto fail;
	}
	if (X509_check_private_key(k.cert, k.key) != 1) {
		errmsg_set(em, "the key in '%s' is not that of the certificate in '%s'", key_file, cert_file);
		ERR_clear_error();
		goto fail;
	}
	*ret = k;
	return ERR_OK;
fail:
	tls_key_clear(&k);
	return ERR_IO;
}

/* ---- lists of revoked certificates ---- */

static void read_crls(BIO *bio, STACK_OF(X509_CRL) *ret)
{
	X509_CRL *crl;
	char *bytes;
	long len = BIO_get_mem_data(bio, &bytes);
	const unsigned char *at = (const unsigned char *)bytes;
	if (len > 0 && at[0] == 0x30) { /* DER, as some CAs publish it */
		crl = d2i_X509_CRL(NULL, &at, len);
		if (crl)
			ASSERT(sk_X509_CRL_push(ret, crl) > 0);
		return;
	}
	while ((crl = PEM_read_bio_X509_CRL(bio, NULL, no_passphrase, NULL)))
		ASSERT(sk_X509_CRL_push(ret, crl) > 0);
}

static bool is_signed_by_one(X509_CRL *crl, STACK_OF(X509) *cas)
{
	for (int i = 0; i < sk_X509_num(cas); i++) {
		X509 *ca = sk_X509_value(cas, i);
		if (X509_NAME_cmp(X509_get_subject_name(ca), X509_CRL_get_issuer(crl)) == 0 && X509_CRL_verify(crl, X509_get0_pubkey(ca)) == 1)
			return true;
	}
	return false;
}

static enum err load_crls(const char *path, STACK_OF(X509) *cas, STACK_OF(X509_CRL) **ret, struct errmsg *em)
{
	STACK_OF(X509_CRL) *crls;
	unsigned long last;
	BIO *bio = read_file(path, em);
	bool whole;
	if (!bio)
		return ERR_IO;
	crls = sk_X509_CRL_new_null();
	ERR_clear_error();
	read_crls(bio, crls);
	BIO_free(bio);
	last = ERR_peek_last_error();
	whole = sk_X509_CRL_num(crls) > 0 && (!last || ERR_GET_REASON(last) == PEM_R_NO_START_LINE);
	ERR_clear_error();
	if (!whole) {
		errmsg_set(em, "'%s' is not a file of certificate revocation lists, in PEM or DER", path);
		goto fail;
	}
	for (int i = 0; i < sk_X509_CRL_num(crls); i++) {
		if (!is_signed_by_one(sk_X509_CRL_value(crls, i), cas)) {
			errmsg_set(em, "'%s' holds a revocation list that none of the trusted CAs has signed", path);
			ERR_clear_error();
			goto fail;
		}
	}
	*ret = crls;
	return ERR_OK;
fail:
	sk_X509_CRL_pop_free(crls, X509_CRL_free);
	return ERR_IO;
}

enum err tls_trust_load(const char *ca_file, const char *crl_file, struct tls_trust *ret, struct errmsg *em)
{
	struct tls_trust t = { .cas = NULL };
	if (ca_file) {
		t.cas = load_certs(ca_file, em);
		if (!t.cas)
			return ERR_IO;
	}
	if (crl_file) {
		enum err e = load_crls(crl_file, t.cas, &t.crls, em);
		if (e) {
			tls_trust_clear(&t);
			return e;
		}
	}
	*ret = t;
	return ERR_OK;
}
