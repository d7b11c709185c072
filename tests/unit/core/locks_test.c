/* locks_test.c: locks as people look at them: list, verify, break; in small cells. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "holdfast/v1.pb-c.h"
#include "support/mini_answer.h"

static struct mini_cell *cell_of(size_t replicas)
{
	struct mini_cell *m = mini_new(&(struct mini_options){ .replicas = replicas, .seed = 7, .disk_ms = 1, .net_ms = 1 });

	mini_elect(m, 10000);
	mini_run(m, 300);
	for (lease_id id = 10; id < 16; id++)
		OK(m, mini_grant(m, 0, id, 600));
	return m;
}

static ProtobufCBinaryData bin(const char *s)
{
	return (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)s, .len = strlen(s) };
}

static Holdfast__V1__LocksListResponse *list(struct mini_cell *m, size_t i, const char *prefix, int64_t limit, ProtobufCBinaryData after)
{
	Holdfast__V1__LocksListRequest r = HOLDFAST__V1__LOCKS_LIST_REQUEST__INIT;
	const struct mini_answer *a;
	uint64_t tag;

	r.prefix = bin(prefix);
	r.limit = limit;
	r.after = after;
	tag = mini_request(m, i, METHOD_LOCKS_LIST, &r.base);
	OK(m, tag);
	a = answer_of(m, tag);
	return holdfast__v1__locks_list_response__unpack(NULL, a->reply.len, a->reply.ptr);
}

static bool is_current(struct mini_cell *m, size_t i, const char *name, int64_t token)
{
	Holdfast__V1__LocksVerifyRequest r = HOLDFAST__V1__LOCKS_VERIFY_REQUEST__INIT;
	Holdfast__V1__LocksVerifyResponse *reply;
	const struct mini_answer *a;
	uint64_t tag;
	bool yes;

	r.name = bin(name);
	r.fencing_token = token;
	tag = mini_request(m, i, METHOD_LOCKS_VERIFY, &r.base);
	OK(m, tag);
	a = answer_of(m, tag);
	reply = holdfast__v1__locks_verify_response__unpack(NULL, a->reply.len, a->reply.ptr);
	yes = reply->current;
	ck_assert_int_eq(reply->hold != NULL, yes);
	if (yes)
		ck_assert_int_eq(reply->hold->fencing_token, token);
	holdfast__v1__locks_verify_response__free_unpacked(reply, NULL);
	return yes;
}

static uint64_t break_hold(struct mini_cell *m, size_t i, const char *name, int64_t token, const char *key)
{
	Holdfast__V1__LocksBreakRequest r = HOLDFAST__V1__LOCKS_BREAK_REQUEST__INIT;

	r.name = bin(name);
	r.fencing_token = token;
	r.key = bin(key);
	return mini_request(m, i, METHOD_LOCKS_BREAK_HOLD, &r.base);
}

static bool broke(struct mini_cell *m, uint64_t tag)
{
	const struct mini_answer *a = answer_of(m, tag);
	Holdfast__V1__LocksBreakResponse *r;
	bool yes;

	ck_assert_int_eq(a->err, ERR_OK);
	r = holdfast__v1__locks_break_response__unpack(NULL, a->reply.len, a->reply.ptr);
	yes = r->broken != NULL;
	holdfast__v1__locks_break_response__free_unpacked(r, NULL);
	return yes;
}

START_TEST(locks__the_queue_is_listed_in_order)
{
	struct mini_cell *m = cell_of(3);
	Holdfast__V1__LocksListResponse *r;
	uint64_t first;

	OK(m, first = mini_lock_bounded(m, 0, "a", 10, LOCK_SHARED, 60000));
	OK(m, mini_lock_bounded(m, 1, "a", 11, LOCK_SHARED, 60000));
	mini_lock(m, 2, "a", 12);
	mini_run(m, 50);
	mini_lock_bounded(m, 0, "a", 13, LOCK_SHARED, 60000);
	mini_run(m, 50);
	r = list(m, 1, "", 0, bin(""));
	ck_assert_uint_eq(r->n_locks, 1);
	ck_assert_mem_eq(r->locks[0]->name.data, "a", 1);
	ck_assert_uint_eq(r->locks[0]->n_places, 4);
	ck_assert_uint_eq(r->next.len, 0);
	for (size_t i = 0; i < 4; i++) {
		const Holdfast__V1__LockPlace *p = r->locks[0]->places[i];

		ck_assert_int_eq(p->lease, 10 + (int64_t)i);
		ck_assert_int_eq(p->held, i < 2);
		ck_assert_int_eq(p->mode, i == 2 ? V3LOCKPB__LOCK_MODE__EXCLUSIVE : V3LOCKPB__LOCK_MODE__SHARED);
		ck_assert_str_eq(p->client, "test");
		ck_assert_int_gt(p->since_unix_ms, 0);
	}
	ck_assert_int_eq(r->locks[0]->places[0]->fencing_token, mini_token(answer_of(m, first)));
	holdfast__v1__locks_list_response__free_unpacked(r, NULL);
	mini_free(m);
}
END_TEST

/* Names of several lengths, some of which have the prefix, in pages of every size. */
START_TEST(locks__pages_have_each_place_once)
{
	static const char *const names[] = { "p", "q", "pa", "ob", "qa", "pz", "paa", "oza", "p/a/b", "qqqqqqq", "p0123456" };
	static const char *const want[] = { "p", "pa", "pz", "paa", "p/a/b", "p0123456" };
	struct mini_cell *m = cell_of(1);

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		OK(m, mini_lock(m, 0, names[i], 10));
		mini_lock(m, 0, names[i], 11);
	}
	mini_run(m, 50);
	for (int64_t limit = 1; limit <= 13; limit++) {
		uint8_t position[256];
		ProtobufCBinaryData after = { .data = position };
		size_t n = 0;

		do {
			Holdfast__V1__LocksListResponse *r = list(m, 0, "p", limit, after);
			int64_t got = 0;

			for (size_t i = 0; i < r->n_locks; i++) {
				for (size_t k = 0; k < r->locks[i]->n_places; k++, n++, got++) {
					ck_assert_uint_lt(n, 12);
					ck_assert_uint_eq(r->locks[i]->name.len, strlen(want[n / 2]));
					ck_assert_mem_eq(r->locks[i]->name.data, want[n / 2], strlen(want[n / 2]));
					ck_assert_int_eq(r->locks[i]->places[k]->lease, 10 + (int64_t)(n % 2));
				}
			}
			ck_assert_int_le(got, limit);
			after.len = r->next.len;
			if (after.len)
				memcpy(position, r->next.data, after.len);
			holdfast__v1__locks_list_response__free_unpacked(r, NULL);
		} while (after.len > 0);
		ck_assert_uint_eq(n, 12);
	}
	mini_free(m);
}
END_TEST

