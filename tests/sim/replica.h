/* replica.h: events, the network, disks, and a node around each core: what the cell is played with. sim.h has the rules. */
#ifndef HOLDFAST_SIM_REPLICA_H
#define HOLDFAST_SIM_REPLICA_H

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
	EV_CACHER,     /* a: cacher: thinks again */
	EV_CACHER_IN,  /* a: cacher, b: replica, n: its generation, ptr: struct call_msg; err is the kind of event */
	EV_CACHER_OUT, /* a: cacher, ptr: struct call_msg: its stream's output */
	EV_CACHER_ANSWER, /* a: cacher, ptr: struct call_msg: of its read */
	EV_USER,       /* a: user of the library's core: thinks again; the others as a cacher's */
	EV_USER_IN,
	EV_USER_OUT,
	EV_USER_ANSWER,
	EV_USER_HEARD, /* a: user, b: replica, n: whether it serves */
	EV_PHASE,      /* n: enum phase */
	EV_OPERATOR,
	EV_LOOK,
};

struct ev {
	sim_us at;
	uint64_t seq;
	enum ev_kind kind;
	uint32_t a, b;
	uint64_t n;
	void *ptr;
};

#define WHEEL_SLOTS 1024

struct near_ev {
	struct ev e;
	uint32_t next; /* in its slot, or of those that are free: index + 1 */
};

struct queue {
	sim_us horizon;
	SIM_VEC(struct near_ev) near;
	uint32_t slots[WHEEL_SLOTS], free; /* the first of each: index + 1 */
	uint64_t used[WHEEL_SLOTS / 64];   /* slots that are not empty, as bits */
	size_t near_len;
	SIM_VEC(struct ev) far;
};

struct packet {
	uint32_t from, to;
	bool late; /* a copy that was long on its way: the healed network has none */
	struct buf bytes;
};

void sim_at(struct world *w, sim_us at, struct ev e);
bool sim_next(struct world *w, struct ev *ret);
void sim_forget(struct world *w); /* all that is still to happen */
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

struct snapshot_part { /* of one that is received */
	struct snapshot_file *file; /* NULL: none */
	uint64_t chunks;            /* of the whole */
	size_t durable;             /* chunks of the file that a crash leaves */
};

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
	struct snapshot_part part;
	struct entry_id lost; /* by damage, and not there again: as storage.h has it */
	struct dlog had;      /* then: what was there when it was acknowledged */
	raft_index had_snapshot;
	/* what a crash loses */
	SIM_VEC(struct disk_item) queue;
	size_t in_batch; /* items of the commit under way */
	bool busy;
	raft_index installed;
	sim_us stall_until;
};

#define SNAP_READERS 3 /* as in server/node/internal.h */

struct snap { /* the snapshot thread */
	SIM_VEC(struct snapshot_job) queue;
	bool busy;
	uint64_t view_hash; /* of the view being saved, when it was begun */
	struct snapshot_file *readers[SNAP_READERS];
	uint32_t next_reader;
};

/* ---- replica.c, start.c ---- */

struct inbox_item {
	struct core_event event; /* its slices point into bytes */
	struct buf bytes;
	struct raft_entry **entries; /* EVENT_LOG_READ */
	struct state *state;         /* EVENT_SNAPSHOT_LOADED */
	uint64_t op;                 /* EVENT_REQUEST */
	uint64_t tag;                /* the operator's EVENT_REQUEST; 0: it is none */
	enum method_id method;
	bool stream;                 /* EVENT_STREAM_* of a watcher */
	uint32_t cacher;             /* of which cacher, plus 1 */
	uint32_t user;               /* of which user of the library's core, plus 1 */
	bool probe;                  /* it wants to know how this replica is */
	struct core_request request; /* its EVENT_REQUEST */
	struct entry_id installed;   /* EVENT_CHUNK_WRITTEN that ends an installation */
};
typedef SIM_VEC(struct inbox_item) inbox_items;

