/* alarms_test.c: alarms, quotas, replicas that compare their states, and the first moments of a cell made from a backup; in small cells. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "core/alarm/alarm.h"
#include "core/store/store.h"
#include "etcd/rpc.pb-c.h"
#include "support/mini_answer.h"

enum { GET = 0, ACTIVATE = 1, DEACTIVATE = 2 };

static struct mini_cell *cell_with(struct mini_options o)
{
	struct mini_cell *m;

	o.seed = 5;
	o.disk_ms = o.net_ms = 1;
	m = mini_new(&o);
	mini_elect(m, 10000);
	mini_run(m, 300);
	return m;
}

static uint64_t alarm_call(struct mini_cell *m, size_t i, int action, member_id member, unsigned type)
{
	Etcdserverpb__AlarmRequest r = ETCDSERVERPB__ALARM_REQUEST__INIT;

	r.action = (Etcdserverpb__AlarmRequest__AlarmAction)action;
	r.memberid = member;
	r.alarm = (Etcdserverpb__AlarmType)type;
	return mini_request(m, i, METHOD_MAINTENANCE_ALARM, &r.base);
}

/* How many alarms the reply names. */
static size_t named(struct mini_cell *m, uint64_t tag)
{
	const struct mini_answer *a = answer_of(m, tag);
	Etcdserverpb__AlarmResponse *r = etcdserverpb__alarm_response__unpack(NULL, a->reply.len, a->reply.ptr);
	size_t n = r->n_alarms;

	ck_assert_int_eq(a->err, ERR_OK);
	etcdserverpb__alarm_response__free_unpacked(r, NULL);
	return n;
}

static struct core_status status_of(struct mini_cell *m, size_t i)
{
	struct core_status s;

	core_status(mini_core(m, i), &s);
	return s;
}

static size_t other(const struct mini_cell *m, size_t i)
{
	return i == 0 ? 1 : mini_leader(m) == 0 ? i == 1 ? 2 : 1 : 0;
}

/* ---- by hand ---- */

START_TEST(alarms__are_set_seen_and_cleared_by_any_replica)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 3 });

	ck_assert_uint_eq(named(m, alarm_call(m, 0, GET, 0, ALARM_NONE)), 0);
	ck_assert_uint_eq(named(m, alarm_call(m, 0, ACTIVATE, 5, ALARM_NOSPACE)), 1);
	ck_assert_uint_eq(named(m, alarm_call(m, 1, ACTIVATE, 5, ALARM_NOSPACE)), 1); /* once more changes nothing */
	ck_assert_uint_eq(named(m, alarm_call(m, 1, ACTIVATE, 6, ALARM_NOSPACE)), 1);
	ck_assert_uint_eq(named(m, alarm_call(m, 2, GET, 0, ALARM_NONE)), 2);
	ck_assert_uint_eq(named(m, alarm_call(m, 2, GET, 0, ALARM_CORRUPT)), 0);
	FAILS(m, mini_put(m, 0, "k", "v", 0), ERR_NO_SPACE);
	ck_assert_uint_eq(named(m, alarm_call(m, 2, DEACTIVATE, 7, ALARM_NOSPACE)), 0);
	ck_assert_uint_eq(named(m, alarm_call(m, 2, DEACTIVATE, 5, ALARM_NOSPACE)), 1);
	FAILS(m, mini_put(m, 0, "k", "v", 0), ERR_NO_SPACE);
	ck_assert_uint_eq(named(m, alarm_call(m, 0, DEACTIVATE, 0, ALARM_NONE)), 1);
	OK(m, mini_put(m, 0, "k", "v", 0));
	mini_run(m, 10000);
	ck_assert_uint_eq(named(m, alarm_call(m, 0, GET, 0, ALARM_NONE)), 0);
	mini_free(m);
}
END_TEST

START_TEST(alarms__without_a_type_are_refused_and_nothing_is_kept)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 1, .snapshot_count = 5 });

	FAILS(m, alarm_call(m, 0, ACTIVATE, 0, ALARM_NONE), ERR_ALARM_TYPE);
	FAILS(m, alarm_call(m, 0, ACTIVATE, 9, ALARM_NONE), ERR_ALARM_TYPE);
	ck_assert_uint_eq(named(m, alarm_call(m, 0, GET, 0, ALARM_NONE)), 0);
	for (int i = 0; i < 10; i++)
		OK(m, mini_put(m, 0, "k", "v", 0));
	mini_run(m, 100);
	mini_crash(m, 0);
	mini_restart(m, 0);
	mini_elect(m, 10000);
	OK(m, mini_put(m, 0, "k", "w", 0));
	mini_free(m);
}
END_TEST