START_TEST(locks__any_bytes_for_a_position_are_harmless)
{
	struct mini_cell *m = cell_of(1);
	static const char *const positions[] = { "x", "\xff\xff\xff\xff\xff", "\1", "aaaaaaaaaaaaaaaaaaaaaaaaaa" };

	OK(m, mini_lock(m, 0, "l", 10));
	for (size_t i = 0; i < sizeof positions / sizeof *positions; i++)
		holdfast__v1__locks_list_response__free_unpacked(list(m, 0, "l", 0, bin(positions[i])), NULL);
	mini_free(m);
}
END_TEST

START_TEST(locks__a_token_is_current_while_it_holds)
{
	struct mini_cell *m = cell_of(3);
	int64_t first, second;
	uint64_t tag, waiter;

	OK(m, tag = mini_lock(m, 0, "l", 10));
	first = mini_token(answer_of(m, tag));
	waiter = mini_lock(m, 1, "l", 11);
	mini_run(m, 50);
	for (size_t i = 0; i < 3; i++) {
		ck_assert(is_current(m, i, "l", first));
		ck_assert(!is_current(m, i, "l", first + 1)); /* it waits */
		ck_assert(!is_current(m, i, "l", 0));
		ck_assert(!is_current(m, i, "other", first));
	}
	OK(m, mini_unlock(m, 2, "l/a"));
	OK(m, waiter);
	second = mini_token(answer_of(m, waiter));
	for (size_t i = 0; i < 3; i++) {
		ck_assert(!is_current(m, i, "l", first));
		ck_assert(is_current(m, i, "l", second));
	}
	mini_free(m);
}
END_TEST

START_TEST(locks__a_hold_is_broken_and_the_next_one_holds)
{
	struct mini_cell *m = cell_of(3);
	uint64_t tag, waiter, last;

	OK(m, tag = mini_lock(m, 0, "l", 10));
	waiter = mini_lock(m, 1, "l", 11);
	mini_run(m, 50);
	last = mini_lock(m, 1, "l", 12);
	mini_run(m, 50);
	ck_assert(!broke(m, break_hold(m, 2, "l", mini_token(answer_of(m, tag)) + 1, ""))); /* it waits */
	ck_assert(!broke(m, break_hold(m, 2, "", 0, "l/b")));                                /* so does this */
	ck_assert(broke(m, break_hold(m, 2, "l", mini_token(answer_of(m, tag)), "")));
	OK(m, waiter);
	ck_assert(!broke(m, break_hold(m, 2, "l", mini_token(answer_of(m, tag)), ""))); /* not a later one */
	ck_assert(!broke(m, break_hold(m, 2, "", 1, "l/b")));
	ck_assert(broke(m, break_hold(m, 2, "", 0, "l/b")));
	OK(m, last);
	OK(m, mini_put(m, 0, "plain", "v", 0));
	FAILS(m, break_hold(m, 0, "", 0, "plain"), ERR_NOT_CONTENDER);
	FAILS(m, break_hold(m, 0, "", 0, ""), ERR_EMPTY_KEY);
	FAILS(m, break_hold(m, 0, "l", 0, ""), ERR_NEGATIVE);
	ck_assert(!broke(m, break_hold(m, 0, "", 0, "gone")));
	mini_free(m);
}
END_TEST

