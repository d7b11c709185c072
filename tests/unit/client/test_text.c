/* test_text.c: what people type, and what it means. */
#include <check.h>
#include <inttypes.h>
#include <stdlib.h>

#include "text.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))
#define NO UINT64_MAX

static const struct {
	const char *text;
	uint64_t ms; /* NO: refused */
} durations[] = {
	{ "10s", 10000 }, { "500ms", 500 }, { "1m", 60000 }, { "2h", 7200000 }, { "1h30m", 5400000 }, { "1m0.5s", 60500 }, { "1.5s", 1500 }, { ".5s", 500 },
	{ "1.s", 1000 }, { "0", 0 }, { "0s", 0 }, { "0.001s", 1 }, { "1.5ms", NO }, { "0.0001s", NO }, { "10", NO }, { "", NO }, { "s", NO }, { ".s", NO },
	{ "-1s", NO }, { "+1s", NO }, { " 1s", NO }, { "1s ", NO }, { "1 s", NO }, { "1d", NO }, { "1s1", NO }, { "1e3s", NO }, { "0x1s", NO }, { "nans", NO },
	{ "infs", NO }, { "99999999999999999999s", NO }, { "999999999h", NO }, { "876000h", UINT64_C(3153600000000) }, { "0.5h", 1800000 },
	{ "0.3333333h", NO }, { "00000000000000000000001s", 1000 },
};

START_TEST(text__durations)
{
	struct errmsg em = { .text = "" };
	uint64_t ms = 77;
	bool ok = text_duration(durations[_i].text, &ms, &em);
	ck_assert_msg(ok == (durations[_i].ms != NO), "'%s'", durations[_i].text);
	ck_assert_msg(ms == (ok ? durations[_i].ms : 77), "'%s' is %" PRIu64, durations[_i].text, ms);
	ck_assert(ok || strstr(em.text, "is not a duration"));
}
END_TEST

static const struct {
	const char *text;
	int64_t s; /* 0: refused */
} ttls[] = {
	{ "12s", 12 }, { "12", 12 }, { "1m", 60 }, { "1.5s", 2 }, { "1ms", 1 }, { "9000000000", INT64_C(9000000000) }, { "9000000001", 0 }, { "0", 0 }, { "0s", 0 },
	{ "", 0 }, { "-1", 0 }, { "abc", 0 },
};

START_TEST(text__times_to_live_are_whole_seconds)
{
	struct errmsg em;
	int64_t s = 0;
	ck_assert_msg(text_ttl(ttls[_i].text, &s, &em) == (ttls[_i].s != 0), "'%s'", ttls[_i].text);
	ck_assert_msg(s == ttls[_i].s, "'%s' is %" PRId64, ttls[_i].text, s);
}
END_TEST

START_TEST(text__numbers_have_bounds)
{
	static const char *const bad[] = { "", " 1", "1 ", "+1", "0x1", "1.0", "a", "9223372036854775808", "-1", "11", "1e1" };
	struct errmsg em;
	int64_t v = 5;
	for (size_t i = 0; i < LEN(bad); i++)
		ck_assert_msg(!text_i64(bad[i], 0, 10, &v, &em) && v == 5, "'%s'", bad[i]);
	ck_assert(text_i64("0", 0, 10, &v, &em) && v == 0);
	ck_assert(text_i64("10", 0, 10, &v, &em) && v == 10);
	ck_assert(text_i64("-9223372036854775808", INT64_MIN, INT64_MAX, &v, &em) && v == INT64_MIN);
}
END_TEST

