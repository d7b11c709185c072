/* stream.c: Watch and Observe streams, between the core's door and the watch module.
 *
 * Streams see the state as of the end of each take: what a take has applied is matched once, after reads have been answered.
 *
 * What starts from now (a watch without a revision, an observer) starts from a now that is not past: like a linearizable read, it waits until
 * this replica has applied whatever had been committed when it came. Else a client that asked a lagging replica would be told, as new,
 * what was over before it asked. What comes behind it on its stream waits too, so that the order of a stream is kept. When no quorum can be
 * had in the time of a request, it starts from what is here, as etcd's always do. */
#include "internal.h"

enum { GATE_MESSAGES_MAX = 65536, GATE_BYTES_MAX = 16 << 20 };

struct stream_message {
	struct list link;
	uint64_t tag;
	struct call *call;     /* it waits for that; NULL: no more, or it never did */
	bool open;             /* opens the stream; else a message on it */
	enum method_id method; /* open */
	uint64_t connection;   /* open */
	struct buf bytes;
};

/* The messages of a stream that wait, the first one for a call, in order. */
struct stream_gate {
	struct list messages;
	size_t len, bytes;
};

void streams_init(struct core *c)
{
	struct watch_config config = watch_config_default;

	config.seed = rng_next(&c->rng);
	if (c->config.watch_progress_ms)
		config.progress_ms = c->config.watch_progress_ms;
	c->watches = watches_new(&config, &c->env);
}

static void message_free(struct core *c, struct stream_message *m)
{
	struct call *call = m->call;

	m->call = NULL;
	if (call)
		call_free(c, call);
	list_remove(&m->link);
	buf_free(&m->bytes);
	free(m);
}

static void gate_free(struct core *c, struct stream_gate *g)
{
	while (!list_empty(&g->messages))
		message_free(c, CONTAINER_OF(g->messages.next, struct stream_message, link));
	free(g);
}

void streams_deinit(struct core *c)
{
	size_t at = 0;
	uint64_t tag;
	void *g;

	while (map64_next(&c->gates, &at, &tag, &g))
		gate_free(c, g);
	map64_deinit(&c->gates);
	for (at = 0; map64_next(&c->stream_callers, &at, &tag, &g);)
		call_auth_free(g);
	map64_deinit(&c->stream_callers);
	watches_free(c->watches);
}

/* ---- the gate ---- */

void stream_caller_forget(struct core *c, uint64_t tag)
{
	call_auth_free(map64_remove(&c->stream_callers, tag));
}

static void caller_remember(struct core *c, uint64_t tag, const struct caller *caller)
{
	struct call_auth *auth = call_auth_new(caller, NULL);

	if (auth)
		map64_put(&c->stream_callers, tag, auth);
}

static void note_user(struct core *c, struct call_auth *auth)
{
	struct auth_who who;

	if (core_identify(c, &auth->caller, &who) != ERR_OK || who.user.len == 0)
		return;
	buf_clear(&auth->user);
	buf_append_slice(&auth->user, who.user);
}

static enum err watcher_may(void *ctx, uint64_t tag, struct slice key, struct slice end);

/* A stream's user stays who he was when it was first let do something: that a token runs out ends no watch. */
static enum err stream_may(struct core *c, uint64_t tag, enum method_id method, struct slice bytes)
{
	struct call_auth *auth = map64_get(&c->stream_callers, tag);
	enum err e;

	if (!auth_is_enabled(c->auth))
		return ERR_OK;
	e = core_may(c, auth ? &auth->caller : NULL, method, bytes);
	if (!e && auth)
		note_user(c, auth);
	return e;
}

struct call_auth *stream_whose(struct core *c, uint64_t tag)
{
	struct call_auth *auth = map64_get(&c->stream_callers, tag);

	if (!auth)
		return NULL;
	note_user(c, auth);
	return call_auth_new(&auth->caller, NULL);
}

enum err stream_user(struct core *c, uint64_t tag, struct auth_who *ret)
{
	struct call_auth *auth = map64_get(&c->stream_callers, tag);

	*ret = (struct auth_who){ 0 };
	if (!auth || auth->user.len == 0)
		return core_identify(c, auth ? &auth->caller : NULL, ret);
	*ret = (struct auth_who){ buf_view(&auth->user), auth_revision(c->auth) };
	return ERR_OK;
}

static enum err watcher_may(void *ctx, uint64_t tag, struct slice key, struct slice end)
{
	struct core *c = ctx;
	struct auth_who who;
	enum err e = stream_user(c, tag, &who);

	return e ? e : auth_check_range(c->auth, who, key, end, AUTH_READ);
}

static void refuse_stream(struct core *c, uint64_t tag, enum err e)
{
	struct core_output *o = VEC_PUSH(&c->out.outputs);

	o->stream = tag;
	o->finished = true;
	o->err = e;
	stream_caller_forget(c, tag);
}

static void deliver(struct core *c, const struct stream_message *m)
{
	enum err e = ERR_OK;

	if (!m->open)
		e = stream_may(c, m->tag, METHOD_WATCH_WATCH, buf_view(&m->bytes));
	else if (m->method == METHOD_ELECTION_OBSERVE)
		e = stream_may(c, m->tag, m->method, buf_view(&m->bytes));
	if (e && e != ERR_MALFORMED && m->open)
		refuse_stream(c, m->tag, e);
	else if (e && e != ERR_MALFORMED)
		watches_refuse(c->watches, m->tag, e, c->now);
	else if (m->open)
		watches_open(c->watches, (struct watch_opening){ m->tag, m->connection, m->method, buf_view(&m->bytes) }, c->now);
	else
		watches_message(c->watches, m->tag, buf_view(&m->bytes), c->now);
}

