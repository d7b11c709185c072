/* quorum.c: what a majority of the voters has said: commit, quorum rounds, whether we still lead. */
#include "raft_internal.h"

/* The largest value that a quorum of voters has at least. */
static uint64_t quorum_value(const struct raft *r, uint64_t (*value)(const struct raft *r, const struct progress *p))
{
	uint64_t v[RAFT_MEMBERS_MAX];
	size_t n = 0;
	for (size_t i = 0; i < r->members_len; i++) {
		uint64_t x;
		size_t at = n;
		if (r->members[i].learner)
			continue;
		x = value(r, &r->progress[i]);
		for (; at && v[at - 1] < x; at--)
			v[at] = v[at - 1];
		v[at] = x;
		n++;
	}
	return n ? v[quorum(r) - 1] : 0;
}

static uint64_t value_match(const struct raft *r, const struct progress *p)
{
	return p->id == r->config.self ? r->log.stable : p->match;
}

static uint64_t value_round(const struct raft *r, const struct progress *p)
{
	return p->id == r->config.self ? r->round_sent : p->round;
}

static uint64_t value_heard(const struct raft *r, const struct progress *p)
{
	return p->id == r->config.self ? r->now : p->last_heard;
}

void commit_to(struct raft *r, raft_index index)
{
	struct raft_log *l = &r->log;
	if (index <= l->commit)
		return;
	ASSERT(index <= l->last.index);
	for (raft_index i = l->commit + 1; r->role == RAFT_LEADER && i <= index; i++)
		r->uncommitted_bytes -= log_at(l, i)->len;
	l->commit = index;
}

void maybe_commit(struct raft *r)
{
	raft_index index = quorum_value(r, value_match);
	/* (R6) An entry of an older term on a majority may still be overwritten (Raft figure 8). */
	if (index > r->log.commit && log_term(&r->log, index) == r->term) {
		commit_to(r, index);
		r->send_due = true;
	}
}

void confirm_rounds(struct raft *r)
{
	uint64_t round = quorum_value(r, value_round);
	if (round > r->round_void && round > r->round_confirmed)
		r->round_confirmed = round;
}

bool quorum_heard(const struct raft *r)
{
	return r->now < quorum_value(r, value_heard) + r->config.election_timeout_ms;
}

uint64_t raft_begin_round(struct raft *r)
{
	if (r->role != RAFT_LEADER)
		return 0;
	if (!r->round_pending) {
		r->round_pending = true;
		r->round++;
	}
	return r->round;
}

raft_index raft_read_index(const struct raft *r)
{
	if (r->role != RAFT_LEADER)
		return 0;
	/* A new leader does not know how far its predecessor had committed until something of its own term is. */
	return log_term(&r->log, r->log.commit) == r->term ? r->log.commit : 0;
}
