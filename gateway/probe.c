/* probe.c: whether the cell answers this replica: a read that wants a quorum, and nothing else.
 *
 * What a leader believes of itself is no answer: it may have lost its followers a moment ago. So a page that has to know asks the node for a read as any client's,
 * without reading anything, and is served a second time once the answer is here.
 *
 *   (B1) an exchange asks once; what it was told stays with it.
 *   (B2) a probe whose page has been answered already (no leader, the client gone, the gateway stops) lives until the node has answered it.
 *   (B3) the node bounds the wait, as it bounds every read's; when it takes no turns any more, or knows no leader, we do. */
#include <stdlib.h>

#include "base/mem.h"
#include "internal.h"

struct probe {
	struct submit_call submit;
	struct gateway *gateway;
	struct list link;       /* gateway.probes */
	struct exchange *exchange; /* NULL: nobody waits any more */
	struct list post_link;  /* gateway.probed, guarded by gateway.mu */
	enum err err;           /* guarded by gateway.mu */
};

/* A range over one key, of which only whether it may be read is asked. */
static const uint8_t request[] = { 0x0a, 0x01, 0x00 };

static void on_done(struct submit_call *call, enum err e, struct buf *reply, struct buf *details)
{
	struct probe *p = CONTAINER_OF(call, struct probe, submit);
	buf_free(reply);
	buf_free(details);
	buf_free(&call->user);
	pthread_mutex_lock(&p->gateway->mu);
	p->err = e;
	list_push_back(&p->gateway->probed, &p->post_link);
	gateway_wake_and_unlock(p->gateway);
}

static void probe_free(struct probe *p)
{
	list_remove(&p->link);
	free(p);
}

bool probe_ask(struct exchange *ex)
{
	struct gateway *g = ex->gateway;
	struct probe *p;
	enum err e;
	ASSERT(!ex->probe);
	if (!ex->probed && g->stopping) {
		ex->probed = true;
		ex->probe_err = ERR_STOPPED;
	}
	if (ex->probed)
		return true;
	p = mem_zalloc(sizeof(*p));
	p->gateway = g;
	p->exchange = ex;
	p->submit = (struct submit_call){ .method = METHOD_KV_RANGE, .bytes = slice_of(request, sizeof(request)), .ask = true, .done = on_done };
	list_init(&p->post_link);
	list_push_back(&g->probes, &p->link);
	ex->probed = true;
	ex->probe = p;
	e = node_submit(g->config.node, &p->submit);
	if (!e)
		return false;
	ex->probe = NULL;
	ex->probe_err = e;
	probe_free(p);
	return true;
}

/* The exchange is told; the probe, if it is still with the node, ends by itself. */
static void tell(struct probe *p, enum err e)
{
	struct exchange *ex = p->exchange;
	p->exchange = NULL;
	if (!ex)
		return;
	ex->probe = NULL;
	/* Nobody came with it, and what nobody may read is no matter of health. */
	ex->probe_err = e == ERR_USER_EMPTY || e == ERR_PERMISSION_DENIED ? ERR_OK : e;
	page_serve_again(ex);
}

void probe_drop(struct exchange *ex)
{
	struct probe *p = ex->probe;
	ex->probe = NULL;
	p->exchange = NULL;
	node_cancel(p->gateway->config.node, p->submit.tag);
}

void probes_drain(struct gateway *g)
{
	struct list *it;
	do {
		pthread_mutex_lock(&g->mu);
		it = list_pop_front(&g->probed);
		pthread_mutex_unlock(&g->mu);
		if (it) {
			struct probe *p = CONTAINER_OF(it, struct probe, post_link);
			tell(p, p->err);
			probe_free(p);
		}
	} while (it);
}

static void give_up_all(struct gateway *g, enum err e)
{
	LIST_FOR_EACH(it, &g->probes) {
		struct probe *p = CONTAINER_OF(it, struct probe, link);
		if (!p->exchange)
			continue;
		node_cancel(g->config.node, p->submit.tag);
		tell(p, e);
	}
}

/* (B3) */
void probes_tick(struct gateway *g)
{
	struct node_health h;
	if (list_empty(&g->probes))
		return;
	node_health(g->config.node, &h);
	if (!h.leader_id)
		give_up_all(g, ERR_NO_LEADER);
	else if (h.silence_ms > GATEWAY_SILENCE_MAX_MS)
		give_up_all(g, ERR_TIMEOUT);
}

void probes_stop(struct gateway *g)
{
	give_up_all(g, ERR_STOPPED);
}
