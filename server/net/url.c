/* url.c: see url.h. */
#include "url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool split(const char *url, char *host, size_t host_cap, char *port, size_t port_cap)
{
	const char *at = url, *end;
	size_t host_len;
	if (strncmp(url, "http://", 7) != 0)
		return false;
	at += 7;
	end = at + strcspn(at, "/");
	if (end[0] == '/' && end[1] != '\0')
		return false;
	if (*at == '[') {
		const char *close = memchr(at, ']', (size_t)(end - at));
		if (!close || close + 1 >= end || close[1] != ':')
			return false;
		host_len = (size_t)(close - at - 1);
		snprintf(host, host_cap, "%.*s", (int)host_len, at + 1);
		at = close + 2;
	} else {
		const char *colon = memchr(at, ':', (size_t)(end - at));
		if (!colon || memchr(colon + 1, ':', (size_t)(end - colon - 1)))
			return false;
		host_len = (size_t)(colon - at);
		snprintf(host, host_cap, "%.*s", (int)host_len, at);
		at = colon + 1;
	}
	if (host_len == 0 || host_len >= host_cap || at == end || (size_t)(end - at) >= port_cap || strspn(at, "0123456789") != (size_t)(end - at))
		return false;
	snprintf(port, port_cap, "%.*s", (int)(end - at), at);
	return atol(port) < 65536;
}

bool url_split(const char *url, char *host, size_t host_cap, char *port, size_t port_cap)
{
	return split(url, host, host_cap, port, port_cap) && atol(port) > 0;
}

bool url_split_listen(const char *url, char *host, size_t host_cap, char *port, size_t port_cap)
{
	return split(url, host, host_cap, port, port_cap);
}
