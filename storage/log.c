/* log.c: the log's writing side.
 *
 * Hard state, the log's extent and its entries change in one transaction, so what is on disk is always some commit and
 * never half of one. Invariants, after every commit:
 *   (S1) the table holds exactly the entries extent.first..extent.last.
 *   (S2) extent.last_term is the term of extent.last, or of the snapshot where that is no entry.
 *   (S3) extent.first <= newest snapshot + 1, and extent.last >= newest snapshot: state plus log is everything.
 *        Between the renaming of a received snapshot and log_install() this is broken; storage_open() mends it.
 *   (S4) the record of what is lost is there exactly while the log does not reach so far again.
 * The extent is a record of its own although the table tells the same: a tree that lost its last page must not pass for
 * a shorter log. */
#include "internal.h"

#include "base/mem.h"

#define PAYLOAD_MAX (UINT64_C(1) << 30)

/* A commit that trims drops at least so many entries, and twice what it appends, so that trimming catches up; but no
 * more bytes than this, each large entry being a list of pages to free. 1,000 take some 0.4 ms. */
#define TRIM_ENTRIES 1000u
#define TRIM_BYTES (UINT64_C(32) << 20)

struct commit_job {
	const struct storage_batch *batch;
	uint64_t trim_to;
	struct snap_id base;
	struct extent next;
};

enum err log_transact(struct storage *st, log_body body, void *arg, struct errmsg *em)
{
	if (st->failed) {
		errmsg_set(em, "the disk under '%s' failed before, nothing more is written: check it, and start again",
			   st->dir);
		return ERR_IO;
	}
	MDB_txn *txn;
	enum err e = env_begin(&st->log, true, &txn, em);
	if (!e) {
		e = body(st, txn, arg, em);
		if (e)
			mdb_txn_abort(txn);
		else
			e = env_err(&st->log, mdb_txn_commit(txn), "commit", em);
	}
	/* After a failed flush the kernel may have dropped the pages and called them clean: a second try that succeeds
	 * would prove nothing. */
	if (e == ERR_IO)
		st->failed = true;
	return e;
}

void log_fail(struct storage *st)
{
	pthread_mutex_lock(&st->log_mu);
	st->failed = true;
	pthread_mutex_unlock(&st->log_mu);
}

uint64_t log_last(struct storage *st)
{
	pthread_mutex_lock(&st->log_mu);
	uint64_t last = st->extent.last;
	pthread_mutex_unlock(&st->log_mu);
	return last;
}

/* ---- records ---- */

static enum err numbers_put(struct storage *st, MDB_txn *txn, const char *name, const uint64_t v[3], struct errmsg *em)
{
	uint8_t bytes[24];
	for (size_t i = 0; i < 3; i++)
		put_u64(bytes + 8 * i, v[i]);
	return record_put(&st->log, txn, name, slice_of(bytes, sizeof bytes), em);
}

/* Leaves v alone when the record was never written. */
static enum err numbers_get(struct storage *st, MDB_txn *txn, const char *name, uint64_t v[3], struct errmsg *em)
{
	struct slice body;
	enum err e = record_get(&st->log, txn, name, &body, em);
	if (e)
		return e == ERR_NOT_FOUND ? ERR_OK : e;
	struct decoder d = { .rest = body };
	for (size_t i = 0; i < 3; i++)
		v[i] = dec_u64(&d);
	return dec_done(&d) ? ERR_OK : env_corrupt(&st->log, "a record has the wrong length", em);
}

static enum err extent_put(struct storage *st, MDB_txn *txn, const struct extent *x, struct errmsg *em)
{
	ASSERT(x->first <= x->last + 1);
	return numbers_put(st, txn, RECORD_EXTENT, (uint64_t[]){ x->first, x->last, x->last_term }, em);
}

enum err extent_get(struct storage *st, MDB_txn *txn, struct extent *ret, struct errmsg *em)
{
	uint64_t v[3] = { 1, 0, 0 }; /* the log of a new directory */
	enum err e = numbers_get(st, txn, RECORD_EXTENT, v, em);
	if (e)
		return e;
	if (v[0] == 0 || v[0] - 1 > v[1])
		return env_corrupt(&st->log, "the log's extent makes no sense", em);
	*ret = (struct extent){ .first = v[0], .last = v[1], .last_term = v[2] };
	return ERR_OK;
}

/* Term and vote share one record. Were they written one after the other, a crash in between could keep the new term and
 * lose the vote: we would vote again in that term, and elect two leaders. */
