#include "world.h"

#include <inttypes.h>

#include "base/mem.h"
#include "base/pbw.h"
#include "core/member/member.h"
#include "etcd/v3election.pb-c.h"

static struct buf text; /* what the lending functions lend */

/* ---- the state ---- */

void world_init(struct world *w)
{
	memset(w, 0, sizeof *w);
	w->st.revision = 1;
	tree_init(&w->st.keys, &key_record_type);
	tree_init(&w->st.leases, &lease_record_type);
	tree_init(&w->st.contenders, &contender_type);
	tree_init(&w->st.members, &member_record_type);
	w->store = store_new(&w->st);
	w->lessor = lessor_new(&w->st, 1);
	w->locks = locks_new(&w->st);
	arena_init(&w->arena);
	w->env = (struct kv_env){
		.state = &w->st,
		.store = w->store,
		.lessor = w->lessor,
		.locks = w->locks,
		.arena = &w->arena,
		.header = { .cell_id = 11, .member = 22, .term = 3 },
		.max_txn_ops = 128,
	};
	kv_attach(&w->env);
	kv_rebuild(&w->env);
	w->config = watch_config_default;
	w->watches = watches_new(&w->config, &w->env);
	w->now = 1000;
}

void world_deinit(struct world *w)
{
	watches_check(w->watches);
	watches_free(w->watches);
	while (w->clients) {
		struct client *c = w->clients;

		w->clients = c->next;
		buf_free(&c->in);
		free(c);
	}
	locks_free(w->locks);
	lessor_free(w->lessor);
	store_free(w->store);
	state_deinit(&w->st);
	arena_deinit(&w->arena);
	buf_free(&text);
}

static void run(struct world *w, enum err (*fn)(struct kv_env *env, struct slice request, struct buf *ret), struct buf *request)
{
	struct buf reply = { 0 };
	enum err e = fn(&w->env, buf_view(request), &reply);

	if (e)
		ck_abort_msg("%s", err_name(e));
	arena_clear(&w->arena);
	buf_free(&reply);
	buf_free(request);
}

static void put_fields(struct buf *b, const char *key, const char *value, lease_id lease)
{
	pbw_bytes(b, 1, slice_of_str(key));
	pbw_bytes(b, 2, slice_of_str(value));
	pbw_i64(b, 3, lease);
}

void world_put_lease(struct world *w, const char *key, const char *value, lease_id lease)
{
	struct buf b = { 0 };

	put_fields(&b, key, value, lease);
	run(w, kv_put, &b);
}

void world_put(struct world *w, const char *key, const char *value)
{
	world_put_lease(w, key, value, 0);
}

static struct slice end_of(const char *end)
{
	return !end ? slice_of(NULL, 0) : strcmp(end, "0") == 0 ? slice_of("", 1) : slice_of_str(end);
}

void world_delete(struct world *w, const char *key, const char *end)
{
	struct buf b = { 0 };

	pbw_bytes(&b, 1, slice_of_str(key));
	pbw_bytes(&b, 2, end_of(end));
	run(w, kv_delete_range, &b);
}

void world_put_two(struct world *w, const char *key, const char *other)
{
	struct buf b = { 0 };
	const char *keys[] = { key, other };

	for (size_t i = 0; i < 2; i++) {
		size_t op = pbw_open(&b, 2), put = pbw_open(&b, 2);

		put_fields(&b, keys[i], "t", 0);
		pbw_close(&b, put);
		pbw_close(&b, op);
	}
	run(w, kv_txn, &b);
}

void world_compact(struct world *w, revision at)
{
	struct buf b = { 0 };

	pbw_i64(&b, 1, at);
	watches_before_compact(w->watches, at);
	run(w, kv_compact, &b);
}

void world_lease(struct world *w, lease_id id)
{
	struct buf b = { 0 };

	pbw_i64(&b, 1, 600);
	pbw_i64(&b, 2, id);
	run(w, kv_lease_grant, &b);
}

void world_revoke(struct world *w, lease_id id)
{
	struct buf b = { 0 };

	pbw_i64(&b, 1, id);
	run(w, kv_lease_revoke, &b);
}

static struct tree tree_copy(const struct tree *t)
{
	struct tree copy;
	struct tree_cursor c;

	tree_init(&copy, t->type);
	for (struct tree_record *r = tree_first(&c, t); r; r = tree_next(&c)) {
		struct buf b = { 0 };
		struct tree_record *made;

		t->type->encode(r, &b);
		EXPECT(t->type->decode(buf_view(&b), &made) == ERR_OK);
		tree_put_take(&copy, made);
		buf_free(&b);
	}
	return copy;
}

