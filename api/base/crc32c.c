/* crc32c.c: the checksum of everything that goes to disk.
 *
 * Two ways to the same number: the CPU's own instruction, chosen at run time, and eight bytes a step by tables.
 * A CRC is linear over xor, so each table is given by its eight single-bit entries alone, and the compiler
 * works out the other 248: no start-up code, hence nothing to race on. */
#include "base/hash.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#define BIT(n, bit, basis) (((n) >> (bit)) & 1U ? (basis) : 0U)
#define ENTRY(n, a, b, c, d, e, f, g, h)                                                      \
	(BIT(n, 0, a) ^ BIT(n, 1, b) ^ BIT(n, 2, c) ^ BIT(n, 3, d) ^ BIT(n, 4, e) ^ BIT(n, 5, f) ^ \
	 BIT(n, 6, g) ^ BIT(n, 7, h))
#define ENTRIES_4(n, ...) \
	ENTRY((n), __VA_ARGS__), ENTRY((n) + 1U, __VA_ARGS__), ENTRY((n) + 2U, __VA_ARGS__), ENTRY((n) + 3U, __VA_ARGS__)
#define ENTRIES_16(n, ...) \
	ENTRIES_4((n), __VA_ARGS__), ENTRIES_4((n) + 4U, __VA_ARGS__), ENTRIES_4((n) + 8U, __VA_ARGS__), \
	ENTRIES_4((n) + 12U, __VA_ARGS__)
#define ENTRIES_64(n, ...) \
	ENTRIES_16((n), __VA_ARGS__), ENTRIES_16((n) + 16U, __VA_ARGS__), ENTRIES_16((n) + 32U, __VA_ARGS__), \
	ENTRIES_16((n) + 48U, __VA_ARGS__)
#define TABLE(...) \
	{ ENTRIES_64(0U, __VA_ARGS__), ENTRIES_64(64U, __VA_ARGS__), ENTRIES_64(128U, __VA_ARGS__), \
	  ENTRIES_64(192U, __VA_ARGS__) }

/* tables[k][n]: what byte n becomes once k more bytes have followed it. tables[0][128] is the polynomial, reversed. */
static const uint32_t tables[8][256] = {
	TABLE(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf,
	      0x105ec76f, 0x20bd8ede, 0x417b1dbc, 0x82f63b78),
	TABLE(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8,
	      0x3fc5f181, 0x7f8be302, 0xff17c604, 0xfbc3faf9),
	TABLE(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5,
	      0x70a27d8a, 0xe144fb14, 0xc76580d9, 0x8b277743),
	TABLE(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6,
	      0xe964b13d, 0xd725148b, 0xaba65fe7, 0x52a0c93f),
	TABLE(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91,
	      0x8f2261d3, 0x1ba8b557, 0x37516aae, 0x6ea2d55c),
	TABLE(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f,
	      0xc00c303e, 0x85f4168d, 0x0e045beb, 0x1c08b7d6),
	TABLE(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53,
	      0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a, 0xf56e0ef4),
	TABLE(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da,
	      0x847609b4, 0x0d006599, 0x1a00cb32, 0x34019664),
};

static uint32_t le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t crc32c_portable(uint32_t crc, const void *ptr, size_t len)
{
	const uint8_t *p = ptr;
	uint32_t c = ~crc;

	for (; len >= 8; p += 8, len -= 8) {
		uint32_t lo = le32(p) ^ c;
		uint32_t hi = le32(p + 4);
		c = tables[7][lo & 0xff] ^ tables[6][lo >> 8 & 0xff] ^ tables[5][lo >> 16 & 0xff] ^ tables[4][lo >> 24] ^
		    tables[3][hi & 0xff] ^ tables[2][hi >> 8 & 0xff] ^ tables[1][hi >> 16 & 0xff] ^ tables[0][hi >> 24];
	}
	for (; len > 0; p++, len--)
		c = c >> 8 ^ tables[0][(c ^ *p) & 0xff];
	return ~c;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const void *ptr, size_t len)
{
	const uint8_t *p = ptr;
	uint64_t c = (uint32_t)~crc;

	for (; len >= 8; p += 8, len -= 8) {
		uint64_t word;
		memcpy(&word, p, 8);
		c = _mm_crc32_u64(c, word);
	}
	for (; len > 0; p++, len--)
		c = _mm_crc32_u8((uint32_t)c, *p);
	return ~(uint32_t)c;
}
#endif

uint32_t crc32c(uint32_t crc, const void *ptr, size_t len)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2"))
		return crc32c_sse42(crc, ptr, len);
#endif
	return crc32c_portable(crc, ptr, len);
}
