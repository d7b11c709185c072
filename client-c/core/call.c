/* call.c: calls to the replica that serves the stream: sent when there is one, sent again when it was lost (S5). */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pbw.h"
#include "internal.h"
#include "path.h"

/* ---- helpers ---- */

void *call_unpack(const ProtobufCMessageDescriptor *d, struct slice bytes)
{
	if (pb_check(d, bytes, DEPTH_MAX) != PB_CHECK_OK)
		return NULL;
	return protobuf_c_message_unpack(d, NULL, bytes.len, bytes.ptr);
}

void pack_into(struct buf *b, const ProtobufCMessage *m)
{
	buf_reserve(b, protobuf_c_message_get_packed_size(m) + 1);
	b->len += protobuf_c_message_pack(m, b->ptr + b->len);
}

char *text_of(struct slice s)
{
	char *t = mem_alloc(s.len + 1);
	if (s.len)
		memcpy(t, s.ptr, s.len);
	t[s.len] = 0;
	return t;
}

static bool is(struct slice text, enum err e)
{
	return slice_eq(text, slice_of_str(err_text(e)));
}

enum hf_code call_code(int status, struct slice text, bool *ret_again)
{
	*ret_again = false;
	switch (status) {
	case STATUS_OK: return HF_OK;
	case STATUS_DEADLINE_EXCEEDED: *ret_again = !is(text, ERR_LOCK_WAIT_TIMEOUT); return HF_TIMEOUT;
	case STATUS_CANCELED:
	case STATUS_UNAVAILABLE: *ret_again = true; return HF_UNAVAILABLE;
	case STATUS_NOT_FOUND: return is(text, ERR_NODE_NOT_FOUND) ? HF_NOT_FOUND : HF_SESSION_LOST;
	case STATUS_ALREADY_EXISTS: return HF_EXISTS;
	case STATUS_FAILED_PRECONDITION:
		if (is(text, ERR_REQUEST_ID_TOO_OLD) || is(text, ERR_REQUEST_ID_REUSED) || is(text, ERR_RESULT_TOO_LARGE))
			return HF_FAILED;
		*ret_again = is(text, ERR_LEARNER_UNSUPPORTED); /* its streams are refused as well: another replica will be found */
		return is(text, ERR_LOCK_HELD) ? HF_HELD : HF_CONFLICT;
	case STATUS_INVALID_ARGUMENT:
	case STATUS_OUT_OF_RANGE: return HF_INVALID;
	case STATUS_PERMISSION_DENIED:
	case STATUS_UNAUTHENTICATED: return HF_DENIED;
	case STATUS_RESOURCE_EXHAUSTED: return HF_BUSY;
	case STATUS_UNKNOWN:
		if (is(text, ERR_ELECTION_NO_LEADER))
			return HF_NOT_FOUND;
		return is(text, ERR_ELECTION_NOT_LEADER) ? HF_CONFLICT : HF_FAILED;
	default: return HF_FAILED;
	}
}

/* ---- life ---- */

struct call *sess_call_new(struct sess *s, enum call_kind kind, enum method_id method, uint64_t tag, uint64_t deadline_ms)
{
	struct call *c = mem_zalloc(sizeof(*c));
	c->id = ++s->next_call;
	c->kind = kind;
	c->method = method;
	c->tag = tag;
	c->deadline_ms = deadline_ms;
	c->retry_at = s->now;
	list_push_back(&s->calls, &c->node);
	s->calls_len++;
	return c;
}

static void cancel(struct sess *s, struct call *c)
{
	struct sess_out *o;
	if (!c->flying)
		return;
	o = sess_out(s, SESS_CANCEL);
	o->call = c->id;
	o->attempt = c->attempt;
	c->flying = false;
}

void sess_call_free(struct sess *s, struct call *c)
{
	cancel(s, c);
	list_remove(&c->node);
	s->calls_len--;
	buf_free(&c->request);
	buf_free(&c->path);
	free(c);
}

