/* T1 for real: readers on threads of their own walk views while the owner changes the live tree. Says little by itself; built with
 * -fsanitize=thread it proves that a reader and the owner never meet at one piece of memory. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "base/rng.h"
#include "core/tree/tree.h"
#include "note.h"

enum { KEYS = 2000, READERS = 2, ROUNDS = 20, CHANGES = 500 };

static struct slice key_be(uint64_t n, uint8_t bytes[8])
{
	for (int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(n >> (56 - 8 * i));
	return slice_of(bytes, 8);
}

struct reader {
	pthread_t thread;
	struct tree view;
	uint64_t want_len, want_sum;
	bool right;
};

static void *reader_main(void *arg)
{
	struct reader *rd = arg;
	struct tree_cursor c;
	uint64_t len = 0, sum = 0, found = 0;
	uint8_t bytes[8];

	for (struct tree_record *r = tree_first(&c, &rd->view); r; r = tree_next(&c), len++)
		sum += note_of(r)->value;
	for (uint64_t i = 0; i < KEYS; i++)
		found += tree_get(&rd->view, key_be(i, bytes)) != NULL;
	rd->right = len == rd->want_len && sum == rd->want_sum && found == len &&
		    tree_count(&rd->view, key_be(0, bytes), key_be(0, bytes), false) == len;
	return NULL;
}

static void change(struct tree *t, struct rng *rng, uint64_t value)
{
	uint8_t bytes[8];
	struct slice key = key_be(rng_below(rng, KEYS), bytes);
	struct tree_record *r;

	switch (rng_below(rng, 3)) {
	case 0:
		tree_remove(t, key);
		break;
	case 1:
		tree_put_take(t, note_new(key, value));
		break;
	default:
		r = tree_edit_begin(t, key);
		if (!r)
			break;
		note_of(r)->value = value;
		tree_edit_end(t, r);
	}
}

static void reader_start(struct reader *rd, const struct tree *t)
{
	struct tree_cursor c;

	*rd = (struct reader){ .view = tree_view(t), .want_len = t->len };
	for (struct tree_record *r = tree_first(&c, t); r; r = tree_next(&c))
		rd->want_sum += note_of(r)->value;
	ck_assert_int_eq(pthread_create(&rd->thread, NULL, reader_main, rd), 0);
}

START_TEST(tree__views_are_read_while_the_owner_writes)
{
	struct reader readers[READERS];
	struct tree t;
	struct rng rng;
	uint8_t bytes[8];

	rng_init(&rng, 1);
	tree_init(&t, &note_type);
	for (uint64_t i = 0; i < KEYS; i++)
		tree_put_take(&t, note_new(key_be(i, bytes), i));
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < READERS; i++) {
			reader_start(&readers[i], &t);
			for (uint64_t n = 0; n < CHANGES; n++)
				change(&t, &rng, n);
		}
		for (unsigned i = 0; i < READERS; i++) {
			pthread_join(readers[i].thread, NULL);
			ck_assert(readers[i].right);
			tree_deinit(&readers[i].view);
		}
		tree_check(&t);
	}
	tree_deinit(&t);
	ck_assert_int_eq(notes_alive, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_tree_threads");
	TCase *tc = tcase_create("threads");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, tree__views_are_read_while_the_owner_writes);
	suite_add_tcase(s, tc);
	srunner_set_fork_status(sr, CK_NOFORK); /* the thread sanitizer and fork do not get on */
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
