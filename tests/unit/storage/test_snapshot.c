/* Snapshots: made or received aside, whole or not there, and put together with the log after any crash. */
#include "harness.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

START_TEST(snapshot__is_written_and_read_back)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	struct storage_snapshot_reader *r = NULL;
	ck_fails(storage_snapshot_open(st, &r, em), ERR_NOT_FOUND, "no snapshot");
	append(st, 1, 50, 3, 10);
	make_snapshot(st, 40, 3, 3000, 3000); /* several transactions */
	check_snapshot(st, 40, 3, 3000, 3000);
	storage_close(st);
	st = open_ok(dir);
	const struct storage_state *s = storage_state(st);
	ck_assert(s->has_snapshot);
	ck_assert_uint_eq(s->snapshot.index, 40);
	ck_assert_uint_eq(s->snapshot.chunks, 3000);
	ck_assert(slice_eq(s->snapshot.config, slice_of_str("members of the cell")));
	ck_assert_uint_eq(s->hard.commit, 40);
	check_log(st, 1, 50, 3);
	check_snapshot(st, 40, 3, 3000, 3000);
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(snapshot__may_be_empty)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	append(st, 1, 1, 1, 10);
	make_snapshot(st, 1, 1, 0, 0);
	check_snapshot(st, 1, 1, 0, 0);
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(snapshot__takes_a_chunk_again_but_no_other)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	append(st, 1, 9, 1, 10);
	struct storage_snapshot_writer *w = write_chunks(st, 9, 1, 2500, 100); /* some committed, some not */
	struct buf chunk = payload_of(9 + 1, 1, 100);
	ck_ok(storage_snapshot_write(w, 1, buf_view(&chunk), em));
	ck_fails(storage_snapshot_write(w, 2400, buf_view(&chunk), em), ERR_CORRUPT, "other bytes");
	ck_fails(storage_snapshot_write(w, 2501, buf_view(&chunk), em), ERR_NOT_FOUND, "2500 is due");
	buf_free(&chunk);
	struct storage_snapshot_meta meta = meta_of(9, 1, 2501, 100);
	ck_fails(storage_snapshot_finish(w, &meta, em), ERR_CORRUPT, "should have 2501 chunks");
	meta.chunks = 2500;
	meta.bytes = 1;
	ck_fails(storage_snapshot_finish(w, &meta, em), ERR_CORRUPT, "1 bytes");
	meta = meta_of(9, 1, 2500, 100);
	ck_ok(storage_snapshot_finish(w, &meta, em));
	check_snapshot(st, 9, 1, 2500, 100);
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(snapshot__replaces_the_one_before_once_nobody_reads_it)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	append(st, 1, 90, 2, 10);
	make_snapshot(st, 10, 2, 5, 10);
	make_snapshot(st, 20, 2, 5, 10);
	ck_assert_uint_eq(count_names(dir, "snap-", NULL), 1);
	struct storage_snapshot_reader *r1 = NULL, *r2 = NULL;
	struct buf chunk = { 0 };
	ck_ok(storage_snapshot_open(st, &r1, em));
	ck_ok(storage_snapshot_open(st, &r2, em));
	make_snapshot(st, 30, 2, 5, 10);
	ck_assert_uint_eq(count_names(dir, "snap-", NULL), 2);
	ck_ok(storage_snapshot_read(r1, 4, &chunk, em));
	ck_assert_uint_eq(storage_snapshot_reader_meta(r1)->index, 20);
	storage_snapshot_close(r1);
	ck_ok(storage_snapshot_read(r2, 0, &chunk, em));
	ck_assert_uint_eq(count_names(dir, "snap-", NULL), 2);
	storage_snapshot_close(r2);
	ck_assert_uint_eq(count_names(dir, "snap-", NULL), 1);
	check_snapshot(st, 30, 2, 5, 10);
	buf_free(&chunk);
	storage_snapshot_close(NULL);
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(snapshot__is_not_made_twice_nor_backwards)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	struct storage_snapshot_writer *late, *twin = NULL;
	append(st, 1, 90, 2, 10);
	late = write_chunks(st, 10, 2, 1, 10);
	ck_fails(storage_snapshot_create(st, 10, 2, &twin, em), ERR_BUSY, "being written");
	make_snapshot(st, 20, 2, 1, 10);
	struct storage_snapshot_meta meta = meta_of(10, 2, 1, 10);
	ck_fails(storage_snapshot_finish(late, &meta, em), ERR_EXISTS, "newer");
	storage_snapshot_abort(late);
	ck_fails(storage_snapshot_create(st, 20, 2, &twin, em), ERR_EXISTS, "newer");
	ck_fails(storage_snapshot_create(st, 15, 2, &twin, em), ERR_EXISTS, "newer");
	ck_assert_ptr_null(twin);
	check_snapshot(st, 20, 2, 1, 10);
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(snapshot__aborted_leaves_nothing)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	append(st, 1, 90, 2, 10);
	make_snapshot(st, 10, 2, 1, 10);
	storage_snapshot_abort(write_chunks(st, 20, 2, 100, 1000));
	storage_snapshot_abort(NULL);
	ck_assert_uint_eq(count_names(dir, "snap-", NULL), 1);
	check_snapshot(st, 10, 2, 1, 10);
	make_snapshot(st, 20, 2, 1, 10); /* the same again */
	check_snapshot(st, 20, 2, 1, 10);
	storage_close(st);
	free(dir);
}
END_TEST

