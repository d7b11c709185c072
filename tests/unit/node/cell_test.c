/* cell_test.c: several replicas: the lead handed over, a leader lost, a process that stood still, and all of it at random. */
#include <check.h>
#include <stdio.h>

#include "client.h"
#include "base/clock.h"
#include "main.h"
#include "support/scale.h"

static const struct cell_options one = { .replicas = 1 };
static const struct cell_options three = { .replicas = 3 };

struct writer {
	struct cell *cell;
	pthread_t thread;
	size_t at;
	atomic_bool stop;
	unsigned written;
};

static void *write_on(void *arg)
{
	struct writer *w = arg;
	char key[32];
	while (!atomic_load(&w->stop)) {
		snprintf(key, sizeof(key), "w%zu-%u", w->at, w->written++);
		ck_assert_int_eq(put(&w->cell->replicas[w->at], key, "v"), ERR_OK);
	}
	return NULL;
}

START_TEST(cell__the_lead_is_handed_over_and_no_call_fails)
{
	struct cell *c = cell_started(&three);
	struct writer writers[3];
	cell_leader(c);
	for (size_t i = 0; i < 3; i++) {
		writers[i] = (struct writer){ .cell = c, .at = i };
		ck_assert_int_eq(pthread_create(&writers[i].thread, NULL, write_on, &writers[i]), 0);
	}
	for (int i = 0; i < 3; i++) {
		struct node_health h;
		size_t old = cell_leader(c);
		/* An attempt may fail when the other one lags; the stop of a replica makes but one. */
		for (int tries = 0; tries < 10; tries++) {
			node_hand_over(c->replicas[old].node, 1000);
			node_health(c->replicas[old].node, &h);
			if (!h.leader)
				break;
		}
		ck_assert(!h.leader);
		cell_leader_but(c, old);
	}
	for (size_t i = 0; i < 3; i++)
		atomic_store(&writers[i].stop, true);
	for (size_t i = 0; i < 3; i++)
		pthread_join(writers[i].thread, NULL);
	cell_stop_equal(c);
	cell_free(c);
}
END_TEST

START_TEST(cell__who_is_alone_has_nobody_to_hand_over_to)
{
	struct cell *c = cell_started(&one);
	uint64_t begin = mono_ms();
	cell_leader(c);
	node_hand_over(c->replicas[0].node, WAIT_MS);
	ck_assert_uint_lt(mono_ms() - begin, WAIT_MS / 2);
	ck_assert_int_eq(put(&c->replicas[0], "k", "v"), ERR_OK);
	cell_free(c);
}
END_TEST

START_TEST(cell__a_follower_has_nothing_to_hand_over)
{
	struct cell *c = cell_started(&three);
	size_t leader = cell_leader(c), follower = (leader + 1) % 3;
	uint64_t begin;
	cell_wait_serving(c, follower);
	begin = mono_ms();
	node_hand_over(c->replicas[follower].node, WAIT_MS);
	ck_assert_uint_lt(mono_ms() - begin, WAIT_MS / 2);
	cell_free(c);
}
END_TEST

START_TEST(cell__a_lost_leader_is_replaced_before_its_time_is_up)
{
	struct cell *c = cell_started(&(struct cell_options){ .replicas = 3, .election_ms = 5000 });
	size_t leader = 0;
	uint64_t begin;
	leader = cell_leader(c);
	ck_assert_int_eq(put(&c->replicas[leader], "k", "1"), ERR_OK);
	cell_stop(c, leader);
	begin = mono_ms();
	for (size_t i = 0; i < 3; i++) {
		if (i != leader)
			node_peer_lost(c->replicas[i].node, c->replicas[leader].id);
	}
	cell_leader(c);
	ck_assert_uint_lt(mono_ms() - begin, 5000);
	cell_free(c);
}
END_TEST

/* However long there was none before it: a leader that is lost soon after it was found has been away since then. */
START_TEST(cell__how_long_there_is_no_leader_counts_from_the_last_one)
{
	struct cell *c = cell_started(&(struct cell_options){ .replicas = 3, .election_ms = 1000 });
	size_t leader = cell_leader(c), other = (leader + 1) % 3;
	struct node_health h = { .serving = false };
	uint64_t begin;
	cell_wait_serving(c, other);
	node_health(c->replicas[other].node, &h);
	ck_assert_uint_eq(h.leaderless_ms, 0);
	begin = mono_ms();
	for (size_t i = 0; i < 3; i++)
		if (i != other)
			cell_stop(c, i);
	do
		node_health(c->replicas[other].node, &h);
	while (h.leader_id);
	ck_assert_uint_le(h.leaderless_ms, mono_ms() - begin + 1);
	cell_free(c);
}
END_TEST

