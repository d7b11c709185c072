/* unlock_test.c: Unlocks that are asked for while Locks of their place are under way (unlock.c). */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pbw.h"
#include "core/wire.h"
#include "etcd/rpc.pb-c.h"
#include "etcd/v3election.pb-c.h"
#include "etcd/v3lock.pb-c.h"
#include "support/mini_answer.h"
#include "support/mini_cache.h"

enum { WINDOW = 1000, S = 7, OTHER = 8 }; /* the window: three or four small commands */

static struct mini_cell *cell_of(size_t replicas)
{
	struct mini_cell *m = mini_new(&(struct mini_options){ .replicas = replicas, .seed = 12, .disk_ms = 10, .net_ms = 1, .admit_window = WINDOW });

	mini_elect(m, 10000);
	mini_run(m, 300);
	OK(m, mini_grant(m, 0, S, 600));
	OK(m, mini_grant(m, 0, OTHER, 600));
	return m;
}

static size_t follower(const struct mini_cell *m)
{
	return mini_leader(m) == 0 ? 1 : 0;
}

/* So much that whatever waits in line waits long. */
static uint64_t flood(struct mini_cell *m, size_t i)
{
	uint64_t last = 0;
	char key[32];

	for (unsigned n = 0; n < 40; n++) {
		snprintf(key, sizeof key, "k%u", n);
		last = mini_put(m, i, key, "v", 0);
	}
	return last;
}

static uint64_t unlock_with(struct mini_cell *m, size_t i, const char *key, int64_t token)
{
	V3lockpb__UnlockRequest r = V3LOCKPB__UNLOCK_REQUEST__INIT;

	r.key = (ProtobufCBinaryData){ strlen(key), (uint8_t *)(uintptr_t)key };
	r.fencing_token = token;
	return mini_request(m, i, METHOD_LOCK_UNLOCK, &r.base);
}

static bool is_free(struct mini_cell *m)
{
	mini_run(m, 500);
	return mini_contenders(m, mini_leader(m), "m") == 0;
}

/* N1: whoever was asked, the leader or another; and nothing else of the flood waits for that. */
START_TEST(unlock__comes_behind_the_lock_that_waits_in_line)
{
	struct mini_cell *m = cell_of(3);
	size_t at = _i == 0 ? mini_leader(m) : follower(m);
	uint64_t last = flood(m, at), lock, unlock, other;

	lock = mini_lock(m, at, "m", S);
	unlock = mini_unlock(m, at, "m/7");
	other = mini_unlock(m, at, "m/8");
	OK(m, other);
	ck_assert_ptr_null(mini_answer(m, last));
	ck_assert_ptr_null(mini_answer(m, unlock));
	OK(m, unlock);
	ck_assert_ptr_nonnull(mini_answer(m, last));
	OK(m, lock);
	ck_assert_int_gt(mini_token(answer_of(m, lock)), 0); /* it held */
	ck_assert(is_free(m));
	mini_free(m);
}
END_TEST

/* Its cancel is heard after the Unlock, or before, while its command is on its way, or while nobody has it. */
START_TEST(unlock__comes_behind_the_lock_that_is_given_up)
{
	struct mini_cell *m = cell_of(3);
	size_t at = _i % 2 ? mini_leader(m) : follower(m);
	bool early = _i & 2, under_way = _i & 4;
	uint64_t lock, unlock;

	flood(m, at);
	lock = mini_lock(m, at, "m", S);
	if (under_way)
		mini_run(m, 5);
	if (early)
		mini_cancel(m, at, lock);
	unlock = mini_unlock(m, at, "m/7");
	if (!early)
		mini_cancel(m, at, lock);
	OK(m, unlock);
	ck_assert_ptr_null(mini_answer(m, lock));
	ck_assert(is_free(m));
	mini_free(m);
}
END_TEST

/* The Lock was taken by a leader that is gone, and is proposed again. */
START_TEST(unlock__comes_behind_the_lock_that_is_proposed_again)
{
	struct mini_cell *m = cell_of(3);
	size_t leader = mini_leader(m), at = follower(m);
	uint64_t lock, unlock;

	flood(m, at);
	lock = mini_lock(m, at, "m", S);
	mini_run(m, 5);
	mini_isolate(m, leader, true);
	unlock = mini_unlock(m, at, "m/7");
	mini_elect(m, 10000);
	OK(m, unlock);
	OK(m, lock);
	ck_assert(is_free(m));
	mini_free(m);
}
END_TEST

