/* front.c: the front end as a whole: server, queue, threads, connections, and the end of it all.
 *
 * A burst of answers from the core costs its thread one post to the queue: calls with something to send stand in the outbox, and the first of a burst
 * wakes a queue thread, which does the sending. An empty batch is the cheapest post there is; it needs a call, so we keep one that leads nowhere.
 * gRPC writes once for each call. Of a burst, several mostly belong to one connection: the socket is corked while they are written, so that the network's
 * part of the work (half of a reply's cost) is done once for all of them.
 *
 * A completion queue looks at the sockets only while it is empty. A burst of watch events is thousands of sends, each of which completes at once into
 * the queue: requests that wait in the sockets would be heard only after all of it. So streams of many messages have a queue and a thread of their own, which look
 * at no sockets at all.
 *
 * Memory that ended calls leave is kept, up to POOL_MAX of them; `open` has those that came in. */
#include "grpc/grpc_front.h"

#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "internal.h"
#include "log/log.h"
#include "metrics.h"
#include "wire/wire.h"

enum {
	ARMED = 64,
	LANE_ARMED = 16, /* of each method with a lane */
	POOL_MAX = 4096,
	FLUSH_MAX = 128, /* calls that one wake sends for before it lets the other thread help */
	TICK_MS = 250,
	LATE_LOOK_MS = 1000, /* between looks at all open calls */
	LATE_MAX = 256,
	GOODBYE_MS = 1000, /* for the statuses of calls cancelled by a stop to reach their clients */
	RECEIVE_EXTRA = 512 * 1024,
};

/* ---- calls ---- */

static struct call *take_free(struct grpc_front *f)
{
	struct call *c = NULL;
	struct list *it;
	pthread_mutex_lock(&f->mu);
	it = list_pop_front(&f->free);
	if (it) {
		c = CONTAINER_OF(it, struct call, link);
		f->free_len--;
	}
	pthread_mutex_unlock(&f->mu);
	return c ? c : front_call_new(f);
}

void front_arm(struct grpc_front *f, const struct front_lane *lane)
{
	struct call *c = take_free(f);
	grpc_call_error e;
	c->lane = lane;
	grpc_call_details_init(&c->request);
	grpc_metadata_array_init(&c->metadata);
	rpc_give(&c->accepted);
	if (lane)
		e = grpc_server_request_registered_call(f->server, lane->registered, &c->rpc, &c->deadline, &c->metadata, NULL,
							rpc_queue_cq(f->streams_queue), f->cq, &c->accepted);
	else
		e = grpc_server_request_call(f->server, &c->rpc, &c->request, &c->metadata, f->cq, f->cq, &c->accepted);
	ASSERT(e == GRPC_CALL_OK);
}

enum err front_open(struct grpc_front *f, struct call *c)
{
	enum err e = ERR_OK;
	pthread_mutex_lock(&f->mu);
	if (atomic_load(&f->ending))
		e = ERR_STOPPED;
	else if (f->open_len >= f->config.max_calls)
		metric_add(METRIC_REFUSED_CALLS, 1), e = ERR_TOO_MANY_REQUESTS;
	list_push_back(&f->open, &c->link);
	f->open_len++;
	pthread_mutex_unlock(&f->mu);
	return e;
}

void front_close(struct grpc_front *f, struct call *c)
{
	bool keep;
	pthread_mutex_lock(&f->mu);
	list_remove(&c->link);
	f->open_len--;
	keep = f->free_len < POOL_MAX;
	if (keep) {
		list_push_front(&f->free, &c->link);
		f->free_len++;
	}
	if (f->open_len == 0)
		pthread_cond_broadcast(&f->quiet);
	pthread_mutex_unlock(&f->mu);
	if (!keep)
		front_call_free(c);
}

/* ---- the outbox ---- */

void front_put_out(struct call *c)
{
	struct outbox *o = &c->front->outbox;
	bool wake;
	if (c->lane) {
		rpc_start(c->rpc, NULL, 0, &c->flush);
		return;
	}
	pthread_mutex_lock(&o->mu);
	list_push_back(&o->calls, &c->out_link);
	wake = !o->waking;
	o->waking = true;
	pthread_mutex_unlock(&o->mu);
	if (wake)
		rpc_start(o->wake_call, NULL, 0, &o->wake_tag);
}

struct corked {
	int fd; /* negative: nothing is */
	struct wire *wire;
};

