/* lock.h: locks as an index over keys.
 *
 * A contender of lock N is a key `N/<lease>` (the lease in lowercase hex without leading zeros, as etcd's recipes write it, or in
 * decimal) that was created with that very lease; the name ends at the last '/', and may be empty or any bytes. Order is create_revision;
 * lower is earlier.
 *
 *   (K1) state->contenders holds exactly the live keys that were created as contenders, each under (name, create_revision).
 *   (K2) a contender's lease never changes while it lives; a key that already existed never becomes one; no lock gets two contenders
 *        at one revision. lock_check_* refuse what would break this, before anything changes.
 *   (K3) held: an exclusive contender is held when it is first; a shared one when no exclusive one is before it. So the holders are
 *        always the first ones of the queue, and who has become a holder stays one for as long as it lives.
 *   (K4) mode, call and bound are fixed by LOCK commands only; a contender created by a plain write is exclusive and waits for ever.
 */
#ifndef HOLDFAST_CORE_LOCK_H
#define HOLDFAST_CORE_LOCK_H

#include "core/lock/call_id.h"
#include "core/store/store.h"

enum lock_mode { LOCK_EXCLUSIVE = 0, LOCK_SHARED = 1 };

/* A call that asks for a place. */
struct asker {
	struct call_id call;
	bool bounded;
	bool own_lease;  /* the place's lease was made for it: if it gives up, nobody is left who knows of that */
	int64_t wait_ms; /* only when bounded */
};
enum { LOCK_ASKERS_MAX = 4 }; /* of one place */

struct contender {
	struct tree_record base;
	uint32_t name_len, key_len, client_len, sort_len;
	lease_id lease;
	revision create_revision; /* the fencing token */
	uint8_t mode;             /* enum lock_mode */
	uint8_t others_len;       /* calls that ask beside the latest */
	uint8_t before_len;       /* calls that were taken over from, and have not given up: they may have been told of the hold */
	bool unlisted;            /* there is one more of these, and it is not listed */
	bool bounded, own_lease;  /* of the latest call, as in struct asker */
	int64_t wait_ms;
	struct call_id call;      /* the latest that asks; all 0: none (a plain write, or all have given up but some of those before) */
	struct call_id last;      /* the latest that ever asked, whether it has given up or not: who saw it was asked after all of them; all 0: a plain write */
	int64_t since_unix_ms;    /* when it first asked, by the proposer's wall clock; 0: unknown. For people only */
	/* sort key (name length, name, create_revision, big-endian), key, client address, the other askers, those before; the name lies within the sort key */
	uint8_t bytes[];
};
extern const struct tree_type contender_type;

struct slice contender_name(const struct contender *c);
struct slice contender_key(const struct contender *c);
struct slice contender_client(const struct contender *c);
size_t contender_askers(const struct contender *c, struct asker ret[LOCK_ASKERS_MAX]); /* the latest first; 0: a plain write */
bool contender_is_asked_by(const struct contender *c, struct call_id call);
enum { LOCK_BEFORE_MAX = 4 };
size_t contender_before(const struct contender *c, struct call_id ret[LOCK_BEFORE_MAX]); /* who came last first */
#define LOCK_CLIENT_MAX 256 /* a longer client address is cut */

struct locks; /* core's thread only */

struct locks *locks_new(struct state *st); /* st is borrowed; what it holds is taken up as by locks_rebuild */
void locks_free(struct locks *l);
/* State was replaced. Nothing counts as newly granted afterwards: who waits for a contender looks at it anew. */
void locks_rebuild(struct locks *l);

/* Whether a key of these bytes, created with `lease`, is a contender; ret_name (may be NULL) is lent by key. lease 0: never. Hex is of the
 * lease as an unsigned number; decimal only of a positive one. The key "/<lease>" contends for the lock of the empty name. */
bool lock_parse(struct slice key, lease_id lease, struct slice *ret_name);
void lock_key(struct slice name, lease_id lease, struct buf *ret_key); /* appends name + '/' + hex */

