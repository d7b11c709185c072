/* core.c: the one door, and what goes through it in which order.
 *
 * core_step takes an event in: it changes raft, calls and timers, and may already produce answers and messages. core_take then carries one
 * batch through: commands into the log, reads into a round, raft's writes and messages out, committed entries into the state, and answers
 * from it. What that brings up anew (a grant that wants a confirmation, say) goes with the next take, which update.again asks for at once.
 *
 *   (Z1) an answer in an update is true by then: nothing in the same update has still to become durable for it.
 *   (Z2) between two takes the state changes only through EVENT_CHUNK_WRITTEN (a snapshot is installed); entries are applied in takes.
 *   (Z3) the same events give the same updates: nothing here depends on addresses, hash order or time but for what events bring. */
#include "internal.h"

enum { APPEND_BYTES = 1 << 20, INFLIGHT = 128, UNCOMMITTED_BYTES = 64 << 20, LOG_MEMORY_BYTES = 16 << 20, MIN_TTL_S = 1, GATHER_MS = 5 };

/* ---- birth and death ---- */

static char *copy_string(const char *s)
{
	size_t len = strlen(s ? s : "") + 1;

	return memcpy(mem_alloc(len), s ? s : "", len);
}

static void copy_config(struct core *c, const struct core_config *config)
{
	char **urls = mem_alloc((config->client_urls_len + 1) * sizeof *urls);

	c->config = *config;
	c->config.name = copy_string(config->name);
	c->config.version = copy_string(config->version);
	for (size_t i = 0; i < config->client_urls_len; i++)
		urls[i] = copy_string(config->client_urls[i]);
	c->config.client_urls = (const char *const *)urls;
}

static void free_config(struct core *c)
{
	for (size_t i = 0; i < c->config.client_urls_len; i++)
		free((void *)(uintptr_t)c->config.client_urls[i]);
	free((void *)(uintptr_t)c->config.client_urls);
	free((void *)(uintptr_t)c->config.name);
	free((void *)(uintptr_t)c->config.version);
}

/* While a command is carried out; told once it is. */
static void session_ended(void *ctx, lease_id id)
{
	struct core *c = ctx;

	vec_grow((void **)&c->sessions.ended, &c->sessions.ended_len, &c->sessions.ended_cap, sizeof(id));
	c->sessions.ended[c->sessions.ended_len - 1] = id;
}

static void new_state(struct core *c, struct state *state)
{
	c->state = *state;
	memset(state, 0, sizeof *state);
	c->store = store_new(&c->state);
	c->lessor = lessor_new(&c->state, MIN_TTL_S);
	c->locks = locks_new(&c->state);
	c->once = once_new(&c->state);
	arena_init(&c->arena);
	c->env = (struct kv_env){
		.state = &c->state,
		.store = c->store,
		.lessor = c->lessor,
		.locks = c->locks,
		.once = c->once,
		.arena = &c->arena,
		.header = { .cell_id = c->config.cell_id, .member = c->config.member },
		.now = c->now,
		.max_txn_ops = c->config.max_txn_ops,
	};
	c->env.session_ended = session_ended;
	c->env.session_ctx = c;
	kv_attach(&c->env);
	holds_rebuild(c);
	kv_rebuild(&c->env);
	c->auth = auth_new(&c->state);
	c->auth_seen = auth_changes(c->auth);
	c->tokens = tokens_new(c->config.auth_token_ttl_ms ? c->config.auth_token_ttl_ms : AUTH_TOKEN_TTL_MS);
}

static void new_raft(struct core *c, const struct raft_boot *boot)
{
	struct raft_member members[RAFT_MEMBERS_MAX];
	struct raft_boot with_members = *boot;
	struct raft_config rc = {
		.self = c->config.member,
		.seed = rng_next(&c->rng),
		.election_timeout_ms = c->config.election_timeout_ms,
		.heartbeat_ms = c->config.heartbeat_ms,
		.max_append_bytes = c->config.append_bytes ? c->config.append_bytes : APPEND_BYTES,
		.max_inflight = c->config.inflight ? c->config.inflight : INFLIGHT, .gather_ms = GATHER_MS,
		.max_uncommitted_bytes = UNCOMMITTED_BYTES,
		.memory_bytes = c->config.log_memory_bytes ? c->config.log_memory_bytes : LOG_MEMORY_BYTES,
	};

	with_members.members = members;
	with_members.members_len = members_for_raft(&c->state, members);
	/* A leader may commit before its own disk has written: such a commit index is true, but more than this log has. */
	if (with_members.hard.commit > boot->last.index)
		with_members.hard.commit = boot->last.index;
	c->raft = raft_new(&rc, &with_members, c->now);
	/* What was known to be committed may be among what a damaged disk has lost. */
	c->boot_commit = boot->lost.index ? boot->hard.commit : raft_commit_index(c->raft);
	c->recovering = raft_lost(c->raft).index != 0;
}

