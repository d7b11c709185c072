/* test_shrink.c: which things a failure needs, with a run that is pretended; and what is left out, to flags and back. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../sim/plan.h"
#include "../../sim/reduce.h"

/* ---- reduce.c ---- */

#define THINGS 40

static bool needed[THINGS];
static unsigned tries, tries_max;

/* Fails as long as all that is needed is there. */
static bool pretend(void *ctx, const bool *out)
{
	(void)ctx;
	if (tries == tries_max)
		return false;
	tries++;
	for (size_t i = 0; i < THINGS; i++)
		if (needed[i] && out[i])
			return false;
	return true;
}

static bool out[THINGS];
static size_t all[THINGS];

static bool shrink_to(const size_t *things, size_t len, unsigned at_most)
{
	struct reduce r = { .fails = pretend, .out = out };

	memset(needed, 0, sizeof needed);
	memset(out, 0, sizeof out);
	for (size_t i = 0; i < THINGS; i++)
		all[i] = i;
	for (size_t i = 0; i < len; i++)
		needed[things[i]] = true;
	tries = 0;
	tries_max = at_most;
	return reduce_things(&r, all, THINGS, 0);
}

START_TEST(reduce__leaves_what_is_needed_and_nothing_else)
{
	static const struct { size_t things[4], len; unsigned tries; } cases[] = {
		{ { 0 }, 0, 1 }, /* all at once */
		{ { 0 }, 1, 13 },
		{ { 39 }, 1, 13 },
		{ { 3, 4 }, 2, 16 },
		{ { 0, 13, 26, 39 }, 4, 46 },
	};

	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
		ck_assert(shrink_to(cases[c].things, cases[c].len, 1000));
		ck_assert_uint_le(tries, cases[c].tries);
		for (size_t i = 0; i < THINGS; i++)
			ck_assert_int_eq(out[i], !needed[i]);
	}
}
END_TEST

START_TEST(reduce__says_when_nothing_goes)
{
	size_t every[THINGS];

	for (size_t i = 0; i < THINGS; i++)
		every[i] = i;
	ck_assert(!shrink_to(every, THINGS, 1000));
	for (size_t i = 0; i < THINGS; i++)
		ck_assert(!out[i]);
}
END_TEST

/* What had been found by then is kept. */
START_TEST(reduce__ends_when_no_more_may_be_tried)
{
	static const size_t things[] = { 30 };

	ck_assert(shrink_to(things, 1, 2)); /* all, and the first half */
	ck_assert_uint_eq(tries, 2);
	for (size_t i = 0; i < THINGS; i++)
		ck_assert_int_eq(out[i], i < 20);
}
END_TEST

START_TEST(reduce__touches_only_what_is_listed)
{
	static const size_t listed[] = { 5, 7, 9 };
	struct reduce r = { .fails = pretend, .out = out };

	memset(needed, 0, sizeof needed);
	memset(out, 0, sizeof out);
	needed[7] = true;
	out[9] = out[20] = true;
	tries = 0;
	tries_max = 1000;
	ck_assert(reduce_things(&r, listed, 3, 0));
	for (size_t i = 0; i < THINGS; i++)
		ck_assert_int_eq(out[i], i == 5 || i == 9 || i == 20);
}
END_TEST

/* Four of forty are needed: none of four parts can go; four of eight can, and what is left is then tried in eight parts again, which are small ones. */
START_TEST(reduce__goes_no_finer_than_it_is_told)
{
	struct reduce r = { .fails = pretend, .out = out };

	for (size_t i = 0; i < THINGS; i++)
		all[i] = i;
	memset(needed, 0, sizeof needed);
	memset(out, 0, sizeof out);
	needed[0] = needed[13] = needed[26] = needed[39] = true;
	tries = 0;
	tries_max = 1000;
	ck_assert(!reduce_things(&r, all, THINGS, 4)); /* one, two, four parts */
	ck_assert_uint_eq(tries, 7);
	ck_assert(reduce_things(&r, all, THINGS, 8));
	for (size_t i = 0; i < THINGS; i++)
		ck_assert_int_eq(out[i], !needed[i]);
}
END_TEST

static bool from_100(void *ctx, uint64_t value)
{
	++*(unsigned *)ctx;
	return value >= 100;
}

START_TEST(reduce__finds_the_smallest_value)
{
	unsigned n = 0;

	ck_assert_uint_eq(reduce_value(from_100, &n, 0, 1000, 20), 100);
	n = 0;
	ck_assert_uint_eq(reduce_value(from_100, &n, 100, 1000, 20), 100);
	ck_assert_uint_eq(n, 1);
	n = 0;
	ck_assert_uint_eq(reduce_value(from_100, &n, 0, 1000, 3), 125);
	ck_assert_uint_eq(n, 4);
	ck_assert_uint_eq(reduce_value(from_100, &n, 7, 7, 3), 7);
}
END_TEST

/* ---- cut.c ---- */

