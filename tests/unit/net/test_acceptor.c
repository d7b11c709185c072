/* test_acceptor.c: real connections on the loopback: who gets them, and that none is forgotten. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/acceptor.h"
#include "net_test.h"

#define HELD_MAX 4096

/* What came out of the sinks. Held descriptors are closed by desk_close. */
struct desk {
	struct acceptor *acceptor;
	pthread_mutex_t mu;
	bool keep; /* else each is closed at once */
	size_t http2, http1;
	int fds[HELD_MAX];
	size_t held;
	int highest;
	char address[64];
};

static void take(struct desk *d, size_t *counter, int fd, struct identity *who)
{
	pthread_mutex_lock(&d->mu);
	++*counter;
	if (fd > d->highest)
		d->highest = fd;
	snprintf(d->address, sizeof(d->address), "%s", who->address);
	identity_unref(who);
	if (d->keep && d->held < HELD_MAX)
		d->fds[d->held++] = fd;
	else
		close(fd);
	pthread_mutex_unlock(&d->mu);
}

static void take_http2(void *ctx, int fd, struct identity *who)
{
	take(ctx, &((struct desk *)ctx)->http2, fd, who);
}

static void take_http1(void *ctx, int fd, struct identity *who)
{
	take(ctx, &((struct desk *)ctx)->http1, fd, who);
}

static size_t seen(struct desk *d, const size_t *counter)
{
	size_t n;
	pthread_mutex_lock(&d->mu);
	n = *counter;
	pthread_mutex_unlock(&d->mu);
	return n;
}

static void desk_let_go(struct desk *d)
{
	pthread_mutex_lock(&d->mu);
	while (d->held)
		close(d->fds[--d->held]);
	pthread_mutex_unlock(&d->mu);
}

static void desk_init(struct desk *d, struct acceptor_limits limits)
{
	struct acceptor_sinks sinks = { .ctx = d, .http2 = take_http2, .http1 = take_http1 };
	memset(d, 0, sizeof(*d));
	pthread_mutex_init(&d->mu, NULL);
	d->keep = true;
	d->acceptor = acceptor_new(&sinks, &limits);
}

/* Returns the port. */
static uint16_t desk_listen(struct desk *d, const char *url)
{
	struct errmsg em = { .text = "" };
	ck_assert_msg(acceptor_listen(d->acceptor, url, &em) == ERR_OK, "%s", em.text);
	return acceptor_port(d->acceptor, 0);
}

static uint16_t desk_open(struct desk *d, struct acceptor_limits limits)
{
	uint16_t port;
	desk_init(d, limits);
	port = desk_listen(d, "http://127.0.0.1:0");
	acceptor_start(d->acceptor);
	return port;
}

static void desk_close(struct desk *d)
{
	acceptor_stop(d->acceptor);
	desk_let_go(d);
	acceptor_free(d->acceptor);
	pthread_mutex_destroy(&d->mu);
}

static const struct acceptor_limits usual = { .max_undecided = 100 };

/* ---- who gets a connection ---- */

START_TEST(acceptor__preface_goes_to_http2_unread)
{
	struct desk d;
	uint16_t port = desk_open(&d, usual);
	int fd = test_connect(port);
	char bytes[64] = "", address[64];
	test_write(fd, PREFACE "more");
	ck_assert(TEST_WAIT(2000, seen(&d, &d.http2) == 1));
	ck_assert_uint_eq(seen(&d, &d.http1), 0);
	ck_assert_int_eq(recv(d.fds[0], bytes, sizeof(bytes) - 1, 0), (ssize_t)strlen(PREFACE "more"));
	ck_assert_str_eq(bytes, PREFACE "more");
	snprintf(address, sizeof(address), "127.0.0.1:%u", test_local_port(fd));
	ck_assert_str_eq(d.address, address);
	close(fd);
	desk_close(&d);
}
END_TEST

