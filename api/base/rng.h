/* rng.h: a seeded, portable random source (xoshiro256** seeded by splitmix64). Not for secrets. */
#ifndef HOLDFAST_BASE_RNG_H
#define HOLDFAST_BASE_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct rng {
	uint64_t s[4];
};

void rng_init(struct rng *r, uint64_t seed);
uint64_t rng_next(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t n);                  /* uniform in [0, n); n > 0 */
uint64_t rng_between(struct rng *r, uint64_t lo, uint64_t hi);  /* uniform in [lo, hi] */
bool rng_chance(struct rng *r, uint32_t per_million);

#endif
