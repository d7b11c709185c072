/* tls.h: certificates and the rules for them: what a listener, or a link to a peer, needs to begin TLS. The only place that decides whom to believe.
 *
 * Certificate, key, CA bundle and CRL are files that may be replaced at any time. They are looked at when a handshake begins: when one has changed, all are
 * read anew, and when what was read is whole, it is what counts from there on, for every listener that shares the context; otherwise the old stays, with a
 * line in the log and in the metrics, until a file changes again. Connections that are open stay open.
 *
 * There is no resumption of sessions: it would let a certificate that was revoked meanwhile in again. */
#ifndef HOLDFAST_NET_TLS_H
#define HOLDFAST_NET_TLS_H

#include <openssl/ssl.h>
#include <stdint.h>

#include "base/buf.h"
#include "errors.h"
#include "identity.h"

enum { TLS_CAUSE_MAX = 160 };

struct tls_config {
	const char *name;                /* in logs and metrics: "client", "peer" */
	const char *cert_file, *key_file; /* PEM; the certificate may be followed by its chain. NULL: self-made */
	const char *ca_file;             /* PEM, one or more: who may vouch for the other end. NULL: nobody is asked for a certificate, and servers are
	                                    checked against the system's CAs */
	const char *crl_file;            /* PEM or DER. A certificate whose issuer has no list in it is not revoked; lists that are out of date count. NULL: none */
	const char *allowed_cns;         /* the other end's common name must be one of these, "a,b"; NULL: any */
	const char *allowed_hosts;       /* its alternative names must cover one of these; NULL: any */
	const char *cipher_suites;       /* "TLS_...,TLS_..."; NULL: OpenSSL's choice. tls_check_suites() has been here */
	int min_version, max_version;    /* TLS1_2_VERSION, TLS1_3_VERSION; 0: 1.2, the highest */
	bool trust_any_server;           /* links believe whom they reach: where all certificates are self-made */
	/* self-made */
	const char *self_dir;            /* where to keep it: cert.pem, key.pem. Made anew before it expires. NULL: in memory */
	uint64_t self_validity_s;
	const char *const *self_hosts;   /* names and addresses */
	size_t self_hosts_len;
};

/* What a listener speaks within TLS (ALPN). */
enum { TLS_HTTP1 = 1, TLS_HTTP2 = 2 };

struct tls_context;

/* Copies the config. NULL, with em: the files are missing or bad. */
struct tls_context *tls_context_new(const struct tls_config *config, struct errmsg *em);
struct tls_context *tls_context_ref(struct tls_context *t);
void tls_context_free(struct tls_context *t); /* gives a reference back; NULL is fine */

/* The server's side of a connection that is about to begin; speaks: TLS_HTTP1 | TLS_HTTP2. Never NULL. Any thread. */
SSL *tls_server_side(struct tls_context *t, unsigned speaks);
/* The client's side: the server must have a certificate for `host`, a name or an address. */
SSL *tls_client_side(struct tls_context *t, const char *host);
/* After the handshake. Counts it as well, as tls_failed() does. A reference. */
struct identity *tls_identity(struct tls_context *t, SSL *ssl, const char *address);
/* After one that failed, or was given up (error: SSL_get_error's; 0: no time was left). Logs, but not each: anybody could fill a disk by that. */
void tls_failed(struct tls_context *t, SSL *ssl, int error, const char *address);

/* Go's names of cipher suites, as etcd takes them. False with em: which is not known, or cannot be used with these versions. */
bool tls_check_suites(const char *suites, int min_version, int max_version, struct errmsg *em);

struct tls_figures {
	uint64_t handshakes, handshakes_failed, reloads, reloads_failed;
	bool stale;       /* the files are not what is in use: they are bad */
	int64_t not_after; /* of the certificate in use, in seconds since 1970 */
};
struct tls_figures tls_context_figures(struct tls_context *t);
/* Prometheus text; NULL among them is fine. */
void tls_write_metrics(struct tls_context *const *contexts, size_t len, struct buf *out);

#endif
