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
 *   (T6) what would have to wait at a gate that is full (G1 of gate.c) holds up nobody behind it: it is set aside until there is room, and refused when as
 *        much has been set aside as the line itself may have (twice as much of what only deletes).
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
	list_init(&a->aside);
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

static struct admitted *first_of(struct list *l)
{
	return list_empty(l) ? NULL : CONTAINER_OF(l->next, struct admitted, link);
}

void admit_clear(struct core *c)
{
	struct admission *a = &c->admission;
	struct admitted *w;

	while ((w = first_of(&a->queue)) || (w = first_of(&a->aside)))
		admitted_free(c, w);
	ASSERT(a->len == 0 && a->cost == 0);
	a->aside_len = a->aside_cost = 0;
	a->flight = 0;
	a->mark = 0;
	a->stuck = a->aside_stuck = false;
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
	size_t factor = reserved ? 2 : 1, queued = a->len - a->aside_len, cost = a->cost - a->aside_cost;

	if (queued == 0 && is_open(c))
		return false;
	if (queued >= ADMIT_LEN_MAX * factor || cost + cost_of(len) > ADMIT_COST_MAX * factor)
		return true;
	return core_leads(c) && queued > 0 && (cost + a->flight) / a->rate > ADMIT_WAIT_MS * factor;
}

static struct admitted *wait_in_line(struct core *c, struct slice bytes)
{
	struct admission *a = &c->admission;
	struct admitted *w = mem_zalloc(sizeof(*w));

	w->bytes = buf_copy_of(bytes);
	list_push_back(&a->queue, &w->link);
	a->len++;
	a->cost += cost_of(bytes.len);
	return w;
}

/* T6 */
static void set_aside(struct core *c, struct admitted *w)
{
	list_remove(&w->link);
	list_push_back(&c->admission.aside, &w->link);
	c->admission.aside_len++;
	c->admission.aside_cost += cost_of(w->bytes.len);
}

static bool aside_is_full(const struct admission *a, size_t len, size_t factor)
{
	return a->aside_len >= ADMIT_LEN_MAX * factor || a->aside_cost + cost_of(len) > ADMIT_COST_MAX * factor;
}

static enum err propose_at_full_gate(struct core *c, const struct command *cmd, struct slice bytes)
{
	if (aside_is_full(&c->admission, bytes.len, command_is_reserved(cmd->kind) ? 2 : 1))
		return ERR_TOO_MANY_REQUESTS;
	set_aside(c, wait_in_line(c, bytes));
	return ERR_OK;
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
		enum err e;

		if (!gate_has_room(c, cmd, bytes))
			return propose_at_full_gate(c, cmd, bytes);
		e = gate_propose(c, cmd, bytes);
		if (e != ERR_TOO_MANY_REQUESTS)
			return e;
	}
	if (admit_refuses(c, command_is_reserved(cmd->kind), bytes.len))
		return ERR_TOO_MANY_REQUESTS;
	wait_in_line(c, bytes);
	return ERR_OK;
}

/* Those that were set aside came first. */
static void flush_aside(struct core *c)
{
	struct admission *a = &c->admission;
	struct admitted *w;

	a->aside_stuck = false;
	while (is_open(c) && (w = first_of(&a->aside))) {
		struct command cmd;
		size_t cost = cost_of(w->bytes.len);

		ASSERT(command_parse(buf_view(&w->bytes), &cmd));
		a->aside_stuck = !gate_has_room(c, &cmd, buf_view(&w->bytes)) || gate_propose(c, &cmd, buf_view(&w->bytes)) != ERR_OK;
		if (a->aside_stuck)
			return;
		a->aside_len--;
		a->aside_cost -= cost;
		admitted_free(c, w);
	}
}

void admit_flush(struct core *c)
{
	struct admission *a = &c->admission;
	struct admitted *w;

	flush_aside(c);
	a->stuck = false;
	while (is_open(c) && (w = first_of(&a->queue))) {
		struct command cmd;

		ASSERT(command_parse(buf_view(&w->bytes), &cmd));
		if (!gate_has_room(c, &cmd, buf_view(&w->bytes)) && !aside_is_full(a, w->bytes.len, 2)) {
			set_aside(c, w);
			continue;
		}
		a->stuck = gate_propose(c, &cmd, buf_view(&w->bytes)) != ERR_OK;
		if (a->stuck)
			return; /* leadership is being handed over, or there is no room: with a later take, if at all */
		admitted_free(c, w);
	}
}

uint64_t admit_first_of(const struct core *c, member_id member, uint64_t boot, uint64_t first)
{
	const struct list *waiting[] = { &c->admission.queue, &c->admission.aside };

	for (size_t i = 0; i < sizeof(waiting) / sizeof(*waiting); i++)
		LIST_FOR_EACH(l, waiting[i])
			first = command_earlier_call(first, buf_view(&CONTAINER_OF(l, struct admitted, link)->bytes), member, boot);
	return first;
}

bool admit_waits(const struct core *c)
{
	const struct admission *a = &c->admission;

	return is_open(c) && ((!list_empty(&a->queue) && !a->stuck) || (!list_empty(&a->aside) && !a->aside_stuck));
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
	size_t len = 0, cost = 0, aside_len = 0, aside_cost = 0;

	LIST_FOR_EACH(l, &a->queue) {
		len++;
		cost += cost_of(CONTAINER_OF(l, struct admitted, link)->bytes.len);
	}
	LIST_FOR_EACH(l, &a->aside) {
		aside_len++;
		aside_cost += cost_of(CONTAINER_OF(l, struct admitted, link)->bytes.len);
	}
	ASSERT(len + aside_len == a->len && aside_len == a->aside_len);
	ASSERT(cost + aside_cost == a->cost && aside_cost == a->aside_cost);
	ASSERT(a->rate > 0);
	ASSERT_IF(c->role != RAFT_LEADER && raft_role(c->raft) != RAFT_LEADER, a->len == 0);
	ASSERT_IF(core_leads(c) && c->state.applied.index == raft_last_index(c->raft), a->flight == 0);
}
