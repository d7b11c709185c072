/* install_test.c: a replica that is too far behind gets the state as a snapshot of several chunks; and all that may come between.
 *
 * Each story: a follower is cut off, more is written than the log keeps, and it comes back. What is counted are the chunks that it has written and those that
 * were read for it: what it has is not sent again. mini_cell asserts that chunks come in order and of one snapshot, and that all states are equal (P10). */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "core/snapshot/snapshot.h"
#include "core/wire.h"
#include "holdfast/internal.pb-c.h"
#include "support/mini_cell.h"

enum { COUNT = 50, KEEP = 5, KEYS = 160, NEVER = 1 << 20 };

struct story {
	struct mini_cell *m;
	size_t leader, behind;
	uint64_t steps, die_at;          /* of the installations at `behind`: before and after each job of it */
	uint64_t written, loaded, installed, begun, read; /* jobs that were done; begun: chunk 0; read: by anybody for anybody */
	raft_index last;                 /* the snapshot of the last one of them */
	const struct core_event *instead; /* of what `behind` reads back, the first time; NULL: that */
	bool stop;                       /* at the next chunk that was written `behind` is cut off */
	struct buf first;                /* the first message that brought a chunk 0 */
	struct buf asks;                 /* the last message that asked for a chunk */
	bool refuse;                     /* the transfer, while its third chunk is being read */
};

static void refuse(struct story *s)
{
	Holdfast__Internal__PeerMessage *pm = holdfast__internal__peer_message__unpack(NULL, s->asks.len, s->asks.ptr);
	struct core_event e = { .kind = EVENT_MESSAGE, .now = mini_now(s->m) };
	struct buf bytes = { 0 };

	pm->raft->reject = true;
	pm->raft->chunk = 0;
	buf_reserve(&bytes, holdfast__internal__peer_message__get_packed_size(pm));
	bytes.len = holdfast__internal__peer_message__pack(pm, bytes.ptr);
	holdfast__internal__peer_message__free_unpacked(pm, NULL);
	e.message = buf_view(&bytes);
	core_step(mini_core(s->m, s->leader), &e);
	buf_free(&bytes);
}

static bool on_job(void *ctx, size_t i, const struct snapshot_job *job, bool done)
{
	struct story *s = ctx;

	s->read += done && job->kind == SNAPSHOT_READ;
	if (!done && job->kind == SNAPSHOT_READ && job->chunk == 2 && s->refuse) {
		s->refuse = false;
		refuse(s);
	}
	if (i != s->behind || job->kind == SNAPSHOT_SAVE || job->kind == SNAPSHOT_READ || job->kind == SNAPSHOT_ABORT)
		return false;
	if (!done && job->kind == SNAPSHOT_LOAD && s->instead) {
		struct core_event e = *s->instead;

		s->instead = NULL;
		e.now = mini_now(s->m);
		e.loaded.job = job->job;
		core_step(mini_core(s->m, i), &e);
	}
	if (done) {
		s->written += job->kind == SNAPSHOT_WRITE;
		s->begun += job->kind == SNAPSHOT_WRITE && job->chunk == 0;
		s->loaded += job->kind == SNAPSHOT_LOAD;
		s->installed += job->kind == SNAPSHOT_INSTALL;
		s->last = job->id.index;
		if (s->stop)
			mini_isolate(s->m, i, true);
	}
	return s->steps++ == s->die_at;
}

/* Whoever sends it, and when: the chunk 0 of one snapshot is always the same. */
static void note_first(struct story *s, struct slice message, const Holdfast__Internal__RaftMessage *chunk)
{
	Holdfast__Internal__PeerMessage *pm;

	if (!s->first.len) {
		s->first = buf_copy_of(message);
		return;
	}
	pm = holdfast__internal__peer_message__unpack(NULL, s->first.len, s->first.ptr);
	if (pm->raft->log_index == chunk->log_index)
		ck_assert(pm->raft->data.len == chunk->data.len && memcmp(pm->raft->data.data, chunk->data.data, chunk->data.len) == 0);
	holdfast__internal__peer_message__free_unpacked(pm, NULL);
}

static void on_event(void *ctx, size_t i, const struct core_event *e)
{
	struct story *s = ctx;
	Holdfast__Internal__PeerMessage *pm;

	if (e->kind != EVENT_MESSAGE || (i != s->behind && i != s->leader))
		return;
	pm = holdfast__internal__peer_message__unpack(NULL, e->message.len, e->message.ptr);
	if (pm && pm->body_case == HOLDFAST__INTERNAL__PEER_MESSAGE__BODY_RAFT) {
		if (i == s->behind && pm->raft->kind == HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__RAFT_SNAPSHOT && pm->raft->chunk == 0)
			note_first(s, e->message, pm->raft);
		if (i == s->leader && pm->raft->kind == HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__RAFT_SNAPSHOT_REPLY) {
			buf_clear(&s->asks);
			buf_append_slice(&s->asks, e->message);
		}
	}
	if (pm)
		holdfast__internal__peer_message__free_unpacked(pm, NULL);
}

