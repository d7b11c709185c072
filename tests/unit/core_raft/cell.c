/* cell.c: the nodes' lives: inputs, what raft wants done, crashes and starts. */
#include "cell.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "holdfast/internal.pb-c.h"

#define KIND(k) HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__RAFT_##k

void cell_batch(struct cell *c, bool open)
{
	c->batch = open;
	for (size_t i = 1; !open && i <= c->nodes_len; i++)
		node_take(c, &c->nodes[i]);
}

struct node *cell_node(struct cell *c, member_id id)
{
	ASSERT(id >= 1 && id <= c->nodes_len);
	return &c->nodes[id];
}

time_ms node_now(const struct cell *c, const struct node *n)
{
	return c->now + n->clock_offset;
}

static time_ms delay(struct cell *c, time_ms max)
{
	return max ? rng_below(&c->rng, max + 1) : 0;
}

struct cell *cell_new(const struct cell_opts *opts)
{
	struct cell *c = mem_zalloc(sizeof(*c));
	struct cell_members m = { .len = opts->voters + opts->learners };

	ASSERT(m.len + opts->spare <= CELL_NODES_MAX);
	c->opts = *opts;
	rng_init(&c->rng, opts->seed);
	c->now = 1000;
	c->nodes_len = m.len + opts->spare;
	for (size_t i = 0; i < m.len; i++)
		m.list[i] = (struct raft_member){ .id = i + 1, .learner = i >= opts->voters };
	for (size_t i = 1; i <= c->nodes_len; i++) {
		struct node *n = &c->nodes[i];

		n->id = i;
		n->disk.first = 1;
		n->disk.snapshot.members = m; /* of the empty state */
		n->clock_offset = opts->seed ? i * 1000003 : 0;
		node_start(c, n);
	}
	return c;
}

static void messages_free(struct raft_message *m, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		for (size_t j = 0; j < m[i].entries_len; j++)
			raft_entry_unref(m[i].entries[j]);
		free(m[i].entries);
		free((void *)(uintptr_t)m[i].data.ptr);
	}
}

void cell_free(struct cell *c)
{
	for (size_t i = 1; i <= c->nodes_len; i++) {
		node_crash(c, &c->nodes[i], 0);
		free(c->nodes[i].held);
		disk_deinit(&c->nodes[i].disk);
	}
	while (c->net_len > 0)
		cell_drop(c, c->net_len - 1);
	free(c->net);
	check_deinit(c);
	free(c);
}

/* ---- the network ---- */

static struct raft_message message_copy(const struct raft_message *m)
{
	struct raft_message copy = *m;

	copy.entries = mem_alloc((m->entries_len + 1) * sizeof(*copy.entries));
	for (size_t i = 0; i < m->entries_len; i++)
		copy.entries[i] = raft_entry_ref(m->entries[i]);
	copy.data.ptr = m->data.len ? memcpy(mem_alloc(m->data.len), m->data.ptr, m->data.len) : NULL;
	return copy;
}

void cell_send(struct cell *c, const struct raft_message *m)
{
	size_t copies = 1;

	if (m->to < 1 || m->to > c->nodes_len)
		return;
	/* A link that is cut loses what is sent; what is under way already arrives. */
	if (c->cut[m->from][m->to] || (c->drop_ppm && rng_chance(&c->rng, c->drop_ppm)))
		return;
	if (c->dup_ppm && rng_chance(&c->rng, c->dup_ppm))
		copies = 2;
	while (copies-- > 0) {
		GROW(c->net, c->net_len, c->net_cap);
		c->net[c->net_len++] = (struct packet){ .m = message_copy(m), .due = c->now + delay(c, c->net_delay_max) };
	}
}

static struct packet packet_remove(struct cell *c, size_t i)
{
	struct packet p = c->net[i];

	memmove(&c->net[i], &c->net[i + 1], (--c->net_len - i) * sizeof(*c->net));
	return p;
}

void cell_drop(struct cell *c, size_t i)
{
	struct packet p = packet_remove(c, i);

	messages_free(&p.m, 1);
}

