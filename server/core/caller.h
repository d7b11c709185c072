/* caller.h: who a caller says that he is, on its way from a front end to the core. */
#ifndef HOLDFAST_CORE_CALLER_H
#define HOLDFAST_CORE_CALLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

enum caller_token {
	TOKEN_NONE,     /* none came */
	TOKEN_SIMPLE,   /* the core knows it, or nobody does */
	TOKEN_VERIFIED, /* signed: `user` and `revision` are what it says */
	TOKEN_BAD,      /* it was looked at and is not good */
};

struct caller {
	struct slice token;       /* TOKEN_SIMPLE: as it came */
	struct slice user;        /* TOKEN_VERIFIED */
	uint64_t revision;
	struct slice common_name; /* of a certificate that was checked; empty: none */
	uint64_t connection;      /* what it came by, as the owner numbers them; 0: nothing is known */
	uint8_t token_is;         /* enum caller_token */
	bool settled;             /* this replica has caught up since: a token that is unknown is unknown */
	bool let_in;              /* an earlier message of the same stream was let in */
	bool wanted;              /* the answer should say who it was */
};

#endif
