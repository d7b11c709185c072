/* Damage: a byte that changed, a page or a file that is gone. It is told, never skipped, never served. */
#include "harness.h"

#include <fcntl.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"

static char *data_file(const char *dir, const char *env)
{
	char *path = path_under(dir, env);
	char *file = path_under(path, "data.mdb");
	free(path);
	return file;
}

static void expect_damaged(const char *dir, const char *words)
{
	struct storage *st = NULL;
	struct storage_options opts = options_of(dir);
	ck_fails(storage_open(&opts, &st, em), ERR_CORRUPT, words);
	ck_fails(storage_open(&opts, &st, em), ERR_CORRUPT, "remove this member from the cell");
	ck_assert_ptr_null(st);
}

static const size_t payload_lengths[] = { 24, 300, 5000, 100000 }; /* in a leaf, on pages of their own */

START_TEST(damage__of_an_entry_keeps_the_log_closed)
{
	size_t len = payload_lengths[_i];
	char name[64];
	snprintf(name, sizeof name, "%s-%d", __func__, _i);
	char *dir = test_dir(name);
	struct storage *st = open_ok(dir);
	append(st, 1, 100, 1, len);
	struct buf payload = payload_of(60, 1, len);
	char *file = data_file(dir, "log");
	struct storage_read_result r;
	ck_assert_uint_gt(flip_in_file(file, buf_view(&payload)), 0);
	/* the running process sees the same bytes through its map */
	ck_fails(storage_read(st, 60, 60, 1 << 20, &r, em), ERR_CORRUPT, "log entry 60 does not match");
	ck_fails(storage_read(st, 50, 70, 1 << 30, &r, em), ERR_CORRUPT, "log entry 60 does not match");
	check_entries(st, 1, 59, 1, len);
	check_entries(st, 61, 100, 1, len);
	storage_close(st);
	expect_damaged(dir, "log entry 60 does not match");
	buf_free(&payload);
	free(file);
	free(dir);
}
END_TEST

/* ---- through LMDB itself ---- */

struct raw {
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi records, table;
};

static struct raw raw_open(const char *dir)
{
	struct raw raw;
	char *log = path_under(dir, "log");
	ck_assert_int_eq(mdb_env_create(&raw.env), 0);
	ck_assert_int_eq(mdb_env_set_maxdbs(raw.env, 1), 0);
	ck_assert_int_eq(mdb_env_open(raw.env, log, 0, 0600), 0);
	ck_assert_int_eq(mdb_txn_begin(raw.env, NULL, 0, &raw.txn), 0);
	ck_assert_int_eq(mdb_dbi_open(raw.txn, NULL, 0, &raw.records), 0);
	ck_assert_int_eq(mdb_dbi_open(raw.txn, "table", 0, &raw.table), 0);
	free(log);
	return raw;
}

static void raw_close(struct raw *raw)
{
	ck_assert_int_eq(mdb_txn_commit(raw->txn), 0);
	mdb_env_close(raw->env);
}

static void lose_entry(const char *dir, uint64_t index)
{
	struct raw raw = raw_open(dir);
	MDB_val key = { sizeof index, &index };
	ck_assert_int_eq(mdb_del(raw.txn, raw.table, &key, NULL), 0);
	raw_close(&raw);
}

START_TEST(damage__a_lost_entry_is_missed)
{
	static const uint64_t lost[] = { 1, 50, 100 }; /* the first, in the middle, the last */
	char name[64], words[64];
	snprintf(name, sizeof name, "%s-%d", __func__, _i);
	char *dir = test_dir(name);
	struct storage *st = open_ok(dir);
	append(st, 1, 100, 1, 50);
	storage_close(st);
	lose_entry(dir, lost[_i]);
	snprintf(words, sizeof words, "log entry %d is missing", (int)lost[_i]);
	expect_damaged(dir, words);
	free(dir);
}
END_TEST

START_TEST(damage__an_entry_behind_the_end_is_noticed)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	append(st, 1, 10, 1, 50);
	storage_close(st);
	struct raw raw = raw_open(dir);
	uint64_t from = 10, to = 11;
	MDB_val key = { sizeof from, &from }, value;
	ck_assert_int_eq(mdb_get(raw.txn, raw.table, &key, &value), 0);
	struct buf copy = buf_copy_of(slice_of(value.mv_data, value.mv_size));
	key.mv_data = &to;
	value.mv_data = copy.ptr;
	ck_assert_int_eq(mdb_put(raw.txn, raw.table, &key, &value, 0), 0);
	raw_close(&raw);
	expect_damaged(dir, "outside of its extent");
	/* and in another one's place */
	raw = raw_open(dir);
	ck_assert_int_eq(mdb_del(raw.txn, raw.table, &key, NULL), 0);
	to = 7;
	value = (MDB_val){ copy.len, copy.ptr };
	ck_assert_int_eq(mdb_put(raw.txn, raw.table, &key, &value, 0), 0);
	raw_close(&raw);
	expect_damaged(dir, "log entry 7 does not match");
	buf_free(&copy);
	free(dir);
}
END_TEST