void cell_deliver(struct cell *c, size_t i)
{
	struct packet p = packet_remove(c, i);

	node_receive(c, cell_node(c, p.m.to), &p.m);
	messages_free(&p.m, 1);
}

/* ---- life ---- */

static void first_write_is_durable(struct cell *c, struct node *n)
{
	check_write(c, n, &n->disk.queue[0]);
	disk_apply_first(&n->disk);
}

void node_start(struct cell *c, struct node *n)
{
	struct raft_config config = {
		.self = n->id, .seed = c->opts.seed * 31 + n->id + rng_next(&c->rng) % 1000,
		.election_timeout_ms = c->opts.election_timeout_ms, .heartbeat_ms = c->opts.heartbeat_ms,
		.max_append_bytes = c->opts.max_append_bytes, .max_inflight = c->opts.max_inflight, .gather_ms = c->opts.gather_ms,
		.max_uncommitted_bytes = c->opts.max_uncommitted_bytes, .memory_bytes = c->opts.memory_bytes,
	};
	struct raft_boot boot;

	ASSERT(!n->raft);
	disk_boot(&n->disk, &boot);
	n->sm = n->disk.snapshot;
	n->told_applied = n->sm.id.index;
	n->paused = false;
	n->last_role = RAFT_FOLLOWER;
	n->last_term = boot.hard.term;
	n->last_leader = 0;
	n->last_commit = 0;
	n->raft = raft_new(&config, &boot, node_now(c, n));
	node_take(c, n);
}

void node_crash(struct cell *c, struct node *n, size_t writes_kept)
{
	if (!n->raft)
		return;
	cell_trace(c, "%u: crashes", (unsigned)n->id);
	raft_free(n->raft);
	n->raft = NULL;
	/* The disk may have been faster than its completion. */
	for (size_t i = 0; i < writes_kept && n->disk.queue_len > 0; i++)
		first_write_is_durable(c, n);
	disk_drop_queue(&n->disk);
	messages_free(n->held, n->held_len);
	n->held_len = n->reads_len = n->rounds_len = 0;
	memset(n->transfers, 0, sizeof(n->transfers));
	memset(&n->incoming, 0, sizeof(n->incoming));
	n->install.active = false;
}

/* ---- inputs ---- */

static void after_input(struct cell *c, struct node *n)
{
	if (!c->batch)
		node_take(c, n);
}

static void tell_applied(struct cell *c, struct node *n)
{
	if (n->told_applied == n->sm.id.index || (c->lazy_applied && rng_chance(&c->rng, 500000)))
		return;
	n->told_applied = n->sm.id.index;
	raft_applied(n->raft, n->told_applied);
}

void node_tick(struct cell *c, struct node *n)
{
	time_ms deadline;

	if (!n->raft || n->paused)
		return;
	tell_applied(c, n);
	raft_tick(n->raft, node_now(c, n));
	after_input(c, n);
	node_transfers_tick(c, n);
	deadline = raft_next_deadline(n->raft);
	CHECK(c, deadline > node_now(c, n), "%u: still wants to be ticked after a tick", (unsigned)n->id);
}

enum err node_propose(struct cell *c, struct node *n, enum raft_entry_kind kind, struct slice data, raft_index *ret_index)
{
	enum err e;

	if (!n->raft || n->paused)
		return ERR_CLOSED;
	e = raft_propose(n->raft, kind, data, ret_index);
	if (!e)
		c->entries_proposed++;
	after_input(c, n);
	return e;
}

enum err node_propose_members(struct cell *c, struct node *n, const struct cell_members *m)
{
	return node_propose(c, n, RAFT_ENTRY_CONFIG, slice_of(m, sizeof(*m)), NULL);
}

uint64_t node_begin_round(struct cell *c, struct node *n)
{
	struct round_wait w = { .committed_then = check_committed(c), .highest_leader_then = c->highest_leader };

	if (!n->raft || n->paused || n->rounds_len == NODE_ROUNDS_MAX)
		return 0;
	w.read_index = raft_read_index(n->raft);
	w.term = raft_current_term(n->raft);
	w.round = raft_begin_round(n->raft);
	CHECK(c, (w.round != 0) == (raft_role(n->raft) == RAFT_LEADER), "%u: rounds are the leader's", (unsigned)n->id);
	if (w.round)
		n->rounds[n->rounds_len++] = w;
	after_input(c, n);
	return w.round;
}

