/* What a client of Watch sees, one behaviour a test. Revision 1 is the empty store. */
#include "world.h"

#include <stdio.h>

#include "base/mem.h"

static struct world w;

static void setup(void)
{
	world_init(&w);
}

static void teardown(void)
{
	world_deinit(&w);
}

#define SEES(c, s) ck_assert_str_eq(client_text(c), s)

/* ---- creation ---- */

START_TEST(watch__answers_the_creation_first_and_then_tells_what_happens)
{
	struct client *c = world_watch(&w);

	client_create(c, (struct watch_spec){ .key = "a" });
	world_put(&w, "a", "1");
	world_put(&w, "b", "1");
	SEES(c, "created 0@1 0@3[a=1#2]");
	world_put(&w, "a", "2");
	world_delete(&w, "a", "");
	SEES(c, "0@5[a=2#4 -a#5]");
	world_put(&w, "b", "2");
	SEES(c, "");
}
END_TEST

START_TEST(watch__ids_are_given_from_zero_or_chosen_by_the_client)
{
	struct client *c = world_watch(&w);

	client_create(c, (struct watch_spec){ .key = "a" });
	client_create(c, (struct watch_spec){ .key = "a", .id = 2 });
	client_create(c, (struct watch_spec){ .key = "a" });
	client_create(c, (struct watch_spec){ .key = "a" });
	client_create(c, (struct watch_spec){ .key = "a", .id = -7 });
	SEES(c, "created 0@1 created 2@1 created 1@1 created 3@1 created -7@1");
	world_put(&w, "a", "1");
	SEES(c, "0@2[a=1#2] 2@2[a=1#2] 1@2[a=1#2] 3@2[a=1#2] -7@2[a=1#2]");
}
END_TEST

START_TEST(watch__a_duplicate_id_is_refused_and_zero_is_an_id_like_others)
{
	struct client *c = world_watch(&w);

	client_create(c, (struct watch_spec){ .key = "a", .id = 5 });
	client_create(c, (struct watch_spec){ .key = "b", .id = 5 });
	SEES(c, "created 5@1 refused@1(mvcc: duplicate watch ID provided on the WatchStream)");
	client_create(c, (struct watch_spec){ .key = "a" });
	client_cancel(c, 0);
	client_create(c, (struct watch_spec){ .key = "a" });
	SEES(c, "created 0@1 canceled 0@1 created 1@1");
}
END_TEST

START_TEST(watch__an_empty_range_is_refused)
{
	struct client *c = world_watch(&w);

	client_create(c, (struct watch_spec){ .key = "b", .end = "a" });
	client_create(c, (struct watch_spec){ .key = "b", .end = "b" });
	SEES(c, "refused@1(mvcc: watcher range is empty) refused@1(mvcc: watcher range is empty)");
}
END_TEST

START_TEST(watch__a_negative_start_is_refused)
{
	struct client *c = world_watch(&w);

	client_create(c, (struct watch_spec){ .key = "a", .from = -1 });
	client_create(c, (struct watch_spec){ .key = "a", .from = INT64_MIN, .id = 4 });
	SEES(c, "refused@1(etcdserver: mvcc: required revision has been compacted) "
		"refused@1(etcdserver: mvcc: required revision has been compacted)");
	world_put(&w, "a", "1");
	SEES(c, "");
}
END_TEST

START_TEST(watch__ranges_are_etcds)
{
	struct client *c = world_watch(&w);

	client_create(c, (struct watch_spec){ .key = "b", .end = "c", .id = 1 });
	client_create(c, (struct watch_spec){ .key = "b", .end = "0", .id = 2 });
	client_create(c, (struct watch_spec){ .key = "", .end = "0", .id = 3 });
	client_create(c, (struct watch_spec){ .key = "", .end = "b", .id = 4 });
	client_create(c, (struct watch_spec){ .key = "", .id = 5 });
	SEES(c, "created 1@1 created 2@1 created 3@1 created 4@1 created 5@1");
	world_put(&w, "a", "");
	SEES(c, "4@2[a=#2] 3@2[a=#2]");
	world_put(&w, "bb", "");
	SEES(c, "3@3[bb=#3] 1@3[bb=#3] 2@3[bb=#3]");
	world_put(&w, "c", "");
	SEES(c, "3@4[c=#4] 2@4[c=#4]");
}
END_TEST

