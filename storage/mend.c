/* mend.c: damage is cut out. docs/decisions/0007-damaged-disks.md says what may be done with what is left.
 *
 * What cannot be read is never guessed at. The state begins from the newest snapshot that is whole, or from nothing; the log is kept from the entry
 * behind it up to the first one that is damaged. Where the log had reached further, a record says until where (S4 of log.c).
 *   (G1) identity, the count of starts, term and vote, and the log's extent must be whole: without them nobody knows what was promised. Their damage is refused.
 *   (G2) the log goes into an environment of its own, built aside and renamed into place: a damaged tree is read, but never written again. A crash at
 *        any step leaves the old one, which is found damaged again, or the new one with its record.
 *   (G3) when something is lost, what was there is kept in `damaged` until it is there again: the whole cell may be damaged, and people then need it all. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"

#define COPY_BYTES ((size_t)8 << 20) /* a transaction */

struct mend {
	struct extent have; /* of the log as it was */
	struct extent keep;
	struct snap_id base;
	struct storage_lost lost;
};

/* ---- what is whole ---- */

/* The newest one that is whole; those that are not leave the list. */
static enum err choose_base(struct storage *st, struct mend *m, struct errmsg *em)
{
	enum err e = load_snapshot(st, /*whole=*/true, em);
	while (e == ERR_CORRUPT) {
		if (!st->damaged_snap.index)
			st->damaged_snap = snap_newest(st);
		snap_list_drop_newest(st);
		e = load_snapshot(st, /*whole=*/true, em);
	}
	m->base = snap_newest(st);
	return e;
}

/* Whole, and no older than `term`. Whatever LMDB says of a damaged tree, the entry cannot be read. */
static bool is_whole(struct storage *st, MDB_txn *txn, uint64_t index, uint64_t term, uint64_t *ret_term)
{
	struct errmsg ignored;
	struct storage_entry en;
	if (log_entry_get(st, txn, index, &en, &ignored) != ERR_OK || en.term < term)
		return false;
	*ret_term = en.term;
	return true;
}

static void keep_upward(struct storage *st, MDB_txn *txn, struct mend *m)
{
	uint64_t term;
	while (m->keep.last < m->have.last && is_whole(st, txn, m->keep.last + 1, m->keep.last_term, &term)) {
		if (m->keep.last + 1 == m->have.last && term != m->have.last_term)
			break;
		m->keep.last++;
		m->keep.last_term = term;
	}
}

/* What the snapshot stands for as well: for followers that are slow. False: this is not the log of that snapshot. */
static bool keep_downward(struct storage *st, MDB_txn *txn, struct mend *m)
{
	uint64_t term;
	while (m->keep.first > m->have.first && is_whole(st, txn, m->keep.first - 1, 0, &term)) {
		if (m->keep.first - 1 == m->base.index && term != m->base.term)
			return false;
		m->keep.first--;
	}
	return true;
}

/* A transaction each way: after an error of the tree LMDB refuses all that follows in the same one. */
static enum err survey(struct storage *st, struct mend *m, struct errmsg *em)
{
	struct extent none = { .first = m->base.index + 1, .last = m->base.index, .last_term = m->base.term };
	MDB_txn *txn;
	enum err e;
	m->keep = none;
	if (m->have.first > m->base.index + 1 || m->have.last < m->base.index)
		return ERR_OK;
	e = env_begin(&st->log, false, &txn, em);
	if (e)
		return e;
	keep_upward(st, txn, m);
	mdb_txn_abort(txn);
	e = env_begin(&st->log, false, &txn, em);
	if (e)
		return e;
	if (!keep_downward(st, txn, m))
		m->keep = none;
	mdb_txn_abort(txn);
	return ERR_OK;
}

static void lose(struct mend *m, uint64_t index, uint64_t term)
{
	struct extent lost = { .last = m->lost.index, .last_term = m->lost.term };
	struct storage_lost more = { .index = index, .term = term };
	if (index && !extent_reaches(&m->keep, more) && (!m->lost.index || !extent_reaches(&lost, more)))
		m->lost = more;
}

/* ---- the log, written anew ---- */

