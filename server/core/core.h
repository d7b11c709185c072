/* core.h: the one door of the deterministic core: (state, events) -> update.
 *
 * The owner (the node's core thread, or the simulator) hands in events one by one with core_step() and, at the end of a batch, takes what is to
 * be done with core_take(). Everything that a batch decided is in that one update, so a hundred puts that arrive together are one
 * disk write and one message a follower. No call blocks, does I/O, reads a clock or calls back.
 *
 * The owner carries an update out in this order (docs/architecture.md says why):
 *   1. update.write goes to the log's disk thread, in order; its completion comes back as EVENT_DISK_DONE (several may be merged: the
 *      highest seq answers for all).
 *   2. messages with wait_seq == 0 leave now; the others once that write is durable.
 *   3. answers and stream outputs go to their callers: they are already true when they are in an update.
 *   4. snapshot jobs go to the snapshot thread, in order.
 *
 * Time is monotonic milliseconds and never goes back. The owner sends a tick at least every 50 ms or at core_next_deadline(), takes messages
 * before ticks, and when it notices that it stood still (a gap between ticks beyond ~500 ms, suspend included) sends EVENT_GAP first.
 */
#ifndef HOLDFAST_CORE_H
#define HOLDFAST_CORE_H

#include "core/caller.h"
#include "core/kv/kv.h"
#include "core/raft/raft.h"
#include "core/state.h"
#include "methods.h"

struct core;

struct core_config {
	uint64_t cell_id;
	member_id member;
	uint64_t data_dir_id;
	uint64_t boot;                 /* this start's number: rises with every start of this data directory */
	uint64_t seed;
	const char *name;              /* published in the log, with client_urls */
	const char *const *client_urls;
	size_t client_urls_len;
	uint32_t election_timeout_ms;  /* 1000 */
	uint32_t heartbeat_ms;         /* 100 */
	uint64_t snapshot_count;       /* entries between snapshots: 100000 */
	uint64_t snapshot_keep;        /* entries kept behind a snapshot for slow followers: 10000 */
	uint32_t max_txn_ops;          /* 128 */
	uint32_t max_request_bytes;    /* 1.5 MiB */
	uint32_t request_timeout_ms;   /* 5000 + 2 * election timeout */
	uint32_t max_pending;          /* calls under way here (waiting locks not counted): above it ERR_TOO_MANY_REQUESTS; 100000 */
	uint32_t max_waiters;          /* waiting lock calls here: 100000 */
	uint64_t quota_bytes;          /* of the store's memory; above it what grows is refused with ERR_NO_SPACE */
	uint32_t watch_progress_ms;    /* between progress notices to idle watchers that asked for them; 0: 600000 */
	uint64_t auto_compact_revisions; /* history beyond that many revisions goes; 0: as it may */
	uint32_t auto_compact_ms;      /* history older than this goes; 300000; 0: off (but for a quarter of the quota) */
	uint64_t log_memory_bytes;     /* of the log's end that stays in memory; 0: 16 MiB. This and the next three are for tests */
	uint32_t append_bytes;         /* of entries in one message to a follower; 0: 1 MiB */
	size_t admit_window;           /* what users write enters the log while less than that is in it and not applied; 0: by the rate measured */
	uint32_t inflight;             /* such messages to one follower that are not acknowledged; 0: 128 */
	uint32_t auth_token_ttl_ms;    /* of simple tokens, from their last use; 0: 300000 */
	bool no_auto_clear;            /* NOSPACE that the cell raised stays until it is disarmed */
	uint32_t compare_ms;           /* between two comparisons of the replicas' states; 0: none */
	bool compare_initial;          /* also when a leader begins and when a member has started */
	uint64_t boot_unix_ms;         /* wall clock at core_new: for the first revision after a restore alone */
	const char *version;           /* Status.version and capability: "3.5.x" */
};

/* A request for one call. METHOD_MAINTENANCE_HASH_KV: the reply lacks the hash; the owner adds it (store_hash_kv_view at the reply's hash_revision), from
 * a view of core_state taken before the next step. METHOD_MAINTENANCE_SNAPSHOT: the reply is a header, as soon as the state here holds
 * everything that was acknowledged before the request; the owner then sends what it takes from a view.
 * METHOD_KV_RANGE_STREAM: the reply is one part (kv.h, kv_range_part) of what was asked for; the owner asks for the next one from there on.
 * Unary methods, and each message of a LeaseKeepAlive stream, are calls of their own. */
