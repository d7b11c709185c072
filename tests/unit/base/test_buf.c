#include "base/buf.h"

#include "suites.h"

static void assert_holds(const struct buf *b, const char *want)
{
	ck_assert(slice_eq(buf_view(b), slice_of_str(want)));
}

START_TEST(buf__zeroed_is_empty_and_valid)
{
	struct buf b = { 0 };

	ck_assert_uint_eq(buf_view(&b).len, 0);
	buf_append(&b, NULL, 0);
	buf_append_slice(&b, (struct slice){ 0 });
	buf_clear(&b);
	ck_assert_ptr_null(b.ptr);
	buf_free(&b);
	buf_free(&b);
	buf_free(NULL);
}
END_TEST

START_TEST(buf__appends_in_order)
{
	struct buf b = { 0 };

	buf_append(&b, "lock", 4);
	buf_append_byte(&b, '/');
	buf_append_slice(&b, slice_of_str("db"));
	assert_holds(&b, "lock/db");
	buf_free(&b);
	ck_assert_ptr_null(b.ptr);
	ck_assert_uint_eq(b.cap, 0);
}
END_TEST

START_TEST(buf__grows_and_keeps_its_bytes)
{
	struct buf b = { 0 };
	size_t moves = 0, wrong = 0;

	for (size_t i = 0; i < 100000; i++) {
		size_t cap = b.cap;

		buf_append_byte(&b, (uint8_t)(i * 7));
		moves += cap != b.cap;
	}
	for (size_t i = 0; i < 100000; i++)
		wrong += b.ptr[i] != (uint8_t)(i * 7);
	ck_assert_uint_eq(wrong, 0);
	ck_assert_uint_le(moves, 12); /* doubles: log2(100000 / 64) rounded up, and the first */
	buf_free(&b);
}
END_TEST

START_TEST(buf__reserve_gives_room_without_moving)
{
	struct buf b = { 0 };
	const uint8_t *at;

	buf_append(&b, "x", 1);
	buf_reserve(&b, 1000);
	at = b.ptr;
	ck_assert_uint_ge(b.cap, 1001);
	for (size_t i = 0; i < 1000; i++)
		buf_append_byte(&b, 'y');
	ck_assert_ptr_eq(b.ptr, at);
	buf_free(&b);
}
END_TEST

START_TEST(buf__clear_keeps_the_capacity)
{
	struct buf b = { 0 };
	size_t cap;

	buf_append(&b, "0123456789", 10);
	cap = b.cap;
	buf_clear(&b);
	ck_assert_uint_eq(b.len, 0);
	ck_assert_uint_eq(b.cap, cap);
	buf_free(&b);
}
END_TEST

START_TEST(buf__printf_appends_text_of_any_length)
{
	struct buf b = { 0 };
	char long_text[501];

	memset(long_text, 'a', 500);
	long_text[500] = '\0';
	buf_printf(&b, "%s=%d", "term", 7);
	buf_printf(&b, ",");
	assert_holds(&b, "term=7,");
	buf_printf(&b, "%s", long_text);
	ck_assert_uint_eq(b.len, 507);
	ck_assert(slice_eq(slice_of(b.ptr + 7, 500), slice_of_str(long_text)));
	buf_free(&b);

	/* text that fills the room to the last byte, where the NUL no longer fits */
	for (size_t len = 25; len < 140; len++) {
		buf_printf(&b, "%.*s", (int)len, long_text);
		ck_assert_uint_eq(b.len, len);
		ck_assert(slice_eq(buf_view(&b), slice_of(long_text, len)));
		buf_free(&b);
	}
}
END_TEST

START_TEST(buf__take_empties_its_source)
{
	struct buf src = { 0 }, dst;

	buf_append(&src, "abc", 3);
	dst = buf_take(&src);
	ck_assert_ptr_null(src.ptr);
	ck_assert_uint_eq(src.len, 0);
	ck_assert_uint_eq(src.cap, 0);
	assert_holds(&dst, "abc");
	buf_free(&dst);
}
END_TEST

START_TEST(buf__copy_owns_bytes_of_its_own)
{
	char text[] = "abc";
	struct buf b = buf_copy_of(slice_of_str(text));
	struct buf empty = buf_copy_of((struct slice){ 0 });

	text[0] = 'x';
	assert_holds(&b, "abc");
	buf_append(&b, "d", 1);
	assert_holds(&b, "abcd");
	ck_assert_uint_eq(empty.len, 0);
	buf_free(&b);
	buf_free(&empty);
}
END_TEST

Suite *buf_suite(void)
{
	Suite *s = suite_create("buf");
	TCase *tc = tcase_create("buf");

	tcase_add_test(tc, buf__zeroed_is_empty_and_valid);
	tcase_add_test(tc, buf__appends_in_order);
	tcase_add_test(tc, buf__grows_and_keeps_its_bytes);
	tcase_add_test(tc, buf__reserve_gives_room_without_moving);
	tcase_add_test(tc, buf__clear_keeps_the_capacity);
	tcase_add_test(tc, buf__printf_appends_text_of_any_length);
	tcase_add_test(tc, buf__take_empties_its_source);
	tcase_add_test(tc, buf__copy_owns_bytes_of_its_own);
	suite_add_tcase(s, tc);
	return s;
}