START_TEST(acceptor__descriptor_is_ready_for_use)
{
	struct desk d;
	uint16_t port = desk_open(&d, usual);
	int fd = test_connect(port), on = 0;
	unsigned int user_timeout = 0;
	socklen_t len = sizeof(on);
	test_write(fd, PREFACE);
	ck_assert(TEST_WAIT(2000, seen(&d, &d.http2) == 1));
	ck_assert(fcntl(d.fds[0], F_GETFL) & O_NONBLOCK);
	ck_assert(fcntl(d.fds[0], F_GETFD) & FD_CLOEXEC);
	ck_assert_int_eq(getsockopt(d.fds[0], IPPROTO_TCP, TCP_NODELAY, &on, &len), 0);
	ck_assert_int_ne(on, 0);
	len = sizeof(user_timeout);
	ck_assert_int_eq(getsockopt(d.fds[0], IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout, &len), 0);
	ck_assert_uint_gt(user_timeout, 0);
	close(fd);
	desk_close(&d);
}
END_TEST

START_TEST(acceptor__preface_may_come_in_pieces)
{
	static const char *const pieces[] = { "P", "RI * ", "HTTP/", "2.", "0\r\n\r\nSM\r\n\r\n" };
	struct desk d;
	uint16_t port = desk_open(&d, usual);
	int fd = test_connect(port);
	for (size_t i = 0; i < 5; i++) {
		test_sleep_ms(10);
		ck_assert_uint_eq(seen(&d, &d.http2) + seen(&d, &d.http1), 0);
		test_write(fd, pieces[i]);
	}
	ck_assert(TEST_WAIT(2000, seen(&d, &d.http2) == 1));
	close(fd);
	desk_close(&d);
}
END_TEST

static const struct {
	const char *what, *bytes;
} others[] = {
	{ "a request", "GET /health HTTP/1.1\r\n\r\n" },
	{ "its first byte is enough", "G" },
	{ "as is the first that differs", "PO" },
	{ "the preface's method in HTTP/1", "PRI * HTTP/1.1\r\n" },
	{ "the last byte that decides", "PRI * HTTP/2.1" },
	{ "TLS", "\x16\x03\x01" },
	{ "lower case", "pri * HTTP/2.0" },
};

START_TEST(acceptor__all_else_goes_to_http1_at_once)
{
	struct desk d;
	uint16_t port = desk_open(&d, usual);
	int fd = test_connect(port);
	test_write(fd, others[_i].bytes);
	ck_assert_msg(TEST_WAIT(2000, seen(&d, &d.http1) == 1), "%s", others[_i].what);
	ck_assert_uint_eq(seen(&d, &d.http2), 0);
	close(fd);
	desk_close(&d);
}
END_TEST

START_TEST(acceptor__no_sink_closes)
{
	struct acceptor_sinks none = { .ctx = NULL };
	struct acceptor *a = acceptor_new(&none, &usual);
	struct errmsg em;
	int fd;
	ck_assert_int_eq(acceptor_listen(a, "http://127.0.0.1:0", &em), ERR_OK);
	acceptor_start(a);
	fd = test_connect(acceptor_port(a, 0));
	test_write(fd, "GET / HTTP/1.1\r\n");
	ck_assert(test_closed_within(fd, 2000));
	close(fd);
	acceptor_free(a);
}
END_TEST

/* ---- addresses ---- */

START_TEST(acceptor__listens_on_several_urls)
{
	struct desk d;
	struct errmsg em;
	uint16_t ports[2];
	int fds[3] = { -1, -1, -1 };
	char address[64];
	desk_init(&d, usual);
	ports[0] = desk_listen(&d, "http://127.0.0.1:0");
	ck_assert_int_eq(acceptor_listen(d.acceptor, "http://127.0.0.1:0", &em), ERR_OK);
	ports[1] = acceptor_port(d.acceptor, 1);
	ck_assert_uint_ne(ports[0], ports[1]);
	ck_assert_uint_eq(acceptor_port(d.acceptor, 2), 0);
	if (acceptor_listen(d.acceptor, "http://[::1]:0", &em) == ERR_OK)
		fds[2] = test_connect_ipv6(acceptor_port(d.acceptor, 2));
	acceptor_start(d.acceptor);
	for (size_t i = 0; i < 2; i++) {
		fds[i] = test_connect(ports[i]);
		test_write(fds[i], PREFACE);
		ck_assert(TEST_WAIT(2000, seen(&d, &d.http2) == i + 1));
	}
	if (fds[2] >= 0) {
		test_write(fds[2], PREFACE);
		ck_assert(TEST_WAIT(2000, seen(&d, &d.http2) == 3));
		snprintf(address, sizeof(address), "[::1]:%u", test_local_port(fds[2]));
		ck_assert_str_eq(d.address, address);
	}
	for (size_t i = 0; i < 3; i++)
		close(fds[i]);
	desk_close(&d);
}
END_TEST

