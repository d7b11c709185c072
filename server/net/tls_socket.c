/* tls_socket.c: recvmsg and sendmsg of gRPC's, in terms of SSL_read and SSL_write.
 *
 * gRPC watches its sockets edge-triggered, for both directions: it reads until told that nothing is left (EAGAIN, or TCP_INQ's figure of 0), and writes until
 * EAGAIN. So
 *   (K1) a read says that nothing is left only when OpenSSL has asked for more and the socket had none; whatever comes later is a new edge.
 *   (K2) when gRPC gets the descriptor OpenSSL holds no bytes: they would be no edge.
 *   (K3) a record that could not go out whole waits in `rest`, and what it was made of has not been taken as far as gRPC knows, which so waits for room and
 *        comes again with the same bytes, of which `ahead` are then skipped.
 *   (K4) OpenSSL never waits for room: what it has to say by itself (alerts, updates of keys) joins `rest`, up to a bound, beyond which the connection ends.
 *   (K5) what is sent while corked is taken at once, up to a record, and goes out as one with the last uncork: a record costs more than its bytes. Should there
 *        be no room then, gRPC has nothing to wait for, and the drain's thread sees `rest` out.
 *   (K6) everything is under mu: gRPC reads and writes at the same time.
 *   (K7) records leave in the order in which OpenSSL made them: none goes by what is in `rest`. */
#include "tls_socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/mem.h"
#include "tls_drain.h"
#include "wire/wire.h"

enum {
	PIECE = 16 * 1024,        /* of one write: what a record holds */
	RECORD_MAX = PIECE + 1024, /* with what TLS adds, and an update of keys before it */
	TURN = 128 * 1024,        /* of one read: a write may wait for it */
	REST_MAX = 64 * 1024,
	CORKED = 2 * 1024,
};

struct tls_sockets {
	atomic_size_t open, refs;
	struct tls_drain *drain;
};

struct socket {
	struct tls_sockets *all;
	pthread_mutex_t mu;
	/* guarded by mu */
	int fd;
	bool closed;      /* fd is somebody else's */
	SSL *ssl;
	struct buf rest;  /* of TLS, for the network */
	size_t rest_at;
	size_t ahead;
	unsigned int corks;
	struct buf corked; /* plain; nothing is in `rest` when it is taken, though there may be when it goes out */
	bool dry;         /* nothing more is in the socket, as far as this read knows */
	bool at_end;      /* the client has sent all */
	uint8_t *record;  /* during a write: where OpenSSL's bytes go; NULL: to `rest` */
	size_t record_len;
	int error;        /* the connection is broken; 0: it is not */
	struct tls_drained drained;
	bool draining;    /* the drain has a reference */
	atomic_uint refs;
};

static void unref(struct tls_sockets *s);

/* ---- the network ---- */

/* How many went out; -1: broken. */
static ssize_t send_some(struct socket *s, const uint8_t *bytes, size_t len)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;
	do
		n = wire_real_sendmsg(s->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n >= 0 || errno == EAGAIN || errno == EWOULDBLOCK)
		return n > 0 ? n : 0;
	s->error = errno;
	return -1;
}

static bool rest_is_empty(const struct socket *s)
{
	return s->rest_at == s->rest.len;
}

static void rest_add(struct socket *s, const uint8_t *bytes, size_t len)
{
	if (!len)
		return;
	if (s->rest.len - s->rest_at + len > REST_MAX) { /* (K4) */
		s->error = ENOBUFS;
		return;
	}
	buf_append(&s->rest, bytes, len);
}

/* True: nothing is left. */
static bool rest_send(struct socket *s)
{
	ssize_t n;
	if (rest_is_empty(s))
		return true;
	n = send_some(s, s->rest.ptr + s->rest_at, s->rest.len - s->rest_at);
	if (n > 0)
		s->rest_at += (size_t)n;
	if (!rest_is_empty(s))
		return false;
	buf_free(&s->rest);
	s->rest_at = 0;
	return true;
}

/* ---- OpenSSL's way there ---- */

/* Only the kernel's word counts: a short read may as well have met an end that is still to be read. */
static bool says_empty(struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		int left;
		if (c->cmsg_level != SOL_TCP || c->cmsg_type != TCP_CM_INQ)
			continue;
		memcpy(&left, CMSG_DATA(c), sizeof(left));
		return left == 0;
	}
	return false;
}

