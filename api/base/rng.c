/* rng.c: xoshiro256** 1.0 (Blackman, Vigna: "Scrambled Linear Pseudorandom Number Generators"), seeded by splitmix64
 * as its authors advise: the state must not be all zeros, and near seeds must not give near streams.
 * A seed replays a simulation exactly, on any machine: no call may change how many numbers it draws. */
#include "base/rng.h"

#include "base/mem.h"

static uint64_t rotl(uint64_t x, unsigned n)
{
	return x << n | x >> (64 - n);
}

static uint64_t splitmix64(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

void rng_init(struct rng *r, uint64_t seed)
{
	for (size_t i = 0; i < 4; i++)
		r->s[i] = splitmix64(&seed);
}

uint64_t rng_next(struct rng *r)
{
	uint64_t *s = r->s;
	uint64_t result = rotl(s[1] * 5, 7) * 9;
	uint64_t shifted = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= shifted;
	s[3] = rotl(s[3], 45);
	return result;
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
	uint64_t surplus, x;

	ASSERT(n > 0);
	/* 2^64 mod n: as many draws are thrown away, so that the rest splits evenly into n classes */
	surplus = (0 - n) % n;
	do {
		x = rng_next(r);
	} while (x < surplus);
	return x % n;
}

uint64_t rng_between(struct rng *r, uint64_t lo, uint64_t hi)
{
	ASSERT(lo <= hi);
	if (hi - lo == UINT64_MAX)
		return rng_next(r);
	return lo + rng_below(r, hi - lo + 1);
}

bool rng_chance(struct rng *r, uint32_t per_million)
{
	return rng_below(r, 1000000) < per_million;
}
