/* stream_test.c: the life of a stream: opened, driven by who reads, ended once. */
#include <check.h>

#include "base/mem.h"
#include "client.h"
#include "etcd/rpc.pb-c.h"
#include "etcd/v3election.pb-c.h"
#include "main.h"

static const struct cell_options one = { .replicas = 1 };

struct reader {
	struct submit_stream base;
	struct replica *replica;
	pthread_mutex_t mu;
	/* guarded by mu */
	unsigned outputs, finished, unread; /* unread: since the last writable */
	unsigned created, events;
	enum err err;
};

static void count(struct reader *r, struct slice message)
{
	Etcdserverpb__WatchResponse *w = etcdserverpb__watch_response__unpack(NULL, message.len, message.ptr);
	ck_assert_ptr_nonnull(w);
	r->created += w->created != 0;
	r->events += (unsigned)w->n_events;
	etcdserverpb__watch_response__free_unpacked(w, NULL);
}

static void on_output(struct submit_stream *s, struct buf *messages, bool finished, enum err err)
{
	struct reader *r = CONTAINER_OF(s, struct reader, base);
	pthread_mutex_lock(&r->mu);
	ck_assert_uint_eq(r->finished, 0);
	if (messages->len && r->base.method == METHOD_WATCH_WATCH) {
		for (size_t at = 0; at < messages->len;) {
			uint32_t len;
			memcpy(&len, messages->ptr + at, 4);
			count(r, slice_of(messages->ptr + at + 4, len));
			at += 4 + len;
		}
	}
	if (messages->len) {
		r->outputs++;
		ck_assert_uint_eq(r->unread, 0); /* the next one only when it was asked for */
		r->unread = 1;
	}
	r->finished += finished;
	r->err = err;
	pthread_mutex_unlock(&r->mu);
	buf_free(messages);
}

static struct reader *reader_new(struct replica *replica, enum method_id method, struct slice bytes)
{
	struct reader *r = mem_zalloc(sizeof(*r));
	r->replica = replica;
	r->base.method = method;
	r->base.client = slice_of_str("127.0.0.1:7");
	r->base.output = on_output;
	pthread_mutex_init(&r->mu, NULL);
	ck_assert_int_eq(node_stream_open(replica->node, &r->base, bytes), ERR_OK);
	return r;
}

static struct reader reader_look(struct reader *r)
{
	struct reader copy;
	pthread_mutex_lock(&r->mu);
	copy = *r;
	pthread_mutex_unlock(&r->mu);
	return copy;
}

static void reader_read(struct reader *r)
{
	pthread_mutex_lock(&r->mu);
	r->unread = 0;
	pthread_mutex_unlock(&r->mu);
	node_stream_writable(r->replica->node, r->base.tag);
}

static void reader_free(struct reader *r)
{
	ck_assert_uint_eq(r->finished, 1);
	pthread_mutex_destroy(&r->mu);
	free(r);
}

static void watch_key(struct reader *r, const char *key)
{
	Etcdserverpb__WatchCreateRequest create = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
	Etcdserverpb__WatchRequest q = ETCDSERVERPB__WATCH_REQUEST__INIT;
	uint8_t bytes[256];
	create.key = (ProtobufCBinaryData){ strlen(key), (uint8_t *)(uintptr_t)key };
	q.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	q.create_request = &create;
	node_stream_message(r->replica->node, r->base.tag, slice_of(bytes, etcdserverpb__watch_request__pack(&q, bytes)));
}

