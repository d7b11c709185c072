/* check_lock.c: locks, by a model of their own: a queue a lock, kept from the history's events alone.
 *
 *   P1   after every entry: one exclusive holder, or shared ones, never both; and the core's index of contenders says the same as the model
 *   P2   along one lock whoever comes to hold has a higher token than all before; a token is the create_revision of its key
 *   kept a place goes with no call but the one that its client made last, while that one asks or holds; and no late Campaign's value over a later one
 *   told a grant that is told was true at some instant between the call's arrival and its answer; a refusal likewise
 *   two  no two clients ever believe at one instant that they hold one lock, unless both share it. This is what it is all for: a client believes
 *        from when it is told until it asks to unlock, or its own clock says that its session may be over. */
#include "sim.h"

#include "core/command.h"
#include "core/wire.h"

static uint32_t lock_number(const struct world *w, struct slice name)
{
	char text[8];

	for (uint32_t i = 0; i < w->config.locks; i++) {
		lock_text(i, text);
		if (slice_eq(name, slice_of_str(text)))
			return i;
	}
	return UINT32_MAX;
}

/* ---- the model ---- */

static void joins(struct world *w, struct lock_history *l, const struct kv *kv)
{
	const struct contender *c = lock_find(referee_locks(w->referee), kv);

	CHECK(w, "P1", c && c->create_revision == kv->create_revision && c->lease == kv->lease, "a contender of revision %lld is not in the index",
	      (long long)kv->create_revision);
	CHECK(w, "P2", l->queue.len == 0 || l->queue.at[l->queue.len - 1].token < kv->create_revision, "contenders do not come in order");
	*SIM_PUSH(&l->queue) = (struct queued){ .token = kv->create_revision, .lease = kv->lease, .mode = c->mode };
}

/* Of others, which it has given up, some may be given up late, from a replica that was cut off; or end there. */
static void check_kept(struct world *w, uint32_t n, const struct kv *prev)
{
	uint32_t kind = w->applying->kind;
	struct slice by = wire_find_bytes(w->applying->payload, kind == CMD(LOCK) ? 6 : 3);
	struct call_id call = { wire_find_u64(by, 1, 0), wire_find_u64(by, 2, 0), wire_find_u64(by, 3, 0) };

	if (kind != CMD(LOCK) && kind != CMD(ABANDON))
		return;
	for (uint32_t i = 0; i < w->config.clients; i++) {
		const struct client *c = &w->clients[i];
		const struct op *o = c->slot[SLOT_LOCK] ? op_get(w, c->slot[SLOT_LOCK]) : NULL;

		if (!o || (o->kind != OP_LOCK && o->kind != OP_CAMPAIGN) || o->key != n || !o->lease || o->lease != prev->lease ||
		    o->place != prev->create_revision || (o->answered && o->err))
			continue;
		CHECK(w, "kept", call_id_eq(o->call, call), "lock%u: client %u waits for it or holds it by one call (%llu), and another takes its place away", n, i,
		      (unsigned long long)c->slot[SLOT_LOCK]);
	}
}

static void check_value(struct world *w, uint32_t n, const struct kv *kv, const struct kv *prev)
{
	uint64_t now = value_number(kv_value(kv)), before = value_number(kv_value(prev));

	CHECK(w, "kept", !now || now >= before || op_get(w, now)->kind != OP_CAMPAIGN, "lock%u: a late Campaign (%llu) puts its value over a later one (%llu)", n,
	      (unsigned long long)now, (unsigned long long)before);
}

static void leaves(struct world *w, struct lock_history *l, const struct kv *prev)
{
	size_t i = 0;

	while (i < l->queue.len && l->queue.at[i].token != prev->create_revision)
		i++;
	CHECK(w, "P1", i < l->queue.len, "a contender of revision %lld leaves that never was", (long long)prev->create_revision);
	if (l->queue.at[i].held)
		for (size_t h = l->holds.len; h-- > 0;)
			if (l->holds.at[h].token == prev->create_revision)
				l->holds.at[h].gone_at = w->now;
	if (l->gone[0].lease != prev->lease)
		l->gone[1] = l->gone[0];
	l->gone[0].at = w->now;
	l->gone[0].lease = prev->lease;
	memmove(&l->queue.at[i], &l->queue.at[i + 1], (l->queue.len - i - 1) * sizeof *l->queue.at);
	l->queue.len--;
}

