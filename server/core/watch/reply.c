/* reply.c: responses, as bytes behind one another in their stream's output.
 *
 * An event is rendered once a pass (once more with its prev_kv, if somebody wants that) and copied to whom it concerns: a response is a
 * header, an ID and copies. The header is kept too, since a pass writes the same one many times. */
#include "watch_internal.h"

/* etcdserverpb.WatchResponse, v3electionpb.LeaderResponse, mvccpb.Event, mvccpb.KeyValue */
enum { FIELD_HEADER = 1, FIELD_WATCH_ID, FIELD_CREATED, FIELD_CANCELED, FIELD_COMPACT_REVISION, FIELD_CANCEL_REASON, FIELD_FRAGMENT, FIELD_EVENTS = 11 };
enum { LEADER_KV = 2, LEADER_VACANT = 100 };
enum { EVENT_TYPE = 1, EVENT_KV, EVENT_PREV_KV, EVENT_DELETE = 1 };
enum { KV_KEY = 1, KV_CREATE_REVISION, KV_MOD_REVISION, KV_VERSION, KV_VALUE, KV_LEASE };
enum { LENGTH_BYTES = 4, RESPONSE_ROOM = 128 };

/* ---- one message ---- */

static size_t message_begin(struct buf *out)
{
	static const uint8_t room[LENGTH_BYTES];

	buf_append(out, room, sizeof room);
	return out->len;
}

static void message_end(struct watches *w, struct watch_stream *s, size_t begin)
{
	size_t len = s->out.len - begin;
	uint8_t *at = s->out.ptr + begin - LENGTH_BYTES;

	ASSERT(len <= UINT32_MAX);
	for (size_t i = 0; i < LENGTH_BYTES; i++)
		at[i] = (uint8_t)(len >> (8 * i));
	stream_wrote(w, s, len + LENGTH_BYTES);
}

static void write_header(struct watches *w, struct buf *out, revision at)
{
	const struct kv_header *h = &w->env->header;

	if (w->header_len == 0 || w->header_revision != at || w->header_term != h->term) {
		struct buf b = { 0 };
		size_t mark = pbw_open(&b, FIELD_HEADER);

		pbw_u64(&b, 1, h->cell_id);
		pbw_u64(&b, 2, h->member);
		pbw_i64(&b, 3, at);
		pbw_u64(&b, 4, h->term);
		pbw_close(&b, mark);
		ASSERT(b.len <= sizeof w->header);
		memcpy(w->header, b.ptr, b.len);
		w->header_len = b.len;
		w->header_revision = at;
		w->header_term = h->term;
		buf_free(&b);
	}
	buf_append(out, w->header, w->header_len);
}

/* ---- control answers and progress ---- */

static struct slice reason_of(enum control_kind kind)
{
	switch (kind) {
	case CONTROL_LOST:
	case CONTROL_NEGATIVE:
		return slice_of_str(err_text(ERR_COMPACTED));
	case CONTROL_DUPLICATE:
		return slice_of_str("mvcc: duplicate watch ID provided on the WatchStream");
	case CONTROL_EMPTY_RANGE:
		return slice_of_str("mvcc: watcher range is empty");
	case CONTROL_TOO_MANY:
		return slice_of_str(err_text(ERR_TOO_MANY_REQUESTS));
	default:
		return slice_of(NULL, 0);
	}
}

/* As Go prints such an error, which its clients look for. */
static void write_error(struct buf *out, enum err e)
{
	struct buf text = { 0 };

	buf_printf(&text, "rpc error: code = %s desc = %s", status_name(err_status(e)), err_text(e));
	pbw_bytes(out, FIELD_CANCEL_REASON, buf_view(&text));
	buf_free(&text);
}

void reply_control(struct watches *w, struct watch_stream *s, const struct control *c)
{
	struct buf *out = &s->out;
	size_t begin = message_begin(out);

	write_header(w, out, c->at);
	pbw_i64(out, FIELD_WATCH_ID, c->id);
	pbw_u64(out, FIELD_CREATED, c->kind != CONTROL_CANCELED && c->kind != CONTROL_LOST && c->kind != CONTROL_REVOKED);
	pbw_u64(out, FIELD_CANCELED, c->kind != CONTROL_CREATED);
	pbw_i64(out, FIELD_COMPACT_REVISION, c->compact_revision);
	if (c->err)
		write_error(out, c->err);
	else
		pbw_bytes(out, FIELD_CANCEL_REASON, reason_of(c->kind));
	message_end(w, s, begin);
}

void reply_progress(struct watches *w, struct watch_stream *s, int64_t id)
{
	size_t begin = message_begin(&s->out);

	ASSERT(s->controls_len == 0);
	write_header(w, &s->out, w->noted);
	pbw_i64(&s->out, FIELD_WATCH_ID, id);
	message_end(w, s, begin);
}

