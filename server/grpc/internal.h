/* internal.h: what the files of the gRPC front end share. */
#ifndef HOLDFAST_GRPC_INTERNAL_H
#define HOLDFAST_GRPC_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "grpc/grpc_front.h"
#include "rpc/rpc.h"

enum {
	FRONT_THREADS = 1,
	LANES_MAX = 16,
};

/* address.c: whose a descriptor is. gRPC knows an adopted connection only as "fd:17". */
struct addresses {
	pthread_mutex_t mu;
	/* guarded by mu */
	struct identity **at; /* by descriptor; a reference each */
	size_t len;
	int next;  /* where the search for a free descriptor goes on */
};
void addresses_init(struct addresses *a);
void addresses_deinit(struct addresses *a);
int addresses_add(struct addresses *a, int fd, struct identity *who); /* takes `who`; returns the descriptor to use instead of fd, which is then closed */
struct identity *addresses_find(struct addresses *a, const char *peer, int *ret_fd); /* a reference of the caller's own; NULL: not known. ret_fd: of the client's socket, or -1 */

/* Calls that have something to send, on their way from any thread to a queue thread. */
struct outbox {
	pthread_mutex_t mu;
	/* guarded by mu */
	struct list calls; /* struct call.out_link; each holds a reference */
	bool waking;       /* wake_tag is in the queue */
	/* set once */
	grpc_channel *wake_channel; /* leads nowhere: its call is there for empty batches */
	grpc_call *wake_call;
	struct rpc_tag wake_tag;
};

/* Methods whose calls are streams of many messages: see front.c. */
struct front_lane {
	const struct method *method;
	void *registered;
};

struct grpc_front {
	struct grpc_front_config config;
	grpc_completion_queue *cq;
	grpc_server *server;
	grpc_server_credentials *creds;
	struct rpc_queue *own_queue; /* NULL: it is shared */
	struct rpc_queue *streams_queue;
	struct front_lane lanes[LANES_MAX];
	size_t lanes_len;
	pthread_t tick_thread;
	struct addresses addresses;
	struct outbox outbox;
	struct rpc_tag down_tag; /* the server has shut down */

	pthread_mutex_t adopt_mu; /* also held while the server takes a connection */
	bool closed;              /* guarded by adopt_mu */

	pthread_mutex_t mu;
	pthread_cond_t ticks; /* the tick thread is to end */
	bool tick_stop;
	pthread_cond_t quiet; /* a call ended, or the server went down */
	/* guarded by mu */
	struct list open, free; /* struct call.link */
	size_t open_len, free_len;
	bool down;

	atomic_bool ending; /* calls are being cancelled: no new ones; written with mu */
	atomic_uint_fast64_t clock_ms; /* as of the last tick: good enough for what takes seconds */
};

/* One RPC.
 *   (G1) `serial` is held for every operation on grpc_call, and for every call into the service, so both come one at a time. Only queue threads
 *        and the one that stops take it: the core's thread must never wait for a socket.
 *   (G2) `mu` guards what the service's answers come in by, from any thread, and is held for moments. Order: serial, mu, outbox.mu.
 *   (G3) one send is under way at most. One reference each: until the status is sent; per tag in the queue; in the outbox.
 *   (G4) the last reference gives the memory back, on a queue thread; nothing calls in any more then. */
struct call {
	struct service_call service;
	struct grpc_front *front;
	struct list link; /* front.mu */
	atomic_uint refs;
	atomic_uint_fast64_t awaits_since_ms; /* its one message; 0: it is here, or there may be many */

	/* set when it comes in */
	grpc_call *rpc;
	grpc_call_details request;
	gpr_timespec deadline; /* of one with a lane; written when it comes in */
	grpc_metadata_array metadata;
	struct rpc_tag accepted, received, closed, sent, flush;
	const struct front_lane *lane; /* NULL: of any method, which `request` names */
	bool watches_close; /* RECV_CLOSE is armed from the start; otherwise it goes with the status */
	struct identity *identity; /* NULL: not known */
	int fd;             /* of its connection, which may be gone; -1: not known */

	pthread_mutex_t serial;
	/* guarded by serial */
	grpc_byte_buffer *received_message, *sent_message;
	grpc_metadata trailer;
	int cancelled;
	bool served;       /* service_start was called */
	bool late;         /* its message did not come in time */
	bool initial_sent;
	bool has_trailer;

	pthread_mutex_t mu;
	/* guarded by mu */
	struct list out_link; /* outbox.mu too */
	bool in_outbox;
	bool sending, status_sent;
	bool broken;          /* a send failed: the client is gone, what is left is dropped */
	bool paused, resume;  /* reading: the service has its fill; it has called ready */
	bool finished;
	enum err err;
	char *detail;         /* owned; NULL: the error's own text */
	struct buf details;   /* packed message for the status */
	/* Messages, each behind its length: `next` collects while `current` is sent. For each ops->reply that they came by a service_writable is owed. */
	struct buf next;
	uint32_t next_replies, current_replies;
	struct slice current;     /* its bytes belong to current_slice */
	size_t offset;            /* into current: what has been handed to gRPC */
	grpc_slice current_slice;
	bool has_slice;           /* false: gone with the last message */
};

/* front.c */
void front_arm(struct grpc_front *f, const struct front_lane *lane); /* waits for one more call; lane NULL: of a method that has none */
enum err front_open(struct grpc_front *f, struct call *c); /* counts it in, or says why not */
void front_close(struct grpc_front *f, struct call *c); /* gives its memory back */
void front_put_out(struct call *c);   /* c is in_outbox, holds a reference for it; not with c->mu held */

/* call.c */
extern const struct service_ops front_call_ops;
struct call *front_call_new(struct grpc_front *f);
void front_call_free(struct call *c);
void front_call_unref(struct call *c);
void front_call_cancel(struct call *c);
void front_call_give_up(struct call *c); /* its message is still not here */
void front_call_read(struct call *c); /* with serial: one more message */
void front_call_finish(struct call *c, enum err e, const char *detail, struct slice details);

/* send.c */
void front_call_pump(struct call *c); /* with serial: starts the next send if there is one and none is under way */
void front_call_flush(struct call *c); /* from the outbox */
void front_call_sent(struct rpc_tag *tag, bool ok);

/* status.c */
void status_details(enum err e, const char *text, struct slice detail, struct buf *ret);
void status_unknown_path(struct slice path, struct buf *ret); /* the text for a path that is no method */

#endif
