/* The real records, as a replica lives with them: a snapshot is written on a thread of its own while the store goes on. Built with
 * -fsanitize=thread it proves that the writer of a snapshot and the core never meet at one piece of memory. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"
#include "core/lease/lease.h"
#include "core/member/member.h"
#include "core/snapshot/snapshot.h"
#include "core/store/store.h"

#define CELL UINT64_C(0xce11)
enum { KEYS = 3000, ROUNDS = 6, WRITES = 2000, CHUNKS_MAX = 64 };

struct job {
	pthread_t thread;
	struct state view;
	struct buf chunks[CHUNKS_MAX];
	size_t len;
};

static void *job_main(void *arg)
{
	struct job *j = arg;
	struct snapshot_encoder *e = snapshot_encoder_new(&j->view, CELL);

	while (j->len < CHUNKS_MAX - 1 && snapshot_encoder_next(e, &j->chunks[j->len]))
		j->len++;
	snapshot_encoder_free(e);
	return NULL;
}

static void write_one(struct store *s, struct rng *rng)
{
	uint8_t value[200];
	char key[32];
	int len = snprintf(key, sizeof(key), "/live/%u", (unsigned)rng_below(rng, KEYS));

	memset(value, (int)rng_below(rng, 256), sizeof(value));
	store_txn_begin(s);
	if (rng_chance(rng, 200000))
		store_delete_range(s, slice_of(key, (size_t)len), slice_of(NULL, 0), NULL, NULL);
	else
		store_put(s, slice_of(key, (size_t)len), slice_of(value, rng_below(rng, sizeof(value))), /*lease=*/0, NULL);
	store_txn_end(s);
}

static void check_job(struct job *j)
{
	struct snapshot_decoder *d = snapshot_decoder_new(CELL);
	struct state back;
	struct store *s;

	for (size_t i = 0; i < j->len; i++) {
		ck_assert_int_eq(snapshot_decoder_feed(d, buf_view(&j->chunks[i])), ERR_OK);
		buf_free(&j->chunks[i]);
	}
	ck_assert_int_eq(snapshot_decoder_finish(d, &back), ERR_OK);
	snapshot_decoder_free(d);
	ck_assert_uint_eq(state_hash(&back), state_hash(&j->view));
	s = store_new(&back);
	store_rebuild(s);
	store_check(s);
	store_free(s);
	tree_check(&back.keys);
	state_deinit(&back);
}

START_TEST(snapshot__is_written_while_the_store_goes_on)
{
	static const char *const urls[] = { "http://127.0.0.1:2380" };
	struct state st;
	struct store *s;
	struct lessor *ls;
	struct rng rng;
	int64_t ttl_s;

	rng_init(&rng, 1);
	state_init(&st);
	member_add_initial(&st, &(struct member_spec){ "a", urls, 1 }, "t");
	s = store_new(&st);
	ls = lessor_new(&st, 1);
	for (unsigned i = 0; i < WRITES; i++)
		write_one(s, &rng);
	for (unsigned round = 1; round <= ROUNDS; round++) {
		struct job j = { .view = state_view(&st) };

		ck_assert_int_eq(pthread_create(&j.thread, NULL, job_main, &j), 0);
		for (unsigned i = 0; i < WRITES; i++)
			write_one(s, &rng);
		ck_assert_int_eq(lease_grant(ls, round, 10, /*now=*/0, &ttl_s), ERR_OK);
		ck_assert_int_eq(member_publish(&st, member_derive_id(urls, 1, "t"), "a", urls, 1, 7), ERR_OK);
		ck_assert_int_eq(store_compact(s, st.revision - WRITES / 2), ERR_OK);
		pthread_join(j.thread, NULL);
		check_job(&j);
		state_deinit(&j.view);
		store_check(s);
	}
	lessor_free(ls);
	store_free(s);
	state_deinit(&st);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_snapshot_live");
	TCase *tc = tcase_create("live");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, snapshot__is_written_while_the_store_goes_on);
	suite_add_tcase(s, tc);
	srunner_set_fork_status(sr, CK_NOFORK); /* the thread sanitizer and fork do not get on */
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
