/* authorise.c: see authorise.h.
 *
 *   (Z1) every range that a request reads or writes is asked for, in every branch and at every depth of a transaction: which one is taken may
 *        itself say something about a key.
 *   (Z2) what comes back with a write (prev_kv) is read.
 *   (Z3) whoever puts a key on a lease, or ends a lease, may write all keys that the lease holds: they go together.
 *   (Z4) what has no rule is refused. */
#include "core/auth/authorise.h"

#include "base/arena.h"
#include "base/pbw.h"
#include "etcd/rpc.pb-c.h"
#include "etcd/v3election.pb-c.h"
#include "etcd/v3lock.pb-c.h"
#include "holdfast/v1.pb-c.h"

struct run {
	const struct authoriser *az;
	struct auth_who who;
};

typedef enum err (*rule_fn)(const struct run *run, const void *request);

static const struct slice no_end = { 0 };

static struct slice bytes_of(ProtobufCBinaryData d)
{
	return slice_of(d.data, d.len);
}

static enum err need(const struct run *run, struct slice key, struct slice end, unsigned what)
{
	return auth_check_range(run->az->auth, run->who, key, end, what);
}

/* ---- ranges made of names ---- */

static struct slice join(const struct run *run, struct slice a, const char *b)
{
	size_t len = strlen(b);
	uint8_t *p = arena_alloc(run->az->arena, a.len + len + 1);

	if (a.len)
		memcpy(p, a.ptr, a.len);
	memcpy(p + a.len, b, len);
	return slice_of(p, a.len + len);
}

/* All keys NAME/..., where the contenders of a lock are. '0' follows '/'. */
static enum err need_below(const struct run *run, struct slice name, unsigned what)
{
	return need(run, join(run, name, "/"), join(run, name, "0"), what);
}

/* All keys that begin with the prefix. */
static enum err need_prefix(const struct run *run, struct slice prefix, unsigned what)
{
	uint8_t *end = arena_alloc(run->az->arena, prefix.len + 1);
	size_t len = prefix.len;

	if (len)
		memcpy(end, prefix.ptr, len);
	while (len > 0 && end[len - 1] == 0xff)
		len--;
	if (len == 0)
		return need(run, prefix, slice_of("", 1), what);
	end[len - 1]++;
	return need(run, prefix, slice_of(end, len), what);
}

/* ---- leases ---- */

static enum err need_lease_keys(const struct run *run, lease_id id, unsigned what)
{
	const struct lessor *ls = run->az->lessor;
	enum err e = auth_check_user(run->az->auth, run->who);

	if (id == 0 || !lease_find(ls, id))
		return e;
	for (struct slice key = lease_next_key(ls, id, no_end); !e && key.ptr; key = lease_next_key(ls, id, key))
		e = need(run, key, no_end, what);
	return e;
}

static enum err rule_lease_revoke(const struct run *run, const void *request)
{
	return need_lease_keys(run, ((const Etcdserverpb__LeaseRevokeRequest *)request)->id, AUTH_WRITE);
}

static enum err rule_lease_time_to_live(const struct run *run, const void *request)
{
	const Etcdserverpb__LeaseTimeToLiveRequest *r = request;

	return need_lease_keys(run, r->keys ? r->id : 0, AUTH_READ);
}

static enum err rule_any_user(const struct run *run, const void *request)
{
	(void)request;
	return auth_check_user(run->az->auth, run->who);
}

/* ---- keys ---- */

static enum err rule_range(const struct run *run, const void *request)
{
	const Etcdserverpb__RangeRequest *r = request;

	return need(run, bytes_of(r->key), bytes_of(r->range_end), AUTH_READ);
}

static enum err rule_put(const struct run *run, const void *request)
{
	const Etcdserverpb__PutRequest *r = request;
	enum err e = need(run, bytes_of(r->key), no_end, AUTH_WRITE | (r->prev_kv ? AUTH_READ : 0u));

	return e || r->lease == 0 ? e : need_lease_keys(run, r->lease, AUTH_WRITE);
}