static const char *const record_names[] = { "identity", "boot", "hard", "extent", "format" };

START_TEST(damage__of_a_record_keeps_the_log_closed)
{
	char name[64];
	snprintf(name, sizeof name, "%s-%d", __func__, _i);
	char *dir = test_dir(name);
	struct storage *st = open_ok(dir);
	struct storage_hard_state hard = { .term = 3, .voted_for = 1 };
	ck_ok(storage_commit(st, &(struct storage_batch){ .hard = &hard }, em));
	append(st, 1, 10, 3, 50);
	storage_close(st);
	struct raw raw = raw_open(dir);
	MDB_val key = { strlen(record_names[_i]), (void *)(uintptr_t)record_names[_i] }, value;
	ck_assert_int_eq(mdb_get(raw.txn, raw.records, &key, &value), 0);
	struct buf copy = buf_copy_of(slice_of(value.mv_data, value.mv_size));
	copy.ptr[6] ^= 1;
	value.mv_data = copy.ptr;
	ck_assert_int_eq(mdb_put(raw.txn, raw.records, &key, &value, 0), 0);
	raw_close(&raw);
	expect_damaged(dir, "a record does not match");
	buf_free(&copy);
	free(dir);
}
END_TEST

/* ---- files ---- */

START_TEST(damage__a_cut_log_file_is_noticed)
{
	char name[64];
	snprintf(name, sizeof name, "%s-%d", __func__, _i);
	char *dir = test_dir(name);
	struct storage *st = open_ok(dir);
	append(st, 1, 100, 1, 3000);
	storage_close(st);
	char *file = data_file(dir, "log");
	struct stat sb;
	ck_assert_int_eq(stat(file, &sb), 0);
	off_t keep = 4096 * 2 + (sb.st_size - 4096 * 2) * _i / 4;
	ck_assert_int_eq(truncate(file, keep), 0);
	expect_damaged(dir, "");
	free(file);
	free(dir);
}
END_TEST

START_TEST(damage__other_bytes_instead_of_a_log_are_noticed)
{
	char *dir = test_dir(__func__);
	storage_close(open_ok(dir));
	char *file = data_file(dir, "log");
	FILE *f = fopen(file, "r+");
	for (int i = 0; i < 8192; i++)
		fputc('x', f);
	fclose(f);
	expect_damaged(dir, "");
	free(file);
	free(dir);
}
END_TEST

START_TEST(damage__a_lost_snapshot_is_missed)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	append(st, 1, 100, 1, 50);
	make_snapshot(st, 50, 1, 2, 10);
	ck_ok(storage_commit(st, &(struct storage_batch){ .trim_to = 40 }, em));
	storage_close(st);
	char *snap = snapshot_dir(dir, 50, 1);
	remove_tree(snap);
	expect_damaged(dir, "between the newest snapshot and the log");
	free(snap);
	free(dir);
}
END_TEST

START_TEST(damage__a_lost_log_is_missed)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	append(st, 1, 100, 1, 50);
	make_snapshot(st, 50, 1, 2, 10);
	storage_close(st);
	char *log = path_under(dir, "log");
	remove_tree(log);
	expect_damaged(dir, "lost its identity");
	free(log);
	free(dir);
}
END_TEST

