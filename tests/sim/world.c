/* world.c: one run: what it is made of, by the seed; and its course: chaos, healing, a time to work, a time to let go, the reckoning. */
#include "sim.h"

#include "base/hash.h"
#include "core/member/member.h"

static void draw_config(struct world *w)
{
	static const uint32_t sizes[] = { 3, 3, 3, 3, 3, 5, 5, 5, 1, 7 };
	struct config *cf = &w->config;
	struct rng *r = &w->rng;

	cf->replicas = w->opts.replicas ? w->opts.replicas : sizes[rng_below(r, sizeof sizes / sizeof *sizes)];
	cf->clients = (uint32_t)rng_between(r, 6, 20);
	if (w->opts.clients)
		cf->clients = w->opts.clients;
	cf->keys = (uint32_t)rng_between(r, 3, KEYS_MAX);
	cf->locks = (uint32_t)rng_between(r, ELECTIONS_MAX + 1, rng_chance(r, 300000) ? ELECTIONS_MAX + 1 : LOCKS_MAX);
	cf->watchers = (uint32_t)rng_below(r, WATCHERS_MAX + 1);
	cf->ordered = rng_chance(r, 400000);
	cf->loss = rng_chance(r, 400000) ? 0 : (uint32_t)rng_below(r, 60000);
	cf->dup = rng_chance(r, 400000) ? 0 : (uint32_t)rng_below(r, 60000);
	cf->late = rng_chance(r, 400000) ? 0 : (uint32_t)rng_below(r, 10000);
	cf->delay = rng_between(r, 100, 4 * SIM_MS);
	cf->jitter = rng_chance(r, 300000) ? rng_between(r, 5 * SIM_MS, 60 * SIM_MS) : rng_between(r, 100, 5 * SIM_MS);
	cf->client_delay = rng_between(r, 50, 2 * SIM_MS);
	cf->client_loss = rng_chance(r, 300000) ? 0 : (uint32_t)rng_below(r, 30000);
	cf->disk_delay = rng_between(r, 200, 12 * SIM_MS);
	cf->fault_every = rng_between(r, 400 * SIM_MS, 3 * SIM_SECOND);
	cf->snapshot_count = rng_chance(r, 150000) ? 100000 : rng_between(r, 10, rng_chance(r, 600000) ? 50 : 400);
	cf->snapshot_keep = rng_between(r, 1, rng_chance(r, 700000) ? 10 : 200);
	cf->auto_compact_ms = rng_chance(r, 500000) ? (uint32_t)rng_between(r, 2000, 20000) : 0;
	cf->big_values = rng_chance(r, 40000) ? 60000 : 0;
	cf->max_pending = rng_chance(r, 100000) ? 6 : 100000;
	cf->max_waiters = rng_chance(r, 100000) ? 2 : 100000;
	cf->log_memory = rng_chance(r, 850000) ? (uint32_t)rng_between(r, 200, 4000) : 0;
	cf->append_bytes = rng_chance(r, 400000) ? (uint32_t)rng_between(r, 50, 3000) : 0;
	cf->inflight = rng_chance(r, 300000) ? (uint32_t)rng_between(r, 1, 6) : 0;
	/* Where packets overtake each other by tens of milliseconds what follows the first is refused, as if one were in the pipe at a time. */
	if (cf->append_bytes && (cf->inflight || cf->jitter > 5 * SIM_MS))
		cf->append_bytes += 1500; /* else the pipe is too narrow for the clients there are */
	cf->auto_compact_revisions = rng_chance(r, 150000) ? rng_between(r, 20, 300) : 0;
	cf->wipes = rng_chance(r, 150000);
	cf->kv_slots = rng_chance(r, 200000) ? 3 : 1;
	cf->request_timeout_ms = rng_chance(r, 300000) ? (uint32_t)rng_between(r, 800, 5000) : 7000;
	cf->equal_clocks = rng_chance(r, 200000);
	rng_init(&w->cache_rng, w->opts.seed ^ UINT64_C(0xcac4e)); /* of their own: what else happens is drawn as if they were not there */
	cf->cachers = (uint32_t)rng_below(&w->cache_rng, CACHERS_MAX + 1);
	cf->users = (uint32_t)rng_below(&w->cache_rng, USERS_MAX + 1);
	rng_init(&w->part_rng, w->opts.seed ^ UINT64_C(0x9a27));
	cf->snapshot_chunk = rng_chance(&w->part_rng, 700000) ? (uint32_t)rng_between(&w->part_rng, 300, 6000) : 0;
	cf->admit_window = rng_chance(&w->cache_rng, 400000) ? (uint32_t)rng_between(&w->cache_rng, 1, 3000) : 0; /* a line in front of the log, often */
	if (cf->admit_window && cf->jitter > 5 * SIM_MS)
		cf->admit_window += 1500; /* one command at a time, each a tenth of a second, is too little for the clients there are */
}

