/* raft_internal.h: what the files of raft share.
 *
 *   (R1) term and voted_for change only together with hard_dirty, and every message sent from then on waits for the write that has them.
 *   (R2) log: snapshot.index <= delivered <= commit <= last.index, delivered <= stable <= last.index.
 *   (R3) memory holds (mem_first .. last) without a gap, and mem_first <= min(commit, stable) + 1: what may still be cut or is not durable is in memory.
 *   (R4) an index is stable when a completed write had it and no write taken or waiting since replaces it.
 *   (R5) only a leader has progress; a leader's own match is `stable`.
 *   (R6) commit rises on a leader only to an index of its own term that a quorum of voters has durably.
 */
#ifndef HOLDFAST_RAFT_INTERNAL_H
#define HOLDFAST_RAFT_INTERNAL_H

#include "base/mem.h"
#include "base/rng.h"
#include "core/raft/raft.h"
#include "holdfast/internal.pb-c.h"

#define KIND(k) HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__RAFT_##k

#define INFLIGHT_MAX 256
#define DELIVER_ENTRIES_MAX 2048
#define DELIVER_BYTES_MAX (4U << 20)
#define ROUNDS_UNDER_WAY_MAX 4

struct raft_log {
	struct raft_entry **at; /* ring of cap (a power of two): entry i is at[i & (cap - 1)] */
	size_t cap;
	size_t bytes;             /* of data in memory */
	raft_index mem_first;     /* first in memory; last.index + 1 when none */
	struct entry_id before;   /* the entry before mem_first; term 0: not known */
	raft_index first;         /* first that can be read from disk */
	struct entry_id snapshot; /* newest durable one */
	struct entry_id last;
	raft_index commit;
	raft_index delivered;     /* given out as committed */
	raft_index applied;       /* as the owner says */
	raft_index stable;
	raft_index unwritten;     /* first index not yet given to the disk */
	raft_index truncate_from; /* for the next write; 0: nothing to cut */
};

/* A write that was taken and has not completed. */
struct write {
	uint64_t seq;
	raft_index last; /* acknowledges up to here; lowered when the log is cut below; 0: no entries */
};

enum progress_state { PROGRESS_PROBE, PROGRESS_REPLICATE, PROGRESS_SNAPSHOT };

struct progress {
	member_id id;
	bool learner;
	enum progress_state state;
	raft_index match, next;
	raft_index commit_sent;
	bool paused;              /* PROBE: one message is out */
	bool want_read;           /* a disk read for it is out: read_id */
	uint64_t read_id;
	struct entry_id read_last; /* the last entry read from disk for it: its term is wanted again with the next */
	raft_index inflight[INFLIGHT_MAX]; /* REPLICATE: last index of each unacknowledged message, oldest first, a ring */
	uint32_t inflight_at, inflight_len;
	time_ms last_heard, last_sent;
	uint64_t round;           /* highest round it answered in this term */
};

enum vote { VOTE_NONE, VOTE_GRANTED, VOTE_REJECTED };

struct raft {
	struct raft_config config;
	struct rng rng;
	time_ms now;

	/* durable (R1) */
	raft_term term;
	member_id voted_for;
	bool hard_dirty;
	uint64_t hard_seq; /* the write that has the present term and vote */
	struct entry_id lost; /* recover.c */

	enum raft_role role;
	member_id leader;
	struct raft_member members[RAFT_MEMBERS_MAX];
	size_t members_len;
	bool self_voter;

	struct raft_log log;

	/* writes */
	uint64_t write_seq, persisted_seq;
	struct write *writes; /* in order of seq */
	size_t writes_len, writes_cap;

	/* follower, candidate */
	time_ms election_deadline;
	time_ms heard_leader_at;
	bool leader_lost;   /* its stream broke: its silence is proven */
	enum vote votes[RAFT_MEMBERS_MAX]; /* by place in members */
	bool campaign_force;
	bool campaign_asked; /* by TIMEOUT_NOW, while something committed was not applied */
	bool campaign_held; /* the timer ran out while something committed was not applied */

	/* leader */
	struct progress progress[RAFT_MEMBERS_MAX]; /* by place in members; self's is unused but for id */
	time_ms heartbeat_due;
	uint64_t heartbeats_late; /* for people */
	uint64_t round, round_sent, round_void, round_confirmed, round_told;
	bool round_pending;
	size_t uncommitted_bytes;
	member_id transfer_to; /* 0: no transfer */
	time_ms transfer_deadline;
	bool transfer_sent;
	bool send_due; /* something may have to be sent to followers */
	time_ms gather_due; /* when what waits for more is sent at the latest; TIME_NEVER: nothing waits */

