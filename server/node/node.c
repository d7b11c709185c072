/* node.c: the core's thread: takes a batch of events, lets the core decide, carries the update out in order. */
#include "node.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "core/member/member.h"
#include "internal.h"
#include "log/log.h"
#include "metrics.h"

#define TICK_MS 50
#define LINGER_MS 1
#define GATHER_MIN 8
#define GATHER_MAX_US 1000
#define SLOW_TOLD_MS 1000
#define GAP_MS 500 /* a longer silence between two looks at the clock means that we stood still */

/* ---- carrying out an update ---- */

static void queue_write(struct node *n, struct core_write *w)
{
	struct disk_item *item;
	if (!w->seq && !w->trim_to)
		return;
	if (w->seq && n->disk_queued == n->disk_done) {
		n->write_began_us = mono_us();
		n->write_calls = n->batch_calls;
	}
	if (w->seq)
		n->disk_queued = w->seq;
	item = mem_zalloc(sizeof(*item));
	item->kind = DISK_WRITE;
	item->write = *w;
	/* The update's array dies with the next step; the references move along. */
	item->write.entries = NULL;
	if (w->entries_len) {
		item->write.entries = mem_alloc(w->entries_len * sizeof(*w->entries));
		memcpy(item->write.entries, w->entries, w->entries_len * sizeof(*w->entries));
	}
	w->entries_len = 0;
	disk_queue(&n->disk, item);
}

static void send_message(struct node *n, struct core_message *m)
{
	n->config.callbacks.send(n->config.callbacks.ctx, m->to, &m->bytes, m->bulk);
}

static void send_or_hold(struct node *n, struct core_message *m)
{
	struct waiting_message *w;
	if (m->wait_seq <= n->disk_done) {
		send_message(n, m);
		return;
	}
	w = mem_alloc(sizeof(*w));
	w->message = *m;
	m->bytes = (struct buf){ .ptr = NULL };
	list_push_back(&n->held_back, &w->link);
}

/* (N2) Not in wait_seq order alone: a later message may wait for an earlier write. */
static void release_held(struct node *n)
{
	LIST_FOR_EACH_SAFE(it, tmp, &n->held_back) {
		struct waiting_message *w = CONTAINER_OF(it, struct waiting_message, link);
		if (w->message.wait_seq > n->disk_done)
			continue;
		list_remove(it);
		send_message(n, &w->message);
		free(w);
	}
}

static void answer(struct node *n, struct core_answer *a)
{
	struct submit_call *call = map64_remove(&n->calls, a->tag);
	if (!call)
		return;
	if (call->caller.wanted)
		call->user = buf_take(&a->user);
	if (call->method == METHOD_MAINTENANCE_HASH_KV && !a->err && !call->ask) {
		hash_answer(n, call, &a->reply);
		return;
	}
	call->done(call, a->err, &a->reply, &a->details);
}

static void output(struct node *n, struct core_output *o)
{
	struct submit_stream *s = o->finished ? map64_remove(&n->streams, o->stream) : map64_get(&n->streams, o->stream);
	if (s)
		s->output(s, &o->messages, o->finished, o->err);
}

static const char *fatal_reason(enum core_fatal f)
{
	switch (f) {
	case CORE_FATAL_DATA_DIR:
		return "the cell knows this member by another data directory: its disk was wiped or exchanged; remove the member and add it anew";
	case CORE_FATAL_REMOVED:
		return "this member was removed from the cell: its data directory is of no more use";
	case CORE_FATAL_CELL:
		return "the peers belong to another cell: check --initial-cluster and --initial-cluster-token";
	case CORE_FATAL_CORRUPT:
		return "this replica's state cannot be trusted: replace the member";
	case CORE_FATAL_DIFFERS:
		return "this replica's state differs from that of a quorum: remove the member from the cell, give it an empty data directory and add it anew, then "
		       "disarm its CORRUPT alarm";
	case CORE_FATAL_LOST:
		return "this replica's disk was damaged, and the cell has no other voter to get the lost part of the log from: restore the cell from a backup (holdfastd "
		       "snapshot restore); what could not be read is kept in the data directory, under 'damaged'";
	case CORE_OK:
		break;
	}
	return "unknown";
}

