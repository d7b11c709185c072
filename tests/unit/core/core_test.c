/* core_test.c: the core as a whole, in small cells: each case a story. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "core/member/member.h"
#include "etcd/rpc.pb-c.h"
#include "etcd/v3election.pb-c.h"
#include "core/store/store.h"
#include "support/mini_answer.h"

static struct mini_cell *cell_of(size_t replicas)
{
	struct mini_cell *m = mini_new(&(struct mini_options){ .replicas = replicas, .seed = 7, .disk_ms = 1, .net_ms = 1 });

	mini_elect(m, 10000);
	mini_run(m, 300);
	return m;
}

static size_t other(const struct mini_cell *m, size_t than)
{
	(void)m;
	return than == 0 ? 1 : 0;
}

static void key_of(const char *name, lease_id lease, char *out, size_t len)
{
	snprintf(out, len, "%s/%llx", name, (unsigned long long)lease);
}

/* ---- one replica ---- */

START_TEST(core__a_put_is_read_back)
{
	struct mini_cell *m = cell_of(1);
	const struct mini_answer *a;
	Etcdserverpb__RangeResponse *r;
	uint64_t get;

	OK(m, mini_put(m, 0, "k", "v", 0));
	get = mini_get(m, 0, "k", false);
	a = mini_answer(m, get);
	ck_assert_ptr_nonnull(a); /* a sole voter reads at once */
	r = etcdserverpb__range_response__unpack(NULL, a->reply.len, a->reply.ptr);
	ck_assert_uint_eq(r->n_kvs, 1);
	ck_assert_mem_eq(r->kvs[0]->value.data, "v", 1);
	ck_assert_int_eq(r->header->revision, 2);
	etcdserverpb__range_response__free_unpacked(r, NULL);
	mini_free(m);
}
END_TEST

START_TEST(core__a_lock_is_held_until_unlocked)
{
	struct mini_cell *m = cell_of(1);
	uint64_t first, second;
	char key[64];

	OK(m, mini_grant(m, 0, 10, 60));
	OK(m, mini_grant(m, 0, 11, 60));
	first = mini_lock(m, 0, "l", 10);
	OK(m, first);
	second = mini_lock(m, 0, "l", 11);
	mini_run(m, 500);
	ck_assert_ptr_null(mini_answer(m, second));
	key_of("l", 10, key, sizeof key);
	OK(m, mini_unlock(m, 0, key));
	OK(m, second);
	ck_assert_int_gt(mini_token(mini_answer(m, second)), mini_token(mini_answer(m, first)));
	mini_free(m);
}
END_TEST

START_TEST(core__a_lease_that_is_not_kept_alive_ends_with_its_lock)
{
	struct mini_cell *m = cell_of(1);
	uint64_t waiter;
	time_ms granted;

	OK(m, mini_grant(m, 0, 10, 5));
	granted = mini_now(m);
	OK(m, mini_grant(m, 0, 11, 100));
	OK(m, mini_lock(m, 0, "l", 10));
	waiter = mini_lock(m, 0, "l", 11);
	OK(m, waiter);
	ck_assert_uint_ge(mini_answer(m, waiter)->at - granted, 4990); /* P4 */
	ck_assert_uint_le(mini_answer(m, waiter)->at - granted, 5100);
	mini_free(m);
}
END_TEST

START_TEST(core__keep_alive_prolongs_and_says_when_it_is_over)
{
	struct mini_cell *m = cell_of(1);

	OK(m, mini_grant(m, 0, 10, 3));
	for (int i = 0; i < 5; i++) {
		uint64_t tag = mini_keep_alive(m, 0, 10);

		OK(m, tag);
		ck_assert_int_eq(mini_ttl(mini_answer(m, tag)), 3);
		mini_run(m, 2000);
	}
	mini_run(m, 1500);
	{
		uint64_t tag = mini_keep_alive(m, 0, 10);

		OK(m, tag);
		ck_assert_int_eq(mini_ttl(mini_answer(m, tag)), 0);
	}
	mini_free(m);
}
END_TEST

START_TEST(core__a_try_is_refused_and_says_who_holds)
{
	struct mini_cell *m = cell_of(1);
	uint64_t tag;

	OK(m, mini_grant(m, 0, 10, 60));
	OK(m, mini_grant(m, 0, 11, 60));
	OK(m, mini_lock(m, 0, "l", 10));
	tag = mini_lock_bounded(m, 0, "l", 11, LOCK_EXCLUSIVE, 0);
	FAILS(m, tag, ERR_LOCK_HELD);
	ck_assert_uint_gt(mini_answer(m, tag)->details.len, 0);
	ck_assert_uint_eq(mini_contenders(m, 0, "l"), 1);
	mini_free(m);
}
END_TEST

START_TEST(core__a_bounded_wait_ends_on_time)
{
	struct mini_cell *m = cell_of(3);
	size_t f = other(m, mini_leader(m));
	uint64_t tag;
	time_ms asked;

	OK(m, mini_grant(m, f, 10, 60));
	OK(m, mini_grant(m, f, 11, 60));
	OK(m, mini_lock(m, f, "l", 10));
	asked = mini_now(m);
	tag = mini_lock_bounded(m, f, "l", 11, LOCK_EXCLUSIVE, 2000);
	FAILS(m, tag, ERR_LOCK_WAIT_TIMEOUT);
	ck_assert_uint_ge(mini_answer(m, tag)->at - asked, 2000);
	ck_assert_uint_le(mini_answer(m, tag)->at - asked, 2100);
	ck_assert_uint_eq(mini_contenders(m, f, "l"), 1);
	mini_free(m);
}
END_TEST

