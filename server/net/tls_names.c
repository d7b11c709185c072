/* tls_names.c: whom a certificate names.
 *
 * Names come from a CA that we trust, but a CA may be careless: what is not text, or holds a zero byte, is no name at all. */
#include <arpa/inet.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "base/mem.h"
#include "tls_internal.h"

bool tls_is_address(const char *host)
{
	unsigned char bytes[16];
	return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

struct slice tls_common_name(const X509 *cert)
{
	const X509_NAME *subject = X509_get_subject_name(cert);
	unsigned char *text;
	int at = -1, last = -1, len;
	while ((at = X509_NAME_get_index_by_NID(subject, NID_commonName, at)) >= 0)
		last = at;
	if (last < 0)
		return slice_of(NULL, 0);
	len = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, last)));
	if (len < 0)
		return slice_of(NULL, 0);
	if (len == 0 || memchr(text, '\0', (size_t)len)) {
		OPENSSL_free(text);
		return slice_of(NULL, 0);
	}
	return slice_of(text, (size_t)len);
}

/* scratch: room for an address. */
static bool name_of(const GENERAL_NAME *g, char scratch[INET6_ADDRSTRLEN], struct identity_name *ret)
{
	int type;
	const ASN1_STRING *s = GENERAL_NAME_get0_value(g, &type);
	if (type == GEN_IPADD) {
		int len = ASN1_STRING_length(s);
		if ((len != 4 && len != 16) || !inet_ntop(len == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(s), scratch, INET6_ADDRSTRLEN))
			return false;
		*ret = (struct identity_name){ IDENTITY_IP, slice_of_str(scratch) };
		return true;
	}
	if (type != GEN_DNS && type != GEN_EMAIL && type != GEN_URI)
		return false;
	ret->kind = type == GEN_DNS ? IDENTITY_DNS : type == GEN_EMAIL ? IDENTITY_EMAIL : IDENTITY_URI;
	ret->text = slice_of(ASN1_STRING_get0_data(s), (size_t)ASN1_STRING_length(s));
	return ret->text.len && !memchr(ret->text.ptr, '\0', ret->text.len);
}

struct identity *tls_names_identity(const X509 *cert, const char *address)
{
	struct identity_name names[IDENTITY_NAMES_MAX];
	char scratch[IDENTITY_NAMES_MAX][INET6_ADDRSTRLEN];
	struct identity_spec spec = { .address = address, .tls = true, .certified = cert != NULL, .names = names };
	GENERAL_NAMES *all;
	struct identity *id;
	if (!cert)
		return identity_new(&spec);
	spec.common_name = tls_common_name(cert);
	all = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
	for (int i = 0; i < sk_GENERAL_NAME_num(all) && spec.names_len < IDENTITY_NAMES_MAX; i++)
		spec.names_len += name_of(sk_GENERAL_NAME_value(all, i), scratch[spec.names_len], &names[spec.names_len]);
	id = identity_new(&spec);
	GENERAL_NAMES_free(all);
	OPENSSL_free((void *)(uintptr_t)spec.common_name.ptr);
	return id;
}

/* ---- whom the configuration lets in ---- */

static bool is_one_of(const char *list, struct slice name)
{
	for (const char *at = list; *at;) {
		size_t len = strcspn(at, ",");
		if (len && slice_eq(slice_of(at, len), name))
			return true;
		at += len + (at[len] == ',');
	}
	return false;
}

static bool covers_one_of(X509 *cert, const char *list)
{
	for (const char *at = list; *at;) {
		size_t len = strcspn(at, ",");
		char host[256];
		if (len && len < sizeof(host)) {
			memcpy(host, at, len);
			host[len] = '\0';
			/* The subject's common name is nobody's host name: Go does not look at it either. */
			if (tls_is_address(host) ? X509_check_ip_asc(cert, host, 0) == 1 : X509_check_host(cert, host, len, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) == 1)
				return true;
		}
		at += len + (at[len] == ',');
	}
	return false;
}

bool tls_is_allowed(const struct tls_config *c, X509 *cert)
{
	if (c->allowed_cns) {
		struct slice cn = tls_common_name(cert);
		bool is = cn.len && is_one_of(c->allowed_cns, cn);
		OPENSSL_free((void *)(uintptr_t)cn.ptr);
		if (!is)
			return false;
	}
	return !c->allowed_hosts || covers_one_of(cert, c->allowed_hosts);
}
