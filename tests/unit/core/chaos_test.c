/* chaos_test.c: small cells under everything at once, from a seed. The law and a few promises are checked every millisecond:
 *
 *   P1, P3  no two clients believe at one time that they hold one lock. A client believes from the answer to its Lock until it asks to unlock
 *           or its session's clock, counted from the sending of what was answered last, has run out.
 *   P2      tokens told for one lock rise with the log: a later hold has a higher one.
 *   P4      the lease of a client that believes its session alive exists.
 *   P5      a read that starts after a write was acknowledged sees it or a later one.
 *   P8, P9  a write that was acknowledged is there; none is there twice (each key is written once: its version is 1).
 * mini_cell compares states (P10). In the end all is healed, and nothing may be left over: no call, no waiter, no contender, no lease. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "etcd/rpc.pb-c.h"
#include "support/mini_cell.h"
#include "support/scale.h"

enum { CLIENTS = 8, LOCKS = 3, TTL_S = 4, STORY_MS = 40000 };

enum what { NOTHING, WAITING, HOLDING, UNLOCKING };

struct client {
	size_t at;             /* the replica it talks to */
	lease_id lease;        /* 0: none yet */
	uint64_t grant, alive, lock, unlock; /* calls under way */
	time_ms grant_sent, alive_sent;
	time_ms good_until;    /* its session's own clock */
	enum what what;
	size_t name;
	revision token;
	uint64_t put, put_number;
	uint64_t read;
	revision read_floor;
};

struct story {
	struct mini_cell *m;
	struct rng rng;
	size_t replicas;
	struct client clients[CLIENTS];
	revision best_token[LOCKS];
	lease_id next_lease;
	uint64_t next_put, written, write_tag;
	revision acked;
	struct map64 acked_puts;
	bool down[MINI_REPLICAS_MAX], isolated[MINI_REPLICAS_MAX], paused[MINI_REPLICAS_MAX];
	uint64_t grants;
	raft_index applied; /* the highest seen */
};

static bool alive(const struct story *s, const struct client *c)
{
	return c->lease != 0 && mini_now(s->m) < c->good_until;
}

static bool usable(const struct story *s, size_t i)
{
	return !s->down[i] && !s->paused[i];
}

static const char *lock_name(size_t i)
{
	static const char *const names[LOCKS] = { "a", "a/b", "c" };

	return names[i];
}

/* ---- what clients do ---- */

static void forget_session(struct client *c)
{
	size_t at = c->at;

	memset(c, 0, sizeof *c);
	c->at = at;
}

static void move_away(struct story *s, struct client *c)
{
	c->at = (size_t)rng_below(&s->rng, s->replicas);
	c->grant = c->alive = c->put = c->read = c->unlock = 0;
	if (c->what == WAITING)
		c->what = NOTHING;
	if (c->what == UNLOCKING)
		c->what = NOTHING; /* it does not hold any more for all it knows */
	c->lock = 0;
}

static void session_answers(struct story *s, struct client *c)
{
	const struct mini_answer *a = c->grant ? mini_answer(s->m, c->grant) : NULL;

	if (a) {
		c->grant = 0;
		if (a->err == ERR_OK)
			c->good_until = c->grant_sent + TTL_S * 1000;
		else
			c->lease = 0;
	}
	a = c->alive ? mini_answer(s->m, c->alive) : NULL;
	if (!a)
		return;
	c->alive = 0;
	if (a->err)
		return;
	if (mini_ttl(a) == 0) {
		ck_assert_msg(!alive(s, c), "lease %llx declared gone early", (unsigned long long)c->lease); /* P4 */
		forget_session(c);
	} else if (c->alive_sent + TTL_S * 1000 > c->good_until) {
		c->good_until = c->alive_sent + TTL_S * 1000;
	}
}

static void lock_answers(struct story *s, struct client *c)
{
	const struct mini_answer *a = c->lock ? mini_answer(s->m, c->lock) : NULL;

	if (a) {
		c->lock = 0;
		c->what = NOTHING;
		if (a->err == ERR_OK && alive(s, c)) {
			c->what = HOLDING;
			c->token = mini_token(a);
			s->grants++;
		}
	}
	a = c->unlock ? mini_answer(s->m, c->unlock) : NULL;
	if (a) {
		c->unlock = 0;
		c->what = NOTHING;
	}
}