static void draw_flapping(struct world *w)
{
	struct config *cf = &w->config;

	cf->flapping = rng_chance(&w->rng, 100000);
	if (!cf->flapping)
		return;
	cf->kv_slots = 3;
	cf->snapshot_count = rng_between(&w->rng, 5, 20);
	cf->snapshot_keep = rng_between(&w->rng, 1, 3);
	cf->log_memory = 200;
	cf->append_bytes = rng_chance(&w->rng, 500000) ? 100 : 0;
	cf->inflight = !cf->append_bytes && rng_chance(&w->rng, 500000) ? 2 : 0;
	cf->fault_every = rng_between(&w->rng, SIM_SECOND, 3 * SIM_SECOND);
	cf->max_pending = cf->max_waiters = 100000;
}

/* Nothing goes wrong but that a leader falls silent, and that a follower is cut off: what users of the library see of it is held to be nothing (library.c). */
static void draw_calm(struct world *w)
{
	struct config *cf = &w->config;
	struct rng r;

	rng_init(&r, w->opts.seed ^ UINT64_C(0xca17));
	cf->calm = rng_chance(&r, 100000) && !cf->flapping && !cf->members && cf->replicas > 1;
	if (!cf->calm)
		return;
	cf->loss = cf->dup = cf->late = cf->client_loss = 0;
	cf->inflight = cf->append_bytes = cf->log_memory = cf->admit_window = 0; /* a replica that was away catches up at once */
	cf->wipes = false;
	cf->request_timeout_ms = 7000;
	cf->max_pending = 100000;
	if (cf->users < 2)
		cf->users = 2;
}

static void draw_phases(struct world *w)
{
	w->heal_at = w->opts.heal ? w->opts.heal : world_chaos(&w->opts);
	w->leader_due_at = w->heal_at + 6 * SIM_SECOND;
	w->drain_at = w->heal_at + 10 * SIM_SECOND;
	w->end_at = w->heal_at + HEALED_US;
	sim_at(w, w->heal_at, (struct ev){ .kind = EV_PHASE, .n = PHASE_HEALED });
	sim_at(w, w->leader_due_at, (struct ev){ .kind = EV_PHASE, .n = PHASE_LEADER_DUE });
	sim_at(w, w->drain_at, (struct ev){ .kind = EV_PHASE, .n = PHASE_DRAIN });
	sim_at(w, w->end_at - 4 * SIM_SECOND, (struct ev){ .kind = EV_PHASE, .n = PHASE_QUIET });
	sim_at(w, w->end_at, (struct ev){ .kind = EV_PHASE, .n = PHASE_END });
}

