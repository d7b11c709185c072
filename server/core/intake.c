/* intake.c: the leader's door to the log, for its own commands and for those that followers forward.
 *
 *   (I1) of one follower's channel, a (term, boot), each number is taken once and in order; a lower boot is a past incarnation and is
 *        ignored, a new boot or term starts at 0. What was taken is in this leader's log, or was refused for good.
 *   (I2) LEASE_END and AUTO_COMPACT come from nobody but the leader itself.
 *   (I3) what grows the store is refused while there is no room for it, and only that (P12): what frees room, ends a wait or keeps somebody
 *        alive goes on. It is refused before the proposal: an entry of the log is carried out by all replicas, whatever their disks.
 *        A membership change has more to pass: members.c.
 *   (I4) every command passes core_propose, so whatever has to happen before a command enters the log has its place there: what
 *        has to wait is kept by admit.c and gate.c. */
#include "internal.h"

/* Whether it may be proposed now, and whether there is room for it, or it may be done. */
static enum err core_before_propose(struct core *c, const struct command *cmd, struct buf *details)
{
	if (restored_blocks(c, cmd->kind))
		return ERR_NOT_LEADER; /* not yet */
	if (cmd->kind == CMD(MEMBER_CHANGE))
		return members_before_propose(c, cmd->payload, details);
	if (!command_grows(cmd))
		return ERR_OK;
	if (alarms_may_change(c))
		return ERR_NOT_LEADER; /* not yet */
	return alarms_no_space(c) ? ERR_NO_SPACE : ERR_OK;
}

enum err core_propose(struct core *c, const struct command *cmd, struct slice bytes, struct buf *details)
{
	raft_index index;
	enum err e = core_before_propose(c, cmd, details);

	if (e)
		return e;
	if (cmd->kind != CMD(MEMBER_CHANGE)) {
		e = admit_propose(c, cmd, bytes);
		if (!e && cmd->kind == CMD(ALARM))
			alarms_proposed(c);
		return e;
	}
	e = raft_propose(c->raft, RAFT_ENTRY_CONFIG, bytes, &index);
	if (!e)
		c->change_index = index;
	return e;
}

enum err core_propose_own(struct core *c, uint32_t kind, struct slice payload)
{
	struct command cmd = {
		.kind = kind,
		.payload = payload,
		.origin_member = c->config.member,
		.origin_boot = c->config.boot,
	};
	struct buf bytes = { 0 }, details = { 0 };
	enum err e;

	command_encode(&cmd, &bytes);
	e = core_propose(c, &cmd, buf_view(&bytes), &details);
	buf_free(&details);
	buf_free(&bytes);
	return e;
}

/* ---- a follower's channel ---- */

static void forget_details(struct intake *in, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_free(&in->details.at[i]);
	memmove(in->details.at, in->details.at + n, (in->details.len - n) * sizeof *in->details.at);
	in->details.len -= n;
}

void intake_free(struct intake *in)
{
	for (size_t i = 0; i < in->details.len; i++)
		buf_free(&in->details.at[i]);
	free(in->refused.at);
	free(in->reasons.at);
	free(in->details.at);
}

static void intake_reset(struct intake *in, raft_term term, uint64_t boot)
{
	in->term = term;
	in->boot = boot;
	in->taken = 0;
	if (in->details.len > 0)
		forget_details(in, in->details.len);
	in->refused.len = in->reasons.len = 0;
}

static void forget_refusals(struct intake *in, uint64_t acked)
{
	size_t n = 0;

	while (n < in->refused.len && in->refused.at[n] <= acked)
		n++;
	if (n == 0)
		return;
	memmove(in->refused.at, in->refused.at + n, (in->refused.len - n) * sizeof *in->refused.at);
	memmove(in->reasons.at, in->reasons.at + n, in->reasons.len - n);
	forget_details(in, n);
	in->refused.len -= n;
	in->reasons.len -= n;
}

