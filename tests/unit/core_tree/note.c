#include "note.h"

#include "base/hash.h"
#include "base/mem.h"

long notes_alive;

struct tree_record *note_new(struct slice key, uint64_t value)
{
	struct note *n = mem_alloc(sizeof(*n) + key.len);

	n->base.refs = 1;
	n->key_len = (uint32_t)key.len;
	n->value = value;
	if (key.len)
		memcpy(n->key, key.ptr, key.len);
	notes_alive++;
	return &n->base;
}

static struct tree_record *note_clone(const struct tree_record *r)
{
	return note_new(note_key(r), ((const struct note *)r)->value);
}

static void note_free(struct tree_record *r)
{
	ASSERT(r->refs == 0);
	notes_alive--;
	free(r);
}

static uint64_t note_hash(const struct tree_record *r)
{
	const struct note *n = (const struct note *)r;
	return hash64(n->value, n->key, n->key_len);
}

const struct tree_type note_type = {
	.section = 1,
	.version = 1,
	.key = note_key,
	.clone = note_clone,
	.free = note_free,
	.hash = note_hash,
};
