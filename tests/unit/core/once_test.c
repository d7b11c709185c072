/* once_test.c: requests that are sent again, in small cells: each case a story. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "core/once/once.h"
#include "etcd/rpc.pb-c.h"
#include "etcd/v3election.pb-c.h"
#include "holdfast/v1.pb-c.h"
#include "support/mini_answer.h"

enum { S = 10 }; /* the session */

static struct mini_cell *cell_with(struct mini_options o)
{
	struct mini_cell *m;

	o.seed = 7;
	o.disk_ms = o.net_ms = 1;
	m = mini_new(&o);
	mini_elect(m, 10000);
	mini_run(m, 300);
	OK(m, mini_grant(m, 0, S, 600));
	return m;
}

static struct mini_cell *cell_of(size_t replicas)
{
	return cell_with((struct mini_options){ .replicas = replicas });
}

static size_t follower(const struct mini_cell *m)
{
	return mini_leader(m) == 0 ? 1 : 0;
}

static uint64_t put(struct mini_cell *m, size_t i, uint64_t request, const char *key, const char *value)
{
	mini_once(m, S, request, 0);
	return mini_put(m, i, key, value, 0);
}

static uint64_t lock(struct mini_cell *m, size_t i, uint64_t request, lease_id lease)
{
	mini_once(m, S, request, 0);
	return mini_lock(m, i, "l", lease);
}

static uint64_t grant_any(struct mini_cell *m, size_t i)
{
	return mini_grant(m, i, 0, 60);
}

static revision revision_of(struct mini_cell *m, uint64_t tag)
{
	const struct mini_answer *a = answer_of(m, tag);
	Etcdserverpb__PutResponse *r = etcdserverpb__put_response__unpack(NULL, a->reply.len, a->reply.ptr);
	revision rev = r->header->revision;

	etcdserverpb__put_response__free_unpacked(r, NULL);
	return rev;
}

static uint64_t member_of(struct mini_cell *m, uint64_t tag)
{
	const struct mini_answer *a = answer_of(m, tag);
	Etcdserverpb__PutResponse *r = etcdserverpb__put_response__unpack(NULL, a->reply.len, a->reply.ptr);
	uint64_t member = r->header->member_id;

	etcdserverpb__put_response__free_unpacked(r, NULL);
	return member;
}

static void key_of(lease_id lease, char out[64])
{
	snprintf(out, 64, "l/%llx", (unsigned long long)lease);
}

/* If key "k" was never written, write it; tells what it was before. */
static uint64_t create(struct mini_cell *m, size_t i, uint64_t request)
{
	Etcdserverpb__TxnRequest r = ETCDSERVERPB__TXN_REQUEST__INIT;
	Etcdserverpb__Compare c = ETCDSERVERPB__COMPARE__INIT, *cs[] = { &c };
	Etcdserverpb__RequestOp op = ETCDSERVERPB__REQUEST_OP__INIT, *ops[] = { &op };
	Etcdserverpb__PutRequest p = ETCDSERVERPB__PUT_REQUEST__INIT;
	uint8_t k[] = "k";

	c.key.data = p.key.data = k;
	c.key.len = p.key.len = 1;
	c.target = ETCDSERVERPB__COMPARE__COMPARE_TARGET__VERSION;
	c.target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_VERSION;
	op.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
	op.request_put = &p;
	r.n_compare = r.n_success = 1;
	r.compare = cs;
	r.success = ops;
	mini_once(m, S, request, 0);
	return mini_request(m, i, METHOD_KV_TXN, &r.base);
}

static bool succeeded(struct mini_cell *m, uint64_t tag)
{
	const struct mini_answer *a = answer_of(m, tag);
	Etcdserverpb__TxnResponse *r;
	bool yes;

	ck_assert_int_eq(a->err, ERR_OK);
	r = etcdserverpb__txn_response__unpack(NULL, a->reply.len, a->reply.ptr);
	yes = r->succeeded;
	etcdserverpb__txn_response__free_unpacked(r, NULL);
	return yes;
}

/* ---- the same again ---- */

START_TEST(once__the_same_put_again_is_answered_and_not_done)
{
	struct mini_cell *m = cell_of(3);
	uint64_t first = put(m, 0, 1, "k", "a"), again;

	OK(m, first);
	OK(m, mini_put(m, 0, "k", "b", 0));
	for (size_t i = 0; i < 3; i++) {
		again = put(m, i, 1, "k", "a");
		OK(m, again);
		ck_assert_int_eq(revision_of(m, again), revision_of(m, first));
		ck_assert_uint_eq(member_of(m, again), mini_member(m, i)); /* told by whoever is asked */
		ck_assert_str_eq(mini_value(m, i, "k"), "b");
	}
	ck_assert_int_eq(core_state(mini_core(m, 0))->revision, 3);
	mini_free(m);
}
END_TEST

START_TEST(once__a_transaction_again_says_what_it_said)
{
	struct mini_cell *m = cell_of(3);

	ck_assert(succeeded(m, create(m, 0, 1)));
	ck_assert(succeeded(m, create(m, 1, 1)));
	ck_assert(!succeeded(m, create(m, 2, 2)));
	ck_assert(!succeeded(m, create(m, 0, 2)));
	mini_free(m);
}
END_TEST

