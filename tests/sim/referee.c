/* referee.c: applies every committed entry once, as soon as any replica has applied it, and shows each step to the checks. All replicas' states
 * are compared with the referee's at equal positions (P10). It stands for the whole cell: what is told to clients must have happened here.
 *
 * It applies commands by the same module as the replicas (server/core/kv), which has tests of its own; what the core around it does with them
 * is what is on trial here. */
#include "sim.h"

#include "base/pbw.h"
#include "core/alarm/alarm.h"
#include "core/command.h"
#include "core/kv/kv.h"
#include "core/member/member.h"
#include "core/snapshot/snapshot.h"
#include "core/wire.h"

struct referee {
	struct world *w;
	struct state state;
	struct store *store;
	struct lessor *lessor;
	struct locks *locks;
	struct once *once;
	struct arena arena;
	struct kv_env env;
};

struct referee *referee_new(struct world *w)
{
	struct referee *f = mem_zalloc(sizeof *f);

	f->w = w;
	f->state = world_initial_state(w);
	f->store = store_new(&f->state);
	f->lessor = lessor_new(&f->state, 1);
	f->locks = locks_new(&f->state);
	f->once = once_new(&f->state);
	arena_init(&f->arena);
	f->env = (struct kv_env){ .state = &f->state, .store = f->store, .lessor = f->lessor, .locks = f->locks, .once = f->once, .arena = &f->arena,
				  .header = { .cell_id = w->cell_id }, .max_txn_ops = 128 };
	kv_attach(&f->env);
	kv_rebuild(&f->env);
	return f;
}

void referee_free(struct referee *f)
{
	if (!f)
		return;
	once_free(f->once);
	locks_free(f->locks);
	lessor_free(f->lessor);
	store_free(f->store);
	state_deinit(&f->state);
	arena_deinit(&f->arena);
	free(f);
}

const struct state *referee_state(const struct referee *f) { return &f->state; }
const struct store *referee_store(const struct referee *f) { return f->store; }
const struct locks *referee_locks(const struct referee *f) { return f->locks; }
const struct lessor *referee_lessor(const struct referee *f) { return f->lessor; }
revision referee_revision(const struct referee *f) { return f->state.revision; }

/* ---- one command ---- */

static void publish(struct referee *f, struct slice payload)
{
	Holdfast__Internal__MemberPublish *m;

	if (pb_check(&holdfast__internal__member_publish__descriptor, payload, 1) != PB_CHECK_OK)
		return;
	m = holdfast__internal__member_publish__unpack(&f->arena.pb, payload.len, payload.ptr);
	if (m)
		(void)member_publish(&f->state, m->id, m->name, (const char *const *)m->client_urls, m->n_client_urls, m->data_dir_id);
}

/* The end of leases by time: (P4), and only an entry of the proposer's own term counts. */
static void lease_end(struct referee *f, struct slice payload, raft_term term)
{
	struct slice ids = wire_find_bytes(payload, 1);
	bool *before = mem_zalloc(ids.len / 8 + 1);
	raft_term proposed = wire_find_u64(payload, 2, 0);

	for (size_t i = 0; i < ids.len / 8; i++) {
		lease_id id;

		memcpy(&id, ids.ptr + 8 * i, 8);
		before[i] = lease_find(f->lessor, id) != NULL;
	}
	(void)kv_lease_end(&f->env, payload, term);
	for (size_t i = 0; i < ids.len / 8; i++) {
		lease_id id;
		bool now;

		memcpy(&id, ids.ptr + 8 * i, 8);
		now = lease_find(f->lessor, id) != NULL;
		CHECK(f->w, "P4", proposed == term || now == before[i], "lease %llx ended by an entry of another term than its proposer's",
		      (unsigned long long)id);
		if (before[i] && !now)
			check_lease_ended(f->w, id, true);
	}
	free(before);
}

static enum err grant(struct referee *f, struct slice payload, struct buf *reply)
{
	lease_id id = (lease_id)wire_find_u64(payload, 2, 0);
	const struct lease_record *l;
	enum err e = kv_lease_grant(&f->env, payload, reply);

	if (e)
		return e;
	l = lease_find(f->lessor, id);
	check_lease_granted(f->w, id, l->ttl_s);
	return ERR_OK;
}

static enum err revoke(struct referee *f, struct slice payload, struct buf *reply)
{
	lease_id id = (lease_id)wire_find_u64(payload, 1, 0);
	enum err e = kv_lease_revoke(&f->env, payload, reply);

	if (!e)
		check_lease_ended(f->w, id, false);
	return e;
}

