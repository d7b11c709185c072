/* snap_part.c: a snapshot that is received over a long time, and goes on after a restart.
 *
 * It grows as one that we make does (snap_write.c), in a directory of another name, with a record of what was announced. Nothing says how
 * much of it is there but the chunks themselves: LMDB's commit puts a chunk there whole, behind all before it, or not at all.
 *
 *   directory made ── announced, and its name synced ── chunks, some a commit ── sealed, renamed, ... as in snap_write.c
 *
 *   (R1) there is one at a time: who begins one removes all others, and so does each open.
 *   (R2) an open reads every chunk. A part in which anything is damaged or not understood is removed: it comes again, and a
 *        damaged tree must not be written to.
 *   (R3) so is one that stands for no more than the newest whole snapshot. */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"

#define RECORD_PART "part"

/* ---- what was announced ---- */

static enum err announce(struct storage_snapshot_writer *w, const struct storage_snapshot_part *part, struct errmsg *em)
{
	struct buf body = { 0 };
	enum err e = writer_begin(w, em);
	if (e)
		return e;
	enc_u64(&body, part->index);
	enc_u64(&body, part->term);
	enc_u64(&body, part->chunks);
	enc_u64(&body, part->state_hash);
	e = record_put(&w->env, w->txn, RECORD_PART, buf_view(&body), em);
	buf_free(&body);
	if (!e)
		e = writer_commit(w, em);
	if (!e)
		e = dir_sync(w->tmp_path, em);
	return e ? e : dir_sync(w->st->dir, em);
}

static enum err announced(const struct env *ev, MDB_txn *txn, struct storage_snapshot_part *ret, struct errmsg *em)
{
	struct slice body;
	enum err e = record_get(ev, txn, RECORD_PART, &body, em);
	if (e)
		return e;
	struct decoder d = { .rest = body };
	ret->index = dec_u64(&d);
	ret->term = dec_u64(&d);
	ret->chunks = dec_u64(&d);
	ret->state_hash = dec_u64(&d);
	return dec_done(&d) ? ERR_OK : env_corrupt(ev, "what was announced cannot be read", em);
}

static bool is_same(const struct storage_snapshot_part *a, const struct storage_snapshot_part *b)
{
	return a->index == b->index && a->term == b->term && a->chunks == b->chunks && a->state_hash == b->state_hash;
}

/* ---- on disk ---- */

/* All parts but that of `keep`. */
static enum err remove_others(struct storage *st, struct snap_id keep, struct errmsg *em)
{
	DIR *d = opendir(st->dir);
	enum err e = d ? ERR_OK : disk_err(st->dir, errno, "list the data directory", em);
	for (struct dirent *de; !e && (de = readdir(d)) != NULL;) {
		struct snap_id id;
		if (!snap_name_parse(de->d_name, PART_SUFFIX, &id) || (id.index == keep.index && id.term == keep.term))
			continue;
		char *path = path_join(st->dir, de->d_name);
		e = dir_remove(path, em);
		free(path);
	}
	if (d)
		closedir(d);
	return e;
}

/* The one that reaches furthest; zeros: none. */
static enum err find(struct storage *st, struct snap_id *ret, struct errmsg *em)
{
	struct snap_id best = { 0 };
	DIR *d = opendir(st->dir);
	if (!d)
		return disk_err(st->dir, errno, "list the data directory", em);
	for (struct dirent *de; (de = readdir(d)) != NULL;) {
		struct snap_id id;
		if (snap_name_parse(de->d_name, PART_SUFFIX, &id) && id.index > best.index)
			best = id;
	}
	closedir(d);
	*ret = best;
	return ERR_OK;
}

