/* snapshot_receive.c: the state comes as a snapshot, since the log behind ours is gone.
 *
 *   (X1) chunks are taken in order; each goes through the decoder into a state of its own and to the disk, and the next is asked for once it
 *        is written. The state that serves is not touched until all is whole, verified and durable; then it is replaced in one step.
 *   (X2) what is damaged is refused, nothing is kept of it.
 *   (X3) the last chunk goes to the disk only when the log there is quiet (all of ours is durable), and no entries are taken until it is
 *        done: making the snapshot durable cuts the log, and an append must not meet a log cut under it. Entries dropped are sent again.
 *   (X4) a snapshot of what is committed here anyway is not installed; it is acknowledged once our log is durable up to it.
 *   (X5) entries inside the snapshot are never seen here: see W4 in propose.c for the calls among them, and waiters_recheck. */
#include "internal.h"

#define SNAPSHOT_DESCRIBES(s, m) ((s)->id.index == (m)->log.index && (s)->id.term == (m)->log.term)

/* ---- beginning and end of a transfer ---- */

static void forget(struct core *c)
{
	struct snapshots *s = &c->snapshots;

	if (s->finishing || s->held)
		state_deinit(&s->received);
	snapshot_decoder_free(s->decoder);
	s->decoder = NULL;
	buf_free(&s->held_chunk);
	s->finishing = s->held = false;
	s->id = (struct entry_id){ 0 };
	s->next = s->chunks = s->write_job = 0;
}

static void abort_transfer(struct core *c)
{
	if (c->snapshots.id.index == 0)
		return;
	snapshot_job_new(c, SNAPSHOT_ABORT)->id = c->snapshots.id;
	forget(c);
}

static void begin_transfer(struct core *c, const struct raft_message *m)
{
	struct snapshots *s = &c->snapshots;

	abort_transfer(c);
	s->decoder = snapshot_decoder_new(c->config.cell_id);
	s->id = m->log;
	s->chunks = m->chunks;
	s->state_hash = m->state_hash;
}

static void reply(struct core *c, uint64_t next, bool reject)
{
	raft_reply_snapshot(c->raft, c->snapshots.from, c->snapshots.id, next, reject);
}

static void refuse(struct core *c)
{
	reply(c, 0, true);
	abort_transfer(c);
}

/* ---- chunks ---- */

static void write_chunk(struct core *c, struct buf *bytes, bool last)
{
	struct snapshots *s = &c->snapshots;
	struct snapshot_job *job = snapshot_job_new(c, SNAPSHOT_WRITE);

	job->id = s->id;
	job->chunk = s->next;
	job->chunks = s->chunks;
	job->last = last;
	job->state_hash = s->state_hash;
	job->bytes = buf_take(bytes);
	s->write_job = job->job;
}

/* Whether what was decoded is the snapshot that was announced. */
static bool finish_decoding(struct core *c)
{
	struct snapshots *s = &c->snapshots;
	enum err e = snapshot_decoder_finish(s->decoder, &s->received);

	snapshot_decoder_free(s->decoder);
	s->decoder = NULL;
	if (e)
		return false;
	if (s->received.applied.index == s->id.index && s->received.applied.term == s->id.term &&
	    state_hash(&s->received) == s->state_hash)
		return true;
	state_deinit(&s->received);
	return false;
}

static bool log_is_quiet(const struct core *c)
{
	return raft_stable_index(c->raft) == raft_last_index(c->raft) && c->out.entries.len == 0;
}

static void write_last(struct core *c)
{
	struct snapshots *s = &c->snapshots;

	if (!s->held || !log_is_quiet(c)) /* X3 */
		return;
	s->held = false;
	s->finishing = true;
	write_chunk(c, &s->held_chunk, true);
}

static void take_chunk(struct core *c, struct slice bytes)
{
	struct snapshots *s = &c->snapshots;
	struct buf copy;

	if (snapshot_decoder_feed(s->decoder, bytes) != ERR_OK) {
		refuse(c); /* X2 */
		return;
	}
	copy = buf_copy_of(bytes);
	if (s->next + 1 < s->chunks) {
		write_chunk(c, &copy, false);
		return;
	}
	if (!finish_decoding(c)) {
		buf_free(&copy);
		refuse(c);
		return;
	}
	s->held = true;
	s->held_chunk = copy;
	write_last(c);
}

