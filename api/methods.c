/* methods.c: the method table, and an index from paths to its rows.
 *
 * The index is built before main(), so look-ups need no lock and rows stay in the order of the services. It is open
 * addressing over a power of two:
 *   (I1) at most half of the slots are taken, so a probe always meets an empty one.
 *   (I2) a slot holds a row's number plus one; the strings stay in the rows. */
#include "methods.h"

#include "base/hash.h"
#include "base/mem.h"
#include "etcd/rpc.pb-c.h"
#include "etcd/v3election.pb-c.h"
#include "etcd/v3lock.pb-c.h"
#include "ext/health.pb-c.h"
#include "ext/reflection_v1.pb-c.h"
#include "ext/reflection_v1alpha.pb-c.h"
#include "holdfast/v1.pb-c.h"

/* METHOD(service, method, id, request, reply, stream, access, permission, JSON paths...) */
#define METHOD(service_, name_, id_, request_, reply_, stream_, access_, permission_, ...)                             \
	[METHOD_##id_] = { .id = METHOD_##id_,                                                                         \
			   .service = service_,                                                                        \
			   .name = name_,                                                                              \
			   .path = "/" service_ "/" name_,                                                             \
			   .json_paths = { __VA_ARGS__ },                                                              \
			   .request = &request_##__descriptor,                                                         \
			   .reply = &reply_##__descriptor,                                                             \
			   .stream = METHOD_##stream_,                                                                 \
			   .access = METHOD_##access_,                                                                 \
			   .permission = PERMISSION_##permission_ }

static const struct method methods[METHOD_COUNT] = {
	METHOD("etcdserverpb.KV", "Range", KV_RANGE,
	       etcdserverpb__range_request, etcdserverpb__range_response,
	       UNARY, READ, KEY_READ, "/v3/kv/range"),
	METHOD("etcdserverpb.KV", "RangeStream", KV_RANGE_STREAM,
	       etcdserverpb__range_request, etcdserverpb__range_stream_response,
	       SERVER_STREAM, READ, KEY_READ, NULL),
	METHOD("etcdserverpb.KV", "Put", KV_PUT,
	       etcdserverpb__put_request, etcdserverpb__put_response,
	       UNARY, WRITE, KEY_WRITE, "/v3/kv/put"),
	METHOD("etcdserverpb.KV", "DeleteRange", KV_DELETE_RANGE,
	       etcdserverpb__delete_range_request, etcdserverpb__delete_range_response,
	       UNARY, WRITE, KEY_WRITE, "/v3/kv/deleterange"),
	METHOD("etcdserverpb.KV", "Txn", KV_TXN,
	       etcdserverpb__txn_request, etcdserverpb__txn_response,
	       UNARY, WRITE, KEY_READ_WRITE, "/v3/kv/txn"),
	METHOD("etcdserverpb.KV", "Compact", KV_COMPACT,
	       etcdserverpb__compaction_request, etcdserverpb__compaction_response,
	       UNARY, WRITE, ROOT, "/v3/kv/compaction"),

	METHOD("etcdserverpb.Watch", "Watch", WATCH_WATCH,
	       etcdserverpb__watch_request, etcdserverpb__watch_response,
	       BIDI_STREAM, READ, KEY_READ, "/v3/watch"),

	METHOD("etcdserverpb.Lease", "LeaseGrant", LEASE_GRANT,
	       etcdserverpb__lease_grant_request, etcdserverpb__lease_grant_response,
	       UNARY, WRITE, LEASE, "/v3/lease/grant"),
	METHOD("etcdserverpb.Lease", "LeaseRevoke", LEASE_REVOKE,
	       etcdserverpb__lease_revoke_request, etcdserverpb__lease_revoke_response,
	       UNARY, WRITE, LEASE, "/v3/lease/revoke", "/v3/kv/lease/revoke"),
	METHOD("etcdserverpb.Lease", "LeaseKeepAlive", LEASE_KEEP_ALIVE,
	       etcdserverpb__lease_keep_alive_request, etcdserverpb__lease_keep_alive_response,
	       BIDI_STREAM, READ, LEASE, "/v3/lease/keepalive"),
	METHOD("etcdserverpb.Lease", "LeaseTimeToLive", LEASE_TIME_TO_LIVE,
	       etcdserverpb__lease_time_to_live_request, etcdserverpb__lease_time_to_live_response,
	       UNARY, READ, LEASE, "/v3/lease/timetolive", "/v3/kv/lease/timetolive"),
	METHOD("etcdserverpb.Lease", "LeaseLeases", LEASE_LEASES,
	       etcdserverpb__lease_leases_request, etcdserverpb__lease_leases_response,
	       UNARY, READ, LEASE, "/v3/lease/leases", "/v3/kv/lease/leases"),

	METHOD("etcdserverpb.Cluster", "MemberAdd", CLUSTER_MEMBER_ADD,
	       etcdserverpb__member_add_request, etcdserverpb__member_add_response,
	       UNARY, WRITE, ROOT, "/v3/cluster/member/add"),
	METHOD("etcdserverpb.Cluster", "MemberRemove", CLUSTER_MEMBER_REMOVE,
	       etcdserverpb__member_remove_request, etcdserverpb__member_remove_response,
	       UNARY, WRITE, ROOT, "/v3/cluster/member/remove"),
	METHOD("etcdserverpb.Cluster", "MemberUpdate", CLUSTER_MEMBER_UPDATE,
	       etcdserverpb__member_update_request, etcdserverpb__member_update_response,
	       UNARY, WRITE, ROOT, "/v3/cluster/member/update"),
	METHOD("etcdserverpb.Cluster", "MemberList", CLUSTER_MEMBER_LIST,
	       etcdserverpb__member_list_request, etcdserverpb__member_list_response,
	       UNARY, READ, AUTHENTICATED, "/v3/cluster/member/list"),
	METHOD("etcdserverpb.Cluster", "MemberPromote", CLUSTER_MEMBER_PROMOTE,
	       etcdserverpb__member_promote_request, etcdserverpb__member_promote_response,
	       UNARY, WRITE, ROOT, "/v3/cluster/member/promote"),

	METHOD("etcdserverpb.Maintenance", "Alarm", MAINTENANCE_ALARM,
	       etcdserverpb__alarm_request, etcdserverpb__alarm_response,
	       UNARY, WRITE, ROOT_OR_OWN, "/v3/maintenance/alarm"),
	METHOD("etcdserverpb.Maintenance", "Status", MAINTENANCE_STATUS,
	       etcdserverpb__status_request, etcdserverpb__status_response,
	       UNARY, READ, ROOT, "/v3/maintenance/status"),
	METHOD("etcdserverpb.Maintenance", "Defragment", MAINTENANCE_DEFRAGMENT,
	       etcdserverpb__defragment_request, etcdserverpb__defragment_response,
	       UNARY, READ, ROOT, "/v3/maintenance/defragment"),
	METHOD("etcdserverpb.Maintenance", "Hash", MAINTENANCE_HASH,
	       etcdserverpb__hash_request, etcdserverpb__hash_response,
	       UNARY, READ, ROOT, "/v3/maintenance/hash"),
	METHOD("etcdserverpb.Maintenance", "HashKV", MAINTENANCE_HASH_KV,
	       etcdserverpb__hash_kvrequest, etcdserverpb__hash_kvresponse,
	       UNARY, READ, ROOT, "/v3/maintenance/hashkv"),
	METHOD("etcdserverpb.Maintenance", "Snapshot", MAINTENANCE_SNAPSHOT,
	       etcdserverpb__snapshot_request, etcdserverpb__snapshot_response,
	       SERVER_STREAM, READ, ROOT, "/v3/maintenance/snapshot"),
	METHOD("etcdserverpb.Maintenance", "MoveLeader", MAINTENANCE_MOVE_LEADER,
	       etcdserverpb__move_leader_request, etcdserverpb__move_leader_response,
	       UNARY, READ, ROOT, "/v3/maintenance/transfer-leadership"),
	METHOD("etcdserverpb.Maintenance", "Downgrade", MAINTENANCE_DOWNGRADE,
	       etcdserverpb__downgrade_request, etcdserverpb__downgrade_response,
	       UNARY, WRITE, ROOT, "/v3/maintenance/downgrade"),

	METHOD("etcdserverpb.Auth", "AuthEnable", AUTH_ENABLE,
	       etcdserverpb__auth_enable_request, etcdserverpb__auth_enable_response,
	       UNARY, WRITE, ROOT, "/v3/auth/enable"),
	METHOD("etcdserverpb.Auth", "AuthDisable", AUTH_DISABLE,
	       etcdserverpb__auth_disable_request, etcdserverpb__auth_disable_response,
	       UNARY, WRITE, ROOT, "/v3/auth/disable"),
	METHOD("etcdserverpb.Auth", "AuthStatus", AUTH_STATUS,
	       etcdserverpb__auth_status_request, etcdserverpb__auth_status_response,
	       UNARY, READ, ROOT, "/v3/auth/status"),
	METHOD("etcdserverpb.Auth", "Authenticate", AUTH_AUTHENTICATE,
	       etcdserverpb__authenticate_request, etcdserverpb__authenticate_response,
	       UNARY, WRITE, NONE, "/v3/auth/authenticate"),
	METHOD("etcdserverpb.Auth", "UserAdd", AUTH_USER_ADD,
	       etcdserverpb__auth_user_add_request, etcdserverpb__auth_user_add_response,
	       UNARY, WRITE, ROOT, "/v3/auth/user/add"),
	METHOD("etcdserverpb.Auth", "UserGet", AUTH_USER_GET,
	       etcdserverpb__auth_user_get_request, etcdserverpb__auth_user_get_response,
	       UNARY, READ, ROOT_OR_OWN, "/v3/auth/user/get"),
	METHOD("etcdserverpb.Auth", "UserList", AUTH_USER_LIST,
	       etcdserverpb__auth_user_list_request, etcdserverpb__auth_user_list_response,
	       UNARY, READ, ROOT, "/v3/auth/user/list"),
	METHOD("etcdserverpb.Auth", "UserDelete", AUTH_USER_DELETE,
	       etcdserverpb__auth_user_delete_request, etcdserverpb__auth_user_delete_response,
	       UNARY, WRITE, ROOT, "/v3/auth/user/delete"),
	METHOD("etcdserverpb.Auth", "UserChangePassword", AUTH_USER_CHANGE_PASSWORD,
	       etcdserverpb__auth_user_change_password_request, etcdserverpb__auth_user_change_password_response,
	       UNARY, WRITE, ROOT, "/v3/auth/user/changepw"),
	METHOD("etcdserverpb.Auth", "UserGrantRole", AUTH_USER_GRANT_ROLE,
	       etcdserverpb__auth_user_grant_role_request, etcdserverpb__auth_user_grant_role_response,
	       UNARY, WRITE, ROOT, "/v3/auth/user/grant"),
	METHOD("etcdserverpb.Auth", "UserRevokeRole", AUTH_USER_REVOKE_ROLE,
	       etcdserverpb__auth_user_revoke_role_request, etcdserverpb__auth_user_revoke_role_response,
	       UNARY, WRITE, ROOT, "/v3/auth/user/revoke"),
	METHOD("etcdserverpb.Auth", "RoleAdd", AUTH_ROLE_ADD,
	       etcdserverpb__auth_role_add_request, etcdserverpb__auth_role_add_response,
	       UNARY, WRITE, ROOT, "/v3/auth/role/add"),
	METHOD("etcdserverpb.Auth", "RoleGet", AUTH_ROLE_GET,
	       etcdserverpb__auth_role_get_request, etcdserverpb__auth_role_get_response,
	       UNARY, READ, ROOT_OR_OWN, "/v3/auth/role/get"),
	METHOD("etcdserverpb.Auth", "RoleList", AUTH_ROLE_LIST,
	       etcdserverpb__auth_role_list_request, etcdserverpb__auth_role_list_response,
	       UNARY, READ, ROOT, "/v3/auth/role/list"),
	METHOD("etcdserverpb.Auth", "RoleDelete", AUTH_ROLE_DELETE,
	       etcdserverpb__auth_role_delete_request, etcdserverpb__auth_role_delete_response,
	       UNARY, WRITE, ROOT, "/v3/auth/role/delete"),
	METHOD("etcdserverpb.Auth", "RoleGrantPermission", AUTH_ROLE_GRANT_PERMISSION,
	       etcdserverpb__auth_role_grant_permission_request, etcdserverpb__auth_role_grant_permission_response,
	       UNARY, WRITE, ROOT, "/v3/auth/role/grant"),
	METHOD("etcdserverpb.Auth", "RoleRevokePermission", AUTH_ROLE_REVOKE_PERMISSION,
	       etcdserverpb__auth_role_revoke_permission_request,
	       etcdserverpb__auth_role_revoke_permission_response,
	       UNARY, WRITE, ROOT, "/v3/auth/role/revoke"),

	METHOD("v3electionpb.Election", "Campaign", ELECTION_CAMPAIGN,
	       v3electionpb__campaign_request, v3electionpb__campaign_response,
	       UNARY, WRITE, KEY_READ_WRITE, "/v3/election/campaign"),
	METHOD("v3electionpb.Election", "Proclaim", ELECTION_PROCLAIM,
	       v3electionpb__proclaim_request, v3electionpb__proclaim_response,
	       UNARY, WRITE, KEY_READ_WRITE, "/v3/election/proclaim"),
	METHOD("v3electionpb.Election", "Leader", ELECTION_LEADER,
	       v3electionpb__leader_request, v3electionpb__leader_response,
	       UNARY, READ, KEY_READ, "/v3/election/leader"),
	METHOD("v3electionpb.Election", "Observe", ELECTION_OBSERVE,
	       v3electionpb__leader_request, v3electionpb__leader_response,
	       SERVER_STREAM, READ, KEY_READ, "/v3/election/observe"),
	METHOD("v3electionpb.Election", "Resign", ELECTION_RESIGN,
	       v3electionpb__resign_request, v3electionpb__resign_response,
	       UNARY, WRITE, KEY_READ_WRITE, "/v3/election/resign"),

	METHOD("v3lockpb.Lock", "Lock", LOCK_LOCK,
	       v3lockpb__lock_request, v3lockpb__lock_response,
	       UNARY, WRITE, KEY_READ_WRITE, "/v3/lock/lock"),
	METHOD("v3lockpb.Lock", "Unlock", LOCK_UNLOCK,
	       v3lockpb__unlock_request, v3lockpb__unlock_response,
	       UNARY, WRITE, KEY_WRITE, "/v3/lock/unlock"),

	METHOD("holdfast.v1.Locks", "List", LOCKS_LIST,
	       holdfast__v1__locks_list_request, holdfast__v1__locks_list_response,
	       UNARY, READ, KEY_READ, "/v3/holdfast/locks/list"),
	METHOD("holdfast.v1.Locks", "Verify", LOCKS_VERIFY,
	       holdfast__v1__locks_verify_request, holdfast__v1__locks_verify_response,
	       UNARY, READ, KEY_READ, "/v3/holdfast/locks/verify"),
	METHOD("holdfast.v1.Locks", "BreakHold", LOCKS_BREAK_HOLD,
	       holdfast__v1__locks_break_request, holdfast__v1__locks_break_response,
	       UNARY, WRITE, ROOT, "/v3/holdfast/locks/break"),

	METHOD("holdfast.v1.Session", "Connect", SESSION_CONNECT,
	       holdfast__v1__session_request, holdfast__v1__session_response,
	       BIDI_STREAM, WRITE, LEASE, NULL),

	METHOD("holdfast.v1.Nodes", "Create", NODES_CREATE,
	       holdfast__v1__nodes_create_request, holdfast__v1__nodes_create_response,
	       UNARY, WRITE, KEY_WRITE, "/v3/holdfast/nodes/create"),
	METHOD("holdfast.v1.Nodes", "Get", NODES_GET,
	       holdfast__v1__nodes_get_request, holdfast__v1__nodes_get_response,
	       UNARY, READ, KEY_READ, "/v3/holdfast/nodes/get"),
	METHOD("holdfast.v1.Nodes", "Set", NODES_SET,
	       holdfast__v1__nodes_set_request, holdfast__v1__nodes_set_response,
	       UNARY, WRITE, KEY_WRITE, "/v3/holdfast/nodes/set"),
	METHOD("holdfast.v1.Nodes", "Delete", NODES_DELETE,
	       holdfast__v1__nodes_delete_request, holdfast__v1__nodes_delete_response,
	       UNARY, WRITE, KEY_WRITE, "/v3/holdfast/nodes/delete"),
	METHOD("holdfast.v1.Nodes", "List", NODES_LIST,
	       holdfast__v1__nodes_list_request, holdfast__v1__nodes_list_response,
	       UNARY, READ, KEY_READ, "/v3/holdfast/nodes/list"),

	METHOD("grpc.health.v1.Health", "Check", HEALTH_CHECK,
	       grpc__health__v1__health_check_request, grpc__health__v1__health_check_response,
	       UNARY, READ, NONE, NULL),
	METHOD("grpc.health.v1.Health", "Watch", HEALTH_WATCH,
	       grpc__health__v1__health_check_request, grpc__health__v1__health_check_response,
	       SERVER_STREAM, READ, NONE, NULL),

	METHOD("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo", REFLECTION_V1,
	       grpc__reflection__v1__server_reflection_request, grpc__reflection__v1__server_reflection_response,
	       BIDI_STREAM, READ, NONE, NULL),
	METHOD("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo", REFLECTION_V1ALPHA,
	       grpc__reflection__v1alpha__server_reflection_request, grpc__reflection__v1alpha__server_reflection_response,
	       BIDI_STREAM, READ, NONE, NULL),
};

enum {
	PATH_SLOTS = 256, /* (I1): some fifty methods have a path or two each */
	JSON_PATHS_MAX = sizeof methods[0].json_paths / sizeof methods[0].json_paths[0] - 1,
};

static uint8_t by_path[PATH_SLOTS];
static uint8_t by_json_path[PATH_SLOTS];

static const char *path_of(const struct method *m, int nr)
{
	return nr == 0 ? m->path : NULL;
}

static const char *json_path_of(const struct method *m, int nr)
{
	return nr < JSON_PATHS_MAX ? m->json_paths[nr] : NULL;
}

/* The nr-th name of a row in one of the indexes; NULL after the last. */
typedef const char *(*name_fn)(const struct method *m, int nr);

static bool row_has_name(const struct method *m, name_fn name_of, struct slice name)
{
	const char *own;

	for (int nr = 0; (own = name_of(m, nr)); nr++)
		if (slice_eq(slice_of_str(own), name))
			return true;
	return false;
}

static size_t slot_of(struct slice name)
{
	return hash64(0, name.ptr, name.len) % PATH_SLOTS;
}

static void index_build(uint8_t *slots, name_fn name_of)
{
	const char *name;
	size_t taken = 0;

	for (size_t id = 0; id < METHOD_COUNT; id++) {
		for (int nr = 0; (name = name_of(&methods[id], nr)); nr++) {
			size_t slot = slot_of(slice_of_str(name));

			while (slots[slot])
				slot = (slot + 1) % PATH_SLOTS;
			slots[slot] = (uint8_t)(id + 1);
			taken++;
		}
	}
	ASSERT(taken <= PATH_SLOTS / 2);
}

static const struct method *index_find(const uint8_t *slots, name_fn name_of, struct slice name)
{
	for (size_t slot = slot_of(name); slots[slot]; slot = (slot + 1) % PATH_SLOTS) {
		const struct method *m = &methods[slots[slot] - 1];

		if (row_has_name(m, name_of, name))
			return m;
	}
	return NULL;
}

__attribute__((constructor)) static void methods_index(void)
{
	_Static_assert(METHOD_COUNT < UINT8_MAX, "a row's number plus one fits a slot");
	index_build(by_path, path_of);
	index_build(by_json_path, json_path_of);
}

const struct method *method_by_id(enum method_id id)
{
	ASSERT((unsigned)id < METHOD_COUNT);
	return &methods[id];
}

const struct method *method_by_path(struct slice path)
{
	return index_find(by_path, path_of, path);
}

const struct method *method_by_json_path(struct slice path)
{
	static const char beta[] = "/v3beta/", stable[] = "/v3/";
	char as_stable[128];

	if (!slice_starts_with(path, slice_of_str(beta)))
		return index_find(by_json_path, json_path_of, path);

	path = slice_of(path.ptr + strlen(beta), path.len - strlen(beta));
	if (path.len > sizeof as_stable - strlen(stable))
		return NULL; /* no path of ours is that long */
	memcpy(as_stable, stable, strlen(stable));
	memcpy(as_stable + strlen(stable), path.ptr, path.len);
	return index_find(by_json_path, json_path_of, slice_of(as_stable, strlen(stable) + path.len));
}

bool method_is_reserved(enum method_id id)
{
	return id == METHOD_LOCK_UNLOCK || id == METHOD_LOCKS_BREAK_HOLD || id == METHOD_LEASE_REVOKE || id == METHOD_KV_DELETE_RANGE || id == METHOD_LEASE_KEEP_ALIVE ||
	       id == METHOD_ELECTION_RESIGN || id == METHOD_NODES_DELETE || id == METHOD_MAINTENANCE_STATUS || id == METHOD_MAINTENANCE_MOVE_LEADER ||
	       id == METHOD_CLUSTER_MEMBER_REMOVE || id == METHOD_MAINTENANCE_ALARM;
}