struct core_request {
	uint64_t tag;                  /* chosen by the owner, unique while the call lives, never 0 */
	enum method_id method;
	struct slice bytes;            /* packed request, already checked by the service; borrowed for the step */
	struct slice client;           /* the caller's address, for people; may be empty */
	lease_id session;              /* exactly once: 0 without */
	uint64_t request_id, first_unanswered;
	int64_t now_unix_ms;           /* wall clock, for people only */
	struct caller caller;          /* borrowed for the step */
	bool ask;                      /* only whether the caller may: nothing is done, and the reply is empty */
	bool assign;                   /* METHOD_AUTH_AUTHENTICATE: the password was right, bytes is an internal.AuthenticateCommand. Else bytes is
	                                * a request without its password, and the answer an internal.AuthLook */
};

enum core_event_kind {
	EVENT_TICK,
	EVENT_GAP,            /* gap_ms: the process stood still for that long */
	EVENT_MESSAGE,        /* message: a packed internal.PeerMessage; anything may be in it */
	EVENT_PEER_LOST,      /* member: the stream from it broke and did not come back at once */
	EVENT_TRANSFER,       /* member: hand leadership to it (0: to whoever is furthest), if we lead. Calls wait meanwhile, none fails for it */
	EVENT_DISK_DONE,      /* seq: all log writes up to it are durable */
	EVENT_LOG_READ,       /* log_read: answers update.reads */
	EVENT_REQUEST,
	EVENT_CANCEL,         /* tag: the caller is gone or gave up; no answer is wanted any more */
	EVENT_SNAPSHOT_SAVED, /* saved: answers SNAPSHOT_SAVE; the view is closed by the core */
	EVENT_CHUNK_READ,     /* chunk: answers SNAPSHOT_READ */
	EVENT_CHUNK_WRITTEN,  /* chunk: answers SNAPSHOT_WRITE and SNAPSHOT_INSTALL */
	EVENT_SNAPSHOT_LOADED, /* loaded: answers SNAPSHOT_LOAD */
	EVENT_SNAPSHOT_PART,  /* part: before the first message: what the disk holds of a snapshot that was being received when the last process ended */
	EVENT_STREAM_OPEN,    /* stream: a Watch, Observe or Session stream was opened (tag, method, bytes: Observe's request; Session: 32 random bytes) */
	EVENT_STREAM_MESSAGE, /* stream: a packed WatchRequest or SessionRequest */
	EVENT_STREAM_WRITABLE,/* stream: the last output has been taken, more may come */
	EVENT_STREAM_CLOSED,  /* stream: the client is gone; nothing more is sent */
	EVENT_SPACE,          /* low: the disk is below (or again above) its reserve */
};

struct core_event {
	enum core_event_kind kind;
	time_ms now;
	union {
		time_ms gap_ms;
		struct slice message;
		member_id member;
		uint64_t seq;
		struct {
			uint64_t id;
			enum err err;
			struct raft_entry *const *entries; /* borrowed */
			size_t len;
		} log_read;
		const struct core_request *request;
		uint64_t tag;
		struct {
			raft_index index;
			enum err err;
		} saved;
		struct {
			uint64_t job;        /* of the update's snapshot job */
			enum err err;
			struct slice bytes;  /* CHUNK_READ; borrowed */
			struct entry_id id;  /* CHUNK_READ: of the snapshot that was read */
			uint64_t chunks;     /* CHUNK_READ: how many it has */
			uint64_t state_hash; /* CHUNK_READ */
		} chunk;
		struct {
			uint64_t job;
			enum err err;
			struct state *state; /* when err is ERR_OK; moved in, *state is zeroed */
		} loaded;
		struct {
			struct entry_id id;
			uint64_t chunks, state_hash; /* of the whole, as they were with SNAPSHOT_WRITE */
			uint64_t have;               /* chunks that are there, from 0 */
		} part;
		struct {
			uint64_t tag;
			enum method_id method;
			struct slice bytes;
			const struct caller *caller; /* OPEN; borrowed; NULL: nobody */
		} stream;
		bool low;
	};
};

