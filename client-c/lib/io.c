/* io.c: one call to one replica. Requests go out one after the other, replies are read one after the other until there are no more; then the status comes. The
 * struct lives until every tag of it is back, which may be after its owner dropped it. */
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "lib.h"

enum { METADATA_MAX = 4, TEXT_MAX = 32 };

struct pending {
	struct list node;
	struct buf bytes;
};

struct io {
	struct hf_client *client;
	struct io_start start;
	struct list unsent;
	grpc_call *rpc; /* NULL: waits for a token */
	const struct io_class *class; /* NULL: dropped */
	void *owner;
	struct rpc_tag begun, sent, got, ended, closed;
	bool sending, has_ended, half_close, half_closed;
	int tags; /* under way */
	struct list queue;
	grpc_metadata metadata[METADATA_MAX];
	size_t metadata_len;
	grpc_metadata_array initial, trailing;
	grpc_byte_buffer *received;
	grpc_status_code status;
	grpc_slice text;
};

static void start(struct io *io, const grpc_op *ops, size_t len, struct rpc_tag *tag)
{
	io->tags++;
	io->client->live++;
	rpc_start(io->rpc, ops, len, tag);
}

static void release(struct io *io)
{
	struct list *it;
	while ((it = list_pop_front(&io->queue))) {
		struct pending *p = CONTAINER_OF(it, struct pending, node);
		buf_free(&p->bytes);
		free(p);
	}
	if (io->received)
		grpc_byte_buffer_destroy(io->received);
	for (size_t i = 0; i < io->metadata_len; i++)
		grpc_slice_unref(io->metadata[i].value);
	grpc_slice_unref(io->text);
	grpc_metadata_array_destroy(&io->initial);
	grpc_metadata_array_destroy(&io->trailing);
	if (io->rpc)
		grpc_call_unref(io->rpc);
	free(io);
}

static void tell_end(struct io *io)
{
	const struct io_class *class = io->class;
	struct slice details = slice_of(NULL, 0);
	if (!class)
		return;
	io->class = NULL;
	rpc_metadata_find(&io->trailing, "grpc-status-details-bin", &details);
	if (auth_ran_out(io->client, (int)io->status, rpc_view(&io->text)) && !io->start.open_to_all)
		io->status = GRPC_STATUS_UNAVAILABLE;
	class->end(io->owner, io, (int)io->status, rpc_view(&io->text), details);
}

static void tag_back(struct io *io)
{
	io->tags--;
	io->client->live--;
	if (io->tags > 0)
		return;
	if (io->has_ended)
		tell_end(io);
	release(io);
}

static void on_begun(struct rpc_tag *tag, bool ok)
{
	(void)ok;
	tag_back(CONTAINER_OF(tag, struct io, begun));
}

static void on_ended(struct rpc_tag *tag, bool ok)
{
	struct io *io = CONTAINER_OF(tag, struct io, ended);
	(void)ok;
	io->has_ended = true;
	tag_back(io);
}

static void on_closed(struct rpc_tag *tag, bool ok)
{
	(void)ok;
	tag_back(CONTAINER_OF(tag, struct io, closed));
}

static void receive(struct io *io)
{
	grpc_op op = rpc_op(GRPC_OP_RECV_MESSAGE);
	op.data.recv_message.recv_message = &io->received;
	start(io, &op, 1, &io->got);
}

static void on_got(struct rpc_tag *tag, bool ok)
{
	struct io *io = CONTAINER_OF(tag, struct io, got);
	struct buf scratch = { .ptr = NULL };
	struct slice bytes;
	grpc_byte_buffer *m = io->received;
	io->received = NULL;
	if (ok && m) {
		receive(io);
		if (io->class && rpc_message_view(m, &scratch, &bytes))
			io->class->message(io->owner, io, bytes);
		buf_free(&scratch);
	}
	if (m)
		grpc_byte_buffer_destroy(m);
	tag_back(io);
}

static void send_next(struct io *io)
{
	grpc_op op = rpc_op(GRPC_OP_SEND_MESSAGE);
	struct list *it;
	struct pending *p;
	grpc_byte_buffer *m;
	if (!io->rpc || io->sending || io->has_ended)
		return;
	it = list_pop_front(&io->queue);
	if (!it) {
		if (io->half_close && !io->half_closed) {
			grpc_op close = rpc_op(GRPC_OP_SEND_CLOSE_FROM_CLIENT);
			io->half_closed = true;
			start(io, &close, 1, &io->closed);
		}
		return;
	}
	p = CONTAINER_OF(it, struct pending, node);
	m = rpc_message_take(&p->bytes);
	free(p);
	op.data.send_message.send_message = m;
	io->sending = true;
	start(io, &op, 1, &io->sent);
	grpc_byte_buffer_destroy(m);
}

