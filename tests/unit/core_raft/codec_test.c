/* codec_test.c: raft messages survive the wire, and a peer's nonsense does not get in. */
#include "core/raft/raft_codec.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"

#define KIND(name) HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__##name

static struct arena arena;

static void setup(void)
{
	arena_init(&arena);
}

static void teardown(void)
{
	arena_deinit(&arena);
}

static struct raft_entry *entry(raft_index index, raft_term term, enum raft_entry_kind kind, size_t len)
{
	uint8_t *bytes = arena_alloc(&arena, len + 1);

	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(index + i);
	return raft_entry_new((struct entry_id){ index, term }, kind, slice_of(bytes, len));
}

static Holdfast__Internal__RaftMessage *unpack(const struct buf *b)
{
	Holdfast__Internal__RaftMessage *pb = holdfast__internal__raft_message__unpack(&arena.pb, b->len, b->ptr);

	ck_assert_ptr_nonnull(pb);
	return pb;
}

/* Ours and protobuf-c's bytes are the same, so neighbouring releases may use either. */
static void assert_same_bytes_as_protobuf_c(const Holdfast__Internal__RaftMessage *pb, const struct buf *b)
{
	size_t len = holdfast__internal__raft_message__get_packed_size(pb);
	uint8_t *packed = arena_alloc(&arena, len + 1);

	ck_assert_uint_eq(len, b->len);
	holdfast__internal__raft_message__pack(pb, packed);
	if (len > 0)
		ck_assert_mem_eq(packed, b->ptr, len);
}

static void assert_same(const struct raft_message *a, const struct raft_message *b)
{
	ck_assert_uint_eq(a->kind, b->kind);
	ck_assert_uint_eq(a->term, b->term);
	ck_assert_uint_eq(a->log.index, b->log.index);
	ck_assert_uint_eq(a->log.term, b->log.term);
	ck_assert_uint_eq(a->commit, b->commit);
	ck_assert_int_eq(a->reject, b->reject);
	ck_assert_int_eq(a->force, b->force);
	ck_assert_int_eq(a->lost, b->lost);
	ck_assert_uint_eq(a->match.index, b->match.index);
	ck_assert_uint_eq(a->match.term, b->match.term);
	ck_assert_uint_eq(a->round, b->round);
	ck_assert_uint_eq(a->chunk, b->chunk);
	ck_assert_uint_eq(a->chunks, b->chunks);
	ck_assert(slice_eq(a->data, b->data));
	ck_assert_uint_eq(a->state_hash, b->state_hash);
	ck_assert_uint_eq(a->entries_len, b->entries_len);
	for (size_t i = 0; i < a->entries_len; i++) {
		ck_assert_uint_eq(a->entries[i]->index, b->entries[i]->index);
		ck_assert_uint_eq(a->entries[i]->term, b->entries[i]->term);
		ck_assert_uint_eq(a->entries[i]->kind, b->entries[i]->kind);
		ck_assert(slice_eq(raft_entry_data(a->entries[i]), raft_entry_data(b->entries[i])));
	}
}

static void round_trip(const struct raft_message *m)
{
	struct raft_message got;
	struct buf b = { 0 };
	Holdfast__Internal__RaftMessage *pb;

	raft_message_encode(m, &b);
	ck_assert_uint_eq(raft_message_encoded_size(m), b.len);
	pb = unpack(&b);
	assert_same_bytes_as_protobuf_c(pb, &b);
	ck_assert_int_eq(raft_message_decode(buf_view(&b), &arena, &got), ERR_OK);
	assert_same(m, &got);
	ck_assert_uint_eq(got.from, 0);
	ck_assert_uint_eq(got.to, 0);
	ck_assert_uint_eq(got.wait_seq, 0);
	for (size_t i = 0; i < got.entries_len; i++)
		ck_assert_uint_eq(got.entries[i]->refs, 1);
	raft_message_release(&got);
	ck_assert_uint_eq(got.entries_len, 0);
	buf_free(&b);
}