/* What is so or not. */
static void leave_out_traits(struct world *w)
{
	struct config *cf = &w->config;

	if (does_without(w, PIECE_LOSS))
		cf->loss = 0;
	if (does_without(w, PIECE_DUPLICATES))
		cf->dup = 0;
	if (does_without(w, PIECE_LATE))
		cf->late = 0;
	if (does_without(w, PIECE_REORDER))
		cf->ordered = true;
	if (does_without(w, PIECE_JITTER))
		cf->jitter = 100;
	if (does_without(w, PIECE_CALL_LOSS))
		cf->client_loss = 0;
	if (does_without(w, PIECE_SNAPSHOTS))
		cf->snapshot_count = 100000;
	if (does_without(w, PIECE_CHUNKS))
		cf->snapshot_chunk = 0;
	if (does_without(w, PIECE_COMPACTION))
		cf->auto_compact_ms = 0, cf->auto_compact_revisions = 0;
	if (does_without(w, PIECE_BIG_VALUES))
		cf->big_values = 0;
	if (does_without(w, PIECE_LIMITS))
		cf->max_pending = cf->max_waiters = 100000;
	if (does_without(w, PIECE_SHORT_LOG))
		cf->log_memory = cf->append_bytes = cf->inflight = 0;
	if (does_without(w, PIECE_LINE))
		cf->admit_window = 0;
	if (does_without(w, PIECE_SLOTS))
		cf->kv_slots = 1;
}

static void leave_out(struct world *w)
{
	struct config *cf = &w->config;
	uint32_t least = cf->members ? operator_slots(0) : 1;

	if (w->opts.noted)
		w->opts.noted->counts[PIECE_REPLICA] = cf->replicas;
	if (!w->opts.cut)
		return;
	while (cf->replicas > least && left_out(w, PIECE_REPLICA, cf->replicas))
		cf->replicas--;
	leave_out_traits(w);
}

/* Who there is besides replicas; by a plan each is drawn as if all replicas had been. */
static void note_who(struct world *w)
{
	struct plan *p = w->opts.noted;

	if (w->opts.plan)
		w->rng = w->opts.plan->people_rng;
	if (!p)
		return;
	p->people_rng = w->rng;
	p->counts[PIECE_CLIENT] = w->config.clients;
	p->counts[PIECE_WATCHER] = w->config.watchers;
	p->counts[PIECE_CACHER] = w->config.cachers;
	p->counts[PIECE_USER] = w->config.users;
}

static void begin(struct world *w)
{
	member_id ids[REPLICAS_MAX];

	rng_init(&w->rng, w->opts.seed);
	rng_init(&w->net_rng, rng_next(&w->rng) ^ w->opts.timing * UINT64_C(0x9e3779b97f4a7c15));
	rng_init(&w->disk_rng, rng_next(&w->rng) ^ w->opts.timing * UINT64_C(0x9e3779b97f4a7c15));
	rng_init(&w->fault_rng, rng_next(&w->rng));
	draw_config(w);
	draw_flapping(w);
	w->config.members = w->opts.seed % 5 == 2 && !does_without(w, PIECE_MEMBERS);
	if (w->opts.slots)
		w->config.kv_slots = w->opts.slots;
	if (w->config.members) {
		w->config.replicas = operator_slots(w->config.replicas);
		w->config.wipes = false; /* slots are: they begin with empty disks */
	}
	draw_calm(w);
	leave_out(w);
	draw_phases(w);
	for (uint32_t i = 0; i < w->config.replicas; i++) {
		replica_init(w, i);
		ids[i] = w->replicas[i].member;
		w->replicas[i].absent = i >= operator_initial(w);
	}
	w->cell_id = member_derive_cell_id(ids, operator_initial(w));
	w->referee = referee_new(w);
	for (uint32_t i = 0; i < operator_initial(w); i++)
		replica_start(&w->replicas[i]);
	if (w->config.members)
		sim_at(w, SIM_SECOND, (struct ev){ .kind = EV_OPERATOR });
	sim_at(w, SIM_SECOND, (struct ev){ .kind = EV_LOOK });
	note_who(w);
	for (uint32_t i = 0; i < w->config.clients; i++)
		client_init(w, i);
	for (uint32_t i = 0; i < w->config.watchers; i++)
		watcher_init(w, i);
	for (uint32_t i = 0; i < w->config.cachers; i++)
		cacher_init(w, i);
	for (uint32_t i = 0; i < w->config.users; i++)
		user_init(w, i);
	faults_begin(w);
	if (w->opts.stop_at)
		sim_at(w, w->opts.stop_at, (struct ev){ .kind = EV_PHASE, .n = PHASE_STOPPED });
	TRACE(w, "seed %llu: %u replicas, %u clients, %u keys, %u locks, loss %u, delay %llu..+%llu us, disk %llu us, snapshots every %llu",
	      (unsigned long long)w->opts.seed, w->config.replicas, w->config.clients, w->config.keys, w->config.locks, w->config.loss,
	      (unsigned long long)w->config.delay, (unsigned long long)w->config.jitter, (unsigned long long)w->config.disk_delay,
	      (unsigned long long)w->config.snapshot_count);
}

