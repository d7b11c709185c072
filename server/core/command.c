/* command.c: see command.h. */
#include "command.h"

#include "base/pbw.h"
#include "core/wire.h"

void command_encode(const struct command *cmd, struct buf *out)
{
	buf_reserve(out, cmd->payload.len + 64);
	pbw_u64(out, 1, COMMAND_VERSION);
	pbw_u64(out, 2, cmd->kind);
	pbw_bytes(out, 3, cmd->payload);
	pbw_fixed64(out, 4, (uint64_t)cmd->session);
	pbw_u64(out, 5, cmd->request);
	pbw_u64(out, 6, cmd->first_unanswered);
	pbw_u64(out, 8, cmd->origin_member);
	pbw_u64(out, 9, cmd->origin_boot);
	pbw_u64(out, 10, cmd->origin_call);
	pbw_u64(out, 11, cmd->chosen);
	pbw_bytes(out, 12, cmd->user);
	pbw_u64(out, 13, cmd->auth_revision);
	pbw_u64(out, 14, cmd->refused);
}

bool command_parse(struct slice bytes, struct command *ret)
{
	struct command cmd = { 0 };
	struct wire w;

	for (wire_init(&w, bytes); wire_next(&w);) {
		switch (w.field) {
		case 1: cmd.version = (uint32_t)wire_u64(&w); break;
		case 2: cmd.kind = (uint32_t)wire_u64(&w); break;
		case 3: cmd.payload = wire_bytes(&w); break;
		case 4: cmd.session = wire_i64(&w); break;
		case 5: cmd.request = wire_u64(&w); break;
		case 6: cmd.first_unanswered = wire_u64(&w); break;
		case 8: cmd.origin_member = wire_u64(&w); break;
		case 9: cmd.origin_boot = wire_u64(&w); break;
		case 10: cmd.origin_call = wire_u64(&w); break;
		case 11: cmd.chosen = wire_u64(&w) != 0; break;
		case 12: cmd.user = wire_bytes(&w); break;
		case 13: cmd.auth_revision = wire_u64(&w); break;
		case 14: cmd.refused = wire_u64(&w) != 0; break;
		default: break;
		}
	}
	if (w.bad)
		return false;
	*ret = cmd;
	return true;
}

uint64_t command_earlier_call(uint64_t first, struct slice bytes, uint64_t member, uint64_t boot)
{
	struct command cmd;
	bool theirs = command_parse(bytes, &cmd) && cmd.origin_member == member && cmd.origin_boot == boot;

	return theirs && cmd.origin_call != 0 && cmd.origin_call < first ? cmd.origin_call : first;
}

bool command_is_reserved(uint32_t kind)
{
	return kind == CMD(DELETE_RANGE) || kind == CMD(LEASE_REVOKE) || kind == CMD(LEASE_END) || kind == CMD(UNLOCK) || kind == CMD(LOCK_BREAK) ||
	       kind == CMD(ABANDON) || kind == CMD(RESIGN) || kind == CMD(COMPACT) || kind == CMD(AUTO_COMPACT) ||
	       kind == CMD(MEMBER_PUBLISH) || kind == CMD(MEMBER_CHANGE) || kind == CMD(SESSION_RESUME) || kind == CMD(SESSION_CLOSE) ||
	       kind == CMD(NODE_DELETE) || kind == CMD(ALARM) || kind == CMD(RESTORED);
}

bool command_waits_in_line(uint32_t kind)
{
	switch (kind) {
	case CMD(PUT):
	case CMD(DELETE_RANGE):
	case CMD(TXN):
	case CMD(LEASE_GRANT):
	case CMD(LOCK):
	case CMD(PROCLAIM):
	case CMD(SESSION_OPEN):
	case CMD(NODE_CREATE):
	case CMD(NODE_SET):
	case CMD(NODE_DELETE):
	case CMD(AUTHENTICATE):
		return true;
	default:
		return false;
	}
}

bool command_is_leaders(uint32_t kind)
{
	return kind == CMD(LEASE_END) || kind == CMD(AUTO_COMPACT) || kind == CMD(RESTORED);
}

/* Whether a list of operations puts. Nested transactions are looked into through `depth` levels; what is deeper counts as a put. */
static bool txn_puts(struct slice txn, unsigned depth)
{
	struct wire w, op;

	for (wire_init(&w, txn); wire_next(&w);) {
		if (w.field != 2 && w.field != 3)
			continue;
		for (wire_init(&op, wire_bytes(&w)); wire_next(&op);)
			if (op.field == 2 || (op.field == 4 && (depth == 0 || txn_puts(wire_bytes(&op), depth - 1))))
				return true;
	}
	return w.bad;
}

bool command_grows(const struct command *cmd)
{
	switch (cmd->kind) {
	case CMD(PUT):
	case CMD(LEASE_GRANT):
	case CMD(LOCK):
	case CMD(PROCLAIM):
	case CMD(SESSION_OPEN):
	case CMD(NODE_CREATE):
	case CMD(NODE_SET):
	case CMD(AUTH):
		return true;
	case CMD(TXN):
		return txn_puts(cmd->payload, 8);
	default:
		return false;
	}
}
