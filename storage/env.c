/* env.c: one LMDB environment, as the log and every snapshot use it.
 *
 * Small named records lie in the unnamed database, so that a commit need not write a page of yet another tree for them;
 * numbered values (entries, chunks) in the database "table", keyed by native integers, which LMDB compares fastest and
 * appends to without searching.
 *
 * A damaged environment must end in ERR_CORRUPT, not in a signal: the file is made as long as its meta page claims
 * before anything is read through the map (a page that is missing then reads as zeros, which are no page and no CRC). */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"

#define RECORD_FORMAT "format"
#define LOCK_BYTES (16 << 10) /* room for some 250 readers at a time */

enum err env_err(const struct env *ev, int rc, const char *what, struct errmsg *em)
{
	return rc ? disk_err(ev->path, rc, what, em) : ERR_OK;
}

enum err env_corrupt(const struct env *ev, const char *what, struct errmsg *em)
{
	errmsg_set(em, "%s; remove this member from the cell, and add it again with an empty data directory: '%s' is damaged",
		   what, ev->path);
	return ERR_CORRUPT;
}

enum err env_begin(const struct env *ev, bool write, MDB_txn **ret, struct errmsg *em)
{
	return env_err(ev, mdb_txn_begin(ev->mdb, NULL, write ? 0 : MDB_RDONLY, ret), "begin a transaction", em);
}

MDB_val key_of(const uint64_t *number)
{
	return (MDB_val){ .mv_size = sizeof *number, .mv_data = (void *)(uintptr_t)number };
}

bool key_get(MDB_val key, uint64_t *ret)
{
	if (key.mv_size != sizeof *ret)
		return false;
	memcpy(ret, key.mv_data, sizeof *ret);
	return true;
}

/* ---- records ---- */

static uint32_t record_crc(const char *name, struct slice body)
{
	return crc32c(crc32c(0, name, strlen(name)), body.ptr, body.len);
}

enum err record_put(const struct env *ev, MDB_txn *txn, const char *name, struct slice body, struct errmsg *em)
{
	MDB_val key = { .mv_size = strlen(name), .mv_data = (void *)(uintptr_t)name };
	MDB_val value = { .mv_size = 4 + body.len };
	int rc = mdb_put(txn, ev->records, &key, &value, MDB_RESERVE);
	if (rc)
		return env_err(ev, rc, "write a record", em);
	uint8_t *p = value.mv_data;
	put_u32(p, record_crc(name, body));
	if (body.len)
		memcpy(p + 4, body.ptr, body.len);
	return ERR_OK;
}

enum err record_get(const struct env *ev, MDB_txn *txn, const char *name, struct slice *ret, struct errmsg *em)
{
	MDB_val key = { .mv_size = strlen(name), .mv_data = (void *)(uintptr_t)name };
	MDB_val value;
	int rc = mdb_get(txn, ev->records, &key, &value);
	if (rc == MDB_NOTFOUND)
		return ERR_NOT_FOUND;
	if (rc)
		return env_err(ev, rc, "read a record", em);
	const uint8_t *p = value.mv_data;
	struct slice body = slice_of(p + 4, value.mv_size - 4);
	if (value.mv_size < 4 || get_u32(p) != record_crc(name, body))
		return env_corrupt(ev, "a record does not match its checksum", em);
	*ret = body;
	return ERR_OK;
}

/* ---- opening ---- */

/* The version is the first field of a record that every release can read. */
static enum err format_check(const struct env *ev, MDB_txn *txn, struct errmsg *em)
{
	struct slice body;
	enum err e = record_get(ev, txn, RECORD_FORMAT, &body, em);
	if (e == ERR_NOT_FOUND)
		return env_corrupt(ev, "it has no format version", em);
	if (e)
		return e;
	struct decoder d = { .rest = body };
	uint64_t version = dec_u64(&d);
	if (!dec_done(&d) && version <= FORMAT_VERSION)
		return env_corrupt(ev, "its format version cannot be read", em);
	if (version > FORMAT_VERSION) {
		errmsg_set(em, "'%s' has format version %llu, this release reads up to %u: start the newer release again",
			   ev->path, (unsigned long long)version, FORMAT_VERSION);
		return ERR_WRONG_VERSION;
	}
	return ERR_OK;
}

static enum err format_write(const struct env *ev, MDB_txn *txn, struct errmsg *em)
{
	uint8_t version[8];
	put_u64(version, FORMAT_VERSION);
	return record_put(ev, txn, RECORD_FORMAT, slice_of(version, sizeof version), em);
}

static enum err tables_open(struct env *ev, enum env_mode mode, MDB_txn *txn, struct errmsg *em)
{
	MDB_stat stat;
	int rc = mdb_dbi_open(txn, NULL, 0, &ev->records);
	if (!rc)
		rc = mdb_stat(txn, ev->records, &stat);
	if (rc)
		return env_err(ev, rc, "open", em);
	ev->fresh = stat.ms_entries == 0;
	if (ev->fresh && mode == ENV_READ)
		return env_corrupt(ev, "it is empty", em);
	enum err e = ev->fresh ? format_write(ev, txn, em) : format_check(ev, txn, em);
	if (e)
		return e;
	rc = mdb_dbi_open(txn, "table", MDB_INTEGERKEY | (ev->fresh ? MDB_CREATE : 0), &ev->table);
	if (rc == MDB_NOTFOUND)
		return env_corrupt(ev, "its table is missing", em);
	return env_err(ev, rc, "open", em);
}

