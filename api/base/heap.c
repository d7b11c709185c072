/* heap.c: intrusive binary min-heap.
 *
 *   (H1) at[i]->pos == i + 1 for every i < len.
 *   (H2) no node's key is smaller than its parent's.
 * Places are counted from 1, so that the parent of p is p / 2 and a zeroed node is in no heap. */
#include "base/heap.h"

#include "base/mem.h"

enum { HEAP_CAP_MIN = 16 };

static void heap_set(struct heap *h, size_t pos, struct heap_node *n)
{
	h->at[pos - 1] = n;
	n->pos = pos;
}

static struct heap_node *heap_at(const struct heap *h, size_t pos)
{
	return h->at[pos - 1];
}

/* The hole at `pos` rises until `n` may fill it. */
static void heap_rise(struct heap *h, size_t pos, struct heap_node *n)
{
	while (pos > 1 && heap_at(h, pos / 2)->key > n->key) {
		heap_set(h, pos, heap_at(h, pos / 2));
		pos /= 2;
	}
	heap_set(h, pos, n);
}

/* The hole at `pos` sinks until `n` may fill it. */
static void heap_sink(struct heap *h, size_t pos, struct heap_node *n)
{
	for (;;) {
		size_t child = pos * 2;

		if (child > h->len)
			break;
		if (child < h->len && heap_at(h, child + 1)->key < heap_at(h, child)->key)
			child++;
		if (n->key <= heap_at(h, child)->key)
			break;
		heap_set(h, pos, heap_at(h, child));
		pos = child;
	}
	heap_set(h, pos, n);
}

static void heap_settle(struct heap *h, size_t pos, struct heap_node *n)
{
	if (pos > 1 && heap_at(h, pos / 2)->key > n->key)
		heap_rise(h, pos, n);
	else
		heap_sink(h, pos, n);
}

void heap_deinit(struct heap *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < h->len; i++)
		h->at[i]->pos = 0;
	free(h->at);
	*h = (struct heap){ 0 };
}

void heap_insert(struct heap *h, struct heap_node *n, uint64_t key)
{
	ASSERT(n->pos == 0);
	if (h->len == h->cap) {
		h->cap = h->cap ? h->cap * 2 : HEAP_CAP_MIN;
		h->at = mem_realloc(h->at, h->cap * sizeof(*h->at));
	}
	n->key = key;
	h->len++;
	heap_rise(h, h->len, n);
}

void heap_remove(struct heap *h, struct heap_node *n)
{
	size_t pos = n->pos;
	struct heap_node *last;

	if (pos == 0)
		return;
	ASSERT(pos <= h->len && heap_at(h, pos) == n);
	last = heap_at(h, h->len);
	h->len--;
	n->pos = 0;
	if (last != n)
		heap_settle(h, pos, last);
}

void heap_update(struct heap *h, struct heap_node *n, uint64_t key)
{
	if (n->pos == 0) {
		heap_insert(h, n, key);
		return;
	}
	ASSERT(n->pos <= h->len && heap_at(h, n->pos) == n);
	n->key = key;
	heap_settle(h, n->pos, n);
}

struct heap_node *heap_peek(const struct heap *h)
{
	return h->len ? h->at[0] : NULL;
}