START_TEST(watch__too_many_on_one_stream_are_refused)
{
	struct client *c;

	watches_free(w.watches);
	w.config.max_watchers = 2;
	w.watches = watches_new(&w.config, &w.env);
	c = world_watch(&w);
	for (int i = 0; i < 3; i++)
		client_create(c, (struct watch_spec){ .key = "a" });
	client_cancel(c, 0);
	client_create(c, (struct watch_spec){ .key = "a" });
	SEES(c, "created 0@1 created 1@1 refused@1(etcdserver: too many requests) canceled 0@1 created 2@1");
}
END_TEST

START_TEST(watch__too_many_by_one_connection_are_refused)
{
	struct client *a, *b, *observer, *other;
	struct watch_stats stats;

	watches_free(w.watches);
	w.config.max_connection = 3;
	w.watches = watches_new(&w.config, &w.env);
	w.connection = 7;
	a = world_watch(&w);
	b = world_watch(&w);
	for (int i = 0; i < 2; i++)
		client_create(a, (struct watch_spec){ .key = "a" });
	for (int i = 0; i < 2; i++)
		client_create(b, (struct watch_spec){ .key = "a" });
	SEES(a, "created 0@1 created 1@1");
	SEES(b, "created 0@1 refused@1(etcdserver: too many requests)");
	observer = world_observe(&w, "lock", false);
	SEES(observer, "end ERR_TOO_MANY_REQUESTS");
	w.connection = 8;
	other = world_watch(&w);
	client_create(other, (struct watch_spec){ .key = "a" });
	SEES(other, "created 0@1");
	client_cancel(a, 1);
	client_create(b, (struct watch_spec){ .key = "a" });
	SEES(a, "canceled 1@1");
	SEES(b, "created 1@1");
	client_close(a);
	SEES(b, ""); /* what it had is free, once its end has been handed over */
	client_create(b, (struct watch_spec){ .key = "a" });
	client_create(b, (struct watch_spec){ .key = "a" });
	SEES(b, "created 2@1 refused@1(etcdserver: too many requests)");
	watches_stats(w.watches, &stats);
	ck_assert_uint_eq(stats.refused, 3);
}
END_TEST

/* ---- where it starts ---- */

START_TEST(watch__from_the_past_reads_history)
{
	struct client *c = world_watch(&w);

	world_put(&w, "a", "1");
	world_put(&w, "b", "1");
	world_put(&w, "a", "2");
	client_create(c, (struct watch_spec){ .key = "a", .from = 1 });
	client_create(c, (struct watch_spec){ .key = "a", .from = 3 });
	SEES(c, "created 0@4 created 1@4 1@4[a=2#4] 0@4[a=1#2 a=2#4]");
	world_put(&w, "a", "3");
	SEES(c, "1@5[a=3#5] 0@5[a=3#5]");
}
END_TEST

START_TEST(watch__from_the_future_waits_for_it)
{
	struct client *c = world_watch(&w);

	world_put(&w, "a", "1");
	client_create(c, (struct watch_spec){ .key = "a", .from = 5 });
	client_progress(c);
	SEES(c, "created 0@2 progress -1@2");
	world_put(&w, "a", "2");
	world_put(&w, "a", "3");
	SEES(c, "");
	world_put(&w, "a", "4");
	world_put(&w, "a", "5");
	SEES(c, "0@6[a=4#5 a=5#6]");
}
END_TEST

static void three_more(struct world *o)
{
	world_put(o, "a", "x");
	world_put(o, "a", "y");
	world_put(o, "a", "z");
}

