/* auto_compact.c: the leader lets history go that nobody should need any more.
 *
 *   (H1) it keeps which revision was reached when, a sample a second or so, and compacts to the revision as of auto_compact_ms ago. A new
 *        leader has no samples of before: it waits for as long again. History is kept too long, never too short.
 *        Or it keeps auto_compact_revisions; then it lets a tenth of those gather before it compacts, so that not every write is followed by one.
 *   (H2) history above a quarter of the quota goes even if it is young.
 *   (H3) one command drops about COMPACT_EVENTS_MAX events, so applying it never holds the cell up; the next is proposed once it is applied. */
#include "internal.h"

static void sample(struct core *c)
{
	struct auto_compact *a = &c->compact;
	time_ms step = c->config.auto_compact_ms / (COMPACT_SAMPLES / 2);

	if (core_clock(c) < a->next_at)
		return;
	a->next_at = core_clock(c) + (step > 1000 ? step : 1000);
	if (a->len == COMPACT_SAMPLES) {
		a->first = (a->first + 1) % COMPACT_SAMPLES;
		a->len--;
	}
	a->samples[(a->first + a->len++) % COMPACT_SAMPLES] = (struct compact_sample){ .at = core_clock(c), .rev = c->state.revision };
}

/* H1: the newest sample that is old enough; older ones are of no use any more. 0: none. */
static revision old_revision(struct core *c)
{
	struct auto_compact *a = &c->compact;
	revision rev = 0;

	if (c->config.auto_compact_ms == 0)
		return 0;
	while (a->len > 0 && a->samples[a->first].at + c->config.auto_compact_ms <= core_clock(c)) {
		rev = a->samples[a->first].rev;
		if (a->len == 1 || a->samples[(a->first + 1) % COMPACT_SAMPLES].at + c->config.auto_compact_ms > core_clock(c))
			break;
		a->first = (a->first + 1) % COMPACT_SAMPLES;
		a->len--;
	}
	return rev;
}

/* H1: 0 when not enough has gathered. */
static revision surplus_revision(const struct core *c)
{
	revision keep = (revision)c->config.auto_compact_revisions, slack = keep / 10 > 100 ? keep / 10 : 100;

	return keep && c->state.revision - keep > c->state.compact_revision + slack ? c->state.revision - keep : 0;
}

/* H3: the highest revision up to `target` that drops no more than the bound, though at least one revision. */
static revision step_to(const struct core *c, revision target)
{
	uint64_t from = store_history_begin(c->store, c->state.compact_revision);
	uint64_t end = store_history_end(c->store);
	revision at;

	if (end - from <= COMPACT_EVENTS_MAX)
		return target;
	at = store_history_at(c->store, from + COMPACT_EVENTS_MAX).kv->mod_revision;
	if (at <= c->state.compact_revision)
		at = c->state.compact_revision + 1;
	return at < target ? at : target;
}

static void propose_compaction(struct core *c, revision target)
{
	struct buf payload = { 0 };

	pbw_i64(&payload, 1, target);
	if (core_propose_own(c, CMD(AUTO_COMPACT), buf_view(&payload)) == ERR_OK) {
		c->compact.proposed = target;
		c->compact.proposed_at = core_clock(c);
	}
	buf_free(&payload);
}

void auto_compact_tick(struct core *c)
{
	struct auto_compact *a = &c->compact;
	revision target;

	sample(c);
	if (a->proposed > c->state.compact_revision && core_clock(c) - a->proposed_at < c->config.request_timeout_ms)
		return;
	target = old_revision(c);
	if (surplus_revision(c) > target)
		target = surplus_revision(c);
	if (c->config.quota_bytes && store_history_bytes(c->store) > c->config.quota_bytes / 4) /* H2 */
		target = c->state.revision;
	if (target > c->state.compact_revision && target > 1)
		propose_compaction(c, step_to(c, target));
}
