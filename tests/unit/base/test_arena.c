#include "base/arena.h"

#include "base/rng.h"
#include "suites.h"

START_TEST(arena__zeroed_and_null_may_be_deinitialised)
{
	struct arena a = { 0 };

	arena_deinit(&a);
	arena_deinit(NULL);
	arena_init(&a);
	arena_clear(&a);
	arena_deinit(&a);
	arena_deinit(&a);
}
END_TEST

static bool all_are(const uint8_t *p, size_t len, uint8_t byte)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != byte)
			return false;
	return true;
}

START_TEST(arena__pieces_are_aligned_and_apart)
{
	enum { PIECES = 2000 };
	static uint8_t *piece[PIECES];
	static size_t size[PIECES];
	struct arena a;
	struct rng r;

	arena_init(&a);
	rng_init(&r, 1);
	for (size_t i = 0; i < PIECES; i++) {
		size[i] = (size_t)rng_below(&r, rng_chance(&r, 10000) ? 200000 : 600);
		piece[i] = arena_alloc(&a, size[i]);
		ck_assert_ptr_nonnull(piece[i]);
		ck_assert_uint_eq((uintptr_t)piece[i] % 16, 0);
		memset(piece[i], (int)(i & 0xff), size[i]);
	}
	for (size_t i = 0; i < PIECES; i++)
		ck_assert(all_are(piece[i], size[i], (uint8_t)i));
	arena_deinit(&a);
}
END_TEST

START_TEST(arena__counts_what_it_hands_out)
{
	struct arena a;

	arena_init(&a);
	ck_assert_uint_eq(a.used, 0);
	arena_alloc(&a, 1);
	arena_alloc(&a, 16);
	arena_alloc(&a, 17);
	ck_assert_uint_eq(a.used, 16 + 16 + 32);
	arena_clear(&a);
	ck_assert_uint_eq(a.used, 0);
	arena_deinit(&a);
}
END_TEST

START_TEST(arena__zero_bytes_have_an_address_of_their_own)
{
	struct arena a;
	void *first, *second;

	arena_init(&a);
	first = arena_alloc(&a, 0);
	second = arena_zalloc(&a, 0);
	ck_assert_ptr_nonnull(first);
	ck_assert_ptr_ne(first, second);
	arena_deinit(&a);
}
END_TEST

START_TEST(arena__big_piece_leaves_the_room_of_the_head)
{
	struct arena a;
	uint8_t *before, *big, *after;

	arena_init(&a);
	before = arena_alloc(&a, 16);
	big = arena_alloc(&a, 10 << 20);
	after = arena_alloc(&a, 16);
	ck_assert_ptr_eq(after, before + 16);
	memset(big, 1, 10 << 20);
	arena_clear(&a);
	arena_deinit(&a);

	/* and it may be the first of all */
	arena_init(&a);
	memset(arena_alloc(&a, 1 << 20), 1, 1 << 20);
	arena_clear(&a);
	ck_assert_int_le(a.end - a.next, 256 * 1024);
	arena_deinit(&a);
}
END_TEST

START_TEST(arena__clear_keeps_one_bounded_block)
{
	struct arena a;
	uint8_t *first;

	arena_init(&a);
	for (int i = 0; i < 10000; i++)
		memset(arena_alloc(&a, 1000), 1, 1000);
	arena_clear(&a);
	ck_assert_int_gt(a.end - a.next, 0);
	ck_assert_int_le(a.end - a.next, 256 * 1024);
	first = arena_alloc(&a, 8);
	arena_clear(&a);
	ck_assert_ptr_eq(arena_alloc(&a, 8), first);
	arena_deinit(&a);
}
END_TEST

START_TEST(arena__zalloc_zeroes_reused_memory)
{
	struct arena a;
	uint8_t *p;

	arena_init(&a);
	memset(arena_alloc(&a, 1000), 0xff, 1000);
	arena_clear(&a);
	p = arena_zalloc(&a, 1000);
	ck_assert(all_are(p, 1000, 0));
	arena_deinit(&a);
}
END_TEST

START_TEST(arena__copies_outlive_their_source)
{
	struct arena a;
	char text[] = "name";
	struct slice copy, empty;
	char *str;

	arena_init(&a);
	copy = arena_copy(&a, slice_of_str(text));
	str = arena_strdup(&a, slice_of(text, 2));
	empty = arena_copy(&a, (struct slice){ 0 });
	memset(text, 'x', 4);
	ck_assert(slice_eq(copy, slice_of_str("name")));
	ck_assert_str_eq(str, "na");
	ck_assert_uint_eq(empty.len, 0);
	ck_assert_str_eq(arena_strdup(&a, (struct slice){ 0 }), "");
	arena_deinit(&a);
}
END_TEST

START_TEST(arena__serves_protobuf)
{
	struct arena a;
	void *first;

	arena_init(&a);
	first = a.pb.alloc(a.pb.allocator_data, 24);
	ck_assert_ptr_nonnull(first);
	memset(first, 1, 24);
	a.pb.free(a.pb.allocator_data, first);
	ck_assert_ptr_ne(a.pb.alloc(a.pb.allocator_data, 24), first);
	ck_assert_uint_eq(a.used, 64);
	arena_deinit(&a);
}
END_TEST

Suite *arena_suite(void)
{
	Suite *s = suite_create("arena");
	TCase *tc = tcase_create("arena");

	tcase_add_test(tc, arena__zeroed_and_null_may_be_deinitialised);
	tcase_add_test(tc, arena__pieces_are_aligned_and_apart);
	tcase_add_test(tc, arena__counts_what_it_hands_out);
	tcase_add_test(tc, arena__zero_bytes_have_an_address_of_their_own);
	tcase_add_test(tc, arena__big_piece_leaves_the_room_of_the_head);
	tcase_add_test(tc, arena__clear_keeps_one_bounded_block);
	tcase_add_test(tc, arena__zalloc_zeroes_reused_memory);
	tcase_add_test(tc, arena__copies_outlive_their_source);
	tcase_add_test(tc, arena__serves_protobuf);
	suite_add_tcase(s, tc);
	return s;
}