START_TEST(acceptor__names_and_wildcards)
{
	static const char *const urls[] = { "http://localhost:0", "http://0.0.0.0:0", "http://[::]:0" };
	struct desk d;
	struct errmsg em;
	int fd;
	desk_init(&d, usual);
	if (acceptor_listen(d.acceptor, urls[_i], &em) != ERR_OK) {
		ck_assert_int_eq(_i, 2); /* a machine without IPv6 */
		desk_close(&d);
		return;
	}
	acceptor_start(d.acceptor);
	fd = _i == 0 ? test_connect_ipv6(acceptor_port(d.acceptor, 0)) : -1;
	if (fd < 0)
		fd = test_connect(acceptor_port(d.acceptor, 0));
	test_write(fd, PREFACE);
	ck_assert(TEST_WAIT(2000, seen(&d, &d.http2) == 1));
	if (_i == 2) /* an IPv4 client of an IPv6 socket */
		ck_assert_int_eq(strncmp(d.address, "127.0.0.1:", 10), 0);
	close(fd);
	desk_close(&d);
}
END_TEST

START_TEST(acceptor__taken_port_is_told)
{
	struct desk d, second;
	char url[64];
	struct errmsg em = { .text = "" };
	snprintf(url, sizeof(url), "http://127.0.0.1:%u", desk_open(&d, usual));
	desk_init(&second, usual);
	ck_assert_int_eq(acceptor_listen(second.acceptor, url, &em), ERR_IO);
	ck_assert_ptr_nonnull(strstr(em.text, url));
	ck_assert_ptr_nonnull(strstr(em.text, "Address already in use"));
	ck_assert_int_eq(acceptor_listen(second.acceptor, "http://192.0.2.1:1", &em), ERR_IO);
	ck_assert_ptr_nonnull(strstr(em.text, "192.0.2.1"));
	ck_assert_int_eq(acceptor_listen(second.acceptor, "https://127.0.0.1:1", &em), ERR_IO);
	ck_assert_ptr_nonnull(strstr(em.text, "no certificate for TLS"));
	desk_close(&second);
	desk_close(&d);
}
END_TEST

START_TEST(acceptor__port_is_free_again_at_once)
{
	struct desk d;
	char url[64];
	uint16_t port = desk_open(&d, usual);
	int fd = test_connect(port);
	test_write(fd, PREFACE);
	ck_assert(TEST_WAIT(2000, seen(&d, &d.http2) == 1));
	desk_close(&d); /* the server closes first: its end stays in TIME_WAIT */
	snprintf(url, sizeof(url), "http://127.0.0.1:%u", port);
	desk_init(&d, usual);
	desk_listen(&d, url);
	close(fd);
	desk_close(&d);
}
END_TEST

/* ---- who does not decide ---- */

START_TEST(acceptor__undecided_is_closed_at_its_deadline)
{
	struct desk d;
	uint16_t port = desk_open(&d, (struct acceptor_limits){ .max_undecided = 100, .decide_ms = 300 });
	int silent = test_connect(port), slow = test_connect(port);
	uint64_t began = test_now_ms(), cpu = test_cpu_ms();
	test_write(slow, "PRI * ");
	ck_assert(test_closed_within(slow, 3000));
	ck_assert_uint_ge(test_now_ms() - began, 250);
	ck_assert(test_closed_within(silent, 3000));
	ck_assert_uint_lt(test_now_ms() - began, 2000);
	/* Bytes that lie there undecided must not keep the thread busy. */
	ck_assert_uint_lt(test_cpu_ms() - cpu, 150);
	ck_assert_uint_eq(seen(&d, &d.http2) + seen(&d, &d.http1), 0);
	close(silent);
	close(slow);
	desk_close(&d);
}
END_TEST

