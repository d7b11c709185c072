/* health.c: grpc.health.v1: whether this replica serves, for balancers and probes that ask by gRPC. What is asked of one service holds for all of them.
 *
 *   (H1) a watcher is told the newest status, and the next one only when it has taken that: who does not read costs one message.
 *   (H2) a watcher's fields are guarded by service.health_mu, which is taken with a call's own lock held, and before the front ends' for answers. */
#include "base/mem.h"
#include "base/pbw.h"
#include "core/wire.h"
#include "ext/health.pb-c.h"
#include "internal.h"

#define STATUS(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name

struct watcher {
	struct list link; /* service.health_watchers */
	struct service_call *call;
	bool known;   /* the service that it asked for */
	bool unacked; /* the last message has not been taken */
	int told;     /* -1: nothing */
};

static bool is_known(struct slice name)
{
	if (name.len == 0)
		return true;
	for (int i = 0; i < METHOD_COUNT; i++) {
		if (slice_eq(name, slice_of_str(method_by_id((enum method_id)i)->service)))
			return true;
	}
	return false;
}

static int status_now(struct service *s)
{
	struct node_health h;
	node_health(s->node, &h);
	return h.serving ? STATUS(SERVING) : STATUS(NOT_SERVING);
}

static void tell(struct service_call *c, int status)
{
	struct buf reply = { .ptr = NULL };
	pbw_u64(&reply, 1, (uint64_t)status);
	service_reply_one(c, &reply);
}

/* Both take one request. */
static bool check_message(struct service_call *c, struct slice bytes)
{
	enum err e = service_check_form(c, bytes);
	if (!e && !is_known(wire_find_bytes(bytes, 1)))
		e = ERR_UNKNOWN_SERVICE;
	if (!e)
		tell(c, status_now(c->service));
	service_finish(c, e, NULL);
	return true;
}

static void check_half_close(struct service_call *c)
{
	service_finish(c, ERR_MALFORMED, NULL);
}

static void check_cancel(struct service_call *c)
{
	service_finish(c, ERR_CANCELED, NULL);
}

static void nothing_to_end(struct service_call *c)
{
	(void)c;
}

const struct call_class health_check_class = {
	.message = check_message,
	.half_close = check_half_close,
	.cancel = check_cancel,
	.end = nothing_to_end,
};

/* ---- Watch ---- */

/* With health_mu. */
static void look(struct watcher *w, int status)
{
	if (!w->known)
		status = STATUS(SERVICE_UNKNOWN);
	if (w->unacked || w->told == status)
		return;
	w->told = status;
	w->unacked = true;
	tell(w->call, status);
}

static bool watch_message(struct service_call *c, struct slice bytes)
{
	enum err e = service_check_form(c, bytes);
	struct watcher *w;
	int status;
	if (!e && c->state)
		e = ERR_MALFORMED; /* one request, no more */
	if (e) {
		if (c->state)
			check_cancel(c);
		else
			service_finish(c, e, NULL);
		return true;
	}
	w = mem_zalloc(sizeof(*w));
	w->call = c;
	w->known = is_known(wire_find_bytes(bytes, 1));
	w->told = -1;
	c->state = w;
	status = status_now(c->service);
	pthread_mutex_lock(&c->service->health_mu);
	list_push_back(&c->service->health_watchers, &w->link);
	look(w, status);
	pthread_mutex_unlock(&c->service->health_mu);
	return true;
}

static void watch_half_close(struct service_call *c)
{
	if (!c->state)
		service_finish(c, ERR_MALFORMED, NULL);
}

static void watch_cancel(struct service_call *c)
{
	struct watcher *w = c->state;
	if (w) {
		pthread_mutex_lock(&c->service->health_mu);
		list_remove(&w->link);
		list_init(&w->link);
		pthread_mutex_unlock(&c->service->health_mu);
	}
	service_finish(c, ERR_CANCELED, NULL);
}

static void watch_writable(struct service_call *c)
{
	struct watcher *w = c->state;
	int status = status_now(c->service);
	pthread_mutex_lock(&c->service->health_mu);
	w->unacked = false;
	look(w, status);
	pthread_mutex_unlock(&c->service->health_mu);
}

static void watch_end(struct service_call *c)
{
	struct watcher *w = c->state;
	pthread_mutex_lock(&c->service->health_mu);
	list_remove(&w->link);
	pthread_mutex_unlock(&c->service->health_mu);
	free(w);
}

void service_health_tick(struct service *s)
{
	int status = status_now(s);
	pthread_mutex_lock(&s->health_mu);
	LIST_FOR_EACH(it, &s->health_watchers)
		look(CONTAINER_OF(it, struct watcher, link), status);
	pthread_mutex_unlock(&s->health_mu);
}

const struct call_class health_watch_class = {
	.message = watch_message,
	.half_close = watch_half_close,
	.cancel = watch_cancel,
	.writable = watch_writable,
	.end = watch_end,
};