/* A client that was at revision 9 of another replica resumes here, where only 3 is known: it must not be told what it has seen. */
START_TEST(watch__from_the_future_gets_nothing_old_when_a_lagging_replica_catches_up)
{
	struct client *c = world_watch(&w);

	world_put(&w, "a", "1");
	client_create(c, (struct watch_spec){ .key = "a", .from = 5 });
	SEES(c, "created 0@2");
	world_install(&w, 0, three_more);
	SEES(c, "0@5[a=z#5]");
	client_create(c, (struct watch_spec){ .key = "a", .from = 9 });
	world_install(&w, 4, three_more);
	SEES(c, "created 1@5 0@8[a=x#6 a=y#7 a=z#8]");
	world_put(&w, "a", "9");
	SEES(c, "0@9[a=9#9] 1@9[a=9#9]");
}
END_TEST

/* ---- what it tells ---- */

START_TEST(watch__prev_kv_is_what_was_before)
{
	struct client *c = world_watch(&w);

	client_create(c, (struct watch_spec){ .key = "a", .prev_kv = true });
	SEES(c, "created 0@1");
	world_put(&w, "a", "1");
	world_put(&w, "a", "2");
	world_delete(&w, "a", "");
	world_put(&w, "a", "3");
	SEES(c, "0@5[a=1#2 a=2#3<1 -a#4<2 a=3#5]");
}
END_TEST

START_TEST(watch__filters_leave_out)
{
	struct client *c = world_watch(&w);

	client_create(c, (struct watch_spec){ .key = "a", .no_put = true });
	client_create(c, (struct watch_spec){ .key = "a", .no_delete = true });
	client_create(c, (struct watch_spec){ .key = "a", .no_put = true, .no_delete = true });
	SEES(c, "created 0@1 created 1@1 created 2@1");
	world_put(&w, "a", "1");
	SEES(c, "1@2[a=1#2]");
	world_delete(&w, "a", "");
	SEES(c, "0@3[-a#3]");
}
END_TEST

START_TEST(watch__one_transaction_is_one_response)
{
	struct client *c = world_watch(&w);

	client_create(c, (struct watch_spec){ .key = "", .end = "0" });
	world_put_two(&w, "b", "a");
	SEES(c, "created 0@1 0@2[b=t#2 a=t#2]");
	world_delete(&w, "a", "0");
	SEES(c, "0@3[-a#3 -b#3]");
}
END_TEST

static void put_big(const char *key, size_t len)
{
	char *value = mem_zalloc(len + 1);

	memset(value, 'v', len);
	world_put(&w, key, value);
	free(value);
}

static size_t count(const char *s, const char *what)
{
	size_t n = 0;

	for (const char *at = s; (at = strstr(at, what)); at++)
		n++;
	return n;
}

START_TEST(watch__a_large_revision_is_split_for_who_allows_it_alone)
{
	struct client *c = world_watch(&w), *d = world_watch(&w);
	char key[8];

	client_create(c, (struct watch_spec){ .key = "", .end = "0", .no_put = true, .prev_kv = true, .fragment = true });
	client_create(d, (struct watch_spec){ .key = "", .end = "0", .no_put = true, .prev_kv = true });
	for (int i = 0; i < 10; i++) {
		snprintf(key, sizeof key, "k%d", i);
		put_big(key, 500000);
	}
	client_text(c);
	client_text(d);
	world_delete(&w, "k", "l");
	world_run(&w);
	ck_assert_uint_eq(count(client_peek(c), "]+"), 3);
	client_text(c);
	world_put(&w, "k", "");
	world_delete(&w, "k", "");
	SEES(c, "0@14[-k#14<]");
	ck_assert_uint_eq(count(client_peek(d), "]+"), 0);
	ck_assert_uint_ge(d->largest, 5000000);
}
END_TEST

