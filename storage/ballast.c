/* ballast.c: space kept back. LMDB copies pages even to delete, so on a full disk nothing can be put in order any more,
 * not even by dropping the log's old entries. Then the ballast goes, and makes room for what frees more.
 *
 * It must not itself be what fills the disk: it leaves at least as much free as it takes. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BALLAST_LEAST (UINT64_C(1) << 20)

/* Blocks, not length: a file that a crash left with a hole keeps nothing back. */
static uint64_t held(const char *path)
{
	struct stat sb;
	return stat(path, &sb) ? 0 : (uint64_t)sb.st_blocks * 512;
}

static int allocate(const char *path, uint64_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno;
	int rc = posix_fallocate(fd, 0, (off_t)bytes);
	if (!rc && (ftruncate(fd, (off_t)bytes) || fsync(fd)))
		rc = errno;
	close(fd);
	return rc;
}

/* `have` bytes are there already. */
static int grow(struct storage *st, const char *path, uint64_t have, uint64_t bytes)
{
	uint64_t more = bytes > have ? bytes - have : 0;
	if (more && disk_free(st->dir) < more + bytes)
		return ENOSPC;
	return allocate(path, bytes);
}

void ballast_open(struct storage *st)
{
	char *path = path_join(st->dir, BALLAST_FILE);
	uint64_t have = held(path), want = st->ballast_want;
	int rc = ENOSPC;
	if (want == 0)
		(void)unlink(path);
	for (uint64_t try = want; rc && try >= BALLAST_LEAST && try > have; try /= 2)
		rc = grow(st, path, have, try);
	if (want && have > want)
		(void)allocate(path, want);
	st->ballast_have = held(path);
	free(path);
}

bool ballast_drop(struct storage *st)
{
	struct errmsg ignored;
	char *path = path_join(st->dir, BALLAST_FILE);
	bool had = held(path) > 0 && unlink(path) == 0;
	free(path);
	/* Some file systems give blocks free only once their journal says so. */
	if (had)
		(void)dir_sync(st->dir, &ignored);
	st->ballast_have = 0;
	return had;
}

enum err storage_release_ballast(struct storage *st, struct errmsg *em)
{
	pthread_mutex_lock(&st->ballast_mu);
	bool had = ballast_drop(st);
	pthread_mutex_unlock(&st->ballast_mu);
	if (had)
		return ERR_OK;
	errmsg_set(em, "there is no ballast in '%s' to release", st->dir);
	return ERR_NOT_FOUND;
}

static enum err restore(struct storage *st, struct errmsg *em)
{
	char *path = path_join(st->dir, BALLAST_FILE);
	uint64_t have = held(path);
	int rc = have < st->ballast_want ? grow(st, path, have, st->ballast_want) : 0;
	if (rc && have == 0)
		(void)unlink(path); /* part of one would take what others need */
	st->ballast_have = held(path);
	free(path);
	return rc ? disk_err(st->dir, rc, "make the ballast", em) : ERR_OK;
}

enum err storage_restore_ballast(struct storage *st, struct errmsg *em)
{
	pthread_mutex_lock(&st->ballast_mu);
	enum err e = restore(st, em);
	pthread_mutex_unlock(&st->ballast_mu);
	return e;
}

/* ---- how much there is ---- */

static enum err log_pages(struct storage *st, struct storage_space *s, struct errmsg *em)
{
	MDB_txn *txn;
	MDB_stat table;
	MDB_envinfo info;
	enum err e = env_begin(&st->log, false, &txn, em);
	if (e)
		return e;
	int rc = mdb_stat(txn, st->log.table, &table);
	mdb_txn_abort(txn);
	if (rc)
		return env_err(&st->log, rc, "measure the log", em);
	mdb_env_info(st->log.mdb, &info);
	s->log_bytes = (uint64_t)table.ms_psize *
		       (table.ms_branch_pages + table.ms_leaf_pages + table.ms_overflow_pages);
	s->log_file_bytes = (uint64_t)table.ms_psize * (info.me_last_pgno + 1);
	s->map_bytes = info.me_mapsize;
	return ERR_OK;
}

enum err storage_space(struct storage *st, struct storage_space *ret, struct errmsg *em)
{
	struct storage_space s = { .free_bytes = disk_free(st->dir) };
	enum err e = log_pages(st, &s, em);
	if (e)
		return e;
	pthread_mutex_lock(&st->ballast_mu);
	s.ballast_bytes = st->ballast_have;
	pthread_mutex_unlock(&st->ballast_mu);
	*ret = s;
	return ERR_OK;
}
