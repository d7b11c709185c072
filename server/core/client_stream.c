/* client_stream.c: holdfast.v1.Session: one stream a client, on any replica.
 *
 *   (S1) a stream opens its session, or resumes it, by an entry of the log; until that is applied nothing is sent, and what else has come waits.
 *   (S2) of a session at most one stream is open here, and it is the one that the session's record names: when an entry names another, this one is
 *        told and ends in the same step.
 *   (S3) what ends a session is told to its stream in the step that applies it, with the reason.
 *   (S4) a stream's output is bounded: who does not read is cut off. The session lives on without a stream.
 *   (S5) a stream that is over sends one finished output and is gone. */
#include "internal.h"

enum { REQUEST_OPEN = 1, REQUEST_RESUME, REQUEST_KEEP_ALIVE, REQUEST_ACK, REQUEST_CLOSE, REQUEST_UNWATCH };
enum { RESPONSE_OPENED = 1, RESPONSE_KEPT_ALIVE, RESPONSE_INVALIDATION, RESPONSE_EVENT, RESPONSE_FAIL_OVER, RESPONSE_ENDED };

#define SESSION_END(name) HOLDFAST__V1__SESSION_END__SESSION_##name

void sessions_init(struct core *c)
{
	list_init(&c->sessions.all);
	list_init(&c->sessions.dirty);
	list_init(&c->sessions.acks);
	list_init(&c->sessions.asks_fresh);
	list_init(&c->sessions.asks_sent);
}

static struct client_stream *find_tag(const struct core *c, uint64_t tag)
{
	return map64_get(&c->sessions.by_tag, tag);
}

struct client_stream *sessions_find(const struct core *c, lease_id session)
{
	return session ? map64_get(&c->sessions.by_session, (uint64_t)session) : NULL;
}

/* No session of it is here any more. */
static void leave(struct core *c, struct client_stream *s)
{
	node_watches_drop(c, s);
	list_remove(&s->ack_link);
	s->ack_due = false;
	if (s->session && sessions_find(c, s->session) == s)
		map64_remove(&c->sessions.by_session, (uint64_t)s->session);
	if (s->call && s->state == CLIENT_OPENING && !s->call->tried)
		propose_drop(c, s->call); /* it may have been waiting for a leader: nobody wants it any more */
	s->call = NULL; /* what comes of it is told to nobody, see sessions_told */
}

static void stream_free(struct core *c, struct client_stream *s)
{
	leave(c, s);
	list_remove(&s->all);
	list_remove(&s->dirty);
	map64_remove(&c->sessions.by_tag, s->tag);
	buf_free(&s->opening);
	buf_free(&s->held);
	buf_free(&s->out);
	free(s);
}

void sessions_deinit(struct core *c)
{
	while (!list_empty(&c->sessions.all))
		stream_free(c, CONTAINER_OF(c->sessions.all.next, struct client_stream, all));
	map64_deinit(&c->sessions.by_tag);
	map64_deinit(&c->sessions.by_session);
	mapb_deinit(&c->sessions.points);
	free(c->sessions.ended);
}

/* ---- out ---- */

static void make_dirty(struct core *c, struct client_stream *s)
{
	list_remove(&s->dirty);
	list_push_back(&c->sessions.dirty, &s->dirty);
}

void client_stream_end(struct core *c, struct client_stream *s, enum err e)
{
	if (s->state == CLIENT_OVER)
		return;
	leave(c, s);
	s->state = CLIENT_OVER;
	s->end = e;
	buf_free(&s->held);
	make_dirty(c, s);
}

static void append_message(struct buf *to, struct slice bytes)
{
	uint32_t len = (uint32_t)bytes.len;

	for (unsigned i = 0; i < 4; i++)
		buf_append_byte(to, (uint8_t)(len >> (8 * i)));
	buf_append_slice(to, bytes);
}

