/* raft.c: life, time, and the way in: which message goes where, and what a term does to it. */
#include "raft.h"

#include <string.h>

#include "raft_internal.h"

size_t member_place(const struct raft *r, member_id id)
{
	size_t i = 0;
	while (i < r->members_len && r->members[i].id != id)
		i++;
	return i;
}

size_t quorum(const struct raft *r)
{
	size_t voters = 0;
	for (size_t i = 0; i < r->members_len; i++)
		voters += !r->members[i].learner;
	return voters / 2 + 1;
}

void reset_election_timer(struct raft *r)
{
	r->election_deadline = r->now + rng_between(&r->rng, r->config.election_timeout_ms, 2 * (uint64_t)r->config.election_timeout_ms - 1);
}

/* R1: a term that only lives in memory must not be heard of, or after a crash we might act in it a second time. */
static uint64_t wait_for_hard(const struct raft *r)
{
	if (r->hard_dirty)
		return r->write_seq + 1;
	return r->hard_seq > r->persisted_seq ? r->hard_seq : 0;
}

uint64_t wait_for_index(const struct raft *r, raft_index index)
{
	if (index <= r->log.stable)
		return 0;
	for (size_t i = 0; i < r->writes_len; i++) {
		if (r->writes[i].last >= index)
			return r->writes[i].seq;
	}
	return r->write_seq + 1;
}

struct raft_message *send_new(struct raft *r, uint32_t kind, member_id to)
{
	struct raft_message *m;
	if (r->out_len == r->out_cap) {
		r->out_cap = r->out_cap ? r->out_cap * 2 : 16;
		r->out = mem_realloc(r->out, r->out_cap * sizeof(*r->out));
	}
	m = &r->out[r->out_len++];
	*m = (struct raft_message){ .kind = kind, .from = r->config.self, .to = to, .term = r->term, .wait_seq = wait_for_hard(r) };
	return m;
}

void raft_set_members(struct raft *r, const struct raft_member *members, size_t len)
{
	struct progress old[RAFT_MEMBERS_MAX];
	struct raft_member old_members[RAFT_MEMBERS_MAX];
	size_t old_len = r->members_len;
	ASSERT(len <= RAFT_MEMBERS_MAX);
	/* Who is removed hears so, if it can be: it gets the entry and that it is committed. */
	if (r->role == RAFT_LEADER)
		send_appends(r, true);
	memcpy(old, r->progress, sizeof(old));
	memcpy(old_members, r->members, sizeof(old_members));
	r->members_len = len;
	r->self_voter = false;
	for (size_t i = 0; i < len; i++) {
		size_t was = 0;
		r->members[i] = members[i];
		r->self_voter = r->self_voter || (members[i].id == r->config.self && !members[i].learner);
		r->votes[i] = VOTE_NONE; /* votes of another set of voters prove nothing */
		while (was < old_len && old_members[was].id != members[i].id)
			was++;
		if (was < old_len) {
			r->progress[i] = old[was];
			r->progress[i].learner = members[i].learner;
		} else {
			progress_reset(r, &r->progress[i], members[i].id, members[i].learner);
		}
	}
	if (r->role == RAFT_PRECANDIDATE || r->role == RAFT_CANDIDATE)
		become_follower(r, r->term, 0);
	if (r->role == RAFT_LEADER && !r->self_voter) {
		/* Removed, or made a learner: the last word of this leader is that it is so. */
		send_appends(r, /*all=*/true);
		become_follower(r, r->term, 0);
	}
	if (r->role == RAFT_LEADER) {
		maybe_commit(r); /* a smaller quorum may be met already */
		confirm_rounds(r);
		r->send_due = true;
	}
}

