/* world.h: a state and a store over it, with short words for what tests do to them. */
#ifndef HOLDFAST_TEST_CORE_STORE_WORLD_H
#define HOLDFAST_TEST_CORE_STORE_WORLD_H

#include <check.h>

#include "core/store/store.h"

/* For inner loops: check's own asserts make a system call each, even when they hold. */
#define EXPECT(expr)                                       \
	do {                                               \
		if (!(expr))                               \
			ck_abort_msg("%s", #expr);         \
	} while (0)

struct world {
	struct state st;
	struct store *store;
};

void world_init(struct world *w);
void world_deinit(struct world *w); /* checks the invariants first */

/* Transactions of one operation. */
void world_put(struct world *w, const char *key, const char *value);
void world_put_lease(struct world *w, const char *key, const char *value, lease_id lease);
uint64_t world_delete(struct world *w, const char *key, const char *end); /* end "": the one key; "0": all above */

/* All that a reader sees, as "key=value" in order, with spaces between; end as above. Lent until the next call. */
const char *world_range(const struct world *w, const char *key, const char *end, revision at);
uint64_t world_count(const struct world *w, const char *key, const char *end, revision at);
/* Versions kept of a key, as "mod.sub/version" in order, a tombstone as "mod.sub/-". "" when there is no record. Lent. */
const char *world_kept(const struct world *w, const char *key);
/* Events from a revision on, as "mod.sub+key" or "mod.sub-key", each with "<prev's mod" when prev is told. Lent. */
const char *world_events(const struct world *w, revision from);

/* Every record encoded, one after the other, as a snapshot has them. */
struct buf tree_encode(const struct tree *t);
/* The state through its encoding and back, into a world of its own. */
void world_copy(const struct world *w, struct world *ret);
/* The same through store_rebuild: w's own state is replaced by what was decoded. */
void world_reload(struct world *w);
void ck_assert_same_state(const struct world *a, const struct world *b);

#endif