START_TEST(acceptor__hang_up_is_noticed)
{
	struct desk d;
	uint16_t port = desk_open(&d, usual);
	size_t before = test_open_descriptors();
	int half;
	close(test_connect(port));
	half = test_connect(port);
	test_write(half, "PRI * HT");
	test_sleep_ms(20);
	shutdown(half, SHUT_WR);
	ck_assert(test_closed_within(half, 2000));
	close(half);
	half = test_connect(port); /* all of it at once */
	test_write(half, "PRI * HT");
	shutdown(half, SHUT_WR);
	ck_assert(test_closed_within(half, 2000));
	close(half);
	ck_assert(TEST_WAIT(2000, test_open_descriptors() == before));
	ck_assert_uint_eq(seen(&d, &d.http2) + seen(&d, &d.http1), 0);
	desk_close(&d);
}
END_TEST

START_TEST(acceptor__oldest_undecided_makes_room)
{
	struct desk d;
	uint16_t port = desk_open(&d, (struct acceptor_limits){ .max_undecided = 5 });
	int fds[8];
	for (size_t i = 0; i < 8; i++) {
		fds[i] = test_connect(port);
		test_sleep_ms(5);
	}
	for (size_t i = 0; i < 3; i++)
		ck_assert(test_closed_within(fds[i], 2000));
	for (size_t i = 3; i < 8; i++)
		test_write(fds[i], PREFACE);
	ck_assert(TEST_WAIT(2000, seen(&d, &d.http2) == 5));
	for (size_t i = 0; i < 8; i++)
		close(fds[i]);
	desk_close(&d);
}
END_TEST

START_TEST(acceptor__stop_closes_the_undecided)
{
	struct desk d;
	uint16_t port = desk_open(&d, usual);
	int fds[10];
	for (size_t i = 0; i < 10; i++)
		fds[i] = test_connect(port);
	test_write(fds[0], "PRI");
	test_sleep_ms(20);
	acceptor_stop(d.acceptor);
	acceptor_stop(d.acceptor); /* twice is harmless */
	for (size_t i = 0; i < 10; i++) {
		ck_assert(test_closed_within(fds[i], 2000));
		close(fds[i]);
	}
	desk_close(&d);
}
END_TEST

/* ---- descriptors ---- */

static void garbage(uint16_t port, unsigned int i)
{
	static const char *const texts[] = { "", "P", "PRI * HTTP/2.", PREFACE, "GET / HTTP/1.1\r\n\r\n", "\xff\xfe\x01", "PRI * HTTP/3.0" };
	struct linger reset = { .l_onoff = 1, .l_linger = 0 };
	int fd = test_connect(port);
	test_write(fd, texts[i % 7]);
	if (i % 3 == 0)
		shutdown(fd, SHUT_WR);
	if (i % 4) /* also keeps ports out of TIME_WAIT */
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	close(fd);
}

START_TEST(acceptor__garbage_leaks_no_descriptor)
{
	struct desk d;
	uint16_t port = desk_open(&d, (struct acceptor_limits){ .max_undecided = 50, .decide_ms = 2000 });
	size_t before = test_open_descriptors();
	d.keep = false;
	for (unsigned int i = 0; i < 10000; i++)
		garbage(port, i);
	ck_assert(TEST_WAIT(3000, test_open_descriptors() == before));
	ck_assert_uint_gt(seen(&d, &d.http1), 2000);
	ck_assert_uint_gt(seen(&d, &d.http2), 500); /* some were reset before they were seen */
	desk_close(&d);
}
END_TEST

static void limit_descriptors(rlim_t n)
{
	struct rlimit r;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &r), 0);
	r.rlim_cur = n;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &r), 0);
}

static int lowest_free(void)
{
	int fd = dup(0);
	ck_assert_int_ge(fd, 0);
	close(fd);
	return fd;
}

