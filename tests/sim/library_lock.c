/* library_lock.c: locks and leaderships of the users of libholdfast's own core: what they ask for, are told, and believe.
 *
 * A user believes in a hold while the library shows a token for it and says, by the user's own clock, that the session is certainly alive: exactly what
 * hf_lock_token() looks at.
 *
 *   (P3) at every instant whoever believes in a hold has it: it is there, held and its own, in the state that the cell has applied. So nobody else's grant is
 *        applied before the holder has been told to stop.
 *   (P1) what is told as granted is a hold of that very session and mode, and is told only while the session is SAFE.
 *   (P9) a hold that was given up and acknowledged is gone, and stays so: nothing that was sent twice, or late, brings it back or takes a later one away.
 *   lost  a hold whose session is over was told lost, with the reason, once.
 *   bound a bounded wait does not end early, nor long after its bound. */
#include "sim.h"

#include "base/pbw.h"
#include "core/wire.h"
#include "etcd/v3election.pb-c.h"
#include "sess.h"

enum { CALL_SLACK_MS = 3000 + 300 }; /* how much longer than its bound the library waits for the cell's word, and how seldom a user thinks */

static bool is_election(const struct world *w, uint32_t lock)
{
	return lock + ELECTIONS_MAX >= w->config.locks && w->config.locks > ELECTIONS_MAX;
}

static bool believes(const struct user *u, const struct user_hold *h)
{
	return h->tag && h->told && !h->unlock_tag && u->core && sess_hold_token(u->core, h->tag) != 0 && sess_remaining_ms(u->core, user_local_ms(u)) > 0;
}

static const struct hold *hold_of(const struct world *w, uint32_t lock, int64_t token)
{
	const struct lock_history *l = &w->locks[lock];

	for (size_t i = l->holds.len; i-- > 0;)
		if (l->holds.at[i].token == token)
			return &l->holds.at[i];
	return NULL;
}

static void check_belief(const struct user *u, const struct user_hold *h)
{
	const struct hold *held;

	if (!believes(u, h))
		return;
	CHECK(u->w, "P2", sess_hold_token(u->core, h->tag) == h->token, "user %u: token %lld becomes %lld", u->id, (long long)h->token,
	      (long long)sess_hold_token(u->core, h->tag));
	held = hold_of(u->w, h->lock, h->token);
	CHECK(u->w, "P3", held && held->gone_at == SIM_NEVER && held->lease == sess_id(u->core),
	      "lock%u: user %u (session %llx) believes for %llu ms more that it holds it with token %lld, which is gone", h->lock, u->id,
	      (unsigned long long)sess_id(u->core), (unsigned long long)sess_remaining_ms(u->core, user_local_ms(u)), (long long)h->token);
}

/* After an entry that changed the lock. */
void check_users_lock(struct world *w, uint32_t lock)
{
	for (uint32_t i = 0; i < w->config.users; i++)
		for (uint32_t k = 0; k < USER_HOLDS_MAX; k++)
			if (w->users[i].holds[k].lock == lock)
				check_belief(&w->users[i], &w->users[i].holds[k]);
}

static bool in_queue(const struct world *w, uint32_t lock, lease_id lease, bool others)
{
	const struct lock_history *l = &w->locks[lock];

	for (size_t i = 0; i < l->queue.len; i++)
		if ((l->queue.at[i].lease == lease) != others)
			return true;
	return false;
}

/* ---- what it asks ---- */

static uint64_t new_tag(struct user *u)
{
	return ++u->next_tag + 4; /* the first few, and how the others are made, are library.c's */
}