START_TEST(once__an_error_is_a_result)
{
	struct mini_cell *m = cell_of(1);

	mini_once(m, S, 1, 0);
	FAILS(m, mini_put(m, 0, "k", "v", 77), ERR_LEASE_NOT_FOUND);
	OK(m, mini_grant(m, 0, 77, 60));
	mini_once(m, S, 1, 0);
	FAILS(m, mini_put(m, 0, "k", "v", 77), ERR_LEASE_NOT_FOUND);
	mini_once(m, S, 2, 0);
	OK(m, mini_put(m, 0, "k", "v", 77));
	mini_free(m);
}
END_TEST

START_TEST(once__a_lease_made_twice_is_one_lease)
{
	struct mini_cell *m = cell_of(3);
	const struct mini_answer *a, *b;
	uint64_t first, again;

	mini_once(m, S, 1, 0);
	first = grant_any(m, 0);
	OK(m, first);
	mini_once(m, S, 1, 0);
	again = grant_any(m, 1);
	OK(m, again);
	a = answer_of(m, first);
	b = answer_of(m, again);
	{
		Etcdserverpb__LeaseGrantResponse *x = etcdserverpb__lease_grant_response__unpack(NULL, a->reply.len, a->reply.ptr);
		Etcdserverpb__LeaseGrantResponse *y = etcdserverpb__lease_grant_response__unpack(NULL, b->reply.len, b->reply.ptr);

		ck_assert_int_eq(x->id, y->id);
		etcdserverpb__lease_grant_response__free_unpacked(x, NULL);
		etcdserverpb__lease_grant_response__free_unpacked(y, NULL);
	}
	ck_assert_uint_eq(core_state(mini_core(m, 0))->leases.len, 2);
	mini_free(m);
}
END_TEST

START_TEST(once__an_unlock_again_does_not_free_a_later_hold)
{
	struct mini_cell *m = cell_of(3);
	char key[64];

	OK(m, mini_lock(m, 0, "l", S));
	key_of(S, key);
	mini_once(m, S, 1, 0);
	OK(m, mini_unlock(m, 0, key));
	OK(m, mini_lock(m, 0, "l", S));
	mini_once(m, S, 1, 0);
	OK(m, mini_unlock(m, 1, key)); /* no token, and yet */
	mini_run(m, 200);
	ck_assert_uint_eq(mini_contenders(m, 0, "l"), 1);
	mini_free(m);
}
END_TEST

START_TEST(once__another_kind_of_request_is_refused)
{
	struct mini_cell *m = cell_of(1);

	OK(m, put(m, 0, 1, "k", "v"));
	mini_once(m, S, 1, 0);
	FAILS(m, mini_grant(m, 0, 99, 60), ERR_REQUEST_ID_REUSED);
	mini_free(m);
}
END_TEST

START_TEST(once__two_at_once_at_two_replicas_are_one)
{
	struct mini_cell *m = cell_of(3);
	uint64_t a, b;

	for (uint64_t request = 1; request <= 20; request++) {
		revision before = core_state(mini_core(m, mini_leader(m)))->revision;

		a = put(m, request % 3, request, "k", "v");
		b = put(m, (request + 1) % 3, request, "k", "v");
		OK(m, a);
		OK(m, b);
		ck_assert_int_eq(revision_of(m, a), before + 1);
		ck_assert_int_eq(revision_of(m, b), before + 1);
	}
	mini_free(m);
}
END_TEST

/* ---- the window ---- */

START_TEST(once__below_the_window_is_refused)
{
	struct mini_cell *m = cell_of(3);

	for (uint64_t r = 1; r <= 3; r++)
		OK(m, put(m, 0, r, "k", "v"));
	mini_once(m, S, 4, 3);
	OK(m, mini_put(m, 1, "k", "v", 0));
	FAILS(m, put(m, 2, 1, "k", "v"), ERR_REQUEST_ID_TOO_OLD);
	FAILS(m, put(m, 0, 2, "k", "v"), ERR_REQUEST_ID_TOO_OLD);
	OK(m, put(m, 0, 3, "k", "v"));
	ck_assert_int_eq(core_state(mini_core(m, 0))->revision, 5);
	ck_assert_uint_eq(core_state(mini_core(m, 0))->results.len, 2);
	mini_free(m);
}
END_TEST

START_TEST(once__the_oldest_of_too_many_is_forgotten_and_refused)
{
	struct mini_cell *m = cell_of(1);

	for (uint64_t r = 1; r <= ONCE_RESULTS_MAX + 1; r++)
		OK(m, put(m, 0, r, "k", "v"));
	ck_assert_uint_eq(core_state(mini_core(m, 0))->results.len, ONCE_RESULTS_MAX);
	FAILS(m, put(m, 0, 1, "k", "v"), ERR_REQUEST_ID_TOO_OLD);
	OK(m, put(m, 0, 2, "k", "v"));
	ck_assert_int_eq(core_state(mini_core(m, 0))->revision, ONCE_RESULTS_MAX + 2);
	mini_free(m);
}
END_TEST

