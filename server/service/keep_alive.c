/* keep_alive.c: the LeaseKeepAlive stream: each message is a call of its own at the node, several may be under way, replies go out in order.
 *
 * A lease that is gone is an answer (TTL 0), not an error; any other error ends the stream once everything before it is answered.
 *
 *   (K1) `queue` holds the messages that the node has, or whose answer waits for one before it, oldest first; a slot's memory is the node's until done().
 *   (K2) `outstanding` counts messages taken in whose reply the transport has not taken: it bounds what a client can have us hold, reading or not.
 *   (K3) whoever finds `closing` and an empty queue, under mu, finishes the call; so nobody touches it afterwards.
 * Streams are many and mostly idle: one slot is part of the stream, more are made when a client sends ahead. */
#include "base/mem.h"
#include "base/pbw.h"
#include "etcd/rpc.pb-c.h"
#include "internal.h"
#include "metrics.h"

enum { REQUEST_MAX = 11 }; /* tag and varint */

struct slot {
	struct list link;
	struct keep_alive *stream;
	struct submit_call submit;
	struct buf reply;
	lease_id id;
	enum err err;
	bool done;
	uint8_t bytes[REQUEST_MAX];
};

struct keep_alive {
	struct service_call *call;
	struct leader_watch leader_watch;
	pthread_mutex_t mu;
	/* guarded by mu */
	struct list queue;
	uint32_t outstanding;
	enum err ending;      /* with `closing`: what the call ends with */
	bool closing;         /* nothing more is taken in */
	bool mute;            /* nothing more goes out either */
	bool finished;
	bool paused;          /* the front end waits for ready */
	bool first_used;
	bool let_in;          /* one was answered: who has the stream may go on with it */
	struct slot first;
};

/* ---- under mu ---- */

static struct slot *slot_new(struct keep_alive *ka)
{
	struct slot *sl = ka->first_used ? mem_alloc(sizeof(*sl)) : &ka->first;
	if (sl == &ka->first)
		ka->first_used = true;
	*sl = (struct slot){ .stream = ka };
	list_push_back(&ka->queue, &sl->link);
	return sl;
}

static void slot_drop(struct keep_alive *ka, struct slot *sl)
{
	list_remove(&sl->link);
	buf_free(&sl->reply);
	if (sl == &ka->first)
		ka->first_used = false;
	else
		free(sl);
}

static void close_with(struct keep_alive *ka, enum err e, bool mute)
{
	if (!ka->closing)
		ka->ending = e;
	ka->closing = true;
	ka->mute = ka->mute || mute;
}

/* What the core says of a lease that is gone it says itself; this is for a node that only knows that it is. */
static void reply_gone(lease_id id, struct buf *ret)
{
	pbw_i64(ret, 2, id);
}

static void answer(struct keep_alive *ka, struct slot *sl)
{
	if (ka->mute)
		return;
	if (sl->err == ERR_LEASE_NOT_FOUND) {
		buf_clear(&sl->reply);
		reply_gone(sl->id, &sl->reply);
	} else if (sl->err) {
		ka->closing = false; /* this one comes before whatever closed it later */
		close_with(ka, sl->err, true);
		return;
	}
	service_reply_one(ka->call, &sl->reply);
}

/* Sends what is due. True: the caller has to finish the call, after unlocking. */
static bool drain(struct keep_alive *ka)
{
	while (!list_empty(&ka->queue)) {
		struct slot *sl = CONTAINER_OF(ka->queue.next, struct slot, link);
		if (!sl->done)
			return false;
		answer(ka, sl);
		slot_drop(ka, sl);
	}
	if (!ka->closing || ka->finished)
		return false;
	ka->finished = true;
	return true;
}

/* ---- */

/* (K3) */
static void unlock_and_finish(struct keep_alive *ka)
{
	struct service_call *c = ka->call;
	bool finish = drain(ka);
	enum err e = ka->ending;
	pthread_mutex_unlock(&ka->mu);
	if (finish)
		service_tell_end(c, e, NULL, slice_of(NULL, 0));
}

/* Core's thread. */
static void slot_done(struct submit_call *submit, enum err e, struct buf *reply, struct buf *details)
{
	struct slot *sl = CONTAINER_OF(submit, struct slot, submit);
	struct keep_alive *ka = sl->stream;
	buf_free(details);
	pthread_mutex_lock(&ka->mu);
	sl->err = e;
	sl->done = true;
	ka->let_in = ka->let_in || e == ERR_OK;
	if (reply)
		sl->reply = buf_take(reply);
	unlock_and_finish(ka);
}