static void put(struct story *s, size_t at, const char *prefix, int n)
{
	for (int i = 0; i < n; i++) {
		char key[32];
		const struct mini_answer *a;

		snprintf(key, sizeof key, "%s%d", prefix, i);
		a = mini_wait(s->m, mini_put(s->m, at, key, "a value of some length, so that there are chunks", 0), 10000);
		ck_assert(a && a->err == ERR_OK);
	}
}

/* Up to where `behind` is told that it needs a snapshot. */
static struct story begin(size_t replicas, size_t sync_chunks)
{
	struct story s = { .die_at = NEVER };

	s.m = mini_new(&(struct mini_options){ .replicas = replicas, .seed = 11, .disk_ms = 1, .net_ms = 1, .snapshot_count = COUNT, .snapshot_keep = KEEP, .log_memory = 1000,
					       .chunk_bytes = 1200, .sync_chunks = sync_chunks });
	s.leader = mini_elect(s.m, 10000);
	s.behind = s.leader == 0 ? 1 : 0;
	mini_run(s.m, 500);
	mini_isolate(s.m, s.behind, true);
	put(&s, s.leader, "k", KEYS);
	return s;
}

/* Not before the story is where it stays. */
static void watch(struct story *s)
{
	mini_on_job(s->m, on_job, s);
	mini_on_event(s->m, on_event, s);
	mini_isolate(s->m, s->behind, false);
}

static void run_until(struct story *s, const uint64_t *counter, uint64_t reached, time_ms max_ms)
{
	for (time_ms i = 0; i < max_ms && *counter < reached; i++)
		mini_run(s->m, 1);
	ck_assert_uint_ge(*counter, reached);
}

static void end(struct story *s, const char *key)
{
	for (int i = 0; i < 20000 && !(mini_core(s->m, s->behind) && mini_value(s->m, s->behind, key)); i++)
		mini_run(s->m, 1);
	ck_assert_ptr_nonnull(mini_core(s->m, s->behind));
	ck_assert_ptr_nonnull(mini_value(s->m, s->behind, key));
	mini_run(s->m, 1000);
	ck_assert_uint_eq(mini_chunks_kept(s->m, s->behind), 0); /* nothing is left over */
	put(s, mini_elect(s->m, 10000), "after", 1);
	mini_free(s->m);
	buf_free(&s->first);
	buf_free(&s->asks);
}

/* It was begun so many times, and put in force once. */
static void end_installed(struct story *s, const char *key, uint64_t begun)
{
	end(s, key);
	ck_assert_uint_eq(s->begun, begun);
	ck_assert_uint_eq(s->installed, 1);
}

#define LAST_KEY "k159"

/* How many chunks it takes, and how many steps. */
static void measure(uint64_t *ret_chunks, uint64_t *ret_steps)
{
	struct story s = begin(3, 0);

	watch(&s);
	end(&s, LAST_KEY);
	ck_assert_uint_eq(s.installed, 1);
	ck_assert_uint_eq(s.loaded, 1);
	ck_assert_uint_ge(s.written, 5);
	ck_assert_uint_eq(s.steps, 2 * (s.written + 2));
	ck_assert_uint_eq(s.read, s.written);
	*ret_chunks = s.written;
	*ret_steps = s.steps;
}

/* X1: every chunk is written once, and but for the one that was under way each was sent once. */
START_TEST(install__goes_on_after_a_crash_at_any_step)
{
	uint64_t chunks, steps;

	measure(&chunks, &steps);
	for (uint64_t at = 0; at < steps; at++) {
		struct story s = begin(3, 0);

		s.die_at = at;
		watch(&s);
		for (int i = 0; i < 5000 && mini_core(s.m, s.behind); i++)
			mini_run(s.m, 1);
		ck_assert_ptr_null(mini_core(s.m, s.behind));
		mini_run(s.m, at % 3 * 400);
		mini_restart(s.m, s.behind);
		end(&s, LAST_KEY);
		ck_assert_uint_eq(s.written, chunks);
		ck_assert_uint_le(s.begun, 1);
		ck_assert_uint_eq(s.installed, 1);
		ck_assert_uint_le(s.read, chunks + 4);
	}
}
END_TEST

