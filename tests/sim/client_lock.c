/* client_lock.c: what a client does about locks: it asks (tries, waits with a bound, waits for ever), believes when it is told so, and lets go.
 *
 * When it does not know what became of a call, it either asks again or cleans up, by an Unlock of the key that its lease would have.
 * An Unlock that names no token and whose outcome is unknown costs it the session. Asking
 * again for a lock that it holds puts the hold at stake (the newer call may be abandoned), so it does not believe until it is told anew. */
#include "sim.h"

static bool is_election(const struct world *w, uint32_t lock)
{
	return lock + ELECTIONS_MAX >= w->config.locks && w->config.locks > ELECTIONS_MAX;
}

static void draw_wait(struct client *c, struct op *o)
{
	switch (rng_below(&c->rng, 4)) {
	case 0: o->wait_ms = 0; break;
	case 1: o->wait_ms = (int64_t)rng_between(&c->rng, 20, 3000); break;
	default: break;
	}
}

static void recipe(struct client *c, enum op_kind kind)
{
	uint64_t n;
	struct op *o = op_new(c, kind, SLOT_LOCK, &n);

	c->w->totals.recipes += kind == OP_JOIN;
	o->key = c->lock;
	o->lease = c->lease;
	o->token = kind == OP_LEAVE ? c->token : 0;
	op_send(c, n);
}

static void ask_service(struct client *c)
{
	uint64_t n;
	struct op *o = op_new(c, is_election(c->w, c->lock) ? OP_CAMPAIGN : OP_LOCK, SLOT_LOCK, &n);

	c->w->totals.campaigns += o->kind == OP_CAMPAIGN;
	o->key = c->lock;
	o->mode = c->mode;
	o->lease = c->lease;
	draw_wait(c, o);
	c->hold = HOLD_WAITING;
	c->again = false;
	op_send(c, n);
}

static void ask(struct client *c)
{
	if (c->plain) {
		c->hold = HOLD_WAITING;
		c->again = false;
		c->token = 0;
		recipe(c, OP_JOIN);
		return;
	}
	ask_service(c);
}

static void want(struct client *c)
{
	c->lock = (uint8_t)rng_below(&c->rng, c->w->config.locks);
	c->plain = c->plain_session && !is_election(c->w, c->lock);
	c->mode = !c->plain && !is_election(c->w, c->lock) && c->lock % 2 && rng_chance(&c->rng, 600000) ? LOCK_SHARED : LOCK_EXCLUSIVE;
	if (!does_without(c->w, c->plain ? PIECE_RECIPE : is_election(c->w, c->lock) ? PIECE_CAMPAIGN : PIECE_LOCK))
		ask(c);
}

/* Without a session: the server makes one. */
static void want_without_lease(struct client *c)
{
	c->lock = 0;
	c->plain = false;
	c->mode = LOCK_EXCLUSIVE;
	ask(c);
}

/* A Resign that names no token frees nothing. */
static void let_go_service(struct client *c)
{
	uint64_t n;
	struct op *o = op_new(c, is_election(c->w, c->lock) && c->token ? OP_RESIGN : OP_UNLOCK, SLOT_LOCK, &n);

	client_stop_believing(c);
	c->hold = HOLD_LEAVING;
	o->key = c->lock;
	o->lease = c->lease;
	if (c->token && (o->kind == OP_RESIGN || rng_chance(&c->rng, 700000)))
		o->token = c->token;
	op_send(c, n);
}

static void let_go(struct client *c)
{
	if (c->plain) {
		client_stop_believing(c);
		c->hold = HOLD_LEAVING;
		recipe(c, OP_LEAVE);
		return;
	}
	let_go_service(c);
}

static void proclaim(struct client *c)
{
	uint64_t n;
	struct op *o = op_new(c, OP_PROCLAIM, SLOT_LOCK, &n);

	o->key = c->lock;
	o->lease = c->lease;
	o->token = c->token;
	op_send(c, n);
}

static void held_step(struct client *c)
{
	if (c->slot[SLOT_LOCK])
		return;
	if (c->w->now >= c->hold_until || c->draining) {
		let_go(c);
	} else if (is_election(c->w, c->lock) && rng_chance(&c->rng, 150000)) {
		proclaim(c);
	} else if (!c->plain && rng_chance(&c->rng, 10000)) {
		client_stop_believing(c);
		ask(c);
	}
}

/* A call that waits is given up: the cell forgets its place, so the client may too. Or it asks again, by whatever replica, and the first one does
 * not always hear of it. */
