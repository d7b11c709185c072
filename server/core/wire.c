/* wire.c: see wire.h. A varint of more than ten bytes, a field number 0, a group and a length past the end are malformed. */
#include "wire.h"

bool wire_long_varint(struct wire *w, uint64_t *ret)
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