struct replica {
	struct world *w;
	uint32_t id;
	member_id member;
	uint64_t data_dir_id, boot;
	char name[8];
	bool up, wiped, out; /* out: a wiped or a removed one that has understood */
	bool absent;         /* nobody is in this slot */
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
	sim_us unseen_until;  /* what goes between it and users of the library's core is under way until then */
	sim_us leads_since;
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
	raft_index noted_commit, noted_applied, noted_last;
	raft_term noted_term;
	enum raft_role noted_role;
	revision noted_revision;
	uint64_t batches;
	bool leads;
	struct raft_member config[RAFT_MEMBERS_MAX]; /* as of the last batch */
	size_t config_len;
	raft_index config_at; /* what was applied when it was looked at */
	uint64_t noted_gated;
};

void replica_init(struct world *w, uint32_t id);
void replica_start(struct replica *r);
void replica_crash(struct replica *r);
void replica_renew(struct replica *r, member_id member); /* absent: another member with an empty disk */
void replica_wipe(struct replica *r); /* down: its disk is another, empty one */
void replica_pause(struct replica *r, sim_us length, bool in_batch);
void replica_resume(struct replica *r);
void replica_wake(struct replica *r, sim_us at); /* at the latest */
void replica_poke(struct replica *r);            /* something came in: soon */
void replica_run(struct replica *r);             /* one batch */
void replica_deinit(struct replica *r);
time_ms replica_now_ms(const struct replica *r);
int64_t replica_unix_ms(const struct replica *r);
void replica_put(struct replica *r, inbox_items *to, struct inbox_item item);
void inbox_item_free(struct inbox_item *item);
void replica_load(struct replica *r); /* start.c: makes r->core from its disk */
static inline bool replica_runs(const struct replica *r) { return r->up && !r->paused_until; }

void disk_queue(struct replica *r, struct disk_item item);
void disk_event(struct replica *r);
void disk_crash(struct replica *r);
bool disk_damage(struct replica *r, bool snapshot); /* down: a bit of an entry or of the snapshot flips, and storage mends. False: there is nothing to damage */
void disk_item_free(struct disk_item *item);
struct entry_id disk_last(const struct disk *d);
void snap_queue(struct replica *r, struct snapshot_job *job); /* takes its bytes */
void snap_event(struct replica *r);
void snap_crash(struct replica *r);
void snap_start(struct replica *r); /* the core is to hear of what there is of a snapshot */
void snapshot_part_drop(struct disk *d);
enum err snapshot_file_decode(struct world *w, const struct snapshot_file *f, struct state *ret);

void net_send(struct world *w, uint32_t from, uint32_t to, struct buf *bytes, bool bulk); /* takes the bytes */
void net_packet(struct world *w, struct packet *p);
void net_call(struct world *w, uint64_t op);                                          /* client to replica */
void net_cancel(struct world *w, uint64_t op);
void net_answer(struct world *w, uint64_t op, enum err e, struct buf *reply);         /* replica to client; takes the reply */
void net_lost_process(struct world *w, uint32_t replica);

/* ---- operator.c ---- */

#define OPERATOR_TAGS (UINT64_C(1) << 40)
uint32_t operator_slots(uint32_t replicas);
uint32_t operator_initial(const struct world *w);
bool operator_removed(const struct world *w, const struct replica *r);
void operator_answer(struct world *w, enum err e);
void operator_event(struct world *w);

/* ---- faults.c ---- */

#define FAULT_FAIL_OVER UINT64_C(1000) /* of a run whose only fault is a fail-over */
void faults_begin(struct world *w);
void faults_event(struct world *w);
void faults_one(struct world *w, uint64_t which); /* one that was scheduled by itself */
void faults_crash(struct replica *r); /* it comes up again after a while */
void faults_stop(struct world *w, const struct ev *e);
void faults_space(struct world *w, const struct ev *e);
void faults_heal(struct world *w);


#endif
