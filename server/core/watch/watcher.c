/* watcher.c: a watcher's places, and the moves between them (watch_internal.h has the drawing). Whoever moves one says where it goes; what
 * it leaves is the same for all. */
#include "watch_internal.h"

char watch_lost_mark;

static struct heap *heap_of(struct watches *w, const struct watcher *x)
{
	switch (x->place) {
	case PLACE_PARKED:
		return &w->parked;
	case PLACE_NEAR:
		return &w->near;
	case PLACE_FAR0:
		return &w->far[0];
	case PLACE_FAR1:
		return &w->far[1];
	default:
		return NULL;
	}
}

static bool is_on_its_way(const struct watcher *x)
{
	return x->place == PLACE_NEAR || x->place == PLACE_FAR0 || x->place == PLACE_FAR1 || x->place == PLACE_PASS;
}

void watcher_unplace(struct watches *w, struct watcher *x)
{
	struct heap *h = heap_of(w, x);

	if (h)
		heap_remove(h, &x->heap);
	list_remove(&x->link);
	if (watcher_is_behind(x)) {
		ASSERT(x->stream->behind > 0);
		x->stream->behind--;
	}
	if (is_on_its_way(x)) {
		ASSERT(x->stream->picked > 0);
		x->stream->picked--;
	}
	x->place = PLACE_NONE;
}

static void place(struct watches *w, struct watcher *x, enum watcher_place to)
{
	struct heap *h;

	watcher_unplace(w, x);
	x->place = (uint8_t)to;
	x->stream->behind += watcher_is_behind(x);
	x->stream->picked += is_on_its_way(x);
	h = heap_of(w, x);
	if (h)
		heap_insert(h, &x->heap, (uint64_t)x->cursor);
}

/* One that lagged does no more: its stream may let others go, or say that all have been told. */
static void caught_up(struct watches *w, struct watch_stream *s)
{
	if (!list_empty(&s->parked) || (s->progress_wanted && s->behind == 0))
		stream_wake(w, s);
}

struct watcher *watcher_new(struct watches *w, struct watch_stream *s, struct watch_range *range, int64_t id, revision cursor, unsigned flags)
{
	struct watcher *x = mem_zalloc(sizeof *x);

	list_init(&x->link);
	x->range = range;
	x->stream = s;
	x->id = id;
	x->cursor = cursor;
	x->place = PLACE_NONE;
	x->flags = (uint8_t)flags;
	map64_put(&s->ids, (uint64_t)id, x);
	s->watchers++;
	s->notifiers += (flags & WATCHER_PROGRESS) != 0;
	w->watchers++;
	if (s->connection)
		s->connection->watchers++;
	return x;
}

void watcher_remove(struct watches *w, struct watcher *x)
{
	struct watch_stream *s = x->stream;

	watcher_unplace(w, x);
	map64_remove(&s->ids, (uint64_t)x->id);
	s->watchers--;
	s->notifiers -= (x->flags & WATCHER_PROGRESS) != 0;
	w->watchers--;
	if (s->connection)
		s->connection->watchers--;
	range_put_back(&w->index, x->range);
	free(x);
	caught_up(w, s);
}

void watcher_sync(struct watches *w, struct watcher *x)
{
	struct watch_stream *s = x->stream;

	ASSERT(x->cursor > w->noted || x->place == PLACE_NONE); /* I2; a new one may start at what is not noted yet */
	place(w, x, PLACE_SYNCED);
	list_push_back(&x->range->synced, &x->link);
	caught_up(w, s);
}

void watcher_park(struct watches *w, struct watcher *x)
{
	place(w, x, PLACE_PARKED);
	list_push_back(&x->stream->parked, &x->link);
	stream_wake(w, x->stream);
}

/* The sweep goes through history once a round: whoever is behind it waits for the next, so that a stream of watches that start far back
 * never holds up those that are further. */
void watcher_pick(struct watches *w, struct watcher *x)
{
	if (x->cursor >= w->near_from)
		place(w, x, PLACE_NEAR);
	else if ((x->cursor >= w->sweep) == (w->far_round == 0))
		place(w, x, PLACE_FAR0);
	else
		place(w, x, PLACE_FAR1);
}

void watcher_select(struct watches *w, struct watcher *x)
{
	place(w, x, PLACE_PASS);
	list_push_back(&x->range->selected, &x->link);
}

void watcher_lose(struct watches *w, struct watcher *x)
{
	struct watch_stream *s = x->stream;
	struct control c = {
		.kind = CONTROL_LOST,
		.id = x->id,
		.at = w->env->state->revision,
		.compact_revision = w->env->state->compact_revision,
	};

	w->lost++;
	watcher_remove(w, x);
	/* A client cancels what has been cancelled for it, and etcd answers that. */
	if (s->ids.len < w->config.max_watchers)
		map64_put(&s->ids, (uint64_t)c.id, &watch_lost_mark);
	stream_control(w, s, c);
}