void client_stream_emit(struct core *c, struct client_stream *s, uint32_t field, struct slice body)
{
	struct buf message = { 0 };

	if (s->state == CLIENT_OVER)
		return;
	pbw_bytes_always(&message, field, body);
	if (s->out.len + message.len > SESSION_OUT_MAX) { /* S4 */
		buf_free(&s->out);
		client_stream_end(c, s, ERR_SLOW_READER);
	} else {
		append_message(&s->out, buf_view(&message));
		make_dirty(c, s);
	}
	buf_free(&message);
}

static void emit_ended(struct core *c, struct client_stream *s, uint32_t reason, const char *text)
{
	struct buf body = { 0 };

	pbw_u64(&body, 1, reason);
	pbw_bytes(&body, 2, slice_of_str(text));
	pbw_i64(&body, 3, c->state.revision);
	client_stream_emit(c, s, RESPONSE_ENDED, buf_view(&body));
	buf_free(&body);
	client_stream_end(c, s, ERR_OK);
}

static void emit_opened(struct core *c, struct client_stream *s, int64_t ttl_s, revision rev)
{
	struct buf body = { 0 };

	pbw_i64(&body, 1, s->session);
	if (!s->resumed)
		pbw_bytes(&body, 2, slice_of(s->secret, sizeof(s->secret)));
	pbw_i64(&body, 3, ttl_s);
	pbw_u64(&body, 4, c->term);
	pbw_i64(&body, 5, rev);
	pbw_u64(&body, 6, s->resumed);
	pbw_u64(&body, 7, c->config.cell_id);
	pbw_u64(&body, 8, c->config.member);
	client_stream_emit(c, s, RESPONSE_OPENED, buf_view(&body));
	buf_free(&body);
}

/* ---- open and resume ---- */

static void write_place(const struct core *c, uint64_t tag, struct buf *out, uint32_t field)
{
	size_t mark = pbw_open(out, field);

	pbw_u64(out, 1, c->config.member);
	pbw_u64(out, 2, c->config.boot);
	pbw_u64(out, 3, tag);
	pbw_close(out, mark);
}

static void propose(struct core *c, struct client_stream *s, uint32_t kind, struct slice payload)
{
	struct call *call = call_new(c, CALL_COMMAND, 0, METHOD_SESSION_CONNECT);

	call->session_tag = s->tag;
	call->auth = stream_whose(c, s->tag);
	s->call = call;
	propose_submit(c, call, kind, payload);
}

struct opening {
	int64_t ttl;
	struct buf prefixes;
	struct slice name;
};

static bool parse_opening(struct slice body, struct opening *o)
{
	struct wire w;

	for (wire_init(&w, body); wire_next(&w);) {
		switch (w.field) {
		case 1: o->ttl = wire_i64(&w); break;
		case 2:
			buf_append_slice(&o->prefixes, wire_bytes(&w));
			buf_append_byte(&o->prefixes, 0);
			break;
		case 3: o->name = wire_bytes(&w); break;
		default: break;
		}
	}
	return !w.bad;
}

static enum err check_opening(const struct opening *o)
{
	if (o->ttl < 0 || o->ttl > (o->prefixes.len > 0 ? SESSION_TTL_CACHING_MAX_S : SESSION_TTL_MAX_S))
		return ERR_SESSION_TTL;
	if (!session_prefixes_are_good(buf_view(&o->prefixes)))
		return ERR_SESSION_PREFIX;
	return o->name.len > SESSION_NAME_MAX ? ERR_SESSION_NAME : ERR_OK;
}

/* The lease's ID is drawn here, so that the log holds no choices; one that is taken is drawn again. */
static void propose_opening(struct core *c, struct client_stream *s)
{
	uint8_t hash[SESSION_HASH_LEN];
	struct buf payload = { 0 };
	struct opening o = { 0 };
	int64_t ttl;

	ASSERT(parse_opening(buf_view(&s->opening), &o));
	ttl = o.ttl ? o.ttl : SESSION_TTL_DEFAULT_S;
	session_hash_secret(slice_of(s->secret, sizeof(s->secret)), hash);
	pbw_fixed64(&payload, 1, rng_between(&c->rng, 1, INT64_MAX));
	pbw_i64(&payload, 2, ttl < request_min_ttl_s(c) ? request_min_ttl_s(c) : ttl);
	pbw_bytes(&payload, 3, slice_of(hash, sizeof(hash)));
	pbw_bytes(&payload, 4, buf_view(&o.prefixes));
	pbw_bytes(&payload, 5, o.name);
	write_place(c, s->tag, &payload, 6);
	propose(c, s, CMD(SESSION_OPEN), buf_view(&payload));
	buf_free(&payload);
	buf_free(&o.prefixes);
}

