/* call.c: the gateway's end of a service call.
 *
 * Calls in are made on the loop alone, so they come one at a time. What comes back is put into the call under gateway.mu and the call into
 * gateway.posted, once; the loop takes all of it at its next turn. After `finished` has been taken the service knows the call no more, and
 * the loop, from which alone calls in come, ends and frees it. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "internal.h"

enum { DRAIN_MAX = 128 };

/* ---- from any thread (G4) ---- */

static struct json_call *json_call_of(struct service_call *s)
{
	return CONTAINER_OF(s, struct json_call, service);
}

static void post_and_unlock(struct json_call *c)
{
	struct gateway *g = c->gateway;
	if (c->posted) {
		pthread_mutex_unlock(&g->mu);
		return;
	}
	c->posted = true;
	list_push_back(&g->posted, &c->post_link);
	gateway_wake_and_unlock(g);
}

static void on_reply(struct service_call *s, struct buf *messages)
{
	struct json_call *c = json_call_of(s);
	if (s->method->stream == METHOD_UNARY) { /* (G4) */
		c->replies = buf_take(messages);
		c->replies_len = 1;
		return;
	}
	pthread_mutex_lock(&c->gateway->mu);
	if (!c->replies.ptr)
		c->replies = buf_take(messages);
	else
		buf_append_slice(&c->replies, buf_view(messages));
	c->replies_len++;
	post_and_unlock(c);
	buf_free(messages);
}

static void on_finish(struct service_call *s, enum err err, const char *detail, struct slice details)
{
	struct json_call *c = json_call_of(s);
	char *text = detail ? strdup(detail) : NULL;
	struct buf copy = details.len ? buf_copy_of(details) : (struct buf){ .ptr = NULL };
	pthread_mutex_lock(&c->gateway->mu);
	ASSERT(!c->finished);
	c->finished = true;
	c->err = err;
	c->detail = text;
	c->details = copy;
	post_and_unlock(c);
}

static void on_ready(struct service_call *s)
{
	struct json_call *c = json_call_of(s);
	pthread_mutex_lock(&c->gateway->mu);
	c->ready = true;
	post_and_unlock(c);
}

/* ---- calls in ---- */

struct json_call *json_call_new(struct exchange *ex)
{
	static const struct service_ops ops = { .reply = on_reply, .finish = on_finish, .ready = on_ready };
	struct json_call *c = mem_zalloc(sizeof(*c));
	c->gateway = ex->gateway;
	c->began_ms = c->gateway->now_ms;
	c->identity = identity_ref(ex->connection->identity);
	c->service.ops = &ops;
	c->service.method = ex->method;
	c->service.identity = c->identity;
	c->service.client = slice_of_str(c->identity->address);
	c->service.client_cn = c->identity->common_name;
	c->exchange = ex;
	ex->call = c;
	list_push_back(&c->gateway->calls, &c->link);
	list_init(&c->post_link);
	return c;
}

static void json_call_free(struct json_call *c)
{
	list_remove(&c->link);
	identity_unref(c->identity);
	buf_free(&c->token);
	buf_free(&c->replies);
	buf_free(&c->details);
	free(c->detail);
	free(c);
}

void json_call_drop(struct json_call *c)
{
	c->exchange->call = NULL;
	json_call_free(c);
}