void calls_end(struct sess *s, enum hf_code code)
{
	while (!list_empty(&s->calls)) {
		struct call *c = CONTAINER_OF(s->calls.next, struct call, node);
		sess_answer(s, c->tag, code, code == HF_CANCELED ? "the session was closed" : "the session is over");
		sess_call_free(s, c);
	}
}

void calls_stream_lost(struct sess *s)
{
	LIST_FOR_EACH_SAFE(it, next, &s->calls) {
		struct call *c = CONTAINER_OF(it, struct call, node);
		if (c->flying)
			cancel(s, c);
		c->retry_at = s->now;
		if (c->hold)
			hold_stream_lost(s, c);
	}
}

void call_again(struct sess *s, struct call *c)
{
	uint64_t wait = (uint64_t)BACKOFF_MIN_MS << (c->failures < 4 ? c->failures : 4);
	c->failures++;
	c->retry_at = s->now + wait / 2 + rng_below(&s->rng, wait / 2 + 1);
}

/* ---- sending ---- */

static uint64_t first_unanswered(const struct sess *s)
{
	LIST_FOR_EACH(it, &s->calls) {
		const struct call *c = CONTAINER_OF(it, struct call, node);
		if (c->request_id)
			return c->request_id;
	}
	return s->next_request_id + 1;
}

/* The cell says no to others, and has more work with those that ask: and they are no misses. */
static bool may_be_cached(const struct sess *s, struct slice path)
{
	for (size_t i = 0; i < s->prefixes_len; i++) {
		if (path_is_under(path, slice_of_str(s->prefixes[i])))
			return true;
	}
	return false;
}

static void pack_get(struct sess *s, struct call *c, struct buf *ret)
{
	Holdfast__V1__NodesGetRequest get = HOLDFAST__V1__NODES_GET_REQUEST__INIT;
	Holdfast__V1__NodesListRequest list = HOLDFAST__V1__NODES_LIST_REQUEST__INIT;
	char *path = text_of(buf_view(&c->path));
	c->caching = !c->plain && s->state == HF_SAFE && s->now < s->cache_until && may_be_cached(s, buf_view(&c->path));
	c->epoch = s->epoch;
	get.path = list.path = path;
	get.session = list.session = c->caching ? s->id : 0;
	get.cache = list.cache = c->caching;
	pack_into(ret, c->kind == CALL_GET ? &get.base : &list.base);
	free(path);
}

static void send(struct sess *s, struct call *c)
{
	struct sess_out *o = sess_out(s, SESS_CALL);
	c->flying = true;
	c->attempt++;
	o->call = c->id;
	o->attempt = c->attempt;
	o->endpoint = s->endpoint;
	o->method = c->method;
	o->keep_open = c->kind == CALL_GUARD;
	o->deadline_ms = c->kind == CALL_LOCK || c->kind == CALL_OBSERVE || c->kind == CALL_GUARD ? SESS_NEVER : s->now + CALL_ATTEMPT_MS;
	if (c->request_id) {
		o->request_id = c->request_id;
		o->first_unanswered = first_unanswered(s);
	}
	switch (c->kind) {
	case CALL_PLAIN:
	case CALL_UNLOCK:
	case CALL_VERIFY: buf_append_slice(&o->bytes, buf_view(&c->request)); break;
	case CALL_GET:
	case CALL_LIST: pack_get(s, c, &o->bytes); break;
	case CALL_LOCK:
	case CALL_GUARD: hold_pack(s, c, &o->bytes); break;
	case CALL_ARM:
	case CALL_OBSERVE: watch_pack(s, c, &o->bytes); break;
	}
}

static bool may_send(const struct sess *s, const struct call *c)
{
	if (c->flying || s->stream_state != STREAM_UP || s->now < c->retry_at)
		return false;
	return !c->request_id || c->request_id < first_unanswered(s) + ONCE_SPAN;
}

static void time_out(struct sess *s, struct call *c)
{
	const char *why = "not answered in time";
	if (c->kind == CALL_LOCK) {
		hold_timeout(s, c, HF_TIMEOUT, why);
	} else if (c->kind == CALL_ARM) {
		watch_timeout(s, c, HF_TIMEOUT, why);
	} else {
		sess_answer(s, c->tag, HF_TIMEOUT, why);
		sess_call_free(s, c);
	}
}

