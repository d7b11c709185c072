/* sim.h: a whole cell of the real core in one thread of virtual time.
 *
 * Replicas are the real thing (server/core/core.h); what is around them is played: clocks, network, disks, clients. One number, the seed,
 * decides everything that happens, so a run can be replayed exactly; nothing here may look at a clock, an address or the order of a hash table.
 *
 *   (V1) an event happens at one instant; events of one instant happen in the order in which they were scheduled.
 *   (V2) a replica sees what a node would show it, in the order of server/node/node.c: completions, peers, calls, ticks.
 *   (V3) what leaves a replica has been checked against its disk, and what it applies against all others, before anybody sees it.
 *   (V4) clock rates of any two parties differ by at most 1 %.
 *   (V5) a check that fails ends the run at that instant, with the seed.
 *
 * Who plays what: net.c links; disk.c, snap.c disks; replica.c, start.c the node around a core; faults.c what goes wrong; client*.c the users;
 * referee.c applies every committed entry once and for all; check_*.c hold what happens against the promises (docs: P1 to P12). */
#ifndef HOLDFAST_SIM_H
#define HOLDFAST_SIM_H

#include <stdio.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "core/core.h"
#include "core/lock/lock.h"

typedef uint64_t sim_us; /* virtual microseconds since the run began */
#define SIM_MS UINT64_C(1000)
#define SIM_SECOND UINT64_C(1000000)
#define SIM_NEVER UINT64_MAX

#define REPLICAS_MAX 7
#define CLIENTS_MAX 24
#define KEYS_MAX 40   /* plain keys k00.. */
#define LOCKS_MAX 8   /* the first are locks, the last two elections */
#define ELECTIONS_MAX 2
#define PPM_MAX 4975  /* (V4): 1.004975 / 0.995025 = 1.01 */

struct world;

/* Growing arrays. */
#define SIM_VEC(T)                                                                                                     \
	struct {                                                                                                       \
		T *at;                                                                                                 \
		size_t len, cap;                                                                                       \
	}
void *sim_vec_grow(void *at, size_t len, size_t *cap, size_t size);
#define SIM_PUSH(v) ((v)->at = sim_vec_grow((v)->at, (v)->len, &(v)->cap, sizeof *(v)->at), &(v)->at[(v)->len++])

/* ---- event.c: what happens when ---- */

enum ev_kind {
	EV_WAKE,       /* a: replica */
	EV_PACKET,     /* ptr: struct packet */
	EV_PEER_LOST,  /* a: who hears it, b: who was lost */
	EV_DISK,       /* a: replica, n: boot: the commit under way is done */
	EV_SNAP,       /* a: replica, n: boot: the snapshot job under way is done */
	EV_FAULT,
	EV_RESTART,    /* a: replica */
	EV_STOP,       /* a: replica, n: boot: the process ends */
	EV_SPACE,      /* a: replica, n: boot: there is space again */
	EV_RESUME,     /* a: replica, n: boot */
	EV_CLIENT,     /* a: client, n: its generation: thinks again */
	EV_EXPIRE,     /* a: client: looks at its lease's clock */
	EV_REQUEST,    /* ptr: struct call_msg, at its replica */
	EV_CANCEL_CALL,/* n: op, at its replica */
	EV_ANSWER,     /* ptr: struct call_msg, at its client */
	EV_OP_TIMEOUT, /* n: op */
	EV_WATCHER,    /* a: watcher: thinks again */
	EV_STREAM,     /* a: watcher, b: replica, n: its generation, ptr: struct call_msg: a stream's message at its replica; err is the kind */
	EV_OUTPUT,     /* a: watcher, ptr: struct call_msg: a stream's output at its client */
	EV_PHASE,      /* n: enum phase */
};

struct ev {
	sim_us at;
	uint64_t seq;
	enum ev_kind kind;
	uint32_t a, b;
	uint64_t n;
	void *ptr;
};

struct packet {
	uint32_t from, to;
	bool late; /* a copy that was long on its way: the healed network has none */
	struct buf bytes;
};