START_TEST(core__shared_holders_hold_together)
{
	struct mini_cell *m = cell_of(1);
	uint64_t writer;
	char key[64];

	for (lease_id id = 10; id < 13; id++)
		OK(m, mini_grant(m, 0, id, 60));
	OK(m, mini_lock_bounded(m, 0, "l", 10, LOCK_SHARED, 60000));
	OK(m, mini_lock_bounded(m, 0, "l", 11, LOCK_SHARED, 60000));
	writer = mini_lock(m, 0, "l", 12);
	key_of("l", 10, key, sizeof key);
	OK(m, mini_unlock(m, 0, key));
	mini_run(m, 200);
	ck_assert_ptr_null(mini_answer(m, writer));
	key_of("l", 11, key, sizeof key);
	OK(m, mini_unlock(m, 0, key));
	OK(m, writer);
	mini_free(m);
}
END_TEST

START_TEST(core__a_lock_without_a_lease_gets_one)
{
	struct mini_cell *m = cell_of(1);
	uint64_t first = mini_lock(m, 0, "l", 0), second;

	OK(m, first);
	second = mini_lock(m, 0, "l", 0);
	/* Nobody keeps the first one's lease alive, but we do the second one's while it waits. */
	mini_run(m, 58000);
	ck_assert_ptr_null(mini_answer(m, second));
	mini_run(m, 4000);
	ck_assert_ptr_nonnull(mini_answer(m, second));
	OK(m, second);
	mini_run(m, 58000);
	ck_assert_uint_eq(mini_contenders(m, 0, "l"), 1); /* a full TTL from the grant on */
	mini_run(m, 3000);
	ck_assert_uint_eq(mini_contenders(m, 0, "l"), 0);
	mini_free(m);
}
END_TEST

START_TEST(core__a_restart_replays_the_log)
{
	struct mini_cell *m = cell_of(1);

	OK(m, mini_put(m, 0, "k", "v", 0));
	OK(m, mini_grant(m, 0, 10, 60));
	OK(m, mini_lock(m, 0, "l", 10));
	mini_crash(m, 0);
	mini_restart(m, 0);
	mini_elect(m, 5000);
	ck_assert_str_eq(mini_value(m, 0, "k"), "v");
	ck_assert_uint_eq(mini_contenders(m, 0, "l"), 1);
	mini_free(m);
}
END_TEST

START_TEST(core__space_refuses_what_grows_and_nothing_else)
{
	struct mini_cell *m = cell_of(3);
	size_t l = mini_leader(m), f = other(m, l);

	OK(m, mini_put(m, f, "k", "v", 0));
	OK(m, mini_grant(m, f, 10, 60));
	OK(m, mini_lock(m, f, "l", 10));
	mini_space(m, l, true);
	FAILS(m, mini_put(m, l, "k", "w", 0), ERR_NO_SPACE);
	FAILS(m, mini_put(m, f, "k", "w", 0), ERR_NO_SPACE);
	FAILS(m, mini_grant(m, f, 11, 60), ERR_NO_SPACE);
	OK(m, mini_unlock(m, f, "l/a"));
	OK(m, mini_keep_alive(m, f, 10));
	OK(m, mini_revoke(m, f, 10));
	mini_space(m, l, false);
	OK(m, mini_put(m, f, "k", "w", 0));
	mini_free(m);
}
END_TEST

START_TEST(core__too_many_calls_are_refused_but_not_unlock)
{
	struct mini_cell *m = mini_new(&(struct mini_options){ .replicas = 3, .seed = 3, .disk_ms = 1, .net_ms = 1, .max_pending = 4 });
	size_t f;

	mini_elect(m, 10000);
	f = other(m, mini_leader(m));
	mini_isolate(m, f, true);
	for (int i = 0; i < 4; i++)
		ck_assert_ptr_null(mini_answer(m, mini_put(m, f, "k", "v", 0)));
	FAILS(m, mini_put(m, f, "k", "v", 0), ERR_TOO_MANY_REQUESTS);
	ck_assert_ptr_null(mini_answer(m, mini_unlock(m, f, "l/a")));
	mini_free(m);
}
END_TEST

/* ---- several ---- */

START_TEST(core__followers_forward_writes_and_read_what_was_written)
{
	struct mini_cell *m = cell_of(3);

	for (size_t i = 0; i < 3; i++) {
		char key[32];

		snprintf(key, sizeof key, "k%zu", i);
		OK(m, mini_put(m, i, key, "v", 0));
		OK(m, mini_get(m, (i + 1) % 3, key, false));
		ck_assert_str_eq(mini_value(m, (i + 1) % 3, key), "v");
	}
	mini_free(m);
}
END_TEST

