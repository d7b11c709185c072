#include "world.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/pbw.h"
#include "core/snapshot/snapshot.h"
#include "etcd/v3election.pb-c.h"
#include "etcd/v3lock.pb-c.h"
#include "holdfast/internal.pb-c.h"
#include "words.h"

void world_init(struct world *w)
{
	*w = (struct world){ 0 };
	state_init(&w->st);
	arena_init(&w->scratch);
	arena_init(&w->words);
	w->env = (struct kv_env){
		.state = &w->st,
		.store = store_new(&w->st),
		.lessor = lessor_new(&w->st, 2),
		.locks = locks_new(&w->st),
		.arena = &w->scratch,
		.header = { .cell_id = 1, .member = 2, .term = 3 },
		.max_txn_ops = 128,
	};
	kv_attach(&w->env);
}

void world_deinit(struct world *w)
{
	world_check(w);
	locks_free(w->env.locks);
	lessor_free(w->env.lessor);
	store_free(w->env.store);
	state_deinit(&w->st);
	arena_deinit(&w->scratch);
	arena_deinit(&w->words);
	buf_free(&w->text);
	buf_free(&w->reply);
}

struct tally {
	const struct world *w;
	uint64_t leased;
};

static bool tally_lease(void *ctx, const struct kv *kv)
{
	struct tally *t = ctx;

	if (kv->lease != 0) {
		struct slice before = slice_of(kv->bytes, kv->key_len - 1), key = before;

		/* The set has it: it is among the keys after some key just before it. */
		ck_assert(lease_find(t->w->env.lessor, kv->lease));
		do {
			key = lease_next_key(t->w->env.lessor, kv->lease, key);
			ck_assert_ptr_nonnull(key.ptr);
		} while (slice_cmp(key, kv_key(kv)) < 0);
		ck_assert(slice_eq(key, kv_key(kv)));
		t->leased++;
	}
	return true;
}

void world_check(const struct world *w)
{
	struct store_range all = { .key = slice_of("", 1), .end = slice_of("", 1) };
	struct tally t = { .w = w };
	struct tree_cursor c;
	uint64_t attached = 0;

	store_check(w->env.store);
	lessor_check(w->env.lessor);
	locks_check(w->env.locks);
	store_walk(w->env.store, all, tally_lease, &t);
	for (const struct tree_record *r = tree_first(&c, &w->st.leases); r; r = tree_next(&c))
		attached += lease_key_count(w->env.lessor, ((const struct lease_record *)(const void *)r)->id);
	ck_assert_uint_eq(attached, t.leased);
}

struct slice world_request(struct world *w, const char *line, const ProtobufCMessageDescriptor **ret)
{
	struct words words = { .at = line, .arena = &w->words };
	const ProtobufCMessage *m;
	struct slice packed;
	uint8_t *bytes;

	arena_clear(&w->words);
	m = words_request(&words);
	packed.len = protobuf_c_message_get_packed_size(m);
	packed.ptr = bytes = arena_alloc(&w->words, packed.len);
	protobuf_c_message_pack(m, bytes);
	*ret = m->descriptor;
	return packed;
}

/* ---- answers as text ---- */

static void say_bytes(struct buf *out, const ProtobufCBinaryData *b)
{
	for (size_t i = 0; i < b->len; i++) {
		if (b->data[i] == 0)
			buf_append_byte(out, '*');
		else
			buf_append_byte(out, b->data[i] == 0xff ? '_' : b->data[i]);
	}
}

static void say_pair(struct buf *out, const Mvccpb__KeyValue *kv)
{
	say_bytes(out, &kv->key);
	buf_append_byte(out, '=');
	say_bytes(out, &kv->value);
	buf_printf(out, "(%" PRId64 " %" PRId64 " %" PRId64, kv->create_revision, kv->mod_revision, kv->version);
	if (kv->lease)
		buf_printf(out, " %" PRId64, kv->lease);
	buf_append_byte(out, ')');
}

static void say_header(struct buf *out, const Etcdserverpb__ResponseHeader *h)
{
	bool full = h->cluster_id == 1 && h->member_id == 2 && h->raft_term == 3;

	ck_assert(full || (h->cluster_id == 0 && h->member_id == 0 && h->raft_term == 0));
	buf_printf(out, "%c%" PRId64, full ? '@' : '~', h->revision);
}

