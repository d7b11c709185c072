/* plan.c: what goes wrong in a run, noted in one and carried out in another (N1). */
#include "sim.h"

void trap_notice(struct world *w, enum piece piece, uint32_t number)
{
	if (!w->opts.trap || number >= CUT_NUMBERS || !cut_has(w->opts.trap, piece, number))
		return;
	cut_set(&w->trapped, piece, number, true);
	CHECK(w, "trap", memcmp(&w->trapped, w->opts.trap, sizeof w->trapped) != 0, "%s:%u was the last of them", piece_name(piece), number);
}

static void begins(struct world *w, enum piece piece, uint32_t number)
{
	TRACE(w, "fault %s:%u", piece_name(piece), number);
	trap_notice(w, piece, number);
}

void plan_note(struct world *w, enum plan_source from, enum piece piece, uint64_t what)
{
	struct plan *p = w->opts.noted;
	uint32_t number = ++w->faults_seen[piece];

	if (p && p->len < PLAN_EVENTS) {
		p->counts[piece] = number;
		p->at[p->len++] = (struct plan_event){ .at = w->now, .from = from, .piece = piece, .number = number, .what = what, .fault_rng = w->fault_rng,
						       .cache_rng = w->cache_rng };
	}
	begins(w, piece, number);
}

static const struct plan_event *next_of(const struct world *w, enum plan_source from)
{
	const struct plan *p = w->opts.plan;

	for (size_t i = w->plan_next[from]; i < p->len; i++)
		if (p->at[i].from == from)
			return &p->at[i];
	return NULL;
}

/* As it comes when no more than the gap lies between it and the one before, of those that are not left out. */
static sim_us closed_up(const struct sim_options *o, const struct plan_event *e)
{
	sim_us before = 0, at = 0, gap = o->gap ? o->gap : SIM_NEVER;

	for (const struct plan_event *i = o->plan->at; i <= e; i++) {
		if (i != e && o->cut && cut_has(o->cut, i->piece, i->number))
			continue;
		at += i->at - before < gap ? i->at - before : gap;
		before = i->at;
	}
	return at;
}

sim_us plan_moved(const struct sim_options *o, const struct plan_event *e)
{
	sim_us at = closed_up(o, e);

	if (at >= o->sooner + PLAN_EARLIEST)
		return at - o->sooner;
	return at < PLAN_EARLIEST ? at : PLAN_EARLIEST;
}

sim_us plan_next_at(const struct world *w, enum plan_source from)
{
	const struct plan_event *e = next_of(w, from);

	return e ? plan_moved(&w->opts, e) : SIM_NEVER;
}

const struct plan_event *plan_take(struct world *w, enum plan_source from)
{
	const struct plan_event *e = next_of(w, from);

	if (!e)
		return NULL;
	w->plan_next[from] = (size_t)(e - w->opts.plan->at) + 1;
	w->fault_rng = e->fault_rng;
	w->cache_rng = e->cache_rng;
	if (left_out(w, e->piece, e->number))
		return NULL;
	begins(w, e->piece, e->number);
	return e;
}