/* Writes of one key whose answers were lost may be carried out late, so what is compared is when a value was written. */
static revision written_at(const struct mini_answer *a)
{
	Etcdserverpb__RangeResponse *r = etcdserverpb__range_response__unpack(NULL, a->reply.len, a->reply.ptr);
	revision rev;

	ck_assert_ptr_nonnull(r);
	rev = r->n_kvs ? r->kvs[0]->mod_revision : 0;
	etcdserverpb__range_response__free_unpacked(r, NULL);
	return rev;
}

static revision put_at(const struct mini_answer *a)
{
	Etcdserverpb__PutResponse *r = etcdserverpb__put_response__unpack(NULL, a->reply.len, a->reply.ptr);
	revision rev;

	ck_assert_ptr_nonnull(r);
	rev = r->header->revision;
	etcdserverpb__put_response__free_unpacked(r, NULL);
	return rev;
}

static void other_answers(struct story *s, struct client *c)
{
	const struct mini_answer *a = c->put ? mini_answer(s->m, c->put) : NULL;

	if (a) {
		if (a->err == ERR_OK)
			map64_put(&s->acked_puts, c->put_number, s);
		c->put = 0;
	}
	a = c->read ? mini_answer(s->m, c->read) : NULL;
	if (a) {
		if (a->err == ERR_OK)
			ck_assert_int_ge(written_at(a), c->read_floor); /* P5 */
		c->read = 0;
	}
	a = s->write_tag ? mini_answer(s->m, s->write_tag) : NULL;
	if (a) {
		if (a->err == ERR_OK)
			s->acked = put_at(a);
		s->write_tag = 0;
	}
}

static void begin_session(struct story *s, struct client *c)
{
	forget_session(c);
	c->lease = ++s->next_lease;
	c->grant_sent = mini_now(s->m);
	c->grant = mini_grant(s->m, c->at, c->lease, TTL_S);
}

static void lock_something(struct story *s, struct client *c)
{
	c->name = (size_t)rng_below(&s->rng, LOCKS);
	c->what = WAITING;
	switch (rng_below(&s->rng, 4)) {
	case 0:
		c->lock = mini_lock_bounded(s->m, c->at, lock_name(c->name), c->lease, LOCK_EXCLUSIVE, (int64_t)rng_below(&s->rng, 1500));
		break;
	default:
		c->lock = mini_lock(s->m, c->at, lock_name(c->name), c->lease);
		break;
	}
}

static void unlock(struct story *s, struct client *c)
{
	char key[64];

	snprintf(key, sizeof key, "%s/%llx", lock_name(c->name), (unsigned long long)c->lease);
	c->what = UNLOCKING;
	c->unlock = mini_unlock(s->m, c->at, key);
}

static void put_once(struct story *s, struct client *c)
{
	char key[32];

	c->put_number = ++s->next_put;
	snprintf(key, sizeof key, "once%llu", (unsigned long long)c->put_number);
	c->put = mini_put(s->m, c->at, key, "v", 0);
}

static void write_number(struct story *s, struct client *c)
{
	char value[32];

	snprintf(value, sizeof value, "%llu", (unsigned long long)++s->written);
	s->write_tag = mini_put(s->m, c->at, "n", value, 0);
}

static void act(struct story *s, struct client *c)
{
	if (c->lease == 0 || (!c->grant && !alive(s, c))) {
		begin_session(s, c);
		return;
	}
	if (c->grant)
		return;
	if (!c->alive && c->good_until - mini_now(s->m) < TTL_S * 700) {
		c->alive_sent = mini_now(s->m);
		c->alive = mini_keep_alive(s->m, c->at, c->lease);
		return;
	}
	if (c->what == NOTHING && rng_chance(&s->rng, 300000))
		lock_something(s, c);
	else if (c->what == HOLDING && rng_chance(&s->rng, 300000))
		unlock(s, c);
	else if (c->what == WAITING && c->lock && rng_chance(&s->rng, 30000)) {
		mini_cancel(s->m, c->at, c->lock);
		c->what = NOTHING;
		c->lock = 0;
	} else if (!c->put && rng_chance(&s->rng, 200000))
		put_once(s, c);
	else if (!c->read && rng_chance(&s->rng, 200000)) {
		c->read_floor = s->acked;
		c->read = mini_get(s->m, c->at, "n", false);
	} else if (!s->write_tag && rng_chance(&s->rng, 100000))
		write_number(s, c);
}

