/* steps.c: see steps.h. Names of the C library that this program defines itself, LMDB's calls of them too. */
#undef _FILE_OFFSET_BITS /* both names of each, as they are */
#include "steps.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/mem.h"

#define UNSYNCED_MAX 64

static bool counting;
static bool syncing;
static unsigned left;
static int status = STEPS_CRASHED;
static ino_t unsynced[UNSYNCED_MAX];
static size_t unsynced_len;

void steps_begin(unsigned n)
{
	counting = true;
	left = n;
	unsynced_len = 0;
}

void steps_sync(void)
{
	syncing = true;
}

void steps_end_with(int what)
{
	status = what;
}

static void step(void)
{
	if (counting && left > 0 && --left == 0)
		_exit(status);
}

static bool is_unsynced(ino_t ino)
{
	for (size_t i = 0; i < unsynced_len; i++)
		if (unsynced[i] == ino)
			return true;
	return false;
}

static void note_write(int fd)
{
	struct stat sb;
	int flags = fcntl(fd, F_GETFL);

	if (!counting || flags < 0 || (flags & O_DSYNC) || fstat(fd, &sb) || is_unsynced(sb.st_ino))
		return;
	ASSERT(unsynced_len < UNSYNCED_MAX);
	unsynced[unsynced_len++] = sb.st_ino;
}

static void forget(ino_t ino)
{
	for (size_t i = 0; i < unsynced_len; i++)
		if (unsynced[i] == ino)
			unsynced[i--] = unsynced[--unsynced_len];
}

static void note_sync(int fd)
{
	struct stat sb;

	if (fstat(fd, &sb) == 0)
		forget(sb.st_ino);
}

static void note_name(const char *path)
{
	struct stat sb;

	if (counting && stat(path, &sb) == 0 && is_unsynced(sb.st_ino))
		_exit(STEPS_UNSYNCED);
}

/* The next definition, which is the C library's, or a sanitizer's in front of it. */
#define REAL(name) ((__typeof__(&name))next_of(#name))

static void *next_of(const char *name)
{
	void *fn = dlsym(RTLD_NEXT, name);

	ASSERT(fn != NULL);
	return fn;
}

int mkdir(const char *path, mode_t mode)
{
	step();
	return REAL(mkdir)(path, mode);
}

int rmdir(const char *path)
{
	step();
	return REAL(rmdir)(path);
}

int unlinkat(int dir, const char *path, int flags)
{
	struct stat sb;

	step();
	if (counting && fstatat(dir, path, &sb, AT_SYMLINK_NOFOLLOW) == 0 && sb.st_nlink == 1)
		forget(sb.st_ino); /* the number may come back */
	return REAL(unlinkat)(dir, path, flags);
}

int rename(const char *from, const char *to)
{
	step();
	note_name(from);
	return REAL(rename)(from, to);
}

int link(const char *from, const char *to)
{
	step();
	note_name(from);
	return REAL(link)(from, to);
}

int fsync(int fd)
{
	step();
	note_sync(fd);
	return counting && !syncing ? 0 : REAL(fsync)(fd);
}

int fdatasync(int fd)
{
	step();
	note_sync(fd);
	return counting && !syncing ? 0 : REAL(fdatasync)(fd);
}

int ftruncate(int fd, off_t len)
{
	step();
	note_write(fd);
	return REAL(ftruncate)(fd, len);
}

ssize_t pwrite(int fd, const void *ptr, size_t len, off_t at)
{
	step();
	note_write(fd);
	return REAL(pwrite)(fd, ptr, len, at);
}

ssize_t write(int fd, const void *ptr, size_t len)
{
	step();
	note_write(fd);
	return REAL(write)(fd, ptr, len);
}

ssize_t writev(int fd, const struct iovec *iov, int n)
{
	step();
	note_write(fd);
	return REAL(writev)(fd, iov, n);
}

int ftruncate64(int fd, off64_t len)
{
	return ftruncate(fd, len);
}

ssize_t pwrite64(int fd, const void *ptr, size_t len, off64_t at)
{
	return pwrite(fd, ptr, len, at);
}
