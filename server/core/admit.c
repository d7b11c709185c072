/* admit.c: the line in front of the log for what users write, so that what frees something or ends in time is not behind it.
 *
 * What is in the log has to be written, sent and applied in order, so a log whose end is far ahead of what is applied delays everything alike. Here the
 * leader keeps that stretch short in time: what users write enters only while little of this term is in the log and not applied yet. The rest
 * waits in a queue of the leader's memory; all other commands pass by.
 *
 *   (T1) commands that wait in line (command_waits_in_line) enter the log in the order in which they were taken, and only while `flight` is below
 *        `window` and this replica serves as leader (core_leads): so none gets to the gate before it knows whom to wait for (G3 of gate.c).
 *   (T2) one that waits was taken: its follower's channel goes on, it is refused no more, and nothing of it has happened. The gate has not seen it, so
 *        what it may touch may still be cached. The queue is this term's alone, and dropped with it; its callers propose anew (W3 of propose.c).
 *   (T3) who would wait for longer than ADMIT_WAIT_MS, or finds ADMIT_LEN_MAX or ADMIT_COST_MAX in front, is refused at once. What only deletes has twice
 *        of each: it is taken when all else is refused (P12).
 *   (T4) the window follows the rate that the cell was seen to carry: what is in the log is worth about ADMIT_TARGET_MS. A mark is put at the log's end
 *        and looked for among what is applied; whatever was in front of it took that long. Only a mark that was put while somebody waited tells how much
 *        that is at the most, any other how much it is at least. So a cell whose ways are long, not narrow, comes to a larger window.
 *   (T5) what passes the line by and is a write to the gate all the same, a change of users or roles, waits where it came from until this replica serves
 *        as leader: for the gate as T1 has it.
 *
 * What overtakes is harmless to whoever waits for answers: only what is not answered yet is overtaken, and of such calls none may be relied upon to be
 * carried out before another (docs/decisions/0008-user-load-waits-in-front.md). */
#include "internal.h"

enum {
	ENTRY_COST = 256, /* of a command beside its bytes */
	WINDOW_MIN = 1 << 20,
	WINDOW_MAX = 16 << 20,
};

struct admitted {
	struct list link;
	struct buf bytes;
};

void admit_init(struct core *c)
{
	struct admission *a = &c->admission;

	list_init(&a->queue);
	a->window = c->config.admit_window ? c->config.admit_window : WINDOW_MIN;
	a->rate = WINDOW_MIN / ADMIT_TARGET_MS;
}

static size_t cost_of(size_t len)
{
	return len + ENTRY_COST;
}

static void admitted_free(struct core *c, struct admitted *w)
{
	list_remove(&w->link);
	c->admission.len--;
	c->admission.cost -= cost_of(w->bytes.len);
	buf_free(&w->bytes);
	free(w);
}

void admit_clear(struct core *c)
{
	struct admission *a = &c->admission;

	while (!list_empty(&a->queue))
		admitted_free(c, CONTAINER_OF(a->queue.next, struct admitted, link));
	ASSERT(a->len == 0 && a->cost == 0);
	a->flight = 0;
	a->mark = 0;
	a->stuck = false;
}

/* ---- in and out ---- */

/* T1 */
static bool is_open(const struct core *c)
{
	return core_leads(c) && c->admission.flight < c->admission.window;
}

/* T3. Before this replica serves as leader nobody can know how long it takes. */
bool admit_refuses(const struct core *c, bool reserved, size_t len)
{
	const struct admission *a = &c->admission;
	size_t factor = reserved ? 2 : 1;

	if (list_empty(&a->queue) && is_open(c))
		return false;
	if (a->len >= ADMIT_LEN_MAX * factor || a->cost + cost_of(len) > ADMIT_COST_MAX * factor)
		return true;
	return core_leads(c) && a->len > 0 && (a->cost + a->flight) / a->rate > ADMIT_WAIT_MS * factor;
}

static void wait_in_line(struct core *c, struct slice bytes)
{
	struct admission *a = &c->admission;
	struct admitted *w = mem_zalloc(sizeof(*w));

	w->bytes = buf_copy_of(bytes);
	list_push_back(&a->queue, &w->link);
	a->len++;
	a->cost += cost_of(bytes.len);
}

enum err admit_propose(struct core *c, const struct command *cmd, struct slice bytes)
{
	struct admission *a = &c->admission;

