/* test_fence.c: the two marks. */
#include <holdfast_fence.h>
#include <stdlib.h>

#include "suites.h"

static const struct {
	const char *what;
	struct hf_fence_marks before;
	enum hf_fence_mode mode;
	int64_t token;
	enum hf_fence_code want;
	struct hf_fence_marks after;
} rows[] = {
	{ "the first exclusive one", { 0, 0 }, HF_FENCE_EXCLUSIVE, 5, HF_FENCE_OK, { 5, 5 } },
	{ "the first shared one", { 0, 0 }, HF_FENCE_SHARED, 5, HF_FENCE_OK, { 0, 5 } },
	{ "the same holder again", { 5, 5 }, HF_FENCE_EXCLUSIVE, 5, HF_FENCE_OK, { 5, 5 } },
	{ "a later holder raises both", { 5, 7 }, HF_FENCE_EXCLUSIVE, 9, HF_FENCE_OK, { 9, 9 } },
	{ "an earlier holder is refused", { 9, 9 }, HF_FENCE_EXCLUSIVE, 5, HF_FENCE_STALE, { 9, 9 } },
	{ "an exclusive one from before a shared one is refused", { 5, 7 }, HF_FENCE_EXCLUSIVE, 6, HF_FENCE_STALE, { 5, 7 } },
	{ "shared ones hold together, in any order", { 5, 9 }, HF_FENCE_SHARED, 7, HF_FENCE_OK, { 5, 9 } },
	{ "a shared one raises the mark of all alone", { 5, 7 }, HF_FENCE_SHARED, 9, HF_FENCE_OK, { 5, 9 } },
	{ "a shared one from before an exclusive one is refused", { 9, 9 }, HF_FENCE_SHARED, 7, HF_FENCE_STALE, { 9, 9 } },
	{ "the highest token there is", { 9, 9 }, HF_FENCE_EXCLUSIVE, INT64_MAX, HF_FENCE_OK, { INT64_MAX, INT64_MAX } },
	{ "no token", { 0, 0 }, HF_FENCE_EXCLUSIVE, 0, HF_FENCE_INVALID, { 0, 0 } },
	{ "a negative one", { 0, 0 }, HF_FENCE_SHARED, -3, HF_FENCE_INVALID, { 0, 0 } },
	{ "no mode", { 1, 1 }, (enum hf_fence_mode)2, 3, HF_FENCE_INVALID, { 1, 1 } },
};

START_TEST(fence__marks)
{
	struct hf_fence_marks m = rows[_i].before;
	ck_assert_msg(hf_fence_admit(&m, rows[_i].mode, rows[_i].token) == rows[_i].want, "%s", rows[_i].what);
	ck_assert_msg(m.exclusive == rows[_i].after.exclusive && m.any == rows[_i].after.any, "%s", rows[_i].what);
}
END_TEST

START_TEST(fence__every_code_has_words)
{
	for (int c = HF_FENCE_OK; c <= HF_FENCE_FAILED; c++)
		ck_assert_str_ne(hf_fence_text((enum hf_fence_code)c), "no such code");
	ck_assert_str_eq(hf_fence_text((enum hf_fence_code)99), "no such code");
	ck_assert_int_eq(hf_fence_admit(NULL, HF_FENCE_SHARED, 1), HF_FENCE_INVALID);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fence");
	TCase *marks = tcase_create("marks");
	SRunner *r;
	int failed;
	tcase_add_loop_test(marks, fence__marks, 0, (int)(sizeof(rows) / sizeof(rows[0])));
	tcase_add_test(marks, fence__every_code_has_words);
	suite_add_tcase(s, marks);
	suite_add_tcase(s, lmdb_case());
	suite_add_tcase(s, sqlite_case());
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
