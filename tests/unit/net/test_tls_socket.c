/* test_tls_socket.c: TLS behind a socket that gRPC takes for a plain one: the test works on it by the calls that gRPC makes, and by gRPC's own rules. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "net_test.h"
#include "tls_desk.h"
#include "wire/wire.h"

#define FIRST PREFACE " and more"

static const struct kit_client_spec h2 = { .ca = "ca", .cert = "alice", .host = "localhost", .alpn = "\x02h2" };
static const struct kit_client_spec h2_12 = { .ca = "ca", .cert = "alice", .host = "localhost", .alpn = "\x02h2", .max_version = TLS1_2_VERSION };

/* ---- as gRPC does it ---- */

static ssize_t read_some(int fd, void *to, size_t len, int *ret_left)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov[2] = { { to, len / 3 }, { (char *)to + len / 3, len - len / 3 } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2, .msg_control = control, .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(fd, &msg, 0);
	struct cmsghdr *c = n >= 0 ? CMSG_FIRSTHDR(&msg) : NULL;
	*ret_left = 1;
	if (c && c->cmsg_level == SOL_TCP && c->cmsg_type == TCP_CM_INQ)
		memcpy(ret_left, CMSG_DATA(c), sizeof(*ret_left));
	return n;
}

static ssize_t write_some(int fd, const void *bytes, size_t len)
{
	char *p = (char *)(uintptr_t)bytes;
	struct iovec iov[3] = { { p, len / 2 }, { p + len / 2, 0 }, { p + len / 2, len - len / 2 } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 3 };
	return sendmsg(fd, &msg, MSG_NOSIGNAL);
}

/* Edges of one descriptor. */
struct edges {
	int epoll_fd;
};

static struct edges edges_of(int fd)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT | EPOLLET };
	struct edges e = { epoll_create1(EPOLL_CLOEXEC) };
	ck_assert_int_eq(epoll_ctl(e.epoll_fd, EPOLL_CTL_ADD, fd, &ev), 0);
	return e;
}

static bool edge(struct edges e, uint32_t events, int ms)
{
	struct epoll_event ev;
	uint64_t until = test_now_ms() + (uint64_t)ms;
	do {
		if (epoll_wait(e.epoll_fd, &ev, 1, ms) == 1 && ev.events & events)
			return true;
	} while (test_now_ms() < until);
	return false;
}

/* Reads until `len` have come, and waits only when told that nothing is left. */
static void read_exactly(int fd, struct edges e, char *to, size_t len)
{
	int left = 1;
	for (size_t got = 0; got < len;) {
		ssize_t n = -1;
		if (left) {
			n = read_some(fd, to + got, len - got, &left);
			ck_assert(n > 0 || (n < 0 && errno == EAGAIN));
		}
		if (n > 0)
			got += (size_t)n;
		else
			left = edge(e, EPOLLIN, 10000);
		ck_assert_msg(n > 0 || left, "no edge after %zu of %zu", got, len);
	}
}

static void write_all(int fd, struct edges e, const char *bytes, size_t len)
{
	for (size_t sent = 0; sent < len;) {
		ssize_t n = write_some(fd, bytes + sent, len - sent);
		if (n > 0)
			sent += (size_t)n;
		else
			ck_assert(n < 0 && errno == EAGAIN && edge(e, EPOLLOUT, 10000));
	}
}

static void connect_as(struct desk *d, struct kit_client *c, const struct kit_client_spec *spec)
{
	char got[sizeof(FIRST)] = "";
	int left;
	desk_open_as_grpc(d, usual);
	ck_assert(kit_client_open(c, d->port, spec));
	kit_client_write(c, FIRST);
	ck_assert(TEST_WAIT(5000, count(d, &d->http2) == 1));
	ck_assert(wire_is_attached(d->fd));
	ck_assert_int_eq(read_some(d->fd, got, sizeof(got), &left), sizeof(got) - 1);
	ck_assert_str_eq(got, FIRST); /* unread till now */
}

