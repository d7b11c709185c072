/* main.c: wires the parts together and takes them apart again.
 *
 * Start: options, storage, core; then the node's threads, the peers' listener, and the client port last: who can connect is served. Stop (SIGTERM, SIGINT): the client
 * port first; calls under way get a moment; then the node, which answers what is left; the disk last. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cell.h"
#include "core/member/member.h"
#include "gateway/gateway.h"
#include "grpc/grpc_front.h"
#include "log/log.h"
#include "net/acceptor.h"
#include "net/peers.h"
#include "node/node.h"
#include "rpc/rpc.h"
#include "credentials.h"
#include "options.h"
#include "snapshot_cmd.h"
#include "supervise.h"
#include "transport.h"
#include "version.h"

#define STOP_GRACE_MS 500
#define GRPC_THREADS 1
#define TLS_THREADS 2
#define EXIT_USAGE 2

struct names {
	uint64_t cell_id;
	member_id self;
};

struct server {
	struct options options;
	struct names names;
	struct cell cell;
	struct storage *storage;
	struct node *node;
	struct peers *peers;
	struct rpc_queue *queue; /* of all gRPC: clients and peers */
	struct service *service;
	struct service_parts parts;
	struct grpc_front *grpc;
	struct gateway *gateway;
	struct acceptor *acceptor;
	struct transport transport;
	int fatal_fd; /* eventfd: the node gave up */
	const char *_Atomic fatal_reason;
};

/* ---- what the node calls ---- */

static void node_send(void *ctx, member_id to, struct buf *bytes, bool bulk)
{
	peers_send(((struct server *)ctx)->peers, to, bytes, bulk);
}

static void node_members(void *ctx, const struct state *state)
{
	struct server *s = ctx;
	struct peer_address list[OPTIONS_MEMBERS_MAX * 2];
	struct buf info = { .ptr = NULL };
	struct tree_cursor c;
	size_t len = 0;
	for (struct tree_record *r = tree_first(&c, &state->members); r && len < sizeof(list) / sizeof(list[0]); r = tree_next(&c)) {
		const struct member_record *m = (const struct member_record *)(void *)r;
		list[len++] = (struct peer_address){ m->id, (const char *const *)m->peer_urls, m->peer_urls_len };
	}
	if (!member_find(state, s->names.self) && len < sizeof(list) / sizeof(list[0])) /* it joins, and has yet to hear of itself */
		list[len++] = (struct peer_address){ s->names.self, (const char *const *)s->options.initial_advertise_peer.urls, s->options.initial_advertise_peer.len };
	peers_set(s->peers, list, len);
	cell_info(&s->cell, state, &info);
	peers_set_info(s->peers, buf_view(&info));
	buf_free(&info);
}

