/* leases.c: leases as commands of the log, and what clients are told of them.
 *
 *   (G1) a lease goes with its keys, in key order, in one revision of its own; without keys it takes none.
 *   (G2) an end by time counts only in an entry of the term whose leader judged the time (lease.h).
 *
 * Whether a lease's time is up is the lessor's business and the leader's; here it is only ever told. */
#include "core/kv/kv.h"

#include "core/kv/kv_internal.h"
#include "holdfast/internal.pb-c.h"

void kv_end_lease(struct kv_env *env, lease_id id)
{
	uint64_t keys = lease_key_count(env->lessor, id);
	struct buf key = { 0 };

	if (keys > 0) {
		store_txn_begin(env->store);
		for (uint64_t i = 0; i < keys; i++) {
			/* The set lends its key, and forgets it as the delete detaches it. */
			buf_clear(&key);
			buf_append_slice(&key, lease_next_key(env->lessor, id, (struct slice){ 0 }));
			ASSERT(store_delete_range(env->store, buf_view(&key), (struct slice){ 0 }, NULL, NULL) == 1);
		}
		store_txn_end(env->store);
		buf_free(&key);
	}
	ASSERT(lease_remove(env->lessor, id) == ERR_OK);
	env->counts.leases_ended++;
	if (env->once)
		once_end_session(env->once, id);
	if (session_remove(env->state, id) && env->session_ended)
		env->session_ended(env->session_ctx, id);
}

static void count_granted(struct kv_counts *n, int64_t ttl_s)
{
	size_t i = 0;

	while (i < KV_TTL_BUCKETS && ttl_s > INT64_C(1) << i)
		i++;
	if (i < KV_TTL_BUCKETS)
		n->ttls[i]++;
	n->ttl_sum_s += (uint64_t)ttl_s;
	n->leases_granted++;
}

enum err kv_lease_grant(struct kv_env *env, struct slice request, struct buf *ret)
{
	Etcdserverpb__LeaseGrantRequest *r;
	int64_t ttl_s;
	enum err e = kv_unpack(env, &etcdserverpb__lease_grant_request__descriptor, request, &r);

	if (!e && r->id == 0)
		e = ERR_LEASE_NOT_FOUND; /* etcd's answer, should the ID not have been chosen by then */
	if (!e)
		e = lease_grant(env->lessor, r->id, r->ttl, env->now, &ttl_s);
	if (e)
		return e;
	count_granted(&env->counts, ttl_s);
	if (ret) {
		kv_header_reply(env, ret);
		pbw_i64(ret, 2, r->id);
		pbw_i64(ret, 3, ttl_s);
	}
	return ERR_OK;
}

enum err kv_lease_revoke(struct kv_env *env, struct slice request, struct buf *ret)
{
	Etcdserverpb__LeaseRevokeRequest *r;
	enum err e = kv_unpack(env, &etcdserverpb__lease_revoke_request__descriptor, request, &r);

	if (!e && !lease_find(env->lessor, r->id))
		e = ERR_LEASE_NOT_FOUND;
	if (e)
		return e;
	kv_end_lease(env, r->id);
	kv_header_reply(env, ret);
	return ERR_OK;
}

enum err kv_lease_end(struct kv_env *env, struct slice payload, raft_term entry_term)
{
	Holdfast__Internal__LeaseEnd *m;
	enum err e = kv_unpack(env, &holdfast__internal__lease_end__descriptor, payload, &m);

	if (e)
		return e;
	if (m->term != entry_term)
		return ERR_OK;
	for (size_t i = 0; i < m->n_ids; i++) {
		if (!lease_find(env->lessor, m->ids[i])) /* it may have been revoked since it was proposed */
			continue;
		kv_end_lease(env, m->ids[i]);
		env->counts.leases_expired++;
	}
	return ERR_OK;
}

void kv_lease_ttl_reply(struct kv_env *env, lease_id id, int64_t remaining_s, bool keys, struct buf *ret)
{
	const struct lease_record *lease = remaining_s < 0 ? NULL : lease_find(env->lessor, id);
	struct slice key = { 0 };

	kv_header_reply(env, ret);
	pbw_i64(ret, 2, id);
	pbw_i64(ret, 3, lease ? remaining_s : -1);
	if (!lease)
		return;
	pbw_i64(ret, 4, lease->ttl_s);
	while (keys && (key = lease_next_key(env->lessor, id, key)).ptr)
		pbw_bytes_always(ret, 5, key);
}

void kv_lease_list_reply(struct kv_env *env, struct buf *ret)
{
	struct tree_cursor cursor;

	kv_header_reply(env, ret);
	for (const struct tree_record *r = tree_first(&cursor, &env->state->leases); r; r = tree_next(&cursor)) {
		size_t mark = pbw_open(ret, 2);

		pbw_i64(ret, 1, ((const struct lease_record *)r)->id);
		pbw_close(ret, mark);
	}
}