static void carry_out(struct node *n, struct core_update *up)
{
	queue_write(n, &up->write);
	for (size_t i = 0; i < up->messages_len; i++)
		send_or_hold(n, &up->messages[i]);
	for (size_t i = 0; i < up->reads_len; i++) {
		struct disk_item *item = mem_zalloc(sizeof(*item));
		item->kind = DISK_READ;
		item->read = up->reads[i];
		disk_queue(&n->disk, item);
	}
	for (size_t i = 0; i < up->answers_len; i++)
		answer(n, &up->answers[i]);
	for (size_t i = 0; i < up->outputs_len; i++)
		output(n, &up->outputs[i]);
	for (size_t i = 0; i < up->jobs_len; i++)
		snap_queue(&n->snap, &up->jobs[i]);
	if (up->members_changed)
		n->config.callbacks.members(n->config.callbacks.ctx, core_state(n->core));
	if (up->fatal)
		node_fail(n, fatal_reason(up->fatal));
	core_update_release(up);
}

static size_t voters(const struct state *st)
{
	struct tree_cursor c;
	size_t len = 0;
	for (struct tree_record *r = tree_first(&c, &st->members); r; r = tree_next(&c))
		len += member_counts((const struct member_record *)(void *)r);
	return len;
}

static void publish_status(struct node *n)
{
	struct core_status s;
	core_status(n->core, &s);
	atomic_store_explicit(&n->refuses_load, core_refuses_load(n->core), memory_order_relaxed);
	pthread_mutex_lock(&n->status_mu);
	if (n->status.role != s.role || n->status.leader != s.leader)
		pthread_cond_broadcast(&n->status_changed);
	if (n->status.leader && !s.leader)
		n->leaderless_since = n->looked_ms;
	n->status = s;
	n->alone = voters(core_state(n->core)) < 2;
	pthread_mutex_unlock(&n->status_mu);
}

/* ---- taking events ---- */

struct batch {
	struct list done, messages, calls, others;
	uint64_t disk_done;
	bool stop;
};

static void list_take_all(struct list *dst, struct list *src)
{
	list_init(dst);
	if (list_empty(src))
		return;
	*dst = *src;
	dst->next->prev = dst;
	dst->prev->next = dst;
	list_init(src);
}

/* Nothing that is worth a batch by itself. */
static bool inbox_quiet_locked(const struct node *n)
{
	const struct inbox *in = &n->inbox;
	bool calls = in->writing ? in->urgent : !list_empty(&in->calls);
	return !calls && list_empty(&in->done) && list_empty(&in->messages) && list_empty(&in->others) && in->disk_done == n->disk_done && !in->stop;
}

/* Beside a write, and with followers whose disks might be faster, calls wait for at most LINGER_MS. True: it is over. */
static bool linger_locked(struct node *n)
{
	struct timespec until = mono_in_us(LINGER_MS * 1000);
	while (inbox_quiet_locked(n)) {
		n->inbox.sleeping = true;
		if (pthread_cond_timedwait(&n->inbox.wake, &n->inbox.mu, &until) == ETIMEDOUT)
			return !list_empty(&n->inbox.calls);
	}
	return true;
}

/* A write is done, many wait for it and many for the next one. */
static bool leave_calls_locked(struct node *n)
{
	struct inbox *in = &n->inbox;
	uint64_t took_us;
	if (in->disk_done == n->disk_done || in->disk_done != n->disk_queued || in->calls_len < GATHER_MIN || in->urgent || in->stop)
		return false;
	took_us = mono_us() - n->write_began_us;
	n->gather_us = took_us / 2 < GATHER_MAX_US ? took_us / 2 : GATHER_MAX_US;
	in->gather_len = in->calls_len + n->write_calls - n->write_calls / 8;
	n->write_calls = 0;
	return true;
}

/* The last batch answered many, who mostly ask again at once: those who came meanwhile wait for them, a part of what a write takes, so that all go
 * with one write instead of two that alternate. */
