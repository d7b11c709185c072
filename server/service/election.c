/* election.c: v3electionpb.Election. Campaign waits like Lock; Observe is a stream that the core drives. */
#include "checks.h"
#include "etcd/v3election.pb-c.h"

/* etcd's own words, which fit none of its typed errors. */
static const char leader_missing[] = "\"leader\" field must be provided";

CHECK(check_campaign)
{
	const V3electionpb__CampaignRequest *r = REQUEST_AS(V3electionpb__CampaignRequest, request);
	(void)s, (void)ret_detail;
	if (r->name.len == 0)
		return ERR_EMPTY_KEY;
	if ((r->wait_case == V3ELECTIONPB__CAMPAIGN_REQUEST__WAIT_WAIT_MS && r->wait_ms < 0) || r->stream < 0)
		return ERR_NEGATIVE;
	return ERR_OK;
}

static enum err check_leader_key(const V3electionpb__LeaderKey *leader, const char **ret_detail)
{
	if (!leader) {
		*ret_detail = leader_missing;
		return ERR_ELECTION_NOT_LEADER; /* for its code */
	}
	return leader->key.len == 0 ? ERR_EMPTY_KEY : ERR_OK;
}

CHECK(check_proclaim)
{
	(void)s;
	return check_leader_key(REQUEST_AS(V3electionpb__ProclaimRequest, request)->leader, ret_detail);
}

CHECK(check_resign)
{
	(void)s;
	return check_leader_key(REQUEST_AS(V3electionpb__ResignRequest, request)->leader, ret_detail);
}

CHECK(check_leader)
{
	(void)s, (void)ret_detail;
	return REQUEST_AS(V3electionpb__LeaderRequest, request)->name.len == 0 ? ERR_EMPTY_KEY : ERR_OK;
}

static bool observe_message(struct service_call *c, struct slice bytes)
{
	const char *detail = NULL;
	enum err e;
	if (c->state) {
		service_stream_fail(c, ERR_MALFORMED); /* one request, no more */
		return true;
	}
	e = service_check(c, bytes, &detail);
	if (e)
		service_finish(c, e, detail);
	else
		service_stream_open(c, bytes);
	return true;
}

static void observe_half_close(struct service_call *c)
{
	if (!c->state)
		service_finish(c, ERR_MALFORMED, NULL);
}

const struct call_class observe_class = {
	.message = observe_message,
	.half_close = observe_half_close,
	.cancel = service_stream_cancel,
	.writable = service_stream_writable,
	.end = service_stream_end,
};
