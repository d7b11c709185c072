/* test_store.c: each line of the store's contract as a case of its own. */
#include "core/store/store.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "world.h"

static struct world w;

static void setup(void)
{
	world_init(&w);
}

static void teardown(void)
{
	world_deinit(&w);
}

static struct slice str(const char *s)
{
	return slice_of_str(s);
}

/* ---- revisions and versions ---- */

START_TEST(store__an_empty_store_is_at_revision_1)
{
	ck_assert_int_eq(w.st.revision, 1);
	ck_assert_ptr_null(store_get(w.store, str("a"), 0));
	ck_assert_str_eq(world_range(&w, "", "0", 0), "");
	ck_assert_uint_eq(world_count(&w, "", "0", 0), 0);
	ck_assert_uint_eq(store_history_begin(w.store, 0), store_history_end(w.store));
	ck_assert_uint_eq(store_bytes(w.store), 0);
	ck_assert_uint_eq(store_hash_kv(w.store, 0), 0);
}
END_TEST

START_TEST(store__a_put_counts_as_etcd_counts)
{
	const struct kv *kv;

	world_put_lease(&w, "a", "1", 7);
	world_put(&w, "b", "1");
	world_put(&w, "a", "2");
	ck_assert_int_eq(w.st.revision, 4);
	kv = store_get(w.store, str("a"), 0);
	ck_assert_int_eq(kv->create_revision, 2);
	ck_assert_int_eq(kv->mod_revision, 4);
	ck_assert_int_eq(kv->version, 2);
	ck_assert_int_eq(kv->lease, 0);
	kv = store_get(w.store, str("a"), 3);
	ck_assert_int_eq(kv->mod_revision, 2);
	ck_assert_int_eq(kv->version, 1);
	ck_assert_int_eq(kv->lease, 7);
}
END_TEST

START_TEST(store__a_key_made_again_starts_anew)
{
	const struct kv *kv;

	world_put(&w, "a", "1");
	world_put(&w, "a", "2");
	ck_assert_uint_eq(world_delete(&w, "a", ""), 1);
	ck_assert_ptr_null(store_get(w.store, str("a"), 0));
	world_put(&w, "a", "3");
	kv = store_get(w.store, str("a"), 0);
	ck_assert_int_eq(kv->create_revision, 5);
	ck_assert_int_eq(kv->version, 1);
	ck_assert_str_eq(world_kept(&w, "a"), "2.0/1 3.0/2 4.0/- 5.0/1");
	ck_assert_ptr_null(store_get(w.store, str("a"), 4));
	ck_assert_ptr_nonnull(store_get(w.store, str("a"), 3));
	ck_assert_ptr_null(store_get(w.store, str("a"), 1));
}
END_TEST

START_TEST(store__a_tombstone_has_version_0_and_create_revision_0)
{
	struct store_event e;

	world_put_lease(&w, "a", "1", 7);
	world_delete(&w, "a", "");
	e = store_history_at(w.store, store_history_end(w.store) - 1);
	ck_assert(kv_is_tombstone(e.kv));
	ck_assert_int_eq(e.kv->version, 0);
	ck_assert_int_eq(e.kv->create_revision, 0);
	ck_assert_int_eq(e.kv->mod_revision, 3);
	ck_assert_int_eq(e.kv->lease, 0);
	ck_assert_uint_eq(e.kv->value_len, 0);
	ck_assert(slice_eq(kv_key(e.kv), str("a")));
}
END_TEST

START_TEST(store__a_transaction_that_changes_nothing_has_no_revision)
{
	store_txn_begin(w.store);
	ck_assert_uint_eq(store_delete_range(w.store, str("a"), slice_of("", 1), NULL, NULL), 0);
	ck_assert_int_eq(store_txn_revision(w.store), 1);
	ck_assert(!store_txn_end(w.store));
	ck_assert_int_eq(w.st.revision, 1);
}
END_TEST

