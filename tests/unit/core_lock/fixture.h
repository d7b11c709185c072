/* fixture.h: keys in a real store with the index of contenders following them, as the kv module ties the two together. */
#ifndef HOLDFAST_TEST_CORE_LOCK_FIXTURE_H
#define HOLDFAST_TEST_CORE_LOCK_FIXTURE_H

#include "core/lock/lock.h"

struct fixture {
	struct state state;
	struct store *store;
	struct locks *locks;
	bool in_txn;
};

void fixture_init(struct fixture *f);
void fixture_deinit(struct fixture *f); /* checks everything first */

/* Between these two, all writes share one revision; outside, each has its own. */
void fixture_txn_begin(struct fixture *f);
void fixture_txn_end(struct fixture *f);

enum err fixture_put(struct fixture *f, struct slice key, lease_id lease); /* a plain write, refused where a lock says so */
bool fixture_delete(struct fixture *f, struct slice key);                  /* whether it was there */
/* What a Lock call does: makes the contender, or lets it ask again. ERR_LOCK_MODE_CHANGED. */
enum err fixture_lock(struct fixture *f, struct slice name, lease_id lease, const struct lock_attributes *a);
/* The call gives up: its contender goes if no later call asked again. Returns whether it went. */
bool fixture_abandon(struct fixture *f, struct slice key, struct call_id call);
const struct contender *fixture_find(struct fixture *f, struct slice key); /* NULL: no live key, or no contender */
/* The whole state goes through its encoding and back, as with a snapshot. */
void fixture_reload(struct fixture *f);

#endif
