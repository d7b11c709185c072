#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "suites.h"

/* RFC 3720, B.4, and the customary check value */
START_TEST(crc32c__known_values)
{
	uint8_t bytes[32];

	ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xe3069283);
	ck_assert_uint_eq(crc32c_portable(0, "123456789", 9), 0xe3069283);
	ck_assert_uint_eq(crc32c(0, NULL, 0), 0);
	memset(bytes, 0, 32);
	ck_assert_uint_eq(crc32c(0, bytes, 32), 0x8a9136aa);
	memset(bytes, 0xff, 32);
	ck_assert_uint_eq(crc32c(0, bytes, 32), 0x62a8ab43);
	for (size_t i = 0; i < 32; i++)
		bytes[i] = (uint8_t)i;
	ck_assert_uint_eq(crc32c(0, bytes, 32), 0x46dd794e);
	for (size_t i = 0; i < 32; i++)
		bytes[i] = (uint8_t)(31 - i);
	ck_assert_uint_eq(crc32c(0, bytes, 32), 0x113fdb5c);
}
END_TEST

static uint32_t crc32c_by_bits(const uint8_t *p, size_t len)
{
	uint32_t c = 0xffffffff;

	for (size_t i = 0; i < len; i++) {
		c ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			c = c & 1 ? c >> 1 ^ 0x82f63b78 : c >> 1;
	}
	return ~c;
}

START_TEST(crc32c__both_ways_agree_at_any_length_and_place)
{
	uint8_t bytes[300];
	struct rng r;

	rng_init(&r, 1);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)rng_next(&r);
	for (size_t from = 0; from < 9; from++) {
		for (size_t len = 0; len + from <= sizeof(bytes); len++) {
			uint32_t want = crc32c_by_bits(bytes + from, len);

			ck_assert_uint_eq(crc32c(0, bytes + from, len), want);
			ck_assert_uint_eq(crc32c_portable(0, bytes + from, len), want);
		}
	}
}
END_TEST

START_TEST(crc32c__continues_where_it_ended)
{
	const char *text = "the quick brown fox jumps over the lazy dog";
	size_t len = strlen(text);

	for (size_t cut = 0; cut <= len; cut++) {
		ck_assert_uint_eq(crc32c(crc32c(0, text, cut), text + cut, len - cut), crc32c(0, text, len));
		ck_assert_uint_eq(crc32c_portable(crc32c_portable(0, text, cut), text + cut, len - cut), crc32c(0, text, len));
	}
}
END_TEST

static const struct {
	const char *text; /* or, when NULL, `len` times the letter x */
	size_t len;
	const char *want;
} digests[] = {
	{ "", 0, "da39a3ee5e6b4b0d3255bfef95601890afd80709" },
	{ "abc", 3, "a9993e364706816aba3e25717850c26c9cd0d89d" },
	{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, "84983e441c3bd26ebaae4aa1f95129e5e54670f1" },
	{ NULL, 55, "cef734ba81a024479e09eb5a75b6ddae62e6abf1" },
	{ NULL, 56, "901305367c259952f4e7af8323f480d59f81335b" },
	{ NULL, 63, "0ddc4e0cccd9a12850deb5abb0853a4425559fec" },
	{ NULL, 64, "bb2fa3ee7afb9f54c6dfb5d021f14b1ffe40c163" },
	{ NULL, 65, "78c741ddc482e4cdf8c474a0876347a0905b6233" },
	{ NULL, 119, "4300320394f7ee239bcdce7d3b8bcee173a0cd5c" },
	{ NULL, 120, "ceb2821639c4b6dcb10bce0e522ca2e608ce056d" },
	{ NULL, 128, "150fa3fbdc899bd0b8f95a9fb6027f564d953762" },
	{ NULL, 1000, "c3efa690fa3fdd2e2526853eed670538ea127638" },
};

START_TEST(sha1__known_digests)
{
	char x[1000], hex[41];
	uint8_t digest[20];

	memset(x, 'x', sizeof(x));
	sha1(slice_of(digests[_i].text ? digests[_i].text : x, digests[_i].len), digest);
	for (size_t i = 0; i < 20; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	ck_assert_str_eq(hex, digests[_i].want);
}
END_TEST

/* Seed 42 over the bytes 0, 1, 2, ...: fixed forever, replicas of all releases compare these. */
static const struct {
	size_t len;
	uint64_t want;
} pinned[] = {
	{ 0, 0x1a1f0df95c48c12c },
	{ 1, 0xd7400a4e11843b5e },
	{ 3, 0x89ebe56011a17ff9 },
	{ 4, 0xc26e25d7d5945a9a },
	{ 7, 0xab54c321a4697c85 },
	{ 8, 0xd5337390312a72b6 },
	{ 15, 0x67a122fc34c446fd },
	{ 16, 0x61df8ceb8c51f077 },
	{ 17, 0xe4542fcf9ad6eec8 },
	{ 63, 0xbebb39acb7dcbd96 },
	{ 64, 0x331b19b896ea432b },
	{ 65, 0x16df743bc3173f15 },
	{ 100, 0xe8d4eaac4cde4dbc },
	{ 200, 0x37c64b5d3eb447a5 },
	{ 256, 0x9c1d78e55975fc98 },
};

START_TEST(hash64__values_never_change)
{
	uint8_t bytes[256];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)i;
	ck_assert_uint_eq(hash64(42, bytes, pinned[_i].len), pinned[_i].want);
}
END_TEST