void world_install(struct world *w, revision at, void (*changes)(struct world *w))
{
	struct world other;
	struct state old = w->st;

	world_init(&other);
	state_deinit(&other.st);
	other.st = w->st;
	other.st.keys = tree_copy(&w->st.keys);
	other.st.leases = tree_copy(&w->st.leases);
	other.st.contenders = tree_copy(&w->st.contenders);
	other.st.members = tree_copy(&w->st.members);
	kv_rebuild(&other.env);
	if (changes)
		changes(&other);
	if (at)
		EXPECT(store_compact(other.store, at) == ERR_OK);
	w->st = other.st;
	w->st.keys = tree_copy(&other.st.keys);
	w->st.leases = tree_copy(&other.st.leases);
	w->st.contenders = tree_copy(&other.st.contenders);
	w->st.members = tree_copy(&other.st.members);
	state_deinit(&old);
	kv_rebuild(&w->env);
	other.watches = (watches_free(other.watches), watches_new(&other.config, &other.env));
	world_deinit(&other);
}

/* ---- streams ---- */

static struct client *client_new(struct world *w, enum method_id method, struct slice bytes)
{
	struct client *c = mem_zalloc(sizeof *c);

	c->world = w;
	c->tag = ++w->next_tag;
	c->observes = method == METHOD_ELECTION_OBSERVE;
	c->next = w->clients;
	w->clients = c;
	watches_open(w->watches, (struct watch_opening){ c->tag, w->connection, method, bytes }, w->now);
	return c;
}

struct client *world_watch(struct world *w)
{
	return client_new(w, METHOD_WATCH_WATCH, slice_of(NULL, 0));
}

struct client *world_observe(struct world *w, const char *name, bool vacancy)
{
	struct buf b = { 0 };
	struct client *c;

	pbw_bytes(&b, 1, slice_of_str(name));
	pbw_u64(&b, 100, vacancy);
	c = client_new(w, METHOD_ELECTION_OBSERVE, buf_view(&b));
	buf_free(&b);
	return c;
}

static struct client *client_find(struct world *w, uint64_t tag)
{
	for (struct client *c = w->clients; c; c = c->next)
		if (c->tag == tag)
			return c;
	return NULL;
}

static bool take(struct world *w)
{
	struct watch_output o;
	bool again = watches_take(w->watches, w->now);

	while (watches_next_output(w->watches, &o)) {
		struct client *c = client_find(w, o.tag);

		EXPECT(c && !c->finished);
		EXPECT(!c->waiting || o.finished);
		c->waiting = true;
		c->finished = o.finished;
		c->err = o.err;
		c->outputs++;
		c->largest = o.messages.len > c->largest ? o.messages.len : c->largest;
		buf_append_slice(&c->in, buf_view(&o.messages));
		buf_free(&o.messages);
	}
	return again;
}

void world_take(struct world *w)
{
	take(w);
}

void world_run(struct world *w)
{
	bool moved = true;

	for (unsigned i = 0; moved; i++) {
		EXPECT(i < 100000);
		moved = take(w);
		for (struct client *c = w->clients; c; c = c->next) {
			if (!c->waiting || c->stalled || c->finished)
				continue;
			client_ack(c);
			moved = true;
		}
	}
}

void client_ack(struct client *c)
{
	c->waiting = false;
	watches_writable(c->world->watches, c->tag);
}

void client_close(struct client *c)
{
	watches_closed(c->world->watches, c->tag);
}

void client_send(struct client *c, struct slice bytes)
{
	watches_message(c->world->watches, c->tag, bytes, c->world->now);
}

void client_create(struct client *c, struct watch_spec spec)
{
	struct buf b = { 0 };
	size_t create = pbw_open(&b, 1);

	pbw_bytes(&b, 1, slice_of_str(spec.key ? spec.key : ""));
	pbw_bytes(&b, 2, end_of(spec.end));
	pbw_i64(&b, 3, spec.from);
	pbw_u64(&b, 4, spec.progress);
	if (spec.no_put)
		pbw_u64_always(&b, 5, 0);
	if (spec.no_delete)
		pbw_u64_always(&b, 5, 1);
	pbw_u64(&b, 6, spec.prev_kv);
	pbw_i64(&b, 7, spec.id);
	pbw_u64(&b, 8, spec.fragment);
	pbw_close(&b, create);
	client_send(c, buf_view(&b));
	buf_free(&b);
}

