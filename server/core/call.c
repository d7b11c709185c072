/* call.c: what somebody waits for, from the request to the answer.
 *
 *   (C1) a call is in exactly one list, that of its place, through `link`; or in none, for a moment.
 *   (C2) every tag is answered once, or cancelled; afterwards it is in no table.
 *   (C3) a command's number is in by_number while its outcome matters to somebody here, and only then.
 *   (C4) calls.ages is in order of deadlines: all time-outs are equal, and so are counted by the clock that stands still during gaps.
 *
 * What a deadline says: a command that was never proposed nor sent certainly has not been applied (no leader, or no room); of any other
 * the outcome is unknown, and the answer says so in etcd's words. Locks that wait in their queue have no deadline.
 *
 * Calls come by the hundred thousand a second, so the structs are kept for reuse. */
#include "internal.h"

enum { CALLS_FREE_MAX = 65536 };

void calls_init(struct core *c)
{
	list_init(&c->calls.ages);
	list_init(&c->calls.free);
	c->calls.next_number = 1;
}

void calls_deinit(struct core *c)
{
	struct list *l;

	while ((l = list_pop_front(&c->calls.free)))
		free(CONTAINER_OF(l, struct call, link));
	map64_deinit(&c->calls.by_tag);
	map64_deinit(&c->calls.by_number);
}

static struct call *call_alloc(struct core *c)
{
	struct list *l = list_pop_front(&c->calls.free);
	struct call *call;

	if (!l)
		return mem_zalloc(sizeof *call);
	c->calls.free_len--;
	call = CONTAINER_OF(l, struct call, link);
	memset(call, 0, sizeof *call);
	return call;
}

struct call *call_new(struct core *c, enum call_kind kind, uint64_t tag, enum method_id method)
{
	struct call *call = call_alloc(c);

	list_init(&call->link);
	call->kind = (uint8_t)kind;
	call->method = (uint8_t)method;
	call->tag = tag;
	if (tag && c->request && c->request->tag == tag)
		call->auth = call_auth_new(&c->request->caller, c->request);
	call->deadline = core_clock(c) + c->config.request_timeout_ms;
	list_push_back(&c->calls.ages, &call->age);
	if (tag)
		map64_put(&c->calls.by_tag, tag, call);
	c->calls.len++;
	return call;
}

void call_no_deadline(struct call *call)
{
	list_remove(&call->age);
}

void call_number(struct core *c, struct call *call)
{
	call_forget_number(c, call);
	call->number = c->calls.next_number++;
	map64_put(&c->calls.by_number, call->number, call);
}

void call_forget_number(struct core *c, struct call *call)
{
	if (call->number && map64_get(&c->calls.by_number, call->number) == call)
		map64_remove(&c->calls.by_number, call->number);
}

void call_move(struct call *call, enum call_place place, struct list *to)
{
	list_remove(&call->link);
	call->place = (uint8_t)place;
	if (to)
		list_push_back(to, &call->link);
}

static void forget_tag(struct core *c, struct call *call)
{
	if (call->tag)
		map64_remove(&c->calls.by_tag, call->tag);
	call->tag = 0;
}

void call_free(struct core *c, struct call *call)
{
	forget_tag(c, call);
	call_forget_number(c, call);
	if (call->queued)
		propose_unqueue(c, call);
	if (call->session_tag)
		sessions_call_gone(c, call);
	unlock_settled(c, call);
	if (call->lock)
		lock_leave(c, call);
	if (call->kind != CALL_COMMAND && call->batch)
		call->batch->calls[call->slot] = NULL;
	list_remove(&call->link);
	list_remove(&call->age);
	buf_free(&call->bytes);
	call_auth_free(call->auth);
	c->calls.len--;
	if (c->calls.free_len >= CALLS_FREE_MAX) {
		free(call);
		return;
	}
	c->calls.free_len++;
	list_push_front(&c->calls.free, &call->link);
}

void call_tell(struct core *c, struct call *call, enum err e, struct buf *reply, struct buf *details)
{
	struct core_answer *a;

	list_remove(&call->age);
	if (call->session_tag)
		sessions_told(c, call, e, reply && e == ERR_OK ? buf_view(reply) : (struct slice){ 0 });
	if (!call->tag) {
		buf_free(reply);
		buf_free(details);
		return;
	}
	a = VEC_PUSH(&c->out.answers);
	a->tag = call->tag;
	a->err = e;
	if (reply && e == ERR_OK)
		a->reply = buf_take(reply);
	if (details && e != ERR_OK)
		a->details = buf_take(details);
	if (call->auth)
		a->user = buf_take(&call->auth->user);
	buf_free(reply);
	buf_free(details);
	forget_tag(c, call);
}

void call_answer(struct core *c, struct call *call, enum err e, struct buf *reply)
{
	call_tell(c, call, e, reply, NULL);
	call_free(c, call);
}

void call_fail(struct core *c, struct call *call, enum err e)
{
	call_answer(c, call, e, NULL);
}

size_t calls_pending(const struct core *c)
{
	size_t waiting = c->waiters.len;

	return c->calls.by_tag.len > waiting ? c->calls.by_tag.len - waiting : 0;
}

/* ---- the end of patience ---- */

static enum err command_timeout(const struct core *c, const struct call *call)
{
	if (!call->tried)
		return c->leader ? ERR_TIMEOUT : ERR_NO_LEADER;
	if (call->skipped) /* nobody here will ever know: W4 of propose.c */
		return ERR_OUTCOME_UNKNOWN;
	return c->leader && call->term == c->term ? ERR_TIMEOUT : ERR_TIMEOUT_LEADER_FAIL;
}

static enum err timeout_error(const struct core *c, const struct call *call)
{
	if (call->kind == CALL_COMMAND)
		return command_timeout(c, call);
	if (!c->leader)
		return ERR_NO_LEADER;
	return call->place == PLACE_APPLY ? ERR_TIMEOUT_APPLIED_INDEX : ERR_TIMEOUT;
}

static void call_give_up(struct core *c, struct call *call)
{
	if (call->lock)
		lock_cancel(c, call);
	else if (call->kind == CALL_COMMAND)
		propose_drop(c, call);
	else if (call->kind == CALL_STREAM)
		streams_confirmed(c, call);
	else
		call_free(c, call);
}

void calls_expire(struct core *c)
{
	time_ms clock = core_clock(c);

	while (!list_empty(&c->calls.ages)) {
		struct call *call = CONTAINER_OF(c->calls.ages.next, struct call, age);

		if (call->deadline > clock)
			return;
		if (call->kind == CALL_COMMAND)
			c->seen.proposals_failed++;
		else
			c->seen.reads_failed++;
		call_tell(c, call, timeout_error(c, call), NULL, NULL);
		call_give_up(c, call);
	}
}

void call_cancel(struct core *c, uint64_t tag)
{
	struct call *call = map64_get(&c->calls.by_tag, tag);

	if (!call) /* answered by now */
		return;
	forget_tag(c, call);
	list_remove(&call->age);
	call_give_up(c, call);
}

void calls_check(const struct core *c)
{
	time_ms before = 0;

	LIST_FOR_EACH(l, &c->calls.ages) {
		const struct call *call = CONTAINER_OF(l, struct call, age);

		ASSERT(call->deadline >= before); /* C4 */
		before = call->deadline;
	}
	ASSERT(c->calls.by_tag.len <= c->calls.len);
}