static enum err look(const struct env *ev, struct snap_id id, struct storage_snapshot_part *ret, uint64_t *ret_bytes, struct errmsg *em)
{
	MDB_txn *txn;
	enum err e = env_begin(ev, false, &txn, em);
	if (e)
		return e;
	e = announced(ev, txn, ret, em);
	if (!e)
		e = snap_chunks_count(ev, txn, &ret->have, em);
	if (!e && (ret->index != id.index || ret->term != id.term || ret->have == 0 || ret->have > ret->chunks))
		e = env_corrupt(ev, "it is not the part that its name says", em);
	if (!e)
		e = snap_chunks_check(ev, txn, ret->have, ret_bytes, em);
	mdb_txn_abort(txn);
	return e;
}

/* Any error: it is of no use. */
static enum err load(struct storage *st, struct snap_id id, struct storage_snapshot_part *ret, struct errmsg *em)
{
	char *path = snap_path(st, id, PART_SUFFIX);
	struct env ev;
	uint64_t bytes;
	enum err e = env_open(&ev, path, ENV_READ, 0, em);
	free(path);
	if (e)
		return e;
	e = look(&ev, id, ret, &bytes, em);
	env_close(&ev);
	return e;
}

enum err snap_part_load(struct storage *st, struct errmsg *em)
{
	struct storage_snapshot_part part = { 0 };
	struct errmsg ignored;
	struct snap_id id;
	enum err e = find(st, &id, em);
	if (e)
		return e;
	if (id.index <= snap_newest(st).index || load(st, id, &part, &ignored)) {
		id = (struct snap_id){ 0 };
		part = (struct storage_snapshot_part){ 0 };
	}
	st->state.part = part;
	return remove_others(st, id, em);
}

/* ---- begin, leave, go on ---- */

enum err storage_snapshot_receive(struct storage *st, const struct storage_snapshot_part *part, struct storage_snapshot_writer **ret,
				  struct errmsg *em)
{
	struct snap_id id = { .index = part->index, .term = part->term };
	struct storage_snapshot_writer *w;
	enum err e = writer_new(st, id, PART_SUFFIX, &w, em);
	if (e)
		return e;
	e = remove_others(st, id, em); /* (R1) */
	if (!e)
		e = writer_make(w, em);
	if (!e)
		e = announce(w, part, em);
	if (e)
		storage_snapshot_abort(w);
	else
		*ret = w;
	return e;
}

static enum err go_on(struct storage_snapshot_writer *w, const struct storage_snapshot_part *part, struct errmsg *em)
{
	struct storage_snapshot_part there;
	enum err e = look(&w->env, w->id, &there, &w->now.bytes, em);
	if (e)
		return e;
	if (!is_same(&there, part)) {
		errmsg_set(em, "what is there of a snapshot of index %llu is of another one", (unsigned long long)part->index);
		return ERR_NOT_FOUND;
	}
	w->now.chunks = there.have;
	w->durable = w->now;
	return ERR_OK;
}

enum err storage_snapshot_resume(struct storage *st, const struct storage_snapshot_part *part, struct storage_snapshot_writer **ret,
				 struct errmsg *em)
{
	struct snap_id id = { .index = part->index, .term = part->term }, there;
	struct storage_snapshot_writer *w;
	enum err e = find(st, &there, em);
	if (!e && (there.index != id.index || there.term != id.term)) {
		errmsg_set(em, "there is nothing of a snapshot of index %llu", (unsigned long long)id.index);
		e = ERR_NOT_FOUND;
	}
	if (!e)
		e = writer_new(st, id, PART_SUFFIX, &w, em);
	if (e)
		return e;
	e = env_open(&w->env, w->tmp_path, ENV_WRITE, st->snapshot_map_bytes, em);
	if (!e)
		e = go_on(w, part, em);
	if (e)
		storage_snapshot_suspend(w);
	else
		*ret = w;
	return e;
}

void storage_snapshot_suspend(struct storage_snapshot_writer *w)
{
	struct errmsg ignored;
	if (!w)
		return;
	ASSERT(w->phase == WRITER_WRITING);
	(void)writer_commit(w, &ignored); /* or what was not durable comes again */
	env_close(&w->env);
	writer_free(w);
}

enum err storage_snapshot_drop_part(struct storage *st, struct errmsg *em)
{
	return remove_others(st, (struct snap_id){ 0 }, em);
}
