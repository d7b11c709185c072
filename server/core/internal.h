/* internal.h: what the files of the core share. The modules below (raft, store, lease, lock, kv) know nothing of it.
 *
 * One struct core owns all. It is split by concern; each part is touched by the file named beside it, and by core_check. */
#ifndef HOLDFAST_CORE_INTERNAL_H
#define HOLDFAST_CORE_INTERNAL_H

#include "base/arena.h"
#include "base/hash.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "base/rng.h"
#include "core/auth/auth.h"
#include "core/auth/authorise.h"
#include "core/auth/tokens.h"
#include "core/command.h"
#include "core/core.h"
#include "core/kv/kv.h"
#include "core/lease/lease.h"
#include "core/lock/lock.h"
#include "core/member/member.h"
#include "core/raft/raft.h"
#include "core/snapshot/snapshot.h"
#include "core/store/store.h"
#include "core/watch/watch.h"
#include "core/wire.h"
#include "core/sessions.h"
#include "holdfast/internal.pb-c.h"

#define PEER_VERSION 1u
#define PEERS_MAX 32                             /* members heard of; more than can be members at once */
#define PROPOSE_WINDOW 8192u                     /* commands on their way to the leader, not acknowledged */
#define PROPOSE_WINDOW_BYTES (8u << 20)
#define PROPOSE_MESSAGE_BYTES (1u << 20)         /* of one message; a single command always fits */
#define PROPOSE_LINE 6144u                       /* of the window, for what waits in line at the leader; the rest is for what does not */
#define PROPOSE_LINE_BYTES (2u << 20)
#define PROPOSE_QUEUE_BYTES (32u << 20)          /* of what waits here to be handed to a leader */
#define PROPOSE_PUSHED_BACK_MS 50u               /* for so long after the leader has refused, this replica refuses by itself */
#define ADMIT_TARGET_MS 50u                      /* what users have in the log should be worth so much time */
#define ADMIT_WAIT_MS 500u                       /* and what they have in front of it no more than that */
#define ADMIT_LEN_MAX 65536u
#define ADMIT_COST_MAX (32u << 20)
#define ROUNDS_MAX 16u                           /* quorum rounds not confirmed; who arrives meanwhile shares the next */
#define BATCHES_MAX 4u                           /* questions of a follower to the leader that are not answered */
#define BATCH_LEASES 8192u                       /* keep-alives in one message */
#define ASKS_MAX 4096u                           /* questions of followers waiting for a round */
#define APPLY_ENTRIES_MAX 4096u                  /* applied by one core_take */
#define APPLY_BYTES_MAX (8u << 20)
#define LEASE_END_MAX 1000u                      /* leases in one LEASE_END */
#define LEASE_END_SLICES 16u                     /* LEASE_ENDs proposed in one tick */
#define OWN_LEASE_TTL_S 60                       /* of the lease made for a Lock without one, as etcd's recipes have it */
#define ORPHAN_GRACE_MS 10000u                   /* a waiting call whose replica is gone is kept that long */
#define AUTH_TOKEN_TTL_MS 300000u                /* as etcd's */
#define COMPACT_EVENTS_MAX 20000u                /* dropped by one automatic compaction */
#define COMPACT_SAMPLES 512u

/* Growing arrays of the update. */
#define VEC(T)                                                                                                         \
	struct {                                                                                                       \
		T *at;                                                                                                 \
		size_t len, cap;                                                                                       \
	}
void *vec_grow(void **at, size_t *len, size_t *cap, size_t size); /* one zeroed element more */
#define VEC_PUSH(v) (vec_grow((void **)&(v)->at, &(v)->len, &(v)->cap, sizeof *(v)->at), &(v)->at[(v)->len - 1])

/* ---- calls (call.c) -------------------------------------------------------------------------------------------- */

enum call_kind {
	CALL_COMMAND, /* on its way through the log */
	CALL_READ,    /* waits until the state here is known to be recent enough, then answers from it */
	CALL_RENEW,   /* a keep-alive */
	CALL_QUERY,   /* time to live */
	CALL_STREAM,  /* what a stream starts from now: waits as a read does */
	CALL_TRANSFER, /* waits for another leader */
};

enum call_place {
	PLACE_NONE,
	PLACE_QUEUE,   /* command: not handed to anybody */
	PLACE_SENT,    /* command: in the channel to the leader, not acknowledged */
	PLACE_TAKEN,   /* command: in a leader's log, or lost with it */
	PLACE_FRESH,   /* read, renew, query: waits for a round or a batch */
	PLACE_ASKED,   /* in a round, or in a batch sent to the leader */
	PLACE_APPLY,   /* read, query: its index is known and not applied yet */
	PLACE_PARKED,  /* renew: the lease is closed; its end decides */
	PLACE_WAITING, /* lock: in the queue of its lock, not held */
	PLACE_TRANSFER,
};

