/* snap.c: a replica's snapshot thread, as server/node/snap.c has it: one job at a time, in order, each taking its time. A crash in the middle
 * leaves the snapshot of before. The view of a save must be the same at its end as at its beginning, whatever the core did meanwhile.
 *
 * Of a snapshot that is received a crash leaves as many chunks as were durable, and some of those behind them: each whole or not at all, as
 * LMDB commits them. Now and then one of them is damaged, and storage then keeps nothing of it.
 *
 *   (V7) what is written of a snapshot is that snapshot's, chunk by chunk in order: whoever saved it, its bytes are the same. */
#include "sim.h"

#include "base/hash.h"
#include "core/snapshot/snapshot.h"

enum { PART_DAMAGED = 20000, CRASHES = 20000 }; /* per million: of what a crash leaves; of steps of a receiver */

static struct snapshot_file *file_new(struct entry_id id)
{
	struct snapshot_file *f = mem_zalloc(sizeof *f);

	f->refs = 1;
	f->id = id;
	return f;
}

enum err snapshot_file_decode(struct world *w, const struct snapshot_file *f, struct state *ret)
{
	struct snapshot_decoder *dec = snapshot_decoder_new(w->cell_id);
	enum err e = ERR_OK;

	for (size_t i = 0; !e && i < f->chunks.len; i++)
		e = snapshot_decoder_feed(dec, buf_view(&f->chunks.at[i]));
	if (!e)
		e = snapshot_decoder_finish(dec, ret);
	snapshot_decoder_free(dec);
	return e;
}

/* (V7) */
static void check_chunk(struct replica *r, struct entry_id id, size_t number, struct slice bytes, bool saved)
{
	uint64_t hash = hash64(1, bytes.ptr, bytes.len) | 1;
	uint64_t key = hash64_u64(hash64_u64(id.index, id.term), number);
	void *known = saved ? map64_put(&r->w->chunks, key, (void *)(uintptr_t)hash) : map64_get(&r->w->chunks, key);

	CHECK(r->w, "P10", (saved && !known) || known == (void *)(uintptr_t)hash, "%s: chunk %zu of the snapshot at %llu is not what others have saved", r->name,
	      number, (unsigned long long)id.index);
}

/* A save that takes seconds is a fault like others, and over when all is healed: installations that others wait for are read behind it. */
static sim_us job_time(struct world *w, const struct snapshot_job *job)
{
	sim_us left = w->now < w->heal_at ? w->heal_at - w->now : 0;

	if (job->kind != SNAPSHOT_SAVE)
		return rng_between(&w->disk_rng, 50, 2 * w->config.disk_delay);
	if (left > SIM_SECOND && rng_chance(&w->disk_rng, 100000))
		return rng_between(&w->disk_rng, SIM_SECOND, left < 6 * SIM_SECOND ? left : 6 * SIM_SECOND);
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
	if (w->config.snapshot_chunk)
		snapshot_encoder_chunk_bytes(enc, w->config.snapshot_chunk);
	for (struct buf chunk = { 0 }; snapshot_encoder_next(enc, &chunk); chunk = (struct buf){ 0 }) {
		check_chunk(r, f->id, f->chunks.len, buf_view(&chunk), /*saved=*/true);
		*SIM_PUSH(&f->chunks) = chunk;
	}
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

/* The one asked for, or the newest, which takes the place of another. */
static struct snapshot_file *reader_of(struct replica *r, struct entry_id id)
{
	struct snap *s = &r->snap;
	struct snapshot_file *newest = r->disk.snapshot;

	for (size_t i = 0; i < SNAP_READERS; i++)
		if (s->readers[i] && s->readers[i]->id.index == id.index && s->readers[i]->id.term == id.term)
			return s->readers[i];
	for (size_t i = 0; i < SNAP_READERS; i++)
		if (s->readers[i] == newest)
			return newest;
	snapshot_file_unref(s->readers[s->next_reader]);
	s->readers[s->next_reader] = snapshot_file_ref(newest);
	s->next_reader = (s->next_reader + 1) % SNAP_READERS;
	return newest;
}

static void read_chunk(struct replica *r, const struct snapshot_job *job)
{
	struct inbox_item done = { .event = { .kind = EVENT_CHUNK_READ, .chunk = { .job = job->job } } };
	struct snapshot_file *f = reader_of(r, job->id);

	if (!f || job->chunk >= f->chunks.len || rng_chance(&r->w->disk_rng, 5000)) {
		done.event.chunk.err = ERR_NOT_FOUND;
	} else {
		done.bytes = buf_copy_of(buf_view(&f->chunks.at[job->chunk]));
		done.event.chunk.bytes = buf_view(&done.bytes);
		done.event.chunk.id = f->id;
		done.event.chunk.chunks = f->chunks.len;
		done.event.chunk.state_hash = f->state_hash;
	}
	replica_put(r, &r->done, done);
}

/* ---- received ---- */

static bool is_part(const struct replica *r, const struct snapshot_job *job)
{
	const struct snapshot_part *p = &r->disk.part;

	return p->file && p->file->id.index == job->id.index && p->file->id.term == job->id.term && p->chunks == job->chunks &&
	       p->file->state_hash == job->state_hash;
}

static void check_part(struct replica *r, const struct snapshot_job *job)
{
	CHECK(r->w, "storage", is_part(r, job), "%s goes on with a snapshot at %llu of which there is nothing", r->name, (unsigned long long)job->id.index);
}

static void drop_part(struct replica *r)
{
	if (r->disk.part.file)
		r->w->totals.parts_dropped++;
	snapshot_part_drop(&r->disk);
}

static enum err write_received(struct replica *r, struct snapshot_job *job)
{
	struct world *w = r->w;
	struct snapshot_part *p = &r->disk.part;

	if (job->chunk == 0) {
		drop_part(r);
		if (r->disk.snapshot && r->disk.snapshot->id.index >= job->id.index)
			return ERR_EXISTS;
		p->file = file_new(job->id);
		p->file->state_hash = job->state_hash;
		p->chunks = job->chunks;
	}
	check_part(r, job);
	CHECK(w, "storage", job->chunk == p->file->chunks.len && job->chunk < job->chunks, "%s writes chunk %llu of a snapshot at %llu behind %zu of %llu", r->name,
	      (unsigned long long)job->chunk, (unsigned long long)job->id.index, p->file->chunks.len, (unsigned long long)job->chunks);
	check_chunk(r, job->id, job->chunk, buf_view(&job->bytes), /*saved=*/false);
	if (rng_chance(&w->disk_rng, 10000))
		return ERR_DISK_FULL;
	*SIM_PUSH(&p->file->chunks) = buf_take(&job->bytes);
	w->totals.chunks++;
	if (rng_chance(&w->part_rng, 200000))
		p->durable = p->file->chunks.len;
	return ERR_OK;
}

static void write_chunk(struct replica *r, struct snapshot_job *job)
{
	struct inbox_item done = { .event = { .kind = EVENT_CHUNK_WRITTEN, .chunk = { .job = job->job } } };

	done.event.chunk.err = write_received(r, job);
	replica_put(r, &r->done, done);
}

static void load_part(struct replica *r, const struct snapshot_job *job)
{
	struct inbox_item done = { .event = { .kind = EVENT_SNAPSHOT_LOADED, .loaded = { .job = job->job } } };
	struct snapshot_part *p = &r->disk.part;

	check_part(r, job);
	CHECK(r->w, "storage", p->file->chunks.len == p->chunks, "%s takes %zu of %llu chunks of a snapshot for the whole", r->name, p->file->chunks.len,
	      (unsigned long long)p->chunks);
	p->durable = p->file->chunks.len;
	done.state = mem_zalloc(sizeof *done.state);
	done.event.loaded.state = done.state;
	done.event.loaded.err = snapshot_file_decode(r->w, p->file, done.state);
	if (!done.event.loaded.err && rng_chance(&r->w->part_rng, 10000)) {
		state_deinit(done.state);
		memset(done.state, 0, sizeof *done.state);
		done.event.loaded.err = ERR_CORRUPT;
	}
	replica_put(r, &r->done, done);
}

static void install_part(struct replica *r, const struct snapshot_job *job)
{
	check_part(r, job);
	disk_queue(r, (struct disk_item){ .kind = ITEM_INSTALL, .file = snapshot_file_ref(r->disk.part.file), .job = job->job });
}

/* Between any two steps of an installation, more often than it would be hit by chance. */
static bool crashes_now(struct replica *r, enum snapshot_job_kind kind)
{
	return r->w->phase == PHASE_CHAOS && (kind == SNAPSHOT_WRITE || kind == SNAPSHOT_LOAD || kind == SNAPSHOT_INSTALL) &&
	       rng_chance(&r->w->part_rng, CRASHES) && !does_without(r->w, PIECE_INSTALL_CRASHES);
}

static void run(struct replica *r)
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
	case SNAPSHOT_LOAD: load_part(r, &job); break;
	case SNAPSHOT_INSTALL: install_part(r, &job); break;
	case SNAPSHOT_ABORT: drop_part(r); break;
	}
	buf_free(&job.bytes);
	begin(r);
}

