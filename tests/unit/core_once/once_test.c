/* once_test.c: the table of results by itself: who asks for a place by which ID, and what each ID is told when a call ends. */
#include "core/once/once.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/lease/lease.h"
#include "support/damage.h"

enum { SESSION = 10, PLACE = 20, LEASE = 30 };

static struct state state;
static struct lessor *ls;
static struct once *o;

static void setup(void)
{
	state = (struct state){ .revision = 1 };
	tree_init(&state.leases, &lease_record_type);
	tree_init(&state.sessions, &session_record_type);
	tree_init(&state.results, &result_record_type);
	ls = lessor_new(&state, 2);
	o = once_new(&state);
	ck_assert_int_eq(lease_grant(ls, SESSION, 60, 0, NULL), ERR_OK);
}

static void teardown(void)
{
	once_check(o);
	once_free(o);
	lessor_free(ls);
	tree_deinit(&state.results);
	tree_deinit(&state.sessions);
	tree_deinit(&state.leases);
}

/* ---- words: a request is asked by a call `MEMBER.CALL`, and so on ---- */

static struct call_id call(uint64_t member, uint64_t number)
{
	return (struct call_id){ .member = member, .boot = 1, .call = number };
}

static bool lives(void *ctx, const struct result_record *r)
{
	(void)ctx;
	(void)r;
	return true;
}

/* It comes for the first time, and joins or finds that place. */
static void joins(uint64_t request, lease_id lease, struct call_id by)
{
	struct once_id id = { .session = SESSION, .request = request };
	const struct result_record *known = NULL;

	ck_assert_int_eq(once_begin(o, &id, 8, &known), ERR_OK);
	ck_assert_ptr_null(known);
	once_keep(o, &id, &(struct once_outcome){
		.kind = 8,
		.reply = slice_of_str("l/1e"),
		.token = PLACE,
		.lease = lease,
		.calls = &by,
		.calls_len = 1,
	}, lives, NULL);
}

static void again(uint64_t request, struct call_id by, bool alone)
{
	struct once_id id = { .session = SESSION, .request = request };
	const struct result_record *known = NULL;

	ck_assert_int_eq(once_begin(o, &id, 8, &known), ERR_OK);
	ck_assert_ptr_nonnull(known);
	once_ask(o, known, by, alone);
	once_check(o);
}

static void ended(struct call_id c, bool bound_is_over, bool place_goes)
{
	once_call_ended(o, PLACE, LEASE, &(struct once_end){ .call = c, .bound_is_over = bound_is_over, .place_goes = place_goes });
	once_check(o);
}

/* What it is told: "undone", an error, or who asks by it for the place that it names. */
static void assert_told(uint64_t request, const char *want)
{
	const struct result_record *r = once_find(o, SESSION, request);
	struct call_id calls[ONCE_CALLS_MAX];
	size_t n = r ? result_calls(r, calls) : 0;
	char text[128] = "place:";

	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(text);

		snprintf(text + len, sizeof(text) - len, " %u.%u", (unsigned)calls[i].member, (unsigned)calls[i].call);
	}
	ck_assert_str_eq(!r ? "undone" : r->err ? err_name(r->err) : text, want);
	ck_assert_int_eq(once_is_undone(o, SESSION, request), !r);
	if (r && !r->err) {
		ck_assert(slice_eq(result_reply(r), slice_of_str("l/1e")));
		ck_assert_int_eq(r->token, PLACE);
	}
}

/* ---- one request ---- */

START_TEST(once__time_is_up_with_its_last_call)
{
	joins(1, LEASE, call(1, 5));
	again(1, call(2, 6), false);
	assert_told(1, "place: 1.5 2.6");
	ended(call(1, 5), true, false);
	assert_told(1, "place: 2.6");
	ended(call(2, 6), true, true);
	assert_told(1, "ERR_LOCK_WAIT_TIMEOUT");
	ck_assert_int_eq(once_find(o, SESSION, 1)->token, 0);
}
END_TEST

START_TEST(once__it_is_undone_with_its_last_call)
{
	joins(1, LEASE, call(1, 5));
	again(1, call(2, 6), false);
	ended(call(2, 6), false, false);
	assert_told(1, "place: 1.5");
	ended(call(1, 5), false, true);
	assert_told(1, "undone");
	joins(1, LEASE, call(3, 7)); /* anew */
}
END_TEST

START_TEST(once__a_call_that_takes_over_asks_alone)
{
	joins(1, LEASE, call(1, 5));
	again(1, call(2, 6), true);
	assert_told(1, "place: 2.6");
	again(1, call(2, 6), true);
	again(1, call(2, 6), false);
	assert_told(1, "place: 2.6");
	ended(call(1, 5), true, false); /* it has nothing to say any more */
	assert_told(1, "place: 2.6");
	ended(call(2, 6), true, true);
	assert_told(1, "ERR_LOCK_WAIT_TIMEOUT");
}
END_TEST

