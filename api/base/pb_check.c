/* pb_check.c: is it safe to hand these bytes to protobuf-c?
 *
 * protobuf-c unpacks by recursion without a limit: 30 KB of nested messages overflow a stack of 8 MB. So the shape is
 * walked first, with a stack of our own that ends at max_depth.
 *   (P1) what passes here unpacks, or lacks a proto2 `required` field: wire types and lengths are judged as
 *        protobuf-c judges them, or more strictly.
 *   (P2) no byte outside of the message at hand is read.
 * Stricter than protobuf-c: field number 0 in any spelling, tags beyond 32 bits, bools that are not varints. */
#include <limits.h>

#include "base/mem.h"
#include "base/pbw.h"

/* A message being walked; the ones around it wait on the stack. */
struct frame {
	const ProtobufCMessageDescriptor *desc;
	const uint8_t *end;
};

struct tag {
	uint32_t field;
	ProtobufCWireType wire_type;
};

enum { TAG_MAX = 5, LENGTH_MAX = 5, VARINT_MAX = 10 };

/* Reads a varint of at most `max_len` bytes (bits beyond 64 are dropped, as every decoder does).
 * Returns how many bytes it has; 0: cut short or too long. */
static size_t read_varint(const uint8_t *at, const uint8_t *end, size_t max_len, uint64_t *ret_v)
{
	size_t room = (size_t)(end - at);
	uint64_t v = 0;

	if (room > max_len)
		room = max_len;
	for (size_t i = 0; i < room; i++) {
		v |= (uint64_t)(at[i] & 0x7f) << (7 * i);
		if (!(at[i] & 0x80)) {
			*ret_v = v;
			return i + 1;
		}
	}
	return 0;
}

static size_t read_tag(const uint8_t *at, const uint8_t *end, struct tag *ret_tag)
{
	uint64_t v;
	size_t size = read_varint(at, end, TAG_MAX, &v);

	if (size == 0 || v > UINT32_MAX || v >> 3 == 0)
		return 0;
	*ret_tag = (struct tag){ .field = (uint32_t)(v >> 3), .wire_type = (ProtobufCWireType)(v & 7) };
	return size;
}

/* The bytes of a field's value without the length prefix, which ends at *at on return. false: malformed. */
static bool read_value(const uint8_t **at, const uint8_t *end, ProtobufCWireType wire_type, size_t *ret_len)
{
	size_t room = (size_t)(end - *at);
	uint64_t v;
	size_t size;

	switch (wire_type) {
	case PROTOBUF_C_WIRE_TYPE_VARINT:
		*ret_len = read_varint(*at, end, VARINT_MAX, &v);
		return *ret_len > 0;
	case PROTOBUF_C_WIRE_TYPE_64BIT:
		*ret_len = 8;
		return room >= 8;
	case PROTOBUF_C_WIRE_TYPE_32BIT:
		*ret_len = 4;
		return room >= 4;
	case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
		size = read_varint(*at, end, LENGTH_MAX, &v);
		if (size == 0 || v > INT_MAX || v > room - size)
			return false;
		*at += size;
		*ret_len = (size_t)v;
		return true;
	default: /* groups, and two numbers nobody uses */
		return false;
	}
}

static ProtobufCWireType wire_type_of(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		return PROTOBUF_C_WIRE_TYPE_32BIT;
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return PROTOBUF_C_WIRE_TYPE_64BIT;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_BOOL:
	case PROTOBUF_C_TYPE_ENUM:
	default:
		return PROTOBUF_C_WIRE_TYPE_VARINT;
	}
}

static bool packed_is_whole(const uint8_t *at, size_t len, ProtobufCWireType element)
{
	const uint8_t *end = at + len;

	if (element == PROTOBUF_C_WIRE_TYPE_32BIT)
		return len % 4 == 0;
	if (element == PROTOBUF_C_WIRE_TYPE_64BIT)
		return len % 8 == 0;
	while (at < end) {
		uint64_t v;
		size_t size = read_varint(at, end, VARINT_MAX, &v);

		if (size == 0)
			return false;
		at += size;
	}
	return true;
}

/* May this value go into this field? Repeated numbers come one by one or packed, whatever the schema says. */
static bool value_fits(const ProtobufCFieldDescriptor *field, ProtobufCWireType wire_type, const uint8_t *at, size_t len)
{
	ProtobufCWireType want = wire_type_of(field->type);

	if (wire_type == want)
		return true;
	return field->label == PROTOBUF_C_LABEL_REPEATED && wire_type == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED &&
	       packed_is_whole(at, len, want);
}

enum pb_check pb_check(const ProtobufCMessageDescriptor *desc, struct slice bytes, unsigned max_depth)
{
	struct frame outer[PB_CHECK_DEPTH_MAX];
	struct frame cur = { .desc = desc };
	const uint8_t *at = bytes.ptr;
	unsigned depth = 0;

	ASSERT(max_depth <= PB_CHECK_DEPTH_MAX);
	if (bytes.len == 0)
		return PB_CHECK_OK;
	cur.end = at + bytes.len;

	for (;;) {
		const ProtobufCFieldDescriptor *field;
		struct tag tag;
		size_t size, len;

		if (at == cur.end) {
			if (depth == 0)
				return PB_CHECK_OK;
			cur = outer[--depth];
			continue;
		}
		size = read_tag(at, cur.end, &tag);
		if (size == 0)
			return PB_CHECK_MALFORMED;
		at += size;
		if (!read_value(&at, cur.end, tag.wire_type, &len))
			return PB_CHECK_MALFORMED;

		field = protobuf_c_message_descriptor_get_field(cur.desc, tag.field);
		if (field && !value_fits(field, tag.wire_type, at, len))
			return PB_CHECK_MALFORMED;
		if (!field || field->type != PROTOBUF_C_TYPE_MESSAGE) {
			at += len;
			continue;
		}
		if (depth == max_depth)
			return PB_CHECK_TOO_DEEP;
		outer[depth++] = cur;
		cur = (struct frame){ .desc = field->descriptor, .end = at + len };
	}
}
