/* out.c: standard output, and messages as JSON or as fields, by their descriptors: no code of its own per message. Depth is bounded by the check that every
 * reply has passed. */
#include "out.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "ctl.h"
#include "text.h"

/* ---- bytes ---- */

void out_bytes(const struct out *o, struct slice s, struct buf *ret)
{
	if (o->hex)
		text_to_hex(s, ret);
	else
		buf_append_slice(ret, s);
}

static void json_char(uint8_t c, struct buf *ret)
{
	static const char from[] = "\"\\\n\t\r", to[] = "\"\\ntr";
	const char *known = c ? strchr(from, c) : NULL;
	if (known)
		buf_printf(ret, "\\%c", to[known - from]);
	else if (c < 0x20 || c == 0x7f)
		buf_printf(ret, "\\u%04x", c);
	else
		buf_append_byte(ret, c);
}

void out_json_string(struct slice s, struct buf *ret)
{
	bool fine = text_is_utf8(s);
	buf_append_byte(ret, '"');
	for (size_t i = 0; i < s.len; i++) {
		if (!fine && s.ptr[i] >= 0x80)
			buf_printf(ret, "\\ufffd");
		else
			json_char(s.ptr[i], ret);
	}
	buf_append_byte(ret, '"');
}

void out_json_bytes(const struct out *o, struct slice s, struct buf *ret)
{
	bool text = !o->hex && text_is_utf8(s);
	if (text) {
		out_json_string(s, ret);
		return;
	}
	buf_printf(ret, o->hex ? "\"" : "{\"hex\":\"");
	text_to_hex(s, ret);
	buf_printf(ret, o->hex ? "\"" : "\"}");
}

/* ---- by descriptor ---- */

static const char *enum_name(const ProtobufCFieldDescriptor *f, int32_t value)
{
	const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(f->descriptor, value);
	return v ? v->name : "?";
}

static void json_value(const struct out *o, const ProtobufCFieldDescriptor *f, const void *at, struct buf *ret)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
		buf_printf(ret, "%" PRId32, *(const int32_t *)at);
		break;
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		buf_printf(ret, "%" PRIu32, *(const uint32_t *)at);
		break;
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
		buf_printf(ret, "\"%" PRId64 "\"", *(const int64_t *)at);
		break;
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		buf_printf(ret, "\"%" PRIu64 "\"", *(const uint64_t *)at);
		break;
	case PROTOBUF_C_TYPE_FLOAT:
		buf_printf(ret, "%g", (double)*(const float *)at);
		break;
	case PROTOBUF_C_TYPE_DOUBLE:
		buf_printf(ret, "%g", *(const double *)at);
		break;
	case PROTOBUF_C_TYPE_BOOL:
		buf_printf(ret, "%s", *(const protobuf_c_boolean *)at ? "true" : "false");
		break;
	case PROTOBUF_C_TYPE_ENUM:
		buf_printf(ret, "\"%s\"", enum_name(f, *(const int32_t *)at));
		break;
	case PROTOBUF_C_TYPE_STRING:
		out_json_string(slice_of_str(*(char *const *)at ? *(char *const *)at : ""), ret);
		break;
	case PROTOBUF_C_TYPE_BYTES: {
		const ProtobufCBinaryData *b = at;
		out_json_bytes(o, slice_of(b->data, b->len), ret);
		break;
	}
	case PROTOBUF_C_TYPE_MESSAGE:
		out_json(o, *(ProtobufCMessage *const *)at, ret);
		break;
	}
}

static size_t size_of(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return 8;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	default:
		return 4; /* protobuf_c_boolean is an int */
	}
}

/* Calls fn for each value of a field that is there: none for a message or a oneof member that is not set. */
static size_t values_len(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	const uint8_t *base = (const uint8_t *)m;
	if (f->label == PROTOBUF_C_LABEL_REPEATED)
		return *(const size_t *)(const void *)(base + f->quantifier_offset);
	if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
		return *(const uint32_t *)(const void *)(base + f->quantifier_offset) == f->id;
	return f->type != PROTOBUF_C_TYPE_MESSAGE || *(void *const *)(const void *)(base + f->offset) != NULL;
}

