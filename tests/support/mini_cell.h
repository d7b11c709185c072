/* mini_cell.h: a whole cell of real cores in one thread, for stories: an in-memory disk and network, and a clock that the test moves.
 *
 * Everything is deterministic: the same options and calls give the same run. Time goes in steps of one millisecond; disks take disk_ms,
 * the network net_ms. After every batch of every replica core_check runs, and states of equal applied index are compared by hash. */
#ifndef HOLDFAST_TESTS_SUPPORT_MINI_CELL_H
#define HOLDFAST_TESTS_SUPPORT_MINI_CELL_H

#include "core/core.h"
#include "core/lease/lease.h"
#include "core/lock/lock.h"

#define MINI_REPLICAS_MAX 7
#define MINI_TOKEN_MAX 48

struct mini_options {
	size_t replicas;         /* 1..MINI_REPLICAS_MAX */
	uint64_t seed;
	uint32_t disk_ms, net_ms;
	uint64_t snapshot_count; /* 0: 100000 */
	uint64_t snapshot_keep;
	uint64_t quota_bytes;    /* 0: none */
	uint32_t auto_compact_ms;
	bool no_auto_clear;
	uint32_t compare_ms;     /* 0: replicas do not compare their states */
	bool may_differ;         /* the test bends a state: it is the replicas that find out */
	uint64_t boot_unix_ms;
	bool restored;           /* the cell is one made from a backup (of nothing) */
	uint32_t max_pending;    /* 0: 100000 */
	uint32_t max_waiters;    /* 0: 100000 */
	size_t admit_window;     /* see core.h */
	size_t log_memory;       /* of the log's end that stays in memory, and is sent from there; 0: as in earnest */
	size_t chunk_bytes;      /* of snapshots; 0: as in earnest */
	size_t sync_chunks;      /* chunks that are received become durable by so many; 0: each */
	uint32_t check_every;    /* core_check after so many batches; 0: after each */
};

struct mini_cell;
struct mini_answer {
	enum err err;
	struct buf reply, details;
	time_ms at;
};

struct mini_cell *mini_new(const struct mini_options *o);
void mini_free(struct mini_cell *m); /* NULL is fine */

/* ---- time ---- */
time_ms mini_now(const struct mini_cell *m);
void mini_run(struct mini_cell *m, time_ms ms);
/* Until there is an answer for tag; NULL when there is none after max_ms. */
const struct mini_answer *mini_wait(struct mini_cell *m, uint64_t tag, time_ms max_ms);
/* Runs until some live replica leads and serves; its number. Asserts that it happens within max_ms. */
size_t mini_elect(struct mini_cell *m, time_ms max_ms);

/* ---- mishaps ---- */
void mini_crash(struct mini_cell *m, size_t i);   /* what its disk has not finished is lost, and its calls */
void mini_restart(struct mini_cell *m, size_t i);
void mini_wipe(struct mini_cell *m, size_t i);    /* while it is down: a new, empty disk, with a data directory of its own */
/* While it is down: its disk has one chunk of three of a snapshot that it was receiving. */
void mini_plant_part(struct mini_cell *m, size_t i, struct entry_id id);
void mini_isolate(struct mini_cell *m, size_t i, bool on); /* no message gets in or out */
void mini_cut(struct mini_cell *m, size_t from, size_t to, bool on); /* one direction */
void mini_pause(struct mini_cell *m, size_t i, bool on);   /* stopped as by SIGSTOP; going on, it is told of the gap */
void mini_stall(struct mini_cell *m, size_t i, bool on);   /* its disk completes nothing; what was given to it is done once it goes on */
void mini_space(struct mini_cell *m, size_t i, bool low);
/* From now on: each message is lost, or doubled and late, with that chance (a million: always). */
void mini_loss(struct mini_cell *m, uint32_t lost_per_million, uint32_t doubled_per_million);

