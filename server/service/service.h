/* service.h: every method once, for every front end.
 *
 * A front end (gRPC, the JSON gateway) turns its transport into calls: bytes of request messages in, bytes of reply messages and one status
 * out. Services check requests, submit them to the node and shape replies. They know no gRPC and no h2o.
 *
 * Life of a call: the front end initialises a struct service_call (embedded in its own, zeroed), calls service_start(), then service_message() for
 * each request message (exactly one unless the client streams), service_half_close() when the client has sent all, service_cancel() when it is
 * gone. These come one at a time for one call (any thread). Back come ops->reply (zero or more) and exactly one ops->finish, from any thread,
 * possibly before service_start() or service_message() returns. After service_cancel() replies may still come and are ignored; finish always comes.
 *
 * After finish calls in do nothing, so a front end need not know at once. When none of them is under way or can come any more, it calls
 * service_end(), and the memory is its own again. Never from within reply or finish: those come with the node's thread.
 *
 * Flow control, out: each ops->reply on a stream is followed by the front end's service_writable() once its messages have been taken by the
 * transport; a service sends at most SERVICE_UNACKED replies ahead of that, so a reader who does not read costs a bounded amount.
 * Flow control, in: service_message() returns false when the service has its fill; the front end then stops reading until ops->ready. A front end
 * that goes on all the same ends with ERR_TOO_MANY_REQUESTS after SERVICE_INFLIGHT_MAX.
 */
#ifndef HOLDFAST_SERVICE_H
#define HOLDFAST_SERVICE_H

#include "core/core.h"
#include "identity.h"
#include "node/submit.h"

enum {
	SERVICE_UNACKED = 64,
	SERVICE_INFLIGHT_MAX = 4096, /* messages of one stream under way, for a front end that pushes a body that it has anyway */
	SERVICE_CONNECTION_CALLS_MAX = 10000,      /* calls and streams of one connection; above it ERR_TOO_MANY_REQUESTS */
	SERVICE_CONNECTION_BYTES_MAX = 64 << 20, /* of one connection's unary requests under way; the same */
	SERVICE_BYTES_MAX = 256 << 20, /* of all unary requests under way; above it ERR_TOO_MANY_REQUESTS */
};

struct service_call;

struct service_ops {
	/* messages: one or more messages, each preceded by its length (32 bits, little-endian); taken. Unary calls reply exactly once, with one. */
	void (*reply)(struct service_call *c, struct buf *messages);
	/* err ERR_OK or the error whose status and text go out; detail (may be NULL) replaces the text; details: packed holdfast.v1 message
	 * for the status details, may be empty. Borrowed for the call. */
	void (*finish)(struct service_call *c, enum err err, const char *detail, struct slice details);
	/* After a service_message() that returned false: go on. Any thread, possibly before that call has returned. NULL: not asked for. */
	void (*ready)(struct service_call *c);
};

struct service_call {
	/* set by the front end before service_start; the slices live as long as the call */
	const struct service_ops *ops;
	const struct method *method;
	const struct identity *identity;      /* who is at the other end of the connection; NULL: nothing is known */
	struct slice client;                  /* identity's address */
	struct slice client_cn;               /* identity's common name: of a certificate that was checked; empty otherwise */
	lease_id session;                     /* metadata holdfast-session, -request, -first-unanswered; 0 without */
	uint64_t request_id, first_unanswered;
	unsigned client_version;              /* metadata client-api-version, as metric_client() has it */
	bool need_leader;                     /* metadata hasleader: true */
	struct slice token;                   /* auth token; may be empty */
	/* the service's own */
	struct service *service;
	const struct handler *handler;
	struct caller caller;   /* from token and client_cn, at service_start */
	struct buf token_user;  /* what a signed token says */
	size_t weight; /* bytes that the reply may have, when it is a read of many keys */
	bool counted;  /* in its connection's calls */
	uint64_t began_us; /* 0: nobody wants to know */
	bool over; /* finished within a call in, or refused: what else comes in is ignored */
	void *state;
};

struct service;
struct service_limits {
	uint32_t max_txn_ops;       /* 128 */
	uint32_t max_request_bytes; /* 1.5 MiB */
	uint32_t max_value_bytes;   /* of what is stored; 0: as a request may have */
	const char *const *lock_prefixes; /* whose figures are kept apart; none: the first segments of names, as they come. Borrowed */
	size_t lock_prefixes_len;
	bool time_calls; /* each call's duration is counted */
};
struct passwords;
struct signed_tokens;
struct audit;
/* What a service uses where it is there: borrowed, not NULL unless said otherwise. */
struct service_parts {
	struct passwords *passwords;         /* NULL: no password can be set or compared */
	struct signed_tokens *signed_tokens; /* NULL: tokens are simple */
	struct audit *audit;                 /* NULL: nothing is written down */
};
void service_use(struct service *s, const struct service_parts *parts); /* before the first call */
struct service *service_new(struct node *n, const struct service_limits *limits);
void service_write_metrics(struct service *s, struct buf *out); /* appends Prometheus text: locks by the beginning of their names */
/* As node_callbacks.hold_ended. */
void service_hold_ended(struct service *s, struct slice name, enum hold_end why, uint64_t held_ms);
void service_free(struct service *s); /* no call may be open */

/* One metadata entry (gRPC) or HTTP header of a call, before service_start: names in lower case, others than ours are ignored. value lives as long as the
 * call. ERR_BAD_METADATA: the call must not be served. */
enum err service_metadata(struct service_call *c, struct slice name, struct slice value);

void service_start(struct service *s, struct service_call *c);
bool service_message(struct service_call *c, struct slice bytes); /* borrowed until it returns; false: see flow control */
void service_half_close(struct service_call *c);
void service_cancel(struct service_call *c);
void service_writable(struct service_call *c);
void service_end(struct service_call *c);

/* A look at the time: ends streams that need a leader when there has been none for long. Any thread, a few times a second. */
void service_tick(struct service *s, uint64_t now_ms);

#endif
