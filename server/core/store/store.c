/* store.c: the store's life, what it derives from the state, and its size.
 *
 * Derived and never part of a snapshot: the history, the deleted keys that are still remembered, sums of bytes. All of it is a function
 * of the records and of compact_revision: store_rebuild makes from a snapshot what the writes before it made.
 *
 *   (D1) `dead` holds exactly the keys whose newest version is a tombstone.
 *   (D2) the sums of bytes are sums over records and kept versions, by formula and not by what the allocator did, so that equal states
 *        are of equal size on every replica. */
#include "store_internal.h"

#include "base/mem.h"

static struct slice dead_key_key(const struct tree_record *tr)
{
	const struct dead_key *d = (const void *)tr;

	return slice_of(d->key, d->key_len);
}

static struct tree_record *dead_key_new(struct slice key)
{
	struct dead_key *d = mem_alloc(sizeof *d + key.len);

	*d = (struct dead_key){ .base.refs = 1, .key_len = (uint32_t)key.len };
	memcpy(d->key, key.ptr, key.len);
	return &d->base;
}

static struct tree_record *dead_key_clone(const struct tree_record *tr)
{
	return dead_key_new(dead_key_key(tr));
}

static void dead_key_free(struct tree_record *tr)
{
	free(tr);
}

static uint64_t dead_key_hash(const struct tree_record *tr)
{
	(void)tr;
	return 0;
}

/* Never in a snapshot, so it has no encoding. */
static const struct tree_type dead_key_type = {
	.key = dead_key_key,
	.clone = dead_key_clone,
	.free = dead_key_free,
	.hash = dead_key_hash,
};

static uint64_t dead_key_bytes(const struct key_record *r)
{
	return heap_bytes(sizeof(struct dead_key) + r->key_len) + 2 * sizeof(void *);
}

void store_dead_add(struct store *s, const struct key_record *r)
{
	s->record_bytes += dead_key_bytes(r);
	s->dead_bytes += dead_key_bytes(r) + key_record_bytes(r);
	tree_put_take(&s->dead, dead_key_new(key_record_key(r)));
}

void store_dead_remove(struct store *s, const struct key_record *r)
{
	bool was_there = tree_remove(&s->dead, key_record_key(r));

	ASSERT(was_there);
	s->record_bytes -= dead_key_bytes(r);
	s->dead_bytes -= dead_key_bytes(r) + key_record_bytes(r);
}

/* Everything that is derived from one record, but for the order of the history. */
static void derive(struct store *s, const struct key_record *r)
{
	const struct kv *last = key_record_last(r);

	for (uint32_t i = 0; i < r->len; i++) {
		struct kv *kv = key_record_at(r, i);

		s->version_bytes += kv_bytes(kv);
		if (kv->mod_revision >= s->st->compact_revision)
			history_push(&s->history, kv, i ? kv_live_or_null(key_record_at(r, i - 1)) : NULL);
	}
	s->record_bytes += key_record_bytes(r);
	if (kv_is_tombstone(last))
		store_dead_add(s, r);
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
	s->version_bytes = s->live_bytes = s->record_bytes = s->dead_bytes = 0;
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
	return s->version_bytes + s->record_bytes + history_entry_bytes(s);
}

uint64_t store_history_bytes(const struct store *s)
{
	return s->version_bytes - s->live_bytes + history_entry_bytes(s) + s->dead_bytes;
}
