/* lessor_model_test.c: the lessor does, at random, what a list that is searched from end to end would do. */
#include "core/lease/lease.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "support/scale.h"

enum { LEASES = 40, KEYS = 12, STEPS = 4000, SEEDS = 20 };

enum model_state { NONE, OPEN, CLOSED, DUE };

struct model_lease {
	enum model_state state; /* while nobody leads: OPEN */
	int64_t ttl_s;
	time_ms deadline;
	bool keys[KEYS];
};

struct world {
	struct rng rng;
	struct state state;
	struct lessor *ls;
	struct model_lease leases[LEASES + 1]; /* by ID */
	bool leading;
	time_ms now;
};

static struct slice key_of(unsigned k)
{
	static char text[KEYS][16];

	snprintf(text[k], sizeof(text[k]), "key/%02u", k);
	return slice_of_str(text[k]);
}

static lease_id any_id(struct world *w)
{
	return (lease_id)rng_between(&w->rng, 1, LEASES);
}

static void do_grant(struct world *w)
{
	lease_id id = any_id(w);
	struct model_lease *m = &w->leases[id];
	int64_t ttl = (int64_t)rng_between(&w->rng, 1, 30), got = 0;
	enum err e = lease_grant(w->ls, id, ttl, w->now, &got);

	if (m->state != NONE) {
		ck_assert_int_eq(e, ERR_LEASE_EXISTS);
		return;
	}
	ck_assert_int_eq(e, ERR_OK);
	ck_assert_int_eq(got, ttl);
	*m = (struct model_lease){ .state = OPEN, .ttl_s = ttl, .deadline = w->now + (time_ms)ttl * 1000 };
}

static void do_remove(struct world *w)
{
	lease_id id = any_id(w);
	struct model_lease *m = &w->leases[id];

	for (unsigned k = 0; k < KEYS; k++)
		if (m->keys[k])
			lease_detach(w->ls, id, key_of(k));
	ck_assert_int_eq(lease_remove(w->ls, id), m->state == NONE ? ERR_LEASE_NOT_FOUND : ERR_OK);
	*m = (struct model_lease){ 0 };
}

static void do_renew(struct world *w)
{
	lease_id id = any_id(w);
	struct model_lease *m = &w->leases[id];
	int64_t ttl = 0;
	enum err e = lessor_renew(w->ls, id, w->now, &ttl);

	if (!w->leading) {
		ck_assert_int_eq(e, ERR_NOT_LEADER);
	} else if (m->state == NONE) {
		ck_assert_int_eq(e, ERR_LEASE_NOT_FOUND);
	} else if (m->state != OPEN || m->deadline <= w->now) {
		ck_assert_int_eq(e, ERR_BUSY);
		if (m->state == OPEN)
			m->state = DUE;
	} else {
		ck_assert_int_eq(e, ERR_OK);
		ck_assert_int_eq(ttl, m->ttl_s);
		if (w->now + (time_ms)m->ttl_s * 1000 > m->deadline)
			m->deadline = w->now + (time_ms)m->ttl_s * 1000;
	}
}

static bool is_due(const struct world *w, const struct model_lease *m)
{
	return w->leading && (m->state == DUE || (m->state == OPEN && m->deadline <= w->now));
}

static void do_close_due(struct world *w)
{
	lease_id ids[LEASES];
	size_t max = (size_t)rng_between(&w->rng, 1, LEASES), due = 0;
	size_t n = lessor_close_due(w->ls, w->now, ids, max);
	time_ms last = 0;

	for (size_t i = 1; i <= LEASES; i++)
		due += is_due(w, &w->leases[i]);
	ck_assert_uint_eq(n, due < max ? due : max);
	for (size_t i = 0; i < n; i++) {
		struct model_lease *m = &w->leases[ids[i]];

		ck_assert(is_due(w, m));
		if (m->state == OPEN) {
			ck_assert_uint_ge(m->deadline, last);
			last = m->deadline;
		} else {
			ck_assert_uint_eq(last, 0); /* these come first */
		}
		m->state = CLOSED;
	}
}

static void do_refuse(struct world *w)
{
	lease_id id = any_id(w);

	lessor_end_refused(w->ls, id);
	if (w->leading && w->leases[id].state == CLOSED)
		w->leases[id].state = DUE;
}

