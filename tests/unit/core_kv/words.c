#include "words.h"

#include <check.h>
#include <stdlib.h>

#include "etcd/rpc.pb-c.h"
#include "etcd/v3election.pb-c.h"
#include "etcd/v3lock.pb-c.h"
#include "holdfast/internal.pb-c.h"

#define NEW(w, type) message_new(w, &type##__descriptor)

static void *message_new(struct words *w, const ProtobufCMessageDescriptor *desc)
{
	void *m = arena_alloc(w->arena, desc->sizeof_message);

	protobuf_c_message_init(desc, m);
	return m;
}

static void skip_blanks(struct words *w)
{
	while (*w->at == ' ')
		w->at++;
}

static struct slice peek(struct words *w)
{
	skip_blanks(w);
	return slice_of(w->at, strcspn(w->at, " "));
}

static struct slice next(struct words *w)
{
	struct slice word = peek(w);

	w->at += word.len;
	return word;
}

static bool is(struct slice word, const char *what)
{
	return slice_eq(word, slice_of_str(what));
}

static bool take(struct words *w, const char *what)
{
	if (!is(peek(w), what))
		return false;
	next(w);
	return true;
}

/* "name=" before a value: what follows it. */
static bool option(struct slice word, const char *name, struct slice *ret)
{
	size_t len = strlen(name);

	if (word.len <= len || memcmp(word.ptr, name, len) != 0 || word.ptr[len] != '=')
		return false;
	*ret = slice_of(word.ptr + len + 1, word.len - len - 1);
	return true;
}

static int64_t number(struct words *w, struct slice s)
{
	return strtoll(arena_strdup(w->arena, s), NULL, 0);
}

static ProtobufCBinaryData bytes(struct words *w, struct slice s)
{
	struct slice copy = arena_copy(w->arena, s);
	ProtobufCBinaryData ret = { .len = s.len, .data = (uint8_t *)(uintptr_t)copy.ptr };

	if (is(s, "-"))
		ret.len = 0;
	for (size_t i = 0; i < ret.len; i++) {
		if (ret.data[i] == '*')
			ret.data[i] = 0;
		else if (ret.data[i] == '_')
			ret.data[i] = 0xff;
	}
	return ret;
}

/* Whether a word may be the end of a range, and no option, operation or bracket. */
static bool is_end(struct slice word)
{
	static const char *const others[] = { "", ";", "{", "}", "keys", "count", "serial", "prev" };

	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		if (is(word, others[i]))
			return false;
	}
	return !memchr(word.ptr, '=', word.len);
}

static int pick(struct slice word, const char *const *names)
{
	for (int i = 0; names[i]; i++) {
		if (is(word, names[i]))
			return i;
	}
	return atoi((const char *)word.ptr);
}

static bool at_end_of_op(struct words *w)
{
	struct slice word = peek(w);

	return word.len == 0 || is(word, ";") || is(word, "}");
}

static Etcdserverpb__RangeRequest *range(struct words *w)
{
	static const char *const orders[] = { "none", "asc", "desc", NULL };
	static const char *const targets[] = { "key", "version", "create", "mod", "value", NULL };
	Etcdserverpb__RangeRequest *r = NEW(w, etcdserverpb__range_request);
	struct slice v;

	r->key = bytes(w, next(w));
	if (is_end(peek(w)))
		r->range_end = bytes(w, next(w));
	while (!at_end_of_op(w)) {
		struct slice word = next(w);

		r->keys_only |= is(word, "keys");
		r->count_only |= is(word, "count");
		r->serializable |= is(word, "serial");
		if (option(word, "limit", &v))
			r->limit = number(w, v);
		if (option(word, "rev", &v))
			r->revision = number(w, v);
		if (option(word, "order", &v))
			r->sort_order = (Etcdserverpb__RangeRequest__SortOrder)pick(v, orders);
		if (option(word, "by", &v))
			r->sort_target = (Etcdserverpb__RangeRequest__SortTarget)pick(v, targets);
		if (option(word, "minmod", &v))
			r->min_mod_revision = number(w, v);
		if (option(word, "maxmod", &v))
			r->max_mod_revision = number(w, v);
		if (option(word, "mincreate", &v))
			r->min_create_revision = number(w, v);
		if (option(word, "maxcreate", &v))
			r->max_create_revision = number(w, v);
	}
	return r;
}

