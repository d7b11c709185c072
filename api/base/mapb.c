/* mapb.c: bytes -> pointer. The same table as map64.c, (M1) and (M2) included; here a slot also keeps the hash, so
 * that probing touches a key's bytes only when it is almost surely the right one, and rebuilding touches none. */
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"

enum { MAP_CAP_MIN = 16 };

struct mapb_slot {
	uint64_t hash;
	uint8_t *key; /* owned while the slot is live */
	size_t key_len;
	void *value; /* NULL: empty; &tombstone: removed */
};

static char tombstone;

static bool slot_is_live(const struct mapb_slot *slot)
{
	return slot->value != NULL && slot->value != &tombstone;
}

static struct slice slot_key(const struct mapb_slot *slot)
{
	return slice_of(slot->key, slot->key_len);
}

static uint64_t hash_of(struct slice key)
{
	return hash64(0, key.ptr, key.len);
}

static struct mapb_slot *mapb_find(const struct mapb *m, struct slice key, uint64_t hash)
{
	if (m->len == 0)
		return NULL;
	for (size_t i = (size_t)hash & (m->cap - 1); m->slots[i].value; i = (i + 1) & (m->cap - 1)) {
		struct mapb_slot *slot = &m->slots[i];

		if (slot->hash == hash && slot->value != &tombstone && slice_eq(slot_key(slot), key))
			return slot;
	}
	return NULL;
}

/* The key must be absent, and a slot free. */
static void mapb_place(struct mapb *m, struct mapb_slot entry)
{
	size_t i = (size_t)entry.hash & (m->cap - 1);

	while (slot_is_live(&m->slots[i]))
		i = (i + 1) & (m->cap - 1);
	if (!m->slots[i].value)
		m->used++;
	m->slots[i] = entry;
	m->len++;
}

/* Makes room for one more; at most half full afterwards, so the next rebuild is cap / 4 insertions away. */
static void mapb_rebuild(struct mapb *m)
{
	struct mapb old = *m;
	size_t cap = MAP_CAP_MIN;

	while (cap < (old.len + 1) * 2)
		cap *= 2;
	*m = (struct mapb){ .slots = mem_zalloc(cap * sizeof(*m->slots)), .cap = cap };
	for (size_t i = 0; i < old.cap; i++)
		if (slot_is_live(&old.slots[i]))
			mapb_place(m, old.slots[i]);
	free(old.slots);
}

void mapb_deinit(struct mapb *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->cap; i++)
		if (slot_is_live(&m->slots[i]))
			free(m->slots[i].key);
	free(m->slots);
	*m = (struct mapb){ 0 };
}

void *mapb_get(const struct mapb *m, struct slice key)
{
	struct mapb_slot *slot;

	if (m->len == 0)
		return NULL;
	slot = mapb_find(m, key, hash_of(key));
	return slot ? slot->value : NULL;
}

void *mapb_put(struct mapb *m, struct slice key, void *value)
{
	uint64_t hash = hash_of(key);
	struct mapb_slot *slot = mapb_find(m, key, hash);
	uint8_t *copy;

	ASSERT(value);
	if (slot) {
		void *replaced = slot->value;

		slot->value = value;
		return replaced;
	}
	if ((m->used + 1) * 4 > m->cap * 3)
		mapb_rebuild(m);
	copy = mem_alloc(key.len);
	if (key.len > 0)
		memcpy(copy, key.ptr, key.len);
	mapb_place(m, (struct mapb_slot){ .hash = hash, .key = copy, .key_len = key.len, .value = value });
	return NULL;
}

void *mapb_remove(struct mapb *m, struct slice key)
{
	struct mapb_slot *slot;
	void *value;
	size_t i;

	if (m->len == 0)
		return NULL;
	slot = mapb_find(m, key, hash_of(key));
	if (!slot)
		return NULL;
	value = slot->value;
	free(slot->key); /* `key` may be a view of it: not to be read from here on */
	*slot = (struct mapb_slot){ .value = &tombstone };
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

bool mapb_next(const struct mapb *m, size_t *pos, struct slice *ret_key, void **ret_value)
{
	while (*pos < m->cap) {
		const struct mapb_slot *slot = &m->slots[(*pos)++];

		if (slot_is_live(slot)) {
			*ret_key = slot_key(slot);
			*ret_value = slot->value;
			return true;
		}
	}
	return false;
}