/* N2: its hold is told, and stays. A second Unlock waits for nobody. */
START_TEST(unlock__that_is_proposed_again_comes_before_the_lock_behind_it)
{
	struct mini_cell *m = cell_of(3);
	size_t leader = mini_leader(m), at = follower(m);
	struct core_status status;
	uint64_t lock, unlocks[2];
	member_id old;

	core_status(mini_core(m, at), &status);
	old = status.leader;
	mini_isolate(m, leader, true);
	unlocks[0] = mini_unlock(m, at, "m/7");
	mini_run(m, 5); /* it is on its way to the leader */
	unlocks[1] = mini_unlock(m, at, "m/7");
	do { /* the next leader takes new commands, before it is certain that the old one's are lost */
		mini_run(m, 1);
		core_status(mini_core(m, at), &status);
	} while (status.leader == old || status.leader == 0);
	lock = mini_lock(m, at, "m", S);
	mini_elect(m, 10000);
	OK(m, unlocks[0]);
	OK(m, unlocks[1]);
	OK(m, lock);
	ck_assert(!is_free(m));
	mini_free(m);
}
END_TEST

/* N2, N3: each in its turn. */
START_TEST(unlock__waits_for_those_before_it_alone)
{
	struct mini_cell *m = cell_of(1);
	uint64_t locks[3], unlocks[2], last;

	locks[0] = mini_lock(m, 0, "m", S);
	last = flood(m, 0);
	unlocks[0] = mini_unlock(m, 0, "m/7"); /* waits for the first */
	locks[1] = mini_lock(m, 0, "m", S);
	unlocks[1] = mini_unlock(m, 0, "m/7"); /* for the second, too */
	locks[2] = mini_lock(m, 0, "m", S);    /* behind that */
	OK(m, unlocks[0]);
	ck_assert_ptr_nonnull(mini_answer(m, locks[0]));
	ck_assert_ptr_null(mini_answer(m, last));
	ck_assert_ptr_null(mini_answer(m, locks[1]));
	OK(m, unlocks[1]);
	ck_assert_ptr_nonnull(mini_answer(m, locks[1]));
	OK(m, locks[2]);
	ck_assert(!is_free(m));
	mini_free(m);
}
END_TEST

/* One that waits in the queue of its lock has its outcome. */
START_TEST(unlock__ends_the_wait_of_a_queued_lock)
{
	struct mini_cell *m = cell_of(3);
	size_t at = follower(m);
	uint64_t lock;

	OK(m, mini_lock(m, at, "m", OTHER));
	lock = mini_lock(m, at, "m", S);
	OK(m, mini_unlock(m, at, "m/7"));
	FAILS(m, lock, ERR_NOT_CONTENDER);
	ck_assert_uint_eq(mini_contenders(m, mini_leader(m), "m"), 1);
	mini_free(m);
}
END_TEST

START_TEST(unlock__with_a_token_waits_for_nothing)
{
	struct mini_cell *m = cell_of(1);
	uint64_t held = mini_lock(m, 0, "m", S), again, unlock;
	int64_t token;

	OK(m, held);
	token = mini_token(answer_of(m, held));
	flood(m, 0);
	again = mini_lock(m, 0, "m", S);
	unlock = unlock_with(m, 0, "m/7", token);
	OK(m, unlock);
	ck_assert_ptr_null(mini_answer(m, again));
	OK(m, again);
	ck_assert_int_gt(mini_token(answer_of(m, again)), token);
	ck_assert(!is_free(m));
	mini_free(m);
}
END_TEST

/* It is behind the Lock, but was carried out before: it frees no later hold (P9). */
START_TEST(unlock__that_is_a_repetition_frees_nothing)
{
	struct mini_cell *m = cell_of(3);
	size_t at = follower(m);
	uint64_t lock;

	OK(m, mini_lock(m, at, "m", S));
	mini_once(m, S, 1, 0);
	OK(m, mini_unlock(m, at, "m/7"));
	flood(m, at);
	lock = mini_lock(m, at, "m", S);
	mini_once(m, S, 1, 0);
	OK(m, mini_unlock(m, at, "m/7"));
	ck_assert_ptr_nonnull(mini_answer(m, lock));
	OK(m, lock);
	ck_assert(!is_free(m));
	mini_free(m);
}
END_TEST

