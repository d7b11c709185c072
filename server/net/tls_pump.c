/* tls_pump.c: threads that carry bytes between TLS and socket pairs.
 *
 *            net ──SSL_read──► in ──send──► pair          pull
 *            net ◄─SSL_write── out ◄─recv── pair          push
 *
 * Both sockets are watched edge-triggered; `readable` and `writable` say what has not been exhausted since. A read that got less than it asked for has
 * exhausted its socket, which saves asking once more; not so when the other side has hung up, for then the end is still to be read. OpenSSL reads by a BIO
 * of ours, that knows the same. For room to write the pair is watched only while there is none: a Unix socket tells of it whenever its reader has read.
 *
 *   (P1) a connection belongs to one thread from tls_pump_take() on; only `fresh` and `stop` are shared.
 *   (P2) bytes are taken from one side only when all that was taken before has been passed on: `in` and `out` hold one read at the most.
 *   (P3) a connection is freed behind the batch of events in which it died: the batch may still name it.
 *   (P4) whoever has a turn left is in `ready`, and nobody waits for an event then. */
#include "tls_pump.h"

#include <errno.h>
#include <linux/sockios.h>
#include <openssl/err.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"

enum {
	PIECE = 16 * 1024, /* of one read: what a record holds */
	TURNS_MAX = 8,     /* pieces of one connection before others have their turn */
	EVENTS_MAX = 128,
	LINGER_MS = 2000,  /* for a client to read what was sent last and hang up */
	STOP_MS = 300,
};

struct end {
	struct conn *conn;
	int fd;
	bool readable, writable;
	bool hung_up; /* the end is to be read */
	bool at_end;  /* it has been */
};

struct flow {
	uint8_t *bytes; /* NULL: nothing is held */
	size_t at, len;
	bool eof;       /* its source has ended */
	bool done;      /* its sink has been told, or takes no more */
};

struct conn {
	struct list link;       /* conns */
	struct list ready_link; /* ready, or on its own */
	struct list linger_link; /* flushing, lingering, or on its own */
	struct pump_thread *thread;
	SSL *ssl;
	struct end net, pair;
	struct flow in, out;
	bool starved; /* OpenSSL has nothing left of what it read, and there is nothing to read */
	bool read_wants_write, write_wants_read;
	bool flushing;  /* the front end has closed, and what it left is not out yet */
	bool moved;     /* some of it went to the kernel since linger_until was set */
	int untaken;    /* bytes that the kernel held for the client then */
	bool lingering; /* all of it has, and the client has yet to hang up */
	bool dead;
	bool watches_room; /* of the pair */
	uint64_t linger_until; /* of either */
};

struct pump_thread {
	struct tls_pump *pump;
	pthread_t id;
	int epoll_fd, wake_fd;
	atomic_size_t conns_len;

	pthread_mutex_t mu;
	struct list fresh; /* guarded by mu */
	bool stop;         /* guarded by mu */

	/* the thread's own */
	struct list conns, ready, flushing, lingering, dead; /* those two in order of linger_until */
	uint64_t stop_at;
	uint8_t piece[PIECE];
};

struct tls_pump {
	size_t len;
	uint32_t flush_ms;
	atomic_size_t next;
	struct pump_thread *threads[];
};

/* ---- flows ---- */

static void flow_keep(struct flow *f, const uint8_t *bytes, size_t len)
{
	f->bytes = mem_alloc(len);
	memcpy(f->bytes, bytes, len);
	f->at = 0;
	f->len = len;
}

static void flow_took(struct flow *f, size_t n)
{
	f->at += n;
	if (f->at < f->len)
		return;
	free(f->bytes);
	f->bytes = NULL;
}

static void flow_end(struct flow *f)
{
	free(f->bytes);
	f->bytes = NULL;
	f->done = true;
}

/* ---- one connection ---- */

static void conn_die(struct conn *c)
{
	if (c->dead)
		return;
	c->dead = true;
	list_remove(&c->link);
	list_remove(&c->ready_link);
	list_remove(&c->linger_link);
	list_push_back(&c->thread->dead, &c->link);
	close(c->net.fd);
	close(c->pair.fd);
}

