/* node.h: the threads around one core: the core's own, the log's disk thread, the snapshot thread.
 *
 *   (N1) only the core's thread calls the core; other threads hand it events through one bounded inbox.
 *   (N2) an update's effects happen in the order of docs/architecture.md; a promise leaves only after its write is durable.
 *   (N3) log writes complete in the order in which they were taken.
 */
#ifndef HOLDFAST_NODE_H
#define HOLDFAST_NODE_H

#include "core/core.h"
#include "node/submit.h"
#include "storage/storage.h"

struct node_callbacks {
	void *ctx;
	/* On the core's thread; must not block. bytes is the receiver's. */
	void (*send)(void *ctx, member_id to, struct buf *bytes, bool bulk);
	/* The members' addresses may have changed (also once at start). state is lent for the call. */
	void (*members)(void *ctx, const struct state *state);
	/* The replica must stop: the line says why and what to do. Once; then the node takes no more calls. */
	void (*fatal)(void *ctx, const char *reason);
	/* A hold of the lock has ended, and this replica leads: see core/holds.c. name is lent for the call. May be NULL. */
	void (*hold_ended)(void *ctx, struct slice name, enum hold_end why, uint64_t held_ms);
};

struct node_config {
	struct core_config core;
	struct storage *storage;          /* borrowed; the node is the only user of its log */
	struct state *initial;            /* of a new cell (moved in), used when storage has no snapshot */
	struct node_callbacks callbacks;
	uint64_t slow_turn_ms;            /* a turn of the core's thread that takes longer is counted and logged; 0: never */
	size_t max_queued_calls;          /* in the inbox; above it ERR_OVERLOADED, but for as many again of those that are reserved */
	size_t max_queued_message_bytes;  /* of peers' messages in the inbox; above it they are dropped */
	size_t max_queued_stream_bytes;   /* of streams' messages in the inbox; above it ERR_OVERLOADED */
};

/* Loads snapshot and log. ERR_CORRUPT, ERR_IO ... with em. */
enum err node_new(const struct node_config *config, struct node **ret, struct errmsg *em);
void node_start(struct node *n);
/* A peer's message arrived: copied. False: dropped, the inbox is full. Any thread. */
bool node_message(struct node *n, struct slice bytes);
/* Called by a thread at the end of each burst of calls. From its first call on, what that thread hands in wakes the core's thread only here, so that a
 * burst costs one wake. */
void node_wake(struct node *n);
void node_peer_lost(struct node *n, member_id peer); /* any thread */
/* If this replica leads a cell of several, hands leadership over and waits until another leads, at most timeout_ms. Calls that are under way go on: what
 * was proposed here and is not committed is proposed anew to the new leader. Any thread but the core's. */
void node_hand_over(struct node *n, uint64_t timeout_ms);
/* Answers every open call with ERR_STOPPED, ends every stream, waits for the disk, joins the threads. */
void node_stop(struct node *n);
void node_free(struct node *n);
/* Since the core's thread last had a turn: it takes one at least each 50 ms. Any thread. */
uint64_t node_silence_ms(const struct node *n);
/* A full copy of the core's figures, as of the last batch; any thread. */
void node_status(struct node *n, struct core_status *ret);

#endif