struct core *core_new(const struct core_config *config, struct state *state, const struct raft_boot *boot, time_ms now)
{
	struct core *c = mem_zalloc(sizeof *c);

	copy_config(c, config);
	c->now = c->began = now;
	rng_init(&c->rng, config->seed ^ hash64_u64(config->member, config->boot));
	calls_init(c);
	proposer_init(c);
	admit_init(c);
	reads_init(c);
	renews_init(c);
	waiters_init(c);
	gate_init(c);
	sessions_init(c);
	new_state(c, state);
	streams_init(c);
	list_init(&c->transfers);
	c->led_at = now;
	ASSERT(c->state.applied.index == boot->snapshot.index);
	new_raft(c, boot);
	c->snapshots.saved = boot->snapshot;
	c->boot_last = boot->last.index;
	c->publish_due = true;
	c->leader = raft_leader(c->raft);
	c->role = raft_role(c->raft);
	c->term = raft_current_term(c->raft);
	c->env.header.term = c->term;
	propose_term(c);
	if (member_was_removed(&c->state, config->member))
		c->fatal = CORE_FATAL_REMOVED;
	return c;
}

static void free_calls(struct core *c, struct list *in)
{
	while (!list_empty(in))
		call_free(c, CONTAINER_OF(in->next, struct call, link));
}

static void free_all_calls(struct core *c)
{
	rounds_dissolve(c);
	read_batches_dissolve(c);
	renew_batches_dissolve(c);
	while (!list_empty(&c->waiters.all))
		call_free(c, CONTAINER_OF(c->waiters.all.next, struct lock_call, all)->call);
	do { /* the end of some hands on others */
		free_calls(c, &c->proposer.queue);
		free_calls(c, &c->proposer.sent);
		free_calls(c, &c->proposer.taken);
		free_calls(c, &c->proposer.first);
	} while (c->waiters.busy.len > 0);
	free_calls(c, &c->reads.fresh);
	free_calls(c, &c->reads.waiting);
	free_calls(c, &c->sessions.asks_fresh);
	free_calls(c, &c->sessions.asks_sent);
	free_calls(c, &c->renews.fresh);
	free_calls(c, &c->renews.parked);
	free_calls(c, &c->transfers);
	ASSERT(c->calls.len == 0);
}

static void free_out(struct core *c)
{
	struct out *o = &c->out;
	struct core_update left = { 0 };

	if (!o->handed) {
		left.write.entries = o->entries.at;
		left.write.entries_len = o->entries.len;
		left.messages = o->messages.at;
		left.messages_len = o->messages.len;
		left.answers = o->answers.at;
		left.answers_len = o->answers.len;
		left.outputs = o->outputs.at;
		left.outputs_len = o->outputs.len;
		left.jobs = o->jobs.at;
		left.jobs_len = o->jobs.len;
		core_update_release(&left);
	}
	free(o->entries.at);
	free(o->messages.at);
	free(o->answers.at);
	free(o->outputs.at);
	free(o->jobs.at);
	free(o->reads.at);
}

static void begin(struct core *c);

void core_free(struct core *c)
{
	if (!c)
		return;
	begin(c);
	streams_deinit(c);
	sessions_deinit(c);
	free_all_calls(c);
	admit_clear(c);
	gate_deinit(c);
	reads_deinit(c);
	renews_deinit(c);
	waiters_deinit(c);
	unlocks_deinit(c);
	snapshots_deinit(c);
	peers_deinit(c);
	apply_drop_backlog(c);
	free(c->backlog);
	calls_deinit(c);
	raft_free(c->raft);
	tokens_free(c->tokens);
	auth_free(c->auth);
	once_free(c->once);
	holds_deinit(c);
	locks_free(c->locks);
	lessor_free(c->lessor);
	store_free(c->store);
	state_deinit(&c->state);
	arena_deinit(&c->arena);
	free(c->chunks.at);
	free_out(c);
	free_config(c);
	free(c);
}

/* ---- events ---- */

/* What the last update lent is the owner's no more. */
static void begin(struct core *c)
{
	struct out *o = &c->out;

	if (!o->handed)
		return;
	o->messages.len = o->answers.len = o->outputs.len = o->entries.len = o->reads.len = o->jobs.len = 0;
	memset(&o->write, 0, sizeof o->write);
	o->role_changed = o->members_changed = o->handed = false;
}