static int bio_read(BIO *bio, char *bytes, int len)
{
	struct socket *s = BIO_get_data(bio);
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { .iov_base = bytes, .iov_len = (size_t)len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	ssize_t n = -1;
	BIO_clear_retry_flags(bio);
	if (!s->dry) {
		do
			n = wire_real_recvmsg(s->fd, &msg, MSG_DONTWAIT);
		while (n < 0 && errno == EINTR);
		if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
			s->error = errno;
			return -1;
		}
		s->dry = n < 0 || (n > 0 && says_empty(&msg));
		s->at_end = n == 0;
	}
	if (n < 0)
		BIO_set_retry_read(bio);
	return (int)n;
}

static int bio_write(BIO *bio, const char *bytes, int len)
{
	struct socket *s = BIO_get_data(bio);
	BIO_clear_retry_flags(bio);
	if (!s->record) {
		rest_add(s, (const uint8_t *)bytes, (size_t)len);
	} else if (s->record_len + (size_t)len <= RECORD_MAX) {
		memcpy(s->record + s->record_len, bytes, (size_t)len);
		s->record_len += (size_t)len;
	} else {
		s->error = ENOBUFS;
	}
	return s->error ? -1 : len;
}

static long bio_ctrl(BIO *bio, int what, long num, void *ptr)
{
	(void)num, (void)ptr;
	return what == BIO_CTRL_FLUSH || (what == BIO_CTRL_EOF && ((struct socket *)BIO_get_data(bio))->at_end);
}

static BIO_METHOD *bio_method;

static void make_bio_method(void)
{
	bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket of gRPC's");
	ASSERT(bio_method && BIO_meth_set_read(bio_method, bio_read) == 1 && BIO_meth_set_write(bio_method, bio_write) == 1 && BIO_meth_set_ctrl(bio_method, bio_ctrl) == 1);
}

/* ---- reading ---- */

enum outcome { GOT, DRY, END, BROKEN };

static enum outcome read_piece(struct socket *s, uint8_t *to, size_t len, size_t *ret)
{
	if (s->error)
		return BROKEN;
	if (SSL_read_ex(s->ssl, to, len, ret) == 1)
		return GOT;
	switch (SSL_get_error(s->ssl, 0)) {
	case SSL_ERROR_WANT_READ:
		return DRY;
	case SSL_ERROR_ZERO_RETURN:
		return END;
	default:
		ERR_clear_error();
		s->error = s->error ? s->error : ECONNRESET;
		return BROKEN;
	}
}

/* What TCP_INQ says of a plain socket: 0 is "wait for an edge", 1 "read on". */
static void tell_left(struct msghdr *msg, size_t room, int left)
{
	struct cmsghdr *c;
	msg->msg_flags = 0;
	msg->msg_controllen = 0;
	if (room < CMSG_SPACE(sizeof(left)))
		return;
	msg->msg_controllen = CMSG_SPACE(sizeof(left));
	c = CMSG_FIRSTHDR(msg);
	c->cmsg_level = SOL_TCP;
	c->cmsg_type = TCP_CM_INQ;
	c->cmsg_len = CMSG_LEN(sizeof(left));
	memcpy(CMSG_DATA(c), &left, sizeof(left));
}

static ssize_t receive_locked(struct socket *s, struct msghdr *msg)
{
	enum outcome o = GOT;
	size_t got = 0, room = msg->msg_control ? msg->msg_controllen : 0;
	ERR_clear_error();
	s->dry = false;
	for (size_t i = 0; i < msg->msg_iovlen && o == GOT && got < TURN; i++) {
		uint8_t *to = msg->msg_iov[i].iov_base;
		size_t len = msg->msg_iov[i].iov_len, n;
		for (size_t at = 0; at < len && got < TURN && (o = read_piece(s, to + at, len - at, &n)) == GOT; at += n)
			got += n;
	}
	if (!rest_is_empty(s))
		rest_send(s);
	tell_left(msg, room, o != DRY); /* (K1); an end and an error are told by the next read */
	if (got || o == END)
		return (ssize_t)got;
	errno = o == DRY ? EAGAIN : s->error;
	return -1;
}

/* ---- writing ---- */

/* A record goes out, as far as there is room; the rest of it waits. How much it took; 0: the connection is broken. */
static size_t write_record(struct socket *s, const uint8_t *bytes, size_t len)
{
	uint8_t record[RECORD_MAX];
	size_t wrote = 0;
	ssize_t n;
	s->record = record;
	s->record_len = 0;
	if (SSL_write_ex(s->ssl, bytes, len, &wrote) != 1 && !s->error)
		s->error = EPIPE; /* there is always room: it is shut down, or in the midst of a message of the handshake's that came in pieces */
	s->record = NULL;
	ERR_clear_error();
	n = !s->error && rest_send(s) ? send_some(s, record, s->record_len) : 0; /* (K7) */
	if (s->error)
		return 0;
	rest_add(s, record + n, s->record_len - (size_t)n);
	return wrote;
}