/* The others have a quorum without the leader's disk, and answer before the leader itself has the alarm. Two keys are put then. */
static void change_and_put(struct mini_cell *m, size_t at, int action, uint64_t ret_put[2])
{
	size_t leader = mini_leader(m);

	mini_stall(m, leader, true);
	ck_assert_uint_eq(named(m, alarm_call(m, at, action, 5, ALARM_NOSPACE)), 1);
	ret_put[0] = mini_put(m, at, "a", "v", 0);
	ret_put[1] = mini_put(m, leader, "b", "v", 0);
	mini_run(m, 20);
	mini_stall(m, leader, false);
}

START_TEST(alarms__count_from_when_somebody_was_told)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 3 });
	size_t leader = mini_leader(m), at = other(m, leader);
	uint64_t put[2];

	change_and_put(m, at, ACTIVATE, put);
	for (int i = 0; i < 2; i++)
		FAILS(m, put[i], ERR_NO_SPACE);
	change_and_put(m, at, DEACTIVATE, put);
	for (int i = 0; i < 2; i++)
		OK(m, put[i]);
	ck_assert_uint_eq(mini_leader(m), leader);
	mini_free(m);
}
END_TEST

/* The next leader has it in its log, and does not know yet that it is committed. */
START_TEST(alarms__count_under_the_next_leader)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 3 });
	size_t leader = mini_leader(m), at = other(m, leader), next = 3 - leader - at;
	uint64_t raised, put[2];

	mini_stall(m, at, true);
	mini_stall(m, next, true);
	raised = alarm_call(m, at, ACTIVATE, 5, ALARM_NOSPACE);
	mini_run(m, 20);
	mini_cut(m, leader, next, true);
	mini_stall(m, at, false);
	mini_stall(m, next, false);
	ck_assert_uint_eq(named(m, raised), 1);
	mini_run(m, 10);
	mini_crash(m, leader);
	put[0] = mini_put(m, at, "a", "v", 0);
	put[1] = mini_put(m, next, "b", "v", 0);
	for (int i = 0; i < 100 && raft_role(core_raft(mini_core(m, next))) != RAFT_LEADER; i++) {
		mini_pause(m, at, true);
		mini_run(m, 1000);
		mini_pause(m, at, false);
		mini_run(m, 50);
	}
	for (int i = 0; i < 2; i++)
		FAILS(m, put[i], ERR_NO_SPACE);
	ck_assert_uint_eq(mini_leader(m), next);
	mini_free(m);
}
END_TEST

START_TEST(alarms__have_a_bound)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 1 });

	for (member_id id = 1; id <= ALARMS_MAX; id++)
		OK(m, alarm_call(m, 0, ACTIVATE, id, ALARM_CORRUPT));
	FAILS(m, alarm_call(m, 0, ACTIVATE, ALARMS_MAX + 1, ALARM_CORRUPT), ERR_TOO_MANY_REQUESTS);
	ck_assert_uint_eq(named(m, alarm_call(m, 0, DEACTIVATE, 0, ALARM_CORRUPT)), ALARMS_MAX);
	mini_free(m);
}
END_TEST

START_TEST(alarms__survive_a_snapshot_and_a_restart)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 1, .snapshot_count = 4 });

	OK(m, alarm_call(m, 0, ACTIVATE, 5, ALARM_NOSPACE));
	for (int i = 0; i < 10; i++)
		OK(m, mini_unlock(m, 0, "l/1"));
	mini_run(m, 100);
	mini_crash(m, 0);
	mini_restart(m, 0);
	mini_elect(m, 10000);
	ck_assert_uint_eq(named(m, alarm_call(m, 0, GET, 0, ALARM_NONE)), 1);
	FAILS(m, mini_put(m, 0, "k", "v", 0), ERR_NO_SPACE);
	mini_free(m);
}
END_TEST

