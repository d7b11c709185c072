/* sess.c: states, clocks, and the one door; see sess.h.
 *
 *   OPENING ──► SAFE ◄──► JEOPARDY       any of them ──► EXPIRED, or ──► CLOSING ──► CLOSED */
#include "sess.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "internal.h"

#define TO(state) (1u << (state))
static const unsigned edges[] = {
	[HF_OPENING] = TO(HF_SAFE) | TO(HF_JEOPARDY) | TO(HF_EXPIRED) | TO(HF_CLOSED),
	[HF_SAFE] = TO(HF_JEOPARDY) | TO(HF_EXPIRED) | TO(HF_CLOSING),
	[HF_JEOPARDY] = TO(HF_SAFE) | TO(HF_EXPIRED) | TO(HF_CLOSING),
	[HF_EXPIRED] = 0,
	[HF_CLOSING] = TO(HF_CLOSED),
	[HF_CLOSED] = 0,
};

/* ---- updates ---- */

struct sess_out *sess_out(struct sess *s, enum sess_out_kind kind)
{
	struct sess_update *u = &s->out;
	struct sess_out *o;
	if (u->len == u->cap) {
		u->cap = u->cap ? u->cap * 2 : 8;
		u->at = mem_realloc(u->at, u->cap * sizeof(*u->at));
	}
	o = &u->at[u->len++];
	*o = (struct sess_out){ .kind = kind };
	return o;
}

void sess_take(struct sess *s, struct sess_update *ret)
{
	*ret = s->out;
	s->out = (struct sess_update){ .at = NULL };
}

bool sess_has_update(const struct sess *s)
{
	return s->out.len > 0;
}

void sess_update_free(struct sess_update *u)
{
	for (size_t i = 0; i < u->len; i++) {
		buf_free(&u->at[i].bytes);
		buf_free(&u->at[i].text);
		buf_free(&u->at[i].details);
	}
	free(u->at);
	*u = (struct sess_update){ .at = NULL };
}

void sess_answer(struct sess *s, uint64_t tag, enum hf_code code, const char *text)
{
	struct sess_out *o;
	if (!tag)
		return;
	o = sess_out(s, SESS_ANSWER);
	o->tag = tag;
	o->code = code;
	o->revision = s->revision;
	buf_append_slice(&o->text, slice_of_str(text));
}

/* ---- states ---- */

bool sess_over(const struct sess *s)
{
	return s->state == HF_EXPIRED || s->state == HF_CLOSED;
}

static void enter(struct sess *s, enum hf_state state, enum hf_reason reason)
{
	struct sess_out *o;
	ASSERT(edges[s->state] & TO(state));
	s->state = state;
	s->reason = reason;
	o = sess_out(s, SESS_STATE);
	o->state = state;
	o->reason = reason;
}

static void lose_cache(struct sess *s)
{
	s->cache_until = 0;
	cache_empty(s);
}

void sess_safe(struct sess *s)
{
	if ((s->state == HF_JEOPARDY || s->state == HF_OPENING) && s->now < s->lease_until) {
		enter(s, HF_SAFE, HF_REASON_NONE);
		holds_safe(s);
	}
}

/* open_code: what whoever opened it is told, or what whoever closes it is told. */
void sess_end(struct sess *s, enum hf_state state, enum hf_reason reason, enum hf_code open_code, const char *text)
{
	uint64_t open_tag = s->open_tag, close_tag = s->close_tag;
	lose_cache(s);
	s->lease_until = 0;
	enter(s, state, reason);
	s->open_tag = s->close_tag = 0;
	sess_answer(s, open_tag, open_code, text);
	holds_end(s);
	calls_end(s, state == HF_CLOSED ? HF_CANCELED : HF_SESSION_LOST);
	watches_end(s);
	stream_drop(s);
	sess_answer(s, close_tag, open_code, text);
}

/* S2 */
static void look_at_clock(struct sess *s)
{
	if (s->cache_until && s->now >= s->cache_until)
		lose_cache(s);
	if (s->state == HF_SAFE && s->now >= s->lease_until) {
		lose_cache(s);
		s->jeopardy_since = s->now;
		enter(s, HF_JEOPARDY, HF_REASON_NO_ANSWER);
	} else if (s->state == HF_JEOPARDY && s->now - s->jeopardy_since >= s->grace_ms) {
		sess_end(s, HF_EXPIRED, HF_REASON_NO_ANSWER, HF_SESSION_LOST, "no answer within the grace period");
	} else if (s->state == HF_OPENING && s->now >= s->open_deadline_ms) {
		sess_end(s, HF_EXPIRED, HF_REASON_NO_ANSWER, HF_TIMEOUT, "no replica answered in time");
	} else if (s->state == HF_CLOSING && s->now >= s->close_deadline_ms) {
		sess_end(s, HF_CLOSED, HF_REASON_CLOSED, HF_TIMEOUT, "the cell did not answer in time");
	}
}

