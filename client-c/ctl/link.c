/* link.c: endpoints and waiting; see link.h.
 *
 *   (K1) every tag that was started comes back through the queue before the queue is destroyed, or the queue is left to the end of the process.
 *   (K2) the connection of an endpoint is watched only while it is wanted and not there, so an idle link makes no work. */
#include "internal.h"

#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "signals.h"

enum {
	PASS_MS = 1000,         /* how long an endpoint that failed comes last */
	DIAL_OTHERS_MS = 150,   /* the one at hand has so long until the others are tried beside it */
	WATCH_MS = 1000,
	TICK_MS = 1000,         /* no wait is longer: the queue's clock may stand still while the machine sleeps */
	END_PATIENCE_MS = 200,
	MESSAGE_MAX = 1 << 30,
};

/* ---- being woken ---- */

static void on_wake(struct rpc_tag *tag, bool ok)
{
	struct link *l = CONTAINER_OF(tag, struct link, wake_tag);
	(void)ok;
	atomic_store(&l->wake_posted, false);
}

void link_wake(void *link)
{
	struct link *l = link;
	if (!atomic_exchange(&l->wake_posted, true))
		rpc_start(l->wake_call, NULL, 0, &l->wake_tag);
}

/* ---- connections ---- */

static grpc_arg int_arg(const char *key, int value)
{
	return (grpc_arg){ .type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = value };
}

static grpc_channel *channel_to(const struct link *l, const char *address)
{
	grpc_arg list[] = {
		int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, MESSAGE_MAX),
		int_arg(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100),
		int_arg(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000), /* also the least time for one connection */
		int_arg(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000),
		int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, 10000),
		int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000),
		int_arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
		int_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
		int_arg(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1),
		int_arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
	};
	grpc_channel_args args = { sizeof(list) / sizeof(list[0]), list };
	bool tls = strncmp(address, "https://", 8) == 0;
	return grpc_channel_create(tls ? address + 8 : address, tls ? l->tls : l->plain, &args);
}

static grpc_connectivity_state state_of(const struct endpoint *e)
{
	return grpc_channel_check_connectivity_state(e->channel, 0);
}

static void watch(struct endpoint *e)
{
	if (e->watching || e->last == GRPC_CHANNEL_READY)
		return;
	e->watching = true;
	e->link->live++;
	rpc_give(&e->watch_tag);
	grpc_channel_watch_connectivity_state(e->channel, e->last, rpc_in_ms(WATCH_MS), e->link->cq, &e->watch_tag);
}

static void look(struct endpoint *e)
{
	e->last = state_of(e);
	if (e->last == GRPC_CHANNEL_TRANSIENT_FAILURE)
		e->failed = true;
	else if (e->last == GRPC_CHANNEL_READY)
		e->failed = false;
}

static void dial(struct endpoint *e)
{
	e->wanted = true;
	/* Asks an idle one to connect. */
	grpc_channel_check_connectivity_state(e->channel, 1);
	look(e);
	watch(e);
}

static void on_watch(struct rpc_tag *tag, bool ok)
{
	struct endpoint *e = CONTAINER_OF(tag, struct endpoint, watch_tag);
	(void)ok;
	e->watching = false;
	e->link->live--;
	if (!e->link->ending)
		dial(e);
}

static bool is_ready(struct endpoint *e)
{
	look(e);
	return e->last == GRPC_CHANNEL_READY;
}

void link_log_in(struct link *l, struct login *login)
{
	l->login = login;
}

static struct endpoint *with_token(struct link *l, struct endpoint *e)
{
	return !l->login || login_ready(l->login, l, e) ? e : NULL;
}

struct endpoint *link_pick(struct link *l)
{
	struct endpoint *second = NULL;
	uint64_t now = boot_ms();
	bool all;
	for (int k = 0; k < l->len; k++) {
		struct endpoint *e = &l->endpoints[(l->current + k) % l->len];
		if (!is_ready(e))
			continue;
		if (e->passed_until <= now) {
			l->current = (int)(e - l->endpoints);
			l->dial_since = 0;
			return with_token(l, e);
		}
		if (!second)
			second = e;
	}
	if (!l->dial_since)
		l->dial_since = now;
	all = now - l->dial_since >= DIAL_OTHERS_MS || l->endpoints[l->current].failed || second;
	l->dialled_all = all;
	for (int k = 0; k < (all ? l->len : 1); k++)
		dial(&l->endpoints[(l->current + k) % l->len]);
	/* Rather one that failed a moment ago than none, when the others had their chance. */
	return second && now - l->dial_since >= DIAL_OTHERS_MS ? with_token(l, second) : NULL;
}

struct endpoint *link_pick_only(struct link *l, int i)
{
	struct endpoint *e = &l->endpoints[i];
	if (is_ready(e))
		return with_token(l, e);
	l->dialled_all = true;
	dial(e);
	return NULL;
}

void link_pass(struct link *l, struct endpoint *e)
{
	e->passed_until = boot_ms() + PASS_MS;
	if (&l->endpoints[l->current] == e)
		l->current = (l->current + 1) % l->len;
}

bool link_failed(const struct link *l, int i)
{
	return l->endpoints[i].failed;
}

