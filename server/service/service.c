/* service.c: finds the method's handler and keeps what all calls have in common.
 *
 *   (S1) ops->finish is called exactly once for a call that was started, and nothing is sent after it.
 *   (S2) what came from outside is unpacked only after pb_check has found it well-formed and shallow: protobuf-c recurses without a limit.
 *   (S3) requests go to the node as the bytes that arrived; unpacking is for the checks alone, in scratch memory of the thread. */
#include "service/service.h"

#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "checks.h"
#include "internal.h"
#include "metrics.h"

enum {
	REQUEST_DEPTH_MAX = 32,
	SCRATCH_KEPT_MAX = 64 * 1024,
	/* Without a leader for so long, calls that need one are refused. Not at once: a client whose replica died comes here while the next
	 * leader is being elected, and Go's watches take this error for the end. */
	LEADERLESS_REFUSE_MS = 1000,
	LEADERLESS_END_MS = 3000, /* streams that need one are ended: to connect again costs more than to be refused */
};

static const struct handler handlers[METHOD_COUNT] = {
	[METHOD_KV_RANGE] = { &unary_class, check_range },
	[METHOD_KV_RANGE_STREAM] = { &range_stream_class, check_range_stream },
	[METHOD_KV_PUT] = { &unary_class, check_put },
	[METHOD_KV_DELETE_RANGE] = { &unary_class, check_delete_range },
	[METHOD_KV_TXN] = { &unary_class, check_txn },
	[METHOD_KV_COMPACT] = { &unary_class, NULL },

	[METHOD_WATCH_WATCH] = { &watch_class, NULL },

	[METHOD_LEASE_GRANT] = { &unary_class, check_lease_grant },
	[METHOD_LEASE_REVOKE] = { &unary_class, check_lease_revoke },
	[METHOD_LEASE_KEEP_ALIVE] = { &keep_alive_class, NULL },
	[METHOD_LEASE_TIME_TO_LIVE] = { &unary_class, NULL },
	[METHOD_LEASE_LEASES] = { &unary_class, NULL },

	[METHOD_AUTH_ENABLE] = { &unary_class, NULL },
	[METHOD_AUTH_DISABLE] = { &unary_class, NULL },
	[METHOD_AUTH_STATUS] = { &unary_class, NULL },
	[METHOD_AUTH_AUTHENTICATE] = { &auth_class, NULL },
	[METHOD_AUTH_USER_ADD] = { &auth_class, NULL },
	[METHOD_AUTH_USER_GET] = { &unary_class, NULL },
	[METHOD_AUTH_USER_LIST] = { &unary_class, NULL },
	[METHOD_AUTH_USER_DELETE] = { &unary_class, NULL },
	[METHOD_AUTH_USER_CHANGE_PASSWORD] = { &auth_class, NULL },
	[METHOD_AUTH_USER_GRANT_ROLE] = { &unary_class, NULL },
	[METHOD_AUTH_USER_REVOKE_ROLE] = { &unary_class, NULL },
	[METHOD_AUTH_ROLE_ADD] = { &unary_class, NULL },
	[METHOD_AUTH_ROLE_GET] = { &unary_class, NULL },
	[METHOD_AUTH_ROLE_LIST] = { &unary_class, NULL },
	[METHOD_AUTH_ROLE_DELETE] = { &unary_class, NULL },
	[METHOD_AUTH_ROLE_GRANT_PERMISSION] = { &unary_class, NULL },
	[METHOD_AUTH_ROLE_REVOKE_PERMISSION] = { &unary_class, NULL },

	[METHOD_CLUSTER_MEMBER_ADD] = { &unary_class, NULL, note_member_change },
	[METHOD_CLUSTER_MEMBER_REMOVE] = { &unary_class, NULL, note_member_change },
	[METHOD_CLUSTER_MEMBER_UPDATE] = { &unary_class, NULL, note_member_change },
	[METHOD_CLUSTER_MEMBER_LIST] = { &unary_class, NULL },
	[METHOD_CLUSTER_MEMBER_PROMOTE] = { &unary_class, NULL, note_member_change },
	[METHOD_MAINTENANCE_MOVE_LEADER] = { &unary_class, NULL },
	[METHOD_MAINTENANCE_ALARM] = { &unary_class, check_alarm, note_alarm },
	[METHOD_MAINTENANCE_STATUS] = { &unary_class, NULL },
	[METHOD_MAINTENANCE_DEFRAGMENT] = { &unary_class, NULL, note_defragment },
	[METHOD_MAINTENANCE_HASH] = { &unary_class, NULL },
	[METHOD_MAINTENANCE_HASH_KV] = { &unary_class, NULL },
	[METHOD_MAINTENANCE_SNAPSHOT] = { &observe_class, NULL }, /* one request, then what the node has to say */
	[METHOD_MAINTENANCE_DOWNGRADE] = { &unary_class, check_downgrade },

	[METHOD_ELECTION_CAMPAIGN] = { &unary_class, check_campaign },
	[METHOD_ELECTION_PROCLAIM] = { &unary_class, check_proclaim },
	[METHOD_ELECTION_LEADER] = { &unary_class, check_leader },
	[METHOD_ELECTION_OBSERVE] = { &observe_class, check_leader },
	[METHOD_ELECTION_RESIGN] = { &unary_class, check_resign },

	[METHOD_LOCK_LOCK] = { &unary_class, check_lock },
	[METHOD_LOCK_UNLOCK] = { &unary_class, check_unlock },

	[METHOD_HEALTH_CHECK] = { &health_check_class, NULL },
	[METHOD_HEALTH_WATCH] = { &health_watch_class, NULL },
	[METHOD_REFLECTION_V1] = { &reflection_class, NULL },
	[METHOD_REFLECTION_V1ALPHA] = { &reflection_class, NULL },

	[METHOD_LOCKS_LIST] = { &unary_class, check_locks_list },
	[METHOD_LOCKS_VERIFY] = { &unary_class, check_locks_verify },
	[METHOD_LOCKS_BREAK_HOLD] = { &unary_class, check_locks_break, note_locks_break },

	[METHOD_SESSION_CONNECT] = { &session_class, NULL },

	[METHOD_NODES_CREATE] = { &unary_class, check_node_create },
	[METHOD_NODES_GET] = { &unary_class, check_node_get },
	[METHOD_NODES_SET] = { &unary_class, check_node_set },
	[METHOD_NODES_DELETE] = { &unary_class, check_node_delete },
	[METHOD_NODES_LIST] = { &unary_class, check_node_list },
};

