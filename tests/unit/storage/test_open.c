/* Opening: who owns a directory, how often it was opened, and who must stay out. */
#include "harness.h"

#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"

START_TEST(open__makes_a_directory_and_finds_it_again)
{
	char *dir = test_dir(__func__);
	ck_assert(!storage_exists(dir));
	for (uint64_t boot = 1; boot <= 3; boot++) {
		struct storage *st = open_ok(dir);
		const struct storage_state *s = storage_state(st);
		ck_assert(s->created == (boot == 1));
		ck_assert_uint_eq(s->boot, boot);
		ck_assert_uint_eq(s->identity.cell_id, CELL);
		ck_assert_uint_eq(s->identity.member_id, MEMBER);
		ck_assert_uint_eq(s->identity.data_dir_id, 77);
		ck_assert(slice_eq(s->identity.name, slice_of_str("m1")));
		ck_assert(slice_eq(s->identity.cell_token, slice_of_str("token-of-the-cell")));
		ck_assert_uint_eq(s->hard.term, 0);
		ck_assert(!s->has_snapshot);
		ck_assert_uint_eq(s->ballast_bytes, 1 << 20);
		ck_assert(!s->ballast_short);
		check_log(st, 1, 0, 0);
		storage_close(st);
		ck_assert(storage_exists(dir));
	}
	free(dir);
}
END_TEST

START_TEST(open__takes_an_old_directory_as_it_is_when_asked_for_no_ids)
{
	char *dir = test_dir(__func__);
	storage_close(open_ok(dir));
	struct storage *st = open_with(&(struct storage_options){ .dir = dir, .no_ballast = true });
	ck_assert_uint_eq(storage_state(st)->identity.member_id, MEMBER);
	ck_assert_uint_eq(storage_state(st)->ballast_bytes, 0);
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(open__without_ids_makes_nothing)
{
	char *dir = test_dir(__func__);
	struct storage *st = NULL;
	struct storage_options opts = { .dir = dir };
	ck_fails(storage_open(&opts, &st, em), ERR_NOT_FOUND, "no data");
	ck_assert_ptr_null(st);
	ck_assert_int_ne(access(dir, F_OK), 0);
	free(dir);
}
END_TEST

START_TEST(open__refuses_what_belongs_to_others_and_leaves_it_alone)
{
	char *dir = test_dir(__func__);
	struct storage *st = NULL;
	storage_close(open_ok(dir));
	struct storage_options opts = options_of(dir);
	opts.identity.cell_id = CELL + 1;
	ck_fails(storage_open(&opts, &st, em), ERR_WRONG_CELL, "belongs to cell ce11");
	opts.identity.cell_id = CELL;
	opts.identity.member_id = MEMBER + 1;
	ck_fails(storage_open(&opts, &st, em), ERR_WRONG_MEMBER, "data directory of its own");
	ck_assert_ptr_null(st);
	st = open_ok(dir);
	ck_assert_uint_eq(storage_state(st)->boot, 2);
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(open__keeps_a_second_process_out)
{
	char *dir = test_dir(__func__);
	struct storage *st = NULL, *second = NULL;
	struct storage_options opts = options_of(dir);
	int ready[2], done[2];
	char byte = 0, owner[64];
	ck_assert_int_eq(pipe(ready), 0);
	ck_assert_int_eq(pipe(done), 0);
	pid_t child = fork();
	if (child == 0) {
		struct errmsg em;
		if (storage_open(&opts, &st, &em) || write(ready[1], "r", 1) != 1 || read(done[0], &byte, 1) != 1)
			_exit(1);
		storage_close(st);
		_exit(0);
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	snprintf(owner, sizeof owner, "in use by process %d", (int)child);
	ck_fails(storage_open(&opts, &second, em), ERR_BUSY, owner);
	ck_assert_int_eq(write(done[1], "d", 1), 1);
	int status;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	st = open_ok(dir);
	ck_fails(storage_open(&opts, &second, em), ERR_BUSY, "stop it");
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(open__needs_a_directory)
{
	char *dir = test_dir(__func__);
	struct storage *st = NULL;
	FILE *f = fopen(dir, "w");
	ck_assert_ptr_nonnull(f);
	fclose(f);
	struct storage_options opts = options_of(dir);
	ck_fails(storage_open(&opts, &st, em), ERR_IO, "cannot make directory");
	free(dir);
	dir = test_dir("no/such/parent");
	opts.dir = dir;
	ck_fails(storage_open(&opts, &st, em), ERR_IO, "No such file");
	free(dir);
}
END_TEST

START_TEST(open__ends_an_unfinished_first_start)
{
	char *dir = test_dir(__func__);
	char *log = path_under(dir, "log");
	char *file = path_under(log, "data.mdb");
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	ck_assert_int_eq(mkdir(log, 0700), 0);
	fclose(fopen(file, "w")); /* the crash came before the first page */
	struct storage *st = open_ok(dir);
	ck_assert(storage_state(st)->created);
	storage_close(st);
	free(file);
	free(log);
	free(dir);
}
END_TEST

/* What a later release would leave: the same record with a higher number, and its CRC. */
static void raise_format(const char *env_dir)
{
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;
	uint8_t record[12] = { [4] = 2 };
	uint32_t crc = crc32c(crc32c(0, "format", 6), record + 4, 8);
	for (unsigned i = 0; i < 4; i++)
		record[i] = (uint8_t)(crc >> (8 * i));
	MDB_val key = { 6, (void *)(uintptr_t)"format" }, value = { sizeof record, record };
	ck_assert_int_eq(mdb_env_create(&env), 0);
	ck_assert_int_eq(mdb_env_open(env, env_dir, 0, 0600), 0);
	ck_assert_int_eq(mdb_txn_begin(env, NULL, 0, &txn), 0);
	ck_assert_int_eq(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
	ck_assert_int_eq(mdb_put(txn, dbi, &key, &value, 0), 0);
	ck_assert_int_eq(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
}

START_TEST(open__refuses_the_format_of_a_newer_release)
{
	char *dir = test_dir(__func__);
	struct storage_options opts = options_of(dir);
	struct storage *st = open_ok(dir);
	append(st, 1, 10, 1, 10);
	make_snapshot(st, 5, 1, 1, 10);
	storage_close(st);
	char *snap = snapshot_dir(dir, 5, 1);
	raise_format(snap);
	ck_fails(storage_open(&opts, &st, em), ERR_WRONG_VERSION, "start the newer release");
	char *log = path_under(dir, "log");
	raise_format(log);
	ck_fails(storage_open(&opts, &st, em), ERR_WRONG_VERSION, "format version 2");
	free(log);
	free(snap);
	free(dir);
}
END_TEST

TCase *case_open(void)
{
	TCase *tc = tcase_create("open");
	tcase_add_test(tc, open__makes_a_directory_and_finds_it_again);
	tcase_add_test(tc, open__takes_an_old_directory_as_it_is_when_asked_for_no_ids);
	tcase_add_test(tc, open__without_ids_makes_nothing);
	tcase_add_test(tc, open__refuses_what_belongs_to_others_and_leaves_it_alone);
	tcase_add_test(tc, open__keeps_a_second_process_out);
	tcase_add_test(tc, open__needs_a_directory);
	tcase_add_test(tc, open__ends_an_unfinished_first_start);
	tcase_add_test(tc, open__refuses_the_format_of_a_newer_release);
	return tc;
}