void check_lock_event(struct world *w, const struct kv *kv, const struct kv *prev)
{
	const struct kv *of = kv_is_tombstone(kv) ? prev : kv;
	struct slice name;
	uint32_t n;

	if (!of || !lock_parse(kv_key(of), of->lease, &name) || (n = lock_number(w, name)) == UINT32_MAX)
		return;
	if (!kv_is_tombstone(kv) && kv->version > 1) {
		check_value(w, n, kv, prev);
		return;
	}
	w->locks[n].changed = true;
	if (kv_is_tombstone(kv)) {
		check_kept(w, n, prev);
		leaves(w, &w->locks[n], prev);
	} else {
		joins(w, &w->locks[n], kv);
	}
}

/* Who holds: the first; and if it shares, all that share before the first exclusive one. */
static bool model_held(const struct lock_history *l, size_t i)
{
	for (size_t k = 0; k <= i; k++)
		if (l->queue.at[k].mode == LOCK_EXCLUSIVE)
			return i == 0;
	return true;
}

static void came_to_hold(struct world *w, uint32_t n, struct queued *q, bool waited)
{
	struct lock_history *l = &w->locks[n];

	CHECK(w, "P2", q->token > l->highest, "lock%u: token %lld is held after %lld was", n, (long long)q->token, (long long)l->highest);
	l->highest = q->token;
	q->held = true;
	w->totals.hand_overs += waited;
	*SIM_PUSH(&l->holds) = (struct hold){ .token = q->token, .lease = q->lease, .mode = q->mode, .held_at = w->now, .gone_at = SIM_NEVER };
	TRACE(w, "lock%u: lease %llx holds, token %lld%s", n, (unsigned long long)q->lease, (long long)q->token, q->mode ? ", shared" : "");
}

static void settle(struct world *w, uint32_t n)
{
	struct lock_history *l = &w->locks[n];
	const struct locks *locks = referee_locks(w->referee);
	const struct contender *c = NULL;
	uint32_t exclusive = 0, shared = 0;
	char name[8];

	lock_text(n, name);
	for (size_t i = 0; i < l->queue.len; i++) {
		struct queued *q = &l->queue.at[i];
		bool held = model_held(l, i);

		c = lock_next(locks, slice_of_str(name), c);
		CHECK(w, "P1", c && c->create_revision == q->token && c->lease == q->lease && c->mode == q->mode, "%s: the index has another queue", name);
		CHECK(w, "P1", lock_is_held(locks, c) == held, "%s: the index is wrong about who holds", name);
		CHECK(w, "P1", held || !q->held, "%s: a holder no longer holds", name);
		if (held && !q->held)
			came_to_hold(w, n, q, q->old);
		q->old = true;
		exclusive += held && q->mode == LOCK_EXCLUSIVE;
		shared += held && q->mode == LOCK_SHARED;
	}
	CHECK(w, "P1", !lock_next(locks, slice_of_str(name), c), "%s: the index has more contenders", name);
	CHECK(w, "P1", exclusive + (shared > 0) <= 1, "%s: %u exclusive and %u shared holders", name, exclusive, shared);
}

void check_lock_settled(struct world *w)
{
	for (uint32_t n = 0; n < w->config.locks; n++) {
		if (!w->locks[n].changed)
			continue;
		w->locks[n].changed = false;
		settle(w, n);
		check_users_lock(w, n);
	}
	check_lease_settled(w);
}

uint32_t check_lock_left(const struct world *w)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->config.locks; i++)
		n += (uint32_t)w->locks[i].queue.len;
	return n;
}

/* ---- what callers are told ---- */

static void check_grant(struct world *w, const struct op *o, const struct reply *rep)
{
	const struct lock_history *l = &w->locks[o->key];
	const struct hold *h = NULL;
	struct buf key = { 0 };
	char name[8];

	for (size_t i = l->holds.len; i-- > 0 && !h;)
		if (l->holds.at[i].token == rep->token)
			h = &l->holds.at[i];
	lock_text(o->key, name);
	CHECK(w, "P1", h, "%s: client %u is told that it holds with token %lld, which nobody ever did", name, o->client, (long long)rep->token);
	CHECK(w, "P1", h->lease == rep->lease && (!o->lease || o->lease == h->lease) && (o->kind != OP_LOCK || h->mode == o->mode),
	      "%s: client %u is told of another's hold", name, o->client);
	CHECK(w, "P5", h->gone_at >= o->asked_at, "%s: client %u is told of a hold that had ended before it asked, token %lld", name, o->client,
	      (long long)rep->token);
	lock_key(slice_of_str(name), h->lease, &key);
	CHECK(w, "P2", slice_eq(rep->key, buf_view(&key)), "%s: the hold has another key", name);
	buf_free(&key);
	w->totals.grants++;
}

