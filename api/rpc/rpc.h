/* rpc.h: small helpers over the gRPC C core, for servers, peers and clients: tags, slices, messages, metadata.
 *
 * A completion queue's tag is always a struct rpc_tag inside the struct that it is about; who waits on the queue needs to know no more. */
#ifndef HOLDFAST_RPC_H
#define HOLDFAST_RPC_H

#include <grpc/grpc.h>

#include "base/buf.h"

/* ---- tags ---- */

struct rpc_tag {
	/* On a thread that runs the queue. ok: as the operation's documentation says. */
	void (*fn)(struct rpc_tag *tag, bool ok);
};

enum rpc_ran { RPC_RAN, RPC_TIMEOUT, RPC_SHUTDOWN };
/* Waits for one tag and runs it. RPC_SHUTDOWN: the queue is shut down and empty. Several threads may run one queue. */
enum rpc_ran rpc_run(grpc_completion_queue *cq, gpr_timespec deadline);
gpr_timespec rpc_in_ms(uint64_t ms); /* from now, monotonic */

/* One completion queue with the threads that run it, for all that speak gRPC in a process. gRPC keeps one set of sockets for the whole process, so the thread
 * of a second queue would take the events of the first one's sockets, only to hand them over (measured: a tenth more CPU for a put, a quarter more for a keep-alive). */
struct rpc_queue;
/* What a thread of a queue calls before it sleeps, and after a burst of tags: what the tags put off until then is done there. Also once at its start. */
struct rpc_idle {
	void (*fn)(void *ctx);
	void *ctx;
};
/* name: of the threads; at most 15 bytes. idle: copied; NULL: none. */
struct rpc_queue *rpc_queue_new(unsigned threads, const char *name, const struct rpc_idle *idle);
/* One that looks at no sockets, for calls whose completions its threads shall run while another queue's threads do that. Not for a client's calls (gRPC asserts). */
struct rpc_queue *rpc_queue_new_blind(unsigned threads, const char *name);
grpc_completion_queue *rpc_queue_cq(struct rpc_queue *q);
/* Ends the threads and joins them. left_behind: some tag may never come; then what gRPC still refers to stays until the process ends. Otherwise all of
 * whom tags are must be done. After it no tag runs. */
void rpc_queue_stop(struct rpc_queue *q, bool left_behind);
void rpc_queue_free(struct rpc_queue *q); /* after rpc_queue_stop and after all calls and servers on it are gone; NULL is fine */

/* To be called just before a tag is handed to gRPC by anything but rpc_start: tells the thread sanitizer, which cannot see into gRPC; else does nothing. */
void rpc_give(struct rpc_tag *tag);
/* Starts operations, or with none just posts the tag. Calls on one grpc_call come one at a time (but an empty batch may come beside others). */
void rpc_start(grpc_call *call, const grpc_op *ops, size_t len, struct rpc_tag *tag);
grpc_op rpc_op(grpc_op_type type); /* all else zero */

/* For a program's main, before anything else of here. The library's locks are Abseil's, which Debian builds with a developer's aid: every lock and unlock keeps a
 * graph of who takes what before what, 2 to 3 % of a server's CPU. It is switched off for the whole process; whether it was found. */
bool rpc_no_lock_graph(void);

/* ---- slices ---- */

struct slice rpc_view(const grpc_slice *s);       /* dies with *s, and moves with it when it is short */
grpc_slice rpc_slice_copy(struct slice s);        /* the caller unrefs it */
grpc_slice rpc_slice_take(struct buf *b);         /* empties *b, without a copy */
grpc_slice rpc_slice_static(const char *text);    /* no copy, nothing to unref */

/* ---- messages ---- */

grpc_byte_buffer *rpc_message_take(struct buf *b);     /* empties *b; grpc_byte_buffer_destroy() it */
grpc_byte_buffer *rpc_message_of_slice(grpc_slice s);  /* takes the reference */
/* All of a received message in one piece: mostly a view of *m; put together in *scratch when it came in pieces. Dies with either. False: it cannot be
 * read (compressed in a way that gRPC does not know). */
bool rpc_message_view(grpc_byte_buffer *m, struct buf *scratch, struct slice *ret);

/* ---- metadata ---- */

/* The first value of that key; false when there is none. Lives as long as the call. */
bool rpc_metadata_find(const grpc_metadata_array *a, const char *key, struct slice *ret);

/* ---- errors ---- */

/* The first message inside what grpc-status-details-bin holds, a google.rpc.Status: the URL that names its type, and its bytes; both are parts of `details`.
 * False: there is none. */
bool rpc_status_detail(struct slice details, struct slice *ret_url, struct slice *ret_value);

#endif
