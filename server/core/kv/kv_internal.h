/* kv_internal.h: what the files of this module share, and nobody else includes. */
#ifndef HOLDFAST_CORE_KV_INTERNAL_H
#define HOLDFAST_CORE_KV_INTERNAL_H

#include "base/mem.h"
#include "base/pbw.h"
#include "core/kv/kv.h"

/* Field numbers of etcd's replies that several files write. */
enum {
	FIELD_HEADER = 1,
	HEADER_CLUSTER_ID = 1,
	HEADER_MEMBER_ID = 2,
	HEADER_REVISION = 3,
	HEADER_RAFT_TERM = 4,
};

/* Messages may nest so deep in a request; a nested transaction takes two levels. */
enum { KV_DEPTH_MAX = 32 };

/* One request being carried out: where its reply goes, and whether it is one of a transaction's. */
struct kv_run {
	struct kv_env *env;
	struct buf *out; /* NULL: nobody asks */
	bool in_txn;     /* headers carry the revision alone, as etcd's do */
	bool writing;    /* a transaction of the store is open */
};

static inline struct slice kv_slice(ProtobufCBinaryData data)
{
	return (struct slice){ .ptr = data.data, .len = data.len };
}

/* [key, end) as requests give it: end empty is the one key, one zero byte is all that follows. */
static inline bool kv_end_is_open(struct slice end)
{
	return end.len == 1 && end.ptr[0] == 0;
}

bool kv_range_is_empty(struct slice key, struct slice end);            /* the end is not after the key */
bool kv_range_covers(struct slice begin, struct slice end, struct slice key);
bool kv_range_has_any(const struct kv_env *env, struct slice key, struct slice end); /* any live key, now */

/* A message in env->arena. ERR_MALFORMED, ERR_TOO_DEEP. */
enum err kv_unpack(struct kv_env *env, const ProtobufCMessageDescriptor *desc, struct slice bytes, void *ret);
void kv_write_pair(struct buf *out, uint32_t field, const struct kv *kv, bool keys_only); /* mvccpb.KeyValue */
revision kv_run_revision(const struct kv_run *run); /* now, with the open transaction's own writes */
void kv_run_header(const struct kv_run *run, revision rev);
/* A reply that is a header and nothing else. */
void kv_header_reply(const struct kv_env *env, struct buf *ret);

/* Checks on the state, before any change (S4). gone: an earlier operation of the same transaction deletes the key. */
struct kv_put_check {
	const Etcdserverpb__PutRequest *request;
	bool gone;
	bool new_contender;       /* out: the put creates a contender ... */
	struct slice lock_name;   /* out: ... for this lock; lent by the request */
};
enum err kv_put_check_lease(const struct kv_env *env, const Etcdserverpb__PutRequest *r);
/* ignore_value, ignore_lease want the key to be there; then the rules of contenders. */
enum err kv_put_check_key(const struct kv_env *env, struct kv_put_check *check);
/* In a transaction, where a read of the past is judged on the state before it. */
enum err kv_range_check_in_txn(const struct kv_env *env, const Etcdserverpb__RangeRequest *r);

/* Carrying out what has been checked. The replies' fields go to run->out. */
void kv_run_range(const struct kv_run *run, const Etcdserverpb__RangeRequest *r);
void kv_run_put(const struct kv_run *run, const Etcdserverpb__PutRequest *r);
void kv_run_delete_range(const struct kv_run *run, const Etcdserverpb__DeleteRangeRequest *r);

/* The one key goes, in a revision of its own. */
void kv_delete_key(struct kv_env *env, struct slice key);
/* A lease that exists ends, and its keys with it, in one revision (none when it has no keys). */
void kv_end_lease(struct kv_env *env, lease_id id);

#endif
