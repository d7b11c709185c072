/* store_internal.h: what the files of the store share; nobody else includes it. */
#ifndef HOLDFAST_CORE_STORE_INTERNAL_H
#define HOLDFAST_CORE_STORE_INTERNAL_H

#include "core/store/store.h"

/* Events by absolute number, oldest first: number n lies at n % cap. Every entry holds one reference to its kv and none to its prev:
 * the key's record keeps prev for as long as the entry names it (see history.c). */
struct history {
	struct store_event *ring;
	uint64_t cap;        /* a power of two, or 0 */
	uint64_t begin, end; /* numbers held: [begin, end) */
};

struct store {
	struct state *st;
	struct history history;
	struct tree dead;       /* struct dead_key: every key whose current version is a tombstone, so that counting needs no walk */
	uint64_t version_bytes; /* of all versions kept */
	uint64_t live_bytes;    /* of those, the current ones of live keys */
	uint64_t record_bytes;  /* of all records, without their versions, and of `dead` */
	uint64_t dead_bytes;    /* of those, what belongs to dead keys */
	store_change_fn on_change;
	void *on_change_ctx;
	bool in_txn;
	uint32_t changes;       /* of the open transaction; the next one's sub */
};

/* ---- kv and key_record (key_record.c) ---- */

/* What a version says apart from its key and value. */
struct kv_spec {
	uint32_t sub;
	revision create_revision, mod_revision;
	int64_t version;
	lease_id lease;
};

struct kv *kv_new(struct slice key, struct slice value, struct kv_spec spec); /* one reference */
uint64_t kv_bytes(const struct kv *kv);             /* memory of one version, its place in the record included */
uint64_t key_record_bytes(const struct key_record *r); /* memory of the record without its versions, its place in the tree included */
uint64_t kv_hash(const struct kv *kv);              /* computes it from the contents */
/* All fields but the count and the hash, as the same bytes on every machine. */
struct kv_words {
	uint64_t at[6];
};
struct kv_words kv_words(const struct kv *kv);

struct key_record *key_record_new_take(struct kv *first);
void key_record_push_take(struct key_record *r, struct kv *kv);  /* kv is newer than all */
void key_record_drop(struct key_record *r, uint32_t n);          /* the n oldest; n < r->len */
uint32_t key_record_before(const struct key_record *r, revision rev); /* how many versions have mod_revision < rev */
/* The newest version at a revision (<= 0: now), be it a tombstone; NULL when there is none. */
struct kv *key_record_find(const struct key_record *r, revision at);

static inline struct kv *key_record_at(const struct key_record *r, uint32_t i)
{
	return r->cap ? r->versions[i] : r->one;
}

static inline struct kv *key_record_last(const struct key_record *r)
{
	return key_record_at(r, r->len - 1);
}

static inline struct slice key_record_key(const struct key_record *r)
{
	return (struct slice){ .ptr = r->key, .len = r->key_len };
}

static inline struct key_record *key_record_of(struct tree_record *r)
{
	return (struct key_record *)(void *)r;
}

void key_record_encode(const struct tree_record *r, struct buf *out); /* key_codec.c */
enum err key_record_decode(struct slice bytes, struct tree_record **ret);

/* ---- history.c ---- */
void history_clear(struct history *h); /* drops all; numbers go on from where they were */
void history_deinit(struct history *h);
void history_push(struct history *h, struct kv *kv, const struct kv *prev); /* takes a reference of its own */
void history_pop(struct history *h); /* drops the oldest */
void history_shrink(struct history *h);
void history_sort(struct history *h); /* by (revision, sub), after pushes in any order */
uint64_t history_seek(const struct history *h, revision from);

static inline struct store_event *history_at(const struct history *h, uint64_t number)
{
	return &h->ring[number & (h->cap - 1)];
}

/* ---- store.c ---- */
/* What the allocator takes: a word of its own, rounded up to 16. Counted by formula, not asked for, so that replicas agree. */
static inline uint64_t heap_bytes(uint64_t size)
{
	return (size + 8 + 15) & ~UINT64_C(15);
}

struct dead_key {
	struct tree_record base;
	uint32_t key_len;
	uint8_t key[];
};
void store_dead_add(struct store *s, const struct key_record *r);    /* r's newest version became a tombstone */
void store_dead_remove(struct store *s, const struct key_record *r); /* it no longer is, or r is about to go */

/* What an event tells as its prev: a live version, or nothing. */
static inline const struct kv *kv_live_or_null(const struct kv *kv)
{
	return kv && !kv_is_tombstone(kv) ? kv : NULL;
}

#endif
