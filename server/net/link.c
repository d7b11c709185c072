/* link.c: the stream to one peer: dialled, fed from its outbox, dialled again.
 *
 *       ┌────────────── due ──────────────┐   a round: each target once
 *       ▼                                 │
 *    DIALLING ──all targets failed──► WAITING          (dial != NULL and not open; dial == NULL)
 *       │ ▲
 *       │ └─────broke (a new round, at once)──┐
 *       └──────────the peer answered───────► OPEN      (dial->open)
 *
 *   (K1) each attempt has a channel of its own, so gRPC's back-off and its choice of connection never stand between us and the peer: the schedule
 *        is ours. What gRPC is left to decide is one thing, how long one connect may take; under TLS,
 *        where we connect ourselves and hand it a plain socket, not even that.
 *   (K2) a stream is open when the peer's initial metadata is here and names a member: not a socket, a replica has answered.
 *   (K3) one SEND_MESSAGE is under way at most; its completion says that the stream takes more. What waits meanwhile goes in the next, together.
 *   (K4) lost is told when a stream broke and a round failed with somebody saying no. A process that dies has its sockets closed by the kernel and its port
 *        refuses, all within milliseconds; a peer that is slow or cut off refuses nothing, and is the business of Raft's timers. */
#include <arpa/inet.h>
#include <grpc/grpc_posix.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "frame.h"
#include "internal.h"
#include "log/log.h"
#include "url.h"

#define REFUSED_WITHIN_MS 900 /* a connect that failed sooner did not run into PEERS_CONNECT_MS: it was refused */
#define STEADY_MS 100         /* a stream that broke sooner is not dialled again at once, or two that disagree would spin */
#define RETRY_MS 100
#define RETRY_LATER_MS 300    /* after RETRIES_SOON rounds */
#define RETRIES_SOON 10

struct dial {
	struct list node; /* peers->dials */
	struct peers *peers;
	struct link *link; /* NULL: given up, only awaits its tags */
	grpc_channel *channel;
	grpc_call *call;
	size_t pending; /* tags */
	uint64_t started_ms, opened_ms;
	bool open, sending;
	struct rpc_tag answered, sent, closed;
	grpc_byte_buffer *frame; /* while sending */
	grpc_slice urls;         /* ours, told to the peer */
	char meant_for[24];      /* decimal, for metadata */
	grpc_metadata_array initial, trailing;
	grpc_status_code status;
	grpc_slice details;
};

static void dial_start(struct link *l, uint64_t now);

/* ---- links ---- */

static char *copy(const char *s)
{
	return strcpy(mem_alloc(strlen(s) + 1), s);
}

static void add_target(struct link *l, const char *format, const char *host, const char *port)
{
	char text[320];
	snprintf(text, sizeof(text), format, host, port);
	l->targets[l->targets_len++] = (struct target){ .text = copy(text) };
}

static void add_tls_path(struct link *l, const struct url *u)
{
	char text[300];
	snprintf(text, sizeof(text), "unixs://%s", u->path);
	l->targets[l->targets_len++] = (struct target){ copy(text), copy(u->path), copy(""), copy("localhost") };
}

/* The resolver of the system knows all addresses of a name; a scope is of the address, not of who is there. */
static void add_tls_target(struct link *l, const struct url *u)
{
	struct target *t = &l->targets[l->targets_len++];
	char text[300];
	snprintf(text, sizeof(text), strchr(u->host, ':') ? "https://[%s]:%s" : "https://%s:%s", u->host, u->port);
	*t = (struct target){ copy(text), copy(u->host), copy(u->port), copy(u->host) };
	t->name[strcspn(t->name, "%")] = '\0';
}

/* An IPv6 address without its scope. */
static bool is_ipv6(const char *host)
{
	struct in6_addr probe;
	char bare[INET6_ADDRSTRLEN];
	size_t len = strcspn(host, "%");
	if (len >= sizeof(bare))
		return false;
	memcpy(bare, host, len);
	bare[len] = '\0';
	return inet_pton(AF_INET6, bare, &probe) == 1;
}