static void connect_to(struct desk *d, struct kit_client *c)
{
	connect_as(d, c, &h2);
}

static void part(struct desk *d, struct kit_client *c)
{
	kit_client_close(c);
	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
	ck_assert_uint_eq(acceptor_tls_connections(d->acceptor), 0);
	desk_close(d);
}

/* ---- the door ---- */

START_TEST(wire__grpc_comes_by)
{
	size_t before;
	before = test_open_descriptors();
	ck_assert(wire_works());
	ck_assert(wire_works());
	ck_assert(TEST_WAIT(5000, test_open_descriptors() <= before + 2)); /* the library keeps a poll set of its own */
}
END_TEST

START_TEST(wire__other_descriptors_are_left_alone)
{
	int fds[2], left;
	char got[16] = "";
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	ck_assert(!wire_is_attached(fds[0]) && wire_cork(fds[0]) == NULL);
	ck_assert(!wire_is_attached(-1) && wire_cork(-1) == NULL && wire_cork(1 << 30) == NULL);
	ck_assert_int_eq(write_some(fds[0], "abc", 3), 3);
	ck_assert_int_eq(read_some(fds[1], got, sizeof(got), &left), 3);
	ck_assert_str_eq(got, "abc");
	ck_assert_int_eq(read_some(fds[1], got, sizeof(got), &left), -1);
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_int_eq(shutdown(fds[0], SHUT_WR), 0);
	ck_assert_int_eq(read_some(fds[1], got, sizeof(got), &left), 0);
	ck_assert_int_eq(close(fds[0]), 0);
	ck_assert_int_eq(close(fds[0]), -1);
	ck_assert_int_eq(errno, EBADF);
	close(fds[1]);
}
END_TEST

/* ---- bytes ---- */

START_TEST(socket__says_when_nothing_is_left_and_an_edge_comes_then)
{
	struct desk d;
	struct kit_client c;
	struct edges e;
	char got[16];
	int left;
	connect_as(&d, &c, _i ? &h2_12 : &h2);
	e = edges_of(d.fd);
	while (edge(e, EPOLLIN, 0))
		;
	ck_assert_int_eq(read_some(d.fd, got, sizeof(got), &left), -1);
	ck_assert_int_eq(errno, EAGAIN);
	kit_client_write(&c, "0123456789abcdefghij");
	ck_assert(edge(e, EPOLLIN, 5000));
	ck_assert_int_eq(read_some(d.fd, got, 15, &left), 15);
	ck_assert_int_eq(left, 1); /* of which the socket knows nothing */
	ck_assert_int_eq(read_some(d.fd, got, sizeof(got), &left), 5);
	ck_assert_int_eq(left, 0);
	ck_assert_int_eq(write_some(d.fd, "answer", 6), 6);
	ck_assert_int_eq(kit_client_read(&c, got, sizeof(got)), 6);
	ck_assert_str_eq(got, "answer");
	close(e.epoll_fd);
	part(&d, &c);
}
END_TEST

/* As the front end does it, to have numbers that do not come again soon. */
START_TEST(socket__goes_along_to_another_number)
{
	struct desk d;
	struct kit_client c;
	char got[16];
	int moved, left, old;
	connect_to(&d, &c);
	old = d.fd;
	moved = fcntl(old, F_DUPFD_CLOEXEC, 200);
	ck_assert(wire_move(old, moved));
	close(old);
	d.fd = moved;
	ck_assert(!wire_is_attached(old));
	kit_client_write(&c, "question");
	ck_assert(TEST_WAIT(5000, read_some(moved, got, sizeof(got), &left) == 8));
	ck_assert_int_eq(write_some(moved, "answer", 6), 6);
	ck_assert_int_eq(kit_client_read(&c, got, sizeof(got)), 6);
	part(&d, &c);
}
END_TEST

enum { MUCH = 4 << 20 };

static char byte_at(size_t i)
{
	return (char)(i * 31 + i / 251);
}

