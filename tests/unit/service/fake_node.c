/* fake_node.c: see fake_node.h. One list of events under one lock; the thread takes them one by one. */
#include "fake_node.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "etcd/rpc.pb-c.h"
#include "etcd/v3election.pb-c.h"
#include "etcd/v3lock.pb-c.h"

enum event_kind { CANCEL, OPEN, MESSAGE, WRITABLE, CLOSE };

struct event {
	struct list link;
	enum event_kind kind;
	uint64_t tag;
	struct submit_stream *stream;
	struct buf bytes;
};

struct fake_stream {
	struct submit_stream *stream;
	bool flood, writable;
};

struct node {
	pthread_t thread;
	pthread_mutex_t mu;
	pthread_cond_t wake;
	/* guarded by mu */
	struct list calls, events;
	uint64_t next_tag;
	bool stop, held, reverse, grant;
	uint64_t leaderless_ms;
	enum err refuse;
	bool refuse_load;
	struct fake_figures figures;
	/* the thread's */
	struct map64 waiting; /* tag -> struct submit_call: locks */
	struct list kept;     /* calls while held */
	uint64_t kept_len;
	struct map64 streams; /* tag -> struct fake_stream */
};

/* ---- answers ---- */

static void answer(struct submit_call *c, enum err e, struct buf *reply, const char *details)
{
	struct buf d = details ? buf_copy_of(slice_of_str(details)) : (struct buf){ .ptr = NULL };
	c->done(c, e, reply, &d);
	buf_free(reply);
	buf_free(&d);
}

static void fail(struct submit_call *c, enum err e)
{
	struct buf none = { .ptr = NULL };
	answer(c, e, &none, NULL);
}

static void answer_put(struct submit_call *c)
{
	Etcdserverpb__PutRequest *r = etcdserverpb__put_request__unpack(NULL, c->bytes.len, c->bytes.ptr);
	struct buf reply = { .ptr = NULL };
	enum err e = ERR_OK;
	ASSERT(r);
	if (r->key.len == 3 && memcmp(r->key.data, "err", 3) == 0) {
		char text[16] = "";
		memcpy(text, r->value.data, r->value.len < 15 ? r->value.len : 15);
		e = (enum err)atoi(text);
	}
	etcdserverpb__put_request__free_unpacked(r, NULL);
	answer(c, e, &reply, NULL);
}

static void answer_range(struct submit_call *c)
{
	Etcdserverpb__RangeRequest *r = etcdserverpb__range_request__unpack(NULL, c->bytes.len, c->bytes.ptr);
	struct buf reply = { .ptr = NULL };
	size_t len = r->limit > 0 ? (size_t)r->limit : 0, mark;
	uint8_t *value = mem_zalloc(len + 1);
	mark = pbw_open(&reply, 2);
	pbw_bytes(&reply, 5, slice_of(value, len));
	pbw_close(&reply, mark);
	free(value);
	etcdserverpb__range_request__free_unpacked(r, NULL);
	answer(c, ERR_OK, &reply, NULL);
}

static void answer_range_part(struct submit_call *c)
{
	Etcdserverpb__RangeRequest *r = etcdserverpb__range_request__unpack(NULL, c->bytes.len, c->bytes.ptr);
	bool after = r->key.len > 1, compacted = r->revision == 9 && after; /* "3", then a zero byte: what follows "3" */
	uint8_t from = (uint8_t)(r->key.data[0] + after);
	int64_t left = '9' + 1 - from, taken = 0;
	struct buf reply = { .ptr = NULL };
	size_t mark = pbw_open(&reply, 1);
	pbw_u64(&reply, 3, 7);
	pbw_close(&reply, mark);
	for (; taken < 3 && taken < left && !(r->limit > 0 && taken == r->limit); taken++) {
		uint8_t key = (uint8_t)(from + taken);
		mark = pbw_open(&reply, 2);
		pbw_bytes(&reply, 1, slice_of(&key, 1));
		pbw_close(&reply, mark);
	}
	pbw_u64(&reply, 3, taken < left);
	if (taken == left || taken == r->limit)
		pbw_i64(&reply, 4, left);
	etcdserverpb__range_request__free_unpacked(r, NULL);
	if (compacted)
		buf_free(&reply);
	answer(c, compacted ? ERR_COMPACTED : ERR_OK, &reply, NULL);
}

static void answer_keep_alive(struct submit_call *c)
{
	Etcdserverpb__LeaseKeepAliveRequest *r = etcdserverpb__lease_keep_alive_request__unpack(NULL, c->bytes.len, c->bytes.ptr);
	struct buf reply = { .ptr = NULL };
	int64_t id = r->id;
	etcdserverpb__lease_keep_alive_request__free_unpacked(r, NULL);
	if (id == 404 || id == 500) {
		fail(c, id == 404 ? ERR_LEASE_NOT_FOUND : ERR_NO_LEADER);
		return;
	}
	pbw_i64(&reply, 2, id);
	pbw_i64(&reply, 3, 7);
	answer(c, ERR_OK, &reply, NULL);
}

