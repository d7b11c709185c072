/* faults.c: what goes wrong, drawn from the seed. Several things may be wrong at once, and a whole cell may be down. Every run has a crash and a
 * partition of whoever leads, so that no run is a quiet one. At the end all is healed, and what must then become good is checked. */
#include "sim.h"

#include "core/member/member.h"

enum fault {
	FAULT_CRASH_ANY, FAULT_CRASH_LEADER, FAULT_CRASH_ALL, FAULT_SPLIT, FAULT_ISOLATE_LEADER, FAULT_ONE_WAY, FAULT_LINK, FAULT_PAUSE_ANY,
	FAULT_PAUSE_LEADER, FAULT_DISK_STALL, FAULT_SLOW_LINKS, FAULT_STORM, FAULT_CLIENTS_CUT, FAULT_PEER_LOST, FAULT_GARBAGE, FAULT_TRANSFER, FAULT_GRACEFUL,
	FAULT_SPACE, FAULT_WIPE,
	FAULT_DAMAGE, /* a process dies, and finds its disk damaged */
	FAULT_COUNT
};

/* As flags name them (plan.h). */
static enum piece piece_of(enum fault f)
{
	static const enum piece pieces[FAULT_COUNT] = {
		[FAULT_CRASH_ANY] = PIECE_CRASH, [FAULT_CRASH_LEADER] = PIECE_CRASH, [FAULT_CRASH_ALL] = PIECE_CRASH, [FAULT_SPLIT] = PIECE_PARTITION,
		[FAULT_ISOLATE_LEADER] = PIECE_PARTITION, [FAULT_ONE_WAY] = PIECE_LINK, [FAULT_LINK] = PIECE_LINK, [FAULT_PAUSE_ANY] = PIECE_PAUSE,
		[FAULT_PAUSE_LEADER] = PIECE_PAUSE, [FAULT_DISK_STALL] = PIECE_STALL, [FAULT_SLOW_LINKS] = PIECE_SLOW, [FAULT_STORM] = PIECE_STORM,
		[FAULT_CLIENTS_CUT] = PIECE_CUT, [FAULT_PEER_LOST] = PIECE_PEER_LOST, [FAULT_GARBAGE] = PIECE_GARBAGE, [FAULT_TRANSFER] = PIECE_TRANSFER,
		[FAULT_GRACEFUL] = PIECE_STOP, [FAULT_SPACE] = PIECE_SPACE, [FAULT_WIPE] = PIECE_WIPE, [FAULT_DAMAGE] = PIECE_DAMAGE,
	};

	return pieces[f];
}

static sim_us draw(struct world *w, sim_us lo, sim_us hi)
{
	return rng_between(&w->fault_rng, lo, hi);
}

/* One in three is a long one. */
static sim_us often_short(struct world *w, sim_us lo, sim_us mid, sim_us hi)
{
	return rng_chance(&w->fault_rng, 667000) ? draw(w, lo, mid) : draw(w, mid, hi);
}

static uint32_t any(struct world *w)
{
	return (uint32_t)rng_below(&w->fault_rng, w->config.replicas);
}

static uint32_t leader_or_any(struct world *w)
{
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 0; i < w->config.replicas; i++) {
		struct replica *r = &w->replicas[i];

		if (r->leads && replica_runs(r) && (best == UINT32_MAX || r->noted_term > w->replicas[best].noted_term))
			best = i;
	}
	return best == UINT32_MAX ? any(w) : best;
}

static void crash(struct world *w, uint32_t i)
{
	sim_us down = often_short(w, 10 * SIM_MS, 500 * SIM_MS, 6 * SIM_SECOND);

	if (!w->replicas[i].up)
		return;
	replica_crash(&w->replicas[i]);
	sim_at(w, w->now + down, (struct ev){ .kind = EV_RESTART, .a = i });
}

void faults_crash(struct replica *r)
{
	crash(r->w, r->id);
}

static void cut(struct world *w, uint32_t from, uint32_t to, sim_us until)
{
	struct link *l = &w->links[from][to];

	if (from != to && l->blocked_until < until)
		l->blocked_until = until;
}

