/* test_gateway.c: HTTP in, HTTP out, and every way in which a client can be slow, rude or gone. */
#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client.h"

static struct setup world;

static void start(void)
{
	signal(SIGPIPE, SIG_IGN);
	setup_start(&world);
}

static void end(void)
{
	setup_end(&world);
}

/* Sends, reads, and checks status and body. */
static void expect(struct client *c, int status, const char *body)
{
	struct response r;
	client_read(c, &r, 20000);
	ck_assert_msg(r.status == status, "%d: %s%s", r.status, (char *)r.head.ptr, (char *)r.body.ptr);
	ck_assert(r.whole);
	if (body)
		ck_assert_str_eq((char *)r.body.ptr, body);
	ck_assert(status == 408 || status == 413 || status == 503 || response_has(&r, "Access-Control-Allow-Origin: *"));
	response_free(&r);
}

static void expect_closed(struct client *c, int within_ms)
{
	struct response r;
	uint64_t begin = mono_ms();
	client_read(c, &r, within_ms);
	ck_assert_int_eq(r.status, 0);
	ck_assert_uint_lt(mono_ms() - begin, (uint64_t)within_ms);
	response_free(&r);
}

#define FIGURE_REACHES(field, value, ms)                                                                               \
	do {                                                                                                           \
		uint64_t until_ = mono_ms() + (ms);                                                                     \
		while (fake_node_figures(world.node).field != (value) && mono_ms() < until_)                            \
			pause_ms(5);                                                                                   \
		ck_assert_uint_eq(fake_node_figures(world.node).field, (value));                                       \
	} while (0)

/* ---- plain requests ---- */

START_TEST(gateway__unary_calls_on_one_connection)
{
	struct client c;
	client_open(&c, &world);
	for (int i = 0; i < 3; i++) {
		client_post(&c, "/v3/kv/put", "{\"key\":\"Zm9v\"}");
		expect(&c, 200, "{}");
	}
	client_post(&c, "/v3beta/kv/range", "{\"key\":\"Zm9v\",\"limit\":\"3\"}");
	expect(&c, 200, "{\"kvs\":[{\"value\":\"AAAA\"}]}");
	client_post(&c, "/v3/kv/lease/leases", "");
	expect(&c, 200, "{}");
	client_close(&c);
}
END_TEST

START_TEST(gateway__pipelined_requests_are_answered_in_order)
{
	struct client c;
	client_open(&c, &world);
	client_send(&c, "POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nContent-Length: 24\r\n\r\n{\"key\":\"Zg==\",\"limit\":1}"
			"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
			"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{\"key\":\r\n7\r\n\"Zg==\"}\r\n0\r\n\r\n");
	expect(&c, 200, "{\"kvs\":[{\"value\":\"AA==\"}]}");
	expect(&c, 400, "{\"error\":\"etcdserver: key is not provided\",\"message\":\"etcdserver: key is not provided\",\"code\":3}");
	expect(&c, 200, "{}");
	client_close(&c);
}
END_TEST

struct request {
	const char *text;
	int status;
	const char *body; /* NULL: any */
	const char *header; /* NULL: any */
};

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"
#define VERB(verb, path) verb " " path " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"

