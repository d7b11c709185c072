/* snapshot_receive.c: the state comes as a snapshot, since the log behind ours is gone.
 *
 *   NONE ──chunk 0──► RECEIVING ──the last is written──► LOADING ──whole──► READY ──the log is quiet──► FINISHING ──► NONE
 *
 * What happens, in this order:
 *   1. a chunk is written aside, and the one behind it is asked for; some of them are made durable together;
 *   2. when all are there, they are made durable and read back from the disk, off this thread, into a state of its own;
 *   3. it is compared with what was announced; from here on no entries are taken;
 *   4. once all of our log is durable, the snapshot takes the place of the one before, and the log gives way to it;
 *   5. the state that serves is replaced by the other one, and the leader hears that we have it.
 * A crash before 4 leaves those chunks that were durable; the owner says after the start how many there are, and they are not sent again:
 * whatever chunk comes, the answer names the one that is wanted. With all of them there it goes on at 2 without the leader. A crash
 * in 4 leaves one or the other of the two snapshots, whole (storage.h).
 *
 *   (X1) chunks are taken in order. How many count is what the disk holds, and nothing that is remembered beside it: so the number that is asked for
 *        may go back after a restart, and never says more than is there. The state that serves is not touched until all is whole, verified
 *        and durable; then it is replaced in one step.
 *   (X2) what is damaged is refused, nothing is kept of it.
 *   (X3) the snapshot is put in force only when the log is quiet (all of ours is durable), and no entries are taken until it is
 *        done: that cuts the log, and an append must not meet a log cut under it. Entries dropped are sent again.
 *   (X4) a snapshot of what is committed here anyway is not installed; it is acknowledged once our log is durable up to it.
 *   (X5) entries inside the snapshot are never seen here: see W4 in propose.c for the calls among them, and waiters_recheck.
 *   (X6) what is kept is of one snapshot: index, term, hash of the state and number of chunks. Another one throws it away, newer or (another
 *        leader's) older, but for a late message of the same leader, whose snapshots only get newer. So does a log that has passed it by. */
#include "internal.h"

/* ---- beginning and end of a transfer ---- */

static void forget(struct core *c)
{
	struct install *in = &c->snapshots.install;

	if (in->state.applied.index != 0)
		snapshot_close_take(c, &in->state);
	memset(in, 0, sizeof *in);
}

static void abort_transfer(struct core *c)
{
	if (c->snapshots.install.phase == INSTALL_NONE)
		return;
	snapshot_job_new(c, SNAPSHOT_ABORT)->id = c->snapshots.install.id;
	forget(c);
}

static void begin_transfer(struct core *c, const struct raft_message *m)
{
	struct install *in = &c->snapshots.install;

	forget(c); /* writing chunk 0 drops what there is on disk */
	in->phase = INSTALL_RECEIVING;
	in->id = m->log;
	in->chunks = m->chunks;
	in->state_hash = m->state_hash;
}

static void reply(struct core *c, uint64_t next, bool reject)
{
	const struct install *in = &c->snapshots.install;

	if (in->from)
		raft_reply_snapshot(c->raft, in->from, in->id, next, reject);
}

static void refuse(struct core *c)
{
	reply(c, 0, true);
	abort_transfer(c);
}

/* ---- chunks ---- */

static struct snapshot_job *order(struct core *c, enum snapshot_job_kind kind)
{
	struct install *in = &c->snapshots.install;
	struct snapshot_job *job = snapshot_job_new(c, kind);

	job->id = in->id;
	job->chunks = in->chunks;
	job->state_hash = in->state_hash;
	in->job = job->job;
	return job;
}

static void take_chunk(struct core *c, struct slice bytes)
{
	struct snapshot_job *job = order(c, SNAPSHOT_WRITE);

	job->chunk = c->snapshots.install.next;
	job->bytes = buf_copy_of(bytes);
}

