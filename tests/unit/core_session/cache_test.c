/* cache_test.c: what the leader notes of caches, its bounds, and what is sent. */
#include "core/session/cache.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "core/snapshot/snapshot.h"
#include "core/wire.h"

enum { TTL = 10000 };

static struct cache *cache;
static struct state state;
static time_ms now = 1000;

static void setup(void)
{
	cache = cache_new();
	state_init(&state);
	now = 1000;
}

static void teardown(void)
{
	cache_check(cache);
	cache_free(cache);
	state_deinit(&state);
}

static void record(lease_id id, const char *prefix)
{
	struct session_opening o = { .session = id, .prefixes = slice_of(prefix, strlen(prefix) + 1) };

	session_put(&state, &o);
}

static bool grant(lease_id id, const char *path)
{
	return cache_grant(cache, id, CACHE_VALUE, slice_of_str(path), now);
}

static bool begin(struct cache_write *w, const char *key, const char *end)
{
	struct cache_span span = { .key = slice_of_str(key), .end = slice_of_str(end) };
	bool would = cache_write_would_wait(cache, &state, &span, 1, now), waits = cache_write_begin(cache, &state, &span, 1, w, now);

	ck_assert(would == waits);
	cache_check(cache);
	return waits;
}

struct owed {
	uint64_t settled, first, last;
	size_t len, items;
	bool all;
};

static void note_owed(void *ctx, lease_id id, uint64_t settled, struct slice invalidations)
{
	struct owed *o = ctx;
	struct wire w, v;

	(void)id;
	*o = (struct owed){ .settled = settled };
	for (wire_init(&w, invalidations); wire_next(&w);) {
		ck_assert_uint_eq(w.field, 3);
		o->len++;
		for (wire_init(&v, wire_bytes(&w)); wire_next(&v);) {
			if (v.field == 1)
				o->last = wire_u64(&v);
			o->all |= v.field == 3;
			o->items += v.field == 4;
		}
		if (o->len == 1)
			o->first = o->last;
	}
}

static struct owed owed(void)
{
	struct owed o = { 0 };

	cache_send(cache, now, note_owed, &o);
	return o;
}

START_TEST(cache__nobody_caches_nobody_waits)
{
	struct cache_write w;

	ck_assert(!begin(&w, "/a", ""));
	ck_assert(!grant(7, "/a")); /* no session that caches */
	cache_session_add(cache, 7, now + TTL, false, now);
	ck_assert(grant(7, "/a"));
	ck_assert(!begin(&w, "/b", ""));
	ck_assert(begin(&w, "/a", ""));
	cache_write_drop(cache, &w);
}
END_TEST

START_TEST(cache__a_write_is_ready_with_the_last_acknowledgement)
{
	struct cache_write w;

	for (lease_id id = 1; id <= 3; id++) {
		cache_session_add(cache, id, now + TTL, false, now);
		ck_assert(grant(id, "/a"));
	}
	ck_assert(begin(&w, "/a", ""));
	ck_assert_uint_eq(w.left, 3);
	ck_assert(cache_ack(cache, 1, 1, now));
	cache_session_end(cache, 2, now);
	ck_assert_ptr_null(cache_next_ready(cache));
	ck_assert(cache_ack(cache, 3, 1, now));
	ck_assert_ptr_eq(cache_next_ready(cache), &w);
	ck_assert_ptr_null(cache_next_ready(cache));
	ck_assert(!begin(&w, "/a", "")); /* all have forgotten it */
}
END_TEST

START_TEST(cache__two_writes_of_one_thing_wait_for_one_invalidation)
{
	struct cache_write a, b;

	cache_session_add(cache, 1, now + TTL, false, now);
	ck_assert(grant(1, "/a"));
	ck_assert(begin(&a, "/a", ""));
	ck_assert(begin(&b, "/a", ""));
	ck_assert_uint_eq(owed().last, 1);
	ck_assert(cache_ack(cache, 1, 1, now));
	ck_assert_ptr_eq(cache_next_ready(cache), &a);
	ck_assert_ptr_eq(cache_next_ready(cache), &b);
}
END_TEST

