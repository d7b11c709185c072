/* op.c: one request of a client on its way there and back. */
#include "sim.h"

struct op *op_get(struct world *w, uint64_t number)
{
	ASSERT(number > 0 && number <= w->ops.len);
	return &w->ops.at[number - 1];
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

void op_send(struct client *c, uint64_t number)
{
	struct world *w = c->w;
	struct op *o = op_get(w, number);

	pack_request(w, o, number);
	o->sent = w->now;
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