static enum err hard_put(struct storage *st, MDB_txn *txn, const struct storage_hard_state *h, struct errmsg *em)
{
	ASSERT(h->term >= st->hard.term);
	ASSERT_IF(h->term == st->hard.term && st->hard.voted_for, h->voted_for == st->hard.voted_for);
	return numbers_put(st, txn, RECORD_HARD, (uint64_t[]){ h->term, h->voted_for, h->commit }, em);
}

enum err hard_get(struct storage *st, MDB_txn *txn, struct storage_hard_state *ret, struct errmsg *em)
{
	uint64_t v[3] = { 0 };
	enum err e = numbers_get(st, txn, RECORD_HARD, v, em);
	if (e)
		return e;
	*ret = (struct storage_hard_state){ .term = v[0], .voted_for = v[1], .commit = v[2] };
	return ERR_OK;
}

bool extent_reaches(const struct extent *x, struct storage_lost lost)
{
	return x->last_term > lost.term || (x->last_term == lost.term && x->last >= lost.index);
}

enum err lost_get(struct storage *st, MDB_txn *txn, struct storage_lost *ret, struct errmsg *em)
{
	uint64_t v[3] = { 0 };
	enum err e = numbers_get(st, txn, RECORD_LOST, v, em);
	if (!e)
		*ret = (struct storage_lost){ .index = v[0], .term = v[1] };
	return e;
}

/* (S4) */
static enum err lost_settle(struct storage *st, MDB_txn *txn, const struct extent *x, struct errmsg *em)
{
	MDB_val key = { .mv_size = strlen(RECORD_LOST), .mv_data = (void *)(uintptr_t)RECORD_LOST };
	if (!st->lost.index || !extent_reaches(x, st->lost))
		return ERR_OK;
	return env_err(&st->log, mdb_del(txn, st->log.records, &key, NULL), "forget what was lost", em);
}

static void extent_set(struct storage *st, const struct extent *x)
{
	st->extent = *x;
	if (st->lost.index && extent_reaches(x, st->lost))
		st->lost = (struct storage_lost){ 0 };
}

/* ---- the parts of a commit, in their order ---- */

static enum err entry_delete(struct storage *st, MDB_txn *txn, uint64_t index, struct errmsg *em)
{
	MDB_val key = key_of(&index);
	int rc = mdb_del(txn, st->log.table, &key, NULL);
	if (rc == MDB_NOTFOUND)
		return env_corrupt(&st->log, "an entry is missing from the log", em);
	return env_err(&st->log, rc, "drop entries", em);
}

static enum err truncate(struct storage *st, MDB_txn *txn, struct commit_job *job, struct errmsg *em)
{
	struct extent *x = &job->next;
	uint64_t from = job->batch->truncate_from;
	if (from == 0 || from > x->last)
		return ERR_OK;
	ASSERT(from > job->base.index); /* what a snapshot holds is committed */
	ASSERT(from >= x->first);       /* follows, by S3 */
	enum err e = ERR_OK;
	while (!e && x->last >= from)
		e = entry_delete(st, txn, x->last--, em);
	if (!e && x->last == job->base.index) {
		x->last_term = job->base.term;
	} else if (!e) {
		struct storage_entry en;
		e = log_entry_get(st, txn, x->last, &en, em);
		if (!e)
			x->last_term = en.term;
	}
	return e;
}

static enum err append(struct storage *st, MDB_txn *txn, struct commit_job *job, struct errmsg *em)
{
	struct extent *x = &job->next;
	for (size_t i = 0; i < job->batch->entries_len; i++) {
		const struct storage_entry *en = &job->batch->entries[i];
		ASSERT(en->index == x->last + 1);
		ASSERT(en->term >= x->last_term);
		ASSERT(en->payload.len <= PAYLOAD_MAX);
		MDB_val key = key_of(&en->index);
		MDB_val value = { .mv_size = ENTRY_HEADER + en->payload.len };
		int rc = mdb_put(txn, st->log.table, &key, &value, MDB_APPEND | MDB_RESERVE);
		if (rc == MDB_KEYEXIST)
			return env_corrupt(&st->log, "the log holds entries behind its end", em);
		if (rc)
			return env_err(&st->log, rc, "append", em);
		entry_encode(en, value.mv_data);
		x->last = en->index;
		x->last_term = en->term;
	}
	return ERR_OK;
}

