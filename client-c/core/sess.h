/* sess.h: a session's whole logic, pure: an event in, an update out. No socket, thread, clock or log; the time is part of every event.
 *
 * The caller (client-c/lib, or a simulator) owns the connections and the clock. It steps the core with what happened and what was asked, takes the update, carries
 * it out in order, and steps it with SESS_TICK at the latest when sess_next_ms() has come. The clock is CLOCK_BOOTTIME in milliseconds, read *before* whatever
 * happened is handled.
 *
 *   (S1) the lease clock starts when the keep-alive that was answered was sent, and runs for 99 % of the TTL (P3). The right to cache likewise.
 *   (S2) nothing is handled before the clock has been looked at: what arrives after it ran out finds the session in JEOPARDY, and its cache empty.
 *   (S3) a term higher than all before empties the cache before anything else of the message that told it is looked at (P6).
 *   (S4) a value is put into the cache only if since its request was sent the cache was never emptied, and no invalidation of it was acknowledged; and it is
 *        given out only if the clock, read after it was loaded, says that the right to cache has not ended.
 *   (S5) a call is sent again after its stream was lost, or after an answer that leaves open what became of it, with the same request ID, until there is an
 *        answer, its time is over, or the session is. So a write is applied once (P9).
 *   (S6) a watch that was told armed fires at the first change after what was told then, over streams and terms.
 *   (S7) a hold is told lost once, when the session is over or its key is gone; a name is asked for again only after the cell has acknowledged that it was given up.
 *   (S8) a replica is left when it is silent, or for one that serves when it does not: place.c. */
#ifndef HOLDFAST_CLIENT_SESS_H
#define HOLDFAST_CLIENT_SESS_H

#include "base/buf.h"
#include "holdfast.h"
#include "methods.h"

#define SESS_NEVER UINT64_MAX

struct sess;

struct sess_config {
	uint32_t endpoints;       /* how many there are, at least 1 */
	uint64_t seed;
	int64_t ttl_s;            /* 0: the cell's default */
	uint32_t grace_ms;
	uint32_t cache_max;       /* entries */
	const char *const *cache_prefixes; /* copied; NULL: none */
	const char *name;         /* may be NULL */
	uint64_t open_tag;        /* SESS_ANSWER when it is open, or will not be */
	uint64_t open_deadline_ms;
};

/* ---- events ---- */

enum sess_event_kind {
	SESS_TICK,           /* only the time */
	SESS_STREAM_MESSAGE, /* stream, bytes: a SessionResponse */
	SESS_STREAM_ENDED,   /* stream, status, text: also when it could not be connected */
	SESS_HEARD,          /* endpoint, serves: the answer to a SESS_PROBE, which may have been another session's; when there is none, none is told */
	SESS_REPLY,          /* call, attempt, status, text, details, bytes: the end of a call */
	SESS_PART,           /* call, attempt, bytes: a message of a stream of replies */
	SESS_ASK,            /* ask */
};

enum sess_ask_kind {
	SESS_ASK_CALL,    /* method, bytes; once: with a request ID */
	SESS_ASK_GET,     /* path; asks the cell, and caches the answer if it may */
	SESS_ASK_LIST,    /* path */
	SESS_ASK_LOCK,    /* name, mode, wait_ms; the hold is called `tag` from then on */
	SESS_ASK_CAMPAIGN,/* name, bytes: the value, wait_ms */
	SESS_ASK_UNLOCK,  /* hold */
	SESS_ASK_PROCLAIM,/* hold, bytes: the value */
	SESS_ASK_WATCH,   /* path, children; armed: SESS_ANSWER; fires: SESS_FIRED */
	SESS_ASK_FOLLOW,  /* path: SESS_TOLD for each value */
	SESS_ASK_OBSERVE, /* name: SESS_TOLD for each leader */
	SESS_ASK_STOP,    /* of a watch, follow or observe `tag`: nothing more of it */
	SESS_ASK_CANCEL,  /* of what was asked as `tag`: answered HF_CANCELED, unless it was answered */
	SESS_ASK_CLOSE,   /* answered when it is over */
};

