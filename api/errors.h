/* errors.h: every error there is, its gRPC status code, and the exact text a client sees.
 *
 * Zero is success. etcd's client libraries turn a text into a typed error by comparing all of it, so the texts that
 * begin with "etcdserver: " or "election: " are part of the wire: never reword one. Ours begin with "holdfast: ", and
 * are as fixed once released.
 *
 * Codes are those of etcd 3.5 and later. What an error is about (which key, which file) goes into a struct errmsg,
 * never into these texts. */
#ifndef HOLDFAST_ERRORS_H
#define HOLDFAST_ERRORS_H

#include <stdarg.h>

/* gRPC's own numbers, so that a front end may cast; the core can then do without a gRPC header. */
enum status_code {
	STATUS_OK = 0,
	STATUS_CANCELED = 1,
	STATUS_UNKNOWN = 2,
	STATUS_INVALID_ARGUMENT = 3,
	STATUS_DEADLINE_EXCEEDED = 4,
	STATUS_NOT_FOUND = 5,
	STATUS_ALREADY_EXISTS = 6,
	STATUS_PERMISSION_DENIED = 7,
	STATUS_RESOURCE_EXHAUSTED = 8,
	STATUS_FAILED_PRECONDITION = 9,
	STATUS_ABORTED = 10,
	STATUS_OUT_OF_RANGE = 11,
	STATUS_UNIMPLEMENTED = 12,
	STATUS_INTERNAL = 13,
	STATUS_UNAVAILABLE = 14,
	STATUS_DATA_LOSS = 15,
	STATUS_UNAUTHENTICATED = 16,
	STATUS_COUNT
};

