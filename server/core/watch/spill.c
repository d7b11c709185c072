/* spill.c: what is still told before a compaction takes it away.
 *
 * A stream is not writable for the moment between an output and the owner's word that it was taken. A watcher that lags by that moment
 * must not be cancelled because somebody compacts right then: etcd would have the events in its buffers. So before a compaction the
 * events below it are rendered for those who need them, into the outputs of streams that are not writable too, within OUTPUT_MAX a stream,
 * SPILL_TOTAL together, and the last SPILL_EVENTS events. Who needs more is lost when it is next picked. */
#include "watch_internal.h"

/* The oldest revision that is rendered. */
static revision spill_floor(const struct watches *w, revision at)
{
	const struct store *store = w->env->store;
	uint64_t begin = store_history_begin(store, 0), end = store_history_begin(store, at);

	return end - begin <= SPILL_EVENTS ? 0 : store_history_at(store, end - SPILL_EVENTS).kv->mod_revision;
}

/* Moves those with a cursor up to `at` (of an event right there, its prev_kv goes) out of a heap: to the pass, or aside when that is too far back. */
static void take_out(struct watches *w, struct heap *h, revision floor, revision at, struct list *aside)
{
	struct heap_node *n;

	while ((n = heap_peek(h)) && n->key <= (uint64_t)at) {
		struct watcher *x = CONTAINER_OF(n, struct watcher, heap);

		if (x->cursor >= floor) {
			pass_select(w, x);
		} else {
			watcher_select(w, x);
			list_remove(&x->link);
			list_push_back(aside, &x->link);
		}
	}
}

static void put_back(struct watches *w, struct list *aside)
{
	while (!list_empty(aside))
		watcher_park(w, CONTAINER_OF(aside->next, struct watcher, link));
}

static revision first_cursor(const struct pass *p)
{
	revision first = INT64_MAX;

	for (size_t i = 0; i < p->selected_len; i++)
		first = p->selected[i]->cursor < first ? p->selected[i]->cursor : first;
	return first;
}

void watches_before_compact(struct watches *w, revision at)
{
	struct list aside;
	revision floor;

	w->budget = TAKE_BYTES;
	watches_note(w);
	if (at <= w->env->state->compact_revision || at > w->env->state->revision)
		return; /* will be refused */
	list_init(&aside);
	floor = spill_floor(w, at);
	w->spilling = true;
	for (;;) {
		take_out(w, &w->parked, floor, at, &aside);
		take_out(w, &w->near, floor, at, &aside);
		take_out(w, &w->far[0], floor, at, &aside);
		take_out(w, &w->far[1], floor, at, &aside);
		if (w->pass.selected_len == 0)
			break;
		floor = first_cursor(&w->pass);
		pass_selected(w, floor);
		/* Who could not be told all of this pass has no more room: the next round puts it aside. */
		floor = w->pass.end + 1;
	}
	w->spilling = false;
	put_back(w, &aside);
}
