/* test_front.c: a real gRPC client against the front end, with a node that has no core behind it. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <grpc/slice.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/pbw.h"
#include "base/rng.h"
#include "client.h"
#include "etcd/rpc.pb-c.h"
#include "fake_node.h"

#define PUT "/etcdserverpb.KV/Put"
#define RANGE "/etcdserverpb.KV/Range"
#define TXN "/etcdserverpb.KV/Txn"
#define LOCK "/v3lockpb.Lock/Lock"
#define KEEP_ALIVE "/etcdserverpb.Lease/LeaseKeepAlive"
#define WATCH "/etcdserverpb.Watch/Watch"
#define OBSERVE "/v3electionpb.Election/Observe"

enum { MAX_REQUEST = 100000, MAX_CALLS = 200 };

static struct node *node;
static struct service *service;
static struct grpc_front *front;
static bool stopped;

static void setup_with(uint64_t request_timeout_ms, uint64_t idle_timeout_ms)
{
	static const struct service_limits limits = { .max_txn_ops = 128, .max_request_bytes = MAX_REQUEST };
	struct grpc_front_config config = {
		.max_concurrent_streams = UINT32_MAX,
		.max_request_bytes = MAX_REQUEST,
		.keepalive_min_time_ms = 5000,
		.keepalive_interval_ms = 7200000,
		.keepalive_timeout_ms = 20000,
		.max_calls = MAX_CALLS,
		.request_timeout_ms = request_timeout_ms,
		.idle_timeout_ms = idle_timeout_ms,
	};
	node = fake_node_new();
	config.service = service = service_new(node, &limits);
	front = grpc_front_new(&config);
	stopped = false;
}

static void setup(void)
{
	setup_with(0, 0);
}

static void setup_impatient(void)
{
	setup_with(300, 600);
}

static void stop(void)
{
	grpc_front_stop(front, 100);
	stopped = true;
}

static void teardown(void)
{
	if (!stopped)
		stop();
	grpc_front_free(front);
	service_free(service);
	fake_node_free(node);
}

#define UNTIL(condition)                                                       \
	do {                                                                   \
		struct timespec moment = { .tv_nsec = 1000000 };               \
		for (int left = 20000; !(condition); left--) {                 \
			ck_assert_msg(left > 0, "never true: " #condition);    \
			nanosleep(&moment, NULL);                              \
		}                                                              \
	} while (0)

static struct slice text(const char *s)
{
	return slice_of_str(s);
}

/* "\x0a" LEN key: field 1 of most requests. */
static struct buf with_name(const char *name)
{
	struct buf b = { .ptr = NULL };
	pbw_bytes(&b, 1, text(name));
	return b;
}

static struct client_call *call_with_name(struct client *c, const char *path, const char *name, uint64_t deadline_ms)
{
	struct client_call *call = client_call(c, path, NULL, 0, deadline_ms);
	struct buf b = with_name(name);
	client_send(call, buf_view(&b));
	buf_free(&b);
	return call;
}

static void expect(struct client_call *c, grpc_status_code code, const char *said)
{
	const char *got;
	grpc_status_code got_code = client_status(c, &got);
	ck_assert_str_eq(got, said);
	ck_assert_int_eq(got_code, code);
}

/* ---- unary ---- */

START_TEST(locks__the_librarys_graph_can_be_switched_off)
{
	ck_assert(rpc_no_lock_graph()); /* else every call costs more than it need: see rpc.h */
}
END_TEST

START_TEST(unary__requests_are_answered)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct buf put = with_name("a"), reply = { .ptr = NULL };
	for (int i = 0; i < 300; i++)
		ck_assert_int_eq(client_unary(c, PUT, buf_view(&put), &reply, NULL), GRPC_STATUS_OK);
	ck_assert_uint_eq(fake_node_figures(node).calls, 300);
	buf_free(&put);
	buf_free(&reply);
	client_free(c);
}
END_TEST

START_TEST(unary__an_error_has_its_code_and_its_text)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	char said[256], number[16];
	struct buf b = { .ptr = NULL };
	for (int e = 1; e < ERR_COUNT; e++) {
		buf_clear(&b);
		snprintf(number, sizeof(number), "%d", e);
		pbw_bytes(&b, 1, text("err"));
		pbw_bytes(&b, 2, text(number));
		ck_assert_int_eq(client_unary(c, PUT, buf_view(&b), NULL, said), (int)err_status((enum err)e));
		ck_assert_str_eq(said, err_text((enum err)e));
	}
	buf_free(&b);
	client_free(c);
}
END_TEST