static enum err rule_delete_range(const struct run *run, const void *request)
{
	const Etcdserverpb__DeleteRangeRequest *r = request;

	return need(run, bytes_of(r->key), bytes_of(r->range_end), AUTH_WRITE | (r->prev_kv ? AUTH_READ : 0u));
}

static enum err rule_txn(const struct run *run, const void *request);

static enum err rule_op(const struct run *run, const Etcdserverpb__RequestOp *op)
{
	switch (op->request_case) {
	case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE:
		return rule_range(run, op->request_range);
	case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT:
		return rule_put(run, op->request_put);
	case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE:
		return rule_delete_range(run, op->request_delete_range);
	case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_TXN:
		return rule_txn(run, op->request_txn);
	default:
		return auth_check_user(run->az->auth, run->who);
	}
}

/* Z1. The depth was checked before the request was unpacked. */
static enum err rule_txn(const struct run *run, const void *request)
{
	const Etcdserverpb__TxnRequest *r = request;
	enum err e = auth_check_user(run->az->auth, run->who);

	for (size_t i = 0; !e && i < r->n_compare; i++)
		e = need(run, bytes_of(r->compare[i]->key), bytes_of(r->compare[i]->range_end), AUTH_READ);
	for (size_t i = 0; !e && i < r->n_success; i++)
		e = rule_op(run, r->success[i]);
	for (size_t i = 0; !e && i < r->n_failure; i++)
		e = rule_op(run, r->failure[i]);
	return e;
}

/* The smallest key stands for none, as the watches have it. Cancels and questions about progress are anybody's who has the stream. */
static enum err rule_watch(const struct run *run, const void *request)
{
	const Etcdserverpb__WatchRequest *r = request;
	const Etcdserverpb__WatchCreateRequest *create = r->create_request;

	if (r->request_union_case != ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST)
		return ERR_OK;
	return need(run, create->key.len ? bytes_of(create->key) : slice_of("", 1), bytes_of(create->range_end), AUTH_READ);
}

/* ---- locks and elections ---- */

static enum err need_place(const struct run *run, struct slice name, lease_id lease)
{
	enum err e = need_below(run, name, AUTH_READ | AUTH_WRITE);

	return e ? e : need_lease_keys(run, lease, AUTH_WRITE);
}

static enum err rule_lock(const struct run *run, const void *request)
{
	const V3lockpb__LockRequest *r = request;

	return need_place(run, bytes_of(r->name), r->lease);
}

static enum err rule_campaign(const struct run *run, const void *request)
{
	const V3electionpb__CampaignRequest *r = request;

	return need_place(run, bytes_of(r->name), r->lease);
}

static enum err rule_lock_command(const struct run *run, const void *request)
{
	const Holdfast__Internal__LockCommand *r = request;

	return need_place(run, bytes_of(r->name), r->lease);
}

static enum err rule_unlock(const struct run *run, const void *request)
{
	return need(run, bytes_of(((const V3lockpb__UnlockRequest *)request)->key), no_end, AUTH_WRITE);
}

static enum err need_leadership(const struct run *run, const V3electionpb__LeaderKey *leader)
{
	if (!leader)
		return auth_check_user(run->az->auth, run->who);
	return need(run, bytes_of(leader->key), no_end, AUTH_READ | AUTH_WRITE);
}

static enum err rule_proclaim(const struct run *run, const void *request)
{
	return need_leadership(run, ((const V3electionpb__ProclaimRequest *)request)->leader);
}

static enum err rule_resign(const struct run *run, const void *request)
{
	return need_leadership(run, ((const V3electionpb__ResignRequest *)request)->leader);
}

static enum err rule_leader(const struct run *run, const void *request)
{
	return need_below(run, bytes_of(((const V3electionpb__LeaderRequest *)request)->name), AUTH_READ);
}

static enum err rule_locks_list(const struct run *run, const void *request)
{
	return need_prefix(run, bytes_of(((const Holdfast__V1__LocksListRequest *)request)->prefix), AUTH_READ);
}