void node_peer_lost(struct cell *c, struct node *n, member_id peer)
{
	if (!n->raft || n->paused)
		return;
	raft_peer_lost(n->raft, peer, node_now(c, n));
	after_input(c, n);
}

void node_shift(struct cell *c, struct node *n, time_ms gap)
{
	if (!n->raft)
		return;
	raft_shift(n->raft, gap);
	after_input(c, n);
}

void node_receive(struct cell *c, struct node *n, const struct raft_message *m)
{
	if (!n->raft)
		return;
	ASSERT(!n->paused);
	raft_receive(n->raft, m, node_now(c, n));
	after_input(c, n);
}

void node_persist(struct cell *c, struct node *n, size_t writes)
{
	uint64_t before = n->disk.done_seq;
	size_t left = 0;

	for (; n->raft && writes > 0 && n->disk.queue_len > 0; writes--)
		first_write_is_durable(c, n);
	if (!n->raft || n->disk.done_seq == before)
		return;
	for (size_t i = 0; i < n->held_len; i++) {
		if (n->held[i].wait_seq <= n->disk.done_seq) {
			check_leaving(c, n, &n->held[i]);
			cell_send(c, &n->held[i]);
			messages_free(&n->held[i], 1);
		} else {
			n->held[left++] = n->held[i];
		}
	}
	n->held_len = left;
	raft_persisted(n->raft, n->disk.done_seq, node_now(c, n));
	after_input(c, n);
}

/* Answers read i with at most entries_max entries of what the disk has now. */
void node_read_done(struct cell *c, struct node *n, size_t i, size_t entries_max)
{
	struct raft_read rd = n->reads[i].read;
	const struct disk *d = &n->disk;
	struct raft_entry *const *at = NULL;
	size_t len = 0;

	memmove(&n->reads[i], &n->reads[i + 1], (--n->reads_len - i) * sizeof(n->reads[0]));
	c->disk_reads++;
	if (disk_entry(d, rd.from)) {
		size_t bytes = 0;

		at = &d->log[rd.from - d->first];
		while (len < entries_max && rd.from + len <= rd.to && disk_entry(d, rd.from + len)) {
			bytes += at[len]->len;
			if (len > 0 && bytes > rd.max_bytes)
				break;
			len++;
		}
	}
	raft_log_read_done(n->raft, rd.id, len ? ERR_OK : ERR_NOT_FOUND, at, len);
	after_input(c, n);
}

/* ---- what is to be done ---- */

static void take_messages(struct cell *c, struct node *n, const struct raft_ready *rd)
{
	for (size_t i = 0; i < rd->messages_len; i++) {
		struct raft_message *m = &rd->messages[i];

		CHECK(c, m->wait_seq <= n->disk.queued_seq, "%u: a message waits for a write that was never asked for", (unsigned)n->id);
		if (m->wait_seq <= n->disk.done_seq) {
			check_leaving(c, n, m);
			cell_send(c, m);
		} else {
			GROW(n->held, n->held_len, n->held_cap);
			n->held[n->held_len++] = message_copy(m);
		}
		for (size_t j = 0; j < m->entries_len; j++)
			raft_entry_unref(m->entries[j]);
	}
}

static void take_reads(struct cell *c, struct node *n, const struct raft_ready *rd)
{
	for (size_t i = 0; i < rd->reads_len; i++) {
		ASSERT(n->reads_len < NODE_READS_MAX);
		n->reads[n->reads_len].read = rd->reads[i];
		n->reads[n->reads_len++].due = c->now + delay(c, c->read_delay_max);
	}
}

