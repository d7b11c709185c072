/* test_codec.c: a key's record as bytes: canonical, and nothing else is taken. */
#include "core/store/store.h"

#include <check.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/pbw.h"
#include "base/rng.h"
#include "world.h"

/* One version as the encoding tells it; a tombstone when version is 0. */
struct row {
	uint64_t mod_delta, sub, version, create_delta, lease;
	const char *value;
};

static struct buf rows_encode(const char *key, const struct row *rows, size_t len)
{
	struct buf b = { .len = 0 };

	pbw_varint(&b, strlen(key));
	buf_append_slice(&b, slice_of_str(key));
	pbw_varint(&b, len);
	for (size_t i = 0; i < len; i++) {
		pbw_varint(&b, rows[i].mod_delta);
		pbw_varint(&b, rows[i].sub);
		pbw_varint(&b, rows[i].version);
		if (rows[i].version == 0)
			continue;
		pbw_varint(&b, rows[i].create_delta);
		pbw_varint(&b, rows[i].lease);
		pbw_varint(&b, strlen(rows[i].value));
		buf_append_slice(&b, slice_of_str(rows[i].value));
	}
	return b;
}

/* Decodes; what was taken must encode to the same bytes. */
static enum err take(struct slice bytes)
{
	struct tree_record *r = NULL;
	struct buf again = { .len = 0 };
	enum err e = key_record_type.decode(bytes, &r);

	if (e) {
		ck_assert_int_eq(e, ERR_CORRUPT);
		ck_assert_ptr_null(r);
		return e;
	}
	ck_assert_uint_eq(r->refs, 1);
	key_record_type.encode(r, &again);
	ck_assert(slice_eq(buf_view(&again), bytes));
	buf_free(&again);
	key_record_type.free(r);
	return e;
}

#define LEN 4
static const struct {
	const char *what;
	enum err want;
	size_t len;
	struct row rows[LEN];
} cases[] = {
	{ "a fresh key", ERR_OK, 1, { { 5, 0, 1, 0, 0, "v" } } },
	{ "an empty value and a lease below zero", ERR_OK, 1, { { 5, 3, 1, 0, UINT64_MAX, "" } } },
	{ "an old version whose past is compacted", ERR_OK, 1, { { 9, 0, 4, 5, 1, "v" } } },
	{ "only a tombstone", ERR_OK, 1, { { 9, 2, 0, 0, 0, NULL } } },
	{ "a life, its end, another life", ERR_OK, 4, { { 5, 0, 7, 2, 0, "a" }, { 1, 0, 8, 3, 0, "b" }, { 1, 0, 0, 0, 0, NULL }, { 3, 0, 1, 0, 0, "c" } } },
	{ "several in one revision", ERR_OK, 3, { { 5, 0, 1, 0, 0, "a" }, { 0, 1, 2, 0, 0, "b" }, { 0, 7, 0, 0, 0, NULL } } },
	{ "the last revision there is", ERR_OK, 1, { { INT64_MAX, UINT32_MAX, INT64_MAX, 1, 0, "a" } } },
	{ "no version", ERR_CORRUPT, 0, { { 0 } } },
	{ "revision 0", ERR_CORRUPT, 1, { { 0, 0, 1, 0, 0, "v" } } },
	{ "a revision beyond int64", ERR_CORRUPT, 1, { { (uint64_t)INT64_MAX + 1, 0, 1, 0, 0, "v" } } },
	{ "a sum of revisions beyond int64", ERR_CORRUPT, 2, { { INT64_MAX, 0, 1, 0, 0, "v" }, { 1, 0, 2, 1, 0, "v" } } },
	{ "a sub beyond 32 bits", ERR_CORRUPT, 1, { { 5, (uint64_t)UINT32_MAX + 1, 1, 0, 0, "v" } } },
	{ "a version beyond int64", ERR_CORRUPT, 1, { { 5, 0, (uint64_t)INT64_MAX + 1, 1, 0, "v" } } },
	{ "created before revision 1", ERR_CORRUPT, 1, { { 5, 0, 2, 5, 0, "v" } } },
	{ "created long before that", ERR_CORRUPT, 1, { { 5, 0, 2, 6, 0, "v" } } },
	{ "a first version that was created earlier", ERR_CORRUPT, 1, { { 5, 0, 1, 1, 0, "v" } } },
	{ "a sub that does not rise", ERR_CORRUPT, 2, { { 5, 1, 1, 0, 0, "v" }, { 0, 1, 2, 0, 0, "v" } } },
	{ "two tombstones in a row", ERR_CORRUPT, 2, { { 5, 0, 0, 0, 0, NULL }, { 1, 0, 0, 0, 0, NULL } } },
	{ "a version that skips one", ERR_CORRUPT, 2, { { 5, 0, 1, 0, 0, "v" }, { 1, 0, 3, 1, 0, "v" } } },
	{ "a life that goes on after its end", ERR_CORRUPT, 2, { { 5, 0, 0, 0, 0, NULL }, { 1, 0, 2, 0, 0, "v" } } },
	{ "a new life without an end of the old", ERR_CORRUPT, 2, { { 5, 0, 2, 1, 0, "v" }, { 1, 0, 1, 0, 0, "v" } } },
	{ "another create_revision in one life", ERR_CORRUPT, 2, { { 5, 0, 2, 1, 0, "v" }, { 1, 0, 3, 1, 0, "v" } } },
};