static void add_ipv6(struct link *l, const char *host, const char *port)
{
	const char *scope = strchr(host, '%');
	char text[300];
	snprintf(text, sizeof(text), "%.*s%s%s", (int)strcspn(host, "%"), host, scope ? "%25" : "", scope ? scope + 1 : "");
	add_target(l, "ipv6:%%5B%s%%5D:%s", text, port);
}

/* In gRPC's words. Addresses bypass its resolver, and so does "localhost", which c-ares 1.18 leaks. Any other name is looked up anew for each attempt,
 * since each has a channel of its own (K1): a name that is gone is one that cannot be reached, until it is back. False: not a URL we know. */
static bool add_targets(struct link *l, const char *text)
{
	struct url u;
	struct in_addr probe;
	if (!url_parse(text, &u) || !url_is_dialable(&u))
		return false;
	if (url_is_tls(&u)) {
		if (!l->peers->tls)
			return false;
		if (url_is_unix(&u))
			add_tls_path(l, &u);
		else
			add_tls_target(l, &u);
	} else if (url_is_unix(&u)) {
		add_target(l, "unix:%s%s", u.path, "");
	} else if (strcmp(u.host, "localhost") == 0) {
		add_target(l, "ipv4:%s:%s", "127.0.0.1", u.port);
		add_target(l, "ipv6:%%5B%s%%5D:%s", "::1", u.port);
	} else if (is_ipv6(u.host)) {
		add_ipv6(l, u.host, u.port);
	} else {
		add_target(l, inet_pton(AF_INET, u.host, &probe) == 1 ? "ipv4:%s:%s" : "dns:///%s:%s", u.host, u.port);
	}
	return true;
}

struct link *link_new(struct peers *p, const struct peer_address *address)
{
	struct link *l = mem_zalloc(sizeof(*l));
	l->peers = p;
	l->id = address->id;
	l->targets = mem_alloc((2 * address->urls_len + 1) * sizeof(*l->targets));
	list_init(&l->node);
	outbox_init(&l->outbox);
	for (size_t i = 0; i < address->urls_len; i++) {
		if (!add_targets(l, address->urls[i]))
			log_warn("cannot use a peer's address", LOG_ID("member", l->id), LOG_STR("address", address->urls[i]));
	}
	return l;
}

bool link_same_targets(const struct link *a, const struct link *b)
{
	bool same = a->targets_len == b->targets_len;
	for (size_t i = 0; same && i < a->targets_len; i++)
		same = strcmp(a->targets[i].text, b->targets[i].text) == 0;
	return same;
}

void link_free(struct link *l)
{
	ASSERT(!l->dial);
	outbox_deinit(&l->outbox);
	while (l->targets_len) {
		struct target *t = &l->targets[--l->targets_len];
		free(t->text);
		free(t->host);
		free(t->port);
		free(t->name);
	}
	free(l->targets);
	free(l);
}

static void link_wait(struct link *l, uint64_t now, uint64_t ms)
{
	l->due_ms = now + ms;
	if (l->due_ms < l->peers->next_due_ms)
		l->peers->next_due_ms = l->due_ms;
}

static void tell_lost(struct link *l)
{
	struct peers *p = l->peers;
	l->had_out = l->had_in = false;
	log_warn("lost a peer, trying to reach it", LOG_ID("member", l->id), LOG_STR("address", l->targets[l->target].text));
	if (!p->ending)
		p->cb.lost(p->cb.ctx, l->id);
}

/* All targets have been tried in vain. */
static void round_failed(struct link *l, uint64_t now)
{
	if (l->failed++ == RETRIES_SOON)
		log_warn("cannot reach a peer, still trying", LOG_ID("member", l->id), LOG_STR("address", l->targets[l->target].text),
			 LOG_STR("cause", l->refused ? "refused" : "no answer"));
	if (l->refused && (l->had_out || (l->had_in && !peers_in_has(l->peers, l->id))))
		tell_lost(l);
	l->left = l->targets_len;
	link_wait(l, now, l->failed > RETRIES_SOON ? RETRY_LATER_MS : RETRY_MS);
}