START_TEST(unary__large_replies_arrive_whole)
{
	static const int64_t sizes[] = { 1, 1000, 16384, 65536, 1000000, 8000000 };
	struct client *c = client_new(front, "192.0.2.1:1");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct buf range = with_name("a"), reply = { .ptr = NULL };
		pbw_i64(&range, 3, sizes[i]);
		ck_assert_int_eq(client_unary(c, RANGE, buf_view(&range), &reply, NULL), GRPC_STATUS_OK);
		ck_assert_uint_gt(reply.len, (size_t)sizes[i]);
		ck_assert_uint_lt(reply.len, (size_t)sizes[i] + 20);
		buf_free(&range);
		buf_free(&reply);
	}
	client_free(c);
}
END_TEST

START_TEST(unary__bad_requests)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct buf b = with_name("a"), inner = { .ptr = NULL };
	char said[256];
	static uint8_t value[MAX_REQUEST + 700 * 1024];

	ck_assert_int_eq(client_unary(c, PUT, text("\xff\xff"), NULL, said), GRPC_STATUS_INTERNAL);
	ck_assert_str_eq(said, "holdfast: malformed request");

	pbw_bytes(&b, 2, slice_of(value, MAX_REQUEST));
	ck_assert_int_eq(client_unary(c, PUT, buf_view(&b), NULL, said), GRPC_STATUS_INVALID_ARGUMENT);
	ck_assert_str_eq(said, "etcdserver: request is too large");

	pbw_bytes(&b, 2, slice_of(value, sizeof(value)));
	ck_assert_int_eq(client_unary(c, PUT, buf_view(&b), NULL, said), GRPC_STATUS_RESOURCE_EXHAUSTED);

	for (int i = 0; i < 5000; i++) {
		struct buf op = { .ptr = NULL };
		pbw_bytes_always(&op, i % 2 ? 2 : 4, buf_view(&inner));
		buf_free(&inner);
		inner = op;
	}
	ck_assert_int_eq(client_unary(c, TXN, buf_view(&inner), NULL, said), GRPC_STATUS_INVALID_ARGUMENT);
	ck_assert_str_eq(said, "holdfast: the request is nested too deeply");
	ck_assert_uint_eq(fake_node_figures(node).calls, 0);

	buf_clear(&b);
	pbw_bytes(&b, 1, text("a"));
	ck_assert_int_eq(client_unary(c, PUT, buf_view(&b), NULL, said), GRPC_STATUS_OK); /* none the worse */
	buf_free(&b);
	buf_free(&inner);
	client_free(c);
}
END_TEST

START_TEST(unary__methods_that_are_not_there)
{
	static const struct {
		const char *path, *said;
	} cases[] = {
		{ "/etcdserverpb.KV/Nope", "unknown method Nope for service etcdserverpb.KV" },
		{ "/nope.KV/Put", "unknown service nope.KV" },
		{ "/nope", "malformed method name" },
	};
	struct client *c = client_new(front, "192.0.2.1:1");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		/* At once: neither message nor half close is waited for. */
		struct client_call *call = client_call(c, cases[i].path, NULL, 0, 0);
		expect(call, GRPC_STATUS_UNIMPLEMENTED, cases[i].said);
		client_call_free(call);
	}
	client_free(c);
}
END_TEST

START_TEST(unary__no_message_is_an_error)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *call = client_call(c, PUT, NULL, 0, 0);
	client_half_close(call);
	expect(call, GRPC_STATUS_INTERNAL, "holdfast: malformed request");
	client_call_free(call);
	client_free(c);
}
END_TEST

START_TEST(unary__a_refusal_carries_its_details)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *call = client_call(c, LOCK, NULL, 0, 0);
	struct buf b = with_name("l"), want = { .ptr = NULL };
	struct slice details;
	size_t any;
	pbw_u64_always(&b, 101, 0);
	client_send(call, buf_view(&b));
	expect(call, GRPC_STATUS_FAILED_PRECONDITION, "holdfast: the lock is held");
	pbw_u64(&want, 1, GRPC_STATUS_FAILED_PRECONDITION);
	pbw_bytes(&want, 2, text("holdfast: the lock is held"));
	any = pbw_open(&want, 3);
	pbw_bytes(&want, 1, text("type.googleapis.com/holdfast.v1.LockRefusal"));
	pbw_bytes(&want, 2, text("refused"));
	pbw_close(&want, any);
	ck_assert(rpc_metadata_find(&call->trailing, "grpc-status-details-bin", &details));
	ck_assert(slice_eq(details, buf_view(&want)));
	buf_free(&b);
	buf_free(&want);
	client_call_free(call);
	client_free(c);
}
END_TEST

