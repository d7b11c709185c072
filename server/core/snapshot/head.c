/* head.c: the scalars of a state as the first record of its snapshot.
 *
 * A release may add fields that older ones may ignore; what they may not ignore gets a higher version, which they refuse. */
#include "base/arena.h"
#include "base/pbw.h"
#include "core/snapshot/format.h"
#include "holdfast/internal.pb-c.h"

enum { /* of internal.SnapshotHead */
	FIELD_VERSION = 1,
	FIELD_INDEX = 2,
	FIELD_TERM = 3,
	FIELD_REVISION = 4,
	FIELD_COMPACT_REVISION = 5,
	FIELD_STATE_HASH = 6,
	FIELD_CELL_ID = 7,
	FIELD_RESTORED = 8,
};

void snapshot_head_encode(const struct snapshot_head *h, struct buf *out)
{
	pbw_u64(out, FIELD_VERSION, HEAD_VERSION);
	pbw_u64(out, FIELD_INDEX, h->applied.index);
	pbw_u64(out, FIELD_TERM, h->applied.term);
	pbw_i64(out, FIELD_REVISION, h->revision);
	pbw_i64(out, FIELD_COMPACT_REVISION, h->compact_revision);
	pbw_fixed64(out, FIELD_STATE_HASH, h->state_hash);
	pbw_fixed64(out, FIELD_CELL_ID, h->cell_id);
	pbw_u64(out, FIELD_RESTORED, h->restored);
}

static enum err from_message(const Holdfast__Internal__SnapshotHead *pb, struct snapshot_head *ret)
{
	if (pb->version > HEAD_VERSION)
		return ERR_WRONG_VERSION;
	if (pb->version == 0 || pb->revision < 1 || pb->compact_revision < 0 || pb->compact_revision > pb->revision)
		return ERR_CORRUPT;
	*ret = (struct snapshot_head){
		.applied = { .index = pb->index, .term = pb->term },
		.revision = pb->revision,
		.compact_revision = pb->compact_revision,
		.state_hash = pb->state_hash,
		.cell_id = pb->cell_id,
		.restored = pb->restored,
	};
	return ERR_OK;
}

enum err snapshot_head_decode(struct slice bytes, struct snapshot_head *ret)
{
	Holdfast__Internal__SnapshotHead *pb;
	enum err e = ERR_CORRUPT;
	struct arena a;

	if (pb_check(&holdfast__internal__snapshot_head__descriptor, bytes, /*max_depth=*/0) != PB_CHECK_OK)
		return ERR_CORRUPT;
	arena_init(&a);
	pb = holdfast__internal__snapshot_head__unpack(&a.pb, bytes.len, bytes.ptr);
	if (pb)
		e = from_message(pb, ret);
	arena_deinit(&a);
	return e;
}
