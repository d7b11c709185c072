/* heap.h: intrusive binary min-heap of (uint64 key, owner). The heap owns its array, never its nodes. */
#ifndef HOLDFAST_BASE_HEAP_H
#define HOLDFAST_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
	uint64_t key;  /* change it only through heap_update */
	size_t pos;    /* 1-based place in the heap; 0: not in a heap (zero-initialise the node) */
};

struct heap {
	struct heap_node **at;
	size_t len, cap;
};

void heap_deinit(struct heap *h);                                    /* nodes still inside become free again */
void heap_insert(struct heap *h, struct heap_node *n, uint64_t key);
void heap_remove(struct heap *h, struct heap_node *n);               /* no-op when it is in no heap */
void heap_update(struct heap *h, struct heap_node *n, uint64_t key); /* inserts when it is in no heap */
struct heap_node *heap_peek(const struct heap *h);                   /* smallest key; NULL when empty */

static inline bool heap_contains(const struct heap_node *n)
{
	return n->pos != 0;
}

#endif
