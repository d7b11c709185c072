/* admit_test.c: the line in front of the log (admit.c): who waits in it, who passes it by, who is refused, and what becomes of it with a leader. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/store/store.h"
#include "etcd/rpc.pb-c.h"
#include "support/mini_answer.h"
#include "support/mini_cache.h"

enum { WINDOW = 1000 }; /* three or four small commands */

static struct mini_cell *cell_of(size_t replicas, uint32_t disk_ms)
{
	struct mini_cell *m = mini_new(&(struct mini_options){ .replicas = replicas, .seed = 11, .disk_ms = disk_ms, .net_ms = 1, .admit_window = WINDOW });

	mini_elect(m, 10000);
	mini_run(m, 300);
	return m;
}

static struct core_status status_of(struct mini_cell *m, size_t i)
{
	struct core_status s;

	core_status(mini_core(m, i), &s);
	return s;
}

static size_t other_than(size_t i)
{
	return i == 0 ? 1 : 0;
}

static uint64_t put_number(struct mini_cell *m, size_t i, unsigned n)
{
	char key[32];

	snprintf(key, sizeof key, "k%u", n);
	return mini_put(m, i, key, "v", 0);
}

static uint64_t delete_of(struct mini_cell *m, size_t i, const char *key)
{
	Etcdserverpb__DeleteRangeRequest r = ETCDSERVERPB__DELETE_RANGE_REQUEST__INIT;

	r.key = (ProtobufCBinaryData){ strlen(key), (uint8_t *)(uintptr_t)key };
	return mini_request(m, i, METHOD_KV_DELETE_RANGE, &r.base);
}

/* With a lock held by lease 7, and lease 8 to be revoked. */
static void hold(struct mini_cell *m, size_t i)
{
	OK(m, mini_grant(m, i, 7, 600));
	OK(m, mini_grant(m, i, 8, 600));
	OK(m, mini_lock(m, i, "l", 7));
}

/* Forty puts at `at`, then an unlock and a revoke there: these pass the puts by, which keep their order among each other. */
static void passes_by(struct mini_cell *m, size_t at)
{
	uint64_t puts[40], unlock, revoke, get;
	const struct mini_answer *before = NULL;

	hold(m, at);
	for (unsigned i = 0; i < 40; i++)
		puts[i] = put_number(m, at, i);
	mini_run(m, 5);
	ck_assert_uint_gt(status_of(m, mini_leader(m)).admit_queued, 20);
	unlock = mini_unlock(m, at, "l/7");
	revoke = mini_revoke(m, at, 8);
	get = mini_get(m, at, "k0", false);
	OK(m, unlock);
	OK(m, revoke);
	OK(m, get);
	ck_assert_ptr_null(mini_answer(m, puts[20]));
	for (unsigned i = 0; i < 40; i++) {
		OK(m, puts[i]);
		ck_assert(!before || before->at <= mini_answer(m, puts[i])->at);
		before = mini_answer(m, puts[i]);
	}
	ck_assert_uint_eq(status_of(m, mini_leader(m)).admit_queued, 0);
}

START_TEST(admit__unlock_and_revoke_pass_by)
{
	struct mini_cell *m = cell_of(1, 10);

	passes_by(m, 0);
	mini_free(m);
}
END_TEST

START_TEST(admit__those_of_followers_too)
{
	struct mini_cell *m = cell_of(3, 10);

	passes_by(m, other_than(mini_leader(m)));
	mini_free(m);
}
END_TEST

START_TEST(admit__leases_end_in_time_beside_a_flood)
{
	struct mini_cell *m = cell_of(3, 10);
	size_t l = mini_leader(m);
	time_ms due;
	unsigned n = 0;

	for (lease_id id = 100; id < 200; id++)
		OK(m, mini_grant(m, l, id, 5));
	for (lease_id id = 100; id < 200; id++)
		mini_keep_alive(m, l, id);
	due = mini_now(m) + 5000;
	while (mini_now(m) < due + 200) {
		for (unsigned i = 0; i < 10; i++)
			put_number(m, i % 3, n++);
		mini_run(m, 10);
	}
	ck_assert_uint_gt(status_of(m, l).admit_queued, 10);
	ck_assert_uint_eq(status_of(m, l).leases, 0);
	mini_free(m);
}
END_TEST

