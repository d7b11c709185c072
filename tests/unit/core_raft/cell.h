/* cell.h: replicas of raft alone, in one process: a network that may lose, double and reorder, disks that finish when
 * they are told to, and a state machine that only remembers what it was fed. Deterministic: a seed replays a run.
 *
 * The cell is the owner of raft as raft.h describes it, and it is all-knowing, which raft is not: after every step it
 * holds what the replicas did against what raft must never do (check.c has the list).
 *
 * Stories (tests/datadriven/raft) move it by hand: nothing happens by itself. The simulation (sim_test.c) gives messages
 * and disk writes an instant when they are due, and lets cell_run() jump from instant to instant. */
#ifndef HOLDFAST_TESTS_RAFT_CELL_H
#define HOLDFAST_TESTS_RAFT_CELL_H

#include "base/rng.h"
#include "core/raft/raft.h"

#define CELL_NODES_MAX 9
#define CELL_CHUNKS 3 /* a snapshot's chunks: three are enough to lose one in the middle */

struct cell_members {
	struct raft_member list[RAFT_MEMBERS_MAX];
	size_t len;
};

/* What the state machine is: the position and one number that sums up all that was applied up to it. */
struct cell_snapshot {
	struct entry_id id;
	uint64_t hash;
	struct cell_members members;
};

struct disk_write {
	uint64_t seq; /* 0: a trim, which nobody waits for */
	bool hard_changed;
	struct raft_hard_state hard;
	raft_index truncate_from;
	struct raft_entry **entries; /* owned */
	size_t entries_len;
	raft_index trim_to;
	time_ms due;
};

/* What survives a crash, and what is on its way there. */
struct disk {
	struct raft_hard_state hard;
	struct cell_snapshot snapshot;
	struct raft_entry **log; /* log[i] has index first + i */
	size_t log_len, log_cap;
	raft_index first;
	struct disk_write *queue;
	size_t queue_len, queue_cap;
	uint64_t queued_seq, done_seq; /* of this start */
};

struct packet {
	struct raft_message m; /* owned: entries, data */
	time_ms due;
};

/* A quorum round that somebody waits for, and what was true in the whole cell when it began. */
struct round_wait {
	uint64_t round;
	raft_term term;
	raft_index read_index;        /* 0: not ready when it began */
	raft_index committed_then;    /* by anybody */
	raft_term highest_leader_then;
};

struct transfer { /* of a snapshot to a follower */
	bool active;
	struct cell_snapshot snapshot;
	uint64_t next;
	time_ms sent_at, began_at;
};

enum { NODE_ROUNDS_MAX = 32, NODE_READS_MAX = 64 };

struct node {
	member_id id;
	struct raft *raft; /* NULL: down */
	struct disk disk;
	time_ms clock_offset;
	bool paused;
	time_ms paused_at;
	/* the state machine */
	struct cell_snapshot sm;
	struct cell_members members_before; /* this take */
	raft_index told_applied;       /* raft_applied() was called with this */
	/* the owner's books, gone with a crash */
	struct raft_message *held;     /* promises that wait for the disk, in order */
	size_t held_len, held_cap;
	struct { struct raft_read read; time_ms due; } reads[NODE_READS_MAX];
	size_t reads_len;
	struct round_wait rounds[NODE_ROUNDS_MAX];
	size_t rounds_len;
	struct transfer transfers[CELL_NODES_MAX + 1]; /* by the follower's ID */
	struct { struct entry_id id; uint64_t next; uint8_t bytes[sizeof(struct cell_snapshot)]; } incoming;
	struct { bool active; member_id from; struct cell_snapshot snapshot; time_ms due; } install;
	enum raft_role last_role;
	raft_term last_term;
	member_id last_leader;
	raft_index last_commit;
	raft_term checked_term; /* leader completeness was looked at */
};

struct truth_entry { /* what is committed at an index, for ever */
	raft_term term;
	raft_term by_term; /* of the leader that first committed it */
	uint64_t chain;    /* sums up all entries up to it */
};

struct seen_entry { /* every entry that ever existed, to hold log matching against */
	struct entry_id id;
	raft_term prev_term;
	uint64_t hash;
};

struct cell_opts {
	uint64_t seed;
	size_t voters, learners; /* at the start; IDs are 1.. in this order */
	size_t spare;            /* nodes that are not members yet */
	uint32_t election_timeout_ms, heartbeat_ms;
	size_t max_append_bytes, max_uncommitted_bytes, memory_bytes;
	uint32_t max_inflight, gather_ms;
};

struct cell {
	struct cell_opts opts;
	struct rng rng;
	time_ms now;
	struct node nodes[CELL_NODES_MAX + 1]; /* by ID; 0 is unused */
	size_t nodes_len;
	struct packet *net;
	size_t net_len, net_cap;
	bool cut[CELL_NODES_MAX + 1][CELL_NODES_MAX + 1];
	/* faults, in millionths, and delays; all 0 in a story */
	uint32_t drop_ppm, dup_ppm;
	time_ms net_delay_max, disk_delay_max, read_delay_max;
	bool lazy_applied;             /* raft_applied() comes late */
	bool batch;                    /* inputs are not followed by a take */
	/* what everybody must agree on */
	struct truth_entry *truth;     /* by index */
	size_t truth_len, truth_cap;
	struct seen_entry *seen;       /* open hash table by id */
	size_t seen_len, seen_cap;
	struct leader_of { raft_term term; member_id id; } *leaders;
	size_t leaders_len, leaders_cap;
	struct vote { member_id voter; raft_term term; member_id candidate; } *votes;
	size_t votes_len, votes_cap;
	raft_term highest_leader;
	uint64_t rounds_confirmed, snapshots_installed, entries_proposed, elections, disk_reads;
	/* what happens, for stories and for people who look at a failed seed; may be NULL */
	void (*trace)(void *ctx, const char *line);
	void *trace_ctx;
};

