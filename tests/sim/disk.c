/* disk.c: a replica's log on disk, as server/node/disk.c and storage.h have it.
 *
 * One thread takes all writes that are queued and commits them together; a completion answers for all of them. What was not completed when
 * the process dies may be there afterwards or not, but only a prefix of it, and each write as a whole.
 *
 *   (V6) only what storage.h allows is asked for: no gaps, nothing cut below the snapshot, nothing trimmed above it. */
#include "sim.h"

/* ---- a log ---- */

void dlog_clear(struct dlog *l, raft_index first)
{
	dlog_cut(l, 0);
	l->first = first;
}

void dlog_cut(struct dlog *l, raft_index from)
{
	while (l->len > 0 && l->first + l->len > from)
		raft_entry_unref(l->at[--l->len]);
}

void dlog_trim(struct dlog *l, raft_index to)
{
	size_t n = to >= l->first ? (size_t)(to - l->first + 1) : 0;

	if (n == 0)
		return;
	if (n > l->len)
		n = l->len;
	for (size_t i = 0; i < n; i++)
		raft_entry_unref(l->at[i]);
	memmove(l->at, l->at + n, (l->len - n) * sizeof *l->at);
	l->len -= n;
	l->first += n;
}

void dlog_append(struct dlog *l, struct raft_entry *e)
{
	l->at = sim_vec_grow(l->at, l->len, &l->cap, sizeof *l->at);
	l->at[l->len++] = raft_entry_ref(e);
}

struct raft_entry *dlog_at(const struct dlog *l, raft_index index)
{
	return index >= l->first && index < l->first + l->len ? l->at[index - l->first] : NULL;
}

/* ---- snapshots that are whole ---- */

struct snapshot_file *snapshot_file_ref(struct snapshot_file *f)
{
	if (f)
		f->refs++;
	return f;
}

void snapshot_file_unref(struct snapshot_file *f)
{
	if (!f || --f->refs > 0)
		return;
	for (size_t i = 0; i < f->chunks.len; i++)
		buf_free(&f->chunks.at[i]);
	free(f->chunks.at);
	free(f);
}

void snapshot_part_drop(struct disk *d)
{
	snapshot_file_unref(d->part.file);
	d->part = (struct snapshot_part){ 0 };
}

struct entry_id disk_last(const struct disk *d)
{
	if (d->log.len > 0) {
		const struct raft_entry *e = d->log.at[d->log.len - 1];

		return (struct entry_id){ e->index, e->term };
	}
	return d->snapshot ? d->snapshot->id : (struct entry_id){ 0 };
}

/* ---- damage, as storage/mend.c has it ---- */

static bool reaches(struct entry_id last, struct entry_id other)
{
	return last.term > other.term || (last.term == other.term && last.index >= other.index);
}

static void settle_lost(struct disk *d)
{
	if (d->lost.index == 0 || !reaches(disk_last(d), d->lost))
		return;
	d->lost = (struct entry_id){ 0 };
	dlog_clear(&d->had, 1);
	d->had_snapshot = 0;
}

static void note_had(struct disk *d)
{
	dlog_clear(&d->had, d->log.first);
	for (size_t i = 0; i < d->log.len; i++)
		dlog_append(&d->had, d->log.at[i]);
	d->had_snapshot = d->snapshot ? d->snapshot->id.index : 0;
}

