/* record_test.c: records of open sessions: what they may cache, and their bytes in a snapshot. */
#include "core/session/session.h"

#include <check.h>
#include <stdlib.h>

#include "base/buf.h"
#include "core/snapshot/snapshot.h"

static struct state state;

static void setup(void)
{
	state_init(&state);
}

static void teardown(void)
{
	state_deinit(&state);
}

static const struct open_session *put(lease_id id, struct slice prefixes, const char *name)
{
	struct session_opening o = { .session = id, .place = { 1, 2, 3 }, .prefixes = prefixes, .name = slice_of_str(name) };

	session_hash_secret(slice_of_str("secret"), o.secret_hash);
	session_put(&state, &o);
	return session_find(&state, id);
}

#define PREFIXES(text) slice_of(text, sizeof(text))

START_TEST(record__has_a_stream_at_a_time)
{
	const struct open_session *s = put(-5, PREFIXES("/a"), "x");
	uint64_t before = state_hash(&state), generation = s->generation;

	ck_assert_uint_eq(s->place.stream, 3);
	session_attach(&state, -5, (struct session_place){ 4, 5, 6 }, 0);
	s = session_find(&state, -5);
	ck_assert(s->place.member == 4 && s->place.boot == 5 && s->place.stream == 6 && s->generation == generation + 1);
	ck_assert_uint_ne(state_hash(&state), before);
	session_attach(&state, -5, (struct session_place){ 7, 8, 9 }, 1000);
	ck_assert_uint_eq(session_find(&state, -5)->generation, 1000); /* its client numbers them */
	ck_assert(session_remove(&state, -5));
	ck_assert(!session_remove(&state, -5));
	ck_assert_ptr_null(session_find(&state, -5));
}
END_TEST

static const struct { const char *prefix, *key, *end; bool want; } touches[] = {
	{ "/a", "/a", "", true }, { "/a", "/a/b", "", true }, { "/a", "/ab", "", false }, { "/a", "a", "", false }, { "/", "/x", "", true },
	{ "/", "x", "", false }, { "/a", "/", "/a", false }, { "/a", "/", "/b", true }, { "/a", "/a/x", "/a/y", true }, { "/a", "/a0", "/b", false },
	{ "/a", "/b", "/c", false }, { "/a", "", "z", true }, { "/", "0", "1", false },
};

START_TEST(record__is_touched_where_it_may_cache)
{
	const struct open_session *s = put(1, slice_of(touches[_i].prefix, strlen(touches[_i].prefix) + 1), "");

	ck_assert_int_eq(session_is_touched(s, slice_of_str(touches[_i].key), slice_of_str(touches[_i].end)), touches[_i].want);
}
END_TEST

START_TEST(record__without_prefixes_caches_nothing)
{
	const struct open_session *s = put(1, slice_of(NULL, 0), "");

	ck_assert(!session_caches(s));
	ck_assert(!session_may_cache(s, slice_of_str("/a")));
	ck_assert(!session_is_touched(s, slice_of("", 1), slice_of("", 1)));
}
END_TEST

START_TEST(record__prefixes_are_judged)
{
	struct buf many = { 0 };

	ck_assert(session_prefixes_are_good(slice_of(NULL, 0)));
	ck_assert(session_prefixes_are_good(PREFIXES("/\0/a/b")));
	ck_assert(!session_prefixes_are_good(slice_of_str("/a"))); /* no zero byte */
	ck_assert(!session_prefixes_are_good(PREFIXES("/a/")));
	ck_assert(!session_prefixes_are_good(PREFIXES("/a\0")));   /* one of nothing */
	for (unsigned i = 0; i < SESSION_PREFIXES_MAX; i++)
		buf_append(&many, "/a", 3);
	ck_assert(session_prefixes_are_good(buf_view(&many)));
	buf_append(&many, "/a", 3);
	ck_assert(!session_prefixes_are_good(buf_view(&many)));
	buf_free(&many);
}
END_TEST

START_TEST(record__comes_back_from_its_bytes)
{
	const struct open_session *s = put(77, PREFIXES("/a\0/b"), "name"), *back;
	struct tree_record *r;
	struct buf bytes = { 0 }, again = { 0 };

	open_session_type.encode(&s->base, &bytes);
	ck_assert_int_eq(open_session_type.decode(buf_view(&bytes), &r), ERR_OK);
	back = (const struct open_session *)(const void *)r;
	ck_assert_uint_eq(back->hash, s->hash);
	ck_assert(session_may_cache(back, slice_of_str("/b/x")) && !session_may_cache(back, slice_of_str("/c")));
	open_session_type.encode(r, &again);
	ck_assert(slice_eq(buf_view(&bytes), buf_view(&again)));
	open_session_type.free(r);
	for (size_t cut = 0; cut < bytes.len; cut++)
		ck_assert_int_eq(open_session_type.decode(slice_of(bytes.ptr, cut), &r), ERR_CORRUPT);
	for (size_t at = 0; at < bytes.len; at++) { /* whatever is in there: refused, or the same when written again */
		bytes.ptr[at] ^= 0xff;
		if (open_session_type.decode(buf_view(&bytes), &r) == ERR_OK) {
			buf_clear(&again);
			open_session_type.encode(r, &again);
			ck_assert(slice_eq(buf_view(&bytes), buf_view(&again)));
			open_session_type.free(r);
		}
		bytes.ptr[at] ^= 0xff;
	}
	buf_free(&bytes);
	buf_free(&again);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("session records");
	TCase *tc = tcase_create("session records");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, record__has_a_stream_at_a_time);
	tcase_add_loop_test(tc, record__is_touched_where_it_may_cache, 0, sizeof touches / sizeof *touches);
	tcase_add_test(tc, record__without_prefixes_caches_nothing);
	tcase_add_test(tc, record__prefixes_are_judged);
	tcase_add_test(tc, record__comes_back_from_its_bytes);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
