/* budget.c: a hundred clients that range over everything at once must not take the memory that the state needs.
 *
 * A read of many keys reserves what its reply may be at the most before the node hears of it: the store's bytes, or its share by the limit. Once the
 * reply is there, the rest is given back; what it takes, when the call is over. Who finds no room waits in order, for BUDGET_WAIT_MS at the most.
 *   (B1) reserved <= BUDGET_BYTES, unless one read alone reserves more: it is let in when nothing else is reserved.
 *   (B2) nobody overtakes who waits.
 *   (B3) a waiting read is in `waiting`, and not submitted; both change under mu. node_submit is called with mu held, so that a cancel finds a read
 *        either here or with its tag. */
#include "base/mem.h"
#include "etcd/rpc.pb-c.h"
#include "internal.h"
#include "metrics.h"

enum {
	BUDGET_BYTES = 256 << 20,
	BUDGET_FREE = 1 << 20, /* who can need no more is not asked */
	BUDGET_WAITING_MAX = 10000,
	BUDGET_WAIT_MS = 10000,
};

void budget_init(struct budget *b)
{
	pthread_mutex_init(&b->mu, NULL);
	list_init(&b->waiting);
}

void budget_deinit(struct budget *b)
{
	ASSERT(list_empty(&b->waiting) && b->reserved == 0);
	pthread_mutex_destroy(&b->mu);
}

/* ---- what a request may need ---- */

/* Of what there is in the store. */
static size_t range_weight(const Etcdserverpb__RangeRequest *r, uint64_t bytes, uint64_t keys)
{
	if (r->range_end.len == 0 || r->count_only)
		return 0;
	/* Values may differ in size: twice the mean is a guess, and no more; what it turns out to be is what counts afterwards. */
	if (r->limit > 0 && (uint64_t)r->limit < keys && r->sort_target == ETCDSERVERPB__RANGE_REQUEST__SORT_TARGET__KEY)
		return (size_t)(bytes / keys * (uint64_t)r->limit * 2);
	return (size_t)bytes;
}

static size_t ops_weight(Etcdserverpb__RequestOp *const *ops, size_t len, uint64_t bytes, uint64_t keys);

static size_t txn_weight(const Etcdserverpb__TxnRequest *t, uint64_t bytes, uint64_t keys)
{
	size_t yes = ops_weight(t->success, t->n_success, bytes, keys), no = ops_weight(t->failure, t->n_failure, bytes, keys);
	return yes > no ? yes : no;
}

static size_t ops_weight(Etcdserverpb__RequestOp *const *ops, size_t len, uint64_t bytes, uint64_t keys)
{
	size_t sum = 0;
	for (size_t i = 0; i < len; i++) {
		if (ops[i]->request_case == ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE)
			sum += range_weight(ops[i]->request_range, bytes, keys);
		else if (ops[i]->request_case == ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_TXN)
			sum += txn_weight(ops[i]->request_txn, bytes, keys);
	}
	return sum;
}

size_t budget_weight(const struct service_call *c, const ProtobufCMessage *request)
{
	struct node_health h;
	size_t weight;
	bool stream = c->method->id == METHOD_KV_RANGE_STREAM, range = stream || c->method->id == METHOD_KV_RANGE;
	if (!range && c->method->id != METHOD_KV_TXN)
		return 0;
	/* A look at the node's figures costs more than a Range of one key has to. */
	if (range && ((const Etcdserverpb__RangeRequest *)(const void *)request)->range_end.len == 0)
		return 0;
	node_health(c->service->node, &h);
	if (h.store_bytes <= BUDGET_FREE)
		return 0;
	if (range)
		weight = range_weight((const void *)request, h.store_bytes, h.keys);
	else
		weight = txn_weight((const void *)request, h.store_bytes, h.keys);
	/* A part at a time. Its last pair may be as large as a request. */
	if (stream && weight > KV_PART_BYTES + c->service->limits.max_request_bytes)
		weight = KV_PART_BYTES + c->service->limits.max_request_bytes;
	return weight > BUDGET_FREE ? weight : 0;
}

/* ---- with mu ---- */

/* (B1) */
static bool fits(const struct budget *b, size_t n)
{
	return b->reserved == 0 || (b->reserved <= BUDGET_BYTES && n <= BUDGET_BYTES - b->reserved);
}

static void leave(struct budget *b, struct reservation *r)
{
	list_remove(&r->link);
	r->waiting = false;
	b->waiting_len--;
}

/* ---- */

static void end_all(struct list *refused, enum err e)
{
	struct list *it;
	while ((it = list_pop_front(refused)))
		CONTAINER_OF(it, struct reservation, link)->refused(CONTAINER_OF(it, struct reservation, link), e);
}

/* Those whose turn it is. A submit that fails is told once mu is not held. */
static void let_in_and_unlock(struct budget *b)
{
	struct list failed;
	enum err last = ERR_OK;
	list_init(&failed);
	while (!list_empty(&b->waiting)) {
		struct reservation *r = CONTAINER_OF(b->waiting.next, struct reservation, link);
		enum err e;
		if (!fits(b, r->bytes))
			break;
		leave(b, r);
		b->reserved += r->bytes;
		e = r->submit(r); /* (B3) */
		if (e) {
			last = e;
			b->reserved -= r->bytes;
			r->bytes = 0;
			list_push_back(&failed, &r->link);
		}
	}
	pthread_mutex_unlock(&b->mu);
	end_all(&failed, last);
}

enum err budget_enter(struct budget *b, struct reservation *r, size_t bytes, uint64_t now_ms)
{
	enum err e = ERR_OK;
	r->bytes = bytes;
	r->waiting = false;
	if (bytes == 0)
		return r->submit(r);
	pthread_mutex_lock(&b->mu);
	if (list_empty(&b->waiting) && fits(b, bytes)) {
		b->reserved += bytes;
		e = r->submit(r);
		if (e)
			b->reserved -= bytes;
	} else if (b->waiting_len >= BUDGET_WAITING_MAX) {
		e = ERR_TOO_MANY_REQUESTS;
		metric_add(METRIC_REFUSED_RANGES, 1);
	} else {
		r->waiting = true;
		r->until_ms = now_ms + BUDGET_WAIT_MS;
		list_push_back(&b->waiting, &r->link);
		b->waiting_len++;
	}
	if (e)
		r->bytes = 0;
	pthread_mutex_unlock(&b->mu);
	return e;
}

bool budget_give_up(struct budget *b, struct reservation *r)
{
	bool waited;
	pthread_mutex_lock(&b->mu);
	waited = r->waiting;
	if (waited) {
		leave(b, r);
		r->bytes = 0;
	}
	let_in_and_unlock(b);
	return waited;
}

void budget_settle(struct budget *b, struct reservation *r, size_t bytes)
{
	if (r->bytes == 0) /* set before it was submitted, and ours since */
		return;
	pthread_mutex_lock(&b->mu);
	b->reserved = b->reserved - r->bytes + bytes;
	r->bytes = bytes;
	let_in_and_unlock(b);
}

void budget_tick(struct budget *b, uint64_t now_ms)
{
	struct list late;
	list_init(&late);
	pthread_mutex_lock(&b->mu);
	while (!list_empty(&b->waiting)) {
		struct reservation *r = CONTAINER_OF(b->waiting.next, struct reservation, link);
		if (r->until_ms > now_ms)
			break;
		leave(b, r);
		r->bytes = 0;
		metric_add(METRIC_REFUSED_RANGES, 1);
		list_push_back(&late, &r->link);
	}
	let_in_and_unlock(b);
	end_all(&late, ERR_TOO_MANY_REQUESTS);
}