static void end(struct world *w)
{
	for (uint32_t i = 0; i < w->config.replicas; i++)
		replica_deinit(&w->replicas[i]);
	referee_free(w->referee);
	sim_forget(w);
	for (size_t i = 0; i < w->log.len; i++)
		raft_entry_unref(w->log.at[i].entry);
	for (uint32_t i = 0; i < KEYS_MAX; i++)
		free(w->history[i].at.at);
	for (uint32_t i = 0; i < LOCKS_MAX; i++) {
		free(w->locks[i].queue.at);
		free(w->locks[i].holds.at);
	}
	for (uint32_t i = 0; i < w->config.clients; i++)
		client_deinit(&w->clients[i]);
	for (uint32_t i = 0; i < w->config.users; i++)
		user_deinit(&w->users[i]);
	free(w->log.at);
	free(w->ops.at);
	free(w->events.at);
	free(w->leases.at);
	map64_deinit(&w->seen);
	map64_deinit(&w->contents);
	map64_deinit(&w->chunks);
	map64_deinit(&w->committed_once);
	map64_deinit(&w->leaders);
	map64_deinit(&w->slots);
	map64_deinit(&w->lease_by_id);
}

/* ---- events ---- */

static void peer_lost(struct world *w, uint32_t who, uint32_t lost)
{
	struct replica *r = &w->replicas[who];
	struct inbox_item item = { .event = { .kind = EVENT_PEER_LOST, .member = w->replicas[lost].member } };

	if (r->up && who != lost)
		replica_put(r, &r->others, item);
}

/* A dead process refuses the connection: the client mostly hears so at once. */
static void request_arrives(struct world *w, struct call_msg *m)
{
	struct op *o = op_get(w, m->op);
	struct replica *r = &w->replicas[o->replica];

	if (o->canceled) {
		/* overtaken by its own end: as over gRPC, it does not come in any more */
	} else if (r->up && r->calls.len < 4096) {
		replica_put(r, &r->calls, (struct inbox_item){ .event = { .kind = EVENT_REQUEST }, .bytes = buf_take(&m->bytes), .op = m->op });
	} else if (rng_chance(&w->net_rng, 800000) || r->out) {
		struct buf none = { 0 };

		net_answer(w, m->op, ERR_CLOSED, &none);
	}
	buf_free(&m->bytes);
	free(m);
}

static void cancel_arrives(struct world *w, uint64_t n)
{
	struct op *o = op_get(w, n);
	struct replica *r = &w->replicas[o->replica];
	struct inbox_item item = { .event = { .kind = EVENT_CANCEL, .tag = n } };

	o->canceled = true;
	if (r->up && o->stepped && o->generation == r->generation)
		replica_put(r, &r->others, item);
}

static void answer_arrives(struct world *w, struct ev *e)
{
	struct call_msg *m = e->ptr;
	struct client *c = &w->clients[op_get(w, m->op)->client];

	if (w->now < c->frozen_until) {
		sim_at(w, c->frozen_until, *e);
		return;
	}
	client_answer(c, m->op, m->err, buf_view(&m->bytes));
	buf_free(&m->bytes);
	free(m);
}