static enum err copy_record(struct storage *st, MDB_txn *from, struct env *to, MDB_txn *txn, const char *name, struct errmsg *em)
{
	struct slice body;
	enum err e = record_get(&st->log, from, name, &body, em);
	if (e)
		return e == ERR_NOT_FOUND ? ERR_OK : e;
	return record_put(to, txn, name, body, em);
}

static enum err put_numbers(struct env *to, MDB_txn *txn, const char *name, const uint64_t v[3], struct errmsg *em)
{
	uint8_t bytes[24];
	for (size_t i = 0; i < 3; i++)
		put_u64(bytes + 8 * i, v[i]);
	return record_put(to, txn, name, slice_of(bytes, sizeof bytes), em);
}

static enum err copy_records(struct storage *st, const struct mend *m, MDB_txn *from, struct env *to, MDB_txn *txn, struct errmsg *em)
{
	enum err e = copy_record(st, from, to, txn, RECORD_IDENTITY, em);
	if (!e)
		e = copy_record(st, from, to, txn, RECORD_BOOT, em);
	if (!e)
		e = copy_record(st, from, to, txn, RECORD_HARD, em);
	if (!e)
		e = put_numbers(to, txn, RECORD_EXTENT, (uint64_t[]){ m->keep.first, m->keep.last, m->keep.last_term }, em);
	if (!e && m->lost.index)
		e = put_numbers(to, txn, RECORD_LOST, (uint64_t[]){ m->lost.index, m->lost.term, 0 }, em);
	return e;
}

static enum err copy_entry(struct storage *st, MDB_txn *from, struct env *to, MDB_txn *txn, uint64_t index, size_t *bytes, struct errmsg *em)
{
	struct storage_entry en;
	MDB_val key = key_of(&index), value;
	enum err e = log_entry_get(st, from, index, &en, em);
	if (e)
		return e;
	value = (MDB_val){ .mv_size = ENTRY_HEADER + en.payload.len };
	e = env_err(to, mdb_put(txn, to->table, &key, &value, MDB_APPEND | MDB_RESERVE), "copy the log", em);
	if (!e)
		entry_encode(&en, value.mv_data);
	*bytes += value.mv_size;
	return e;
}

static enum err copy_all(struct storage *st, const struct mend *m, MDB_txn *from, struct env *to, struct errmsg *em)
{
	uint64_t next = m->keep.first;
	bool records = false;
	enum err e = ERR_OK;
	while (!e && (!records || next <= m->keep.last)) {
		MDB_txn *txn;
		size_t bytes = 0;
		e = env_begin(to, true, &txn, em);
		if (e)
			return e;
		if (!records)
			e = copy_records(st, m, from, to, txn, em);
		records = true;
		while (!e && next <= m->keep.last && bytes < COPY_BYTES)
			e = copy_entry(st, from, to, txn, next++, &bytes, em);
		if (e)
			mdb_txn_abort(txn);
		else
			e = env_err(to, mdb_txn_commit(txn), "copy the log", em);
	}
	return e;
}

static enum err write_anew(struct storage *st, const struct mend *m, const char *tmp, struct errmsg *em)
{
	struct env to = { .mdb = NULL };
	MDB_txn *from;
	enum err e = dir_remove(tmp, em);
	if (!e)
		e = dir_make(tmp, em);
	if (!e)
		e = env_open(&to, tmp, ENV_WRITE, st->log_map_bytes, em);
	if (e)
		return e;
	e = env_begin(&st->log, false, &from, em);
	if (!e) {
		e = copy_all(st, m, from, &to, em);
		mdb_txn_abort(from);
	}
	env_close(&to);
	return e ? e : dir_sync(tmp, em);
}

/* ---- in its place ---- */

/* (G3) What was kept of an earlier damage has more than what is there now. */
static enum err keep_old_log(struct storage *st, const char *log_file, struct errmsg *em)
{
	char *dir = path_join(st->dir, DAMAGED_DIR), *kept = path_join(dir, "log.mdb");
	enum err e = dir_make(dir, em);
	if (!e && link(log_file, kept) && errno != EEXIST)
		e = disk_err(st->dir, errno, "keep the damaged log", em);
	if (!e)
		e = dir_sync(dir, em);
	if (!e)
		e = dir_sync(st->dir, em);
	free(kept);
	free(dir);
	return e;
}

