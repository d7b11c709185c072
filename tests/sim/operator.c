/* operator.c: somebody adds, promotes and removes members while everything else goes wrong.
 *
 * Some slots of a cell begin empty. What becomes of a request is not waited for: from time to time the operator looks at what the log has made of the
 * members, starts a process with an empty disk for one that has none, and gives a slot away again once the process of its removed member has stopped by
 * itself. Its address is used again, its ID never is. */
#include "sim.h"

#include "base/pbw.h"
#include "core/member/member.h"

#define LOOK_EVERY (200 * SIM_MS)
#define INITIAL 3

uint32_t operator_slots(uint32_t replicas)
{
	return replicas < INITIAL + 2 ? INITIAL + 2 : replicas;
}

uint32_t operator_initial(const struct world *w)
{
	return w->config.members ? w->config.replicas - 2 : w->config.replicas;
}

static uint64_t draw(struct world *w, uint64_t n)
{
	return rng_below(&w->fault_rng, n);
}

/* ---- what has become of the members ---- */

static const struct member_record *at_address(const struct world *w, const char *url)
{
	struct tree_cursor cursor;

	for (struct tree_record *t = tree_first(&cursor, &referee_state(w->referee)->members); t; t = tree_next(&cursor)) {
		const struct member_record *m = CONTAINER_OF(t, struct member_record, base);

		if (strcmp(m->peer_urls[0], url) == 0)
			return m;
	}
	return NULL;
}

static void look_at(struct world *w, struct replica *r)
{
	const struct member_record *m = at_address(w, w->urls[r->id]);

	if (!r->absent && r->out && !r->up && member_was_removed(referee_state(w->referee), r->member))
		r->absent = true;
	if (!r->absent || !m)
		return;
	replica_renew(r, m->id);
	w->totals.joined++;
	replica_start(r);
}

bool operator_removed(const struct world *w, const struct replica *r)
{
	return member_was_removed(referee_state(w->referee), r->member);
}

/* ---- asking ---- */

static void ask(struct world *w, enum method_id method, struct buf *bytes)
{
	struct replica *r = NULL;
	struct inbox_item item = { .event = { .kind = EVENT_REQUEST }, .method = method, .bytes = buf_take(bytes), .tag = OPERATOR_TAGS + ++w->operator_calls };

	for (uint32_t i = 0, at = (uint32_t)draw(w, w->config.replicas); i < w->config.replicas; i++, at = (at + 1) % w->config.replicas)
		if (w->replicas[at].up && (!r || (w->replicas[at].leads && draw(w, 3))))
			r = &w->replicas[at];
	if (r)
		replica_put(r, &r->others, item);
	else
		inbox_item_free(&item);
}

static void ask_about(struct world *w, enum method_id method, member_id id)
{
	struct buf b = { 0 };

	pbw_u64(&b, 1, id);
	ask(w, method, &b);
}

static const struct member_record *any_member(struct world *w, bool learner)
{
	struct tree_cursor cursor;
	const struct member_record *found = NULL;
	uint64_t n = 0;

	for (struct tree_record *t = tree_first(&cursor, &referee_state(w->referee)->members); t; t = tree_next(&cursor)) {
		const struct member_record *m = CONTAINER_OF(t, struct member_record, base);

		if ((!learner || m->learner) && draw(w, ++n) == 0)
			found = m;
	}
	return found;
}

static bool add(struct world *w)
{
	for (uint32_t i = 0; i < w->config.replicas; i++) {
		struct buf b = { 0 };

		if (!w->replicas[i].absent)
			continue;
		pbw_bytes_always(&b, 1, slice_of_str(w->urls[i]));
		pbw_u64(&b, 2, draw(w, 2));
		ask(w, METHOD_CLUSTER_MEMBER_ADD, &b);
		return true;
	}
	return false;
}

static void one_change(struct world *w)
{
	const struct member_record *learner = any_member(w, true), *any = any_member(w, false);
	uint64_t what = draw(w, 10);

	if (what < 4 && add(w))
		return;
	if (what < 7 && learner)
		ask_about(w, METHOD_CLUSTER_MEMBER_PROMOTE, learner->id);
	else if (what == 9)
		ask_about(w, METHOD_MAINTENANCE_MOVE_LEADER, any->id);
	else if (referee_state(w->referee)->members.len > INITIAL)
		ask_about(w, METHOD_CLUSTER_MEMBER_REMOVE, any->id);
}

static void changes(struct world *w)
{
	if (w->now < w->operator_at)
		return;
	for (uint64_t n = 1 + (draw(w, 3) == 0); n > 0; n--) {
		plan_note(w, PLAN_CHANGE, PIECE_CHANGE, 0);
		one_change(w);
	}
	w->operator_at = w->now + SIM_SECOND / 2 + draw(w, 4 * SIM_SECOND);
}

static void changes_by_plan(struct world *w)
{
	if (plan_next_at(w, PLAN_CHANGE) > w->now)
		return;
	while (plan_next_at(w, PLAN_CHANGE) <= w->now)
		if (plan_take(w, PLAN_CHANGE))
			one_change(w);
	(void)draw(w, 4 * SIM_SECOND);
}

void operator_answer(struct world *w, enum err e)
{
	if (e)
		w->totals.changes_refused++;
	else
		w->totals.changes++;
}

void operator_event(struct world *w)
{
	for (uint32_t i = 0; i < w->config.replicas; i++)
		look_at(w, &w->replicas[i]);
	if (w->phase == PHASE_CHAOS)
		(w->opts.plan ? changes_by_plan : changes)(w);
	sim_at(w, w->now + LOOK_EVERY, (struct ev){ .kind = EV_OPERATOR });
}
