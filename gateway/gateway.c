/* gateway.c: the loop's thread, how others reach it, and how it ends.
 *
 * Everything of h2o is made, used and taken apart on this one thread. Others leave work under gateway.mu (adopted connections, what services
 * said, the wish to stop) and wake the loop with one message that h2o delivers among its own callbacks; h2o runs what we then cause at once. */
#include "gateway/gateway.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "internal.h"

struct adopted {
	struct list link;
	int fd;
	struct identity *identity;
	bool pages_only;
};

/* The message goes out behind the lock, or the loop would wake up only to wait for it; `wakers` keeps the loop's queue alive until it is out. */
void gateway_wake_and_unlock(struct gateway *g)
{
	bool wake = !g->awake && !g->ended;
	if (wake) {
		g->awake = true;
		atomic_fetch_add(&g->wakers, 1);
	}
	pthread_mutex_unlock(&g->mu);
	if (!wake)
		return;
	h2o_multithread_send_message(&g->receiver, &g->wake);
	atomic_fetch_sub(&g->wakers, 1);
}

/* ---- on the loop ---- */

static void adopt_all(struct gateway *g, struct list *adopted)
{
	struct list *it;
	while ((it = list_pop_front(adopted))) {
		struct adopted *a = CONTAINER_OF(it, struct adopted, link);
		connection_adopt(g, a->fd, a->identity, a->pages_only);
		free(a);
	}
}

static void move_list(struct list *from, struct list *to)
{
	list_init(to);
	if (list_empty(from))
		return;
	*to = *from;
	to->next->prev = to;
	to->prev->next = to;
	list_init(from);
}

static void begin_stop(struct gateway *g)
{
	g->stopping = true;
	g->stopping_since_ms = mono_ms();
	g->ctx.shutdown_requested = 1;
	connections_shut(g, /*idle_only=*/true);
	json_calls_stop(g, /*streams_only=*/true);
	probes_stop(g);
}

static void on_wake(h2o_multithread_receiver_t *receiver, h2o_linklist_t *messages)
{
	struct gateway *g = CONTAINER_OF(receiver, struct gateway, receiver);
	struct list adopted;
	bool stop;
	while (!h2o_linklist_is_empty(messages))
		h2o_linklist_unlink(messages->next);
	pthread_mutex_lock(&g->mu);
	g->awake = false;
	move_list(&g->adopted, &adopted);
	stop = g->stop;
	pthread_mutex_unlock(&g->mu);
	g->now_ms = mono_ms();
	adopt_all(g, &adopted);
	json_calls_drain(g);
	probes_drain(g);
	if (stop && !g->stopping)
		begin_stop(g);
}

static void stop_tick(struct gateway *g)
{
	if (g->now_ms - g->stopping_since_ms >= GATEWAY_STOP_GRACE_MS)
		json_calls_stop(g, /*streams_only=*/false);
	if (!list_empty(&g->calls))
		return;
	if (!g->drained_since_ms)
		g->drained_since_ms = g->now_ms;
	if (g->now_ms - g->drained_since_ms >= GATEWAY_STOP_FLUSH_MS)
		connections_shut(g, /*idle_only=*/false);
}

static void on_tick(h2o_timeout_entry_t *entry)
{
	struct gateway *g = CONTAINER_OF(entry, struct gateway, tick);
	g->now_ms = mono_ms();
	json_calls_tick(g);
	probes_tick(g);
	connections_tick(g);
	if (g->stopping)
		stop_tick(g);
	h2o_timeout_link(g->loop, &g->ctx.hundred_ms_timeout, &g->tick);
}

/* ---- the thread ---- */

static void loop_init(struct gateway *g)
{
	h2o_hostconf_t *host;
	h2o_handler_t *handler;
	h2o_config_init(&g->globalconf);
	g->globalconf.server_name = h2o_iovec_init("", 0);
	g->globalconf.http1.upgrade_to_http2 = 0;
	/* Between requests; how long a request itself may take to arrive is seen to by connections_tick(). */
	g->globalconf.http1.req_timeout = g->config.idle_timeout_ms;
	g->globalconf.max_request_entity_size = 2 * (size_t)g->config.max_request_bytes + 64 * 1024;
	host = h2o_config_register_host(&g->globalconf, h2o_iovec_init("default", 7), 65535);
	handler = h2o_create_handler(h2o_config_register_path(host, "/", 0), sizeof(*handler));
	handler->on_req = exchange_begin;
	g->loop = h2o_evloop_create();
	h2o_context_init(&g->ctx, g->loop, &g->globalconf);
	g->accept_ctx.ctx = &g->ctx;
	g->accept_ctx.hosts = g->globalconf.hosts;
	h2o_multithread_register_receiver(g->ctx.queue, &g->receiver, on_wake);
	connection_watch_init(g);
	g->tick.cb = on_tick;
	h2o_timeout_link(g->loop, &g->ctx.hundred_ms_timeout, &g->tick);
}