static void want(struct user *u, struct user_hold *h)
{
	char name[8];

	*h = (struct user_hold){ .tag = new_tag(u), .lock = (uint32_t)rng_below(&u->rng, u->w->config.locks), .asked_at = u->w->now, .wait_ms = -1 };
	h->mode = !is_election(u->w, h->lock) && h->lock % 2 && rng_chance(&u->rng, 600000) ? LOCK_SHARED : LOCK_EXCLUSIVE;
	switch (rng_below(&u->rng, 4)) {
	case 0: h->wait_ms = 0; break;
	case 1: h->wait_ms = (int64_t)rng_between(&u->rng, 20, 3000); break;
	default: break;
	}
	lock_text(h->lock, name);
	TRACE(u->w, "user %u asks for %s as %llu, mode %u, wait %lld", u->id, name, (unsigned long long)h->tag, h->mode, (long long)h->wait_ms);
	user_ask(u, (struct sess_ask){ .kind = is_election(u->w, h->lock) ? SESS_ASK_CAMPAIGN : SESS_ASK_LOCK, .tag = h->tag, .name = slice_of_str(name),
				       .bytes = slice_of_str("a"), .mode = (enum hf_lock_mode)h->mode, .wait_ms = h->wait_ms, .deadline_ms = SESS_NEVER });
}

static void let_go(struct user *u, struct user_hold *h)
{
	h->unlock_tag = new_tag(u);
	TRACE(u->w, "user %u lets go of lock%u, token %lld", u->id, h->lock, (long long)h->token);
	u->let_go_at = u->w->now;
	user_ask(u, (struct sess_ask){ .kind = SESS_ASK_UNLOCK, .tag = h->unlock_tag, .hold = h->tag,
				       .deadline_ms = user_local_ms(u) + rng_between(&u->rng, 50, 4000) });
}

static void proclaim(struct user *u, struct user_hold *h)
{
	u->proclaim_tag = new_tag(u);
	user_ask(u, (struct sess_ask){ .kind = SESS_ASK_PROCLAIM, .tag = u->proclaim_tag, .hold = h->tag, .bytes = slice_of_str("b"),
				       .deadline_ms = user_local_ms(u) + 3000 });
}

static void observe(struct user *u)
{
	char name[8];

	u->observe_tag = new_tag(u);
	u->observed = -1;
	lock_text(u->observes, name);
	user_ask(u, (struct sess_ask){ .kind = SESS_ASK_OBSERVE, .tag = u->observe_tag, .name = slice_of_str(name), .deadline_ms = SESS_NEVER });
}

static void hold_work(struct user *u, struct user_hold *h)
{
	struct world *w = u->w;
	bool draining = w->phase >= PHASE_DRAIN;

	if (!h->tag) {
		if (!draining && w->now >= h->free_at && rng_chance(&u->rng, 150000) && !does_without(w, PIECE_USER_LOCKS))
			want(u, h);
	} else if (!h->told) {
		CHECK(w, "bounds", h->wait_ms < 0 || h->canceled || u->frozen_until > h->asked_at ||
					   w->now < h->asked_at + (sim_us)(h->wait_ms + CALL_SLACK_MS) * 1000 * (1000000 + PPM_MAX) / 1000000,
		      "user %u was to be answered within %lld ms, and was not", u->id, (long long)h->wait_ms);
		if (!h->canceled && (draining || rng_chance(&u->rng, 10000))) {
			h->canceled = true;
			user_ask(u, (struct sess_ask){ .kind = SESS_ASK_CANCEL, .tag = h->tag });
		}
	} else if (!h->unlock_tag && (h->lost || draining || w->now >= h->until)) {
		let_go(u, h);
	} else if (!h->unlock_tag && is_election(w, h->lock) && !u->proclaim_tag && rng_chance(&u->rng, 50000)) {
		proclaim(u, h);
	}
}

void user_locks_init(struct user *u)
{
	u->observes = UINT32_MAX;
	if (rng_chance(&u->rng, 400000) && u->w->config.locks > ELECTIONS_MAX)
		u->observes = u->w->config.locks - 1 - (uint32_t)rng_below(&u->rng, ELECTIONS_MAX);
}

static int64_t leader_now(const struct world *w, uint32_t lock)
{
	return w->locks[lock].queue.len ? w->locks[lock].queue.at[0].token : 0;
}

