/* election.c: Proclaim, Resign and Leader.
 *
 * An election is a lock whose holder publishes its key's value. A leadership is named by its key and that key's create_revision, as
 * Campaign returned them; what is asked of one that is over changes nothing. As in etcd, a candidate that still waits may proclaim and
 * resign too: both are about its key, and only Leader is about who is first. */
#include "core/kv/kv.h"

#include "core/kv/kv_internal.h"
#include "etcd/v3election.pb-c.h"

static const struct kv *find_key(const struct kv_env *env, const V3electionpb__LeaderKey *leader)
{
	const struct kv *kv = store_get(env->store, kv_slice(leader->key), 0);

	return kv && kv->create_revision == leader->rev ? kv : NULL;
}

enum err kv_proclaim(struct kv_env *env, struct slice request, struct buf *ret)
{
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	struct kv_run run = { .env = env, .writing = true };
	struct kv_put_check check = { .request = &put };
	V3electionpb__ProclaimRequest *r;
	const struct kv *kv;
	enum err e = kv_unpack(env, &v3electionpb__proclaim_request__descriptor, request, &r);

	if (e)
		return e;
	if (!r->leader || r->leader->key.len == 0)
		return ERR_EMPTY_KEY;
	kv = find_key(env, r->leader);
	if (!kv)
		return ERR_ELECTION_NOT_LEADER;
	put.key = r->leader->key;
	put.value = r->value;
	put.lease = r->leader->lease != 0 ? r->leader->lease : kv->lease;
	e = kv_put_check_lease(env, &put);
	if (!e)
		e = kv_put_check_key(env, &check);
	if (e)
		return e;
	store_txn_begin(env->store);
	kv_run_put(&run, &put);
	store_txn_end(env->store);
	kv_header_reply(env, ret);
	return ERR_OK;
}

enum err kv_resign(struct kv_env *env, struct slice request, struct buf *ret)
{
	V3electionpb__ResignRequest *r;
	enum err e = kv_unpack(env, &v3electionpb__resign_request__descriptor, request, &r);

	if (e)
		return e;
	if (!r->leader || r->leader->key.len == 0)
		return ERR_EMPTY_KEY;
	if (find_key(env, r->leader))
		kv_delete_key(env, kv_slice(r->leader->key));
	kv_header_reply(env, ret);
	return ERR_OK;
}

enum err kv_leader(struct kv_env *env, struct slice request, struct buf *ret)
{
	V3electionpb__LeaderRequest *r;
	const struct contender *first;
	const struct kv *kv;
	enum err e = kv_unpack(env, &v3electionpb__leader_request__descriptor, request, &r);

	if (e)
		return e;
	first = lock_next(env->locks, kv_slice(r->name), NULL);
	if (!first)
		return ERR_ELECTION_NO_LEADER;
	kv = store_get(env->store, contender_key(first), 0);
	ASSERT(kv);
	kv_header_reply(env, ret);
	kv_write_pair(ret, 2, kv, false);
	return ERR_OK;
}

void kv_campaign_reply(struct kv_env *env, struct slice name, const struct kv_lock_result *r, struct buf *ret)
{
	size_t mark;

	kv_header_reply(env, ret);
	mark = pbw_open(ret, 2);
	pbw_bytes(ret, 1, name);
	pbw_bytes(ret, 2, buf_view(&r->key));
	pbw_i64(ret, 3, r->token);
	pbw_i64(ret, 4, r->lease);
	pbw_close(ret, mark);
	pbw_i64(ret, 100, r->token);
}
