/* hold.c: locks and leaderships: asked for, held, lost, given up (S7).
 *
 *   BEHIND ──► ASKED ──► UNSURE ──► HELD ──► LEAVING ──► (freed)
 *                                     └────► GONE ─────► (freed)    its key or the session is gone; its asker still has the handle
 *
 * A lock that was given up waiting for may have been granted meanwhile: its place is given up in the cell as well, before the name is asked for again. While it is
 * held its key is watched: an operator may break the hold.
 *
 *   (L1) a Lock that is under way when it is given up is not cancelled: nobody would say whether it came to the cell before the Unlock, behind it, or not yet. It is let go
 *        on, and ends by the Unlock that takes its place away. Only when its end has been told does the Unlock that is sent, or answered, from then on say that nothing
 *        is left; while it has not been, another Unlock follows the one that was answered.
 *   (L2) an Unlock is not sent again under a new request ID before the one before has been answered: that one, come late, might take a later hold away.
 *   (L3) of a Lock that was lost with its stream nothing comes once the next stream is up (its number tells the cell): what it left before is freed by the Unlock that
 *        is sent then, with a new ID.
 *   (L4) it is not waited for longer than LEAVE_MS. A connection carries only so many calls at a time: Locks that were given up may be what keeps their Unlocks from
 *        being sent. */
#include <stdlib.h>

#include "base/mem.h"
#include "etcd/rpc.pb-c.h"
#include "etcd/v3election.pb-c.h"
#include "etcd/v3lock.pb-c.h"
#include "internal.h"

enum {
	OWN_WAY_MAX = 12, /* so often is a lock asked for again that we are in the way of ourselves: some seconds */
	LEAVE_MS = 3000,
};

static ProtobufCBinaryData data_of(const struct buf *b)
{
	return (ProtobufCBinaryData){ .data = b->ptr, .len = b->len };
}

static struct hold *by_tag(const struct sess *s, uint64_t tag)
{
	LIST_FOR_EACH(it, &s->holds) {
		struct hold *h = CONTAINER_OF(it, struct hold, node);
		if (h->tag == tag && tag)
			return h;
	}
	return NULL;
}

int64_t sess_hold_token(const struct sess *s, uint64_t hold)
{
	const struct hold *h = by_tag(s, hold);
	return h && h->state == HOLD_HELD ? h->token : 0;
}

static void calls_of_hold_free(struct sess *s, struct hold *h)
{
	LIST_FOR_EACH_SAFE(it, next, &s->calls) {
		struct call *c = CONTAINER_OF(it, struct call, node);
		if (c->hold == h)
			sess_call_free(s, c);
	}
}

void hold_free(struct hold *h)
{
	buf_free(&h->name);
	buf_free(&h->key);
	buf_free(&h->value);
	buf_free(&h->granted);
	free(h);
}

static void release(struct hold *h)
{
	list_remove(&h->node);
	hold_free(h);
}

/* ---- asking ---- */

static void start(struct sess *s, struct hold *h)
{
	struct call *c = sess_call_new(s, CALL_LOCK, h->election ? METHOD_ELECTION_CAMPAIGN : METHOD_LOCK_LOCK, h->tag,
				  h->deadline_ms == SESS_NEVER ? SESS_NEVER : h->deadline_ms + WAIT_MARGIN_MS);
	c->hold = h;
	h->state = HOLD_ASKED;
}

/* Locks and elections share their keys, so their names too. */
static struct hold *in_the_way(struct sess *s, struct slice name, bool *ret_leaving)
{
	struct hold *found = NULL;
	*ret_leaving = true;
	LIST_FOR_EACH(it, &s->holds) {
		struct hold *h = CONTAINER_OF(it, struct hold, node);
		if (h->state == HOLD_GONE || !slice_eq(buf_view(&h->name), name))
			continue;
		found = h;
		if (h->state != HOLD_LEAVING)
			*ret_leaving = false;
	}
	return found;
}

