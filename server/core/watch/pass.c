/* pass.c: a stretch of history, matched once for all whom it may concern.
 *
 * A pass looks at up to PASS_EVENTS events (and whole revisions), asks the index for each which ranges it lies in, and hangs it to those
 * that have somebody interested. Then each watcher of a range that was touched is served from the range's chain. New events make a pass for
 * the synced; watchers that lag are brought forward by passes for the selected. The work is that of the events and of the watchers whom
 * they concern, never of those whom they do not. */
#include "watch_internal.h"

/* ---- room for one more ---- */

static void *grow(void *at, size_t len, size_t *cap, size_t size)
{
	if (len < *cap)
		return at;
	*cap = *cap ? *cap * 2 : 64;
	return mem_realloc(at, *cap * size);
}

#define GROW(p, what) ((p)->what = grow((p)->what, (p)->what##_len, &(p)->what##_cap, sizeof *(p)->what), &(p)->what[(p)->what##_len++])

void pass_deinit(struct pass *p)
{
	free(p->events);
	free(p->matches);
	free(p->touched);
	free(p->selected);
	buf_free(&p->bytes);
}

/* ---- matching ---- */

static void match(void *ctx, struct watch_range *r)
{
	struct pass *p = ctx;
	uint32_t m = (uint32_t)p->matches_len;

	if (list_empty(p->synced ? &r->synced : &r->selected))
		return;
	*GROW(p, matches) = (struct pass_match){ .event = (uint32_t)p->events_len, .next = NO_MATCH };
	if (r->first == NO_MATCH) {
		r->first = m;
		*GROW(p, touched) = r;
	} else {
		p->matches[r->last].next = m;
	}
	r->last = m;
}

static void match_event(struct watches *w, struct store_event ev)
{
	struct pass *p = &w->pass;
	size_t matches = p->matches_len;

	ranges_stab(&w->index, kv_key(ev.kv), match, p);
	if (p->matches_len == matches)
		return;
	*GROW(p, events) = (struct pass_event){ .kv = ev.kv, .prev = ev.prev };
	p->weight += (size_t)ev.kv->key_len + ev.kv->value_len;
	ASSERT(p->matches_len < NO_MATCH);
}

/* Matches from a revision on, up to pass.end: at least one revision, unless there is nothing up to `to`, which is then the end. */
static void collect(struct watches *w, revision from, revision to)
{
	const struct store *store = w->env->store;
	struct pass *p = &w->pass;
	uint64_t begin = store_history_begin(store, from), end = store_history_end(store);

	ASSERT(p->touched_len == 0);
	for (uint64_t n = begin; n < end; n++) {
		struct store_event ev = store_history_at(store, n);

		if (ev.kv->mod_revision > to)
			break;
		/* Only between revisions (W4). */
		if (ev.kv->sub == 0 && n > begin && (n - begin >= PASS_EVENTS || p->weight >= PASS_BYTES || p->matches_len >= PASS_MATCHES)) {
			p->end = ev.kv->mod_revision - 1;
			return;
		}
		match_event(w, ev);
	}
	p->end = to;
}

static void forget(struct pass *p)
{
	for (size_t i = 0; i < p->touched_len; i++)
		p->touched[i]->first = p->touched[i]->last = NO_MATCH;
	p->touched_len = p->matches_len = p->events_len = p->weight = 0;
	if (p->bytes.cap > 4 * PASS_BYTES)
		buf_free(&p->bytes);
	buf_clear(&p->bytes);
}

static revision revision_of(const struct pass *p, uint32_t m)
{
	return p->events[p->matches[m].event].kv->mod_revision;
}

/* ---- serving ---- */

/* The next response: whole revisions from `from` on, with something in them that the watcher wants, up to RESPONSE_MAX. */
static struct reply_run next_run(struct watches *w, const struct watcher *x, uint32_t from)
{
	const struct pass *p = &w->pass;
	struct reply_run run = { .from = from };
	bool prev = (x->flags & WATCHER_PREV) != 0;
	revision at = 0;
	uint32_t m;

	for (m = from; m != NO_MATCH; m = p->matches[m].next) {
		if (run.size >= RESPONSE_MAX && revision_of(p, m) != at)
			break;
		at = revision_of(p, m);
		if (!watcher_wants(x, p->events[p->matches[m].event].kv))
			continue;
		run.size += pass_event_render(w, p->matches[m].event, prev)->len[prev];
		run.count++;
	}
	run.to = m;
	run.revision = m == NO_MATCH ? p->end : revision_of(p, m) - 1; /* W3 */
	return run;
}

/* Tells a watcher what the pass has for it. Returns the revision of the first event that it could not be told, or 0. */
static revision serve(struct watches *w, struct watcher *x)
{
	const struct pass *p = &w->pass;
	uint32_t m = x->range->first;

	while (m != NO_MATCH && revision_of(p, m) < x->cursor)
		m = p->matches[m].next;
	while (m != NO_MATCH) {
		struct reply_run run;

		if (!stream_has_room(w, x->stream) || !stream_say_controls(w, x->stream) || !stream_has_room(w, x->stream))
			return revision_of(p, m);
		run = next_run(w, x, m);
		if (run.count > 0) {
			reply_events(w, x, &run);
			x->flags |= WATCHER_TOLD;
		}
		m = run.to;
	}
	return 0;
}

