/* client.c: a user of the cell: a session that it keeps alive, a lock that it wants, holds and lets go, and plain keys beside (client_lock.c,
 * client_kv.c). It talks to any replica, goes elsewhere after an error, gives up waiting, and is sometimes stopped for longer than its lease.
 *
 * It keeps the rules of a client library (P3): its lease clock starts when the keep-alive that was answered was *sent*, runs for 99 % of the
 * TTL by its own clock, and when it has run out, nothing the cell says brings the session back. */
#include "sim.h"

#define DRIFT_MS 2 /* the core's clock has whole milliseconds */

static sim_us own_time(const struct client *c, sim_us local)
{
	return local * 1000000 / (uint64_t)(1000000 + c->ppm);
}

bool client_alive(const struct client *c)
{
	return c->lease != 0 && c->w->now < c->valid_until;
}

void client_init(struct world *w, uint32_t id)
{
	struct client *c = &w->clients[id];

	memset(c, 0, sizeof *c);
	c->w = w;
	c->id = id;
	rng_init(&c->rng, rng_next(&w->rng));
	c->ppm = w->config.equal_clocks ? 0 : (int32_t)rng_below(&c->rng, 2 * PPM_MAX + 1) - PPM_MAX;
	if (!w->config.equal_clocks && rng_chance(&c->rng, 400000))
		c->ppm = -PPM_MAX; /* slow: believes for longest */
	if (does_without(w, PIECE_CLOCKS))
		c->ppm = 0;
	c->server = (uint32_t)rng_below(&c->rng, w->config.replicas);
	if (!left_out(w, PIECE_CLIENT, id))
		sim_at(w, rng_below(&c->rng, SIM_SECOND), (struct ev){ .kind = EV_CLIENT, .a = id });
}

void client_deinit(struct client *c)
{
	for (int i = 0; i < SLOT_COUNT; i++)
		buf_free(&c->kept[i]);
}

void client_drain(struct client *c)
{
	c->draining = true;
	c->gives_up = c->ttl >= 60 || rng_chance(&c->rng, 500000);
	c->silent |= !c->gives_up;
}

/* ---- the session ---- */

static void believe_until(struct client *c, sim_us sent, int64_t ttl)
{
	sim_us until = sent + own_time(c, (sim_us)ttl * SIM_SECOND * 99 / 100 - DRIFT_MS * SIM_MS);

	if (until <= c->valid_until)
		return;
	c->valid_until = until;
	check_lease_believed(c);
	sim_at(c->w, until, (struct ev){ .kind = EV_EXPIRE, .a = c->id });
}

void client_adopt_session(struct client *c, lease_id lease, int64_t ttl, sim_us sent)
{
	c->lease = lease;
	c->requests = 0;
	c->uses_ids = rng_chance(&c->rng, 600000) && !does_without(c->w, PIECE_REQUEST_IDS);
	c->ttl = ttl;
	c->plain_session = ttl < 60 && rng_chance(&c->rng, 200000);
	c->valid_until = 0;
	c->silent = c->draining ? rng_chance(&c->rng, 500000) && ttl < 60 : rng_chance(&c->rng, 80000) && ttl < 60;
	c->gives_up = c->draining && !c->silent;
	c->keep_alive_at = c->w->now + (sim_us)ttl * SIM_SECOND / 3;
	believe_until(c, sent, ttl);
	if (!client_alive(c))
		client_lose_session(c);
}

void client_stop_believing(struct client *c)
{
	if (c->believes)
		check_stop_believing(c);
	c->believes = false;
}

void client_lose_session(struct client *c)
{
	client_stop_believing(c);
	TRACE(c->w, "client %u has no session %llx any more", c->id, (unsigned long long)c->lease);
	c->lease = 0;
	c->valid_until = 0;
	c->hold = HOLD_NONE;
	c->again = false;
	if (c->slot[SLOT_LOCK])
		op_close(c, c->slot[SLOT_LOCK], rng_chance(&c->rng, 600000));
	if (c->slot[SLOT_KEEP_ALIVE])
		op_close(c, c->slot[SLOT_KEEP_ALIVE], false);
	if (c->slot[SLOT_LEASE])
		op_close(c, c->slot[SLOT_LEASE], false);
}

void client_expire(struct client *c)
{
	if (c->lease && c->w->now >= c->valid_until && c->w->now >= c->frozen_until)
		client_lose_session(c);
}

static void grant(struct client *c)
{
	uint64_t n;
	struct op *o = op_new(c, OP_GRANT, SLOT_LEASE, &n);

	o->ttl = (int64_t)rng_between(&c->rng, 1, 6);
	if (rng_chance(&c->rng, 500000))
		o->lease = (lease_id)((uint64_t)(c->id + 1) << 24 | ++c->leases_made);
	op_send(c, n);
}

static void revoke(struct client *c)
{
	uint64_t n;
	struct op *o = op_new(c, OP_REVOKE, SLOT_LEASE, &n);

	client_stop_believing(c);
	o->lease = c->lease;
	op_send(c, n);
}

static void keep_alive(struct client *c)
{
	uint64_t n;
	struct op *o = op_new(c, OP_KEEP_ALIVE, SLOT_KEEP_ALIVE, &n);

	o->lease = c->lease;
	c->keep_alive_at = c->w->now + (sim_us)c->ttl * SIM_SECOND / rng_between(&c->rng, 3, 6);
	op_send(c, n);
}