struct service *service_new(struct node *n, const struct service_limits *limits)
{
	struct service *s = mem_zalloc(sizeof(*s));
	s->node = n;
	s->limits = *limits;
	pthread_mutex_init(&s->mu, NULL);
	list_init(&s->need_leader);
	budget_init(&s->budget);
	lock_figures_init(&s->lock_figures, limits->lock_prefixes, limits->lock_prefixes_len);
	pthread_mutex_init(&s->health_mu, NULL);
	list_init(&s->health_watchers);
	return s;
}

void service_use(struct service *s, const struct service_parts *parts)
{
	s->parts = *parts;
}

void service_free(struct service *s)
{
	if (!s)
		return;
	ASSERT(list_empty(&s->need_leader));
	budget_deinit(&s->budget);
	lock_figures_deinit(&s->lock_figures);
	ASSERT(list_empty(&s->health_watchers));
	pthread_mutex_destroy(&s->health_mu);
	pthread_mutex_destroy(&s->mu);
	free(s);
}

/* ---- scratch: one arena a thread, so that checking a request allocates nothing ---- */

static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static pthread_key_t scratch_key;

static void scratch_free(void *arena)
{
	arena_deinit(arena);
	free(arena);
}

static void scratch_init(void)
{
	ASSERT(pthread_key_create(&scratch_key, scratch_free) == 0);
}

struct arena *service_scratch(void)
{
	struct arena *a;
	pthread_once(&scratch_once, scratch_init);
	a = pthread_getspecific(scratch_key);
	if (!a) {
		a = mem_alloc(sizeof(*a));
		arena_init(a);
		ASSERT(pthread_setspecific(scratch_key, a) == 0);
	}
	return a;
}

void service_scratch_done(struct arena *a)
{
	if (a->used > SCRATCH_KEPT_MAX)
		arena_deinit(a);
	else
		arena_clear(a);
}

/* ---- checks ---- */

enum err service_check_form(const struct service_call *c, struct slice bytes)
{
	if (bytes.len > c->service->limits.max_request_bytes)
		return ERR_REQUEST_TOO_LARGE;
	switch (pb_check(c->method->request, bytes, REQUEST_DEPTH_MAX)) {
	case PB_CHECK_OK:
		return ERR_OK;
	case PB_CHECK_TOO_DEEP:
		return ERR_TOO_DEEP;
	case PB_CHECK_MALFORMED:
		break;
	}
	return ERR_MALFORMED;
}

enum err service_check(struct service_call *c, struct slice bytes, const char **ret_detail)
{
	enum err e = service_check_form(c, bytes);
	struct arena *a;
	ProtobufCMessage *m;
	if (e || !c->handler->check)
		return e;
	a = service_scratch();
	m = protobuf_c_message_unpack(c->method->request, &a->pb, bytes.len, bytes.ptr);
	e = m ? c->handler->check(c->service, m, ret_detail) : ERR_MALFORMED;
	if (!e && bytes.len > c->service->limits.max_value_bytes)
		e = service_check_values(c, m, ret_detail);
	if (!e)
		c->weight = budget_weight(c, m);
	service_scratch_done(a);
	return e;
}

/* ---- life of a call ---- */

