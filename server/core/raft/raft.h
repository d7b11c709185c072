/* raft.h: consensus on one log. Pure: no clock, no disk, no socket. The owner calls one input function at a time and then
 * takes what is to be done with raft_take_ready(). One thread. Inputs never call back.
 *
 * The order of effects (docs/architecture.md): a message whose wait_seq is not 0 is a promise and leaves only when the
 * disk has completed write wait_seq; all others may leave at once. Writes complete in order. Committed entries may be
 * applied at once.
 *
 * Memory: the log keeps entries in memory from some index on; older ones are on disk only. When raft needs those (a slow
 * follower, or applying after a restart) it asks by ready.reads and the owner answers with raft_log_read_done().
 */
#ifndef HOLDFAST_CORE_RAFT_H
#define HOLDFAST_CORE_RAFT_H

#include "core/raft/raft_entry.h"
#include "core/types.h"

#define RAFT_MEMBERS_MAX 16 /* voters and learners */

enum raft_role { RAFT_FOLLOWER, RAFT_PRECANDIDATE, RAFT_CANDIDATE, RAFT_LEADER };

struct raft_member {
	member_id id;
	bool learner;
};

struct raft_config {
	member_id self;
	uint64_t seed;
	uint32_t election_timeout_ms; /* at least; the real one is drawn from [this, 2 * this) each time */
	uint32_t heartbeat_ms;
	size_t max_append_bytes;      /* of entries in one message; one entry always fits */
	uint32_t max_inflight;        /* unacknowledged append messages a follower */
	uint32_t gather_ms;           /* a few entries wait that long for an append under way to be acknowledged; 0: never */
	size_t max_uncommitted_bytes; /* the leader refuses proposals above it: ERR_TOO_MANY_REQUESTS */
	size_t memory_bytes;          /* applied and durable entries above this leave memory */
};

struct raft_hard_state {
	raft_term term;
	member_id voted_for; /* 0: nobody */
	raft_index commit;   /* may lag behind the truth, never ahead of it */
};

/* What the disk held at start. */
struct raft_boot {
	struct raft_hard_state hard;
	struct entry_id snapshot;   /* {0,0}: none; the state machine starts from it */
	struct entry_id last;       /* of the log; equals snapshot when the log is empty */
	raft_index first;           /* first index still on disk; last.index + 1 when empty */
	const struct raft_member *members;
	size_t members_len;
	struct entry_id lost;       /* what the log once reached durably and does not reach any more, since the disk was damaged (recover.c); {0,0}: nothing */
	struct raft_entry *const *tail; /* every entry with index > hard.commit (and > snapshot.index), in order; referenced, not taken */
	size_t tail_len;
};

/* One message, decoded. Entries are borrowed on receipt, owned references when sent (see raft_ready). */
struct raft_message {
	uint32_t kind; /* HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__* */
	member_id from, to;
	raft_term term;
	struct entry_id log;
	raft_index commit;
	bool reject, force, lost;
	struct entry_id match;
	uint64_t round;
	struct raft_entry **entries;
	size_t entries_len;
	uint64_t chunk, chunks;
	struct slice data; /* snapshot chunk */
	uint64_t state_hash;
	uint64_t wait_seq; /* outgoing only: leaves once this write is durable; 0: at once */
};

struct raft_read { /* entries wanted from disk; at most one outstanding a purpose */
	uint64_t id;
	raft_index from, to; /* inclusive; an answer may stop earlier, but has at least `from` */
	size_t max_bytes;
};

struct raft_ready {
	/* 1. One write, all or nothing, in this order; write_seq 0: nothing to write. */
	uint64_t write_seq;
	bool hard_changed;
	struct raft_hard_state hard;
	raft_index truncate_from; /* 0: nothing to cut; entries >= this go first */
	struct raft_entry **entries; /* references owned by the taker */
	size_t entries_len;
	/* 2. Messages in order; entries' references are the taker's, data is not. */
	struct raft_message *messages;
	size_t messages_len;
	/* 3. Committed entries that are durable here too, to be applied in order, once each; references are the taker's. A take gives a bounded
	 * number; raft_has_ready() tells whether there are more. */
	struct raft_entry **committed;
	size_t committed_len;
	/* 4. */
	struct raft_read *reads;
	size_t reads_len;
	/* 5. Quorum rounds: every round <= this is confirmed: at some time after raft_begin_round() returned it, this
	 * replica was the leader of its term. Valid for the term `round_term` only. */
	uint64_t confirmed_round;
	raft_term round_term;
	/* 6. Followers that need a snapshot, since what they lack is no longer in the log: the owner sends chunks by
	 * raft_send_snapshot() until raft_snapshot_acked() or raft_snapshot_failed(). Each is named once a need. */
	member_id snapshot_to[RAFT_MEMBERS_MAX];
	size_t snapshot_to_len;
	/* 7. Snapshot chunks received in the current term from the leader, and (as leader) followers' replies to chunks: RAFT_SNAPSHOT and
	 * RAFT_SNAPSHOT_REPLY messages. data is the taker's (free()). */
	struct raft_message *chunks;
	size_t chunks_len;
	/* 8. role, term or leader changed since the last take */
	bool changed;
};

struct raft;

struct raft *raft_new(const struct raft_config *config, const struct raft_boot *boot, time_ms now);
void raft_free(struct raft *r);

/* ---- inputs: now never goes back ---- */
void raft_tick(struct raft *r, time_ms now);
/* The process stood still for gap_ms (a suspend, a long pause): all timers shift, nobody is blamed for our own pause. As leader,
 * confirms nothing and serves no round begun before the gap until a new quorum has answered. */
