/* reply.c: how answers look: status, headers, errors. As etcd 3.4's gateway has them. */
#include "base/mem.h"
#include "details.h"
#include "internal.h"
#include "json.h"
#include "transcode.h"

static const unsigned http_status[STATUS_COUNT] = {
	[STATUS_OK] = 200,
	[STATUS_CANCELED] = 408,
	[STATUS_UNKNOWN] = 500,
	[STATUS_INVALID_ARGUMENT] = 400,
	[STATUS_DEADLINE_EXCEEDED] = 504,
	[STATUS_NOT_FOUND] = 404,
	[STATUS_ALREADY_EXISTS] = 409,
	[STATUS_PERMISSION_DENIED] = 403,
	[STATUS_UNAUTHENTICATED] = 401,
	[STATUS_RESOURCE_EXHAUSTED] = 429,
	[STATUS_FAILED_PRECONDITION] = 412,
	[STATUS_ABORTED] = 409,
	[STATUS_OUT_OF_RANGE] = 400,
	[STATUS_UNIMPLEMENTED] = 501,
	[STATUS_INTERNAL] = 500,
	[STATUS_UNAVAILABLE] = 503,
	[STATUS_DATA_LOSS] = 500,
};

unsigned http_status_of(enum status_code status)
{
	return (unsigned)status < STATUS_COUNT ? http_status[status] : 500;
}

const char *http_reason_of(unsigned status)
{
	static const struct {
		unsigned status;
		const char *reason;
	} reasons[] = {
		{ 200, "OK" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 408, "Request Timeout" },
		{ 409, "Conflict" },
		{ 412, "Precondition Failed" },
		{ 421, "Misdirected Request" },
		{ 429, "Too Many Requests" },
		{ 431, "Request Header Fields Too Large" },
		{ 500, "Internal Server Error" },
		{ 501, "Not Implemented" },
		{ 503, "Service Unavailable" },
		{ 504, "Gateway Timeout" },
	};
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		if (reasons[i].status == status)
			return reasons[i].reason;
	}
	ASSERT(!"a status without a reason");
	return "";
}

/* Names and values must live as long as the request; literals do. */
static void add_header(h2o_req_t *req, const char *name, const char *lower, const char *value)
{
	h2o_add_header_by_str(&req->pool, &req->res.headers, lower, strlen(lower), 0, name, value, strlen(value));
}

static void add_common_headers(const struct gateway *g, h2o_req_t *req)
{
	const char *origin = access_origin(g, req);
	if (!origin)
		return;
	add_header(req, "Access-Control-Allow-Headers", "access-control-allow-headers", "accept, content-type, authorization");
	add_header(req, "Access-Control-Allow-Methods", "access-control-allow-methods", "POST, GET, OPTIONS, PUT, DELETE");
	add_header(req, "Access-Control-Allow-Origin", "access-control-allow-origin", origin);
}

static void start(struct exchange *ex, unsigned status, const char *type)
{
	ASSERT(!ex->started);
	ex->started = true;
	ex->req->res.status = (int)status;
	ex->req->res.reason = http_reason_of(status);
	add_common_headers(ex->gateway, ex->req);
	if (type)
		add_header(ex->req, "Content-Type", "content-type", type);
}

static void add_grpc_header(struct exchange *ex)
{
	add_header(ex->req, "Grpc-Metadata-Content-Type", "grpc-metadata-content-type", "application/grpc");
}

void reply_start(struct exchange *ex, bool grpc)
{
	start(ex, 200, "application/json");
	if (grpc)
		add_grpc_header(ex);
	h2o_start_response(ex->req, &ex->super);
}

static bool is_head(const h2o_req_t *req)
{
	return slice_eq(slice_of(req->method.base, req->method.len), slice_of_str("HEAD"));
}

/* What ex->sending holds is all there is. */
static void send_whole(struct exchange *ex)
{
	h2o_iovec_t body = h2o_iovec_init(ex->sending.ptr, ex->sending.len);
	ex->ending = true;
	connection_wait_end(ex->connection);
	ex->req->res.content_length = ex->sending.len;
	h2o_start_response(ex->req, &ex->super);
	h2o_send(ex->req, &body, body.len && !is_head(ex->req) ? 1 : 0, H2O_SEND_STATE_FINAL);
}

void reply_json(struct exchange *ex, struct buf *json)
{
	start(ex, 200, "application/json");
	add_grpc_header(ex);
	buf_free(&ex->sending);
	ex->sending = buf_take(json);
	send_whole(ex);
}

void reply_text(struct exchange *ex, unsigned status, const char *type, struct slice text)
{
	start(ex, status, type);
	buf_clear(&ex->sending);
	buf_append_slice(&ex->sending, text);
	send_whole(ex);
}

void reply_plain_error(struct exchange *ex, unsigned status, const char *allow)
{
	start(ex, status, "text/plain; charset=utf-8");
	add_header(ex->req, "X-Content-Type-Options", "x-content-type-options", "nosniff");
	if (allow)
		add_header(ex->req, "Allow", "allow", allow);
	buf_clear(&ex->sending);
	buf_printf(&ex->sending, "%s\n", http_reason_of(status));
	send_whole(ex);
}

static void write_details(struct exchange *ex, enum err e, struct slice details, struct buf *out)
{
	size_t before = out->len;
	if (!details.len)
		return;
	buf_append_slice(out, slice_of_str(",\"details\":["));
	if (transcode_write_any(details_descriptor(e), details, &ex->gateway->scratch, out))
		buf_append_byte(out, ']');
	else
		out->len = before;
}

void reply_error(struct exchange *ex, enum err e, enum status_code status, struct slice text, struct slice details)
{
	struct buf *out = &ex->sending;
	start(ex, http_status_of(status), "application/json");
	buf_clear(out);
	buf_append(out, "{\"error\":", 9);
	json_quote(out, text);
	buf_append(out, ",\"message\":", 11);
	json_quote(out, text);
	buf_printf(out, ",\"code\":%d", (int)status);
	write_details(ex, e, details, out);
	buf_append_byte(out, '}');
	send_whole(ex);
}

void reply_error_in_stream(struct exchange *ex, enum status_code status, struct slice text)
{
	unsigned http = http_status_of(status);
	buf_printf(&ex->queued, "{\"error\":{\"grpc_code\":%d,\"http_code\":%u,\"message\":", (int)status, http);
	json_quote(&ex->queued, text);
	buf_printf(&ex->queued, ",\"http_status\":\"%s\"}}", http_reason_of(http));
}