/* Whose call it is, and what else of its request has to be kept for that. */
struct call_auth {
	struct caller caller; /* lent by bytes */
	struct buf user;      /* as last found, where the answer should say so */
	struct slice client;  /* what follows: a call that was set aside until its token can be known */
	lease_id session;
	uint64_t request_id, first_unanswered;
	int64_t now_unix_ms;
	bool assign, ask;
	uint8_t bytes[];
};

struct renew_batch;
struct stream_message;
struct contender_row;
struct busy_place;

/* What a Lock or Campaign needs beside. */
struct lock_call {
	struct call *call;
	struct list link;      /* in its row's waiters */
	struct list all;       /* in core.waiters: in the order they began to wait */
	struct contender_row *row;
	struct heap_node renew; /* when its own lease wants a keep-alive */
	lease_id lease;
	bool own_lease;        /* made for this call */
	bool bounded;
	lease_id session;      /* 0: it names no request */
	uint64_t request;
	struct buf name;
};

struct call {
	struct list link; /* in the list of its place; in none: alone */
	struct list age;  /* in calls.ages; alone: no deadline */
	uint64_t tag;     /* 0: nobody waits for an answer */
	uint64_t number;  /* command: origin_call; its name even after it has left calls.by_number */
	time_ms deadline; /* by core_clock */
	uint8_t kind, place, method, command;
	bool dead;        /* nobody wants its outcome: kept only since the channel's numbers have no holes */
	bool canceled;    /* lock: give its place up as soon as its command is known to be applied */
	bool skipped;     /* command: a snapshot may have had it applied without our seeing the outcome */
	bool once;        /* command: names a session, so may be proposed anew whatever came of it */
	bool retry_id;    /* lease grant: the ID was our choice, another may be taken */
	bool tried;       /* command: was proposed or sent at least once */
	uint32_t queued;  /* command: what it counts in proposer.line_queued */
	bool extended;    /* renew: the right to cache is extended, too */
	uint64_t session_tag; /* of the session's stream whose call it is; 0: none */
	uint64_t sequence;    /* renew: the client's */
	raft_term grant;      /* read: the term in which the leader noted that the answer may be cached; 0: it did not */
	time_ms asked_at;     /* read: when it was asked for that */
	bool ask;         /* whether it may, and nothing else */
	bool aside;       /* a request that waits, as a read does, until its token can be known here */
	bool behind;      /* Lock, Unlock: set aside in its busy place */
	struct busy_place *busy; /* Lock, Unlock: NULL: it has its outcome, or names no key that others could name, or a token */
	struct lock_call *lock;
	struct call_auth *auth; /* NULL: neither a token nor a certificate came with it */
	struct buf bytes; /* command: packed Command; read: packed request */
	union {
		struct {
			raft_term term;   /* in which it was proposed or sent */
			uint64_t channel; /* its number in the channel */
		};
		struct {
			raft_index index; /* read, query: to be applied first */
			lease_id lease;   /* renew, query */
			int64_t ttl_s;
			enum err renewed_err;
			bool renewed, keys;
			struct renew_batch *batch;
			size_t slot;
			struct stream_message *message; /* stream */
			member_id target; /* transfer */
		};
	};
};

struct calls {
	struct map64 by_tag, by_number;
	struct list ages;       /* by deadline: all have the same time-out */
	struct list free;       /* to be used again */
	size_t free_len;
	uint64_t next_number;
	size_t len;
};

/* ---- the way into the log (propose.c) ---------------------------------------------------------------------------- */

struct proposer {
	struct list first, queue, sent, taken; /* first: handed on before the queue */
	raft_term term;       /* of the channel: always the present one */
	uint64_t next, acked; /* numbers */
	uint64_t transmitted; /* numbers up to here have been put into a message */
	size_t sent_bytes;
	size_t line_queued;   /* bytes in `queue`, or set aside for it */
	size_t line_sent, line_bytes; /* of `sent`, what waits in line at the leader */
	time_ms pushed_back;  /* when the leader last refused; by core_clock, 0: never */
	time_ms led_since;    /* when the present leader became known; by core_clock */
	bool fresh;           /* something came into the queue since the last flush */
	time_ms resend_at;
	raft_term applied_term; /* of the newest entry that was applied */
	bool skipped;         /* some of `sent` and `taken` may be: skipped.c */
	time_ms skipped_at;   /* when the leader is asked about them, again */
	struct settled {      /* its answer, until so much is applied here; index 0: none */
		raft_index index;
		uint64_t channel, below; /* numbers in the channel up to that, calls below that */
	} settled;
};

