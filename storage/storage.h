/* storage.h: what a replica keeps on disk: who it is, its hard state, its log and its snapshots.
 *
 * A data directory holds
 *   lock                 locked while a process has the directory open: there is never a second one
 *   log/                 one LMDB environment: identity, hard state, log entries
 *   snap-<index>-<term>/ one LMDB environment a whole snapshot; with `.tmp` behind it, one still being written; with `.part`,
 *                        one still being received
 *   ballast              space kept back, so that a full disk can still be put in order
 *   damaged/             the log and the snapshot as a damage was found in them, until what was lost is there again
 * Nobody else may touch what is inside. Every record carries a CRC-32C that is checked whenever the record is read,
 * every environment a format version. What is damaged is never skipped and never served: ERR_CORRUPT. At an open that
 * may mend, damage of entries and snapshots (not of identity, term and vote) is cut out instead, with all that followed
 * it, and storage_state.lost says until where the log had reached.
 *
 * Errors, everywhere, beside those a call names; `em` (never NULL) then says what happened and what to do:
 *   ERR_DISK_FULL   no space, on the disk or in the map. Nothing of the call is durable, everything before it is, reads
 *                   go on, and the same call may be made again once there is space: storage_release_ballast().
 *   ERR_IO          the disk failed. Whether the call is durable is unknown until the next storage_open(); once it was
 *                   a write to the log, all later ones are refused. Stop, and start again as after a crash.
 *   ERR_CORRUPT     what was read is not what was written. Replace the member: its data cannot be trusted.
 *   ERR_NOMEM       the system refused to map the files.
 * On error outputs are untouched and ownership stays where it was.
 *
 * Threads: the log calls (storage_commit, storage_snapshot_install_finish) wait for each other, so let one thread make
 * them; every other call may be made from any thread at any time, a writer or a reader from one thread at a time. A
 * snapshot never holds up a commit but for the disk they share. */
#ifndef HOLDFAST_STORAGE_STORAGE_H
#define HOLDFAST_STORAGE_STORAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"
#include "errors.h"

struct storage;
struct storage_snapshot_writer;
struct storage_snapshot_reader;

#define STORAGE_MAP_BYTES_DEFAULT (UINT64_C(16) << 30)
#define STORAGE_BALLAST_BYTES_DEFAULT (UINT64_C(32) << 20)
#define STORAGE_ORIGIN_MAX (1U << 20)
#define STORAGE_NAME_MAX 1024 /* bytes of a member's name, and of a cell token */

/* ---- opening ---- */

/* Who a data directory belongs to: written once, when the directory is made. */
struct storage_identity {
	uint64_t cell_id;
	uint64_t member_id;
	uint64_t data_dir_id; /* random: a wiped and refilled directory cannot pass for the old one */
	struct slice name;    /* as given when the directory was made; at most STORAGE_NAME_MAX bytes */
	struct slice cell_token;
	struct slice origin;  /* opaque: the cell as it was when it was made, at most STORAGE_ORIGIN_MAX bytes; may be empty */
};

struct storage_options {
	const char *dir; /* made when absent (its parent must be there) */
	/* A new directory gets exactly this; every ID must then be non-zero. Of an old one cell_id and member_id are
	 * compared where they are not 0, and the rest is ignored. */
	struct storage_identity identity;
	uint64_t map_bytes;          /* address space for the log, a hard limit of its size; 0: the default */
	uint64_t snapshot_map_bytes; /* the same for a snapshot; 0: the default */
	uint64_t ballast_bytes;      /* 0: the default */
	bool no_ballast;
	bool mend; /* cut damage out rather than refuse it: for who can fetch what is lost from elsewhere, and heeds storage_state.lost */
};

struct storage_hard_state {
	uint64_t term;
	uint64_t voted_for; /* 0: nobody */
	uint64_t commit;    /* a hint: as of the last write */
};

struct storage_snapshot_meta {
	uint64_t index, term; /* the last entry the snapshot stands for */
	uint64_t chunks;      /* how many there are, numbered from 0 */
	uint64_t bytes;       /* sum of their lengths */
	uint64_t state_hash;
	struct slice config;  /* opaque: membership and whatever else is needed before the chunks */
};

/* Of a snapshot that is being received. It is known again by its first four. */
struct storage_snapshot_part {
	uint64_t index, term;
	uint64_t chunks, state_hash; /* of the whole, as they were announced */
	uint64_t have;               /* chunks that are there, from 0 */
};

/* The last entry that the log once held durably, and has not now: {0,0}: nothing is lost. Whoever promised entries must not act on a log that is shorter:
 * it stands here, over restarts, until the log ends with an entry of a later term, or of this one at this index or above. */
struct storage_lost {
	uint64_t index, term;
};