START_TEST(hash64__of_a_number_never_changes)
{
	ck_assert_uint_eq(hash64_u64(0, 0), 0x48218226ff3cd4bf);
	ck_assert_uint_eq(hash64_u64(7, 12345), 0x891ab65f9738cd72);
}
END_TEST

START_TEST(hash64__does_not_care_where_bytes_lie)
{
	uint8_t bytes[400];
	struct rng r;

	rng_init(&r, 1);
	for (size_t len = 0; len < 300; len++) {
		uint8_t copy[300];

		for (size_t i = 0; i < len; i++)
			copy[i] = bytes[len % 16 + i] = (uint8_t)rng_next(&r);
		ck_assert_uint_eq(hash64(1, bytes + len % 16, len), hash64(1, copy, len));
	}
}
END_TEST

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void assert_all_differ(uint64_t *hashes, size_t len)
{
	qsort(hashes, len, sizeof(*hashes), by_value);
	for (size_t i = 1; i < len; i++)
		ck_assert_uint_ne(hashes[i - 1], hashes[i]);
}

START_TEST(hash64__near_inputs_differ)
{
	enum { MANY = 300 * 8 + 300 + 300 };
	uint64_t *hashes = mem_alloc(MANY * sizeof(*hashes));
	uint8_t bytes[300] = { 0 };
	size_t at = 0;

	for (size_t len = 0; len < 300; len++) /* zeros of every length */
		hashes[at++] = hash64(0, bytes, len);
	for (size_t bit = 0; bit < 300 * 8; bit++) { /* a single bit set */
		bytes[bit / 8] = (uint8_t)(1 << bit % 8);
		hashes[at++] = hash64(0, bytes, 300);
		bytes[bit / 8] = 0;
	}
	for (uint64_t seed = 1; seed <= 300; seed++)
		hashes[at++] = hash64(seed, bytes, 300);
	ck_assert_uint_eq(at, MANY);
	assert_all_differ(hashes, at);
	free(hashes);
}
END_TEST

/* Every input bit moves about half of the output bits, at every length with a path of its own. */
START_TEST(hash64__avalanches)
{
	static const size_t lens[] = { 1, 3, 4, 8, 11, 16, 24, 64, 100 };
	enum { ROUNDS = 200 };
	struct rng r;

	rng_init(&r, 3);
	for (size_t l = 0; l < sizeof(lens) / sizeof(lens[0]); l++) {
		for (size_t bit = 0; bit < lens[l] * 8; bit++) {
			int flips = 0;

			for (int round = 0; round < ROUNDS; round++) {
				uint8_t bytes[100];
				uint64_t before;

				for (size_t i = 0; i < lens[l]; i++)
					bytes[i] = (uint8_t)rng_next(&r);
				before = hash64(0, bytes, lens[l]);
				bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
				flips += __builtin_popcountll(before ^ hash64(0, bytes, lens[l]));
			}
			ck_assert_int_gt(flips, ROUNDS * 29);
			ck_assert_int_lt(flips, ROUNDS * 35);
		}
	}
}
END_TEST

START_TEST(hash64__of_numbers_fills_tables_evenly)
{
	static int buckets[1024];

	for (int shift = 0; shift <= 48; shift += 16) {
		int fullest = 0;

		memset(buckets, 0, sizeof(buckets));
		for (uint64_t i = 0; i < 10240; i++)
			if (++buckets[hash64_u64(0, i << shift) % 1024] > fullest)
				fullest = buckets[hash64_u64(0, i << shift) % 1024];
		ck_assert_int_lt(fullest, 30); /* ten on average */
	}
}
END_TEST

Suite *hash_suite(void)
{
	Suite *s = suite_create("hash");
	TCase *tc = tcase_create("hash");

	tcase_add_test(tc, crc32c__known_values);
	tcase_add_test(tc, crc32c__both_ways_agree_at_any_length_and_place);
	tcase_add_test(tc, crc32c__continues_where_it_ended);
	tcase_add_loop_test(tc, sha1__known_digests, 0, (int)(sizeof(digests) / sizeof(digests[0])));
	tcase_add_loop_test(tc, hash64__values_never_change, 0, (int)(sizeof(pinned) / sizeof(pinned[0])));
	tcase_add_test(tc, hash64__of_a_number_never_changes);
	tcase_add_test(tc, hash64__does_not_care_where_bytes_lie);
	tcase_add_test(tc, hash64__near_inputs_differ);
	tcase_add_test(tc, hash64__avalanches);
	tcase_add_test(tc, hash64__of_numbers_fills_tables_evenly);
	suite_add_tcase(s, tc);
	return s;
}
