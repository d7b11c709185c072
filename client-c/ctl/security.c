/* security.c: see security.h. */
#include "security.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

enum { FILE_MAX_BYTES = 1 << 20 };

bool security_asked(const struct args *a)
{
	return a->cacert || a->cert || a->key || a->insecure_skip_tls_verify;
}

static char *read_text(const char *path, const char *flag, struct errmsg *em)
{
	struct buf b = { .ptr = NULL };
	char chunk[4096];
	size_t n;
	FILE *f = fopen(path, "re");
	if (!f) {
		errmsg_set(em, "--%s: cannot open '%s': %s", flag, path, strerror(errno));
		return NULL;
	}
	while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0 && b.len <= FILE_MAX_BYTES)
		buf_append(&b, chunk, n);
	if (ferror(f) || b.len > FILE_MAX_BYTES || !b.len) {
		errmsg_set(em, "--%s: '%s' %s", flag, path, ferror(f) ? "cannot be read" : b.len ? "is too large" : "is empty");
		buf_free(&b);
	} else {
		buf_append_byte(&b, '\0');
	}
	fclose(f);
	return (char *)b.ptr;
}

static bool is_pem(const char *text, const char *path, const char *flag, struct errmsg *em)
{
	if (strstr(text, "-----BEGIN "))
		return true;
	errmsg_set(em, "--%s: '%s' is not a PEM file", flag, path);
	return false;
}

static bool load(const char *path, const char *flag, char **ret, struct errmsg *em)
{
	if (!path)
		return true;
	*ret = read_text(path, flag, em);
	return *ret && is_pem(*ret, path, flag, em);
}

bool security_load(const struct args *a, struct security *ret, struct errmsg *em)
{
	struct security s = { .trust_any = a->insecure_skip_tls_verify };
	if (!a->cert != !a->key) {
		errmsg_set(em, "--cert and --key go together");
		return false;
	}
	if (load(a->cacert, "cacert", &s.roots, em) && load(a->cert, "cert", &s.cert, em) && load(a->key, "key", &s.key, em)) {
		*ret = s;
		return true;
	}
	security_clear(&s);
	return false;
}

void security_clear(struct security *s)
{
	free(s->roots);
	free(s->cert);
	if (s->key)
		explicit_bzero(s->key, strlen(s->key));
	free(s->key);
	memset(s, 0, sizeof(*s));
}

/* The only interface of gRPC's that takes a certificate and does not check the other end's. */
static grpc_channel_credentials *trusting(const struct security *s)
{
	grpc_tls_credentials_options *o = grpc_tls_credentials_options_create();
	grpc_tls_certificate_verifier *v = grpc_tls_certificate_verifier_no_op_create();
	grpc_tls_credentials_options_set_verify_server_cert(o, 0);
	grpc_tls_credentials_options_set_certificate_verifier(o, v);
	grpc_tls_certificate_verifier_release(v);
	grpc_tls_credentials_options_set_check_call_host(o, 0);
	if (s->cert) {
		grpc_tls_identity_pairs *pairs = grpc_tls_identity_pairs_create();
		grpc_tls_certificate_provider *p;
		grpc_tls_identity_pairs_add_pair(pairs, s->key, s->cert);
		p = grpc_tls_certificate_provider_static_data_create(NULL, pairs);
		grpc_tls_credentials_options_set_certificate_provider(o, p);
		grpc_tls_certificate_provider_release(p);
		grpc_tls_credentials_options_watch_identity_key_cert_pairs(o);
	}
	return grpc_tls_credentials_create(o);
}

grpc_channel_credentials *security_credentials(const struct security *s)
{
	grpc_ssl_pem_key_cert_pair pair = { .private_key = s->key, .cert_chain = s->cert };
	if (s->trust_any)
		return trusting(s);
	return grpc_ssl_credentials_create(s->roots, s->cert ? &pair : NULL, NULL, NULL);
}
