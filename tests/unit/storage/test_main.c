#include "harness.h"

#include <stdlib.h>

int main(void)
{
	Suite *s = suite_create("storage");
	suite_add_tcase(s, case_open());
	suite_add_tcase(s, case_log());
	suite_add_tcase(s, case_log_misuse());
	suite_add_tcase(s, case_snapshot());
	suite_add_tcase(s, case_damage());
	suite_add_tcase(s, case_mend());
	suite_add_tcase(s, case_space());
	suite_add_tcase(s, case_crash());
	suite_add_tcase(s, case_part());
	SRunner *sr = srunner_create(s);
	harness_begin();
	srunner_run_all(sr, CK_NORMAL);
	int failed = srunner_ntests_failed(sr);
	harness_end();
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
