/* random_message.c: see random_message.h. */
#include "random_message.h"

#include <string.h>

#include "base/mem.h"

enum { DEPTH_MAX = 4, LIST_MAX = 3, TEXT_MAX = 40 };

static ProtobufCMessage *make(struct rng *rng, const ProtobufCMessageDescriptor *desc, struct arena *a, int depth);

static uint64_t random_u64(struct rng *rng)
{
	static const uint64_t edges[] = { 0, 1, 127, 128, INT32_MAX, UINT32_MAX, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX };
	return rng_below(rng, 2) ? edges[rng_below(rng, sizeof(edges) / sizeof(edges[0]))] : rng_next(rng) >> rng_below(rng, 64);
}

static char *random_text(struct rng *rng, struct arena *a)
{
	static const char *const pieces[] = { "a", "<", "&", "\"", "\\", "/", "\n", "\x01", "\x7f", "\xc2\x80", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xef\xbf\xbd", "\xf0\x9f\x98\x80", "\xed\x9f\xbf" };
	char *text = arena_zalloc(a, TEXT_MAX * 4 + 1);
	for (uint64_t n = rng_below(rng, TEXT_MAX); n; n--)
		strcat(text, pieces[rng_below(rng, sizeof(pieces) / sizeof(pieces[0]))]);
	return text;
}

static ProtobufCBinaryData random_bytes(struct rng *rng, struct arena *a)
{
	ProtobufCBinaryData b = { .len = rng_below(rng, TEXT_MAX) };
	b.data = arena_alloc(a, b.len + 1);
	for (size_t i = 0; i < b.len; i++)
		b.data[i] = (uint8_t)rng_next(rng);
	return b;
}

static void fill_value(struct rng *rng, const ProtobufCFieldDescriptor *f, void *at, struct arena *a, int depth)
{
	const ProtobufCEnumDescriptor *e = f->descriptor;
	switch (f->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_UINT32:
		*(uint32_t *)at = (uint32_t)random_u64(rng);
		break;
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_UINT64:
		*(uint64_t *)at = random_u64(rng);
		break;
	case PROTOBUF_C_TYPE_BOOL:
		*(protobuf_c_boolean *)at = (protobuf_c_boolean)rng_below(rng, 2);
		break;
	case PROTOBUF_C_TYPE_ENUM: /* now and then a number without a name */
		*(int *)at = rng_below(rng, 8) ? e->values[rng_below(rng, e->n_values)].value : (int)(uint32_t)random_u64(rng);
		break;
	case PROTOBUF_C_TYPE_STRING:
		*(char **)at = random_text(rng, a);
		break;
	case PROTOBUF_C_TYPE_BYTES:
		*(ProtobufCBinaryData *)at = random_bytes(rng, a);
		break;
	case PROTOBUF_C_TYPE_MESSAGE:
		*(ProtobufCMessage **)at = make(rng, f->descriptor, a, depth + 1);
		break;
	default:
		ASSERT(!"a kind of field that the API does not use");
	}
}

static size_t size_of(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_UINT64:
		return 8;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	default:
		return 4;
	}
}

static void fill_list(struct rng *rng, const ProtobufCFieldDescriptor *f, char *m, struct arena *a, int depth)
{
	size_t n = rng_below(rng, LIST_MAX + 1), size = size_of(f);
	char *elements = arena_zalloc(a, (n + 1) * size);
	for (size_t i = 0; i < n; i++)
		fill_value(rng, f, elements + i * size, a, depth);
	*(size_t *)(void *)(m + f->quantifier_offset) = n;
	*(void **)(void *)(m + f->offset) = elements;
}

static ProtobufCMessage *make(struct rng *rng, const ProtobufCMessageDescriptor *desc, struct arena *a, int depth)
{
	char *m = arena_zalloc(a, desc->sizeof_message);
	desc->message_init((ProtobufCMessage *)(void *)m);
	for (unsigned i = 0; i < desc->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &desc->fields[i];
		if (rng_below(rng, 3) == 0 || (f->type == PROTOBUF_C_TYPE_MESSAGE && depth >= DEPTH_MAX))
			continue;
		if (f->label == PROTOBUF_C_LABEL_REPEATED) {
			fill_list(rng, f, m, a, depth);
			continue;
		}
		if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
			uint32_t *which = (uint32_t *)(void *)(m + f->quantifier_offset);
			if (*which)
				continue;
			*which = f->id;
		}
		fill_value(rng, f, m + f->offset, a, depth);
	}
	return (ProtobufCMessage *)(void *)m;
}

struct buf random_packed(struct rng *rng, const ProtobufCMessageDescriptor *desc)
{
	struct arena a;
	struct buf out = { .ptr = NULL };
	const ProtobufCMessage *m;
	arena_init(&a);
	m = make(rng, desc, &a, 0);
	buf_reserve(&out, protobuf_c_message_get_packed_size(m) + 1);
	out.len = protobuf_c_message_pack(m, out.ptr);
	arena_deinit(&a);
	return out;
}
