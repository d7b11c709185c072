/* Streams of real cores in small cells: what a client of a replica sees, whatever happens to the cell. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/pbw.h"
#include "etcd/rpc.pb-c.h"
#include "etcd/v3election.pb-c.h"
#include "support/mini_cell.h"

enum { STREAMS_MAX = 8 };

static struct mini_cell *m;
static struct stream {
	size_t replica;
	bool observes, finished, slow;
	struct buf text; /* what came */
	enum err err;
} streams[STREAMS_MAX];
static uint64_t acks[64];
static size_t acks_len;

static void show(struct stream *s, struct slice bytes)
{
	struct buf *b = &s->text;

	buf_append(b, " ", b->len > 0);
	if (s->observes) {
		V3electionpb__LeaderResponse *r = v3electionpb__leader_response__unpack(NULL, bytes.len, bytes.ptr);

		if (r->kv)
			buf_printf(b, "%.*s", (int)r->kv->value.len, (char *)r->kv->value.data);
		else
			buf_printf(b, "vacant");
		v3electionpb__leader_response__free_unpacked(r, NULL);
	} else {
		Etcdserverpb__WatchResponse *r = etcdserverpb__watch_response__unpack(NULL, bytes.len, bytes.ptr);

		buf_printf(b, "%s%s%" PRId64, r->created ? "created " : "", r->canceled ? "canceled " : "", r->watch_id);
		if (!r->n_events)
			buf_printf(b, "@%" PRId64, r->header->revision);
		for (size_t i = 0; i < r->n_events; i++)
			buf_printf(b, ":%.*s", (int)r->events[i]->kv->value.len, (char *)r->events[i]->kv->value.data);
		etcdserverpb__watch_response__free_unpacked(r, NULL);
	}
}

