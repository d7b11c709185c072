/* snap.c: the snapshot thread. Writes views of the state (save.c), reads chunks for followers, writes chunks that a leader sends and makes a state of them
 * when all are there. The installation itself goes to the disk thread, since it replaces the log. */
#include "internal.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "log/log.h"
#include "metrics.h"

enum { READER_IDLE_MS = 60000 }; /* by then the leader has given the transfer up */

struct snap_item {
	struct list link;
	struct snapshot_job job;
	struct task *task; /* not NULL: this, and no job */
};

void snap_queue(struct snap *s, struct snapshot_job *job)
{
	struct snap_item *item = mem_zalloc(sizeof(*item));
	item->job = *job;
	job->bytes = (struct buf){ .ptr = NULL };
	pthread_mutex_lock(&s->mu);
	list_push_back(&s->queue, &item->link);
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->mu);
}

void snap_queue_task(struct snap *s, struct task *t)
{
	struct snap_item *item = mem_zalloc(sizeof(*item));
	item->task = t;
	pthread_mutex_lock(&s->mu);
	list_push_back(&s->queue, &item->link);
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->mu);
}

static bool is_of(const struct storage_snapshot_reader *r, struct entry_id id)
{
	const struct storage_snapshot_meta *m = r ? storage_snapshot_reader_meta(r) : NULL;
	return m && m->index == id.index && m->term == id.term;
}

static enum err use_reader(struct snap *s, size_t i)
{
	s->reader = s->readers[i].reader;
	s->readers[i].used_ms = boot_ms();
	return ERR_OK;
}

static bool find_reader(struct snap *s, struct entry_id id)
{
	for (size_t i = 0; i < SNAP_READERS; i++)
		if (is_of(s->readers[i].reader, id))
			return use_reader(s, i) == ERR_OK;
	return false;
}

static void close_reader(struct snap *s, size_t i)
{
	if (s->reader == s->readers[i].reader)
		s->reader = NULL;
	storage_snapshot_close(s->readers[i].reader);
	s->readers[i].reader = NULL;
	s->readers[i].used_ms = 0;
}

/* A snapshot that is the newest no more stays as long as somebody reads it. */
static void close_unused(struct snap *s)
{
	for (size_t i = 0; i < SNAP_READERS; i++)
		if (s->readers[i].reader && boot_ms() - s->readers[i].used_ms > READER_IDLE_MS)
			close_reader(s, i);
}

/* A transfer goes on with the snapshot that it began with, whatever was saved since and whoever else reads another; of too many, the one that was
 * read least lately begins anew. */
static enum err open_reader(struct snap *s, const struct snapshot_job *job, struct errmsg *em)
{
	struct storage_snapshot_reader *newest;
	const struct storage_snapshot_meta *m;
	size_t at = 0;
	enum err e;
	if (find_reader(s, job->id))
		return ERR_OK;
	e = storage_snapshot_open(s->node->config.storage, &newest, em);
	if (e)
		return e;
	m = storage_snapshot_reader_meta(newest);
	if (find_reader(s, (struct entry_id){ m->index, m->term })) {
		storage_snapshot_close(newest);
		return ERR_OK;
	}
	for (size_t i = 1; i < SNAP_READERS; i++)
		if (s->readers[i].used_ms < s->readers[at].used_ms)
			at = i;
	close_reader(s, at);
	s->readers[at].reader = newest;
	return use_reader(s, at);
}

