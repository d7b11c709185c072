/* cmd_lock.c: lock, and elect with a value: what hold.c asks, and how it is given up. */
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "etcd/v3election.pb-c.h"
#include "etcd/v3lock.pb-c.h"
#include "hold.h"
#include "observe.h"
#include "text.h"

static ProtobufCBinaryData data_of(const struct buf *b)
{
	return (ProtobufCBinaryData){ .data = b->ptr, .len = b->len };
}

static void release_by(struct hold *h, enum method_id method, const ProtobufCMessage *request, struct answer *ret, uint64_t timeout_ms)
{
	struct ask a = { .method = method, .request = request, .again = ASK_AGAIN, .timeout_ms = timeout_ms, .stops = 2 };
	ask(h->c->link, &a, ret);
}

/* ---- lock ---- */

static struct call *lock_ask(struct hold *h, struct endpoint *e, bool bounded, int64_t wait_ms, const struct call_class *class)
{
	V3lockpb__LockRequest r = V3LOCKPB__LOCK_REQUEST__INIT;
	r.name = data_of(&h->name);
	r.lease = h->session.lease;
	r.mode = h->c->args.shared ? V3LOCKPB__LOCK_MODE__SHARED : V3LOCKPB__LOCK_MODE__EXCLUSIVE;
	if (bounded) {
		r.wait_case = V3LOCKPB__LOCK_REQUEST__WAIT_WAIT_MS;
		r.wait_ms = wait_ms;
	}
	return call_start(h->c->link, e, METHOD_LOCK_LOCK, &r.base, NEVER_MS, class, h);
}

static bool lock_take_reply(struct hold *h, struct slice bytes)
{
	const V3lockpb__LockResponse *r;
	h->reply = message_of(&v3lockpb__lock_response__descriptor, bytes);
	if (!h->reply)
		return false;
	r = (const V3lockpb__LockResponse *)h->reply;
	buf_append(&h->key, r->key.data, r->key.len);
	h->token = r->fencing_token;
	return true;
}

static void lock_release(struct hold *h, struct answer *ret, uint64_t timeout_ms)
{
	V3lockpb__UnlockRequest r = V3LOCKPB__UNLOCK_REQUEST__INIT;
	r.key = data_of(&h->key);
	r.fencing_token = h->token;
	release_by(h, METHOD_LOCK_UNLOCK, &r.base, ret, timeout_ms);
}

static void lock_print(struct hold *h)
{
	char id[24];
	text_print_lease(id, h->session.lease);
	if (!out_message(&h->c->out, h->reply))
		out_printf("holding lock '%s' token %" PRId64 " lease %s\n", ctl_show(h->c, buf_view(&h->name)), h->token, id);
}

static const struct hold_class lock_class = {
	.noun = "lock", .name_variable = "HOLDFAST_LOCK", .ask = METHOD_LOCK_LOCK,
	.ask_start = lock_ask, .take_reply = lock_take_reply, .release = lock_release, .print = lock_print,
};

int command_lock(struct ctl *c)
{
	return hold_run(&lock_class, c);
}

/* ---- elect ---- */

static struct call *campaign_ask(struct hold *h, struct endpoint *e, bool bounded, int64_t wait_ms, const struct call_class *class)
{
	V3electionpb__CampaignRequest r = V3ELECTIONPB__CAMPAIGN_REQUEST__INIT;
	r.name = data_of(&h->name);
	r.lease = h->session.lease;
	r.value = data_of(&h->value);
	if (bounded) {
		r.wait_case = V3ELECTIONPB__CAMPAIGN_REQUEST__WAIT_WAIT_MS;
		r.wait_ms = wait_ms;
	}
	return call_start(h->c->link, e, METHOD_ELECTION_CAMPAIGN, &r.base, NEVER_MS, class, h);
}

static const V3electionpb__LeaderKey *leader_key(const struct hold *h)
{
	return ((const V3electionpb__CampaignResponse *)h->reply)->leader;
}

static bool campaign_take_reply(struct hold *h, struct slice bytes)
{
	ProtobufCMessage *m = message_of(&v3electionpb__campaign_response__descriptor, bytes);
	const V3electionpb__CampaignResponse *r = (const V3electionpb__CampaignResponse *)m;
	if (!m)
		return false;
	if (!r->leader) {
		protobuf_c_message_free_unpacked(m, NULL);
		return false;
	}
	h->reply = m;
	buf_append(&h->key, r->leader->key.data, r->leader->key.len);
	h->token = r->leader->rev;
	return true;
}

static void campaign_release(struct hold *h, struct answer *ret, uint64_t timeout_ms)
{
	V3electionpb__ResignRequest r = V3ELECTIONPB__RESIGN_REQUEST__INIT;
	V3electionpb__LeaderKey key = *leader_key(h);
	r.leader = &key;
	release_by(h, METHOD_ELECTION_RESIGN, &r.base, ret, timeout_ms);
}

static void campaign_print(struct hold *h)
{
	char id[24];
	text_print_lease(id, h->session.lease);
	if (!out_message(&h->c->out, h->reply))
		out_printf("leading '%s' token %" PRId64 " lease %s value '%s'\n", ctl_show(h->c, buf_view(&h->name)), h->token, id,
			   ctl_show(h->c, buf_view(&h->value)));
}

static const struct hold_class campaign_class = {
	.noun = "election", .name_variable = "HOLDFAST_ELECTION", .ask = METHOD_ELECTION_CAMPAIGN,
	.ask_start = campaign_ask, .take_reply = campaign_take_reply, .release = campaign_release, .print = campaign_print,
};

int command_elect(struct ctl *c)
{
	const struct args *a = &c->args;
	if (a->observe) {
		if (a->words_len > 1 || a->run || a->try_only || args_given(a, FLAG_WAIT)) {
			ctl_error("--observe takes a NAME and nothing else: it does not campaign");
			return EXIT_USAGE;
		}
		return observe(c);
	}
	if (a->words_len < 2) {
		ctl_error("too few arguments; usage: holdfastctl elect NAME VALUE, or elect --observe NAME");
		return EXIT_USAGE;
	}
	return hold_run(&campaign_class, c);
}
