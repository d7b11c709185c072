/* range.c: Range, with every option etcd has.
 *
 *   (R1) count is the number of keys in the range at that revision, whatever limit and the revision filters leave out.
 *   (R2) pairs that compare equal by the sort target come in key order, ascending or descending.
 *   (R3) a sort target without an order sorts ascending, but only what the limit let through: etcd cuts by key first, and sorts after.
 *        With an order, or with filters, it sorts all and cuts after.
 *
 *   (R4) a part of a reply ends where a whole pair does, and has one at least: who asks for part after part gets to the end.
 *
 * Pairs in key order are written as they are met; only a sort collects them first. */
#include "core/kv/kv.h"

#include "core/kv/kv_internal.h"

enum { RANGE_KVS = 2, RANGE_MORE = 3, RANGE_COUNT = 4 };

#define SORT_KEY ETCDSERVERPB__RANGE_REQUEST__SORT_TARGET__KEY
#define SORT_VERSION ETCDSERVERPB__RANGE_REQUEST__SORT_TARGET__VERSION
#define SORT_CREATE ETCDSERVERPB__RANGE_REQUEST__SORT_TARGET__CREATE
#define SORT_MOD ETCDSERVERPB__RANGE_REQUEST__SORT_TARGET__MOD
#define SORT_VALUE ETCDSERVERPB__RANGE_REQUEST__SORT_TARGET__VALUE
#define ORDER_NONE ETCDSERVERPB__RANGE_REQUEST__SORT_ORDER__NONE
#define ORDER_DESCEND ETCDSERVERPB__RANGE_REQUEST__SORT_ORDER__DESCEND

static bool has_filters(const Etcdserverpb__RangeRequest *r)
{
	return r->min_mod_revision != 0 || r->max_mod_revision != 0 || r->min_create_revision != 0 || r->max_create_revision != 0;
}

static bool passes(const Etcdserverpb__RangeRequest *r, const struct kv *kv)
{
	return !(r->max_mod_revision != 0 && kv->mod_revision > r->max_mod_revision) &&
	       !(r->min_mod_revision != 0 && kv->mod_revision < r->min_mod_revision) &&
	       !(r->max_create_revision != 0 && kv->create_revision > r->max_create_revision) &&
	       !(r->min_create_revision != 0 && kv->create_revision < r->min_create_revision);
}

static struct store_range range_of(const Etcdserverpb__RangeRequest *r)
{
	/* etcd takes a negative revision for now */
	return (struct store_range){ .key = kv_slice(r->key), .end = kv_slice(r->range_end), .at = r->revision > 0 ? r->revision : 0 };
}

/* ---- in key order ---- */

struct range_walk {
	const Etcdserverpb__RangeRequest *request;
	struct buf *out;
	size_t full;    /* out's length at which no more is written; 0: none */
	uint64_t seen;  /* keys met */
	uint64_t taken; /* pairs written */
	bool more;      /* one more would have been, but for the limit or the length */
	bool cut;       /* but for the length */
};

static bool write_next(void *ctx, const struct kv *kv)
{
	struct range_walk *w = ctx;

	w->seen++;
	if (!passes(w->request, kv))
		return true;
	if (w->request->limit > 0 && w->taken == (uint64_t)w->request->limit) {
		w->more = true;
		return false;
	}
	if (w->full > 0 && w->taken > 0 && w->out->len >= w->full) { /* R4 */
		w->more = w->cut = true;
		return false;
	}
	w->taken++;
	kv_write_pair(w->out, RANGE_KVS, kv, w->request->keys_only);
	return true;
}

static void range_by_key(const struct kv_run *run, const Etcdserverpb__RangeRequest *r, struct store_range range, size_t full)
{
	struct range_walk w = { .request = r, .out = run->out, .full = full };

	store_walk(run->env->store, range, write_next, &w);
	pbw_u64(run->out, RANGE_MORE, w.more);
	if (!w.cut)
		pbw_u64(run->out, RANGE_COUNT, w.more ? store_count(run->env->store, range) : w.seen);
}

/* ---- sorted ---- */

struct range_pick {
	const Etcdserverpb__RangeRequest *request;
	const struct kv **at;
	uint64_t len, cap;
};

static bool pick_next(void *ctx, const struct kv *kv)
{
	struct range_pick *p = ctx;

	if (passes(p->request, kv))
		p->at[p->len++] = kv;
	return p->len < p->cap;
}

