/* Mending (storage/mend.c) that is cut short: a start with a damaged disk, the fetching of what is lost and the start after that, ended before each of
 * their steps in turn, and once more somewhere in the next start. Whatever is found then is what the steps may leave. The page cache is kept, as by a kill;
 * mend_cut.c is for power cuts. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "mend_scene.h"
#include "steps.h"

static void nobody_asks(void)
{
}

/* Ends before its n-th step. False: it came to its end first. */
static bool life(const char *dir, unsigned n)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		steps_begin(n);
		mend_live(dir, nobody_asks);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_msg(WEXITSTATUS(status) != STEPS_UNSYNCED, "step %u names a file that is not on disk yet", n);
	ck_assert_msg(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == STEPS_CRASHED, "step %u: ended with %d", n, WEXITSTATUS(status));
	return WEXITSTATUS(status) == STEPS_CRASHED;
}

START_TEST(mend__is_cut_short_anywhere)
{
	const struct mend_scene *s = &mend_scenes[_i];
	char name[64];
	unsigned n, lacking = 0;
	struct rng rng;

	snprintf(name, sizeof name, "%s-%d", __func__, _i);
	char *damaged = test_dir(name), *dir;
	snprintf(name, sizeof name, "%s-%d-again", __func__, _i);
	dir = test_dir(name);
	rng_init(&rng, (uint64_t)_i);
	steps_begin(0);
	mend_prepare(s, damaged);
	for (n = 1;; n++) {
		bool short_of_the_end;

		steps_begin(0);
		copy_tree(damaged, dir);
		short_of_the_end = life(dir, n);
		if (short_of_the_end)
			(void)life(dir, (unsigned)rng_between(&rng, 1, n + 8));
		lacking += mend_check_found(s, dir, damaged);
		ck_assert(!mend_check_found(s, dir, damaged));
		remove_tree(dir);
		if (!short_of_the_end)
			break;
	}
	printf("mending %d: %u steps, after %u of them something lacked\n", _i, n - 1, lacking);
	ck_assert_uint_gt(n, 20);
	ck_assert(s->lost == (lacking > 0));
	free(dir);
	free(damaged);
}
END_TEST

TCase *case_mend(void)
{
	TCase *tc = tcase_create("mend");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, mend__is_cut_short_anywhere, 0, MEND_SCENES);
	return tc;
}
