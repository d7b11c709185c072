/* disk_test.c: what is promised is durable, what is durable is found again, and many writes share one commit. */
#include <check.h>
#include <stdio.h>

#include "client.h"
#include "main.h"
#include "support/scale.h"

static const struct cell_options one = { .replicas = 1 };
static const struct cell_options three = { .replicas = 3 };

START_TEST(disk__nothing_is_answered_before_a_quorum_has_it_on_disk)
{
	struct cell *c = cell_started(&three);
	size_t leader = cell_leader(c), f1 = (leader + 1) % 3, f2 = (leader + 2) % 3;
	struct client *call;
	ck_assert_int_eq(put(&c->replicas[leader], "k", "1"), ERR_OK);
	hooks_gate(&c->replicas[f1].hooks, true);
	hooks_gate(&c->replicas[f2].hooks, true);
	call = put_start(&c->replicas[leader], "k", slice_of_str("2"), 0);
	WAIT_UNTIL(hooks_look(&c->replicas[f1].hooks).in_commit && hooks_look(&c->replicas[f2].hooks).in_commit);
	pause_ms(100);
	ck_assert(!client_is_over(call));
	hooks_gate(&c->replicas[f1].hooks, false);
	ck_assert_int_eq(client_end(call), ERR_OK);
	hooks_gate(&c->replicas[f2].hooks, false);
	cell_stop_equal(c);
	cell_free(c);
}
END_TEST

START_TEST(disk__what_waits_for_a_commit_shares_the_next)
{
	struct cell *c = cell_started(&one);
	struct replica *r = &c->replicas[0];
	struct client *calls[200];
	uint64_t before, after;
	cell_leader(c);
	ck_assert_int_eq(put(r, "k", "0"), ERR_OK);
	before = hooks_look(&r->hooks).commits;
	hooks_gate(&r->hooks, true);
	for (int i = 0; i < 200; i++) {
		calls[i] = put_start(r, "k", slice_of_str("v"), 0);
		if (i % 20 == 0)
			pause_ms(5); /* a batch of its own for the core, so a write of its own for the disk */
	}
	pause_ms(50);
	hooks_gate(&r->hooks, false);
	for (int i = 0; i < 200; i++)
		ck_assert_int_eq(client_end(calls[i]), ERR_OK);
	after = hooks_look(&r->hooks).commits;
	ck_assert_uint_le(after - before, 6);
	ck_assert_uint_ge(hooks_look(&r->hooks).most_entries, 150);
	cell_free(c);
}
END_TEST

/* A leader that is alone has written much that no other has; the next one has it cut, and all of that meets in one commit. */
START_TEST(disk__a_later_cut_takes_what_waits_for_the_same_commit)
{
	struct cell *c = cell_started(&three);
	size_t old = cell_leader(c), new;
	struct replica *r = &c->replicas[old];
	struct client *lost[30];
	uint64_t cuts;
	ck_assert_int_eq(put(r, "k", "before"), ERR_OK);
	cell_isolate(c, old, true);
	hooks_gate(&r->hooks, true);
	cuts = hooks_look(&r->hooks).cuts;
	for (int i = 0; i < 30; i++) {
		lost[i] = put_start(r, "k", slice_of_str("lost?"), 0);
		pause_ms(2);
	}
	new = cell_leader_but(c, old);
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(put(&c->replicas[new], "k", "after"), ERR_OK);
	cell_isolate(c, old, false);
	/* It has heard of the new leader, and its writes wait behind the first. */
	WAIT_UNTIL(atomic_load(&r->events[EVENT_MESSAGE]) > 0);
	pause_ms(600);
	hooks_gate(&r->hooks, false);
	WAIT_UNTIL(hooks_look(&r->hooks).cuts > cuts);
	for (int i = 0; i < 30; i++) {
		enum err e = client_end(lost[i]); /* proposed anew to the new leader, or not known */
		ck_assert(e == ERR_OK || err_status(e) == STATUS_UNAVAILABLE);
	}
	ck_assert_int_eq(put(&c->replicas[new], "k", "last"), ERR_OK);
	cell_stop_equal(c);
	for (size_t i = 0; i < 3; i++)
		cell_start(c, i);
	cell_leader(c);
	expect(&c->replicas[old], "k", "last");
	cell_stop_equal(c);
	cell_free(c);
}
END_TEST

