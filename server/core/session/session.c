/* session.c: the records of open sessions.
 *
 * Encoding, version 1: a head of fixed size, big-endian (session_head), the prefixes with a zero byte behind each, the name. */
#include "session.h"

#include <endian.h>

#include "base/hash.h"
#include "base/mem.h"
#include "path.h"

enum { SESSION_VERSION = 1 };

struct session_head {
	uint64_t session, generation, member, boot, stream;
	uint8_t secret_hash[SESSION_HASH_LEN];
	uint16_t prefixes_len, name_len;
};
_Static_assert(sizeof(struct session_head) == 64, "no padding: it is hashed and stored as it is");

static const struct open_session *of(const struct tree_record *r)
{
	return (const struct open_session *)(const void *)r;
}

/* ---- the record ---- */

static struct session_head head_of(const struct open_session *s)
{
	struct session_head h = {
		.session = htobe64((uint64_t)s->session),
		.generation = htobe64(s->generation),
		.member = htobe64(s->place.member),
		.boot = htobe64(s->place.boot),
		.stream = htobe64(s->place.stream),
		.prefixes_len = htobe16(s->prefixes_len),
		.name_len = htobe16(s->name_len),
	};

	memcpy(h.secret_hash, s->secret_hash, sizeof(h.secret_hash));
	return h;
}

static void rehash(struct open_session *s)
{
	struct session_head h = head_of(s);

	s->hash = hash64(hash64(SECTION_OPEN_SESSIONS, &h, sizeof(h)), s->bytes, (size_t)s->prefixes_len + s->name_len);
}

static struct open_session *record_new(const struct session_opening *o, uint64_t generation)
{
	struct open_session *s = mem_zalloc(sizeof(*s) + o->prefixes.len + o->name.len);
	uint64_t be = htobe64((uint64_t)o->session);

	s->base.refs = 1;
	s->session = o->session;
	s->generation = generation;
	s->place = o->place;
	memcpy(s->secret_hash, o->secret_hash, sizeof(s->secret_hash));
	s->prefixes_len = (uint16_t)o->prefixes.len;
	s->name_len = (uint16_t)o->name.len;
	memcpy(s->key, &be, sizeof(be));
	if (o->prefixes.len)
		memcpy(s->bytes, o->prefixes.ptr, o->prefixes.len);
	if (o->name.len)
		memcpy(s->bytes + o->prefixes.len, o->name.ptr, o->name.len);
	rehash(s);
	return s;
}

static struct slice record_key(const struct tree_record *r)
{
	return slice_of(of(r)->key, sizeof(of(r)->key));
}

static struct tree_record *record_clone(const struct tree_record *r)
{
	size_t size = sizeof(struct open_session) + of(r)->prefixes_len + of(r)->name_len;
	struct open_session *copy = mem_alloc(size);

	memcpy(copy, r, size);
	copy->base.refs = 1;
	return &copy->base;
}

static void record_free(struct tree_record *r)
{
	free(r);
}

static uint64_t record_hash(const struct tree_record *r)
{
	return of(r)->hash;
}

static void record_encode(const struct tree_record *r, struct buf *out)
{
	struct session_head h = head_of(of(r));

	buf_append(out, &h, sizeof(h));
	buf_append(out, of(r)->bytes, (size_t)of(r)->prefixes_len + of(r)->name_len);
}

/* Refuses whatever record_encode would not have written. */
static enum err record_decode(struct slice bytes, struct tree_record **ret)
{
	struct session_opening o = { 0 };
	struct session_head h;

	if (bytes.len < sizeof(h))
		return ERR_CORRUPT;
	memcpy(&h, bytes.ptr, sizeof(h));
	o.prefixes = slice_of(bytes.ptr + sizeof(h), be16toh(h.prefixes_len));
	if (bytes.len != sizeof(h) + o.prefixes.len + be16toh(h.name_len) || be16toh(h.name_len) > SESSION_NAME_MAX)
		return ERR_CORRUPT;
	o.name = slice_of(bytes.ptr + sizeof(h) + o.prefixes.len, be16toh(h.name_len));
	if (h.session == 0 || h.generation == 0 || !session_prefixes_are_good(o.prefixes))
		return ERR_CORRUPT;
	o.session = (lease_id)be64toh(h.session);
	o.place = (struct session_place){ .member = be64toh(h.member), .boot = be64toh(h.boot), .stream = be64toh(h.stream) };
	memcpy(o.secret_hash, h.secret_hash, sizeof(o.secret_hash));
	*ret = &record_new(&o, be64toh(h.generation))->base;
	return ERR_OK;
}