START_TEST(once__a_lock_that_waits_is_found_behind_many)
{
	struct mini_cell *m = cell_of(3);
	uint64_t again;
	char key[64];

	OK(m, mini_grant(m, 0, 20, 600));
	OK(m, mini_lock(m, 0, "l", 20));
	lock(m, 0, 1, S);
	for (uint64_t r = 2; r <= 3 * ONCE_RESULTS_MAX; r++)
		OK(m, put(m, 0, r, "k", "v"));
	again = lock(m, 1, 1, S);
	mini_run(m, 100);
	ck_assert_uint_eq(mini_contenders(m, 0, "l"), 2);
	FAILS(m, put(m, 0, 2, "k", "v"), ERR_REQUEST_ID_TOO_OLD);
	key_of(20, key);
	OK(m, mini_unlock(m, 0, key));
	OK(m, again);
	key_of(S, key);
	OK(m, mini_unlock(m, 0, key)); /* and is as others from then on */
	OK(m, put(m, 0, 3 * ONCE_RESULTS_MAX + 1, "k", "v"));
	FAILS(m, lock(m, 1, 1, S), ERR_REQUEST_ID_TOO_OLD);
	mini_free(m);
}
END_TEST

START_TEST(once__ids_may_come_out_of_order)
{
	struct mini_cell *m = cell_of(1);

	OK(m, put(m, 0, 9, "k", "nine"));
	OK(m, put(m, 0, 5, "k", "five"));
	ck_assert_str_eq(mini_value(m, 0, "k"), "five");
	OK(m, put(m, 0, 9, "k", "nine"));
	ck_assert_str_eq(mini_value(m, 0, "k"), "five");
	mini_free(m);
}
END_TEST

START_TEST(once__what_is_too_large_says_that_it_was_applied)
{
	struct mini_cell *m = cell_of(1);
	Etcdserverpb__PutRequest r = ETCDSERVERPB__PUT_REQUEST__INIT;
	uint8_t k[] = "k", *big = mem_zalloc(100000);

	r.key.data = k;
	r.key.len = 1;
	r.value.data = big;
	r.value.len = 100000;
	r.prev_kv = true;
	OK(m, mini_request(m, 0, METHOD_KV_PUT, &r.base));
	mini_once(m, S, 1, 0);
	OK(m, mini_request(m, 0, METHOD_KV_PUT, &r.base));
	mini_once(m, S, 1, 0);
	FAILS(m, mini_request(m, 0, METHOD_KV_PUT, &r.base), ERR_RESULT_TOO_LARGE);
	ck_assert_int_eq(core_state(mini_core(m, 0))->revision, 3);
	free(big);
	mini_free(m);
}
END_TEST

/* ---- sessions ---- */

START_TEST(once__an_unknown_session_is_refused)
{
	struct mini_cell *m = cell_of(3);

	mini_once(m, 999, 1, 0);
	FAILS(m, mini_put(m, 1, "k", "v", 0), ERR_UNKNOWN_SESSION);
	mini_once(m, S, 0, 0);
	FAILS(m, mini_put(m, 1, "k", "v", 0), ERR_BAD_METADATA);
	mini_once(m, S, 2, 3);
	FAILS(m, mini_put(m, 1, "k", "v", 0), ERR_BAD_METADATA);
	mini_once(m, 0, 1, 0);
	FAILS(m, mini_put(m, 1, "k", "v", 0), ERR_BAD_METADATA);
	ck_assert_ptr_null(mini_value(m, 0, "k"));
	mini_free(m);
}
END_TEST

START_TEST(once__results_go_with_the_session)
{
	struct mini_cell *m = cell_of(3);

	OK(m, put(m, 0, 1, "k", "v"));
	OK(m, mini_grant(m, 0, 20, 3));
	mini_once(m, 20, 1, 0);
	OK(m, mini_put(m, 0, "k", "w", 0));
	ck_assert_uint_eq(core_state(mini_core(m, 0))->results.len, 2);
	mini_run(m, 4000); /* one ends by time */
	ck_assert_uint_eq(core_state(mini_core(m, 0))->results.len, 1);
	mini_once(m, 20, 1, 0);
	FAILS(m, mini_put(m, 0, "k", "w", 0), ERR_UNKNOWN_SESSION);
	mini_once(m, S, 2, 0);
	OK(m, mini_revoke(m, 0, S)); /* the other revokes itself */
	FAILS(m, put(m, 0, 1, "k", "v"), ERR_UNKNOWN_SESSION);
	mini_run(m, 100);
	ck_assert_uint_eq(core_state(mini_core(m, 0))->results.len, 0);
	ck_assert_uint_eq(core_state(mini_core(m, 0))->sessions.len, 0);
	mini_free(m);
}
END_TEST

START_TEST(once__results_count_in_the_quota)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 1, .quota_bytes = 1 << 20 });
	Etcdserverpb__PutRequest r = ETCDSERVERPB__PUT_REQUEST__INIT;
	uint8_t k[] = "k", *big = mem_zalloc(30000);
	enum err e = ERR_OK;
	uint64_t n = 0;

	r.key.data = k;
	r.key.len = 1;
	r.value.data = big;
	r.value.len = 30000;
	r.prev_kv = true;
	while (!e && n < 60) { /* 30 KB of result each; the history counts for a quarter of the quota at most, and would never fill it */
		mini_once(m, S, ++n, 0);
		e = answer_of(m, mini_request(m, 0, METHOD_KV_PUT, &r.base))->err;
	}
	ck_assert_str_eq(err_name(e), err_name(ERR_NO_SPACE));
	ck_assert_uint_lt(n, 34);
	free(big);
	mini_free(m);
}
END_TEST

