/* restored.c: the first thing that happens in a cell made from a backup.
 *
 * What a backup holds was true once; the cell it was taken from may have gone on, and granted locks whose tokens the backup does not know.
 * So the new cell starts at a revision beyond all that any cell of before can have reached: the Unix time in seconds times 2^20. No
 * cell makes a million revisions a second, so that holds for a second restore of the same backup as well (P2, P11).
 *
 *   (F1) the time is the first leader's, and comes through the log: the members restore from equal files, each on its own, and must hold the same.
 *   (F2) until RESTORED is applied no other command is proposed but MEMBER_PUBLISH, and no leader serves (core_leads). */
#include "internal.h"

enum { REVISIONS_PER_SECOND_BITS = 20 };

bool restored_blocks(const struct core *c, uint32_t kind)
{
	return c->state.restored != 0 && kind != CMD(RESTORED) && kind != CMD(MEMBER_PUBLISH);
}

static revision floor_now(const struct core *c)
{
	uint64_t unix_s = (c->config.boot_unix_ms + (c->now - c->began)) / 1000;

	return (revision)(unix_s << REVISIONS_PER_SECOND_BITS);
}

/* An entry of this leader's own term is applied. */
void restored_sync(struct core *c)
{
	struct buf payload = { 0 };

	if (c->state.restored == 0 || c->restored_term == c->term)
		return;
	pbw_i64(&payload, 1, floor_now(c));
	if (core_propose_own(c, CMD(RESTORED), buf_view(&payload)) == ERR_OK)
		c->restored_term = c->term;
	buf_free(&payload);
}

enum err restored_apply(struct core *c, struct slice payload)
{
	revision floor = (revision)wire_find_u64(payload, 1, 0);
	struct buf compaction = { 0 };

	if (c->state.restored == 0)
		return ERR_OK;
	if (floor < 0 || floor > INT64_MAX / 2)
		return ERR_MALFORMED;
	store_raise(c->store, floor);
	pbw_i64(&compaction, 1, c->state.revision);
	streams_before_compact(c, buf_view(&compaction));
	kv_compact(&c->env, buf_view(&compaction), NULL); /* refused when it is compacted already: then there is nothing to do */
	buf_free(&compaction);
	c->state.restored = 0;
	return ERR_OK;
}
