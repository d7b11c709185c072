/* acceptor.c: who connects, and which front end gets it.
 *
 * One thread and one epoll set: the listening sockets, an eventfd that ends it all, and the connections that have not decided yet. A connection is watched
 * edge-triggered: peeked bytes stay in its socket, and level-triggered they would wake us without end; as it is, only new bytes or a hang-up do.
 *
 *   (A1) a descriptor has one owner: this file from accept until decide() or drop(), afterwards the sink or nobody.
 *   (A2) a connection that is handed on has left the epoll set before: the set would outlive our interest, since the descriptor stays open.
 *   (A3) undecided is in order of arrival, and all have the same time to decide: its first is the next to be closed.
 *   (A4) within a batch of events, connections come before listeners: only listeners close connections other than their own, and so never one whose
 *        event is still to come.
 *   (A5) while accepting is paused, no listener is watched, and paused_until is when that ends.
 *   (A6) what has been read of a TLS connection before it is handed on (`first`) goes into its pair before the sink has the other end.
 *   (A7) nothing has been read ahead of a TLS connection that gRPC gets as it is: gRPC would not be told of it.
 *
 * Handshakes are done here, one step an event, and so never hold up who is connected already: those belong to the pump's threads.
 *
 * Descriptors. The kernel gives the lowest number that is free: a new one within `reserve` of the limit says that so many are in use, and is closed, so that
 * its client may try another replica; then accepting rests for a moment. Nobody is told of each: one line in the log when it begins and one when it is over. */
#include "acceptor.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "listen.h"
#include "log/log.h"
#include "metrics.h"
#include "tls_pump.h"
#include "tls_socket.h"
#include "url.h"
#include "wire/wire.h"

#define EVENTS_MAX 256
#define ACCEPT_BATCH 64      /* a listener's turn; others come next */
#define PAUSE_MS 50
#define CALM_MS 2000         /* so long without a refusal: descriptors are to be had again */
#define USER_TIMEOUT_MS 20000 /* sent bytes that nobody acknowledges for so long end a connection */

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define PREFACE_DECIDES 14 /* up to here no other protocol's request line looks like it */

struct listener {
	int fd;
	struct acceptor_sinks sinks;
	struct tls_context *tls; /* NULL: plain */
};

struct conn {
	struct list link; /* undecided */
	int fd;
	uint64_t deadline_ms;
	const struct listener *from;
	SSL *ssl;                 /* NULL: plain */
	bool to_grpc;             /* of TLS: gRPC may have this very socket */
	struct identity *who;     /* once the handshake is over */
	char first[PREFACE_DECIDES];
	size_t first_len;         /* of TLS alone: plain ones are peeked at */
	char address[LISTEN_TEXT_MAX];
};

struct acceptor {
	struct acceptor_sinks sinks;
	struct acceptor_limits limits;
	struct listener *listeners; /* fixed once the thread runs */
	size_t listeners_len;
	struct tls_pump *pump; /* NULL: no listener speaks TLS */
	struct tls_sockets *sockets; /* NULL: all TLS is the pump's */
	pthread_t thread;
	bool running;
	int stop_fd;

	/* the thread's own */
	int epoll_fd;
	struct list undecided;
	size_t undecided_len;
	uint64_t paused_until; /* 0: accepting */
	uint64_t short_since;  /* the last time a descriptor was refused; 0: none lately */
};

/* ---- one connection ---- */

static void conn_unlink(struct acceptor *a, struct conn *c)
{
	list_remove(&c->link);
	a->undecided_len--;
}

static void conn_drop(struct acceptor *a, struct conn *c)
{
	conn_unlink(a, c);
	SSL_free(c->ssl);
	identity_unref(c->who);
	close(c->fd); /* leaves the epoll set with it: no other descriptor refers to the socket */
	free(c);
}

static void pause_accepting(struct acceptor *a, uint64_t now, const char *why);
static int first_reserved(const struct acceptor *a);