struct cell *cell_new(const struct cell_opts *opts);
void cell_free(struct cell *c);
struct node *cell_node(struct cell *c, member_id id);
time_ms node_now(const struct cell *c, const struct node *n);

/* ---- one node; all of these may be called on a node that is down, and then do nothing ---- */
void node_tick(struct cell *c, struct node *n);
enum err node_propose(struct cell *c, struct node *n, enum raft_entry_kind kind, struct slice data, raft_index *ret_index);
enum err node_propose_members(struct cell *c, struct node *n, const struct cell_members *m);
uint64_t node_begin_round(struct cell *c, struct node *n);
void node_peer_lost(struct cell *c, struct node *n, member_id peer);
void node_shift(struct cell *c, struct node *n, time_ms gap);
void node_receive(struct cell *c, struct node *n, const struct raft_message *m);
void node_crash(struct cell *c, struct node *n, size_t writes_kept);
void node_start(struct cell *c, struct node *n);
void node_take(struct cell *c, struct node *n); /* after inputs: takes what is to be done, and does it */
/* The input functions above call node_take() at once unless a batch is open. */
void cell_batch(struct cell *c, bool open);

/* ---- disk.c ---- */
void disk_deinit(struct disk *d);
void disk_queue_write(struct disk *d, const struct raft_ready *rd, time_ms due); /* takes the entries */
void disk_queue_trim(struct disk *d, raft_index to, time_ms due);
size_t disk_pending(const struct disk *d);
void disk_apply_first(struct disk *d);       /* makes the oldest write durable */
void disk_drop_queue(struct disk *d);
void disk_install(struct disk *d, const struct cell_snapshot *s, bool keep_log);
raft_index disk_last(const struct disk *d);
raft_term disk_term_at(const struct disk *d, raft_index index); /* durable; 0: not there */
struct raft_entry *disk_entry(const struct disk *d, raft_index index); /* durable; NULL: not there */
/* The log as it will be once all that is queued is durable. */
raft_term disk_queued_term_at(const struct disk *d, raft_index index); /* 0: not there */
struct raft_entry *disk_queued_entry(const struct disk *d, raft_index index); /* NULL: not there */
void disk_boot(struct disk *d, struct raft_boot *boot); /* puts right what a crash left, then tells */

void node_persist(struct cell *c, struct node *n, size_t writes);
void node_read_done(struct cell *c, struct node *n, size_t i, size_t entries_max);

/* ---- snapshot.c ---- */
void node_snapshot(struct cell *c, struct node *n, uint64_t keep); /* of what is applied; trims all but `keep` entries */
void node_send_chunk(struct cell *c, struct node *n, member_id to);
void node_start_transfer(struct cell *c, struct node *n, member_id to);
void node_on_chunk(struct cell *c, struct node *n, const struct raft_message *m);
void node_on_chunk_reply(struct cell *c, struct node *n, const struct raft_message *m);
void node_install(struct cell *c, struct node *n);
void node_transfers_tick(struct cell *c, struct node *n);

/* ---- the network ---- */
void cell_send(struct cell *c, const struct raft_message *m); /* copies */
void cell_deliver(struct cell *c, size_t i); /* takes packet i out of the network */
void cell_drop(struct cell *c, size_t i);

/* ---- check.c: aborts with a line that says what was violated ---- */
void check_ready(struct cell *c, struct node *n, const struct raft_ready *rd);
void check_write(struct cell *c, struct node *n, const struct disk_write *w); /* becomes durable now */
void check_leaving(struct cell *c, struct node *n, const struct raft_message *m);
void check_applied(struct cell *c, struct node *n, const struct raft_entry *e);
void check_commit(struct cell *c, struct node *n);
void check_step(struct cell *c, struct node *n);
void check_confirmed(struct cell *c, struct node *n, uint64_t round, raft_term term);
uint64_t check_chain_next(uint64_t chain, const struct raft_entry *e);
uint64_t check_chain_at(const struct cell *c, raft_index index);
raft_index check_committed(const struct cell *c); /* by anybody */
void check_deinit(struct cell *c);
_Noreturn void cell_fail(struct cell *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define CHECK(c, cond, ...) ((cond) ? (void)0 : cell_fail((c), __VA_ARGS__))

/* ---- for people ---- */
void cell_trace(struct cell *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *raft_message_name(uint32_t kind);
const char *raft_role_name(enum raft_role role);
/* "1>2 append term 2, after 3/1: 4/2, commit 3"; `text` of at least 256 bytes. */
void message_print(const struct raft_message *m, char *text, size_t cap);

/* Room for one more. */
#define GROW(ptr, len, cap)                                                                                            \
	do {                                                                                                           \
		if ((len) == (cap)) {                                                                                  \
			(cap) = (cap) ? (cap) * 2 : 16;                                                                \
			(ptr) = mem_realloc((ptr), (cap) * sizeof(*(ptr)));                                            \
		}                                                                                                      \
	} while (0)

#endif
