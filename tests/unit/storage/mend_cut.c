/* mend_cut.c: mending (mend_scene.h) on a disk whose power is cut by tests/integration/test_power.py.
 *
 *   mend_cut prepare SCENE DIR               a damaged disk
 *   mend_cut live DIR STEP [unsynced]        ends before its STEP-th step: 77 or, when what was lost had been acknowledged again, 79; 0: it has no such
 *                                            step, and all was acknowledged. unsynced: syncs do nothing
 *   mend_cut check SCENE DIR DAMAGED STATUS  what is found after `live` that ended with STATUS is what may be found: 0, else 1
 *   mend_cut scenes                          how many there are */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "mend_scene.h"
#include "steps.h"

static char **args;

static void acknowledged(void)
{
	steps_end_with(STEPS_CRASHED_LATE);
}

START_TEST(prepare)
{
	mend_prepare(&mend_scenes[atoi(args[0])], args[1]);
}
END_TEST

START_TEST(live)
{
	steps_begin((unsigned)atoi(args[1]));
	if (!args[2])
		steps_sync();
	mend_live(args[0], acknowledged);
}
END_TEST

START_TEST(check)
{
	const struct mend_scene *s = &mend_scenes[atoi(args[0])];
	bool all = atoi(args[3]) != STEPS_CRASHED;

	ck_assert_msg(!mend_check_found(s, args[1], args[2]) || !all, "what was acknowledged again is gone");
	ck_assert(!mend_check_found(s, args[1], args[2]));
}
END_TEST

static const TTest *test_named(const char *name)
{
	return strcmp(name, "prepare") == 0 ? prepare : strcmp(name, "live") == 0 ? live : strcmp(name, "check") == 0 ? check : NULL;
}

int main(int argc, char **argv)
{
	const TTest *test = argc > 2 ? test_named(argv[1]) : NULL;
	Suite *s = suite_create("mend_cut");
	TCase *tc = tcase_create("mend_cut");
	SRunner *sr;
	int failed;

	if (argc == 2 && strcmp(argv[1], "scenes") == 0)
		return printf("%d\n", MEND_SCENES) < 0;
	if (!test)
		return 2;
	args = argv + 2;
	tcase_add_test(tc, test);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_set_fork_status(sr, CK_NOFORK); /* `live` ends this process */
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
