/* state.h: everything that is replicated, under one root.
 *
 * Equal logs give equal states, byte for byte (P10): nothing here depends on time, addresses, random numbers or on who leads. What is
 * derived from it (the history by revision, keys by lease, watch indexes) or a leader's opinion (deadlines) lives in the modules.
 */
#ifndef HOLDFAST_CORE_STATE_H
#define HOLDFAST_CORE_STATE_H

#include "core/tree/tree.h"

/* Sections of a snapshot: numbers are for ever. */
enum state_section {
	SECTION_HEAD = 1,
	SECTION_KEYS = 2,
	SECTION_LEASES = 3,
	SECTION_CONTENDERS = 4,
	SECTION_MEMBERS = 5,
	SECTION_RESULTS = 6, /* exactly once */
	SECTION_SESSIONS = 7,
	SECTION_AUTH = 8,
	SECTION_ALARMS = 9,
	SECTION_OPEN_SESSIONS = 10,
	SECTION_REMOVED = 11,
};

#define STATE_TREES_MAX 16

struct state {
	struct entry_id applied;   /* the last entry whose effects are in here */
	revision revision;         /* starts at 1, empty */
	revision compact_revision; /* 0: never compacted */
	uint64_t restored;         /* not 0: made from a backup, and its revision is not raised yet: nothing else may happen before (restored.c) */
	struct tree keys;          /* key -> struct key_record (store.h) */
	struct tree leases;        /* lease ID, big-endian -> struct lease_record (lease.h) */
	struct tree contenders;    /* (lock name, create_revision) -> struct contender (lock.h) */
	struct tree members;       /* member ID, big-endian -> struct member_record (member.h) */
	struct tree results;       /* (session, request ID), big-endian -> struct result_record (once.h) */
	struct tree sessions;      /* lease ID, big-endian -> struct session_record (once.h) */
	struct tree auth;          /* kind and name -> struct auth_record (auth.h) */
	struct tree open_sessions; /* lease ID, big-endian -> struct open_session (session.h) */
	struct tree alarms;        /* (type, member ID), big-endian -> struct alarm_record (alarm.h) */
	struct tree removed;       /* member ID, big-endian -> struct removed_record (member.h) */
};

/* A number that equal states share and different ones do not (2^-64): over applied index, revisions and all trees. O(1). */
uint64_t state_hash(const struct state *st);
/* A view of everything, O(1); closed by state_deinit on the core's thread. */
struct state state_view(const struct state *st);
void state_deinit(struct state *st);
bool state_drop_some(struct state *st, size_t budget); /* the same in slices of about so many records; whether it is done */
/* The trees in section order, for whoever walks them all (snapshots). Returns how many. */
size_t state_trees(struct state *st, struct tree *ret[STATE_TREES_MAX]);

#endif
