/* recover.c: a start with a damaged disk, as the whole replica sees it. raft/recover.c says why it may not vote; here is what else follows.
 *
 *   (Y1) nobody is served until the log is again what it was: the state may lack what this very replica had acknowledged, users and roles among it.
 *   (Y2) a replica that no other voter can give it back waits a while for a leader that it may not know of, and then stops: it would wait for ever. */
#include "internal.h"

enum { PATIENCE_TIMEOUTS = 5 };

static bool is_alone(const struct core *c)
{
	struct tree_cursor cursor;

	for (struct tree_record *r = tree_first(&cursor, &c->state.members); r; r = tree_next(&cursor)) {
		const struct member_record *m = CONTAINER_OF(r, struct member_record, base);

		if (m->id != c->config.member && member_counts(m))
			return false;
	}
	return true;
}

/* Y2 */
void recover_tick(struct core *c)
{
	if (c->recovering && is_alone(c) && core_clock(c) - c->led_at > PATIENCE_TIMEOUTS * (time_ms)c->config.election_timeout_ms)
		c->fatal = CORE_FATAL_LOST;
}

void recover_sync(struct core *c)
{
	if (!c->recovering || raft_lost(c->raft).index != 0)
		return;
	c->recovering = false;
	core_emit(c, TRACE_RECOVERED, raft_last_index(c->raft), c->term, 0);
}