START_TEST(damage__of_a_snapshot_is_told_by_its_reader)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	append(st, 1, 100, 1, 50);
	make_snapshot(st, 50, 1, 20, 1000);
	char *snap = snapshot_dir(dir, 50, 1), *file = path_under(snap, "data.mdb");
	struct buf payload = payload_of(50 + 7, 1, 1000), chunk = { 0 };
	struct storage_snapshot_reader *r = NULL;
	ck_assert_uint_eq(flip_in_file(file, buf_view(&payload)), 1);
	ck_ok(storage_snapshot_open(st, &r, em));
	ck_ok(storage_snapshot_read(r, 6, &chunk, em));
	ck_fails(storage_snapshot_read(r, 7, &chunk, em), ERR_CORRUPT, "chunk 7 does not match");
	payload.len = 0;
	ck_assert_uint_eq(chunk.len, 1000); /* untouched by the failure */
	storage_snapshot_close(r);
	ck_assert_uint_gt(flip_in_file(file, slice_of_str("members of the cell")), 0);
	ck_fails(storage_snapshot_open(st, &r, em), ERR_CORRUPT, "does not match");
	storage_close(st);
	expect_damaged(dir, "does not match");
	ck_assert_int_eq(truncate(file, 4096 * 3), 0);
	expect_damaged(dir, "");
	ck_assert_int_eq(truncate(file, 0), 0);
	expect_damaged(dir, "missing or empty");
	buf_free(&payload);
	buf_free(&chunk);
	free(file);
	free(snap);
	free(dir);
}
END_TEST

/* A chunk that is damaged between its writing and the finish must not get the name of a whole snapshot. */
START_TEST(damage__before_the_finish_prevents_it)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	append(st, 1, 100, 1, 50);
	make_snapshot(st, 10, 1, 1, 10);
	struct storage_snapshot_writer *w = write_chunks(st, 50, 1, 4000, 1000);
	char *snap = snapshot_dir(dir, 50, 1);
	struct buf file = { 0 }, payload = payload_of(50 + 7, 1, 1000);
	buf_printf(&file, "%s.tmp/data.mdb", snap);
	buf_append_byte(&file, '\0');
	ck_assert_uint_eq(flip_in_file((char *)file.ptr, buf_view(&payload)), 1);
	struct storage_snapshot_meta meta = meta_of(50, 1, 4000, 1000);
	ck_fails(storage_snapshot_finish(w, &meta, em), ERR_CORRUPT, "chunk 7 does not match");
	storage_snapshot_abort(w);
	check_snapshot(st, 10, 1, 1, 10);
	storage_close(st);
	buf_free(&file);
	buf_free(&payload);
	free(snap);
	free(dir);
}
END_TEST

/* ---- any byte ---- */

static void flip_anywhere(const char *file, struct rng *rng)
{
	struct stat sb;
	uint8_t byte;
	int fd = open(file, O_RDWR | O_CLOEXEC);
	ASSERT(fd >= 0 && fstat(fd, &sb) == 0);
	off_t at = (off_t)rng_below(rng, (uint64_t)sb.st_size);
	ASSERT(pread(fd, &byte, 1, at) == 1);
	byte = (uint8_t)(byte ^ (1 << rng_below(rng, 8)));
	ASSERT(pwrite(fd, &byte, 1, at) == 1);
	close(fd);
}

/* Exit codes of their own, so that a sanitizer's is none of them. */
enum verdict {
	VERDICT_FINE = 100, /* everything was there */
	VERDICT_REFUSED,
	VERDICT_WRONG,
};

static bool same_entry(const struct storage_entry *en)
{
	struct buf want = payload_of(en->index, 3, 400);
	bool same = en->term == 3 && en->kind == (uint8_t)en->index && slice_eq(en->payload, buf_view(&want));
	buf_free(&want);
	return same;
}

static enum verdict open_and_compare(const char *dir)
{
	struct storage_options opts = options_of(dir);
	struct storage *st = NULL;
	struct storage_read_result r;
	struct errmsg em;
	if (storage_open(&opts, &st, &em))
		return VERDICT_REFUSED;
	const struct storage_state *s = storage_state(st);
	if (s->hard.term != 3 || s->hard.voted_for != 8 || s->first_index != 1 || s->last_index != 200)
		return VERDICT_WRONG;
	if (storage_read(st, 1, 200, SIZE_MAX, &r, &em))
		return VERDICT_REFUSED;
	if (r.entries_len != 200)
		return VERDICT_WRONG;
	for (size_t i = 0; i < 200; i++)
		if (r.entries[i].index != i + 1 || !same_entry(&r.entries[i]))
			return VERDICT_WRONG;
	storage_read_result_free(&r);
	storage_close(st);
	return VERDICT_FINE;
}

static int verdict_of_child(const char *dir)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		if (!freopen("/dev/null", "w", stderr))
			_exit(1);
		_exit((int)open_and_compare(dir));
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

