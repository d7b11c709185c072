/* url.h: the URLs that etcd's flags take. */
#ifndef HOLDFAST_NET_URL_H
#define HOLDFAST_NET_URL_H

#include <stdbool.h>
#include <stddef.h>

enum url_scheme { URL_HTTP, URL_HTTPS, URL_UNIX, URL_UNIXS };

/* "SCHEME://HOST:PORT" with http or https (IPv6 in brackets, with a scope as in [fe80::1%eth0] or [fe80::1%25eth0]; one slash may follow), or
 * "SCHEME://PATH" with unix or unixs, where PATH is a file's, absolute (unix:///run/h.sock) or, as etcd has it, relative (unix://localhost:2379). */
struct url {
	enum url_scheme scheme;
	char host[256]; /* as getaddrinfo takes it: no brackets, the scope behind '%' */
	char port[8];
	char path[108]; /* of a socket; "" for http and https */
};

bool url_parse(const char *text, struct url *ret); /* port 0 is taken. False: not such a URL */
static inline bool url_is_tls(const struct url *u)
{
	return u->scheme == URL_HTTPS || u->scheme == URL_UNIXS;
}
static inline bool url_is_unix(const struct url *u)
{
	return u->scheme == URL_UNIX || u->scheme == URL_UNIXS;
}
bool url_is_dialable(const struct url *u); /* has a port other than 0, or a path */

#endif
