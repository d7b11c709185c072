/* tls_self.c: a key and a certificate of our own making, for those who want encryption and have no CA.
 *
 * It is kept in two files, so that clients may be given the certificate and restarts do not change it. Once a third of its time is left (30 days at the most),
 * or its hosts are not the ones asked for, it is made anew: it never expires while it is in use. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "log/log.h"
#include "tls_internal.h"

enum { RENEW_BEFORE_MAX_S = 30 * 86400, BACKDATED_S = 300 /* for clocks that are slow */ };

int64_t tls_self_renew_at(const struct tls_config *c, const X509 *cert)
{
	int64_t before = (int64_t)(c->self_validity_s / 3);
	return tls_time_of(X509_get0_notAfter(cert)) - (before < RENEW_BEFORE_MAX_S ? before : RENEW_BEFORE_MAX_S);
}

static bool covers(X509 *cert, const char *host)
{
	if (tls_is_address(host))
		return X509_check_ip_asc(cert, host, 0) == 1;
	return X509_check_host(cert, host, strlen(host), X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) == 1;
}

static bool is_fit(const struct tls_config *c, X509 *cert, int64_t now)
{
	if (now >= tls_self_renew_at(c, cert) || now < tls_time_of(X509_get0_notBefore(cert)))
		return false;
	for (size_t i = 0; i < c->self_hosts_len; i++) {
		if (!covers(cert, c->self_hosts[i]))
			return false;
	}
	return true;
}

/* ---- making ---- */

static void add_extension(X509 *cert, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *e;
	X509V3_set_ctx_nodb(&ctx);
	X509V3_set_ctx(&ctx, cert, cert, NULL, NULL, 0);
	e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	ASSERT(e && X509_add_ext(cert, e, -1) == 1);
	X509_EXTENSION_free(e);
}

static GENERAL_NAME *general_name(const char *host)
{
	GENERAL_NAME *g = GENERAL_NAME_new();
	if (tls_is_address(host)) {
		GENERAL_NAME_set0_value(g, GEN_IPADD, a2i_IPADDRESS(host));
	} else {
		ASN1_IA5STRING *s = ASN1_IA5STRING_new();
		ASSERT(ASN1_STRING_set(s, host, -1) == 1);
		GENERAL_NAME_set0_value(g, GEN_DNS, s);
	}
	return g;
}

static void add_hosts(X509 *cert, const struct tls_config *c)
{
	GENERAL_NAMES *names;
	if (!c->self_hosts_len)
		return;
	names = GENERAL_NAMES_new();
	for (size_t i = 0; i < c->self_hosts_len; i++)
		ASSERT(sk_GENERAL_NAME_push(names, general_name(c->self_hosts[i])) > 0);
	ASSERT(X509_add1_ext_i2d(cert, NID_subject_alt_name, names, 0, X509V3_ADD_DEFAULT) == 1);
	GENERAL_NAMES_free(names);
}

static X509 *make_cert(const struct tls_config *c, EVP_PKEY *key, int64_t now)
{
	X509 *cert = X509_new();
	X509_NAME *name = X509_NAME_new();
	BIGNUM *serial = BN_new();
	ASSERT(cert && name && serial);
	ASSERT(X509_set_version(cert, 2) == 1);
	ASSERT(BN_rand(serial, 127, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 && BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(cert)));
	ASSERT(ASN1_TIME_set(X509_getm_notBefore(cert), (time_t)(now - BACKDATED_S)) && ASN1_TIME_set(X509_getm_notAfter(cert), (time_t)(now + (int64_t)c->self_validity_s)));
	ASSERT(X509_NAME_add_entry_by_txt(name, "O", MBSTRING_ASC, (const unsigned char *)"holdfast", -1, -1, 0) == 1);
	ASSERT(X509_set_subject_name(cert, name) == 1 && X509_set_issuer_name(cert, name) == 1 && X509_set_pubkey(cert, key) == 1);
	add_extension(cert, NID_key_usage, "critical,digitalSignature,keyEncipherment");
	add_extension(cert, NID_ext_key_usage, "serverAuth,clientAuth");
	add_extension(cert, NID_basic_constraints, "critical,CA:FALSE");
	add_hosts(cert, c);
	ASSERT(X509_sign(cert, key, EVP_sha256()) > 0);
	X509_NAME_free(name);
	BN_free(serial);
	return cert;
}

/* ---- keeping ---- */

static bool write_file(const char *dir, const char *name, BIO *text, mode_t mode)
{
	char path[4096], aside[4096 + 8], *bytes;
	long len = BIO_get_mem_data(text, &bytes);
	int fd;
	bool fine;
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	snprintf(aside, sizeof(aside), "%s.new", path);
	fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	if (fd < 0)
		return false;
	fine = write(fd, bytes, (size_t)len) == len && fsync(fd) == 0;
	close(fd);
	return fine && rename(aside, path) == 0;
}

static bool make_dirs(const char *dir)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s", dir);
	for (char *at = path + 1; (at = strchr(at, '/')); *at++ = '/') {
		*at = '\0';
		if (mkdir(path, 0700) != 0 && errno != EEXIST)
			return false;
	}
	return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* When it cannot be kept it serves all the same, until a restart makes another. */
static void keep(const char *dir, const struct tls_key *k)
{
	BIO *cert = BIO_new(BIO_s_mem()), *key = BIO_new(BIO_s_mem());
	ASSERT(cert && key && PEM_write_bio_X509(cert, k->cert) == 1 && PEM_write_bio_PrivateKey(key, k->key, NULL, NULL, 0, NULL, NULL) == 1);
	if (!make_dirs(dir) || !write_file(dir, "key.pem", key, 0600) || !write_file(dir, "cert.pem", cert, 0644))
		log_warn("cannot keep a self-made certificate, a restart will make another", LOG_STR("directory", dir), LOG_STR("cause", strerror(errno)));
	BIO_free(cert);
	BIO_free(key);
}

static bool load_kept(const struct tls_config *c, int64_t now, struct tls_key *ret)
{
	char cert[4096], key[4096];
	struct errmsg ignored;
	snprintf(cert, sizeof(cert), "%s/cert.pem", c->self_dir);
	snprintf(key, sizeof(key), "%s/key.pem", c->self_dir);
	if (access(cert, R_OK) != 0 || tls_key_load(cert, key, ret, &ignored) != ERR_OK)
		return false;
	if (is_fit(c, ret->cert, now))
		return true;
	tls_key_clear(ret);
	return false;
}

enum err tls_self_make(const struct tls_config *c, int64_t now, struct tls_key *ret, struct errmsg *em)
{
	struct tls_key k = { .cert = NULL };
	char cause[TLS_CAUSE_MAX];
	if (c->self_dir && load_kept(c, now, ret))
		return ERR_OK;
	k.key = EVP_EC_gen("P-256");
	if (!k.key) {
		errmsg_set(em, "cannot make a key: %s", tls_why(cause));
		return ERR_IO;
	}
	k.cert = make_cert(c, k.key, now);
	if (c->self_dir)
		keep(c->self_dir, &k);
	log_info("made a certificate of our own", LOG_STR("listener", c->name), LOG_I64("not_after", tls_time_of(X509_get0_notAfter(k.cert))));
	*ret = k;
	return ERR_OK;
}
