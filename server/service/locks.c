/* locks.c: holdfast.v1.Locks. What an operator did to a lock is one line in the log of the replica that was asked. */
#include "checks.h"
#include "holdfast/v1.pb-c.h"
#include "log/log.h"

CHECK(check_locks_list)
{
	const Holdfast__V1__LocksListRequest *r = REQUEST_AS(Holdfast__V1__LocksListRequest, request);
	(void)s, (void)ret_detail;
	return r->limit < 0 ? ERR_NEGATIVE : ERR_OK;
}

CHECK(check_locks_verify)
{
	const Holdfast__V1__LocksVerifyRequest *r = REQUEST_AS(Holdfast__V1__LocksVerifyRequest, request);
	(void)s, (void)ret_detail;
	return r->name.len == 0 ? ERR_EMPTY_KEY : ERR_OK;
}

CHECK(check_locks_break)
{
	const Holdfast__V1__LocksBreakRequest *r = REQUEST_AS(Holdfast__V1__LocksBreakRequest, request);
	(void)s;
	if (r->key.len == 0 && r->name.len == 0)
		return ERR_EMPTY_KEY;
	if (r->fencing_token < 0)
		return ERR_NEGATIVE;
	if (r->key.len == 0 && r->fencing_token == 0) {
		*ret_detail = "holdfast: a hold is named by its lock and its fencing token, or by its key";
		return ERR_NEGATIVE;
	}
	return ERR_OK;
}

void note_locks_break(const struct service_call *c, struct slice request, struct slice reply)
{
	struct arena *a = service_scratch();
	Holdfast__V1__LocksBreakResponse *r = holdfast__v1__locks_break_response__unpack(&a->pb, reply.len, reply.ptr);
	(void)request;
	if (r && r->broken)
		log_warn("a hold was broken by an operator", LOG_SLICE("key", slice_of(r->broken->key.data, r->broken->key.len)),
			 LOG_ID("lease", (uint64_t)r->broken->lease), LOG_I64("token", r->broken->fencing_token), LOG_SLICE("by", c->client));
	service_scratch_done(a);
}
