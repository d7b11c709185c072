/* log.c: the end of the log in memory. A ring of references by index; older entries are on disk only. */
#include <string.h>

#include "raft_internal.h"

static size_t slot(const struct raft_log *l, raft_index index)
{
	return (size_t)index & (l->cap - 1);
}

static size_t log_len(const struct raft_log *l)
{
	return (size_t)(l->last.index + 1 - l->mem_first);
}

static void grow(struct raft_log *l)
{
	size_t cap = l->cap ? l->cap * 2 : 256;
	struct raft_entry **at = mem_alloc(cap * sizeof(*at));
	for (raft_index i = l->mem_first; i <= l->last.index; i++)
		at[(size_t)i & (cap - 1)] = l->at[slot(l, i)];
	free(l->at);
	l->at = at;
	l->cap = cap;
}

void log_init(struct raft_log *l, const struct raft_boot *boot)
{
	l->snapshot = boot->snapshot;
	l->first = boot->first;
	l->commit = boot->hard.commit > boot->snapshot.index ? boot->hard.commit : boot->snapshot.index;
	l->delivered = l->applied = boot->snapshot.index;
	ASSERT(boot->last.index >= l->commit);
	ASSERT(boot->first <= boot->snapshot.index + 1);
	ASSERT(boot->tail_len == boot->last.index - l->commit);
	l->last = (struct entry_id){ l->commit, l->commit == boot->last.index ? boot->last.term : 0 };
	if (l->commit == boot->snapshot.index)
		l->last.term = boot->snapshot.term;
	l->before = l->last;
	l->mem_first = l->commit + 1;
	for (size_t i = 0; i < boot->tail_len; i++)
		log_append_take(l, raft_entry_ref(boot->tail[i]));
	ASSERT(l->last.index == boot->last.index);
	ASSERT(l->last.term == boot->last.term);
	l->stable = boot->last.index;
	l->unwritten = boot->last.index + 1;
}

void log_deinit(struct raft_log *l)
{
	for (raft_index i = l->mem_first; i <= l->last.index; i++)
		raft_entry_unref(l->at[slot(l, i)]);
	free(l->at);
	l->at = NULL;
}

struct raft_entry *log_at(const struct raft_log *l, raft_index index)
{
	return index >= l->mem_first && index <= l->last.index ? l->at[slot(l, index)] : NULL;
}

raft_term log_term(const struct raft_log *l, raft_index index)
{
	const struct raft_entry *e = log_at(l, index);
	if (e)
		return e->term;
	if (index == l->before.index && l->before.term)
		return l->before.term;
	if (index == l->last.index)
		return l->last.term;
	return index == l->snapshot.index ? l->snapshot.term : 0;
}

void log_append_take(struct raft_log *l, struct raft_entry *e)
{
	ASSERT(e->index == l->last.index + 1);
	ASSERT(e->term >= l->last.term);
	if (log_len(l) == l->cap)
		grow(l);
	l->at[slot(l, e->index)] = e;
	l->bytes += e->len;
	l->last = (struct entry_id){ e->index, e->term };
}

void log_cut(struct raft *r, raft_index from)
{
	struct raft_log *l = &r->log;
	/* What is committed is never cut: whoever asks for it must not be followed. */
	ASSERT(from > l->commit);
	ASSERT(from >= l->mem_first);
	ASSERT(from <= l->last.index);
	for (raft_index i = from; i <= l->last.index; i++) {
		l->bytes -= l->at[slot(l, i)]->len;
		raft_entry_unref(l->at[slot(l, i)]);
	}
	l->last.index = from - 1;
	l->last.term = from == l->mem_first ? l->before.term : l->at[slot(l, from - 1)]->term;
	/* (R4): a write under way that has the old entries acknowledges none of them. */
	for (size_t i = 0; i < r->writes_len; i++) {
		if (r->writes[i].last >= from)
			r->writes[i].last = from - 1;
	}
	if (l->stable >= from)
		l->stable = from - 1;
	if (from < l->unwritten) {
		l->unwritten = from;
		if (!l->truncate_from || from < l->truncate_from)
			l->truncate_from = from;
	}
}

/* (R3) Only what is applied and durable may leave; the newest stay for followers that are a little behind. */
void log_evict(struct raft *r)
{
	struct raft_log *l = &r->log;
	raft_index may = l->applied < l->stable ? l->applied : l->stable;
	while (l->bytes > r->config.memory_bytes && l->mem_first <= may && l->mem_first < l->unwritten) {
		struct raft_entry *e = l->at[slot(l, l->mem_first)];
		l->before = (struct entry_id){ e->index, e->term };
		l->bytes -= e->len;
		l->mem_first++;
		raft_entry_unref(e);
	}
}

/* The log starts anew behind a snapshot. The disk's log was replaced together with the snapshot's installation. */
void raft_log_reset(struct raft *r, struct entry_id snapshot)
{
	struct raft_log *l = &r->log;
	log_deinit(l);
	l->cap = 0;
	l->bytes = 0;
	l->snapshot = l->before = l->last = snapshot;
	l->mem_first = l->unwritten = snapshot.index + 1;
	l->commit = l->delivered = l->applied = l->stable = snapshot.index;
	/* Should the disk still have entries behind the snapshot, they are not ours. */
	l->truncate_from = snapshot.index + 1;
	for (size_t i = 0; i < r->writes_len; i++)
		r->writes[i].last = 0;
}

raft_index log_find_conflict(const struct raft_log *l, raft_index at, raft_term term, raft_index floor)
{
	while (at > floor) {
		raft_term t = log_term(l, at);
		if (!t || t <= term)
			break;
		at--;
	}
	return at;
}

bool log_reaches(struct entry_id last, struct entry_id other)
{
	return last.term > other.term || (last.term == other.term && last.index >= other.index);
}

bool log_is_up_to_date(const struct raft_log *l, struct entry_id other_last)
{
	return log_reaches(other_last, l->last);
}