/* ---- the law ---- */

static void check_law(struct story *s)
{
	size_t best = s->replicas;
	raft_index applied = 0;

	for (size_t n = 0; n < LOCKS; n++) {
		const struct client *holder = NULL;

		for (size_t i = 0; i < CLIENTS; i++) {
			const struct client *c = &s->clients[i];

			if (c->what != HOLDING || c->name != n || !alive(s, c))
				continue;
			ck_assert_msg(!holder, "two holders of %s", lock_name(n)); /* P1 */
			holder = c;
			ck_assert_int_ge(c->token, s->best_token[n]); /* P2 */
			s->best_token[n] = c->token;
		}
	}
	for (size_t i = 0; i < s->replicas; i++)
		if (!s->down[i] && core_state(mini_core(s->m, i))->applied.index > applied) {
			best = i;
			applied = core_state(mini_core(s->m, i))->applied.index;
		}
	if (best == s->replicas || applied < s->applied) /* a restarted replica still replays */
		return;
	s->applied = applied;
	for (size_t i = 0; i < CLIENTS; i++) { /* P4: where most is applied, what was answered is applied */
		const struct client *c = &s->clients[i];
		uint8_t key[8];

		if (!alive(s, c) || s->isolated[best])
			continue;
		for (unsigned b = 0; b < 8; b++)
			key[b] = (uint8_t)((uint64_t)c->lease >> (56 - 8 * b));
		for (size_t k = 0; k < s->replicas; k++)
			if (s->down[k] || s->isolated[k] || s->paused[k])
				goto next; /* another may have applied more */
		ck_assert_msg(tree_get(&core_state(mini_core(s->m, best))->leases, slice_of(key, 8)) != NULL,
			      "lease %llx ended early", (unsigned long long)c->lease);
next:;
	}
}

/* ---- mishaps ---- */

static void client_tick(struct story *s, bool acting)
{
	for (size_t i = 0; i < CLIENTS; i++) {
		struct client *c = &s->clients[i];

		session_answers(s, c);
		lock_answers(s, c);
		other_answers(s, c);
		if (acting && usable(s, c->at) && mini_now(s->m) % 10 == i)
			act(s, c);
		else if (acting && s->down[c->at])
			move_away(s, c);
	}
}

static size_t count_down(const struct story *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->replicas; i++)
		n += s->down[i];
	return n;
}

static void crash(struct story *s, size_t i)
{
	mini_crash(s->m, i);
	s->down[i] = true;
	s->paused[i] = false;
	/* Calls of that replica will never be answered. */
	for (size_t k = 0; k < CLIENTS; k++)
		if (s->clients[k].at == i)
			move_away(s, &s->clients[k]);
	s->write_tag = 0; /* it may have been there */
}

static void mishap(struct story *s)
{
	size_t i = (size_t)rng_below(&s->rng, s->replicas);

	switch (rng_below(&s->rng, 8)) {
	case 0:
		if (!s->down[i] && count_down(s) < s->replicas)
			crash(s, i);
		break;
	case 1:
	case 2:
		if (s->down[i]) {
			mini_restart(s->m, i);
			s->down[i] = false;
		}
		break;
	case 3:
		s->isolated[i] = !s->isolated[i];
		mini_isolate(s->m, i, s->isolated[i]);
		break;
	case 4:
		if (!s->down[i]) {
			s->paused[i] = !s->paused[i];
			mini_pause(s->m, i, s->paused[i]);
		}
		break;
	case 5:
		mini_loss(s->m, (uint32_t)rng_below(&s->rng, 300000), (uint32_t)rng_below(&s->rng, 200000));
		break;
	case 6:
		mini_loss(s->m, 0, 0);
		break;
	default: {
		size_t k = (size_t)rng_below(&s->rng, s->replicas);

		if (k != i)
			mini_cut(s->m, i, k, rng_chance(&s->rng, 500000));
		break;
	}
	}
}

static void heal(struct story *s)
{
	mini_loss(s->m, 0, 0);
	for (size_t i = 0; i < s->replicas; i++) {
		if (s->down[i])
			mini_restart(s->m, i);
		if (s->paused[i])
			mini_pause(s->m, i, false);
		mini_isolate(s->m, i, false);
		for (size_t k = 0; k < s->replicas; k++)
			mini_cut(s->m, i, k, false);
		s->down[i] = s->paused[i] = s->isolated[i] = false;
	}
}

