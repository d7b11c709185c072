/* check.c: what must never happen, looked at from outside, where everything is known.
 *
 *   (S1) election safety: one leader a term, by its role and by its messages.
 *   (S2) a node votes once a term, whatever crashes in between.
 *   (S3) log matching: an index and a term name one entry and one entry before it.
 *   (S4) leader completeness: a new leader's log has all that was ever committed.
 *   (S5) state machine safety: what is handed out at an index is the same everywhere, in order, once each.
 *   (S6) commit: an entry of the leader's own term that a majority of voters holds durably.
 *   (S7) a promise leaves when it is durable: the vote, the candidate's own, the acknowledged entry.
 *   (S8) a quorum round that is confirmed began before any later leader was elected, and its read index covers all that
 *        was committed anywhere when it began.
 *   (S9) an append names as its predecessor an entry that its sender has.
 *   (S10) what is sent is taken: no peer finds it malformed. */
#include "cell.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/mem.h"
#include "core/raft/raft_codec.h"

#define KIND(k) HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__RAFT_##k
#define U(x) ((unsigned long long)(x))

_Noreturn void cell_fail(struct cell *c, const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "at %llu ms: ", U(c->now));
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	abort();
}

void check_deinit(struct cell *c)
{
	free(c->truth);
	free(c->seen);
	free(c->leaders);
	free(c->votes);
}

/* ---- the books ---- */

static uint64_t entry_hash(const struct raft_entry *e)
{
	return hash64(e->kind, e->data, e->len);
}

uint64_t check_chain_next(uint64_t chain, const struct raft_entry *e)
{
	return hash64_u64(hash64_u64(hash64_u64(chain, e->index), e->term), entry_hash(e));
}

uint64_t check_chain_at(const struct cell *c, raft_index index)
{
	return index < c->truth_len ? c->truth[index].chain : 0;
}

raft_index check_committed(const struct cell *c)
{
	return c->truth_len ? c->truth_len - 1 : 0;
}

static void truth_add(struct cell *c, const struct raft_entry *e, raft_term by_term)
{
	if (c->truth_len == 0) {
		GROW(c->truth, c->truth_len, c->truth_cap);
		c->truth[c->truth_len++] = (struct truth_entry){ 0 };
	}
	ASSERT(e->index == c->truth_len);
	GROW(c->truth, c->truth_len, c->truth_cap);
	c->truth[c->truth_len] = (struct truth_entry){ e->term, by_term, check_chain_next(c->truth[c->truth_len - 1].chain, e) };
	c->truth_len++;
}

static struct seen_entry *seen_slot(struct seen_entry *table, size_t cap, struct entry_id id)
{
	size_t at = hash64_u64(id.index, id.term) & (cap - 1);

	while (table[at].id.index && (table[at].id.index != id.index || table[at].id.term != id.term))
		at = (at + 1) & (cap - 1);
	return &table[at];
}

static struct seen_entry *seen_find_or_add(struct cell *c, struct entry_id id)
{
	struct seen_entry *s;

	if (2 * c->seen_len >= c->seen_cap) {
		size_t cap = c->seen_cap ? c->seen_cap * 2 : 256;
		struct seen_entry *table = mem_zalloc(cap * sizeof(*table));

		for (size_t i = 0; i < c->seen_cap; i++) {
			if (c->seen[i].id.index)
				*seen_slot(table, cap, c->seen[i].id) = c->seen[i];
		}
		free(c->seen);
		c->seen = table;
		c->seen_cap = cap;
	}
	s = seen_slot(c->seen, c->seen_cap, id);
	if (!s->id.index)
		c->seen_len++;
	return s;
}

/* (S3), by induction: the predecessor of the predecessor was compared when that was written. */
static void check_entry(struct cell *c, struct node *n, const struct raft_entry *e, raft_term prev_term)
{
	struct seen_entry *s = seen_find_or_add(c, (struct entry_id){ e->index, e->term });

	if (!s->id.index) {
		*s = (struct seen_entry){ { e->index, e->term }, prev_term, entry_hash(e) };
		return;
	}
	CHECK(c, s->hash == entry_hash(e), "%u: two entries %llu/%llu", (unsigned)n->id, U(e->index), U(e->term));
	if (prev_term && s->prev_term)
		CHECK(c, s->prev_term == prev_term, "%u: entry %llu/%llu follows two different ones", (unsigned)n->id, U(e->index),
		      U(e->term));
}