static void fill(char *bytes, size_t len, size_t from)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] = byte_at(from + i);
}

struct side {
	int fd;
	struct edges edges;
	atomic_bool failed;
};

static void *server_reads(void *arg)
{
	static char got[MUCH];
	struct side *s = arg;
	read_exactly(s->fd, s->edges, got, MUCH);
	for (size_t i = 0; i < MUCH; i++)
		if (got[i] != byte_at(i))
			atomic_store(&s->failed, true);
	return NULL;
}

static void *server_writes(void *arg)
{
	static char bytes[MUCH];
	struct side *s = arg;
	fill(bytes, MUCH, 0);
	for (size_t sent = 0, i = 0, len; sent < MUCH; sent += len, i++) {
		struct wire *cork = i % 3 ? wire_cork(s->fd) : NULL;
		len = 1 + i * 977 % 40000;
		if (len > MUCH - sent)
			len = MUCH - sent;
		write_all(s->fd, s->edges, bytes + sent, len);
		if (cork)
			wire_uncork(cork);
	}
	return NULL;
}

static void client_writes(struct kit_client *c)
{
	static char bytes[50000];
	for (size_t sent = 0; sent < MUCH;) {
		size_t len = 1 + sent % sizeof(bytes);
		if (len > MUCH - sent)
			len = MUCH - sent;
		fill(bytes, len, sent);
		ck_assert_int_eq(SSL_write(c->ssl, bytes, (int)len), (int)len);
		sent += len;
	}
}

static size_t client_reads(struct kit_client *c, size_t len)
{
	static char bytes[65536];
	size_t got = 0;
	bool unharmed = true;
	while (got < len) {
		int n = SSL_read(c->ssl, bytes, sizeof(bytes));
		if (n <= 0)
			break;
		for (int i = 0; i < n; i++)
			unharmed = unharmed && bytes[i] == byte_at(got + (size_t)i);
		got += (size_t)n;
	}
	ck_assert(unharmed);
	return got;
}

static void make(int fd, int what, int size)
{
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, what, &size, sizeof(size)), 0);
}

static void make_small(int fd, int what)
{
	make(fd, what, 32 * 1024);
}

/* Two threads of the server's on one connection: gRPC reads while it writes. The client writes all, then reads all, so the server's writer stands still for long,
 * in the midst of records. */
START_TEST(socket__much_goes_both_ways_unharmed)
{
	struct desk d;
	struct kit_client c;
	struct side in, out;
	pthread_t reader, writer;
	connect_as(&d, &c, _i ? &h2_12 : &h2);
	make_small(d.fd, SO_SNDBUF);
	make_small(c.fd, SO_RCVBUF);
	in = (struct side){ .fd = d.fd, .edges = edges_of(d.fd) };
	out = (struct side){ .fd = d.fd, .edges = edges_of(d.fd) };
	ck_assert_int_eq(pthread_create(&reader, NULL, server_reads, &in), 0);
	ck_assert_int_eq(pthread_create(&writer, NULL, server_writes, &out), 0);
	client_writes(&c);
	pthread_join(reader, NULL);
	ck_assert(!atomic_load(&in.failed));
	ck_assert_uint_eq(client_reads(&c, MUCH), MUCH);
	pthread_join(writer, NULL);
	close(in.edges.epoll_fd);
	close(out.edges.epoll_fd);
	part(&d, &c);
}
END_TEST

/* ---- corks ---- */

static int pieces_of(struct kit_client *c, int len)
{
	char got[64];
	int n, pieces = 0;
	for (int sum = 0; sum < len; sum += n, pieces++) {
		n = SSL_read(c->ssl, got, sizeof(got));
		ck_assert_int_gt(n, 0);
	}
	return pieces;
}