static void conn_free(struct conn *c)
{
	SSL_free(c->ssl);
	free(c->in.bytes);
	free(c->out.bytes);
	atomic_fetch_sub(&c->thread->conns_len, 1);
	free(c);
}

static void put_ready(struct conn *c)
{
	if (list_empty(&c->ready_link))
		list_push_back(&c->thread->ready, &c->ready_link);
}

/* ---- OpenSSL's way to the socket ---- */

static int bio_read(BIO *bio, char *bytes, int len)
{
	struct end *e = BIO_get_data(bio);
	ssize_t n;
	BIO_clear_retry_flags(bio);
	if (!e->readable) {
		BIO_set_retry_read(bio);
		return -1;
	}
	n = recv(e->fd, bytes, (size_t)len, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
		e->readable = errno == EINTR;
		BIO_set_retry_read(bio);
	} else if (n > 0 && n < len && !e->hung_up) {
		e->readable = false;
	}
	e->at_end = n == 0;
	return (int)n;
}

static int bio_write(BIO *bio, const char *bytes, int len)
{
	struct end *e = BIO_get_data(bio);
	ssize_t n = send(e->fd, bytes, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL);
	BIO_clear_retry_flags(bio);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		BIO_set_retry_write(bio);
	return (int)n;
}

static long bio_ctrl(BIO *bio, int what, long num, void *ptr)
{
	(void)num, (void)ptr;
	return what == BIO_CTRL_FLUSH || (what == BIO_CTRL_EOF && ((struct end *)BIO_get_data(bio))->at_end);
}

static BIO_METHOD *bio_method;

static void make_bio_method(void)
{
	bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "pump");
	ASSERT(bio_method && BIO_meth_set_read(bio_method, bio_read) == 1 && BIO_meth_set_write(bio_method, bio_write) == 1 && BIO_meth_set_ctrl(bio_method, bio_ctrl) == 1);
}

static void take_over(struct conn *c)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	BIO *bio;
	pthread_once(&once, make_bio_method);
	bio = BIO_new(bio_method);
	ASSERT(bio);
	BIO_set_data(bio, &c->net);
	BIO_set_init(bio, 1);
	SSL_set_bio(c->ssl, bio, bio);
}

/* What SSL_read or SSL_write could not do. False: the connection is broken. */
static bool blocked(struct conn *c, int result, bool reading)
{
	switch (SSL_get_error(c->ssl, result)) {
	case SSL_ERROR_WANT_READ: /* the BIO has found out that nothing is there */
		c->starved = true;
		c->write_wants_read = !reading;
		return true;
	case SSL_ERROR_WANT_WRITE:
		c->net.writable = false;
		c->read_wants_write = reading;
		return true;
	case SSL_ERROR_ZERO_RETURN:
		if (!reading)
			return false;
		c->in.eof = true;
		return true;
	default:
		ERR_clear_error();
		return false;
	}
}

static void watch_room(struct conn *c, bool on)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP | EPOLLET | (on ? EPOLLOUT : 0U), .data.ptr = &c->pair };
	if (c->watches_room == on)
		return;
	c->watches_room = on;
	ASSERT(epoll_ctl(c->thread->epoll_fd, EPOLL_CTL_MOD, c->pair.fd, &ev) == 0);
}