void hold_ask(struct sess *s, const struct sess_ask *a)
{
	bool leaving;
	struct hold *other = in_the_way(s, a->name, &leaving), *h;
	if (other && !leaving) {
		sess_answer(s, a->tag, HF_BUSY, "this session asks for it, or has it, already");
		return;
	}
	h = mem_zalloc(sizeof(*h));
	h->tag = a->tag;
	h->election = a->kind == SESS_ASK_CAMPAIGN;
	h->mode = a->mode;
	h->deadline_ms = a->wait_ms < 0 ? SESS_NEVER : s->now + (uint64_t)a->wait_ms;
	buf_append_slice(&h->name, a->name);
	buf_append_slice(&h->value, a->bytes);
	list_push_back(&s->holds, &h->node);
	if (other)
		h->state = HOLD_BEHIND;
	else
		start(s, h);
}

static void pack_lock(struct sess *s, struct hold *h, struct buf *ret)
{
	V3lockpb__LockRequest r = V3LOCKPB__LOCK_REQUEST__INIT;
	r.name = data_of(&h->name);
	r.lease = s->id;
	r.with_stream = true;
	r.stream = (int64_t)s->stream; /* T1 of place.c */
	r.mode = h->mode == HF_SHARED ? V3LOCKPB__LOCK_MODE__SHARED : V3LOCKPB__LOCK_MODE__EXCLUSIVE;
	if (h->deadline_ms != SESS_NEVER) {
		r.wait_case = V3LOCKPB__LOCK_REQUEST__WAIT_WAIT_MS;
		r.wait_ms = h->deadline_ms > s->now ? (int64_t)(h->deadline_ms - s->now) : 0;
	}
	pack_into(ret, &r.base);
}

static void pack_campaign(struct sess *s, struct hold *h, struct buf *ret)
{
	V3electionpb__CampaignRequest r = V3ELECTIONPB__CAMPAIGN_REQUEST__INIT;
	r.name = data_of(&h->name);
	r.lease = s->id;
	r.with_stream = true;
	r.stream = (int64_t)s->stream; /* T1 of place.c */
	r.value = data_of(&h->value);
	if (h->deadline_ms != SESS_NEVER) {
		r.wait_case = V3ELECTIONPB__CAMPAIGN_REQUEST__WAIT_WAIT_MS;
		r.wait_ms = h->deadline_ms > s->now ? (int64_t)(h->deadline_ms - s->now) : 0;
	}
	pack_into(ret, &r.base);
}

static void pack_guard(struct hold *h, struct buf *ret)
{
	Etcdserverpb__WatchRequest r = ETCDSERVERPB__WATCH_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest c = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest__FilterType no_puts = ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NOPUT;
	c.key = data_of(&h->key);
	c.start_revision = h->guard_from;
	c.filters = &no_puts;
	c.n_filters = 1;
	r.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	r.create_request = &c;
	pack_into(ret, &r.base);
}

void hold_pack(struct sess *s, struct call *c, struct buf *ret)
{
	if (c->kind == CALL_GUARD)
		pack_guard(c->hold, ret);
	else if (c->hold->election)
		pack_campaign(s, c->hold, ret);
	else
		pack_lock(s, c->hold, ret);
}

/* ---- granted ---- */

static bool read_grant(struct hold *h, struct slice bytes)
{
	V3electionpb__CampaignResponse *e;
	V3lockpb__LockResponse *l;
	bool ok;
	if (h->election) {
		e = call_unpack(&v3electionpb__campaign_response__descriptor, bytes);
		ok = e && e->leader && e->fencing_token > 0;
		if (ok) {
			buf_clear(&h->key);
			buf_append(&h->key, e->leader->key.data, e->leader->key.len);
			h->token = e->fencing_token;
		}
		if (e)
			protobuf_c_message_free_unpacked(&e->base, NULL);
		return ok;
	}
	l = call_unpack(&v3lockpb__lock_response__descriptor, bytes);
	ok = l && l->key.len > 0 && l->fencing_token > 0;
	if (ok) {
		buf_clear(&h->key);
		buf_append(&h->key, l->key.data, l->key.len);
		h->token = l->fencing_token;
	}
	if (l)
		protobuf_c_message_free_unpacked(&l->base, NULL);
	return ok;
}

