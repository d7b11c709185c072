/* kv.h: etcd's KV requests carried out on the state: checks that need the state, execution, the reply's bytes.
 *
 * Ties store, lease and lock together: every change of a key attaches and detaches leases and keeps the index of contenders; a lease that
 * ends takes its keys along. Requests come as packed protobuf (the log holds them so); replies leave as packed protobuf, written by
 * hand (base/pbw.h). All calls: core's thread. The same call on equal states does and answers the same (P10).
 *
 * Nothing here trusts a command's bytes: an entry that does not unpack or breaks a rule changes nothing and answers ERR_MALFORMED or the
 * rule's error, on every replica alike.
 */
#ifndef HOLDFAST_CORE_KV_H
#define HOLDFAST_CORE_KV_H

#include "base/arena.h"
#include "base/pbw.h"
#include "core/command.h"
#include "core/lease/lease.h"
#include "core/lock/lock.h"
#include "core/once/once.h"
#include "core/session/cache.h"
#include "core/store/store.h"
#include "core/wire.h"
#include "etcd/rpc.pb-c.h"
#include "holdfast/v1.pb-c.h"

/* What a reply's header says (etcdserverpb.ResponseHeader); revision is filled in here. */
struct kv_header {
	uint64_t cell_id;
	member_id member;
	raft_term term;
};

/* What was done here since the start, for people; never part of the state. */
enum { KV_TTL_BUCKETS = 24 }; /* 1, 2, 4 ... 2^23 s */
struct kv_counts {
	uint64_t puts, put_bytes, deletes, ranges, txns, compacted;
	uint64_t leases_granted, leases_ended, leases_expired; /* ended: expired or not */
	uint64_t ttl_sum_s, ttls[KV_TTL_BUCKETS];               /* of leases granted; each bucket by itself, what is longer is in none */
};

struct kv_env {
	struct state *state;
	struct store *store;
	struct lessor *lessor;
	struct locks *locks;
	struct once *once;       /* NULL (in tests of other things): no command names a session */
	struct arena *arena;     /* scratch, cleared by the caller */
	struct kv_header header;
	time_ms now;             /* for deadlines of granted leases; never part of the state */
	void (*session_ended)(void *ctx, lease_id id); /* NULL: nobody listens. An open session's record is gone */
	void *session_ctx;
	struct kv_counts counts;
	uint32_t max_txn_ops;    /* 128: for kv_check_txn before a request is proposed; an applied entry is not judged by it (see kv.c) */
};

void kv_attach(struct kv_env *env); /* once: listens to store_on_change */
/* After state was replaced: rebuilds store, lessor and locks from state. */
void kv_rebuild(struct kv_env *env);

/* Checks that need no state, in etcd's order with etcd's errors: for the service before it submits, for any unpacked request.
 * Thread safe. Range: ERR_EMPTY_KEY, ERR_INVALID_SORT_OPTION ...; Put; DeleteRange; Txn: ops count, duplicates, nested. */
enum err kv_check_range(const Etcdserverpb__RangeRequest *r);
enum err kv_check_range_stream(const Etcdserverpb__RangeRequest *r); /* and ERR_UNIMPLEMENTED: it would have to be sorted, or filtered, first */
enum err kv_check_put(const Etcdserverpb__PutRequest *r);
enum err kv_check_delete_range(const Etcdserverpb__DeleteRangeRequest *r);
enum err kv_check_txn(const Etcdserverpb__TxnRequest *r, uint32_t max_ops);
/* No put and no delete in any branch: it may be answered as a read. ret_serializable (set only then): it has ranges, and all of them are. */
bool kv_txn_is_read_only(const Etcdserverpb__TxnRequest *r, bool *ret_serializable);

/* Reads: the reply's bytes are appended to ret. */
enum err kv_range(struct kv_env *env, struct slice request, struct buf *ret);
/* The beginning of a Range's reply, of no more than KV_PART_BYTES and one pair: when that cuts it short, it has `more`, fewer pairs than the limit, and
 * no count; what follows its last key is still to be asked for, at the same revision. */
enum { KV_PART_BYTES = 1 << 20 };
enum err kv_range_part(struct kv_env *env, struct slice request, struct buf *ret);
enum err kv_txn_read(struct kv_env *env, struct slice request, struct buf *ret);

/* Writes, from applied entries only. ret NULL: nobody asks for the reply here. */
enum err kv_put(struct kv_env *env, struct slice request, struct buf *ret);
enum err kv_delete_range(struct kv_env *env, struct slice request, struct buf *ret);
enum err kv_txn(struct kv_env *env, struct slice request, struct buf *ret);
enum err kv_compact(struct kv_env *env, struct slice request, struct buf *ret);
enum err kv_lease_grant(struct kv_env *env, struct slice request, struct buf *ret);   /* ID is not 0 here */
enum err kv_lease_revoke(struct kv_env *env, struct slice request, struct buf *ret);  /* its keys go in one revision */
/* internal.LeaseEnd: one revision a lease that has keys. Leases that are gone are passed over; of another term than the entry's: ERR_OK, and
 * nothing happens. */