void user_locks_work(struct user *u)
{
	if (u->observes != UINT32_MAX && !u->observe_tag && u->w->phase < PHASE_DRAIN && !does_without(u->w, PIECE_USER_OBSERVES))
		observe(u);
	if (u->observes != UINT32_MAX && u->w->now < u->w->drain_at + 4 * SIM_SECOND)
		u->observed_settled = leader_now(u->w, u->observes);
	for (uint32_t i = 0; i < USER_HOLDS_MAX && !u->gone; i++) {
		check_belief(u, &u->holds[i]);
		hold_work(u, &u->holds[i]);
	}
}

/* ---- what it is told ---- */

static void granted(struct user *u, struct user_hold *h)
{
	const struct hold *held;

	h->told = true;
	h->token = sess_hold_token(u->core, h->tag);
	h->until = u->w->now + (rng_chance(&u->rng, 50000) ? 20 * SIM_SECOND : rng_between(&u->rng, 5 * SIM_MS, 1200 * SIM_MS));
	held = hold_of(u->w, h->lock, h->token);
	CHECK(u->w, "P1", held && held->lease == sess_id(u->core) && held->mode == h->mode, "lock%u: user %u is told that it holds with token %lld, which it never did",
	      h->lock, u->id, (long long)h->token);
	CHECK(u->w, "P3", sess_state(u->core) == HF_SAFE, "user %u is told of a grant while its session is not safe", u->id);
	TRACE(u->w, "user %u holds lock%u with token %lld (session %llx)", u->id, h->lock, (long long)h->token, (unsigned long long)sess_id(u->core));
	check_belief(u, h);
	u->w->totals.library_grants++;
}

static void refused(struct user *u, struct user_hold *h, const struct sess_out *o)
{
	enum hf_code code = o->code;
	const struct lock_history *l = &u->w->locks[h->lock];
	bool other = in_queue(u->w, h->lock, sess_id(u->core), true);

	for (size_t i = 0; i < 2; i++)
		other |= l->gone[i].lease && l->gone[i].lease != sess_id(u->core) && l->gone[i].at >= h->asked_at;
	TRACE(u->w, "user %u does not hold lock%u as %llu: code %d", u->id, h->lock, (unsigned long long)h->tag, (int)code);
	CHECK(u->w, "P5", code != HF_HELD || other, "lock%u: user %u is told that it is held: nobody else was there", h->lock, u->id);
	if (code == HF_TIMEOUT)
		CHECK(u->w, "bounds", h->wait_ms >= 0 && u->w->now + 4 * SIM_MS >= h->asked_at + (sim_us)h->wait_ms * 1000 * 1000000 / (1000000 + PPM_MAX),
		      "user %u is told after %llu ms that %lld ms are over", u->id, (unsigned long long)((u->w->now - h->asked_at) / SIM_MS), (long long)h->wait_ms);
	CHECK(u->w, "P1", code == HF_HELD || code == HF_TIMEOUT || code == HF_CANCELED || code == HF_BUSY || code == HF_SESSION_LOST,
	      "lock%u: user %u is refused it with code %d: %.*s", h->lock, u->id, (int)code, (int)o->text.len, (const char *)o->text.ptr);
	*h = (struct user_hold){ .free_at = u->w->now };
}

static void given_up(struct user *u, struct user_hold *h, enum hf_code code)
{
	const struct hold *held = hold_of(u->w, h->lock, h->token);

	CHECK(u->w, "P9", code == HF_OK || code == HF_TIMEOUT || code == HF_SESSION_LOST, "user %u cannot give lock%u up: %d", u->id, h->lock, (int)code);
	CHECK(u->w, "P9", code != HF_OK || !held || held->gone_at != SIM_NEVER, "lock%u: user %u is told that it has given token %lld up, which is still there",
	      h->lock, u->id, (long long)h->token);
	*h = (struct user_hold){ .free_at = u->w->now };
}

