/* disk.c: the log's thread. Takes all that is queued and commits it as one transaction; then says up to which write all is durable.
 *
 * A full disk: the ballast is given up once and the same batch tried again; the core is told that space is low and refuses what
 * grows. Any other failure ends the replica: what is durable is unknown, and it restarts as after a crash. */
#include "internal.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "log/log.h"

#define BATCH_ENTRIES_MAX 8192
#define RESERVE_BYTES (UINT64_C(64) << 20) /* less than this free: what grows is refused */

struct batch {
	struct storage_batch b;
	struct storage_hard_state hard;
	struct storage_entry *entries;
	size_t len, cap;
	uint64_t seq;
	struct list items; /* whose entries these are */
};

void disk_item_free(struct disk_item *item)
{
	for (size_t i = 0; i < item->write.entries_len; i++)
		raft_entry_unref(item->write.entries[i]);
	free(item->write.entries);
	buf_free(&item->job.bytes);
	free(item);
}

void disk_queue(struct disk *d, struct disk_item *item)
{
	pthread_mutex_lock(&d->mu);
	list_push_back(&d->queue, &item->link);
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->mu);
}

/* Later writes may cut what earlier ones of the same batch appended: then the entries never reach the disk at all. */
static void batch_add(struct disk *d, struct batch *b, struct disk_item *item)
{
	struct core_write *w = &item->write;
	if (w->hard_changed) {
		b->hard = (struct storage_hard_state){ .term = w->hard.term, .voted_for = w->hard.voted_for, .commit = w->hard.commit };
		b->b.hard = &b->hard;
	}
	if (w->truncate_from && w->truncate_from <= d->installed)
		w->truncate_from = d->installed + 1;
	if (w->truncate_from) {
		while (b->len && b->entries[b->len - 1].index >= w->truncate_from)
			b->len--;
		if (!b->b.truncate_from || w->truncate_from < b->b.truncate_from)
			b->b.truncate_from = w->truncate_from;
	}
	if (b->len + w->entries_len > b->cap) {
		b->cap = (b->len + w->entries_len) * 2;
		b->entries = mem_realloc(b->entries, b->cap * sizeof(*b->entries));
	}
	for (size_t i = 0; i < w->entries_len; i++) {
		const struct raft_entry *e = w->entries[i];
		/* Taken before the core heard that a snapshot covers it. */
		if (e->index <= d->installed)
			continue;
		b->entries[b->len++] = (struct storage_entry){ e->index, e->term, e->kind, raft_entry_data(e) };
	}
	if (w->trim_to > b->b.trim_to)
		b->b.trim_to = w->trim_to;
	b->seq = w->seq;
	list_push_back(&b->items, &item->link);
}

static void tell_space(struct disk *d, bool low)
{
	struct inbox_item *item = mem_zalloc(sizeof(*item));
	d->low = low;
	item->event.kind = EVENT_SPACE;
	item->event.low = low;
	inbox_put_done(d->node, item);
	if (low)
		log_error("disk space is low, what grows is refused until there is space again");
	else
		log_info("there is disk space again");
}

static void watch_space(struct disk *d)
{
	struct storage_space space;
	struct errmsg em;
	if (storage_space(d->node->config.storage, &space, &em))
		return;
	if (!d->low && space.free_bytes < RESERVE_BYTES)
		tell_space(d, true);
	else if (d->low && space.free_bytes > 2 * RESERVE_BYTES && !storage_restore_ballast(d->node->config.storage, &em))
		tell_space(d, false);
}

static enum err commit(struct disk *d, const struct storage_batch *b)
{
	struct storage *st = d->node->config.storage;
	struct errmsg em;
	enum err e = storage_commit(st, b, &em);
	if (e == ERR_DISK_FULL) {
		log_error("the log does not fit on the disk, the reserve is given up", LOG_STR("cause", em.text));
		if (!storage_release_ballast(st, &em))
			e = storage_commit(st, b, &em);
		if (!d->low)
			tell_space(d, true);
	}
	if (e) {
		log_error("cannot write the log, this replica stops", LOG_ERR("error", e), LOG_STR("cause", em.text));
		node_fail(d->node, "the log could not be written");
	}
	return e;
}

static void commit_batch(struct disk *d, struct batch *b)
{
	struct list *it;
	b->b.entries = b->entries;
	b->b.entries_len = b->len;
	if (!commit(d, &b->b) && b->seq)
		inbox_put_disk_done(d->node, b->seq);
	while ((it = list_pop_front(&b->items)))
		disk_item_free(CONTAINER_OF(it, struct disk_item, link));
	b->len = 0;
	b->seq = 0;
	memset(&b->b, 0, sizeof(b->b));
}

