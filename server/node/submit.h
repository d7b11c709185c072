/* submit.h: the one way into the node: calls and streams from front ends, answers back.
 *
 * Front-end threads submit; the core's thread answers. Nothing here blocks: a full queue refuses with ERR_OVERLOADED, but takes what ends or closes something.
 *
 * Life of a call: the front end fills a struct submit_call (embedded in its own), submits it, and owns it no more until done() has been called:
 * exactly once, on the core's thread, also after node_cancel and when the node stops. done() must not block: it posts to its own thread.
 */
#ifndef HOLDFAST_NODE_SUBMIT_H
#define HOLDFAST_NODE_SUBMIT_H

#include "base/buf.h"
#include "base/list.h"
#include "core/caller.h"
#include "core/types.h"
#include "methods.h"

struct node;

struct submit_call {
	/* set by the submitter; bytes and client must live until done() */
	enum method_id method;
	struct slice bytes;   /* packed request that passed the service's checks */
	struct slice client;  /* address of the caller, for people */
	lease_id session;
	uint64_t request_id, first_unanswered;
	struct caller caller; /* its slices live as long as bytes */
	bool ask, assign;     /* see struct core_request */
	struct buf user;      /* set before done() where caller.wanted: whose call it was, if that is known; the submitter's */
	/* reply is taken from (buf_take) or freed by the receiver. details: packed holdfast.v1 message, or empty. */
	void (*done)(struct submit_call *call, enum err err, struct buf *reply, struct buf *details);
	/* node's own */
	uint64_t tag;
	struct list link;
	int64_t now_unix_ms;
};

/* ERR_OK: done() will be called. ERR_OVERLOADED, ERR_STOPPED: it will not, nothing happened. Any thread. */
enum err node_submit(struct node *n, struct submit_call *call);
/* Whether it would only be refused as too much: then it need not be looked at. Any thread. */
bool node_refuses(struct node *n, enum method_id method, struct slice request);
/* The caller is gone. done() still comes (with ERR_CANCELED or the result, whichever is first). Any thread; harmless when the call is already done
 * as long as its memory is still valid: the front end keeps it until done(). Give the tag that node_submit left in call->tag. */
void node_cancel(struct node *n, uint64_t tag);

/* A stream that the core drives (Watch, Observe, Session). */
struct submit_stream {
	enum method_id method;
	struct slice client;
	struct caller caller; /* its slices live until output(finished) */
	/* messages: as in struct core_output (32-bit little-endian length, bytes, repeated); take it. finished: the last call for this stream, with
	 * err; the memory is the front end's again. On the core's thread. */
	void (*output)(struct submit_stream *s, struct buf *messages, bool finished, enum err err);
	uint64_t tag;
};
/* bytes: Observe's request; for Session 32 random bytes; empty for Watch. */
enum err node_stream_open(struct node *n, struct submit_stream *s, struct slice bytes);
enum err node_stream_message(struct node *n, uint64_t tag, struct slice bytes); /* copied. ERR_OVERLOADED, ERR_STOPPED: not taken */
void node_stream_writable(struct node *n, uint64_t tag);                    /* the last output was taken; ask for more */
void node_stream_close(struct node *n, uint64_t tag);                       /* the client is gone; output(finished) follows */

/* For /health and supervisors; any thread, a snapshot of a moment. */
struct node_health {
	bool serving;       /* knows a leader, has caught up with what was committed at start, can commit */
	bool leader;
	uint64_t store_bytes, keys;
	bool no_space, corrupt; /* alarms */
	bool recovering;        /* from a damaged disk */
	bool learner;
	uint64_t leader_id, term, applied, revision;
	uint64_t leaderless_ms; /* for how long no leader has been known; 0 while one is */
	uint64_t silence_ms;    /* since the core's thread last had a turn: it takes one at least each 50 ms */
};
void node_health(struct node *n, struct node_health *ret);
const char *node_etcd_version(const struct node *n); /* the etcd version that we claim, "3.5.x" */

#endif
