/* test_place.c: which replica a session's stream is at; the cell, and what probes tell, is played by hand. */
#include <stdlib.h>

#include "errors.h"
#include "kit.h"

#define T0 1000000u
#define PATIENCE (TTL * 1000 / 5)
#define ASKED (T0 + 4000) /* when it is kept alive for the first time; nobody answers */

static uint32_t here, other, third;
static uint64_t answered;

static void open_setup(void)
{
	kit_setup_at(3);
	answered = 0;
	here = kit_next(SESS_CONNECT)->endpoint;
	other = (here + 1) % 3;
	third = (here + 2) % 3;
	kit_open();
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_OK);
}

static void heard(uint32_t endpoint, bool serves)
{
	kit_step((struct sess_event){ .kind = SESS_HEARD, .endpoint = endpoint, .serves = serves });
}

/* Lets time pass; whoever is set answers each probe: 1: does not serve, 2: serves. */
static void pass(uint64_t until, const int says[3])
{
	while (kit.now < until) {
		size_t from = kit.u.len;
		kit_at(kit.now + 100);
		for (size_t i = from; i < kit.u.len; i++) {
			if (kit.u.at[i].kind == SESS_PROBE && says[kit.u.at[i].endpoint])
				heard(kit.u.at[i].endpoint, says[kit.u.at[i].endpoint] == 2);
		}
	}
}

static uint64_t last_sequence(void)
{
	uint64_t n = 0;
	for (size_t i = kit.at; i < kit.u.len; i++) {
		Holdfast__V1__SessionRequest *m;
		if (kit.u.at[i].kind != SESS_SEND)
			continue;
		m = holdfast__v1__session_request__unpack(NULL, kit.u.at[i].bytes.len, kit.u.at[i].bytes.ptr);
		if (m->request_case == HOLDFAST__V1__SESSION_REQUEST__REQUEST_KEEP_ALIVE)
			n = m->keep_alive->sequence;
		kit_sent_free(m);
	}
	return n;
}

START_TEST(place__who_is_heard_is_not_left)
{
	const int says[3] = { 1, 1, 1 };
	int silent[3] = { 1, 1, 1 };
	silent[third] = 0;
	pass(T0 + 11000, says);
	ck_assert(!kit_any(SESS_CONNECT));
	pass(T0 + 30000, silent); /* nor for one that is silent */
	ck_assert(!kit_any(SESS_CONNECT));
	ck_assert_int_eq(sess_state(kit.s), HF_JEOPARDY);
	kit_kept_alive(last_sequence(), 6, false); /* it has a leader again, and carries out what it was sent */
	ck_assert_int_eq(sess_state(kit.s), HF_SAFE);
}
END_TEST

/* All is well, and answered at once. */
static void live(uint64_t ms)
{
	for (uint64_t end = kit.now + ms; kit.now < end;) {
		kit_at(kit.now + 100);
		if (last_sequence() > answered)
			kit_kept_alive(answered = last_sequence(), 5, false);
	}
}

START_TEST(place__nobody_is_probed_while_all_is_well)
{
	live(40000);
	ck_assert_uint_ge(answered, 9);
	ck_assert(!kit_any(SESS_PROBE));
}
END_TEST

START_TEST(place__silence_is_left_for_who_was_heard)
{
	int says[3] = { 0, 0, 0 };
	says[_i ? other : third] = 1;
	pass(ASKED + PATIENCE - 500, says);
	ck_assert(!kit_any(SESS_CONNECT));
	pass(ASKED + PATIENCE + 100, says);
	ck_assert_uint_eq(kit_next(SESS_CONNECT)->endpoint, _i ? other : third);
	pass(ASKED + 12000, says); /* where it stays */
	ck_assert(!kit_any(SESS_CONNECT));
}
END_TEST

START_TEST(place__one_that_serves_is_better_than_one_that_lives)
{
	int says[3] = { 0, 0, 0 };
	says[other] = 1;
	says[third] = 2;
	pass(ASKED + PATIENCE + 100, says);
	ck_assert_uint_eq(kit_next(SESS_CONNECT)->endpoint, third);
}
END_TEST

START_TEST(place__one_that_is_cut_off_from_the_cell_is_left)
{
	int says[3] = { 0, 0, 0 };
	says[here] = 1;
	says[third] = 2;
	pass(ASKED + PATIENCE - 500, says);
	ck_assert(!kit_any(SESS_CONNECT));
	pass(ASKED + PATIENCE + 1300, says); /* by when it was probed again */
	ck_assert_uint_eq(kit_next(SESS_CONNECT)->endpoint, third);
}
END_TEST

START_TEST(place__one_that_says_it_serves_and_does_not_answer_is_left_later)
{
	const int says[3] = { 2, 2, 2 };
	pass(ASKED + 2 * PATIENCE - 500, says);
	ck_assert(!kit_any(SESS_CONNECT));
	pass(ASKED + 2 * PATIENCE + 1300, says);
	ck_assert_uint_ne(kit_next(SESS_CONNECT)->endpoint, here);
}
END_TEST