static const void *value_at(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, size_t i)
{
	const uint8_t *at = (const uint8_t *)m + f->offset;
	return f->label == PROTOBUF_C_LABEL_REPEATED ? *(const uint8_t *const *)(const void *)at + i * size_of(f->type) : at;
}

void out_json(const struct out *o, const ProtobufCMessage *m, struct buf *ret)
{
	bool first = true;
	buf_append_byte(ret, '{');
	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		size_t len = values_len(m, f);
		bool list = f->label == PROTOBUF_C_LABEL_REPEATED;
		if (!list && len == 0)
			continue;
		buf_printf(ret, "%s\"%s\":%s", first ? "" : ",", f->name, list ? "[" : "");
		for (size_t k = 0; k < len; k++) {
			if (k)
				buf_append_byte(ret, ',');
			json_value(o, f, value_at(m, f, k), ret);
		}
		if (list)
			buf_append_byte(ret, ']');
		first = false;
	}
	buf_append_byte(ret, '}');
}

void out_fields(const struct out *o, const char *prefix, const ProtobufCMessage *m, struct buf *ret)
{
	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		size_t len = values_len(m, f);
		for (size_t k = 0; k < len; k++) {
			char name[256], number[24] = "";
			if (f->label == PROTOBUF_C_LABEL_REPEATED)
				snprintf(number, sizeof(number), ".%zu", k);
			snprintf(name, sizeof(name), "%s%s%s", prefix, f->name, number);
			if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
				snprintf(name + strlen(name), sizeof(name) - strlen(name), ".");
				out_fields(o, name, *(ProtobufCMessage *const *)value_at(m, f, k), ret);
				continue;
			}
			buf_printf(ret, "%s: ", name);
			json_value(o, f, value_at(m, f, k), ret);
			buf_append_byte(ret, '\n');
		}
	}
}

/* ---- tables by descriptor ---- */

static bool is_id(const ProtobufCFieldDescriptor *f)
{
	static const char *const ids[] = { "ID", "lease", "leader", "cluster_id", "member_id", "memberID" };
	if (size_of(f->type) != 8)
		return false;
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		if (strcmp(f->name, ids[i]) == 0)
			return true;
	}
	return false;
}

static void cell_value(const struct out *o, struct table *t, const ProtobufCFieldDescriptor *f, const void *at)
{
	struct buf b = { .ptr = NULL };
	if (is_id(f)) {
		table_cell(t, "%" PRIx64, *(const uint64_t *)at);
	} else if (f->type == PROTOBUF_C_TYPE_BYTES) {
		const ProtobufCBinaryData *d = at;
		table_cell_bytes(o, t, slice_of(d->data, d->len));
	} else if (f->type == PROTOBUF_C_TYPE_STRING) {
		const struct out plain = { .hex = false };
		table_cell_bytes(&plain, t, slice_of_str(*(char *const *)at ? *(char *const *)at : ""));
	} else {
		struct slice s;
		json_value(o, f, at, &b);
		s = buf_view(&b);
		if (s.len >= 2 && s.ptr[0] == '"')
			s = slice_of(s.ptr + 1, s.len - 2);
		table_cell(t, "%.*s", (int)s.len, (const char *)s.ptr);
	}
	buf_free(&b);
}

static void cell_list(const struct out *o, struct table *t, const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	struct buf b = { .ptr = NULL };
	size_t len = values_len(m, f);
	for (size_t i = 0; i < len; i++) {
		const void *at = value_at(m, f, i);
		if (i)
			buf_printf(&b, ", ");
		if (f->type == PROTOBUF_C_TYPE_STRING)
			buf_printf(&b, "%s", *(char *const *)at);
		else
			json_value(o, f, at, &b);
	}
	table_cell_bytes(&(struct out){ .hex = false }, t, buf_view(&b));
	buf_free(&b);
}

