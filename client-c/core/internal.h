/* internal.h: what the parts of the session core share. */
#ifndef HOLDFAST_CLIENT_SESS_INTERNAL_H
#define HOLDFAST_CLIENT_SESS_INTERNAL_H

#include "base/list.h"
#include "base/map.h"
#include "base/rng.h"
#include "errors.h"
#include "holdfast/v1.pb-c.h"
#include "sess.h"

enum {
	PREFIXES_MAX = 16,
	KEEP_ALIVES_MAX = 16,   /* under way; the oldest is forgotten */
	ONCE_SPAN = 60,         /* request IDs that may be without an answer: the cell keeps 64 results */
	DEPTH_MAX = 60,
	SLACK_MS = 2,           /* clocks have whole milliseconds */
	PATIENCE_MIN_MS = 300,
	PATIENCE_MAX_MS = 3000,
	PATIENCE_OPEN_MS = 1000, /* at least, before it is open */
	STOOD_STILL_MS = 300,    /* stepped so much too late: we were stopped, or had no processor */
	FAILED_MS = 2000,        /* how long a replica that refused is tried after others */
	SILENT_MS = 15000,       /* and one that was silent */
	TTL_USUAL_S = 12,
	BACKOFF_MIN_MS = 50,
	BACKOFF_MAX_MS = 1000,
	CALL_ATTEMPT_MS = 10000, /* of a call that does not wait for others */
	WAIT_MARGIN_MS = 3000,   /* a bounded lock is answered by the cell within its bound; how much longer the answer is waited for */
	TAKEN_OVER_MAX = 5,      /* within TAKEN_OVER_MS: somebody else has our secret */
	TAKEN_OVER_MS = 10000,
};

enum stream_state { STREAM_NONE, STREAM_OPENING, STREAM_UP };

struct keep_alive {
	uint64_t sequence, sent_ms; /* sequence 0: none */
};

struct place { /* what is known of a replica; 0: never */
	uint64_t heard_ms, failed_ms;
	uint64_t asked_ms; /* the first time since it was heard */
	bool serves;       /* as it said when it was heard */
};

enum call_kind { CALL_PLAIN, CALL_GET, CALL_LIST, CALL_LOCK, CALL_UNLOCK, CALL_ARM, CALL_OBSERVE, CALL_GUARD, CALL_VERIFY };

struct call {
	struct list node;      /* in sess.calls, by age */
	uint64_t id, tag;      /* tag 0: nobody waits for it */
	enum call_kind kind;
	enum method_id method;
	struct buf request;    /* PLAIN, UNLOCK, VERIFY; the others are built when they are sent */
	struct buf path;
	uint64_t request_id;   /* 0: without */
	uint64_t deadline_ms;
	uint32_t attempt;      /* of the one that is flying */
	bool flying;
	uint64_t retry_at;
	uint32_t failures;
	struct hold *hold;     /* LOCK, UNLOCK, GUARD, VERIFY */
	struct watch *watch;   /* ARM */
	/* GET, LIST, flying: S4 */
	bool caching, plain;   /* plain: the cell did not know our stream: ask without it */
	uint64_t epoch;
};

enum hold_state {
	HOLD_BEHIND,    /* another of this name is being given up: S7 */
	HOLD_ASKED,
	HOLD_UNSURE,    /* granted, but the session is not SAFE: not told yet */
	HOLD_HELD,
	HOLD_LEAVING,
	HOLD_GONE       /* lost and told so, or given up; waits for its asker to unlock it */
};

struct hold {
	struct list node;
	uint64_t tag;          /* 0: its asker wants no more of it */
	uint64_t unlock_tag;   /* who waits for it to be given up */
	uint64_t unlock_deadline_ms;
	enum hold_state state;
	bool election;
	enum hf_lock_mode mode;
	bool unsettled;        /* LEAVING: what is not answered yet may have been overtaken by the Lock. Another Unlock is to follow */
	int64_t token, guard_from;
	uint64_t deadline_ms;  /* of the wait */
	struct buf name, key, value;
	struct buf granted;    /* the reply, until it is told */
	enum hf_reason lost;
};

struct watch {
	struct list node;
	uint64_t tag, name;    /* name: as the cell knows it */
	bool children, follow, observe;
	struct buf path;
	bool told;             /* its asker was told what it shows */
	bool fired_early;      /* an event came before the answer of the call that arms it */
	enum hf_change early_change;
	enum hf_code early_code;
	int64_t early_revision;
	uint64_t shown;        /* a hash of what was told last */
	bool observed_vacant;  /* OBSERVE */
	int64_t observed_token, observed_mod;
	uint64_t deadline_ms;  /* of the first arming */
};

struct entry { /* of the cache */
	struct list lru;
	struct buf key;        /* aspect, path */
	bool exists;
	struct buf path, value, bytes;
	int64_t version, create_revision, mod_revision, revision;
	uint64_t fetched_ms;
};

struct sess {
	uint32_t endpoints, endpoint;
	struct rng rng;
	uint64_t now;
	enum hf_state state;
	enum hf_reason reason;
	uint32_t grace_ms;
	char *prefixes[PREFIXES_MAX];
	size_t prefixes_len;
	char *name;
	int64_t asked_ttl_s;

	/* stream */
	enum stream_state stream_state;
	uint64_t stream;           /* number of the present or last one */
	uint64_t stream_since, retry_at;
	uint64_t stream_due;       /* when stream_run wanted to be run */
	bool pardoned;             /* what is waited for: we stood still meanwhile */
	struct place *places;      /* of each endpoint */
	uint64_t probed_ms;
	uint32_t failures;         /* in a row */
	uint64_t taken_over_at;
	uint32_t taken_over;