void check_ready(struct cell *c, struct node *n, const struct raft_ready *rd)
{
	CHECK(c, rd->write_seq || (!rd->entries_len && !rd->truncate_from && !rd->hard_changed), "%u: a write without a number",
	      (unsigned)n->id);
	if (rd->entries_len > 0 && rd->truncate_from)
		CHECK(c, rd->entries[0]->index <= rd->truncate_from, "%u: a gap after what is cut", (unsigned)n->id);
	for (size_t i = 1; i < rd->entries_len; i++)
		CHECK(c, rd->entries[i]->index == rd->entries[0]->index + i, "%u: a gap in a write", (unsigned)n->id);
}

/* An entry exists from when it is durable or has left; what a crash loses before that may be written anew. */
void check_write(struct cell *c, struct node *n, const struct disk_write *w)
{
	for (size_t i = 0; i < w->entries_len; i++)
		check_entry(c, n, w->entries[i],
			    i ? w->entries[i - 1]->term : disk_term_at(&n->disk, w->entries[0]->index - 1));
}

/* ---- leaders and votes ---- */

static void check_leads(struct cell *c, member_id id, raft_term term) /* (S1) */
{
	for (size_t i = c->leaders_len; i-- > 0;) {
		if (c->leaders[i].term != term)
			continue;
		CHECK(c, c->leaders[i].id == id, "%u and %u both lead in term %llu", (unsigned)c->leaders[i].id, (unsigned)id,
		      U(term));
		return;
	}
	GROW(c->leaders, c->leaders_len, c->leaders_cap);
	c->leaders[c->leaders_len++] = (struct leader_of){ term, id };
	if (term > c->highest_leader)
		c->highest_leader = term;
}

static void check_votes(struct cell *c, member_id voter, raft_term term, member_id candidate) /* (S2) */
{
	for (size_t i = c->votes_len; i-- > 0;) {
		if (c->votes[i].voter != voter || c->votes[i].term != term)
			continue;
		CHECK(c, c->votes[i].candidate == candidate, "%u votes for %u and for %u in term %llu", (unsigned)voter,
		      (unsigned)c->votes[i].candidate, (unsigned)candidate, U(term));
		return;
	}
	GROW(c->votes, c->votes_len, c->votes_cap);
	c->votes[c->votes_len++] = (struct vote){ voter, term, candidate };
}

static void check_vote_durable(struct cell *c, struct node *n, raft_term term, member_id candidate) /* (S7) */
{
	const struct raft_hard_state *h = &n->disk.hard;

	check_votes(c, n->id, term, candidate);
	CHECK(c, h->term > term || (h->term == term && h->voted_for == candidate),
	      "%u: a vote for %u in term %llu leaves before it is durable", (unsigned)n->id, (unsigned)candidate, U(term));
}

static bool disk_holds(const struct disk *d, raft_index index, raft_term term)
{
	return index <= d->snapshot.id.index || disk_term_at(d, index) == term;
}

static void check_ack_durable(struct cell *c, struct node *n, const struct raft_message *m) /* (S7) */
{
	raft_term term = raft_term_at(n->raft, m->match.index);

	CHECK(c, n->disk.hard.term >= m->term, "%u: term %llu is acknowledged before it is durable", (unsigned)n->id, U(m->term));
	/* Once we are in a later term the log may have been cut; the sender of such an append can commit nothing by it. */
	if (m->term != raft_current_term(n->raft) || m->match.index <= n->disk.snapshot.id.index)
		return;
	CHECK(c, disk_term_at(&n->disk, m->match.index), "%u: index %llu is acknowledged and not on disk", (unsigned)n->id,
	      U(m->match.index));
	CHECK(c, !term || disk_holds(&n->disk, m->match.index, term), "%u: index %llu is acknowledged, and another is on disk",
	      (unsigned)n->id, U(m->match.index));
}

