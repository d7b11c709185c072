/* watches.c: all streams together: the take, deadlines, numbers.
 *
 * A take has a budget: new events are matched at once (their cost is that of the watchers they concern), but who lags is brought forward by
 * a few passes a take, and what is rendered is bounded, so that fifty thousand watches that a fail-over brings at once never hold up a
 * heartbeat: the owner takes messages between takes. */
#include "watch_internal.h"

const struct watch_config watch_config_default = {
	.seed = 1,
	.progress_ms = 600000,
	.max_watchers = 100000,
	.max_connection = 100000,
	.max_total = 1000000,
	.max_streams = 100000,
	.fragment_bytes = 3u << 19,
};

struct watches *watches_new(const struct watch_config *config, const struct kv_env *env)
{
	struct watches *w = mem_zalloc(sizeof *w);

	w->config = *config;
	w->env = env;
	w->noted = env->state->revision;
	rng_init(&w->rng, config->seed);
	w->index.seed = rng_next(&w->rng);
	list_init(&w->wake);
	list_init(&w->ready);
	list_init(&w->dying);
	return w;
}

void watches_free(struct watches *w)
{
	size_t at = 0;
	uint64_t tag;
	void *s;
	struct watch_output out;

	if (!w)
		return;
	while (map64_next(&w->tags, &at, &tag, &s))
		watches_closed(w, tag);
	while (watches_next_output(w, &out))
		buf_free(&out.messages);
	streams_bury(w, SIZE_MAX);
	ASSERT(w->streams == 0);
	map64_deinit(&w->tags);
	ASSERT(w->connections.len == 0);
	map64_deinit(&w->connections);
	heap_deinit(&w->parked);
	heap_deinit(&w->near);
	heap_deinit(&w->far[0]);
	heap_deinit(&w->far[1]);
	heap_deinit(&w->ticks);
	ranges_deinit(&w->index);
	pass_deinit(&w->pass);
	free(w);
}

void watches_message(struct watches *w, uint64_t tag, struct slice bytes, time_ms now)
{
	struct watch_stream *s = stream_find(w, tag);

	w->now = now;
	if (s && !s->observer)
		request_message(w, s, bytes);
}

/* ---- the take ---- */

static void near_update(struct watches *w)
{
	const struct store *store = w->env->store;
	uint64_t begin = store_history_begin(store, 0), end = store_history_end(store);

	w->near_from = end - begin <= PASS_EVENTS ? 0 : store_history_at(store, end - PASS_EVENTS).kv->mod_revision + 1;
}

static void ticks_due(struct watches *w)
{
	struct heap_node *n;

	while ((n = heap_peek(&w->ticks)) && n->key <= w->now)
		stream_tick(w, CONTAINER_OF(n, struct watch_stream, tick));
}

/* Each stream that is awake, once. */
static void feed_all(struct watches *w)
{
	struct list now;

	list_init(&now);
	while (!list_empty(&w->wake)) {
		struct list *l = list_pop_front(&w->wake);

		list_push_back(&now, l);
	}
	while (!list_empty(&now))
		stream_feed(w, CONTAINER_OF(now.next, struct watch_stream, wake));
}

/* Streams whose output is full are awake for nothing: watches_writable wakes them again. */
static bool wants_more(struct watches *w)
{
	LIST_FOR_EACH(it, &w->wake)
		if (list_empty(&CONTAINER_OF(it, struct watch_stream, wake)->ready))
			return true;
	return false;
}

static bool are_on_their_way(const struct watches *w)
{
	return w->near.len > 0 || w->far[0].len > 0 || w->far[1].len > 0;
}

bool watches_take(struct watches *w, time_ms now)
{
	w->now = now;
	w->budget = TAKE_BYTES;
	watches_note(w);
	near_update(w);
	ticks_due(w);
	feed_all(w);
	for (unsigned i = 0; i < PASSES_MAX && are_on_their_way(w) && w->budget > 0; i++) {
		watches_advance(w);
		feed_all(w);
	}
	streams_bury(w, WALK_MAX);
	return are_on_their_way(w) || wants_more(w) || !list_empty(&w->dying);
}

time_ms watches_next_deadline(const struct watches *w)
{
	const struct heap_node *n = heap_peek(&w->ticks);

	return n ? n->key : TIME_NEVER;
}

/* ---- to look at ---- */

void watches_stats(const struct watches *w, struct watch_stats *ret)
{
	*ret = (struct watch_stats){
		.streams = w->streams,
		.watchers = w->watchers,
		.ranges = w->index.keys + w->index.spans,
		.behind = w->parked.len + w->near.len + w->far[0].len + w->far[1].len,
		.events = w->events_told,
		.responses = w->responses,
		.lost = w->lost,
		.refused = w->refused,
	};
}

static bool place_is_right(const struct watches *w, const struct watcher *x)
{
	switch (x->place) {
	case PLACE_SYNCED:
	case PLACE_PARKED:
		return !list_empty(&x->link) && heap_contains(&x->heap) == (x->place == PLACE_PARKED);
	case PLACE_NEAR:
	case PLACE_FAR0:
	case PLACE_FAR1:
		return list_empty(&x->link) && heap_contains(&x->heap);
	case PLACE_NONE:
		return (x->flags & WATCHER_OBSERVER) && x->stream->observer->due;
	default:
		return w->spilling; /* PLACE_PASS: not between calls */
	}
}

static size_t stream_check(const struct watches *w, const struct watch_stream *s)
{
	size_t at = 0, watchers = 0, behind = 0, picked = 0, notifiers = 0;
	uint64_t id;
	void *value;

	while (map64_next(&s->ids, &at, &id, &value)) {
		const struct watcher *x = value == &watch_lost_mark ? NULL : value;

		if (!x)
			continue;
		watchers++;
		behind += watcher_is_behind(x);
		picked += x->place == PLACE_NEAR || x->place == PLACE_FAR0 || x->place == PLACE_FAR1;
		notifiers += (x->flags & WATCHER_PROGRESS) != 0;
		ASSERT(x->stream == s);
		ASSERT((uint64_t)x->id == id);
		ASSERT(place_is_right(w, x));
		ASSERT_IF(watcher_is_behind(x), x->cursor <= w->noted); /* I3 */
		ASSERT_IF(heap_contains(&x->heap), x->heap.key == (uint64_t)x->cursor);
	}
	ASSERT(watchers == s->watchers);
	ASSERT(behind == s->behind);
	ASSERT(picked == s->picked);
	ASSERT(notifiers == s->notifiers);
	ASSERT(s->held <= s->out.len);
	ASSERT_IF(!list_empty(&s->ready), s->writable);
	ASSERT_IF(s->out.len > 0 && s->writable && !s->closed, !list_empty(&s->ready));
	return watchers;
}

void watches_check(const struct watches *w)
{
	size_t at = 0, watchers = 0, streams = 0, held = 0;
	uint64_t tag;
	void *value;

	ranges_check(&w->index);
	while (map64_next(&w->tags, &at, &tag, &value)) {
		const struct watch_stream *s = value;

		ASSERT(s->tag == tag);
		watchers += stream_check(w, s);
		held += s->held;
		streams++;
	}
	ASSERT(watchers == w->watchers);
	ASSERT(streams == w->streams);
	ASSERT(held == w->spilled);
}
