/* Snapshots: a state goes through bytes and is the same; bytes that were meddled with never become a state that nobody had. */
#include <check.h>

#include "base/mem.h"
#include "base/pbw.h"
#include "base/rng.h"
#include "core/member/member.h"
#include "core/snapshot/snapshot.h"
#include "records.h"

#define CELL UINT64_C(0xce11)
enum { CHUNKS_MAX = 64 };

struct chunks {
	struct buf at[CHUNKS_MAX];
	size_t len;
};

static struct chunks encode(const struct state *st)
{
	struct snapshot_encoder *e = snapshot_encoder_new(st, CELL);
	struct chunks c = { .len = 0 };

	while (snapshot_encoder_next(e, &c.at[c.len])) {
		c.len++;
		ck_assert_uint_lt(c.len, CHUNKS_MAX);
	}
	ck_assert_uint_eq(c.at[c.len].len, 0);
	ck_assert(!snapshot_encoder_next(e, &c.at[c.len]));
	snapshot_encoder_free(e);
	return c;
}

static void chunks_free(struct chunks *c)
{
	for (size_t i = 0; i < c->len; i++)
		buf_free(&c->at[i]);
}

static enum err decode(const struct buf *chunks, size_t len, struct state *ret)
{
	struct snapshot_decoder *d = snapshot_decoder_new(CELL);
	enum err e = ERR_OK;

	for (size_t i = 0; i < len && !e; i++)
		e = snapshot_decoder_feed(d, buf_view(&chunks[i]));
	if (!e)
		e = snapshot_decoder_finish(d, ret);
	snapshot_decoder_free(d);
	return e;
}