/* Fragments of one response follow one another, and all of a revision is there. */
START_TEST(watch__fragments_hold_all_events_once)
{
	struct client *c = world_watch(&w);
	char key[8];
	const char *seen;

	client_create(c, (struct watch_spec){ .key = "", .end = "0", .prev_kv = true, .fragment = true, .from = 12 });
	client_create(c, (struct watch_spec){ .key = "k1", .from = 12 });
	for (int i = 0; i < 10; i++) {
		snprintf(key, sizeof key, "k%d", i);
		put_big(key, 400000);
	}
	world_delete(&w, "k", "l");
	seen = client_text(c);
	ck_assert_uint_eq(count(seen, "#12<"), 10);
	ck_assert_uint_eq(count(seen, "]+"), 3);
	ck_assert_ptr_nonnull(strstr(seen, "1@12[-k1#12]"));
	ck_assert_ptr_null(strstr(seen, "]+ 1@12"));
}
END_TEST

/* ---- cancel ---- */

START_TEST(watch__nothing_follows_a_cancel)
{
	struct client *c = world_watch(&w);

	client_create(c, (struct watch_spec){ .key = "a" });
	client_create(c, (struct watch_spec){ .key = "a" });
	SEES(c, "created 0@1 created 1@1");
	world_put(&w, "a", "1");
	client_cancel(c, 0);
	SEES(c, "canceled 0@2 1@2[a=1#2]");
	world_put(&w, "a", "2");
	SEES(c, "1@3[a=2#3]");
}
END_TEST

START_TEST(watch__a_cancel_of_nothing_is_passed_over)
{
	struct client *c = world_watch(&w);

	client_cancel(c, 0);
	client_cancel(c, 77);
	client_send(c, slice_of(NULL, 0));
	SEES(c, "");
}
END_TEST

START_TEST(watch__a_message_that_is_none_ends_the_stream)
{
	struct client *c = world_watch(&w);

	client_create(c, (struct watch_spec){ .key = "a" });
	SEES(c, "created 0@1");
	client_send(c, slice_of_str("\x0a\x7f"));
	SEES(c, "end ERR_MALFORMED");
	world_put(&w, "a", "1");
	client_create(c, (struct watch_spec){ .key = "b" });
	client_close(c);
	SEES(c, "end ERR_MALFORMED");
}
END_TEST

START_TEST(watch__a_closed_stream_gets_its_end_and_nothing_else)
{
	struct client *c = world_watch(&w);
	struct watch_stats stats;

	c->stalled = true;
	client_create(c, (struct watch_spec){ .key = "a" });
	SEES(c, "created 0@1");
	world_put(&w, "a", "1");
	world_run(&w);
	client_close(c);
	SEES(c, "end ERR_CANCELED");
	watches_stats(w.watches, &stats);
	ck_assert_uint_eq(stats.streams, 0);
	ck_assert_uint_eq(stats.watchers, 0);
	ck_assert_uint_eq(stats.ranges, 0);
}
END_TEST

/* ---- compaction ---- */

START_TEST(watch__from_below_the_compaction_is_lost_and_may_be_cancelled)
{
	struct client *c = world_watch(&w);

	world_put(&w, "a", "1");
	world_put(&w, "a", "2");
	world_put(&w, "a", "3");
	world_compact(&w, 3);
	client_create(c, (struct watch_spec){ .key = "a", .from = 2 });
	SEES(c, "created 0@4 lost 0@4/3");
	client_cancel(c, 0);
	client_cancel(c, 0);
	SEES(c, "canceled 0@4");
	world_put(&w, "a", "4");
	SEES(c, "");
}
END_TEST

/* A client that has not read of the loss yet may be about to cancel: it must not hit a watch that came after. */
START_TEST(watch__the_id_of_one_that_was_lost_is_nobodys_but_by_choice)
{
	struct client *c = world_watch(&w);

	world_put(&w, "a", "1");
	world_put(&w, "a", "2");
	world_compact(&w, 3);
	client_create(c, (struct watch_spec){ .key = "a", .from = 2, .id = 1 });
	SEES(c, "created 1@3 lost 1@3/3");
	client_create(c, (struct watch_spec){ .key = "a" });
	client_create(c, (struct watch_spec){ .key = "a" });
	client_create(c, (struct watch_spec){ .key = "a", .id = 1 });
	SEES(c, "created 0@3 created 2@3 created 1@3");
	client_cancel(c, 1);
	client_cancel(c, 1);
	SEES(c, "canceled 1@3");
}
END_TEST

