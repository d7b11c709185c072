/* unary.c: one request, one reply: the request goes to the node as it came, and the call ends with its answer.
 *
 *   (U1) once submitted, only done() finishes the call, on the core's thread; the request's bytes live until service_end().
 *   (U2) done() touches nothing that a call in writes, but for `failed`.
 *   (U3) the bytes of all requests under way have a bound: many large ones at once must not take the memory that the state needs. */
#include "base/mem.h"
#include "internal.h"
#include "metrics.h"

struct unary {
	struct service_call *call;
	struct submit_call submit;
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

/* (U3) */
static bool take_room(struct service *s, size_t len)
{
	if (atomic_fetch_add(&s->bytes, len) + len <= SERVICE_BYTES_MAX)
		return true;
	atomic_fetch_sub(&s->bytes, len);
	return false;
}

static void submit(struct service_call *c, struct slice bytes)
{
	struct unary *u;
	enum err e;
	if (!take_room(c->service, bytes.len)) {
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
	atomic_init(&u->failed, ERR_OK);
	c->state = u;
	e = node_submit(c->service->node, &u->submit);
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
		node_cancel(c->service->node, u->submit.tag);
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
	const struct unary *u = c->state;
	if (u)
		node_cancel(c->service->node, u->submit.tag);
	else
		service_finish(c, ERR_CANCELED, NULL);
}

static void unary_end(struct service_call *c)
{
	struct unary *u = c->state;
	atomic_fetch_sub(&c->service->bytes, u->submit.bytes.len);
	free(u);
}

const struct call_class unary_class = {
	.message = unary_message,
	.half_close = unary_half_close,
	.cancel = unary_cancel,
	.end = unary_end,
};
