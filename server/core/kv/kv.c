/* kv.c: single requests, and what ties the modules of the state together.
 *
 * Every change of a key, whoever makes it, passes through on_change, so that three tables always agree:
 *   (V1) a key is in its lease's set exactly while its current version names that lease (L1 of lease.h).
 *   (V2) the index of contenders follows the keys, change by change (K1 of lock.h).
 *   (V3) a request is checked as a whole before its first change; what is carried out cannot fail (S4 of store.h).
 *
 * A request is judged here by the state and by the fixed rules alone, never by an option of this replica: options may differ from
 * replica to replica, and the same entry must do the same on all (P10). */
#include "core/kv/kv.h"

#include "core/kv/kv_internal.h"

static void on_change(void *ctx, const struct kv *prev, const struct kv *next)
{
	struct kv_env *env = ctx;
	lease_id before = prev ? prev->lease : 0;
	lease_id after = kv_is_tombstone(next) ? 0 : next->lease;

	if (kv_is_tombstone(next)) {
		env->counts.deletes++;
	} else {
		env->counts.puts++;
		env->counts.put_bytes += next->key_len + next->value_len;
	}
	if (before != after) {
		if (before != 0)
			lease_detach(env->lessor, before, kv_key(prev));
		if (after != 0)
			lease_attach(env->lessor, after, kv_key(next));
	}
	lock_changed(env->locks, prev, next);
}

void kv_attach(struct kv_env *env)
{
	store_on_change(env->store, on_change, env);
}

static bool attach_again(void *ctx, const struct kv *kv)
{
	struct kv_env *env = ctx;

	if (kv->lease != 0)
		lease_attach(env->lessor, kv->lease, kv_key(kv));
	return true;
}

void kv_rebuild(struct kv_env *env)
{
	static const uint8_t zero[1];
	struct store_range all = { .key = slice_of(zero, 1), .end = slice_of(zero, 1) };

	store_rebuild(env->store);
	lessor_rebuild_begin(env->lessor);
	store_walk(env->store, all, attach_again, env);
	locks_rebuild(env->locks);
	if (env->once)
		once_rebuild(env->once);
}

/* ---- ranges of keys ---- */

bool kv_range_is_empty(struct slice key, struct slice end)
{
	return end.len > 0 && !kv_end_is_open(end) && slice_cmp(key, end) >= 0;
}

bool kv_range_covers(struct slice begin, struct slice end, struct slice key)
{
	if (end.len == 0)
		return slice_eq(begin, key);
	return slice_cmp(begin, key) <= 0 && (kv_end_is_open(end) || slice_cmp(key, end) < 0);
}

static bool stop_at_first(void *ctx, const struct kv *kv)
{
	(void)kv;
	*(bool *)ctx = true;
	return false;
}

bool kv_range_has_any(const struct kv_env *env, struct slice key, struct slice end)
{
	bool any = false;

	if (end.len == 0)
		return store_get(env->store, key, 0) != NULL;
	if (!kv_range_is_empty(key, end))
		store_walk(env->store, (struct store_range){ .key = key, .end = end }, stop_at_first, &any);
	return any;
}

/* ---- messages ---- */

enum err kv_unpack(struct kv_env *env, const ProtobufCMessageDescriptor *desc, struct slice bytes, void *ret)
{
	enum pb_check check = pb_check(desc, bytes, KV_DEPTH_MAX);
	ProtobufCMessage *message;

	if (check != PB_CHECK_OK)
		return check == PB_CHECK_TOO_DEEP ? ERR_TOO_DEEP : ERR_MALFORMED;
	message = protobuf_c_message_unpack(desc, &env->arena->pb, bytes.len, bytes.ptr);
	if (!message)
		return ERR_MALFORMED;
	*(ProtobufCMessage **)ret = message;
	return ERR_OK;
}

static size_t varint_field_size(int64_t v)
{
	return v == 0 ? 0 : 1 + pbw_varint_size((uint64_t)v);
}

static size_t bytes_field_size(size_t len)
{
	return len == 0 ? 0 : 1 + pbw_varint_size(len) + len;
}

