/* snapshot.c: bytes as the chunks of a snapshot. What is taken is whole: it has its hash, and is written again as it was read.
 * Input: items, each a chunk. */
#include "base/mem.h"
#include "core/snapshot/snapshot.h"
#include "driver.h"
#include "rig.h"
#include "sessions.h"

static void check_state(struct state *st)
{
	struct snapshot_encoder *enc = snapshot_encoder_new(st, rig_cell(RIG_MEMBERS));
	struct snapshot_decoder *dec = snapshot_decoder_new(rig_cell(RIG_MEMBERS));
	struct buf chunk = { .ptr = NULL };
	struct state again;
	while (snapshot_encoder_next(enc, &chunk)) {
		ASSERT(snapshot_decoder_feed(dec, buf_view(&chunk)) == ERR_OK);
		buf_clear(&chunk);
	}
	ASSERT(snapshot_decoder_finish(dec, &again) == ERR_OK);
	ASSERT(state_hash(&again) == state_hash(st));
	state_deinit(&again);
	buf_free(&chunk);
	snapshot_decoder_free(dec);
	snapshot_encoder_free(enc);
}

static int fuzz_snapshot(const uint8_t *data, size_t size)
{
	struct snapshot_decoder *dec = snapshot_decoder_new(rig_cell(RIG_MEMBERS));
	enum err e = ERR_OK;
	struct item it;
	struct state st;
	for (size_t pos = 0; !e && item_next(slice_of(data, size), &pos, &it);)
		e = snapshot_decoder_feed(dec, it.bytes);
	if (!e && !snapshot_decoder_finish(dec, &st)) {
		check_state(&st);
		state_deinit(&st);
	}
	snapshot_decoder_free(dec);
	return 0;
}

/* Chunks are cut to what an item holds; their form is not protobuf's. */
static void mutate(struct rng *rng, struct buf *b, struct slice other)
{
	struct buf out = { .ptr = NULL };
	struct item it;
	size_t n = 0, chosen;
	for (size_t pos = 0; item_next(buf_view(b), &pos, &it);)
		n++;
	chosen = n ? rng_below(rng, n) : 0;
	n = 0;
	for (size_t pos = 0; item_next(buf_view(b), &pos, &it); n++) {
		struct buf copy = buf_copy_of(it.bytes);
		if (n == chosen)
			mutate_bytes(rng, &copy, other);
		item_add(&out, 0, buf_view(&copy));
		buf_free(&copy);
	}
	buf_free(b);
	*b = out;
}

static void seeds(struct fuzz_corpus *c)
{
	for (unsigned kind = 0; kind < SESSIONS; kind++) {
		struct session s;
		struct buf b = { .ptr = NULL };
		session_make(&s, kind);
		for (size_t i = 0; i < s.chunks_len; i++)
			item_add(&b, 0, buf_view(&s.chunks[i]));
		corpus_add(c, buf_view(&b));
		buf_free(&b);
		session_free(&s);
	}
}

const struct fuzz_target fuzz_target = { "snapshot", fuzz_snapshot, seeds, mutate, 50000 };
