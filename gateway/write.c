/* write.c: packed protobuf to JSON: fields in the proto's order, default values left out, 64-bit integers as strings, bytes in base64,
 * enums by name, no space anywhere. */
#include "transcode.h"

#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/mem.h"
#include "json.h"

struct writer {
	struct buf *out;
	bool text;     /* bytes are written as text */
	bool not_text; /* some of them were no UTF-8 */
};

static void write_fields(struct writer *w, const ProtobufCMessage *m, bool first);

static void write_message(struct writer *w, const ProtobufCMessage *m)
{
	struct buf *out = w->out;
	buf_append_byte(out, '{');
	write_fields(w, m, true);
	buf_append_byte(out, '}');
}

static void write_number(struct buf *out, uint64_t magnitude, bool negative, bool quoted)
{
	char digits[24];
	size_t at = sizeof(digits);
	if (quoted)
		digits[--at] = '"';
	do
		digits[--at] = (char)('0' + magnitude % 10);
	while (magnitude /= 10);
	if (negative)
		digits[--at] = '-';
	if (quoted)
		digits[--at] = '"';
	buf_append(out, digits + at, sizeof(digits) - at);
}

static void write_signed(struct buf *out, int64_t v, bool quoted)
{
	write_number(out, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, v < 0, quoted);
}

static void write_enum(struct buf *out, const ProtobufCEnumDescriptor *desc, int v)
{
	const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(desc, v);
	if (value)
		json_quote(out, slice_of_str(value->name));
	else
		write_signed(out, v, false);
}

/* A snapshot is no text, whoever asks. */
static bool is_blob(const ProtobufCFieldDescriptor *f)
{
	return strcmp(f->name, "blob") == 0;
}

static void write_bytes(struct writer *w, const ProtobufCFieldDescriptor *f, struct slice bytes)
{
	if (w->text && !is_blob(f)) {
		w->not_text = w->not_text || !json_is_utf8(bytes);
		json_quote(w->out, bytes);
		return;
	}
	buf_append_byte(w->out, '"');
	base64_encode(w->out, bytes);
	buf_append_byte(w->out, '"');
}

/* at: the member of the struct, or an element of its list. */
static void write_value(struct writer *w, const ProtobufCFieldDescriptor *f, const void *at)
{
	struct buf *out = w->out;
	const ProtobufCBinaryData *bytes = at;
	switch (f->type) {
	case PROTOBUF_C_TYPE_INT32:
		write_signed(out, *(const int32_t *)at, false);
		break;
	case PROTOBUF_C_TYPE_UINT32:
		write_number(out, *(const uint32_t *)at, false, false);
		break;
	case PROTOBUF_C_TYPE_INT64:
		write_signed(out, *(const int64_t *)at, true);
		break;
	case PROTOBUF_C_TYPE_UINT64:
		write_number(out, *(const uint64_t *)at, false, true);
		break;
	case PROTOBUF_C_TYPE_BOOL:
		buf_append_slice(out, slice_of_str(*(const protobuf_c_boolean *)at ? "true" : "false"));
		break;
	case PROTOBUF_C_TYPE_ENUM:
		write_enum(out, f->descriptor, *(const int *)at);
		break;
	case PROTOBUF_C_TYPE_STRING:
		json_quote(out, slice_of_str(*(const char *const *)at ? *(const char *const *)at : ""));
		break;
	case PROTOBUF_C_TYPE_BYTES:
		write_bytes(w, f, slice_of(bytes->data, bytes->len));
		break;
	case PROTOBUF_C_TYPE_MESSAGE:
		write_message(w, *(const ProtobufCMessage *const *)at);
		break;
	default:
		ASSERT(!"a kind of field that the API does not use");
	}
}

static size_t element_size(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_UINT32:
		return sizeof(int32_t);
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_UINT64:
		return sizeof(int64_t);
	case PROTOBUF_C_TYPE_BOOL:
		return sizeof(protobuf_c_boolean);
	case PROTOBUF_C_TYPE_ENUM:
		return sizeof(int);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	default:
		return sizeof(void *);
	}
}

static bool is_default(const ProtobufCFieldDescriptor *f, const void *at)
{
	const char *text;
	switch (f->type) {
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_UINT64:
		return *(const uint64_t *)at == 0;
	case PROTOBUF_C_TYPE_BYTES:
		return ((const ProtobufCBinaryData *)at)->len == 0;
	case PROTOBUF_C_TYPE_MESSAGE:
		return !*(const void *const *)at;
	case PROTOBUF_C_TYPE_STRING:
		text = *(const char *const *)at;
		return !text || !*text;
	default:
		return *(const uint32_t *)at == 0;
	}
}

static void write_list(struct writer *w, const ProtobufCFieldDescriptor *f, const char *elements, size_t len)
{
	struct buf *out = w->out;
	size_t size = element_size(f);
	buf_append_byte(out, '[');
	for (size_t i = 0; i < len; i++) {
		if (i)
			buf_append_byte(out, ',');
		write_value(w, f, elements + i * size);
	}
	buf_append_byte(out, ']');
}

/* Whether the field is there to be seen. */
static bool is_present(const ProtobufCFieldDescriptor *f, const char *m)
{
	const void *quantifier = m + f->quantifier_offset;
	if (f->label == PROTOBUF_C_LABEL_REPEATED)
		return *(const size_t *)quantifier > 0;
	if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
		return *(const uint32_t *)quantifier == f->id && (f->type != PROTOBUF_C_TYPE_MESSAGE || !is_default(f, m + f->offset));
	return !is_default(f, m + f->offset);
}

static void write_fields(struct writer *w, const ProtobufCMessage *m, bool first)
{
	struct buf *out = w->out;
	const char *at = (const char *)m;
	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		if (!is_present(f, at))
			continue;
		if (!first)
			buf_append_byte(out, ',');
		first = false;
		buf_append_byte(out, '"');
		buf_append_slice(out, slice_of_str(f->name));
		buf_append(out, "\":", 2);
		if (f->label == PROTOBUF_C_LABEL_REPEATED)
			write_list(w, f, *(const char *const *)(const void *)(at + f->offset), *(const size_t *)(const void *)(at + f->quantifier_offset));
		else
			write_value(w, f, at + f->offset);
	}
}

static ProtobufCMessage *unpack(const ProtobufCMessageDescriptor *desc, struct slice bytes, struct arena *scratch)
{
	arena_clear(scratch);
	return protobuf_c_message_unpack(desc, &scratch->pb, bytes.len, bytes.ptr);
}

bool transcode_write(const ProtobufCMessageDescriptor *desc, struct slice bytes, struct arena *scratch, struct buf *out)
{
	struct writer w = { .out = out };
	const ProtobufCMessage *m = unpack(desc, bytes, scratch);
	if (m)
		write_message(&w, m);
	return m;
}

bool transcode_write_text(const ProtobufCMessageDescriptor *desc, struct slice bytes, struct arena *scratch, struct buf *out)
{
	struct writer w = { .out = out, .text = true };
	const ProtobufCMessage *m = unpack(desc, bytes, scratch);
	ASSERT(m);
	write_message(&w, m);
	return !w.not_text;
}

bool transcode_write_any(const ProtobufCMessageDescriptor *desc, struct slice bytes, struct arena *scratch, struct buf *out)
{
	struct writer w = { .out = out };
	const ProtobufCMessage *m = unpack(desc, bytes, scratch);
	if (!m)
		return false;
	buf_printf(out, "{\"@type\":\"type.googleapis.com/%s\"", desc->name);
	write_fields(&w, m, false);
	buf_append_byte(out, '}');
	return true;
}
