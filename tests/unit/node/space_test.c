/* space_test.c: a disk that fills up: what grows is refused in time; the space kept back; a replica that waits; and the way back. */
#include <check.h>

#include "client.h"
#include "base/clock.h"
#include "main.h"

static const struct cell_options one = { .replicas = 1 };
static const struct cell_options three = { .replicas = 3 };

#define MANY_BYTES (UINT64_C(1) << 40)

static void what_frees_goes_on(struct replica *r)
{
	ck_assert_int_eq(delete(r, "k"), ERR_OK);
	ck_assert_int_eq(unlock(r, "l", 1), ERR_OK);
	ck_assert_int_eq(revoke(r, 2), ERR_OK);
	ck_assert_int_eq(keep_alive(r, 1), ERR_OK);
	expect(r, "k", NULL);
}

static void prepare(struct replica *r)
{
	ck_assert_int_eq(grant(r, 1, 600), ERR_OK);
	ck_assert_int_eq(grant(r, 2, 600), ERR_OK);
	ck_assert_int_eq(lock(r, "l", 1), ERR_OK);
	ck_assert_int_eq(put(r, "k", "1"), ERR_OK);
}

START_TEST(space__below_the_reserve_only_what_grows_is_refused)
{
	struct cell *c = cell_started(&one);
	struct replica *r = &c->replicas[0];
	cell_leader(c);
	prepare(r);
	hooks_free_bytes(&r->hooks, 1 << 20);
	WAIT_UNTIL(atomic_load(&r->lows) == 1);
	ck_assert_int_eq(put(r, "k", "2"), ERR_NO_SPACE);
	ck_assert_int_eq(grant(r, 3, 600), ERR_NO_SPACE);
	what_frees_goes_on(r);
	hooks_free_bytes(&r->hooks, MANY_BYTES);
	WAIT_UNTIL(atomic_load(&r->highs) == 1);
	ck_assert_int_eq(put(r, "k", "2"), ERR_OK);
	ck_assert_uint_eq(atomic_load(&r->lows), 1);
	ck_assert_uint_eq(atomic_load(&r->fatals), 0);
	cell_free(c);
}
END_TEST

START_TEST(space__it_is_looked_at_while_the_disk_is_busy)
{
	struct cell *c = cell_started(&one);
	struct replica *r = &c->replicas[0];
	uint64_t begin, longest = 0;
	cell_leader(c);
	hooks_free_bytes(&r->hooks, 1 << 20);
	begin = mono_ms();
	while (!atomic_load(&r->lows)) {
		uint64_t at = mono_ms();
		ck_assert_uint_lt(at - begin, WAIT_MS);
		enum err e = put(r, "k", "v");
		ck_assert(e == ERR_OK || e == ERR_NO_SPACE);
		if (mono_ms() - at > longest)
			longest = mono_ms() - at;
	}
	/* There was no second without a write in which it could have been looked at. */
	if (longest < 900)
		ck_assert_uint_lt(mono_ms() - begin, 10000);
	cell_free(c);
}
END_TEST

START_TEST(space__the_ballast_takes_the_write_that_did_not_fit)
{
	struct cell *c = cell_started(&one);
	struct replica *r = &c->replicas[0];
	cell_leader(c);
	prepare(r);
	hooks_free_bytes(&r->hooks, 1 << 20);
	hooks_full_until_release(&r->hooks);
	/* Taken before the core had heard; it is durable all the same. */
	enum err e = put(r, "k", "2");
	ck_assert(e == ERR_OK || e == ERR_NO_SPACE);
	ck_assert_int_eq(delete(r, "other"), ERR_OK);
	ck_assert_uint_eq(hooks_look(&r->hooks).releases, 1);
	WAIT_UNTIL(atomic_load(&r->lows) == 1);
	ck_assert_int_eq(put(r, "k", "3"), ERR_NO_SPACE);
	what_frees_goes_on(r);
	hooks_free_bytes(&r->hooks, MANY_BYTES);
	WAIT_UNTIL(atomic_load(&r->highs) == 1);
	ck_assert_uint_eq(hooks_look(&r->hooks).restores, 1);
	ck_assert_int_eq(put(r, "k", "4"), ERR_OK);
	ck_assert_uint_eq(atomic_load(&r->fatals), 0);
	cell_free(c);
}
END_TEST