/* X(error, status code, text). Append to a group; the numbers are not on any wire. */
#define ERR_TABLE_ETCD(X)                                                                                              \
	/* keys, revisions, transactions */                                                                            \
	X(ERR_EMPTY_KEY, STATUS_INVALID_ARGUMENT, "etcdserver: key is not provided")                                   \
	X(ERR_KEY_NOT_FOUND, STATUS_INVALID_ARGUMENT, "etcdserver: key not found")                                     \
	X(ERR_VALUE_PROVIDED, STATUS_INVALID_ARGUMENT, "etcdserver: value is provided")                                \
	X(ERR_LEASE_PROVIDED, STATUS_INVALID_ARGUMENT, "etcdserver: lease is provided")                                \
	X(ERR_TOO_MANY_OPS, STATUS_INVALID_ARGUMENT, "etcdserver: too many operations in txn request")                 \
	X(ERR_DUPLICATE_KEY, STATUS_INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request")                \
	X(ERR_INVALID_SORT_OPTION, STATUS_INVALID_ARGUMENT, "etcdserver: invalid sort option")                         \
	X(ERR_COMPACTED, STATUS_OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")                \
	X(ERR_FUTURE_REVISION, STATUS_OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")        \
	X(ERR_NO_SPACE, STATUS_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")                        \
	X(ERR_REQUEST_TOO_LARGE, STATUS_INVALID_ARGUMENT, "etcdserver: request is too large")                          \
	X(ERR_TOO_MANY_REQUESTS, STATUS_RESOURCE_EXHAUSTED, "etcdserver: too many requests")                           \
	X(ERR_WATCH_CANCELED, STATUS_CANCELED, "etcdserver: watch canceled")                                           \
	/* leases */                                                                                                   \
	X(ERR_LEASE_NOT_FOUND, STATUS_NOT_FOUND, "etcdserver: requested lease not found")                              \
	X(ERR_LEASE_EXISTS, STATUS_FAILED_PRECONDITION, "etcdserver: lease already exists")                            \
	X(ERR_LEASE_TTL_TOO_LARGE, STATUS_OUT_OF_RANGE, "etcdserver: too large lease TTL")                             \
	/* members */                                                                                                  \
	X(ERR_MEMBER_NOT_FOUND, STATUS_NOT_FOUND, "etcdserver: member not found")                                      \
	X(ERR_MEMBER_EXISTS, STATUS_FAILED_PRECONDITION, "etcdserver: member ID already exist")                        \
	X(ERR_PEER_URL_EXISTS, STATUS_FAILED_PRECONDITION, "etcdserver: Peer URLs already exists")                     \
	X(ERR_MEMBER_BAD_URLS, STATUS_INVALID_ARGUMENT, "etcdserver: given member URLs are invalid")                   \
	X(ERR_MEMBER_NOT_ENOUGH_STARTED, STATUS_FAILED_PRECONDITION,                                                   \
	  "etcdserver: re-configuration failed due to not enough started members")                                     \
	X(ERR_MEMBER_NOT_LEARNER, STATUS_FAILED_PRECONDITION, "etcdserver: can only promote a learner member")         \
	X(ERR_LEARNER_NOT_READY, STATUS_FAILED_PRECONDITION,                                                           \
	  "etcdserver: can only promote a learner member which is in sync with leader")                                \
	X(ERR_TOO_MANY_MEMBERS, STATUS_FAILED_PRECONDITION, "holdfast: too many members in the cell")                  \
	X(ERR_TOO_MANY_LEARNERS, STATUS_FAILED_PRECONDITION, "etcdserver: too many learner members in cluster")        \
	X(ERR_LEARNER_UNSUPPORTED, STATUS_FAILED_PRECONDITION, "etcdserver: rpc not supported for learner")            \
	X(ERR_CLUSTER_ID_MISMATCH, STATUS_FAILED_PRECONDITION, "etcdserver: cluster ID mismatch")                      \
	X(ERR_BAD_LEADER_TRANSFEREE, STATUS_FAILED_PRECONDITION, "etcdserver: bad leader transferee")                  \
	/* authentication */                                                                                           \
	X(ERR_AUTH_NOT_ENABLED, STATUS_FAILED_PRECONDITION, "etcdserver: authentication is not enabled")               \
	X(ERR_AUTH_FAILED, STATUS_INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password")  \
	X(ERR_AUTH_INVALID_TOKEN, STATUS_UNAUTHENTICATED, "etcdserver: invalid auth token")                            \
	X(ERR_AUTH_INVALID_MANAGEMENT, STATUS_INVALID_ARGUMENT, "etcdserver: invalid auth management")                 \
	X(ERR_AUTH_OLD_REVISION, STATUS_INVALID_ARGUMENT, "etcdserver: revision of auth store is old")                 \
	X(ERR_PERMISSION_DENIED, STATUS_PERMISSION_DENIED, "etcdserver: permission denied")                            \
	X(ERR_PERMISSION_NOT_GIVEN, STATUS_INVALID_ARGUMENT, "etcdserver: permission not given")                       \
	X(ERR_PERMISSION_NOT_GRANTED, STATUS_FAILED_PRECONDITION,                                                      \
	  "etcdserver: permission is not granted to the role")                                                         \
	X(ERR_ROOT_USER_MISSING, STATUS_FAILED_PRECONDITION, "etcdserver: root user does not exist")                   \
	X(ERR_ROOT_ROLE_MISSING, STATUS_FAILED_PRECONDITION, "etcdserver: root user does not have root role")          \
	X(ERR_USER_EXISTS, STATUS_FAILED_PRECONDITION, "etcdserver: user name already exists")                         \
	X(ERR_USER_NOT_FOUND, STATUS_FAILED_PRECONDITION, "etcdserver: user name not found")                           \
	X(ERR_USER_EMPTY, STATUS_INVALID_ARGUMENT, "etcdserver: user name is empty")                                   \
	X(ERR_ROLE_EXISTS, STATUS_FAILED_PRECONDITION, "etcdserver: role name already exists")                         \
	X(ERR_ROLE_NOT_FOUND, STATUS_FAILED_PRECONDITION, "etcdserver: role name not found")                           \
	X(ERR_ROLE_EMPTY, STATUS_INVALID_ARGUMENT, "etcdserver: role name is empty")                                   \
	X(ERR_ROLE_NOT_GRANTED, STATUS_FAILED_PRECONDITION, "etcdserver: role is not granted to the user")             \
	/* leadership, time, health. After a timeout or a lost leader the outcome of a write is not known. */          \
	X(ERR_NO_LEADER, STATUS_UNAVAILABLE, "etcdserver: no leader")                                                  \
	X(ERR_NOT_LEADER, STATUS_FAILED_PRECONDITION, "etcdserver: not leader")                                        \
	X(ERR_LEADER_CHANGED, STATUS_UNAVAILABLE, "etcdserver: leader changed")                                        \
	X(ERR_TIMEOUT, STATUS_UNAVAILABLE, "etcdserver: request timed out")                                            \
	X(ERR_TIMEOUT_LEADER_FAIL, STATUS_UNAVAILABLE,                                                                 \
	  "etcdserver: request timed out, possibly due to previous leader failure")                                    \
	X(ERR_TIMEOUT_CONN_LOST, STATUS_UNAVAILABLE, "etcdserver: request timed out, possibly due to connection lost") \
	X(ERR_TIMEOUT_APPLIED_INDEX, STATUS_UNAVAILABLE,                                                               \
	  "etcdserver: request timed out, waiting for the applied index took too long")                                \
	X(ERR_DEADLINE_EXCEEDED, STATUS_DEADLINE_EXCEEDED, "etcdserver: context deadline exceeded")                    \
	X(ERR_CANCELED, STATUS_CANCELED, "etcdserver: request canceled")                                               \
	X(ERR_STOPPED, STATUS_UNAVAILABLE, "etcdserver: server stopped")                                               \
	X(ERR_UNHEALTHY, STATUS_UNAVAILABLE, "etcdserver: unhealthy cluster")                                          \
	X(ERR_CLUSTER_CORRUPT, STATUS_DATA_LOSS, "etcdserver: corrupt cluster")                                        \
	/* versions */                                                                                                 \
	X(ERR_NOT_CAPABLE, STATUS_FAILED_PRECONDITION, "etcdserver: not capable")                                      \
	X(ERR_CLIENT_VERSION, STATUS_INVALID_ARGUMENT, "etcdserver: invalid client api version")                       \
	X(ERR_DOWNGRADE_BAD_FORMAT, STATUS_INVALID_ARGUMENT, "etcdserver: wrong downgrade target version format")      \
	X(ERR_DOWNGRADE_BAD_TARGET, STATUS_INVALID_ARGUMENT, "etcdserver: invalid downgrade target version")           \
	X(ERR_DOWNGRADE_IN_PROGRESS, STATUS_FAILED_PRECONDITION,                                                       \
	  "etcdserver: cluster has a downgrade job in progress")                                                       \
	X(ERR_DOWNGRADE_NONE, STATUS_FAILED_PRECONDITION, "etcdserver: no inflight downgrade job")                     \
	X(ERR_DOWNGRADE_NO_VERSION, STATUS_FAILED_PRECONDITION,                                                        \
	  "etcdserver: cluster version not found during downgrade")                                                    \
	/* elections */                                                                                                \
	X(ERR_ELECTION_NO_LEADER, STATUS_UNKNOWN, "election: no leader")                                               \
	X(ERR_ELECTION_NOT_LEADER, STATUS_UNKNOWN, "election: not leader")

/* What a client may see that etcd knows nothing of. */
#define ERR_TABLE_HOLDFAST(X)                                                                                          \
	/* A refused try or bound: nothing is held, and the place in the queue is gone. */                             \
	X(ERR_LOCK_HELD, STATUS_FAILED_PRECONDITION, "holdfast: the lock is held")                                     \
	X(ERR_LOCK_WAIT_TIMEOUT, STATUS_DEADLINE_EXCEEDED, "holdfast: the lock was not granted in the time given")     \
	X(ERR_LOCK_MODE_CHANGED, STATUS_FAILED_PRECONDITION,                                                           \
	  "holdfast: this lease already asked for the lock in another mode")                                           \
	/* Nothing was changed. Who asks again, where it is known by now who else does, takes over. */                  \
	X(ERR_LOCK_ASKED_ELSEWHERE, STATUS_UNAVAILABLE,                                                                \
	  "holdfast: this lease asks for the lock by another call, too: ask again")                                    \
	/* A key is a contender when it was created as LOCK/LEASE with that very lease; writes may not blur that. */   \
	X(ERR_CONTENDER_LEASE, STATUS_FAILED_PRECONDITION,                                                             \
	  "holdfast: the write would change the lease of a contender for a lock")                                      \
	X(ERR_CONTENDER_EXISTING_KEY, STATUS_FAILED_PRECONDITION,                                                      \
	  "holdfast: the write would turn an existing key into a contender for a lock")                                \
	X(ERR_CONTENDER_TWICE, STATUS_FAILED_PRECONDITION,                                                             \
	  "holdfast: the write would create two contenders for one lock at one revision")                              \
	X(ERR_NOT_CONTENDER, STATUS_FAILED_PRECONDITION, "holdfast: the key is not a contender for a lock")            \
	X(ERR_STALE_TOKEN, STATUS_FAILED_PRECONDITION, "holdfast: the fencing token is not the holder's")              \
	/* etcd's own text: clients must take it for the end of their lease, which it is. */                           \
	X(ERR_LEASE_ENDED_WAITING, STATUS_NOT_FOUND, "etcdserver: requested lease not found")                          \
	X(ERR_UNKNOWN_SESSION, STATUS_NOT_FOUND, "holdfast: no such session")                                          \
	X(ERR_REQUEST_ID_TOO_OLD, STATUS_FAILED_PRECONDITION,                                                          \
	  "holdfast: the result of this request ID is no longer kept")                                                 \
	X(ERR_REQUEST_ID_REUSED, STATUS_FAILED_PRECONDITION,                                                           \
	  "holdfast: this request ID was already used for another request")                                            \
	X(ERR_RESULT_TOO_LARGE, STATUS_FAILED_PRECONDITION,                                                            \
	  "holdfast: the request was applied, and its result was too large to keep: read it again")                    \
	X(ERR_OUTCOME_UNKNOWN, STATUS_UNAVAILABLE, "holdfast: the request may or may not have been applied")           \
	X(ERR_ALARM_TYPE, STATUS_INVALID_ARGUMENT, "holdfast: the alarm to raise is neither NOSPACE nor CORRUPT")      \
	X(ERR_DOWNGRADE_REFUSED, STATUS_FAILED_PRECONDITION,                                                           \
	  "holdfast: there is nothing to prepare for a downgrade: replace the replicas' binaries one by one")          \
	X(ERR_OVERLOADED, STATUS_RESOURCE_EXHAUSTED, "holdfast: overloaded, the request was not applied")              \
	X(ERR_UNIMPLEMENTED, STATUS_UNIMPLEMENTED, "holdfast: not implemented")                                        \
	/* Internal for bytes that are no message, as grpc-go servers say; bad JSON is the caller's argument. */       \
	X(ERR_MALFORMED, STATUS_INTERNAL, "holdfast: malformed request")                                               \
	X(ERR_UNKNOWN_SERVICE, STATUS_NOT_FOUND, "holdfast: unknown service")                                          \
	X(ERR_REPLY_NOT_TEXT, STATUS_FAILED_PRECONDITION, "holdfast: the reply has bytes that are not UTF-8, ask without text; what was asked for is done") \
	X(ERR_MALFORMED_JSON, STATUS_INVALID_ARGUMENT, "holdfast: malformed JSON")                                     \
	X(ERR_TOO_DEEP, STATUS_INVALID_ARGUMENT, "holdfast: the request is nested too deeply")                         \
	X(ERR_NEGATIVE, STATUS_INVALID_ARGUMENT, "holdfast: a number in the request must not be negative")             \
	X(ERR_BAD_METADATA, STATUS_INVALID_ARGUMENT, "holdfast: malformed metadata in the request")                    \
	/* sessions and nodes */                                                                                       \
	X(ERR_SESSION_ORDER, STATUS_INVALID_ARGUMENT,                                                                  \
	  "holdfast: a session's stream begins with open or resume, once")                                             \
	X(ERR_SESSION_SECRET, STATUS_PERMISSION_DENIED, "holdfast: the secret is not the session's")                   \
	X(ERR_SESSION_ACK, STATUS_INVALID_ARGUMENT,                                                                    \
	  "holdfast: an invalidation was acknowledged that was never sent")                                            \
	X(ERR_SESSION_ELSEWHERE, STATUS_FAILED_PRECONDITION,                                                           \
	  "holdfast: the session is not connected to this replica")                                                    \
	X(ERR_SESSION_SUPERSEDED, STATUS_FAILED_PRECONDITION,                                                          \
	  "holdfast: a later stream has resumed the session")                                                          \
	X(ERR_SESSION_PREFIX, STATUS_INVALID_ARGUMENT, "holdfast: malformed, or too many, cache prefixes")             \
	X(ERR_SESSION_NAME, STATUS_INVALID_ARGUMENT, "holdfast: the session's name is too long")                       \
	X(ERR_SESSION_TTL, STATUS_OUT_OF_RANGE, "holdfast: the session's TTL is negative or too large")                \
	X(ERR_TOO_MANY_SESSIONS, STATUS_RESOURCE_EXHAUSTED, "holdfast: too many sessions")                             \
	X(ERR_TOO_MANY_WATCHES, STATUS_RESOURCE_EXHAUSTED, "holdfast: too many watches")                               \
	X(ERR_SLOW_READER, STATUS_RESOURCE_EXHAUSTED,                                                                  \
	  "holdfast: the client does not read what it is sent")                                                        \
	X(ERR_RECOVERING, STATUS_UNAVAILABLE,                                                                          \
	  "holdfast: this replica's disk was damaged, it recovers from its peers: ask another")                        \
	X(ERR_BAD_PATH, STATUS_INVALID_ARGUMENT, "holdfast: malformed path")                                           \
	X(ERR_PATH_TOO_DEEP, STATUS_INVALID_ARGUMENT, "holdfast: the path is too deep or too long")                    \
	X(ERR_VALUE_TOO_LARGE, STATUS_INVALID_ARGUMENT, "holdfast: the value is larger than 64 KiB")                   \
	X(ERR_NODE_EXISTS, STATUS_ALREADY_EXISTS, "holdfast: the node exists already")                                 \
	X(ERR_NODE_NOT_FOUND, STATUS_NOT_FOUND, "holdfast: no such node")                                              \
	X(ERR_NODE_VERSION, STATUS_FAILED_PRECONDITION, "holdfast: the node has another version")

/* Between our own parts. Should one escape to a client, Unavailable says "another replica may do it", Internal that
 * none will. */
#define ERR_TABLE_SYSTEM(X)                                                                                            \
	X(ERR_NOMEM, STATUS_UNAVAILABLE, "holdfast: out of memory")                                                    \
	X(ERR_IO, STATUS_UNAVAILABLE, "holdfast: input/output error")                                                  \
	X(ERR_DISK_FULL, STATUS_UNAVAILABLE, "holdfast: no space left on the disk")                                    \
	X(ERR_CORRUPT, STATUS_INTERNAL, "holdfast: stored data is damaged")                                            \
	X(ERR_NOT_FOUND, STATUS_INTERNAL, "holdfast: not found")                                                       \
	X(ERR_EXISTS, STATUS_INTERNAL, "holdfast: already exists")                                                     \
	X(ERR_SYNTAX, STATUS_INTERNAL, "holdfast: syntax error")                                                       \
	X(ERR_RANGE, STATUS_INTERNAL, "holdfast: out of range")                                                        \
	X(ERR_WRONG_CELL, STATUS_INTERNAL, "holdfast: belongs to another cell")                                        \
	X(ERR_WRONG_MEMBER, STATUS_INTERNAL, "holdfast: belongs to another member")                                    \
	X(ERR_WRONG_VERSION, STATUS_INTERNAL, "holdfast: a version this release does not read")                        \
	X(ERR_BUSY, STATUS_UNAVAILABLE, "holdfast: busy")                                                              \
	X(ERR_CLOSED, STATUS_UNAVAILABLE, "holdfast: closed")

#define ERR_TABLE(X)                                                                                                   \
	ERR_TABLE_ETCD(X)                                                                                              \
	ERR_TABLE_HOLDFAST(X)                                                                                          \
	ERR_TABLE_SYSTEM(X)

enum err {
	ERR_OK = 0,
#define X(id, status, text) id,
	ERR_TABLE(X)
#undef X
	ERR_COUNT
};

/* All three take any value whatever: one that is no error of ours reads "ERR_?", "holdfast: unknown error",
 * STATUS_INTERNAL. The strings are static. */
const char *err_name(enum err e);             /* "ERR_COMPACTED", for logs and tests */
const char *err_text(enum err e);             /* the gRPC status message; "" for ERR_OK */
enum status_code err_status(enum err e);      /* STATUS_OK for ERR_OK alone */
const char *status_name(enum status_code s);  /* "FailedPrecondition", as gRPC spells it, or "?" */

/* What an error was about, for people. The caller owns it, zeroed or not; the callee that fails writes it. */
struct errmsg {
	char text[512];
};

/* Formats, and cuts what does not fit (never in the middle of a UTF-8 character). A NULL em is a caller who does not
 * care: nothing happens. Arguments may point into em->text. */
void errmsg_set(struct errmsg *em, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void errmsg_setv(struct errmsg *em, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

#endif
