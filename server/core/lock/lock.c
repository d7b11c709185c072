/* lock.c: the index of contenders follows the keys.
 *
 * Every change of a key comes by here. Two trees are kept: all contenders (replicated) and, of these, the exclusive ones (derived, the very
 * same records). Queue questions are then a seek or two in one of them (lock_queue.c), and so is noticing new holders: by K3 the
 * holders are the first ones of the queue, up to some revision; whatever change moves that revision up has let in those between.
 *   (K5) a lock lies in `fresh` when it has holders that nobody has taken: those from fresh.from on. It has contenders then.
 *   (K6) `exclusives` holds exactly the exclusive records of state->contenders, by reference. */
#include "internal.h"

#include "base/mem.h"

/* ---- new holders ---- */

static void fresh_drop(struct locks *l, struct fresh *f)
{
	ASSERT(mapb_remove(&l->fresh_by_lock, slice_of(f->prefix, f->prefix_len)) == f);
	list_remove(&f->link);
	free(f);
}

static void fresh_add(struct locks *l, struct slice prefix, revision from)
{
	struct fresh *f;

	if (mapb_get(&l->fresh_by_lock, prefix))
		return; /* it goes back further already */
	f = mem_alloc(sizeof(*f) + prefix.len);
	f->from = from;
	f->prefix_len = (uint32_t)prefix.len;
	memcpy(f->prefix, prefix.ptr, prefix.len);
	mapb_put(&l->fresh_by_lock, prefix, f);
	list_push_back(&l->fresh, &f->link);
}

/* After a contender has gone: `before` was the last holder while it was there. */
static void lock_note_holders(struct locks *l, struct slice prefix, revision before)
{
	revision after = lock_last_held(l, prefix);
	struct fresh *f;

	if (after > before)
		fresh_add(l, prefix, before + 1);
	if (after == 0 && (f = mapb_get(&l->fresh_by_lock, prefix)))
		fresh_drop(l, f);
}

void lock_forget_fresh(struct locks *l)
{
	struct list *n;

	while ((n = list_pop_front(&l->fresh)))
		free(CONTAINER_OF(n, struct fresh, link));
	mapb_deinit(&l->fresh_by_lock);
}

size_t lock_take_granted(struct locks *l, const struct contender **ret, size_t max)
{
	size_t n = 0;

	while (n < max && !list_empty(&l->fresh)) {
		struct fresh *f = CONTAINER_OF(l->fresh.next, struct fresh, link);
		struct slice prefix = slice_of(f->prefix, f->prefix_len);
		revision last = lock_last_held(l, prefix);
		const struct contender *c;
		struct tree_cursor cursor;

		buf_clear(l->scratch);
		buf_append_slice(l->scratch, prefix);
		lock_append_revision(l->scratch, f->from);
		c = lock_in(tree_seek(&cursor, &l->state->contenders, buf_view(l->scratch)), prefix);
		while (n < max && c && c->create_revision <= last) {
			ret[n++] = c;
			f->from = c->create_revision + 1;
			c = lock_in(tree_next(&cursor), prefix);
		}
		if (!c || c->create_revision > last)
			fresh_drop(l, f);
	}
	return n;
}

/* ---- following the keys ---- */

static void lock_put(struct locks *l, struct contender *c)
{
	if (c->mode == LOCK_EXCLUSIVE) {
		c->base.refs++;
		tree_put_take(&l->exclusives, &c->base);
	}
	tree_put_take(&l->state->contenders, &c->base);
}

static void lock_created(struct locks *l, const struct kv *kv)
{
	struct lock_attributes a = l->next_attributes ? *l->next_attributes : (struct lock_attributes){ .mode = LOCK_EXCLUSIVE }; /* K4 */
	struct contender *c;

	a.last = a.call;
	c = contender_new(kv_key(kv), kv->lease, kv->create_revision, &a);
	l->next_attributes = NULL;
	/* Revisions rise, and no lock gets two contenders at one (K2): the newcomer is the last of its queue, and lets nobody else in. */
	ASSERT(lock_last(l, contender_prefix(c)) < c->create_revision);
	lock_put(l, c);
	if (lock_is_held(l, c))
		fresh_add(l, contender_prefix(c), c->create_revision);
}

static void lock_ended(struct locks *l, const struct contender *gone)
{
	/* A reference of our own: the bytes are needed after the trees have let go of it. */
	struct contender *c = contender_of(tree_get(&l->state->contenders, contender_sort_key(gone)));
	revision before = lock_last_held(l, contender_prefix(c));

	c->base.refs++;
	if (c->mode == LOCK_EXCLUSIVE)
		ASSERT(tree_remove(&l->exclusives, contender_sort_key(c)));
	ASSERT(tree_remove(&l->state->contenders, contender_sort_key(c)));
	lock_note_holders(l, contender_prefix(c), before);
	if (--c->base.refs == 0)
		contender_type.free(&c->base);
}

void lock_changed(struct locks *l, const struct kv *prev, const struct kv *next)
{
	bool was = prev && !kv_is_tombstone(prev);
	const struct contender *c = was ? lock_find(l, prev) : NULL;

	if (kv_is_tombstone(next)) {
		if (c)
			lock_ended(l, c);
	} else if (!was) {
		if (lock_parse(kv_key(next), next->lease, NULL))
			lock_created(l, next);
	} else if (c) {
		ASSERT(next->lease == c->lease); /* lock_check_put was asked before */
		ASSERT(next->create_revision == c->create_revision);
	} else {
		ASSERT(!lock_parse(kv_key(next), next->lease, NULL));
	}
}