	/* reads */
	uint64_t next_read_id, apply_read_id; /* apply_read_id 0: none out */
	struct raft_entry **apply_read;       /* entries read for delivery */
	size_t apply_read_len, apply_read_at;

	/* collected for the next take */
	struct raft_message *out;
	size_t out_len, out_cap;
	struct raft_read *reads;
	size_t reads_len, reads_cap;
	struct raft_message *chunks;
	size_t chunks_len, chunks_cap;
	member_id snapshot_to[RAFT_MEMBERS_MAX];
	size_t snapshot_to_len;
	bool changed;

	/* lent with the last take */
	struct raft_message *lent_out;
	size_t lent_out_len, lent_out_cap;
	struct raft_entry **lent_entries, **lent_committed;
	struct raft_read *lent_reads;
	struct raft_message *lent_chunks;
};

/* log.c */
void log_init(struct raft_log *l, const struct raft_boot *boot);
void log_deinit(struct raft_log *l);
struct raft_entry *log_at(const struct raft_log *l, raft_index index); /* NULL when not in memory */
/* The term of an entry: 0 when it is not known here. */
raft_term log_term(const struct raft_log *l, raft_index index);
void log_append_take(struct raft_log *l, struct raft_entry *e);
void log_cut(struct raft *r, raft_index from); /* entries >= from go (R4) */
void log_evict(struct raft *r);
void raft_log_reset(struct raft *r, struct entry_id snapshot);
/* The largest index <= at whose term is <= term, as far as terms are known here; never below floor. */
raft_index log_find_conflict(const struct raft_log *l, raft_index at, raft_term term, raft_index floor);
bool log_reaches(struct entry_id last, struct entry_id other); /* a log that ends at `last` is at least as up to date as one that ends at `other` */
bool log_is_up_to_date(const struct raft_log *l, struct entry_id other_last);

/* raft.c */
size_t member_place(const struct raft *r, member_id id); /* members_len when it is none */
size_t quorum(const struct raft *r);
void reset_election_timer(struct raft *r);
struct raft_message *send_new(struct raft *r, uint32_t kind, member_id to); /* term and wait for the term are filled in */
uint64_t wait_for_index(const struct raft *r, raft_index index);            /* the write after which index is durable; 0: it is */

/* election.c */
void become_follower(struct raft *r, raft_term term, member_id leader);
void become_leader(struct raft *r);
void campaign_if_asked(struct raft *r);
bool may_campaign(const struct raft *r);
void campaign(struct raft *r, bool pre);
void recv_vote(struct raft *r, const struct raft_message *m);
void recv_vote_reply(struct raft *r, const struct raft_message *m);

/* recv.c */
void recv_append(struct raft *r, const struct raft_message *m);
void recv_append_reply(struct raft *r, struct progress *p, const struct raft_message *m);
void recv_heartbeat(struct raft *r, const struct raft_message *m);
void recv_heartbeat_reply(struct raft *r, struct progress *p, const struct raft_message *m);
void transfer_step(struct raft *r, const struct progress *p);

/* recover.c */
bool recovering(const struct raft *r);
void recover_look(struct raft *r); /* after whatever made more of the log durable */
void recover_tell(struct raft *r, member_id leader);
void recv_lost(struct raft *r, struct progress *p, const struct raft_message *m);

/* progress.c */
void progress_reset(struct raft *r, struct progress *p, member_id id, bool learner);
void progress_probe(struct progress *p, raft_index next);
void progress_ack(struct progress *p, raft_index match);
void send_appends(struct raft *r, bool all); /* all: nothing waits for more */
void send_empty_append(struct raft *r, struct progress *p);
void send_heartbeats(struct raft *r);
void progress_read_done(struct raft *r, struct progress *p, struct raft_entry *const *entries, size_t len);
uint64_t want_read(struct raft *r, raft_index from, raft_index to, size_t max_bytes);

/* quorum.c */
void maybe_commit(struct raft *r);
void commit_to(struct raft *r, raft_index index);
void confirm_rounds(struct raft *r);
bool quorum_heard(const struct raft *r);

#endif