/* The length is reckoned first: a value is copied once, however long. */
void kv_write_pair(struct buf *out, uint32_t field, const struct kv *kv, bool keys_only)
{
	struct slice value = keys_only ? (struct slice){ 0 } : kv_value(kv);
	size_t size = bytes_field_size(kv->key_len) + varint_field_size(kv->create_revision) +
		      varint_field_size(kv->mod_revision) + varint_field_size(kv->version) + bytes_field_size(value.len) +
		      varint_field_size(kv->lease);

	buf_reserve(out, size + 16);
	pbw_varint(out, (uint64_t)field << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
	pbw_varint(out, size);
	pbw_bytes(out, 1, kv_key(kv));
	pbw_i64(out, 2, kv->create_revision);
	pbw_i64(out, 3, kv->mod_revision);
	pbw_i64(out, 4, kv->version);
	pbw_bytes(out, 5, value);
	pbw_i64(out, 6, kv->lease);
}

void kv_write_header(const struct kv_env *env, revision rev, struct buf *out, uint32_t field)
{
	size_t mark = pbw_open(out, field);

	pbw_u64(out, HEADER_CLUSTER_ID, env->header.cell_id);
	pbw_u64(out, HEADER_MEMBER_ID, env->header.member);
	pbw_i64(out, HEADER_REVISION, rev);
	pbw_u64(out, HEADER_RAFT_TERM, env->header.term);
	pbw_close(out, mark);
}

void kv_header_reply(const struct kv_env *env, struct buf *ret)
{
	if (ret)
		kv_write_header(env, env->state->revision, ret, FIELD_HEADER);
}

revision kv_run_revision(const struct kv_run *run)
{
	return run->writing ? store_txn_revision(run->env->store) : run->env->state->revision;
}

void kv_run_header(const struct kv_run *run, revision rev)
{
	size_t mark;

	if (!run->in_txn) {
		kv_write_header(run->env, rev, run->out, FIELD_HEADER);
		return;
	}
	mark = pbw_open(run->out, FIELD_HEADER);
	pbw_i64(run->out, HEADER_REVISION, rev);
	pbw_close(run->out, mark);
}

/* ---- Put ---- */

/* Whether what follows the last slash could be a lease: every contender's key passes, and most others do not, which saves them a look-up.
 * lock_parse has the last word. */
static bool may_be_contender(struct slice key)
{
	size_t digits = 0;

	for (size_t i = key.len; i > 0 && digits <= 20; i--) {
		uint8_t c = key.ptr[i - 1];

		if (c == '/')
			return digits > 0;
		if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
		digits++;
	}
	return false;
}

enum err kv_put_check_lease(const struct kv_env *env, const Etcdserverpb__PutRequest *r)
{
	return r->lease != 0 && !lease_find(env->lessor, r->lease) ? ERR_LEASE_NOT_FOUND : ERR_OK;
}

enum err kv_put_check_key(const struct kv_env *env, struct kv_put_check *check)
{
	const Etcdserverpb__PutRequest *r = check->request;
	struct slice key = kv_slice(r->key);
	bool ignores = r->ignore_value || r->ignore_lease;
	bool contender = may_be_contender(key);
	const struct kv *prev = NULL;
	lease_id lease = r->lease;
	enum err e;

	check->new_contender = false;
	if (!ignores && !contender)
		return ERR_OK;
	if (!check->gone)
		prev = store_get(env->store, key, 0);
	if (ignores && !prev)
		return ERR_KEY_NOT_FOUND;
	if (r->ignore_lease)
		lease = prev->lease;
	if (!contender)
		return ERR_OK;
	e = lock_check_put(env->locks, key, lease, prev);
	if (e)
		return e;
	check->new_contender = !prev && lock_parse(key, lease, &check->lock_name);
	return ERR_OK;
}

void kv_run_put(const struct kv_run *run, const Etcdserverpb__PutRequest *r)
{
	struct store *store = run->env->store;
	struct slice key = kv_slice(r->key), value = kv_slice(r->value);
	const struct kv *prev = NULL;
	lease_id lease = r->lease;

	if (r->ignore_value || r->ignore_lease) {
		prev = store_get(store, key, 0);
		ASSERT(prev);
		if (r->ignore_value)
			value = arena_copy(run->env->arena, kv_value(prev));
		if (r->ignore_lease)
			lease = prev->lease;
	}
	store_put(store, key, value, lease, &prev);
	if (!run->out)
		return;
	kv_run_header(run, store_txn_revision(store));
	if (r->prev_kv && prev)
		kv_write_pair(run->out, 2, prev, false);
}

enum err kv_put(struct kv_env *env, struct slice request, struct buf *ret)
{
	struct kv_run run = { .env = env, .out = ret, .writing = true };
	struct kv_put_check check = { 0 };
	Etcdserverpb__PutRequest *r;
	enum err e = kv_unpack(env, &etcdserverpb__put_request__descriptor, request, &r);

	if (!e)
		e = kv_check_put(r);
	if (!e)
		e = kv_put_check_lease(env, r);
	if (!e) {
		check.request = r;
		e = kv_put_check_key(env, &check);
	}
	if (e)
		return e;
	store_txn_begin(env->store);
	kv_run_put(&run, r);
	store_txn_end(env->store);
	return ERR_OK;
}

/* ---- DeleteRange ---- */

static void write_deleted(void *ctx, const struct kv *prev)
{
	kv_write_pair(ctx, 3, prev, false);
}

void kv_run_delete_range(const struct kv_run *run, const Etcdserverpb__DeleteRangeRequest *r)
{
	struct store *store = run->env->store;
	struct slice key = kv_slice(r->key), end = kv_slice(r->range_end);
	struct store_range range = { .key = key, .end = end };
	revision rev;
	uint64_t deleted;

	if (kv_range_is_empty(key, end)) {
		if (run->out)
			kv_run_header(run, kv_run_revision(run));
		return;
	}
	if (!run->out || !r->prev_kv) {
		deleted = store_delete_range(store, key, end, NULL, NULL);
		if (run->out) {
			kv_run_header(run, kv_run_revision(run));
			pbw_u64(run->out, 2, deleted);
		}
		return;
	}
	/* The header and the number come first in the reply, so they are reckoned before the pairs are told. */
	deleted = store_count(store, range);
	rev = deleted > 0 ? run->env->state->revision + 1 : kv_run_revision(run);
	kv_run_header(run, rev);
	pbw_u64(run->out, 2, deleted);
	ASSERT(store_delete_range(store, key, end, write_deleted, run->out) == deleted);
	ASSERT(kv_run_revision(run) == rev);
}

enum err kv_delete_range(struct kv_env *env, struct slice request, struct buf *ret)
{
	struct kv_run run = { .env = env, .out = ret, .writing = true };
	Etcdserverpb__DeleteRangeRequest *r;
	enum err e = kv_unpack(env, &etcdserverpb__delete_range_request__descriptor, request, &r);

	if (!e)
		e = kv_check_delete_range(r);
	if (e)
		return e;
	store_txn_begin(env->store);
	kv_run_delete_range(&run, r);
	store_txn_end(env->store);
	return ERR_OK;
}

void kv_delete_key(struct kv_env *env, struct slice key)
{
	store_txn_begin(env->store);
	ASSERT(store_delete_range(env->store, key, (struct slice){ 0 }, NULL, NULL) == 1);
	store_txn_end(env->store);
}

/* ---- Compact ---- */

enum err kv_compact(struct kv_env *env, struct slice request, struct buf *ret)
{
	Etcdserverpb__CompactionRequest *r;
	uint64_t before;
	enum err e = kv_unpack(env, &etcdserverpb__compaction_request__descriptor, request, &r);

	if (e)
		return e;
	if (r->revision < 0)
		return ERR_COMPACTED;
	before = store_history_begin(env->store, 0);
	e = store_compact(env->store, r->revision);
	if (e)
		return e;
	env->counts.compacted += store_history_begin(env->store, 0) - before;
	kv_header_reply(env, ret);
	return ERR_OK;
}
