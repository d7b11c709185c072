/* session.h: a lease that is kept alive in the background, and our own view of when it ends.
 *
 *   (A1) end_ms never lies after the lease's end in the cell: it counts from the moment the last answered request was sent, and clocks may differ in their
 *        rates by a hundredth.
 *   (A2) one request is under way at a time, so that an answer is that request's.
 *   (A3) it is renewed every third of its TTL; a replica that does not answer within a tenth of the TTL (at least 300 ms; twice, then four times that when
 *        one after the other fails, so that a cell that is merely slow is heard) is left for another. */
#ifndef HOLDFAST_CTL_SESSION_H
#define HOLDFAST_CTL_SESSION_H

#include "link.h"

struct session {
	struct link *link;
	int64_t lease, ttl_s; /* ttl_s 0: not known yet */
	uint64_t end_ms;      /* 0: not known yet */
	bool gone;            /* the cell says that there is no such lease (any more) */
	uint64_t renewals;    /* answers so far */
	unsigned misses;      /* since the last answer */
	uint64_t failovers;   /* how often a replica was left that did not answer */

	struct call *stream;
	struct endpoint *at;  /* of the stream */
	struct endpoint *left; /* the last one that was left */
	uint64_t sent_ms;     /* of the request under way; 0: none is */
	uint64_t next_ms;     /* when to send the next one */
};

void session_init(struct session *s, struct link *l, int64_t lease); /* renews at once */
void session_deinit(struct session *s);
/* It was granted: sent then, so long a TTL. */
void session_granted(struct session *s, uint64_t sent_ms, int64_t ttl_s);
uint64_t session_run(struct session *s); /* does what is due; returns when it wants to be called next at the latest. Answers come inside link_run */

#endif