/* ---- what goes along ---- */

START_TEST(metadata__reaches_the_node)
{
	static const struct client_metadata md[] = {
		{ "holdfast-session", "-77" }, { "holdfast-request", "5" }, { "holdfast-first-unanswered", "4" }, { "x-other", "z" },
	};
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *call = client_call(c, PUT, md, 4, 0);
	struct buf b = with_name("a");
	struct fake_figures f;
	client_send(call, buf_view(&b));
	expect(call, GRPC_STATUS_OK, "");
	f = fake_node_figures(node);
	ck_assert_int_eq(f.session, -77);
	ck_assert_uint_eq(f.request_id, 5);
	ck_assert_uint_eq(f.first_unanswered, 4);
	buf_free(&b);
	client_call_free(call);
	client_free(c);
}
END_TEST

START_TEST(metadata__malformed_is_refused)
{
	static const struct client_metadata md = { "holdfast-session", "0x77" };
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *call = client_call(c, PUT, &md, 1, 0);
	expect(call, GRPC_STATUS_INVALID_ARGUMENT, "holdfast: malformed metadata in the request");
	client_call_free(call);
	client_free(c);
}
END_TEST

START_TEST(metadata__need_of_a_leader)
{
	static const struct client_metadata md = { "hasleader", "true" };
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *watch = client_call(c, WATCH, &md, 1, 0), *call;
	UNTIL(fake_node_figures(node).streams == 1);
	fake_node_set_leaderless(node, 3000);
	expect(watch, GRPC_STATUS_UNAVAILABLE, "etcdserver: no leader"); /* after a while */
	call = client_call(c, PUT, &md, 1, 0);
	expect(call, GRPC_STATUS_UNAVAILABLE, "etcdserver: no leader"); /* at once, by then */
	client_call_free(call);
	client_call_free(watch);
	client_free(c);
}
END_TEST

START_TEST(address__is_the_callers_own)
{
	struct buf b = with_name("a");
	char address[32];
	for (int i = 0; i < 50; i++) {
		struct client *c;
		snprintf(address, sizeof(address), "192.0.2.1:%d", i);
		c = client_new(front, address);
		ck_assert_int_eq(client_unary(c, PUT, buf_view(&b), NULL, NULL), GRPC_STATUS_OK);
		ck_assert_str_eq(fake_node_figures(node).client, address);
		client_free(c);
	}
	buf_free(&b);
}
END_TEST

/* ---- callers who leave ---- */

START_TEST(leaving__a_cancelled_wait_is_given_up)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *call = call_with_name(c, LOCK, "l", 0);
	UNTIL(fake_node_figures(node).waiting == 1);
	client_cancel(call);
	UNTIL(fake_node_figures(node).waiting == 0);
	client_call_free(call);
	client_free(c);
}
END_TEST

START_TEST(leaving__a_deadline_gives_up_too)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *call = call_with_name(c, LOCK, "l", 200);
	ck_assert_int_eq(client_status(call, NULL), GRPC_STATUS_DEADLINE_EXCEEDED);
	UNTIL(fake_node_figures(node).cancels == 1 && fake_node_figures(node).waiting == 0);
	client_call_free(call);
	client_free(c);
}
END_TEST

START_TEST(leaving__a_broken_connection_takes_its_calls_along)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *calls[] = {
		call_with_name(c, LOCK, "l", 0), call_with_name(c, LOCK, "m", 0), client_call(c, WATCH, NULL, 0, 0), call_with_name(c, OBSERVE, "e", 0),
		client_call(c, KEEP_ALIVE, NULL, 0, 0),
	};
	UNTIL(fake_node_figures(node).waiting == 2 && fake_node_figures(node).streams == 2);
	client_break(c);
	UNTIL(fake_node_figures(node).waiting == 0 && fake_node_figures(node).streams == 0);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		client_call_free(calls[i]);
	client_free(c);
}
END_TEST

