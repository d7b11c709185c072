/* Space: a full map, a full disk, and how the ballast gets a replica out of it. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

START_TEST(space__is_measured)
{
	char *dir = test_dir(__func__);
	struct storage *st = open_ok(dir);
	struct storage_space before, after;
	ck_ok(storage_space(st, &before, em));
	append(st, 1, 100, 1, 10000);
	ck_ok(storage_space(st, &after, em));
	ck_assert_uint_gt(before.free_bytes, 0);
	ck_assert_uint_eq(before.ballast_bytes, 1 << 20);
	ck_assert_uint_eq(before.map_bytes, STORAGE_MAP_BYTES_DEFAULT);
	ck_assert_uint_ge(after.log_bytes, before.log_bytes + 1000000);
	ck_assert_uint_ge(after.log_file_bytes, after.log_bytes);
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(space__the_ballast_goes_and_comes)
{
	char *dir = test_dir(__func__), *ballast = path_under(dir, "ballast");
	struct storage *st = open_ok(dir);
	struct storage_space space;
	struct stat sb;
	ck_assert_int_eq(stat(ballast, &sb), 0);
	ck_assert_int_eq(sb.st_size, 1 << 20);
	ck_ok(storage_release_ballast(st, em));
	ck_assert_int_ne(access(ballast, F_OK), 0);
	ck_fails(storage_release_ballast(st, em), ERR_NOT_FOUND, "no ballast");
	ck_ok(storage_space(st, &space, em));
	ck_assert_uint_eq(space.ballast_bytes, 0);
	ck_ok(storage_restore_ballast(st, em));
	ck_ok(storage_restore_ballast(st, em));
	ck_ok(storage_space(st, &space, em));
	ck_assert_uint_eq(space.ballast_bytes, 1 << 20);
	storage_close(st);
	/* another size from now on; more than any disk has is made as large as can be, and told */
	struct storage_options opts = options_of(dir);
	opts.ballast_bytes = 2 << 20;
	st = open_with(&opts);
	ck_assert_uint_eq(storage_state(st)->ballast_bytes, 2 << 20);
	storage_close(st);
	opts.ballast_bytes = 1 << 20;
	st = open_with(&opts);
	ck_assert_uint_eq(storage_state(st)->ballast_bytes, 1 << 20);
	storage_close(st);
	opts.no_ballast = true;
	st = open_with(&opts);
	ck_assert_uint_eq(storage_state(st)->ballast_bytes, 0);
	ck_assert(!storage_state(st)->ballast_short);
	ck_assert_int_ne(access(ballast, F_OK), 0);
	storage_close(st);
	free(ballast);
	free(dir);
}
END_TEST

/* Appends, one entry a commit, until it fails as it should; the last index that is there. */
static uint64_t fill(struct storage *st, uint64_t from, size_t len)
{
	for (uint64_t at = from;; at++) {
		struct errmsg em;
		enum err e = try_append(st, at, at, 1, len, &em);
		if (!e)
			continue;
		ck_assert_msg(e == ERR_DISK_FULL, "error %d: %s", (int)e, em.text);
		return at - 1;
	}
}

START_TEST(space__a_full_map_refuses_and_keeps_what_was_there)
{
	char *dir = test_dir(__func__);
	struct storage_options opts = options_of(dir);
	opts.map_bytes = 1 << 20;
	struct storage *st = open_with(&opts);
	uint64_t last = fill(st, 1, 5000);
	ck_assert_uint_gt(last, 20);
	ck_fails(try_append(st, last + 1, last + 1, 1, 5000, em), ERR_DISK_FULL, "raise the limit");
	/* a batch is whole or not there */
	struct storage_hard_state hard = { .term = 9, .voted_for = 1 };
	struct buf payload = payload_of(last, 9, 900000);
	struct storage_entry en = { .index = last, .term = 9, .payload = buf_view(&payload) };
	ck_fails(storage_commit(st,
				&(struct storage_batch){
					.hard = &hard, .truncate_from = last, .entries = &en, .entries_len = 1 },
				em),
		 ERR_DISK_FULL, "");
	buf_free(&payload);
	check_entries(st, 1, last, 1, 5000);
	storage_close(st);
	/* a larger map, and everything goes on */
	opts.map_bytes = 4 << 20;
	st = open_with(&opts);
	check_log(st, 1, last, 1);
	ck_assert_uint_eq(storage_state(st)->hard.term, 0);
	append(st, last + 1, last + 20, 1, 5000);
	storage_close(st);
	/* a smaller one than the log needs is no way to lose it */
	opts.map_bytes = 1 << 20;
	st = open_with(&opts);
	check_log(st, 1, last + 20, 1);
	storage_close(st);
	free(dir);
}
END_TEST

