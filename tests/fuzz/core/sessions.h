/* sessions.h: what sound cells say and write: the seeds. */
#ifndef HOLDFAST_TESTS_FUZZ_SESSIONS_H
#define HOLDFAST_TESTS_FUZZ_SESSIONS_H

#include "base/buf.h"
#include "core/state.h"

/* What happened to replica 0 of a cell of three, as items (see peer.c), one session a kind; and the commands of its log, as items (see apply.c). */
enum { SESSIONS = 4 };

enum session_op { OP_RAW, OP_FROM_1, OP_FROM_2, OP_TIME, OP_REQUEST, OP_LOST, OP_HOLD, OP_GAP, OP_NEAR, OP_COUNT };

struct session {
	struct buf events, commands;
	struct buf *chunks; /* its state as a snapshot */
	size_t chunks_len;
	uint64_t cell_id;
};

void session_make(struct session *s, unsigned kind);
void session_free(struct session *s);

#endif