/* A descriptor that has been closed meanwhile, or is none of TCP's, refuses, and that is all. */
static void set_cork(int fd, int on)
{
	(void)setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
}

static struct corked cork(int fd)
{
	struct wire *w = wire_cork(fd);
	if (!w)
		set_cork(fd, 1);
	return (struct corked){ fd, w };
}

static void uncork(struct corked c)
{
	if (c.wire)
		wire_uncork(c.wire);
	else if (c.fd >= 0)
		set_cork(c.fd, 0);
}

static int by_connection(const void *a, const void *b)
{
	const struct call *const *x = a, *const *y = b;
	return ((*x)->fd > (*y)->fd) - ((*x)->fd < (*y)->fd);
}

static void flush_together(struct call **calls, size_t len)
{
	qsort(calls, len, sizeof(*calls), by_connection);
	for (size_t i = 0, end; i < len; i = end) {
		int fd = calls[i]->fd;
		struct corked corked = { .fd = -1 };
		for (end = i + 1; end < len && calls[end]->fd == fd; end++)
			;
		if (fd >= 0 && end - i > 1)
			corked = cork(fd);
		for (size_t k = i; k < end; k++)
			front_call_flush(calls[k]);
		uncork(corked);
	}
}

static void on_wake(struct rpc_tag *tag, bool ok)
{
	struct outbox *o = CONTAINER_OF(tag, struct outbox, wake_tag);
	struct call *mine[FLUSH_MAX];
	struct list *it;
	size_t len = 0;
	bool more;
	(void)ok;
	pthread_mutex_lock(&o->mu);
	while (len < FLUSH_MAX && (it = list_pop_front(&o->calls)))
		mine[len++] = CONTAINER_OF(it, struct call, out_link);
	more = !list_empty(&o->calls);
	o->waking = more;
	pthread_mutex_unlock(&o->mu);
	if (more)
		rpc_start(o->wake_call, NULL, 0, &o->wake_tag);
	flush_together(mine, len);
}