/* How much of it the pair took; false: nobody is there. */
static bool to_pair(struct conn *c, const uint8_t *bytes, size_t len, size_t *ret)
{
	ssize_t n = send(c->pair.fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	*ret = n > 0 ? (size_t)n : 0;
	if (n >= 0)
		return true;
	if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
		return false;
	c->pair.writable = errno == EINTR;
	watch_room(c, !c->pair.writable);
	return true;
}

/* Each step: true when there may be more to do. */
static bool pull(struct conn *c)
{
	size_t took;
	int n;
	if (c->in.done)
		return false;
	if (c->in.bytes) {
		if (!c->pair.writable)
			return false;
		if (to_pair(c, c->in.bytes + c->in.at, c->in.len - c->in.at, &took))
			flow_took(&c->in, took);
		else
			flow_end(&c->in); /* the front end has closed: push sees it too */
		return true;
	}
	if (c->in.eof) {
		shutdown(c->pair.fd, SHUT_WR);
		flow_end(&c->in);
		return false;
	}
	if ((c->starved && !c->net.readable) || (c->read_wants_write && !c->net.writable))
		return false;
	c->starved = c->read_wants_write = false;
	n = SSL_read(c->ssl, c->thread->piece, PIECE);
	if (n <= 0) {
		if (!blocked(c, n, true))
			conn_die(c);
		return !c->dead && c->in.eof;
	}
	if (!to_pair(c, c->thread->piece, (size_t)n, &took))
		flow_end(&c->in);
	else if (took < (size_t)n)
		flow_keep(&c->in, c->thread->piece + took, (size_t)n - took);
	return true;
}

static int untaken(const struct conn *c)
{
	int n = 0;
	(void)ioctl(c->net.fd, SIOCOUTQ, &n);
	return n;
}

static void flush_on(struct conn *c, uint64_t now)
{
	c->moved = false;
	c->untaken = untaken(c);
	c->linger_until = now + c->thread->pump->flush_ms;
	list_push_back(&c->thread->flushing, &c->linger_link);
}

static void begin_flush(struct conn *c)
{
	if (c->flushing || c->lingering)
		return;
	c->flushing = true;
	flush_on(c, mono_ms());
}

static void begin_linger(struct conn *c)
{
	flow_end(&c->out);
	if (c->flushing)
		list_remove(&c->linger_link);
	c->flushing = false;
	c->lingering = true;
	c->linger_until = mono_ms() + LINGER_MS;
	list_push_back(&c->thread->lingering, &c->linger_link);
}

/* Everything of the front end's has gone out. */
static bool say_goodbye(struct conn *c)
{
	if (SSL_shutdown(c->ssl) < 0 && SSL_get_error(c->ssl, -1) == SSL_ERROR_WANT_WRITE) {
		c->net.writable = false;
		return false;
	}
	ERR_clear_error();
	shutdown(c->net.fd, SHUT_WR);
	begin_linger(c);
	return false;
}

static bool push(struct conn *c)
{
	ssize_t n;
	int wrote;
	if (c->out.done || !c->net.writable || (c->write_wants_read && !c->net.readable))
		return false;
	c->write_wants_read = false;
	if (c->out.bytes) {
		wrote = SSL_write(c->ssl, c->out.bytes + c->out.at, (int)(c->out.len - c->out.at));
		c->moved = c->moved || wrote > 0;
		if (wrote > 0)
			flow_took(&c->out, (size_t)wrote);
		else if (!blocked(c, wrote, false))
			conn_die(c);
		return wrote > 0;
	}
	if (c->out.eof)
		return say_goodbye(c);
	if (!c->pair.readable)
		return false;
	n = recv(c->pair.fd, c->thread->piece, PIECE, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
		c->pair.readable = errno == EINTR;
		return c->pair.readable;
	}
	if (n <= 0) {
		c->out.eof = true;
		return true;
	}
	if (n < PIECE && !c->pair.hung_up)
		c->pair.readable = false;
	wrote = SSL_write(c->ssl, c->thread->piece, (int)n);
	c->moved = c->moved || wrote > 0;
	if (wrote <= 0 && !blocked(c, wrote, false))
		conn_die(c);
	else if (wrote < n)
		flow_keep(&c->out, c->thread->piece + (wrote > 0 ? wrote : 0), (size_t)(n - (wrote > 0 ? wrote : 0)));
	return wrote > 0;
}

/* Closing while bytes of the client are unread would reset the connection, and the reset may overtake what was sent last. */
static void linger(struct conn *c)
{
	ssize_t n;
	while ((n = recv(c->net.fd, c->thread->piece, PIECE, MSG_DONTWAIT)) > 0)
		;
	if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
		conn_die(c);
}

static void conn_turn(struct conn *c)
{
	bool more = true;
	for (int i = 0; more && !c->lingering && !c->dead && i < TURNS_MAX; i++) {
		more = pull(c);
		if (!c->dead)
			more = push(c) || more;
	}
	if (!c->dead && c->lingering)
		linger(c);
	else if (!c->dead && more)
		put_ready(c);
}

/* ---- a thread ---- */

static void watch(struct conn *c, struct end *e, uint32_t events)
{
	struct epoll_event ev = { .events = events | EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = e };
	if (epoll_ctl(c->thread->epoll_fd, EPOLL_CTL_ADD, e->fd, &ev) != 0)
		conn_die(c); /* the system's bound on watches */
}

static void take_fresh(struct pump_thread *t)
{
	struct list *it;
	uint64_t count;
	ssize_t n = read(t->wake_fd, &count, sizeof(count));
	(void)n;
	for (;;) {
		struct conn *c;
		pthread_mutex_lock(&t->mu);
		it = list_pop_front(&t->fresh);
		if (t->stop && !t->stop_at)
			t->stop_at = mono_ms() + STOP_MS;
		pthread_mutex_unlock(&t->mu);
		if (!it)
			return;
		c = CONTAINER_OF(it, struct conn, link);
		list_push_back(&t->conns, &c->link);
		watch(c, &c->net, EPOLLOUT);
		if (!c->dead)
			watch(c, &c->pair, 0);
		if (!c->dead)
			put_ready(c);
	}
}

static void on_event(struct end *e, uint32_t events)
{
	struct conn *c = e->conn;
	if (c->dead)
		return;
	if (e == &c->net && (events & EPOLLERR)) { /* reset: nobody will read, and nothing more comes */
		conn_die(c);
		return;
	}
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		e->hung_up = true;
	if (events & EPOLLIN || e->hung_up)
		e->readable = true;
	if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		e->writable = true;
	if (e == &c->pair && e->writable)
		watch_room(c, false);
	if (e == &c->pair && e->hung_up)
		begin_flush(c);
	put_ready(c);
}

static void run_ready(struct pump_thread *t)
{
	struct list mine, *it;
	list_init(&mine);
	while ((it = list_pop_front(&t->ready)))
		list_push_back(&mine, it);
	while ((it = list_pop_front(&mine)))
		conn_turn(CONTAINER_OF(it, struct conn, ready_link));
}

static struct conn *first_of(const struct list *l)
{
	return list_empty(l) ? NULL : CONTAINER_OF(l->next, struct conn, linger_link);
}

/* Who took something gets as long again. The kernel asks for more only when much of what it holds has been taken: its figure counts, too. */
static void end_stuck(struct pump_thread *t, uint64_t now)
{
	struct conn *c;
	while ((c = first_of(&t->flushing)) && c->linger_until <= now) {
		if (!c->moved && c->untaken == untaken(c)) {
			conn_die(c);
			continue;
		}
		list_remove(&c->linger_link);
		flush_on(c, now);
	}
}

static void bury(struct pump_thread *t)
{
	struct list *it;
	struct conn *c;
	uint64_t now = first_of(&t->lingering) || first_of(&t->flushing) ? mono_ms() : 0;
	while ((c = first_of(&t->lingering)) && c->linger_until <= now)
		conn_die(c);
	end_stuck(t, now);
	while ((it = list_pop_front(&t->dead)))
		conn_free(CONTAINER_OF(it, struct conn, link));
}

/* True: it is over. What only lingers has all been sent. */
static bool end_if_due(struct pump_thread *t)
{
	struct list *it;
	if (!t->stop_at)
		return false;
	while ((it = list_pop_front(&t->lingering))) {
		list_push_front(&t->lingering, it);
		conn_die(CONTAINER_OF(it, struct conn, linger_link));
	}
	if (mono_ms() >= t->stop_at) {
		while ((it = t->conns.next) != &t->conns)
			conn_die(CONTAINER_OF(it, struct conn, link));
	}
	bury(t);
	return list_empty(&t->conns);
}

static int wait_ms(struct pump_thread *t)
{
	struct conn *lingers = first_of(&t->lingering), *flushes = first_of(&t->flushing);
	uint64_t due = lingers ? lingers->linger_until : UINT64_MAX, now;
	if (flushes && flushes->linger_until < due)
		due = flushes->linger_until;
	if (!list_empty(&t->ready))
		return 0;
	if (t->stop_at && t->stop_at < due)
		due = t->stop_at;
	if (due == UINT64_MAX)
		return -1;
	now = mono_ms();
	return due <= now ? 0 : (int)(due - now);
}

static void *run(void *arg)
{
	struct pump_thread *t = arg;
	struct epoll_event events[EVENTS_MAX];
	while (!end_if_due(t)) {
		int n = epoll_wait(t->epoll_fd, events, EVENTS_MAX, wait_ms(t));
		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr)
				on_event(events[i].data.ptr, events[i].events);
			else
				take_fresh(t);
		}
		run_ready(t);
		bury(t);
	}
	return NULL;
}