/* The plain end for the sink; negative: there are no descriptors. */
static int begin_pumping(struct acceptor *a, struct conn *c)
{
	int fds[2], reserved = first_reserved(a);
	if (!tls_pump_pair(fds)) {
		pause_accepting(a, mono_ms(), strerror(errno));
		return -1;
	}
	if (fds[0] >= reserved || fds[1] >= reserved) {
		pause_accepting(a, mono_ms(), "the rest is reserved");
		goto fail;
	}
	if (send(fds[0], c->first, c->first_len, MSG_NOSIGNAL) != (ssize_t)c->first_len) /* (A6) */
		goto fail;
	tls_pump_take(a->pump, c->ssl, c->fd, fds[0]);
	c->ssl = NULL;
	return fds[1];
fail:
	close(fds[0]);
	close(fds[1]);
	return -1;
}

static void conn_decide(struct acceptor *a, struct conn *c, void (*sink)(void *, int, struct identity *))
{
	int fd = c->fd;
	epoll_ctl(a->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
	if (sink && c->ssl && c->to_grpc && tls_socket_attach(a->sockets, c->ssl, c->fd))
		c->ssl = NULL;
	else if (sink && c->ssl)
		fd = begin_pumping(a, c);
	if (!sink || fd < 0) {
		conn_drop(a, c);
		return;
	}
	conn_unlink(a, c);
	sink(c->from->sinks.ctx, fd, c->who ? c->who : identity_of_address(c->address));
	free(c);
}

/* ---- TLS ---- */

/* An alert that says why is on its way; were bytes of the client still unread, closing would reset the connection and the alert be lost. */
static void conn_fail(struct acceptor *a, struct conn *c, int error)
{
	char rest[4096];
	tls_failed(c->from->tls, c->ssl, error, c->address);
	shutdown(c->fd, SHUT_WR);
	for (int i = 0; i < 16 && recv(c->fd, rest, sizeof(rest), MSG_DONTWAIT) > 0; i++)
		;
	conn_drop(a, c);
}

/* True: the handshake is over. Otherwise it goes on with the next event, or the connection is gone. */
static bool shake_hands(struct acceptor *a, struct conn *c)
{
	int r, error;
	ERR_clear_error();
	errno = 0;
	r = SSL_accept(c->ssl);
	if (r == 1) {
		c->who = tls_identity(c->from->tls, c->ssl, c->address);
		return true;
	}
	error = SSL_get_error(c->ssl, r);
	if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
		conn_fail(a, c, error);
	return false;
}

static void decide_by(struct acceptor *a, struct conn *c, const char *bytes, size_t n, bool hung_up)
{
	if (memcmp(bytes, PREFACE, n) != 0)
		conn_decide(a, c, c->from->sinks.http1);
	else if (n == PREFACE_DECIDES)
		conn_decide(a, c, c->from->sinks.http2);
	else if (hung_up)
		conn_drop(a, c); /* no more bytes will come */
}

/* gRPC reads what decides by itself, so it is not read here (A7): a whole record of bytes that may hold the preface is what gRPC is not troubled without. */
enum first_record { PENDING, LIKELY, UNLIKELY };

static enum first_record first_record(const struct conn *c)
{
	enum { HEADER = 5, APPLICATION_DATA = 23, LEAST = sizeof(PREFACE) - 1 + 17 };
	uint8_t header[HEADER];
	int there;
	size_t len;
	if (recv(c->fd, header, sizeof(header), MSG_PEEK | MSG_DONTWAIT) < HEADER || ioctl(c->fd, FIONREAD, &there) != 0)
		return PENDING;
	len = (size_t)header[3] << 8 | header[4];
	if (header[0] != APPLICATION_DATA || len < LEAST || len > 17 * 1024)
		return UNLIKELY;
	return (size_t)there < HEADER + len ? PENDING : LIKELY;
}

static void keep_from_grpc(struct conn *c)
{
	c->to_grpc = false;
	SSL_set_read_ahead(c->ssl, 1);
}

/* True: gRPC has it, or will have, or nobody: there is nothing more to do now. Otherwise it has to be read here. */
static bool give_to_grpc(struct acceptor *a, struct conn *c, bool hung_up)
{
	enum first_record first;
	const unsigned char *protocol;
	unsigned int len;
	SSL_get0_alpn_selected(c->ssl, &protocol, &len);
	first = len == 2 && memcmp(protocol, "h2", 2) == 0 ? first_record(c) : UNLIKELY;
	if (first == LIKELY)
		conn_decide(a, c, c->from->sinks.http2);
	else if (first == UNLIKELY || hung_up)
		keep_from_grpc(c);
	return first == LIKELY || c->to_grpc; /* (who is likely is gone) */
}

static void conn_ready_tls(struct acceptor *a, struct conn *c, bool hung_up)
{
	int n;
	if (!c->who && !shake_hands(a, c))
		return;
	if (c->to_grpc && give_to_grpc(a, c, hung_up))
		return;
	do {
		n = SSL_read(c->ssl, c->first + c->first_len, (int)(sizeof(c->first) - c->first_len));
		if (n <= 0) {
			int error = SSL_get_error(c->ssl, n);
			ERR_clear_error();
			if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
				conn_drop(a, c);
			return;
		}
		c->first_len += (size_t)n;
	} while (c->first_len < sizeof(c->first) && memcmp(c->first, PREFACE, c->first_len) == 0);
	decide_by(a, c, c->first, c->first_len, false);
}

static void conn_ready(struct acceptor *a, struct conn *c, uint32_t events)
{
	char bytes[PREFACE_DECIDES];
	ssize_t n;
	if (c->ssl) {
		conn_ready_tls(a, c, events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP));
		return;
	}
	do
		n = recv(c->fd, bytes, sizeof(bytes), MSG_PEEK);
	while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
		if (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))
			conn_drop(a, c);
		return;
	}
	if (n <= 0)
		conn_drop(a, c);
	else
		decide_by(a, c, bytes, (size_t)n, events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP));
}

