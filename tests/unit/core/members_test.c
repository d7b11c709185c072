/* members_test.c: a voter is removed: those who are left never need it again; and how it comes to know, if it was away.
 *
 * Member `away` is cut off and removed meanwhile. What it says is put before a replica as the network would bring it, and what reaches it is looked at. */
#include <check.h>

#include "base/pbw.h"
#include "core/member/member.h"
#include "core/wire.h"
#include "etcd/rpc.pb-c.h"
#include "holdfast/internal.pb-c.h"
#include "support/mini_answer.h"

enum { REPLICAS_MAX = 5, ELECTION_MS = 1000, BODY_RAFT = 10, BODY_READ = 13, BODY_REFUSED = 17, REFUSED_MEMBER = HOLDFAST__INTERNAL__REFUSED_REASON__REFUSED_MEMBER };

struct story {
	struct mini_cell *m;
	size_t replicas;
	uint64_t cell;              /* its ID */
	uint64_t told[REPLICAS_MAX]; /* refusals that said that it was removed, by who got them */
};

static void on_event(void *ctx, size_t i, const struct core_event *e)
{
	struct story *s = ctx;

	if (e->kind != EVENT_MESSAGE)
		return;
	s->cell = wire_find_u64(e->message, 2, 0);
	s->told[i] += wire_find_u64(wire_find_bytes(e->message, BODY_REFUSED), 1, 0) == REFUSED_MEMBER;
}

static struct story *begin(size_t replicas)
{
	static struct story s;

	s = (struct story){ .replicas = replicas, .m = mini_new(&(struct mini_options){ .replicas = replicas, .seed = 7, .disk_ms = 1, .net_ms = 1 }) };
	mini_on_event(s.m, on_event, &s);
	mini_elect(s.m, 10000);
	mini_run(s.m, 500);
	return &s;
}

static size_t follower(const struct story *s, size_t n)
{
	for (size_t i = 0; i < s->replicas; i++)
		if (i != mini_leader(s->m) && n-- == 0)
			return i;
	return s->replicas;
}

static uint64_t ask_to_remove(struct story *s, size_t at, size_t i)
{
	Etcdserverpb__MemberRemoveRequest r = ETCDSERVERPB__MEMBER_REMOVE_REQUEST__INIT;

	r.id = mini_member(s->m, i);
	return mini_request(s->m, at, METHOD_CLUSTER_MEMBER_REMOVE, &r.base);
}

static void remove_member(struct story *s, size_t i)
{
	mini_isolate(s->m, i, true);
	OK(s->m, ask_to_remove(s, mini_leader(s->m), i));
	mini_run(s->m, 500);
}

/* It is reached, and its own messages get nowhere. */
static void let_hear(struct story *s, size_t i)
{
	for (size_t k = 0; k < s->replicas; k++)
		mini_cut(s->m, i, k, true);
	mini_isolate(s->m, i, false);
}

/* Comes to replica i, from a member, meant for another. */
static void comes(struct story *s, size_t i, uint64_t cell, member_id from, member_id to, uint32_t body, struct slice content)
{
	struct buf b = { 0 };
	struct core_event e = { .kind = EVENT_MESSAGE, .now = mini_now(s->m) };

	pbw_u64(&b, 1, 1);
	pbw_fixed64(&b, 2, cell);
	pbw_fixed64(&b, 3, from);
	pbw_fixed64(&b, 4, to);
	pbw_bytes_always(&b, body, content);
	e.message = buf_view(&b);
	core_step(mini_core(s->m, i), &e);
	buf_free(&b);
}

/* With nothing in it, or that the receiver was removed. */
static void arrives(struct story *s, size_t i, uint64_t cell, member_id from, member_id to, uint32_t body)
{
	struct buf content = { 0 };

	pbw_u64(&content, 1, body == BODY_REFUSED ? REFUSED_MEMBER : 0);
	comes(s, i, cell, from, to, body, buf_view(&content));
	mini_run(s->m, 100);
	buf_free(&content);
}

