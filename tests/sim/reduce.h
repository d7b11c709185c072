/* reduce.h: which of many things a failure needs (delta debugging). */
#ifndef HOLDFAST_SIM_REDUCE_H
#define HOLDFAST_SIM_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reduce {
	bool (*fails)(void *ctx, const bool *out); /* whether it does with those things left out; false as well when nothing more may be tried */
	void *ctx;
	bool *out; /* of every thing there is; where it is set at the beginning it stays so */
};

/* Leaves out what it can of the things listed, half of them at a time, then quarters, and so on down to one by one. What is left is needed as far as single
 * ones go: leaving out any of them would have mended it, when it was tried. parts: not into more than so many at a time; 0: one by one in the end. True:
 * something went. */
bool reduce_things(struct reduce *r, const size_t *things, size_t len, size_t parts);

/* The smallest value between lo and hi with which it fails, as far as halving finds it, `steps` times at most; it fails with hi. */
uint64_t reduce_value(bool (*fails)(void *ctx, uint64_t value), void *ctx, uint64_t lo, uint64_t hi, unsigned steps);

#endif
