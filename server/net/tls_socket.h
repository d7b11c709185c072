/* tls_socket.h: a connection whose handshake is over, made to look like a plain socket to gRPC (see wire.h). No thread, no second descriptor: TLS is done in
 * gRPC's own reads and writes. What gRPC closes is told goodbye and freed. */
#ifndef HOLDFAST_NET_TLS_SOCKET_H
#define HOLDFAST_NET_TLS_SOCKET_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>

/* What they share. Those that are open hold a reference. */
struct tls_sockets;

struct tls_sockets *tls_sockets_new(void);
void tls_sockets_free(struct tls_sockets *s); /* those that are open stay so; no more are attached. NULL is fine */
size_t tls_sockets_open(struct tls_sockets *s);

/* Takes ssl, whose socket is fd, unless it answers false: bytes have been read ahead, of which gRPC would not hear, or the number is too high. From true on
 * fd may be given to gRPC, and to nobody else. wire_works() has said yes. */
bool tls_socket_attach(struct tls_sockets *s, SSL *ssl, int fd);

#endif
