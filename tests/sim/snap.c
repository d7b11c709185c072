/* snap.c: a replica's snapshot thread, as server/node/snap.c has it: one job at a time, in order, each taking its time. A crash in the middle
 * leaves the snapshot of before. The view of a save must be the same at its end as at its beginning, whatever the core did meanwhile. */
#include "sim.h"

#include "core/snapshot/snapshot.h"

static struct snapshot_file *file_new(struct entry_id id)
{
	struct snapshot_file *f = mem_zalloc(sizeof *f);

	f->refs = 1;
	f->id = id;
	return f;
}

static sim_us job_time(struct world *w, const struct snapshot_job *job)
{
	if (job->kind != SNAPSHOT_SAVE)
		return rng_between(&w->disk_rng, 50, 2 * w->config.disk_delay);
	if (rng_chance(&w->disk_rng, 100000))
		return rng_between(&w->disk_rng, SIM_SECOND, 6 * SIM_SECOND);
	return rng_between(&w->disk_rng, 2 * SIM_MS, 300 * SIM_MS);
}

static void begin(struct replica *r)
{
	struct snap *s = &r->snap;

	if (s->busy || s->queue.len == 0)
		return;
	s->busy = true;
	if (s->queue.at[0].kind == SNAPSHOT_SAVE)
		s->view_hash = state_hash(s->queue.at[0].view);
	sim_at(r->w, r->w->now + job_time(r->w, &s->queue.at[0]), (struct ev){ .kind = EV_SNAP, .a = r->id, .n = r->generation });
}

void snap_queue(struct replica *r, struct snapshot_job *job)
{
	struct snapshot_job *mine = SIM_PUSH(&r->snap.queue);

	*mine = *job;
	mine->bytes = buf_take(&job->bytes);
	begin(r);
}

static void save(struct replica *r, const struct snapshot_job *job)
{
	struct world *w = r->w;
	struct inbox_item done = { .event = { .kind = EVENT_SNAPSHOT_SAVED, .saved = { .index = job->view->applied.index } } };
	struct snapshot_file *f = file_new(job->view->applied);
	struct snapshot_encoder *enc;

	f->state_hash = state_hash(job->view);
	CHECK(w, "P10", f->state_hash == r->snap.view_hash, "%s: a view changed while it was being saved", r->name);
	enc = snapshot_encoder_new(job->view, w->cell_id);
	for (struct buf chunk = { 0 }; snapshot_encoder_next(enc, &chunk); chunk = (struct buf){ 0 })
		*SIM_PUSH(&f->chunks) = chunk;
	snapshot_encoder_free(enc);
	if (rng_chance(&w->disk_rng, 20000))
		done.event.saved.err = ERR_DISK_FULL;
	else if (r->disk.snapshot && r->disk.snapshot->id.index >= f->id.index)
		done.event.saved.err = ERR_EXISTS;
	if (!done.event.saved.err) {
		snapshot_file_unref(r->disk.snapshot);
		r->disk.snapshot = snapshot_file_ref(f);
		w->totals.snapshots++;
		TRACE(w, "%s snapshot at %llu saved, %zu chunks", r->name, (unsigned long long)f->id.index, f->chunks.len);
	}
	snapshot_file_unref(f);
	replica_put(r, &r->done, done);
}

static void read_chunk(struct replica *r, const struct snapshot_job *job)
{
	struct snap *s = &r->snap;
	struct inbox_item done = { .event = { .kind = EVENT_CHUNK_READ, .chunk = { .job = job->job } } };

	if (!s->reader || s->reader->id.index != job->id.index || s->reader->id.term != job->id.term) {
		snapshot_file_unref(s->reader);
		s->reader = snapshot_file_ref(r->disk.snapshot);
	}
	if (!s->reader || job->chunk >= s->reader->chunks.len || rng_chance(&r->w->disk_rng, 5000)) {
		done.event.chunk.err = ERR_NOT_FOUND;
	} else {
		done.bytes = buf_copy_of(buf_view(&s->reader->chunks.at[job->chunk]));
		done.event.chunk.bytes = buf_view(&done.bytes);
		done.event.chunk.id = s->reader->id;
		done.event.chunk.chunks = s->reader->chunks.len;
		done.event.chunk.state_hash = s->reader->state_hash;
	}
	replica_put(r, &r->done, done);
}

static void drop_received(struct snap *s)
{
	snapshot_file_unref(s->writer);
	s->writer = NULL;
}

static enum err write_received(struct replica *r, struct snapshot_job *job)
{
	struct snap *s = &r->snap;

	if (job->chunk == 0) {
		drop_received(s);
		if (r->disk.snapshot && r->disk.snapshot->id.index >= job->id.index)
			return ERR_EXISTS;
		s->writer = file_new(job->id);
	}
	if (!s->writer || job->chunk > s->writer->chunks.len)
		return ERR_NOT_FOUND;
	if (rng_chance(&r->w->disk_rng, 10000))
		return ERR_DISK_FULL;
	if (job->chunk < s->writer->chunks.len)
		return slice_eq(buf_view(&s->writer->chunks.at[job->chunk]), buf_view(&job->bytes)) ? ERR_OK : ERR_CORRUPT;
	*SIM_PUSH(&s->writer->chunks) = buf_take(&job->bytes);
	r->w->totals.chunks++;
	return ERR_OK;
}

static void write_chunk(struct replica *r, struct snapshot_job *job)
{
	struct snap *s = &r->snap;
	struct inbox_item done = { .event = { .kind = EVENT_CHUNK_WRITTEN, .chunk = { .job = job->job } } };
	enum err e = write_received(r, job);

	if (e) {
		drop_received(s);
	} else if (job->last) {
		s->writer->state_hash = job->state_hash;
		disk_queue(r, (struct disk_item){ .kind = ITEM_INSTALL, .file = s->writer, .job = job->job });
		s->writer = NULL;
		return;
	}
	done.event.chunk.err = e;
	replica_put(r, &r->done, done);
}

void snap_event(struct replica *r)
{
	struct snap *s = &r->snap;
	struct snapshot_job job = s->queue.at[0];

	s->queue.len--;
	memmove(s->queue.at, s->queue.at + 1, s->queue.len * sizeof *s->queue.at);
	s->busy = false;
	switch (job.kind) {
	case SNAPSHOT_SAVE: save(r, &job); break;
	case SNAPSHOT_READ: read_chunk(r, &job); break;
	case SNAPSHOT_WRITE: write_chunk(r, &job); break;
	case SNAPSHOT_ABORT: drop_received(s); break;
	}
	buf_free(&job.bytes);
	begin(r);
}

void snap_crash(struct replica *r)
{
	struct snap *s = &r->snap;

	for (size_t i = 0; i < s->queue.len; i++)
		buf_free(&s->queue.at[i].bytes);
	s->queue.len = 0;
	s->busy = false;
	drop_received(s);
	snapshot_file_unref(s->reader);
	s->reader = NULL;
}
