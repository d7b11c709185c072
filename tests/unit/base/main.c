#include <stdlib.h>

#include "suites.h"

int main(void)
{
	SRunner *runner = srunner_create(arena_suite());
	int failed;

	srunner_add_suite(runner, base64_suite());
	srunner_add_suite(runner, buf_suite());
	srunner_add_suite(runner, hash_suite());
	srunner_add_suite(runner, heap_suite());
	srunner_add_suite(runner, list_suite());
	srunner_add_suite(runner, map_suite());
	srunner_add_suite(runner, mem_suite());
	srunner_add_suite(runner, pb_check_suite());
	srunner_add_suite(runner, pbw_suite());
	srunner_add_suite(runner, rng_suite());
	srunner_add_suite(runner, slice_suite());
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
