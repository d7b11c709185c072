/* identify.c: who a caller says that he is, and the record of what he did. */
#include <time.h>

#include "auth/audit.h"
#include "auth/signed_token.h"
#include "internal.h"

void service_identify(struct service_call *c)
{
	const struct service_parts *parts = &c->service->parts;
	struct slice bearer = slice_of_str("Bearer ");
	struct slice token = c->token;
	if (slice_starts_with(token, bearer))
		token = slice_of(token.ptr + bearer.len, token.len - bearer.len);
	c->caller = (struct caller){ .common_name = c->client_cn, .token = token, .wanted = parts->audit != NULL,
				      .connection = c->identity ? c->identity->number : 0 };
	c->token_user = (struct buf){ .ptr = NULL };
	if (token.len == 0)
		return;
	c->caller.token_is = TOKEN_SIMPLE;
	if (!parts->signed_tokens)
		return;
	c->caller.token = slice_of(NULL, 0);
	c->caller.token_is = TOKEN_BAD;
	if (signed_tokens_verify(parts->signed_tokens, token, (int64_t)time(NULL), &c->token_user, &c->caller.revision))
		return;
	c->caller.token_is = TOKEN_VERIFIED;
	c->caller.user = buf_view(&c->token_user);
}

/* ---- the record ---- */

static bool is_recorded(const struct method *m)
{
	return m->access == METHOD_WRITE && strcmp(m->service, "etcdserverpb.KV") != 0 && strcmp(m->service, "holdfast.v1.Nodes") != 0;
}

static bool is_secret(const char *field)
{
	return strstr(field, "assword") || strcmp(field, "value") == 0 || strcmp(field, "token") == 0 || strcmp(field, "secret") == 0;
}

static void put_message(struct buf *out, const ProtobufCMessage *m);

/* False: the field is absent, or of a kind that is not written down. */
static bool put_value(struct buf *out, const ProtobufCFieldDescriptor *f, const void *at)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
		if (!*(char *const *)at || !**(char *const *)at)
			return false;
		audit_json_string(out, slice_of_str(*(char *const *)at));
		return true;
	case PROTOBUF_C_TYPE_BYTES: {
		const ProtobufCBinaryData *d = at;
		if (d->len == 0)
			return false;
		audit_json_string(out, slice_of(d->data, d->len));
		return true;
	}
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_FIXED64: /* as strings, as protobuf's JSON has them */
		if (*(const int64_t *)at == 0)
			return false;
		if (strcmp(f->name, "lease") == 0 || strcmp(f->name, "ID") == 0)
			buf_printf(out, "\"%016llx\"", (unsigned long long)*(const uint64_t *)at);
		else
			buf_printf(out, "\"%lld\"", (long long)*(const int64_t *)at);
		return true;
	case PROTOBUF_C_TYPE_ENUM:
	case PROTOBUF_C_TYPE_BOOL:
		if (*(const int *)at == 0)
			return false;
		buf_printf(out, "%d", *(const int *)at);
		return true;
	case PROTOBUF_C_TYPE_MESSAGE:
		if (!*(ProtobufCMessage *const *)at)
			return false;
		put_message(out, *(ProtobufCMessage *const *)at);
		return true;
	default:
		return false;
	}
}

static bool is_there(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	if (f->label == PROTOBUF_C_LABEL_REPEATED || is_secret(f->name))
		return false;
	return !(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) || *(const uint32_t *)(const void *)((const char *)m + f->quantifier_offset) == f->id;
}

/* Comma first, so that a field that turns out to be absent can be taken back. */
static void put_message(struct buf *out, const ProtobufCMessage *m)
{
	bool first = true;
	buf_append_byte(out, '{');
	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		size_t mark = out->len;
		if (!is_there(m, f))
			continue;
		buf_printf(out, "%s\"%s\":", first ? "" : ",", f->name);
		if (put_value(out, f, (const char *)m + f->offset))
			first = false;
		else
			out->len = mark;
	}
	buf_append_byte(out, '}');
}

static void put_request(struct buf *out, const struct service_call *c, struct slice request)
{
	struct arena *a = service_scratch();
	ProtobufCMessage *m = protobuf_c_message_unpack(c->method->request, &a->pb, request.len, request.ptr);
	if (m) {
		buf_printf(out, ",\"request\":");
		put_message(out, m);
	}
	service_scratch_done(a);
}

static void put_time(struct buf *out)
{
	struct timespec ts;
	struct tm tm;
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	buf_printf(out, "{\"time\":\"%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ\"", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
		   tm.tm_sec, ts.tv_nsec / 1000);
}

static void put_text(struct buf *out, const char *name, struct slice text)
{
	if (text.len == 0)
		return;
	buf_printf(out, ",\"%s\":", name);
	audit_json_string(out, text);
}

void service_audit(const struct service_call *c, enum err e, struct slice user, struct slice request)
{
	struct audit *audit = c->service->parts.audit;
	struct buf line = { .ptr = NULL };
	if (!audit || !is_recorded(c->method))
		return;
	put_time(&line);
	put_text(&line, "user", user);
	put_text(&line, "address", c->client);
	put_text(&line, "certificate", c->client_cn);
	put_text(&line, "method", slice_of_str(c->method->path + 1));
	put_text(&line, "result", slice_of_str(status_name(err_status(e))));
	if (e)
		put_text(&line, "error", slice_of_str(err_text(e)));
	if (request.len)
		put_request(&line, c, request);
	buf_append_byte(&line, '}');
	audit_line(audit, &line);
}