/* ---- the line in front of the log (admit.c) ---------------------------------------------------------------------- */

struct admission {      /* leader; costs are bytes, and a little for each command */
	struct list queue;
	struct list aside;   /* were first in line, and wait for room at the gate */
	size_t len, cost;    /* of both */
	size_t aside_len, aside_cost;
	size_t flight;       /* cost of the commands of this term that are in the log and not applied */
	size_t window;
	uint64_t rate;       /* cost a millisecond */
	bool stuck, aside_stuck; /* the first of it could not go */
	raft_index mark;     /* 0: none */
	size_t marked;       /* flight when it was put */
	time_ms marked_at;
	bool marked_full;    /* somebody waited then */
};

/* ---- reads and keep-alives (read.c, renew.c) --------------------------------------------------------------------- */

struct round { /* leader: everything that arrived before it was begun */
	struct list link;
	uint64_t number;
	raft_index index;
	time_ms begun_at;
	struct list reads, renews, asks;
};

struct ask { /* leader: a follower's ReadIndex or LeaseRenew */
	struct list link;
	member_id from;
	uint64_t boot, id;
	bool renew;
	size_t leases_len, queries_len;
	lease_id *ids; /* leases, then queries; in the same allocation */
	int64_t *ttls; /* of leases */
	bool *extended; /* of leases */
};

struct read_batch { /* follower: a ReadIndex on its way */
	struct list link;
	uint64_t id;
	time_ms begun_at, sent_at;
	struct list reads;
};

struct renew_batch { /* follower: a LeaseRenew on its way */
	struct list link;
	uint64_t id;
	time_ms sent_at;
	struct buf body;
	size_t leases_len, queries_len;
	struct call **calls; /* leases, then queries; NULL: given up */
};

struct reads {
	struct list fresh;     /* reads */
	struct list waiting;   /* reads and queries whose index is not applied, by index */
	struct list rounds;
	size_t rounds_len;
	uint64_t confirmed;    /* rounds up to here, of the present term */
	struct list asks;
	size_t asks_len;
	struct list batches;
	size_t batches_len;
	uint64_t next_id;
	time_ms retry_at;
};

struct renews {
	struct list fresh;   /* renews and queries */
	struct list parked;
	time_ms parked_at;   /* when the parked are tried again at the latest */
	struct list batches;
	size_t batches_len;
	time_ms retry_at;
};

/* ---- locks that wait (waiter.c, row.c) --------------------------------------------------------------------------- */

struct call_bound {
	struct call_id call;
	time_ms due; /* by core_clock */
};

struct contender_row { /* a contender that somebody here watches: its calls wait, or as leader their bounds run */
	struct contender_row *next; /* of the same revision */
	revision token;
	struct list waiters;
	struct heap_node bound; /* leader: the first that is due */
	struct call_bound bounds[LOCK_ASKERS_MAX];
	size_t bounds_len;
	uint32_t key_len;
	uint8_t key[];
};

struct waiters {
	struct map64 rows;  /* by create_revision */
	size_t rows_len;
	struct list all;    /* calls, in order */
	size_t len;
	struct heap bounds; /* leader: by core_clock */
	struct heap renewals;
	struct map64 busy;  /* unlock.c: by the hash of the key */
	time_ms orphans_at; /* leader: when to look for waiting calls whose replica is gone */
};

/* ---- peers (peer_message.c, intake.c) ---------------------------------------------------------------------------- */

struct intake { /* leader: what it took of a follower's channel */
	raft_term term;
	uint64_t boot, taken;
	VEC(uint64_t) refused;
	VEC(uint8_t) reasons;
	VEC(struct buf) details; /* one each */
};

#define TOLD_MAX 32
struct told { /* a refusal */
	member_id to; /* 0: nobody yet */
	time_ms at;   /* by core_clock */
};

struct peer {
	member_id id;
	uint64_t boot;
	uint64_t data_dir;            /* what it named while it was bound to none; 0: nothing yet */
	time_ms boot_since, heard_at; /* by core_clock */
	uint32_t refusal;             /* what it told us last, and when */
	time_ms refusal_at;
	struct intake intake;
};

/* ---- snapshots (snapshot_*.c) ------------------------------------------------------------------------------------ */

