/* snapshot.h: the state as chunks of bytes and back. Pure; the encoder may run on any thread, on a view.
 *
 * A snapshot is a row of chunks of at most SNAPSHOT_CHUNK_BYTES (one record that is larger has a chunk of its own). Chunk 0 starts with the head. Each chunk:
 * version byte, then groups of (section, record version, count, then length-prefixed records). Records of a section come in key order, so equal
 * states give equal bytes, whoever writes them (P10). A reader skips no section that it does not know: it refuses the whole.
 */
#ifndef HOLDFAST_CORE_SNAPSHOT_H
#define HOLDFAST_CORE_SNAPSHOT_H

#include "core/state.h"

#define SNAPSHOT_CHUNK_BYTES (256 * 1024)

struct snapshot_encoder;
struct snapshot_encoder *snapshot_encoder_new(const struct state *view, uint64_t cell_id); /* view is borrowed and must stay open */
void snapshot_encoder_chunk_bytes(struct snapshot_encoder *e, size_t bytes); /* for tests that want many; the same in the whole cell */
bool snapshot_encoder_next(struct snapshot_encoder *e, struct buf *ret_chunk);             /* appends; false: there was no more */
void snapshot_encoder_free(struct snapshot_encoder *e);

struct snapshot_decoder;
struct snapshot_decoder *snapshot_decoder_new(uint64_t cell_id);
/* ERR_CORRUPT, ERR_WRONG_CELL, ERR_WRONG_VERSION. After an error only free is allowed. */
enum err snapshot_decoder_feed(struct snapshot_decoder *d, struct slice chunk);
/* Checks the head's hash against what was read; moves the state out (initialised by us; the caller owns it). ERR_CORRUPT. */
enum err snapshot_decoder_finish(struct snapshot_decoder *d, struct state *ret);
void snapshot_decoder_free(struct snapshot_decoder *d);

void state_init(struct state *st); /* empty: revision 1 */

#endif