static const struct request requests[] = {
	{ GET("/v3/kv/put"), 405, "Method Not Allowed\n", "x-content-type-options: nosniff" },
	{ VERB("PUT", "/v3/kv/put"), 405, "Method Not Allowed\n", "content-type: text/plain; charset=utf-8" },
	{ VERB("POST", "/v3/kv/nope"), 404, "Not Found\n", "content-type: text/plain; charset=utf-8" },
	{ GET("/"), 404, "Not Found\n", NULL },
	{ VERB("OPTIONS", "/v3/kv/put"), 200, "", "access-control-allow-methods: POST, GET, OPTIONS, PUT, DELETE" },
	{ GET("/health"), 200, "{\"health\":\"true\"}", NULL },
	{ GET("/livez"), 200, "ok\n", NULL },
	{ GET("/livez/"), 404, NULL, NULL },
	{ GET("/livezz"), 404, NULL, NULL },
	{ GET("/readyz?allowlist=data_corruption&verbose"), 200, "[+]data_corruption ok\nok\n", NULL },
	{ GET("/readyz"), 200, "ok\n", NULL },
	{ VERB("POST", "/health"), 405, "Method Not Allowed\n", "allow: GET" },
	{ GET("/version"), 200, "{\"etcdserver\":\"3.5.17\",\"etcdcluster\":\"3.5.0\"}", "content-type: application/json" },
	{ GET("/metrics"), 200, NULL, "content-type: text/plain; version=0.0.4" },
	{ VERB("POST", "/v3/kv/put?a=b"), 400, NULL, NULL },
	{ VERB("POST", "/v3/kv/putt"), 404, NULL, NULL },
	{ "POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n{", 400,
	  "{\"error\":\"unexpected EOF\",\"message\":\"unexpected EOF\",\"code\":3}", "content-type: application/json" },
	{ "POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", 500, NULL, NULL },
	{ "POST /v3/election/observe HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", 400, NULL, NULL },
	{ "POST /v3/lock/lock HTTP/1.1\r\nHost: x\r\nContent-Length: 27\r\n\r\n{\"name\":\"bGs=\",\"wait_ms\":0}", 412,
	  "{\"error\":\"holdfast: the lock is held\",\"message\":\"holdfast: the lock is held\",\"code\":9}", NULL },
	{ "POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nGrpc-Metadata-Holdfast-Session: x\r\nContent-Length: 2\r\n\r\n{}", 400,
	  "{\"error\":\"holdfast: malformed metadata in the request\",\"message\":\"holdfast: malformed metadata in the request\",\"code\":3}", NULL },
	{ "POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nGrpc-Timeout: 5\r\nContent-Length: 2\r\n\r\n{}", 400, NULL, NULL },
	{ "POST /v3/lock/lock HTTP/1.1\r\nHost: x\r\nGrpc-Timeout: 100m\r\nContent-Length: 15\r\n\r\n{\"name\":\"bGs=\"}", 504,
	  "{\"error\":\"etcdserver: context deadline exceeded\",\"message\":\"etcdserver: context deadline exceeded\",\"code\":4}", NULL },
};

START_TEST(gateway__requests)
{
	const struct request *q = &requests[_i];
	struct client c;
	struct response r;
	client_open(&c, &world);
	client_send(&c, q->text);
	client_read(&c, &r, 3000);
	ck_assert_msg(r.status == q->status && r.whole, "%d: %s%s", r.status, (char *)r.head.ptr, (char *)r.body.ptr);
	if (q->body)
		ck_assert_str_eq((char *)r.body.ptr, q->body);
	ck_assert_msg(!q->header || response_has(&r, q->header), "%s", (char *)r.head.ptr);
	response_free(&r);
	client_close(&c);
}
END_TEST

START_TEST(gateway__not_serving_is_not_healthy)
{
	struct client c;
	fake_node_set_leaderless(world.node, 1);
	client_open(&c, &world);
	client_send(&c, GET("/health"));
	expect(&c, 503, "{\"health\":\"false\",\"reason\":\"RAFT NO LEADER\"}\n");
	client_send(&c, GET("/health?serializable=true"));
	expect(&c, 200, "{\"health\":\"true\"}");
	client_send(&c, GET("/readyz"));
	expect(&c, 503, "[+]data_corruption ok\n[+]serializable_read ok\n[-]linearizable_read failed: no leader\n[+]non_learner ok\n");
	client_send(&c, GET("/readyz?exclude=linearizable_read&verbose"));
	expect(&c, 200, "[+]data_corruption ok\n[+]serializable_read ok\n[+]non_learner ok\nok\n");
	client_send(&c, GET("/readyz/serializable_read"));
	expect(&c, 200, "ok\n");
	client_send(&c, GET("/livez?verbose"));
	expect(&c, 200, "[+]serializable_read ok\nok\n");
	client_send(&c, GET("/livez/linearizable_read"));
	expect(&c, 404, "Not Found\n");
	client_close(&c);
}
END_TEST

