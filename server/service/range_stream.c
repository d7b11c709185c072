/* range_stream.c: KV.RangeStream: a range of any size, a part at a time, as fast as the client takes them.
 *
 * The node is asked for the first part as for a Range (linearizable, unless the request says otherwise); its header names the revision at which all
 * that follow are read, from this replica, which has it. Only the last message has header, `more` and `count`, so that all of them merged are what one Range
 * answers. When the revision is compacted meanwhile, the stream ends with that error, as etcd's does: nothing is held for a reader who is slow.
 *   (RS1) one part at a time: it is asked for once the transport has taken the one before. Memory: a part, which the budget knows of.
 *   (RS2) in ASKING the node or the budget has `submit`, and whoever it answers ends the stream or moves it on; in SENDING it is the transport's turn;
 *         in OVER the call has been finished. The phase changes under mu alone.
 *   (RS3) mu is never held when the budget may let somebody else in: that one's mu would be taken under ours. */
#include "base/mem.h"
#include "base/pbw.h"
#include "core/wire.h"
#include "etcd/rpc.pb-c.h"
#include "internal.h"

enum { RANGE_HEADER = 1, RANGE_KVS = 2, RANGE_MORE = 3, RANGE_COUNT = 4, STREAM_RESPONSE = 1 };
enum phase { ASKING, SENDING, OVER };

struct range_stream {
	struct service_call *call;
	struct submit_call submit;
	struct reservation turn;
	pthread_mutex_t mu;
	enum phase phase;  /* guarded by mu */
	bool cancelled;    /* guarded by mu; while ASKING */
	bool taken;        /* guarded by mu; the transport was quicker than we */
	/* whoever has the stream's turn (RS2) */
	struct buf request;     /* what is asked next */
	struct buf header;      /* of the first part */
	struct buf range_end;
	bool keys_only;
	int64_t limit;          /* of pairs still wanted; 0: all */
	uint64_t sent;          /* pairs */
};

static struct range_stream *range_stream_of(const struct service_call *c)
{
	return c->state;
}

static bool enter(struct range_stream *rs, enum phase phase)
{
	bool was_open;
	pthread_mutex_lock(&rs->mu);
	was_open = rs->phase != OVER;
	rs->phase = phase;
	pthread_mutex_unlock(&rs->mu);
	return was_open;
}

static void end(struct range_stream *rs, enum err e)
{
	if (enter(rs, OVER))
		service_tell_end(rs->call, e, NULL, slice_of(NULL, 0));
}

/* ---- asking ---- */

/* With budget.mu held, or by whoever asks first. */
static enum err turn_submit(struct reservation *r)
{
	struct range_stream *rs = CONTAINER_OF(r, struct range_stream, turn);
	return node_submit(rs->call->service->node, &rs->submit);
}

static void turn_refused(struct reservation *r, enum err e)
{
	end(CONTAINER_OF(r, struct range_stream, turn), e);
}

static void part_done(struct submit_call *submit, enum err e, struct buf *reply, struct buf *details);

static void ask(struct range_stream *rs)
{
	struct service_call *c = rs->call;
	enum err e;
	pthread_mutex_lock(&rs->mu);
	rs->submit = (struct submit_call){
		.method = c->method->id,
		.bytes = buf_view(&rs->request),
		.client = c->client,
		.caller = c->caller,
		.done = part_done,
	};
	rs->turn = (struct reservation){ .submit = turn_submit, .refused = turn_refused };
	list_init(&rs->turn.link);
	e = budget_enter(&c->service->budget, &rs->turn, c->weight, atomic_load(&c->service->now_ms));
	pthread_mutex_unlock(&rs->mu);
	if (e)
		end(rs, e);
}

/* ---- a part ---- */

struct part {
	struct slice header, pairs, last_key;
	revision revision;
	uint64_t len, count;
	bool more;
};

/* The node's own bytes: fields are in order. */
static void read_part(struct slice reply, struct part *p)
{
	const uint8_t *begin = NULL, *end = NULL;
	struct wire w;
	*p = (struct part){ .len = 0 };
	for (wire_init(&w, reply); wire_next(&w);) {
		switch (w.field) {
		case RANGE_HEADER:
			p->header = wire_bytes(&w);
			begin = end = w.at;
			break;
		case RANGE_KVS:
			p->last_key = wire_find_bytes(wire_bytes(&w), 1);
			p->len++;
			end = w.at;
			break;
		case RANGE_MORE:
			p->more = wire_u64(&w) != 0;
			break;
		case RANGE_COUNT:
			p->count = wire_u64(&w);
			break;
		}
	}
	ASSERT(!w.bad);
	if (begin)
		p->pairs = slice_of(begin, (size_t)(end - begin));
	p->revision = (revision)wire_find_u64(p->header, 3, 0);
}

/* header, more, count: in the last message alone. */
static void tell(struct range_stream *rs, const struct part *p, bool last)
{
	struct buf out = { .ptr = NULL };
	size_t mark;
	buf_reserve(&out, p->pairs.len + 128);
	mark = pbw_open(&out, STREAM_RESPONSE);
	if (last)
		pbw_bytes_always(&out, RANGE_HEADER, buf_view(&rs->header));
	if (p->pairs.len)
		buf_append_slice(&out, p->pairs);
	if (last) {
		pbw_u64(&out, RANGE_MORE, p->more);
		pbw_u64(&out, RANGE_COUNT, p->count + rs->sent);
	}
	pbw_close(&out, mark);
	service_reply_one(rs->call, &out);
}