/* What was not durable comes again, and nothing else. */
START_TEST(install__goes_back_to_what_is_durable)
{
	uint64_t chunks, steps;

	measure(&chunks, &steps);
	for (uint64_t at = 0; at < steps; at += 3) {
		struct story s = begin(3, 4);
		uint64_t done, again;

		s.die_at = at;
		watch(&s);
		for (int i = 0; i < 5000 && mini_core(s.m, s.behind); i++)
			mini_run(s.m, 1);
		done = s.written;
		again = done < chunks ? done % 4 : 0;
		ck_assert_uint_eq(mini_chunks_kept(s.m, s.behind), s.installed ? 0 : done - again);
		mini_restart(s.m, s.behind);
		end(&s, LAST_KEY);
		ck_assert_uint_eq(s.written, chunks + again);
		ck_assert_uint_eq(s.installed, 1);
	}
}
END_TEST

/* The one who sends dies, and another one leads: equal states have equal chunks, so it goes on where the other has stopped. */
START_TEST(install__goes_on_under_another_leader)
{
	uint64_t chunks, steps;

	measure(&chunks, &steps);
	for (uint64_t at = 1; at < chunks; at += 2) {
		struct story s = begin(3, 0);
		size_t third = 3 - s.leader - s.behind;

		watch(&s);
		run_until(&s, &s.written, at, 5000);
		mini_isolate(s.m, s.behind, true);
		mini_crash(s.m, s.leader);
		mini_isolate(s.m, s.behind, false);
		ck_assert_uint_eq(mini_elect(s.m, 20000), third); /* the other one lacks entries */
		end(&s, LAST_KEY);
		ck_assert_uint_eq(s.written, chunks);
		ck_assert_uint_eq(s.begun, 1);
	}
}
END_TEST

/* The old leader comes back in the middle of what the new one sends, and does not know yet. */
START_TEST(install__is_offered_by_two_leaders)
{
	struct story s = begin(3, 0);
	size_t old = s.leader, third = 3 - s.leader - s.behind;
	uint64_t chunks;

	watch(&s);
	run_until(&s, &s.written, 3, 5000);
	mini_isolate(s.m, s.behind, true);
	mini_pause(s.m, old, true);
	mini_isolate(s.m, s.behind, false);
	for (int i = 0; i < 20000 && !(mini_core(s.m, third) && raft_role(core_raft(mini_core(s.m, third))) == RAFT_LEADER); i++)
		mini_run(s.m, 1);
	ck_assert_int_eq(raft_role(core_raft(mini_core(s.m, third))), RAFT_LEADER);
	chunks = s.written;
	run_until(&s, &s.written, chunks + 2, 20000);
	mini_pause(s.m, old, false);
	end_installed(&s, LAST_KEY, /*begun=*/1);
}
END_TEST

/* One more entry comes from the leader. Whether `behind` takes it. */
static bool takes_entry(struct story *s)
{
	struct core *c = mini_core(s->m, s->behind);
	raft_index last = raft_last_index(core_raft(c));
	Holdfast__Internal__PeerMessage *pm = holdfast__internal__peer_message__unpack(NULL, s->first.len, s->first.ptr);
	Holdfast__Internal__RaftEntry entry = HOLDFAST__INTERNAL__RAFT_ENTRY__INIT, *entries = &entry;
	Holdfast__Internal__RaftMessage append = HOLDFAST__INTERNAL__RAFT_MESSAGE__INIT, *chunk = pm->raft;
	struct core_event e = { .kind = EVENT_MESSAGE, .now = mini_now(s->m) };
	struct buf bytes = { .len = 0 };

	append.kind = HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__RAFT_APPEND;
	append.term = chunk->term;
	append.log_index = last;
	append.log_term = raft_term_at(core_raft(c), last);
	append.entries = &entries;
	append.n_entries = 1;
	entry.index = last + 1;
	entry.term = append.log_term;
	entry.kind = RAFT_ENTRY_NOOP;
	pm->raft = &append;
	buf_reserve(&bytes, holdfast__internal__peer_message__get_packed_size(pm));
	bytes.len = holdfast__internal__peer_message__pack(pm, bytes.ptr);
	pm->raft = chunk;
	holdfast__internal__peer_message__free_unpacked(pm, NULL);
	e.message = buf_view(&bytes);
	core_step(c, &e);
	buf_free(&bytes);
	return raft_last_index(core_raft(c)) > last;
}

