/* test_peers.c: two replicas that talk: order, loss, death and return.
 *
 * A peer that is to be killed is this very program, started anew as a process of its own ("--peer"): gRPC does not survive a fork. It sends back all that it gets. */
#include <check.h>
#include <fcntl.h>
#include <grpc/grpc_security.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/frame.h"
#include "net/internal.h"
#include "net/peers.h"
#include "net_test.h"

extern char **environ;

/* ---- a replica in this process ---- */

struct replica {
	struct peers *peers;
	struct tls_context *tls; /* NULL: plain */
	pthread_mutex_t mu;
	uint64_t received, next, out_of_order, largest, lost, lost_at_ms;
	uint64_t dawdle_ms; /* in the callback */
	bool sound;         /* what came had the right bytes */
	struct replica *echo_by;
	member_id echo_to;
};

/* A message is its number, then as many bytes of it as there is room for. */
static struct buf message(uint64_t number, size_t len)
{
	struct buf b = { .len = 0 };
	buf_reserve(&b, len < 8 ? 8 : len);
	memset(b.ptr, (int)(number & 0xff), len);
	memcpy(b.ptr, &number, sizeof(number));
	b.len = len < 8 ? 8 : len;
	return b;
}

static bool on_message(void *ctx, struct slice bytes)
{
	struct replica *r = ctx;
	uint64_t number = 0;
	member_id echo_to;
	uint64_t dawdle;
	memcpy(&number, bytes.ptr, bytes.len < 8 ? bytes.len : 8);
	pthread_mutex_lock(&r->mu);
	r->sound = r->sound && bytes.len >= 8 && (bytes.len == 8 || bytes.ptr[bytes.len - 1] == (number & 0xff));
	r->out_of_order += number < r->next;
	r->next = number + 1;
	r->received++;
	if (bytes.len > r->largest)
		r->largest = bytes.len;
	dawdle = r->dawdle_ms;
	echo_to = r->echo_to;
	pthread_mutex_unlock(&r->mu);
	if (dawdle)
		test_sleep_ms(dawdle);
	if (echo_to) {
		struct buf b = buf_copy_of(bytes);
		peers_send(r->peers, echo_to, &b, false);
	}
	return true;
}

static void on_lost(void *ctx, member_id peer)
{
	struct replica *r = ctx;
	(void)peer;
	pthread_mutex_lock(&r->mu);
	r->lost++;
	r->lost_at_ms = test_now_ms();
	pthread_mutex_unlock(&r->mu);
}

static uint64_t read_locked(struct replica *r, const uint64_t *field)
{
	uint64_t v;
	pthread_mutex_lock(&r->mu);
	v = *field;
	pthread_mutex_unlock(&r->mu);
	return v;
}

static uint64_t received(struct replica *r)
{
	return read_locked(r, &r->received);
}

static uint64_t lost(struct replica *r)
{
	return read_locked(r, &r->lost);
}

/* All of it also under TLS, when HOLDFAST_TEST_TLS is set: each replica has a certificate of its own making. */
static const char *scheme(void)
{
	return getenv("HOLDFAST_TEST_TLS") ? "https" : "http";
}

static void use_tls(struct replica *r)
{
	struct tls_config c = { .name = "peer", .trust_any_server = true, .self_validity_s = 86400 };
	struct errmsg em;
	if (!getenv("HOLDFAST_TEST_TLS"))
		return;
	r->tls = tls_context_new(&c, &em);
	ASSERT(r->tls);
	peers_use_tls(r->peers, r->tls);
}

/* Also in a process that is no test: asserts of our own. Returns its port; 0 takes a free one. */
static uint16_t replica_open(struct replica *r, member_id self, uint16_t port)
{
	struct peers_callbacks cb = { .ctx = r, .message = on_message, .lost = on_lost };
	char url[64];
	const char *urls[1] = { url };
	struct errmsg em = { .text = "" };
	memset(r, 0, sizeof(*r));
	pthread_mutex_init(&r->mu, NULL);
	r->sound = true;
	snprintf(url, sizeof(url), "%s://127.0.0.1:%u", scheme(), port);
	r->peers = peers_new(self, &cb, NULL);
	use_tls(r);
	if (peers_listen(r->peers, urls, 1, &em) != ERR_OK) {
		fprintf(stderr, "%s\n", em.text);
		ASSERT(false);
	}
	return peers_port(r->peers, 0);
}

static void replica_close(struct replica *r)
{
	peers_free(r->peers);
	tls_context_free(r->tls);
	pthread_mutex_destroy(&r->mu);
}

