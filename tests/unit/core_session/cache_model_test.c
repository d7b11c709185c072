/* cache_model_test.c: random sessions, grants, writes, acknowledgements and time, held against the plainest model: for each session and thing,
 * whether it may be cached. A write may become ready only when nobody who may use what it touches has it; and it does become ready. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "core/session/cache.h"
#include "core/snapshot/snapshot.h"
#include "support/scale.h"

enum { SESSIONS = 6, THINGS = 12, WRITES = 24, STEPS = 4000, TTL = 2000 };

static const char *const paths[THINGS] = { "/a", "/a/b", "/a/c", "/a/c/d", "/b", "/b/x", "/b/y", "/", "/ab", "/a/b/e", "/c", "/b/x/z" };

struct model_session {
	bool is;
	time_ms until;
	uint64_t sent, acked;
	bool cached[2][THINGS];
	uint64_t named[2][THINGS]; /* the number of the invalidation; 0: none */
};

struct model_write {
	bool waits;
	struct cache_write w;
	char key[16], end[16];
	time_ms since;
};

struct model {
	struct cache *cache;
	struct state state;
	struct rng rng;
	time_ms now;
	struct model_session s[SESSIONS];
	struct model_write w[WRITES];
};

static struct cache_span span_of(const struct model_write *w)
{
	return (struct cache_span){ .key = slice_of_str(w->key), .end = slice_of_str(w->end) };
}

static bool touches(const struct model_write *w, int aspect, int thing)
{
	struct cache_span span = span_of(w);

	return cache_span_touches(&span, (enum cache_aspect)aspect, slice_of_str(paths[thing]));
}

static void forget_all(struct model_session *s)
{
	memset(s->cached, 0, sizeof s->cached);
	memset(s->named, 0, sizeof s->named);
}

/* Whoever may use a cached thing that the write touches holds it up. */
static bool is_held_up(const struct model *m, const struct model_write *w)
{
	for (int i = 0; i < SESSIONS; i++)
		for (int aspect = 0; aspect < 2; aspect++)
			for (int t = 0; t < THINGS; t++)
				if (m->s[i].is && m->now < m->s[i].until && m->s[i].cached[aspect][t] && touches(w, aspect, t))
					return true;
	return false;
}

static void add_session(struct model *m, int i)
{
	m->s[i] = (struct model_session){ .is = true, .until = m->now + TTL };
	cache_session_add(m->cache, i + 1, m->s[i].until, false, m->now);
}

static void grant(struct model *m, int i)
{
	int aspect = (int)rng_below(&m->rng, 2), t = (int)rng_below(&m->rng, THINGS);

	for (int n = 0; n < WRITES; n++) /* as the gate does: nothing is granted that is being written */
		if (m->w[n].waits && touches(&m->w[n], aspect, t))
			return;
	if (cache_grant(m->cache, i + 1, (enum cache_aspect)aspect, slice_of_str(paths[t]), m->now)) {
		ck_assert(m->s[i].is && m->now < m->s[i].until);
		m->s[i].cached[aspect][t] = true;
	}
}

/* What the session is told to forget; it is as good as done with the acknowledgement. */
static void note_invalidations(struct model *m, const struct model_write *w)
{
	for (int i = 0; i < SESSIONS; i++) {
		struct model_session *s = &m->s[i];
		bool any = false;

		if (!s->is || m->now >= s->until)
			continue;
		for (int aspect = 0; aspect < 2; aspect++)
			for (int t = 0; t < THINGS; t++)
				any |= s->cached[aspect][t] && !s->named[aspect][t] && touches(w, aspect, t);
		if (!any)
			continue;
		s->sent++;
		for (int aspect = 0; aspect < 2; aspect++)
			for (int t = 0; t < THINGS; t++)
				if (s->cached[aspect][t] && !s->named[aspect][t] && touches(w, aspect, t))
					s->named[aspect][t] = s->sent;
	}
}

