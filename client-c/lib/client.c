/* client.c: the client's thread, its clock and its connections; see lib.h. */
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "lib.h"

enum {
	TICK_MS = 1000, /* no wait is longer: the queue's clock may stand still while the machine sleeps */
	END_PATIENCE_MS = 5000,
	MESSAGE_MAX = 64 << 20,
};

bool client_is_here(const struct hf_client *c)
{
	return pthread_equal(pthread_self(), c->thread) != 0;
}

/* ---- being woken ---- */

static void on_wake(struct rpc_tag *tag, bool ok)
{
	struct hf_client *c = CONTAINER_OF(tag, struct hf_client, wake_tag);
	(void)ok;
	atomic_store(&c->wake_posted, false);
}

void client_wake(struct hf_client *c)
{
	if (!atomic_exchange(&c->wake_posted, true))
		rpc_start(c->wake_call, NULL, 0, &c->wake_tag);
}

/* ---- connections ---- */

static grpc_arg int_arg(const char *key, int value)
{
	return (grpc_arg){ .type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = value };
}

static grpc_channel_credentials *credentials(const struct hf_client *c)
{
	grpc_ssl_pem_key_cert_pair pair = { .private_key = c->tls_key, .cert_chain = c->tls_cert };
	if (!c->tls_ca && !c->tls_cert)
		return grpc_insecure_credentials_create();
	return grpc_ssl_credentials_create(c->tls_ca, c->tls_cert && c->tls_key ? &pair : NULL, NULL, NULL);
}

static grpc_channel *channel_to(const struct hf_client *c, const char *address)
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
		{ .type = GRPC_ARG_STRING, .key = (char *)(uintptr_t)GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, .value.string = c->tls_server_name },
	};
	grpc_channel_args args = { sizeof(list) / sizeof(list[0]) - (c->tls_server_name ? 0 : 1), list };
	grpc_channel_credentials *creds = credentials(c);
	grpc_channel *ch = grpc_channel_create(address, creds, &args);
	grpc_channel_credentials_release(creds);
	return ch;
}

grpc_channel *client_channel(struct hf_client *c, uint32_t endpoint)
{
	if (!c->channels[endpoint])
		c->channels[endpoint] = channel_to(c, c->endpoints[endpoint]);
	return c->channels[endpoint];
}

/* ---- the thread ---- */

static struct hf_session *next_dirty(struct hf_client *c)
{
	struct hf_session *s = NULL;
	struct list *it;
	pthread_mutex_lock(&c->mu);
	it = list_pop_front(&c->dirty);
	if (it) {
		s = CONTAINER_OF(it, struct hf_session, dirty_node);
		s->dirty = false;
	}
	pthread_mutex_unlock(&c->mu);
	return s;
}

static void work(struct hf_client *c)
{
	struct hf_session *s;
	struct heap_node *n;
	uint64_t now;
	while ((s = next_dirty(c)))
		session_work(s);
	now = boot_ms();
	while ((n = heap_peek(&c->timers)) && n->key <= now)
		session_work(CONTAINER_OF(n, struct hf_session, timer));
}

static uint64_t wait_ms(struct hf_client *c)
{
	struct heap_node *n = heap_peek(&c->timers);
	uint64_t now = boot_ms(), wait = TICK_MS;
	bool dirty;
	pthread_mutex_lock(&c->mu);
	dirty = !list_empty(&c->dirty);
	pthread_mutex_unlock(&c->mu);
	if (dirty)
		return 0;
	if (n && n->key < now + wait)
		wait = n->key > now ? n->key - now : 0;
	return wait;
}

static bool is_ending(struct hf_client *c)
{
	bool ending;
	pthread_mutex_lock(&c->mu);
	ending = c->ending;
	pthread_mutex_unlock(&c->mu);
	return ending;
}

static void *run(void *arg)
{
	struct hf_client *c = arg;
	uint64_t give_up;
	while (!is_ending(c)) {
		work(c);
		rpc_run(c->cq, rpc_in_ms(wait_ms(c)));
	}
	probes_drop(c);
	give_up = boot_ms() + END_PATIENCE_MS;
	while (c->live > 0 && boot_ms() < give_up)
		rpc_run(c->cq, rpc_in_ms(20));
	return NULL;
}

