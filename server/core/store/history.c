/* history.c: all events since the compaction, by absolute number.
 *
 * Derived from the versions that records keep, and of the same extent: an event is its version (or tombstone), which the record keeps for
 * as long as the history does. Watchers are cursors into it, so it is dense and its numbers only rise.
 *
 *   (H1) entries rise strictly by (mod_revision, sub); within a revision sub counts from 0 without a gap.
 *   (H2) prev of an entry is the version before it in the key's record when that one is live and kept, else NULL. No reference is held:
 *        compaction at C keeps the version before any event above C (it is what a reader at C sees), and so only entries at
 *        exactly C lose their prev; store_compact settles those before it drops any event. */
#include "store_internal.h"

#include "base/mem.h"

enum { HISTORY_CAP_MIN = 64 };

void history_clear(struct history *h)
{
	for (uint64_t n = h->begin; n < h->end; n++)
		kv_unref((struct kv *)history_at(h, n)->kv);
	h->begin = h->end;
	free(h->ring);
	h->ring = NULL;
	h->cap = 0;
}

void history_deinit(struct history *h)
{
	history_clear(h);
}

static void history_resize(struct history *h, uint64_t cap)
{
	struct store_event *ring = mem_alloc(cap * sizeof *ring);

	ASSERT(cap >= h->end - h->begin);
	for (uint64_t n = h->begin; n < h->end; n++)
		ring[n & (cap - 1)] = *history_at(h, n);
	free(h->ring);
	h->ring = ring;
	h->cap = cap;
}

void history_push(struct history *h, struct kv *kv, const struct kv *prev)
{
	if (h->end - h->begin == h->cap)
		history_resize(h, h->cap ? h->cap * 2 : HISTORY_CAP_MIN);
	*history_at(h, h->end) = (struct store_event){ .kv = kv_ref(kv), .prev = prev };
	h->end++;
}

void history_pop(struct history *h)
{
	ASSERT(h->begin < h->end);
	kv_unref((struct kv *)history_at(h, h->begin)->kv);
	h->begin++;
}

void history_shrink(struct history *h)
{
	uint64_t len = h->end - h->begin, cap = h->cap;

	while (cap > HISTORY_CAP_MIN && len <= cap / 4)
		cap /= 2;
	if (cap < h->cap)
		history_resize(h, cap);
}

static int event_cmp(const void *a, const void *b)
{
	const struct kv *x = ((const struct store_event *)a)->kv, *y = ((const struct store_event *)b)->kv;

	if (x->mod_revision != y->mod_revision)
		return x->mod_revision < y->mod_revision ? -1 : 1;
	return (x->sub > y->sub) - (x->sub < y->sub);
}

void history_sort(struct history *h)
{
	uint64_t len = h->end - h->begin, at = h->cap ? h->begin & (h->cap - 1) : 0;
	struct store_event *sorted;

	if (len < 2)
		return;
	/* In one piece first: the entries may wrap around. */
	sorted = mem_alloc(h->cap * sizeof *sorted);
	for (uint64_t i = 0; i < len; i++)
		sorted[i] = h->ring[(at + i) & (h->cap - 1)];
	qsort(sorted, len, sizeof *sorted, event_cmp);
	for (uint64_t i = 0; i < len; i++)
		h->ring[(at + i) & (h->cap - 1)] = sorted[i];
	free(sorted);
}

uint64_t history_seek(const struct history *h, revision from)
{
	uint64_t lo = h->begin, hi = h->end;

	if (lo == hi || from <= 0)
		return lo;
	if (history_at(h, hi - 1)->kv->mod_revision < from)
		return hi;
	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2;

		if (history_at(h, mid)->kv->mod_revision < from)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

uint64_t store_history_begin(const struct store *s, revision from)
{
	return history_seek(&s->history, from);
}

uint64_t store_history_end(const struct store *s)
{
	return s->history.end;
}

struct store_event store_history_at(const struct store *s, uint64_t number)
{
	ASSERT(number >= s->history.begin);
	ASSERT(number < s->history.end);
	return *history_at(&s->history, number);
}