static void load_if_all(struct core *c)
{
	struct install *in = &c->snapshots.install;

	if (in->next < in->chunks)
		return;
	in->phase = INSTALL_LOADING;
	order(c, SNAPSHOT_LOAD);
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

static bool is_same(const struct install *in, const struct raft_message *m)
{
	return in->phase != INSTALL_NONE && in->id.index == m->log.index && in->id.term == m->log.term && in->chunks == m->chunks &&
	       in->state_hash == m->state_hash;
}

static void receive(struct core *c, const struct raft_message *m)
{
	struct install *in = &c->snapshots.install;

	if (m->chunks == 0 || m->chunk >= m->chunks || have_it(c, m))
		return;
	if (in->phase >= INSTALL_READY) /* busy with the end of one */
		return;
	if (!is_same(in, m)) {
		if (in->offered == m->term && m->log.index < in->id.index) /* X6: late */
			return;
		if (m->chunk != 0) { /* the beginning of it is missing */
			raft_reply_snapshot(c->raft, m->from, m->log, 0, true);
			return;
		}
		begin_transfer(c, m);
	}
	in->from = m->from;
	in->offered = m->term;
	if (in->job)
		return;
	if (m->chunk == in->next)
		take_chunk(c, m->data);
	else
		reply(c, in->next, false);
}

void snapshot_receive(struct core *c, struct raft_message *m)
{
	receive(c, m);
	free((void *)(uintptr_t)m->data.ptr);
	m->data = (struct slice){ 0 };
}

void snapshot_part_found(struct core *c, const struct core_event *e)
{
	struct install *in = &c->snapshots.install;

	ASSERT(in->phase == INSTALL_NONE);
	ASSERT(e->part.have <= e->part.chunks);
	in->phase = INSTALL_RECEIVING;
	in->id = e->part.id;
	in->chunks = e->part.chunks;
	in->state_hash = e->part.state_hash;
	in->next = e->part.have;
	if (in->id.index <= raft_commit_index(c->raft))
		abort_transfer(c);
	else
		load_if_all(c);
}

/* ---- all is there ---- */

static bool log_is_quiet(const struct core *c)
{
	return raft_stable_index(c->raft) == raft_last_index(c->raft) && c->out.entries.len == 0;
}

void snapshot_receive_tick(struct core *c)
{
	struct install *in = &c->snapshots.install;

	if (in->phase == INSTALL_NONE || in->phase == INSTALL_FINISHING)
		return;
	if (in->id.index <= raft_commit_index(c->raft)) { /* X6 */
		abort_transfer(c);
	} else if (in->phase == INSTALL_READY && log_is_quiet(c)) { /* X3 */
		in->phase = INSTALL_FINISHING;
		order(c, SNAPSHOT_INSTALL);
	}
}

bool snapshot_blocks_appends(const struct core *c)
{
	return c->snapshots.install.phase >= INSTALL_READY;
}

/* Whether what was read back is the snapshot that was announced. */
static bool is_announced(const struct install *in, const struct state *st)
{
	return st->applied.index == in->id.index && st->applied.term == in->id.term && state_hash(st) == in->state_hash;
}

void snapshot_loaded(struct core *c, uint64_t job, enum err e, struct state *st)
{
	struct install *in = &c->snapshots.install;

	if (in->phase != INSTALL_LOADING || job != in->job) {
		if (!e)
			snapshot_close_take(c, st);
		return;
	}
	in->job = 0;
	if (!e && is_announced(in, st)) {
		in->phase = INSTALL_READY;
		in->state = *st;
		memset(st, 0, sizeof *st);
		snapshot_receive_tick(c);
		return;
	}
	if (!e)
		snapshot_close_take(c, st);
	refuse(c); /* X2 */
}

/* ---- installing ---- */

static void replace_state(struct core *c)
{
	struct state old = c->state;
	uint64_t auth_revision_before = auth_revision(c->auth);
	const struct contender *granted[64];

	c->state = c->snapshots.install.state;
	memset(&c->snapshots.install.state, 0, sizeof c->snapshots.install.state);
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
	struct entry_id id = c->snapshots.install.id;

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
	const struct install *in = &c->snapshots.install;

	if (in->id.index > raft_commit_index(c->raft) && raft_role(c->raft) != RAFT_LEADER)
		install(c);
	else if (in->id.index > c->snapshots.saved.index)
		c->snapshots.saved = in->id;
	if (raft_stable_index(c->raft) >= in->id.index)
		reply(c, in->chunks, false);
	forget(c);
}

void snapshot_chunk_written(struct core *c, uint64_t job, enum err e)
{
	struct install *in = &c->snapshots.install;

	if (in->phase == INSTALL_NONE || job != in->job)
		return;
	in->job = 0;
	if (e) {
		refuse(c);
	} else if (in->phase == INSTALL_FINISHING) {
		finished(c);
	} else {
		in->next++;
		if (in->next < in->chunks)
			reply(c, in->next, false);
		load_if_all(c);
	}
}
