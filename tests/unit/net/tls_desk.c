/* tls_desk.c: see tls_desk.h. */
#include "tls_desk.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "net_test.h"

static void take(struct desk *d, size_t *counter, int fd, struct identity *who)
{
	pthread_mutex_lock(&d->mu);
	if (d->fd >= 0)
		close(d->fd);
	identity_unref(d->who);
	d->fd = fd;
	d->who = who;
	++*counter;
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

size_t count(struct desk *d, const size_t *counter)
{
	size_t n;
	pthread_mutex_lock(&d->mu);
	n = *counter;
	pthread_mutex_unlock(&d->mu);
	return n;
}

struct kit_ca ca;
struct tls_config config;

/* A CA, a server's certificate and that of a client "alice", and a config that wants one. */
static void desk_setup(void)
{
	signal(SIGPIPE, SIG_IGN);
	ca = kit_ca_new("ca");
	kit_ca_write(&ca, "ca.pem");
	kit_cert(&ca, "server", &(struct kit_cert_spec){ .cn = "server", .names = "DNS:localhost,IP:127.0.0.1" });
	kit_cert(&ca, "alice", &(struct kit_cert_spec){ .cn = "alice", .names = "DNS:alice.example,IP:2001:db8::1,URI:spiffe://x/alice,email:a@x.example" });
	config = (struct tls_config){ .name = "test" };
	config.cert_file = strdup(kit_path("server.pem"));
	config.key_file = strdup(kit_path("server.key"));
	config.ca_file = strdup(kit_path("ca.pem"));
}

static void desk_teardown(void)
{
	free((void *)(uintptr_t)config.cert_file);
	free((void *)(uintptr_t)config.key_file);
	free((void *)(uintptr_t)config.ca_file);
	kit_ca_free(&ca);
}

struct tls_context *context_of(const struct tls_config *c)
{
	struct errmsg em = { .text = "" };
	struct tls_context *t = tls_context_new(c, &em);
	ck_assert_msg(t != NULL, "%s", em.text);
	return t;
}

static void open_with(struct desk *d, struct acceptor_limits limits, struct acceptor_sinks sinks)
{
	struct errmsg em = { .text = "" };
	memset(d, 0, sizeof(*d));
	d->fd = -1;
	pthread_mutex_init(&d->mu, NULL);
	d->tls = context_of(&config);
	d->acceptor = acceptor_new(&sinks, &limits);
	ck_assert_msg(acceptor_listen_tls(d->acceptor, "https://127.0.0.1:0", NULL, d->tls, &em) == ERR_OK, "%s", em.text);
	d->port = acceptor_port(d->acceptor, 0);
	acceptor_start(d->acceptor);
}

void desk_open(struct desk *d, struct acceptor_limits limits, bool http1, bool http2)
{
	open_with(d, limits, (struct acceptor_sinks){ .ctx = d, .http2 = http2 ? take_http2 : NULL, .http1 = http1 ? take_http1 : NULL });
}

void desk_open_as_grpc(struct desk *d, struct acceptor_limits limits)
{
	open_with(d, limits, (struct acceptor_sinks){ .ctx = d, .http2 = take_http2, .http1 = take_http1, .http2_is_grpc = true });
}

const struct acceptor_limits usual = { .max_undecided = 100 };

void desk_close(struct desk *d)
{
	acceptor_stop(d->acceptor);
	if (d->fd >= 0)
		close(d->fd);
	identity_unref(d->who);
	acceptor_free(d->acceptor);
	tls_context_free(d->tls);
	pthread_mutex_destroy(&d->mu);
}

const struct kit_client_spec alice = { .ca = "ca", .cert = "alice", .host = "localhost" };

/* True when the client gets to the sink. */
bool is_let_in(struct desk *d, const struct kit_client_spec *spec)
{
	size_t before = count(d, &d->http1);
	struct kit_client c;
	bool in = kit_client_open(&c, d->port, spec);
	if (in && SSL_write(c.ssl, "GET / HTTP/1.1\r\n", 16) == 16) {
		char byte[2];
		struct timeval limit = { .tv_usec = 20000 };
		setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		/* Let in, or told not to be, whichever comes first. */
		while (count(d, &d->http1) == before) {
			int n = SSL_read(c.ssl, byte, 1);
			if (n <= 0 && SSL_get_error(c.ssl, n) != SSL_ERROR_WANT_READ)
				break;
		}
	}
	kit_client_close(&c);
	return count(d, &d->http1) > before;
}

int read_all(int fd, char *text, size_t cap)
{
	size_t len = 0;
	uint64_t until = test_now_ms() + 5000;
	while (len < cap - 1 && test_now_ms() < until) {
		ssize_t n = recv(fd, text + len, cap - 1 - len, 0);
		if (n == 0)
			break;
		if (n < 0)
			test_sleep_ms(1);
		else
			len += (size_t)n;
	}
	text[len] = '\0';
	return (int)len;
}

/* Waits for exactly that text. */
void expect(int fd, const char *text)
{
	char got[256] = "";
	ck_assert_int_eq(read_all(fd, got, strlen(text) + 1), (int)strlen(text));
	ck_assert_str_eq(got, text);
}

int desk_run(const char *name, void (*add_tests)(TCase *c))
{
	Suite *s = suite_create(name);
	TCase *c = tcase_create(name);
	SRunner *r;
	int failed;
	tcase_set_timeout(c, 60);
	tcase_add_checked_fixture(c, desk_setup, desk_teardown);
	add_tests(c);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
