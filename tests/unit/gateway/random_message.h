/* random_message.h: messages of any kind, filled by chance. */
#ifndef HOLDFAST_TESTS_RANDOM_MESSAGE_H
#define HOLDFAST_TESTS_RANDOM_MESSAGE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/rng.h"

/* Packed, as protobuf-c packs it. Nested to a few levels; strings are UTF-8 without a NUL. */
struct buf random_packed(struct rng *rng, const ProtobufCMessageDescriptor *desc);

#endif