static void loop_deinit(struct gateway *g)
{
	h2o_timeout_unlink(&g->tick);
	connection_watch_deinit(g);
	h2o_multithread_unregister_receiver(g->ctx.queue, &g->receiver);
	h2o_context_dispose(&g->ctx);
	h2o_config_dispose(&g->globalconf);
	h2o_evloop_destroy(g->loop);
	arena_deinit(&g->scratch);
}

static bool is_over(const struct gateway *g)
{
	return g->stopping && list_empty(&g->calls) && list_empty(&g->probes) && list_empty(&g->connections);
}

/* Nobody wakes a loop that has ended; a message already on its way is taken first. */
static bool end_if_quiet(struct gateway *g)
{
	bool quiet;
	pthread_mutex_lock(&g->mu);
	quiet = is_over(g) && !g->awake && atomic_load(&g->wakers) == 0;
	g->ended = g->ended || quiet;
	pthread_mutex_unlock(&g->mu);
	return quiet;
}

struct start {
	struct gateway *gateway;
	pthread_mutex_t mu;
	pthread_cond_t cond;
	bool done;
};

static void *loop_main(void *arg)
{
	struct start *s = arg;
	struct gateway *g = s->gateway;
	pthread_setname_np(pthread_self(), "gateway");
	loop_init(g);
	pthread_mutex_lock(&s->mu);
	s->done = true;
	pthread_cond_signal(&s->cond);
	pthread_mutex_unlock(&s->mu);
	while (!end_if_quiet(g))
		h2o_evloop_run(g->loop, GATEWAY_TICK_MS);
	loop_deinit(g);
	return NULL;
}

#ifdef __SANITIZE_ADDRESS__
/* What h2o 2.2.5 does not free: a queue that is destroyed, and what a thread keeps for reuse when it ends. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_options(void);
__attribute__((weak)) const char *__lsan_default_suppressions(void)
{
	return "leak:h2o_multithread_create_queue\nleak:h2o_mem_alloc_recycle\n";
}
__attribute__((weak)) const char *__lsan_default_options(void)
{
	return "print_suppressions=0";
}
#endif

struct gateway *gateway_new(const struct gateway_config *config)
{
	struct gateway *g = mem_zalloc(sizeof(*g));
	struct start s = { .gateway = g, .mu = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
	g->config = *config;
	g->now_ms = mono_ms();
	pthread_mutex_init(&g->mu, NULL);
	list_init(&g->connections);
	list_init(&g->calls);
	list_init(&g->probes);
	list_init(&g->adopted);
	list_init(&g->posted);
	list_init(&g->probed);
	arena_init(&g->scratch);
	ASSERT(pthread_create(&g->thread, NULL, loop_main, &s) == 0);
	pthread_mutex_lock(&s.mu);
	while (!s.done)
		pthread_cond_wait(&s.cond, &s.mu);
	pthread_mutex_unlock(&s.mu);
	return g;
}

static void adopt(struct gateway *g, int fd, struct identity *who, bool pages_only)
{
	struct adopted *a;
	if (atomic_fetch_add(&g->connections_len, 1) >= g->config.max_connections) {
		atomic_fetch_sub(&g->connections_len, 1);
		atomic_fetch_add(&g->refused_connections, 1);
		connection_refuse(fd, "503 Service Unavailable", "too many connections");
		close(fd);
		identity_unref(who);
		return;
	}
	a = mem_zalloc(sizeof(*a));
	a->fd = fd;
	a->identity = who;
	a->pages_only = pages_only;
	pthread_mutex_lock(&g->mu);
	if (!g->stop) {
		list_push_back(&g->adopted, &a->link);
		gateway_wake_and_unlock(g);
		return;
	}
	pthread_mutex_unlock(&g->mu);
	atomic_fetch_sub(&g->connections_len, 1);
	close(fd);
	identity_unref(who);
	free(a);
}

void gateway_adopt(struct gateway *g, int fd, struct identity *who)
{
	adopt(g, fd, who, false);
}

void gateway_adopt_pages(struct gateway *g, int fd, struct identity *who)
{
	adopt(g, fd, who, true);
}

void gateway_stop(struct gateway *g)
{
	pthread_mutex_lock(&g->mu);
	if (g->stop) {
		pthread_mutex_unlock(&g->mu);
		return;
	}
	g->stop = true;
	gateway_wake_and_unlock(g);
	pthread_join(g->thread, NULL);
}

void gateway_free(struct gateway *g)
{
	if (!g)
		return;
	gateway_stop(g);
	ASSERT(list_empty(&g->adopted));
	ASSERT(list_empty(&g->posted));
	ASSERT(list_empty(&g->probed));
	pthread_mutex_destroy(&g->mu);
	free(g);
}