static enum err rule_locks_verify(const struct run *run, const void *request)
{
	return need_below(run, bytes_of(((const Holdfast__V1__LocksVerifyRequest *)request)->name), AUTH_READ);
}

/* ---- nodes: a path is a key ---- */

static enum err rule_nodes_create(const struct run *run, const void *request)
{
	const Holdfast__V1__NodesCreateRequest *r = request;
	struct slice path = slice_of_str(r->path);
	enum err e;

	if (r->sequential) /* digits follow; ':' follows '9' */
		e = need(run, join(run, path, "0"), join(run, path, ":"), AUTH_WRITE);
	else
		e = need(run, path, no_end, AUTH_WRITE);
	return e || r->session == 0 ? e : need_lease_keys(run, r->session, AUTH_WRITE);
}

static enum err rule_nodes_get(const struct run *run, const void *request)
{
	return need(run, slice_of_str(((const Holdfast__V1__NodesGetRequest *)request)->path), no_end, AUTH_READ);
}

static enum err rule_nodes_set(const struct run *run, const void *request)
{
	return need(run, slice_of_str(((const Holdfast__V1__NodesSetRequest *)request)->path), no_end, AUTH_WRITE);
}

static enum err rule_nodes_delete(const struct run *run, const void *request)
{
	return need(run, slice_of_str(((const Holdfast__V1__NodesDeleteRequest *)request)->path), no_end, AUTH_WRITE);
}

static enum err rule_nodes_list(const struct run *run, const void *request)
{
	struct slice path = slice_of_str(((const Holdfast__V1__NodesListRequest *)request)->path);

	return slice_eq(path, slice_of_str("/")) ? need_prefix(run, path, AUTH_READ) : need_below(run, path, AUTH_READ);
}

/* ---- members ---- */

/* That a new voter counts from now on is the leader's own word, and no client's (I2 of intake.c). */
static enum err rule_member_change(const struct run *run, const void *request)
{
	const Holdfast__Internal__MemberChange *r = request;

	return r->kind == HOLDFAST__INTERNAL__MEMBER_CHANGE_KIND__MEMBER_JOIN ? ERR_OK : auth_check_root(run->az->auth, run->who);
}

/* ---- of oneself ---- */

static enum err rule_user_get(const struct run *run, const void *request)
{
	enum err e = auth_check_root(run->az->auth, run->who);
	struct slice name = slice_of_str(((const Etcdserverpb__AuthUserGetRequest *)request)->name);

	return e && run->who.user.len && slice_eq(run->who.user, name) ? auth_check_user(run->az->auth, run->who) : e;
}

static enum err rule_role_get(const struct run *run, const void *request)
{
	enum err e = auth_check_root(run->az->auth, run->who);
	struct slice role = slice_of_str(((const Etcdserverpb__AuthRoleGetRequest *)request)->role);

	return e && auth_has_role(run->az->auth, run->who.user, role) ? auth_check_user(run->az->auth, run->who) : e;
}

static enum err rule_alarm(const struct run *run, const void *request)
{
	if (((const Etcdserverpb__AlarmRequest *)request)->action == ETCDSERVERPB__ALARM_REQUEST__ALARM_ACTION__GET)
		return auth_check_user(run->az->auth, run->who);
	return auth_check_root(run->az->auth, run->who);
}

/* ---- the tables ---- */

