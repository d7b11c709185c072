#include "base/heap.h"

#include "base/mem.h"
#include "base/rng.h"
#include "suites.h"

enum { NODES = 300 };

/* (H1) and (H2) of heap.c */
static bool is_ordered(const struct heap *h)
{
	for (size_t i = 0; i < h->len; i++)
		if (h->at[i]->pos != i + 1 || h->at[i]->key < h->at[i > 0 ? (i - 1) / 2 : 0]->key)
			return false;
	return true;
}

START_TEST(heap__empty_has_no_smallest)
{
	struct heap h = { 0 };
	struct heap_node n = { 0 };

	ck_assert_ptr_null(heap_peek(&h));
	heap_remove(&h, &n);
	heap_deinit(&h);
	heap_deinit(NULL);
}
END_TEST

START_TEST(heap__gives_keys_in_order)
{
	struct heap h = { 0 };
	struct heap_node nodes[NODES] = { 0 };
	struct rng r;
	uint64_t last = 0;

	rng_init(&r, 7);
	for (size_t i = 0; i < NODES; i++)
		heap_insert(&h, &nodes[i], rng_below(&r, 100));
	ck_assert(is_ordered(&h));
	for (size_t i = 0; i < NODES; i++) {
		struct heap_node *n = heap_peek(&h);

		ck_assert_uint_ge(n->key, last);
		last = n->key;
		heap_remove(&h, n);
		ck_assert(!heap_contains(n));
		ck_assert(is_ordered(&h));
	}
	ck_assert_ptr_null(heap_peek(&h));
	heap_deinit(&h);
}
END_TEST

START_TEST(heap__update_inserts_and_moves)
{
	struct heap h = { 0 };
	struct heap_node a = { 0 }, b = { 0 };

	heap_update(&h, &a, 10);
	heap_update(&h, &b, 20);
	ck_assert_ptr_eq(heap_peek(&h), &a);
	heap_update(&h, &a, 30);
	ck_assert_ptr_eq(heap_peek(&h), &b);
	heap_update(&h, &a, 0);
	ck_assert_ptr_eq(heap_peek(&h), &a);
	heap_update(&h, &a, UINT64_MAX);
	ck_assert_ptr_eq(heap_peek(&h), &b);
	heap_remove(&h, &a);
	heap_remove(&h, &a);
	ck_assert_uint_eq(h.len, 1);
	heap_deinit(&h);
	ck_assert(!heap_contains(&b));
}
END_TEST

/* Loop test: _i is the seed. */
START_TEST(heap__stays_ordered_under_any_change)
{
	struct heap h = { 0 };
	struct heap_node nodes[NODES] = { 0 };
	struct rng r;

	rng_init(&r, (uint64_t)_i);
	for (int turn = 0; turn < 3000; turn++) {
		struct heap_node *n = &nodes[rng_below(&r, NODES)];
		uint64_t smallest = UINT64_MAX;
		size_t inside = 0;

		if (rng_chance(&r, 400000))
			heap_remove(&h, n);
		else
			heap_update(&h, n, rng_below(&r, 1000));
		ck_assert(is_ordered(&h));
		for (size_t i = 0; i < NODES; i++) {
			if (!heap_contains(&nodes[i]))
				continue;
			inside++;
			if (nodes[i].key < smallest)
				smallest = nodes[i].key;
		}
		ck_assert_uint_eq(inside, h.len);
		if (inside > 0)
			ck_assert_uint_eq(heap_peek(&h)->key, smallest);
	}
	heap_deinit(&h);
}
END_TEST

Suite *heap_suite(void)
{
	Suite *s = suite_create("heap");
	TCase *tc = tcase_create("heap");

	tcase_add_test(tc, heap__empty_has_no_smallest);
	tcase_add_test(tc, heap__gives_keys_in_order);
	tcase_add_test(tc, heap__update_inserts_and_moves);
	tcase_add_loop_test(tc, heap__stays_ordered_under_any_change, 0, 5);
	suite_add_tcase(s, tc);
	return s;
}
