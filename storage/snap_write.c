/* snap_write.c: a snapshot on its way, made here or received.
 *
 *   WRITING ──seal──► SEALED ──read back, rename──► NAMED ──log agrees──► published, and gone as a writer
 *
 * Until NAMED a crash leaves a directory that the next open removes, and the old snapshot. From NAMED on the new one
 * counts, whatever happens to the log's part: storage_open() does that again.
 *
 * Chunks are committed half a megabyte at a time with full syncs, rather than in one great flush at the end, which the
 * log's own flushes would have to wait behind. The write transaction stays open from one call to the next: there are no
 * readers it could disturb, and without LMDB's lock it belongs to no thread. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

#define COMMIT_CHUNKS 2000u
#define CHUNK_MAX (UINT64_C(1) << 30)

/* ---- create ---- */

static enum err too_old(const struct storage_snapshot_writer *w, struct errmsg *em)
{
	struct snap_id newest = snap_newest(w->st);
	if (newest.index < w->id.index)
		return ERR_OK;
	errmsg_set(em, "there is a snapshot of index %llu, as new as that of %llu or newer",
		   (unsigned long long)newest.index, (unsigned long long)w->id.index);
	return ERR_EXISTS;
}

static enum err writer_list(struct storage_snapshot_writer *w, struct errmsg *em)
{
	enum err e = ERR_OK;
	pthread_mutex_lock(&w->st->snap_mu);
	LIST_FOR_EACH(it, &w->st->writers) {
		const struct storage_snapshot_writer *other = CONTAINER_OF(it, struct storage_snapshot_writer, link);
		if (other->id.index == w->id.index && other->id.term == w->id.term)
			e = ERR_BUSY;
	}
	if (!e)
		list_push_back(&w->st->writers, &w->link);
	pthread_mutex_unlock(&w->st->snap_mu);
	if (e)
		errmsg_set(em, "the snapshot of index %llu is being written already", (unsigned long long)w->id.index);
	return e;
}

void writer_free(struct storage_snapshot_writer *w)
{
	pthread_mutex_lock(&w->st->snap_mu);
	list_remove(&w->link);
	pthread_mutex_unlock(&w->st->snap_mu);
	free(w->tmp_path);
	free(w->path);
	free(w);
}

enum err writer_make(struct storage_snapshot_writer *w, struct errmsg *em)
{
	enum err e = dir_remove(w->tmp_path, em); /* an abort may have failed to */
	if (!e)
		e = dir_make(w->tmp_path, em);
	if (!e)
		e = env_open(&w->env, w->tmp_path, ENV_WRITE, w->st->snapshot_map_bytes, em);
	return e;
}

enum err writer_new(struct storage *st, struct snap_id id, const char *suffix, struct storage_snapshot_writer **ret, struct errmsg *em)
{
	ASSERT(id.index > 0);
	struct storage_snapshot_writer *w = mem_zalloc(sizeof *w);
	w->st = st;
	w->id = id;
	w->tmp_path = snap_path(st, id, suffix);
	w->path = snap_path(st, id, "");
	list_init(&w->link);
	enum err e = too_old(w, em);
	if (!e)
		e = writer_list(w, em);
	if (e)
		writer_free(w);
	else
		*ret = w;
	return e;
}

enum err storage_snapshot_create(struct storage *st, uint64_t index, uint64_t term, struct storage_snapshot_writer **ret,
				 struct errmsg *em)
{
	struct storage_snapshot_writer *w;
	enum err e = writer_new(st, (struct snap_id){ .index = index, .term = term }, TMP_SUFFIX, &w, em);
	if (e)
		return e;
	e = writer_make(w, em);
	if (e)
		storage_snapshot_abort(w);
	else
		*ret = w;
	return e;
}

void storage_snapshot_abort(struct storage_snapshot_writer *w)
{
	struct errmsg ignored;
	if (!w)
		return;
	if (w->txn)
		mdb_txn_abort(w->txn);
	env_close(&w->env);
	if (w->phase == WRITER_NAMED)
		log_fail(w->st); /* S3 is broken until the next open */
	else
		(void)dir_remove(w->tmp_path, &ignored); /* else the next open does */
	writer_free(w);
}

/* ---- write ---- */

static void fall_back(struct storage_snapshot_writer *w)
{
	if (w->txn)
		mdb_txn_abort(w->txn);
	w->txn = NULL;
	w->txn_bytes = 0;
	w->now = w->durable;
}

enum err writer_begin(struct storage_snapshot_writer *w, struct errmsg *em)
{
	return w->txn ? ERR_OK : env_begin(&w->env, true, &w->txn, em);
}

enum err writer_commit(struct storage_snapshot_writer *w, struct errmsg *em)
{
	if (!w->txn)
		return ERR_OK;
	int rc = mdb_txn_commit(w->txn);
	w->txn = NULL; /* gone either way */
	if (rc) {
		fall_back(w);
		return env_err(&w->env, rc, "write the snapshot", em);
	}
	w->txn_bytes = 0;
	w->durable = w->now;
	return ERR_OK;
}

static enum err append_chunk(struct storage_snapshot_writer *w, struct slice chunk, struct errmsg *em)
{
	ASSERT(chunk.len <= CHUNK_MAX);
	enum err e = writer_begin(w, em);
	if (e)
		return e;
	MDB_val key = key_of(&w->now.chunks);
	MDB_val value = { .mv_size = CHUNK_HEADER + chunk.len };
	int rc = mdb_put(w->txn, w->env.table, &key, &value, MDB_APPEND | MDB_RESERVE);
	if (rc) {
		fall_back(w);
		return env_err(&w->env, rc, "write the snapshot", em);
	}
	chunk_encode(w->now.chunks, chunk, value.mv_data);
	w->now.chunks++;
	w->now.bytes += chunk.len;
	w->txn_bytes += chunk.len;
	if (w->txn_bytes >= STORAGE_SNAPSHOT_PIECE_BYTES || w->now.chunks - w->durable.chunks >= COMMIT_CHUNKS)
		e = writer_commit(w, em);
	return e;
}