/* Bytes of users are late, but they do come: as over a connection that stands. */
static void cut_users(struct world *w, uint32_t to, sim_us until)
{
	if (w->replicas[to].unseen_until < until)
		w->replicas[to].unseen_until = until;
}

/* Clients are on either side, too. */
static void cut_clients(struct world *w, uint32_t to, sim_us until, uint32_t per_million)
{
	for (uint32_t i = 0; i < w->config.clients; i++)
		if (rng_chance(&w->fault_rng, per_million))
			w->client_links[i][to].blocked_until = until;
	if (rng_chance(&w->cache_rng, 300000))
		cut_users(w, to, until);
}

static void split(struct world *w, uint32_t side, const char *what)
{
	sim_us until = w->now + (w->config.flapping ? draw(w, SIM_SECOND, 4 * SIM_SECOND) : often_short(w, 100 * SIM_MS, 3 * SIM_SECOND, 8 * SIM_SECOND));
	bool one_way = rng_chance(&w->fault_rng, 250000);

	w->totals.partitions++;
	TRACE(w, "%s: %#x from the rest%s for %llu ms", what, side, one_way ? ", one way," : "", (unsigned long long)((until - w->now) / SIM_MS));
	for (uint32_t a = 0; a < w->config.replicas; a++) {
		for (uint32_t b = 0; b < w->config.replicas; b++) {
			if (!(side >> a & 1) || (side >> b & 1))
				continue;
			cut(w, a, b, until);
			if (!one_way)
				cut(w, b, a, until);
		}
		if ((side >> a & 1) && !w->config.flapping && rng_chance(&w->fault_rng, 400000))
			cut_clients(w, a, until, 500000);
	}
}

static void one_link(struct world *w)
{
	uint32_t a = any(w), b = any(w);

	if (a == b)
		return;
	w->totals.partitions++;
	TRACE(w, "link %u to %u is cut", a + 1, b + 1);
	cut(w, a, b, w->now + often_short(w, 200 * SIM_MS, 3 * SIM_SECOND, 10 * SIM_SECOND));
}

static void pause(struct world *w, uint32_t i)
{
	sim_us length = often_short(w, 50 * SIM_MS, 1500 * SIM_MS, 9 * SIM_SECOND);

	replica_pause(&w->replicas[i], length, rng_chance(&w->fault_rng, 500000));
}

static void stall(struct world *w)
{
	struct replica *r = &w->replicas[rng_chance(&w->fault_rng, 500000) ? leader_or_any(w) : any(w)];

	w->totals.stalls++;
	r->disk.stall_until = w->now + often_short(w, 50 * SIM_MS, 700 * SIM_MS, 5 * SIM_SECOND);
	TRACE(w, "%s: its disk stalls for %llu ms", r->name, (unsigned long long)((r->disk.stall_until - w->now) / SIM_MS));
}

static void slow(struct world *w)
{
	uint32_t a = any(w);
	sim_us until = w->now + draw(w, SIM_SECOND, 6 * SIM_SECOND);

	w->totals.slow_links++;
	TRACE(w, "links of r%u are slow", a + 1);
	for (uint32_t b = 0; b < w->config.replicas; b++) {
		w->links[a][b].slow_until = until;
		if (rng_chance(&w->fault_rng, 500000))
			w->links[b][a].slow_until = until;
	}
}

/* Bytes from anywhere: must be dropped. */
static void garbage(struct world *w)
{
	struct buf b = { 0 };
	uint32_t to = any(w), from = any(w);
	size_t len = (size_t)draw(w, 0, 60);

	for (size_t i = 0; i < len; i++)
		buf_append_byte(&b, (uint8_t)rng_next(&w->fault_rng));
	if (to != from)
		net_send(w, from, to, &b, false);
	buf_free(&b);
}

static void give(struct replica *r, struct core_event e)
{
	if (r->up)
		replica_put(r, &r->others, (struct inbox_item){ .event = e });
}

static void transfer(struct world *w, uint32_t from)
{
	member_id to = rng_chance(&w->fault_rng, 500000) ? 0 : w->replicas[any(w)].member;

	w->totals.transfers++;
	TRACE(w, "r%u is asked to hand over the lead", from + 1);
	give(&w->replicas[from], (struct core_event){ .kind = EVENT_TRANSFER, .member = to });
}