START_TEST(space__a_full_disk_is_waited_for)
{
	struct cell *c = cell_started(&one);
	struct replica *r = &c->replicas[0];
	struct client *call;
	cell_leader(c);
	prepare(r);
	hooks_free_bytes(&r->hooks, 1 << 20);
	hooks_fail(&r->hooks, ERR_DISK_FULL, 1000);
	call = put_start(r, "k", slice_of_str("2"), 0);
	WAIT_UNTIL(atomic_load(&r->lows) == 1);
	pause_ms(1500);
	ck_assert(!client_is_over(call));
	hooks_fail(&r->hooks, ERR_OK, 0);
	ck_assert_int_eq(client_end(call), ERR_OK);
	ck_assert_int_eq(put(r, "k", "3"), ERR_NO_SPACE);
	hooks_free_bytes(&r->hooks, MANY_BYTES);
	WAIT_UNTIL(atomic_load(&r->highs) == 1);
	ck_assert_int_eq(put(r, "k", "3"), ERR_OK);
	expect(r, "k", "3");
	ck_assert_uint_eq(atomic_load(&r->fatals), 0);
	cell_free(c);
}
END_TEST

START_TEST(space__who_waits_for_space_can_be_stopped)
{
	struct cell *c = cell_started(&one);
	struct replica *r = &c->replicas[0];
	struct client *call;
	uint64_t begin;
	cell_leader(c);
	ck_assert_int_eq(put(r, "k", "1"), ERR_OK);
	hooks_fail(&r->hooks, ERR_DISK_FULL, 1000);
	call = put_start(r, "k", slice_of_str("2"), 0);
	WAIT_UNTIL(atomic_load(&r->lows) == 1);
	begin = mono_ms();
	cell_stop(c, 0);
	ck_assert_uint_lt(mono_ms() - begin, 20000);
	ck_assert_int_eq(client_end(call), ERR_STOPPED);
	ck_assert_uint_eq(atomic_load(&r->fatals), 0);
	hooks_fail(&r->hooks, ERR_OK, 0);
	cell_start(c, 0);
	cell_leader(c);
	expect(r, "k", "1");
	cell_free(c);
}
END_TEST

START_TEST(space__the_lead_goes_to_a_replica_that_can_write)
{
	struct cell *c = cell_started(&three);
	size_t old = cell_leader(c), new;
	struct replica *r = &c->replicas[old];
	struct client *call;
	ck_assert_int_eq(put(r, "k", "1"), ERR_OK);
	hooks_fail(&r->hooks, ERR_DISK_FULL, 100000);
	call = put_start(r, "k", slice_of_str("2"), 0);
	new = cell_leader_but(c, old);
	ck_assert_int_eq(put(&c->replicas[new], "k", "3"), ERR_OK);
	ck_assert_uint_eq(atomic_load(&r->fatals), 0);
	hooks_fail(&r->hooks, ERR_OK, 0);
	ck_assert_int_eq(client_end(call), ERR_OK); /* it was on two disks */
	cell_wait_serving(c, old);
	expect(r, "k", "3");
	cell_stop_equal(c);
	cell_free(c);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		space__below_the_reserve_only_what_grows_is_refused,
		space__it_is_looked_at_while_the_disk_is_busy,
		space__the_ballast_takes_the_write_that_did_not_fit,
		space__a_full_disk_is_waited_for,
		space__who_waits_for_space_can_be_stopped,
		space__the_lead_goes_to_a_replica_that_can_write,
		NULL,
	};
	return run_tests("node space", tests);
}