static bool is_try(const struct submit_call *c)
{
	bool yes;
	if (c->method == METHOD_LOCK_LOCK) {
		V3lockpb__LockRequest *r = v3lockpb__lock_request__unpack(NULL, c->bytes.len, c->bytes.ptr);
		yes = r->wait_case == V3LOCKPB__LOCK_REQUEST__WAIT_WAIT_MS && r->wait_ms == 0;
		v3lockpb__lock_request__free_unpacked(r, NULL);
	} else {
		V3electionpb__CampaignRequest *r = v3electionpb__campaign_request__unpack(NULL, c->bytes.len, c->bytes.ptr);
		yes = r->wait_case == V3ELECTIONPB__CAMPAIGN_REQUEST__WAIT_WAIT_MS && r->wait_ms == 0;
		v3electionpb__campaign_request__free_unpacked(r, NULL);
	}
	return yes;
}

static void answer_lock(struct node *n, struct submit_call *c)
{
	struct buf none = { .ptr = NULL };
	if (is_try(c))
		answer(c, ERR_LOCK_HELD, &none, "refused");
	else
		map64_put(&n->waiting, c->tag, c);
}

static void take_call(struct node *n, struct submit_call *c)
{
	struct buf none = { .ptr = NULL };
	switch (c->method) {
	case METHOD_KV_PUT:
		answer_put(c);
		break;
	case METHOD_KV_RANGE:
		answer_range(c);
		break;
	case METHOD_KV_RANGE_STREAM:
		answer_range_part(c);
		break;
	case METHOD_LEASE_KEEP_ALIVE:
		answer_keep_alive(c);
		break;
	case METHOD_LOCK_LOCK:
	case METHOD_ELECTION_CAMPAIGN:
		answer_lock(n, c);
		break;
	default:
		answer(c, ERR_OK, &none, NULL);
	}
}

static void take_all_kept(struct node *n, bool reverse)
{
	while (!list_empty(&n->kept)) {
		struct list *it = reverse ? n->kept.prev : n->kept.next;
		list_remove(it);
		take_call(n, CONTAINER_OF(it, struct submit_call, link));
	}
	n->kept_len = 0;
}

static void grant_all(struct node *n, enum err e)
{
	uint64_t tag;
	void *value;
	for (size_t pos = 0; map64_next(&n->waiting, &pos, &tag, &value);) {
		map64_remove(&n->waiting, tag);
		fail(value, e);
	}
}

static void cancel(struct node *n, uint64_t tag)
{
	struct submit_call *c = map64_remove(&n->waiting, tag);
	if (c)
		fail(c, ERR_CANCELED);
	LIST_FOR_EACH_SAFE(it, tmp, &n->kept) {
		c = CONTAINER_OF(it, struct submit_call, link);
		if (c->tag != tag)
			continue;
		list_remove(it);
		n->kept_len--;
		fail(c, ERR_CANCELED);
	}
}

/* ---- streams ---- */

static void append_message(struct buf *out, struct slice m)
{
	uint8_t len[4] = { (uint8_t)m.len, (uint8_t)(m.len >> 8), (uint8_t)(m.len >> 16), (uint8_t)(m.len >> 24) };
	buf_append(out, len, sizeof(len));
	buf_append_slice(out, m);
}

static void output(struct node *n, struct fake_stream *s, struct buf *out, bool finished, enum err e)
{
	pthread_mutex_lock(&n->mu);
	n->figures.outputs++;
	pthread_mutex_unlock(&n->mu);
	s->writable = false;
	s->stream->output(s->stream, out, finished, e);
	buf_free(out);
}

static void finish_stream(struct node *n, uint64_t tag, enum err e)
{
	struct fake_stream *s = map64_remove(&n->streams, tag);
	struct buf none = { .ptr = NULL };
	if (!s)
		return;
	output(n, s, &none, true, e);
	free(s);
}

static void flood(struct node *n, struct fake_stream *s)
{
	struct buf out = { .ptr = NULL };
	static const uint8_t event[1000];
	struct buf m = { .ptr = NULL };
	pbw_i64(&m, 2, 1);
	pbw_bytes(&m, 6, slice_of(event, sizeof(event))); /* a reason as long as that; it only has to be read as a WatchResponse */
	for (int i = 0; i < 10; i++)
		append_message(&out, buf_view(&m));
	buf_free(&m);
	output(n, s, &out, false, ERR_OK);
}