static Etcdserverpb__PutRequest *put(struct words *w)
{
	Etcdserverpb__PutRequest *r = NEW(w, etcdserverpb__put_request);
	struct slice v;

	r->key = bytes(w, next(w));
	r->value = bytes(w, next(w));
	while (!at_end_of_op(w)) {
		struct slice word = next(w);

		r->prev_kv |= is(word, "prev");
		r->ignore_value |= is(word, "keep_value");
		r->ignore_lease |= is(word, "keep_lease");
		if (option(word, "lease", &v))
			r->lease = number(w, v);
	}
	return r;
}

static Etcdserverpb__DeleteRangeRequest *del(struct words *w)
{
	Etcdserverpb__DeleteRangeRequest *r = NEW(w, etcdserverpb__delete_range_request);

	r->key = bytes(w, next(w));
	if (is_end(peek(w)))
		r->range_end = bytes(w, next(w));
	r->prev_kv = take(w, "prev");
	return r;
}

/* K.create=0, K..END.value>x */
static Etcdserverpb__Compare *compare(struct words *w, struct slice word)
{
	static const char *const targets[] = { "version", "create", "mod", "value", "lease", NULL };
	Etcdserverpb__Compare *c = NEW(w, etcdserverpb__compare);
	size_t op = strcspn((const char *)word.ptr, "=!<>"), dot = op;
	struct slice keys, value = slice_of(word.ptr + op + 1, word.len - op - 1);
	const uint8_t *dots;

	while (word.ptr[dot - 1] != '.')
		dot--;
	keys = slice_of(word.ptr, dot - 1);
	dots = memmem(keys.ptr, keys.len, "..", 2);
	c->key = bytes(w, dots ? slice_of(keys.ptr, (size_t)(dots - keys.ptr)) : keys);
	if (dots)
		c->range_end = bytes(w, slice_of(dots + 2, keys.len - (size_t)(dots - keys.ptr) - 2));
	c->target = (Etcdserverpb__Compare__CompareTarget)pick(slice_of(word.ptr + dot, op - dot), targets);
	c->result = (Etcdserverpb__Compare__CompareResult)(strchr("=><!", word.ptr[op]) - "=><!");
	c->target_union_case = (Etcdserverpb__Compare__TargetUnionCase)(ETCDSERVERPB__COMPARE__TARGET_UNION_VERSION + c->target);
	if (c->target == ETCDSERVERPB__COMPARE__COMPARE_TARGET__VALUE)
		c->value = bytes(w, value);
	else
		c->version = number(w, value);
	return c;
}

static Etcdserverpb__TxnRequest *txn(struct words *w);

static Etcdserverpb__RequestOp *op(struct words *w)
{
	Etcdserverpb__RequestOp *o = NEW(w, etcdserverpb__request_op);
	struct slice word = next(w);

	if (is(word, "get")) {
		o->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE;
		o->request_range = range(w);
	} else if (is(word, "put")) {
		o->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
		o->request_put = put(w);
	} else if (is(word, "del")) {
		o->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
		o->request_delete_range = del(w);
	} else if (is(word, "txn")) {
		o->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_TXN;
		o->request_txn = txn(w);
	} else {
		ck_assert(is(word, "none"));
	}
	return o;
}

static size_t ops(struct words *w, Etcdserverpb__RequestOp ***ret)
{
	size_t n = 0;

	*ret = arena_alloc(w->arena, 256 * sizeof(**ret));
	ck_assert(take(w, "{"));
	while (!take(w, "}")) {
		(*ret)[n++] = op(w);
		take(w, ";");
	}
	return n;
}

static Etcdserverpb__TxnRequest *txn(struct words *w)
{
	Etcdserverpb__TxnRequest *r = NEW(w, etcdserverpb__txn_request);

	r->compare = arena_alloc(w->arena, 256 * sizeof(*r->compare));
	ck_assert(take(w, "{"));
	while (!take(w, "}"))
		r->compare[r->n_compare++] = compare(w, next(w));
	r->n_success = ops(w, &r->success);
	r->n_failure = ops(w, &r->failure);
	return r;
}

/* ---- leases, locks, elections ---- */

static const ProtobufCMessage *lease_word(struct words *w, struct slice word)
{
	if (is(word, "grant")) {
		Etcdserverpb__LeaseGrantRequest *r = NEW(w, etcdserverpb__lease_grant_request);

		r->id = number(w, next(w));
		r->ttl = number(w, next(w));
		return &r->base;
	}
	if (is(word, "revoke")) {
		Etcdserverpb__LeaseRevokeRequest *r = NEW(w, etcdserverpb__lease_revoke_request);

		r->id = number(w, next(w));
		return &r->base;
	}
	if (is(word, "end")) {
		Holdfast__Internal__LeaseEnd *r = NEW(w, holdfast__internal__lease_end);

		r->ids = arena_alloc(w->arena, 64 * sizeof(*r->ids));
		r->term = (uint64_t)number(w, next(w));
		while (peek(w).len > 0)
			r->ids[r->n_ids++] = number(w, next(w));
		return &r->base;
	}
	return NULL;
}