static void gather_locked(struct node *n)
{
	struct inbox *in = &n->inbox;
	struct timespec until;
	if (n->gather_us == 0)
		return;
	until = mono_in_us(n->gather_us);
	n->gather_us = 0;
	in->writing = in->gathering = true;
	while (in->calls_len < in->gather_len && inbox_quiet_locked(n)) {
		in->sleeping = true;
		if (pthread_cond_timedwait(&in->wake, &in->mu, &until) == ETIMEDOUT)
			break;
	}
	in->sleeping = in->writing = in->gathering = false;
}

static void wait_locked(struct node *n, uint64_t wait_ms)
{
	struct inbox *in = &n->inbox;
	struct timespec until = mono_in_us(wait_ms * 1000);
	in->writing = n->disk_queued > in->disk_done;
	while (inbox_quiet_locked(n)) {
		if (in->writing && !n->alone && wait_ms > LINGER_MS) {
			if (linger_locked(n))
				break;
			wait_ms -= LINGER_MS;
			continue;
		}
		in->sleeping = true;
		if (pthread_cond_timedwait(&in->wake, &in->mu, &until) == ETIMEDOUT)
			break;
	}
	in->sleeping = in->writing = false;
}

static void wait_and_take(struct node *n, uint64_t until_ms, struct batch *b)
{
	struct inbox *in = &n->inbox;
	uint64_t now = boot_ms();
	pthread_mutex_lock(&in->mu);
	gather_locked(n);
	if (until_ms > now)
		wait_locked(n, until_ms - now);
	list_take_all(&b->done, &in->done);
	list_take_all(&b->messages, &in->messages);
	list_take_all(&b->others, &in->others);
	in->message_bytes = in->others_len = in->stream_bytes = 0;
	list_init(&b->calls);
	if (!leave_calls_locked(n)) {
		list_take_all(&b->calls, &in->calls);
		in->calls_len = 0;
		in->urgent = false;
	}
	b->disk_done = in->disk_done;
	b->stop = in->stop;
	pthread_mutex_unlock(&in->mu);
}

/* The core answers a cancelled call no more; its owner still waits to have it back. */
static void answer_canceled(struct node *n, uint64_t tag)
{
	struct submit_call *call = map64_remove(&n->calls, tag);
	struct buf none = { .ptr = NULL };
	if (call)
		call->done(call, ERR_CANCELED, &none, &none);
}

static bool is_stream_event(enum core_event_kind kind)
{
	return kind == EVENT_STREAM_WRITABLE || kind == EVENT_STREAM_CLOSED;
}

static void step_item(struct node *n, struct inbox_item *item)
{
	if (item->event.kind == EVENT_STREAM_OPEN && item->event.stream.method == METHOD_MAINTENANCE_SNAPSHOT) {
		backup_open(n, item->stream, item->event.now);
		return;
	}
	if (is_stream_event(item->event.kind) && (n->tasks_len > 0 || !list_empty(&n->backups)))
		backup_step(n, &item->event);
	core_step(n->core, &item->event);
}

static void step_items(struct node *n, struct list *items, uint64_t now)
{
	struct list *it;
	while ((it = list_pop_front(items))) {
		struct inbox_item *item = CONTAINER_OF(it, struct inbox_item, link);
		item->event.now = now;
		if (item->event.kind == EVENT_STREAM_OPEN) {
			item->event.stream.caller = &item->stream->caller;
			map64_put(&n->streams, item->event.stream.tag, item->stream);
		}
		if (item->run)
			item->run(n, item);
		else
			step_item(n, item);
		if (item->event.kind == EVENT_CANCEL)
			answer_canceled(n, item->event.tag);
		inbox_item_free(item);
	}
}

static void step_calls(struct node *n, struct list *calls, uint64_t now)
{
	struct list *it;
	n->batch_calls = 0;
	while ((it = list_pop_front(calls))) {
		n->batch_calls++;
		struct submit_call *c = CONTAINER_OF(it, struct submit_call, link);
		struct core_request r = { .tag = c->tag, .method = c->method, .bytes = c->bytes, .client = c->client, .session = c->session,
					  .request_id = c->request_id, .first_unanswered = c->first_unanswered,
					  .now_unix_ms = c->now_unix_ms, .caller = c->caller, .ask = c->ask, .assign = c->assign };
		struct core_event ev = { .kind = EVENT_REQUEST, .now = now, .request = &r };
		map64_put(&n->calls, c->tag, c);
		core_step(n->core, &ev);
	}
}

