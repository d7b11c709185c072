/* store_check.c: the invariants as asserts, on a path of their own: everything is counted anew from the records.
 *
 * Slow (a look-up for each event), for tests; never called with a transaction open. */
#include "store_internal.h"

#include "base/mem.h"

struct sums {
	uint64_t versions, live, records, dead, events;
};

static void check_version(const struct store *s, const struct kv *kv, const struct kv *before)
{
	ASSERT(kv->refs > 0);
	ASSERT(kv->hash == kv_hash(kv));
	ASSERT(kv->mod_revision >= 1);
	ASSERT(kv->mod_revision <= s->st->revision);
	if (kv_is_tombstone(kv)) {
		ASSERT(kv->create_revision == 0);
		ASSERT(kv->lease == 0);
		ASSERT(kv->value_len == 0);
		ASSERT_IF(before, !kv_is_tombstone(before));
		return;
	}
	ASSERT(kv->version > 0);
	ASSERT(kv->create_revision >= 1);
	ASSERT(kv->create_revision <= kv->mod_revision);
	if (before && !kv_is_tombstone(before)) {
		ASSERT(kv->version == before->version + 1);
		ASSERT(kv->create_revision == before->create_revision);
	} else if (before || kv->version == 1) {
		ASSERT(kv->version == 1);
		ASSERT(kv->create_revision == kv->mod_revision);
	}
}

/* S2: at most one version below the compaction, and only one that a reader at it sees. */
static void check_kept(const struct key_record *r, revision compact_revision)
{
	uint32_t below = key_record_before(r, compact_revision);

	ASSERT(below <= 1);
	if (below == 0)
		return;
	ASSERT(!kv_is_tombstone(key_record_at(r, 0)));
	ASSERT_IF(r->len > 1, key_record_at(r, 1)->mod_revision != compact_revision);
}

static void check_record(const struct store *s, const struct key_record *r, struct sums *sums)
{
	const struct kv *before = NULL;
	uint64_t hash = 0;

	ASSERT(r->len >= 1);
	ASSERT(slice_eq(key_record_key(r), kv_key(key_record_at(r, 0))));
	ASSERT(r->cap == 0 ? r->len == 1 : r->len <= r->cap);
	for (uint32_t i = 0; i < r->len; i++) {
		const struct kv *kv = key_record_at(r, i);

		check_version(s, kv, before);
		if (before) {
			ASSERT(slice_eq(kv_key(kv), kv_key(before)));
			ASSERT(kv->mod_revision >= before->mod_revision);
			ASSERT_IF(kv->mod_revision == before->mod_revision, kv->sub > before->sub);
		}
		hash += kv->hash;
		sums->versions += kv_bytes(kv);
		sums->events += kv->mod_revision >= s->st->compact_revision;
		before = kv;
	}
	ASSERT(hash == r->hash);
	sums->records += key_record_bytes(r);
	check_kept(r, s->st->compact_revision);
	if (kv_is_tombstone(before)) {
		ASSERT(tree_get(&s->dead, key_record_key(r)));
		sums->dead++;
	} else {
		sums->live += kv_bytes(before);
	}
}

/* The entry's version is in its key's record, and what is before it there is its prev. */
static void check_event(const struct store *s, const struct store_event *e)
{
	const struct key_record *r = (const void *)tree_get(&s->st->keys, kv_key(e->kv));
	uint32_t i;

	ASSERT(r);
	for (i = key_record_before(r, e->kv->mod_revision); i < r->len; i++)
		if (key_record_at(r, i) == e->kv)
			break;
	ASSERT(i < r->len);
	ASSERT(e->prev == (i > 0 ? kv_live_or_null(key_record_at(r, i - 1)) : NULL));
}

static void check_history(const struct store *s)
{
	const struct kv *before = NULL;

	for (uint64_t n = s->history.begin; n < s->history.end; n++) {
		const struct store_event *e = history_at(&s->history, n);

		ASSERT(e->kv->mod_revision >= s->st->compact_revision);
		if (before && before->mod_revision == e->kv->mod_revision) {
			ASSERT(e->kv->sub == before->sub + 1);
		} else {
			ASSERT(e->kv->sub == 0);
			ASSERT_IF(before, e->kv->mod_revision > before->mod_revision);
		}
		check_event(s, e);
		before = e->kv;
	}
}

void store_check(const struct store *s)
{
	struct sums sums = { .versions = 0 };
	struct tree_cursor c;

	ASSERT(!s->in_txn);
	ASSERT(s->changes == 0);
	ASSERT(s->st->revision >= 1);
	ASSERT(s->st->compact_revision >= 0);
	ASSERT(s->st->compact_revision <= s->st->revision);
	tree_check(&s->st->keys);
	tree_check(&s->dead);
	for (struct tree_record *r = tree_first(&c, &s->st->keys); r; r = tree_next(&c))
		check_record(s, key_record_of(r), &sums);
	ASSERT(sums.versions == s->version_bytes);
	ASSERT(sums.live == s->live_bytes);
	ASSERT(sums.records <= s->record_bytes);
	ASSERT(s->record_bytes - sums.records <= s->dead_bytes);
	ASSERT_IF(s->dead.len == 0, s->record_bytes == sums.records);
	ASSERT_IF(s->dead.len == 0, s->dead_bytes == 0);
	ASSERT(sums.dead == s->dead.len);
	ASSERT(sums.events == s->history.end - s->history.begin);
	check_history(s);
}
