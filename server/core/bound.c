/* bound.c: the leader ends waits that have lasted too long, and waits that nobody is left to be told of.
 *
 *   (B1) while this replica leads, every contender that waits with a bound has its row in the heap: from when its command was applied here,
 *        or, when it led from later on, from then. So a bound is kept at least, and after a fail-over a full one is given anew.
 *   (B2) what is proposed ends only a contender that still waits, and only for the call that the bound belongs to (waiting_only): one that
 *        was granted meanwhile may have been told so, and one that was asked again has a bound of its own.
 *   (B3) a call whose replica started again, or was not heard for ORPHAN_GRACE_MS, is nobody's. It is ended after a grace, in which its
 *        client finds another replica and asks again, which makes it another call's.
 *   (B4) a lease that the call had made for itself ends with its place, in the same step: nobody else has heard of it.
 * Deadlines follow the clock that stands still with us. */
#include "internal.h"

static void encode_abandon(const struct contender *ct, bool bound_is_over, struct buf *out)
{
	size_t mark;

	pbw_bytes(out, 1, contender_name(ct));
	pbw_bytes(out, 2, contender_key(ct));
	mark = pbw_open(out, 3);
	pbw_u64(out, 1, ct->call.member);
	pbw_u64(out, 2, ct->call.boot);
	pbw_u64(out, 3, ct->call.call);
	pbw_close(out, mark);
	if (ct->own_lease) /* B4 */
		pbw_i64(out, 4, ct->lease);
	pbw_u64(out, 5, 1);
	pbw_u64(out, 6, bound_is_over);
}

static enum err propose_end(struct core *c, const struct contender *ct, bool bound_is_over)
{
	struct buf payload = { 0 };
	enum err e;

	encode_abandon(ct, bound_is_over, &payload);
	e = core_propose_own(c, CMD(ABANDON), buf_view(&payload));
	buf_free(&payload);
	return e;
}

/* ---- bounds ---- */

static void forget_bound(struct core *c, struct contender_row *row)
{
	heap_remove(&c->waiters.bounds, &row->bound);
	row_release(c, row);
}

void bound_note(struct core *c, const struct contender *ct)
{
	struct contender_row *row = row_find(c, ct->create_revision, contender_key(ct));

	if (!ct->bounded || lock_is_held(c->locks, ct)) {
		if (row)
			forget_bound(c, row);
		return;
	}
	row = row_get(c, ct->create_revision, contender_key(ct));
	row->bound_call = ct->call;
	heap_update(&c->waiters.bounds, &row->bound, core_clock(c) + (time_ms)ct->wait_ms);
}

void bounds_begin(struct core *c)
{
	struct tree_cursor cursor;

	for (struct tree_record *r = tree_first(&cursor, &c->state.contenders); r; r = tree_next(&cursor)) {
		const struct contender *ct = CONTAINER_OF(r, struct contender, base);

		if (ct->bounded)
			bound_note(c, ct);
	}
	orphans_soon(c);
}

void bounds_end(struct core *c)
{
	struct heap_node *n;

	while ((n = heap_peek(&c->waiters.bounds)))
		forget_bound(c, CONTAINER_OF(n, struct contender_row, bound));
	c->waiters.orphans_at = TIME_NEVER;
}

static bool same_call(struct call_id a, struct call_id b)
{
	return a.member == b.member && a.boot == b.boot && a.call == b.call;
}

void bounds_due(struct core *c)
{
	struct heap_node *n;

	while ((n = heap_peek(&c->waiters.bounds)) && n->key <= core_clock(c)) {
		struct contender_row *row = CONTAINER_OF(n, struct contender_row, bound);
		const struct kv *kv = store_get(c->store, slice_of(row->key, row->key_len), 0);
		const struct contender *ct = kv ? lock_find(c->locks, kv) : NULL;
		bool due = ct && ct->create_revision == row->token && same_call(ct->call, row->bound_call) && !lock_is_held(c->locks, ct);

		if (due && propose_end(c, ct, true) != ERR_OK) {
			heap_update(&c->waiters.bounds, n, core_clock(c) + c->config.heartbeat_ms);
			return;
		}
		forget_bound(c, row);
	}
}

/* ---- orphans ---- */

void orphans_soon(struct core *c)
{
	c->waiters.orphans_at = core_clock(c) + ORPHAN_GRACE_MS;
}

static bool is_orphan(struct core *c, struct call_id call)
{
	time_ms clock = core_clock(c);
	const struct peer *p;

	if (call.member == 0)
		return false;
	if (call.member == c->config.member)
		return call.boot < c->config.boot;
	p = peer_find(c, call.member);
	if (!p) /* not heard since this replica started, and it has led for the grace */
		return true;
	return clock - p->heard_at > ORPHAN_GRACE_MS || (call.boot < p->boot && clock - p->boot_since >= ORPHAN_GRACE_MS);
}

void orphans_due(struct core *c)
{
	struct tree_cursor cursor;
	size_t left = LEASE_END_MAX;

	if (core_clock(c) < c->waiters.orphans_at)
		return;
	orphans_soon(c);
	for (struct tree_record *r = tree_first(&cursor, &c->state.contenders); r && left > 0; r = tree_next(&cursor)) {
		const struct contender *ct = CONTAINER_OF(r, struct contender, base);

		if (!is_orphan(c, ct->call) || lock_is_held(c->locks, ct))
			continue;
		if (propose_end(c, ct, false) != ERR_OK)
			return;
		left--;
	}
}