static uint32_t counts[PIECE_NUMBERED_END];

static const char *printed(const struct cut *c)
{
	static char text[1000];
	FILE *f = fmemopen(text, sizeof text, "w");

	memset(text, 0, sizeof text);
	cut_print(c, counts, f);
	fclose(f);
	return text;
}

static struct cut cut, other;
static char why[96];

/* In both ways, whatever is shorter; and it means the same when it is read again. */
START_TEST(cut__is_printed_as_it_is_read)
{
	static const struct { const char *without, *only, *want; } cases[] = {
		{ "loss", NULL, " --without loss" },
		{ "client:3", NULL, " --without client:3" },
		{ "client:0-2,client:9", NULL, " --without client:0-2,client:9" },
		{ "client:0-9", NULL, " --without client" },
		{ "client", NULL, " --without client" },
		{ NULL, "client:4", " --only client:4" },
		{ "client:0-3,client:5-9", NULL, " --only client:4" },
		{ "put,crash:2", "partition:1,partition:3-4", " --without crash:2,put --only partition:1,partition:3-4" },
		{ NULL, "crash:1-5", "" },
	};

	counts[PIECE_CLIENT] = 10;
	counts[PIECE_CRASH] = 5;
	counts[PIECE_PARTITION] = 7;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		memset(&cut, 0, sizeof cut);
		if (cases[i].without)
			ck_assert(cut_parse(&cut, cases[i].without, false, why));
		if (cases[i].only)
			ck_assert(cut_parse(&cut, cases[i].only, true, why));
		ck_assert_str_eq(printed(&cut), cases[i].want);
	}
}
END_TEST

START_TEST(cut__says_what_is_out)
{
	memset(&cut, 0, sizeof cut);
	ck_assert(cut_parse(&cut, "crash:2,loss", false, why));
	ck_assert(cut_parse(&cut, "pause:3", true, why));
	ck_assert(cut_has(&cut, PIECE_CRASH, 2));
	ck_assert(!cut_has(&cut, PIECE_CRASH, 1));
	ck_assert(!cut_has(&cut, PIECE_CRASH, CUT_NUMBERS + 5));
	ck_assert(cut_has(&cut, PIECE_LOSS, 0));
	ck_assert(!cut_has(&cut, PIECE_PAUSE, 3));
	ck_assert(cut_has(&cut, PIECE_PAUSE, 4));
	ck_assert(cut_has(&cut, PIECE_PAUSE, CUT_NUMBERS + 5)); /* those that have no bit of their own, too */
	ck_assert(!cut_has(&cut, PIECE_STALL, 1));
}
END_TEST

START_TEST(cut__refuses_what_there_is_not)
{
	static const struct { const char *list; bool only; } cases[] = {
		{ "", false }, { "client:", false }, { "clients", false }, { "client:x", false }, { "client:3-", false }, { "client:3-2", false },
		{ "client:99999", false }, { "client:1024", false }, { "client:99999999999", false }, { "client:1-2-3", false }, { "client:1,", false },
		{ ",client", false }, { "put:1", false }, { "client", true }, { "put", true }, { "put:1", true },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		memset(&cut, 0, sizeof cut);
		ck_assert_msg(!cut_parse(&cut, cases[i].list, cases[i].only, why), "'%s' is taken", cases[i].list);
		ck_assert_ptr_nonnull(strstr(why, "there is no"));
	}
}
END_TEST

START_TEST(cut__every_piece_has_a_name)
{
	for (unsigned p = 0; p < PIECE_COUNT; p++) {
		char flag[64];

		ck_assert_ptr_nonnull(piece_name((enum piece)p));
		memset(&cut, 0, sizeof cut);
		memset(&other, 0, sizeof other);
		ck_assert(cut_parse(&cut, piece_name((enum piece)p), false, why));
		other.whole[p] = true;
		ck_assert_mem_eq(&cut, &other, sizeof cut);
		snprintf(flag, sizeof flag, " --without %s", piece_name((enum piece)p));
		ck_assert_str_eq(printed(&cut), flag);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sim");
	TCase *c = tcase_create("reduce"), *d = tcase_create("cut");
	SRunner *r;
	int failed;

	tcase_add_test(c, reduce__leaves_what_is_needed_and_nothing_else);
	tcase_add_test(c, reduce__says_when_nothing_goes);
	tcase_add_test(c, reduce__ends_when_no_more_may_be_tried);
	tcase_add_test(c, reduce__touches_only_what_is_listed);
	tcase_add_test(c, reduce__goes_no_finer_than_it_is_told);
	tcase_add_test(c, reduce__finds_the_smallest_value);
	suite_add_tcase(s, c);
	tcase_add_test(d, cut__is_printed_as_it_is_read);
	tcase_add_test(d, cut__says_what_is_out);
	tcase_add_test(d, cut__refuses_what_there_is_not);
	tcase_add_test(d, cut__every_piece_has_a_name);
	suite_add_tcase(s, d);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