static void tell(struct sess *s, struct hold *h)
{
	struct sess_out *o = sess_out(s, SESS_ANSWER);
	struct call *guard;
	o->tag = h->tag;
	o->code = HF_OK;
	o->method = h->election ? METHOD_ELECTION_CAMPAIGN : METHOD_LOCK_LOCK;
	o->bytes = buf_take(&h->granted);
	o->revision = s->revision;
	h->state = HOLD_HELD;
	h->guard_from = h->token + 1;
	guard = sess_call_new(s, CALL_GUARD, METHOD_WATCH_WATCH, 0, SESS_NEVER);
	guard->hold = h;
}

void holds_safe(struct sess *s)
{
	LIST_FOR_EACH(it, &s->holds) {
		struct hold *h = CONTAINER_OF(it, struct hold, node);
		if (h->state == HOLD_UNSURE)
			tell(s, h);
	}
}

static void next_in_name(struct sess *s, struct hold *leaving)
{
	LIST_FOR_EACH(it, &s->holds) {
		struct hold *h = CONTAINER_OF(it, struct hold, node);
		if (h != leaving && h->state == HOLD_BEHIND && slice_eq(buf_view(&h->name), buf_view(&leaving->name))) {
			start(s, h);
			return;
		}
	}
}

/* ---- giving up ---- */

static struct call *call_of_hold(struct sess *s, const struct hold *h, enum call_kind kind)
{
	LIST_FOR_EACH(it, &s->calls) {
		struct call *c = CONTAINER_OF(it, struct call, node);
		if (c->hold == h && c->kind == kind)
			return c;
	}
	return NULL;
}

static struct call *send_unlock(struct sess *s, struct hold *h)
{
	V3lockpb__UnlockRequest r = V3LOCKPB__UNLOCK_REQUEST__INIT;
	struct call *c;
	h->unsettled = false;
	r.key = data_of(&h->key);
	r.fencing_token = h->token;
	c = sess_call_new(s, CALL_UNLOCK, METHOD_LOCK_UNLOCK, 0, SESS_NEVER);
	c->hold = h;
	/* One that names no token, delayed and sent again, could take away what the session comes to hold later. */
	if (h->token == 0)
		c->request_id = ++s->next_request_id;
	pack_into(&c->request, &r.base);
	return c;
}

static void leave(struct sess *s, struct hold *h)
{
	struct call *lock = call_of_hold(s, h, CALL_LOCK);
	if (lock && lock->flying) { /* L1 */
		lock->tag = 0;
		lock->deadline_ms = s->now + LEAVE_MS; /* L4 */
	} else {
		calls_of_hold_free(s, h);
	}
	h->state = HOLD_LEAVING;
	if (h->key.len == 0) {
		buf_append_slice(&h->key, buf_view(&h->name));
		buf_printf(&h->key, "/%llx", (unsigned long long)s->id);
	}
	send_unlock(s, h);
}

static void left(struct sess *s, struct hold *h, enum hf_code code)
{
	calls_of_hold_free(s, h);
	sess_answer(s, h->unlock_tag, code, "");
	next_in_name(s, h);
	release(h);
}

/* L1: a Lock that was given up before has come to its end; left_something: it may have. An Unlock that was not sent yet comes behind it. */
static void lock_ended(struct sess *s, struct hold *h, bool left_something)
{
	struct call *unlock = call_of_hold(s, h, CALL_UNLOCK);
	ASSERT(unlock);
	h->unsettled = left_something && unlock->attempt > 0;
	if (!left_something && unlock->attempt == 0 && unlock->failures > 0) /* the one before was answered */
		left(s, h, HF_OK);
}

