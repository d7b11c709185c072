/* contender.c: the replicated record of one place in a lock's queue.
 *
 * Immutable once made: whatever changes is a new record in the old one's place, so the record may be shared by views, the tree of
 * contenders and the tree of exclusive ones alike.
 *
 * Encoding, version 2, big-endian: a head of fixed size (contender_head), then the key, the client's address, and those who ask beside the latest
 * call (asker_bytes) and those that were taken over from (24 bytes each), who came last first. The name is not in it: it follows from the key and the lease.
 * Version 1 had nobody that was taken over from, and not who asked last. */
#include "internal.h"

#include <endian.h>

#include "base/hash.h"
#include "base/mem.h"

enum { CONTENDER_VERSION = 2, MODE_MASK = 1, BOUNDED_FLAG = 2, OWN_LEASE_FLAG = 4, UNLISTED_FLAG = 8, LEN_BITS = 4, LEN_MASK = 15 };

/* All of it is replicated; part of the encoding and of the hash. */
struct contender_head {
	uint64_t lease, create_revision, wait_ms, member, boot, call, since, last[3]; /* as member, boot, call */
	uint32_t key_len;
	uint16_t client_len;
	uint8_t flags, lens; /* others_len, and before_len above LEN_BITS */
};
_Static_assert(sizeof(struct contender_head) == 88, "no padding: it is hashed and stored as it is");
struct asker_bytes {
	uint64_t member, boot, call, wait_ms, flags;
};
_Static_assert(sizeof(struct asker_bytes) == 40, "likewise");

static const struct contender *of(const struct tree_record *r)
{
	return (const struct contender *)(const void *)r;
}

struct slice contender_name(const struct contender *c)
{
	return slice_of(c->bytes + NAME_LEN_BYTES, c->name_len);
}

struct slice contender_key(const struct contender *c)
{
	return slice_of(c->bytes + c->sort_len, c->key_len);
}

struct slice contender_client(const struct contender *c)
{
	return slice_of(c->bytes + c->sort_len + c->key_len, c->client_len);
}

/* ---- who asks ---- */

static size_t others_size(size_t n)
{
	return n * sizeof(struct asker_bytes);
}

static const uint8_t *others_of(const struct contender *c)
{
	return c->bytes + c->sort_len + c->key_len + c->client_len;
}

static size_t before_size(size_t n)
{
	return n * CALL_ID_BYTES;
}

size_t contender_before(const struct contender *c, struct call_id ret[LOCK_BEFORE_MAX])
{
	for (size_t i = 0; i < c->before_len; i++)
		ret[i] = call_id_decode(others_of(c) + others_size(c->others_len) + before_size(i));
	return c->before_len;
}

static uint8_t who_flags(bool bounded, bool own_lease)
{
	return (uint8_t)((bounded ? BOUNDED_FLAG : 0) | (own_lease ? OWN_LEASE_FLAG : 0));
}

static struct asker_bytes asker_encode(const struct asker *a)
{
	return (struct asker_bytes){
		.member = htobe64(a->call.member),
		.boot = htobe64(a->call.boot),
		.call = htobe64(a->call.call),
		.wait_ms = htobe64((uint64_t)a->wait_ms),
		.flags = htobe64(who_flags(a->bounded, a->own_lease)),
	};
}

/* False: asker_encode would not have written it. */
static bool asker_decode(const uint8_t *bytes, struct asker *ret)
{
	struct asker_bytes b;
	uint64_t flags;

	memcpy(&b, bytes, sizeof b);
	flags = be64toh(b.flags);
	*ret = (struct asker){
		.call = { be64toh(b.member), be64toh(b.boot), be64toh(b.call) },
		.bounded = flags & BOUNDED_FLAG,
		.own_lease = flags & OWN_LEASE_FLAG,
		.wait_ms = (int64_t)be64toh(b.wait_ms),
	};
	return !(flags & ~(uint64_t)(BOUNDED_FLAG | OWN_LEASE_FLAG)) && (ret->bounded || ret->wait_ms == 0);
}

size_t contender_askers(const struct contender *c, struct asker ret[LOCK_ASKERS_MAX])
{
	if (c->call.member == 0 && c->call.boot == 0 && c->call.call == 0)
		return 0;
	ret[0] = (struct asker){ .call = c->call, .bounded = c->bounded, .own_lease = c->own_lease, .wait_ms = c->wait_ms };
	for (size_t i = 0; i < c->others_len; i++)
		(void)asker_decode(others_of(c) + others_size(i), &ret[1 + i]);
	return 1u + c->others_len;
}

