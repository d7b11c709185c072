#include "records.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "core/lease/lease.h"
#include "core/lock/lock.h"
#include "core/store/store.h"

struct record {
	struct tree_record base;
	size_t key_len, padding;
	uint64_t number;
	uint8_t key[];
};

long records_alive;

struct tree_record *record_new(struct slice key, uint64_t number, size_t padding)
{
	struct record *r = mem_alloc(sizeof(*r) + key.len);

	r->base.refs = 1;
	r->key_len = key.len;
	r->padding = padding;
	r->number = number;
	if (key.len)
		memcpy(r->key, key.ptr, key.len);
	records_alive++;
	return &r->base;
}

static struct slice record_key(const struct tree_record *base)
{
	const struct record *r = (const struct record *)base;
	return slice_of(r->key, r->key_len);
}

static struct tree_record *record_clone(const struct tree_record *base)
{
	const struct record *r = (const struct record *)base;
	return record_new(record_key(base), r->number, r->padding);
}

static void record_free(struct tree_record *r)
{
	records_alive--;
	free(r);
}

static uint64_t record_hash(const struct tree_record *base)
{
	const struct record *r = (const struct record *)base;
	return hash64(hash64_u64(r->number, r->padding), r->key, r->key_len);
}

/* number (8 bytes), key length (1 byte), key, padding of 'p' */
static void record_encode(const struct tree_record *base, struct buf *out)
{
	const struct record *r = (const struct record *)base;

	for (unsigned i = 0; i < 8; i++)
		buf_append_byte(out, (uint8_t)(r->number >> (8 * i)));
	buf_append_byte(out, (uint8_t)r->key_len);
	buf_append_slice(out, record_key(base));
	for (size_t i = 0; i < r->padding; i++)
		buf_append_byte(out, 'p');
}

static enum err record_decode(struct slice bytes, struct tree_record **ret)
{
	uint64_t number = 0;
	size_t key_len;

	if (bytes.len < 9 || bytes.len - 9 < bytes.ptr[8])
		return ERR_CORRUPT;
	key_len = bytes.ptr[8];
	for (unsigned i = 0; i < 8; i++)
		number |= (uint64_t)bytes.ptr[i] << (8 * i);
	for (size_t i = 9 + key_len; i < bytes.len; i++)
		if (bytes.ptr[i] != 'p')
			return ERR_CORRUPT;
	*ret = record_new(slice_of(bytes.ptr + 9, key_len), number, bytes.len - 9 - key_len);
	return ERR_OK;
}

#define RECORD_TYPE(number, v)                                                                                                        \
	{                                                                                                                             \
		.section = (number), .version = (v), .key = record_key, .clone = record_clone, .free = record_free, .hash = record_hash, \
		.encode = record_encode, .decode = record_decode,                                                                     \
	}

const struct tree_type key_record_type = RECORD_TYPE(SECTION_KEYS, 3);
const struct tree_type lease_record_type = RECORD_TYPE(SECTION_LEASES, 1);
const struct tree_type contender_type = RECORD_TYPE(SECTION_CONTENDERS, 200);