/* Whoever leads alone believes that he leads for a while: only an answer of the cell counts. */
START_TEST(gateway__health_is_an_answer_of_the_cell)
{
	struct client asks, local, leaves;
	fake_node_hold(world.node, true);
	client_open(&asks, &world);
	client_open(&local, &world);
	client_open(&leaves, &world);
	client_send(&asks, GET("/health"));
	client_send(&leaves, GET("/readyz"));
	FIGURE_REACHES(calls, 2, 3000);
	client_send(&local, GET("/health?serializable=true"));
	expect(&local, 200, "{\"health\":\"true\"}");
	client_send(&local, GET("/livez"));
	expect(&local, 200, "ok\n");
	client_send(&local, GET("/readyz?exclude=linearizable_read"));
	expect(&local, 200, "ok\n");
	ck_assert_uint_eq(fake_node_figures(world.node).calls, 2);
	fake_node_hold(world.node, false);
	expect(&asks, 200, "{\"health\":\"true\"}");
	expect(&leaves, 200, "ok\n");

	fake_node_hold(world.node, true);
	client_send(&asks, GET("/health"));
	client_send(&leaves, GET("/readyz/linearizable_read"));
	FIGURE_REACHES(calls, 4, 3000);
	fake_node_set_leaderless(world.node, 1);
	expect(&asks, 503, "{\"health\":\"false\",\"reason\":\"RAFT NO LEADER\"}\n");
	expect(&leaves, 503, "[-]linearizable_read failed: no leader\n");
	FIGURE_REACHES(cancels, 2, 3000);
	fake_node_set_leaderless(world.node, 0);
	fake_node_hold(world.node, false);

	fake_node_refuse(world.node, ERR_TIMEOUT);
	client_send(&asks, GET("/health"));
	expect(&asks, 503, "{\"health\":\"false\",\"reason\":\"RANGE ERROR:etcdserver: request timed out\"}\n");
	client_send(&leaves, GET("/readyz/linearizable_read"));
	expect(&leaves, 503, "[-]linearizable_read failed: range error: etcdserver: request timed out\n");
	fake_node_refuse(world.node, ERR_OK);

	fake_node_hold(world.node, true);
	client_send(&leaves, GET("/health") GET("/health"));
	client_send(&asks, GET("/health"));
	FIGURE_REACHES(waiting, 2, 3000);
	client_close(&leaves);
	client_close(&local);
	setup_end(&world); /* the one that waits is answered, and the one that left does not keep the loop */
	expect(&asks, 503, "{\"health\":\"false\",\"reason\":\"RANGE ERROR:etcdserver: server stopped\"}\n");
	client_close(&asks);
	setup_start(&world);
}
END_TEST

START_TEST(gateway__errors_of_the_node)
{
	struct client c;
	char body[64], number[16], text[400];
	static const struct {
		enum err err;
		int http, code;
	} errors[] = { { ERR_NO_LEADER, 503, 14 }, { ERR_LEASE_NOT_FOUND, 404, 5 }, { ERR_NO_SPACE, 429, 8 }, { ERR_COMPACTED, 400, 11 },
		       { ERR_PERMISSION_DENIED, 403, 7 }, { ERR_AUTH_INVALID_TOKEN, 401, 16 }, { ERR_ELECTION_NO_LEADER, 500, 2 } };
	client_open(&c, &world);
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		int digits = snprintf(number, sizeof(number), "%03d", (int)errors[i].err);
		ck_assert_int_eq(digits, 3);
		/* "err" and three digits in base64 */
		static const char abc[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
		unsigned v = (unsigned)number[0] << 16 | (unsigned)number[1] << 8 | (unsigned)number[2];
		snprintf(body, sizeof(body), "{\"key\":\"ZXJy\",\"value\":\"%c%c%c%c\"}", abc[v >> 18], abc[v >> 12 & 63], abc[v >> 6 & 63], abc[v & 63]);
		snprintf(text, sizeof(text), "{\"error\":\"%s\",\"message\":\"%s\",\"code\":%d}", err_text(errors[i].err), err_text(errors[i].err), errors[i].code);
		client_post(&c, "/v3/kv/put", body);
		expect(&c, errors[i].http, text);
	}
	client_close(&c);
}
END_TEST