static void receive_open(struct core *c, struct client_stream *s, struct slice body)
{
	struct opening o = { 0 };
	enum err e = parse_opening(body, &o) ? check_opening(&o) : ERR_MALFORMED;

	buf_free(&o.prefixes);
	if (e) {
		client_stream_end(c, s, e);
		return;
	}
	s->state = CLIENT_OPENING;
	s->opening = buf_copy_of(body);
	propose_opening(c, s);
}

static void receive_resume(struct core *c, struct client_stream *s, struct slice body)
{
	uint8_t hash[SESSION_HASH_LEN];
	struct buf payload = { 0 };

	s->state = CLIENT_OPENING;
	s->resumed = true;
	session_hash_secret(wire_find_bytes(body, 2), hash);
	pbw_fixed64(&payload, 1, wire_find_u64(body, 1, 0));
	pbw_bytes(&payload, 2, slice_of(hash, sizeof(hash)));
	pbw_i64(&payload, 3, (int64_t)wire_find_u64(body, 3, 0));
	write_place(c, s->tag, &payload, 4);
	pbw_i64(&payload, 5, (int64_t)wire_find_u64(body, 4, 0));
	propose(c, s, CMD(SESSION_RESUME), buf_view(&payload));
	buf_free(&payload);
}

static void receive(struct core *c, struct client_stream *s, struct slice bytes);

/* What came too early, in order. It may end the stream. */
static void receive_held(struct core *c, struct client_stream *s)
{
	struct buf held = buf_take(&s->held);

	for (size_t at = 0; at < held.len && s->state == CLIENT_OPEN;) {
		size_t len = held.ptr[at] | (size_t)held.ptr[at + 1] << 8 | (size_t)held.ptr[at + 2] << 16 | (size_t)held.ptr[at + 3] << 24;

		receive(c, s, slice_of(held.ptr + at + 4, len));
		at += 4 + len;
	}
	buf_free(&held);
}

static void opened(struct core *c, struct client_stream *s, struct slice result)
{
	const struct open_session *record;

	s->session = (lease_id)wire_find_u64(result, 1, 0);
	record = session_find(&c->state, s->session);
	ASSERT(record);
	s->state = CLIENT_OPEN;
	s->caches = session_caches(record);
	buf_free(&s->opening);
	ASSERT(!map64_put(&c->sessions.by_session, (uint64_t)s->session, s)); /* S2 */
	emit_opened(c, s, (int64_t)wire_find_u64(result, 2, 0), (revision)wire_find_u64(result, 3, 0));
	receive_held(c, s);
}

static void write_closing(const struct core *c, lease_id session, uint64_t tag, struct buf *out)
{
	pbw_fixed64(out, 1, (uint64_t)session);
	write_place(c, tag, out, 2);
}

/* The client left before it could be told of the session that it opened: nobody knows its secret, so nobody will ever want it. */
static void close_orphan(struct core *c, lease_id session, uint64_t tag)
{
	struct buf payload = { 0 };

	write_closing(c, session, tag, &payload);
	propose_submit(c, call_new(c, CALL_COMMAND, 0, METHOD_SESSION_CONNECT), CMD(SESSION_CLOSE), buf_view(&payload));
	buf_free(&payload);
}

