/* check_raft.c: what consensus must never do, seen from outside by one who sees all replicas and all disks.
 *
 *   election safety       one leader a term
 *   log matching          an index and a term name one entry, and one entry before it
 *   leader completeness   who is elected has all that was ever committed
 *   commitment            what anybody takes for committed is on the disks of a quorum, with that term
 *   state machine safety  all apply the same entry at the same index, and have equal states after it (P10)
 *   promises              a vote and an acknowledgement leave only when what they say is on disk (P8) */
#include "sim.h"

#include "base/hash.h"
#include "core/command.h"
#include "core/member/member.h"
#include "core/wire.h"

static uint64_t content_of(const struct raft_entry *e)
{
	return hash64(e->kind, e->data, e->len) | 1;
}

/* ---- entries ---- */

static void note_entry(struct replica *r, const struct raft_entry *e)
{
	struct world *w = r->w;
	const struct raft_entry *prev = dlog_at(&r->log, e->index - 1);
	uint64_t content = content_of(e);
	uint64_t key = hash64_u64(hash64_u64(1, e->index), e->term);
	void *known = map64_put(&w->seen, key, (void *)(uintptr_t)content);

	/* A sole voter leads before its vote is on disk; should it crash, it leads in that term again, and nobody has seen the entries of before. */
	CHECK(w, "log matching", !known || w->config.replicas == 1 || (uint64_t)(uintptr_t)known == content, "%s: entry %llu of term %llu differs from another's", r->name,
	      (unsigned long long)e->index, (unsigned long long)e->term);
	if (prev) {
		known = map64_put(&w->seen, key ^ 1, (void *)(uintptr_t)(prev->term + 1));
		CHECK(w, "log matching", !known || (raft_term)(uintptr_t)known == prev->term + 1,
		      "%s: entry %llu of term %llu follows another entry than elsewhere", r->name, (unsigned long long)e->index,
		      (unsigned long long)e->term);
	}
	if (!known) {
		known = map64_put(&w->contents, content, (void *)(uintptr_t)e->term);
		w->totals.anew += e->len > 0 && known && (raft_term)(uintptr_t)known != e->term;
	}
}

void check_taken(struct replica *r, const struct core_write *wr)
{
	if (wr->truncate_from && wr->truncate_from < dlog_end(&r->log))
		dlog_cut(&r->log, wr->truncate_from);
	for (size_t i = 0; i < wr->entries_len; i++) {
		struct raft_entry *e = wr->entries[i];

		if (e->index > dlog_end(&r->log)) /* behind an installed snapshot */
			dlog_clear(&r->log, e->index);
		CHECK(r->w, "raft", e->index == dlog_end(&r->log), "%s: writes entry %llu where %llu is due", r->name, (unsigned long long)e->index,
		      (unsigned long long)dlog_end(&r->log));
		dlog_append(&r->log, e);
		note_entry(r, e);
	}
}

/* ---- commitment ---- */

static bool has_durably(const struct replica *r, raft_index index, raft_term term)
{
	raft_index snapshot = r->wiped ? r->lost_snapshot : r->disk.snapshot ? r->disk.snapshot->id.index : 0;
	const struct raft_entry *e = dlog_at(r->wiped ? &r->lost : &r->disk.log, index);

	if (e ? e->term == term : snapshot >= index)
		return true;
	/* Damaged since: it was there when it was acknowledged. */
	e = dlog_at(&r->disk.had, index);
	return e ? e->term == term : r->disk.had_snapshot >= index;
}

static const struct replica *replica_with(const struct world *w, member_id id)
{
	for (uint32_t i = 0; i < w->config.replicas; i++)
		if (w->replicas[i].member == id)
			return &w->replicas[i];
	return NULL;
}

static bool quorum_has(const struct world *w, const struct raft_member *members, size_t len, const struct raft_entry *e)
{
	uint32_t voters = 0, have = 0;

	for (size_t i = 0; i < len; i++) {
		const struct replica *r = replica_with(w, members[i].id);

		voters += !members[i].learner;
		have += !members[i].learner && r && has_durably(r, e->index, e->term);
	}
	return 2 * have > voters;
}

static size_t config_of(const struct replica *r, struct raft_member out[RAFT_MEMBERS_MAX])
{
	struct tree_cursor cursor;
	size_t n = 0;

	for (struct tree_record *t = tree_first(&cursor, &core_state(r->core)->members); t; t = tree_next(&cursor)) {
		const struct member_record *m = CONTAINER_OF(t, struct member_record, base);

		out[n++] = (struct raft_member){ m->id, !member_counts(m) };
	}
	return n;
}