static void close_session(struct sess *s, const struct sess_ask *a)
{
	Holdfast__V1__SessionRequest m = HOLDFAST__V1__SESSION_REQUEST__INIT;
	Holdfast__V1__SessionClose c = HOLDFAST__V1__SESSION_CLOSE__INIT;
	if (sess_over(s) || s->state == HF_CLOSING) {
		sess_answer(s, a->tag, HF_SESSION_LOST, "the session is over");
		return;
	}
	s->close_tag = a->tag;
	s->close_deadline_ms = a->deadline_ms;
	if (s->state == HF_OPENING) {
		sess_end(s, HF_CLOSED, HF_REASON_CLOSED, HF_CANCELED, "closed before it was open");
		return;
	}
	lose_cache(s);
	enter(s, HF_CLOSING, HF_REASON_CLOSED);
	holds_end(s);
	calls_end(s, HF_CANCELED);
	watches_end(s);
	m.request_case = HOLDFAST__V1__SESSION_REQUEST__REQUEST_CLOSE;
	m.close = &c;
	if (s->stream_state == STREAM_UP)
		stream_send(s, &m);
}

/* ---- what replies tell beside what was asked ---- */

void sess_note_term(struct sess *s, uint64_t term)
{
	if (term <= s->term)
		return;
	s->term = term;
	cache_empty(s);
}

static bool varint(struct slice *s, uint64_t *ret)
{
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 64 && s->len > 0; shift += 7) {
		uint8_t b = *s->ptr++;
		s->len--;
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80)) {
			*ret = v;
			return true;
		}
	}
	return false;
}

void sess_note_header(struct sess *s, struct slice reply)
{
	uint64_t tag, v;
	struct slice h;
	if (!varint(&reply, &tag) || tag != (1 << 3 | 2) || !varint(&reply, &v) || v > reply.len)
		return;
	h = slice_of(reply.ptr, (size_t)v);
	while (varint(&h, &tag) && (tag & 7) == 0 && varint(&h, &v)) {
		if (tag >> 3 == 3 && (int64_t)v > s->revision)
			s->revision = (int64_t)v;
		if (tag >> 3 == 4)
			sess_note_term(s, v);
	}
}

/* ---- the door ---- */

static void cancel(struct sess *s, uint64_t tag)
{
	LIST_FOR_EACH(it, &s->calls) {
		struct call *c = CONTAINER_OF(it, struct call, node);
		if (c->tag != tag || !tag)
			continue;
		if (c->kind == CALL_LOCK) {
			hold_timeout(s, c, HF_CANCELED, "canceled");
		} else {
			sess_answer(s, tag, HF_CANCELED, "canceled");
			sess_call_free(s, c);
		}
		return;
	}
	hold_cancel(s, tag);
}

static void ask(struct sess *s, const struct sess_ask *a)
{
	struct call *c;
	if (a->kind == SESS_ASK_CLOSE) {
		close_session(s, a);
		return;
	}
	if (a->kind == SESS_ASK_STOP) {
		watch_stop(s, a->tag);
		return;
	}
	if (a->kind == SESS_ASK_UNLOCK) {
		hold_unlock(s, a);
		return;
	}
	if (a->kind == SESS_ASK_CANCEL) {
		cancel(s, a->tag);
		return;
	}
	if (!sess_may_act(s)) {
		sess_answer(s, a->tag, s->state == HF_CLOSING || s->state == HF_CLOSED ? HF_CANCELED : HF_SESSION_LOST, "the session is over, or not open yet");
		return;
	}
	if (s->calls_len >= HF_CALLS_MAX) {
		sess_answer(s, a->tag, HF_BUSY, "too many calls of one session");
		return;
	}
	switch (a->kind) {
	case SESS_ASK_CALL:
		c = sess_call_new(s, CALL_PLAIN, a->method, a->tag, a->deadline_ms);
		if (a->once)
			c->request_id = ++s->next_request_id;
		buf_append_slice(&c->request, a->bytes);
		break;
	case SESS_ASK_GET:
	case SESS_ASK_LIST:
		c = sess_call_new(s, a->kind == SESS_ASK_GET ? CALL_GET : CALL_LIST, a->kind == SESS_ASK_GET ? METHOD_NODES_GET : METHOD_NODES_LIST, a->tag,
			     a->deadline_ms);
		buf_append_slice(&c->path, a->path);
		break;
	case SESS_ASK_LOCK:
	case SESS_ASK_CAMPAIGN: hold_ask(s, a); break;
	case SESS_ASK_PROCLAIM: hold_proclaim(s, a); break;
	case SESS_ASK_WATCH:
	case SESS_ASK_FOLLOW:
	case SESS_ASK_OBSERVE: watch_ask(s, a); break;
	case SESS_ASK_UNLOCK:
	case SESS_ASK_STOP:
	case SESS_ASK_CANCEL:
	case SESS_ASK_CLOSE: break;
	}
}

