/* internal.h: what the files of lease/ share. */
#ifndef HOLDFAST_CORE_LEASE_INTERNAL_H
#define HOLDFAST_CORE_LEASE_INTERNAL_H

#include "lease.h"

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"

/* IDLE ──promote, grant──► OPEN ──deadline──► CLOSED ──end refused──► DUE ──► CLOSED
 *                          OPEN ──late keep-alive──► DUE            (demote: all ──► IDLE)
 * CLOSED: its end has been handed out to be proposed. DUE: closed too, and waits to be handed out. */
enum lease_state { LEASE_IDLE, LEASE_OPEN, LEASE_CLOSED, LEASE_DUE, LEASE_STATES };

/* The companion of a lease_record: derived (keys) or an opinion (the rest). About 64 bytes, since there are many. */
struct lease {
	lease_id id;
	int64_t ttl_s;    /* copied, so that a renewal is one look-up */
	time_ms deadline; /* 0 while IDLE */
	uint64_t keys;    /* how many are attached */
	uint32_t state;   /* enum lease_state; changed by lease_to alone */
	union {
		struct heap_node open; /* OPEN: in the heap, under a key <= deadline */
		struct list due;       /* DUE: in lessor.due */
	};
};

struct lessor {
	struct state *state;
	int64_t min_ttl_s;
	struct map64 leases;     /* ID -> struct lease, owned */
	struct tree attachments; /* (lease ID, key) -> struct attachment; derived, in no view */
	struct buf *scratch;     /* for look-ups by const callers */
	/* leader only; empty and 0 otherwise */
	bool leading;
	time_ms promoted_at;
	time_ms last_now; /* the latest time heard of */
	struct heap heap;
	struct list due;
	time_ms due_at; /* when somebody should come for `due` */
};

struct lease_record *lease_record_new(lease_id id, int64_t ttl_s); /* one reference */
struct lease *lessor_lease(const struct lessor *ls, lease_id id); /* NULL when there is none */
void lease_start(struct lessor *ls, struct lease *l, time_ms now);
void lease_stop(struct lessor *ls, struct lease *l); /* to IDLE, from any state */
void lessor_check_deadlines(const struct lessor *ls);

#endif