/* It changes with what is applied alone. */
static void note_config(struct replica *r)
{
	raft_index applied = core_state(r->core)->applied.index;

	if (r->config_at != applied || applied == 0)
		r->config_len = config_of(r, r->config);
	r->config_at = applied;
}

/* Of who leads: one change at a time, and none before something of its own term is committed. */
static void check_change(struct replica *r, const struct raft_entry *e)
{
	const struct raft_entry *committed = dlog_at(&r->log, r->noted_commit);

	for (raft_index i = r->noted_commit + 1; i < e->index; i++) {
		const struct raft_entry *before = dlog_at(&r->log, i);

		CHECK(r->w, "membership", !before || before->kind != RAFT_ENTRY_CONFIG, "%s proposes change %llu while %llu is under way", r->name,
		      (unsigned long long)e->index, (unsigned long long)i);
	}
	CHECK(r->w, "membership", !committed || committed->term == e->term, "%s proposes change %llu before anything of its term is committed", r->name,
	      (unsigned long long)e->index);
}

static void newly_committed(struct replica *r, struct raft_entry *e)
{
	struct raft_member now[RAFT_MEMBERS_MAX];
	struct world *w = r->w;
	struct command cmd;
	uint32_t n = 0;
	uint64_t content = content_of(e);

	for (uint32_t i = 0; i < w->config.replicas; i++)
		n += has_durably(&w->replicas[i], e->index, e->term);
	/* By the members of before this batch, or by those that it has applied. */
	CHECK(w, "P8", quorum_has(w, r->config, r->config_len, e) || quorum_has(w, now, config_of(r, now), e), "%s takes entry %llu of term %llu for committed, which %u of %u have on disk", r->name,
	      (unsigned long long)e->index, (unsigned long long)e->term, n, w->config.replicas);
	/* One that names a session may be: it still takes effect once. */
	if (e->kind == RAFT_ENTRY_COMMAND && command_parse(raft_entry_data(e), &cmd) && cmd.origin_call != 0 && cmd.session == 0)
		CHECK(w, "P9", !map64_put(&w->committed_once, content, w), "command %llu of member %llx is committed twice, at %llu too",
		      (unsigned long long)cmd.origin_call, (unsigned long long)cmd.origin_member, (unsigned long long)e->index);
	*SIM_PUSH(&w->log) = (struct committed){ .term = e->term, .committed_in = raft_current_term(core_raft(r->core)), .content = content, .entry = raft_entry_ref(e) };
}

static void note_commit(struct replica *r, raft_index to)
{
	struct world *w = r->w;

	CHECK(w, "raft", to >= r->noted_commit, "%s: the commit index falls to %llu", r->name, (unsigned long long)to);
	for (raft_index i = r->noted_commit + 1; i <= to; i++) {
		struct raft_entry *e = dlog_at(&r->log, i);

		CHECK(w, "raft", e, "%s: takes entry %llu for committed, which it does not have", r->name, (unsigned long long)i);
		if (i > w->log.len)
			newly_committed(r, e);
		CHECK(w, "state machine safety", w->log.at[i - 1].term == e->term && w->log.at[i - 1].content == content_of(e),
		      "%s: commits another entry at %llu: term %llu instead of %llu", r->name, (unsigned long long)i, (unsigned long long)e->term,
		      (unsigned long long)w->log.at[i - 1].term);
	}
	r->noted_commit = to;
}

static void note_applied(struct replica *r)
{
	struct world *w = r->w;
	const struct state *st = core_state(r->core);
	raft_index to = st->applied.index;

	CHECK(w, "raft", to >= r->noted_applied, "%s: what is applied falls to %llu", r->name, (unsigned long long)to);
	CHECK(w, "raft", to <= r->noted_commit, "%s: applies entry %llu, which is not committed", r->name, (unsigned long long)to);
	CHECK(w, "P11", st->revision >= r->noted_revision, "%s: its revision falls to %lld", r->name, (long long)st->revision);
	for (raft_index i = referee_state(w->referee)->applied.index + 1; i <= to; i++) {
		referee_apply(w->referee, w->log.at[i - 1].entry);
		w->log.at[i - 1].state_hash = state_hash(referee_state(w->referee));
	}
	if (to > r->noted_applied)
		CHECK(w, "P10", state_hash(st) == w->log.at[to - 1].state_hash, "%s: another state than others' after entry %llu", r->name,
		      (unsigned long long)to);
	r->noted_applied = to;
	r->noted_revision = st->revision;
}

