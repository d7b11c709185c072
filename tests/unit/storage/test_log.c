/* The log: what is committed is there, what is truncated or trimmed is not, and misuse is caught. */
#include "harness.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

START_TEST(log__keeps_entries_and_hard_state_over_a_reopen)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	struct storage_hard_state hard = { .term = 3, .voted_for = MEMBER, .commit = 2 };
	ck_ok(storage_commit(st, &(struct storage_batch){ .hard = &hard }, em));
	append(st, 1, 100, 3, 100);
	append(st, 101, 101, 4, 0);
	append(st, 102, 103, 4, 1 << 20);
	check_entries(st, 1, 100, 3, 100);
	check_entries(st, 101, 101, 4, 0);
	check_entries(st, 102, 103, 4, 1 << 20);
	storage_close(st);
	st = open_ok(dir);
	check_log(st, 1, 103, 4);
	ck_assert_uint_eq(storage_state(st)->hard.term, 3);
	ck_assert_uint_eq(storage_state(st)->hard.voted_for, MEMBER);
	ck_assert_uint_eq(storage_state(st)->hard.commit, 2);
	check_entries(st, 1, 100, 3, 100);
	check_entries(st, 102, 103, 4, 1 << 20);
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(log__an_empty_batch_changes_nothing)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	ck_ok(storage_commit(st, &(struct storage_batch){ 0 }, em));
	ck_ok(storage_commit(st, &(struct storage_batch){ .truncate_from = 5 }, em));
	storage_close(st);
	st = open_ok(dir);
	check_log(st, 1, 0, 0);
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(log__a_batch_truncates_then_appends)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	append(st, 1, 10, 1, 50);
	append(st, 11, 20, 2, 50);
	struct storage_hard_state hard = { .term = 5, .voted_for = 9 };
	struct buf payload = payload_of(15, 5, 50);
	struct storage_entry en = { .index = 15, .term = 5, .kind = 15, .payload = buf_view(&payload) };
	struct storage_batch batch = { .hard = &hard, .truncate_from = 15, .entries = &en, .entries_len = 1 };
	ck_ok(storage_commit(st, &batch, em));
	buf_free(&payload);
	struct storage_read_result r;
	ck_fails(storage_read(st, 16, 16, 100, &r, em), ERR_NOT_FOUND, "holds 1 to 15");
	storage_close(st);
	st = open_ok(dir);
	check_log(st, 1, 15, 5);
	check_entries(st, 1, 10, 1, 50);
	check_entries(st, 11, 14, 2, 50);
	check_entries(st, 15, 15, 5, 50);
	/* the term of what is left counts for what comes next: no assert */
	ck_ok(storage_commit(st, &(struct storage_batch){ .truncate_from = 11 }, em));
	append(st, 11, 11, 1, 50);
	/* down to nothing */
	ck_ok(storage_commit(st, &(struct storage_batch){ .truncate_from = 1 }, em));
	ck_fails(storage_read(st, 1, 1, 100, &r, em), ERR_NOT_FOUND, "not there");
	storage_close(st);
	st = open_ok(dir);
	check_log(st, 1, 0, 0);
	append(st, 1, 3, 1, 50);
	storage_close(st);
	free(dir);
}
END_TEST

static const struct read_case {
	const char *what;
	uint64_t from, to;
	size_t max_bytes, want;
} read_cases[] = {
	{ "all of a range", 3, 7, 1 << 20, 5 },
	{ "one", 4, 4, 1 << 20, 1 },
	{ "as much as fits", 1, 10, 350, 3 },
	{ "exactly what fits", 1, 10, 300, 3 },
	{ "at least one", 1, 10, 0, 1 },
	{ "until the end", 8, 99, 1 << 20, 3 },
	{ "everything", 1, UINT64_MAX, SIZE_MAX, 10 },
};

