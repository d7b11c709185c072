/* bound.c: the leader ends waits that have lasted too long, and waits that nobody is left to be told of.
 *
 *   (B1) while this replica leads, every contender for which a call waits with a bound has its row in the heap, and every such call its bound
 *        there: from when its command was applied here, or, when it led from later on, from then. So a bound is kept at least, and after a
 *        fail-over a full one is given anew.
 *   (B2) what is proposed ends only the call that the bound belongs to, and its contender only when that still waits and no other call asks for
 *        it (waiting_only; J4 of kv/locks.c): one that was granted meanwhile may have been told so, and another call has a bound of its own.
 *   (B3) a call whose replica started again, or was not heard for ORPHAN_GRACE_MS, is nobody's. It is ended after a grace, in which its
 *        client finds another replica and asks again, which keeps the place.
 *   (B4) a lease that the call had made for itself ends with its place, in the same step: nobody else has heard of it.
 * Deadlines follow the clock that stands still with us. */
#include "internal.h"

static enum err propose_end(struct core *c, const struct contender *ct, const struct asker *a, bool bound_is_over)
{
	struct abandoning end = {
		.name = contender_name(ct),
		.key = contender_key(ct),
		.call = a->call,
		.revoke = a->own_lease ? ct->lease : 0, /* B4 */
		.waiting_only = true,
		.bound_is_over = bound_is_over,
	};
	struct buf payload = { 0 };
	enum err e;

	abandon_encode(&end, &payload);
	e = core_propose_own(c, CMD(ABANDON), buf_view(&payload));
	buf_free(&payload);
	return e;
}

/* ---- bounds ---- */

static void forget_bounds(struct core *c, struct contender_row *row)
{
	row->bounds_len = 0;
	heap_remove(&c->waiters.bounds, &row->bound);
	row_release(c, row);
}

/* The one that runs already, or a full one. */
static time_ms due_at(const struct core *c, const struct contender_row *row, const struct asker *a)
{
	for (size_t i = 0; row && i < row->bounds_len; i++)
		if (call_id_eq(row->bounds[i].call, a->call))
			return row->bounds[i].due;
	return core_clock(c) + (time_ms)a->wait_ms;
}

static void bounds_set(struct core *c, struct contender_row *row, const struct call_bound *bounds, size_t n)
{
	time_ms first = TIME_NEVER;

	for (size_t i = 0; i < n; i++) {
		row->bounds[i] = bounds[i];
		first = bounds[i].due < first ? bounds[i].due : first;
	}
	row->bounds_len = n;
	heap_update(&c->waiters.bounds, &row->bound, first);
}

void bound_note(struct core *c, const struct contender *ct)
{
	struct contender_row *row = row_find(c, ct->create_revision, contender_key(ct));
	struct asker askers[LOCK_ASKERS_MAX];
	struct call_bound bounds[LOCK_ASKERS_MAX];
	size_t of = lock_is_held(c->locks, ct) ? 0 : contender_askers(ct, askers), n = 0;

	for (size_t i = 0; i < of; i++)
		if (askers[i].bounded)
			bounds[n++] = (struct call_bound){ .call = askers[i].call, .due = due_at(c, row, &askers[i]) };
	if (n > 0)
		bounds_set(c, row_get(c, ct->create_revision, contender_key(ct)), bounds, n);
	else if (row)
		forget_bounds(c, row);
}

void bounds_begin(struct core *c)
{
	struct tree_cursor cursor;

	for (struct tree_record *r = tree_first(&cursor, &c->state.contenders); r; r = tree_next(&cursor)) {
		const struct contender *ct = CONTAINER_OF(r, struct contender, base);

		if (ct->bounded || ct->others_len > 0)
			bound_note(c, ct);
	}
	orphans_soon(c);
}

void bounds_end(struct core *c)
{
	struct heap_node *n;

	while ((n = heap_peek(&c->waiters.bounds)))
		forget_bounds(c, CONTAINER_OF(n, struct contender_row, bound));
	c->waiters.orphans_at = TIME_NEVER;
}

/* Ends the calls whose time is up. False: the log takes nothing now. */
static bool end_due(struct core *c, struct contender_row *row, const struct contender *ct)
{
	struct asker askers[LOCK_ASKERS_MAX];
	struct call_bound left[LOCK_ASKERS_MAX];
	size_t of = contender_askers(ct, askers), n = 0;
	bool ok = true;

	for (size_t i = 0; i < row->bounds_len; i++) {
		const struct call_bound *b = &row->bounds[i];
		size_t k = 0;

		while (k < of && !call_id_eq(askers[k].call, b->call))
			k++;
		if (b->due > core_clock(c))
			left[n++] = *b;
		else if (k < of && !(ok = ok && propose_end(c, ct, &askers[k], true) == ERR_OK))
			left[n++] = (struct call_bound){ .call = b->call, .due = core_clock(c) + c->config.heartbeat_ms };
	}
	if (n > 0)
		bounds_set(c, row, left, n);
	else
		forget_bounds(c, row);
	return ok;
}

void bounds_due(struct core *c)
{
	struct heap_node *n;

	while ((n = heap_peek(&c->waiters.bounds)) && n->key <= core_clock(c)) {
		struct contender_row *row = CONTAINER_OF(n, struct contender_row, bound);
		const struct kv *kv = store_get(c->store, slice_of(row->key, row->key_len), 0);
		const struct contender *ct = kv ? lock_find(c->locks, kv) : NULL;

		if (!ct || ct->create_revision != row->token || lock_is_held(c->locks, ct))
			forget_bounds(c, row);
		else if (!end_due(c, row, ct))
			return;
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

	if (call.member == c->config.member)
		return call.boot < c->config.boot;
	p = peer_find(c, call.member);
	if (!p) /* not heard since this replica started, and it has led for the grace */
		return true;
	return clock - p->heard_at > ORPHAN_GRACE_MS || (call.boot < p->boot && clock - p->boot_since >= ORPHAN_GRACE_MS);
}

/* False: the log takes nothing now. */
static bool end_orphans(struct core *c, const struct contender *ct, size_t *left)
{
	struct asker askers[LOCK_ASKERS_MAX];
	size_t n = contender_askers(ct, askers);

	for (size_t i = 0; i < n && *left > 0; i++) {
		if (!is_orphan(c, askers[i].call))
			continue;
		if (lock_is_held(c->locks, ct)) /* asked last, as it costs the most */
			return true;
		if (propose_end(c, ct, &askers[i], false) != ERR_OK)
			return false;
		--*left;
	}
	return true;
}

void orphans_due(struct core *c)
{
	struct tree_cursor cursor;
	size_t left = LEASE_END_MAX;

	if (core_clock(c) < c->waiters.orphans_at)
		return;
	orphans_soon(c);
	for (struct tree_record *r = tree_first(&cursor, &c->state.contenders); r && left > 0; r = tree_next(&cursor))
		if (!end_orphans(c, CONTAINER_OF(r, struct contender, base), &left))
			return;
}
