/* options_tls.c: the flags for TLS, as they stand together. Whoever asks for safety and would not get it is told at start, not by an accident later. */
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>

#include "net/tls.h"
#include "net/url.h"
#include "options_internal.h"

bool options_tls_version(const char *value, int *ret)
{
	if (strcmp(value, "TLS1.2") == 0)
		*ret = TLS1_2_VERSION;
	else if (strcmp(value, "TLS1.3") == 0)
		*ret = TLS1_3_VERSION;
	else if (!*value)
		*ret = 0;
	else
		return false;
	return true;
}

static size_t count_tls(const struct url_list *l)
{
	size_t n = 0;
	for (size_t i = 0; i < l->len; i++) {
		struct url u;
		n += url_parse(l->urls[i], &u) && url_is_tls(&u);
	}
	return n;
}

bool options_any_tls(const struct url_list *l)
{
	return count_tls(l) > 0;
}

/* prefix: "" or "peer-"; auth: the flag that asks for certificates; crl: the one of the list. */
static bool check_files(const struct tls_flags *f, const char *prefix, const char *auth, const char *crl, bool https, struct errmsg *em)
{
	if (!f->cert_file != !f->key_file)
		errmsg_set(em, "--%scert-file and --%skey-file go together", prefix, prefix);
	else if (https && !f->cert_file && !f->auto_tls)
		errmsg_set(em, "an https:// URL needs --%scert-file and --%skey-file, or --%sauto-tls", prefix, prefix, prefix);
	else if (f->cert_auth && !f->trusted_ca_file)
		errmsg_set(em, "--%s needs --%strusted-ca-file: without CAs no certificate could be checked", auth, prefix);
	else if (f->crl_file && !f->trusted_ca_file)
		errmsg_set(em, "--%s needs --%strusted-ca-file: nobody is asked for a certificate otherwise", crl, prefix);
	else if (f->allowed_cn && f->allowed_hostname)
		errmsg_set(em, "--%scert-allowed-cn and --%scert-allowed-hostname exclude each other", prefix, prefix);
	else if ((f->allowed_cn || f->allowed_hostname) && !f->trusted_ca_file)
		errmsg_set(em, "names that are allowed need --%strusted-ca-file: a name that no CA vouches for is worth nothing", prefix);
	else
		return true;
	return false;
}

static bool check_peers(const struct options *o, struct errmsg *em)
{
	const struct tls_flags *f = &o->peer_tls;
	if (!f->auto_tls || f->cert_file || !f->trusted_ca_file)
		return true;
	errmsg_set(em, "--peer-auto-tls makes certificates that no CA vouches for: it does not go with --peer-trusted-ca-file");
	return false;
}

static bool check_versions(const struct options *o, struct errmsg *em)
{
	struct errmsg why = { .text = "" };
	if (o->tls_max_version && o->tls_max_version < o->tls_min_version) {
		errmsg_set(em, "--tls-max-version is below --tls-min-version");
		return false;
	}
	if (o->cipher_suites && !tls_check_suites(o->cipher_suites, o->tls_min_version, o->tls_max_version, &why)) {
		errmsg_set(em, "--cipher-suites: %s", why.text);
		return false;
	}
	return true;
}

static void warn(struct options *o, const char *flag, const char *detail)
{
	options_warn(o, "a flag for TLS has less effect than it may seem", flag, strlen(flag), detail);
}

static void warn_of_plain(struct options *o, const struct tls_flags *f, const struct url_list *l, const char *flag)
{
	if ((f->cert_file || f->auto_tls) && count_tls(l) < l->len)
		warn(o, flag, "a URL that begins with http:// is served without TLS");
}

bool options_finish_tls(struct options *o, struct errmsg *em)
{
	bool clients = count_tls(&o->listen_client) || count_tls(&o->listen_client_http) || count_tls(&o->listen_metrics);
	bool peers = count_tls(&o->listen_peer) > 0;
	for (size_t i = 0; i < o->members_len; i++)
		peers = peers || count_tls(&o->members[i].peer_urls);
	if (!check_files(&o->client_tls, "", "client-cert-auth", "client-crl-file", clients, em) ||
	    !check_files(&o->peer_tls, "peer-", "peer-client-cert-auth", "peer-crl-file", peers, em) || !check_peers(o, em) || !check_versions(o, em))
		return false;
	warn_of_plain(o, &o->client_tls, &o->listen_client, "listen-client-urls");
	warn_of_plain(o, &o->client_tls, &o->listen_client_http, "listen-client-http-urls");
	warn_of_plain(o, &o->peer_tls, &o->listen_peer, "listen-peer-urls");
	if (o->client_tls.auto_tls && o->client_tls.cert_file)
		warn(o, "auto-tls", "--cert-file is what is used");
	if (o->peer_tls.auto_tls && o->peer_tls.cert_file)
		warn(o, "peer-auto-tls", "--peer-cert-file is what is used");
	else if (o->peer_tls.auto_tls)
		warn(o, "peer-auto-tls", "what peers say is encrypted, but who they are is not checked");
	if (peers && !o->peer_tls.auto_tls && !o->peer_tls.trusted_ca_file)
		warn(o, "peer-cert-file", "without --peer-trusted-ca-file whoever reaches the peer port may speak as a peer");
	return true;
}
