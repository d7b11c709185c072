/* refusal.c: see refusal.h. */
#include "refusal.h"

#include <inttypes.h>
#include <stdio.h>

#include "holdfast/v1.pb-c.h"
#include "rpc/rpc.h"
#include "text.h"

void refusal_print_member(struct slice details)
{
	struct slice value, url;
	ProtobufCMessage *m = NULL;
	const Holdfast__V1__MemberRefusal *r;
	static const char name[] = "type.googleapis.com/holdfast.v1.MemberRefusal";
	if (rpc_status_detail(details, &url, &value) && slice_eq(url, slice_of_str(name)))
		m = message_of(&holdfast__v1__member_refusal__descriptor, value);
	r = (const Holdfast__V1__MemberRefusal *)m;
	if (!m)
		return;
	if (r->quorum)
		ctl_error("%s (%" PRIu32 " voters, %" PRIu32 " heard, %" PRIu32 " needed)", r->reason, r->voters, r->heard, r->quorum);
	else if (r->last_heard_ms < 0)
		ctl_error("%s: %" PRIu64 " entries behind, never heard", r->reason, r->behind);
	else
		ctl_error("%s: %" PRIu64 " entries behind, last heard %" PRId64 " ms ago", r->reason, r->behind, r->last_heard_ms);
	protobuf_c_message_free_unpacked(m, NULL);
}

void refusal_print(struct ctl *c, const char *noun, struct slice name, struct slice details)
{
	struct slice value, url;
	ProtobufCMessage *m = NULL;
	const Holdfast__V1__LockRefusal *r;
	char id[24], when[32];
	if (rpc_status_detail(details, &url, &value))
		m = message_of(&holdfast__v1__lock_refusal__descriptor, value);
	r = (const Holdfast__V1__LockRefusal *)m;
	if (!m || !r->holder) {
		ctl_error("%s '%s' is held by somebody else", noun, ctl_show(c, name));
	} else {
		text_print_lease(id, r->holder->lease);
		text_print_time(when, r->holder->since_unix_ms);
		ctl_error("%s '%s' is held by lease %s with token %" PRId64 "%s%s%s; %" PRId64 " waiting", noun, ctl_show(c, name), id, r->holder->fencing_token,
			  r->holder->mode == V3LOCKPB__LOCK_MODE__SHARED ? " (shared)" : "", *when ? " since " : "", when, r->waiters);
		out_message(&c->out, m);
	}
	if (m)
		protobuf_c_message_free_unpacked(m, NULL);
}
