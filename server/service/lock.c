/* lock.c: v3lockpb.Lock.
 *
 * A lock has a name: etcd takes an empty one too, and so lets every key "/LEASE" contend; ours is refused, like an empty key. */
#include "checks.h"
#include "etcd/v3lock.pb-c.h"

CHECK(check_lock)
{
	const V3lockpb__LockRequest *r = REQUEST_AS(V3lockpb__LockRequest, request);
	(void)s, (void)ret_detail;
	if (r->name.len == 0)
		return ERR_EMPTY_KEY;
	if ((r->wait_case == V3LOCKPB__LOCK_REQUEST__WAIT_WAIT_MS && r->wait_ms < 0) || r->stream < 0)
		return ERR_NEGATIVE;
	if ((unsigned)r->mode > V3LOCKPB__LOCK_MODE__SHARED)
		return ERR_MALFORMED;
	return ERR_OK;
}

CHECK(check_unlock)
{
	const V3lockpb__UnlockRequest *r = REQUEST_AS(V3lockpb__UnlockRequest, request);
	(void)s, (void)ret_detail;
	if (r->key.len == 0)
		return ERR_EMPTY_KEY;
	return r->fencing_token < 0 ? ERR_NEGATIVE : ERR_OK;
}