START_TEST(core__members_publish_themselves)
{
	struct mini_cell *m = cell_of(3);

	mini_run(m, 1000);
	for (size_t i = 0; i < 3; i++) {
		const struct member_record *r = member_find(core_state(mini_core(m, 0)), mini_member(m, i));

		ck_assert_uint_eq(r->data_dir_id, 7000 + i);
		ck_assert_uint_eq(r->client_urls_len, 1);
	}
	mini_free(m);
}
END_TEST

/* A transaction that counts: applied twice, the version would be 2. */
START_TEST(core__a_write_forwarded_to_a_dying_leader_is_applied_once)
{
	for (int delay = 0; delay < 12; delay++) {
		struct mini_cell *m = cell_of(3);
		size_t l = mini_leader(m), f = other(m, l);
		uint64_t tags[5];

		for (int i = 0; i < 5; i++)
			tags[i] = mini_put(m, f, "k", "v", 0);
		mini_run(m, (time_ms)delay / 2);
		mini_crash(m, l);
		for (int i = 0; i < 5; i++)
			OK(m, tags[i]);
		ck_assert_int_eq(core_state(mini_core(m, f))->revision, 1 + 5);
		mini_restart(m, l);
		mini_run(m, 3000);
		ck_assert_int_eq(core_state(mini_core(m, l))->revision, 1 + 5);
		mini_free(m);
	}
}
END_TEST

START_TEST(core__a_leader_cut_off_proposes_its_own_anew)
{
	struct mini_cell *m = cell_of(3);
	size_t l = mini_leader(m);
	uint64_t tag;

	mini_isolate(m, l, true);
	tag = mini_put(m, l, "k", "v", 0);
	mini_run(m, 3500);
	ck_assert_ptr_null(mini_answer(m, tag));
	mini_isolate(m, l, false);
	OK(m, tag);
	ck_assert_int_eq(core_state(mini_core(m, l))->revision, 2);
	mini_free(m);
}
END_TEST

START_TEST(core__a_channel_survives_loss_doubling_and_delay)
{
	struct mini_cell *m = cell_of(3);
	size_t f = other(m, mini_leader(m));
	uint64_t tags[200];

	mini_loss(m, 200000, 200000);
	for (int i = 0; i < 200; i++) {
		tags[i] = mini_put(m, f, "k", "v", 0);
		mini_run(m, 3);
	}
	mini_run(m, 3000);
	mini_loss(m, 0, 0);
	mini_run(m, 9000);
	{
		int applied = 0;

		for (int i = 0; i < 200; i++)
			applied += answer_of(m, tags[i])->err == ERR_OK;
		ck_assert_int_gt(applied, 150);
		ck_assert_int_ge(core_state(mini_core(m, f))->revision, 1 + applied);
		ck_assert_int_le(core_state(mini_core(m, f))->revision, 1 + 200);
	}
	mini_free(m);
}
END_TEST

/* Without it nothing that follows is taken, however much follows. */
START_TEST(core__what_the_channel_lost_is_sent_again_under_load)
{
	enum { HEARTBEAT_MS = 100 };
	struct mini_cell *m = cell_of(3);
	size_t leader = mini_leader(m), f = other(m, leader);
	uint64_t lost;
	int ms = 0;

	mini_cut(m, f, leader, true);
	lost = mini_put(m, f, "lost", "v", 0);
	mini_run(m, 2);
	mini_cut(m, f, leader, false);
	for (; !mini_answer(m, lost) && ms < 20 * HEARTBEAT_MS; ms += 5) {
		mini_put(m, f, "k", "v", 0);
		mini_run(m, 5);
	}
	OK(m, lost);
	ck_assert_int_lt(ms, 5 * HEARTBEAT_MS);
	mini_free(m);
}
END_TEST

START_TEST(core__keep_alive_through_a_follower)
{
	struct mini_cell *m = cell_of(3);
	size_t f = other(m, mini_leader(m));

	OK(m, mini_grant(m, f, 10, 3));
	for (int i = 0; i < 4; i++) {
		uint64_t tag;

		mini_run(m, 2000);
		tag = mini_keep_alive(m, f, 10);
		OK(m, tag);
		ck_assert_int_eq(mini_ttl(mini_answer(m, tag)), 3);
	}
	mini_run(m, 3500);
	{
		uint64_t tag = mini_keep_alive(m, f, 10);

		OK(m, tag);
		ck_assert_int_eq(mini_ttl(mini_answer(m, tag)), 0);
	}
	mini_free(m);
}
END_TEST

START_TEST(core__a_deposed_leader_answers_no_keep_alive_and_no_read)
{
	struct mini_cell *m = cell_of(3);
	size_t l = mini_leader(m);
	uint64_t alive, gone, get;

	OK(m, mini_grant(m, l, 10, 60));
	mini_isolate(m, l, true);
	alive = mini_keep_alive(m, l, 10);
	gone = mini_keep_alive(m, l, 99);
	get = mini_get(m, l, "k", false);
	mini_run(m, 3000);
	ck_assert_ptr_null(mini_answer(m, alive));
	ck_assert_ptr_null(mini_answer(m, gone));
	ck_assert_ptr_null(mini_answer(m, get));
	mini_isolate(m, l, false);
	OK(m, alive);
	OK(m, gone);
	OK(m, get);
	ck_assert_int_gt(mini_ttl(mini_answer(m, alive)), 0);
	ck_assert_int_eq(mini_ttl(mini_answer(m, gone)), 0);
	mini_free(m);
}
END_TEST

