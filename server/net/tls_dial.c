/* tls_dial.c: see tls_dial.h.
 *
 * Each dial has a thread, for as long as it takes: names are looked up by the system's resolver, which only knows how to block. Dials are few (one a peer that
 * is not connected), and what they make goes on in the pump.
 *
 *   (D1) a dial's thread is the only one that knows its descriptors, until the pump has them.
 *   (D2) dials counts the threads; the dialer is freed when there is none. */
#include "tls_dial.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "log/log.h"
#include "tls_pump.h"

#define STOP_PATIENCE_MS 500
#define USER_TIMEOUT_MS 5000U /* as gRPC has it for peers */

struct tls_dialer {
	struct tls_context *tls;
	struct tls_pump *pump;
	uint32_t timeout_ms;
	int stop_fd; /* readable: give up */
	pthread_mutex_t mu;
	pthread_cond_t done;
	size_t dials;  /* guarded by mu */
	bool stopping; /* guarded by mu */
};

struct dial {
	struct tls_dialer *dialer;
	char host[256], port[8], name[256];
	int pair_fd;
	uint64_t give_up_ms;
};

/* False: no time is left, or nobody wants it any more. */
static bool wait_for(const struct dial *d, int fd, short events)
{
	struct pollfd fds[2] = { { .fd = fd, .events = events }, { .fd = d->dialer->stop_fd, .events = POLLIN } };
	uint64_t now = mono_ms();
	int n;
	if (now >= d->give_up_ms)
		return false;
	n = poll(fds, 2, (int)(d->give_up_ms - now));
	return (n > 0 || (n < 0 && errno == EINTR)) && !fds[1].revents;
}

static int connect_to(const struct dial *d, const struct addrinfo *ai)
{
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = 0, on = 1;
	unsigned int user_timeout = USER_TIMEOUT_MS;
	socklen_t len = sizeof(error);
	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout, sizeof(user_timeout));
	if (connect(fd, ai->ai_addr, ai->ai_addrlen) == 0) /* a Unix socket's at once, or not at all */
		return fd;
	if (errno == EINPROGRESS && wait_for(d, fd, POLLOUT) && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0)
		return fd;
	close(fd);
	return -1;
}

static bool is_path(const struct dial *d)
{
	return d->port[0] == '\0';
}

static int connect_to_path(const struct dial *d)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct addrinfo ai = { .ai_family = AF_UNIX, .ai_addr = (struct sockaddr *)&un, .ai_addrlen = sizeof(un) };
	size_t len = strlen(d->host);
	if (len >= sizeof(un.sun_path))
		return -1;
	memcpy(un.sun_path, d->host, len);
	return connect_to(d, &ai);
}

static int connect_any(const struct dial *d)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV }, *list;
	int fd = -1;
	if (is_path(d))
		return connect_to_path(d);
	if (getaddrinfo(d->host, d->port, &hints, &list) != 0)
		return -1;
	for (const struct addrinfo *ai = list; ai && fd < 0; ai = ai->ai_next)
		fd = connect_to(d, ai);
	freeaddrinfo(list);
	return fd;
}

static bool shake_hands(const struct dial *d, SSL *ssl, int fd)
{
	char address[300];
	snprintf(address, sizeof(address), "%s%s%s", d->host, is_path(d) ? "" : ":", d->port);
	for (;;) {
		int r, error;
		ERR_clear_error();
		errno = 0;
		r = SSL_connect(ssl);
		if (r == 1) {
			identity_unref(tls_identity(d->dialer->tls, ssl, address)); /* counts it */
			return true;
		}
		error = SSL_get_error(ssl, r);
		if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
			if (wait_for(d, fd, error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT))
				continue;
			error = 0;
		}
		tls_failed(d->dialer->tls, ssl, error, address);
		return false;
	}
}