START_TEST(leaving__while_an_answer_is_on_its_way)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *calls[20];
	fake_node_hold(node, true);
	for (int i = 0; i < 20; i++)
		calls[i] = call_with_name(c, PUT, "a", 0);
	UNTIL(fake_node_figures(node).waiting == 20);
	for (int i = 0; i < 20; i += 2)
		client_cancel(calls[i]);
	fake_node_hold(node, false);
	for (int i = 1; i < 20; i += 2)
		expect(calls[i], GRPC_STATUS_OK, "");
	for (int i = 0; i < 20; i++)
		client_call_free(calls[i]);
	client_free(c);
}
END_TEST

/* ---- keep-alive streams ---- */

static struct slice renewal(uint8_t id)
{
	static uint8_t bytes[2];
	bytes[0] = 8;
	bytes[1] = id;
	return slice_of(bytes, 2);
}

START_TEST(keep_alive__answers_in_order_and_ends_well)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *call = client_call(c, KEEP_ALIVE, NULL, 0, 0);
	struct buf reply = { .ptr = NULL };
	fake_node_reverse(node, true);
	for (int round = 0; round < 20; round++) {
		fake_node_hold(node, true);
		for (uint8_t i = 1; i <= 30; i++)
			client_send(call, renewal(i));
		fake_node_hold(node, false);
		for (uint8_t i = 1; i <= 30; i++) {
			ck_assert(client_receive(call, &reply));
			ck_assert_uint_eq(reply.ptr[1], i);
		}
	}
	client_send(call, renewal(99));
	client_half_close(call);
	ck_assert(client_receive(call, &reply));
	ck_assert(!client_receive(call, &reply));
	expect(call, GRPC_STATUS_OK, "");
	buf_free(&reply);
	client_call_free(call);
	client_free(c);
}
END_TEST

/* With a stream's first replies goes its initial metadata, and nothing else is there to push them out. */
START_TEST(keep_alive__a_first_burst_is_sent)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	for (int round = 0; round < 100; round++) {
		struct client_call *call = client_call(c, KEEP_ALIVE, NULL, 0, 0);
		fake_node_hold(node, true);
		for (uint8_t i = 1; i <= 5; i++)
			client_send(call, renewal(i));
		UNTIL(fake_node_figures(node).waiting == 5);
		fake_node_hold(node, false);
		for (uint8_t i = 1; i <= 5; i++)
			ck_assert(client_receive(call, NULL));
		client_call_free(call);
	}
	client_free(c);
}
END_TEST

START_TEST(keep_alive__at_most_so_many_are_under_way)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *call = client_call(c, KEEP_ALIVE, NULL, 0, 0);
	fake_node_hold(node, true);
	for (int i = 0; i < 500; i++) {
		client_send_start(call, renewal(7));
		if (!client_send_done(call, 2000))
			break;
	}
	UNTIL(fake_node_figures(node).waiting == SERVICE_UNACKED);
	fake_node_hold(node, false);
	for (int i = 0; i < 500; i++)
		ck_assert(client_receive(call, NULL));
	ck_assert_uint_eq(fake_node_figures(node).calls, 500);
	ck_assert_uint_le(fake_node_figures(node).most_held, SERVICE_UNACKED);
	client_call_free(call);
	client_free(c);
}
END_TEST

START_TEST(keep_alive__a_malformed_message_ends_it)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *call = client_call(c, KEEP_ALIVE, NULL, 0, 0);
	client_send(call, renewal(1));
	client_send(call, text("\xff"));
	ck_assert(client_receive(call, NULL));
	expect(call, GRPC_STATUS_INTERNAL, "holdfast: malformed request");
	client_call_free(call);
	client_free(c);
}
END_TEST

/* ---- streams that the node drives ---- */

static struct buf create_watch(const char *key)
{
	struct buf b = { .ptr = NULL };
	size_t create = pbw_open(&b, 1);
	pbw_bytes(&b, 1, text(key));
	pbw_close(&b, create);
	return b;
}

/* The first message is "created". */
static struct client_call *watch_key(struct client *c, const char *key)
{
	struct client_call *call = client_call(c, WATCH, NULL, 0, 0);
	struct buf b = create_watch(key);
	client_send(call, buf_view(&b));
	buf_free(&b);
	return call;
}

