/* log_read.c: the log's reading side. Every read is a short transaction of its own, so that a reader never keeps the
 * writer from using freed pages again; every entry is checked against its CRC on the way. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

/* What we read may stay resident up to this; a scan of the whole log would otherwise count it all as ours. */
#define RESIDENT_BYTES ((size_t)8 << 20)

static enum err entry_corrupt(struct storage *st, uint64_t index, const char *what, struct errmsg *em)
{
	char text[80];
	snprintf(text, sizeof text, "log entry %llu %s", (unsigned long long)index, what);
	return env_corrupt(&st->log, text, em);
}

enum err log_entry_get(struct storage *st, MDB_txn *txn, uint64_t index, struct storage_entry *ret, struct errmsg *em)
{
	MDB_val key = key_of(&index), value;
	int rc = mdb_get(txn, st->log.table, &key, &value);
	if (rc == MDB_NOTFOUND)
		return entry_corrupt(st, index, "is missing", em);
	if (rc)
		return env_err(&st->log, rc, "read the log", em);
	if (!entry_decode(index, value, ret))
		return entry_corrupt(st, index, "does not match its checksum", em);
	return ERR_OK;
}

/* A walk over consecutive entries. */
struct walk {
	struct storage *st;
	MDB_txn *txn;
	MDB_cursor *cursor;
	struct map_use use;
	uint64_t next;
};

static enum err walk_begin(struct walk *w, struct storage *st, struct errmsg *em)
{
	*w = (struct walk){ .st = st };
	enum err e = env_begin(&st->log, false, &w->txn, em);
	if (e)
		return e;
	e = env_err(&st->log, mdb_cursor_open(w->txn, st->log.table, &w->cursor), "read the log", em);
	if (e)
		mdb_txn_abort(w->txn);
	return e;
}

static void walk_end(struct walk *w)
{
	mdb_cursor_close(w->cursor);
	mdb_txn_abort(w->txn);
	map_use_drop(&w->use, RESIDENT_BYTES);
}

/* The entry `next`, which must be there and be what the cursor finds: `op` is MDB_SET_KEY at first, then MDB_NEXT. */
static enum err walk_entry(struct walk *w, MDB_cursor_op op, struct storage_entry *ret, MDB_val *ret_value,
			   struct errmsg *em)
{
	MDB_val key = key_of(&w->next);
	uint64_t index;
	int rc = mdb_cursor_get(w->cursor, &key, ret_value, op);
	if (rc && rc != MDB_NOTFOUND)
		return env_err(&w->st->log, rc, "read the log", em);
	if (rc == MDB_NOTFOUND || !key_get(key, &index) || index != w->next)
		return entry_corrupt(w->st, w->next, "is missing", em);
	if (!entry_decode(index, *ret_value, ret))
		return entry_corrupt(w->st, index, "does not match its checksum", em);
	map_use_note(&w->use, *ret_value);
	w->next++;
	return ERR_OK;
}

/* ---- storage_read ---- */

struct collector {
	struct storage_read_result result;
	size_t cap;
};

static void collect(struct collector *c, const struct storage_entry *en)
{
	struct storage_read_result *r = &c->result;
	if (r->entries_len == c->cap) {
		c->cap = c->cap ? 2 * c->cap : 64;
		r->entries = mem_realloc(r->entries, c->cap * sizeof *r->entries);
	}
	r->entries[r->entries_len++] = *en;
	buf_append_slice(&r->payload, en->payload);
}

/* Payloads were views of the map; the buffer has stopped moving. */
static void settle(struct collector *c)
{
	const uint8_t *at = c->result.payload.ptr;
	for (size_t i = 0; i < c->result.entries_len; i++) {
		struct slice *s = &c->result.entries[i].payload;
		s->ptr = at;
		at += s->len;
	}
}

static enum err read_span(struct walk *w, uint64_t to, size_t max_bytes, struct collector *c, struct errmsg *em)
{
	MDB_cursor_op op = MDB_SET_KEY;
	while (w->next <= to) {
		struct storage_entry en;
		MDB_val value;
		enum err e = walk_entry(w, op, &en, &value, em);
		if (e)
			return e;
		size_t have = c->result.payload.len;
		if (c->result.entries_len && (have > max_bytes || en.payload.len > max_bytes - have))
			break;
		collect(c, &en);
		op = MDB_NEXT;
	}
	return ERR_OK;
}

enum err storage_read(struct storage *st, uint64_t from, uint64_t to, size_t max_bytes, struct storage_read_result *ret,
		      struct errmsg *em)
{
	struct walk w;
	struct extent x;
	struct collector c = { 0 };
	enum err e = walk_begin(&w, st, em);
	if (e)
		return e;
	e = extent_get(st, w.txn, &x, em); /* of the same transaction: the log may change meanwhile */
	if (!e && (from < x.first || from > x.last || from > to)) {
		errmsg_set(em, "log entry %llu is not there: the log holds %llu to %llu", (unsigned long long)from,
			   (unsigned long long)x.first, (unsigned long long)x.last);
		e = ERR_NOT_FOUND;
	}
	if (!e) {
		w.next = from;
		e = read_span(&w, to < x.last ? to : x.last, max_bytes, &c, em);
	}
	walk_end(&w);
	if (e) {
		storage_read_result_free(&c.result);
		return e;
	}
	settle(&c);
	*ret = c.result;
	return ERR_OK;
}

void storage_read_result_free(struct storage_read_result *r)
{
	if (!r)
		return;
	free(r->entries);
	buf_free(&r->payload);
	*r = (struct storage_read_result){ 0 };
}

/* ---- the check at open ---- */

static enum err scan_entries(struct walk *w, const struct extent *x, struct errmsg *em)
{
	struct storage_entry en = { 0 };
	MDB_cursor_op op = MDB_FIRST;
	for (w->next = x->first; w->next <= x->last; op = MDB_NEXT) {
		uint64_t term = en.term;
		MDB_val value;
		enum err e = walk_entry(w, op, &en, &value, em);
		if (!e && en.term < term)
			e = entry_corrupt(w->st, en.index, "has a lower term than the one before", em);
		if (e)
			return e;
		map_use_drop(&w->use, RESIDENT_BYTES);
	}
	if (x->first <= x->last && en.term != x->last_term)
		return entry_corrupt(w->st, en.index, "has another term than was recorded", em);
	MDB_stat stat;
	int rc = mdb_stat(w->txn, w->st->log.table, &stat);
	if (!rc && stat.ms_entries != x->last + 1 - x->first)
		return env_corrupt(&w->st->log, "the log holds entries outside of its extent", em);
	return env_err(&w->st->log, rc, "read the log", em);
}

enum err log_records(struct storage *st, struct storage_hard_state *ret_hard, struct extent *ret, struct storage_lost *ret_lost, struct errmsg *em)
{
	MDB_txn *txn;
	enum err e = env_begin(&st->log, false, &txn, em);
	if (e)
		return e;
	e = extent_get(st, txn, ret, em);
	if (!e)
		e = hard_get(st, txn, ret_hard, em);
	if (!e)
		e = lost_get(st, txn, ret_lost, em);
	mdb_txn_abort(txn);
	return e;
}

enum err log_scan(struct storage *st, const struct extent *x, struct errmsg *em)
{
	struct walk w;
	enum err e = walk_begin(&w, st, em);
	if (e)
		return e;
	e = scan_entries(&w, x, em);
	walk_end(&w);
	return e;
}