/* The owner measures from tick to tick, so a gap may count a moment in which we still ran. That favours the leases; the clock of calls must
 * not go back, and shifts by no more than has passed since the last event. */
static void gap(struct core *c, time_ms gap_ms, time_ms elapsed_ms)
{
	raft_shift(c->raft, gap_ms);
	lessor_shift(c->lessor, gap_ms);
	c->shift += gap_ms < elapsed_ms ? gap_ms : elapsed_ms;
}

static void tick(struct core *c)
{
	raft_tick(c->raft, c->now);
	role_sync(c);
	role_tick(c);
	stall_tick(c);
	calls_expire(c);
	tokens_expire(c->tokens, core_clock(c));
	waiters_renew(c);
	read_resend(c);
	renew_resend(c);
	cache_link_tick(c);
	publish_tick(c);
	alarms_tick(c);
	compare_tick(c);
	if (c->leader)
		c->led_at = core_clock(c);
	recover_tick(c);
	members_ask_tick(c);
	snapshot_receive_tick(c);
	if (c->role == RAFT_LEADER)
		snapshot_send_tick(c);
}

void core_step(struct core *c, const struct core_event *e)
{
	time_ms elapsed = e->now - c->now;

	ASSERT(e->now >= c->now);
	begin(c);
	c->now = e->now;
	switch (e->kind) {
	case EVENT_TICK: tick(c); break;
	case EVENT_GAP: gap(c, e->gap_ms, elapsed); break;
	case EVENT_MESSAGE: peer_receive(c, e->message); break;
	case EVENT_PEER_LOST: raft_peer_lost(c->raft, e->member, c->now); break;
	case EVENT_TRANSFER: raft_transfer(c->raft, e->member); break;
	case EVENT_DISK_DONE:
		stall_done(c, e->seq);
		raft_persisted(c->raft, e->seq, c->now);
		snapshot_receive_tick(c);
		break;
	case EVENT_LOG_READ: raft_log_read_done(c->raft, e->log_read.id, e->log_read.err, e->log_read.entries, e->log_read.len); break;
	case EVENT_REQUEST: request_step(c, e->request); break;
	case EVENT_CANCEL: call_cancel(c, e->tag); break;
	case EVENT_SNAPSHOT_SAVED: snapshot_saved(c, e->saved.index, e->saved.err); break;
	case EVENT_CHUNK_READ: snapshot_chunk_read(c, e); break;
	case EVENT_CHUNK_WRITTEN: snapshot_chunk_written(c, e->chunk.job, e->chunk.err); break;
	case EVENT_SNAPSHOT_LOADED: snapshot_loaded(c, e->loaded.job, e->loaded.err, e->loaded.state); break;
	case EVENT_SNAPSHOT_PART: snapshot_part_found(c, e); break;
	case EVENT_STREAM_OPEN:
	case EVENT_STREAM_MESSAGE:
	case EVENT_STREAM_WRITABLE:
	case EVENT_STREAM_CLOSED: streams_step(c, e); break;
	case EVENT_SPACE:
		c->disk_low = e->low;
		c->alarms.again_at = 0;
		break;
	}
}

/* ---- the take ---- */

static void take_write(struct core *c, struct raft_ready *ready)
{
	struct core_write *w = &c->out.write;

	w->trim_to = c->snapshots.trim_to;
	c->snapshots.trim_to = 0;
	if (ready->write_seq == 0) {
		ASSERT(ready->entries_len == 0);
		return;
	}
	w->seq = ready->write_seq;
	stall_handed(c, w->seq);
	w->hard_changed = ready->hard_changed;
	w->hard = ready->hard;
	w->truncate_from = ready->truncate_from;
	for (size_t i = 0; i < ready->entries_len; i++)
		*VEC_PUSH(&c->out.entries) = ready->entries[i];
	w->entries = c->out.entries.at;
	w->entries_len = c->out.entries.len;
}

static void take_message(struct core *c, struct raft_message *m)
{
	peer_send_raft(c, m);
	for (size_t i = 0; i < m->entries_len; i++)
		raft_entry_unref(m->entries[i]);
	m->entries_len = 0;
}

