/* request.c: what becomes of a request: answered at once, or a call of one kind or another.
 *
 *   (E1) the calls under way are bounded; above the bound a request is refused, and certainly not carried out. Unlock, revoke, delete and
 *        keep-alive have as much room again for themselves (P12).
 *   (E2) a lease without an ID gets one here, and one with a TTL below the minimum that minimum, before it is proposed: the log holds no
 *        choices, and nothing that replicas may be configured differently about.
 *   (E3) what users write is refused, and certainly not carried out, when it would have to wait for long (admit.c); what frees something is not. */
#include "internal.h"

void answer_now(struct core *c, uint64_t tag, enum err e, struct buf *reply)
{
	struct core_answer *a = VEC_PUSH(&c->out.answers);

	a->tag = tag;
	a->err = e;
	if (reply && e == ERR_OK)
		a->reply = buf_take(reply);
	buf_free(reply);
}

/* E3 */
static bool refuses_load(struct core *c, const struct core_request *r, uint32_t kind)
{
	if (!propose_refuses(c, kind, r->bytes.len))
		return false;
	answer_now(c, r->tag, ERR_TOO_MANY_REQUESTS, NULL);
	return true;
}

bool core_is_load(enum method_id method, struct slice request)
{
	switch (method) {
	case METHOD_KV_PUT:
	case METHOD_LEASE_GRANT:
	case METHOD_LOCK_LOCK:
	case METHOD_ELECTION_CAMPAIGN:
	case METHOD_ELECTION_PROCLAIM:
	case METHOD_NODES_CREATE:
	case METHOD_NODES_SET:
		return true;
	case METHOD_KV_TXN:
		return command_grows(&(struct command){ .kind = CMD(TXN), .payload = request });
	default:
		return false;
	}
}

static void submit_command(struct core *c, const struct core_request *r, uint32_t kind)
{
	struct call *call;

	if (refuses_load(c, r, kind))
		return;
	call = call_new(c, CALL_COMMAND, r->tag, r->method);
	propose_submit_request(c, call, kind, r->bytes, r, false);
}

static void submit_read(struct core *c, const struct core_request *r)
{
	struct call *call = call_new(c, CALL_READ, r->tag, r->method);

	call->bytes = buf_copy_of(r->bytes);
	read_submit(c, call);
}

/* A revision that is not here yet may be somewhere: a client that spreads its calls over the cell asks one replica at the revision that
 * another one named. (Go's STM does so.) The cell is asked before the client is told that there is no such revision. */
static void read_now(struct core *c, const struct core_request *r, enum err (*fn)(struct kv_env *, struct slice, struct buf *))
{
	struct buf reply = { 0 };
	enum err e;

	c->env.header.term = raft_current_term(c->raft);
	e = core_may(c, &r->caller, r->method, r->bytes);
	if (!e)
		e = fn(&c->env, r->bytes, &reply);
	arena_clear(&c->arena);
	if (e == ERR_FUTURE_REVISION)
		submit_read(c, r);
	else
		answer_now(c, r->tag, e, &reply);
	buf_free(&reply);
}

static void submit_range(struct core *c, const struct core_request *r)
{
	if (wire_find_u64(r->bytes, 7, 0))
		read_now(c, r, r->method == METHOD_KV_RANGE_STREAM ? kv_range_part : kv_range);
	else
		submit_read(c, r);
}

static void submit_txn(struct core *c, const struct core_request *r)
{
	Etcdserverpb__TxnRequest *txn = NULL;
	bool serializable = false, read_only = false;

	if (pb_check(&etcdserverpb__txn_request__descriptor, r->bytes, PB_CHECK_DEPTH_MAX) == PB_CHECK_OK)
		txn = etcdserverpb__txn_request__unpack(&c->arena.pb, r->bytes.len, r->bytes.ptr);
	if (txn)
		read_only = kv_txn_is_read_only(txn, &serializable);
	arena_clear(&c->arena);
	if (!txn)
		answer_now(c, r->tag, ERR_MALFORMED, NULL);
	else if (!read_only)
		submit_command(c, r, CMD(TXN));
	else if (serializable)
		read_now(c, r, kv_txn_read);
	else
		submit_read(c, r);
}

/* A lease must outlive an election, as etcd counts it too. */
int64_t request_min_ttl_s(const struct core *c)
{
	int64_t ttl = (3 * (int64_t)c->config.election_timeout_ms / 2 + 999) / 1000;

	return ttl > 1 ? ttl : 1;
}

