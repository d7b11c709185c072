/* reflection.c: gRPC's reflection, so that grpcurl and its like need no protos. v1 and v1alpha are the same but for their names.
 *
 * The descriptors are those of our .proto files, embedded as protoc packs them; they are looked at as bytes, by the few fields that matter. An answer is made
 * within the call in; SERVICE_UNACKED of them may wait to be taken, then the client has to. */
#include "base/mem.h"
#include "base/pbw.h"
#include "core/wire.h"
#include "descriptors.h"
#include "internal.h"

enum {
	NOT_FOUND = 5, INVALID_ARGUMENT = 3, /* gRPC's codes, within an answer */
	/* FileDescriptorProto, and within it DescriptorProto, EnumDescriptorProto, ServiceDescriptorProto: name is 1 */
	FILE_NAME = 1, FILE_PACKAGE = 2, FILE_MESSAGE = 4, FILE_ENUM = 5, FILE_SERVICE = 6, SERVICE_METHOD = 2,
	/* the request */
	BY_FILENAME = 3, BY_SYMBOL = 4, BY_EXTENSION = 5, EXTENSIONS_OF = 6, LIST_SERVICES = 7,
};

struct stream {
	size_t unacked;
	bool paused;
};

static struct slice all_files(void)
{
	return slice_of(proto_descriptors, proto_descriptors_len);
}

/* ---- what there is ---- */

/* "Name" or "Name.more"; *ret_rest: what follows the point. */
static bool begins_with_name(struct slice symbol, struct slice name, struct slice *ret_rest)
{
	if (!slice_starts_with(symbol, name) || (symbol.len > name.len && symbol.ptr[name.len] != '.'))
		return false;
	*ret_rest = symbol.len > name.len ? slice_of(symbol.ptr + name.len + 1, symbol.len - name.len - 1) : slice_of(NULL, 0);
	return true;
}

static bool service_has(struct slice service, struct slice method)
{
	struct wire w;
	for (wire_init(&w, service); wire_next(&w);) {
		if (w.field == SERVICE_METHOD && slice_eq(wire_find_bytes(wire_bytes(&w), 1), method))
			return true;
	}
	return false;
}

/* Of what is nested in a message its outermost name is looked at. */
static bool file_has(struct slice file, struct slice symbol)
{
	struct slice rest, package = wire_find_bytes(file, FILE_PACKAGE);
	struct wire w;
	if (!begins_with_name(symbol, package, &symbol) || symbol.len == 0)
		return false;
	for (wire_init(&w, file); wire_next(&w);) {
		struct slice part;
		if (w.field != FILE_MESSAGE && w.field != FILE_ENUM && w.field != FILE_SERVICE)
			continue;
		part = wire_bytes(&w);
		if (!begins_with_name(symbol, wire_find_bytes(part, 1), &rest))
			continue;
		if (rest.len == 0 || w.field == FILE_MESSAGE || (w.field == FILE_SERVICE && service_has(part, rest)))
			return true;
	}
	return false;
}

static bool is_file(struct slice file, struct slice name)
{
	return slice_eq(wire_find_bytes(file, FILE_NAME), name);
}

static bool find_file(bool (*is)(struct slice file, struct slice what), struct slice what, struct slice *ret)
{
	struct wire w;
	for (wire_init(&w, all_files()); wire_next(&w);) {
		*ret = wire_bytes(&w);
		if (is(*ret, what))
			return true;
	}
	return false;
}

/* ---- answers ---- */

static void write_error(struct buf *out, int code, const char *text)
{
	size_t mark = pbw_open(out, 7);
	pbw_u64(out, 1, (uint64_t)code);
	pbw_bytes(out, 2, slice_of_str(text));
	pbw_close(out, mark);
}

static void write_file(struct buf *out, bool (*is)(struct slice, struct slice), struct slice what)
{
	struct slice file;
	size_t mark;
	if (!find_file(is, what, &file)) {
		write_error(out, NOT_FOUND, "not found");
		return;
	}
	mark = pbw_open(out, 4);
	pbw_bytes_always(out, 1, file);
	pbw_close(out, mark);
}

/* A table's rows of one service follow one another. */
static void write_services(struct buf *out)
{
	const char *last = "";
	size_t mark = pbw_open(out, 6);
	for (int i = 0; i < METHOD_COUNT; i++) {
		const struct method *m = method_by_id((enum method_id)i);
		size_t inner;
		if (strcmp(m->service, last) == 0)
			continue;
		last = m->service;
		inner = pbw_open(out, 1);
		pbw_bytes(out, 1, slice_of_str(m->service));
		pbw_close(out, inner);
	}
	pbw_close(out, mark);
}

static void write_answer(struct buf *out, struct slice request)
{
	uint32_t asked = 0;
	struct slice what = slice_of(NULL, 0);
	struct wire w;
	for (wire_init(&w, request); wire_next(&w);) {
		if (w.field < BY_FILENAME || w.field > LIST_SERVICES)
			continue;
		asked = w.field; /* of a oneof, the last counts */
		what = wire_bytes(&w);
	}
	pbw_bytes(out, 1, wire_find_bytes(request, 1));
	pbw_bytes_always(out, 2, request);
	switch (asked) {
	case BY_FILENAME:
		write_file(out, is_file, what);
		break;
	case BY_SYMBOL:
		write_file(out, file_has, what);
		break;
	case LIST_SERVICES:
		write_services(out);
		break;
	case BY_EXTENSION:
	case EXTENSIONS_OF:
		write_error(out, NOT_FOUND, "there are no extensions");
		break;
	default:
		write_error(out, INVALID_ARGUMENT, "nothing is asked for");
	}
}

/* ---- the call ---- */

static void reflection_start(struct service_call *c)
{
	c->state = mem_zalloc(sizeof(struct stream));
}

static bool reflection_message(struct service_call *c, struct slice bytes)
{
	struct stream *st = c->state;
	struct buf out = { .ptr = NULL };
	enum err e = service_check_form(c, bytes);
	if (!e && st->unacked >= SERVICE_INFLIGHT_MAX)
		e = ERR_TOO_MANY_REQUESTS;
	if (e) {
		service_finish(c, e, NULL);
		return true;
	}
	write_answer(&out, bytes);
	st->unacked++;
	st->paused = st->unacked >= SERVICE_UNACKED;
	service_reply_one(c, &out);
	return !st->paused;
}

static void reflection_half_close(struct service_call *c)
{
	service_finish(c, ERR_OK, NULL);
}

static void reflection_cancel(struct service_call *c)
{
	service_finish(c, ERR_CANCELED, NULL);
}

static void reflection_writable(struct service_call *c)
{
	struct stream *st = c->state;
	ASSERT(st->unacked > 0);
	st->unacked--;
	if (st->paused && st->unacked < SERVICE_UNACKED / 2 && c->ops->ready) {
		st->paused = false;
		c->ops->ready(c);
	}
}

static void reflection_end(struct service_call *c)
{
	free(c->state);
}

const struct call_class reflection_class = {
	.start = reflection_start,
	.message = reflection_message,
	.half_close = reflection_half_close,
	.cancel = reflection_cancel,
	.writable = reflection_writable,
	.end = reflection_end,
};