/* Of methods whose permission depends on the request. */
static const rule_fn method_rules[METHOD_COUNT] = {
	[METHOD_KV_RANGE] = rule_range,
	[METHOD_KV_RANGE_STREAM] = rule_range,
	[METHOD_KV_PUT] = rule_put,
	[METHOD_KV_DELETE_RANGE] = rule_delete_range,
	[METHOD_KV_TXN] = rule_txn,
	[METHOD_WATCH_WATCH] = rule_watch,
	[METHOD_LEASE_GRANT] = rule_any_user,
	[METHOD_LEASE_REVOKE] = rule_lease_revoke,
	[METHOD_LEASE_KEEP_ALIVE] = rule_any_user,
	[METHOD_LEASE_TIME_TO_LIVE] = rule_lease_time_to_live,
	[METHOD_LEASE_LEASES] = rule_any_user,
	[METHOD_MAINTENANCE_ALARM] = rule_alarm,
	[METHOD_AUTH_USER_GET] = rule_user_get,
	[METHOD_AUTH_ROLE_GET] = rule_role_get,
	[METHOD_ELECTION_CAMPAIGN] = rule_campaign,
	[METHOD_ELECTION_PROCLAIM] = rule_proclaim,
	[METHOD_ELECTION_LEADER] = rule_leader,
	[METHOD_ELECTION_OBSERVE] = rule_leader,
	[METHOD_ELECTION_RESIGN] = rule_resign,
	[METHOD_LOCK_LOCK] = rule_lock,
	[METHOD_LOCK_UNLOCK] = rule_unlock,
	[METHOD_LOCKS_LIST] = rule_locks_list,
	[METHOD_LOCKS_VERIFY] = rule_locks_verify,
	[METHOD_SESSION_CONNECT] = rule_any_user,
	[METHOD_NODES_CREATE] = rule_nodes_create,
	[METHOD_NODES_GET] = rule_nodes_get,
	[METHOD_NODES_SET] = rule_nodes_set,
	[METHOD_NODES_DELETE] = rule_nodes_delete,
	[METHOD_NODES_LIST] = rule_nodes_list,
};

enum command_for { FOR_NOBODY, FOR_REPLICAS, FOR_METHOD, FOR_ROOT };

/* Whom a command is for. FOR_METHOD: its payload is that method's request, or `payload`, which `rule` looks at. */
struct command_rule {
	uint8_t whom;
	uint8_t method;
	const ProtobufCMessageDescriptor *payload;
	rule_fn rule;
};

static const struct command_rule command_rules[] = {
	[CMD(NONE)] = { .whom = FOR_REPLICAS },
	[CMD(PUT)] = { FOR_METHOD, METHOD_KV_PUT, NULL, NULL },
	[CMD(DELETE_RANGE)] = { FOR_METHOD, METHOD_KV_DELETE_RANGE, NULL, NULL },
	[CMD(TXN)] = { FOR_METHOD, METHOD_KV_TXN, NULL, NULL },
	[CMD(COMPACT)] = { FOR_METHOD, METHOD_KV_COMPACT, NULL, NULL },
	[CMD(LEASE_GRANT)] = { FOR_METHOD, METHOD_LEASE_GRANT, NULL, NULL },
	[CMD(LEASE_REVOKE)] = { FOR_METHOD, METHOD_LEASE_REVOKE, NULL, NULL },
	[CMD(LEASE_END)] = { .whom = FOR_REPLICAS },
	[CMD(LOCK)] = { FOR_METHOD, METHOD_LOCK_LOCK, &holdfast__internal__lock_command__descriptor, rule_lock_command },
	[CMD(UNLOCK)] = { FOR_METHOD, METHOD_LOCK_UNLOCK, NULL, NULL },
	[CMD(ABANDON)] = { .whom = FOR_REPLICAS }, /* names a call that was let in */
	[CMD(MEMBER_PUBLISH)] = { .whom = FOR_REPLICAS },
	[CMD(RESIGN)] = { FOR_METHOD, METHOD_ELECTION_RESIGN, NULL, NULL },
	[CMD(PROCLAIM)] = { FOR_METHOD, METHOD_ELECTION_PROCLAIM, NULL, NULL },
	[CMD(AUTO_COMPACT)] = { .whom = FOR_REPLICAS },
	[CMD(LOCK_BREAK)] = { FOR_METHOD, METHOD_LOCKS_BREAK_HOLD, NULL, NULL },
	[CMD(AUTH)] = { .whom = FOR_ROOT },
	[CMD(AUTHENTICATE)] = { .whom = FOR_REPLICAS }, /* its password was right */
	[CMD(ALARM)] = { .whom = FOR_REPLICAS }, /* a client's is judged when it arrives; the others are replicas' own */
	[CMD(RESTORED)] = { .whom = FOR_REPLICAS },
	[CMD(MEMBER_CHANGE)] = { FOR_METHOD, METHOD_CLUSTER_MEMBER_ADD, &holdfast__internal__member_change__descriptor, rule_member_change },
	[CMD(SESSION_OPEN)] = { FOR_METHOD, METHOD_SESSION_CONNECT, &holdfast__internal__session_opening__descriptor, rule_any_user },
	[CMD(SESSION_RESUME)] = { FOR_METHOD, METHOD_SESSION_CONNECT, &holdfast__internal__session_resuming__descriptor, rule_any_user },
	[CMD(SESSION_CLOSE)] = { .whom = FOR_REPLICAS }, /* by the stream that has it */
	[CMD(NODE_CREATE)] = { FOR_METHOD, METHOD_NODES_CREATE, NULL, NULL },
	[CMD(NODE_SET)] = { FOR_METHOD, METHOD_NODES_SET, NULL, NULL },
	[CMD(NODE_DELETE)] = { FOR_METHOD, METHOD_NODES_DELETE, NULL, NULL },
};
enum { COMMAND_RULES = sizeof(command_rules) / sizeof(command_rules[0]) };