	/* identity */
	uint64_t open_tag, open_deadline_ms, open_sent_ms;
	int64_t id, ttl_s;
	struct buf secret;
	uint64_t term;
	int64_t revision;

	/* clocks: S1 */
	uint64_t lease_until, cache_until; /* cache_until 0: no right */
	uint64_t jeopardy_since;
	uint64_t sequence, keep_alive_at;
	struct keep_alive keep_alives[KEEP_ALIVES_MAX];
	uint64_t unanswered_since;         /* the oldest keep-alive since the last answer; 0: none */

	uint64_t close_tag, close_deadline_ms;

	struct list calls;
	size_t calls_len;
	uint64_t next_call, next_request_id;
	struct list holds;
	struct list watches;
	uint64_t next_watch;

	struct mapb cache;
	struct list lru;           /* most recently used first */
	uint32_t cache_max;
	uint64_t epoch;            /* + 1 whenever the cache is emptied, or may not be filled from before */
	uint64_t invalidation_term, invalidation_number;
	struct hf_cache_stats stats;

	struct sess_update out;
};

/* sess.c */
struct sess_out *sess_out(struct sess *s, enum sess_out_kind kind);
void sess_answer(struct sess *s, uint64_t tag, enum hf_code code, const char *text); /* tag 0: nobody */
void sess_note_term(struct sess *s, uint64_t term);         /* S3 */
void sess_note_header(struct sess *s, struct slice reply);  /* the header that all replies begin with: S3 */
void sess_end(struct sess *s, enum hf_state state, enum hf_reason reason, enum hf_code open_code, const char *text);
void sess_safe(struct sess *s);                             /* may be safe (again) */
bool sess_over(const struct sess *s);
static inline bool sess_may_act(const struct sess *s) { return s->state == HF_SAFE || s->state == HF_JEOPARDY; }

/* place.c. waits_since: since when the stream waits for an answer; 0: it does not. */
uint64_t sess_patience_ms(const struct sess *s);
void places_init(struct sess *s);
void place_asked(struct sess *s, uint32_t at);
void place_heard(struct sess *s, uint32_t at, bool serves);
void place_failed(struct sess *s);       /* the present one refused, or broke off */
void places_stood_still(struct sess *s); /* nobody could be heard for a while */
bool place_is_left(struct sess *s, uint64_t waits_since); /* whether it is time to; probes */
uint64_t place_next_ms(const struct sess *s, uint64_t waits_since); /* when that may change by itself */
uint32_t place_choose(struct sess *s);

/* stream.c */
void stream_run(struct sess *s);
uint64_t stream_next(const struct sess *s);
void stream_message(struct sess *s, const struct sess_event *e);
void stream_ended(struct sess *s, const struct sess_event *e);
void stream_drop(struct sess *s); /* forgets it, and calls that fly are sent again */
void stream_send(struct sess *s, const Holdfast__V1__SessionRequest *m);

/* call.c */
struct call *sess_call_new(struct sess *s, enum call_kind kind, enum method_id method, uint64_t tag, uint64_t deadline_ms);
void sess_call_free(struct sess *s, struct call *c); /* cancels what flies */
void calls_run(struct sess *s);
uint64_t calls_next(const struct sess *s);
void calls_stream_lost(struct sess *s);
bool call_landed(struct sess *s, const struct sess_event *e); /* it is not under way any more, and so never cancelled; false: it was not */
void call_reply(struct sess *s, const struct sess_event *e);  /* of one that has landed */
void call_part(struct sess *s, const struct sess_event *e);
void call_again(struct sess *s, struct call *c); /* later */
void calls_end(struct sess *s, enum hf_code code);
enum hf_code call_code(int status, struct slice text, bool *ret_again);
void *call_unpack(const ProtobufCMessageDescriptor *d, struct slice bytes); /* NULL: it is none */
void pack_into(struct buf *b, const ProtobufCMessage *m);
char *text_of(struct slice s); /* NUL-terminated; free() it */

/* cache.c */
void cache_empty(struct sess *s);
void cache_invalidate(struct sess *s, const Holdfast__V1__SessionInvalidation *m);
void cache_take(struct sess *s, struct call *c, struct slice bytes);
void cache_deinit(struct sess *s);

/* hold.c */
void hold_free(struct hold *h); /* which is in no list */
void hold_ask(struct sess *s, const struct sess_ask *a);
void hold_unlock(struct sess *s, const struct sess_ask *a);
void hold_proclaim(struct sess *s, const struct sess_ask *a);
void hold_pack(struct sess *s, struct call *c, struct buf *ret);
void hold_reply(struct sess *s, struct call *c, const struct sess_event *e);
void hold_part(struct sess *s, struct call *c, struct slice bytes);
void hold_timeout(struct sess *s, struct call *c, enum hf_code code, const char *text);
void hold_stream_lost(struct sess *s, struct call *c); /* with a call of a hold, which is freed if it was given up */
void hold_cancel(struct sess *s, uint64_t tag); /* one that has no call: it waits behind another, or for the session to be safe */
void holds_safe(struct sess *s);
void holds_end(struct sess *s);
void holds_run(struct sess *s);
uint64_t holds_next(const struct sess *s);

/* watch.c */
void watch_ask(struct sess *s, const struct sess_ask *a);
void watch_stop(struct sess *s, uint64_t tag);
void watch_pack(struct sess *s, struct call *c, struct buf *ret);
void watch_reply(struct sess *s, struct call *c, const struct sess_event *e);
void watch_timeout(struct sess *s, struct call *c, enum hf_code code, const char *text);
void watch_part(struct sess *s, struct call *c, struct slice bytes);
void watch_event(struct sess *s, const Holdfast__V1__SessionEvent *m);
void watches_stream_up(struct sess *s);
void watches_end(struct sess *s);

#endif
