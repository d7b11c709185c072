/* sqlite.c: marks in a table of the database that has the data.
 *
 * The check writes first, though it may change nothing: that makes the transaction the one writer there is, and only then are the marks read. Read first, they
 * could be those of a snapshot, and a later holder's be missed until the commit. */
#include "holdfast_fence.h"

#include <sqlite3.h>

#include "fence.h"

static enum hf_fence_code failed(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return HF_FENCE_BUSY;
	default:
		return HF_FENCE_FAILED;
	}
}

enum hf_fence_code hf_fence_sqlite_init(sqlite3 *db)
{
	int rc = sqlite3_exec(db,
			      "CREATE TABLE IF NOT EXISTS holdfast_fence ("
			      " name BLOB PRIMARY KEY NOT NULL,"
			      " exclusive INTEGER NOT NULL,"
			      " highest INTEGER NOT NULL CHECK (highest >= exclusive)"
			      ") WITHOUT ROWID",
			      NULL, NULL, NULL);
	return rc ? failed(rc) : HF_FENCE_OK;
}

/* Runs one statement; name is ?1, marks are ?2 and ?3 where they are named. *ret_marks: columns 0 and 1 of the row, when there is one. */
static enum hf_fence_code run(sqlite3 *db, const char *sql, const void *name, size_t name_len, const struct hf_fence_marks *in, struct hf_fence_marks *ret_marks)
{
	sqlite3_stmt *st = NULL;
	enum hf_fence_code c = HF_FENCE_OK;
	int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_bind_blob(st, 1, name, (int)name_len, SQLITE_STATIC);
	if (rc == SQLITE_OK && in)
		rc = sqlite3_bind_int64(st, 2, in->exclusive);
	if (rc == SQLITE_OK && in)
		rc = sqlite3_bind_int64(st, 3, in->any);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	if (rc == SQLITE_ROW && ret_marks) {
		if (sqlite3_column_type(st, 0) != SQLITE_INTEGER || sqlite3_column_type(st, 1) != SQLITE_INTEGER)
			c = HF_FENCE_CORRUPT;
		*ret_marks = (struct hf_fence_marks){ .exclusive = sqlite3_column_int64(st, 0), .any = sqlite3_column_int64(st, 1) };
	} else if (rc != SQLITE_DONE) {
		c = failed(rc);
	}
	sqlite3_finalize(st);
	return c;
}

enum hf_fence_code hf_fence_sqlite_get(sqlite3 *db, const void *name, size_t name_len, struct hf_fence_marks *ret_marks)
{
	struct hf_fence_marks m = { 0, 0 };
	enum hf_fence_code c;
	if (!db || !fence_args_ok(name, name_len))
		return HF_FENCE_INVALID;
	c = run(db, "SELECT exclusive, highest FROM main.holdfast_fence WHERE name = ?1", name, name_len, NULL, &m);
	if (c)
		return c;
	if (!fence_marks_ok(&m))
		return HF_FENCE_CORRUPT;
	*ret_marks = m;
	return HF_FENCE_OK;
}

enum hf_fence_code hf_fence_sqlite(sqlite3 *db, const void *name, size_t name_len, enum hf_fence_mode mode, int64_t token)
{
	static const struct hf_fence_marks none = { 0, 0 };
	struct hf_fence_marks m = none;
	enum hf_fence_code c;
	if (!db || !fence_args_ok(name, name_len) || hf_fence_admit(&m, mode, token))
		return HF_FENCE_INVALID;
	if (sqlite3_get_autocommit(db))
		return HF_FENCE_NO_TRANSACTION;
	c = run(db, "INSERT INTO main.holdfast_fence (name, exclusive, highest) VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE SET highest = highest",
		name, name_len, &none, NULL);
	if (!c)
		c = hf_fence_sqlite_get(db, name, name_len, &m);
	if (!c)
		c = hf_fence_admit(&m, mode, token);
	if (!c)
		c = run(db, "UPDATE main.holdfast_fence SET exclusive = ?2, highest = ?3 WHERE name = ?1", name, name_len, &m, NULL);
	return c;
}
