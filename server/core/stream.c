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
	watches_free(c->watches);
}

/* ---- the gate ---- */

static void deliver(struct core *c, const struct stream_message *m)
{
	if (m->open)
		watches_open(c->watches, m->tag, m->method, buf_view(&m->bytes), c->now);
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
		struct core_output *o = VEC_PUSH(&c->out.outputs);

		o->stream = tag;
		o->finished = true;
		o->err = ERR_CANCELED;
	}
}

/* ---- events ---- */

static bool starts_now(const struct core_event *e)
{
	return e->kind == EVENT_STREAM_OPEN ? e->stream.method == METHOD_ELECTION_OBSERVE : watch_message_starts_now(e->stream.bytes);
}

void streams_step(struct core *c, const struct core_event *e)
{
	uint64_t tag = e->stream.tag;
	bool wait;

	if (sessions_step(c, e))
		return;
	switch (e->kind) {
	case EVENT_STREAM_OPEN:
	case EVENT_STREAM_MESSAGE:
		wait = starts_now(e);
		if (wait || map64_get(&c->gates, tag))
			gate_hold(c, e, wait);
		else if (e->kind == EVENT_STREAM_OPEN)
			watches_open(c->watches, tag, e->stream.method, e->stream.bytes, c->now);
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

	c->env.header.term = raft_current_term(c->raft);
	c->streams_wait = watches_take(c->watches, c->now);
	while (watches_next_output(c->watches, &out)) {
		struct core_output *o = VEC_PUSH(&c->out.outputs);

		o->stream = out.tag;
		o->messages = out.messages;
		o->finished = out.finished;
		o->err = out.err;
	}
}
