/* requests.c: bytes as a request or reply of every method. What passes pb_check unpacks, and what is unpacked packs. Input: a byte for the method (the
 * highest bit: its reply), then the message. */
#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "driver.h"
#include "methods.h"
#include "random_message.h"

static int fuzz_requests(const uint8_t *data, size_t size)
{
	const struct method *m;
	const ProtobufCMessageDescriptor *d;
	ProtobufCMessage *pb;
	struct arena a;
	if (!size)
		return 0;
	m = method_by_id((enum method_id)((data[0] & 0x7f) % METHOD_COUNT));
	/* protobuf-c does not merge a message that comes twice when a oneof in it is text; these alone have such, and are never unpacked. */
	if (m->id == METHOD_REFLECTION_V1 || m->id == METHOD_REFLECTION_V1ALPHA)
		return 0;
	d = data[0] & 0x80 ? m->reply : m->request;
	if (pb_check(d, slice_of(data + 1, size - 1), 16) != PB_CHECK_OK)
		return 0;
	arena_init(&a);
	pb = protobuf_c_message_unpack(d, &a.pb, size - 1, data + 1);
	ASSERT(pb != NULL);
	uint8_t *out = arena_alloc(&a, protobuf_c_message_get_packed_size(pb) + 1);
	size_t len = protobuf_c_message_pack(pb, out);
	ASSERT(pb_check(d, slice_of(out, len), 16) == PB_CHECK_OK);
	arena_deinit(&a);
	return 0;
}

static void mutate(struct rng *rng, struct buf *b, struct slice other)
{
	struct buf tail = buf_copy_of(slice_of(b->ptr + (b->len > 0), b->len - (b->len > 0)));
	uint8_t method = b->len ? b->ptr[0] : 0;
	if (rng_below(rng, 4))
		mutate_message(rng, &tail);
	else
		mutate_bytes(rng, &tail, other);
	buf_clear(b);
	buf_append_byte(b, method);
	buf_append_slice(b, buf_view(&tail));
	buf_free(&tail);
}

static void seeds(struct fuzz_corpus *c)
{
	struct rng rng;
	rng_init(&rng, 1);
	for (unsigned i = 0; i < 4 * METHOD_COUNT; i++) {
		const struct method *m = method_by_id((enum method_id)(i % METHOD_COUNT));
		struct buf packed = random_packed(&rng, i % 4 == 3 ? m->reply : m->request), b = { .ptr = NULL };
		buf_append_byte(&b, (uint8_t)(i % METHOD_COUNT | (i % 4 == 3 ? 0x80U : 0)));
		buf_append_slice(&b, buf_view(&packed));
		corpus_add(c, buf_view(&b));
		buf_free(&packed);
		buf_free(&b);
	}
}

const struct fuzz_target fuzz_target = { "requests", fuzz_requests, seeds, mutate, 600000 };