START_TEST(acceptor__reserve_is_not_given_to_clients)
{
	enum { CLIENTS = 60, ROOM = 40, RESERVE = 16 };
	struct desk d;
	int fds[CLIENTS], limit, again;
	size_t refused = 0, before;
	uint16_t port;
	desk_init(&d, (struct acceptor_limits){ .max_undecided = 100, .reserve = RESERVE });
	port = desk_listen(&d, "http://127.0.0.1:0");
	for (size_t i = 0; i < CLIENTS; i++) {
		fds[i] = test_connect(port); /* the kernel does, nobody accepts yet */
		test_write(fds[i], PREFACE);
	}
	limit = lowest_free() + ROOM;
	limit_descriptors((rlim_t)limit);
	acceptor_start(d.acceptor);
	ck_assert(TEST_WAIT(3000, seen(&d, &d.http2) == ROOM - RESERVE));
	for (size_t i = ROOM - RESERVE; i < CLIENTS; i++)
		refused += test_closed_within(fds[i], 10000);
	ck_assert_uint_eq(refused, CLIENTS - (ROOM - RESERVE));
	ck_assert_int_lt(d.highest, limit - RESERVE);
	/* Who leaves makes room. */
	desk_let_go(&d);
	for (size_t i = 0; i < CLIENTS; i++)
		close(fds[i]);
	before = seen(&d, &d.http2);
	again = test_connect(port);
	test_write(again, PREFACE);
	ck_assert(TEST_WAIT(1000, seen(&d, &d.http2) == before + 1));
	close(again);
	desk_close(&d);
}
END_TEST

START_TEST(acceptor__recovers_when_descriptors_run_out)
{
	enum { CLIENTS = 20 };
	struct desk d;
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fds[CLIENTS], filler[64];
	size_t fillers = 0;
	uint64_t cpu;
	sa.sin_port = htons(desk_open(&d, usual));
	for (size_t i = 0; i < CLIENTS; i++)
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	limit_descriptors((rlim_t)lowest_free() + 32);
	while ((filler[fillers] = dup(0)) >= 0)
		fillers++;
	ck_assert_int_eq(errno, EMFILE);
	for (size_t i = 0; i < CLIENTS; i++) {
		ck_assert_int_eq(connect(fds[i], (struct sockaddr *)&sa, sizeof(sa)), 0);
		test_write(fds[i], PREFACE);
	}
	cpu = test_cpu_ms();
	test_sleep_ms(500);
	ck_assert_uint_lt(test_cpu_ms() - cpu, 150); /* it rests between attempts */
	ck_assert_uint_eq(seen(&d, &d.http2), 0);
	while (fillers)
		close(filler[--fillers]);
	limit_descriptors(1024);
	ck_assert(TEST_WAIT(1000, seen(&d, &d.http2) == CLIENTS)); /* they had waited in the kernel */
	for (size_t i = 0; i < CLIENTS; i++)
		close(fds[i]);
	desk_close(&d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("acceptor");
	TCase *c = tcase_create("acceptor");
	SRunner *r;
	int failed;
	tcase_set_timeout(c, 60);
	tcase_add_test(c, acceptor__preface_goes_to_http2_unread);
	tcase_add_test(c, acceptor__descriptor_is_ready_for_use);
	tcase_add_test(c, acceptor__preface_may_come_in_pieces);
	tcase_add_loop_test(c, acceptor__all_else_goes_to_http1_at_once, 0, sizeof(others) / sizeof(others[0]));
	tcase_add_test(c, acceptor__no_sink_closes);
	tcase_add_test(c, acceptor__listens_on_several_urls);
	tcase_add_loop_test(c, acceptor__names_and_wildcards, 0, 3);
	tcase_add_test(c, acceptor__taken_port_is_told);
	tcase_add_test(c, acceptor__port_is_free_again_at_once);
	tcase_add_test(c, acceptor__undecided_is_closed_at_its_deadline);
	tcase_add_test(c, acceptor__hang_up_is_noticed);
	tcase_add_test(c, acceptor__oldest_undecided_makes_room);
	tcase_add_test(c, acceptor__stop_closes_the_undecided);
	tcase_add_test(c, acceptor__garbage_leaks_no_descriptor);
	tcase_add_test(c, acceptor__reserve_is_not_given_to_clients);
	tcase_add_test(c, acceptor__recovers_when_descriptors_run_out);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
