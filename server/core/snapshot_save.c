/* snapshot_save.c: this replica's own snapshots, and what of the log they make superfluous.
 *
 *   (V1) one is saved at a time, from a view of the state as it was after one entry; the view is closed when the disk has answered.
 *   (V2) the log is trimmed only below a snapshot that is durable, and keeps snapshot_keep entries behind it for followers that are slow.
 *   (V3) what a view alone still holds is freed in slices, since it is as much as was changed while the view was open. */
#include "internal.h"

enum { SAVE_RETRY_MS = 5000, SAVE_LOG_BYTES = 256 << 20, CLOSE_RECORDS = 2000 };

struct snapshot_job *snapshot_job_new(struct core *c, enum snapshot_job_kind kind)
{
	struct snapshot_job *job = VEC_PUSH(&c->out.jobs);

	job->kind = kind;
	job->job = ++c->snapshots.next_job;
	return job;
}

static bool save_due(const struct core *c)
{
	const struct snapshots *s = &c->snapshots;

	if (s->save_job || c->state.applied.index <= s->saved.index || c->now < s->retry_at || s->install.phase == INSTALL_FINISHING)
		return false;
	return s->wanted || c->state.applied.index - s->saved.index >= c->config.snapshot_count || s->log_bytes >= SAVE_LOG_BYTES;
}

void snapshot_close_take(struct core *c, struct state *view)
{
	struct snapshots *s = &c->snapshots;

	if (s->closing) /* two at a time: the first has had its chance */
		state_deinit(&s->closed);
	s->closing = true;
	s->closed = *view;
	memset(view, 0, sizeof *view);
}

static void close_some(struct snapshots *s)
{
	if (s->closing)
		s->closing = !state_drop_some(&s->closed, CLOSE_RECORDS); /* V3 */
}

void snapshot_save_tick(struct core *c)
{
	struct snapshots *s = &c->snapshots;
	struct snapshot_job *job;

	close_some(s);
	if (!save_due(c))
		return;
	s->saving = c->state.applied;
	s->view = state_view(&c->state);
	s->log_bytes = 0;
	s->wanted = false;
	job = snapshot_job_new(c, SNAPSHOT_SAVE);
	s->save_job = job->job;
	job->view = &s->view;
	job->id = s->saving;
	job->state_hash = state_hash(&s->view);
	core_emit(c, TRACE_SNAPSHOT, s->saving.index, s->saving.term, 0);
}

/* V2 */
static void trim(struct core *c)
{
	struct snapshots *s = &c->snapshots;
	raft_index keep = c->config.snapshot_keep;
	raft_index to = s->saved.index > keep ? s->saved.index - keep : 0;

	raft_trim(c->raft, s->saved, to);
	if (to > s->trim_to)
		s->trim_to = to;
}

void snapshot_saved(struct core *c, raft_index index, enum err e)
{
	struct snapshots *s = &c->snapshots;

	if (!s->save_job || index != s->saving.index)
		return;
	s->save_job = 0;
	snapshot_close_take(c, &s->view);
	if (e && e != ERR_EXISTS) {
		s->retry_at = c->now + SAVE_RETRY_MS;
		return;
	}
	if (s->saving.index > s->saved.index && !e) {
		s->saved = s->saving;
		trim(c);
	}
	snapshot_send_tick(c);
}

void snapshots_deinit(struct core *c)
{
	struct snapshots *s = &c->snapshots;

	if (s->save_job)
		state_deinit(&s->view);
	if (s->closing)
		state_deinit(&s->closed);
	state_deinit(&s->install.state);
}