struct raft *raft_new(const struct raft_config *config, const struct raft_boot *boot, time_ms now)
{
	struct raft *r = mem_zalloc(sizeof(*r));
	ASSERT(config->self != 0);
	ASSERT(config->election_timeout_ms > 0);
	ASSERT(config->heartbeat_ms > 0);
	ASSERT(config->max_inflight > 0);
	r->config = *config;
	if (r->config.max_inflight > INFLIGHT_MAX)
		r->config.max_inflight = INFLIGHT_MAX;
	rng_init(&r->rng, config->seed);
	r->now = now;
	r->term = boot->hard.term;
	r->voted_for = boot->hard.voted_for;
	r->next_read_id = 1;
	r->gather_due = TIME_NEVER;
	log_init(&r->log, boot);
	ASSERT(r->term >= r->log.last.term);
	r->lost = boot->lost;
	recover_look(r);
	raft_set_members(r, boot->members, boot->members_len);
	reset_election_timer(r);
	if (r->self_voter && quorum(r) == 1)
		r->election_deadline = now; /* nobody to wait for */
	r->changed = true;
	return r;
}

static void free_messages(struct raft_message *m, size_t len, bool with_entries)
{
	for (size_t i = 0; i < len; i++) {
		for (size_t j = 0; with_entries && j < m[i].entries_len; j++)
			raft_entry_unref(m[i].entries[j]);
		free(m[i].entries);
		free((void *)(uintptr_t)m[i].data.ptr);
	}
}

static void drop_apply_read(struct raft *r)
{
	while (r->apply_read_at < r->apply_read_len)
		raft_entry_unref(r->apply_read[r->apply_read_at++]);
	free(r->apply_read);
	r->apply_read = NULL;
	r->apply_read_at = r->apply_read_len = 0;
	r->apply_read_id = 0;
}

void raft_free(struct raft *r)
{
	if (!r)
		return;
	drop_apply_read(r);
	free_messages(r->out, r->out_len, true);
	free_messages(r->lent_out, r->lent_out_len, false);
	free_messages(r->chunks, r->chunks_len, false);
	free(r->out);
	free(r->lent_out);
	free(r->chunks);
	free(r->lent_chunks);
	free(r->lent_entries);
	free(r->lent_committed);
	free(r->lent_reads);
	free(r->reads);
	free(r->writes);
	log_deinit(&r->log);
	free(r);
}

/* ---- time ---- */

static void set_now(struct raft *r, time_ms now)
{
	ASSERT(now >= r->now);
	r->now = now;
}

static void note_late(struct raft *r, time_ms by_ms)
{
	if (by_ms >= r->config.heartbeat_ms && r->members_len > 1)
		r->heartbeats_late += r->members_len - 1;
}

uint64_t raft_heartbeats_late(const struct raft *r)
{
	return r->heartbeats_late;
}

void raft_tick(struct raft *r, time_ms now)
{
	set_now(r, now);
	if (r->role == RAFT_LEADER) {
		if (!quorum_heard(r)) {
			/* Alone for an election timeout: somebody else may lead by now. */
			become_follower(r, r->term, 0);
			return;
		}
		if (now >= r->transfer_deadline)
			r->transfer_to = 0; /* it did not come about: go on leading */
		if (now >= r->heartbeat_due) {
			note_late(r, now - r->heartbeat_due);
			send_heartbeats(r);
		}
		if (now >= r->gather_due) {
			r->gather_due = TIME_NEVER;
			r->send_due = true;
		}
		return;
	}
	if (now < r->election_deadline)
		return;
	reset_election_timer(r);
	if (!r->self_voter && r->leader) {
		/* It cannot replace a leader, but need not believe in a silent one. */
		r->leader = 0;
		r->changed = true;
	}
	r->campaign_force = false;
	if (may_campaign(r))
		campaign(r, /*pre=*/true);
	else
		r->campaign_held = r->self_voter && !recovering(r);
}

void raft_shift(struct raft *r, time_ms gap_ms)
{
	r->election_deadline += gap_ms;
	r->heard_leader_at += gap_ms;
	if (r->role == RAFT_LEADER)
		note_late(r, gap_ms);
	r->heartbeat_due = r->now; /* overdue */
	for (size_t i = 0; i < r->members_len; i++)
		r->progress[i].last_heard += gap_ms;
	/* A reply to a round from before the gap would still be proof for what arrived before that round: it was sent by a quorum that
	 * had not heard of a later term at a moment after the request had come. But what sits in our queues may be as old as the gap, and nothing is lost
	 * by asking anew, so such replies are not counted; the new round answers for the old ones too. */
	if (r->role == RAFT_LEADER && r->round_confirmed < r->round) {
		r->round_void = r->round_sent;
		raft_begin_round(r);
	}
}

