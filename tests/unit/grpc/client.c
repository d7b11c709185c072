#include "client.h"

#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

enum { PATIENCE_MS = 30000 };

/* ---- connections ---- */

static void tcp_pair(int fds[2])
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&a, &len), 0);
	fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(connect(fds[0], (struct sockaddr *)&a, sizeof(a)), 0);
	fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_int_ge(fds[1], 0);
	for (int i = 0; i < 2; i++) {
		setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		fcntl(fds[i], F_SETFL, fcntl(fds[i], F_GETFL) | O_NONBLOCK);
	}
	close(listener);
}

struct client *client_new(struct grpc_front *f, const char *address)
{
	struct client *c = mem_zalloc(sizeof(*c));
	grpc_channel_credentials *creds;
	grpc_arg arg = { .type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, .value.integer = -1 };
	grpc_channel_args args = { 1, &arg };
	int fds[2];
	grpc_init();
	tcp_pair(fds);
	c->fd = dup(fds[0]);
	grpc_front_adopt(f, fds[1], identity_of_address(address));
	creds = grpc_insecure_credentials_create();
	c->channel = grpc_channel_create_from_fd("test", fds[0], creds, &args);
	grpc_channel_credentials_release(creds);
	c->cq = grpc_completion_queue_create_for_next(NULL);
	return c;
}

int client_raw(struct grpc_front *f, const char *address)
{
	int fds[2];
	tcp_pair(fds);
	grpc_front_adopt(f, fds[1], identity_of_address(address));
	return fds[0];
}

void client_break(struct client *c)
{
	shutdown(c->fd, SHUT_RDWR);
}

void client_free(struct client *c)
{
	grpc_channel_destroy(c->channel);
	grpc_completion_queue_shutdown(c->cq);
	while (rpc_run(c->cq, rpc_in_ms(PATIENCE_MS)) != RPC_SHUTDOWN)
		;
	grpc_completion_queue_destroy(c->cq);
	close(c->fd);
	free(c);
	grpc_shutdown();
}

/* ---- steps ---- */

static void on_step(struct rpc_tag *tag, bool ok)
{
	struct client_step *s = CONTAINER_OF(tag, struct client_step, tag);
	s->done = true;
	s->ok = ok;
}

static void step_start(struct client_call *c, struct client_step *s, const grpc_op *ops, size_t len)
{
	*s = (struct client_step){ .tag.fn = on_step, .started = true };
	rpc_start(c->rpc, ops, len, &s->tag);
}

static bool step_within(struct client_call *c, struct client_step *s, uint64_t ms)
{
	gpr_timespec deadline = rpc_in_ms(ms);
	while (!s->done) {
		if (rpc_run(c->client->cq, deadline) == RPC_TIMEOUT)
			return s->done;
	}
	return true;
}

static bool step_wait(struct client_call *c, struct client_step *s)
{
	ck_assert_msg(step_within(c, s, PATIENCE_MS), "a step of a call never ends");
	return s->ok;
}

static grpc_op op_of(grpc_op_type type)
{
	grpc_op op;
	memset(&op, 0, sizeof(op));
	op.op = type;
	return op;
}

