/* key_record.c: a key with its versions, as a record of the tree of keys.
 *
 * Most keys have one version, so it is held without an array; the array comes with the second and goes again when compaction leaves
 * one. A version is one allocation and is never changed, so records that were cloned for a view share the versions themselves.
 *
 *   (R1) versions rise strictly by (mod_revision, sub), and len >= 1.
 *   (R2) hash is the sum of the versions' hashes; each covers every field and byte of its version, so the sum is independent of how
 *        the versions came here.
 *   (R3) of a record that a view can reach nothing is written, and of its versions only the count, by the core's thread: who reads a view
 *        never touches kv.refs. */
#include "store_internal.h"

#include "base/hash.h"
#include "base/mem.h"

static uint64_t le64(uint64_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	return __builtin_bswap64(v);
#else
	return v;
#endif
}

struct kv_words kv_words(const struct kv *kv)
{
	return (struct kv_words){ {
		le64((uint64_t)kv->key_len << 32 | kv->value_len), le64(kv->sub), le64((uint64_t)kv->create_revision),
		le64((uint64_t)kv->mod_revision), le64((uint64_t)kv->version), le64((uint64_t)kv->lease),
	} };
}

uint64_t kv_hash(const struct kv *kv)
{
	struct kv_words words = kv_words(kv);

	return hash64(hash64(0, words.at, sizeof words.at), kv->bytes, (size_t)kv->key_len + kv->value_len);
}

struct kv *kv_new(struct slice key, struct slice value, struct kv_spec spec)
{
	ASSERT(key.len <= UINT32_MAX);
	ASSERT(value.len <= UINT32_MAX);
	struct kv *kv = mem_alloc(sizeof *kv + key.len + value.len);

	*kv = (struct kv){
		.refs = 1,
		.sub = spec.sub,
		.key_len = (uint32_t)key.len,
		.value_len = (uint32_t)value.len,
		.create_revision = spec.create_revision,
		.mod_revision = spec.mod_revision,
		.version = spec.version,
		.lease = spec.lease,
	};
	if (key.len)
		memcpy(kv->bytes, key.ptr, key.len);
	if (value.len)
		memcpy(kv->bytes + key.len, value.ptr, value.len);
	kv->hash = kv_hash(kv);
	return kv;
}

struct kv *kv_ref(struct kv *kv)
{
	ASSERT(kv->refs > 0 && kv->refs < UINT32_MAX);
	kv->refs++;
	return kv;
}

void kv_unref(struct kv *kv)
{
	ASSERT(kv->refs > 0);
	if (--kv->refs == 0)
		free(kv);
}

uint64_t kv_bytes(const struct kv *kv)
{
	return heap_bytes(sizeof *kv + kv->key_len + (uint64_t)kv->value_len) + sizeof(struct kv *);
}

uint64_t key_record_bytes(const struct key_record *r)
{
	return heap_bytes(sizeof *r + r->key_len) + 2 * sizeof(void *);
}

struct key_record *key_record_new_take(struct kv *first)
{
	struct key_record *r = mem_alloc(sizeof *r + first->key_len);

	*r = (struct key_record){ .base.refs = 1, .len = 1, .key_len = first->key_len, .hash = first->hash, .one = first };
	memcpy(r->key, first->bytes, first->key_len);
	return r;
}

static void key_record_reserve(struct key_record *r)
{
	if (r->cap == 0) {
		struct kv *one = r->one;

		r->versions = mem_alloc(2 * sizeof *r->versions);
		r->versions[0] = one;
		r->cap = 2;
	} else if (r->len == r->cap) {
		ASSERT(r->cap <= UINT32_MAX / 2);
		r->cap *= 2;
		r->versions = mem_realloc(r->versions, r->cap * sizeof *r->versions);
	}
}

void key_record_push_take(struct key_record *r, struct kv *kv)
{
	key_record_reserve(r);
	r->versions[r->len++] = kv;
	r->hash += kv->hash;
}

/* Halves, so that a key which is written and compacted in turn does not reallocate each time. */
static void key_record_shrink(struct key_record *r)
{
	if (r->len == 1) {
		struct kv *one = r->versions[0];

		free(r->versions);
		r->one = one;
		r->cap = 0;
	} else if (r->len <= r->cap / 4) {
		r->cap = r->len * 2;
		r->versions = mem_realloc(r->versions, r->cap * sizeof *r->versions);
	}
}

void key_record_drop(struct key_record *r, uint32_t n)
{
	ASSERT(n < r->len);
	if (n == 0)
		return;
	for (uint32_t i = 0; i < n; i++) {
		r->hash -= r->versions[i]->hash;
		kv_unref(r->versions[i]);
	}
	r->len -= n;
	memmove(r->versions, r->versions + n, r->len * sizeof *r->versions);
	key_record_shrink(r);
}

uint32_t key_record_before(const struct key_record *r, revision rev)
{
	uint32_t lo = 0, hi = r->len;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (key_record_at(r, mid)->mod_revision < rev)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct kv *key_record_find(const struct key_record *r, revision at)
{
	struct kv *last = key_record_last(r);
	uint32_t n;

	if (at <= 0 || last->mod_revision <= at)
		return last;
	n = key_record_before(r, at + 1); /* at < last->mod_revision, so this does not overflow */
	return n ? key_record_at(r, n - 1) : NULL;
}

static struct slice key_record_tree_key(const struct tree_record *tr)
{
	return key_record_key((const void *)tr);
}

static struct tree_record *key_record_clone(const struct tree_record *tr)
{
	const struct key_record *r = (const void *)tr;
	struct key_record *c = mem_alloc(sizeof *c + r->key_len);

	memcpy(c, r, sizeof *c + r->key_len);
	c->base.refs = 1;
	if (r->cap) {
		c->versions = mem_alloc(r->cap * sizeof *c->versions);
		memcpy(c->versions, r->versions, r->len * sizeof *c->versions);
	}
	for (uint32_t i = 0; i < c->len; i++)
		kv_ref(key_record_at(c, i));
	return &c->base;
}

static void key_record_free(struct tree_record *tr)
{
	struct key_record *r = key_record_of(tr);

	for (uint32_t i = 0; i < r->len; i++)
		kv_unref(key_record_at(r, i));
	if (r->cap)
		free(r->versions);
	free(r);
}

static uint64_t key_record_hash(const struct tree_record *tr)
{
	return ((const struct key_record *)(const void *)tr)->hash;
}

const struct tree_type key_record_type = {
	.section = SECTION_KEYS,
	.version = 1,
	.key = key_record_tree_key,
	.clone = key_record_clone,
	.free = key_record_free,
	.hash = key_record_hash,
	.encode = key_record_encode,
	.decode = key_record_decode,
};