/* Messages are taken before ticks: what a peer said while we were busy must not look like silence. */
static void run_batch(struct node *n, struct batch *b, struct core_update *up)
{
	uint64_t now = boot_ms();
	if (now - n->looked_ms > GAP_MS) {
		struct core_event gap = { .kind = EVENT_GAP, .now = now, .gap_ms = now - n->looked_ms - TICK_MS };
		log_warn("this process stood still, deadlines are moved", LOG_U64("ms", gap.gap_ms));
		core_step(n->core, &gap);
	}
	n->looked_ms = now;
	atomic_store_explicit(&n->turn_ms, now, memory_order_relaxed);
	if (b->disk_done > n->disk_done) {
		struct core_event done = { .kind = EVENT_DISK_DONE, .now = now, .seq = b->disk_done };
		n->disk_done = b->disk_done;
		release_held(n);
		core_step(n->core, &done);
	}
	step_items(n, &b->done, now);
	step_items(n, &b->messages, now);
	step_calls(n, &b->calls, now);
	step_items(n, &b->others, now);
	if (now >= core_next_deadline(n->core) || now - n->ticked_ms >= TICK_MS) {
		struct core_event tick = { .kind = EVENT_TICK, .now = now };
		n->ticked_ms = now;
		tasks_tick(n);
		core_step(n->core, &tick);
	}
	core_take(n->core, up);
}

/* Every call is answered and every stream ended, whatever was asked for. */
static void answer_all(struct node *n)
{
	struct buf none = { .ptr = NULL };
	uint64_t tag;
	void *value;
	tasks_stop(n);
	for (size_t pos = 0; map64_next(&n->calls, &pos, &tag, &value);) {
		struct submit_call *c = value;
		map64_remove(&n->calls, tag);
		c->done(c, ERR_STOPPED, &none, &none);
	}
	for (size_t pos = 0; map64_next(&n->streams, &pos, &tag, &value);) {
		struct submit_stream *s = value;
		map64_remove(&n->streams, tag);
		s->output(s, &none, true, ERR_STOPPED);
	}
}

/* A log line a second at the most: it is slow already. */
static void note_turn(struct node *n)
{
	uint64_t now = boot_ms(), took = now - n->looked_ms;
	if (!n->config.slow_turn_ms || took <= n->config.slow_turn_ms)
		return;
	metric_add(METRIC_SLOW_APPLY, 1);
	if (now - n->slow_told_ms < SLOW_TOLD_MS)
		return;
	n->slow_told_ms = now;
	log_warn("a turn of the core took too long", LOG_U64("ms", took), LOG_U64("calls", n->batch_calls));
}

static void *core_main(void *arg)
{
	struct node *n = arg;
	struct core_update up = { .again = false };
	struct batch b;
	n->looked_ms = boot_ms();
	n->config.callbacks.members(n->config.callbacks.ctx, core_state(n->core));
	for (;;) {
		uint64_t until = n->ticked_ms + TICK_MS;
		if (up.again)
			until = 0;
		else if (core_next_deadline(n->core) < until)
			until = core_next_deadline(n->core);
		wait_and_take(n, until, &b);
		run_batch(n, &b, &up);
		note_turn(n);
		bool again = up.again;
		carry_out(n, &up);
		up.again = again;
		publish_status(n);
		if (b.stop)
			break;
	}
	answer_all(n);
	return NULL;
}

/* ---- life ---- */

