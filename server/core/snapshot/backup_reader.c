/* backup_reader.c: from a backup file back to a state, believing nothing.
 *
 * A part of the file (header, a frame's head, a frame, the padding, the checksum) is gathered whole and then taken, so pieces may be cut
 * anywhere. Each frame has a checksum of its own: what is damaged is found before it is decoded, and where it is can be told. */
#include "core/snapshot/backup.h"

#include "base/mem.h"

enum { HEADER_BYTES = BACKUP_MAGIC_BYTES + 16, FRAME_HEAD_BYTES = 8, FRAME_MAX = 128 << 20 };

enum part { PART_HEADER, PART_FRAME_HEAD, PART_FRAME, PART_PADDING, PART_CHECKSUM, PART_DONE };

struct backup_reader {
	enum part part;
	size_t want;        /* bytes of the present part */
	struct buf have;    /* of it, so far */
	uint32_t frame_crc;
	uint64_t offset;    /* of parts taken */
	struct sha256 sum;
	struct snapshot_decoder *decoder;
	struct backup_info info;
	const char *why;
	enum err failed;
};

struct backup_reader *backup_reader_new(void)
{
	struct backup_reader *r = mem_zalloc(sizeof *r);

	r->want = HEADER_BYTES;
	r->why = "";
	sha256_init(&r->sum);
	return r;
}

void backup_reader_free(struct backup_reader *r)
{
	if (!r)
		return;
	snapshot_decoder_free(r->decoder);
	buf_free(&r->have);
	free(r);
}

const char *backup_reader_why(const struct backup_reader *r)
{
	return r->why;
}

static enum err fail(struct backup_reader *r, enum err e, const char *why)
{
	r->failed = e;
	r->why = why;
	return e;
}

static uint64_t number(const uint8_t *at, size_t bytes)
{
	uint64_t v = 0;

	for (size_t i = 0; i < bytes; i++)
		v |= (uint64_t)at[i] << (8 * i);
	return v;
}

static void next_part(struct backup_reader *r, enum part part, size_t want)
{
	r->part = part;
	r->want = want;
}

static enum err take_header(struct backup_reader *r)
{
	const uint8_t *at = r->have.ptr;

	if (memcmp(at, BACKUP_MAGIC, BACKUP_MAGIC_BYTES) != 0)
		return fail(r, ERR_SYNTAX, "this is not a backup made by Holdfast");
	if (number(at + 16, 4) != BACKUP_VERSION || number(at + 20, 4) != 0)
		return fail(r, ERR_WRONG_VERSION, "the backup was made by a newer release");
	r->info.cell_id = number(at + 24, 8);
	r->decoder = snapshot_decoder_new(r->info.cell_id);
	next_part(r, PART_FRAME_HEAD, FRAME_HEAD_BYTES);
	return ERR_OK;
}

static enum err take_frame_head(struct backup_reader *r)
{
	uint64_t len = number(r->have.ptr, 4), second = number(r->have.ptr + 4, 4);
	uint64_t end = r->offset + FRAME_HEAD_BYTES;

	if (len > FRAME_MAX)
		return fail(r, ERR_CORRUPT, "the backup is damaged: a frame is longer than any can be");
	if (len > 0) {
		r->frame_crc = (uint32_t)second;
		next_part(r, PART_FRAME, (size_t)len);
		return ERR_OK;
	}
	if (second != r->info.frames)
		return fail(r, ERR_CORRUPT, "the backup is damaged: it does not hold as many frames as it says");
	if (end % BACKUP_BLOCK)
		next_part(r, PART_PADDING, BACKUP_BLOCK - (size_t)(end % BACKUP_BLOCK));
	else
		next_part(r, PART_CHECKSUM, SHA256_BYTES);
	return ERR_OK;
}

static enum err take_frame(struct backup_reader *r)
{
	enum err e;

	if (crc32c(0, r->have.ptr, r->have.len) != r->frame_crc)
		return fail(r, ERR_CORRUPT, "the backup is damaged: a frame's checksum is wrong");
	e = snapshot_decoder_feed(r->decoder, buf_view(&r->have));
	if (e == ERR_WRONG_VERSION)
		return fail(r, e, "the backup was made by a newer release");
	if (e)
		return fail(r, ERR_CORRUPT, "the backup is damaged: a frame does not hold what it should");
	r->info.frames++;
	next_part(r, PART_FRAME_HEAD, FRAME_HEAD_BYTES);
	return ERR_OK;
}

static enum err take_padding(struct backup_reader *r)
{
	for (size_t i = 0; i < r->have.len; i++)
		if (r->have.ptr[i] != 0)
			return fail(r, ERR_CORRUPT, "the backup is damaged: there is something behind its end");
	next_part(r, PART_CHECKSUM, SHA256_BYTES);
	return ERR_OK;
}

static enum err take_checksum(struct backup_reader *r)
{
	sha256_end(&r->sum, r->info.checksum);
	if (memcmp(r->info.checksum, r->have.ptr, SHA256_BYTES) != 0)
		return fail(r, ERR_CORRUPT, "the backup is damaged: its checksum is wrong");
	next_part(r, PART_DONE, 1);
	return ERR_OK;
}

static enum err take(struct backup_reader *r)
{
	if (r->part < PART_CHECKSUM)
		sha256_add(&r->sum, buf_view(&r->have));
	switch (r->part) {
	case PART_HEADER:
		return take_header(r);
	case PART_FRAME_HEAD:
		return take_frame_head(r);
	case PART_FRAME:
		return take_frame(r);
	case PART_PADDING:
		return take_padding(r);
	case PART_CHECKSUM:
		return take_checksum(r);
	case PART_DONE:
		break;
	}
	return fail(r, ERR_CORRUPT, "the backup is damaged: there is something behind its end");
}

enum err backup_reader_feed(struct backup_reader *r, struct slice bytes)
{
	enum err e = ERR_OK;

	ASSERT(!r->failed);
	r->info.bytes += bytes.len;
	while (bytes.len > 0 && !e) {
		size_t n = r->want - r->have.len < bytes.len ? r->want - r->have.len : bytes.len;

		buf_append_slice(&r->have, slice_of(bytes.ptr, n));
		bytes = slice_of(bytes.ptr + n, bytes.len - n);
		if (r->have.len < r->want)
			break;
		e = take(r);
		r->offset += r->have.len;
		buf_clear(&r->have);
	}
	return e;
}

enum err backup_reader_finish(struct backup_reader *r, struct state *ret, struct backup_info *ret_info)
{
	if (r->failed)
		return r->failed;
	if (r->part == PART_HEADER)
		return fail(r, ERR_SYNTAX, "this is not a backup made by Holdfast: it is too short");
	if (r->part != PART_DONE)
		return fail(r, ERR_CORRUPT, "the backup is cut short");
	if (snapshot_decoder_finish(r->decoder, ret))
		return fail(r, ERR_CORRUPT, "the backup is damaged: its state is not the one that was saved");
	r->info.state_hash = state_hash(ret);
	*ret_info = r->info;
	return ERR_OK;
}