/* A stop as it should be: the lead is handed over, then the process ends. */
static void graceful(struct world *w)
{
	uint32_t i = leader_or_any(w);

	transfer(w, i);
	sim_at(w, w->now + draw(w, SIM_MS, 300 * SIM_MS), (struct ev){ .kind = EV_STOP, .a = i, .n = w->replicas[i].generation });
}

static void space(struct world *w)
{
	struct replica *r = &w->replicas[leader_or_any(w)];

	TRACE(w, "%s has little space", r->name);
	give(r, (struct core_event){ .kind = EVENT_SPACE, .low = true });
	sim_at(w, w->now + draw(w, 100 * SIM_MS, 3 * SIM_SECOND), (struct ev){ .kind = EV_SPACE, .a = r->id, .n = r->generation });
}

/* Its disk is exchanged for an empty one, once a run, and only after all know which disk was its own. It must not pass for what it was. */
static void wipe(struct world *w, uint32_t i)
{
	struct replica *r = &w->replicas[i];

	if (!w->config.wipes || !r->up || w->config.replicas < 3)
		return;
	for (uint32_t k = 0; k < w->config.replicas; k++) {
		const struct replica *o = &w->replicas[k];
		const struct member_record *m = o->up ? member_find(core_state(o->core), r->member) : NULL;

		if (!m || m->data_dir_id != r->data_dir_id || (o->disk.snapshot ? o->disk.snapshot->id.index : 0) < 10)
			return;
	}
	w->config.wipes = false;
	w->totals.wipes++;
	replica_crash(r);
	replica_wipe(r);
	sim_at(w, w->now + draw(w, 10 * SIM_MS, 2 * SIM_SECOND), (struct ev){ .kind = EV_RESTART, .a = i });
}

/* One at a time: with two of three nobody could be elected, and rightly. */
static void damage(struct world *w, uint32_t i)
{
	struct replica *r = &w->replicas[i];

	if (w->config.wipes || w->totals.wipes > 0 || w->config.members || w->config.replicas < 3 || !r->up)
		return;
	for (uint32_t k = 0; k < w->config.replicas; k++)
		if (k != i && w->replicas[k].disk.lost.index != 0)
			return;
	crash(w, i);
	disk_damage(r, rng_chance(&w->fault_rng, 300000));
}

void faults_stop(struct world *w, const struct ev *e)
{
	struct replica *r = &w->replicas[e->a];

	/* A planned one that the end of all faults has overtaken does not take place: it would be down for seconds. */
	if (r->up && r->generation == e->n && (w->phase == PHASE_CHAOS || r->out))
		crash(w, e->a);
}

void faults_space(struct world *w, const struct ev *e)
{
	struct replica *r = &w->replicas[e->a];

	if (r->generation == e->n)
		give(r, (struct core_event){ .kind = EVENT_SPACE, .low = false });
}

static void cause(struct world *w, enum fault f)
{
	uint32_t n = w->config.replicas;

	switch (f) {
	case FAULT_CRASH_ANY: crash(w, any(w)); break;
	case FAULT_CRASH_LEADER: crash(w, leader_or_any(w)); break;
	case FAULT_CRASH_ALL:
		for (uint32_t i = 0; i < n; i++)
			if (rng_chance(&w->fault_rng, 800000))
				crash(w, i);
		break;
	case FAULT_SPLIT: split(w, (uint32_t)rng_below(&w->fault_rng, 1u << n), "partition"); break;
	case FAULT_ISOLATE_LEADER: split(w, 1u << leader_or_any(w), "partition of the leader"); break;
	case FAULT_ONE_WAY: one_link(w); break;
	case FAULT_LINK: one_link(w); break;
	case FAULT_PAUSE_ANY: pause(w, any(w)); break;
	case FAULT_PAUSE_LEADER: pause(w, leader_or_any(w)); break;
	case FAULT_DISK_STALL: stall(w); break;
	case FAULT_SLOW_LINKS: slow(w); break;
	case FAULT_STORM:
		w->storm_until = w->now + draw(w, 300 * SIM_MS, 3 * SIM_SECOND);
		w->storm_loss = (uint32_t)draw(w, 50000, 600000);
		TRACE(w, "a storm: %u %% of all packets are lost", w->storm_loss / 10000);
		break;
	case FAULT_CLIENTS_CUT: cut_clients(w, any(w), w->now + draw(w, 500 * SIM_MS, 5 * SIM_SECOND), 700000); break;
	case FAULT_PEER_LOST: sim_at(w, w->now, (struct ev){ .kind = EV_PEER_LOST, .a = any(w), .b = any(w) }); break;
	case FAULT_GARBAGE: garbage(w); break;
	case FAULT_TRANSFER: transfer(w, leader_or_any(w)); break;
	case FAULT_GRACEFUL: graceful(w); break;
	case FAULT_SPACE: space(w); break;
	case FAULT_WIPE: wipe(w, any(w)); break;
	case FAULT_DAMAGE: damage(w, rng_chance(&w->fault_rng, 500000) ? any(w) : leader_or_any(w)); break;
	case FAULT_COUNT: break;
	}
}

