/* lock.h: locks as an index over keys.
 *
 * A contender of lock N is a key `N/<lease>` (the lease in lowercase hex without leading zeros, as etcd's recipes write it, or in
 * decimal) that was created with that very lease; the name ends at the last '/'. Order is create_revision; lower is earlier.
 *
 *   (K1) state->contenders holds exactly the live keys that were created as contenders, each under (name, create_revision).
 *   (K2) a contender's lease never changes while it lives; a key that already existed never becomes one; no lock gets two contenders
 *        at one revision. lock_check_* refuse what would break this, before anything changes.
 *   (K3) held: an exclusive contender is held when it is first; a shared one when no exclusive one is before it.
 *   (K4) mode, call and bound are fixed by LOCK commands only; a contender created by a plain write is exclusive and waits for ever.
 */
#ifndef HOLDFAST_CORE_LOCK_H
#define HOLDFAST_CORE_LOCK_H

#include "core/store/store.h"

enum lock_mode { LOCK_EXCLUSIVE = 0, LOCK_SHARED = 1 };

struct call_id {
	uint64_t member, boot, call; /* all 0: none */
};

struct contender {
	struct tree_record base;
	uint32_t name_len, key_len, client_len, sort_len;
	lease_id lease;
	revision create_revision; /* the fencing token */
	uint8_t mode;             /* enum lock_mode */
	bool bounded;
	int64_t wait_ms;          /* bound of the latest call; only when bounded */
	struct call_id call;      /* the latest waiting call; all 0: none (a plain write) */
	int64_t since_unix_ms;    /* when it asked, by the proposer's wall clock; 0: unknown. For people only */
	uint8_t bytes[];          /* sort key (name length, name, create_revision, big-endian), key, client address; name lies within the sort key */
};
extern const struct tree_type contender_type;

struct slice contender_name(const struct contender *c);
struct slice contender_key(const struct contender *c);
struct slice contender_client(const struct contender *c);

struct locks; /* core's thread only */

struct locks *locks_new(struct state *st);
void locks_free(struct locks *l);
void locks_rebuild(struct locks *l); /* state was replaced */

/* Whether a key of these bytes, created with `lease`, is a contender; ret_name is lent by key. lease 0: never. */
bool lock_parse(struct slice key, lease_id lease, struct slice *ret_name);
void lock_key(struct slice name, lease_id lease, struct buf *ret_key); /* name + '/' + hex */

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
	int64_t wait_ms;
	struct call_id call;
	struct slice client;
	int64_t since_unix_ms;
};
void lock_next_attributes(struct locks *l, const struct lock_attributes *a); /* for the very next contender created; borrowed until then */
/* The same contender asks again: its latest call, bound and client change; mode and place do not. */
void lock_ask_again(struct locks *l, const struct contender *c, const struct lock_attributes *a);

bool lock_is_held(const struct locks *l, const struct contender *c);
/* Contenders of a lock in order. Pass NULL first; NULL at the end. Lent until the next change. */
const struct contender *lock_next(const struct locks *l, struct slice name, const struct contender *after);
const struct contender *lock_previous(const struct locks *l, const struct contender *c); /* NULL: c is first */
/* The contender at whose end c may become held: the one before it (shared: the last exclusive before it). NULL: held now. */
const struct contender *lock_waits_for(const struct locks *l, const struct contender *c);
uint64_t lock_waiters(const struct locks *l, struct slice name); /* contenders that are not held; cheap (kept per lock) */

/* Names whose holders may have changed since the last call, each once, in order of the changes; the caller then looks who is held
 * now. Lent until the next change. Exactly the contenders that became held are returned, once each. */
size_t lock_take_granted(struct locks *l, const struct contender **ret, size_t max);
void locks_check(const struct locks *l);

#endif
