/* things.c: what is cached by anybody, found by the keys that a write may touch.
 *
 * Things lie in one ordered table under their aspect and path: values first, then lists. A key is looked up as a value, and its parent as a list;
 * a range of keys is a range of values, and those lists whose children could lie in it. A write of a child touches its parent's list whatever it
 * changes, since lists tell versions and maybe values. */
#include "internal.h"

#include "path.h"

static struct slice thing_key(const struct tree_record *r)
{
	const struct thing *t = (const struct thing *)(const void *)r;

	return slice_of(t->key, t->key_len);
}

static void thing_free(struct tree_record *r)
{
	free(r);
}

static uint64_t thing_hash(const struct tree_record *r)
{
	(void)r;
	return 0; /* derived, and so no part of any state's hash */
}

/* No view is ever taken of this table, so nothing is cloned. */
static const struct tree_type thing_type = { .key = thing_key, .free = thing_free, .hash = thing_hash };

void things_init(struct things *ts)
{
	tree_init(&ts->tree, &thing_type);
	list_init(&ts->idle);
	ts->lists = 0;
}

void things_deinit(struct things *ts)
{
	tree_deinit(&ts->tree);
	list_init(&ts->idle);
	ts->lists = 0;
}

static struct slice write_key(uint8_t *to, enum cache_aspect aspect, struct slice path)
{
	to[0] = (uint8_t)aspect;
	memcpy(to + 1, path.ptr, path.len);
	return slice_of(to, path.len + 1);
}

static void drop(struct things *ts, struct thing *t)
{
	uint8_t key[PATH_LEN_MAX + 1];
	struct slice k = slice_of(key, t->key_len);

	memcpy(key, t->key, t->key_len);
	ts->lists -= thing_aspect(t) == CACHE_CHILDREN;
	list_remove(&t->idle);
	ASSERT(tree_remove(&ts->tree, k));
}

struct thing *things_get(struct things *ts, enum cache_aspect aspect, struct slice path, bool make)
{
	uint8_t bytes[PATH_LEN_MAX + 1];
	struct tree_record *r;
	struct slice key;
	struct thing *t;

	if (path.len > PATH_LEN_MAX)
		return NULL;
	key = write_key(bytes, aspect, path);
	r = tree_get(&ts->tree, key);
	if (r || !make)
		return r ? thing_of(r) : NULL;
	if (ts->tree.len >= CACHE_THINGS_MAX) {
		if (list_empty(&ts->idle))
			return NULL;
		drop(ts, CONTAINER_OF(ts->idle.next, struct thing, idle));
	}
	t = mem_zalloc(sizeof(*t) + key.len);
	t->base.refs = 1;
	list_init(&t->pairs);
	list_init(&t->idle);
	t->key_len = (uint32_t)key.len;
	memcpy(t->key, key.ptr, key.len);
	tree_put_take(&ts->tree, &t->base);
	ts->lists += aspect == CACHE_CHILDREN;
	return t;
}

void things_idle(struct things *ts, struct thing *t)
{
	list_remove(&t->idle);
	list_push_back(&ts->idle, &t->idle);
}

void things_purge(struct things *ts, time_ms now)
{
	while (!list_empty(&ts->idle)) {
		struct thing *t = CONTAINER_OF(ts->idle.next, struct thing, idle);

		if (t->pairs_len > 0)
			list_remove(&t->idle);
		else if (now < t->hot_until || (t->hits > 0 && now < t->hits_since + CACHE_HOT_MS))
			return;
		else
			drop(ts, t);
	}
}

bool thing_is_hot(const struct thing *t, time_ms now)
{
	return now < t->hot_until;
}

void thing_hit(struct thing *t, time_ms now)
{
	if (t->hits == 0 || now >= t->hits_since + CACHE_HOT_MS) {
		t->hits = 0;
		t->hits_since = now;
	}
	if (++t->hits >= CACHE_HOT_HITS) {
		t->hits = 0;
		t->hot_until = now + CACHE_HOT_MS;
	}
}

/* ---- what a write touches ---- */

/* [p "/", p "0") of a list's path; the whole of its children's subtrees, which is more than is needed and never less. */
static bool range_meets_children(const struct cache_span *s, struct slice path)
{
	uint8_t bounds[PATH_LEN_MAX + 1];
	size_t n = path.len == 1 ? 0 : path.len;
	bool open = s->end.len == 1 && s->end.ptr[0] == 0;

	memcpy(bounds, path.ptr, n);
	bounds[n] = '0';
	if (slice_cmp(s->key, slice_of(bounds, n + 1)) >= 0)
		return false;
	bounds[n] = '/';
	return open || slice_cmp(slice_of(bounds, n + 1), s->end) < 0;
}

static bool range_has(const struct cache_span *s, struct slice path)
{
	bool open = s->end.len == 1 && s->end.ptr[0] == 0;

	return slice_cmp(s->key, path) <= 0 && (open || slice_cmp(path, s->end) < 0);
}

bool cache_span_touches(const struct cache_span *s, enum cache_aspect aspect, struct slice path)
{
	if (aspect == CACHE_VALUE)
		return s->end.len == 0 ? slice_eq(s->key, path) : range_has(s, path);
	return s->end.len == 0 ? slice_eq(path_parent(s->key), path) : range_meets_children(s, path);
}

static void touch_one(struct things *ts, enum cache_aspect aspect, struct slice path, void (*fn)(void *ctx, struct thing *t), void *ctx)
{
	struct thing *t = path.len > 0 ? things_get(ts, aspect, path, false) : NULL;

	if (t)
		fn(ctx, t);
}

static void touch_values(struct things *ts, const struct cache_span *span, void (*fn)(void *ctx, struct thing *t), void *ctx)
{
	uint8_t bytes[PATH_LEN_MAX + 1];
	struct slice from = span->key;
	struct tree_cursor cursor;

	if (from.len > PATH_LEN_MAX) /* no thing lies between it and its beginning of that length, but that one itself */
		from = slice_of(from.ptr, PATH_LEN_MAX);
	for (struct tree_record *r = tree_seek(&cursor, &ts->tree, write_key(bytes, CACHE_VALUE, from)); r; r = tree_next(&cursor)) {
		struct thing *t = thing_of(r);

		if (thing_aspect(t) != CACHE_VALUE)
			return;
		if (range_has(span, thing_path(t)))
			fn(ctx, t);
		else if (slice_cmp(thing_path(t), span->key) >= 0)
			return;
	}
}

static void touch_lists(struct things *ts, const struct cache_span *span, void (*fn)(void *ctx, struct thing *t), void *ctx)
{
	static const uint8_t first = CACHE_CHILDREN;
	struct tree_cursor cursor;

	if (ts->lists == 0)
		return;
	for (struct tree_record *r = tree_seek(&cursor, &ts->tree, slice_of(&first, 1)); r; r = tree_next(&cursor))
		if (range_meets_children(span, thing_path(thing_of(r))))
			fn(ctx, thing_of(r));
}

void things_touched(struct things *ts, const struct cache_span *span, void (*fn)(void *ctx, struct thing *t), void *ctx)
{
	if (ts->tree.len == 0)
		return;
	if (span->end.len == 0) {
		touch_one(ts, CACHE_VALUE, span->key, fn, ctx);
		touch_one(ts, CACHE_CHILDREN, path_parent(span->key), fn, ctx);
		return;
	}
	touch_values(ts, span, fn, ctx);
	touch_lists(ts, span, fn, ctx);
}
