/* lease.h: who is alive, as agreed by the log; and, on the leader, until when.
 *
 * Replicated: a lease and its TTL (state->leases). Derived: which keys each lease holds. Leader only: deadlines, an opinion that
 * becomes fact only by a committed COMMAND_LEASE_END of the leader's own term.
 *
 *   (L1) every key whose current version names lease L is in L's set, and L exists; and nothing else is in it.
 *   (L2) the heap of deadlines holds exactly the live, open leases while leading, and is empty otherwise.
 *   (L3) a lease past its deadline is closed: this leader never renews it again, whatever comes.
 *   (L4) a new leader gives every lease a full TTL from the moment its no-op was applied.
 *   (L5) a deadline only ever moves later (until lessor_demote).
 */
#ifndef HOLDFAST_CORE_LEASE_H
#define HOLDFAST_CORE_LEASE_H

#include "core/state.h"

#define LEASE_TTL_MAX_S INT64_C(9000000000)

struct lease_record {
	struct tree_record base;
	lease_id id;   /* any int64 but 0; etcd's own are positive */
	int64_t ttl_s; /* granted */
	uint8_t key[8];
};
extern const struct tree_type lease_record_type;

struct lessor; /* core's thread only */

/* min_ttl_s goes into the state by way of lease_grant, so all replicas must have the same. st is borrowed; what it holds is taken up as by
 * lessor_rebuild_begin. */
struct lessor *lessor_new(struct state *st, int64_t min_ttl_s);
void lessor_free(struct lessor *ls);
void lessor_rebuild_begin(struct lessor *ls); /* state was replaced: forget all derived; then lease_attach for every live key with a lease. Demotes */

/* ---- replicated: from applied commands only ---- */
/* ttl below the minimum is raised to it (the caller replies with *ret_ttl). ERR_LEASE_EXISTS, ERR_LEASE_TTL_TOO_LARGE; ERR_LEASE_NOT_FOUND
 * for ID 0. While leading, the deadline starts at now. */
enum err lease_grant(struct lessor *ls, lease_id id, int64_t ttl_s, time_ms now, int64_t *ret_ttl);
/* Forgets the lease; its keys must have been deleted (detached) before: asserted. ERR_LEASE_NOT_FOUND. */
enum err lease_remove(struct lessor *ls, lease_id id);
const struct lease_record *lease_find(const struct lessor *ls, lease_id id); /* NULL when there is none */
void lease_attach(struct lessor *ls, lease_id id, struct slice key); /* the lease exists; idempotent */
void lease_detach(struct lessor *ls, lease_id id, struct slice key);  /* no-op when it is not attached */
/* Keys of a lease in key order. Call with an empty `after` first, then with the last key; NULL ptr at the end. Lent until the next change:
 * lease_detach frees these very bytes, so copy a key before it is deleted. `after` need not be attached any more. */
struct slice lease_next_key(const struct lessor *ls, lease_id id, struct slice after);
uint64_t lease_key_count(const struct lessor *ls, lease_id id);
uint64_t lessor_count(const struct lessor *ls);

/* ---- leader only ---- */
void lessor_promote(struct lessor *ls, time_ms now); /* L4; not leading before: asserted */
void lessor_demote(struct lessor *ls);
void lessor_shift(struct lessor *ls, time_ms gap_ms); /* every open lease's deadline later by gap_ms: the process stood still */
/* Moves the deadline to now + TTL. ERR_LEASE_NOT_FOUND; ERR_BUSY: closed, its end is under way (answer when it is applied); ERR_NOT_LEADER. */
enum err lessor_renew(struct lessor *ls, lease_id id, time_ms now, int64_t *ret_ttl_s);
/* Seconds left, rounded down, at least 0 (and 0 when not leading); -1 when there is no such lease. */
int64_t lessor_remaining_s(const struct lessor *ls, lease_id id, time_ms now);
/* Closes leases whose deadline is <= now, at most max, and returns their IDs, earliest deadline first (for a LEASE_END); before them those
 * that were closed already and have still to be proposed. There is more to do, with or without IDs, while lessor_next_deadline is not
 * after now: one call does a bounded amount of work. */
size_t lessor_close_due(struct lessor *ls, time_ms now, lease_id *ret_ids, size_t max);
/* A closed lease whose LEASE_END must be proposed again (the proposal was refused): it comes out of lessor_close_due once more. To
 * lessor_next_deadline that is due a moment later, so that a lasting refusal does not make its caller spin. */
void lessor_end_refused(struct lessor *ls, lease_id id);
/* May be early (a renewal is not looked at before the old deadline), never late. TIME_NEVER when not leading or empty. */
time_ms lessor_next_deadline(const struct lessor *ls);
void lessor_check(const struct lessor *ls);

#endif