/* Whether what was asked for may be there after this answer. HF_FAILED: most likely none of the cell's. */
static bool is_unsure(bool again, enum hf_code code)
{
	return again || code == HF_FAILED;
}

static void late_reply(struct sess *s, struct call *c, const struct sess_event *e)
{
	struct hold *h = c->hold;
	bool again;
	enum hf_code code = call_code(e->status, e->text, &again);
	if (code == HF_OK)
		(void)read_grant(h, e->bytes);
	sess_call_free(s, c);
	lock_ended(s, h, code == HF_OK || is_unsure(again, code));
}

/* What came of it nobody will tell. */
static void lock_lost(struct sess *s, struct call *c)
{
	struct hold *h = c->hold;
	sess_call_free(s, c);
	lock_ended(s, h, true);
}

/* L3 */
void hold_stream_lost(struct sess *s, struct call *c)
{
	if (c->kind == CALL_LOCK && c->hold->state == HOLD_LEAVING)
		lock_lost(s, c);
}

/* What an earlier call of this very session left there, which came late or was given up, or the stream before this one, which the cell still knows: it goes away
 * by itself. */
static bool is_in_our_own_way(struct slice text)
{
	return slice_eq(text, slice_of_str(err_text(ERR_NOT_CONTENDER))) || slice_eq(text, slice_of_str(err_text(ERR_LOCK_MODE_CHANGED))) ||
	       slice_eq(text, slice_of_str(err_text(ERR_SESSION_ELSEWHERE)));
}

static void lock_reply(struct sess *s, struct call *c, const struct sess_event *e)
{
	struct hold *h = c->hold;
	struct sess_out *o;
	bool again;
	enum hf_code code = call_code(e->status, e->text, &again);
	if (h->state == HOLD_LEAVING) {
		late_reply(s, c, e);
		return;
	}
	if (code == HF_OK && !read_grant(h, e->bytes))
		again = true;
	if (again) {
		call_again(s, c);
		return;
	}
	if (code == HF_OK) {
		sess_call_free(s, c);
		buf_append_slice(&h->granted, e->bytes);
		h->state = HOLD_UNSURE;
		if (s->state == HF_SAFE)
			tell(s, h);
		return;
	}
	if (is_in_our_own_way(e->text) && c->failures < OWN_WAY_MAX) {
		call_again(s, c);
		return;
	}
	again = is_unsure(c->attempt > 1, code);
	sess_call_free(s, c);
	o = sess_out(s, SESS_ANSWER);
	o->tag = h->tag;
	o->code = code;
	o->method = h->election ? METHOD_ELECTION_CAMPAIGN : METHOD_LOCK_LOCK;
	o->revision = s->revision;
	buf_append_slice(&o->text, e->text);
	buf_append_slice(&o->details, e->details);
	h->tag = 0;
	/* A refusal says nothing of what was asked before: an earlier attempt may have a place in the queue, and would come to hold unknown to anybody. */
	if (again)
		leave(s, h);
	else
		release(h);
}

void hold_timeout(struct sess *s, struct call *c, enum hf_code code, const char *text)
{
	struct hold *h = c->hold;
	if (h->state == HOLD_LEAVING) { /* L4 */
		lock_lost(s, c);
		return;
	}
	sess_answer(s, h->tag, code, text);
	h->tag = 0;
	if (c->attempt == 0) { /* never sent */
		sess_call_free(s, c);
		release(h);
		return;
	}
	leave(s, h);
}

void hold_cancel(struct sess *s, uint64_t tag)
{
	struct hold *h = by_tag(s, tag);
	if (!h || (h->state != HOLD_BEHIND && h->state != HOLD_UNSURE))
		return;
	sess_answer(s, tag, HF_CANCELED, "canceled");
	h->tag = 0;
	if (h->state == HOLD_BEHIND)
		release(h);
	else
		leave(s, h);
}

