/* cell.c: see cell.h.
 *
 *   (C1) a cell's ID is made of its first members and its token. Who joins works it out again from what it is told, and does not believe an ID that
 *        does not come out; two answers that name different cells stop it.
 *   (C2) the state that the log begins from is that of the first members, on a replica that joins years later as well; so it is kept, and told.
 *   (C3) a member whose data directory is bound is not joined a second time with an empty one: it has promised what it no longer knows. */
#include "cell.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "core/member/member.h"
#include "core/snapshot/snapshot.h"
#include "holdfast/internal.pb-c.h"
#include "log/log.h"
#include "net/peers.h"

#define ASK_MS 2000
#define PATIENCE_MS 15000
#define PAUSE_MS 200

typedef Holdfast__Internal__CellInfo cell_info_message;

void cell_init(struct cell *c)
{
	memset(c, 0, sizeof(*c));
	state_init(&c->initial);
}

void cell_free(struct cell *c)
{
	state_deinit(&c->initial);
	buf_free(&c->origin);
	free(c->token);
}

static void write_members(const struct state *st, uint32_t field, struct buf *out)
{
	struct tree_cursor cursor;
	for (struct tree_record *r = tree_first(&cursor, &st->members); r; r = tree_next(&cursor)) {
		size_t mark = pbw_open(out, field);
		member_record_type.encode(r, out);
		pbw_close(out, mark);
	}
}

static void make_origin(struct cell *c, const char *token)
{
	buf_clear(&c->origin);
	pbw_fixed64(&c->origin, 1, c->cell_id);
	pbw_bytes(&c->origin, 2, slice_of_str(token));
	write_members(&c->initial, 3, &c->origin);
	pbw_u64(&c->origin, 5, c->joined);
}

void cell_info(const struct cell *c, const struct state *now, struct buf *ret)
{
	buf_append_slice(ret, buf_view(&c->origin));
	write_members(now, 4, ret);
}

void cell_from_options(struct cell *c, const struct options *o)
{
	member_id ids[OPTIONS_MEMBERS_MAX];
	for (size_t i = 0; i < o->members_len; i++) {
		const struct initial_member *m = &o->members[i];
		const char *const *urls = (const char *const *)m->peer_urls.urls;
		member_add_initial(&c->initial, &(struct member_spec){ m->name, urls, m->peer_urls.len }, o->initial_cluster_token);
		ids[i] = member_derive_id(urls, m->peer_urls.len, o->initial_cluster_token);
		if (strcmp(m->name, o->name) == 0)
			c->self = ids[i];
	}
	c->cell_id = member_derive_cell_id(ids, o->members_len);
	make_origin(c, o->initial_cluster_token);
}

void cell_from_backup(struct cell *c, const struct options *o, const uint8_t checksum[SHA256_BYTES])
{
	struct options with_token = *o;
	struct buf token = { .ptr = NULL };
	buf_printf(&token, "%s.", o->initial_cluster_token);
	for (size_t i = 0; i < 8; i++)
		buf_printf(&token, "%02x", checksum[i]);
	buf_append_byte(&token, 0);
	c->token = (char *)token.ptr;
	with_token.initial_cluster_token = c->token;
	cell_from_options(c, &with_token);
	c->joined = true;
	make_origin(c, c->token);
}

const char *cell_backup_token(const struct cell *c)
{
	return c->token;
}

/* ---- from what was kept, or told ---- */

static cell_info_message *unpack(struct slice bytes)
{
	if (pb_check(&holdfast__internal__cell_info__descriptor, bytes, 1) != PB_CHECK_OK)
		return NULL;
	return holdfast__internal__cell_info__unpack(NULL, bytes.len, bytes.ptr);
}

static bool fits(const Holdfast__Internal__MemberRecord *m)
{
	bool fits = strlen(m->name) <= MEMBER_NAME_MAX && m->n_peer_urls > 0 && m->n_peer_urls <= MEMBER_URLS_MAX;
	for (size_t i = 0; fits && i < m->n_peer_urls; i++)
		fits = *m->peer_urls[i] && strlen(m->peer_urls[i]) <= MEMBER_URL_BYTES_MAX;
	return fits;
}

/* (C1), (C2) */
static bool take_initial(struct cell *c, const cell_info_message *info)
{
	member_id ids[MEMBERS_MAX];
	if (info->n_initial == 0 || info->n_initial > MEMBERS_MAX)
		return false;
	for (size_t i = 0; i < info->n_initial; i++) {
		const Holdfast__Internal__MemberRecord *m = info->initial[i];
		const char *const *urls = (const char *const *)m->peer_urls;
		if (!fits(m))
			return false;
		ids[i] = member_derive_id(urls, m->n_peer_urls, info->token);
		if (member_find(&c->initial, ids[i]))
			return false;
		member_add_initial(&c->initial, &(struct member_spec){ m->name, urls, m->n_peer_urls }, info->token);
	}
	c->cell_id = member_derive_cell_id(ids, info->n_initial);
	return c->cell_id == info->cell_id;
}

