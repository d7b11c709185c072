/* calls_test.c: the life of a call: handed in, owned by the node, given back exactly once. */
#include <check.h>
#include <stdio.h>

#include "client.h"
#include "main.h"
#include "support/scale.h"

static const struct cell_options one = { .replicas = 1 };
/* A cell of three of which only the first is started: nothing can ever be agreed. */
static const struct cell_options three = { .replicas = 3 };

struct test_caller {
	struct cell *cell;
	pthread_t thread;
	unsigned number, calls;
};

static void *call_much(void *arg)
{
	struct test_caller *me = arg;
	char key[32];
	for (unsigned i = 0; i < me->calls; i++) {
		struct replica *r = &me->cell->replicas[i % me->cell->o.replicas];
		snprintf(key, sizeof(key), "k%u-%u", me->number, i);
		ck_assert_int_eq(put(r, key, key), ERR_OK);
		expect(r, key, key);
	}
	return NULL;
}

static void call_from_threads(struct cell *c, unsigned calls)
{
	struct test_caller callers[4];
	for (unsigned i = 0; i < 4; i++) {
		callers[i] = (struct test_caller){ .cell = c, .number = i, .calls = calls };
		ck_assert_int_eq(pthread_create(&callers[i].thread, NULL, call_much, &callers[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(callers[i].thread, NULL);
}

START_TEST(calls__many_threads_call_one_replica)
{
	struct cell *c = cell_started(&one);
	cell_leader(c);
	call_from_threads(c, (unsigned)test_scaled(200));
	cell_free(c);
}
END_TEST

START_TEST(calls__many_threads_call_all_three)
{
	struct cell *c = cell_started(&three);
	cell_leader(c);
	call_from_threads(c, (unsigned)test_scaled(200));
	cell_stop_equal(c);
	cell_free(c);
}
END_TEST

START_TEST(calls__a_cancelled_call_is_given_back)
{
	struct cell *c = cell_new(&three);
	struct replica *r = &c->replicas[0];
	struct client *a, *b;
	cell_start(c, 0);
	a = put_start(r, "a", slice_of_str("1"), 0);
	b = put_start(r, "b", slice_of_str("1"), 0);
	client_cancel(a);
	ck_assert_int_eq(client_wait(a), ERR_CANCELED);
	client_cancel(a); /* once more: harmless */
	pause_ms(50);
	ck_assert(!client_is_over(b));
	cell_stop(c, 0);
	ck_assert_int_eq(client_end(b), ERR_STOPPED);
	client_free(a);
	cell_free(c);
}
END_TEST

START_TEST(calls__a_cancel_may_meet_the_answer)
{
	struct cell *c = cell_started(&one);
	size_t n = test_scaled(1000);
	struct client **calls = calloc(n, sizeof(*calls));
	cell_leader(c);
	for (size_t i = 0; i < n; i++) {
		char key[24];
		snprintf(key, sizeof(key), "%zu", i);
		calls[i] = put_start(&c->replicas[0], key, slice_of_str("v"), 0);
		if (i % 3 == 0)
			client_cancel(calls[i]);
		if (i % 3 == 1 && i > 10)
			client_cancel(calls[i - 10]);
	}
	for (size_t i = 0; i < n; i++) {
		enum err e = client_end(calls[i]);
		ck_assert(e == ERR_OK || e == ERR_CANCELED);
	}
	ck_assert_int_eq(put(&c->replicas[0], "after", "all"), ERR_OK);
	cell_free(c);
	free(calls);
}
END_TEST

START_TEST(calls__stop_gives_back_what_is_open)
{
	struct cell *c = cell_started(&one);
	struct client *waiting[20], *writes[20];
	enum err refused = ERR_OK;
	struct replica *r = &c->replicas[0];
	cell_leader(c);
	ck_assert_int_eq(grant(r, 1, 60), ERR_OK);
	ck_assert_int_eq(lock(r, "l", 1), ERR_OK);
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(grant(r, 100 + i, 60), ERR_OK);
		waiting[i] = lock_start(r, "l", 100 + i);
	}
	hooks_gate(&r->hooks, true);
	for (int i = 0; i < 20; i++)
		writes[i] = put_start(r, "k", slice_of_str("v"), 0);
	/* The disk finishes what it was given, so it must go on for the stop to end. */
	pause_ms(50);
	replica_block(r, true);
	hooks_gate(&r->hooks, false);
	replica_block(r, false);
	node_stop(r->node);
	for (int i = 0; i < 20; i++) {
		enum err e = client_end(writes[i]);
		ck_assert(e == ERR_STOPPED || e == ERR_OK);
		ck_assert_int_eq(client_end(waiting[i]), ERR_STOPPED);
	}
	ck_assert_ptr_null(client_try(r, METHOD_MAINTENANCE_STATUS, NULL, &refused));
	ck_assert_int_eq(refused, ERR_STOPPED);
	cell_free(c);
}
END_TEST

START_TEST(calls__above_the_bound_nothing_is_taken)
{
	struct cell_options o = one;
	struct client *calls[64];
	struct cell *c;
	struct replica *r;
	size_t len = 0;
	enum err refused = ERR_OK;
	o.max_queued_calls = 8;
	c = cell_started(&o);
	r = &c->replicas[0];
	cell_leader(c);
	replica_block(r, true);
	while (len < 64) {
		calls[len] = client_try(r, METHOD_MAINTENANCE_STATUS, NULL, &refused);
		if (!calls[len])
			break;
		len++;
		pause_ms(1);
	}
	ck_assert_int_eq(refused, ERR_OVERLOADED);
	ck_assert_uint_ge(len, 8);
	ck_assert_uint_le(len, 16); /* one that answers for the cell has the bound twice */
	replica_block(r, false);
	for (size_t i = 0; i < len; i++)
		ck_assert_int_eq(client_end(calls[i]), ERR_OK);
	ck_assert_int_eq(put(r, "k", "v"), ERR_OK);
	cell_free(c);
}
END_TEST

START_TEST(calls__messages_above_the_bound_are_dropped)
{
	struct cell_options o = one;
	uint8_t bytes[100] = { 0 };
	struct cell *c;
	struct replica *r;
	unsigned taken = 0;
	o.max_queued_message_bytes = 1000;
	c = cell_started(&o);
	r = &c->replicas[0];
	cell_leader(c);
	replica_block(r, true);
	while (taken < 100 && node_message(r->node, slice_of(bytes, sizeof(bytes)))) {
		taken++;
		pause_ms(1);
	}
	ck_assert_uint_ge(taken, 10);
	ck_assert_uint_le(taken, 20);
	ck_assert(!node_message(r->node, slice_of(bytes, sizeof(bytes))));
	replica_block(r, false);
	WAIT_UNTIL(node_message(r->node, slice_of(bytes, sizeof(bytes))));
	ck_assert_int_eq(put(r, "k", "v"), ERR_OK);
	cell_free(c);
}
END_TEST

START_TEST(calls__a_lock_is_handed_on)
{
	struct cell *c = cell_started(&one);
	struct replica *r = &c->replicas[0];
	struct client *second, *third;
	cell_leader(c);
	for (lease_id id = 1; id <= 3; id++)
		ck_assert_int_eq(grant(r, id, 60), ERR_OK);
	ck_assert_int_eq(lock(r, "l", 1), ERR_OK);
	second = lock_start(r, "l", 2);
	third = lock_start(r, "l", 3);
	pause_ms(50);
	ck_assert(!client_is_over(second));
	client_cancel(second);
	ck_assert_int_eq(client_end(second), ERR_CANCELED);
	ck_assert(!client_is_over(third));
	ck_assert_int_eq(unlock(r, "l", 1), ERR_OK);
	ck_assert_int_eq(client_end(third), ERR_OK);
	cell_free(c);
}
END_TEST

/* Calls that need a write wait for the one under way; what needs none is answered beside it. */
START_TEST(calls__a_read_overtakes_what_waits_for_the_disk)
{
	struct cell *c = cell_started(&one);
	struct replica *r = &c->replicas[0];
	struct client *first, *writes[20];
	uint64_t commits;
	cell_leader(c);
	ck_assert_int_eq(put(r, "k", "0"), ERR_OK);
	commits = hooks_look(&r->hooks).commits;
	hooks_gate(&r->hooks, true);
	first = put_start(r, "k", slice_of_str("1"), 0);
	while (hooks_look(&r->hooks).in_commit == 0)
		pause_ms(1);
	for (int i = 0; i < 20; i++)
		writes[i] = put_start(r, "k", slice_of_str("2"), 0);
	expect(r, "k", "0");
	for (int i = 0; i < 20; i++)
		ck_assert(!client_is_over(writes[i]));
	hooks_gate(&r->hooks, false);
	ck_assert_int_eq(client_end(first), ERR_OK);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(client_end(writes[i]), ERR_OK);
	ck_assert_uint_le(hooks_look(&r->hooks).commits - commits, 3);
	expect(r, "k", "2");
	cell_free(c);
}
END_TEST

struct burst {
	struct replica *r;
	struct client *calls[50];
};

static void *make_burst(void *arg)
{
	struct burst *b = arg;
	node_wake(b->r->node); /* from here on this thread's calls wake nobody */
	for (int i = 0; i < 50; i++)
		b->calls[i] = put_start(b->r, "k", slice_of_str("v"), 0);
	node_wake(b->r->node);
	return NULL;
}

/* Many bursts: a wake that was lost would leave one of them to the next tick, and this test to 50 ms for each. */
START_TEST(calls__a_burst_wakes_at_its_end)
{
	struct cell *c = cell_started(&one);
	struct burst b = { .r = &c->replicas[0] };
	cell_leader(c);
	for (int round = 0; round < 20; round++) {
		pthread_t thread;
		ck_assert_int_eq(pthread_create(&thread, NULL, make_burst, &b), 0);
		pthread_join(thread, NULL);
		for (int i = 0; i < 50; i++)
			ck_assert_int_eq(client_end(b.calls[i]), ERR_OK);
	}
	expect(b.r, "k", "v");
	cell_free(c);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		calls__many_threads_call_one_replica,
		calls__many_threads_call_all_three,
		calls__a_cancelled_call_is_given_back,
		calls__a_cancel_may_meet_the_answer,
		calls__stop_gives_back_what_is_open,
		calls__above_the_bound_nothing_is_taken,
		calls__messages_above_the_bound_are_dropped,
		calls__a_lock_is_handed_on,
		calls__a_read_overtakes_what_waits_for_the_disk,
		calls__a_burst_wakes_at_its_end,
		NULL,
	};
	return run_tests("node calls", tests);
}