/* What was found, and is as it was when the storage was opened. */
struct storage_state {
	struct storage_identity identity;
	uint64_t boot;                         /* rises by one, durably, with every open: tells incarnations apart; from 1 */
	bool created;                          /* by this very open */
	struct storage_hard_state hard;        /* zeros when never written; commit is at least snapshot.index, and may be
						* above last_index (a leader commits before its own disk has written) */
	uint64_t first_index;                  /* of the log; last_index + 1 when it is empty. At most snapshot.index + 1 */
	uint64_t last_index;                   /* at least snapshot.index */
	uint64_t last_term;                    /* of last_index; 0 when nothing was ever written */
	bool has_snapshot;
	struct storage_snapshot_meta snapshot; /* zeros without one */
	struct storage_snapshot_part part;     /* each of its chunks whole; zeros: none. Never one of what there is, or of what is older */
	uint64_t ballast_bytes;                /* what is really kept back */
	bool ballast_short;                    /* less than was asked for: warn the operator */
	struct storage_lost lost;
	struct errmsg damage;                  /* what this open has cut out, for people; empty: nothing was damaged */
};

/* Is there a replica's data in `dir`? Takes no lock and proves nothing about its health. */
bool storage_exists(const char *dir);
/* Who the directory belongs to, without opening it for good: counts no start and changes nothing. The identity's slices point into *ret_bytes, to be
 * freed. ERR_NOT_FOUND: nobody's. ERR_BUSY and the rest as storage_open. */
enum err storage_identify(const char *dir, struct storage_identity *ret, struct buf *ret_bytes, struct errmsg *em);

/* Opens the data directory, makes it when there is none, and checks the whole log: every CRC, and no gap (and, where it
 * may mend, the newest snapshot: every chunk). Removes what a crash left half done. A full disk does not prevent it as long as the ballast is there to be used up.
 *  ret        storage_close() it
 *  ERR_BUSY           another process (or this one) has it open
 *  ERR_WRONG_CELL, ERR_WRONG_MEMBER   it belongs to another one; nothing was changed
 *  ERR_WRONG_VERSION  written by a newer release; nothing was changed */
enum err storage_open(const struct storage_options *opts, struct storage **ret, struct errmsg *em);
void storage_close(struct storage *st); /* NULL is fine. Every reader and writer must be gone */

/* Lives, unchanged, until storage_close(). */
const struct storage_state *storage_state(const struct storage *st);

/* ---- the log ---- */

struct storage_entry {
	uint64_t index, term;
	uint8_t kind;
	struct slice payload;
};

/* All of it in one transaction: that is the group commit. */
struct storage_batch {
	const struct storage_hard_state *hard; /* NULL: unchanged */
	uint64_t truncate_from;                /* not 0: every entry with index >= this is dropped first. Above the snapshot */
	const struct storage_entry *entries;   /* consecutive, the first right behind what is left; terms never fall */
	size_t entries_len;
	uint64_t trim_to;                      /* not 0: entries with index <= this may go, oldest first, a bounded number
						* with this commit and each later one. At most the newest snapshot's index */
};

/* Everything is borrowed for the call. Durable when it returns ERR_OK. An empty batch is fine: it goes on trimming.
 * A batch that does not fit what is there (a gap, a term that falls) is the caller's fault, and asserted. */
enum err storage_commit(struct storage *st, const struct storage_batch *batch, struct errmsg *em);

/* True while earlier trim_to are not fully done; make empty commits when idle. */
bool storage_trim_pending(struct storage *st);

struct storage_read_result {
	struct storage_entry *entries; /* their payloads point into `payload` */
	size_t entries_len;
	struct buf payload;
};

/* Entries from..to, both included, or as many of the first of them as there are and as have at most max_bytes of
 * payload: at least one.
 *  ret            storage_read_result_free() it; overwritten, so nothing owned may be in it
 *  ERR_NOT_FOUND  there is no entry `from`: trimmed, or not yet written */
enum err storage_read(struct storage *st, uint64_t from, uint64_t to, size_t max_bytes, struct storage_read_result *ret,
		      struct errmsg *em);
void storage_read_result_free(struct storage_read_result *r); /* leaves it empty; NULL is fine */

/* ---- snapshots ---- */

/* Starts one aside; whatever happens before its finish, a crash or an abort, the snapshot of before stays.
 *  ret         finish or abort it
 *  ERR_EXISTS  the newest whole snapshot has this index or a higher one
 *  ERR_BUSY    one of this index and term is being written */
enum err storage_snapshot_create(struct storage *st, uint64_t index, uint64_t term, struct storage_snapshot_writer **ret,
				 struct errmsg *em);

/* The same for one that is received, which may take long: what was written stays over a restart, but for the newest of it that were not durable,
 * until it is finished, aborted or dropped, or another one is begun: there is one at a time.
 *  part        have is not looked at
 *  ERR_EXISTS, ERR_BUSY as above */
