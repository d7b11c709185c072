/* raft.c: bytes as a message of raft. What is let through is written as it was read. Input: a packed RaftMessage. */
#include "base/arena.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "core/raft/raft_codec.h"
#include "core/wire.h"
#include "driver.h"
#include "sessions.h"

static int fuzz_raft(const uint8_t *data, size_t size)
{
	Holdfast__Internal__RaftMessage *pb;
	struct raft_message m, again;
	struct arena a;
	struct buf out = { .ptr = NULL };
	arena_init(&a);
	if (raft_message_decode(slice_of(data, size), &a, &m) == ERR_OK) {
		size_t want = raft_message_encoded_size(&m);
		raft_message_encode(&m, &out);
		ASSERT(out.len == want);
		ASSERT(raft_message_decode(buf_view(&out), &a, &again) == ERR_OK);
		ASSERT(again.entries_len == m.entries_len && again.term == m.term && again.match.index == m.match.index && slice_eq(again.data, m.data));
		pb = holdfast__internal__raft_message__unpack(&a.pb, out.len, out.ptr);
		ASSERT(pb && pb->n_entries == m.entries_len && pb->term == m.term && pb->match_index == m.match.index && pb->chunk == m.chunk);
		raft_message_release(&again);
		raft_message_release(&m);
	}
	buf_free(&out);
	arena_deinit(&a);
	return 0;
}

static void mutate(struct rng *rng, struct buf *b, struct slice other)
{
	if (rng_below(rng, 4))
		mutate_message(rng, b);
	else
		mutate_bytes(rng, b, other);
}

static void seeds(struct fuzz_corpus *c)
{
	for (unsigned kind = 0; kind < SESSIONS; kind++) {
		struct session s;
		struct item it;
		size_t pos = 0, n = 0;
		session_make(&s, kind);
		while (item_next(buf_view(&s.events), &pos, &it)) {
			if ((it.op == OP_FROM_1 || it.op == OP_FROM_2) && it.bytes.ptr[0] == 10 && n++ % 7 == 0)
				corpus_add(c, slice_of(it.bytes.ptr + 1, it.bytes.len - 1));
		}
		session_free(&s);
	}
}

const struct fuzz_target fuzz_target = { "raft", fuzz_raft, seeds, mutate, 500000 };
