/* raft_test.c: one replica of raft, and what it says to messages made by hand. What takes several replicas is told as a
 * story (tests/datadriven/raft) or lived through (sim_test.c). */
#include "core/raft/raft.h"

#include <check.h>
#include <stdlib.h>

#include "base/mem.h"
#include "holdfast/internal.pb-c.h"

#define KIND(k) HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__RAFT_##k

static struct raft *r;
static struct raft_ready rd;
static time_ms now;
static const struct raft_member three[] = { { 1, false }, { 2, false }, { 3, false } };

static struct raft_config config(void)
{
	return (struct raft_config){
		.self = 1, .seed = 1, .election_timeout_ms = 1000, .heartbeat_ms = 100, .max_append_bytes = 10, .max_inflight = 2,
		.max_uncommitted_bytes = 20, .memory_bytes = 1000,
	};
}

static void start_with(const struct raft_config *c, const struct raft_boot *boot)
{
	now = 5000;
	r = raft_new(c, boot, now);
}

static void start(const struct raft_member *members, size_t len)
{
	struct raft_boot boot = { .first = 1, .members = members, .members_len = len };
	struct raft_config c = config();

	start_with(&c, &boot);
}

static void release(void)
{
	for (size_t i = 0; i < rd.messages_len; i++) {
		for (size_t j = 0; j < rd.messages[i].entries_len; j++)
			raft_entry_unref(rd.messages[i].entries[j]);
	}
	for (size_t i = 0; i < rd.entries_len; i++)
		raft_entry_unref(rd.entries[i]);
	for (size_t i = 0; i < rd.committed_len; i++)
		raft_entry_unref(rd.committed[i]);
	for (size_t i = 0; i < rd.chunks_len; i++)
		free((void *)(uintptr_t)rd.chunks[i].data.ptr);
}

/* The last ready stays for a test to look at: its references are dropped, but the log keeps what matters alive. */
static void take(void)
{
	raft_check(r);
	raft_take_ready(r, &rd);
	raft_check(r);
	release();
	ck_assert(!raft_has_ready(r));
}

static const struct raft_message *sent(uint32_t kind, member_id to)
{
	for (size_t i = 0; i < rd.messages_len; i++) {
		if (rd.messages[i].kind == kind && rd.messages[i].to == to)
			return &rd.messages[i];
	}
	return NULL;
}

static size_t count_sent(uint32_t kind, member_id to)
{
	size_t n = 0;

	for (size_t i = 0; i < rd.messages_len; i++)
		n += rd.messages[i].kind == kind && rd.messages[i].to == to;
	return n;
}

static void receive(struct raft_message m)
{
	raft_receive(r, &m, now);
	take();
}

static void persist(void)
{
	raft_persisted(r, rd.write_seq, now);
	take();
}

/* Elects 1 in the next term, with 2's votes, its no-op durable and committed. */
static void lead(void)
{
	raft_term term;

	now = raft_next_deadline(r) > now ? raft_next_deadline(r) : now;
	raft_tick(r, now);
	take();
	term = raft_current_term(r) + 1;
	receive((struct raft_message){ .kind = KIND(PREVOTE_REPLY), .from = 2, .to = 1, .term = term });
	persist();
	receive((struct raft_message){ .kind = KIND(VOTE_REPLY), .from = 2, .to = 1, .term = term });
	ck_assert_int_eq(raft_role(r), RAFT_LEADER);
	persist();
	receive((struct raft_message){ .kind = KIND(APPEND_REPLY), .from = 2, .to = 1, .term = term, .match = { raft_last_index(r), 0 } });
	ck_assert_uint_eq(raft_commit_index(r), raft_last_index(r));
	raft_applied(r, raft_last_index(r));
}

static void append(raft_term term, struct entry_id prev, raft_index commit, const raft_term *terms, size_t len)
{
	struct raft_entry *entries[16];
	struct raft_message m = {
		.kind = KIND(APPEND), .from = 2, .to = 1, .term = term, .log = prev, .commit = commit, .entries = entries,
		.entries_len = len,
	};

	for (size_t i = 0; i < len; i++)
		entries[i] = raft_entry_new((struct entry_id){ prev.index + 1 + i, terms[i] }, RAFT_ENTRY_COMMAND, slice_of_str("x"));
	receive(m);
	for (size_t i = 0; i < len; i++)
		raft_entry_unref(entries[i]);
}

static void teardown(void)
{
	raft_free(r);
	r = NULL;
}

#define TERMS(...) (const raft_term[]){ __VA_ARGS__ }, sizeof((const raft_term[]){ __VA_ARGS__ }) / sizeof(raft_term)

/* ---- elections ---- */

START_TEST(vote__one_a_term_and_the_same_again)
{
	struct raft_message vote = { .kind = KIND(VOTE), .from = 2, .to = 1, .term = 4 };
	uint64_t seq;

	start(three, 3);
	receive(vote);
	ck_assert(!sent(KIND(VOTE_REPLY), 2)->reject);
	ck_assert_uint_eq(rd.hard.term, 4);
	ck_assert_uint_eq(rd.hard.voted_for, 2);
	seq = rd.write_seq;
	ck_assert_uint_gt(seq, 0);
	ck_assert_uint_eq(sent(KIND(VOTE_REPLY), 2)->wait_seq, seq);
	/* asked again, the answer still waits for that very write */
	receive(vote);
	ck_assert(!sent(KIND(VOTE_REPLY), 2)->reject);
	ck_assert_uint_eq(sent(KIND(VOTE_REPLY), 2)->wait_seq, seq);
	raft_persisted(r, seq, now);
	receive(vote);
	ck_assert_uint_eq(sent(KIND(VOTE_REPLY), 2)->wait_seq, 0);
	vote.from = 3;
	receive(vote);
	ck_assert(sent(KIND(VOTE_REPLY), 3)->reject);
}
END_TEST

