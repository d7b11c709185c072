/* peers.c: the set of peers, its clock, and its end.
 *
 * The end: the acceptor first; then, by the wake tag, every dial is cancelled and the server shut down; when the last tag is back and nobody can post the
 * wake tag any more, the clock's thread ends, and the queue may be stopped.
 *
 * gRPC ends no call while it has bytes of it in a write that the socket does not take, as when a peer's process is stopped, and that is for TCP's time-out to
 * find. We do not wait for it: after STOP_PATIENCE_MS the clock ends, and what gRPC still refers to stays where it is until the process ends. */
#include "peers.h"

#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "frame.h"
#include "internal.h"
#include "log/log.h"

#define RESERVE 16 /* descriptors that not even peers get: for files */
#define UNDECIDED_MAX 64
#define STOP_PATIENCE_MS 200

/* What could not be freed, so that it is not lost. */
static pthread_mutex_t left_behind_mu = PTHREAD_MUTEX_INITIALIZER;
static struct peers *left_behind;

/* ---- tags and the clock ---- */

void peers_wake(struct peers *p)
{
	if (!atomic_exchange(&p->wake_posted, true))
		rpc_start(p->wake_call, NULL, 0, &p->wake_tag);
}

static void remove_all_locked(struct peers *p)
{
	struct list *n;
	while ((n = list_pop_front(&p->links)))
		list_push_back(&p->removed, n);
	p->links_len = 0;
}

void peers_enter(struct peers *p)
{
	pthread_mutex_lock(&p->work);
}

void peers_leave(struct peers *p)
{
	if (p->ending || p->next_due_ms < p->clock_at_ms)
		pthread_cond_signal(&p->clock_wake);
	pthread_mutex_unlock(&p->work);
}

static void on_wake(struct rpc_tag *tag, bool ok)
{
	struct peers *p = CONTAINER_OF(tag, struct peers, wake_tag);
	bool stopping;
	(void)ok;
	peers_enter(p);
	/* Before looking: what is put in afterwards posts the tag anew. */
	atomic_store(&p->wake_posted, false);
	pthread_mutex_lock(&p->mu);
	stopping = p->stopping;
	if (stopping)
		remove_all_locked(p);
	pthread_mutex_unlock(&p->mu);
	if (stopping && !p->ending) {
		p->ending = true;
		p->give_up_ms = mono_ms() + STOP_PATIENCE_MS;
		round_trips_cancel(p);
		peers_in_stop(p);
	}
	links_run(p);
	/* Taken for good, so that nobody posts it. When somebody was faster, it comes once more. */
	if (stopping)
		p->wake_closed = !atomic_exchange(&p->wake_posted, true);
	peers_leave(p);
}

/* How long the clock may sleep; 0: not at all. */
static uint64_t next_wait_ms(struct peers *p)
{
	uint64_t now;
	if (!p->ending)
		return links_tick(p);
	now = mono_ms();
	return now < p->give_up_ms ? p->give_up_ms - now : 0;
}

static void sleep_locked(struct peers *p, uint64_t ms)
{
	struct timespec until;
	p->clock_at_ms = ms == UINT64_MAX ? UINT64_MAX : mono_ms() + ms;
	if (ms == UINT64_MAX) {
		pthread_cond_wait(&p->clock_wake, &p->work);
		return;
	}
	until.tv_sec = (time_t)(p->clock_at_ms / 1000);
	until.tv_nsec = (long)(p->clock_at_ms % 1000) * 1000000;
	pthread_cond_timedwait(&p->clock_wake, &p->work, &until);
}

/* Dials what is due; at the end, waits for the last tag. */
static void *run(void *arg)
{
	struct peers *p = arg;
	pthread_mutex_lock(&p->work);
	for (;;) {
		uint64_t wait = next_wait_ms(p);
		if (p->ending && p->wake_closed && p->ops == 0)
			break;
		if (p->ending && wait == 0) {
			p->left_behind = true;
			break;
		}
		sleep_locked(p, wait);
	}
	pthread_mutex_unlock(&p->work);
	return NULL;
}

