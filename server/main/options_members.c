/* options_members.c: who is in the cell, by --initial-cluster and the addresses that go with it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "options_internal.h"

static struct initial_member *member_named(struct options *o, const char *name, size_t len)
{
	for (size_t i = 0; i < o->members_len; i++) {
		if (strlen(o->members[i].name) == len && memcmp(o->members[i].name, name, len) == 0)
			return &o->members[i];
	}
	if (o->members_len == OPTIONS_MEMBERS_MAX)
		return NULL;
	o->members[o->members_len].name = options_copy(name, len);
	return &o->members[o->members_len++];
}

void options_members_free(struct options *o)
{
	while (o->members_len) {
		struct initial_member *m = &o->members[--o->members_len];
		free(m->name);
		value_urls_free(&m->peer_urls);
	}
}

bool own_cluster(struct options *o, const char *value, struct errmsg *em)
{
	options_members_free(o);
	for (const char *at = value; *at;) {
		size_t len = strcspn(at, ",");
		const char *eq = memchr(at, '=', len);
		struct initial_member *m;
		if (!eq || eq == at) {
			errmsg_set(em, "'%.*s' is not of the form NAME=http://HOST:PORT", (int)len, at);
			return false;
		}
		m = member_named(o, at, (size_t)(eq - at));
		if (!m) {
			errmsg_set(em, "more than %d members", OPTIONS_MEMBERS_MAX);
			return false;
		}
		if (!value_add_url(&m->peer_urls, eq + 1, len - (size_t)(eq + 1 - at), em))
			return false;
		at += len + (at[len] == ',');
	}
	/* An empty variable in a script must not make a cell of every replica. */
	if (!o->members_len)
		errmsg_set(em, "no member given");
	return o->members_len > 0;
}

static void urls_default(struct url_list *l, const struct url_list *from)
{
	for (size_t i = 0; l->len == i && i < from->len; i++)
		l->urls[l->len++] = options_copy(from->urls[i], strlen(from->urls[i]));
}

static bool same_urls(const struct url_list *a, const struct url_list *b)
{
	if (a->len != b->len)
		return false;
	for (size_t i = 0; i < a->len; i++) {
		size_t j = 0;
		while (j < b->len && strcmp(a->urls[i], b->urls[j]) != 0)
			j++;
		if (j == b->len)
			return false;
	}
	return true;
}

bool options_finish_members(struct options *o, struct errmsg *em)
{
	struct initial_member *self = NULL;
	if (!o->data_dir) {
		o->data_dir = mem_alloc(strlen(o->name) + sizeof(".holdfast"));
		sprintf(o->data_dir, "%s.holdfast", o->name);
	}
	urls_default(&o->advertise_client, &o->listen_client);
	urls_default(&o->initial_advertise_peer, &o->listen_peer);
	if (!o->members_len) {
		self = member_named(o, o->name, strlen(o->name));
		urls_default(&self->peer_urls, &o->initial_advertise_peer);
	}
	for (size_t i = 0; i < o->members_len; i++) {
		if (strcmp(o->members[i].name, o->name) == 0)
			self = &o->members[i];
	}
	if (!self) {
		errmsg_set(em, "--initial-cluster has no member named '%s' (--name)", o->name);
		return false;
	}
	if (!same_urls(&self->peer_urls, &o->initial_advertise_peer)) {
		errmsg_set(em, "--initial-cluster has %s=%s, but --initial-advertise-peer-urls is %s", o->name, self->peer_urls.urls[0],
			   o->initial_advertise_peer.urls[0]);
		return false;
	}
	return true;
}

/* Two members at one address would be one member: their IDs are made of it. */
bool options_addresses_differ(const struct options *o, struct errmsg *em)
{
	const char *seen[OPTIONS_MEMBERS_MAX * OPTIONS_URLS_MAX];
	size_t len = 0;
	for (size_t i = 0; i < o->members_len; i++) {
		const struct url_list *l = &o->members[i].peer_urls;
		for (size_t j = 0; j < l->len; j++) {
			for (size_t k = 0; k < len; k++) {
				if (strcmp(seen[k], l->urls[j]) == 0) {
					errmsg_set(em, "--initial-cluster has %s twice", l->urls[j]);
					return false;
				}
			}
			seen[len++] = l->urls[j];
		}
	}
	return true;
}
