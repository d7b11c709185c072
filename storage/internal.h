/* internal.h: what the files of storage/ share. Nobody else includes it: storage.h is the module's one header. */
#ifndef HOLDFAST_STORAGE_INTERNAL_H
#define HOLDFAST_STORAGE_INTERNAL_H

#include <lmdb.h>
#include <pthread.h>

#include "base/list.h"
#include "storage/storage.h"

#define FORMAT_VERSION 1u
#define LOCK_FILE "lock"
#define LOG_DIR "log"
#define BALLAST_FILE "ballast"
#define SNAP_PREFIX "snap-"
#define TMP_SUFFIX ".tmp"
#define PART_SUFFIX ".part"
#define LOG_TMP_DIR LOG_DIR TMP_SUFFIX
#define DAMAGED_DIR "damaged"
#define DATA_FILE "data.mdb"
#define RECORD_IDENTITY "identity"
#define RECORD_BOOT "boot"
#define RECORD_HARD "hard"
#define RECORD_EXTENT "extent"
#define RECORD_LOST "lost" /* while storage_state.lost is something */

/* ---- files.c: directories, paths, errors of the system ---- */

char *path_join(const char *dir, const char *name); /* free() it; a NULL name just copies */
enum err dir_make(const char *path, struct errmsg *em); /* fine when it is there */
enum err dir_sync(const char *path, struct errmsg *em);
enum err dir_remove(const char *path, struct errmsg *em); /* with the files in it; fine when it is not there */
enum err dir_lock(const char *dir, int *ret_fd, struct errmsg *em);
uint64_t disk_free(const char *dir); /* bytes this user may still write; UINT64_MAX when unknown */
/* Names an errno or LMDB code; tells a full disk from a broken one. `rc` is not 0. */
enum err disk_err(const char *dir, int rc, const char *what, struct errmsg *em);

/* ---- codec.c: integers as little-endian bytes, and a CRC before everything ---- */

void put_u32(uint8_t *p, uint32_t v);
void put_u64(uint8_t *p, uint64_t v);
uint32_t get_u32(const uint8_t *p);
uint64_t get_u64(const uint8_t *p);

void enc_u64(struct buf *b, uint64_t v);
void enc_bytes(struct buf *b, struct slice s); /* length first */

struct decoder {
	struct slice rest;
	bool bad; /* more was asked for than there is */
};
uint64_t dec_u64(struct decoder *d);
struct slice dec_bytes(struct decoder *d); /* a view into the input */
bool dec_done(const struct decoder *d);    /* all there, and nothing left over */

/* An entry as stored: CRC-32C, term, kind, payload. The CRC covers the index, which is the key, as well. */
#define ENTRY_HEADER 13u
void entry_encode(const struct storage_entry *en, uint8_t *ret_value);
bool entry_decode(uint64_t index, MDB_val value, struct storage_entry *ret); /* false: damaged. Payload is a view */

/* A chunk as stored: CRC-32C over its number and its bytes, the bytes. */
#define CHUNK_HEADER 4u
void chunk_encode(uint64_t number, struct slice chunk, uint8_t *ret_value);
bool chunk_decode(uint64_t number, MDB_val value, struct slice *ret);

/* ---- env.c: one LMDB environment with small named records and one table of numbered values ---- */

struct env {
	MDB_env *mdb;
	MDB_dbi records, table;
	char *path;
	bool fresh; /* nothing was in it */
};

enum env_mode {
	ENV_LOG,    /* LMDB's reader table guards readers in other threads */
	ENV_WRITE,  /* one thread, no readers: no lock file */
	ENV_READ,   /* never written again: no lock file */
};

