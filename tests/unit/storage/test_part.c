/* A snapshot that is received: what is there of it after any end of the process, that it is known again, and that no other is left behind. */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"

#define INDEX 200
#define TERM 3
#define CHUNKS 24
#define CHUNK ((size_t)300000) /* so that seven are one commit */

static struct storage_snapshot_part part_of(uint64_t index, uint64_t term)
{
	return (struct storage_snapshot_part){ .index = index, .term = term, .chunks = CHUNKS, .state_hash = index ^ 0xabcdef };
}

static struct storage_snapshot_writer *receive(struct storage *st, uint64_t index, uint64_t term)
{
	struct storage_snapshot_part part = part_of(index, term);
	struct storage_snapshot_writer *w = NULL;
	ck_ok(storage_snapshot_receive(st, &part, &w, em));
	ck_assert_uint_eq(storage_snapshot_next(w), 0);
	return w;
}

static struct storage_snapshot_writer *resume(struct storage *st, uint64_t index, uint64_t term)
{
	struct storage_snapshot_part part = part_of(index, term);
	struct storage_snapshot_writer *w = NULL;
	ck_ok(storage_snapshot_resume(st, &part, &w, em));
	return w;
}

static void write_some(struct storage_snapshot_writer *w, uint64_t index, uint64_t term, uint64_t to)
{
	for (uint64_t n = storage_snapshot_next(w); n < to; n++) {
		struct buf chunk = payload_of(index + n, term, CHUNK);
		ck_ok(storage_snapshot_write(w, n, buf_view(&chunk), em));
		buf_free(&chunk);
	}
}

static void finish(struct storage *st, struct storage_snapshot_writer *w, uint64_t index, uint64_t term)
{
	struct storage_snapshot_meta meta = meta_of(index, term, CHUNKS, CHUNK);
	write_some(w, index, term, CHUNKS);
	ck_assert_uint_eq(storage_snapshot_bytes(w), meta.bytes);
	ck_ok(storage_snapshot_install_finish(w, &meta, true, em));
	check_snapshot(st, index, term, CHUNKS, CHUNK);
}

static void expect_part(const struct storage *st, uint64_t index, uint64_t term, uint64_t have)
{
	const struct storage_snapshot_part *p = &storage_state(st)->part;
	ck_assert_uint_eq(p->index, index);
	ck_assert_uint_eq(p->term, term);
	ck_assert_uint_eq(p->have, have);
	if (index) {
		ck_assert_uint_eq(p->chunks, CHUNKS);
		ck_assert_uint_eq(p->state_hash, part_of(index, term).state_hash);
	}
}

static size_t parts_in(const char *dir)
{
	return count_names(dir, "snap-", ".part");
}

static char *part_dir(const char *dir, uint64_t index, uint64_t term)
{
	char name[80];
	snprintf(name, sizeof name, "snap-%020llu-%020llu.part", (unsigned long long)index, (unsigned long long)term);
	return path_under(dir, name);
}

/* A log, an own snapshot, and `have` chunks of one that was being received. */
static char *dir_with_part(const char *name, uint64_t have)
{
	char *dir = test_dir(name);
	struct storage *st = open_ok(dir);
	append(st, 1, 50, 2, 10);
	make_snapshot(st, 10, 2, 4, 10);
	struct storage_snapshot_writer *w = receive(st, INDEX, TERM);
	write_some(w, INDEX, TERM, have);
	storage_snapshot_suspend(w);
	storage_close(st);
	return dir;
}

START_TEST(part__goes_on_after_a_restart)
{
	char *dir = dir_with_part(__func__, 10);
	struct storage *st = open_ok(dir);
	expect_part(st, INDEX, TERM, 10);
	check_log(st, 1, 50, 2);
	check_snapshot(st, 10, 2, 4, 10);
	struct storage_snapshot_writer *w = resume(st, INDEX, TERM);
	ck_assert_uint_eq(storage_snapshot_next(w), 10);
	ck_assert_uint_eq(storage_snapshot_bytes(w), 10 * CHUNK);
	struct buf want = payload_of(INDEX + 9, TERM, CHUNK), back = { 0 };
	ck_ok(storage_snapshot_read_back(w, 9, &back, em));
	ck_assert(slice_eq(buf_view(&back), buf_view(&want)));
	finish(st, w, INDEX, TERM);
	ck_assert_uint_eq(parts_in(dir), 0);
	storage_close(st);
	st = open_ok(dir);
	expect_part(st, 0, 0, 0);
	check_log(st, INDEX + 1, INDEX, TERM);
	check_snapshot(st, INDEX, TERM, CHUNKS, CHUNK);
	storage_close(st);
	buf_free(&want);
	buf_free(&back);
	free(dir);
}
END_TEST

