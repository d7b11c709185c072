/* progress.c: what the leader knows of each follower, and what it sends.
 *
 *   PROBE      where the follower's log leaves ours is not known: one append at a time
 *   REPLICATE  it is known: appends are pipelined, at most max_inflight unacknowledged
 *   SNAPSHOT   what it needs is no longer in the log: the owner sends a snapshot, then PROBE
 *
 * All appends of a batch are made in send_appends(), when the owner takes what is to be done.
 *
 * A follower's disk takes one write after the other. What is sent to it beside a write only waits there, so a few entries wait here for
 * the acknowledgement (gather_ms at the most), and more of them share one message, one write and one acknowledgement. */
#include "raft_internal.h"

#define GATHER_ENTRIES 1024

void progress_reset(struct raft *r, struct progress *p, member_id id, bool learner)
{
	*p = (struct progress){ .id = id, .learner = learner, .state = PROGRESS_PROBE, .next = r->log.last.index + 1, .last_heard = r->now };
}

void progress_probe(struct progress *p, raft_index next)
{
	ASSERT(next > p->match);
	p->state = PROGRESS_PROBE;
	p->next = next;
	p->paused = false;
	p->inflight_len = 0;
	p->want_read = false;
	p->commit_sent = 0;
}

void progress_ack(struct progress *p, raft_index match)
{
	if (match > p->match)
		p->match = match;
	if (p->next <= p->match)
		p->next = p->match + 1;
	while (p->inflight_len && p->inflight[p->inflight_at] <= match) {
		p->inflight_at = (p->inflight_at + 1) % INFLIGHT_MAX;
		p->inflight_len--;
	}
}

static void inflight_add(struct progress *p, raft_index last)
{
	ASSERT(p->inflight_len < INFLIGHT_MAX);
	p->inflight[(p->inflight_at + p->inflight_len++) % INFLIGHT_MAX] = last;
}

/* From entries in memory, or from those just read from disk. Advances the follower's next. */
static void send_entries(struct raft *r, struct progress *p, raft_term prev_term, struct raft_entry *const *from, size_t len)
{
	struct raft_message *m = send_new(r, KIND(APPEND), p->id);
	m->log = (struct entry_id){ p->next - 1, prev_term };
	m->commit = r->log.commit;
	if (len) {
		m->entries = mem_alloc(len * sizeof(*m->entries));
		for (size_t i = 0; i < len; i++)
			m->entries[i] = raft_entry_ref(from ? from[i] : log_at(&r->log, p->next + i));
		m->entries_len = len;
	}
	p->last_sent = r->now;
	p->commit_sent = r->log.commit;
	if (p->state == PROGRESS_PROBE) {
		p->paused = true;
	} else if (len) {
		p->next += len;
		inflight_add(p, p->next - 1);
	}
}

/* The term of the entry before p->next; 0: not known, or there is none. */
static raft_term prev_term_of(const struct raft *r, const struct progress *p)
{
	raft_term t = log_term(&r->log, p->next - 1);
	return !t && p->read_last.index == p->next - 1 ? p->read_last.term : t;
}

void send_empty_append(struct raft *r, struct progress *p)
{
	raft_term t = prev_term_of(r, p);
	if (t || p->next == 1) {
		send_entries(r, p, t, NULL, 0);
		return;
	}
	/* The entry before has left memory, and its term with it. With the pipe full of what was lost nothing else would ever be sent: begin
	 * anew behind what is acknowledged. */
	progress_probe(p, p->match + 1);
	r->send_due = true;
}

uint64_t want_read(struct raft *r, raft_index from, raft_index to, size_t max_bytes)
{
	if (r->reads_len == r->reads_cap) {
		r->reads_cap = r->reads_cap ? r->reads_cap * 2 : 8;
		r->reads = mem_realloc(r->reads, r->reads_cap * sizeof(*r->reads));
	}
	r->reads[r->reads_len++] = (struct raft_read){ r->next_read_id, from, to, max_bytes };
	return r->next_read_id++;
}

static void want_snapshot(struct raft *r, struct progress *p)
{
	p->state = PROGRESS_SNAPSHOT;
	p->inflight_len = 0;
	p->want_read = false;
	r->snapshot_to[r->snapshot_to_len++] = p->id;
}