struct core_message {
	member_id to;
	struct buf bytes;  /* packed internal.PeerMessage; the taker's */
	uint64_t wait_seq; /* 0: at once */
	bool bulk;         /* a snapshot chunk: may go behind everything else */
};

struct core_write {
	uint64_t seq; /* 0: nothing to write, but for trim_to, which nobody waits for */
	bool hard_changed;
	struct raft_hard_state hard;
	raft_index truncate_from;
	raft_index trim_to;
	struct raft_entry **entries; /* the taker's references */
	size_t entries_len;
};

struct core_answer {
	uint64_t tag;
	enum err err;
	struct buf reply;   /* packed reply message when err is ERR_OK; the taker's */
	struct buf details; /* packed holdfast.v1 details of an error, or empty; the taker's */
	bool more;          /* never set for unary calls */
	struct buf user;    /* whose it was, where caller.wanted and known; the taker's */
};

/* For a Watch, Observe or Session stream: messages one after another, each a 32-bit little-endian length and its bytes. The next output of a stream
 * comes only after EVENT_STREAM_WRITABLE. finished: it ends with err after these. */
struct core_output {
	uint64_t stream;
	struct buf messages; /* the taker's */
	bool finished;
	enum err err;
};

enum snapshot_job_kind {
	SNAPSHOT_SAVE,   /* write `view` as a snapshot (snapshot.h) and make it durable */
	SNAPSHOT_READ,   /* read chunk `chunk` of snapshot `id` ({0,0}: the newest) */
	SNAPSHOT_WRITE,  /* write a received chunk aside; number 0 starts anew, and whatever else was received is dropped. Not durable by itself */
	SNAPSHOT_LOAD,   /* all of them are written: make them durable, and a state of what is read back */
	SNAPSHOT_INSTALL, /* what was loaded becomes the newest snapshot, and the log gives way to it: in line with the log's writes */
	SNAPSHOT_ABORT,  /* drop what was received, if anything */
};

struct snapshot_job {
	enum snapshot_job_kind kind;
	uint64_t job;                 /* echoed */
	const struct state *view;     /* SAVE: open until EVENT_SNAPSHOT_SAVED */
	struct entry_id id;
	uint64_t chunk, chunks;       /* chunks: WRITE, LOAD, INSTALL: of the whole */
	uint64_t state_hash;          /* SAVE, WRITE, LOAD, INSTALL */
	struct buf bytes;             /* WRITE; the taker's */
};

enum core_fatal {
	CORE_OK = 0,
	CORE_FATAL_DATA_DIR,  /* this member is bound to another data directory */
	CORE_FATAL_REMOVED,   /* this member was removed from the cell */
	CORE_FATAL_CELL,      /* the peers belong to another cell */
	CORE_FATAL_CORRUPT,   /* state or log cannot be trusted */
	CORE_FATAL_DIFFERS,   /* the state differs from that of a quorum */
	CORE_FATAL_LOST,      /* the disk was damaged, and no other member has what it lost */
};

struct core_update {
	struct core_write write;
	struct core_message *messages;
	size_t messages_len;
	struct core_answer *answers;
	size_t answers_len;
	struct core_output *outputs;
	size_t outputs_len;
	struct raft_read *reads; /* answered by EVENT_LOG_READ */
	size_t reads_len;
	struct snapshot_job *jobs;
	size_t jobs_len;
	bool members_changed;  /* peers' addresses: see core_members */
	bool role_changed;
	enum core_fatal fatal; /* not CORE_OK: carry this update out, then stop with that line */
	bool again;            /* work was cut at the step's budget: take messages, then call core_step with a tick, without waiting */
};

/* state: from snapshot_decoder_finish or the initial state of a new cell (member_add_initial); moved in, *state is zeroed. boot: see raft.h;
 * its members are taken from state and need not be set. */
struct core *core_new(const struct core_config *config, struct state *state, const struct raft_boot *boot, time_ms now);
void core_free(struct core *c);

void core_step(struct core *c, const struct core_event *event);
/* Fills *update. Arrays live until the next core call; what is the taker's must be released by it (core_update_release drops all that is left). */
void core_take(struct core *c, struct core_update *update);
void core_update_release(struct core_update *update);
time_ms core_next_deadline(const struct core *c);

