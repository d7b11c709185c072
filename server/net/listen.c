/* listen.c: see listen.h.
 *
 * A host that is a name may have several addresses: all are listened on, and the ones that this machine does not have (no IPv6, say) are left out as long
 * as one is there. "[::]" takes IPv4 too, as it does for etcd; "0.0.0.0" is IPv4 alone.
 *
 * A socket's file outlives a process that was killed. One that nobody answers at is taken away; one that somebody does is in use. */
#include "listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "url.h"

#define BACKLOG 4096 /* the system's net.core.somaxconn bounds it further */

static int open_one(const struct addrinfo *ai)
{
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int on = 1, off = 0, saved;
	if (fd < 0)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
	    (ai->ai_family != AF_INET6 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0) &&
	    bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

static bool not_of_this_machine(int error)
{
	return error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
}

/* Files of host names may hold an address twice. */
static bool came_before(const struct addrinfo *list, const struct addrinfo *ai)
{
	while (list != ai && (list->ai_addrlen != ai->ai_addrlen || memcmp(list->ai_addr, ai->ai_addr, ai->ai_addrlen) != 0))
		list = list->ai_next;
	return list != ai;
}

static enum err open_all(const struct addrinfo *list, const char *url, int fds[LISTEN_ADDRESSES_MAX], size_t *ret_len, struct errmsg *em)
{
	size_t len = 0;
	int error = EADDRNOTAVAIL;
	for (const struct addrinfo *ai = list; ai && len < LISTEN_ADDRESSES_MAX; ai = ai->ai_next) {
		int fd;
		if (came_before(list, ai))
			continue;
		fd = open_one(ai);
		if (fd >= 0) {
			fds[len++] = fd;
			continue;
		}
		error = errno;
		if (not_of_this_machine(error))
			continue;
		while (len)
			close(fds[--len]);
		break;
	}
	if (!len) {
		errmsg_set(em, "cannot listen on '%s': %s", url, strerror(error));
		return ERR_IO;
	}
	*ret_len = len;
	return ERR_OK;
}

/* Nobody listens at what a socket's file says. */
static bool is_stale(const struct sockaddr_un *sa)
{
	struct stat st;
	bool refused;
	int fd;
	if (lstat(sa->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode))
		return false;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	refused = connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) != 0 && errno == ECONNREFUSED;
	close(fd);
	return refused;
}

static int open_unix(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd, saved;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	if (is_stale(&sa))
		unlink(path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (bind(fd, (const struct sockaddr *)&sa, sizeof(sa)) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

static enum err listen_unix(const char *text, const struct url *u, int *ret_fd, struct errmsg *em)
{
	*ret_fd = open_unix(u->path);
	if (*ret_fd >= 0)
		return ERR_OK;
	errmsg_set(em, "cannot listen on '%s': %s", text, strerror(errno));
	return ERR_IO;
}

enum err listen_on(const char *url, int fds[LISTEN_ADDRESSES_MAX], size_t *ret_len, struct errmsg *em)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV }, *list;
	struct url u;
	enum err e;
	int error;
	if (!url_parse(url, &u)) {
		errmsg_set(em, "cannot listen on '%s': not of the form http://HOST:PORT, https://HOST:PORT or unix://PATH", url);
		return ERR_IO;
	}
	if (url_is_unix(&u)) {
		e = listen_unix(url, &u, fds, em);
		if (!e)
			*ret_len = 1;
		return e;
	}
	error = getaddrinfo(u.host, u.port, &hints, &list);
	if (error) {
		errmsg_set(em, "cannot listen on '%s': %s", url, error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
		return ERR_IO;
	}
	e = open_all(list, url, fds, ret_len, em);
	freeaddrinfo(list);
	return e;
}

void listen_close(int fd)
{
	struct sockaddr_un sa = { .sun_family = AF_UNSPEC };
	socklen_t len = sizeof(sa);
	if (getsockname(fd, (struct sockaddr *)&sa, &len) == 0 && sa.sun_family == AF_UNIX && sa.sun_path[0])
		unlink(sa.sun_path);
	close(fd);
}

uint16_t listen_port_of(int fd)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	if (getsockname(fd, (struct sockaddr *)&sa, &len) != 0)
		return 0;
	if (sa.ss_family == AF_INET)
		return ntohs(((struct sockaddr_in *)&sa)->sin_port);
	return sa.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&sa)->sin6_port) : 0;
}

void listen_address_text(const struct sockaddr_storage *sa, char text[LISTEN_TEXT_MAX])
{
	char host[INET6_ADDRSTRLEN] = "?";
	if (sa->ss_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)sa;
		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
		snprintf(text, LISTEN_TEXT_MAX, "%s:%u", host, ntohs(v4->sin_port));
		return;
	}
	if (sa->ss_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)sa;
		bool mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
		inet_ntop(mapped ? AF_INET : AF_INET6, mapped ? v6->sin6_addr.s6_addr + 12 : v6->sin6_addr.s6_addr, host, sizeof(host));
		snprintf(text, LISTEN_TEXT_MAX, mapped ? "%s:%u" : "[%s]:%u", host, ntohs(v6->sin6_port));
		return;
	}
	snprintf(text, LISTEN_TEXT_MAX, sa->ss_family == AF_UNIX ? "unix" : "?");
}