START_TEST(cache__acknowledgements_are_cumulative_and_never_of_the_future)
{
	struct cache_write a, b;

	cache_session_add(cache, 1, now + TTL, false, now);
	ck_assert(grant(1, "/a") && grant(1, "/b"));
	ck_assert(begin(&a, "/a", "") && begin(&b, "/b", ""));
	ck_assert(!cache_ack(cache, 1, 3, now));
	ck_assert_ptr_null(cache_next_ready(cache));
	ck_assert(cache_ack(cache, 1, 2, now));
	ck_assert_ptr_eq(cache_next_ready(cache), &a);
	ck_assert_ptr_eq(cache_next_ready(cache), &b);
	ck_assert(cache_ack(cache, 1, 1, now) && cache_ack(cache, 1, 2, now)); /* again */
	ck_assert(cache_ack(cache, 99, 5, now));                               /* of a session that is over */
}
END_TEST

START_TEST(cache__a_right_ends_and_is_extended_only_by_who_owes_nothing)
{
	struct cache_write w;

	cache_session_add(cache, 1, now + TTL, false, now);
	ck_assert(grant(1, "/a"));
	now += 4000;
	ck_assert(cache_session_renew(cache, 1, now + TTL, now));
	ck_assert(begin(&w, "/a", ""));
	now += TTL - 1;
	ck_assert(!cache_session_renew(cache, 1, now + TTL, now));
	cache_expire(cache, now);
	ck_assert_ptr_null(cache_next_ready(cache));
	now += 1;
	cache_expire(cache, now);
	ck_assert_ptr_eq(cache_next_ready(cache), &w);
	ck_assert(!grant(1, "/b"));
	ck_assert(!cache_session_renew(cache, 1, now + TTL, now));
	ck_assert(cache_ack(cache, 1, 1, now));
	ck_assert(cache_session_renew(cache, 1, now + TTL, now));
	ck_assert(grant(1, "/b"));
}
END_TEST

START_TEST(cache__whose_right_has_ended_is_not_waited_for)
{
	struct cache_write w;
	struct cache_stats stats;

	cache_session_add(cache, 1, now + TTL, false, now);
	ck_assert(grant(1, "/a") && grant(1, "/b"));
	now += TTL;
	ck_assert(!begin(&w, "/a", ""));
	cache_stats(cache, &stats);
	ck_assert_uint_eq(stats.pairs, 0);
	ck_assert_uint_eq(stats.owing, 0);
}
END_TEST

START_TEST(cache__of_an_earlier_leader_all_may_be_cached_where_it_may)
{
	struct cache_write a, b, c;
	struct owed o;

	record(1, "/a");
	record(2, "/b");
	cache_session_add(cache, 1, now + TTL, true, now);
	cache_session_add(cache, 2, now + TTL, true, now);
	o = owed();
	ck_assert(o.all && o.first == 1 && o.last == 1);
	ck_assert(begin(&a, "/a/x", ""));
	ck_assert(begin(&b, "/", "0")); /* a range over both */
	ck_assert_uint_eq(b.left, 2);
	ck_assert(!begin(&c, "/c", ""));
	ck_assert(!begin(&c, "/ab", ""));
	ck_assert(cache_ack(cache, 1, 1, now));
	ck_assert_ptr_eq(cache_next_ready(cache), &a);
	now += TTL;
	cache_expire(cache, now);
	ck_assert_ptr_eq(cache_next_ready(cache), &b);
	ck_assert(!begin(&a, "/b", ""));
}
END_TEST

