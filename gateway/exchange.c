/* exchange.c: one request and its reply: which method, its messages in, the service's messages out.
 *
 * Of a body, etcd's gateway takes the first JSON value for a call with one message and ignores what follows; a call with many gets all of them, up
 * to one that is malformed: the first malformed one is an error, a later one just ends the messages, as the answers may be on their way.
 *
 * Replies of a stream are gathered in `queued` while h2o writes `sending`; the service hears of each that h2o has written, and sends only so far
 * ahead. So a client that does not read costs a bounded amount. */
#include "base/clock.h"
#include "base/mem.h"
#include "internal.h"
#include "json.h"
#include "transcode.h"

static struct slice slice_of_iovec(h2o_iovec_t v)
{
	return slice_of(v.base, v.len);
}

static bool is(h2o_iovec_t v, const char *text)
{
	return slice_eq(slice_of_iovec(v), slice_of_str(text));
}

/* ---- out ---- */

void exchange_flush(struct exchange *ex)
{
	h2o_iovec_t piece;
	struct buf empty;
	if (ex->busy || !ex->started || (!ex->queued.len && !ex->ending))
		return;
	empty = ex->sending;
	ex->sending = ex->queued;
	ex->queued = empty;
	buf_clear(&ex->queued);
	ex->sending_replies = ex->queued_replies;
	ex->queued_replies = 0;
	ex->busy = true;
	piece = h2o_iovec_init(ex->sending.ptr, ex->sending.len);
	if (ex->ending)
		connection_wait_end(ex->connection);
	h2o_send(ex->req, &piece, piece.len ? 1 : 0, ex->ending ? H2O_SEND_STATE_FINAL : H2O_SEND_STATE_IN_PROGRESS);
}

/* h2o has written `sending` and asks for more. */
static void on_proceed(h2o_generator_t *self, h2o_req_t *req)
{
	struct exchange *ex = CONTAINER_OF(self, struct exchange, super);
	(void)req;
	ex->busy = false;
	if (ex->sending.cap > GATEWAY_INPUT_SMALL)
		buf_free(&ex->sending);
	for (; ex->sending_replies; ex->sending_replies--) {
		if (ex->call)
			service_writable(&ex->call->service);
	}
	exchange_flush(ex);
}