/* ---- inside a transaction ---- */

START_TEST(store__a_transaction_sees_its_own_writes_and_others_do_not)
{
	world_put(&w, "a", "old");
	store_txn_begin(w.store);
	store_put(w.store, str("a"), str("new"), 0, NULL);
	store_put(w.store, str("b"), str("new"), 0, NULL);
	ck_assert_int_eq(store_txn_revision(w.store), 3);
	ck_assert_int_eq(w.st.revision, 2);
	ck_assert_str_eq(world_range(&w, "", "0", 0), "a=new b=new");
	ck_assert_str_eq(world_range(&w, "", "0", 3), "a=new b=new");
	ck_assert_str_eq(world_range(&w, "", "0", 2), "a=old");
	ck_assert_uint_eq(world_count(&w, "", "0", 0), 2);
	ck_assert_uint_eq(world_count(&w, "", "0", 2), 1);
	ck_assert_int_eq(store_check_revision(w.store, 3), ERR_OK);
	ck_assert_int_eq(store_check_revision(w.store, 4), ERR_FUTURE_REVISION);
	ck_assert(store_txn_end(w.store));
	ck_assert_int_eq(w.st.revision, 3);
}
END_TEST

START_TEST(store__writes_of_one_transaction_share_a_revision_and_are_told_apart_by_sub)
{
	store_txn_begin(w.store);
	store_put(w.store, str("b"), str("1"), 0, NULL);
	store_put(w.store, str("a"), str("1"), 0, NULL);
	store_txn_end(w.store);
	world_put(&w, "c", "1");
	ck_assert_str_eq(world_events(&w, 0), "2.0+b 2.1+a 3.0+c");
}
END_TEST

START_TEST(store__one_key_may_change_often_in_a_transaction)
{
	const struct kv *prev;

	world_put(&w, "a", "0");
	store_txn_begin(w.store);
	store_put(w.store, str("a"), str("1"), 0, &prev);
	ck_assert_int_eq(prev->mod_revision, 2);
	ck_assert_uint_eq(store_delete_range(w.store, str("a"), str(""), NULL, NULL), 1);
	ck_assert_ptr_null(store_get(w.store, str("a"), 0));
	ck_assert_uint_eq(world_count(&w, "", "0", 0), 0);
	store_put(w.store, str("a"), str("2"), 0, &prev);
	ck_assert_ptr_null(prev);
	store_put(w.store, str("a"), str("3"), 0, &prev);
	ck_assert(slice_eq(kv_value(prev), str("2")));
	store_txn_end(w.store);
	ck_assert_str_eq(world_kept(&w, "a"), "2.0/1 3.0/2 3.1/- 3.2/1 3.3/2");
	ck_assert_str_eq(world_range(&w, "", "0", 3), "a=3");
	ck_assert_str_eq(world_range(&w, "", "0", 2), "a=0");
	ck_assert_str_eq(world_events(&w, 3), "3.0+a<2 3.1-a<3 3.2+a 3.3+a<3");
	/* All of revision 3 is history still, and stays through a snapshot. */
	ck_assert_int_eq(store_compact(w.store, 3), ERR_OK);
	ck_assert_str_eq(world_kept(&w, "a"), "3.0/2 3.1/- 3.2/1 3.3/2");
	ck_assert_str_eq(world_events(&w, 3), "3.0+a 3.1-a<3 3.2+a 3.3+a<3");
	world_reload(&w);
	ck_assert_str_eq(world_events(&w, 3), "3.0+a 3.1-a<3 3.2+a 3.3+a<3");
	world_put(&w, "b", "1");
	ck_assert_int_eq(store_compact(w.store, 4), ERR_OK);
	ck_assert_str_eq(world_kept(&w, "a"), "3.3/2");
}
END_TEST

