/* Crashes: a process that is killed at any moment leaves exactly what it had acknowledged, or that and the step it was
 * in. Its steps are told through a pipe: what will be true, then that it is. (A kill keeps the page cache: this proves
 * the order of steps, not the flushes.) */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"

#define ROUNDS 60

struct model {
	uint64_t last, last_term;
	uint64_t hard_term, voted_for;
	uint64_t snap_index, snap_term, snap_chunks;
};

struct note {
	bool done; /* false: about to try */
	struct model m;
};

static void tell(int fd, bool done, const struct model *m)
{
	struct note n = { .done = done, .m = *m };
	if (write(fd, &n, sizeof n) != sizeof n)
		_exit(3);
}

static void step_append(struct storage *st, struct model *m, struct rng *rng, int fd)
{
	uint64_t from = m->last + 1;
	uint64_t n = rng_between(rng, 1, 20);
	m->last += n;
	m->last_term = m->hard_term;
	tell(fd, false, m);
	append(st, from, m->last, m->last_term, 300);
}

/* Another leader's term: what is above the snapshot may go. */
static void step_new_term(struct storage *st, struct model *m, struct rng *rng, int fd)
{
	uint64_t from = rng_between(rng, m->snap_index + 1, m->last + 1);
	m->hard_term++;
	m->voted_for = rng_below(rng, 5);
	m->last = from;
	m->last_term = m->hard_term;
	tell(fd, false, m);
	struct storage_hard_state hard = { .term = m->hard_term, .voted_for = m->voted_for };
	struct buf payload = payload_of(from, m->hard_term, 300);
	struct storage_entry en = { from, m->hard_term, (uint8_t)from, buf_view(&payload) };
	struct storage_batch batch = { .hard = &hard, .truncate_from = from, .entries = &en, .entries_len = 1 };
	ck_ok(storage_commit(st, &batch, em));
	buf_free(&payload);
}

static void step_snapshot(struct storage *st, struct model *m, struct rng *rng, int fd)
{
	bool install = rng_chance(rng, 300000);
	if (!install && m->last == m->snap_index)
		return;
	/* our own at the end of the log, whose term we know; a received one beyond it */
	m->snap_index = install ? m->last + rng_between(rng, 1, 10) : m->last;
	m->snap_term = install ? m->hard_term : m->last_term;
	m->snap_chunks = rng_below(rng, 50);
	if (install) {
		m->last = m->snap_index;
		m->last_term = m->snap_term;
	}
	tell(fd, false, m);
	if (install)
		install_snapshot(st, m->snap_index, m->snap_term, m->snap_chunks, 500, rng_chance(rng, 500000));
	else
		make_snapshot(st, m->snap_index, m->snap_term, m->snap_chunks, 500);
}

static void step_trim(struct storage *st, struct model *m, int fd)
{
	tell(fd, false, m);
	ck_ok(storage_commit(st, &(struct storage_batch){ .trim_to = m->snap_index }, em));
}

_Noreturn static void victim(const char *dir, uint64_t seed, struct model m, int fd)
{
	struct rng rng;
	struct storage *st = open_ok(dir);
	rng_init(&rng, seed);
	tell(fd, true, &m);
	for (;;) {
		uint64_t what = rng_below(&rng, 100);
		if (what < 60)
			step_append(st, &m, &rng, fd);
		else if (what < 75)
			step_new_term(st, &m, &rng, fd);
		else if (what < 90)
			step_snapshot(st, &m, &rng, fd);
		else
			step_trim(st, &m, fd);
		tell(fd, true, &m);
	}
}

static bool is_there(const struct storage *st, const struct model *m)
{
	const struct storage_state *s = storage_state(st);
	return s->last_index == m->last && s->last_term == m->last_term && s->hard.term == m->hard_term &&
	       s->hard.voted_for == m->voted_for && s->snapshot.index == m->snap_index &&
	       s->snapshot.term == m->snap_term && s->snapshot.chunks == m->snap_chunks;
}

/* The last thing that was acknowledged, and the last that was tried, among the next `limit` notes. */
static void listen_to(int fd, uint64_t limit, struct model *acked, struct model *tried)
{
	struct note n;
	while (limit-- && read(fd, &n, sizeof n) == sizeof n) {
		*tried = n.m;
		if (n.done)
			*acked = n.m;
	}
}

static void check_whole_log(struct storage *st)
{
	const struct storage_state *s = storage_state(st);
	for (uint64_t at = s->first_index; at <= s->last_index; at++) {
		struct storage_read_result r;
		ck_ok(storage_read(st, at, at, 0, &r, em));
		struct buf want = payload_of(at, r.entries[0].term, 300);
		ck_assert(slice_eq(r.entries[0].payload, buf_view(&want)));
		buf_free(&want);
		storage_read_result_free(&r);
	}
}

START_TEST(crash__keeps_what_was_acknowledged)
{
	char *dir = test_dir(__func__);
	struct model acked = { .hard_term = 0 };
	unsigned with_step = 0, steps = 0;
	struct rng rng;
	rng_init(&rng, 42);
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		int fds[2];
		ck_assert_int_eq(pipe(fds), 0);
		pid_t child = fork();
		if (child == 0)
			victim(dir, round, acked, fds[1]);
		close(fds[1]);
		struct model before = acked, tried = acked;
		if (round % 6) /* otherwise it may hit the opening too */
			listen_to(fds[0], rng_below(&rng, 24), &acked, &tried);
		usleep((useconds_t)rng_below(&rng, 5000));
		ck_assert_int_eq(kill(child, SIGKILL), 0);
		int status;
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "round %d: the victim failed first",
			      (int)round);
		listen_to(fds[0], UINT64_MAX, &acked, &tried);
		close(fds[0]);
		struct storage *st = open_ok(dir);
		bool as_tried = is_there(st, &tried);
		ck_assert_msg(as_tried || is_there(st, &acked), "round %d: neither acknowledged nor tried", (int)round);
		with_step += as_tried && !is_there(st, &acked);
		steps += memcmp(&before, &acked, sizeof acked) != 0;
		if (as_tried)
			acked = tried;
		ck_assert_uint_eq(count_names(dir, "snap-", NULL), acked.snap_index ? 1 : 0);
		if (acked.snap_index)
			check_snapshot(st, acked.snap_index, acked.snap_term, acked.snap_chunks, 500);
		check_whole_log(st);
		storage_close(st);
	}
	printf("%d kills: %u after some progress, %u with the unacknowledged step done\n", ROUNDS, steps, with_step);
	ck_assert_uint_gt(steps, ROUNDS / 2);
	free(dir);
}
END_TEST

TCase *case_crash(void)
{
	TCase *tc = tcase_create("crash");
	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, crash__keeps_what_was_acknowledged);
	return tc;
}