/* ---- for how long ---- */

struct ends {
	size_t len;
	char name[8];
	uint64_t ms, why;
};

static void note_end(void *ctx, const struct core_trace *t)
{
	struct ends *e = ctx;

	if (t->kind != TRACE_HOLD_END)
		return;
	e->len++;
	snprintf(e->name, sizeof(e->name), "%.*s", (int)t->name.len, (const char *)t->name.ptr);
	e->ms = t->a ? t->b : 0;
	e->why = t->c;
}

START_TEST(locks__the_end_of_a_hold_is_told_once_and_how_long_it_was)
{
	struct mini_cell *m = cell_of(3);
	struct ends told[3] = { 0 };
	size_t old = mini_leader(m), other = (old + 1) % 3;

	for (size_t i = 0; i < 3; i++)
		core_set_trace(mini_core(m, i), note_end, &told[i]);
	OK(m, mini_lock(m, other, "a", 10));
	OK(m, mini_lock(m, other, "b", 10));
	mini_lock(m, other, "a", 11);
	mini_run(m, 5000);
	OK(m, mini_unlock(m, other, "a/b")); /* who waits has not held yet */
	ck_assert_uint_eq(told[old].len, 0);
	OK(m, mini_unlock(m, other, "a/a"));
	ck_assert_uint_eq(told[old].len + told[other].len, 1);
	ck_assert_str_eq(told[old].name, "a");
	ck_assert_uint_ge(told[old].ms, 5000);
	ck_assert_uint_lt(told[old].ms, 5200);
	ck_assert_uint_eq(told[old].why, HOLD_UNLOCKED);

	/* Who leads next knows since when, unless it has started since; what was told is not told again. */
	mini_crash(m, other);
	mini_restart(m, other);
	core_set_trace(mini_core(m, other), note_end, &told[other]);
	mini_run(m, 1000);
	mini_crash(m, old);
	mini_elect(m, 10000);
	mini_run(m, 5000);
	OK(m, mini_revoke(m, other, 10));
	ck_assert_uint_eq(told[0].len + told[1].len + told[2].len, 2);
	ck_assert_uint_eq(told[mini_leader(m)].len, 1);
	ck_assert_str_eq(told[mini_leader(m)].name, "b");
	ck_assert_uint_eq(told[mini_leader(m)].why, HOLD_REVOKED);
	ck_assert_uint_ge(told[mini_leader(m)].ms, mini_leader(m) == other ? 6000 : 11000);
	ck_assert_uint_le(told[mini_leader(m)].ms, 30000);
	mini_free(m);
}
END_TEST

/* Whose Lock lies in a snapshot gives up, though somebody else of his session has taken over meanwhile: else the hold would be kept for him. */
START_TEST(locks__who_was_taken_over_within_a_snapshot_gives_up)
{
	struct mini_cell *m =
		mini_new(&(struct mini_options){ .replicas = 3, .seed = 5, .disk_ms = 1, .net_ms = 1, .snapshot_count = 50, .snapshot_keep = 5, .log_memory = 1000 });
	size_t leader = mini_elect(m, 10000), first = (leader + 1) % 3, second = (leader + 2) % 3;
	struct core_status status;
	uint64_t before, now, unlock;

	mini_run(m, 500);
	OK(m, mini_grant(m, leader, 10, 600));
	OK(m, mini_grant(m, leader, 11, 600));
	OK(m, mini_lock(m, leader, "a", 10));
	before = mini_lock(m, first, "a", 11);
	mini_run(m, 1);
	mini_isolate(m, first, true);
	mini_run(m, 100);
	ck_assert_uint_eq(mini_contenders(m, leader, "a"), 2);
	now = mini_lock(m, second, "a", 11);
	for (int i = 0; i < 300; i++)
		OK(m, mini_put(m, leader, "k", "v", 0));
	mini_cancel(m, first, before);
	mini_isolate(m, first, false);
	mini_run(m, 3000);
	core_status(mini_core(m, first), &status);
	ck_assert_uint_ge(status.snapshots_installed, 1);
	mini_cancel(m, second, now); /* the grant is on its way to it */
	unlock = mini_unlock(m, leader, "a/a");
	OK(m, unlock);
	mini_run(m, 1000);
	ck_assert_uint_eq(mini_contenders(m, leader, "a"), 0);
	mini_free(m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core locks");
	TCase *t = tcase_create("locks");
	SRunner *sr;
	int failed;

	tcase_set_timeout(t, 120);
	tcase_add_test(t, locks__the_queue_is_listed_in_order);
	tcase_add_test(t, locks__pages_have_each_place_once);
	tcase_add_test(t, locks__any_bytes_for_a_position_are_harmless);
	tcase_add_test(t, locks__a_token_is_current_while_it_holds);
	tcase_add_test(t, locks__a_hold_is_broken_and_the_next_one_holds);
	tcase_add_test(t, locks__the_end_of_a_hold_is_told_once_and_how_long_it_was);
	tcase_add_test(t, locks__who_was_taken_over_within_a_snapshot_gives_up);
	suite_add_tcase(s, t);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
