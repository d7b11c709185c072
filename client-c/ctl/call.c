/* call.c: one call to one replica; see link.h.
 *
 * Replies are read one after the other until there are no more; then the status comes. The struct lives until every tag of the call is back, which may be
 * after its owner dropped it. */
#include "internal.h"

#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pbw.h"

enum { DEPTH_MAX = 60 };

struct call {
	struct link *link;
	grpc_call *rpc;
	const struct call_class *class; /* NULL: dropped */
	void *owner;
	struct rpc_tag begun, sent, got, ended;
	bool sending, has_ended;
	int pending; /* tags under way */
	grpc_metadata_array initial, trailing;
	grpc_byte_buffer *received;
	grpc_status_code code;
	grpc_slice text;
};

static void start(struct call *c, const grpc_op *ops, size_t len, struct rpc_tag *tag)
{
	c->pending++;
	c->link->live++;
	rpc_start(c->rpc, ops, len, tag);
}

static void release(struct call *c)
{
	if (c->received)
		grpc_byte_buffer_destroy(c->received);
	grpc_slice_unref(c->text);
	grpc_metadata_array_destroy(&c->initial);
	grpc_metadata_array_destroy(&c->trailing);
	grpc_call_unref(c->rpc);
	free(c);
}

static void tell_end(struct call *c)
{
	const struct call_class *class = c->class;
	struct slice details = slice_of(NULL, 0);
	char text[512];
	if (!class)
		return;
	c->class = NULL;
	rpc_metadata_find(&c->trailing, "grpc-status-details-bin", &details);
	snprintf(text, sizeof(text), "%.*s", (int)GRPC_SLICE_LENGTH(c->text), (const char *)GRPC_SLICE_START_PTR(c->text));
	if (c->link->login)
		login_refused(c->link->login, (int)c->code, text);
	class->end(c->owner, (int)c->code, text, details);
}

static void tag_back(struct call *c)
{
	c->pending--;
	c->link->live--;
	if (c->pending > 0)
		return;
	if (c->has_ended)
		tell_end(c);
	release(c);
}

static void on_plain(struct call *c)
{
	tag_back(c);
}

static void on_begun(struct rpc_tag *tag, bool ok)
{
	(void)ok;
	on_plain(CONTAINER_OF(tag, struct call, begun));
}

static void on_sent(struct rpc_tag *tag, bool ok)
{
	struct call *c = CONTAINER_OF(tag, struct call, sent);
	(void)ok;
	c->sending = false;
	on_plain(c);
}

static void on_ended(struct rpc_tag *tag, bool ok)
{
	struct call *c = CONTAINER_OF(tag, struct call, ended);
	(void)ok;
	c->has_ended = true;
	on_plain(c);
}

static void receive(struct call *c)
{
	grpc_op op = rpc_op(GRPC_OP_RECV_MESSAGE);
	op.data.recv_message.recv_message = &c->received;
	start(c, &op, 1, &c->got);
}

static void on_got(struct rpc_tag *tag, bool ok)
{
	struct call *c = CONTAINER_OF(tag, struct call, got);
	struct buf scratch = { .ptr = NULL };
	struct slice bytes;
	grpc_byte_buffer *m = c->received;
	c->received = NULL;
	if (ok && m) {
		receive(c);
		if (c->class && c->class->message && rpc_message_view(m, &scratch, &bytes))
			c->class->message(c->owner, bytes);
		grpc_byte_buffer_destroy(m);
		buf_free(&scratch);
	}
	tag_back(c);
}

static grpc_byte_buffer *packed(const ProtobufCMessage *m)
{
	struct buf b = { .ptr = NULL };
	buf_reserve(&b, protobuf_c_message_get_packed_size(m) + 1);
	b.len = protobuf_c_message_pack(m, b.ptr);
	return rpc_message_take(&b);
}

static gpr_timespec rpc_deadline(uint64_t deadline_ms)
{
	uint64_t now = boot_ms();
	if (deadline_ms == NEVER_MS)
		return gpr_inf_future(GPR_CLOCK_MONOTONIC);
	return rpc_in_ms(deadline_ms > now ? deadline_ms - now : 0);
}

static void begin(struct call *c, const ProtobufCMessage *request)
{
	grpc_op ops[4] = { rpc_op(GRPC_OP_SEND_INITIAL_METADATA), rpc_op(GRPC_OP_RECV_INITIAL_METADATA), rpc_op(GRPC_OP_SEND_MESSAGE),
			   rpc_op(GRPC_OP_SEND_CLOSE_FROM_CLIENT) };
	grpc_op status = rpc_op(GRPC_OP_RECV_STATUS_ON_CLIENT);
	grpc_byte_buffer *m = request ? packed(request) : NULL;
	struct slice token = c->link->login ? login_token(c->link->login) : slice_of(NULL, 0);
	grpc_metadata who = { .key = rpc_slice_static("token"), .value = grpc_slice_from_copied_buffer((const char *)token.ptr, token.len) };
	if (token.len) {
		ops[0].data.send_initial_metadata.metadata = &who;
		ops[0].data.send_initial_metadata.count = 1;
	}
	ops[1].data.recv_initial_metadata.recv_initial_metadata = &c->initial;
	ops[2].data.send_message.send_message = m;
	/* With the status under way a batch cannot fail for good without it being told. */
	status.data.recv_status_on_client.trailing_metadata = &c->trailing;
	status.data.recv_status_on_client.status = &c->code;
	status.data.recv_status_on_client.status_details = &c->text;
	start(c, &status, 1, &c->ended);
	start(c, ops, request ? 4 : 2, &c->begun);
	receive(c);
	grpc_slice_unref(who.value);
	if (m)
		grpc_byte_buffer_destroy(m);
}

struct call *call_start(struct link *l, struct endpoint *e, enum method_id method, const ProtobufCMessage *request, uint64_t deadline_ms,
			const struct call_class *class, void *owner)
{
	struct call *c = mem_zalloc(sizeof(*c));
	c->link = l;
	c->class = class;
	c->owner = owner;
	c->begun.fn = on_begun;
	c->sent.fn = on_sent;
	c->got.fn = on_got;
	c->ended.fn = on_ended;
	c->text = grpc_empty_slice();
	grpc_metadata_array_init(&c->initial);
	grpc_metadata_array_init(&c->trailing);
	c->rpc = grpc_channel_create_call(e->channel, NULL, GRPC_PROPAGATE_DEFAULTS, l->cq, rpc_slice_static(method_by_id(method)->path), NULL,
					  rpc_deadline(deadline_ms), NULL);
	begin(c, request);
	return c;
}

bool call_send(struct call *c, const ProtobufCMessage *request)
{
	grpc_op op = rpc_op(GRPC_OP_SEND_MESSAGE);
	grpc_byte_buffer *m;
	if (c->sending || c->has_ended)
		return false;
	m = packed(request);
	op.data.send_message.send_message = m;
	c->sending = true;
	start(c, &op, 1, &c->sent);
	grpc_byte_buffer_destroy(m);
	return true;
}

void call_drop(struct call *c)
{
	if (!c)
		return;
	c->class = NULL;
	grpc_call_cancel(c->rpc, NULL);
}

ProtobufCMessage *message_of(const ProtobufCMessageDescriptor *d, struct slice bytes)
{
	if (pb_check(d, bytes, DEPTH_MAX) == PB_CHECK_OK)
		return protobuf_c_message_unpack(d, NULL, bytes.len, bytes.ptr);
	return NULL;
}