enum err env_open(struct env *ev, const char *path, enum env_mode mode, uint64_t map_bytes, struct errmsg *em);
void env_close(struct env *ev); /* fine when zeroed */
enum err env_err(const struct env *ev, int rc, const char *what, struct errmsg *em); /* fine for rc 0 */
enum err env_begin(const struct env *ev, bool write, MDB_txn **ret, struct errmsg *em);
enum err env_corrupt(const struct env *ev, const char *what, struct errmsg *em);
enum err record_put(const struct env *ev, MDB_txn *txn, const char *name, struct slice body, struct errmsg *em);
/* ret is a view that dies with the transaction; ERR_NOT_FOUND leaves em alone */
enum err record_get(const struct env *ev, MDB_txn *txn, const char *name, struct slice *ret, struct errmsg *em);
MDB_val key_of(const uint64_t *number);
bool key_get(MDB_val key, uint64_t *ret);

/* Pages of the map that were read and may leave our resident set: the page cache keeps them, we would count them. */
struct map_use {
	uintptr_t lo, hi;
	size_t bytes;
};
void map_use_note(struct map_use *u, MDB_val value); /* only of a value whose CRC was right, from a read transaction */
void map_use_drop(struct map_use *u, size_t when_above);

/* ---- the storage ---- */

struct extent { /* of the log */
	uint64_t first, last, last_term;
};

struct snap_id {
	uint64_t index, term;
};

struct snap { /* a whole snapshot, in storage.snaps */
	struct list link;
	struct snap_id id;
	unsigned readers;
};

struct storage {
	/* set by storage_open() */
	char *dir;
	int lock_fd;
	uint64_t log_map_bytes, snapshot_map_bytes, ballast_want;
	struct storage_state state;
	struct buf identity_bytes, config_bytes; /* what state points into */
	struct env log;
	struct snap_id damaged_snap; /* found while opening, and not used; zeros: none */

	pthread_mutex_t log_mu; /* guards: */
	struct extent extent;
	struct storage_hard_state hard;
	struct storage_lost lost;
	uint64_t trim_to;
	bool failed; /* an I/O error was seen: nothing is written any more */

	pthread_mutex_t snap_mu; /* guards, and is never held over I/O: */
	struct list snaps;       /* of struct snap, oldest first */
	struct list writers;     /* of struct storage_snapshot_writer */

	pthread_mutex_t ballast_mu; /* guards: */
	uint64_t ballast_have;
};

/* ---- log.c: the caller holds log_mu, or is storage_open() ---- */

typedef enum err (*log_body)(struct storage *st, MDB_txn *txn, void *arg, struct errmsg *em);

/* Runs `body` in a write transaction of the log's environment and commits it, or nothing of it. */
enum err log_transact(struct storage *st, log_body body, void *arg, struct errmsg *em);
enum err extent_get(struct storage *st, MDB_txn *txn, struct extent *ret, struct errmsg *em);
enum err hard_get(struct storage *st, MDB_txn *txn, struct storage_hard_state *ret, struct errmsg *em);
enum err lost_get(struct storage *st, MDB_txn *txn, struct storage_lost *ret, struct errmsg *em);
bool extent_reaches(const struct extent *x, struct storage_lost lost); /* as raft compares logs */
enum err log_reset(struct storage *st, struct snap_id id, struct errmsg *em); /* drops every entry, goes on behind `id` */
/* these take log_mu themselves */
void log_fail(struct storage *st); /* nothing more is written */
uint64_t log_last(struct storage *st);
enum err log_install(struct storage *st, struct snap_id id, bool keep_log, struct errmsg *em);

/* ---- log_read.c ---- */

/* ret->payload is a view that dies with the transaction. Missing is ERR_CORRUPT: ask for what must be there. */
enum err log_entry_get(struct storage *st, MDB_txn *txn, uint64_t index, struct storage_entry *ret, struct errmsg *em);
/* The records: hard state, extent, what is lost. */
enum err log_records(struct storage *st, struct storage_hard_state *ret_hard, struct extent *ret, struct storage_lost *ret_lost, struct errmsg *em);
/* Reads the whole log, and compares it with its extent. */
enum err log_scan(struct storage *st, const struct extent *x, struct errmsg *em);

/* ---- open.c ---- */

