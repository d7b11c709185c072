/* codec.c: how things look on disk.
 *
 * All integers are little-endian. (The pages of LMDB around them are not portable between byte orders; backups go
 * through snapshots.) A CRC covers what it is stored under as well as what is stored, so that one record can never be
 * read in another one's place. Asked twice, on two paths: computed before bytes go down, compared when they come back. */
#include "internal.h"

#include "base/hash.h"
#include "base/mem.h"

void put_u32(uint8_t *p, uint32_t v)
{
	for (unsigned i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

void put_u64(uint8_t *p, uint64_t v)
{
	for (unsigned i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

uint32_t get_u32(const uint8_t *p)
{
	uint32_t v = 0;
	for (unsigned i = 0; i < 4; i++)
		v |= (uint32_t)p[i] << (8 * i);
	return v;
}

uint64_t get_u64(const uint8_t *p)
{
	uint64_t v = 0;
	for (unsigned i = 0; i < 8; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

void enc_u64(struct buf *b, uint64_t v)
{
	uint8_t bytes[8];
	put_u64(bytes, v);
	buf_append(b, bytes, sizeof bytes);
}

void enc_bytes(struct buf *b, struct slice s)
{
	enc_u64(b, s.len);
	buf_append_slice(b, s);
}

static struct slice take(struct decoder *d, uint64_t len)
{
	if (d->bad || d->rest.len < len) {
		d->bad = true;
		return (struct slice){ 0 };
	}
	struct slice s = slice_of(d->rest.ptr, (size_t)len);
	d->rest = slice_of(d->rest.ptr + len, d->rest.len - (size_t)len);
	return s;
}

uint64_t dec_u64(struct decoder *d)
{
	struct slice s = take(d, 8);
	return d->bad ? 0 : get_u64(s.ptr);
}

struct slice dec_bytes(struct decoder *d)
{
	return take(d, dec_u64(d));
}

bool dec_done(const struct decoder *d)
{
	return !d->bad && d->rest.len == 0;
}

static uint32_t crc_numbered(uint64_t number, const uint8_t *ptr, size_t len)
{
	uint8_t key[8];
	put_u64(key, number);
	return crc32c(crc32c(0, key, sizeof key), ptr, len);
}

void entry_encode(const struct storage_entry *en, uint8_t *ret_value)
{
	put_u64(ret_value + 4, en->term);
	ret_value[12] = en->kind;
	if (en->payload.len)
		memcpy(ret_value + ENTRY_HEADER, en->payload.ptr, en->payload.len);
	put_u32(ret_value, crc_numbered(en->index, ret_value + 4, ENTRY_HEADER - 4 + en->payload.len));
}

bool entry_decode(uint64_t index, MDB_val value, struct storage_entry *ret)
{
	const uint8_t *p = value.mv_data;
	if (value.mv_size < ENTRY_HEADER || get_u32(p) != crc_numbered(index, p + 4, value.mv_size - 4))
		return false;
	ret->index = index;
	ret->term = get_u64(p + 4);
	ret->kind = p[12];
	ret->payload = slice_of(p + ENTRY_HEADER, value.mv_size - ENTRY_HEADER);
	return true;
}

void chunk_encode(uint64_t number, struct slice chunk, uint8_t *ret_value)
{
	put_u32(ret_value, crc_numbered(number, chunk.ptr, chunk.len));
	if (chunk.len)
		memcpy(ret_value + CHUNK_HEADER, chunk.ptr, chunk.len);
}

bool chunk_decode(uint64_t number, MDB_val value, struct slice *ret)
{
	const uint8_t *p = value.mv_data;
	if (value.mv_size < CHUNK_HEADER)
		return false;
	struct slice chunk = slice_of(p + CHUNK_HEADER, value.mv_size - CHUNK_HEADER);
	if (get_u32(p) != crc_numbered(number, chunk.ptr, chunk.len))
		return false;
	*ret = chunk;
	return true;
}
