/* recover.c: a replica whose disk has lost what it had acknowledged (docs/decisions/0007-damaged-disks.md).
 *
 * Storage has cut the log before the first entry that cannot be read, and says how far it had reached: `lost`. Up to there entries were acknowledged,
 * and may have been counted when they were committed; term and vote are as they were.
 *   (W1) until the log, durably, is at least as up to date as it was, this replica neither votes nor campaigns: a leader that lacks what was committed with
 *        our help could win by our vote, and by nobody else's, since any other quorum has somebody in common with the one that committed.
 *   (W2) it goes on to follow: what it takes from a leader, and acknowledges, it has. Once its log agrees with a leader's up to an entry no older than `lost`,
 *        it is what it would have become without the damage: everything it lost is there again, or had to give way to a later leader's entries.
 *   (W3) a leader whom we told of more in its own term does not believe a refusal below that. So we say that it is gone, with every heartbeat, lest it be an
 *        idle leader that has nothing to send. It commits nothing back: what it counted it had counted rightly.
 * A leader has to be found without this replica's vote; when too few are left for that, people must decide. */
#include "raft_internal.h"

bool recovering(const struct raft *r)
{
	return r->lost.index != 0;
}

/* (W1) The term of what is durable is known whenever it was read from a leader in this life. */
void recover_look(struct raft *r)
{
	struct entry_id have = { r->log.stable, log_term(&r->log, r->log.stable) };
	if (!recovering(r) || !log_reaches(have, r->lost))
		return;
	r->lost = (struct entry_id){ 0 };
	r->changed = true;
}

/* (W3) */
void recover_tell(struct raft *r, member_id leader)
{
	struct raft_message *m = send_new(r, KIND(APPEND_REPLY), leader);
	m->reject = m->lost = true;
	m->match = (struct entry_id){ r->log.last.index, log_term(&r->log, r->log.last.index) };
}

void recv_lost(struct raft *r, struct progress *p, const struct raft_message *m)
{
	if (p->state == PROGRESS_SNAPSHOT || m->match.index >= p->match)
		return;
	p->match = m->match.index;
	progress_probe(p, p->match + 1);
	r->send_due = true;
}
