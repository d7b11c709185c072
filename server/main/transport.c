/* transport.c: see transport.h. */
#include "transport.h"

#include <stdio.h>
#include <string.h>

#include "net/url.h"

#define HOSTS_MAX 64

/* Of a certificate that we make: whatever clients and peers are told to come to. */
struct hosts {
	struct url urls[HOSTS_MAX];
	const char *names[HOSTS_MAX];
	size_t len;
};

static bool is_wildcard(const char *host)
{
	return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

static void hosts_add(struct hosts *h, const char *url)
{
	struct url *u = &h->urls[h->len];
	if (h->len == HOSTS_MAX || !url_parse(url, u) || url_is_unix(u) || is_wildcard(u->host))
		return;
	u->host[strcspn(u->host, "%")] = '\0';
	for (size_t i = 0; i < h->len; i++) {
		if (strcmp(h->names[i], u->host) == 0)
			return;
	}
	h->names[h->len++] = u->host;
}

static void hosts_add_all(struct hosts *h, const struct url_list *l)
{
	for (size_t i = 0; i < l->len; i++)
		hosts_add(h, l->urls[i]);
}

static struct tls_context *open_one(const struct options *o, const struct tls_flags *f, const char *name, const struct hosts *h, struct errmsg *em)
{
	char dir[4096];
	struct tls_config c = {
		.name = name,
		.cert_file = f->cert_file,
		.key_file = f->key_file,
		.ca_file = f->trusted_ca_file,
		.crl_file = f->crl_file,
		.allowed_cns = f->allowed_cn,
		.allowed_hosts = f->allowed_hostname,
		.cipher_suites = o->cipher_suites,
		.min_version = o->tls_min_version,
		.max_version = o->tls_max_version,
		.trust_any_server = !f->cert_file, /* the peers' are as self-made as ours */
		.self_dir = dir,
		.self_validity_s = o->self_signed_years * 365 * 86400,
		.self_hosts = h->names,
		.self_hosts_len = h->len,
	};
	snprintf(dir, sizeof(dir), "%s/fixtures/%s", o->data_dir, name); /* where etcd has them */
	return tls_context_new(&c, em);
}

static enum err open_client(const struct options *o, struct transport *t, struct errmsg *em)
{
	struct hosts h = { .len = 0 };
	if (!options_any_tls(&o->listen_client) && !options_any_tls(&o->listen_client_http) && !options_any_tls(&o->listen_metrics))
		return ERR_OK;
	hosts_add(&h, "https://localhost:1");
	hosts_add_all(&h, &o->listen_client);
	hosts_add_all(&h, &o->advertise_client);
	hosts_add_all(&h, &o->listen_client_http);
	hosts_add_all(&h, &o->listen_metrics);
	t->client = open_one(o, &o->client_tls, "client", &h, em);
	return t->client ? ERR_OK : ERR_IO;
}

/* Members that join later may have https:// URLs as well: whoever has the means can speak to them. */
static enum err open_peer(const struct options *o, struct transport *t, struct errmsg *em)
{
	struct hosts h = { .len = 0 };
	if (!o->peer_tls.cert_file && !o->peer_tls.auto_tls)
		return ERR_OK;
	hosts_add(&h, "https://localhost:1");
	hosts_add_all(&h, &o->listen_peer);
	hosts_add_all(&h, &o->initial_advertise_peer);
	t->peer = open_one(o, &o->peer_tls, "peer", &h, em);
	return t->peer ? ERR_OK : ERR_IO;
}

enum err transport_open(const struct options *o, struct transport *ret, struct errmsg *em)
{
	enum err e = open_client(o, ret, em);
	return e ? e : open_peer(o, ret, em);
}

void transport_close(struct transport *t)
{
	tls_context_free(t->client);
	tls_context_free(t->peer);
}