static void read_log(struct disk *d, struct disk_item *item)
{
	struct inbox_item *out = mem_zalloc(sizeof(*out));
	struct storage_read_result r;
	struct errmsg em;
	enum err e = storage_read(d->node->config.storage, item->read.from, item->read.to, item->read.max_bytes, &r, &em);
	out->event.kind = EVENT_LOG_READ;
	out->event.log_read.id = item->read.id;
	out->event.log_read.err = e;
	if (!e) {
		out->entries = mem_alloc(r.entries_len * sizeof(*out->entries));
		for (size_t i = 0; i < r.entries_len; i++) {
			const struct storage_entry *s = &r.entries[i];
			out->entries[i] = raft_entry_new((struct entry_id){ s->index, s->term }, (enum raft_entry_kind)s->kind, s->payload);
		}
		out->event.log_read.entries = out->entries;
		out->event.log_read.len = r.entries_len;
		storage_read_result_free(&r);
	} else if (e != ERR_NOT_FOUND) {
		log_error("cannot read the log, this replica stops", LOG_ERR("error", e), LOG_STR("cause", em.text));
		node_fail(d->node, "the log could not be read");
	}
	inbox_put_done(d->node, out);
	disk_item_free(item);
}

/* The last chunk of a received snapshot is in its environment: put it in force, in line with the log's writes. */
static void install(struct disk *d, struct disk_item *item)
{
	struct inbox_item *out = mem_zalloc(sizeof(*out));
	struct errmsg em;
	enum err e = storage_snapshot_install_finish(item->writer, &item->meta, /*keep_log=*/true, &em);
	if (e) {
		log_error("cannot install the received snapshot", LOG_ERR("error", e), LOG_STR("cause", em.text));
		if (e != ERR_CORRUPT && e != ERR_EXISTS)
			node_fail(d->node, "the received snapshot could not be installed");
		storage_snapshot_abort(item->writer);
	} else {
		d->installed = item->meta.index;
	}
	out->event.kind = EVENT_CHUNK_WRITTEN;
	out->event.chunk.job = item->job.job;
	out->event.chunk.err = e;
	inbox_put_done(d->node, out);
	disk_item_free(item);
}

/* Waits up to a second for work; takes all writes up to the next item that is something else. */
static struct disk_item *next_item(struct disk *d, bool wait, bool *ret_stop)
{
	struct list *it;
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec++;
	pthread_mutex_lock(&d->mu);
	while (wait && list_empty(&d->queue) && !d->stop) {
		if (pthread_cond_timedwait(&d->wake, &d->mu, &until) == ETIMEDOUT)
			break;
	}
	it = list_pop_front(&d->queue);
	*ret_stop = d->stop && !it;
	pthread_mutex_unlock(&d->mu);
	return it ? CONTAINER_OF(it, struct disk_item, link) : NULL;
}

static void *disk_main(void *arg)
{
	struct disk *d = arg;
	struct batch b = { .len = 0 };
	struct disk_item *item;
	bool stop = false, idle = false;
	list_init(&b.items);
	while (!stop) {
		item = next_item(d, /*wait=*/true, &stop);
		while (item && item->kind == DISK_WRITE) {
			batch_add(d, &b, item);
			item = b.len < BATCH_ENTRIES_MAX ? next_item(d, /*wait=*/false, &stop) : NULL;
		}
		idle = list_empty(&b.items) && !item;
		if (!list_empty(&b.items))
			commit_batch(d, &b);
		if (item && item->kind == DISK_READ)
			read_log(d, item);
		else if (item)
			install(d, item);
		if (idle && !stop) {
			if (storage_trim_pending(d->node->config.storage))
				commit(d, &(struct storage_batch){ .trim_to = 0 });
			watch_space(d);
		}
	}
	free(b.entries);
	return NULL;
}

void disk_start(struct disk *d, struct node *n)
{
	pthread_condattr_t attr;
	d->node = n;
	d->stop = false;
	pthread_mutex_init(&d->mu, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&d->wake, &attr);
	pthread_condattr_destroy(&attr);
	list_init(&d->queue);
	ASSERT(pthread_create(&d->thread, NULL, disk_main, d) == 0);
}

void disk_stop(struct disk *d)
{
	pthread_mutex_lock(&d->mu);
	d->stop = true;
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->mu);
	pthread_join(d->thread, NULL);
	pthread_cond_destroy(&d->wake);
	pthread_mutex_destroy(&d->mu);
}
