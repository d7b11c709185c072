/* test_ranges.c: permissions against a model that is too simple to be wrong: a range is cut at every boundary there is, and each piece must lie
 * within one permission. Keys are short and of few bytes, so that everything touches everything. */
#include <check.h>
#include <stdlib.h>

#include "base/rng.h"
#include "fixture.h"

enum { PERMISSIONS = 12, KEY_MAX = 3 };

struct text {
	uint8_t bytes[KEY_MAX + 1];
	size_t len;
};

struct permission {
	struct text key, end;
	uint32_t type;
};

static struct slice view(const struct text *t)
{
	return slice_of(t->bytes, t->len);
}

static struct text random_key(struct rng *rng, size_t min)
{
	static const uint8_t alphabet[] = { 0, 'a', 'b', 0xff };
	struct text t = { .len = rng_between(rng, min, KEY_MAX) };

	for (size_t i = 0; i < t.len; i++)
		t.bytes[i] = alphabet[rng_below(rng, sizeof alphabet)];
	return t;
}

static struct text random_end(struct rng *rng)
{
	struct text t = { .len = 0 };

	switch (rng_below(rng, 4)) {
	case 0: return t;
	case 1: t.len = 1; return t; /* one zero byte */
	default: return random_key(rng, 1);
	}
}

/* ---- the model: [begin, end) with end NULL for none ---- */

struct interval {
	struct text begin, end;
	bool open;
};

static struct interval interval_of(const struct text *key, const struct text *end)
{
	struct interval i = { .begin = *key, .end = *end };

	i.open = end->len == 1 && end->bytes[0] == 0;
	if (end->len == 0 || (!i.open && slice_cmp(view(key), view(end)) >= 0)) { /* the one key */
		i.open = false;
		i.end = *key;
		i.end.bytes[i.end.len++] = 0;
	}
	return i;
}

static bool is_within(const struct text *begin, const struct text *end, bool open, const struct interval *i)
{
	if (slice_cmp(view(begin), view(&i->begin)) < 0)
		return false;
	return i->open || (!open && slice_cmp(view(end), view(&i->end)) <= 0);
}

static int text_cmp(const void *a, const void *b)
{
	return slice_cmp(view(a), view(b));
}

static bool model_permits(const struct permission *p, size_t len, const struct text *key, const struct text *end, uint32_t type)
{
	struct interval query = interval_of(key, end);
	struct text cuts[2 * PERMISSIONS + 2];
	size_t n = 0;

	cuts[n++] = query.begin;
	if (!query.open)
		cuts[n++] = query.end;
	for (size_t i = 0; i < len; i++) {
		struct interval x = interval_of(&p[i].key, &p[i].end);

		cuts[n++] = x.begin;
		if (!x.open)
			cuts[n++] = x.end;
	}
	qsort(cuts, n, sizeof *cuts, text_cmp);
	for (size_t i = 0; i < n; i++) {
		bool last = i + 1 == n, covered = false;

		if (slice_cmp(view(&cuts[i]), view(&query.begin)) < 0 || (!query.open && slice_cmp(view(&cuts[i]), view(&query.end)) >= 0))
			continue;
		if (!last && text_cmp(&cuts[i], &cuts[i + 1]) == 0)
			continue;
		for (size_t k = 0; k < len && !covered; k++) {
			struct interval x = interval_of(&p[k].key, &p[k].end);

			covered = (p[k].type == AUTHPB__PERMISSION__TYPE__READWRITE || p[k].type == type) &&
				  is_within(&cuts[i], last ? NULL : &cuts[i + 1], last, &x);
		}
		if (!covered)
			return false;
	}
	return true;
}

/* Two roles, so that what they permit has to be put together. */
static size_t make_permissions(struct world *w, struct rng *rng, struct permission *p)
{
	size_t n = 0, tries = rng_between(rng, 1, PERMISSIONS);

	for (size_t i = 0; i < tries; i++) {
		struct permission x = { random_key(rng, 1), random_end(rng), (uint32_t)rng_below(rng, 3) };
		const char *role = rng_below(rng, 2) ? "r" : "s";
		bool replaces = false;

		for (size_t k = 0; k < n; k++)
			replaces = replaces || (text_cmp(&p[k].key, &x.key) == 0 && text_cmp(&p[k].end, &x.end) == 0);
		if (!replaces && permit(w, role, x.type, view(&x.key), view(&x.end)) == ERR_OK)
			p[n++] = x;
	}
	return n;
}

START_TEST(ranges__as_the_model_has_them)
{
	struct permission p[PERMISSIONS];
	struct world w;
	struct rng rng;

	rng_init(&rng, (uint64_t)_i);
	for (int round = 0; round < 40; round++) {
		size_t n;

		world_init(&w);
		world_enable(&w);
		ck_assert_int_eq(user_add(&w, "u"), ERR_OK);
		ck_assert_int_eq(role_add(&w, "r"), ERR_OK);
		ck_assert_int_eq(role_add(&w, "s"), ERR_OK);
		ck_assert_int_eq(grant_role(&w, "u", "r"), ERR_OK);
		ck_assert_int_eq(grant_role(&w, "u", "s"), ERR_OK);
		n = make_permissions(&w, &rng, p);
		for (int i = 0; i < 300; i++) {
			struct text key = random_key(&rng, 0), end = random_end(&rng);
			bool read = model_permits(p, n, &key, &end, AUTHPB__PERMISSION__TYPE__READ);
			bool write = model_permits(p, n, &key, &end, AUTHPB__PERMISSION__TYPE__WRITE);

			ck_assert_int_eq(auth_check_range(w.auth, who(&w, "u"), view(&key), view(&end), AUTH_READ) == ERR_OK, read);
			ck_assert_int_eq(auth_check_range(w.auth, who(&w, "u"), view(&key), view(&end), AUTH_WRITE) == ERR_OK, write);
			ck_assert_int_eq(auth_check_range(w.auth, who(&w, "u"), view(&key), view(&end), AUTH_READ | AUTH_WRITE) == ERR_OK,
					 read && write);
			ck_assert_int_eq(auth_check_range(w.auth, who(&w, "root"), view(&key), view(&end), AUTH_READ | AUTH_WRITE), ERR_OK);
		}
		world_deinit(&w);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("auth_ranges");
	TCase *t = tcase_create("ranges");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, ranges__as_the_model_has_them, 0, 16);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