static void take_ready(struct core *c)
{
	struct raft_ready ready;

	raft_take_ready(c->raft, &ready);
	take_write(c, &ready);
	for (size_t i = 0; i < ready.messages_len; i++)
		take_message(c, &ready.messages[i]);
	for (size_t i = 0; i < ready.committed_len; i++)
		apply_push(c, ready.committed[i]);
	for (size_t i = 0; i < ready.reads_len; i++)
		*VEC_PUSH(&c->out.reads) = ready.reads[i];
	if (ready.round_term == c->term && c->role == RAFT_LEADER)
		c->reads.confirmed = ready.confirmed_round;
	for (size_t i = 0; i < ready.chunks_len; i++) {
		struct raft_message chunk = ready.chunks[i];

		/* Replying is an input of raft, after which the lent arrays are gone: the rest is kept aside. */
		ready.chunks[i].data = (struct slice){ 0 };
		*VEC_PUSH(&c->chunks) = chunk;
	}
	for (size_t i = 0; i < ready.snapshot_to_len; i++)
		snapshot_send_begin(c, ready.snapshot_to[i]);
	for (size_t i = 0; i < c->chunks.len; i++)
		snapshot_receive(c, &c->chunks.at[i]);
	c->chunks.len = 0;
}

static bool more_to_do(const struct core *c)
{
	if (c->fatal == CORE_FATAL_CORRUPT)
		return false;
	return c->backlog_len > 0 || c->snapshots.closing || c->streams_wait || propose_waits(c) || admit_waits(c) || gate_waits(c) || cache_link_waits(c) || read_waits(c) || raft_has_ready(c->raft);
}

static void fill_update(struct core *c, struct core_update *u)
{
	struct out *o = &c->out;

	memset(u, 0, sizeof *u);
	u->write = o->write;
	u->messages = o->messages.at;
	u->messages_len = o->messages.len;
	u->answers = o->answers.at;
	u->answers_len = o->answers.len;
	u->outputs = o->outputs.at;
	u->outputs_len = o->outputs.len;
	u->reads = o->reads.at;
	u->reads_len = o->reads.len;
	u->jobs = o->jobs.at;
	u->jobs_len = o->jobs.len;
	u->members_changed = o->members_changed;
	u->role_changed = o->role_changed;
	u->fatal = c->fatal;
	u->again = more_to_do(c);
	o->handed = true;
}

void core_take(struct core *c, struct core_update *u)
{
	begin(c);
	role_sync(c);
	cache_link_flush(c);
	gate_flush(c);
	skipped_run(c);
	propose_flush(c);
	admit_flush(c); /* behind what passes the line by */
	read_flush(c);
	take_ready(c);
	role_sync(c);
	recover_sync(c);
	apply_some(c);
	admit_measure(c);
	alarms_look(c);
	role_sync(c); /* the entry of our own term may have been among them */
	transfers_run(c);
	rounds_confirm(c);
	reads_run(c);
	streams_take(c);
	sessions_take(c);
	publish_tick(c);
	snapshot_save_tick(c);
	fill_update(c, u);
}

/* ---- to look at ---- */

static time_ms earlier(time_ms a, time_ms b)
{
	return a < b ? a : b;
}

/* From the clock that stands still during gaps to that of events. */
static time_ms from_clock(const struct core *c, time_ms at)
{
	return at == TIME_NEVER ? at : at + c->shift;
}

time_ms core_next_deadline(const struct core *c)
{
	const struct heap_node *bound = heap_peek(&c->waiters.bounds), *renewal = heap_peek(&c->waiters.renewals);
	time_ms at = raft_next_deadline(c->raft);

	at = earlier(at, lessor_next_deadline(c->lessor));
	at = earlier(at, propose_next_deadline(c));
	at = earlier(at, skipped_next_deadline(c));
	at = earlier(at, watches_next_deadline(c->watches));
	if (!list_empty(&c->calls.ages))
		at = earlier(at, from_clock(c, CONTAINER_OF(c->calls.ages.next, struct call, age)->deadline));
	if (bound)
		at = earlier(at, from_clock(c, bound->key));
	if (renewal)
		at = earlier(at, from_clock(c, renewal->key));
	if (!list_empty(&c->reads.batches))
		at = earlier(at, CONTAINER_OF(c->reads.batches.next, struct read_batch, link)->sent_at + resend_ms(c));
	if (!list_empty(&c->renews.batches))
		at = earlier(at, CONTAINER_OF(c->renews.batches.next, struct renew_batch, link)->sent_at + resend_ms(c));
	return at;
}

const struct state *core_state(const struct core *c)
{
	return &c->state;
}

const struct raft *core_raft(const struct core *c)
{
	return c->raft;
}