static void dial(struct dial *d)
{
	int fd = connect_any(d);
	SSL *ssl;
	if (fd < 0) {
		close(d->pair_fd);
		return;
	}
	ssl = tls_client_side(d->dialer->tls, d->name);
	ASSERT(SSL_set_fd(ssl, fd) == 1);
	if (shake_hands(d, ssl, fd)) {
		tls_pump_take(d->dialer->pump, ssl, fd, d->pair_fd);
		return;
	}
	SSL_free(ssl);
	close(fd);
	close(d->pair_fd);
}

static void *run(void *arg)
{
	struct dial *d = arg;
	struct tls_dialer *dialer = d->dialer;
	dial(d);
	free(d);
	OPENSSL_thread_stop();
	pthread_mutex_lock(&dialer->mu);
	dialer->dials--;
	pthread_cond_signal(&dialer->done);
	pthread_mutex_unlock(&dialer->mu);
	return NULL;
}

static bool count_in(struct tls_dialer *d)
{
	bool fine;
	pthread_mutex_lock(&d->mu);
	fine = !d->stopping && d->dials < TLS_DIALS_MAX;
	d->dials += fine;
	pthread_mutex_unlock(&d->mu);
	return fine;
}

static void count_out(struct tls_dialer *d)
{
	pthread_mutex_lock(&d->mu);
	d->dials--;
	pthread_cond_signal(&d->done);
	pthread_mutex_unlock(&d->mu);
}

int tls_dialer_dial(struct tls_dialer *dialer, const char *host, const char *port, const char *name)
{
	struct dial *d;
	pthread_attr_t attr;
	pthread_t thread;
	int fds[2], failed;
	if (!count_in(dialer))
		return -1;
	if (!tls_pump_pair(fds)) {
		count_out(dialer);
		return -1;
	}
	d = mem_zalloc(sizeof(*d));
	d->dialer = dialer;
	snprintf(d->host, sizeof(d->host), "%s", host);
	snprintf(d->port, sizeof(d->port), "%s", port);
	snprintf(d->name, sizeof(d->name), "%s", name);
	d->pair_fd = fds[0];
	d->give_up_ms = mono_ms() + dialer->timeout_ms;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	failed = pthread_create(&thread, &attr, run, d);
	pthread_attr_destroy(&attr);
	if (!failed)
		return fds[1];
	free(d);
	close(fds[0]);
	close(fds[1]);
	count_out(dialer);
	return -1;
}

struct tls_dialer *tls_dialer_new(struct tls_context *t, uint32_t timeout_ms)
{
	struct tls_dialer *d = mem_zalloc(sizeof(*d));
	pthread_condattr_t attr;
	d->tls = tls_context_ref(t);
	d->timeout_ms = timeout_ms;
	d->pump = tls_pump_new(1, "tls-peers", 0);
	d->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ASSERT(d->stop_fd >= 0); /* made once, at start */
	pthread_mutex_init(&d->mu, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&d->done, &attr);
	pthread_condattr_destroy(&attr);
	return d;
}

void tls_dialer_free(struct tls_dialer *d)
{
	struct timespec until;
	uint64_t one = 1, ms = mono_ms() + STOP_PATIENCE_MS;
	bool all;
	if (!d)
		return;
	ASSERT(write(d->stop_fd, &one, sizeof(one)) == sizeof(one));
	until.tv_sec = (time_t)(ms / 1000);
	until.tv_nsec = (long)(ms % 1000) * 1000000;
	pthread_mutex_lock(&d->mu);
	d->stopping = true;
	while (d->dials && pthread_cond_timedwait(&d->done, &d->mu, &until) == 0)
		;
	all = d->dials == 0;
	pthread_mutex_unlock(&d->mu);
	if (!all)
		return;
	tls_pump_free(d->pump);
	close(d->stop_fd);
	pthread_cond_destroy(&d->done);
	pthread_mutex_destroy(&d->mu);
	tls_context_free(d->tls);
	free(d);
}
