/* lmdb.c: marks in an LMDB database, one record a name: a version byte, then both marks, big-endian. LMDB has one writer at a time, so whoever has the
 * transaction sees the last marks, and nobody raises them before it commits. */
#include "holdfast_fence.h"

#include <lmdb.h>
#include <string.h>

#include "fence.h"

enum { VERSION = 1, RECORD_SIZE = 17 };

static void put_u64(uint8_t *p, uint64_t v)
{
	for (int i = 7; i >= 0; i--, v >>= 8)
		p[i] = (uint8_t)v;
}

static int64_t get_u64(const uint8_t *p)
{
	uint64_t v = 0;
	for (int i = 0; i < 8; i++)
		v = v << 8 | p[i];
	return (int64_t)v;
}

static enum hf_fence_code failed(int rc, int *ret_mdb)
{
	if (ret_mdb)
		*ret_mdb = rc;
	return HF_FENCE_FAILED;
}

static MDB_val val_of(const void *ptr, size_t len)
{
	return (MDB_val){ .mv_size = len, .mv_data = (void *)(uintptr_t)ptr };
}

enum hf_fence_code hf_fence_lmdb_get(MDB_txn *txn, unsigned int dbi, const void *name, size_t name_len, struct hf_fence_marks *ret_marks, int *ret_mdb)
{
	MDB_val key = val_of(name, name_len), value;
	struct hf_fence_marks m = { 0, 0 };
	int rc;
	if (!txn || !fence_args_ok(name, name_len))
		return HF_FENCE_INVALID;
	rc = mdb_get(txn, dbi, &key, &value);
	if (rc && rc != MDB_NOTFOUND)
		return failed(rc, ret_mdb);
	if (rc == 0) {
		const uint8_t *p = value.mv_data;
		if (value.mv_size != RECORD_SIZE || p[0] != VERSION)
			return HF_FENCE_CORRUPT;
		m = (struct hf_fence_marks){ .exclusive = get_u64(p + 1), .any = get_u64(p + 9) };
		if (!fence_marks_ok(&m))
			return HF_FENCE_CORRUPT;
	}
	*ret_marks = m;
	return HF_FENCE_OK;
}

enum hf_fence_code hf_fence_lmdb(MDB_txn *txn, unsigned int dbi, const void *name, size_t name_len, enum hf_fence_mode mode, int64_t token, int *ret_mdb)
{
	struct hf_fence_marks m, before;
	uint8_t record[RECORD_SIZE] = { VERSION };
	MDB_val key = val_of(name, name_len), value = val_of(record, sizeof(record));
	enum hf_fence_code c = hf_fence_lmdb_get(txn, dbi, name, name_len, &m, ret_mdb);
	int rc;
	if (c)
		return c;
	before = m;
	c = hf_fence_admit(&m, mode, token);
	if (c || memcmp(&m, &before, sizeof(m)) == 0)
		return c;
	put_u64(record + 1, (uint64_t)m.exclusive);
	put_u64(record + 9, (uint64_t)m.any);
	rc = mdb_put(txn, dbi, &key, &value, 0);
	return rc ? failed(rc, ret_mdb) : HF_FENCE_OK;
}