START_TEST(codec__every_field_survives)
{
	struct raft_entry *entries[] = {
		entry(8, 2, RAFT_ENTRY_COMMAND, 0),
		entry(9, 3, RAFT_ENTRY_NOOP, 0),
		entry(10, 3, RAFT_ENTRY_COMMAND, 1),
		entry(11, 3, RAFT_ENTRY_CONFIG, 126),
		entry(12, 7, RAFT_ENTRY_COMMAND, 70000),
	};
	struct raft_message append = {
		.kind = KIND(RAFT_APPEND), .from = 1, .to = 2, .term = 7, .log = { 7, 2 }, .commit = 5,
		.entries = entries, .entries_len = 5, .wait_seq = 9,
	};
	struct raft_message chunk = {
		.kind = KIND(RAFT_SNAPSHOT), .term = INT64_MAX, .log = { INT64_MAX, INT64_MAX }, .chunk = 1, .chunks = 300,
		.data = slice_of_str("bytes"), .state_hash = UINT64_C(0xfedcba9876543210),
	};
	struct raft_message reply = {
		.kind = KIND(RAFT_APPEND_REPLY), .term = 3, .reject = true, .match = { 128, 2 }, .round = 1, .force = true, .lost = true,
	};

	round_trip(&append);
	round_trip(&chunk);
	round_trip(&reply);
	raft_message_release(&append);
}
END_TEST

START_TEST(codec__encode_appends)
{
	struct raft_message m = { .kind = KIND(RAFT_TIMEOUT_NOW), .term = 1 };
	struct buf b = { 0 };

	buf_append(&b, "x", 1);
	raft_message_encode(&m, &b);
	ck_assert_uint_eq(b.len, 1 + raft_message_encoded_size(&m));
	ck_assert_int_eq(b.ptr[0], 'x');
	buf_free(&b);
}
END_TEST

static uint64_t any_number(struct rng *rng)
{
	return rng_next(rng) >> rng_between(rng, 1, 63);
}

START_TEST(codec__random_messages_survive)
{
	struct rng rng;

	rng_init(&rng, 42);
	for (int n = 0; n < 2000; n++) {
		struct raft_entry *entries[8];
		uint64_t term = any_number(&rng) | 8;
		struct raft_message m = {
			.kind = KIND(RAFT_APPEND), .term = term, .log = { any_number(&rng) >> 1 | 1, 1 },
			.commit = any_number(&rng), .reject = rng_chance(&rng, 500000), .match = { any_number(&rng), any_number(&rng) },
			.round = any_number(&rng), .force = rng_chance(&rng, 500000), .entries = entries,
			.entries_len = rng_below(&rng, 8), .state_hash = any_number(&rng),
		};

		for (size_t i = 0; i < m.entries_len; i++)
			entries[i] = entry(m.log.index + 1 + i, i + 1, RAFT_ENTRY_COMMAND, rng_below(&rng, 300));
		round_trip(&m);
		raft_message_release(&m);
		arena_clear(&arena);
	}
}
END_TEST

struct refused {
	const char *why;
	uint32_t kind;
	raft_term term;
	struct entry_id log;
	struct { uint64_t index, term, kind; } entries[3];
	uint64_t chunk, chunks;
	enum err want;
};

