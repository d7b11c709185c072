/* follow.h: hears when one key is deleted: when what we hold is broken, or its lease is ended by somebody. A help and no more: what must hold without it is kept
 * by the session. */
#ifndef HOLDFAST_CTL_FOLLOW_H
#define HOLDFAST_CTL_FOLLOW_H

#include "link.h"

struct follow {
	struct link *link;
	struct slice key;   /* borrowed */
	int64_t created;    /* its create_revision: with another one it is another key */
	int64_t rev;        /* the first one of interest; 0: history there is gone, look at the key itself */
	bool deleted;
	struct call *call;
	struct endpoint *at;
	uint64_t next_ms;
};

void follow_init(struct follow *f, struct link *l, struct slice key, int64_t created);
void follow_deinit(struct follow *f);
void follow_leave(struct follow *f, const struct endpoint *e); /* that replica does not answer: ask another if it is this one */
uint64_t follow_run(struct follow *f); /* as session_run */

#endif