static void node_fatal(void *ctx, const char *reason)
{
	struct server *s = ctx;
	uint64_t one = 1;
	s->fatal_reason = reason;
	if (write(s->fatal_fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

static void node_hold_ended(void *ctx, struct slice name, enum hold_end why, uint64_t held_ms)
{
	struct server *s = ctx;
	service_hold_ended(s->service, name, why, held_ms);
}

/* ---- what peers and the acceptor call ---- */

static bool on_message(void *ctx, struct slice bytes)
{
	return node_message(((struct server *)ctx)->node, bytes);
}

static void on_lost(void *ctx, member_id peer)
{
	node_peer_lost(((struct server *)ctx)->node, peer);
}

static void on_http2(void *ctx, int fd, struct identity *who)
{
	grpc_front_adopt(((struct server *)ctx)->grpc, fd, who);
}

static void on_http1(void *ctx, int fd, struct identity *who)
{
	gateway_adopt(((struct server *)ctx)->gateway, fd, who);
}

static void on_page(void *ctx, int fd, struct identity *who)
{
	gateway_adopt_pages(((struct server *)ctx)->gateway, fd, who);
}

static void on_metrics(void *ctx, struct buf *out)
{
	struct server *s = ctx;
	service_write_metrics(s->service, out);
	credentials_metrics(&s->parts, out);
	peers_write_metrics(s->peers, out);
	tls_write_metrics((struct tls_context *const[]){ s->transport.client, s->transport.peer }, 2, out);
}

/* ---- start ---- */

static uint64_t random_u64(void)
{
	uint64_t v = 0;
	while (!v) {
		if (getrandom(&v, sizeof(v), 0) != sizeof(v))
			abort();
	}
	return v;
}

/* A data directory says itself what it belongs to; the command line is held against it, but for a member that joined: that line names others. */
static enum err look_at_directory(struct server *s, struct storage_identity *want, struct errmsg *em)
{
	const struct options *o = &s->options;
	struct storage_identity have;
	struct buf bytes = { .ptr = NULL };
	enum err e = storage_identify(o->data_dir, &have, &bytes, em);
	if (!e && have.origin.len) {
		struct cell kept;
		cell_init(&kept);
		e = cell_from_origin(&kept, have.origin, em);
		if (kept.joined || o->existing)
			want->cell_id = want->member_id = 0;
		cell_free(&s->cell);
		s->cell = kept;
	}
	buf_free(&bytes);
	return e;
}

static enum err open_storage(struct server *s, struct errmsg *em)
{
	const struct options *o = &s->options;
	bool exists = storage_exists(o->data_dir);
	struct storage_options so = { .dir = o->data_dir, .mend = true };
	enum err e = ERR_OK;
	if (!exists && o->existing)
		e = cell_join(&s->cell, o, s->transport.peer, em);
	else
		cell_from_options(&s->cell, o);
	if (e)
		return e;
	so.identity = (struct storage_identity){ .cell_id = s->cell.cell_id, .member_id = s->cell.self, .data_dir_id = random_u64(), .name = slice_of_str(o->name),
						 .cell_token = slice_of_str(o->initial_cluster_token), .origin = buf_view(&s->cell.origin) };
	if (exists)
		e = look_at_directory(s, &so.identity, em);
	so.identity.origin = buf_view(&s->cell.origin);
	if (!e)
		e = storage_open(&so, &s->storage, em);
	if (!e)
		s->names = (struct names){ storage_state(s->storage)->identity.cell_id, storage_state(s->storage)->identity.member_id };
	return e;
}

static struct core_config core_config_of(const struct server *s, const struct storage_state *st)
{
	const struct options *o = &s->options;
	return (struct core_config){
		.cell_id = st->identity.cell_id,
		.member = st->identity.member_id,
		.data_dir_id = st->identity.data_dir_id,
		.boot = st->boot,
		.seed = random_u64(),
		.name = o->name,
		.client_urls = (const char *const *)o->advertise_client.urls,
		.client_urls_len = o->advertise_client.len,
		.election_timeout_ms = (uint32_t)o->election_timeout_ms,
		.heartbeat_ms = (uint32_t)o->heartbeat_interval_ms,
		.snapshot_count = o->snapshot_count,
		.snapshot_keep = o->snapshot_count < o->snapshot_catchup_entries ? o->snapshot_count : o->snapshot_catchup_entries,
		.max_txn_ops = (uint32_t)o->max_txn_ops,
		.max_request_bytes = (uint32_t)o->max_request_bytes,
		.request_timeout_ms = 5000 + 2 * (uint32_t)o->election_timeout_ms,
		.max_pending = 100000,
		.max_waiters = 100000,
		.quota_bytes = o->quota_backend_bytes,
		.auto_compact_ms = (uint32_t)(o->auto_compaction_ms > UINT32_MAX ? UINT32_MAX : o->auto_compaction_ms),
		.auto_compact_revisions = o->auto_compaction_revisions,
		.watch_progress_ms = (uint32_t)o->watch_progress_ms,
		.auth_token_ttl_ms = (uint32_t)o->auth_token_ttl_s * 1000,
		.no_auto_clear = !o->quota_auto_clear,
		.compare_ms = (uint32_t)o->corrupt_check_ms,
		.compare_initial = o->initial_corrupt_check,
		.boot_unix_ms = unix_ms(),
		.version = o->etcd_version,
	};
}

static enum err start_node(struct server *s, struct errmsg *em)
{
	struct node_config nc = {
		.core = core_config_of(s, storage_state(s->storage)),
		.storage = s->storage,
		.initial = &s->cell.initial,
		.callbacks = { s, node_send, node_members, node_fatal, node_hold_ended },
		.slow_turn_ms = s->options.warning_apply_ms,
		.max_queued_calls = 100000,
		.max_queued_message_bytes = 64U << 20,
		.max_queued_stream_bytes = 64U << 20,
	};
	return node_new(&nc, &s->node, em);
}

static enum err listen_all(struct server *s, const struct url_list *urls, struct acceptor_sinks sinks, struct errmsg *em)
{
	for (size_t i = 0; i < urls->len; i++) {
		enum err e = acceptor_listen_tls(s->acceptor, urls->urls[i], &sinks, s->transport.client, em);
		if (e)
			return e;
	}
	return ERR_OK;
}

/* Client URLs serve both kinds, unless there are others for HTTP. */
static enum err start_acceptor(struct server *s, struct errmsg *em)
{
	const struct options *o = &s->options;
	struct acceptor_sinks both = { s, on_http2, on_http1, .http2_is_grpc = true }, grpc = { .ctx = s, .http2 = on_http2, .http2_is_grpc = true };
	struct acceptor_sinks http = { .ctx = s, .http1 = on_http1 };
	struct acceptor_sinks pages = { .ctx = s, .http1 = on_page };
	enum err e;
	s->acceptor = acceptor_new(&both, &(struct acceptor_limits){ .max_undecided = 1000, .tls_threads = TLS_THREADS });
	e = listen_all(s, &o->listen_client, o->listen_client_http.len ? grpc : both, em);
	if (!e)
		e = listen_all(s, &o->listen_client_http, http, em);
	if (!e)
		e = listen_all(s, &o->listen_metrics, pages, em);
	if (!e)
		acceptor_start(s->acceptor);
	return e;
}

/* Before the node starts: it tells the service of holds that end. */
static void make_service(struct server *s)
{
	const struct options *o = &s->options;
	struct service_limits limits = { (uint32_t)o->max_txn_ops, (uint32_t)o->max_request_bytes, (uint32_t)o->max_value_bytes,
					 (const char *const *)o->lock_metrics_prefixes.items, o->lock_metrics_prefixes.len, o->extensive_metrics };
	s->service = service_new(s->node, &limits);
	service_use(s->service, &s->parts);
}

static enum err start_fronts(struct server *s, struct errmsg *em)
{
	const struct options *o = &s->options;
	s->grpc = grpc_front_new(&(struct grpc_front_config){
		.queue = s->queue,
		.service = s->service,
		.max_concurrent_streams = (uint32_t)o->max_concurrent_streams,
		.max_request_bytes = (uint32_t)o->max_request_bytes,
		.keepalive_min_time_ms = o->grpc_keepalive_min_time_ms,
		.keepalive_interval_ms = o->grpc_keepalive_interval_ms,
		.keepalive_timeout_ms = o->grpc_keepalive_timeout_ms,
		.max_calls = 200000,
		.request_timeout_ms = 30000,
		.idle_timeout_ms = 300000,
	});
	s->gateway = gateway_new(&(struct gateway_config){
		.service = s->service,
		.node = s->node,
		.max_request_bytes = (uint32_t)o->max_request_bytes,
		.max_connections = 10000,
		.max_header_bytes = 64 * 1024,
		.request_timeout_ms = 10000,
		.idle_timeout_ms = 120000,
		.write_timeout_ms = 30000,
		.server_version = o->etcd_version,
		.member_id = s->names.self,
		.quota_bytes = o->quota_backend_bytes,
		.extensive = o->extensive_metrics,
		.no_json = !o->enable_grpc_gateway,
		.origins = (const char *const *)o->cors.items,
		.origins_len = o->cors.len,
		.hosts = (const char *const *)o->host_whitelist.items,
		.hosts_len = o->host_whitelist.len,
		.metrics = on_metrics,
		.metrics_ctx = s,
	});
	return start_acceptor(s, em);
}

static void queue_idle(void *node)
{
	node_wake(node);
}

static enum err start(struct server *s, struct errmsg *em)
{
	const struct options *o = &s->options;
	struct peers_callbacks pc = { s, on_message, on_lost };
	enum err e;
	cell_init(&s->cell);
	e = credentials_open(o, &s->parts, em);
	if (!e)
		e = transport_open(o, &s->transport, em);
	if (e)
		return e;
	e = open_storage(s, em);
	if (e)
		return e;
	e = start_node(s, em);
	if (e)
		return e;
	s->queue = rpc_queue_new(GRPC_THREADS, "grpc", &(struct rpc_idle){ queue_idle, s->node });
	s->peers = peers_new(s->names.self, &pc, s->queue);
	if (s->transport.peer)
		peers_use_tls(s->peers, s->transport.peer);
	e = peers_listen(s->peers, (const char *const *)o->listen_peer.urls, o->listen_peer.len, em);
	if (e)
		return e;
	make_service(s);
	node_start(s->node);
	e = start_fronts(s, em);
	if (e)
		return e;
	log_info("serving clients", LOG_STR("name", o->name), LOG_ID("member", s->names.self), LOG_ID("cell", s->names.cell_id),
		 LOG_STR("address", o->listen_client.urls[0]), LOG_STR("data_dir", o->data_dir), LOG_STR("version", HOLDFAST_VERSION));
	return ERR_OK;
}

static void stop(struct server *s)
{
	if (s->acceptor)
		acceptor_stop(s->acceptor);
	if (s->node)
		node_hand_over(s->node, s->options.election_timeout_ms);
	if (s->gateway)
		gateway_stop(s->gateway);
	if (s->grpc)
		grpc_front_stop(s->grpc, STOP_GRACE_MS);
	if (s->node)
		node_stop(s->node);
	credentials_stop(&s->parts);
	if (s->peers)
		peers_stop(s->peers);
	if (s->queue)
		rpc_queue_stop(s->queue, s->peers && peers_left_behind(s->peers));
	acceptor_free(s->acceptor);
	if (s->gateway)
		gateway_free(s->gateway);
	if (s->grpc)
		grpc_front_free(s->grpc);
	if (s->service)
		service_free(s->service);
	credentials_close(&s->parts);
	node_free(s->node);
	if (s->peers)
		peers_free(s->peers);
	rpc_queue_free(s->queue);
	transport_close(&s->transport);
	storage_close(s->storage);
	cell_free(&s->cell);
	options_free(&s->options);
}

static void on_tick(void *ctx)
{
	credentials_tick(&((struct server *)ctx)->parts);
}

static void on_hang_up(void *ctx)
{
	credentials_hang_up(&((struct server *)ctx)->parts);
}

/* Waits for a signal or for the node to give up. Returns the exit code. */
static int wait_for_end(struct server *s, int signal_fd)
{
	const struct options *o = &s->options;
	bool asked = supervise(&(struct supervise_config){
		.node = s->node,
		.signal_fd = signal_fd,
		.fatal_fd = s->fatal_fd,
		.name = o->name,
		.address = o->listen_client.urls[0],
		.data_dir = o->data_dir,
		.version = HOLDFAST_VERSION,
		.etcd_version = o->etcd_version,
		.member = s->names.self,
		.cell = s->names.cell_id,
		.ctx = s,
		.tick = on_tick,
		.hang_up = on_hang_up,
	});
	if (asked)
		return EXIT_SUCCESS;
	log_error("this replica stops", LOG_STR("reason", s->fatal_reason));
	return EXIT_FAILURE;
}

/* As many descriptors as the machine gives: each connection is one. */
static void raise_descriptor_limit(void)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

static void tell_warnings(const struct options *o)
{
	for (size_t i = 0; i < o->warnings_len; i++)
		log_warn(o->warnings[i].message, LOG_STR("flag", o->warnings[i].flag), LOG_STR("because", o->warnings[i].detail));
	if (o->config_file)
		log_info("configured by a file, other flags and the environment are not looked at", LOG_STR("file", o->config_file));
}

int main(int argc, char **argv)
{
	struct server *s = mem_zalloc(sizeof(*s));
	struct errmsg em = { .text = "" };
	sigset_t set;
	int signal_fd, code;
	if (argc > 1 && strcmp(argv[1], "snapshot") == 0) {
		free(s);
		return snapshot_command(argc - 1, argv + 1);
	}
	switch (options_parse_env(&s->options, argc, argv, environ, &em)) {
	case OPTIONS_EXIT_OK:
		options_free(&s->options);
		free(s);
		return EXIT_SUCCESS;
	case OPTIONS_ERROR:
		fprintf(stderr, "holdfastd: %s\n", em.text);
		options_free(&s->options);
		free(s);
		return EXIT_USAGE;
	case OPTIONS_RUN:
		break;
	}
	log_set_level(s->options.log_level);
	log_set_format(s->options.log_format);
	if (log_set_outputs((const char *const *)s->options.log_outputs.items, s->options.log_outputs.len, &em)) {
		fprintf(stderr, "holdfastd: %s\n", em.text);
		options_free(&s->options);
		free(s);
		return EXIT_USAGE;
	}
	tell_warnings(&s->options);
	raise_descriptor_limit();
	(void)rpc_no_lock_graph();
	signal(SIGPIPE, SIG_IGN);
	/* Blocked in every thread, taken by signal_fd: set before any thread starts. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	s->fatal_fd = eventfd(0, EFD_CLOEXEC);
	if (signal_fd < 0 || s->fatal_fd < 0) {
		fprintf(stderr, "holdfastd: no descriptors\n");
		return EXIT_FAILURE;
	}
	if (start(s, &em)) {
		log_error("cannot start", LOG_STR("reason", em.text));
		code = EXIT_FAILURE;
	} else {
		code = wait_for_end(s, signal_fd);
	}
	stop(s);
	close(signal_fd);
	close(s->fatal_fd);
	free(s);
	return code;
}
