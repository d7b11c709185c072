/* txn.c: writing transactions.
 *
 * A write changes the state at once, under the revision that the transaction will end with, so that later reads of the same transaction
 * see it. Nothing here can fail (S4); whoever may have to refuse does so before the first write.
 *
 * The same key may change more than once in a transaction, in any order of puts and deletes. Every change is a version of its own,
 * told apart by sub, and an event of its own. (etcd's requests cannot ask for that, commands of ours may.)
 *
 *   (X1) a version made by the open transaction has mod_revision == state->revision + 1, and sub counts its changes from 0.
 *   (X2) when the listener is told of a change, records, history and counts include it already. */
#include "store_internal.h"

#include "base/mem.h"

void store_txn_begin(struct store *s)
{
	ASSERT(!s->in_txn);
	ASSERT(s->changes == 0);
	s->in_txn = true;
}

revision store_txn_revision(const struct store *s)
{
	return s->st->revision + (s->changes > 0);
}

bool store_txn_end(struct store *s)
{
	bool changed = s->changes > 0;

	ASSERT(s->in_txn);
	s->st->revision += changed;
	s->changes = 0;
	s->in_txn = false;
	return changed;
}

static struct kv_spec next_spec(struct store *s)
{
	ASSERT(s->in_txn);
	ASSERT(s->st->revision < INT64_MAX);
	ASSERT(s->changes < UINT32_MAX);
	return (struct kv_spec){ .mod_revision = s->st->revision + 1, .sub = s->changes++ };
}

/* prev: the live version before it, or NULL. */
static void changed(struct store *s, const struct kv *prev, struct kv *next)
{
	history_push(&s->history, next, prev);
	s->version_bytes += kv_bytes(next);
	if (prev)
		s->live_bytes -= kv_bytes(prev);
	if (!kv_is_tombstone(next))
		s->live_bytes += kv_bytes(next);
	if (s->on_change)
		s->on_change(s->on_change_ctx, prev, next);
}

void store_put(struct store *s, struct slice key, struct slice value, lease_id lease, const struct kv **ret_prev)
{
	struct tree_record *tr = tree_edit_begin(&s->st->keys, key);
	const struct kv *last = tr ? key_record_last(key_record_of(tr)) : NULL, *prev = kv_live_or_null(last);
	struct kv_spec spec = next_spec(s);
	struct kv *next;

	spec.create_revision = prev ? prev->create_revision : spec.mod_revision;
	spec.version = prev ? prev->version + 1 : 1;
	spec.lease = lease;
	next = kv_new(key, value, spec);
	if (tr) {
		key_record_push_take(key_record_of(tr), next);
		tree_edit_end(&s->st->keys, tr);
	} else {
		struct key_record *r = key_record_new_take(next);

		s->record_bytes += key_record_bytes(r);
		tree_put_take(&s->st->keys, &r->base);
	}
	if (last && !prev)
		store_dead_remove(s, key_record_of(tr));
	changed(s, prev, next);
	if (ret_prev)
		*ret_prev = prev;
}

static void delete_one(struct store *s, const struct kv *prev)
{
	struct kv *tombstone = kv_new(kv_key(prev), (struct slice){ .len = 0 }, next_spec(s));
	struct tree_record *tr = tree_edit_begin(&s->st->keys, kv_key(prev));

	ASSERT(tr);
	ASSERT(key_record_last(key_record_of(tr)) == prev);
	key_record_push_take(key_record_of(tr), tombstone);
	tree_edit_end(&s->st->keys, tr);
	store_dead_add(s, key_record_of(tr));
	changed(s, prev, tombstone);
}

/* What a deletion is going to delete. Collected first, since a cursor dies with the first change; the versions themselves outlive it. */
struct victims {
	const struct kv **at;
	size_t len, cap;
	const struct kv *few[16]; /* most deletions need no more */
};

static bool collect(void *ctx, const struct kv *kv)
{
	struct victims *v = ctx;

	if (v->len == v->cap) {
		const struct kv **more = mem_alloc(2 * v->cap * sizeof *more);

		memcpy(more, v->at, v->len * sizeof *more);
		if (v->at != v->few)
			free(v->at);
		v->at = more;
		v->cap *= 2;
	}
	v->at[v->len++] = kv;
	return true;
}

uint64_t store_delete_range(struct store *s, struct slice key, struct slice end, void (*fn)(void *ctx, const struct kv *prev), void *ctx)
{
	struct victims v = { .len = 0 };

	ASSERT(s->in_txn);
	v.at = v.few;
	v.cap = sizeof v.few / sizeof *v.few;
	store_walk(s, (struct store_range){ .key = key, .end = end }, collect, &v);
	for (size_t i = 0; i < v.len; i++) {
		if (fn)
			fn(ctx, v.at[i]);
		delete_one(s, v.at[i]);
	}
	if (v.at != v.few)
		free(v.at);
	return v.len;
}
