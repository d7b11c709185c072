/* transfer.c: MoveLeader: a caller waits until the one it named leads.
 *
 * The handover itself is raft's (raft_transfer). A call ends when its target leads, when somebody else does, when raft has given up, or with
 * its patience. */
#include "internal.h"

void transfer_submit(struct core *c, const struct core_request *r)
{
	member_id target = wire_find_u64(r->bytes, 1, 0);
	const struct member_record *m = member_find(&c->state, target);
	struct buf reply = { 0 };
	struct call *call;
	enum err e = ERR_OK;

	if (raft_role(c->raft) != RAFT_LEADER)
		e = ERR_NOT_LEADER;
	else if (!m || !member_counts(m))
		e = ERR_BAD_LEADER_TRANSFEREE;
	else if (target != c->config.member)
		e = raft_transfer(c->raft, target);
	if (e || target == c->config.member) {
		answer_now(c, r->tag, e, &reply);
		return;
	}
	call = call_new(c, CALL_TRANSFER, r->tag, r->method);
	call->target = target;
	call_move(call, PLACE_TRANSFER, &c->transfers);
}

void transfers_run(struct core *c)
{
	LIST_FOR_EACH_SAFE(l, next, &c->transfers) {
		struct call *call = CONTAINER_OF(l, struct call, link);
		struct buf reply = { 0 };

		if (c->leader == call->target)
			call_answer(c, call, ERR_OK, &reply);
		else if (c->leader && raft_transferee(c->raft) != call->target)
			call_fail(c, call, ERR_TIMEOUT);
	}
}