START_TEST(once__of_too_many_the_oldest_of_the_same_replica_counts_no_more)
{
	joins(1, LEASE, call(1, 5));
	again(1, call(2, 6), false);
	again(1, call(3, 7), false);
	again(1, call(2, 8), false);
	again(1, call(2, 9), false);
	assert_told(1, "place: 1.5 3.7 2.8 2.9");
	again(1, call(4, 9), false);
	assert_told(1, "place: 3.7 2.8 2.9 4.9");
}
END_TEST

/* ---- several requests for one place ---- */

/* Whose bound it is hears so, whether the place lasts or goes; nobody else does. */
START_TEST(once__the_bound_of_one_is_no_others)
{
	joins(1, LEASE, call(1, 5));
	joins(2, LEASE, call(1, 6));
	joins(3, LEASE, call(2, 7));
	ended(call(1, 6), true, false);
	assert_told(1, "place: 1.5");
	assert_told(2, "ERR_LOCK_WAIT_TIMEOUT");
	assert_told(3, "place: 2.7");
	ended(call(2, 7), true, true);
	assert_told(1, "place: 1.5"); /* which is gone, and that is what it is told; it was taken over from, or was given up later */
	assert_told(2, "ERR_LOCK_WAIT_TIMEOUT");
	assert_told(3, "ERR_LOCK_WAIT_TIMEOUT");
}
END_TEST

/* Given up while another keeps the place, it names that as long as it is there, and is undone with it. */
START_TEST(once__given_up_beside_another)
{
	joins(1, LEASE, call(1, 5));
	joins(2, LEASE, call(1, 6));
	ended(call(1, 5), false, false);
	assert_told(1, "place:");
	ended(call(1, 6), true, true);
	assert_told(1, "undone");
	assert_told(2, "ERR_LOCK_WAIT_TIMEOUT");
}
END_TEST

/* The same when nothing is kept any more of the one whose bound it is. */
START_TEST(once__the_window_has_moved_past_one)
{
	struct once_id id = { .session = SESSION, .request = 2, .first_unanswered = 2 };
	const struct result_record *known;

	joins(1, LEASE, call(1, 5));
	joins(2, LEASE, call(1, 6));
	ck_assert_int_eq(once_begin(o, &id, 8, &known), ERR_OK);
	ck_assert_ptr_null(once_find(o, SESSION, 1));
	ck_assert(!once_is_undone(o, SESSION, 1));
	ended(call(1, 6), false, false);
	ended(call(1, 5), true, true);
	assert_told(2, "undone");
}
END_TEST

START_TEST(once__given_up_and_asked_again_beside_another)
{
	joins(1, LEASE, call(1, 5));
	joins(2, LEASE, call(1, 6));
	ended(call(1, 5), false, false);
	again(1, call(3, 7), false);
	ended(call(1, 6), false, false);
	assert_told(2, "place:");
	ended(call(3, 7), false, true);
	assert_told(1, "undone");
	assert_told(2, "undone");
}
END_TEST

/* A transaction may create contenders of several leases at one revision. */
START_TEST(once__a_place_of_the_same_revision_is_another)
{
	joins(1, LEASE, call(1, 5));
	joins(2, LEASE + 1, call(1, 6));
	joins(3, LEASE, call(1, 7));
	once_undo_place(o, PLACE, LEASE);
	assert_told(1, "undone");
	assert_told(2, "place: 1.6");
	assert_told(3, "undone");
	once_undo_place(o, PLACE + 1, LEASE + 1);
	assert_told(2, "place: 1.6");
}
END_TEST

START_TEST(once__many_for_one_place)
{
	for (uint64_t r = 1; r <= ONCE_RESULTS_MAX; r++)
		joins(r, LEASE, call(1, r));
	for (uint64_t r = 1; r < ONCE_RESULTS_MAX; r++)
		ended(call(1, r), r % 2, false);
	ended(call(1, ONCE_RESULTS_MAX), true, true);
	for (uint64_t r = 1; r <= ONCE_RESULTS_MAX; r++)
		assert_told(r, r % 2 || r == ONCE_RESULTS_MAX ? "ERR_LOCK_WAIT_TIMEOUT" : "undone");
}
END_TEST

/* ---- the record ---- */

static uint64_t hash_of(uint64_t request)
{
	return result_record_type.hash(&once_find(o, SESSION, request)->base);
}