static uint8_t refusal_of(enum err e)
{
	switch (e) {
	case ERR_NO_SPACE:
		return HOLDFAST__INTERNAL__PROPOSE_REFUSAL__PROPOSE_REFUSED_NO_SPACE;
	case ERR_MALFORMED:
		return HOLDFAST__INTERNAL__PROPOSE_REFUSAL__PROPOSE_REFUSED_MALFORMED;
	case ERR_UNHEALTHY:
		return HOLDFAST__INTERNAL__PROPOSE_REFUSAL__PROPOSE_REFUSED_UNHEALTHY;
	case ERR_MEMBER_NOT_ENOUGH_STARTED:
		return HOLDFAST__INTERNAL__PROPOSE_REFUSAL__PROPOSE_REFUSED_NOT_ENOUGH_STARTED;
	case ERR_LEARNER_NOT_READY:
		return HOLDFAST__INTERNAL__PROPOSE_REFUSAL__PROPOSE_REFUSED_LEARNER_NOT_READY;
	default:
		return HOLDFAST__INTERNAL__PROPOSE_REFUSAL__PROPOSE_REFUSED_OVERLOADED;
	}
}

static enum err take_checked(struct core *c, const struct peer *p, struct slice bytes, struct buf *details)
{
	struct command cmd;

	if (!command_parse(bytes, &cmd) || cmd.version > COMMAND_VERSION || cmd.origin_member != p->id ||
	    command_is_leaders(cmd.kind) || (cmd.kind == CMD(MEMBER_CHANGE) && members_only_leaders_change(cmd.payload)) || bytes.len > c->config.max_request_bytes + 4096u)
		return ERR_MALFORMED;
	return core_propose(c, &cmd, bytes, details);
}

/* Whether number `taken` + 1 is settled. False: it has to be sent again. */
static bool take_one(struct core *c, struct peer *p, struct slice bytes)
{
	struct intake *in = &p->intake;
	struct command cmd;
	struct buf details = { 0 };
	enum err e = take_checked(c, p, bytes, &details);

	if (e == ERR_NOT_LEADER)
		return false;
	/* What passes the line by waits for room at its sender; only what may be refused is. */
	if (e == ERR_TOO_MANY_REQUESTS && command_parse(bytes, &cmd) && !command_waits_in_line(cmd.kind))
		return false;
	in->taken++;
	if (e) {
		*VEC_PUSH(&in->refused) = in->taken;
		*VEC_PUSH(&in->reasons) = refusal_of(e);
		*VEC_PUSH(&in->details) = buf_take(&details);
	}
	return true;
}

static void send_ack(struct core *c, const struct peer *p)
{
	const struct intake *in = &p->intake;
	struct buf body = { 0 };
	size_t mark;

	pbw_u64(&body, 1, in->term);
	pbw_u64(&body, 2, in->taken);
	pbw_u64(&body, 5, in->boot);
	if (in->refused.len > 0) {
		mark = pbw_open(&body, 6);
		for (size_t i = 0; i < in->refused.len; i++)
			pbw_varint(&body, in->refused.at[i]);
		pbw_close(&body, mark);
		mark = pbw_open(&body, 7);
		for (size_t i = 0; i < in->reasons.len; i++)
			pbw_varint(&body, in->reasons.at[i]);
		pbw_close(&body, mark);
		for (size_t i = 0; i < in->details.len; i++)
			pbw_bytes_always(&body, 8, buf_view(&in->details.at[i]));
	}
	peer_send(c, p->id, 12, buf_view(&body));
	buf_free(&body);
}

static void take_commands(struct core *c, struct peer *p, struct slice body, uint64_t first)
{
	struct wire w;
	uint64_t number = first;

	for (wire_init(&w, body); wire_next(&w);) {
		struct slice bytes;

		if (w.field != 3)
			continue;
		bytes = wire_bytes(&w);
		if (w.bad || number > p->intake.taken + 1)
			return;
		/* The sender's window bounds what can be refused and not heard of; one that does not keep it waits. */
		if (number == p->intake.taken + 1 && (p->intake.refused.len >= PROPOSE_WINDOW || !take_one(c, p, bytes)))
			return;
		number++;
	}
}

void intake_propose(struct core *c, struct peer *p, struct slice body)
{
	struct intake *in = &p->intake;
	raft_term term = wire_find_u64(body, 1, 0);
	uint64_t first = wire_find_u64(body, 2, 0);

	if (raft_role(c->raft) != RAFT_LEADER || term != raft_current_term(c->raft) || first == 0)
		return;
	if (p->boot < in->boot && in->term == term)
		return;
	if (in->term != term || in->boot != p->boot)
		intake_reset(in, term, p->boot);
	forget_refusals(in, wire_find_u64(body, 4, 0));
	take_commands(c, p, body, first);
	send_ack(c, p);
}
