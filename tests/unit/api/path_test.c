/* path_test.c: which byte strings are paths of nodes, and what lies above and below. */
#include "path.h"

#include <check.h>
#include <stdlib.h>

#include "base/buf.h"

static const struct { const char *path; size_t len; enum err want; } cases[] = {
#define CASE(text, want) { text, sizeof(text) - 1, want }
	CASE("/a", ERR_OK),
	CASE("/a/b c/-_.~", ERR_OK),
	CASE("/...", ERR_OK),
	CASE("/.a", ERR_OK),
	CASE("/\xc3\xa9", ERR_OK),
	CASE("/\xe2\x82\xac/\xf0\x9f\x94\x92", ERR_OK),
	CASE("", ERR_BAD_PATH),
	CASE("/", ERR_BAD_PATH),
	CASE("a", ERR_BAD_PATH),
	CASE("a/b", ERR_BAD_PATH),
	CASE("/a/", ERR_BAD_PATH),
	CASE("//a", ERR_BAD_PATH),
	CASE("/a//b", ERR_BAD_PATH),
	CASE("/.", ERR_BAD_PATH),
	CASE("/a/..", ERR_BAD_PATH),
	CASE("/../a", ERR_BAD_PATH),
	CASE("/a\0b", ERR_BAD_PATH),
	CASE("/a\nb", ERR_BAD_PATH),
	CASE("/\x7f", ERR_BAD_PATH),
	CASE("/\xc2\x85", ERR_BAD_PATH),     /* a control character beyond ASCII */
	CASE("/\xff", ERR_BAD_PATH),
	CASE("/\xc3", ERR_BAD_PATH),         /* cut short */
	CASE("/\xc0\xaf", ERR_BAD_PATH),     /* an overlong slash */
	CASE("/\xe0\x80\xaf", ERR_BAD_PATH),
	CASE("/\xed\xa0\x80", ERR_BAD_PATH), /* half of a surrogate pair */
	CASE("/\xf4\x90\x80\x80", ERR_BAD_PATH),
#undef CASE
};

START_TEST(path__is_judged)
{
	struct slice path = slice_of(cases[_i].path, cases[_i].len);

	ck_assert_str_eq(err_name(path_check(path)), err_name(cases[_i].want));
}
END_TEST

START_TEST(path__has_bounds)
{
	struct buf deep = { 0 }, longest = { 0 };

	for (int i = 0; i < PATH_DEPTH_MAX; i++)
		buf_append(&deep, "/x", 2);
	ck_assert_int_eq(path_check(buf_view(&deep)), ERR_OK);
	buf_append(&deep, "/x", 2);
	ck_assert_int_eq(path_check(buf_view(&deep)), ERR_PATH_TOO_DEEP);
	buf_append_byte(&longest, '/');
	while (longest.len < PATH_LEN_MAX)
		buf_append_byte(&longest, 'x');
	ck_assert_int_eq(path_check(buf_view(&longest)), ERR_OK);
	buf_append_byte(&longest, 'x');
	ck_assert_int_eq(path_check(buf_view(&longest)), ERR_PATH_TOO_DEEP);
	buf_free(&deep);
	buf_free(&longest);
}
END_TEST

START_TEST(path__root_has_a_list_and_is_no_node)
{
	ck_assert_int_eq(path_check_or_root(slice_of_str("/")), ERR_OK);
	ck_assert_int_eq(path_check_or_root(slice_of_str("/a")), ERR_OK);
	ck_assert_int_eq(path_check_or_root(slice_of_str("")), ERR_BAD_PATH);
}
END_TEST

static const struct { const char *path, *parent; } parents[] = {
	{ "/a", "/" }, { "/a/b", "/a" }, { "/a/b/", "/a/b" }, { "/", "" }, { "", "" }, { "a/b", "" }, { "//", "/" },
};

START_TEST(path__has_one_above_it)
{
	struct slice parent = path_parent(slice_of_str(parents[_i].path));

	ck_assert_msg(slice_eq(parent, slice_of_str(parents[_i].parent)), "%s: %.*s", parents[_i].path, (int)parent.len, (const char *)parent.ptr);
}
END_TEST

static const struct { const char *path, *top; bool want; } unders[] = {
	{ "/a", "/a", true }, { "/a/b", "/a", true }, { "/ab", "/a", false }, { "/a", "/a/b", false }, { "/x", "/", true }, { "/", "/", true },
	{ "k", "/", false }, { "", "/", false },
};

START_TEST(path__is_under_a_path_by_whole_names)
{
	ck_assert_int_eq(path_is_under(slice_of_str(unders[_i].path), slice_of_str(unders[_i].top)), unders[_i].want);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("path");
	TCase *tc = tcase_create("path");
	SRunner *sr;
	int failed;

	tcase_add_loop_test(tc, path__is_judged, 0, sizeof cases / sizeof *cases);
	tcase_add_test(tc, path__has_bounds);
	tcase_add_test(tc, path__root_has_a_list_and_is_no_node);
	tcase_add_loop_test(tc, path__has_one_above_it, 0, sizeof parents / sizeof *parents);
	tcase_add_loop_test(tc, path__is_under_a_path_by_whole_names, 0, sizeof unders / sizeof *unders);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