void raft_shift(struct raft *r, time_ms gap_ms);
void raft_receive(struct raft *r, const struct raft_message *m, time_ms now);
/* Whether such a message is received from whoever is no member by what is applied here: what a leader sends, and requests for a vote. Both may be of a
 * configuration that this replica has yet to hear of. */
bool raft_counts_from_anybody(uint32_t kind);
/* ERR_OK and the index; ERR_NOT_LEADER; ERR_TOO_MANY_REQUESTS. */
enum err raft_propose(struct raft *r, enum raft_entry_kind kind, struct slice data, raft_index *ret_index);
/* Every write up to and including seq is durable. */
void raft_persisted(struct raft *r, uint64_t seq, time_ms now);
/* Answers ready.reads: entries consecutive from `from` (referenced, not taken). err: ERR_NOT_FOUND when trimmed away. */
void raft_log_read_done(struct raft *r, uint64_t id, enum err err, struct raft_entry *const *entries, size_t len);
/* The stream from `peer` broke and did not come back at once. If it is the leader, its silence is taken as proven. */
void raft_peer_lost(struct raft *r, member_id peer, time_ms now);
/* Starts a quorum round covering everything that arrived before the call and returns its number; rounds of one batch share one:
 * calls between two takes return the same number. Leader only (0 otherwise). */
uint64_t raft_begin_round(struct raft *r);
/* As leader: the index a linearizable read that arrives now must wait for. 0 when this leader has committed nothing of its term yet. */
raft_index raft_read_index(const struct raft *r);
uint64_t raft_heartbeats_late(const struct raft *r); /* as leader: those that left an interval or more after they were due */
/* The owner has applied up to here, membership changes included: lets memory be freed. A replica does not campaign while something that is
 * committed is not applied. */
void raft_applied(struct raft *r, raft_index index);

/* Leader: hands leadership over to voter `to` (0: the one that is furthest of those heard lately). While it is under way commands are refused with
 * ERR_NOT_LEADER; it ends with the leadership, or after an election timeout without success. ERR_NOT_LEADER; ERR_BAD_LEADER_TRANSFEREE: no such voter, or none
 * that was heard within an election timeout. */
enum err raft_transfer(struct raft *r, member_id to);
member_id raft_transferee(const struct raft *r); /* 0: no transfer is under way */

/* ---- snapshots ---- */
/* The log up to `to` may go (a durable snapshot covers it). Entries after it stay readable. */
void raft_trim(struct raft *r, struct entry_id snapshot, raft_index to);
/* Leader: a chunk to a follower that is in snapshot state; m's chunk fields are filled by the caller, m->data is copied by the taker of the ready. */
void raft_send_snapshot(struct raft *r, member_id to, const struct raft_message *m);
/* Follower: reply to a chunk: the next chunk wanted. wait_seq as for any promise (0: at once). */
void raft_reply_snapshot(struct raft *r, member_id to, struct entry_id snapshot, uint64_t next_chunk, bool reject);
void raft_snapshot_acked(struct raft *r, member_id peer, raft_index index);  /* leader: peer holds it durably */
void raft_snapshot_failed(struct raft *r, member_id peer);                   /* leader: give up, probe again later */
/* Follower: a received snapshot is durable and the state machine was replaced by it. Discards the log unless it has snapshot.index with
 * the same term (returns whether the log after it was kept). The members become those of the snapshot. */
bool raft_install_snapshot(struct raft *r, struct entry_id snapshot, const struct raft_member *members, size_t members_len);

/* ---- membership (the owner decides what changes are legal; raft only counts) ---- */
/* Called when the change is applied. A leader that is no voter any more sends what it has and steps down. Before it removes itself from
 * two voters it has to hand over the lead: the other one could need the vote of the removed one to learn that it is alone. */
void raft_set_members(struct raft *r, const struct raft_member *members, size_t len);

/* ---- outputs ---- */
bool raft_has_ready(const struct raft *r);
/* Fills *ready; arrays live until the next input or take; what is said to be the taker's must be released by it. */
void raft_take_ready(struct raft *r, struct raft_ready *ready);
time_ms raft_next_deadline(const struct raft *r); /* when raft_tick has something to do; TIME_NEVER if never */

/* ---- state, for owners, tests and metrics ---- */
enum raft_role raft_role(const struct raft *r);
raft_term raft_current_term(const struct raft *r);
member_id raft_leader(const struct raft *r);        /* 0: unknown */
raft_index raft_commit_index(const struct raft *r);
raft_index raft_last_index(const struct raft *r);
raft_index raft_first_index(const struct raft *r);  /* the first that its log keeps; what followers need from before it comes as a snapshot */
raft_index raft_stable_index(const struct raft *r); /* durable here, of the log as it is now */
raft_term raft_term_at(const struct raft *r, raft_index index); /* 0 when not in memory */
const struct raft_entry *raft_entry_at(const struct raft *r, raft_index index); /* NULL when not in memory */
struct raft_hard_state raft_hard(const struct raft *r);
struct entry_id raft_lost(const struct raft *r);    /* not {0,0}: recovering until the log reaches so far again: no vote, no campaign */
struct raft_peer_status { member_id id; bool learner; raft_index match; time_ms last_heard; bool in_snapshot; };
size_t raft_peers(const struct raft *r, struct raft_peer_status *out, size_t cap); /* leader only */
void raft_check(const struct raft *r); /* asserts the invariants; run after every step in tests */

#endif
