/* stream.c: the session's stream to one replica: open, resume, keep-alives, and what the cell tells. Which replica, and when another: place.c. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "internal.h"

void stream_send(struct sess *s, const Holdfast__V1__SessionRequest *m)
{
	struct sess_out *o = sess_out(s, SESS_SEND);
	o->stream = s->stream;
	pack_into(&o->bytes, &m->base);
}

/* ---- keep-alives ---- */

static void keep_alive_send(struct sess *s)
{
	Holdfast__V1__SessionRequest m = HOLDFAST__V1__SESSION_REQUEST__INIT;
	Holdfast__V1__SessionKeepAlive k = HOLDFAST__V1__SESSION_KEEP_ALIVE__INIT;
	uint64_t every = (uint64_t)s->ttl_s * 1000 / 3;
	k.sequence = ++s->sequence;
	s->keep_alives[k.sequence % KEEP_ALIVES_MAX] = (struct keep_alive){ .sequence = k.sequence, .sent_ms = s->now };
	if (!s->unanswered_since)
		s->unanswered_since = s->now;
	place_asked(s, s->endpoint);
	/* Not all at once, when many began together. */
	s->keep_alive_at = s->now + every - rng_below(&s->rng, every / 10 + 1);
	m.request_case = HOLDFAST__V1__SESSION_REQUEST__REQUEST_KEEP_ALIVE;
	m.keep_alive = &k;
	stream_send(s, &m);
}

/* S1 */
static uint64_t lease_end(uint64_t sent_ms, int64_t ttl_s)
{
	uint64_t ttl = (uint64_t)ttl_s * 1000;
	return sent_ms + ttl - ttl / 100 - SLACK_MS;
}

static void extend(uint64_t *until, uint64_t to)
{
	if (to > *until)
		*until = to;
}

static void on_kept_alive(struct sess *s, const Holdfast__V1__SessionKeptAlive *m)
{
	struct keep_alive *k = &s->keep_alives[m->sequence % KEEP_ALIVES_MAX];
	uint64_t end;
	sess_note_term(s, m->term);
	if (m->revision > s->revision)
		s->revision = m->revision;
	if (m->sequence == 0 || k->sequence != m->sequence || m->ttl <= 0 || m->ttl > INT32_MAX)
		return; /* no answer to anything of ours */
	end = lease_end(k->sent_ms, m->ttl);
	s->ttl_s = m->ttl;
	s->unanswered_since = 0;
	s->failures = 0;
	k->sequence = 0;
	if (end <= s->now)
		return;
	extend(&s->lease_until, end);
	if (m->cache_extended && m->term == s->term && s->prefixes_len)
		extend(&s->cache_until, end);
	sess_safe(s);
}

/* ---- opening ---- */

static void send_open(struct sess *s)
{
	Holdfast__V1__SessionRequest m = HOLDFAST__V1__SESSION_REQUEST__INIT;
	Holdfast__V1__SessionOpen o = HOLDFAST__V1__SESSION_OPEN__INIT;
	o.ttl = s->asked_ttl_s;
	o.cache_prefixes = s->prefixes;
	o.n_cache_prefixes = s->prefixes_len;
	if (s->name)
		o.name = s->name;
	m.request_case = HOLDFAST__V1__SESSION_REQUEST__REQUEST_OPEN;
	m.open = &o;
	s->open_sent_ms = s->now;
	stream_send(s, &m);
}

static void send_resume(struct sess *s)
{
	Holdfast__V1__SessionRequest m = HOLDFAST__V1__SESSION_REQUEST__INIT;
	Holdfast__V1__SessionResume r = HOLDFAST__V1__SESSION_RESUME__INIT;
	r.session = s->id;
	r.secret = (ProtobufCBinaryData){ .data = s->secret.ptr, .len = s->secret.len };
	r.revision = s->revision;
	r.attempt = (int64_t)s->stream; /* T1 */
	m.request_case = HOLDFAST__V1__SESSION_REQUEST__REQUEST_RESUME;
	m.resume = &r;
	stream_send(s, &m);
}

static void connect(struct sess *s)
{
	struct sess_out *o = sess_out(s, SESS_CONNECT);
	o->stream = ++s->stream;
	o->endpoint = s->endpoint;
	s->stream_state = STREAM_OPENING;
	s->stream_since = s->now;
	s->pardoned = false;
	s->places[s->endpoint].asked_ms = s->now; /* what it did not answer before is forgiven */
	memset(s->keep_alives, 0, sizeof(s->keep_alives)); /* those of an earlier stream are answered no more */
	s->unanswered_since = 0;
	if (!s->id) {
		send_open(s);
		return;
	}
	send_resume(s);
	if (sess_may_act(s))
		keep_alive_send(s);
}