bool disk_damage(struct replica *r, bool snapshot)
{
	struct world *w = r->w;
	struct disk *d = &r->disk;
	struct entry_id reached = disk_last(d);
	bool more = d->lost.index == 0 || !reaches(d->lost, reached); /* than it has lost before, and not got back */
	raft_index at;

	if (snapshot ? !d->snapshot : d->log.len == 0)
		return false;
	if (more)
		note_had(d);
	if (snapshot) {
		snapshot_file_unref(d->snapshot);
		d->snapshot = NULL;
		if (d->log.first > 1)
			dlog_clear(&d->log, 1);
		TRACE(w, "%s: its snapshot is damaged", r->name);
	} else {
		at = d->log.first + rng_below(&w->fault_rng, d->log.len);
		TRACE(w, "%s: entry %llu is damaged", r->name, (unsigned long long)at);
		if (d->snapshot && at <= d->snapshot->id.index)
			dlog_trim(&d->log, at);
		else
			dlog_cut(&d->log, at);
	}
	w->totals.damages++;
	if (!reaches(disk_last(d), reached)) {
		if (more)
			d->lost = reached;
		w->totals.losses++;
	}
	settle_lost(d);
	return true;
}

/* ---- the thread ---- */

void disk_item_free(struct disk_item *item)
{
	for (size_t i = 0; i < item->write.entries_len; i++)
		raft_entry_unref(item->write.entries[i]);
	free(item->write.entries);
	snapshot_file_unref(item->file);
}

static raft_index snapshot_index(const struct disk *d)
{
	return d->snapshot ? d->snapshot->id.index : 0;
}

static void apply_write(struct replica *r, const struct core_write *wr)
{
	struct world *w = r->w;
	struct disk *d = &r->disk;
	raft_index cut = wr->truncate_from;

	if (wr->hard_changed) {
		CHECK(w, "raft", wr->hard.term >= d->hard.term, "%s: the term on disk falls from %llu to %llu", r->name, (unsigned long long)d->hard.term,
		      (unsigned long long)wr->hard.term);
		CHECK(w, "raft", wr->hard.term > d->hard.term || d->hard.voted_for == 0 || d->hard.voted_for == wr->hard.voted_for,
		      "%s: votes twice in term %llu", r->name, (unsigned long long)wr->hard.term);
		d->hard = wr->hard;
	}
	if (cut && cut <= d->installed)
		cut = d->installed + 1;
	CHECK(w, "storage", !cut || cut > snapshot_index(d), "%s: cut at %llu, below its snapshot", r->name, (unsigned long long)cut);
	if (cut)
		dlog_cut(&d->log, cut);
	for (size_t i = 0; i < wr->entries_len; i++) {
		struct raft_entry *e = wr->entries[i];

		if (e->index <= d->installed)
			continue;
		CHECK(w, "storage", e->index == dlog_end(&d->log), "%s: entry %llu written behind %llu", r->name, (unsigned long long)e->index,
		      (unsigned long long)dlog_end(&d->log) - 1);
		dlog_append(&d->log, e);
	}
	CHECK(w, "storage", wr->trim_to <= snapshot_index(d), "%s: trimmed to %llu, above its snapshot", r->name, (unsigned long long)wr->trim_to);
	if (wr->trim_to)
		dlog_trim(&d->log, wr->trim_to);
	settle_lost(d);
}

static enum err apply_install(struct replica *r, struct disk_item *item)
{
	struct disk *d = &r->disk;
	struct snapshot_file *f = item->file;
	const struct raft_entry *e = dlog_at(&d->log, f->id.index);

	CHECK(r->w, "storage", f == d->part.file && d->part.durable == d->part.chunks, "%s: a snapshot at %llu put in force that is not whole", r->name,
	      (unsigned long long)f->id.index);
	snapshot_part_drop(d); /* the item has its own reference */
	if (snapshot_index(d) >= f->id.index)
		return ERR_EXISTS;
	snapshot_file_unref(d->snapshot);
	d->snapshot = snapshot_file_ref(f);
	d->installed = f->id.index;
	if (!e || e->term != f->id.term)
		dlog_clear(&d->log, f->id.index + 1);
	settle_lost(d);
	return ERR_OK;
}