START_TEST(text__leases_are_read_as_they_are_printed)
{
	static const int64_t all[] = { 1, 0x694d81417acd0a05, INT64_MAX, -1, INT64_MIN, -0x1234 };
	static const char *const bad[] = { "", "0", "-", "--1", "g", "1 ", " 1", "694d81417acd0a051", "-0", "0x" };
	struct errmsg em;
	char text[24];
	int64_t v;
	for (size_t i = 0; i < LEN(all); i++) {
		text_print_lease(text, all[i]);
		ck_assert_msg(text_lease(text, &v, &em) && v == all[i], "%s", text);
	}
	ck_assert(text_lease("0x10", &v, &em) && v == 16);
	ck_assert(text_lease("ABCdef", &v, &em) && v == 0xabcdef);
	for (size_t i = 0; i < LEN(bad); i++)
		ck_assert_msg(!text_lease(bad[i], &v, &em), "'%s'", bad[i]);
}
END_TEST

START_TEST(text__hex)
{
	struct buf b = { .ptr = NULL }, back = { .ptr = NULL };
	struct errmsg em;
	ck_assert(text_hex("00fFc0", &b, &em));
	ck_assert(slice_eq(buf_view(&b), slice_of("\x00\xff\xc0", 3)));
	text_to_hex(buf_view(&b), &back);
	ck_assert(slice_eq(buf_view(&back), slice_of_str("00ffc0")));
	ck_assert(!text_hex("0", &b, &em) && !text_hex("0g", &b, &em) && !text_hex("0x00", &b, &em) && b.len == 3);
	ck_assert(text_hex("", &b, &em) && b.len == 3);
	buf_free(&b);
	buf_free(&back);
}
END_TEST

START_TEST(text__utf8)
{
	static const char *const good[] = { "", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x94\x92", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf" };
	static const char *const bad[] = { "\xff", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80", "a\xe2\x82", "\xf8\x88\x80\x80\x80" };
	for (size_t i = 0; i < LEN(good); i++)
		ck_assert_msg(text_is_utf8(slice_of_str(good[i])), "good %zu", i);
	for (size_t i = 0; i < LEN(bad); i++)
		ck_assert_msg(!text_is_utf8(slice_of_str(bad[i])), "bad %zu", i);
}
END_TEST

/* Words of a line in brackets; "!" and no more when the line is wrong. */
static const struct {
	const char *line, *words;
} lines[] = {
	{ "put a b", "[put][a][b]" }, { "  put\t a  ", "[put][a]" }, { "", "" }, { "   ", "" }, { "\"a b\" c", "[a b][c]" }, { "\"\"", "[]" },
	{ "value(\"a b\") = \"1\"", "[value(a b)][=][1]" }, { "\"a\\\"b\\\\c\\n\\t\\r\"", "[a\"b\\c\n\t\r]" }, { "\"\\x41\\x0a\"", "[A\n]" }, { "a\\b", "[a\\b]" },
	{ "a \"b", "[a]!" }, { "\"\\q\"", "!" }, { "\"\\x4\"", "!" }, { "\"\\", "!" },
};

START_TEST(text__words_and_quotes)
{
	const char *at = lines[_i].line;
	struct buf word = { .ptr = NULL }, all = { .ptr = NULL };
	struct errmsg em;
	while (text_word(&at, &word, &em)) {
		buf_printf(&all, "[%.*s]", (int)word.len, word.len ? (const char *)word.ptr : "");
		buf_clear(&word);
	}
	if (em.text[0])
		buf_printf(&all, "!");
	buf_append_byte(&all, 0);
	ck_assert_str_eq((const char *)all.ptr, lines[_i].words);
	buf_free(&word);
	buf_free(&all);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("text");
	TCase *t = tcase_create("text");
	SRunner *r = srunner_create(s);
	int failed;
	tcase_add_loop_test(t, text__durations, 0, LEN(durations));
	tcase_add_loop_test(t, text__times_to_live_are_whole_seconds, 0, LEN(ttls));
	tcase_add_test(t, text__numbers_have_bounds);
	tcase_add_test(t, text__leases_are_read_as_they_are_printed);
	tcase_add_test(t, text__hex);
	tcase_add_test(t, text__utf8);
	tcase_add_loop_test(t, text__words_and_quotes, 0, LEN(lines));
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
