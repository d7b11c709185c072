/* stream.c: one Watch or Observe stream: its queue of control answers, its output, its progress notices, its end.
 *
 * Output is one buffer: it grows while the stream is writable and goes to the owner at the end of the take; then nothing is rendered until
 * the owner says that it has been taken. (The exception is watches_before_compact.) Control answers are small records until there is room
 * for them; a client that asks for more of them than the bound of it without reading is sent away. */
#include "watch_internal.h"

enum { CONTROLS_SLACK = 1024 };

struct watch_stream *stream_find(const struct watches *w, uint64_t tag)
{
	struct watch_stream *s = map64_get(&w->tags, tag);

	return s && !s->closed && !s->ended ? s : NULL;
}

static bool is_over(const struct watch_stream *s)
{
	return s->closed || s->ended;
}

void stream_wake(struct watches *w, struct watch_stream *s)
{
	if (s->writable && !is_over(s) && list_empty(&s->wake))
		list_push_back(&w->wake, &s->wake);
}

/* ---- birth and death ---- */

static struct watch_connection *connection_join(struct watches *w, uint64_t number)
{
	struct watch_connection *c = number ? map64_get(&w->connections, number) : NULL;

	if (number == 0)
		return NULL;
	if (!c) {
		c = mem_zalloc(sizeof *c);
		c->number = number;
		map64_put(&w->connections, number, c);
	}
	c->streams++;
	return c;
}

static void connection_leave(struct watches *w, struct watch_connection *c)
{
	if (!c || --c->streams > 0)
		return;
	ASSERT(c->watchers == 0);
	map64_remove(&w->connections, c->number);
	free(c);
}

bool stream_may_have_more(struct watches *w, const struct watch_stream *s, size_t bytes)
{
	if (s->watchers < w->config.max_watchers && w->watchers < w->config.max_total && w->index.bytes + bytes <= RANGES_BYTES_MAX &&
	    !(s->connection && s->connection->watchers >= w->config.max_connection))
		return true;
	w->refused++;
	return false;
}

static struct watch_stream *stream_new(struct watches *w, uint64_t tag, uint64_t connection)
{
	struct watch_stream *s = mem_zalloc(sizeof *s);

	s->connection = connection_join(w, connection);
	s->tag = tag;
	s->writable = true;
	list_init(&s->wake);
	list_init(&s->ready);
	list_init(&s->parked);
	map64_put(&w->tags, tag, s);
	w->streams++;
	return s;
}

void watches_open(struct watches *w, struct watch_opening opening, time_ms now)
{
	struct watch_stream *s;

	ASSERT(!map64_get(&w->tags, opening.tag));
	w->now = now;
	s = stream_new(w, opening.tag, opening.connection);
	if (w->streams > w->config.max_streams) {
		w->refused++;
		stream_end(w, s, ERR_TOO_MANY_REQUESTS);
	} else if (opening.method == METHOD_ELECTION_OBSERVE) {
		observe_open(w, s, opening.bytes);
	} else {
		ASSERT(opening.method == METHOD_WATCH_WATCH);
	}
}

static void stream_free(struct watches *w, struct watch_stream *s)
{
	ASSERT(s->watchers == 0);
	ASSERT(s->behind == 0);
	w->spilled -= s->held;
	w->streams--;
	connection_leave(w, s->connection);
	map64_remove(&w->tags, s->tag);
	list_remove(&s->wake);
	list_remove(&s->ready);
	heap_remove(&w->ticks, &s->tick);
	map64_deinit(&s->ids);
	free(s->controls);
	buf_free(&s->out);
	observe_free(s->observer);
	free(s);
}

/* Its watchers go a few at a time, in streams_bury. */
static void stream_die(struct watches *w, struct watch_stream *s)
{
	free(s->controls);
	s->controls = NULL;
	s->controls_len = s->controls_cap = 0;
	s->progress_wanted = 0;
	s->walking = false;
	s->walk = 0;
	heap_remove(&w->ticks, &s->tick);
	list_remove(&s->wake);
	list_push_back(&w->dying, &s->wake);
}

void stream_end(struct watches *w, struct watch_stream *s, enum err e)
{
	ASSERT(!is_over(s));
	s->ended = true;
	s->err = e;
	stream_die(w, s);
	if (s->writable && list_empty(&s->ready))
		list_push_back(&w->ready, &s->ready);
}

void watches_closed(struct watches *w, uint64_t tag)
{
	struct watch_stream *s = map64_get(&w->tags, tag);

	if (!s || s->closed || s->handed)
		return;
	if (!s->ended) {
		s->err = ERR_CANCELED;
		stream_die(w, s);
	}
	s->closed = true;
	w->spilled -= s->held;
	s->held = 0;
	buf_free(&s->out);
	if (list_empty(&s->ready))
		list_push_back(&w->ready, &s->ready);
}

/* Removes up to `budget` watchers of streams that are over, and the streams that are left without any. */
void streams_bury(struct watches *w, size_t budget)
{
	while (!list_empty(&w->dying) && budget > 0) {
		struct watch_stream *s = CONTAINER_OF(w->dying.next, struct watch_stream, wake);
		uint64_t id;
		void *x = NULL;

		while (budget > 0 && s->watchers > 0 && map64_next(&s->ids, &s->walk, &id, &x)) {
			if (x != &watch_lost_mark)
				watcher_remove(w, x);
			budget--;
		}
		if (s->watchers > 0)
			return;
		list_remove(&s->wake);
		if (s->handed)
			stream_free(w, s);
	}
}

/* ---- control answers ---- */

