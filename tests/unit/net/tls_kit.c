/* tls_kit.c: see tls_kit.h. */
#include "tls_kit.h"

#include <check.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/mem.h"
#include "net_test.h"

/* ---- files ---- */

static char dir[64];
static pid_t dir_of;

static void remove_dir(void)
{
	char command[128];
	if (dir_of != getpid())
		return;
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	if (system(command) != 0)
		fprintf(stderr, "cannot remove %s\n", dir);
}

const char *kit_path(const char *name)
{
	static char paths[16][160];
	static unsigned turn;
	char *ret = paths[turn++ % 16];
	if (dir_of != getpid()) { /* each test is a process */
		snprintf(dir, sizeof(dir), "/tmp/holdfast-tls-XXXXXX");
		ASSERT(mkdtemp(dir));
		dir_of = getpid();
		atexit(remove_dir);
	}
	snprintf(ret, 160, "%s/%s", dir, name);
	return ret;
}

static FILE *create(const char *file, char path[200])
{
	FILE *f;
	snprintf(path, 200, "%s.new", kit_path(file));
	f = fopen(path, "we");
	ASSERT(f);
	return f;
}

static void put_in_place(FILE *f, const char *path, const char *file)
{
	ASSERT(fclose(f) == 0);
	ASSERT(rename(path, kit_path(file)) == 0);
}

void kit_write(const char *file, const char *text)
{
	char path[200];
	FILE *f = create(file, path);
	ASSERT(fputs(text, f) >= 0);
	put_in_place(f, path, file);
}

void kit_copy(const char *from, const char *to)
{
	char bytes[65536], path[200];
	FILE *in = fopen(kit_path(from), "re"), *out = create(to, path);
	size_t n;
	ASSERT(in);
	n = fread(bytes, 1, sizeof(bytes), in);
	fclose(in);
	ASSERT(fwrite(bytes, 1, n, out) == n);
	put_in_place(out, path, to);
}

/* ---- certificates ---- */

static void extend(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *e;
	X509V3_set_ctx_nodb(&ctx);
	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	ASSERT(e && X509_add_ext(cert, e, -1) == 1);
	X509_EXTENSION_free(e);
}

static X509 *begin_cert(EVP_PKEY *key, const char *cn, long serial, long from, long until)
{
	X509 *cert = X509_new();
	X509_NAME *name = X509_NAME_new();
	ASSERT(X509_set_version(cert, 2) == 1 && ASN1_INTEGER_set(X509_get_serialNumber(cert), serial) == 1);
	ASSERT(X509_gmtime_adj(X509_getm_notBefore(cert), from) && X509_gmtime_adj(X509_getm_notAfter(cert), until));
	if (cn)
		ASSERT(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)cn, -1, -1, 0) == 1);
	ASSERT(X509_set_subject_name(cert, name) == 1 && X509_set_pubkey(cert, key) == 1);
	X509_NAME_free(name);
	return cert;
}

struct kit_ca kit_ca_new(const char *name)
{
	struct kit_ca ca = { .key = EVP_EC_gen("P-256"), .serial = 1 };
	ca.cert = begin_cert(ca.key, name, 1, -3600, 86400 * 30);
	ASSERT(X509_set_issuer_name(ca.cert, X509_get_subject_name(ca.cert)) == 1);
	extend(ca.cert, ca.cert, NID_basic_constraints, "critical,CA:TRUE");
	extend(ca.cert, ca.cert, NID_key_usage, "critical,keyCertSign,cRLSign");
	ASSERT(X509_sign(ca.cert, ca.key, EVP_sha256()) > 0);
	return ca;
}

void kit_ca_free(struct kit_ca *ca)
{
	X509_free(ca->cert);
	EVP_PKEY_free(ca->key);
}

void kit_ca_write(const struct kit_ca *ca, const char *file)
{
	char path[200];
	FILE *f = create(file, path);
	ASSERT(PEM_write_X509(f, ca->cert) == 1);
	put_in_place(f, path, file);
}

long kit_cert(struct kit_ca *ca, const char *name, const struct kit_cert_spec *spec)
{
	char file[100], path[200];
	EVP_PKEY *key = EVP_EC_gen("P-256");
	bool usual = !spec->from_s && !spec->until_s;
	long serial = ca ? ++ca->serial : 1;
	X509 *cert = begin_cert(key, spec->cn, serial, usual ? -3600 : spec->from_s, usual ? 86400 : spec->until_s);
	FILE *f;
	ASSERT(X509_set_issuer_name(cert, X509_get_subject_name(ca ? ca->cert : cert)) == 1);
	extend(cert, ca ? ca->cert : cert, NID_ext_key_usage, spec->server_only ? "serverAuth" : "serverAuth,clientAuth");
	if (spec->names)
		extend(cert, ca ? ca->cert : cert, NID_subject_alt_name, spec->names);
	ASSERT(X509_sign(cert, ca ? ca->key : key, EVP_sha256()) > 0);
	snprintf(file, sizeof(file), "%s.pem", name);
	f = create(file, path);
	ASSERT(PEM_write_X509(f, cert) == 1);
	put_in_place(f, path, file);
	snprintf(file, sizeof(file), "%s.key", name);
	f = create(file, path);
	ASSERT(PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) == 1);
	put_in_place(f, path, file);
	X509_free(cert);
	EVP_PKEY_free(key);
	return serial;
}

