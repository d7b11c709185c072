/* link.h: the replicas, as one thread talks to them: connections, calls, and waiting.
 *
 * Everything here is for the one main thread; callbacks run inside link_run. A channel an endpoint, so that which replica answers is our choice: one that is
 * slow or silent is passed over for a while (link_pass), and a call goes only to a replica that is connected, so that a call that could not be sent is known
 * never to have been sent. */
#ifndef HOLDFAST_CTL_LINK_H
#define HOLDFAST_CTL_LINK_H

#include "args.h"
#include "methods.h"
#include "rpc/rpc.h"
#include "security.h"

struct link;
struct endpoint;
struct call;

#define NEVER_MS UINT64_MAX

/* A clock that goes on while the machine sleeps, as leases do. */

/* The endpoints (see args_endpoints) are copied. Signals are blocked by now (signals.h). NULL: gRPC refuses the certificate or its key. */
struct link *link_new(char *const *endpoints, int len, const struct security *security);
/* Other endpoints instead; no call is under way. False: the old connections do not end. */
bool link_renew(struct link *l, char *const *endpoints, int len);
/* Cancels what is under way. What a replica that stands still keeps open is left to the end of the process. */
void link_free(struct link *l);

/* Calls are those of this user from now on; taken. */
struct login;
void link_log_in(struct link *l, struct login *login);

void link_wake(void *link); /* from any thread: ends the present or the next link_run */

/* Waits until something has happened, at most until then; it may be earlier. */
void link_run(struct link *l, uint64_t until_ms);

/* The one to talk to now; NULL when none is connected (connecting goes on in link_run). */
struct endpoint *link_pick(struct link *l);
struct endpoint *link_pick_only(struct link *l, int i); /* the i-th or NULL */
void link_pass(struct link *l, struct endpoint *e);     /* it failed: others come first for a while */
bool link_failed(const struct link *l, int i);          /* it was tried, and could not be reached */
bool link_all_failed(const struct link *l);             /* nor could any other */
int link_len(const struct link *l);
const char *endpoint_name(const struct endpoint *e);
const char *link_name(const struct link *l, int i);
/* Why it cannot be reached, in a few words; waits a moment for the reason. */
void link_why(struct link *l, int i, char ret[200]);

/* ---- calls ---- */

struct call_class {
	void (*message)(void *owner, struct slice bytes);
	/* The last one; the call is gone after it. text and details die with the return. */
	void (*end)(void *owner, int code, const char *text, struct slice details);
};

/* request NULL: a stream to be written with call_send. deadline_ms: on now_ms's clock; NEVER_MS for none. */
struct call *call_start(struct link *l, struct endpoint *e, enum method_id method, const ProtobufCMessage *request, uint64_t deadline_ms,
			const struct call_class *class, void *owner);
bool call_send(struct call *c, const ProtobufCMessage *request); /* false: the one before has not gone out yet */
void call_drop(struct call *c); /* cancels; nothing is called back any more. NULL is fine */

/* A reply's message, checked; NULL when it is none. protobuf_c_message_free_unpacked() it. */
ProtobufCMessage *message_of(const ProtobufCMessageDescriptor *d, struct slice bytes);

#endif
