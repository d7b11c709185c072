/* election.c: who leads.
 *
 * A pre-vote asks whether an election could be won, without touching anybody's term, so a replica that was cut off does not depose a
 * healthy leader when it returns. A vote request leaves only when the candidate's own term and vote are durable (send_new waits for
 * them): it counts itself at once, and nobody can answer before. */
#include "raft_internal.h"

#include <string.h>

void become_follower(struct raft *r, raft_term term, member_id leader)
{
	ASSERT(term >= r->term);
	if (term > r->term) {
		r->term = term;
		r->voted_for = 0;
		r->hard_dirty = true;
	}
	/* A leader that stepped down, a candidate that lost: each waits its full time before it tries again (but see vote_was_split). */
	if (r->role != RAFT_FOLLOWER)
		reset_election_timer(r);
	r->role = RAFT_FOLLOWER;
	r->leader = leader;
	r->leader_lost = false;
	r->campaign_force = false;
	r->campaign_held = r->campaign_asked = false;
	r->round = r->round_sent = r->round_void = r->round_confirmed = r->round_told = 0;
	r->round_pending = false;
	r->uncommitted_bytes = 0;
	r->transfer_to = 0;
	r->snapshot_to_len = 0;
	for (size_t i = 0; i < r->members_len; i++)
		r->progress[i].want_read = false;
	r->changed = true;
}

void become_leader(struct raft *r)
{
	ASSERT(r->role == RAFT_CANDIDATE);
	ASSERT(r->self_voter);
	ASSERT(r->voted_for == r->config.self);
	r->role = RAFT_LEADER;
	r->leader = r->config.self;
	r->campaign_force = r->campaign_asked = false;
	r->changed = true;
	r->uncommitted_bytes = 0;
	for (raft_index i = r->log.commit + 1; i <= r->log.last.index; i++)
		r->uncommitted_bytes += log_at(&r->log, i)->len;
	for (size_t i = 0; i < r->members_len; i++)
		progress_reset(r, &r->progress[i], r->members[i].id, r->members[i].learner);
	/* Only an entry of our own term commits those before it (Raft section 5.4.2). */
	ASSERT(raft_propose(r, RAFT_ENTRY_NOOP, slice_of(NULL, 0), NULL) == ERR_OK);
	send_heartbeats(r);
}

static size_t count_votes(const struct raft *r, enum vote what)
{
	size_t n = 0;
	for (size_t i = 0; i < r->members_len; i++)
		n += !r->members[i].learner && r->votes[i] == what;
	return n;
}

/* Who gets the pre-votes of a majority and not its votes stood at the same time as another: two that lost their leader at the same instant may. Whoever won is heard of
 * at once, and puts this off; if nobody did, a whole timeout would be the longest part of the fail-over. */
static void vote_was_split(struct raft *r)
{
	r->election_deadline = r->now + rng_between(&r->rng, r->config.election_timeout_ms / 16 + 1, r->config.election_timeout_ms / 4 + 1);
}

static void count(struct raft *r)
{
	bool stood = r->role == RAFT_CANDIDATE;
	size_t voters = 0, need = quorum(r);
	for (size_t i = 0; i < r->members_len; i++)
		voters += !r->members[i].learner;
	if (count_votes(r, VOTE_GRANTED) >= need) {
		if (r->role == RAFT_PRECANDIDATE)
			campaign(r, /*pre=*/false);
		else
			become_leader(r);
	} else if (count_votes(r, VOTE_REJECTED) > voters - need) {
		become_follower(r, r->term, 0);
		if (stood)
			vote_was_split(r);
	}
}

/* The leader hands over: no pre-vote, and whoever has just heard from it votes all the same. */
void campaign_if_asked(struct raft *r)
{
	if (!r->campaign_asked || !may_campaign(r))
		return;
	r->campaign_asked = false;
	r->campaign_force = true;
	campaign(r, /*pre=*/false);
}

/* What is committed and not applied yet may change the members. Two changes behind, a majority of those we know need not meet a
 * majority of those there are. (One change behind it does, and whoever has the second in its log knows the first as committed.) */
bool may_campaign(const struct raft *r)
{
	return r->self_voter && r->log.applied >= r->log.commit && !recovering(r);
}

void campaign(struct raft *r, bool pre)
{
	bool force = r->campaign_force;
	ASSERT(may_campaign(r));
	ASSERT(r->role != RAFT_LEADER);
	if (!pre) {
		r->term++;
		r->voted_for = r->config.self;
		r->hard_dirty = true;
	}
	r->role = pre ? RAFT_PRECANDIDATE : RAFT_CANDIDATE;
	r->leader = 0;
	r->changed = true;
	reset_election_timer(r);
	memset(r->votes, 0, sizeof(r->votes));
	for (size_t i = 0; i < r->members_len; i++) {
		struct raft_message *m;
		if (r->members[i].id == r->config.self) {
			r->votes[i] = VOTE_GRANTED;
			continue;
		}
		/* Learners are not asked: their votes do not count by what we know. */
		if (r->members[i].learner)
			continue;
		m = send_new(r, pre ? KIND(PREVOTE) : KIND(VOTE), r->members[i].id);
		m->term = pre ? r->term + 1 : r->term;
		m->log = r->log.last;
		m->force = force;
	}
	count(r);
}

/* A learner votes when asked: it may be a voter that has not heard of it yet, and its vote may be the one that is missing. A stranger gets a vote for the
 * same reason: it may be a member that was added where we have not read to. Whose votes count is for the candidate to know, and no two majorities of neighbouring
 * configurations miss each other, whoever asked us. */
void recv_vote(struct raft *r, const struct raft_message *m)
{
	bool pre = m->kind == KIND(PREVOTE);
	bool free_to_vote = pre ? m->term > r->term : r->voted_for == m->from || (r->voted_for == 0 && r->leader == 0);
	bool grant = free_to_vote && log_is_up_to_date(&r->log, m->log) && !recovering(r);
	struct raft_message *reply;
	if (grant && !pre) {
		if (r->voted_for != m->from) {
			r->voted_for = m->from;
			r->hard_dirty = true;
		}
		reset_election_timer(r);
	}
	reply = send_new(r, pre ? KIND(PREVOTE_REPLY) : KIND(VOTE_REPLY), m->from);
	reply->reject = !grant;
	if (pre && grant)
		reply->term = m->term;
}

void recv_vote_reply(struct raft *r, const struct raft_message *m)
{
	bool pre = m->kind == KIND(PREVOTE_REPLY);
	if (r->role != (pre ? RAFT_PRECANDIDATE : RAFT_CANDIDATE))
		return;
	/* A pre-vote is for the term we would campaign in; a refusal carries the refuser's own. */
	if (pre && !m->reject && m->term != r->term + 1)
		return;
	r->votes[member_place(r, m->from)] = m->reject ? VOTE_REJECTED : VOTE_GRANTED;
	count(r);
}
