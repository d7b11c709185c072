/* tls.c: the context: what the files said when they were last good, and what OpenSSL made of it.
 *
 *   (T1) server and client are there from tls_context_new() on, and replaced together, under mu. A connection keeps those that it began with.
 *   (T2) `seen` is how the files looked before they were last read: one that changes while it is read looks different at the next handshake, which reads again.
 *   (T3) the config is never changed once the context is made: OpenSSL's callbacks read it without a lock, for as long as there are connections. */
#include "tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/mem.h"
#include "log/log.h"
#include "tls_internal.h"

enum { FILES = 4, READ_BUFFER = 32 * 1024, LOG_EVERY_S = 5 };

/* How a file looked. All zero: it was not there. */
struct look {
	struct timespec mtime;
	off_t size;
	ino_t ino;
	dev_t dev;
};

struct tls_context {
	atomic_uint refs;
	struct tls_config config; /* (T3); its texts are our own */
	struct buf suites_12, suites_13;

	pthread_mutex_t mu;
	/* guarded by mu */
	SSL_CTX *server, *client;
	struct look seen[FILES];
	bool stale;
	int64_t not_after, renew_at;
	uint64_t reloads, reloads_failed;
	time_t logged_at; /* of failed handshakes */
	uint64_t unlogged;

	atomic_uint_fast64_t handshakes, handshakes_failed;
};

static int64_t now_s(void)
{
	return (int64_t)time(NULL);
}

/* ---- OpenSSL's questions ---- */

/* The other end offers protocols. HTTP/2 is for gRPC: who can do both is a browser, curl, or a library for JSON. */
static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in, unsigned int in_len, void *arg)
{
	static const unsigned char order[] = "\x08http/1.1\x02h2";
	unsigned speaks = (unsigned)(uintptr_t)SSL_get_app_data(ssl);
	const unsigned char *ours = speaks & TLS_HTTP1 ? order : order + 9;
	unsigned int ours_len = speaks & TLS_HTTP1 ? speaks & TLS_HTTP2 ? 12 : 9 : 3;
	unsigned char *chosen;
	(void)arg;
	if (SSL_select_next_proto(&chosen, out_len, ours, ours_len, in, in_len) != OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

static int on_verify_step(int fine, X509_STORE_CTX *st)
{
	int e = X509_STORE_CTX_get_error(st);
	/* A CA without a list has revoked nothing that we know of; and a list that is out of date is better than none: to refuse everybody because a
	 * new one is late would stop the cell. */
	if (!fine && (e == X509_V_ERR_UNABLE_TO_GET_CRL || e == X509_V_ERR_CRL_HAS_EXPIRED)) {
		X509_STORE_CTX_set_error(st, X509_V_OK);
		return 1;
	}
	return fine;
}

static int on_verify(X509_STORE_CTX *st, void *arg)
{
	const struct tls_config *c = arg;
	if (X509_verify_cert(st) != 1)
		return 0;
	if (tls_is_allowed(c, X509_STORE_CTX_get0_cert(st)))
		return 1;
	X509_STORE_CTX_set_error(st, X509_V_ERR_APPLICATION_VERIFICATION);
	return 0;
}

/* ---- making ---- */

static void set_trust(SSL_CTX *ctx, const struct tls_trust *trust)
{
	X509_STORE *store = SSL_CTX_get_cert_store(ctx);
	for (int i = 0; i < sk_X509_num(trust->cas); i++)
		ASSERT(X509_STORE_add_cert(store, sk_X509_value(trust->cas, i)) == 1);
	for (int i = 0; i < sk_X509_CRL_num(trust->crls); i++)
		ASSERT(X509_STORE_add_crl(store, sk_X509_CRL_value(trust->crls, i)) == 1);
	if (trust->crls)
		X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
}

static enum err set_key(SSL_CTX *ctx, const struct tls_key *key, struct errmsg *em)
{
	char cause[TLS_CAUSE_MAX];
	if (SSL_CTX_use_cert_and_key(ctx, key->cert, key->key, key->chain, /*override=*/1) == 1)
		return ERR_OK;
	errmsg_set(em, "cannot use the certificate: %s", tls_why(cause)); /* too weak, as a rule */
	return ERR_IO;
}

static SSL_CTX *common(struct tls_context *t, const SSL_METHOD *method)
{
	const struct tls_config *c = &t->config;
	SSL_CTX *ctx = SSL_CTX_new(method);
	int min = c->min_version ? c->min_version : TLS1_2_VERSION;
	ASSERT(ctx);
	if (t->suites_13.len && !t->suites_12.len)
		min = TLS1_3_VERSION;
	ASSERT(SSL_CTX_set_min_proto_version(ctx, min) == 1 && SSL_CTX_set_max_proto_version(ctx, c->max_version) == 1);
	if (t->suites_12.len)
		ASSERT(SSL_CTX_set_cipher_list(ctx, (const char *)t->suites_12.ptr) == 1);
	if (t->suites_13.len)
		ASSERT(SSL_CTX_set_ciphersuites(ctx, (const char *)t->suites_13.ptr) == 1);
	SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_CIPHER_SERVER_PREFERENCE);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_num_tickets(ctx, 0);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_read_ahead(ctx, 1);
	SSL_CTX_set_default_read_buffer_len(ctx, READ_BUFFER);
	SSL_CTX_set_cert_verify_callback(ctx, on_verify, &t->config);
	return ctx;
}

static enum err make_server(struct tls_context *t, const struct tls_key *key, const struct tls_trust *trust, SSL_CTX **ret, struct errmsg *em)
{
	SSL_CTX *ctx = common(t, TLS_server_method());
	enum err e = set_key(ctx, key, em);
	if (e) {
		SSL_CTX_free(ctx);
		return e;
	}
	SSL_CTX_set_alpn_select_cb(ctx, on_alpn, NULL);
	set_trust(ctx, trust);
	if (trust->cas) {
		for (int i = 0; i < sk_X509_num(trust->cas); i++)
			SSL_CTX_add_client_CA(ctx, sk_X509_value(trust->cas, i));
		SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, on_verify_step);
	}
	*ret = ctx;
	return ERR_OK;
}