/* Between any two steps of a receiver that makes no noise: the restart goes on with what was synced, and the end is the same. */
START_TEST(part__may_be_left_after_each_chunk)
{
	char name[64];
	snprintf(name, sizeof name, "%s-%d", __func__, _i);
	char *dir = dir_with_part(name, (uint64_t)_i);
	for (uint64_t have = (uint64_t)_i;; have++) {
		struct storage *st = open_ok(dir);
		expect_part(st, have ? INDEX : 0, have ? TERM : 0, have);
		struct storage_snapshot_writer *w = have ? resume(st, INDEX, TERM) : receive(st, INDEX, TERM);
		if (have == CHUNKS) {
			finish(st, w, INDEX, TERM);
			storage_close(st);
			break;
		}
		write_some(w, INDEX, TERM, have + 1);
		storage_snapshot_suspend(w);
		storage_close(st);
	}
	free(dir);
}
END_TEST

/* All is written and described, and the name is still the old one. */
START_TEST(part__may_be_left_before_its_rename)
{
	char *dir = dir_with_part(__func__, 5), *other = dir_with_part("part__of_elsewhere", 5);
	struct storage *st = open_ok(other);
	finish(st, resume(st, INDEX, TERM), INDEX, TERM);
	storage_close(st);
	char *whole = snapshot_dir(other, INDEX, TERM), *part = part_dir(dir, INDEX, TERM);
	remove_tree(part);
	ck_assert_int_eq(rename(whole, part), 0);
	st = open_ok(dir);
	expect_part(st, INDEX, TERM, CHUNKS);
	ck_assert_uint_eq(storage_state(st)->snapshot.index, 10);
	check_log(st, 1, 50, 2);
	finish(st, resume(st, INDEX, TERM), INDEX, TERM);
	storage_close(st);
	free(whole);
	free(part);
	free(other);
	free(dir);
}
END_TEST

_Noreturn static void victim(const char *dir, int fd)
{
	struct storage *st = open_ok(dir);
	const struct storage_snapshot_part *p = &storage_state(st)->part;
	struct storage_snapshot_writer *w = p->index ? resume(st, INDEX, TERM) : receive(st, INDEX, TERM);
	for (uint64_t n = storage_snapshot_next(w); n < CHUNKS; n++) {
		write_some(w, INDEX, TERM, n + 1);
		if (n % 3 == 2)
			ck_ok(storage_snapshot_sync(w, em));
		uint64_t note[2] = { n + 1, n % 3 == 2 };
		if (write(fd, note, sizeof note) != sizeof note)
			_exit(3);
	}
	for (;;)
		pause();
}