START_TEST(gateway__metadata_reaches_the_node)
{
	struct client c;
	struct fake_figures f;
	client_open(&c, &world);
	client_send(&c, "POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nGrpc-Metadata-Holdfast-Session: -5\r\ngrpc-metadata-holdfast-request: 12\r\n"
			"Grpc-Metadata-Holdfast-First-Unanswered: 3\r\nAuthorization: secret\r\nContent-Length: 14\r\n\r\n{\"key\":\"Zm9v\"}");
	expect(&c, 200, "{}");
	f = fake_node_figures(world.node);
	ck_assert_int_eq(f.session, -5);
	ck_assert_uint_eq(f.request_id, 12);
	ck_assert_uint_eq(f.first_unanswered, 3);
	ck_assert_str_eq(f.client, "127.0.0.1:4242");
	client_close(&c);
}
END_TEST

START_TEST(gateway__large_replies)
{
	struct client c;
	struct response r;
	client_open(&c, &world);
	client_post(&c, "/v3/kv/range", "{\"key\":\"Zm9v\",\"limit\":3000000}");
	client_read(&c, &r, 5000);
	ck_assert_int_eq(r.status, 200);
	ck_assert_uint_eq(r.body.len, 4000000 + strlen("{\"kvs\":[{\"value\":\"\"}]}"));
	response_free(&r);
	client_post(&c, "/v3/kv/put", "{\"key\":\"Zm9v\"}");
	expect(&c, 200, "{}");
	client_close(&c);
}
END_TEST