bool contender_is_asked_by(const struct contender *c, struct call_id call)
{
	struct asker askers[LOCK_ASKERS_MAX];
	size_t n = contender_askers(c, askers);

	for (size_t i = 0; i < n; i++)
		if (call_id_eq(askers[i].call, call))
			return true;
	return false;
}

/* ---- making one ---- */

void lock_prefix(struct slice name, struct buf *out)
{
	uint32_t len = htobe32((uint32_t)name.len);

	buf_append(out, &len, sizeof(len));
	buf_append_slice(out, name);
}

void lock_append_revision(struct buf *out, revision rev)
{
	uint64_t be = htobe64((uint64_t)rev);

	buf_append(out, &be, sizeof(be));
}

static uint8_t *put(uint8_t *at, const void *ptr, size_t len)
{
	if (len)
		memcpy(at, ptr, len);
	return at + len;
}

struct contender *contender_new(struct slice key, lease_id lease, revision create_revision, const struct lock_attributes *a)
{
	struct slice name, client = a->client;
	struct contender *c;
	uint32_t name_len;
	uint64_t rev = htobe64((uint64_t)create_revision);
	uint8_t *at;

	ASSERT(lock_parse(key, lease, &name));
	ASSERT(key.len <= UINT32_MAX && create_revision > 0);
	ASSERT(a->mode == LOCK_EXCLUSIVE || a->mode == LOCK_SHARED);
	ASSERT(a->others_len < LOCK_ASKERS_MAX && a->before_len <= LOCK_BEFORE_MAX);
	if (client.len > LOCK_CLIENT_MAX)
		client.len = LOCK_CLIENT_MAX;
	c = mem_alloc(sizeof(*c) + NAME_LEN_BYTES + name.len + REVISION_BYTES + key.len + client.len + others_size(a->others_len) + before_size(a->before_len));
	*c = (struct contender){
		.base.refs = 1,
		.name_len = (uint32_t)name.len,
		.key_len = (uint32_t)key.len,
		.client_len = (uint32_t)client.len,
		.sort_len = (uint32_t)(NAME_LEN_BYTES + name.len + REVISION_BYTES),
		.lease = lease,
		.create_revision = create_revision,
		.mode = (uint8_t)a->mode,
		.others_len = (uint8_t)a->others_len,
		.before_len = (uint8_t)a->before_len,
		.unlisted = a->unlisted,
		.bounded = a->bounded,
		.own_lease = a->own_lease,
		.wait_ms = a->bounded ? a->wait_ms : 0,
		.call = a->call,
		.last = a->last,
		.since_unix_ms = a->since_unix_ms,
	};
	name_len = htobe32(c->name_len);
	at = put(c->bytes, &name_len, sizeof(name_len));
	at = put(at, name.ptr, name.len);
	at = put(at, &rev, sizeof(rev));
	at = put(at, key.ptr, key.len);
	at = put(at, client.ptr, client.len);
	for (size_t i = 0; i < a->others_len; i++) {
		struct asker_bytes b = asker_encode(&a->others[i]);

		at = put(at, &b, sizeof(b));
	}
	for (size_t i = 0; i < a->before_len; i++) {
		call_id_encode(a->before[i], at);
		at += CALL_ID_BYTES;
	}
	return c;
}

/* ---- the tree's view of it ---- */

static struct contender_head contender_head(const struct contender *c)
{
	return (struct contender_head){
		.lease = htobe64((uint64_t)c->lease),
		.create_revision = htobe64((uint64_t)c->create_revision),
		.wait_ms = htobe64((uint64_t)c->wait_ms),
		.member = htobe64(c->call.member),
		.boot = htobe64(c->call.boot),
		.call = htobe64(c->call.call),
		.since = htobe64((uint64_t)c->since_unix_ms),
		.last = { htobe64(c->last.member), htobe64(c->last.boot), htobe64(c->last.call) },
		.key_len = htobe32(c->key_len),
		.client_len = htobe16((uint16_t)c->client_len),
		.flags = (uint8_t)(c->mode | who_flags(c->bounded, c->own_lease) | (c->unlisted ? UNLISTED_FLAG : 0)),
		.lens = (uint8_t)(c->others_len | c->before_len << LEN_BITS),
	};
}

