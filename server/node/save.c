/* save.c: this replica's own snapshot, written on the snapshot thread piece by piece.
 *
 *   (W1) after each piece the thread rests, several times as long as the piece took: the log's writes go to the same disk, and calls to the same processors. Of
 *        100 MB written at one go for 0.2 s, one acquire in a hundred felt 8 ms and more; at this pace for a second, it is hardly felt.
 *   (W2) between two pieces whatever else is asked of the thread has its turn, and no more of it than one thing, so neither waits for the other's end.
 *   (W3) a node that stops drops what is written; the core frees the view.
 */
#include "internal.h"

#include <time.h>

#include "base/clock.h"
#include "core/snapshot/snapshot.h"
#include "log/log.h"
#include "metrics.h"

enum { REST_TIMES = 4, REST_MIN_US = 1000, REST_MAX_US = 20000 };

struct save {
	struct storage_snapshot_meta meta;
	struct storage_snapshot_writer *writer;
	struct snapshot_encoder *encoder; /* of a view that is the core's, and stays until it is told */
	struct buf chunk;
	uint64_t from_ms, rests_until_us;
};

static void save_free(struct save *v)
{
	snapshot_encoder_free(v->encoder);
	buf_free(&v->chunk);
	free(v);
}

static void tell(struct snap *s, struct save *v, enum err e, const struct errmsg *em)
{
	struct inbox_item *out = mem_zalloc(sizeof(*out));
	uint64_t took_ms = boot_ms() - v->from_ms;
	if (e) {
		log_warn("cannot write a snapshot, the log is kept", LOG_U64("index", v->meta.index), LOG_ERR("error", e), LOG_STR("cause", em->text));
	} else {
		metric_took(METRIC_TIME_SNAPSHOT_SAVE, took_ms * 1000);
		log_info("snapshot written", LOG_U64("index", v->meta.index), LOG_U64("took_ms", took_ms));
	}
	out->event.kind = EVENT_SNAPSHOT_SAVED;
	out->event.saved.index = v->meta.index;
	out->event.saved.err = e;
	inbox_put_done(s->node, out);
}

static void end(struct snap *s, enum err e, const struct errmsg *em)
{
	struct save *v = s->save;
	if (e)
		storage_snapshot_abort(v->writer);
	s->save = NULL;
	tell(s, v, e, em);
	save_free(v);
}

void save_begin(struct snap *s, const struct snapshot_job *job)
{
	struct save *v = mem_zalloc(sizeof(*v));
	struct errmsg em = { .text = "" };
	enum err e;
	ASSERT(!s->save); /* the core asks for one at a time */
	s->save = v;
	v->from_ms = boot_ms();
	v->meta = (struct storage_snapshot_meta){ .index = job->view->applied.index, .term = job->view->applied.term, .state_hash = state_hash(job->view) };
	v->encoder = snapshot_encoder_new(job->view, s->node->config.core.cell_id);
	e = storage_snapshot_create(s->node->config.storage, v->meta.index, v->meta.term, &v->writer, &em);
	if (e)
		end(s, e, &em);
}

/* ret_more: there is still something left. */
static enum err write_piece(struct save *v, bool *ret_more, struct errmsg *em)
{
	uint64_t until = v->meta.bytes + STORAGE_SNAPSHOT_PIECE_BYTES;
	enum err e = ERR_OK;
	*ret_more = true;
	while (!e && v->meta.bytes < until && (*ret_more = snapshot_encoder_next(v->encoder, &v->chunk))) {
		e = storage_snapshot_write(v->writer, v->meta.chunks++, buf_view(&v->chunk), em);
		v->meta.bytes += v->chunk.len;
		buf_clear(&v->chunk);
	}
	return e;
}

void save_step(struct snap *s)
{
	struct save *v = s->save;
	struct errmsg em = { .text = "" };
	uint64_t from = mono_us(), rest;
	bool more;
	enum err e = write_piece(v, &more, &em);
	if (!e && more) { /* W1 */
		rest = (mono_us() - from) * REST_TIMES;
		rest = rest < REST_MIN_US ? REST_MIN_US : rest > REST_MAX_US ? REST_MAX_US : rest;
		v->rests_until_us = mono_us() + rest;
		return;
	}
	if (!e)
		e = storage_snapshot_finish(v->writer, &v->meta, &em);
	end(s, e, &em);
}

uint64_t save_due_us(const struct snap *s)
{
	return s->save ? s->save->rests_until_us : UINT64_MAX;
}

/* W3 */
void save_drop(struct snap *s)
{
	if (!s->save)
		return;
	storage_snapshot_abort(s->save->writer);
	save_free(s->save);
	s->save = NULL;
}