/* At another replica, at once when there are some that were not tried. */
static void elsewhere(struct sess *s)
{
	uint64_t wait = BACKOFF_MIN_MS;
	stream_drop(s);
	s->endpoint = place_choose(s);
	s->failures++;
	s->retry_at = s->now;
	if (s->failures < s->endpoints)
		return;
	for (uint32_t i = s->endpoints; i < s->failures && wait < BACKOFF_MAX_MS; i++)
		wait *= 2;
	s->retry_at += wait / 2 + rng_below(&s->rng, wait / 2 + 1);
}

/* It said no, or broke off. */
static void failed(struct sess *s)
{
	place_failed(s);
	elsewhere(s);
}

void stream_drop(struct sess *s)
{
	if (s->stream_state == STREAM_NONE)
		return;
	sess_out(s, SESS_DROP)->stream = s->stream;
	s->stream_state = STREAM_NONE;
	s->unanswered_since = 0;
	s->retry_at = s->now;
	calls_stream_lost(s);
}

/* Since when the stream waits for an answer; 0: it does not. */
static uint64_t waits_since(const struct sess *s)
{
	switch (s->stream_state) {
	case STREAM_NONE: break;
	case STREAM_OPENING: return s->stream_since;
	case STREAM_UP: return s->unanswered_since;
	}
	return 0;
}

/* What has come meanwhile is still to be read. Once while an answer is waited for: who is always late would else wait for ever. */
static void stood_still(struct sess *s)
{
	if (s->pardoned)
		return;
	s->pardoned = true;
	places_stood_still(s);
	s->stream_since = s->now;
	if (s->unanswered_since)
		s->unanswered_since = s->now;
}

void stream_run(struct sess *s)
{
	if (!waits_since(s))
		s->pardoned = false;
	else if (s->now >= s->stream_due && s->now - s->stream_due > STOOD_STILL_MS)
		stood_still(s);
	if (place_is_left(s, waits_since(s)))
		elsewhere(s);
	if (s->stream_state == STREAM_NONE && s->now >= s->retry_at)
		connect(s);
	else if (s->stream_state == STREAM_UP && s->now >= s->keep_alive_at && sess_may_act(s))
		keep_alive_send(s);
	s->stream_due = stream_next(s);
}

uint64_t stream_next(const struct sess *s)
{
	uint64_t t;
	if (s->stream_state == STREAM_NONE)
		return s->retry_at;
	t = place_next_ms(s, waits_since(s));
	if (s->stream_state == STREAM_UP && sess_may_act(s) && s->keep_alive_at < t)
		t = s->keep_alive_at;
	return t;
}

/* ---- what the cell tells ---- */

static void on_opened(struct sess *s, const Holdfast__V1__SessionOpened *m)
{
	uint64_t end, tag = s->open_tag;
	if (s->stream_state != STREAM_OPENING || m->ttl <= 0 || m->ttl > INT32_MAX || (s->id && m->session != s->id))
		return;
	s->stream_state = STREAM_UP;
	s->failures = 0;
	s->ttl_s = m->ttl;
	sess_note_term(s, m->term);
	if (m->revision > s->revision)
		s->revision = m->revision;
	if (s->unanswered_since) { /* it waited behind the resume */
		s->unanswered_since = s->now;
		place_asked(s, s->endpoint);
	}
	if (!s->id) {
		s->id = m->session;
		buf_append(&s->secret, m->secret.data, m->secret.len);
		end = lease_end(s->open_sent_ms, m->ttl);
		s->lease_until = end;
		if (s->prefixes_len)
			s->cache_until = end;
		s->open_tag = 0;
		s->keep_alive_at = s->open_sent_ms + (uint64_t)m->ttl * 1000 / 3;
		sess_safe(s);
		if (s->state == HF_OPENING) { /* the answer came too late: whether it lives, a keep-alive will tell */
			s->lease_until = s->now + 1;
			sess_safe(s);
		}
		sess_answer(s, tag, HF_OK, "");
	} else if (s->state == HF_CLOSING) {
		Holdfast__V1__SessionRequest r = HOLDFAST__V1__SESSION_REQUEST__INIT;
		Holdfast__V1__SessionClose c = HOLDFAST__V1__SESSION_CLOSE__INIT;
		r.request_case = HOLDFAST__V1__SESSION_REQUEST__REQUEST_CLOSE;
		r.close = &c;
		stream_send(s, &r);
	} else {
		watches_stream_up(s);
	}
}