/* What it needs has left memory: read it, from the entry before on since its term goes along. */
static void want_from_disk(struct raft *r, struct progress *p)
{
	struct raft_log *l = &r->log;
	raft_index from = prev_term_of(r, p) || p->next == 1 ? p->next : p->next - 1;
	if (from < l->first) {
		want_snapshot(r, p);
		return;
	}
	p->read_id = want_read(r, from, l->mem_first > from ? l->mem_first - 1 : from, r->config.max_append_bytes * 4);
	p->want_read = true;
}

/* How many of the entries from next on (which are in memory) fit one message: at least one. */
static size_t fit(const struct raft *r, raft_index next)
{
	size_t bytes = 0, n = 0;
	while (next + n <= r->log.last.index) {
		bytes += log_at(&r->log, next + n)->len;
		if (n && bytes > r->config.max_append_bytes)
			break;
		n++;
	}
	return n;
}

static bool may_send(const struct raft *r, const struct progress *p)
{
	switch (p->state) {
	case PROGRESS_PROBE:
		return !p->paused && !p->want_read;
	case PROGRESS_REPLICATE:
		return !p->want_read && p->inflight_len < r->config.max_inflight;
	case PROGRESS_SNAPSHOT:
		break;
	}
	return false;
}

static bool worth_waiting(const struct raft *r, const struct progress *p)
{
	return p->state == PROGRESS_REPLICATE && p->inflight_len > 0 && !r->transfer_to && r->now < p->last_sent + r->config.gather_ms &&
	       r->log.last.index < p->next + GATHER_ENTRIES;
}

static void send_to(struct raft *r, struct progress *p, bool all)
{
	struct raft_log *l = &r->log;
	while (may_send(r, p)) {
		raft_term prev_term = prev_term_of(r, p);
		bool news = p->next <= l->last.index || p->state == PROGRESS_PROBE;
		if (!news && p->commit_sent >= l->commit)
			return;
		if (!all && worth_waiting(r, p)) {
			if (p->last_sent + r->config.gather_ms < r->gather_due)
				r->gather_due = p->last_sent + r->config.gather_ms;
			return;
		}
		if (p->next < l->mem_first || (!prev_term && p->next != 1)) {
			want_from_disk(r, p);
			return;
		}
		send_entries(r, p, prev_term, NULL, fit(r, p->next));
	}
	/* A full pipe must not keep the commit index back for good: the next acknowledgement or heartbeat brings it. */
}

void send_appends(struct raft *r, bool all)
{
	r->send_due = false;
	r->gather_due = TIME_NEVER;
	for (size_t i = 0; i < r->members_len; i++) {
		if (r->members[i].id != r->config.self)
			send_to(r, &r->progress[i], all);
	}
}

void progress_read_done(struct raft *r, struct progress *p, struct raft_entry *const *entries, size_t len)
{
	size_t at = 0;
	if (!may_send(r, p) || entries[0]->index > p->next || entries[len - 1]->index < p->next - 1)
		return;
	while (at < len && entries[at]->index < p->next)
		at++;
	if (at)
		p->read_last = (struct entry_id){ entries[at - 1]->index, entries[at - 1]->term };
	while (at < len && may_send(r, p)) {
		raft_term prev_term = prev_term_of(r, p);
		size_t bytes = 0, n = 0;
		if (!prev_term && p->next != 1)
			return;
		while (at + n < len) {
			bytes += entries[at + n]->len;
			if (n && bytes > r->config.max_append_bytes)
				break;
			n++;
		}
		send_entries(r, p, prev_term, entries + at, n);
		at += n;
		p->read_last = (struct entry_id){ entries[at - 1]->index, entries[at - 1]->term };
	}
}

void send_heartbeats(struct raft *r)
{
	r->heartbeat_due = r->now + r->config.heartbeat_ms;
	r->round_pending = false;
	r->round_sent = r->round;
	for (size_t i = 0; i < r->members_len; i++) {
		struct progress *p = &r->progress[i];
		struct raft_message *m;
		if (p->id == r->config.self)
			continue;
		m = send_new(r, KIND(HEARTBEAT), p->id);
		/* Only what the follower is known to share with us may be called committed there. */
		m->commit = p->match < r->log.commit ? p->match : r->log.commit;
		m->round = r->round;
	}
	confirm_rounds(r); /* a sole voter is its own quorum */
}