START_TEST(watch__from_exactly_the_compaction_is_served_a_delete_included)
{
	struct client *c = world_watch(&w);

	world_put(&w, "a", "1");
	world_put(&w, "b", "1");
	world_delete(&w, "a", "");
	world_put(&w, "b", "2");
	world_compact(&w, 4);
	client_create(c, (struct watch_spec){ .key = "a", .from = 4, .prev_kv = true });
	client_create(c, (struct watch_spec){ .key = "b", .from = 4, .prev_kv = true });
	client_create(c, (struct watch_spec){ .key = "a", .end = "0", .from = 4 });
	SEES(c, "created 0@5 created 1@5 created 2@5 0@5[-a#4] 2@5[-a#4 b=2#5] 1@5[b=2#5<1]");
}
END_TEST

/* Who waits for a key from the revision at which it last changed goes on, though that revision is long gone. */
START_TEST(watch__of_one_key_that_has_not_changed_since_is_served)
{
	struct client *c = world_watch(&w);

	world_put(&w, "a", "1");
	for (int i = 0; i < 5; i++)
		world_put(&w, "b", "1");
	world_compact(&w, 6);
	client_create(c, (struct watch_spec){ .key = "a", .from = 3 });
	client_create(c, (struct watch_spec){ .key = "a", .from = 2 });
	client_create(c, (struct watch_spec){ .key = "a", .end = "b", .from = 3 });
	SEES(c, "created 0@7 created 1@7 created 2@7 lost 1@7/6 lost 2@7/6");
	world_delete(&w, "a", "");
	SEES(c, "0@8[-a#8]");
}
END_TEST

START_TEST(watch__a_compaction_up_to_now_takes_nothing_from_who_reads)
{
	struct client *c = world_watch(&w), *slow = world_watch(&w);

	slow->stalled = true;
	client_create(c, (struct watch_spec){ .key = "a" });
	client_create(slow, (struct watch_spec){ .key = "", .end = "0", .prev_kv = true });
	world_run(&w);
	world_put(&w, "a", "1");
	world_put(&w, "a", "2");
	world_compact(&w, 3);
	world_put(&w, "a", "3");
	world_compact(&w, 4);
	SEES(c, "created 0@1 0@3[a=1#2 a=2#3] 0@4[a=3#4]");
	SEES(slow, "created 0@1");
	slow->stalled = false;
	SEES(slow, "0@3[a=1#2 a=2#3<1] 0@4[a=3#4<2]");
}
END_TEST

START_TEST(watch__a_reader_too_slow_is_told_so_and_never_skips)
{
	struct client *c = world_watch(&w);
	const char *seen;
	int64_t lost_at;

	c->stalled = true;
	client_create(c, (struct watch_spec){ .key = "a" });
	world_run(&w);
	for (int i = 0; i < 20; i++)
		put_big("a", 50000);
	world_compact(&w, w.st.revision);
	ck_assert_str_eq(client_text(c), "created 0@1");
	c->stalled = false;
	/* What was held for it comes, and then the end: in between nothing is missing. */
	seen = client_text(c);
	ck_assert_ptr_nonnull(strstr(seen, "#2"));
	ck_assert_ptr_nonnull(strstr(seen, "lost 0@21/21"));
	lost_at = (int64_t)count(seen, "a=");
	ck_assert_int_gt(lost_at, 4);
	ck_assert_int_lt(lost_at, 20);
	ck_assert_uint_lt(c->largest, 800000);
}
END_TEST

/* ---- snapshots ---- */