/* Reads at most that much, or finds the end. */
static size_t read_some(struct client *c, uint8_t *buf, size_t len)
{
	size_t got = 0;
	while (got < len) {
		ssize_t n = recv(c->fd, buf, len - got, 0);
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	return got;
}

START_TEST(gateway__who_does_not_read_his_reply_is_let_go_and_who_is_slow_is_not)
{
	static uint8_t buf[160 * 1024];
	struct client stuck, slow, watcher;
	struct pollfd end;
	size_t got, total = 0;
	struct gateway_config limits = setup_limits();
	limits.write_timeout_ms = 1000;
	limits.idle_timeout_ms = 1000; /* who has read all is done when the connection ends */
	setup_end(&world);
	setup_start_with(&world, limits);
	client_open(&stuck, &world);
	client_open(&slow, &world);
	client_open(&watcher, &world);
	client_post(&watcher, "/v3/watch", "{\"create_request\":{\"key\":\"Zmxvb2Q=\"}}"); /* without end, and nobody reads */
	client_post(&stuck, "/v3/kv/range", "{\"key\":\"Zm9v\",\"limit\":3000000}");
	client_post(&slow, "/v3/kv/range", "{\"key\":\"Zm9v\",\"limit\":3000000}");
	do {
		pause_ms(60);
		got = read_some(&slow, buf, sizeof(buf));
		total += got;
	} while (got == sizeof(buf) && total < 4000000);
	ck_assert_uint_ge(total, 4000000);
	end = (struct pollfd){ .fd = stuck.fd };
	ck_assert_int_eq(poll(&end, 1, 10000), 1);
	ck_assert(end.revents & POLLHUP);
	for (total = 0; (got = read_some(&stuck, buf, sizeof(buf))); total += got)
		;
	ck_assert_uint_lt(total, 4000000);
	end = (struct pollfd){ .fd = watcher.fd };
	ck_assert_int_eq(poll(&end, 1, 0), 0);
	FIGURE_REACHES(streams, 1, 3000);
	client_close(&watcher);
	FIGURE_REACHES(streams, 0, 5000);
	client_close(&stuck);
	client_close(&slow);
}
END_TEST

/* ---- streams ---- */

START_TEST(gateway__keep_alive_answers_each_and_ends)
{
	struct client c;
	client_open(&c, &world);
	client_post(&c, "/v3/lease/keepalive", "{\"ID\":1}{\"ID\":404}\n{\"ID\":\"3\"}");
	expect(&c, 200, "{\"result\":{\"ID\":\"1\",\"TTL\":\"7\"}}\n{\"result\":{\"ID\":\"404\"}}\n{\"result\":{\"ID\":\"3\",\"TTL\":\"7\"}}\n");
	client_post(&c, "/v3/lease/keepalive", "");
	expect(&c, 200, "");
	client_post(&c, "/v3/lease/keepalive", "{\"ID\":1} x {\"ID\":2}");
	expect(&c, 200, "{\"result\":{\"ID\":\"1\",\"TTL\":\"7\"}}\n");
	client_post(&c, "/v3/lease/keepalive", "{\"ID\":500}");
	expect(&c, 503, "{\"error\":\"etcdserver: no leader\",\"message\":\"etcdserver: no leader\",\"code\":14}");
	client_post(&c, "/v3/lease/keepalive", "{\"ID\":1}{\"ID\":500}");
	expect(&c, 200, "{\"result\":{\"ID\":\"1\",\"TTL\":\"7\"}}\n{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":\"etcdserver: no leader\","
			"\"http_status\":\"Service Unavailable\"}}");
	client_close(&c);
}
END_TEST

START_TEST(gateway__many_messages_in_one_body)
{
	struct client c;
	struct response r;
	struct buf body = { .ptr = NULL };
	size_t lines = 0;
	for (int i = 0; i < 5000; i++)
		buf_printf(&body, "{\"ID\":%d}", i % 300 + 1);
	buf_append_byte(&body, 0);
	client_open(&c, &world);
	client_post(&c, "/v3/lease/keepalive", (char *)body.ptr);
	client_read(&c, &r, 10000);
	ck_assert_int_eq(r.status, 200);
	ck_assert(r.whole);
	for (size_t i = 0; i < r.body.len; i++)
		lines += r.body.ptr[i] == '\n';
	ck_assert_uint_eq(lines, 5000);
	response_free(&r);
	buf_free(&body);
	client_close(&c);
}
END_TEST

START_TEST(gateway__a_watch_stays_until_the_client_leaves)
{
	struct client c;
	struct response r;
	client_open(&c, &world);
	client_post(&c, "/v3/watch", "{\"create_request\":{\"key\":\"Zm9v\"}} {\"createRequest\":{\"key\":\"Zm9w\"}}");
	client_read(&c, &r, 500);
	ck_assert_int_eq(r.status, 200);
	ck_assert(r.chunked);
	ck_assert(!r.whole);
	ck_assert(strstr((char *)r.body.ptr, "{\"result\":{") != NULL);
	ck_assert(response_has(&r, "grpc-metadata-content-type: application/grpc"));
	response_free(&r);
	ck_assert_uint_eq(fake_node_figures(world.node).streams, 1);
	client_close(&c);
	FIGURE_REACHES(streams, 0, 1000);
}
END_TEST

START_TEST(gateway__a_reader_that_does_not_read_costs_a_bounded_amount)
{
	struct client c;
	uint64_t outputs, before, until = mono_ms() + 20000;
	client_open(&c, &world);
	client_post(&c, "/v3/watch", "{\"create_request\":{\"key\":\"Zmxvb2Q=\"}}"); /* flood */
	FIGURE_REACHES(streams, 1, 5000);
	outputs = fake_node_figures(world.node).outputs;
	do { /* it stops */
		ck_assert_uint_lt(mono_ms(), until);
		before = outputs;
		pause_ms(300);
		outputs = fake_node_figures(world.node).outputs;
	} while (outputs < 2 || outputs != before);
	client_close(&c);
	FIGURE_REACHES(streams, 0, 1000);
}
END_TEST

START_TEST(gateway__observe_ends_with_an_error)
{
	struct client c;
	struct response r;
	client_open(&c, &world);
	client_post(&c, "/v3/election/observe", "{\"name\":\"ZW5k\"}"); /* end */
	client_read(&c, &r, 2000);
	ck_assert_msg(r.status == 200 || r.status == 500, "%d", r.status);
	ck_assert(r.whole);
	ck_assert(strstr((char *)r.body.ptr, "election: no leader") != NULL);
	response_free(&r);
	client_close(&c);
}
END_TEST

/* ---- clients that go away ---- */

START_TEST(gateway__a_waiter_whose_client_leaves_is_cancelled)
{
	struct client c;
	uint64_t begin;
	client_open(&c, &world);
	client_post(&c, "/v3/lock/lock", "{\"name\":\"bGs=\"}");
	FIGURE_REACHES(waiting, 1, 1000);
	begin = mono_ms();
	client_close(&c);
	FIGURE_REACHES(waiting, 0, 1000);
	ck_assert_uint_lt(mono_ms() - begin, 1000);
}
END_TEST

START_TEST(gateway__a_client_that_closed_its_side_still_gets_a_quick_answer)
{
	struct client c;
	client_open(&c, &world);
	client_post(&c, "/v3/kv/put", "{\"key\":\"Zm9v\"}");
	shutdown(c.fd, SHUT_WR);
	expect(&c, 200, "{}");
	expect_closed(&c, 1000);
	client_close(&c);
}
END_TEST

START_TEST(gateway__a_half_closed_waiter_is_cancelled)
{
	struct client c;
	client_open(&c, &world);
	client_post(&c, "/v3/lock/lock", "{\"name\":\"bGs=\"}");
	shutdown(c.fd, SHUT_WR);
	expect(&c, 408, "{\"error\":\"etcdserver: request canceled\",\"message\":\"etcdserver: request canceled\",\"code\":1}");
	expect_closed(&c, 1000);
	client_close(&c);
}
END_TEST

/* The server stood still: all that the client sent, its leaving too, is there at once. */
START_TEST(gateway__who_left_before_its_request_is_read_is_given_no_hold)
{
	static const char *const paths[] = { "/v3/lock/lock", "/v3/election/campaign" };
	struct client c;
	for (size_t i = 0; i < 2; i++) {
		client_open_left(&c, &world, paths[i], "{\"name\":\"bGs=\"}");
		expect(&c, 408, "{\"error\":\"etcdserver: request canceled\",\"message\":\"etcdserver: request canceled\",\"code\":1}");
		expect_closed(&c, 1000);
		client_close(&c);
	}
	ck_assert_uint_eq(fake_node_figures(world.node).calls, 0);
	client_open_left(&c, &world, "/v3/kv/put", "{\"key\":\"Zm9v\"}");
	expect(&c, 200, "{}");
	client_close(&c);
}
END_TEST

START_TEST(gateway__a_half_closed_stream_ends)
{
	struct client c;
	struct response r;
	client_open(&c, &world);
	client_post(&c, "/v3/watch", "{\"create_request\":{\"key\":\"Zm9v\"}}");
	shutdown(c.fd, SHUT_WR);
	client_read(&c, &r, 3000);
	ck_assert_int_eq(r.status, 200);
	ck_assert(r.whole);
	response_free(&r);
	client_close(&c);
	FIGURE_REACHES(streams, 0, 1000);
}
END_TEST

START_TEST(gateway__a_client_may_leave_at_any_moment)
{
	static const char text[] = "POST /v3/lock/lock HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{\"name\":\"bGs=\"}";
	struct gateway_config limits = setup_limits();
	limits.max_connections = sizeof(text); /* those that left may not have been noticed */
	setup_end(&world);
	setup_start_with(&world, limits);
	for (size_t len = 1; len < sizeof(text); len++) {
		struct client c;
		client_open(&c, &world);
		ck_assert_int_eq(send(c.fd, text, len, 0), (ssize_t)len);
		client_close(&c);
		pause_ms(2);
	}
	FIGURE_REACHES(waiting, 0, 2000);
}
END_TEST

/* ---- limits ---- */

START_TEST(gateway__a_slow_head_is_refused_in_time)
{
	struct client c;
	uint64_t begin = mono_ms();
	client_open(&c, &world);
	client_send(&c, "POST /v3/kv/put HTTP/1.1\r\nHost:");
	expect(&c, 408, NULL);
	ck_assert_uint_lt(mono_ms() - begin, 1000);
	expect_closed(&c, 500);
	client_close(&c);
}
END_TEST

START_TEST(gateway__a_body_that_never_ends_is_refused_in_time)
{
	struct client c;
	uint64_t begin = mono_ms();
	client_open(&c, &world);
	client_send(&c, "POST /v3/watch HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n");
	while (mono_ms() - begin < 300) { /* trickling does not help */
		client_send(&c, "1\r\n \r\n");
		pause_ms(20);
	}
	expect(&c, 408, NULL);
	ck_assert_uint_lt(mono_ms() - begin, 1200);
	client_close(&c);
}
END_TEST

START_TEST(gateway__an_idle_connection_is_closed)
{
	struct gateway_config limits = setup_limits();
	struct client c;
	limits.idle_timeout_ms = 1000;
	setup_end(&world);
	setup_start_with(&world, limits);
	client_open(&c, &world);
	client_post(&c, "/v3/kv/put", "{\"key\":\"Zm9v\"}");
	expect(&c, 200, "{}");
	pause_ms(500);
	client_post(&c, "/v3/kv/put", "{\"key\":\"Zm9v\"}");
	expect(&c, 200, "{}");
	expect_closed(&c, 2000);
	client_close(&c);
}
END_TEST

START_TEST(gateway__too_large)
{
	struct client c;
	struct buf b = { .ptr = NULL };
	client_open(&c, &world);
	/* the message: etcd's own error */
	buf_append_slice(&b, slice_of_str("{\"key\":\"Zm9v\",\"value\":\""));
	for (int i = 0; i < 90000; i++)
		buf_append_byte(&b, 'A');
	buf_append(&b, "\"}", 3);
	client_post(&c, "/v3/kv/put", (char *)b.ptr);
	expect(&c, 400, "{\"error\":\"etcdserver: request is too large\",\"message\":\"etcdserver: request is too large\",\"code\":3}");
	/* the body */
	client_send(&c, "POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
	expect(&c, 413, NULL);
	client_close(&c);
	/* the head */
	buf_clear(&b);
	for (int i = 0; i < 5000; i++)
		buf_append_byte(&b, 'h');
	buf_append_byte(&b, 0);
	client_open(&c, &world);
	client_send(&c, "POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nX-Long: ");
	client_send(&c, (char *)b.ptr);
	client_send(&c, "\r\nContent-Length: 2\r\n\r\n{}");
	expect(&c, 431, NULL);
	client_close(&c);
	buf_free(&b);
}
END_TEST

START_TEST(gateway__too_many_connections)
{
	struct client c[8], extra;
	for (int i = 0; i < 8; i++) {
		client_open(&c[i], &world);
		client_post(&c[i], "/v3/kv/put", "{\"key\":\"Zm9v\"}");
		expect(&c[i], 200, "{}");
	}
	client_open(&extra, &world);
	expect(&extra, 503, "too many connections\n");
	expect_closed(&extra, 500);
	client_close(&extra);
	client_close(&c[3]);
	pause_ms(100);
	client_open(&extra, &world);
	client_post(&extra, "/v3/kv/put", "{\"key\":\"Zm9v\"}");
	expect(&extra, 200, "{}");
	client_close(&extra);
	for (int i = 0; i < 8; i++)
		client_close(&c[i]);
}
END_TEST

/* ---- the end ---- */

START_TEST(gateway__stop_ends_everything)
{
	struct client waiter, watcher, idle, reading;
	uint64_t begin;
	client_open(&waiter, &world);
	client_open(&watcher, &world);
	client_open(&idle, &world);
	client_open(&reading, &world);
	client_post(&waiter, "/v3/lock/lock", "{\"name\":\"bGs=\"}");
	client_post(&watcher, "/v3/watch", "{\"create_request\":{\"key\":\"Zmxvb2Q=\"}}");
	client_post(&idle, "/v3/kv/put", "{\"key\":\"Zm9v\"}");
	expect(&idle, 200, "{}");
	client_send(&reading, "POST /v3/kv/put HTTP");
	FIGURE_REACHES(waiting, 1, 1000);
	FIGURE_REACHES(streams, 1, 1000);
	begin = mono_ms();
	gateway_stop(world.gateway);
	ck_assert_uint_lt(mono_ms() - begin, 2000);
	ck_assert_uint_eq(fake_node_figures(world.node).waiting, 0);
	ck_assert_uint_eq(fake_node_figures(world.node).streams, 0);
	expect(&waiter, 503, "{\"error\":\"etcdserver: server stopped\",\"message\":\"etcdserver: server stopped\",\"code\":14}");
	expect_closed(&idle, 500);
	expect_closed(&reading, 500);
	client_close(&waiter);
	client_close(&watcher);
	client_close(&idle);
	client_close(&reading);
	client_open(&idle, &world); /* nobody is there any more */
	expect_closed(&idle, 500);
	client_close(&idle);
}
END_TEST

START_TEST(gateway__a_gateway_that_nobody_used_stops)
{
}
END_TEST

#define LEN(a) ((int)(sizeof(a) / sizeof((a)[0])))

static void add_tests(TCase *tc)
{
	tcase_add_test(tc, gateway__unary_calls_on_one_connection);
	tcase_add_test(tc, gateway__pipelined_requests_are_answered_in_order);
	tcase_add_loop_test(tc, gateway__requests, 0, LEN(requests));
	tcase_add_test(tc, gateway__not_serving_is_not_healthy);
	tcase_add_test(tc, gateway__health_is_an_answer_of_the_cell);
	tcase_add_test(tc, gateway__errors_of_the_node);
	tcase_add_test(tc, gateway__metadata_reaches_the_node);
	tcase_add_test(tc, gateway__large_replies);
	tcase_add_test(tc, gateway__who_does_not_read_his_reply_is_let_go_and_who_is_slow_is_not);
	tcase_add_test(tc, gateway__keep_alive_answers_each_and_ends);
	tcase_add_test(tc, gateway__many_messages_in_one_body);
	tcase_add_test(tc, gateway__a_watch_stays_until_the_client_leaves);
	tcase_add_test(tc, gateway__a_reader_that_does_not_read_costs_a_bounded_amount);
	tcase_add_test(tc, gateway__observe_ends_with_an_error);
	tcase_add_test(tc, gateway__a_waiter_whose_client_leaves_is_cancelled);
	tcase_add_test(tc, gateway__a_client_that_closed_its_side_still_gets_a_quick_answer);
	tcase_add_test(tc, gateway__a_half_closed_waiter_is_cancelled);
	tcase_add_test(tc, gateway__who_left_before_its_request_is_read_is_given_no_hold);
	tcase_add_test(tc, gateway__a_half_closed_stream_ends);
	tcase_add_test(tc, gateway__a_client_may_leave_at_any_moment);
	tcase_add_test(tc, gateway__a_slow_head_is_refused_in_time);
	tcase_add_test(tc, gateway__a_body_that_never_ends_is_refused_in_time);
	tcase_add_test(tc, gateway__an_idle_connection_is_closed);
	tcase_add_test(tc, gateway__too_large);
	tcase_add_test(tc, gateway__too_many_connections);
	tcase_add_test(tc, gateway__stop_ends_everything);
	tcase_add_test(tc, gateway__a_gateway_that_nobody_used_stops);
}

int main(void)
{
	Suite *s = suite_create("gateway");
	TCase *tc = tcase_create("all");
	SRunner *sr;
	int failed;
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, start, end);
	add_tests(tc);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