void lock_next_attributes(struct locks *l, const struct lock_attributes *a)
{
	l->next_attributes = a;
}

/* ---- asking again ---- */

/* The record with these attributes, all but mode and since. */
static const struct contender *lock_replace(struct locks *l, const struct contender *c, struct lock_attributes now)
{
	struct contender *again;

	now.mode = (enum lock_mode)c->mode;
	now.since_unix_ms = c->since_unix_ms;
	again = contender_new(contender_key(c), c->lease, c->create_revision, &now);
	lock_put(l, again);
	return again;
}

/* One of the askers less. */
static size_t without(struct asker *askers, size_t n, size_t i)
{
	memmove(&askers[i], &askers[i + 1], (n - i - 1) * sizeof(*askers));
	return n - 1;
}

const struct contender *lock_ask_again(struct locks *l, const struct contender *c, const struct lock_attributes *a)
{
	struct lock_attributes now = *a;
	struct asker askers[LOCK_ASKERS_MAX];
	struct call_id before[LOCK_ASKERS_MAX + LOCK_BEFORE_MAX];
	size_t n = contender_askers(c, askers), len = 0;

	for (size_t i = 0; i < n; i++)
		if (!call_id_eq(askers[i].call, a->call))
			before[len++] = askers[i].call;
	now.unlisted = c->unlisted || (n == 0 && c->before_len == 0); /* who wrote it plainly knows of it */
	len += contender_before(c, &before[len]);
	if (len > LOCK_BEFORE_MAX) {
		len = LOCK_BEFORE_MAX;
		now.unlisted = true;
	}
	now.last = a->call;
	now.before = before;
	now.before_len = len;
	return lock_replace(l, c, now);
}

const struct contender *lock_ask_beside(struct locks *l, const struct contender *c, const struct lock_attributes *a)
{
	struct lock_attributes now = *a;
	struct asker askers[LOCK_ASKERS_MAX];
	struct call_id before[LOCK_BEFORE_MAX];
	size_t n = contender_askers(c, askers), oldest = n;

	now.last = a->call;
	now.before = before;
	now.before_len = contender_before(c, before);
	now.unlisted = c->unlisted;
	for (size_t i = 0; i < n; i++) {
		if (call_id_eq(askers[i].call, a->call))
			return c;
		if (askers[i].call.member != a->call.member)
			continue;
		if (call_id_older(a->call, askers[i].call))
			return NULL;
		oldest = i;
	}
	if (n == LOCK_ASKERS_MAX && oldest == n)
		return NULL;
	if (n == LOCK_ASKERS_MAX) {
		n = without(askers, n, oldest);
		now.unlisted = true;
	}
	now.others = askers;
	now.others_len = n;
	return lock_replace(l, c, now);
}

const struct contender *lock_ask_no_more(struct locks *l, const struct contender *c, struct call_id call)
{
	struct asker askers[LOCK_ASKERS_MAX] = { 0 };
	struct call_id before[LOCK_BEFORE_MAX];
	size_t n = contender_askers(c, askers), len = contender_before(c, before), was = n + len;

	for (size_t i = n; i-- > 0;)
		if (call_id_eq(askers[i].call, call))
			n = without(askers, n, i);
	for (size_t i = len; i-- > 0;)
		if (call_id_eq(before[i], call))
			memmove(&before[i], &before[i + 1], (--len - i) * sizeof(*before));
	if (n + len == was || (n == 0 && (len == 0 || !lock_is_held(l, c))))
		return NULL;
	if (n == 0)
		askers[0] = (struct asker){ 0 };
	return lock_replace(l, c, (struct lock_attributes){
		.bounded = askers[0].bounded,
		.own_lease = askers[0].own_lease,
		.wait_ms = askers[0].wait_ms,
		.call = askers[0].call,
		.last = c->last,
		.client = contender_client(c),
		.others = &askers[1],
		.others_len = n ? n - 1 : 0,
		.before = before,
		.before_len = len,
		.unlisted = c->unlisted,
	});
}

/* ---- life ---- */

void locks_rebuild(struct locks *l)
{
	struct tree_cursor cursor;

	lock_forget_fresh(l);
	l->fresh_by_lock = (struct mapb){ 0 };
	l->next_attributes = NULL;
	tree_deinit(&l->exclusives);
	tree_init(&l->exclusives, &contender_type);
	for (struct tree_record *r = tree_first(&cursor, &l->state->contenders); r; r = tree_next(&cursor)) {
		if (contender_of(r)->mode == LOCK_EXCLUSIVE) {
			r->refs++;
			tree_put_take(&l->exclusives, r);
		}
	}
}

struct locks *locks_new(struct state *st)
{
	struct locks *l = mem_zalloc(sizeof(*l));

	l->state = st;
	l->scratch = mem_zalloc(sizeof(*l->scratch));
	list_init(&l->fresh);
	tree_init(&l->exclusives, &contender_type);
	locks_rebuild(l);
	return l;
}

void locks_free(struct locks *l)
{
	if (!l)
		return;
	lock_forget_fresh(l);
	tree_deinit(&l->exclusives);
	buf_free(l->scratch);
	free(l->scratch);
	free(l);
}