START_TEST(cache__many_things_become_everything)
{
	struct cache_write w;
	char path[16];
	struct owed o;

	cache_session_add(cache, 1, now + TTL, false, now);
	ck_assert(grant(1, "/b"));
	for (unsigned i = 0; i < CACHE_ITEMS_MAX + 10; i++) {
		snprintf(path, sizeof path, "/a/%03u", i);
		ck_assert(grant(1, path));
	}
	ck_assert(begin(&w, "/a/", "/a0"));
	ck_assert_uint_eq(w.left, 1);
	o = owed();
	ck_assert(o.all && o.items == 0 && o.len == 1);
	cache_write_drop(cache, &w);
	ck_assert(begin(&w, "/b", "")); /* that was everything, so it too is to be waited for */
	ck_assert_uint_eq(owed().last, 0); /* and nothing new is sent */
	cache_write_drop(cache, &w);
}
END_TEST

START_TEST(cache__what_is_owed_has_a_bound)
{
	struct cache_write *w = mem_zalloc((CACHE_OWED_MAX + 2) * sizeof *w);
	char path[16];
	struct owed o;

	cache_session_add(cache, 1, now + TTL, false, now);
	for (unsigned i = 0; i < CACHE_OWED_MAX + 2; i++) {
		snprintf(path, sizeof path, "/a/%03u", i);
		ck_assert(grant(1, path));
	}
	for (unsigned i = 0; i < CACHE_OWED_MAX + 2; i++) {
		snprintf(path, sizeof path, "/a/%03u", i);
		ck_assert(begin(&w[i], path, ""));
	}
	o = owed();
	ck_assert(o.all);
	ck_assert_uint_eq(o.len, CACHE_OWED_MAX + 1);
	ck_assert(!grant(1, "/b"));
	ck_assert(cache_ack(cache, 1, o.last, now));
	for (unsigned i = 0; i < CACHE_OWED_MAX + 2; i++)
		ck_assert_ptr_eq(cache_next_ready(cache), &w[i]);
	ck_assert(grant(1, "/b"));
	free(w);
}
END_TEST

START_TEST(cache__a_session_may_cache_so_much_and_no_more)
{
	char path[16];

	cache_session_add(cache, 1, now + TTL, false, now);
	for (unsigned i = 0; i < CACHE_SESSION_PAIRS_MAX; i++) {
		snprintf(path, sizeof path, "/%u", i);
		ck_assert(grant(1, path));
	}
	ck_assert(!grant(1, "/one more"));
	ck_assert(grant(1, "/7")); /* noted already */
}
END_TEST

START_TEST(cache__is_sent_again_until_acknowledged_and_at_once_to_another_stream)
{
	struct cache_write w;

	cache_session_add(cache, 1, now + TTL, false, now);
	ck_assert(grant(1, "/a"));
	ck_assert(begin(&w, "/a", ""));
	ck_assert(cache_has_due(cache));
	ck_assert_uint_eq(owed().len, 1);
	ck_assert(!cache_has_due(cache));
	ck_assert_uint_eq(owed().len, 0);
	now += CACHE_RESEND_MS;
	ck_assert_uint_eq(owed().len, 1);
	cache_session_moved(cache, 1);
	ck_assert(cache_has_due(cache));
	ck_assert_uint_eq(owed().len, 1);
	ck_assert(cache_ack(cache, 1, 1, now));
	now += 10 * CACHE_RESEND_MS;
	ck_assert_uint_eq(owed().len, 0);
	cache_session_moved(cache, 1);
	ck_assert(!cache_has_due(cache));
}
END_TEST

START_TEST(cache__what_is_written_all_the_time_is_left_alone)
{
	struct cache_write w;

	cache_session_add(cache, 1, now + 10 * TTL, false, now);
	for (uint64_t i = 1; i <= CACHE_HOT_HITS; i++) {
		ck_assert(grant(1, "/a"));
		ck_assert(begin(&w, "/a", ""));
		ck_assert(cache_ack(cache, 1, i, now));
		ck_assert_ptr_eq(cache_next_ready(cache), &w);
		now += 100;
	}
	ck_assert(!grant(1, "/a"));
	ck_assert(grant(1, "/b"));
	now += CACHE_HOT_MS;
	cache_expire(cache, now);
	ck_assert(grant(1, "/a"));
}
END_TEST