/* Without a leader both wait for one, and are told so when their time is up; the Unlock certainly was not carried out. */
START_TEST(unlock__is_told_when_its_time_is_up)
{
	struct mini_cell *m = cell_of(3);
	size_t at = follower(m);
	uint64_t lock, unlock;

	for (size_t i = 0; i < 3; i++)
		mini_isolate(m, i, true);
	mini_run(m, 5000);
	lock = mini_lock(m, at, "m", S);
	unlock = mini_unlock(m, at, "m/7");
	FAILS(m, lock, ERR_NO_LEADER);
	FAILS(m, unlock, ERR_NO_LEADER);
	lock = mini_lock(m, at, "m", S);
	unlock = mini_unlock(m, at, "m/7");
	mini_cancel(m, at, unlock);
	mini_unlock(m, at, "m/7");
	mini_lock(m, at, "m", S);
	mini_unlock(m, at, "m/7"); /* and with that the replica ends, but the first time */
	if (_i == 0) {
		for (size_t i = 0; i < 3; i++)
			mini_isolate(m, i, false);
		OK(m, lock);
		ck_assert_ptr_null(mini_answer(m, unlock));
		ck_assert(is_free(m));
	}
	mini_free(m);
}
END_TEST

static uint64_t campaign(struct mini_cell *m, size_t i, struct slice value)
{
	V3electionpb__CampaignRequest r = V3ELECTIONPB__CAMPAIGN_REQUEST__INIT;

	r.name = (ProtobufCBinaryData){ 1, (uint8_t *)(uintptr_t)"m" };
	r.lease = S;
	r.value = (ProtobufCBinaryData){ value.len, (uint8_t *)(uintptr_t)value.ptr };
	return mini_request(m, i, METHOD_ELECTION_CAMPAIGN, &r.base);
}

/* N4: what waits behind an Unlock takes no more memory than what waits in line. */
START_TEST(unlock__what_is_set_aside_counts_as_waiting)
{
	enum { LEN = 1 << 20, FIT = 31 }; /* of 32 MiB, with what is around each */
	struct mini_cell *m = cell_of(3);
	size_t at = follower(m);
	uint64_t lock, unlock, first = 0, last = 0;
	uint8_t *value = mem_zalloc(LEN);

	for (size_t i = 0; i < 3; i++)
		mini_isolate(m, i, true);
	mini_run(m, 5000);
	lock = mini_lock(m, at, "m", S);
	unlock = mini_unlock(m, at, "m/7");
	for (size_t i = 0; i <= FIT; i++) {
		first = first ? first : last;
		last = campaign(m, at, slice_of(value, LEN));
	}
	FAILS(m, last, ERR_TOO_MANY_REQUESTS);
	ck_assert_ptr_null(mini_answer(m, first));
	mini_cancel(m, at, unlock);
	mini_cancel(m, at, lock); /* the others are handed on, and count once */
	FAILS(m, campaign(m, at, slice_of(value, LEN)), ERR_TOO_MANY_REQUESTS);
	FAILS(m, first, ERR_NO_LEADER);
	first = campaign(m, at, slice_of(value, LEN)); /* and are gone */
	mini_run(m, 10);
	ck_assert_ptr_null(mini_answer(m, first));
	mini_free(m);
	free(value);
}
END_TEST

/* skipped.c: a snapshot hides what became of the Lock, which was given up, and the term goes on. */
START_TEST(unlock__comes_behind_a_lock_that_a_snapshot_hides)
{
	struct mini_cell *m = mini_new(&(struct mini_options){
		.replicas = 3, .seed = 12, .disk_ms = 1, .net_ms = 1, .snapshot_count = 50, .snapshot_keep = 5, .log_memory = 1000 });
	size_t leader = mini_elect(m, 10000), at = follower(m);
	bool acknowledged = _i == 1;
	struct core_status before, after;
	uint64_t lock, unlock;

	OK(m, mini_grant(m, leader, S, 600));
	mini_run(m, 100);
	for (size_t i = 0; i < 3 && !acknowledged; i++)
		mini_cut(m, i, at, i != at);
	lock = mini_lock(m, at, "m", S);
	mini_run(m, 2);
	for (size_t i = 0; i < 3; i++)
		mini_cut(m, i, at, i != at);
	mini_run(m, 50);
	ck_assert_uint_eq(mini_contenders(m, leader, "m"), 1);
	OK(m, mini_unlock(m, leader, "m/7"));
	for (int i = 0; i < 300; i++)
		OK(m, mini_put(m, leader, "k", "v", 0));
	mini_cancel(m, at, lock);
	core_status(mini_core(m, leader), &before);
	for (size_t i = 0; i < 3; i++)
		mini_cut(m, i, at, false);
	mini_run(m, 1000);
	core_status(mini_core(m, at), &after);
	ck_assert_uint_ge(after.snapshots_installed, 1);
	unlock = mini_unlock(m, at, "m/7");
	OK(m, unlock);
	core_status(mini_core(m, leader), &after);
	ck_assert_uint_eq(after.term, before.term);
	ck_assert(is_free(m));
	mini_free(m);
}
END_TEST