enum err kv_lease_end(struct kv_env *env, struct slice payload, raft_term entry_term);

/* As commands have it (CallId of internal.proto); nothing in it: all 0. */
static inline void call_id_put(struct buf *out, uint32_t field, struct call_id id)
{
	size_t mark = pbw_open(out, field);

	pbw_u64(out, 1, id.member);
	pbw_u64(out, 2, id.boot);
	pbw_u64(out, 3, id.call);
	pbw_close(out, mark);
}
static inline struct call_id call_id_find(struct slice payload, uint32_t field)
{
	struct slice id = wire_find_bytes(payload, field);

	return (struct call_id){ wire_find_u64(id, 1, 0), wire_find_u64(id, 2, 0), wire_find_u64(id, 3, 0) };
}

/* Locks. kv_lock answers where the call now stands; a waiting call is answered later by whoever was asked. */
enum kv_lock_outcome { KV_LOCK_HELD, KV_LOCK_WAITING };
struct kv_lock_result {
	enum kv_lock_outcome outcome;
	struct buf key;           /* owned by the caller */
	revision token;           /* create_revision */
	lease_id lease;
	int64_t ttl_s;            /* of the lease */
};
/* ERR_EMPTY_KEY: no name (etcd takes it; locks.c says why not here); ERR_NEGATIVE: wait_ms; ERR_LEASE_NOT_FOUND; with grant_lease ERR_LEASE_EXISTS,
 * ERR_LEASE_TTL_TOO_LARGE; ERR_LOCK_MODE_CHANGED; ERR_CONTENDER_EXISTING_KEY: the key is there and is not this lease's contender; ERR_LOCK_HELD: a
 * try that failed and left nothing behind (a place that its lease had in the queue is given up, too, when it takes over from who asked for it: J6);
 * ERR_LOCK_ASKED_ELSEWHERE. ret may be NULL; untouched on error. */
enum err kv_lock(struct kv_env *env, struct slice payload /* internal.LockCommand */, struct kv_lock_result *ret);
/* ERR_OK too when the key is gone, or the token is below its create_revision (that hold is over; nothing happens). ERR_EMPTY_KEY, ERR_NEGATIVE,
 * ERR_NOT_CONTENDER, ERR_STALE_TOKEN: the token is above its create_revision, so no hold of this key ever had it. */
enum err kv_unlock(struct kv_env *env, struct slice request, struct buf *ret);
/* The call asks no more. When it was the last that did, the contender goes (J4), and with revoke_lease, when that is its lease, the lease and all
 * its keys. ERR_OK too when nothing happens. */
enum err kv_abandon(struct kv_env *env, struct slice payload);
/* LockResponse bytes for a granted call. */
void kv_lock_reply(struct kv_env *env, const struct kv_lock_result *r, struct buf *ret);

/* Who is in the way, as a holdfast.v1.LockRefusal; nothing when nobody is. */
void kv_lock_refusal(struct kv_env *env, struct slice name, struct buf *ret);
/* A LockCommand that was applied before, and came to the contender that r names: it is the contender's latest call now, with its own bound, and
 * one of r's. ERR_NOT_CONTENDER, ERR_LEASE_ENDED_WAITING: it is gone; ERR_LOCK_MODE_CHANGED; ERR_LOCK_ASKED_ELSEWHERE. r is gone afterwards. */
enum err kv_lock_again(struct kv_env *env, struct slice payload, const struct result_record *r, struct kv_lock_result *ret);

/* holdfast.v1.Locks. List and Verify are reads. */
enum err kv_locks_list(struct kv_env *env, struct slice request, struct buf *ret);   /* ERR_NEGATIVE: limit */
enum err kv_locks_verify(struct kv_env *env, struct slice request, struct buf *ret); /* ERR_EMPTY_KEY: name */
/* ERR_EMPTY_KEY: neither a key nor a name; ERR_NEGATIVE: no token with a name; ERR_NOT_CONTENDER: the key is there and contends for nothing. What
 * is no hold, or no more, is left: ERR_OK, and `broken` is absent. */
enum err kv_lock_break(struct kv_env *env, struct slice request, struct buf *ret);