START_TEST(store__a_key_made_and_deleted_in_one_transaction_leaves_only_its_events)
{
	store_txn_begin(w.store);
	store_put(w.store, str("a"), str("1"), 0, NULL);
	store_delete_range(w.store, str("a"), str(""), NULL, NULL);
	ck_assert(store_txn_end(w.store));
	ck_assert_int_eq(w.st.revision, 2);
	ck_assert_ptr_null(store_get(w.store, str("a"), 2));
	ck_assert_str_eq(world_events(&w, 0), "2.0+a 2.1-a<2");
}
END_TEST

START_TEST(store__the_value_may_be_lent_by_the_store_itself)
{
	const struct kv *prev;

	world_put(&w, "a", "same");
	store_txn_begin(w.store);
	prev = store_get(w.store, str("a"), 0);
	store_put(w.store, kv_key(prev), kv_value(prev), 9, NULL);
	store_txn_end(w.store);
	ck_assert_str_eq(world_range(&w, "a", "", 0), "a=same");
	ck_assert_int_eq(store_get(w.store, str("a"), 0)->lease, 9);
}
END_TEST

/* ---- ranges ---- */

START_TEST(store__ranges_end_as_etcds_do)
{
	for (const char *k = "abcd"; *k; k++)
		world_put(&w, (char[]){ *k, 0 }, "1");
	world_put(&w, "bb", "1");
	world_delete(&w, "c", "");
	ck_assert_str_eq(world_range(&w, "b", "", 0), "b=1");
	ck_assert_str_eq(world_range(&w, "c", "", 0), "");
	ck_assert_str_eq(world_range(&w, "a", "c", 0), "a=1 b=1 bb=1");
	ck_assert_str_eq(world_range(&w, "b", "0", 0), "b=1 bb=1 d=1");
	ck_assert_str_eq(world_range(&w, "c", "a", 0), "");
	ck_assert_str_eq(world_range(&w, "b", "b", 0), "");
	ck_assert_uint_eq(world_count(&w, "b", "", 0), 1);
	ck_assert_uint_eq(world_count(&w, "c", "", 0), 0);
	ck_assert_uint_eq(world_count(&w, "a", "d", 0), 3);
	ck_assert_uint_eq(world_count(&w, "b", "0", 0), 3);
	ck_assert_uint_eq(world_count(&w, "c", "a", 0), 0);
	ck_assert_uint_eq(world_count(&w, "a", "d", 6), 4);
}
END_TEST

static bool stop_at_two(void *ctx, const struct kv *kv)
{
	(void)kv;
	return ++*(int *)ctx < 2;
}

START_TEST(store__a_walk_ends_when_it_is_told_to)
{
	int seen = 0;

	for (const char *k = "abcd"; *k; k++)
		world_put(&w, (char[]){ *k, 0 }, "1");
	store_walk(w.store, (struct store_range){ .key = str("a"), .end = slice_of("", 1) }, stop_at_two, &seen);
	ck_assert_int_eq(seen, 2);
}
END_TEST

struct tally {
	struct buf text;
	int calls;
};

static void note_deleted(void *ctx, const struct kv *prev)
{
	struct tally *t = ctx;

	ck_assert_ptr_eq(store_get(w.store, kv_key(prev), 0), prev); /* it is not deleted yet */
	buf_append_slice(&t->text, kv_key(prev));
	t->calls++;
}

START_TEST(store__a_delete_tells_each_version_first_in_key_order)
{
	struct tally t = { .calls = 0 };
	char key[16];

	for (int i = 99; i >= 0; i--) {
		snprintf(key, sizeof key, "k%02d", i);
		world_put(&w, key, "1");
	}
	world_delete(&w, "k50", "");
	store_txn_begin(w.store);
	ck_assert_uint_eq(store_delete_range(w.store, str("k48"), str("k53"), note_deleted, &t), 4);
	ck_assert_uint_eq(store_delete_range(w.store, str("k"), slice_of("", 1), note_deleted, &t), 95);
	store_txn_end(w.store);
	ck_assert_int_eq(t.calls, 99);
	ck_assert_int_eq(memcmp(t.text.ptr, "k48k49k51k52k00k01", 18), 0);
	ck_assert_uint_eq(world_count(&w, "", "0", 0), 0);
	buf_free(&t.text);
}
END_TEST

