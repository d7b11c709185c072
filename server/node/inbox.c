/* inbox.c: the one queue to the core's thread.
 *
 * Calls have a bound of their own, messages of peers and those of streams one in bytes; completions, cancels and closings are bounded by what was asked for. The core's thread takes everything
 * under one lock, so a busy thread is woken by nobody: only a sleeping one is signalled.
 *
 * While a write is under way, a call that needs a write of its own would only stand behind it: it does not wake the core's thread, but goes with
 * what the completion wakes it for (or LINGER_MS later, for a replica whose followers might be faster than its own disk). A batch of
 * the core is then about a batch of the disk, and a hundred calls cost one wake instead of ten or twenty. */
#include "internal.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"

#define OTHERS_MAX 1000000 /* streams that open, and their messages */

/* Of a thread that calls node_wake(). */
static _Thread_local bool wakes_later, owes_wake;

void inbox_init(struct inbox *in)
{
	pthread_condattr_t attr;
	memset(in, 0, sizeof(*in));
	pthread_mutex_init(&in->mu, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&in->wake, &attr);
	pthread_condattr_destroy(&attr);
	list_init(&in->done);
	list_init(&in->messages);
	list_init(&in->calls);
	list_init(&in->others);
}

void inbox_item_free(struct inbox_item *item)
{
	for (size_t i = 0; item->entries && i < item->event.log_read.len; i++)
		raft_entry_unref(item->entries[i]);
	free(item->entries);
	if (item->state)
		state_deinit(item->state);
	free(item->state);
	buf_free(&item->bytes);
	free(item);
}

static void free_all(struct list *l)
{
	struct list *it;
	while ((it = list_pop_front(l)))
		inbox_item_free(CONTAINER_OF(it, struct inbox_item, link));
}

void inbox_deinit(struct inbox *in)
{
	free_all(&in->done);
	free_all(&in->messages);
	free_all(&in->others);
	pthread_cond_destroy(&in->wake);
	pthread_mutex_destroy(&in->mu);
}

/* Unlocks, and wakes the core's thread if it sleeps: after the unlock, or it would wake only to wait for the lock. */
void inbox_unlock_wake(struct inbox *in)
{
	bool wake = in->sleeping && !wakes_later;
	if (in->sleeping && wakes_later)
		owes_wake = true;
	else
		in->sleeping = false;
	pthread_mutex_unlock(&in->mu);
	if (wake)
		pthread_cond_signal(&in->wake);
}

void node_wake(struct node *n)
{
	wakes_later = false;
	if (owes_wake) {
		owes_wake = false;
		pthread_mutex_lock(&n->inbox.mu);
		inbox_unlock_wake(&n->inbox);
	}
	wakes_later = true;
}

void inbox_put_done(struct node *n, struct inbox_item *item)
{
	pthread_mutex_lock(&n->inbox.mu);
	list_push_back(&n->inbox.done, &item->link);
	inbox_unlock_wake(&n->inbox);
}

void inbox_put_disk_done(struct node *n, uint64_t seq)
{
	pthread_mutex_lock(&n->inbox.mu);
	n->inbox.disk_done = seq;
	inbox_unlock_wake(&n->inbox);
}

bool node_message(struct node *n, struct slice bytes)
{
	struct inbox *in = &n->inbox;
	struct inbox_item *item = mem_zalloc(sizeof(*item));
	bool fits;
	item->event.kind = EVENT_MESSAGE;
	item->bytes = buf_copy_of(bytes);
	item->event.message = buf_view(&item->bytes);
	pthread_mutex_lock(&in->mu);
	fits = !in->stop && in->message_bytes + bytes.len <= n->config.max_queued_message_bytes;
	if (fits) {
		in->message_bytes += bytes.len;
		list_push_back(&in->messages, &item->link);
	}
	inbox_unlock_wake(in);
	if (!fits)
		inbox_item_free(item);
	return fits;
}