const struct tree_type open_session_type = {
	.section = SECTION_OPEN_SESSIONS,
	.version = SESSION_VERSION,
	.key = record_key,
	.clone = record_clone,
	.free = record_free,
	.hash = record_hash,
	.encode = record_encode,
	.decode = record_decode,
};

/* ---- changes ---- */

void session_hash_secret(struct slice secret, uint8_t ret[SESSION_HASH_LEN])
{
	sha1(secret, ret);
}

bool session_prefixes_are_good(struct slice prefixes)
{
	size_t n = 0;

	if (prefixes.len > SESSION_PREFIX_BYTES_MAX)
		return false;
	for (; prefixes.len > 0; n++) {
		const uint8_t *zero = memchr(prefixes.ptr, 0, prefixes.len);

		if (!zero || path_check_or_root(slice_of(prefixes.ptr, (size_t)(zero - prefixes.ptr))))
			return false;
		prefixes = slice_of(zero + 1, prefixes.len - (size_t)(zero - prefixes.ptr) - 1);
	}
	return n <= SESSION_PREFIXES_MAX;
}

static struct slice key_of(lease_id id, uint64_t *be)
{
	*be = htobe64((uint64_t)id);
	return slice_of(be, sizeof(*be));
}

const struct open_session *session_find(const struct state *st, lease_id id)
{
	uint64_t be;
	const struct tree_record *r = tree_get(&st->open_sessions, key_of(id, &be));

	return r ? of(r) : NULL;
}

void session_put(struct state *st, const struct session_opening *o)
{
	ASSERT(!session_find(st, o->session));
	tree_put_take(&st->open_sessions, &record_new(o, 1)->base);
}

void session_attach(struct state *st, lease_id id, struct session_place place, uint64_t attempt)
{
	uint64_t be;
	struct tree_record *r = tree_edit_begin(&st->open_sessions, key_of(id, &be));
	struct open_session *s;

	ASSERT(r);
	s = (struct open_session *)(void *)r;
	s->place = place;
	ASSERT(!attempt || attempt > s->generation);
	s->generation = attempt ? attempt : s->generation + 1;
	rehash(s);
	tree_edit_end(&st->open_sessions, r);
}

bool session_remove(struct state *st, lease_id id)
{
	uint64_t be;

	return tree_remove(&st->open_sessions, key_of(id, &be));
}

uint64_t sessions_bytes(const struct state *st)
{
	return st->open_sessions.len * (sizeof(struct open_session) + 64);
}

/* ---- what it may cache ---- */

static bool next_prefix(const struct open_session *s, size_t *at, struct slice *ret)
{
	if (*at >= s->prefixes_len)
		return false;
	*ret = slice_of_str((const char *)s->bytes + *at);
	*at += ret->len + 1;
	return true;
}

bool session_may_cache(const struct open_session *s, struct slice path)
{
	struct slice top;
	size_t at = 0;

	while (next_prefix(s, &at, &top))
		if (path_is_under(path, top))
			return true;
	return false;
}

/* Everything under `top` lies in [top, top] and [top "/", top "0"): the byte behind "/" is "0". */
static bool touches(struct slice key, struct slice end, struct slice top)
{
	uint8_t bounds[PATH_LEN_MAX + 1];
	size_t n = slice_eq(top, slice_of("/", 1)) ? 0 : top.len;
	bool open = end.len == 1 && end.ptr[0] == 0;

	if (end.len == 0)
		return path_is_under(key, top);
	if (slice_cmp(key, top) <= 0 && (open || slice_cmp(top, end) < 0))
		return true;
	memcpy(bounds, top.ptr, n);
	bounds[n] = '0';
	if (slice_cmp(key, slice_of(bounds, n + 1)) >= 0)
		return false;
	bounds[n] = '/';
	return open || slice_cmp(slice_of(bounds, n + 1), end) < 0;
}

bool session_is_touched(const struct open_session *s, struct slice key, struct slice end)
{
	struct slice top;
	size_t at = 0;

	while (next_prefix(s, &at, &top))
		if (touches(key, end, top))
			return true;
	return false;
}
