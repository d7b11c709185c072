/* send.c: what goes back to the client, one send at a time.
 *
 * Everything that is due leaves in as few batches as may be: the status with the last message, the first message with the initial metadata; so a
 * unary reply is one batch. While more is due, gRPC is told to hold a message back for the next one.
 *
 * gRPC completes a send when flow control has taken it. With a reader that does not read that comes no more, and then nothing is
 * sent, service_writable() is not called, and the service stops (service.h). */
#include <grpc/slice.h>

#include "base/mem.h"
#include "internal.h"

enum { OPS_MAX = 4 };

struct batch {
	grpc_op ops[OPS_MAX];
	size_t len;
	grpc_slice text;
	bool has_text;
};

static grpc_op *add(struct batch *b, grpc_op_type type)
{
	grpc_op *op = &b->ops[b->len++];
	ASSERT(b->len <= OPS_MAX);
	*op = (grpc_op){ .op = type };
	return op;
}

/* ---- with c->mu ---- */

static bool has_message(const struct call *c)
{
	return c->offset < c->current.len || c->next.len > 0;
}

/* The next message's length, from the four bytes before it. */
static size_t message_len(const struct call *c)
{
	const uint8_t *p = c->current.ptr + c->offset;
	ASSERT(c->current.len - c->offset >= 4);
	return (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
}

static void take_next(struct call *c)
{
	c->current = buf_view(&c->next);
	c->current_replies = c->next_replies;
	c->current_slice = rpc_slice_take(&c->next);
	c->has_slice = true;
	c->next_replies = 0;
	c->offset = 0;
}

/* The last message takes the slice's own reference along. */
static grpc_byte_buffer *next_message(struct call *c)
{
	size_t begin, end;
	grpc_slice s;
	if (c->offset == c->current.len)
		take_next(c);
	begin = c->offset + 4;
	end = begin + message_len(c);
	ASSERT(end <= c->current.len);
	c->offset = end;
	if (end < c->current.len) {
		s = grpc_slice_sub(c->current_slice, begin, end);
	} else {
		s = grpc_slice_sub_no_ref(c->current_slice, begin, end);
		c->has_slice = false;
	}
	return rpc_message_of_slice(s);
}

static const char *status_text(struct call *c)
{
	return c->detail ? c->detail : err_text(c->err);
}

static void add_trailer(struct call *c, grpc_op *op)
{
	struct buf b = { .ptr = NULL };
	status_details(c->err, status_text(c), buf_view(&c->details), &b);
	c->trailer.key = rpc_slice_static("grpc-status-details-bin");
	c->trailer.value = rpc_slice_take(&b);
	c->has_trailer = true;
	op->data.send_status_from_server.trailing_metadata_count = 1;
	op->data.send_status_from_server.trailing_metadata = &c->trailer;
}

static void add_status(struct call *c, struct batch *b)
{
	grpc_op *op = add(b, GRPC_OP_SEND_STATUS_FROM_SERVER);
	c->status_sent = true;
	op->data.send_status_from_server.status = (grpc_status_code)err_status(c->err);
	if (c->err) {
		b->text = c->detail ? grpc_slice_from_copied_string(c->detail) : rpc_slice_static(err_text(c->err));
		b->has_text = true;
		op->data.send_status_from_server.status_details = &b->text;
	}
	if (c->details.len)
		add_trailer(c, op);
	if (!c->watches_close)
		add(b, GRPC_OP_RECV_CLOSE_ON_SERVER)->data.recv_close_on_server.cancelled = &c->cancelled;
}

static void collect(struct call *c, struct batch *b)
{
	bool message = has_message(c), first = !c->initial_sent;
	if (c->sending || c->status_sent || (!message && !c->finished))
		return;
	c->sending = true;
	if (first)
		add(b, GRPC_OP_SEND_INITIAL_METADATA);
	c->initial_sent = true;
	if (message) {
		grpc_op *op = add(b, GRPC_OP_SEND_MESSAGE);
		c->sent_message = next_message(c);
		op->data.send_message.send_message = c->sent_message;
		/* Never beside the initial metadata: the library then writes nothing until somebody else does, and the batch, which waits for the
		 * metadata to be written, never ends (1.51). */
		if (has_message(c) && !first)
			op->flags = GRPC_WRITE_BUFFER_HINT;
	}
	if (c->finished && !has_message(c))
		add_status(c, b);
}

/* ---- */

void front_call_pump(struct call *c)
{
	struct batch b = { .len = 0 };
	pthread_mutex_lock(&c->mu);
	collect(c, &b);
	pthread_mutex_unlock(&c->mu);
	if (b.len) {
		atomic_fetch_add(&c->refs, 1);
		rpc_start(c->rpc, b.ops, b.len, &c->sent);
	}
	if (b.has_text)
		grpc_slice_unref(b.text);
}

void front_call_flush(struct call *c)
{
	bool read;
	pthread_mutex_lock(&c->serial);
	pthread_mutex_lock(&c->mu);
	c->in_outbox = false;
	read = c->paused && c->resume && !c->finished;
	if (read)
		c->paused = c->resume = false;
	pthread_mutex_unlock(&c->mu);
	if (read)
		front_call_read(c);
	front_call_pump(c);
	pthread_mutex_unlock(&c->serial);
	front_call_unref(c);
}

/* With c->mu. Nobody reads them any more. The call itself goes on: its end comes by RECV_CLOSE or by the service. */
static void drop_messages(struct call *c)
{
	c->broken = true;
	buf_free(&c->next);
	c->current_replies += c->next_replies;
	c->next_replies = 0;
	c->offset = c->current.len;
	if (c->has_slice)
		grpc_slice_unref(c->current_slice);
	c->has_slice = false;
}

void front_call_sent(struct rpc_tag *tag, bool ok)
{
	struct call *c = CONTAINER_OF(tag, struct call, sent);
	uint32_t replies = 0;
	bool last;
	pthread_mutex_lock(&c->serial);
	if (c->sent_message)
		grpc_byte_buffer_destroy(c->sent_message);
	c->sent_message = NULL;
	pthread_mutex_lock(&c->mu);
	c->sending = false;
	last = c->status_sent;
	if (!ok)
		drop_messages(c);
	if (c->offset == c->current.len) {
		replies = c->finished ? 0 : c->current_replies;
		c->current_replies = 0;
	}
	pthread_mutex_unlock(&c->mu);
	for (; replies && !last; replies--)
		service_writable(&c->service);
	if (!last)
		front_call_pump(c);
	pthread_mutex_unlock(&c->serial);
	if (last)
		front_call_unref(c); /* what it began with */
	front_call_unref(c);
}
