#include "fixture.h"

#include "base/mem.h"

static void on_change(void *ctx, const struct kv *prev, const struct kv *next)
{
	lock_changed(((struct fixture *)ctx)->locks, prev, next);
}

void fixture_init(struct fixture *f)
{
	*f = (struct fixture){ .state = { .revision = 1 } };
	tree_init(&f->state.keys, &key_record_type);
	tree_init(&f->state.contenders, &contender_type);
	f->store = store_new(&f->state);
	f->locks = locks_new(&f->state);
	store_on_change(f->store, on_change, f);
}

void fixture_deinit(struct fixture *f)
{
	locks_check(f->locks);
	locks_free(f->locks);
	store_free(f->store);
	tree_deinit(&f->state.contenders);
	tree_deinit(&f->state.keys);
}

void fixture_txn_begin(struct fixture *f)
{
	store_txn_begin(f->store);
	f->in_txn = true;
}

void fixture_txn_end(struct fixture *f)
{
	f->in_txn = false;
	store_txn_end(f->store);
}

static void put(struct fixture *f, struct slice key, lease_id lease)
{
	bool own = !f->in_txn;

	if (own)
		fixture_txn_begin(f);
	store_put(f->store, key, slice_of_str("v"), lease, NULL);
	if (own)
		fixture_txn_end(f);
}

enum err fixture_put(struct fixture *f, struct slice key, lease_id lease)
{
	enum err e = lock_check_put(f->locks, key, lease, store_get(f->store, key, 0));

	if (!e)
		put(f, key, lease);
	return e;
}

bool fixture_delete(struct fixture *f, struct slice key)
{
	bool own = !f->in_txn, there;

	if (own)
		fixture_txn_begin(f);
	there = store_delete_range(f->store, key, (struct slice){ 0 }, NULL, NULL) > 0;
	if (own)
		fixture_txn_end(f);
	return there;
}

const struct contender *fixture_find(struct fixture *f, struct slice key)
{
	const struct kv *kv = store_get(f->store, key, 0);

	return kv ? lock_find(f->locks, kv) : NULL;
}

enum err fixture_lock(struct fixture *f, struct slice name, lease_id lease, const struct lock_attributes *a)
{
	struct buf key = { 0 };
	const struct contender *c;
	enum err e = ERR_OK;

	lock_key(name, lease, &key);
	c = fixture_find(f, buf_view(&key));
	if (!c) {
		e = lock_check_put(f->locks, buf_view(&key), lease, store_get(f->store, buf_view(&key), 0));
		if (!e) {
			lock_next_attributes(f->locks, a);
			put(f, buf_view(&key), lease);
		}
	} else if (c->mode != a->mode) {
		e = ERR_LOCK_MODE_CHANGED;
	} else {
		lock_ask_again(f->locks, c, a);
	}
	buf_free(&key);
	return e;
}

bool fixture_abandon(struct fixture *f, struct slice key, struct call_id call)
{
	const struct contender *c = fixture_find(f, key);

	if (!c || c->call.member != call.member || c->call.boot != call.boot || c->call.call != call.call)
		return false;
	return fixture_delete(f, key);
}

static void tree_reload(struct tree *t)
{
	struct tree now;
	struct tree_cursor c;
	struct buf bytes = { 0 }, again = { 0 };

	tree_init(&now, t->type);
	for (struct tree_record *r = tree_first(&c, t); r; r = tree_next(&c)) {
		struct tree_record *copy = NULL;

		buf_clear(&bytes);
		buf_clear(&again);
		t->type->encode(r, &bytes);
		ASSERT(t->type->decode(buf_view(&bytes), &copy) == ERR_OK);
		t->type->encode(copy, &again);
		ASSERT(slice_eq(buf_view(&bytes), buf_view(&again)));
		tree_put_take(&now, copy);
	}
	ASSERT(now.hash == t->hash && now.len == t->len);
	buf_free(&bytes);
	buf_free(&again);
	tree_deinit(t);
	*t = now;
}

void fixture_reload(struct fixture *f)
{
	tree_reload(&f->state.keys);
	tree_reload(&f->state.contenders);
	store_rebuild(f->store);
	locks_rebuild(f->locks);
}