/* True: `rest` is empty. */
static bool corked_send(struct socket *s)
{
	size_t at = 0, n;
	while (at < s->corked.len && (n = write_record(s, s->corked.ptr + at, s->corked.len - at)))
		at += n;
	buf_free(&s->corked);
	return !s->error && rest_is_empty(s);
}

/* True: it is to go out with others. */
static bool cork_takes(struct socket *s, const struct msghdr *msg, size_t all)
{
	if (!s->corks || s->ahead || s->corked.len + all > PIECE)
		return false;
	if (!s->corked.cap)
		buf_reserve(&s->corked, CORKED);
	for (size_t i = 0; i < msg->msg_iovlen; i++)
		buf_append(&s->corked, msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len);
	return true;
}

struct cursor {
	const struct iovec *iov, *end;
	size_t at; /* in *iov */
};

static void cursor_move(struct cursor *c, size_t len)
{
	while (c->iov < c->end && len >= c->iov->iov_len - c->at) {
		len -= c->iov->iov_len - c->at;
		c->iov++;
		c->at = 0;
	}
	c->at += len;
}

/* Up to PIECE of what is next, of one part or more: where it lies, or copied together. */
static struct slice next_piece(struct cursor c, uint8_t copy[PIECE])
{
	size_t len = c.iov->iov_len - c.at;
	if (c.iov + 1 == c.end || len >= PIECE)
		return (struct slice){ (const uint8_t *)c.iov->iov_base + c.at, len < PIECE ? len : PIECE };
	for (len = 0; c.iov < c.end && len < PIECE;) {
		size_t n = c.iov->iov_len - c.at < PIECE - len ? c.iov->iov_len - c.at : PIECE - len;
		memcpy(copy + len, (const uint8_t *)c.iov->iov_base + c.at, n);
		len += n;
		cursor_move(&c, n);
	}
	return (struct slice){ copy, len };
}

static size_t length(const struct msghdr *msg)
{
	size_t sum = 0;
	for (size_t i = 0; i < msg->msg_iovlen; i++)
		sum += msg->msg_iov[i].iov_len;
	return sum;
}

static ssize_t send_locked(struct socket *s, const struct msghdr *msg)
{
	struct cursor c = { msg->msg_iov, msg->msg_iov + msg->msg_iovlen, 0 };
	uint8_t copy[PIECE];
	size_t all = length(msg), took = 0;
	ERR_clear_error();
	if (s->error || !rest_send(s))
		goto out;
	if (cork_takes(s, msg, all))
		return (ssize_t)all;
	if (!corked_send(s))
		goto out;
	if (s->ahead > all) { /* not what came before: and half of that has gone out */
		s->error = EPIPE;
		goto out;
	}
	took = s->ahead; /* (K3) */
	s->ahead = 0;
	cursor_move(&c, took);
	while (took < all) {
		struct slice piece = next_piece(c, copy);
		size_t n = write_record(s, piece.ptr, piece.len);
		if (s->error)
			break;
		if (!rest_is_empty(s)) {
			s->ahead = n;
			break;
		}
		took += n;
		cursor_move(&c, n);
	}
out:
	if (took || (!all && !s->error))
		return (ssize_t)took;
	errno = s->error ? s->error : EAGAIN;
	return -1;
}

/* ---- as wire.h wants it ---- */

static ssize_t on_receive(void *ctx, int fd, struct msghdr *msg)
{
	struct socket *s = ctx;
	ssize_t n;
	int error;
	pthread_mutex_lock(&s->mu);
	s->fd = fd;
	n = receive_locked(s, msg);
	error = errno;
	pthread_mutex_unlock(&s->mu);
	errno = error;
	return n;
}

static ssize_t on_send(void *ctx, int fd, const struct msghdr *msg)
{
	struct socket *s = ctx;
	ssize_t n;
	int error;
	pthread_mutex_lock(&s->mu);
	s->fd = fd;
	n = send_locked(s, msg);
	error = errno;
	pthread_mutex_unlock(&s->mu);
	errno = error;
	return n;
}

/* Where there is no room for the goodbye, it is not said: gRPC does not wait for its own bytes then either. */
static void say_goodbye(struct socket *s)
{
	if (s->error || SSL_get_shutdown(s->ssl) & SSL_SENT_SHUTDOWN)
		return;
	corked_send(s);
	SSL_shutdown(s->ssl);
	ERR_clear_error();
	rest_send(s);
}

static void on_shutdown(void *ctx, int fd)
{
	struct socket *s = ctx;
	pthread_mutex_lock(&s->mu);
	s->fd = fd;
	ERR_clear_error();
	say_goodbye(s);
	pthread_mutex_unlock(&s->mu);
}