static enum err make_client(struct tls_context *t, const struct tls_key *key, const struct tls_trust *trust, SSL_CTX **ret, struct errmsg *em)
{
	SSL_CTX *ctx = common(t, TLS_client_method());
	enum err e = set_key(ctx, key, em);
	if (e) {
		SSL_CTX_free(ctx);
		return e;
	}
	ASSERT(SSL_CTX_set_alpn_protos(ctx, (const unsigned char *)"\x02h2", 3) == 0);
	set_trust(ctx, trust);
	if (!trust->cas)
		SSL_CTX_set_default_verify_paths(ctx);
	SSL_CTX_set_verify(ctx, t->config.trust_any_server ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, on_verify_step);
	*ret = ctx;
	return ERR_OK;
}

/* With mu, or before anybody has the context. On an error nothing has changed. */
static enum err load(struct tls_context *t, struct errmsg *em)
{
	const struct tls_config *c = &t->config;
	struct tls_key key = { .cert = NULL };
	struct tls_trust trust = { .cas = NULL };
	SSL_CTX *server = NULL, *client = NULL;
	enum err e = c->cert_file ? tls_key_load(c->cert_file, c->key_file, &key, em) : tls_self_make(c, now_s(), &key, em);
	if (!e)
		e = tls_trust_load(c->ca_file, c->crl_file, &trust, em);
	if (!e)
		e = make_server(t, &key, &trust, &server, em);
	if (!e)
		e = make_client(t, &key, &trust, &client, em);
	if (e) {
		SSL_CTX_free(server);
	} else {
		SSL_CTX_free(t->server);
		SSL_CTX_free(t->client);
		t->server = server;
		t->client = client;
		t->not_after = tls_time_of(X509_get0_notAfter(key.cert));
		t->renew_at = c->cert_file ? INT64_MAX : tls_self_renew_at(c, key.cert);
		if (t->not_after <= now_s())
			log_warn("this certificate has expired, clients will refuse it", LOG_STR("listener", c->name), LOG_STR("file", c->cert_file));
	}
	tls_key_clear(&key);
	tls_trust_clear(&trust);
	ERR_clear_error();
	return e;
}

/* ---- files that change ---- */

static struct look look_at(const char *path)
{
	struct stat st;
	if (!path || stat(path, &st) != 0)
		return (struct look){ .size = 0 };
	return (struct look){ st.st_mtim, st.st_size, st.st_ino, st.st_dev };
}

/* Compared field by field: a struct has holes. */
static bool same_look(const struct look *a, const struct look *b)
{
	return a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec && a->size == b->size && a->ino == b->ino && a->dev == b->dev;
}

/* True when something is not as it was; it is now. */
static bool look_again(struct tls_context *t)
{
	const char *const paths[FILES] = { t->config.cert_file, t->config.key_file, t->config.ca_file, t->config.crl_file };
	bool changed = false;
	for (size_t i = 0; i < FILES; i++) {
		struct look now = look_at(paths[i]);
		changed = changed || !same_look(&now, &t->seen[i]);
		t->seen[i] = now;
	}
	return changed;
}

