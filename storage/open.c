/* open.c: opening a data directory.
 *
 * First look, then judge, then change: what belongs to somebody else, is of a newer release or is damaged is left
 * exactly as it was found. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

bool storage_exists(const char *dir)
{
	struct stat sb;
	char *path = path_join(dir, LOG_DIR "/data.mdb");
	bool there = stat(path, &sb) == 0 && sb.st_size > 0;
	free(path);
	return there;
}

const struct storage_state *storage_state(const struct storage *st)
{
	return &st->state;
}

/* ---- identity ---- */

static bool identity_decode(struct storage *st)
{
	struct decoder d = { .rest = buf_view(&st->identity_bytes) };
	struct storage_identity *id = &st->state.identity;
	id->cell_id = dec_u64(&d);
	id->member_id = dec_u64(&d);
	id->data_dir_id = dec_u64(&d);
	id->name = dec_bytes(&d);
	id->cell_token = dec_bytes(&d);
	id->origin = d.rest.len ? dec_bytes(&d) : slice_of(NULL, 0); /* the first directories had none */
	return dec_done(&d);
}

/* ERR_NOT_FOUND: nobody's yet. */
static enum err identity_load(struct storage *st, MDB_txn *txn, struct errmsg *em)
{
	struct slice body;
	enum err e = record_get(&st->log, txn, RECORD_IDENTITY, &body, em);
	if (e)
		return e;
	st->identity_bytes = buf_copy_of(body);
	if (!identity_decode(st))
		return env_corrupt(&st->log, "the identity cannot be read", em);
	e = record_get(&st->log, txn, RECORD_BOOT, &body, em);
	if (e == ERR_NOT_FOUND || (!e && body.len != 8))
		return env_corrupt(&st->log, "the count of starts cannot be read", em);
	if (!e)
		st->state.boot = get_u64(body.ptr);
	return e;
}

static enum err identity_compare(const struct storage *st, const struct storage_identity *want, struct errmsg *em)
{
	const struct storage_identity *have = &st->state.identity;
	if (want->cell_id && want->cell_id != have->cell_id) {
		errmsg_set(em,
			   "data belongs to cell %llx, this member is set up for cell %llx: correct the cell's members or "
			   "token (--initial-cluster-state existing, if the members have changed since), or start with an empty data "
			   "directory instead of '%s'",
			   (unsigned long long)have->cell_id, (unsigned long long)want->cell_id, st->dir);
		return ERR_WRONG_CELL;
	}
	if (want->member_id && want->member_id != have->member_id) {
		errmsg_set(em,
			   "data belongs to member %llx, this one is %llx: give each member a data directory of its own, "
			   "this one uses '%s'",
			   (unsigned long long)have->member_id, (unsigned long long)want->member_id, st->dir);
		return ERR_WRONG_MEMBER;
	}
	return ERR_OK;
}

static enum err identity_new(struct storage *st, const struct storage_identity *id, struct errmsg *em)
{
	if (!list_empty(&st->snaps))
		return env_corrupt(&st->log, "the log has lost its identity, but there is a snapshot", em);
	if (!id->cell_id || !id->member_id || !id->data_dir_id) {
		errmsg_set(em, "there is no data in '%s'", st->dir);
		return ERR_NOT_FOUND;
	}
	enc_u64(&st->identity_bytes, id->cell_id);
	enc_u64(&st->identity_bytes, id->member_id);
	enc_u64(&st->identity_bytes, id->data_dir_id);
	enc_bytes(&st->identity_bytes, id->name);
	enc_bytes(&st->identity_bytes, id->cell_token);
	if (id->origin.len)
		enc_bytes(&st->identity_bytes, id->origin);
	ASSERT(identity_decode(st));
	st->state.created = true;
	return ERR_OK;
}

/* Finds out who we are and how often we started; changes nothing on disk. */
static enum err identify(struct storage *st, const struct storage_options *opts, struct errmsg *em)
{
	MDB_txn *txn;
	enum err e = env_begin(&st->log, false, &txn, em);
	if (e)
		return e;
	e = identity_load(st, txn, em);
	mdb_txn_abort(txn);
	if (e == ERR_NOT_FOUND)
		return identity_new(st, &opts->identity, em);
	return e ? e : identity_compare(st, &opts->identity, em);
}