enum { BODY_ASK = 26, BODY_ANSWER = 27 };

struct asking {
	size_t leader, at;
	member_id asker, led_by;
	uint64_t fields[7], told[7]; /* of the envelope of what it sends, and of what its leader sends it */
	uint64_t acked; /* what it says that it was told; 0: the first */
	uint64_t waiting, last_index, answers;
};

static void on_event(void *ctx, size_t i, const struct core_event *e)
{
	struct asking *a = ctx;
	struct slice answer;

	if (e->kind != EVENT_MESSAGE)
		return;
	for (uint32_t f = 1; f <= 6; f++)
		if (i == a->leader && wire_find_u64(e->message, 3, 0) == a->asker)
			a->fields[f] = wire_find_u64(e->message, f, 0);
		else if (i == a->at && wire_find_u64(e->message, 3, 0) == a->led_by)
			a->told[f] = wire_find_u64(e->message, f, 0);
	answer = wire_find_bytes(e->message, BODY_ANSWER);
	if (i == a->at && answer.len > 0) {
		a->answers++;
		a->last_index = wire_find_u64(answer, 3, 0);
		a->waiting = wire_find_u64(answer, 4, 0);
	}
}

/* In the envelope of what came last the other way. */
static void comes(struct mini_cell *m, const uint64_t fields[7], size_t to, uint32_t field, const struct buf *body)
{
	struct core_event e = { .kind = EVENT_MESSAGE, .now = mini_now(m) };
	struct buf b = { 0 };

	for (uint32_t f = 1; f <= 6; f++)
		if (f == 1 || f == 6)
			pbw_u64(&b, f, fields[f]);
		else
			pbw_fixed64(&b, f, fields[f]);
	pbw_bytes_always(&b, field, buf_view(body));
	e.message = buf_view(&b);
	core_step(mini_core(m, to), &e);
	buf_free(&b);
}

static void asks_what_waits(struct mini_cell *m, struct asking *a, raft_term term)
{
	struct buf ask = { 0 };

	pbw_u64(&ask, 1, term);
	pbw_u64(&ask, 2, a->acked ? a->acked : 1);
	comes(m, a->fields, a->leader, BODY_ASK, &ask);
	for (uint64_t before = a->answers, ms = 0; a->answers == before && ms < 20; ms++)
		mini_run(m, 1);
	buf_free(&ask);
}

/* K2 of skipped.c: what waits in front of the log is not past, and what waits of others is none of its business. */
START_TEST(unlock__whose_lock_waits_in_front_of_the_log_is_told_so)
{
	struct mini_cell *m = cell_of(3);
	struct asking a = { .leader = mini_leader(m), .at = follower(m) };
	struct core_status status;
	uint64_t lock;

	core_status(mini_core(m, a.leader), &status);
	a.asker = mini_member(m, a.at);
	mini_on_event(m, on_event, &a);
	OK(m, mini_put(m, a.at, "k", "v", 0));
	flood(m, a.leader);
	asks_what_waits(m, &a, status.term);
	ck_assert(a.answers == 1 && a.waiting == 0 && a.last_index > 0);
	lock = mini_lock(m, a.at, "m", S);
	mini_run(m, 3);
	asks_what_waits(m, &a, status.term);
	ck_assert(a.answers == 2 && a.waiting > 0);
	asks_what_waits(m, &a, status.term - 1);
	ck_assert_uint_eq(a.answers, 2);
	a.acked = 1000; /* not by this leader */
	asks_what_waits(m, &a, status.term);
	ck_assert_uint_eq(a.answers, 2);
	a.acked = 1;
	OK(m, lock);
	asks_what_waits(m, &a, status.term);
	ck_assert(a.answers == 3 && a.waiting == 0);
	mini_free(m);
}
END_TEST