static void refresh_locked(struct tls_context *t)
{
	struct errmsg em = { .text = "" };
	bool due = now_s() >= t->renew_at;
	if (!look_again(t) && !due)
		return;
	if (load(t, &em) == ERR_OK) {
		t->reloads++;
		t->stale = false;
		log_info("certificates were read anew", LOG_STR("listener", t->config.name), LOG_I64("not_after", t->not_after));
		return;
	}
	t->reloads_failed++;
	t->stale = true;
	if (due)
		t->renew_at = now_s() + LOG_EVERY_S;
	log_error("cannot use the new certificates, the old stay in use", LOG_STR("listener", t->config.name), LOG_STR("cause", em.text));
}

/* ---- life ---- */

static const char *copy(const char *s)
{
	return s ? strcpy(mem_alloc(strlen(s) + 1), s) : NULL;
}

static void copy_config(struct tls_config *to, const struct tls_config *from)
{
	char **hosts = mem_alloc((from->self_hosts_len + 1) * sizeof(*hosts));
	*to = *from;
	to->name = copy(from->name);
	to->cert_file = copy(from->cert_file);
	to->key_file = copy(from->key_file);
	to->ca_file = copy(from->ca_file);
	to->crl_file = copy(from->crl_file);
	to->allowed_cns = copy(from->allowed_cns);
	to->allowed_hosts = copy(from->allowed_hosts);
	to->cipher_suites = NULL;
	to->self_dir = copy(from->self_dir);
	for (size_t i = 0; i < from->self_hosts_len; i++)
		hosts[i] = (char *)(uintptr_t)copy(from->self_hosts[i]);
	to->self_hosts = (const char *const *)hosts;
}

static void free_text(const char *s)
{
	free((void *)(uintptr_t)s);
}

static void free_config(struct tls_config *c)
{
	for (size_t i = 0; i < c->self_hosts_len; i++)
		free_text(c->self_hosts[i]);
	free((void *)(uintptr_t)c->self_hosts);
	free_text(c->name);
	free_text(c->cert_file);
	free_text(c->key_file);
	free_text(c->ca_file);
	free_text(c->crl_file);
	free_text(c->allowed_cns);
	free_text(c->allowed_hosts);
	free_text(c->self_dir);
}

struct tls_context *tls_context_new(const struct tls_config *config, struct errmsg *em)
{
	struct tls_context *t = mem_zalloc(sizeof(*t));
	atomic_init(&t->refs, 1);
	copy_config(&t->config, config);
	pthread_mutex_init(&t->mu, NULL);
	look_again(t);
	if (config->cipher_suites && tls_suites_split(config->cipher_suites, &t->suites_12, &t->suites_13, em)) {
		buf_append_byte(&t->suites_12, '\0');
		buf_append_byte(&t->suites_13, '\0');
		t->suites_12.len--;
		t->suites_13.len--;
	} else if (config->cipher_suites) {
		goto fail;
	}
	if (load(t, em) == ERR_OK)
		return t;
fail:
	tls_context_free(t);
	return NULL;
}

struct tls_context *tls_context_ref(struct tls_context *t)
{
	atomic_fetch_add(&t->refs, 1);
	return t;
}

void tls_context_free(struct tls_context *t)
{
	if (!t || atomic_fetch_sub(&t->refs, 1) != 1)
		return;
	SSL_CTX_free(t->server);
	SSL_CTX_free(t->client);
	buf_free(&t->suites_12);
	buf_free(&t->suites_13);
	pthread_mutex_destroy(&t->mu);
	free_config(&t->config);
	free(t);
}

/* ---- handshakes ---- */

SSL *tls_server_side(struct tls_context *t, unsigned speaks)
{
	SSL *ssl;
	pthread_mutex_lock(&t->mu);
	refresh_locked(t);
	ssl = SSL_new(t->server);
	pthread_mutex_unlock(&t->mu);
	ASSERT(ssl);
	SSL_set_app_data(ssl, (void *)(uintptr_t)speaks);
	SSL_set_accept_state(ssl);
	return ssl;
}

