/* alarms.c: when the cell raises an alarm and when it clears it, and what is refused while one is up.
 *
 *   (B1) the leader raises NOSPACE, in its own name, when its store is over its quota or its disk is below the reserve; while any is up, by
 *        whomever, what grows is refused (I3 of intake.c). What frees, ends or renews goes on: that is how space comes back.
 *   (B2) what the cell raised by itself it clears by itself, whoever leads then, once the store is at nine tenths of the quota: not at the
 *        quota itself, or it would come and go with every write. What an operator raised, an operator clears.
 *   (B3) a replica that knows of CORRUPT against itself stops as soon as it has applied all that it knows to be committed: not before, since
 *        the entry that clears it may follow. Against member 0, which is the cell: nobody serves, until an operator decides.
 *   (B4) while an alarm is in the leader's log and not applied there, nobody knows whether there is room: what grows waits. Whoever asked for the alarm may
 *        have been answered by then, by a replica whose disk is quicker than the leader's.
 * Alarms are entries of the log, so what is refused is the same on all replicas; whether the quota is exceeded is each leader's own to say. */
#include "internal.h"

#include "core/alarm/alarm.h"

#define ACTION(name) ETCDSERVERPB__ALARM_REQUEST__ALARM_ACTION__##name

/* ---- space ---- */

/* What counts: history no more than the quarter of the quota that it may take (H2 of auto_compact.c). What is above goes as soon as it can; but of the
 * newest revision's own deletions something stays until there is another one, and who has just deleted all must not be told that it is full. */
static uint64_t used(const struct core *c)
{
	uint64_t history = store_history_bytes(c->store), allowed = c->config.quota_bytes / 4;

	return core_store_bytes(c) - history + (history < allowed ? history : allowed);
}

static bool over_quota(const struct core *c)
{
	return c->config.quota_bytes && used(c) > c->config.quota_bytes;
}

static bool below_low_water(const struct core *c)
{
	return !c->disk_low && (c->config.quota_bytes == 0 || used(c) <= c->config.quota_bytes / 10 * 9);
}

/* One of our own counts for no longer than it takes until it may be cleared: there is room then, whenever the entry comes. */
static bool counts(const struct core *c, const struct alarm_record *a)
{
	return !a->automatic || c->config.no_auto_clear || !below_low_water(c);
}

bool alarms_no_space(const struct core *c)
{
	if (c->disk_low || over_quota(c))
		return true;
	if (c->state.alarms.len == 0)
		return false;
	for (const struct alarm_record *a = NULL; (a = alarm_next(&c->state, ALARM_NOSPACE, a));)
		if (counts(c, a))
			return true;
	return false;
}

void alarms_proposed(struct core *c)
{
	c->alarms.proposed = raft_last_index(c->raft);
}

static bool may_be_alarm(const struct raft_entry *e)
{
	struct command cmd;

	return !e || (e->kind == RAFT_ENTRY_COMMAND && command_parse(raft_entry_data(e), &cmd) && cmd.kind == CMD(ALARM));
}

/* What another leader took may be in our log, too. */
void alarms_role_changed(struct core *c)
{
	raft_index i = c->role == RAFT_LEADER ? raft_last_index(c->raft) : 0;

	while (i > c->state.applied.index && !may_be_alarm(raft_entry_at(c->raft, i)))
		i--;
	c->alarms.proposed = i;
}

/* B4 */
bool alarms_may_change(const struct core *c)
{
	return c->alarms.proposed > c->state.applied.index;
}

static bool automatic_no_space(const struct core *c)
{
	for (const struct alarm_record *a = NULL; (a = alarm_next(&c->state, ALARM_NOSPACE, a));)
		if (a->automatic)
			return true;
	return false;
}

enum err alarms_propose(struct core *c, bool raise, uint32_t type, member_id member)
{
	struct buf payload = { 0 };
	enum err e;

	pbw_u64(&payload, 1, raise ? ACTION(ACTIVATE) : ACTION(DEACTIVATE));
	pbw_fixed64(&payload, 2, member);
	pbw_u64(&payload, 3, type);
	pbw_u64(&payload, 4, true);
	e = core_propose_own(c, CMD(ALARM), buf_view(&payload));
	buf_free(&payload);
	return e;
}

