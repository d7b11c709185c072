/* apply.c: committed entries become state, and answers.
 *
 *   (A1) every entry is applied in order, once; state.applied names the last one. What is applied depends on the entry and the state alone:
 *        whose call it is decides only who is told.
 *   (A2) an entry with a version above ours stops the replica for good: to skip it would fork the state.
 *   (A3) after each entry those whose contender is gone are told, then those who came to hold are looked up; a waiter never survives its
 *        contender.
 *   (A4) a command that names a session is carried out at most once (kv_once), and its reply is made on all replicas alike.
 *   (A5) whoever may not, has nothing carried out and no result kept: asked again with the same request ID, it is judged anew.
 * A call of core_take applies a bounded amount; the rest waits in a backlog. Read indexes look at state.applied, so nothing overtakes it. */
#include "internal.h"

/* ---- the backlog: a ring ---- */

static void backlog_grow(struct core *c)
{
	size_t cap = c->backlog_cap ? 2 * c->backlog_cap : 64;
	struct raft_entry **ring = mem_alloc(cap * sizeof *ring);

	for (size_t i = 0; i < c->backlog_len; i++)
		ring[i] = c->backlog[(c->backlog_first + i) & (c->backlog_cap - 1)];
	free(c->backlog);
	c->backlog = ring;
	c->backlog_cap = cap;
	c->backlog_first = 0;
}

void apply_push(struct core *c, struct raft_entry *e)
{
	if (c->backlog_len == c->backlog_cap)
		backlog_grow(c);
	c->backlog[(c->backlog_first + c->backlog_len++) & (c->backlog_cap - 1)] = e;
}

static struct raft_entry *backlog_pop(struct core *c)
{
	struct raft_entry *e = c->backlog[c->backlog_first];

	c->backlog_first = (c->backlog_first + 1) & (c->backlog_cap - 1);
	c->backlog_len--;
	return e;
}

void apply_drop_backlog(struct core *c)
{
	while (c->backlog_len > 0)
		raft_entry_unref(backlog_pop(c));
}

/* ---- one command ---- */

struct applying {
	struct core *core;
	struct command cmd;
	struct call *call; /* ours; NULL: nobody here waits for it */
	struct buf *reply; /* NULL: nobody here asks */
	raft_term term;
	raft_index index;
	bool refused; /* for who asked, whatever he asked for */
	bool change;  /* the entry is one of a membership change */
	struct kv_outcome out;
};

static enum err apply_publish(struct core *c, const struct applying *a)
{
	Holdfast__Internal__MemberPublish *m;
	enum err e;

	if (pb_check(&holdfast__internal__member_publish__descriptor, a->cmd.payload, 1) != PB_CHECK_OK)
		return ERR_MALFORMED;
	m = holdfast__internal__member_publish__unpack(&c->arena.pb, a->cmd.payload.len, a->cmd.payload.ptr);
	if (!m)
		return ERR_MALFORMED;
	e = member_publish(&c->state, m->id, m->name, (const char *const *)m->client_urls, m->n_client_urls, m->data_dir_id);
	c->out.members_changed = true;
	if (m->id == c->config.member)
		c->publish_due = true; /* to be compared again */
	return e;
}

static const struct contender *contender_of_key(const struct core *c, struct slice key)
{
	const struct kv *kv = key.len > 0 ? store_get(c->store, key, 0) : NULL;

	return kv ? lock_find(c->locks, kv) : NULL;
}

/* The leader keeps the bounds of those who ask now. */
static void after_lock(struct core *c, const struct applying *a)
{
	const struct contender *ct;

	if (!core_leads(c))
		return;
	if (a->out.lock.outcome == KV_LOCK_HELD && c->waiters.rows_len == 0)
		return; /* its wait is over, and nobody's bound runs */
	ct = contender_of_key(c, buf_view(&a->out.lock.key));
	if (ct)
		bound_note(c, ct);
}

/* Which call the leader ended by this command; none. */
static struct ended_call ended_call(const struct applying *a)
{
	if (a->cmd.kind != CMD(ABANDON) || !wire_find_u64(a->cmd.payload, 5, 0))
		return (struct ended_call){ 0 };
	return (struct ended_call){ .id = call_id_find(a->cmd.payload, 3), .bound_is_over = wire_find_u64(a->cmd.payload, 6, 0) };
}

/* Others ask for the place, when it is still there. */
static void after_abandon(struct core *c, const struct applying *a)
{
	const struct contender *ct = contender_of_key(c, wire_find_bytes(a->cmd.payload, 2));
	struct ended_call ended = ended_call(a);

	if (!ct)
		return;
	if (core_leads(c))
		bound_note(c, ct);
	if (ended.id.call)
		lock_ended(c, ct, &ended);
}

static enum err execute(struct core *c, struct applying *a)
{
	struct kv_env *env = &c->env;
	struct slice payload = a->cmd.payload;