static void read_done(struct replica *r, const struct disk_item *item)
{
	const struct raft_read *rd = &item->read;
	struct inbox_item done = { .event = { .kind = EVENT_LOG_READ, .log_read = { .id = rd->id } } };
	size_t bytes = 0, n = 0, max = (size_t)(rd->to - rd->from + 1);

	if (!dlog_at(&r->disk.log, rd->from)) {
		done.event.log_read.err = ERR_NOT_FOUND;
		replica_put(r, &r->done, done);
		return;
	}
	if (rng_chance(&r->w->disk_rng, 100000))
		max = 1; /* an answer may stop earlier */
	done.entries = mem_alloc(max * sizeof *done.entries);
	for (; n < max; n++) {
		struct raft_entry *e = dlog_at(&r->disk.log, rd->from + n);

		if (!e || (n > 0 && bytes + e->len > rd->max_bytes))
			break;
		bytes += e->len;
		done.entries[n] = raft_entry_ref(e);
	}
	done.event.log_read.entries = done.entries;
	done.event.log_read.len = n;
	replica_put(r, &r->done, done);
}

static void install_done(struct replica *r, struct disk_item *item)
{
	struct inbox_item done = { .event = { .kind = EVENT_CHUNK_WRITTEN, .chunk = { .job = item->job } } };

	done.event.chunk.err = apply_install(r, item);
	if (!done.event.chunk.err)
		done.installed = item->file->id;
	replica_put(r, &r->done, done);
}

static void begin(struct replica *r)
{
	struct world *w = r->w;
	struct disk *d = &r->disk;
	sim_us at = w->now > d->stall_until ? w->now : d->stall_until;

	if (d->busy || d->queue.len == 0)
		return;
	d->in_batch = 1;
	if (d->queue.at[0].kind == ITEM_WRITE)
		while (d->in_batch < d->queue.len && d->queue.at[d->in_batch].kind == ITEM_WRITE)
			d->in_batch++;
	d->busy = true;
	at += rng_between(&w->disk_rng, w->config.disk_delay / 4, w->config.disk_delay);
	if (rng_chance(&w->disk_rng, 5000))
		at += rng_below(&w->disk_rng, 200 * SIM_MS);
	sim_at(w, at, (struct ev){ .kind = EV_DISK, .a = r->id, .n = r->generation });
}

void disk_queue(struct replica *r, struct disk_item item)
{
	*SIM_PUSH(&r->disk.queue) = item;
	begin(r);
}

void disk_event(struct replica *r)
{
	struct disk *d = &r->disk;
	uint64_t seq = 0;

	for (size_t i = 0; i < d->in_batch; i++) {
		struct disk_item *item = &d->queue.at[i];

		switch (item->kind) {
		case ITEM_WRITE:
			apply_write(r, &item->write);
			if (item->write.seq)
				seq = item->write.seq;
			break;
		case ITEM_READ: read_done(r, item); break;
		case ITEM_INSTALL: install_done(r, item); break;
		}
		disk_item_free(item);
	}
	d->queue.len -= d->in_batch;
	memmove(d->queue.at, d->queue.at + d->in_batch, d->queue.len * sizeof *d->queue.at);
	d->busy = false;
	d->in_batch = 0;
	if (seq > r->disk_done_in) {
		r->disk_done_in = seq;
		replica_poke(r);
	}
	begin(r);
}

/* The process died. A prefix of what was queued made it to the disk. */
void disk_crash(struct replica *r)
{
	struct disk *d = &r->disk;
	size_t keep = rng_below(&r->w->disk_rng, d->queue.len + 1);

	if (rng_chance(&r->w->disk_rng, 400000))
		keep = 0;
	for (size_t i = 0; i < d->queue.len; i++) {
		struct disk_item *item = &d->queue.at[i];

		if (i < keep && item->kind == ITEM_WRITE)
			apply_write(r, &item->write);
		else if (i < keep && item->kind == ITEM_INSTALL)
			(void)apply_install(r, item);
		disk_item_free(item);
	}
	d->queue.len = d->in_batch = 0;
	d->busy = false;
	d->installed = 0;
	if (d->stall_until > r->w->now)
		d->stall_until = r->w->now;
}