/* The name of its lock is longer than what is kept: that is what it goes on to be told. */
START_TEST(once__what_is_too_large_stays_so)
{
	struct once_id id = { .session = SESSION, .request = 1 };
	const struct result_record *known = NULL;
	struct call_id by = call(1, 1);
	struct buf key = { 0 };

	buf_reserve(&key, ONCE_RESULT_BYTES_MAX + 1);
	memset(key.ptr, 'l', ONCE_RESULT_BYTES_MAX + 1);
	key.len = ONCE_RESULT_BYTES_MAX + 1;
	ck_assert_int_eq(once_begin(o, &id, 8, &known), ERR_OK);
	once_keep(o, &id, &(struct once_outcome){ .kind = 8, .reply = buf_view(&key), .token = PLACE, .lease = LEASE, .calls = &by, .calls_len = 1 }, lives, NULL);
	ck_assert(once_find(o, SESSION, 1)->too_large);
	ended(by, false, false);
	ck_assert(once_find(o, SESSION, 1)->too_large);
	ended(call(1, 2), true, true);
	ck_assert(once_find(o, SESSION, 1)->too_large);
	buf_free(&key);
}
END_TEST

START_TEST(once__calls_are_part_of_the_state)
{
	struct tree_record *copy;
	struct buf bytes = { 0 };
	uint64_t before, one;

	joins(1, LEASE, call(1, 5));
	one = hash_of(1);
	before = state.results.hash;
	again(1, call(2, 5), false);
	ck_assert_uint_ne(hash_of(1), one);
	ck_assert_uint_ne(state.results.hash, before);
	result_record_type.encode(&once_find(o, SESSION, 1)->base, &bytes);
	ck_assert_int_eq(result_record_type.decode(buf_view(&bytes), &copy), ERR_OK);
	ck_assert_uint_eq(result_record_type.hash(copy), hash_of(1));
	tree_put_take(&state.results, copy);
	once_rebuild(o);
	assert_told(1, "place: 1.5 2.5");
	buf_free(&bytes);
}
END_TEST

START_TEST(once__damaged_records_are_refused_or_canonical)
{
	struct once_id id = { .session = SESSION, .request = 2 };

	joins(1, LEASE, call(1, 5));
	again(1, call(1, 4), false); /* a bit from the first, which would be twice the same */
	once_keep(o, &id, &(struct once_outcome){ .kind = 8, .err = ERR_LOCK_HELD, .details = slice_of_str("who") }, lives, NULL);
	for (uint64_t request = 1; request <= 2; request++)
		damage_is_refused_or_canonical(&result_record_type, &once_find(o, SESSION, request)->base);
}
END_TEST

/* What no command leaves: calls of no place, the same call twice, more than there is room for. */
START_TEST(once__records_that_nobody_writes_are_refused)
{
	struct buf bytes = { 0 };
	struct tree_record *r;
	enum { TOKEN_AT = 16, CALLS_LEN_AT = 47, CALL_BYTES = 24 };

	joins(1, LEASE, call(1, 5));
	again(1, call(1, 4), false);
	result_record_type.encode(&once_find(o, SESSION, 1)->base, &bytes);
	bytes.ptr[bytes.len - 1] = 5;
	ck_assert_int_eq(result_record_type.decode(buf_view(&bytes), &r), ERR_CORRUPT);
	bytes.ptr[bytes.len - 1] = 4;
	memset(bytes.ptr + TOKEN_AT, 0, 8);
	ck_assert_int_eq(result_record_type.decode(buf_view(&bytes), &r), ERR_CORRUPT);
	bytes.ptr[TOKEN_AT + 7] = PLACE;
	ck_assert_int_eq(result_record_type.decode(buf_view(&bytes), &r), ERR_OK);
	result_record_type.free(r);
	bytes.ptr[CALLS_LEN_AT] = ONCE_CALLS_MAX + 1;
	for (uint8_t i = 3; i <= ONCE_CALLS_MAX + 1; i++) {
		uint8_t more[CALL_BYTES] = { i };

		buf_append(&bytes, more, sizeof(more));
	}
	ck_assert_int_eq(result_record_type.decode(buf_view(&bytes), &r), ERR_CORRUPT);
	buf_free(&bytes);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("once");
	TCase *t = tcase_create("once");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, once__time_is_up_with_its_last_call);
	tcase_add_test(t, once__it_is_undone_with_its_last_call);
	tcase_add_test(t, once__a_call_that_takes_over_asks_alone);
	tcase_add_test(t, once__of_too_many_the_oldest_of_the_same_replica_counts_no_more);
	tcase_add_test(t, once__the_bound_of_one_is_no_others);
	tcase_add_test(t, once__given_up_beside_another);
	tcase_add_test(t, once__the_window_has_moved_past_one);
	tcase_add_test(t, once__given_up_and_asked_again_beside_another);
	tcase_add_test(t, once__a_place_of_the_same_revision_is_another);
	tcase_add_test(t, once__many_for_one_place);
	tcase_add_test(t, once__what_is_too_large_stays_so);
	tcase_add_test(t, once__calls_are_part_of_the_state);
	tcase_add_test(t, once__damaged_records_are_refused_or_canonical);
	tcase_add_test(t, once__records_that_nobody_writes_are_refused);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
