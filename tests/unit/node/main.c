/* main.c: see main.h. */
#include "main.h"

int run_tests(const char *name, const TTest *const *tests)
{
	Suite *s = suite_create(name);
	TCase *t = tcase_create(name);
	SRunner *sr;
	int failed;
	tcase_set_timeout(t, 120);
	for (; *tests; tests++)
		tcase_add_test(t, *tests);
	suite_add_tcase(s, t);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