enum err storage_snapshot_receive(struct storage *st, const struct storage_snapshot_part *part, struct storage_snapshot_writer **ret,
				  struct errmsg *em);
/* Goes on with it, at storage_snapshot_next(). ERR_NOT_FOUND: there is nothing of this one. ERR_EXISTS, ERR_BUSY as above */
enum err storage_snapshot_resume(struct storage *st, const struct storage_snapshot_part *part, struct storage_snapshot_writer **ret,
				 struct errmsg *em);
/* Ends the writer, and leaves what it has written to a later resume. NULL is fine */
void storage_snapshot_suspend(struct storage_snapshot_writer *w);
/* Drops whatever was received and suspended. */
enum err storage_snapshot_drop_part(struct storage *st, struct errmsg *em);

/* So many bytes are made durable at a time. */
#define STORAGE_SNAPSHOT_PIECE_BYTES ((size_t)512 << 10)
/* Chunks come in order, from 0. One that was written before may come again with the same bytes. Not durable by itself.
 * After an error (ERR_DISK_FULL) some chunks before this one may be gone too: go on at storage_snapshot_next().
 *  ERR_NOT_FOUND  a chunk is missing before this one
 *  ERR_CORRUPT    this chunk was written before, with other bytes */
enum err storage_snapshot_write(struct storage_snapshot_writer *w, uint64_t number, struct slice chunk, struct errmsg *em);
uint64_t storage_snapshot_next(const struct storage_snapshot_writer *w); /* the number of the first chunk not written */
uint64_t storage_snapshot_bytes(const struct storage_snapshot_writer *w); /* of those before it */
enum err storage_snapshot_sync(struct storage_snapshot_writer *w, struct errmsg *em); /* makes all of them durable */
/* One of those that are durable, as it is on the disk. Replaces what is in ret_chunk, and reuses its room. */
enum err storage_snapshot_read_back(struct storage_snapshot_writer *w, uint64_t number, struct buf *ret_chunk, struct errmsg *em);

/* Syncs, reads all of it back, puts it in the old one's place. For a snapshot of our own state: its index is in the log.
 *  meta        borrowed; index and term as at the start
 *  ERR_OK      `w` is gone, the snapshot is the newest, older ones are gone or go with their last reader
 *  ERR_CORRUPT     chunks or bytes are not those that `meta` counts, or did not read back
 *  ERR_EXISTS      another one, as new or newer, was finished meanwhile
 *  on error `w` stays, to be finished again or aborted */
enum err storage_snapshot_finish(struct storage_snapshot_writer *w, const struct storage_snapshot_meta *meta,
				 struct errmsg *em);

/* The same for a snapshot that was received (or restored), and may lie beyond the log. With keep_log, when the log has
 * the entry (index, term), the entries behind it stay; otherwise the whole log goes, and starts again at index + 1.
 * A crash in between is put right by storage_open(). After an error of the log's part (ERR_DISK_FULL) the same call may
 * be made again; an abort then leaves a storage that refuses to write to the log (ERR_IO) until it is opened again. */
enum err storage_snapshot_install_finish(struct storage_snapshot_writer *w, const struct storage_snapshot_meta *meta,
					 bool keep_log, struct errmsg *em);
void storage_snapshot_abort(struct storage_snapshot_writer *w); /* NULL is fine */

/* The newest whole one, which stays readable until closed. ERR_NOT_FOUND when there is none. */
enum err storage_snapshot_open(struct storage *st, struct storage_snapshot_reader **ret, struct errmsg *em);
const struct storage_snapshot_meta *storage_snapshot_reader_meta(const struct storage_snapshot_reader *r); /* lives as `r` */

/* Replaces what is in ret_chunk, and reuses its room. ERR_NOT_FOUND behind the last chunk. */
enum err storage_snapshot_read(struct storage_snapshot_reader *r, uint64_t number, struct buf *ret_chunk,
			       struct errmsg *em);
void storage_snapshot_close(struct storage_snapshot_reader *r); /* NULL is fine */

/* ---- space ---- */

struct storage_space {
	uint64_t free_bytes;     /* on the file system, for this user */
	uint64_t log_bytes;      /* pages the log uses */
	uint64_t log_file_bytes; /* size of its file: it never shrinks, pages of dropped entries are used again */
	uint64_t map_bytes;      /* limit of log_file_bytes */
	uint64_t ballast_bytes;  /* kept back just now */
};

enum err storage_space(struct storage *st, struct storage_space *ret, struct errmsg *em);

/* Gives the ballast to whoever needs space first: call it when a commit fails with ERR_DISK_FULL, and refuse what
 * grows until it is back. ERR_NOT_FOUND when there is none. */
enum err storage_release_ballast(struct storage *st, struct errmsg *em);

/* Makes it again in full; leaves at least as much free as it takes. ERR_DISK_FULL when there is not enough space. */
enum err storage_restore_ballast(struct storage *st, struct errmsg *em);

#endif