struct snapshot_sender {
	member_id to; /* 0: free */
	struct entry_id id;
	uint64_t chunk, chunks; /* the one to be sent; how many, 0: not known */
	uint64_t job;           /* a READ under way; 0: none */
	bool in_flight;         /* sent, not answered */
	time_ms sent_at, started_at;
};

enum install_phase { INSTALL_NONE, INSTALL_RECEIVING, INSTALL_LOADING, INSTALL_READY, INSTALL_FINISHING };

struct install {
	enum install_phase phase;
	struct entry_id id;          /* which snapshot it is, with the next two */
	uint64_t chunks, state_hash;
	uint64_t next;               /* the chunks before it are written */
	uint64_t job;                /* under way; 0: none */
	member_id from;              /* whoever sent something of it last; 0: nobody since the start */
	raft_term offered;           /* the term in which that was */
	struct state state;          /* from READY on */
};

struct snapshots {
	struct entry_id saved; /* newest durable one */
	bool wanted;           /* somebody needs one, and there is none */
	uint64_t save_job;
	struct entry_id saving;
	size_t log_bytes;      /* applied since the last one was begun */
	time_ms retry_at;
	struct state view;
	bool closing;          /* `closed` is being dropped, some of it with each take */
	struct state closed;
	uint64_t next_job;
	raft_index trim_to;    /* for the next write */
	struct snapshot_sender senders[RAFT_MEMBERS_MAX];
	struct install install;
};

/* ---- alarms and comparison (alarms.c, compare.c) ----------------------------------------------------------------- */

struct alarms {
	time_ms again_at; /* leader: nothing is proposed before; by core_clock */
	bool high;        /* the store is near its quota, and that was said */
	raft_index proposed; /* leader: up to here its log may hold an ALARM that is not applied */
};

struct compared {
	member_id id;
	bool voter, answered;
	uint64_t hash;
};

struct compare {
	raft_index wanted; /* somebody asked for the hash after this entry, which is not applied yet; 0: nobody */
	member_id wanted_by;
	/* leader */
	raft_index index;  /* asked for; 0: nothing is under way */
	time_ms asked_at, next_at; /* by core_clock */
	struct compared of[RAFT_MEMBERS_MAX];
	size_t len;
};

/* ---- leader's duties (leader.c, auto_compact.c) ------------------------------------------------------------------ */

struct compact_sample {
	time_ms at;
	revision rev;
};

struct auto_compact {
	struct compact_sample samples[COMPACT_SAMPLES]; /* a ring */
	size_t first, len;
	time_ms next_at;
	revision proposed; /* waits to be applied; 0: none */
	time_ms proposed_at;
};

struct out {
	VEC(struct core_message) messages;
	VEC(struct core_answer) answers;
	VEC(struct core_output) outputs;
	VEC(struct raft_entry *) entries;
	VEC(struct raft_read) reads;
	VEC(struct snapshot_job) jobs;
	struct core_write write;
	bool role_changed, members_changed;
	bool handed; /* the owner has it; emptied by the next call */
};

struct core {
	struct core_config config; /* strings are copies */
	time_ms now;
	time_ms shift;             /* sum of the gaps */
	struct rng rng;

	struct state state;
	struct store *store;
	struct lessor *lessor;
	struct locks *locks;
	struct once *once;
	struct auth *auth;
	struct tokens *tokens;
	uint64_t auth_seen;      /* auth_changes() when streams were last looked at */
	raft_index boot_last;    /* what the log held at the start: entries up to here are told again, their tokens are of the past */
	struct arena arena;
	struct kv_env env;

	struct raft *raft;
	raft_term term; /* these three as of the last role_sync */
	enum raft_role role;
	member_id leader;
	raft_term promoted; /* the term in which this replica serves as leader; 0: it does not */
	raft_index boot_commit;
	bool recovering;         /* recover.c; as of the last look */
	bool was_ready;
	enum core_fatal fatal;
	bool disk_low;
	struct {
		uint64_t handed, done; /* the newest write given out, and durable */
		time_ms since;         /* by core_clock: of the last completion, or of the first write that waits */
	} disk;

