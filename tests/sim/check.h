/* check.h: the referee, what everybody together knows, and the checks (the .c files say what each holds against what). */
#ifndef HOLDFAST_SIM_CHECK_H
#define HOLDFAST_SIM_CHECK_H

#include "client.h"

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
void check_goes_on(struct replica *r, bool stops);
void check_started(struct replica *r);
void check_promise(struct replica *r, member_id to, struct slice bytes); /* what leaves, as it leaves */
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
void check_session_kept(struct world *w, lease_id id, int64_t ttl, sim_us stepped_at); /* a session's keep-alive was answered */
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
bool check_reaches_a_member(struct world *w, const struct replica *r); /* up */

void check_able(struct world *w); /* check_able.c: from time to time */
bool able_without(const struct world *w, const struct replica *r); /* whether the others are enough for a leader, once they run and reach each other */

void check_phase(struct world *w, uint64_t phase); /* check_end.c */
bool check_settled(const struct world *w); /* all replicas have applied all */
void check_end(struct world *w);

#endif
