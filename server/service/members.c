/* members.c: changes of the cell's members are an operator's acts, so the replica that was asked logs them. */
#include "checks.h"
#include "etcd/rpc.pb-c.h"
#include "log/log.h"

static uint64_t id_of_added(struct slice reply)
{
	struct arena *a = service_scratch();
	const Etcdserverpb__MemberAddResponse *r = etcdserverpb__member_add_response__unpack(&a->pb, reply.len, reply.ptr);
	uint64_t id = r && r->member ? r->member->id : 0;
	service_scratch_done(a);
	return id;
}

/* The other requests all begin with the ID, as field 1. */
static uint64_t id_in_request(struct slice request)
{
	struct arena *a = service_scratch();
	const Etcdserverpb__MemberUpdateRequest *r = etcdserverpb__member_update_request__unpack(&a->pb, request.len, request.ptr);
	uint64_t id = r ? r->id : 0;
	service_scratch_done(a);
	return id;
}

void note_member_change(const struct service_call *c, struct slice request, struct slice reply)
{
	uint64_t id = c->method->id == METHOD_CLUSTER_MEMBER_ADD ? id_of_added(reply) : id_in_request(request);
	log_info("the cell's members have changed", LOG_STR("by", c->method->name), LOG_ID("member", id), LOG_SLICE("client", c->client));
}