static bool next_message(struct buf *messages, size_t *pos, struct slice *ret)
{
	const uint8_t *p = messages->ptr + *pos;
	size_t len;
	if (*pos == messages->len)
		return false;
	ASSERT(messages->len - *pos >= 4);
	len = (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
	ASSERT(messages->len - *pos - 4 >= len);
	*ret = slice_of(p + 4, len);
	*pos += 4 + len;
	return true;
}

static void write_reply(struct exchange *ex, struct slice message)
{
	if (ex->text)
		ex->not_text = !transcode_write_text(ex->method->reply, message, &ex->gateway->scratch, &ex->queued) || ex->not_text;
	else
		ASSERT(transcode_write(ex->method->reply, message, &ex->gateway->scratch, &ex->queued));
}

void exchange_replies(struct exchange *ex, struct buf *messages, uint32_t replies)
{
	bool stream = ex->method->stream != METHOD_UNARY;
	struct slice message;
	size_t pos = 0;
	while (!ex->not_text && next_message(messages, &pos, &message)) {
		size_t before = ex->queued.len;
		if (stream)
			buf_append(&ex->queued, "{\"result\":", 10);
		write_reply(ex, message);
		if (stream)
			buf_append(&ex->queued, "}\n", 2);
		if (ex->not_text)
			ex->queued.len = before;
	}
	if (ex->not_text && ex->call)
		json_call_cancel(ex->call);
	if (!stream)
		return;
	ex->queued_replies += replies;
	if (!ex->started)
		reply_start(ex, /*grpc=*/true);
}

void exchange_finished(struct exchange *ex, enum err err, const char *text, struct slice details)
{
	ex->body_done = true;
	if (ex->not_text) {
		err = ERR_REPLY_NOT_TEXT;
		text = err_text(err);
		details = slice_of(NULL, 0);
	}
	if (err && !ex->started) {
		reply_error(ex, err, err_status(err), slice_of_str(text), details);
		return;
	}
	if (ex->method->stream == METHOD_UNARY) {
		reply_json(ex, &ex->queued);
		return;
	}
	if (!ex->started)
		reply_start(ex, /*grpc=*/false);
	if (err)
		reply_error_in_stream(ex, err_status(err), slice_of_str(text));
	ex->ending = true;
	exchange_flush(ex);
}

/* ---- in ---- */

enum message { MESSAGE, MESSAGE_NONE, MESSAGE_BAD };

static enum message next_in_body(struct exchange *ex, struct buf *out, enum err *ret_err, struct errmsg *em)
{
	struct slice value;
	*ret_err = ERR_MALFORMED_JSON;
	switch (json_scan(slice_of_iovec(ex->req->entity), &ex->body_pos, &value, em)) {
	case JSON_END:
		return MESSAGE_NONE;
	case JSON_ERROR:
		return MESSAGE_BAD;
	case JSON_VALUE:
		break;
	}
	*ret_err = ex->text ? transcode_read_text(ex->method->request, value, out, em) : transcode_read(ex->method->request, value, out, em);
	return *ret_err ? MESSAGE_BAD : MESSAGE;
}

static void half_close(struct exchange *ex)
{
	ex->body_done = true;
	service_half_close(&ex->call->service);
}

void exchange_pump(struct exchange *ex)
{
	struct buf message = { .ptr = NULL };
	struct errmsg em;
	enum err e;
	ex->paused = false;
	while (!ex->body_done && !ex->paused) {
		buf_clear(&message);
		if (next_in_body(ex, &message, &e, &em) == MESSAGE)
			ex->paused = !service_message(&ex->call->service, buf_view(&message));
		else
			half_close(ex);
	}
	buf_free(&message);
}

/* A request that no service sees. */
static void refuse(struct exchange *ex, enum status_code status, const char *text)
{
	ex->gateway->requests[ex->method->id][status]++;
	reply_error(ex, ERR_OK, status, slice_of_str(text), slice_of(NULL, 0));
}

/* With the first message, or an empty one where there is none and the method takes just one. */
static void start_call(struct exchange *ex, struct slice first, bool none)
{
	bool stream = ex->method->stream == METHOD_BIDI_STREAM;
	struct json_call *c = json_call_new(ex);
	const char *text = err_text(ERR_BAD_METADATA);
	enum err e = json_call_metadata(c, ex->req, &text);
	if (e) {
		json_call_drop(c);
		refuse(ex, err_status(e), text);
		return;
	}
	json_call_start(c);
	if (!none || !stream)
		ex->paused = !service_message(&c->service, first);
	if (!stream)
		half_close(ex);
	else if (!ex->paused)
		exchange_pump(ex);
}

static void serve_method(struct exchange *ex)
{
	struct buf message = { .ptr = NULL };
	struct errmsg em;
	enum err e;
	enum message kind = next_in_body(ex, &message, &e, &em);
	if (kind != MESSAGE_BAD)
		start_call(ex, buf_view(&message), kind == MESSAGE_NONE);
	else
		/* Where a client streams, etcd's gateway has no code for it. */
		refuse(ex, ex->method->stream == METHOD_BIDI_STREAM ? STATUS_UNKNOWN : err_status(e), em.text);
	buf_free(&message);
}

/* ---- which ---- */

static struct slice path_of(const h2o_req_t *req)
{
	struct slice path = slice_of_iovec(req->path);
	const uint8_t *query = path.len ? memchr(path.ptr, '?', path.len) : NULL;
	return query ? slice_of(path.ptr, (size_t)(query - path.ptr)) : path;
}

static size_t head_size(const h2o_req_t *req)
{
	size_t size = req->path.len + req->method.len;
	for (size_t i = 0; i < req->headers.size; i++)
		size += req->headers.entries[i].name->len + req->headers.entries[i].value.len;
	return size;
}

/* "?text=1", alone or among others, or the header. */
static bool wants_text(const h2o_req_t *req)
{
	static const char wish[] = "text=1";
	struct slice path = slice_of_iovec(req->path);
	const uint8_t *at = path.len ? memchr(path.ptr, '?', path.len) : NULL, *end = path.ptr + path.len;
	ssize_t header = h2o_find_header_by_str(&req->headers, "holdfast-text", 13, -1);
	if (header >= 0 && is(req->headers.entries[header].value, "1"))
		return true;
	while (at) {
		const uint8_t *next = memchr(at + 1, '&', (size_t)(end - at - 1));
		if (slice_eq(slice_of(at + 1, (size_t)((next ? next : end) - at - 1)), slice_of_str(wish)))
			return true;
		at = next;
	}
	return false;
}

static bool is_overloaded(const struct exchange *ex)
{
	return ex->gateway->input_bytes > GATEWAY_INPUT_MAX && ex->req->entity.len > GATEWAY_INPUT_SMALL;
}

static void route(struct exchange *ex)
{
	h2o_req_t *req = ex->req;
	struct slice path = path_of(req);
	if (head_size(req) > ex->gateway->config.max_header_bytes) {
		reply_plain_error(ex, 431, NULL);
		return;
	}
	if (!access_host_allowed(ex->gateway, req)) {
		reply_plain_error(ex, 421, NULL);
		return;
	}
	if (is(req->method, "OPTIONS")) {
		reply_text(ex, 200, NULL, slice_of(NULL, 0));
		return;
	}
	ex->method = ex->connection->pages_only || ex->gateway->config.no_json ? NULL : method_by_json_path(path);
	ex->text = wants_text(req);
	if (!ex->method) {
		if (!page_serve(ex, path, is(req->method, "GET"), is(req->method, "HEAD")))
			reply_plain_error(ex, 404, NULL);
		return;
	}
	if (!is(req->method, "POST"))
		reply_plain_error(ex, 405, NULL);
	else if (ex->gateway->stopping)
		refuse(ex, err_status(ERR_STOPPED), err_text(ERR_STOPPED));
	else if (is_overloaded(ex))
		refuse(ex, err_status(ERR_OVERLOADED), err_text(ERR_OVERLOADED));
	else if (!connection_may_begin(ex->connection, ex->method))
		refuse(ex, err_status(ERR_CANCELED), err_text(ERR_CANCELED));
	else
		serve_method(ex);
}

/* The request's memory goes: the reply is written, or the connection closed. (G2) */
static void exchange_dispose(void *memory)
{
	struct exchange *ex = memory;
	struct json_call *c = ex->call;
	ex->connection->exchange = NULL;
	if (c) {
		ex->call = NULL;
		c->exchange = NULL;
		json_call_cancel(c);
	}
	if (ex->probe)
		probe_drop(ex);
	buf_free(&ex->sending);
	buf_free(&ex->queued);
	if (ex->kept)
		json_call_let_go(ex->kept);
}

int exchange_begin(h2o_handler_t *handler, h2o_req_t *req)
{
	struct connection *c = req->conn->callbacks->get_socket(req->conn)->on_close.data;
	struct exchange *ex = h2o_mem_alloc_shared(&req->pool, sizeof(*ex), exchange_dispose);
	(void)handler;
	ASSERT(!c->exchange);
	*ex = (struct exchange){ .super.proceed = on_proceed, .gateway = c->gateway, .connection = c, .req = req };
	c->exchange = ex;
	c->reading_since_ms = 0;
	if (c->hung_up_ms) {
		c->hung_up_ms = mono_ms();
		req->http1_is_persistent = 0;
	}
	route(ex);
	if (ex->call || ex->probe)
		connection_wait(c);
	return 0;
}