#define APPEND KIND(RAFT_APPEND)
static const struct refused refused[] = {
	{ "a sound append", APPEND, 5, { 3, 2 }, { { 4, 2, 1 }, { 5, 5, 0 }, { 6, 5, 2 } }, .want = ERR_OK },
	{ "an append from the start of the log", APPEND, 5, { 0, 0 }, { { 1, 1, 0 } }, .want = ERR_OK },
	{ "no kind", KIND(RAFT_NONE), 5, .want = ERR_MALFORMED },
	{ "a kind that is not known", KIND(RAFT_TIMEOUT_NOW) + 1, 5, .want = ERR_MALFORMED },
	{ "a gap before the entries", APPEND, 5, { 3, 2 }, { { 5, 2, 1 } }, .want = ERR_MALFORMED },
	{ "a gap among the entries", APPEND, 5, { 3, 2 }, { { 4, 2, 1 }, { 6, 2, 1 } }, .want = ERR_MALFORMED },
	{ "an entry twice", APPEND, 5, { 3, 2 }, { { 4, 2, 1 }, { 4, 2, 1 } }, .want = ERR_MALFORMED },
	{ "a term that falls", APPEND, 5, { 3, 2 }, { { 4, 4, 1 }, { 5, 3, 1 } }, .want = ERR_MALFORMED },
	{ "a term below the one before", APPEND, 5, { 3, 2 }, { { 4, 1, 1 } }, .want = ERR_MALFORMED },
	{ "a term after the sender's", APPEND, 5, { 3, 2 }, { { 4, 6, 1 } }, .want = ERR_MALFORMED },
	{ "an entry of term 0", APPEND, 5, { 0, 0 }, { { 1, 0, 1 } }, .want = ERR_MALFORMED },
	{ "an entry kind that is not known", APPEND, 5, { 3, 2 }, { { 4, 2, 3 } }, .want = ERR_MALFORMED },
	{ "an entry kind that is one of ours but for its high bits", APPEND, 5, { 3, 2 }, { { 4, 2, 257 } }, .want = ERR_MALFORMED },
	{ "an index that wraps around", APPEND, 5, { UINT64_MAX, 2 }, { { 0, 2, 1 } }, .want = ERR_MALFORMED },
	{ "a term that the next one could wrap around", APPEND, UINT64_MAX, { 3, 2 }, .want = ERR_MALFORMED },
	{ "a position that the next one could wrap around", APPEND, 5, { UINT64_MAX, 2 }, .want = ERR_MALFORMED },
	{ "a position after the sender's term", APPEND, 5, { 3, 6 }, .want = ERR_MALFORMED },
	{ "a position without a term", APPEND, 5, { 3, 0 }, .want = ERR_MALFORMED },
	{ "a term without a position", APPEND, 5, { 0, 3 }, .want = ERR_MALFORMED },
	{ "a candidate's log of a term to come", KIND(RAFT_VOTE), 5, { 3, 6 }, .want = ERR_MALFORMED },
	{ "a pre-candidate's log of a term to come", KIND(RAFT_PREVOTE), 5, { 3, 6 }, .want = ERR_MALFORMED },
	{ "entries in a heartbeat", KIND(RAFT_HEARTBEAT), 5, { 3, 2 }, { { 4, 2, 1 } }, .want = ERR_MALFORMED },
	{ "a chunk past the last", KIND(RAFT_SNAPSHOT), 5, { 3, 2 }, .chunk = 2, .chunks = 2, .want = ERR_MALFORMED },
	{ "a snapshot of a term to come", KIND(RAFT_SNAPSHOT), 5, { 3, 6 }, .chunk = 0, .chunks = 2, .want = ERR_MALFORMED },
	{ "the last chunk", KIND(RAFT_SNAPSHOT), 5, { 3, 2 }, .chunk = 1, .chunks = 2, .want = ERR_OK },
};

