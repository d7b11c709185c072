/* call.c: one RPC: comes in, hands its messages to the service, and goes.
 *
 * Most calls are unary and short: one message is read, and everything that goes back leaves in one batch, which also awaits the end of the stream. Only
 * calls that may last (streams, and the unary ones that wait for a lock) watch from the start for a client that leaves.
 *
 * Methods are not registered with gRPC. It would then read the message before we hear of the call, which saves a batch (4 % of the instructions of a
 * put), but calls that never send one would stand where max_calls does not count them. */
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "internal.h"

static void call_accepted(struct rpc_tag *tag, bool ok);
static void call_received(struct rpc_tag *tag, bool ok);
static void call_closed(struct rpc_tag *tag, bool ok);
static void call_flush(struct rpc_tag *tag, bool ok);

struct call *front_call_new(struct grpc_front *f)
{
	struct call *c = mem_zalloc(sizeof(*c));
	c->front = f;
	c->fd = -1;
	c->accepted.fn = call_accepted;
	c->received.fn = call_received;
	c->closed.fn = call_closed;
	c->sent.fn = front_call_sent;
	c->flush.fn = call_flush;
	list_init(&c->link);
	list_init(&c->out_link);
	pthread_mutex_init(&c->serial, NULL);
	pthread_mutex_init(&c->mu, NULL);
	return c;
}

void front_call_free(struct call *c)
{
	pthread_mutex_destroy(&c->serial);
	pthread_mutex_destroy(&c->mu);
	free(c);
}

/* ---- the end ---- */

static void drop_outgoing(struct call *c)
{
	buf_free(&c->next);
	if (c->has_slice)
		grpc_slice_unref(c->current_slice);
	if (c->has_trailer) {
		grpc_slice_unref(c->trailer.key);
		grpc_slice_unref(c->trailer.value);
	}
	buf_free(&c->details);
	free(c->detail);
}

/* As new, for the pool; the locks stay. */
static void call_reset(struct call *c)
{
	memset(&c->service, 0, sizeof(c->service));
	c->rpc = NULL;
	c->identity = NULL;
	c->fd = -1;
	atomic_store_explicit(&c->awaits_since_ms, 0, memory_order_relaxed);
	c->watches_close = c->late = c->served = c->initial_sent = c->has_trailer = false;
	c->cancelled = 0;
	c->in_outbox = c->sending = c->status_sent = c->broken = c->paused = c->resume = c->finished = c->has_slice = false;
	c->err = ERR_OK;
	c->detail = NULL;
	c->next_replies = c->current_replies = 0;
	c->current = slice_of(NULL, 0);
	c->offset = 0;
}

/* (G4) */
void front_call_unref(struct call *c)
{
	if (atomic_fetch_sub(&c->refs, 1) != 1)
		return;
	if (c->served)
		service_end(&c->service);
	if (c->received_message)
		grpc_byte_buffer_destroy(c->received_message);
	if (c->sent_message)
		grpc_byte_buffer_destroy(c->sent_message);
	c->received_message = c->sent_message = NULL;
	drop_outgoing(c);
	grpc_metadata_array_destroy(&c->metadata);
	grpc_call_details_destroy(&c->request);
	grpc_call_unref(c->rpc);
	identity_unref(c->identity);
	call_reset(c);
	front_close(c->front, c);
}

/* ---- what the service says, on any thread ---- */

/* With c->mu. True: front_put_out() is due after unlocking. */
static bool into_outbox(struct call *c)
{
	if (c->in_outbox)
		return false;
	c->in_outbox = true;
	atomic_fetch_add(&c->refs, 1);
	return true;
}

static void ops_reply(struct service_call *sc, struct buf *messages)
{
	struct call *c = CONTAINER_OF(sc, struct call, service);
	bool put = false;
	pthread_mutex_lock(&c->mu);
	if (c->broken) {
		buf_free(messages);
	} else if (c->next.len == 0) {
		buf_free(&c->next);
		c->next = buf_take(messages);
	} else {
		buf_append_slice(&c->next, buf_view(messages));
		buf_free(messages);
	}
	c->next_replies++;
	/* A unary reply leaves with its status, which follows at once. */
	if (sc->method->stream != METHOD_UNARY)
		put = into_outbox(c);
	pthread_mutex_unlock(&c->mu);
	if (put)
		front_put_out(c);
}

