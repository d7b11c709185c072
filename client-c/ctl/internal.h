/* internal.h: what link.c and call.c share. */
#ifndef HOLDFAST_CTL_INTERNAL_H
#define HOLDFAST_CTL_INTERNAL_H

#include <stdatomic.h>

#include "link.h"
#include "login.h"

struct endpoint {
	char address[300];
	struct link *link;
	grpc_channel *channel;
	struct rpc_tag watch_tag;
	grpc_connectivity_state last;
	bool watching, wanted;
	bool failed; /* the last attempt to connect did not end in a connection */
	uint64_t passed_until;
};

struct link {
	grpc_completion_queue *cq;
	grpc_channel_credentials *plain, *tls;
	grpc_channel *wake_channel;
	grpc_call *wake_call;      /* never sent: an empty batch on it posts a tag */
	struct rpc_tag wake_tag;
	atomic_bool wake_posted;
	struct endpoint endpoints[ENDPOINTS_MAX];
	int len, current;
	int live;                  /* tags that have to come back: K1 */
	uint64_t dial_since;       /* 0: not dialling */
	bool dialled_all, ending;
	struct login *login;       /* NULL: we are nobody */
};

#endif