static void check_append(struct cell *c, struct node *n, const struct raft_message *m) /* (S9) */
{
	raft_term term = disk_queued_term_at(&n->disk, m->log.index);

	/* a message may have waited for the disk while its sender was deposed */
	if (m->log.index == 0 || m->term != raft_current_term(n->raft))
		return;
	if (!term && m->log.index <= check_committed(c))
		term = c->truth[m->log.index].term;
	CHECK(c, term == m->log.term, "%u: appends to %u after %llu/%llu, which is of term %llu", (unsigned)n->id, (unsigned)m->to,
	      U(m->log.index), U(m->log.term), U(term));
	for (size_t i = 0; i < m->entries_len; i++) {
		struct raft_entry *e = m->entries[i];

		CHECK(c, e->index == m->log.index + 1 + i, "%u: a gap in an append", (unsigned)n->id);
		check_entry(c, n, e, i ? m->entries[i - 1]->term : m->log.term);
	}
}

/* (S10) */
static void check_wire(struct cell *c, struct node *n, const struct raft_message *m)
{
	struct buf bytes = { 0 };
	struct arena arena;
	struct raft_message got;

	arena_init(&arena);
	raft_message_encode(m, &bytes);
	CHECK(c, raft_message_decode(buf_view(&bytes), &arena, &got) == ERR_OK, "%u: a %s that no peer takes", (unsigned)n->id,
	      raft_message_name(m->kind));
	CHECK(c, got.term == m->term && got.entries_len == m->entries_len, "%u: a %s changes on its way", (unsigned)n->id,
	      raft_message_name(m->kind));
	raft_message_release(&got);
	buf_free(&bytes);
	arena_deinit(&arena);
}

void check_leaving(struct cell *c, struct node *n, const struct raft_message *m)
{
	check_wire(c, n, m);
	CHECK(c, m->from == n->id, "%u: sends in the name of %u", (unsigned)n->id, (unsigned)m->from);
	CHECK(c, m->to != n->id, "%u: sends to itself", (unsigned)n->id);
	switch (m->kind) {
	case KIND(VOTE):
		check_vote_durable(c, n, m->term, n->id);
		/* Who already lost this election asks for nothing any more: its log may have been cut. */
		if (raft_role(n->raft) == RAFT_CANDIDATE && raft_current_term(n->raft) == m->term && m->log.index > 0)
			CHECK(c, disk_holds(&n->disk, m->log.index, m->log.term), "%u: asks for votes with a log that is not durable",
			      (unsigned)n->id);
		break;
	case KIND(VOTE_REPLY):
		if (!m->reject)
			check_vote_durable(c, n, m->term, m->to);
		break;
	case KIND(APPEND_REPLY):
		if (!m->reject)
			check_ack_durable(c, n, m);
		break;
	case KIND(SNAPSHOT_REPLY):
		if (!m->reject && m->chunk == CELL_CHUNKS)
			CHECK(c, disk_last(&n->disk) >= m->log.index, "%u: acknowledges a snapshot it does not have", (unsigned)n->id);
		break;
	case KIND(APPEND):
		check_append(c, n, m);
		check_leads(c, n->id, m->term);
		break;
	case KIND(HEARTBEAT):
		CHECK(c, m->commit <= check_committed(c), "%u: calls %llu committed", (unsigned)n->id, U(m->commit));
		check_leads(c, n->id, m->term);
		break;
	case KIND(SNAPSHOT):
		check_leads(c, n->id, m->term);
		break;
	default:
		break;
	}
}

/* ---- commit and apply ---- */

static bool durable_on_majority(struct cell *c, const struct cell_members *m, raft_index index, raft_term term)
{
	size_t voters = 0, have = 0;

	for (size_t i = 0; i < m->len; i++) {
		if (m->list[i].learner)
			continue;
		voters++;
		have += disk_holds(&cell_node(c, m->list[i].id)->disk, index, term);
	}
	return have > voters / 2;
}

static raft_term check_first_commit(struct cell *c, struct node *n, raft_index index) /* (S6) */
{
	const struct raft_entry *e = disk_queued_entry(&n->disk, index);
	raft_term term = raft_current_term(n->raft);

	CHECK(c, raft_role(n->raft) == RAFT_LEADER || n->last_role == RAFT_LEADER, "%u: does not lead, and commits %llu first",
	      (unsigned)n->id, U(index));
	CHECK(c, e, "%u: commits %llu and does not have it", (unsigned)n->id, U(index));
	CHECK(c, e->term == term || e->term == n->last_term, "%u: commits %llu of term %llu by count", (unsigned)n->id, U(index),
	      U(e->term));
	/* a change of members that was applied just now may have come before or after */
	CHECK(c,
	      durable_on_majority(c, &n->members_before, index, e->term) || durable_on_majority(c, &n->sm.members, index, e->term),
	      "%u: commits %llu, which is not durable on a majority", (unsigned)n->id, U(index));
	return e->term;
}