static void ops_finish(struct service_call *sc, enum err e, const char *detail, struct slice details)
{
	front_call_finish(CONTAINER_OF(sc, struct call, service), e, detail, details);
}

static void ops_ready(struct service_call *sc)
{
	struct call *c = CONTAINER_OF(sc, struct call, service);
	bool put;
	pthread_mutex_lock(&c->mu);
	c->resume = true;
	put = into_outbox(c);
	pthread_mutex_unlock(&c->mu);
	if (put)
		front_put_out(c);
}

const struct service_ops front_call_ops = { .reply = ops_reply, .finish = ops_finish, .ready = ops_ready };

void front_call_finish(struct call *c, enum err e, const char *detail, struct slice details)
{
	bool put;
	char *copy = NULL;
	if (e == ERR_CANCELED && c->late)
		e = ERR_DEADLINE_EXCEEDED;
	else if (e == ERR_CANCELED && atomic_load(&c->front->ending))
		e = ERR_STOPPED; /* it was us who cancelled */
	if (detail) {
		size_t size = strlen(detail) + 1;
		copy = mem_alloc(size);
		memcpy(copy, detail, size);
	}
	pthread_mutex_lock(&c->mu);
	ASSERT(!c->finished);
	c->finished = true;
	c->err = e;
	c->detail = copy;
	if (details.len)
		c->details = buf_copy_of(details);
	put = into_outbox(c);
	pthread_mutex_unlock(&c->mu);
	if (put)
		front_put_out(c);
}

/* ---- coming in ---- */

/* Everything but the short unary calls may be given up long before it is answered. */
static bool may_last(const struct method *m)
{
	return m->stream != METHOD_UNARY || m->id == METHOD_LOCK_LOCK || m->id == METHOD_ELECTION_CAMPAIGN;
}

static void read_identity(struct call *c)
{
	char *peer = grpc_call_get_peer(c->rpc);
	struct identity *who = addresses_find(&c->front->addresses, peer, &c->fd);
	gpr_free(peer);
	if (!who)
		return;
	c->identity = who;
	c->service.identity = who;
	c->service.client = slice_of_str(who->address);
	c->service.client_cn = who->common_name;
}

static enum err read_metadata(struct call *c)
{
	for (size_t i = 0; i < c->metadata.count; i++) {
		const grpc_metadata *m = &c->metadata.metadata[i];
		enum err e = service_metadata(&c->service, rpc_view(&m->key), rpc_view(&m->value));
		if (e)
			return e;
	}
	return ERR_OK;
}

static void refuse_path(struct call *c, struct slice path)
{
	struct buf text = { .ptr = NULL };
	status_unknown_path(path, &text);
	buf_append_byte(&text, 0);
	front_call_finish(c, ERR_UNIMPLEMENTED, (const char *)text.ptr, slice_of(NULL, 0));
	buf_free(&text);
}

static void watch_close(struct call *c)
{
	grpc_op op = { .op = GRPC_OP_RECV_CLOSE_ON_SERVER };
	op.data.recv_close_on_server.cancelled = &c->cancelled;
	c->watches_close = true;
	atomic_fetch_add(&c->refs, 1);
	rpc_start(c->rpc, &op, 1, &c->closed);
}

void front_call_read(struct call *c)
{
	grpc_op op = { .op = GRPC_OP_RECV_MESSAGE };
	op.data.recv_message.recv_message = &c->received_message;
	atomic_fetch_add(&c->refs, 1);
	rpc_start(c->rpc, &op, 1, &c->received);
}

static bool is_finished(struct call *c)
{
	bool finished;
	pthread_mutex_lock(&c->mu);
	finished = c->finished;
	pthread_mutex_unlock(&c->mu);
	return finished;
}