static const struct {
	const char *key, *end, *path;
	enum cache_aspect aspect;
	bool want;
} touches[] = {
	{ "/a", "", "/a", CACHE_VALUE, true },
	{ "/a", "", "/a/b", CACHE_VALUE, false },
	{ "/a/b", "", "/a", CACHE_CHILDREN, true },
	{ "/a/b/c", "", "/a", CACHE_CHILDREN, false },
	{ "/a", "", "/", CACHE_CHILDREN, true },
	{ "/a/b", "", "/", CACHE_CHILDREN, false },
	{ "a", "", "/", CACHE_CHILDREN, false },
	{ "/a", "/b", "/a", CACHE_VALUE, true },
	{ "/a", "/b", "/a/x", CACHE_VALUE, true },
	{ "/a", "/b", "/b", CACHE_VALUE, false },
	{ "/b", "/a", "/a", CACHE_VALUE, false },
	{ "/a", "/a", "/a", CACHE_VALUE, false },
	{ "/a/x", "/a/y", "/a", CACHE_CHILDREN, true },
	{ "/b", "/c", "/a", CACHE_CHILDREN, false },
	{ "/a", "/a/", "/a", CACHE_CHILDREN, false },
	{ "0", "1", "/", CACHE_CHILDREN, false },
	{ "", "z", "/", CACHE_CHILDREN, true },
};

START_TEST(cache__a_span_touches)
{
	struct cache_span span = { .key = slice_of_str(touches[_i].key), .end = slice_of_str(touches[_i].end) };

	ck_assert_msg(cache_span_touches(&span, touches[_i].aspect, slice_of_str(touches[_i].path)) == touches[_i].want, "[%s, %s) and %s", touches[_i].key,
		      touches[_i].end, touches[_i].path);
}
END_TEST

START_TEST(cache__an_open_end_touches_all_that_follow)
{
	struct cache_span span = { .key = slice_of_str("/b"), .end = slice_of("", 1) };

	ck_assert(cache_span_touches(&span, CACHE_VALUE, slice_of_str("/c")));
	ck_assert(!cache_span_touches(&span, CACHE_VALUE, slice_of_str("/a")));
	ck_assert(cache_span_touches(&span, CACHE_CHILDREN, slice_of_str("/")));
	ck_assert(!cache_span_touches(&span, CACHE_CHILDREN, slice_of_str("/a")));
	ck_assert(cache_span_touches(&span, CACHE_CHILDREN, slice_of_str("/b")));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache");
	TCase *tc = tcase_create("cache");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, cache__nobody_caches_nobody_waits);
	tcase_add_test(tc, cache__a_write_is_ready_with_the_last_acknowledgement);
	tcase_add_test(tc, cache__two_writes_of_one_thing_wait_for_one_invalidation);
	tcase_add_test(tc, cache__acknowledgements_are_cumulative_and_never_of_the_future);
	tcase_add_test(tc, cache__a_right_ends_and_is_extended_only_by_who_owes_nothing);
	tcase_add_test(tc, cache__whose_right_has_ended_is_not_waited_for);
	tcase_add_test(tc, cache__of_an_earlier_leader_all_may_be_cached_where_it_may);
	tcase_add_test(tc, cache__many_things_become_everything);
	tcase_add_test(tc, cache__what_is_owed_has_a_bound);
	tcase_add_test(tc, cache__a_session_may_cache_so_much_and_no_more);
	tcase_add_test(tc, cache__is_sent_again_until_acknowledged_and_at_once_to_another_stream);
	tcase_add_test(tc, cache__what_is_written_all_the_time_is_left_alone);
	tcase_add_loop_test(tc, cache__a_span_touches, 0, sizeof touches / sizeof *touches);
	tcase_add_test(tc, cache__an_open_end_touches_all_that_follow);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