START_TEST(members__who_lives_at_an_old_address_tells_who_was_removed)
{
	struct story *s = begin(5);
	size_t away = follower(s, 0), there = follower(s, 1);
	member_id lived_there = mini_member(s->m, there) + 1;

	arrives(s, there, s->cell, mini_member(s->m, away), lived_there, BODY_READ);
	ck_assert_uint_eq(s->told[away], 0); /* a member is told nothing, whomever it takes this one for */
	remove_member(s, away);
	let_hear(s, away);
	arrives(s, there, s->cell + 1, mini_member(s->m, away), lived_there, BODY_READ);
	arrives(s, there, s->cell, mini_member(s->m, away), lived_there, BODY_REFUSED);
	ck_assert_uint_eq(s->told[away], 0);
	arrives(s, there, s->cell, mini_member(s->m, away), lived_there, BODY_READ);
	ck_assert_uint_eq(s->told[away], 1);
	mini_free(s->m);
}
END_TEST

START_TEST(members__one_is_told_however_often_another_asks)
{
	struct story *s = begin(5);
	size_t away = follower(s, 0), another = follower(s, 1), there = mini_leader(s->m);

	remove_member(s, away);
	remove_member(s, another);
	let_hear(s, away);
	let_hear(s, another);
	for (int i = 0; i < 5; i++)
		arrives(s, there, s->cell, mini_member(s->m, another), mini_member(s->m, there), BODY_READ);
	arrives(s, there, s->cell, mini_member(s->m, away), mini_member(s->m, there), BODY_READ);
	ck_assert_uint_eq(s->told[another], 1); /* once a second */
	ck_assert_uint_eq(s->told[away], 1);
	mini_free(s->m);
}
END_TEST

START_TEST(members__without_a_leader_it_believes_a_stranger_of_its_cell)
{
	struct story *s = begin(5);
	size_t away = follower(s, 0);
	member_id id = mini_member(s->m, away), stranger = id + 1;

	arrives(s, away, s->cell, stranger, id, BODY_REFUSED);
	ck_assert_int_eq(mini_fatal(s->m, away), CORE_OK);
	mini_isolate(s->m, away, true);
	mini_run(s->m, 3 * ELECTION_MS / 2);
	arrives(s, away, s->cell, stranger, id, BODY_REFUSED);
	ck_assert_int_eq(mini_fatal(s->m, away), CORE_OK); /* others may still have a leader, and need it */
	mini_run(s->m, 3 * ELECTION_MS);
	arrives(s, away, s->cell + 1, stranger, id, BODY_REFUSED);
	ck_assert_int_eq(mini_fatal(s->m, away), CORE_OK);
	arrives(s, away, s->cell, stranger, id, BODY_REFUSED);
	ck_assert_int_eq(mini_fatal(s->m, away), CORE_FATAL_REMOVED);
	mini_free(s->m);
}
END_TEST

static raft_term term_of(struct story *s, size_t i)
{
	struct core_status status;

	core_status(mini_core(s->m, i), &status);
	return status.term;
}

/* It may have been added where this replica has not read to, and its vote be the one that is missing. But only of its cell, and not of who was removed. */
START_TEST(members__a_stranger_may_ask_for_a_vote)
{
	struct story *s = begin(5);
	size_t there = follower(s, 0), away = follower(s, 1);
	member_id here = mini_member(s->m, there);
	struct buf vote = { 0 };

	remove_member(s, away);
	mini_isolate(s->m, there, true);
	mini_run(s->m, 3 * ELECTION_MS);
	pbw_u64(&vote, 1, HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__RAFT_VOTE);
	pbw_u64(&vote, 2, 50);
	comes(s, there, s->cell, mini_member(s->m, away), here, BODY_RAFT, buf_view(&vote));
	comes(s, there, s->cell + 1, here + 1, here, BODY_RAFT, buf_view(&vote));
	ck_assert_uint_lt(term_of(s, there), 50);
	comes(s, there, s->cell, here + 1, here, BODY_RAFT, buf_view(&vote));
	ck_assert_uint_eq(term_of(s, there), 50);
	buf_free(&vote);
	mini_free(s->m);
}
END_TEST