void check_commit(struct cell *c, struct node *n)
{
	raft_index commit = raft_commit_index(n->raft);

	CHECK(c, commit >= n->last_commit, "%u: the commit index goes back", (unsigned)n->id);
	if (commit > check_committed(c)) {
		raft_term by_term = check_first_commit(c, n, commit);

		while (check_committed(c) < commit) {
			const struct raft_entry *e = disk_queued_entry(&n->disk, check_committed(c) + 1);

			CHECK(c, e, "%u: commits an entry and does not have it", (unsigned)n->id);
			truth_add(c, e, by_term);
		}
	}
	for (raft_index i = n->last_commit + 1; i <= commit; i++) {
		raft_term term = disk_queued_term_at(&n->disk, i);

		CHECK(c, !term || term == c->truth[i].term, "%u: commits %llu/%llu, elsewhere it is of term %llu", (unsigned)n->id,
		      U(i), U(term), U(c->truth[i].term));
	}
	n->last_commit = commit;
}

void check_applied(struct cell *c, struct node *n, const struct raft_entry *e) /* (S5) */
{
	CHECK(c, e->index == n->sm.id.index + 1, "%u: is handed %llu after %llu", (unsigned)n->id, U(e->index), U(n->sm.id.index));
	CHECK(c, e->index <= check_committed(c), "%u: is handed %llu, which nobody has committed", (unsigned)n->id, U(e->index));
	CHECK(c, check_chain_next(n->sm.hash, e) == c->truth[e->index].chain, "%u: state machines part ways at %llu",
	      (unsigned)n->id, U(e->index));
}

static void check_complete(struct cell *c, struct node *n) /* (S4) */
{
	raft_term term = raft_current_term(n->raft);

	/* Votes may come in late: what a later leader committed meanwhile is not asked of this one. */
	for (raft_index i = n->disk.snapshot.id.index + 1; i <= check_committed(c) && c->truth[i].by_term < term; i++)
		CHECK(c, disk_queued_term_at(&n->disk, i) == c->truth[i].term,
		      "%u: leads in term %llu and lacks the committed entry %llu/%llu", (unsigned)n->id, U(term), U(i),
		      U(c->truth[i].term));
}

void check_step(struct cell *c, struct node *n)
{
	raft_term term = raft_current_term(n->raft);

	check_commit(c, n);
	if (raft_role(n->raft) == RAFT_LEADER && (n->checked_term != term)) {
		n->checked_term = term;
		check_leads(c, n->id, term);
		check_complete(c, n);
	}
	/* nothing is given out before its time, so nothing waits either */
	CHECK(c, !raft_has_ready(n->raft), "%u: something is left to do", (unsigned)n->id);
}

void check_confirmed(struct cell *c, struct node *n, uint64_t round, raft_term term) /* (S8) */
{
	size_t left = 0;

	for (size_t i = 0; i < n->rounds_len; i++) {
		const struct round_wait *w = &n->rounds[i];

		if (w->term != term || w->round > round) {
			if (w->term == raft_current_term(n->raft))
				n->rounds[left++] = *w;
			continue;
		}
		c->rounds_confirmed++;
		cell_trace(c, "%u: round %llu is confirmed, read index %llu", (unsigned)n->id, U(w->round), U(w->read_index));
		CHECK(c, w->highest_leader_then <= term, "%u: round %llu of term %llu is confirmed, and term %llu had a leader before it",
		      (unsigned)n->id, U(w->round), U(term), U(w->highest_leader_then));
		CHECK(c, !w->read_index || w->read_index >= w->committed_then,
		      "%u: a read at %llu misses what was committed before it, %llu", (unsigned)n->id, U(w->read_index),
		      U(w->committed_then));
	}
	n->rounds_len = left;
}
