/* client_kv.c: reads and writes of plain keys, one at a time a client, or in some runs up to three. */
#include "sim.h"

static enum op_kind draw_kind(struct client *c)
{
	static const struct { enum op_kind kind; uint32_t weight; } kinds[] = {
		{ OP_PUT, 30 }, { OP_GET, 22 }, { OP_GET_SERIALIZABLE, 6 }, { OP_RANGE, 8 }, { OP_CAS, 16 }, { OP_DELETE, 8 }, { OP_COMPACT, 1 },
		{ OP_TTL, 3 }, { OP_LEADER, 4 },
	};
	uint64_t at = rng_below(&c->rng, 98);

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		if (at < kinds[i].weight)
			return kinds[i].kind;
		at -= kinds[i].weight;
	}
	return OP_GET;
}

static uint8_t draw_key(struct client *c)
{
	return (uint8_t)rng_below(&c->rng, c->w->config.keys);
}

/* A revision of the recent past, or by a little of the future. */
static revision draw_revision(struct client *c)
{
	revision told = c->w->told;
	revision back = (revision)rng_below(&c->rng, 200);

	if (rng_chance(&c->rng, 50000))
		return told + 3;
	return told > back + 1 ? told - back : 0;
}

static void fill(struct client *c, struct op *o)
{
	switch ((enum op_kind)o->kind) {
	case OP_PUT:
		o->prev_kv = rng_chance(&c->rng, 300000);
		if (client_alive(c) && rng_chance(&c->rng, 200000))
			o->lease = c->lease;
		break;
	case OP_DELETE: o->prev_kv = rng_chance(&c->rng, 300000); break;
	case OP_RANGE:
		o->key2 = (uint8_t)(o->key + rng_between(&c->rng, 1, 12));
		if (o->key2 > c->w->config.keys)
			o->key2 = (uint8_t)c->w->config.keys;
		if (rng_chance(&c->rng, 500000))
			o->at = draw_revision(c);
		break;
	case OP_CAS:
		o->key2 = rng_chance(&c->rng, 300000) ? draw_key(c) : o->key;
		o->expect = c->seen[o->key];
		break;
	case OP_COMPACT: {
		revision at = draw_revision(c);

		o->at = at > 300 ? at - 100 : 1;
		break;
	}
	case OP_TTL: o->lease = c->lease ? c->lease : 12345; break;
	case OP_LEADER: o->key = (uint8_t)(c->w->config.locks - 1 - rng_below(&c->rng, ELECTIONS_MAX)); break;
	default: break;
	}
}

static bool asks_for(const struct client *c, enum op_kind kind)
{
	static const enum piece pieces[OP_KIND_COUNT] = {
		[OP_PUT] = PIECE_PUT, [OP_DELETE] = PIECE_DELETE, [OP_GET] = PIECE_GET, [OP_GET_SERIALIZABLE] = PIECE_GET_SERIALIZABLE, [OP_RANGE] = PIECE_RANGE,
		[OP_CAS] = PIECE_CAS, [OP_COMPACT] = PIECE_COMPACT, [OP_TTL] = PIECE_TTL, [OP_LEADER] = PIECE_LEADER,
	};

	return !does_without(c->w, pieces[kind]);
}

static void ask(struct client *c, enum op_slot slot)
{
	uint64_t n;
	enum op_kind kind = draw_kind(c);
	struct op *o;

	if (!asks_for(c, kind))
		return;
	o = op_new(c, kind, slot, &n);
	o->key = o->key2 = draw_key(c);
	fill(c, o);
	op_send(c, n);
}

void client_kv_step(struct client *c)
{
	if (c->draining)
		return;
	for (uint32_t i = 0; i < c->w->config.kv_slots; i++)
		if (!c->slot[SLOT_KV + i])
			ask(c, (enum op_slot)(SLOT_KV + i));
}

void client_kv_answer(struct client *c, struct op *o, enum err e, struct slice bytes)
{
	static struct reply rep;

	if (e)
		return;
	parse_reply(o, bytes, &rep);
	switch ((enum op_kind)o->kind) {
	case OP_PUT: c->seen[o->key] = rep.header; break;
	case OP_CAS:
		c->seen[o->key] = rep.succeeded ? rep.header : rep.kvs ? rep.kv[0].mod : 0;
		break;
	case OP_GET: c->seen[o->key] = rep.kvs ? rep.kv[0].mod : 0; break;
	case OP_DELETE: c->seen[o->key] = 0; break;
	default: break;
	}
}