/* ---- life ---- */

static struct pump_thread *thread_new(struct tls_pump *p, const char *name)
{
	struct pump_thread *t = mem_zalloc(sizeof(*t));
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = NULL };
	t->pump = p;
	pthread_mutex_init(&t->mu, NULL);
	list_init(&t->fresh);
	list_init(&t->conns);
	list_init(&t->ready);
	list_init(&t->flushing);
	list_init(&t->lingering);
	list_init(&t->dead);
	t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ASSERT(t->epoll_fd >= 0 && t->wake_fd >= 0); /* made once, at start */
	ASSERT(epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->wake_fd, &ev) == 0);
	ASSERT(pthread_create(&t->id, NULL, run, t) == 0);
	pthread_setname_np(t->id, name);
	return t;
}

struct tls_pump *tls_pump_new(size_t threads, const char *name, uint32_t flush_ms)
{
	struct tls_pump *p = mem_zalloc(sizeof(*p) + threads * sizeof(p->threads[0]));
	p->len = threads;
	p->flush_ms = flush_ms ? flush_ms : TLS_PUMP_FLUSH_MS;
	for (size_t i = 0; i < threads; i++)
		p->threads[i] = thread_new(p, name);
	return p;
}

bool tls_pump_pair(int ret_fds[2])
{
	return socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ret_fds) == 0;
}

