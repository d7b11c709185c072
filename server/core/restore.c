/* restore.c: see restore.h. */
#include "core/restore.h"

#include "base/mem.h"
#include "core/alarm/alarm.h"
#include "core/kv/kv.h"
#include "core/kv/kv_internal.h"
#include "core/lease/lease.h"

static void end_leases(struct kv_env *env)
{
	struct tree_cursor c;
	const struct tree_record *r;

	while ((r = tree_first(&c, &env->state->leases)))
		kv_end_lease(env, ((const struct lease_record *)r)->id);
}

static void clear(struct tree *t)
{
	const struct tree_type *type = t->type;

	tree_deinit(t);
	tree_init(t, type);
}

static void compact(struct kv_env *env)
{
	enum err e = store_compact(env->store, env->state->revision);

	ASSERT(e == ERR_OK || e == ERR_COMPACTED);
}

static void change(struct state *st)
{
	struct arena arena;
	struct kv_env env = { .state = st, .arena = &arena };

	arena_init(&arena);
	env.store = store_new(st);
	env.lessor = lessor_new(st, 1);
	env.locks = locks_new(st);
	env.once = once_new(st);
	kv_attach(&env);
	kv_rebuild(&env);
	end_leases(&env);
	compact(&env);
	once_free(env.once);
	locks_free(env.locks);
	lessor_free(env.lessor);
	store_free(env.store);
	arena_deinit(&arena);
}

void restore_new_cell(struct state *st, const struct member_spec *members, size_t len, const char *token)
{
	change(st);
	clear(&st->results);
	clear(&st->sessions);
	clear(&st->alarms);
	clear(&st->members);
	for (size_t i = 0; i < len; i++)
		member_add_initial(st, &members[i], token);
	ASSERT(st->leases.len == 0);
	ASSERT(st->contenders.len == 0);
	st->applied = (struct entry_id){ .index = RESTORE_INDEX, .term = RESTORE_TERM };
	st->restored = 1;
}
