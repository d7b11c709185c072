/* listen.h: the listening sockets of one URL. */
#ifndef HOLDFAST_NET_LISTEN_H
#define HOLDFAST_NET_LISTEN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "errors.h"

#define LISTEN_ADDRESSES_MAX 8
#define LISTEN_TEXT_MAX 64

/* Opens a non-blocking listening socket for each address of the URL's host, or at its path. ERR_IO with em, and none is open. */
enum err listen_on(const char *url, int fds[LISTEN_ADDRESSES_MAX], size_t *ret_len, struct errmsg *em);
void listen_close(int fd); /* takes the file of a socket that has one away */
uint16_t listen_port_of(int fd); /* of the socket's own end; 0 on failure */
/* "127.0.0.1:4242", "[::1]:4242" or "unix"; an IPv4 address that came in by an IPv6 socket is written as IPv4. */
void listen_address_text(const struct sockaddr_storage *sa, char text[LISTEN_TEXT_MAX]);

#endif
