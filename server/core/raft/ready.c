/* ready.c: what is to be done, taken at the end of a batch. */
#include <string.h>

#include "raft_internal.h"

static bool can_send_round(const struct raft *r)
{
	/* Few rounds under way at a time: those who come meanwhile share the next. */
	return r->round_pending && r->round - r->round_confirmed <= ROUNDS_UNDER_WAY_MAX;
}

static raft_index deliverable(const struct raft *r)
{
	return r->log.commit < r->log.stable ? r->log.commit : r->log.stable;
}

static bool can_deliver(const struct raft *r)
{
	if (r->log.delivered >= deliverable(r))
		return false;
	/* Not in memory, and being read. */
	return log_at(&r->log, r->log.delivered + 1) || r->apply_read_at < r->apply_read_len || !r->apply_read_id;
}

bool raft_has_ready(const struct raft *r)
{
	return r->out_len || r->hard_dirty || r->log.unwritten <= r->log.last.index || r->log.truncate_from || r->reads_len || r->chunks_len ||
	       r->snapshot_to_len || r->changed || can_deliver(r) || (r->role == RAFT_LEADER && (r->send_due || can_send_round(r) || r->round_confirmed > r->round_told));
}

static void take_write(struct raft *r, struct raft_ready *ready)
{
	struct raft_log *l = &r->log;
	size_t len = (size_t)(l->last.index + 1 - l->unwritten);
	if (!len && !l->truncate_from && !r->hard_dirty)
		return;
	ready->write_seq = ++r->write_seq;
	/* The commit index rides along with every write: whoever has a membership change in its log then knows, across a crash too, that the
	 * one before it is committed. may_campaign() needs that. */
	ready->hard_changed = true;
	ready->hard = raft_hard(r);
	ready->truncate_from = l->truncate_from;
	if (len) {
		ready->entries = r->lent_entries = mem_alloc(len * sizeof(*ready->entries));
		for (size_t i = 0; i < len; i++)
			ready->entries[i] = raft_entry_ref(log_at(l, l->unwritten + i));
		ready->entries_len = len;
	}
	if (r->hard_dirty)
		r->hard_seq = r->write_seq;
	r->hard_dirty = false;
	l->truncate_from = 0;
	l->unwritten = l->last.index + 1;
	if (r->writes_len == r->writes_cap) {
		r->writes_cap = r->writes_cap ? r->writes_cap * 2 : 16;
		r->writes = mem_realloc(r->writes, r->writes_cap * sizeof(*r->writes));
	}
	r->writes[r->writes_len++] = (struct write){ r->write_seq, len ? l->last.index : 0 };
}

/* The next entry to deliver, referenced; NULL when it must be read first. */
static struct raft_entry *next_committed(struct raft *r)
{
	raft_index index = r->log.delivered + 1;
	struct raft_entry *e = log_at(&r->log, index);
	if (r->apply_read_at < r->apply_read_len && r->apply_read[r->apply_read_at]->index == index)
		return r->apply_read[r->apply_read_at++];
	return e ? raft_entry_ref(e) : NULL;
}

static void take_committed(struct raft *r, struct raft_ready *ready)
{
	raft_index to = deliverable(r);
	size_t bytes = 0, room;
	if (!can_deliver(r))
		return;
	room = to - r->log.delivered < DELIVER_ENTRIES_MAX ? (size_t)(to - r->log.delivered) : DELIVER_ENTRIES_MAX;
	ready->committed = r->lent_committed = mem_alloc(room * sizeof(*ready->committed));
	while (ready->committed_len < room && bytes < DELIVER_BYTES_MAX) {
		struct raft_entry *e = next_committed(r);
		if (!e)
			break;
		ASSERT(e->index == r->log.delivered + 1);
		bytes += e->len;
		r->log.delivered++;
		ready->committed[ready->committed_len++] = e;
	}
	if (r->apply_read_at == r->apply_read_len && r->apply_read) {
		free(r->apply_read);
		r->apply_read = NULL;
		r->apply_read_at = r->apply_read_len = 0;
		r->apply_read_id = 0;
	}
	/* After a restart what is committed is on disk only. */
	if (r->log.delivered < to && !log_at(&r->log, r->log.delivered + 1) && !r->apply_read_id)
		r->apply_read_id = want_read(r, r->log.delivered + 1, to < r->log.mem_first ? to : r->log.mem_first - 1, DELIVER_BYTES_MAX);
}