	struct calls calls;
	struct proposer proposer;
	struct admission admission;
	struct reads reads;
	struct renews renews;
	struct waiters waiters;
	struct map64 holds; /* see holds.c: time + 1 */
	VEC(struct raft_message) chunks; /* received with this take */
	struct peer peers[PEERS_MAX];
	size_t peers_len;
	struct snapshots snapshots;
	raft_index change_index; /* leader: of the membership change it proposed last */
	time_ms leave_at;        /* leader: when a voter began to leave last, or it began to lead; by core_clock */
	time_ms led_at;          /* when there was a leader last, or the start; by core_clock */
	time_ms member_ask_at;   /* without a vote and a leader: when to ask whether we are still a member */
	struct list transfers;   /* calls that wait for another leader */
	struct auto_compact compact;
	struct alarms alarms;
	struct compare compare;
	time_ms began;           /* when core_new was called */
	raft_term restored_term; /* in which RESTORED was proposed here */
	struct watches *watches;
	bool streams_wait; /* more is due to some of them */
	struct map64 gates; /* tag -> struct stream_gate */
	struct gate gate;
	struct sessions sessions;
	struct map64 stream_callers; /* tag -> struct call_auth; absent: nobody */
	const struct core_request *request; /* that is being taken in */

	struct raft_entry **backlog; /* committed, not applied: a ring of backlog_cap, a power of two */
	size_t backlog_first, backlog_len, backlog_cap;

	struct told told[TOLD_MAX]; /* M2 in peer_message.c */
	uint64_t publish_call; /* the number of our MEMBER_PUBLISH under way; 0: none */
	bool publish_due;
	time_ms publish_at;

	struct {
		uint64_t leader_changes, proposals_failed, reads_failed, reads_slow, leases_renewed, snapshots_installed, snapshots_sent, snapshots_not_sent, promotions;
		member_id leader; /* the last one heard of */
	} seen; /* for people */

	core_trace_fn trace;
	void *trace_ctx;
	struct out out;
};

/* The clock that stands still while we did: deadlines of calls are kept by it. */
static inline time_ms core_clock(const struct core *c)
{
	return c->now - c->shift;
}
static inline time_ms resend_ms(const struct core *c)
{
	return 2 * (time_ms)c->config.heartbeat_ms;
}
static inline bool core_leads(const struct core *c) /* serves as leader: its no-op is applied, leases have deadlines */
{
	return c->promoted != 0 && raft_role(c->raft) == RAFT_LEADER && raft_current_term(c->raft) == c->promoted;
}
static inline uint64_t core_store_bytes(const struct core *c) /* what the quota is of */
{
	return store_bytes(c->store) + once_bytes(c->once) + sessions_bytes(&c->state);
}
static inline struct call_id core_call_id(const struct core *c, uint64_t number)
{
	return (struct call_id){ .member = c->config.member, .boot = c->config.boot, .call = number };
}

void core_emit(struct core *c, enum core_trace_kind kind, uint64_t a, uint64_t b, uint64_t d);

/* call.c */
void calls_init(struct core *c);
void calls_deinit(struct core *c);
/* A call for `tag` (0: our own), with the usual deadline. */
struct call *call_new(struct core *c, enum call_kind kind, uint64_t tag, enum method_id method);
void call_no_deadline(struct call *call);
void call_number(struct core *c, struct call *call); /* a new one */
void call_forget_number(struct core *c, struct call *call);
void call_move(struct call *call, enum call_place place, struct list *to);
void call_free(struct core *c, struct call *call);
void call_answer(struct core *c, struct call *call, enum err e, struct buf *reply); /* answers and frees; empties *reply */
void call_fail(struct core *c, struct call *call, enum err e);
/* Tells the caller, who then is gone; the call lives on without one. */
void call_tell(struct core *c, struct call *call, enum err e, struct buf *reply, struct buf *details);
void calls_expire(struct core *c);
void call_cancel(struct core *c, uint64_t tag);
size_t calls_pending(const struct core *c); /* that somebody waits for, waiting locks not counted */
void calls_check(const struct core *c);

/* request.c */
void request_step(struct core *c, const struct core_request *r);
bool core_is_learner(const struct core *c);

/* recover.c */
void recover_tick(struct core *c);
void recover_sync(struct core *c);
void answer_now(struct core *c, uint64_t tag, enum err e, struct buf *reply);
int64_t request_min_ttl_s(const struct core *c);

/* stream.c: whose a stream is */
struct call_auth *stream_whose(struct core *c, uint64_t tag); /* a copy for a call of its own; NULL: nobody's */
enum err stream_user(struct core *c, uint64_t tag, struct auth_who *ret); /* lent until the next event; none while authentication is off */
void stream_caller_forget(struct core *c, uint64_t tag);