/* 305: call 5 of replica 3; of replica 2 when none is said. */
static Holdfast__Internal__CallId *call_id(struct words *w, int64_t n)
{
	Holdfast__Internal__CallId *id = NEW(w, holdfast__internal__call_id);

	id->member = n >= 100 ? (uint64_t)n / 100 : 2;
	id->boot = 1;
	id->call = (uint64_t)n % 100;
	return id;
}

static const ProtobufCMessage *lock(struct words *w)
{
	Holdfast__Internal__LockCommand *m = NEW(w, holdfast__internal__lock_command);
	struct slice v;

	m->name = bytes(w, next(w));
	while (!at_end_of_op(w)) {
		struct slice word = next(w);

		if (option(word, "lease", &v))
			m->lease = number(w, v);
		if (option(word, "mode", &v))
			m->mode = is(v, "shared") ? 1 : (uint32_t)number(w, v);
		if (option(word, "wait", &v)) {
			m->bounded = true;
			m->wait_ms = number(w, v);
		}
		if (option(word, "grant", &v)) {
			m->grant_lease = true;
			m->lease_ttl = number(w, v);
		}
		if (option(word, "call", &v))
			m->call = call_id(w, number(w, v));
		if (option(word, "saw", &v))
			m->saw = number(w, v) ? call_id(w, number(w, v)) : NEW(w, holdfast__internal__call_id);
		if (option(word, "value", &v))
			m->value = bytes(w, v);
		m->beside |= is(word, "beside");
	}
	return &m->base;
}

static const ProtobufCMessage *abandon(struct words *w)
{
	Holdfast__Internal__AbandonCommand *m = NEW(w, holdfast__internal__abandon_command);
	struct slice v;

	m->key = bytes(w, next(w));
	while (!at_end_of_op(w)) {
		struct slice word = next(w);

		m->waiting_only |= is(word, "waiting");
		if (option(word, "call", &v))
			m->call = call_id(w, number(w, v));
		if (option(word, "revoke", &v))
			m->revoke_lease = number(w, v);
	}
	return &m->base;
}

static V3electionpb__LeaderKey *leader_key(struct words *w)
{
	V3electionpb__LeaderKey *k = NEW(w, v3electionpb__leader_key);

	k->key = bytes(w, next(w));
	k->rev = number(w, next(w));
	return k;
}

static const ProtobufCMessage *lock_word(struct words *w, struct slice word)
{
	struct slice v;

	if (is(word, "lock"))
		return lock(w);
	if (is(word, "abandon"))
		return abandon(w);
	if (is(word, "unlock")) {
		V3lockpb__UnlockRequest *r = NEW(w, v3lockpb__unlock_request);

		r->key = bytes(w, next(w));
		if (peek(w).len > 0)
			r->fencing_token = number(w, next(w));
		return &r->base;
	}
	if (is(word, "proclaim")) {
		V3electionpb__ProclaimRequest *r = NEW(w, v3electionpb__proclaim_request);

		r->leader = leader_key(w);
		r->value = bytes(w, next(w));
		if (option(next(w), "lease", &v))
			r->leader->lease = number(w, v);
		return &r->base;
	}
	if (is(word, "resign")) {
		V3electionpb__ResignRequest *r = NEW(w, v3electionpb__resign_request);

		r->leader = peek(w).len > 0 ? leader_key(w) : NULL;
		return &r->base;
	}
	if (is(word, "leader")) {
		V3electionpb__LeaderRequest *r = NEW(w, v3electionpb__leader_request);

		r->name = bytes(w, next(w));
		return &r->base;
	}
	return NULL;
}

const ProtobufCMessage *words_request(struct words *w)
{
	struct slice word = next(w);
	const ProtobufCMessage *m = lease_word(w, word);

	if (!m)
		m = lock_word(w, word);
	if (m)
		return m;
	if (is(word, "get"))
		return &range(w)->base;
	if (is(word, "put"))
		return &put(w)->base;
	if (is(word, "del"))
		return &del(w)->base;
	if (is(word, "compact")) {
		Etcdserverpb__CompactionRequest *r = NEW(w, etcdserverpb__compaction_request);

		r->revision = number(w, next(w));
		return &r->base;
	}
	ck_assert_msg(is(word, "txn"), "no such word");
	return &txn(w)->base;
}
