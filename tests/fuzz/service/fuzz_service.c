/* fuzz_service.c: any bytes as a call of any method. Asserts (S1) of server/service: one finish, nothing after it; and that what gets to the node unpacks.
 *
 * Input: a byte for the method, then messages, each a byte of length and what it says (the last takes all that is left when the length is 255); a
 * length of 0 is an action: writable, half close or cancel in turn. Built for libFuzzer with clang; by itself it mutates messages of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "null_node.h"
#include "service/service.h"
#include "support/scale.h"

struct fuzz_call {
	struct service_call call;
	bool finished;
	size_t replies;
};

static void on_reply(struct service_call *call, struct buf *messages)
{
	struct fuzz_call *c = CONTAINER_OF(call, struct fuzz_call, call);
	ASSERT(!c->finished);
	c->replies++;
	buf_free(messages);
}

static void on_finish(struct service_call *call, enum err e, const char *detail, struct slice details)
{
	struct fuzz_call *c = CONTAINER_OF(call, struct fuzz_call, call);
	ASSERT(!c->finished);
	ASSERT((unsigned)e < ERR_COUNT);
	ASSERT(!detail || detail[0]);
	ASSERT(details.len == 0 || e);
	c->finished = true;
}

static const struct service_ops ops = { on_reply, on_finish, NULL };

static void metadata(struct service_call *c, struct slice value)
{
	static const char *const names[] = { "holdfast-session", "holdfast-request", "holdfast-first-unanswered", "hasleader", "token" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		service_metadata(c, slice_of_str(names[i]), value);
}

static void act(struct fuzz_call *c, unsigned n)
{
	switch (n % 5) {
	case 0:
		if (c->replies && !c->finished) {
			c->replies--;
			service_writable(&c->call);
		}
		break;
	case 1:
	case 2:
		null_node_settle(false);
		break;
	case 3:
		service_half_close(&c->call);
		break;
	default:
		service_cancel(&c->call);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct service_limits limits = { .max_txn_ops = 16, .max_request_bytes = 4096 };
	static struct service *s;
	struct fuzz_call c;
	unsigned actions = 0;
	if (size == 0)
		return 0;
	if (!s)
		s = service_new(NULL, &limits);
	memset(&c, 0, sizeof(c));
	c.call.ops = &ops;
	c.call.method = method_by_id((enum method_id)(data[0] % METHOD_COUNT));
	metadata(&c.call, slice_of(data, size < 24 ? size : 24));
	c.call.need_leader = data[0] & 0x80;
	service_start(s, &c.call);
	for (size_t at = 1; at < size;) {
		size_t len = data[at++];
		if (len == 0) {
			act(&c, actions++);
			continue;
		}
		if (len == 255 || len > size - at)
			len = size - at;
		service_message(&c.call, slice_of(data + at, len));
		at += len;
	}
	service_cancel(&c.call);
	null_node_settle(true);
	ASSERT(c.finished);
	service_end(&c.call);
	return 0;
}

#ifndef FUZZ_WITH_LIBFUZZER

/* A message that is mostly in order: fields of the descriptor with values at random, nested a little. */
static void random_message(struct rng *rng, const ProtobufCMessageDescriptor *d, unsigned depth, uint8_t *out, size_t *len, size_t max)
{
	for (unsigned n = (unsigned)rng_below(rng, 4); n && d->n_fields && *len + 20 < max; n--) {
		const ProtobufCFieldDescriptor *f = &d->fields[rng_below(rng, d->n_fields)];
		bool sized = f->type == PROTOBUF_C_TYPE_BYTES || f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_MESSAGE;
		size_t length_at;
		if (f->id < 16)
			out[(*len)++] = (uint8_t)(f->id << 3 | (sized ? 2 : 0));
		else {
			out[(*len)++] = (uint8_t)((f->id << 3 | (sized ? 2U : 0U)) | 0x80);
			out[(*len)++] = (uint8_t)(f->id >> 4);
		}
		if (!sized) {
			out[(*len)++] = (uint8_t)rng_below(rng, 128);
			continue;
		}
		length_at = (*len)++;
		if (f->type == PROTOBUF_C_TYPE_MESSAGE && depth < 5)
			random_message(rng, f->descriptor, depth + 1, out, len, max);
		else if (rng_chance(rng, 700000))
			out[(*len)++] = (uint8_t)('a' + rng_below(rng, 3));
		out[length_at] = (uint8_t)(*len - length_at - 1);
	}
}

static size_t random_input(struct rng *rng, uint8_t *out, size_t max)
{
	size_t len = 0;
	out[len++] = (uint8_t)rng_next(rng);
	while (rng_chance(rng, 800000) && len + 140 < max) {
		size_t length_at = len++, end;
		if (rng_chance(rng, 400000)) {
			out[length_at] = 0;
			continue;
		}
		random_message(rng, method_by_id((enum method_id)(out[0] % METHOD_COUNT))->request, 0, out, &len, length_at + 128);
		end = len - length_at - 1;
		out[length_at] = (uint8_t)(end ? end : 0);
	}
	for (uint64_t n = rng_chance(rng, 500000) ? 0 : rng_below(rng, 6); n; n--)
		out[rng_below(rng, len)] = (uint8_t)rng_next(rng);
	return len;
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : test_scaled(1000000);
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	uint8_t *input = mem_alloc(2048);
	struct rng rng;
	rng_init(&rng, seed);
	for (unsigned long i = 0; i < rounds; i++) {
		size_t len = random_input(&rng, input, 2048);
		/* Of its very length, so that a read past its end is seen. */
		uint8_t *exact = mem_alloc(len);
		memcpy(exact, input, len);
		LLVMFuzzerTestOneInput(exact, len);
		free(exact);
	}
	free(input);
	printf("%lu calls\n", rounds);
	return 0;
}

#endif
