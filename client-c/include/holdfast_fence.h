/* holdfast_fence.h: what a resource that a lock guards does with fencing tokens, for C, LMDB and SQLite.
 *
 * A lock cannot stop a holder that sleeps: it may wake after its session has ended and finish a write it had prepared. So every grant carries a token that is
 * higher than all before it, the holder hands it over with every request, and the resource refuses a token that is lower than one it has seen. The check
 * belongs into the same transaction as the data. docs/fencing.md tells the whole story; fence.sql has the same for PostgreSQL.
 *
 * A resource keeps two marks: the highest token of an exclusive holder, and the highest of all. An exclusive token must be at least the highest of all, a
 * shared one at least the highest exclusive; what is let in raises the marks. Equal is let in: it is the same holder, again.
 *
 * A new holder calls the check before it reads what it will build on: that raises the mark, and from then on nobody before it changes anything. */
#ifndef HOLDFAST_FENCE_H
#define HOLDFAST_FENCE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef HF_API
#define HF_API __attribute__((visibility("default")))
#endif

/** How the lock is held that the token is of: hf_lock_mode's values. */
enum hf_fence_mode {
	HF_FENCE_EXCLUSIVE = 0,
	HF_FENCE_SHARED = 1
};

enum hf_fence_code {
	HF_FENCE_OK = 0,         /* let in; the marks are at least this token's */
	HF_FENCE_STALE,          /* refused: a later holder was here. Nothing was changed: roll the transaction back, and stop */
	HF_FENCE_INVALID,        /* a token below 1, a mode that is none, a name of 0 or more than HF_FENCE_NAME_MAX bytes */
	HF_FENCE_NO_TRANSACTION, /* SQLite: the connection is in no transaction, so the check would guard nothing */
	HF_FENCE_BUSY,           /* SQLite: another writer is in the way; roll back and try again */
	HF_FENCE_CORRUPT,        /* what is stored is not a mark: not written by this library, or damaged */
	HF_FENCE_FAILED          /* the database said no (a full map, an I/O error, no such table); roll back */
};

enum { HF_FENCE_NAME_MAX = 400 };

/** The marks of one resource. All zero: nobody was here. Always any >= exclusive. */
struct hf_fence_marks {
	int64_t exclusive; /* highest token of an exclusive holder that was let in */
	int64_t any;       /* highest of all */
};

/** Decides, and raises the marks when it lets in; for resources that keep their marks in a way of their own.
 *  marks    the caller's, read and written in the transaction that also has the data; untouched unless HF_FENCE_OK
 *  returns  HF_FENCE_OK, HF_FENCE_STALE, HF_FENCE_INVALID. Pure: any thread. */
HF_API enum hf_fence_code hf_fence_admit(struct hf_fence_marks *marks, enum hf_fence_mode mode, int64_t token);

/** A code in a few words; static. */
HF_API const char *hf_fence_text(enum hf_fence_code code);

/* ---- LMDB: libholdfast-fence-lmdb ---- */

struct MDB_txn;

/** Checks and raises the marks of `name` in an LMDB write transaction, which the caller then uses for the data, and commits or aborts.
 *  txn      the caller's write transaction; stays the caller's. After anything but HF_FENCE_OK: mdb_txn_abort() it
 *  dbi      a named database for marks alone, opened by the caller with no flags but MDB_CREATE
 *  name     what is guarded: the lock's name does well; borrowed for the call, 1..HF_FENCE_NAME_MAX bytes
 *  returns  HF_FENCE_OK, _STALE, _INVALID, _CORRUPT, or _FAILED with LMDB's own code in *ret_mdb (may be NULL; else untouched) */
HF_API enum hf_fence_code hf_fence_lmdb(struct MDB_txn *txn, unsigned int dbi, const void *name, size_t name_len, enum hf_fence_mode mode, int64_t token,
					int *ret_mdb);

/** The marks of `name`, zero when there are none; any transaction. HF_FENCE_OK, _INVALID, _CORRUPT or _FAILED. */
HF_API enum hf_fence_code hf_fence_lmdb_get(struct MDB_txn *txn, unsigned int dbi, const void *name, size_t name_len, struct hf_fence_marks *ret_marks,
					    int *ret_mdb);

/* ---- SQLite: libholdfast-fence-sqlite ---- */

struct sqlite3;

/** Makes the table of marks, holdfast_fence, in the main database unless it is there. HF_FENCE_OK, _BUSY or _FAILED. */
HF_API enum hf_fence_code hf_fence_sqlite_init(struct sqlite3 *db);

/** Checks and raises the marks of `name` inside the caller's transaction, best begun with BEGIN IMMEDIATE and with this as its first act (after a read, a
 *  deferred transaction may not be able to become a writer: HF_FENCE_BUSY).
 *  db       the caller's connection; one thread at a time. After anything but HF_FENCE_OK: ROLLBACK
 *  name     as above
 *  returns  HF_FENCE_OK, _STALE, _INVALID, _NO_TRANSACTION, _BUSY, _CORRUPT or _FAILED (sqlite3_errmsg(db) tells more) */
HF_API enum hf_fence_code hf_fence_sqlite(struct sqlite3 *db, const void *name, size_t name_len, enum hf_fence_mode mode, int64_t token);

/** The marks of `name`, zero when there are none. HF_FENCE_OK, _INVALID, _BUSY, _CORRUPT or _FAILED. */
HF_API enum hf_fence_code hf_fence_sqlite_get(struct sqlite3 *db, const void *name, size_t name_len, struct hf_fence_marks *ret_marks);

#ifdef __cplusplus
}
#endif

#endif
