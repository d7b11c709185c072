/* locks_test.c: which keys contend, and the edges that a story (tests/datadriven/lock) does not tell well. */
#include "core/lock/lock.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "fixture.h"
#include "support/damage.h"

static struct fixture f;

static void setup(void)
{
	fixture_init(&f);
}

static void teardown(void)
{
	fixture_deinit(&f);
}

static struct slice str(const char *s)
{
	return slice_of_str(s);
}

/* ---- names ---- */

START_TEST(locks__which_key_contends_for_which_lock)
{
	static const struct {
		const char *key;
		lease_id lease;
		const char *want; /* NULL: it is no contender */
	} cases[] = {
		{ "a/1f", 31, "a" },
		{ "a/31", 31, "a" },  /* decimal */
		{ "a/31", 49, "a" },  /* the same bytes, in hex */
		{ "a/1F", 31, NULL }, /* one spelling only */
		{ "a/01f", 31, NULL },
		{ "a/0x1f", 31, NULL },
		{ "a/+31", 31, NULL },
		{ "a/1f ", 31, NULL },
		{ "a/ 1f", 31, NULL },
		{ "a/1f", 32, NULL },
		{ "a/", 31, NULL },
		{ "a", 31, NULL },
		{ "1f", 31, NULL },
		{ "", 31, NULL },
		{ "/1f", 31, "" },
		{ "//1f", 31, "/" },
		{ "a/b/1f", 31, "a/b" },
		{ "a/1f/", 31, NULL },
		{ "a/1f/1f", 31, "a/1f" },
		{ "a/0", 0, NULL }, /* no lease is no contender */
		{ "a/7fffffffffffffff", INT64_MAX, "a" },
		{ "a/9223372036854775807", INT64_MAX, "a" },
		{ "a/ffffffffffffffff", -1, "a" },
		{ "a/18446744073709551615", -1, NULL },
		{ "a/-1", -1, NULL },
		{ "a/8000000000000000", INT64_MIN, "a" },
		{ "a/00000000000000000000000000000000000000000000001f", 31, NULL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct slice name = str("untouched");
		bool got = lock_parse(str(cases[i].key), cases[i].lease, &name);

		ck_assert_msg(got == (cases[i].want != NULL), "%s", cases[i].key);
		ck_assert_msg(slice_eq(name, str(got ? cases[i].want : "untouched")), "%s", cases[i].key);
		ck_assert_int_eq(lock_parse(str(cases[i].key), cases[i].lease, NULL), got);
	}
}
END_TEST

START_TEST(locks__a_key_that_was_made_parses)
{
	static const lease_id leases[] = { 1, 10, 31, INT64_MAX, -1, INT64_MIN };
	static const char *const names[] = { "", "a", "a/b", "/", "a/1" };

	for (size_t i = 0; i < sizeof(leases) / sizeof(leases[0]); i++) {
		for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
			struct buf key = { 0 };
			struct slice name;

			lock_key(str(names[k]), leases[i], &key);
			ck_assert(lock_parse(buf_view(&key), leases[i], &name));
			ck_assert(slice_eq(name, str(names[k])));
			buf_free(&key);
		}
	}
}
END_TEST

/* Names that are each other's beginnings, or hold zero bytes and slashes, lie apart. */
START_TEST(locks__names_of_any_bytes_do_not_mix)
{
	static const struct {
		const char *bytes;
		size_t len;
	} keys[] = { { "/7", 2 }, { "a/7", 3 }, { "ab/7", 4 }, { "a\0/7", 4 }, { "a\0\0\0\0\0\0\0\0/7", 11 }, { "\377/7", 3 }, { "\377\377/7", 4 },
		{ "\0/7", 3 }, { "a/b/7", 5 }, { "//7", 3 } };
	enum { N = sizeof(keys) / sizeof(keys[0]) };
	const struct contender *granted[N + 1];

	for (size_t i = 0; i < N; i++)
		ck_assert_int_eq(fixture_put(&f, slice_of(keys[i].bytes, keys[i].len), 7), ERR_OK);
	ck_assert_uint_eq(lock_take_granted(f.locks, granted, N + 1), N);
	for (size_t i = 0; i < N; i++) {
		struct slice key = slice_of(keys[i].bytes, keys[i].len);

		ck_assert(slice_eq(contender_key(granted[i]), key));
		ck_assert(slice_eq(contender_name(granted[i]), slice_of(key.ptr, key.len - 2)));
		ck_assert_ptr_null(lock_next(f.locks, contender_name(granted[i]), granted[i]));
	}
	ck_assert_ptr_null(lock_next(f.locks, str("b"), NULL));
	ck_assert_uint_eq(lock_waiters(f.locks, str("b")), 0);
}
END_TEST