/* The stream ended, or never began. */
static void link_down(struct link *l, const struct dial *d, uint64_t now)
{
	bool steady = d->open && now - d->opened_ms >= STEADY_MS;
	pthread_mutex_lock(&l->peers->mu);
	l->open = l->ready = false;
	l->figures.broke += d->open;
	outbox_trim(&l->outbox, OUTBOX_CLOSED_BYTES);
	pthread_mutex_unlock(&l->peers->mu);
	l->dial = NULL;
	if (d->open) {
		l->left = l->targets_len;
		l->refused = !steady;
		l->failed = 0;
	} else {
		l->left--;
		l->refused = l->refused || now - d->started_ms < REFUSED_WITHIN_MS;
	}
	if (steady) {
		dial_start(l, now);
	} else if (d->open) {
		round_failed(l, now);
	} else if (l->left) {
		l->target = (l->target + 1) % l->targets_len;
		dial_start(l, now);
	} else {
		l->target = (l->target + 1) % l->targets_len;
		round_failed(l, now);
	}
}

static void probe_at(struct link *l, uint64_t at_ms)
{
	l->probe_ms = at_ms;
	if (at_ms < l->peers->next_due_ms)
		l->peers->next_due_ms = at_ms;
}

static void probe_if_due(struct link *l, uint64_t now)
{
	if (!l->dial || !l->dial->open || l->peers->ending)
		return;
	if (l->probe_ms <= now) {
		round_trip_begin(l->peers, l->id, l->dial->channel);
		l->probe_ms = now + PEERS_PROBE_MS;
	}
	probe_at(l, l->probe_ms);
}

static void link_up(struct link *l, uint64_t now)
{
	l->dial->open = true;
	l->dial->opened_ms = now;
	l->had_out = true;
	l->failed = 0;
	probe_at(l, now);
	log_info("connected to a peer", LOG_ID("member", l->id), LOG_STR("address", l->targets[l->target].text));
	pthread_mutex_lock(&l->peers->mu);
	l->open = true;
	pthread_mutex_unlock(&l->peers->mu);
}

/* ---- the stream ---- */

static void dial_op(struct dial *d, const grpc_op *ops, size_t len, struct rpc_tag *tag)
{
	d->pending++;
	d->peers->ops++;
	rpc_start(d->call, ops, len, tag);
}

static void dial_tag_back(struct dial *d)
{
	d->peers->ops--;
	if (--d->pending)
		return;
	ASSERT(!d->link && !d->frame);
	list_remove(&d->node);
	grpc_call_unref(d->call);
	grpc_channel_destroy(d->channel);
	grpc_metadata_array_destroy(&d->initial);
	grpc_metadata_array_destroy(&d->trailing);
	grpc_slice_unref(d->details);
	grpc_slice_unref(d->urls);
	free(d);
}

/* Sends what waits, as much as fits into one frame. */
static void pump(struct link *l)
{
	struct dial *d = l->dial;
	struct list items;
	grpc_op op = { .op = GRPC_OP_SEND_MESSAGE };
	if (!d || !d->open || d->sending)
		return;
	list_init(&items);
	pthread_mutex_lock(&l->peers->mu);
	outbox_take(&l->outbox, &items, FRAME_BYTES);
	l->ready = list_empty(&items);
	pthread_mutex_unlock(&l->peers->mu);
	if (list_empty(&items))
		return;
	d->frame = frame_pack_take(&items);
	d->sending = true;
	pthread_mutex_lock(&l->peers->mu);
	l->figures.sent_bytes += grpc_byte_buffer_length(d->frame);
	pthread_mutex_unlock(&l->peers->mu);
	op.data.send_message.send_message = d->frame;
	dial_op(d, &op, 1, &d->sent);
}

static void on_sent(struct rpc_tag *tag, bool ok)
{
	struct dial *d = CONTAINER_OF(tag, struct dial, sent);
	struct peers *p = d->peers;
	peers_enter(p);
	grpc_byte_buffer_destroy(d->frame);
	d->frame = NULL;
	d->sending = false;
	if (ok && d->link)
		pump(d->link);
	dial_tag_back(d); /* when it failed, closed comes too */
	peers_leave(p);
}

