/* connection.c: sockets: their number, their time, their bytes, and noticing that the client has gone.
 *
 * While a request waits for its answer h2o looks at the socket in no way, so an epoll of our own watches every connection for a hang-up: it
 * is itself a descriptor that h2o's loop watches. The client may have closed only its sending side, to read an answer that comes at once; so a
 * hang-up leaves a call a grace, counted from the call's beginning: who has waited for longer does not expect an answer at once. A reset is final, and ends
 * a call when it is seen.
 *
 * A call that gives a hold (a lock, a lead) has no grace, and does not even begin when its client has left before it was read: after this process stood still,
 * say, when that client has long asked elsewhere and may have given back what it got. Nobody may hold who may not know that he does.
 *
 * h2o knows one time limit, between requests. A tick sees to the others: that a request arrives whole in its time, that unfinished ones
 * together stay within bounds, and that whoever is sent the end of a reply takes it: a large one is kept in memory, and counts against all others', until it is
 * written. What the kernel holds for a client moves when the client reads, however slowly; a client that stands still for long is let go. A stream that is
 * still open may stand still: it costs little, and goes on from where it was. To end a connection that h2o reads from, its socket is shut down, and h2o reads the end. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "internal.h"

static void on_close(void *data)
{
	struct connection *c = data;
	ASSERT(!c->exchange);
	list_remove(&c->link);
	atomic_fetch_sub(&c->gateway->connections_len, 1);
	identity_unref(c->identity);
	free(c);
}

static void watch_hang_up(struct connection *c)
{
	struct epoll_event ev = { .events = EPOLLRDHUP | EPOLLET, .data.ptr = c };
	/* Without a watch the call just lasts until an answer cannot be written. */
	if (epoll_ctl(c->gateway->hang_up_fd, EPOLL_CTL_ADD, c->fd, &ev) < 0)
		ASSERT(errno == ENOMEM || errno == ENOSPC);
}

void connection_adopt(struct gateway *g, int fd, struct identity *who, bool pages_only)
{
	struct connection *c = mem_zalloc(sizeof(*c));
	c->gateway = g;
	c->fd = fd;
	c->identity = who;
	c->pages_only = pages_only;
	list_push_back(&g->connections, &c->link);
	watch_hang_up(c);
	c->sock = h2o_evloop_socket_create(g->loop, fd, H2O_SOCKET_FLAG_IS_ACCEPTED_CONNECTION);
	c->sock->on_close.cb = on_close;
	c->sock->on_close.data = c;
	h2o_accept(&g->accept_ctx, c->sock);
}

/* ---- hang-ups ---- */

static bool gives_hold(const struct method *m)
{
	return m->id == METHOD_LOCK_LOCK || m->id == METHOD_ELECTION_CAMPAIGN;
}

static bool is_given_up(const struct connection *c)
{
	const struct json_call *call = c->exchange ? c->exchange->call : NULL;
	return call && c->hung_up_ms && (gives_hold(call->service.method) || c->gateway->now_ms - call->began_ms >= GATEWAY_HANG_UP_GRACE_MS);
}

/* The hang-up of one whose request is being read may be an event that is still to be taken. */
bool connection_may_begin(const struct connection *c, const struct method *m)
{
	struct pollfd p = { .fd = c->fd, .events = POLLRDHUP };
	return !gives_hold(m) || (!c->hung_up_ms && poll(&p, 1, 0) <= 0);
}

/* Closes nothing: another event of the same batch may be for a connection that acting on this one would close. */
static void on_hang_up(h2o_socket_t *sock, const char *err)
{
	struct gateway *g = sock->data;
	struct epoll_event events[64];
	int n;
	(void)err;
	while ((n = epoll_wait(g->hang_up_fd, events, 64, 0)) > 0) {
		for (int i = 0; i < n; i++) {
			struct connection *c = events[i].data.ptr;
			bool reset = events[i].events & (EPOLLERR | EPOLLHUP);
			if (!c->hung_up_ms)
				c->hung_up_ms = g->now_ms;
			if (c->exchange)
				c->exchange->req->http1_is_persistent = 0;
			if (is_given_up(c) || (reset && c->exchange && c->exchange->call))
				json_call_cancel(c->exchange->call);
		}
	}
}

void connection_watch_init(struct gateway *g)
{
	g->hang_up_fd = epoll_create1(EPOLL_CLOEXEC);
	ASSERT(g->hang_up_fd >= 0);
	g->hang_up_sock = h2o_evloop_socket_create(g->loop, g->hang_up_fd, H2O_SOCKET_FLAG_DONT_READ);
	g->hang_up_sock->data = g;
	h2o_socket_read_start(g->hang_up_sock, on_hang_up);
}