START_TEST(watch__outlives_its_half_close)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *call = watch_key(c, "a");
	ck_assert(client_receive(call, NULL));
	client_half_close(call);
	client_receive_start(call);
	nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
	ck_assert_uint_eq(fake_node_figures(node).streams, 1);
	client_cancel(call);
	UNTIL(fake_node_figures(node).streams == 0);
	client_call_free(call);
	client_free(c);
}
END_TEST

START_TEST(watch__a_flood_is_read_in_full)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *call = watch_key(c, "flood");
	struct buf reply = { .ptr = NULL };
	ck_assert(client_receive(call, NULL));
	for (int i = 0; i < 5000; i++) {
		ck_assert(client_receive(call, &reply));
		ck_assert_uint_gt(reply.len, 1000);
	}
	buf_free(&reply);
	client_call_free(call);
	UNTIL(fake_node_figures(node).streams == 0);
	client_free(c);
}
END_TEST

START_TEST(watch__a_reader_who_does_not_read_stops_the_flood)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *call = watch_key(c, "flood");
	uint64_t before = 0, now;
	ck_assert(client_receive(call, NULL));
	/* The client's queue is not run, so nothing is read from the socket. */
	for (int still = 0; still < 5;) {
		nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
		now = fake_node_figures(node).outputs;
		still = now == before ? still + 1 : 0;
		before = now;
	}
	ck_assert_uint_lt(before, 2000); /* outputs of 10 KB: what sockets hold */
	for (int i = 0; i < 1000; i++)
		ck_assert(client_receive(call, NULL));
	client_call_free(call);
	UNTIL(fake_node_figures(node).streams == 0);
	client_free(c);
}
END_TEST

START_TEST(observe__ends_with_the_nodes_error)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *call = call_with_name(c, OBSERVE, "end", 0);
	ck_assert(client_receive(call, NULL));
	ck_assert(!client_receive(call, NULL));
	expect(call, GRPC_STATUS_UNKNOWN, "election: no leader");
	client_call_free(call);
	client_free(c);
}
END_TEST

/* ---- many ---- */

START_TEST(many__more_calls_than_allowed_are_refused)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *calls[MAX_CALLS], *one_more;
	for (int i = 0; i < MAX_CALLS; i++)
		calls[i] = call_with_name(c, LOCK, "l", 0);
	UNTIL(fake_node_figures(node).waiting == MAX_CALLS);
	one_more = client_call(c, LOCK, NULL, 0, 0);
	expect(one_more, GRPC_STATUS_RESOURCE_EXHAUSTED, "etcdserver: too many requests");
	client_call_free(one_more);
	fake_node_grant(node);
	for (int i = 0; i < MAX_CALLS; i++) {
		expect(calls[i], GRPC_STATUS_OK, "");
		client_call_free(calls[i]);
	}
	one_more = call_with_name(c, PUT, "a", 0);
	expect(one_more, GRPC_STATUS_OK, "");
	client_call_free(one_more);
	client_free(c);
}
END_TEST

/* Calls of all kinds come, are cancelled, answered and broken in an order that the seed gives. */
START_TEST(many__in_any_order)
{
	struct client *clients[4];
	struct client_call *calls[40] = { NULL };
	struct rng rng;
	rng_init(&rng, (uint64_t)_i + 1);
	for (int i = 0; i < 4; i++)
		clients[i] = client_new(front, "192.0.2.1:1");
	for (int step = 0; step < 1500; step++) {
		struct client_call **call = &calls[rng_below(&rng, 40)];
		struct client *c = clients[rng_below(&rng, 4)];
		if (*call) {
			if (rng_chance(&rng, 300000))
				client_cancel(*call);
			client_call_free(*call);
			*call = NULL;
			continue;
		}
		switch (rng_below(&rng, 8)) {
		case 0:
			*call = call_with_name(c, LOCK, "l", rng_chance(&rng, 500000) ? 1 + rng_below(&rng, 20) : 0);
			break;
		case 1:
			*call = watch_key(c, "flood");
			break;
		case 2:
			*call = client_call(c, KEEP_ALIVE, NULL, 0, 0);
			for (uint64_t n = rng_below(&rng, 20); n; n--)
				client_send(*call, renewal(5));
			break;
		case 3:
			fake_node_hold(node, rng_chance(&rng, 300000));
			fake_node_grant(node);
			break;
		case 4:
			*call = call_with_name(c, OBSERVE, "e", 0);
			break;
		default:
			*call = call_with_name(c, PUT, "a", 0);
		}
		if (rng_chance(&rng, 2000))
			client_break(c); /* calls on it fail from then on, at both ends */
	}
	fake_node_hold(node, false);
	for (int i = 0; i < 40; i++) {
		if (calls[i])
			client_call_free(calls[i]);
	}
	UNTIL(fake_node_figures(node).waiting == 0 && fake_node_figures(node).streams == 0);
	for (int i = 0; i < 4; i++)
		client_free(clients[i]);
}
END_TEST

