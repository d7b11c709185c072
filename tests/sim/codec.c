/* codec.c: requests as clients pack them, replies as they read them. */
#include "sim.h"

#include "base/hash.h"
#include "base/pbw.h"
#include "core/wire.h"

const char *const op_names[OP_KIND_COUNT] = { "put", "delete", "get", "get serializable", "range", "cas", "compact", "grant", "revoke", "keep-alive", "ttl",
					       "lock", "unlock", "campaign", "proclaim", "resign", "leader", "join", "first", "leave" };

void key_text(uint32_t key, char ret[8])
{
	memcpy(ret, "/k", 2);
	ret[2] = (char)('0' + key / 10 % 10);
	ret[3] = (char)('0' + key % 10);
	ret[4] = '\0';
}

void lock_text(uint32_t lock, char ret[8])
{
	memcpy(ret, "lock0", 6);
	ret[4] = (char)('0' + lock % 10);
}

uint32_t key_number(struct slice key)
{
	if (key.len != 4 || key.ptr[0] != '/' || key.ptr[1] != 'k')
		return UINT32_MAX;
	return (uint32_t)(key.ptr[2] - '0') * 10 + (uint32_t)(key.ptr[3] - '0');
}

uint64_t value_number(struct slice value)
{
	uint64_t n = 0;

	for (size_t i = 1; i < value.len && value.ptr[0] == 'v' && value.ptr[i] >= '0' && value.ptr[i] <= '9'; i++)
		n = n * 10 + (uint64_t)(value.ptr[i] - '0');
	return n;
}

/* ---- requests ---- */

static struct slice value_of(struct world *w, uint64_t number, struct buf *scratch)
{
	buf_printf(scratch, "v%llu:", (unsigned long long)number);
	if (rng_chance(&w->rng, w->config.big_values)) {
		size_t len = (size_t)rng_between(&w->rng, 20000, 90000);

		buf_reserve(scratch, len);
		memset(scratch->ptr + scratch->len, 'x', len);
		scratch->len += len;
	}
	return buf_view(scratch);
}

static void pack_put(struct world *w, const struct op *o, const char *key, uint64_t number, struct buf *b)
{
	struct buf scratch = { 0 };

	pbw_bytes(b, 1, slice_of_str(key));
	pbw_bytes(b, 2, value_of(w, number, &scratch));
	pbw_i64(b, 3, o->lease);
	pbw_u64(b, 4, o->prev_kv);
	buf_free(&scratch);
}

/* If mod_revision(key) is what we expect: put key, delete key2; else get key. */
static void pack_cas(struct world *w, const struct op *o, const char *key, const char *key2, uint64_t number, struct buf *b)
{
	size_t mark = pbw_open(b, 1), inner;

	pbw_u64(b, 2, 2); /* MOD */
	pbw_bytes(b, 3, slice_of_str(key));
	pbw_u64_always(b, 6, (uint64_t)o->expect);
	pbw_close(b, mark);
	mark = pbw_open(b, 2);
	inner = pbw_open(b, 2);
	pack_put(w, o, key, number, b);
	pbw_close(b, inner);
	pbw_close(b, mark);
	if (o->key2 != o->key) {
		mark = pbw_open(b, 2);
		inner = pbw_open(b, 3);
		pbw_bytes(b, 1, slice_of_str(key2));
		pbw_close(b, inner);
		pbw_close(b, mark);
	}
	mark = pbw_open(b, 3);
	inner = pbw_open(b, 1);
	pbw_bytes(b, 1, slice_of_str(key));
	pbw_close(b, inner);
	pbw_close(b, mark);
}

static void pack_leader_key(const struct op *o, const char *lock, struct buf *b)
{
	struct buf key = { 0 };
	size_t mark = pbw_open(b, 1);

	lock_key(slice_of_str(lock), o->lease, &key);
	pbw_bytes(b, 1, slice_of_str(lock));
	pbw_bytes(b, 2, buf_view(&key));
	pbw_i64(b, 3, o->token);
	pbw_i64(b, 4, o->lease);
	pbw_close(b, mark);
	buf_free(&key);
}

/* etcd's recipe. JOIN: if the key is not there, put it with the lease; else get it. LEAVE: if it is of that create_revision, delete it. */
static void pack_recipe(const struct op *o, struct slice key, struct buf *b)
{
	size_t mark = pbw_open(b, 1), inner;

	pbw_u64(b, 2, 1); /* CREATE */
	pbw_bytes(b, 3, key);
	pbw_u64_always(b, 5, (uint64_t)o->token);
	pbw_close(b, mark);
	mark = pbw_open(b, 2);
	inner = pbw_open(b, o->kind == OP_JOIN ? 2 : 3);
	pbw_bytes(b, 1, key);
	if (o->kind == OP_JOIN)
		pbw_i64(b, 3, o->lease);
	pbw_close(b, inner);
	pbw_close(b, mark);
	if (o->kind != OP_JOIN)
		return;
	mark = pbw_open(b, 3);
	inner = pbw_open(b, 1);
	pbw_bytes(b, 1, key);
	pbw_close(b, inner);
	pbw_close(b, mark);
}

