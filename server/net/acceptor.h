/* acceptor.h: listening sockets of our own, one thread for all.
 *
 * Each accepted connection is peeked at (never read) until its first bytes decide: the HTTP/2 preface goes to the http2 sink, anything else to the http1
 * sink. A connection that does not decide within ACCEPTOR_DECIDE_MS, or hangs up before, is closed. When descriptors run out, accepting pauses
 * and resumes by itself; ACCEPTOR_RESERVE descriptors are never given to clients. */
#ifndef HOLDFAST_NET_ACCEPTOR_H
#define HOLDFAST_NET_ACCEPTOR_H

#include <stddef.h>
#include <stdint.h>

#include "errors.h"

#define ACCEPTOR_DECIDE_MS 10000

struct acceptor;

struct acceptor_sinks {
	void *ctx;
	/* The receiver owns fd (non-blocking, close-on-exec, TCP_NODELAY and TCP_USER_TIMEOUT set). address: "127.0.0.1:4242" or "[::1]:4242", borrowed. On the
	 * acceptor's thread. NULL: such connections are closed. */
	void (*http2)(void *ctx, int fd, const char *address);
	void (*http1)(void *ctx, int fd, const char *address);
};

struct acceptor_limits {
	size_t max_undecided; /* connections that have not decided; above it the oldest is closed */
};

struct acceptor *acceptor_new(const struct acceptor_sinks *sinks, const struct acceptor_limits *limits);
/* Before start. "http://host:port". ERR_IO with em: what and why (address in use ...). SO_REUSEADDR. */
enum err acceptor_listen(struct acceptor *a, const char *url, struct errmsg *em);
void acceptor_start(struct acceptor *a);
void acceptor_stop(struct acceptor *a); /* closes listeners and undecided connections, joins the thread */
void acceptor_free(struct acceptor *a); /* NULL is fine */

#endif