static void on_taken_over(struct sess *s)
{
	if (s->taken_over == 0 || s->now - s->taken_over_at > TAKEN_OVER_MS) {
		s->taken_over = 0;
		s->taken_over_at = s->now;
	}
	/* Once it may well be ourselves: a resume that we gave up waiting for, carried out after the next one. */
	if (++s->taken_over >= TAKEN_OVER_MAX) {
		sess_end(s, HF_EXPIRED, HF_REASON_TAKEN_OVER, HF_SESSION_LOST, "somebody else has resumed the session");
		return;
	}
	stream_drop(s);
	s->retry_at = s->now + rng_between(&s->rng, BACKOFF_MIN_MS, BACKOFF_MIN_MS * 8u);
}

static void on_ended(struct sess *s, const Holdfast__V1__SessionEnded *m)
{
	if (m->revision > s->revision)
		s->revision = m->revision;
	if (m->reason == HOLDFAST__V1__SESSION_END__SESSION_TAKEN_OVER) {
		on_taken_over(s);
		return;
	}
	if (s->state == HF_CLOSING)
		sess_end(s, HF_CLOSED, HF_REASON_CLOSED, m->reason == HOLDFAST__V1__SESSION_END__SESSION_CLOSED ? HF_OK : HF_SESSION_LOST, "");
	else
		sess_end(s, HF_EXPIRED, m->reason == HOLDFAST__V1__SESSION_END__SESSION_EXPIRED ? HF_REASON_EXPIRED : HF_REASON_REVOKED, HF_SESSION_LOST,
			 m->text ? m->text : "");
}

static bool says_it_serves(const Holdfast__V1__SessionResponse *m)
{
	return m->response_case == HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_OPENED || m->response_case == HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_KEPT_ALIVE ||
	       m->response_case == HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_FAIL_OVER;
}

void stream_message(struct sess *s, const struct sess_event *e)
{
	Holdfast__V1__SessionResponse *m;
	if (e->stream != s->stream || s->stream_state == STREAM_NONE)
		return;
	m = call_unpack(&holdfast__v1__session_response__descriptor, e->bytes);
	if (!m) {
		failed(s); /* a replica that makes no sense */
		return;
	}
	place_heard(s, s->endpoint, s->places[s->endpoint].serves || says_it_serves(m));
	switch (m->response_case) {
	case HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_OPENED: on_opened(s, m->opened); break;
	case HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_KEPT_ALIVE: on_kept_alive(s, m->kept_alive); break;
	case HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_INVALIDATION: cache_invalidate(s, m->invalidation); break;
	case HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_EVENT: watch_event(s, m->event); break;
	case HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_FAIL_OVER: sess_note_term(s, m->fail_over->term); break;
	case HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_ENDED: on_ended(s, m->ended); break;
	default: break; /* of a later version */
	}
	protobuf_c_message_free_unpacked(&m->base, NULL);
}

/* Opening was refused for a reason that another replica would give too. */
static bool refused(int status)
{
	return status == STATUS_INVALID_ARGUMENT || status == STATUS_OUT_OF_RANGE || status == STATUS_PERMISSION_DENIED || status == STATUS_UNAUTHENTICATED ||
	       status == STATUS_UNIMPLEMENTED;
}

void stream_ended(struct sess *s, const struct sess_event *e)
{
	bool again;
	char *text;
	if (e->stream != s->stream || s->stream_state == STREAM_NONE)
		return;
	text = text_of(e->text);
	if (s->id && e->status == STATUS_NOT_FOUND)
		sess_end(s, s->state == HF_CLOSING ? HF_CLOSED : HF_EXPIRED, s->state == HF_CLOSING ? HF_REASON_CLOSED : HF_REASON_EXPIRED, HF_SESSION_LOST,
			 text);
	else if (s->stream_state == STREAM_OPENING && s->id && (e->status == STATUS_PERMISSION_DENIED || e->status == STATUS_OUT_OF_RANGE))
		sess_end(s, s->state == HF_CLOSING ? HF_CLOSED : HF_EXPIRED, HF_REASON_REFUSED, HF_SESSION_LOST, text);
	else if (!s->id && (refused(e->status) || e->status == STATUS_RESOURCE_EXHAUSTED))
		sess_end(s, HF_EXPIRED, HF_REASON_REFUSED, call_code(e->status, e->text, &again), text);
	else if (s->id && slice_eq(e->text, slice_of_str(err_text(ERR_SESSION_SUPERSEDED))))
		on_taken_over(s);
	else
		failed(s);
	free(text);
}
