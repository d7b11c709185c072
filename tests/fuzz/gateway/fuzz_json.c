/* fuzz_json.c: JSON that was damaged, through the scanner and the transcoder of every method. fuzz_json [rounds [seed]]
 *
 * Whatever comes: no crash, and what is read as a message is one: it passes pb_check, unpacks, is written as JSON, and that reads as the same. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/pbw.h"
#include "base/rng.h"
#include "gateway/json.h"
#include "gateway/transcode.h"
#include "methods.h"
#include "random_message.h"
#include "support/scale.h"

static const char *const pieces[] = {
	"{", "}", "[", "]", ",", ":", "\"", "\\", "\\u", "\\ud83d", "null", "true", "-", "0", "1e9", ".", "9223372036854775808", "\"key\":", "\"ID\":", "{\"success\":[",
	"{\"request_txn\":", "\xff", "\xed\xa0\x80", "=", "==", "\n", " ", "\"a\"", "\"PUT\"", "[1,2,300]", "\"Zm9v\"", "\x00\x01",
};

static void damage(struct rng *rng, struct buf *text)
{
	for (uint64_t n = rng_below(rng, 4) + 1; n; n--) {
		size_t at = text->len ? rng_below(rng, text->len) : 0;
		const char *piece = pieces[rng_below(rng, sizeof(pieces) / sizeof(pieces[0]))];
		struct buf tail = buf_copy_of(slice_of(text->ptr + at, text->len - at));
		size_t cut = tail.len ? rng_below(rng, tail.len < 8 ? tail.len + 1 : 8) : 0;
		text->len = at;
		if (rng_below(rng, 2))
			buf_append_slice(text, slice_of_str(piece));
		else
			buf_append_byte(text, (uint8_t)rng_next(rng));
		if (rng_below(rng, 16))
			buf_append(text, tail.ptr + cut, tail.len - cut);
		buf_free(&tail);
	}
}

static void check_message(const ProtobufCMessageDescriptor *desc, struct slice packed, struct arena *scratch)
{
	struct buf text = { .ptr = NULL }, again = { .ptr = NULL };
	struct errmsg em;
	struct slice value;
	ASSERT(pb_check(desc, packed, PB_CHECK_DEPTH_MAX) == PB_CHECK_OK);
	ASSERT(transcode_write(desc, packed, scratch, &text));
	ASSERT(json_whole(buf_view(&text), &value, &em));
	ASSERT(transcode_read(desc, value, &again, &em) == ERR_OK);
	buf_free(&text);
	buf_free(&again);
}

/* True: it was a message. */
static bool feed(const ProtobufCMessageDescriptor *desc, struct slice body, struct arena *scratch)
{
	/* A copy of its very size: the sanitizer then sees every step too far. */
	struct slice exact = slice_of(memcpy(mem_alloc(body.len + 1), body.ptr, body.len), body.len);
	struct buf packed = { .ptr = NULL };
	struct errmsg em;
	struct slice value;
	size_t pos = 0;
	bool any = false;
	uint8_t *end = mem_realloc((void *)(uintptr_t)exact.ptr, body.len ? body.len : 1);
	exact.ptr = end;
	while (json_scan(exact, &pos, &value, &em) == JSON_VALUE) {
		buf_clear(&packed);
		if (transcode_read(desc, value, &packed, &em))
			continue;
		any = true;
		check_message(desc, buf_view(&packed), scratch);
	}
	buf_free(&packed);
	free(end);
	return any;
}

int main(int argc, char **argv)
{
	uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : test_scaled(20000), good = 0;
	struct rng rng;
	struct arena scratch;
	rng_init(&rng, argc > 2 ? strtoull(argv[2], NULL, 10) : 1);
	arena_init(&scratch);
	for (uint64_t i = 0; i < rounds; i++) {
		const struct method *m = method_by_id((enum method_id)rng_below(&rng, METHOD_COUNT));
		const ProtobufCMessageDescriptor *desc = rng_below(&rng, 4) ? m->request : m->reply;
		struct buf packed = random_packed(&rng, desc), text = { .ptr = NULL };
		ASSERT(transcode_write(desc, buf_view(&packed), &scratch, &text));
		damage(&rng, &text);
		good += feed(desc, buf_view(&text), &scratch);
		buf_free(&packed);
		buf_free(&text);
	}
	arena_deinit(&scratch);
	printf("%llu damaged bodies, %llu of them still messages\n", (unsigned long long)rounds, (unsigned long long)good);
	return EXIT_SUCCESS;
}
