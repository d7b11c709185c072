/* wire.c: see wire.h. A varint of more than ten bytes, a field number 0, a group and a length past the end are malformed. */
#include "wire.h"

static bool read_varint(struct wire *w, uint64_t *ret)
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

static bool read_fixed(struct wire *w, unsigned size)
{
	if ((size_t)(w->end - w->at) < size)
		return false;
	w->value = 0;
	for (unsigned i = 0; i < size; i++)
		w->value |= (uint64_t)w->at[i] << (8 * i);
	w->at += size;
	return true;
}

static bool read_bytes(struct wire *w)
{
	uint64_t len;

	if (!read_varint(w, &len) || len > (uint64_t)(w->end - w->at))
		return false;
	w->bytes = slice_of(w->at, (size_t)len);
	w->at += len;
	return true;
}

static bool read_value(struct wire *w)
{
	switch (w->type) {
	case WIRE_VARINT:
		return read_varint(w, &w->value);
	case WIRE_FIXED64:
		return read_fixed(w, 8);
	case WIRE_BYTES:
		return read_bytes(w);
	case WIRE_FIXED32:
		return read_fixed(w, 4);
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

uint64_t wire_u64(struct wire *w)
{
	if (w->type == WIRE_BYTES) {
		w->bad = true;
		return 0;
	}
	return w->value;
}

struct slice wire_bytes(struct wire *w)
{
	if (w->type != WIRE_BYTES) {
		w->bad = true;
		return (struct slice){ 0 };
	}
	return w->bytes;
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