START_TEST(vote__survives_a_restart)
{
	struct raft_boot boot = { .hard = { .term = 4, .voted_for = 3 }, .first = 1, .members = three, .members_len = 3 };
	struct raft_config c = config();

	start_with(&c, &boot);
	receive((struct raft_message){ .kind = KIND(VOTE), .from = 2, .to = 1, .term = 4 });
	ck_assert(sent(KIND(VOTE_REPLY), 2)->reject);
	receive((struct raft_message){ .kind = KIND(VOTE), .from = 3, .to = 1, .term = 4 });
	ck_assert(!sent(KIND(VOTE_REPLY), 3)->reject);
}
END_TEST

START_TEST(vote__not_for_a_log_that_is_behind)
{
	static const struct { struct entry_id last; bool granted; } cases[] = {
		{ { 2, 1 }, false }, /* shorter, same term */
		{ { 9, 1 }, false }, /* longer, but of an older term */
		{ { 2, 2 }, false },
		{ { 3, 2 }, true },
		{ { 1, 3 }, true },
	};

	start(three, 3);
	append(2, (struct entry_id){ 0, 0 }, 0, TERMS(1, 1, 2));
	ck_assert_uint_eq(raft_last_index(r), 3);
	now += 3000;
	receive((struct raft_message){ .kind = KIND(VOTE), .from = 3, .to = 1, .term = 10 + (raft_term)_i, .log = cases[_i].last });
	ck_assert_int_eq(!sent(KIND(VOTE_REPLY), 3)->reject, cases[_i].granted);
}
END_TEST

START_TEST(vote__two_answers_of_one_voter_are_one)
{
	static const struct raft_member five[] = { { 1, false }, { 2, false }, { 3, false }, { 4, false }, { 5, false } };

	start(five, 5);
	now = raft_next_deadline(r);
	raft_tick(r, now);
	take();
	for (int i = 0; i < 3; i++)
		receive((struct raft_message){ .kind = KIND(PREVOTE_REPLY), .from = 2, .to = 1, .term = 1 });
	ck_assert_int_eq(raft_role(r), RAFT_PRECANDIDATE);
	receive((struct raft_message){ .kind = KIND(PREVOTE_REPLY), .from = 3, .to = 1, .term = 1 });
	ck_assert_int_eq(raft_role(r), RAFT_CANDIDATE);
	/* a pre-vote that comes late is no vote */
	receive((struct raft_message){ .kind = KIND(PREVOTE_REPLY), .from = 4, .to = 1, .term = 1 });
	for (int i = 0; i < 3; i++)
		receive((struct raft_message){ .kind = KIND(VOTE_REPLY), .from = 2, .to = 1, .term = 1 });
	ck_assert_int_eq(raft_role(r), RAFT_CANDIDATE);
	receive((struct raft_message){ .kind = KIND(VOTE_REPLY), .from = 5, .to = 1, .term = 1 });
	ck_assert_int_eq(raft_role(r), RAFT_LEADER);
}
END_TEST

/* Another one stood at the same time: whoever lost asks again soon, unless he hears of a leader. Who got no pre-votes waits his full time. */
START_TEST(vote__that_was_split_is_held_again_soon)
{
	struct raft_boot boot = { .first = 1, .members = three, .members_len = 3 };
	struct raft_config c = config();
	bool stood = _i % 2;

	c.seed += (uint64_t)_i / 2;
	start_with(&c, &boot);
	now = raft_next_deadline(r);
	raft_tick(r, now);
	take();
	if (stood)
		receive((struct raft_message){ .kind = KIND(PREVOTE_REPLY), .from = 2, .to = 1, .term = 1 });
	ck_assert_int_eq(raft_role(r), stood ? RAFT_CANDIDATE : RAFT_PRECANDIDATE);
	for (member_id from = 2; from <= 3; from++)
		receive((struct raft_message){ .kind = stood ? KIND(VOTE_REPLY) : KIND(PREVOTE_REPLY), .from = from, .to = 1, .term = stood, .reject = true });
	ck_assert_int_eq(raft_role(r), RAFT_FOLLOWER);
	ck_assert_uint_ge(raft_next_deadline(r) - now, stood ? 1000 / 16 : 1000);
	ck_assert_uint_le(raft_next_deadline(r) - now, stood ? 1000 / 4 + 1 : 2000);
	if (!stood)
		return;
	receive((struct raft_message){ .kind = KIND(HEARTBEAT), .from = 2, .to = 1, .term = 1 });
	ck_assert_uint_ge(raft_next_deadline(r) - now, 1000);
}
END_TEST

START_TEST(vote__of_a_learner_or_a_stranger_does_not_count)
{
	static const struct raft_member members[] = { { 1, false }, { 2, false }, { 3, false }, { 4, true } };

	start(members, 4);
	now = raft_next_deadline(r);
	raft_tick(r, now);
	take();
	ck_assert_ptr_null(sent(KIND(PREVOTE), 4));
	receive((struct raft_message){ .kind = KIND(PREVOTE_REPLY), .from = 4, .to = 1, .term = 1 });
	receive((struct raft_message){ .kind = KIND(PREVOTE_REPLY), .from = 9, .to = 1, .term = 1 });
	receive((struct raft_message){ .kind = KIND(PREVOTE_REPLY), .from = 1, .to = 1, .term = 1 });
	ck_assert_int_eq(raft_role(r), RAFT_PRECANDIDATE);
}
END_TEST