static void next_phase(struct world *w, enum phase p)
{
	w->phase = p;
	if (p == PHASE_STOPPED)
		return;
	if (p == PHASE_HEALED) {
		TRACE(w, "all is healed");
		faults_heal(w);
	}
	if (p == PHASE_DRAIN) {
		w->totals.operations = w->ops.len;
		w->totals.work_us = w->config.clients * w->now;
	}
	if (p == PHASE_DRAIN)
		for (uint32_t i = 0; i < w->config.clients; i++)
			client_drain(&w->clients[i]);
	check_phase(w, p);
}

static void handle(struct world *w, struct ev *e)
{
	struct replica *r = &w->replicas[e->a < REPLICAS_MAX ? e->a : 0];

	switch (e->kind) {
	case EV_WAKE:
		if (replica_runs(r) && r->wake_at == e->at) {
			r->wake_at = SIM_NEVER;
			replica_run(r);
		}
		break;
	case EV_PACKET: net_packet(w, e->ptr); break;
	case EV_PEER_LOST: peer_lost(w, e->a, e->b); break;
	case EV_DISK:
		if (r->up && r->generation == e->n)
			disk_event(r);
		break;
	case EV_SNAP:
		if (r->up && r->generation == e->n)
			snap_event(r);
		break;
	case EV_FAULT:
		if (e->n)
			faults_one(w, e->n);
		else
			faults_event(w);
		break;
	case EV_RESTART:
		if (!r->up && !r->out && !r->absent && w->now >= r->down_until)
			replica_start(r);
		break;
	case EV_STOP: faults_stop(w, e); break;
	case EV_SPACE: faults_space(w, e); break;
	case EV_RESUME:
		if (r->generation == e->n && r->paused_until == e->at)
			replica_resume(r);
		break;
	case EV_CLIENT: client_think(&w->clients[e->a]); break;
	case EV_EXPIRE: client_expire(&w->clients[e->a]); break;
	case EV_REQUEST: request_arrives(w, e->ptr); break;
	case EV_CANCEL_CALL: cancel_arrives(w, e->n); break;
	case EV_ANSWER: answer_arrives(w, e); break;
	case EV_OP_TIMEOUT: client_op_timeout(w, e->n); break;
	case EV_WATCHER: watcher_think(&w->watchers[e->a]); break;
	case EV_STREAM: watcher_event(w, e); break;
	case EV_OUTPUT: watcher_take(&w->watchers[e->a], e); break;
	case EV_OPERATOR: operator_event(w); break;
	case EV_LOOK: check_able(w); break;
	case EV_CACHER: cacher_think(&w->cachers[e->a]); break;
	case EV_CACHER_IN: cacher_arrives(w, e); break;
	case EV_CACHER_OUT: cacher_take(&w->cachers[e->a], e); break;
	case EV_CACHER_ANSWER: cacher_answer(&w->cachers[e->a], e); break;
	case EV_USER: user_think(&w->users[e->a]); break;
	case EV_USER_IN: user_arrives(w, e); break;
	case EV_USER_OUT: user_take(&w->users[e->a], e); break;
	case EV_USER_HEARD: user_heard(&w->users[e->a], e); break;
	case EV_USER_ANSWER: user_answer(&w->users[e->a], e); break;
	case EV_PHASE: next_phase(w, (enum phase)e->n); break;
	}
}

void world_run(struct world *w)
{
	struct ev e;

	begin(w);
	while (w->phase < PHASE_END && sim_next(w, &e)) {
		w->totals.events++;
		handle(w, &e);
	}
	if (w->phase == PHASE_STOPPED)
		return; /* the process ends */
	/* What was proposed a moment ago may not have been heard of everywhere yet. */
	while (!check_settled(w) && w->now < w->end_at + SIM_SECOND && sim_next(w, &e))
		handle(w, &e);
	check_end(w);
	w->totals.sim_us = w->now;
	w->totals.seeds = 1;
	end(w);
}