/* ---- received ones ---- */

START_TEST(install__beyond_the_log_starts_it_anew)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	append(st, 1, 50, 2, 10);
	install_snapshot(st, 200, 6, 10, 100, true);
	struct storage_read_result r;
	ck_fails(storage_read(st, 50, 50, 100, &r, em), ERR_NOT_FOUND, "not there");
	append(st, 201, 210, 6, 10);
	storage_close(st);
	st = open_ok(dir);
	check_log(st, 201, 210, 6);
	check_snapshot(st, 200, 6, 10, 100);
	storage_close(st);
	free(dir);
}
END_TEST

static const struct install_case {
	const char *what;
	uint64_t term; /* of the snapshot at 20; the log has term 2 */
	bool keep_log;
	uint64_t first, last, last_term;
} install_cases[] = {
	{ "the log agrees and is kept", 2, true, 1, 50, 2 },
	{ "the log agrees but is not wanted", 2, false, 21, 20, 2 },
	{ "the log disagrees", 3, true, 21, 20, 3 },
	{ "the log disagrees and is not wanted", 3, false, 21, 20, 3 },
};

START_TEST(install__within_the_log)
{
	const struct install_case *c = &install_cases[_i];
	char name[64];
	snprintf(name, sizeof name, "%s-%d", __func__, _i);
	char *dir = test_dir(name);
	struct storage *st = open_ok(dir);
	append(st, 1, 50, 2, 10);
	install_snapshot(st, 20, c->term, 1, 10, c->keep_log);
	append(st, c->last + 1, c->last + 1, c->last_term, 10);
	storage_close(st);
	st = open_ok(dir);
	check_log(st, c->first, c->last + 1, c->last_term);
	storage_close(st);
	free(dir);
}
END_TEST

/* ---- crashes, by hand: the directory as it is between two steps ---- */

START_TEST(crash__while_writing_leaves_the_old_one)
{
	char *dir = test_dir(__func__);
	char *tmp = path_under(dir, "snap-00000000000000000020-00000000000000000002.tmp");
	char *junk = path_under(tmp, "data.mdb");
	struct storage *st = open_ok(dir);
	append(st, 1, 50, 2, 10);
	make_snapshot(st, 10, 2, 4, 10);
	storage_close(st);
	ck_assert_int_eq(mkdir(tmp, 0700), 0);
	FILE *f = fopen(junk, "w");
	fputs("half a page", f);
	fclose(f);
	st = open_ok(dir);
	ck_assert_uint_eq(count_names(dir, "snap-", NULL), 1);
	check_snapshot(st, 10, 2, 4, 10);
	storage_close(st);
	free(junk);
	free(tmp);
	free(dir);
}
END_TEST

START_TEST(crash__before_the_rename_leaves_the_old_one)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	append(st, 1, 50, 2, 10);
	make_snapshot(st, 20, 2, 4, 10);
	storage_close(st);
	char *whole = snapshot_dir(dir, 20, 2);
	struct buf tmp = { 0 };
	buf_printf(&tmp, "%s.tmp", whole);
	buf_append_byte(&tmp, '\0');
	ck_assert_int_eq(rename(whole, (char *)tmp.ptr), 0);
	st = open_ok(dir);
	ck_assert(!storage_state(st)->has_snapshot);
	ck_assert_uint_eq(count_names(dir, "snap-", NULL), 0);
	check_log(st, 1, 50, 2);
	storage_close(st);
	buf_free(&tmp);
	free(whole);
	free(dir);
}
END_TEST

