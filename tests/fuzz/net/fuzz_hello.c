/* fuzz_hello.c: what strangers say first: handshakes that are broken, cut and scattered, and first bytes within TLS and without.
 *
 * Whatever comes: nothing reaches a front end but what a handshake came before (where TLS is spoken), the first bytes decide as a model of one line
 * says, no descriptor stays behind, and the next honest client is served. */
#include <dirent.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "net/acceptor.h"
#include "support/scale.h"

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

enum { KIND_NONE, KIND_HTTP1, KIND_HTTP2 };

static struct rng rng;

struct desk {
	pthread_mutex_t mu;
	size_t http1, http2;
};

static void take(struct desk *d, size_t *counter, int fd, struct identity *who)
{
	identity_unref(who);
	close(fd);
	pthread_mutex_lock(&d->mu);
	++*counter;
	pthread_mutex_unlock(&d->mu);
}

static void take_http1(void *ctx, int fd, struct identity *who)
{
	take(ctx, &((struct desk *)ctx)->http1, fd, who);
}

static void take_http2(void *ctx, int fd, struct identity *who)
{
	take(ctx, &((struct desk *)ctx)->http2, fd, who);
}

static size_t total(struct desk *d)
{
	size_t n;
	pthread_mutex_lock(&d->mu);
	n = d->http1 + d->http2;
	pthread_mutex_unlock(&d->mu);
	return n;
}

#define TEST_WAIT(ms, expr)                                                     \
	({                                                                      \
		uint64_t until_ = mono_ms() + (ms);                              \
		bool done_;                                                     \
		while (!(done_ = (expr)) && mono_ms() < until_)                  \
			nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL); \
		done_;                                                          \
	})

