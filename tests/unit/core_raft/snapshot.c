/* snapshot.c: the owner's part in snapshots: making one, sending it in chunks, putting a received one together.
 *
 * A snapshot here is a struct in pieces. What is lost is sent again after a while; a transfer that gets nowhere is given
 * up. Whoever receives keeps at most one in the making, and starts over when a chunk of another one comes. */
#include "cell.h"

#include <string.h>

#include "base/mem.h"

enum { RESEND_MS = 300, GIVE_UP_MS = 4000 };

void node_snapshot(struct cell *c, struct node *n, uint64_t keep)
{
	raft_index to;

	if (!n->raft || n->paused || n->sm.id.index <= n->disk.snapshot.id.index)
		return;
	n->disk.snapshot = n->sm; /* at once durable: how that is done is not raft's business */
	to = n->sm.id.index > keep ? n->sm.id.index - keep : 0;
	cell_trace(c, "%u: snapshot at %llu, log trimmed to %llu", (unsigned)n->id, (unsigned long long)n->sm.id.index,
		   (unsigned long long)to);
	raft_trim(n->raft, n->sm.id, to);
	disk_queue_trim(&n->disk, to, c->now);
	if (!c->batch)
		node_take(c, n);
}

/* ---- leader ---- */

void node_send_chunk(struct cell *c, struct node *n, member_id to)
{
	struct transfer *t = &n->transfers[to];
	size_t piece = (sizeof(t->snapshot) + CELL_CHUNKS - 1) / CELL_CHUNKS;
	size_t at = t->next * piece;
	struct raft_message m = {
		.log = t->snapshot.id, .chunk = t->next, .chunks = CELL_CHUNKS, .state_hash = t->snapshot.hash,
		.data = slice_of((const uint8_t *)&t->snapshot + at,
				 at + piece < sizeof(t->snapshot) ? piece : sizeof(t->snapshot) - at),
	};

	t->sent_at = c->now;
	raft_send_snapshot(n->raft, to, &m);
}

void node_start_transfer(struct cell *c, struct node *n, member_id to)
{
	struct transfer *t;

	CHECK(c, to >= 1 && to <= c->nodes_len && to != n->id, "%u: snapshot for nobody", (unsigned)n->id);
	CHECK(c, n->disk.snapshot.id.index > 0, "%u: a snapshot is wanted, and there is none", (unsigned)n->id);
	t = &n->transfers[to];
	cell_trace(c, "%u: %u needs snapshot %llu", (unsigned)n->id, (unsigned)to, (unsigned long long)n->disk.snapshot.id.index);
	*t = (struct transfer){ .active = true, .snapshot = n->disk.snapshot, .began_at = c->now };
	node_send_chunk(c, n, to);
}

void node_transfers_tick(struct cell *c, struct node *n)
{
	if (!n->raft)
		return;
	for (size_t to = 1; to <= c->nodes_len; to++) {
		struct transfer *t = &n->transfers[to];

		if (!t->active || raft_role(n->raft) != RAFT_LEADER)
			continue;
		if (c->now >= t->began_at + GIVE_UP_MS) {
			t->active = false;
			raft_snapshot_failed(n->raft, to);
		} else if (c->now >= t->sent_at + RESEND_MS) {
			node_send_chunk(c, n, to);
		}
	}
	if (!c->batch)
		node_take(c, n);
}

void node_on_chunk_reply(struct cell *c, struct node *n, const struct raft_message *m)
{
	struct transfer *t = &n->transfers[m->from];

	if (!t->active || m->log.index != t->snapshot.id.index || m->log.term != t->snapshot.id.term)
		return;
	if (m->reject) {
		t->active = false;
		raft_snapshot_failed(n->raft, m->from);
	} else if (m->chunk == CELL_CHUNKS) {
		t->active = false;
		raft_snapshot_acked(n->raft, m->from, m->log.index);
	} else if (m->chunk != t->next) { /* less: it crashed, and begins anew */
		t->next = m->chunk;
		node_send_chunk(c, n, m->from);
	}
}

/* ---- follower ---- */

void node_on_chunk(struct cell *c, struct node *n, const struct raft_message *m)
{
	size_t piece = (sizeof(n->incoming.bytes) + CELL_CHUNKS - 1) / CELL_CHUNKS;

	/* An index that is applied here is no acknowledgement before it is durable here; but applied is durable. */
	if (m->log.index <= n->sm.id.index) {
		raft_reply_snapshot(n->raft, m->from, m->log, CELL_CHUNKS, /*reject=*/false);
		return;
	}
	if (n->install.active)
		return;
	if (n->incoming.id.index != m->log.index || n->incoming.id.term != m->log.term) {
		memset(&n->incoming, 0, sizeof(n->incoming));
		n->incoming.id = m->log;
	}
	if (m->chunk == n->incoming.next) {
		memcpy(n->incoming.bytes + m->chunk * piece, m->data.ptr, m->data.len);
		n->incoming.next++;
	}
	if (n->incoming.next < CELL_CHUNKS) {
		raft_reply_snapshot(n->raft, m->from, m->log, n->incoming.next, /*reject=*/false);
		return;
	}
	n->install.active = true;
	n->install.from = m->from;
	memcpy(&n->install.snapshot, n->incoming.bytes, sizeof(n->install.snapshot));
	n->install.due = c->now + (c->disk_delay_max ? rng_below(&c->rng, 2 * c->disk_delay_max) : 0);
	memset(&n->incoming, 0, sizeof(n->incoming));
	CHECK(c, n->install.snapshot.hash == m->state_hash, "%u: a received snapshot is damaged", (unsigned)n->id);
}

/* What was queued to the log goes first: the log on disk is cut or kept by what it then has. */
void node_install(struct cell *c, struct node *n)
{
	struct cell_snapshot s = n->install.snapshot;
	bool batch = c->batch, kept;

	if (!n->raft || n->paused || !n->install.active)
		return;
	n->install.active = false;
	c->batch = true;
	/* Entries that raft has not even given out must not outlive the log that they continue. */
	if (!c->lazy_applied || rng_chance(&c->rng, 500000))
		node_take(c, n);
	node_persist(c, n, SIZE_MAX);
	if (raft_role(n->raft) != RAFT_LEADER && s.id.index > n->sm.id.index) {
		disk_install(&n->disk, &s, /*keep_log=*/true);
		n->sm = s;
		n->told_applied = s.id.index;
		kept = raft_install_snapshot(n->raft, s.id, s.members.list, s.members.len);
		c->snapshots_installed++;
		cell_trace(c, "%u: installs snapshot %llu, log %s", (unsigned)n->id, (unsigned long long)s.id.index,
			   kept ? "kept" : "discarded");
		CHECK(c, check_chain_at(c, s.id.index) == s.hash, "%u: snapshot %llu is of another history", (unsigned)n->id,
		      (unsigned long long)s.id.index);
		raft_reply_snapshot(n->raft, n->install.from, s.id, CELL_CHUNKS, /*reject=*/false);
	}
	c->batch = batch;
	if (!batch)
		node_take(c, n);
}
