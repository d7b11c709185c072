/* stream.c: Watch and Observe streams, between the core's door and the watch module.
 *
 * Streams see the state as of the end of each take: what a take has applied is matched once, after reads have been answered. */
#include "internal.h"

void streams_init(struct core *c)
{
	struct watch_config config = watch_config_default;

	config.seed = rng_next(&c->rng);
	if (c->config.watch_progress_ms)
		config.progress_ms = c->config.watch_progress_ms;
	c->watches = watches_new(&config, &c->env);
}

void streams_step(struct core *c, const struct core_event *e)
{
	switch (e->kind) {
	case EVENT_STREAM_OPEN:
		watches_open(c->watches, e->stream.tag, e->stream.method, e->stream.bytes, c->now);
		break;
	case EVENT_STREAM_MESSAGE:
		watches_message(c->watches, e->stream.tag, e->stream.bytes, c->now);
		break;
	case EVENT_STREAM_WRITABLE:
		watches_writable(c->watches, e->stream.tag);
		break;
	default:
		watches_closed(c->watches, e->stream.tag);
		break;
	}
}

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
