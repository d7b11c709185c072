/* test_lmdb.c: marks beside the data in LMDB. */
#include <holdfast_fence.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "suites.h"

static char dir[64];
static MDB_env *env;
static MDB_dbi marks, data;

static MDB_txn *begin(void)
{
	MDB_txn *txn;
	ck_assert_int_eq(mdb_txn_begin(env, NULL, 0, &txn), 0);
	return txn;
}

static void setup(void)
{
	MDB_txn *txn;
	snprintf(dir, sizeof(dir), "/tmp/holdfast-fence-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(mdb_env_create(&env), 0);
	ck_assert_int_eq(mdb_env_set_maxdbs(env, 4), 0);
	ck_assert_int_eq(mdb_env_open(env, dir, MDB_NOSYNC, 0600), 0);
	txn = begin();
	ck_assert_int_eq(mdb_dbi_open(txn, "marks", MDB_CREATE, &marks), 0);
	ck_assert_int_eq(mdb_dbi_open(txn, "data", MDB_CREATE, &data), 0);
	ck_assert_int_eq(mdb_txn_commit(txn), 0);
}

static void teardown(void)
{
	char path[96];
	mdb_env_close(env);
	snprintf(path, sizeof(path), "%s/data.mdb", dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/lock.mdb", dir);
	unlink(path);
	rmdir(dir);
}

/* A guarded write: the check, and the value with it or nothing. */
static enum hf_fence_code guarded_put(enum hf_fence_mode mode, int64_t token, const char *value)
{
	MDB_txn *txn = begin();
	MDB_val k = { 3, (void *)(uintptr_t)"key" }, v = { strlen(value), (void *)(uintptr_t)value };
	enum hf_fence_code c = hf_fence_lmdb(txn, marks, "lock", 4, mode, token, NULL);
	if (c) {
		mdb_txn_abort(txn);
		return c;
	}
	ck_assert_int_eq(mdb_put(txn, data, &k, &v, 0), 0);
	ck_assert_int_eq(mdb_txn_commit(txn), 0);
	return c;
}

static void check_value(const char *want)
{
	MDB_txn *txn = begin();
	MDB_val k = { 3, (void *)(uintptr_t)"key" }, v;
	ck_assert_int_eq(mdb_get(txn, data, &k, &v), 0);
	ck_assert_uint_eq(v.mv_size, strlen(want));
	ck_assert_mem_eq(v.mv_data, want, v.mv_size);
	mdb_txn_abort(txn);
}

static struct hf_fence_marks marks_of(const char *name)
{
	struct hf_fence_marks m = { -1, -1 };
	MDB_txn *txn = begin();
	ck_assert_int_eq(hf_fence_lmdb_get(txn, marks, name, strlen(name), &m, NULL), HF_FENCE_OK);
	mdb_txn_abort(txn);
	return m;
}

START_TEST(lmdb__newer_is_let_in_and_older_refused)
{
	ck_assert_int_eq(guarded_put(HF_FENCE_EXCLUSIVE, 10, "ten"), HF_FENCE_OK);
	ck_assert_int_eq(guarded_put(HF_FENCE_EXCLUSIVE, 20, "twenty"), HF_FENCE_OK);
	ck_assert_int_eq(guarded_put(HF_FENCE_EXCLUSIVE, 10, "ten, late"), HF_FENCE_STALE);
	check_value("twenty");
	ck_assert_int_eq(guarded_put(HF_FENCE_SHARED, 25, "shared"), HF_FENCE_OK);
	ck_assert_int_eq(guarded_put(HF_FENCE_SHARED, 22, "shared too"), HF_FENCE_OK);
	ck_assert_int_eq(guarded_put(HF_FENCE_EXCLUSIVE, 20, "twenty, late"), HF_FENCE_STALE);
	check_value("shared too");
	ck_assert_int_eq(marks_of("lock").exclusive, 20);
	ck_assert_int_eq(marks_of("lock").any, 25);
	ck_assert_int_eq(marks_of("another").any, 0);
}
END_TEST

/* The old one's write was prepared before, and comes between the new one's look and its write. */
START_TEST(lmdb__the_first_act_raises_the_mark)
{
	MDB_txn *txn;
	ck_assert_int_eq(guarded_put(HF_FENCE_EXCLUSIVE, 10, "ten"), HF_FENCE_OK);
	txn = begin();
	ck_assert_int_eq(hf_fence_lmdb(txn, marks, "lock", 4, HF_FENCE_EXCLUSIVE, 20, NULL), HF_FENCE_OK);
	ck_assert_int_eq(mdb_txn_commit(txn), 0);
	check_value("ten"); /* what it builds on */
	ck_assert_int_eq(guarded_put(HF_FENCE_EXCLUSIVE, 10, "ten, late"), HF_FENCE_STALE);
	check_value("ten");
}
END_TEST

START_TEST(lmdb__an_aborted_transaction_raises_nothing)
{
	MDB_txn *txn = begin();
	ck_assert_int_eq(hf_fence_lmdb(txn, marks, "lock", 4, HF_FENCE_EXCLUSIVE, 30, NULL), HF_FENCE_OK);
	mdb_txn_abort(txn);
	ck_assert_int_eq(guarded_put(HF_FENCE_EXCLUSIVE, 10, "ten"), HF_FENCE_OK);
}
END_TEST

START_TEST(lmdb__what_is_no_mark_is_said)
{
	static const uint8_t upside_down[17] = { 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5 };
	MDB_val k = { 4, (void *)(uintptr_t)"lock" }, v = { 3, (void *)(uintptr_t)"abc" };
	char long_name[HF_FENCE_NAME_MAX + 1] = { 'n' };
	MDB_txn *txn = begin();
	int rc = 0;
	ck_assert_int_eq(mdb_put(txn, marks, &k, &v, 0), 0);
	ck_assert_int_eq(hf_fence_lmdb(txn, marks, "lock", 4, HF_FENCE_EXCLUSIVE, 30, NULL), HF_FENCE_CORRUPT);
	v = (MDB_val){ sizeof(upside_down), (void *)(uintptr_t)upside_down };
	ck_assert_int_eq(mdb_put(txn, marks, &k, &v, 0), 0);
	ck_assert_int_eq(hf_fence_lmdb(txn, marks, "lock", 4, HF_FENCE_EXCLUSIVE, 30, NULL), HF_FENCE_CORRUPT);
	ck_assert_int_eq(hf_fence_lmdb(txn, marks, "", 0, HF_FENCE_EXCLUSIVE, 30, NULL), HF_FENCE_INVALID);
	ck_assert_int_eq(hf_fence_lmdb(txn, marks, long_name, sizeof(long_name), HF_FENCE_EXCLUSIVE, 30, NULL), HF_FENCE_INVALID);
	ck_assert_int_eq(hf_fence_lmdb(txn, marks, "other", 5, HF_FENCE_EXCLUSIVE, 0, NULL), HF_FENCE_INVALID);
	mdb_txn_abort(txn);
	ck_assert_int_eq(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), 0);
	ck_assert_int_eq(hf_fence_lmdb(txn, marks, "lock", 4, HF_FENCE_EXCLUSIVE, 30, &rc), HF_FENCE_FAILED);
	ck_assert_int_ne(rc, 0);
	mdb_txn_abort(txn);
}
END_TEST

TCase *lmdb_case(void)
{
	TCase *t = tcase_create("lmdb");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, lmdb__newer_is_let_in_and_older_refused);
	tcase_add_test(t, lmdb__the_first_act_raises_the_mark);
	tcase_add_test(t, lmdb__an_aborted_transaction_raises_nothing);
	tcase_add_test(t, lmdb__what_is_no_mark_is_said);
	return t;
}