START_TEST(vote__for_a_stranger_whose_log_is_long_enough)
{
	struct raft_message ask = { .kind = KIND(PREVOTE), .from = 9, .to = 1, .term = 5, .log = { 2, 2 } };

	start(three, 3);
	append(1, (struct entry_id){ 0, 0 }, 0, TERMS(1, 1));
	receive(ask);
	ck_assert_uint_eq(rd.messages_len, 0); /* a leader lives */
	now = raft_next_deadline(r);
	raft_tick(r, now);
	take();
	receive(ask);
	ck_assert(!sent(KIND(PREVOTE_REPLY), 9)->reject);
	ask.kind = KIND(VOTE);
	receive(ask);
	ck_assert(!sent(KIND(VOTE_REPLY), 9)->reject);
	receive((struct raft_message){ .kind = KIND(VOTE), .from = 2, .to = 1, .term = 5, .log = { 2, 2 } });
	ck_assert(sent(KIND(VOTE_REPLY), 2)->reject); /* one in a term */
	receive((struct raft_message){ .kind = KIND(VOTE), .from = 9, .to = 1, .term = 6, .log = { 1, 1 } });
	ck_assert(sent(KIND(VOTE_REPLY), 9)->reject); /* it lacks an entry */
}
END_TEST

START_TEST(vote__a_live_leader_is_not_disturbed_but_by_force)
{
	struct raft_message vote = { .kind = KIND(VOTE), .from = 3, .to = 1, .term = 9, .log = { 1, 1 } };

	start(three, 3);
	append(1, (struct entry_id){ 0, 0 }, 0, TERMS(1));
	now += 999;
	receive(vote);
	ck_assert_uint_eq(raft_current_term(r), 1);
	ck_assert_uint_eq(rd.messages_len, 0);
	vote.force = true;
	receive(vote);
	ck_assert_uint_eq(raft_current_term(r), 9);
	ck_assert(!sent(KIND(VOTE_REPLY), 3)->reject);
}
END_TEST

START_TEST(vote__a_stale_sender_is_told_the_term)
{
	static const uint32_t kinds[] = { KIND(VOTE), KIND(PREVOTE), KIND(APPEND), KIND(HEARTBEAT), KIND(SNAPSHOT) };

	start(three, 3);
	receive((struct raft_message){ .kind = KIND(VOTE), .from = 3, .to = 1, .term = 9 });
	receive((struct raft_message){ .kind = kinds[_i], .from = 2, .to = 1, .term = 3, .chunks = 1 });
	ck_assert_uint_eq(rd.messages_len, 1);
	ck_assert_uint_eq(rd.messages[0].to, 2);
	ck_assert_uint_eq(rd.messages[0].term, 9);
	ck_assert(rd.messages[0].reject);
	ck_assert_uint_eq(rd.chunks_len, 0);
	ck_assert_uint_eq(raft_leader(r), 0);
}
END_TEST

START_TEST(election__nobody_else_campaigns)
{
	static const struct raft_member learner[] = { { 1, true }, { 2, false } }, stranger[] = { { 2, false }, { 3, false } };

	start(_i ? learner : stranger, 2);
	ck_assert_uint_eq(raft_next_deadline(r), TIME_NEVER);
	raft_tick(r, now + 100000);
	now += 100000;
	take();
	ck_assert_int_eq(raft_role(r), RAFT_FOLLOWER);
	receive((struct raft_message){ .kind = KIND(TIMEOUT_NOW), .from = 2, .to = 1, .term = 0 });
	ck_assert_int_eq(raft_role(r), RAFT_FOLLOWER);
}
END_TEST

START_TEST(election__timeouts_are_drawn_from_one_to_two)
{
	start(three, 3);
	for (int i = 0; i < 200; i++) {
		time_ms left = raft_next_deadline(r) - now;

		ck_assert_uint_ge(left, 1000);
		ck_assert_uint_lt(left, 2000);
		now = raft_next_deadline(r);
		raft_tick(r, now);
		take();
	}
	ck_assert_uint_eq(raft_current_term(r), 0); /* pre-votes alone do not raise it */
}
END_TEST

/* ---- the log of a follower ---- */

START_TEST(append__commit_is_capped_at_the_last_entry_sent)
{
	/* 2 and 3 are of an older leader; the message stops before them and calls 3 committed, which is of another log */
	start(three, 3);
	append(2, (struct entry_id){ 0, 0 }, 0, TERMS(1, 2, 2));
	append(4, (struct entry_id){ 0, 0 }, 3, TERMS(1));
	ck_assert_uint_eq(raft_commit_index(r), 1);
	append(4, (struct entry_id){ 1, 1 }, 3, NULL, 0);
	ck_assert_uint_eq(raft_commit_index(r), 1);
	append(4, (struct entry_id){ 1, 1 }, 3, TERMS(4, 4));
	ck_assert_uint_eq(raft_commit_index(r), 3);
	ck_assert_uint_eq(raft_term_at(r, 3), 4);
}
END_TEST

START_TEST(append__acknowledges_what_is_durable_and_matches)
{
	uint64_t first, second;

	start(three, 3);
	append(1, (struct entry_id){ 0, 0 }, 0, TERMS(1, 1));
	first = rd.write_seq;
	ck_assert_uint_eq(sent(KIND(APPEND_REPLY), 2)->match.index, 2);
	ck_assert_uint_eq(sent(KIND(APPEND_REPLY), 2)->wait_seq, first);
	append(1, (struct entry_id){ 2, 1 }, 0, TERMS(1));
	second = rd.write_seq;
	ck_assert_uint_gt(second, first);
	ck_assert_uint_eq(sent(KIND(APPEND_REPLY), 2)->wait_seq, second);
	/* the same again asks for no new write, and waits for the one that has it */
	append(1, (struct entry_id){ 0, 0 }, 0, TERMS(1, 1));
	ck_assert_uint_eq(rd.write_seq, 0);
	ck_assert_uint_eq(sent(KIND(APPEND_REPLY), 2)->match.index, 2);
	ck_assert_uint_eq(sent(KIND(APPEND_REPLY), 2)->wait_seq, first);
	/* completions may be merged */
	raft_persisted(r, second, now);
	ck_assert_uint_eq(raft_stable_index(r), 3);
	append(1, (struct entry_id){ 2, 1 }, 0, TERMS(1));
	ck_assert_uint_eq(sent(KIND(APPEND_REPLY), 2)->wait_seq, 0);
}
END_TEST

