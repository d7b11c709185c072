/* net.c: links between replicas, and between clients and replicas.
 *
 * A link may lose, delay, double and reorder packets, be cut in one direction, or be slow; a late copy may arrive long after its sender has
 * restarted. Between clients and replicas a request or its answer may be lost, never doubled: that is what a call over gRPC looks like. */
#include "sim.h"

static bool chance(struct world *w, uint32_t per_million)
{
	return per_million > 0 && rng_chance(&w->net_rng, per_million);
}

static sim_us delay(struct world *w, const struct link *l, sim_us base, sim_us jitter)
{
	sim_us d = base + rng_below(&w->net_rng, jitter + 1);

	if (w->now < l->slow_until)
		d += rng_between(&w->net_rng, 20 * SIM_MS, 800 * SIM_MS);
	return d;
}

static void post(struct world *w, uint32_t from, uint32_t to, struct buf *bytes, sim_us at, bool late)
{
	struct packet *p = mem_zalloc(sizeof *p);

	p->from = from;
	p->to = to;
	p->late = late;
	p->bytes = buf_take(bytes);
	sim_at(w, at, (struct ev){ .kind = EV_PACKET, .ptr = p });
}

void net_send(struct world *w, uint32_t from, uint32_t to, struct buf *bytes, bool bulk)
{
	struct link *l = &w->links[from][to];
	uint32_t loss = w->config.loss + (w->now < w->storm_until ? w->storm_loss : 0);
	sim_us at;

	w->totals.packets++;
	if (w->now < l->blocked_until || chance(w, loss)) {
		w->totals.lost_packets++;
		buf_free(bytes);
		return;
	}
	at = w->now + delay(w, l, w->config.delay + (bulk ? w->config.delay : 0), w->config.jitter);
	if (w->config.ordered) {
		at = at > l->last_arrival ? at : l->last_arrival;
		l->last_arrival = at;
	}
	if (chance(w, w->config.dup)) {
		struct buf copy = buf_copy_of(buf_view(bytes));

		post(w, from, to, &copy, at + delay(w, l, 0, 20 * SIM_MS), false);
	}
	if (chance(w, w->config.late)) {
		struct buf copy = buf_copy_of(buf_view(bytes));

		post(w, from, to, &copy, at + rng_between(&w->net_rng, SIM_SECOND / 2, 20 * SIM_SECOND), true);
	}
	post(w, from, to, bytes, at, false);
}

void net_packet(struct world *w, struct packet *p)
{
	struct replica *r = &w->replicas[p->to];

	if (r->up && r->messages.len < 4096 && (!p->late || w->phase == PHASE_CHAOS)) {
		struct inbox_item item = { .event = { .kind = EVENT_MESSAGE }, .bytes = buf_take(&p->bytes) };

		item.event.message = buf_view(&item.bytes);
		replica_put(r, &r->messages, item);
	}
	buf_free(&p->bytes);
	free(p);
}

/* The process is gone, its streams break: the others mostly notice within milliseconds. */
void net_lost_process(struct world *w, uint32_t replica)
{
	for (uint32_t i = 0; i < w->config.replicas; i++)
		if (i != replica && w->now >= w->links[replica][i].blocked_until && chance(w, 700000))
			sim_at(w, w->now + rng_between(&w->net_rng, SIM_MS, 60 * SIM_MS), (struct ev){ .kind = EV_PEER_LOST, .a = i, .b = replica });
}

/* ---- clients ---- */

static bool client_link_lost(struct world *w, const struct op *o)
{
	return w->now < w->client_links[o->client][o->replica].blocked_until || chance(w, w->config.client_loss);
}

static sim_us client_delay(struct world *w, const struct op *o)
{
	return delay(w, &w->client_links[o->client][o->replica], w->config.client_delay, w->config.client_delay * 2);
}

void net_call(struct world *w, uint64_t op)
{
	struct op *o = op_get(w, op);
	struct call_msg *m;

	if (client_link_lost(w, o)) {
		buf_free(&o->request);
		return;
	}
	m = mem_zalloc(sizeof *m);
	m->op = op;
	m->bytes = buf_take(&o->request);
	sim_at(w, w->now + client_delay(w, o), (struct ev){ .kind = EV_REQUEST, .ptr = m });
}

void net_cancel(struct world *w, uint64_t op)
{
	struct op *o = op_get(w, op);

	if (client_link_lost(w, o))
		return;
	sim_at(w, w->now + client_delay(w, o), (struct ev){ .kind = EV_CANCEL_CALL, .n = op });
}

void net_answer(struct world *w, uint64_t op, enum err e, struct buf *reply)
{
	struct op *o = op_get(w, op);
	struct call_msg *m;

	if (client_link_lost(w, o)) {
		buf_free(reply);
		return;
	}
	m = mem_zalloc(sizeof *m);
	m->op = op;
	m->err = e;
	m->bytes = buf_take(reply);
	sim_at(w, w->now + client_delay(w, o), (struct ev){ .kind = EV_ANSWER, .ptr = m });
}
