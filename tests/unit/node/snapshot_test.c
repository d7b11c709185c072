/* snapshot_test.c: snapshots saved while writes go on, sent to who has fallen behind the log, and put in force there. */
#include <check.h>
#include <stdio.h>

#include "base/mem.h"
#include "client.h"
#include "core/snapshot/snapshot.h"
#include "main.h"
#include "support/scale.h"

static void put_many(struct replica *r, const char *prefix, size_t n, size_t value_bytes)
{
	struct client *calls[16] = { NULL };
	uint8_t *value = mem_alloc(value_bytes);
	char key[64];
	memset(value, 'v', value_bytes);
	for (size_t i = 0; i < n + 16; i++) {
		struct client **slot = &calls[i % 16];
		if (*slot)
			ck_assert_int_eq(client_end(*slot), ERR_OK);
		*slot = NULL;
		if (i >= n)
			continue;
		snprintf(key, sizeof(key), "%s%zu", prefix, i);
		*slot = put_start(r, key, slice_of(value, value_bytes), 0);
	}
	free(value);
}

/* The log before it is gone there: who was away needs a snapshot. */
static void wait_cut(struct replica *r)
{
	WAIT_UNTIL(atomic_load(&r->events[EVENT_SNAPSHOT_SAVED]) >= 1);
}

/* One is away while more is written than the log and its memory keep; large enough for several chunks. */
static void catches_up(uint32_t lost_per_million)
{
	struct cell *c = cell_started(&(struct cell_options){ .replicas = 3, .snapshot_count = 50, .snapshot_keep = 10, .log_memory_bytes = 32768,
							      .lost_per_million = lost_per_million });
	size_t leader = cell_leader(c), away = (leader + 1) % 3;
	struct replica *r = &c->replicas[away];
	ck_assert_int_eq(grant(&c->replicas[leader], 1, 600), ERR_OK);
	ck_assert_int_eq(lock(&c->replicas[leader], "l", 1), ERR_OK);
	cell_stop(c, away);
	put_many(&c->replicas[leader], "k", 400, 4096);
	wait_cut(&c->replicas[leader]);
	cell_start(c, away);
	put_many(&c->replicas[leader], "m", 50, 100);
	cell_wait_serving(c, away);
	expect(r, "away", NULL);
	ck_assert_uint_ge(hooks_look(&r->hooks).installs, 1);
	ck_assert_int_eq(unlock(r, "l", 1), ERR_OK);
	cell_stop_equal(c);
	/* What was received is on its disk, too. */
	for (size_t i = 0; i < 3; i++)
		cell_start(c, i);
	cell_leader(c);
	ck_assert_int_eq(put(r, "last", "1"), ERR_OK);
	cell_stop_equal(c);
	for (size_t i = 0; i < 3; i++)
		ck_assert_uint_eq(atomic_load(&c->replicas[i].fatals), 0);
	cell_free(c);
}

START_TEST(snapshot__who_was_away_gets_one)
{
	catches_up(0);
}
END_TEST

START_TEST(snapshot__a_bad_network_only_delays_it)
{
	catches_up(20000);
}
END_TEST

START_TEST(snapshot__saving_one_holds_nothing_up)
{
	struct cell *c = cell_started(&(struct cell_options){ .replicas = 1, .snapshot_count = 40, .snapshot_keep = 5, .log_memory_bytes = 32768 });
	struct replica *r = &c->replicas[0];
	uint64_t content;
	cell_leader(c);
	put_many(r, "k", test_scaled(2000), 512);
	WAIT_UNTIL(atomic_load(&r->events[EVENT_SNAPSHOT_SAVED]) >= 2);
	put_many(r, "k", 100, 100);
	cell_stop(c, 0);
	content = r->content_hash;
	cell_start(c, 0);
	expect(r, "nothing", NULL); /* all is applied */
	cell_stop(c, 0);
	ck_assert_uint_eq(r->content_hash, content);
	cell_free(c);
}
END_TEST

/* Chunks that begin the first piece, and one after the second. */
enum { FIRST_CHUNK = 0, LATER_CHUNK = 2 * STORAGE_SNAPSHOT_PIECE_BYTES / SNAPSHOT_CHUNK_BYTES };
static sem_t at_first, at_later, task_queued, may_go_on;

static void hold_pieces(uint64_t chunk)
{
	if (chunk == FIRST_CHUNK) {
		sem_post(&at_first);
		sem_wait(&task_queued);
	} else if (chunk == LATER_CHUNK) {
		sem_post(&at_later);
		sem_wait(&may_go_on);
	}
}

static void note_task(void)
{
	sem_post(&task_queued);
}