/* E2 */
static void submit_grant(struct core *c, const struct core_request *r)
{
	struct call *call;
	struct buf payload = { 0 };
	int64_t ttl = (int64_t)wire_find_u64(r->bytes, 1, 0);
	int64_t id = (int64_t)wire_find_u64(r->bytes, 2, 0);

	if (refuses_load(c, r, CMD(LEASE_GRANT)))
		return;
	call = call_new(c, CALL_COMMAND, r->tag, r->method);
	call->retry_id = id == 0;
	pbw_i64(&payload, 1, ttl < request_min_ttl_s(c) ? request_min_ttl_s(c) : ttl);
	pbw_i64(&payload, 2, id ? id : (int64_t)rng_between(&c->rng, 1, INT64_MAX));
	propose_submit_request(c, call, CMD(LEASE_GRANT), buf_view(&payload), r, call->retry_id);
	buf_free(&payload);
}

static void submit_auth(struct core *c, const struct core_request *r, uint32_t act)
{
	struct call *call = call_new(c, CALL_COMMAND, r->tag, r->method);
	struct buf payload = { 0 };

	pbw_u64(&payload, 1, act);
	pbw_bytes(&payload, 2, r->bytes);
	propose_submit_request(c, call, CMD(AUTH), buf_view(&payload), r, false);
	buf_free(&payload);
}

static void submit_lease_question(struct core *c, const struct core_request *r, enum call_kind kind)
{
	struct call *call = call_new(c, kind, r->tag, r->method);
	struct wire w;

	for (wire_init(&w, r->bytes); wire_next(&w);) {
		if (w.field == 1)
			call->lease = wire_i64(&w);
		else if (w.field == 2)
			call->keys = wire_u64(&w) != 0;
	}
	renew_submit(c, call);
}

static void submit_question(struct core *c, const struct core_request *r)
{
	submit_read(c, r);
	((struct call *)map64_get(&c->calls.by_tag, r->tag))->ask = true;
}

/* With replicas that differ and nobody to say who is right, only what lets an operator look and decide, and what keeps sessions alive. */
static bool is_served_when_corrupt(enum method_id m)
{
	switch (m) {
	case METHOD_MAINTENANCE_ALARM:
	case METHOD_MAINTENANCE_SNAPSHOT:
	case METHOD_LEASE_KEEP_ALIVE:
	case METHOD_CLUSTER_MEMBER_LIST:
	case METHOD_CLUSTER_MEMBER_ADD:
	case METHOD_CLUSTER_MEMBER_REMOVE:
	case METHOD_CLUSTER_MEMBER_UPDATE:
	case METHOD_CLUSTER_MEMBER_PROMOTE:
		return true;
	default:
		return false;
	}
}

