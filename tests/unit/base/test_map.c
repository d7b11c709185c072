#include "base/map.h"

#include <stdio.h>

#include "base/rng.h"
#include "suites.h"

enum { KEYS = 1000 };

static char values[KEYS]; /* only their addresses matter */

START_TEST(map64__zeroed_is_empty)
{
	struct map64 m = { 0 };
	size_t pos = 0;
	uint64_t key;
	void *value;

	ck_assert_ptr_null(map64_get(&m, 0));
	ck_assert_ptr_null(map64_remove(&m, 0));
	ck_assert(!map64_next(&m, &pos, &key, &value));
	map64_deinit(&m);
	map64_deinit(NULL);
}
END_TEST

START_TEST(map64__put_returns_what_it_replaced)
{
	struct map64 m = { 0 };

	ck_assert_ptr_null(map64_put(&m, 0, &values[0]));
	ck_assert_ptr_null(map64_put(&m, UINT64_MAX, &values[1]));
	ck_assert_ptr_eq(map64_put(&m, 0, &values[2]), &values[0]);
	ck_assert_ptr_eq(map64_get(&m, 0), &values[2]);
	ck_assert_ptr_eq(map64_get(&m, UINT64_MAX), &values[1]);
	ck_assert_uint_eq(m.len, 2);
	ck_assert_ptr_eq(map64_remove(&m, 0), &values[2]);
	ck_assert_ptr_null(map64_remove(&m, 0));
	ck_assert_ptr_null(map64_get(&m, 0));
	ck_assert_uint_eq(m.len, 1);
	map64_deinit(&m);
}
END_TEST

/* Keys as they come in practice: in sequence, in strides, with only high bits. */
static uint64_t patterned_key(int pattern, uint64_t i)
{
	switch (pattern) {
	case 0: return i;
	case 1: return i << 32;
	case 2: return i * 4096;
	case 3: return i << 54;
	default: return i * 0x9e3779b97f4a7c15;
	}
}

/* Loop test: _i is the seed and the pattern of the keys. */
START_TEST(map64__agrees_with_an_array)
{
	struct map64 m = { 0 };
	void *model[KEYS] = { 0 };
	size_t live = 0;
	struct rng r;

	rng_init(&r, (uint64_t)_i);
	for (int turn = 0; turn < 20000; turn++) {
		size_t k = (size_t)rng_below(&r, KEYS);
		uint64_t key = patterned_key(_i, k);
		void *value = &values[rng_below(&r, KEYS)];
		/* phases of growth and of decay */
		uint32_t remove_chance = turn / 4000 % 2 ? 800000 : 300000;

		ck_assert_ptr_eq(map64_get(&m, key), model[k]);
		if (rng_chance(&r, remove_chance)) {
			ck_assert_ptr_eq(map64_remove(&m, key), model[k]);
			live -= model[k] != NULL;
			model[k] = NULL;
		} else {
			ck_assert_ptr_eq(map64_put(&m, key, value), model[k]);
			live += model[k] == NULL;
			model[k] = value;
		}
		ck_assert(m.len == live && m.used >= live && m.used * 4 <= m.cap * 3);
	}
	map64_deinit(&m);
}
END_TEST

START_TEST(map64__walk_may_remove_what_it_sees)
{
	struct map64 m = { 0 };
	size_t pos = 0, seen = 0;
	uint64_t key, sum = 0;
	void *value;

	for (uint64_t i = 0; i < KEYS; i++)
		map64_put(&m, i, &values[i]);
	while (map64_next(&m, &pos, &key, &value)) {
		ck_assert_ptr_eq(value, &values[key]);
		seen++;
		sum += key;
		if (key % 3 != 0)
			ck_assert_ptr_eq(map64_remove(&m, key), value);
	}
	ck_assert_uint_eq(seen, KEYS);
	ck_assert_uint_eq(sum, (uint64_t)KEYS * (KEYS - 1) / 2);
	for (uint64_t i = 0; i < KEYS; i++)
		ck_assert_ptr_eq(map64_get(&m, i), i % 3 ? NULL : &values[i]);

	pos = 0;
	while (map64_next(&m, &pos, &key, &value))
		map64_remove(&m, key);
	ck_assert_uint_eq(m.len, 0);
	ck_assert_uint_eq(m.used, 0);
	map64_deinit(&m);
}
END_TEST

START_TEST(map64__churn_does_not_grow_the_table)
{
	struct map64 m = { 0 };

	for (uint64_t i = 0; i < 1000000; i++) {
		map64_put(&m, i, &values[0]);
		if (i >= 100)
			map64_remove(&m, i - 100);
	}
	ck_assert_uint_eq(m.len, 100);
	ck_assert_uint_le(m.cap, 512);
	map64_deinit(&m);
}
END_TEST

static struct slice byte_key(char *text, size_t size, uint64_t i)
{
	return slice_of(text, (size_t)snprintf(text, size, "/locks/%u", (unsigned)i));
}