START_TEST(append__an_overwritten_write_completes_for_nothing)
{
	uint64_t first;

	start(three, 3);
	append(1, (struct entry_id){ 0, 0 }, 0, TERMS(1, 1, 1));
	first = rd.write_seq;
	append(2, (struct entry_id){ 1, 1 }, 0, TERMS(2));
	ck_assert_uint_eq(rd.truncate_from, 2);
	ck_assert_uint_eq(raft_last_index(r), 2);
	raft_persisted(r, first, now);
	ck_assert_uint_eq(raft_stable_index(r), 1);
	ck_assert_uint_eq(sent(KIND(APPEND_REPLY), 2)->wait_seq, rd.write_seq);
	raft_persisted(r, rd.write_seq, now);
	ck_assert_uint_eq(raft_stable_index(r), 2);
}
END_TEST

START_TEST(append__a_refusal_says_where_to_try)
{
	start(three, 3);
	append(3, (struct entry_id){ 0, 0 }, 1, TERMS(1, 1, 3, 3));
	append(5, (struct entry_id){ 9, 4 }, 1, TERMS(5)); /* a gap */
	ck_assert(sent(KIND(APPEND_REPLY), 2)->reject);
	ck_assert_uint_eq(sent(KIND(APPEND_REPLY), 2)->log.index, 9);
	ck_assert_uint_eq(sent(KIND(APPEND_REPLY), 2)->match.index, 4);
	ck_assert_uint_eq(sent(KIND(APPEND_REPLY), 2)->match.term, 3);
	append(5, (struct entry_id){ 4, 2 }, 1, TERMS(5)); /* 3 and 4 are of a term that the leader has no entry of there */
	ck_assert(sent(KIND(APPEND_REPLY), 2)->reject);
	ck_assert_uint_eq(sent(KIND(APPEND_REPLY), 2)->match.index, 2);
	ck_assert_uint_eq(raft_last_index(r), 4);
}
END_TEST

START_TEST(append__from_a_leader_that_is_not_known_yet)
{
	/* The members here are old; the leader is one of those that the log is about to add. */
	static const raft_term terms[] = { 7 };
	struct raft_entry *e = raft_entry_new((struct entry_id){ 1, terms[0] }, RAFT_ENTRY_COMMAND, slice_of_str("x"));
	struct raft_message m = { .kind = KIND(APPEND), .from = 8, .to = 1, .term = 7, .entries = &e, .entries_len = 1 };

	start(three, 3);
	receive((struct raft_message){ .kind = KIND(APPEND_REPLY), .from = 8, .to = 1, .term = 9 });
	ck_assert_uint_eq(raft_current_term(r), 0);
	ck_assert_uint_eq(rd.messages_len, 0);
	receive(m);
	ck_assert_uint_eq(raft_last_index(r), 1);
	ck_assert_uint_eq(raft_leader(r), 8);
	raft_entry_unref(e);
}
END_TEST

/* ---- the leader ---- */

START_TEST(propose__is_bounded)
{
	raft_index index = 77;

	start(three, 3);
	ck_assert_int_eq(raft_propose(r, RAFT_ENTRY_COMMAND, slice_of_str("x"), &index), ERR_NOT_LEADER);
	ck_assert_uint_eq(index, 77);
	lead();
	/* one always goes, however large */
	ck_assert_int_eq(raft_propose(r, RAFT_ENTRY_COMMAND, slice_of_str("longer than twenty bytes"), &index), ERR_OK);
	ck_assert_uint_eq(index, 2);
	ck_assert_int_eq(raft_propose(r, RAFT_ENTRY_COMMAND, slice_of_str("x"), &index), ERR_TOO_MANY_REQUESTS);
	take();
	persist();
	receive((struct raft_message){ .kind = KIND(APPEND_REPLY), .from = 2, .to = 1, .term = 1, .match = { 2, 0 } });
	ck_assert_uint_eq(raft_commit_index(r), 2);
	ck_assert_int_eq(raft_propose(r, RAFT_ENTRY_COMMAND, slice_of_str("x"), &index), ERR_OK);
	take();
}
END_TEST

START_TEST(replicate__in_messages_of_a_bounded_size_and_number)
{
	start(three, 3);
	lead();
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(raft_propose(r, RAFT_ENTRY_COMMAND, slice_of_str("five!"), NULL), ERR_OK);
	take();
	/* 10 bytes a message, two messages unacknowledged: all four are on their way to 2; 3 has not answered since the election */
	ck_assert_uint_eq(count_sent(KIND(APPEND), 2), 2);
	ck_assert_uint_eq(sent(KIND(APPEND), 2)->entries_len, 2);
	ck_assert_uint_eq(count_sent(KIND(APPEND), 3), 0);
	raft_propose(r, RAFT_ENTRY_NOOP, slice_of(NULL, 0), NULL);
	take();
	ck_assert_uint_eq(count_sent(KIND(APPEND), 2), 0); /* the pipe is full */
	receive((struct raft_message){ .kind = KIND(APPEND_REPLY), .from = 2, .to = 1, .term = 1, .match = { 3, 0 } });
	ck_assert_uint_eq(count_sent(KIND(APPEND), 2), 1);
}
END_TEST