/* X3: entries are taken until it is whole. It is put in force once they are durable, and none come between. */
START_TEST(install__keeps_entries_away_while_it_is_put_in_force)
{
	struct story s = begin(3, 0);
	uint64_t chunks, steps;

	measure(&chunks, &steps);
	watch(&s);
	run_until(&s, &s.written, chunks, 5000);
	mini_cut(s.m, s.behind, s.leader, true); /* who does not hear of entries that he has not sent */
	mini_stall(s.m, s.behind, true);
	ck_assert(takes_entry(&s));
	run_until(&s, &s.loaded, 1, 10);
	ck_assert(!takes_entry(&s));
	mini_run(s.m, 100);
	ck_assert(!takes_entry(&s));
	ck_assert_uint_eq(s.installed, 0); /* nor begun: mini_cell would see the write */
	mini_stall(s.m, s.behind, false);
	mini_run(s.m, 1);
	ck_assert_uint_eq(s.installed, 0);
	ck_assert(!takes_entry(&s));
	mini_run(s.m, 1);
	ck_assert_uint_eq(s.installed, 1);
	mini_cut(s.m, s.behind, s.leader, false);
	end_installed(&s, LAST_KEY, /*begun=*/1);
}
END_TEST

/* X2: it cannot be read back, or something else is. It comes again, all of it. */
START_TEST(install__that_is_not_what_was_announced_is_refused)
{
	for (int k = 0; k < 2; k++) {
		struct story s = begin(3, 0);
		struct state st;
		struct core_event e = { .kind = EVENT_SNAPSHOT_LOADED, .loaded = { .err = k == 0 ? ERR_CORRUPT : ERR_OK, .state = &st } };
		uint64_t chunks, steps;

		measure(&chunks, &steps);
		state_init(&st);
		watch(&s);
		run_until(&s, &s.written, chunks, 5000);
		st.applied = (struct entry_id){ s.last, raft_term_at(core_raft(mini_core(s.m, s.leader)), s.last) };
		s.instead = &e;
		end_installed(&s, LAST_KEY, /*begun=*/2);
		state_deinit(&st);
	}
}
END_TEST

/* T2: what is read for a transfer that starts over is no part of it. (The one that sent the refusal had the first chunks all the same.) */
START_TEST(install__that_is_refused_while_a_chunk_is_read_starts_over)
{
	struct story s = begin(3, 0);
	uint64_t chunks, steps;

	measure(&chunks, &steps);
	s.refuse = true;
	watch(&s);
	end_installed(&s, LAST_KEY, /*begun=*/1);
	ck_assert(!s.refuse);
	ck_assert_uint_eq(s.written, chunks);
}
END_TEST

/* X6: the newer one throws away what there is of the older one, whose last messages do not bring it back. */
START_TEST(install__gives_way_to_a_newer_one)
{
	struct story s = begin(3, 0);
	raft_index older;
	struct core_event late = { .kind = EVENT_MESSAGE };

	watch(&s);
	run_until(&s, &s.written, 3, 5000);
	older = s.last;
	mini_cut(s.m, s.behind, s.leader, true);
	put(&s, s.leader, "m", 2 * COUNT);
	ck_assert_uint_gt(mini_snapshot(s.m, s.leader), older);
	mini_cut(s.m, s.behind, s.leader, false);
	run_until(&s, &s.begun, 2, 5000);
	run_until(&s, &s.written, s.written + 2, 5000);
	ck_assert_uint_gt(s.last, older);
	ck_assert_uint_gt(s.first.len, 0);
	late.message = buf_view(&s.first);
	late.now = mini_now(s.m);
	core_step(mini_core(s.m, s.behind), &late);
	end_installed(&s, "m99", /*begun=*/2);
}
END_TEST

/* After a restart, too: the part that is found is of a snapshot that nobody sends any more. */
START_TEST(install__that_was_interrupted_gives_way_to_a_newer_one)
{
	struct story s = begin(3, 0);
	raft_index older;

	watch(&s);
	run_until(&s, &s.written, 3, 5000);
	older = s.last;
	mini_crash(s.m, s.behind);
	ck_assert_uint_ge(mini_chunks_kept(s.m, s.behind), 3);
	put(&s, s.leader, "m", 2 * COUNT);
	mini_restart(s.m, s.behind);
	end(&s, "m99");
	ck_assert_uint_gt(s.last, older);
	ck_assert_uint_eq(s.begun, 2);
	ck_assert_uint_eq(s.installed, 1);
}
END_TEST