/* ---- roles ---- */

static void elected(struct replica *r, raft_term term)
{
	struct world *w = r->w;
	void *before = map64_put(&w->leaders, term, (void *)(uintptr_t)(r->id + 1));

	CHECK(w, "election safety", !before || (uintptr_t)before == r->id + 1, "%s leads in term %llu, where r%u did", r->name, (unsigned long long)term,
	      (uint32_t)(uintptr_t)before);
	for (raft_index i = r->log.first; i <= w->log.len; i++) {
		const struct raft_entry *e = dlog_at(&r->log, i);

		/* One who was stopped may win late, in a term that is over by then: it need not have what a later term committed. */
		CHECK(w, "leader completeness", (e && e->term == w->log.at[i - 1].term) || w->log.at[i - 1].committed_in >= term, "%s leads in term %llu without entry %llu", r->name,
		      (unsigned long long)term, (unsigned long long)i);
	}
	CHECK(w, "P8", !r->wiped, "%s leads with an exchanged disk", r->name);
	w->totals.elections++;
	w->totals.leader_changes += w->last_leader != r->id + 1;
	w->last_leader = r->id + 1;
	TRACE(w, "%s is elected in term %llu", r->name, (unsigned long long)term);
}

/* Whoever does not acknowledge delays a writer by a TTL at most, whatever else it does. */
static void check_gate(struct replica *r)
{
	uint64_t total;
	time_ms oldest;

	core_gated(r->core, &total, &oldest);
	r->w->totals.gated += total - r->noted_gated;
	r->noted_gated = total;
	CHECK(r->w, "P6", oldest <= CACHER_TTL_MAX_S * 1000 + 500, "%s: a write has waited for %llu ms for a cache to be emptied", r->name,
	      (unsigned long long)oldest);
}

void check_step(struct replica *r)
{
	const struct raft *raft = core_raft(r->core);
	raft_term term = raft_current_term(raft);
	enum raft_role role = raft_role(raft);
	bool led = r->noted_role == RAFT_LEADER && role == RAFT_LEADER && term == r->noted_term;
	raft_index commit = raft_commit_index(raft);

	CHECK(r->w, "raft", term >= r->noted_term, "%s: its term falls to %llu", r->name, (unsigned long long)term);
	if (role == RAFT_LEADER && (r->noted_role != RAFT_LEADER || term != r->noted_term))
		elected(r, term);
	if (r->w->opts.trace && (role != r->noted_role || term != r->noted_term)) {
		static const char *const names[] = { "follower", "pre-candidate", "candidate", "leader" };

		sim_trace_line(r->w, "%s is a %s in term %llu, log to %llu, commit %llu", r->name, names[role], (unsigned long long)term,
			       (unsigned long long)raft_last_index(raft), (unsigned long long)commit);
	}
	if (led)
		for (raft_index i = r->noted_last + 1; i < dlog_end(&r->log); i++)
			if (dlog_at(&r->log, i) && dlog_at(&r->log, i)->kind == RAFT_ENTRY_CONFIG)
				check_change(r, dlog_at(&r->log, i));
	r->noted_last = dlog_end(&r->log) - 1;
	r->noted_role = role;
	r->noted_term = term;
	if (role == RAFT_LEADER && !r->leads)
		r->leads_since = r->w->now;
	r->leads = role == RAFT_LEADER;
	/* Raft figure 8: by number of copies a leader commits only what is of its own term. */
	CHECK(r->w, "commitment", !led || commit == r->noted_commit || dlog_at(&r->log, commit)->term == term,
	      "%s: commits up to entry %llu, which is of an older term", r->name, (unsigned long long)commit);
	note_commit(r, commit);
	note_applied(r);
	note_config(r);
	if (role == RAFT_LEADER && r->w->config.cachers > 0)
		check_gate(r);
	if (r->batches++ % 256 == 0)
		core_check(r->core);
}

/* Who knows of its own removal needs nobody to tell it: by the log, by a snapshot, or by what it starts with. */
void check_goes_on(struct replica *r, bool stops)
{
	CHECK(r->w, "membership", stops || !member_was_removed(core_state(r->core), r->member), "%s has applied its own removal and goes on", r->name);
}

/* ---- starts and snapshots ---- */

