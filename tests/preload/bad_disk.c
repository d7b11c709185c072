/* bad_disk.c: a library to be preloaded, with which a process's disk fails on demand.
 *
 * BAD_DISK names a file of four bytes that the test changes while the process runs; each is what happens from then on:
 *   0: writes        '-' as they are   'e' EIO   'f' ENOSPC
 *   1: syncs         '-' as they are   'e' EIO   'l' a lie: done at once, without syncing   's' stands still until that is over
 * O_DSYNC is stripped when a file is opened under 'l'. BAD_DISK_UNDER: only that folder and what is in it. BAD_DISK_MAP: no LMDB map is
 * larger than so many bytes. */
#undef _FILE_OFFSET_BITS /* both names of each call are defined here */
#include "control.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

enum { WRITES = 0, SYNCS = 1, CONTROL_BYTES = 4 };

static char mode(int which)
{
	const volatile char *control = control_of("BAD_DISK", CONTROL_BYTES);

	return control ? control[which] : '-';
}

static bool concerns_path(const char *path)
{
	const char *under = getenv("BAD_DISK_UNDER");
	size_t len = under ? strlen(under) : 0;

	return !under || (strncmp(path, under, len) == 0 && (path[len] == 0 || path[len] == '/'));
}

static bool concerns(int fd)
{
	char link[64], path[4096];
	ssize_t n;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof path - 1);
	if (n <= 0)
		return false;
	path[n] = 0;
	return path[0] == '/' && concerns_path(path);
}

/* 0: go on; else the call fails with errno set. */
static int before_write(int fd)
{
	char m = mode(WRITES);

	if ((m != 'e' && m != 'f') || !concerns(fd))
		return 0;
	errno = m == 'e' ? EIO : ENOSPC;
	return -1;
}

/* 0: go on; 1: done; -1: failed. */
static int before_sync(int fd)
{
	char m = mode(SYNCS);

	if (m == '-' || !concerns(fd))
		return 0;
	while (mode(SYNCS) == 's')
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	m = mode(SYNCS);
	errno = EIO;
	return m == 'e' ? -1 : m == 'l' ? 1 : 0;
}

#define WRITE_CALL(name, params, args)                                                  \
	ssize_t name params;                                                            \
	ssize_t name params                                                             \
	{                                                                               \
		static ssize_t(*real) params;                                           \
		if (!real)                                                              \
			real = (ssize_t(*) params)(uintptr_t)next(#name);               \
		return before_write(fd) ? -1 : real args;                               \
	}

WRITE_CALL(write, (int fd, const void *b, size_t n), (fd, b, n))
WRITE_CALL(pwrite, (int fd, const void *b, size_t n, off_t at), (fd, b, n, at))
WRITE_CALL(pwrite64, (int fd, const void *b, size_t n, off_t at), (fd, b, n, at))
WRITE_CALL(writev, (int fd, const struct iovec *v, int n), (fd, v, n))
WRITE_CALL(pwritev, (int fd, const struct iovec *v, int n, off_t at), (fd, v, n, at))
WRITE_CALL(pwritev64, (int fd, const struct iovec *v, int n, off_t at), (fd, v, n, at))

#define SYNC_CALL(name)                                                                 \
	int name(int fd);                                                               \
	int name(int fd)                                                                \
	{                                                                               \
		static int (*real)(int);                                                \
		int before = before_sync(fd);                                           \
		if (!real)                                                              \
			real = (int (*)(int))(uintptr_t)next(#name);                    \
		return before ? (before < 0 ? -1 : 0) : real(fd);                       \
	}

SYNC_CALL(fsync)
SYNC_CALL(fdatasync)

int msync(void *at, size_t len, int flags)
{
	static int (*real)(void *, size_t, int);

	if (!real)
		real = (int (*)(void *, size_t, int))(uintptr_t)next("msync");
	if (mode(SYNCS) == 'l')
		return 0;
	return real(at, len, flags);
}

#define ALLOCATE_CALL(name)                                                             \
	int name(int fd, off_t at, off_t len)                                           \
	{                                                                               \
		static int (*real)(int, off_t, off_t);                                  \
		if (!real)                                                              \
			real = (int (*)(int, off_t, off_t))(uintptr_t)next(#name);      \
		return before_write(fd) ? errno : real(fd, at, len);                    \
	}

ALLOCATE_CALL(posix_fallocate)
ALLOCATE_CALL(posix_fallocate64)

static int stripped(const char *path, int flags)
{
	return mode(SYNCS) == 'l' && concerns_path(path) ? flags & ~(O_DSYNC | O_SYNC) : flags;
}

#define OPEN_CALL(name)                                                                 \
	int name(const char *path, int flags, ...)                                      \
	{                                                                               \
		static int (*real)(const char *, int, ...);                             \
		va_list ap;                                                             \
		mode_t m;                                                               \
		va_start(ap, flags);                                                    \
		m = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;             \
		va_end(ap);                                                             \
		if (!real)                                                              \
			real = (int (*)(const char *, int, ...))(uintptr_t)next(#name); \
		return real(path, stripped(path, flags), m);                           \
	}

OPEN_CALL(open)
OPEN_CALL(open64)

struct MDB_env;
int mdb_env_set_mapsize(struct MDB_env *env, size_t bytes);
int mdb_env_set_mapsize(struct MDB_env *env, size_t bytes)
{
	static int (*real)(struct MDB_env *, size_t);
	const char *most = getenv("BAD_DISK_MAP");
	size_t limit = most ? strtoull(most, NULL, 10) : 0;

	if (!real)
		real = (int (*)(struct MDB_env *, size_t))(uintptr_t)next("mdb_env_set_mapsize");
	return real(env, limit && bytes > limit ? limit : bytes);
}