static void give_up_waiting(struct client *c)
{
	if (c->plain) {
		if (c->slot[SLOT_LOCK])
			return;
		if (rng_chance(&c->rng, c->draining ? 50000 : 15000))
			let_go(c);
		else
			recipe(c, c->token ? OP_FIRST : OP_JOIN);
		return;
	}
	if (!c->slot[SLOT_LOCK] || !rng_chance(&c->rng, c->draining ? 100000 : 15000))
		return;
	c->hold = rng_chance(&c->rng, 600000) ? HOLD_NONE : HOLD_LEAVING;
	c->again = c->hold == HOLD_NONE && !c->draining && rng_chance(&c->rng, 500000);
	op_close(c, c->slot[SLOT_LOCK], !c->again || c->slot[SLOT_LOCK] % 2);
	if (c->again)
		c->server = (c->server + 1) % c->w->config.replicas;
	c->token = 0;
}

void client_lock_step(struct client *c)
{
	if (!client_alive(c)) {
		if (!c->draining && !c->lease && !c->slot[SLOT_LEASE] && !c->slot[SLOT_LOCK] && rng_chance(&c->rng, 100000) &&
		    !does_without(c->w, PIECE_LOCK_WITHOUT_LEASE))
			want_without_lease(c);
		return;
	}
	switch (c->hold) {
	case HOLD_NONE:
		if (c->slot[SLOT_LOCK] || (c->draining && !c->again))
			break;
		if (c->again)
			ask(c);
		else if (!c->gives_up && rng_chance(&c->rng, 500000))
			want(c);
		break;
	case HOLD_WAITING: give_up_waiting(c); break;
	case HOLD_HELD: held_step(c); break;
	case HOLD_LEAVING:
		if (!c->slot[SLOT_LOCK])
			let_go(c);
		break;
	}
}

/* ---- answers ---- */

static void granted(struct client *c, const struct op *o, const struct reply *rep)
{
	if (!o->lease)
		client_adopt_session(c, rep->lease, 60, o->sent);
	if (!client_alive(c) || c->lease != rep->lease)
		return;
	c->hold = HOLD_HELD;
	c->token = rep->token;
	c->believes = true;
	c->hold_until = c->w->now + (rng_chance(&c->rng, 50000) ? 30 * SIM_SECOND : rng_between(&c->rng, 5 * SIM_MS, 1200 * SIM_MS));
	check_believe(c);
}

/* Created now, or before: its create_revision is the token. Then: is it first? */
static void recipe_answer(struct client *c, const struct op *o, enum err e, struct reply *rep)
{
	if (e == ERR_LEASE_NOT_FOUND) {
		client_lose_session(c);
	} else if (e || c->hold != HOLD_WAITING) {
		return; /* again, by and by */
	} else if (o->kind == OP_JOIN) {
		c->token = rep->succeeded ? rep->header : rep->kvs ? rep->kv[0].create : 0;
	} else if (rep->kvs == 1 && rep->kv[0].create == c->token) {
		rep->lease = rep->kv[0].lease;
		rep->token = c->token;
		granted(c, o, rep);
	} else if (rep->kvs == 0 || rep->kv[0].create > c->token) {
		c->token = 0; /* gone: from the beginning */
	}
}

static void not_granted(struct client *c, const struct op *o, enum err e)
{
	c->hold = HOLD_NONE;
	c->token = 0;
	if (!o->lease)
		return;
	switch (e) {
	case ERR_LOCK_HELD:
	case ERR_LOCK_WAIT_TIMEOUT:
	case ERR_NOT_CONTENDER:
	case ERR_LOCK_MODE_CHANGED: return;
	case ERR_LEASE_NOT_FOUND:
	case ERR_LEASE_ENDED_WAITING: client_lose_session(c); return;
	default: break;
	}
	if (rng_chance(&c->rng, 500000) && !c->draining)
		c->again = true;
	else
		c->hold = HOLD_LEAVING;
}

void client_lock_answer(struct client *c, struct op *o, enum err e, struct slice bytes)
{
	static struct reply rep;

	if (c->lease != o->lease)
		return;
	parse_reply(o, bytes, &rep);
	switch ((enum op_kind)o->kind) {
	case OP_LOCK:
	case OP_CAMPAIGN:
		if (e)
			not_granted(c, o, e);
		else
			granted(c, o, &rep);
		break;
	case OP_JOIN:
	case OP_FIRST: recipe_answer(c, o, e, &rep); break;
	case OP_PROCLAIM:
		if (e == ERR_ELECTION_NOT_LEADER)
			let_go(c);
		break;
	default:
		if (!e || e == ERR_NOT_CONTENDER || e == ERR_STALE_TOKEN)
			c->hold = HOLD_NONE;
		else if (!o->token) {
			/* It may yet take effect, and free what this lease comes to hold later. */
			c->hold = HOLD_NONE;
			c->gives_up = true;
		}
		break;
	}
}