static enum err tables_begin(struct env *ev, enum env_mode mode, struct errmsg *em)
{
	MDB_txn *txn;
	enum err e = env_begin(ev, mode != ENV_READ, &txn, em);
	if (e)
		return e;
	e = tables_open(ev, mode, txn, em);
	if (!e) /* handles opened in a transaction stay only if it commits; one that wrote nothing costs nothing */
		return env_err(ev, mdb_txn_commit(txn), "open", em);
	mdb_txn_abort(txn);
	return e;
}

static enum err file_extend(const struct env *ev, const char *file, struct errmsg *em)
{
	MDB_envinfo info;
	MDB_stat stat;
	struct stat sb;
	mdb_env_info(ev->mdb, &info);
	mdb_env_stat(ev->mdb, &stat);
	off_t need = (off_t)((info.me_last_pgno + 1) * stat.ms_psize);
	int fd = open(file, O_RDWR | O_CLOEXEC);
	int rc = fd < 0 || fstat(fd, &sb) || (sb.st_size < need && ftruncate(fd, need)) ? errno : 0;
	if (fd >= 0)
		close(fd);
	return env_err(ev, rc, "extend the data file", em);
}

static uint64_t file_size(const char *file)
{
	struct stat sb;
	return stat(file, &sb) ? 0 : (uint64_t)sb.st_size;
}

static unsigned mode_flags(enum env_mode mode)
{
	switch (mode) {
	case ENV_LOG:
		return MDB_NOTLS; /* a read transaction belongs to itself, not to the thread that began it */
	case ENV_WRITE:
		return MDB_NOTLS | MDB_NOLOCK;
	case ENV_READ:
		return MDB_NOTLS | MDB_NOLOCK | MDB_RDONLY;
	}
	return 0;
}

/* LMDB writes to its lock file through a map, so a block that is missing on a full disk would be a SIGBUS. */
static enum err lock_file_back(const struct env *ev, struct errmsg *em)
{
	char *file = path_join(ev->path, "lock.mdb");
	int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int rc = fd < 0 ? errno : posix_fallocate(fd, 0, LOCK_BYTES);
	if (fd >= 0)
		close(fd);
	free(file);
	return env_err(ev, rc, "make the lock file", em);
}

static enum err map_open(struct env *ev, enum env_mode mode, uint64_t map_bytes, struct errmsg *em)
{
	int rc = mdb_env_create(&ev->mdb);
	if (!rc)
		rc = mdb_env_set_maxdbs(ev->mdb, 1);
	if (!rc)
		rc = mdb_env_set_mapsize(ev->mdb, (size_t)map_bytes);
	if (!rc)
		rc = mdb_env_open(ev->mdb, ev->path, mode_flags(mode), 0600);
	return env_err(ev, rc, "open", em);
}

enum err env_open(struct env *ev, const char *path, enum env_mode mode, uint64_t map_bytes, struct errmsg *em)
{
	*ev = (struct env){ .path = path_join(path, NULL) };
	char *file = path_join(path, "data.mdb");
	enum err e = ERR_OK;
	if (mode == ENV_READ) {
		/* A reader maps what there is: any number of them then fits into the address space. */
		map_bytes = file_size(file);
		if (map_bytes == 0)
			e = env_corrupt(ev, "its data file is missing or empty", em);
	}
	if (mode == ENV_LOG)
		e = lock_file_back(ev, em);
	if (!e)
		e = map_open(ev, mode, map_bytes, em);
	if (!e)
		e = file_extend(ev, file, em);
	if (!e)
		e = tables_begin(ev, mode, em);
	free(file);
	if (e)
		env_close(ev);
	return e;
}

void env_close(struct env *ev)
{
	if (ev->mdb)
		mdb_env_close(ev->mdb);
	free(ev->path);
	*ev = (struct env){ 0 };
}

/* ---- resident pages ---- */

void map_use_note(struct map_use *u, MDB_val value)
{
	uintptr_t at = (uintptr_t)value.mv_data;
	if (u->bytes == 0 || at < u->lo)
		u->lo = at;
	if (u->bytes == 0 || at + value.mv_size > u->hi)
		u->hi = at + value.mv_size;
	u->bytes += value.mv_size;
}

/* For a shared file map this forgets page table entries, nothing else: who reads there next gets the same bytes from
 * the page cache. Only whole pages that certainly lie in the map are named, since on other memory it would destroy. */
void map_use_drop(struct map_use *u, size_t when_above)
{
	if (u->bytes <= when_above)
		return;
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t lo = u->lo / page * page;
	uintptr_t hi = (u->hi + page - 1) / page * page;
	(void)madvise((void *)lo, hi - lo, MADV_DONTNEED); /* advice: nothing depends on it */
	*u = (struct map_use){ 0 };
}
