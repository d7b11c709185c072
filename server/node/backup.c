/* backup.c: Maintenance.Snapshot: a stream of the pieces of a backup (core/snapshot/backup.h), as fast as the client takes them.
 *
 *   (C1) a backup holds all that was acknowledged before it was asked for: the core is asked first, as for a linearizable read. When there is no
 *        leader to ask, what this replica has is sent all the same: it may be all that is left of a cell.
 *   (C2) it is encoded twice: once to know its size, so that each message tells what is still to come, and once to be sent. Memory: a piece.
 *   (C3) a client that takes nothing for IDLE_MS is given up: its view keeps what the state no longer needs. */
#include "internal.h"

#include <string.h>

#include "base/clock.h"
#include "base/pbw.h"
#include "core/snapshot/backup.h"
#include "log/log.h"

enum { IDLE_MS = 60000 };

struct backup {
	struct task task;
	struct submit_stream *stream; /* NULL: it has ended */
	struct submit_call asked;     /* C1 */
	struct list waiting;          /* in node.backups, until the view is open */
	bool open;                    /* the view is */
	bool closed;                  /* the client is gone */
	struct backup_writer *writer;
	struct buf piece;
	uint64_t total, sent, began_ms, moved_ms;
};

static struct backup *backup_of(struct task *t)
{
	return CONTAINER_OF(t, struct backup, task);
}

static void end(struct backup *b, enum err e)
{
	struct submit_stream *s = b->stream;
	struct buf none = { .ptr = NULL };
	if (!s)
		return;
	b->stream = NULL;
	s->output(s, &none, true, e);
}

static void end_and_free(struct backup *b, enum err e)
{
	if (b->stream)
		map64_remove(&b->task.node->streams, b->stream->tag);
	end(b, e);
	task_end(&b->task);
}

/* ---- pieces ---- */

/* Snapshot thread. */
static void backup_work(struct task *t)
{
	struct backup *b = backup_of(t);
	uint64_t cell_id = t->node->config.core.cell_id;
	if (!b->writer) {
		b->total = backup_size(&t->view, cell_id);
		b->writer = backup_writer_new(&t->view, cell_id);
	}
	buf_clear(&b->piece);
	backup_writer_next(b->writer, &b->piece);
}

static void write_message(struct backup *b, struct buf *out)
{
	size_t at = out->len;
	uint32_t len;
	buf_reserve(out, b->piece.len + 128);
	for (unsigned i = 0; i < 4; i++)
		buf_append_byte(out, 0);
	pbw_u64(out, 2, b->total - b->sent);
	pbw_bytes(out, 3, buf_view(&b->piece));
	pbw_bytes(out, 4, slice_of_str(b->task.node->config.core.version));
	len = (uint32_t)(out->len - at - 4);
	for (unsigned i = 0; i < 4; i++)
		out->ptr[at + i] = (uint8_t)(len >> (8 * i));
}

static void backup_done(struct task *t)
{
	struct backup *b = backup_of(t);
	struct submit_stream *s = b->stream;
	struct buf message = { .ptr = NULL };
	bool last;
	if (b->closed || !s) {
		end_and_free(b, ERR_CANCELED);
		return;
	}
	b->sent += b->piece.len;
	ASSERT(b->sent <= b->total);
	last = b->sent == b->total;
	write_message(b, &message);
	b->moved_ms = boot_ms();
	if (!last) {
		s->output(s, &message, false, ERR_OK);
		return;
	}
	log_info("backup sent", LOG_U64("bytes", b->total), LOG_U64("took_ms", boot_ms() - b->began_ms),
		 LOG_I64("revision", t->view.revision), LOG_SLICE("to", s->client));
	map64_remove(&t->node->streams, s->tag);
	b->stream = NULL;
	s->output(s, &message, true, ERR_OK);
	task_end(t);
}

