/* lib.h: what the parts of libholdfast share: the client's thread, connections and calls, and sessions as it runs them.
 *
 *   (C1) the session core is stepped by whoever has the session's mu: the client's thread with what happened, any thread with what it asks. Only the client's
 *        thread takes updates and carries them out, so what the core decided is done in order.
 *   (C2) no lock is held while a callback of the application runs.
 *   (C3) a session, lock or watch is found by its tag whenever something is told of it: what was freed is not found, and hears nothing.
 *   (C4) the clock is read before a step, with mu held, so it never goes back between two steps; and again after a cached value was loaded.
 * Locks: a session's mu before its client's mu, never the other way. */
#ifndef HOLDFAST_LIB_LIB_H
#define HOLDFAST_LIB_LIB_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "holdfast.h"
#include "methods.h"
#include "rpc/rpc.h"
#include "sess.h"

enum { ENDPOINTS_MAX = 32, ENDPOINT_LEN_MAX = 256 };

/* ---- client.c: the thread ---- */

struct probe { /* of an endpoint: probe.c */
	struct hf_client *client;
	struct io *io; /* NULL: none is under way */
	uint64_t answered_ms;
	bool replied, serves;
};

struct hf_client {
	grpc_completion_queue *cq;
	grpc_channel *wake_channel;
	grpc_call *wake_call; /* never sent: an empty batch on it posts a tag */
	struct rpc_tag wake_tag;
	atomic_bool wake_posted;
	pthread_t thread;
	char endpoints[ENDPOINTS_MAX][ENDPOINT_LEN_MAX];
	uint32_t endpoints_len;
	char *tls_ca, *tls_cert, *tls_key, *tls_server_name, *user, *password;
	/* its thread only */
	grpc_channel *channels[ENDPOINTS_MAX];
	struct heap timers; /* of sessions */
	uint64_t live;      /* tags that have to come back */
	char *token;        /* of the user; "": the cell asks for none; NULL: not known */
	bool asking;        /* for it */
	struct list unsent; /* calls that wait for it */
	struct probe probes[ENDPOINTS_MAX];
	struct list probing; /* sessions that wait for the answer of one */
	/* guarded by mu */
	pthread_mutex_t mu;
	struct list dirty;  /* sessions that have something to carry out */
	bool ending;
	uint64_t sessions_made;
};

bool client_is_here(const struct hf_client *c); /* on its own thread */
void client_wake(struct hf_client *c);
grpc_channel *client_channel(struct hf_client *c, uint32_t endpoint);

/* ---- io.c: a call to a replica; the client's thread only ---- */

struct io;
struct io_class {
	void (*message)(void *owner, struct io *io, struct slice bytes);
	/* The last one; io is gone after it. */
	void (*end)(void *owner, struct io *io, int status, struct slice text, struct slice details);
};
struct io_start {
	uint32_t endpoint;
	enum method_id method;
	uint64_t deadline_ms; /* SESS_NEVER */
	int64_t session;      /* metadata; request_id 0: without */
	uint64_t request_id, first_unanswered;
	bool keep_open;       /* more is sent */
	bool open_to_all;     /* needs no token */
};
struct io *io_new(struct hf_client *c, const struct io_start *start, const struct io_class *class, void *owner);
void io_send(struct io *io, struct buf *bytes); /* takes them; in order */
void io_drop(struct io *io);                    /* cancels; its owner hears no more of it. NULL is fine */
/* What waits for a token begins, or ends so. */
void io_unsent_begin(struct hf_client *c);
void io_unsent_end(struct hf_client *c, int status, struct slice text);

/* ---- auth.c: the user's token; the client's thread only ---- */

void auth_ask(struct hf_client *c, uint32_t endpoint); /* unless it is being asked for */
/* Whether an end says that the token is not good (any more); then it is forgotten, and what ended may be tried again. */
bool auth_ran_out(struct hf_client *c, int status, struct slice text);

/* ---- probe.c: whether a replica lives, and serves; the client's thread only ---- */

void probes_init(struct hf_client *c);
void probe_ask(struct hf_session *s, uint32_t endpoint); /* session_heard() now or later, or never */
void probes_drop(struct hf_client *c);