START_TEST(replicate__nonsense_is_not_counted)
{
	start(three, 3);
	lead();
	raft_propose(r, RAFT_ENTRY_COMMAND, slice_of_str("x"), NULL);
	take();
	persist();
	receive((struct raft_message){ .kind = KIND(APPEND_REPLY), .from = 2, .to = 1, .term = 1, .match = { 50, 0 } });
	receive((struct raft_message){ .kind = KIND(APPEND_REPLY), .from = 9, .to = 1, .term = 1, .match = { 2, 0 } });
	receive((struct raft_message){ .kind = KIND(APPEND_REPLY), .from = 1, .to = 1, .term = 1, .match = { 2, 0 } });
	ck_assert_uint_eq(raft_commit_index(r), 1);
}
END_TEST

START_TEST(replicate__the_leader_counts_itself_when_durable)
{
	start(three, 3);
	lead();
	raft_propose(r, RAFT_ENTRY_COMMAND, slice_of_str("x"), NULL);
	take();
	ck_assert_uint_eq(raft_commit_index(r), 1);
	receive((struct raft_message){ .kind = KIND(APPEND_REPLY), .from = 2, .to = 1, .term = 1, .match = { 2, 0 } });
	ck_assert_uint_eq(raft_commit_index(r), 1);
	receive((struct raft_message){ .kind = KIND(APPEND_REPLY), .from = 3, .to = 1, .term = 1, .match = { 2, 0 } });
	ck_assert_uint_eq(raft_commit_index(r), 2); /* two others do */
	ck_assert_uint_eq(rd.committed_len, 0);     /* but nothing is applied that is not durable here */
}
END_TEST

START_TEST(round__is_shared_by_a_batch_and_confirmed_by_a_majority)
{
	uint64_t round;

	start(three, 3);
	ck_assert_uint_eq(raft_begin_round(r), 0);
	lead();
	take();
	round = raft_begin_round(r);
	ck_assert_uint_eq(raft_begin_round(r), round);
	take();
	ck_assert_uint_eq(sent(KIND(HEARTBEAT), 2)->round, round);
	ck_assert_uint_lt(rd.confirmed_round, round);
	ck_assert_uint_gt(raft_begin_round(r), round);
	take();
	/* of a round that was never begun, of an older term, of a stranger: nothing */
	receive((struct raft_message){ .kind = KIND(HEARTBEAT_REPLY), .from = 2, .to = 1, .term = 1, .round = round + 50 });
	receive((struct raft_message){ .kind = KIND(HEARTBEAT_REPLY), .from = 2, .to = 1, .term = 0, .round = round });
	receive((struct raft_message){ .kind = KIND(HEARTBEAT_REPLY), .from = 9, .to = 1, .term = 1, .round = round });
	ck_assert_uint_lt(rd.confirmed_round, round);
	raft_receive(r, &(struct raft_message){ .kind = KIND(HEARTBEAT_REPLY), .from = 3, .to = 1, .term = 1, .round = round }, now);
	ck_assert(raft_has_ready(r)); /* somebody waits for that */
	take();
	ck_assert_uint_eq(rd.confirmed_round, round);
	ck_assert_uint_eq(rd.round_term, 1);
}
END_TEST

START_TEST(round__that_is_not_sent_yet_survives_a_pause)
{
	uint64_t round;

	start(three, 3);
	lead();
	take();
	round = raft_begin_round(r);
	raft_shift(r, 5000);
	now += 5000;
	raft_tick(r, now);
	take();
	ck_assert_int_eq(raft_role(r), RAFT_LEADER);
	ck_assert_uint_ge(sent(KIND(HEARTBEAT), 2)->round, round);
	receive((struct raft_message){ .kind = KIND(HEARTBEAT_REPLY), .from = 2, .to = 1, .term = 1, .round = sent(KIND(HEARTBEAT), 2)->round });
	ck_assert_uint_ge(rd.confirmed_round, round);
}
END_TEST

START_TEST(quorum__of_a_leader_that_paused_is_not_blamed)
{
	start(three, 3);
	lead();
	take();
	now += 990;
	raft_shift(r, 900);
	raft_tick(r, now);
	take();
	ck_assert_int_eq(raft_role(r), RAFT_LEADER);
	now += 920;
	raft_tick(r, now);
	take();
	ck_assert_int_eq(raft_role(r), RAFT_FOLLOWER);
	ck_assert_uint_eq(raft_leader(r), 0);
}
END_TEST

START_TEST(shift__moves_a_followers_patience)
{
	time_ms deadline;

	start(three, 3);
	append(1, (struct entry_id){ 0, 0 }, 0, TERMS(1));
	deadline = raft_next_deadline(r);
	raft_shift(r, 30000);
	ck_assert_uint_eq(raft_next_deadline(r), deadline + 30000);
	now += 30000;
	/* it still takes its leader for alive */
	receive((struct raft_message){ .kind = KIND(PREVOTE), .from = 3, .to = 1, .term = 2, .log = { 1, 1 } });
	ck_assert_uint_eq(rd.messages_len, 0);
}
END_TEST

/* ---- disk reads, snapshots ---- */

static struct raft_entry *tail[8];

static size_t make_tail(raft_index from, raft_index to, raft_term term)
{
	size_t n = 0;

	for (raft_index i = from; i <= to; i++)
		tail[n++] = raft_entry_new((struct entry_id){ i, term }, RAFT_ENTRY_COMMAND, slice_of_str("y"));
	return n;
}

static void drop_tail(size_t n)
{
	while (n > 0)
		raft_entry_unref(tail[--n]);
}

/* Entries 1..8 of term 2, of which 5 are known to be committed: those are on disk only. */
static void restart(void)
{
	struct raft_config c = config();
	struct raft_boot boot = {
		.hard = { .term = 2, .commit = 5 }, .last = { 8, 2 }, .first = 1, .members = three, .members_len = 3, .tail = tail,
	};

	boot.tail_len = make_tail(6, 8, 2);
	start_with(&c, &boot);
	drop_tail(boot.tail_len);
	take();
}

