/* command.h: the envelope of every command of the log (internal.proto: Command), written and read by hand. */
#ifndef HOLDFAST_CORE_COMMAND_H
#define HOLDFAST_CORE_COMMAND_H

#include "core/types.h"
#include "holdfast/internal.pb-c.h"

#define COMMAND_VERSION 1u

#define CMD(name) HOLDFAST__INTERNAL__COMMAND_KIND__COMMAND_##name

struct command {
	uint32_t version;
	uint32_t kind; /* CMD(...) */
	struct slice payload;
	lease_id session;
	uint64_t request, first_unanswered;
	uint64_t origin_member, origin_boot, origin_call;
	bool chosen;
	struct slice user;      /* who asks; empty: nobody, or authentication is off */
	uint64_t auth_revision; /* at which he was found to be that; 0: not */
	bool refused;           /* seen by the leader (G5 of gate.c) */
};

void command_encode(const struct command *cmd, struct buf *out); /* appends; the version is ours */
bool command_parse(struct slice bytes, struct command *ret);     /* payload is lent by bytes; false: malformed */

uint64_t command_earlier_call(uint64_t first, struct slice bytes, uint64_t member, uint64_t boot); /* the lower number: first, or of the call it is of, when that is theirs */

/* What stays possible when the rest is refused (P12): it frees what others wait for, or keeps somebody alive. */
bool command_is_reserved(uint32_t kind);
/* What users write: it waits in front of the log when there is much of it (admit.c), and anything else passes by. */
bool command_waits_in_line(uint32_t kind);
/* Only ever proposed by the leader itself. */
bool command_is_leaders(uint32_t kind);
/* Whether it may make the store grow. A transaction grows when it puts. */
bool command_grows(const struct command *cmd);

#endif
