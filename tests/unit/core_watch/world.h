/* world.h: a state with everything that changes it, watches over it, and clients that read their streams. */
#ifndef HOLDFAST_TEST_CORE_WATCH_WORLD_H
#define HOLDFAST_TEST_CORE_WATCH_WORLD_H

#include <check.h>

#include "core/lease/lease.h"
#include "core/watch/watch.h"

/* For inner loops: check's own asserts make a system call each, even when they hold. */
#define EXPECT(expr)                               \
	do {                                       \
		if (!(expr))                       \
			ck_abort_msg("%s", #expr); \
	} while (0)

struct world {
	struct state st;
	struct store *store;
	struct lessor *lessor;
	struct locks *locks;
	struct arena arena;
	struct kv_env env;
	struct watch_config config;
	struct watches *watches;
	time_ms now;
	uint64_t next_tag;
	uint64_t connection;    /* that streams come by which are opened from now on; 0: none is known */
	struct client *clients; /* newest first */
};

/* One end of a stream. */
struct client {
	struct client *next;
	struct world *world;
	uint64_t tag;
	bool observes;
	struct buf in;    /* messages that came, not shown yet */
	bool waiting;     /* an output came, and was not acknowledged */
	bool stalled;     /* does not acknowledge by itself */
	bool finished;
	enum err err;
	size_t outputs, largest;
};

void world_init(struct world *w);
void world_deinit(struct world *w);

/* ---- the state: one command each ---- */
void world_put(struct world *w, const char *key, const char *value);
void world_put_lease(struct world *w, const char *key, const char *value, lease_id lease);
void world_delete(struct world *w, const char *key, const char *end); /* end "": the one key; "0": all above */
void world_put_two(struct world *w, const char *key, const char *other); /* in one transaction */
void world_compact(struct world *w, revision at);
void world_lease(struct world *w, lease_id id);
void world_revoke(struct world *w, lease_id id);
/* The state is replaced by an equal one, as by a snapshot, that has been compacted at `at` (0: as it was) after `changes` ran on it. */
void world_install(struct world *w, revision at, void (*changes)(struct world *w));

/* ---- streams ---- */
struct client *world_watch(struct world *w);
struct client *world_observe(struct world *w, const char *name, bool vacancy);
/* What is due goes out, and comes back acknowledged (but not by who is stalled), until nothing moves. */
void world_run(struct world *w);
void world_take(struct world *w);     /* one take */
void client_ack(struct client *c);
void client_close(struct client *c);

struct watch_spec {
	const char *key, *end;   /* end "0": all keys from key on */
	revision from;
	int64_t id;
	bool prev_kv, progress, fragment, no_put, no_delete;
};
void client_create(struct client *c, struct watch_spec spec);
void client_cancel(struct client *c, int64_t id);
void client_progress(struct client *c);
void client_send(struct client *c, struct slice bytes);

/* Runs the world, then all that came, as text, and forgets it. One response after another, with a space between:
 *   "created 0@5"  "canceled 3@7"  "lost 2@9/8" (compact_revision 8)  "refused@5(reason)"  "progress -1@9"
 *   "0@6[a=1#6 -b#6]": events, as key=value#revision or -key#revision, with "<old" for a prev_kv; "+" after the bracket: a fragment
 *   of an observer: "leader a/1=x#5@6"  "vacant@7"
 * "end ERR_..." when the stream ended. Lent until the next call. */
const char *client_text(struct client *c);
const char *client_peek(struct client *c); /* the same without running */

#endif
