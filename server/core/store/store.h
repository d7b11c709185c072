/* store.h: keys and their versions by revision, exactly as etcd counts them.
 *
 * The replicated part is state->keys; the history (events by revision) is derived from it and kept beside it.
 *
 *   (S1) state->revision rises by one for each transaction that changed something, and never falls.
 *   (S2) of every key, the versions kept are those a reader at any revision in [compact_revision, revision] may need, and a
 *        tombstone at exactly compact_revision (a watch may start there).
 *   (S3) the history holds every event with revision >= max(compact_revision, 1), in (revision, sub) order.
 *   (S4) a transaction that fails has changed nothing: everything that can fail is checked before the first change.
 */
#ifndef HOLDFAST_CORE_STORE_H
#define HOLDFAST_CORE_STORE_H

#include "core/state.h"

/* One version of one key. Immutable, shared by count (core's thread only) between the key's record and the history. */
struct kv {
	uint32_t refs;
	uint32_t sub;       /* order within its revision, from 0 */
	uint32_t key_len, value_len;
	revision create_revision, mod_revision; /* of a tombstone: create_revision 0, as etcd tells it */
	int64_t version;    /* writes since creation; 0: a tombstone */
	lease_id lease;     /* 0: none */
	uint64_t hash;
	uint8_t bytes[];    /* key, then value */
};

static inline struct slice kv_key(const struct kv *kv)
{
	return (struct slice){ .ptr = kv->bytes, .len = kv->key_len };
}

static inline struct slice kv_value(const struct kv *kv)
{
	return (struct slice){ .ptr = kv->bytes + kv->key_len, .len = kv->value_len };
}

static inline bool kv_is_tombstone(const struct kv *kv)
{
	return kv->version == 0;
}

struct kv *kv_ref(struct kv *kv);
void kv_unref(struct kv *kv);

/* A key with its versions, oldest first; the last is the current one (a tombstone when the key is deleted but remembered). */
struct key_record {
	struct tree_record base;
	uint32_t len, cap;
	uint32_t key_len;
	uint64_t hash; /* sum over versions */
	union {
		struct kv *one;       /* the only version, when cap == 0 */
		struct kv **versions; /* else */
	};
	uint8_t key[];        /* a copy of its own: a search in the tree then touches records alone */
};

extern const struct tree_type key_record_type;

struct store; /* core's thread only */

struct store *store_new(struct state *st);  /* st is borrowed, and its keys tree initialised by the caller of state_init */
void store_free(struct store *s);
/* After state was replaced by a snapshot's: derives the history anew. Its events get new numbers, above all that were given before. */
void store_rebuild(struct store *s);

/* ---- reading ---- */
struct store_range {
	struct slice key, end; /* end: empty = the one key; one zero byte = all keys >= key; else exclusive */
	revision at;           /* 0 (or below, as etcd takes it): now, the open transaction's own writes included */
};
/* The version of `key` at a revision (0: now): lent; NULL when there is none or it is deleted. No check against compaction. */
const struct kv *store_get(const struct store *s, struct slice key, revision at);
/* ERR_COMPACTED when at < compact_revision (and at > 0), ERR_FUTURE_REVISION when at > store_txn_revision. */
enum err store_check_revision(const struct store *s, revision at);
/* Calls fn for every live key of the range in key order until fn returns false. fn must not change the store. */
void store_walk(const struct store *s, struct store_range r, bool (*fn)(void *ctx, const struct kv *kv), void *ctx);
uint64_t store_count(const struct store *s, struct store_range r); /* now: O(log n); then: and the events since, or a walk */

/* ---- writing: one transaction at a time ---- */
/* Called for every change, once it is done, in order; prev and next lent for the call; next is a tombstone for a delete; prev NULL for a new
 * key (or one that was deleted before). The listener may read the store, not change it. */
typedef void (*store_change_fn)(void *ctx, const struct kv *prev, const struct kv *next);
void store_on_change(struct store *s, store_change_fn fn, void *ctx); /* one listener: the kv module */

void store_txn_begin(struct store *s);
/* Always succeeds. ret_prev (may be NULL): the version before, lent until store_txn_end; NULL when there was none. */
void store_put(struct store *s, struct slice key, struct slice value, lease_id lease, const struct kv **ret_prev);
/* Deletes every live key of [key, end) in key order; fn (may be NULL) is called with each version right before it is deleted, and must not
 * change the store; it is lent until store_txn_end. Returns how many. */
uint64_t store_delete_range(struct store *s, struct slice key, struct slice end, void (*fn)(void *ctx, const struct kv *prev), void *ctx);
/* The revision that a read inside the transaction reports: state->revision, plus 1 once something has changed. */
revision store_txn_revision(const struct store *s);
/* Ends it. state->revision is raised when something changed. Returns whether. */
bool store_txn_end(struct store *s);

/* The revision becomes at least `to`, without an event: for a cell made from a backup. Not inside a transaction. */
void store_raise(struct store *s, revision to);

/* ---- compaction ---- */
/* ERR_COMPACTED when at <= compact_revision (unless both are 0: nothing to do), ERR_FUTURE_REVISION; else history below `at` is gone, all
 * of it when this returns. Work is proportional to the events dropped and to those at exactly `at`: whoever compacts much does it in steps
 * (store_history_at of a number some way up tells a revision to compact at). Not inside a transaction. */
enum err store_compact(struct store *s, revision at);

/* ---- history ---- */
/* Events in order, under absolute numbers that rise by one from event to event and stay with them until compaction drops them (the numbers
 * below are then gone) or store_rebuild. A cursor that outlives either starts again by revision. */
struct store_event {
	const struct kv *kv;   /* the new version, or the tombstone */
	const struct kv *prev; /* the version before it, when it is still kept; NULL otherwise (a creation, or compacted) */
};
uint64_t store_history_begin(const struct store *s, revision from); /* the number of the first event held with revision >= from; else the end */
uint64_t store_history_end(const struct store *s);                  /* one past the newest event's number */
struct store_event store_history_at(const struct store *s, uint64_t number);
/* Whether `key` certainly has no event in [from, now], though from is below the compaction: its current version is older than from and
 * no tombstone could have been dropped between (a watch of one key may then be served). */
bool store_key_unchanged_since(const struct store *s, struct slice key, revision from);

/* ---- size and proof ---- */
uint64_t store_bytes(const struct store *s);         /* memory of keys, values and their bookkeeping */
uint64_t store_history_bytes(const struct store *s); /* of that, what compaction to now would free, and what the newest revision keeps of it */
/* HashKV: over every kept version with mod_revision <= at (0: all), in key order: also those below compact_revision, which a reader at
 * it still sees. Comparable between replicas whose compact_revision is the same. Reads every byte, about 90 ms for 100 MB: better done on a view,
 * by any thread. */
uint32_t store_hash_kv(const struct store *s, revision at);
uint32_t store_hash_kv_view(const struct state *view, revision at);
void store_check(const struct store *s);             /* asserts S1–S3; for tests, slow */

#endif