static void write_next(struct range_stream *rs, struct slice last_key, revision at)
{
	struct buf next = { .ptr = NULL }, key = buf_copy_of(last_key);
	buf_append_byte(&key, 0);
	pbw_bytes(&next, 1, buf_view(&key));
	pbw_bytes(&next, 2, buf_view(&rs->range_end));
	pbw_i64(&next, 3, rs->limit);
	pbw_i64(&next, 4, at);
	pbw_u64(&next, 7, 1); /* serializable: this replica has applied that revision */
	pbw_u64(&next, 8, rs->keys_only);
	buf_free(&key);
	buf_free(&rs->request);
	rs->request = next;
}

/* True: it was not the last one. */
static bool take_part(struct range_stream *rs, struct slice reply)
{
	struct part p;
	bool cut;
	revision at = (revision)wire_find_u64(buf_view(&rs->request), 4, 0);
	read_part(reply, &p);
	if (!rs->header.ptr)
		rs->header = buf_copy_of(p.header);
	cut = p.more && p.len > 0 && (rs->limit <= 0 || p.len < (uint64_t)rs->limit);
	tell(rs, &p, !cut);
	rs->sent += p.len;
	if (!cut)
		return false;
	if (rs->limit > 0)
		rs->limit -= (int64_t)p.len;
	write_next(rs, p.last_key, at > 0 ? at : p.revision);
	return true;
}

/* Core's thread. */
static void part_done(struct submit_call *submit, enum err e, struct buf *reply, struct buf *details)
{
	struct range_stream *rs = CONTAINER_OF(submit, struct range_stream, submit);
	bool again = false, cancelled, go_on = false;
	buf_free(details);
	pthread_mutex_lock(&rs->mu);
	cancelled = rs->cancelled;
	pthread_mutex_unlock(&rs->mu);
	budget_settle(&rs->call->service->budget, &rs->turn, e || cancelled ? 0 : reply->len);
	if (!e && !cancelled)
		again = take_part(rs, buf_view(reply));
	buf_free(reply);
	if (e || cancelled || !again) {
		end(rs, cancelled ? ERR_CANCELED : e);
		return;
	}
	pthread_mutex_lock(&rs->mu);
	cancelled = rs->cancelled;
	go_on = rs->taken;
	rs->taken = false;
	if (!go_on && !cancelled)
		rs->phase = SENDING;
	pthread_mutex_unlock(&rs->mu);
	if (cancelled) {
		end(rs, ERR_CANCELED);
	} else if (go_on) {
		budget_settle(&rs->call->service->budget, &rs->turn, 0);
		ask(rs);
	}
}

/* ---- calls in ---- */

static enum err begin(struct service_call *c, struct slice bytes)
{
	struct range_stream *rs = mem_zalloc(sizeof(*rs));
	struct arena *a = service_scratch();
	Etcdserverpb__RangeRequest *r = etcdserverpb__range_request__unpack(&a->pb, bytes.len, bytes.ptr);
	c->state = rs;
	rs->call = c;
	pthread_mutex_init(&rs->mu, NULL);
	rs->phase = ASKING;
	if (r) {
		rs->request = buf_copy_of(bytes);
		rs->range_end = buf_copy_of(slice_of(r->range_end.data, r->range_end.len));
		rs->limit = r->limit;
		rs->keys_only = r->keys_only;
	}
	service_scratch_done(a);
	return r ? ERR_OK : ERR_MALFORMED;
}

static bool range_stream_message(struct service_call *c, struct slice bytes)
{
	const char *detail = NULL;
	enum err e;
	if (c->state) /* a second one; no front end reads it */
		return true;
	e = service_check(c, bytes, &detail);
	if (e) {
		service_finish(c, e, detail);
		return true;
	}
	e = begin(c, bytes);
	if (e)
		end(range_stream_of(c), e);
	else
		ask(range_stream_of(c));
	return true;
}

static void range_stream_half_close(struct service_call *c)
{
	if (!c->state)
		service_finish(c, ERR_MALFORMED, NULL);
}

static void range_stream_writable(struct service_call *c)
{
	struct range_stream *rs = range_stream_of(c);
	bool go_on;
	pthread_mutex_lock(&rs->mu);
	go_on = rs->phase == SENDING;
	if (go_on)
		rs->phase = ASKING;
	else
		rs->taken = true;
	pthread_mutex_unlock(&rs->mu);
	if (!go_on)
		return;
	budget_settle(&c->service->budget, &rs->turn, 0);
	ask(rs);
}

static void range_stream_cancel(struct service_call *c)
{
	struct range_stream *rs = range_stream_of(c);
	enum phase phase;
	uint64_t tag;
	if (!rs) {
		service_finish(c, ERR_CANCELED, NULL);
		return;
	}
	pthread_mutex_lock(&rs->mu);
	phase = rs->phase;
	rs->cancelled = true;
	pthread_mutex_unlock(&rs->mu);
	if (phase == SENDING || (phase == ASKING && c->weight && budget_give_up(&c->service->budget, &rs->turn))) {
		end(rs, ERR_CANCELED);
		return;
	}
	pthread_mutex_lock(&rs->mu);
	tag = rs->submit.tag; /* of the part before it was asked for: that one will see `cancelled` */
	pthread_mutex_unlock(&rs->mu);
	if (phase == ASKING)
		node_cancel(c->service->node, tag);
}

static void range_stream_end(struct service_call *c)
{
	struct range_stream *rs = range_stream_of(c);
	if (rs->turn.submit)
		budget_settle(&c->service->budget, &rs->turn, 0);
	buf_free(&rs->request);
	buf_free(&rs->header);
	buf_free(&rs->range_end);
	pthread_mutex_destroy(&rs->mu);
	free(rs);
}

const struct call_class range_stream_class = {
	.message = range_stream_message,
	.half_close = range_stream_half_close,
	.cancel = range_stream_cancel,
	.writable = range_stream_writable,
	.end = range_stream_end,
};
