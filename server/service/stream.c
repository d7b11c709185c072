/* stream.c: a call whose replies the core drives: Watch and Observe.
 *
 * The core sends one output, and the next only after writable; so a reader who does not read costs one output.
 *   (D1) from node_stream_open's success to output(finished) the struct is the node's to read; nothing of it is freed before that.
 *   (D2) whoever wants the stream to end notes why in `failed` and closes it; only output(finished) finishes the call.
 *   (D3) a message that the node does not take, since too much of all streams waits there, ends its stream: what a client sent is not passed over in silence. */
#include "base/mem.h"
#include "internal.h"
#include "metrics.h"

struct stream {
	struct service_call *call;
	struct submit_stream submit;
	struct leader_watch leader_watch;
	atomic_int failed; /* enum err: the reason, if it was ours to end it */
};

static struct stream *stream_of(const struct service_call *c)
{
	return c->state;
}

/* Core's thread. */
static void stream_output(struct submit_stream *submit, struct buf *messages, bool finished, enum err e)
{
	struct stream *st = CONTAINER_OF(submit, struct stream, submit);
	struct service_call *c = st->call;
	int failed;
	if (messages && messages->len)
		service_tell(c, messages);
	else if (messages)
		buf_free(messages);
	if (!finished)
		return;
	failed = atomic_load(&st->failed);
	service_tell_end(c, failed ? (enum err)failed : e, NULL, slice_of(NULL, 0));
}

static void close_with(struct stream *st, enum err e)
{
	int none = ERR_OK;
	atomic_compare_exchange_strong(&st->failed, &none, (int)e);
	node_stream_close(st->call->service->node, st->submit.tag);
}

static void leader_lost(struct leader_watch *w)
{
	close_with(CONTAINER_OF(w, struct stream, leader_watch), ERR_NO_LEADER);
}

void service_stream_open(struct service_call *c, struct slice bytes)
{
	struct stream *st = mem_zalloc(sizeof(*st));
	enum err e;
	st->call = c;
	st->submit.method = c->method->id;
	st->submit.client = c->client;
	st->submit.caller = c->caller;
	st->submit.output = stream_output;
	atomic_init(&st->failed, ERR_OK);
	c->state = st;
	e = node_stream_open(c->service->node, &st->submit, bytes);
	if (e) {
		service_finish(c, e, NULL);
		return;
	}
	if (c->need_leader) {
		st->leader_watch.lost = leader_lost;
		service_leader_watch_add(c->service, &st->leader_watch);
	}
}

void service_stream_message(struct service_call *c, struct slice bytes)
{
	if (node_stream_message(c->service->node, stream_of(c)->submit.tag, bytes) != ERR_OVERLOADED)
		return;
	metric_add(METRIC_REFUSED_STREAM_BYTES, 1);
	close_with(stream_of(c), ERR_TOO_MANY_REQUESTS); /* D3 */
}

void service_stream_fail(struct service_call *c, enum err e)
{
	close_with(stream_of(c), e);
}

void service_stream_cancel(struct service_call *c)
{
	if (stream_of(c))
		close_with(stream_of(c), ERR_CANCELED);
	else
		service_finish(c, ERR_CANCELED, NULL);
}

void service_stream_writable(struct service_call *c)
{
	node_stream_writable(c->service->node, stream_of(c)->submit.tag);
}

void service_stream_end(struct service_call *c)
{
	service_leader_watch_remove(c->service, &stream_of(c)->leader_watch);
	free(c->state);
}
