/* test_view.c: a view is read by another thread while the core writes on; meant for the thread sanitizer, true without it as well. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "world.h"

enum { KEYS = 500, WRITES = 4000, ROUNDS = 6 };

static struct world w;
static struct rng rng;

struct job {
	struct state view;
	struct buf bytes;
	uint32_t hash;
};

static void *read_view(void *arg)
{
	struct job *job = arg;

	job->bytes = tree_encode(&job->view.keys);
	job->hash = store_hash_kv_view(&job->view, 0);
	return NULL;
}

static void write_some(void)
{
	char key[32];

	for (int i = 0; i < WRITES; i++) {
		snprintf(key, sizeof key, "key-%03d", (int)rng_below(&rng, KEYS));
		if (rng_chance(&rng, 100000))
			world_delete(&w, key, "");
		else
			world_put(&w, key, key);
		if (rng_chance(&rng, 1000))
			EXPECT(store_compact(w.store, w.st.revision) == ERR_OK);
	}
}

START_TEST(view__is_read_by_another_thread_while_the_store_changes)
{
	struct job job = { .hash = 0 };
	struct buf before;
	pthread_t thread;
	uint32_t hash;

	write_some();
	before = tree_encode(&w.st.keys);
	hash = store_hash_kv(w.store, 0);
	job.view = w.st;
	job.view.keys = tree_view(&w.st.keys);
	ck_assert_int_eq(pthread_create(&thread, NULL, read_view, &job), 0);
	write_some();
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	tree_deinit(&job.view.keys);
	ck_assert(slice_eq(buf_view(&before), buf_view(&job.bytes)));
	ck_assert_uint_eq(job.hash, hash);
	ck_assert_uint_ne(store_hash_kv(w.store, 0), hash);
	buf_free(&before);
	buf_free(&job.bytes);
}
END_TEST

static void setup(void)
{
	rng_init(&rng, 1);
	world_init(&w);
}

static void teardown(void)
{
	world_deinit(&w);
}

int main(void)
{
	Suite *suite = suite_create("core_store_view");
	TCase *tc = tcase_create("view");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, view__is_read_by_another_thread_while_the_store_changes, 0, ROUNDS);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