START_TEST(watch__an_installed_snapshot_tells_nothing_twice)
{
	struct client *c = world_watch(&w), *slow = world_watch(&w);

	client_create(c, (struct watch_spec){ .key = "", .end = "0" });
	client_create(slow, (struct watch_spec){ .key = "", .end = "0" });
	world_run(&w);
	slow->stalled = true;
	world_put(&w, "a", "1");
	world_run(&w);
	world_put(&w, "b", "1");
	SEES(c, "created 0@1 0@2[a=1#2] 0@3[b=1#3]");
	world_install(&w, 0, NULL);
	SEES(c, "");
	world_install(&w, 2, three_more);
	SEES(c, "0@6[a=x#4 a=y#5 a=z#6]");
	slow->stalled = false;
	SEES(slow, "created 0@1 0@2[a=1#2] 0@6[b=1#3 a=x#4 a=y#5 a=z#6]");
}
END_TEST

START_TEST(watch__an_installed_snapshot_compacted_further_ends_watches_that_may_have_missed_something)
{
	struct client *c = world_watch(&w);

	world_put(&w, "b", "1");
	client_create(c, (struct watch_spec){ .key = "a" });
	client_create(c, (struct watch_spec){ .key = "", .end = "0" });
	client_create(c, (struct watch_spec){ .key = "b" });
	client_create(c, (struct watch_spec){ .key = "a", .from = 5 });
	SEES(c, "created 0@2 created 1@2 created 2@2 created 3@2");
	world_install(&w, 5, three_more);
	SEES(c, "3@5[a=z#5] lost 1@5/5 lost 0@5/5");
	world_put(&w, "b", "2");
	SEES(c, "2@6[b=2#6]");
}
END_TEST

/* ---- progress ---- */

START_TEST(watch__a_progress_notice_never_overtakes_events)
{
	struct client *c = world_watch(&w);

	client_create(c, (struct watch_spec){ .key = "a" });
	SEES(c, "created 0@1");
	c->stalled = true;
	world_put(&w, "b", "1");
	world_put(&w, "a", "1");
	client_progress(c);
	SEES(c, "0@3[a=1#3] progress -1@3");
	world_put(&w, "a", "2");
	client_progress(c);
	world_put(&w, "b", "2");
	SEES(c, "");
	c->stalled = false;
	SEES(c, "0@5[a=2#4] progress -1@5");
}
END_TEST

START_TEST(watch__progress_is_answered_without_watches_too)
{
	struct client *c = world_watch(&w);

	client_progress(c);
	client_progress(c);
	SEES(c, "progress -1@1 progress -1@1");
}
END_TEST

START_TEST(watch__an_idle_watch_hears_of_progress_at_intervals)
{
	struct client *c = world_watch(&w);
	time_ms due;

	client_create(c, (struct watch_spec){ .key = "a", .progress = true });
	client_create(c, (struct watch_spec){ .key = "b" });
	SEES(c, "created 0@1 created 1@1");
	world_put(&w, "b", "1");
	SEES(c, "1@2[b=1#2]");
	due = watches_next_deadline(w.watches);
	ck_assert_uint_ge(due, w.now + 600000);
	ck_assert_uint_le(due, w.now + 660000);
	w.now = due - 1;
	SEES(c, "");
	w.now = due;
	SEES(c, "progress 0@2");
	world_put(&w, "a", "1");
	SEES(c, "0@3[a=1#3]");
	w.now = watches_next_deadline(w.watches);
	SEES(c, "");
	w.now = watches_next_deadline(w.watches);
	SEES(c, "progress 0@3");
	client_cancel(c, 0);
	w.now = watches_next_deadline(w.watches);
	SEES(c, "canceled 0@3");
	ck_assert_uint_eq(watches_next_deadline(w.watches), TIME_NEVER);
}
END_TEST

