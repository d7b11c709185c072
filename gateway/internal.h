/* internal.h: what the gateway's parts share. Everything here belongs to the loop's thread, except where it says otherwise.
 *
 *   connection   a socket, from adoption until h2o closes it
 *   exchange     one HTTP request and its reply; lives in h2o's memory of the request, and ends with it
 *   call         one call of a service; lives until the service has finished it, which may be after the client has gone
 *
 *   (G1) a connection has at most one exchange: h2o takes the next request once the reply is written.
 *   (G2) exchange and call know each other, or neither knows the other. Whichever ends first takes its pointer out of the other; a call that
 *        loses its exchange is cancelled at that moment.
 *   (G3) h2o has at most one piece of a reply to write: `sending` does not change until it asks for more.
 *   (G4) what services say arrives on any thread, is kept in the call under gateway.mu, and is looked at by the loop alone. The one reply of a
 *        unary call needs no lock: until finish has posted the call, only the service's thread looks at it.
 */
#ifndef HOLDFAST_GATEWAY_INTERNAL_H
#define HOLDFAST_GATEWAY_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/list.h"
#include "gateway/gateway.h"
#include "gateway/http.h"

enum {
	GATEWAY_TICK_MS = 100,
	GATEWAY_HANG_UP_GRACE_MS = 300,    /* a client that closed its side may still read a quick answer */
	GATEWAY_STOP_GRACE_MS = 200,       /* calls under way when we stop */
	GATEWAY_STOP_FLUSH_MS = 300,       /* their answers */
	GATEWAY_SILENCE_MAX_MS = 10000,    /* a core that has had no turn for so long is stuck */
	GATEWAY_INPUT_MAX = 256 << 20,     /* bytes of requests in memory, of all connections */
	GATEWAY_KEEP_BYTES = 1 << 20,
	GATEWAY_INPUT_SMALL = 64 << 10,    /* a connection with less is never refused for the sum */
};

struct exchange;
struct json_call;
struct probe;

/* pages.c: the checks behind /livez and /readyz. */
enum { PAGE_CHECKS = 4 };
struct check_figures {
	uint64_t ok, failed;
	bool last_ok;
};

struct connection {
	struct list link; /* gateway.connections */
	struct gateway *gateway;
	h2o_socket_t *sock;
	int fd;
	struct exchange *exchange; /* NULL: none is under way */
	uint64_t reading_since_ms; /* 0: no part of a request is here */
	uint64_t hung_up_ms;       /* 0: the client still sends, or may */
	uint64_t taken_ms;         /* when the client was last seen to take something of what is the last of its reply; 0: not looked at yet */
	int untaken;               /* bytes that the kernel held for it then */
	bool waiting;              /* h2o watches the socket for us, and reads nothing */
	bool refused;              /* shut down by us; h2o is about to notice */
	bool pages_only;           /* no method is served */
	struct identity *identity;
};

struct exchange {
	h2o_generator_t super;
	struct gateway *gateway;
	struct connection *connection;
	h2o_req_t *req;
	const struct method *method; /* NULL: no call of a service */
	struct json_call *call;           /* NULL: none, or it is over */
	struct json_call *kept;           /* over, but its reply is large and not written yet */
	struct probe *probe;              /* NULL: none is under way */
	enum err probe_err;               /* once it was probed */
	bool probed;
	struct buf sending, queued;
	uint32_t sending_replies, queued_replies; /* that the service waits to hear taken */
	size_t body_pos;
	bool body_done;
	bool text;     /* bytes are text in this exchange */
	bool not_text; /* a reply had bytes that are none; the call ends with that */
	bool paused;  /* the service takes no more messages now */
	bool started; /* the reply's head is out */
	bool busy;    /* h2o has `sending` */
	bool ending;  /* what is queued is the last */
};

struct json_call {
	struct service_call service;
	struct gateway *gateway;
	struct list link; /* gateway.calls */
	struct exchange *exchange; /* NULL: the client is gone */
	uint64_t began_ms, deadline_ms; /* deadline 0: none */
	bool canceled, timed_out;
	struct buf token;
	struct identity *identity;
	/* guarded by gateway.mu */
	struct list post_link; /* gateway.posted */
	bool posted;
	struct buf replies;
	uint32_t replies_len;
	bool ready, finished;
	enum err err;
	char *detail; /* NULL: the error's own text */
	struct buf details;
};