/* W2: what is asked for while the first piece is written has its turn before the third. */
START_TEST(snapshot__others_have_their_turn_between_its_pieces)
{
	Etcdserverpb__HashKVRequest q = ETCDSERVERPB__HASH_KVREQUEST__INIT;
	struct cell *c = cell_started(&(struct cell_options){ .replicas = 1, .snapshot_count = 1000, .snapshot_keep = 5 });
	struct replica *r = &c->replicas[0];
	struct client *hash;
	sem_init(&at_first, 0, 0);
	sem_init(&at_later, 0, 0);
	sem_init(&task_queued, 0, 0);
	sem_init(&may_go_on, 0, 0);
	hooks_on_snapshot_write = hold_pieces;
	hooks_on_task = note_task;
	cell_leader(c);
	put_many(r, "k", 1000, 4096);
	sem_wait(&at_first);
	hash = client_start(r, METHOD_MAINTENANCE_HASH_KV, &q.base);
	sem_wait(&at_later);
	ck_assert_int_eq(client_end(hash), ERR_OK);
	ck_assert_uint_eq(atomic_load(&r->events[EVENT_SNAPSHOT_SAVED]), 0);
	sem_post(&may_go_on);
	WAIT_UNTIL(atomic_load(&r->events[EVENT_SNAPSHOT_SAVED]) >= 1);
	cell_stop(c, 0);
	cell_free(c);
	hooks_on_snapshot_write = NULL;
	hooks_on_task = NULL;
}
END_TEST

static void note_later(uint64_t chunk)
{
	if (chunk == LATER_CHUNK)
		sem_post(&at_later);
}

/* W3: and the next process begins anew. */
START_TEST(snapshot__a_node_stops_in_the_middle_of_it)
{
	struct cell *c = cell_started(&(struct cell_options){ .replicas = 1, .snapshot_count = 2000, .snapshot_keep = 5 });
	struct replica *r = &c->replicas[0];
	uint64_t content;
	sem_init(&at_later, 0, 0);
	hooks_on_snapshot_write = note_later;
	cell_leader(c);
	put_many(r, "k", 2000, 8192);
	sem_wait(&at_later); /* of sixteen megabytes, one is written */
	cell_stop(c, 0);
	hooks_on_snapshot_write = NULL;
	content = r->content_hash;
	cell_start(c, 0);
	WAIT_UNTIL(atomic_load(&r->events[EVENT_SNAPSHOT_SAVED]) >= 1);
	cell_stop(c, 0);
	ck_assert_uint_eq(r->content_hash, content);
	cell_free(c);
}
END_TEST

START_TEST(snapshot__a_full_disk_delays_it)
{
	struct cell *c = cell_started(&(struct cell_options){ .replicas = 3, .snapshot_count = 50, .snapshot_keep = 5, .log_memory_bytes = 32768 });
	size_t leader = cell_leader(c), away = (leader + 1) % 3;
	struct replica *r = &c->replicas[away];
	cell_stop(c, away);
	put_many(&c->replicas[leader], "k", 200, 4096);
	wait_cut(&c->replicas[leader]);
	hooks_install_full(&r->hooks, 4);
	cell_start(c, away);
	put_many(&c->replicas[leader], "m", 10, 100);
	expect(r, "nothing", NULL);
	ck_assert_uint_ge(hooks_look(&r->hooks).installs, 1);
	ck_assert_uint_eq(hooks_look(&r->hooks).install_full_times, 0);
	ck_assert_uint_eq(atomic_load(&r->fatals), 0);
	cell_stop_equal(c);
	cell_free(c);
}
END_TEST

/* Stopped at any moment of a transfer, it begins again. */
START_TEST(snapshot__a_transfer_may_be_cut_off)
{
	struct cell *c = cell_started(&(struct cell_options){ .replicas = 3, .snapshot_count = 50, .snapshot_keep = 5, .log_memory_bytes = 32768 });
	size_t leader = cell_leader(c), away = (leader + 2) % 3;
	struct replica *r = &c->replicas[away];
	cell_stop(c, away);
	put_many(&c->replicas[leader], "k", 300, 8192);
	for (unsigned i = 0; i < 6; i++) {
		cell_start(c, away);
		pause_ms(7 * i + 3);
		cell_stop(c, away);
		put_many(&c->replicas[cell_leader(c)], "m", 60, 100);
	}
	cell_start(c, away);
	cell_wait_serving(c, away);
	expect(r, "nothing", NULL);
	cell_stop_equal(c);
	cell_free(c);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		snapshot__who_was_away_gets_one,
		snapshot__a_bad_network_only_delays_it,
		snapshot__saving_one_holds_nothing_up,
		snapshot__others_have_their_turn_between_its_pieces,
		snapshot__a_node_stops_in_the_middle_of_it,
		snapshot__a_full_disk_delays_it,
		snapshot__a_transfer_may_be_cut_off,
		NULL,
	};
	return run_tests("node snapshot", tests);
}