static bool depends_on_request(enum method_permission p)
{
	switch (p) {
	case PERMISSION_NONE:
	case PERMISSION_AUTHENTICATED:
	case PERMISSION_ROOT:
		return false;
	default:
		return true;
	}
}

bool authorise_method_has_rule(enum method_id method)
{
	return depends_on_request(method_by_id(method)->permission) == (method_rules[method] != NULL);
}

bool authorise_command_has_rule(uint32_t kind)
{
	return kind < COMMAND_RULES && command_rules[kind].whom != FOR_NOBODY;
}

static enum err run_rule(const struct run *run, rule_fn rule, const ProtobufCMessageDescriptor *desc, struct slice request)
{
	const ProtobufCMessage *m;

	if (!rule)
		return ERR_PERMISSION_DENIED; /* Z4 */
	if (pb_check(desc, request, PB_CHECK_DEPTH_MAX) != PB_CHECK_OK)
		return ERR_MALFORMED;
	m = protobuf_c_message_unpack(desc, &run->az->arena->pb, request.len, request.ptr);
	return m ? rule(run, m) : ERR_MALFORMED;
}

enum err authorise_request(const struct authoriser *az, struct auth_who who, enum method_id method, struct slice request)
{
	struct run run = { az, who };

	if (!auth_is_enabled(az->auth))
		return ERR_OK;
	switch (method_by_id(method)->permission) {
	case PERMISSION_NONE:
		return ERR_OK;
	case PERMISSION_AUTHENTICATED:
		return auth_check_user(az->auth, who);
	case PERMISSION_ROOT:
		return auth_check_root(az->auth, who);
	default:
		return run_rule(&run, method_rules[method], method_by_id(method)->request, request);
	}
}

enum err authorise_command(const struct authoriser *az, const struct command *cmd)
{
	struct auth_who who = { cmd->user, cmd->auth_revision };
	struct run run = { az, who };
	const struct command_rule *r;

	if (!auth_is_enabled(az->auth))
		return ERR_OK;
	if (!authorise_command_has_rule(cmd->kind))
		return ERR_PERMISSION_DENIED; /* Z4 */
	r = &command_rules[cmd->kind];
	if (r->whom == FOR_REPLICAS)
		return ERR_OK;
	if (r->whom == FOR_ROOT)
		return auth_check_root(az->auth, who);
	if (r->payload)
		return run_rule(&run, r->rule, r->payload, cmd->payload);
	return authorise_request(az, who, (enum method_id)r->method, cmd->payload);
}
