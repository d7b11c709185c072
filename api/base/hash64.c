/* hash64.c: a fast hash whose values never change.
 *
 * Sixteen bytes a step: two words are multiplied to 128 bits and the halves xored ("folded"). Long inputs run four
 * independent lanes, so that the multiplier never waits for itself. Words are read as little-endian everywhere.
 * Replicas of different builds compare these values: whoever changes one bit of the output breaks them. The unit
 * test pins values. Keys are the fractional digits of square roots of small primes (as in SHA-512). */
#include "base/hash.h"

static const uint64_t k[6] = {
	0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
	0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
};

static inline uint64_t le64(const uint8_t *p)
{
	uint64_t word;

	memcpy(&word, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	word = __builtin_bswap64(word);
#endif
	return word;
}

static inline uint64_t le32(const uint8_t *p)
{
	uint32_t word;

	memcpy(&word, p, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	word = __builtin_bswap32(word);
#endif
	return word;
}

static inline uint64_t rotl(uint64_t x, unsigned n)
{
	return x << n | x >> (64 - n);
}

static inline uint64_t fold(uint64_t a, uint64_t b)
{
#if defined(__SIZEOF_INT128__)
	__extension__ unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
	uint64_t ll = (a & 0xffffffff) * (b & 0xffffffff);
	uint64_t lh = (a & 0xffffffff) * (b >> 32);
	uint64_t hl = (a >> 32) * (b & 0xffffffff);
	uint64_t mid = (ll >> 32) + (lh & 0xffffffff) + (hl & 0xffffffff);
	uint64_t high = (a >> 32) * (b >> 32) + (lh >> 32) + (hl >> 32) + (mid >> 32);

	return (mid << 32 | (ll & 0xffffffff)) ^ high;
#endif
}

/* A product with zero forgets its other factor, so the state also goes around the multiplication. */
static inline uint64_t step(uint64_t h, uint64_t a, uint64_t b, uint64_t key)
{
	return rotl(h, 29) + fold(h ^ a, b ^ key);
}

/* The last 0..15 bytes. Reads may overlap; the length, mixed in at the end, tells such inputs apart. */
static inline uint64_t step_tail(uint64_t h, const uint8_t *p, size_t len)
{
	if (len >= 8)
		return step(h, le64(p), le64(p + len - 8), k[2]);
	if (len >= 4)
		return step(h, le32(p), le32(p + len - 4), k[2]);
	if (len > 0)
		return step(h, (uint64_t)p[0] | (uint64_t)p[len / 2] << 8 | (uint64_t)p[len - 1] << 16, 0, k[2]);
	return h;
}

uint64_t hash64(uint64_t seed, const void *ptr, size_t len)
{
	const uint8_t *p = ptr;
	size_t left = len;
	uint64_t h = seed ^ k[0];

	if (left >= 64) {
		uint64_t h1 = h ^ k[3], h2 = h ^ k[4], h3 = h ^ k[5];

		for (; left >= 64; p += 64, left -= 64) {
			h = step(h, le64(p), le64(p + 8), k[1]);
			h1 = step(h1, le64(p + 16), le64(p + 24), k[3]);
			h2 = step(h2, le64(p + 32), le64(p + 40), k[4]);
			h3 = step(h3, le64(p + 48), le64(p + 56), k[5]);
		}
		h = step(step(h, h1, h2, k[3]), h3, h1, k[4]);
	}
	for (; left >= 16; p += 16, left -= 16)
		h = step(h, le64(p), le64(p + 8), k[1]);
	h = step_tail(h, p, left);
	h = step(h, (uint64_t)len, h, k[5]);
	return fold(h ^ k[4], rotl(h, 32) ^ k[3]);
}

/* The finaliser of splitmix64: a bijection of 64 bits in which every input bit moves about half of the output. */
static inline uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

uint64_t hash64_u64(uint64_t seed, uint64_t value)
{
	return mix(mix(seed + 0x9e3779b97f4a7c15) ^ value);
}
