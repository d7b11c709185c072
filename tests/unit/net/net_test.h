/* net_test.h: sockets, clocks and descriptors for these tests. */
#ifndef HOLDFAST_TESTS_NET_TEST_H
#define HOLDFAST_TESTS_NET_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

uint64_t test_now_ms(void);
uint64_t test_cpu_ms(void); /* of all threads of this process */
void test_sleep_ms(uint64_t ms);
size_t test_open_descriptors(void);
int test_connect(uint16_t port);        /* to 127.0.0.1; asserts */
int test_connect_ipv6(uint16_t port);   /* -1: no IPv6 here */
void test_write(int fd, const char *text);
/* Waits for the other end to close: true when it did so within that time. */
bool test_closed_within(int fd, uint64_t ms);
uint16_t test_local_port(int fd);
uint16_t test_free_port(void);          /* nobody listens there */

/* Polls until the expression holds or that time is over; its last value. */
#define TEST_WAIT(ms, expr)                                                                                              \
	({                                                                                                               \
		uint64_t until_ = test_now_ms() + (ms);                                                                  \
		bool done_;                                                                                              \
		while (!(done_ = (expr)) && test_now_ms() < until_)                                                      \
			test_sleep_ms(1);                                                                                \
		done_;                                                                                                   \
	})

#endif
