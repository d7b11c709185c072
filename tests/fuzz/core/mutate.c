/* mutate.c: ways to damage bytes; see driver.h. */
#include "base/mem.h"
#include "base/pbw.h"
#include "driver.h"

enum { ITEMS_MAX = 4096, DEPTH_MAX = 5 };

static uint64_t odd_number(struct rng *rng)
{
	static const uint64_t edges[] = { 0, 1, 2, 3, 7, 10, 127, 128, 255, 65535, 65536, INT32_MAX, UINT32_MAX, INT64_MAX, (uint64_t)INT64_MAX + 1,
					  UINT64_MAX - 1, UINT64_MAX };
	return rng_below(rng, 3) ? edges[rng_below(rng, sizeof(edges) / sizeof(edges[0]))] : rng_next(rng) >> rng_below(rng, 64);
}

static void splice(struct buf *b, size_t at, size_t cut, struct slice with)
{
	struct buf tail = buf_copy_of(slice_of(b->ptr + at + cut, b->len - at - cut));
	b->len = at;
	buf_append_slice(b, with);
	buf_append_slice(b, buf_view(&tail));
	buf_free(&tail);
}

void mutate_bytes(struct rng *rng, struct buf *b, struct slice other)
{
	size_t at = b->len ? rng_below(rng, b->len) : 0, left = b->len - at;
	uint8_t few[8];
	uint64_t v = odd_number(rng);
	memcpy(few, &v, 8);
	switch (rng_below(rng, 6)) {
	case 0:
		if (left)
			b->ptr[at] ^= (uint8_t)(1U << rng_below(rng, 8));
		break;
	case 1:
		splice(b, at, left ? 1 : 0, slice_of(few, 1));
		break;
	case 2:
		splice(b, at, 0, slice_of(few, 1 + rng_below(rng, 8)));
		break;
	case 3:
		splice(b, at, left ? rng_below(rng, left < 16 ? left : 16) : 0, slice_of(NULL, 0));
		break;
	case 4:
		if (rng_below(rng, 4) == 0)
			b->len = at;
		break;
	default:
		if (other.len) {
			size_t from = rng_below(rng, other.len), n = rng_below(rng, other.len - from);
			splice(b, at, left ? rng_below(rng, left) : 0, slice_of(other.ptr + from, n < 4096 ? n : 4096));
		}
	}
}

/* ---- messages ---- */

struct field {
	size_t begin, end; /* of all of it, tag included */
	uint64_t tag, value;
	struct slice bytes; /* of wire type 2 */
};

static bool varint(struct slice s, size_t *pos, uint64_t *ret)
{
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 64 && *pos < s.len; shift += 7) {
		uint8_t c = s.ptr[(*pos)++];
		v |= (uint64_t)(c & 0x7f) << shift;
		if (!(c & 0x80)) {
			*ret = v;
			return true;
		}
	}
	return false;
}

static bool next_field(struct slice s, size_t *pos, struct field *f)
{
	f->begin = *pos;
	f->bytes = slice_of(NULL, 0);
	if (!varint(s, pos, &f->tag) || f->tag >> 3 == 0)
		return false;
	switch (f->tag & 7) {
	case 0:
		if (!varint(s, pos, &f->value))
			return false;
		break;
	case 1:
		*pos += 8;
		break;
	case 5:
		*pos += 4;
		break;
	case 2:
		if (!varint(s, pos, &f->value) || f->value > s.len - *pos)
			return false;
		f->bytes = slice_of(s.ptr + *pos, (size_t)f->value);
		*pos += (size_t)f->value;
		break;
	default:
		return false;
	}
	f->end = *pos;
	return *pos <= s.len;
}

static size_t fields_of(struct slice s)
{
	struct field f;
	size_t pos = 0, n = 0;
	while (pos < s.len) {
		if (!next_field(s, &pos, &f))
			return 0;
		n++;
	}
	return n;
}

static void put_bytes(struct buf *out, uint64_t tag, struct slice bytes)
{
	pbw_varint(out, tag);
	pbw_varint(out, bytes.len);
	buf_append_slice(out, bytes);
}

static void damage(struct rng *rng, struct slice in, struct buf *out, int depth);

