/* backup.h: a state as one file that can be kept anywhere and checked by itself (docs/backup-format.md has the bytes).
 *
 *   file  = header, frame, ..., frame, end, padding, checksum
 *   header   "HOLDFAST BACKUP\n", version (32 bits), 0 (32 bits), cell ID (64 bits)
 *   frame    length (32 bits, not 0), CRC-32C of the bytes (32 bits), the bytes: a chunk as in snapshot.h
 *   end      0 (32 bits), number of frames (32 bits)
 *   padding  zeros, up to a multiple of 512
 *   checksum SHA-256 of all before it
 * Numbers are little-endian. So the size is 32 above a multiple of 512, by which etcd's clients know a backup with a checksum. */
#ifndef HOLDFAST_CORE_BACKUP_H
#define HOLDFAST_CORE_BACKUP_H

#include "base/hash.h"
#include "core/snapshot/snapshot.h"

#define BACKUP_MAGIC "HOLDFAST BACKUP\n"
#define BACKUP_MAGIC_BYTES 16
#define BACKUP_VERSION 1u
#define BACKUP_BLOCK 512u

/* Any thread, on a view, which is borrowed and must stay open. */
struct backup_writer;
struct backup_writer *backup_writer_new(const struct state *view, uint64_t cell_id);
bool backup_writer_next(struct backup_writer *w, struct buf *ret); /* appends the next piece, a chunk or so; false: there was no more */
void backup_writer_free(struct backup_writer *w);
uint64_t backup_size(const struct state *view, uint64_t cell_id);  /* of the whole file; encodes all of it once */

struct backup_info {
	uint64_t bytes, frames, cell_id, state_hash;
	uint8_t checksum[SHA256_BYTES];
};

struct backup_reader;
struct backup_reader *backup_reader_new(void);
/* Pieces of any size, in order. ERR_SYNTAX: not a backup of ours; ERR_WRONG_VERSION; ERR_CORRUPT. After an error only the next two may follow. */
enum err backup_reader_feed(struct backup_reader *r, struct slice bytes);
const char *backup_reader_why(const struct backup_reader *r); /* what an error was about; static */
void backup_reader_free(struct backup_reader *r);
/* At the end of the file. ERR_CORRUPT: it is cut short, or its checksum is not that of what was read. The state becomes the caller's. */
enum err backup_reader_finish(struct backup_reader *r, struct state *ret, struct backup_info *ret_info);

#endif
