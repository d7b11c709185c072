/* disk.c: a disk that finishes its writes in order and when it is told to; a crash loses the rest.
 *
 *   (D1) a write is all or nothing; write k is durable only after k-1.
 *   (D2) the log has no gap, and begins at or below snapshot.index + 1 unless it is empty. */
#include "cell.h"

#include <string.h>

#include "base/mem.h"

static void write_deinit(struct disk_write *w)
{
	for (size_t i = 0; i < w->entries_len; i++)
		raft_entry_unref(w->entries[i]);
	free(w->entries);
}

static void log_cut(struct disk *d, size_t len)
{
	while (d->log_len > len)
		raft_entry_unref(d->log[--d->log_len]);
}

static void log_trim(struct disk *d, raft_index to)
{
	size_t n = to >= d->first ? (size_t)(to - d->first + 1) : 0;

	if (n > d->log_len)
		n = d->log_len;
	for (size_t i = 0; i < n; i++)
		raft_entry_unref(d->log[i]);
	memmove(d->log, d->log + n, (d->log_len - n) * sizeof(*d->log));
	d->log_len -= n;
	d->first += n;
}

void disk_deinit(struct disk *d)
{
	disk_drop_queue(d);
	log_cut(d, 0);
	free(d->log);
	free(d->queue);
	*d = (struct disk){ .first = 1 };
}

void disk_drop_queue(struct disk *d)
{
	while (d->queue_len > 0)
		write_deinit(&d->queue[--d->queue_len]);
}

void disk_queue_write(struct disk *d, const struct raft_ready *rd, time_ms due)
{
	struct disk_write *w;

	ASSERT(rd->write_seq > d->queued_seq);
	GROW(d->queue, d->queue_len, d->queue_cap);
	w = &d->queue[d->queue_len++];
	*w = (struct disk_write){
		.seq = rd->write_seq, .hard_changed = rd->hard_changed, .hard = rd->hard,
		.truncate_from = rd->truncate_from, .entries_len = rd->entries_len, .due = due,
	};
	w->entries = mem_alloc((rd->entries_len + 1) * sizeof(*w->entries));
	if (rd->entries_len > 0)
		memcpy(w->entries, rd->entries, rd->entries_len * sizeof(*w->entries));
	d->queued_seq = w->seq;
}

void disk_queue_trim(struct disk *d, raft_index to, time_ms due)
{
	GROW(d->queue, d->queue_len, d->queue_cap);
	d->queue[d->queue_len++] = (struct disk_write){ .trim_to = to, .due = due };
}

size_t disk_pending(const struct disk *d)
{
	return d->queue_len;
}

static void log_append(struct disk *d, struct raft_entry *e)
{
	if (d->log_len == 0) {
		ASSERT(e->index == d->snapshot.id.index + 1 || e->index == d->first);
		d->first = e->index;
	}
	ASSERT(e->index == d->first + d->log_len); /* (D2) */
	ASSERT_IF(d->log_len > 0, d->log[d->log_len - 1]->term <= e->term);
	GROW(d->log, d->log_len, d->log_cap);
	d->log[d->log_len++] = raft_entry_ref(e);
}

void disk_apply_first(struct disk *d)
{
	struct disk_write w = d->queue[0];

	memmove(d->queue, d->queue + 1, --d->queue_len * sizeof(*d->queue));
	if (w.hard_changed) {
		ASSERT(w.hard.term >= d->hard.term);
		ASSERT(w.hard.commit >= d->hard.commit);
		d->hard = w.hard;
	}
	if (w.truncate_from) {
		/* what a snapshot stands for is never cut */
		ASSERT(w.truncate_from > d->snapshot.id.index);
		if (w.truncate_from < d->first + d->log_len)
			log_cut(d, w.truncate_from > d->first ? (size_t)(w.truncate_from - d->first) : 0);
	}
	for (size_t i = 0; i < w.entries_len; i++)
		log_append(d, w.entries[i]);
	if (w.trim_to)
		log_trim(d, w.trim_to);
	if (w.seq)
		d->done_seq = w.seq;
	write_deinit(&w);
}

raft_index disk_last(const struct disk *d)
{
	raft_index last = d->log_len ? d->first + d->log_len - 1 : 0;

	return last > d->snapshot.id.index ? last : d->snapshot.id.index;
}

struct raft_entry *disk_entry(const struct disk *d, raft_index index)
{
	if (index < d->first || index - d->first >= d->log_len)
		return NULL;
	return d->log[index - d->first];
}

raft_term disk_term_at(const struct disk *d, raft_index index)
{
	const struct raft_entry *e = disk_entry(d, index);

	if (index == d->snapshot.id.index)
		return d->snapshot.id.term;
	return e ? e->term : 0;
}

struct raft_entry *disk_queued_entry(const struct disk *d, raft_index index)
{
	for (size_t i = d->queue_len; i-- > 0;) {
		const struct disk_write *w = &d->queue[i];

		if (w->entries_len > 0 && index >= w->entries[0]->index && index - w->entries[0]->index < w->entries_len)
			return w->entries[index - w->entries[0]->index];
		if (w->truncate_from && index >= w->truncate_from)
			return NULL;
	}
	return disk_entry(d, index);
}

raft_term disk_queued_term_at(const struct disk *d, raft_index index)
{
	const struct raft_entry *e = disk_queued_entry(d, index);

	if (index == d->snapshot.id.index)
		return d->snapshot.id.term;
	return e ? e->term : 0;
}

void disk_install(struct disk *d, const struct cell_snapshot *s, bool keep_log)
{
	const struct raft_entry *e = disk_entry(d, s->id.index);

	ASSERT(d->queue_len == 0);
	d->snapshot = *s;
	if (keep_log && e && e->term == s->id.term)
		return;
	log_cut(d, 0);
	d->first = s->id.index + 1;
}

/* A snapshot of our own state may be ahead of the log on disk: what is applied need not be written yet. */
void disk_boot(struct disk *d, struct raft_boot *boot)
{
	const struct cell_snapshot *s = &d->snapshot;
	raft_index from;

	ASSERT(d->queue_len == 0);
	if (d->log_len == 0 || disk_last(d) == s->id.index || d->first + d->log_len - 1 < s->id.index) {
		bool whole = disk_entry(d, s->id.index) && disk_entry(d, s->id.index)->term == s->id.term;

		if (!whole) {
			log_cut(d, 0);
			d->first = s->id.index + 1;
		}
	}
	d->queued_seq = d->done_seq = 0;
	*boot = (struct raft_boot){
		.hard = d->hard, .snapshot = s->id, .first = d->first,
		.members = s->members.list, .members_len = s->members.len,
	};
	boot->last.index = disk_last(d);
	boot->last.term = disk_term_at(d, boot->last.index);
	if (boot->hard.commit > boot->last.index)
		boot->hard.commit = boot->last.index;
	from = boot->hard.commit > s->id.index ? boot->hard.commit : s->id.index;
	if (boot->last.index > from) {
		boot->tail = d->log + (from + 1 - d->first);
		boot->tail_len = (size_t)(boot->last.index - from);
	}
}
