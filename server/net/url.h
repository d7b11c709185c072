/* url.h: the URLs that etcd's flags take. */
#ifndef HOLDFAST_NET_URL_H
#define HOLDFAST_NET_URL_H

#include <stdbool.h>
#include <stddef.h>

/* "http://HOST:PORT" (IPv6 in brackets; one slash may follow) taken apart; host and port as getaddrinfo takes them. False: not such a URL. */
bool url_split(const char *url, char *host, size_t host_cap, char *port, size_t port_cap);
/* As above, of an address to listen on: port 0, any free one, is allowed. */
bool url_split_listen(const char *url, char *host, size_t host_cap, char *port, size_t port_cap);

#endif
