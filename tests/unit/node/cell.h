/* cell.h: real nodes on real disks, in one process, with a network that the test owns.
 *
 * One thread carries the messages; it may lose some. Whatever a replica promises is compared, as it leaves, with what its disk is known to hold. */
#ifndef HOLDFAST_TESTS_NODE_CELL_H
#define HOLDFAST_TESTS_NODE_CELL_H

#include <semaphore.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/rng.h"
#include "hooks.h"
#include "node/node.h"

#define CELL_MAX 3
#define WAIT_MS 60000 /* for what has to happen; only a test that fails waits so long */

struct cell_options {
	size_t replicas;
	uint32_t lost_per_million;
	uint32_t election_ms;     /* 0: 300 */
	uint64_t snapshot_count;  /* 0: 100000 */
	uint64_t snapshot_keep;
	uint64_t log_memory_bytes; /* 0: 64 MiB */
	size_t max_queued_calls;  /* 0: 100000 */
	size_t max_queued_message_bytes; /* 0: 64 MiB */
	size_t max_queued_stream_bytes;  /* 0: 64 MiB */
};

struct cell;
struct replica {
	struct cell *cell;
	size_t number;
	member_id id;
	char dir[96], url[64];
	struct hooks hooks;
	pthread_mutex_t life; /* guards node while messages come in */
	struct node *node;    /* NULL: down */
	_Atomic(struct core *) core; /* whose steps are whose */
	struct storage *storage;
	atomic_bool isolated;
	atomic_uint fatals;
	atomic_uint_fast64_t events[32]; /* by enum core_event_kind */
	atomic_uint_fast64_t gap_ms, sent, lows, highs;
	sem_t pass;             /* while blocked, a step of the core waits for it */
	atomic_bool blocked, stands;
	/* at the last stop */
	struct entry_id applied;
	uint64_t hash, content_hash; /* of all; of all but how far it is applied */
};

struct cell {
	struct cell_options o;
	char dir[48];
	uint64_t cell_id;
	struct replica replicas[CELL_MAX];
	pthread_t thread;
	pthread_mutex_t mu;
	pthread_cond_t wake;
	struct list messages; /* guarded by mu */
	bool stop;            /* guarded by mu */
	struct rng rng;       /* guarded by mu */
};

struct cell *cell_new(const struct cell_options *o); /* starts no replica */
struct cell *cell_started(const struct cell_options *o);
void cell_free(struct cell *c); /* stops what runs */
void cell_start(struct cell *c, size_t i);
void cell_stop(struct cell *c, size_t i); /* node_stop, and closes the storage */
void cell_isolate(struct cell *c, size_t i, bool on);
size_t cell_leader(struct cell *c);                   /* waits for one that serves */
size_t cell_leader_but(struct cell *c, size_t other); /* one that is not `other` */
void cell_wait_serving(struct cell *c, size_t i);
/* Waits until all that run have applied the same, stops them and asserts that their states are the same. */
void cell_stop_equal(struct cell *c);

/* A step of the core waits until block(false): its queue fills up meanwhile. */
void replica_block(struct replica *r, bool on);

void pause_ms(unsigned ms);
/* Polls; asserts that it comes true within WAIT_MS. */
#define WAIT_UNTIL(cond)                                           \
	do {                                                       \
		uint64_t wait_until = mono_ms() + WAIT_MS;         \
		while (!(cond)) {                                  \
			ck_assert_msg(mono_ms() < wait_until, "%s:%d: never: %s", __FILE__, __LINE__, #cond); \
			pause_ms(2);                               \
		}                                                  \
	} while (0)

#endif