static void on_sent(struct rpc_tag *tag, bool ok)
{
	struct io *io = CONTAINER_OF(tag, struct io, sent);
	io->sending = false;
	if (ok)
		send_next(io);
	tag_back(io);
}

void io_send(struct io *io, struct buf *bytes)
{
	struct pending *p = mem_zalloc(sizeof(*p));
	p->bytes = buf_take(bytes);
	list_push_back(&io->queue, &p->node);
	send_next(io);
}

void io_drop(struct io *io)
{
	if (!io)
		return;
	io->class = NULL;
	if (io->rpc) {
		grpc_call_cancel(io->rpc, NULL);
		return;
	}
	list_remove(&io->unsent);
	release(io);
}

static void metadata(struct io *io, const char *key, struct slice value)
{
	grpc_metadata *m = &io->metadata[io->metadata_len++];
	m->key = rpc_slice_static(key);
	m->value = rpc_slice_copy(value);
}

static void number(struct io *io, const char *key, bool is_signed, uint64_t v)
{
	char value[TEXT_MAX];
	if (is_signed)
		snprintf(value, sizeof(value), "%lld", (long long)v);
	else
		snprintf(value, sizeof(value), "%llu", (unsigned long long)v);
	metadata(io, key, slice_of_str(value));
}

static gpr_timespec rpc_deadline(uint64_t deadline_ms)
{
	uint64_t now = boot_ms();
	if (deadline_ms == SESS_NEVER)
		return gpr_inf_future(GPR_CLOCK_MONOTONIC);
	return rpc_in_ms(deadline_ms > now ? deadline_ms - now : 0);
}

static void begin(struct io *io)
{
	const struct io_start *s = &io->start;
	grpc_op ops[2] = { rpc_op(GRPC_OP_SEND_INITIAL_METADATA), rpc_op(GRPC_OP_RECV_INITIAL_METADATA) };
	grpc_op status = rpc_op(GRPC_OP_RECV_STATUS_ON_CLIENT);
	if (s->request_id) {
		number(io, "holdfast-session", true, (uint64_t)s->session);
		number(io, "holdfast-request", false, s->request_id);
		number(io, "holdfast-first-unanswered", false, s->first_unanswered);
	}
	if (io->client->token && *io->client->token && !s->open_to_all)
		metadata(io, "token", slice_of_str(io->client->token));
	io->rpc = grpc_channel_create_call(client_channel(io->client, s->endpoint), NULL, GRPC_PROPAGATE_DEFAULTS, io->client->cq,
					   rpc_slice_static(method_by_id(s->method)->path), NULL, rpc_deadline(s->deadline_ms), NULL);
	ops[0].data.send_initial_metadata.metadata = io->metadata;
	ops[0].data.send_initial_metadata.count = io->metadata_len;
	ops[1].data.recv_initial_metadata.recv_initial_metadata = &io->initial;
	/* With the status under way a batch cannot fail for good without it being told. */
	status.data.recv_status_on_client.trailing_metadata = &io->trailing;
	status.data.recv_status_on_client.status = &io->status;
	status.data.recv_status_on_client.status_details = &io->text;
	start(io, &status, 1, &io->ended);
	start(io, ops, 2, &io->begun);
	receive(io);
}

struct io *io_new(struct hf_client *c, const struct io_start *s, const struct io_class *class, void *owner)
{
	struct io *io = mem_zalloc(sizeof(*io));
	io->client = c;
	io->class = class;
	io->owner = owner;
	io->half_close = !s->keep_open;
	io->begun.fn = on_begun;
	io->sent.fn = on_sent;
	io->got.fn = on_got;
	io->ended.fn = on_ended;
	io->closed.fn = on_closed;
	io->text = grpc_empty_slice();
	list_init(&io->queue);
	grpc_metadata_array_init(&io->initial);
	grpc_metadata_array_init(&io->trailing);
	list_init(&io->unsent);
	io->start = *s;
	if (c->user && !c->token && !s->open_to_all) {
		list_push_back(&c->unsent, &io->unsent);
		auth_ask(c, s->endpoint);
	} else {
		begin(io);
	}
	return io;
}

void io_unsent_begin(struct hf_client *c)
{
	struct list *it;
	while ((it = list_pop_front(&c->unsent))) {
		struct io *io = CONTAINER_OF(it, struct io, unsent);
		begin(io);
		send_next(io);
	}
}

void io_unsent_end(struct hf_client *c, int status, struct slice text)
{
	struct list ending, *it;
	list_init(&ending);
	while ((it = list_pop_front(&c->unsent)))
		list_push_back(&ending, it);
	while ((it = list_pop_front(&ending))) {
		struct io *io = CONTAINER_OF(it, struct io, unsent);
		io->class->end(io->owner, io, status, text, slice_of(NULL, 0));
		release(io);
	}
}