START_TEST(codec__takes_only_what_writes_could_have_made)
{
	struct buf b = rows_encode("key", cases[_i].rows, cases[_i].len);

	ck_assert_msg(take(buf_view(&b)) == cases[_i].want, "%s", cases[_i].what);
	buf_free(&b);
}
END_TEST

START_TEST(codec__refuses_what_is_cut_short_or_too_long)
{
	struct buf b = rows_encode("key", cases[4].rows, cases[4].len);

	for (size_t len = 0; len < b.len; len++) {
		struct buf cut = buf_copy_of(slice_of(b.ptr, len)); /* of its own, so that a sanitizer sees a byte read too much */

		ck_assert_int_eq(take(buf_view(&cut)), ERR_CORRUPT);
		buf_free(&cut);
	}
	buf_append_byte(&b, 0);
	ck_assert_int_eq(take(buf_view(&b)), ERR_CORRUPT);
	buf_free(&b);
}
END_TEST

START_TEST(codec__refuses_numbers_that_are_not_in_their_shortest_form)
{
	/* key "k", one version: revision 5, sub 0, version 1, created then, lease 0, value "v" */
	static const uint8_t shortest[] = { 1, 'k', 1, 5, 0, 1, 0, 0, 1, 'v' };
	static const uint8_t longer[] = { 1, 'k', 1, 0x85, 0, 0, 1, 0, 0, 1, 'v' };
	static const uint8_t zero_longer[] = { 1, 'k', 1, 5, 0x80, 0, 1, 0, 0, 1, 'v' };
	static const uint8_t beyond_64_bits[] = { 1, 'k', 1, 5, 0, 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 1, 'v' };

	ck_assert_int_eq(take(slice_of(shortest, sizeof shortest)), ERR_OK);
	ck_assert_int_eq(take(slice_of(longer, sizeof longer)), ERR_CORRUPT);
	ck_assert_int_eq(take(slice_of(zero_longer, sizeof zero_longer)), ERR_CORRUPT);
	ck_assert_int_eq(take(slice_of(beyond_64_bits, sizeof beyond_64_bits)), ERR_CORRUPT);
}
END_TEST

START_TEST(codec__believes_no_length_without_the_bytes)
{
	struct buf b = { .len = 0 };

	pbw_varint(&b, UINT64_MAX); /* of the key */
	ck_assert_int_eq(take(buf_view(&b)), ERR_CORRUPT);
	buf_clear(&b);
	buf_append(&b, "\1k", 2);
	pbw_varint(&b, UINT32_MAX); /* versions */
	buf_append(&b, "\5\0\1\0\0\1v", 7);
	ck_assert_int_eq(take(buf_view(&b)), ERR_CORRUPT);
	buf_clear(&b);
	buf_append(&b, "\1k\1\5\0\1\0\0", 8);
	pbw_varint(&b, INT64_MAX); /* of the value */
	ck_assert_int_eq(take(buf_view(&b)), ERR_CORRUPT);
	buf_free(&b);
}
END_TEST

START_TEST(codec__damage_is_refused_or_is_another_record)
{
	struct rng rng;
	size_t taken = 0;

	rng_init(&rng, (uint64_t)_i + 1);
	for (int round = 0; round < 3000; round++) {
		struct buf b = rows_encode("a key", cases[4].rows, cases[4].len);
		uint64_t flips = rng_between(&rng, 1, 4);

		while (flips-- > 0)
			b.ptr[rng_below(&rng, b.len)] = (uint8_t)rng_next(&rng);
		if (rng_chance(&rng, 200000))
			b.len = rng_below(&rng, b.len);
		taken += take(buf_view(&b)) == ERR_OK; /* take() proves that what is taken has no second spelling */
		buf_free(&b);
	}
	ck_assert_uint_gt(taken, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("core_store_codec");
	TCase *tc = tcase_create("codec");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, codec__takes_only_what_writes_could_have_made, 0, sizeof cases / sizeof *cases);
	tcase_add_test(tc, codec__refuses_what_is_cut_short_or_too_long);
	tcase_add_test(tc, codec__refuses_numbers_that_are_not_in_their_shortest_form);
	tcase_add_test(tc, codec__believes_no_length_without_the_bytes);
	tcase_add_loop_test(tc, codec__damage_is_refused_or_is_another_record, 0, 4);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
