/* raft_entry.c: one allocation an entry, counted by reference.
 *
 * The log in memory, messages on their way out and the disk thread all hold the same bytes; whoever drops the last
 * reference frees them, on whatever thread that is.
 *   (E1) nothing but the count changes after raft_entry_new(): readers need no lock.
 *   (E2) a reference is only ever made from a reference: the count never rises from zero. */
#include "core/raft/raft_entry.h"

#include <string.h>

#include "base/mem.h"

struct raft_entry *raft_entry_new(struct entry_id id, enum raft_entry_kind kind, struct slice data)
{
	struct raft_entry *e;

	ASSERT(data.len <= UINT32_MAX);
	e = mem_alloc(sizeof(*e) + data.len);
	e->refs = 1;
	e->len = (uint32_t)data.len;
	e->index = id.index;
	e->term = id.term;
	e->kind = (uint8_t)kind;
	if (data.len > 0)
		memcpy(e->data, data.ptr, data.len);
	return e;
}

struct raft_entry *raft_entry_ref(struct raft_entry *e)
{
	/* Relaxed will do: the caller's own reference keeps the entry alive, and (E1) orders nothing. */
	uint32_t before = __atomic_fetch_add(&e->refs, 1, __ATOMIC_RELAXED);

	ASSERT(before > 0 && before < UINT32_MAX); /* (E2) */
	return e;
}

void raft_entry_unref(struct raft_entry *e)
{
	uint32_t before;

	if (!e)
		return;
	/* Release: our reads come before the free. Acquire: the one who frees has seen everyone's release. */
	before = __atomic_fetch_sub(&e->refs, 1, __ATOMIC_ACQ_REL);
	ASSERT(before > 0);
	if (before == 1)
		free(e);
}