/* ---- session.c ---- */

enum ask_kind { ASK_PLAIN, ASK_LOCK, ASK_WATCH, ASK_TOLD, ASK_OPEN, ASK_CLOSE };

/* Something that was asked and may be told. */
struct ask {
	enum ask_kind kind;
	uint64_t tag;
	struct hf_session *session;
	hf_callback callback;    /* may be NULL */
	hf_watch_callback fired; /* WATCH */
	void *arg, *fired_arg;
	struct hf_lock *lock;    /* LOCK: owned until it is handed over */
	struct buf name;         /* of hf_members: whose queue is looked for */
	struct hf_watch *watch;  /* WATCH, TOLD */
};

struct hf_lock {
	struct hf_session *session;
	uint64_t tag;
	hf_lost_callback on_lost;
	void *arg;
	enum hf_reason lost; /* session.mu */
};

struct hf_watch {
	struct hf_session *session;
	uint64_t tag;
};

struct io_call {
	struct list node;
	struct hf_session *session;
	struct io *io;
	uint64_t call;
	uint32_t attempt;
	bool streamed;   /* its replies come one by one */
	struct buf reply;
};

struct hf_session {
	struct hf_client *client;
	hf_state_callback on_state;
	void *arg;
	/* client's thread only */
	struct heap_node timer;
	struct io *stream;
	uint64_t stream_number;
	struct list calls;
	struct list probing_node;
	uint32_t probing; /* a bit an endpoint */
	bool freeing;
	/* client.mu */
	struct list dirty_node;
	bool dirty;
	/* mu */
	pthread_mutex_t mu;
	pthread_cond_t quiet;   /* telling has changed */
	struct sess *core;
	struct map64 asks;      /* tag -> struct ask */
	uint64_t next_tag;
	uint64_t telling;       /* the tag whose callback runs; 0: none */
};

/* With mu held: puts the ask in and steps the core with it; sets its tag in both. Pokes. */
void session_ask(struct hf_session *s, struct ask *a, struct sess_ask *what);
/* With mu held, for without it the session may be gone: lets the client's thread carry out what the core has decided. */
void session_poke(struct hf_session *s);
void session_work(struct hf_session *s); /* client's thread */
void session_heard(struct hf_session *s, uint32_t endpoint, bool serves); /* client's thread */
/* With mu held: waits until no callback of that tag runs, unless this is the thread that runs it; then frees the ask. */
void session_forget(struct hf_session *s, uint64_t tag);
struct ask *ask_new(struct hf_session *s, enum ask_kind kind, hf_callback callback, void *arg);
void ask_free(struct ask *a);

/* ---- result.c ---- */

/* What came back, as the application is shown it. message owns what result refers to. */
struct told {
	struct hf_result result;
	char *text;
	ProtobufCMessage *message;
	struct hf_node one, *nodes;
	struct hf_place *places;
};
void told_init(struct told *t, const struct sess_out *o, struct slice name); /* name: of the queue that was asked for; empty elsewhere */
void told_deinit(struct told *t);

/* ---- blocking.c ---- */

/* One blocking call: handed as the arg of its callback form. */
struct waiter {
	pthread_mutex_t mu;
	pthread_cond_t over;
	bool done;
	enum hf_code code;
	int (*take)(void *out, const struct hf_result *r); /* copies what the caller wants, on HF_OK; NULL: nothing */
	void *out;
};
void waiter_init(struct waiter *w, int (*take)(void *, const struct hf_result *), void *out);
void waiter_tell(void *arg, const struct hf_result *result); /* the hf_callback */
enum hf_code waiter_wait(struct waiter *w, enum hf_code started);

/* hf_watch_async with an arg of its own for each of its callbacks. */
enum hf_code watch_start(struct hf_session *s, const char *path, enum hf_watch_kind kind, uint32_t timeout_ms, hf_watch_callback callback, void *arg,
			 hf_callback armed, void *armed_arg, struct hf_watch **ret_watch);
uint64_t deadline_of(uint64_t now_ms, uint32_t timeout_ms); /* HF_FOREVER: SESS_NEVER */
bool path_is_ok(const char *path);

#endif