static size_t open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;
	ASSERT(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int dial(uint16_t port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ASSERT(fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
	return fd;
}

/* ---- what is said ---- */

static SSL_CTX *client_ctx;

static size_t real_hello(uint8_t *bytes, size_t cap)
{
	SSL *ssl = SSL_new(client_ctx);
	BIO *out = BIO_new(BIO_s_mem());
	int n;
	SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
	SSL_set_tlsext_host_name(ssl, "localhost");
	ASSERT(SSL_connect(ssl) < 0);
	n = BIO_read(out, bytes, (int)cap);
	ASSERT(n > 0);
	SSL_free(ssl);
	ERR_clear_error();
	return (size_t)n;
}

/* A few bytes other than they were, parts cut out or doubled. Returns the new length. */
static size_t break_it(uint8_t *bytes, size_t len, size_t cap)
{
	for (uint64_t i = 1 + rng_below(&rng, 4); i > 0 && len > 1; i--) {
		size_t at = rng_below(&rng, len), n = rng_below(&rng, len - at) + 1;
		switch (rng_below(&rng, 4)) {
		case 0:
			bytes[at] = (uint8_t)rng_below(&rng, 256);
			break;
		case 1:
			bytes[at] ^= (uint8_t)(1U << rng_below(&rng, 8));
			break;
		case 2: /* gone */
			memmove(bytes + at, bytes + at + n, len - at - n);
			len -= n;
			break;
		default: /* twice */
			if (len + n <= cap) {
				memmove(bytes + at + n, bytes + at, len - at);
				len += n;
			}
		}
	}
	return len;
}

static void send_scattered(int fd, const uint8_t *bytes, size_t len)
{
	while (len) {
		size_t n = rng_below(&rng, 3) ? len : rng_below(&rng, len) + 1;
		if (send(fd, bytes, n, MSG_NOSIGNAL) != (ssize_t)n)
			return; /* it has heard enough */
		bytes += n;
		len -= n;
	}
}

/* Like the preface for as long as chance has it, then anything. */
static size_t first_bytes(char *bytes, size_t cap)
{
	size_t same = rng_below(&rng, sizeof(PREFACE)), len = rng_below(&rng, cap) + 1;
	for (size_t i = 0; i < len; i++)
		bytes[i] = i < same ? PREFACE[i] : (char)rng_below(&rng, 256);
	return len;
}

/* The model. */
static int kind_of(const char *bytes, size_t len)
{
	size_t n = len < 14 ? len : 14;
	if (memcmp(bytes, PREFACE, n) != 0)
		return KIND_HTTP1;
	return n == 14 ? KIND_HTTP2 : KIND_NONE;
}

/* ---- rounds ---- */

static void broken_handshake(uint16_t port)
{
	uint8_t bytes[4096];
	size_t len = real_hello(bytes, sizeof(bytes) / 2);
	int fd = dial(port);
	len = break_it(bytes, len, sizeof(bytes));
	send_scattered(fd, bytes, len);
	if (rng_below(&rng, 2))
		shutdown(fd, SHUT_WR);
	if (rng_below(&rng, 4) == 0) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		poll(&p, 1, 5);
	}
	close(fd);
}

static int connect_tls(uint16_t port, bool for_grpc, SSL **ret)
{
	int fd = dial(port);
	SSL *ssl = SSL_new(client_ctx);
	if (for_grpc)
		ASSERT(SSL_set_alpn_protos(ssl, (const unsigned char *)"\x02h2", 3) == 0);
	ASSERT(SSL_set_fd(ssl, fd) == 1);
	ASSERT(SSL_connect(ssl) == 1);
	*ret = ssl;
	return fd;
}

/* Said in records of any size; what comes of it must be as the model says. A client that wants HTTP/2 and begins with a record in which its preface has room
 * is believed. */
static void honest_handshake(struct desk *d, uint16_t port)
{
	char bytes[40];
	size_t len = first_bytes(bytes, sizeof(bytes)), http1 = d->http1, http2 = d->http2, sent = 0;
	bool for_grpc = rng_below(&rng, 2);
	int kind = kind_of(bytes, len);
	SSL *ssl;
	int fd = connect_tls(port, for_grpc, &ssl);
	while (sent < len) {
		size_t n = rng_below(&rng, len - sent) + 1;
		if (for_grpc && !sent && n >= sizeof(PREFACE) - 1)
			kind = KIND_HTTP2;
		if (SSL_write(ssl, bytes + sent, (int)n) != (int)n)
			break;
		sent += n;
	}
	if (kind == KIND_HTTP1)
		ASSERT(TEST_WAIT(10000, total(d) == http1 + http2 + 1) && d->http1 == http1 + 1);
	else if (kind == KIND_HTTP2)
		ASSERT(TEST_WAIT(10000, total(d) == http1 + http2 + 1) && d->http2 == http2 + 1);
	SSL_free(ssl);
	close(fd);
	ERR_clear_error();
}

static void plain_bytes(struct desk *d, uint16_t port)
{
	char bytes[40];
	size_t len = first_bytes(bytes, sizeof(bytes)), http1 = d->http1, http2 = d->http2;
	int kind = kind_of(bytes, len), fd = dial(port);
	send_scattered(fd, (const uint8_t *)bytes, len);
	if (kind == KIND_HTTP1)
		ASSERT(TEST_WAIT(10000, total(d) == http1 + http2 + 1) && d->http1 == http1 + 1);
	else if (kind == KIND_HTTP2)
		ASSERT(TEST_WAIT(10000, total(d) == http1 + http2 + 1) && d->http2 == http2 + 1);
	close(fd);
}

int main(int argc, char **argv)
{
	struct desk d = { .mu = PTHREAD_MUTEX_INITIALIZER };
	struct acceptor_sinks sinks = { &d, take_http2, take_http1, .http2_is_grpc = true };
	struct tls_config config = { .name = "fuzz", .self_validity_s = 86400 };
	struct errmsg em = { .text = "" };
	struct tls_context *tls = tls_context_new(&config, &em);
	struct acceptor *a = acceptor_new(&sinks, &(struct acceptor_limits){ .max_undecided = 200, .decide_ms = 5000 });
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : mono_ms();
	size_t rounds = test_scaled(1500), before, known;
	printf("seed %llu, %zu rounds\n", (unsigned long long)seed, rounds);
	fflush(stdout);
	signal(SIGPIPE, SIG_IGN);
	rng_init(&rng, seed);
	ASSERT(tls);
	client_ctx = SSL_CTX_new(TLS_client_method());
	ASSERT(acceptor_listen_tls(a, "https://127.0.0.1:0", NULL, tls, &em) == ERR_OK && acceptor_listen(a, "http://127.0.0.1:0", &em) == ERR_OK);
	acceptor_start(a);
	before = open_descriptors();
	for (size_t i = 0; i < rounds; i++) {
		uint64_t what = rng_below(&rng, 10);
		known = total(&d);
		if (what == 0) {
			honest_handshake(&d, acceptor_port(a, 0));
		} else if (what < 3) {
			plain_bytes(&d, acceptor_port(a, 1));
		} else {
			broken_handshake(acceptor_port(a, 0));
			ASSERT(total(&d) == known); /* nobody comes in without a handshake */
		}
	}
	ASSERT(TEST_WAIT(20000, open_descriptors() <= before));
	ASSERT(TEST_WAIT(20000, acceptor_tls_connections(a) == 0));
	acceptor_free(a);
	tls_context_free(tls);
	SSL_CTX_free(client_ctx);
	printf("http/1.1 %zu, http/2 %zu\n", d.http1, d.http2);
	return d.http1 && d.http2 ? EXIT_SUCCESS : EXIT_FAILURE;
}
