/* sessions.c: cells of tests/support/mini_cell, listened to. */
#include "sessions.h"

#include "base/mem.h"
#include "core/snapshot/snapshot.h"
#include "core/wire.h"
#include "driver.h"
#include "etcd/rpc.pb-c.h"
#include "holdfast/internal.pb-c.h"
#include "rig.h"
#include "support/mini_cell.h"

struct listener {
	struct session *s;
	time_ms told;      /* time is told up to here */
	raft_index logged; /* commands are noted up to here */
};

static void note_commands(struct listener *l, struct slice body)
{
	Holdfast__Internal__RaftMessage *m = holdfast__internal__raft_message__unpack(NULL, body.len, body.ptr);
	ASSERT(m != NULL);
	for (size_t i = 0; i < m->n_entries; i++) {
		if (m->entries[i]->index <= l->logged || m->entries[i]->kind != RAFT_ENTRY_COMMAND)
			continue;
		l->logged = m->entries[i]->index;
		item_add(&l->s->commands, 0, slice_of(m->entries[i]->data.data, m->entries[i]->data.len));
	}
	holdfast__internal__raft_message__free_unpacked(m, NULL);
}

static void note_message(struct listener *l, size_t to, struct slice bytes)
{
	uint64_t from = wire_find_u64(bytes, 3, 0);
	for (uint32_t field = 10; field <= 17; field++) {
		struct slice body = wire_find_bytes(bytes, field);
		struct buf item = { .ptr = NULL };
		if (!body.ptr)
			continue;
		if (field == 10)
			note_commands(l, body);
		if (to != 0)
			continue;
		buf_append_byte(&item, (uint8_t)field);
		buf_append_slice(&item, body);
		item_add(&l->s->events, from == rig_member(1) ? OP_FROM_1 : OP_FROM_2, buf_view(&item));
		buf_free(&item);
	}
}

static void on_event(void *ctx, size_t i, const struct core_event *e)
{
	struct listener *l = ctx;
	uint64_t passed = e->now - l->told;
	uint8_t what;
	if (i == 0 && passed >= 10) {
		uint8_t t[2] = { (uint8_t)passed, (uint8_t)(passed >> 8) };
		item_add(&l->s->events, OP_TIME, slice_of(t, 2));
		l->told = e->now;
	}
	if (e->kind == EVENT_MESSAGE)
		note_message(l, i, e->message);
	what = e->kind == EVENT_REQUEST ? (uint8_t)e->request->method : 0;
	if (i == 0 && e->kind == EVENT_REQUEST)
		item_add(&l->s->events, OP_REQUEST, slice_of(&what, 1));
	if (i == 0 && e->kind == EVENT_PEER_LOST) {
		what = e->member == rig_member(1) ? 0 : 1;
		item_add(&l->s->events, OP_LOST, slice_of(&what, 1));
	}
}

static void work(struct mini_cell *m, size_t n)
{
	char key[24], value[600];
	uint64_t tag;
	memset(value, 'v', sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	mini_grant(m, 0, 1, 5);
	mini_grant(m, 1, 2, 60);
	mini_run(m, 100);
	mini_lock(m, 0, "l", 1);
	mini_lock(m, 1, "l", 2);
	for (size_t i = 0; i < n; i++) {
		key[0] = 'k';
		key[1] = (char)('a' + i % 26);
		key[2] = '\0';
		tag = mini_put(m, i % 3, key, value, i % 7 == 0 ? 2 : 0);
		mini_get(m, (i + 1) % 3, key, false);
		if (i % 5 == 0)
			mini_keep_alive(m, i % 3, 2);
		if (i % 11 == 0)
			mini_wait(m, tag, 3000);
		mini_run(m, 20);
	}
	mini_revoke(m, 2, 1);
	mini_run(m, 300);
}

static void live(struct mini_cell *m, unsigned kind)
{
	size_t leader;
	if (kind == 1) { /* replica 0 is away, and gets a snapshot */
		mini_isolate(m, 0, true);
		work(m, 80);
		mini_isolate(m, 0, false);
		mini_run(m, 4000);
	}
	work(m, 15);
	leader = mini_leader(m);
	if (kind == 2 && leader < 3) { /* another leads */
		mini_isolate(m, leader, true);
		mini_run(m, 4000);
		mini_isolate(m, leader, false);
	}
	if (kind == 3) {
		mini_loss(m, 100000, 100000);
		work(m, 20);
		mini_loss(m, 0, 0);
	}
	mini_run(m, 7000); /* the lease of 5 s ends */
	work(m, 10);
}

static void note_chunks(struct session *s, struct mini_cell *m)
{
	struct snapshot_encoder *enc = snapshot_encoder_new(core_state(mini_core(m, 0)), s->cell_id);
	struct buf chunk = { .ptr = NULL };
	while (snapshot_encoder_next(enc, &chunk)) {
		s->chunks = mem_realloc(s->chunks, (s->chunks_len + 1) * sizeof(*s->chunks));
		s->chunks[s->chunks_len++] = buf_take(&chunk);
	}
	buf_free(&chunk);
	snapshot_encoder_free(enc);
}

void session_make(struct session *s, unsigned kind)
{
	struct listener l = { .s = s };
	struct mini_cell *m = mini_new(&(struct mini_options){ .replicas = 3, .seed = 11 + kind, .disk_ms = 1, .net_ms = 1, .snapshot_count = kind == 1 ? 20 : 0,
							       .snapshot_keep = 2, .check_every = 100000 });
	memset(s, 0, sizeof(*s));
	s->cell_id = rig_cell(RIG_MEMBERS);
	l.told = mini_now(m);
	mini_on_event(m, on_event, &l);
	live(m, kind);
	note_chunks(s, m);
	mini_free(m);
}

void session_free(struct session *s)
{
	while (s->chunks_len)
		buf_free(&s->chunks[--s->chunks_len]);
	free(s->chunks);
	buf_free(&s->events);
	buf_free(&s->commands);
}