START_TEST(core__a_lock_is_handed_over_across_a_leaders_death)
{
	struct mini_cell *m = cell_of(3);
	size_t l = mini_leader(m), f = other(m, l);
	uint64_t waiter;

	OK(m, mini_grant(m, f, 10, 60));
	OK(m, mini_grant(m, f, 11, 60));
	OK(m, mini_lock(m, f, "l", 10));
	waiter = mini_lock(m, f, "l", 11);
	mini_run(m, 100);
	mini_crash(m, l);
	OK(m, mini_unlock(m, f, "l/a"));
	OK(m, waiter);
	mini_free(m);
}
END_TEST

START_TEST(core__no_session_ends_when_the_leader_dies)
{
	struct mini_cell *m = cell_of(3);
	size_t l = mini_leader(m), f = other(m, l);
	time_ms asked;

	OK(m, mini_grant(m, f, 10, 4));
	OK(m, mini_lock(m, f, "l", 10));
	mini_run(m, 3000);
	asked = mini_now(m);
	OK(m, mini_keep_alive(m, f, 10));
	mini_crash(m, l);
	while (mini_contenders(m, f, "l") > 0)
		mini_run(m, 1);
	ck_assert_uint_ge(mini_now(m) - asked, 4000);
	ck_assert_uint_le(mini_now(m) - asked, 8000);
	mini_free(m);
}
END_TEST

START_TEST(core__a_pause_of_the_leader_ends_no_session)
{
	struct mini_cell *m = cell_of(1);

	OK(m, mini_grant(m, 0, 10, 3));
	OK(m, mini_lock(m, 0, "l", 10));
	mini_run(m, 1000);
	mini_pause(m, 0, true);
	mini_run(m, 30000);
	mini_pause(m, 0, false);
	mini_run(m, 1000);
	ck_assert_uint_eq(mini_contenders(m, 0, "l"), 1);
	mini_run(m, 2000);
	ck_assert_uint_eq(mini_contenders(m, 0, "l"), 0);
	mini_free(m);
}
END_TEST

/* ---- giving up ---- */

START_TEST(core__cancel_leaves_nothing_in_the_queue)
{
	struct mini_cell *m = cell_of(3);
	size_t f = other(m, mini_leader(m));
	uint64_t waiter;

	OK(m, mini_grant(m, f, 10, 60));
	OK(m, mini_grant(m, f, 11, 60));
	OK(m, mini_lock(m, f, "l", 10));
	waiter = mini_lock(m, f, "l", 11);
	mini_run(m, 100);
	ck_assert_uint_eq(mini_contenders(m, f, "l"), 2);
	mini_cancel(m, f, waiter);
	mini_run(m, 100);
	ck_assert_uint_eq(mini_contenders(m, f, "l"), 1);
	ck_assert_ptr_null(mini_answer(m, waiter));
	mini_free(m);
}
END_TEST

/* At every moment of a Lock's life: on its way, waiting, granted and not told. */
START_TEST(core__cancel_at_any_moment_leaves_no_hold)
{
	for (time_ms when = 0; when < 14; when++) {
		struct mini_cell *m = cell_of(3);
		size_t f = other(m, mini_leader(m));
		uint64_t waiter;

		OK(m, mini_grant(m, f, 10, 60));
		OK(m, mini_grant(m, f, 11, 60));
		OK(m, mini_lock(m, f, "l", 10));
		waiter = mini_lock(m, f, "l", 11);
		mini_run(m, when / 2);
		mini_unlock(m, f, "l/a");
		mini_run(m, when);
		mini_cancel(m, f, waiter);
		mini_run(m, 200);
		ck_assert_uint_eq(mini_contenders(m, f, "l"), mini_answer(m, waiter) ? 1 : 0);
		mini_free(m);
	}
}
END_TEST

START_TEST(core__a_cancelled_lock_of_its_own_lease_leaves_no_lease)
{
	for (time_ms when = 0; when < 8; when++) {
		struct mini_cell *m = cell_of(3);
		size_t f = other(m, mini_leader(m));
		struct core_status st;
		uint64_t waiter;

		OK(m, mini_grant(m, f, 10, 60));
		OK(m, mini_lock(m, f, "l", 10));
		waiter = mini_lock(m, f, "l", 0);
		mini_run(m, when);
		mini_cancel(m, f, waiter);
		mini_run(m, 200);
		core_status(mini_core(m, f), &st);
		ck_assert_uint_eq(st.leases, 1);
		ck_assert_uint_eq(mini_contenders(m, f, "l"), 1);
		mini_free(m);
	}
}
END_TEST

START_TEST(core__asking_again_survives_the_cancel_of_the_first_call)
{
	struct mini_cell *m = cell_of(3);
	size_t l = mini_leader(m), f = other(m, l);
	uint64_t first, second;

	OK(m, mini_grant(m, f, 10, 60));
	OK(m, mini_grant(m, f, 11, 60));
	OK(m, mini_lock(m, f, "l", 10));
	first = mini_lock(m, f, "l", 11);
	mini_run(m, 100);
	second = mini_lock(m, l, "l", 11);
	mini_run(m, 100);
	mini_cancel(m, f, first);
	mini_run(m, 100);
	ck_assert_uint_eq(mini_contenders(m, f, "l"), 2);
	OK(m, mini_unlock(m, f, "l/a"));
	OK(m, second);
	mini_free(m);
}
END_TEST

