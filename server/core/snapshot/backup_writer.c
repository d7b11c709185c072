/* backup_writer.c: from a view to the pieces of a backup file. */
#include "core/snapshot/backup.h"

#include "base/mem.h"

struct backup_writer {
	struct snapshot_encoder *encoder;
	uint64_t cell_id, offset;
	uint32_t frames;
	struct sha256 sum;
	struct buf chunk;
	bool begun, ended;
};

struct backup_writer *backup_writer_new(const struct state *view, uint64_t cell_id)
{
	struct backup_writer *w = mem_zalloc(sizeof *w);

	w->encoder = snapshot_encoder_new(view, cell_id);
	w->cell_id = cell_id;
	sha256_init(&w->sum);
	return w;
}

void backup_writer_free(struct backup_writer *w)
{
	if (!w)
		return;
	snapshot_encoder_free(w->encoder);
	buf_free(&w->chunk);
	free(w);
}

static void put_number(struct buf *b, uint64_t v, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		buf_append_byte(b, (uint8_t)(v >> (8 * i)));
}

static void put_header(const struct backup_writer *w, struct buf *out)
{
	buf_append_slice(out, slice_of(BACKUP_MAGIC, BACKUP_MAGIC_BYTES));
	put_number(out, BACKUP_VERSION, 4);
	put_number(out, 0, 4);
	put_number(out, w->cell_id, 8);
}

static void put_frame(struct backup_writer *w, struct buf *out)
{
	put_number(out, w->chunk.len, 4);
	put_number(out, crc32c(0, w->chunk.ptr, w->chunk.len), 4);
	buf_append_slice(out, buf_view(&w->chunk));
	w->frames++;
}

static void put_end(const struct backup_writer *w, struct buf *out, size_t start)
{
	put_number(out, 0, 4);
	put_number(out, w->frames, 4);
	while ((w->offset + (out->len - start)) % BACKUP_BLOCK)
		buf_append_byte(out, 0);
}

bool backup_writer_next(struct backup_writer *w, struct buf *ret)
{
	uint8_t digest[SHA256_BYTES];
	size_t start = ret->len;

	if (w->ended)
		return false;
	if (!w->begun)
		put_header(w, ret);
	w->begun = true;
	buf_clear(&w->chunk);
	if (snapshot_encoder_next(w->encoder, &w->chunk)) {
		put_frame(w, ret);
	} else {
		put_end(w, ret, start);
		w->ended = true;
	}
	sha256_add(&w->sum, slice_of(ret->ptr + start, ret->len - start));
	w->offset += ret->len - start;
	if (w->ended) {
		sha256_end(&w->sum, digest);
		buf_append_slice(ret, slice_of(digest, sizeof digest));
	}
	return true;
}

uint64_t backup_size(const struct state *view, uint64_t cell_id)
{
	struct snapshot_encoder *e = snapshot_encoder_new(view, cell_id);
	uint64_t size = BACKUP_MAGIC_BYTES + 16;
	struct buf chunk = { 0 };

	for (; snapshot_encoder_next(e, &chunk); buf_clear(&chunk))
		size += 8 + chunk.len;
	buf_free(&chunk);
	snapshot_encoder_free(e);
	size += 8;
	return (size + BACKUP_BLOCK - 1) / BACKUP_BLOCK * BACKUP_BLOCK + SHA256_BYTES;
}
