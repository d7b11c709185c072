/* read.c: keys at a revision, counts, and the hash that operators compare.
 *
 * A revision of 0 (or below, as etcd takes it) means now, the open transaction's own writes included. A positive one never shows them:
 * they carry the revision that the transaction will end with. Deleted keys that are still remembered are skipped everywhere. */
#include "store_internal.h"

#include "base/hash.h"
#include "base/mem.h"

const struct kv *store_get(const struct store *s, struct slice key, revision at)
{
	struct tree_record *r = tree_get(&s->st->keys, key);

	return r ? kv_live_or_null(key_record_find(key_record_of(r), at)) : NULL;
}

enum err store_check_revision(const struct store *s, revision at)
{
	if (at <= 0)
		return ERR_OK;
	if (at > store_txn_revision(s))
		return ERR_FUTURE_REVISION;
	return at < s->st->compact_revision ? ERR_COMPACTED : ERR_OK;
}

/* Where etcd's range ends: has_hi false, nowhere. */
static bool range_has_hi(struct slice end)
{
	return !(end.len == 1 && end.ptr[0] == 0);
}

void store_walk(const struct store *s, struct store_range r, bool (*fn)(void *ctx, const struct kv *kv), void *ctx)
{
	bool has_hi = range_has_hi(r.end);
	struct tree_cursor c;

	if (r.end.len == 0) {
		const struct kv *kv = store_get(s, r.key, r.at);

		if (kv)
			fn(ctx, kv);
		return;
	}
	for (struct tree_record *tr = tree_seek(&c, &s->st->keys, r.key); tr; tr = tree_next(&c)) {
		const struct key_record *kr = key_record_of(tr);
		const struct kv *kv;

		if (has_hi && slice_cmp(key_record_key(kr), r.end) >= 0)
			break;
		kv = kv_live_or_null(key_record_find(kr, r.at));
		if (kv && !fn(ctx, kv))
			break;
	}
}

static bool count_one(void *ctx, const struct kv *kv)
{
	(void)kv;
	++*(uint64_t *)ctx;
	return true;
}

/* From how many there were after an event to how many before. */
static void count_back(const struct kv *event, struct store_range r, bool has_hi, uint64_t *count)
{
	struct slice key = kv_key(event);

	if (event->version > 1 || slice_cmp(key, r.key) < 0 || (has_hi && slice_cmp(key, r.end) >= 0))
		return;
	if (kv_is_tombstone(event))
		++*count;
	else
		--*count;
}

/* What lives now is counted by the tree, less what is dead. What lived then follows from it and the events since, which are all there at
 * or above the compaction; clients that list page by page ask for a revision of a moment ago. */
uint64_t store_count(const struct store *s, struct store_range r)
{
	bool is_now = r.at <= 0 || r.at >= store_txn_revision(s), has_hi = range_has_hi(r.end);
	uint64_t count = 0, first;

	if (r.end.len > 0 && has_hi && slice_cmp(r.key, r.end) >= 0)
		return 0;
	first = is_now ? s->history.end : history_seek(&s->history, r.at + 1);
	if (r.end.len == 0 || (!is_now && r.at < s->st->compact_revision) || s->history.end - first > s->st->keys.len) {
		store_walk(s, r, count_one, &count);
		return count;
	}
	count = tree_count(&s->st->keys, r.key, r.end, has_hi) - tree_count(&s->dead, r.key, r.end, has_hi);
	for (uint64_t n = first; n < s->history.end; n++)
		count_back(history_at(&s->history, n)->kv, r, has_hi, &count);
	return count;
}

bool store_key_unchanged_since(const struct store *s, struct slice key, revision from)
{
	struct tree_record *r = tree_get(&s->st->keys, key);

	/* The newest version or tombstone that is kept is the key's newest event: compaction drops none without a newer one, except a
	 * tombstone below it, and then nothing is left of the key. */
	if (r)
		return key_record_last(key_record_of(r))->mod_revision < from;
	/* No trace: its newest event, if there ever was one, is a tombstone below the compaction, we cannot know how far below. */
	return from >= s->st->compact_revision;
}

static uint32_t hash_version(uint32_t crc, const struct kv *kv)
{
	struct kv_words words = kv_words(kv);

	crc = crc32c(crc, words.at, sizeof words.at);
	return crc32c(crc, kv->bytes, (size_t)kv->key_len + kv->value_len);
}

uint32_t store_hash_kv(const struct store *s, revision at)
{
	return store_hash_kv_view(s->st, at);
}

uint32_t store_hash_kv_view(const struct state *view, revision at)
{
	struct tree_cursor c;
	uint32_t crc = 0;

	for (struct tree_record *tr = tree_first(&c, &view->keys); tr; tr = tree_next(&c)) {
		const struct key_record *r = key_record_of(tr);

		for (uint32_t i = 0; i < r->len; i++) {
			const struct kv *kv = key_record_at(r, i);

			if (at > 0 && kv->mod_revision > at)
				break;
			crc = hash_version(crc, kv);
		}
	}
	return crc;
}