static void note_change(void *ctx, const struct kv *prev, const struct kv *next)
{
	struct tally *t = ctx;

	ck_assert_ptr_eq(store_get(w.store, kv_key(next), 0), kv_is_tombstone(next) ? NULL : next); /* it is done already */
	buf_printf(&t->text, "%d>%d ", prev ? (int)prev->version : -1, (int)next->version);
	t->calls++;
}

START_TEST(store__the_listener_hears_every_change_in_order)
{
	struct tally t = { .calls = 0 };

	store_on_change(w.store, note_change, &t);
	world_put(&w, "a", "1");
	world_put(&w, "a", "2");
	world_delete(&w, "", "0");
	world_put(&w, "a", "3");
	store_compact(w.store, 4);
	buf_append_byte(&t.text, 0);
	ck_assert_str_eq((const char *)t.text.ptr, "-1>1 1>2 2>0 -1>1 ");
	buf_free(&t.text);
}
END_TEST

/* ---- compaction ---- */

START_TEST(store__compaction_answers_as_etcd_does)
{
	world_put(&w, "a", "1");
	world_put(&w, "a", "2");
	ck_assert_int_eq(store_compact(w.store, 0), ERR_OK);
	ck_assert_int_eq(store_compact(w.store, -1), ERR_COMPACTED);
	ck_assert_int_eq(store_compact(w.store, 4), ERR_FUTURE_REVISION);
	ck_assert_int_eq(store_compact(w.store, INT64_MAX), ERR_FUTURE_REVISION);
	ck_assert_int_eq(w.st.compact_revision, 0);
	ck_assert_int_eq(store_compact(w.store, 2), ERR_OK);
	ck_assert_int_eq(store_compact(w.store, 2), ERR_COMPACTED);
	ck_assert_int_eq(store_compact(w.store, 1), ERR_COMPACTED);
	ck_assert_int_eq(store_compact(w.store, 0), ERR_COMPACTED);
	ck_assert_int_eq(store_compact(w.store, 3), ERR_OK);
	ck_assert_int_eq(w.st.revision, 3);
	ck_assert_int_eq(store_check_revision(w.store, 0), ERR_OK);
	ck_assert_int_eq(store_check_revision(w.store, 2), ERR_COMPACTED);
	ck_assert_int_eq(store_check_revision(w.store, 3), ERR_OK);
	ck_assert_int_eq(store_check_revision(w.store, 4), ERR_FUTURE_REVISION);
}
END_TEST

START_TEST(store__compaction_keeps_what_a_reader_at_it_sees)
{
	world_put(&w, "a", "1");  /* 2 */
	world_put(&w, "a", "2");  /* 3 */
	world_put(&w, "b", "1");  /* 4 */
	world_put(&w, "a", "3");  /* 5 */
	ck_assert_int_eq(store_compact(w.store, 4), ERR_OK);
	ck_assert_str_eq(world_kept(&w, "a"), "3.0/2 5.0/3");
	ck_assert_str_eq(world_range(&w, "", "0", 4), "a=2 b=1");
	ck_assert_str_eq(world_events(&w, 0), "4.0+b 5.0+a<3");
	ck_assert_int_eq(store_compact(w.store, 5), ERR_OK);
	ck_assert_str_eq(world_kept(&w, "a"), "5.0/3");
	ck_assert_str_eq(world_events(&w, 0), "5.0+a"); /* prev was revision 3, and is gone */
	ck_assert_str_eq(world_range(&w, "", "0", 5), "a=3 b=1");
}
END_TEST

