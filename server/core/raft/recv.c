/* recv.c: appends and heartbeats, and the answers to them. */
#include "raft_internal.h"

/* Below the commit index the logs are equal by leader completeness, whether or not we still have the terms at hand. */
static bool matches(const struct raft_log *l, struct entry_id prev)
{
	if (prev.index <= l->commit)
		return true;
	return prev.index <= l->last.index && log_term(l, prev.index) == prev.term;
}

/* Terms never fall along a log. What follows the committed part and is older than it comes from a peer that is not sound. */
static bool may_follow(const struct raft_log *l, const struct raft_entry *e)
{
	return e->term >= log_term(l, e->index - 1);
}

/* False: nothing of it is to be believed. */
static bool append_entries(struct raft *r, const struct raft_message *m)
{
	struct raft_log *l = &r->log;
	for (size_t i = 0; i < m->entries_len; i++) {
		struct raft_entry *e = m->entries[i];
		if (e->index <= l->commit)
			continue;
		if (e->index <= l->last.index) {
			if (log_term(l, e->index) == e->term)
				continue;
			if (!may_follow(l, e))
				return false;
			log_cut(r, e->index);
		}
		if (!may_follow(l, e))
			return false;
		log_append_take(l, raft_entry_ref(e));
	}
	return true;
}

void recv_append(struct raft *r, const struct raft_message *m)
{
	struct raft_log *l = &r->log;
	struct raft_message *reply;
	uint64_t wait;
	raft_index match;
	if (!matches(l, m->log)) {
		raft_index hint = m->log.index < l->last.index ? m->log.index : l->last.index;
		/* Never below our commit index: up to there the logs are equal. */
		hint = log_find_conflict(l, hint, m->log.term, l->commit);
		reply = send_new(r, KIND(APPEND_REPLY), m->from);
		reply->reject = true;
		reply->log = m->log;
		reply->match = (struct entry_id){ hint, log_term(l, hint) };
		reply->lost = recovering(r);
		return;
	}
	if (!append_entries(r, m))
		return;
	match = m->log.index + m->entries_len;
	/* Not min(commit, last): what follows `match` in our log is of an older leader and may be about to be cut. */
	commit_to(r, m->commit < match ? m->commit : match);
	/* All that is committed is matched too. */
	if (match < l->commit)
		match = l->commit;
	wait = wait_for_index(r, match);
	reply = send_new(r, KIND(APPEND_REPLY), m->from);
	reply->log = m->log;
	reply->match = (struct entry_id){ match, 0 };
	if (wait > reply->wait_seq)
		reply->wait_seq = wait;
}

static void recv_reject(struct raft *r, struct progress *p, const struct raft_message *m)
{
	raft_index next;
	if (m->log.index > r->log.last.index)
		return; /* no message of ours named that */
	/* An answer to an older message says nothing about where we are now. */
	if (m->log.index <= p->match || (p->state == PROGRESS_PROBE && m->log.index != p->next - 1) || p->state == PROGRESS_SNAPSHOT)
		return;
	next = m->match.index < m->log.index ? m->match.index : m->log.index - 1;
	if (m->match.term)
		next = log_find_conflict(&r->log, next, m->match.term, p->match);
	progress_probe(p, (next > p->match ? next : p->match) + 1);
	r->send_due = true;
}

void recv_append_reply(struct raft *r, struct progress *p, const struct raft_message *m)
{
	if (m->reject) {
		if (m->lost)
			recv_lost(r, p, m);
		recv_reject(r, p, m);
		return;
	}
	if (m->match.index > r->log.last.index)
		return; /* no follower of ours can have that */
	progress_ack(p, m->match.index);
	if (p->state == PROGRESS_PROBE || (p->state == PROGRESS_SNAPSHOT && p->match + 1 >= r->log.first)) {
		p->state = PROGRESS_REPLICATE;
		p->inflight_len = 0;
		p->paused = false;
		p->next = p->match + 1;
	}
	r->send_due = true;
	maybe_commit(r);
	transfer_step(r, p);
}

/* The transferee has all of our log, and nothing is added meanwhile: it may campaign at once, and wins. */
void transfer_step(struct raft *r, const struct progress *p)
{
	if (p->id != r->transfer_to || r->transfer_sent || p->match < r->log.last.index)
		return;
	send_new(r, KIND(TIMEOUT_NOW), p->id);
	r->transfer_sent = true;
}

void recv_heartbeat(struct raft *r, const struct raft_message *m)
{
	struct raft_message *reply;
	/* The leader caps it at what we acknowledged to it in its term. */
	commit_to(r, m->commit < r->log.last.index ? m->commit : r->log.last.index);
	reply = send_new(r, KIND(HEARTBEAT_REPLY), m->from);
	reply->round = m->round;
	if (recovering(r))
		recover_tell(r, m->from);
}

void recv_heartbeat_reply(struct raft *r, struct progress *p, const struct raft_message *m)
{
	if (m->round > p->round && m->round <= r->round_sent) {
		p->round = m->round;
		confirm_rounds(r);
	}
	/* It lives. If what we sent seems lost (and is not just on its way to the disk there), ask where it stands: an append without
	 * entries costs nothing when all is well. */
	if (r->now < p->last_sent + r->config.heartbeat_ms)
		return;
	if (p->state == PROGRESS_PROBE) {
		p->paused = false;
		r->send_due = true;
	} else if (p->state == PROGRESS_REPLICATE && p->match < r->log.last.index) {
		send_empty_append(r, p);
	}
}