static void on_answered(struct rpc_tag *tag, bool ok)
{
	struct dial *d = CONTAINER_OF(tag, struct dial, answered);
	struct peers *p = d->peers;
	struct slice member;
	peers_enter(p);
	if (ok && d->link && rpc_metadata_find(&d->initial, PEERS_MEMBER_KEY, &member)) {
		link_up(d->link, mono_ms());
		pump(d->link);
	}
	dial_tag_back(d);
	peers_leave(p);
}

static void on_closed(struct rpc_tag *tag, bool ok)
{
	struct dial *d = CONTAINER_OF(tag, struct dial, closed);
	struct peers *p = d->peers;
	struct link *l;
	(void)ok; /* always */
	peers_enter(p);
	l = d->link;
	if (l) {
		d->link = NULL;
		log_debug("a stream to a peer ended", LOG_ID("member", l->id), LOG_U64("status", (uint64_t)d->status), LOG_SLICE("details", rpc_view(&d->details)));
		link_down(l, d, mono_ms());
	}
	dial_tag_back(d);
	peers_leave(p);
}

static void dial_cancel(struct link *l)
{
	struct dial *d = l->dial;
	if (!d)
		return;
	l->dial = NULL;
	d->link = NULL;
	grpc_call_cancel(d->call, NULL);
}

static grpc_arg arg(char *key, int value)
{
	return (grpc_arg){ .type = GRPC_ARG_INTEGER, .key = key, .value.integer = value };
}

/* Proxies, service configurations from the DNS and retries are for other worlds; each would cost time or buffer what we send. */
grpc_channel *link_channel(const struct peers *p, const struct target *t)
{
	grpc_arg args[] = {
		arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
		arg(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100),
		arg(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, PEERS_CONNECT_MS), /* in truth the connect's time-out */
		arg(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 300),
		arg(GRPC_ARG_KEEPALIVE_TIME_MS, PEERS_KEEPALIVE_MS),
		arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, PEERS_KEEPALIVE_TIMEOUT_MS),
		arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
		arg(GRPC_ARG_ENABLE_RETRIES, 0),
		arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
		arg(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1),
		arg(GRPC_ARG_ENABLE_CHANNELZ, 0),
		arg(GRPC_ARG_MAX_CHANNEL_TRACE_EVENT_MEMORY_PER_NODE, 0),
	};
	grpc_channel_args all = { .num_args = sizeof(args) / sizeof(args[0]), .args = args };
	int fd;
	if (!t->host)
		return grpc_channel_create(t->text, p->channel_creds, &all);
	fd = tls_dialer_dial(p->dialer, t->host, t->port, t->name);
	if (fd < 0)
		return grpc_lame_client_channel_create(t->text, GRPC_STATUS_UNAVAILABLE, "no descriptors");
	return grpc_channel_create_from_fd(t->text, fd, p->channel_creds, &all);
}