void check_started(struct replica *r)
{
	struct world *w = r->w;
	const struct disk *d = &r->disk;
	raft_index snapshot = d->snapshot ? d->snapshot->id.index : 0;

	dlog_clear(&r->log, d->log.first);
	for (size_t i = 0; i < d->log.len; i++)
		dlog_append(&r->log, d->log.at[i]);
	r->noted_commit = raft_commit_index(core_raft(r->core));
	r->noted_applied = core_state(r->core)->applied.index;
	r->noted_term = raft_current_term(core_raft(r->core));
	r->noted_role = RAFT_FOLLOWER;
	r->noted_gated = 0;
	r->noted_revision = core_state(r->core)->revision;
	r->leads = false;
	r->config_at = 0;
	note_config(r);
	r->noted_last = dlog_end(&r->log) - 1;
	CHECK(w, "P8", r->noted_term >= d->hard.term, "%s: starts in term %llu, was in %llu", r->name, (unsigned long long)r->noted_term,
	      (unsigned long long)d->hard.term);
	CHECK(w, "raft", r->noted_commit <= w->log.len, "%s: starts with commit index %llu, above everybody's", r->name,
	      (unsigned long long)r->noted_commit);
	for (raft_index i = d->log.first; i <= r->noted_commit; i++) {
		const struct raft_entry *e = dlog_at(&d->log, i);

		CHECK(w, "state machine safety", (e && e->term == w->log.at[i - 1].term) || (!e && i <= snapshot),
		      "%s: starts with another entry at %llu than was committed", r->name, (unsigned long long)i);
	}
}

void check_installed(struct replica *r, struct entry_id id)
{
	struct world *w = r->w;
	const struct state *st = core_state(r->core);
	const struct raft_entry *e = dlog_at(&r->log, id.index);

	if (st->applied.index != id.index)
		return;
	CHECK(w, "P10", id.index <= w->log.len && state_hash(st) == w->log.at[id.index - 1].state_hash,
	      "%s: installs another state than others' after entry %llu", r->name, (unsigned long long)id.index);
	if (!e || e->term != id.term)
		dlog_clear(&r->log, id.index + 1);
	if (r->noted_commit < id.index)
		r->noted_commit = id.index;
	r->noted_applied = id.index;
	r->noted_revision = st->revision;
	w->totals.installs++;
	TRACE(w, "%s: snapshot at %llu is installed", r->name, (unsigned long long)id.index);
}

/* ---- what leaves ---- */

#define KIND(k) HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__RAFT_##k

struct sent {
	uint64_t kind, term, reject, match;
};

static struct sent parse_sent(struct slice body)
{
	struct sent s = { 0 };
	struct wire w;

	for (wire_init(&w, body); wire_next(&w);) {
		switch (w.field) {
		case 1: s.kind = wire_u64(&w); break;
		case 2: s.term = wire_u64(&w); break;
		case 6: s.reject = wire_u64(&w); break;
		case 7: s.match = wire_u64(&w); break;
		default: break;
		}
	}
	return s;
}

void check_promise(struct replica *r, member_id to, struct slice bytes)
{
	struct world *w = r->w;
	const struct disk *d = &r->disk;
	struct slice body = wire_find_bytes(bytes, 10);
	struct sent s;

	if (body.len == 0)
		return;
	s = parse_sent(body);
	if (s.kind == KIND(PREVOTE) || s.kind == KIND(PREVOTE_REPLY))
		return;
	CHECK(w, "P8", s.term <= d->hard.term, "%s speaks in term %llu, on its disk is %llu (kind %llu)", r->name, (unsigned long long)s.term,
	      (unsigned long long)d->hard.term, (unsigned long long)s.kind);
	if (s.kind == KIND(VOTE))
		CHECK(w, "P8", d->hard.term > s.term || d->hard.voted_for == r->member, "%s asks for votes before its own is on disk", r->name);
	if (s.kind == KIND(VOTE_REPLY) && !s.reject)
		CHECK(w, "P8", d->hard.term > s.term || d->hard.voted_for == to, "%s votes for %llx, but not on its disk", r->name,
		      (unsigned long long)to);
	/* Of an older term: a later leader may have had it cut in the same commit. Who voted for that one judged by what was acknowledged here, so
	 * the older leader cannot reach a quorum with it. */
	if (s.kind == KIND(APPEND_REPLY) && !s.reject && s.term == d->hard.term)
		CHECK(w, "P8", disk_last(d).index >= s.match, "%s acknowledges up to %llu, on its disk is %llu", r->name, (unsigned long long)s.match,
		      (unsigned long long)disk_last(d).index);
}
