/* address.c: descriptor → address, for connections that gRPC knows by their descriptor alone.
 *
 * gRPC closes the descriptor when it likes and does not tell. Were its number taken at once by another connection, a call of the old one that is still
 * on its way to us would read the new one's address. So numbers go round: each connection moves to the next free number above the last, and
 * one comes back only after thousands of other connections. Entries of closed connections stay until then: one a descriptor at the most. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "internal.h"

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
		free(a->at[i]);
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
	a->next = moved + 1;
	close(fd);
	return moved;
}

int addresses_add(struct addresses *a, int fd, const char *address)
{
	size_t size;
	char *copy;
	ASSERT(fd >= 0);
	size = strlen(address) + 1;
	copy = mem_alloc(size);
	memcpy(copy, address, size);
	pthread_mutex_lock(&a->mu);
	fd = move_up(a, fd);
	if ((size_t)fd >= a->len) {
		size_t len = (size_t)fd * 2 + 64;
		a->at = mem_realloc(a->at, len * sizeof(*a->at));
		memset(a->at + a->len, 0, (len - a->len) * sizeof(*a->at));
		a->len = len;
	}
	free(a->at[fd]);
	a->at[fd] = copy;
	pthread_mutex_unlock(&a->mu);
	return fd;
}

size_t addresses_find(struct addresses *a, const char *peer, char ret[ADDRESS_MAX])
{
	size_t len = 0;
	unsigned long fd;
	if (strncmp(peer, "fd:", 3) != 0)
		return 0;
	fd = strtoul(peer + 3, NULL, 10);
	pthread_mutex_lock(&a->mu);
	if (fd < a->len && a->at[fd]) {
		len = strnlen(a->at[fd], ADDRESS_MAX - 1);
		memcpy(ret, a->at[fd], len);
	}
	pthread_mutex_unlock(&a->mu);
	ret[len] = '\0';
	return len;
}