static enum err lock(struct referee *f, struct slice payload, struct kv_lock_result *r)
{
	lease_id id = (lease_id)wire_find_u64(payload, 2, 0);
	bool was = lease_find(f->lessor, id) != NULL;
	enum err e = kv_lock(&f->env, payload, r);

	if (!was && lease_find(f->lessor, id))
		check_lease_granted(f->w, id, lease_find(f->lessor, id)->ttl_s);
	return e;
}

static enum err abandon(struct referee *f, struct slice payload)
{
	lease_id id = (lease_id)wire_find_u64(payload, 4, 0);
	bool was = id && lease_find(f->lessor, id);

	(void)kv_abandon(&f->env, payload);
	if (was && !lease_find(f->lessor, id))
		check_lease_ended(f->w, id, false);
	return ERR_OK;
}

static void change(struct referee *f, struct slice payload)
{
	Holdfast__Internal__MemberChange *m = holdfast__internal__member_change__unpack(NULL, payload.len, payload.ptr);
	struct member_change ch;

	if (!m)
		return;
	ch = (struct member_change){ m->kind, m->id, (const char *const *)m->peer_urls, m->n_peer_urls };
	(void)member_change_apply(&f->state, &ch, f->state.applied.index + 1);
	holdfast__internal__member_change__free_unpacked(m, NULL);
}

static enum err open_session(struct referee *f, struct slice payload, struct buf *reply)
{
	lease_id id = (lease_id)wire_find_u64(payload, 1, 0);
	enum err e = kv_session_open(&f->env, payload, reply);

	if (!e)
		check_lease_granted(f->w, id, lease_find(f->lessor, id)->ttl_s);
	return e;
}

static enum err close_session(struct referee *f, struct slice payload)
{
	lease_id id = (lease_id)wire_find_u64(payload, 1, 0);
	bool was = lease_find(f->lessor, id) != NULL;
	enum err e = kv_session_close(&f->env, payload);

	if (was && !lease_find(f->lessor, id))
		check_lease_ended(f->w, id, false);
	return e;
}

struct run {
	struct referee *f;
	const struct command *cmd;
	raft_term term;
};

static enum err compact(struct referee *f, struct slice payload, struct buf *reply)
{
	enum err e = kv_compact(&f->env, payload, reply);

	f->w->totals.compactions += !e;
	return e;
}

static enum err execute(void *ctx, struct kv_outcome *out)
{
	const struct run *run = ctx;
	struct referee *f = run->f;
	struct kv_env *env = &f->env;
	struct slice payload = run->cmd->payload;

	switch (run->cmd->kind) {
	case CMD(PUT): return kv_put(env, payload, &out->reply);
	case CMD(DELETE_RANGE): return kv_delete_range(env, payload, &out->reply);
	case CMD(TXN): return kv_txn(env, payload, &out->reply);
	case CMD(COMPACT):
	case CMD(AUTO_COMPACT): return compact(f, payload, &out->reply);
	case CMD(LEASE_GRANT): return grant(f, payload, &out->reply);
	case CMD(LEASE_REVOKE): return revoke(f, payload, &out->reply);
	case CMD(LEASE_END): lease_end(f, payload, run->term); return ERR_OK;
	case CMD(LOCK): return lock(f, payload, &out->lock);
	case CMD(UNLOCK): return kv_unlock(env, payload, &out->reply);
	case CMD(LOCK_BREAK): return kv_lock_break(env, payload, &out->reply);
	case CMD(ABANDON): return abandon(f, payload);
	case CMD(MEMBER_PUBLISH): publish(f, payload); return ERR_OK;
	case CMD(ALARM): return alarm_apply(&f->state, payload, &out->reply);
	case CMD(RESIGN): return kv_resign(env, payload, &out->reply);
	case CMD(PROCLAIM): return kv_proclaim(env, payload, &out->reply);
	case CMD(MEMBER_CHANGE): change(f, payload); return ERR_OK;
	case CMD(SESSION_OPEN): return open_session(f, payload, &out->reply);
	case CMD(SESSION_RESUME): return kv_session_resume(env, payload, &out->reply);
	case CMD(SESSION_CLOSE): return close_session(f, payload);
	case CMD(NODE_SET): return kv_node_set(env, payload, &out->reply);
	default: return ERR_UNIMPLEMENTED;
	}
}