/* The snapshot has its name, the log could not give way: whatever comes next must not be half of it. */
START_TEST(space__an_install_into_a_full_log_is_ended_later)
{
	char *dir = test_dir(__func__);
	struct storage_options opts = options_of(dir);
	opts.map_bytes = 16 << 20; /* the list of its pages takes several pages, which a full map does not have */
	struct storage *st = open_with(&opts);
	uint64_t large = fill(st, 1, 100000);
	uint64_t last = fill(st, large + 1, 3000);
	uint64_t index = last + 10;
	struct storage_snapshot_writer *w = write_chunks(st, index, 2, 3, 10);
	struct storage_snapshot_meta meta = meta_of(index, 2, 3, 10);
	ck_fails(storage_snapshot_install_finish(w, &meta, true, em), ERR_DISK_FULL, "raise the limit");
	ck_fails(storage_snapshot_install_finish(w, &meta, true, em), ERR_DISK_FULL, "raise the limit");
	check_entries(st, 1, large, 1, 100000);
	check_entries(st, large + 1, last, 1, 3000);
	storage_snapshot_abort(w);
	ck_fails(try_append(st, last + 1, last + 1, 1, 1, em), ERR_IO, "failed before");
	storage_close(st);
	opts.map_bytes = 32 << 20;
	st = open_with(&opts);
	check_log(st, index + 1, index, 2);
	check_snapshot(st, index, 2, 3, 10);
	append(st, index + 1, index + 5, 2, 10);
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(space__trimming_makes_room_in_the_map)
{
	char *dir = test_dir(__func__);
	struct storage_options opts = options_of(dir);
	opts.map_bytes = 4 << 20;
	struct storage *st = open_with(&opts);
	uint64_t last = 0;
	for (int round = 0; round < 20; round++) { /* five times the map in all */
		append(st, last + 1, last + 200, 1, 5000);
		last += 200;
		make_snapshot(st, last, 1, 1, 10);
		ck_ok(storage_commit(st, &(struct storage_batch){ .trim_to = last }, em));
	}
	storage_close(st);
	free(dir);
}
END_TEST

static void write_until_full(struct storage_snapshot_writer *w)
{
	struct errmsg em;
	enum err e = ERR_OK;
	for (uint64_t n = 0; !e && n < 100000; n++) {
		struct buf chunk = payload_of(n, 1, 1000);
		e = storage_snapshot_write(w, n, buf_view(&chunk), &em);
		buf_free(&chunk);
	}
	ck_assert_int_eq(e, ERR_DISK_FULL);
}

START_TEST(space__a_snapshot_too_large_for_its_map_can_be_aborted)
{
	char *dir = test_dir(__func__);
	struct storage_options opts = options_of(dir);
	opts.snapshot_map_bytes = 8 << 20;
	struct storage *st = open_with(&opts);
	struct storage_snapshot_writer *w = NULL;
	append(st, 1, 10, 1, 10);
	ck_ok(storage_snapshot_create(st, 10, 1, &w, em));
	write_until_full(w);
	uint64_t next = storage_snapshot_next(w);
	ck_assert_uint_gt(next, 100);
	struct buf chunk = payload_of(next - 1, 1, 1000);
	ck_ok(storage_snapshot_write(w, next - 1, buf_view(&chunk), em));
	buf_free(&chunk);
	storage_snapshot_abort(w);
	ck_assert_uint_eq(count_names(dir, "snap-", NULL), 0);
	append(st, 11, 12, 1, 10);
	storage_close(st);
	free(dir);
}
END_TEST

/* ---- a real full disk: a small tmpfs, where one may be mounted ---- */

static char *small_disk(const char *name, const char *size)
{
	char *dir = test_dir(name), options[32];
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	snprintf(options, sizeof options, "size=%s", size);
	if (mount("tmpfs", dir, "tmpfs", 0, options)) {
		printf("SKIPPED %s: cannot mount a tmpfs: %s\n", name, strerror(errno));
		free(dir);
		return NULL;
	}
	return dir;
}

static void unmount_small_disk(char *dir)
{
	ck_assert_int_eq(umount2(dir, MNT_DETACH), 0);
	free(dir);
}

static void fill_with_file(const char *disk)
{
	char *path = path_under(disk, "filler");
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	char page[4096] = "x";
	while (write(fd, page, sizeof page) > 0)
		;
	close(fd);
	free(path);
}

START_TEST(space__a_full_disk_is_survived)
{
	char *disk = small_disk(__func__, "8m");
	if (!disk)
		return;
	char *dir = path_under(disk, "data"), *filler = path_under(disk, "filler");
	struct storage *st = open_ok(dir);
	struct storage_space space;
	uint64_t last = fill(st, 1, 5000);
	ck_fails(try_append(st, last + 1, last + 1, 1, 5000, em), ERR_DISK_FULL, "free some space");
	check_entries(st, 1, last, 1, 5000);
	fill_with_file(disk);
	/* not even deleting works, until the ballast goes */
	ck_ok(storage_release_ballast(st, em));
	make_snapshot(st, last, 1, 10, 100);
	ck_ok(storage_commit(st, &(struct storage_batch){ .trim_to = last }, em));
	append(st, last + 1, last + 50, 1, 5000);
	ck_fails(storage_restore_ballast(st, em), ERR_DISK_FULL, "free some space");
	ck_ok(storage_space(st, &space, em));
	ck_assert_uint_eq(space.ballast_bytes, 0);
	ck_assert_int_eq(unlink(filler), 0);
	storage_close(st);
	st = open_ok(dir);
	check_log(st, last + 1, last + 50, 1);
	check_entries(st, last + 1, last + 50, 1, 5000);
	storage_close(st);
	free(filler);
	free(dir);
	unmount_small_disk(disk);
}
END_TEST

START_TEST(space__a_replica_starts_on_a_full_disk)
{
	char *disk = small_disk(__func__, "8m");
	if (!disk)
		return;
	char *dir = path_under(disk, "data"), *filler = path_under(disk, "filler");
	struct storage *st = open_ok(dir);
	append(st, 1, 100, 1, 5000);
	storage_close(st);
	fill_with_file(disk);
	st = open_ok(dir); /* the count of starts is written with the ballast's space */
	ck_assert_uint_eq(storage_state(st)->boot, 2);
	ck_assert(storage_state(st)->ballast_short);
	ck_assert_int_eq(unlink(filler), 0);
	ck_ok(storage_restore_ballast(st, em));
	storage_close(st);
	st = open_ok(dir);
	check_entries(st, 1, 100, 1, 5000);
	storage_close(st);
	free(filler);
	free(dir);
	unmount_small_disk(disk);
}
END_TEST

START_TEST(space__the_ballast_never_takes_the_last_space)
{
	char *disk = small_disk(__func__, "8m");
	if (!disk)
		return;
	char *dir = path_under(disk, "data");
	struct storage_options opts = options_of(dir);
	struct storage_space space;
	opts.ballast_bytes = 16 << 20;
	struct storage *st = open_with(&opts);
	const struct storage_state *s = storage_state(st);
	ck_assert(s->ballast_short);
	ck_assert_uint_eq(s->ballast_bytes, 2 << 20);
	ck_fails(storage_restore_ballast(st, em), ERR_DISK_FULL, "make the ballast");
	ck_ok(storage_space(st, &space, em));
	ck_assert_uint_ge(space.free_bytes, space.ballast_bytes);
	storage_close(st);
	free(dir);
	unmount_small_disk(disk);
}
END_TEST

START_TEST(space__a_snapshot_on_a_full_disk_leaves_the_log_alone)
{
	char *disk = small_disk(__func__, "8m");
	if (!disk)
		return;
	char *dir = path_under(disk, "data");
	struct storage *st = open_ok(dir);
	struct storage_snapshot_writer *w = NULL;
	append(st, 1, 10, 1, 100);
	ck_ok(storage_snapshot_create(st, 10, 1, &w, em));
	write_until_full(w);
	storage_snapshot_abort(w);
	append(st, 11, 20, 1, 100);
	storage_close(st);
	free(dir);
	unmount_small_disk(disk);
}
END_TEST

TCase *case_space(void)
{
	TCase *tc = tcase_create("space");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, space__is_measured);
	tcase_add_test(tc, space__the_ballast_goes_and_comes);
	tcase_add_test(tc, space__a_full_map_refuses_and_keeps_what_was_there);
	tcase_add_test(tc, space__an_install_into_a_full_log_is_ended_later);
	tcase_add_test(tc, space__trimming_makes_room_in_the_map);
	tcase_add_test(tc, space__a_snapshot_too_large_for_its_map_can_be_aborted);
	tcase_add_test(tc, space__a_full_disk_is_survived);
	tcase_add_test(tc, space__a_replica_starts_on_a_full_disk);
	tcase_add_test(tc, space__the_ballast_never_takes_the_last_space);
	tcase_add_test(tc, space__a_snapshot_on_a_full_disk_leaves_the_log_alone);
	return tc;
}