void calls_run(struct sess *s)
{
	LIST_FOR_EACH_SAFE(it, next, &s->calls) {
		struct call *c = CONTAINER_OF(it, struct call, node);
		if (s->now >= c->deadline_ms)
			time_out(s, c); /* may put another call behind all, but takes none but itself away */
		else if (may_send(s, c))
			send(s, c);
	}
}

uint64_t calls_next(const struct sess *s)
{
	uint64_t t = SESS_NEVER, first = s->calls_len ? first_unanswered(s) : 0;
	LIST_FOR_EACH(it, &s->calls) {
		const struct call *c = CONTAINER_OF(it, struct call, node);
		if (c->deadline_ms < t)
			t = c->deadline_ms;
		if (!c->flying && s->stream_state == STREAM_UP && c->retry_at < t && (!c->request_id || c->request_id < first + ONCE_SPAN))
			t = c->retry_at;
	}
	return t;
}

/* ---- answers ---- */

static struct call *by_id(struct sess *s, uint64_t id)
{
	LIST_FOR_EACH(it, &s->calls) {
		struct call *c = CONTAINER_OF(it, struct call, node);
		if (c->id == id)
			return c;
	}
	return NULL;
}

/* NULL: another attempt is under way by now, or none. */
static struct call *find(struct sess *s, const struct sess_event *e)
{
	struct call *c = by_id(s, e->call);
	return c && c->flying && c->attempt == e->attempt ? c : NULL;
}

bool call_landed(struct sess *s, const struct sess_event *e)
{
	struct call *c = find(s, e);
	if (c)
		c->flying = false;
	return c != NULL;
}

static void answer(struct sess *s, struct call *c, enum hf_code code, const struct sess_event *e)
{
	struct sess_out *o;
	if (c->tag) {
		o = sess_out(s, SESS_ANSWER);
		o->tag = c->tag;
		o->code = code;
		o->method = c->method;
		o->revision = s->revision;
		buf_append_slice(&o->text, e->text);
		buf_append_slice(&o->details, e->details);
		buf_append_slice(&o->bytes, e->bytes);
	}
	sess_call_free(s, c);
}

static void plain_reply(struct sess *s, struct call *c, const struct sess_event *e)
{
	bool again;
	enum hf_code code = call_code(e->status, e->text, &again);
	if ((c->kind == CALL_GET || c->kind == CALL_LIST) && c->caching && is(e->text, ERR_SESSION_ELSEWHERE)) {
		c->plain = true;
		return;
	}
	/* That one attempt is refused at the door says nothing of those before it, which may yet be applied: told now, it would not be true. */
	if (again || (code == HF_BUSY && c->request_id && c->attempt > 1)) {
		call_again(s, c);
		return;
	}
	if (code == HF_OK && (c->kind == CALL_GET || c->kind == CALL_LIST))
		cache_take(s, c, e->bytes);
	answer(s, c, code, e);
}

void call_reply(struct sess *s, const struct sess_event *e)
{
	struct call *c = by_id(s, e->call);
	if (!c)
		return; /* it went with the session */
	if (e->status == STATUS_OK)
		sess_note_header(s, e->bytes);
	switch (c->kind) {
	case CALL_PLAIN:
	case CALL_GET:
	case CALL_LIST: plain_reply(s, c, e); break;
	case CALL_LOCK:
	case CALL_UNLOCK:
	case CALL_GUARD:
	case CALL_VERIFY: hold_reply(s, c, e); break;
	case CALL_ARM:
	case CALL_OBSERVE: watch_reply(s, c, e); break;
	}
}

void call_part(struct sess *s, const struct sess_event *e)
{
	struct call *c = find(s, e);
	if (!c)
		return;
	sess_note_header(s, e->bytes);
	c->failures = 0;
	if (c->kind == CALL_GUARD)
		hold_part(s, c, e->bytes);
	else if (c->kind == CALL_OBSERVE)
		watch_part(s, c, e->bytes);
}