static void on_close(void *ctx, int fd)
{
	struct socket *s = ctx;
	pthread_mutex_lock(&s->mu);
	s->fd = fd;
	ERR_clear_error();
	say_goodbye(s);
	s->closed = true;
	if (s->draining && !tls_drain_drop(s->all->drain, &s->drained, fd))
		atomic_fetch_sub(&s->refs, 1); /* not the last: who calls has one */
	pthread_mutex_unlock(&s->mu);
	atomic_fetch_sub(&s->all->open, 1);
}

static void on_cork(void *ctx)
{
	struct socket *s = ctx;
	pthread_mutex_lock(&s->mu);
	s->corks++;
	pthread_mutex_unlock(&s->mu);
}

/* Nobody asks gRPC for more over a connection that has broken here: so that it sees for itself. */
static void sent_corked(struct socket *s)
{
	bool all = corked_send(s);
	if (s->error)
		wire_real_shutdown(s->fd, SHUT_RDWR);
	if (all || s->error || s->draining)
		return;
	atomic_fetch_add(&s->refs, 1); /* before somebody else may give it back */
	s->draining = tls_drain_watch(s->all->drain, &s->drained, s->fd); /* (K5) */
	if (s->draining)
		return;
	atomic_fetch_sub(&s->refs, 1); /* whoever uncorks has one */
	wire_real_shutdown(s->fd, SHUT_RDWR);
}

static void on_uncork(void *ctx)
{
	struct socket *s = ctx;
	pthread_mutex_lock(&s->mu);
	s->corks--;
	ERR_clear_error();
	if (!s->closed && s->corked.len)
		sent_corked(s);
	pthread_mutex_unlock(&s->mu);
}

static void on_free(void *ctx)
{
	struct socket *s = ctx;
	struct tls_sockets *all = s->all;
	if (atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	SSL_free(s->ssl);
	buf_free(&s->rest);
	buf_free(&s->corked);
	pthread_mutex_destroy(&s->mu);
	free(s);
	unref(all);
}

static void on_room(struct tls_drained *d)
{
	struct socket *s = CONTAINER_OF(d, struct socket, drained);
	bool done = false;
	pthread_mutex_lock(&s->mu);
	if (!s->closed) {
		done = rest_send(s) || s->error;
		if (done)
			tls_drain_done(s->all->drain, s->fd);
		else
			tls_drain_again(s->all->drain, d, s->fd);
		s->draining = !done;
	}
	pthread_mutex_unlock(&s->mu);
	if (done)
		on_free(s);
}

static void on_over(struct tls_drained *d)
{
	on_free(CONTAINER_OF(d, struct socket, drained));
}

bool tls_socket_attach(struct tls_sockets *all, SSL *ssl, int fd)
{
	static const struct wire_ops ops = { on_receive, on_send, on_shutdown, on_close, on_cork, on_uncork, on_free };
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct socket *s;
	BIO *bio;
	int on = 1;
	if (SSL_has_pending(ssl)) /* (K2) */
		return false;
	pthread_once(&once, make_bio_method);
	s = mem_zalloc(sizeof(*s));
	s->all = all;
	s->ssl = ssl;
	s->fd = fd;
	atomic_init(&s->refs, 1);
	pthread_mutex_init(&s->mu, NULL);
	if (!wire_attach(fd, &ops, s)) {
		pthread_mutex_destroy(&s->mu);
		free(s);
		return false;
	}
	bio = BIO_new(bio_method);
	ASSERT(bio);
	BIO_set_data(bio, s);
	BIO_set_init(bio, 1);
	SSL_set_bio(ssl, bio, bio);
	SSL_set_read_ahead(ssl, 1);
	setsockopt(fd, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)); /* no such thing elsewhere than in TCP: then the socket is asked once more */
	atomic_fetch_add(&all->open, 1);
	atomic_fetch_add(&all->refs, 1);
	return true;
}

/* ---- all of them ---- */

struct tls_sockets *tls_sockets_new(void)
{
	static const struct tls_drain_callbacks cb = { on_room, on_over };
	struct tls_sockets *s = mem_zalloc(sizeof(*s));
	atomic_init(&s->refs, 1);
	s->drain = tls_drain_new(&cb);
	return s;
}

static void unref(struct tls_sockets *s)
{
	if (atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	tls_drain_free(s->drain);
	free(s);
}

void tls_sockets_free(struct tls_sockets *s)
{
	if (!s)
		return;
	tls_drain_stop(s->drain);
	unref(s);
}

size_t tls_sockets_open(struct tls_sockets *s)
{
	return s ? atomic_load(&s->open) : 0;
}
