/* check_able.c: while things go wrong: a majority that could have a leader has one before long.
 *
 * A majority is able when its replicas run, their disks write, they have heard of the members there are, and every one of them reaches every other, both
 * ways and at the usual pace. Whatever the others do meanwhile (stop, crash, hear nothing and call for elections, are reached one way only), these are
 * enough: a former leader notices within an election timeout that it is followed no more, others go to the polls within two, and one that does not belong
 * cannot push them out of the way (pre-vote). Up to one packet in sixteen is lost among them all the same, and two may ask at once, so an election may
 * have to be held again; of 700 runs in which everything goes wrong the longest took 4 s, and each half second more is half as frequent. */
#include "sim.h"

#include "core/member/member.h"

#define LOOK_EVERY (100 * SIM_MS)
#define LEADER_WITHIN (10 * SIM_SECOND)

/* The voters there are, as bits; of one that no slot has for a member there is none. */
static uint32_t voters(const struct world *w, uint32_t *ret_quorum)
{
	struct tree_cursor cursor;
	uint32_t n = 0, bits = 0;

	for (struct tree_record *t = tree_first(&cursor, &referee_state(w->referee)->members); t; t = tree_next(&cursor)) {
		const struct member_record *m = CONTAINER_OF(t, struct member_record, base);
		uint32_t slot = world_slot_of(w, m->id);

		n += member_counts(m);
		if (member_counts(m) && slot != UINT32_MAX && w->replicas[slot].member == m->id)
			bits |= 1u << slot;
	}
	*ret_quorum = n / 2 + 1;
	return bits;
}

/* Whether it knows the members there are. */
static bool knows_members(const struct world *w, const struct replica *r)
{
	const struct state *all = referee_state(w->referee);
	size_t n = 0;

	for (size_t i = 0; i < r->config_len; i++) {
		const struct member_record *m = member_find(all, r->config[i].id);

		n += m && member_counts(m) == !r->config[i].learner;
	}
	return n == r->config_len && n == all->members.len;
}

static bool is_fit(const struct world *w, const struct replica *r)
{
	return replica_runs(r) && !r->pause_next && !r->holding && !r->wiped && !r->out && r->disk.stall_until <= w->now && r->disk.lost.index == 0 && knows_members(w, r);
}

static bool reach_each_other(const struct world *w, uint32_t a, uint32_t b)
{
	const struct link *there = &w->links[a][b], *back = &w->links[b][a];

	return there->blocked_until <= w->now && back->blocked_until <= w->now && there->slow_until <= w->now && back->slow_until <= w->now;
}

static bool is_able(const struct world *w, uint32_t bits)
{
	for (uint32_t a = 0; a < w->config.replicas; a++)
		for (uint32_t b = 0; b < a; b++)
			if ((bits >> a & 1) && (bits >> b & 1) && !reach_each_other(w, a, b))
				return false;
	return true;
}

/* One that speaks and hears no answer, or is not heard, leads nobody. */
static bool is_led(const struct world *w)
{
	uint32_t quorum, bits = voters(w, &quorum);

	for (uint32_t i = 0; i < w->config.replicas; i++) {
		uint32_t n = 0;

		for (uint32_t k = 0; k < w->config.replicas; k++)
			n += (bits >> k & 1) && w->links[i][k].blocked_until <= w->now && w->links[k][i].blocked_until <= w->now;
		if (w->replicas[i].leads && replica_runs(&w->replicas[i]) && n >= quorum)
			return true;
	}
	return false;
}

/* Since when, of those that are able now, some have been. */
static sim_us able_since(struct world *w)
{
	uint32_t quorum, bits = voters(w, &quorum), fit = 0;
	sim_us first = SIM_NEVER;

	for (uint32_t i = 0; i < w->config.replicas && w->now >= w->storm_until; i++)
		if ((bits >> i & 1) && is_fit(w, &w->replicas[i]))
			fit |= 1u << i;
	for (uint32_t some = 1; some < 1u << w->config.replicas; some++) {
		sim_us *since = &w->able.since[some];

		if ((some & ~fit) || (uint32_t)__builtin_popcount(some) < quorum || !is_able(w, some))
			*since = SIM_NEVER;
		else if (*since == SIM_NEVER || *since == 0)
			*since = w->now;
		first = *since < first ? *since : first;
	}
	return first;
}

bool able_without(const struct world *w, const struct replica *r)
{
	uint32_t quorum, bits = voters(w, &quorum), n = 0;

	for (uint32_t i = 0; i < w->config.replicas; i++) {
		const struct replica *o = &w->replicas[i];

		n += (bits >> i & 1) && o != r && !o->wiped && o->disk.lost.index == 0 && knows_members(w, o);
	}
	return n >= quorum;
}

void check_able(struct world *w)
{
	sim_us since = able_since(w);

	if (is_led(w))
		w->able.led_at = w->now;
	if (since != SIM_NEVER) {
		sim_us alone = w->now - (since > w->able.led_at ? since : w->able.led_at);

		CHECK(w, "liveness", alone <= LEADER_WITHIN, "a majority of voters reach each other, and have had no leader for %llu ms", (unsigned long long)(alone / SIM_MS));
	}
	sim_at(w, w->now + LOOK_EVERY, (struct ev){ .kind = EV_LOOK });
}