/* X4 */
static bool have_it(struct core *c, const struct raft_message *m)
{
	if (m->log.index > raft_commit_index(c->raft))
		return false;
	if (raft_stable_index(c->raft) >= m->log.index)
		raft_reply_snapshot(c->raft, m->from, m->log, m->chunks, false);
	return true;
}

static void receive(struct core *c, const struct raft_message *m)
{
	struct snapshots *s = &c->snapshots;

	if (m->chunks == 0 || m->chunk >= m->chunks || have_it(c, m))
		return;
	if (s->finishing || s->held) /* busy with the end of one */
		return;
	if (!SNAPSHOT_DESCRIBES(s, m) || s->chunks != m->chunks || s->state_hash != m->state_hash) {
		if (m->chunk != 0) { /* the beginning of it is missing */
			raft_reply_snapshot(c->raft, m->from, m->log, 0, m->chunk != 0);
			return;
		}
		begin_transfer(c, m);
	}
	s->from = m->from;
	if (s->write_job)
		return;
	if (m->chunk == s->next)
		take_chunk(c, m->data);
	else
		reply(c, s->next, false);
}

void snapshot_receive(struct core *c, struct raft_message *m)
{
	receive(c, m);
	free((void *)(uintptr_t)m->data.ptr);
	m->data = (struct slice){ 0 };
}

void snapshot_receive_tick(struct core *c)
{
	write_last(c);
}

bool snapshot_blocks_appends(const struct core *c)
{
	return c->snapshots.finishing || c->snapshots.held;
}

/* ---- installing ---- */

static void replace_state(struct core *c)
{
	struct state old = c->state;
	uint64_t auth_revision_before = auth_revision(c->auth);
	const struct contender *granted[64];

	c->state = c->snapshots.received;
	memset(&c->snapshots.received, 0, sizeof c->snapshots.received);
	c->snapshots.finishing = false;
	kv_rebuild(&c->env);
	identity_installed(c, auth_revision_before);
	snapshot_close_take(c, &old);
	arena_clear(&c->arena);
	while (lock_take_granted(c->locks, granted, 64) > 0)
		; /* waiters_recheck looks at all of them */
}

static void install(struct core *c)
{
	struct raft_member members[RAFT_MEMBERS_MAX];
	struct entry_id id = c->snapshots.id;

	apply_drop_backlog(c);
	replace_state(c);
	raft_install_snapshot(c->raft, id, members, members_for_raft(&c->state, members));
	c->snapshots.saved = id;
	c->snapshots.log_bytes = 0;
	c->out.members_changed = true;
	c->publish_due = true;
	if (member_was_removed(&c->state, c->config.member))
		c->fatal = CORE_FATAL_REMOVED;
	propose_skipped(c, id.term); /* X5 */
	holds_rebuild(c);
	waiters_recheck(c);
	sessions_recheck(c);
	propose_applied_term(c, id.term);
	renew_unpark(c);
	c->seen.snapshots_installed++;
	compare_applied(c);
	core_emit(c, TRACE_INSTALL, id.index, id.term, (uint64_t)c->state.revision);
}

static void finished(struct core *c)
{
	struct snapshots *s = &c->snapshots;

	if (s->id.index > raft_commit_index(c->raft) && raft_role(c->raft) != RAFT_LEADER)
		install(c);
	else if (s->id.index > s->saved.index)
		s->saved = s->id;
	if (raft_stable_index(c->raft) >= s->id.index)
		reply(c, s->chunks, false);
	forget(c);
}

void snapshot_chunk_written(struct core *c, uint64_t job, enum err e)
{
	struct snapshots *s = &c->snapshots;

	if (s->write_job == 0 || job != s->write_job)
		return;
	s->write_job = 0;
	if (e) {
		refuse(c);
	} else if (s->finishing) {
		finished(c);
	} else {
		s->next++;
		reply(c, s->next, false);
	}
}