/* ---- events ---- */

static void write_kv(struct buf *out, uint32_t field, const struct kv *kv)
{
	size_t mark = pbw_open(out, field);

	pbw_bytes(out, KV_KEY, kv_key(kv));
	pbw_i64(out, KV_CREATE_REVISION, kv->create_revision);
	pbw_i64(out, KV_MOD_REVISION, kv->mod_revision);
	pbw_i64(out, KV_VERSION, kv->version);
	pbw_bytes(out, KV_VALUE, kv_value(kv));
	pbw_i64(out, KV_LEASE, kv->lease);
	pbw_close(out, mark);
}

const struct pass_event *pass_event_render(struct watches *w, uint32_t event, bool prev)
{
	struct pass_event *e = &w->pass.events[event];
	struct buf *b = &w->pass.bytes;
	size_t mark;

	if (e->len[prev])
		return e;
	e->at[prev] = b->len;
	mark = pbw_open(b, FIELD_EVENTS);
	if (kv_is_tombstone(e->kv))
		pbw_u64(b, EVENT_TYPE, EVENT_DELETE);
	write_kv(b, EVENT_KV, e->kv);
	if (prev && e->prev)
		write_kv(b, EVENT_PREV_KV, e->prev);
	pbw_close(b, mark);
	e->len[prev] = b->len - e->at[prev];
	return e;
}

/* Copies the events of [from, to) that the watcher wants; neighbours in pass.bytes in one go. */
static void copy_events(struct watches *w, const struct watcher *x, uint32_t from, uint32_t to, struct buf *out)
{
	bool prev = (x->flags & WATCHER_PREV) != 0;
	size_t at = 0, len = 0;

	for (uint32_t m = from; m != to; m = w->pass.matches[m].next) {
		const struct pass_event *e = &w->pass.events[w->pass.matches[m].event];

		if (!watcher_wants(x, e->kv))
			continue;
		if (len && e->at[prev] == at + len) {
			len += e->len[prev];
			continue;
		}
		buf_append(out, w->pass.bytes.ptr + at, len);
		at = e->at[prev];
		len = e->len[prev];
	}
	buf_append(out, w->pass.bytes.ptr + at, len);
}

static void write_response(struct watches *w, const struct watcher *x, const struct reply_run *run, bool more)
{
	struct watch_stream *s = x->stream;
	size_t begin;

	buf_reserve(&s->out, run->size + RESPONSE_ROOM);
	begin = message_begin(&s->out);
	write_header(w, &s->out, run->revision);
	pbw_i64(&s->out, FIELD_WATCH_ID, x->id);
	pbw_u64(&s->out, FIELD_FRAGMENT, more);
	copy_events(w, x, run->from, run->to, &s->out);
	message_end(w, s, begin);
	w->events_told += run->count;
}

/* The longest part of the run that fits into one fragment, and one event at least. */
static struct reply_run fragment_of(const struct watches *w, const struct watcher *x, struct reply_run run)
{
	bool prev = (x->flags & WATCHER_PREV) != 0;
	uint32_t m = run.from;

	for (run.count = run.size = 0; m != run.to; m = w->pass.matches[m].next) {
		const struct pass_event *e = &w->pass.events[w->pass.matches[m].event];

		if (!watcher_wants(x, e->kv))
			continue;
		if (run.count > 0 && run.size + e->len[prev] > w->config.fragment_bytes - RESPONSE_ROOM)
			break;
		run.size += e->len[prev];
		run.count++;
	}
	run.to = m;
	return run;
}

void reply_events(struct watches *w, const struct watcher *x, const struct reply_run *run)
{
	struct reply_run left = *run;

	ASSERT(x->stream->controls_len == 0); /* I5 */
	ASSERT(run->count > 0);
	/* Fragments follow one another: clients put them together without looking at what else may come between. */
	while ((x->flags & WATCHER_FRAGMENT) && left.size > w->config.fragment_bytes - RESPONSE_ROOM && left.count > 1) {
		struct reply_run part = fragment_of(w, x, left);

		write_response(w, x, &part, part.count < left.count);
		left.from = part.to;
		left.count -= part.count;
		left.size -= part.size;
	}
	if (left.count > 0)
		write_response(w, x, &left, false);
}

void reply_leader(struct watches *w, struct watch_stream *s, revision at, const struct kv *kv)
{
	size_t begin = message_begin(&s->out);

	write_header(w, &s->out, at);
	if (kv)
		write_kv(&s->out, LEADER_KV, kv);
	pbw_u64(&s->out, LEADER_VACANT, !kv);
	message_end(w, s, begin);
}
