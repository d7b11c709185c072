/* locks_model_test.c: the index of contenders does, at random, what a list of keys that is searched from end to end would do. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "fixture.h"
#include "support/scale.h"

enum { NAMES = 3, LEASES = 9, KEYS = NAMES * LEASES * 2, STEPS = 3000, SEEDS = 20 };

/* Every key there may be: of each name and lease, in hex and in decimal (which differ from lease 10 on). */
struct model_key {
	char text[32];
	size_t name;     /* index of the name that the key's bytes speak of */
	lease_id spoken; /* the lease that they speak of */
	bool live, contends, shared, told;
	lease_id lease;
	revision create_revision;
};

struct world {
	struct rng rng;
	struct fixture f;
	struct model_key keys[KEYS];
};

static const char *const names[NAMES] = { "a", "a/b", "" };

static bool same_lock(const struct model_key *a, const struct model_key *b)
{
	return a->contends && b->contends && a->name == b->name;
}

static bool model_is_held(const struct world *w, const struct model_key *k)
{
	for (size_t i = 0; i < KEYS; i++) {
		const struct model_key *o = &w->keys[i];

		if (same_lock(o, k) && o->create_revision < k->create_revision && !(k->shared && o->shared))
			return false;
	}
	return true;
}

static struct slice key_slice(const struct model_key *k)
{
	return slice_of_str(k->text);
}

static void model_created(struct world *w, struct model_key *k, lease_id lease, bool shared)
{
	k->live = true;
	k->told = false;
	k->lease = lease;
	k->contends = lease == k->spoken;
	k->shared = shared && k->contends;
	k->create_revision = w->f.in_txn ? store_txn_revision(w->f.store) : w->f.state.revision;
}

static void do_put(struct world *w, struct model_key *k)
{
	lease_id lease = rng_below(&w->rng, 4) == 0 ? (lease_id)rng_below(&w->rng, 20) : k->spoken;
	enum err e = fixture_put(&w->f, key_slice(k), lease), want = ERR_OK;

	if (k->live && k->contends && lease != k->lease)
		want = ERR_CONTENDER_LEASE;
	else if (k->live && !k->contends && lease == k->spoken)
		want = ERR_CONTENDER_EXISTING_KEY;
	ck_assert_int_eq(e, want);
	if (e)
		return;
	if (!k->live)
		model_created(w, k, lease, false);
	k->lease = lease;
}

static void do_lock(struct world *w, struct model_key *k)
{
	struct lock_attributes a = { .mode = rng_below(&w->rng, 2) ? LOCK_SHARED : LOCK_EXCLUSIVE, .call = { 1, 1, rng_next(&w->rng) } };
	enum err e, want = ERR_OK;
	struct buf key = { 0 };
	bool hex;

	lock_key(slice_of_str(names[k->name]), k->spoken, &key);
	hex = slice_eq(buf_view(&key), key_slice(k));
	buf_free(&key);
	if (!hex)
		return;
	e = fixture_lock(&w->f, slice_of_str(names[k->name]), k->spoken, &a);
	if (k->live && !k->contends)
		want = ERR_CONTENDER_EXISTING_KEY;
	else if (k->live && k->shared != (a.mode == LOCK_SHARED))
		want = ERR_LOCK_MODE_CHANGED;
	ck_assert_int_eq(e, want);
	if (e)
		return;
	if (!k->live)
		model_created(w, k, k->spoken, a.mode == LOCK_SHARED);
	ck_assert_uint_eq(fixture_find(&w->f, key_slice(k))->call.call, a.call.call);
}

static void do_delete(struct world *w, struct model_key *k)
{
	ck_assert(fixture_delete(&w->f, key_slice(k)) == k->live);
	k->live = k->contends = false;
}

static struct model_key *model_find(struct world *w, const struct contender *c)
{
	for (size_t i = 0; i < KEYS; i++)
		if (slice_eq(key_slice(&w->keys[i]), contender_key(c)))
			return &w->keys[i];
	ck_abort_msg("unknown key");
	return NULL;
}

/* Everything that is held and was not told yet is told now, and nothing else. */
static void do_take(struct world *w)
{
	const struct contender *got[KEYS];
	size_t max = 1 + (size_t)rng_below(&w->rng, KEYS), n;

	do {
		n = lock_take_granted(w->f.locks, got, max);
		for (size_t i = 0; i < n; i++) {
			struct model_key *k = model_find(w, got[i]);

			ck_assert(k->contends && !k->told);
			ck_assert(model_is_held(w, k));
			k->told = true;
		}
	} while (n == max);
	for (size_t i = 0; i < KEYS; i++)
		if (w->keys[i].contends)
			ck_assert_int_eq(w->keys[i].told, model_is_held(w, &w->keys[i]));
}