/* Five times what the cell carries. */
START_TEST(admit__more_than_it_carries_is_refused)
{
	struct mini_cell *m = cell_of(3, 20);
	size_t l = mini_leader(m), most = 0;
	uint64_t *puts = mem_alloc(4000 * sizeof(*puts));
	time_ms *sent = mem_alloc(4000 * sizeof(*sent)), longest = 0;
	unsigned n = 0, ok = 0, refused = 0;
	uint64_t unlock = 0, gone = 0;
	time_ms unlock_at = 0;

	hold(m, l);
	OK(m, mini_put(m, l, "old", "v", 0));
	for (unsigned round = 0; round < 300; round++) {
		for (unsigned i = 0; i < 10; i++, n++) {
			sent[n] = mini_now(m);
			puts[n] = put_number(m, i % 3, n);
		}
		mini_run(m, 10);
		most = most > status_of(m, l).admit_queued ? most : status_of(m, l).admit_queued;
		if (round == 250) {
			unlock_at = mini_now(m);
			unlock = mini_unlock(m, other_than(l), "l/7");
			gone = delete_of(m, l, "old");
		}
	}
	ck_assert_uint_le(answer_of(m, unlock)->at - unlock_at, 250);
	OK(m, unlock);
	OK(m, gone); /* what deletes is taken where a put is not */
	for (unsigned i = 0; i < n; i++) {
		char key[32];
		const struct mini_answer *a = answer_of(m, puts[i]);

		snprintf(key, sizeof key, "k%u", i);
		ok += a->err == ERR_OK;
		refused += a->err == ERR_TOO_MANY_REQUESTS;
		if (a->err == ERR_OK && a->at - sent[i] > longest)
			longest = a->at - sent[i];
		ck_assert_msg((mini_value(m, l, key) != NULL) == (a->err == ERR_OK), "%s: %s", key, err_name(a->err));
	}
	ck_assert_uint_eq(ok + refused, n);
	ck_assert_uint_gt(ok, 100);
	ck_assert_uint_gt(refused, n / 2);
	ck_assert_uint_le(longest, 2500);
	ck_assert_uint_le(most, 2000);
	OK(m, mini_put(m, l, "k", "v", 0));
	free(puts);
	free(sent);
	mini_free(m);
}
END_TEST

START_TEST(admit__large_ones_have_a_bound_in_bytes)
{
	struct mini_cell *m = cell_of(1, 1);
	char *value = mem_alloc((1 << 20) + 1);
	unsigned refused = 0;

	memset(value, 'x', 1 << 20);
	value[1 << 20] = '\0';
	mini_stall(m, 0, true);
	for (unsigned i = 0; i < 100; i++) {
		uint64_t tag = mini_put(m, 0, "k", value, 0);

		mini_run(m, 1);
		refused += mini_answer(m, tag) && mini_answer(m, tag)->err == ERR_TOO_MANY_REQUESTS;
	}
	ck_assert_uint_gt(refused, 50);
	ck_assert_uint_le(status_of(m, 0).admit_queued_bytes, 34 << 20);
	mini_stall(m, 0, false);
	free(value);
	mini_free(m);
}
END_TEST

/* What waits in a leader's line is lost with it, and proposed anew by whoever was asked: once. */
START_TEST(admit__a_lost_leader_loses_nothing_and_doubles_nothing)
{
	struct mini_cell *m = cell_of(3, 10);
	size_t l = mini_leader(m), f = other_than(l);
	uint64_t puts[60];
	revision before = status_of(m, f).revision;

	for (unsigned i = 0; i < 60; i++)
		puts[i] = put_number(m, i % 2 ? l : f, i);
	mini_run(m, 15);
	ck_assert_uint_gt(status_of(m, l).admit_queued, 20);
	mini_isolate(m, l, true);
	mini_run(m, 5000);
	mini_isolate(m, l, false);
	for (unsigned i = 0; i < 60; i++)
		OK(m, puts[i]);
	ck_assert_uint_ne(mini_leader(m), l);
	ck_assert_int_eq(status_of(m, mini_leader(m)).revision, before + 60);
	mini_free(m);
}
END_TEST