START_TEST(stream__a_watch_sees_what_is_put_until_it_is_closed)
{
	struct cell *c = cell_started(&one);
	struct replica *r = &c->replicas[0];
	struct reader *w;
	cell_leader(c);
	w = reader_new(r, METHOD_WATCH_WATCH, slice_of(NULL, 0));
	watch_key(w, "k");
	WAIT_UNTIL(reader_look(w).created == 1);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(put(r, "k", "v"), ERR_OK);
	ck_assert_uint_eq(reader_look(w).outputs, 1); /* nobody has read the first yet */
	while (reader_look(w).events < 20)
		reader_read(w), pause_ms(1);
	ck_assert_uint_eq(reader_look(w).events, 20);
	node_stream_close(r->node, w->base.tag);
	WAIT_UNTIL(reader_look(w).finished == 1);
	node_stream_close(r->node, w->base.tag); /* once more, and late messages: harmless */
	watch_key(w, "k");
	ck_assert_int_eq(put(r, "k", "v"), ERR_OK);
	reader_free(w);
	cell_free(c);
}
END_TEST

START_TEST(stream__messages_have_a_bound_in_bytes_and_closings_none)
{
	struct cell_options o = one;
	uint8_t bytes[100] = { 0 };
	struct cell *c;
	struct replica *r;
	struct reader *w;
	unsigned taken = 0;
	o.max_queued_stream_bytes = 1000;
	c = cell_started(&o);
	r = &c->replicas[0];
	cell_leader(c);
	w = reader_new(r, METHOD_WATCH_WATCH, slice_of(NULL, 0));
	replica_block(r, true);
	while (taken < 100 && node_stream_message(r->node, w->base.tag, slice_of(bytes, sizeof(bytes))) == ERR_OK) {
		taken++;
		pause_ms(1);
	}
	ck_assert_uint_ge(taken, 10);
	ck_assert_uint_le(taken, 20);
	ck_assert_int_eq(node_stream_message(r->node, w->base.tag, slice_of(bytes, sizeof(bytes))), ERR_OVERLOADED);
	node_stream_close(r->node, w->base.tag);
	replica_block(r, false);
	WAIT_UNTIL(reader_look(w).finished == 1);
	reader_free(w);
	cell_free(c);
}
END_TEST

START_TEST(stream__stop_ends_all)
{
	struct cell *c = cell_started(&one);
	struct replica *r = &c->replicas[0];
	struct reader *w[10], *late;
	cell_leader(c);
	for (int i = 0; i < 10; i++) {
		w[i] = reader_new(r, i % 2 ? METHOD_WATCH_WATCH : METHOD_ELECTION_OBSERVE, i % 2 ? slice_of(NULL, 0) : slice_of("\x0a\x01l", 3));
		if (i % 2)
			watch_key(w[i], "k");
	}
	node_stop(r->node);
	for (int i = 0; i < 10; i++) {
		ck_assert_int_eq(w[i]->err, ERR_STOPPED);
		reader_free(w[i]);
	}
	late = mem_zalloc(sizeof(*late));
	late->base.method = METHOD_WATCH_WATCH;
	late->base.output = on_output;
	ck_assert_int_eq(node_stream_open(r->node, &late->base, slice_of(NULL, 0)), ERR_STOPPED);
	free(late);
	cell_free(c);
}
END_TEST

/* Opened on a replica that knows no leader, closed before anything came of it. */
START_TEST(stream__closed_before_it_began)
{
	struct cell *c = cell_new(&(struct cell_options){ .replicas = 3 });
	struct reader *w;
	cell_start(c, 0);
	for (int i = 0; i < 50; i++) {
		w = reader_new(&c->replicas[0], i % 2 ? METHOD_WATCH_WATCH : METHOD_ELECTION_OBSERVE,
			       i % 2 ? slice_of(NULL, 0) : slice_of("\x0a\x01l", 3));
		if (i % 2)
			watch_key(w, "k");
		node_stream_close(c->replicas[0].node, w->base.tag);
		WAIT_UNTIL(reader_look(w).finished == 1);
		reader_free(w);
	}
	cell_free(c);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		stream__a_watch_sees_what_is_put_until_it_is_closed,
		stream__stop_ends_all,
		stream__messages_have_a_bound_in_bytes_and_closings_none,
		stream__closed_before_it_began,
		NULL,
	};
	return run_tests("node stream", tests);
}