static enum fault draw_fault(struct world *w)
{
	uint32_t sum = 0, at;

	for (unsigned i = 0; i < FAULT_COUNT; i++)
		sum += w->config.weights[i];
	at = (uint32_t)rng_below(&w->fault_rng, sum);
	for (unsigned i = 0; i < FAULT_COUNT; i++) {
		if (at < w->config.weights[i])
			return (enum fault)i;
		at -= w->config.weights[i];
	}
	return FAULT_CRASH_ANY;
}

/* Of a calm run: the leader stops, or is cut off from everybody; or a follower from the others, and not from users. */
static void fail_over(struct world *w)
{
	uint32_t who = leader_or_any(w), n = w->config.replicas;
	sim_us length = draw(w, 4 * SIM_SECOND, 12 * SIM_SECOND);

	if (rng_chance(&w->fault_rng, 500000)) {
		replica_pause(&w->replicas[who], length, rng_chance(&w->fault_rng, 500000));
		return;
	}
	if (rng_chance(&w->fault_rng, 500000))
		cut_users(w, who, w->now + length);
	else
		who = (who + 1) % n;
	w->totals.partitions++;
	TRACE(w, "r%u is cut off from the others for %llu ms", who + 1, (unsigned long long)(length / SIM_MS));
	for (uint32_t i = 0; i < n; i++) {
		cut(w, who, i, w->now + length);
		cut(w, i, who, w->now + length);
	}
}

/* which: a fault plus 1, or FAULT_FAIL_OVER. */
static void happens(struct world *w, uint64_t which)
{
	if (which == FAULT_FAIL_OVER)
		fail_over(w);
	else
		cause(w, (enum fault)(which - 1));
}

static void by_plan(struct world *w, enum plan_source from)
{
	const struct plan_event *e = plan_take(w, from);

	if (e)
		happens(w, e->what);
}

static void as_drawn(struct world *w, enum plan_source from, uint64_t which)
{
	plan_note(w, from, which == FAULT_FAIL_OVER ? PIECE_FAIL_OVER : piece_of((enum fault)(which - 1)), which);
	happens(w, which);
}

void faults_one(struct world *w, uint64_t which)
{
	if (w->phase != PHASE_CHAOS)
		return;
	if (w->opts.plan)
		by_plan(w, PLAN_SINGLE);
	else
		as_drawn(w, PLAN_SINGLE, which);
}

static void next_by_plan(struct world *w)
{
	sim_us at = plan_next_at(w, PLAN_CHAIN);

	if (at != SIM_NEVER)
		sim_at(w, at, (struct ev){ .kind = EV_FAULT });
}

static void begin_by_plan(struct world *w)
{
	next_by_plan(w);
	for (size_t i = 0; i < w->opts.plan->len; i++) {
		const struct plan_event *e = &w->opts.plan->at[i];

		if (e->from == PLAN_SINGLE)
			sim_at(w, plan_moved(&w->opts, e), (struct ev){ .kind = EV_FAULT, .n = e->what });
	}
}