/* ---- the end ---- */

static void check_puts(struct story *s, size_t i)
{
	for (uint64_t n = 1; n <= s->next_put; n++) {
		char key[32];
		const struct tree_record *r;
		const struct key_record *rec;

		snprintf(key, sizeof key, "once%llu", (unsigned long long)n);
		r = tree_get(&core_state(mini_core(s->m, i))->keys, slice_of_str(key));
		if (!r) {
			ck_assert_msg(map64_get(&s->acked_puts, n) == NULL, "acknowledged put %s is lost", key); /* P8 */
			continue;
		}
		rec = CONTAINER_OF(r, const struct key_record, base);
		ck_assert_int_eq((rec->cap == 0 ? rec->one : rec->versions[rec->len - 1])->version, 1);
	}
}

static void check_nothing_left(struct story *s)
{
	raft_index applied = core_state(mini_core(s->m, 0))->applied.index;

	for (size_t i = 0; i < s->replicas; i++) {
		struct core_status st;

		core_status(mini_core(s->m, i), &st);
		ck_assert_uint_eq(st.pending, 0);
		ck_assert_uint_eq(st.waiters, 0);
		ck_assert_uint_eq(st.leases, 0);
		ck_assert_uint_eq(st.applied, applied);
		ck_assert_uint_eq(core_state(mini_core(s->m, i))->contenders.len, 0);
		check_puts(s, i);
	}
}

static void run_story(uint64_t seed, size_t replicas)
{
	struct story s = { .replicas = replicas, .next_lease = 100 };
	bool calm = seed % 5 == 0;

	rng_init(&s.rng, seed);
	s.m = mini_new(&(struct mini_options){ .replicas = replicas,
					       .seed = seed,
					       .disk_ms = (uint32_t)rng_below(&s.rng, 8),
					       .net_ms = (uint32_t)rng_below(&s.rng, 20),
					       .check_every = 53,
					       .snapshot_count = 20 + rng_below(&s.rng, 200),
					       .snapshot_keep = rng_below(&s.rng, 20) });
	for (size_t i = 0; i < CLIENTS; i++)
		s.clients[i].at = i % replicas;
	for (unsigned t = 0; t < STORY_MS; t++) {
		mini_run(s.m, 1);
		client_tick(&s, true);
		check_law(&s);
		if (rng_below(&s.rng, calm ? 5000 : 700) == 0)
			mishap(&s);
	}
	heal(&s);
	for (unsigned t = 0; t < 20000; t++) {
		mini_run(s.m, 1);
		client_tick(&s, false);
		check_law(&s);
	}
	ck_assert_uint_lt(mini_leader(s.m), replicas);
	check_nothing_left(&s);
	if (getenv("CHAOS_VERBOSE"))
		printf("seed %llu: %llu grants, %llu puts\n", (unsigned long long)seed, (unsigned long long)s.grants,
		       (unsigned long long)s.next_put);
	map64_deinit(&s.acked_puts);
	mini_free(s.m);
}

START_TEST(chaos__three_replicas)
{
	run_story((uint64_t)_i + 1, 3);
}
END_TEST

START_TEST(chaos__five_replicas)
{
	run_story((uint64_t)_i + 1001, 5);
}
END_TEST

START_TEST(chaos__one_replica)
{
	run_story((uint64_t)_i + 2001, 1);
}
END_TEST

int main(void)
{
	const char *env = getenv("CHAOS_SEEDS"), *from = getenv("CHAOS_FROM");
	int seeds = env ? atoi(env) : (int)test_scaled(12), first = from ? atoi(from) : 0;
	Suite *s = suite_create("chaos");
	TCase *t = tcase_create("chaos");
	SRunner *sr;
	int failed;

	tcase_add_loop_test(t, chaos__three_replicas, first, first + seeds);
	tcase_add_loop_test(t, chaos__five_replicas, first, first + (seeds + 1) / 2);
	tcase_add_loop_test(t, chaos__one_replica, first, first + (seeds + 1) / 2);
	tcase_set_timeout(t, 120);
	suite_add_tcase(s, t);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