struct gateway {
	struct gateway_config config;
	pthread_t thread;
	h2o_globalconf_t globalconf;
	h2o_context_t ctx;
	h2o_loop_t *loop;
	h2o_accept_ctx_t accept_ctx;
	h2o_timeout_entry_t tick;
	h2o_multithread_receiver_t receiver;
	int hang_up_fd; /* epoll of our own: h2o does not look at a connection while it waits for us */
	h2o_socket_t *hang_up_sock;
	struct list connections, calls, probes;
	struct check_figures checks[2][PAGE_CHECKS]; /* of /readyz, of /livez */
	uint64_t now_ms;
	uint64_t input_bytes; /* of all connections, at the last tick */
	bool stopping;
	uint64_t stopping_since_ms, drained_since_ms;
	struct arena scratch;
	uint64_t requests[METHOD_COUNT][STATUS_COUNT];

	atomic_uint wakers; /* threads that are about to wake the loop */
	atomic_uint connections_len; /* any thread: adopted and not yet closed */
	atomic_uint_fast64_t refused_connections, stuck_connections;

	pthread_mutex_t mu;
	/* guarded by mu */
	struct list adopted, posted, probed;
	bool stop, ended;
	bool awake; /* the message is on its way */
	h2o_multithread_message_t wake;
};

void gateway_wake_and_unlock(struct gateway *g); /* gateway.mu */

/* connection.c */
void connection_adopt(struct gateway *g, int fd, struct identity *who, bool pages_only); /* the loop's part of gateway_adopt() */
void connection_watch_init(struct gateway *g);
void connection_watch_deinit(struct gateway *g);
bool connection_may_begin(const struct connection *c, const struct method *m); /* false: the client has left, and must not be given what it asks for */
void connection_wait(struct connection *c);     /* until the answer; h2o reads no requests meanwhile */
void connection_wait_end(struct connection *c); /* before the last piece of it; harmless when not waiting */
void connections_tick(struct gateway *g);
void connections_shut(struct gateway *g, bool idle_only);
void connection_refuse(int fd, const char *status, const char *text); /* any thread: answers what nobody will read, and closes nothing */

/* exchange.c */
int exchange_begin(h2o_handler_t *handler, h2o_req_t *req);
void exchange_pump(struct exchange *ex); /* hands messages of the body to the service */
void exchange_replies(struct exchange *ex, struct buf *messages, uint32_t replies); /* kept until one of: */
void exchange_flush(struct exchange *ex);
void exchange_finished(struct exchange *ex, enum err err, const char *text, struct slice details); /* ex->call is NULL already */

/* access.c: which web pages and which names may be used to call. */
bool access_host_allowed(const struct gateway *g, const h2o_req_t *req);
const char *access_origin(const struct gateway *g, h2o_req_t *req); /* the header's value; NULL: none. Of the request's memory */

/* reply.c: ways to answer; each is the exchange's last word, except reply_start(). */
unsigned http_status_of(enum status_code status);
const char *http_reason_of(unsigned http_status);
void reply_start(struct exchange *ex, bool grpc);
void reply_json(struct exchange *ex, struct buf *json); /* taken */
void reply_text(struct exchange *ex, unsigned http_status, const char *type, struct slice text);
void reply_plain_error(struct exchange *ex, unsigned http_status, const char *allow);
/* e: what the details, if any, are of. */
void reply_error(struct exchange *ex, enum err e, enum status_code status, struct slice text, struct slice details);
void reply_error_in_stream(struct exchange *ex, enum status_code status, struct slice text); /* appends to queued */

/* call.c */
struct json_call *json_call_new(struct exchange *ex);
enum err json_call_metadata(struct json_call *c, const h2o_req_t *req, const char **ret_text);
void json_call_let_go(struct json_call *c); /* a kept one */
void json_call_drop(struct json_call *c); /* one that was never started */
void json_call_start(struct json_call *c);
void json_call_cancel(struct json_call *c);
void json_call_expire(struct json_call *c);
void json_calls_drain(struct gateway *g);
void json_calls_tick(struct gateway *g);
void json_calls_stop(struct gateway *g, bool streams_only);

/* pages.c: true when the path is one of these and has been answered, or waits for its probe. */
bool page_serve(struct exchange *ex, struct slice path, bool get, bool head);
void page_serve_again(struct exchange *ex); /* once it has been probed */
void pages_write_metrics(const struct gateway *g, struct buf *out);

/* probe.c */
bool probe_ask(struct exchange *ex); /* true: ex->probe_err says it. False: page_serve_again() follows */
void probe_drop(struct exchange *ex); /* the client is gone */
void probes_drain(struct gateway *g);
void probes_tick(struct gateway *g);
void probes_stop(struct gateway *g);

/* metrics.c, metrics_etcd.c */
void metric_head(struct buf *out, const char *name, const char *type, const char *help);
void metric_gauge(struct buf *out, const char *name, const char *help, uint64_t v);
void metric_counter(struct buf *out, const char *name, const char *help, uint64_t v);
void metrics_write_calls(struct gateway *g, struct buf *out);
void metrics_write_etcd(struct gateway *g, struct buf *out);
void metrics_write(struct gateway *g, struct buf *out);

#endif
