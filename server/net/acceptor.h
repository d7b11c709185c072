/* acceptor.h: listening sockets of our own, one thread for all.
 *
 * Each accepted connection is peeked at (never read) until its first bytes decide: the HTTP/2 preface goes to the http2 sink, anything else to the http1
 * sink. Where TLS is spoken, the handshake comes before, and the sink gets a socket that carries plain bytes (see tls_pump.h), or one that gRPC takes for
 * such (see tls_socket.h). A connection that does not
 * decide within ACCEPTOR_DECIDE_MS, handshake and all, or hangs up before, is closed. When descriptors run out, accepting pauses and resumes by itself;
 * ACCEPTOR_RESERVE descriptors are never given to clients. */
#ifndef HOLDFAST_NET_ACCEPTOR_H
#define HOLDFAST_NET_ACCEPTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errors.h"
#include "identity.h"
#include "tls.h"

#define ACCEPTOR_DECIDE_MS 10000
#define ACCEPTOR_RESERVE 128 /* kept for the disk, for peers and for what the libraries open */

struct acceptor;

struct acceptor_sinks {
	void *ctx;
	/* The receiver owns fd (non-blocking, close-on-exec, TCP_NODELAY and TCP_USER_TIMEOUT set) and a reference to who is at its other end. On the acceptor's
	 * thread. NULL: such connections are closed. */
	void (*http2)(void *ctx, int fd, struct identity *who);
	void (*http1)(void *ctx, int fd, struct identity *who);
	bool http2_is_grpc; /* http2 gives the descriptor to gRPC and does nothing else with it, but for wire_move() */
};

struct acceptor_limits {
	size_t max_undecided; /* connections that have not decided; above it the oldest is closed */
	size_t tls_threads;   /* that carry bytes of TLS connections; 0: 1 */
	uint32_t tls_flush_ms; /* see tls_pump_new() */
	uint32_t decide_ms;   /* 0: ACCEPTOR_DECIDE_MS */
	uint32_t reserve;     /* descriptors not given to these connections; 0: ACCEPTOR_RESERVE. Never more than half of what the process may have */
};

struct acceptor *acceptor_new(const struct acceptor_sinks *sinks, const struct acceptor_limits *limits);
/* Before start. "http://host:port", the host a name or an address (a name: all of its addresses), or "unix://path". ERR_IO with em: what and why (address
 * in use ...). SO_REUSEADDR; a socket's file that nobody answers at any more is replaced. */
enum err acceptor_listen(struct acceptor *a, const char *url, struct errmsg *em);
/* The same, with sinks of its own (NULL: the acceptor's), and TLS when the URL is https:// (tls must be there then; it is borrowed until acceptor_free). */
enum err acceptor_listen_tls(struct acceptor *a, const char *url, const struct acceptor_sinks *sinks, struct tls_context *tls, struct errmsg *em);
size_t acceptor_tls_connections(const struct acceptor *a); /* open, their handshake over */
/* The port of the i-th listening socket, for tests that listen on port 0; 0: there is none. */
uint16_t acceptor_port(const struct acceptor *a, size_t i);
void acceptor_start(struct acceptor *a);
void acceptor_stop(struct acceptor *a); /* closes listeners and undecided connections, joins the thread; TLS connections go on */
void acceptor_free(struct acceptor *a); /* stops it first, and ends TLS connections; NULL is fine */

#endif