static struct conn *oldest(struct acceptor *a)
{
	return list_empty(&a->undecided) ? NULL : CONTAINER_OF(a->undecided.next, struct conn, link);
}

static void conn_give_up(struct acceptor *a, struct conn *c)
{
	if (c->ssl && !c->who)
		tls_failed(c->from->tls, c->ssl, 0, c->address);
	conn_drop(a, c);
}

static void drop_overdue(struct acceptor *a, uint64_t now)
{
	struct conn *c;
	while ((c = oldest(a)) && c->deadline_ms <= now)
		conn_give_up(a, c);
}

/* ---- accepting ---- */

static void watch_listeners(struct acceptor *a, bool on)
{
	for (size_t i = 0; i < a->listeners_len; i++) {
		struct epoll_event ev = { .events = on ? EPOLLIN : 0, .data.ptr = &a->listeners[i] };
		epoll_ctl(a->epoll_fd, EPOLL_CTL_MOD, a->listeners[i].fd, &ev);
	}
}

static void pause_accepting(struct acceptor *a, uint64_t now, const char *why)
{
	metric_add(METRIC_REFUSED_CONNECTIONS, 1);
	if (!a->short_since)
		log_warn("out of descriptors, connections are refused until some are closed", LOG_STR("cause", why));
	a->short_since = now;
	if (!a->paused_until)
		watch_listeners(a, false);
	a->paused_until = now + PAUSE_MS;
}

static void resume_accepting(struct acceptor *a, uint64_t now)
{
	if (a->paused_until && a->paused_until <= now) {
		a->paused_until = 0;
		watch_listeners(a, true);
	}
	if (!a->paused_until && a->short_since && now - a->short_since >= CALM_MS) {
		a->short_since = 0;
		log_info("descriptors are to be had again, connections are accepted");
	}
}

/* The first number that clients do not get. Asked each time, since it may be changed from outside. */
static int first_reserved(const struct acceptor *a)
{
	struct rlimit r;
	rlim_t reserve = a->limits.reserve;
	if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur > INT32_MAX)
		return INT32_MAX;
	return (int)(r.rlim_cur - (reserve > r.rlim_cur / 2 ? r.rlim_cur / 2 : reserve));
}

