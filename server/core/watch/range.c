/* range.c: the index of what is watched, from a key to the ranges it lies in.
 *
 * Single keys are in a hash table, so that a write costs one probe however many other keys are watched. Spans are in a tree, ordered by
 * key and then end, in which each node knows which range of its subtree ends last: a stab leaves out whatever ends before the key. The tree
 * is balanced by random priorities (a treap): the shape depends on the seed and on what is in it, and on nothing else. */
#include "watch_internal.h"

#include "base/hash.h"

enum { BUCKETS_MIN = 64 };

/* ---- single keys ---- */

static struct watch_range **bucket_of(const struct range_index *ix, uint64_t hash)
{
	return &ix->buckets[hash & (ix->cap - 1)];
}

static void buckets_resize(struct range_index *ix, size_t cap)
{
	struct range_index bigger = *ix;

	bigger.buckets = mem_zalloc(cap * sizeof *bigger.buckets);
	bigger.cap = cap;
	for (size_t i = 0; i < ix->cap; i++) {
		for (struct watch_range *r = ix->buckets[i], *next; r; r = next) {
			struct watch_range **to = bucket_of(&bigger, r->hash);

			next = r->chain;
			r->chain = *to;
			*to = r;
		}
	}
	free(ix->buckets);
	*ix = bigger;
}

static struct watch_range *key_find(const struct range_index *ix, struct slice key, uint64_t hash)
{
	struct watch_range *r = ix->keys ? *bucket_of(ix, hash) : NULL;

	while (r && !(r->hash == hash && slice_eq(range_key(r), key)))
		r = r->chain;
	return r;
}

static void key_insert(struct range_index *ix, struct watch_range *r)
{
	struct watch_range **to;

	if (ix->keys >= ix->cap)
		buckets_resize(ix, ix->cap ? ix->cap * 2 : BUCKETS_MIN);
	to = bucket_of(ix, r->hash);
	r->chain = *to;
	*to = r;
	ix->keys++;
}

static void key_remove(struct range_index *ix, struct watch_range *r)
{
	struct watch_range **at = bucket_of(ix, r->hash);

	while (*at != r)
		at = &(*at)->chain;
	*at = r->chain;
	ix->keys--;
	if (ix->cap > BUCKETS_MIN && ix->keys < ix->cap / 8)
		buckets_resize(ix, ix->cap / 2);
}

/* ---- spans ---- */

static int end_cmp(const struct watch_range *a, const struct watch_range *b)
{
	if (a->kind == RANGE_FROM || b->kind == RANGE_FROM)
		return (a->kind == RANGE_FROM) - (b->kind == RANGE_FROM);
	return slice_cmp(range_end(a), range_end(b));
}

static int span_cmp(const struct watch_range *a, const struct watch_range *b)
{
	int c = slice_cmp(range_key(a), range_key(b));

	return c ? c : end_cmp(a, b);
}

static void furthest_update(struct watch_range *r)
{
	r->furthest = r;
	if (r->left && end_cmp(r->left->furthest, r->furthest) > 0)
		r->furthest = r->left->furthest;
	if (r->right && end_cmp(r->right->furthest, r->furthest) > 0)
		r->furthest = r->right->furthest;
}

/* Splits into what sorts before `by` and what sorts after; by itself is in neither tree. */
static void span_split(struct watch_range *t, const struct watch_range *by, struct watch_range **before, struct watch_range **after)
{
	if (!t) {
		*before = *after = NULL;
		return;
	}
	if (span_cmp(t, by) < 0) {
		span_split(t->right, by, &t->right, after);
		*before = t;
	} else {
		span_split(t->left, by, before, &t->left);
		*after = t;
	}
	furthest_update(t);
}

static struct watch_range *span_join(struct watch_range *a, struct watch_range *b)
{
	if (!a || !b)
		return a ? a : b;
	if (a->hash > b->hash) {
		a->right = span_join(a->right, b);
		furthest_update(a);
		return a;
	}
	b->left = span_join(a, b->left);
	furthest_update(b);
	return b;
}

static struct watch_range *span_insert(struct watch_range *t, struct watch_range *r)
{
	if (!t || r->hash > t->hash) {
		span_split(t, r, &r->left, &r->right);
		t = r;
	} else if (span_cmp(r, t) < 0) {
		t->left = span_insert(t->left, r);
	} else {
		t->right = span_insert(t->right, r);
	}
	furthest_update(t);
	return t;
}

static struct watch_range *span_remove(struct watch_range *t, struct watch_range *r)
{
	if (t == r)
		return span_join(r->left, r->right);
	if (span_cmp(r, t) < 0)
		t->left = span_remove(t->left, r);
	else
		t->right = span_remove(t->right, r);
	furthest_update(t);
	return t;
}