/* Who is first in the queue: the contender with the lowest create_revision. */
static void pack_first(const char *lock, struct buf *b)
{
	char key[12];

	snprintf(key, sizeof key, "%s/", lock);
	pbw_bytes(b, 1, slice_of_str(key));
	snprintf(key, sizeof key, "%s0", lock);
	pbw_bytes(b, 2, slice_of_str(key));
	pbw_i64(b, 3, 1);
	pbw_u64(b, 5, 1); /* ASCEND */
	pbw_u64(b, 6, 2); /* by CREATE */
}

static void pack_lock_kind(struct world *w, const struct op *o, uint64_t number, struct buf *b)
{
	struct buf scratch = { 0 };
	char lock[8];

	lock_text(o->key, lock);
	switch ((enum op_kind)o->kind) {
	case OP_LOCK:
	case OP_CAMPAIGN:
		pbw_bytes(b, 1, slice_of_str(lock));
		pbw_i64(b, 2, o->lease);
		if (o->kind == OP_CAMPAIGN)
			pbw_bytes(b, 3, value_of(w, number, &scratch));
		else
			pbw_u64(b, 100, o->mode);
		if (o->wait_ms >= 0)
			pbw_u64_always(b, 101, (uint64_t)o->wait_ms);
		break;
	case OP_UNLOCK:
		lock_key(slice_of_str(lock), o->lease, &scratch);
		pbw_bytes(b, 1, buf_view(&scratch));
		pbw_i64(b, 100, o->token);
		break;
	case OP_PROCLAIM:
		pack_leader_key(o, lock, b);
		pbw_bytes(b, 2, value_of(w, number, &scratch));
		break;
	case OP_RESIGN: pack_leader_key(o, lock, b); break;
	case OP_JOIN:
	case OP_LEAVE:
		lock_key(slice_of_str(lock), o->lease, &scratch);
		pack_recipe(o, buf_view(&scratch), b);
		break;
	case OP_FIRST: pack_first(lock, b); break;
	default: pbw_bytes(b, 1, slice_of_str(lock)); break;
	}
	buf_free(&scratch);
}

void pack_request(struct world *w, struct op *o, uint64_t number)
{
	struct buf *b = &o->request;
	char key[8], key2[8];

	key_text(o->key, key);
	key_text(o->key2, key2);
	switch ((enum op_kind)o->kind) {
	case OP_PUT: pack_put(w, o, key, number, b); break;
	case OP_DELETE:
		pbw_bytes(b, 1, slice_of_str(key));
		if (number % 2) /* a range of that one key, or the key */
			pbw_bytes(b, 2, slice_of(key, strlen(key) + 1));
		pbw_u64(b, 3, o->prev_kv);
		break;
	case OP_GET:
	case OP_GET_SERIALIZABLE:
		pbw_bytes(b, 1, slice_of_str(key));
		pbw_u64(b, 7, o->kind == OP_GET_SERIALIZABLE);
		break;
	case OP_RANGE:
		pbw_bytes(b, 1, slice_of_str(key));
		pbw_bytes(b, 2, slice_of_str(key2));
		pbw_i64(b, 4, o->at);
		break;
	case OP_CAS: pack_cas(w, o, key, key2, number, b); break;
	case OP_COMPACT: pbw_i64(b, 1, o->at); break;
	case OP_GRANT:
		pbw_i64(b, 1, o->ttl);
		pbw_i64(b, 2, o->lease);
		break;
	case OP_REVOKE:
	case OP_KEEP_ALIVE: pbw_i64(b, 1, o->lease); break;
	case OP_TTL:
		pbw_i64(b, 1, o->lease);
		pbw_u64(b, 2, 1);
		break;
	default: pack_lock_kind(w, o, number, b); break;
	}
}

enum method_id op_method(const struct op *o)
{
	static const enum method_id methods[OP_KIND_COUNT] = {
		METHOD_KV_PUT, METHOD_KV_DELETE_RANGE, METHOD_KV_RANGE, METHOD_KV_RANGE, METHOD_KV_RANGE, METHOD_KV_TXN, METHOD_KV_COMPACT,
		METHOD_LEASE_GRANT, METHOD_LEASE_REVOKE, METHOD_LEASE_KEEP_ALIVE, METHOD_LEASE_TIME_TO_LIVE, METHOD_LOCK_LOCK, METHOD_LOCK_UNLOCK,
		METHOD_ELECTION_CAMPAIGN, METHOD_ELECTION_PROCLAIM, METHOD_ELECTION_RESIGN, METHOD_ELECTION_LEADER, METHOD_KV_TXN, METHOD_KV_RANGE, METHOD_KV_TXN };

