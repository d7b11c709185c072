/* tls_dial.h: connections to others under TLS, for a library that is handed a plain socket.
 *
 * The socket is there at once: what is written to it waits until the connection is made, its handshake is over and the other end's certificate is found in
 * order. When that fails, or takes too long, the socket is closed from the other side. */
#ifndef HOLDFAST_NET_TLS_DIAL_H
#define HOLDFAST_NET_TLS_DIAL_H

#include "tls.h"

#define TLS_DIALS_MAX 64 /* under way at once */

struct tls_dialer;

struct tls_dialer *tls_dialer_new(struct tls_context *t, uint32_t timeout_ms); /* a reference of its own; the time for connection and handshake */
/* host: a name or an address to connect to, or with port "" the path of a socket; name: what the certificate must be for. Negative: no descriptors, or too many
 * dials. Any thread. */
int tls_dialer_dial(struct tls_dialer *d, const char *host, const char *port, const char *name);
/* Closes what is open, gives up what is under way; what the resolver does not come back from is left behind. NULL is fine. */
void tls_dialer_free(struct tls_dialer *d);

#endif