static void fill(struct replica *r, int round)
{
	char key[24];
	for (int i = 0; i < 40; i++) {
		snprintf(key, sizeof(key), "k%d-%d", round, i);
		ck_assert_int_eq(put(r, key, key), ERR_OK);
	}
	snprintf(key, sizeof(key), "k%d-%d", round, 7);
	ck_assert_int_eq(delete(r, key), ERR_OK);
	for (lease_id id = round * 10 + 1; id <= round * 10 + 4; id++)
		ck_assert_int_eq(grant(r, id, 600), ERR_OK);
	snprintf(key, sizeof(key), "lock%d", round);
	ck_assert_int_eq(lock(r, key, round * 10 + 1), ERR_OK);
	ck_assert_int_eq(client_end(put_start(r, "leased", slice_of_str("x"), round * 10 + 2)), ERR_OK);
	ck_assert_int_eq(revoke(r, round * 10 + 3), ERR_OK);
}

static void restart_finds_all(uint64_t snapshot_count)
{
	struct cell_options o = one;
	struct cell *c;
	struct replica *r;
	o.snapshot_count = snapshot_count;
	o.snapshot_keep = snapshot_count / 2;
	c = cell_new(&o);
	r = &c->replicas[0];
	for (int round = 1; round <= 4; round++) {
		uint64_t content;
		char key[24];
		cell_start(c, 0);
		cell_leader(c);
		fill(r, round);
		cell_stop(c, 0);
		content = r->content_hash;
		cell_start(c, 0);
		cell_leader(c);
		snprintf(key, sizeof(key), "k%d-8", round);
		expect(r, key, key);
		snprintf(key, sizeof(key), "k%d-7", round);
		expect(r, key, NULL);
		cell_stop(c, 0);
		ck_assert_uint_eq(r->content_hash, content);
	}
	cell_start(c, 0);
	cell_leader(c);
	/* Held before and after: who asks again has it, another does not. */
	ck_assert_int_eq(lock(r, "lock1", 11), ERR_OK);
	ck_assert_int_eq(keep_alive(r, 11), ERR_OK);
	cell_free(c);
}

START_TEST(disk__a_restart_finds_all_in_the_log)
{
	restart_finds_all(0);
}
END_TEST

START_TEST(disk__a_restart_finds_all_in_snapshot_and_log)
{
	restart_finds_all(30);
}
END_TEST

START_TEST(disk__three_restart_together_with_all)
{
	struct cell *c = cell_started(&three);
	uint64_t content;
	size_t leader = cell_leader(c);
	for (int round = 1; round <= 2; round++)
		fill(&c->replicas[(leader + (size_t)round) % 3], round);
	cell_stop_equal(c);
	content = c->replicas[0].content_hash;
	for (size_t i = 0; i < 3; i++)
		cell_start(c, i);
	cell_leader(c);
	cell_stop_equal(c);
	ck_assert_uint_eq(c->replicas[0].content_hash, content);
	cell_free(c);
}
END_TEST