static void release_lent(struct raft *r)
{
	for (size_t i = 0; i < r->lent_out_len; i++) {
		free(r->lent_out[i].entries);
		free((void *)(uintptr_t)r->lent_out[i].data.ptr);
	}
	r->lent_out_len = 0;
	free(r->lent_entries);
	free(r->lent_committed);
	free(r->lent_reads);
	free(r->lent_chunks);
	r->lent_entries = r->lent_committed = NULL;
	r->lent_reads = NULL;
	r->lent_chunks = NULL;
}

static void take_messages(struct raft *r, struct raft_ready *ready)
{
	struct raft_message *out = r->lent_out;
	size_t cap = r->lent_out_cap;
	r->lent_out = r->out;
	r->lent_out_len = r->out_len;
	r->lent_out_cap = r->out_cap;
	r->out = out;
	r->out_cap = cap;
	r->out_len = 0;
	ready->messages = r->lent_out;
	ready->messages_len = r->lent_out_len;
}

void raft_take_ready(struct raft *r, struct raft_ready *ready)
{
	memset(ready, 0, sizeof(*ready));
	release_lent(r);
	if (r->role == RAFT_LEADER) {
		if (can_send_round(r))
			send_heartbeats(r);
		if (r->send_due)
			send_appends(r, /*all=*/false);
	}
	take_committed(r, ready);
	/* Before the messages: they name the write they wait for by the number that it gets here. */
	take_write(r, ready);
	take_messages(r, ready);
	ready->reads = r->lent_reads = r->reads;
	ready->reads_len = r->reads_len;
	r->reads = NULL;
	r->reads_len = r->reads_cap = 0;
	ready->chunks = r->lent_chunks = r->chunks;
	ready->chunks_len = r->chunks_len;
	r->chunks = NULL;
	r->chunks_len = r->chunks_cap = 0;
	memcpy(ready->snapshot_to, r->snapshot_to, sizeof(r->snapshot_to));
	ready->snapshot_to_len = r->snapshot_to_len;
	r->snapshot_to_len = 0;
	ready->confirmed_round = r->role == RAFT_LEADER ? r->round_confirmed : 0;
	r->round_told = r->round_confirmed;
	ready->round_term = r->term;
	ready->changed = r->changed;
	r->changed = false;
}

void raft_check(const struct raft *r)
{
	const struct raft_log *l = &r->log;
	ASSERT(l->snapshot.index <= l->delivered);
	ASSERT(l->applied <= l->delivered);
	ASSERT(l->delivered <= l->commit);
	ASSERT(l->delivered <= l->stable);
	ASSERT(l->commit <= l->last.index);
	ASSERT(l->stable <= l->last.index);
	ASSERT(l->unwritten <= l->last.index + 1);
	ASSERT(l->stable < l->unwritten);
	ASSERT(l->mem_first <= l->commit + 1);
	ASSERT(l->mem_first <= l->stable + 1);
	ASSERT(l->mem_first == l->before.index + 1);
	ASSERT(l->first <= l->snapshot.index + 1);
	ASSERT(l->last.term <= r->term);
	size_t bytes = 0;
	raft_term before = 0;
	for (raft_index i = l->mem_first; i <= l->last.index; i++) {
		const struct raft_entry *e = log_at(l, i);
		ASSERT(e->index == i);
		ASSERT(e->term >= before);
		before = e->term;
		bytes += e->len;
	}
	ASSERT(bytes == l->bytes);
	ASSERT_IF(r->role == RAFT_LEADER, r->leader == r->config.self && r->voted_for == r->config.self && r->self_voter);
	ASSERT_IF(r->role == RAFT_CANDIDATE, r->voted_for == r->config.self);
	ASSERT(r->round_confirmed <= r->round_sent);
	ASSERT(r->round_sent <= r->round);
	for (size_t i = 0; r->role == RAFT_LEADER && i < r->members_len; i++) {
		const struct progress *p = &r->progress[i];
		ASSERT(p->id == r->members[i].id);
		ASSERT(p->match < p->next);
		ASSERT(p->next <= l->last.index + 1);
	}
	for (size_t i = 0; i < r->writes_len; i++) {
		ASSERT(r->writes[i].seq > r->persisted_seq);
		ASSERT_IF(i > 0, r->writes[i].seq > r->writes[i - 1].seq);
	}
}