static enum err boot_body(struct storage *st, MDB_txn *txn, void *arg, struct errmsg *em)
{
	const uint64_t *boot = arg;
	uint8_t bytes[8];
	enum err e = ERR_OK;
	if (st->state.created)
		e = record_put(&st->log, txn, RECORD_IDENTITY, buf_view(&st->identity_bytes), em);
	put_u64(bytes, *boot);
	return e ? e : record_put(&st->log, txn, RECORD_BOOT, slice_of(bytes, sizeof bytes), em);
}

static enum err boot_step(struct storage *st, struct errmsg *em)
{
	uint64_t boot = st->state.boot + 1;
	enum err e = log_transact(st, boot_body, &boot, em);
	if (!e)
		st->state.boot = boot;
	return e;
}

/* ---- log and snapshot, put together ---- */

enum err load_snapshot(struct storage *st, bool whole, struct errmsg *em)
{
	struct snap_id id = snap_newest(st);
	if (id.index == 0)
		return ERR_OK;
	char *path = snap_path(st, id, "");
	enum err e = snap_verify(st, path, id, whole, &st->state.snapshot, &st->config_bytes, em);
	free(path);
	st->state.has_snapshot = !e;
	return e;
}

/* Whatever is damaged stays as it is, and is refused. */
static enum err strict_load(struct storage *st, struct errmsg *em)
{
	enum err e = load_snapshot(st, /*whole=*/false, em);
	if (!e)
		e = log_records(st, &st->hard, &st->extent, &st->lost, em);
	return e ? e : log_scan(st, &st->extent, em);
}

enum err log_continues(struct storage *st, bool *ret, struct errmsg *em)
{
	struct snap_id id = { st->state.snapshot.index, st->state.snapshot.term };
	const struct extent *x = &st->extent;
	struct storage_entry en = { .term = id.term };
	MDB_txn *txn;
	if (x->first > id.index + 1)
		return env_corrupt(&st->log, "entries are missing between the newest snapshot and the log", em);
	*ret = x->last >= id.index;
	if (!*ret || x->first > id.index)
		return ERR_OK;
	enum err e = env_begin(&st->log, false, &txn, em);
	if (e)
		return e;
	e = log_entry_get(st, txn, id.index, &en, em);
	mdb_txn_abort(txn);
	*ret = !e && en.term == id.term;
	return e;
}

static enum err join_step(struct storage *st, struct errmsg *em)
{
	bool continues = false;
	enum err e = log_continues(st, &continues, em);
	if (!e && !continues)
		e = log_reset(st, (struct snap_id){ st->state.snapshot.index, st->state.snapshot.term }, em);
	return e;
}

static void state_fill(struct storage *st)
{
	struct storage_state *s = &st->state;
	s->hard = st->hard;
	s->lost = st->lost;
	if (s->hard.commit < s->snapshot.index)
		s->hard.commit = s->snapshot.index; /* what is in a snapshot is committed */
	s->first_index = st->extent.first;
	s->last_index = st->extent.last;
	s->last_term = st->extent.last_term;
	s->ballast_bytes = st->ballast_have;
	s->ballast_short = st->ballast_have < st->ballast_want;
}

/* ---- opening ---- */

/* A full disk must not keep a replica down: the ballast is there for what has to be written at start. */
static enum err with_ballast(struct storage *st, enum err (*step)(struct storage *st, struct errmsg *em),
			     struct errmsg *em)
{
	enum err e = step(st, em);
	if (e == ERR_DISK_FULL && ballast_drop(st))
		e = step(st, em);
	return e;
}

/* Names made by an earlier start may still be volatile, so this is done every time. */
static enum err sync_names(struct storage *st, struct errmsg *em)
{
	char *log = path_join(st->dir, LOG_DIR);
	char *parent = path_join(st->dir, "..");
	enum err e = dir_sync(log, em);
	if (!e)
		e = dir_sync(st->dir, em);
	if (!e && access(parent, R_OK) == 0)
		e = dir_sync(parent, em);
	free(log);
	free(parent);
	return e;
}

static enum err open_log_step(struct storage *st, struct errmsg *em)
{
	char *path = path_join(st->dir, LOG_DIR);
	enum err e = dir_make(path, em);
	if (!e)
		e = env_open(&st->log, path, ENV_LOG, st->log_map_bytes, em);
	free(path);
	return e;
}