/* identity.c */
struct call_auth *call_auth_new(const struct caller *caller, const struct core_request *r); /* NULL: nobody; r may be NULL */
void call_auth_free(struct call_auth *auth);
/* Who it is, at present; nobody when authentication is off. Lent until the next call. ERR_AUTH_INVALID_TOKEN. */
enum err core_identify(struct core *c, const struct caller *caller, struct auth_who *ret);
struct authoriser core_authoriser(struct core *c);
/* By what is known here now. */
enum err core_may(struct core *c, const struct caller *caller, enum method_id method, struct slice request);
enum err call_may(struct core *c, struct call *call, struct slice request);
/* Takes a request in, or answers it, or sets it aside. False: it goes on. */
bool identity_refuses(struct core *c, const struct core_request *r);
void identity_resume(struct core *c, struct call *call); /* the state is recent enough; the call is gone afterwards */
void identity_put(struct core *c, struct call *call, struct command *cmd); /* whose command it is */
/* A command was refused for who asked, and came to nothing: whether it may be proposed anew, for what is known now. Else *ret_e says why not. */
bool identity_again(struct core *c, const struct call *call, const struct command *cmd, enum err *ret_e);
enum err apply_auth(struct core *c, struct slice payload, struct buf *reply);
enum err apply_authenticate(struct core *c, raft_index index, struct slice payload, struct buf *reply);
enum err identity_read(struct core *c, enum method_id method, struct slice request, struct buf *reply);
void identity_installed(struct core *c, uint64_t revision_before);

/* propose.c */
void proposer_init(struct core *c);
void propose_submit(struct core *c, struct call *call, uint32_t kind, struct slice payload);
/* chosen: the payload names an ID that was made up here. */
void propose_submit_request(struct core *c, struct call *call, uint32_t kind, struct slice payload, const struct core_request *r, bool chosen);
/* With another ID, for the same request. */
void propose_submit_again(struct core *c, struct call *call, struct slice payload, const struct command *before);
void propose_set_aside(struct call *call, struct list *in); /* it was just submitted, and is to go later; it counts in line_queued as before */
void propose_hand_on(struct core *c, struct call *call);
void propose_flush(struct core *c);
void propose_term(struct core *c);                     /* the term has changed: the channel ends */
void propose_applied_term(struct core *c, raft_term term); /* before an entry of that term is applied */
void propose_release(struct core *c, struct call *call);   /* its command was applied, the call lives on: it is in no list then */
void propose_drop(struct core *c, struct call *call);      /* nobody waits for it any more: freed, or dead in the channel */
void propose_skipped(struct core *c, raft_term term);  /* a snapshot up to an entry of that term was installed */
/* Skipped commands of the present term, up to that number of the channel, of calls below that: all of the log that they could be in is applied. */
void propose_settle(struct core *c, uint64_t channel, uint64_t below);
void propose_ack(struct core *c, struct slice body);
bool propose_waits(const struct core *c);              /* something could go now */
time_ms propose_next_deadline(const struct core *c);
/* Whether a write would be refused for what waits here already. */
bool propose_refuses(const struct core *c, uint32_t kind, size_t len);
void propose_leader(struct core *c);                   /* another leader is known */
void propose_unqueue(struct core *c, struct call *call); /* it leaves its queue */
void propose_check(const struct core *c);

/* skipped.c */
void skipped_run(struct core *c);
time_ms skipped_next_deadline(const struct core *c);
void skipped_ask(struct core *c, const struct peer *p, struct slice body);
void skipped_answer(struct core *c, struct slice body);

/* admit.c */
void admit_init(struct core *c);
uint64_t admit_first_of(const struct core *c, member_id member, uint64_t boot, uint64_t first); /* the lowest number of that replica's calls that wait, or first */
void admit_clear(struct core *c);
enum err admit_propose(struct core *c, const struct command *cmd, struct slice bytes);
bool admit_refuses(const struct core *c, bool reserved, size_t len);
void admit_flush(struct core *c);
bool admit_waits(const struct core *c);
void admit_entered(struct core *c, size_t len); /* a command is in the log */
void admit_left(struct core *c, size_t len);    /* and is applied */
void admit_measure(struct core *c);
void admit_check(const struct core *c);

/* intake.c: the leader's side, and the one gate to the log */
/* details: what a refusal has to say; empty before. */
enum err core_propose(struct core *c, const struct command *cmd, struct slice bytes, struct buf *details);
enum err core_propose_own(struct core *c, uint32_t kind, struct slice payload); /* a leader's command that nobody waits for */
void intake_free(struct intake *in);
void intake_propose(struct core *c, struct peer *p, struct slice body);