/* ---- records ---- */

static const struct lock_attributes everything = { .mode = LOCK_SHARED, .bounded = true, .own_lease = true, .wait_ms = 1500, .call = { 1, UINT64_MAX, 3 },
	.client = { (const uint8_t *)"10.0.0.1:5", 10 }, .since_unix_ms = 1700000000000 };

START_TEST(locks__attributes_survive_a_snapshot)
{
	const struct contender *c;

	ck_assert_int_eq(fixture_lock(&f, str("a"), 7, &everything), ERR_OK);
	fixture_reload(&f);
	c = lock_next(f.locks, str("a"), NULL);
	ck_assert_int_eq(c->mode, LOCK_SHARED);
	ck_assert(c->bounded);
	ck_assert(c->own_lease);
	ck_assert_int_eq(c->wait_ms, 1500);
	ck_assert_uint_eq(c->call.member, 1);
	ck_assert_uint_eq(c->call.boot, UINT64_MAX);
	ck_assert_uint_eq(c->call.call, 3);
	ck_assert_int_eq(c->since_unix_ms, 1700000000000);
	ck_assert_int_eq(c->lease, 7);
	ck_assert_int_eq(c->create_revision, 2);
	ck_assert(slice_eq(contender_client(c), str("10.0.0.1:5")));
	ck_assert(slice_eq(contender_key(c), str("a/7")));
}
END_TEST

START_TEST(locks__every_attribute_counts_in_the_hash)
{
	struct lock_attributes a[7];
	uint64_t hashes[7];

	fixture_lock(&f, str("a"), 7, &everything);
	for (size_t i = 0; i < 7; i++)
		a[i] = everything;
	a[1].bounded = false;
	a[2].wait_ms++;
	a[3].client.len--;
	a[4].call.call++; /* from here on those that were taken over from are in it, too */
	a[5].call.member++;
	a[6].call.boot--;
	for (size_t i = 0; i < 7; i++) {
		if (i == 4) { /* what was said before comes again, so far */
			ck_assert_int_eq(fixture_lock(&f, str("a"), 7, &a[0]), ERR_OK);
			ck_assert_uint_eq(f.state.contenders.hash, hashes[0]);
		}
		ck_assert_int_eq(fixture_lock(&f, str("a"), 7, &a[i]), ERR_OK);
		hashes[i] = f.state.contenders.hash;
		for (size_t k = 0; k < i; k++)
			ck_assert_uint_ne(hashes[k], hashes[i]);
	}
	fixture_reload(&f);
	ck_assert_uint_eq(f.state.contenders.hash, hashes[6]);
}
END_TEST

static const struct contender *ask_beside(uint64_t member, uint64_t call)
{
	struct lock_attributes a = { .call = { member, 1, call }, .bounded = call % 2, .wait_ms = call % 2 ? (int64_t)call : 0 };
	uint64_t hash = f.state.contenders.hash;
	const struct contender *c = lock_ask_beside(f.locks, lock_next(f.locks, str("a"), NULL), &a);

	ck_assert_int_eq(f.state.contenders.hash != hash, c && call_id_eq(c->call, a.call));
	fixture_reload(&f);
	locks_check(f.locks);
	return c ? lock_next(f.locks, str("a"), NULL) : NULL;
}

static const struct contender *ask_no_more(uint64_t member, uint64_t call)
{
	const struct contender *c = lock_ask_no_more(f.locks, lock_next(f.locks, str("a"), NULL), (struct call_id){ member, 1, call });

	fixture_reload(&f);
	locks_check(f.locks);
	return c ? lock_next(f.locks, str("a"), NULL) : NULL;
}

static void assert_askers(const char *calls)
{
	struct asker askers[LOCK_ASKERS_MAX];
	size_t n = contender_askers(lock_next(f.locks, str("a"), NULL), askers);
	char text[64] = "";

	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(text);

		snprintf(text + len, sizeof text - len, "%s%u.%u", i ? " " : "", (unsigned)askers[i].call.member, (unsigned)askers[i].call.call);
		ck_assert_int_eq(askers[i].bounded, askers[i].call.call % 2);
		ck_assert_int_eq(askers[i].wait_ms, askers[i].bounded ? (int64_t)askers[i].call.call : 0);
	}
	ck_assert_str_eq(text, calls);
}