static enum err open_locked(struct storage *st, const struct storage_options *opts, struct errmsg *em)
{
	enum err e = with_ballast(st, open_log_step, em);
	if (!e)
		e = snap_list_load(st, em);
	if (!e)
		e = identify(st, opts, em);
	if (!e)
		e = opts->mend ? with_ballast(st, mend_load, em) : strict_load(st, em);
	if (!e)
		e = sync_names(st, em);
	if (!e)
		e = with_ballast(st, join_step, em);
	if (!e)
		e = with_ballast(st, boot_step, em);
	if (!e)
		e = snap_list_clean(st, em);
	if (!e)
		e = snap_part_load(st, em);
	return e ? e : mend_clean(st, em);
}

static struct storage *storage_new(const struct storage_options *opts)
{
	struct storage *st = mem_zalloc(sizeof *st);
	st->lock_fd = -1;
	st->log_map_bytes = opts->map_bytes ? opts->map_bytes : STORAGE_MAP_BYTES_DEFAULT;
	st->snapshot_map_bytes = opts->snapshot_map_bytes ? opts->snapshot_map_bytes : STORAGE_MAP_BYTES_DEFAULT;
	st->ballast_want = opts->ballast_bytes ? opts->ballast_bytes : STORAGE_BALLAST_BYTES_DEFAULT;
	if (opts->no_ballast)
		st->ballast_want = 0;
	list_init(&st->snaps);
	list_init(&st->writers);
	pthread_mutex_init(&st->log_mu, NULL);
	pthread_mutex_init(&st->snap_mu, NULL);
	pthread_mutex_init(&st->ballast_mu, NULL);
	return st;
}

static enum err open_dir(struct storage *st, const char *dir, struct errmsg *em)
{
	enum err e = dir_make(dir, em);
	if (e)
		return e;
	st->dir = realpath(dir, NULL); /* the process may change its directory */
	return st->dir ? dir_lock(st->dir, &st->lock_fd, em) : disk_err(dir, errno, "find the directory", em);
}

enum err storage_open(const struct storage_options *opts, struct storage **ret, struct errmsg *em)
{
	ASSERT(opts->identity.name.len <= STORAGE_NAME_MAX);
	ASSERT(opts->identity.cell_token.len <= STORAGE_NAME_MAX);
	ASSERT(opts->identity.origin.len <= STORAGE_ORIGIN_MAX);
	if (!opts->identity.data_dir_id && !storage_exists(opts->dir)) {
		errmsg_set(em, "there is no data in '%s'", opts->dir);
		return ERR_NOT_FOUND;
	}
	struct storage *st = storage_new(opts);
	enum err e = open_dir(st, opts->dir, em);
	if (!e)
		e = open_locked(st, opts, em);
	if (e) {
		storage_close(st);
		return e;
	}
	ballast_open(st);
	state_fill(st);
	*ret = st;
	return ERR_OK;
}

static enum err identify_only(struct storage *st, struct errmsg *em)
{
	MDB_txn *txn;
	enum err e = open_log_step(st, em);
	if (!e)
		e = env_begin(&st->log, false, &txn, em);
	if (e)
		return e;
	e = identity_load(st, txn, em);
	mdb_txn_abort(txn);
	return e;
}

enum err storage_identify(const char *dir, struct storage_identity *ret, struct buf *ret_bytes, struct errmsg *em)
{
	struct storage_options opts = { .dir = dir, .no_ballast = true };
	struct storage *st;
	enum err e;
	if (!storage_exists(dir)) {
		errmsg_set(em, "there is no data in '%s'", dir);
		return ERR_NOT_FOUND;
	}
	st = storage_new(&opts);
	e = open_dir(st, dir, em);
	if (!e)
		e = identify_only(st, em);
	if (!e) {
		*ret = st->state.identity;
		*ret_bytes = buf_take(&st->identity_bytes);
	}
	storage_close(st);
	return e;
}

void storage_close(struct storage *st)
{
	if (!st)
		return;
	ASSERT(list_empty(&st->writers));
	snap_list_free(st);
	env_close(&st->log);
	buf_free(&st->identity_bytes);
	buf_free(&st->config_bytes);
	if (st->lock_fd >= 0)
		close(st->lock_fd); /* last: from here on another process may open it */
	free(st->dir);
	pthread_mutex_destroy(&st->log_mu);
	pthread_mutex_destroy(&st->snap_mu);
	pthread_mutex_destroy(&st->ballast_mu);
	free(st);
}
