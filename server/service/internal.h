/* internal.h: what the services share: how a method is found, checked and carried out. */
#ifndef HOLDFAST_SERVICE_INTERNAL_H
#define HOLDFAST_SERVICE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/list.h"
#include "service/service.h"

/* How a kind of call lives. These come one at a time for one call, and not once it is over. */
struct call_class {
	void (*start)(struct service_call *c);                       /* NULL: nothing to do */
	bool (*message)(struct service_call *c, struct slice bytes);
	void (*half_close)(struct service_call *c);
	void (*cancel)(struct service_call *c);
	void (*writable)(struct service_call *c);                    /* NULL: unary */
	void (*end)(struct service_call *c);                         /* releases c->state; also once over */
};

/* A request's checks that need no state. detail: a text instead of the error's own. */
typedef enum err (*check_fn)(const struct service *s, const ProtobufCMessage *request, const char **ret_detail);

struct handler {
	const struct call_class *class; /* NULL: not implemented */
	check_fn check;                 /* NULL: any well-formed message will do */
	void (*note)(const struct service_call *c, struct slice request, struct slice reply); /* NULL: nothing. After it succeeded; core's thread */
};

/* A stream that wants to end when there is no leader. Zeroed: it does not. */
struct leader_watch {
	struct list link; /* guarded by service.mu */
	void (*lost)(struct leader_watch *w); /* with service.mu held: may call the node and the front end */
};

/* budget.c: bytes of replies to reads of many keys. Any thread. */
struct budget {
	pthread_mutex_t mu;
	struct list waiting; /* guarded by mu; struct reservation, in order */
	size_t waiting_len;  /* guarded by mu */
	size_t reserved;     /* guarded by mu */
};
struct reservation {
	struct list link;
	size_t bytes;
	bool waiting;
	uint64_t until_ms;
	enum err (*submit)(struct reservation *r);            /* with budget.mu held; calls nobody back at once */
	void (*refused)(struct reservation *r, enum err e);   /* it waited in vain; nothing is held */
};
void budget_init(struct budget *b);
void budget_deinit(struct budget *b);
size_t budget_weight(const struct service_call *c, const ProtobufCMessage *request); /* 0: it needs no leave */
enum err budget_enter(struct budget *b, struct reservation *r, size_t bytes, uint64_t now_ms); /* submits now or later, or says why not */
bool budget_give_up(struct budget *b, struct reservation *r);               /* true: it waited, and does no more; it is submitted otherwise */
void budget_settle(struct budget *b, struct reservation *r, size_t bytes);  /* the reply is here, or (0) gone */
void budget_tick(struct budget *b, uint64_t now_ms);

/* lock_figures.c: of locks, by the beginning of their names. Any thread. */
enum { LOCK_ROWS_MAX = 33, LOCK_BUCKETS = 10 /* 1, 4, 16 ms ... 262 s */, HOLD_BUCKETS = 13 /* ... 4.7 h */ };
struct lock_times {
	uint64_t len, sum_us, buckets[HOLD_BUCKETS];
};
struct lock_row {
	char prefix[64];
	size_t prefix_len;
	uint64_t refused, unlocked;
	struct lock_times waits, holds[HOLD_ENDS];
};
struct lock_figures {
	pthread_mutex_t mu;
	struct lock_row rows[LOCK_ROWS_MAX]; /* guarded by mu; the first is of all others */
	size_t rows_len;                     /* guarded by mu */
	bool fixed;                          /* the rows are those that were asked for */
};
void lock_figures_init(struct lock_figures *f, const char *const *prefixes, size_t len);
void lock_figures_deinit(struct lock_figures *f);
/* A Lock, Campaign or Unlock has ended, us after it began. */
void lock_figures_note(struct lock_figures *f, enum method_id method, struct slice request, enum err e, uint64_t us);
void lock_figures_hold(struct lock_figures *f, struct slice name, enum hold_end why, uint64_t ms);

struct service {
	struct node *node;
	struct service_limits limits;
	struct service_parts parts;
	atomic_size_t bytes;       /* of unary requests under way */
	struct budget budget;
	struct lock_figures lock_figures;
	pthread_mutex_t health_mu;
	struct list health_watchers; /* guarded by health_mu */
	atomic_uint_fast64_t now_ms; /* as of the last tick */
	pthread_mutex_t mu;
	struct list need_leader;   /* guarded by mu; struct leader_watch */
};

extern const struct call_class auth_class, unary_class, keep_alive_class, watch_class, observe_class, session_class, range_stream_class;
extern const struct call_class health_check_class, health_watch_class, reflection_class;

/* Well-formed, not too deep, not too large. */
enum err service_check_form(const struct service_call *c, struct slice bytes);
/* The same, and what the handler's check says. */
enum err service_check(struct service_call *c, struct slice bytes, const char **ret_detail);

/* values.c: of an unpacked request; no value is larger than --max-value-bytes allows. */
enum err service_check_values(const struct service_call *c, const ProtobufCMessage *request, const char **ret_detail);

/* Fills c->caller from what came with the call. */
void service_identify(struct service_call *c);

/* This thread's arena, for one unpacked request at a time; it is given back before anything else is called. */
struct arena *service_scratch(void);
void service_scratch_done(struct arena *a);

/* What every reply and every end goes through: it is counted. As ops->reply (messages is taken) and ops->finish. */
void service_tell(struct service_call *c, struct buf *messages);
void service_tell_end(struct service_call *c, enum err e, const char *detail, struct slice details);

/* What somebody did, or was refused, for the record; for methods that are kept in it. Before finish. user: as the core found, may be empty. */
void service_audit(const struct service_call *c, enum err e, struct slice user, struct slice request);

/* Ends a call that never got to the node. From within a call in. */
void service_finish(struct service_call *c, enum err e, const char *detail);
/* Puts the length in front of the one message in *reply and hands it over. */
void service_reply_one(struct service_call *c, struct buf *reply);


void service_health_tick(struct service *s); /* health.c */

void service_leader_watch_add(struct service *s, struct leader_watch *w);    /* w->lost is set */
void service_leader_watch_remove(struct service *s, struct leader_watch *w);

/* stream.c: a call that the core drives. */
void service_stream_open(struct service_call *c, struct slice bytes);
void service_stream_message(struct service_call *c, struct slice bytes);
void service_stream_fail(struct service_call *c, enum err e); /* ends with e, whatever the core says */
void service_stream_cancel(struct service_call *c);
void service_stream_writable(struct service_call *c);
void service_stream_end(struct service_call *c);

#endif
