/* op.c: one request of a client on its way there and back. */
#include "sim.h"

struct op *op_get(struct world *w, uint64_t number)
{
	ASSERT(number > 0 && number <= w->ops.len);
	return &w->ops.at[number - 1];
}

struct op *op_root(struct world *w, uint64_t number)
{
	struct op *o = op_get(w, number);

	return o->root ? op_get(w, o->root) : o;
}

struct op *op_new(struct client *c, enum op_kind kind, enum op_slot slot, uint64_t *ret_number)
{
	struct op *o = SIM_PUSH(&c->w->ops);

	ASSERT(c->slot[slot] == 0);
	*o = (struct op){ .kind = (uint8_t)kind, .slot = (uint8_t)slot, .client = (uint8_t)c->id, .replica = (uint8_t)c->server, .wait_ms = -1 };
	*ret_number = c->w->ops.len;
	c->slot[slot] = *ret_number;
	return o;
}

static sim_us patience(struct client *c, const struct op *o)
{
	switch ((enum op_kind)o->kind) {
	case OP_KEEP_ALIVE: return rng_between(&c->rng, SIM_SECOND / 2, 3 * SIM_SECOND);
	case OP_LOCK:
	case OP_CAMPAIGN:
		if (o->wait_ms >= 0)
			return (sim_us)o->wait_ms * SIM_MS + rng_between(&c->rng, 2 * SIM_SECOND, 9 * SIM_SECOND);
		return rng_chance(&c->rng, 400000) ? rng_between(&c->rng, SIM_SECOND / 3, 3 * SIM_SECOND) : rng_between(&c->rng, 4 * SIM_SECOND, 20 * SIM_SECOND);
	default: return rng_between(&c->rng, SIM_SECOND / 3, (rng_chance(&c->rng, 300000) ? 10 : 3) * SIM_SECOND);
	}
}

/* ---- request IDs ---- */

static bool is_write(const struct op *o)
{
	switch ((enum op_kind)o->kind) {
	case OP_PUT:
	case OP_DELETE:
	case OP_CAS:
	case OP_COMPACT:
	case OP_LOCK:
	case OP_UNLOCK:
	case OP_CAMPAIGN:
	case OP_PROCLAIM:
	case OP_RESIGN: return true;
	default: return false;
	}
}

static uint64_t first_unanswered(struct client *c, uint64_t request_id)
{
	for (int i = 0; i < SLOT_COUNT; i++) {
		const struct op *o = c->slot[i] ? op_get(c->w, c->slot[i]) : NULL;

		if (o && o->session == c->lease && o->request_id && o->request_id < request_id)
			request_id = o->request_id;
	}
	return request_id;
}

static void give_id(struct client *c, struct op *o)
{
	if (!c->uses_ids || !is_write(o) || !client_alive(c) || (o->lease && o->lease != c->lease))
		return;
	o->session = c->lease;
	o->request_id = ++c->requests;
	if (rng_chance(&c->rng, 900000))
		o->first_unanswered = first_unanswered(c, o->request_id);
	buf_free(&c->kept[o->slot]);
	c->kept[o->slot] = buf_copy_of(buf_view(&o->request));
}

bool err_is_kept(enum err e)
{
	switch (e) {
	case ERR_OK:
	case ERR_LEASE_NOT_FOUND:
	case ERR_LOCK_HELD:
	case ERR_NOT_CONTENDER:
	case ERR_STALE_TOKEN:
	case ERR_ELECTION_NOT_LEADER:
	case ERR_COMPACTED:
	case ERR_FUTURE_REVISION:
	case ERR_LOCK_MODE_CHANGED:
	case ERR_CONTENDER_EXISTING_KEY:
	case ERR_RESULT_TOO_LARGE: return true;
	default: return false;
	}
}

static bool is_over(enum err e)
{
	return err_is_kept(e) || e == ERR_LOCK_WAIT_TIMEOUT || e == ERR_LEASE_ENDED_WAITING || e == ERR_UNKNOWN_SESSION || e == ERR_REQUEST_ID_TOO_OLD;
}

static void send(struct client *c, uint64_t number);

bool op_retry(struct client *c, uint64_t number, enum err e)
{
	struct op old = *op_get(c->w, number), *o;
	/* Of a lock one must not be told twice: the second may be of a hold that was let go meanwhile. */
	bool curious = is_over(e) && old.slot <= SLOT_KV_3 && rng_chance(&c->rng, 30000);
	uint64_t again;

	if (!old.session || old.session != c->lease || !client_alive(c) || (!curious && (is_over(e) || rng_chance(&c->rng, 100000))))
		return false;
	o = op_new(c, (enum op_kind)old.kind, (enum op_slot)old.slot, &again);
	old.replica = o->replica;
	old.stepped = old.answered = old.closed = old.canceled = old.seen = old.has_result = false;
	old.err = ERR_OK;
	old.applied = 0;
	old.rev = old.place = 0;
	old.root = old.root ? old.root : number;
	old.request = buf_copy_of(buf_view(&c->kept[old.slot]));
	*o = old;
	c->w->totals.retries++;
	send(c, again);
	return true;
}

void op_send(struct client *c, uint64_t number)
{
	struct op *o = op_get(c->w, number);

	pack_request(c->w, o, number);
	give_id(c, o);
	send(c, number);
}

static void send(struct client *c, uint64_t number)
{
	struct world *w = c->w;
	struct op *o = op_get(w, number);

	o->sent = w->now;
	trap_notice(w, PIECE_CLIENT, c->id);
	TRACE(w, "client %u asks r%u: %s %llu, key %u, lease %llx%s", c->id, o->replica + 1, op_names[o->kind], (unsigned long long)number, o->key,
	      (unsigned long long)o->lease, o->mode ? ", shared" : "");
	sim_at(w, w->now + patience(c, o), (struct ev){ .kind = EV_OP_TIMEOUT, .n = number });
	net_call(w, number);
}

void op_close(struct client *c, uint64_t number, bool cancel)
{
	struct op *o = op_get(c->w, number);

	ASSERT(!o->closed && c->slot[o->slot] == number);
	o->closed = true;
	c->slot[o->slot] = 0;
	if (cancel) {
		c->w->totals.cancels++;
		net_cancel(c->w, number);
	}
}
