/* client.c: see client.h. */
#include "client.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "node/node.h"

/* For /metrics. */
void node_status(struct node *n, struct core_status *ret)
{
	(void)n;
	*ret = (struct core_status){ .role = RAFT_LEADER, .term = 3, .commit = 7, .revision = 5, .serving = true };
}

void pause_ms(int ms)
{
	usleep((useconds_t)ms * 1000);
}

void setup_start_with(struct setup *s, struct gateway_config limits)
{
	struct service_limits sl = { .max_txn_ops = 128, .max_request_bytes = limits.max_request_bytes };
	s->node = fake_node_new();
	s->service = service_new(s->node, &sl);
	limits.service = s->service;
	limits.node = s->node;
	limits.server_version = "3.5.17";
	s->gateway = gateway_new(&limits);
}

struct gateway_config setup_limits(void)
{
	return (struct gateway_config){ .max_request_bytes = 64 * 1024, .max_connections = 8, .max_header_bytes = 4096, .request_timeout_ms = 400,
					.idle_timeout_ms = 60000 };
}

void setup_start(struct setup *s)
{
	setup_start_with(s, setup_limits());
}

void setup_end(struct setup *s)
{
	gateway_stop(s->gateway);
	gateway_free(s->gateway);
	service_free(s->service);
	fake_node_free(s->node);
}

/* Returns the server's end. */
static int open_pair(struct client *c)
{
	int fds[2];
	ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	*c = (struct client){ .fd = fds[0] };
	return fds[1];
}

void client_open(struct client *c, struct setup *s)
{
	gateway_adopt(s->gateway, open_pair(c), identity_of_address("127.0.0.1:4242"));
}

void client_open_left(struct client *c, struct setup *s, const char *path, const char *body)
{
	int theirs = open_pair(c);
	client_post(c, path, body);
	ASSERT(shutdown(c->fd, SHUT_WR) == 0);
	gateway_adopt(s->gateway, theirs, identity_of_address("127.0.0.1:4242"));
}

void client_close(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	buf_free(&c->in);
}

void client_send(struct client *c, const char *text)
{
	size_t len = strlen(text), at = 0;
	while (at < len) {
		ssize_t n = send(c->fd, text + at, len - at, MSG_NOSIGNAL);
		if (n < 0)
			return;
		at += (size_t)n;
	}
}

void client_post(struct client *c, const char *path, const char *body)
{
	struct buf b = { .ptr = NULL };
	buf_printf(&b, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s", path, strlen(body), body);
	buf_append_byte(&b, 0);
	client_send(c, (const char *)b.ptr);
	buf_free(&b);
}

/* False: nothing came in time, or the other side closed. */
static bool read_more(struct client *c, uint64_t until)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };
	uint64_t now = mono_ms();
	ssize_t n;
	if (now >= until || poll(&p, 1, (int)(until - now)) <= 0)
		return false;
	buf_reserve(&c->in, 65536);
	n = recv(c->fd, c->in.ptr + c->in.len, 65536, 0);
	if (n <= 0)
		return false;
	c->in.len += (size_t)n;
	return true;
}

static void consume(struct client *c, size_t n)
{
	memmove(c->in.ptr, c->in.ptr + n, c->in.len - n);
	c->in.len -= n;
}

static bool read_line(struct client *c, struct buf *out, uint64_t until)
{
	uint8_t *end;
	while (!c->in.len || !(end = memmem(c->in.ptr, c->in.len, "\r\n", 2))) {
		if (!read_more(c, until))
			return false;
	}
	buf_append(out, c->in.ptr, (size_t)(end - c->in.ptr));
	buf_append(out, "\r\n", 2);
	consume(c, (size_t)(end - c->in.ptr) + 2);
	return true;
}

static bool read_bytes(struct client *c, struct buf *out, size_t n, uint64_t until)
{
	while (c->in.len < n) {
		if (!read_more(c, until))
			return false;
	}
	if (out)
		buf_append(out, c->in.ptr, n);
	consume(c, n);
	return true;
}

static bool read_chunks(struct client *c, struct buf *out, uint64_t until)
{
	for (;;) {
		struct buf line = { .ptr = NULL };
		unsigned long n;
		bool ok = read_line(c, &line, until);
		buf_append_byte(&line, 0);
		n = ok ? strtoul((char *)line.ptr, NULL, 16) : 0;
		buf_free(&line);
		if (!ok || !read_bytes(c, out, n, until) || !read_bytes(c, NULL, 2, until))
			return false;
		if (!n)
			return true;
	}
}

static void terminate(struct buf *b)
{
	buf_append_byte(b, 0);
	b->len--;
}

static bool read_body(struct client *c, struct response *r, uint64_t until)
{
	const char *length = strcasestr((char *)r->head.ptr, "\r\ncontent-length: ");
	if (r->chunked)
		return read_chunks(c, &r->body, until);
	return length && read_bytes(c, &r->body, strtoul(length + 18, NULL, 10), until);
}

void client_read(struct client *c, struct response *r, int timeout_ms)
{
	uint64_t until = mono_ms() + (uint64_t)timeout_ms;
	*r = (struct response){ .status = 0 };
	for (size_t line = 0, before = 0; !line || r->head.len > before + 2; line++) {
		before = r->head.len;
		if (!read_line(c, &r->head, until)) {
			terminate(&r->head);
			terminate(&r->body);
			return;
		}
	}
	terminate(&r->head);
	r->status = atoi((char *)r->head.ptr + 9);
	r->chunked = response_has(r, "transfer-encoding: chunked");
	r->whole = read_body(c, r, until);
	terminate(&r->body);
}

void response_free(struct response *r)
{
	buf_free(&r->head);
	buf_free(&r->body);
}

bool response_has(const struct response *r, const char *header)
{
	return strcasestr((char *)r->head.ptr, header) != NULL;
}
