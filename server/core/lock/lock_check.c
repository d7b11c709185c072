/* lock_check.c: the invariants of lock.h and lock.c, proven the long way. For tests. */
#include "internal.h"

#include "base/mem.h"

/* K3 and K5 for one lock, by walking its whole queue. Returns the first contender of the next lock. */
static struct tree_record *check_lock(const struct locks *l, struct tree_cursor *cursor, struct tree_record *r, uint64_t *exclusives)
{
	struct slice prefix = contender_prefix(contender_of(r));
	const struct fresh *f = mapb_get(&l->fresh_by_lock, prefix);
	const struct contender *c, *previous = NULL, *exclusive = NULL;
	revision last = 0;
	uint64_t waiters = 0;

	for (; (c = lock_in(r, prefix)); r = tree_next(cursor)) {
		bool held = c->mode == LOCK_SHARED ? !exclusive : !previous;

		ASSERT(lock_is_held(l, c) == held);
		ASSERT(lock_waits_for(l, c) == (c->mode == LOCK_SHARED ? exclusive : previous));
		ASSERT_IF(held, last == (previous ? previous->create_revision : 0)); /* holders are the first ones */
		if (held)
			last = c->create_revision;
		else
			waiters++;
		previous = c;
		if (c->mode == LOCK_EXCLUSIVE) {
			exclusive = c;
			++*exclusives;
			ASSERT(tree_get(&l->exclusives, contender_sort_key(c)) == &c->base); /* K6 */
		}
	}
	ASSERT(lock_last_held(l, prefix) == last);
	ASSERT(lock_waiters(l, contender_name(previous)) == waiters);
	ASSERT_IF(f, f->from > 0);
	return r;
}

static void check_queues(const struct locks *l)
{
	struct tree_cursor cursor;
	struct tree_record *r = tree_first(&cursor, &l->state->contenders);
	uint64_t exclusives = 0;
	size_t fresh = 0;

	while (r)
		r = check_lock(l, &cursor, r, &exclusives);
	ASSERT(exclusives == l->exclusives.len);
	LIST_FOR_EACH(it, &l->fresh) {
		const struct fresh *f = CONTAINER_OF(it, struct fresh, link);
		struct slice prefix = slice_of(f->prefix, f->prefix_len);

		ASSERT(mapb_get(&l->fresh_by_lock, prefix) == f);
		ASSERT(lock_first(&l->state->contenders, prefix)); /* K5 */
		fresh++;
	}
	ASSERT(fresh == l->fresh_by_lock.len);
}

/* K1: the store's live keys, seen from their bytes alone, against the index. */
static void check_keys(const struct locks *l)
{
	struct tree_cursor cursor;
	uint64_t contenders = 0;

	for (struct tree_record *r = tree_first(&cursor, &l->state->keys); r; r = tree_next(&cursor)) {
		const struct key_record *k = (const struct key_record *)(const void *)r;
		const struct kv *kv = k->cap == 0 ? k->one : k->versions[k->len - 1];
		const struct contender *c;

		if (kv_is_tombstone(kv) || !lock_parse(kv_key(kv), kv->lease, NULL))
			continue;
		c = lock_find(l, kv);
		ASSERT(c && c->lease == kv->lease && c->create_revision == kv->create_revision);
		contenders++;
	}
	ASSERT(contenders == l->state->contenders.len);
}

void locks_check(const struct locks *l)
{
	tree_check(&l->state->contenders);
	tree_check(&l->exclusives);
	check_queues(l);
	check_keys(l);
}
