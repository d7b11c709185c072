/* raft_entry.h: one entry of the log, immutable once made and shared by reference count between the log in memory,
 * messages and the disk thread (the count is atomic; everything else is read only). */
#ifndef HOLDFAST_CORE_RAFT_ENTRY_H
#define HOLDFAST_CORE_RAFT_ENTRY_H

#include "core/types.h"

enum raft_entry_kind {
	RAFT_ENTRY_NOOP = 0,    /* starts a term; no data */
	RAFT_ENTRY_COMMAND = 1, /* data: a packed holdfast.internal.Command */
	RAFT_ENTRY_CONFIG = 2,  /* data: a membership change */
};

struct raft_entry {
	uint32_t refs; /* atomic */
	uint32_t len;
	raft_index index;
	raft_term term;
	uint8_t kind; /* enum raft_entry_kind */
	uint8_t data[];
};

struct raft_entry *raft_entry_new(struct entry_id id, enum raft_entry_kind kind, struct slice data); /* one reference */
struct raft_entry *raft_entry_ref(struct raft_entry *e);
void raft_entry_unref(struct raft_entry *e); /* NULL is fine; any thread */

static inline struct slice raft_entry_data(const struct raft_entry *e)
{
	return (struct slice){ .ptr = e->data, .len = e->len };
}

#endif