static void conn_new(struct acceptor *a, const struct listener *from, int fd, const struct sockaddr_storage *sa, uint64_t now)
{
	struct conn *c = mem_zalloc(sizeof(*c));
	/* A handshake may have to wait for room to write. */
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP | EPOLLET | (from->tls ? EPOLLOUT : 0), .data.ptr = c };
	int on = 1;
	unsigned int user_timeout = USER_TIMEOUT_MS;
	if (sa->ss_family != AF_UNIX) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout, sizeof(user_timeout));
	}
	c->fd = fd;
	c->from = from;
	c->deadline_ms = now + a->limits.decide_ms;
	if (from->tls) {
		c->ssl = tls_server_side(from->tls, (from->sinks.http1 ? TLS_HTTP1 : 0U) | (from->sinks.http2 ? TLS_HTTP2 : 0U));
		ASSERT(SSL_set_fd(c->ssl, fd) == 1);
		c->to_grpc = a->sockets && from->sinks.http2_is_grpc && from->sinks.http2;
		if (c->to_grpc)
			SSL_set_read_ahead(c->ssl, 0); /* (A7) */
	}
	listen_address_text(sa, c->address);
	list_push_back(&a->undecided, &c->link);
	a->undecided_len++;
	if (epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0) {
		log_warn("cannot watch a connection, closed it", LOG_STR("cause", strerror(errno)));
		conn_drop(a, c);
		return;
	}
	if (a->undecided_len > a->limits.max_undecided)
		conn_give_up(a, oldest(a));
}

/* What goes wrong with one connection before we have it is not the listener's trouble. */
static bool trouble_of_one(int error)
{
	switch (error) {
	case EINTR:
	case ECONNABORTED:
	case EPROTO:
	case EPERM:
	case ENETDOWN:
	case ENOPROTOOPT:
	case EHOSTDOWN:
	case ENONET:
	case EHOSTUNREACH:
	case EOPNOTSUPP:
	case ENETUNREACH:
		return true;
	default:
		return false;
	}
}

static void accept_batch(struct acceptor *a, const struct listener *from, uint64_t now)
{
	int reserved = first_reserved(a);
	for (size_t i = 0; i < ACCEPT_BATCH; i++) {
		struct sockaddr_storage sa;
		socklen_t len = sizeof(sa);
		int fd = accept4(from->fd, (struct sockaddr *)&sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			if (errno == EAGAIN || errno == EWOULDBLOCK)
				return;
			if (trouble_of_one(errno))
				continue;
			pause_accepting(a, now, strerror(errno));
			return;
		}
		if (fd >= reserved) {
			close(fd);
			pause_accepting(a, now, "the rest is reserved");
			continue;
		}
		conn_new(a, from, fd, &sa, now);
	}
}

/* ---- the thread ---- */

static const struct listener *as_listener(const struct acceptor *a, const void *ptr)
{
	const struct listener *l = ptr;
	return l >= a->listeners && l < a->listeners + a->listeners_len ? l : NULL;
}

static int wait_ms(struct acceptor *a, uint64_t now)
{
	struct conn *c = oldest(a);
	uint64_t due = c ? c->deadline_ms : UINT64_MAX;
	if (a->paused_until && a->paused_until < due)
		due = a->paused_until;
	if (!a->paused_until && a->short_since && a->short_since + CALM_MS < due)
		due = a->short_since + CALM_MS;
	if (due == UINT64_MAX)
		return -1;
	return due <= now ? 0 : (int)(due - now > 60000 ? 60000 : due - now);
}

/* Returns false when asked to stop. */
static bool handle(struct acceptor *a, const struct epoll_event *events, int len, uint64_t now)
{
	for (int i = 0; i < len; i++) {
		if (events[i].data.ptr == NULL)
			return false;
		if (!as_listener(a, events[i].data.ptr))
			conn_ready(a, events[i].data.ptr, events[i].events);
	}
	for (int i = 0; i < len; i++) {
		const struct listener *l = as_listener(a, events[i].data.ptr);
		if (l && !a->paused_until)
			accept_batch(a, l, now);
	}
	return true;
}

static void *run(void *arg)
{
	struct acceptor *a = arg;
	struct epoll_event events[EVENTS_MAX];
	uint64_t now = mono_ms();
	for (;;) {
		int n = epoll_wait(a->epoll_fd, events, EVENTS_MAX, wait_ms(a, now));
		now = mono_ms();
		if (!handle(a, events, n, now))
			return NULL;
		drop_overdue(a, now);
		resume_accepting(a, now);
	}
}