START_TEST(core__a_waiter_learns_that_its_lease_has_ended)
{
	struct mini_cell *m = cell_of(3);
	size_t f = other(m, mini_leader(m));
	uint64_t waiter;

	OK(m, mini_grant(m, f, 10, 60));
	OK(m, mini_grant(m, f, 11, 3));
	OK(m, mini_lock(m, f, "l", 10));
	waiter = mini_lock(m, f, "l", 11);
	FAILS(m, waiter, ERR_LEASE_ENDED_WAITING);
	waiter = mini_lock(m, f, "l", 11);
	FAILS(m, waiter, ERR_LEASE_NOT_FOUND);
	mini_free(m);
}
END_TEST

START_TEST(core__a_waiter_whose_key_was_deleted_is_told)
{
	struct mini_cell *m = cell_of(3);
	size_t f = other(m, mini_leader(m));
	uint64_t waiter;

	OK(m, mini_grant(m, f, 10, 60));
	OK(m, mini_grant(m, f, 11, 60));
	OK(m, mini_lock(m, f, "l", 10));
	waiter = mini_lock(m, f, "l", 11);
	mini_run(m, 100);
	OK(m, mini_unlock(m, f, "l/b"));
	FAILS(m, waiter, ERR_NOT_CONTENDER);
	mini_free(m);
}
END_TEST

START_TEST(core__the_call_of_a_replica_that_is_gone_leaves_the_queue)
{
	struct mini_cell *m = cell_of(3);
	size_t l = mini_leader(m), f = other(m, l);

	OK(m, mini_grant(m, l, 10, 600));
	OK(m, mini_grant(m, l, 11, 600));
	OK(m, mini_lock(m, l, "l", 10));
	mini_lock(m, f, "l", 11);
	mini_run(m, 100);
	mini_crash(m, f);
	mini_run(m, 1000);
	mini_restart(m, f);
	mini_run(m, 8000);
	ck_assert_uint_eq(mini_contenders(m, l, "l"), 2);
	mini_run(m, 15000);
	ck_assert_uint_eq(mini_contenders(m, l, "l"), 1);
	mini_free(m);
}
END_TEST

START_TEST(core__without_a_leader_a_write_is_refused_with_certainty)
{
	struct mini_cell *m = cell_of(3);
	size_t l = mini_leader(m), f = other(m, l);

	mini_crash(m, l);
	mini_crash(m, 3 - l - f);
	mini_run(m, 3000);
	FAILS(m, mini_put(m, f, "k", "v", 0), ERR_NO_LEADER);
	FAILS(m, mini_get(m, f, "k", false), ERR_NO_LEADER);
	OK(m, mini_get(m, f, "k", true));
	mini_free(m);
}
END_TEST

/* ---- snapshots ---- */

START_TEST(core__a_follower_catches_up_by_snapshot)
{
	struct mini_cell *m =
		mini_new(&(struct mini_options){ .replicas = 3, .seed = 5, .disk_ms = 1, .net_ms = 1, .snapshot_count = 50, .snapshot_keep = 5, .log_memory = 1000 });
	size_t l = mini_elect(m, 10000), f = other(m, l);
	struct core_status status;
	uint64_t waiter;

	mini_run(m, 500);
	OK(m, mini_grant(m, f, 10, 600));
	OK(m, mini_grant(m, f, 11, 600));
	OK(m, mini_lock(m, l, "l", 10));
	waiter = mini_lock(m, f, "l", 11);
	mini_run(m, 100);
	mini_isolate(m, f, true);
	for (int i = 0; i < 300; i++) {
		char key[32];

		snprintf(key, sizeof key, "k%d", i);
		OK(m, mini_put(m, l, key, "v", 0));
	}
	OK(m, mini_unlock(m, l, "l/a"));
	mini_isolate(m, f, false);
	OK(m, waiter);
	mini_run(m, 3000);
	ck_assert_str_eq(mini_value(m, f, "k299"), "v");
	core_status(mini_core(m, f), &status);
	ck_assert_uint_ge(status.snapshots_installed, 1);
	OK(m, mini_put(m, f, "after", "v", 0));
	mini_crash(m, f);
	mini_restart(m, f);
	mini_run(m, 3000);
	ck_assert_str_eq(mini_value(m, f, "after"), "v");
	mini_free(m);
}
END_TEST

START_TEST(core__a_restart_starts_from_its_snapshot)
{
	struct mini_cell *m =
		mini_new(&(struct mini_options){ .replicas = 1, .seed = 5, .disk_ms = 1, .net_ms = 1, .snapshot_count = 20, .snapshot_keep = 5 });

	mini_elect(m, 10000);
	for (int i = 0; i < 100; i++) {
		char key[32];

		snprintf(key, sizeof key, "k%d", i);
		OK(m, mini_put(m, 0, key, "v", 0));
	}
	mini_crash(m, 0);
	mini_restart(m, 0);
	mini_elect(m, 10000);
	ck_assert_str_eq(mini_value(m, 0, "k99"), "v");
	ck_assert_str_eq(mini_value(m, 0, "k1"), "v");
	mini_free(m);
}
END_TEST

