/* lessor_test.c: leases by example, one behaviour a test. lessor_model_test.c does the same at random. */
#include "core/lease/lease.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

static struct state state;
static struct lessor *ls;

static void setup(void)
{
	state = (struct state){ .revision = 1 };
	tree_init(&state.leases, &lease_record_type);
	ls = lessor_new(&state, 2);
}

static void teardown(void)
{
	lessor_check(ls);
	lessor_free(ls);
	tree_deinit(&state.leases);
}

static void grant(lease_id id, int64_t ttl_s, time_ms now)
{
	ck_assert_int_eq(lease_grant(ls, id, ttl_s, now, NULL), ERR_OK);
}

static struct slice str(const char *s)
{
	return slice_of_str(s);
}

/* The IDs that come due, as text. */
static const char *close_due(time_ms now)
{
	static char text[256];
	lease_id ids[16];
	size_t n = lessor_close_due(ls, now, ids, 16), len = 0;

	text[0] = '\0';
	for (size_t i = 0; i < n; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%" PRId64, i ? " " : "", ids[i]);
	lessor_check(ls);
	return text;
}

/* ---- what is replicated ---- */

START_TEST(lessor__grant_answers_as_etcd_does)
{
	static const struct {
		const char *name;
		lease_id id;
		int64_t ttl_s;
		enum err want;
		int64_t want_ttl;
	} cases[] = {
		{ "a plain one", 7, 60, ERR_OK, 60 },
		{ "the same ID again", 7, 60, ERR_LEASE_EXISTS, 0 },
		{ "below the minimum it is raised", 8, 1, ERR_OK, 2 },
		{ "zero too", 9, 0, ERR_OK, 2 },
		{ "and less than that", 10, -5, ERR_OK, 2 },
		{ "the longest", 11, LEASE_TTL_MAX_S, ERR_OK, LEASE_TTL_MAX_S },
		{ "longer", 12, LEASE_TTL_MAX_S + 1, ERR_LEASE_TTL_TOO_LARGE, 0 },
		{ "much longer", 12, INT64_MAX, ERR_LEASE_TTL_TOO_LARGE, 0 },
		{ "too long before existing", 7, INT64_MAX, ERR_LEASE_TTL_TOO_LARGE, 0 },
		{ "no lease", 0, 60, ERR_LEASE_NOT_FOUND, 0 },
		{ "a negative ID", -3, 60, ERR_OK, 60 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int64_t ttl = 0;

		ck_assert_msg(lease_grant(ls, cases[i].id, cases[i].ttl_s, 0, &ttl) == cases[i].want, "%s", cases[i].name);
		ck_assert_msg(ttl == cases[i].want_ttl, "%s", cases[i].name);
		if (cases[i].want == ERR_OK)
			ck_assert_int_eq(lease_find(ls, cases[i].id)->ttl_s, cases[i].want_ttl);
	}
	ck_assert_uint_eq(lessor_count(ls), 6);
}
END_TEST

START_TEST(lessor__a_removed_lease_is_gone_and_its_id_free)
{
	grant(7, 60, 0);
	ck_assert_int_eq(lease_remove(ls, 7), ERR_OK);
	ck_assert_ptr_null(lease_find(ls, 7));
	ck_assert_int_eq(lease_remove(ls, 7), ERR_LEASE_NOT_FOUND);
	ck_assert_int_eq(lessor_remaining_s(ls, 7, 0), -1);
	grant(7, 30, 0);
	ck_assert_int_eq(lease_find(ls, 7)->ttl_s, 30);
}
END_TEST

START_TEST(lessor__keys_come_in_order_and_stay_with_their_lease)
{
	struct slice k = { 0 };

	grant(7, 60, 0);
	grant(8, 60, 0);
	grant(9, 60, 0);
	lease_attach(ls, 7, str("b"));
	lease_attach(ls, 7, str("a"));
	lease_attach(ls, 7, slice_of("a\0", 2));
	lease_attach(ls, 7, str("a")); /* once more changes nothing */
	lease_attach(ls, 9, str("0"));
	ck_assert_uint_eq(lease_key_count(ls, 7), 3);
	k = lease_next_key(ls, 7, k);
	ck_assert(slice_eq(k, str("a")));
	k = lease_next_key(ls, 7, k);
	ck_assert(slice_eq(k, slice_of("a\0", 2)));
	k = lease_next_key(ls, 7, k);
	ck_assert(slice_eq(k, str("b")));
	ck_assert_ptr_null(lease_next_key(ls, 7, k).ptr);
	ck_assert_ptr_null(lease_next_key(ls, 8, (struct slice){ 0 }).ptr);
	ck_assert(slice_eq(lease_next_key(ls, 7, str("aa")), str("b")));
	lease_detach(ls, 7, str("a"));
	lease_detach(ls, 7, str("never there"));
	lease_detach(ls, 10, str("no such lease"));
	ck_assert_uint_eq(lease_key_count(ls, 7), 2);
}
END_TEST

START_TEST(lessor__one_lease_may_have_very_many_keys)
{
	char key[32];
	struct slice k = { 0 };
	uint64_t n = 0;

	grant(7, 60, 0);
	for (int i = 0; i < 100000; i++) {
		snprintf(key, sizeof(key), "key/%d", i * 7919 % 100003); /* each once, in no order */
		lease_attach(ls, 7, str(key));
	}
	ck_assert_uint_eq(lease_key_count(ls, 7), 100000);
	while ((k = lease_next_key(ls, 7, k)).ptr)
		n++;
	ck_assert_uint_eq(n, 100000);
	while ((k = lease_next_key(ls, 7, (struct slice){ 0 })).ptr) {
		memcpy(key, k.ptr, k.len);
		lease_detach(ls, 7, slice_of(key, k.len));
	}
	ck_assert_uint_eq(lease_key_count(ls, 7), 0);
	ck_assert_int_eq(lease_remove(ls, 7), ERR_OK);
}
END_TEST

START_TEST(lessor__a_record_survives_its_encoding)
{
	static const lease_id ids[] = { 1, INT64_MAX, -1, INT64_MIN };

	for (size_t i = 0; i < 4; i++) {
		struct buf a = { 0 }, b = { 0 };
		struct tree_record *r = NULL;
		const struct tree_record *was;

		grant(ids[i], 60, 0);
		was = &lease_find(ls, ids[i])->base;
		lease_record_type.encode(was, &a);
		ck_assert_int_eq(lease_record_type.decode(buf_view(&a), &r), ERR_OK);
		lease_record_type.encode(r, &b);
		ck_assert(slice_eq(buf_view(&a), buf_view(&b)));
		ck_assert_uint_eq(lease_record_type.hash(was), lease_record_type.hash(r));
		ck_assert(slice_eq(lease_record_type.key(was), lease_record_type.key(r)));
		lease_record_type.free(r);
		buf_free(&a);
		buf_free(&b);
	}
}
END_TEST

START_TEST(lessor__damaged_records_are_refused)
{
	uint8_t bytes[17] = { [7] = 7, [15] = 60 };
	struct tree_record *r;

	for (size_t len = 0; len <= 17; len++) {
		ck_assert_int_eq(lease_record_type.decode(slice_of(bytes, len), &r), len == 16 ? ERR_OK : ERR_CORRUPT);
		if (len == 16)
			lease_record_type.free(r);
	}
	bytes[7] = 0; /* ID 0 */
	ck_assert_int_eq(lease_record_type.decode(slice_of(bytes, 16), &r), ERR_CORRUPT);
	bytes[7] = 7;
	bytes[15] = 0; /* TTL 0 */
	ck_assert_int_eq(lease_record_type.decode(slice_of(bytes, 16), &r), ERR_CORRUPT);
	bytes[8] = 0x80; /* a negative one */
	ck_assert_int_eq(lease_record_type.decode(slice_of(bytes, 16), &r), ERR_CORRUPT);
}
END_TEST

START_TEST(lessor__a_new_state_is_taken_up_without_deadlines)
{
	grant(7, 60, 0);
	lease_attach(ls, 7, str("a"));
	lessor_promote(ls, 1000);
	lessor_rebuild_begin(ls);
	ck_assert_uint_eq(lessor_next_deadline(ls), TIME_NEVER);
	ck_assert_uint_eq(lease_key_count(ls, 7), 0);
	lease_attach(ls, 7, str("a"));
	lessor_promote(ls, 2000);
	ck_assert_uint_eq(lessor_next_deadline(ls), 62000);
}
END_TEST

/* ---- what the leader thinks ---- */

START_TEST(lessor__who_does_not_lead_has_no_deadlines)
{
	lease_id id;

	grant(7, 60, 0);
	ck_assert_uint_eq(lessor_next_deadline(ls), TIME_NEVER);
	ck_assert_int_eq(lessor_renew(ls, 7, 0, NULL), ERR_NOT_LEADER);
	ck_assert_uint_eq(lessor_close_due(ls, TIME_NEVER - 1, &id, 1), 0);
	lessor_end_refused(ls, 7);
	lessor_shift(ls, 1000);
}
END_TEST

START_TEST(lessor__a_new_leader_gives_a_full_ttl)
{
	grant(7, 60, 0);
	lessor_promote(ls, 5000);
	grant(8, 10, 6000);
	ck_assert_uint_eq(lessor_next_deadline(ls), 16000);
	ck_assert_int_eq(lessor_remaining_s(ls, 7, 5000), 60);
	ck_assert_int_eq(lessor_remaining_s(ls, 7, 5001), 59);
	ck_assert_str_eq(close_due(64999), "8");
	lessor_demote(ls);
	lessor_promote(ls, 100000);
	ck_assert_int_eq(lessor_remaining_s(ls, 8, 100000), 10);
}
END_TEST

START_TEST(lessor__a_renewal_moves_the_deadline_and_nothing_else)
{
	int64_t ttl = 0;

	lessor_promote(ls, 0);
	grant(7, 10, 0);
	grant(8, 10, 1);
	ck_assert_int_eq(lessor_renew(ls, 7, 9999, &ttl), ERR_OK);
	ck_assert_int_eq(ttl, 10);
	ck_assert_uint_le(lessor_next_deadline(ls), 10001); /* may be early */
	ck_assert_str_eq(close_due(10000), "");
	ck_assert_str_eq(close_due(10001), "8");
	ck_assert_uint_eq(lessor_next_deadline(ls), 19999);
	ck_assert_str_eq(close_due(19998), "");
	ck_assert_str_eq(close_due(19999), "7");
	ck_assert_int_eq(lessor_renew(ls, 99, 20000, &ttl), ERR_LEASE_NOT_FOUND);
}
END_TEST

/* L3: were it renewed after its end was proposed, its owner would think itself alive while the log kills it. */
START_TEST(lessor__a_closed_lease_is_never_renewed)
{
	lessor_promote(ls, 0);
	grant(7, 10, 0);
	ck_assert_str_eq(close_due(10000), "7");
	ck_assert_int_eq(lessor_renew(ls, 7, 10000, NULL), ERR_BUSY);
	ck_assert_str_eq(close_due(99999), "");
	lessor_shift(ls, 1000000);
	ck_assert_int_eq(lessor_renew(ls, 7, 99999, NULL), ERR_BUSY);
	ck_assert_int_eq(lessor_remaining_s(ls, 7, 99999), 0);
	ck_assert_int_eq(lease_remove(ls, 7), ERR_OK);
	ck_assert_int_eq(lessor_renew(ls, 7, 99999, NULL), ERR_LEASE_NOT_FOUND);
}
END_TEST

START_TEST(lessor__a_keep_alive_that_comes_too_late_closes_the_lease)
{
	lessor_promote(ls, 0);
	grant(7, 10, 0);
	ck_assert_int_eq(lessor_renew(ls, 7, 10000, NULL), ERR_BUSY);
	ck_assert_uint_le(lessor_next_deadline(ls), 10000);
	lessor_shift(ls, 5000);
	ck_assert_int_eq(lessor_renew(ls, 7, 10000, NULL), ERR_BUSY);
	ck_assert_str_eq(close_due(10000), "7");
	ck_assert_str_eq(close_due(10000), "");
}
END_TEST

START_TEST(lessor__a_refused_end_comes_once_more_but_does_not_spin)
{
	lessor_promote(ls, 0);
	grant(7, 10, 0);
	ck_assert_str_eq(close_due(10000), "7");
	ck_assert_uint_eq(lessor_next_deadline(ls), TIME_NEVER);
	lessor_end_refused(ls, 7);
	lessor_end_refused(ls, 7);
	ck_assert_uint_gt(lessor_next_deadline(ls), 10000);
	ck_assert_uint_le(lessor_next_deadline(ls), 10100);
	ck_assert_str_eq(close_due(10000), "7");
	ck_assert_str_eq(close_due(10000), "");
	lessor_end_refused(ls, 7);
	ck_assert_int_eq(lease_remove(ls, 7), ERR_OK); /* somebody revoked it meanwhile */
	ck_assert_str_eq(close_due(10000), "");
	lessor_end_refused(ls, 7);
}
END_TEST

START_TEST(lessor__the_soonest_of_those_due_counts)
{
	lessor_promote(ls, 0);
	grant(7, 10, 0);
	grant(8, 11, 0);
	ck_assert_str_eq(close_due(10999), "7");
	lessor_end_refused(ls, 7);
	ck_assert_uint_gt(lessor_next_deadline(ls), 10999);
	ck_assert_int_eq(lessor_renew(ls, 8, 11000, NULL), ERR_BUSY);
	ck_assert_uint_le(lessor_next_deadline(ls), 11000);
	ck_assert_str_eq(close_due(11000), "7 8");
}
END_TEST

START_TEST(lessor__a_pause_of_ours_ends_nobody)
{
	lessor_promote(ls, 0);
	grant(7, 10, 0);
	lessor_shift(ls, 60000);
	ck_assert_str_eq(close_due(69999), "");
	ck_assert_int_eq(lessor_renew(ls, 7, 1000, NULL), ERR_OK); /* L5: not earlier than it was */
	ck_assert_str_eq(close_due(69999), "");
	ck_assert_str_eq(close_due(70000), "7");
}
END_TEST

START_TEST(lessor__time_does_not_overflow)
{
	lessor_promote(ls, TIME_NEVER - 5000);
	grant(7, LEASE_TTL_MAX_S, TIME_NEVER - 5000);
	grant(8, 2, TIME_NEVER - 5000);
	lessor_shift(ls, TIME_NEVER);
	ck_assert_str_eq(close_due(TIME_NEVER - 2), "");
}
END_TEST

START_TEST(lessor__the_earliest_go_first_and_no_more_than_asked_for)
{
	lease_id ids[3];

	lessor_promote(ls, 0);
	for (int i = 0; i < 6; i++)
		grant(100 + i, 10 + (i * 5) % 6, 0);
	ck_assert_uint_eq(lessor_close_due(ls, 20000, ids, 3), 3);
	ck_assert_int_eq(ids[0], 100); /* 10 s */
	ck_assert_int_eq(ids[1], 105); /* 11 s */
	ck_assert_int_eq(ids[2], 104);
	ck_assert_uint_le(lessor_next_deadline(ls), 20000);
	ck_assert_str_eq(close_due(20000), "103 102 101");
}
END_TEST

/* All of them lie in the heap under one old deadline: the work of putting them right is cut into pieces, and nobody is lost. */
START_TEST(lessor__very_many_may_come_due_at_once)
{
	enum { MANY = 50000 };
	lease_id *ids = mem_alloc(MANY * sizeof(*ids));
	size_t n = 0, calls = 0;

	for (int i = 1; i <= MANY; i++)
		grant(i, 10, 0);
	lessor_promote(ls, 0);
	for (int i = 1; i <= MANY; i++)
		ck_assert_int_eq(lessor_renew(ls, i, 5000, NULL), ERR_OK);
	while (lessor_next_deadline(ls) <= 10000) {
		ck_assert_uint_eq(lessor_close_due(ls, 10000, ids, MANY), 0);
		ck_assert_uint_lt(calls++, 10);
	}
	while (lessor_next_deadline(ls) <= 15000)
		n += lessor_close_due(ls, 15000, ids + n, 1000);
	ck_assert_uint_eq(n, MANY);
	free(ids);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lessor");
	TCase *replicated = tcase_create("replicated"), *leader = tcase_create("leader");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(replicated, setup, teardown);
	tcase_add_test(replicated, lessor__grant_answers_as_etcd_does);
	tcase_add_test(replicated, lessor__a_removed_lease_is_gone_and_its_id_free);
	tcase_add_test(replicated, lessor__keys_come_in_order_and_stay_with_their_lease);
	tcase_add_test(replicated, lessor__one_lease_may_have_very_many_keys);
	tcase_add_test(replicated, lessor__a_record_survives_its_encoding);
	tcase_add_test(replicated, lessor__damaged_records_are_refused);
	tcase_add_test(replicated, lessor__a_new_state_is_taken_up_without_deadlines);
	tcase_set_timeout(replicated, 60);
	suite_add_tcase(s, replicated);
	tcase_add_checked_fixture(leader, setup, teardown);
	tcase_add_test(leader, lessor__who_does_not_lead_has_no_deadlines);
	tcase_add_test(leader, lessor__a_new_leader_gives_a_full_ttl);
	tcase_add_test(leader, lessor__a_renewal_moves_the_deadline_and_nothing_else);
	tcase_add_test(leader, lessor__a_closed_lease_is_never_renewed);
	tcase_add_test(leader, lessor__a_keep_alive_that_comes_too_late_closes_the_lease);
	tcase_add_test(leader, lessor__a_refused_end_comes_once_more_but_does_not_spin);
	tcase_add_test(leader, lessor__the_soonest_of_those_due_counts);
	tcase_add_test(leader, lessor__a_pause_of_ours_ends_nobody);
	tcase_add_test(leader, lessor__time_does_not_overflow);
	tcase_add_test(leader, lessor__the_earliest_go_first_and_no_more_than_asked_for);
	tcase_add_test(leader, lessor__very_many_may_come_due_at_once);
	tcase_set_timeout(leader, 60);
	suite_add_tcase(s, leader);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