/* ---- mishaps ---- */

START_TEST(once__after_a_fail_over)
{
	struct mini_cell *m = cell_of(3);
	size_t l = mini_leader(m);
	uint64_t first = put(m, l, 1, "k", "a"), again;
	revision rev;

	OK(m, first);
	rev = revision_of(m, first);
	mini_crash(m, l);
	mini_elect(m, 10000);
	again = put(m, mini_leader(m), 1, "k", "a");
	OK(m, again);
	ck_assert_int_eq(revision_of(m, again), rev);
	mini_restart(m, l);
	mini_run(m, 1000);
	again = put(m, l, 1, "k", "a");
	OK(m, again);
	ck_assert_int_eq(revision_of(m, again), rev);
	mini_free(m);
}
END_TEST

/* The leader takes the command and is cut off at once; the caller asks another replica meanwhile. Whatever survives, it is one write. */
START_TEST(once__with_a_fail_over_in_between)
{
	for (time_ms cut_after = 0; cut_after < 8; cut_after++) {
		struct mini_cell *m = cell_of(3);
		size_t l = mini_leader(m), f = follower(m);
		uint64_t first = put(m, f, 1, "k", "a"), again;

		mini_run(m, cut_after);
		mini_isolate(m, l, true);
		mini_elect(m, 15000);
		again = put(m, f, 1, "k", "a");
		OK(m, again);
		mini_isolate(m, l, false);
		mini_run(m, 3000);
		ck_assert_int_eq(core_state(mini_core(m, f))->revision, 2);
		ck_assert_int_eq(core_state(mini_core(m, l))->revision, 2);
		if (answer_of(m, first)->err == ERR_OK)
			ck_assert_int_eq(revision_of(m, first), 2);
		mini_free(m);
	}
}
END_TEST

START_TEST(once__after_all_have_started_again)
{
	struct mini_cell *m = cell_of(3);

	OK(m, put(m, 0, 1, "k", "a"));
	for (size_t i = 0; i < 3; i++)
		mini_crash(m, i);
	for (size_t i = 0; i < 3; i++)
		mini_restart(m, i);
	mini_elect(m, 15000);
	OK(m, put(m, 2, 1, "k", "a"));
	ck_assert_int_eq(core_state(mini_core(m, 2))->revision, 2);
	mini_free(m);
}
END_TEST

START_TEST(once__snapshots_have_it)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 3, .snapshot_count = 30, .snapshot_keep = 5 });
	size_t f = follower(m);
	uint64_t tag;

	mini_crash(m, f);
	OK(m, put(m, mini_leader(m), 1, "once", "a"));
	mini_once(m, S, 2, 0);
	FAILS(m, mini_put(m, mini_leader(m), "k", "v", 77), ERR_LEASE_NOT_FOUND);
	OK(m, lock(m, mini_leader(m), 3, S));
	for (int i = 0; i < 100; i++)
		OK(m, mini_put(m, mini_leader(m), "k", "v", 0));
	mini_run(m, 500);
	mini_restart(m, f); /* it gets a snapshot */
	mini_run(m, 3000);
	tag = put(m, f, 1, "once", "b");
	OK(m, tag);
	ck_assert_int_eq(revision_of(m, tag), 2);
	ck_assert_str_eq(mini_value(m, f, "once"), "a");
	mini_once(m, S, 2, 0);
	FAILS(m, mini_put(m, f, "k", "v", 77), ERR_LEASE_NOT_FOUND);
	tag = lock(m, f, 3, S);
	OK(m, tag);
	ck_assert_int_eq(mini_token(answer_of(m, tag)), 3);
	for (size_t i = 0; i < 3; i++) { /* from their own disks */
		mini_crash(m, i);
		mini_restart(m, i);
	}
	mini_elect(m, 15000);
	OK(m, put(m, f, 1, "once", "c"));
	ck_assert_str_eq(mini_value(m, f, "once"), "a");
	mini_free(m);
}
END_TEST

/* It was applied by an entry that the replica which was asked never saw, as a snapshot took its place: in the term of the call, or in a later one. */
START_TEST(once__an_outcome_that_is_lost_is_unknown_but_to_who_named_the_request)
{
	struct mini_cell *m = cell_with((struct mini_options){ .replicas = 3, .snapshot_count = 30, .snapshot_keep = 5 });
	size_t l = mini_leader(m), f = follower(m), third = 3 - l - f;
	bool later = _i == 1;
	char *large = mem_zalloc(1u << 20);
	uint64_t plain, named, again;

	memset(large, 'x', (1u << 20) - 1);
	mini_cut(m, l, f, true);
	mini_cut(m, third, f, true);
	plain = mini_put(m, f, "plain", "v", 0);
	named = put(m, f, 1, "named", "v");
	mini_run(m, 50);
	ck_assert_str_eq(mini_value(m, l, "plain"), "v");
	for (int i = 0; i < 60; i++)
		OK(m, mini_put(m, l, "k", later || i % 3 ? "v" : large, 0));
	mini_run(m, 500);
	ck_assert(mini_log_first(m, l) > 30);
	ck_assert(mini_log_first(m, third) > 30);
	for (int i = 0; later && i < 2; i++) { /* so that nobody has that entry in memory */
		mini_crash(m, i == 0 ? l : third);
		mini_restart(m, i == 0 ? l : third);
		mini_run(m, 100);
	}
	mini_cut(m, l, f, false);
	mini_cut(m, third, f, false);
	FAILS(m, plain, ERR_OUTCOME_UNKNOWN);
	OK(m, named); /* asked anew, and told what it came to */
	again = put(m, f, 1, "named", "other");
	OK(m, again);
	ck_assert_int_eq(revision_of(m, again), 3);
	ck_assert_str_eq(mini_value(m, f, "named"), "v");
	ck_assert_str_eq(mini_value(m, f, "plain"), "v");
	mini_free(m);
	free(large);
}
END_TEST

