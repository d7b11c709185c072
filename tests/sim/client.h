/* client.h: requests, the clients and watchers that make them, and their bytes. */
#ifndef HOLDFAST_SIM_CLIENT_H
#define HOLDFAST_SIM_CLIENT_H

#include "replica.h"

/* ---- what clients ask ---- */

enum op_kind {
	OP_PUT, OP_DELETE, OP_GET, OP_GET_SERIALIZABLE, OP_RANGE, OP_CAS, OP_COMPACT, OP_GRANT, OP_REVOKE, OP_KEEP_ALIVE, OP_TTL, OP_LOCK, OP_UNLOCK,
	OP_CAMPAIGN, OP_PROCLAIM, OP_RESIGN, OP_LEADER,
	OP_JOIN, OP_FIRST, OP_LEAVE, /* etcd's own recipe: create the key, look who is first, delete it */
	OP_KIND_COUNT
};
extern const char *const op_names[OP_KIND_COUNT];

enum op_slot { SLOT_KV, SLOT_KV_2, SLOT_KV_3, SLOT_LOCK, SLOT_LEASE, SLOT_KEEP_ALIVE, SLOT_COUNT };
enum { KV_SLOTS_MAX = 3 };

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
	struct call_id call; /* LOCK, CAMPAIGN: by which it asks, once that was applied; */
	revision place;      /* for which contender; 0: none yet */
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
	/* of a user of the library */
	enum method_id method;
	lease_id session;
	uint64_t request_id, first_unanswered;
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

/* ---- sessions that cache (cacher.c) ---- */

#define CACHERS_MAX 5
#define CACHER_TTL_MAX_S 6
#define CACHE_LIST KEYS_MAX /* the list of all keys, as a thing that is cached */
#define CACHE_ITEMS (KEYS_MAX + 1)
#define CACHER_SEQ 64

struct cacher {
	struct world *w;
	uint32_t id, server;
	struct rng rng;
	int32_t ppm;
	bool lazy;            /* acknowledges late now and then */
	sim_us frozen_until;
	/* its stream */
	bool open, opened;    /* opened: the session is open on it */
	uint64_t tag, generation;
	sim_us last_sent, last_told, open_sent;
	/* its session; 0: none */
	lease_id session;
	uint8_t secret[32];
	int64_t ttl;
	revision seen;
	bool closing;
	sim_us valid_until, right_until, keep_alive_at; /* right_until 0: no right to cache */
	uint64_t sequence;
	sim_us sent_at[CACHER_SEQ], stepped_at[CACHER_SEQ];
	/* its cache */
	raft_term term;
	struct { bool is; } cached[CACHE_ITEMS];
	uint64_t flushes, drops[CACHE_ITEMS]; /* how often all, or that one, was forgotten */
	bool owes;            /* an acknowledgement */
	uint64_t owed_number;
	raft_term owed_term;
	sim_us ack_at;
	/* the read under way; tag 0: none */
	uint64_t read_tag, read_flushes, read_drops;
	uint32_t read_item;
	sim_us read_sent;
};

void cacher_init(struct world *w, uint32_t id);
void cacher_think(struct cacher *c);
void cacher_take(struct cacher *c, struct ev *e);
void cacher_answer(struct cacher *c, struct ev *e);
void cacher_arrives(struct world *w, const struct ev *e);
void cacher_steps(struct world *w, struct inbox_item *item);
bool cacher_answered(struct replica *r, struct core_answer *a);
bool cacher_output(struct replica *r, struct core_output *o);
bool cacher_may_use(const struct cacher *c, uint32_t item);
void check_cached(struct world *w, uint32_t key);
void check_cacher_lease_ended(struct world *w, lease_id id);

/* ---- users of libholdfast's own core (library.c) ---- */

#define USERS_MAX 4
#define USER_CALLS_MAX 32
#define USER_HOLDS_MAX 2

struct user_call { /* under way; tag 0: none */
	uint64_t tag, call;
	uint32_t attempt, server;
	enum method_id method;
	bool stream;             /* of answers: Watch, Observe */
	uint64_t generation;
	sim_us last_sent, last_told;
};

struct user_hold { /* a lock or a leadership, asked for or held; tag 0: none */
	uint64_t tag, unlock_tag; /* as the library calls it; unlock_tag: it is being given up */
	bool told, lost, canceled;
	uint32_t lock;
	uint8_t mode;
	int64_t wait_ms, token;
	sim_us asked_at, until, free_at; /* free_at: when the slot may be used again */
};

struct sess;
struct sess_ask;
struct sess_out;
struct user {
	struct world *w;
	uint32_t id, server;
	struct rng rng;
	int32_t ppm;
	sim_us frozen_until;
	struct sess *core;       /* NULL: none yet */
	bool gone;               /* its session is over */
	int64_t ttl_s;           /* as it asked */
	bool closing;
	/* its stream; tag 0: none */
	uint64_t stream, tag, generation;
	sim_us last_sent, last_told;
	struct user_call calls[USER_CALLS_MAX];
	/* what it has asked */
	uint64_t next_tag, read_tag, write_tag, follow_tag;
	bool reading, writing, following;
	int64_t version;         /* of the node that it alone writes; -1: not known */
	uint32_t follow_key;
	int64_t followed, shown; /* the highest revision it was told, and the last: 0 for none */
	int64_t settled;         /* what it is some seconds before the end */
	/* locks and leaderships (library_lock.c) */
	struct user_hold holds[USER_HOLDS_MAX];
	uint64_t observe_tag;    /* 0: it observes nothing */
	uint32_t observes;       /* which lock */
	int64_t observed, observed_settled; /* the leader's token; 0: nobody */
	uint64_t proclaim_tag;
	sim_us let_go_at;        /* when it last let go of something */
};

void user_init(struct world *w, uint32_t id);
void user_deinit(struct user *u);
void user_think(struct user *u);
void user_take(struct user *u, struct ev *e);
void user_answer(struct user *u, struct ev *e);
void user_arrives(struct world *w, const struct ev *e);
void user_steps(struct inbox_item *item);
bool user_answered(struct replica *r, struct core_answer *a);
bool user_output(struct replica *r, struct core_output *o);
void user_probed(struct replica *r, const struct inbox_item *item);
void user_heard(struct user *u, const struct ev *e);
void user_ask(struct user *u, struct sess_ask ask);
uint64_t user_local_ms(const struct user *u);
void user_locks_init(struct user *u);
void user_locks_work(struct user *u);
bool user_locks_answer(struct user *u, const struct sess_out *o); /* false: of none of them */
void user_locks_told(struct user *u, const struct sess_out *o);
void user_locks_lost(struct user *u, const struct sess_out *o);
void user_locks_over(struct user *u);
void user_locks_check_end(struct user *u);
void check_users_lock(struct world *w, uint32_t lock);
void check_users_cached(struct world *w, uint32_t key);
void check_users_lease_ended(struct world *w, lease_id id);

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

#endif