/* Frames of any kind and length behind the preface; most of them end the connection. */
START_TEST(many__rude_connections_harm_nobody)
{
	static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
	static const uint8_t settings[9] = { 0, 0, 0, 4, 0, 0, 0, 0, 0 };
	struct client *c = client_new(front, "192.0.2.1:1");
	struct buf put = with_name("a");
	struct rng rng;
	rng_init(&rng, 7);
	for (int i = 0; i < 200; i++) {
		int fd = client_raw(front, "192.0.2.1:2");
		uint8_t bytes[512];
		size_t len = rng_below(&rng, sizeof(bytes) - 9);
		for (size_t at = 0; at < sizeof(bytes); at++)
			bytes[at] = (uint8_t)rng_next(&rng);
		bytes[0] = bytes[1] = 0;
		bytes[2] = (uint8_t)rng_below(&rng, 64);
		bytes[3] = (uint8_t)rng_below(&rng, 11);
		bytes[5] = bytes[6] = bytes[7] = 0;
		bytes[8] = (uint8_t)rng_below(&rng, 4);
		if (rng_chance(&rng, 900000))
			ck_assert_int_eq(write(fd, preface, sizeof(preface) - 1), sizeof(preface) - 1);
		if (rng_chance(&rng, 900000))
			ck_assert_int_ge(send(fd, settings, sizeof(settings), MSG_NOSIGNAL), -1);
		ck_assert_int_ge(send(fd, bytes, len + 9, MSG_NOSIGNAL), -1);
		if (rng_chance(&rng, 500000))
			shutdown(fd, SHUT_WR);
		if (i % 20 == 0)
			ck_assert_int_eq(client_unary(c, PUT, buf_view(&put), NULL, NULL), GRPC_STATUS_OK);
		close(fd);
	}
	buf_free(&put);
	client_free(c);
}
END_TEST

/* ---- stopping ---- */

START_TEST(stop__open_calls_are_told)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *calls[] = { call_with_name(c, LOCK, "l", 0), watch_key(c, "a"), client_call(c, KEEP_ALIVE, NULL, 0, 0),
					call_with_name(c, OBSERVE, "e", 0) };
	struct timespec before, after;
	client_send(calls[2], renewal(1));
	ck_assert(client_receive(calls[2], NULL));
	UNTIL(fake_node_figures(node).waiting == 1 && fake_node_figures(node).streams == 2);
	clock_gettime(CLOCK_MONOTONIC, &before);
	stop();
	clock_gettime(CLOCK_MONOTONIC, &after);
	ck_assert_int_le(after.tv_sec - before.tv_sec, 5);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		expect(calls[i], GRPC_STATUS_UNAVAILABLE, "etcdserver: server stopped");
		client_call_free(calls[i]);
	}
	client_free(c);
}
END_TEST

START_TEST(stop__gives_short_calls_time_to_end)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *call = call_with_name(c, LOCK, "l", 0);
	UNTIL(fake_node_figures(node).waiting == 1);
	fake_node_grant(node);
	stop();
	expect(call, GRPC_STATUS_OK, "");
	client_call_free(call);
	client_free(c);
}
END_TEST

START_TEST(stop__a_client_that_reads_nothing_does_not_hold_it_up)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *call = watch_key(c, "flood");
	nanosleep(&(struct timespec){ .tv_nsec = 300000000 }, NULL);
	stop();
	client_call_free(call);
	client_free(c);
}
END_TEST

START_TEST(stop__later_connections_are_closed)
{
	int fds[2];
	char byte;
	stop();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	grpc_front_adopt(front, fds[1], identity_of_address("192.0.2.1:1"));
	ck_assert_int_eq(read(fds[0], &byte, 1), 0);
	close(fds[0]);
}
END_TEST

/* ---- who takes their time: with a front end that has little ---- */

