/* test_sqlite.c: marks beside the data in SQLite; two connections, as two processes would have. */
#include <holdfast_fence.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "suites.h"

static char path[64];
static sqlite3 *old_one, *new_one;

static void run(sqlite3 *db, const char *sql)
{
	ck_assert_msg(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
}

static void setup(void)
{
	int fd;
	snprintf(path, sizeof(path), "/tmp/holdfast-fence-XXXXXX");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(sqlite3_open(path, &old_one), SQLITE_OK);
	ck_assert_int_eq(sqlite3_open(path, &new_one), SQLITE_OK);
	run(old_one, "PRAGMA journal_mode = WAL");
	run(old_one, "CREATE TABLE data (value TEXT); INSERT INTO data VALUES ('first')");
	ck_assert_int_eq(hf_fence_sqlite_init(old_one), HF_FENCE_OK);
	ck_assert_int_eq(hf_fence_sqlite_init(new_one), HF_FENCE_OK); /* there already */
}

static void teardown(void)
{
	char extra[80];
	sqlite3_close(old_one);
	sqlite3_close(new_one);
	unlink(path);
	snprintf(extra, sizeof(extra), "%s-wal", path);
	unlink(extra);
	snprintf(extra, sizeof(extra), "%s-shm", path);
	unlink(extra);
}

static enum hf_fence_code fence(sqlite3 *db, enum hf_fence_mode mode, int64_t token)
{
	return hf_fence_sqlite(db, "lock", 4, mode, token);
}

static enum hf_fence_code guarded_write(sqlite3 *db, enum hf_fence_mode mode, int64_t token, const char *value)
{
	enum hf_fence_code c;
	char *sql = sqlite3_mprintf("UPDATE data SET value = %Q", value);
	run(db, "BEGIN IMMEDIATE");
	c = fence(db, mode, token);
	if (!c)
		run(db, sql);
	run(db, c ? "ROLLBACK" : "COMMIT");
	sqlite3_free(sql);
	return c;
}

static void check_value(sqlite3 *db, const char *want)
{
	sqlite3_stmt *st;
	ck_assert_int_eq(sqlite3_prepare_v2(db, "SELECT value FROM data", -1, &st, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_step(st), SQLITE_ROW);
	ck_assert_str_eq((const char *)sqlite3_column_text(st, 0), want);
	sqlite3_finalize(st);
}

START_TEST(sqlite__newer_is_let_in_and_older_refused)
{
	struct hf_fence_marks m;
	ck_assert_int_eq(guarded_write(old_one, HF_FENCE_EXCLUSIVE, 10, "ten"), HF_FENCE_OK);
	ck_assert_int_eq(guarded_write(new_one, HF_FENCE_EXCLUSIVE, 20, "twenty"), HF_FENCE_OK);
	ck_assert_int_eq(guarded_write(old_one, HF_FENCE_EXCLUSIVE, 10, "ten, late"), HF_FENCE_STALE);
	check_value(new_one, "twenty");
	ck_assert_int_eq(guarded_write(new_one, HF_FENCE_SHARED, 25, "shared"), HF_FENCE_OK);
	ck_assert_int_eq(guarded_write(old_one, HF_FENCE_SHARED, 22, "shared too"), HF_FENCE_OK);
	ck_assert_int_eq(guarded_write(old_one, HF_FENCE_EXCLUSIVE, 20, "twenty, late"), HF_FENCE_STALE);
	check_value(new_one, "shared too");
	ck_assert_int_eq(hf_fence_sqlite_get(new_one, "lock", 4, &m), HF_FENCE_OK);
	ck_assert_int_eq(m.exclusive, 20);
	ck_assert_int_eq(m.any, 25);
}
END_TEST

/* The new one only raises the mark; then it reads; the old one's prepared write comes in between. */
START_TEST(sqlite__the_first_act_raises_the_mark)
{
	ck_assert_int_eq(guarded_write(old_one, HF_FENCE_EXCLUSIVE, 10, "ten"), HF_FENCE_OK);
	run(new_one, "BEGIN IMMEDIATE");
	ck_assert_int_eq(fence(new_one, HF_FENCE_EXCLUSIVE, 20), HF_FENCE_OK);
	run(new_one, "COMMIT");
	check_value(new_one, "ten");
	ck_assert_int_eq(guarded_write(old_one, HF_FENCE_EXCLUSIVE, 10, "ten, late"), HF_FENCE_STALE);
	check_value(new_one, "ten");
}
END_TEST

/* A deferred transaction that saw an old snapshot may not become the writer: the later mark cannot be missed. */
START_TEST(sqlite__an_old_snapshot_gets_nowhere)
{
	ck_assert_int_eq(guarded_write(old_one, HF_FENCE_EXCLUSIVE, 10, "ten"), HF_FENCE_OK);
	run(old_one, "BEGIN");
	check_value(old_one, "ten");
	ck_assert_int_eq(guarded_write(new_one, HF_FENCE_EXCLUSIVE, 20, "twenty"), HF_FENCE_OK);
	ck_assert_int_eq(fence(old_one, HF_FENCE_EXCLUSIVE, 10), HF_FENCE_BUSY);
	run(old_one, "ROLLBACK");
	run(old_one, "BEGIN");
	ck_assert_int_eq(fence(old_one, HF_FENCE_EXCLUSIVE, 10), HF_FENCE_STALE);
	run(old_one, "ROLLBACK");
}
END_TEST

START_TEST(sqlite__one_writer_between_check_and_commit)
{
	run(old_one, "BEGIN");
	ck_assert_int_eq(fence(old_one, HF_FENCE_EXCLUSIVE, 10), HF_FENCE_OK);
	run(new_one, "BEGIN");
	ck_assert_int_eq(fence(new_one, HF_FENCE_EXCLUSIVE, 20), HF_FENCE_BUSY);
	run(new_one, "ROLLBACK");
	run(old_one, "COMMIT");
}
END_TEST

START_TEST(sqlite__bad_input_is_said)
{
	ck_assert_int_eq(fence(old_one, HF_FENCE_EXCLUSIVE, 10), HF_FENCE_NO_TRANSACTION);
	run(old_one, "BEGIN IMMEDIATE");
	ck_assert_int_eq(fence(old_one, HF_FENCE_EXCLUSIVE, 0), HF_FENCE_INVALID);
	ck_assert_int_eq(hf_fence_sqlite(old_one, "", 0, HF_FENCE_SHARED, 3), HF_FENCE_INVALID);
	ck_assert_int_eq(hf_fence_sqlite(old_one, NULL, 4, HF_FENCE_SHARED, 3), HF_FENCE_INVALID);
	run(old_one, "INSERT INTO holdfast_fence VALUES (CAST('lock' AS BLOB), 'x', 'y')");
	ck_assert_int_eq(fence(old_one, HF_FENCE_EXCLUSIVE, 7), HF_FENCE_CORRUPT);
	run(old_one, "DROP TABLE holdfast_fence");
	ck_assert_int_eq(fence(old_one, HF_FENCE_EXCLUSIVE, 7), HF_FENCE_FAILED);
	run(old_one, "ROLLBACK");
}
END_TEST

TCase *sqlite_case(void)
{
	TCase *t = tcase_create("sqlite");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, sqlite__newer_is_let_in_and_older_refused);
	tcase_add_test(t, sqlite__the_first_act_raises_the_mark);
	tcase_add_test(t, sqlite__an_old_snapshot_gets_nowhere);
	tcase_add_test(t, sqlite__one_writer_between_check_and_commit);
	tcase_add_test(t, sqlite__bad_input_is_said);
	return t;
}