static void session_step(struct client *c)
{
	if (!c->lease) {
		if (!c->draining && !c->slot[SLOT_LEASE] && !c->slot[SLOT_LOCK])
			grant(c);
		return;
	}
	if (c->gives_up)
		c->again = false;
	if (c->gives_up && c->hold == HOLD_NONE && !c->again && !c->slot[SLOT_LOCK] && !c->slot[SLOT_LEASE])
		revoke(c);
	else if (!c->silent && !c->slot[SLOT_KEEP_ALIVE] && c->w->now >= c->keep_alive_at)
		keep_alive(c);
	if (!c->draining && c->ttl < 60 && rng_chance(&c->rng, 2000))
		c->silent = true;
	if (!c->draining && rng_chance(&c->rng, c->ttl < 60 ? 2000 : 20000))
		c->gives_up = true;
}

static void session_answer(struct client *c, struct op *o, enum err e, struct slice bytes)
{
	static struct reply rep;

	if (o->kind == OP_TTL)
		return;
	parse_reply(o, bytes, &rep);
	if (o->kind == OP_GRANT) {
		if (!e && !c->lease)
			client_adopt_session(c, rep.lease, rep.ttl, o->sent);
		return;
	}
	if (!c->lease || c->lease != o->lease)
		return;
	if (o->kind == OP_REVOKE) {
		if (!e || e == ERR_LEASE_NOT_FOUND)
			client_lose_session(c);
		return;
	}
	if (e) {
		c->keep_alive_at = c->w->now;
		return;
	}
	if (rep.ttl <= 0)
		client_lose_session(c);
	else if (client_alive(c))
		believe_until(c, o->sent, rep.ttl);
}

/* ---- what happens to it ---- */

static bool maybe_freeze(struct client *c)
{
	struct world *w = c->w;

	if (c->draining || !rng_chance(&c->rng, 3000) || does_without(w, PIECE_FREEZES))
		return false;
	c->frozen_until = w->now + rng_between(&c->rng, SIM_SECOND / 2, 8 * SIM_SECOND);
	w->totals.client_freezes++;
	TRACE(w, "client %u is stopped for %llu ms", c->id, (unsigned long long)((c->frozen_until - w->now) / SIM_MS));
	return true;
}

static bool serves_clients(const struct world *w, const struct replica *r)
{
	struct core_status s;

	if (!r->up || r->absent || r->wiped || operator_removed(w, r))
		return false;
	core_status(r->core, &s);
	return !s.learner;
}

/* Who is to finish in time asks nobody who does not answer. */
static void find_server(struct client *c)
{
	for (uint32_t i = 0; i < c->w->config.replicas && !serves_clients(c->w, &c->w->replicas[c->server]); i++)
		c->server = (c->server + 1) % c->w->config.replicas;
}

void client_think(struct client *c)
{
	struct world *w = c->w;

	if (w->now < c->frozen_until || maybe_freeze(c)) {
		sim_at(w, c->frozen_until, (struct ev){ .kind = EV_CLIENT, .a = c->id });
		return;
	}
	client_expire(c);
	if (rng_chance(&c->rng, 30000))
		c->server = (uint32_t)rng_below(&c->rng, w->config.replicas);
	if (c->draining)
		find_server(c);
	session_step(c);
	client_lock_step(c);
	client_kv_step(c);
	sim_at(w, w->now + rng_between(&c->rng, 20 * SIM_MS, 150 * SIM_MS), (struct ev){ .kind = EV_CLIENT, .a = c->id });
}

static void elsewhere(struct client *c, uint32_t per_million)
{
	if (rng_chance(&c->rng, per_million))
		c->server = (uint32_t)rng_below(&c->rng, c->w->config.replicas);
}

static void dispatch(struct client *c, uint64_t n, enum err e, struct slice reply)
{
	struct op *o = op_get(c->w, n);

	if (e == ERR_UNKNOWN_SESSION && o->session == c->lease)
		client_lose_session(c);
	if (op_retry(c, n, e))
		return;
	o = op_get(c->w, n);
	switch ((enum op_slot)o->slot) {
	case SLOT_KV:
	case SLOT_KV_2:
	case SLOT_KV_3: client_kv_answer(c, o, e, reply); break;
	case SLOT_LOCK: client_lock_answer(c, o, e, reply); break;
	case SLOT_LEASE:
	case SLOT_KEEP_ALIVE: session_answer(c, o, e, reply); break;
	case SLOT_COUNT: break;
	}
}

void client_answer(struct client *c, uint64_t n, enum err e, struct slice reply)
{
	struct op *o = op_get(c->w, n);

	if (o->closed)
		return;
	client_expire(c);
	if (o->closed) /* with the session */
		return;
	op_close(c, n, false);
	if (e)
		elsewhere(c, 600000);
	dispatch(c, n, e, reply);
}

void client_op_timeout(struct world *w, uint64_t n)
{
	struct op *o = op_get(w, n);
	struct client *c = &w->clients[o->client];

	if (o->closed)
		return;
	if (w->now < c->frozen_until) {
		sim_at(w, c->frozen_until, (struct ev){ .kind = EV_OP_TIMEOUT, .n = n });
		return;
	}
	client_expire(c);
	if (o->closed)
		return;
	op_close(c, n, true);
	elsewhere(c, 800000);
	dispatch(c, n, ERR_DEADLINE_EXCEEDED, (struct slice){ 0 });
}