static int compare_numbers(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

static int compare_by_target(int target, const struct kv *a, const struct kv *b)
{
	switch (target) {
	case SORT_VERSION:
		return compare_numbers(a->version, b->version);
	case SORT_CREATE:
		return compare_numbers(a->create_revision, b->create_revision);
	case SORT_MOD:
		return compare_numbers(a->mod_revision, b->mod_revision);
	case SORT_VALUE:
		return slice_cmp(kv_value(a), kv_value(b));
	case SORT_KEY:
	default:
		return slice_cmp(kv_key(a), kv_key(b));
	}
}

/* Never 0 for two pairs (R2), so the outcome does not depend on the sort's method. */
static int compare_pairs(const void *a, const void *b, void *ctx)
{
	const struct kv *left = *(const struct kv *const *)a, *right = *(const struct kv *const *)b;
	const Etcdserverpb__RangeRequest *r = ctx;
	int c = compare_by_target(r->sort_target, left, right);

	if (r->sort_order == ORDER_DESCEND)
		c = -c;
	return c != 0 ? c : slice_cmp(kv_key(left), kv_key(right));
}

static void range_sorted(const struct kv_run *run, const Etcdserverpb__RangeRequest *r, struct store_range range)
{
	struct range_pick p = { .request = r };
	uint64_t count = store_count(run->env->store, range);
	uint64_t limit = r->limit > 0 ? (uint64_t)r->limit : UINT64_MAX;

	p.cap = count;
	if (r->sort_order == ORDER_NONE && !has_filters(r) && limit < count)
		p.cap = limit + 1;
	if (p.cap > 0) {
		p.at = arena_alloc(run->env->arena, p.cap * sizeof(*p.at));
		store_walk(run->env->store, range, pick_next, &p);
		qsort_r(p.at, p.len, sizeof(*p.at), compare_pairs, (void *)(uintptr_t)r);
	}
	for (uint64_t i = 0; i < p.len && i < limit; i++)
		kv_write_pair(run->out, RANGE_KVS, p.at[i], r->keys_only);
	pbw_u64(run->out, RANGE_MORE, p.len > limit);
	pbw_u64(run->out, RANGE_COUNT, count);
}

/* ---- one request ---- */

static void range_one(const struct kv_run *run, const Etcdserverpb__RangeRequest *r, struct store_range range)
{
	const struct kv *kv = store_get(run->env->store, range.key, range.at);

	if (!kv)
		return;
	if (!r->count_only && passes(r, kv))
		kv_write_pair(run->out, RANGE_KVS, kv, r->keys_only);
	pbw_u64(run->out, RANGE_COUNT, 1);
}

static void run_range(const struct kv_run *run, const Etcdserverpb__RangeRequest *r, size_t part_bytes)
{
	struct store_range range = range_of(r);

	if (!run->out)
		return;
	kv_run_header(run, kv_run_revision(run));
	if (range.end.len == 0)
		range_one(run, r, range);
	else if (kv_range_is_empty(range.key, range.end))
		return;
	else if (r->count_only)
		pbw_u64(run->out, RANGE_COUNT, store_count(run->env->store, range));
	else if (r->sort_target == SORT_KEY && r->sort_order != ORDER_DESCEND)
		range_by_key(run, r, range, part_bytes > 0 ? run->out->len + part_bytes : 0);
	else
		range_sorted(run, r, range);
}

void kv_run_range(const struct kv_run *run, const Etcdserverpb__RangeRequest *r)
{
	run_range(run, r, 0);
}

enum err kv_range_check_in_txn(const struct kv_env *env, const Etcdserverpb__RangeRequest *r)
{
	/* Unlike a Range of its own, etcd judges negative revisions here: an uncompacted store begins at -1 for it. */
	if (r->revision < 0)
		return env->state->compact_revision > 0 || r->revision < -1 ? ERR_COMPACTED : ERR_OK;
	return store_check_revision(env->store, r->revision);
}

static enum err range_request(struct kv_env *env, struct slice request, bool part, struct buf *ret)
{
	struct kv_run run = { .env = env, .out = ret };
	Etcdserverpb__RangeRequest *r;
	enum err e = kv_unpack(env, &etcdserverpb__range_request__descriptor, request, &r);

	if (!e)
		e = part ? kv_check_range_stream(r) : kv_check_range(r);
	if (!e && r->revision > 0)
		e = store_check_revision(env->store, r->revision);
	if (e)
		return e;
	env->counts.ranges++;
	run_range(&run, r, part ? KV_PART_BYTES : 0);
	return ERR_OK;
}

enum err kv_range(struct kv_env *env, struct slice request, struct buf *ret)
{
	return range_request(env, request, false, ret);
}

enum err kv_range_part(struct kv_env *env, struct slice request, struct buf *ret)
{
	return range_request(env, request, true, ret);
}