START_TEST(damage__of_any_byte_never_yields_wrong_data)
{
	char *dir = test_dir(__func__), *file = data_file(dir, "log");
	struct storage *st = open_ok(dir);
	struct storage_hard_state hard = { .term = 3, .voted_for = 8 };
	unsigned fine = 0, refused = 0, ended = 0;
	struct rng rng;
	append(st, 1, 200, 3, 400);
	ck_ok(storage_commit(st, &(struct storage_batch){ .hard = &hard }, em));
	storage_close(st);
	struct buf copy = { 0 };
	struct stat sb;
	ck_assert_int_eq(stat(file, &sb), 0);
	buf_reserve(&copy, (size_t)sb.st_size);
	int fd = open(file, O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(pread(fd, copy.ptr, (size_t)sb.st_size, 0), sb.st_size);
	rng_init(&rng, 1);
	for (int round = 0; round < 300; round++) {
		ck_assert_int_eq(ftruncate(fd, sb.st_size), 0);
		ck_assert_int_eq(pwrite(fd, copy.ptr, (size_t)sb.st_size, 0), sb.st_size);
		flip_anywhere(file, &rng);
		int verdict = verdict_of_child(dir);
		ck_assert_msg(verdict != VERDICT_WRONG, "round %d: wrong data was served", round);
		fine += verdict == VERDICT_FINE;
		refused += verdict == VERDICT_REFUSED;
		/* LMDB trusts its own pages: some damage of them ends the process, which refuses well enough */
		ended += verdict != VERDICT_FINE && verdict != VERDICT_REFUSED;
	}
	printf("300 flipped bits: %u without effect, %u refused, %u ended the process\n", fine, refused, ended);
	ck_assert_uint_gt(refused, 0);
	close(fd);
	buf_free(&copy);
	free(file);
	free(dir);
}
END_TEST

/* ---- cut out, for who can fetch it from elsewhere ---- */

static struct storage *open_mend(const char *dir)
{
	struct storage_options opts = options_of(dir);
	opts.mend = true;
	return open_with(&opts);
}

static void flip_entry(const char *dir, uint64_t index, size_t len)
{
	char *log = path_under(dir, "log");
	flip_payload(log, index, len);
	free(log);
}

static void check_lost(struct storage *st, uint64_t index, uint64_t term)
{
	ck_assert_uint_eq(storage_state(st)->lost.index, index);
	ck_assert_uint_eq(storage_state(st)->lost.term, term);
}

START_TEST(mend__keeps_the_log_before_the_damage_and_says_what_is_lost)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	struct storage_hard_state hard = { .term = 3, .voted_for = 8, .commit = 90 };
	append(st, 1, 100, 1, 300);
	ck_ok(storage_commit(st, &(struct storage_batch){ .hard = &hard }, em));
	uint64_t boot = storage_state(st)->boot;
	storage_close(st);
	flip_entry(dir, 60, 300);
	flip_entry(dir, 80, 300);
	expect_damaged(dir, "log entry 60 does not match"); /* who may not mend leaves it as it is */
	st = open_mend(dir);
	check_log(st, 1, 59, 1);
	check_entries(st, 1, 59, 1, 300);
	check_lost(st, 100, 1);
	ck_assert_uint_eq(storage_state(st)->hard.term, 3);
	ck_assert_uint_eq(storage_state(st)->hard.voted_for, 8);
	ck_assert_uint_eq(storage_state(st)->boot, boot + 1);
	ck_assert_ptr_nonnull(strstr(storage_state(st)->damage.text, "from 1 to 59 are whole"));
	ck_assert_uint_eq(count_names(dir, "damaged", NULL), 1);
	append(st, 60, 99, 1, 300);
	storage_close(st);
	/* not yet so far again: over any number of starts */
	st = open_mend(dir);
	check_lost(st, 100, 1);
	ck_assert_str_eq(storage_state(st)->damage.text, "");
	append(st, 100, 100, 1, 300);
	storage_close(st);
	st = open_mend(dir);
	check_lost(st, 0, 0);
	check_entries(st, 1, 100, 1, 300);
	ck_assert_uint_eq(count_names(dir, "damaged", NULL), 0);
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(mend__a_later_term_ends_the_loss)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	append(st, 1, 100, 1, 50);
	storage_close(st);
	flip_entry(dir, 60, 50);
	st = open_mend(dir);
	check_lost(st, 100, 1);
	append(st, 60, 61, 2, 50);
	storage_close(st);
	st = open_mend(dir);
	check_lost(st, 0, 0);
	check_log(st, 1, 61, 2);
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(mend__what_a_snapshot_stands_for_is_not_lost)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	append(st, 1, 100, 1, 50);
	make_snapshot(st, 50, 1, 2, 10);
	storage_close(st);
	flip_entry(dir, 20, 50);
	flip_entry(dir, 40, 50);
	st = open_mend(dir);
	check_log(st, 41, 100, 1);
	check_entries(st, 41, 100, 1, 50);
	check_lost(st, 0, 0);
	check_snapshot(st, 50, 1, 2, 10);
	ck_assert_uint_eq(count_names(dir, "damaged", NULL), 0);
	storage_close(st);
	free(dir);
}
END_TEST