START_TEST(store__a_tombstone_stays_at_its_exact_compaction_and_goes_with_the_next)
{
	world_put(&w, "a", "1");
	world_delete(&w, "a", ""); /* 3 */
	world_put(&w, "b", "1");   /* 4 */
	ck_assert_int_eq(store_compact(w.store, 3), ERR_OK);
	ck_assert_str_eq(world_kept(&w, "a"), "3.0/-");
	ck_assert_str_eq(world_events(&w, 0), "3.0-a 4.0+b");
	ck_assert_uint_eq(world_count(&w, "", "0", 0), 1);
	world_reload(&w);
	ck_assert_int_eq(store_compact(w.store, 4), ERR_OK);
	ck_assert_str_eq(world_kept(&w, "a"), "");
	ck_assert_uint_eq(w.st.keys.len, 1);
	ck_assert_uint_eq(world_count(&w, "", "0", 0), 1);
}
END_TEST

START_TEST(store__a_key_deleted_below_the_compaction_leaves_the_tree)
{
	world_put(&w, "a", "1");
	world_put(&w, "a", "2");
	world_delete(&w, "a", "");
	world_put(&w, "a", "3"); /* 5 */
	world_delete(&w, "a", "");
	world_put(&w, "b", "1"); /* 7 */
	ck_assert_int_eq(store_compact(w.store, 7), ERR_OK);
	ck_assert_uint_eq(w.st.keys.len, 1);
	ck_assert_str_eq(world_events(&w, 0), "7.0+b");
}
END_TEST

START_TEST(store__compaction_below_a_life_keeps_no_tombstone_before_it)
{
	world_put(&w, "a", "1");
	world_delete(&w, "a", ""); /* 3 */
	world_put(&w, "b", "1");   /* 4 */
	world_put(&w, "a", "2");   /* 5 */
	ck_assert_int_eq(store_compact(w.store, 4), ERR_OK);
	ck_assert_str_eq(world_kept(&w, "a"), "5.0/1");
	ck_assert_str_eq(world_events(&w, 5), "5.0+a");
}
END_TEST

START_TEST(store__compaction_in_one_step_or_many_leaves_the_same)
{
	struct world v;

	for (int i = 0; i < 300; i++) {
		world_put(&w, (char[]){ (char)('a' + i * 7 % 10), 0 }, "1");
		if (i % 3 == 0)
			world_delete(&w, (char[]){ (char)('a' + i * 5 % 10), 0 }, "");
	}
	world_copy(&w, &v);
	for (revision at = 3; at < 250; at += 1 + at % 3)
		ck_assert_int_eq(store_compact(v.store, at), ERR_OK);
	ck_assert_int_eq(store_compact(v.store, 260), ERR_OK);
	ck_assert_int_eq(store_compact(w.store, 260), ERR_OK);
	ck_assert_same_state(&w, &v);
	world_deinit(&v);
}
END_TEST

START_TEST(store__compaction_leaves_views_whole)
{
	struct tree view;
	struct buf before, after;

	world_put(&w, "a", "1");
	world_put(&w, "a", "2");
	world_put(&w, "gone", "1");
	world_delete(&w, "gone", "");
	world_put(&w, "b", "1");
	view = tree_view(&w.st.keys);
	before = tree_encode(&view);
	world_put(&w, "a", "3");
	ck_assert_int_eq(store_compact(w.store, w.st.revision), ERR_OK);
	ck_assert_uint_eq(w.st.keys.len, 2);
	after = tree_encode(&view);
	ck_assert(slice_eq(buf_view(&before), buf_view(&after)));
	tree_check(&view);
	tree_deinit(&view);
	buf_free(&before);
	buf_free(&after);
}
END_TEST

/* ---- history ---- */

