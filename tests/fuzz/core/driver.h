/* driver.h: a fuzz target is a plain function of bytes. By itself a program replays the files it is given and then damages its own seeds, always in the
 * same way; built with -DFUZZ_WITH_LIBFUZZER (clang), libFuzzer does it. */
#ifndef HOLDFAST_TESTS_FUZZ_DRIVER_H
#define HOLDFAST_TESTS_FUZZ_DRIVER_H

#include "base/buf.h"
#include "base/rng.h"

struct fuzz_corpus {
	struct buf *at;
	size_t len;
};

struct fuzz_target {
	const char *name;
	int (*run)(const uint8_t *data, size_t size);
	void (*seeds)(struct fuzz_corpus *c);
	/* Damages *b in place; other: another input, to take pieces of. */
	void (*mutate)(struct rng *rng, struct buf *b, struct slice other);
	uint64_t rounds; /* when the command line names none; HOLDFAST_TEST_SCALE applies */
};

/* Each program defines its own. */
extern const struct fuzz_target fuzz_target;

void corpus_add(struct fuzz_corpus *c, struct slice bytes);

/* ---- ways to damage bytes ---- */

void mutate_bytes(struct rng *rng, struct buf *b, struct slice other); /* of no known form */
void mutate_message(struct rng *rng, struct buf *b);                   /* protobuf: one field, at any depth, keeps the rest in order */
/* A row of items: a byte, a length (16 bits, little-endian), that many bytes. Moves items about, or damages one's bytes as a message. */
void mutate_items(struct rng *rng, struct buf *b, struct slice other);

struct item {
	uint8_t op;
	struct slice bytes;
};
void item_add(struct buf *b, uint8_t op, struct slice bytes);           /* cut at 65535 bytes */
bool item_next(struct slice s, size_t *pos, struct item *ret);          /* a last one that is cut short has what is there */

#endif