time_ms raft_next_deadline(const struct raft *r)
{
	if (r->role == RAFT_LEADER)
		return r->members_len < 2 ? TIME_NEVER : r->gather_due < r->heartbeat_due ? r->gather_due : r->heartbeat_due;
	return r->self_voter || r->leader ? r->election_deadline : TIME_NEVER;
}

void raft_peer_lost(struct raft *r, member_id peer, time_ms now)
{
	set_now(r, now);
	if (r->role != RAFT_FOLLOWER || peer != r->leader || peer == 0)
		return;
	r->leader_lost = true;
	r->leader = 0;
	r->changed = true;
	/* All that lost it lost it now: a little randomness keeps them from asking at the same instant. */
	time_ms soon = now + rng_below(&r->rng, r->config.election_timeout_ms / 8 + 1);
	if (soon < r->election_deadline)
		r->election_deadline = soon;
}

/* ---- messages ---- */

static bool is_leader_message(uint32_t kind)
{
	return kind == KIND(APPEND) || kind == KIND(HEARTBEAT) || kind == KIND(SNAPSHOT);
}

bool raft_counts_from_anybody(uint32_t kind)
{
	return is_leader_message(kind) || kind == KIND(VOTE) || kind == KIND(PREVOTE);
}

/* A live leader is not disturbed: who hears it does not vote others into its place. */
static bool protects_leader(const struct raft *r, const struct raft_message *m)
{
	if (m->force)
		return false;
	if (r->role == RAFT_LEADER)
		return m->term > r->term && quorum_heard(r);
	return r->leader != 0 && !r->leader_lost && r->now < r->heard_leader_at + r->config.election_timeout_ms;
}

/* Brings our term up to the message's. False: the message is not to be looked at further. */
static bool adopt_term(struct raft *r, const struct raft_message *m)
{
	if (m->kind == KIND(VOTE) || m->kind == KIND(PREVOTE)) {
		if (m->term > r->term && protects_leader(r, m))
			return false;
		if (m->kind == KIND(VOTE) && m->term > r->term)
			become_follower(r, m->term, 0);
		return true;
	}
	if (m->kind == KIND(PREVOTE_REPLY) && !m->reject)
		return true; /* it speaks of the term that we would campaign in */
	if (m->term > r->term)
		become_follower(r, m->term, is_leader_message(m->kind) ? m->from : 0);
	return true;
}

/* The sender is behind. Tell it our term, or with pre-vote and check-quorum a replica that got ahead by a failed election could
 * never come back: it ignores the leader, and the leader never hears of it. */
static void answer_stale(struct raft *r, const struct raft_message *m)
{
	if (m->kind == KIND(APPEND) || m->kind == KIND(HEARTBEAT) || m->kind == KIND(SNAPSHOT)) {
		struct raft_message *reply = send_new(r, KIND(APPEND_REPLY), m->from);
		reply->reject = true;
		reply->log = m->log;
	} else if (m->kind == KIND(VOTE) || m->kind == KIND(PREVOTE)) {
		send_new(r, m->kind == KIND(VOTE) ? KIND(VOTE_REPLY) : KIND(PREVOTE_REPLY), m->from)->reject = true;
	}
}

static void follow(struct raft *r, const struct raft_message *m)
{
	if (r->role != RAFT_FOLLOWER)
		become_follower(r, r->term, m->from);
	if (r->leader != m->from) {
		r->leader = m->from;
		r->changed = true;
	}
	r->leader_lost = false;
	r->campaign_held = false;
	r->heard_leader_at = r->now;
	reset_election_timer(r);
}