/* What is said of the latest, its bound too, is said of whoever is it. */
START_TEST(locks__who_asks_beside_whom)
{
	struct lock_attributes first = { .call = { 1, 1, 3 }, .bounded = true, .wait_ms = 3, .client = str("10.0.0.1:1"), .since_unix_ms = 99 };

	fixture_lock(&f, str("a"), 7, &first);
	assert_askers("1.3");
	ck_assert_ptr_null(ask_no_more(1, 3)); /* the only one */
	ck_assert_ptr_nonnull(ask_beside(2, 4));
	assert_askers("2.4 1.3");
	ck_assert_ptr_nonnull(ask_beside(1, 3)); /* asks already */
	assert_askers("2.4 1.3");
	ck_assert(!lock_next(f.locks, str("a"), NULL)->unlisted);
	ck_assert_ptr_null(ask_no_more(2, 3)); /* none of them */
	ck_assert_ptr_nonnull(ask_no_more(2, 4));
	assert_askers("1.3");
	ck_assert(!lock_next(f.locks, str("a"), NULL)->unlisted); /* whoever asked has given up, or asks */

	ck_assert_ptr_nonnull(ask_beside(2, 4));
	ck_assert_ptr_nonnull(ask_beside(3, 5));
	ck_assert_ptr_nonnull(ask_beside(2, 6));
	assert_askers("2.6 3.5 2.4 1.3");
	ck_assert_ptr_null(ask_beside(2, 5)); /* older than the other by its replica */
	ck_assert_ptr_null(ask_beside(4, 9)); /* no room */
	ck_assert(!lock_next(f.locks, str("a"), NULL)->unlisted);
	ck_assert_ptr_nonnull(ask_beside(2, 8));
	assert_askers("2.8 2.6 3.5 1.3");
	ck_assert(lock_next(f.locks, str("a"), NULL)->unlisted);
	ck_assert_ptr_nonnull(ask_no_more(3, 5));
	assert_askers("2.8 2.6 1.3");
	ck_assert_ptr_nonnull(ask_no_more(2, 8));
	ck_assert_ptr_nonnull(ask_no_more(2, 6));
	assert_askers("1.3");
	ck_assert_int_eq(lock_next(f.locks, str("a"), NULL)->since_unix_ms, 99);

	ck_assert_ptr_nonnull(ask_beside(2, 4));
	lock_ask_again(f.locks, lock_next(f.locks, str("a"), NULL), &first);
	assert_askers("1.3");
}
END_TEST

static void assert_before(const char *calls)
{
	struct call_id before[LOCK_BEFORE_MAX];
	size_t n = contender_before(lock_next(f.locks, str("a"), NULL), before);
	char text[64] = "";

	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(text);

		snprintf(text + len, sizeof text - len, "%s%u.%u", i ? " " : "", (unsigned)before[i].member, (unsigned)before[i].call);
	}
	ck_assert_str_eq(text, calls);
}

static void take_over(uint64_t member, uint64_t call)
{
	struct lock_attributes a = { .call = { member, 1, call }, .bounded = call % 2, .wait_ms = call % 2 ? (int64_t)call : 0 };

	lock_ask_again(f.locks, lock_next(f.locks, str("a"), NULL), &a);
	fixture_reload(&f);
	locks_check(f.locks);
}

/* Whoever was taken over from keeps a hold until he has given up, too, and keeps no place of one that waits. */
START_TEST(locks__who_was_taken_over_from)
{
	struct lock_attributes first = { .call = { 1, 1, 3 }, .bounded = true, .wait_ms = 3 };
	uint64_t hash;

	fixture_lock(&f, str("a"), 7, &first);
	take_over(2, 4);
	assert_askers("2.4");
	assert_before("1.3");
	ck_assert(!lock_next(f.locks, str("a"), NULL)->unlisted);
	hash = f.state.contenders.hash;
	ck_assert_ptr_nonnull(ask_no_more(2, 4)); /* held */
	assert_askers("");
	assert_before("1.3");
	ck_assert(call_id_eq(lock_next(f.locks, str("a"), NULL)->last, (struct call_id){ 2, 1, 4 }));
	ck_assert_uint_ne(f.state.contenders.hash, hash);
	ck_assert_ptr_null(ask_no_more(1, 3)); /* nobody is left */

	take_over(3, 5);
	take_over(2, 8);
	take_over(2, 8); /* that call itself */
	assert_askers("2.8");
	assert_before("3.5 1.3");
	ck_assert_ptr_nonnull(ask_no_more(3, 5));
	assert_before("1.3");
	ck_assert_ptr_nonnull(ask_beside(4, 9));
	take_over(1, 11);
	assert_before("4.9 2.8 1.3");
	take_over(1, 13);
	assert_before("1.11 4.9 2.8 1.3");
	ck_assert(!lock_next(f.locks, str("a"), NULL)->unlisted);
	take_over(1, 15);
	assert_before("1.13 1.11 4.9 2.8");
	ck_assert(lock_next(f.locks, str("a"), NULL)->unlisted);

	fixture_lock(&f, str("a"), 8, &first);
	lock_ask_again(f.locks, lock_next(f.locks, str("a"), lock_next(f.locks, str("a"), NULL)), &(struct lock_attributes){ .call = { 2, 1, 4 } });
	ck_assert_ptr_null(lock_ask_no_more(f.locks, lock_next(f.locks, str("a"), lock_next(f.locks, str("a"), NULL)), (struct call_id){ 2, 1, 4 })); /* it waits */
}
END_TEST