/* What came of the command that this stream waits for. */
void sessions_told(struct core *c, struct call *call, enum err e, struct slice reply)
{
	struct client_stream *s = find_tag(c, call->session_tag);

	if (call->kind != CALL_COMMAND)
		return;
	if (!s || s->call != call) {
		if (!e && call->command == CMD(SESSION_OPEN))
			close_orphan(c, (lease_id)wire_find_u64(reply, 1, 0), call->session_tag);
		return;
	}
	s->call = NULL;
	call->session_tag = 0;
	if (e == ERR_LEASE_EXISTS && s->state == CLIENT_OPENING)
		propose_opening(c, s);
	else if (e)
		client_stream_end(c, s, e);
	else if (s->state == CLIENT_OPENING)
		opened(c, s, reply);
}

/* ---- a session's messages ---- */

static void receive_keep_alive(struct core *c, struct client_stream *s, struct slice body)
{
	struct call *call;

	if (s->renewals >= SESSION_RENEWALS_MAX) {
		client_stream_end(c, s, ERR_TOO_MANY_REQUESTS);
		return;
	}
	call = call_new(c, CALL_RENEW, 0, METHOD_LEASE_KEEP_ALIVE);
	call->session_tag = s->tag;
	call->sequence = wire_find_u64(body, 1, 0);
	call->lease = s->session;
	s->renewals++;
	renew_submit(c, call);
}

/* A lease that is gone is no answer: the entry that ended it tells. */
void sessions_kept_alive(struct core *c, struct call *call, int64_t ttl_s)
{
	struct client_stream *s = find_tag(c, call->session_tag);
	struct buf body = { 0 };

	if (!s || s->state != CLIENT_OPEN || ttl_s <= 0)
		return;
	pbw_u64(&body, 1, call->sequence);
	pbw_i64(&body, 2, ttl_s);
	pbw_u64(&body, 3, c->term);
	pbw_i64(&body, 4, c->state.revision);
	pbw_u64(&body, 5, call->extended);
	client_stream_emit(c, s, RESPONSE_KEPT_ALIVE, buf_view(&body));
	buf_free(&body);
}

void sessions_call_gone(struct core *c, struct call *call)
{
	struct client_stream *s = find_tag(c, call->session_tag);

	if (!s)
		return;
	if (call->kind == CALL_RENEW)
		s->renewals--;
	else if (s->call == call)
		s->call = NULL;
}

/* Of whatever term: the leader judges. */
static void receive_ack(struct core *c, struct client_stream *s, struct slice body)
{
	uint64_t number = wire_find_u64(body, 1, 0);
	raft_term term = wire_find_u64(body, 2, 0);

	if (term < s->owed_term || term < c->term)
		return;
	if (term > s->owed_term) {
		s->owed_term = term;
		s->passed = s->acked = 0;
	}
	if (number > s->acked)
		s->acked = number;
	s->ack_due = true;
	list_remove(&s->ack_link);
	list_push_back(&c->sessions.acks, &s->ack_link);
}

static void receive_close(struct core *c, struct client_stream *s)
{
	struct buf payload = { 0 };

	if (s->closing)
		return;
	s->closing = true;
	write_closing(c, s->session, s->tag, &payload);
	propose(c, s, CMD(SESSION_CLOSE), buf_view(&payload));
	buf_free(&payload);
}

static void receive_unwatch(struct core *c, struct client_stream *s, struct slice body)
{
	struct wire w;

	for (wire_init(&w, body); wire_next(&w);) {
		struct slice packed;

		if (w.field != 1)
			continue;
		if (w.type != WIRE_BYTES) {
			node_watch_disarm(c, s, wire_u64(&w));
			continue;
		}
		packed = wire_bytes(&w);
		while (packed.len > 0) {
			int64_t id;

			if (!wire_take_varint(&packed, &id))
				break;
			node_watch_disarm(c, s, (uint64_t)id);
		}
	}
}

static void receive_open_stream(struct core *c, struct client_stream *s, uint32_t field, struct slice body)
{
	switch (field) {
	case REQUEST_KEEP_ALIVE: receive_keep_alive(c, s, body); break;
	case REQUEST_ACK: receive_ack(c, s, body); break;
	case REQUEST_CLOSE: receive_close(c, s); break;
	case REQUEST_UNWATCH: receive_unwatch(c, s, body); break;
	default: client_stream_end(c, s, ERR_SESSION_ORDER); break;
	}
}

