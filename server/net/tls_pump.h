/* tls_pump.h: connections whose handshake is over: bytes in and out of TLS, with a plain socket for those who serve them.
 *
 * A front end gets one end of a socket pair and knows nothing of TLS. Each direction holds 16 KB at the most: who does not read stops the other's reading, as
 * on one socket. When the client has sent all, the pair says so; when the front end closes, what it sent last still goes out, as long as the client goes on taking
 * it, then TLS and the connection are closed in good order; when the connection breaks, the pair is closed. */
#ifndef HOLDFAST_NET_TLS_PUMP_H
#define HOLDFAST_NET_TLS_PUMP_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tls_pump;

#define TLS_PUMP_FLUSH_MS 30000
/* Starts the threads. flush_ms: a client that takes nothing for so long of what a front end that has closed left for it is let go; 0: TLS_PUMP_FLUSH_MS. */
struct tls_pump *tls_pump_new(size_t threads, const char *name, uint32_t flush_ms);
/* Two ends, non-blocking and close-on-exec. False: no descriptors. */
bool tls_pump_pair(int ret_fds[2]);
/* Takes ssl, the socket that it speaks over, and an end of a pair. Any thread. */
void tls_pump_take(struct tls_pump *p, SSL *ssl, int net_fd, int pair_fd);
size_t tls_pump_connections(struct tls_pump *p);
/* Nothing may be added any more. What has been closed by its front end gets a moment to go out; the rest is closed. NULL is fine. */
void tls_pump_free(struct tls_pump *p);

#endif