void sess_step(struct sess *s, const struct sess_event *e)
{
	/* Whatever the clock says of what it brings: a call that has ended is not cancelled when the session's time is over. */
	bool landed = e->kind == SESS_REPLY && call_landed(s, e);
	if (e->now_ms > s->now)
		s->now = e->now_ms;
	look_at_clock(s);
	switch (e->kind) {
	case SESS_TICK: break;
	case SESS_STREAM_MESSAGE: stream_message(s, e); break;
	case SESS_STREAM_ENDED: stream_ended(s, e); break;
	case SESS_HEARD:
		if (e->endpoint < s->endpoints)
			place_heard(s, e->endpoint, e->serves);
		break;
	case SESS_REPLY:
		if (landed)
			call_reply(s, e);
		break;
	case SESS_PART: call_part(s, e); break;
	case SESS_ASK: ask(s, &e->ask); break;
	}
	if (sess_over(s))
		return;
	stream_run(s);
	holds_run(s);
	calls_run(s);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t sess_next_ms(const struct sess *s)
{
	uint64_t t = SESS_NEVER;
	if (sess_over(s))
		return t;
	if (s->cache_until)
		t = earlier(t, s->cache_until);
	if (s->state == HF_SAFE)
		t = earlier(t, s->lease_until);
	else if (s->state == HF_JEOPARDY)
		t = earlier(t, s->jeopardy_since + s->grace_ms);
	else if (s->state == HF_OPENING)
		t = earlier(t, s->open_deadline_ms);
	else if (s->state == HF_CLOSING)
		t = earlier(t, s->close_deadline_ms);
	t = earlier(t, stream_next(s));
	t = earlier(t, calls_next(s));
	return earlier(t, holds_next(s));
}

/* ---- life ---- */

struct sess *sess_new(const struct sess_config *config, uint64_t now_ms)
{
	struct sess *s = mem_zalloc(sizeof(*s));
	ASSERT(config->endpoints > 0);
	rng_init(&s->rng, config->seed);
	s->endpoints = config->endpoints;
	s->endpoint = (uint32_t)rng_below(&s->rng, s->endpoints);
	places_init(s);
	s->now = now_ms;
	s->retry_at = s->stream_due = now_ms;
	s->grace_ms = config->grace_ms;
	s->asked_ttl_s = config->ttl_s;
	s->cache_max = config->cache_max;
	s->open_tag = config->open_tag;
	s->open_deadline_ms = config->open_deadline_ms;
	s->name = config->name ? text_of(slice_of_str(config->name)) : NULL;
	for (const char *const *p = config->cache_prefixes; p && *p && s->prefixes_len < PREFIXES_MAX; p++)
		s->prefixes[s->prefixes_len++] = text_of(slice_of_str(*p));
	list_init(&s->calls);
	list_init(&s->holds);
	list_init(&s->watches);
	list_init(&s->lru);
	return s;
}

void sess_free(struct sess *s)
{
	struct list *it;
	if (!s)
		return;
	while (!list_empty(&s->calls))
		sess_call_free(s, CONTAINER_OF(s->calls.next, struct call, node));
	while ((it = list_pop_front(&s->holds)))
		hold_free(CONTAINER_OF(it, struct hold, node));
	while ((it = list_pop_front(&s->watches))) {
		struct watch *w = CONTAINER_OF(it, struct watch, node);
		buf_free(&w->path);
		free(w);
	}
	cache_deinit(s);
	for (size_t i = 0; i < s->prefixes_len; i++)
		free(s->prefixes[i]);
	free(s->name);
	free(s->places);
	buf_free(&s->secret);
	sess_update_free(&s->out);
	free(s);
}

/* ---- looking ---- */

enum hf_state sess_state(const struct sess *s)
{
	return s->state;
}

enum hf_reason sess_reason(const struct sess *s)
{
	return s->reason;
}

int64_t sess_id(const struct sess *s)
{
	return s->id;
}

uint64_t sess_term(const struct sess *s)
{
	return s->term;
}

uint64_t sess_remaining_ms(const struct sess *s, uint64_t now_ms)
{
	return s->state == HF_SAFE && now_ms < s->lease_until ? s->lease_until - now_ms : 0;
}

uint64_t sess_cache_remaining_ms(const struct sess *s, uint64_t now_ms)
{
	return s->state == HF_SAFE && now_ms < s->cache_until ? s->cache_until - now_ms : 0;
}