START_TEST(locks__damaged_records_are_refused_or_canonical)
{
	fixture_lock(&f, str("a"), 7, &everything);
	lock_ask_again(f.locks, lock_next(f.locks, str("a"), NULL), &(struct lock_attributes){ .bounded = true, .wait_ms = 8, .call = { 9, 9, 9 } });
	lock_ask_beside(f.locks, lock_next(f.locks, str("a"), NULL), &(struct lock_attributes){ .bounded = true, .wait_ms = 7, .call = { 4, 5, 6 } });
	lock_ask_beside(f.locks, lock_next(f.locks, str("a"), NULL), &(struct lock_attributes){ .own_lease = true, .call = { 5, 6, 7 } });
	damage_is_refused_or_canonical(&contender_type, &lock_next(f.locks, str("a"), NULL)->base);
}
END_TEST

/* What no command leaves: more calls that were taken over from than there is room for. */
START_TEST(locks__records_that_nobody_writes_are_refused)
{
	enum { LENS_AT = 87, CALL_BYTES = 24 };
	struct buf bytes = { 0 };
	struct tree_record *r;
	uint8_t more[CALL_BYTES] = { 0 };

	fixture_lock(&f, str("a"), 7, &everything);
	contender_type.encode(&lock_next(f.locks, str("a"), NULL)->base, &bytes);
	ck_assert_uint_eq(bytes.ptr[LENS_AT], 0);
	for (unsigned n = 1; n < 16; n++) {
		buf_append(&bytes, more, sizeof(more));
		bytes.ptr[LENS_AT] = (uint8_t)(n << 4);
		ck_assert_int_eq(contender_type.decode(buf_view(&bytes), &r), n <= LOCK_BEFORE_MAX ? ERR_OK : ERR_CORRUPT);
		if (n <= LOCK_BEFORE_MAX)
			contender_type.free(r);
	}
	buf_free(&bytes);
}
END_TEST

START_TEST(locks__a_long_client_address_is_cut)
{
	struct lock_attributes a = everything;

	a.client = (struct slice){ mem_zalloc(5000), 5000 };
	fixture_lock(&f, str("a"), 7, &a);
	ck_assert_uint_eq(contender_client(lock_next(f.locks, str("a"), NULL)).len, LOCK_CLIENT_MAX);
	fixture_reload(&f);
	free((void *)(uintptr_t)a.client.ptr);
}
END_TEST

START_TEST(locks__attributes_are_for_the_next_contender_alone)
{
	lock_next_attributes(f.locks, &everything);
	fixture_put(&f, str("no contender"), 7);
	fixture_put(&f, str("a/7"), 7);
	fixture_put(&f, str("b/7"), 7);
	ck_assert_int_eq(lock_next(f.locks, str("a"), NULL)->mode, LOCK_SHARED);
	ck_assert_int_eq(lock_next(f.locks, str("b"), NULL)->mode, LOCK_EXCLUSIVE);
	ck_assert(!lock_next(f.locks, str("b"), NULL)->bounded);
	lock_next_attributes(f.locks, &everything);
	lock_next_attributes(f.locks, NULL);
	fixture_put(&f, str("c/7"), 7);
	ck_assert_int_eq(lock_next(f.locks, str("c"), NULL)->mode, LOCK_EXCLUSIVE);
}
END_TEST

