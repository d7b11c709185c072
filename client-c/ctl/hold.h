/* hold.h: something that is held for as long as a lease lives: a lock, or the lead of an election. Lock and elect differ only in what they ask. */
#ifndef HOLDFAST_CTL_HOLD_H
#define HOLDFAST_CTL_HOLD_H

#include "ctl.h"
#include "session.h"

struct hold;

struct hold_class {
	const char *noun;  /* "lock", for messages */
	const char *name_variable; /* "HOLDFAST_LOCK" */
	enum method_id ask;
	/* Starts the question. bounded: it is refused after wait_ms. */
	struct call *(*ask_start)(struct hold *h, struct endpoint *e, bool bounded, int64_t wait_ms, const struct call_class *class);
	bool (*take_reply)(struct hold *h, struct slice bytes); /* sets key, token; false: it makes no sense */
	/* Gives it up, once. */
	void (*release)(struct hold *h, struct answer *ret, uint64_t timeout_ms);
	void (*print)(struct hold *h); /* onto standard output, as --output says */
};

struct hold {
	const struct hold_class *class;
	struct ctl *c;
	struct buf name, value;
	struct session session;
	bool has_lease;

	/* the question */
	struct call *call;
	struct endpoint *at;
	bool refused;
	int code;
	char text[512], where[300];
	struct buf details;
	uint64_t retry_ms;

	/* the hold */
	bool granted;
	struct buf key;
	int64_t token;
	ProtobufCMessage *reply;
};

/* Asks, holds, runs the COMMAND if there is one, releases. Returns the exit code. */
int hold_run(const struct hold_class *class, struct ctl *c);

#endif