static void pass_chunk(struct raft *r, const struct raft_message *m)
{
	struct raft_message *c;
	if (r->chunks_len == r->chunks_cap) {
		r->chunks_cap = r->chunks_cap ? r->chunks_cap * 2 : 4;
		r->chunks = mem_realloc(r->chunks, r->chunks_cap * sizeof(*r->chunks));
	}
	c = &r->chunks[r->chunks_len++];
	*c = *m;
	c->entries = NULL;
	c->entries_len = 0;
	c->data.ptr = m->data.len ? memcpy(mem_alloc(m->data.len), m->data.ptr, m->data.len) : NULL;
}

static void recv_from_leader(struct raft *r, const struct raft_message *m)
{
	/* Two leaders in one term would mean that somebody voted twice. We know our votes: the other one is not sound, and is not heard. */
	if (r->role == RAFT_LEADER)
		return;
	follow(r, m);
	if (m->kind == KIND(APPEND))
		recv_append(r, m);
	else if (m->kind == KIND(HEARTBEAT))
		recv_heartbeat(r, m);
	else
		pass_chunk(r, m);
}

static void recv_as_leader(struct raft *r, const struct raft_message *m)
{
	struct progress *p = &r->progress[member_place(r, m->from)];
	p->last_heard = r->now;
	if (m->kind == KIND(APPEND_REPLY))
		recv_append_reply(r, p, m);
	else if (m->kind == KIND(HEARTBEAT_REPLY))
		recv_heartbeat_reply(r, p, m);
	else
		pass_chunk(r, m);
}

void raft_receive(struct raft *r, const struct raft_message *m, time_ms now)
{
	set_now(r, now);
	if (member_place(r, m->from) == r->members_len || m->from == r->config.self) {
		if (!raft_counts_from_anybody(m->kind) || m->from == r->config.self)
			return;
	}
	if (!adopt_term(r, m))
		return;
	if (m->term < r->term) {
		answer_stale(r, m);
		return;
	}
	switch (m->kind) {
	case KIND(PREVOTE):
	case KIND(VOTE):
		recv_vote(r, m);
		break;
	case KIND(PREVOTE_REPLY):
	case KIND(VOTE_REPLY):
		recv_vote_reply(r, m);
		break;
	case KIND(APPEND):
	case KIND(HEARTBEAT):
	case KIND(SNAPSHOT):
		recv_from_leader(r, m);
		break;
	case KIND(APPEND_REPLY):
	case KIND(HEARTBEAT_REPLY):
	case KIND(SNAPSHOT_REPLY):
		if (r->role == RAFT_LEADER)
			recv_as_leader(r, m);
		break;
	case KIND(TIMEOUT_NOW):
		/* Under load there is nearly always something that is committed and not applied: then as soon as it is. */
		r->campaign_asked = r->role != RAFT_LEADER && r->self_voter && !recovering(r);
		campaign_if_asked(r);
		break;
	default:
		break; /* of a later release */
	}
}

static struct progress *best_transferee(struct raft *r, member_id to)
{
	struct progress *best = NULL;
	for (size_t i = 0; i < r->members_len; i++) {
		struct progress *p = &r->progress[i];
		if (p->id == r->config.self || p->learner || (to && p->id != to) || r->now >= p->last_heard + r->config.election_timeout_ms)
			continue;
		if (!best || p->match > best->match)
			best = p;
	}
	return best;
}

enum err raft_transfer(struct raft *r, member_id to)
{
	struct progress *p;
	if (r->role != RAFT_LEADER)
		return ERR_NOT_LEADER;
	if (to == r->config.self)
		return ERR_OK;
	p = best_transferee(r, to);
	if (!p)
		return ERR_BAD_LEADER_TRANSFEREE;
	r->transfer_to = p->id;
	r->transfer_deadline = r->now + r->config.election_timeout_ms;
	r->transfer_sent = false;
	r->send_due = true;
	transfer_step(r, p);
	return ERR_OK;
}

member_id raft_transferee(const struct raft *r)
{
	return r->role == RAFT_LEADER ? r->transfer_to : 0;
}