/* What a client may send any number of. */
static bool is_full_locked(const struct node *n, const struct inbox_item *item)
{
	const struct inbox *in = &n->inbox;
	if (item->event.kind == EVENT_STREAM_MESSAGE && in->stream_bytes + item->bytes.len > n->config.max_queued_stream_bytes)
		return true;
	return (item->event.kind == EVENT_STREAM_MESSAGE || item->event.kind == EVENT_STREAM_OPEN) && in->others_len >= OTHERS_MAX;
}

enum err inbox_put_other(struct node *n, struct inbox_item *item)
{
	struct inbox *in = &n->inbox;
	enum err e;
	pthread_mutex_lock(&in->mu);
	e = in->stop ? ERR_STOPPED : is_full_locked(n, item) ? ERR_OVERLOADED : ERR_OK;
	if (!e) {
		in->others_len++;
		if (item->event.kind == EVENT_STREAM_MESSAGE)
			in->stream_bytes += item->bytes.len;
		list_push_back(&in->others, &item->link);
	}
	inbox_unlock_wake(in);
	if (e)
		inbox_item_free(item);
	return e;
}

void node_peer_lost(struct node *n, member_id peer)
{
	struct inbox_item *item = mem_zalloc(sizeof(*item));
	item->event.kind = EVENT_PEER_LOST;
	item->event.member = peer;
	inbox_put_other(n, item);
}

enum err node_submit(struct node *n, struct submit_call *call)
{
	struct inbox *in = &n->inbox;
	bool needs_write = method_by_id(call->method)->access == METHOD_WRITE;
	size_t room = n->config.max_queued_calls * (method_is_reserved(call->method) ? 2 : 1);
	enum err e;
	call->now_unix_ms = (int64_t)unix_ms();
	call->tag = atomic_fetch_add(&n->next_tag, 1);
	pthread_mutex_lock(&in->mu);
	e = in->stop || atomic_load(&n->failed) ? ERR_STOPPED : ERR_OK;
	if (!e && in->calls_len >= room)
		e = ERR_OVERLOADED;
	if (!e) {
		in->calls_len++;
		list_push_back(&in->calls, &call->link);
		in->urgent |= !needs_write;
	}
	if (!e && needs_write && in->writing && !(in->gathering && in->calls_len >= in->gather_len))
		pthread_mutex_unlock(&in->mu);
	else
		inbox_unlock_wake(in);
	return e;
}

bool node_refuses(struct node *n, enum method_id method, struct slice request)
{
	return atomic_load_explicit(&n->refuses_load, memory_order_relaxed) && core_is_load(method, request);
}

void node_cancel(struct node *n, uint64_t tag)
{
	struct inbox_item *item = mem_zalloc(sizeof(*item));
	item->event.kind = EVENT_CANCEL;
	item->event.tag = tag;
	inbox_put_other(n, item);
}

static struct inbox_item *stream_item(enum core_event_kind kind, uint64_t tag, enum method_id method, struct slice bytes)
{
	struct inbox_item *item = mem_zalloc(sizeof(*item));
	item->event.kind = kind;
	item->bytes = buf_copy_of(bytes);
	item->event.stream.tag = tag;
	item->event.stream.method = method;
	item->event.stream.bytes = buf_view(&item->bytes);
	return item;
}

enum err node_stream_open(struct node *n, struct submit_stream *s, struct slice bytes)
{
	struct inbox_item *item;
	if (atomic_load(&n->failed))
		return ERR_STOPPED;
	s->tag = atomic_fetch_add(&n->next_tag, 1);
	item = stream_item(EVENT_STREAM_OPEN, s->tag, s->method, bytes);
	item->stream = s;
	return inbox_put_other(n, item);
}

enum err node_stream_message(struct node *n, uint64_t tag, struct slice bytes)
{
	return inbox_put_other(n, stream_item(EVENT_STREAM_MESSAGE, tag, METHOD_COUNT, bytes));
}

void node_stream_writable(struct node *n, uint64_t tag)
{
	inbox_put_other(n, stream_item(EVENT_STREAM_WRITABLE, tag, METHOD_COUNT, slice_of(NULL, 0)));
}

void node_stream_close(struct node *n, uint64_t tag)
{
	inbox_put_other(n, stream_item(EVENT_STREAM_CLOSED, tag, METHOD_COUNT, slice_of(NULL, 0)));
}
