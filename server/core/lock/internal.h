/* internal.h: what the files of lock/ share. */
#ifndef HOLDFAST_CORE_LOCK_INTERNAL_H
#define HOLDFAST_CORE_LOCK_INTERNAL_H

#include "lock.h"

#include "base/list.h"
#include "base/map.h"

struct locks {
	struct state *state;
	struct tree exclusives;  /* the exclusive ones of state->contenders: the same records, one more reference each */
	struct list fresh;       /* locks with new holders that nobody has taken, in order of their first change */
	struct mapb fresh_by_lock;
	const struct lock_attributes *next_attributes;
	struct buf *scratch;     /* for look-ups by const callers */
};

/* A lock's newest holders are those from revision `from` on. */
struct fresh {
	struct list link;
	revision from;
	uint32_t prefix_len;
	uint8_t prefix[];
};

/* A sort key is prefix + create_revision, where the prefix is the name's length and the name: all contenders of one lock lie side by
 * side in queue order, and no name is ever mixed with another, whatever bytes they are made of. */
enum { NAME_LEN_BYTES = 4, REVISION_BYTES = 8 };

static inline struct contender *contender_of(struct tree_record *r)
{
	return (struct contender *)(void *)r;
}

static inline struct slice contender_sort_key(const struct contender *c)
{
	return slice_of(c->bytes, c->sort_len);
}

static inline struct slice contender_prefix(const struct contender *c)
{
	return slice_of(c->bytes, c->sort_len - REVISION_BYTES);
}

/* One reference. `key` must parse with `lease`. */
struct contender *contender_new(struct slice key, lease_id lease, revision create_revision, const struct lock_attributes *a);
void lock_prefix(struct slice name, struct buf *out); /* appends */
void lock_append_revision(struct buf *out, revision rev);

/* A contender of the lock with this prefix, as a tree's cursor found it, or NULL. */
const struct contender *lock_in(struct tree_record *r, struct slice prefix);
const struct contender *lock_first(const struct tree *t, struct slice prefix);
revision lock_last(const struct locks *l, struct slice prefix); /* the last contender's create_revision; 0: nobody contends */
/* The create_revision of the last holder in the queue; 0 when nobody contends. All before it are holders, none after it is (K3). */
revision lock_last_held(const struct locks *l, struct slice prefix);
void lock_forget_fresh(struct locks *l);

#endif
