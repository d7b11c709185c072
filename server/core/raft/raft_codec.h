/* raft_codec.h: raft messages on the wire: the body of holdfast.internal.RaftMessage. Who sends to whom is said by the
 * PeerMessage around it, so `from` and `to` are left to the caller, and wait_seq never leaves this replica. */
#ifndef HOLDFAST_CORE_RAFT_CODEC_H
#define HOLDFAST_CORE_RAFT_CODEC_H

#include "base/arena.h"
#include "core/raft/raft.h"
#include "holdfast/internal.pb-c.h"

/* Appends the packed body to *out, with no tag or length of its own. Byte for byte what protobuf-c would pack. */
void raft_message_encode(const struct raft_message *m, struct buf *out);
size_t raft_message_encoded_size(const struct raft_message *m);

/* Checks and takes apart what a peer sent: a packed RaftMessage. The entries are new objects with one reference each:
 * raft_message_release() drops them. Their array is in the arena; m->data is borrowed from *body. from, to and wait_seq are 0.
 * ERR_MALFORMED: *ret is untouched and there is nothing to release. */
enum err raft_message_decode(struct slice body, struct arena *arena, struct raft_message *ret);

/* Drops one reference of each entry, and forgets them. For received messages and for those of a ready alike; the array
 * itself belongs to whoever made it. */
void raft_message_release(struct raft_message *m);

#endif
