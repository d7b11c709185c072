/* url.c: see url.h. */
#include "url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *after_scheme(const char *text, enum url_scheme *ret)
{
	static const char *const names[] = { [URL_HTTP] = "http://", [URL_HTTPS] = "https://", [URL_UNIX] = "unix://", [URL_UNIXS] = "unixs://" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t len = strlen(names[i]);
		if (strncmp(text, names[i], len) == 0) {
			*ret = (enum url_scheme)i;
			return text + len;
		}
	}
	return NULL;
}

static bool take(char *to, size_t cap, const char *from, size_t len)
{
	if (len == 0 || len >= cap)
		return false;
	memcpy(to, from, len);
	to[len] = '\0';
	return true;
}

static bool take_port(struct url *u, const char *at, const char *end)
{
	size_t len = (size_t)(end - at);
	return strspn(at, "0123456789") == len && take(u->port, sizeof(u->port), at, len) && atol(u->port) < 65536;
}

/* "fe80::1", "fe80::1%eth0", and "fe80::1%25eth0", which is how RFC 6874 has a scope within a URL. */
static bool take_bracketed(struct url *u, const char *at, size_t len)
{
	char *scope;
	if (!take(u->host, sizeof(u->host), at, len))
		return false;
	scope = strchr(u->host, '%');
	if (scope && strncmp(scope, "%25", 3) == 0)
		memmove(scope + 1, scope + 3, strlen(scope + 3) + 1);
	return !scope || (scope != u->host && scope[1] != '\0');
}

static bool take_address(struct url *u, const char *at)
{
	const char *end = at + strcspn(at, "/"), *colon;
	if (end[0] == '/' && end[1] != '\0')
		return false;
	if (*at == '[') {
		const char *close = memchr(at, ']', (size_t)(end - at));
		return close && close + 1 < end && close[1] == ':' && take_bracketed(u, at + 1, (size_t)(close - at - 1)) && take_port(u, close + 2, end);
	}
	colon = memchr(at, ':', (size_t)(end - at));
	if (!colon || memchr(colon + 1, ':', (size_t)(end - colon - 1)))
		return false;
	return take(u->host, sizeof(u->host), at, (size_t)(colon - at)) && take_port(u, colon + 1, end);
}

bool url_parse(const char *text, struct url *ret)
{
	struct url u;
	const char *at;
	memset(&u, 0, sizeof(u));
	at = after_scheme(text, &u.scheme);
	if (!at || !(url_is_unix(&u) ? take(u.path, sizeof(u.path), at, strlen(at)) : take_address(&u, at)))
		return false;
	*ret = u;
	return true;
}

bool url_is_dialable(const struct url *u)
{
	return u->path[0] != '\0' || atol(u->port) > 0;
}
