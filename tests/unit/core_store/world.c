#include "world.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"

static struct buf text; /* what the lending functions lend */

void world_init(struct world *w)
{
	*w = (struct world){ .st.revision = 1 };
	tree_init(&w->st.keys, &key_record_type);
	w->store = store_new(&w->st);
}

void world_deinit(struct world *w)
{
	store_check(w->store);
	store_free(w->store);
	tree_deinit(&w->st.keys);
	buf_free(&text);
}

void world_put_lease(struct world *w, const char *key, const char *value, lease_id lease)
{
	store_txn_begin(w->store);
	store_put(w->store, slice_of_str(key), slice_of_str(value), lease, NULL);
	EXPECT(store_txn_end(w->store));
}

void world_put(struct world *w, const char *key, const char *value)
{
	world_put_lease(w, key, value, 0);
}

static struct slice end_of(const char *end)
{
	return strcmp(end, "0") == 0 ? slice_of("", 1) : slice_of_str(end);
}

uint64_t world_delete(struct world *w, const char *key, const char *end)
{
	uint64_t n;

	store_txn_begin(w->store);
	n = store_delete_range(w->store, slice_of_str(key), end_of(end), NULL, NULL);
	EXPECT(store_txn_end(w->store) == (n > 0));
	return n;
}

static void separate(void)
{
	if (text.len)
		buf_append_byte(&text, ' ');
}

static const char *lend(void)
{
	buf_append_byte(&text, 0);
	return (const char *)text.ptr;
}

static bool show(void *ctx, const struct kv *kv)
{
	(void)ctx;
	separate();
	buf_append_slice(&text, kv_key(kv));
	buf_append_byte(&text, '=');
	buf_append_slice(&text, kv_value(kv));
	return true;
}

const char *world_range(const struct world *w, const char *key, const char *end, revision at)
{
	buf_clear(&text);
	store_walk(w->store, (struct store_range){ .key = slice_of_str(key), .end = end_of(end), .at = at }, show, NULL);
	return lend();
}

uint64_t world_count(const struct world *w, const char *key, const char *end, revision at)
{
	return store_count(w->store, (struct store_range){ .key = slice_of_str(key), .end = end_of(end), .at = at });
}

const char *world_kept(const struct world *w, const char *key)
{
	const struct key_record *r = (const void *)tree_get(&w->st.keys, slice_of_str(key));

	buf_clear(&text);
	for (uint32_t i = 0; r && i < r->len; i++) {
		const struct kv *kv = r->cap ? r->versions[i] : r->one;

		separate();
		buf_printf(&text, "%" PRId64 ".%u/", kv->mod_revision, kv->sub);
		if (kv_is_tombstone(kv))
			buf_append_byte(&text, '-');
		else
			buf_printf(&text, "%" PRId64, kv->version);
	}
	return lend();
}

const char *world_events(const struct world *w, revision from)
{
	buf_clear(&text);
	for (uint64_t n = store_history_begin(w->store, from); n < store_history_end(w->store); n++) {
		struct store_event e = store_history_at(w->store, n);

		separate();
		buf_printf(&text, "%" PRId64 ".%u%c", e.kv->mod_revision, e.kv->sub, kv_is_tombstone(e.kv) ? '-' : '+');
		buf_append_slice(&text, kv_key(e.kv));
		if (e.prev)
			buf_printf(&text, "<%" PRId64, e.prev->mod_revision);
	}
	return lend();
}

struct buf tree_encode(const struct tree *t)
{
	struct tree_cursor c;
	struct buf out = { .len = 0 };

	for (struct tree_record *r = tree_first(&c, t); r; r = tree_next(&c))
		t->type->encode(r, &out);
	return out;
}

static void copy_keys(const struct tree *from, struct tree *ret)
{
	struct tree_cursor c;
	struct buf bytes = { .len = 0 };

	tree_init(ret, &key_record_type);
	for (struct tree_record *r = tree_first(&c, from); r; r = tree_next(&c)) {
		struct tree_record *copy = NULL;

		buf_clear(&bytes);
		key_record_type.encode(r, &bytes);
		EXPECT(key_record_type.decode(buf_view(&bytes), &copy) == ERR_OK);
		EXPECT(key_record_type.hash(copy) == key_record_type.hash(r));
		tree_put_take(ret, copy);
	}
	buf_free(&bytes);
}

void world_copy(const struct world *w, struct world *ret)
{
	*ret = (struct world){ .st = w->st };
	copy_keys(&w->st.keys, &ret->st.keys);
	ret->store = store_new(&ret->st);
}

void world_reload(struct world *w)
{
	struct tree old = w->st.keys;
	uint64_t end = store_history_end(w->store);

	copy_keys(&old, &w->st.keys);
	tree_deinit(&old);
	store_rebuild(w->store);
	EXPECT(store_history_begin(w->store, 0) >= end);
}

void ck_assert_same_state(const struct world *a, const struct world *b)
{
	struct buf x = tree_encode(&a->st.keys), y = tree_encode(&b->st.keys);
	uint64_t n = store_history_begin(a->store, 0), m = store_history_begin(b->store, 0);

	EXPECT(a->st.revision == b->st.revision);
	EXPECT(a->st.compact_revision == b->st.compact_revision);
	EXPECT(slice_eq(buf_view(&x), buf_view(&y)));
	EXPECT(a->st.keys.hash == b->st.keys.hash);
	EXPECT(store_bytes(a->store) == store_bytes(b->store));
	EXPECT(store_history_bytes(a->store) == store_history_bytes(b->store));
	EXPECT(store_hash_kv(a->store, 0) == store_hash_kv(b->store, 0));
	EXPECT(store_history_end(a->store) - n == store_history_end(b->store) - m);
	for (; n < store_history_end(a->store); n++, m++) {
		struct store_event d = store_history_at(a->store, n), e = store_history_at(b->store, m);

		EXPECT(d.kv->hash == e.kv->hash);
		EXPECT((d.prev ? d.prev->hash : 0) == (e.prev ? e.prev->hash : 0));
	}
	buf_free(&x);
	buf_free(&y);
}