/* read.c */
void reads_init(struct core *c);
void reads_deinit(struct core *c);
void read_submit(struct core *c, struct call *call);
void read_flush(struct core *c);
void rounds_confirm(struct core *c);
void rounds_dissolve(struct core *c);
void read_batches_dissolve(struct core *c);
void reads_run(struct core *c);                 /* those whose index is applied */
void read_wait_applied(struct core *c, struct call *call, raft_index index);
void read_ask(struct core *c, struct peer *p, struct slice body);
void read_reply(struct core *c, struct slice body);
void read_resend(struct core *c);
bool read_waits(const struct core *c);
struct ask *ask_new(struct core *c, struct peer *p, uint64_t id, size_t leases, size_t queries);

/* renew.c */
void renews_init(struct core *c);
void renews_deinit(struct core *c);
void renew_submit(struct core *c, struct call *call);
void renew_own(struct core *c, lease_id lease);
void renew_flush(struct core *c);               /* follower: sends batches */
void renew_join(struct core *c, struct round *r); /* leader: what is fresh goes with this round */
void renew_finish(struct core *c, struct round *r);
void renew_query_run(struct core *c, struct call *call);
void renew_ask(struct core *c, struct peer *p, struct slice body);
void renew_ask_finish(struct core *c, const struct round *r, struct ask *a);
void renew_reply(struct core *c, struct slice body);
void renew_resend(struct core *c);
void renew_unpark(struct core *c);
void renew_batches_dissolve(struct core *c);
void renew_role_changed(struct core *c);
void renew_not_ready(struct core *c, member_id to, uint64_t boot, uint64_t id);

/* apply.c */
void apply_push(struct core *c, struct raft_entry *e); /* takes the reference */
void apply_some(struct core *c);
void apply_drop_backlog(struct core *c);

/* waiter.c, row.c */
void waiters_init(struct core *c);
void waiters_deinit(struct core *c);
void lock_submit(struct core *c, const struct core_request *r);
struct abandoning { /* AbandonCommand */
	struct slice name, key;
	struct call_id call;
	lease_id revoke; /* 0: none */
	bool waiting_only, bound_is_over;
};
void abandon_encode(const struct abandoning *a, struct buf *out);
void lock_applied(struct core *c, struct call *call, enum err e, struct kv_lock_result *r, struct buf *details); /* details may be empty */
void lock_confirmed(struct core *c, struct call *call);
void lock_cancel(struct core *c, struct call *call); /* the caller is gone; call may be freed */
void lock_again(struct core *c, struct call *call);   /* it was refused for who asked: once more */
void lock_lost(struct core *c, struct call *call);   /* its command never was applied, or nobody knows */
void lock_granted(struct core *c, const struct contender *ct);
void lock_leave(struct core *c, struct call *call);  /* unlinks what waiting means */
struct ended_call { /* by the leader; of no number: none was */
	struct call_id id;
	bool bound_is_over; /* else its replica was gone */
};
/* Its calls fail with e, but for those of which more is known (Q5). */
void waiters_gone(struct core *c, struct contender_row *row, enum err e, const struct ended_call *ended);
void lock_ended(struct core *c, const struct contender *ct, const struct ended_call *ended); /* the leader ended that call, and its place lasts */
void waiters_recheck(struct core *c);                /* the state was replaced */
void waiters_renew(struct core *c);                  /* own leases */
void waiters_check(const struct core *c);
struct contender_row *row_find(const struct core *c, revision token, struct slice key);
struct contender_row *row_get(struct core *c, revision token, struct slice key);
void row_release(struct core *c, struct contender_row *row); /* frees it when nobody uses it */

/* unlock.c: Locks and Unlocks of one place come in the order in which they were asked for here */
void unlock_submit(struct core *c, const struct core_request *r);
void unlock_lock_asked(struct core *c, struct call *call);          /* a Lock that was just submitted */
void unlock_settled(struct core *c, struct call *call);             /* a Lock's or Unlock's command has its outcome, or nobody wants it; may be said of any call, and again */
void unlocks_deinit(struct core *c);
size_t unlocks_queued(const struct core *c); /* of proposer.line_queued, what is set aside */
void unlocks_check(const struct core *c);

/* holds.c */
void holds_deinit(struct core *c);
void holds_rebuild(struct core *c); /* the state was replaced */
void holds_granted(struct core *c, const struct contender *ct);
void holds_gone(struct core *c, const struct kv *prev, uint32_t kind, raft_term term); /* of any leased key; kind: what ended it */

/* bound.c: the leader ends waits */
void bounds_begin(struct core *c);
void bounds_end(struct core *c);
void bound_note(struct core *c, const struct contender *ct); /* other calls ask for it now */
void bounds_due(struct core *c);
void orphans_due(struct core *c);
void orphans_soon(struct core *c);