/* All of it is there when the replica starts: it needs nobody to put it in force. */
START_TEST(install__is_finished_without_a_leader)
{
	struct story s = begin(3, 0);

	watch(&s);
	run_until(&s, &s.loaded, 1, 5000);
	if (mini_core(s.m, s.behind))
		mini_crash(s.m, s.behind);
	mini_isolate(s.m, s.behind, true);
	ck_assert_uint_eq(s.installed, 0);
	mini_restart(s.m, s.behind);
	run_until(&s, &s.installed, 1, 1000);
	ck_assert_uint_eq(mini_snapshot(s.m, s.behind), s.last);
	ck_assert_uint_eq(s.loaded, 2);
	mini_isolate(s.m, s.behind, false);
	end(&s, LAST_KEY);
}
END_TEST

/* X6: it comes up with a part of a snapshot that nobody needs: the log that it gets passes it by. */
START_TEST(install__is_dropped_when_the_log_has_passed_it_by)
{
	struct mini_cell *m = mini_new(&(struct mini_options){ .replicas = 3, .seed = 12, .disk_ms = 1, .net_ms = 1 });
	struct story s = { .m = m, .die_at = NEVER };
	struct entry_id id;

	s.leader = mini_elect(m, 10000);
	s.behind = s.leader == 0 ? 1 : 0;
	mini_run(m, 500);
	mini_crash(m, s.behind);
	put(&s, s.leader, "k", 30);
	id = core_state(mini_core(m, s.leader))->applied;
	id.index -= 10;
	mini_plant_part(m, s.behind, id);
	mini_isolate(m, s.behind, true);
	mini_restart(m, s.behind);
	mini_run(m, 100);
	ck_assert_uint_eq(mini_chunks_kept(m, s.behind), 1); /* it may be of use for all that is known here */
	watch(&s);
	end(&s, "k29");
	ck_assert_uint_eq(s.steps, 0);
}
END_TEST

/* One leader, two who are behind, not by the same; and one of the two dies in the middle. */
START_TEST(install__two_at_once)
{
	struct story s = begin(5, 0);
	size_t other = s.leader == 4 ? 3 : 4;

	mini_isolate(s.m, other, true);
	put(&s, s.leader, "m", 2 * COUNT);
	mini_isolate(s.m, other, false);
	watch(&s);
	run_until(&s, &s.written, 4, 5000);
	mini_crash(s.m, s.behind);
	mini_run(s.m, 20);
	mini_restart(s.m, s.behind);
	for (int i = 0; i < 10000 && !mini_value(s.m, other, "m99"); i++)
		mini_run(s.m, 1);
	ck_assert_ptr_nonnull(mini_value(s.m, other, "m99"));
	end_installed(&s, "m99", /*begun=*/1);
}
END_TEST

/* V2: the log is cut behind every snapshot, whoever has not got the last one yet. What it keeps is the tail and what came since. */
START_TEST(install__that_never_ends_does_not_hold_the_log)
{
	struct story s = begin(3, 0);
	raft_index applied;

	watch(&s);
	run_until(&s, &s.written, 2, 5000);
	for (int round = 0; round < 4; round++) {
		/* It dies after every chunk or two, and so never has all of one. */
		s.die_at = s.steps + 3;
		put(&s, s.leader, "m", 2 * COUNT);
		mini_run(s.m, 50);
		applied = core_state(mini_core(s.m, s.leader))->applied.index;
		ck_assert_uint_le(applied - mini_log_first(s.m, s.leader), COUNT + KEEP + 2);
		ck_assert_uint_ge(mini_log_first(s.m, s.leader), mini_snapshot(s.m, s.leader) - KEEP);
		ck_assert_uint_eq(s.installed, 0);
		if (!mini_core(s.m, s.behind))
			mini_restart(s.m, s.behind);
	}
	s.die_at = NEVER;
	end(&s, "m99");
	ck_assert_uint_ge(s.installed, 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("install");
	TCase *tc = tcase_create("install");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, install__goes_on_after_a_crash_at_any_step);
	tcase_add_test(tc, install__goes_back_to_what_is_durable);
	tcase_add_test(tc, install__goes_on_under_another_leader);
	tcase_add_test(tc, install__is_offered_by_two_leaders);
	tcase_add_test(tc, install__keeps_entries_away_while_it_is_put_in_force);
	tcase_add_test(tc, install__that_is_not_what_was_announced_is_refused);
	tcase_add_test(tc, install__that_is_refused_while_a_chunk_is_read_starts_over);
	tcase_add_test(tc, install__gives_way_to_a_newer_one);
	tcase_add_test(tc, install__that_was_interrupted_gives_way_to_a_newer_one);
	tcase_add_test(tc, install__is_finished_without_a_leader);
	tcase_add_test(tc, install__is_dropped_when_the_log_has_passed_it_by);
	tcase_add_test(tc, install__two_at_once);
	tcase_add_test(tc, install__that_never_ends_does_not_hold_the_log);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
