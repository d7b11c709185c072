/* compare.c: replicas that applied the same log hold the same state (P10); here they look whether that is so.
 *
 * The leader asks each member what its state's hash was after one entry: the last that it had applied itself when it asked. A replica
 * that is not so far answers when it is; one that is past it already says so, and is asked again.
 *
 *   (Y1) right is what a quorum of voters agrees on. Whoever differs from it gets the alarm CORRUPT, in a command of the log, and stops (B3 of
 *        alarms.c); a leader that is the odd one out stops at once, and proposes nothing more.
 *   (Y2) while some have not answered and there is no quorum for any hash, nothing is decided; when all voters have answered and there is none
 *        even so, the alarm is the cell's: nobody can tell who is right, so nobody serves.
 *   (Y3) it is done when a leader begins to serve, when a member has started again, and every compare_ms. What comes of it is only ever an
 *        alarm: no state is changed here. */
#include "internal.h"

#include "core/alarm/alarm.h"

enum { RETRY_MS = 1000, INCOMPLETE_MS = 30000, BODY_ASK = 24, BODY_REPLY = 25 };

static time_ms min_ms(time_ms a, time_ms b)
{
	return a < b ? a : b;
}

static time_ms next_after(const struct core *c, time_ms ms)
{
	return core_clock(c) + min_ms(ms, c->config.compare_ms);
}

/* ---- any replica: the answer ---- */

static void answer(struct core *c, member_id to, raft_index index)
{
	bool missed = c->state.applied.index != index;
	struct buf body = { 0 };

	pbw_u64(&body, 1, index);
	if (!missed)
		pbw_fixed64(&body, 2, state_hash(&c->state));
	pbw_u64(&body, 3, missed);
	peer_send(c, to, BODY_REPLY, buf_view(&body));
	buf_free(&body);
}

void compare_ask(struct core *c, const struct peer *p, struct slice body)
{
	raft_index index = wire_find_u64(body, 1, 0);

	if (index == 0)
		return;
	c->compare.wanted = 0;
	if (c->state.applied.index >= index) {
		answer(c, p->id, index);
		return;
	}
	c->compare.wanted = index;
	c->compare.wanted_by = p->id;
}

void compare_applied(struct core *c)
{
	if (c->compare.wanted == 0 || c->state.applied.index < c->compare.wanted)
		return;
	answer(c, c->compare.wanted_by, c->compare.wanted);
	c->compare.wanted = 0;
}

/* ---- the leader: the question ---- */

static struct compared *find(struct core *c, member_id id)
{
	for (size_t i = 0; i < c->compare.len; i++)
		if (c->compare.of[i].id == id)
			return &c->compare.of[i];
	return NULL;
}

static void begin(struct core *c)
{
	struct compare *k = &c->compare;
	struct tree_cursor cursor;
	struct buf body = { 0 };

	k->index = c->state.applied.index;
	k->asked_at = core_clock(c);
	k->len = 0;
	pbw_u64(&body, 1, k->index);
	for (struct tree_record *r = tree_first(&cursor, &c->state.members); r && k->len < RAFT_MEMBERS_MAX; r = tree_next(&cursor)) {
		const struct member_record *m = CONTAINER_OF(r, struct member_record, base);
		struct compared *of = &k->of[k->len++];

		*of = (struct compared){ .id = m->id, .voter = member_counts(m) };
		if (m->id == c->config.member) {
			of->answered = true;
			of->hash = state_hash(&c->state);
		} else {
			peer_send(c, m->id, BODY_ASK, buf_view(&body));
		}
	}
	buf_free(&body);
}

