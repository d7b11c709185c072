/* metrics_test.c: nothing that is counted is lost, whoever counts, and whether he is still there. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "metrics.h"

enum { THREADS = 4, ROUNDS = 20000 };

static void *count(void *arg)
{
	(void)arg;
	for (int i = 0; i < ROUNDS; i++) {
		metric_add(METRIC_HEALTH_OK, 2);
		metric_call_started(METHOD_KV_PUT);
		metric_call_handled(METHOD_KV_PUT, i % 2 ? STATUS_OK : STATUS_NOT_FOUND);
	}
	return NULL;
}

START_TEST(metrics__threads_count_together_and_are_remembered)
{
	static struct metrics m;
	pthread_t threads[THREADS];
	uint64_t last = 0;
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, count, NULL), 0);
	for (int i = 0; i < 100; i++) {
		metrics_sum(&m);
		ck_assert_uint_ge(m.counters[METRIC_HEALTH_OK], last);
		last = m.counters[METRIC_HEALTH_OK];
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	metrics_sum(&m);
	ck_assert_uint_eq(m.counters[METRIC_HEALTH_OK], 2 * THREADS * ROUNDS);
	ck_assert_uint_eq(m.counters[METRIC_HEALTH_BAD], 0);
	ck_assert_uint_eq(m.started[METHOD_KV_PUT], THREADS * ROUNDS);
	ck_assert_uint_eq(m.handled[METHOD_KV_PUT][STATUS_OK], THREADS * ROUNDS / 2);
	ck_assert_uint_eq(m.handled[METHOD_KV_PUT][STATUS_NOT_FOUND], THREADS * ROUNDS / 2);
	ck_assert_uint_eq(m.handled[METHOD_KV_RANGE][STATUS_OK], 0);
}
END_TEST

START_TEST(metrics__times_fall_into_their_buckets)
{
	static struct metrics m;
	metric_took(METRIC_TIME_LOG_COMMIT, 0);
	metric_took(METRIC_TIME_LOG_COMMIT, 1000);
	metric_took(METRIC_TIME_LOG_COMMIT, 1001);
	metric_took(METRIC_TIME_LOG_COMMIT, 8192000);
	metric_took(METRIC_TIME_LOG_COMMIT, 8192001);
	metrics_sum(&m);
	ck_assert_uint_eq(m.times[METRIC_TIME_LOG_COMMIT].buckets[0], 2);
	ck_assert_uint_eq(m.times[METRIC_TIME_LOG_COMMIT].buckets[1], 1);
	ck_assert_uint_eq(m.times[METRIC_TIME_LOG_COMMIT].buckets[METRIC_BUCKETS - 1], 1);
	ck_assert_uint_eq(m.times[METRIC_TIME_LOG_COMMIT].count, 5);
	ck_assert_uint_eq(m.times[METRIC_TIME_LOG_COMMIT].sum_us, 16386002);
	ck_assert_uint_eq(m.times[METRIC_TIME_SNAPSHOT_SAVE].count, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("metrics");
	TCase *t = tcase_create("metrics");
	SRunner *sr;
	int failed;
	tcase_add_test(t, metrics__threads_count_together_and_are_remembered);
	tcase_add_test(t, metrics__times_fall_into_their_buckets);
	suite_add_tcase(s, t);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