bool link_all_failed(const struct link *l)
{
	for (int i = 0; i < l->len; i++) {
		if (!link_failed(l, i))
			return false;
	}
	return true;
}

int link_len(const struct link *l)
{
	return l->len;
}

const char *endpoint_name(const struct endpoint *e)
{
	return e->address;
}

const char *link_name(const struct link *l, int i)
{
	return l->endpoints[i].address;
}

/* ---- life ---- */

static void endpoints_init(struct link *l, char *const *endpoints, int len)
{
	memset(l->endpoints, 0, sizeof(l->endpoints));
	l->len = len;
	l->current = 0;
	l->dial_since = 0;
	for (int i = 0; i < len; i++) {
		struct endpoint *e = &l->endpoints[i];
		snprintf(e->address, sizeof(e->address), "%s", endpoints[i]);
		e->link = l;
		e->watch_tag.fn = on_watch;
		e->channel = channel_to(l, e->address);
	}
}

/* K1. False: something does not come back. */
static bool endpoints_end(struct link *l)
{
	uint64_t give_up = boot_ms() + END_PATIENCE_MS;
	l->ending = true;
	for (int i = 0; i < l->len; i++)
		grpc_channel_destroy(l->endpoints[i].channel);
	l->len = 0;
	while (l->live > 0 && boot_ms() < give_up)
		rpc_run(l->cq, rpc_in_ms(20));
	l->ending = false;
	return l->live == 0;
}

struct link *link_new(char *const *endpoints, int len, const struct security *security)
{
	struct link *l = mem_zalloc(sizeof(*l));
	l->wake_tag.fn = on_wake;
	grpc_init();
	l->plain = grpc_insecure_credentials_create();
	l->tls = security_credentials(security);
	if (!l->tls) {
		grpc_channel_credentials_release(l->plain);
		free(l);
		grpc_shutdown_blocking();
		return NULL;
	}
	l->cq = grpc_completion_queue_create_for_next(NULL);
	l->wake_channel = grpc_lame_client_channel_create("wake", GRPC_STATUS_UNAVAILABLE, "never sent");
	l->wake_call = grpc_channel_create_call(l->wake_channel, NULL, GRPC_PROPAGATE_DEFAULTS, l->cq, rpc_slice_static("/wake"), NULL,
						gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
	endpoints_init(l, endpoints, len);
	return l;
}

bool link_renew(struct link *l, char *const *endpoints, int len)
{
	if (!endpoints_end(l))
		return false;
	endpoints_init(l, endpoints, len);
	return true;
}

void link_run(struct link *l, uint64_t until_ms)
{
	uint64_t now = boot_ms(), wait = until_ms > now ? until_ms - now : 0;
	uint64_t most = l->dial_since && !l->dialled_all ? 20 : TICK_MS;
	rpc_run(l->cq, rpc_in_ms(wait < most ? wait : most));
}

void link_free(struct link *l)
{
	if (!l)
		return;
	if (l->login)
		login_drop(l->login);
	grpc_call_unref(l->wake_call);
	grpc_channel_destroy(l->wake_channel);
	if (!endpoints_end(l))
		return;
	grpc_completion_queue_shutdown(l->cq);
	while (rpc_run(l->cq, rpc_in_ms(END_PATIENCE_MS)) == RPC_RAN)
		;
	grpc_completion_queue_destroy(l->cq);
	grpc_channel_credentials_release(l->plain);
	grpc_channel_credentials_release(l->tls);
	free(l);
	grpc_shutdown_blocking();
}

/* ---- why not ---- */

struct why {
	bool over;
	char *ret;
};

static void why_end(void *owner, int code, const char *text, struct slice details)
{
	struct why *w = owner;
	const char *last = text;
	(void)code, (void)details;
	/* The cause comes last, after what tried what. */
	for (const char *p = text; (p = strstr(p, ": ")); p += 2)
		last = p + 2;
	snprintf(w->ret, 200, "%s", *last ? last : "no connection, and no reason was given");
	w->over = true;
}

void link_why(struct link *l, int i, char ret[200])
{
	static const struct call_class class = { .end = why_end };
	struct why w = { .ret = ret };
	uint64_t until = boot_ms() + 300;
	struct call *c;
	const ProtobufCMessageDescriptor *d = method_by_id(METHOD_KV_RANGE)->request;
	ProtobufCMessage *request = message_of(d, slice_of(NULL, 0));
	if (state_of(&l->endpoints[i]) != GRPC_CHANNEL_TRANSIENT_FAILURE) {
		snprintf(ret, 200, "%s", state_of(&l->endpoints[i]) == GRPC_CHANNEL_READY ? "connected, no answer" : "no connection in time");
		protobuf_c_message_free_unpacked(request, NULL);
		return;
	}
	/* A call on a connection that failed ends at once, and says why. */
	c = call_start(l, &l->endpoints[i], METHOD_KV_RANGE, request, until, &class, &w);
	while (!w.over && boot_ms() < until)
		link_run(l, until);
	if (!w.over) {
		call_drop(c);
		snprintf(ret, 200, "no connection in time");
	}
	protobuf_c_message_free_unpacked(request, NULL);
}
