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
#include "core/lease/lease.h"
#include "core/lock/lock.h"
#include "core/store/store.h"
#include "etcd/rpc.pb-c.h"

/* What a reply's header says (etcdserverpb.ResponseHeader); revision is filled in here. */
struct kv_header {
	uint64_t cell_id;
	member_id member;
	raft_term term;
};

struct kv_env {
	struct state *state;
	struct store *store;
	struct lessor *lessor;
	struct locks *locks;
	struct arena *arena;     /* scratch, cleared by the caller */
	struct kv_header header;
	time_ms now;             /* for deadlines of granted leases; never part of the state */
	uint32_t max_txn_ops;    /* 128: of all nested operations of one transaction's branch, as etcd counts */
};

void kv_attach(struct kv_env *env); /* once: listens to store_on_change */
/* After state was replaced: rebuilds store, lessor and locks from state. */
void kv_rebuild(struct kv_env *env);

/* Checks that need no state, in etcd's order with etcd's errors: for the service before it submits, for any unpacked request.
 * Thread safe. Range: ERR_EMPTY_KEY, ERR_INVALID_SORT_OPTION ...; Put; DeleteRange; Txn: ops count, duplicates, nested. */
enum err kv_check_range(const Etcdserverpb__RangeRequest *r);
enum err kv_check_put(const Etcdserverpb__PutRequest *r);
enum err kv_check_delete_range(const Etcdserverpb__DeleteRangeRequest *r);
enum err kv_check_txn(const Etcdserverpb__TxnRequest *r, uint32_t max_ops);
/* No put and no delete in any branch: it may be answered as a read. ret_serializable: all its ranges are. */
bool kv_txn_is_read_only(const Etcdserverpb__TxnRequest *r, bool *ret_serializable);

/* Reads: the reply's bytes are appended to ret. */
enum err kv_range(struct kv_env *env, struct slice request, struct buf *ret);
enum err kv_txn_read(struct kv_env *env, struct slice request, struct buf *ret);

/* Writes, from applied entries only. ret NULL: nobody asks for the reply here. */
enum err kv_put(struct kv_env *env, struct slice request, struct buf *ret);
enum err kv_delete_range(struct kv_env *env, struct slice request, struct buf *ret);
enum err kv_txn(struct kv_env *env, struct slice request, struct buf *ret);
enum err kv_compact(struct kv_env *env, struct slice request, struct buf *ret);
enum err kv_lease_grant(struct kv_env *env, struct slice request, struct buf *ret);   /* ID is not 0 here */
enum err kv_lease_revoke(struct kv_env *env, struct slice request, struct buf *ret);  /* its keys go in one revision */
enum err kv_lease_end(struct kv_env *env, struct slice payload, raft_term entry_term); /* internal.LeaseEnd; one revision a lease that has keys */

/* Locks. kv_lock answers where the call now stands; a waiting call is answered later by whoever was asked. */
enum kv_lock_outcome { KV_LOCK_HELD, KV_LOCK_WAITING };
struct kv_lock_result {
	enum kv_lock_outcome outcome;
	struct buf key;           /* owned by the caller */
	revision token;           /* create_revision */
	lease_id lease;
	int64_t ttl_s;            /* of the lease */
};
/* ERR_LEASE_NOT_FOUND; ERR_EMPTY_KEY (no name: etcd takes it; see the code); ERR_LOCK_MODE_CHANGED; ERR_LOCK_HELD: a try that failed and left nothing behind. */
enum err kv_lock(struct kv_env *env, struct slice payload /* internal.LockCommand */, struct kv_lock_result *ret);
enum err kv_unlock(struct kv_env *env, struct slice request, struct buf *ret);
/* The contender goes if `call` is still its latest. Otherwise nothing happens (ERR_OK). */
enum err kv_abandon(struct kv_env *env, struct slice payload);
/* LockResponse bytes for a granted call. */
void kv_lock_reply(struct kv_env *env, const struct kv_lock_result *r, struct buf *ret);

void kv_write_header(const struct kv_env *env, revision rev, struct buf *out, uint32_t field);
/* LeaseTimeToLiveResponse; remaining_s from the leader (-1: gone), keys from the state. */
void kv_lease_ttl_reply(struct kv_env *env, lease_id id, int64_t remaining_s, bool keys, struct buf *ret);
void kv_lease_list_reply(struct kv_env *env, struct buf *ret);

#endif
