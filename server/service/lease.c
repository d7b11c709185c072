/* lease.c: etcdserverpb.Lease, but for the keep-alives (keep_alive.c).
 *
 * As etcd does: a TTL below the minimum, zero and negative ones too, is raised where the lease is made; negative IDs are IDs like any other;
 * there is no lease 0. */
#include "checks.h"
#include "etcd/rpc.pb-c.h"

static const int64_t lease_ttl_max_s = 9000000000;

CHECK(check_lease_grant)
{
	(void)s, (void)ret_detail;
	return REQUEST_AS(Etcdserverpb__LeaseGrantRequest, request)->ttl > lease_ttl_max_s ? ERR_LEASE_TTL_TOO_LARGE : ERR_OK;
}

CHECK(check_lease_revoke)
{
	(void)s, (void)ret_detail;
	return REQUEST_AS(Etcdserverpb__LeaseRevokeRequest, request)->id == 0 ? ERR_LEASE_NOT_FOUND : ERR_OK;
}