static void hold(struct core *c, struct client_stream *s, struct slice bytes)
{
	append_message(&s->held, bytes);
	if (s->held.len > SESSION_HELD_MAX)
		client_stream_end(c, s, ERR_TOO_MANY_REQUESTS);
}

static void receive(struct core *c, struct client_stream *s, struct slice bytes)
{
	uint32_t field = 0;
	struct slice body = { 0 };
	struct wire w;

	for (wire_init(&w, bytes); wire_next(&w);) {
		if (w.field > REQUEST_UNWATCH)
			continue;
		field = w.field;
		body = wire_bytes(&w);
	}
	if (w.bad || field == 0)
		client_stream_end(c, s, w.bad ? ERR_MALFORMED : ERR_SESSION_ORDER);
	else if (s->state == CLIENT_OPEN)
		receive_open_stream(c, s, field, body);
	else if (s->state == CLIENT_OPENING && (field == REQUEST_OPEN || field == REQUEST_RESUME))
		client_stream_end(c, s, ERR_SESSION_ORDER);
	else if (s->state == CLIENT_OPENING)
		hold(c, s, bytes);
	else if (s->state == CLIENT_NEW && field == REQUEST_OPEN)
		receive_open(c, s, body);
	else if (s->state == CLIENT_NEW && field == REQUEST_RESUME)
		receive_resume(c, s, body);
	else
		client_stream_end(c, s, ERR_SESSION_ORDER);
}

/* ---- events ---- */

static void finish(struct core *c, uint64_t tag, enum err e, struct buf *messages)
{
	struct core_output *o = VEC_PUSH(&c->out.outputs);

	stream_caller_forget(c, tag);
	o->stream = tag;
	o->finished = true;
	o->err = e;
	if (messages)
		o->messages = buf_take(messages);
}

/* bytes: 32 random ones, the secret of the session that may be opened. */
static void stream_open(struct core *c, const struct core_event *e)
{
	struct client_stream *s;

	if (c->sessions.by_tag.len >= SESSION_STREAMS_MAX || e->stream.bytes.len != SESSION_SECRET_LEN) {
		finish(c, e->stream.tag, ERR_TOO_MANY_SESSIONS, NULL);
		return;
	}
	s = mem_zalloc(sizeof(*s));
	s->tag = e->stream.tag;
	s->writable = true;
	memcpy(s->secret, e->stream.bytes.ptr, sizeof(s->secret));
	list_init(&s->dirty);
	list_init(&s->ack_link);
	list_push_back(&c->sessions.all, &s->all);
	map64_put(&c->sessions.by_tag, s->tag, s);
}

bool sessions_step(struct core *c, const struct core_event *e)
{
	struct client_stream *s;

	if (e->kind == EVENT_STREAM_OPEN) {
		if (e->stream.method != METHOD_SESSION_CONNECT)
			return false;
		stream_open(c, e);
		return true;
	}
	s = find_tag(c, e->stream.tag);
	if (!s)
		return false;
	switch (e->kind) {
	case EVENT_STREAM_MESSAGE:
		if (s->state != CLIENT_OVER)
			receive(c, s, e->stream.bytes);
		break;
	case EVENT_STREAM_WRITABLE:
		s->writable = true;
		if (s->out.len > 0 || s->state == CLIENT_OVER)
			make_dirty(c, s);
		break;
	default:
		finish(c, s->tag, ERR_CANCELED, NULL);
		stream_free(c, s);
		break;
	}
	return true;
}

static void tell_fail_over(struct core *c)
{
	struct buf body = { 0 };

	if (!c->leader || c->sessions.term_told == c->term)
		return;
	c->sessions.term_told = c->term;
	pbw_u64(&body, 1, c->term);
	LIST_FOR_EACH_SAFE(l, next, &c->sessions.all) {
		struct client_stream *s = CONTAINER_OF(l, struct client_stream, all);

		if (s->state == CLIENT_OPEN)
			client_stream_emit(c, s, RESPONSE_FAIL_OVER, buf_view(&body));
	}
	buf_free(&body);
}

