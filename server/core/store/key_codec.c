/* key_codec.c: a key's record as bytes of a snapshot, and back.
 *
 *     key length, key, number of versions, then each version, oldest first:
 *         mod_revision less the version's before (the first: less 0), sub, version
 *         and unless it is a tombstone: mod_revision less create_revision, lease, value length, value
 *
 * All numbers are varints in their shortest form, and a longer one is refused:
 *   (C1) equal records have equal bytes, and what decodes encodes to the very bytes it came from.
 *   (C2) what decodes is a record that writes could have made: revisions rise, each version follows from the one before it. A first
 *        version may be anything, since what came before may be compacted.
 *   (C3) no count or length is believed before the bytes for it are there. */
#include "store_internal.h"

#include "base/mem.h"
#include "base/pbw.h"

void key_record_encode(const struct tree_record *tr, struct buf *out)
{
	const struct key_record *r = (const void *)tr;
	struct slice key = key_record_key(r);
	revision before = 0;

	pbw_varint(out, key.len);
	buf_append_slice(out, key);
	pbw_varint(out, r->len);
	for (uint32_t i = 0; i < r->len; i++) {
		const struct kv *kv = key_record_at(r, i);

		pbw_varint(out, (uint64_t)(kv->mod_revision - before));
		pbw_varint(out, kv->sub);
		pbw_varint(out, (uint64_t)kv->version);
		if (!kv_is_tombstone(kv)) {
			pbw_varint(out, (uint64_t)(kv->mod_revision - kv->create_revision));
			pbw_varint(out, (uint64_t)kv->lease);
			pbw_varint(out, kv->value_len);
			buf_append_slice(out, kv_value(kv));
		}
		before = kv->mod_revision;
	}
}

/* Bytes yet to be read; bad once they broke a rule, and then every read yields nothing. */
struct reader {
	struct slice left;
	bool bad;
};

static uint64_t read_varint(struct reader *in)
{
	uint64_t v = 0;

	for (size_t i = 0; i < in->left.len && i < 10; i++) {
		uint8_t byte = in->left.ptr[i];

		if (i == 9 && byte > 1)
			break;
		v |= (uint64_t)(byte & 0x7f) << (7 * i);
		if (byte & 0x80)
			continue;
		if (byte == 0 && i > 0)
			break; /* not the shortest form */
		in->left = slice_of(in->left.ptr + i + 1, in->left.len - i - 1);
		return v;
	}
	in->bad = true;
	in->left.len = 0;
	return 0;
}

static uint64_t read_at_most(struct reader *in, uint64_t max)
{
	uint64_t v = read_varint(in);

	if (v > max) {
		in->bad = true;
		in->left.len = 0;
		return 0;
	}
	return v;
}

static struct slice read_bytes(struct reader *in)
{
	uint64_t len = read_varint(in);
	struct slice s = { .ptr = in->left.ptr };

	if (len > in->left.len || len > UINT32_MAX) {
		in->bad = true;
		in->left.len = 0;
		return s;
	}
	s.len = (size_t)len;
	in->left = slice_of(in->left.ptr + s.len, in->left.len - s.len);
	return s;
}

/* C2, for a version on its own and after `before` (NULL: it is the first). */
static bool version_follows(const struct kv_spec *v, const struct kv *before)
{
	if (v->mod_revision < 1)
		return false;
	if (v->version > 0 && (v->create_revision < 1 || (v->version == 1 && v->create_revision != v->mod_revision)))
		return false;
	if (!before)
		return true;
	if (v->mod_revision == before->mod_revision && v->sub <= before->sub)
		return false;
	if (kv_is_tombstone(before))
		return v->version == 1;
	if (v->version == 0)
		return true;
	return v->version - 1 == before->version && v->create_revision == before->create_revision;
}

static struct kv *read_version(struct reader *in, struct slice key, const struct kv *before)
{
	revision base = before ? before->mod_revision : 0;
	struct kv_spec spec = { .sub = 0 };
	struct slice value = { .ptr = NULL };

	spec.mod_revision = base + (revision)read_at_most(in, (uint64_t)(INT64_MAX - base));
	spec.sub = (uint32_t)read_at_most(in, UINT32_MAX);
	spec.version = (int64_t)read_at_most(in, INT64_MAX);
	if (spec.version > 0) {
		spec.create_revision = spec.mod_revision - (revision)read_at_most(in, (uint64_t)spec.mod_revision);
		spec.lease = (lease_id)read_varint(in);
		value = read_bytes(in);
	}
	if (in->bad || !version_follows(&spec, before))
		return NULL;
	return kv_new(key, value, spec);
}

enum err key_record_decode(struct slice bytes, struct tree_record **ret)
{
	struct reader in = { .left = bytes };
	struct slice key = read_bytes(&in);
	uint64_t count = read_at_most(&in, UINT32_MAX);
	struct key_record *r = NULL;

	for (uint64_t i = 0; i < count; i++) {
		struct kv *kv = read_version(&in, key, r ? key_record_last(r) : NULL);

		if (!kv)
			goto corrupt;
		if (r)
			key_record_push_take(r, kv);
		else
			r = key_record_new_take(kv);
	}
	if (!r || in.bad || in.left.len > 0)
		goto corrupt;
	*ret = &r->base;
	return ERR_OK;
corrupt:
	if (r)
		key_record_type.free(&r->base);
	return ERR_CORRUPT;
}