static void serve(struct call *c)
{
	struct slice path = c->lane ? slice_of_str(c->lane->method->path) : rpc_view(&c->request.method);
	const struct method *m = c->lane ? c->lane->method : method_by_path(path);
	enum err e = front_open(c->front, c);
	c->service.ops = &front_call_ops;
	c->service.method = m ? m : method_by_id(METHOD_KV_RANGE);
	if (!e && m)
		e = read_metadata(c);
	if (e) {
		front_call_finish(c, e, NULL, slice_of(NULL, 0));
		return;
	}
	if (!m) {
		refuse_path(c, path);
		return;
	}
	read_identity(c);
	c->served = true;
	service_start(c->front->config.service, &c->service);
	if (is_finished(c))
		return;
	if (may_last(m))
		watch_close(c);
	if (m->stream != METHOD_BIDI_STREAM)
		atomic_store_explicit(&c->awaits_since_ms, atomic_load_explicit(&c->front->clock_ms, memory_order_relaxed), memory_order_relaxed);
	front_call_read(c);
}

static void call_accepted(struct rpc_tag *tag, bool ok)
{
	struct call *c = CONTAINER_OF(tag, struct call, accepted);
	if (!ok) { /* the server shuts down: no call came */
		grpc_metadata_array_destroy(&c->metadata);
		grpc_call_details_destroy(&c->request);
		front_call_free(c);
		return;
	}
	front_arm(c->front, c->lane);
	atomic_store(&c->refs, 2); /* until its status is sent; and ours here */
	pthread_mutex_lock(&c->serial);
	serve(c);
	pthread_mutex_unlock(&c->serial);
	front_call_unref(c);
}

/* ---- under way ---- */

/* True: read on. */
static bool take_message(struct call *c)
{
	struct buf scratch = { .ptr = NULL };
	struct slice bytes;
	bool more = true;
	if (rpc_message_view(c->received_message, &scratch, &bytes))
		more = service_message(&c->service, bytes);
	else
		service_half_close(&c->service);
	buf_free(&scratch);
	grpc_byte_buffer_destroy(c->received_message);
	c->received_message = NULL;
	if (c->service.method->stream != METHOD_BIDI_STREAM)
		return false; /* one message is all; what else the client may send is not read */
	pthread_mutex_lock(&c->mu);
	if (!more && !c->resume) {
		c->paused = true;
	} else {
		c->resume = false;
		more = true;
	}
	more = more && !c->finished;
	pthread_mutex_unlock(&c->mu);
	return more;
}

static void call_received(struct rpc_tag *tag, bool ok)
{
	struct call *c = CONTAINER_OF(tag, struct call, received);
	pthread_mutex_lock(&c->serial);
	atomic_store_explicit(&c->awaits_since_ms, 0, memory_order_relaxed);
	if (c->received_message) {
		if (take_message(c))
			front_call_read(c);
	} else if (ok || !c->watches_close) {
		service_half_close(&c->service);
	}
	pthread_mutex_unlock(&c->serial);
	front_call_unref(c);
}

void front_call_give_up(struct call *c)
{
	pthread_mutex_lock(&c->serial);
	if (c->served && !is_finished(c) && atomic_load_explicit(&c->awaits_since_ms, memory_order_relaxed)) {
		c->late = true;
		service_cancel(&c->service);
	}
	pthread_mutex_unlock(&c->serial);
}

void front_call_cancel(struct call *c)
{
	pthread_mutex_lock(&c->serial);
	if (c->served && !is_finished(c))
		service_cancel(&c->service);
	pthread_mutex_unlock(&c->serial);
}

static void call_flush(struct rpc_tag *tag, bool ok)
{
	(void)ok;
	front_call_flush(CONTAINER_OF(tag, struct call, flush));
}

static void call_closed(struct rpc_tag *tag, bool ok)
{
	struct call *c = CONTAINER_OF(tag, struct call, closed);
	(void)ok;
	if (c->cancelled)
		front_call_cancel(c);
	front_call_unref(c);
}
