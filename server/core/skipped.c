/* skipped.c: what a snapshot left open: commands that were handed to the leader of the present term, and whose entries may lie inside it, unseen (W4 of propose.c).
 *
 * When a later term begins all is settled (W3), but a term may last for months. Meanwhile the leader is asked what of this replica's it still keeps in front of its log.
 *
 *   (K1) asked is about what the leader had acknowledged by then: it is in its log, waits in its memory (admit.c, gate.c), or was refused, which is known here.
 *   (K2) it answers where its log ends, and the first call of this replica's that waits in its memory. Whatever was asked about, and has a lower number, is in no log behind
 *        that end, nor will be in this term.
 *   (K3) once that end is applied here, those are settled as by W3: what has been applied was told, or lies in a snapshot, and the rest is in no log.
 *   (K4) a question or an answer may be lost: it is asked again. An answer names what it is about (K1), and its term: one that comes late does no harm. */
#include "internal.h"

enum { BODY_ASK = 26, BODY_ANSWER = 27 };

/* ---- who wants to know ---- */

static bool is_open(const struct core *c, const struct call *call)
{
	return call->skipped && call->term == c->proposer.term;
}

static bool any_open(const struct core *c, const struct list *in)
{
	LIST_FOR_EACH(l, in)
		if (is_open(c, CONTAINER_OF(l, struct call, link)))
			return true;
	return false;
}

static void ask(struct core *c)
{
	struct buf body = { 0 };

	pbw_u64(&body, 1, c->proposer.term);
	pbw_u64(&body, 2, c->proposer.acked);
	peer_send(c, c->leader, BODY_ASK, buf_view(&body));
	buf_free(&body);
}

void skipped_run(struct core *c)
{
	struct proposer *p = &c->proposer;
	struct settled *s = &p->settled;

	if (s->index != 0 && c->state.applied.index >= s->index) { /* K3 */
		propose_settle(c, s->channel, s->below);
		s->index = 0;
	}
	if (!p->skipped || s->index != 0 || c->now < p->skipped_at || c->role == RAFT_LEADER || !c->leader)
		return;
	p->skipped = any_open(c, &p->taken) || any_open(c, &p->sent);
	if (!p->skipped)
		return;
	ask(c);
	p->skipped_at = c->now + resend_ms(c);
}

time_ms skipped_next_deadline(const struct core *c)
{
	const struct proposer *p = &c->proposer;

	return !p->skipped || p->settled.index != 0 || c->role == RAFT_LEADER || !c->leader ? TIME_NEVER : p->skipped_at;
}

void skipped_answer(struct core *c, struct slice body)
{
	struct proposer *p = &c->proposer;
	raft_index index = wire_find_u64(body, 3, 0);

	if (wire_find_u64(body, 1, 0) != p->term || wire_find_u64(body, 5, 0) != c->config.boot || index == 0 || p->settled.index != 0)
		return;
	p->settled = (struct settled){ .index = index, .channel = wire_find_u64(body, 2, 0), .below = wire_find_u64(body, 4, UINT64_MAX) };
}

/* ---- the leader ---- */

void skipped_ask(struct core *c, const struct peer *p, struct slice body)
{
	const struct intake *in = &p->intake;
	raft_term term = wire_find_u64(body, 1, 0);
	uint64_t acked = wire_find_u64(body, 2, 0), waits;
	struct buf reply = { 0 };

	/* Acknowledged it was by this very leader, to this very incarnation. */
	if (raft_role(c->raft) != RAFT_LEADER || term != raft_current_term(c->raft) || in->term != term || in->boot != p->boot || in->taken < acked)
		return;
	waits = admit_first_of(c, p->id, p->boot, UINT64_MAX);
	waits = gate_first_of(c, p->id, p->boot, waits);
	pbw_u64(&reply, 1, term);
	pbw_u64(&reply, 2, acked);
	pbw_u64(&reply, 3, raft_last_index(c->raft));
	if (waits != UINT64_MAX)
		pbw_u64(&reply, 4, waits);
	pbw_u64(&reply, 5, in->boot);
	peer_send(c, p->id, BODY_ANSWER, buf_view(&reply));
	buf_free(&reply);
}