enum err raft_propose(struct raft *r, enum raft_entry_kind kind, struct slice data, raft_index *ret_index)
{
	struct entry_id id = { r->log.last.index + 1, r->term };
	if (r->role != RAFT_LEADER || (kind != RAFT_ENTRY_NOOP && r->transfer_to))
		return ERR_NOT_LEADER;
	if (kind == RAFT_ENTRY_COMMAND && r->uncommitted_bytes && r->uncommitted_bytes + data.len > r->config.max_uncommitted_bytes)
		return ERR_TOO_MANY_REQUESTS;
	r->uncommitted_bytes += data.len;
	log_append_take(&r->log, raft_entry_new(id, kind, data));
	r->send_due = true;
	if (ret_index)
		*ret_index = id.index;
	return ERR_OK;
}

/* ---- disk ---- */

void raft_persisted(struct raft *r, uint64_t seq, time_ms now)
{
	size_t n = 0;
	set_now(r, now);
	ASSERT(seq <= r->write_seq);
	if (seq <= r->persisted_seq)
		return;
	r->persisted_seq = seq;
	while (n < r->writes_len && r->writes[n].seq <= seq) {
		if (r->writes[n].last > r->log.stable)
			r->log.stable = r->writes[n].last;
		n++;
	}
	r->writes_len -= n;
	memmove(r->writes, r->writes + n, r->writes_len * sizeof(*r->writes));
	ASSERT(r->log.stable <= r->log.last.index);
	recover_look(r);
	if (r->role == RAFT_LEADER)
		maybe_commit(r);
}

void raft_log_read_done(struct raft *r, uint64_t id, enum err err, struct raft_entry *const *entries, size_t len)
{
	ASSERT_IF(!err, len > 0);
	/* After a restart the term just below what is in memory may be unknown. */
	for (size_t i = 0; !err && i < len; i++) {
		if (entries[i]->index == r->log.before.index)
			r->log.before.term = entries[i]->term;
	}
	if (id && id == r->apply_read_id) {
		drop_apply_read(r);
		/* A snapshot may have moved us on meanwhile. */
		if (err || entries[0]->index != r->log.delivered + 1)
			return;
		r->apply_read = mem_alloc(len * sizeof(*entries));
		for (size_t i = 0; i < len; i++)
			r->apply_read[i] = raft_entry_ref(entries[i]);
		r->apply_read_len = len;
		return;
	}
	for (size_t i = 0; i < r->members_len; i++) {
		struct progress *p = &r->progress[i];
		if (!p->want_read || p->read_id != id)
			continue;
		p->want_read = false;
		r->send_due = true;
		if (r->role == RAFT_LEADER && !err)
			progress_read_done(r, p, entries, len);
		return;
	}
}

void raft_applied(struct raft *r, raft_index index)
{
	ASSERT(index <= r->log.delivered);
	if (index > r->log.applied)
		r->log.applied = index;
	campaign_if_asked(r);
	if (r->campaign_held && may_campaign(r)) {
		r->campaign_held = false;
		r->election_deadline = r->now;
	}
	log_evict(r);
}

/* ---- snapshots ---- */

void raft_trim(struct raft *r, struct entry_id snapshot, raft_index to)
{
	ASSERT(snapshot.index <= r->log.delivered);
	ASSERT(to <= snapshot.index);
	if (snapshot.index > r->log.snapshot.index)
		r->log.snapshot = snapshot;
	if (to + 1 > r->log.first)
		r->log.first = to + 1;
}

void raft_send_snapshot(struct raft *r, member_id to, const struct raft_message *m)
{
	struct raft_message *out;
	if (r->role != RAFT_LEADER)
		return;
	out = send_new(r, KIND(SNAPSHOT), to);
	out->log = m->log;
	out->chunk = m->chunk;
	out->chunks = m->chunks;
	out->state_hash = m->state_hash;
	out->data.len = m->data.len;
	out->data.ptr = m->data.len ? memcpy(mem_alloc(m->data.len), m->data.ptr, m->data.len) : NULL;
}