void hold_unlock(struct sess *s, const struct sess_ask *a)
{
	struct hold *h = by_tag(s, a->hold);
	if (!h || (h->state != HOLD_HELD && h->state != HOLD_GONE)) {
		sess_answer(s, a->tag, HF_SESSION_LOST, "no such hold");
		return;
	}
	if (h->state == HOLD_GONE) {
		sess_answer(s, a->tag, h->lost == HF_REASON_BROKEN ? HF_OK : HF_SESSION_LOST, "it was lost before");
		release(h);
		return;
	}
	h->tag = 0;
	h->unlock_tag = a->tag;
	h->unlock_deadline_ms = a->deadline_ms;
	leave(s, h);
}

static void unlock_reply(struct sess *s, struct call *c, const struct sess_event *e)
{
	struct hold *h = c->hold;
	uint32_t failures = c->failures;
	bool again;
	enum hf_code code = call_code(e->status, e->text, &again);
	if (again || code == HF_BUSY) {
		call_again(s, c);
		return;
	}
	if (code == HF_CONFLICT) /* a token that is no hold's any more: it is over, which is what was wanted */
		code = HF_OK;
	sess_call_free(s, c);
	if (code == HF_OK && h->unsettled) {
		send_unlock(s, h);
	} else if (code == HF_OK && call_of_hold(s, h, CALL_LOCK)) { /* mostly its end is under way as well */
		c = send_unlock(s, h);
		c->failures = failures; /* ever more seldom */
		call_again(s, c);
	} else {
		left(s, h, code);
	}
}

/* ---- losing ---- */

static void lose(struct sess *s, struct hold *h, enum hf_reason reason)
{
	struct sess_out *o = sess_out(s, SESS_LOST);
	o->tag = h->tag;
	o->reason = reason;
	h->state = HOLD_GONE;
	h->lost = reason;
	h->token = 0;
}

void holds_end(struct sess *s)
{
	LIST_FOR_EACH_SAFE(it, next, &s->holds) {
		struct hold *h = CONTAINER_OF(it, struct hold, node);
		if (h->state == HOLD_GONE)
			continue;
		if (h->state == HOLD_HELD) {
			lose(s, h, s->reason);
			continue;
		}
		if (h->state == HOLD_BEHIND || h->state == HOLD_UNSURE)
			sess_answer(s, h->tag, s->state == HF_CLOSING ? HF_CANCELED : HF_SESSION_LOST, "the session is over");
		sess_answer(s, h->unlock_tag, HF_SESSION_LOST, "it went with the session");
		release(h); /* of one that is asked for, the call answers */
	}
}

static void verify(struct sess *s, struct hold *h)
{
	Holdfast__V1__LocksVerifyRequest r = HOLDFAST__V1__LOCKS_VERIFY_REQUEST__INIT;
	struct call *c = sess_call_new(s, CALL_VERIFY, METHOD_LOCKS_VERIFY, 0, SESS_NEVER);
	c->hold = h;
	r.name = data_of(&h->name);
	r.fencing_token = h->token;
	pack_into(&c->request, &r.base);
}

static void broken(struct sess *s, struct hold *h)
{
	calls_of_hold_free(s, h);
	if (h->state == HOLD_HELD)
		lose(s, h, s->state == HF_SAFE ? HF_REASON_BROKEN : HF_REASON_EXPIRED); /* in jeopardy, it most likely went with the session */
}

void hold_part(struct sess *s, struct call *c, struct slice bytes)
{
	Etcdserverpb__WatchResponse *r = call_unpack(&etcdserverpb__watch_response__descriptor, bytes);
	struct hold *h = c->hold;
	bool gone = false, canceled = r && r->canceled;
	for (size_t i = 0; r && i < r->n_events; i++)
		gone |= r->events[i]->type == MVCCPB__EVENT__EVENT_TYPE__DELETE;
	if (canceled)
		h->guard_from = r->compact_revision;
	if (r)
		protobuf_c_message_free_unpacked(&r->base, NULL);
	if (gone) {
		broken(s, h);
	} else if (canceled) {
		/* What happened before that revision cannot be watched any more, but asked. */
		struct call *guard = sess_call_new(s, CALL_GUARD, METHOD_WATCH_WATCH, 0, SESS_NEVER);
		guard->hold = h;
		call_again(s, guard);
		sess_call_free(s, c);
		verify(s, h);
	}
}