	return methods[o->kind];
}

/* ---- replies ---- */

static struct reply_kv parse_kv(struct slice bytes, bool *bad)
{
	struct reply_kv kv = { 0 };
	struct wire w;

	for (wire_init(&w, bytes); wire_next(&w);) {
		switch (w.field) {
		case 1: kv.key = wire_bytes(&w); break;
		case 2: kv.create = wire_i64(&w); break;
		case 3: kv.mod = wire_i64(&w); break;
		case 4: kv.version = wire_i64(&w); break;
		case 5: kv.value = wire_bytes(&w); break;
		case 6: kv.lease = wire_i64(&w); break;
		default: break;
		}
	}
	*bad |= w.bad;
	return kv;
}

static void add_kv(struct reply *ret, struct slice bytes)
{
	if (ret->kvs < sizeof ret->kv / sizeof *ret->kv)
		ret->kv[ret->kvs++] = parse_kv(bytes, &ret->bad);
	else
		ret->bad = true;
}

static void parse_range(struct slice bytes, struct reply *ret)
{
	struct wire w;

	for (wire_init(&w, bytes); wire_next(&w);) {
		if (w.field == 2)
			add_kv(ret, wire_bytes(&w));
		else if (w.field == 4)
			ret->count = wire_i64(&w);
	}
	ret->bad |= w.bad;
}

static void parse_response_op(struct slice bytes, struct reply *ret)
{
	struct wire w;

	for (wire_init(&w, bytes); wire_next(&w);)
		if (w.field == 1)
			parse_range(wire_bytes(&w), ret);
	ret->bad |= w.bad;
}

static void parse_leader_key(struct slice bytes, struct reply *ret)
{
	struct wire w;

	for (wire_init(&w, bytes); wire_next(&w);) {
		if (w.field == 2)
			ret->key = wire_bytes(&w);
		else if (w.field == 4)
			ret->lease = wire_i64(&w);
	}
	ret->bad |= w.bad;
}

static void parse_field(const struct op *o, struct wire *w, struct reply *ret)
{
	switch ((enum op_kind)o->kind) {
	case OP_PUT:
		ret->has_prev = true;
		ret->prev = parse_kv(wire_bytes(w), &ret->bad);
		break;
	case OP_DELETE:
		if (w->field == 2) {
			ret->deleted = wire_i64(w);
		} else {
			ret->has_prev = true;
			ret->prev = parse_kv(wire_bytes(w), &ret->bad);
		}
		break;
	case OP_CAS:
	case OP_JOIN:
	case OP_LEAVE:
		if (w->field == 2)
			ret->succeeded = wire_u64(w) != 0;
		else
			parse_response_op(wire_bytes(w), ret);
		break;
	case OP_GRANT:
	case OP_KEEP_ALIVE:
	case OP_TTL:
		if (w->field == 2)
			ret->lease = wire_i64(w);
		else if (w->field == 3)
			ret->ttl = wire_i64(w);
		break;
	case OP_LOCK:
		if (w->field == 2)
			ret->key = wire_bytes(w);
		else if (w->field == 100)
			ret->token = wire_i64(w);
		else if (w->field == 101)
			ret->lease = wire_i64(w);
		else if (w->field == 102)
			ret->ttl = wire_i64(w);
		break;
	case OP_CAMPAIGN:
		if (w->field == 2)
			parse_leader_key(wire_bytes(w), ret);
		else if (w->field == 100)
			ret->token = wire_i64(w);
		break;
	case OP_LEADER:
		if (w->field == 2)
			add_kv(ret, wire_bytes(w));
		break;
	default: break;
	}
}

void parse_reply(const struct op *o, struct slice bytes, struct reply *ret)
{
	struct wire w;

	memset(ret, 0, offsetof(struct reply, kv));
	memset(&ret->kvs, 0, sizeof *ret - offsetof(struct reply, kvs));
	for (wire_init(&w, bytes); wire_next(&w);) {
		if (w.field == 1) {
			ret->header = (revision)wire_find_u64(wire_bytes(&w), 3, 0);
			continue;
		}
		if (o->kind == OP_GET || o->kind == OP_GET_SERIALIZABLE || o->kind == OP_RANGE || o->kind == OP_FIRST) {
			if (w.field == 2)
				add_kv(ret, wire_bytes(&w));
			else if (w.field == 4)
				ret->count = wire_i64(&w);
			continue;
		}
		parse_field(o, &w, ret);
	}
	ret->bad |= w.bad;
}