START_TEST(restart__reads_what_is_committed)
{
	uint64_t id;
	size_t n;

	restart();
	ck_assert_uint_eq(rd.reads_len, 1);
	ck_assert_uint_eq(rd.reads[0].from, 1);
	ck_assert_uint_eq(rd.reads[0].to, 5);
	ck_assert_uint_eq(rd.committed_len, 0);
	id = rd.reads[0].id;
	n = make_tail(1, 2, 2);
	raft_log_read_done(r, id + 100, ERR_OK, tail, n); /* an answer to a question nobody has now */
	ck_assert(!raft_has_ready(r));
	raft_log_read_done(r, id, ERR_OK, tail, n);
	take();
	drop_tail(n);
	ck_assert_uint_eq(rd.committed_len, 2);
	ck_assert_uint_eq(rd.reads_len, 1);
	ck_assert_uint_eq(rd.reads[0].from, 3);
}
END_TEST

START_TEST(restart__campaigns_after_it_has_applied)
{
	size_t n;

	restart();
	now = raft_next_deadline(r);
	raft_tick(r, now);
	take();
	ck_assert_int_eq(raft_role(r), RAFT_FOLLOWER);
	if (_i)
		receive((struct raft_message){ .kind = KIND(TIMEOUT_NOW), .from = 2, .to = 1, .term = 2 });
	ck_assert_int_eq(raft_role(r), RAFT_FOLLOWER);
	n = make_tail(1, 5, 2);
	raft_log_read_done(r, 1, ERR_OK, tail, n);
	take();
	drop_tail(n);
	ck_assert_uint_eq(rd.committed_len, 5);
	raft_applied(r, 4);
	ck_assert_int_eq(raft_role(r), RAFT_FOLLOWER);
	raft_applied(r, 5);
	if (_i) { /* it was asked to, and does at once, by force */
		ck_assert_int_eq(raft_role(r), RAFT_CANDIDATE);
		take();
		ck_assert(rd.messages_len > 0 && rd.messages[0].kind == KIND(VOTE) && rd.messages[0].force);
		return;
	}
	ck_assert_uint_eq(raft_next_deadline(r), now); /* its time had come */
	raft_tick(r, now);
	take();
	ck_assert_int_eq(raft_role(r), RAFT_PRECANDIDATE);
}
END_TEST

START_TEST(install__inside_what_is_committed_keeps_the_log)
{
	restart();
	/* the term of index 4 is on disk only; still, what is committed is the snapshot's history */
	ck_assert_uint_eq(raft_term_at(r, 4), 0);
	ck_assert(raft_install_snapshot(r, (struct entry_id){ 4, 2 }, three, 3));
	take();
	ck_assert_uint_eq(raft_commit_index(r), 5);
	ck_assert_uint_eq(raft_last_index(r), 8);
	ck_assert_uint_eq(raft_stable_index(r), 8);
	ck_assert_uint_eq(rd.truncate_from, 0);
	ck_assert_uint_eq(rd.reads[0].from, 5);
}
END_TEST

START_TEST(install__of_another_history_discards_the_log)
{
	restart();
	receive((struct raft_message){ .kind = KIND(HEARTBEAT), .from = 2, .to = 1, .term = 3 });
	ck_assert(!raft_install_snapshot(r, (struct entry_id){ 7, 3 }, three, 3));
	take();
	ck_assert_uint_eq(raft_commit_index(r), 7);
	ck_assert_uint_eq(raft_last_index(r), 7);
	ck_assert_uint_eq(raft_term_at(r, 7), 3);
	ck_assert_uint_eq(rd.committed_len, 0);
}
END_TEST

START_TEST(install__a_cut_that_is_not_written_stays_behind_the_snapshot)
{
	start(three, 3);
	append(1, (struct entry_id){ 0, 0 }, 0, TERMS(1, 1, 1, 1));
	raft_persisted(r, rd.write_seq, now);
	/* 2..4 are cut and rewritten, and the snapshot comes before that is taken */
	{
		struct raft_entry *e[3];
		struct raft_message m = { .kind = KIND(APPEND), .from = 2, .to = 1, .term = 2, .log = { 1, 1 }, .entries = e, .entries_len = 3 };

		for (size_t i = 0; i < 3; i++)
			e[i] = raft_entry_new((struct entry_id){ 2 + i, 2 }, RAFT_ENTRY_COMMAND, slice_of_str("z"));
		raft_receive(r, &m, now);
		for (size_t i = 0; i < 3; i++)
			raft_entry_unref(e[i]);
	}
	ck_assert(raft_install_snapshot(r, (struct entry_id){ 3, 2 }, three, 3));
	take();
	ck_assert(rd.truncate_from == 0 || rd.truncate_from > 3);
	ck_assert_uint_eq(rd.entries_len, 1);
	ck_assert_uint_eq(raft_last_index(r), 4);
	ck_assert_uint_eq(raft_stable_index(r), 3);
}
END_TEST

START_TEST(snapshot__is_asked_for_when_the_log_does_not_reach_back)
{
	uint64_t id;
	size_t n;

	restart();
	n = make_tail(1, 5, 2);
	raft_log_read_done(r, 1, ERR_OK, tail, n);
	take();
	drop_tail(n);
	raft_applied(r, 5);
	lead();
	take();
	/* 3 lacks all; what it lacks would be read */
	receive((struct raft_message){ .kind = KIND(APPEND_REPLY), .from = 3, .to = 1, .term = 3, .reject = true, .log = { 8, 2 } });
	ck_assert_uint_eq(rd.reads_len, 1);
	ck_assert_uint_eq(rd.reads[0].from, 1);
	id = rd.reads[0].id;
	/* but was trimmed meanwhile */
	raft_trim(r, (struct entry_id){ 5, 2 }, 5);
	raft_log_read_done(r, id, ERR_NOT_FOUND, NULL, 0);
	take();
	ck_assert_uint_eq(rd.snapshot_to_len, 1);
	ck_assert_uint_eq(rd.snapshot_to[0], 3);
	receive((struct raft_message){ .kind = KIND(HEARTBEAT_REPLY), .from = 3, .to = 1, .term = 3 });
	ck_assert_uint_eq(rd.snapshot_to_len, 0); /* named once */
	raft_snapshot_acked(r, 3, 5);
	take();
	ck_assert_uint_eq(sent(KIND(APPEND), 3)->log.index, 5);
	ck_assert_uint_eq(sent(KIND(APPEND), 3)->log.term, 2);
}
END_TEST

