/* map.h: hash tables with open addressing. Iteration follows insertion order only by accident: whatever must be
 * deterministic iterates a sorted structure instead. Pointers are never owned; byte keys are copied. */
#ifndef HOLDFAST_BASE_MAP_H
#define HOLDFAST_BASE_MAP_H

#include "base/slice.h"

/* uint64 -> pointer (never NULL) */
struct map64 {
	struct map64_slot *slots;
	size_t len, cap, used; /* used counts tombstones too */
};

void map64_deinit(struct map64 *m);
void *map64_get(const struct map64 *m, uint64_t key);              /* NULL when absent */
void *map64_put(struct map64 *m, uint64_t key, void *value);       /* returns the value it replaced, or NULL */
void *map64_remove(struct map64 *m, uint64_t key);                 /* returns what was there, or NULL */
/* Walk: *pos starts at 0; false at the end. Removing the entry just returned is allowed, inserting is not. */
bool map64_next(const struct map64 *m, size_t *pos, uint64_t *ret_key, void **ret_value);

/* bytes -> pointer (never NULL) */
struct mapb {
	struct mapb_slot *slots;
	size_t len, cap, used;
};

void mapb_deinit(struct mapb *m);
void *mapb_get(const struct mapb *m, struct slice key);
void *mapb_put(struct mapb *m, struct slice key, void *value);
void *mapb_remove(struct mapb *m, struct slice key);
/* As map64_next; *ret_key dies with its entry, and may be handed to mapb_remove. */
bool mapb_next(const struct mapb *m, size_t *pos, struct slice *ret_key, void **ret_value);

#endif
