/* What a client of Observe sees. Leases 7, 8 and 9 campaign as etcd's recipe does: a key NAME/LEASE in hex. */
#include "world.h"

static struct world w;

static void setup(void)
{
	world_init(&w);
	for (lease_id id = 7; id <= 9; id++)
		world_lease(&w, id);
}

static void teardown(void)
{
	world_deinit(&w);
}

#define SEES(c, s) ck_assert_str_eq(client_text(c), s)

START_TEST(observe__tells_the_present_leader_and_each_value_it_proclaims)
{
	struct client *c;

	world_put_lease(&w, "e/7", "x", 7);
	c = world_observe(&w, "e", false);
	SEES(c, "leader e/7=x#2@2");
	world_put_lease(&w, "e/7", "y", 7);
	world_put_lease(&w, "e/7", "z", 7);
	SEES(c, "leader e/7=y#3@3 leader e/7=z#4@4");
	world_put(&w, "other", "1");
	SEES(c, "");
}
END_TEST

START_TEST(observe__tells_the_next_leader_when_one_ends)
{
	struct client *c = world_observe(&w, "e", false);

	SEES(c, "");
	world_put_lease(&w, "e/7", "x", 7);
	world_put_lease(&w, "e/9", "y", 9);
	world_put_lease(&w, "e/8", "z", 8);
	SEES(c, "leader e/7=x#2@2");
	world_put_lease(&w, "e/9", "y2", 9);
	SEES(c, "");
	world_delete(&w, "e/7", "");
	SEES(c, "leader e/9=y2#5@6");
	world_revoke(&w, 9);
	SEES(c, "leader e/8=z#4@7");
	world_revoke(&w, 8);
	SEES(c, "");
	world_put_lease(&w, "e/7", "again", 7);
	SEES(c, "leader e/7=again#9@9");
}
END_TEST

START_TEST(observe__tells_that_nobody_leads_to_who_asks)
{
	struct client *c = world_observe(&w, "e", true), *quiet = world_observe(&w, "e", false);

	SEES(c, "vacant@1");
	world_put_lease(&w, "e/7", "x", 7);
	world_delete(&w, "e/7", "");
	SEES(c, "leader e/7=x#2@2 vacant@3");
	SEES(quiet, "leader e/7=x#2@2");
	world_put(&w, "e/stray", "1");
	SEES(c, "");
}
END_TEST

START_TEST(observe__knows_contenders_of_this_election_alone)
{
	struct client *c = world_observe(&w, "e", true);

	SEES(c, "vacant@1");
	world_put(&w, "e/7", "no lease");
	world_put_lease(&w, "e/8", "wrong lease", 9);
	world_put_lease(&w, "e/f/7", "another election", 7);
	world_put_lease(&w, "e0", "beside", 7);
	SEES(c, "");
	world_put_lease(&w, "e/9", "x", 9);
	SEES(c, "leader e/9=x#6@6");
}
END_TEST

START_TEST(observe__of_the_empty_name)
{
	struct client *c = world_observe(&w, "", false);

	world_put_lease(&w, "/7", "x", 7);
	SEES(c, "leader /7=x#2@2");
}
END_TEST

/* It gets the values of the leader it knew, and then who leads at present: those between are past. */
START_TEST(observe__a_slow_reader_ends_with_the_present_leader)
{
	struct client *c = world_observe(&w, "e", true);

	world_put_lease(&w, "e/7", "x", 7);
	SEES(c, "leader e/7=x#2@2");
	c->stalled = true;
	world_put_lease(&w, "e/7", "y", 7);
	world_run(&w);
	world_put_lease(&w, "e/7", "z", 7);
	world_put_lease(&w, "e/8", "a", 8);
	world_run(&w);
	world_put_lease(&w, "e/9", "b", 9);
	world_delete(&w, "e/7", "");
	world_delete(&w, "e/8", "");
	SEES(c, "leader e/7=y#3@3");
	c->stalled = false;
	SEES(c, "leader e/7=z#4@4 leader e/9=b#6@8");
	world_put_lease(&w, "e/9", "b2", 9);
	SEES(c, "leader e/9=b2#9@9");
}
END_TEST

START_TEST(observe__lives_through_compaction)
{
	struct client *c = world_observe(&w, "e", true);

	world_put_lease(&w, "e/7", "x", 7);
	client_text(c);
	c->stalled = true;
	world_put_lease(&w, "e/7", "y", 7);
	world_run(&w);
	for (int i = 0; i < 17000; i++)
		world_put(&w, "other", "");
	world_run(&w);
	world_put_lease(&w, "e/8", "z", 8);
	world_delete(&w, "e/7", "");
	world_run(&w);
	for (int i = 0; i < 17000; i++)
		world_put(&w, "other", "");
	world_compact(&w, w.st.revision);
	SEES(c, "leader e/7=y#3@3");
	c->stalled = false;
	SEES(c, "leader e/8=z#17004@34005");
}
END_TEST

static void new_leader(struct world *o)
{
	world_delete(o, "e/7", "");
	world_put_lease(o, "e/8", "z", 8);
	world_put(o, "other", "");
}

START_TEST(observe__lives_through_a_snapshot)
{
	struct client *c = world_observe(&w, "e", true);

	world_put_lease(&w, "e/7", "x", 7);
	client_text(c);
	world_install(&w, 0, NULL);
	SEES(c, "");
	world_install(&w, 5, new_leader);
	SEES(c, "leader e/8=z#4@5");
}
END_TEST

START_TEST(observe__a_request_that_is_none_ends_it)
{
	struct watch_output o;

	watches_open(w.watches, (struct watch_opening){ 999, 0, METHOD_ELECTION_OBSERVE, slice_of_str("\x0a\x7f") }, w.now);
	watches_take(w.watches, w.now);
	ck_assert(watches_next_output(w.watches, &o));
	ck_assert(o.finished && o.err == ERR_MALFORMED && o.messages.len == 0);
}
END_TEST

START_TEST(observe__closes)
{
	struct client *c = world_observe(&w, "e", false);
	struct watch_stats stats;

	world_run(&w);
	client_close(c);
	SEES(c, "end ERR_CANCELED");
	watches_stats(w.watches, &stats);
	ck_assert_uint_eq(stats.streams + stats.watchers, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("core_watch_observe");
	TCase *tc = tcase_create("observe");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, observe__tells_the_present_leader_and_each_value_it_proclaims);
	tcase_add_test(tc, observe__tells_the_next_leader_when_one_ends);
	tcase_add_test(tc, observe__tells_that_nobody_leads_to_who_asks);
	tcase_add_test(tc, observe__knows_contenders_of_this_election_alone);
	tcase_add_test(tc, observe__of_the_empty_name);
	tcase_add_test(tc, observe__a_slow_reader_ends_with_the_present_leader);
	tcase_add_test(tc, observe__lives_through_compaction);
	tcase_add_test(tc, observe__lives_through_a_snapshot);
	tcase_add_test(tc, observe__a_request_that_is_none_ends_it);
	tcase_add_test(tc, observe__closes);
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