void stream_control(struct watches *w, struct watch_stream *s, struct control c)
{
	if (is_over(s))
		return;
	if (s->controls_len >= w->config.max_watchers + CONTROLS_SLACK) {
		stream_end(w, s, ERR_TOO_MANY_REQUESTS);
		return;
	}
	if (s->controls_len == s->controls_cap) {
		uint32_t cap = s->controls_cap ? s->controls_cap * 2 : 4;
		struct control *ring = mem_alloc(cap * sizeof *ring);

		for (uint32_t i = 0; i < s->controls_len; i++)
			ring[i] = s->controls[(s->controls_first + i) & (s->controls_cap - 1)];
		free(s->controls);
		s->controls = ring;
		s->controls_cap = cap;
		s->controls_first = 0;
	}
	s->controls[(s->controls_first + s->controls_len++) & (s->controls_cap - 1)] = c;
	stream_wake(w, s);
}

bool stream_say_controls(struct watches *w, struct watch_stream *s)
{
	while (s->controls_len > 0 && s->out.len < OUTPUT_MAX) {
		reply_control(w, s, &s->controls[s->controls_first]);
		s->controls_first = (s->controls_first + 1) & (s->controls_cap - 1);
		s->controls_len--;
	}
	if (s->controls_len > 0)
		return false;
	free(s->controls);
	s->controls = NULL;
	s->controls_cap = 0;
	return true;
}

/* ---- output ---- */

bool stream_has_room(const struct watches *w, const struct watch_stream *s)
{
	if (is_over(s) || s->out.len >= OUTPUT_MAX)
		return false;
	return w->spilling ? w->spilled < SPILL_TOTAL : s->writable && w->budget > 0;
}

void stream_wrote(struct watches *w, struct watch_stream *s, size_t bytes)
{
	w->responses++;
	w->budget -= w->budget < bytes ? w->budget : bytes;
	if (!s->writable) {
		s->held += bytes;
		w->spilled += bytes;
	} else if (list_empty(&s->ready)) {
		list_push_back(&w->ready, &s->ready);
	}
}

void watches_writable(struct watches *w, uint64_t tag)
{
	struct watch_stream *s = map64_get(&w->tags, tag);

	if (!s || s->closed || s->handed || s->writable)
		return;
	s->writable = true;
	w->spilled -= s->held;
	s->held = 0;
	stream_wake(w, s);
	if ((s->out.len > 0 || s->ended) && list_empty(&s->ready))
		list_push_back(&w->ready, &s->ready);
}

bool watches_next_output(struct watches *w, struct watch_output *ret)
{
	struct list *l = list_pop_front(&w->ready);
	struct watch_stream *s;

	if (!l)
		return false;
	s = CONTAINER_OF(l, struct watch_stream, ready);
	ASSERT(s->writable || s->closed);
	*ret = (struct watch_output){ .tag = s->tag, .messages = buf_take(&s->out), .finished = is_over(s), .err = s->err };
	s->writable = false;
	if (!ret->finished) {
		list_remove(&s->wake);
		return true;
	}
	s->handed = true;
	if (s->watchers == 0)
		stream_free(w, s);
	return true;
}

/* ---- progress ---- */

static time_ms next_tick(struct watches *w)
{
	return w->now + w->config.progress_ms + rng_below(&w->rng, w->config.progress_ms / 10 + 1);
}

void stream_want_ticks(struct watches *w, struct watch_stream *s)
{
	if (!heap_contains(&s->tick))
		heap_insert(&w->ticks, &s->tick, next_tick(w));
}

void stream_tick(struct watches *w, struct watch_stream *s)
{
	if (s->notifiers == 0) {
		heap_remove(&w->ticks, &s->tick);
		return;
	}
	heap_update(&w->ticks, &s->tick, next_tick(w));
	if (!s->walking) {
		s->walking = true;
		s->walk = 0;
		stream_wake(w, s);
	}
}

/* Notices to those who were told nothing since the last tick. Who is behind gets none: its events are still to come. */
static void stream_walk(struct watches *w, struct watch_stream *s)
{
	uint64_t id;
	void *value;

	for (uint32_t n = 0; n < WALK_MAX && stream_has_room(w, s); n++) {
		struct watcher *x;

		if (!map64_next(&s->ids, &s->walk, &id, &value)) {
			s->walking = false;
			return;
		}
		x = value == &watch_lost_mark ? NULL : value;
		if (!x || !(x->flags & WATCHER_PROGRESS))
			continue;
		if (!(x->flags & WATCHER_TOLD) && x->place == PLACE_SYNCED)
			reply_progress(w, s, x->id);
		x->flags &= (uint8_t)~WATCHER_TOLD;
	}
}

static void stream_say_progress(struct watches *w, struct watch_stream *s)
{
	while (s->progress_wanted > 0 && s->behind == 0 && stream_has_room(w, s)) {
		reply_progress(w, s, -1);
		s->progress_wanted--;
	}
}

/* Does what can be done for a stream now, apart from passes; it sleeps again when nothing is left. */
void stream_feed(struct watches *w, struct watch_stream *s)
{
	bool said;

	ASSERT(w->noted == w->env->state->revision); /* I1: progress notices and leaders are as of now */
	list_remove(&s->wake);
	if (!s->writable)
		return; /* watches_writable wakes it */
	said = stream_say_controls(w, s);
	if (said && s->observer && s->observer->due && stream_has_room(w, s))
		observe_tell_present(w, s);
	if (said && s->walking)
		stream_walk(w, s);
	stream_say_progress(w, s);
	while (said && s->picked < PICKED_MAX && !list_empty(&s->parked) && stream_has_room(w, s))
		watcher_pick(w, CONTAINER_OF(s->parked.next, struct watcher, link));
	if (!said || s->walking || (s->progress_wanted && s->behind == 0) || (s->observer && s->observer->due) ||
	    (!list_empty(&s->parked) && s->picked < PICKED_MAX))
		stream_wake(w, s);
}