static void watch_message(struct node *n, struct fake_stream *s, struct slice bytes)
{
	Etcdserverpb__WatchRequest *r = etcdserverpb__watch_request__unpack(NULL, bytes.len, bytes.ptr);
	struct buf out = { .ptr = NULL }, m = { .ptr = NULL };
	if (r->request_union_case == ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST) {
		s->flood = r->create_request->key.len == 5 && memcmp(r->create_request->key.data, "flood", 5) == 0;
		pbw_u64(&m, 3, 1);
		append_message(&out, buf_view(&m));
		buf_free(&m);
		output(n, s, &out, false, ERR_OK);
	}
	etcdserverpb__watch_request__free_unpacked(r, NULL);
}

static void open_stream(struct node *n, struct event *ev)
{
	struct fake_stream *s = mem_zalloc(sizeof(*s));
	struct buf out = { .ptr = NULL };
	s->stream = ev->stream;
	s->writable = true;
	map64_put(&n->streams, ev->tag, s);
	if (ev->stream->method != METHOD_ELECTION_OBSERVE)
		return;
	append_message(&out, slice_of(NULL, 0));
	output(n, s, &out, false, ERR_OK);
	if (ev->bytes.len == 5 && memcmp(ev->bytes.ptr + 2, "end", 3) == 0)
		finish_stream(n, ev->tag, ERR_ELECTION_NO_LEADER);
}

static void take_event(struct node *n, struct event *ev)
{
	struct fake_stream *s = map64_get(&n->streams, ev->tag);
	switch (ev->kind) {
	case CANCEL:
		cancel(n, ev->tag);
		break;
	case OPEN:
		open_stream(n, ev);
		break;
	case MESSAGE:
		if (s)
			watch_message(n, s, buf_view(&ev->bytes));
		break;
	case WRITABLE:
		if (s && s->flood)
			flood(n, s);
		break;
	case CLOSE:
		finish_stream(n, ev->tag, ERR_OK);
		break;
	}
	buf_free(&ev->bytes);
	free(ev);
}

/* ---- the thread ---- */

static void stop_all(struct node *n)
{
	uint64_t tag;
	void *value;
	take_all_kept(n, false);
	grant_all(n, ERR_STOPPED);
	for (size_t pos = 0; map64_next(&n->streams, &pos, &tag, &value);)
		finish_stream(n, tag, ERR_STOPPED);
}

static void update_figures_locked(struct node *n)
{
	n->figures.waiting = n->waiting.len + n->kept_len;
	n->figures.streams = n->streams.len;
	if (n->figures.waiting > n->figures.most_held)
		n->figures.most_held = n->figures.waiting;
}

static void move_all(struct list *dst, struct list *src)
{
	struct list *it;
	list_init(dst);
	while ((it = list_pop_front(src)))
		list_push_back(dst, it);
}

static void *node_main(void *arg)
{
	struct node *n = arg;
	struct list calls, events, *it;
	bool stop = false, held, reverse, grant;
	while (!stop) {
		pthread_mutex_lock(&n->mu);
		update_figures_locked(n);
		while (list_empty(&n->calls) && list_empty(&n->events) && !n->stop && !n->grant && (n->held || list_empty(&n->kept)))
			pthread_cond_wait(&n->wake, &n->mu);
		move_all(&calls, &n->calls);
		move_all(&events, &n->events);
		stop = n->stop;
		held = n->held;
		reverse = n->reverse;
		grant = n->grant;
		n->grant = false;
		pthread_mutex_unlock(&n->mu);
		while ((it = list_pop_front(&calls))) {
			list_push_back(&n->kept, it);
			n->kept_len++;
		}
		if (!held)
			take_all_kept(n, reverse);
		while ((it = list_pop_front(&events)))
			take_event(n, CONTAINER_OF(it, struct event, link));
		if (grant)
			grant_all(n, ERR_OK);
	}
	stop_all(n);
	return NULL;
}

struct node *fake_node_new(void)
{
	struct node *n = mem_zalloc(sizeof(*n));
	pthread_mutex_init(&n->mu, NULL);
	pthread_cond_init(&n->wake, NULL);
	list_init(&n->calls);
	list_init(&n->events);
	list_init(&n->kept);
	n->next_tag = 1;
	ASSERT(pthread_create(&n->thread, NULL, node_main, n) == 0);
	return n;
}

void fake_node_free(struct node *n)
{
	pthread_mutex_lock(&n->mu);
	n->stop = true;
	pthread_cond_signal(&n->wake);
	pthread_mutex_unlock(&n->mu);
	pthread_join(n->thread, NULL);
	ASSERT(list_empty(&n->calls));
	map64_deinit(&n->waiting);
	map64_deinit(&n->streams);
	pthread_mutex_destroy(&n->mu);
	pthread_cond_destroy(&n->wake);
	free(n);
}

