/* store.c: the store's life, what it derives from the state, and its size.
 *
 * Derived and never part of a snapshot: the history, the deleted keys that are still remembered, two sums of bytes. All of it is a function
 * of the records and of compact_revision: store_rebuild makes from a snapshot what the writes before it made.
 *
 *   (D1) `dead` holds exactly the keys whose newest version is a tombstone.
 *   (D2) version_bytes and live_bytes are sums over kept versions by kv_bytes(); sizes are counted by formula, not by what the allocator
 *        did, so that equal states are of equal size on every replica. */
#include "store_internal.h"

#include "base/mem.h"

/* A record with its share of the tree's nodes. */
#define RECORD_BYTES (sizeof(struct key_record) + 8 + 2 * sizeof(void *))
#define DEAD_BYTES (sizeof(struct dead_key) + 8 + 2 * sizeof(void *))

static struct slice dead_key_key(const struct tree_record *r)
{
	return kv_key(((const struct dead_key *)(const void *)r)->tombstone);
}

static struct tree_record *dead_key_new(struct kv *tombstone)
{
	struct dead_key *d = mem_alloc(sizeof *d);

	*d = (struct dead_key){ .base.refs = 1, .tombstone = kv_ref(tombstone) };
	return &d->base;
}

static struct tree_record *dead_key_clone(const struct tree_record *r)
{
	return dead_key_new(((const struct dead_key *)(const void *)r)->tombstone);
}

static void dead_key_free(struct tree_record *r)
{
	kv_unref(((struct dead_key *)(void *)r)->tombstone);
	free(r);
}

static uint64_t dead_key_hash(const struct tree_record *r)
{
	(void)r;
	return 0;
}

/* Never in a snapshot, so it has no encoding. */
static const struct tree_type dead_key_type = {
	.key = dead_key_key,
	.clone = dead_key_clone,
	.free = dead_key_free,
	.hash = dead_key_hash,
};

void store_dead_add(struct store *s, struct kv *tombstone)
{
	tree_put_take(&s->dead, dead_key_new(tombstone));
}

void store_dead_remove(struct store *s, struct slice key)
{
	bool was_there = tree_remove(&s->dead, key);

	ASSERT(was_there);
}

/* Everything that is derived from one record, but for the order of the history. */
static void derive(struct store *s, const struct key_record *r)
{
	struct kv *last = key_record_last(r);

	for (uint32_t i = 0; i < r->len; i++) {
		struct kv *kv = key_record_at(r, i);

		s->version_bytes += kv_bytes(kv);
		if (kv->mod_revision >= s->st->compact_revision)
			history_push(&s->history, kv, i ? kv_live_or_null(key_record_at(r, i - 1)) : NULL);
	}
	if (kv_is_tombstone(last))
		store_dead_add(s, last);
	else
		s->live_bytes += kv_bytes(last);
}

void store_rebuild(struct store *s)
{
	struct tree_cursor c;

	ASSERT(!s->in_txn);
	history_clear(&s->history);
	tree_deinit(&s->dead);
	tree_init(&s->dead, &dead_key_type);
	s->version_bytes = s->live_bytes = 0;
	for (struct tree_record *r = tree_first(&c, &s->st->keys); r; r = tree_next(&c))
		derive(s, key_record_of(r));
	history_sort(&s->history);
}

struct store *store_new(struct state *st)
{
	struct store *s = mem_zalloc(sizeof *s);

	s->st = st;
	tree_init(&s->dead, &dead_key_type);
	store_rebuild(s);
	return s;
}

void store_free(struct store *s)
{
	if (!s)
		return;
	history_deinit(&s->history);
	tree_deinit(&s->dead);
	free(s);
}

void store_on_change(struct store *s, store_change_fn fn, void *ctx)
{
	s->on_change = fn;
	s->on_change_ctx = ctx;
}

static uint64_t history_entry_bytes(const struct store *s)
{
	return (s->history.end - s->history.begin) * sizeof(struct store_event);
}

uint64_t store_bytes(const struct store *s)
{
	return s->version_bytes + history_entry_bytes(s) + s->st->keys.len * RECORD_BYTES + s->dead.len * DEAD_BYTES;
}

uint64_t store_history_bytes(const struct store *s)
{
	return s->version_bytes - s->live_bytes + history_entry_bytes(s) + s->dead.len * (RECORD_BYTES + DEAD_BYTES);
}
