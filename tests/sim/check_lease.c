/* check_lease.c: sessions end neither early (P4) nor behind their clients' backs (P3).
 *
 * All clocks may be wrong by rate, so what is compared is virtual time: a lease of TTL seconds that was renewed by a call which the core had at
 * instant t, and whose renewal was answered, may not end by time before t + TTL / 1.004975. A client counts from when it sent, by its own
 * clock, 99 % of the TTL, and takes off 2 ms since the core's clock has whole milliseconds. */
#include "sim.h"

struct lease_info *lease_info_get(struct world *w, lease_id id, bool make)
{
	void *at = map64_get(&w->lease_by_id, (uint64_t)id);
	struct lease_info *l;

	if (at)
		return &w->leases.at[(uintptr_t)at - 1];
	if (!make)
		return NULL;
	l = SIM_PUSH(&w->leases);
	*l = (struct lease_info){ .id = id, .ended_at = SIM_NEVER };
	map64_put(&w->lease_by_id, (uint64_t)id, (void *)(uintptr_t)w->leases.len);
	return l;
}

void check_lease_granted(struct world *w, lease_id id, int64_t ttl)
{
	struct lease_info *l = lease_info_get(w, id, true);

	CHECK(w, "P9", !l->exists && !l->ended, "lease %llx is granted twice", (unsigned long long)id);
	l->exists = true;
	l->ttl = ttl;
	l->granted_at = w->now;
}

static sim_us earliest_end(sim_us from, int64_t ttl)
{
	return from + (sim_us)ttl * SIM_SECOND * 1000000 / (1000000 + PPM_MAX) - 2 * SIM_MS;
}

static void check_nothing_left(struct world *w, lease_id id)
{
	for (uint32_t k = 0; k < w->config.keys; k++) {
		const struct version *v = history_at(w, k, referee_revision(w->referee));

		CHECK(w, "P4", !v || v->lease != id, "lease %llx has ended, its key k%02u is still there", (unsigned long long)id, k);
	}
}

/* The referee has applied its end. */
void check_lease_ended(struct world *w, lease_id id, bool by_time)
{
	struct lease_info *l = lease_info_get(w, id, true);

	CHECK(w, "P4", l->exists && !l->ended, "lease %llx ends and was not there", (unsigned long long)id);
	l->exists = false;
	l->ended = true;
	l->ended_at = w->now;
	l->revoked = !by_time;
	w->lease_just_ended = id;
	if (!by_time)
		return;
	w->totals.lease_ends++;
	check_cacher_lease_ended(w, id);
	check_users_lease_ended(w, id);
	CHECK(w, "P4", w->now >= l->no_end_before, "lease %llx of %lld s ends %llu ms early", (unsigned long long)id, (long long)l->ttl,
	      (unsigned long long)((l->no_end_before - w->now) / SIM_MS));
	for (uint32_t i = 0; i < w->config.clients; i++) {
		const struct client *c = &w->clients[i];

		CHECK(w, "P3", c->lease != id || w->now >= c->valid_until, "lease %llx ends, client %u believes in it for %llu ms more",
		      (unsigned long long)id, i, (unsigned long long)((c->valid_until - w->now) / SIM_MS));
	}
}

/* After the events of the command that ended it were seen: its keys and locks went with it. */
void check_lease_settled(struct world *w)
{
	lease_id id = w->lease_just_ended;

	if (!id)
		return;
	w->lease_just_ended = 0;
	check_nothing_left(w, id);
	for (uint32_t n = 0; n < w->config.locks; n++)
		for (size_t i = 0; i < w->locks[n].queue.len; i++)
			CHECK(w, "P4", w->locks[n].queue.at[i].lease != id, "lease %llx has ended and still stands in the queue of lock%u",
			      (unsigned long long)id, n);
}

void check_session_kept(struct world *w, lease_id id, int64_t ttl, sim_us stepped_at)
{
	struct lease_info *l = lease_info_get(w, id, false);
	sim_us until = earliest_end(stepped_at, ttl);

	CHECK(w, "P4", l && l->ttl == ttl, "session %llx is said to live with a TTL of %lld", (unsigned long long)id, (long long)ttl);
	if (l->no_end_before < until)
		l->no_end_before = until;
	w->totals.keep_alives++;
	CHECK(w, "P4", !l->ended || l->revoked || l->ended_at >= until, "session %llx is said to live, it had ended before its time", (unsigned long long)id);
}

/* What a renewal or a grant that was answered promises. */
static void promised(struct world *w, const struct op *o, lease_id id, int64_t ttl)
{
	struct lease_info *l = lease_info_get(w, id, true);
	sim_us until = earliest_end(o->stepped_at, ttl);

	CHECK(w, "P4", l->exists || l->ended, "lease %llx was never granted, and is said to live", (unsigned long long)id);
	CHECK(w, "P4", l->ttl == ttl, "lease %llx of %lld s is said to have %lld", (unsigned long long)id, (long long)l->ttl, (long long)ttl);
	if (l->no_end_before < until)
		l->no_end_before = until;
	if (!l->ended)
		return;
	if (l->revoked)
		CHECK(w, "P5", l->ended_at >= o->stepped_at, "lease %llx was revoked %llu ms before the call that is told it lives",
		      (unsigned long long)id, (unsigned long long)((o->stepped_at - l->ended_at) / SIM_MS));
	else
		CHECK(w, "P4", l->ended_at >= until, "lease %llx is said to live, it had ended %llu ms before its time", (unsigned long long)id,
		      (unsigned long long)((until - l->ended_at) / SIM_MS));
}

/* Somebody is told that a lease is gone. */
void check_lease_gone_is_true(struct world *w, const struct op *o)
{
	const struct lease_info *l = lease_info_get(w, o->lease, false);

	CHECK(w, "P4", !l || !l->exists, "%s of client %u is told that lease %llx is gone: it is not", op_names[o->kind], o->client,
	      (unsigned long long)o->lease);
}

void check_lease_answer(struct world *w, struct op *o, enum err e, const struct reply *rep)
{
	switch ((enum op_kind)o->kind) {
	case OP_GRANT:
		if (!e)
			promised(w, o, rep->lease, rep->ttl);
		break;
	case OP_KEEP_ALIVE:
		if (e)
			break;
		w->totals.keep_alives++;
		if (rep->ttl > 0)
			promised(w, o, o->lease, rep->ttl);
		else
			check_lease_gone_is_true(w, o);
		break;
	case OP_TTL:
		if (!e && rep->ttl < 0)
			check_lease_gone_is_true(w, o);
		break;
	default: break;
	}
	if (e == ERR_LEASE_NOT_FOUND || e == ERR_LEASE_ENDED_WAITING)
		check_lease_gone_is_true(w, o);
}

/* A client has just come to believe in its session until valid_until. */
void check_lease_believed(struct client *c)
{
	const struct lease_info *l = lease_info_get(c->w, c->lease, false);

	CHECK(c->w, "P3", l, "client %u believes in lease %llx, which nobody knows", c->id, (unsigned long long)c->lease);
	CHECK(c->w, "P3", !l->ended || l->revoked || c->valid_until <= l->ended_at || c->valid_until <= c->w->now,
	      "client %u believes in lease %llx, which ended %llu ms ago", c->id, (unsigned long long)c->lease,
	      (unsigned long long)((c->w->now - l->ended_at) / SIM_MS));
}
