/* check_end.c: what must become good once nothing is wrong any more.
 *
 *   healed + 6 s    there is one leader, everybody follows it and serves
 *   the end         everybody goes on to work; then clients let go: every call was answered, every lock is free, every lease that nobody kept
 *                   alive has ended, all replicas have applied all and have equal states; and what had to happen in the run did happen */
#include "sim.h"

#include "core/lease/lease.h"
#include "core/member/member.h"

/* Whether a member lives at an address that r knows. One that slept until all others had been replaced, by members at other addresses, has nobody to
 * hear it from; who is new at an old address tells it (M4 in peer_message.c). */
bool check_reaches_a_member(struct world *w, const struct replica *r)
{
	struct tree_cursor cursor;

	for (struct tree_record *t = tree_first(&cursor, &core_state(r->core)->members); t; t = tree_next(&cursor)) {
		uint32_t slot = world_slot_of(w, CONTAINER_OF(t, struct member_record, base)->id);
		const struct replica *o = &w->replicas[slot];

		if (slot != UINT32_MAX && o != r && o->up && !operator_removed(w, o))
			return true;
	}
	return false;
}

/* patient: who lost something of his log may still be fetching it, in many chunks behind others' saves; that ends by the end. */
static void check_leader(struct world *w, bool patient)
{
	uint32_t leaders = 0;
	member_id leader = 0;

	for (uint32_t i = 0; i < w->config.replicas; i++) {
		struct replica *r = &w->replicas[i];

		if (r->wiped) {
			CHECK(w, "P8", r->out, "%s still takes part, with an exchanged disk", r->name);
			continue;
		}
		if (r->absent || operator_removed(w, r)) {
			CHECK(w, "liveness", !r->up || !check_reaches_a_member(w, r), "%s was removed and goes on", r->name);
			continue;
		}
		CHECK(w, "liveness", r->up, "%s is down", r->name);
		if (r->leads) {
			leaders++;
			leader = r->member;
		}
	}
	CHECK(w, "liveness", leaders == 1, "%u leaders, long after everything was healed", leaders);
	for (uint32_t i = 0; i < w->config.replicas; i++) {
		struct core_status s;

		if (w->replicas[i].wiped || !w->replicas[i].up || operator_removed(w, &w->replicas[i]))
			continue;
		core_status(w->replicas[i].core, &s);
		CHECK(w, "liveness", s.leader == leader, "%s follows nobody, or another", w->replicas[i].name);
		CHECK(w, "liveness", s.serving || (patient && s.recovering), "%s does not serve", w->replicas[i].name);
	}
}

static void check_clients(struct world *w)
{
	for (uint32_t i = 0; i < w->config.clients; i++) {
		const struct client *c = &w->clients[i];

		for (unsigned s = 0; s < SLOT_COUNT; s++)
			CHECK(w, "liveness", c->slot[s] == 0, "client %u still waits for its %s, asked at %llu ms", i,
			      op_names[op_get(w, c->slot[s])->kind], (unsigned long long)(op_get(w, c->slot[s])->sent / SIM_MS));
		CHECK(w, "liveness", c->lease == 0, "client %u still has a session", i);
	}
}

/* A lease that a Lock call had made for itself lives for a minute when nobody knows of it. */
static uint32_t long_leases(const struct world *w)
{
	uint32_t n = 0;

	for (size_t i = 0; i < w->leases.len; i++) {
		const struct lease_info *l = &w->leases.at[i];

		n += l->exists && l->ttl >= 60;
		CHECK((struct world *)(uintptr_t)w, "liveness", !l->exists || l->ttl >= 60, "lease %llx of %lld s still lives, nobody keeps it alive",
		      (unsigned long long)l->id, (long long)l->ttl);
	}
	return n;
}

bool check_settled(const struct world *w)
{
	for (uint32_t i = 0; i < w->config.replicas; i++)
		if (!w->replicas[i].wiped && !w->replicas[i].absent && !operator_removed(w, &w->replicas[i]) && (!w->replicas[i].up || core_state(w->replicas[i].core)->applied.index != w->log.len))
			return false;
	return true;
}