/* ---- locks ---- */

START_TEST(once__a_lock_again_has_its_hold_and_token)
{
	struct mini_cell *m = cell_of(3);
	uint64_t first = lock(m, 0, 1, S), again;

	OK(m, first);
	again = lock(m, 1, 1, S);
	OK(m, again);
	ck_assert_int_eq(mini_token(answer_of(m, again)), mini_token(answer_of(m, first)));
	mini_free(m);
}
END_TEST

START_TEST(once__a_lock_without_a_lease_again_has_the_same_lease)
{
	struct mini_cell *m = cell_of(3);
	uint64_t first = lock(m, 0, 1, 0), again;

	OK(m, first);
	again = lock(m, 1, 1, 0);
	OK(m, again);
	ck_assert_int_eq(mini_token(answer_of(m, again)), mini_token(answer_of(m, first)));
	ck_assert_uint_eq(core_state(mini_core(m, 0))->leases.len, 2);
	ck_assert_uint_eq(mini_contenders(m, 0, "l"), 1);
	mini_free(m);
}
END_TEST

/* The replica that was asked dies with the waiting call; asked again elsewhere, it has its place before one that came later. */
START_TEST(once__a_waiting_lock_again_has_its_place)
{
	struct mini_cell *m = cell_of(3);
	size_t f = follower(m), g = 3 - f - mini_leader(m);
	uint64_t again, later;
	char key[64];

	OK(m, mini_grant(m, f, 20, 600));
	OK(m, mini_grant(m, f, 21, 600));
	OK(m, mini_lock(m, g, "l", 20));
	lock(m, f, 1, S);
	mini_run(m, 100);
	later = mini_lock(m, g, "l", 21);
	mini_run(m, 100);
	mini_crash(m, f);
	again = lock(m, g, 1, S);
	mini_run(m, 100);
	ck_assert_uint_eq(mini_contenders(m, g, "l"), 3);
	key_of(20, key);
	OK(m, mini_unlock(m, g, key));
	OK(m, again);
	mini_run(m, 500);
	ck_assert_ptr_null(mini_answer(m, later));
	mini_free(m);
}
END_TEST

START_TEST(once__two_waits_at_two_replicas_are_granted_alike)
{
	struct mini_cell *m = cell_of(3);
	uint64_t a, b;
	char key[64];

	OK(m, mini_grant(m, 0, 20, 600));
	OK(m, mini_lock(m, 0, "l", 20));
	a = lock(m, 0, 1, S);
	b = lock(m, 1, 1, S);
	mini_run(m, 100);
	ck_assert_uint_eq(mini_contenders(m, 0, "l"), 2);
	key_of(20, key);
	OK(m, mini_unlock(m, 2, key));
	OK(m, a);
	OK(m, b);
	ck_assert_int_eq(mini_token(answer_of(m, a)), mini_token(answer_of(m, b)));
	mini_free(m);
}
END_TEST

/* Request 1 of the session S, sent to that replica: it waits behind lease 20, and is granted the lock after it. */
static void carried_out_anew(struct mini_cell *m, size_t at)
{
	uint64_t again = lock(m, at, 1, S);
	char key[64];

	mini_run(m, 100);
	ck_assert_uint_eq(mini_contenders(m, 0, "l"), 2);
	key_of(20, key);
	OK(m, mini_unlock(m, 0, key));
	OK(m, again);
}

START_TEST(once__a_lock_that_was_given_up_queues_anew)
{
	struct mini_cell *m = cell_of(3);
	uint64_t tag;

	OK(m, mini_grant(m, 0, 20, 600));
	OK(m, mini_lock(m, 0, "l", 20));
	tag = lock(m, 0, 1, S);
	mini_run(m, 100);
	mini_cancel(m, 0, tag);
	mini_run(m, 100);
	ck_assert_uint_eq(mini_contenders(m, 0, "l"), 1);
	carried_out_anew(m, 1);
	mini_free(m);
}
END_TEST

