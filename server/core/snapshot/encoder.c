/* encoder.c: from an open view to chunks.
 *
 * Reads the view and nothing else, so it may run on any thread while the core goes on. A record is encoded before it is known whether it
 * still fits; one that does not waits for the next chunk. A group's header tells the count, which is known only when the group ends:
 * hence a group is put together aside and appended as a whole. Memory: two chunks and a record. */
#include "base/mem.h"
#include "base/pbw.h"
#include "core/snapshot/format.h"

struct snapshot_encoder {
	struct state view; /* the caller's nodes, our own roots: no count is touched */
	struct tree *trees[STATE_TREES_MAX];
	size_t trees_len, tree; /* tree: the one `cursor` is in */
	struct tree_cursor cursor;
	uint64_t cell_id;
	bool begun;
	bool waiting;      /* `record` is the next one to write */
	struct buf record;
	struct buf group;  /* the open group's records */
	uint64_t count;    /* of them */
};

/* The first record from here on, in the next tree that has any. */
static struct tree_record *enter_tree(struct snapshot_encoder *e)
{
	struct tree_record *r = NULL;

	while (e->tree < e->trees_len && !(r = tree_first(&e->cursor, e->trees[e->tree])))
		e->tree++;
	return r;
}

static void wait_with(struct snapshot_encoder *e, struct tree_record *r)
{
	buf_clear(&e->record);
	e->waiting = r != NULL;
	if (r)
		e->trees[e->tree]->type->encode(r, &e->record);
}

struct snapshot_encoder *snapshot_encoder_new(const struct state *view, uint64_t cell_id)
{
	struct snapshot_encoder *e = mem_zalloc(sizeof(*e));

	e->view = *view;
	e->trees_len = state_trees(&e->view, e->trees);
	e->cell_id = cell_id;
	wait_with(e, enter_tree(e));
	return e;
}

void snapshot_encoder_free(struct snapshot_encoder *e)
{
	if (!e)
		return;
	buf_free(&e->record);
	buf_free(&e->group);
	free(e);
}

static void append_record(struct buf *b, struct slice record)
{
	pbw_varint(b, record.len);
	buf_append_slice(b, record);
}

static void append_group(struct buf *chunk, uint64_t section, uint64_t version, uint64_t count, struct slice records)
{
	pbw_varint(chunk, section);
	pbw_varint(chunk, version);
	pbw_varint(chunk, count);
	buf_append_slice(chunk, records);
}

static void append_head(struct snapshot_encoder *e, struct buf *chunk)
{
	struct snapshot_head head = {
		.applied = e->view.applied,
		.revision = e->view.revision,
		.compact_revision = e->view.compact_revision,
		.state_hash = state_hash(&e->view),
		.cell_id = e->cell_id,
		.restored = e->view.restored,
	};
	struct buf packed = { 0 };
	struct buf record = { 0 };

	snapshot_head_encode(&head, &packed);
	append_record(&record, buf_view(&packed));
	append_group(chunk, SECTION_HEAD, HEAD_VERSION, 1, buf_view(&record));
	buf_free(&packed);
	buf_free(&record);
}

/* used: bytes of the chunk so far, its version byte and closed groups; any chunk takes at least one record. */
static bool fits(const struct snapshot_encoder *e, size_t used)
{
	size_t record = pbw_varint_size(e->record.len) + e->record.len;

	return (used == 1 && e->count == 0) || used + GROUP_HEADER_MAX + e->group.len + record <= SNAPSHOT_CHUNK_BYTES;
}

/* Writes records of one tree until it ends or the chunk is full; returns whether there is room for more. */
static bool append_tree(struct snapshot_encoder *e, struct buf *chunk, size_t start)
{
	const struct tree_type *type = e->trees[e->tree]->type;
	struct tree_record *r = NULL;
	bool room;

	buf_clear(&e->group);
	e->count = 0;
	while ((room = fits(e, chunk->len - start))) {
		append_record(&e->group, buf_view(&e->record));
		e->count++;
		r = tree_next(&e->cursor);
		if (!r)
			break;
		wait_with(e, r);
	}
	if (e->count > 0)
		append_group(chunk, type->section, type->version, e->count, buf_view(&e->group));
	if (room) { /* then it is the tree that has ended */
		e->tree++;
		wait_with(e, enter_tree(e));
	}
	return room;
}

bool snapshot_encoder_next(struct snapshot_encoder *e, struct buf *ret_chunk)
{
	size_t start = ret_chunk->len;

	if (e->begun && !e->waiting)
		return false;
	buf_append_byte(ret_chunk, CHUNK_VERSION);
	if (!e->begun)
		append_head(e, ret_chunk);
	e->begun = true;
	while (e->waiting && append_tree(e, ret_chunk, start))
		;
	return true;
}
