/* result_record.c: the replicated records: what a request came to, and where a session's window begins.
 *
 * Encoding of a result, version 2, big-endian: a head of fixed size (result_head), the error's name, the reply, the details, the calls (24 bytes each).
 * The name and not the number: numbers change from release to release. The hash covers the same bytes, and is kept, as replies may be long. Version 1
 * had no calls.
 * Encoding of a session, version 1: lease and window, 8 bytes each, big-endian. */
#include "internal.h"

#include <endian.h>

#include "base/hash.h"
#include "base/mem.h"

enum { RESULT_VERSION = 2, SESSION_VERSION = 1, TOO_LARGE_FLAG = 1 };

struct result_head {
	uint64_t session, request, token, lease;
	uint32_t kind, reply_len, details_len;
	uint16_t name_len;
	uint8_t flags, calls_len;
};
_Static_assert(sizeof(struct result_head) == 48, "no padding: it is hashed and stored as it is");

struct slice result_reply(const struct result_record *r)
{
	return slice_of(r->bytes, r->reply_len);
}

struct slice result_details(const struct result_record *r)
{
	return slice_of(r->bytes + r->reply_len, r->details_len);
}

/* ---- calls ---- */

static size_t calls_size(size_t n)
{
	return n * CALL_ID_BYTES;
}

size_t result_calls(const struct result_record *r, struct call_id ret[ONCE_CALLS_MAX])
{
	for (size_t i = 0; i < r->calls_len; i++)
		ret[i] = call_id_decode(r->bytes + r->reply_len + r->details_len + calls_size(i));
	return r->calls_len;
}

/* ---- results ---- */

/* They lie side by side. */
static size_t tail_len(const struct result_record *r)
{
	return (size_t)r->reply_len + r->details_len + calls_size(r->calls_len);
}

static const char *name_of(enum err e)
{
	return e ? err_name(e) : "";
}

static bool err_by_name(struct slice name, enum err *ret)
{
	if (name.len == 0) {
		*ret = ERR_OK;
		return true;
	}
	for (int e = 1; e < ERR_COUNT; e++) {
		if (slice_eq(name, slice_of_str(err_name((enum err)e)))) {
			*ret = (enum err)e;
			return true;
		}
	}
	return false;
}

static struct result_head head_of(const struct result_record *r)
{
	return (struct result_head){
		.session = htobe64((uint64_t)r->session),
		.request = htobe64(r->request),
		.token = htobe64((uint64_t)r->token),
		.lease = htobe64((uint64_t)r->lease),
		.kind = htobe32(r->kind),
		.reply_len = htobe32(r->reply_len),
		.details_len = htobe32(r->details_len),
		.name_len = htobe16((uint16_t)strlen(name_of(r->err))),
		.flags = r->too_large ? TOO_LARGE_FLAG : 0,
		.calls_len = r->calls_len,
	};
}

static uint64_t reckon_hash(const struct result_record *r)
{
	struct result_head h = head_of(r);
	uint64_t hash = hash64(SECTION_RESULTS, &h, sizeof(h));

	hash = hash64(hash, name_of(r->err), strlen(name_of(r->err)));
	return hash64(hash, r->bytes, tail_len(r));
}

struct result_record *result_new(lease_id session, uint64_t request, const struct once_outcome *outcome)
{
	bool too_large = outcome->reply.len + outcome->details.len > ONCE_RESULT_BYTES_MAX;
	size_t reply_len = too_large ? 0 : outcome->reply.len, details_len = too_large ? 0 : outcome->details.len;
	struct result_record *r = mem_alloc(sizeof(*r) + reply_len + details_len + calls_size(outcome->calls_len));
	uint64_t be[2] = { htobe64((uint64_t)session), htobe64(request) };

	ASSERT(outcome->calls_len <= ONCE_CALLS_MAX);
	ASSERT_IF(outcome->calls_len > 0, outcome->token);
	*r = (struct result_record){
		.base.refs = 1,
		.session = session,
		.request = request,
		.kind = outcome->kind,
		.err = outcome->err,
		.too_large = too_large,
		.calls_len = (uint8_t)outcome->calls_len,
		.token = outcome->token,
		.lease = outcome->lease,
		.reply_len = (uint32_t)reply_len,
		.details_len = (uint32_t)details_len,
	};
	memcpy(r->key, be, sizeof(be));
	if (reply_len)
		memcpy(r->bytes, outcome->reply.ptr, reply_len);
	if (details_len)
		memcpy(r->bytes + reply_len, outcome->details.ptr, details_len);
	for (size_t i = 0; i < outcome->calls_len; i++)
		call_id_encode(outcome->calls[i], r->bytes + reply_len + details_len + calls_size(i));
	r->hash = reckon_hash(r);
	return r;
}

static struct slice result_key(const struct tree_record *r)
{
	return slice_of(result_of(r)->key, sizeof(result_of(r)->key));
}

static struct tree_record *result_clone(const struct tree_record *r)
{
	size_t size = sizeof(struct result_record) + tail_len(result_of(r));
	struct result_record *copy = mem_alloc(size);

	memcpy(copy, r, size);
	copy->base.refs = 1;
	return &copy->base;
}