static bool start_thread(struct hf_client *c)
{
	sigset_t all, before;
	int rc;
	/* The application's signals are for its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&c->thread, NULL, run, c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc == 0)
		pthread_setname_np(c->thread, "holdfast");
	return rc == 0;
}

/* ---- life ---- */

static bool read_endpoints(struct hf_client *c, const char *list)
{
	const char *p = list;
	if (!p)
		return false;
	for (;;) {
		size_t len = strcspn(p, ",");
		const char *colon = memchr(p, ':', len);
		if (len == 0 || len >= ENDPOINT_LEN_MAX || c->endpoints_len == ENDPOINTS_MAX || !colon || colon == p || colon == p + len - 1 ||
		    memchr(p, '/', len) || memchr(p, ' ', len))
			return false;
		memcpy(c->endpoints[c->endpoints_len], p, len);
		c->endpoints[c->endpoints_len++][len] = 0;
		if (!p[len])
			return true;
		p += len + 1;
	}
}

static char *copy_of(const char *text)
{
	return text ? strcpy(mem_alloc(strlen(text) + 1), text) : NULL;
}

static void release(struct hf_client *c)
{
	pthread_mutex_destroy(&c->mu);
	heap_deinit(&c->timers);
	free(c->tls_ca);
	free(c->tls_cert);
	free(c->tls_key);
	free(c->tls_server_name);
	free(c->user);
	if (c->password)
		explicit_bzero(c->password, strlen(c->password));
	free(c->password);
	free(c->token);
	free(c);
}

static void unmake(struct hf_client *c)
{
	grpc_call_unref(c->wake_call);
	grpc_channel_destroy(c->wake_channel);
	for (uint32_t i = 0; i < c->endpoints_len; i++) {
		if (c->channels[i])
			grpc_channel_destroy(c->channels[i]);
	}
	if (c->live > 0)
		return; /* gRPC still has tags of ours: what they are of stays */
	grpc_completion_queue_shutdown(c->cq);
	while (rpc_run(c->cq, rpc_in_ms(END_PATIENCE_MS)) == RPC_RAN)
		;
	grpc_completion_queue_destroy(c->cq);
	release(c);
	grpc_shutdown_blocking();
}

enum hf_code hf_client_new(const struct hf_client_options *options, struct hf_client **ret_client)
{
	struct hf_client *c = mem_zalloc(sizeof(*c));
	pthread_mutex_init(&c->mu, NULL);
	list_init(&c->dirty);
	list_init(&c->unsent);
	probes_init(c);
	c->tls_ca = copy_of(options->tls_ca);
	c->tls_cert = copy_of(options->tls_cert);
	c->tls_key = copy_of(options->tls_key);
	c->tls_server_name = copy_of(options->tls_server_name);
	c->user = copy_of(options->user);
	c->password = copy_of(options->password);
	if (!read_endpoints(c, options->endpoints) || !c->tls_cert != !c->tls_key || !c->user != !c->password) {
		release(c);
		return HF_INVALID;
	}
	c->wake_tag.fn = on_wake;
	grpc_init();
	c->cq = grpc_completion_queue_create_for_next(NULL);
	c->wake_channel = grpc_lame_client_channel_create("wake", GRPC_STATUS_UNAVAILABLE, "never sent");
	c->wake_call = grpc_channel_create_call(c->wake_channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->cq, rpc_slice_static("/wake"), NULL,
						gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
	if (!start_thread(c)) {
		unmake(c);
		return HF_FAILED;
	}
	*ret_client = c;
	return HF_OK;
}

void hf_client_free(struct hf_client *c)
{
	if (!c)
		return;
	ASSERT(!client_is_here(c));
	pthread_mutex_lock(&c->mu);
	c->ending = true;
	pthread_mutex_unlock(&c->mu);
	client_wake(c);
	pthread_join(c->thread, NULL);
	ASSERT(!heap_peek(&c->timers)); /* its sessions have been closed */
	unmake(c);
}