START_TEST(watch__who_lags_hears_of_no_progress)
{
	struct client *c = world_watch(&w);

	client_create(c, (struct watch_spec){ .key = "a", .progress = true });
	client_text(c);
	c->stalled = true;
	world_put(&w, "a", "1");
	world_run(&w);
	world_put(&w, "a", "2");
	w.now = watches_next_deadline(w.watches);
	SEES(c, "0@2[a=1#2]");
	c->stalled = false;
	SEES(c, "0@3[a=2#3]");
}
END_TEST

/* ---- slow readers, many watches ---- */

START_TEST(watch__a_reader_that_never_reads_costs_one_output)
{
	struct client *c = world_watch(&w);

	client_create(c, (struct watch_spec){ .key = "a" });
	client_text(c);
	c->stalled = true;
	for (int i = 0; i < 2000; i++) {
		put_big("a", 1000);
		world_run(&w);
	}
	ck_assert_uint_eq(c->outputs, 2);
	c->stalled = false;
	ck_assert_uint_eq(count(client_text(c), "a="), 2000);
	ck_assert_uint_lt(c->largest, 1u << 20);
}
END_TEST

START_TEST(watch__who_creates_without_reading_is_sent_away)
{
	struct client *c = world_watch(&w);

	c->stalled = true;
	for (int i = 0; i < 200000 && !c->finished; i++)
		client_create(c, (struct watch_spec){ .key = "a", .from = -1 });
	SEES(c, "end ERR_TOO_MANY_REQUESTS");
}
END_TEST

START_TEST(watch__ten_thousand_on_one_stream)
{
	struct client *c = world_watch(&w);
	char key[16];
	const char *seen;

	for (int i = 0; i < 10000; i++) {
		snprintf(key, sizeof key, "k%d", i);
		client_create(c, (struct watch_spec){ .key = key });
	}
	ck_assert_uint_eq(count(client_text(c), "created"), 10000);
	world_put(&w, "k9999", "1");
	SEES(c, "9999@2[k9999=1#2]");
	c->stalled = true;
	for (int i = 0; i < 10000; i += 2) {
		snprintf(key, sizeof key, "k%d", i);
		world_put(&w, key, "2");
		if (i % 500 == 0)
			world_run(&w);
	}
	c->stalled = false;
	seen = client_text(c);
	ck_assert_uint_eq(count(seen, "=2#"), 5000);
	ck_assert_uint_eq(count(seen, "=1#"), 0);
	client_close(c);
	SEES(c, "end ERR_CANCELED");
}
END_TEST

START_TEST(watch__many_that_catch_up_without_an_event_all_do)
{
	struct client *c = world_watch(&w);
	struct watch_stats stats;
	char key[16];

	for (int i = 0; i < 100; i++)
		world_put(&w, "other", "1");
	for (int i = 0; i < 5000; i++) {
		snprintf(key, sizeof key, "k%d", i);
		client_create(c, (struct watch_spec){ .key = key, .from = 1 + i % 100 });
	}
	client_progress(c);
	ck_assert_ptr_nonnull(strstr(client_text(c), "progress -1@101"));
	watches_stats(w.watches, &stats);
	ck_assert_uint_eq(stats.behind, 0);
	world_put(&w, "k4999", "1");
	SEES(c, "4999@102[k4999=1#102]");
}
END_TEST