enum err load_snapshot(struct storage *st, bool whole, struct errmsg *em); /* the newest one, into the state */
/* Does the log go on where the snapshot ends? If not, a crash came between the two steps of an install. */
enum err log_continues(struct storage *st, bool *ret, struct errmsg *em);

/* ---- mend.c ---- */

/* storage_open()'s second half, where damage is cut out: snapshot, hard state and extent, from what is whole. */
enum err mend_load(struct storage *st, struct errmsg *em);
enum err mend_clean(struct storage *st, struct errmsg *em); /* what a crash left of it, and what was kept of a damage that is over */

/* ---- snap_list.c ---- */

struct snap_id snap_newest(struct storage *st); /* zeros: none */
char *snap_path(const struct storage *st, struct snap_id id, const char *suffix);
enum err snap_list_load(struct storage *st, struct errmsg *em); /* what DIR holds; changes nothing there */
enum err snap_list_clean(struct storage *st, struct errmsg *em); /* removes leftovers and older ones */
void snap_publish(struct storage *st, struct snap_id id);
struct snap *snap_acquire(struct storage *st); /* the newest one, for a reader; NULL: none */
void snap_release(struct storage *st, struct snap *sn);
void snap_list_drop_newest(struct storage *st); /* from the list, at open */
void snap_list_free(struct storage *st);

bool snap_name_parse(const char *name, const char *suffix, struct snap_id *ret);

/* ---- snap_write.c ---- */

enum writer_phase {
	WRITER_WRITING,
	WRITER_SEALED,
	WRITER_NAMED,
};

struct writer_mark {
	uint64_t chunks, bytes;
};

struct storage_snapshot_writer {
	struct list link; /* storage.writers; guarded by snap_mu */
	struct storage *st;
	struct snap_id id;
	char *tmp_path, *path;
	enum writer_phase phase;
	/* while WRITING */
	struct env env;
	struct map_use use;         /* of what is read back */
	MDB_txn *txn;               /* NULL: nothing since the last commit */
	size_t txn_bytes;
	struct writer_mark durable; /* committed */
	struct writer_mark now;     /* with what is in txn */
};

/* Listed, with nothing open and nothing on disk. */
enum err writer_new(struct storage *st, struct snap_id id, const char *suffix, struct storage_snapshot_writer **ret, struct errmsg *em);
void writer_free(struct storage_snapshot_writer *w);
enum err writer_make(struct storage_snapshot_writer *w, struct errmsg *em); /* its directory anew, open */
enum err writer_begin(struct storage_snapshot_writer *w, struct errmsg *em);
enum err writer_commit(struct storage_snapshot_writer *w, struct errmsg *em);

/* ---- snap_part.c ---- */

enum err snap_part_load(struct storage *st, struct errmsg *em); /* at open: what there is, into the state; removes what is of no use */

/* ---- snap_read.c ---- */

enum err snap_chunks_count(const struct env *ev, MDB_txn *txn, uint64_t *ret, struct errmsg *em);
/* One, in a read transaction of its own; replaces what is in ret. */
enum err snap_chunk_read(const struct env *ev, uint64_t number, struct map_use *use, struct buf *ret, struct errmsg *em);
/* Reads the chunks before `chunks`, in a read transaction. ERR_CORRUPT: one is missing or damaged. */
enum err snap_chunks_check(const struct env *ev, MDB_txn *txn, uint64_t chunks, uint64_t *ret_bytes, struct errmsg *em);

#define SNAP_META_RECORD "meta"
void snap_meta_encode(const struct storage_snapshot_meta *meta, struct buf *b);
/* Opens it, and reads every chunk when `whole`. ret_meta and ret_config may be NULL together. */
enum err snap_verify(struct storage *st, const char *path, struct snap_id id, bool whole,
		     struct storage_snapshot_meta *ret_meta, struct buf *ret_config, struct errmsg *em);

/* ---- ballast.c ---- */

void ballast_open(struct storage *st); /* counts what is there, tries for more */
bool ballast_drop(struct storage *st); /* false: there was none */

#endif