void table_head(struct table *t, const ProtobufCMessageDescriptor *d, const char *skip)
{
	for (unsigned i = 0; i < d->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &d->fields[i];
		if (skip && strcmp(f->name, skip) == 0)
			continue;
		if (f->type == PROTOBUF_C_TYPE_MESSAGE && f->label != PROTOBUF_C_LABEL_REPEATED)
			table_head(t, f->descriptor, skip);
		else
			table_cell(t, "%s", f->name);
	}
}

static void table_blank(struct table *t, const ProtobufCMessageDescriptor *d, const char *skip)
{
	for (unsigned i = 0; i < d->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &d->fields[i];
		if (skip && strcmp(f->name, skip) == 0)
			continue;
		if (f->type == PROTOBUF_C_TYPE_MESSAGE && f->label != PROTOBUF_C_LABEL_REPEATED)
			table_blank(t, f->descriptor, skip);
		else
			table_cell(t, "%s", "");
	}
}

void table_row(struct table *t, const struct out *o, const ProtobufCMessage *m, const char *skip)
{
	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		if (skip && strcmp(f->name, skip) == 0)
			continue;
		if (f->label == PROTOBUF_C_LABEL_REPEATED)
			cell_list(o, t, m, f);
		else if (f->type == PROTOBUF_C_TYPE_MESSAGE && values_len(m, f))
			table_row(t, o, *(ProtobufCMessage *const *)value_at(m, f, 0), skip);
		else if (f->type == PROTOBUF_C_TYPE_MESSAGE)
			table_blank(t, f->descriptor, skip);
		else if (values_len(m, f))
			cell_value(o, t, f, value_at(m, f, 0));
		else
			table_cell(t, "%s", "");
	}
}

static const ProtobufCFieldDescriptor *rows_field(const ProtobufCMessageDescriptor *d)
{
	for (unsigned i = 0; i < d->n_fields; i++) {
		if (d->fields[i].label == PROTOBUF_C_LABEL_REPEATED && d->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
			return &d->fields[i];
	}
	return NULL;
}

void table_of_message(const struct out *o, const ProtobufCMessage *m, struct buf *ret)
{
	const ProtobufCFieldDescriptor *f = rows_field(m->descriptor);
	struct table t = { .len = 0 };
	/* A reply that has nothing but its header shows that. */
	const char *skip = m->descriptor->n_fields > 1 ? "header" : NULL;
	table_head(&t, f ? f->descriptor : m->descriptor, skip);
	table_head_done(&t);
	if (f) {
		for (size_t i = 0; i < values_len(m, f); i++)
			table_row(&t, o, *(ProtobufCMessage *const *)value_at(m, f, i), skip);
	} else {
		table_row(&t, o, m, skip);
	}
	table_print(&t, ret);
	table_free(&t);
}

/* ---- standard output ---- */

bool out_message(const struct out *o, const ProtobufCMessage *m)
{
	struct buf b = { .ptr = NULL };
	if (o->format == OUTPUT_SIMPLE)
		return false;
	if (o->format == OUTPUT_JSON) {
		out_json(o, m, &b);
		buf_append_byte(&b, '\n');
	} else if (o->format == OUTPUT_FIELDS) {
		out_fields(o, "", m, &b);
	} else {
		table_of_message(o, m, &b);
	}
	out_write(&b);
	buf_free(&b);
	return true;
}

static int write_error; /* the first errno */

static void note_error(void)
{
	if (!write_error)
		write_error = errno;
}

void out_write(const struct buf *b)
{
	if (b->len && fwrite(b->ptr, 1, b->len, stdout) != b->len)
		note_error();
}

void out_printf(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	if (vprintf(fmt, ap) < 0)
		note_error();
	va_end(ap);
}

bool out_flush(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return true;
	note_error();
	return false;
}

int out_failed(void)
{
	if (write_error == EPIPE)
		return EXIT_SIGNAL + SIGPIPE;
	ctl_error("cannot write to standard output%s%s", write_error ? ": " : "", write_error ? strerror(write_error) : "");
	return EXIT_FAILED;
}