/* M2: no more than so many a second, whoever they are. */
START_TEST(members__so_many_are_told_in_one_second)
{
	enum { TOLD_MAX = 32 };
	struct story *s = begin(5);
	size_t away = follower(s, 0), there = mini_leader(s->m);
	member_id here = mini_member(s->m, there);

	remove_member(s, away);
	let_hear(s, away);
	for (member_id stranger = 1; stranger <= TOLD_MAX; stranger++)
		comes(s, there, s->cell + 1, stranger, here, BODY_READ, (struct slice){ 0 });
	arrives(s, there, s->cell, mini_member(s->m, away), here, BODY_READ);
	ck_assert_uint_eq(s->told[away], 0);
	mini_run(s->m, 1000);
	arrives(s, there, s->cell, mini_member(s->m, away), here, BODY_READ);
	ck_assert_uint_eq(s->told[away], 1);
	mini_free(s->m);
}
END_TEST

/* G5 in member_change.c: whatever crashes when it stops, or when it is told that it was removed. */
START_TEST(members__who_was_removed_is_never_needed_again)
{
	for (int answered = 0; answered < 2; answered++)
		for (size_t replicas = 2; replicas <= 4; replicas += 2) {
			struct story *s = begin(replicas);
			size_t gone = follower(s, 0), lost = follower(s, 1);
			uint64_t tag = ask_to_remove(s, gone, gone);

			if (replicas == 4)
				mini_crash(s->m, lost); /* of three that are left, two are enough */
			for (int i = 0; i < 5000 && !(answered ? mini_answer(s->m, tag) != NULL : mini_fatal(s->m, gone) == CORE_FATAL_REMOVED); i++)
				mini_run(s->m, 1);
			ck_assert(answered ? mini_answer(s->m, tag) && mini_answer(s->m, tag)->err == ERR_OK : mini_fatal(s->m, gone) == CORE_FATAL_REMOVED);
			for (size_t i = 0; i < replicas; i++)
				if (i != lost)
					mini_crash(s->m, i);
			for (size_t i = 0; i < replicas; i++)
				if (i != lost && i != gone)
					mini_restart(s->m, i);
			ck_assert_uint_ne(mini_elect(s->m, 20000), gone);
			mini_free(s->m);
		}
}
END_TEST

static const struct member_record *record(struct story *s, size_t of)
{
	return member_find(core_state(mini_core(s->m, mini_leader(s->m))), mini_member(s->m, of));
}

/* V6: the replica that was asked dies between the two steps. */
START_TEST(members__a_removal_that_was_begun_comes_to_its_end)
{
	struct story *s = begin(5);
	size_t asked = follower(s, 0), gone = follower(s, 1);

	ask_to_remove(s, asked, gone);
	for (int i = 0; i < 1000 && !record(s, gone)->leaving; i++)
		mini_run(s->m, 1);
	ck_assert(record(s, gone)->leaving);
	mini_crash(s->m, asked);
	mini_run(s->m, 3 * ELECTION_MS);
	ck_assert_ptr_null(record(s, gone));
	mini_free(s->m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("members");
	TCase *t = tcase_create("members");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, members__who_lives_at_an_old_address_tells_who_was_removed);
	tcase_add_test(t, members__one_is_told_however_often_another_asks);
	tcase_add_test(t, members__a_stranger_may_ask_for_a_vote);
	tcase_add_test(t, members__so_many_are_told_in_one_second);
	tcase_add_test(t, members__who_was_removed_is_never_needed_again);
	tcase_add_test(t, members__a_removal_that_was_begun_comes_to_its_end);
	tcase_add_test(t, members__without_a_leader_it_believes_a_stranger_of_its_cell);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