/* S5 */
void sessions_take(struct core *c)
{
	tell_fail_over(c);
	LIST_FOR_EACH_SAFE(l, next, &c->sessions.dirty) {
		struct client_stream *s = CONTAINER_OF(l, struct client_stream, dirty);

		if (!s->writable && s->out.len > 0)
			continue;
		list_remove(&s->dirty);
		if (s->state == CLIENT_OVER) {
			finish(c, s->tag, s->end, &s->out);
			stream_free(c, s);
		} else if (s->out.len > 0) {
			struct core_output *o = VEC_PUSH(&c->out.outputs);

			o->stream = s->tag;
			o->messages = buf_take(&s->out);
			s->writable = false;
		}
	}
}

/* ---- with the state ---- */

static bool is_place_of(const struct core *c, const struct open_session *record, const struct client_stream *s)
{
	return record->place.member == c->config.member && record->place.boot == c->config.boot && record->place.stream == s->tag;
}

/* S2 */
static void check_place(struct core *c, lease_id session)
{
	const struct open_session *record = session_find(&c->state, session);
	struct client_stream *s = sessions_find(c, session);

	if (s && record && !is_place_of(c, record, s))
		emit_ended(c, s, SESSION_END(TAKEN_OVER), "another stream has resumed the session");
}

static void session_ended(struct core *c, lease_id session, uint32_t kind)
{
	struct client_stream *s = sessions_find(c, session);

	cache_session_end(c->gate.cache, session, c->now);
	if (!s)
		return;
	if (kind == CMD(SESSION_CLOSE))
		emit_ended(c, s, SESSION_END(CLOSED), "closed");
	else if (kind == CMD(LEASE_END))
		emit_ended(c, s, SESSION_END(EXPIRED), "not kept alive for its TTL");
	else
		emit_ended(c, s, SESSION_END(REVOKED), "its lease was revoked");
}

void sessions_applied(struct core *c, uint32_t kind, struct slice payload, enum err e)
{
	struct sessions *ss = &c->sessions;
	lease_id session;

	for (size_t i = 0; i < ss->ended_len; i++)
		session_ended(c, ss->ended[i], kind); /* S3 */
	ss->ended_len = 0;
	if (!e && kind == CMD(AUTH))
		node_watches_permitted(c);
	if (e || (kind != CMD(SESSION_OPEN) && kind != CMD(SESSION_RESUME)))
		return;
	session = (lease_id)wire_find_u64(payload, 1, 0);
	check_place(c, session);
	if (!core_leads(c) || !session_caches(session_find(&c->state, session)))
		return;
	if (kind == CMD(SESSION_OPEN))
		cache_session_add(c->gate.cache, session, c->now + (time_ms)lease_find(c->lessor, session)->ttl_s * 1000, /*flush=*/false,
				  c->now);
	else
		cache_session_moved(c->gate.cache, session);
}

void sessions_recheck(struct core *c)
{
	LIST_FOR_EACH_SAFE(l, next, &c->sessions.all) {
		struct client_stream *s = CONTAINER_OF(l, struct client_stream, all);

		if (s->state != CLIENT_OPEN)
			continue;
		if (!session_find(&c->state, s->session))
			emit_ended(c, s, SESSION_END(EXPIRED), "the session is over");
		else
			check_place(c, s->session);
	}
	node_watches_permitted(c);
	node_watches_recheck(c);
}

void sessions_check(const struct core *c)
{
	LIST_FOR_EACH(l, &c->sessions.all) {
		const struct client_stream *s = CONTAINER_OF(l, struct client_stream, all);
		const struct open_session *record = session_find(&c->state, s->session);

		ASSERT(find_tag(c, s->tag) == s);
		if (s->state != CLIENT_OPEN)
			continue;
		ASSERT(sessions_find(c, s->session) == s);
		ASSERT(record && is_place_of(c, record, s)); /* S2, S3 */
	}
	ASSERT(c->sessions.ended_len == 0);
}