/* ---- who belongs here ---- */

START_TEST(core__a_wiped_replica_is_not_taken_for_the_old_one)
{
	struct mini_cell *m = cell_of(3);
	size_t f = other(m, mini_leader(m));

	mini_run(m, 1000); /* all are published by then */
	OK(m, mini_put(m, f, "k", "v", 0));
	mini_crash(m, f);
	mini_wipe(m, f);
	mini_restart(m, f);
	mini_run(m, 5000);
	ck_assert_int_eq(mini_fatal(m, f), CORE_FATAL_DATA_DIR);
	OK(m, mini_put(m, mini_leader(m), "k", "w", 0)); /* the two others go on */
	mini_free(m);
}
END_TEST

START_TEST(core__status_tells_of_this_replica)
{
	struct mini_cell *m = cell_of(3);
	size_t l = mini_leader(m);
	Etcdserverpb__StatusRequest r = ETCDSERVERPB__STATUS_REQUEST__INIT;
	Etcdserverpb__StatusResponse *st;
	const struct mini_answer *a;

	OK(m, mini_put(m, l, "k", "v", 0));
	a = mini_answer(m, mini_request(m, l, METHOD_MAINTENANCE_STATUS, &r.base));
	ck_assert_ptr_nonnull(a);
	st = etcdserverpb__status_response__unpack(NULL, a->reply.len, a->reply.ptr);
	ck_assert_uint_eq(st->leader, mini_member(m, l));
	ck_assert_uint_eq(st->header->member_id, mini_member(m, l));
	ck_assert_str_eq(st->version, "3.5.0");
	ck_assert_uint_gt(st->raftindex, 0);
	ck_assert_uint_eq(st->raftindex, st->raftappliedindex);
	ck_assert_uint_eq(st->n_errors, 0);
	etcdserverpb__status_response__free_unpacked(st, NULL);
	mini_free(m);
}
END_TEST

START_TEST(core__members_are_listed_without_a_revision)
{
	struct mini_cell *m = cell_of(3);
	Etcdserverpb__MemberListRequest r = ETCDSERVERPB__MEMBER_LIST_REQUEST__INIT;
	Etcdserverpb__MemberListResponse *list;
	const struct mini_answer *a;
	uint64_t tag;

	mini_run(m, 1000);
	r.linearizable = true;
	tag = mini_request(m, 0, METHOD_CLUSTER_MEMBER_LIST, &r.base);
	OK(m, tag);
	a = mini_answer(m, tag);
	list = etcdserverpb__member_list_response__unpack(NULL, a->reply.len, a->reply.ptr);
	ck_assert_uint_eq(list->n_members, 3);
	ck_assert_int_eq(list->header->revision, 0);
	ck_assert_uint_eq(list->members[1]->n_clienturls, 1);
	etcdserverpb__member_list_response__free_unpacked(list, NULL);
	mini_free(m);
}
END_TEST

START_TEST(core__hashes_of_replicas_agree)
{
	struct mini_cell *m = cell_of(3);
	Etcdserverpb__HashKVRequest r = ETCDSERVERPB__HASH_KVREQUEST__INIT;
	uint32_t hash = 0;

	OK(m, mini_put(m, 0, "k", "v", 0));
	OK(m, mini_put(m, 1, "k", "w", 0));
	mini_run(m, 500);
	for (size_t i = 0; i < 3; i++) {
		const struct mini_answer *a = mini_answer(m, mini_request(m, i, METHOD_MAINTENANCE_HASH_KV, &r.base));
		Etcdserverpb__HashKVResponse *h = etcdserverpb__hash_kvresponse__unpack(NULL, a->reply.len, a->reply.ptr);
		uint32_t own = store_hash_kv_view(core_state(mini_core(m, i)), h->hash_revision);

		if (i > 0)
			ck_assert_uint_eq(own, hash);
		hash = own;
		ck_assert_int_eq(h->hash_revision, 3);
		ck_assert_int_eq(h->compact_revision, -1);
		etcdserverpb__hash_kvresponse__free_unpacked(h, NULL);
	}
	mini_free(m);
}
END_TEST

START_TEST(core__waiting_locks_are_bounded)
{
	struct mini_cell *m = mini_new(&(struct mini_options){ .replicas = 1, .seed = 3, .disk_ms = 1, .net_ms = 1, .max_waiters = 3 });

	mini_elect(m, 10000);
	for (lease_id id = 10; id < 16; id++)
		OK(m, mini_grant(m, 0, id, 60));
	OK(m, mini_lock(m, 0, "l", 10));
	for (lease_id id = 11; id < 14; id++) {
		mini_lock(m, 0, "l", id);
		mini_run(m, 10);
	}
	FAILS(m, mini_lock(m, 0, "l", 14), ERR_TOO_MANY_REQUESTS);
	OK(m, mini_unlock(m, 0, "l/a"));
	mini_run(m, 10);
	ck_assert_ptr_null(mini_answer(m, mini_lock(m, 0, "l", 14)));
	mini_free(m);
}
END_TEST