static void put(struct tree *t, uint64_t key, uint64_t number, size_t padding)
{
	uint8_t bytes[8];

	for (int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(key >> (56 - 8 * i));
	tree_put_take(t, record_new(slice_of(bytes, 8), number, padding));
}

static void add_members(struct state *st)
{
	const char *const one[] = { "http://a:1" }, *const two[] = { "http://b:1", "http://b:2" };

	member_add_initial(st, &(struct member_spec){ "a", one, 1 }, "t");
	member_add_initial(st, &(struct member_spec){ "b", two, 2 }, "t");
	ck_assert_int_eq(member_publish(st, member_derive_id(one, 1, "t"), "a", two, 2, 77), ERR_OK);
}

static void fill(struct state *st, unsigned keys, size_t padding)
{
	state_init(st);
	st->applied = (struct entry_id){ .index = 300, .term = 4 };
	st->revision = 1000;
	st->compact_revision = 10;
	for (unsigned i = 0; i < keys; i++)
		put(&st->keys, i * 7u, i, padding);
	put(&st->leases, 1, 10, 0);
	put(&st->leases, UINT64_MAX, 20, 3);
	put(&st->contenders, 5, 1, 0);
	add_members(st);
}

static void check_round_trip(struct state *st, size_t want_chunks)
{
	struct chunks c = encode(st), again;
	struct state back;

	ck_assert_uint_eq(c.len, want_chunks);
	ck_assert_int_eq(decode(c.at, c.len, &back), ERR_OK);
	ck_assert_uint_eq(state_hash(&back), state_hash(st));
	ck_assert_uint_eq(back.applied.index, st->applied.index);
	ck_assert_uint_eq(back.applied.term, st->applied.term);
	ck_assert_int_eq(back.revision, st->revision);
	ck_assert_int_eq(back.compact_revision, st->compact_revision);
	tree_check(&back.keys);
	tree_check(&back.members);
	again = encode(&back); /* P10: equal states, equal bytes */
	ck_assert_uint_eq(again.len, c.len);
	for (size_t i = 0; i < c.len; i++)
		ck_assert(slice_eq(buf_view(&c.at[i]), buf_view(&again.at[i])));
	chunks_free(&again);
	chunks_free(&c);
	state_deinit(&back);
	state_deinit(st);
	ck_assert_int_eq(records_alive, 0);
}

START_TEST(snapshot__empty_state_is_one_chunk)
{
	struct state st;

	state_init(&st);
	check_round_trip(&st, 1);
}
END_TEST

START_TEST(snapshot__small_state_is_one_chunk)
{
	struct state st;

	fill(&st, 100, 5);
	check_round_trip(&st, 1);
}
END_TEST

START_TEST(snapshot__large_state_is_cut_into_full_chunks)
{
	struct state st;
	struct chunks c;
	size_t bytes = 0;

	fill(&st, 20000, 100);
	c = encode(&st);
	for (size_t i = 0; i < c.len; i++) {
		ck_assert_uint_le(c.at[i].len, SNAPSHOT_CHUNK_BYTES);
		ck_assert(i + 1 == c.len || c.at[i].len > SNAPSHOT_CHUNK_BYTES - 200);
		bytes += c.at[i].len;
	}
	ck_assert_uint_eq(c.len, bytes / SNAPSHOT_CHUNK_BYTES + 1);
	bytes = c.len;
	chunks_free(&c);
	check_round_trip(&st, bytes);
}
END_TEST

START_TEST(snapshot__record_larger_than_a_chunk_has_its_own)
{
	struct state st;

	fill(&st, 10, 5);
	put(&st.keys, 3, 1, SNAPSHOT_CHUNK_BYTES * 2);
	check_round_trip(&st, 3); /* before it, it alone, after it */
}
END_TEST

START_TEST(snapshot__a_head_and_a_large_first_record_do_not_share)
{
	struct state st;

	state_init(&st);
	put(&st.contenders, 3, 1, SNAPSHOT_CHUNK_BYTES);
	check_round_trip(&st, 2);
}
END_TEST

START_TEST(snapshot__a_view_is_encoded_as_it_was)
{
	struct state st, view, back;
	struct snapshot_encoder *e;
	struct chunks c = { .len = 0 };
	uint64_t hash;

	fill(&st, 20000, 100);
	view = state_view(&st);
	hash = state_hash(&view);
	e = snapshot_encoder_new(&view, CELL);
	while (snapshot_encoder_next(e, &c.at[c.len])) {
		c.len++;
		for (uint64_t i = 0; i < 1000; i++)
			put(&st.keys, i + 1000 * c.len, c.len, 1);
	}
	snapshot_encoder_free(e);
	state_deinit(&view);
	ck_assert_int_eq(decode(c.at, c.len, &back), ERR_OK);
	ck_assert_uint_eq(state_hash(&back), hash);
	ck_assert_uint_ne(state_hash(&st), hash);
	chunks_free(&c);
	state_deinit(&st);
	state_deinit(&back);
}
END_TEST

START_TEST(snapshot__same_log_same_bytes_whatever_the_way)
{
	struct state one, two;
	struct chunks a, b;

	fill(&one, 500, 5);
	fill(&two, 0, 0);
	for (unsigned i = 500; i-- > 0;) {
		put(&two.keys, i * 7u, 1, 9);
		put(&two.keys, i * 7u + 1, 1, 9);
		put(&two.keys, i * 7u, i, 5);
	}
	for (unsigned i = 0; i < 500; i++) {
		uint8_t key[8] = { 0, 0, 0, 0, 0, 0, (uint8_t)((i * 7u + 1) >> 8), (uint8_t)(i * 7u + 1) };
		ck_assert(tree_remove(&two.keys, slice_of(key, 8)));
	}
	a = encode(&one);
	b = encode(&two);
	ck_assert_uint_eq(a.len, 1);
	ck_assert(slice_eq(buf_view(&a.at[0]), buf_view(&b.at[0])));
	chunks_free(&a);
	chunks_free(&b);
	state_deinit(&one);
	state_deinit(&two);
}
END_TEST

/* ---- what must not pass ---- */

START_TEST(snapshot__of_another_cell_is_refused)
{
	struct snapshot_decoder *d = snapshot_decoder_new(CELL + 1);
	struct state st;
	struct chunks c;

	fill(&st, 3, 5);
	c = encode(&st);
	ck_assert_int_eq(snapshot_decoder_feed(d, buf_view(&c.at[0])), ERR_WRONG_CELL);
	snapshot_decoder_free(d);
	chunks_free(&c);
	state_deinit(&st);
}
END_TEST

START_TEST(snapshot__with_chunks_missing_or_out_of_place_is_refused)
{
	struct state st, back;
	struct chunks c;
	struct buf order[4];

	fill(&st, 7000, 100);
	c = encode(&st);
	ck_assert_uint_eq(c.len, 4);
	ck_assert_int_eq(decode(c.at, 0, &back), ERR_CORRUPT);
	for (size_t len = 1; len < c.len; len++) {
		ck_assert_int_eq(decode(c.at, len, &back), ERR_CORRUPT);
		ck_assert_int_eq(decode(c.at + len, c.len - len, &back), ERR_CORRUPT);
	}
	for (size_t i = 0; i < c.len; i++) {
		for (size_t j = 0; j < c.len; j++) {
			memcpy(order, c.at, sizeof(order));
			order[i] = c.at[j]; /* one twice, another not at all */
			if (i != j)
				ck_assert_int_eq(decode(order, c.len, &back), ERR_CORRUPT);
			order[j] = c.at[i]; /* or two exchanged */
			if (i != j)
				ck_assert_int_eq(decode(order, c.len, &back), ERR_CORRUPT);
		}
	}
	ck_assert_int_eq(decode(c.at, c.len, &back), ERR_OK);
	state_deinit(&back);
	chunks_free(&c);
	state_deinit(&st);
	ck_assert_int_eq(records_alive, 0);
}
END_TEST

/* A chunk 0 with a true head for `st`, and then whatever the test adds. */
static struct buf chunk_of(const struct state *st, const char *rest, size_t len)
{
	struct state bare = *st;
	struct chunks c;
	struct buf b;

	c = encode(&bare);
	ck_assert_uint_eq(c.len, 1);
	b = buf_take(&c.at[0]);
	buf_append(&b, rest, len);
	return b;
}

#define REST(bytes) (bytes), sizeof(bytes) - 1
#define RECORD(key) "\x0a" "\1\0\0\0\0\0\0\0" "\x01" key /* length 10, number 1, a key of one byte */

static const struct {
	const char *what, *bytes;
	size_t len;
	enum err want;
} bad_cases[] = {
	{ "a second head", REST("\x01\x01\x01\x00"), ERR_CORRUPT },
	{ "section zero", REST("\x00\x01\x01\x00"), ERR_CORRUPT },
	{ "a section we do not know", REST("\x7f\x01\x01\x00"), ERR_WRONG_VERSION },
	{ "records of a later version", REST("\x02\x04\x01" RECORD("k")), ERR_WRONG_VERSION },
	{ "a group of nothing", REST("\x02\x03\x00"), ERR_CORRUPT },
	{ "fewer records than counted", REST("\x02\x03\x02" RECORD("k")), ERR_CORRUPT },
	{ "more than counted", REST("\x02\x03\x01" RECORD("k") RECORD("l")), ERR_CORRUPT }, /* the rest reads as a group */
	{ "a count beyond all bytes", REST("\x02\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), ERR_CORRUPT },
	{ "a length beyond the end", REST("\x02\x03\x01\x0b" "\1\0\0\0\0\0\0\0" "\x01k"), ERR_CORRUPT },
	{ "a length of 2^64 - 1", REST("\x02\x03\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01k"), ERR_CORRUPT },
	{ "a varint without end", REST("\x02\x03\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), ERR_CORRUPT },
	{ "a varint longer than it need be", REST("\x82\x00\x03\x01" RECORD("k")), ERR_CORRUPT },
	{ "a varint cut short", REST("\x02\x03\x80"), ERR_CORRUPT },
	{ "a record that is none", REST("\x02\x03\x01\x01x"), ERR_CORRUPT },
	{ "the same key twice", REST("\x02\x03\x02" RECORD("k") RECORD("k")), ERR_CORRUPT },
	{ "keys that fall", REST("\x02\x03\x02" RECORD("l") RECORD("k")), ERR_CORRUPT },
	{ "sections that fall", REST("\x03\x01\x01" RECORD("k") "\x02\x03\x01" RECORD("k")), ERR_CORRUPT },
	{ "one section in two groups", REST("\x02\x03\x01" RECORD("k") "\x02\x03\x01" RECORD("l")), ERR_CORRUPT },
	{ "records that the hash does not know", REST("\x02\x03\x01" RECORD("k")), ERR_CORRUPT },
};

START_TEST(snapshot__bad_bytes_are_refused)
{
	struct state st, back;
	struct buf b;

	state_init(&st);
	b = chunk_of(&st, bad_cases[_i].bytes, bad_cases[_i].len);
	ck_assert_msg(decode(&b, 1, &back) == bad_cases[_i].want, "%s", bad_cases[_i].what);
	buf_free(&b);
	state_deinit(&st);
	ck_assert_int_eq(records_alive, 0);
}
END_TEST

START_TEST(snapshot__heads_are_checked)
{
	static const struct {
		uint64_t version;
		int64_t revision, compact_revision;
		enum err want;
	} cases[] = {
		{ 2, 5, 0, ERR_WRONG_VERSION }, { 0, 5, 0, ERR_CORRUPT }, { 1, 0, 0, ERR_CORRUPT },
		{ 1, -5, 0, ERR_CORRUPT },      { 1, 5, -1, ERR_CORRUPT }, { 1, 5, 6, ERR_CORRUPT },
		{ 1, 5, 5, ERR_CORRUPT }, /* would do, but the hash is of another */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buf head = { 0 }, b = { 0 };
		struct state back;

		pbw_u64(&head, 1, cases[i].version);
		pbw_i64(&head, 4, cases[i].revision);
		pbw_i64(&head, 5, cases[i].compact_revision);
		pbw_fixed64(&head, 6, 1234);
		pbw_fixed64(&head, 7, CELL);
		buf_append(&b, "\x01\x01\x01\x01", 4);
		pbw_varint(&b, head.len);
		buf_append_slice(&b, buf_view(&head));
		ck_assert_int_eq(decode(&b, 1, &back), cases[i].want);
		buf_free(&head);
		buf_free(&b);
	}
}
END_TEST

/* Whatever was done to the bytes: refused, or a state that the hash in the head vouches for, which then is the one that was written. */
static void check_meddled(const struct buf *chunks, size_t len, uint64_t hash)
{
	struct state back;

	if (decode(chunks, len, &back) != ERR_OK)
		return;
	ck_assert_uint_eq(state_hash(&back), hash);
	state_deinit(&back);
}

START_TEST(snapshot__no_truncation_and_no_flipped_bit_passes)
{
	struct state st, back;
	struct chunks c;

	fill(&st, 12, 5);
	c = encode(&st);
	ck_assert_uint_eq(c.len, 1);
	for (size_t i = 0; i < c.at[0].len; i++) {
		struct buf cut = buf_copy_of(slice_of(c.at[0].ptr, i)); /* its own block, so that a byte too far is seen */
		ck_assert_int_ne(decode(&cut, 1, &back), ERR_OK);
		buf_free(&cut);
		for (unsigned bit = 0; bit < 8; bit++) {
			c.at[0].ptr[i] ^= (uint8_t)(1u << bit);
			ck_assert_int_ne(decode(c.at, 1, &back), ERR_OK);
			c.at[0].ptr[i] ^= (uint8_t)(1u << bit);
		}
	}
	chunks_free(&c);
	state_deinit(&st);
	ck_assert_int_eq(records_alive, 0);
}
END_TEST

START_TEST(snapshot__random_damage_never_makes_another_state)
{
	struct state st;
	struct chunks c;
	struct rng rng;
	uint64_t hash;

	rng_init(&rng, (uint64_t)_i);
	fill(&st, 20, 5);
	hash = state_hash(&st);
	c = encode(&st);
	for (unsigned round = 0; round < 5000; round++) {
		struct buf b = buf_copy_of(buf_view(&c.at[0]));
		for (uint64_t n = rng_between(&rng, 1, 4); n > 0; n--) {
			size_t at = rng_below(&rng, b.len), from = rng_below(&rng, b.len);
			size_t len = rng_below(&rng, b.len - (at > from ? at : from)) % 40 + 1;

			if (rng_chance(&rng, 500000))
				b.ptr[at] = (uint8_t)rng_next(&rng);
			else
				memmove(b.ptr + at, b.ptr + from, len);
		}
		check_meddled(&b, 1, hash);
		buf_free(&b);
	}
	chunks_free(&c);
	state_deinit(&st);
	ck_assert_int_eq(records_alive, 0);
}
END_TEST

START_TEST(state__hash_tells_states_apart)
{
	struct state a, b;

	state_init(&a);
	state_init(&b);
	ck_assert_uint_eq(state_hash(&a), state_hash(&b));
	b.revision = 2;
	ck_assert_uint_ne(state_hash(&a), state_hash(&b));
	b.revision = 1;
	b.compact_revision = 1;
	ck_assert_uint_ne(state_hash(&a), state_hash(&b));
	b.compact_revision = 0;
	b.applied.index = 1;
	ck_assert_uint_ne(state_hash(&a), state_hash(&b));
	b.applied.index = 0;
	put(&a.keys, 1, 1, 0);
	put(&b.leases, 1, 1, 0); /* the same record under another section */
	ck_assert_uint_eq(a.keys.hash, b.leases.hash);
	ck_assert_uint_ne(state_hash(&a), state_hash(&b));
	state_deinit(&a);
	state_deinit(&b);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_snapshot");
	TCase *tc = tcase_create("snapshot");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, snapshot__empty_state_is_one_chunk);
	tcase_add_test(tc, snapshot__small_state_is_one_chunk);
	tcase_add_test(tc, snapshot__large_state_is_cut_into_full_chunks);
	tcase_add_test(tc, snapshot__record_larger_than_a_chunk_has_its_own);
	tcase_add_test(tc, snapshot__a_head_and_a_large_first_record_do_not_share);
	tcase_add_test(tc, snapshot__a_view_is_encoded_as_it_was);
	tcase_add_test(tc, snapshot__same_log_same_bytes_whatever_the_way);
	tcase_add_test(tc, snapshot__of_another_cell_is_refused);
	tcase_add_test(tc, snapshot__with_chunks_missing_or_out_of_place_is_refused);
	tcase_add_loop_test(tc, snapshot__bad_bytes_are_refused, 0, sizeof(bad_cases) / sizeof(bad_cases[0]));
	tcase_add_test(tc, snapshot__heads_are_checked);
	tcase_add_test(tc, snapshot__no_truncation_and_no_flipped_bit_passes);
	tcase_add_loop_test(tc, snapshot__random_damage_never_makes_another_state, 0, 4);
	tcase_add_test(tc, state__hash_tells_states_apart);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