static void dial_start(struct link *l, uint64_t now)
{
	struct peers *p = l->peers;
	struct dial *d = mem_zalloc(sizeof(*d));
	grpc_metadata self[3] = { { .key = rpc_slice_static(PEERS_MEMBER_KEY), .value = rpc_slice_static(p->self_text) },
				  { .key = rpc_slice_static(PEERS_URLS_KEY) }, { .key = rpc_slice_static(PEERS_MEANT_KEY) } };
	grpc_op begin[2] = { { .op = GRPC_OP_SEND_INITIAL_METADATA }, { .op = GRPC_OP_RECV_INITIAL_METADATA } };
	grpc_op end = { .op = GRPC_OP_RECV_STATUS_ON_CLIENT };
	l->dial = d;
	l->due_ms = UINT64_MAX;
	list_push_back(&p->dials, &d->node);
	d->peers = p;
	d->link = l;
	d->started_ms = now;
	d->answered.fn = on_answered;
	d->sent.fn = on_sent;
	d->closed.fn = on_closed;
	d->details = grpc_empty_slice();
	pthread_mutex_lock(&p->mu);
	d->urls = rpc_slice_copy(buf_view(&p->self_urls));
	pthread_mutex_unlock(&p->mu);
	self[1].value = d->urls;
	snprintf(d->meant_for, sizeof(d->meant_for), "%llu", (unsigned long long)l->id);
	self[2].value = rpc_slice_static(d->meant_for);
	grpc_metadata_array_init(&d->initial);
	grpc_metadata_array_init(&d->trailing);
	d->channel = link_channel(p, &l->targets[l->target]);
	d->call = grpc_channel_create_call(d->channel, NULL, GRPC_PROPAGATE_DEFAULTS, p->cq, rpc_slice_static(PEERS_METHOD), NULL,
					   gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
	ASSERT(d->call);
	begin[0].data.send_initial_metadata.count = 3;
	begin[0].data.send_initial_metadata.metadata = self;
	begin[1].data.recv_initial_metadata.recv_initial_metadata = &d->initial;
	end.data.recv_status_on_client.trailing_metadata = &d->trailing;
	end.data.recv_status_on_client.status = &d->status;
	end.data.recv_status_on_client.status_details = &d->details;
	dial_op(d, begin, 2, &d->answered);
	dial_op(d, &end, 1, &d->closed);
}

/* ---- all links ---- */

static void remove_guest_locked(struct link *l)
{
	list_remove(&l->node);
	list_push_back(&l->peers->removed, &l->node);
	l->open = l->ready = false;
	l->peers->links_len--;
}

/* Guests whose time is over; of the others the first is noted. */
static void see_guests_off(struct peers *p, uint64_t now)
{
	bool wake = false;
	pthread_mutex_lock(&p->mu);
	LIST_FOR_EACH_SAFE(n, tmp, &p->links) {
		struct link *l = CONTAINER_OF(n, struct link, node);
		if (!l->leave_ms)
			continue;
		if (l->leave_ms <= now) {
			remove_guest_locked(l);
			wake = true;
		} else if (l->leave_ms < p->next_due_ms) {
			p->next_due_ms = l->leave_ms;
		}
	}
	pthread_mutex_unlock(&p->mu);
	if (wake)
		peers_wake(p);
}

/* Who waits since its round failed dials again; who is new dials for the first time. */
static void dial_if_due(struct link *l, uint64_t now)
{
	if (l->dial || !l->targets_len)
		return;
	if (l->due_ms > now) {
		if (l->due_ms < l->peers->next_due_ms)
			l->peers->next_due_ms = l->due_ms;
		return;
	}
	l->left = l->targets_len;
	l->refused = false;
	dial_start(l, now);
}

static size_t copy_links(struct peers *p, struct link *ret[PEERS_MAX])
{
	size_t len = 0;
	pthread_mutex_lock(&p->mu);
	LIST_FOR_EACH(n, &p->links)
		ret[len++] = CONTAINER_OF(n, struct link, node);
	pthread_mutex_unlock(&p->mu);
	return len;
}

static void bury_removed(struct peers *p)
{
	for (;;) {
		struct list *n;
		pthread_mutex_lock(&p->mu);
		n = list_pop_front(&p->removed);
		pthread_mutex_unlock(&p->mu);
		if (!n)
			return;
		dial_cancel(CONTAINER_OF(n, struct link, node));
		link_free(CONTAINER_OF(n, struct link, node));
	}
}

void links_run(struct peers *p)
{
	struct link *links[PEERS_MAX];
	size_t len;
	uint64_t now = mono_ms();
	bury_removed(p);
	see_guests_off(p, now);
	len = copy_links(p, links);
	for (size_t i = 0; i < len; i++) {
		dial_if_due(links[i], now);
		pump(links[i]);
	}
}

uint64_t links_tick(struct peers *p)
{
	struct link *links[PEERS_MAX];
	size_t len;
	uint64_t now;
	if (p->next_due_ms == UINT64_MAX)
		return UINT64_MAX;
	now = mono_ms();
	if (now < p->next_due_ms)
		return p->next_due_ms - now;
	p->next_due_ms = UINT64_MAX;
	see_guests_off(p, now);
	len = copy_links(p, links);
	for (size_t i = 0; i < len; i++) {
		dial_if_due(links[i], now);
		probe_if_due(links[i], now);
	}
	return p->next_due_ms == UINT64_MAX ? UINT64_MAX : p->next_due_ms - now;
}

/* ---- what streams from the peer tell ---- */

static struct link *find(struct peers *p, member_id member)
{
	struct link *links[PEERS_MAX];
	size_t len = copy_links(p, links);
	for (size_t i = 0; i < len; i++) {
		if (links[i]->id == member)
			return links[i];
	}
	return NULL;
}

#define GUEST_URLS_MAX 8

/* "a,b,c" in pieces; text is changed. */
static size_t split_urls(char *text, const char *ret[GUEST_URLS_MAX])
{
	size_t len = 0;
	char *save = NULL;
	for (char *url = strtok_r(text, ",", &save); url && len < GUEST_URLS_MAX; url = strtok_r(NULL, ",", &save))
		ret[len++] = url;
	return len;
}

/* A stranger that says where it lives. */
static void add_guest(struct peers *p, member_id member, struct slice urls)
{
	const char *at[GUEST_URLS_MAX];
	struct peer_address address = { .id = member, .urls = at };
	char text[1024];
	struct link *l;
	size_t guests = 0;
	if (member == p->self || urls.len == 0 || urls.len >= sizeof(text))
		return;
	memcpy(text, urls.ptr, urls.len);
	text[urls.len] = '\0';
	address.urls_len = split_urls(text, at);
	l = link_new(p, &address);
	l->guest = l->in_open = true;
	pthread_mutex_lock(&p->mu);
	LIST_FOR_EACH(n, &p->links)
		guests += CONTAINER_OF(n, struct link, node)->guest;
	if (p->stopping || guests >= PEERS_GUESTS || p->links_len >= PEERS_MAX || l->targets_len == 0) {
		pthread_mutex_unlock(&p->mu);
		link_free(l);
		return;
	}
	list_push_back(&p->links, &l->node);
	p->links_len++;
	pthread_mutex_unlock(&p->mu);
	log_info("a peer that is not known here has connected", LOG_ID("member", member), LOG_SLICE("addresses", urls));
}

void link_received(struct peers *p, member_id member, size_t bytes, bool failed)
{
	struct link *l = find(p, member);
	if (!l)
		return;
	pthread_mutex_lock(&p->mu);
	l->figures.received_bytes += bytes;
	l->figures.receives_failed += failed;
	pthread_mutex_unlock(&p->mu);
}

void link_answered(struct peers *p, member_id member, uint64_t us)
{
	struct link *l = find(p, member);
	size_t bucket = 0;
	if (!l)
		return;
	while (bucket < ROUND_TRIP_BUCKETS && us > UINT64_C(100) << bucket)
		bucket++;
	pthread_mutex_lock(&p->mu);
	l->figures.answers++;
	l->figures.answers_us += us;
	if (bucket < ROUND_TRIP_BUCKETS)
		l->figures.answers_in[bucket]++;
	pthread_mutex_unlock(&p->mu);
}

/* Who has just reached us can be reached, most likely. */
void link_stream_in_opened(struct peers *p, member_id member, struct slice urls)
{
	struct link *l = find(p, member);
	if (!l)
		add_guest(p, member, urls);
	l = l ? l : find(p, member);
	if (!l)
		return;
	pthread_mutex_lock(&p->mu);
	l->in_open = true;
	pthread_mutex_unlock(&p->mu);
	l->had_in = true;
	if (!l->dial)
		link_wait(l, mono_ms(), 0);
}

/* The guest goes with its stream. */
static bool dismiss_guest(struct link *l)
{
	struct peers *p = l->peers;
	bool guest;
	pthread_mutex_lock(&p->mu);
	l->in_open = false;
	guest = l->guest;
	if (guest)
		remove_guest_locked(l);
	pthread_mutex_unlock(&p->mu);
	if (guest)
		peers_wake(p);
	return guest;
}

/* When our own stream is open or being dialled, its fate decides. */
void link_stream_in_broke(struct peers *p, member_id member)
{
	struct link *l = find(p, member);
	if (l && !dismiss_guest(l) && !l->dial && l->refused && l->had_in)
		tell_lost(l);
}
