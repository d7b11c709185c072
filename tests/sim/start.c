/* start.c: a process begins and ends: the core from what the disk holds, exactly as server/node/load.c makes it. */
#include "sim.h"

#include "core/member/member.h"
#include "core/snapshot/snapshot.h"

static void has_member(struct replica *r, member_id id)
{
	r->member = id;
	map64_put(&r->w->slots, id, (void *)(uintptr_t)(r->id + 1));
}

uint32_t world_slot_of(const struct world *w, member_id id)
{
	return (uint32_t)(uintptr_t)map64_get(&w->slots, id) - 1;
}

void replica_init(struct world *w, uint32_t id)
{
	struct replica *r = &w->replicas[id];
	const char *url = w->urls[id];

	snprintf(w->urls[id], sizeof w->urls[id], "http://10.0.0.%u:2380", id + 1);
	memset(r, 0, sizeof *r);
	r->w = w;
	r->id = id;
	snprintf(r->name, sizeof r->name, "r%u", id + 1);
	has_member(r, member_derive_id(&url, 1, "sim"));
	r->data_dir_id = rng_next(&w->rng) | 1;
	r->disk.log.first = 1;
	r->log.first = 1;
	r->wake_at = SIM_NEVER;
}

struct state world_initial_state(const struct world *w)
{
	struct state st;

	state_init(&st);
	for (uint32_t i = 0; i < operator_initial(w); i++) {
		const char *url = w->urls[i];
		struct member_spec spec = { .name = w->replicas[i].name, .peer_urls = &url, .peer_urls_len = 1 };

		member_add_initial(&st, &spec, "sim");
	}
	return st;
}

struct core_config world_core_config(struct replica *r)
{
	static const char *const client_urls[] = { "http://10.0.0.1:2379" };
	const struct config *cf = &r->w->config;

	return (struct core_config){
		.cell_id = r->w->cell_id,
		.member = r->member,
		.data_dir_id = r->data_dir_id,
		.boot = r->boot,
		.seed = rng_next(&r->w->rng),
		.name = r->name,
		.client_urls = client_urls,
		.client_urls_len = 1,
		.election_timeout_ms = 1000,
		.heartbeat_ms = 100,
		.snapshot_count = cf->snapshot_count,
		.snapshot_keep = cf->snapshot_keep,
		.boot_unix_ms = (uint64_t)replica_unix_ms(r),
		.max_txn_ops = 128,
		.max_request_bytes = 1536 * 1024,
		.request_timeout_ms = cf->request_timeout_ms,
		.max_pending = cf->max_pending,
		.max_waiters = cf->max_waiters,
		.quota_bytes = 64 << 20,
		.auto_compact_ms = cf->auto_compact_ms,
		.auto_compact_revisions = cf->auto_compact_revisions,
		.log_memory_bytes = cf->log_memory,
		.append_bytes = cf->append_bytes,
		.inflight = cf->inflight,
		.admit_window = cf->admit_window,
		.watch_progress_ms = 1000,
		.compare_ms = 2000,
		.compare_initial = true,
		.version = "3.5.0",
	};
}

/* ---- from the disk ---- */

static struct state load_state(struct replica *r)
{
	struct world *w = r->w;
	struct snapshot_file *f = r->disk.snapshot;
	struct state st;
	enum err e;

	if (!f)
		return world_initial_state(w);
	e = snapshot_file_decode(w, f, &st);
	CHECK(w, "P8", e == ERR_OK, "%s: its snapshot at %llu does not load: %s", r->name, (unsigned long long)f->id.index, err_name(e));
	CHECK(w, "P10", st.applied.index == f->id.index && st.applied.term == f->id.term && state_hash(&st) == f->state_hash,
	      "%s: its snapshot at %llu holds another state", r->name, (unsigned long long)f->id.index);
	return st;
}

void replica_load(struct replica *r)
{
	struct disk *d = &r->disk;
	struct raft_boot boot = { .hard = d->hard, .last = disk_last(d), .first = d->log.first };
	struct core_config config = world_core_config(r);
	struct state st = load_state(r);
	raft_index from;

	if (d->snapshot)
		boot.snapshot = d->snapshot->id;
	if (boot.hard.commit < boot.snapshot.index)
		boot.hard.commit = boot.snapshot.index;
	boot.lost = d->lost;
	from = boot.hard.commit < boot.last.index ? boot.hard.commit : boot.last.index;
	if (boot.last.index > from) {
		boot.tail = &d->log.at[from + 1 - d->log.first];
		boot.tail_len = (size_t)(boot.last.index - from);
	}
	r->core = core_new(&config, &st, &boot, replica_now_ms(r));
	snap_start(r);
}

/* ---- life ---- */

static void trace_core(void *ctx, const struct core_trace *t)
{
	static const char *const names[] = { "leads", "steps down", "grants", "releases", "ends a lease", "saves a snapshot", "installs a snapshot", "refuses", "changes its members" };
	struct replica *r = ctx;

	TRACE(r->w, "%s %s (%llu, %llu, %llu)", r->name, t->kind < sizeof names / sizeof *names ? names[t->kind] : "notes something", (unsigned long long)t->a, (unsigned long long)t->b, (unsigned long long)t->c);
}