static void verify_reply(struct sess *s, struct call *c, const struct sess_event *e)
{
	Holdfast__V1__LocksVerifyResponse *r;
	struct hold *h = c->hold;
	bool again, current = true;
	call_code(e->status, e->text, &again);
	if (again) {
		call_again(s, c);
		return;
	}
	sess_call_free(s, c);
	r = e->status == STATUS_OK ? call_unpack(&holdfast__v1__locks_verify_response__descriptor, e->bytes) : NULL;
	if (!r)
		return; /* not permitted to ask: then nothing is known */
	current = r->current;
	protobuf_c_message_free_unpacked(&r->base, NULL);
	if (!current)
		broken(s, h);
}

void hold_reply(struct sess *s, struct call *c, const struct sess_event *e)
{
	switch (c->kind) {
	case CALL_LOCK: lock_reply(s, c, e); break;
	case CALL_UNLOCK: unlock_reply(s, c, e); break;
	case CALL_GUARD: call_again(s, c); break;
	case CALL_VERIFY: verify_reply(s, c, e); break;
	default: break;
	}
}

/* ---- leaders ---- */

void hold_proclaim(struct sess *s, const struct sess_ask *a)
{
	V3electionpb__ProclaimRequest r = V3ELECTIONPB__PROCLAIM_REQUEST__INIT;
	V3electionpb__LeaderKey k = V3ELECTIONPB__LEADER_KEY__INIT;
	struct hold *h = by_tag(s, a->hold);
	struct call *c;
	if (!h || h->state != HOLD_HELD || !h->election) {
		sess_answer(s, a->tag, HF_CONFLICT, "the leadership is over");
		return;
	}
	k.name = data_of(&h->name);
	k.key = data_of(&h->key);
	k.rev = h->token;
	k.lease = s->id;
	r.leader = &k;
	r.value = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)a->bytes.ptr, .len = a->bytes.len };
	c = sess_call_new(s, CALL_PLAIN, METHOD_ELECTION_PROCLAIM, a->tag, a->deadline_ms);
	c->request_id = ++s->next_request_id;
	pack_into(&c->request, &r.base);
}

/* ---- time ---- */

static uint64_t due(const struct hold *h)
{
	if (h->state == HOLD_LEAVING && h->unlock_tag)
		return h->unlock_deadline_ms;
	if ((h->state == HOLD_BEHIND || h->state == HOLD_UNSURE) && h->deadline_ms != SESS_NEVER)
		return h->deadline_ms + WAIT_MARGIN_MS;
	return SESS_NEVER;
}

void holds_run(struct sess *s)
{
	LIST_FOR_EACH_SAFE(it, next, &s->holds) {
		struct hold *h = CONTAINER_OF(it, struct hold, node);
		if (s->now < due(h))
			continue;
		if (h->state == HOLD_LEAVING) {
			sess_answer(s, h->unlock_tag, HF_TIMEOUT, "not acknowledged yet");
			h->unlock_tag = 0;
		} else {
			bool behind = h->state == HOLD_BEHIND;
			sess_answer(s, h->tag, HF_TIMEOUT, "not held in time");
			h->tag = 0;
			if (behind)
				release(h);
			else
				leave(s, h);
		}
	}
}

uint64_t holds_next(const struct sess *s)
{
	uint64_t t = SESS_NEVER;
	LIST_FOR_EACH(it, &s->holds) {
		uint64_t d = due(CONTAINER_OF(it, struct hold, node));
		if (d < t)
			t = d;
	}
	return t;
}