/* "Held": somebody else was in the queue at some instant of the call. */
static void check_refusal(struct world *w, const struct op *o)
{
	const struct lock_history *l = &w->locks[o->key];
	bool other = false;

	for (size_t i = 0; i < l->queue.len; i++)
		other |= l->queue.at[i].lease != o->lease;
	for (size_t i = 0; i < 2; i++)
		other |= l->gone[i].lease && l->gone[i].lease != o->lease && l->gone[i].at >= o->stepped_at;
	CHECK(w, "P5", other, "lock%u: client %u is told that it is held: nobody else was there", o->key, o->client);
	w->totals.lock_refusals++;
}

/* Who is read to be first held the lock at some instant of the call. */
static void check_first(struct world *w, const struct op *o, const struct reply *rep)
{
	const struct lock_history *l = &w->locks[o->key];
	bool known = rep->kvs == 0;

	for (size_t i = 0; i < l->holds.len; i++)
		known |= rep->kvs == 1 && l->holds.at[i].token == rep->kv[0].create && l->holds.at[i].gone_at >= o->stepped_at;
	CHECK(w, "P5", known, "lock%u: client %u reads a first contender that did not hold", o->key, o->client);
}

/* Whether the bound that `bound` gave has lapsed, by a clock that may run as fast as any. */
static bool is_over(const struct world *w, const struct op *o, const struct op *bound)
{
	return bound->kind == o->kind && bound->client == o->client && bound->key == o->key && bound->lease == o->lease && bound->wait_ms > 0 &&
	       w->now - bound->stepped_at + 4 * SIM_MS >= (sim_us)bound->wait_ms * 1000 * 1000000 / (1000000 + PPM_MAX);
}

/* All calls of a session for one lock share its place, so the bound of a later one ends the wait of the earlier, too. */
static bool is_over_by_another_call(const struct world *w, const struct op *o)
{
	for (size_t i = (size_t)(o - w->ops.at) + 1; i < w->ops.len; i++)
		if (is_over(w, o, &w->ops.at[i]))
			return true;
	return false;
}

void check_lock_answer(struct world *w, struct op *o, enum err e, const struct reply *rep)
{
	if (o->kind == OP_FIRST && !e)
		check_first(w, o, rep);
	if (o->kind != OP_LOCK && o->kind != OP_CAMPAIGN)
		return;
	if (!e)
		check_grant(w, o, rep);
	if (e == ERR_LOCK_HELD)
		check_refusal(w, o);
	if (e == ERR_LOCK_WAIT_TIMEOUT) {
		CHECK(w, "bounds", is_over(w, o, o) || is_over_by_another_call(w, o), "client %u is told after %llu ms that %lld ms are over", o->client,
		      (unsigned long long)((w->now - o->stepped_at) / SIM_MS), (long long)o->wait_ms);
		check_refusal(w, o);
	}
}

/* ---- what clients believe ---- */

void check_believe(struct client *c)
{
	struct world *w = c->w;
	struct lock_history *l = &w->locks[c->lock];

	for (uint32_t i = 0; i < w->config.clients; i++) {
		if (!l->believers[i].is || i == c->id || w->now >= w->clients[i].valid_until)
			continue;
		CHECK(w, "TWO HOLDERS", l->believers[i].mode == LOCK_SHARED && c->mode == LOCK_SHARED,
		      "lock%u: clients %u (lease %llx, token %lld) and %u (lease %llx, token %lld) both believe that they hold it", c->lock, i,
		      (unsigned long long)l->believers[i].lease, (long long)l->believers[i].token, c->id, (unsigned long long)c->lease,
		      (long long)c->token);
	}
	l->believers[c->id].is = true;
	l->believers[c->id].lease = c->lease;
	l->believers[c->id].mode = c->mode;
	l->believers[c->id].token = c->token;
	TRACE(w, "client %u believes that it holds lock%u, token %lld, lease %llx", c->id, c->lock, (long long)c->token, (unsigned long long)c->lease);
}

void check_stop_believing(struct client *c)
{
	c->w->locks[c->lock].believers[c->id].is = false;
}