static void check_replicas(struct world *w)
{
	const struct state *st = referee_state(w->referee);

	for (uint32_t i = 0; i < w->config.replicas; i++) {
		struct replica *r = &w->replicas[i];
		struct core_status s;

		if (r->wiped || r->absent || operator_removed(w, r))
			continue;
		core_check(r->core);
		core_status(r->core, &s);
		CHECK(w, "liveness", s.applied == st->applied.index, "%s has applied %llu of %llu", r->name, (unsigned long long)s.applied,
		      (unsigned long long)st->applied.index);
		CHECK(w, "P12", !r->disk.part.file, "%s keeps a part of a snapshot at %llu, which nobody needs", r->name,
		      (unsigned long long)r->disk.part.file->id.index);
		CHECK(w, "P10", state_hash(core_state(r->core)) == state_hash(st), "%s ends with another state", r->name);
		CHECK(w, "liveness", s.waiters == 0 && s.pending == 0, "%s still has %llu waiters and %llu calls", r->name, (unsigned long long)s.waiters,
		      (unsigned long long)s.pending);
	}
}

/* A run in which nothing went wrong proves little, nor one in which nobody got anything done: the others have to, and main.c sees to it that such runs are
 * rare. By itself it is no failure. What goes wrong is drawn: for half a minute no majority may be able to do anything, since storms, pauses and
 * crashes follow each other, or ways may be too narrow for the clients there are, so that they give up before it is their turn. That a majority
 * which is able has a leader is checked all the time (check_able.c), and so is that everybody is served in the end. Where members come and go,
 * those who are left may be too few to choose another leader while the last one is away. */
static void note_worth(struct world *w)
{
	struct totals *t = &w->totals;
	bool quiet = t->crashes == 0 || t->elections <= 1 ||
		     (w->config.replicas > 1 && (t->partitions == 0 || (t->leader_changes <= 1 && t->elections <= 3 && t->wipes == 0 && t->changes == 0 && t->losses == 0)));

	if (w->opts.seconds < 40)
		return;
	if (!w->config.calm && quiet)
		t->poor = 1;
	if (t->grants == 0 || t->hand_overs == 0 || t->writes == 0 || t->reads == 0 || t->keep_alives == 0)
		t->poor = 1;
	if (t->poor)
		TRACE(w, "the run proves little: %llu crashes, %llu partitions, %llu elections, %llu changes of the leader, %llu grants, %llu hand-overs, %llu writes, %llu reads, %llu keep-alives",
		      (unsigned long long)t->crashes, (unsigned long long)t->partitions, (unsigned long long)t->elections, (unsigned long long)t->leader_changes,
		      (unsigned long long)t->grants, (unsigned long long)t->hand_overs, (unsigned long long)t->writes, (unsigned long long)t->reads,
		      (unsigned long long)t->keep_alives);
}

/* A session that its client knows nothing of, forgotten in the log, holds writers up for its TTL once there is a leader again, and so maybe until the
 * clients let go. How long any write waits is checked all the time (check_raft.c). */
static bool writes_wait(const struct world *w)
{
	for (uint32_t i = 0; i < w->config.replicas; i++) {
		struct core_status s;

		if (!w->replicas[i].up || !w->replicas[i].leads)
			continue;
		core_status(w->replicas[i].core, &s);
		if (s.gated > 0)
			return true;
	}
	return false;
}

void check_phase(struct world *w, uint64_t phase)
{
	if (phase == PHASE_LEADER_DUE) {
		check_leader(w, true);
		w->writes_at_leader_due = w->totals.writes;
		w->grants_at_leader_due = w->totals.grants;
	}
	if (phase == PHASE_QUIET)
		w->quiet_revision = referee_revision(w->referee);
	if (phase == PHASE_DRAIN) {
		CHECK(w, "liveness", w->totals.writes > w->writes_at_leader_due || w->config.cachers > 0 || w->config.users > 0, "nobody can write, long after everything was healed");
	}
}

void check_end(struct world *w)
{
	uint32_t left = long_leases(w);

	check_leader(w, false);
	CHECK(w, "liveness", w->config.max_waiters < 10 || w->totals.grants > w->grants_at_leader_due || w->config.cachers > 0 || w->config.users > 0, "nobody can lock, long after everything was healed");
	check_clients(w);
	CHECK(w, "P6", !writes_wait(w), "writes still wait for caches that nobody has");
	CHECK(w, "liveness", check_lock_left(w) <= left, "%u contenders are left in queues", check_lock_left(w));
	check_replicas(w);
	check_watch_end(w);
	note_worth(w);
}
