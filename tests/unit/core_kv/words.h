/* words.h: the lines of world.h as protobuf messages. */
#ifndef HOLDFAST_TEST_CORE_KV_WORDS_H
#define HOLDFAST_TEST_CORE_KV_WORDS_H

#include "base/arena.h"

struct words {
	const char *at;
	struct arena *arena;
};

const ProtobufCMessage *words_request(struct words *w); /* in the arena */

#endif
