/* state.c: the root of what is replicated: made, shared as a view, summed up and dropped as a whole.
 *
 * The hash is chained over the scalars, then over the sections in order of their numbers, each mixed with its number so that two
 * sections cannot stand in for each other. An empty section adds nothing: a release that knows one more table, which its cell does not
 * use yet, still agrees with its neighbours. */
#include "core/state.h"

#include "base/hash.h"
#include "base/mem.h"
#include "core/alarm/alarm.h"
#include "core/auth/auth.h"
#include "core/lease/lease.h"
#include "core/lock/lock.h"
#include "core/member/member.h"
#include "core/once/once.h"
#include "core/session/session.h"
#include "core/snapshot/snapshot.h"
#include "core/store/store.h"

/* Numbers are for ever: the hash is compared between replicas and kept in snapshots. */
#define STATE_HASH_SEED UINT64_C(0x486f6c6466617374)

void state_init(struct state *st)
{
	*st = (struct state){ .revision = 1 };
	tree_init(&st->keys, &key_record_type);
	tree_init(&st->leases, &lease_record_type);
	tree_init(&st->contenders, &contender_type);
	tree_init(&st->members, &member_record_type);
	tree_init(&st->results, &result_record_type);
	tree_init(&st->sessions, &session_record_type);
	tree_init(&st->auth, &auth_record_type);
	tree_init(&st->alarms, &alarm_record_type);
	tree_init(&st->open_sessions, &open_session_type);
	tree_init(&st->removed, &removed_record_type);
}

size_t state_trees(struct state *st, struct tree *ret[STATE_TREES_MAX])
{
	size_t n = 0;

	ret[n++] = &st->keys;
	ret[n++] = &st->leases;
	ret[n++] = &st->contenders;
	ret[n++] = &st->members;
	ret[n++] = &st->results;
	ret[n++] = &st->sessions;
	ret[n++] = &st->auth;
	ret[n++] = &st->alarms;
	ret[n++] = &st->open_sessions;
	ret[n++] = &st->removed;
	for (size_t i = 1; i < n; i++)
		ASSERT_IF(ret[i]->type, ret[i - 1]->type->section < ret[i]->type->section);
	return n;
}

uint64_t state_hash(const struct state *st)
{
	struct state copy = *st; /* not a view: nothing is counted, nothing is changed */
	struct tree *trees[STATE_TREES_MAX];
	size_t n = state_trees(&copy, trees);
	uint64_t h = STATE_HASH_SEED;

	h = hash64_u64(h, st->applied.index);
	h = hash64_u64(h, st->applied.term);
	h = hash64_u64(h, (uint64_t)st->revision);
	h = hash64_u64(h, (uint64_t)st->compact_revision);
	if (st->restored)
		h = hash64_u64(h, st->restored);
	for (size_t i = 0; i < n; i++) {
		if (trees[i]->len == 0)
			continue;
		h = hash64_u64(h, trees[i]->type->section);
		h = hash64_u64(h, trees[i]->len);
		h = hash64_u64(h, trees[i]->hash);
	}
	return h;
}

struct state state_view(const struct state *st)
{
	struct state view = *st;

	view.keys = tree_view(&st->keys);
	view.leases = tree_view(&st->leases);
	view.contenders = tree_view(&st->contenders);
	view.members = tree_view(&st->members);
	view.results = tree_view(&st->results);
	view.sessions = tree_view(&st->sessions);
	view.auth = tree_view(&st->auth);
	view.alarms = tree_view(&st->alarms);
	view.open_sessions = tree_view(&st->open_sessions);
	view.removed = tree_view(&st->removed);
	return view;
}

bool state_drop_some(struct state *st, size_t budget)
{
	struct tree *trees[STATE_TREES_MAX];
	size_t n = state_trees(st, trees);

	for (size_t i = 0; i < n; i++)
		if (!tree_drop_some(trees[i], &budget))
			return false;
	return true;
}

void state_deinit(struct state *st)
{
	tree_deinit(&st->keys);
	tree_deinit(&st->leases);
	tree_deinit(&st->contenders);
	tree_deinit(&st->members);
	tree_deinit(&st->results);
	tree_deinit(&st->sessions);
	tree_deinit(&st->auth);
	tree_deinit(&st->alarms);
	tree_deinit(&st->open_sessions);
	tree_deinit(&st->removed);
}