/* ---- to look at, core's thread only ---- */
const struct state *core_state(const struct core *c);
const struct raft *core_raft(const struct core *c);
struct core_status {
	enum raft_role role;
	raft_term term;
	member_id leader;
	raft_index commit, applied, first, last, stable; /* first: what its log keeps begins here */
	revision revision;
	uint64_t leases, keys, waiters, pending, watchers;
	uint64_t open_sessions;   /* of the cell */
	uint64_t session_streams; /* here */
	/* as leader: who caches what, and what waits for them to forget it */
	uint64_t cached_things, cached_pairs, invalidations, sessions_owing, gated;
	time_ms oldest_owed_ms;   /* how long the oldest invalidation has not been acknowledged */
	uint64_t watch_streams, watchers_behind, watch_events, watch_lost, watches_refused;
	uint64_t leader_changes; /* a leader was heard of that was not known before */
	uint64_t proposals_failed, reads_failed; /* calls whose patience ended */
	uint64_t reads_slow;      /* rounds of reads that took more than half a second to be confirmed */
	uint64_t heartbeats_late; /* as leader: that were sent an interval too late, or later */
	uint64_t promotions;      /* as leader: of learners to voters */
	uint64_t auth_revision;
	bool snapshot_under_way;  /* one is being received, or put in force */
	uint64_t leases_renewed; /* as leader */
	uint64_t snapshots_installed, snapshots_sent, snapshots_not_sent; /* received and put in force; as leader: taken by a follower, given up */
	uint64_t log_pending;    /* committed, not applied */
	revision compact_revision;
	struct kv_counts counts;
	bool learner;
	time_ms oldest_gated_ms;  /* how long the oldest of those writes has waited */
	uint64_t gated_total;     /* writes that had to wait, since the start */
	uint64_t admit_queued, admit_queued_bytes; /* as leader: writes that wait in front of the log (admit.c) */
	bool disk_low;
	uint64_t store_bytes, quota_bytes;
	bool quota_high;         /* at four fifths of it */
	bool no_space, corrupt;  /* no_space: what grows is refused, for whatever reason; corrupt: that alarm is up against this member or the cell */
	uint64_t alarms;         /* that are up */
	bool recovering; /* the disk was damaged: neither votes nor serves until the log is as it was (raft/recover.c) */
	raft_index lost; /* then: it has to reach so far again */
	bool serving; /* knows a leader and has applied what was committed at start */
};
void core_status(const struct core *c, struct core_status *ret);
void core_gated(const struct core *c, uint64_t *ret_total, time_ms *ret_oldest_ms); /* of core_status, for who looks after every step */
/* Every grant this replica has told its callers is also a trace; tests and the log read them. */
enum core_trace_kind { TRACE_LEADER, TRACE_STEP_DOWN, TRACE_GRANT, TRACE_HOLD_END /* token, ms, enum hold_end; by who leads */, TRACE_LEASE_END, TRACE_SNAPSHOT, TRACE_INSTALL, TRACE_REFUSED, TRACE_MEMBERS,
		       TRACE_ALARM /* type, member, 1: raised */, TRACE_QUOTA /* bytes, quota, 1: near */,
		       TRACE_DIFFERS /* member (0: the cell), index, 1: not decided yet */, TRACE_RECOVERED /* index, term */ };
enum hold_end { HOLD_UNLOCKED, HOLD_EXPIRED, HOLD_REVOKED, HOLD_BROKEN, HOLD_DELETED, HOLD_ABANDONED, HOLD_ENDS };
struct core_trace {
	enum core_trace_kind kind;
	time_ms now;
	uint64_t a, b, c;
	struct slice name; /* HOLD_END: the lock's; lent */
};
typedef void (*core_trace_fn)(void *ctx, const struct core_trace *t);
void core_set_trace(struct core *c, core_trace_fn fn, void *ctx); /* NULL: none */
/* Whether a write that comes now would be refused as too much, but for deletes; and whether this is such a write. For owners that would rather refuse it
 * before they hand it in. */
bool core_refuses_load(const struct core *c);
bool core_is_load(enum method_id method, struct slice request);
void core_check(const struct core *c); /* asserts all modules' invariants; slow, for tests */

#endif