static int32_t draw_ppm(struct world *w, struct rng *rng)
{
	if (w->config.equal_clocks)
		return 0;
	switch (rng_below(rng, 4)) { /* the extremes are where it hurts */
	case 0: return -PPM_MAX;
	case 1: return PPM_MAX;
	default: return (int32_t)rng_below(rng, 2 * PPM_MAX + 1) - PPM_MAX;
	}
}

void replica_start(struct replica *r)
{
	struct world *w = r->w;

	ASSERT(!r->up);
	if (r->boot == 0 && !r->wiped)
		r->ppm = draw_ppm(w, &w->rng);
	if (does_without(w, PIECE_CLOCKS))
		r->ppm = 0;
	r->boot++;
	r->generation++;
	r->up = true;
	r->clock_from = w->now;
	r->clock_base_us = rng_between(&w->rng, SIM_SECOND, 1000000 * SIM_SECOND);
	r->disk_done = r->disk_done_in = 0;
	r->looked_ms = r->ticked_ms = replica_now_ms(r);
	r->wake_at = SIM_NEVER;
	r->paused_until = r->pause_next = 0;
	replica_load(r);
	core_set_trace(r->core, w->opts.trace ? trace_core : NULL, r);
	check_started(r);
	TRACE(w, "%s starts, boot %llu, term %llu, snapshot %llu, log %llu..%llu, clock %+d ppm", r->name, (unsigned long long)r->boot,
	      (unsigned long long)r->disk.hard.term, (unsigned long long)(r->disk.snapshot ? r->disk.snapshot->id.index : 0),
	      (unsigned long long)r->disk.log.first, (unsigned long long)disk_last(&r->disk).index, r->ppm);
	replica_poke(r);
}

static void drop_items(inbox_items *items)
{
	for (size_t i = 0; i < items->len; i++)
		inbox_item_free(&items->at[i]);
	items->len = 0;
}

static void stop(struct replica *r)
{
	drop_items(&r->done);
	drop_items(&r->messages);
	drop_items(&r->calls);
	drop_items(&r->others);
	for (size_t i = 0; i < r->held.len; i++)
		buf_free(&r->held.at[i].bytes);
	r->held.len = 0;
	if (r->holding)
		core_update_release(&r->held_update);
	r->holding = false;
	core_free(r->core);
	r->core = NULL;
	r->up = false;
	r->paused_until = r->pause_next = 0;
	r->generation++;
	r->wake_at = SIM_NEVER;
}

void replica_crash(struct replica *r)
{
	if (!r->up)
		return;
	stop(r);
	disk_crash(r);
	snap_crash(r);
	r->w->totals.crashes++;
	TRACE(r->w, "%s crashes; on its disk: term %llu, log %llu..%llu", r->name, (unsigned long long)r->disk.hard.term,
	      (unsigned long long)r->disk.log.first, (unsigned long long)disk_last(&r->disk).index);
	net_lost_process(r->w, r->id);
}

void replica_renew(struct replica *r, member_id member)
{
	struct disk *d = &r->disk;

	ASSERT(r->absent && !r->up);
	has_member(r, member);
	r->absent = r->out = false;
	r->data_dir_id = rng_next(&r->w->rng) | 1;
	r->boot = 0;
	d->hard = (struct raft_hard_state){ 0 };
	dlog_clear(&d->log, 1);
	snapshot_file_unref(d->snapshot);
	d->snapshot = NULL;
	snapshot_part_drop(d);
	r->config_len = 0;
	TRACE(r->w, "%s is member %llx now, with an empty disk", r->name, (unsigned long long)member);
}

void replica_wipe(struct replica *r)
{
	struct disk *d = &r->disk;

	TRACE(r->w, "%s gets an empty disk", r->name);
	r->wiped = true;
	r->data_dir_id = rng_next(&r->w->rng) | 1;
	r->boot = 0;
	d->hard = (struct raft_hard_state){ 0 };
	r->lost = d->log;
	r->lost_snapshot = d->snapshot ? d->snapshot->id.index : 0;
	d->log = (struct dlog){ .first = 1 };
	snapshot_file_unref(d->snapshot);
	d->snapshot = NULL;
	snapshot_part_drop(d);
}

void replica_deinit(struct replica *r)
{
	if (r->up)
		stop(r);
	disk_crash(r);
	snap_crash(r);
	dlog_clear(&r->disk.log, 1);
	dlog_clear(&r->log, 1);
	dlog_clear(&r->lost, 1);
	dlog_clear(&r->disk.had, 1);
	free(r->disk.had.at);
	free(r->lost.at);
	snapshot_file_unref(r->disk.snapshot);
	snapshot_part_drop(&r->disk);
	free(r->disk.log.at);
	free(r->log.at);
	free(r->disk.queue.at);
	free(r->snap.queue.at);
	free(r->done.at);
	free(r->messages.at);
	free(r->calls.at);
	free(r->others.at);
	free(r->held.at);
}