START_TEST(alarms__of_a_corrupt_cell_leave_sessions_alive_and_refuse_the_rest)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 3 });

	OK(m, mini_grant(m, 0, 10, 600));
	OK(m, alarm_call(m, 0, ACTIVATE, 0, ALARM_CORRUPT));
	FAILS(m, mini_put(m, 0, "k", "v", 0), ERR_CLUSTER_CORRUPT);
	FAILS(m, mini_get(m, 0, "k", false), ERR_CLUSTER_CORRUPT);
	OK(m, mini_keep_alive(m, 0, 10));
	OK(m, alarm_call(m, 1, DEACTIVATE, 0, ALARM_CORRUPT));
	mini_run(m, 100);
	OK(m, mini_put(m, 0, "k", "v", 0));
	mini_free(m);
}
END_TEST

/* ---- the quota ---- */

static void fill(struct mini_cell *m, size_t i)
{
	char key[16];
	enum err e = ERR_OK;

	for (int n = 0; n < 10000 && !e; n++) {
		snprintf(key, sizeof key, "k%05d", n);
		e = answer_of(m, mini_put(m, i, key, "a value of some length, so that it takes some room", 0))->err;
	}
	ck_assert_str_eq(err_name(e), "ERR_NO_SPACE");
}

static void empty(struct mini_cell *m, size_t i)
{
	Etcdserverpb__DeleteRangeRequest d = ETCDSERVERPB__DELETE_RANGE_REQUEST__INIT;
	Etcdserverpb__CompactionRequest c = ETCDSERVERPB__COMPACTION_REQUEST__INIT;
	enum err e;

	d.key = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)"k", .len = 1 };
	d.range_end = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)"l", .len = 1 };
	OK(m, mini_request(m, i, METHOD_KV_DELETE_RANGE, &d.base));
	mini_run(m, 100);
	c.revision = core_state(mini_core(m, i))->revision;
	e = answer_of(m, mini_request(m, i, METHOD_KV_COMPACT, &c.base))->err;
	ck_assert(e == ERR_OK || e == ERR_COMPACTED); /* the leader may have been first: H2 */
}

START_TEST(quota__over_it_what_frees_and_what_renews_goes_on)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 3, .quota_bytes = 20000 });
	size_t l = mini_leader(m), f = other(m, l);

	OK(m, mini_grant(m, f, 10, 60));
	OK(m, mini_grant(m, f, 11, 60));
	OK(m, mini_lock(m, f, "l", 10));
	fill(m, f);
	mini_run(m, 300);
	ck_assert(status_of(m, l).no_space);
	ck_assert(status_of(m, l).quota_high);
	ck_assert(status_of(m, f).no_space);
	ck_assert_uint_eq(named(m, alarm_call(m, f, GET, 0, ALARM_NOSPACE)), 1);
	ck_assert_ptr_nonnull(alarm_find(core_state(mini_core(m, f)), ALARM_NOSPACE, mini_member(m, l)));
	FAILS(m, mini_grant(m, f, 12, 60), ERR_NO_SPACE);
	FAILS(m, mini_lock(m, f, "other", 11), ERR_NO_SPACE);
	OK(m, mini_keep_alive(m, f, 10));
	OK(m, mini_unlock(m, f, "l/a"));
	OK(m, mini_revoke(m, f, 11));
	OK(m, mini_get(m, f, "k00000", false));
	mini_run(m, 61000); /* leases end by themselves */
	ck_assert_uint_eq(status_of(m, l).leases, 0);
	empty(m, f);
	mini_run(m, 2000);
	ck_assert_uint_eq(named(m, alarm_call(m, f, GET, 0, ALARM_NOSPACE)), 0);
	ck_assert(!status_of(m, f).no_space);
	ck_assert(!status_of(m, f).quota_high);
	OK(m, mini_put(m, f, "k", "v", 0));
	mini_free(m);
}
END_TEST

START_TEST(quota__the_next_leader_clears_what_the_last_one_raised)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 3, .quota_bytes = 20000 });
	size_t l = mini_leader(m), n;

	fill(m, l);
	mini_run(m, 300);
	mini_crash(m, l);
	n = mini_elect(m, 10000);
	ck_assert_uint_eq(named(m, alarm_call(m, n, GET, 0, ALARM_NOSPACE)), 1);
	empty(m, n);
	mini_run(m, 2000);
	ck_assert_uint_eq(named(m, alarm_call(m, n, GET, 0, ALARM_NOSPACE)), 0);
	OK(m, mini_put(m, n, "k", "v", 0));
	mini_free(m);
}
END_TEST