static void apply(struct cell *c, struct node *n, struct raft_entry *e)
{
	check_applied(c, n, e);
	n->sm.id = (struct entry_id){ e->index, e->term };
	n->sm.hash = check_chain_next(n->sm.hash, e);
	if (e->kind == RAFT_ENTRY_CONFIG) {
		ASSERT(e->len == sizeof(n->sm.members));
		memcpy(&n->sm.members, e->data, sizeof(n->sm.members));
		raft_set_members(n->raft, n->sm.members.list, n->sm.members.len);
	}
	raft_entry_unref(e);
}

static void apply_all(struct cell *c, struct node *n, struct raft_entry **committed, size_t len)
{
	if (len > 0)
		cell_trace(c, "%u: applies %llu..%llu", (unsigned)n->id, (unsigned long long)committed[0]->index,
			   (unsigned long long)committed[len - 1]->index);
	for (size_t i = 0; i < len; i++)
		apply(c, n, committed[i]);
	tell_applied(c, n);
}

static void trace_changes(struct cell *c, struct node *n)
{
	enum raft_role role = raft_role(n->raft);
	raft_term term = raft_current_term(n->raft);
	member_id leader = raft_leader(n->raft);

	if (role != n->last_role || term != n->last_term || leader != n->last_leader)
		cell_trace(c, "%u: %s, term %llu, leader %llu", (unsigned)n->id, raft_role_name(role), (unsigned long long)term,
			   (unsigned long long)leader);
	if (role != n->last_role && role == RAFT_LEADER)
		c->elections++;
	if (role != RAFT_LEADER || term != n->last_term)
		memset(n->transfers, 0, sizeof(n->transfers));
	n->last_role = role;
	n->last_term = term;
	n->last_leader = leader;
}

static void confirmed(struct cell *c, struct node *n, uint64_t round, raft_term term)
{
	check_confirmed(c, n, round, term);
	if (n->install.active && raft_role(n->raft) == RAFT_LEADER)
		n->install.active = false;
}

static void take_once(struct cell *c, struct node *n)
{
	struct raft_ready rd;
	struct raft_entry **committed;
	struct raft_message *chunks;

	raft_take_ready(n->raft, &rd);
	check_ready(c, n, &rd);
	if (rd.write_seq)
		disk_queue_write(&n->disk, &rd, c->now + delay(c, c->disk_delay_max));
	check_commit(c, n);
	take_messages(c, n, &rd);
	confirmed(c, n, rd.confirmed_round, rd.round_term);
	/* From here on there are inputs, after which the arrays are gone. */
	committed = mem_alloc((rd.committed_len + 1) * sizeof(*committed));
	chunks = mem_alloc((rd.chunks_len + 1) * sizeof(*chunks));
	if (rd.committed_len)
		memcpy(committed, rd.committed, rd.committed_len * sizeof(*committed));
	if (rd.chunks_len)
		memcpy(chunks, rd.chunks, rd.chunks_len * sizeof(*chunks));
	trace_changes(c, n);
	for (size_t i = 0; i < rd.snapshot_to_len; i++)
		node_start_transfer(c, n, rd.snapshot_to[i]);
	take_reads(c, n, &rd);
	apply_all(c, n, committed, rd.committed_len);
	for (size_t i = 0; i < rd.chunks_len; i++) {
		if (chunks[i].kind == KIND(SNAPSHOT))
			node_on_chunk(c, n, &chunks[i]);
		else
			node_on_chunk_reply(c, n, &chunks[i]);
		free((void *)(uintptr_t)chunks[i].data.ptr);
	}
	free(committed);
	free(chunks);
}

void node_take(struct cell *c, struct node *n)
{
	unsigned takes = 0;
	bool batch = c->batch;

	if (!n->raft)
		return;
	c->batch = true; /* what we put in while we take is taken by the next round of this loop */
	raft_check(n->raft);
	n->members_before = n->sm.members;
	while (raft_has_ready(n->raft)) {
		CHECK(c, takes++ < 100, "%u: there is always more to do", (unsigned)n->id);
		take_once(c, n);
		raft_check(n->raft);
	}
	c->batch = batch;
	check_step(c, n);
}

/* ---- for people ---- */

void cell_trace(struct cell *c, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	if (!c->trace)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	c->trace(c->trace_ctx, line);
}