	switch (a->cmd.kind) {
	case CMD(PUT):
		return kv_put(env, payload, a->reply);
	case CMD(DELETE_RANGE):
		return kv_delete_range(env, payload, a->reply);
	case CMD(TXN):
		return kv_txn(env, payload, a->reply);
	case CMD(COMPACT):
		streams_before_compact(c, payload);
		return kv_compact(env, payload, a->reply);
	case CMD(AUTO_COMPACT):
		streams_before_compact(c, payload);
		return kv_compact(env, payload, NULL);
	case CMD(LEASE_GRANT):
		return kv_lease_grant(env, payload, a->reply);
	case CMD(LEASE_REVOKE):
		return kv_lease_revoke(env, payload, a->reply);
	case CMD(LEASE_END):
		return kv_lease_end(env, payload, a->term);
	case CMD(LOCK):
		return kv_lock(env, payload, a->call || a->cmd.session || core_leads(c) ? &a->out.lock : NULL);
	case CMD(UNLOCK):
		return kv_unlock(env, payload, a->reply);
	case CMD(LOCK_BREAK):
		return kv_lock_break(env, payload, a->reply);
	case CMD(ABANDON):
		return kv_abandon(env, payload);
	case CMD(MEMBER_PUBLISH):
		return apply_publish(c, a);
	case CMD(MEMBER_CHANGE):
		return a->change ? members_apply(c, payload, a->index, a->reply) : ERR_MALFORMED;
	case CMD(RESIGN):
		return kv_resign(env, payload, a->reply);
	case CMD(PROCLAIM):
		return kv_proclaim(env, payload, a->reply);
	case CMD(SESSION_OPEN):
		return kv_session_open(env, payload, a->reply);
	case CMD(SESSION_RESUME):
		return kv_session_resume(env, payload, a->reply);
	case CMD(SESSION_CLOSE):
		return kv_session_close(env, payload);
	case CMD(NODE_CREATE):
		return kv_node_create(env, payload, a->reply);
	case CMD(NODE_SET):
		return kv_node_set(env, payload, a->reply);
	case CMD(NODE_DELETE):
		return kv_node_delete(env, payload, a->reply);
	case CMD(AUTH):
		return apply_auth(c, payload, a->reply);
	case CMD(AUTHENTICATE):
		return apply_authenticate(c, a->index, payload, a->reply);
	case CMD(ALARM):
		return alarms_apply(c, payload, a->reply);
	case CMD(RESTORED):
		return restored_apply(c, payload);
	default:
		return ERR_UNIMPLEMENTED; /* a kind that this version of the rules does not have: nothing, everywhere alike */
	}
}

static enum err execute_once(void *ctx, struct kv_outcome *out)
{
	struct applying *a = ctx;

	ASSERT(out == &a->out);
	a->reply = &out->reply;
	return execute(a->core, a);
}

/* The reply as it is told here, in out.reply. */
static enum err carry_out(struct core *c, struct applying *a)
{
	struct authoriser az = core_authoriser(c);
	struct buf own = { 0 };
	enum err e = authorise_command(&az, &a->cmd);

	if (!e && a->cmd.refused)
		e = ERR_AUTH_OLD_REVISION; /* G5 of gate.c */
	a->refused = e != ERR_OK;
	if (e)
		return e; /* A5 */
	if (a->cmd.session == 0)
		return execute(c, a);
	e = kv_once(&c->env, &a->cmd, a->term, execute_once, a, &a->out);
	if (!e && a->call)
		kv_own_reply(&c->env, buf_view(&a->out.reply), &own);
	buf_free(&a->out.reply);
	a->out.reply = own;
	return e;
}

/* ---- who is told ---- */

static void contender_gone(struct core *c, const struct applying *a, const struct kv *prev)
{
	struct contender_row *row = row_find(c, prev->create_revision, kv_key(prev));
	struct ended_call ended = ended_call(a);

	if (!row)
		return;
	/* A call's own lease ends with its bound: it is told of the bound. */
	waiters_gone(c, row, lease_find(c->lessor, prev->lease) ? ERR_NOT_CONTENDER : ERR_LEASE_ENDED_WAITING, &ended);
}

/* A3. The command's events are the history's newest, from number `from` on. */
static void tell_waiters(struct core *c, const struct applying *a, uint64_t from)
{
	const struct contender *granted[64];
	size_t n;

	for (uint64_t i = from; c->waiters.rows_len + c->holds.len > 0 && i < store_history_end(c->store); i++) {
		struct store_event ev = store_history_at(c->store, i);

		if (!kv_is_tombstone(ev.kv) || !ev.prev || !ev.prev->lease)
			continue;
		holds_gone(c, ev.prev, a->cmd.kind, a->term);
		contender_gone(c, a, ev.prev);
	}
	while ((n = lock_take_granted(c->locks, granted, sizeof granted / sizeof *granted)) > 0) {
		for (size_t i = 0; i < n; i++) {
			holds_granted(c, granted[i]);
			lock_granted(c, granted[i]);
		}
	}
}

