/* ask.h: a question and its answer, over all replicas. */
#ifndef HOLDFAST_CTL_ASK_H
#define HOLDFAST_CTL_ASK_H

#include "link.h"

enum ask_again {
	ASK_AGAIN, /* asked twice it does no harm: any failure to answer sends it to the next replica */
	ASK_ONCE,  /* a write: sent again only when it certainly was not carried out */
};

enum answer_kind {
	ANSWER_OK,
	ANSWER_REFUSED,     /* the cell says no: code and text */
	ANSWER_NONE,        /* nobody answered in time: certainly not carried out */
	ANSWER_UNKNOWN,     /* no answer to what was sent: perhaps carried out */
	ANSWER_INTERRUPTED, /* a signal; code: which */
};

struct answer {
	enum answer_kind kind;
	ProtobufCMessage *reply; /* only when OK */
	int code;                /* a gRPC status code */
	char text[512];          /* what is wrong, in one line */
	char where[300];         /* which replica said so; may be empty */
	int attempts;            /* how often it was sent */
	struct buf details;      /* a google.rpc.Status, or empty */
};

struct ask {
	enum method_id method;
	const ProtobufCMessage *request;
	enum ask_again again;
	uint64_t timeout_ms;
	bool patient;     /* all replicas refusing connections is no reason to give up before the time-out */
	int only;         /* the number of the one endpoint to ask, from 1; 0: any */
	int stops;        /* it takes so many signals to interrupt it: 0 is 1 */
};

/* Waits for the answer, running the link. answer_free what comes back. */
void ask(struct link *l, const struct ask *a, struct answer *ret);
void answer_free(struct answer *a);
/* Whether a failure with this code and text was certainly not carried out by the replica. */
bool was_not_done(int code, const char *text);
/* Whether the replica that failed so should be left for another. */
bool is_passing(int code, const char *text);

#endif