START_TEST(core__two_thousand_contenders_are_served_in_order)
{
	enum { N = 2000 };
	struct mini_cell *m = mini_new(&(struct mini_options){ .replicas = 1, .seed = 3, .check_every = 1000 });
	static uint64_t tags[N];
	revision token = 0;

	mini_elect(m, 10000);
	for (int i = 0; i < N; i++) {
		OK(m, mini_grant(m, 0, i + 1, 600));
		tags[i] = mini_lock(m, 0, "l", i + 1);
		mini_run(m, 1);
	}
	for (int i = 0; i < N; i++) {
		char key[64];

		OK(m, tags[i]);
		ck_assert_int_gt(mini_token(mini_answer(m, tags[i])), token);
		token = mini_token(mini_answer(m, tags[i]));
		ck_assert_ptr_null(i + 1 < N ? mini_answer(m, tags[i + 1]) : NULL);
		key_of("l", i + 1, key, sizeof key);
		OK(m, mini_unlock(m, 0, key));
	}
	mini_free(m);
}
END_TEST

START_TEST(core__ten_thousand_leases_end_together)
{
	struct mini_cell *m = mini_new(&(struct mini_options){ .replicas = 3, .seed = 3, .disk_ms = 1, .net_ms = 1, .check_every = 1000 });
	size_t l = mini_elect(m, 10000);
	struct core_status st;

	for (int i = 0; i < 10000; i++)
		mini_grant(m, l, i + 1, 10);
	mini_run(m, 5000);
	core_status(mini_core(m, l), &st);
	ck_assert_uint_eq(st.leases, 10000);
	mini_run(m, 5200);
	core_status(mini_core(m, l), &st);
	ck_assert_uint_eq(st.leases, 0);
	mini_free(m);
}
END_TEST

/* ---- the rest ---- */

START_TEST(core__old_history_is_compacted)
{
	struct mini_cell *m =
		mini_new(&(struct mini_options){ .replicas = 3, .seed = 5, .disk_ms = 1, .net_ms = 1, .auto_compact_ms = 10000 });
	size_t l = mini_elect(m, 10000);

	for (int i = 0; i < 20; i++)
		OK(m, mini_put(m, l, "k", "v", 0));
	mini_run(m, 9000);
	ck_assert_int_eq(core_state(mini_core(m, l))->compact_revision, 0);
	mini_run(m, 5000);
	ck_assert_int_ge(core_state(mini_core(m, l))->compact_revision, 20);
	mini_free(m);
}
END_TEST

START_TEST(core__an_election_has_one_leader_that_proclaims_and_resigns)
{
	struct mini_cell *m = cell_of(3);
	size_t f = other(m, mini_leader(m));
	V3electionpb__CampaignRequest campaign = V3ELECTIONPB__CAMPAIGN_REQUEST__INIT;
	V3electionpb__LeaderRequest leader = V3ELECTIONPB__LEADER_REQUEST__INIT;
	V3electionpb__ProclaimRequest proclaim = V3ELECTIONPB__PROCLAIM_REQUEST__INIT;
	V3electionpb__ResignRequest resign = V3ELECTIONPB__RESIGN_REQUEST__INIT;
	V3electionpb__CampaignResponse *won;
	V3electionpb__LeaderResponse *who;
	const struct mini_answer *a;
	uint64_t tag;

	OK(m, mini_grant(m, f, 10, 60));
	leader.name = campaign.name = (ProtobufCBinaryData){ .data = (uint8_t *)"e", .len = 1 };
	campaign.value = (ProtobufCBinaryData){ .data = (uint8_t *)"me", .len = 2 };
	campaign.lease = 10;
	FAILS(m, mini_request(m, f, METHOD_ELECTION_LEADER, &leader.base), ERR_ELECTION_NO_LEADER);
	tag = mini_request(m, f, METHOD_ELECTION_CAMPAIGN, &campaign.base);
	OK(m, tag);
	a = mini_answer(m, tag);
	won = v3electionpb__campaign_response__unpack(NULL, a->reply.len, a->reply.ptr);
	ck_assert_int_eq(won->leader->rev, won->fencing_token);
	proclaim.leader = resign.leader = won->leader;
	proclaim.value = (ProtobufCBinaryData){ .data = (uint8_t *)"us", .len = 2 };
	OK(m, mini_request(m, f, METHOD_ELECTION_PROCLAIM, &proclaim.base));
	tag = mini_request(m, f, METHOD_ELECTION_LEADER, &leader.base);
	OK(m, tag);
	a = mini_answer(m, tag);
	who = v3electionpb__leader_response__unpack(NULL, a->reply.len, a->reply.ptr);
	ck_assert_mem_eq(who->kv->value.data, "us", 2);
	v3electionpb__leader_response__free_unpacked(who, NULL);
	OK(m, mini_request(m, f, METHOD_ELECTION_RESIGN, &resign.base));
	FAILS(m, mini_request(m, f, METHOD_ELECTION_LEADER, &leader.base), ERR_ELECTION_NO_LEADER);
	FAILS(m, mini_request(m, f, METHOD_ELECTION_PROCLAIM, &proclaim.base), ERR_ELECTION_NOT_LEADER);
	v3electionpb__campaign_response__free_unpacked(won, NULL);
	mini_free(m);
}
END_TEST