/* Our choice of a lease ID was taken by somebody: another one. */
static void grant_again(struct core *c, struct call *call, const struct applying *a)
{
	struct buf payload = { 0 };

	pbw_i64(&payload, 1, (int64_t)wire_find_u64(a->cmd.payload, 1, 0));
	pbw_i64(&payload, 2, (int64_t)rng_between(&c->rng, 1, INT64_MAX));
	propose_release(c, call);
	propose_submit_again(c, call, buf_view(&payload), &a->cmd);
	buf_free(&payload);
}

static void propose_anew(struct core *c, struct call *call, const struct applying *a)
{
	if (call->lock) {
		lock_again(c, call);
		return;
	}
	propose_release(c, call);
	propose_submit_again(c, call, a->cmd.payload, &a->cmd);
}

static void finish_call(struct core *c, struct applying *a, enum err e)
{
	struct call *call = a->call;

	if (a->refused && identity_again(c, call, &a->cmd, &e)) {
		propose_anew(c, call, a);
	} else if (call->lock) {
		lock_applied(c, call, e, &a->out.lock, &a->out.details);
	} else if (e == ERR_LEASE_EXISTS && call->retry_id) {
		grant_again(c, call, a);
	} else {
		call_tell(c, call, e, &a->out.reply, &a->out.details);
		propose_drop(c, call);
	}
}

static struct call *find_call(const struct core *c, const struct command *cmd)
{
	if (cmd->origin_member != c->config.member || cmd->origin_boot != c->config.boot || cmd->origin_call == 0)
		return NULL;
	return map64_get(&c->calls.by_number, cmd->origin_call);
}

static void after_leases_ended(struct core *c, const struct command *cmd)
{
	if (cmd->kind != CMD(LEASE_END) && cmd->kind != CMD(LEASE_REVOKE) && cmd->kind != CMD(SESSION_CLOSE))
		return;
	renew_unpark(c);
	core_emit(c, TRACE_LEASE_END, c->state.applied.index, (uint64_t)c->state.revision, cmd->kind);
}

static void apply_command(struct core *c, const struct raft_entry *entry)
{
	struct applying a = { .core = c, .term = entry->term, .index = entry->index, .change = entry->kind == RAFT_ENTRY_CONFIG };
	uint64_t events = store_history_end(c->store);
	enum err e;

	if (!command_parse(raft_entry_data(entry), &a.cmd))
		return; /* nothing, everywhere alike */
	if (a.cmd.version > COMMAND_VERSION) {
		c->fatal = CORE_FATAL_CORRUPT; /* A2 */
		return;
	}
	a.call = find_call(c, &a.cmd);
	a.reply = a.call && (a.call->tag || a.call->session_tag) ? &a.out.reply : NULL;
	c->env.header.term = raft_current_term(c->raft);
	c->env.now = c->now;
	e = carry_out(c, &a);
	if (!e && a.cmd.kind == CMD(LOCK))
		after_lock(c, &a);
	arena_clear(&c->arena);
	c->state.applied = (struct entry_id){ .index = entry->index, .term = entry->term };
	after_leases_ended(c, &a.cmd);
	tell_waiters(c, &a, events);
	if (!e && a.cmd.kind == CMD(ABANDON))
		after_abandon(c, &a);
	sessions_applied(c, a.cmd.kind, a.cmd.payload, e);
	node_watches_applied(c, events);
	if (a.call)
		finish_call(c, &a, e);
	buf_free(&a.out.reply);
	buf_free(&a.out.details);
	buf_free(&a.out.lock.key);
}

static void apply_entry(struct core *c, const struct raft_entry *entry)
{
	ASSERT(entry->index == c->state.applied.index + 1); /* A1 */
	propose_applied_term(c, entry->term);
	if (entry->kind == RAFT_ENTRY_COMMAND || entry->kind == RAFT_ENTRY_CONFIG)
		apply_command(c, entry);
	if (entry->kind == RAFT_ENTRY_COMMAND && c->role == RAFT_LEADER && entry->term == c->term)
		admit_left(c, entry->len);
	if (c->fatal != CORE_FATAL_CORRUPT)
		c->state.applied = (struct entry_id){ .index = entry->index, .term = entry->term };
	compare_applied(c);
}

/* How much of the budget an entry takes: ending a lease is about the work of a small write. */
static size_t weight(const struct raft_entry *e)
{
	struct command cmd;

	if (e->kind != RAFT_ENTRY_COMMAND || e->len < 1024 || !command_parse(raft_entry_data(e), &cmd) || cmd.kind != CMD(LEASE_END))
		return 1;
	return 1 + cmd.payload.len / sizeof(lease_id);
}

void apply_some(struct core *c)
{
	size_t n = 0, bytes = 0;

	while (c->backlog_len > 0 && n < APPLY_ENTRIES_MAX && bytes < APPLY_BYTES_MAX && c->fatal != CORE_FATAL_CORRUPT) {
		struct raft_entry *e = backlog_pop(c);

		apply_entry(c, e);
		n += weight(e);
		bytes += e->len;
		raft_entry_unref(e);
	}
	c->snapshots.log_bytes += bytes;
	gate_applied(c);
	if (n > 0)
		raft_applied(c->raft, c->state.applied.index);
}