static enum err compare_chunk(struct storage_snapshot_writer *w, uint64_t number, struct slice chunk, struct errmsg *em)
{
	MDB_val key = key_of(&number), value;
	struct slice had;
	enum err e = writer_begin(w, em); /* its own transaction sees what it has not committed */
	if (e)
		return e;
	int rc = mdb_get(w->txn, w->env.table, &key, &value);
	if (rc)
		return env_err(&w->env, rc, "read the snapshot back", em);
	if (chunk_decode(number, value, &had) && slice_eq(had, chunk))
		return ERR_OK;
	errmsg_set(em, "chunk %llu of the snapshot of index %llu came again with other bytes: start it anew",
		   (unsigned long long)number, (unsigned long long)w->id.index);
	return ERR_CORRUPT;
}

enum err storage_snapshot_write(struct storage_snapshot_writer *w, uint64_t number, struct slice chunk, struct errmsg *em)
{
	ASSERT(w->phase == WRITER_WRITING);
	if (number < w->now.chunks)
		return compare_chunk(w, number, chunk, em);
	if (number == w->now.chunks)
		return append_chunk(w, chunk, em);
	errmsg_set(em, "chunk %llu of the snapshot of index %llu came, %llu is due", (unsigned long long)number,
		   (unsigned long long)w->id.index, (unsigned long long)w->now.chunks);
	return ERR_NOT_FOUND;
}

uint64_t storage_snapshot_next(const struct storage_snapshot_writer *w)
{
	return w->now.chunks;
}

uint64_t storage_snapshot_bytes(const struct storage_snapshot_writer *w)
{
	return w->now.bytes;
}

enum err storage_snapshot_sync(struct storage_snapshot_writer *w, struct errmsg *em)
{
	return writer_commit(w, em);
}

enum err storage_snapshot_read_back(struct storage_snapshot_writer *w, uint64_t number, struct buf *ret_chunk, struct errmsg *em)
{
	ASSERT(number < w->durable.chunks);
	return snap_chunk_read(&w->env, number, &w->use, ret_chunk, em);
}

/* ---- finish ---- */

static enum err check_counts(const struct storage_snapshot_writer *w, const struct storage_snapshot_meta *meta,
			     struct errmsg *em)
{
	ASSERT(meta->index == w->id.index);
	ASSERT(meta->term == w->id.term);
	if (meta->chunks == w->now.chunks && meta->bytes == w->now.bytes)
		return ERR_OK;
	errmsg_set(em, "the snapshot of index %llu should have %llu chunks and %llu bytes, but has %llu and %llu",
		   (unsigned long long)meta->index, (unsigned long long)meta->chunks, (unsigned long long)meta->bytes,
		   (unsigned long long)w->now.chunks, (unsigned long long)w->now.bytes);
	return ERR_CORRUPT;
}

static enum err seal(struct storage_snapshot_writer *w, const struct storage_snapshot_meta *meta, struct errmsg *em)
{
	enum err e = check_counts(w, meta, em);
	if (!e)
		e = writer_begin(w, em);
	if (e)
		return e;
	struct buf body = { 0 };
	snap_meta_encode(meta, &body);
	e = record_put(&w->env, w->txn, SNAP_META_RECORD, buf_view(&body), em);
	buf_free(&body);
	if (e)
		fall_back(w);
	else
		e = writer_commit(w, em);
	if (e)
		return e;
	env_close(&w->env);
	w->phase = WRITER_SEALED;
	return ERR_OK;
}

static enum err give_name(struct storage_snapshot_writer *w, struct errmsg *em)
{
	enum err e = dir_sync(w->tmp_path, em);
	if (!e)
		e = snap_verify(w->st, w->tmp_path, w->id, /*whole=*/true, NULL, NULL, em);
	if (!e)
		e = too_old(w, em);
	if (e)
		return e;
	if (rename(w->tmp_path, w->path))
		return disk_err(w->st->dir, errno, "rename the snapshot", em);
	w->phase = WRITER_NAMED;
	return ERR_OK;
}

static enum err finish(struct storage_snapshot_writer *w, const struct storage_snapshot_meta *meta, struct errmsg *em)
{
	enum err e = ERR_OK;
	if (w->phase == WRITER_WRITING)
		e = seal(w, meta, em);
	if (!e && w->phase == WRITER_SEALED)
		e = give_name(w, em);
	return e ? e : dir_sync(w->st->dir, em);
}

static void publish(struct storage_snapshot_writer *w)
{
	snap_publish(w->st, w->id);
	writer_free(w);
}

enum err storage_snapshot_finish(struct storage_snapshot_writer *w, const struct storage_snapshot_meta *meta,
				 struct errmsg *em)
{
	ASSERT(w->id.index <= log_last(w->st)); /* or the log would have to give way: that is an install */
	enum err e = finish(w, meta, em);
	if (e)
		return e;
	publish(w);
	return ERR_OK;
}

enum err storage_snapshot_install_finish(struct storage_snapshot_writer *w, const struct storage_snapshot_meta *meta,
					 bool keep_log, struct errmsg *em)
{
	enum err e = finish(w, meta, em);
	if (!e)
		e = log_install(w->st, w->id, keep_log, em);
	if (e)
		return e;
	publish(w);
	return ERR_OK;
}