void sim_at(struct world *w, sim_us at, struct ev e);
bool sim_next(struct world *w, struct ev *ret);
_Noreturn void sim_fail(struct world *w, const char *promise, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void sim_trace_line(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define TRACE(w, ...) ((w)->opts.trace ? sim_trace_line((w), __VA_ARGS__) : (void)0)
#define CHECK(w, promise, cond, ...) ((cond) ? (void)0 : sim_fail((w), (promise), __VA_ARGS__))

/* ---- net.c ---- */

struct link {
	sim_us blocked_until, slow_until;
	sim_us last_arrival; /* ordered links */
};

/* ---- disk.c: one log ---- */

struct dlog { /* entries first .. first + len - 1 */
	raft_index first;
	struct raft_entry **at;
	size_t len, cap;
};
void dlog_clear(struct dlog *l, raft_index first);
void dlog_cut(struct dlog *l, raft_index from);         /* entries >= from go */
void dlog_trim(struct dlog *l, raft_index to);          /* entries <= to go */
void dlog_append(struct dlog *l, struct raft_entry *e); /* references */
struct raft_entry *dlog_at(const struct dlog *l, raft_index index); /* NULL */
static inline raft_index dlog_end(const struct dlog *l) { return l->first + l->len; }

struct snapshot_file {
	uint32_t refs;
	struct entry_id id;
	uint64_t state_hash;
	SIM_VEC(struct buf) chunks;
};
struct snapshot_file *snapshot_file_ref(struct snapshot_file *f);
void snapshot_file_unref(struct snapshot_file *f); /* NULL is fine */

enum disk_item_kind { ITEM_WRITE, ITEM_READ, ITEM_INSTALL };
struct disk_item {
	enum disk_item_kind kind;
	struct core_write write;
	struct raft_read read;
	struct snapshot_file *file; /* INSTALL */
	uint64_t job;
};

struct disk {
	/* what survives */
	struct raft_hard_state hard;
	struct dlog log;
	struct snapshot_file *snapshot; /* NULL: none */
	/* what a crash loses */
	SIM_VEC(struct disk_item) queue;
	size_t in_batch; /* items of the commit under way */
	bool busy;
	raft_index installed;
	sim_us stall_until;
};

struct snap { /* the snapshot thread */
	SIM_VEC(struct snapshot_job) queue;
	bool busy;
	uint64_t view_hash; /* of the view being saved, when it was begun */
	struct snapshot_file *reader, *writer;
};

/* ---- replica.c, start.c ---- */

struct inbox_item {
	struct core_event event; /* its slices point into bytes */
	struct buf bytes;
	struct raft_entry **entries; /* EVENT_LOG_READ */
	uint64_t op;                 /* EVENT_REQUEST */
	bool stream;                 /* EVENT_STREAM_* */
	struct entry_id installed;   /* EVENT_CHUNK_WRITTEN that ends an installation */
};
typedef SIM_VEC(struct inbox_item) inbox_items;

struct replica {
	struct world *w;
	uint32_t id;
	member_id member;
	uint64_t data_dir_id, boot;
	char name[8];
	bool up, wiped, out; /* out: a wiped one that has understood */
	int32_t ppm;
	struct core *core;
	uint64_t generation; /* of the process: events of an earlier one are void */

	sim_us clock_from;     /* this boot's clock: base_us at clock_from */
	uint64_t clock_base_us;

	inbox_items done, messages, calls, others;
	uint64_t disk_done_in, disk_done;
	time_ms ticked_ms, looked_ms;
	sim_us wake_at;       /* the EV_WAKE that counts; SIM_NEVER: none */
	sim_us down_until;    /* kept down until then */
	sim_us paused_until;  /* 0: runs */
	sim_us pause_next;    /* stop in the middle of the next batch for so long; 0: no */
	bool holding;         /* an update was taken and not carried out: stopped in between */
	struct core_update held_update;
	SIM_VEC(struct core_message) held; /* messages that wait for the disk */

	struct disk disk;
	struct snap snap;
	struct dlog lost; /* what was on the disk that was exchanged: it was there when it was acknowledged */
	raft_index lost_snapshot;

	/* for the checks */
	struct dlog log;          /* as the core has it: the disk's, with all that is queued */
	raft_index noted_commit, noted_applied;
	raft_term noted_term;
	enum raft_role noted_role;
	revision noted_revision;
	uint64_t batches;
	bool leads;
};

void replica_init(struct world *w, uint32_t id);
void replica_start(struct replica *r);
void replica_crash(struct replica *r);
void replica_wipe(struct replica *r); /* down: its disk is another, empty one */
void replica_pause(struct replica *r, sim_us length, bool in_batch);
void replica_resume(struct replica *r);
void replica_wake(struct replica *r, sim_us at); /* at the latest */
void replica_poke(struct replica *r);            /* something came in: soon */
void replica_run(struct replica *r);             /* one batch */
void replica_deinit(struct replica *r);
time_ms replica_now_ms(const struct replica *r);
void replica_put(struct replica *r, inbox_items *to, struct inbox_item item);
void inbox_item_free(struct inbox_item *item);
void replica_load(struct replica *r); /* start.c: makes r->core from its disk */
static inline bool replica_runs(const struct replica *r) { return r->up && !r->paused_until; }

void disk_queue(struct replica *r, struct disk_item item);
void disk_event(struct replica *r);
void disk_crash(struct replica *r);
void disk_item_free(struct disk_item *item);
struct entry_id disk_last(const struct disk *d);
void snap_queue(struct replica *r, struct snapshot_job *job); /* takes its bytes */
void snap_event(struct replica *r);
void snap_crash(struct replica *r);

void net_send(struct world *w, uint32_t from, uint32_t to, struct buf *bytes, bool bulk); /* takes the bytes */
void net_packet(struct world *w, struct packet *p);
void net_call(struct world *w, uint64_t op);                                          /* client to replica */
void net_cancel(struct world *w, uint64_t op);
void net_answer(struct world *w, uint64_t op, enum err e, struct buf *reply);         /* replica to client; takes the reply */
void net_lost_process(struct world *w, uint32_t replica);

/* ---- faults.c ---- */

void faults_begin(struct world *w);
void faults_event(struct world *w);
void faults_one(struct world *w, uint64_t which); /* one that was scheduled by itself */
void faults_stop(struct world *w, const struct ev *e);
void faults_space(struct world *w, const struct ev *e);
void faults_heal(struct world *w);

/* ---- what clients ask ---- */

enum op_kind {
	OP_PUT, OP_DELETE, OP_GET, OP_GET_SERIALIZABLE, OP_RANGE, OP_CAS, OP_COMPACT, OP_GRANT, OP_REVOKE, OP_KEEP_ALIVE, OP_TTL, OP_LOCK, OP_UNLOCK,
	OP_CAMPAIGN, OP_PROCLAIM, OP_RESIGN, OP_LEADER,
	OP_JOIN, OP_FIRST, OP_LEAVE, /* etcd's own recipe: create the key, look who is first, delete it */
	OP_KIND_COUNT
};
extern const char *const op_names[OP_KIND_COUNT];

enum op_slot { SLOT_KV, SLOT_KV_2, SLOT_KV_3, SLOT_LOCK, SLOT_LEASE, SLOT_KEEP_ALIVE, SLOT_COUNT };

/* One request. Its number is its place in world.ops plus one: also the core's tag, and what its value says. */
struct op {
	uint8_t kind, slot, client, replica;
	uint8_t key, key2;   /* plain keys; a lock's number */
	bool stepped, answered, closed; /* the core has it; it answered; the client is done with it */
	bool canceled;       /* the cancel came to its replica */
	enum err err;
	sim_us sent, stepped_at, answered_at;
	revision floor;      /* the highest revision anybody was told before the core had it */
	revision at;         /* RANGE: the revision asked for; COMPACT */
	revision expect;     /* CAS: mod_revision compared with */
	lease_id lease;
	int64_t ttl;
	int64_t token;       /* UNLOCK, PROCLAIM, RESIGN: of the hold */
	int64_t wait_ms;     /* LOCK: -1 waits for ever */
	uint8_t mode;
	bool prev_kv;
	uint32_t applied;    /* times its value was seen in the history */
	revision rev;        /* what it was answered */
	uint64_t generation; /* of the replica's process */
	sim_us asked_at;     /* when the core had this very one; stepped_at and floor are of the first with its request ID */
	/* exactly once; session 0: without */
	lease_id session;
	uint64_t request_id, first_unanswered;
	uint64_t root;       /* the first of those with this ID, whose number the value says; 0: this one */
	bool seen, has_result; /* of the root: a core had one of them; what they are all told */
	enum err result_err;
	uint64_t result_hash;
	struct buf request;
};

struct call_msg {
	uint64_t op;
	enum err err;
	struct buf bytes;
};

enum hold_state { HOLD_NONE, HOLD_WAITING, HOLD_HELD, HOLD_LEAVING };

struct client {
	struct world *w;
	uint32_t id;
	struct rng rng;
	int32_t ppm;
	uint32_t server;
	uint64_t generation;  /* of its EV_CLIENT */
	uint64_t slot[SLOT_COUNT]; /* op under way; 0: none */
	sim_us frozen_until;  /* stopped: does nothing, hears nothing */
	/* session */
	lease_id lease;       /* 0: none */
	int64_t ttl;
	sim_us valid_until;   /* it believes its session alive until then */
	sim_us keep_alive_at;
	bool silent;          /* will not keep it alive any more */
	bool gives_up;        /* revokes it next */
	uint64_t leases_made;
	bool uses_ids;        /* names the session and a request ID with its writes */
	uint64_t requests;    /* of the present session */
	struct buf kept[SLOT_COUNT]; /* requests that may have to be sent again */
	/* lock */
	enum hold_state hold;
	uint8_t lock, mode;
	bool plain_session;   /* this session goes by etcd's recipe, with plain reads and writes: never both ways with one lease */
	bool plain;           /* and so does the lock in hand (elections do not) */
	int64_t token;
	sim_us hold_until;
	bool believes;        /* listed as holder */
	bool again;           /* asks for the same lock next */
	/* plain keys */
	revision seen[KEYS_MAX];
	bool draining, done;
};

void client_init(struct world *w, uint32_t id);
void client_think(struct client *c);
void client_expire(struct client *c);
void client_answer(struct client *c, uint64_t n, enum err e, struct slice reply);
void client_op_timeout(struct world *w, uint64_t n);
void client_deinit(struct client *c);
void client_drain(struct client *c);
bool client_alive(const struct client *c);      /* believes its session alive */
void client_lock_step(struct client *c);        /* client_lock.c */
void client_lock_answer(struct client *c, struct op *o, enum err e, struct slice reply);
void client_lose_session(struct client *c);
void client_adopt_session(struct client *c, lease_id lease, int64_t ttl, sim_us sent);
void client_stop_believing(struct client *c);
void client_kv_step(struct client *c);          /* client_kv.c */
void client_kv_answer(struct client *c, struct op *o, enum err e, struct slice reply);

#define WATCHERS_MAX 4
#define WATCHES_MAX 3

struct watch_spec {
	char key[12], end[12];
	bool prev_kv, progress, no_put, no_delete;
	bool created, canceled;
	revision asked, next, floor; /* asked: what it was created with; next: what it needs next */
	sim_us asked_at;
	size_t at; /* in world.events */
};

struct watcher {
	struct world *w;
	uint32_t id, server;
	struct rng rng;
	bool open, slow;
	bool observes;        /* an Observe stream of lock `election` instead of watches */
	uint32_t election;
	revision told_mod, told_create, observe_floor;
	sim_us opened_at;
	bool told_any;        /* on this stream */
	uint64_t tag, generation;
	sim_us last_sent;
	struct watch_spec watches[WATCHES_MAX];
	uint32_t watches_len;
};

void watcher_init(struct world *w, uint32_t id);
void watcher_think(struct watcher *x);
void watcher_event(struct world *w, const struct ev *e);
void watcher_stepped(struct world *w, const struct core_event *e);
void watcher_output(struct replica *r, struct core_output *o); /* takes the messages */
void watcher_take(struct watcher *x, const struct ev *e);

struct op *op_new(struct client *c, enum op_kind kind, enum op_slot slot, uint64_t *ret_number);
void op_send(struct client *c, uint64_t number); /* o->request is packed */
void op_close(struct client *c, uint64_t number, bool cancel);
struct op *op_get(struct world *w, uint64_t number);
struct op *op_root(struct world *w, uint64_t number);
/* Sends it again with its ID, to whatever replica the client talks to now, when it has one and e leaves open what became of it. It is closed. */
bool op_retry(struct client *c, uint64_t number, enum err e);
bool err_is_kept(enum err e); /* decided at the command's position: any replica tells the same */

/* codec.c: requests and replies */
struct reply_kv {
	struct slice key, value;
	revision create, mod;
	int64_t version;
	lease_id lease;
};
struct reply { /* of whatever kind; what is not there is zero */
	revision header;
	struct reply_kv kv[KEYS_MAX + 1];
	size_t kvs;
	int64_t count, deleted;
	bool has_prev, succeeded;
	struct reply_kv prev;
	lease_id lease;
	int64_t ttl, token;
	struct slice key;
	bool bad;
};
void pack_request(struct world *w, struct op *o, uint64_t number);
enum method_id op_method(const struct op *o);
void parse_reply(const struct op *o, struct slice bytes, struct reply *ret);
void key_text(uint32_t key, char ret[8]);
void lock_text(uint32_t lock, char ret[8]);
uint32_t key_number(struct slice key); /* UINT32_MAX: not a plain key */
uint64_t value_number(struct slice value); /* 0: none */

/* ---- referee.c ---- */

struct committed {
	raft_term term;
	raft_term committed_in; /* at the latest */
	uint64_t content;   /* hash of kind and data */
	uint64_t state_hash; /* after it; 0: not applied by the referee */
	struct raft_entry *entry;
};

struct referee;
struct referee *referee_new(struct world *w);
void referee_free(struct referee *f);
void referee_apply(struct referee *f, struct raft_entry *e);
const struct state *referee_state(const struct referee *f);
const struct store *referee_store(const struct referee *f);
const struct locks *referee_locks(const struct referee *f);
const struct lessor *referee_lessor(const struct referee *f);
revision referee_revision(const struct referee *f);

/* ---- checks ---- */

struct version {
	revision mod, create;
	int64_t version; /* 0: a tombstone */
	lease_id lease;
	uint64_t value;  /* of which op; */
	uint64_t value_hash;
};
struct key_history {
	SIM_VEC(struct version) at;
};

struct hold { /* a contender that came to be held, for as long as the run is */
	int64_t token;
	lease_id lease;
	uint8_t mode;
	sim_us held_at, gone_at; /* gone_at SIM_NEVER: held now */
};

struct queued { /* a contender now */
	int64_t token;
	lease_id lease;
	uint8_t mode;
	bool held, old; /* old: joined by an earlier entry */
};

struct lock_history {
	SIM_VEC(struct queued) queue; /* by token */
	SIM_VEC(struct hold) holds;
	int64_t highest;       /* token that ever held */
	bool changed;          /* by the entry being applied */
	struct { sim_us at; lease_id lease; } gone[2]; /* the newest two of different leases that left the queue */
	struct { bool is; lease_id lease; uint8_t mode; uint32_t client; int64_t token; } believers[CLIENTS_MAX];
};

struct lease_info {
	lease_id id;
	int64_t ttl;
	uint32_t client;
	sim_us granted_at, no_end_before;
	bool exists, ended, revoked; /* revoked: ended, but not by time */
	sim_us ended_at;
};

void check_taken(struct replica *r, const struct core_write *wr);   /* check_raft.c: right after a take */
void check_step(struct replica *r);                                 /* roles, commit, applied; feeds the referee */
void check_started(struct replica *r);
void check_promise(struct replica *r, uint32_t to, struct slice bytes); /* what leaves, as it leaves */
void check_installed(struct replica *r, struct entry_id id);
void check_raft_end(struct world *w);

void check_event(struct world *w, const struct kv *kv, const struct kv *prev); /* check_history.c: an event of the history */
void check_answer(struct world *w, struct replica *r, uint64_t op, enum err e, struct slice reply);
const struct version *history_at(const struct world *w, uint32_t key, revision rev); /* NULL: not there, or deleted */

void check_lock_event(struct world *w, const struct kv *kv, const struct kv *prev); /* check_lock.c */
void check_lock_settled(struct world *w);                                           /* after each entry */
void check_lock_answer(struct world *w, struct op *o, enum err e, const struct reply *rep);
uint32_t check_lock_left(const struct world *w); /* contenders still in any queue */
void check_believe(struct client *c);
void check_stop_believing(struct client *c);

struct lease_info *lease_info_get(struct world *w, lease_id id, bool make);       /* check_lease.c */
void check_lease_granted(struct world *w, lease_id id, int64_t ttl);
void check_lease_ended(struct world *w, lease_id id, bool by_time);
void check_lease_answer(struct world *w, struct op *o, enum err e, const struct reply *rep);
void check_lease_believed(struct client *c);
void check_lease_settled(struct world *w);
void check_lease_gone_is_true(struct world *w, const struct op *o);

struct seen_event {
	revision mod, create;
	int64_t version;
	lease_id lease;
	uint64_t value_hash;
	uint32_t key_len;
	char key[44];
};
void check_watch_note(struct world *w, const struct kv *kv); /* check_watch.c */
void check_watch_response(struct watcher *x, struct slice bytes);
void check_observed(struct watcher *x, struct slice bytes);
void check_watch_end(struct world *w);

void check_phase(struct world *w, uint64_t phase); /* check_end.c */
bool check_settled(const struct world *w); /* all replicas have applied all */
void check_end(struct world *w);

/* ---- the world ---- */

enum phase { PHASE_CHAOS, PHASE_HEALED, PHASE_LEADER_DUE, PHASE_DRAIN, PHASE_QUIET, PHASE_END };

struct totals {
	uint64_t seeds, failed, sim_us, events;
	uint64_t elections, leader_changes, crashes, partitions, pauses, stalls, slow_links, lost_packets, packets;
	uint64_t grants, hand_overs, lease_ends, snapshots, installs, chunks, writes, reads, keep_alives, anew, unknown, requests, lock_refusals;
	uint64_t client_freezes, cancels, entries, campaigns, batches, compactions, recipes, watch_events, watch_cancels, observed, transfers, wipes;
	uint64_t retries, repeated; /* request IDs */
};

struct sim_options {
	uint64_t seed;
	uint32_t replicas;  /* 0: by seed */
	uint32_t seconds;
	bool trace, ci;
};

struct config { /* drawn from the seed */
	uint32_t replicas, clients, keys, locks, watchers;
	bool ordered;          /* links keep order */
	uint32_t loss, dup, late; /* per million */
	sim_us delay, jitter, client_delay;
	sim_us disk_delay;
	sim_us fault_every;
	uint32_t weights[20];  /* of faults */
	uint64_t snapshot_count, snapshot_keep;
	uint32_t auto_compact_ms;
	uint32_t big_values;   /* per million of puts */
	uint32_t client_loss;
	uint32_t max_pending, max_waiters, kv_slots, request_timeout_ms;
	uint32_t log_memory, append_bytes, inflight;
	bool equal_clocks, wipes;
	bool flapping; /* leaders are cut off for a moment, again and again, with much in flight: old tails meet new snapshots */
	uint64_t auto_compact_revisions;
};

struct world {
	struct sim_options opts;
	struct config config;
	struct rng rng, net_rng, disk_rng, fault_rng;
	sim_us now;
	uint64_t next_seq;
	SIM_VEC(struct ev) heap;
	enum phase phase;
	sim_us heal_at, leader_due_at, drain_at, end_at;
	uint64_t cell_id;
	char urls[REPLICAS_MAX][32];

	struct replica replicas[REPLICAS_MAX];
	struct link links[REPLICAS_MAX][REPLICAS_MAX];
	struct link client_links[CLIENTS_MAX][REPLICAS_MAX];
	sim_us storm_until;
	uint32_t storm_loss;
	struct client clients[CLIENTS_MAX];
	struct watcher watchers[WATCHERS_MAX];
	uint64_t next_stream;
	SIM_VEC(struct seen_event) events; /* all there ever were, in order */
	revision quiet_revision;           /* some seconds before the end */
	SIM_VEC(struct op) ops;

	/* what everybody together knows */
	SIM_VEC(struct committed) log; /* entry i is at[i - 1] */
	struct map64 seen;             /* (index, term) -> hash of the entry and the term before */
	struct map64 contents;         /* hash of an entry -> its term */
	struct map64 committed_once;   /* hash of each committed command of a client */
	struct map64 leaders;          /* term -> replica + 1 */
	uint32_t last_leader;          /* replica + 1 */
	struct referee *referee;
	revision told;                 /* the highest revision in any answer that had to be recent */
	struct key_history history[KEYS_MAX];
	struct lock_history locks[LOCKS_MAX];
	SIM_VEC(struct lease_info) leases;
	struct map64 lease_by_id; /* -> index + 1 */
	lease_id lease_just_ended;
	uint64_t writes_at_leader_due, grants_at_leader_due;
	struct totals totals;
};

void world_run(struct world *w); /* the whole run, opts set; ends the process when a check fails */
struct state world_initial_state(const struct world *w);
struct core_config world_core_config(struct replica *r);

#endif