START_TEST(once__a_refused_try_and_an_ended_wait_stay_so)
{
	struct mini_cell *m = cell_of(3);
	uint64_t tag, try;
	char key[64];

	OK(m, mini_grant(m, 0, 20, 600));
	OK(m, mini_lock(m, 0, "l", 20));
	mini_once(m, S, 1, 0);
	try = mini_lock_bounded(m, 0, "l", S, LOCK_EXCLUSIVE, 0);
	FAILS(m, try, ERR_LOCK_HELD);
	mini_once(m, S, 2, 0);
	FAILS(m, mini_lock_bounded(m, 0, "l", S, LOCK_EXCLUSIVE, 300), ERR_LOCK_WAIT_TIMEOUT);
	key_of(20, key);
	OK(m, mini_unlock(m, 0, key));
	mini_once(m, S, 1, 0);
	tag = mini_lock_bounded(m, 1, "l", S, LOCK_EXCLUSIVE, 0);
	FAILS(m, tag, ERR_LOCK_HELD);
	ck_assert(slice_eq(buf_view(&answer_of(m, tag)->details), buf_view(&answer_of(m, try)->details)));
	mini_once(m, S, 2, 0);
	FAILS(m, mini_lock_bounded(m, 1, "l", S, LOCK_EXCLUSIVE, 300), ERR_LOCK_WAIT_TIMEOUT);
	ck_assert_uint_eq(mini_contenders(m, 0, "l"), 0);
	mini_free(m);
}
END_TEST

static uint64_t lock_bounded(struct mini_cell *m, size_t i, uint64_t request, int64_t wait_ms)
{
	mini_once(m, S, request, 0);
	return mini_lock_bounded(m, i, "l", S, LOCK_EXCLUSIVE, wait_ms);
}

static struct mini_cell *cell_with_a_holder(struct mini_options o)
{
	struct mini_cell *m = cell_with(o);

	OK(m, mini_grant(m, 0, 20, 600));
	OK(m, mini_lock(m, 0, "l", 20));
	return m;
}

/* The later one takes over, and its bound ends the place: the other hears that the place is gone, by its own call and whoever asks again. */
START_TEST(once__two_requests_for_one_place_of_which_one_has_a_bound)
{
	struct mini_cell *m = cell_with_a_holder((struct mini_options){ .replicas = 3 });
	uint64_t unbounded, bounded;

	unbounded = lock(m, 0, 1, S);
	mini_run(m, 100);
	bounded = lock_bounded(m, 1, 2, 300);
	FAILS(m, bounded, ERR_LOCK_WAIT_TIMEOUT);
	FAILS(m, unbounded, ERR_NOT_CONTENDER);
	for (size_t i = 0; i < 3; i++) {
		FAILS(m, lock(m, i, 1, S), ERR_NOT_CONTENDER);
		FAILS(m, lock_bounded(m, i, 2, 300), ERR_LOCK_WAIT_TIMEOUT);
	}
	mini_free(m);
}
END_TEST

/* Both ask side by side: the time of one is up, and the other goes on. What the first one heard is kept, though its place is there and is granted. */
START_TEST(once__the_time_of_one_of_two_requests_is_up)
{
	struct mini_cell *m = cell_with_a_holder((struct mini_options){ .replicas = 3 });
	uint64_t unbounded, bounded;
	char key[64];

	bounded = lock_bounded(m, 0, 1, 300);
	unbounded = lock(m, 0, 2, S);
	FAILS(m, bounded, ERR_LOCK_WAIT_TIMEOUT);
	FAILS(m, lock_bounded(m, 1, 1, 300), ERR_LOCK_WAIT_TIMEOUT);
	mini_run(m, 1000);
	ck_assert_ptr_null(mini_answer(m, unbounded));
	key_of(20, key);
	OK(m, mini_unlock(m, 0, key));
	OK(m, unbounded);
	FAILS(m, lock_bounded(m, 2, 1, 300), ERR_LOCK_WAIT_TIMEOUT);
	OK(m, lock(m, 2, 2, S));
	mini_free(m);
}
END_TEST

/* One request by two calls that know nothing of each other: it lasts as long as the later bound, and both hear the same. */
START_TEST(once__one_request_by_two_calls_of_which_the_time_of_one_is_up)
{
	struct mini_cell *m = cell_with_a_holder((struct mini_options){ .replicas = 3 });
	uint64_t first, second;

	first = lock_bounded(m, 0, 1, 1000);
	mini_run(m, 500);
	second = lock_bounded(m, 0, 1, 1000);
	FAILS(m, first, ERR_OUTCOME_UNKNOWN); /* the other may yet hold */
	mini_run(m, 100);
	ck_assert_ptr_null(mini_answer(m, second));
	FAILS(m, second, ERR_LOCK_WAIT_TIMEOUT);
	FAILS(m, lock_bounded(m, 1, 1, 1000), ERR_LOCK_WAIT_TIMEOUT);
	mini_free(m);
}
END_TEST

static void all_start_again(struct mini_cell *m)
{
	for (size_t i = 0; i < 3; i++)
		mini_crash(m, i);
	for (size_t i = 0; i < 3; i++)
		mini_restart(m, i);
	mini_elect(m, 15000);
}

static void gets_a_snapshot(struct mini_cell *m, size_t f)
{
	raft_index before = mini_snapshot(m, f);

	mini_crash(m, f);
	for (int i = 0; i < 60; i++)
		OK(m, mini_put(m, mini_leader(m), "k", "v", 0));
	mini_run(m, 500);
	ck_assert(mini_log_first(m, mini_leader(m)) > before + 30);
	mini_restart(m, f);
	mini_run(m, 1000);
	ck_assert(mini_snapshot(m, f) > before + 30);
}

