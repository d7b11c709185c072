/* arena.c: scratch memory for one request.
 *
 * Small pieces are cut from blocks that double from 4 KiB to 256 KiB; a piece too big for that gets a block of its
 * own, kept behind the head so that the head's free room is not lost.
 *   (A1) next and end point into the head block, or all three are NULL.
 *   (A2) the head is never a block made for one big piece, so what clear keeps is at most ARENA_BLOCK_MAX.
 * Under the address sanitizer free room is poisoned: use after clear and overruns between pieces are reported. */
#include "base/arena.h"

#include "base/mem.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(ptr, size) ((void)(ptr), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(ptr, size) ((void)(ptr), (void)(size))
#endif

enum {
	ARENA_ALIGN = 16,
	ARENA_BLOCK_MIN = 4 * 1024,
	ARENA_BLOCK_MAX = 256 * 1024,
	ARENA_BIG = ARENA_BLOCK_MAX / 4, /* so at most a quarter of a full-grown block is left unused */
};

struct arena_block {
	struct arena_block *older;
	size_t size; /* of bytes[] */
	_Alignas(16) uint8_t bytes[];
};

static struct arena_block *block_new(size_t total)
{
	struct arena_block *block = mem_alloc(total);

	block->size = total - sizeof(*block);
	ASAN_POISON_MEMORY_REGION(block->bytes, block->size);
	return block;
}

static void arena_use_block(struct arena *a, struct arena_block *block)
{
	a->head = block;
	a->next = block->bytes;
	a->end = block->bytes + block->size;
}

/* A new head with room for at least `room`, which is at most ARENA_BIG. */
static void arena_grow(struct arena *a, size_t room)
{
	size_t total = ARENA_BLOCK_MIN;
	struct arena_block *block;

	if (a->head)
		total = (a->head->size + sizeof(*block)) * 2;
	while (total < room + sizeof(*block))
		total *= 2;
	if (total > ARENA_BLOCK_MAX)
		total = ARENA_BLOCK_MAX;
	block = block_new(total);
	block->older = a->head;
	arena_use_block(a, block);
}

static void *arena_alloc_big(struct arena *a, size_t room)
{
	struct arena_block *block;

	if (!a->head)
		arena_grow(a, 0); /* (A2) */
	block = block_new(sizeof(*block) + room);
	block->older = a->head->older;
	a->head->older = block;
	return block->bytes;
}

static void *arena_alloc_slow(struct arena *a, size_t room)
{
	void *ptr;

	if (room > ARENA_BIG)
		return arena_alloc_big(a, room);
	arena_grow(a, room);
	ptr = a->next;
	a->next += room;
	return ptr;
}

static void *arena_pb_alloc(void *arena, size_t size)
{
	return arena_alloc(arena, size);
}

static void arena_pb_free(void *arena, void *ptr)
{
	(void)arena;
	(void)ptr;
}

void arena_init(struct arena *a)
{
	*a = (struct arena){
		.pb = { .alloc = arena_pb_alloc, .free = arena_pb_free, .allocator_data = a },
	};
}

static void blocks_free(struct arena_block *block)
{
	while (block) {
		struct arena_block *older = block->older;

		free(block);
		block = older;
	}
}

void arena_deinit(struct arena *a)
{
	if (!a)
		return;
	blocks_free(a->head);
	a->head = NULL;
	a->next = a->end = NULL;
	a->used = 0;
}

void arena_clear(struct arena *a)
{
	a->used = 0;
	if (!a->head)
		return;
	blocks_free(a->head->older);
	a->head->older = NULL;
	arena_use_block(a, a->head);
	ASAN_POISON_MEMORY_REGION(a->head->bytes, a->head->size);
}

void *arena_alloc(struct arena *a, size_t size)
{
	size_t room;
	void *ptr;

	ASSERT(size <= SIZE_MAX / 2);
	room = (size + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
	if (room == 0)
		room = ARENA_ALIGN; /* every piece has an address of its own */
	a->used += room;
	if (room <= (size_t)(a->end - a->next)) {
		ptr = a->next;
		a->next += room;
	} else {
		ptr = arena_alloc_slow(a, room);
	}
	ASAN_UNPOISON_MEMORY_REGION(ptr, size);
	return ptr;
}

void *arena_zalloc(struct arena *a, size_t size)
{
	void *ptr = arena_alloc(a, size);

	memset(ptr, 0, size);
	return ptr;
}

struct slice arena_copy(struct arena *a, struct slice s)
{
	uint8_t *copy = arena_alloc(a, s.len);

	if (s.len > 0)
		memcpy(copy, s.ptr, s.len);
	return slice_of(copy, s.len);
}

char *arena_strdup(struct arena *a, struct slice s)
{
	char *copy = arena_alloc(a, s.len + 1);

	if (s.len > 0)
		memcpy(copy, s.ptr, s.len);
	copy[s.len] = '\0';
	return copy;
}
