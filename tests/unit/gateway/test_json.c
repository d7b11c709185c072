/* test_json.c: where a JSON value ends, what is wrong with it, and strings. */
#include <check.h>
#include <stdlib.h>

#include "gateway/json.h"

struct scan_case {
	const char *text;
	const char *value; /* NULL: none */
	const char *error; /* NULL: none */
	size_t pos;        /* behind the value */
};

static const struct scan_case scans[] = {
	{ "", NULL, NULL, 0 },
	{ " \t\r\n", NULL, NULL, 4 },
	{ " {} x", "{}", NULL, 3 },
	{ "{\"a\":[1,{\"b\":null}],\"c\":\"}\"}{", "{\"a\":[1,{\"b\":null}],\"c\":\"}\"}", NULL, 28 },
	{ "1x", "1", NULL, 1 },
	{ "-0.5e+3 ", "-0.5e+3", NULL, 7 },
	{ "\"\\\\\\\"\\u00e9\" ", "\"\\\\\\\"\\u00e9\"", NULL, 12 },
	{ "[ ]", "[ ]", NULL, 3 },
	{ "{", NULL, "unexpected EOF", 0 },
	{ "{\"a\":1", NULL, "unexpected EOF", 0 },
	{ "\"a", NULL, "unexpected EOF", 0 },
	{ "tru", NULL, "unexpected EOF", 0 },
	{ "x", NULL, "invalid character 'x' looking for beginning of value", 0 },
	{ "{1:2}", NULL, "invalid character '1' looking for beginning of object key string", 0 },
	{ "{\"a\",1}", NULL, "invalid character ',' after object key", 0 },
	{ "{\"a\":1]", NULL, "invalid character ']' after object key:value pair", 0 },
	{ "[1 2]", NULL, "invalid character '2' after array element", 0 },
	{ "{\"a\":1,}", NULL, "invalid character '}' looking for beginning of object key string", 0 },
	{ "[1,]", NULL, "invalid character ']' looking for beginning of value", 0 },
	{ "nulL", NULL, "invalid character 'L' in literal null (expecting 'l')", 0 },
	{ "-x", NULL, "invalid character 'x' in numeric literal", 0 },
	{ "1.x", NULL, "invalid character 'x' after decimal point in numeric literal", 0 },
	{ "1ex", NULL, "invalid character 'x' in exponent of numeric literal", 0 },
	{ "\"\\q\"", NULL, "invalid character 'q' in string escape code", 0 },
	{ "\"\\u00g\"", NULL, "invalid character 'g' in \\u hexadecimal character escape", 0 },
	{ "\"\n\"", NULL, "invalid character '\\n' in string literal", 0 },
	{ "'a'", NULL, "invalid character '\\'' looking for beginning of value", 0 },
	{ "\x01", NULL, "invalid character '\\x01' looking for beginning of value", 0 },
	{ "\xff", NULL, "invalid character '\xc3\xbf' looking for beginning of value", 0 },
};

START_TEST(json_scan__cases)
{
	const struct scan_case *c = &scans[_i];
	struct errmsg em = { .text = "" };
	struct slice value;
	size_t pos = 0;
	enum json_scan r = json_scan(slice_of_str(c->text), &pos, &value, &em);
	if (c->error) {
		ck_assert_int_eq(r, JSON_ERROR);
		ck_assert_str_eq(em.text, c->error);
		return;
	}
	ck_assert_int_eq(r, c->value ? JSON_VALUE : JSON_END);
	ck_assert_uint_eq(pos, c->pos);
	if (c->value)
		ck_assert(slice_eq(value, slice_of_str(c->value)));
}
END_TEST

START_TEST(json_scan__nesting_is_bounded)
{
	struct buf b = { .ptr = NULL };
	struct errmsg em;
	struct slice value;
	size_t pos = 0;
	for (int i = 0; i < JSON_DEPTH_MAX; i++)
		buf_append_byte(&b, '[');
	for (int i = 0; i < JSON_DEPTH_MAX; i++)
		buf_append_byte(&b, ']');
	ck_assert_int_eq(json_scan(buf_view(&b), &pos, &value, &em), JSON_VALUE);
	ck_assert_uint_eq(value.len, b.len);
	b.ptr[JSON_DEPTH_MAX] = '[';
	pos = 0;
	ck_assert_int_eq(json_scan(buf_view(&b), &pos, &value, &em), JSON_ERROR);
	ck_assert_str_eq(em.text, "invalid character '[' exceeded max depth");
	buf_free(&b);
}
END_TEST

