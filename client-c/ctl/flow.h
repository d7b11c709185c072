/* flow.h: a stream of replies that is opened anew, on another replica if need be, until it has been told to end. */
#ifndef HOLDFAST_CTL_FLOW_H
#define HOLDFAST_CTL_FLOW_H

#include "ctl.h"

struct flow;

struct flow_class {
	enum method_id method;
	/* Opens it: call_start, and whatever is to be sent. */
	struct call *(*open)(struct flow *f, struct endpoint *e, const struct call_class *class);
	/* A reply, unpacked. Sets f->over when there shall be no more. */
	void (*reply)(struct flow *f, const ProtobufCMessage *m);
	const char *what; /* "watch 'a'", for messages */
};

struct flow {
	const struct flow_class *class;
	struct ctl *c;
	void *owner;
	struct call *call;
	struct endpoint *at;
	bool over, heard;      /* heard: something came since it was opened */
	int code;              /* what to exit with, once over */
	uint64_t opened_ms, retry_ms;
	char why[512];
};

/* Runs it to its end, which a signal is too. Returns the exit code. The first reply must come within --timeout; once one has come it is tried for ever. */
int flow_run(struct flow *f);
/* The end, with a message unless text is NULL. */
void flow_end(struct flow *f, int code, const char *text);

#endif