enum err node_new(const struct node_config *config, struct node **ret, struct errmsg *em)
{
	struct node *n = mem_zalloc(sizeof(*n));
	pthread_condattr_t attr;
	enum err e;
	n->config = *config;
	atomic_init(&n->next_tag, 1);
	atomic_init(&n->failed, false);
	atomic_init(&n->refuses_load, false);
	inbox_init(&n->inbox);
	pthread_mutex_init(&n->status_mu, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&n->status_changed, &attr);
	pthread_condattr_destroy(&attr);
	list_init(&n->held_back);
	list_init(&n->tasks);
	list_init(&n->backups);
	e = node_load(n, em);
	if (e) {
		node_free(n);
		return e;
	}
	core_set_trace(n->core, node_trace, n);
	n->leaderless_since = n->looked_ms = boot_ms();
	publish_status(n);
	*ret = n;
	return ERR_OK;
}

void node_start(struct node *n)
{
	disk_start(&n->disk, n);
	snap_start(&n->snap, n);
	n->started = true;
	ASSERT(pthread_create(&n->thread, NULL, core_main, n) == 0);
}

void node_hand_over(struct node *n, uint64_t timeout_ms)
{
	struct inbox_item *item;
	struct timespec until;
	if (!n->started)
		return;
	item = mem_zalloc(sizeof(*item));
	until = mono_in_us(timeout_ms * 1000);
	item->event.kind = EVENT_TRANSFER;
	item->event.member = 0;
	if (inbox_put_other(n, item))
		return;
	pthread_mutex_lock(&n->status_mu);
	/* Until somebody else is known to lead: then what waits here has been passed on. */
	while (!n->alone && (n->status.role == RAFT_LEADER || n->status.leader == 0)) {
		if (pthread_cond_timedwait(&n->status_changed, &n->status_mu, &until) == ETIMEDOUT)
			break;
	}
	pthread_mutex_unlock(&n->status_mu);
}

void node_stop(struct node *n)
{
	if (!n->started)
		return;
	n->started = false;
	pthread_mutex_lock(&n->inbox.mu);
	n->inbox.stop = true;
	inbox_unlock_wake(&n->inbox);
	pthread_join(n->thread, NULL);
	snap_stop(&n->snap);
	disk_stop(&n->disk);
}

void node_free(struct node *n)
{
	struct list *it;
	if (!n)
		return;
	ASSERT(!n->started);
	while ((it = list_pop_front(&n->held_back))) {
		struct waiting_message *w = CONTAINER_OF(it, struct waiting_message, link);
		buf_free(&w->message.bytes);
		free(w);
	}
	tasks_free(n);
	core_free(n->core);
	map64_deinit(&n->calls);
	map64_deinit(&n->streams);
	inbox_deinit(&n->inbox);
	pthread_cond_destroy(&n->status_changed);
	pthread_mutex_destroy(&n->status_mu);
	free(n);
}

void node_fail(struct node *n, const char *reason)
{
	if (!atomic_exchange(&n->failed, true))
		n->config.callbacks.fatal(n->config.callbacks.ctx, reason);
}

uint64_t node_silence_ms(const struct node *n)
{
	uint64_t turn = atomic_load_explicit(&n->turn_ms, memory_order_relaxed), now = boot_ms();
	return turn && now > turn ? now - turn : 0;
}

void node_status(struct node *n, struct core_status *ret)
{
	pthread_mutex_lock(&n->status_mu);
	*ret = n->status;
	pthread_mutex_unlock(&n->status_mu);
}

void node_health(struct node *n, struct node_health *ret)
{
	struct core_status s;
	uint64_t since;
	pthread_mutex_lock(&n->status_mu);
	s = n->status;
	since = n->leaderless_since;
	pthread_mutex_unlock(&n->status_mu);
	*ret = (struct node_health){ .serving = s.serving, .leader = s.role == RAFT_LEADER, .leader_id = s.leader, .term = s.term,
				     .applied = s.applied, .revision = (uint64_t)s.revision, .no_space = s.no_space, .corrupt = s.corrupt, .recovering = s.recovering, .store_bytes = s.store_bytes, .keys = s.keys, .learner = s.learner,
				     .silence_ms = node_silence_ms(n), .leaderless_ms = s.leader ? 0 : boot_ms() - since };
}

const char *node_etcd_version(const struct node *n)
{
	return n->config.core.version;
}