START_TEST(members__a_leader_that_is_none_any_more_steps_down)
{
	start(three, 3);
	lead();
	take();
	raft_set_members(r, three + 1, 2);
	take();
	ck_assert_int_eq(raft_role(r), RAFT_FOLLOWER);
	ck_assert_uint_eq(raft_next_deadline(r), TIME_NEVER);
}
END_TEST

START_TEST(members__fewer_voters_commit_what_waits)
{
	start(three, 3);
	lead();
	raft_propose(r, RAFT_ENTRY_COMMAND, slice_of_str("x"), NULL);
	take();
	persist();
	ck_assert_uint_eq(raft_commit_index(r), 1);
	raft_set_members(r, three, 1);
	take();
	ck_assert_uint_eq(raft_commit_index(r), 2);
}
END_TEST

/* ---- peers that contradict what is agreed: they are not heard ---- */

START_TEST(unsound__another_leader_of_our_own_term)
{
	raft_term term;

	start(three, 3);
	lead();
	term = raft_current_term(r);
	append(term, (struct entry_id){ 0, 0 }, 1, TERMS(term));
	ck_assert_int_eq(raft_role(r), RAFT_LEADER);
	ck_assert_ptr_null(sent(KIND(APPEND_REPLY), 2));
	receive((struct raft_message){ .kind = KIND(HEARTBEAT), .from = 2, .to = 1, .term = term });
	ck_assert_int_eq(raft_role(r), RAFT_LEADER);
}
END_TEST

START_TEST(unsound__terms_that_fall_behind_what_is_committed)
{
	start(three, 3);
	append(5, (struct entry_id){ 0, 0 }, 3, TERMS(4, 5, 5));
	persist();
	ck_assert_uint_eq(raft_commit_index(r), 3);
	/* Up to 3 nothing is compared; what follows would be older than that. */
	append(6, (struct entry_id){ 1, 4 }, 5, TERMS(4, 4, 4, 4));
	ck_assert_uint_eq(raft_last_index(r), 3);
	ck_assert_uint_eq(raft_commit_index(r), 3);
	ck_assert_ptr_null(sent(KIND(APPEND_REPLY), 2));
	append(6, (struct entry_id){ 3, 5 }, 4, TERMS(6));
	ck_assert_uint_eq(raft_last_index(r), 4);
}
END_TEST

START_TEST(unsound__a_refusal_of_what_was_never_sent)
{
	start(three, 3);
	lead();
	receive((struct raft_message){ .kind = KIND(APPEND_REPLY), .from = 2, .to = 1, .term = raft_current_term(r), .reject = true,
				       .log = { 500, 0 }, .match = { 400, 0 } });
	raft_check(r);
	ck_assert_uint_eq(rd.reads_len, 0);
}
END_TEST

/* ---- a disk that has lost what was acknowledged (recover.c) ---- */

/* 1 to 5 of term 2 were acknowledged; what is left is a snapshot of 1 and 2. */
static void start_damaged(void)
{
	struct raft_config c = config();
	struct raft_boot boot = {
		.hard = { .term = 2, .commit = 2 }, .snapshot = { 2, 2 }, .last = { 2, 2 }, .first = 3, .members = three, .members_len = 3, .lost = { 5, 2 },
	};

	start_with(&c, &boot);
}

static void heartbeat(raft_term term)
{
	receive((struct raft_message){ .kind = KIND(HEARTBEAT), .from = 2, .to = 1, .term = term, .commit = 2 });
}

/* W1 */
START_TEST(recover__neither_votes_nor_campaigns)
{
	const struct raft_message *m;

	start_damaged();
	receive((struct raft_message){ .kind = KIND(VOTE), .from = 3, .to = 1, .term = 3, .log = { 9, 2 } });
	m = sent(KIND(VOTE_REPLY), 3);
	ck_assert(!m || m->reject);
	for (int i = 0; i < 20; i++) {
		now += 500;
		raft_tick(r, now);
		take();
		ck_assert(!sent(KIND(PREVOTE), 2) && !sent(KIND(VOTE), 2));
	}
}
END_TEST

/* W3 */
START_TEST(recover__says_what_is_gone_with_each_heartbeat_and_refusal)
{
	const struct raft_message *m;

	start_damaged();
	for (int i = 0; i < 2; i++) {
		heartbeat(2);
		m = sent(KIND(APPEND_REPLY), 2);
		ck_assert(m && m->reject && m->lost);
		ck_assert_uint_eq(m->match.index, 2);
	}
	append(2, (struct entry_id){ 5, 2 }, 2, TERMS(2));
	m = sent(KIND(APPEND_REPLY), 2);
	ck_assert(m && m->reject && m->lost);
	ck_assert_uint_eq(m->match.index, 2);
}
END_TEST

/* W2: the same entries again, or one of a later term in the place of the first of them. */
START_TEST(recover__is_over_when_the_log_reaches_so_far_on_disk)
{
	start_damaged();
	append(2, (struct entry_id){ 2, 2 }, 2, TERMS(2, 2));
	persist();
	ck_assert_uint_eq(raft_lost(r).index, 5);
	if (_i == 0)
		append(2, (struct entry_id){ 4, 2 }, 2, TERMS(2));
	else
		append(3, (struct entry_id){ 2, 2 }, 2, TERMS(3));
	ck_assert_uint_eq(raft_lost(r).index, 5);
	persist();
	ck_assert_uint_eq(raft_lost(r).index, 0);
	heartbeat(_i == 0 ? 2 : 3);
	ck_assert(!sent(KIND(APPEND_REPLY), 2));
}
END_TEST