static void record_free(struct tree_record *r)
{
	free(r);
}

static uint64_t result_hash(const struct tree_record *r)
{
	return result_of(r)->hash;
}

static void result_encode(const struct tree_record *r, struct buf *out)
{
	struct result_head h = head_of(result_of(r));
	const char *name = name_of(result_of(r)->err);

	buf_append(out, &h, sizeof(h));
	buf_append(out, name, strlen(name));
	buf_append(out, result_of(r)->bytes, tail_len(result_of(r)));
}

static bool calls_differ(const struct call_id *calls, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < i; k++)
			if (call_id_eq(calls[i], calls[k]))
				return false;
	return true;
}

/* Refuses whatever result_encode would not have written. */
static enum err result_decode(struct slice bytes, struct tree_record **ret)
{
	struct once_outcome outcome;
	struct result_head h;
	struct call_id calls[ONCE_CALLS_MAX];
	size_t name_len, reply_len, details_len;
	bool too_large;
	const uint8_t *at;
	struct result_record *r;

	if (bytes.len < sizeof(h))
		return ERR_CORRUPT;
	memcpy(&h, bytes.ptr, sizeof(h));
	name_len = be16toh(h.name_len);
	reply_len = be32toh(h.reply_len);
	details_len = be32toh(h.details_len);
	too_large = h.flags & TOO_LARGE_FLAG;
	if (bytes.len != sizeof(h) + name_len + reply_len + details_len + calls_size(h.calls_len) || (h.flags & ~TOO_LARGE_FLAG))
		return ERR_CORRUPT;
	if (h.calls_len > ONCE_CALLS_MAX || (h.calls_len > 0 && !h.token))
		return ERR_CORRUPT;
	if (reply_len + details_len > ONCE_RESULT_BYTES_MAX || (too_large && reply_len + details_len > 0))
		return ERR_CORRUPT;
	if (h.session == 0 || h.request == 0 || be64toh(h.request) > ONCE_REQUEST_MAX || (int64_t)be64toh(h.token) < 0)
		return ERR_CORRUPT;
	at = bytes.ptr + sizeof(h);
	if (!err_by_name(slice_of(at, name_len), &outcome.err))
		return ERR_CORRUPT;
	at += name_len;
	outcome.kind = be32toh(h.kind);
	outcome.token = (revision)be64toh(h.token);
	outcome.lease = (lease_id)be64toh(h.lease);
	outcome.reply = slice_of(at, reply_len);
	outcome.details = slice_of(at + reply_len, details_len);
	at += reply_len + details_len;
	for (size_t i = 0; i < h.calls_len; i++)
		calls[i] = call_id_decode(at + calls_size(i));
	if (!calls_differ(calls, h.calls_len))
		return ERR_CORRUPT;
	outcome.calls = calls;
	outcome.calls_len = h.calls_len;
	r = result_new((lease_id)be64toh(h.session), be64toh(h.request), &outcome);
	r->too_large = too_large;
	r->hash = reckon_hash(r);
	*ret = &r->base;
	return ERR_OK;
}

const struct tree_type result_record_type = {
	.section = SECTION_RESULTS,
	.version = RESULT_VERSION,
	.key = result_key,
	.clone = result_clone,
	.free = record_free,
	.hash = result_hash,
	.encode = result_encode,
	.decode = result_decode,
};

/* ---- sessions ---- */

struct session_record *session_new(lease_id session, uint64_t window)
{
	struct session_record *s = mem_alloc(sizeof(*s));
	uint64_t be = htobe64((uint64_t)session);

	*s = (struct session_record){ .base.refs = 1, .session = session, .window = window };
	memcpy(s->key, &be, sizeof(be));
	return s;
}

static struct slice session_key(const struct tree_record *r)
{
	return slice_of(session_of(r)->key, sizeof(session_of(r)->key));
}

static struct tree_record *session_clone(const struct tree_record *r)
{
	return &session_new(session_of(r)->session, session_of(r)->window)->base;
}

static uint64_t session_hash(const struct tree_record *r)
{
	return hash64_u64(hash64_u64(SECTION_SESSIONS, (uint64_t)session_of(r)->session), session_of(r)->window);
}

static void session_encode(const struct tree_record *r, struct buf *out)
{
	uint64_t window = htobe64(session_of(r)->window);

	buf_append_slice(out, session_key(r));
	buf_append(out, &window, sizeof(window));
}

static enum err session_decode(struct slice bytes, struct tree_record **ret)
{
	uint64_t be[2];

	if (bytes.len != sizeof(be))
		return ERR_CORRUPT;
	memcpy(be, bytes.ptr, sizeof(be));
	if (be[0] == 0)
		return ERR_CORRUPT;
	*ret = &session_new((lease_id)be64toh(be[0]), be64toh(be[1]))->base;
	return ERR_OK;
}

const struct tree_type session_record_type = {
	.section = SECTION_SESSIONS,
	.version = SESSION_VERSION,
	.key = session_key,
	.clone = session_clone,
	.free = record_free,
	.hash = session_hash,
	.encode = session_encode,
	.decode = session_decode,
};
