/* round_trip.c: how long a peer takes to answer: asked beside the stream, over the same connection, for nothing.
 *
 * Seldom, and one at a time for each link, so that it costs nothing. Anything that the peer itself says is an answer: a replica of an earlier release does not know the
 * question, and says so. */
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "internal.h"

#define ANSWER_MS 5000 /* later is never: it is not counted, and the stream's own signs of life tell */

struct round_trip {
	struct list node; /* peers->round_trips */
	struct peers *peers;
	member_id member;
	grpc_call *call;
	struct rpc_tag answered;
	uint64_t began_us;
	grpc_metadata_array initial, trailing;
	grpc_status_code status;
	grpc_slice details;
};

static void on_answered(struct rpc_tag *tag, bool ok)
{
	struct round_trip *t = CONTAINER_OF(tag, struct round_trip, answered);
	struct peers *p = t->peers;
	uint64_t took_us = mono_us() - t->began_us;
	(void)ok; /* the status tells */
	peers_enter(p);
	p->ops--;
	if (t->status == GRPC_STATUS_OK || t->status == GRPC_STATUS_UNIMPLEMENTED)
		link_answered(p, t->member, took_us);
	list_remove(&t->node);
	grpc_call_unref(t->call);
	grpc_metadata_array_destroy(&t->initial);
	grpc_metadata_array_destroy(&t->trailing);
	grpc_slice_unref(t->details);
	free(t);
	peers_leave(p);
}

void round_trip_begin(struct peers *p, member_id member, grpc_channel *channel)
{
	struct round_trip *t = mem_zalloc(sizeof(*t));
	grpc_op ops[4] = { { .op = GRPC_OP_SEND_INITIAL_METADATA }, { .op = GRPC_OP_SEND_CLOSE_FROM_CLIENT }, { .op = GRPC_OP_RECV_INITIAL_METADATA },
			   { .op = GRPC_OP_RECV_STATUS_ON_CLIENT } };
	t->peers = p;
	t->member = member;
	t->answered.fn = on_answered;
	t->details = grpc_empty_slice();
	grpc_metadata_array_init(&t->initial);
	grpc_metadata_array_init(&t->trailing);
	ops[2].data.recv_initial_metadata.recv_initial_metadata = &t->initial;
	ops[3].data.recv_status_on_client.trailing_metadata = &t->trailing;
	ops[3].data.recv_status_on_client.status = &t->status;
	ops[3].data.recv_status_on_client.status_details = &t->details;
	t->call = grpc_channel_create_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS, p->cq, rpc_slice_static(PEERS_PROBE_METHOD), NULL, rpc_in_ms(ANSWER_MS), NULL);
	ASSERT(t->call);
	list_push_back(&p->round_trips, &t->node);
	p->ops++;
	t->began_us = mono_us();
	rpc_start(t->call, ops, 4, &t->answered);
}

void round_trips_cancel(struct peers *p)
{
	LIST_FOR_EACH(n, &p->round_trips)
		grpc_call_cancel(CONTAINER_OF(n, struct round_trip, node)->call, NULL);
}
