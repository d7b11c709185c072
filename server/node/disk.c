/* disk.c: the log's thread. Takes all that is queued and commits it as one transaction; then says up to which write all is durable.
 *
 *   (D1) a completion stands for every write up to it: once one has failed, none is made or reported any more.
 *   (D2) whoever waits for a write waits as long as the disk is full, and no longer: the same write is tried again until there is space.
 *
 * A full disk: the ballast is given up and the same work tried again; the core is told that space is low and refuses what grows. When that is
 * not enough, the lead goes to a replica that can still write, and this one waits here until there is space. Any other failure ends the
 * replica: what is durable is unknown, and it restarts as after a crash. */
#include "internal.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "log/log.h"
#include "metrics.h"

#define BATCH_ENTRIES_MAX 8192
#define RESERVE_BYTES (UINT64_C(64) << 20) /* less room than this: what grows is refused */
#define LOOK_MS 1000                       /* between two looks at the space, and two tries on a full disk */
#define LOOK_BYTES (RESERVE_BYTES / 8)     /* or after so much was written, whichever comes first: the reserve is not to be gone between two looks */

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
		d->written += e->len;
	}
	if (w->trim_to > b->b.trim_to)
		b->b.trim_to = w->trim_to;
	if (w->seq) /* one that only trims has none */
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

/* On the file system, or in the log's map: whichever ends first. */
static uint64_t room(const struct storage_space *s)
{
	uint64_t map = s->map_bytes > s->log_bytes ? s->map_bytes - s->log_bytes : 0;
	return map < s->free_bytes ? map : s->free_bytes;
}

static void watch_space(struct disk *d)
{
	struct storage_space space;
	struct errmsg em;
	if (storage_space(d->node->config.storage, &space, &em))
		return;
	if (!d->low && room(&space) < RESERVE_BYTES)
		tell_space(d, true);
	else if (d->low && room(&space) > 2 * RESERVE_BYTES && !storage_restore_ballast(d->node->config.storage, &em))
		tell_space(d, false);
}

/* ---- work that may meet a full disk ---- */

struct work {
	enum err (*run)(struct disk *d, void *arg, struct errmsg *em);
	void *arg;
	const char *what;
};

/* Up to LOOK_MS. True: the node stops. */
static bool pause_or_stop(struct disk *d)
{
	struct timespec until = mono_in_us(LOOK_MS * 1000);
	bool stop;
	pthread_mutex_lock(&d->mu);
	while (!d->stop) {
		if (pthread_cond_timedwait(&d->wake, &d->mu, &until) == ETIMEDOUT)
			break;
	}
	stop = d->stop;
	pthread_mutex_unlock(&d->mu);
	return stop;
}

/* Without its disk this replica can lead nobody. */
static void give_lead_away(struct disk *d)
{
	struct inbox_item *item = mem_zalloc(sizeof(*item));
	item->event.kind = EVENT_TRANSFER;
	inbox_put_done(d->node, item);
}

/* (D2) What the ballast did not help. */
static enum err wait_for_space(struct disk *d, const struct work *w, struct errmsg *em)
{
	enum err e = ERR_DISK_FULL;
	log_error("the disk is full, this replica waits until there is space", LOG_STR("work", w->what), LOG_STR("cause", em->text));
	while (e == ERR_DISK_FULL) {
		give_lead_away(d);
		if (pause_or_stop(d))
			return e;
		e = w->run(d, w->arg, em);
	}
	if (!e)
		log_info("the disk takes writes again", LOG_STR("work", w->what));
	return e;
}

static enum err run_work(struct disk *d, const struct work *w, struct errmsg *em)
{
	enum err e;
	if (d->failed) {
		errmsg_set(em, "an earlier write failed");
		return ERR_STOPPED;
	}
	e = w->run(d, w->arg, em);
	if (e == ERR_DISK_FULL) {
		log_error("the disk is full, the space kept back is given up", LOG_STR("work", w->what), LOG_STR("cause", em->text));
		if (!d->low)
			tell_space(d, true);
		if (!storage_release_ballast(d->node->config.storage, em))
			e = w->run(d, w->arg, em);
		if (e == ERR_DISK_FULL)
			e = wait_for_space(d, w, em);
	}
	return e;
}

static void fail(struct disk *d, const struct work *w, enum err e, const struct errmsg *em)
{
	if (d->failed)
		return;
	d->failed = true; /* (D1) */
	if (e == ERR_DISK_FULL) /* stopped while it waited */
		return;
	log_error("cannot write, this replica stops", LOG_STR("work", w->what), LOG_ERR("error", e), LOG_STR("cause", em->text));
	node_fail(d->node, "the log could not be written");
}

static enum err commit_run(struct disk *d, void *arg, struct errmsg *em)
{
	return storage_commit(d->node->config.storage, arg, em);
}

static enum err commit(struct disk *d, struct storage_batch *b)
{
	struct work w = { commit_run, b, "write the log" };
	struct errmsg em = { .text = "" };
	uint64_t from = mono_us();
	enum err e = run_work(d, &w, &em);
	if (e)
		fail(d, &w, e, &em);
	else
		metric_took(METRIC_TIME_LOG_COMMIT, mono_us() - from);
	for (size_t i = 0; !e && i < b->entries_len; i++)
		metric_add(METRIC_LOG_WRITE_BYTES, b->entries[i].payload.len);
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

static enum err install_run(struct disk *d, void *arg, struct errmsg *em)
{
	struct disk_item *item = arg;
	(void)d;
	return storage_snapshot_install_finish(item->writer, &item->meta, /*keep_log=*/true, em);
}

/* The last chunk of a received snapshot is in its environment: put it in force, in line with the log's writes. */
static void install(struct disk *d, struct disk_item *item)
{
	struct inbox_item *out = mem_zalloc(sizeof(*out));
	struct work w = { install_run, item, "install the received snapshot" };
	struct errmsg em = { .text = "" };
	enum err e = run_work(d, &w, &em);
	if (e) {
		if (e == ERR_CORRUPT || e == ERR_EXISTS)
			log_error("the received snapshot is not installed", LOG_ERR("error", e), LOG_STR("cause", em.text));
		else
			fail(d, &w, e, &em);
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
	struct timespec until = mono_in_us(1000000);
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

/* A busy disk is looked after as well as an idle one. */
static void look_after(struct disk *d, bool idle)
{
	uint64_t now = boot_ms();
	if (idle && storage_trim_pending(d->node->config.storage))
		commit(d, &(struct storage_batch){ .trim_to = 0 });
	if (now - d->looked_ms < LOOK_MS && d->written < LOOK_BYTES)
		return;
	d->looked_ms = now;
	d->written = 0;
	watch_space(d);
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
		if (!stop)
			look_after(d, idle);
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