/* role.c */
void role_sync(struct core *c);
void role_tick(struct core *c);
void publish_tick(struct core *c);
void publish_applied(struct core *c);

/* stall.c */
void stall_handed(struct core *c, uint64_t seq);
void stall_done(struct core *c, uint64_t seq);
void stall_tick(struct core *c);

/* stream.c */
void streams_init(struct core *c);
void streams_deinit(struct core *c); /* before calls are gone */
void streams_confirmed(struct core *c, struct call *call);
void streams_step(struct core *c, const struct core_event *e);
void streams_before_compact(struct core *c, struct slice payload);
void streams_take(struct core *c);

/* alarms.c */
bool alarms_no_space(const struct core *c);
bool alarms_may_change(const struct core *c);
void alarms_proposed(struct core *c);
void alarms_role_changed(struct core *c);
bool alarms_cell_is_corrupt(const struct core *c);
enum err alarms_propose(struct core *c, bool raise, uint32_t type, member_id member);
void alarms_tick(struct core *c);
void alarms_look(struct core *c);
void alarms_list(const struct core *c, struct slice request, struct buf *out);
void alarms_submit(struct core *c, const struct core_request *r);
enum err alarms_apply(struct core *c, struct slice payload, struct buf *reply);

/* compare.c */
void compare_ask(struct core *c, const struct peer *p, struct slice body);
void compare_reply(struct core *c, const struct peer *p, struct slice body);
void compare_applied(struct core *c); /* after each entry, and after a snapshot was installed */
void compare_tick(struct core *c);
void compare_soon(struct core *c);
void compare_promoted(struct core *c);

/* restored.c */
bool restored_blocks(const struct core *c, uint32_t kind);
void restored_sync(struct core *c);
enum err restored_apply(struct core *c, struct slice payload);

/* auto_compact.c */
void auto_compact_tick(struct core *c);

/* peer_message.c */
void peer_receive(struct core *c, struct slice bytes);
bool peer_is_needed_by_nobody(const struct core *c); /* no quorum waits for this replica: it has no vote, or nobody has led it for long */
void peer_send(struct core *c, member_id to, uint32_t body_field, struct slice body);
void peer_send_raft(struct core *c, const struct raft_message *m);
struct peer *peer_find(struct core *c, member_id id);
void peers_deinit(struct core *c);

/* snapshot_*.c */
void snapshot_save_tick(struct core *c);
void snapshot_saved(struct core *c, raft_index index, enum err e);
void snapshot_send_begin(struct core *c, member_id to);
void snapshot_send_reply(struct core *c, const struct raft_message *m);
void snapshot_chunk_read(struct core *c, const struct core_event *e);
void snapshot_send_tick(struct core *c);
void snapshot_send_stop(struct core *c);
void snapshot_send_forget(struct core *c, member_id to);
void snapshot_receive(struct core *c, struct raft_message *m); /* empties m->data */
void snapshot_receive_tick(struct core *c);
void snapshot_chunk_written(struct core *c, uint64_t job, enum err e);
void snapshot_part_found(struct core *c, const struct core_event *e);
void snapshot_loaded(struct core *c, uint64_t job, enum err e, struct state *st);
bool snapshot_blocks_appends(const struct core *c);
void snapshot_close_take(struct core *c, struct state *view); /* a view, or a state that nobody needs any more; *view is empty afterwards */
void snapshots_deinit(struct core *c);
struct snapshot_job *snapshot_job_new(struct core *c, enum snapshot_job_kind kind);

/* status.c: what a replica answers from what it has */
bool status_answer(struct core *c, const struct core_request *r); /* false: not one of these methods */
void member_list_reply(struct core *c, struct buf *out);
void members_write_header(const struct core *c, struct buf *out);
void members_write(const struct core *c, uint32_t field, struct buf *out);
void member_write(const struct member_record *m, uint32_t field, struct buf *out);

/* members.c */
size_t members_for_raft(const struct state *st, struct raft_member out[RAFT_MEMBERS_MAX]);
void members_submit(struct core *c, const struct core_request *r);
/* ERR_TOO_MANY_REQUESTS: not now, to be tried again. */
enum err members_before_propose(struct core *c, struct slice payload, struct buf *details);
bool members_only_leaders_change(struct slice payload);
void members_tick(struct core *c);
void members_ask_tick(struct core *c);
enum err members_apply(struct core *c, struct slice payload, raft_index index, struct buf *reply); /* reply may be NULL */

/* transfer.c */
void transfer_submit(struct core *c, const struct core_request *r);
void transfers_run(struct core *c);

#endif
