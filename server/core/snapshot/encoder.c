/* encoder.c: from an open view to chunks.
 *
 * Reads the view and nothing else, so it may run on any thread while the core goes on. Everything is written where it stays: a record's length
 * is known only behind it, a group's count only at its end, so both are guessed and the bytes moved should the guess take another number of
 * bytes: the length to be like the last one's, the count to be all that the tree has left, which fails once a chunk at most. A record that
 * turns out not to fit is taken back, and written again into the next chunk. Memory: a chunk and a record. */
#include "base/mem.h"
#include "base/pbw.h"
#include "core/snapshot/format.h"

struct snapshot_encoder {
	struct state view; /* the caller's nodes, our own roots: no count is touched */
	struct tree *trees[STATE_TREES_MAX];
	size_t trees_len, tree; /* tree: the one `cursor` is in */
	struct tree_cursor cursor;
	struct tree_record *next; /* NULL: there is no more */
	uint64_t left;            /* of that tree, with next */
	size_t length_bytes;      /* that the last record's length took */
	uint64_t cell_id;
	size_t chunk_bytes;
	bool begun;
};

/* The first record from here on, in the next tree that has any. */
static void enter_tree(struct snapshot_encoder *e)
{
	e->next = NULL;
	while (e->tree < e->trees_len && !(e->next = tree_first(&e->cursor, e->trees[e->tree])))
		e->tree++;
	e->left = e->next ? e->trees[e->tree]->len : 0;
}

struct snapshot_encoder *snapshot_encoder_new(const struct state *view, uint64_t cell_id)
{
	struct snapshot_encoder *e = mem_zalloc(sizeof(*e));

	e->view = *view;
	e->trees_len = state_trees(&e->view, e->trees);
	e->cell_id = cell_id;
	e->chunk_bytes = SNAPSHOT_CHUNK_BYTES;
	e->length_bytes = 1;
	enter_tree(e);
	return e;
}

void snapshot_encoder_chunk_bytes(struct snapshot_encoder *e, size_t bytes)
{
	e->chunk_bytes = bytes;
}

void snapshot_encoder_free(struct snapshot_encoder *e)
{
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

/* Puts a number in front of what has been written from `at` + `guess` on; `guess` bytes were left for it. */
static void put_number(struct buf *chunk, size_t at, size_t guess, uint64_t v)
{
	size_t size = pbw_varint_size(v), end = chunk->len;

	if (size > guess)
		buf_reserve(chunk, size - guess);
	if (size != guess)
		memmove(chunk->ptr + at + size, chunk->ptr + at + guess, end - at - guess);
	chunk->len = at;
	pbw_varint(chunk, v); /* asks for no more room than is there: see leave_room() */
	chunk->len = end + size - guess;
}

/* For a number, with what pbw_varint() wants to have behind it. */
static void leave_room(struct buf *chunk, size_t guess)
{
	enum { VARINT_MAX = 10 };

	buf_reserve(chunk, guess + VARINT_MAX);
	chunk->len += guess;
}

static void append_next(struct snapshot_encoder *e, struct buf *chunk)
{
	size_t at = chunk->len, guess = e->length_bytes;

	leave_room(chunk, guess);
	e->trees[e->tree]->type->encode(e->next, chunk);
	e->length_bytes = pbw_varint_size(chunk->len - at - guess);
	put_number(chunk, at, guess, chunk->len - at - guess);
}

/* Writes records of one tree until it ends or the chunk is full; returns whether there is room for more. Any chunk takes at least one record. */
static bool append_tree(struct snapshot_encoder *e, struct buf *chunk, size_t start)
{
	const struct tree_type *type = e->trees[e->tree]->type;
	size_t group = chunk->len, guess = pbw_varint_size(e->left), count_at, records;
	bool first = group - start == 1, room = true;
	uint64_t count = 0;

	pbw_varint(chunk, type->section);
	pbw_varint(chunk, type->version);
	count_at = chunk->len;
	leave_room(chunk, guess);
	records = chunk->len;
	while (e->next) {
		size_t before = chunk->len;

		append_next(e, chunk);
		room = (first && count == 0) || group - start + GROUP_HEADER_MAX + chunk->len - records <= e->chunk_bytes;
		if (!room) {
			chunk->len = before;
			break;
		}
		count++;
		e->left--;
		e->next = tree_next(&e->cursor);
	}
	if (count > 0)
		put_number(chunk, count_at, guess, count);
	else
		chunk->len = group;
	if (room) { /* then it is the tree that has ended */
		e->tree++;
		enter_tree(e);
	}
	return room;
}

bool snapshot_encoder_next(struct snapshot_encoder *e, struct buf *ret_chunk)
{
	size_t start = ret_chunk->len;

	if (e->begun && !e->next)
		return false;
	buf_reserve(ret_chunk, 4096);
	buf_append_byte(ret_chunk, CHUNK_VERSION);
	if (!e->begun)
		append_head(e, ret_chunk);
	e->begun = true;
	while (e->next && append_tree(e, ret_chunk, start))
		;
	return true;
}