START_TEST(cell__a_process_that_stood_still_says_so)
{
	struct cell *c = cell_started(&(struct cell_options){ .replicas = 1, .election_ms = 3000 });
	struct replica *r = &c->replicas[0];
	uint64_t gaps;
	cell_leader(c);
	ck_assert_int_eq(grant(r, 1, 2), ERR_OK);
	gaps = atomic_load(&r->events[EVENT_GAP]);
	replica_block(r, true);
	pause_ms(3500); /* longer than the lease lives */
	replica_block(r, false);
	WAIT_UNTIL(atomic_load(&r->events[EVENT_GAP]) > gaps);
	ck_assert_uint_ge(atomic_load(&r->gap_ms), 3000);
	/* Nobody is ended for our own pause. */
	ck_assert_int_eq(client_end(put_start(r, "k", slice_of_str("v"), 1)), ERR_OK);
	cell_free(c);
}
END_TEST

/* ---- at random ---- */

struct visitor {
	struct cell *cell;
	pthread_t thread;
	struct rng rng;
	size_t at;
	lease_id lease;
	unsigned ops;
};

static bool acceptable(enum err e)
{
	return e == ERR_OK || e == ERR_CANCELED || e == ERR_LEASE_NOT_FOUND || e == ERR_LEASE_ENDED_WAITING || e == ERR_LOCK_HELD ||
	       e == ERR_NOT_CONTENDER || e == ERR_KEY_NOT_FOUND || e == ERR_LEASE_EXISTS || err_status(e) == STATUS_UNAVAILABLE;
}

static void check_acceptable(enum err e)
{
	ck_assert_msg(acceptable(e), "%s", e ? err_text(e) : "ok");
}

static void visit(struct visitor *v)
{
	struct replica *r = &v->cell->replicas[v->at];
	char key[24];
	struct client *c;
	snprintf(key, sizeof(key), "k%u", (unsigned)rng_below(&v->rng, 20));
	switch (rng_below(&v->rng, 7)) {
	case 0:
		c = put_start(r, key, slice_of_str(key), rng_below(&v->rng, 2) ? v->lease : 0);
		break;
	case 1:
		c = get_start(r, key);
		break;
	case 2:
		check_acceptable(delete(r, key));
		return;
	case 3:
		c = lock_start(r, "lock", v->lease);
		if (rng_below(&v->rng, 2))
			pause_ms(5);
		client_cancel(c); /* also of one that was granted: then it is held on */
		break;
	case 4:
		check_acceptable(unlock(r, "lock", v->lease));
		return;
	case 5:
		check_acceptable(keep_alive(r, v->lease));
		return;
	default:
		c = put_start(r, key, slice_of_str("cancelled"), 0);
		client_cancel(c);
		break;
	}
	check_acceptable(client_end(c));
}

static void *visit_on(void *arg)
{
	struct visitor *v = arg;
	check_acceptable(grant(&v->cell->replicas[v->at], v->lease, 600));
	for (unsigned i = 0; i < v->ops; i++)
		visit(v);
	return NULL;
}

START_TEST(cell__random_calls_on_a_bad_network_leave_equal_states)
{
	struct cell *c = cell_started(&(struct cell_options){ .replicas = 3, .lost_per_million = 10000, .snapshot_count = 100, .snapshot_keep = 20 });
	struct visitor visitors[6];
	cell_leader(c);
	for (size_t i = 0; i < 6; i++) {
		visitors[i] = (struct visitor){ .cell = c, .at = i % 3, .lease = 100 + (lease_id)i, .ops = (unsigned)test_scaled(150) };
		rng_init(&visitors[i].rng, i);
		ck_assert_int_eq(pthread_create(&visitors[i].thread, NULL, visit_on, &visitors[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		size_t who = (size_t)i % 3;
		pause_ms(300);
		cell_isolate(c, who, true);
		pause_ms(700);
		cell_isolate(c, who, false);
	}
	for (size_t i = 0; i < 6; i++)
		pthread_join(visitors[i].thread, NULL);
	cell_stop_equal(c);
	for (size_t i = 0; i < 3; i++)
		cell_start(c, i);
	cell_stop_equal(c);
	cell_free(c);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		cell__the_lead_is_handed_over_and_no_call_fails,
		cell__who_is_alone_has_nobody_to_hand_over_to,
		cell__a_follower_has_nothing_to_hand_over,
		cell__a_lost_leader_is_replaced_before_its_time_is_up,
		cell__how_long_there_is_no_leader_counts_from_the_last_one,
		cell__a_process_that_stood_still_says_so,
		cell__random_calls_on_a_bad_network_leave_equal_states,
		NULL,
	};
	return run_tests("node cell", tests);
}