static void set_peer(struct replica *r, member_id id, uint16_t port)
{
	char url[64];
	const char *urls[1] = { url };
	struct peer_address list = { .id = id, .urls = urls, .urls_len = 1 };
	snprintf(url, sizeof(url), "%s://127.0.0.1:%u", scheme(), port);
	peers_set(r->peers, &list, 1);
}

static void send_number(struct replica *r, member_id to, uint64_t number, size_t len)
{
	struct buf b = message(number, len);
	peers_send(r->peers, to, &b, false);
	ck_assert_ptr_null(b.ptr);
}

/* Sends until one arrives: the streams are up. */
static bool reaches(struct replica *from, member_id to, struct replica *at, uint64_t ms)
{
	uint64_t before = received(at), until = test_now_ms() + ms;
	while (received(at) == before && test_now_ms() < until) {
		send_number(from, to, 0, 8);
		test_sleep_ms(2);
	}
	return received(at) > before;
}

static void settle(struct replica *r)
{
	uint64_t before;
	do {
		before = received(r);
		test_sleep_ms(50);
	} while (received(r) != before);
	pthread_mutex_lock(&r->mu);
	r->received = r->next = r->out_of_order = 0;
	pthread_mutex_unlock(&r->mu);
}

/* Its first, mostly only, link. */
static struct link *link_of(struct replica *r)
{
	return CONTAINER_OF(r->peers->links.next, struct link, node);
}

struct pair {
	struct replica a, b;
	uint16_t a_port, b_port;
};

static void pair_open(struct pair *p)
{
	p->a_port = replica_open(&p->a, 1, 0);
	p->b_port = replica_open(&p->b, 2, 0);
	set_peer(&p->a, 2, p->b_port);
	set_peer(&p->b, 1, p->a_port);
	ck_assert(reaches(&p->a, 2, &p->b, 3000));
	ck_assert(reaches(&p->b, 1, &p->a, 3000));
	settle(&p->a);
	settle(&p->b);
}

static void pair_close(struct pair *p)
{
	replica_close(&p->a);
	replica_close(&p->b);
}

/* ---- a replica of its own process ---- */

struct child {
	pid_t pid;
	int in; /* closing it ends the child */
};

static int run_peer(uint16_t port, uint16_t to)
{
	struct replica *r = calloc(1, sizeof(*r));
	char byte;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	replica_open(r, 2, port);
	r->echo_to = 1;
	set_peer(r, 1, to);
	while (read(0, &byte, 1) > 0)
		;
	replica_close(r);
	free(r);
	return 0;
}