static size_t encode(lease_id id, uint8_t *ret)
{
	uint64_t v = (uint64_t)id;
	size_t n = 0;
	if (!v)
		return 0;
	ret[n++] = 1 << 3;
	for (; v >= 0x80; v >>= 7)
		ret[n++] = (uint8_t)(v | 0x80);
	ret[n++] = (uint8_t)v;
	return n;
}

static enum err decode(const struct service_call *c, struct slice bytes, lease_id *ret)
{
	enum err e = service_check_form(c, bytes);
	struct arena *a;
	Etcdserverpb__LeaseKeepAliveRequest *m;
	if (e)
		return e;
	a = service_scratch();
	m = etcdserverpb__lease_keep_alive_request__unpack(&a->pb, bytes.len, bytes.ptr);
	if (m)
		*ret = m->id;
	service_scratch_done(a);
	return m ? ERR_OK : ERR_MALFORMED;
}

/* The slot is in the queue before the node has it: its answer may come before node_submit() returns. */
static enum err submit(struct keep_alive *ka, struct slot *sl, lease_id id)
{
	struct service_call *c = ka->call;
	sl->id = id;
	c->caller.let_in = ka->let_in;
	sl->submit = (struct submit_call){
		.method = c->method->id,
		.bytes = slice_of(sl->bytes, encode(id, sl->bytes)),
		.client = c->client,
		.caller = c->caller,
		.done = slot_done,
	};
	return node_submit(c->service->node, &sl->submit);
}

static bool keep_alive_message(struct service_call *c, struct slice bytes)
{
	struct keep_alive *ka = c->state;
	struct slot *sl;
	lease_id id = 0;
	enum err e = decode(c, bytes, &id);
	bool more = true;
	pthread_mutex_lock(&ka->mu);
	if (!e && ka->outstanding >= SERVICE_INFLIGHT_MAX)
		metric_add(METRIC_REFUSED_INFLIGHT, 1), e = ERR_TOO_MANY_REQUESTS;
	if (!ka->closing && e) {
		close_with(ka, e, false);
	} else if (!ka->closing) {
		ka->outstanding++;
		sl = slot_new(ka);
		/* The node's inbox has a lock of its own and calls nobody, so it may be entered with ours held. */
		e = submit(ka, sl, id);
		if (e) {
			sl->done = true;
			sl->err = e;
		}
		more = ka->outstanding < SERVICE_UNACKED;
		ka->paused = !more;
	}
	unlock_and_finish(ka);
	return more;
}

static void keep_alive_half_close(struct service_call *c)
{
	struct keep_alive *ka = c->state;
	pthread_mutex_lock(&ka->mu);
	close_with(ka, ERR_OK, false);
	unlock_and_finish(ka);
}

static void end_now(struct keep_alive *ka, enum err e)
{
	pthread_mutex_lock(&ka->mu);
	close_with(ka, e, true);
	LIST_FOR_EACH(it, &ka->queue) {
		struct slot *sl = CONTAINER_OF(it, struct slot, link);
		if (!sl->done)
			node_cancel(ka->call->service->node, sl->submit.tag);
	}
	unlock_and_finish(ka);
}

static void keep_alive_cancel(struct service_call *c)
{
	end_now(c->state, ERR_CANCELED);
}

static void leader_lost(struct leader_watch *w)
{
	end_now(CONTAINER_OF(w, struct keep_alive, leader_watch), ERR_NO_LEADER);
}

static void keep_alive_writable(struct service_call *c)
{
	struct keep_alive *ka = c->state;
	bool ready;
	pthread_mutex_lock(&ka->mu);
	ASSERT(ka->outstanding > 0);
	ka->outstanding--;
	ready = ka->paused && ka->outstanding < SERVICE_UNACKED / 2;
	if (ready)
		ka->paused = false;
	pthread_mutex_unlock(&ka->mu);
	if (ready && c->ops->ready)
		c->ops->ready(c);
}

static void keep_alive_start(struct service_call *c)
{
	struct keep_alive *ka = mem_zalloc(sizeof(*ka));
	ka->call = c;
	pthread_mutex_init(&ka->mu, NULL);
	list_init(&ka->queue);
	c->state = ka;
	if (c->need_leader) {
		ka->leader_watch.lost = leader_lost;
		service_leader_watch_add(c->service, &ka->leader_watch);
	}
}

static void keep_alive_end(struct service_call *c)
{
	struct keep_alive *ka = c->state;
	service_leader_watch_remove(c->service, &ka->leader_watch);
	ASSERT(list_empty(&ka->queue));
	pthread_mutex_destroy(&ka->mu);
	free(ka);
}

const struct call_class keep_alive_class = {
	.start = keep_alive_start,
	.message = keep_alive_message,
	.half_close = keep_alive_half_close,
	.cancel = keep_alive_cancel,
	.writable = keep_alive_writable,
	.end = keep_alive_end,
};