static void on_output(void *ctx, size_t i, struct core_output *o)
{
	struct stream *s = &streams[o->stream];

	(void)ctx;
	ck_assert_uint_eq(s->replica, i);
	ck_assert(!s->finished);
	for (size_t at = 0; at < o->messages.len;) {
		const uint8_t *p = o->messages.ptr + at;
		size_t len = (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;

		show(s, slice_of(p + 4, len));
		at += 4 + len;
	}
	s->finished = o->finished;
	s->err = o->err;
	if (!s->finished && !s->slow)
		acks[acks_len++] = o->stream;
}

static void setup(void)
{
	m = mini_new(&(struct mini_options){ .replicas = 3, .seed = 7, .disk_ms = 1, .net_ms = 1, .snapshot_count = 60, .snapshot_keep = 5 });
	mini_on_output(m, on_output, NULL);
	mini_elect(m, 10000);
	mini_run(m, 300);
}

static void teardown(void)
{
	mini_free(m);
	for (size_t i = 0; i < STREAMS_MAX; i++)
		buf_free(&streams[i].text);
	memset(streams, 0, sizeof streams);
	acks_len = 0;
}

static void run(time_ms ms)
{
	for (time_ms t = 0; t < ms; t++) {
		mini_run(m, 1);
		while (acks_len > 0) {
			uint64_t tag = acks[--acks_len];

			if (mini_core(m, streams[tag].replica))
				mini_stream(m, streams[tag].replica, EVENT_STREAM_WRITABLE, tag, METHOD_COUNT, slice_of(NULL, 0));
		}
	}
}

static void open_watch(uint64_t tag, size_t replica)
{
	streams[tag].replica = replica;
	mini_stream(m, replica, EVENT_STREAM_OPEN, tag, METHOD_WATCH_WATCH, slice_of(NULL, 0));
}

static void say(uint64_t tag, struct buf *b)
{
	mini_stream(m, streams[tag].replica, EVENT_STREAM_MESSAGE, tag, METHOD_COUNT, buf_view(b));
	buf_free(b);
}

static void create(uint64_t tag, const char *key, revision from)
{
	struct buf b = { 0 };
	size_t mark = pbw_open(&b, 1);

	pbw_bytes(&b, 1, slice_of_str(key));
	pbw_i64(&b, 3, from);
	pbw_close(&b, mark);
	say(tag, &b);
}

static void cancel(uint64_t tag, int64_t id)
{
	struct buf b = { 0 };
	size_t mark = pbw_open(&b, 2);

	pbw_i64(&b, 1, id);
	pbw_close(&b, mark);
	say(tag, &b);
}

static void open_observer(uint64_t tag, size_t replica)
{
	struct buf b = { 0 };

	pbw_bytes(&b, 1, slice_of_str("e"));
	streams[tag].replica = replica;
	streams[tag].observes = true;
	mini_stream(m, replica, EVENT_STREAM_OPEN, tag, METHOD_ELECTION_OBSERVE, buf_view(&b));
	buf_free(&b);
}

static const char *text(uint64_t tag)
{
	static char lent[8192];

	run(50);
	snprintf(lent, sizeof lent, "%.*s", (int)streams[tag].text.len, (char *)streams[tag].text.ptr);
	buf_clear(&streams[tag].text);
	return lent;
}

#define SEES(tag, s) ck_assert_str_eq(text(tag), s)

static void put(size_t replica, const char *key, const char *value)
{
	const struct mini_answer *a = mini_wait(m, mini_put(m, replica, key, value, 0), 10000);

	ck_assert(a && a->err == ERR_OK);
}

static size_t follower(void)
{
	return mini_leader(m) == 0 ? 1 : 0;
}

START_TEST(stream__every_replica_tells_what_happens_on_any)
{
	for (size_t i = 0; i < 3; i++) {
		open_watch(i, i);
		create(i, "k", 0);
	}
	for (size_t i = 0; i < 3; i++)
		SEES(i, "created 0@1");
	put(0, "k", "a");
	put(1, "k", "b");
	for (size_t i = 0; i < 3; i++)
		ck_assert_ptr_nonnull(strstr(text(i), "a"));
	put(2, "k", "c");
	for (size_t i = 0; i < 3; i++)
		SEES(i, "0:c");
}
END_TEST

/* What was written before the client asked is not news. */
START_TEST(stream__a_lagging_replica_starts_from_a_now_that_is_not_past)
{
	size_t f = follower();

	open_watch(0, f);
	run(5);
	mini_isolate(m, f, true);
	put(mini_leader(m), "k", "old");
	create(0, "k", 0);
	create(0, "k", 1);
	cancel(0, 0);
	SEES(0, "");
	mini_isolate(m, f, false);
	run(3000);
	SEES(0, "created 0@2 created 1@2 canceled 0@2 1:old");
	put(mini_leader(m), "k", "new");
	SEES(0, "1:new");
}
END_TEST

START_TEST(stream__without_a_quorum_it_starts_from_what_is_here)
{
	size_t f = follower();

	open_watch(0, f);
	open_observer(1, f);
	mini_isolate(m, f, true);
	create(0, "k", 0);
	create(0, "k", 1);
	run(9000);
	SEES(0, "created 0@1 created 1@1");
	mini_isolate(m, f, false);
	run(3000);
	put(mini_leader(m), "k", "new");
	SEES(0, "0:new 1:new");
}
END_TEST

START_TEST(stream__may_close_while_it_waits)
{
	size_t f = follower();

	mini_isolate(m, f, true);
	open_watch(0, f);
	create(0, "k", 0);
	open_observer(1, f);
	for (uint64_t tag = 0; tag < 2; tag++) {
		mini_stream(m, f, EVENT_STREAM_CLOSED, tag, METHOD_COUNT, slice_of(NULL, 0));
		SEES(tag, "");
		ck_assert(streams[tag].finished && streams[tag].err == ERR_CANCELED);
	}
	open_watch(2, f);
	create(2, "k", 0); /* goes with the core */
}
END_TEST

START_TEST(stream__goes_on_through_a_change_of_leader)
{
	size_t l = mini_leader(m), f = follower();

	open_watch(0, f);
	create(0, "k", 0);
	SEES(0, "created 0@1");
	put(l, "k", "a");
	SEES(0, "0:a");
	mini_crash(m, l);
	put(f, "k", "b");
	put(f, "k", "c");
	ck_assert_ptr_nonnull(strstr(text(0), "c"));
	mini_restart(m, l);
	run(2000);
	put(l, "k", "d");
	SEES(0, "0:d");
}
END_TEST

START_TEST(stream__an_installed_snapshot_repeats_nothing)
{
	size_t f = follower();
	char value[16], want[4096] = "", *at = want;

	open_watch(0, f);
	create(0, "k", 0);
	SEES(0, "created 0@1");
	put(f, "k", "a");
	SEES(0, "0:a");
	mini_isolate(m, f, true);
	for (int i = 0; i < 200; i++) {
		snprintf(value, sizeof value, "%d", i);
		put(mini_leader(m), "k", value);
		at += snprintf(at, 16, ":%d", i);
	}
	mini_isolate(m, f, false);
	run(5000);
	put(mini_leader(m), "other", "x");
	ck_assert_str_eq(text(0) + 1, want);
}
END_TEST

START_TEST(stream__a_compaction_at_the_head_costs_a_slow_reader_nothing)
{
	Etcdserverpb__CompactionRequest r = ETCDSERVERPB__COMPACTION_REQUEST__INIT;
	size_t l = mini_leader(m);

	open_watch(0, l);
	streams[0].slow = true;
	create(0, "k", 0);
	run(20);
	put(l, "k", "a");
	put(l, "k", "b");
	r.revision = 3;
	ck_assert(mini_wait(m, mini_request(m, l, METHOD_KV_COMPACT, &r.base), 5000)->err == ERR_OK);
	SEES(0, "created 0@1");
	streams[0].slow = false;
	acks[acks_len++] = 0;
	SEES(0, "0:a:b");
}
END_TEST

START_TEST(stream__observers_follow_an_election)
{
	size_t l = mini_leader(m), f = follower();

	ck_assert(mini_wait(m, mini_grant(m, f, 7, 60), 5000)->err == ERR_OK);
	ck_assert(mini_wait(m, mini_put(m, f, "e/7", "first", 7), 5000)->err == ERR_OK);
	open_observer(0, l);
	open_observer(1, f);
	SEES(0, "first");
	SEES(1, "first");
	ck_assert(mini_wait(m, mini_put(m, f, "e/7", "second", 7), 5000)->err == ERR_OK);
	SEES(0, "second");
	SEES(1, "second");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_watch_stream");
	TCase *tc = tcase_create("stream");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, stream__every_replica_tells_what_happens_on_any);
	tcase_add_test(tc, stream__a_lagging_replica_starts_from_a_now_that_is_not_past);
	tcase_add_test(tc, stream__without_a_quorum_it_starts_from_what_is_here);
	tcase_add_test(tc, stream__may_close_while_it_waits);
	tcase_add_test(tc, stream__goes_on_through_a_change_of_leader);
	tcase_add_test(tc, stream__an_installed_snapshot_repeats_nothing);
	tcase_add_test(tc, stream__a_compaction_at_the_head_costs_a_slow_reader_nothing);
	tcase_add_test(tc, stream__observers_follow_an_election);
	suite_add_tcase(s, tc);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