void service_tell(struct service_call *c, struct buf *messages)
{
	uint64_t n = 0;
	for (size_t pos = 0; pos < messages->len; n++) {
		const uint8_t *p = messages->ptr + pos;
		pos += 4 + ((size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24);
	}
	metric_call_sent(c->method->id, n, messages->len);
	c->ops->reply(c, messages);
}

void service_tell_end(struct service_call *c, enum err e, const char *detail, struct slice details)
{
	metric_call_handled(c->method->id, err_status(e));
	if (c->began_us)
		metric_call_took(c->method->id, mono_us() - c->began_us);
	c->ops->finish(c, e, detail, details);
}

void service_finish(struct service_call *c, enum err e, const char *detail)
{
	ASSERT(!c->over);
	c->over = true;
	if (e)
		service_audit(c, e, slice_of(NULL, 0), slice_of(NULL, 0));
	service_tell_end(c, e, detail, slice_of(NULL, 0));
}

void service_reply_one(struct service_call *c, struct buf *reply)
{
	uint32_t len = (uint32_t)reply->len;
	ASSERT(reply->len <= UINT32_MAX);
	buf_reserve(reply, sizeof(len));
	if (len)
		memmove(reply->ptr + sizeof(len), reply->ptr, len);
	for (size_t i = 0; i < sizeof(len); i++)
		reply->ptr[i] = (uint8_t)(len >> (8 * i));
	reply->len += sizeof(len);
	service_tell(c, reply);
}

static uint64_t leaderless_ms(const struct service *s)
{
	struct node_health h;
	node_health(s->node, &h);
	return h.leaderless_ms;
}

/* A request ID belongs to a session, and the other way round; none is above what the core takes. */
static bool is_once_well_formed(const struct service_call *c)
{
	if (c->session == 0)
		return c->request_id == 0 && c->first_unanswered == 0;
	return c->request_id > 0 && c->request_id <= UINT64_MAX / 2 && c->first_unanswered <= c->request_id;
}

/* One connection is one client, most often; it may not take what is for all. */
static bool count_in(struct service_call *c)
{
	struct identity *who = (struct identity *)(uintptr_t)c->identity; /* its counters are for this */
	c->counted = who != NULL;
	if (!who || atomic_fetch_add(&who->calls, 1) < SERVICE_CONNECTION_CALLS_MAX)
		return true;
	metric_add(METRIC_REFUSED_INFLIGHT, 1);
	return false;
}

static void count_out(struct service_call *c)
{
	struct identity *who = (struct identity *)(uintptr_t)c->identity;
	if (c->counted)
		atomic_fetch_sub(&who->calls, 1);
	c->counted = false;
}

void service_start(struct service *s, struct service_call *c)
{
	c->service = s;
	c->handler = &handlers[c->method->id];
	c->over = false;
	c->state = NULL;
	c->weight = 0;
	metric_call_started(c->method->id);
	metric_client_call(c->client_version, c->method->stream != METHOD_UNARY);
	c->began_us = s->limits.time_calls ? mono_us() : 0;
	service_identify(c);
	if (!c->handler->class)
		service_finish(c, ERR_UNIMPLEMENTED, NULL);
	else if (!count_in(c))
		service_finish(c, ERR_TOO_MANY_REQUESTS, NULL);
	else if (!is_once_well_formed(c))
		service_finish(c, ERR_BAD_METADATA, NULL);
	else if (c->need_leader && leaderless_ms(s) >= LEADERLESS_REFUSE_MS)
		service_finish(c, ERR_NO_LEADER, NULL);
	else if (c->handler->class->start)
		c->handler->class->start(c);
}

bool service_message(struct service_call *c, struct slice bytes)
{
	metric_call_received(c->method->id, 1, bytes.len);
	return c->over ? true : c->handler->class->message(c, bytes);
}

void service_half_close(struct service_call *c)
{
	if (!c->over)
		c->handler->class->half_close(c);
}

void service_cancel(struct service_call *c)
{
	if (!c->over)
		c->handler->class->cancel(c);
}

void service_writable(struct service_call *c)
{
	if (!c->over && c->handler->class->writable)
		c->handler->class->writable(c);
}

void service_end(struct service_call *c)
{
	if (c->state)
		c->handler->class->end(c);
	c->state = NULL;
	buf_free(&c->token_user);
	count_out(c);
}

/* ---- streams that need a leader ---- */

void service_leader_watch_add(struct service *s, struct leader_watch *w)
{
	pthread_mutex_lock(&s->mu);
	list_push_back(&s->need_leader, &w->link);
	pthread_mutex_unlock(&s->mu);
}

void service_leader_watch_remove(struct service *s, struct leader_watch *w)
{
	if (!w->lost)
		return;
	pthread_mutex_lock(&s->mu);
	list_remove(&w->link);
	pthread_mutex_unlock(&s->mu);
}

void service_tick(struct service *s, uint64_t now_ms)
{
	struct list *it;
	atomic_store(&s->now_ms, now_ms);
	budget_tick(&s->budget, now_ms);
	service_health_tick(s);
	if (leaderless_ms(s) < LEADERLESS_END_MS)
		return;
	pthread_mutex_lock(&s->mu);
	while ((it = list_pop_front(&s->need_leader))) {
		struct leader_watch *w = CONTAINER_OF(it, struct leader_watch, link);
		w->lost(w);
	}
	pthread_mutex_unlock(&s->mu);
}