START_TEST(json_whole__nothing_may_follow)
{
	struct errmsg em;
	struct slice value;
	ck_assert(json_whole(slice_of_str(" 12 "), &value, &em));
	ck_assert(slice_eq(value, slice_of_str("12")));
	ck_assert(!json_whole(slice_of_str("1 2"), &value, &em));
	ck_assert_str_eq(em.text, "invalid character '2' after top-level value");
	ck_assert(!json_whole(slice_of_str(""), &value, &em));
	ck_assert_str_eq(em.text, "unexpected end of JSON input");
	ck_assert(!json_whole(slice_of_str("[1"), &value, &em));
	ck_assert_str_eq(em.text, "unexpected end of JSON input");
}
END_TEST

START_TEST(json__walk)
{
	struct slice object = slice_of_str("{ \"a\" : 1 , \"b\\\"\\\\\":[ ],\"c\":{\"d\":\"]}\"} , \"e\":true}");
	static const char *const keys[] = { "\"a\"", "\"b\\\"\\\\\"", "\"c\"", "\"e\"" }, *const values[] = { "1", "[ ]", "{\"d\":\"]}\"}", "true" };
	struct slice array = slice_of_str("[1.5e3 ,null,\"x\",[2,[3]], {}]"), key, value;
	static const char *const elements[] = { "1.5e3", "null", "\"x\"", "[2,[3]]", "{}" };
	size_t pos = 0, i = 0;
	for (; json_next_member(object, &pos, &key, &value); i++) {
		ck_assert(slice_eq(key, slice_of_str(keys[i])));
		ck_assert(slice_eq(value, slice_of_str(values[i])));
	}
	ck_assert_uint_eq(i, 4);
	for (pos = 0, i = 0; json_next_element(array, &pos, &value); i++)
		ck_assert(slice_eq(value, slice_of_str(elements[i])));
	ck_assert_uint_eq(i, 5);
	pos = 0;
	ck_assert(!json_next_member(slice_of_str("{ }"), &pos, &key, &value));
}
END_TEST

struct text_case {
	const char *json, *text; /* text NULL: refused */
};

static const struct text_case texts[] = {
	{ "\"\"", "" },
	{ "\"a\\/\\b\\f\\n\\r\\t\\\"\\\\\"", "a/\b\f\n\r\t\"\\" },
	{ "\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\"", "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80" },
	{ "\"\xc3\xa9\xf0\x9f\x98\x80\"", "\xc3\xa9\xf0\x9f\x98\x80" },
	{ "\"\\ud83d\"", NULL },
	{ "\"\\ude00\"", NULL },
	{ "\"\\ud83d\\u0041\"", NULL },
	{ "\"\\ud83dx\"", NULL },
	{ "\"\xff\"", NULL },
	{ "\"\xc3\"", NULL },
	{ "\"\xc0\x80\"", NULL },         /* too long a form */
	{ "\"\xed\xa0\x80\"", NULL },     /* a surrogate */
	{ "\"\xf4\x90\x80\x80\"", NULL }, /* above the last character */
	{ "\"\xe0\x80\x80\"", NULL },
	{ "\"\xf0\x80\x80\x80\"", NULL },
};

START_TEST(json_unquote__cases)
{
	struct buf out = { .ptr = NULL };
	bool ok = json_unquote(slice_of_str(texts[_i].json), &out);
	ck_assert_int_eq(ok, texts[_i].text != NULL);
	if (ok)
		ck_assert(slice_eq(buf_view(&out), slice_of_str(texts[_i].text)));
	buf_free(&out);
}
END_TEST

START_TEST(json_quote__as_go_does)
{
	struct buf out = { .ptr = NULL };
	json_quote(&out, slice_of_str("a\"\\/\n\r\t\b\x01\x7f<>&\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa\xc3\xa9\xff\xc3"));
	ck_assert(slice_eq(buf_view(&out), slice_of_str("\"a\\\"\\\\/\\n\\r\\t\\u0008\\u0001\x7f\\u003c\\u003e\\u0026\\u2028\\u2029\xe2\x80\xaa\xc3\xa9\\ufffd\\ufffd\"")));
	buf_free(&out);
}
END_TEST

#define LEN(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
	Suite *s = suite_create("gateway_json");
	TCase *tc = tcase_create("all");
	SRunner *sr;
	int failed;
	tcase_add_loop_test(tc, json_scan__cases, 0, LEN(scans));
	tcase_add_test(tc, json_scan__nesting_is_bounded);
	tcase_add_test(tc, json_whole__nothing_may_follow);
	tcase_add_test(tc, json__walk);
	tcase_add_loop_test(tc, json_unquote__cases, 0, LEN(texts));
	tcase_add_test(tc, json_quote__as_go_does);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