#define SETTER(name, type, field)                    \
	void name(struct node *n, type value)        \
	{                                            \
		pthread_mutex_lock(&n->mu);          \
		n->field = value;                    \
		pthread_cond_signal(&n->wake);       \
		pthread_mutex_unlock(&n->mu);        \
	}

SETTER(fake_node_hold, bool, held)
SETTER(fake_node_reverse, bool, reverse)
SETTER(fake_node_refuse, enum err, refuse)
SETTER(fake_node_refuse_load, bool, refuse_load)
SETTER(fake_node_set_leaderless, uint64_t, leaderless_ms)

void fake_node_grant(struct node *n)
{
	pthread_mutex_lock(&n->mu);
	n->grant = true;
	pthread_cond_signal(&n->wake);
	pthread_mutex_unlock(&n->mu);
}

struct fake_figures fake_node_figures(struct node *n)
{
	struct fake_figures f;
	pthread_mutex_lock(&n->mu);
	f = n->figures;
	pthread_mutex_unlock(&n->mu);
	return f;
}

/* ---- submit.h ---- */

enum err node_submit(struct node *n, struct submit_call *c)
{
	enum err e;
	pthread_mutex_lock(&n->mu);
	e = n->refuse ? n->refuse : n->stop ? ERR_STOPPED : ERR_OK;
	if (!e) {
		c->tag = n->next_tag++;
		n->figures.calls++;
		snprintf(n->figures.client, sizeof(n->figures.client), "%.*s", (int)c->client.len, (const char *)c->client.ptr);
		n->figures.session = c->session;
		n->figures.request_id = c->request_id;
		n->figures.first_unanswered = c->first_unanswered;
		list_push_back(&n->calls, &c->link);
		pthread_cond_signal(&n->wake);
	}
	pthread_mutex_unlock(&n->mu);
	return e;
}

bool node_refuses(struct node *n, enum method_id method, struct slice request)
{
	bool refuses;
	(void)request;
	pthread_mutex_lock(&n->mu);
	refuses = n->refuse_load && !method_is_reserved(method) && method_by_id(method)->access == METHOD_WRITE;
	pthread_mutex_unlock(&n->mu);
	return refuses;
}

static enum err put_event(struct node *n, struct event ev)
{
	enum err e = ERR_OK;
	struct event *copy;
	pthread_mutex_lock(&n->mu);
	if (n->stop)
		e = ERR_STOPPED;
	else if ((ev.kind == OPEN && n->refuse) || (ev.kind == MESSAGE && n->refuse == ERR_OVERLOADED))
		e = n->refuse;
	n->figures.cancels += ev.kind == CANCEL;
	n->figures.opened += ev.kind == OPEN;
	n->figures.messages += ev.kind == MESSAGE;
	if (!e) {
		copy = mem_alloc(sizeof(*copy));
		*copy = ev;
		list_push_back(&n->events, &copy->link);
		pthread_cond_signal(&n->wake);
	}
	pthread_mutex_unlock(&n->mu);
	if (e)
		buf_free(&ev.bytes);
	return e;
}

void node_cancel(struct node *n, uint64_t tag)
{
	put_event(n, (struct event){ .kind = CANCEL, .tag = tag });
}

enum err node_stream_open(struct node *n, struct submit_stream *s, struct slice bytes)
{
	pthread_mutex_lock(&n->mu);
	s->tag = n->next_tag++;
	pthread_mutex_unlock(&n->mu);
	return put_event(n, (struct event){ .kind = OPEN, .tag = s->tag, .stream = s, .bytes = buf_copy_of(bytes) });
}

enum err node_stream_message(struct node *n, uint64_t tag, struct slice bytes)
{
	return put_event(n, (struct event){ .kind = MESSAGE, .tag = tag, .bytes = buf_copy_of(bytes) });
}

void node_stream_writable(struct node *n, uint64_t tag)
{
	put_event(n, (struct event){ .kind = WRITABLE, .tag = tag });
}

void node_stream_close(struct node *n, uint64_t tag)
{
	put_event(n, (struct event){ .kind = CLOSE, .tag = tag });
}

void node_health(struct node *n, struct node_health *ret)
{
	pthread_mutex_lock(&n->mu);
	*ret = (struct node_health){ .serving = n->leaderless_ms == 0, .leader_id = n->leaderless_ms == 0, .leaderless_ms = n->leaderless_ms };
	pthread_mutex_unlock(&n->mu);
}

const char *node_etcd_version(const struct node *n)
{
	(void)n;
	return "3.5.0";
}