void core_status(const struct core *c, struct core_status *ret)
{
	struct watch_stats watches;
	struct cache_stats cache;

	watches_stats(c->watches, &watches);
	memset(ret, 0, sizeof *ret);
	ret->role = raft_role(c->raft);
	ret->term = raft_current_term(c->raft);
	ret->leader = raft_leader(c->raft);
	ret->commit = raft_commit_index(c->raft);
	ret->applied = c->state.applied.index;
	ret->last = raft_last_index(c->raft);
	ret->first = raft_first_index(c->raft);
	ret->stable = raft_stable_index(c->raft);
	ret->revision = c->state.revision;
	ret->leases = lessor_count(c->lessor);
	ret->keys = c->state.keys.len;
	ret->waiters = c->waiters.len;
	ret->pending = calls_pending(c);
	ret->watchers = watches.watchers;
	ret->store_bytes = core_store_bytes(c);
	cache_stats(c->gate.cache, &cache);
	ret->open_sessions = c->state.open_sessions.len;
	ret->session_streams = c->sessions.by_tag.len;
	ret->cached_things = cache.things;
	ret->cached_pairs = cache.pairs;
	ret->invalidations = cache.invalidations;
	ret->sessions_owing = cache.owing;
	ret->oldest_owed_ms = cache.oldest == TIME_NEVER ? 0 : c->now - cache.oldest;
	ret->gated = c->gate.len;
	ret->watch_streams = watches.streams;
	ret->watchers_behind = watches.behind;
	ret->watch_events = watches.events;
	ret->watch_lost = watches.lost;
	ret->watches_refused = watches.refused;
	ret->leader_changes = c->seen.leader_changes;
	ret->proposals_failed = c->seen.proposals_failed;
	ret->reads_failed = c->seen.reads_failed;
	ret->reads_slow = c->seen.reads_slow;
	ret->heartbeats_late = raft_heartbeats_late(c->raft);
	ret->promotions = c->seen.promotions;
	ret->auth_revision = auth_revision(c->auth);
	ret->snapshot_under_way = c->snapshots.install.phase != INSTALL_NONE;
	ret->leases_renewed = c->seen.leases_renewed;
	ret->snapshots_installed = c->seen.snapshots_installed;
	ret->snapshots_sent = c->seen.snapshots_sent;
	ret->snapshots_not_sent = c->seen.snapshots_not_sent;
	ret->log_pending = c->backlog_len;
	ret->compact_revision = c->state.compact_revision;
	ret->counts = c->env.counts;
	ret->learner = core_is_learner(c);
	ret->disk_low = c->disk_low;
	core_gated(c, &ret->gated_total, &ret->oldest_gated_ms);
	ret->admit_queued = c->admission.len;
	ret->admit_queued_bytes = c->admission.cost;
	ret->quota_bytes = c->config.quota_bytes;
	ret->quota_high = c->alarms.high;
	ret->no_space = alarms_no_space(c);
	ret->corrupt = alarms_cell_is_corrupt(c) || c->fatal == CORE_FATAL_DIFFERS;
	ret->alarms = c->state.alarms.len;
	ret->recovering = c->recovering;
	ret->lost = raft_lost(c->raft).index;
	ret->serving = !c->recovering && ret->leader != 0 && ret->applied >= c->boot_commit && c->state.restored == 0;
}

void core_gated(const struct core *c, uint64_t *ret_total, time_ms *ret_oldest_ms)
{
	*ret_total = c->gate.total;
	*ret_oldest_ms = gate_oldest_ms(c);
}

void core_set_trace(struct core *c, core_trace_fn fn, void *ctx)
{
	c->trace = fn;
	c->trace_ctx = ctx;
}

void core_emit(struct core *c, enum core_trace_kind kind, uint64_t a, uint64_t b, uint64_t d)
{
	struct core_trace t = { .kind = kind, .now = c->now, .a = a, .b = b, .c = d };

	if (c->trace)
		c->trace(c->trace_ctx, &t);
}

void core_check(const struct core *c)
{
	raft_check(c->raft);
	store_check(c->store);
	lessor_check(c->lessor);
	locks_check(c->locks);
	once_check(c->once);
	auth_check_invariants(c->auth);
	calls_check(c);
	propose_check(c);
	waiters_check(c);
	unlocks_check(c);
	watches_check(c->watches);
	admit_check(c);
	gate_check(c);
	sessions_check(c);
	ASSERT(c->state.applied.index + c->backlog_len <= raft_commit_index(c->raft));
	ASSERT_IF(c->promoted, c->promoted <= raft_current_term(c->raft));
}
