/* print.c: messages and roles for people. */
#include <stdio.h>

#include "cell.h"
#include "holdfast/internal.pb-c.h"

#define KIND(k) HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__RAFT_##k
#define U(x) ((unsigned long long)(x))

const char *raft_role_name(enum raft_role role)
{
	static const char *const names[] = {
		[RAFT_FOLLOWER] = "follower", [RAFT_PRECANDIDATE] = "pre-candidate", [RAFT_CANDIDATE] = "candidate",
		[RAFT_LEADER] = "leader",
	};

	return names[role];
}

const char *raft_message_name(uint32_t kind)
{
	static const char *const names[] = {
		"none", "pre-vote", "pre-vote reply", "vote", "vote reply", "append", "append reply", "heartbeat",
		"heartbeat reply", "snapshot", "snapshot reply", "timeout-now",
	};

	return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "?";
}

static size_t print_entries(const struct raft_message *m, char *text, size_t cap)
{
	size_t n = 0;

	for (size_t i = 0; i < m->entries_len && n < cap; i++)
		n += (size_t)snprintf(text + n, cap - n, "%s%llu/%llu", i ? " " : ": ", U(m->entries[i]->index), U(m->entries[i]->term));
	return n < cap ? n : cap;
}

static void print_body(const struct raft_message *m, char *text, size_t cap)
{
	size_t n;

	switch (m->kind) {
	case KIND(PREVOTE):
	case KIND(VOTE):
		snprintf(text, cap, ", log ends at %llu/%llu%s", U(m->log.index), U(m->log.term), m->force ? ", force" : "");
		break;
	case KIND(PREVOTE_REPLY):
	case KIND(VOTE_REPLY):
		snprintf(text, cap, "%s", m->reject ? ", refused" : ", granted");
		break;
	case KIND(APPEND):
		n = (size_t)snprintf(text, cap, ", commit %llu, after %llu/%llu", U(m->commit), U(m->log.index), U(m->log.term));
		print_entries(m, text + n, cap - n);
		break;
	case KIND(APPEND_REPLY):
		if (m->reject)
			snprintf(text, cap, ", refused, try %llu/%llu", U(m->match.index), U(m->match.term));
		else
			snprintf(text, cap, ", match %llu", U(m->match.index));
		break;
	case KIND(HEARTBEAT):
		snprintf(text, cap, ", commit %llu, round %llu", U(m->commit), U(m->round));
		break;
	case KIND(HEARTBEAT_REPLY):
		snprintf(text, cap, ", round %llu", U(m->round));
		break;
	case KIND(SNAPSHOT):
		snprintf(text, cap, " %llu/%llu, chunk %llu", U(m->log.index), U(m->log.term), U(m->chunk));
		break;
	case KIND(SNAPSHOT_REPLY):
		snprintf(text, cap, " %llu/%llu%s, next chunk %llu", U(m->log.index), U(m->log.term), m->reject ? ", refused" : "",
			 U(m->chunk));
		break;
	default:
		text[0] = 0;
		break;
	}
}

void message_print(const struct raft_message *m, char *text, size_t cap)
{
	size_t n = (size_t)snprintf(text, cap, "%llu>%llu %s, term %llu", U(m->from), U(m->to), raft_message_name(m->kind), U(m->term));

	print_body(m, text + n, cap - n);
}
