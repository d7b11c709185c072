#include "base/rng.h"

#include <stdlib.h>

#include "suites.h"

START_TEST(rng__is_xoshiro256_starstar)
{
	struct rng r = { .s = { 1, 2, 3, 4 } };

	/* what the authors' code gives from this state */
	ck_assert_uint_eq(rng_next(&r), 11520);
	ck_assert_uint_eq(rng_next(&r), 0);
	ck_assert_uint_eq(rng_next(&r), 1509978240);
	ck_assert_uint_eq(rng_next(&r), 1215971899390074240);
}
END_TEST

START_TEST(rng__is_seeded_by_splitmix64)
{
	struct rng r;

	rng_init(&r, 0);
	ck_assert_uint_eq(r.s[0], 0xe220a8397b1dcdaf);
	ck_assert_uint_eq(r.s[1], 0x6e789e6aa1b965f4);
	ck_assert_uint_eq(r.s[2], 0x06c45d188009454f);
	ck_assert_uint_eq(r.s[3], 0xf88bb8a8724c81ec);
}
END_TEST

START_TEST(rng__same_seed_replays)
{
	struct rng a, b, c;
	int same = 0;

	rng_init(&a, 42);
	rng_init(&b, 42);
	rng_init(&c, 43);
	ck_assert_uint_eq(rng_next(&a), 0x15780b2e0c2ec716);
	rng_next(&b);
	for (int i = 0; i < 1000; i++) {
		uint64_t x = rng_next(&a);

		ck_assert_uint_eq(x, rng_next(&b));
		same += x == rng_next(&c);
	}
	ck_assert_int_eq(same, 0);
}
END_TEST

START_TEST(rng__below_is_uniform)
{
	struct rng r;
	int count[10] = { 0 };

	rng_init(&r, 1);
	for (int i = 0; i < 100000; i++) {
		uint64_t x = rng_below(&r, 10);

		if (x >= 10)
			ck_abort_msg("rng_below(10) gave %lu", (unsigned long)x);
		count[x]++;
	}
	for (int i = 0; i < 10; i++)
		ck_assert_int_lt(abs(count[i] - 10000), 500); /* five standard deviations */
	ck_assert_uint_eq(rng_below(&r, 1), 0);

	/* n just over half of the range: without rejection, small numbers would come twice as often */
	for (int i = 0; i < 10000; i++)
		count[0] += rng_below(&r, (UINT64_C(1) << 63) + 1) < UINT64_C(1) << 62;
	ck_assert_int_lt(abs(count[0] - 15000), 700);
}
END_TEST

START_TEST(rng__between_includes_both_ends)
{
	struct rng r;
	int low = 0, high = 0;

	rng_init(&r, 1);
	for (int i = 0; i < 1000; i++) {
		uint64_t x = rng_between(&r, 5, 7);

		ck_assert_uint_ge(x, 5);
		ck_assert_uint_le(x, 7);
		low += x == 5;
		high += x == 7;
	}
	ck_assert_int_gt(low, 0);
	ck_assert_int_gt(high, 0);
	ck_assert_uint_eq(rng_between(&r, 9, 9), 9);
	ck_assert_uint_eq(rng_between(&r, UINT64_MAX, UINT64_MAX), UINT64_MAX);
	rng_between(&r, 0, UINT64_MAX);
}
END_TEST

START_TEST(rng__chance_keeps_its_odds)
{
	struct rng r;
	int hits = 0, sure = 0;

	rng_init(&r, 1);
	for (int i = 0; i < 100000; i++) {
		sure += rng_chance(&r, 1000000) && !rng_chance(&r, 0);
		hits += rng_chance(&r, 250000);
	}
	ck_assert_int_eq(sure, 100000);
	ck_assert_int_lt(abs(hits - 25000), 700);
}
END_TEST

Suite *rng_suite(void)
{
	Suite *s = suite_create("rng");
	TCase *tc = tcase_create("rng");

	tcase_add_test(tc, rng__is_xoshiro256_starstar);
	tcase_add_test(tc, rng__is_seeded_by_splitmix64);
	tcase_add_test(tc, rng__same_seed_replays);
	tcase_add_test(tc, rng__below_is_uniform);
	tcase_add_test(tc, rng__between_includes_both_ends);
	tcase_add_test(tc, rng__chance_keeps_its_odds);
	suite_add_tcase(s, tc);
	return s;
}