/* Elections: v3electionpb requests. Campaign is kv_lock with a value; asking again with another value (not empty) replaces it. */
enum err kv_proclaim(struct kv_env *env, struct slice request, struct buf *ret); /* ERR_ELECTION_NOT_LEADER; ERR_EMPTY_KEY: no `leader`; as Put */
enum err kv_resign(struct kv_env *env, struct slice request, struct buf *ret);   /* ERR_OK too when it is over; ERR_EMPTY_KEY */
enum err kv_leader(struct kv_env *env, struct slice request, struct buf *ret);   /* a read; ERR_ELECTION_NO_LEADER */
void kv_campaign_reply(struct kv_env *env, struct slice name, const struct kv_lock_result *r, struct buf *ret);

/* Sessions (core/session/session.h). Open: ERR_TOO_MANY_SESSIONS, ERR_SESSION_TTL, ERR_SESSION_PREFIX, ERR_SESSION_NAME, ERR_LEASE_EXISTS,
 * ERR_LEASE_NOT_FOUND: ID 0. Resume: ERR_UNKNOWN_SESSION, ERR_SESSION_SECRET, ERR_FUTURE_REVISION. The reply is an internal.SessionResult.
 * Close does nothing when another stream has resumed it meanwhile. */
enum err kv_session_open(struct kv_env *env, struct slice payload, struct buf *ret);
enum err kv_session_resume(struct kv_env *env, struct slice payload, struct buf *ret);
enum err kv_session_close(struct kv_env *env, struct slice payload);

/* holdfast.v1.Nodes. Checks that need no state: ERR_BAD_PATH, ERR_PATH_TOO_DEEP, ERR_VALUE_TOO_LARGE, ERR_NEGATIVE. */
enum err kv_check_node_create(const Holdfast__V1__NodesCreateRequest *r);
enum err kv_check_node_get(const Holdfast__V1__NodesGetRequest *r);
enum err kv_check_node_set(const Holdfast__V1__NodesSetRequest *r);
enum err kv_check_node_delete(const Holdfast__V1__NodesDeleteRequest *r);
enum err kv_check_node_list(const Holdfast__V1__NodesListRequest *r);
enum err kv_node_create(struct kv_env *env, struct slice request, struct buf *ret); /* ERR_NODE_EXISTS, ERR_UNKNOWN_SESSION; as Put */
enum err kv_node_set(struct kv_env *env, struct slice request, struct buf *ret);    /* ERR_NODE_NOT_FOUND, ERR_NODE_VERSION, ERR_NODE_EXISTS */
enum err kv_node_delete(struct kv_env *env, struct slice request, struct buf *ret); /* ERR_NODE_NOT_FOUND, ERR_NODE_VERSION */
/* Reads. grant: the term in which the leader has noted that the caller may cache the answer; 0: it has not. It is told only with what may be
 * cached. */
enum err kv_node_get(struct kv_env *env, struct slice request, raft_term grant, struct buf *ret);
enum err kv_node_list(struct kv_env *env, struct slice request, raft_term grant, struct buf *ret);

/* The keys that a command may touch, or take from somebody's sight, in whatever state it is carried out: every branch of a transaction counts. What it does to keys that have a lease
 * by removing them, or by a lock's own hand, is left out: those are never cached. Malformed: none, since it will do nothing. The spans are lent by
 * the payload and the arena. */
struct kv_write_set {
	struct cache_span *at;
	size_t len, cap;
};
void kv_write_set(struct arena *arena, uint32_t kind, struct slice payload, struct kv_write_set *ret);
struct slice kv_node_path(struct slice request); /* of any request of Nodes */
bool kv_may_write_keys(uint32_t kind); /* whether the set of such a command can be other than empty */

/* Exactly once. */
struct kv_outcome {
	struct buf reply, details; /* the caller's; reply: of any command but LOCK */
	struct kv_lock_result lock;
	bool repeated;             /* it was applied before */
};
typedef enum err (*kv_execute_fn)(void *ctx, struct kv_outcome *ret); /* writes the reply, or the lock */
/* Carries out with fn what names a session, unless it was: then the same is answered. ERR_UNKNOWN_SESSION, ERR_REQUEST_ID_TOO_OLD,
 * ERR_REQUEST_ID_REUSED, ERR_BAD_METADATA, ERR_RESULT_TOO_LARGE; else what fn says, or said. */
enum err kv_once(struct kv_env *env, const struct command *cmd, raft_term term, kv_execute_fn fn, void *ctx, struct kv_outcome *ret);
void kv_own_reply(const struct kv_env *env, struct slice kept, struct buf *ret); /* such a reply, as this replica tells it */

void kv_write_header(const struct kv_env *env, revision rev, struct buf *out, uint32_t field);
/* LeaseTimeToLiveResponse; remaining_s from the leader (-1: gone), keys from the state. */
void kv_lease_ttl_reply(struct kv_env *env, lease_id id, int64_t remaining_s, bool keys, struct buf *ret);
void kv_lease_list_reply(struct kv_env *env, struct buf *ret);

#endif
