/* ask.c: one question to a replica, before this one has started anything: which cell is that, and who is in it? */
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <stdlib.h>

#include "base/mem.h"
#include "internal.h"

struct question {
	struct rpc_tag tag;
	bool done;
	grpc_metadata_array initial, trailing;
	grpc_byte_buffer *message;
	grpc_status_code status;
	grpc_slice details;
};

static void on_answer(struct rpc_tag *tag, bool ok)
{
	(void)ok; /* the status tells */
	CONTAINER_OF(tag, struct question, tag)->done = true;
}

static enum err take_answer(struct question *q, const char *url, struct buf *ret, struct errmsg *em)
{
	struct buf scratch = { .ptr = NULL };
	struct slice bytes, details = rpc_view(&q->details);
	enum err e = ERR_CLOSED;
	if (q->status == GRPC_STATUS_OK && q->message && rpc_message_view(q->message, &scratch, &bytes)) {
		buf_clear(ret);
		buf_append_slice(ret, bytes);
		e = ERR_OK;
	} else {
		errmsg_set(em, "%s: %.*s (%d)", url, (int)details.len, (const char *)details.ptr, (int)q->status);
	}
	buf_free(&scratch);
	return e;
}

static void ask(grpc_channel *channel, grpc_completion_queue *cq, uint64_t timeout_ms, struct question *q)
{
	grpc_call *call = grpc_channel_create_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS, cq, rpc_slice_static(PEERS_INFO_METHOD), NULL, rpc_in_ms(timeout_ms), NULL);
	grpc_byte_buffer *nothing = grpc_raw_byte_buffer_create(NULL, 0);
	grpc_op ops[6] = { { .op = GRPC_OP_SEND_INITIAL_METADATA }, { .op = GRPC_OP_SEND_MESSAGE }, { .op = GRPC_OP_SEND_CLOSE_FROM_CLIENT },
			   { .op = GRPC_OP_RECV_INITIAL_METADATA }, { .op = GRPC_OP_RECV_MESSAGE }, { .op = GRPC_OP_RECV_STATUS_ON_CLIENT } };
	ASSERT(call);
	ops[1].data.send_message.send_message = nothing;
	ops[3].data.recv_initial_metadata.recv_initial_metadata = &q->initial;
	ops[4].data.recv_message.recv_message = &q->message;
	ops[5].data.recv_status_on_client.trailing_metadata = &q->trailing;
	ops[5].data.recv_status_on_client.status = &q->status;
	ops[5].data.recv_status_on_client.status_details = &q->details;
	q->tag.fn = on_answer;
	rpc_start(call, ops, 6, &q->tag);
	while (!q->done)
		rpc_run(cq, gpr_inf_future(GPR_CLOCK_MONOTONIC)); /* the call has a deadline */
	grpc_byte_buffer_destroy(nothing);
	grpc_call_unref(call);
}

enum err peers_ask_info(const char *url, struct tls_context *tls, uint64_t timeout_ms, struct buf *ret, struct errmsg *em)
{
	struct question q = { .done = false };
	struct peers *p = mem_zalloc(sizeof(*p)); /* as much of one as a link looks at */
	struct link *l;
	grpc_completion_queue *cq;
	grpc_channel *channel;
	enum err e = ERR_CLOSED;
	grpc_init();
	p->tls = tls;
	p->dialer = tls ? tls_dialer_new(tls, PEERS_CONNECT_MS) : NULL;
	p->channel_creds = grpc_insecure_credentials_create();
	l = link_new(p, &(struct peer_address){ .urls = &url, .urls_len = 1 });
	errmsg_set(em, "'%s' is no address that can be reached", url);
	grpc_metadata_array_init(&q.initial);
	grpc_metadata_array_init(&q.trailing);
	q.details = grpc_empty_slice();
	cq = grpc_completion_queue_create_for_next(NULL);
	if (l->targets_len) {
		channel = link_channel(p, &l->targets[0]);
		ask(channel, cq, timeout_ms, &q);
		e = take_answer(&q, url, ret, em);
		grpc_channel_destroy(channel);
	}
	grpc_completion_queue_shutdown(cq);
	while (rpc_run(cq, gpr_inf_future(GPR_CLOCK_MONOTONIC)) != RPC_SHUTDOWN)
		;
	grpc_completion_queue_destroy(cq);
	if (q.message)
		grpc_byte_buffer_destroy(q.message);
	grpc_slice_unref(q.details);
	grpc_metadata_array_destroy(&q.initial);
	grpc_metadata_array_destroy(&q.trailing);
	link_free(l);
	grpc_channel_credentials_release(p->channel_creds);
	tls_dialer_free(p->dialer);
	free(p);
	grpc_shutdown();
	return e;
}