static void read_chunk(struct snap *s, const struct snapshot_job *job)
{
	struct inbox_item *out = mem_zalloc(sizeof(*out));
	struct errmsg em = { .text = "" };
	enum err e = open_reader(s, job, &em);
	if (!e)
		e = storage_snapshot_read(s->reader, job->chunk, &out->bytes, &em);
	out->event.kind = EVENT_CHUNK_READ;
	out->event.chunk.job = job->job;
	out->event.chunk.err = e;
	if (!e) {
		const struct storage_snapshot_meta *m = storage_snapshot_reader_meta(s->reader);
		out->event.chunk.bytes = buf_view(&out->bytes);
		out->event.chunk.id = (struct entry_id){ m->index, m->term };
		out->event.chunk.chunks = m->chunks;
		out->event.chunk.state_hash = m->state_hash;
		metric_add(METRIC_SNAPSHOT_CHUNKS_OUT, 1);
		metric_add(METRIC_SNAPSHOT_BYTES_OUT, out->bytes.len);
	} else {
		log_warn("cannot read a snapshot chunk", LOG_U64("chunk", job->chunk), LOG_ERR("error", e), LOG_STR("cause", em.text));
	}
	inbox_put_done(s->node, out);
}

/* ---- received ---- */

static struct storage_snapshot_part part_of(const struct snapshot_job *job)
{
	return (struct storage_snapshot_part){ .index = job->id.index, .term = job->id.term, .chunks = job->chunks, .state_hash = job->state_hash };
}

static void drop_received(struct snap *s)
{
	struct errmsg em;
	storage_snapshot_abort(s->writer);
	s->writer = NULL;
	if (storage_snapshot_drop_part(s->node->config.storage, &em))
		log_warn("cannot remove what was received of a snapshot", LOG_STR("cause", em.text));
}

/* What an earlier process has received is open once more of it comes. */
static enum err open_writer(struct snap *s, const struct snapshot_job *job, struct errmsg *em)
{
	struct storage_snapshot_part part = part_of(job);
	enum err e;
	if (job->kind == SNAPSHOT_WRITE && job->chunk == 0) {
		storage_snapshot_abort(s->writer);
		s->writer = NULL;
		return storage_snapshot_receive(s->node->config.storage, &part, &s->writer, em);
	}
	if (s->writer)
		return ERR_OK;
	e = storage_snapshot_resume(s->node->config.storage, &part, &s->writer, em);
	if (!e)
		log_info("a snapshot that was being received goes on", LOG_U64("index", part.index), LOG_U64("chunk", storage_snapshot_next(s->writer)),
			 LOG_U64("of", part.chunks));
	return e;
}

static enum err write_received(struct snap *s, const struct snapshot_job *job, struct errmsg *em)
{
	enum err e = storage_snapshot_write(s->writer, job->chunk, buf_view(&job->bytes), em);
	if (!e) {
		metric_add(METRIC_SNAPSHOT_CHUNKS_IN, 1);
		metric_add(METRIC_SNAPSHOT_BYTES_IN, job->bytes.len);
	}
	return e;
}

static enum err read_received(void *arg, uint64_t number, struct buf *ret, struct errmsg *em)
{
	struct snap *s = arg;
	return storage_snapshot_read_back(s->writer, number, ret, em);
}

static enum err load_received(struct snap *s, const struct snapshot_job *job, struct state *ret, struct errmsg *em)
{
	enum err e = storage_snapshot_sync(s->writer, em);
	if (!e && storage_snapshot_next(s->writer) != job->chunks) {
		errmsg_set(em, "there are %llu chunks", (unsigned long long)storage_snapshot_next(s->writer));
		e = ERR_NOT_FOUND;
	}
	return e ? e : node_decode_snapshot(s->node, job->chunks, read_received, s, ret, em);
}

/* Puts it in force, in line with the log's writes. */
static void pass_on(struct snap *s, const struct snapshot_job *job)
{
	struct disk_item *item = mem_zalloc(sizeof(*item));
	item->kind = DISK_INSTALL;
	item->job.job = job->job;
	item->writer = s->writer;
	item->meta = (struct storage_snapshot_meta){ .index = job->id.index, .term = job->id.term, .chunks = job->chunks,
						     .bytes = storage_snapshot_bytes(s->writer), .state_hash = job->state_hash };
	s->writer = NULL;
	disk_queue(&s->node->disk, item);
}