void client_cancel(struct client *c, int64_t id)
{
	struct buf b = { 0 };
	size_t cancel = pbw_open(&b, 2);

	pbw_i64(&b, 1, id);
	pbw_close(&b, cancel);
	client_send(c, buf_view(&b));
	buf_free(&b);
}

void client_progress(struct client *c)
{
	static const uint8_t empty[] = { 0x1a, 0 };

	client_send(c, slice_of(empty, sizeof empty));
}

/* ---- what came, as text ---- */

static void show_event(const Mvccpb__Event *e)
{
	if (e->type == MVCCPB__EVENT__EVENT_TYPE__DELETE) {
		EXPECT(e->kv->create_revision == 0 && e->kv->version == 0 && e->kv->value.len == 0 && e->kv->lease == 0);
		buf_printf(&text, "-%.*s", (int)e->kv->key.len, (char *)e->kv->key.data);
	} else {
		EXPECT(e->kv->version > 0);
		buf_printf(&text, "%.*s=%.*s", (int)e->kv->key.len, (char *)e->kv->key.data, (int)e->kv->value.len, (char *)e->kv->value.data);
	}
	buf_printf(&text, "#%" PRId64, e->kv->mod_revision);
	if (e->prev_kv)
		buf_printf(&text, "<%.*s", (int)e->prev_kv->value.len, (char *)e->prev_kv->value.data);
}

static void show_response(struct slice bytes)
{
	Etcdserverpb__WatchResponse *r = etcdserverpb__watch_response__unpack(NULL, bytes.len, bytes.ptr);
	int64_t at;

	EXPECT(r && r->header && r->header->cluster_id == 11 && r->header->member_id == 22 && r->header->raft_term == 3);
	at = r->header->revision;
	if (r->created && r->canceled) {
		EXPECT(r->watch_id == -1);
		buf_printf(&text, "refused@%" PRId64 "(%s)", at, r->cancel_reason);
	} else if (r->created) {
		buf_printf(&text, "created %" PRId64 "@%" PRId64, r->watch_id, at);
	} else if (r->canceled && r->compact_revision) {
		EXPECT(strcmp(r->cancel_reason, "etcdserver: mvcc: required revision has been compacted") == 0);
		buf_printf(&text, "lost %" PRId64 "@%" PRId64 "/%" PRId64, r->watch_id, at, r->compact_revision);
	} else if (r->canceled) {
		buf_printf(&text, "canceled %" PRId64 "@%" PRId64, r->watch_id, at);
	} else if (r->n_events == 0) {
		buf_printf(&text, "progress %" PRId64 "@%" PRId64, r->watch_id, at);
	} else {
		buf_printf(&text, "%" PRId64 "@%" PRId64 "[", r->watch_id, at);
		for (size_t i = 0; i < r->n_events; i++) {
			buf_append(&text, " ", i > 0);
			show_event(r->events[i]);
		}
		buf_printf(&text, "]%s", r->fragment ? "+" : "");
	}
	etcdserverpb__watch_response__free_unpacked(r, NULL);
}

static void show_leader(struct slice bytes)
{
	V3electionpb__LeaderResponse *r = v3electionpb__leader_response__unpack(NULL, bytes.len, bytes.ptr);

	EXPECT(r && r->header && r->vacant == !r->kv);
	if (r->kv)
		buf_printf(&text, "leader %.*s=%.*s#%" PRId64 "@%" PRId64, (int)r->kv->key.len, (char *)r->kv->key.data, (int)r->kv->value.len,
			   (char *)r->kv->value.data, r->kv->mod_revision, r->header->revision);
	else
		buf_printf(&text, "vacant@%" PRId64, r->header->revision);
	v3electionpb__leader_response__free_unpacked(r, NULL);
}

const char *client_peek(struct client *c)
{
	buf_clear(&text);
	for (size_t at = 0; at < c->in.len;) {
		const uint8_t *p = c->in.ptr + at;
		size_t len = (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;

		EXPECT(at + 4 + len <= c->in.len);
		buf_append(&text, " ", text.len > 0);
		if (c->observes)
			show_leader(slice_of(p + 4, len));
		else
			show_response(slice_of(p + 4, len));
		at += 4 + len;
	}
	buf_clear(&c->in);
	if (c->finished)
		buf_printf(&text, "%send %s", text.len ? " " : "", err_name(c->err));
	buf_append_byte(&text, 0);
	return (const char *)text.ptr;
}

const char *client_text(struct client *c)
{
	world_run(c->world);
	watches_check(c->world->watches);
	return client_peek(c);
}