SSL *tls_client_side(struct tls_context *t, const char *host)
{
	SSL *ssl;
	pthread_mutex_lock(&t->mu);
	refresh_locked(t);
	ssl = SSL_new(t->client);
	pthread_mutex_unlock(&t->mu);
	ASSERT(ssl);
	if (tls_is_address(host)) {
		ASSERT(X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1);
	} else {
		SSL_set_hostflags(ssl, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
		ASSERT(SSL_set1_host(ssl, host) == 1);
		SSL_set_tlsext_host_name(ssl, host);
	}
	SSL_set_connect_state(ssl);
	return ssl;
}

struct identity *tls_identity(struct tls_context *t, SSL *ssl, const char *address)
{
	/* Of a client that was not asked for a certificate there is none here. */
	X509 *cert = SSL_get_verify_mode(ssl) & SSL_VERIFY_PEER ? SSL_get1_peer_certificate(ssl) : NULL;
	struct identity *id = tls_names_identity(cert, address);
	X509_free(cert);
	atomic_fetch_add(&t->handshakes, 1);
	return id;
}

static void why_failed(SSL *ssl, int error, int saved_errno, char text[TLS_CAUSE_MAX])
{
	long verify = SSL_get_verify_result(ssl);
	if (error == 0)
		snprintf(text, TLS_CAUSE_MAX, "it took too long");
	else if (verify != X509_V_OK)
		snprintf(text, TLS_CAUSE_MAX, "certificate refused: %s",
			 verify == X509_V_ERR_APPLICATION_VERIFICATION ? "not one of the names that are allowed" : X509_verify_cert_error_string(verify));
	else if (error == SSL_ERROR_SSL)
		tls_why(text);
	else
		snprintf(text, TLS_CAUSE_MAX, "%s", error == SSL_ERROR_SYSCALL && saved_errno ? strerror(saved_errno) : "the other end hung up");
	ERR_clear_error();
}

void tls_failed(struct tls_context *t, SSL *ssl, int error, const char *address)
{
	char cause[TLS_CAUSE_MAX];
	struct timespec now;
	uint64_t others = 0;
	bool log;
	why_failed(ssl, error, errno, cause);
	atomic_fetch_add(&t->handshakes_failed, 1);
	clock_gettime(CLOCK_MONOTONIC, &now);
	pthread_mutex_lock(&t->mu);
	log = !t->logged_at || now.tv_sec - t->logged_at >= LOG_EVERY_S;
	if (log) {
		others = t->unlogged;
		t->unlogged = 0;
		t->logged_at = now.tv_sec;
	} else {
		t->unlogged++;
	}
	pthread_mutex_unlock(&t->mu);
	if (log)
		log_warn("a TLS handshake failed", LOG_STR("listener", t->config.name), LOG_STR("address", address), LOG_STR("cause", cause), LOG_U64("others", others));
	else
		log_debug("a TLS handshake failed", LOG_STR("listener", t->config.name), LOG_STR("address", address), LOG_STR("cause", cause));
}

/* ---- figures ---- */

struct tls_figures tls_context_figures(struct tls_context *t)
{
	struct tls_figures f = { .handshakes = atomic_load(&t->handshakes), .handshakes_failed = atomic_load(&t->handshakes_failed) };
	pthread_mutex_lock(&t->mu);
	f.reloads = t->reloads;
	f.reloads_failed = t->reloads_failed;
	f.stale = t->stale;
	f.not_after = t->not_after;
	pthread_mutex_unlock(&t->mu);
	return f;
}

void tls_write_metrics(struct tls_context *const *contexts, size_t len, struct buf *out)
{
	static const struct {
		const char *name, *type, *help;
	} rows[] = {
		{ "holdfast_tls_handshakes_total", "counter", "TLS handshakes that succeeded." },
		{ "holdfast_tls_handshakes_failed_total", "counter", "TLS handshakes that failed or were given up." },
		{ "holdfast_tls_reloads_total", "counter", "Times that changed certificates, CAs or revocation lists were taken into use." },
		{ "holdfast_tls_reload_failures_total", "counter", "Times that they were bad and the old stayed in use." },
		{ "holdfast_tls_files_stale", "gauge", "1 while the files are bad and older ones are in use." },
		{ "holdfast_tls_certificate_expiry_seconds", "gauge", "When the certificate in use expires, in seconds since 1970." },
	};
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		bool headed = false;
		for (size_t i = 0; i < len; i++) {
			struct tls_figures f;
			if (!contexts[i])
				continue;
			f = tls_context_figures(contexts[i]);
			if (!headed)
				buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", rows[row].name, rows[row].help, rows[row].name, rows[row].type);
			headed = true;
			const uint64_t values[] = { f.handshakes, f.handshakes_failed, f.reloads, f.reloads_failed, f.stale, (uint64_t)f.not_after };
			buf_printf(out, "%s{listener=\"%s\"} %llu\n", rows[row].name, contexts[i]->config.name, (unsigned long long)values[row]);
		}
	}
}
