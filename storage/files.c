/* files.c: directories and the disk under them.
 *
 * A name in a directory is as volatile as unsynced data: whoever makes, renames or removes one that matters calls
 * dir_sync() on the directory that holds it. */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"

/* LMDB reports a short write as EIO, and a full disk often shows as one. Below this much space we believe in the
 * full disk: were it a broken one after all, the next try would say so again once there is space. */
#define FULL_BELOW_BYTES (UINT64_C(1) << 20)

char *path_join(const char *dir, const char *name)
{
	struct buf b = { 0 };
	buf_printf(&b, "%s%s%s", dir, name ? "/" : "", name ? name : "");
	buf_append_byte(&b, '\0');
	return (char *)b.ptr;
}

enum err dir_make(const char *path, struct errmsg *em)
{
	/* 0700: a snapshot holds what only authenticated clients may read */
	if (mkdir(path, 0700) == 0)
		return ERR_OK;
	int cause = errno;
	struct stat sb;
	if (cause == EEXIST && stat(path, &sb) == 0 && S_ISDIR(sb.st_mode))
		return ERR_OK;
	if (cause == ENOSPC || cause == EDQUOT) {
		errmsg_set(em, "cannot make directory '%s': no space left, free some", path);
		return ERR_DISK_FULL;
	}
	errmsg_set(em, "cannot make directory '%s': %s", path, strerror(cause));
	return ERR_IO;
}

enum err dir_sync(const char *path, struct errmsg *em)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		errmsg_set(em, "cannot open directory '%s': %s", path, strerror(errno));
		return ERR_IO;
	}
	enum err e = fsync(fd) ? disk_err(path, errno, "sync directory", em) : ERR_OK;
	close(fd);
	return e;
}

enum err dir_remove(const char *path, struct errmsg *em)
{
	DIR *d = opendir(path);
	if (!d && errno == ENOENT)
		return ERR_OK;
	for (struct dirent *de; d && (de = readdir(d)) != NULL;)
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			(void)unlinkat(dirfd(d), de->d_name, 0); /* rmdir tells when one stays */
	if (d)
		closedir(d);
	if (rmdir(path) == 0)
		return ERR_OK;
	errmsg_set(em, "cannot remove directory '%s': %s", path, strerror(errno));
	return ERR_IO;
}

static void note_owner(int fd)
{
	char text[32];
	int len = snprintf(text, sizeof text, "%ld\n", (long)getpid());
	/* For a human who looks; the lock is what counts, so a full disk is fine here. */
	if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)len, 0) < 0)
		return;
}

enum err dir_lock(const char *dir, int *ret_fd, struct errmsg *em)
{
	char *path = path_join(dir, LOCK_FILE);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	enum err e = ERR_OK;
	if (fd < 0) {
		e = disk_err(dir, errno, "open the lock file", em);
	} else if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
		note_owner(fd);
		*ret_fd = fd;
		fd = -1;
	} else if (errno == EWOULDBLOCK) {
		char owner[16] = "";
		if (pread(fd, owner, sizeof owner - 1, 0) <= 0)
			owner[0] = '\0';
		owner[strcspn(owner, "\n")] = '\0';
		errmsg_set(em, "data directory '%s' is in use by process %s: stop it, or choose another directory", dir,
			   owner[0] ? owner : "(unknown)");
		e = ERR_BUSY;
	} else {
		e = disk_err(dir, errno, "lock", em);
	}
	if (fd >= 0)
		close(fd);
	free(path);
	return e;
}

uint64_t disk_free(const char *dir)
{
	struct statvfs sv;
	if (statvfs(dir, &sv))
		return UINT64_MAX;
	return (uint64_t)sv.f_bavail * (uint64_t)sv.f_frsize;
}

static enum err classify(const char *dir, int rc)
{
	switch (rc) {
	case MDB_MAP_FULL:
	case ENOSPC:
	case EDQUOT:
		return ERR_DISK_FULL;
	case EIO:
		return disk_free(dir) < FULL_BELOW_BYTES ? ERR_DISK_FULL : ERR_IO;
	case MDB_TXN_FULL:
	case ENOMEM:
		return ERR_NOMEM;
	case MDB_VERSION_MISMATCH:
		return ERR_WRONG_VERSION;
	case MDB_CORRUPTED:
	case MDB_PAGE_NOTFOUND:
	case MDB_PAGE_FULL:
	case MDB_CURSOR_FULL:
	case MDB_INVALID:
	case MDB_INCOMPATIBLE:
	case MDB_BAD_DBI:
		return ERR_CORRUPT;
	default:
		return ERR_IO;
	}
}

enum err disk_err(const char *dir, int rc, const char *what, struct errmsg *em)
{
	enum err e = classify(dir, rc);
	const char *advice = "";
	switch (e) {
	case ERR_DISK_FULL:
		advice = rc == MDB_MAP_FULL ? "; raise the limit of the log's size" : "; free some space";
		break;
	case ERR_CORRUPT:
		advice = "; it is damaged: remove this member from the cell, and add it again with an empty directory";
		break;
	case ERR_WRONG_VERSION:
		advice = "; it was written by another release: start that one";
		break;
	case ERR_IO:
		advice = "; check the disk, then start again";
		break;
	default:
		break;
	}
	errmsg_set(em, "cannot %s in '%s': %s%s", what, dir, mdb_strerror(rc), advice);
	return e;
}