/* A view is a snapshot under way: what happens to the queue afterwards must not be seen in it. */
START_TEST(locks__a_view_keeps_the_queue_as_it_was)
{
	struct tree view;
	struct lock_attributes a = everything;
	struct tree_cursor cursor;

	fixture_lock(&f, str("a"), 7, &a);
	fixture_put(&f, str("a/8"), 8);
	view = tree_view(&f.state.contenders);
	a.client = str("elsewhere");
	fixture_lock(&f, str("a"), 7, &a);
	fixture_delete(&f, str("a/8"));
	fixture_delete(&f, str("a/7"));
	ck_assert_uint_eq(view.len, 2);
	tree_check(&view);
	ck_assert(slice_eq(contender_client((const struct contender *)(void *)tree_first(&cursor, &view)), str("10.0.0.1:5")));
	tree_deinit(&view);
	ck_assert_uint_eq(f.state.contenders.len, 0);
	ck_assert_uint_eq(f.state.contenders.hash, 0);
}
END_TEST

/* ---- long queues ---- */

static void lock_many(lease_id from, lease_id to, enum lock_mode mode)
{
	struct lock_attributes a = { .mode = mode };

	for (lease_id id = from; id <= to; id++)
		ck_assert_int_eq(fixture_lock(&f, str("hot"), id, &a), ERR_OK);
}

static void unlock(lease_id id)
{
	struct buf key = { 0 };

	lock_key(str("hot"), id, &key);
	ck_assert(fixture_delete(&f, buf_view(&key)));
	buf_free(&key);
}

START_TEST(locks__two_thousand_wait_and_each_release_lets_in_the_next)
{
	const struct contender *granted[2];
	enum { N = 2000 };

	lock_many(1, N, LOCK_EXCLUSIVE);
	ck_assert_uint_eq(lock_waiters(f.locks, str("hot")), N - 1);
	for (lease_id id = 1; id <= N; id++) {
		ck_assert_uint_eq(lock_take_granted(f.locks, granted, 2), 1);
		ck_assert_int_eq(granted[0]->lease, id);
		ck_assert(lock_is_held(f.locks, granted[0]));
		unlock(id);
	}
	ck_assert_uint_eq(lock_take_granted(f.locks, granted, 2), 0);
}
END_TEST

START_TEST(locks__many_readers_are_let_in_at_once_and_taken_in_pieces)
{
	const struct contender *granted[700];
	lease_id next = 2;
	size_t n;

	lock_many(1, 1, LOCK_EXCLUSIVE);
	lock_many(2, 20001, LOCK_SHARED);
	lock_many(20002, 20002, LOCK_EXCLUSIVE);
	lock_many(20003, 20004, LOCK_SHARED);
	ck_assert_uint_eq(lock_take_granted(f.locks, granted, 700), 1);
	ck_assert_uint_eq(lock_waiters(f.locks, str("hot")), 20003);
	unlock(1);
	unlock(1000);
	ck_assert_uint_eq(lock_waiters(f.locks, str("hot")), 3);
	while ((n = lock_take_granted(f.locks, granted, 700))) {
		for (size_t i = 0; i < n; i++, next++) {
			next += next == 1000;
			ck_assert_int_eq(granted[i]->lease, next);
			ck_assert(lock_is_held(f.locks, granted[i]));
		}
	}
	ck_assert_int_eq(next, 20002);
	unlock(20002); /* the writer gives up, and those behind it hold at once */
	ck_assert_uint_eq(lock_take_granted(f.locks, granted, 700), 2);
	ck_assert_int_eq(granted[1]->lease, 20004);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("locks");
	TCase *t = tcase_create("locks");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, locks__which_key_contends_for_which_lock);
	tcase_add_test(t, locks__a_key_that_was_made_parses);
	tcase_add_test(t, locks__names_of_any_bytes_do_not_mix);
	tcase_add_test(t, locks__attributes_survive_a_snapshot);
	tcase_add_test(t, locks__every_attribute_counts_in_the_hash);
	tcase_add_test(t, locks__who_asks_beside_whom);
	tcase_add_test(t, locks__who_was_taken_over_from);
	tcase_add_test(t, locks__damaged_records_are_refused_or_canonical);
	tcase_add_test(t, locks__records_that_nobody_writes_are_refused);
	tcase_add_test(t, locks__a_long_client_address_is_cut);
	tcase_add_test(t, locks__attributes_are_for_the_next_contender_alone);
	tcase_add_test(t, locks__a_view_keeps_the_queue_as_it_was);
	tcase_add_test(t, locks__two_thousand_wait_and_each_release_lets_in_the_next);
	tcase_add_test(t, locks__many_readers_are_let_in_at_once_and_taken_in_pieces);
	tcase_set_timeout(t, 60);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