static void do_shift(struct world *w)
{
	time_ms gap = rng_between(&w->rng, 1, 5000);

	lessor_shift(w->ls, gap);
	for (size_t i = 1; i <= LEASES; i++)
		if (w->leading && w->leases[i].state == OPEN)
			w->leases[i].deadline += gap;
}

static void do_lead(struct world *w)
{
	w->leading = !w->leading;
	if (w->leading)
		lessor_promote(w->ls, w->now);
	else
		lessor_demote(w->ls);
	for (size_t i = 1; i <= LEASES; i++) {
		struct model_lease *m = &w->leases[i];

		if (m->state != NONE)
			m->state = OPEN;
		m->deadline = w->now + (time_ms)m->ttl_s * 1000;
	}
}

static void do_key(struct world *w)
{
	lease_id id = any_id(w);
	unsigned k = (unsigned)rng_below(&w->rng, KEYS);
	bool attach = rng_below(&w->rng, 3) > 0;

	if (w->leases[id].state == NONE)
		return;
	if (attach)
		lease_attach(w->ls, id, key_of(k));
	else
		lease_detach(w->ls, id, key_of(k));
	w->leases[id].keys[k] = attach;
}

static void check_lease(struct world *w, lease_id id)
{
	const struct model_lease *m = &w->leases[id];
	struct slice at = { 0 };
	uint64_t keys = 0;
	time_ms left = m->deadline > w->now ? m->deadline - w->now : 0;

	ck_assert((lease_find(w->ls, id) != NULL) == (m->state != NONE));
	if (m->state == NONE)
		ck_assert_int_eq(lessor_remaining_s(w->ls, id, w->now), -1);
	else
		ck_assert_int_eq(lessor_remaining_s(w->ls, id, w->now), w->leading ? (int64_t)(left / 1000) : 0);
	for (unsigned k = 0; k < KEYS; k++) {
		if (!m->keys[k])
			continue;
		at = lease_next_key(w->ls, id, at);
		ck_assert(slice_eq(at, key_of(k)));
		keys++;
	}
	ck_assert_ptr_null(lease_next_key(w->ls, id, at).ptr);
	ck_assert_uint_eq(lease_key_count(w->ls, id), keys);
}

static void check(struct world *w)
{
	uint64_t count = 0;

	lessor_check(w->ls);
	for (lease_id id = 1; id <= LEASES; id++) {
		const struct model_lease *m = &w->leases[id];

		check_lease(w, id);
		count += m->state != NONE;
		/* Never late; and DUE ones are asked for within a moment. */
		if (w->leading && m->state == OPEN)
			ck_assert_uint_le(lessor_next_deadline(w->ls), m->deadline);
		if (w->leading && m->state == DUE)
			ck_assert_uint_le(lessor_next_deadline(w->ls), w->now + 100);
	}
	ck_assert_uint_eq(lessor_count(w->ls), count);
}

START_TEST(lessor_model__does_what_a_list_would_do)
{
	static void (*const steps[])(struct world *) = { do_grant, do_grant, do_renew, do_renew, do_renew, do_close_due, do_close_due,
		do_refuse, do_remove, do_key, do_key, do_key };
	struct world *w = mem_zalloc(sizeof(*w));

	rng_init(&w->rng, (uint64_t)_i);
	tree_init(&w->state.leases, &lease_record_type);
	w->ls = lessor_new(&w->state, 1);
	for (int i = 0; i < STEPS; i++) {
		uint64_t dice = rng_below(&w->rng, 1000);

		if (dice < 5)
			do_lead(w);
		else if (dice < 15)
			do_shift(w);
		else if (dice < 300)
			w->now += rng_below(&w->rng, 2000);
		else
			steps[rng_below(&w->rng, sizeof(steps) / sizeof(steps[0]))](w);
		if (i % 8 == 0)
			check(w);
	}
	check(w);
	lessor_free(w->ls);
	tree_deinit(&w->state.leases);
	free(w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lessor_model");
	TCase *t = tcase_create("random");
	SRunner *r;
	int failed;

	tcase_add_loop_test(t, lessor_model__does_what_a_list_would_do, 0, (int)test_scaled(SEEDS));
	tcase_set_timeout(t, 120);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