/* ---- clients ---- */
uint64_t mini_request(struct mini_cell *m, size_t i, enum method_id method, const ProtobufCMessage *request); /* the tag */
/* The very next request, of any of these, names this session and request ID. */
void mini_once(struct mini_cell *m, lease_id session, uint64_t request, uint64_t first_unanswered);
/* Requests and streams from now on come with a certificate of that name (at most 31 bytes); NULL: with none. */
void mini_as(struct mini_cell *m, const char *user);
/* Logs a user in at replica i, whatever his password; ret_token: of MINI_TOKEN_MAX bytes. */
void mini_log_in(struct mini_cell *m, size_t i, const char *user, char *ret_token);
/* Requests and streams from now on come with that token. */
void mini_with_token(struct mini_cell *m, const char *token);
void mini_cancel(struct mini_cell *m, size_t i, uint64_t tag);
const struct mini_answer *mini_answer(const struct mini_cell *m, uint64_t tag); /* NULL: none yet */
uint64_t mini_put(struct mini_cell *m, size_t i, const char *key, const char *value, lease_id lease);
uint64_t mini_get(struct mini_cell *m, size_t i, const char *key, bool serializable);
uint64_t mini_grant(struct mini_cell *m, size_t i, lease_id id, int64_t ttl_s);
uint64_t mini_revoke(struct mini_cell *m, size_t i, lease_id id);
uint64_t mini_keep_alive(struct mini_cell *m, size_t i, lease_id id);
uint64_t mini_lock(struct mini_cell *m, size_t i, const char *name, lease_id id);
uint64_t mini_lock_bounded(struct mini_cell *m, size_t i, const char *name, lease_id id, enum lock_mode mode, int64_t wait_ms);
uint64_t mini_unlock(struct mini_cell *m, size_t i, const char *key);

/* fn sees every event just before a core does; what it borrows lives for the call. */
void mini_on_event(struct mini_cell *m, void (*fn)(void *ctx, size_t i, const struct core_event *e), void *ctx);
/* fn sees every snapshot job of every replica, just before it is done and just after; true: the replica dies there. */
void mini_on_job(struct mini_cell *m, bool (*fn)(void *ctx, size_t i, const struct snapshot_job *job, bool done), void *ctx);
/* Streams: fn gets every output of every replica; it may take the messages. */
void mini_on_output(struct mini_cell *m, void (*fn)(void *ctx, size_t i, struct core_output *o), void *ctx);
/* EVENT_STREAM_OPEN (method; bytes: Observe's request), _MESSAGE (bytes), _WRITABLE or _CLOSED. */
void mini_stream(struct mini_cell *m, size_t i, enum core_event_kind kind, uint64_t stream, enum method_id method, struct slice bytes);

/* ---- to look at ---- */
struct core *mini_core(struct mini_cell *m, size_t i); /* NULL while it is down */
member_id mini_member(const struct mini_cell *m, size_t i);
size_t mini_leader(const struct mini_cell *m); /* the live one that serves with the highest term; replicas when there is none */
raft_index mini_log_first(const struct mini_cell *m, size_t i); /* of the log on its disk */
raft_index mini_snapshot(const struct mini_cell *m, size_t i);  /* the index of the one on its disk */
size_t mini_chunks_kept(const struct mini_cell *m, size_t i);   /* on its disk of one that it receives */
enum core_fatal mini_fatal(const struct mini_cell *m, size_t i);
uint64_t mini_messages(const struct mini_cell *m); /* sent so far */
revision mini_token(const struct mini_answer *a);  /* of a LockResponse */
int64_t mini_ttl(const struct mini_answer *a);     /* of a LeaseKeepAliveResponse */
/* Number of contenders of a lock in replica i's state. */
size_t mini_contenders(struct mini_cell *m, size_t i, const char *name);
/* Value of key in replica i's state as a string lent until the next step; NULL when there is none. */
const char *mini_value(struct mini_cell *m, size_t i, const char *key);

#endif
