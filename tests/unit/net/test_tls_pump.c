/* test_tls_pump.c: the bytes between TLS and a front end, and every way in which a connection ends. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "net_test.h"
#include "tls_desk.h"

/* ---- bytes ---- */

/* A connection through the pump: the client, and the front end's socket. */
static void connect_through(struct desk *d, struct kit_client *c)
{
	desk_open(d, usual, true, true);
	ck_assert(kit_client_open(c, d->port, &alice));
	kit_client_write(c, "G");
	ck_assert(TEST_WAIT(5000, count(d, &d->http1) == 1));
	expect(d->fd, "G");
}

enum { MUCH = 8 << 20 };

static uint8_t byte_at(size_t i)
{
	return (uint8_t)(i * 31 + i / 251);
}

static void *echo(void *arg)
{
	static uint8_t bytes[10000];
	int fd = *(int *)arg;
	size_t sum = 0;
	while (sum < MUCH) {
		ssize_t n = recv(fd, bytes, sizeof(bytes), 0);
		if (n < 0) {
			test_sleep_ms(1);
			continue;
		}
		if (n == 0)
			break;
		for (ssize_t sent = 0; sent < n;) {
			ssize_t m = send(fd, bytes + sent, (size_t)(n - sent), MSG_NOSIGNAL);
			if (m < 0)
				test_sleep_ms(1);
			else
				sent += m;
		}
		sum += (size_t)n;
	}
	return NULL;
}

/* Written by hand, in pieces of any size; the socket blocks, so the far side's slowness comes through. */
START_TEST(pump__much_goes_both_ways_unharmed)
{
	static uint8_t bytes[70000];
	struct desk d;
	struct kit_client c;
	pthread_t thread;
	size_t sent = 0, got = 0;
	bool unharmed = true;
	connect_through(&d, &c);
	ck_assert_int_eq(pthread_create(&thread, NULL, echo, &d.fd), 0);
	SSL_set_mode(c.ssl, SSL_MODE_ENABLE_PARTIAL_WRITE);
	while (got < MUCH) {
		size_t ahead = sent - got;
		if (sent < MUCH && ahead < 300000) {
			size_t len = 1 + sent % sizeof(bytes);
			int n;
			if (len > MUCH - sent)
				len = MUCH - sent;
			for (size_t i = 0; i < len; i++)
				bytes[i] = byte_at(sent + i);
			n = SSL_write(c.ssl, bytes, (int)len);
			ck_assert_int_gt(n, 0);
			sent += (size_t)n;
		} else {
			int n = SSL_read(c.ssl, bytes, sizeof(bytes));
			ck_assert_int_gt(n, 0);
			for (int i = 0; i < n; i++)
				unharmed = unharmed && bytes[i] == byte_at(got + (size_t)i);
			got += (size_t)n;
		}
	}
	ck_assert(unharmed);
	pthread_join(thread, NULL);
	kit_client_close(&c);
	desk_close(&d);
}
END_TEST

/* Many records in one write to the socket: OpenSSL reads all of them at once, and the socket has nothing more to tell. */
START_TEST(pump__records_that_come_together_are_all_passed_on)
{
	struct desk d;
	struct kit_client c;
	BIO *buffer = BIO_new(BIO_f_buffer()), *net;
	connect_through(&d, &c);
	net = SSL_get_wbio(c.ssl);
	BIO_up_ref(net);
	BIO_set_write_buffer_size(buffer, 16384);
	SSL_set0_wbio(c.ssl, BIO_push(buffer, net));
	for (int i = 0; i < 100; i++)
		kit_client_write(&c, "0123456789");
	ck_assert_int_eq(BIO_flush(SSL_get_wbio(c.ssl)), 1);
	for (int i = 0; i < 100; i++)
		expect(d.fd, "0123456789");
	kit_client_close(&c);
	desk_close(&d);
}
END_TEST

