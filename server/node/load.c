/* load.c: a core from what the disk holds: the newest snapshot, and the log's end behind the commit index. Committed entries between the two are read
 * by the core itself, piece by piece, so a start costs no more memory than running does. */
#include "internal.h"

#include <string.h>

#include "base/clock.h"
#include "core/snapshot/snapshot.h"
#include "log/log.h"

#define TAIL_READ_BYTES (8U << 20)

enum err node_decode_snapshot(struct node *n, uint64_t chunks, chunk_source source, void *ctx, struct state *ret, struct errmsg *em)
{
	struct snapshot_decoder *dec = snapshot_decoder_new(n->config.core.cell_id);
	struct buf chunk = { .ptr = NULL };
	enum err e = ERR_OK;
	for (uint64_t i = 0; !e && i < chunks; i++) {
		e = source(ctx, i, &chunk, em);
		if (!e && (e = snapshot_decoder_feed(dec, buf_view(&chunk))))
			errmsg_set(em, "chunk %llu: %s", (unsigned long long)i, err_text(e));
	}
	if (!e && (e = snapshot_decoder_finish(dec, ret)))
		errmsg_set(em, "the content does not match its hash");
	snapshot_decoder_free(dec);
	buf_free(&chunk);
	return e;
}

static enum err read_stored(void *arg, uint64_t number, struct buf *ret, struct errmsg *em)
{
	return storage_snapshot_read(arg, number, ret, em);
}

static enum err load_snapshot(struct node *n, struct state *ret, struct errmsg *em)
{
	struct storage_snapshot_reader *r;
	struct errmsg why = { .text = "" };
	enum err e = storage_snapshot_open(n->config.storage, &r, em);
	if (e)
		return e;
	e = node_decode_snapshot(n, storage_snapshot_reader_meta(r)->chunks, read_stored, r, ret, &why);
	if (e)
		errmsg_set(em, "snapshot at index %llu: %s; replace this member", (unsigned long long)storage_snapshot_reader_meta(r)->index, why.text);
	storage_snapshot_close(r);
	return e;
}

/* What was being received when the last process ended: the core hears of it before it hears of anything else. */
static void tell_part(struct node *n, const struct storage_snapshot_part *part)
{
	struct inbox_item *item;
	if (part->index == 0)
		return;
	item = mem_zalloc(sizeof(*item));
	item->event.kind = EVENT_SNAPSHOT_PART;
	item->event.part.id = (struct entry_id){ part->index, part->term };
	item->event.part.chunks = part->chunks;
	item->event.part.state_hash = part->state_hash;
	item->event.part.have = part->have;
	inbox_put_done(n, item);
	log_info("part of a snapshot is here", LOG_U64("index", part->index), LOG_U64("chunks", part->have), LOG_U64("of", part->chunks));
}

static enum err load_tail(struct node *n, raft_index from, raft_index to, struct raft_entry ***ret, size_t *ret_len, struct errmsg *em)
{
	struct raft_entry **tail = to >= from ? mem_alloc((size_t)(to - from + 1) * sizeof(*tail)) : NULL;
	size_t len = 0;
	while (from <= to) {
		struct storage_read_result r;
		enum err e = storage_read(n->config.storage, from, to, TAIL_READ_BYTES, &r, em);
		if (e) {
			while (len)
				raft_entry_unref(tail[--len]);
			free(tail);
			return e;
		}
		for (size_t i = 0; i < r.entries_len; i++) {
			const struct storage_entry *s = &r.entries[i];
			tail[len++] = raft_entry_new((struct entry_id){ s->index, s->term }, (enum raft_entry_kind)s->kind, s->payload);
		}
		from += r.entries_len;
		storage_read_result_free(&r);
	}
	*ret = tail;
	*ret_len = len;
	return ERR_OK;
}

enum err node_load(struct node *n, struct errmsg *em)
{
	const struct storage_state *s = storage_state(n->config.storage);
	struct raft_boot boot = {
		.hard = { .term = s->hard.term, .voted_for = s->hard.voted_for, .commit = s->hard.commit },
		.snapshot = { s->snapshot.index, s->snapshot.term },
		.last = { s->last_index, s->last_term },
		.first = s->first_index,
		.lost = { s->lost.index, s->lost.term },
	};
	struct raft_entry **tail = NULL;
	struct state state;
	enum err e = ERR_OK;
	if (s->has_snapshot)
		e = load_snapshot(n, &state, em);
	else
		state = *n->config.initial;
	if (e)
		return e;
	/* A replica may learn that an index is committed before its own disk has it. */
	raft_index from = boot.hard.commit < boot.last.index ? boot.hard.commit : boot.last.index;
	if (from < boot.snapshot.index)
		from = boot.snapshot.index;
	e = load_tail(n, from + 1, boot.last.index, &tail, &boot.tail_len, em);
	if (e) {
		state_deinit(&state);
		return e;
	}
	boot.tail = tail;
	if (s->has_snapshot)
		state_deinit(n->config.initial);
	memset(n->config.initial, 0, sizeof(*n->config.initial));
	n->core = core_new(&n->config.core, &state, &boot, boot_ms());
	tell_part(n, &s->part);
	for (size_t i = 0; i < boot.tail_len; i++)
		raft_entry_unref(tail[i]);
	free(tail);
	if (s->damage.text[0])
		log_error("stored data is damaged, the damage is cut out", LOG_STR("found", s->damage.text));
	if (s->lost.index)
		log_warn("entries that were acknowledged are lost: until they are fetched again from the peers this replica neither votes nor serves",
			 LOG_U64("from", s->last_index + 1), LOG_U64("to", s->lost.index), LOG_U64("term", s->lost.term));
	log_info("loaded", LOG_U64("snapshot_index", boot.snapshot.index), LOG_U64("last_index", boot.last.index),
		 LOG_U64("commit", boot.hard.commit), LOG_U64("term", boot.hard.term), LOG_U64("boot", s->boot));
	return ERR_OK;
}
