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

/* The key of an event at `at` or below. */
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
		store_dead_remove(s, key_record_of(tr));
		s->record_bytes -= key_record_bytes(key_record_of(tr));
		tree_remove(&s->st->keys, key);
		return;
	}
	tr = tree_edit_begin(&s->st->keys, key);
	key_record_drop(key_record_of(tr), n);
	tree_edit_end(&s->st->keys, tr);
}

/* An event at exactly `at` stays; what came before it goes, unless it is of that revision too. Must come before the drops below, so that
 * every prev that is looked at here still exists. */
static void settle_event_at(struct store *s, struct store_event *e, revision at)
{
	if (!e->prev || e->prev->mod_revision >= at)
		return;
	e->prev = NULL;
	compact_key(s, e->kv, at);
}

/* The oldest event is below `at`. A creation ends nothing but a tombstone, which is an event as well; an event that nobody but the history
 * holds has left its record on behalf of another: neither needs a look at the record. */
static void drop_event(struct store *s, revision at)
{
	const struct store_event *e = history_at(&s->history, s->history.begin);

	if (e->kv->refs > 1 && (e->prev || kv_is_tombstone(e->kv)))
		compact_key(s, e->kv, at);
	history_pop(&s->history);
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
	for (uint64_t n = first_kept; n < end; n++)
		settle_event_at(s, history_at(h, n), at);
	while (h->begin < first_kept)
		drop_event(s, at);
	history_shrink(h);
	return ERR_OK;
}

void store_raise(struct store *s, revision to)
{
	ASSERT(!s->in_txn);
	if (to > s->st->revision)
		s->st->revision = to;
}
