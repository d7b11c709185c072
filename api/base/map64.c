/* map64.c: uint64 -> pointer, open addressing with linear probing.
 *
 *   (M1) from a key's home slot to the slot it lives in, no slot is empty.
 *   (M2) used = live entries + tombstones, and used <= 3/4 cap: every probe meets an empty slot and ends.
 * A removed entry leaves a tombstone, so that nothing moves and a walk may remove what it just saw. Tombstones
 * in front of an empty slot guard nothing and become empty at once; the others go when the table is rebuilt. */
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"

enum { MAP_CAP_MIN = 16 };

struct map64_slot {
	uint64_t key;
	void *value; /* NULL: empty; &tombstone: removed */
};

static char tombstone;

static bool slot_is_live(const struct map64_slot *slot)
{
	return slot->value != NULL && slot->value != &tombstone;
}

static size_t home_of(const struct map64 *m, uint64_t key)
{
	return (size_t)hash64_u64(0, key) & (m->cap - 1);
}

static struct map64_slot *map64_find(const struct map64 *m, uint64_t key)
{
	if (m->len == 0)
		return NULL;
	for (size_t i = home_of(m, key); m->slots[i].value; i = (i + 1) & (m->cap - 1))
		if (m->slots[i].key == key && m->slots[i].value != &tombstone)
			return &m->slots[i];
	return NULL;
}

/* The key must be absent, and a slot free. */
static void map64_place(struct map64 *m, uint64_t key, void *value)
{
	size_t i = home_of(m, key);

	while (slot_is_live(&m->slots[i]))
		i = (i + 1) & (m->cap - 1);
	if (!m->slots[i].value)
		m->used++;
	m->slots[i] = (struct map64_slot){ .key = key, .value = value };
	m->len++;
}

/* Makes room for one more; at most half full afterwards, so the next rebuild is cap / 4 insertions away. */
static void map64_rebuild(struct map64 *m)
{
	struct map64 old = *m;
	size_t cap = MAP_CAP_MIN;

	while (cap < (old.len + 1) * 2)
		cap *= 2;
	*m = (struct map64){ .slots = mem_zalloc(cap * sizeof(*m->slots)), .cap = cap };
	for (size_t i = 0; i < old.cap; i++)
		if (slot_is_live(&old.slots[i]))
			map64_place(m, old.slots[i].key, old.slots[i].value);
	free(old.slots);
}

void map64_deinit(struct map64 *m)
{
	if (!m)
		return;
	free(m->slots);
	*m = (struct map64){ 0 };
}

void *map64_get(const struct map64 *m, uint64_t key)
{
	struct map64_slot *slot = map64_find(m, key);

	return slot ? slot->value : NULL;
}

void *map64_put(struct map64 *m, uint64_t key, void *value)
{
	struct map64_slot *slot = map64_find(m, key);

	ASSERT(value);
	if (slot) {
		void *replaced = slot->value;

		slot->value = value;
		return replaced;
	}
	if ((m->used + 1) * 4 > m->cap * 3)
		map64_rebuild(m);
	map64_place(m, key, value);
	return NULL;
}

void *map64_remove(struct map64 *m, uint64_t key)
{
	struct map64_slot *slot = map64_find(m, key);
	void *value;
	size_t i;

	if (!slot)
		return NULL;
	value = slot->value;
	slot->value = &tombstone;
	m->len--;
	i = (size_t)(slot - m->slots);
	if (m->slots[(i + 1) & (m->cap - 1)].value)
		return value;
	for (; m->slots[i].value == &tombstone; i = (i - 1) & (m->cap - 1)) {
		m->slots[i].value = NULL;
		m->used--;
	}
	return value;
}

bool map64_next(const struct map64 *m, size_t *pos, uint64_t *ret_key, void **ret_value)
{
	while (*pos < m->cap) {
		const struct map64_slot *slot = &m->slots[(*pos)++];

		if (slot_is_live(slot)) {
			*ret_key = slot->key;
			*ret_value = slot->value;
			return true;
		}
	}
	return false;
}