/* As gRPC has it: at most eight digits and a unit. False: it is not that. */
static bool parse_timeout(struct slice s, uint64_t *ret_ms)
{
	static const struct {
		char unit;
		uint64_t ns;
	} units[] = { { 'H', 3600000000000 }, { 'M', 60000000000 }, { 'S', 1000000000 }, { 'm', 1000000 }, { 'u', 1000 }, { 'n', 1 } };
	uint64_t v = 0;
	if (s.len < 2 || s.len > 9)
		return false;
	for (size_t i = 0; i + 1 < s.len; i++) {
		if (s.ptr[i] < '0' || s.ptr[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(s.ptr[i] - '0');
	}
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if ((uint8_t)units[i].unit == s.ptr[s.len - 1]) {
			*ret_ms = units[i].ns >= 1000000 ? v * (units[i].ns / 1000000) : v * units[i].ns / 1000000;
			return true;
		}
	}
	return false;
}

static struct slice without_prefix(struct slice name)
{
	struct slice prefix = slice_of_str("grpc-metadata-");
	if (slice_starts_with(name, prefix))
		return slice_of(name.ptr + prefix.len, name.len - prefix.len);
	return slice_eq(name, slice_of_str("authorization")) ? name : slice_of(NULL, 0);
}

enum err json_call_metadata(struct json_call *c, const h2o_req_t *req, const char **ret_text)
{
	for (size_t i = 0; i < req->headers.size; i++) {
		const h2o_header_t *h = &req->headers.entries[i];
		struct slice name = slice_of(h->name->base, h->name->len), value = slice_of(h->value.base, h->value.len);
		struct slice ours = without_prefix(name);
		uint64_t ms;
		enum err e = ours.len ? service_metadata(&c->service, ours, value) : ERR_OK;
		if (e)
			return e;
		if (!slice_eq(name, slice_of_str("grpc-timeout")))
			continue;
		if (!parse_timeout(value, &ms)) {
			*ret_text = "invalid grpc-timeout";
			return ERR_BAD_METADATA;
		}
		c->deadline_ms = mono_ms() + ms + 1;
	}
	c->token = buf_copy_of(c->service.token);
	c->service.token = buf_view(&c->token);
	return ERR_OK;
}

void json_call_start(struct json_call *c)
{
	service_start(c->gateway->config.service, &c->service);
}

void json_call_cancel(struct json_call *c)
{
	if (c->canceled)
		return;
	c->canceled = true;
	service_cancel(&c->service);
}

void json_call_expire(struct json_call *c)
{
	c->timed_out = true;
	json_call_cancel(c);
}

void json_calls_tick(struct gateway *g)
{
	LIST_FOR_EACH(it, &g->calls) {
		struct json_call *c = CONTAINER_OF(it, struct json_call, link);
		if (c->deadline_ms && c->deadline_ms <= g->now_ms)
			json_call_expire(c);
	}
}

void json_calls_stop(struct gateway *g, bool streams_only)
{
	LIST_FOR_EACH(it, &g->calls) {
		struct json_call *c = CONTAINER_OF(it, struct json_call, link);
		if (!streams_only || c->service.method->stream != METHOD_UNARY)
			json_call_cancel(c);
	}
}

/* ---- what came back ---- */

struct outcome {
	struct json_call *call;
	struct buf replies;
	uint32_t replies_len;
	bool ready, finished;
};

static struct outcome take_outcome(struct json_call *c)
{
	struct outcome o = { c, buf_take(&c->replies), c->replies_len, c->ready, c->finished };
	c->replies_len = 0;
	c->ready = false;
	c->posted = false;
	return o;
}

/* Under one lock for many: the node's thread wants it for each answer. */
static int take_outcomes(struct gateway *g, struct outcome *ret)
{
	struct list *it;
	int n = 0;
	pthread_mutex_lock(&g->mu);
	while (n < DRAIN_MAX && (it = list_pop_front(&g->posted)))
		ret[n++] = take_outcome(CONTAINER_OF(it, struct json_call, post_link));
	if (!list_empty(&g->posted))
		gateway_wake_and_unlock(g);
	else
		pthread_mutex_unlock(&g->mu);
	return n;
}

/* Why it was cancelled is ours to know. */
static enum err final_err(const struct json_call *c)
{
	if (c->err != ERR_CANCELED)
		return c->err;
	if (c->timed_out)
		return ERR_DEADLINE_EXCEEDED;
	return c->gateway->stopping ? ERR_STOPPED : c->err;
}

/* It is over, and no call of the gateway's any more. */
static void json_call_keep(struct exchange *ex, struct json_call *c)
{
	list_remove(&c->link);
	list_init(&c->link);
	ex->kept = c;
}

void json_call_let_go(struct json_call *c)
{
	service_end(&c->service);
	json_call_free(c);
}

/* Nobody else touches a finished call. */
static void finish(struct json_call *c)
{
	struct gateway *g = c->gateway;
	struct exchange *ex = c->exchange;
	enum err e = final_err(c);
	/* What a large reply takes of the services' budget it takes until it is written. */
	bool keep = ex && c->service.method->stream == METHOD_UNARY && ex->queued.len > GATEWAY_KEEP_BYTES;
	if (!keep)
		service_end(&c->service);
	g->requests[c->service.method->id][err_status(e)]++;
	if (ex) {
		ex->call = NULL;
		c->exchange = NULL;
		if (keep)
			json_call_keep(ex, c);
		exchange_finished(ex, e, c->detail ? c->detail : err_text(e), buf_view(&c->details));
	}
	if (!keep)
		json_call_free(c);
}

static void handle(struct outcome *o)
{
	struct json_call *c = o->call;
	if (c->exchange && o->replies_len)
		exchange_replies(c->exchange, &o->replies, o->replies_len);
	buf_free(&o->replies);
	if (o->finished) {
		finish(c); /* in one piece with the last replies */
		return;
	}
	if (c->exchange)
		exchange_flush(c->exchange);
	if (o->ready && c->exchange)
		exchange_pump(c->exchange);
}

/* In portions, so that a flood of answers leaves h2o its turn. A call that is finished is posted no more, and ends only here, so none of the
 * portion is gone before its turn. */
void json_calls_drain(struct gateway *g)
{
	struct outcome outcomes[DRAIN_MAX];
	int n = take_outcomes(g, outcomes);
	for (int i = 0; i < n; i++)
		handle(&outcomes[i]);
}
