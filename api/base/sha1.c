/* sha1.c: SHA-1 as in FIPS 180-4. etcd derives its member and cluster IDs from it, which is all it is used for
 * here: nothing rests on its strength. Our own, because a crypto library has no place in the core. */
#include "base/hash.h"

static uint32_t rotl(uint32_t x, unsigned n)
{
	return x << n | x >> (32 - n);
}

static void sha1_block(uint32_t state[5], const uint8_t block[64])
{
	uint32_t w[80];
	uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];

	for (size_t t = 0; t < 16; t++)
		w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 | (uint32_t)block[4 * t + 2] << 8 |
		       (uint32_t)block[4 * t + 3];
	for (size_t t = 16; t < 80; t++)
		w[t] = rotl(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);

	for (size_t t = 0; t < 80; t++) {
		uint32_t f, k, next;

		if (t < 20) {
			f = (b & c) | (~b & d);
			k = 0x5a827999;
		} else if (t < 40) {
			f = b ^ c ^ d;
			k = 0x6ed9eba1;
		} else if (t < 60) {
			f = (b & c) | (b & d) | (c & d);
			k = 0x8f1bbcdc;
		} else {
			f = b ^ c ^ d;
			k = 0xca62c1d6;
		}
		next = rotl(a, 5) + f + e + k + w[t];
		e = d;
		d = c;
		c = rotl(b, 30);
		b = a;
		a = next;
	}
	state[0] += a;
	state[1] += b;
	state[2] += c;
	state[3] += d;
	state[4] += e;
}

void sha1(struct slice data, uint8_t ret_digest[20])
{
	uint32_t state[5] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 };
	uint8_t tail[128] = { 0 };
	uint64_t bits = (uint64_t)data.len * 8;
	size_t whole = data.len / 64 * 64;
	size_t rest = data.len - whole;
	size_t tail_len = rest < 56 ? 64 : 128;

	for (size_t at = 0; at < whole; at += 64)
		sha1_block(state, data.ptr + at);

	/* what is left, a one bit, zeros, and the length in bits */
	if (rest > 0)
		memcpy(tail, data.ptr + whole, rest);
	tail[rest] = 0x80;
	for (size_t i = 0; i < 8; i++)
		tail[tail_len - 1 - i] = (uint8_t)(bits >> (8 * i));
	for (size_t at = 0; at < tail_len; at += 64)
		sha1_block(state, tail + at);

	for (size_t i = 0; i < 20; i++)
		ret_digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}
