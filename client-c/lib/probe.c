/* probe.c: whether a replica lives, and whether it serves, asked with gRPC's own health check. Of a replica one is under way at a time, whichever and however many
 * sessions want to know: thousands share it. Its answer holds for a moment. */
#include "base/clock.h"
#include "base/mem.h"
#include "errors.h"
#include "ext/health.pb-c.h"
#include "lib.h"

enum {
	PROBE_MS = 3000,      /* then it is given up, and whoever still wants to know asks again */
	PROBE_HOLDS_MS = 100,
};

static uint32_t endpoint_of(const struct probe *p)
{
	return (uint32_t)(p - p->client->probes);
}

/* Each one that waits; heard: with the answer. */
static void tell_all(struct probe *p, bool heard)
{
	uint32_t bit = (uint32_t)1 << endpoint_of(p);
	LIST_FOR_EACH_SAFE(it, next, &p->client->probing) {
		struct hf_session *s = CONTAINER_OF(it, struct hf_session, probing_node);
		if (!(s->probing & bit))
			continue;
		s->probing &= ~bit;
		if (!s->probing)
			list_remove(&s->probing_node);
		if (heard)
			session_heard(s, endpoint_of(p), p->serves);
	}
}

static void on_message(void *owner, struct io *io, struct slice bytes)
{
	struct probe *p = owner;
	Grpc__Health__V1__HealthCheckResponse *r = grpc__health__v1__health_check_response__unpack(NULL, bytes.len, bytes.ptr);
	(void)io;
	if (!r)
		return;
	p->replied = true;
	p->serves = r->status == GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
	grpc__health__v1__health_check_response__free_unpacked(r, NULL);
}

static void on_end(void *owner, struct io *io, int status, struct slice text, struct slice details)
{
	struct probe *p = owner;
	(void)io, (void)text, (void)details;
	p->io = NULL;
	if (!p->replied && status != STATUS_UNAVAILABLE && status != STATUS_DEADLINE_EXCEEDED && status != STATUS_CANCELED) {
		p->replied = true; /* it will not say how it is, but it lives */
		p->serves = true;
	}
	if (p->replied)
		p->answered_ms = boot_ms();
	tell_all(p, p->replied);
}

static const struct io_class class = { on_message, on_end };

void probes_init(struct hf_client *c)
{
	list_init(&c->probing);
	for (uint32_t i = 0; i < ENDPOINTS_MAX; i++)
		c->probes[i].client = c;
}

void probe_ask(struct hf_session *s, uint32_t endpoint)
{
	struct probe *p = &s->client->probes[endpoint];
	struct io_start start = { .endpoint = endpoint, .method = METHOD_HEALTH_CHECK, .deadline_ms = boot_ms() + PROBE_MS, .open_to_all = true };
	struct buf everything = { .ptr = NULL };
	if (p->answered_ms && boot_ms() - p->answered_ms < PROBE_HOLDS_MS) {
		session_heard(s, endpoint, p->serves);
		return;
	}
	if (!s->probing)
		list_push_back(&s->client->probing, &s->probing_node);
	s->probing |= (uint32_t)1 << endpoint;
	if (p->io)
		return;
	p->replied = false;
	p->io = io_new(s->client, &start, &class, p);
	io_send(p->io, &everything);
}

void probes_drop(struct hf_client *c)
{
	for (uint32_t i = 0; i < c->endpoints_len; i++) {
		io_drop(c->probes[i].io);
		c->probes[i].io = NULL;
	}
}