static void say_message(struct buf *out, const ProtobufCMessage *m);

static void say_sub(struct buf *out, const ProtobufCMessage *m)
{
	if (m->descriptor == &mvccpb__key_value__descriptor) {
		say_pair(out, (const Mvccpb__KeyValue *)(const void *)m);
	} else if (m->descriptor == &etcdserverpb__response_header__descriptor) {
		say_header(out, (const Etcdserverpb__ResponseHeader *)(const void *)m);
	} else {
		buf_append_byte(out, '[');
		say_message(out, m);
		buf_append_byte(out, ']');
	}
}

static void say_value(struct buf *out, const ProtobufCFieldDescriptor *f, const void *at)
{
	if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
		say_sub(out, *(const ProtobufCMessage *const *)at);
	} else if (f->type == PROTOBUF_C_TYPE_BYTES) {
		buf_printf(out, "%s:", f->name);
		say_bytes(out, at);
	} else if (f->type == PROTOBUF_C_TYPE_BOOL) {
		buf_printf(out, "%s", f->name);
	} else {
		buf_printf(out, "%s:%" PRId64, f->name, *(const int64_t *)at);
	}
}

static bool is_default(const ProtobufCFieldDescriptor *f, const void *at)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_MESSAGE:
		return *(const ProtobufCMessage *const *)at == NULL;
	case PROTOBUF_C_TYPE_BYTES:
		return ((const ProtobufCBinaryData *)at)->len == 0;
	case PROTOBUF_C_TYPE_BOOL:
		return !*(const protobuf_c_boolean *)at;
	case PROTOBUF_C_TYPE_STRING:
		return true;
	default:
		return *(const int64_t *)at == 0;
	}
}

static void say_message(struct buf *out, const ProtobufCMessage *m)
{
	size_t start = out->len;

	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		const char *at = (const char *)m + f->offset;
		size_t n = 1, size = f->type == PROTOBUF_C_TYPE_BYTES ? sizeof(ProtobufCBinaryData) : sizeof(void *);

		if (f->label == PROTOBUF_C_LABEL_REPEATED) {
			n = *(const size_t *)(const void *)((const char *)m + f->quantifier_offset);
			at = *(const char *const *)(const void *)at;
		} else if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
			n = *(const uint32_t *)(const void *)((const char *)m + f->quantifier_offset) == f->id;
		} else {
			n = !is_default(f, at);
		}
		for (size_t k = 0; k < n; k++) {
			if (out->len > start)
				buf_append_byte(out, ' ');
			say_value(out, f, at + k * size);
		}
	}
}

/* What we write must be what protobuf-c writes, field by field and byte by byte. */
static void say_reply(struct world *w, const ProtobufCMessageDescriptor *desc)
{
	ProtobufCMessage *m = protobuf_c_message_unpack(desc, NULL, w->reply.len, w->reply.ptr);
	uint8_t *again = mem_alloc(w->reply.len + 1);

	ck_assert_ptr_nonnull(m);
	ck_assert_uint_eq(protobuf_c_message_pack(m, again), w->reply.len);
	ck_assert_mem_eq(again, w->reply.ptr, w->reply.len);
	say_message(&w->text, m);
	free(again);
	protobuf_c_message_free_unpacked(m, NULL);
}

/* ---- doing ---- */

struct call {
	const ProtobufCMessageDescriptor *request, *reply;
	enum err (*fn)(struct kv_env *env, struct slice request, struct buf *ret);
};

static const struct call calls[] = {
	{ &etcdserverpb__range_request__descriptor, &etcdserverpb__range_response__descriptor, kv_range },
	{ &etcdserverpb__put_request__descriptor, &etcdserverpb__put_response__descriptor, kv_put },
	{ &etcdserverpb__delete_range_request__descriptor, &etcdserverpb__delete_range_response__descriptor, kv_delete_range },
	{ &etcdserverpb__txn_request__descriptor, &etcdserverpb__txn_response__descriptor, kv_txn },
	{ &etcdserverpb__compaction_request__descriptor, &etcdserverpb__compaction_response__descriptor, kv_compact },
	{ &etcdserverpb__lease_grant_request__descriptor, &etcdserverpb__lease_grant_response__descriptor, kv_lease_grant },
	{ &etcdserverpb__lease_revoke_request__descriptor, &etcdserverpb__lease_revoke_response__descriptor, kv_lease_revoke },
	{ &v3lockpb__unlock_request__descriptor, &v3lockpb__unlock_response__descriptor, kv_unlock },
	{ &v3electionpb__proclaim_request__descriptor, &v3electionpb__proclaim_response__descriptor, kv_proclaim },
	{ &v3electionpb__resign_request__descriptor, &v3electionpb__resign_response__descriptor, kv_resign },
	{ &v3electionpb__leader_request__descriptor, &v3electionpb__leader_response__descriptor, kv_leader },
};