static void write(struct model *m)
{
	struct model_write *w = &m->w[rng_below(&m->rng, WRITES)];
	struct cache_span span;
	bool would;

	if (w->waits)
		return;
	snprintf(w->key, sizeof w->key, "%s", paths[rng_below(&m->rng, THINGS)]);
	w->end[0] = 0;
	if (rng_chance(&m->rng, 300000))
		snprintf(w->end, sizeof w->end, "%s", paths[rng_below(&m->rng, THINGS)]);
	span = span_of(w);
	w->since = m->now;
	note_invalidations(m, w);
	would = cache_write_would_wait(m->cache, &m->state, &span, 1, m->now);
	w->waits = cache_write_begin(m->cache, &m->state, &span, 1, &w->w, m->now);
	ck_assert(would == w->waits);
	ck_assert_int_eq(w->waits, is_held_up(m, w));
}

static void ack(struct model *m, int i)
{
	struct model_session *s = &m->s[i];
	uint64_t number = rng_below(&m->rng, s->sent + 2);

	ck_assert_int_eq(cache_ack(m->cache, i + 1, number, m->now), !s->is || number <= s->sent);
	if (!s->is || number > s->sent || number <= s->acked)
		return;
	s->acked = number;
	for (int aspect = 0; aspect < 2; aspect++)
		for (int t = 0; t < THINGS; t++)
			if (s->named[aspect][t] && s->named[aspect][t] <= number) {
				s->cached[aspect][t] = false;
				s->named[aspect][t] = 0;
			}
}

static void renew(struct model *m, int i)
{
	struct model_session *s = &m->s[i];
	bool extended = cache_session_renew(m->cache, i + 1, m->now + TTL, m->now);

	ck_assert_int_eq(extended, s->is && s->acked == s->sent);
	if (extended)
		s->until = m->now + TTL;
}

static void settle(struct model *m)
{
	struct cache_write *ready;

	for (int i = 0; i < SESSIONS; i++)
		if (m->s[i].is && m->now >= m->s[i].until)
			forget_all(&m->s[i]);
	while ((ready = cache_next_ready(m->cache))) {
		struct model_write *w = CONTAINER_OF(ready, struct model_write, w);

		ck_assert(w->waits);
		ck_assert(!is_held_up(m, w));
		w->waits = false;
	}
	for (int n = 0; n < WRITES; n++)
		ck_assert(!m->w[n].waits || m->now < m->w[n].since + TTL);
}

static void step(struct model *m)
{
	int i = (int)rng_below(&m->rng, SESSIONS);

	switch (rng_below(&m->rng, 12)) {
	case 0:
		if (!m->s[i].is)
			add_session(m, i);
		break;
	case 1:
		if (rng_chance(&m->rng, 100000)) {
			cache_session_end(m->cache, i + 1, m->now);
			m->s[i].is = false;
		}
		break;
	case 2:
	case 3:
	case 4: grant(m, i); break;
	case 5:
	case 6: write(m); break;
	case 7:
	case 8: ack(m, i); break;
	case 9: renew(m, i); break;
	case 10:
		m->now += rng_below(&m->rng, 100);
		cache_expire(m->cache, m->now);
		break;
	default:
		if (rng_chance(&m->rng, 50000)) {
			int n = (int)rng_below(&m->rng, WRITES);

			if (m->w[n].waits)
				cache_write_drop(m->cache, &m->w[n].w);
			m->w[n].waits = false;
		}
		break;
	}
	settle(m);
	cache_check(m->cache);
}

START_TEST(cache__is_as_the_model)
{
	static struct model m;

	memset(&m, 0, sizeof m);
	m.cache = cache_new();
	state_init(&m.state);
	rng_init(&m.rng, (uint64_t)_i + 1);
	m.now = 1;
	for (int n = 0; n < STEPS; n++)
		step(&m);
	for (int n = 0; n < WRITES; n++)
		if (m.w[n].waits)
			cache_write_drop(m.cache, &m.w[n].w);
	cache_free(m.cache);
	state_deinit(&m.state);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache model");
	TCase *tc = tcase_create("cache model");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, cache__is_as_the_model, 0, 40);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
