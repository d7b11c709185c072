/* sessions.h: what a replica has beside the replicated records of sessions: as leader the gate in front of the log, and on any replica the streams of
 * the sessions that are connected to it. Part of internal.h. */
#ifndef HOLDFAST_CORE_SESSIONS_H
#define HOLDFAST_CORE_SESSIONS_H

#include "core/auth/auth.h"
#include "core/kv/kv.h"

#define GATED_MAX 4096u         /* that wait for acknowledgements */
#define GATED_BYTES_MAX (16u << 20)
#define SESSION_STREAMS_MAX 100000u
#define SESSION_WATCHES_MAX 10000u      /* of one session */
#define SESSION_OUT_MAX (1u << 20)      /* bytes for a client that does not read */
#define SESSION_HELD_MAX (64u << 10)    /* bytes that came before the session was open */
#define SESSION_RENEWALS_MAX 64u        /* of one session, not answered */
#define CACHE_MESSAGE_BYTES (512u << 10)

/* ---- the gate (gate.c): leader ---- */

struct held_spans { /* a copy of a write set, with its bytes */
	size_t len;
	struct cache_span at[];
};

struct gated { /* a command that is kept from the log */
	struct cache_write write;
	struct list link;  /* held or ready */
	struct buf bytes;
	struct held_spans *spans;
	time_ms since;            /* it waits */
};

struct flight { /* a command in the log that is not applied */
	struct list link;
	raft_index index;
	struct held_spans *spans;
};

struct gate {
	struct cache *cache;
	struct list held;   /* wait for acknowledgements */
	struct list ready;  /* wait for room in the log alone */
	size_t len, bytes;
	uint64_t total;       /* that had to wait, ever */
	struct list flights;
	bool fresh;           /* something has become ready since the last flush */
	raft_index untracked; /* up to here entries may touch what no flight tells of */
};

/* ---- streams (client_stream.c, node_watch.c, cache_link.c): any replica ---- */

enum client_stream_state {
	CLIENT_NEW,     /* nothing has come yet */
	CLIENT_OPENING, /* open or resume is on its way through the log */
	CLIENT_OPEN,
	CLIENT_OVER,    /* ends as soon as what is left is taken */
};

struct client_stream {
	struct list all, dirty, ack_link; /* in sessions' lists */
	uint64_t tag;
	uint8_t state;
	bool resumed, caches, closing, writable, ack_due;
	uint8_t secret[SESSION_SECRET_LEN]; /* of a session that it opens */
	lease_id session;
	struct call *call;    /* open, resume or close, not answered */
	struct buf opening;   /* the request, to be proposed again with another ID */
	struct buf held;      /* messages that came too early, each behind its length */
	struct buf out;       /* the same, to be sent */
	enum err end;
	uint32_t renewals;
	raft_term owed_term;  /* of passed and acked */
	uint64_t passed;      /* invalidations up to here have been sent on */
	uint64_t acked;       /* and acknowledged */
	struct map64 watches; /* by the client's name -> struct node_watch */
};

struct watch_point { /* what somebody watches */
	struct list watches;
	uint32_t key_len;
	uint8_t key[]; /* the aspect, the path */
};

struct node_watch {
	struct list in_point;
	struct watch_point *point;
	struct client_stream *stream;
	uint64_t id;
	revision seen; /* a value: its mod_revision when it was armed; 0: none */
};

struct sessions {
	struct map64 by_tag, by_session;
	struct list all, dirty;
	struct list acks;         /* streams whose client has acknowledged something that the leader may not know */
	struct list asks_fresh, asks_sent; /* calls that want a grant of the leader */
	struct mapb points;
	raft_term term_told;
	lease_id *ended;          /* by the command being applied */
	size_t ended_len, ended_cap;
};

struct core;
struct core_event;
struct core_request;
struct applying_command;
struct call;
struct peer;

/* gate.c */
void gate_init(struct core *c);
void gate_deinit(struct core *c);
/* Into the log, or kept for later: ERR_OK. Those that gate_has_room are never refused for want of room here. */
enum err gate_propose(struct core *c, const struct command *cmd, struct slice bytes);
bool gate_has_room(struct core *c, const struct command *cmd, struct slice bytes); /* it need not wait, or there is room for it to */
void gate_flush(struct core *c);
bool gate_waits(const struct core *c);
void gate_promote(struct core *c);
void gate_clear(struct core *c);   /* no leader (of this term) any more */
void gate_applied(struct core *c); /* state.applied has moved */
void gate_tick(struct core *c);
/* user: whose the session's stream is. */
bool gate_grant(struct core *c, lease_id session, struct slice user, enum cache_aspect aspect, struct slice path);
bool gate_extend(struct core *c, lease_id session, int64_t ttl_s); /* a keep-alive has moved its deadline */
uint64_t gate_first_of(const struct core *c, member_id member, uint64_t boot, uint64_t first); /* as admit_first_of */
time_ms gate_oldest_ms(const struct core *c); /* how long the command waits that waits for longest */
void gate_check(const struct core *c);

/* client_stream.c */
void sessions_init(struct core *c);
void sessions_deinit(struct core *c); /* before calls are gone */
bool sessions_step(struct core *c, const struct core_event *e); /* false: not one of these streams */
void sessions_take(struct core *c);
void sessions_told(struct core *c, struct call *call, enum err e, struct slice reply);
void sessions_kept_alive(struct core *c, struct call *call, int64_t ttl_s);
void sessions_call_gone(struct core *c, struct call *call);
void sessions_applied(struct core *c, uint32_t kind, struct slice payload, enum err e); /* after each command; before its caller is told */
void sessions_recheck(struct core *c); /* the state was replaced */
void sessions_check(const struct core *c);
struct client_stream *sessions_find(const struct core *c, lease_id session); /* open here; NULL */
void client_stream_emit(struct core *c, struct client_stream *s, uint32_t field, struct slice body);
void client_stream_end(struct core *c, struct client_stream *s, enum err e);

/* node_watch.c */
enum err node_may_read(struct core *c, struct auth_who who, enum cache_aspect aspect, struct slice path); /* a node's value, or its children */
enum err node_watch_arm(struct core *c, struct client_stream *s, uint64_t id, enum cache_aspect aspect, struct slice path);
void node_watch_disarm(struct core *c, struct client_stream *s, uint64_t id);
void node_watches_drop(struct core *c, struct client_stream *s);
void node_watches_applied(struct core *c, uint64_t from); /* events of the history from that number on */
void node_watches_permitted(struct core *c); /* users, roles or permissions have changed */
void node_watches_recheck(struct core *c);

/* cache_link.c */
void node_read_submit(struct core *c, const struct core_request *r); /* Nodes.Get, Nodes.List */
enum err node_read_run(struct core *c, const struct call *call, struct buf *reply);
void cache_link_flush(struct core *c);
bool cache_link_waits(const struct core *c);
void cache_link_tick(struct core *c);
void cache_link_role_changed(struct core *c);
void cache_link_to_leader(struct core *c, struct peer *p, struct slice body);
void cache_link_from_leader(struct core *c, struct slice body);

#endif