static struct watch_range *span_find(const struct range_index *ix, const struct watch_range *like)
{
	struct watch_range *t = ix->root;

	while (t) {
		int c = span_cmp(like, t);

		if (c == 0)
			return t;
		t = c < 0 ? t->left : t->right;
	}
	return NULL;
}

static void span_stab(struct watch_range *t, struct slice key, void (*fn)(void *ctx, struct watch_range *r), void *ctx)
{
	while (t && (t->furthest->kind == RANGE_FROM || slice_cmp(key, range_end(t->furthest)) < 0)) {
		span_stab(t->left, key, fn, ctx);
		if (slice_cmp(range_key(t), key) > 0)
			return;
		if (t->kind == RANGE_FROM || slice_cmp(key, range_end(t)) < 0)
			fn(ctx, t);
		t = t->right;
	}
}

/* ---- both ---- */

static struct watch_range *range_new(struct slice key, struct slice end, enum range_kind kind)
{
	struct watch_range *r = mem_zalloc(sizeof *r + key.len + end.len);

	list_init(&r->synced);
	list_init(&r->selected);
	r->first = r->last = NO_MATCH;
	r->key_len = (uint32_t)key.len;
	r->end_len = (uint32_t)end.len;
	r->kind = (uint8_t)kind;
	memcpy(r->bytes, key.ptr, key.len);
	if (end.len)
		memcpy(r->bytes + key.len, end.ptr, end.len);
	return r;
}

struct watch_range *range_get(struct range_index *ix, struct slice key, struct slice end, enum range_kind kind)
{
	uint64_t hash = hash64(ix->seed, key.ptr, key.len);
	struct watch_range *r = range_new(key, end, kind), *found;

	r->hash = kind == RANGE_KEY ? hash : hash64(hash, end.ptr, end.len);
	found = kind == RANGE_KEY ? key_find(ix, key, hash) : span_find(ix, r);
	if (found) {
		free(r);
		found->watchers++;
		return found;
	}
	if (kind == RANGE_KEY) {
		key_insert(ix, r);
	} else {
		ix->root = span_insert(ix->root, r);
		ix->spans++;
	}
	ix->bytes += key.len + end.len;
	r->watchers = 1;
	return r;
}

void range_put_back(struct range_index *ix, struct watch_range *r)
{
	if (--r->watchers > 0)
		return;
	ASSERT(list_empty(&r->synced));
	ASSERT(list_empty(&r->selected));
	ASSERT(r->first == NO_MATCH);
	if (r->kind == RANGE_KEY) {
		key_remove(ix, r);
	} else {
		ix->root = span_remove(ix->root, r);
		ix->spans--;
	}
	ix->bytes -= (size_t)r->key_len + r->end_len;
	free(r);
}

void ranges_stab(const struct range_index *ix, struct slice key, void (*fn)(void *ctx, struct watch_range *r), void *ctx)
{
	if (ix->keys) {
		struct watch_range *r = key_find(ix, key, hash64(ix->seed, key.ptr, key.len));

		if (r)
			fn(ctx, r);
	}
	span_stab(ix->root, key, fn, ctx);
}

void ranges_deinit(struct range_index *ix)
{
	ASSERT(ix->keys == 0);
	ASSERT(!ix->root);
	free(ix->buckets);
}

static size_t span_check(const struct watch_range *t)
{
	const struct watch_range *furthest = t;
	size_t n = 1;

	ASSERT(t->kind != RANGE_KEY);
	if (t->left) {
		ASSERT(span_cmp(t->left, t) < 0);
		ASSERT(t->left->hash <= t->hash);
		n += span_check(t->left);
		if (end_cmp(t->left->furthest, furthest) > 0)
			furthest = t->left->furthest;
	}
	if (t->right) {
		ASSERT(span_cmp(t->right, t) > 0);
		ASSERT(t->right->hash <= t->hash);
		n += span_check(t->right);
		if (end_cmp(t->right->furthest, furthest) > 0)
			furthest = t->right->furthest;
	}
	ASSERT(end_cmp(furthest, t->furthest) == 0);
	return n;
}

void ranges_check(const struct range_index *ix)
{
	size_t keys = 0;

	for (size_t i = 0; i < ix->cap; i++) {
		for (const struct watch_range *r = ix->buckets[i]; r; r = r->chain) {
			ASSERT(r->kind == RANGE_KEY);
			ASSERT(r->hash == hash64(ix->seed, r->bytes, r->key_len));
			ASSERT(r->watchers > 0);
			ASSERT(r->first == NO_MATCH);
			keys++;
		}
	}
	ASSERT(keys == ix->keys);
	ASSERT((ix->root ? span_check(ix->root) : 0) == ix->spans);
}
