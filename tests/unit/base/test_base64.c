#include "base/base64.h"

#include <string.h>

#include "suites.h"

struct base64_case {
	const char *text, *bytes; /* bytes NULL: refused, at `at` */
	size_t at;
};

static const struct base64_case base64s[] = {
	{ "", "", 0 },
	{ "Zm9v", "foo", 0 },
	{ "Zm8=", "fo", 0 },
	{ "Zg==", "f", 0 },
	{ "Zm8", "fo", 0 },
	{ "Zg", "f", 0 },
	{ "-_-_", "\xfb\xff\xbf", 0 },
	{ "+/+/", "\xfb\xff\xbf", 0 },
	{ "Zm\r\n9v\n", "foo", 0 },
	{ "Zg=\n=\n", "f", 0 },
	{ "Z", NULL, 0 },
	{ "Zm9vZ", NULL, 4 },
	{ "Z===", NULL, 1 },
	{ "Zg=", NULL, 3 },
	{ "Zg=a", NULL, 2 },
	{ "Zm8=a", NULL, 4 },
	{ "Zm8==", NULL, 4 },
	{ "Zm9v=", NULL, 4 },
	{ "Zm 9v", NULL, 2 },
	{ "=", NULL, 0 },
};

START_TEST(base64_decode__cases)
{
	const struct base64_case *c = &base64s[_i];
	struct buf out = { .ptr = NULL };
	size_t at = 99;
	bool ok = base64_decode(&out, slice_of_str(c->text), &at);
	ck_assert_int_eq(ok, c->bytes != NULL);
	if (ok)
		ck_assert(slice_eq(buf_view(&out), slice_of_str(c->bytes)));
	else
		ck_assert_uint_eq(at, c->at);
	buf_free(&out);
}
END_TEST

START_TEST(base64__round_trip)
{
	uint8_t bytes[64];
	struct buf text = { .ptr = NULL }, back = { .ptr = NULL };
	size_t at;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 37 + (size_t)_i);
	base64_encode(&text, slice_of(bytes, (size_t)_i));
	ck_assert_uint_eq(text.len, ((size_t)_i + 2) / 3 * 4);
	ck_assert(base64_decode(&back, buf_view(&text), &at));
	ck_assert(slice_eq(buf_view(&back), slice_of(bytes, (size_t)_i)));
	ck_assert(base64_decode_exact(&back, buf_view(&text)));
	ck_assert_uint_eq(back.len, 2 * (size_t)_i);

	buf_clear(&text);
	base64url_encode(&text, slice_of(bytes, (size_t)_i));
	ck_assert_uint_eq(text.len, ((size_t)_i * 4 + 2) / 3);
	ck_assert(base64url_decode_exact(&back, buf_view(&text)));
	ck_assert_uint_eq(back.len, 3 * (size_t)_i);
	ck_assert(slice_eq(slice_of(back.ptr + 2 * (size_t)_i, (size_t)_i), slice_of(bytes, (size_t)_i)));
	buf_free(&text);
	buf_free(&back);
}
END_TEST

/* What is written in another way than the encoder's is refused, and nothing is appended. */
static const struct {
	const char *text;
	bool standard, url;
} exact[] = {
	{ "", true, true },
	{ "Zm9v", true, true },
	{ "Zm8=", true, false },
	{ "Zm8", false, true },
	{ "Zm9=", false, false }, /* the last digit's unused bits are not zero */
	{ "Zm9", false, false },
	{ "+/+/", true, false },
	{ "-_-_", false, true },
	{ "-/-/", false, false },
	{ "Zm9v\n", false, false },
	{ "Z", false, false },
	{ "Zm9v*", false, false },
};

START_TEST(base64_decode_exact__takes_what_the_encoder_writes)
{
	struct buf out = { .ptr = NULL };
	size_t bytes = strlen(exact[_i].text) * 3 / 4 - (strchr(exact[_i].text, '=') ? 1 : 0);
	buf_append_byte(&out, 'x');
	ck_assert_int_eq(base64_decode_exact(&out, slice_of_str(exact[_i].text)), exact[_i].standard);
	ck_assert_uint_eq(out.len, 1 + (exact[_i].standard ? bytes : 0));
	out.len = 1;
	ck_assert_int_eq(base64url_decode_exact(&out, slice_of_str(exact[_i].text)), exact[_i].url);
	ck_assert_uint_eq(out.len, 1 + (exact[_i].url ? bytes : 0));
	buf_free(&out);
}
END_TEST

#define LEN(a) ((int)(sizeof(a) / sizeof((a)[0])))

Suite *base64_suite(void)
{
	Suite *s = suite_create("base64");
	TCase *tc = tcase_create("base64");

	tcase_add_loop_test(tc, base64_decode__cases, 0, LEN(base64s));
	tcase_add_loop_test(tc, base64__round_trip, 0, 64);
	tcase_add_loop_test(tc, base64_decode_exact__takes_what_the_encoder_writes, 0, LEN(exact));
	suite_add_tcase(s, tc);
	return s;
}
