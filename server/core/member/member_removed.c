/* member_removed.c: who was a member and is none any more, so that its ID never comes back and what it still says is not heard.
 *
 * On disk: a packed internal.RemovedRecord, fields in order, defaults left out; what is read must be just what we would write. */
#include "base/hash.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "core/member/member_record.h"

enum { FIELD_ID = 1, FIELD_INDEX = 2 }; /* of internal.RemovedRecord */

static const struct removed_record *removed_of(const struct tree_record *r)
{
	return (const struct removed_record *)r;
}

struct removed_record *removed_record_new(member_id id, uint64_t index)
{
	struct removed_record *r = mem_zalloc(sizeof(*r));

	r->base.refs = 1;
	r->id = id;
	r->index = index;
	member_put_key(id, r->key);
	return r;
}

static struct slice removed_key(const struct tree_record *r)
{
	return slice_of(removed_of(r)->key, sizeof(removed_of(r)->key));
}

static struct tree_record *removed_clone(const struct tree_record *r)
{
	return &removed_record_new(removed_of(r)->id, removed_of(r)->index)->base;
}

static void removed_free(struct tree_record *r)
{
	free(r);
}

static uint64_t removed_hash(const struct tree_record *r)
{
	return hash64_u64(hash64_u64(SECTION_REMOVED, removed_of(r)->id), removed_of(r)->index);
}

static void removed_encode(const struct tree_record *r, struct buf *out)
{
	pbw_fixed64(out, FIELD_ID, removed_of(r)->id);
	pbw_u64(out, FIELD_INDEX, removed_of(r)->index);
}

static enum err removed_decode(struct slice bytes, struct tree_record **ret)
{
	Holdfast__Internal__RemovedRecord *pb;
	struct removed_record *r;
	struct buf again = { 0 };
	enum err e = ERR_CORRUPT;

	if (pb_check(&holdfast__internal__removed_record__descriptor, bytes, /*max_depth=*/0) != PB_CHECK_OK)
		return ERR_CORRUPT;
	pb = holdfast__internal__removed_record__unpack(NULL, bytes.len, bytes.ptr);
	if (!pb)
		return ERR_CORRUPT;
	r = removed_record_new(pb->id, pb->index);
	holdfast__internal__removed_record__free_unpacked(pb, NULL);
	removed_encode(&r->base, &again);
	if (r->id != 0 && slice_eq(buf_view(&again), bytes)) {
		*ret = &r->base;
		e = ERR_OK;
	} else {
		free(r);
	}
	buf_free(&again);
	return e;
}

const struct tree_type removed_record_type = {
	.section = SECTION_REMOVED,
	.version = 1,
	.key = removed_key,
	.clone = removed_clone,
	.free = removed_free,
	.hash = removed_hash,
	.encode = removed_encode,
	.decode = removed_decode,
};