START_TEST(store__history_is_found_by_revision)
{
	uint64_t n;

	for (const char *k = "abcd"; *k; k++)
		world_put(&w, (char[]){ *k, 0 }, "1");
	n = store_history_begin(w.store, 0);
	ck_assert_uint_eq(store_history_begin(w.store, -5), n);
	ck_assert_uint_eq(store_history_begin(w.store, 3), n + 1);
	ck_assert_uint_eq(store_history_begin(w.store, 6), n + 4);
	ck_assert_uint_eq(store_history_begin(w.store, 7), store_history_end(w.store));
	ck_assert_uint_eq(store_history_begin(w.store, INT64_MAX), store_history_end(w.store));
	ck_assert_int_eq(store_compact(w.store, 4), ERR_OK);
	ck_assert_uint_eq(store_history_begin(w.store, 0), n + 2); /* numbers stay with their events */
	ck_assert_int_eq(store_history_at(w.store, n + 2).kv->mod_revision, 4);
}
END_TEST

START_TEST(store__history_grows_and_shrinks_around_its_ring)
{
	for (int i = 0; i < 2000; i++) {
		world_put(&w, "k", "1");
		if (i % 97 == 0)
			ck_assert_int_eq(store_compact(w.store, w.st.revision - i % 50), ERR_OK);
	}
	store_check(w.store);
	ck_assert_int_eq(store_compact(w.store, w.st.revision), ERR_OK);
	ck_assert_uint_eq(store_history_end(w.store) - store_history_begin(w.store, 0), 1);
	ck_assert_uint_eq(store_history_end(w.store), 2000);
}
END_TEST

START_TEST(store__a_key_is_unchanged_only_when_that_is_certain)
{
	world_put(&w, "live", "1");    /* 2 */
	world_put(&w, "dead", "1");    /* 3 */
	world_delete(&w, "dead", "");  /* 4 */
	world_put(&w, "fresh", "1");   /* 5 */
	world_put(&w, "gone", "1");    /* 6 */
	world_delete(&w, "gone", "");  /* 7 */
	ck_assert(store_key_unchanged_since(w.store, str("never"), 1)); /* nothing was ever compacted */
	ck_assert_int_eq(store_compact(w.store, 6), ERR_OK);
	ck_assert(!store_key_unchanged_since(w.store, str("live"), 2));
	ck_assert(store_key_unchanged_since(w.store, str("live"), 3));
	ck_assert(!store_key_unchanged_since(w.store, str("fresh"), 5));
	ck_assert(store_key_unchanged_since(w.store, str("fresh"), 6));
	ck_assert(!store_key_unchanged_since(w.store, str("gone"), 6));
	ck_assert(store_key_unchanged_since(w.store, str("gone"), 8)); /* its tombstone is remembered */
	ck_assert(!store_key_unchanged_since(w.store, str("dead"), 3));
	ck_assert(!store_key_unchanged_since(w.store, str("dead"), 5)); /* true, but nobody can tell any more */
	ck_assert(store_key_unchanged_since(w.store, str("dead"), 6));
	ck_assert(!store_key_unchanged_since(w.store, str("never"), 5));
	ck_assert(!store_key_unchanged_since(w.store, str("live"), 0));
}
END_TEST

/* ---- size and proof ---- */

START_TEST(store__size_depends_on_the_contents_alone)
{
	uint64_t one;

	world_put(&w, "a", "0123456789");
	one = store_bytes(w.store);
	ck_assert_uint_gt(one, 1 + 10 + sizeof(struct kv));
	ck_assert_uint_lt(one, 512);
	for (int i = 0; i < 100; i++)
		world_put(&w, "a", "0123456789");
	ck_assert_uint_gt(store_history_bytes(w.store), 100 * sizeof(struct kv));
	ck_assert_int_eq(store_compact(w.store, w.st.revision), ERR_OK);
	ck_assert_uint_eq(store_bytes(w.store), one);
	ck_assert_uint_lt(store_history_bytes(w.store), 32);
	world_delete(&w, "a", "");
	world_put(&w, "b", "0123456789");
	ck_assert_uint_gt(store_history_bytes(w.store), store_bytes(w.store) / 2);
	ck_assert_int_eq(store_compact(w.store, w.st.revision), ERR_OK);
	ck_assert_uint_eq(store_bytes(w.store), one);
}
END_TEST

