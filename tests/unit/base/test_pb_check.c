#include <stdlib.h>

#include "base/arena.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "base/rng.h"
#include "nested.pb-c.h"
#include "suites.h"

enum { DEPTH = PB_CHECK_DEPTH_MAX };

static enum pb_check check_node(struct slice bytes, unsigned max_depth)
{
	return pb_check(&base_test__node__descriptor, bytes, max_depth);
}

static bool unpacks(struct slice bytes)
{
	struct arena a;
	bool ok;

	arena_init(&a);
	ok = base_test__node__unpack(&a.pb, bytes.len, bytes.ptr) != NULL;
	arena_deinit(&a);
	return ok;
}

#define BYTES(text) { (const uint8_t *)(text), sizeof(text) - 1 }

static const struct {
	const char *name;
	struct slice bytes;
} good[] = {
	{ "nothing at all", BYTES("") },
	{ "a number", BYTES("\x08\x96\x01") },
	{ "a number in ten bytes", BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01") },
	{ "a number padded with zeros", BYTES("\x08\x81\x80\x80\x00") },
	{ "a number of more than 64 bits, cut as everybody does", BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f") },
	{ "empty bytes", BYTES("\x12\x00") },
	{ "a length padded with zeros", BYTES("\x12\x81\x80\x00q") },
	{ "a tag padded with zeros", BYTES("\x88\x80\x00\x01") },
	{ "an empty sub-message", BYTES("\x22\x00") },
	{ "a sub-message with unknown fields of all four kinds",
	  BYTES("\x22\x17\x50\x01\x59qqqqqqqq\x62\x02qq\x6dqqqq\xd0\x0f\x01") },
	{ "unknown bytes that are no message", BYTES("\xaa\x06\x02\xff\xff") },
	{ "packed numbers", BYTES("\x2a\x03\x01\x96\x01") },
	{ "no packed numbers", BYTES("\x2a\x00") },
	{ "numbers that could be packed but are not", BYTES("\x28\x01\x28\x02") },
	{ "packed numbers that the schema wants unpacked", BYTES("\x8a\x01\x02\x01\x02") },
	{ "packed fixed32", BYTES("\x32\x08qqqqqqqq") },
	{ "packed double", BYTES("\x9a\x01\x08qqqqqqqq") },
	{ "a string with a NUL and broken UTF-8", BYTES("\x3a\x02\x00\xff") },
	{ "two members of a oneof", BYTES("\x42\x00\x50\x01") },
	{ "a sub-message twice, to be merged", BYTES("\x22\x02\x10\x02\x22\x02\x18\x01") },
	{ "a large field number", BYTES("\x85\x7dqqqq") },
};

START_TEST(pb_check__passes_what_is_well_formed)
{
	ck_assert_msg(check_node(good[_i].bytes, DEPTH) == PB_CHECK_OK, "%s", good[_i].name);
	ck_assert_msg(unpacks(good[_i].bytes), "%s: does not unpack", good[_i].name);
}
END_TEST

static const struct {
	const char *name;
	struct slice bytes;
	bool stricter; /* protobuf-c lets it pass */
} bad[] = {
	{ "field number 0", BYTES("\x00\x01"), false },
	{ "field number 0 in two bytes", BYTES("\x80\x00\x01"), true },
	{ "a tag cut short", BYTES("\x80"), false },
	{ "a tag of six bytes", BYTES("\x88\x80\x80\x80\x80\x00\x01"), false },
	{ "a tag beyond 32 bits", BYTES("\xf8\xff\xff\xff\x7f\x01"), true },
	{ "a number that is missing", BYTES("\x08"), false },
	{ "a number cut short", BYTES("\x08\x80"), false },
	{ "a number of eleven bytes", BYTES("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), false },
	{ "an unknown number of eleven bytes", BYTES("\xa0\x06\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), false },
	{ "fixed64 cut short", BYTES("\x61qqqqqqq"), false },
	{ "fixed32 cut short", BYTES("\x85\x7dqqq"), false },
	{ "a length past the end", BYTES("\x12\x02q"), false },
	{ "a length that is missing", BYTES("\x12"), false },
	{ "a length of six bytes", BYTES("\x12\x81\x80\x80\x80\x80\x00q"), false },
	{ "a length beyond 31 bits", BYTES("\x12\x80\x80\x80\x80\x08q"), false },
	{ "a length beyond 32 bits that wraps to one", BYTES("\x12\x81\x80\x80\x80\x10q"), false },
	{ "a group", BYTES("\x0b\x0c"), false },
	{ "an unknown group", BYTES("\xa3\x06\xa4\x06"), false },
	{ "the end of a group that never began", BYTES("\xa4\x06"), false },
	{ "wire type 6", BYTES("\x0e\x01"), false },
	{ "wire type 7", BYTES("\x0f\x01"), false },
	{ "a number where a message is due", BYTES("\x20\x01"), false },
	{ "a number where a repeated message is due", BYTES("\x18\x01"), false },
	{ "a number where bytes are due", BYTES("\x10\x01"), false },
	{ "a number where repeated strings are due", BYTES("\x38\x01"), false },
	{ "bytes where a number is due", BYTES("\x0a\x01\x01"), false },
	{ "a number where fixed64 is due", BYTES("\x60\x01"), false },
	{ "fixed64 where fixed32 is due", BYTES("\x81\x7dqqqqqqqq"), false },
	{ "fixed64 where repeated numbers are due", BYTES("\x29qqqqqqqq"), false },
	{ "a packed number cut short", BYTES("\x2a\x02\x01\x80"), false },
	{ "a packed number of eleven bytes", BYTES("\x2a\x0b\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), false },
	{ "packed fixed32 of odd length", BYTES("\x32\x05qqqqq"), false },
	{ "packed double of odd length", BYTES("\x9a\x01\x04qqqq"), false },
	{ "a sub-message cut short", BYTES("\x22\x02\x0a\x01q"), false },
	{ "a bool that is not a varint", BYTES("\x22\x05\x1dqqqq"), true },
	{ "an error after a sub-message", BYTES("\x22\x02\x18\x01\x0f"), false },
};

START_TEST(pb_check__refuses_what_is_malformed)
{
	/* a copy of its own, so that the address sanitizer sees a byte read too many */
	struct buf b = buf_copy_of(bad[_i].bytes);

	ck_assert_msg(check_node(buf_view(&b), DEPTH) == PB_CHECK_MALFORMED, "%s", bad[_i].name);
	ck_assert_msg(unpacks(buf_view(&b)) == bad[_i].stricter, "%s: protobuf-c differs", bad[_i].name);
	buf_free(&b);
}
END_TEST

/* `depth` nodes within each other, by way of `field`. */
static struct buf nested(uint32_t field, size_t depth)
{
	size_t *marks = mem_alloc(depth * sizeof(*marks));
	struct buf b = { 0 };

	for (size_t i = 0; i < depth; i++)
		marks[i] = pbw_open(&b, field);
	for (size_t i = depth; i > 0; i--)
		pbw_close(&b, marks[i - 1]);
	free(marks);
	return b;
}

START_TEST(pb_check__counts_depth)
{
	static const uint32_t fields[] = { 3, 9 }; /* repeated, oneof */

	for (size_t f = 0; f < 2; f++) {
		for (unsigned depth = 0; depth <= DEPTH; depth++) {
			struct buf b = nested(fields[f], depth);

			ck_assert_int_eq(check_node(buf_view(&b), depth), PB_CHECK_OK);
			ck_assert_int_eq(check_node(buf_view(&b), DEPTH), PB_CHECK_OK);
			if (depth > 0)
				ck_assert_int_eq(check_node(buf_view(&b), depth - 1), PB_CHECK_TOO_DEEP);
			buf_free(&b);
		}
	}
}
END_TEST

START_TEST(pb_check__breadth_is_not_depth)
{
	struct buf b = { 0 };

	for (int i = 0; i < 1000; i++) {
		size_t mark = pbw_open(&b, 3);

		pbw_close(&b, pbw_open(&b, 4));
		pbw_close(&b, mark);
	}
	ck_assert_int_eq(check_node(buf_view(&b), 2), PB_CHECK_OK);
	ck_assert_int_eq(check_node(buf_view(&b), 1), PB_CHECK_TOO_DEEP);
	buf_free(&b);
}
END_TEST

START_TEST(pb_check__stops_a_nesting_bomb)
{
	struct buf b = nested(9, 10000);

	ck_assert_int_eq(check_node(buf_view(&b), DEPTH), PB_CHECK_TOO_DEEP);
	buf_free(&b);
}
END_TEST

START_TEST(pb_check__unknown_nesting_has_no_depth)
{
	struct buf b = nested(100, 1000);

	ck_assert_int_eq(check_node(buf_view(&b), 0), PB_CHECK_OK);
	ck_assert(unpacks(buf_view(&b)));
	buf_free(&b);
}
END_TEST

static void add_blob(struct buf *b, struct rng *r, uint32_t field)
{
	uint8_t bytes[40];
	size_t len = (size_t)rng_below(r, sizeof(bytes));

	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)rng_next(r);
	pbw_bytes_always(b, field, slice_of(bytes, len));
}

static uint64_t any_number(struct rng *r)
{
	return rng_next(r) >> rng_below(r, 64);
}

static void add_fixed32(struct buf *b, struct rng *r, uint32_t field)
{
	uint32_t v = (uint32_t)rng_next(r);

	pbw_varint(b, (uint64_t)field << 3 | PROTOBUF_C_WIRE_TYPE_32BIT);
	buf_append(b, &v, sizeof(v));
}

static void add_packed(struct buf *b, struct rng *r, uint32_t field, size_t element)
{
	size_t mark = pbw_open(b, field);

	for (uint64_t left = rng_below(r, 12); left > 0; left--) {
		uint64_t v = any_number(r);

		if (element == 0)
			pbw_varint(b, v);
		else
			buf_append(b, &v, element);
	}
	pbw_close(b, mark);
}

static void add_leaf(struct buf *b, struct rng *r, uint32_t field)
{
	size_t mark = pbw_open(b, field);

	if (rng_chance(r, 500000))
		add_blob(b, r, 1);
	pbw_u64(b, 2, rng_below(r, 300));
	pbw_u64(b, 3, rng_below(r, 2));
	pbw_close(b, mark);
}

/* Any legal spelling: fields in any order, singular ones repeated, oneofs overwritten, numbers packed or not. */
static void add_node(struct buf *b, struct rng *r, unsigned depth)
{
	for (uint64_t left = rng_below(r, 8); left > 0; left--) {
		uint32_t field = (uint32_t)rng_between(r, 1, 23);
		size_t mark;

		switch (field) {
		case 1: case 10: case 15: case 21: case 22:
			pbw_u64_always(b, field, any_number(r));
			break;
		case 2: case 7: case 11: case 23:
			add_blob(b, r, field);
			break;
		case 3: case 9:
			if (depth == 0)
				break;
			mark = pbw_open(b, field);
			add_node(b, r, depth - 1);
			pbw_close(b, mark);
			break;
		case 4: case 8: case 20:
			add_leaf(b, r, field);
			break;
		case 6:
			if (rng_chance(r, 500000))
				add_packed(b, r, field, 4);
			else
				add_fixed32(b, r, field);
			break;
		case 12: case 13:
			pbw_fixed64(b, field, rng_next(r) | 1);
			break;
		case 14:
			add_fixed32(b, r, field);
			break;
		case 19:
			if (rng_chance(r, 500000))
				add_packed(b, r, field, 8);
			else
				pbw_fixed64(b, field, rng_next(r) | 1);
			break;
		default: /* 5, 16, 17, 18 */
			if (rng_chance(r, 500000))
				add_packed(b, r, field, 0);
			else
				pbw_u64_always(b, field, any_number(r));
			break;
		}
	}
}

static void mutate(struct buf *b, struct rng *r)
{
	size_t at, len;

	if (b->len == 0)
		return;
	at = (size_t)rng_below(r, b->len);
	len = (size_t)rng_between(r, 1, b->len - at);
	switch (rng_below(r, 6)) {
	case 0: /* flip a bit */
		b->ptr[at] ^= (uint8_t)(1 << rng_below(r, 8));
		break;
	case 1: /* any byte */
		b->ptr[at] = (uint8_t)rng_next(r);
		break;
	case 2: /* a byte of the kind that decides */
		b->ptr[at] = (const uint8_t[]){ 0x00, 0x7f, 0x80, 0xff, 0x22, 0x4a, 0x1a, 0x2a }[rng_below(r, 8)];
		break;
	case 3: /* cut the end */
		b->len = at;
		break;
	case 4: /* cut from the middle */
		memmove(b->ptr + at, b->ptr + at + len, b->len - at - len);
		b->len -= len;
		break;
	default: { /* repeat a part */
		struct buf copy = buf_copy_of(slice_of(b->ptr + at, len));

		buf_append_slice(b, buf_view(&copy));
		buf_free(&copy);
		break;
	}
	}
}

/* With malloc as allocator the sanitizer also sees what protobuf-c frees, twice or never. */
static void unpack_and_free(struct slice bytes)
{
	BaseTest__Node *node = base_test__node__unpack(NULL, bytes.len, bytes.ptr);

	ck_assert_ptr_nonnull(node);
	base_test__node__free_unpacked(node, NULL);
}

/* Loop test: _i is the seed. */
START_TEST(pb_check__passes_every_legal_spelling)
{
	struct rng r;

	rng_init(&r, (uint64_t)_i);
	for (int round = 0; round < 3000; round++) {
		struct buf b = { 0 };

		add_node(&b, &r, 5);
		ck_assert_int_eq(check_node(buf_view(&b), 6), PB_CHECK_OK);
		unpack_and_free(buf_view(&b));
		buf_free(&b);
	}
}
END_TEST

/* Loop test: _i is the seed. */
START_TEST(pb_check__what_passes_unpacks)
{
	struct rng r;
	int passed = 0, refused = 0, stricter = 0;

	rng_init(&r, (uint64_t)_i);
	for (int round = 0; round < 20000; round++) {
		struct buf b = { 0 }, exact;

		add_node(&b, &r, 5);
		for (uint64_t left = rng_between(&r, 1, 4); left > 0; left--)
			mutate(&b, &r);
		exact = buf_copy_of(buf_view(&b)); /* ends where its memory ends */

		if (check_node(buf_view(&exact), DEPTH) == PB_CHECK_OK) {
			passed++;
			ck_assert(unpacks(buf_view(&exact)));
			unpack_and_free(buf_view(&exact));
		} else {
			refused++;
			stricter += unpacks(buf_view(&exact));
		}
		buf_free(&exact);
		buf_free(&b);
	}
	/* both happen often, and being stricter stays the exception that the table above spells out */
	ck_assert_int_gt(passed, 2000);
	ck_assert_int_gt(refused, 2000);
	ck_assert_int_lt(stricter, refused / 50);
}
END_TEST

Suite *pb_check_suite(void)
{
	Suite *s = suite_create("pb_check");
	TCase *tc = tcase_create("pb_check");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, pb_check__passes_what_is_well_formed, 0, (int)(sizeof(good) / sizeof(good[0])));
	tcase_add_loop_test(tc, pb_check__refuses_what_is_malformed, 0, (int)(sizeof(bad) / sizeof(bad[0])));
	tcase_add_test(tc, pb_check__counts_depth);
	tcase_add_test(tc, pb_check__breadth_is_not_depth);
	tcase_add_test(tc, pb_check__stops_a_nesting_bomb);
	tcase_add_test(tc, pb_check__unknown_nesting_has_no_depth);
	tcase_add_loop_test(tc, pb_check__passes_every_legal_spelling, 0, 4);
	tcase_add_loop_test(tc, pb_check__what_passes_unpacks, 0, 8);
	suite_add_tcase(s, tc);
	return s;
}
