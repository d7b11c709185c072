/* wire.h: reads protobuf field by field, without copying and without allocating. For envelopes that pass by the thousand, and for bytes
 * from outside: nothing is read past the end, whatever is in them.
 *
 *	for (wire_init(&w, bytes); wire_next(&w);)
 *		switch (w.field) { case 1: term = wire_u64(&w); break; ... }
 *	if (w.bad) ... cut short, or a field of another type than asked for */
#ifndef HOLDFAST_CORE_WIRE_H
#define HOLDFAST_CORE_WIRE_H

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

void wire_init(struct wire *w, struct slice bytes);
bool wire_next(struct wire *w); /* false at the end and once bad */

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