void snap_event(struct replica *r)
{
	enum snapshot_job_kind kind = r->snap.queue.at[0].kind;

	bool before = crashes_now(r, kind), after = crashes_now(r, kind);

	if (!before)
		run(r);
	if (!before && !after)
		return;
	TRACE(r->w, "%s dies in an installation", r->name);
	faults_crash(r);
}

/* Of what was not durable the first chunks may be there. */
static void crash_part(struct replica *r)
{
	struct snapshot_part *p = &r->disk.part;
	struct rng *rng = &r->w->part_rng;
	size_t keep;

	if (!p->file)
		return;
	keep = rng_chance(rng, 500000) ? p->durable : (size_t)rng_between(rng, p->durable, p->file->chunks.len);
	while (p->file->chunks.len > keep)
		buf_free(&p->file->chunks.at[--p->file->chunks.len]);
	p->durable = keep;
	if (keep == 0 || rng_chance(rng, PART_DAMAGED))
		drop_part(r);
}

void snap_crash(struct replica *r)
{
	struct snap *s = &r->snap;

	for (size_t i = 0; i < s->queue.len; i++)
		buf_free(&s->queue.at[i].bytes);
	s->queue.len = 0;
	s->busy = false;
	crash_part(r);
	for (size_t i = 0; i < SNAP_READERS; i++) {
		snapshot_file_unref(s->readers[i]);
		s->readers[i] = NULL;
	}
}

void snap_start(struct replica *r)
{
	const struct disk *d = &r->disk;
	struct inbox_item item = { .event = { .kind = EVENT_SNAPSHOT_PART } };

	if (d->part.file && d->snapshot && d->part.file->id.index <= d->snapshot->id.index)
		drop_part(r);
	if (!d->part.file)
		return;
	item.event.part.id = d->part.file->id;
	item.event.part.chunks = d->part.chunks;
	item.event.part.state_hash = d->part.file->state_hash;
	item.event.part.have = d->part.file->chunks.len;
	r->w->totals.resumed++;
	TRACE(r->w, "%s has %zu of %llu chunks of a snapshot at %llu", r->name, d->part.file->chunks.len, (unsigned long long)d->part.chunks,
	      (unsigned long long)d->part.file->id.index);
	replica_put(r, &r->done, item);
}