struct client_call *client_call(struct client *client, const char *path, const struct client_metadata *metadata, size_t len, uint64_t deadline_ms)
{
	struct client_call *c = mem_zalloc(sizeof(*c));
	grpc_op ops[2] = { op_of(GRPC_OP_SEND_INITIAL_METADATA), op_of(GRPC_OP_RECV_INITIAL_METADATA) };
	grpc_op status = op_of(GRPC_OP_RECV_STATUS_ON_CLIENT);
	grpc_metadata sent[8];
	grpc_slice path_slice = grpc_slice_from_copied_string(path);
	memset(sent, 0, sizeof(sent));
	c->client = client;
	grpc_metadata_array_init(&c->initial);
	grpc_metadata_array_init(&c->trailing);
	c->text = grpc_empty_slice();
	c->rpc = grpc_channel_create_call(client->channel, NULL, GRPC_PROPAGATE_DEFAULTS, client->cq, path_slice, NULL,
					  deadline_ms ? rpc_in_ms(deadline_ms) : gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
	grpc_slice_unref(path_slice);
	for (size_t i = 0; i < len; i++) {
		sent[i].key = grpc_slice_from_static_string(metadata[i].key);
		sent[i].value = grpc_slice_from_static_string(metadata[i].value);
	}
	ops[0].data.send_initial_metadata.count = len;
	ops[0].data.send_initial_metadata.metadata = sent;
	ops[1].data.recv_initial_metadata.recv_initial_metadata = &c->initial;
	step_start(c, &c->opened, ops, 2);
	status.data.recv_status_on_client.trailing_metadata = &c->trailing;
	status.data.recv_status_on_client.status = &c->code;
	status.data.recv_status_on_client.status_details = &c->text;
	step_start(c, &c->ended, &status, 1);
	return c;
}

void client_send_start(struct client_call *c, struct slice message)
{
	grpc_op op = op_of(GRPC_OP_SEND_MESSAGE);
	grpc_byte_buffer *m = rpc_message_of_slice(rpc_slice_copy(message));
	op.data.send_message.send_message = m;
	step_start(c, &c->sent, &op, 1);
	grpc_byte_buffer_destroy(m);
}

bool client_send_done(struct client_call *c, uint64_t ms)
{
	return step_within(c, &c->sent, ms);
}

void client_send(struct client_call *c, struct slice message)
{
	client_send_start(c, message);
	step_wait(c, &c->sent);
}

void client_half_close(struct client_call *c)
{
	grpc_op op = op_of(GRPC_OP_SEND_CLOSE_FROM_CLIENT);
	step_start(c, &c->closed, &op, 1);
	step_wait(c, &c->closed);
}

void client_receive_start(struct client_call *c)
{
	grpc_op op = op_of(GRPC_OP_RECV_MESSAGE);
	op.data.recv_message.recv_message = &c->received;
	step_start(c, &c->got, &op, 1);
}

bool client_receive(struct client_call *c, struct buf *ret)
{
	struct buf scratch = { .ptr = NULL };
	struct slice all;
	if (!c->got.started || c->got.done)
		client_receive_start(c);
	step_wait(c, &c->got);
	c->got.started = false;
	if (!c->received)
		return false;
	ck_assert(rpc_message_view(c->received, &scratch, &all));
	if (ret) {
		buf_clear(ret);
		buf_append_slice(ret, all);
	}
	buf_free(&scratch);
	grpc_byte_buffer_destroy(c->received);
	c->received = NULL;
	return true;
}

grpc_status_code client_status(struct client_call *c, const char **ret_text)
{
	/* The library tells it only once all messages have been read. */
	while (client_receive(c, NULL))
		;
	step_wait(c, &c->ended);
	snprintf(c->text_copy, sizeof(c->text_copy), "%.*s", (int)GRPC_SLICE_LENGTH(c->text), (const char *)GRPC_SLICE_START_PTR(c->text));
	if (ret_text)
		*ret_text = c->text_copy;
	return c->code;
}

void client_cancel(struct client_call *c)
{
	grpc_call_cancel(c->rpc, NULL);
}

void client_call_free(struct client_call *c)
{
	struct client_step *all[] = { &c->opened, &c->sent, &c->closed, &c->got, &c->ended };
	if (!c->ended.done)
		client_cancel(c);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (all[i]->started && !all[i]->done)
			step_wait(c, all[i]);
	}
	if (c->received)
		grpc_byte_buffer_destroy(c->received);
	grpc_slice_unref(c->text);
	grpc_metadata_array_destroy(&c->initial);
	grpc_metadata_array_destroy(&c->trailing);
	grpc_call_unref(c->rpc);
	free(c);
}

grpc_status_code client_unary(struct client *client, const char *path, struct slice request, struct buf *ret_reply, char text[256])
{
	struct client_call *c = client_call(client, path, NULL, 0, 0);
	grpc_status_code code;
	const char *said;
	client_send(c, request);
	client_half_close(c);
	client_receive(c, ret_reply);
	code = client_status(c, &said);
	if (text)
		snprintf(text, 256, "%s", said);
	client_call_free(c);
	return code;
}
