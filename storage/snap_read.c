/* snap_read.c: reading a whole snapshot. Its environment is never written again, so readers need no lock and any number
 * may have it open; each read is a short transaction all the same. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

#define RESIDENT_BYTES ((size_t)4 << 20)

struct storage_snapshot_reader {
	struct storage *st;
	struct snap *snap; /* NULL while verifying one that has no name yet */
	struct env env;
	struct storage_snapshot_meta meta;
	struct buf config; /* meta.config points into it */
	struct map_use use;
};

/* ---- chunks of an environment, whole or not ---- */

static enum err chunk_corrupt(const struct env *ev, uint64_t number, const char *what, struct errmsg *em)
{
	char text[80];
	snprintf(text, sizeof text, "snapshot chunk %llu %s", (unsigned long long)number, what);
	return env_corrupt(ev, text, em);
}

static enum err chunk_view(const struct env *ev, MDB_txn *txn, uint64_t number, struct map_use *use, struct slice *ret, struct errmsg *em)
{
	MDB_val key = key_of(&number), value;
	int rc = mdb_get(txn, ev->table, &key, &value);
	if (rc == MDB_NOTFOUND)
		return chunk_corrupt(ev, number, "is missing", em);
	if (rc)
		return env_err(ev, rc, "read the snapshot", em);
	if (!chunk_decode(number, value, ret))
		return chunk_corrupt(ev, number, "does not match its checksum", em);
	map_use_note(use, value);
	return ERR_OK;
}

enum err snap_chunk_read(const struct env *ev, uint64_t number, struct map_use *use, struct buf *ret, struct errmsg *em)
{
	MDB_txn *txn;
	struct slice chunk;
	enum err e = env_begin(ev, false, &txn, em);
	if (e)
		return e;
	e = chunk_view(ev, txn, number, use, &chunk, em);
	if (!e) {
		buf_clear(ret);
		buf_append_slice(ret, chunk);
	}
	mdb_txn_abort(txn);
	map_use_drop(use, RESIDENT_BYTES);
	return e;
}

enum err snap_chunks_count(const struct env *ev, MDB_txn *txn, uint64_t *ret, struct errmsg *em)
{
	MDB_stat stat;
	int rc = mdb_stat(txn, ev->table, &stat);
	if (rc)
		return env_err(ev, rc, "read the snapshot", em);
	*ret = stat.ms_entries;
	return ERR_OK;
}

enum err snap_chunks_check(const struct env *ev, MDB_txn *txn, uint64_t chunks, uint64_t *ret_bytes, struct errmsg *em)
{
	struct map_use use = { 0 };
	uint64_t bytes = 0;
	for (uint64_t n = 0; n < chunks; n++) {
		struct slice chunk;
		enum err e = chunk_view(ev, txn, n, &use, &chunk, em);
		if (e)
			return e;
		bytes += chunk.len;
		map_use_drop(&use, RESIDENT_BYTES);
	}
	*ret_bytes = bytes;
	return ERR_OK;
}

/* ---- meta ---- */

void snap_meta_encode(const struct storage_snapshot_meta *meta, struct buf *b)
{
	enc_u64(b, meta->index);
	enc_u64(b, meta->term);
	enc_u64(b, meta->chunks);
	enc_u64(b, meta->bytes);
	enc_u64(b, meta->state_hash);
	enc_bytes(b, meta->config);
}

static bool meta_decode(struct slice body, struct storage_snapshot_meta *ret)
{
	struct decoder d = { .rest = body };
	ret->index = dec_u64(&d);
	ret->term = dec_u64(&d);
	ret->chunks = dec_u64(&d);
	ret->bytes = dec_u64(&d);
	ret->state_hash = dec_u64(&d);
	ret->config = dec_bytes(&d);
	return dec_done(&d);
}