START_TEST(store__hash_kv_covers_what_a_reader_may_see)
{
	struct world v;
	uint32_t at_2;

	world_put(&w, "a", "1");
	at_2 = store_hash_kv(w.store, 2);
	ck_assert_uint_ne(at_2, 0);
	ck_assert_uint_eq(store_hash_kv(w.store, 1), 0);
	world_put(&w, "a", "2");
	ck_assert_uint_eq(store_hash_kv(w.store, 2), at_2);
	ck_assert_uint_ne(store_hash_kv(w.store, 3), at_2);
	ck_assert_uint_eq(store_hash_kv(w.store, 3), store_hash_kv(w.store, 0));
	world_init(&v);
	world_put(&v, "a", "1");
	world_put(&v, "a", "3");
	ck_assert_uint_eq(store_hash_kv(v.store, 2), at_2);
	ck_assert_uint_ne(store_hash_kv(v.store, 0), store_hash_kv(w.store, 0));
	ck_assert_uint_ne(v.st.keys.hash, w.st.keys.hash);
	/* A key that was last written before the compaction counts as well. */
	world_put(&w, "b", "1");
	ck_assert_int_eq(store_compact(w.store, 4), ERR_OK);
	at_2 = store_hash_kv(w.store, 0);
	world_put(&v, "b", "1");
	ck_assert_int_eq(store_compact(v.store, 4), ERR_OK);
	ck_assert_uint_ne(store_hash_kv(v.store, 0), at_2);
	world_deinit(&v);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("core_store");
	TCase *tc = tcase_create("contract");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, store__an_empty_store_is_at_revision_1);
	tcase_add_test(tc, store__a_put_counts_as_etcd_counts);
	tcase_add_test(tc, store__a_key_made_again_starts_anew);
	tcase_add_test(tc, store__a_tombstone_has_version_0_and_create_revision_0);
	tcase_add_test(tc, store__a_transaction_that_changes_nothing_has_no_revision);
	tcase_add_test(tc, store__a_transaction_sees_its_own_writes_and_others_do_not);
	tcase_add_test(tc, store__writes_of_one_transaction_share_a_revision_and_are_told_apart_by_sub);
	tcase_add_test(tc, store__one_key_may_change_often_in_a_transaction);
	tcase_add_test(tc, store__a_key_made_and_deleted_in_one_transaction_leaves_only_its_events);
	tcase_add_test(tc, store__the_value_may_be_lent_by_the_store_itself);
	tcase_add_test(tc, store__ranges_end_as_etcds_do);
	tcase_add_test(tc, store__a_walk_ends_when_it_is_told_to);
	tcase_add_test(tc, store__a_delete_tells_each_version_first_in_key_order);
	tcase_add_test(tc, store__the_listener_hears_every_change_in_order);
	tcase_add_test(tc, store__compaction_answers_as_etcd_does);
	tcase_add_test(tc, store__compaction_keeps_what_a_reader_at_it_sees);
	tcase_add_test(tc, store__a_tombstone_stays_at_its_exact_compaction_and_goes_with_the_next);
	tcase_add_test(tc, store__a_key_deleted_below_the_compaction_leaves_the_tree);
	tcase_add_test(tc, store__compaction_below_a_life_keeps_no_tombstone_before_it);
	tcase_add_test(tc, store__compaction_in_one_step_or_many_leaves_the_same);
	tcase_add_test(tc, store__compaction_leaves_views_whole);
	tcase_add_test(tc, store__history_is_found_by_revision);
	tcase_add_test(tc, store__history_grows_and_shrinks_around_its_ring);
	tcase_add_test(tc, store__a_key_is_unchanged_only_when_that_is_certain);
	tcase_add_test(tc, store__size_depends_on_the_contents_alone);
	tcase_add_test(tc, store__hash_kv_covers_what_a_reader_may_see);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
