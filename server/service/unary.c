/* unary.c: one request, one reply: the request goes to the node as it came, and the call ends with its answer.
 *
 *   (U1) once submitted, only done() finishes the call, on the core's thread; the request's bytes live until service_end().
 *   (U2) done() touches nothing that a call in writes, but for `failed`.
 *   (U3) a read of many keys may wait for its turn (budget.c) before it is submitted; until then, who takes it from there finishes it.
 *   (U4) the bytes of all requests under way have a bound: many large ones at once must not take the memory that the state needs. What frees something
 *        has as much again.
 *   (U5) a write that would only be refused as too much is refused before anything is done for it. */
#include "base/clock.h"
#include "base/mem.h"
#include "internal.h"
#include "metrics.h"

struct unary {
	struct service_call *call;
	struct submit_call submit;
	struct reservation turn;
	uint64_t began_us; /* of calls for a lock; 0: of another kind */
	atomic_int failed; /* enum err: a reason of ours that goes before the node's answer */
	uint8_t bytes[];
};

/* Core's thread. */
static void unary_done(struct submit_call *submit, enum err e, struct buf *reply, struct buf *details)
{
	struct unary *u = CONTAINER_OF(submit, struct unary, submit);
	struct service_call *c = u->call;
	struct buf why = details ? buf_take(details) : (struct buf){ .ptr = NULL };
	int failed = atomic_load(&u->failed);
	if (failed)
		e = (enum err)failed;
	if (e == ERR_TOO_MANY_REQUESTS)
		metric_add(METRIC_REFUSED_OVERLOAD, 1);
	budget_settle(&c->service->budget, &u->turn, e ? 0 : reply->len);
	if (u->began_us)
		lock_figures_note(&c->service->lock_figures, c->method->id, u->submit.bytes, e, mono_us() - u->began_us);
	if (!e && c->handler->note)
		c->handler->note(c, u->submit.bytes, buf_view(reply));
	service_audit(c, e, buf_view(&u->submit.user), u->submit.bytes);
	buf_free(&u->submit.user);
	if (!e)
		service_reply_one(c, reply);
	else if (reply)
		buf_free(reply);
	service_tell_end(c, e, NULL, buf_view(&why));
	buf_free(&why);
}

static bool is_of_lock(enum method_id id)
{
	return id == METHOD_LOCK_LOCK || id == METHOD_LOCK_UNLOCK || id == METHOD_ELECTION_CAMPAIGN;
}

/* (U4) */
static bool take_room(struct service_call *c, size_t len)
{
	struct identity *who = (struct identity *)(uintptr_t)c->identity;
	size_t factor = method_is_reserved(c->method->id) ? 2 : 1;
	if (atomic_fetch_add(&c->service->bytes, len) + len <= SERVICE_BYTES_MAX * factor) {
		if (!who || atomic_fetch_add(&who->bytes, len) + len <= SERVICE_CONNECTION_BYTES_MAX * factor)
			return true;
		atomic_fetch_sub(&who->bytes, len);
	}
	atomic_fetch_sub(&c->service->bytes, len);
	return false;
}

static void give_room(struct service_call *c, size_t len)
{
	struct identity *who = (struct identity *)(uintptr_t)c->identity;
	atomic_fetch_sub(&c->service->bytes, len);
	if (who)
		atomic_fetch_sub(&who->bytes, len);
}

/* ---- (U3) ---- */

static enum err turn_submit(struct reservation *r)
{
	struct unary *u = CONTAINER_OF(r, struct unary, turn);
	return node_submit(u->call->service->node, &u->submit);
}

static void turn_refused(struct reservation *r, enum err e)
{
	service_tell_end(CONTAINER_OF(r, struct unary, turn)->call, e, NULL, slice_of(NULL, 0));
}

static void submit(struct service_call *c, struct slice bytes)
{
	struct unary *u;
	enum err e;
	if (!take_room(c, bytes.len)) {
		metric_add(METRIC_REFUSED_BYTES, 1);
		service_finish(c, ERR_TOO_MANY_REQUESTS, NULL);
		return;
	}
	u = mem_alloc(sizeof(*u) + bytes.len);
	if (bytes.len)
		memcpy(u->bytes, bytes.ptr, bytes.len);
	u->call = c;
	u->submit = (struct submit_call){
		.method = c->method->id,
		.bytes = slice_of(u->bytes, bytes.len),
		.client = c->client,
		.session = c->session,
		.request_id = c->request_id,
		.first_unanswered = c->first_unanswered,
		.caller = c->caller,
		.done = unary_done,
	};
	u->began_us = is_of_lock(c->method->id) ? mono_us() : 0;
	atomic_init(&u->failed, ERR_OK);
	c->state = u;
	u->turn = (struct reservation){ .submit = turn_submit, .refused = turn_refused };
	list_init(&u->turn.link);
	e = budget_enter(&c->service->budget, &u->turn, c->weight, atomic_load(&c->service->now_ms));
	if (e)
		service_finish(c, e, NULL);
}

static bool unary_message(struct service_call *c, struct slice bytes)
{
	const char *detail = NULL;
	struct unary *u = c->state;
	enum err e;
	if (u) { /* a second one; what the first did may be done all the same */
		atomic_store(&u->failed, ERR_MALFORMED);
		if (c->weight && budget_give_up(&c->service->budget, &u->turn))
			service_finish(c, ERR_MALFORMED, NULL);
		else
			node_cancel(c->service->node, u->submit.tag);
		return true;
	}
	if (node_refuses(c->service->node, c->method->id, bytes)) { /* U5 */
		metric_add(METRIC_REFUSED_OVERLOAD, 1);
		service_finish(c, ERR_TOO_MANY_REQUESTS, NULL);
		return true;
	}
	e = service_check(c, bytes, &detail);
	if (e)
		service_finish(c, e, detail);
	else
		submit(c, bytes);
	return true;
}

static void unary_half_close(struct service_call *c)
{
	if (!c->state)
		service_finish(c, ERR_MALFORMED, NULL);
}

static void unary_cancel(struct service_call *c)
{
	struct unary *u = c->state;
	if (!u)
		service_finish(c, ERR_CANCELED, NULL);
	else if (c->weight && budget_give_up(&c->service->budget, &u->turn))
		service_finish(c, ERR_CANCELED, NULL);
	else
		node_cancel(c->service->node, u->submit.tag);
}

static void unary_end(struct service_call *c)
{
	struct unary *u = c->state;
	budget_settle(&c->service->budget, &u->turn, 0);
	give_room(c, u->submit.bytes.len);
	free(u);
}

const struct call_class unary_class = {
	.message = unary_message,
	.half_close = unary_half_close,
	.cancel = unary_cancel,
	.end = unary_end,
};
