/* pbw.c: writes protobuf by hand. Fields must be written in ascending order to match what protobuf-c packs. */
#include "base/pbw.h"

#include <endian.h>

#include "base/mem.h"

enum { VARINT_MAX = 10, TAG_MAX = 5 };

static uint8_t *put_varint(uint8_t *at, uint64_t v)
{
	while (v >= 0x80) {
		*at++ = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	*at++ = (uint8_t)v;
	return at;
}

static uint8_t *put_tag(uint8_t *at, uint32_t field, ProtobufCWireType wire_type)
{
	return put_varint(at, (uint64_t)field << 3 | (uint64_t)wire_type);
}

static void set_end(struct buf *b, const uint8_t *end)
{
	b->len = (size_t)(end - b->ptr);
}

size_t pbw_varint_size(uint64_t v)
{
	/* seven bits a byte, and zero takes one byte too */
	return (size_t)(63 - __builtin_clzll(v | 1)) / 7 + 1;
}

void pbw_varint(struct buf *b, uint64_t v)
{
	buf_reserve(b, VARINT_MAX);
	set_end(b, put_varint(b->ptr + b->len, v));
}

void pbw_u64_always(struct buf *b, uint32_t field, uint64_t v)
{
	uint8_t *at;

	buf_reserve(b, TAG_MAX + VARINT_MAX);
	at = put_tag(b->ptr + b->len, field, PROTOBUF_C_WIRE_TYPE_VARINT);
	set_end(b, put_varint(at, v));
}

void pbw_u64(struct buf *b, uint32_t field, uint64_t v)
{
	if (v != 0)
		pbw_u64_always(b, field, v);
}

void pbw_i64(struct buf *b, uint32_t field, int64_t v)
{
	pbw_u64(b, field, (uint64_t)v);
}

void pbw_fixed64(struct buf *b, uint32_t field, uint64_t v)
{
	uint8_t *at;

	if (v == 0)
		return;
	buf_reserve(b, TAG_MAX + 8);
	at = put_tag(b->ptr + b->len, field, PROTOBUF_C_WIRE_TYPE_64BIT);
	v = htole64(v);
	memcpy(at, &v, sizeof v);
	set_end(b, at + sizeof v);
}

void pbw_bytes_always(struct buf *b, uint32_t field, struct slice s)
{
	uint8_t *at;

	buf_reserve(b, TAG_MAX + VARINT_MAX + s.len);
	at = put_tag(b->ptr + b->len, field, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
	at = put_varint(at, s.len);
	if (s.len > 0)
		memcpy(at, s.ptr, s.len);
	set_end(b, at + s.len);
}

void pbw_bytes(struct buf *b, uint32_t field, struct slice s)
{
	if (s.len > 0)
		pbw_bytes_always(b, field, s);
}

size_t pbw_open(struct buf *b, uint32_t field)
{
	uint8_t *at;

	buf_reserve(b, TAG_MAX + 1);
	at = put_tag(b->ptr + b->len, field, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
	*at++ = 0; /* the length, if it turns out to fit one byte, as most do */
	set_end(b, at);
	return b->len;
}

void pbw_close(struct buf *b, size_t mark)
{
	size_t len, prefix;

	ASSERT(mark > 0 && mark <= b->len);
	len = b->len - mark;
	prefix = pbw_varint_size(len);
	if (prefix > 1) {
		buf_reserve(b, prefix - 1);
		memmove(b->ptr + mark + prefix - 1, b->ptr + mark, len);
		b->len += prefix - 1;
	}
	put_varint(b->ptr + mark - 1, len);
}