START_TEST(codec__what_no_sound_peer_sends_is_refused)
{
	const struct refused *t = &refused[_i];
	Holdfast__Internal__RaftMessage pb = HOLDFAST__INTERNAL__RAFT_MESSAGE__INIT;
	Holdfast__Internal__RaftEntry entries[3], *pointers[3];
	struct raft_message ret = { .kind = 77 };
	struct { uint8_t *ptr; size_t len; } packed;

	pb.kind = (Holdfast__Internal__RaftMessageKind)t->kind;
	pb.term = t->term;
	pb.log_index = t->log.index;
	pb.log_term = t->log.term;
	pb.chunk = t->chunk;
	pb.chunks = t->chunks;
	pb.entries = pointers;
	for (size_t i = 0; i < 3 && (t->entries[i].index || t->entries[i].term); i++) {
		pointers[i] = &entries[i];
		holdfast__internal__raft_entry__init(&entries[i]);
		entries[i].index = t->entries[i].index;
		entries[i].term = t->entries[i].term;
		entries[i].kind = (uint32_t)t->entries[i].kind;
		pb.n_entries = i + 1;
	}
	packed.ptr = arena_alloc(&arena, holdfast__internal__raft_message__get_packed_size(&pb) + 1);
	packed.len = holdfast__internal__raft_message__pack(&pb, packed.ptr);
	ck_assert_msg(raft_message_decode(slice_of(packed.ptr, packed.len), &arena, &ret) == t->want, "%s", t->why);
	if (t->want != ERR_OK)
		ck_assert_uint_eq(ret.kind, 77); /* untouched */
	else
		raft_message_release(&ret);
}
END_TEST

/* Whatever bytes arrive: no crash, and what gets through is sound. */
START_TEST(codec__damaged_bytes_do_no_harm)
{
	struct raft_entry *entries[] = { entry(4, 2, RAFT_ENTRY_COMMAND, 20), entry(5, 3, RAFT_ENTRY_COMMAND, 5) };
	struct raft_message m = {
		.kind = KIND(RAFT_APPEND), .term = 5, .log = { 3, 2 }, .entries = entries, .entries_len = 2,
	};
	struct rng rng;

	rng_init(&rng, 7);
	for (int n = 0; n < 20000; n++) {
		struct raft_message got;
		struct buf b = { 0 };

		raft_message_encode(&m, &b);
		for (uint64_t flips = rng_between(&rng, 1, 4); flips > 0; flips--)
			b.ptr[rng_below(&rng, b.len)] = (uint8_t)rng_next(&rng);
		if (raft_message_decode(buf_view(&b), &arena, &got) == ERR_OK) {
			Holdfast__Internal__RaftMessage *pb = holdfast__internal__raft_message__unpack(&arena.pb, b.len, b.ptr);

			/* protobuf-c reads the same from them, where it takes them: of numbers we take any type. */
			if (pb)
				ck_assert_uint_eq(pb->n_entries, got.entries_len);
			for (size_t i = 0; i < got.entries_len; i++)
				ck_assert_uint_eq(got.entries[i]->index, got.log.index + 1 + i);
			raft_message_release(&got);
		}
		buf_free(&b);
		arena_clear(&arena);
	}
	raft_message_release(&m);
}
END_TEST

START_TEST(entry__lives_as_long_as_its_last_reference)
{
	struct raft_entry *e = raft_entry_new((struct entry_id){ 3, 2 }, RAFT_ENTRY_COMMAND, slice_of_str("abc"));

	ck_assert_ptr_eq(raft_entry_ref(e), e);
	ck_assert_uint_eq(e->refs, 2);
	raft_entry_unref(e);
	ck_assert_uint_eq(e->refs, 1);
	ck_assert(slice_eq(raft_entry_data(e), slice_of_str("abc")));
	ck_assert_uint_eq(e->index, 3);
	ck_assert_uint_eq(e->term, 2);
	raft_entry_unref(e);
	raft_entry_unref(NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_raft_codec");
	TCase *tc = tcase_create("codec");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, entry__lives_as_long_as_its_last_reference);
	tcase_add_test(tc, codec__every_field_survives);
	tcase_add_test(tc, codec__encode_appends);
	tcase_add_test(tc, codec__random_messages_survive);
	tcase_add_loop_test(tc, codec__what_no_sound_peer_sends_is_refused, 0, (int)(sizeof(refused) / sizeof(refused[0])));
	tcase_add_test(tc, codec__damaged_bytes_do_no_harm);
	suite_add_tcase(s, tc);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
