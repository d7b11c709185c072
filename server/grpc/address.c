/* address.c: descriptor → identity, for connections that gRPC knows by their descriptor alone.
 *
 * gRPC closes the descriptor when it likes and does not tell. Were its number taken at once by another connection, a call of the old one that is still
 * on its way to us would be taken for the new one's. So numbers go round: each connection moves to the next free number above the last, and
 * one comes back only after thousands of other connections. Entries of closed connections stay until then: one a descriptor at the most. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "internal.h"
#include "wire/wire.h"

enum { FIRST_DESCRIPTOR = 64 };

void addresses_init(struct addresses *a)
{
	memset(a, 0, sizeof(*a));
	pthread_mutex_init(&a->mu, NULL);
	a->next = FIRST_DESCRIPTOR;
}

void addresses_deinit(struct addresses *a)
{
	for (size_t i = 0; i < a->len; i++)
		identity_unref(a->at[i]);
	free(a->at);
	pthread_mutex_destroy(&a->mu);
}

static int move_up(struct addresses *a, int fd)
{
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, a->next);
	if (moved < 0)
		moved = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR); /* the end: round again */
	if (moved < 0) {
		a->next = FIRST_DESCRIPTOR;
		return fd;
	}
	if (!wire_move(fd, moved)) {
		close(moved);
		return fd;
	}
	a->next = moved + 1;
	close(fd);
	return moved;
}

int addresses_add(struct addresses *a, int fd, struct identity *who)
{
	ASSERT(fd >= 0);
	pthread_mutex_lock(&a->mu);
	fd = move_up(a, fd);
	if ((size_t)fd >= a->len) {
		size_t len = (size_t)fd * 2 + 64;
		a->at = mem_realloc(a->at, len * sizeof(*a->at));
		memset(a->at + a->len, 0, (len - a->len) * sizeof(*a->at));
		a->len = len;
	}
	identity_unref(a->at[fd]);
	a->at[fd] = who;
	pthread_mutex_unlock(&a->mu);
	return fd;
}

struct identity *addresses_find(struct addresses *a, const char *peer, int *ret_fd)
{
	struct identity *who = NULL;
	unsigned long fd;
	*ret_fd = -1;
	if (strncmp(peer, "fd:", 3) != 0)
		return NULL;
	fd = strtoul(peer + 3, NULL, 10);
	pthread_mutex_lock(&a->mu);
	if (fd < a->len && a->at[fd]) {
		who = identity_ref(a->at[fd]);
		if (!who->tls || wire_is_attached((int)fd)) /* otherwise it is not the socket that leads to the client */
			*ret_fd = (int)fd;
	}
	pthread_mutex_unlock(&a->mu);
	return who;
}