/* The hash that a quorum of voters has. */
static bool agreed(const struct compare *k, uint64_t *ret)
{
	size_t voters = 0;

	for (size_t i = 0; i < k->len; i++)
		voters += k->of[i].voter;
	for (size_t i = 0; i < k->len; i++) {
		size_t n = 0;

		if (!k->of[i].voter || !k->of[i].answered)
			continue;
		for (size_t j = 0; j < k->len; j++)
			n += k->of[j].voter && k->of[j].answered && k->of[j].hash == k->of[i].hash;
		if (n > voters / 2) {
			*ret = k->of[i].hash;
			return true;
		}
	}
	return false;
}

static void raise_against(struct core *c, member_id member)
{
	core_emit(c, TRACE_DIFFERS, member, c->compare.index, 0);
	if (!alarm_find(&c->state, ALARM_CORRUPT, member))
		alarms_propose(c, true, ALARM_CORRUPT, member);
}

/* Y1 */
static void judge(struct core *c, uint64_t right)
{
	const struct compare *k = &c->compare;

	for (size_t i = 0; i < k->len; i++)
		if (k->of[i].id == c->config.member && k->of[i].hash != right) {
			core_emit(c, TRACE_DIFFERS, c->config.member, k->index, 0);
			c->fatal = CORE_FATAL_DIFFERS;
			return;
		}
	for (size_t i = 0; i < k->len; i++)
		if (k->of[i].answered && k->of[i].hash != right)
			raise_against(c, k->of[i].id);
}

static bool all_equal(const struct compare *k)
{
	for (size_t i = 0; i < k->len; i++)
		for (size_t j = 0; j < i; j++)
			if (k->of[i].answered && k->of[j].answered && k->of[i].hash != k->of[j].hash)
				return false;
	return true;
}

static bool all_voters_answered(const struct compare *k)
{
	for (size_t i = 0; i < k->len; i++)
		if (k->of[i].voter && !k->of[i].answered)
			return false;
	return true;
}

static bool all_answered(const struct compare *k)
{
	for (size_t i = 0; i < k->len; i++)
		if (!k->of[i].answered)
			return false;
	return true;
}

static void end(struct core *c)
{
	struct compare *k = &c->compare;
	uint64_t right;

	k->next_at = next_after(c, all_answered(k) ? c->config.compare_ms : INCOMPLETE_MS);
	if (agreed(k, &right)) {
		judge(c, right);
	} else if (!all_equal(k)) {
		k->next_at = next_after(c, RETRY_MS);
		if (all_voters_answered(k)) /* Y2 */
			raise_against(c, 0);
		else
			core_emit(c, TRACE_DIFFERS, 0, k->index, 1);
	}
	k->index = 0;
}

void compare_reply(struct core *c, const struct peer *p, struct slice body)
{
	struct compare *k = &c->compare;
	struct compared *of = find(c, p->id);

	if (!core_leads(c) || k->index == 0 || wire_find_u64(body, 1, 0) != k->index || !of || of->answered)
		return;
	if (wire_find_u64(body, 3, 0)) {
		k->index = 0;
		k->next_at = next_after(c, RETRY_MS);
		return;
	}
	of->answered = true;
	of->hash = wire_find_u64(body, 2, 0);
	if (all_answered(k))
		end(c);
}

void compare_tick(struct core *c)
{
	struct compare *k = &c->compare;

	if (!core_leads(c) || c->config.compare_ms == 0)
		return;
	if (k->index && core_clock(c) - k->asked_at >= 2 * (time_ms)c->config.election_timeout_ms)
		end(c);
	else if (!k->index && core_clock(c) >= k->next_at && c->state.members.len > 1)
		begin(c);
}

/* Y3. A member that has just started wants a moment to catch up. */
void compare_soon(struct core *c)
{
	time_ms at = next_after(c, c->config.election_timeout_ms);

	if (c->config.compare_initial && at < c->compare.next_at)
		c->compare.next_at = at;
}

void compare_promoted(struct core *c)
{
	c->compare.index = 0;
	c->compare.next_at = next_after(c, c->config.compare_initial ? c->config.election_timeout_ms : c->config.compare_ms);
}