/* W3: a refusal alone would be an old one, since it goes below what was acknowledged in this term. */
START_TEST(recover__a_leader_sends_again_what_is_gone)
{
	struct raft_message gone = { .kind = KIND(APPEND_REPLY), .from = 2, .to = 1, .reject = true, .log = { 2, 1 }, .match = { 0, 0 } };
	raft_index index;

	start(three, 3);
	lead();
	ck_assert_int_eq(raft_propose(r, RAFT_ENTRY_COMMAND, slice_of_str("x"), &index), ERR_OK);
	take();
	persist();
	receive((struct raft_message){ .kind = KIND(APPEND_REPLY), .from = 2, .to = 1, .term = 1, .match = { 2, 0 } });
	ck_assert_uint_eq(raft_commit_index(r), 2);
	gone.term = 1;
	receive(gone);
	ck_assert(!sent(KIND(APPEND), 2));
	gone.lost = true;
	receive(gone);
	ck_assert(sent(KIND(APPEND), 2));
	ck_assert_uint_eq(sent(KIND(APPEND), 2)->log.index, 0);
	ck_assert_uint_eq(raft_commit_index(r), 2);
}
END_TEST

static Suite *raft_suite(void)
{
	Suite *s = suite_create("core_raft");
	TCase *tc = tcase_create("elections");

	tcase_add_checked_fixture(tc, NULL, teardown);
	tcase_add_test(tc, vote__one_a_term_and_the_same_again);
	tcase_add_test(tc, vote__survives_a_restart);
	tcase_add_loop_test(tc, vote__not_for_a_log_that_is_behind, 0, 5);
	tcase_add_test(tc, vote__two_answers_of_one_voter_are_one);
	tcase_add_test(tc, vote__of_a_learner_or_a_stranger_does_not_count);
	tcase_add_test(tc, vote__for_a_stranger_whose_log_is_long_enough);
	tcase_add_loop_test(tc, vote__that_was_split_is_held_again_soon, 0, 40);
	tcase_add_test(tc, vote__a_live_leader_is_not_disturbed_but_by_force);
	tcase_add_loop_test(tc, vote__a_stale_sender_is_told_the_term, 0, 5);
	tcase_add_loop_test(tc, election__nobody_else_campaigns, 0, 2);
	tcase_add_test(tc, election__timeouts_are_drawn_from_one_to_two);
	suite_add_tcase(s, tc);
	tc = tcase_create("unsound peers");
	tcase_add_checked_fixture(tc, NULL, teardown);
	tcase_add_test(tc, unsound__another_leader_of_our_own_term);
	tcase_add_test(tc, unsound__terms_that_fall_behind_what_is_committed);
	tcase_add_test(tc, unsound__a_refusal_of_what_was_never_sent);
	suite_add_tcase(s, tc);
	tc = tcase_create("follower");
	tcase_add_checked_fixture(tc, NULL, teardown);
	tcase_add_test(tc, append__commit_is_capped_at_the_last_entry_sent);
	tcase_add_test(tc, append__acknowledges_what_is_durable_and_matches);
	tcase_add_test(tc, append__an_overwritten_write_completes_for_nothing);
	tcase_add_test(tc, append__a_refusal_says_where_to_try);
	tcase_add_test(tc, append__from_a_leader_that_is_not_known_yet);
	tcase_add_test(tc, shift__moves_a_followers_patience);
	suite_add_tcase(s, tc);
	tc = tcase_create("leader");
	tcase_add_checked_fixture(tc, NULL, teardown);
	tcase_add_test(tc, propose__is_bounded);
	tcase_add_test(tc, replicate__in_messages_of_a_bounded_size_and_number);
	tcase_add_test(tc, replicate__nonsense_is_not_counted);
	tcase_add_test(tc, replicate__the_leader_counts_itself_when_durable);
	tcase_add_test(tc, round__is_shared_by_a_batch_and_confirmed_by_a_majority);
	tcase_add_test(tc, round__that_is_not_sent_yet_survives_a_pause);
	tcase_add_test(tc, quorum__of_a_leader_that_paused_is_not_blamed);
	tcase_add_test(tc, members__a_leader_that_is_none_any_more_steps_down);
	tcase_add_test(tc, members__fewer_voters_commit_what_waits);
	suite_add_tcase(s, tc);
	tc = tcase_create("disk");
	tcase_add_checked_fixture(tc, NULL, teardown);
	tcase_add_test(tc, restart__reads_what_is_committed);
	tcase_add_loop_test(tc, restart__campaigns_after_it_has_applied, 0, 2);
	tcase_add_test(tc, install__inside_what_is_committed_keeps_the_log);
	tcase_add_test(tc, install__of_another_history_discards_the_log);
	tcase_add_test(tc, install__a_cut_that_is_not_written_stays_behind_the_snapshot);
	tcase_add_test(tc, snapshot__is_asked_for_when_the_log_does_not_reach_back);
	suite_add_tcase(s, tc);
	tc = tcase_create("damage");
	tcase_add_checked_fixture(tc, NULL, teardown);
	tcase_add_test(tc, recover__neither_votes_nor_campaigns);
	tcase_add_test(tc, recover__says_what_is_gone_with_each_heartbeat_and_refusal);
	tcase_add_loop_test(tc, recover__is_over_when_the_log_reaches_so_far_on_disk, 0, 2);
	tcase_add_test(tc, recover__a_leader_sends_again_what_is_gone);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(raft_suite());
	int failed;

	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
