/* tls_suites.c: cipher suites by the names of their standards, as etcd's flag takes them. */
#include <openssl/ssl.h>
#include <string.h>

#include "tls_internal.h"

/* Go's older names for two of them lack the hash. */
static const char *standard_name(const char *name)
{
	if (strcmp(name, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305") == 0)
		return "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256";
	if (strcmp(name, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305") == 0)
		return "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256";
	return name;
}

static void add(struct buf *list, const char *name)
{
	if (list->len)
		buf_append_byte(list, ':');
	buf_append(list, name, strlen(name));
}

/* True when OpenSSL can speak it. Those of 1.3 have no key exchange in their names. */
static bool add_suite(const char *name, struct buf *ret_12, struct buf *ret_13)
{
	SSL_CTX *ctx;
	const char *openssl;
	bool known;
	if (strncmp(name, "TLS_", 4) != 0)
		return false;
	openssl = OPENSSL_cipher_name(standard_name(name));
	if (!openssl || strcmp(openssl, "(NONE)") == 0)
		return false;
	ctx = SSL_CTX_new(TLS_method());
	if (strncmp(openssl, "TLS_", 4) == 0) {
		known = SSL_CTX_set_ciphersuites(ctx, openssl) == 1;
		if (known)
			add(ret_13, openssl);
	} else {
		known = SSL_CTX_set_cipher_list(ctx, openssl) == 1;
		if (known)
			add(ret_12, openssl);
	}
	SSL_CTX_free(ctx);
	return known;
}

bool tls_suites_split(const char *suites, struct buf *ret_12, struct buf *ret_13, struct errmsg *em)
{
	for (const char *at = suites; *at;) {
		size_t len = strcspn(at, ",");
		char name[96];
		if (len >= sizeof(name)) {
			errmsg_set(em, "'%.*s' is no cipher suite", (int)sizeof(name), at);
			return false;
		}
		memcpy(name, at, len);
		name[len] = '\0';
		if (len && !add_suite(name, ret_12, ret_13)) {
			errmsg_set(em, "'%s' is no cipher suite that can be used; they are written like TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", name);
			return false;
		}
		at += len + (at[len] == ',');
	}
	if (!ret_12->len && !ret_13->len)
		errmsg_set(em, "no cipher suite given");
	else
		return true;
	return false;
}

bool tls_check_suites(const char *suites, int min_version, int max_version, struct errmsg *em)
{
	struct buf for_12 = { .ptr = NULL }, for_13 = { .ptr = NULL };
	bool fine = tls_suites_split(suites, &for_12, &for_13, em);
	if (fine && !for_13.len && min_version == TLS1_3_VERSION) {
		errmsg_set(em, "none of these cipher suites is one of TLS 1.3, and nothing below is spoken");
		fine = false;
	} else if (fine && !for_12.len && max_version == TLS1_2_VERSION) {
		errmsg_set(em, "all of these cipher suites are of TLS 1.3, and it is not spoken");
		fine = false;
	}
	buf_free(&for_12);
	buf_free(&for_13);
	return fine;
}