/* ---- lifecycle ---- */

struct peers *peers_new(member_id self, const struct peers_callbacks *cb, struct rpc_queue *queue)
{
	struct peers *p = mem_zalloc(sizeof(*p));
	pthread_condattr_t attr;
	grpc_init();
	p->self = self;
	snprintf(p->self_text, sizeof(p->self_text), "%" PRIu64, self);
	p->cb = *cb;
	p->next_due_ms = UINT64_MAX;
	pthread_mutex_init(&p->mu, NULL);
	pthread_mutex_init(&p->work, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->clock_wake, &attr);
	pthread_condattr_destroy(&attr);
	list_init(&p->links);
	list_init(&p->removed);
	list_init(&p->dials);
	list_init(&p->round_trips);
	if (!queue)
		p->own_queue = rpc_queue_new(1, "peers", NULL);
	p->cq = rpc_queue_cq(queue ? queue : p->own_queue);
	p->channel_creds = grpc_insecure_credentials_create();
	p->wake_channel = grpc_lame_client_channel_create("wake", GRPC_STATUS_UNAVAILABLE, "never used");
	p->wake_call = grpc_channel_create_call(p->wake_channel, NULL, GRPC_PROPAGATE_DEFAULTS, p->cq, rpc_slice_static("/wake"), NULL,
						gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
	p->wake_tag.fn = on_wake;
	p->clock_at_ms = UINT64_MAX;
	peers_enter(p);
	peers_in_start(p);
	peers_leave(p);
	ASSERT(pthread_create(&p->thread, NULL, run, p) == 0);
	pthread_setname_np(p->thread, "peers-clock");
	p->running = true;
	return p;
}

void peers_use_tls(struct peers *p, struct tls_context *tls)
{
	ASSERT(!p->acceptor && !p->tls);
	p->tls = tls;
	p->dialer = tls_dialer_new(tls, PEERS_CONNECT_MS);
}

enum err peers_listen(struct peers *p, const char *const *urls, size_t len, struct errmsg *em)
{
	struct acceptor_sinks sinks = { .ctx = p, .http2 = peers_in_adopt };
	struct acceptor_limits limits = { .max_undecided = UNDECIDED_MAX, .reserve = RESERVE };
	ASSERT(!p->acceptor);
	p->acceptor = acceptor_new(&sinks, &limits);
	for (size_t i = 0; i < len; i++) {
		enum err e = acceptor_listen_tls(p->acceptor, urls[i], NULL, p->tls, em);
		if (e)
			return e;
	}
	acceptor_start(p->acceptor);
	return ERR_OK;
}

uint16_t peers_port(const struct peers *p, size_t i)
{
	return p->acceptor ? acceptor_port(p->acceptor, i) : 0;
}

void peers_stop(struct peers *p)
{
	if (!p->running)
		return;
	if (p->acceptor)
		acceptor_stop(p->acceptor);
	pthread_mutex_lock(&p->mu);
	p->stopping = true;
	pthread_mutex_unlock(&p->mu);
	peers_wake(p);
	pthread_join(p->thread, NULL);
	p->running = false;
	if (p->own_queue)
		rpc_queue_stop(p->own_queue, p->left_behind);
}

bool peers_left_behind(const struct peers *p)
{
	return p->left_behind;
}

void peers_free(struct peers *p)
{
	if (!p)
		return;
	peers_stop(p);
	acceptor_free(p->acceptor);
	if (p->left_behind) {
		pthread_mutex_lock(&left_behind_mu);
		p->next_left_behind = left_behind;
		left_behind = p;
		pthread_mutex_unlock(&left_behind_mu);
		return;
	}
	tls_dialer_free(p->dialer);
	peers_in_free(p);
	ASSERT(list_empty(&p->links) && list_empty(&p->removed));
	grpc_call_unref(p->wake_call);
	grpc_channel_destroy(p->wake_channel);
	grpc_channel_credentials_release(p->channel_creds);
	buf_free(&p->self_urls);
	buf_free(&p->info);
	rpc_queue_free(p->own_queue);
	pthread_cond_destroy(&p->clock_wake);
	pthread_mutex_destroy(&p->work);
	pthread_mutex_destroy(&p->mu);
	free(p);
	grpc_shutdown_blocking();
}

/* ---- the set ---- */

static struct link *find_locked(struct peers *p, member_id id)
{
	LIST_FOR_EACH(n, &p->links) {
		struct link *l = CONTAINER_OF(n, struct link, node);
		if (l->id == id)
			return l;
	}
	return NULL;
}

static bool listed(const struct peer_address *list, size_t len, member_id id)
{
	for (size_t i = 0; i < len; i++) {
		if (list[i].id == id)
			return true;
	}
	return false;
}

static void remove_locked(struct peers *p, struct link *l)
{
	list_remove(&l->node);
	list_push_back(&p->removed, &l->node);
	l->open = l->ready = false;
	p->links_len--;
}

/* While the peer has its stream open to here, there is somebody to say farewell to. */
static void let_go_locked(struct peers *p, struct link *l)
{
	if (!l->in_open) {
		remove_locked(p, l);
		return;
	}
	l->guest = true;
	l->leave_ms = mono_ms() + PEERS_FAREWELL_MS;
}

/* A peer that moved gets a new link, and what waited for it goes there. */
static void set_one_locked(struct peers *p, const struct peer_address *address)
{
	struct link *old = find_locked(p, address->id), *l;
	if (!old && p->links_len >= PEERS_MAX) {
		log_error("too many peers, one is left out", LOG_ID("member", address->id));
		return;
	}
	l = link_new(p, address);
	if (old && link_same_targets(old, l)) {
		old->guest = false;
		old->leave_ms = 0;
		link_free(l);
		return;
	}
	if (old) {
		l->in_open = old->in_open;
		l->figures = old->figures;
		outbox_move(&l->outbox, &old->outbox);
		remove_locked(p, old);
	}
	list_push_back(&p->links, &l->node);
	p->links_len++;
}

static void set_self_locked(struct peers *p, const struct peer_address *self)
{
	buf_clear(&p->self_urls);
	for (size_t i = 0; i < self->urls_len; i++)
		buf_printf(&p->self_urls, "%s%s", i ? "," : "", self->urls[i]);
}

void peers_set_info(struct peers *p, struct slice info)
{
	pthread_mutex_lock(&p->mu);
	buf_clear(&p->info);
	buf_append_slice(&p->info, info);
	pthread_mutex_unlock(&p->mu);
}

void peers_set(struct peers *p, const struct peer_address *list, size_t len)
{
	bool stopping;
	pthread_mutex_lock(&p->mu);
	stopping = p->stopping;
	if (!stopping) {
		LIST_FOR_EACH_SAFE(n, tmp, &p->links) {
			struct link *l = CONTAINER_OF(n, struct link, node);
			if (!listed(list, len, l->id) && !l->guest)
				let_go_locked(p, l);
		}
		for (size_t i = 0; i < len; i++) {
			if (list[i].id != p->self)
				set_one_locked(p, &list[i]);
			else
				set_self_locked(p, &list[i]);
		}
	}
	pthread_mutex_unlock(&p->mu);
	if (!stopping)
		peers_wake(p);
}

void peers_send(struct peers *p, member_id to, struct buf *bytes, bool bulk)
{
	struct link *l;
	bool wake = false;
	if (bytes->len > FRAME_MESSAGE_MAX) {
		log_error("a message to a peer is too large, dropped it", LOG_ID("member", to), LOG_U64("bytes", bytes->len));
		buf_free(bytes);
		return;
	}
	pthread_mutex_lock(&p->mu);
	l = p->stopping ? NULL : find_locked(p, to);
	if (l) {
		outbox_put_take(&l->outbox, bytes, bulk, l->open ? OUTBOX_OPEN_BYTES : OUTBOX_CLOSED_BYTES);
		wake = l->ready;
		l->ready = false; /* one wake is enough */
	}
	pthread_mutex_unlock(&p->mu);
	if (wake)
		peers_wake(p);
	buf_free(bytes); /* of nobody's, if any is left */
}