void kit_crl(struct kit_ca *ca, const char *file, long serial, long from, long until)
{
	char path[200];
	X509_CRL *crl = X509_CRL_new();
	ASN1_TIME *t = ASN1_TIME_new();
	FILE *f = create(file, path);
	ASSERT(X509_CRL_set_version(crl, 1) == 1 && X509_CRL_set_issuer_name(crl, X509_get_subject_name(ca->cert)) == 1);
	ASSERT(X509_gmtime_adj(t, from) && X509_CRL_set1_lastUpdate(crl, t) == 1);
	ASSERT(X509_gmtime_adj(t, until) && X509_CRL_set1_nextUpdate(crl, t) == 1);
	if (serial) {
		X509_REVOKED *r = X509_REVOKED_new();
		ASN1_INTEGER *n = ASN1_INTEGER_new();
		ASSERT(ASN1_INTEGER_set(n, serial) == 1 && X509_REVOKED_set_serialNumber(r, n) == 1);
		ASSERT(X509_gmtime_adj(t, from) && X509_REVOKED_set_revocationDate(r, t) == 1 && X509_CRL_add0_revoked(crl, r) == 1);
		ASN1_INTEGER_free(n);
	}
	ASSERT(X509_CRL_sort(crl) == 1 && X509_CRL_sign(crl, ca->key, EVP_sha256()) > 0);
	if (strstr(file, ".der"))
		ASSERT(i2d_X509_CRL_fp(f, crl) == 1);
	else
		ASSERT(PEM_write_X509_CRL(f, crl) == 1);
	put_in_place(f, path, file);
	ASN1_TIME_free(t);
	X509_CRL_free(crl);
}

/* ---- a client ---- */

static SSL_CTX *client_ctx(const struct kit_client_spec *s)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	char name[100];
	if (s->ca) {
		snprintf(name, sizeof(name), "%s.pem", s->ca);
		ASSERT(SSL_CTX_load_verify_file(ctx, kit_path(name)) == 1);
		SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	}
	if (s->cert) {
		snprintf(name, sizeof(name), "%s.pem", s->cert);
		ASSERT(SSL_CTX_use_certificate_file(ctx, kit_path(name), SSL_FILETYPE_PEM) == 1);
		snprintf(name, sizeof(name), "%s.key", s->cert);
		ASSERT(SSL_CTX_use_PrivateKey_file(ctx, kit_path(name), SSL_FILETYPE_PEM) == 1);
	}
	if (s->alpn)
		ASSERT(SSL_CTX_set_alpn_protos(ctx, (const unsigned char *)s->alpn, (unsigned)strlen(s->alpn)) == 0);
	if (s->max_version)
		ASSERT(SSL_CTX_set_max_proto_version(ctx, s->max_version) == 1);
	return ctx;
}

bool kit_client_open(struct kit_client *c, uint16_t port, const struct kit_client_spec *spec)
{
	struct timeval limit = { .tv_sec = 10 };
	c->ctx = client_ctx(spec);
	c->ssl = SSL_new(c->ctx);
	c->fd = test_connect(port);
	ASSERT(setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
	if (spec->host)
		ASSERT(SSL_set1_host(c->ssl, spec->host) == 1);
	ASSERT(SSL_set_fd(c->ssl, c->fd) == 1);
	return SSL_connect(c->ssl) == 1;
}

void kit_client_close(struct kit_client *c)
{
	SSL_free(c->ssl);
	SSL_CTX_free(c->ctx);
	if (c->fd >= 0)
		close(c->fd);
	ERR_clear_error();
}

void kit_client_write(struct kit_client *c, const char *text)
{
	ck_assert_int_eq(SSL_write(c->ssl, text, (int)strlen(text)), (int)strlen(text));
}

int kit_client_read(struct kit_client *c, char *text, int cap)
{
	int n = SSL_read(c->ssl, text, cap - 1);
	text[n > 0 ? n : 0] = '\0';
	return n;
}

const char *kit_client_alpn(struct kit_client *c)
{
	static char text[64];
	const unsigned char *name;
	unsigned len;
	SSL_get0_alpn_selected(c->ssl, &name, &len);
	snprintf(text, sizeof(text), "%.*s", (int)len, len ? (const char *)name : "");
	return text;
}

bool kit_refused(uint16_t port, const struct kit_client_spec *spec)
{
	struct kit_client c;
	char byte[2];
	bool refused = !kit_client_open(&c, port, spec);
	if (!refused) {
		/* A server that let us in says nothing before it is asked: a timeout, not an end. */
		struct timeval limit = { .tv_usec = 300000 };
		int n;
		ASSERT(setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
		n = SSL_read(c.ssl, byte, 1);
		refused = n <= 0 && SSL_get_error(c.ssl, n) != SSL_ERROR_WANT_READ;
	}
	kit_client_close(&c);
	return refused;
}