enum err cell_from_origin(struct cell *c, struct slice origin, struct errmsg *em)
{
	cell_info_message *info = unpack(origin);
	bool good = info && take_initial(c, info);
	if (good) {
		c->joined = info->joined;
		make_origin(c, info->token);
	} else {
		errmsg_set(em, "what the data directory says of its cell cannot be read: replace this member");
	}
	if (info)
		holdfast__internal__cell_info__free_unpacked(info, NULL);
	return good ? ERR_OK : ERR_CORRUPT;
}

/* ---- joining ---- */

static bool has_all(char *const *a, size_t a_len, char *const *b, size_t b_len)
{
	for (size_t i = 0; i < a_len; i++) {
		size_t j = 0;
		while (j < b_len && strcmp(a[i], b[j]) != 0)
			j++;
		if (j == b_len)
			return false;
	}
	return true;
}

static const Holdfast__Internal__MemberRecord *find_self(const cell_info_message *info, const struct options *o)
{
	const struct url_list *own = &o->initial_advertise_peer;
	for (size_t i = 0; i < info->n_members; i++) {
		const Holdfast__Internal__MemberRecord *m = info->members[i];
		if (m->n_peer_urls == own->len && has_all(m->peer_urls, m->n_peer_urls, own->urls, own->len))
			return m;
	}
	return NULL;
}

static enum err take_answer(struct cell *c, const cell_info_message *info, const char *url, const struct options *o, struct errmsg *em)
{
	const Holdfast__Internal__MemberRecord *self = find_self(info, o);
	if (!self) {
		errmsg_set(em, "the cell of %s has no member with the peer URL %s: add it first (holdfastctl member add)", url, o->initial_advertise_peer.urls[0]);
		return ERR_NOT_FOUND;
	}
	if (self->data_dir_id != 0) { /* (C3) */
		errmsg_set(em,
			   "member %llx of the cell has had another data directory than '%s', which is empty: start it with its own, or remove the "
			   "member and add it anew",
			   (unsigned long long)self->id, o->data_dir);
		return ERR_WRONG_MEMBER;
	}
	if (!take_initial(c, info)) {
		errmsg_set(em, "%s tells of a cell %llx that does not come of its members", url, (unsigned long long)info->cell_id);
		return ERR_WRONG_CELL;
	}
	c->self = self->id;
	c->joined = true;
	make_origin(c, info->token);
	return ERR_OK;
}

/* Everybody is asked: (C1) wants to hear of a second cell, and a replica that lags may not know of us yet. */
static enum err ask_all(struct cell *c, const struct options *o, struct tls_context *tls, struct errmsg *em)
{
	enum err e = ERR_NOT_FOUND;
	uint64_t cell_id = 0;
	for (size_t i = 0; i < o->members_len; i++) {
		for (size_t j = 0; j < o->members[i].peer_urls.len && strcmp(o->members[i].name, o->name) != 0; j++) {
			const char *url = o->members[i].peer_urls.urls[j];
			struct buf bytes = { .ptr = NULL };
			cell_info_message *info = NULL;
			struct errmsg *why = c->self ? &(struct errmsg){ .text = "" } : em;
			if (peers_ask_info(url, tls, ASK_MS, &bytes, why) == ERR_OK && !(info = unpack(buf_view(&bytes))))
				errmsg_set(why, "%s does not answer as a replica does", url);
			buf_free(&bytes);
			if (!info)
				continue;
			if (cell_id && info->cell_id != cell_id) {
				errmsg_set(em, "--initial-cluster names members of two cells: %s is of cell %llx, another of %llx", url,
					   (unsigned long long)info->cell_id, (unsigned long long)cell_id);
				e = ERR_WRONG_CELL;
			} else if (!c->self) {
				e = take_answer(c, info, url, o, em);
			}
			cell_id = info->cell_id;
			holdfast__internal__cell_info__free_unpacked(info, NULL);
			if (e && e != ERR_NOT_FOUND)
				return e;
		}
	}
	return e;
}

static bool asked_to_stop(void)
{
	sigset_t pending;
	return sigpending(&pending) == 0 && (sigismember(&pending, SIGTERM) || sigismember(&pending, SIGINT));
}

enum err cell_join(struct cell *c, const struct options *o, struct tls_context *tls, struct errmsg *em)
{
	uint64_t until = mono_ms() + PATIENCE_MS;
	const struct timespec pause = { .tv_nsec = PAUSE_MS * 1000000L };
	enum err e;
	if (o->members_len < 2) {
		errmsg_set(em, "--initial-cluster-state is 'existing' and there is no data in '%s', but --initial-cluster names no other member to ask", o->data_dir);
		return ERR_NOT_FOUND;
	}
	log_info("asking the members of the cell to be joined");
	while ((e = ask_all(c, o, tls, em)) == ERR_NOT_FOUND && mono_ms() < until && !asked_to_stop())
		nanosleep(&pause, NULL);
	if (!e)
		log_info("joining", LOG_ID("cell", c->cell_id), LOG_ID("member", c->self));
	return e;
}