static void backup_tick(struct task *t)
{
	struct backup *b = backup_of(t);
	if (!t->busy && boot_ms() - b->moved_ms > IDLE_MS) {
		log_warn("a backup is given up, its client takes nothing", LOG_SLICE("to", b->stream ? b->stream->client : slice_of(NULL, 0)));
		end_and_free(b, ERR_TIMEOUT);
	}
}

static void backup_stop(struct task *t)
{
	struct backup *b = backup_of(t);
	if (b->stream)
		map64_remove(&t->node->streams, b->stream->tag);
	end(b, ERR_STOPPED);
}

static void backup_free(struct task *t)
{
	struct backup *b = backup_of(t);
	backup_writer_free(b->writer);
	buf_free(&b->piece);
	free(b);
}

/* ---- opening ---- */

static void refuse(struct backup *b, enum err e)
{
	map64_remove(&b->task.node->streams, b->stream->tag);
	end(b, e);
	free(b);
}

static bool nobody_to_ask(enum err e)
{
	return e == ERR_NO_LEADER || e == ERR_TIMEOUT || e == ERR_TIMEOUT_LEADER_FAIL || e == ERR_TIMEOUT_CONN_LOST || e == ERR_LEADER_CHANGED;
}

/* C1. Core's thread. */
static void asked(struct submit_call *call, enum err e, struct buf *reply, struct buf *details)
{
	struct backup *b = CONTAINER_OF(call, struct backup, asked);
	buf_free(reply);
	buf_free(details);
	list_remove(&b->waiting);
	if (b->closed)
		e = ERR_CANCELED;
	if (e && !nobody_to_ask(e)) {
		refuse(b, e);
		return;
	}
	if (e)
		log_warn("a backup of what this replica has, the cell has no leader to ask for the latest", LOG_ERR("cause", e));
	if (!task_begin(&b->task, b->task.node)) {
		refuse(b, ERR_TOO_MANY_REQUESTS);
		return;
	}
	b->open = true;
	b->began_ms = b->moved_ms = boot_ms();
	task_run(&b->task);
}

void backup_open(struct node *n, struct submit_stream *s, uint64_t now)
{
	struct backup *b = mem_zalloc(sizeof(*b));
	struct core_request r = { .method = METHOD_MAINTENANCE_SNAPSHOT, .client = s->client, .caller = s->caller };
	struct core_event ev = { .kind = EVENT_REQUEST, .now = now, .request = &r };
	b->task = (struct task){ .node = n, .work = backup_work, .done = backup_done, .tick = backup_tick, .stop = backup_stop, .free = backup_free };
	b->stream = s;
	b->asked.method = r.method;
	b->asked.done = asked;
	b->asked.tag = r.tag = atomic_fetch_add(&n->next_tag, 1);
	list_push_back(&n->backups, &b->waiting);
	map64_put(&n->calls, b->asked.tag, &b->asked);
	core_step(n->core, &ev);
}

static struct backup *find(struct node *n, uint64_t tag)
{
	LIST_FOR_EACH(it, &n->tasks) {
		struct task *t = CONTAINER_OF(it, struct task, link);
		if (t->work == backup_work && backup_of(t)->stream && backup_of(t)->stream->tag == tag)
			return backup_of(t);
	}
	LIST_FOR_EACH(it, &n->backups) {
		struct backup *b = CONTAINER_OF(it, struct backup, waiting);
		if (b->stream->tag == tag)
			return b;
	}
	return NULL;
}

void backup_step(struct node *n, const struct core_event *e)
{
	struct backup *b = find(n, e->stream.tag);
	if (!b)
		return;
	if (e->kind == EVENT_STREAM_CLOSED) {
		b->closed = true;
		if (b->open && !b->task.busy)
			end_and_free(b, ERR_CANCELED);
	} else if (e->kind == EVENT_STREAM_WRITABLE && b->open && !b->task.busy) {
		b->moved_ms = boot_ms();
		task_run(&b->task);
	}
}