/* Lets out what waits for nothing more; `all`: whatever it waits for. */
static void gate_open(struct core *c, uint64_t tag, bool all)
{
	struct stream_gate *g = map64_get(&c->gates, tag);

	while (!list_empty(&g->messages)) {
		struct stream_message *m = CONTAINER_OF(g->messages.next, struct stream_message, link);

		if (m->call && !all)
			return;
		deliver(c, m);
		g->len--;
		g->bytes -= m->bytes.len;
		message_free(c, m);
	}
	map64_remove(&c->gates, tag);
	gate_free(c, g);
}

static uint64_t connection_of(const struct core_event *e)
{
	return e->kind == EVENT_STREAM_OPEN && e->stream.caller ? e->stream.caller->connection : 0;
}

static void gate_hold(struct core *c, const struct core_event *e, bool wait)
{
	struct stream_gate *g = map64_get(&c->gates, e->stream.tag);
	struct stream_message *m = mem_zalloc(sizeof *m);

	if (!g) {
		g = mem_zalloc(sizeof *g);
		list_init(&g->messages);
		map64_put(&c->gates, e->stream.tag, g);
	}
	m->tag = e->stream.tag;
	m->open = e->kind == EVENT_STREAM_OPEN;
	m->method = e->stream.method;
	m->connection = connection_of(e);
	m->bytes = buf_copy_of(e->stream.bytes);
	list_push_back(&g->messages, &m->link);
	g->len++;
	g->bytes += m->bytes.len;
	if (wait) {
		m->call = call_new(c, CALL_STREAM, 0, METHOD_WATCH_WATCH);
		m->call->message = m;
		read_submit(c, m->call);
	}
	if (g->len > GATE_MESSAGES_MAX || g->bytes > GATE_BYTES_MAX)
		gate_open(c, e->stream.tag, true); /* better early than without a bound */
}

/* The state here is recent enough for what the call waits for, or patience is over. */
void streams_confirmed(struct core *c, struct call *call)
{
	struct stream_message *m = call->message;

	m->call = NULL;
	call_free(c, call);
	gate_open(c, m->tag, false);
}

static void closed(struct core *c, uint64_t tag)
{
	struct stream_gate *g = map64_remove(&c->gates, tag);
	bool opened = !g || !CONTAINER_OF(g->messages.next, struct stream_message, link)->open;

	if (g)
		gate_free(c, g);
	if (opened) {
		watches_closed(c->watches, tag);
	} else {
		refuse_stream(c, tag, ERR_CANCELED);
	}
}

/* ---- events ---- */

/* While authentication is on, every creation waits: whether it is permitted, and whose token it is, is known once this replica has caught up. */
static bool has_to_wait(const struct core *c, const struct core_event *e)
{
	if (e->kind == EVENT_STREAM_OPEN)
		return e->stream.method == METHOD_ELECTION_OBSERVE;
	return auth_is_enabled(c->auth) ? watch_message_creates(e->stream.bytes) : watch_message_starts_now(e->stream.bytes);
}

static void end_stream(struct core *c, uint64_t tag, enum err e)
{
	struct core_output *o = VEC_PUSH(&c->out.outputs);

	o->stream = tag;
	o->finished = true;
	o->err = e;
}

void streams_step(struct core *c, const struct core_event *e)
{
	uint64_t tag = e->stream.tag;
	bool wait;

	if (e->kind == EVENT_STREAM_OPEN && (c->recovering || core_is_learner(c))) {
		end_stream(c, tag, c->recovering ? ERR_RECOVERING : ERR_LEARNER_UNSUPPORTED);
		return;
	}
	if (e->kind == EVENT_STREAM_OPEN)
		caller_remember(c, tag, e->stream.caller);
	if (sessions_step(c, e))
		return;
	switch (e->kind) {
	case EVENT_STREAM_OPEN:
	case EVENT_STREAM_MESSAGE:
		wait = has_to_wait(c, e);
		if (wait || map64_get(&c->gates, tag))
			gate_hold(c, e, wait);
		else if (e->kind == EVENT_STREAM_OPEN)
			watches_open(c->watches, (struct watch_opening){ tag, connection_of(e), e->stream.method, e->stream.bytes }, c->now);
		else
			watches_message(c->watches, tag, e->stream.bytes, c->now);
		break;
	case EVENT_STREAM_WRITABLE:
		watches_writable(c->watches, tag);
		break;
	default:
		closed(c, tag);
		break;
	}
}

/* ---- with the state ---- */

/* payload: the CompactionRequest that is about to be applied. */
void streams_before_compact(struct core *c, struct slice payload)
{
	watches_before_compact(c->watches, (revision)wire_find_u64(payload, 1, 0));
}

void streams_take(struct core *c)
{
	struct watch_output out;

	if (c->auth_seen != auth_changes(c->auth)) {
		c->auth_seen = auth_changes(c->auth);
		watches_recheck(c->watches, watcher_may, c);
	}
	c->env.header.term = raft_current_term(c->raft);
	c->streams_wait = watches_take(c->watches, c->now);
	while (watches_next_output(c->watches, &out)) {
		struct core_output *o = VEC_PUSH(&c->out.outputs);

		o->stream = out.tag;
		o->messages = out.messages;
		o->finished = out.finished;
		o->err = out.err;
		if (out.finished)
			stream_caller_forget(c, out.tag);
	}
}
