/* lock_queue.c: who holds, who waits, and for whom. A few seeks each, however long the queue. */
#include "internal.h"

#include <endian.h>

#include "base/mem.h"

const struct contender *lock_in(struct tree_record *r, struct slice prefix)
{
	const struct contender *c = r ? contender_of(r) : NULL;

	return c && slice_eq(contender_prefix(c), prefix) ? c : NULL;
}

const struct contender *lock_first(const struct tree *t, struct slice prefix)
{
	struct tree_cursor cursor;

	return lock_in(tree_seek(&cursor, t, prefix), prefix);
}

static const struct contender *lock_before(const struct tree *t, const struct contender *c)
{
	struct tree_cursor cursor;

	return lock_in(tree_seek_before(&cursor, t, contender_sort_key(c)), contender_prefix(c));
}

/* Above all sort keys of the lock: a revision's first byte is at most 0x7f. Lent until the next use of scratch. */
static struct slice lock_end(const struct locks *l, struct slice prefix)
{
	buf_clear(l->scratch);
	buf_append_slice(l->scratch, prefix);
	buf_append_byte(l->scratch, 0xff);
	return buf_view(l->scratch);
}

revision lock_last(const struct locks *l, struct slice prefix)
{
	struct tree_cursor cursor;
	const struct contender *c = lock_in(tree_seek_before(&cursor, &l->state->contenders, lock_end(l, prefix)), prefix);

	return c ? c->create_revision : 0;
}

revision lock_last_held(const struct locks *l, struct slice prefix)
{
	const struct contender *exclusive = lock_first(&l->exclusives, prefix), *shared;

	if (!exclusive)
		return lock_last(l, prefix); /* all are shared, and hold */
	shared = lock_before(&l->state->contenders, exclusive);
	return shared ? shared->create_revision : exclusive->create_revision;
}

bool lock_is_held(const struct locks *l, const struct contender *c)
{
	return !lock_waits_for(l, c);
}

const struct contender *lock_waits_for(const struct locks *l, const struct contender *c)
{
	return lock_before(c->mode == LOCK_SHARED ? &l->exclusives : &l->state->contenders, c);
}

const struct contender *lock_previous(const struct locks *l, const struct contender *c)
{
	return lock_before(&l->state->contenders, c);
}

const struct contender *lock_next(const struct locks *l, struct slice name, const struct contender *after)
{
	struct tree_cursor cursor;

	if (!after) {
		buf_clear(l->scratch);
		lock_prefix(name, l->scratch);
		return lock_first(&l->state->contenders, buf_view(l->scratch));
	}
	if (!tree_seek(&cursor, &l->state->contenders, contender_sort_key(after)))
		return NULL;
	return lock_in(tree_next(&cursor), contender_prefix(after));
}

uint64_t lock_waiters(const struct locks *l, struct slice name)
{
	const struct contender *first = lock_next(l, name, NULL);
	struct buf from = { 0 };
	uint64_t n;

	if (!first)
		return 0;
	buf_append_slice(&from, contender_prefix(first));
	lock_append_revision(&from, lock_last_held(l, contender_prefix(first)) + 1);
	n = tree_count(&l->state->contenders, buf_view(&from), lock_end(l, contender_prefix(first)), true);
	buf_free(&from);
	return n;
}

const struct contender *lock_find(const struct locks *l, const struct kv *kv)
{
	struct slice name;
	const struct contender *c;

	if (kv_is_tombstone(kv) || !lock_parse(kv_key(kv), kv->lease, &name))
		return NULL;
	buf_clear(l->scratch);
	lock_prefix(name, l->scratch);
	lock_append_revision(l->scratch, kv->create_revision);
	c = contender_of(tree_get(&l->state->contenders, buf_view(l->scratch)));
	return c && slice_eq(contender_key(c), kv_key(kv)) ? c : NULL;
}

enum err lock_check_put(const struct locks *l, struct slice key, lease_id lease, const struct kv *prev)
{
	if (!prev || kv_is_tombstone(prev))
		return ERR_OK;
	if (lock_find(l, prev))
		return lease == prev->lease ? ERR_OK : ERR_CONTENDER_LEASE;
	return lock_parse(key, lease, NULL) ? ERR_CONTENDER_EXISTING_KEY : ERR_OK;
}

/* ---- for who looks at many ---- */

const struct contender *lock_by_token(const struct locks *l, struct slice name, revision token)
{
	struct tree_record *r;

	buf_clear(l->scratch);
	lock_prefix(name, l->scratch);
	lock_append_revision(l->scratch, token);
	r = tree_get(&l->state->contenders, buf_view(l->scratch));
	return r ? contender_of(r) : NULL;
}

struct slice contender_sort_key_view(const struct contender *c)
{
	return contender_sort_key(c);
}

/* Names of one length lie together (the sort key begins with it), so of each length there is a stretch that may have the prefix: one seek a
 * length that occurs. */
const struct contender *lock_next_by_prefix(const struct locks *l, struct slice prefix, struct slice after)
{
	struct tree_cursor cursor;
	struct tree_record *r;
	uint32_t len = (uint32_t)prefix.len;

	buf_clear(l->scratch);
	if (after.len > 0) {
		buf_append_slice(l->scratch, after);
		buf_append_byte(l->scratch, 0); /* the least key above it */
	} else {
		lock_prefix(prefix, l->scratch);
	}
	while ((r = tree_seek(&cursor, &l->state->contenders, buf_view(l->scratch)))) {
		const struct contender *c = contender_of(r);
		struct slice name = contender_name(c);
		uint32_t be;

		if (slice_starts_with(name, prefix))
			return c;
		/* Before the stretch of its length: go to it. Behind it: to that of the next length. */
		len = c->name_len;
		if (len < prefix.len)
			len = (uint32_t)prefix.len;
		else if (slice_cmp(name, prefix) > 0)
			len++;
		be = htobe32(len);
		buf_clear(l->scratch);
		buf_append(l->scratch, &be, sizeof(be));
		buf_append_slice(l->scratch, prefix);
	}
	return NULL;
}