static void submit(struct core *c, const struct core_request *r)
{
	if (alarms_cell_is_corrupt(c) && !is_served_when_corrupt(r->method)) {
		answer_now(c, r->tag, ERR_CLUSTER_CORRUPT, NULL);
		return;
	}
	switch (r->method) {
	case METHOD_KV_RANGE:
	case METHOD_KV_RANGE_STREAM: submit_range(c, r); break;
	case METHOD_KV_PUT: submit_command(c, r, CMD(PUT)); break;
	case METHOD_KV_DELETE_RANGE: submit_command(c, r, CMD(DELETE_RANGE)); break;
	case METHOD_KV_TXN: submit_txn(c, r); break;
	case METHOD_KV_COMPACT: submit_command(c, r, CMD(COMPACT)); break;
	case METHOD_LEASE_GRANT: submit_grant(c, r); break;
	case METHOD_LEASE_REVOKE: submit_command(c, r, CMD(LEASE_REVOKE)); break;
	case METHOD_LEASE_KEEP_ALIVE: submit_lease_question(c, r, CALL_RENEW); break;
	case METHOD_LEASE_TIME_TO_LIVE: submit_lease_question(c, r, CALL_QUERY); break;
	case METHOD_AUTH_ENABLE: submit_auth(c, r, AUTH_ACT(ENABLE)); break;
	case METHOD_AUTH_DISABLE: submit_auth(c, r, AUTH_ACT(DISABLE)); break;
	case METHOD_AUTH_USER_ADD: submit_auth(c, r, AUTH_ACT(USER_ADD)); break;
	case METHOD_AUTH_USER_DELETE: submit_auth(c, r, AUTH_ACT(USER_DELETE)); break;
	case METHOD_AUTH_USER_CHANGE_PASSWORD: submit_auth(c, r, AUTH_ACT(USER_CHANGE_PASSWORD)); break;
	case METHOD_AUTH_USER_GRANT_ROLE: submit_auth(c, r, AUTH_ACT(USER_GRANT_ROLE)); break;
	case METHOD_AUTH_USER_REVOKE_ROLE: submit_auth(c, r, AUTH_ACT(USER_REVOKE_ROLE)); break;
	case METHOD_AUTH_ROLE_ADD: submit_auth(c, r, AUTH_ACT(ROLE_ADD)); break;
	case METHOD_AUTH_ROLE_DELETE: submit_auth(c, r, AUTH_ACT(ROLE_DELETE)); break;
	case METHOD_AUTH_ROLE_GRANT_PERMISSION: submit_auth(c, r, AUTH_ACT(ROLE_GRANT_PERMISSION)); break;
	case METHOD_AUTH_ROLE_REVOKE_PERMISSION: submit_auth(c, r, AUTH_ACT(ROLE_REVOKE_PERMISSION)); break;
	case METHOD_AUTH_AUTHENTICATE:
		if (r->assign)
			submit_command(c, r, CMD(AUTHENTICATE));
		else
			submit_read(c, r);
		break;
	case METHOD_AUTH_STATUS:
	case METHOD_AUTH_USER_GET:
	case METHOD_AUTH_USER_LIST:
	case METHOD_AUTH_ROLE_GET:
	case METHOD_AUTH_ROLE_LIST:
	case METHOD_LEASE_LEASES:
	case METHOD_CLUSTER_MEMBER_LIST:
	case METHOD_ELECTION_LEADER:
	case METHOD_LOCKS_LIST:
	case METHOD_LOCKS_VERIFY:
	case METHOD_MAINTENANCE_SNAPSHOT: submit_read(c, r); break;
	case METHOD_MAINTENANCE_ALARM:
		if (wire_find_u64(r->bytes, 1, 0) == ETCDSERVERPB__ALARM_REQUEST__ALARM_ACTION__GET)
			submit_read(c, r);
		else
			alarms_submit(c, r);
		break;
	case METHOD_LOCK_LOCK:
	case METHOD_ELECTION_CAMPAIGN: lock_submit(c, r); break;
	case METHOD_LOCK_UNLOCK: unlock_submit(c, r); break;
	case METHOD_LOCKS_BREAK_HOLD: submit_command(c, r, CMD(LOCK_BREAK)); break;
	case METHOD_CLUSTER_MEMBER_ADD:
	case METHOD_CLUSTER_MEMBER_REMOVE:
	case METHOD_CLUSTER_MEMBER_UPDATE:
	case METHOD_CLUSTER_MEMBER_PROMOTE: members_submit(c, r); break;
	case METHOD_MAINTENANCE_MOVE_LEADER: transfer_submit(c, r); break;
	case METHOD_ELECTION_PROCLAIM: submit_command(c, r, CMD(PROCLAIM)); break;
	case METHOD_ELECTION_RESIGN: submit_command(c, r, CMD(RESIGN)); break;
	case METHOD_NODES_CREATE: submit_command(c, r, CMD(NODE_CREATE)); break;
	case METHOD_NODES_SET: submit_command(c, r, CMD(NODE_SET)); break;
	case METHOD_NODES_DELETE: submit_command(c, r, CMD(NODE_DELETE)); break;
	case METHOD_NODES_GET:
	case METHOD_NODES_LIST: node_read_submit(c, r); break;
	default: answer_now(c, r->tag, ERR_UNIMPLEMENTED, NULL); break;
	}
}

/* A request ID belongs to a session, and the other way round. */
static bool is_once_well_formed(const struct core_request *r)
{
	if (r->session == 0)
		return r->request_id == 0 && r->first_unanswered == 0;
	return r->request_id > 0 && r->request_id <= ONCE_REQUEST_MAX && r->first_unanswered <= r->request_id;
}

/* As etcd has it: a learner only tells about itself, and what it has, however old; and whether it reaches the cell. */
static bool is_for_learners(const struct core_request *r)
{
	bool range = r->method == METHOD_KV_RANGE || r->method == METHOD_KV_RANGE_STREAM;

	return r->method == METHOD_MAINTENANCE_STATUS || (range && (r->ask || wire_find_u64(r->bytes, 7, 0)));
}

bool core_is_learner(const struct core *c)
{
	const struct member_record *self = member_find(&c->state, c->config.member);

	return !self || self->learner; /* one that has not read of its own joining yet does not know what it will be */
}

void request_step(struct core *c, const struct core_request *r)
{
	size_t room = (size_t)c->config.max_pending * (method_is_reserved(r->method) ? 2 : 1); /* E1 */

	ASSERT(r->tag != 0);
	ASSERT(map64_get(&c->calls.by_tag, r->tag) == NULL);
	c->request = r;
	if (r->bytes.len > c->config.max_request_bytes)
		answer_now(c, r->tag, ERR_REQUEST_TOO_LARGE, NULL);
	else if (!is_once_well_formed(r))
		answer_now(c, r->tag, ERR_BAD_METADATA, NULL);
	else if (c->recovering && r->method != METHOD_MAINTENANCE_STATUS)
		answer_now(c, r->tag, ERR_RECOVERING, NULL);
	else if (core_is_learner(c) && !is_for_learners(r))
		answer_now(c, r->tag, ERR_LEARNER_UNSUPPORTED, NULL);
	else if (identity_refuses(c, r) || (!r->ask && status_answer(c, r)))
		; /* answered, or set aside */
	else if (calls_pending(c) >= room)
		answer_now(c, r->tag, ERR_TOO_MANY_REQUESTS, NULL);
	else if (r->ask)
		submit_question(c, r);
	else
		submit(c, r);
	c->request = NULL;
}