static void child_start(struct child *c, uint16_t port, uint16_t to)
{
	posix_spawn_file_actions_t actions;
	char text[2][16];
	char *argv[] = { "test_peers", "--peer", text[0], text[1], NULL };
	int pipe_fds[2];
	snprintf(text[0], sizeof(text[0]), "%u", port);
	snprintf(text[1], sizeof(text[1]), "%u", to);
	ck_assert_int_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pipe_fds[0], 0);
	ck_assert_int_eq(posix_spawn(&c->pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	close(pipe_fds[0]);
	c->in = pipe_fds[1];
}

static void child_end(struct child *c, int sig)
{
	int status;
	if (sig)
		kill(c->pid, sig);
	close(c->in);
	ck_assert_int_eq(waitpid(c->pid, &status, 0), c->pid);
	if (!sig)
		ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- messages ---- */

START_TEST(peers__messages_keep_order_both_ways)
{
	enum { N = 100000 };
	struct pair p;
	uint64_t began, cpu;
	pair_open(&p);
	began = test_now_ms();
	cpu = test_cpu_ms();
	for (uint64_t i = 0; i < N; i++) {
		send_number(&p.a, 2, i, 100);
		send_number(&p.b, 1, i, 100);
	}
	ck_assert(TEST_WAIT(20000, received(&p.a) == N && received(&p.b) == N));
	if (getenv("NET_TEST_FIGURES"))
		printf("%d messages each way: %" PRIu64 " ms, CPU %" PRIu64 " ms\n", N, test_now_ms() - began, test_cpu_ms() - cpu);
	ck_assert_uint_eq(p.a.out_of_order + p.b.out_of_order, 0);
	ck_assert(p.a.sound && p.b.sound);
	ck_assert_uint_eq(lost(&p.a) + lost(&p.b), 0);
	pair_close(&p);
}
END_TEST

START_TEST(peers__large_messages_pass)
{
	struct pair p;
	struct buf bulk = message(3, FRAME_MESSAGE_MAX), too_large = message(4, FRAME_MESSAGE_MAX + 1);
	pair_open(&p);
	send_number(&p.a, 2, 1, FRAME_BYTES - 100);
	send_number(&p.a, 2, 2, FRAME_MESSAGE_MAX);
	peers_send(p.a.peers, 2, &bulk, true);
	peers_send(p.a.peers, 2, &too_large, false);
	ck_assert_ptr_null(too_large.ptr);
	ck_assert(TEST_WAIT(10000, received(&p.b) == 3));
	ck_assert_uint_eq(p.b.largest, FRAME_MESSAGE_MAX);
	ck_assert(p.b.sound);
	ck_assert(reaches(&p.a, 2, &p.b, 3000));
	pair_close(&p);
}
END_TEST

START_TEST(peers__one_message_is_quick)
{
	struct pair p;
	uint64_t worst = 0, began;
	pair_open(&p);
	pthread_mutex_lock(&p.b.mu);
	p.b.echo_to = 1;
	pthread_mutex_unlock(&p.b.mu);
	for (uint64_t i = 0; i < 200; i++) {
		began = test_now_ms();
		send_number(&p.a, 2, i, 100);
		ck_assert(TEST_WAIT(2000, received(&p.a) == i + 1));
		if (test_now_ms() - began > worst)
			worst = test_now_ms() - began;
	}
	ck_assert_uint_lt(worst, 1000);
	pair_close(&p);
}
END_TEST

START_TEST(peers__unknown_member_is_fine)
{
	struct replica a;
	replica_open(&a, 1, 0);
	send_number(&a, 99, 1, 100);
	peers_set(a.peers, NULL, 0);
	send_number(&a, 99, 1, 100);
	peers_stop(a.peers);
	send_number(&a, 99, 1, 100);
	peers_set(a.peers, NULL, 0);
	replica_close(&a);
}
END_TEST

/* ---- death and return ---- */

START_TEST(peers__killed_peer_is_told_once_and_soon)
{
	struct replica a;
	struct child c;
	uint16_t a_port = replica_open(&a, 1, 0), port = test_free_port();
	uint64_t killed, delay;
	set_peer(&a, 2, port);
	for (uint64_t round = 1; round <= 3; round++) {
		child_start(&c, port, a_port);
		ck_assert(reaches(&a, 2, &a, 10000)); /* there and back */
		if (round < 3)
			test_sleep_ms(150);
		killed = test_now_ms();
		child_end(&c, SIGKILL);
		ck_assert(TEST_WAIT(2000, lost(&a) == round));
		delay = read_locked(&a, &a.lost_at_ms) - killed;
		if (getenv("NET_TEST_FIGURES"))
			printf("lost after %" PRIu64 " ms\n", delay);
		ck_assert_uint_lt(delay, 1000);
		test_sleep_ms(500); /* many attempts later */
		ck_assert_uint_eq(lost(&a), round);
	}
	replica_close(&a);
}
END_TEST

START_TEST(peers__peer_that_ends_is_told_and_may_return)
{
	struct replica a;
	struct child c;
	uint16_t a_port = replica_open(&a, 1, 0), port = test_free_port();
	set_peer(&a, 2, port);
	child_start(&c, port, a_port);
	ck_assert(reaches(&a, 2, &a, 10000));
	test_sleep_ms(150);
	child_end(&c, 0);
	ck_assert(TEST_WAIT(1000, lost(&a) == 1));
	child_start(&c, port, a_port);
	ck_assert(reaches(&a, 2, &a, 10000));
	ck_assert_uint_eq(lost(&a), 1);
	child_end(&c, 0);
	replica_close(&a);
}
END_TEST

START_TEST(peers__stopped_process_is_not_lost)
{
	struct replica a;
	struct child c;
	uint16_t a_port = replica_open(&a, 1, 0), port = test_free_port();
	set_peer(&a, 2, port);
	child_start(&c, port, a_port);
	ck_assert(reaches(&a, 2, &a, 10000));
	kill(c.pid, SIGSTOP);
	test_sleep_ms(1500);
	ck_assert_uint_eq(lost(&a), 0);
	kill(c.pid, SIGCONT);
	ck_assert(reaches(&a, 2, &a, 10000));
	ck_assert_uint_eq(lost(&a), 0);
	child_end(&c, SIGKILL);
	replica_close(&a);
}
END_TEST

/* Longer than the keep-alive: the stream is given up, yet nobody said no. */
START_TEST(peers__process_stopped_for_long_is_not_lost_either)
{
	struct replica a;
	struct child c;
	uint16_t a_port = replica_open(&a, 1, 0), port = test_free_port();
	set_peer(&a, 2, port);
	child_start(&c, port, a_port);
	ck_assert(reaches(&a, 2, &a, 10000));
	kill(c.pid, SIGSTOP);
	test_sleep_ms(PEERS_KEEPALIVE_MS + PEERS_KEEPALIVE_TIMEOUT_MS + 3000);
	ck_assert_uint_eq(lost(&a), 0);
	pthread_mutex_lock(&a.peers->mu);
	ck_assert(!link_of(&a)->open);
	pthread_mutex_unlock(&a.peers->mu);
	kill(c.pid, SIGCONT);
	ck_assert(reaches(&a, 2, &a, 10000));
	child_end(&c, SIGKILL);
	ck_assert(TEST_WAIT(2000, lost(&a) == 1));
	replica_close(&a);
}
END_TEST

START_TEST(peers__slow_reader_is_not_lost)
{
	struct pair p;
	pair_open(&p);
	pthread_mutex_lock(&p.b.mu);
	p.b.dawdle_ms = 1500;
	pthread_mutex_unlock(&p.b.mu);
	for (uint64_t i = 0; i < 1000; i++)
		send_number(&p.a, 2, i, 1000);
	test_sleep_ms(2000);
	ck_assert_uint_eq(lost(&p.a), 0);
	pthread_mutex_lock(&p.b.mu);
	p.b.dawdle_ms = 0;
	pthread_mutex_unlock(&p.b.mu);
	ck_assert(TEST_WAIT(5000, received(&p.b) == 1000));
	ck_assert_uint_eq(p.b.out_of_order + lost(&p.a) + lost(&p.b), 0);
	pair_close(&p);
}
END_TEST

/* ---- bounds ---- */

START_TEST(peers__unreachable_peer_takes_no_memory)
{
	static const char *const urls[] = { "http://127.0.0.1:1", "http://192.0.2.1:1", "http://name.invalid:1", "https://127.0.0.1:1" };
	struct replica a;
	struct peer_address list = { .id = 2, .urls = &urls[_i], .urls_len = 1 };
	size_t descriptors;
	replica_open(&a, 1, 0);
	peers_set(a.peers, &list, 1);
	test_sleep_ms(200);
	descriptors = test_open_descriptors();
	for (uint64_t i = 0; i < 100000; i++) {
		struct buf b = message(i, 1000);
		peers_send(a.peers, 2, &b, i % 10 == 0);
	}
	test_sleep_ms(1000);
	pthread_mutex_lock(&a.peers->mu);
	ck_assert_uint_le(link_of(&a)->outbox.normal_bytes, OUTBOX_CLOSED_BYTES);
	ck_assert_uint_le(link_of(&a)->outbox.bulk_len, OUTBOX_BULK_MAX);
	pthread_mutex_unlock(&a.peers->mu);
	ck_assert_uint_le(test_open_descriptors(), descriptors + 3);
	ck_assert_uint_eq(lost(&a), 0); /* never had */
	replica_close(&a);
}
END_TEST

START_TEST(peers__peer_that_does_not_read_takes_bounded_memory)
{
	struct pair p;
	pair_open(&p);
	pthread_mutex_lock(&p.b.mu);
	p.b.dawdle_ms = 1000;
	pthread_mutex_unlock(&p.b.mu);
	for (uint64_t i = 0; i < 6000; i++)
		send_number(&p.a, 2, i, 10000);
	pthread_mutex_lock(&p.a.peers->mu);
	ck_assert_uint_le(link_of(&p.a)->outbox.normal_bytes, OUTBOX_OPEN_BYTES);
	ck_assert_uint_gt(link_of(&p.a)->outbox.dropped, 0);
	pthread_mutex_unlock(&p.a.peers->mu);
	pthread_mutex_lock(&p.b.mu);
	p.b.dawdle_ms = 0;
	pthread_mutex_unlock(&p.b.mu);
	ck_assert(TEST_WAIT(10000, read_locked(&p.b, &p.b.next) == 6000)); /* the newest are not the ones dropped */
	ck_assert_uint_eq(p.b.out_of_order, 0);
	pair_close(&p);
}
END_TEST

/* ---- the set ---- */

static size_t links_len(struct replica *r)
{
	size_t len;
	pthread_mutex_lock(&r->peers->mu);
	len = r->peers->links_len;
	pthread_mutex_unlock(&r->peers->mu);
	return len;
}

START_TEST(peers__stranger_that_says_where_it_lives_is_answered)
{
	struct replica a, b;
	char urls[2][64];
	const char *url[2] = { urls[0], urls[1] };
	struct peer_address list[2] = { { 1, &url[0], 1 }, { 2, &url[1], 1 } };
	snprintf(urls[0], sizeof(urls[0]), "%s://127.0.0.1:%u", scheme(), replica_open(&a, 1, 0));
	snprintf(urls[1], sizeof(urls[1]), "%s://127.0.0.1:%u", scheme(), replica_open(&b, 2, 0));
	peers_set(a.peers, list, 2); /* b knows nobody */
	ck_assert(reaches(&a, 2, &b, 2000));
	ck_assert(reaches(&b, 1, &a, 2000));
	ck_assert_uint_eq(links_len(&b), 1);
	peers_set(b.peers, list, 1); /* as a member it stays without that stream */
	peers_set(a.peers, list, 1);
	ck_assert(TEST_WAIT(5000, links_len(&a) == 0)); /* it has stayed for a moment, as a guest */
	ck_assert_uint_eq(links_len(&b), 1);
	replica_close(&a);
	replica_close(&b);
}
END_TEST

START_TEST(peers__stranger_is_forgotten_with_its_stream)
{
	struct replica a, b;
	char urls[2][64];
	const char *url[2] = { urls[0], urls[1] };
	struct peer_address list[2] = { { 1, &url[0], 1 }, { 2, &url[1], 1 } };
	snprintf(urls[0], sizeof(urls[0]), "%s://127.0.0.1:%u", scheme(), replica_open(&a, 1, 0));
	snprintf(urls[1], sizeof(urls[1]), "%s://127.0.0.1:%u", scheme(), replica_open(&b, 2, 0));
	peers_set(a.peers, list, 2);
	ck_assert(reaches(&a, 2, &b, 2000));
	ck_assert(TEST_WAIT(2000, links_len(&b) == 1));
	replica_close(&a);
	ck_assert(TEST_WAIT(2000, links_len(&b) == 0));
	ck_assert_uint_le(lost(&b), 1);
	replica_close(&b);
}
END_TEST

/* Of an earlier member at an address there may be news, and there is one that lives there: the two streams do not get in each other's way. */
START_TEST(peers__two_members_at_one_address_do_not_drive_each_other_out)
{
	struct replica a, b;
	char urls[2][64];
	const char *url[2] = { urls[0], urls[1] };
	struct peer_address list[3] = { { 1, &url[0], 1 }, { 2, &url[1], 1 }, { 5, &url[1], 1 } };
	snprintf(urls[0], sizeof(urls[0]), "%s://127.0.0.1:%u", scheme(), replica_open(&a, 1, 0));
	snprintf(urls[1], sizeof(urls[1]), "%s://127.0.0.1:%u", scheme(), replica_open(&b, 2, 0));
	peers_set(a.peers, list, 3);
	ck_assert(reaches(&a, 2, &b, 2000));
	ck_assert(reaches(&a, 5, &b, 2000));
	test_sleep_ms(300);
	pthread_mutex_lock(&a.peers->mu);
	LIST_FOR_EACH(n, &a.peers->links) {
		ck_assert(CONTAINER_OF(n, struct link, node)->open);
		ck_assert_uint_eq(CONTAINER_OF(n, struct link, node)->figures.broke, 0);
	}
	pthread_mutex_unlock(&a.peers->mu);
	peers_set(a.peers, list, 2); /* the earlier one is forgotten: whoever lives there does not go with it */
	test_sleep_ms(100);
	ck_assert(reaches(&b, 1, &a, 2000));
	ck_assert_uint_eq(lost(&a) + lost(&b), 0);
	replica_close(&a);
	replica_close(&b);
}
END_TEST

START_TEST(peers__who_joins_is_told_of_the_cell)
{
	struct replica a;
	struct buf got = { .ptr = NULL };
	struct errmsg em = { .text = "" };
	struct tls_context *tls;
	char url[64];
	snprintf(url, sizeof(url), "%s://127.0.0.1:%u", scheme(), replica_open(&a, 1, 0));
	tls = a.tls ? tls_context_ref(a.tls) : NULL;
	ck_assert_int_eq(peers_ask_info(url, tls, 2000, &got, &em), ERR_CLOSED); /* it does not know yet */
	ck_assert_ptr_nonnull(strstr(em.text, "not ready yet"));
	peers_set_info(a.peers, slice_of_str("who we are"));
	ck_assert_int_eq(peers_ask_info(url, tls, 2000, &got, &em), ERR_OK);
	ck_assert(slice_eq(buf_view(&got), slice_of_str("who we are")));
	replica_close(&a);
	ck_assert_int_eq(peers_ask_info(url, tls, 500, &got, &em), ERR_CLOSED);
	ck_assert_ptr_nonnull(strstr(em.text, url));
	tls_context_free(tls);
	buf_free(&got);
}
END_TEST

START_TEST(peers__set_leaves_the_unchanged_alone)
{
	struct pair p;
	struct dial *dial;
	char url[64];
	const char *urls[1] = { url }, *nobody[1] = { "http://127.0.0.1:1" };
	struct peer_address list[3] = { { 3, nobody, 1 }, { 2, urls, 1 }, { 1, nobody, 1 } };
	pair_open(&p);
	snprintf(url, sizeof(url), "%s://127.0.0.1:%u/", scheme(), p.b_port); /* the same, written otherwise */
	dial = link_of(&p.a)->dial;
	peers_set(p.a.peers, list, 3);
	test_sleep_ms(100);
	ck_assert_uint_eq(p.a.peers->links_len, 2); /* self is not a peer */
	ck_assert_ptr_eq(link_of(&p.a)->dial, dial);
	ck_assert(reaches(&p.a, 2, &p.b, 1000));
	peers_set(p.a.peers, list, 1); /* 2 goes: it is no loss */
	test_sleep_ms(200);
	ck_assert_uint_eq(lost(&p.a) + lost(&p.b), 0);
	settle(&p.b);
	send_number(&p.a, 2, 1, 10);
	test_sleep_ms(100);
	ck_assert_uint_eq(received(&p.b), 1); /* its own stream is still open: it is talked to as a guest */
	peers_set(p.a.peers, list, 2); /* and comes back */
	ck_assert(reaches(&p.a, 2, &p.b, 1000));
	pair_close(&p);
}
END_TEST

START_TEST(peers__peer_may_move)
{
	struct pair p;
	struct replica moved;
	uint16_t port;
	pair_open(&p);
	replica_close(&p.b);
	ck_assert(TEST_WAIT(1000, lost(&p.a) == 1));
	port = replica_open(&moved, 2, 0);
	send_number(&p.a, 2, 7, 10); /* waits for it */
	set_peer(&p.a, 2, port);
	ck_assert(TEST_WAIT(2000, received(&moved) == 1));
	replica_close(&p.a);
	replica_close(&moved);
}
END_TEST

START_TEST(peers__urls_are_tried_in_turn)
{
	struct replica a, b;
	uint16_t port;
	char url[64];
	const char *urls[3] = { "http://127.0.0.1:1", url, "http://127.0.0.1:2" };
	struct peer_address list = { .id = 2, .urls = urls, .urls_len = 3 };
	replica_open(&a, 1, 0);
	port = replica_open(&b, 2, 0);
	snprintf(url, sizeof(url), "%s://localhost:%u", scheme(), port);
	peers_set(a.peers, &list, 1);
	ck_assert(reaches(&a, 2, &b, 2000));
	test_sleep_ms(200);
	replica_close(&b);
	ck_assert(TEST_WAIT(1000, lost(&a) == 1));
	replica_open(&b, 2, port);
	ck_assert(reaches(&a, 2, &b, 2000));
	replica_close(&a);
	replica_close(&b);
}
END_TEST

START_TEST(peers__ipv6)
{
	struct replica a, b;
	struct peers_callbacks cb = { .ctx = &b, .message = on_message, .lost = on_lost };
	const char *listen_url[1] = { "http://[::1]:0" };
	char url[64];
	const char *urls[1] = { url };
	struct peer_address list = { .id = 2, .urls = urls, .urls_len = 1 };
	struct errmsg em;
	memset(&b, 0, sizeof(b));
	pthread_mutex_init(&b.mu, NULL);
	b.sound = true;
	b.peers = peers_new(2, &cb, NULL);
	if (peers_listen(b.peers, listen_url, 1, &em) != ERR_OK) { /* no IPv6 here */
		replica_close(&b);
		return;
	}
	replica_open(&a, 1, 0);
	snprintf(url, sizeof(url), "http://[::1]:%u", peers_port(b.peers, 0));
	peers_set(a.peers, &list, 1);
	ck_assert(reaches(&a, 2, &b, 2000));
	replica_close(&a);
	replica_close(&b);
}
END_TEST

/* ---- strangers ---- */

struct raw {
	struct rpc_tag tag;
	bool done;
};

static void raw_done(struct rpc_tag *tag, bool ok)
{
	(void)ok;
	CONTAINER_OF(tag, struct raw, tag)->done = true;
}

/* One call with one message; returns the status it ended with. */
static grpc_status_code raw_call(uint16_t port, const char *method, const char *member, const char *bytes, size_t len)
{
	struct raw raw = { .tag.fn = raw_done };
	char target[32];
	grpc_channel_credentials *creds = grpc_insecure_credentials_create();
	grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
	grpc_metadata_array initial, trailing;
	grpc_status_code status = GRPC_STATUS_OK;
	grpc_slice details = grpc_empty_slice();
	grpc_metadata name = { .key = rpc_slice_static(PEERS_MEMBER_KEY), .value = rpc_slice_static(member ? member : "") };
	grpc_byte_buffer *m = rpc_message_of_slice(rpc_slice_copy(slice_of(bytes, len)));
	grpc_op ops[4] = { { .op = GRPC_OP_SEND_INITIAL_METADATA }, { .op = GRPC_OP_SEND_MESSAGE }, { .op = GRPC_OP_RECV_STATUS_ON_CLIENT },
			   { .op = GRPC_OP_RECV_INITIAL_METADATA } };
	grpc_channel *channel;
	grpc_call *call;
	snprintf(target, sizeof(target), "ipv4:127.0.0.1:%u", port);
	channel = grpc_channel_create(target, creds, NULL);
	call = grpc_channel_create_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS, cq, rpc_slice_static(method), NULL, rpc_in_ms(5000), NULL);
	grpc_metadata_array_init(&initial);
	grpc_metadata_array_init(&trailing);
	ops[0].data.send_initial_metadata.count = member ? 1 : 0;
	ops[0].data.send_initial_metadata.metadata = &name;
	ops[1].data.send_message.send_message = m;
	ops[2].data.recv_status_on_client.trailing_metadata = &trailing;
	ops[2].data.recv_status_on_client.status = &status;
	ops[2].data.recv_status_on_client.status_details = &details;
	ops[3].data.recv_initial_metadata.recv_initial_metadata = &initial;
	rpc_start(call, ops, 4, &raw.tag);
	while (!raw.done)
		ck_assert_int_eq(rpc_run(cq, rpc_in_ms(8000)), RPC_RAN);
	grpc_byte_buffer_destroy(m);
	grpc_metadata_array_destroy(&initial);
	grpc_metadata_array_destroy(&trailing);
	grpc_slice_unref(details);
	grpc_call_unref(call);
	grpc_channel_destroy(channel);
	grpc_channel_credentials_release(creds);
	grpc_completion_queue_shutdown(cq);
	while (rpc_run(cq, rpc_in_ms(1000)) != RPC_SHUTDOWN)
		;
	grpc_completion_queue_destroy(cq);
	return status;
}

START_TEST(peers__strangers_are_turned_away)
{
	struct replica a;
	uint16_t port = replica_open(&a, 1, 0);
	ck_assert_int_eq(raw_call(port, "/etcdserverpb.KV/Put", "2", "", 0), GRPC_STATUS_UNIMPLEMENTED);
	ck_assert_int_eq(raw_call(port, PEERS_METHOD, NULL, "", 0), GRPC_STATUS_INVALID_ARGUMENT);
	ck_assert_int_eq(raw_call(port, PEERS_METHOD, "", "", 0), GRPC_STATUS_INVALID_ARGUMENT);
	ck_assert_int_eq(raw_call(port, PEERS_METHOD, "12x", "", 0), GRPC_STATUS_INVALID_ARGUMENT);
	ck_assert_int_eq(raw_call(port, PEERS_METHOD, "18446744073709551616", "", 0), GRPC_STATUS_INVALID_ARGUMENT);
	ck_assert_int_eq(raw_call(port, PEERS_METHOD, "2", "\5\0\0\0ab", 6), GRPC_STATUS_CANCELLED);
	ck_assert_uint_eq(received(&a), 0);
	ck_assert_uint_eq(lost(&a), 0);
	replica_close(&a);
}
END_TEST

START_TEST(peers__garbage_on_the_port_is_closed)
{
	struct pair p;
	int fd;
	pair_open(&p);
	for (int i = 0; i < 50; i++) {
		fd = test_connect(p.a_port);
		test_write(fd, i % 2 ? "GET / HTTP/1.1\r\n\r\n" : PREFACE "this is no frame of HTTP/2 at all............");
		ck_assert(test_closed_within(fd, 3000));
		close(fd);
	}
	ck_assert(reaches(&p.b, 1, &p.a, 1000));
	ck_assert_uint_eq(lost(&p.a) + lost(&p.b), 0);
	pair_close(&p);
}
END_TEST

/* ---- the end ---- */

static void *send_without_end(void *arg)
{
	struct replica *r = arg;
	for (uint64_t i = 0; i < 300000; i++)
		send_number(r, 2, i, 500);
	return NULL;
}

START_TEST(peers__stops_while_busy)
{
	struct pair p;
	pthread_t sender;
	uint64_t began, took;
	pair_open(&p);
	ck_assert_int_eq(pthread_create(&sender, NULL, send_without_end, &p.a), 0);
	test_sleep_ms(30);
	began = test_now_ms();
	peers_stop(p.a.peers);
	took = test_now_ms() - began;
	if (getenv("NET_TEST_FIGURES"))
		printf("stopped in %" PRIu64 " ms\n", took);
	ck_assert_uint_lt(took, 300);
	began = test_now_ms();
	peers_stop(p.b.peers);
	ck_assert_uint_lt(test_now_ms() - began, 1500);
	pthread_join(sender, NULL);
	pair_close(&p);
}
END_TEST

START_TEST(peers__stops_while_a_peer_is_silent)
{
	struct replica a;
	struct child c;
	uint16_t a_port = replica_open(&a, 1, 0), port = test_free_port();
	uint64_t began;
	set_peer(&a, 2, port);
	child_start(&c, port, a_port);
	ck_assert(reaches(&a, 2, &a, 10000));
	kill(c.pid, SIGSTOP);
	for (uint64_t i = 0; i < 1000; i++)
		send_number(&a, 2, i, 10000);
	test_sleep_ms(100);
	began = test_now_ms();
	peers_stop(a.peers);
	ck_assert_uint_lt(test_now_ms() - began, 1500);
	child_end(&c, SIGKILL);
	replica_close(&a);
}
END_TEST

START_TEST(peers__leaves_no_descriptor_behind)
{
	size_t before = 0;
	for (int i = 0; i < 5; i++) {
		struct pair p;
		pair_open(&p);
		pair_close(&p);
		if (i == 0)
			before = test_open_descriptors();
	}
	ck_assert(TEST_WAIT(2000, test_open_descriptors() <= before));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("peers");
	TCase *c = tcase_create("peers");
	tcase_set_timeout(c, 60);
	tcase_add_test(c, peers__messages_keep_order_both_ways);
	tcase_add_test(c, peers__large_messages_pass);
	tcase_add_test(c, peers__one_message_is_quick);
	tcase_add_test(c, peers__unknown_member_is_fine);
	tcase_add_test(c, peers__killed_peer_is_told_once_and_soon);
	tcase_add_test(c, peers__peer_that_ends_is_told_and_may_return);
	tcase_add_test(c, peers__stopped_process_is_not_lost);
	tcase_add_test(c, peers__process_stopped_for_long_is_not_lost_either);
	tcase_add_test(c, peers__slow_reader_is_not_lost);
	tcase_add_loop_test(c, peers__unreachable_peer_takes_no_memory, 0, 4);
	tcase_add_test(c, peers__peer_that_does_not_read_takes_bounded_memory);
	tcase_add_test(c, peers__stranger_that_says_where_it_lives_is_answered);
	tcase_add_test(c, peers__stranger_is_forgotten_with_its_stream);
	tcase_add_test(c, peers__two_members_at_one_address_do_not_drive_each_other_out);
	tcase_add_test(c, peers__who_joins_is_told_of_the_cell);
	tcase_add_test(c, peers__set_leaves_the_unchanged_alone);
	tcase_add_test(c, peers__peer_may_move);
	tcase_add_test(c, peers__urls_are_tried_in_turn);
	tcase_add_test(c, peers__ipv6);
	if (!getenv("HOLDFAST_TEST_TLS"))
		tcase_add_test(c, peers__strangers_are_turned_away);
	tcase_add_test(c, peers__garbage_on_the_port_is_closed);
	tcase_add_test(c, peers__stops_while_busy);
	tcase_add_test(c, peers__stops_while_a_peer_is_silent);
	tcase_add_test(c, peers__leaves_no_descriptor_behind);
	suite_add_tcase(s, c);
	return s;
}

int main(int argc, char **argv)
{
	SRunner *r;
	int failed;
	signal(SIGPIPE, SIG_IGN);
	if (argc == 4 && strcmp(argv[1], "--peer") == 0)
		return run_peer((uint16_t)atoi(argv[2]), (uint16_t)atoi(argv[3]));
	r = srunner_create(suite());
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
