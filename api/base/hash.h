/* hash.h: checksums and hashes. crc32c guards bytes on disk, sha1 derives etcd's IDs, sha256 ends a backup, hash64 sums up states. */
#ifndef HOLDFAST_BASE_HASH_H
#define HOLDFAST_BASE_HASH_H

#include "base/slice.h"

/* CRC-32C (Castagnoli), as iSCSI and ext4 use it; start with crc 0. Uses the CPU's instruction where there is one. */
uint32_t crc32c(uint32_t crc, const void *ptr, size_t len);    /* a crc continues where it ended */
uint32_t crc32c_portable(uint32_t crc, const void *ptr, size_t len); /* the same without that instruction; for tests */
void sha1(struct slice data, uint8_t ret_digest[20]);

#define SHA256_BYTES 32
struct sha256 {
	uint32_t state[8];
	uint64_t len;      /* bytes so far */
	uint8_t block[64]; /* the last len % 64 of them */
};
void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, struct slice data);
void sha256_end(struct sha256 *s, uint8_t ret_digest[SHA256_BYTES]); /* nothing may be added after it */

/* A fast 64-bit hash, the same on every machine and release: part of the state hash that replicas compare.
 * Not for adversaries. */
uint64_t hash64(uint64_t seed, const void *ptr, size_t len);
uint64_t hash64_u64(uint64_t seed, uint64_t value);

#endif
