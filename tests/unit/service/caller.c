#include "caller.h"

#include <check.h>
#include <stdio.h>
#include <time.h>

#include "base/mem.h"

static struct test_caller *caller_of(struct service_call *call)
{
	return CONTAINER_OF(call, struct test_caller, call);
}

static void on_reply(struct service_call *call, struct buf *messages)
{
	struct test_caller *c = caller_of(call);
	size_t at = 0;
	pthread_mutex_lock(&c->mu);
	ck_assert(!c->finished);
	while (at < messages->len) {
		const uint8_t *p = messages->ptr + at;
		size_t len = (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
		ck_assert_uint_le(at + 4 + len, messages->len);
		ck_assert_uint_lt(c->replies_len, CALLER_REPLIES_MAX);
		c->replies[c->replies_len++] = buf_copy_of(slice_of(p + 4, len));
		at += 4 + len;
	}
	c->reply_calls++;
	pthread_cond_broadcast(&c->change);
	pthread_mutex_unlock(&c->mu);
	buf_free(messages);
}

static void on_finish(struct service_call *call, enum err e, const char *detail, struct slice details)
{
	struct test_caller *c = caller_of(call);
	pthread_mutex_lock(&c->mu);
	ck_assert(!c->finished);
	c->finished = true;
	c->err = e;
	snprintf(c->detail, sizeof(c->detail), "%s", detail ? detail : "");
	c->details = buf_copy_of(details);
	pthread_cond_broadcast(&c->change);
	pthread_mutex_unlock(&c->mu);
}

static void on_ready(struct service_call *call)
{
	struct test_caller *c = caller_of(call);
	pthread_mutex_lock(&c->mu);
	c->ready++;
	pthread_cond_broadcast(&c->change);
	pthread_mutex_unlock(&c->mu);
}

static const struct service_ops ops = { on_reply, on_finish, on_ready };

struct test_caller *caller_new(enum method_id method)
{
	struct test_caller *c = mem_zalloc(sizeof(*c));
	pthread_mutex_init(&c->mu, NULL);
	pthread_cond_init(&c->change, NULL);
	c->call.ops = &ops;
	c->call.method = method_by_id(method);
	return c;
}

void caller_start(struct test_caller *c, struct service *s)
{
	service_start(s, &c->call);
}

bool caller_send_bytes(struct test_caller *c, const void *bytes, size_t len)
{
	/* Memory of its very length, gone at once: the service must not keep it. */
	struct buf copy = buf_copy_of(slice_of(bytes, len));
	bool more = service_message(&c->call, buf_view(&copy));
	buf_free(&copy);
	return more;
}

bool caller_send(struct test_caller *c, const ProtobufCMessage *m)
{
	size_t len = protobuf_c_message_get_packed_size(m);
	uint8_t *bytes = mem_alloc(len + 1);
	bool more;
	protobuf_c_message_pack(m, bytes);
	more = caller_send_bytes(c, bytes, len);
	free(bytes);
	return more;
}

static void wait_change(struct test_caller *c)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	ck_assert_int_eq(pthread_cond_timedwait(&c->change, &c->mu, &until), 0);
}

void caller_wait_finished(struct test_caller *c, enum err e)
{
	pthread_mutex_lock(&c->mu);
	while (!c->finished)
		wait_change(c);
	ck_assert_str_eq(err_name(c->err), err_name(e));
	pthread_mutex_unlock(&c->mu);
}

void caller_wait_replies(struct test_caller *c, size_t len)
{
	pthread_mutex_lock(&c->mu);
	while (c->replies_len < len)
		wait_change(c);
	pthread_mutex_unlock(&c->mu);
}

void caller_free(struct test_caller *c)
{
	pthread_mutex_lock(&c->mu);
	while (!c->finished)
		wait_change(c);
	pthread_mutex_unlock(&c->mu);
	service_end(&c->call);
	for (size_t i = 0; i < c->replies_len; i++)
		buf_free(&c->replies[i]);
	buf_free(&c->details);
	pthread_mutex_destroy(&c->mu);
	pthread_cond_destroy(&c->change);
	free(c);
}