static enum err trim(struct storage *st, MDB_txn *txn, struct commit_job *job, struct errmsg *em)
{
	struct extent *x = &job->next;
	uint64_t to = job->trim_to < x->last ? job->trim_to : x->last;
	uint64_t budget = 2 * (uint64_t)job->batch->entries_len;
	uint64_t bytes = 0;
	if (budget < TRIM_ENTRIES)
		budget = TRIM_ENTRIES;
	enum err e = ERR_OK;
	while (!e && x->first <= to && budget-- && bytes < TRIM_BYTES) {
		MDB_val key = key_of(&x->first), value = { 0 };
		if (mdb_get(txn, st->log.table, &key, &value) == 0)
			bytes += value.mv_size;
		e = entry_delete(st, txn, x->first++, em);
	}
	return e;
}

static enum err commit_body(struct storage *st, MDB_txn *txn, void *arg, struct errmsg *em)
{
	struct commit_job *job = arg;
	enum err e = ERR_OK;
	if (job->batch->hard)
		e = hard_put(st, txn, job->batch->hard, em);
	if (!e)
		e = truncate(st, txn, job, em);
	if (!e)
		e = append(st, txn, job, em);
	if (!e)
		e = trim(st, txn, job, em);
	if (!e && memcmp(&job->next, &st->extent, sizeof job->next) != 0)
		e = extent_put(st, txn, &job->next, em);
	return e ? e : lost_settle(st, txn, &job->next, em);
}

static bool trim_pending(const struct storage *st, uint64_t trim_to)
{
	return st->extent.first <= trim_to && st->extent.first <= st->extent.last;
}

static enum err commit_locked(struct storage *st, const struct storage_batch *b, struct errmsg *em)
{
	struct commit_job job = {
		.batch = b,
		.trim_to = b->trim_to > st->trim_to ? b->trim_to : st->trim_to,
		.base = snap_newest(st),
		.next = st->extent,
	};
	ASSERT(b->trim_to <= job.base.index);
	if (!b->hard && !b->truncate_from && !b->entries_len && !trim_pending(st, job.trim_to))
		return ERR_OK;
	enum err e = log_transact(st, commit_body, &job, em);
	if (e)
		return e;
	extent_set(st, &job.next);
	st->trim_to = job.trim_to;
	if (b->hard)
		st->hard = *b->hard;
	return ERR_OK;
}

enum err storage_commit(struct storage *st, const struct storage_batch *batch, struct errmsg *em)
{
	pthread_mutex_lock(&st->log_mu);
	enum err e = commit_locked(st, batch, em);
	pthread_mutex_unlock(&st->log_mu);
	return e;
}

bool storage_trim_pending(struct storage *st)
{
	pthread_mutex_lock(&st->log_mu);
	bool pending = trim_pending(st, st->trim_to);
	pthread_mutex_unlock(&st->log_mu);
	return pending;
}

/* ---- the log gives way to a snapshot ---- */

static enum err reset_body(struct storage *st, MDB_txn *txn, void *arg, struct errmsg *em)
{
	const struct extent *x = arg;
	enum err e = env_err(&st->log, mdb_drop(txn, st->log.table, 0), "drop the log", em);
	if (!e)
		e = extent_put(st, txn, x, em);
	return e ? e : lost_settle(st, txn, x, em);
}

enum err log_reset(struct storage *st, struct snap_id id, struct errmsg *em)
{
	struct extent x = { .first = id.index + 1, .last = id.index, .last_term = id.term };
	enum err e = log_transact(st, reset_body, &x, em);
	if (!e)
		extent_set(st, &x);
	return e;
}

static enum err log_matches(struct storage *st, struct snap_id id, bool *ret, struct errmsg *em)
{
	struct storage_entry en = { 0 };
	*ret = false;
	if (id.index < st->extent.first || id.index > st->extent.last)
		return ERR_OK;
	MDB_txn *txn;
	enum err e = env_begin(&st->log, false, &txn, em);
	if (e)
		return e;
	e = log_entry_get(st, txn, id.index, &en, em);
	mdb_txn_abort(txn);
	*ret = !e && en.term == id.term;
	return e;
}

enum err log_install(struct storage *st, struct snap_id id, bool keep_log, struct errmsg *em)
{
	bool keep = false;
	enum err e = ERR_OK;
	pthread_mutex_lock(&st->log_mu);
	if (keep_log)
		e = log_matches(st, id, &keep, em);
	if (!e && !keep)
		e = log_reset(st, id, em);
	pthread_mutex_unlock(&st->log_mu);
	return e;
}