/* They lie side by side. */
static struct slice contender_tail(const struct contender *c)
{
	return slice_of(c->bytes + c->sort_len, (size_t)c->key_len + c->client_len + others_size(c->others_len) + before_size(c->before_len));
}

static struct slice contender_tree_key(const struct tree_record *r)
{
	return contender_sort_key(of(r));
}

static struct tree_record *contender_clone(const struct tree_record *r)
{
	size_t size = sizeof(struct contender) + of(r)->sort_len + contender_tail(of(r)).len;
	struct contender *c = mem_alloc(size);

	memcpy(c, r, size);
	c->base.refs = 1;
	return &c->base;
}

static void contender_free(struct tree_record *r)
{
	free(r);
}

static uint64_t contender_hash(const struct tree_record *r)
{
	struct contender_head h = contender_head(of(r));
	struct slice tail = contender_tail(of(r));

	return hash64(hash64(SECTION_CONTENDERS, &h, sizeof(h)), tail.ptr, tail.len);
}

static void contender_encode(const struct tree_record *r, struct buf *out)
{
	struct contender_head h = contender_head(of(r));

	buf_append(out, &h, sizeof(h));
	buf_append_slice(out, contender_tail(of(r)));
}

/* Refuses whatever contender_encode would not have written. */
static enum err contender_decode(struct slice bytes, struct tree_record **ret)
{
	struct contender_head h;
	struct lock_attributes a;
	struct asker others[LOCK_ASKERS_MAX];
	struct call_id before[LOCK_BEFORE_MAX];
	struct slice key, name;
	size_t key_len, client_len, others_len, before_len;
	int64_t rev, wait_ms;

	if (bytes.len < sizeof(h))
		return ERR_CORRUPT;
	memcpy(&h, bytes.ptr, sizeof(h));
	key_len = be32toh(h.key_len);
	client_len = be16toh(h.client_len);
	rev = (int64_t)be64toh(h.create_revision);
	wait_ms = (int64_t)be64toh(h.wait_ms);
	others_len = h.lens & LEN_MASK;
	before_len = h.lens >> LEN_BITS;
	if (others_len >= LOCK_ASKERS_MAX || before_len > LOCK_BEFORE_MAX || client_len > LOCK_CLIENT_MAX ||
	    bytes.len != sizeof(h) + key_len + client_len + others_size(others_len) + before_size(before_len))
		return ERR_CORRUPT;
	if (others_len > 0 && !h.member && !h.boot && !h.call)
		return ERR_CORRUPT;
	if (rev <= 0 || (h.flags & ~(MODE_MASK | BOUNDED_FLAG | OWN_LEASE_FLAG | UNLISTED_FLAG)) || (!(h.flags & BOUNDED_FLAG) && wait_ms != 0))
		return ERR_CORRUPT;
	key = slice_of(bytes.ptr + sizeof(h), key_len);
	for (size_t i = 0; i < others_len; i++)
		if (!asker_decode(key.ptr + key_len + client_len + others_size(i), &others[i]))
			return ERR_CORRUPT;
	for (size_t i = 0; i < before_len; i++)
		before[i] = call_id_decode(key.ptr + key_len + client_len + others_size(others_len) + before_size(i));
	if (!lock_parse(key, (lease_id)be64toh(h.lease), &name))
		return ERR_CORRUPT;
	a = (struct lock_attributes){
		.mode = (enum lock_mode)(h.flags & MODE_MASK),
		.bounded = h.flags & BOUNDED_FLAG,
		.own_lease = h.flags & OWN_LEASE_FLAG,
		.wait_ms = wait_ms,
		.call = { be64toh(h.member), be64toh(h.boot), be64toh(h.call) },
		.last = { be64toh(h.last[0]), be64toh(h.last[1]), be64toh(h.last[2]) },
		.client = slice_of(key.ptr + key_len, client_len),
		.since_unix_ms = (int64_t)be64toh(h.since),
		.others = others,
		.others_len = others_len,
		.before = before,
		.before_len = before_len,
		.unlisted = h.flags & UNLISTED_FLAG,
	};
	*ret = &contender_new(key, (lease_id)be64toh(h.lease), rev, &a)->base;
	return ERR_OK;
}

const struct tree_type contender_type = {
	.section = SECTION_CONTENDERS,
	.version = CONTENDER_VERSION,
	.key = contender_tree_key,
	.clone = contender_clone,
	.free = contender_free,
	.hash = contender_hash,
	.encode = contender_encode,
	.decode = contender_decode,
};