START_TEST(place__what_came_while_we_stood_still_is_read_first)
{
	const int says[3] = { 0, 0, 0 };
	uint64_t sequence;
	pass(ASKED + 200, says);
	sequence = last_sequence();
	kit.now += 6000; /* the process was stopped, and now its timer comes before what the replica has sent */
	kit_step((struct sess_event){ .kind = SESS_TICK });
	ck_assert(!kit_any(SESS_CONNECT));
	kit_kept_alive(sequence, 5, false);
	ck_assert_int_eq(sess_state(kit.s), HF_SAFE);
	ck_assert(!kit_any(SESS_CONNECT));
}
END_TEST

START_TEST(place__who_is_always_late_leaves_all_the_same)
{
	const int says[3] = { 0, 0, 0 };
	pass(ASKED + 200, says);
	for (int i = 0; i < 3; i++) { /* hardly any processor is left for us */
		kit.now = sess_next_ms(kit.s) + 1000;
		kit_step((struct sess_event){ .kind = SESS_TICK });
	}
	ck_assert_uint_ne(kit_next(SESS_CONNECT)->endpoint, here);
}
END_TEST

START_TEST(place__one_that_was_silent_is_the_last_to_be_tried)
{
	int says[3] = { 0, 0, 0 };
	says[here] = says[other] = 1;
	pass(ASKED + PATIENCE + 1000, says);
	for (int i = 0; i < 4; i++) { /* both refuse, and are tried again and again */
		kit_step((struct sess_event){ .kind = SESS_STREAM_ENDED, .stream = kit_stream(), .status = STATUS_UNAVAILABLE });
		kit_at(kit.now + 900);
		ck_assert_uint_ne(kit_next(SESS_CONNECT)->endpoint, third);
	}
	kit_open();
	/* It is forgotten when that was long ago. */
	live(20000);
	kit_step((struct sess_event){ .kind = SESS_STREAM_ENDED, .stream = kit_stream(), .status = STATUS_UNAVAILABLE });
	kit_step((struct sess_event){ .kind = SESS_STREAM_ENDED, .stream = kit_stream(), .status = STATUS_UNAVAILABLE });
	{
		uint32_t first = kit_next(SESS_CONNECT)->endpoint, second = kit_next(SESS_CONNECT)->endpoint;
		ck_assert(first == third || second == third);
	}
}
END_TEST

static int64_t attempt(void)
{
	Holdfast__V1__SessionRequest *m = kit_sent(HOLDFAST__V1__SESSION_REQUEST__REQUEST_RESUME);
	int64_t n = m->resume->attempt;
	kit_sent_free(m);
	return n;
}

START_TEST(place__each_try_has_a_higher_number)
{
	int64_t before = 1; /* what the cell gives the one that opened it */
	for (int i = 0; i < 3; i++) {
		int64_t n;
		kit_step((struct sess_event){ .kind = SESS_STREAM_ENDED, .stream = kit_stream(), .status = STATUS_UNAVAILABLE });
		kit_at(kit.now + 1000);
		n = attempt();
		ck_assert_int_gt(n, before);
		before = n;
	}
}
END_TEST

START_TEST(place__a_later_stream_of_somebody_else_counts_as_a_takeover)
{
	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(sess_state(kit.s), HF_SAFE);
		kit_step((struct sess_event){ .kind = SESS_STREAM_ENDED, .stream = kit_stream(), .status = STATUS_FAILED_PRECONDITION,
					      .text = slice_of_str(err_text(ERR_SESSION_SUPERSEDED)) });
		kit_at(kit.now + 500);
	}
	ck_assert_int_eq(sess_reason(kit.s), HF_REASON_TAKEN_OVER);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sess place");
	TCase *t = tcase_create("place");
	SRunner *r;
	int failed;
	tcase_add_checked_fixture(t, open_setup, kit_teardown);
	tcase_add_test(t, place__who_is_heard_is_not_left);
	tcase_add_test(t, place__nobody_is_probed_while_all_is_well);
	tcase_add_loop_test(t, place__silence_is_left_for_who_was_heard, 0, 2);
	tcase_add_test(t, place__one_that_serves_is_better_than_one_that_lives);
	tcase_add_test(t, place__one_that_is_cut_off_from_the_cell_is_left);
	tcase_add_test(t, place__one_that_says_it_serves_and_does_not_answer_is_left_later);
	tcase_add_test(t, place__what_came_while_we_stood_still_is_read_first);
	tcase_add_test(t, place__who_is_always_late_leaves_all_the_same);
	tcase_add_test(t, place__one_that_was_silent_is_the_last_to_be_tried);
	tcase_add_test(t, place__each_try_has_a_higher_number);
	tcase_add_test(t, place__a_later_stream_of_somebody_else_counts_as_a_takeover);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
