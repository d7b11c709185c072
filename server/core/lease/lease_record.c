/* lease_record.c: the replicated record of one lease.
 *
 * Encoding, version 1: the ID and the TTL in seconds, 8 bytes each, big-endian. */
#include "internal.h"

#include <endian.h>

#include "base/hash.h"
#include "base/mem.h"

enum { LEASE_RECORD_VERSION = 1, LEASE_RECORD_BYTES = 16 };

static const struct lease_record *record_of(const struct tree_record *r)
{
	return (const struct lease_record *)(const void *)r;
}

struct lease_record *lease_record_new(lease_id id, int64_t ttl_s)
{
	struct lease_record *r = mem_zalloc(sizeof(*r));
	uint64_t be = htobe64((uint64_t)id);

	r->base.refs = 1;
	r->id = id;
	r->ttl_s = ttl_s;
	memcpy(r->key, &be, sizeof(be));
	return r;
}

static struct slice lease_record_key(const struct tree_record *r)
{
	return slice_of(record_of(r)->key, sizeof(record_of(r)->key));
}

static struct tree_record *lease_record_clone(const struct tree_record *r)
{
	return &lease_record_new(record_of(r)->id, record_of(r)->ttl_s)->base;
}

static void lease_record_free(struct tree_record *r)
{
	free(r);
}

static uint64_t lease_record_hash(const struct tree_record *r)
{
	return hash64_u64(hash64_u64(SECTION_LEASES, (uint64_t)record_of(r)->id), (uint64_t)record_of(r)->ttl_s);
}

static void lease_record_encode(const struct tree_record *r, struct buf *out)
{
	uint64_t ttl = htobe64((uint64_t)record_of(r)->ttl_s);

	buf_append(out, record_of(r)->key, sizeof(record_of(r)->key));
	buf_append(out, &ttl, sizeof(ttl));
}

static enum err lease_record_decode(struct slice bytes, struct tree_record **ret)
{
	uint64_t id, ttl;

	if (bytes.len != LEASE_RECORD_BYTES)
		return ERR_CORRUPT;
	memcpy(&id, bytes.ptr, sizeof(id));
	memcpy(&ttl, bytes.ptr + sizeof(id), sizeof(ttl));
	id = be64toh(id);
	ttl = be64toh(ttl);
	if (id == 0 || ttl == 0 || ttl > (uint64_t)LEASE_TTL_MAX_S)
		return ERR_CORRUPT;
	*ret = &lease_record_new((lease_id)id, (int64_t)ttl)->base;
	return ERR_OK;
}

const struct tree_type lease_record_type = {
	.section = SECTION_LEASES,
	.version = LEASE_RECORD_VERSION,
	.key = lease_record_key,
	.clone = lease_record_clone,
	.free = lease_record_free,
	.hash = lease_record_hash,
	.encode = lease_record_encode,
	.decode = lease_record_decode,
};