START_TEST(quota__without_auto_clear_the_alarm_waits_for_a_command)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 1, .quota_bytes = 20000, .no_auto_clear = true });

	fill(m, 0);
	mini_run(m, 300);
	empty(m, 0);
	mini_run(m, 5000);
	FAILS(m, mini_put(m, 0, "k", "v", 0), ERR_NO_SPACE);
	ck_assert_uint_eq(named(m, alarm_call(m, 0, DEACTIVATE, mini_member(m, 0), ALARM_NOSPACE)), 1);
	OK(m, mini_put(m, 0, "k", "v", 0));
	mini_run(m, 5000);
	ck_assert_uint_eq(named(m, alarm_call(m, 0, GET, 0, ALARM_NONE)), 0);
	mini_free(m);
}
END_TEST

/* ---- replicas that differ ---- */

/* As a fault of memory would have it: a record that no entry of the log made. */
static void bend(struct mini_cell *m, size_t i)
{
	struct state *st = (struct state *)(uintptr_t)core_state(mini_core(m, i));

	ck_assert_int_eq(alarm_raise(st, ALARM_NOSPACE, 4711, false), ERR_OK);
}

static bool is_told(struct mini_cell *m, size_t i, member_id member)
{
	return alarm_find(core_state(mini_core(m, i)), ALARM_CORRUPT, member) != NULL;
}

START_TEST(compare__equal_replicas_raise_nothing)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 5, .compare_ms = 500, .snapshot_count = 50 });

	for (int i = 0; i < 200; i++) {
		mini_put(m, (size_t)i % 5, "k", "v", 0);
		mini_run(m, 20);
	}
	mini_crash(m, mini_leader(m));
	mini_elect(m, 10000);
	mini_run(m, 5000);
	for (size_t i = 0; i < 5; i++)
		if (mini_core(m, i))
			ck_assert_uint_eq(core_state(mini_core(m, i))->alarms.len, 0);
	mini_free(m);
}
END_TEST

START_TEST(compare__a_follower_that_differs_is_found_and_stops)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 3, .compare_ms = 1000, .may_differ = true });
	size_t l = mini_leader(m), f = other(m, l), third = 3 - l - f;

	OK(m, mini_put(m, l, "k", "v", 0));
	bend(m, f);
	mini_run(m, 3000);
	ck_assert_int_eq(mini_fatal(m, f), CORE_FATAL_DIFFERS);
	ck_assert_int_eq(mini_fatal(m, l), CORE_OK);
	ck_assert_int_eq(mini_fatal(m, third), CORE_OK);
	ck_assert(is_told(m, l, mini_member(m, f)));
	ck_assert(is_told(m, third, mini_member(m, f)));
	OK(m, mini_put(m, l, "k", "w", 0)); /* the two go on */
	mini_free(m);
}
END_TEST

START_TEST(compare__a_leader_that_differs_stops_and_the_others_go_on)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 3, .compare_ms = 1000, .may_differ = true });
	size_t l = mini_leader(m), n;

	bend(m, l);
	mini_run(m, 3000);
	ck_assert_int_eq(mini_fatal(m, l), CORE_FATAL_DIFFERS);
	mini_crash(m, l);
	n = mini_elect(m, 10000);
	OK(m, mini_put(m, n, "k", "w", 0));
	ck_assert_uint_eq(core_state(mini_core(m, n))->alarms.len, 0);
	mini_free(m);
}
END_TEST

START_TEST(compare__it_stops_again_after_a_restart_until_the_alarm_is_cleared)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 3, .compare_ms = 1000, .may_differ = true });
	size_t l = mini_leader(m), f = other(m, l);

	bend(m, f);
	mini_run(m, 3000);
	ck_assert_int_eq(mini_fatal(m, f), CORE_FATAL_DIFFERS);
	mini_crash(m, f);
	mini_restart(m, f);
	mini_run(m, 3000);
	ck_assert_int_eq(mini_fatal(m, f), CORE_FATAL_DIFFERS);
	/* Its log was right, and made a right state of it. */
	mini_crash(m, f);
	ck_assert_uint_eq(named(m, alarm_call(m, l, DEACTIVATE, mini_member(m, f), ALARM_CORRUPT)), 1);
	mini_restart(m, f);
	mini_run(m, 5000);
	ck_assert_int_eq(mini_fatal(m, f), CORE_OK);
	OK(m, mini_get(m, f, "k", false));
	mini_free(m);
}
END_TEST