/* Before a put of `key` with `lease` (the final one, after ignore_lease): prev is its current live version or NULL.
 * ERR_CONTENDER_LEASE, ERR_CONTENDER_EXISTING_KEY. A put that leaves a contender's lease as it is passes. */
enum err lock_check_put(const struct locks *l, struct slice key, lease_id lease, const struct kv *prev);
/* The contender of a live key, or NULL. */
const struct contender *lock_find(const struct locks *l, const struct kv *kv);

/* After each change of a key (any order of keys; from store_on_change). Creations of contenders use the attributes set by
 * lock_next_attributes, if any, else K4's. */
void lock_changed(struct locks *l, const struct kv *prev, const struct kv *next);
struct lock_attributes {
	enum lock_mode mode;
	bool bounded;
	bool own_lease;
	int64_t wait_ms;
	struct call_id call;
	struct slice client;
	int64_t since_unix_ms;
	/* within lock/: */
	struct call_id last;
	const struct asker *others;
	size_t others_len;
	const struct call_id *before;
	size_t before_len;
	bool unlisted;
};
/* For the very next contender created; borrowed until then. NULL takes back what no creation has used. */
void lock_next_attributes(struct locks *l, const struct lock_attributes *a);
/* The same contender asks again: its latest call, bound and client change; mode, place and since do not (a->mode is not looked at: refuse
 * another mode before). Nobody who asked before asks any more; that they did is kept (before, unlisted). A change like any other: `c` is gone afterwards, and what is returned stands in
 * its place. */
const struct contender *lock_ask_again(struct locks *l, const struct contender *c, const struct lock_attributes *a);
/* The same, but those who ask still do; when there is no room, without the oldest of the same replica. NULL, and no change: that has none among them,
 * or a newer one. A call that asks already changes nothing. */
const struct contender *lock_ask_beside(struct locks *l, const struct contender *c, const struct lock_attributes *a);
/* A call that asks, or was taken over from, has given up. Who came last of the others that ask is the latest then. NULL, and no change: it is none of
 * these, or nobody is left that keeps the place: one that asks, or, when it is held, one that was taken over from. A change as above. */
const struct contender *lock_ask_no_more(struct locks *l, const struct contender *c, struct call_id call);

bool lock_is_held(const struct locks *l, const struct contender *c);
/* Contenders of a lock in order. Pass NULL first; NULL at the end. Lent until the next change. */
const struct contender *lock_next(const struct locks *l, struct slice name, const struct contender *after);
const struct contender *lock_previous(const struct locks *l, const struct contender *c); /* NULL: c is first */
/* The contender at whose end c may become held: the one before it (shared: the last exclusive before it). NULL: held now. */
const struct contender *lock_waits_for(const struct locks *l, const struct contender *c);
/* The contender with this token, or NULL. */
const struct contender *lock_by_token(const struct locks *l, struct slice name, revision token);
/* All contenders of locks whose names begin with prefix: shorter names first, then by their bytes, then in queue order. after: NULL first, then
 * the last one's sort key (contender_sort_key_view), whether that one is still there or not. NULL at the end. Lent until the next change. */
const struct contender *lock_next_by_prefix(const struct locks *l, struct slice prefix, struct slice after);
struct slice contender_sort_key_view(const struct contender *c);
uint64_t lock_waiters(const struct locks *l, struct slice name); /* contenders that are not held; O(log n) */

/* The contenders that became held since they were last taken, each exactly once: one that is held from its creation on, and those whom the
 * end of another let in. One that is gone again meanwhile is left out. Locks come in the order of their first such change, contenders of a
 * lock in queue order. Lent until the next change. Call again while max are returned. What nobody takes costs a few bytes a live lock. */
size_t lock_take_granted(struct locks *l, const struct contender **ret, size_t max);
void locks_check(const struct locks *l);

#endif
