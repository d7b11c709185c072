/* service.h: every method once, for every front end.
 *
 * A front end (gRPC, the JSON gateway) turns its transport into calls: bytes of request messages in, bytes of reply messages and one status
 * out. Services check requests, submit them to the node and shape replies. They know no gRPC and no h2o.
 *
 * Life of a call: the front end initialises a struct service_call (embedded in its own), calls service_start(), then service_message() for
 * each request message (exactly one unless the client streams), service_half_close() when the client has sent all, service_cancel() when it is
 * gone. These come one at a time for one call (any thread). Back come ops->reply (zero or more) and exactly one ops->finish, from any thread,
 * possibly before service_message() returns. After finish the call's memory is the front end's again, and it may no longer call in.
 * After service_cancel() replies may still come and are ignored; finish always comes.
 *
 * Flow control: ops->reply on a stream is followed by the front end's service_writable() once the message has been taken by the
 * transport; a service sends at most SERVICE_UNACKED replies ahead of that, so a reader who does not read costs a bounded amount.
 */
#ifndef HOLDFAST_SERVICE_H
#define HOLDFAST_SERVICE_H

#include "base/arena.h"
#include "node/submit.h"

struct service_call;

struct service_ops {
	/* messages: one or more messages, each preceded by its length (32 bits, little-endian); taken. Unary calls reply exactly once, with one. */
	void (*reply)(struct service_call *c, struct buf *messages);
	/* err ERR_OK or the error whose status and text go out; detail (may be NULL) replaces the text; details: packed holdfast.v1 message
	 * for the status details, may be empty. Borrowed for the call. */
	void (*finish)(struct service_call *c, enum err err, const char *detail, struct slice details);
};

struct service_call {
	/* set by the front end before service_start */
	const struct service_ops *ops;
	const struct method *method;
	struct slice client;                  /* address of the caller; lives as long as the call */
	lease_id session;                     /* metadata holdfast-session, -request, -first-unanswered; 0 without */
	uint64_t request_id, first_unanswered;
	bool need_leader;                     /* metadata hasleader: true */
	struct slice token;                   /* auth token; may be empty */
	/* the service's own */
	struct service *service;
	struct arena arena;
	void *state;
};

struct service;
struct service_limits {
	uint32_t max_txn_ops;       /* 128 */
	uint32_t max_request_bytes; /* 1.5 MiB */
};
struct service *service_new(struct node *n, const struct service_limits *limits);
void service_free(struct service *s); /* no call may be open */

void service_start(struct service *s, struct service_call *c);
void service_message(struct service_call *c, struct slice bytes); /* borrowed for the call */
void service_half_close(struct service_call *c);
void service_cancel(struct service_call *c);
void service_writable(struct service_call *c);

#endif
