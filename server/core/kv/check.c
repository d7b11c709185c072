/* check.c: what can be said of a request without the state, as etcd says it.
 *
 * A transaction may not write one key twice. etcd's rule, which clients meet, is not quite that; it is kept to the letter:
 *   - two puts of one key collide on any level, unless they are in the two branches of one nested transaction, of which only one runs;
 *   - a put collides with the deletes of its own level, of all levels below, and of nested transactions *before* the one it is in;
 *   - a delete "to the end" (range_end one zero byte) collides with nothing, nor do deletes with deletes.
 * So a key may still be put and deleted in one transaction; it is then done in order (txn.c).
 *
 * Operations are counted per level: the largest of compares, success and failure counts against what the level above left over. */
#include "core/kv/kv.h"

#include "core/kv/kv_internal.h"

#define OP_RANGE ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE
#define OP_PUT ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT
#define OP_DELETE_RANGE ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE
#define OP_TXN ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_TXN

enum err kv_check_range(const Etcdserverpb__RangeRequest *r)
{
	if (r->key.len == 0)
		return ERR_EMPTY_KEY;
	if ((unsigned)r->sort_order > ETCDSERVERPB__RANGE_REQUEST__SORT_ORDER__DESCEND ||
	    (unsigned)r->sort_target > ETCDSERVERPB__RANGE_REQUEST__SORT_TARGET__VALUE)
		return ERR_INVALID_SORT_OPTION;
	return ERR_OK;
}

enum err kv_check_range_stream(const Etcdserverpb__RangeRequest *r)
{
	enum err e = kv_check_range(r);

	if (e)
		return e;
	if (r->sort_order == ETCDSERVERPB__RANGE_REQUEST__SORT_ORDER__DESCEND || r->sort_target != ETCDSERVERPB__RANGE_REQUEST__SORT_TARGET__KEY)
		return ERR_UNIMPLEMENTED;
	if (r->min_mod_revision || r->max_mod_revision || r->min_create_revision || r->max_create_revision)
		return ERR_UNIMPLEMENTED;
	return ERR_OK;
}

enum err kv_check_put(const Etcdserverpb__PutRequest *r)
{
	if (r->key.len == 0)
		return ERR_EMPTY_KEY;
	if (r->ignore_value && r->value.len != 0)
		return ERR_VALUE_PROVIDED;
	if (r->ignore_lease && r->lease != 0)
		return ERR_LEASE_PROVIDED;
	return ERR_OK;
}

enum err kv_check_delete_range(const Etcdserverpb__DeleteRangeRequest *r)
{
	return r->key.len == 0 ? ERR_EMPTY_KEY : ERR_OK;
}

/* A list of operations: one branch of a transaction. */
struct ops {
	Etcdserverpb__RequestOp **at;
	size_t len;
};

static struct ops success_of(const Etcdserverpb__TxnRequest *r)
{
	return (struct ops){ .at = r->success, .len = r->n_success };
}

static struct ops failure_of(const Etcdserverpb__TxnRequest *r)
{
	return (struct ops){ .at = r->failure, .len = r->n_failure };
}

/* ---- each operation on its own ---- */

static enum err check_txn(const Etcdserverpb__TxnRequest *r, size_t max_ops);

static enum err check_ops(struct ops ops, size_t max_ops)
{
	enum err e = ERR_OK;

	for (size_t i = 0; i < ops.len && !e; i++) {
		const Etcdserverpb__RequestOp *op = ops.at[i];

		switch (op->request_case) {
		case OP_RANGE:
			e = kv_check_range(op->request_range);
			break;
		case OP_PUT:
			e = kv_check_put(op->request_put);
			break;
		case OP_DELETE_RANGE:
			e = kv_check_delete_range(op->request_delete_range);
			break;
		case OP_TXN:
			e = check_txn(op->request_txn, max_ops);
			break;
		default:
			e = ERR_KEY_NOT_FOUND; /* an operation that is none: etcd's answer, odd as it reads */
		}
	}
	return e;
}

static enum err check_txn(const Etcdserverpb__TxnRequest *r, size_t max_ops)
{
	size_t ops = r->n_compare;
	enum err e;

	if (ops < r->n_success)
		ops = r->n_success;
	if (ops < r->n_failure)
		ops = r->n_failure;
	if (ops > max_ops)
		return ERR_TOO_MANY_OPS;
	for (size_t i = 0; i < r->n_compare; i++) {
		if (r->compare[i]->key.len == 0)
			return ERR_EMPTY_KEY;
	}
	e = check_ops(success_of(r), max_ops - ops);
	return e ? e : check_ops(failure_of(r), max_ops - ops);
}

