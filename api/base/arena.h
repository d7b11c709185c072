/* arena.h: scratch memory that is freed all at once. One arena a request; not thread safe.
 * An arena must stay where it was initialised: `pb` points back at it. */
#ifndef HOLDFAST_BASE_ARENA_H
#define HOLDFAST_BASE_ARENA_H

#include <protobuf-c/protobuf-c.h>

#include "base/slice.h"

struct arena_block;

struct arena {
	struct arena_block *head; /* newest first */
	uint8_t *next, *end;      /* free room of the head block */
	size_t used;              /* bytes handed out since init or clear, each piece rounded up to 16 */
	ProtobufCAllocator pb;    /* set by arena_init: unpack into this arena; its free is a no-op */
};

void arena_init(struct arena *a);
void arena_deinit(struct arena *a);                  /* NULL-safe on a zeroed arena */
void arena_clear(struct arena *a);                   /* keeps one block for reuse */
void *arena_alloc(struct arena *a, size_t size);     /* 16-byte aligned, never NULL, not zeroed */
void *arena_zalloc(struct arena *a, size_t size);    /* zeroed */
struct slice arena_copy(struct arena *a, struct slice s);
char *arena_strdup(struct arena *a, struct slice s); /* NUL-terminated copy */

#endif
