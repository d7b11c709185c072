/* holds.c: for how long locks are held, and what ends it. For people: nothing is decided by it.
 *
 *   (H1) every replica notes when it applied a grant, or, of a hold that it came by otherwise, when it did: so who leads next knows of it. What is
 *        noted is one entry a hold, keyed by a hash: two that collide cost a wrong figure.
 *   (H2) the end is told by who leads, and of entries of its own term alone: once in the cell, or, around a change of leader, not at all.
 * Times are those of the events. */
#include "internal.h"

static uint64_t hold_id(struct slice key, revision token)
{
	return hash64((uint64_t)token, key.ptr, key.len);
}

void holds_deinit(struct core *c)
{
	map64_deinit(&c->holds);
}

void holds_granted(struct core *c, const struct contender *ct)
{
	map64_put(&c->holds, hold_id(contender_key(ct), ct->create_revision), (void *)(uintptr_t)(c->now + 1)); /* never NULL */
}

void holds_rebuild(struct core *c)
{
	struct tree_cursor cursor;

	map64_deinit(&c->holds);
	c->holds = (struct map64){ 0 };
	for (struct tree_record *r = tree_first(&cursor, &c->state.contenders); r; r = tree_next(&cursor)) {
		const struct contender *ct = CONTAINER_OF(r, struct contender, base);

		if (lock_is_held(c->locks, ct))
			holds_granted(c, ct);
	}
}

static enum hold_end end_of(uint32_t kind)
{
	switch (kind) {
	case CMD(UNLOCK):
	case CMD(RESIGN):
		return HOLD_UNLOCKED;
	case CMD(LEASE_END):
		return HOLD_EXPIRED;
	case CMD(LEASE_REVOKE):
	case CMD(SESSION_CLOSE):
		return HOLD_REVOKED;
	case CMD(LOCK_BREAK):
		return HOLD_BROKEN;
	case CMD(ABANDON):
		return HOLD_ABANDONED;
	default:
		return HOLD_DELETED;
	}
}

void holds_gone(struct core *c, const struct kv *prev, uint32_t kind, raft_term term)
{
	uintptr_t since = (uintptr_t)map64_remove(&c->holds, hold_id(kv_key(prev), prev->create_revision));
	struct core_trace t = { .kind = TRACE_HOLD_END, .now = c->now, .a = (uint64_t)prev->create_revision, .b = c->now + 1 - since, .c = end_of(kind) };

	if (!since || !c->trace || !core_leads(c) || term != raft_current_term(c->raft)) /* H2 */
		return;
	if (lock_parse(kv_key(prev), prev->lease, &t.name))
		c->trace(c->trace_ctx, &t);
}