void connection_watch_deinit(struct gateway *g)
{
	h2o_socket_read_stop(g->hang_up_sock);
	h2o_socket_close(g->hang_up_sock);
}

/* ---- between request and answer ---- */

/* The client has sent more, or gone. Neither is for now. */
static void on_readable(h2o_socket_t *sock, const char *err)
{
	(void)err;
	h2o_socket_read_stop(sock);
}

/* h2o would take the socket out of its epoll until the answer is written, and put it back then: two system calls that cost more than all we do
 * for the request. */
void connection_wait(struct connection *c)
{
	c->waiting = true;
	h2o_socket_dont_read(c->sock, 1);
	h2o_socket_read_start(c->sock, on_readable);
}

void connection_wait_end(struct connection *c)
{
	if (!c->waiting)
		return;
	c->waiting = false;
	h2o_socket_read_stop(c->sock);
	h2o_socket_dont_read(c->sock, 0);
}

/* ---- limits ---- */

void connection_refuse(int fd, const char *status, const char *text)
{
	char head[512], rest[4096];
	int len = snprintf(head, sizeof(head),
			   "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s\n", status,
			   strlen(text) + 1, text);
	/* What is still unread when a socket is closed turns the close into a reset, which may overtake the answer. */
	while (recv(fd, rest, sizeof(rest), MSG_DONTWAIT) == (ssize_t)sizeof(rest))
		;
	if (send(fd, head, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL) != len)
		return;
	shutdown(fd, SHUT_WR);
}

static void refuse(struct connection *c, const char *status, const char *text)
{
	if (c->refused)
		return;
	c->refused = true;
	connection_refuse(c->fd, status, text);
	shutdown(c->fd, SHUT_RDWR);
}

static void tick_waiting(struct connection *c)
{
	c->reading_since_ms = 0;
	if (is_given_up(c)) {
		c->exchange->req->http1_is_persistent = 0;
		json_call_cancel(c->exchange->call);
	}
}

/* Whether the client stands still in front of the last of its reply. */
static bool is_stuck(struct connection *c)
{
	uint64_t now = c->gateway->now_ms, bound = c->gateway->config.write_timeout_ms;
	int untaken = 0;
	if (!bound || !c->exchange->ending || ioctl(c->fd, SIOCOUTQ, &untaken) < 0) {
		c->taken_ms = 0;
		return false;
	}
	if (!c->taken_ms || untaken == 0 || untaken != c->untaken) {
		c->taken_ms = now;
		c->untaken = untaken;
	}
	return now - c->taken_ms >= bound;
}

/* h2o finds the socket shut as it writes on. Nobody will read what is on its way: it is dropped, too. */
static void let_go(struct connection *c)
{
	struct linger at_once = { .l_onoff = 1 };
	c->taken_ms = 0;
	atomic_fetch_add(&c->gateway->stuck_connections, 1);
	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	shutdown(c->fd, SHUT_RDWR);
}

static void tick_reading(struct connection *c)
{
	struct gateway *g = c->gateway;
	c->taken_ms = 0;
	if (c->sock->input->size == 0) {
		c->reading_since_ms = 0;
		return;
	}
	if (!c->reading_since_ms)
		c->reading_since_ms = g->now_ms;
	if (g->now_ms - c->reading_since_ms >= g->config.request_timeout_ms)
		refuse(c, "408 Request Timeout", "the request did not arrive in time");
	else if (g->input_bytes > GATEWAY_INPUT_MAX && c->sock->input->size > GATEWAY_INPUT_SMALL)
		refuse(c, "503 Service Unavailable", "too many requests are arriving");
}

void connections_tick(struct gateway *g)
{
	uint64_t sum = 0;
	LIST_FOR_EACH(it, &g->connections)
		sum += CONTAINER_OF(it, struct connection, link)->sock->input->size;
	g->input_bytes = sum;
	LIST_FOR_EACH_SAFE(it, tmp, &g->connections) {
		struct connection *c = CONTAINER_OF(it, struct connection, link);
		if (!c->exchange)
			tick_reading(c);
		else if (is_stuck(c))
			let_go(c);
		else
			tick_waiting(c);
	}
}

void connections_shut(struct gateway *g, bool idle_only)
{
	LIST_FOR_EACH(it, &g->connections) {
		struct connection *c = CONTAINER_OF(it, struct connection, link);
		if (c->exchange)
			c->exchange->req->http1_is_persistent = 0;
		if (!c->exchange || !idle_only)
			shutdown(c->fd, SHUT_RDWR);
	}
}
