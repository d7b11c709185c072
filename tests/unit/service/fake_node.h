/* fake_node.h: a node for tests: answers like one, on a thread of its own, without a core.
 *
 *   Put              an empty PutResponse; key "err": fails with the error whose number is the value
 *   Range            a RangeResponse whose one value has limit bytes
 *   RangeStream      of 10 keys "0" to "9" those at or after the key, at most 3 in a part; at revision 7, or as asked; at revision 9: ERR_COMPACTED
 *                    after the first part
 *   Lock, Campaign   wait until fake_node_grant() or a cancel; wait_ms 0: ERR_LOCK_HELD with details "refused"
 *   LeaseKeepAlive   TTL 7; lease 404: ERR_LEASE_NOT_FOUND; lease 500: ERR_NO_LEADER
 *   Watch            each create request is answered by one "created"; key "flood": then 10 events of 1000 bytes for every writable, for ever
 *   Observe          one reply at once; then silence; name "end": ends with ERR_ELECTION_NO_LEADER
 *   anything else    an empty reply
 */
#ifndef HOLDFAST_TESTS_FAKE_NODE_H
#define HOLDFAST_TESTS_FAKE_NODE_H

#include <stdint.h>

#include "node/submit.h"

struct fake_figures {
	uint64_t calls, cancels, waiting;   /* calls taken; cancels heard; calls held or waiting now */
	uint64_t streams, opened, outputs;  /* open now; ever; outputs given */
	uint64_t messages;                  /* on streams */
	uint64_t most_held;                 /* the most calls there were at once */
	char client[64];                    /* of the last call */
	int64_t session;
	uint64_t request_id, first_unanswered;
};

struct node *fake_node_new(void);
void fake_node_free(struct node *n);                  /* answers what is open with ERR_STOPPED first */
void fake_node_hold(struct node *n, bool hold);       /* while held, nothing is answered but cancels; then in the order given by reverse */
void fake_node_reverse(struct node *n, bool reverse); /* answers what was held last first */
void fake_node_grant(struct node *n);                 /* everybody who waits gets the lock */
void fake_node_refuse(struct node *n, enum err e);    /* node_submit and node_stream_open say e; ERR_OVERLOADED: node_stream_message, too */
void fake_node_refuse_load(struct node *n, bool on);  /* node_refuses says so of writes that are not reserved */
void fake_node_set_leaderless(struct node *n, uint64_t ms); /* 0: there is a leader */
struct fake_figures fake_node_figures(struct node *n);

#endif