/* (A kill keeps the page cache: this proves the order of steps, not the flushes.) */
START_TEST(part__keeps_what_was_durable_when_killed)
{
	char *dir = test_dir(__func__);
	struct rng rng;
	uint64_t have = 0;
	storage_close(open_ok(dir));
	rng_init(&rng, 7);
	for (int round = 0; round < 8 && have < CHUNKS; round++) {
		int fds[2];
		ck_assert_int_eq(pipe(fds), 0);
		pid_t child = fork();
		if (child == 0)
			victim(dir, fds[1]);
		close(fds[1]);
		uint64_t note[2], durable = have, written = have, listen = rng_below(&rng, 6);
		while (listen-- && written < CHUNKS && read(fds[0], note, sizeof note) == sizeof note) {
			written = note[0];
			durable = note[1] ? note[0] : durable;
		}
		ck_assert_int_eq(kill(child, SIGKILL), 0);
		int status;
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		while (read(fds[0], note, sizeof note) == sizeof note) {
			written = note[0];
			durable = note[1] ? note[0] : durable;
		}
		close(fds[0]);
		struct storage *st = open_ok(dir);
		ck_assert_uint_ge(storage_state(st)->part.have, durable);
		ck_assert_uint_le(storage_state(st)->part.have, written + 1);
		have = storage_state(st)->part.have;
		storage_close(st);
		ck_assert_uint_le(parts_in(dir), 1);
	}
	ck_assert_uint_ge(have, 3); /* some lived to see a sync */
	struct storage *st = open_ok(dir);
	finish(st, resume(st, INDEX, TERM), INDEX, TERM);
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(part__of_another_snapshot_is_not_taken_for_it)
{
	char *dir = dir_with_part(__func__, 4);
	struct storage *st = open_ok(dir);
	struct storage_snapshot_part other[] = { part_of(INDEX, TERM), part_of(INDEX, TERM), part_of(INDEX, TERM + 1), part_of(INDEX + 1, TERM) };
	struct storage_snapshot_writer *w = NULL;
	other[0].chunks++;
	other[1].state_hash++;
	for (size_t i = 0; i < sizeof other / sizeof *other; i++)
		ck_fails(storage_snapshot_resume(st, &other[i], &w, em), ERR_NOT_FOUND, "snapshot of index");
	ck_assert_ptr_null(w);
	storage_snapshot_suspend(resume(st, INDEX, TERM)); /* it was not harmed */
	w = receive(st, INDEX + 50, TERM); /* a newer one throws it away */
	ck_assert_uint_eq(parts_in(dir), 1);
	write_some(w, INDEX + 50, TERM, 1);
	storage_snapshot_suspend(w);
	w = receive(st, INDEX - 50, TERM + 1); /* so does an older one of another leader */
	ck_assert_uint_eq(parts_in(dir), 1);
	storage_snapshot_abort(w);
	ck_assert_uint_eq(parts_in(dir), 0);
	storage_close(st);
	free(dir);
}
END_TEST

START_TEST(part__that_is_damaged_is_removed)
{
	char *dir = dir_with_part(__func__, 8);
	char *part = part_dir(dir, INDEX, TERM), *file = path_under(part, "data.mdb");
	struct buf chunk = payload_of(INDEX + 5, TERM, CHUNK);
	ck_assert_uint_ge(flip_in_file(file, slice_of(chunk.ptr + 1000, 64)), 1);
	struct storage *st = open_ok(dir);
	expect_part(st, 0, 0, 0);
	ck_assert_uint_eq(parts_in(dir), 0);
	check_log(st, 1, 50, 2);
	check_snapshot(st, 10, 2, 4, 10);
	finish(st, receive(st, INDEX, TERM), INDEX, TERM);
	storage_close(st);
	buf_free(&chunk);
	free(file);
	free(part);
	free(dir);
}
END_TEST

START_TEST(part__of_no_use_is_removed)
{
	char *dir = dir_with_part(__func__, 3);
	char *empty = part_dir(dir, INDEX + 7, TERM), *older = part_dir(dir, INDEX - 7, TERM), *part = part_dir(dir, INDEX, TERM);
	/* A directory was made, and nothing in it; and what a removal has left. */
	ck_assert_int_eq(mkdir(older, 0700), 0);
	struct storage *st = open_ok(dir);
	expect_part(st, INDEX, TERM, 3);
	ck_assert_uint_eq(parts_in(dir), 1);
	storage_close(st);
	ck_assert_int_eq(mkdir(empty, 0700), 0);
	st = open_ok(dir);
	ck_assert_uint_eq(parts_in(dir), 0);
	storage_snapshot_suspend(receive(st, INDEX, TERM)); /* nothing of it yet */
	storage_close(st);
	st = open_ok(dir);
	ck_assert_uint_eq(parts_in(dir), 0);
	expect_part(st, 0, 0, 0);
	/* The log goes on, and our own snapshot stands for more. */
	struct storage_snapshot_writer *w = receive(st, INDEX, TERM);
	write_some(w, INDEX, TERM, 3);
	storage_snapshot_suspend(w);
	append(st, 51, INDEX, 2, 10);
	make_snapshot(st, INDEX, 2, 1, 10);
	ck_assert_uint_eq(parts_in(dir), 1);
	storage_close(st);
	st = open_ok(dir);
	ck_assert_uint_eq(parts_in(dir), 0);
	expect_part(st, 0, 0, 0);
	struct storage_snapshot_part same = part_of(INDEX, TERM);
	w = NULL;
	ck_fails(storage_snapshot_receive(st, &same, &w, em), ERR_EXISTS, "newer");
	ck_assert_ptr_null(w);
	ck_ok(storage_snapshot_drop_part(st, em));
	storage_close(st);
	free(empty);
	free(older);
	free(part);
	free(dir);
}
END_TEST

TCase *case_part(void)
{
	TCase *tc = tcase_create("part");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, part__goes_on_after_a_restart);
	tcase_add_loop_test(tc, part__may_be_left_after_each_chunk, 0, 2);
	tcase_add_test(tc, part__may_be_left_before_its_rename);
	tcase_add_test(tc, part__keeps_what_was_durable_when_killed);
	tcase_add_test(tc, part__of_another_snapshot_is_not_taken_for_it);
	tcase_add_test(tc, part__that_is_damaged_is_removed);
	tcase_add_test(tc, part__of_no_use_is_removed);
	return tc;
}