static void damage_field(struct rng *rng, struct slice s, const struct field *f, struct buf *out, int depth)
{
	struct slice whole = slice_of(s.ptr + f->begin, f->end - f->begin);
	struct buf inner = { .ptr = NULL };
	uint64_t v = odd_number(rng);
	switch (rng_below(rng, 12)) {
	case 0: /* left out */
		return;
	case 1: /* twice */
		buf_append_slice(out, whole);
		buf_append_slice(out, whole);
		return;
	case 2: /* another field */
		pbw_varint(out, (rng_below(rng, 20) << 3) | (f->tag & 7));
		buf_append(out, whole.ptr + pbw_varint_size(f->tag), whole.len - pbw_varint_size(f->tag));
		return;
	default:
		break;
	}
	if ((f->tag & 7) == 0) {
		pbw_varint(out, f->tag);
		pbw_varint(out, rng_below(rng, 2) ? f->value + rng_below(rng, 5) - 2 : v);
	} else if ((f->tag & 7) == 1) {
		pbw_varint(out, f->tag);
		buf_append(out, &v, 8);
	} else if ((f->tag & 7) == 2 && depth < DEPTH_MAX && fields_of(f->bytes) && rng_below(rng, 8)) {
		damage(rng, f->bytes, &inner, depth + 1);
		put_bytes(out, f->tag, buf_view(&inner));
	} else if ((f->tag & 7) == 2) {
		inner = buf_copy_of(f->bytes);
		mutate_bytes(rng, &inner, slice_of(NULL, 0));
		put_bytes(out, f->tag, buf_view(&inner));
	} else {
		buf_append_slice(out, whole);
	}
	buf_free(&inner);
}

/* Copies the message with one field damaged. */
static void damage(struct rng *rng, struct slice in, struct buf *out, int depth)
{
	size_t n = fields_of(in), chosen = n ? rng_below(rng, n) : 0, pos = 0;
	struct field f;
	for (size_t i = 0; i < n && next_field(in, &pos, &f); i++) {
		if (i == chosen)
			damage_field(rng, in, &f, out, depth);
		else
			buf_append(out, in.ptr + f.begin, f.end - f.begin);
	}
}

void mutate_message(struct rng *rng, struct buf *b)
{
	struct buf out = { .ptr = NULL };
	if (!fields_of(buf_view(b)) || rng_below(rng, 16) == 0) {
		mutate_bytes(rng, b, slice_of(NULL, 0));
		return;
	}
	damage(rng, buf_view(b), &out, 0);
	buf_free(b);
	*b = out;
}

/* ---- items ---- */

void item_add(struct buf *b, uint8_t op, struct slice bytes)
{
	size_t len = bytes.len < 65535 ? bytes.len : 65535;
	buf_append_byte(b, op);
	buf_append_byte(b, (uint8_t)len);
	buf_append_byte(b, (uint8_t)(len >> 8));
	buf_append(b, bytes.ptr, len);
}

bool item_next(struct slice s, size_t *pos, struct item *ret)
{
	size_t len;
	if (*pos >= s.len || s.len - *pos < 3)
		return false;
	ret->op = s.ptr[*pos];
	len = s.ptr[*pos + 1] | (size_t)s.ptr[*pos + 2] << 8;
	*pos += 3;
	if (len > s.len - *pos)
		len = s.len - *pos;
	ret->bytes = slice_of(s.ptr + *pos, len);
	*pos += len;
	return true;
}

static size_t items_of(struct slice s, struct item *items)
{
	size_t pos = 0, n = 0;
	while (n < ITEMS_MAX && item_next(s, &pos, &items[n]))
		n++;
	return n;
}

static void add_damaged(struct rng *rng, struct buf *out, const struct item *it)
{
	struct buf copy = buf_copy_of(it->bytes);
	uint8_t op = it->op;
	if (rng_below(rng, 16) == 0)
		op = (uint8_t)rng_next(rng);
	else if (copy.len > 1 && rng_below(rng, 2)) { /* the message may stand behind a byte of its own */
		struct buf tail = buf_copy_of(slice_of(copy.ptr + 1, copy.len - 1));
		mutate_message(rng, &tail);
		copy.len = 1;
		buf_append_slice(&copy, buf_view(&tail));
		buf_free(&tail);
	} else
		mutate_message(rng, &copy);
	item_add(out, op, buf_view(&copy));
	buf_free(&copy);
}

void mutate_items(struct rng *rng, struct buf *b, struct slice other)
{
	struct item *items = mem_alloc(2 * ITEMS_MAX * sizeof(*items)), *others = items + ITEMS_MAX;
	size_t n = items_of(buf_view(b), items), m = items_of(other, others);
	size_t chosen = n ? rng_below(rng, n) : 0;
	uint64_t what = rng_below(rng, 8);
	struct buf out = { .ptr = NULL };
	for (size_t i = 0; i < n; i++) {
		if (i != chosen) {
			item_add(&out, items[i].op, items[i].bytes);
			continue;
		}
		if (what >= 4)
			add_damaged(rng, &out, &items[i]);
		if (what == 1 || what == 2)
			item_add(&out, items[i].op, items[i].bytes);
		if (what == 2)
			item_add(&out, items[rng_below(rng, n)].op, items[rng_below(rng, n)].bytes);
		if (what == 3 && m) {
			const struct item *o = &others[rng_below(rng, m)];
			item_add(&out, o->op, o->bytes);
		}
	}
	buf_free(b);
	*b = out;
	free(items);
}
