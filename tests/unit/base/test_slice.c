#include "base/slice.h"

#include "suites.h"

static const struct {
	const char *name;
	const char *a, *b;
	int want;
} orders[] = {
	{ "two empty slices are equal", "", "", 0 },
	{ "empty comes first", "", "a", -1 },
	{ "a prefix comes before what it starts", "ab", "abc", -1 },
	{ "the first different byte decides", "abz", "acb", -1 },
	{ "bytes are unsigned", "\x7f", "\x80", -1 },
	{ "same bytes are equal", "lock", "lock", 0 },
};

static int sign(int c)
{
	return (c > 0) - (c < 0);
}

START_TEST(slice__orders_like_keys)
{
	struct slice a = slice_of_str(orders[_i].a), b = slice_of_str(orders[_i].b);

	ck_assert_msg(sign(slice_cmp(a, b)) == orders[_i].want, "%s", orders[_i].name);
	ck_assert_msg(sign(slice_cmp(b, a)) == -orders[_i].want, "%s, swapped", orders[_i].name);
	ck_assert_msg(slice_eq(a, b) == (orders[_i].want == 0), "%s, eq", orders[_i].name);
}
END_TEST

START_TEST(slice__null_is_the_empty_slice)
{
	struct slice null = { 0 };

	ck_assert(slice_eq(null, slice_of_str("")));
	ck_assert_int_eq(slice_cmp(null, slice_of_str("")), 0);
	ck_assert_int_lt(slice_cmp(null, slice_of_str("a")), 0);
	ck_assert(slice_starts_with(null, null));
	ck_assert(slice_starts_with(slice_of_str("a"), null));
}
END_TEST

START_TEST(slice__starts_with_its_prefixes_only)
{
	struct slice s = slice_of_str("/locks/db");

	ck_assert(slice_starts_with(s, slice_of_str("/locks/")));
	ck_assert(slice_starts_with(s, s));
	ck_assert(!slice_starts_with(s, slice_of_str("/locks/db/")));
	ck_assert(!slice_starts_with(s, slice_of_str("/lockz")));
}
END_TEST

START_TEST(slice__may_hold_nul_bytes)
{
	ck_assert(!slice_eq(slice_of("a\0b", 3), slice_of("a\0c", 3)));
	ck_assert_int_lt(slice_cmp(slice_of("a", 1), slice_of("a\0", 2)), 0);
}
END_TEST

Suite *slice_suite(void)
{
	Suite *s = suite_create("slice");
	TCase *tc = tcase_create("slice");

	tcase_add_loop_test(tc, slice__orders_like_keys, 0, (int)(sizeof(orders) / sizeof(orders[0])));
	tcase_add_test(tc, slice__null_is_the_empty_slice);
	tcase_add_test(tc, slice__starts_with_its_prefixes_only);
	tcase_add_test(tc, slice__may_hold_nul_bytes);
	suite_add_tcase(s, tc);
	return s;
}