/* At the gate, or set aside in front of one that is full (T6 of admit.c): there it holds up nobody, wherever in the line it came. */
START_TEST(unlock__what_waits_at_the_gate_is_told_too)
{
	enum { GATE_MAX = 4096 };
	struct mini_cell *m = cell_of(3);
	struct asking a = { .leader = mini_leader(m), .at = follower(m) };
	struct core_status status;
	uint64_t put;
	bool full = _i > 0, in_line = _i == 2;

	a.asker = mini_member(m, a.at);
	mini_on_event(m, on_event, &a);
	OK(m, mini_put(m, a.at, "/k", "v", 0));
	mini_cache(m, a.leader, "/k");
	for (int i = 0; i < GATE_MAX && full; i++)
		mini_put(m, a.leader, "/k", "w", 0);
	mini_run(m, 20);
	if (in_line)
		flood(m, a.leader);
	put = mini_put(m, a.at, "/k", "w", 0);
	mini_run(m, 3);
	OK(m, mini_put(m, a.leader, "other", "v", 0));
	core_status(mini_core(m, a.leader), &status);
	ck_assert_uint_eq(status.gated, full ? GATE_MAX : 1);
	ck_assert_ptr_null(mini_answer(m, put));
	asks_what_waits(m, &a, status.term);
	ck_assert(a.answers == 1 && a.waiting > 0);
	mini_free(m);
}
END_TEST

/* K3: whatever an answer says, nothing is settled before so much is applied (1). K1, K4: nor by the answer of another term (2), of what was not acknowledged (3), that
 * waits (4), or to an earlier start of this replica (5). */
START_TEST(unlock__a_lock_that_a_snapshot_does_not_hide_is_held)
{
	struct mini_cell *m = mini_new(&(struct mini_options){ .replicas = 3, .seed = 12, .disk_ms = 1, .net_ms = 1, .snapshot_count = 50, .snapshot_keep = 5,
							       .log_memory = 1000, .admit_window = WINDOW });
	size_t leader = mini_elect(m, 10000), at = follower(m);
	struct asking a = { .leader = leader, .at = at, .asker = mini_member(m, at), .led_by = mini_member(m, leader) };
	struct core_status status;
	struct buf answer = { 0 };
	bool at_once = _i == 0 || _i > 1; /* what is applied is what it would wait for */
	uint64_t lock;

	OK(m, mini_grant(m, leader, S, 600));
	mini_run(m, 100);
	mini_on_event(m, on_event, &a);
	for (int i = 0; i < 8; i++)
		flood(m, leader);
	lock = mini_lock(m, at, "m", S); /* is taken, and waits in line */
	mini_run(m, 3);
	for (size_t i = 0; i < 3; i++)
		mini_cut(m, i, at, i != at);
	mini_run(m, 200);
	for (size_t i = 0; i < 3; i++)
		mini_cut(m, i, at, false);
	do {
		mini_run(m, 1);
		core_status(mini_core(m, at), &status);
	} while (status.snapshots_installed == 0);
	ck_assert(!mini_answer(m, lock) && mini_contenders(m, leader, "m") == 0);
	pbw_u64(&answer, 1, status.term + (_i == 2));
	pbw_u64(&answer, 2, _i == 3 ? 0 : 1000);
	pbw_u64(&answer, 3, at_once ? 1 : 1000000);
	pbw_u64(&answer, 4, _i == 4);
	pbw_u64(&answer, 5, a.fields[6] + (_i == 5));
	for (int i = 0; i < 2 && _i > 0; i++) {
		comes(m, a.told, at, BODY_ANSWER, &answer);
		mini_run(m, 1);
	}
	OK(m, lock);
	ck_assert_uint_ge(a.answers, _i == 0);
	buf_free(&answer);
	mini_free(m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("unlock");
	TCase *t = tcase_create("stories");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, unlock__comes_behind_the_lock_that_waits_in_line, 0, 2);
	tcase_add_loop_test(t, unlock__comes_behind_the_lock_that_is_given_up, 0, 8);
	tcase_add_test(t, unlock__comes_behind_the_lock_that_is_proposed_again);
	tcase_add_test(t, unlock__that_is_proposed_again_comes_before_the_lock_behind_it);
	tcase_add_test(t, unlock__waits_for_those_before_it_alone);
	tcase_add_test(t, unlock__ends_the_wait_of_a_queued_lock);
	tcase_add_test(t, unlock__with_a_token_waits_for_nothing);
	tcase_add_test(t, unlock__that_is_a_repetition_frees_nothing);
	tcase_add_loop_test(t, unlock__is_told_when_its_time_is_up, 0, 2);
	tcase_add_test(t, unlock__what_is_set_aside_counts_as_waiting);
	tcase_add_loop_test(t, unlock__comes_behind_a_lock_that_a_snapshot_hides, 0, 2);
	tcase_add_test(t, unlock__whose_lock_waits_in_front_of_the_log_is_told_so);
	tcase_add_loop_test(t, unlock__a_lock_that_a_snapshot_does_not_hide_is_held, 0, 6);
	tcase_add_loop_test(t, unlock__what_waits_at_the_gate_is_told_too, 0, 3);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