START_TEST(log__reads_within_bounds)
{
	const struct read_case *c = &read_cases[_i];
	char name[64];
	snprintf(name, sizeof name, "%s-%d", __func__, _i);
	char *dir = test_dir(name);
	struct storage *st = open_ok(dir);
	struct storage_read_result r;
	append(st, 1, 10, 1, 100);
	ck_ok(storage_read(st, c->from, c->to, c->max_bytes, &r, em));
	ck_assert_msg(r.entries_len == c->want, "%s: %zu", c->what, r.entries_len);
	ck_assert_uint_eq(r.entries[0].index, c->from);
	ck_assert_uint_eq(r.payload.len, 100 * c->want);
	storage_read_result_free(&r);
	storage_read_result_free(&r);
	ck_fails(storage_read(st, 0, 5, 100, &r, em), ERR_NOT_FOUND, "not there");
	ck_fails(storage_read(st, 11, 12, 100, &r, em), ERR_NOT_FOUND, "not there");
	ck_fails(storage_read(st, 5, 4, 100, &r, em), ERR_NOT_FOUND, "not there");
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(log__trims_in_steps)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	for (uint64_t at = 1; at <= 20000; at += 1000)
		append(st, at, at + 999, 1, 20);
	make_snapshot(st, 15000, 1, 1, 10);
	ck_assert(!storage_trim_pending(st));
	ck_ok(storage_commit(st, &(struct storage_batch){ .trim_to = 14000 }, em));
	ck_assert(storage_trim_pending(st));
	struct storage_read_result r;
	ck_fails(storage_read(st, 1, 1, 100, &r, em), ERR_NOT_FOUND, "not there");
	append(st, 20001, 20001, 1, 20); /* goes on with it */
	unsigned steps = 0;
	for (; storage_trim_pending(st); steps++)
		ck_ok(storage_commit(st, &(struct storage_batch){ 0 }, em));
	ck_assert_uint_gt(steps, 2);
	ck_fails(storage_read(st, 14000, 14000, 100, &r, em), ERR_NOT_FOUND, "holds 14001 to 20001");
	check_entries(st, 14001, 20001, 1, 20);
	storage_close(st);
	st = open_ok(dir);
	check_log(st, 14001, 20001, 1);
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(log__may_be_trimmed_to_nothing)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	append(st, 1, 30, 2, 20);
	make_snapshot(st, 30, 2, 1, 10);
	ck_ok(storage_commit(st, &(struct storage_batch){ .trim_to = 30 }, em));
	ck_assert(!storage_trim_pending(st));
	storage_close(st);
	st = open_ok(dir);
	check_log(st, 31, 30, 2);
	ck_assert_uint_eq(storage_state(st)->hard.commit, 30);
	append(st, 31, 40, 2, 20);
	ck_ok(storage_commit(st, &(struct storage_batch){ .truncate_from = 31 }, em));
	append(st, 31, 32, 2, 20);
	storage_close(st);
	st = open_ok(dir);
	check_log(st, 31, 32, 2);
	storage_close(st);
	free(dir);
}
END_TEST

static uint64_t resident_file_kb(void)
{
	char line[128];
	unsigned long long kb, sum = 0;
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "RssFile: %llu", &kb) == 1 || sscanf(line, "RssShmem: %llu", &kb) == 1)
			sum += kb;
	if (f)
		fclose(f);
	return sum;
}

START_TEST(log__does_not_stay_resident_after_reading)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	for (uint64_t at = 1; at <= 64; at++)
		append(st, at, at, 1, 1 << 20);
	storage_close(st);
	uint64_t before = resident_file_kb();
	st = open_ok(dir);
	uint64_t opened = resident_file_kb();
	for (uint64_t at = 1; at <= 64; at += 16) {
		struct storage_read_result r;
		ck_ok(storage_read(st, at, at + 15, SIZE_MAX, &r, em));
		ck_assert_uint_eq(r.entries_len, 16);
		storage_read_result_free(&r);
	}
	uint64_t after = resident_file_kb();
	printf("resident file pages: %llu KB before open, %llu after it, %llu after reading 64 MB\n",
	       (unsigned long long)before, (unsigned long long)opened, (unsigned long long)after);
	ck_assert_uint_lt(opened, before + (16 << 10));
	ck_assert_uint_lt(after, before + (16 << 10));
	storage_close(st);
	free(dir);
}
END_TEST

struct reader_thread {
	struct storage *st;
	uint64_t seen;
};

static void *read_along(void *arg)
{
	struct reader_thread *rt = arg;
	while (rt->seen < 2000) {
		struct storage_read_result r;
		struct errmsg em;
		if (storage_read(rt->st, rt->seen + 1, UINT64_MAX, 1 << 16, &r, &em))
			continue;
		for (size_t i = 0; i < r.entries_len; i++) {
			struct buf want = payload_of(rt->seen + 1, 1, 200);
			ASSERT(r.entries[i].index == rt->seen + 1);
			ASSERT(slice_eq(r.entries[i].payload, buf_view(&want)));
			buf_free(&want);
			rt->seen++;
		}
		storage_read_result_free(&r);
	}
	return NULL;
}