static enum err do_lock(struct world *w, struct slice request)
{
	struct kv_lock_result r = { 0 };
	enum err e = kv_lock(&w->env, request, &r);

	if (e)
		return e;
	buf_printf(&w->text, "%s ", r.outcome == KV_LOCK_HELD ? "held" : "waiting");
	kv_lock_reply(&w->env, &r, &w->reply);
	say_reply(w, &v3lockpb__lock_response__descriptor);
	buf_free(&r.key);
	return ERR_OK;
}

static enum err do_call(struct world *w, const ProtobufCMessageDescriptor *desc, struct slice request)
{
	enum err e;

	if (desc == &holdfast__internal__lock_command__descriptor)
		return do_lock(w, request);
	if (desc == &holdfast__internal__abandon_command__descriptor)
		return kv_abandon(&w->env, request);
	if (desc == &holdfast__internal__lease_end__descriptor)
		return kv_lease_end(&w->env, request, 3);
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		if (calls[i].request != desc)
			continue;
		e = calls[i].fn(&w->env, request, &w->reply);
		if (!e)
			say_reply(w, calls[i].reply);
		return e;
	}
	ck_abort_msg("no such call");
	return ERR_OK;
}

static void say_queue(struct world *w, const char *name)
{
	const struct contender *c = NULL;

	while ((c = lock_next(w->env.locks, slice_of_str(name), c))) {
		buf_printf(&w->text, "%s%" PRId64 "%s%s", w->text.len ? " " : "", c->lease, c->mode == LOCK_SHARED ? "s" : "",
			   lock_is_held(w->env.locks, c) ? "!" : "");
	}
}

/* Questions that are no requests of kv. */
static bool do_question(struct world *w, const char *line)
{
	char word[32] = "", arg[64] = "", more[16] = "";

	sscanf(line, "%31s %63s %15s", word, arg, more);
	if (strcmp(word, "queue") == 0) {
		say_queue(w, arg);
	} else if (strcmp(word, "ttl") == 0) {
		int64_t left = lessor_remaining_s(w->env.lessor, atoll(arg), 0);

		kv_lease_ttl_reply(&w->env, atoll(arg), left, more[0] != 0, &w->reply);
		say_reply(w, &etcdserverpb__lease_time_to_live_response__descriptor);
	} else if (strcmp(word, "leases") == 0) {
		kv_lease_list_reply(&w->env, &w->reply);
		say_reply(w, &etcdserverpb__lease_leases_response__descriptor);
	} else {
		return false;
	}
	return true;
}

const char *world_do(struct world *w, const char *line)
{
	uint64_t before = state_hash(&w->st);
	const ProtobufCMessageDescriptor *desc;
	struct slice request;
	enum err e = ERR_OK;

	buf_clear(&w->text);
	buf_clear(&w->reply);
	arena_clear(&w->scratch);
	if (!do_question(w, line)) {
		request = world_request(w, line, &desc);
		e = do_call(w, desc, request);
	}
	if (e) {
		ck_assert_uint_eq(w->reply.len, 0);
		/* A refused try gives up the place that its lease had: the one error that changes something. */
		ck_assert(e == ERR_LOCK_HELD || state_hash(&w->st) == before);
		buf_append_slice(&w->text, slice_of_str(err_name(e)));
	}
	world_check(w);
	buf_append_byte(&w->text, 0);
	return (const char *)w->text.ptr;
}

void story_tell(struct world *w, const struct story *story)
{
	for (; story->line; story++) {
		const char *got = world_do(w, story->line);

		if (strcmp(got, story->want) != 0)
			ck_abort_msg("%s\n  got  %s\n  want %s", story->line, got, story->want);
	}
}