START_TEST(compare__when_nobody_can_tell_nobody_serves)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 2, .compare_ms = 1000, .may_differ = true });
	size_t l = mini_leader(m);

	bend(m, 1 - l);
	mini_run(m, 4000);
	ck_assert_int_eq(mini_fatal(m, 0), CORE_OK);
	ck_assert_int_eq(mini_fatal(m, 1), CORE_OK);
	ck_assert(is_told(m, l, 0));
	FAILS(m, mini_put(m, l, "k", "v", 0), ERR_CLUSTER_CORRUPT);
	mini_free(m);
}
END_TEST

START_TEST(compare__too_few_answers_decide_nothing)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 3, .compare_ms = 1000, .may_differ = true });
	size_t l = mini_leader(m), f = other(m, l), third = 3 - l - f;

	mini_crash(m, third);
	bend(m, f);
	mini_run(m, 6000);
	ck_assert_int_eq(mini_fatal(m, f), CORE_OK);
	ck_assert_int_eq(mini_fatal(m, l), CORE_OK);
	mini_restart(m, third);
	mini_run(m, 6000);
	ck_assert_int_eq(mini_fatal(m, f), CORE_FATAL_DIFFERS);
	ck_assert_int_eq(mini_fatal(m, l), CORE_OK);
	mini_free(m);
}
END_TEST

/* ---- a restored cell ---- */

START_TEST(restored__the_first_leader_raises_the_revision_before_anything_else)
{
	const uint64_t unix_s = 1800000000;
	struct mini_cell *m = mini_new(&(struct mini_options){ .replicas = 3, .seed = 5, .disk_ms = 1, .net_ms = 1, .restored = true, .boot_unix_ms = unix_s * 1000 });
	uint64_t first = mini_put(m, 0, "k", "v", 0), second = mini_put(m, 1, "k", "w", 0);
	size_t l = mini_elect(m, 10000);

	OK(m, first);
	OK(m, second);
	mini_run(m, 300);
	for (size_t i = 0; i < 3; i++) {
		const struct state *st = core_state(mini_core(m, i));

		ck_assert_uint_eq(st->restored, 0);
		ck_assert_int_ge(st->compact_revision, (int64_t)(unix_s << 20));
		ck_assert_int_eq(st->revision, st->compact_revision + 2);
		ck_assert_uint_eq(state_hash(st), state_hash(core_state(mini_core(m, l))));
	}
	ck_assert_str_eq(mini_value(m, l, "k"), "w");
	mini_crash(m, l);
	l = mini_elect(m, 10000);
	OK(m, mini_put(m, l, "k", "x", 0));
	ck_assert_int_eq(core_state(mini_core(m, l))->revision, core_state(mini_core(m, l))->compact_revision + 3); /* once only */
	mini_free(m);
}
END_TEST

/* ---- the log of an idle cell ---- */

START_TEST(snapshot__an_idle_cell_is_trimmed_too)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 1, .snapshot_count = 20, .snapshot_keep = 5 });

	for (int i = 0; i < 30; i++)
		OK(m, mini_put(m, 0, "k", "v", 0));
	mini_run(m, 1000); /* nothing is written any more */
	ck_assert_uint_gt(mini_log_first(m, 0), 10);
	mini_free(m);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		alarms__are_set_seen_and_cleared_by_any_replica,
		alarms__without_a_type_are_refused_and_nothing_is_kept,
		alarms__count_from_when_somebody_was_told,
		alarms__count_under_the_next_leader,
		alarms__have_a_bound,
		alarms__survive_a_snapshot_and_a_restart,
		alarms__of_a_corrupt_cell_leave_sessions_alive_and_refuse_the_rest,
		quota__over_it_what_frees_and_what_renews_goes_on,
		quota__the_next_leader_clears_what_the_last_one_raised,
		quota__without_auto_clear_the_alarm_waits_for_a_command,
		compare__equal_replicas_raise_nothing,
		compare__a_follower_that_differs_is_found_and_stops,
		compare__a_leader_that_differs_stops_and_the_others_go_on,
		compare__it_stops_again_after_a_restart_until_the_alarm_is_cleared,
		compare__when_nobody_can_tell_nobody_serves,
		compare__too_few_answers_decide_nothing,
		restored__the_first_leader_raises_the_revision_before_anything_else,
		snapshot__an_idle_cell_is_trimmed_too,
	};
	Suite *s = suite_create("alarms");
	TCase *tc = tcase_create("alarms");
	SRunner *sr;
	int failed;

	for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
		tcase_add_test(tc, tests[i]);
	tcase_set_timeout(tc, 120);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