static enum err swap_log(struct storage *st, const struct mend *m, const char *log, const char *tmp, struct errmsg *em)
{
	char *file = path_join(log, DATA_FILE), *anew = path_join(tmp, DATA_FILE);
	enum err e = m->lost.index ? keep_old_log(st, file, em) : ERR_OK;
	env_close(&st->log);
	if (!e && rename(anew, file))
		e = disk_err(st->dir, errno, "put the mended log in its place", em);
	if (!e)
		e = dir_sync(log, em);
	if (!e)
		e = dir_remove(tmp, em);
	if (!e)
		e = env_open(&st->log, log, ENV_LOG, st->log_map_bytes, em);
	free(file);
	free(anew);
	return e;
}

/* After the log: without it a crash must find the same damage again. */
static enum err move_snapshot(struct storage *st, const struct mend *m, struct errmsg *em)
{
	char *dir, *file, *kept;
	enum err e = ERR_OK;
	if (!st->damaged_snap.index)
		return ERR_OK;
	dir = snap_path(st, st->damaged_snap, "");
	file = path_join(dir, DATA_FILE);
	kept = path_join(st->dir, DAMAGED_DIR "/snapshot.mdb");
	if (m->lost.index && access(kept, F_OK) != 0 && rename(file, kept) && errno != ENOENT)
		e = disk_err(st->dir, errno, "keep the damaged snapshot", em);
	if (!e)
		e = dir_remove(dir, em);
	if (!e)
		e = dir_sync(st->dir, em);
	free(kept);
	free(file);
	free(dir);
	return e;
}

static void describe(struct storage *st, const struct mend *m)
{
	char snapshot[80] = "";
	if (st->damaged_snap.index)
		snprintf(snapshot, sizeof snapshot, "the snapshot of index %llu; ", (unsigned long long)st->damaged_snap.index);
	errmsg_set(&st->state.damage, "%sof log entries %llu to %llu those from %llu to %llu are whole%s", snapshot, (unsigned long long)m->have.first,
		   (unsigned long long)m->have.last, (unsigned long long)m->keep.first, (unsigned long long)m->keep.last,
		   m->lost.index ? "" : ", with the state before them: nothing is lost");
}

static enum err cut_out(struct storage *st, struct mend *m, struct errmsg *em)
{
	char *log = path_join(st->dir, LOG_DIR), *tmp = path_join(st->dir, LOG_TMP_DIR);
	enum err e = survey(st, m, em);
	if (!e) {
		lose(m, m->have.last, m->have.last_term);
		lose(m, st->damaged_snap.index, st->damaged_snap.term);
		describe(st, m);
		e = write_anew(st, m, tmp, em);
	}
	if (!e)
		e = swap_log(st, m, log, tmp, em);
	if (!e)
		e = move_snapshot(st, m, em);
	free(tmp);
	free(log);
	return e;
}

/* ---- at open ---- */

static bool is_sound(struct storage *st, const struct mend *m, enum err *ret, struct errmsg *em)
{
	if (st->damaged_snap.index || m->have.first > m->base.index + 1)
		return false;
	*ret = log_scan(st, &m->have, em);
	return *ret != ERR_CORRUPT;
}

enum err mend_load(struct storage *st, struct errmsg *em)
{
	struct mend m = { .lost = { 0 } };
	enum err e = log_records(st, &st->hard, &m.have, &m.lost, em); /* (G1) */
	if (!e)
		e = choose_base(st, &m, em);
	if (e)
		return e;
	m.keep = m.have;
	if (!is_sound(st, &m, &e, em))
		e = cut_out(st, &m, em);
	if (e)
		return e;
	st->extent = m.keep;
	st->lost = m.lost;
	return ERR_OK;
}

enum err mend_clean(struct storage *st, struct errmsg *em)
{
	char *tmp = path_join(st->dir, LOG_TMP_DIR), *damaged = path_join(st->dir, DAMAGED_DIR);
	enum err e = dir_remove(tmp, em);
	if (!e && !st->lost.index)
		e = dir_remove(damaged, em);
	free(damaged);
	free(tmp);
	return e;
}