/* Several leases end in one command: many keys at one revision. */
static void do_end_many(struct world *w)
{
	fixture_txn_begin(&w->f);
	for (size_t i = 0; i < KEYS; i++)
		if (rng_below(&w->rng, 4) == 0)
			do_delete(w, &w->keys[i]);
	fixture_txn_end(&w->f);
}

static void do_reload(struct world *w)
{
	do_take(w);
	fixture_reload(&w->f);
}

static void check_key(struct world *w, const struct model_key *k, uint64_t *waiters)
{
	const struct contender *c = fixture_find(&w->f, key_slice(k)), *for_whom, *previous;
	const struct model_key *want_previous = NULL, *want_for = NULL;

	ck_assert((c != NULL) == (k->live && k->contends));
	if (!c)
		return;
	for (size_t i = 0; i < KEYS; i++) {
		const struct model_key *o = &w->keys[i];

		if (!same_lock(o, k) || o->create_revision >= k->create_revision)
			continue;
		if (!want_previous || o->create_revision > want_previous->create_revision)
			want_previous = o;
		if (!(k->shared && o->shared) && (!want_for || o->create_revision > want_for->create_revision))
			want_for = o;
	}
	previous = lock_previous(w->f.locks, c);
	for_whom = lock_waits_for(w->f.locks, c);
	ck_assert(want_previous ? previous && model_find(w, previous) == want_previous : !previous);
	ck_assert(want_for ? for_whom && model_find(w, for_whom) == want_for : !for_whom);
	ck_assert_int_eq(lock_is_held(w->f.locks, c), model_is_held(w, k));
	ck_assert_int_eq(c->create_revision, k->create_revision);
	ck_assert_int_eq(c->mode, k->shared ? LOCK_SHARED : LOCK_EXCLUSIVE);
	waiters[k->name] += !model_is_held(w, k);
}

static void check(struct world *w)
{
	uint64_t waiters[NAMES] = { 0 };

	locks_check(w->f.locks);
	for (size_t i = 0; i < KEYS; i++)
		check_key(w, &w->keys[i], waiters);
	for (size_t i = 0; i < NAMES; i++) {
		struct slice name = slice_of_str(names[i]);
		revision last = 0;

		ck_assert_uint_eq(lock_waiters(w->f.locks, name), waiters[i]);
		for (const struct contender *c = NULL; (c = lock_next(w->f.locks, name, c)); last = c->create_revision)
			ck_assert_int_gt(c->create_revision, last);
	}
}

START_TEST(locks_model__does_what_a_list_would_do)
{
	static void (*const steps[])(struct world *, struct model_key *) = { do_put, do_put, do_lock, do_lock, do_lock, do_delete, do_delete };
	struct world *w = mem_zalloc(sizeof(*w));

	rng_init(&w->rng, (uint64_t)_i);
	fixture_init(&w->f);
	for (size_t i = 0; i < KEYS; i++) {
		struct model_key *k = &w->keys[i];

		k->name = i % NAMES;
		k->spoken = 7 + (lease_id)(i / NAMES % LEASES);
		/* From 10 on the decimal spelling is another key; below it, some key that speaks of a lease nobody has. */
		if (i < KEYS / 2)
			snprintf(k->text, sizeof(k->text), "%s/%llx", names[k->name], (unsigned long long)k->spoken);
		else
			snprintf(k->text, sizeof(k->text), "%s/%lld", names[k->name], (long long)(k->spoken += 10));
	}
	for (int i = 0; i < STEPS; i++) {
		uint64_t dice = rng_below(&w->rng, 100);

		if (dice < 1)
			do_end_many(w);
		else if (dice < 2)
			do_reload(w);
		else if (dice < 15)
			do_take(w);
		else
			steps[rng_below(&w->rng, sizeof(steps) / sizeof(steps[0]))](w, &w->keys[rng_below(&w->rng, KEYS)]);
		if (i % 8 == 0)
			check(w);
	}
	check(w);
	fixture_deinit(&w->f);
	free(w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("locks_model");
	TCase *t = tcase_create("random");
	SRunner *r;
	int failed;

	tcase_add_loop_test(t, locks_model__does_what_a_list_would_do, 0, (int)test_scaled(SEEDS));
	tcase_set_timeout(t, 120);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