static void outbox_init(struct outbox *o, grpc_completion_queue *cq)
{
	pthread_mutex_init(&o->mu, NULL);
	list_init(&o->calls);
	o->wake_tag.fn = on_wake;
	o->wake_channel = grpc_lame_client_channel_create("nowhere", GRPC_STATUS_UNAVAILABLE, "leads nowhere");
	o->wake_call = grpc_channel_create_call(o->wake_channel, NULL, GRPC_PROPAGATE_DEFAULTS, cq, grpc_slice_from_static_string("/wake"), NULL,
						gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
}

static void outbox_deinit(struct outbox *o)
{
	grpc_call_unref(o->wake_call);
	grpc_channel_destroy(o->wake_channel);
	pthread_mutex_destroy(&o->mu);
}

/* ---- threads ---- */

static bool take_reference(struct call *c)
{
	unsigned refs = atomic_load(&c->refs);
	while (refs && !atomic_compare_exchange_weak(&c->refs, &refs, refs + 1))
		;
	return refs > 0; /* otherwise it is about to leave the list */
}

/* A few at a time: what is left has its turn at the next tick. */
static void give_up_late(struct grpc_front *f, uint64_t now)
{
	struct call *late[LATE_MAX];
	size_t len = 0;
	pthread_mutex_lock(&f->mu);
	LIST_FOR_EACH(it, &f->open) {
		struct call *c = CONTAINER_OF(it, struct call, link);
		uint64_t since = atomic_load_explicit(&c->awaits_since_ms, memory_order_relaxed);
		if (since && now - since >= f->config.request_timeout_ms && take_reference(c))
			late[len++] = c;
		if (len == LATE_MAX)
			break;
	}
	pthread_mutex_unlock(&f->mu);
	for (size_t i = 0; i < len; i++) {
		front_call_give_up(late[i]);
		front_call_unref(late[i]);
	}
}

static void tick(struct grpc_front *f, uint64_t *looked_ms)
{
	uint64_t now = mono_ms();
	atomic_store_explicit(&f->clock_ms, now, memory_order_relaxed);
	service_tick(f->config.service, now);
	if (f->config.request_timeout_ms && now - *looked_ms >= LATE_LOOK_MS) {
		*looked_ms = now;
		give_up_late(f, now);
	}
}

/* The service's clock. */
static void *tick_main(void *arg)
{
	struct grpc_front *f = arg;
	struct timespec until;
	uint64_t looked_ms = 0;
	pthread_mutex_lock(&f->mu);
	while (!f->tick_stop) {
		until = mono_in_us(TICK_MS * 1000);
		pthread_cond_timedwait(&f->ticks, &f->mu, &until);
		if (f->tick_stop)
			break;
		pthread_mutex_unlock(&f->mu);
		tick(f, &looked_ms);
		pthread_mutex_lock(&f->mu);
	}
	pthread_mutex_unlock(&f->mu);
	return NULL;
}

/* ---- start ---- */

static void on_down(struct rpc_tag *tag, bool ok)
{
	struct grpc_front *f = CONTAINER_OF(tag, struct grpc_front, down_tag);
	(void)ok;
	pthread_mutex_lock(&f->mu);
	f->down = true;
	pthread_cond_broadcast(&f->quiet);
	pthread_mutex_unlock(&f->mu);
}

/* The library writes a line to stderr whenever a client says something odd: anybody could fill a disk by that. */
static void library_says(gpr_log_func_args *args)
{
	log_debug("the grpc library says", LOG_STR("text", args->message), LOG_STR("file", args->file), LOG_U64("line", (uint64_t)args->line));
}

static grpc_arg arg_of(const char *key, uint64_t value)
{
	grpc_arg a = { .type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key };
	a.value.integer = value > INT_MAX ? INT_MAX : (int)value;
	return a;
}

static void make_lanes(struct grpc_front *f)
{
	for (enum method_id id = 0; id < METHOD_COUNT; id++) {
		const struct method *m = method_by_id(id);
		if (m->stream == METHOD_UNARY || id == METHOD_LEASE_KEEP_ALIVE)
			continue;
		ASSERT(f->lanes_len < LANES_MAX);
		f->lanes[f->lanes_len++] =
			(struct front_lane){ m, grpc_server_register_method(f->server, m->path, NULL, GRPC_SRM_PAYLOAD_NONE, 0) };
	}
}

static void arm_all(struct grpc_front *f)
{
	for (int i = 0; i < ARMED; i++)
		front_arm(f, NULL);
	for (size_t l = 0; l < f->lanes_len; l++) {
		for (int i = 0; i < LANE_ARMED; i++)
			front_arm(f, &f->lanes[l]);
	}
}

/* "Minimal stack" stays off: it would turn the clients' deadlines off. */
static grpc_server *make_server(const struct grpc_front_config *c)
{
	grpc_arg args[] = {
		arg_of(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (uint64_t)c->max_request_bytes + RECEIVE_EXTRA),
		arg_of(GRPC_ARG_MAX_CONCURRENT_STREAMS, c->max_concurrent_streams),
		/* Without it Go clients that watch and hear nothing are dropped for pinging. */
		arg_of(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, c->keepalive_min_time_ms),
		arg_of(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
		arg_of(GRPC_ARG_KEEPALIVE_TIME_MS, c->keepalive_interval_ms),
		arg_of(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, c->keepalive_timeout_ms),
		arg_of(GRPC_ARG_MAX_CONNECTION_IDLE_MS, c->idle_timeout_ms ? c->idle_timeout_ms : INT_MAX),
		/* What costs each call something and serves nobody here. */
		arg_of(GRPC_ARG_ENABLE_CHANNELZ, 0),
		arg_of(GRPC_ARG_MAX_CHANNEL_TRACE_EVENT_MEMORY_PER_NODE, 0),
		arg_of(GRPC_ARG_HTTP2_BDP_PROBE, 0),
		arg_of(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0),
	};
	grpc_channel_args list = { .num_args = sizeof(args) / sizeof(args[0]), .args = args };
	return grpc_server_create(&list, NULL);
}

struct grpc_front *grpc_front_new(const struct grpc_front_config *config)
{
	struct grpc_front *f = mem_zalloc(sizeof(*f));
	pthread_condattr_t attr;
	gpr_set_log_function(library_says);
	grpc_init();
	f->config = *config;
	atomic_init(&f->clock_ms, mono_ms());
	list_init(&f->open);
	list_init(&f->free);
	pthread_mutex_init(&f->mu, NULL);
	pthread_mutex_init(&f->adopt_mu, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&f->quiet, &attr);
	pthread_cond_init(&f->ticks, &attr);
	pthread_condattr_destroy(&attr);
	addresses_init(&f->addresses);
	f->down_tag.fn = on_down;
	if (!config->queue)
		f->own_queue = rpc_queue_new(FRONT_THREADS, "grpc", NULL);
	f->cq = rpc_queue_cq(config->queue ? config->queue : f->own_queue);
	f->creds = grpc_insecure_server_credentials_create();
	f->server = make_server(config);
	f->streams_queue = rpc_queue_new_blind(1, "grpc-streams");
	make_lanes(f);
	grpc_server_register_completion_queue(f->server, f->cq, NULL);
	grpc_server_start(f->server);
	outbox_init(&f->outbox, f->cq);
	arm_all(f);
	ASSERT(pthread_create(&f->tick_thread, NULL, tick_main, f) == 0);
	return f;
}

void grpc_front_adopt(struct grpc_front *f, int fd, struct identity *who)
{
	pthread_mutex_lock(&f->adopt_mu);
	if (f->closed) {
		close(fd);
		identity_unref(who);
	} else {
		grpc_server_add_channel_from_fd(f->server, addresses_add(&f->addresses, fd, who), f->creds);
	}
	pthread_mutex_unlock(&f->adopt_mu);
}

/* ---- stop ---- */

/* Until nothing is open, or ms have passed (UINT64_MAX: for as long as it takes). */
static bool wait_quiet(struct grpc_front *f, uint64_t ms)
{
	struct timespec until;
	bool quiet;
	until = mono_in_us(ms == UINT64_MAX ? 0 : ms * 1000);
	pthread_mutex_lock(&f->mu);
	while (!(quiet = f->down && f->open_len == 0)) {
		if (ms == UINT64_MAX)
			pthread_cond_wait(&f->quiet, &f->mu);
		else if (pthread_cond_timedwait(&f->quiet, &f->mu, &until) != 0)
			break;
	}
	pthread_mutex_unlock(&f->mu);
	return quiet;
}

/* References to all open calls are taken first: calling in must not happen with f->mu held. */
static void cancel_all(struct grpc_front *f)
{
	struct call **all;
	size_t len = 0;
	pthread_mutex_lock(&f->mu);
	atomic_store(&f->ending, true);
	all = mem_alloc((f->open_len + 1) * sizeof(*all));
	LIST_FOR_EACH(it, &f->open) {
		struct call *c = CONTAINER_OF(it, struct call, link);
		if (take_reference(c))
			all[len++] = c;
	}
	pthread_mutex_unlock(&f->mu);
	for (size_t i = 0; i < len; i++) {
		front_call_cancel(all[i]);
		front_call_unref(all[i]);
	}
	free(all);
}

static void end_calls(struct grpc_front *f, uint64_t grace_ms)
{
	if (wait_quiet(f, grace_ms))
		return;
	cancel_all(f);
	if (wait_quiet(f, GOODBYE_MS))
		return;
	grpc_server_cancel_all_calls(f->server);
	wait_quiet(f, UINT64_MAX);
}

void grpc_front_stop(struct grpc_front *f, uint64_t grace_ms)
{
	pthread_mutex_lock(&f->adopt_mu);
	f->closed = true;
	pthread_mutex_unlock(&f->adopt_mu);
	rpc_give(&f->down_tag);
	grpc_server_shutdown_and_notify(f->server, f->cq, &f->down_tag);
	end_calls(f, grace_ms);
	pthread_mutex_lock(&f->mu);
	f->tick_stop = true;
	pthread_cond_signal(&f->ticks);
	pthread_mutex_unlock(&f->mu);
	pthread_join(f->tick_thread, NULL);
}

void grpc_front_free(struct grpc_front *f)
{
	struct list *it;
	if (!f)
		return;
	ASSERT(f->down);
	grpc_server_destroy(f->server);
	grpc_server_credentials_release(f->creds);
	outbox_deinit(&f->outbox);
	rpc_queue_stop(f->streams_queue, false);
	rpc_queue_free(f->streams_queue);
	if (f->own_queue)
		rpc_queue_stop(f->own_queue, false);
	rpc_queue_free(f->own_queue);
	while ((it = list_pop_front(&f->free)))
		front_call_free(CONTAINER_OF(it, struct call, link));
	addresses_deinit(&f->addresses);
	pthread_cond_destroy(&f->quiet);
	pthread_cond_destroy(&f->ticks);
	pthread_mutex_destroy(&f->mu);
	pthread_mutex_destroy(&f->adopt_mu);
	grpc_shutdown();
	free(f);
}