START_TEST(pump__a_reader_who_does_not_read_holds_the_writer)
{
	static uint8_t bytes[65536];
	struct desk d;
	struct kit_client c;
	size_t sum = 0, got = 0;
	connect_through(&d, &c);
	/* Until nothing is taken for a while: buffers of two sockets, a pair and the pump. */
	for (uint64_t last = test_now_ms(); test_now_ms() - last < 300;) {
		ssize_t n = send(d.fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
		if (n > 0) {
			sum += (size_t)n;
			last = test_now_ms();
		} else {
			test_sleep_ms(5);
		}
		ck_assert_uint_lt(sum, 64 << 20);
	}
	while (got < sum) {
		int n = SSL_read(c.ssl, bytes, sizeof(bytes));
		ck_assert_int_gt(n, 0);
		got += (size_t)n;
	}
	ck_assert_uint_eq(got, sum);
	kit_client_close(&c);
	desk_close(&d);
}
END_TEST

START_TEST(pump__what_is_said_last_arrives_before_the_end)
{
	static char bytes[300000];
	static uint8_t got[65536];
	struct desk d;
	struct kit_client c;
	size_t sum = 0;
	int n;
	connect_through(&d, &c);
	/* The client is still sending: closing must not throw the answer away. */
	kit_client_write(&c, "and more that nobody reads");
	for (size_t sent = 0; sent < sizeof(bytes);) {
		ssize_t m = send(d.fd, bytes + sent, sizeof(bytes) - sent, MSG_NOSIGNAL);
		if (m > 0)
			sent += (size_t)m;
		else
			test_sleep_ms(1);
	}
	close(d.fd);
	d.fd = -1;
	while ((n = SSL_read(c.ssl, got, sizeof(got))) > 0)
		sum += (size_t)n;
	ck_assert_uint_eq(sum, sizeof(bytes));
	ck_assert_int_eq(SSL_get_error(c.ssl, n), SSL_ERROR_ZERO_RETURN); /* in good order */
	kit_client_close(&c);
	ck_assert(TEST_WAIT(5000, acceptor_tls_connections(d.acceptor) == 0));
	desk_close(&d);
}
END_TEST

START_TEST(pump__a_client_that_has_sent_all_may_still_read)
{
	struct desk d;
	struct kit_client c;
	char text[64];
	connect_through(&d, &c);
	kit_client_write(&c, "question");
	if (_i)
		ck_assert_int_ge(SSL_shutdown(c.ssl), 0); /* says so */
	shutdown(c.fd, SHUT_WR);                          /* or just stops */
	ck_assert_int_eq(read_all(d.fd, text, sizeof(text)), 8);
	ck_assert_str_eq(text, "question");
	test_write(d.fd, "answer");
	close(d.fd);
	d.fd = -1;
	ck_assert_int_eq(kit_client_read(&c, text, sizeof(text)), 6);
	ck_assert_str_eq(text, "answer");
	kit_client_close(&c);
	desk_close(&d);
}
END_TEST

START_TEST(pump__a_reset_is_an_end)
{
	struct linger now = { .l_onoff = 1 };
	struct desk d;
	struct kit_client c;
	connect_through(&d, &c);
	ck_assert_int_eq(setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
	close(c.fd);
	c.fd = -1;
	ck_assert(test_closed_within(d.fd, 5000));
	ck_assert(TEST_WAIT(5000, acceptor_tls_connections(d.acceptor) == 0));
	kit_client_close(&c);
	desk_close(&d);
}
END_TEST

START_TEST(pump__who_does_not_hang_up_is_not_waited_for)
{
	struct desk d;
	struct kit_client c;
	connect_through(&d, &c);
	close(d.fd);
	d.fd = -1;
	ck_assert(TEST_WAIT(10000, acceptor_tls_connections(d.acceptor) == 0));
	kit_client_close(&c);
	desk_close(&d);
}
END_TEST

static void read_some(struct kit_client *c, char *bytes, size_t len)
{
	for (size_t at = 0; at < len;) {
		int n = SSL_read(c->ssl, bytes + at, (int)(len - at));
		ck_assert_int_gt(n, 0);
		at += (size_t)n;
	}
}

/* The front end writes until nothing is taken any more, and closes. Returns how much it was. */
static size_t fill_and_close(struct desk *d)
{
	static uint8_t bytes[65536];
	size_t sum = 0;
	for (uint64_t last = test_now_ms(); test_now_ms() - last < 300;) {
		ssize_t n = send(d->fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
		if (n > 0) {
			sum += (size_t)n;
			last = test_now_ms();
		} else {
			test_sleep_ms(5);
		}
		ck_assert_uint_lt(sum, 64 << 20);
	}
	close(d->fd);
	d->fd = -1;
	return sum;
}

START_TEST(pump__who_takes_nothing_of_what_is_left_is_let_go_and_who_is_slow_is_not)
{
	struct desk d;
	struct kit_client stuck, slow;
	static char bytes[256 * 1024];
	int small = 64 * 1024;
	size_t left, got = 0;
	desk_open(&d, (struct acceptor_limits){ .max_undecided = 100, .tls_flush_ms = 1000 }, true, true);
	ck_assert(kit_client_open(&slow, d.port, &alice));
	kit_client_write(&slow, "G");
	ck_assert(TEST_WAIT(5000, count(&d, &d.http1) == 1));
	expect(d.fd, "G");
	ck_assert_int_eq(setsockopt(slow.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	left = fill_and_close(&d);
	for (uint64_t until = test_now_ms() + 3000; test_now_ms() < until; got += 4096) { /* so slow that the kernel asks for no more of it */
		read_some(&slow, bytes, 4096);
		test_sleep_ms(30);
	}
	for (size_t want; got < left; got += want) {
		want = left - got < sizeof(bytes) ? left - got : sizeof(bytes);
		read_some(&slow, bytes, want);
	}
	kit_client_close(&slow);
	ck_assert(TEST_WAIT(10000, acceptor_tls_connections(d.acceptor) == 0));

	ck_assert(kit_client_open(&stuck, d.port, &alice));
	kit_client_write(&stuck, "G");
	ck_assert(TEST_WAIT(5000, count(&d, &d.http1) == 2));
	expect(d.fd, "G");
	fill_and_close(&d);
	ck_assert(TEST_WAIT(10000, acceptor_tls_connections(d.acceptor) == 0));
	kit_client_close(&stuck);
	desk_close(&d);
}
END_TEST

START_TEST(pump__stop_ends_what_is_open)
{
	struct desk d;
	struct kit_client c;
	char text[8];
	connect_through(&d, &c);
	desk_close(&d);
	ck_assert_int_le(kit_client_read(&c, text, sizeof(text)), 0);
	kit_client_close(&c);
}
END_TEST

static void add_tests(TCase *c)
{
	tcase_add_test(c, pump__much_goes_both_ways_unharmed);
	tcase_add_test(c, pump__records_that_come_together_are_all_passed_on);
	tcase_add_test(c, pump__a_reader_who_does_not_read_holds_the_writer);
	tcase_add_test(c, pump__what_is_said_last_arrives_before_the_end);
	tcase_add_loop_test(c, pump__a_client_that_has_sent_all_may_still_read, 0, 2);
	tcase_add_test(c, pump__a_reset_is_an_end);
	tcase_add_test(c, pump__who_does_not_hang_up_is_not_waited_for);
	tcase_add_test(c, pump__who_takes_nothing_of_what_is_left_is_let_go_and_who_is_slow_is_not);
	tcase_add_test(c, pump__stop_ends_what_is_open);
}

int main(void)
{
	return desk_run("tls_pump", add_tests);
}
