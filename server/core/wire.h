/* wire.h: reads protobuf field by field, without copying and without allocating. For envelopes that pass by the thousand, and for bytes
 * from outside: nothing is read past the end, whatever is in them.
 *
 *	for (wire_init(&w, bytes); wire_next(&w);)
 *		switch (w.field) { case 1: term = wire_u64(&w); break; ... }
 *	if (w.bad) ... cut short, or a field of another type than asked for */
#ifndef HOLDFAST_CORE_WIRE_H
#define HOLDFAST_CORE_WIRE_H

#include <endian.h>

#include "base/slice.h"

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct wire {
	const uint8_t *at, *end;
	bool bad;
	uint32_t field;
	enum wire_type type;
	uint64_t value;     /* of numbers */
	struct slice bytes; /* lent by what is read */
};

static inline void wire_init(struct wire *w, struct slice bytes)
{
	memset(w, 0, sizeof *w);
	w->at = bytes.ptr;
	w->end = bytes.len ? bytes.ptr + bytes.len : bytes.ptr;
}

bool wire_long_varint(struct wire *w, uint64_t *ret); /* of wire_varint alone */

/* Most numbers, and nearly all tags and lengths, are one byte. */
static inline bool wire_varint(struct wire *w, uint64_t *ret)
{
	if (w->at < w->end && *w->at < 0x80) {
		*ret = *w->at++;
		return true;
	}
	return wire_long_varint(w, ret);
}

static inline bool wire_value(struct wire *w)
{
	size_t left;
	uint64_t len;
	uint32_t half;

	if (w->type == WIRE_VARINT)
		return wire_varint(w, &w->value);
	if (w->type == WIRE_BYTES && !wire_varint(w, &len))
		return false;
	left = (size_t)(w->end - w->at);
	switch (w->type) {
	case WIRE_BYTES:
		if (len > left)
			return false;
		w->bytes = slice_of(w->at, (size_t)len);
		w->at += len;
		return true;
	case WIRE_FIXED64:
		if (left < sizeof w->value)
			return false;
		memcpy(&w->value, w->at, sizeof w->value);
		w->value = le64toh(w->value);
		w->at += sizeof w->value;
		return true;
	case WIRE_FIXED32:
		if (left < sizeof half)
			return false;
		memcpy(&half, w->at, sizeof half);
		w->value = le32toh(half);
		w->at += sizeof half;
		return true;
	case WIRE_VARINT: break;
	}
	return false;
}

static inline bool wire_next(struct wire *w) /* false at the end and once bad */
{
	uint64_t tag;

	if (w->bad || w->at == w->end)
		return false;
	if (!wire_varint(w, &tag) || tag > UINT32_MAX || tag >> 3 == 0) {
		w->bad = true;
		return false;
	}
	w->field = (uint32_t)(tag >> 3);
	w->type = (enum wire_type)(tag & 7);
	w->bad = !wire_value(w);
	return !w->bad;
}

/* The field's value; of another type: bad. Numbers take any number type, since both ends are ours and may differ in age. */
static inline uint64_t wire_u64(struct wire *w)
{
	if (w->type == WIRE_BYTES) {
		w->bad = true;
		return 0;
	}
	return w->value;
}

static inline int64_t wire_i64(struct wire *w)
{
	return (int64_t)wire_u64(w);
}

static inline struct slice wire_bytes(struct wire *w)
{
	if (w->type != WIRE_BYTES) {
		w->bad = true;
		return (struct slice){ 0 };
	}
	return w->bytes;
}

/* A field of `bytes` read alone: the number of its last occurrence, or fallback. */
uint64_t wire_find_u64(struct slice bytes, uint32_t field, uint64_t fallback);
struct slice wire_find_bytes(struct slice bytes, uint32_t field); /* empty when absent */

/* A bare number in front of what is left; false: cut short. */
bool wire_take_varint(struct slice *s, int64_t *ret);

#endif