START_TEST(cork__many_writes_are_one_record)
{
	struct desk d;
	struct kit_client c;
	struct wire *one, *other;
	char got[4];
	connect_to(&d, &c);
	one = wire_cork(d.fd);
	other = wire_cork(d.fd);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(write_some(d.fd, "0123456789", 10), 10);
	wire_uncork(one);
	ck_assert_int_eq(pieces_of(&c, 50), 1); /* who is done does not wait for others */
	wire_uncork(other);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(write_some(d.fd, "0123456789", 10), 10);
	ck_assert_int_eq(pieces_of(&c, 30), 3);
	/* What is still corked goes out before the end, and an uncork after it does no harm. */
	one = wire_cork(d.fd);
	ck_assert_int_eq(write_some(d.fd, "end", 3), 3);
	close(d.fd);
	d.fd = -1;
	wire_uncork(one);
	ck_assert_int_eq(kit_client_read(&c, got, sizeof(got)), 3);
	ck_assert_int_eq(kit_client_read(&c, got, sizeof(got)), 0);
	part(&d, &c);
}
END_TEST

/* Writes under corks until one is refused: what was taken before is more than the socket has room for, and nobody writes any more. */
static size_t stuff(int fd)
{
	static char bytes[9000];
	size_t sum = 0;
	make_small(fd, SO_SNDBUF);
	for (;;) {
		struct wire *w = wire_cork(fd);
		ssize_t n;
		fill(bytes, sizeof(bytes), sum);
		n = write_some(fd, bytes, sizeof(bytes));
		wire_uncork(w);
		if (n < 0)
			break;
		sum += (size_t)n;
		ck_assert_uint_lt(sum, 64 << 20);
	}
	ck_assert_int_eq(errno, EAGAIN);
	return sum;
}

START_TEST(cork__what_found_no_room_goes_out_by_itself)
{
	struct desk d;
	struct kit_client c;
	size_t sum;
	connect_to(&d, &c);
	sum = stuff(d.fd);
	ck_assert_uint_eq(client_reads(&c, sum), sum);
	sum = stuff(d.fd);
	ck_assert_uint_eq(client_reads(&c, sum), sum);
	part(&d, &c);
}
END_TEST

START_TEST(cork__closed_while_there_is_no_room)
{
	struct desk d;
	struct kit_client c;
	connect_to(&d, &c);
	stuff(d.fd);
	if (_i == 1) { /* before that, it begins to go out */
		char got[4096];
		ck_assert_int_gt(SSL_read(c.ssl, got, sizeof(got)), 0);
	}
	if (_i == 2) /* the rest of it has nobody to go by */
		acceptor_stop(d.acceptor);
	close(d.fd);
	d.fd = -1;
	part(&d, &c);
}
END_TEST

static int unsent(int fd)
{
	int n;
	ck_assert_int_eq(ioctl(fd, SIOCOUTQ, &n), 0);
	return n;
}

static void new_keys(struct kit_client *c)
{
	ck_assert_int_eq(SSL_key_update(c->ssl, SSL_KEY_UPDATE_REQUESTED), 1);
	ck_assert_int_eq(SSL_do_handshake(c->ssl), 1);
	kit_client_write(c, "after");
}

/* There is no room any more, not even for the answer to new keys. What the client has been sent and not read: `len` bytes. */
static void fill_up(struct desk *d, struct kit_client *c, struct edges e, size_t len, struct wire **ret_cork)
{
	static char bytes[256 * 1024];
	char got[5];
	make_small(c->fd, SO_RCVBUF);
	make(d->fd, SO_SNDBUF, 1 << 20);
	fill(bytes, len, 0);
	ck_assert_int_eq(write_some(d->fd, bytes, len), (ssize_t)len);
	*ret_cork = wire_cork(d->fd);
	ck_assert_int_eq(write_some(d->fd, "corked", 6), 6);
	make(d->fd, SO_SNDBUF, 1);
	for (int had = 0, has = 1, i = 0; had != has; i++) { /* the kernel's last buffer takes some, whatever its bound */
		ck_assert_int_lt(i, 20000);
		had = unsent(d->fd);
		new_keys(c);
		read_exactly(d->fd, e, got, 5);
		has = unsent(d->fd);
	}
}

