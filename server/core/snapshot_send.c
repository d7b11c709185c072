/* snapshot_send.c: the leader brings a follower up to date whose next entries are no longer in the log.
 *
 *   (T1) of one snapshot, chunks go one after the other: read from disk, sent, and the follower says which one it wants next. So it can go
 *        on where it stopped, under this leader or another, since equal states have equal chunks.
 *   (T2) the chunks of one transfer are of one snapshot. When a newer one has taken its place meanwhile, it starts anew; a chunk that is being read
 *        when it does so is of no use any more.
 *   (T3) a transfer that hears nothing for a minute is given up; raft then probes the follower, and asks again if need be.
 * A cell that has no snapshot yet saves one first. */
#include "internal.h"

enum { SEND_AGAIN_MS = 1000, SEND_GIVE_UP_MS = 60000 };

static void start_over(struct snapshot_sender *s)
{
	s->id = (struct entry_id){ 0 };
	s->chunk = s->chunks = 0;
	s->job = 0;
	s->in_flight = false;
}

static struct snapshot_sender *sender_to(struct core *c, member_id to)
{
	for (size_t i = 0; i < RAFT_MEMBERS_MAX; i++)
		if (c->snapshots.senders[i].to == to)
			return &c->snapshots.senders[i];
	return NULL;
}

static void read_next(struct core *c, struct snapshot_sender *s)
{
	struct snapshot_job *job;

	if (s->to == 0 || s->job || s->in_flight)
		return;
	if (c->snapshots.saved.index == 0) {
		c->snapshots.wanted = true;
		return;
	}
	job = snapshot_job_new(c, SNAPSHOT_READ);
	s->job = job->job;
	job->id = s->id; /* {0,0} for the first chunk: the newest */
	job->chunk = s->chunk;
}

void snapshot_send_begin(struct core *c, member_id to)
{
	struct snapshot_sender *s = sender_to(c, to);

	if (!s)
		s = sender_to(c, 0);
	if (!s) /* there are as many as members */
		return;
	memset(s, 0, sizeof *s);
	s->to = to;
	s->started_at = s->sent_at = c->now;
	read_next(c, s);
}

void snapshot_chunk_read(struct core *c, const struct core_event *e)
{
	struct snapshot_sender *s = NULL;
	struct raft_message m = { .kind = HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__RAFT_SNAPSHOT };

	for (size_t i = 0; i < RAFT_MEMBERS_MAX; i++)
		if (c->snapshots.senders[i].to != 0 && c->snapshots.senders[i].job == e->chunk.job)
			s = &c->snapshots.senders[i];
	if (!s)
		return;
	s->job = 0;
	if (e->chunk.err || (s->chunk > 0 && (e->chunk.id.index != s->id.index || e->chunk.id.term != s->id.term))) {
		if (e->chunk.err == ERR_CORRUPT)
			c->snapshots.wanted = true; /* what is in memory is whole: another one, as soon as there is something new to save */
		start_over(s); /* T2; the next tick reads */
		return;
	}
	s->id = e->chunk.id;
	s->chunks = e->chunk.chunks;
	s->in_flight = true;
	s->sent_at = c->now;
	m.log = s->id;
	m.chunk = s->chunk;
	m.chunks = s->chunks;
	m.data = e->chunk.bytes;
	m.state_hash = e->chunk.state_hash;
	raft_send_snapshot(c->raft, s->to, &m);
}

void snapshot_send_reply(struct core *c, const struct raft_message *m)
{
	struct snapshot_sender *s = m->from ? sender_to(c, m->from) : NULL;

	if (!s || raft_role(c->raft) != RAFT_LEADER || m->term != raft_current_term(c->raft))
		return;
	if (m->log.index != s->id.index || m->log.term != s->id.term)
		return;
	s->started_at = c->now;
	if (m->reject) {
		start_over(s);
	} else if (m->chunk >= s->chunks) {
		raft_snapshot_acked(c->raft, s->to, s->id.index);
		c->seen.snapshots_sent++;
		s->to = 0;
	} else if (!s->job && (m->chunk != s->chunk || !s->in_flight)) {
		s->chunk = m->chunk;
		s->in_flight = false;
		read_next(c, s);
	}
}

void snapshot_send_tick(struct core *c)
{
	for (size_t i = 0; i < RAFT_MEMBERS_MAX; i++) {
		struct snapshot_sender *s = &c->snapshots.senders[i];

		if (s->to == 0)
			continue;
		if (c->now - s->started_at > SEND_GIVE_UP_MS) { /* T3 */
			raft_snapshot_failed(c->raft, s->to);
			c->seen.snapshots_not_sent++;
			s->to = 0;
			continue;
		}
		if (s->in_flight && c->now - s->sent_at > SEND_AGAIN_MS)
			s->in_flight = false;
		read_next(c, s);
	}
}

void snapshot_send_forget(struct core *c, member_id to)
{
	struct snapshot_sender *s = sender_to(c, to);

	if (s)
		memset(s, 0, sizeof *s);
}

void snapshot_send_stop(struct core *c)
{
	memset(c->snapshots.senders, 0, sizeof c->snapshots.senders);
}
