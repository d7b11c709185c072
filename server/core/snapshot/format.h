/* format.h: the bytes of a chunk; for the files of this folder alone.
 *
 *   chunk   = version byte, group, group, ...
 *   group   = varint section, varint version of its records' encoding, varint count, record, record, ...
 *   record  = varint length, bytes
 *
 * The first group of chunk 0 is the head: SECTION_HEAD, one record, a packed internal.SnapshotHead. Sections come in the order of their
 * numbers and their records in key order; a section that has no records has no group, and one that goes on in the next chunk has another
 * group there. A chunk ends where the next record would take it past SNAPSHOT_CHUNK_BYTES. Varints are in their shortest form. All this
 * leaves one way to write a state down. */
#ifndef HOLDFAST_CORE_SNAPSHOT_FORMAT_H
#define HOLDFAST_CORE_SNAPSHOT_FORMAT_H

#include "core/snapshot/snapshot.h"

enum {
	CHUNK_VERSION = 1,
	HEAD_VERSION = 1,        /* of the head's encoding and of what the head promises */
	GROUP_HEADER_MAX = 3 * 10,
};

struct snapshot_head {
	struct entry_id applied;
	revision revision, compact_revision;
	uint64_t state_hash, cell_id;
	uint64_t restored; /* see state.h */
};

void snapshot_head_encode(const struct snapshot_head *h, struct buf *out);
enum err snapshot_head_decode(struct slice bytes, struct snapshot_head *ret); /* ERR_CORRUPT, ERR_WRONG_VERSION */

#endif