START_TEST(core__time_to_live_through_a_follower)
{
	struct mini_cell *m = cell_of(3);
	size_t f = other(m, mini_leader(m));
	Etcdserverpb__LeaseTimeToLiveRequest r = ETCDSERVERPB__LEASE_TIME_TO_LIVE_REQUEST__INIT;
	Etcdserverpb__LeaseTimeToLiveResponse *ttl;
	const struct mini_answer *a;
	uint64_t tag;

	OK(m, mini_grant(m, f, 10, 60));
	OK(m, mini_put(m, f, "k", "v", 10));
	mini_run(m, 5000);
	r.id = 10;
	r.keys = true;
	tag = mini_request(m, f, METHOD_LEASE_TIME_TO_LIVE, &r.base);
	OK(m, tag);
	a = mini_answer(m, tag);
	ttl = etcdserverpb__lease_time_to_live_response__unpack(NULL, a->reply.len, a->reply.ptr);
	ck_assert_int_eq(ttl->grantedttl, 60);
	ck_assert_int_le(ttl->ttl, 55);
	ck_assert_int_ge(ttl->ttl, 53);
	ck_assert_uint_eq(ttl->n_keys, 1);
	etcdserverpb__lease_time_to_live_response__free_unpacked(ttl, NULL);
	mini_free(m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core");
	TCase *one = tcase_create("one"), *three = tcase_create("three"), *give_up = tcase_create("give up"), *rest = tcase_create("rest");
	SRunner *sr;
	int failed;

	tcase_add_test(one, core__a_put_is_read_back);
	tcase_add_test(one, core__a_lock_is_held_until_unlocked);
	tcase_add_test(one, core__a_lease_that_is_not_kept_alive_ends_with_its_lock);
	tcase_add_test(one, core__keep_alive_prolongs_and_says_when_it_is_over);
	tcase_add_test(one, core__a_try_is_refused_and_says_who_holds);
	tcase_add_test(one, core__a_bounded_wait_ends_on_time);
	tcase_add_test(one, core__shared_holders_hold_together);
	tcase_add_test(one, core__a_lock_without_a_lease_gets_one);
	tcase_add_test(one, core__a_restart_replays_the_log);
	tcase_add_test(one, core__a_pause_of_the_leader_ends_no_session);
	tcase_add_test(three, core__space_refuses_what_grows_and_nothing_else);
	tcase_add_test(three, core__too_many_calls_are_refused_but_not_unlock);
	tcase_add_test(three, core__followers_forward_writes_and_read_what_was_written);
	tcase_add_test(three, core__members_publish_themselves);
	tcase_add_test(three, core__a_write_forwarded_to_a_dying_leader_is_applied_once);
	tcase_add_test(three, core__a_leader_cut_off_proposes_its_own_anew);
	tcase_add_test(three, core__a_channel_survives_loss_doubling_and_delay);
	tcase_add_test(three, core__what_the_channel_lost_is_sent_again_under_load);
	tcase_add_test(three, core__keep_alive_through_a_follower);
	tcase_add_test(three, core__a_deposed_leader_answers_no_keep_alive_and_no_read);
	tcase_add_test(three, core__a_lock_is_handed_over_across_a_leaders_death);
	tcase_add_test(three, core__no_session_ends_when_the_leader_dies);
	tcase_add_test(give_up, core__cancel_leaves_nothing_in_the_queue);
	tcase_add_test(give_up, core__cancel_at_any_moment_leaves_no_hold);
	tcase_add_test(give_up, core__a_cancelled_lock_of_its_own_lease_leaves_no_lease);
	tcase_add_test(give_up, core__asking_again_survives_the_cancel_of_the_first_call);
	tcase_add_test(give_up, core__a_waiter_learns_that_its_lease_has_ended);
	tcase_add_test(give_up, core__a_waiter_whose_key_was_deleted_is_told);
	tcase_add_test(give_up, core__the_call_of_a_replica_that_is_gone_leaves_the_queue);
	tcase_add_test(give_up, core__without_a_leader_a_write_is_refused_with_certainty);
	tcase_add_test(rest, core__a_follower_catches_up_by_snapshot);
	tcase_add_test(rest, core__a_restart_starts_from_its_snapshot);
	tcase_add_test(rest, core__a_wiped_replica_is_not_taken_for_the_old_one);
	tcase_add_test(rest, core__status_tells_of_this_replica);
	tcase_add_test(rest, core__members_are_listed_without_a_revision);
	tcase_add_test(rest, core__hashes_of_replicas_agree);
	tcase_add_test(rest, core__waiting_locks_are_bounded);
	tcase_add_test(rest, core__two_thousand_contenders_are_served_in_order);
	tcase_add_test(rest, core__ten_thousand_leases_end_together);
	tcase_add_test(rest, core__old_history_is_compacted);
	tcase_add_test(rest, core__an_election_has_one_leader_that_proclaims_and_resigns);
	tcase_add_test(rest, core__time_to_live_through_a_follower);
	suite_add_tcase(s, one);
	suite_add_tcase(s, three);
	suite_add_tcase(s, give_up);
	suite_add_tcase(s, rest);
	for (size_t i = 0; i < 4; i++)
		tcase_set_timeout((TCase *[]){ one, three, give_up, rest }[i], 60);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
