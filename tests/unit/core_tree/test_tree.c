/* Stories about one tree and its views, then a long random walk beside a model: a plain array with one cell for each key there is. */
#include <check.h>

#include "base/mem.h"
#include "base/rng.h"
#include "core/tree/tree.h"
#include "note.h"
#include "support/scale.h"

static struct slice key_be(uint64_t n, uint8_t bytes[8])
{
	for (int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(n >> (56 - 8 * i));
	return slice_of(bytes, 8);
}

static void put(struct tree *t, const char *key, uint64_t value)
{
	tree_put_take(t, note_new(slice_of_str(key), value));
}

static uint64_t value_of(struct tree_record *r)
{
	return r ? note_of(r)->value : 0;
}

static uint64_t get(const struct tree *t, const char *key)
{
	return value_of(tree_get(t, slice_of_str(key)));
}

START_TEST(tree__empty_answers_everything_with_nothing)
{
	struct tree t, view;
	struct tree_cursor c;

	tree_init(&t, &note_type);
	ck_assert_ptr_null(tree_get(&t, slice_of_str("a")));
	ck_assert(!tree_remove(&t, slice_of_str("a")));
	ck_assert_ptr_null(tree_edit_begin(&t, slice_of_str("a")));
	ck_assert_ptr_null(tree_first(&c, &t));
	ck_assert_ptr_null(tree_last(&c, &t));
	ck_assert_ptr_null(tree_seek(&c, &t, slice_of_str("a")));
	ck_assert_ptr_null(tree_seek_before(&c, &t, slice_of_str("a")));
	ck_assert_ptr_null(tree_next(&c));
	ck_assert_ptr_null(tree_prev(&c));
	ck_assert_uint_eq(tree_count(&t, slice_of_str(""), slice_of_str("z"), true), 0);
	view = tree_view(&t);
	tree_check(&view);
	tree_deinit(&view);
	tree_deinit(&t);
	tree_deinit(&t);
}
END_TEST

START_TEST(tree__put_replaces_and_the_hash_follows)
{
	struct tree t;
	uint64_t hash;

	tree_init(&t, &note_type);
	put(&t, "a", 1);
	hash = t.hash;
	put(&t, "b", 2);
	put(&t, "b", 3);
	ck_assert_uint_eq(t.len, 2);
	ck_assert_uint_eq(get(&t, "b"), 3);
	ck_assert(tree_remove(&t, slice_of_str("b")));
	ck_assert_uint_eq(t.hash, hash);
	ck_assert(tree_remove(&t, slice_of_str("a")));
	ck_assert_uint_eq(t.hash, 0);
	ck_assert_ptr_null(t.root);
	ck_assert_int_eq(notes_alive, 0);
}
END_TEST

START_TEST(tree__a_record_may_be_removed_by_its_own_key)
{
	struct tree t;

	tree_init(&t, &note_type);
	put(&t, "a", 1);
	ck_assert(tree_remove(&t, note_key(tree_get(&t, slice_of_str("a")))));
	ck_assert_int_eq(notes_alive, 0);
}
END_TEST

START_TEST(tree__edit_changes_in_place_unless_a_view_looks_on)
{
	struct tree t, view;
	struct tree_record *r, *same;

	tree_init(&t, &note_type);
	put(&t, "a", 1);
	r = tree_edit_begin(&t, slice_of_str("a"));
	ck_assert_ptr_eq(r, tree_get(&t, slice_of_str("a")));
	note_of(r)->value = 2;
	tree_edit_end(&t, r);
	tree_check(&t);

	view = tree_view(&t);
	same = tree_edit_begin(&t, slice_of_str("a"));
	ck_assert_ptr_ne(r, same);
	note_of(same)->value = 3;
	tree_edit_end(&t, same);
	ck_assert_uint_eq(get(&view, "a"), 2);
	ck_assert_uint_eq(get(&t, "a"), 3);
	tree_check(&view);
	tree_check(&t);
	ck_assert_int_eq(notes_alive, 2);

	tree_deinit(&view);
	ck_assert_int_eq(notes_alive, 1);
	tree_deinit(&t);
	ck_assert_int_eq(notes_alive, 0);
}
END_TEST

START_TEST(tree__a_change_beside_a_view_copies_one_path_only)
{
	struct tree t, view;
	uint8_t bytes[8];

	tree_init(&t, &note_type);
	for (uint64_t i = 0; i < 10000; i++)
		tree_put_take(&t, note_new(key_be(i, bytes), i));
	view = tree_view(&t);
	for (uint64_t i = 0; i < 10; i++)
		tree_put_take(&t, note_new(key_be(i, bytes), i + 1));
	ck_assert_int_eq(notes_alive, 10010); /* nothing but what was put has a second version */
	tree_deinit(&t);                      /* the live tree may go first */
	ck_assert_int_eq(notes_alive, 10000);
	tree_check(&view);
	tree_deinit(&view);
	ck_assert_int_eq(notes_alive, 0);
}
END_TEST

START_TEST(tree__rising_keys_fill_its_leaves)
{
	struct tree t;
	struct tree_cursor c;
	uint8_t bytes[8];
	uint64_t n = 0, leaves = 0;

	tree_init(&t, &note_type);
	for (uint64_t i = 0; i < 20000; i++)
		tree_put_take(&t, note_new(key_be(i, bytes), i));
	tree_check(&t);
	for (struct tree_record *r = tree_first(&c, &t); r; r = tree_next(&c)) {
		ck_assert_uint_eq(note_of(r)->value, n++);
		leaves += c.at[c.depth - 1] == 0;
	}
	ck_assert_uint_eq(n, 20000);
	ck_assert_uint_le(leaves, 20000 / 24 + 1);
	for (uint64_t i = 20000; i-- > 0;)
		ck_assert(tree_remove(&t, key_be(i, bytes)));
	ck_assert_int_eq(notes_alive, 0);
}
END_TEST

/* ---- the random walk ---- */

enum { KEYS_MAX = 3000, VIEWS = 4 };

struct model {
	struct buf keys[KEYS_MAX]; /* all keys there are, in order */
	uint64_t values[KEYS_MAX]; /* 0: absent */
	unsigned len;
};

struct held_view {
	struct tree tree;
	uint64_t values[KEYS_MAX];
	unsigned open;
};

static int cmp_buf(const void *a, const void *b)
{
	return slice_cmp(buf_view(a), buf_view(b));
}

/* Few letters, so that keys are often each other's prefix; the empty key is one of them. */
static void model_init(struct model *m, struct rng *rng, unsigned keys)
{
	static const uint8_t letters[] = { 0x00, 'a', 0x7f, 0xff };
	unsigned n = 0;

	memset(m, 0, sizeof(*m));
	for (unsigned i = 0; i < keys; i++) {
		unsigned len = i == 0 ? 0 : (unsigned)rng_between(rng, 1, 9);
		for (unsigned j = 0; j < len; j++)
			buf_append_byte(&m->keys[i], letters[rng_below(rng, 4)]);
	}
	qsort(m->keys, keys, sizeof(m->keys[0]), cmp_buf);
	for (unsigned i = 0; i < keys; i++) {
		struct buf b = m->keys[i];
		if (n > 0 && slice_eq(buf_view(&m->keys[n - 1]), buf_view(&b)))
			buf_free(&b);
		else
			m->keys[n++] = b;
	}
	m->len = n;
}

static void model_deinit(struct model *m)
{
	for (unsigned i = 0; i < m->len; i++)
		buf_free(&m->keys[i]);
}

static struct slice model_key(const struct model *m, unsigned i)
{
	return buf_view(&m->keys[i]);
}

/* The tree is read forwards and backwards, and every key is looked up. */
static void check_equal(const struct tree *t, const struct model *m, const uint64_t *values)
{
	struct tree_cursor f, b;
	struct tree_record *r = tree_first(&f, t), *last = tree_last(&b, t);
	uint64_t len = 0;

	tree_check(t);
	for (unsigned i = 0; i < m->len; i++) {
		ck_assert_uint_eq(value_of(tree_get(t, model_key(m, i))), values[i]);
		if (!values[i])
			continue;
		len++;
		ck_assert(slice_eq(note_key(r), model_key(m, i)));
		r = tree_next(&f);
	}
	ck_assert_ptr_null(r);
	ck_assert_ptr_null(tree_next(&f));
	for (unsigned i = m->len; i-- > 0;) {
		if (!values[i])
			continue;
		ck_assert(slice_eq(note_key(last), model_key(m, i)));
		last = tree_prev(&b);
	}
	ck_assert_ptr_null(last);
	ck_assert_uint_eq(t->len, len);
}

static uint64_t model_count(const struct model *m, unsigned lo, unsigned hi)
{
	uint64_t n = 0;

	for (unsigned i = lo; i < hi; i++)
		n += m->values[i] != 0;
	return n;
}

static uint64_t seen_from(const struct model *m, unsigned i)
{
	while (i < m->len && !m->values[i])
		i++;
	return i < m->len ? m->values[i] : 0;
}

static uint64_t seen_before(const struct model *m, unsigned i)
{
	while (i > 0 && !m->values[i - 1])
		i--;
	return i > 0 ? m->values[i - 1] : 0;
}

static void check_looks(const struct tree *t, const struct model *m, unsigned i, unsigned j)
{
	struct tree_cursor c;
	unsigned after;

	ck_assert_uint_eq(value_of(tree_seek(&c, t, model_key(m, i))), seen_from(m, i));
	ck_assert_uint_eq(value_of(tree_seek_before(&c, t, model_key(m, i))), seen_before(m, i));
	if (c.depth > 0) { /* and on from there, over what lies between */
		after = i;
		while (after < m->len && !m->values[after])
			after++;
		ck_assert_uint_eq(value_of(tree_next(&c)), after < m->len ? m->values[after] : 0);
	}
	ck_assert_uint_eq(tree_count(t, model_key(m, i), model_key(m, j), true), i < j ? model_count(m, i, j) : 0);
	ck_assert_uint_eq(tree_count(t, model_key(m, i), model_key(m, j), false), model_count(m, i, m->len));
}

static void change_one(struct tree *t, struct model *m, unsigned i, uint64_t value, unsigned what)
{
	struct tree_record *r;

	if (what == 0) {
		ck_assert_int_eq(tree_remove(t, model_key(m, i)), m->values[i] != 0);
		m->values[i] = 0;
	} else if (what == 1) {
		r = tree_edit_begin(t, model_key(m, i));
		ck_assert_int_eq(r != NULL, m->values[i] != 0);
		if (!r)
			return;
		ck_assert_uint_eq(note_of(r)->value, m->values[i]);
		note_of(r)->value = m->values[i] = value;
		tree_edit_end(t, r);
	} else {
		tree_put_take(t, note_new(model_key(m, i), value));
		m->values[i] = value;
	}
}

static void turn_view(struct held_view *v, const struct tree *t, const struct model *m)
{
	if (v->open) {
		check_equal(&v->tree, m, v->values);
		for (size_t budget = 0; v->open == 2 && !tree_drop_some(&v->tree, &budget);)
			budget = 1 + m->values[0] % 40;
		tree_deinit(&v->tree);
	} else {
		v->tree = tree_view(t);
		memcpy(v->values, m->values, sizeof(v->values));
	}
	v->open = v->open ? 0 : 1 + m->values[0] % 2; /* 2: it will be closed in slices */
}

/* The live tree goes on changing between the slices. */
START_TEST(tree__a_view_is_dropped_in_slices)
{
	struct tree t, view;
	uint8_t bytes[8];
	size_t slices = 0, budget = 0;

	tree_init(&t, &note_type);
	for (uint64_t i = 0; i < 20000; i++)
		tree_put_take(&t, note_new(key_be(i, bytes), i));
	view = tree_view(&t);
	for (uint64_t i = 0; i < 20000; i += 2)
		tree_put_take(&t, note_new(key_be(i, bytes), i + 1));
	ck_assert_int_eq(notes_alive, 30000);
	for (budget = 500; !tree_drop_some(&view, &budget); budget = 500) {
		ck_assert_uint_eq(budget, 0);
		tree_remove(&t, key_be(slices++, bytes));
		if (slices % 8 == 0)
			tree_check(&t);
	}
	ck_assert_uint_gt(slices, 20000 / 500);
	ck_assert_uint_lt(slices, 20000 / 500 * 3);
	ck_assert_int_eq(notes_alive, 20000 - (long)slices);
	ck_assert(tree_drop_some(&view, &budget));
	budget = 0;
	view = tree_view(&t);
	ck_assert(!tree_drop_some(&view, &budget));
	budget = 1; /* nothing of it is the view's alone */
	ck_assert(tree_drop_some(&view, &budget));
	tree_check(&t);
	tree_deinit(&t);
	ck_assert_int_eq(notes_alive, 0);
}
END_TEST

START_TEST(tree__a_random_walk_agrees_with_an_array)
{
	static struct model m;
	static struct held_view views[VIEWS];
	struct tree t;
	struct rng rng;
	unsigned appetite = 0;

	rng_init(&rng, (uint64_t)_i);
	model_init(&m, &rng, _i % 3 == 0 ? 60 : KEYS_MAX);
	tree_init(&t, &note_type);
	for (uint64_t step = 1; step <= 30000; step++) {
		unsigned i = (unsigned)rng_below(&rng, m.len), j = (unsigned)rng_below(&rng, m.len);

		if (step % 3000 == 1) /* times of growth, of shrinking and of neither */
			appetite = (unsigned)rng_below(&rng, 5);
		change_one(&t, &m, i, step, rng_below(&rng, 4) >= appetite ? (unsigned)rng_below(&rng, 2) + 1 : 0);
		if (step % 16 == 0)
			check_looks(&t, &m, i, j);
		if (step % 500 == 0) {
			check_equal(&t, &m, m.values);
			turn_view(&views[rng_below(&rng, VIEWS)], &t, &m);
		}
	}
	for (unsigned i = 0; i < m.len; i++)
		tree_remove(&t, model_key(&m, i));
	ck_assert_uint_eq(t.len, 0);
	for (unsigned v = 0; v < VIEWS; v++)
		if (views[v].open)
			turn_view(&views[v], &t, &m);
	ck_assert_int_eq(notes_alive, 0);
	tree_deinit(&t);
	model_deinit(&m);
}
END_TEST

START_TEST(tree__same_content_same_hash_whatever_the_way)
{
	struct tree a, b;
	uint8_t bytes[8];

	tree_init(&a, &note_type);
	tree_init(&b, &note_type);
	for (uint64_t i = 0; i < 1000; i++) {
		tree_put_take(&a, note_new(key_be(i, bytes), i));
		tree_put_take(&b, note_new(key_be(999 - i, bytes), i));
	}
	for (uint64_t i = 0; i < 1000; i++)
		tree_put_take(&b, note_new(key_be(i, bytes), i));
	ck_assert_uint_eq(a.hash, b.hash);
	tree_deinit(&a);
	tree_deinit(&b);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_tree");
	TCase *tc = tcase_create("tree");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, tree__empty_answers_everything_with_nothing);
	tcase_add_test(tc, tree__put_replaces_and_the_hash_follows);
	tcase_add_test(tc, tree__a_record_may_be_removed_by_its_own_key);
	tcase_add_test(tc, tree__edit_changes_in_place_unless_a_view_looks_on);
	tcase_add_test(tc, tree__a_change_beside_a_view_copies_one_path_only);
	tcase_add_test(tc, tree__rising_keys_fill_its_leaves);
	tcase_add_test(tc, tree__a_view_is_dropped_in_slices);
	tcase_add_test(tc, tree__same_content_same_hash_whatever_the_way);
	tcase_add_loop_test(tc, tree__a_random_walk_agrees_with_an_array, 0, (int)test_scaled(12));
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