START_TEST(log__is_read_while_it_grows)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	struct reader_thread rt = { .st = st };
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, read_along, &rt), 0);
	for (uint64_t at = 1; at <= 2000; at += 10)
		append(st, at, at + 9, 1, 200);
	pthread_join(thread, NULL);
	storage_close(st);
	free(dir);
}
END_TEST

TCase *case_log(void)
{
	TCase *tc = tcase_create("log");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, log__keeps_entries_and_hard_state_over_a_reopen);
	tcase_add_test(tc, log__an_empty_batch_changes_nothing);
	tcase_add_test(tc, log__a_batch_truncates_then_appends);
	tcase_add_loop_test(tc, log__reads_within_bounds, 0, sizeof read_cases / sizeof *read_cases);
	tcase_add_test(tc, log__trims_in_steps);
	tcase_add_test(tc, log__may_be_trimmed_to_nothing);
	tcase_add_test(tc, log__does_not_stay_resident_after_reading);
	tcase_add_test(tc, log__is_read_while_it_grows);
	return tc;
}

/* ---- a caller's faults end the process before they reach the disk ---- */

static struct storage *ten_entries(const char *name)
{
	char *dir = test_dir(name);
	struct storage *st = open_ok(dir);
	append(st, 1, 10, 4, 10);
	make_snapshot(st, 5, 4, 1, 10);
	struct storage_hard_state hard = { .term = 4, .voted_for = 1 };
	ck_ok(storage_commit(st, &(struct storage_batch){ .hard = &hard }, em));
	free(dir);
	return st;
}

static void commit_bad(struct storage *st, struct storage_batch batch)
{
	struct errmsg em;
	(void)storage_commit(st, &batch, &em);
}

START_TEST(misuse__a_gap)
{
	append(ten_entries(__func__), 12, 12, 4, 10);
}
END_TEST

START_TEST(misuse__an_overlap)
{
	append(ten_entries(__func__), 10, 10, 4, 10);
}
END_TEST

START_TEST(misuse__a_term_that_falls)
{
	append(ten_entries(__func__), 11, 11, 3, 10);
}
END_TEST

START_TEST(misuse__a_second_vote_in_a_term)
{
	struct storage_hard_state hard = { .term = 4, .voted_for = 2 };
	commit_bad(ten_entries(__func__), (struct storage_batch){ .hard = &hard });
}
END_TEST

START_TEST(misuse__an_older_term_of_our_own)
{
	struct storage_hard_state hard = { .term = 3, .voted_for = 1 };
	commit_bad(ten_entries(__func__), (struct storage_batch){ .hard = &hard });
}
END_TEST

START_TEST(misuse__truncating_what_a_snapshot_holds)
{
	commit_bad(ten_entries(__func__), (struct storage_batch){ .truncate_from = 5 });
}
END_TEST

START_TEST(misuse__trimming_what_no_snapshot_holds)
{
	commit_bad(ten_entries(__func__), (struct storage_batch){ .trim_to = 6 });
}
END_TEST

START_TEST(misuse__a_snapshot_of_our_own_beyond_the_log)
{
	make_snapshot(ten_entries(__func__), 11, 4, 1, 10);
}
END_TEST

TCase *case_log_misuse(void)
{
	TCase *tc = tcase_create("misuse");
	tcase_add_test_raise_signal(tc, misuse__a_gap, SIGABRT);
	tcase_add_test_raise_signal(tc, misuse__an_overlap, SIGABRT);
	tcase_add_test_raise_signal(tc, misuse__a_term_that_falls, SIGABRT);
	tcase_add_test_raise_signal(tc, misuse__a_second_vote_in_a_term, SIGABRT);
	tcase_add_test_raise_signal(tc, misuse__an_older_term_of_our_own, SIGABRT);
	tcase_add_test_raise_signal(tc, misuse__truncating_what_a_snapshot_holds, SIGABRT);
	tcase_add_test_raise_signal(tc, misuse__trimming_what_no_snapshot_holds, SIGABRT);
	tcase_add_test_raise_signal(tc, misuse__a_snapshot_of_our_own_beyond_the_log, SIGABRT);
	return tc;
}