START_TEST(disk__a_failed_write_ends_the_replica_once)
{
	struct cell *c = cell_started(&one);
	struct replica *r = &c->replicas[0];
	struct client *calls[20];
	enum err refused = ERR_OK;
	uint64_t commits, durable;
	cell_leader(c);
	ck_assert_int_eq(put(r, "k", "1"), ERR_OK);
	durable = hooks_look(&r->hooks).durable_index;
	hooks_gate(&r->hooks, true);
	for (int i = 0; i < 20; i++) {
		calls[i] = put_start(r, "k", slice_of_str("2"), 0);
		pause_ms(2);
	}
	hooks_fail(&r->hooks, ERR_IO, 1); /* the next would be fine, and must not be tried: it would stand for this one */
	hooks_gate(&r->hooks, false);
	WAIT_UNTIL(atomic_load(&r->fatals) > 0);
	commits = hooks_look(&r->hooks).commits;
	ck_assert_ptr_null(client_try(r, METHOD_KV_RANGE, NULL, &refused));
	ck_assert_int_eq(refused, ERR_STOPPED);
	pause_ms(1500); /* a look at the space falls into it */
	for (int i = 0; i < 20; i++)
		ck_assert(!client_is_over(calls[i]));
	cell_stop(c, 0);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(client_end(calls[i]), ERR_STOPPED);
	ck_assert_uint_eq(hooks_look(&r->hooks).commits, commits);
	ck_assert_uint_eq(hooks_look(&r->hooks).durable_index, durable);
	ck_assert_uint_eq(atomic_load(&r->fatals), 1);
	cell_start(c, 0); /* as after a crash */
	cell_leader(c);
	expect(r, "k", "1");
	cell_free(c);
}
END_TEST

START_TEST(disk__the_others_go_on_without_a_failed_one)
{
	struct cell *c = cell_started(&three);
	size_t old = cell_leader(c), new;
	ck_assert_int_eq(put(&c->replicas[old], "k", "1"), ERR_OK);
	hooks_fail(&c->replicas[old].hooks, ERR_IO, 1);
	struct client *call = put_start(&c->replicas[old], "k", slice_of_str("2"), 0);
	WAIT_UNTIL(atomic_load(&c->replicas[old].fatals) > 0);
	cell_stop(c, old);
	client_end(call);
	new = cell_leader(c);
	ck_assert_int_eq(put(&c->replicas[new], "k", "3"), ERR_OK);
	cell_start(c, old);
	cell_wait_serving(c, old);
	expect(&c->replicas[old], "k", "3");
	cell_stop_equal(c);
	cell_free(c);
}
END_TEST

/* A follower that was away needs what has left memory; the log that should have it cannot be read. */
START_TEST(disk__a_log_that_cannot_be_read_ends_the_replica_once)
{
	struct cell *c = cell_started(&(struct cell_options){ .replicas = 3, .log_memory_bytes = 4096 });
	size_t leader = cell_leader(c), away = (leader + 1) % 3;
	cell_stop(c, away);
	for (int i = 0; i < 50; i++)
		ck_assert_int_eq(client_end(put_start(&c->replicas[leader], "k", slice_of((uint8_t[1000]){ 0 }, 1000), 0)), ERR_OK);
	for (size_t i = 0; i < 3; i++) {
		if (i != away)
			hooks_read_fail(&c->replicas[i].hooks, ERR_CORRUPT);
	}
	cell_start(c, away);
	WAIT_UNTIL(atomic_load(&c->replicas[leader].fatals) + atomic_load(&c->replicas[(leader + 2) % 3].fatals) > 0);
	pause_ms(200);
	for (size_t i = 0; i < 3; i++)
		ck_assert_uint_le(atomic_load(&c->replicas[i].fatals), 1);
	for (size_t i = 0; i < 3; i++)
		hooks_read_fail(&c->replicas[i].hooks, ERR_OK);
	cell_free(c);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		disk__nothing_is_answered_before_a_quorum_has_it_on_disk,
		disk__what_waits_for_a_commit_shares_the_next,
		disk__a_later_cut_takes_what_waits_for_the_same_commit,
		disk__a_restart_finds_all_in_the_log,
		disk__a_restart_finds_all_in_snapshot_and_log,
		disk__three_restart_together_with_all,
		disk__a_failed_write_ends_the_replica_once,
		disk__the_others_go_on_without_a_failed_one,
		disk__a_log_that_cannot_be_read_ends_the_replica_once,
		NULL,
	};
	return run_tests("node disk", tests);
}
