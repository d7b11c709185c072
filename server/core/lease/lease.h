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

struct lessor *lessor_new(struct state *st, int64_t min_ttl_s);
void lessor_free(struct lessor *ls);
void lessor_rebuild_begin(struct lessor *ls); /* state was replaced: forget all derived; then lease_attach for every live key with a lease */

/* ---- replicated: from applied commands only ---- */
/* ttl below the minimum is raised to it (the caller replies with *ret_ttl). ERR_LEASE_EXISTS, ERR_LEASE_TTL_TOO_LARGE. While leading, the
 * deadline starts at now. */
enum err lease_grant(struct lessor *ls, lease_id id, int64_t ttl_s, time_ms now, int64_t *ret_ttl);
/* Forgets the lease; its keys must have been deleted (detached) before. ERR_LEASE_NOT_FOUND. */
enum err lease_remove(struct lessor *ls, lease_id id);
const struct lease_record *lease_find(const struct lessor *ls, lease_id id); /* NULL when there is none */
void lease_attach(struct lessor *ls, lease_id id, struct slice key); /* the lease exists; idempotent */
void lease_detach(struct lessor *ls, lease_id id, struct slice key);
/* Keys of a lease in key order. Call with an empty `after` first, then with the last key; NULL ptr at the end. Lent until the next change. */
struct slice lease_next_key(const struct lessor *ls, lease_id id, struct slice after);
uint64_t lease_key_count(const struct lessor *ls, lease_id id);
uint64_t lessor_count(const struct lessor *ls);

/* ---- leader only ---- */
void lessor_promote(struct lessor *ls, time_ms now); /* L4 */
void lessor_demote(struct lessor *ls);
void lessor_shift(struct lessor *ls, time_ms gap_ms); /* every deadline later by gap_ms: the process stood still */
/* Moves the deadline to now + TTL. ERR_LEASE_NOT_FOUND; ERR_BUSY: closed, its end is under way (answer when it is applied). */
enum err lessor_renew(struct lessor *ls, lease_id id, time_ms now, int64_t *ret_ttl_s);
/* Seconds left, rounded down, at least 0; -1 when there is no such lease. */
int64_t lessor_remaining_s(const struct lessor *ls, lease_id id, time_ms now);
/* Closes leases whose deadline is <= now, at most max, and returns their IDs, earliest deadline first (for a LEASE_END). */
size_t lessor_close_due(struct lessor *ls, time_ms now, lease_id *ret_ids, size_t max);
/* Closed leases whose LEASE_END must be proposed again (the proposal was refused): they come out of lessor_close_due once more. */
void lessor_end_refused(struct lessor *ls, lease_id id);
time_ms lessor_next_deadline(const struct lessor *ls); /* TIME_NEVER when not leading or empty */
void lessor_check(const struct lessor *ls);

#endif