	if (!command_waits_in_line(cmd->kind) && !kv_may_write_keys(cmd->kind))
		return gate_propose(c, cmd, bytes);
	if (raft_role(c->raft) != RAFT_LEADER || raft_transferee(c->raft))
		return ERR_NOT_LEADER;
	if (!command_waits_in_line(cmd->kind))
		return core_leads(c) ? gate_propose(c, cmd, bytes) : ERR_TOO_MANY_REQUESTS; /* T5 */
	if (list_empty(&a->queue) && is_open(c)) {
		enum err e = gate_propose(c, cmd, bytes);

		if (e != ERR_TOO_MANY_REQUESTS)
			return e;
	}
	if (admit_refuses(c, command_is_reserved(cmd->kind), bytes.len))
		return ERR_TOO_MANY_REQUESTS;
	wait_in_line(c, bytes);
	return ERR_OK;
}

void admit_flush(struct core *c)
{
	struct admission *a = &c->admission;

	a->stuck = false;
	while (!list_empty(&a->queue) && is_open(c)) {
		struct admitted *w = CONTAINER_OF(a->queue.next, struct admitted, link);
		struct command cmd;

		ASSERT(command_parse(buf_view(&w->bytes), &cmd));
		a->stuck = gate_propose(c, &cmd, buf_view(&w->bytes)) != ERR_OK;
		if (a->stuck)
			return; /* leadership is being handed over, or the gate is full: with a later take, if at all */
		admitted_free(c, w);
	}
}

uint64_t admit_first_of(const struct core *c, member_id member, uint64_t boot)
{
	uint64_t first = UINT64_MAX;

	LIST_FOR_EACH(l, &c->admission.queue) {
		uint64_t call = command_call_of(buf_view(&CONTAINER_OF(l, struct admitted, link)->bytes), member, boot);

		if (call && call < first)
			first = call;
	}
	return first;
}

bool admit_waits(const struct core *c)
{
	return !list_empty(&c->admission.queue) && !c->admission.stuck && is_open(c);
}

/* ---- what is in the log ---- */

void admit_entered(struct core *c, size_t len)
{
	c->admission.flight += cost_of(len);
}

/* An entry of a term of ours may precede role_sync's notice of that term: it was counted, and forgotten with the term before. */
void admit_left(struct core *c, size_t len)
{
	size_t cost = cost_of(len);

	c->admission.flight -= cost < c->admission.flight ? cost : c->admission.flight;
}

/* T4. Changes by no more than a factor of two at a time, so that one odd measurement does no harm. */
static void learn(struct core *c)
{
	struct admission *a = &c->admission;
	time_ms took = c->now - a->marked_at;
	uint64_t rate = a->marked / (took ? took : 1);

	if (rate > 2 * a->rate)
		rate = 2 * a->rate;
	if (rate < a->rate / 2)
		rate = a->rate / 2;
	if (a->marked_full || rate > a->rate)
		a->rate = rate ? rate : 1;
	if (!a->marked_full || c->config.admit_window)
		return;
	a->window = a->rate * ADMIT_TARGET_MS;
	if (a->window < WINDOW_MIN)
		a->window = WINDOW_MIN;
	if (a->window > WINDOW_MAX)
		a->window = WINDOW_MAX;
}

void admit_measure(struct core *c)
{
	struct admission *a = &c->admission;

	if (c->role != RAFT_LEADER)
		return;
	if (a->mark && c->state.applied.index >= a->mark) {
		learn(c);
		a->mark = 0;
	}
	if (a->mark || a->flight == 0)
		return;
	a->mark = raft_last_index(c->raft);
	a->marked = a->flight;
	a->marked_at = c->now;
	a->marked_full = !list_empty(&a->queue);
}

void admit_check(const struct core *c)
{
	const struct admission *a = &c->admission;
	size_t len = 0, cost = 0;

	LIST_FOR_EACH(l, &a->queue) {
		len++;
		cost += cost_of(CONTAINER_OF(l, struct admitted, link)->bytes.len);
	}
	ASSERT(len == a->len);
	ASSERT(cost == a->cost);
	ASSERT(a->rate > 0);
	ASSERT_IF(c->role != RAFT_LEADER && raft_role(c->raft) != RAFT_LEADER, len == 0);
	ASSERT_IF(core_leads(c) && c->state.applied.index == raft_last_index(c->raft), a->flight == 0);
}
