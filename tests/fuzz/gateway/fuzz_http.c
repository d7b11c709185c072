/* fuzz_http.c: damaged HTTP, in pieces, from clients that leave when they like. fuzz_http [connections [seed]]
 *
 * Whatever comes: no crash, and once the clients have gone nothing of theirs is left at the node. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "base/rng.h"
#include "client.h"
#include "support/scale.h"

static const char *const requests[] = {
	"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{\"key\":\"Zm9v\"}",
	"POST /v3/watch HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n24\r\n{\"create_request\":{\"key\":\"Zmxvb2Q=\"}}\r\n0\r\n\r\n",
	"POST /v3/lock/lock HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\nGrpc-Timeout: 1S\r\n\r\n{\"name\":\"bGs=\"}",
	"POST /v3/lease/keepalive HTTP/1.0\r\nContent-Length: 24\r\n\r\n{\"ID\":1}{\"ID\":2}{\"ID\":3}",
	"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	"POST /v3/election/observe HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 15\r\n\r\n{\"name\":\"bGs=\"}",
	"OPTIONS * HTTP/1.1\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 2\r\n\r\n{}",
};

static void damage(struct rng *rng, struct buf *b)
{
	static const char *const pieces[] = { "\r\n", "\r\n\r\n", ":", " ", "Content-Length: 5\r\n", "Content-Length: -1\r\n", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n",
					      "ffffffffffffffff\r\n", "%", "?", "/../", "HTTP/9.9" };
	for (uint64_t n = rng_below(rng, 3); n; n--) {
		size_t at = rng_below(rng, b->len);
		const char *piece = pieces[rng_below(rng, sizeof(pieces) / sizeof(pieces[0]))];
		struct buf tail = buf_copy_of(slice_of(b->ptr + at, b->len - at));
		b->len = at;
		if (rng_below(rng, 2))
			buf_append_slice(b, slice_of_str(piece));
		else
			buf_append_byte(b, (uint8_t)rng_next(rng));
		buf_append(b, tail.ptr + 1, tail.len - 1);
		buf_free(&tail);
	}
}

static void live(struct setup *s, struct rng *rng)
{
	struct buf b = { .ptr = NULL };
	struct client c;
	char rest[4096];
	size_t at = 0;
	for (uint64_t n = rng_below(rng, 3) + 1; n; n--)
		buf_append_slice(&b, slice_of_str(requests[rng_below(rng, sizeof(requests) / sizeof(requests[0]))]));
	damage(rng, &b);
	client_open(&c, s);
	while (at < b.len) {
		size_t n = rng_below(rng, 4) ? b.len - at : rng_below(rng, b.len - at) + 1;
		if (send(c.fd, b.ptr + at, n, MSG_NOSIGNAL) < 0)
			break;
		at += n;
	}
	if (rng_below(rng, 4) == 0)
		shutdown(c.fd, SHUT_WR);
	for (uint64_t n = rng_below(rng, 3); n; n--) {
		if (recv(c.fd, rest, sizeof(rest), MSG_DONTWAIT) < 0)
			pause_ms(1);
	}
	client_close(&c);
	buf_free(&b);
}

int main(int argc, char **argv)
{
	uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : test_scaled(2000);
	struct fake_figures f;
	struct setup s;
	struct rng rng;
	rng_init(&rng, argc > 2 ? strtoull(argv[2], NULL, 10) : 1);
	signal(SIGPIPE, SIG_IGN);
	setup_start_with(&s, (struct gateway_config){ .max_request_bytes = 64 * 1024, .max_connections = 64, .max_header_bytes = 4096,
						      .request_timeout_ms = 1000, .idle_timeout_ms = 1000 });
	for (uint64_t i = 0; i < rounds; i++)
		live(&s, &rng);
	for (int i = 0; i < 400; i++) {
		f = fake_node_figures(s.node);
		if (!f.waiting && !f.streams)
			break;
		pause_ms(10);
	}
	ASSERT(f.waiting == 0);
	ASSERT(f.streams == 0);
	setup_end(&s);
	printf("%llu connections\n", (unsigned long long)rounds);
	return EXIT_SUCCESS;
}