/* The whole log is there: the state can be made of it. When it is not, all of it has to be fetched. */
START_TEST(mend__a_damaged_snapshot_is_left_out)
{
	bool trimmed = _i != 0;
	char name[64];
	snprintf(name, sizeof name, "%s-%d", __func__, _i);
	char *dir = test_dir(name);
	struct storage *st = open_ok(dir);
	append(st, 1, 100, 1, 50);
	make_snapshot(st, 50, 1, 20, 1000);
	if (trimmed)
		ck_ok(storage_commit(st, &(struct storage_batch){ .trim_to = 40 }, em));
	storage_close(st);
	char *snap = snapshot_dir(dir, 50, 1);
	flip_payload(snap, 50 + 7, 1000);
	st = open_mend(dir);
	ck_assert(!storage_state(st)->has_snapshot);
	ck_assert_ptr_nonnull(strstr(storage_state(st)->damage.text, "the snapshot of index 50"));
	check_log(st, 1, trimmed ? 0 : 100, trimmed ? 0 : 1);
	check_lost(st, trimmed ? 100 : 0, trimmed ? 1 : 0);
	ck_assert_uint_eq(count_names(dir, "snap-", NULL), 0);
	if (trimmed) {
		install_snapshot(st, 100, 1, 2, 10, true);
		storage_close(st);
		st = open_mend(dir);
		check_lost(st, 0, 0);
		check_snapshot(st, 100, 1, 2, 10);
	}
	storage_close(st);
	free(snap);
	free(dir);
}
END_TEST

START_TEST(mend__never_without_term_and_vote)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	struct storage_options opts = options_of(dir);
	struct storage_hard_state hard = { .term = 3, .voted_for = 1 };
	ck_ok(storage_commit(st, &(struct storage_batch){ .hard = &hard }, em));
	append(st, 1, 10, 3, 50);
	storage_close(st);
	struct raw raw = raw_open(dir);
	MDB_val key = { strlen("hard"), (void *)(uintptr_t)"hard" }, value;
	ck_assert_int_eq(mdb_get(raw.txn, raw.records, &key, &value), 0);
	struct buf copy = buf_copy_of(slice_of(value.mv_data, value.mv_size));
	copy.ptr[6] ^= 1;
	value.mv_data = copy.ptr;
	ck_assert_int_eq(mdb_put(raw.txn, raw.records, &key, &value, 0), 0);
	raw_close(&raw);
	opts.mend = true;
	ck_fails(storage_open(&opts, &st, em), ERR_CORRUPT, "remove this member from the cell");
	buf_free(&copy);
	free(dir);
}
END_TEST

TCase *case_damage(void)
{
	TCase *tc = tcase_create("damage");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, damage__of_an_entry_keeps_the_log_closed, 0, 4);
	tcase_add_loop_test(tc, damage__a_lost_entry_is_missed, 0, 3);
	tcase_add_test(tc, damage__an_entry_behind_the_end_is_noticed);
	tcase_add_loop_test(tc, damage__of_a_record_keeps_the_log_closed, 0, 5);
	tcase_add_loop_test(tc, damage__a_cut_log_file_is_noticed, 0, 4);
	tcase_add_test(tc, damage__other_bytes_instead_of_a_log_are_noticed);
	tcase_add_test(tc, damage__a_lost_snapshot_is_missed);
	tcase_add_test(tc, damage__a_lost_log_is_missed);
	tcase_add_test(tc, damage__of_a_snapshot_is_told_by_its_reader);
	tcase_add_test(tc, damage__before_the_finish_prevents_it);
	tcase_add_test(tc, damage__of_any_byte_never_yields_wrong_data);
	tcase_add_test(tc, mend__keeps_the_log_before_the_damage_and_says_what_is_lost);
	tcase_add_test(tc, mend__a_later_term_ends_the_loss);
	tcase_add_test(tc, mend__what_a_snapshot_stands_for_is_not_lost);
	tcase_add_loop_test(tc, mend__a_damaged_snapshot_is_left_out, 0, 2);
	tcase_add_test(tc, mend__never_without_term_and_vote);
	return tc;
}