/* ---- puts and deletes against each other ---- */

/* Keys in order, each once. */
struct key_set {
	struct slice *at;
	size_t len;
};

/* A place between keys: just before a key, or just after it. */
struct edge {
	struct slice key;
	bool after;
};

/* Stretches of keys in order that do not touch. */
struct span {
	struct edge begin, end;
};
struct span_set {
	struct span *at;
	size_t len, cap;
};

static int edge_cmp(struct edge a, struct edge b)
{
	int c = slice_cmp(a.key, b.key);

	return c ? c : (int)a.after - (int)b.after;
}

/* Where `key` is, or would be. */
static size_t key_set_find(const struct key_set *set, struct slice key, bool *ret_found)
{
	size_t lo = 0, hi = set->len;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (slice_cmp(set->at[mid], key) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	*ret_found = lo < set->len && slice_eq(set->at[lo], key);
	return lo;
}

static struct key_set key_set_union(struct arena *a, struct key_set x, struct key_set y)
{
	struct key_set ret = { .at = arena_alloc(a, (x.len + y.len) * sizeof(*ret.at)) };
	size_t i = 0, j = 0;

	while (i < x.len || j < y.len) {
		int c = i == x.len ? 1 : j == y.len ? -1 : slice_cmp(x.at[i], y.at[j]);

		ret.at[ret.len++] = c <= 0 ? x.at[i] : y.at[j];
		i += c <= 0;
		j += c >= 0;
	}
	return ret;
}

/* The first stretch that does not end before `edge`. */
static size_t span_set_find(const struct span_set *set, struct edge edge)
{
	size_t lo = 0, hi = set->len;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (edge_cmp(set->at[mid].end, edge) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool span_set_covers(const struct span_set *set, struct slice key)
{
	struct edge after = { .key = key, .after = true };
	size_t i = span_set_find(set, after);

	return i < set->len && edge_cmp(set->at[i].begin, after) < 0;
}

static void span_set_grow(struct arena *a, struct span_set *set)
{
	size_t cap = set->cap ? set->cap * 2 : 8;
	struct span *at = arena_alloc(a, cap * sizeof(*at));

	if (set->len > 0)
		memcpy(at, set->at, set->len * sizeof(*at));
	set->at = at;
	set->cap = cap;
}

static void span_set_add(struct arena *a, struct span_set *set, struct span span)
{
	size_t first, last;

	if (edge_cmp(span.begin, span.end) >= 0)
		return;
	first = last = span_set_find(set, span.begin);
	while (last < set->len && edge_cmp(set->at[last].begin, span.end) <= 0)
		last++;
	if (last > first) { /* one stretch takes the place of all that it touches */
		if (edge_cmp(set->at[first].begin, span.begin) < 0)
			span.begin = set->at[first].begin;
		if (edge_cmp(set->at[last - 1].end, span.end) > 0)
			span.end = set->at[last - 1].end;
		memmove(set->at + first + 1, set->at + last, (set->len - last) * sizeof(*set->at));
		set->len -= last - first - 1;
	} else {
		if (set->len == set->cap)
			span_set_grow(a, set);
		memmove(set->at + first + 1, set->at + first, (set->len - first) * sizeof(*set->at));
		set->len++;
	}
	set->at[first] = span;
}

static void add_deletes(struct arena *a, struct span_set *dels, struct ops ops)
{
	for (size_t i = 0; i < ops.len; i++) {
		const Etcdserverpb__DeleteRangeRequest *r = ops.at[i]->request_delete_range;
		struct span span = { 0 };

		if (ops.at[i]->request_case != OP_DELETE_RANGE)
			continue;
		span.begin.key = kv_slice(r->key);
		/* "To the end" is read literally here, as a stretch that ends before it begins: etcd's gap, see above. */
		span.end.key = r->range_end.len ? kv_slice(r->range_end) : span.begin.key;
		span.end.after = r->range_end.len == 0;
		span_set_add(a, dels, span);
	}
}

static bool any_collides(const struct key_set *keys, const struct key_set *puts, const struct span_set *dels)
{
	for (size_t i = 0; i < keys->len; i++) {
		bool found;

		key_set_find(puts, keys->at[i], &found);
		if (found || span_set_covers(dels, keys->at[i]))
			return true;
	}
	return false;
}

/* The puts and deletes of a branch with all below it. ERR_DUPLICATE_KEY. */
static enum err collect(struct arena *a, struct ops ops, struct key_set *ret_puts, struct span_set *ret_dels);

static enum err collect_nested(struct arena *a, const Etcdserverpb__TxnRequest *r, struct key_set *puts, struct span_set *dels)
{
	struct key_set puts_then = { 0 }, puts_else = { 0 };
	struct span_set dels_then = { 0 }, dels_else = { 0 };
	enum err e = collect(a, success_of(r), &puts_then, &dels_then);

	if (!e)
		e = collect(a, failure_of(r), &puts_else, &dels_else);
	if (e)
		return e;
	if (any_collides(&puts_then, puts, dels) || any_collides(&puts_else, puts, dels))
		return ERR_DUPLICATE_KEY;
	*puts = key_set_union(a, *puts, key_set_union(a, puts_then, puts_else));
	for (size_t i = 0; i < dels_then.len; i++)
		span_set_add(a, dels, dels_then.at[i]);
	for (size_t i = 0; i < dels_else.len; i++)
		span_set_add(a, dels, dels_else.at[i]);
	return ERR_OK;
}

static int compare_slices(const void *a, const void *b)
{
	return slice_cmp(*(const struct slice *)a, *(const struct slice *)b);
}

/* The puts of this very level; two of one key are an error. */
static enum err own_puts(struct arena *a, struct ops ops, struct key_set *ret)
{
	struct key_set set = { .at = arena_alloc(a, ops.len * sizeof(*set.at)) };

	for (size_t i = 0; i < ops.len; i++) {
		if (ops.at[i]->request_case == OP_PUT)
			set.at[set.len++] = kv_slice(ops.at[i]->request_put->key);
	}
	qsort(set.at, set.len, sizeof(*set.at), compare_slices);
	for (size_t i = 1; i < set.len; i++) {
		if (slice_eq(set.at[i - 1], set.at[i]))
			return ERR_DUPLICATE_KEY;
	}
	*ret = set;
	return ERR_OK;
}

static enum err collect(struct arena *a, struct ops ops, struct key_set *ret_puts, struct span_set *ret_dels)
{
	struct key_set puts = { 0 }, own;
	struct span_set dels = { 0 };
	enum err e;

	add_deletes(a, &dels, ops);
	for (size_t i = 0; i < ops.len; i++) {
		if (ops.at[i]->request_case != OP_TXN)
			continue;
		e = collect_nested(a, ops.at[i]->request_txn, &puts, &dels);
		if (e)
			return e;
	}
	e = own_puts(a, ops, &own);
	if (e)
		return e;
	if (any_collides(&own, &puts, &dels))
		return ERR_DUPLICATE_KEY;
	*ret_puts = key_set_union(a, puts, own);
	*ret_dels = dels;
	return ERR_OK;
}

static size_t count_writes(struct ops ops)
{
	size_t n = 0;

	for (size_t i = 0; i < ops.len; i++) {
		const Etcdserverpb__RequestOp *op = ops.at[i];

		n += op->request_case == OP_PUT || op->request_case == OP_DELETE_RANGE;
		if (op->request_case == OP_TXN)
			n += count_writes(success_of(op->request_txn)) + count_writes(failure_of(op->request_txn));
	}
	return n;
}

static enum err check_collisions(struct ops ops)
{
	struct key_set puts;
	struct span_set dels;
	struct arena a;
	enum err e;

	if (count_writes(ops) < 2) /* as in every lock recipe */
		return ERR_OK;
	arena_init(&a);
	e = collect(&a, ops, &puts, &dels);
	arena_deinit(&a);
	return e;
}

enum err kv_check_txn(const Etcdserverpb__TxnRequest *r, uint32_t max_ops)
{
	enum err e = check_txn(r, max_ops);

	if (!e)
		e = check_collisions(success_of(r));
	if (!e)
		e = check_collisions(failure_of(r));
	return e;
}

/* ---- reads ---- */

static bool ops_only_read(struct ops ops, size_t *ranges, bool *serializable)
{
	for (size_t i = 0; i < ops.len; i++) {
		const Etcdserverpb__RequestOp *op = ops.at[i];

		if (op->request_case == OP_RANGE) {
			++*ranges;
			*serializable &= op->request_range->serializable;
		} else if (op->request_case != OP_TXN || !ops_only_read(success_of(op->request_txn), ranges, serializable) ||
			   !ops_only_read(failure_of(op->request_txn), ranges, serializable)) {
			return false;
		}
	}
	return true;
}

bool kv_txn_is_read_only(const Etcdserverpb__TxnRequest *r, bool *ret_serializable)
{
	size_t ranges = 0;
	bool serializable = true;

	if (!ops_only_read(success_of(r), &ranges, &serializable) || !ops_only_read(failure_of(r), &ranges, &serializable))
		return false;
	/* Compares alone never asked for a stale answer. */
	*ret_serializable = serializable && ranges > 0;
	return true;
}