static bool is_elected(struct mini_cell *m)
{
	ck_assert_uint_lt(mini_now(m), 10000);
	for (size_t i = 0; i < 3; i++)
		if (status_of(m, i).role == RAFT_LEADER)
			return true;
	return false;
}

/* What changes rights is a write to the gate, and waits in no line: it waits all the same until the leader knows whom it has to wait for. */
START_TEST(admit__a_change_of_rights_waits_until_the_leader_serves)
{
	struct mini_cell *m = mini_new(&(struct mini_options){ .replicas = 3, .seed = 11, .disk_ms = 30, .net_ms = 1 });
	Etcdserverpb__AuthUserAddRequest r = ETCDSERVERPB__AUTH_USER_ADD_REQUEST__INIT;
	uint64_t tags[180];
	char name[32];
	size_t n = 0;

	r.name = name;
	r.hashedpassword = "";
	while (!is_elected(m))
		mini_run(m, 1);
	ck_assert_uint_eq(mini_leader(m), 3); /* nobody serves yet */
	for (unsigned ms = 0; ms < 60; ms++, mini_run(m, 1))
		for (size_t i = 0; i < 3; i++) {
			snprintf(name, sizeof name, "u%zu", n);
			tags[n++] = mini_request(m, i, METHOD_AUTH_USER_ADD, &r.base);
		}
	for (size_t i = 0; i < n; i++)
		OK(m, tags[i]);
	mini_free(m);
}
END_TEST

/* T6: 16 MiB at the gate, 32 more in front of it; then what has to wait is refused, but for what only deletes, and what need not wait goes on. */
START_TEST(admit__what_is_set_aside_has_a_bound_in_bytes)
{
	enum { LEN = 1 << 20, GATE = 16, ASIDE = 32 };
	struct mini_cell *m = cell_of(1, 1);
	char *value = mem_zalloc(LEN);
	Etcdserverpb__DeleteRangeRequest r = ETCDSERVERPB__DELETE_RANGE_REQUEST__INIT;
	uint64_t puts[GATE + ASIDE + 1], gone;
	size_t n = GATE + ASIDE, waiting = 0;

	memset(value, 'x', LEN - 1);
	OK(m, mini_put(m, 0, "/k", "v", 0));
	mini_cache(m, 0, "/k");
	for (size_t i = 0; i <= n; i++) {
		puts[i] = mini_put(m, 0, "/k", value, 0);
		mini_run(m, 1);
	}
	FAILS(m, puts[n], ERR_TOO_MANY_REQUESTS);
	value[0] = '/';
	r.key = (ProtobufCBinaryData){ 2, (uint8_t *)(uintptr_t)"/k" };
	r.range_end = (ProtobufCBinaryData){ LEN, (uint8_t *)value }; /* so large that a put like it would be refused */
	gone = mini_request(m, 0, METHOD_KV_DELETE_RANGE, &r.base);
	OK(m, mini_put(m, 0, "other", "v", 0));
	ck_assert_ptr_null(mini_answer(m, gone));
	for (size_t i = 0; i < n; i++)
		waiting += mini_answer(m, puts[i]) == NULL;
	ck_assert_uint_ge(waiting, n - 2); /* there is a little beside each */
	mini_free(m);
	free(value);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("admit");
	TCase *t = tcase_create("admit");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 120);
	tcase_add_test(t, admit__unlock_and_revoke_pass_by);
	tcase_add_test(t, admit__those_of_followers_too);
	tcase_add_test(t, admit__leases_end_in_time_beside_a_flood);
	tcase_add_test(t, admit__more_than_it_carries_is_refused);
	tcase_add_test(t, admit__large_ones_have_a_bound_in_bytes);
	tcase_add_test(t, admit__what_is_set_aside_has_a_bound_in_bytes);
	tcase_add_test(t, admit__a_lost_leader_loses_nothing_and_doubles_nothing);
	tcase_add_test(t, admit__a_change_of_rights_waits_until_the_leader_serves);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
