/* compact.c: forgetting the past.
 *
 * After compaction at C a record keeps, of its versions:
 *   - all at C or above: they are the history that S3 promises, a tombstone at exactly C among them;
 *   - the newest below C, unless it is a tombstone or there is one at C: it is what a reader at C sees.
 * A record of which nothing is kept leaves the tree. What is kept depends on the versions and on C alone, and is dropped within this very
 * call, so replicas that applied the same log hold the same (P10).
 *
 * Only keys with an event at C or below can have something to drop; those are the events that leave the history, and the few at exactly C.
 * That holds for what an earlier compaction left, too: a tombstone that stayed at its exact C is still an event. */
#include "store_internal.h"

#include "base/mem.h"

/* How many of the oldest versions go. */
static uint32_t versions_to_drop(const struct key_record *r, revision at)
{
	uint32_t below = key_record_before(r, at);
	bool has_at = below < r->len && key_record_at(r, below)->mod_revision == at;

	if (below == 0 || has_at || kv_is_tombstone(key_record_at(r, below - 1)))
		return below;
	return below - 1;
}

static void compact_key(struct store *s, const struct kv *event, revision at)
{
	struct slice key = kv_key(event); /* the history's reference keeps it over all that follows */
	struct tree_record *tr = tree_get(&s->st->keys, key);
	uint32_t n;

	if (!tr)
		return; /* gone, on behalf of an earlier event */
	n = versions_to_drop(key_record_of(tr), at);
	if (n == 0)
		return;
	for (uint32_t i = 0; i < n; i++)
		s->version_bytes -= kv_bytes(key_record_at(key_record_of(tr), i));
	if (n == key_record_of(tr)->len) {
		store_dead_remove(s, key);
		tree_remove(&s->st->keys, key);
		return;
	}
	tr = tree_edit_begin(&s->st->keys, key);
	key_record_drop(key_record_of(tr), n);
	tree_edit_end(&s->st->keys, tr);
}

/* H2: what came before an event at exactly `at` is about to go, unless it is of that revision too. */
static void forget_prevs(struct history *h, uint64_t from, uint64_t to, revision at)
{
	for (uint64_t n = from; n < to; n++) {
		struct store_event *e = history_at(h, n);

		if (e->prev && e->prev->mod_revision < at)
			e->prev = NULL;
	}
}

enum err store_compact(struct store *s, revision at)
{
	struct history *h = &s->history;
	uint64_t first_kept, end;

	ASSERT(!s->in_txn);
	if (at < 0 || (at <= s->st->compact_revision && s->st->compact_revision != 0))
		return ERR_COMPACTED;
	if (at > s->st->revision)
		return ERR_FUTURE_REVISION;
	if (at == 0)
		return ERR_OK;
	s->st->compact_revision = at;
	first_kept = history_seek(h, at);
	end = at < INT64_MAX ? history_seek(h, at + 1) : h->end;
	forget_prevs(h, first_kept, end, at);
	for (uint64_t n = first_kept; n < end; n++)
		compact_key(s, history_at(h, n)->kv, at);
	while (h->begin < first_kept) {
		const struct kv *kv = history_at(h, h->begin)->kv;

		/* Held by the history alone: its key's record has been through this already. */
		if (kv->refs > 1)
			compact_key(s, kv, at);
		history_pop(h);
	}
	history_shrink(h);
	return ERR_OK;
}