static void single(struct world *w, sim_us at, uint64_t which)
{
	if (!w->opts.plan)
		sim_at(w, at, (struct ev){ .kind = EV_FAULT, .n = which });
}

void faults_begin(struct world *w)
{
	sim_us first, chaos = world_chaos(&w->opts); /* of the whole run */

	for (unsigned i = 0; i < FAULT_COUNT; i++)
		w->config.weights[i] = 1 + (uint32_t)rng_below(&w->rng, 12);
	for (unsigned i = 0; i < FAULT_COUNT && w->config.flapping; i++)
		w->config.weights[i] = i == FAULT_ISOLATE_LEADER ? 12 : i == FAULT_PAUSE_LEADER ? 4 : 0;
	w->config.weights[FAULT_CRASH_ALL] /= 4;
	w->config.weights[FAULT_PEER_LOST] /= 2;
	if (w->config.calm) {
		single(w, draw(w, 5 * SIM_SECOND, 7 * SIM_SECOND), FAULT_FAIL_OVER);
		single(w, draw(w, 20 * SIM_SECOND, 22 * SIM_SECOND), FAULT_FAIL_OVER);
	} else {
		first = 2 * SIM_SECOND + draw(w, 0, SIM_SECOND);
		if (!w->opts.plan)
			sim_at(w, first, (struct ev){ .kind = EV_FAULT });
		/* What every run must have. */
		single(w, draw(w, 4 * SIM_SECOND, chaos - SIM_SECOND), 1 + FAULT_CRASH_LEADER);
		single(w, draw(w, 4 * SIM_SECOND, chaos - SIM_SECOND), 1 + FAULT_ISOLATE_LEADER);
		single(w, draw(w, 4 * SIM_SECOND, chaos - SIM_SECOND), 1 + FAULT_PAUSE_LEADER);
	}
	if (w->opts.plan)
		begin_by_plan(w);
}

void faults_event(struct world *w)
{
	sim_us pause;

	if (w->phase != PHASE_CHAOS)
		return;
	if (w->opts.plan)
		by_plan(w, PLAN_CHAIN);
	else
		as_drawn(w, PLAN_CHAIN, 1 + (uint64_t)draw_fault(w));
	pause = draw(w, w->config.fault_every / 8, 2 * w->config.fault_every);
	if (w->opts.plan)
		next_by_plan(w);
	else
		sim_at(w, w->now + pause, (struct ev){ .kind = EV_FAULT });
}

/* Every run sees another leader: if need be, the last one is kept down a while longer, where the others can do without it. */
static void ensure_change(struct world *w)
{
	struct replica *last = w->last_leader ? &w->replicas[w->last_leader - 1] : NULL;

	if (w->opts.plan ? !plan_take(w, PLAN_HEALING) || !last : w->totals.leader_changes > 1 || !last || w->config.replicas == 1)
		return;
	if (!able_without(w, last))
		return;
	if (!w->opts.plan)
		plan_note(w, PLAN_HEALING, PIECE_LAST_CRASH, 0);
	replica_crash(last);
	last->down_until = w->now + 3500 * SIM_MS;
	sim_at(w, last->down_until, (struct ev){ .kind = EV_RESTART, .a = last->id });
}

void faults_heal(struct world *w)
{
	ensure_change(w);
	for (uint32_t a = 0; a < w->config.replicas; a++) {
		for (uint32_t b = 0; b < w->config.replicas; b++)
			w->links[a][b].blocked_until = w->links[a][b].slow_until = 0;
		for (uint32_t c = 0; c < w->config.clients; c++)
			w->client_links[c][a].blocked_until = w->client_links[c][a].slow_until = 0;
		w->replicas[a].disk.stall_until = 0;
		w->replicas[a].unseen_until = 0;
		if (!w->replicas[a].up)
			sim_at(w, w->now, (struct ev){ .kind = EV_RESTART, .a = a });
		else
			replica_resume(&w->replicas[a]);
		w->replicas[a].pause_next = 0;
	}
	w->storm_until = 0;
	w->config.loss = w->config.client_loss = 0;
	w->config.dup /= 4;
	w->config.late = 0;
}