/* B1, B2. What was proposed gets the time to be applied. */
static void look_after_space(struct core *c)
{
	bool full = c->disk_low || over_quota(c), up = automatic_no_space(c);
	bool raise = full && !up, clear = up && !c->config.no_auto_clear && below_low_water(c);

	if ((!raise && !clear) || core_clock(c) < c->alarms.again_at)
		return;
	if (alarms_propose(c, raise, ALARM_NOSPACE, raise ? c->config.member : 0) == ERR_OK)
		c->alarms.again_at = core_clock(c) + c->config.election_timeout_ms;
}

/* Between four fifths and three quarters it stays as it is. */
static void warn(struct core *c)
{
	uint64_t bytes = used(c), quota = c->config.quota_bytes;

	if (quota == 0 || c->alarms.high == (bytes >= quota / 5 * 4) || (c->alarms.high && bytes >= quota / 4 * 3))
		return;
	c->alarms.high = !c->alarms.high;
	core_emit(c, TRACE_QUOTA, bytes, quota, c->alarms.high);
}

/* What the cell raised against a member that belongs to it no more is over. */
static void look_after_the_gone(struct core *c)
{
	for (const struct alarm_record *a = NULL; (a = alarm_next(&c->state, ALARM_NONE, a));)
		if (a->automatic && a->type == ALARM_CORRUPT && a->member != 0 && !member_find(&c->state, a->member) && core_clock(c) >= c->alarms.again_at) {
			if (alarms_propose(c, false, a->type, a->member) == ERR_OK)
				c->alarms.again_at = core_clock(c) + c->config.election_timeout_ms;
			return;
		}
}

void alarms_tick(struct core *c)
{
	warn(c);
	if (!core_leads(c))
		return;
	look_after_space(c);
	if (c->state.alarms.len > 0)
		look_after_the_gone(c);
}

/* ---- CORRUPT ---- */

bool alarms_cell_is_corrupt(const struct core *c)
{
	return c->state.alarms.len > 0 && alarm_find(&c->state, ALARM_CORRUPT, 0) != NULL;
}

/* B3 */
void alarms_look(struct core *c)
{
	if (c->state.alarms.len == 0 || c->fatal != CORE_OK || c->backlog_len > 0 || !c->leader)
		return;
	if (c->state.applied.index >= raft_commit_index(c->raft) && alarm_find(&c->state, ALARM_CORRUPT, c->config.member))
		c->fatal = CORE_FATAL_DIFFERS;
}

/* ---- the method ---- */

/* etcd's replies have no header. */
void alarms_list(const struct core *c, struct slice request, struct buf *out)
{
	uint32_t type = (uint32_t)wire_find_u64(request, 3, ALARM_NONE);

	for (const struct alarm_record *a = NULL; (a = alarm_next(&c->state, type, a));)
		alarm_write(a, out);
}

void alarms_submit(struct core *c, const struct core_request *r)
{
	struct call *call = call_new(c, CALL_COMMAND, r->tag, r->method);
	struct buf payload = { 0 };

	pbw_u64(&payload, 1, wire_find_u64(r->bytes, 1, ACTION(GET)));
	pbw_fixed64(&payload, 2, wire_find_u64(r->bytes, 2, 0));
	pbw_u64(&payload, 3, wire_find_u64(r->bytes, 3, ALARM_NONE));
	propose_submit_request(c, call, CMD(ALARM), buf_view(&payload), r, false);
	buf_free(&payload);
}

enum err alarms_apply(struct core *c, struct slice payload, struct buf *reply)
{
	uint64_t before = c->state.alarms.len;
	enum err e = alarm_apply(&c->state, payload, reply);

	if (c->state.alarms.len != before)
		core_emit(c, TRACE_ALARM, wire_find_u64(payload, 3, ALARM_NONE), wire_find_u64(payload, 2, 0), c->state.alarms.len > before);
	c->alarms.again_at = 0;
	return e;
}