/* SNAPSHOT_WRITE, LOAD, INSTALL. After an error the core has it dropped. */
static void receive(struct snap *s, const struct snapshot_job *job)
{
	struct errmsg em = { .text = "" };
	struct inbox_item *out = mem_zalloc(sizeof(*out));
	enum err e = open_writer(s, job, &em);
	if (!e && job->kind == SNAPSHOT_INSTALL) {
		free(out);
		pass_on(s, job);
		return;
	}
	if (job->kind == SNAPSHOT_LOAD) {
		out->state = mem_zalloc(sizeof(*out->state));
		out->event.kind = EVENT_SNAPSHOT_LOADED;
		e = e ? e : load_received(s, job, out->state, &em);
		out->event.loaded.job = job->job;
		out->event.loaded.err = e;
		out->event.loaded.state = out->state;
	} else {
		out->event.kind = EVENT_CHUNK_WRITTEN;
		e = e ? e : write_received(s, job, &em);
		out->event.chunk.job = job->job;
		out->event.chunk.err = e;
	}
	if (e)
		log_warn("what was received of a snapshot is dropped", LOG_U64("index", job->id.index), LOG_U64("chunk", job->chunk),
			 LOG_ERR("error", e), LOG_STR("cause", em.text));
	inbox_put_done(s->node, out);
}

static void run(struct snap *s, struct snapshot_job *job)
{
	switch (job->kind) {
	case SNAPSHOT_SAVE:
		save_begin(s, job);
		close_unused(s);
		break;
	case SNAPSHOT_READ:
		read_chunk(s, job);
		break;
	case SNAPSHOT_WRITE:
	case SNAPSHOT_LOAD:
	case SNAPSHOT_INSTALL:
		receive(s, job);
		break;
	case SNAPSHOT_ABORT:
		drop_received(s);
		break;
	}
	buf_free(&job->bytes);
}

/* Waits until there is something to do: the next item (NULL when stopped), or with *ret_save a piece of the snapshot that is due. After a piece it is an item's
 * turn, if there is one, and after an item that of a piece. */
static struct snap_item *next_item(struct snap *s, bool *ret_save)
{
	uint64_t due = save_due_us(s);
	struct timespec until = { .tv_sec = (time_t)(due / 1000000), .tv_nsec = (long)(due % 1000000) * 1000 };
	struct list *it = NULL;
	pthread_mutex_lock(&s->mu);
	*ret_save = due <= mono_us() && (!*ret_save || list_empty(&s->queue));
	while (!*ret_save && list_empty(&s->queue) && !s->stop) {
		if (due == UINT64_MAX)
			pthread_cond_wait(&s->wake, &s->mu);
		else
			*ret_save = pthread_cond_timedwait(&s->wake, &s->mu, &until) == ETIMEDOUT;
	}
	*ret_save = *ret_save && !s->stop;
	if (!*ret_save)
		it = list_pop_front(&s->queue);
	pthread_mutex_unlock(&s->mu);
	return it ? CONTAINER_OF(it, struct snap_item, link) : NULL;
}

static void *snap_main(void *arg)
{
	struct snap *s = arg;
	bool save = false;
	for (;;) {
		struct snap_item *item = next_item(s, &save);
		if (save) {
			save_step(s);
			continue;
		}
		if (!item)
			break;
		if (item->task)
			task_work(item->task);
		else
			run(s, &item->job);
		free(item);
	}
	save_drop(s);
	storage_snapshot_suspend(s->writer);
	s->writer = NULL;
	for (size_t i = 0; i < SNAP_READERS; i++)
		close_reader(s, i);
	return NULL;
}

void snap_start(struct snap *s, struct node *n)
{
	pthread_condattr_t attr;
	s->node = n;
	s->stop = false;
	pthread_mutex_init(&s->mu, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->wake, &attr);
	pthread_condattr_destroy(&attr);
	list_init(&s->queue);
	ASSERT(pthread_create(&s->thread, NULL, snap_main, s) == 0);
}

void snap_stop(struct snap *s)
{
	pthread_mutex_lock(&s->mu);
	s->stop = true;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->mu);
	pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->mu);
}