/* ---- lifecycle ---- */

struct acceptor *acceptor_new(const struct acceptor_sinks *sinks, const struct acceptor_limits *limits)
{
	struct acceptor *a = mem_zalloc(sizeof(*a));
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = NULL };
	a->sinks = *sinks;
	a->limits = *limits;
	if (!a->limits.decide_ms)
		a->limits.decide_ms = ACCEPTOR_DECIDE_MS;
	if (!a->limits.reserve)
		a->limits.reserve = ACCEPTOR_RESERVE;
	if (!a->limits.tls_threads)
		a->limits.tls_threads = 1;
	if (!a->limits.max_undecided)
		a->limits.max_undecided = 1;
	list_init(&a->undecided);
	a->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	a->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ASSERT(a->epoll_fd >= 0 && a->stop_fd >= 0); /* made once, at start */
	ASSERT(epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, a->stop_fd, &ev) == 0);
	return a;
}

enum err acceptor_listen_tls(struct acceptor *a, const char *url, const struct acceptor_sinks *sinks, struct tls_context *tls, struct errmsg *em)
{
	int fds[LISTEN_ADDRESSES_MAX];
	size_t len = 0;
	enum err e;
	ASSERT(!a->running);
	struct url u;
	bool is_tls = url_parse(url, &u) && url_is_tls(&u);
	if (is_tls && !tls) {
		errmsg_set(em, "cannot listen on '%s': there is no certificate for TLS", url);
		return ERR_IO;
	}
	e = listen_on(url, fds, &len, em);
	if (e)
		return e;
	a->listeners = mem_realloc(a->listeners, (a->listeners_len + len) * sizeof(*a->listeners));
	for (size_t i = 0; i < len; i++)
		a->listeners[a->listeners_len++] = (struct listener){ fds[i], sinks ? *sinks : a->sinks, is_tls ? tls : NULL };
	return ERR_OK;
}

enum err acceptor_listen(struct acceptor *a, const char *url, struct errmsg *em)
{
	return acceptor_listen_tls(a, url, NULL, NULL, em);
}

size_t acceptor_tls_connections(const struct acceptor *a)
{
	return (a->pump ? tls_pump_connections(a->pump) : 0) + tls_sockets_open(a->sockets);
}

uint16_t acceptor_port(const struct acceptor *a, size_t i)
{
	return i < a->listeners_len ? listen_port_of(a->listeners[i].fd) : 0;
}

static struct tls_sockets *sockets_if_possible(void)
{
	if (wire_works())
		return tls_sockets_new();
	log_warn("gRPC does not come by our door to its sockets, TLS costs more");
	return NULL;
}

void acceptor_start(struct acceptor *a)
{
	ASSERT(!a->running);
	for (size_t i = 0; i < a->listeners_len; i++) {
		struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &a->listeners[i] };
		ASSERT(epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, a->listeners[i].fd, &ev) == 0);
		if (a->listeners[i].tls && !a->pump)
			a->pump = tls_pump_new(a->limits.tls_threads, "tls", a->limits.tls_flush_ms);
		if (a->listeners[i].tls && a->listeners[i].sinks.http2_is_grpc && !a->sockets)
			a->sockets = sockets_if_possible();
	}
	ASSERT(pthread_create(&a->thread, NULL, run, a) == 0);
	pthread_setname_np(a->thread, "acceptor");
	a->running = true;
}

void acceptor_stop(struct acceptor *a)
{
	uint64_t one = 1;
	struct conn *c;
	if (a->running) {
		ASSERT(write(a->stop_fd, &one, sizeof(one)) == sizeof(one));
		pthread_join(a->thread, NULL);
		a->running = false;
	}
	while (a->listeners_len)
		listen_close(a->listeners[--a->listeners_len].fd);
	while ((c = oldest(a)))
		conn_drop(a, c);
}

void acceptor_free(struct acceptor *a)
{
	if (!a)
		return;
	acceptor_stop(a);
	tls_pump_free(a->pump);
	tls_sockets_free(a->sockets);
	close(a->epoll_fd);
	close(a->stop_fd);
	free(a->listeners);
	free(a);
}