/* The answer to new keys finds no room, and then there is some: what was corked before does not go by it. */
START_TEST(cork__goes_out_behind_what_waits)
{
	enum { LEN = 200 * 1024 };
	struct desk d;
	struct kit_client c;
	struct edges e;
	struct wire *cork;
	char got[16] = "";
	connect_to(&d, &c);
	e = edges_of(d.fd);
	fill_up(&d, &c, e, LEN, &cork);
	make(d.fd, SO_SNDBUF, 1 << 20);
	wire_uncork(cork);
	ck_assert_uint_eq(client_reads(&c, LEN), LEN);
	ck_assert_int_eq(kit_client_read(&c, got, sizeof(got)), 6);
	ck_assert_str_eq(got, "corked");
	close(e.epoll_fd);
	part(&d, &c);
}
END_TEST

START_TEST(cork__holds_a_record_and_no_more)
{
	static char bytes[10000];
	struct desk d;
	struct kit_client c;
	struct wire *cork;
	connect_to(&d, &c);
	cork = wire_cork(d.fd);
	for (size_t sent = 0; sent < 2 * sizeof(bytes); sent += sizeof(bytes)) {
		fill(bytes, sizeof(bytes), sent);
		ck_assert_int_eq(write_some(d.fd, bytes, sizeof(bytes)), sizeof(bytes));
	}
	ck_assert_uint_eq(client_reads(&c, 2 * sizeof(bytes)), 2 * sizeof(bytes));
	wire_uncork(cork);
	part(&d, &c);
}
END_TEST

/* By then the descriptor is somebody else's. */
START_TEST(cork__touches_nothing_after_the_end)
{
	struct desk d;
	struct kit_client c;
	struct wire *cork;
	int fds[2], old;
	connect_to(&d, &c);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	cork = wire_cork(d.fd);
	shutdown(d.fd, SHUT_RDWR);
	write_some(d.fd, "late", 4);
	old = d.fd;
	close(d.fd);
	d.fd = -1;
	ck_assert_int_eq(dup2(fds[0], old), old);
	wire_uncork(cork);
	ck_assert_int_eq(send(old, "a", 1, MSG_NOSIGNAL), 1);
	expect(fds[1], "a");
	close(old);
	close(fds[0]);
	close(fds[1]);
	part(&d, &c);
}
END_TEST

/* ---- ends ---- */

START_TEST(socket__a_client_that_has_sent_all_may_still_read)
{
	struct desk d;
	struct kit_client c;
	struct edges e;
	char got[64] = "";
	int left;
	connect_to(&d, &c);
	e = edges_of(d.fd);
	kit_client_write(&c, "question");
	if (_i)
		ck_assert_int_ge(SSL_shutdown(c.ssl), 0); /* says so */
	shutdown(c.fd, SHUT_WR);                          /* or just stops */
	read_exactly(d.fd, e, got, 8);
	ck_assert_str_eq(got, "question");
	ck_assert(TEST_WAIT(5000, read_some(d.fd, got, sizeof(got), &left) == 0));
	ck_assert_int_eq(read_some(d.fd, got, sizeof(got), &left), 0); /* again */
	ck_assert_int_eq(write_some(d.fd, "answer", 6), 6);
	ck_assert_int_eq(shutdown(d.fd, SHUT_RDWR), 0);
	ck_assert_int_eq(kit_client_read(&c, got, sizeof(got)), 6);
	ck_assert_int_eq(kit_client_read(&c, got, sizeof(got)), 0);
	ck_assert_int_eq(SSL_get_error(c.ssl, 0), SSL_ERROR_ZERO_RETURN); /* in good order */
	ck_assert_int_eq(write_some(d.fd, "more", 4), -1);
	ck_assert_int_eq(errno, EPIPE);
	close(e.epoll_fd);
	part(&d, &c);
}
END_TEST