struct sess_ask {
	enum sess_ask_kind kind;
	uint64_t tag;         /* the asker's; not 0, one of a kind */
	uint64_t hold;        /* UNLOCK, PROCLAIM: the tag of the LOCK or CAMPAIGN */
	enum method_id method;
	bool once;
	bool children;
	enum hf_lock_mode mode;
	int64_t wait_ms;      /* -1: for ever; 0: a try */
	uint64_t deadline_ms; /* answered HF_TIMEOUT then; SESS_NEVER. LOCK, CAMPAIGN: by wait_ms instead */
	struct slice name, path, bytes;
};

struct sess_event {
	enum sess_event_kind kind;
	uint64_t now_ms;
	uint64_t stream, call;
	uint32_t attempt, endpoint;
	bool serves;
	int status;           /* enum status_code */
	struct slice text, details, bytes;
	struct sess_ask ask;
};

/* ---- updates ---- */

enum sess_out_kind {
	SESS_CONNECT, /* stream, endpoint: a Session.Connect call */
	SESS_SEND,    /* stream, bytes: a SessionRequest */
	SESS_DROP,    /* stream: nothing more is heard of it */
	SESS_PROBE,   /* endpoint: does it live, and does it serve (it has a leader)? */
	SESS_CALL,    /* call, attempt, endpoint, method, bytes, request_id, first_unanswered, deadline_ms, keep_open */
	SESS_CANCEL,  /* call, attempt: whose end was not told; nothing more is heard of it. When it was told before the update was taken, there is nothing to do */
	SESS_ANSWER,  /* tag, code, text, details, method, bytes: of what was asked; the last of it */
	SESS_TOLD,    /* tag, code, text, method, bytes: of FOLLOW, OBSERVE; code HF_SESSION_LOST or HF_CANCELED: the last */
	SESS_FIRED,   /* tag, code, change, text: the path, revision: of WATCH; the last of it */
	SESS_STATE,   /* state, reason */
	SESS_LOST,    /* tag: of a hold; reason */
};

struct sess_out {
	enum sess_out_kind kind;
	uint64_t stream, call, tag;
	uint32_t attempt, endpoint;
	enum method_id method;
	struct buf bytes, text, details; /* of whoever took the update */
	uint64_t request_id, first_unanswered; /* 0: without */
	uint64_t deadline_ms;
	bool keep_open;       /* the stream of requests is not closed behind the first */
	enum hf_code code;
	enum hf_change change;
	int64_t revision;
	enum hf_state state;
	enum hf_reason reason;
};

struct sess_update {
	struct sess_out *at;
	size_t len, cap;
};

struct sess *sess_new(const struct sess_config *config, uint64_t now_ms);
void sess_free(struct sess *s); /* NULL is fine */
void sess_step(struct sess *s, const struct sess_event *e);
/* All that is to be done since the last one, in order. sess_update_free() it. */
void sess_take(struct sess *s, struct sess_update *ret);
bool sess_has_update(const struct sess *s);
void sess_update_free(struct sess_update *u);
/* When it wants to be stepped next at the latest; SESS_NEVER. */
uint64_t sess_next_ms(const struct sess *s);

/* ---- looking ---- */

enum hf_state sess_state(const struct sess *s);
enum hf_reason sess_reason(const struct sess *s);
int64_t sess_id(const struct sess *s); /* 0: not open yet */
uint64_t sess_term(const struct sess *s);
/* How long the session is certainly alive, by a clock that was read just now; 0 when it is not SAFE. */
uint64_t sess_remaining_ms(const struct sess *s, uint64_t now_ms);
uint64_t sess_cache_remaining_ms(const struct sess *s, uint64_t now_ms);
/* Of a hold; 0 when it is lost, given up or not granted yet. Says nothing of the session: ask sess_remaining_ms as well. */
int64_t sess_hold_token(const struct sess *s, uint64_t hold);

/* What is cached of a path. */
struct sess_cached {
	bool exists;
	struct hf_node node;   /* of a value; dies with the next step */
	struct slice bytes;    /* of a list: NodesListResponse */
	int64_t revision;
	uint64_t fetched_ms;
};
/* Loads what is cached; false: nothing. It may be given out only if sess_cache_confirm() says so with a clock that was read after this returned (S4). */
bool sess_cache_load(struct sess *s, struct slice path, bool children, struct sess_cached *ret);
bool sess_cache_confirm(struct sess *s, const struct sess_cached *cached, uint64_t now_ms);
void sess_cache_stats(const struct sess *s, uint64_t now_ms, struct hf_cache_stats *ret);

#endif
