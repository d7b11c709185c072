/* wire.c: see wire.h. A varint of more than ten bytes, a field number 0, a group and a length past the end are malformed. */
#include "wire.h"

#include <endian.h>

static bool read_long_varint(struct wire *w, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 70 && w->at < w->end; shift += 7) {
		uint8_t byte = *w->at++;

		if (shift < 64)
			v |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = v;
			return true;
		}
	}
	return false;
}

/* Most numbers, and nearly all tags and lengths, are one byte. */
static inline bool read_varint(struct wire *w, uint64_t *ret)
{
	if (w->at < w->end && *w->at < 0x80) {
		*ret = *w->at++;
		return true;
	}
	return read_long_varint(w, ret);
}

static inline bool read_fixed64(struct wire *w)
{
	if ((size_t)(w->end - w->at) < sizeof w->value)
		return false;
	memcpy(&w->value, w->at, sizeof w->value);
	w->value = le64toh(w->value);
	w->at += sizeof w->value;
	return true;
}

static bool read_fixed32(struct wire *w)
{
	uint32_t v;

	if ((size_t)(w->end - w->at) < sizeof v)
		return false;
	memcpy(&v, w->at, sizeof v);
	w->value = le32toh(v);
	w->at += sizeof v;
	return true;
}

static inline bool read_bytes(struct wire *w)
{
	uint64_t len;

	if (!read_varint(w, &len) || len > (uint64_t)(w->end - w->at))
		return false;
	w->bytes = slice_of(w->at, (size_t)len);
	w->at += len;
	return true;
}

static inline bool read_value(struct wire *w)
{
	switch (w->type) {
	case WIRE_VARINT:
		return read_varint(w, &w->value);
	case WIRE_FIXED64:
		return read_fixed64(w);
	case WIRE_BYTES:
		return read_bytes(w);
	case WIRE_FIXED32:
		return read_fixed32(w);
	}
	return false;
}

void wire_init(struct wire *w, struct slice bytes)
{
	memset(w, 0, sizeof *w);
	w->at = bytes.ptr;
	w->end = bytes.len ? bytes.ptr + bytes.len : bytes.ptr;
}

bool wire_next(struct wire *w)
{
	uint64_t tag;

	if (w->bad || w->at == w->end)
		return false;
	if (!read_varint(w, &tag) || tag > UINT32_MAX || tag >> 3 == 0) {
		w->bad = true;
		return false;
	}
	w->field = (uint32_t)(tag >> 3);
	w->type = (enum wire_type)(tag & 7);
	if (!read_value(w))
		w->bad = true;
	return !w->bad;
}

uint64_t wire_find_u64(struct slice bytes, uint32_t field, uint64_t fallback)
{
	struct wire w;
	uint64_t v = fallback;

	for (wire_init(&w, bytes); wire_next(&w);)
		if (w.field == field)
			v = wire_u64(&w);
	return w.bad ? fallback : v;
}

struct slice wire_find_bytes(struct slice bytes, uint32_t field)
{
	struct wire w;
	struct slice found = { 0 };

	for (wire_init(&w, bytes); wire_next(&w);)
		if (w.field == field)
			found = wire_bytes(&w);
	return w.bad ? (struct slice){ 0 } : found;
}

bool wire_take_varint(struct slice *s, int64_t *ret)
{
	uint64_t v = 0;

	for (unsigned i = 0, shift = 0; i < s->len && shift < 70; i++, shift += 7) {
		v |= shift < 64 ? (uint64_t)(s->ptr[i] & 0x7f) << shift : 0;
		if (!(s->ptr[i] & 0x80)) {
			*s = slice_of(s->ptr + i + 1, s->len - i - 1);
			*ret = (int64_t)v;
			return true;
		}
	}
	return false;
}