START_TEST(mapb__zeroed_is_empty)
{
	struct mapb m = { 0 };
	size_t pos = 0;
	struct slice key;
	void *value;

	ck_assert_ptr_null(mapb_get(&m, slice_of_str("a")));
	ck_assert_ptr_null(mapb_remove(&m, slice_of_str("a")));
	ck_assert(!mapb_next(&m, &pos, &key, &value));
	mapb_deinit(&m);
	mapb_deinit(NULL);
}
END_TEST

START_TEST(mapb__copies_its_keys)
{
	struct mapb m = { 0 };
	char text[] = "abc";

	mapb_put(&m, slice_of_str(text), &values[0]);
	text[0] = 'x';
	ck_assert_ptr_eq(mapb_get(&m, slice_of_str("abc")), &values[0]);
	ck_assert_ptr_null(mapb_get(&m, slice_of_str(text)));
	mapb_deinit(&m);
}
END_TEST

START_TEST(mapb__tells_odd_keys_apart)
{
	struct mapb m = { 0 };

	ck_assert_ptr_null(mapb_put(&m, (struct slice){ 0 }, &values[0]));
	ck_assert_ptr_null(mapb_put(&m, slice_of("\0", 1), &values[1]));
	ck_assert_ptr_null(mapb_put(&m, slice_of("\0\0", 2), &values[2]));
	ck_assert_ptr_eq(mapb_get(&m, slice_of_str("")), &values[0]);
	ck_assert_ptr_eq(mapb_put(&m, slice_of("\0", 1), &values[3]), &values[1]);
	ck_assert_ptr_eq(mapb_get(&m, slice_of("\0", 1)), &values[3]);
	ck_assert_uint_eq(m.len, 3);
	mapb_deinit(&m);
}
END_TEST

/* Loop test: _i is the seed. */
START_TEST(mapb__agrees_with_an_array)
{
	struct mapb m = { 0 };
	void *model[KEYS] = { 0 };
	size_t live = 0;
	struct rng r;

	rng_init(&r, (uint64_t)_i);
	for (int turn = 0; turn < 20000; turn++) {
		size_t k = (size_t)rng_below(&r, KEYS);
		void *value = &values[rng_below(&r, KEYS)];
		uint32_t remove_chance = turn / 4000 % 2 ? 800000 : 300000;
		char text[32];
		struct slice key = byte_key(text, sizeof(text), k);

		ck_assert_ptr_eq(mapb_get(&m, key), model[k]);
		if (rng_chance(&r, remove_chance)) {
			ck_assert_ptr_eq(mapb_remove(&m, key), model[k]);
			live -= model[k] != NULL;
			model[k] = NULL;
		} else {
			ck_assert_ptr_eq(mapb_put(&m, key, value), model[k]);
			live += model[k] == NULL;
			model[k] = value;
		}
		ck_assert(m.len == live && m.used >= live && m.used * 4 <= m.cap * 3);
	}
	mapb_deinit(&m);
}
END_TEST

START_TEST(mapb__walk_may_remove_by_the_key_it_was_given)
{
	struct mapb m = { 0 };
	size_t pos = 0, seen = 0;
	struct slice key;
	void *value;

	for (size_t i = 0; i < KEYS; i++) {
		char text[32];

		mapb_put(&m, byte_key(text, sizeof(text), i), &values[i]);
	}
	while (mapb_next(&m, &pos, &key, &value)) {
		char text[32];

		ck_assert(slice_eq(key, byte_key(text, sizeof(text), (uint64_t)((char *)value - values))));
		ck_assert_ptr_eq(mapb_remove(&m, key), value);
		seen++;
	}
	ck_assert_uint_eq(seen, KEYS);
	ck_assert_uint_eq(m.len, 0);
	ck_assert_uint_eq(m.used, 0);
	mapb_deinit(&m);
}
END_TEST

Suite *map_suite(void)
{
	Suite *s = suite_create("map");
	TCase *tc64 = tcase_create("map64");
	TCase *tcb = tcase_create("mapb");

	tcase_add_test(tc64, map64__zeroed_is_empty);
	tcase_add_test(tc64, map64__put_returns_what_it_replaced);
	tcase_add_loop_test(tc64, map64__agrees_with_an_array, 0, 5);
	tcase_add_test(tc64, map64__walk_may_remove_what_it_sees);
	tcase_add_test(tc64, map64__churn_does_not_grow_the_table);
	suite_add_tcase(s, tc64);
	tcase_add_test(tcb, mapb__zeroed_is_empty);
	tcase_add_test(tcb, mapb__copies_its_keys);
	tcase_add_test(tcb, mapb__tells_odd_keys_apart);
	tcase_add_loop_test(tcb, mapb__agrees_with_an_array, 0, 5);
	tcase_add_test(tcb, mapb__walk_may_remove_by_the_key_it_was_given);
	suite_add_tcase(s, tcb);
	return s;
}
