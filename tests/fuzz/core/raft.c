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
	Holdfast__Internal__RaftMessage *pb, *again;
	struct raft_message m;
	struct arena a;
	struct buf out = { .ptr = NULL };
	if (pb_check(&holdfast__internal__raft_message__descriptor, slice_of(data, size), 2) != PB_CHECK_OK)
		return 0;
	arena_init(&a);
	pb = holdfast__internal__raft_message__unpack(&a.pb, size, data);
	ASSERT(pb != NULL);
	if (raft_message_decode(pb, &a, &m) == ERR_OK) {
		size_t want = raft_message_encoded_size(&m);
		raft_message_encode(&m, &out);
		ASSERT(out.len == want);
		again = holdfast__internal__raft_message__unpack(&a.pb, out.len, out.ptr);
		ASSERT(again && again->n_entries == pb->n_entries && again->term == pb->term && again->match_index == pb->match_index);
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