/* The window has moved past the request whose bound ends the place; the other was given up before, and knows nothing of that bound. */
START_TEST(once__the_bound_of_a_request_that_is_forgotten_is_no_others)
{
	struct mini_cell *m = cell_with_a_holder((struct mini_options){ .replicas = 3, .snapshot_count = 30, .snapshot_keep = 5 });
	size_t l = mini_leader(m), f = follower(m);
	uint64_t given_up, again;
	char key[64];

	lock_bounded(m, l, 1, 8000);
	mini_run(m, 100);
	mini_once(m, S, 2, 2);
	given_up = mini_lock(m, l, "l", S);
	mini_run(m, 100);
	mini_cancel(m, l, given_up);
	mini_run(m, 100);
	FAILS(m, lock_bounded(m, l, 1, 8000), ERR_REQUEST_ID_TOO_OLD);
	if (_i == 1)
		all_start_again(m);
	if (_i == 2)
		gets_a_snapshot(m, f);
	ck_assert_uint_eq(mini_contenders(m, f, "l"), 2);
	mini_run(m, 12000); /* a leader anew gives bounds anew */
	ck_assert_uint_eq(mini_contenders(m, f, "l"), 1);
	again = lock(m, f, 2, S);
	mini_run(m, 100);
	ck_assert_uint_eq(mini_contenders(m, f, "l"), 2);
	key_of(20, key);
	OK(m, mini_unlock(m, f, key));
	OK(m, again);
	mini_free(m);
}
END_TEST

/* ---- how a place ends ---- */

static uint64_t delete_key(struct mini_cell *m, const char *key)
{
	Etcdserverpb__DeleteRangeRequest r = ETCDSERVERPB__DELETE_RANGE_REQUEST__INIT;

	r.key.data = (uint8_t *)(uintptr_t)key;
	r.key.len = strlen(key);
	return mini_request(m, 0, METHOD_KV_DELETE_RANGE, &r.base);
}

static uint64_t delete_in_txn(struct mini_cell *m, const char *key)
{
	Etcdserverpb__TxnRequest r = ETCDSERVERPB__TXN_REQUEST__INIT;
	Etcdserverpb__RequestOp op = ETCDSERVERPB__REQUEST_OP__INIT, *ops[] = { &op };
	Etcdserverpb__DeleteRangeRequest d = ETCDSERVERPB__DELETE_RANGE_REQUEST__INIT;

	d.key.data = (uint8_t *)(uintptr_t)key;
	d.key.len = strlen(key);
	op.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
	op.request_delete_range = &d;
	r.n_success = 1;
	r.success = ops;
	return mini_request(m, 0, METHOD_KV_TXN, &r.base);
}

static uint64_t break_hold(struct mini_cell *m, const char *key)
{
	Holdfast__V1__LocksBreakRequest r = HOLDFAST__V1__LOCKS_BREAK_REQUEST__INIT;

	r.key.data = (uint8_t *)(uintptr_t)key;
	r.key.len = strlen(key);
	return mini_request(m, 0, METHOD_LOCKS_BREAK_HOLD, &r.base);
}

static uint64_t revoke_lease(struct mini_cell *m, const char *key)
{
	(void)key;
	return mini_revoke(m, 0, 21);
}

static uint64_t unlock_key(struct mini_cell *m, const char *key)
{
	return mini_unlock(m, 0, key);
}

/* All that wait for it, by whatever request and replica, hear the same, and so does whoever sends one of these requests again. */
START_TEST(once__a_place_that_somebody_takes_away)
{
	static const struct {
		uint64_t (*ends)(struct mini_cell *m, const char *key);
		enum err err;
	} table[] = {
		{ unlock_key, ERR_NOT_CONTENDER },
		{ delete_key, ERR_NOT_CONTENDER },
		{ delete_in_txn, ERR_NOT_CONTENDER },
		{ revoke_lease, ERR_LEASE_ENDED_WAITING },
	};
	struct mini_cell *m = cell_with_a_holder((struct mini_options){ .replicas = 3 });
	uint64_t tags[4];
	char key[64];

	OK(m, mini_grant(m, 0, 21, 600));
	key_of(21, key);
	tags[0] = lock(m, 0, 1, 21);
	tags[1] = lock(m, 0, 2, 21);
	mini_run(m, 100);
	tags[2] = lock(m, 1, 1, 21);
	tags[3] = lock(m, 2, 3, 21);
	mini_run(m, 100);
	ck_assert_uint_eq(mini_contenders(m, 0, "l"), 2);
	OK(m, table[_i].ends(m, key));
	for (size_t i = 0; i < 4; i++)
		FAILS(m, tags[i], table[_i].err);
	for (uint64_t request = 1; request <= 3; request++)
		FAILS(m, lock(m, request % 3, request, 21), table[_i].err);
	mini_free(m);
}
END_TEST

/* Its own lease goes with its time, and it hears of its time alone. */
START_TEST(once__the_time_of_a_lock_with_its_own_lease_is_up)
{
	struct mini_cell *m = cell_with_a_holder((struct mini_options){ .replicas = 3 });
	uint64_t tag;

	mini_once(m, S, 1, 0);
	tag = mini_lock_bounded(m, 0, "l", 0, LOCK_EXCLUSIVE, 300);
	mini_run(m, 100);
	ck_assert_uint_eq(core_state(mini_core(m, 0))->leases.len, 3);
	FAILS(m, tag, ERR_LOCK_WAIT_TIMEOUT);
	mini_once(m, S, 1, 0);
	FAILS(m, mini_lock_bounded(m, 1, "l", 0, LOCK_EXCLUSIVE, 300), ERR_LOCK_WAIT_TIMEOUT);
	ck_assert_uint_eq(core_state(mini_core(m, 0))->leases.len, 2);
	mini_free(m);
}
END_TEST