void raft_reply_snapshot(struct raft *r, member_id to, struct entry_id snapshot, uint64_t next_chunk, bool reject)
{
	struct raft_message *m = send_new(r, KIND(SNAPSHOT_REPLY), to);
	m->log = snapshot;
	m->chunk = next_chunk;
	m->reject = reject;
}

void raft_snapshot_acked(struct raft *r, member_id peer, raft_index index)
{
	size_t at = member_place(r, peer);
	if (r->role != RAFT_LEADER || at == r->members_len || index > r->log.last.index)
		return;
	progress_ack(&r->progress[at], index);
	if (r->progress[at].state == PROGRESS_SNAPSHOT)
		progress_probe(&r->progress[at], r->progress[at].match + 1);
	r->send_due = true;
	maybe_commit(r);
}

void raft_snapshot_failed(struct raft *r, member_id peer)
{
	size_t at = member_place(r, peer);
	if (r->role != RAFT_LEADER || at == r->members_len || r->progress[at].state != PROGRESS_SNAPSHOT)
		return;
	progress_probe(&r->progress[at], r->progress[at].match + 1);
	r->progress[at].paused = true; /* until it answers a heartbeat */
}

bool raft_install_snapshot(struct raft *r, struct entry_id snapshot, const struct raft_member *members, size_t members_len)
{
	struct raft_log *l = &r->log;
	/* What is committed is equal everywhere, whether or not its term is at hand (after a restart it is on disk only). To discard it
	 * would take back an acknowledgement. */
	bool keep = snapshot.index <= l->commit || (snapshot.index <= l->last.index && log_term(l, snapshot.index) == snapshot.term);
	ASSERT(r->role != RAFT_LEADER);
	ASSERT(snapshot.index > l->delivered);
	drop_apply_read(r);
	if (keep) {
		if (snapshot.index > l->commit)
			l->commit = snapshot.index;
		if (snapshot.index > l->stable)
			l->stable = snapshot.index;
		l->delivered = snapshot.index;
		l->applied = snapshot.index;
		l->snapshot = snapshot;
		/* The disk has our log only up to here, or what we have cut: its log was replaced together with the installation. */
		if (l->unwritten <= snapshot.index)
			l->unwritten = snapshot.index + 1;
		if (l->truncate_from && l->truncate_from <= snapshot.index)
			l->truncate_from = snapshot.index + 1;
		log_evict(r);
	} else {
		raft_log_reset(r, snapshot);
	}
	l->first = snapshot.index + 1;
	recover_look(r);
	raft_set_members(r, members, members_len);
	return keep;
}

/* ---- to look at ---- */

enum raft_role raft_role(const struct raft *r)
{
	return r->role;
}

raft_term raft_current_term(const struct raft *r)
{
	return r->term;
}

member_id raft_leader(const struct raft *r)
{
	return r->leader;
}

raft_index raft_commit_index(const struct raft *r)
{
	return r->log.commit;
}

raft_index raft_last_index(const struct raft *r)
{
	return r->log.last.index;
}

raft_index raft_first_index(const struct raft *r)
{
	return r->log.first;
}

raft_index raft_stable_index(const struct raft *r)
{
	return r->log.stable;
}

raft_term raft_term_at(const struct raft *r, raft_index index)
{
	return log_term(&r->log, index);
}

const struct raft_entry *raft_entry_at(const struct raft *r, raft_index index)
{
	return log_at(&r->log, index);
}

struct raft_hard_state raft_hard(const struct raft *r)
{
	return (struct raft_hard_state){ r->term, r->voted_for, r->log.commit };
}

struct entry_id raft_lost(const struct raft *r)
{
	return r->lost;
}

size_t raft_peers(const struct raft *r, struct raft_peer_status *out, size_t cap)
{
	size_t n = 0;
	for (size_t i = 0; r->role == RAFT_LEADER && i < r->members_len && n < cap; i++) {
		const struct progress *p = &r->progress[i];
		if (p->id != r->config.self)
			out[n++] = (struct raft_peer_status){ p->id, p->learner, p->match, p->last_heard, p->state == PROGRESS_SNAPSHOT };
	}
	return n;
}
