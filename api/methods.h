/* methods.h: every RPC there is, in one table: its messages, how it streams, where the JSON gateway has it, what it may
 * change, and whom it is for. Both front ends, the services and the client read it; nobody spells a path twice. */
#ifndef HOLDFAST_METHODS_H
#define HOLDFAST_METHODS_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "base/slice.h"

/* METHOD_ + service + method, leaving out a service's name that the method repeats (LeaseGrant, AuthEnable). */
enum method_id {
	METHOD_KV_RANGE,
	METHOD_KV_RANGE_STREAM,
	METHOD_KV_PUT,
	METHOD_KV_DELETE_RANGE,
	METHOD_KV_TXN,
	METHOD_KV_COMPACT,

	METHOD_WATCH_WATCH,

	METHOD_LEASE_GRANT,
	METHOD_LEASE_REVOKE,
	METHOD_LEASE_KEEP_ALIVE,
	METHOD_LEASE_TIME_TO_LIVE,
	METHOD_LEASE_LEASES,

	METHOD_CLUSTER_MEMBER_ADD,
	METHOD_CLUSTER_MEMBER_REMOVE,
	METHOD_CLUSTER_MEMBER_UPDATE,
	METHOD_CLUSTER_MEMBER_LIST,
	METHOD_CLUSTER_MEMBER_PROMOTE,

	METHOD_MAINTENANCE_ALARM,
	METHOD_MAINTENANCE_STATUS,
	METHOD_MAINTENANCE_DEFRAGMENT,
	METHOD_MAINTENANCE_HASH,
	METHOD_MAINTENANCE_HASH_KV,
	METHOD_MAINTENANCE_SNAPSHOT,
	METHOD_MAINTENANCE_MOVE_LEADER,
	METHOD_MAINTENANCE_DOWNGRADE,

	METHOD_AUTH_ENABLE,
	METHOD_AUTH_DISABLE,
	METHOD_AUTH_STATUS,
	METHOD_AUTH_AUTHENTICATE,
	METHOD_AUTH_USER_ADD,
	METHOD_AUTH_USER_GET,
	METHOD_AUTH_USER_LIST,
	METHOD_AUTH_USER_DELETE,
	METHOD_AUTH_USER_CHANGE_PASSWORD,
	METHOD_AUTH_USER_GRANT_ROLE,
	METHOD_AUTH_USER_REVOKE_ROLE,
	METHOD_AUTH_ROLE_ADD,
	METHOD_AUTH_ROLE_GET,
	METHOD_AUTH_ROLE_LIST,
	METHOD_AUTH_ROLE_DELETE,
	METHOD_AUTH_ROLE_GRANT_PERMISSION,
	METHOD_AUTH_ROLE_REVOKE_PERMISSION,

	METHOD_ELECTION_CAMPAIGN,
	METHOD_ELECTION_PROCLAIM,
	METHOD_ELECTION_LEADER,
	METHOD_ELECTION_OBSERVE,
	METHOD_ELECTION_RESIGN,

	METHOD_LOCK_LOCK,
	METHOD_LOCK_UNLOCK,

	METHOD_LOCKS_LIST,
	METHOD_LOCKS_VERIFY,
	METHOD_LOCKS_BREAK_HOLD,

	METHOD_SESSION_CONNECT,

	METHOD_NODES_CREATE,
	METHOD_NODES_GET,
	METHOD_NODES_SET,
	METHOD_NODES_DELETE,
	METHOD_NODES_LIST,

	METHOD_HEALTH_CHECK,
	METHOD_HEALTH_WATCH,

	METHOD_REFLECTION_V1,
	METHOD_REFLECTION_V1ALPHA,

	METHOD_COUNT
};

enum method_stream {
	METHOD_UNARY,         /* one request, one reply */
	METHOD_SERVER_STREAM, /* one request, any number of replies */
	METHOD_BIDI_STREAM,   /* any number of both */
};

enum method_access {
	METHOD_READ,  /* puts nothing into the log: may be asked again freely */
	METHOD_WRITE, /* may put a command into the log: sent again after a lost answer, it may be done twice */
};

/* Whom a method is for while authentication is on (while it is off, everybody may do everything). The root role may
 * always. What depends on the request itself (the range, the operations of a transaction, the keys of a lease) is
 * checked where the request is known; this names the check. */
enum method_permission {
	PERMISSION_NONE,           /* everybody, with no token: only to get one */
	PERMISSION_AUTHENTICATED,  /* every user */
	PERMISSION_KEY_READ,       /* read permission on the request's range; of Watch, on each range it creates a watch for */
	PERMISSION_KEY_WRITE,      /* write permission on the request's range; with prev_kv, read permission too */
	PERMISSION_KEY_READ_WRITE, /* both: Txn by its compares and operations, the lock recipes on NAME + "/" */
	PERMISSION_LEASE,          /* every user; Revoke: write permission on the attached keys; TimeToLive with keys: read */
	PERMISSION_ROOT_OR_OWN,    /* root; every user for UserGet of oneself, RoleGet of a role one has, Alarm's GET */
	PERMISSION_ROOT,           /* the root role */
};

struct method {
	enum method_id id;
	const char *service;       /* "etcdserverpb.KV" */
	const char *name;          /* "Range" */
	const char *path;          /* "/etcdserverpb.KV/Range", as gRPC's :path */
	const char *json_paths[3]; /* POST; NULL-terminated, the usual one first; none: not in the gateway */
	const ProtobufCMessageDescriptor *request;
	const ProtobufCMessageDescriptor *reply;
	enum method_stream stream;
	enum method_access access;
	enum method_permission permission;
};

/* Rows are static and const. Any thread may ask at any time after main() has begun. */
const struct method *method_by_id(enum method_id id);                /* id < METHOD_COUNT, or an assert fails */
const struct method *method_by_path(struct slice path);              /* NULL when unknown; exact, with case. O(1) */
/* The path alone, without a query. "/v3beta/..." is taken for "/v3/...". NULL when unknown. O(1) */
const struct method *method_by_json_path(struct slice path);
/* What stays possible when all else is refused: it frees what others wait for, keeps somebody alive, or lets an operator look and mend (P12). */
bool method_is_reserved(enum method_id id);

#endif