static enum err meta_read(struct storage_snapshot_reader *r, MDB_txn *txn, struct snap_id id, struct errmsg *em)
{
	struct slice body;
	struct storage_snapshot_meta m;
	uint64_t chunks;
	enum err e = record_get(&r->env, txn, SNAP_META_RECORD, &body, em);
	if (e == ERR_NOT_FOUND)
		return env_corrupt(&r->env, "the snapshot was never finished", em);
	if (e)
		return e;
	if (!meta_decode(body, &m))
		return env_corrupt(&r->env, "the snapshot's description cannot be read", em);
	if (m.index != id.index || m.term != id.term)
		return env_corrupt(&r->env, "the snapshot is not the one its name says", em);
	e = snap_chunks_count(&r->env, txn, &chunks, em);
	if (e)
		return e;
	if (chunks != m.chunks)
		return env_corrupt(&r->env, "the snapshot has not as many chunks as it should", em);
	r->config = buf_copy_of(m.config);
	r->meta = m;
	r->meta.config = buf_view(&r->config);
	return ERR_OK;
}

/* ---- opening, closing ---- */

static void reader_close(struct storage_snapshot_reader *r)
{
	env_close(&r->env);
	buf_free(&r->config);
}

static enum err reader_open(struct storage_snapshot_reader *r, const char *path, struct snap_id id, struct errmsg *em)
{
	MDB_txn *txn;
	enum err e = env_open(&r->env, path, ENV_READ, 0, em);
	if (e)
		return e;
	e = env_begin(&r->env, false, &txn, em);
	if (!e) {
		e = meta_read(r, txn, id, em);
		mdb_txn_abort(txn);
	}
	if (e)
		reader_close(r);
	return e;
}

enum err storage_snapshot_open(struct storage *st, struct storage_snapshot_reader **ret, struct errmsg *em)
{
	struct snap *sn = snap_acquire(st);
	if (!sn) {
		errmsg_set(em, "there is no snapshot in '%s'", st->dir);
		return ERR_NOT_FOUND;
	}
	struct storage_snapshot_reader *r = mem_zalloc(sizeof *r);
	r->st = st;
	r->snap = sn;
	char *path = snap_path(st, sn->id, "");
	enum err e = reader_open(r, path, sn->id, em);
	free(path);
	if (e) {
		snap_release(st, sn);
		free(r);
		return e;
	}
	*ret = r;
	return ERR_OK;
}

const struct storage_snapshot_meta *storage_snapshot_reader_meta(const struct storage_snapshot_reader *r)
{
	return &r->meta;
}

void storage_snapshot_close(struct storage_snapshot_reader *r)
{
	if (!r)
		return;
	reader_close(r);
	snap_release(r->st, r->snap);
	free(r);
}

/* ---- chunks ---- */

enum err storage_snapshot_read(struct storage_snapshot_reader *r, uint64_t number, struct buf *ret_chunk,
			       struct errmsg *em)
{
	if (number >= r->meta.chunks) {
		errmsg_set(em, "the snapshot has no chunk %llu", (unsigned long long)number);
		return ERR_NOT_FOUND;
	}
	return snap_chunk_read(&r->env, number, &r->use, ret_chunk, em);
}

static enum err verify_chunks(struct storage_snapshot_reader *r, MDB_txn *txn, struct errmsg *em)
{
	uint64_t bytes;
	enum err e = snap_chunks_check(&r->env, txn, r->meta.chunks, &bytes, em);
	if (!e && bytes != r->meta.bytes)
		e = env_corrupt(&r->env, "the snapshot has not as many bytes as it should", em);
	return e;
}

enum err snap_verify(struct storage *st, const char *path, struct snap_id id, bool whole,
		     struct storage_snapshot_meta *ret_meta, struct buf *ret_config, struct errmsg *em)
{
	struct storage_snapshot_reader r = { .st = st };
	MDB_txn *txn;
	enum err e = reader_open(&r, path, id, em);
	if (e)
		return e;
	e = env_begin(&r.env, false, &txn, em);
	if (!e && whole)
		e = verify_chunks(&r, txn, em);
	if (!e && ret_meta) {
		*ret_meta = r.meta;
		*ret_config = buf_take(&r.config);
		ret_meta->config = buf_view(ret_config);
	}
	mdb_txn_abort(txn);
	reader_close(&r);
	return e;
}
