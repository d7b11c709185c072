/* note.h: the smallest record there is, for tests of the tree: a key and a number. Counts how many are alive. */
#ifndef HOLDFAST_TEST_NOTE_H
#define HOLDFAST_TEST_NOTE_H

#include "core/tree/tree.h"

struct note {
	struct tree_record base;
	uint32_t key_len;
	uint64_t value;
	uint8_t key[];
};

extern const struct tree_type note_type;
extern long notes_alive;

struct tree_record *note_new(struct slice key, uint64_t value);
static inline struct note *note_of(struct tree_record *r)
{
	return (struct note *)r;
}

static inline struct slice note_key(const struct tree_record *r)
{
	const struct note *n = (const struct note *)r;
	return slice_of(n->key, n->key_len);
}

#endif