/* The leader holds a replica for gone that is only cut off: what waits there is to ask again, bound or not. */
START_TEST(once__an_orphan_with_a_bound_asks_again)
{
	struct mini_cell *m = cell_with_a_holder((struct mini_options){ .replicas = 3 });
	size_t f = follower(m);
	uint64_t named, plain;

	OK(m, mini_grant(m, f, 21, 600));
	named = lock_bounded(m, f, 1, 120000);
	plain = mini_lock_bounded(m, f, "l", 21, LOCK_EXCLUSIVE, 120000);
	mini_run(m, 100);
	mini_isolate(m, f, true);
	mini_run(m, 40000);
	ck_assert_uint_eq(mini_contenders(m, mini_leader(m), "l"), 1);
	mini_isolate(m, f, false);
	FAILS(m, named, ERR_TIMEOUT_CONN_LOST);
	FAILS(m, plain, ERR_TIMEOUT_CONN_LOST);
	named = lock_bounded(m, f, 1, 300);
	FAILS(m, named, ERR_LOCK_WAIT_TIMEOUT);
	mini_free(m);
}
END_TEST

START_TEST(once__a_hold_that_is_over_is_not_told_again)
{
	struct mini_cell *m = cell_of(3);
	char key[64];

	OK(m, lock(m, 0, 1, S));
	key_of(S, key);
	OK(m, mini_unlock(m, 0, key));
	FAILS(m, lock(m, 1, 1, S), ERR_NOT_CONTENDER);
	OK(m, mini_grant(m, 0, 20, 600));
	OK(m, lock(m, 0, 2, 20));
	OK(m, mini_revoke(m, 0, 20));
	FAILS(m, lock(m, 1, 2, 20), ERR_LEASE_ENDED_WAITING);
	OK(m, lock(m, 0, 3, S));
	OK(m, break_hold(m, key));
	FAILS(m, lock(m, 1, 3, S), ERR_NOT_CONTENDER);
	mini_free(m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core once");
	TCase *t = tcase_create("once");
	SRunner *sr;
	int failed;

	tcase_set_timeout(t, 120);
	tcase_add_test(t, once__the_same_put_again_is_answered_and_not_done);
	tcase_add_test(t, once__a_transaction_again_says_what_it_said);
	tcase_add_test(t, once__an_error_is_a_result);
	tcase_add_test(t, once__a_lease_made_twice_is_one_lease);
	tcase_add_test(t, once__an_unlock_again_does_not_free_a_later_hold);
	tcase_add_test(t, once__another_kind_of_request_is_refused);
	tcase_add_test(t, once__two_at_once_at_two_replicas_are_one);
	tcase_add_test(t, once__below_the_window_is_refused);
	tcase_add_test(t, once__the_oldest_of_too_many_is_forgotten_and_refused);
	tcase_add_test(t, once__a_lock_that_waits_is_found_behind_many);
	tcase_add_test(t, once__ids_may_come_out_of_order);
	tcase_add_test(t, once__what_is_too_large_says_that_it_was_applied);
	tcase_add_test(t, once__an_unknown_session_is_refused);
	tcase_add_test(t, once__results_go_with_the_session);
	tcase_add_test(t, once__results_count_in_the_quota);
	tcase_add_test(t, once__after_a_fail_over);
	tcase_add_test(t, once__with_a_fail_over_in_between);
	tcase_add_test(t, once__after_all_have_started_again);
	tcase_add_test(t, once__snapshots_have_it);
	tcase_add_loop_test(t, once__an_outcome_that_is_lost_is_unknown_but_to_who_named_the_request, 0, 2);
	tcase_add_test(t, once__a_lock_again_has_its_hold_and_token);
	tcase_add_test(t, once__a_lock_without_a_lease_again_has_the_same_lease);
	tcase_add_test(t, once__a_waiting_lock_again_has_its_place);
	tcase_add_test(t, once__two_waits_at_two_replicas_are_granted_alike);
	tcase_add_test(t, once__a_lock_that_was_given_up_queues_anew);
	tcase_add_test(t, once__a_refused_try_and_an_ended_wait_stay_so);
	tcase_add_test(t, once__two_requests_for_one_place_of_which_one_has_a_bound);
	tcase_add_test(t, once__the_time_of_one_of_two_requests_is_up);
	tcase_add_test(t, once__one_request_by_two_calls_of_which_the_time_of_one_is_up);
	tcase_add_loop_test(t, once__the_bound_of_a_request_that_is_forgotten_is_no_others, 0, 3);
	tcase_add_loop_test(t, once__a_place_that_somebody_takes_away, 0, 4);
	tcase_add_test(t, once__the_time_of_a_lock_with_its_own_lease_is_up);
	tcase_add_test(t, once__an_orphan_with_a_bound_asks_again);
	tcase_add_test(t, once__a_hold_that_is_over_is_not_told_again);
	suite_add_tcase(s, t);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