/* An end behind bytes that came with it is no edge of its own: whoever reads the bytes has to be told to read on. */
START_TEST(socket__an_end_that_came_with_bytes_is_read)
{
	struct desk d;
	struct kit_client c;
	char got[64];
	int left;
	connect_to(&d, &c);
	kit_client_write(&c, "last");
	shutdown(c.fd, SHUT_WR);
	ck_assert(TEST_WAIT(5000, ({ char b; recv(d.fd, &b, 1, MSG_PEEK | MSG_DONTWAIT) == 1; })));
	test_sleep_ms(50); /* loopback: the end has come as well */
	ck_assert_int_eq(read_some(d.fd, got, sizeof(got), &left), 4);
	ck_assert_int_eq(left, 1);
	ck_assert_int_eq(read_some(d.fd, got, sizeof(got), &left), 0);
	part(&d, &c);
}
END_TEST

START_TEST(socket__a_reset_is_an_error)
{
	struct linger now = { .l_onoff = 1 };
	struct desk d;
	struct kit_client c;
	char got[8];
	int left;
	connect_to(&d, &c);
	ck_assert_int_eq(setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
	close(c.fd);
	c.fd = -1;
	ck_assert(TEST_WAIT(5000, read_some(d.fd, got, sizeof(got), &left) == -1 && errno == ECONNRESET));
	ck_assert_int_eq(read_some(d.fd, got, sizeof(got), &left), -1); /* and stays one */
	ck_assert_int_eq(errno, ECONNRESET);
	ck_assert_int_eq(write_some(d.fd, "a", 1), -1);
	part(&d, &c);
}
END_TEST

START_TEST(socket__bytes_that_are_no_tls_are_an_error)
{
	struct desk d;
	struct kit_client c;
	char got[8];
	int left;
	connect_to(&d, &c);
	ck_assert_int_eq(send(c.fd, "\x17\x03\x03\x00\x20 this was not encrypted by us...", 37, MSG_NOSIGNAL), 37);
	ck_assert(TEST_WAIT(5000, read_some(d.fd, got, sizeof(got), &left) == -1 && errno != EAGAIN));
	ck_assert_int_eq(write_some(d.fd, "a", 1), -1);
	ck_assert_int_ne(errno, EAGAIN);
	ck_assert_int_le(SSL_read(c.ssl, got, sizeof(got)), 0); /* it is told why */
	part(&d, &c);
}
END_TEST

/* Keys are changed in the midst of it, and an answer to that has to find its way between records that wait. */
START_TEST(socket__new_keys_while_there_is_no_room)
{
	struct desk d;
	struct kit_client c;
	struct edges e;
	char got[16] = "";
	size_t sum;
	int left;
	connect_to(&d, &c);
	e = edges_of(d.fd);
	sum = stuff(d.fd);
	for (int i = 0; i < 3; i++) {
		new_keys(&c);
		read_exactly(d.fd, e, got, 5);
		ck_assert_str_eq(got, "after");
	}
	ck_assert_uint_eq(client_reads(&c, sum), sum);
	ck_assert_int_eq(write_some(d.fd, "and so on", 9), 9);
	ck_assert_int_eq(kit_client_read(&c, got, sizeof(got)), 9);
	ck_assert_int_eq(read_some(d.fd, got, sizeof(got), &left), -1);
	ck_assert_int_eq(errno, EAGAIN);
	close(e.epoll_fd);
	part(&d, &c);
}
END_TEST

/* Who asks for new keys again and again, and takes no answer. */
START_TEST(socket__answers_that_nobody_takes_have_a_bound)
{
	struct desk d;
	struct kit_client c;
	struct edges e;
	struct wire *cork;
	char got[16];
	ssize_t n = 5;
	int left;
	connect_to(&d, &c);
	e = edges_of(d.fd);
	fill_up(&d, &c, e, 200 * 1024, &cork);
	for (int i = 0; n == 5; i++) {
		ck_assert_int_lt(i, 10000);
		new_keys(&c);
		do
			n = read_some(d.fd, got, 5, &left);
		while (n < 0 && errno == EAGAIN);
	}
	ck_assert_int_eq(n, -1);
	ck_assert_int_eq(write_some(d.fd, "a", 1), -1);
	ck_assert_int_ne(errno, EAGAIN);
	wire_uncork(cork);
	close(e.epoll_fd);
	part(&d, &c);
}
END_TEST

/* gRPC comes again with the same bytes (K3). Should it not, nothing is sent that the client would take for them. */
START_TEST(socket__what_comes_again_has_to_be_the_same)
{
	static char bytes[9000];
	struct desk d;
	struct kit_client c;
	size_t sum = 0;
	connect_to(&d, &c);
	make_small(d.fd, SO_SNDBUF);
	for (fill(bytes, sizeof(bytes), 0); write_some(d.fd, bytes, sizeof(bytes)) > 0; fill(bytes, sizeof(bytes), sum))
		sum += sizeof(bytes);
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_uint_eq(client_reads(&c, sum), sum);
	ck_assert(TEST_WAIT(5000, write_some(d.fd, "other", 5) == -1 && errno == EPIPE)); /* once there is room for what is half sent */
	part(&d, &c);
}
END_TEST

/* What is not about the connection's bytes, or not about ours, is libc's affair. */
START_TEST(socket__errors_and_half_an_end_are_the_kernels)
{
	struct msghdr msg = { .msg_iov = NULL };
	struct desk d;
	struct kit_client c;
	char got[16] = "";
	int left;
	connect_to(&d, &c);
	kit_client_write(&c, "question");
	ck_assert(TEST_WAIT(5000, ({ char b; recv(d.fd, &b, 1, MSG_PEEK | MSG_DONTWAIT) == 1; })));
	ck_assert_int_eq(recvmsg(d.fd, &msg, MSG_ERRQUEUE), -1);
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_int_eq(read_some(d.fd, got, sizeof(got), &left), 8);
	ck_assert_str_eq(got, "question");
	ck_assert_int_eq(shutdown(d.fd, SHUT_RD), 0);
	ck_assert_int_eq(write_some(d.fd, "answer", 6), 6);
	ck_assert_int_eq(kit_client_read(&c, got, sizeof(got)), 6);
	part(&d, &c);
}
END_TEST

/* ---- who gets such a socket ---- */

/* What says in its handshake that it is for gRPC, but then speaks in an unlikely way, is read by the acceptor as ever. */
static const struct {
	const char *alpn, *first, *second;
	bool attached;
	size_t http2, http1;
} kinds[] = {
	{ "\x02h2", FIRST, NULL, true, 1, 0 },
	{ "\x02h2", "PRI * H", "TTP/2.0\r\n\r\nSM\r\n\r\n", false, 1, 0 },
	{ "\x02h2", "P", FIRST + 1, false, 1, 0 },
	{ "\x02h2", "GET / HTTP/1.1\r\n", NULL, false, 0, 1 },
	{ "\x08http/1.1", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", NULL, false, 0, 1 },
	{ NULL, FIRST, NULL, false, 1, 0 },
	{ NULL, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", NULL, false, 0, 1 },
};

START_TEST(acceptor__knows_who_may_have_the_socket)
{
	const struct kit_client_spec spec = { .ca = "ca", .cert = "alice", .host = "localhost", .alpn = kinds[_i].alpn };
	struct desk d;
	struct kit_client c;
	char want[128];
	snprintf(want, sizeof(want), "%s%s", kinds[_i].first, kinds[_i].second ? kinds[_i].second : "");
	desk_open_as_grpc(&d, usual);
	ck_assert(kit_client_open(&c, d.port, &spec));
	kit_client_write(&c, kinds[_i].first);
	if (kinds[_i].second)
		kit_client_write(&c, kinds[_i].second);
	ck_assert(TEST_WAIT(5000, count(&d, &d.http2) + count(&d, &d.http1) == 1));
	ck_assert_uint_eq(d.http2, kinds[_i].http2);
	ck_assert_uint_eq(d.http1, kinds[_i].http1);
	ck_assert_int_eq(wire_is_attached(d.fd), kinds[_i].attached);
	ck_assert_uint_eq(acceptor_tls_connections(d.acceptor), 1);
	if (!kinds[_i].attached)
		expect(d.fd, want);
	kit_client_close(&c);
	desk_close(&d);
}
END_TEST

/* Nobody gets the socket of a client that begins a record and does not end it. */
START_TEST(acceptor__half_a_record_decides_nothing)
{
	struct acceptor_limits limits = { .max_undecided = 100, .decide_ms = 300 };
	uint8_t record[256];
	struct desk d;
	struct kit_client c;
	BIO *net = BIO_new(BIO_s_mem()), *old;
	int len;
	desk_open_as_grpc(&d, limits);
	ck_assert(kit_client_open(&c, d.port, &h2));
	old = SSL_get_wbio(c.ssl);
	BIO_up_ref(old);
	SSL_set0_wbio(c.ssl, net);
	kit_client_write(&c, FIRST);
	len = BIO_read(net, record, sizeof(record));
	SSL_set0_wbio(c.ssl, old);
	ck_assert_int_gt(len, 40);
	ck_assert_int_eq(send(c.fd, record, (size_t)len - 1, MSG_NOSIGNAL), len - 1);
	if (_i) {
		ck_assert(test_closed_within(c.fd, 5000));
		ck_assert_uint_eq(count(&d, &d.http2) + count(&d, &d.http1), 0);
	} else {
		test_sleep_ms(20);
		ck_assert_uint_eq(count(&d, &d.http2) + count(&d, &d.http1), 0);
		ck_assert_int_eq(send(c.fd, record + len - 1, 1, MSG_NOSIGNAL), 1);
		ck_assert(TEST_WAIT(5000, count(&d, &d.http2) == 1));
		ck_assert(wire_is_attached(d.fd));
	}
	kit_client_close(&c);
	desk_close(&d);
}
END_TEST

static void add_tests(TCase *c)
{
	tcase_add_test(c, wire__grpc_comes_by);
	tcase_add_test(c, wire__other_descriptors_are_left_alone);
	tcase_add_loop_test(c, socket__says_when_nothing_is_left_and_an_edge_comes_then, 0, 2);
	tcase_add_test(c, socket__goes_along_to_another_number);
	tcase_add_loop_test(c, socket__much_goes_both_ways_unharmed, 0, 2);
	tcase_add_test(c, cork__many_writes_are_one_record);
	tcase_add_test(c, cork__what_found_no_room_goes_out_by_itself);
	tcase_add_loop_test(c, cork__closed_while_there_is_no_room, 0, 3);
	tcase_add_test(c, cork__goes_out_behind_what_waits);
	tcase_add_test(c, cork__holds_a_record_and_no_more);
	tcase_add_test(c, cork__touches_nothing_after_the_end);
	tcase_add_loop_test(c, socket__a_client_that_has_sent_all_may_still_read, 0, 2);
	tcase_add_test(c, socket__an_end_that_came_with_bytes_is_read);
	tcase_add_test(c, socket__a_reset_is_an_error);
	tcase_add_test(c, socket__bytes_that_are_no_tls_are_an_error);
	tcase_add_test(c, socket__new_keys_while_there_is_no_room);
	tcase_add_test(c, socket__answers_that_nobody_takes_have_a_bound);
	tcase_add_test(c, socket__what_comes_again_has_to_be_the_same);
	tcase_add_test(c, socket__errors_and_half_an_end_are_the_kernels);
	tcase_add_loop_test(c, acceptor__knows_who_may_have_the_socket, 0, sizeof(kinds) / sizeof(kinds[0]));
	tcase_add_loop_test(c, acceptor__half_a_record_decides_nothing, 0, 2);
}

int main(void)
{
	return desk_run("tls_socket", add_tests);
}