/* Who asked is said by the address of its client (replica.c). */
static void note_place(struct referee *f, const struct command *cmd, const struct kv_lock_result *r)
{
	struct slice client = wire_find_bytes(cmd->payload, 9), call = wire_find_bytes(cmd->payload, 6);
	uint64_t number;
	struct op *o;

	if (client.len != sizeof number)
		return;
	memcpy(&number, client.ptr, sizeof number);
	o = op_get(f->w, number);
	o->call = (struct call_id){ wire_find_u64(call, 1, 0), wire_find_u64(call, 2, 0), wire_find_u64(call, 3, 0) };
	o->place = r->token;
}

/* One that the leader ended, its place being kept for others, asks no more. */
static void note_end(struct referee *f, const struct command *cmd)
{
	const struct kv *kv = store_get(f->store, wire_find_bytes(cmd->payload, 2), 0);
	const struct contender *ct = kv ? lock_find(f->locks, kv) : NULL;

	for (uint32_t i = 0; ct && i < f->w->config.clients; i++) {
		uint64_t number = f->w->clients[i].slot[SLOT_LOCK];
		struct op *o = number ? op_get(f->w, number) : NULL;

		if (o && o->place == ct->create_revision && o->lease == ct->lease && !contender_is_asked_by(ct, o->call))
			o->place = 0;
	}
}

static void carry_out(struct referee *f, const struct command *cmd, raft_term term)
{
	struct run run = { f, cmd, term };
	struct kv_outcome out = { 0 };
	enum err e = cmd->session ? kv_once(&f->env, cmd, term, execute, &run, &out) : execute(&run, &out);

	if (cmd->kind == CMD(LOCK) && !e)
		note_place(f, cmd, &out.lock);
	if (cmd->kind == CMD(ABANDON))
		note_end(f, cmd);
	f->w->totals.repeated += out.repeated;
	buf_free(&out.reply);
	buf_free(&out.details);
	buf_free(&out.lock.key);
	arena_clear(&f->arena);
}

static void show_events(struct referee *f, revision before)
{
	uint64_t end = store_history_end(f->store);

	if (f->state.revision == before)
		return;
	for (uint64_t i = store_history_begin(f->store, before + 1); i < end; i++) {
		struct store_event ev = store_history_at(f->store, i);

		check_event(f->w, ev.kv, ev.prev);
	}
}

static void trace_command(struct world *w, const struct raft_entry *e, const struct command *cmd)
{
	static const char *const kinds[] = { "none", "put", "delete", "txn", "compact", "grant lease", "revoke lease", "end leases", "lock", "unlock",
					     "abandon", "publish", "resign", "proclaim", "auto-compact" };
	uint32_t from = 0;

	while (from < w->config.replicas && w->replicas[from].member != cmd->origin_member)
		from++;
	sim_trace_line(w, "entry %llu (term %llu) is applied: %s, of r%u boot %llu call %llu", (unsigned long long)e->index, (unsigned long long)e->term,
		       cmd->kind < sizeof kinds / sizeof *kinds ? kinds[cmd->kind] : "?", cmd->origin_member ? from + 1 : 0,
		       (unsigned long long)cmd->origin_boot, (unsigned long long)cmd->origin_call);
	if (cmd->session)
		sim_trace_line(w, "  request %llu of session %llx, first unanswered %llu", (unsigned long long)cmd->request,
			       (unsigned long long)cmd->session, (unsigned long long)cmd->first_unanswered);
	if (cmd->kind == CMD(LOCK))
		sim_trace_line(w, "  by lease %llx", (unsigned long long)wire_find_u64(cmd->payload, 2, 0));
	if (cmd->kind == CMD(ABANDON))
		sim_trace_line(w, "  of %.*s by call %llu%s", (int)wire_find_bytes(cmd->payload, 2).len, (const char *)wire_find_bytes(cmd->payload, 2).ptr,
			       (unsigned long long)wire_find_u64(wire_find_bytes(cmd->payload, 3), 3, 0),
			       wire_find_u64(cmd->payload, 5, 0) ? ", if it waits" : "");
}

void referee_apply(struct referee *f, struct raft_entry *e)
{
	struct world *w = f->w;
	struct command cmd;
	revision before = f->state.revision;

	w->totals.entries++;
	if ((e->kind == RAFT_ENTRY_COMMAND || e->kind == RAFT_ENTRY_CONFIG) && command_parse(raft_entry_data(e), &cmd)) {
		if (w->opts.trace)
			trace_command(w, e, &cmd);
		f->env.now = w->now / 1000;
		carry_out(f, &cmd, e->term);
		CHECK(w, "P11", f->state.revision >= before, "the revision fell");
		w->applying = &cmd;
		show_events(f, before);
		w->applying = NULL;
		check_lock_settled(w);
	}
	f->state.applied = (struct entry_id){ e->index, e->term };
}