static void wake(struct pump_thread *t)
{
	uint64_t one = 1;
	ASSERT(write(t->wake_fd, &one, sizeof(one)) == sizeof(one) || errno == EAGAIN);
}

void tls_pump_take(struct tls_pump *p, SSL *ssl, int net_fd, int pair_fd)
{
	struct pump_thread *t = p->threads[atomic_fetch_add(&p->next, 1) % p->len];
	struct conn *c = mem_zalloc(sizeof(*c));
	c->thread = t;
	c->ssl = ssl;
	/* Bytes may be there already, read ahead by the handshake; whatever is not there is found out soon. */
	c->net = (struct end){ .conn = c, .fd = net_fd, .readable = true, .writable = true };
	c->pair = (struct end){ .conn = c, .fd = pair_fd, .readable = true, .writable = true };
	take_over(c);
	list_init(&c->ready_link);
	list_init(&c->linger_link);
	atomic_fetch_add(&t->conns_len, 1);
	pthread_mutex_lock(&t->mu);
	list_push_back(&t->fresh, &c->link);
	pthread_mutex_unlock(&t->mu);
	wake(t);
}

size_t tls_pump_connections(struct tls_pump *p)
{
	size_t sum = 0;
	for (size_t i = 0; i < p->len; i++)
		sum += atomic_load(&p->threads[i]->conns_len);
	return sum;
}

static void thread_free(struct pump_thread *t)
{
	pthread_mutex_lock(&t->mu);
	t->stop = true;
	pthread_mutex_unlock(&t->mu);
	wake(t);
	pthread_join(t->id, NULL);
	ASSERT(list_empty(&t->fresh));
	close(t->epoll_fd);
	close(t->wake_fd);
	pthread_mutex_destroy(&t->mu);
	free(t);
}

void tls_pump_free(struct tls_pump *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->len; i++)
		thread_free(p->threads[i]);
	free(p);
}