/* A snapshot made elsewhere, moved into `dir` as a rename before a crash would have. */
static void plant_snapshot(const char *dir, uint64_t index, uint64_t term)
{
	struct buf other = { 0 };
	buf_printf(&other, "%s-other", dir);
	buf_append_byte(&other, '\0');
	struct storage *st = open_ok((char *)other.ptr);
	install_snapshot(st, index, term, 3, 10, false);
	storage_close(st);
	char *from = snapshot_dir((char *)other.ptr, index, term), *to = snapshot_dir(dir, index, term);
	ck_assert_int_eq(rename(from, to), 0);
	free(from);
	free(to);
	buf_free(&other);
}

static const struct planted_case {
	const char *what;
	uint64_t index, term; /* the log is 1..50 of term 2, the old snapshot 10 */
	uint64_t first, last, last_term;
} planted_cases[] = {
	{ "beyond the log", 200, 5, 201, 200, 5 },
	{ "right behind the log", 51, 5, 52, 51, 5 },
	{ "at the log's end", 50, 2, 1, 50, 2 },
	{ "within the log, which agrees", 30, 2, 1, 50, 2 },
	{ "within the log, which disagrees", 30, 4, 31, 30, 4 },
};

START_TEST(crash__after_the_rename_gives_the_new_one)
{
	const struct planted_case *c = &planted_cases[_i];
	char name[64];
	snprintf(name, sizeof name, "%s-%d", __func__, _i);
	char *dir = test_dir(name);
	struct storage *st = open_ok(dir);
	append(st, 1, 50, 2, 10);
	make_snapshot(st, 10, 2, 4, 10);
	storage_close(st);
	plant_snapshot(dir, c->index, c->term);
	for (int again = 0; again < 2; again++) {
		st = open_ok(dir);
		check_log(st, c->first, c->last, c->last_term);
		ck_assert_uint_eq(storage_state(st)->hard.commit, c->index);
		check_snapshot(st, c->index, c->term, 3, 10);
		ck_assert_uint_eq(count_names(dir, "snap-", NULL), 1);
		storage_close(st);
	}
	st = open_ok(dir);
	append(st, c->last + 1, c->last + 1, 9, 10);
	storage_close(st);
	free(dir);
}
END_TEST

/* ---- beside the log ---- */

static void *snapshot_thread(void *arg)
{
	make_snapshot(arg, 100, 1, 20000, 1000);
	return NULL;
}

START_TEST(snapshot__is_written_while_the_log_grows)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	pthread_t thread;
	append(st, 1, 100, 1, 100);
	ck_assert_int_eq(pthread_create(&thread, NULL, snapshot_thread, st), 0);
	for (uint64_t at = 101; at <= 400; at++)
		append(st, at, at, 1, 100);
	pthread_join(thread, NULL);
	check_snapshot(st, 100, 1, 20000, 1000);
	check_entries(st, 1, 400, 1, 100);
	storage_close(st);
	free(dir);
}
END_TEST

TCase *case_snapshot(void)
{
	TCase *tc = tcase_create("snapshot");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, snapshot__is_written_and_read_back);
	tcase_add_test(tc, snapshot__may_be_empty);
	tcase_add_test(tc, snapshot__takes_a_chunk_again_but_no_other);
	tcase_add_test(tc, snapshot__replaces_the_one_before_once_nobody_reads_it);
	tcase_add_test(tc, snapshot__is_not_made_twice_nor_backwards);
	tcase_add_test(tc, snapshot__aborted_leaves_nothing);
	tcase_add_test(tc, install__beyond_the_log_starts_it_anew);
	tcase_add_loop_test(tc, install__within_the_log, 0, sizeof install_cases / sizeof *install_cases);
	tcase_add_test(tc, crash__while_writing_leaves_the_old_one);
	tcase_add_test(tc, crash__before_the_rename_leaves_the_old_one);
	tcase_add_loop_test(tc, crash__after_the_rename_gives_the_new_one, 0, sizeof planted_cases / sizeof *planted_cases);
	tcase_add_test(tc, snapshot__is_written_while_the_log_grows);
	return tc;
}