/* After a fail-over: each take stays small, and all are served in the end. */
START_TEST(watch__a_flood_of_re_creations_is_cut_into_slices)
{
	struct client *c[10];
	char key[16];
	size_t takes = 0, told = 0, outputs;
	bool again;

	for (int i = 0; i < 30000; i++) {
		snprintf(key, sizeof key, "k%d", i);
		world_put(&w, key, "1");
	}
	for (int i = 0; i < 10; i++)
		c[i] = world_watch(&w);
	for (int i = 0; i < 30000; i++) {
		snprintf(key, sizeof key, "k%d", i);
		client_create(c[i % 10], (struct watch_spec){ .key = key, .from = 2 + (i * 7) % 30000 });
	}
	do {
		struct watch_output o;

		again = watches_take(w.watches, w.now);
		for (outputs = 0; watches_next_output(w.watches, &o); outputs++) {
			buf_free(&o.messages);
			watches_writable(w.watches, o.tag);
		}
		takes++;
	} while (again || outputs > 0);
	ck_assert_uint_ge(takes, 2);
	ck_assert_uint_lt(takes, 1000);
	world_run(&w);
	for (int i = 0; i < 10; i++)
		client_peek(c[i]);
	world_put(&w, "k77", "2");
	for (int i = 0; i < 10; i++)
		told += count(client_text(c[i]), "k77=2");
	ck_assert_uint_eq(told, 1);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("core_watch");
	TCase *tc = tcase_create("watch");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, watch__answers_the_creation_first_and_then_tells_what_happens);
	tcase_add_test(tc, watch__ids_are_given_from_zero_or_chosen_by_the_client);
	tcase_add_test(tc, watch__a_duplicate_id_is_refused_and_zero_is_an_id_like_others);
	tcase_add_test(tc, watch__an_empty_range_is_refused);
	tcase_add_test(tc, watch__a_negative_start_is_refused);
	tcase_add_test(tc, watch__ranges_are_etcds);
	tcase_add_test(tc, watch__too_many_on_one_stream_are_refused);
	tcase_add_test(tc, watch__too_many_by_one_connection_are_refused);
	tcase_add_test(tc, watch__from_the_past_reads_history);
	tcase_add_test(tc, watch__from_the_future_waits_for_it);
	tcase_add_test(tc, watch__from_the_future_gets_nothing_old_when_a_lagging_replica_catches_up);
	tcase_add_test(tc, watch__prev_kv_is_what_was_before);
	tcase_add_test(tc, watch__filters_leave_out);
	tcase_add_test(tc, watch__one_transaction_is_one_response);
	tcase_add_test(tc, watch__a_large_revision_is_split_for_who_allows_it_alone);
	tcase_add_test(tc, watch__fragments_hold_all_events_once);
	tcase_add_test(tc, watch__nothing_follows_a_cancel);
	tcase_add_test(tc, watch__a_cancel_of_nothing_is_passed_over);
	tcase_add_test(tc, watch__a_message_that_is_none_ends_the_stream);
	tcase_add_test(tc, watch__a_closed_stream_gets_its_end_and_nothing_else);
	tcase_add_test(tc, watch__from_below_the_compaction_is_lost_and_may_be_cancelled);
	tcase_add_test(tc, watch__the_id_of_one_that_was_lost_is_nobodys_but_by_choice);
	tcase_add_test(tc, watch__from_exactly_the_compaction_is_served_a_delete_included);
	tcase_add_test(tc, watch__of_one_key_that_has_not_changed_since_is_served);
	tcase_add_test(tc, watch__a_compaction_up_to_now_takes_nothing_from_who_reads);
	tcase_add_test(tc, watch__a_reader_too_slow_is_told_so_and_never_skips);
	tcase_add_test(tc, watch__an_installed_snapshot_tells_nothing_twice);
	tcase_add_test(tc, watch__an_installed_snapshot_compacted_further_ends_watches_that_may_have_missed_something);
	tcase_add_test(tc, watch__a_progress_notice_never_overtakes_events);
	tcase_add_test(tc, watch__progress_is_answered_without_watches_too);
	tcase_add_test(tc, watch__an_idle_watch_hears_of_progress_at_intervals);
	tcase_add_test(tc, watch__who_lags_hears_of_no_progress);
	tcase_add_test(tc, watch__a_reader_that_never_reads_costs_one_output);
	tcase_add_test(tc, watch__who_creates_without_reading_is_sent_away);
	tcase_add_test(tc, watch__ten_thousand_on_one_stream);
	tcase_add_test(tc, watch__many_that_catch_up_without_an_event_all_do);
	tcase_add_test(tc, watch__a_flood_of_re_creations_is_cut_into_slices);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *r = srunner_create(suite());
	int failed;

	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