START_TEST(slow__a_request_that_does_not_come_is_given_up)
{
	struct client *c = client_new(front, "192.0.2.1:1");
	struct client_call *unary = client_call(c, PUT, NULL, 0, 30000), *stream = client_call(c, WATCH, NULL, 0, 30000);
	const char *why;
	ck_assert_int_eq(client_status(unary, &why), GRPC_STATUS_DEADLINE_EXCEEDED);
	client_call_free(unary);
	/* A stream may be silent for as long as it likes. */
	nanosleep(&(struct timespec){ .tv_sec = 1, .tv_nsec = 500000000 }, NULL);
	client_cancel(stream);
	ck_assert_int_eq(client_status(stream, &why), GRPC_STATUS_CANCELLED);
	client_call_free(stream);
	client_free(c);
}
END_TEST

START_TEST(slow__a_connection_without_calls_is_closed)
{
	static const char *const starts[] = { "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\4\1" };
	int fd = client_raw(front, "192.0.2.1:1");
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char bytes[256];
	ssize_t n = 1;
	ck_assert_int_gt(send(fd, starts[_i], _i ? 28 : 24, MSG_NOSIGNAL), 0);
	while (n > 0) {
		ck_assert_msg(poll(&p, 1, 20000) == 1, "still open");
		n = recv(fd, bytes, sizeof(bytes), 0);
	}
	ck_assert(n == 0 || errno == ECONNRESET);
	close(fd);
}
END_TEST

static void add_impatient_tests(TCase *t)
{
	tcase_add_test(t, slow__a_request_that_does_not_come_is_given_up);
	tcase_add_loop_test(t, slow__a_connection_without_calls_is_closed, 0, 2);
}

static void add_tests(TCase *t)
{
	tcase_add_test(t, unary__requests_are_answered);
	tcase_add_test(t, unary__an_error_has_its_code_and_its_text);
	tcase_add_test(t, unary__large_replies_arrive_whole);
	tcase_add_test(t, unary__bad_requests);
	tcase_add_test(t, unary__methods_that_are_not_there);
	tcase_add_test(t, unary__no_message_is_an_error);
	tcase_add_test(t, unary__a_refusal_carries_its_details);
	tcase_add_test(t, metadata__reaches_the_node);
	tcase_add_test(t, metadata__malformed_is_refused);
	tcase_add_test(t, metadata__need_of_a_leader);
	tcase_add_test(t, address__is_the_callers_own);
	tcase_add_test(t, leaving__a_cancelled_wait_is_given_up);
	tcase_add_test(t, leaving__a_deadline_gives_up_too);
	tcase_add_test(t, leaving__a_broken_connection_takes_its_calls_along);
	tcase_add_test(t, leaving__while_an_answer_is_on_its_way);
	tcase_add_test(t, keep_alive__answers_in_order_and_ends_well);
	tcase_add_test(t, keep_alive__a_first_burst_is_sent);
	tcase_add_test(t, keep_alive__at_most_so_many_are_under_way);
	tcase_add_test(t, keep_alive__a_malformed_message_ends_it);
	tcase_add_test(t, watch__outlives_its_half_close);
	tcase_add_test(t, watch__a_flood_is_read_in_full);
	tcase_add_test(t, watch__a_reader_who_does_not_read_stops_the_flood);
	tcase_add_test(t, observe__ends_with_the_nodes_error);
	tcase_add_test(t, many__more_calls_than_allowed_are_refused);
	tcase_add_loop_test(t, many__in_any_order, 0, 4);
	tcase_add_test(t, many__rude_connections_harm_nobody);
	tcase_add_test(t, stop__open_calls_are_told);
	tcase_add_test(t, stop__gives_short_calls_time_to_end);
	tcase_add_test(t, stop__a_client_that_reads_nothing_does_not_hold_it_up);
	tcase_add_test(t, stop__later_connections_are_closed);
	tcase_add_test(t, locks__the_librarys_graph_can_be_switched_off);
}

int main(void)
{
	Suite *s = suite_create("grpc");
	TCase *t = tcase_create("front"), *impatient = tcase_create("impatient");
	SRunner *sr;
	int failed;
	/* Fixtures run in the test's own process: the library is not made to be forked once it is initialised. */
	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, setup, teardown);
	add_tests(t);
	suite_add_tcase(s, t);
	tcase_set_timeout(impatient, 120);
	tcase_add_checked_fixture(impatient, setup_impatient, teardown);
	add_impatient_tests(impatient);
	suite_add_tcase(s, impatient);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