static revision serve_any(struct watches *w, struct watcher *x)
{
	return x->flags & WATCHER_OBSERVER ? observe_serve(w, x) : serve(w, x);
}

/* ---- the synced ---- */

static void serve_synced(struct watches *w, struct watch_range *r)
{
	LIST_FOR_EACH_SAFE(it, tmp, &r->synced) {
		struct watcher *x = CONTAINER_OF(it, struct watcher, link);
		revision left = serve_any(w, x);

		if (left < 0) {
			observe_again(w, x);
		} else if (left > 0) {
			x->cursor = left;
			watcher_park(w, x);
		}
	}
}

/* History up to some revision above noted is gone: the synced may have missed something. Each is looked at when it is picked. */
static void unsync_all(struct watches *w)
{
	size_t stream_at = 0, at;
	uint64_t id;
	void *stream, *value;

	while (map64_next(&w->tags, &stream_at, &id, &stream)) {
		struct watch_stream *s = stream;

		for (at = 0; map64_next(&s->ids, &at, &id, &value);) {
			struct watcher *x = value == &watch_lost_mark ? NULL : value;

			if (!x || x->place != PLACE_SYNCED || x->cursor >= w->env->state->compact_revision)
				continue;
			if (x->cursor <= w->noted)
				x->cursor = w->noted + 1;
			watcher_park(w, x);
		}
	}
}

void watches_note(struct watches *w)
{
	const struct state *st = w->env->state;

	ASSERT(w->noted <= st->revision);
	if (st->compact_revision > w->noted + 1) {
		unsync_all(w);
		w->noted = st->compact_revision - 1;
	}
	while (w->noted < st->revision) {
		w->pass.synced = true;
		collect(w, w->noted + 1, st->revision);
		for (size_t i = 0; i < w->pass.touched_len; i++)
			serve_synced(w, w->pass.touched[i]);
		w->noted = w->pass.end;
		forget(&w->pass);
	}
}

/* ---- those who lag ---- */

void pass_select(struct watches *w, struct watcher *x)
{
	const struct state *st = w->env->state;

	if (x->cursor < st->compact_revision) {
		if (x->flags & WATCHER_OBSERVER) {
			observe_again(w, x);
			return;
		}
		if (x->range->kind != RANGE_KEY || !store_key_unchanged_since(w->env->store, range_key(x->range), x->cursor)) {
			watcher_lose(w, x); /* I4 */
			return;
		}
		x->cursor = st->revision + 1;
	}
	if (x->cursor > w->noted) {
		watcher_sync(w, x);
		return;
	}
	watcher_select(w, x);
	*GROW(&w->pass, selected) = x;
}

static void settle(struct watches *w, struct watcher *x, bool cut)
{
	if (x->cursor > w->noted) {
		watcher_sync(w, x);
	} else if (cut) {
		watcher_park(w, x);
	} else {
		watcher_pick(w, x);
	}
}

void pass_selected(struct watches *w, revision from)
{
	struct pass *p = &w->pass;

	p->synced = false;
	collect(w, from, w->noted);
	for (size_t i = 0; i < p->selected_len; i++) {
		struct watcher *x = p->selected[i];
		revision left = serve_any(w, x);

		if (left < 0) {
			observe_again(w, x);
			continue;
		}
		if (left > 0)
			x->cursor = left;
		else if (x->cursor <= p->end)
			x->cursor = p->end + 1;
		settle(w, x, left > 0);
	}
	p->selected_len = 0;
	forget(p);
}

revision pass_limit(const struct watches *w, revision from)
{
	const struct store *store = w->env->store;
	uint64_t last = store_history_begin(store, from) + PASS_EVENTS;

	return last < store_history_end(store) ? store_history_at(store, last).kv->mod_revision : INT64_MAX;
}

/* One pass from the smallest cursor of a heap. */
static void advance(struct watches *w, struct heap *h)
{
	struct heap_node *n = heap_peek(h);
	revision limit = 0;

	for (size_t i = 0; n && i < PASS_WATCHERS; i++) {
		struct watcher *x = CONTAINER_OF(n, struct watcher, heap);

		if (limit && x->cursor > limit)
			break;
		pass_select(w, x);
		if (!limit && w->pass.selected_len > 0)
			limit = pass_limit(w, x->cursor);
		n = heap_peek(h);
	}
	if (w->pass.selected_len > 0)
		pass_selected(w, w->pass.selected[0]->cursor);
}

void watches_advance(struct watches *w)
{
	struct heap *h = &w->far[w->far_round];

	if (heap_peek(&w->near))
		advance(w, &w->near);
	if (!heap_peek(h)) {
		w->far_round = !w->far_round; /* a new sweep */
		w->sweep = 0;
		h = &w->far[w->far_round];
	}
	if (heap_peek(h)) {
		w->sweep = (revision)heap_peek(h)->key;
		advance(w, h);
	}
}