bool user_locks_answer(struct user *u, const struct sess_out *o)
{
	if (o->tag == u->proclaim_tag) {
		u->proclaim_tag = 0;
		return true;
	}
	for (uint32_t i = 0; i < USER_HOLDS_MAX; i++) {
		struct user_hold *h = &u->holds[i];

		if (h->tag && h->tag == o->tag && !h->told) {
			if (o->code == HF_OK)
				granted(u, h);
			else
				refused(u, h, o);
			return true;
		}
		if (h->unlock_tag && h->unlock_tag == o->tag) {
			given_up(u, h, o->code);
			return true;
		}
	}
	return false;
}

void user_locks_lost(struct user *u, const struct sess_out *o)
{
	for (uint32_t i = 0; i < USER_HOLDS_MAX; i++) {
		struct user_hold *h = &u->holds[i];

		if (!h->tag || h->tag != o->tag)
			continue;
		CHECK(u->w, "lost", h->told && !h->lost && o->reason != HF_REASON_NONE && o->reason != HF_REASON_BROKEN, "user %u is told that it has lost lock%u, reason %d",
		      u->id, h->lock, (int)o->reason);
		CHECK(u->w, "lost", sess_hold_token(u->core, h->tag) == 0, "user %u has lost lock%u, and still has its token", u->id, h->lock);
		h->lost = true;
		u->w->totals.library_lost++;
	}
}

/* Each leader is told with its key, later ones after earlier ones. */
void user_locks_told(struct user *u, const struct sess_out *o)
{
	V3electionpb__LeaderResponse *r;
	int64_t token;

	if (o->tag != u->observe_tag)
		return;
	if (o->code != HF_OK && o->code != HF_NOT_FOUND) {
		u->observe_tag = 0;
		return;
	}
	r = v3electionpb__leader_response__unpack(NULL, o->bytes.len, o->bytes.ptr);
	CHECK(u->w, "P7", r, "a word about a leader that is none");
	token = r->kv && !r->vacant ? r->kv->create_revision : 0;
	v3electionpb__leader_response__free_unpacked(r, NULL);
	CHECK(u->w, "P7", token == 0 || hold_of(u->w, u->observes, token), "user %u is told of a leader with token %lld, who never led", u->id, (long long)token);
	CHECK(u->w, "P7", token == 0 || u->observed <= 0 || token >= u->observed, "user %u is told of the leader with token %lld after that with %lld", u->id,
	      (long long)token, (long long)u->observed);
	TRACE(u->w, "user %u observes lock%u: token %lld", u->id, u->observes, (long long)token);
	u->observed = token;
	u->w->totals.library_leaders++;
}

void user_locks_over(struct user *u)
{
	for (uint32_t i = 0; i < USER_HOLDS_MAX; i++) {
		struct user_hold *h = &u->holds[i];

		CHECK(u->w, "lost", !h->tag || !h->told || h->lost || h->unlock_tag, "user %u's session is over, and nobody told it that lock%u is lost", u->id, h->lock);
		*h = (struct user_hold){ .free_at = u->w->now + SIM_SECOND };
	}
	u->observe_tag = u->proclaim_tag = 0;
}

/* Before it leaves, long after everything was healed and it let go of all. */
void user_locks_check_end(struct user *u)
{
	const struct world *w = u->w;

	if (sess_state(u->core) != HF_SAFE || w->now < u->let_go_at + 5 * SIM_SECOND)
		return;
	if (u->observe_tag && leader_now(w, u->observes) == u->observed_settled)
		CHECK(u->w, "P7", u->observed == u->observed_settled, "user %u observes lock%u and was last told token %lld, it is %lld", u->id, u->observes,
		      (long long)u->observed, (long long)u->observed_settled);
	for (uint32_t i = 0; i < USER_HOLDS_MAX; i++)
		CHECK(u->w, "liveness", !u->holds[i].tag, "user %u still waits for an answer about lock%u", u->id, u->holds[i].lock);
	for (uint32_t n = 0; n < w->config.locks; n++)
		CHECK(u->w, "P9", !in_queue(w, n, sess_id(u->core), false), "user %u (session %llx) wants nothing any more, and is still in the queue of lock%u", u->id,
		      (unsigned long long)sess_id(u->core), n);
}
