/* watch_internal.h: what the files of the watch module share; nobody else includes it.
 *
 * A watcher is always in one place:
 *
 *   SYNCED ── a match its stream cannot take ──► PARKED ── picked, stream writable ──► NEAR, FAR ── a pass ──► SYNCED, PARKED, NEAR, FAR
 *
 *   (I1) noted is the revision up to which history has been matched against the synced watchers; outside watches_open and _message,
 *        once watches_take has begun, it is state->revision.
 *   (I2) a synced watcher has been told every match with a revision in [cursor, noted]. Its cursor is only a lower bound: of a watch
 *        that starts in the future, it is where that starts.
 *   (I3) a watcher that is behind (any other place) has cursor <= noted, has been told every match below its cursor, and none from there on.
 *   (I4) every event from a cursor on is in history, or the cursor is below compact_revision, and the watcher is lost when it is next
 *        picked: unless it is of one key that certainly has no event from the cursor on.
 *   (I5) nothing about a watcher is rendered while its stream has control answers queued: a watcher's creation comes first.
 *   (I6) a range is in the index as long as a watcher has it; its match chain is empty outside a pass. */
#ifndef HOLDFAST_CORE_WATCH_INTERNAL_H
#define HOLDFAST_CORE_WATCH_INTERNAL_H

#include "core/watch/watch.h"

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "base/rng.h"

#ifndef OUTPUT_MAX /* tests make them small, so that everything is cut everywhere */
#define OUTPUT_MAX (256u << 10)       /* a stream's output takes no further response beyond this */
#define RESPONSE_MAX (512u << 10)     /* a response takes no further revision beyond this */
#define TAKE_BYTES (16u << 20)        /* rendered by one take */
#define PASS_EVENTS 4096u             /* events looked at by one pass (and whole revisions) */
#define PASS_BYTES (4u << 20)         /* of events that match */
#define PASS_MATCHES (1u << 20)       /* events times ranges */
#define PASS_WATCHERS 4096u           /* that catch up together */
#define PASSES_MAX 2u                 /* of each kind, in one take */
#define PICKED_MAX 1024u              /* watchers of one stream on their way at once */
#define WALK_MAX 4096u                /* watchers looked at for progress notices, or ended with their stream, by one visit */
#define SPILL_EVENTS 16384u           /* rendered at most before a compaction for who lags */
#define SPILL_TOTAL (64u << 20)       /* bytes held for streams that are not writable */
#define RANGES_BYTES_MAX (256u << 20) /* of all ranges' keys */
#endif
#define NO_MATCH UINT32_MAX

/* ---- ranges: what is watched, shared by all watchers of the same ---- */

enum range_kind {
	RANGE_KEY,  /* one key */
	RANGE_SPAN, /* [key, end) */
	RANGE_FROM, /* [key, ...) */
};

struct watch_range {
	union {
		struct watch_range *chain; /* RANGE_KEY: the next one of its bucket */
		struct {
			struct watch_range *left, *right;
			struct watch_range *furthest; /* of the subtree, the one that ends last */
		};
	};
	uint64_t hash;        /* RANGE_KEY: of the key; else its priority in the heap order of the tree */
	struct list synced;   /* watchers */
	struct list selected; /* watchers that the pass under way brings forward */
	uint32_t watchers;
	uint32_t first, last; /* matches in the pass under way */
	uint32_t key_len, end_len;
	uint8_t kind;
	uint8_t bytes[];      /* key, then end */
};

struct range_index {
	struct watch_range **buckets; /* single keys */
	size_t cap;                   /* a power of two, or 0 */
	size_t keys, spans;
	struct watch_range *root;     /* the others: by key, then end */
	uint64_t seed;
	size_t bytes;
};

static inline struct slice range_key(const struct watch_range *r)
{
	return slice_of(r->bytes, r->key_len);
}

static inline struct slice range_end(const struct watch_range *r)
{
	return slice_of(r->bytes + r->key_len, r->end_len);
}

/* ---- watchers ---- */

enum watcher_place {
	PLACE_SYNCED, /* in its range's synced */
	PLACE_PARKED, /* behind; in its stream's parked */
	PLACE_NEAR,   /* behind; on its way, not far from the head of history */
	PLACE_FAR0,   /* behind; on its way */
	PLACE_FAR1,
	PLACE_PASS,   /* in its range's selected, or in the list of those set aside */
	PLACE_NONE,   /* an observer that is to be told the present leader */
	PLACE_COUNT
};

enum {
	WATCHER_PREV = 1,
	WATCHER_NO_PUT = 2,
	WATCHER_NO_DELETE = 4,
	WATCHER_PROGRESS = 8,
	WATCHER_FRAGMENT = 16,
	WATCHER_TOLD = 32, /* an event since the last progress notice was due */
	WATCHER_OBSERVER = 64,
};

struct watcher {
	struct list link;
	struct heap_node heap; /* by cursor */
	struct watch_range *range;
	struct watch_stream *stream;
	int64_t id;
	revision cursor;
	uint8_t place, flags;
};

/* ---- streams ---- */

enum control_kind {
	CONTROL_CREATED,
	CONTROL_CANCELED,
	CONTROL_LOST,      /* cancelled by compaction */
	CONTROL_DUPLICATE, /* the others: created and cancelled at once */
	CONTROL_EMPTY_RANGE,
	CONTROL_NEGATIVE,
	CONTROL_TOO_MANY,
	CONTROL_REFUSED,   /* not permitted */
	CONTROL_REVOKED,   /* permitted no more: cancelled */
};

struct control {
	int64_t id;
	revision at, compact_revision;
	enum control_kind kind;
	enum err err; /* REFUSED, REVOKED */
};

struct observer {
	struct buf name;
	bool vacancy;                  /* wants to be told when nobody leads */
	bool due;                      /* to be told who leads at present */
	bool vacant_told;
	struct buf key;                /* the leader's; create_revision 0: nobody leads */
	revision create_revision;
	revision told_create, told_mod; /* the last one that was told */
};

/* What the streams of one connection have together; gone with the last of them. */
struct watch_connection {
	uint64_t number;
	size_t streams, watchers;
};

struct watch_stream {
	uint64_t tag;
	struct watch_connection *connection; /* NULL: none is known */
	struct list wake;       /* in watches.wake: something may be done for it; in watches.dying once it has ended */
	struct list ready;      /* in watches.ready: its output is to be handed over */
	struct map64 ids;       /* watch ID -> watcher, or &watch_lost_mark */
	struct list parked;
	struct control *controls; /* a ring of controls_cap, a power of two */
	uint32_t controls_first, controls_len, controls_cap;
	uint32_t watchers, behind, picked, notifiers;
	uint32_t progress_wanted; /* progress requests not answered */
	int64_t next_id;
	struct buf out;
	size_t held;            /* of out, what was rendered while not writable */
	struct heap_node tick;  /* next progress notices */
	size_t walk;            /* in ids */
	bool walking;           /* progress notices are being written */
	bool writable;
	bool closed;            /* the client is gone */
	bool ended;             /* we end it, with err */
	bool handed;            /* its end is handed over: the object goes with its last watcher */
	enum err err;
	struct observer *observer;
	struct watcher *observing;
};

extern char watch_lost_mark; /* stands for a watcher that compaction has cancelled, until the client cancels it too */

/* ---- the pass (watch_pass.c) ---- */

struct pass_event {
	const struct kv *kv, *prev;
	size_t at[2], len[2]; /* its bytes as a field of a response, in pass.bytes: [1] with prev_kv; len 0: not rendered yet */
};

struct pass_match {
	uint32_t event, next;
};

struct pass {
	struct pass_event *events;
	size_t events_len, events_cap;
	struct pass_match *matches;
	size_t matches_len, matches_cap;
	struct watch_range **touched;
	size_t touched_len, touched_cap;
	struct watcher **selected;
	size_t selected_len, selected_cap;
	struct buf bytes;
	size_t weight; /* bytes of events that match */
	bool synced;   /* whom it is for: the synced, or the selected */
	revision end;  /* the last revision looked at */
};

struct watches {
	struct watch_config config;
	const struct kv_env *env;
	struct rng rng;
	time_ms now;
	struct map64 tags;
	struct map64 connections; /* number -> struct watch_connection */
	size_t streams, watchers;
	struct range_index index;
	revision noted;
	struct heap parked, near, far[2]; /* by cursor */
	int far_round;          /* far[far_round] is swept now; who is behind the sweep goes into the other */
	revision sweep;
	revision near_from;     /* a cursor from here on is near: one pass reaches the head */
	struct list wake, ready, dying;
	struct heap ticks;      /* streams, by time */
	bool spilling;
	size_t spilled;         /* sum of held */
	size_t budget;          /* bytes left in this take */
	struct pass pass;
	uint8_t header[64];     /* the last header, as a field */
	size_t header_len;
	revision header_revision;
	raft_term header_term;
	uint64_t events_told, responses, lost, refused;
};

/* range.c */
void ranges_deinit(struct range_index *ix);
struct watch_range *range_get(struct range_index *ix, struct slice key, struct slice end, enum range_kind kind); /* one watcher more */
void range_put_back(struct range_index *ix, struct watch_range *r); /* one watcher less */
/* Calls fn for every range that has `key`. */
void ranges_stab(const struct range_index *ix, struct slice key, void (*fn)(void *ctx, struct watch_range *r), void *ctx);
void ranges_check(const struct range_index *ix);

/* watcher.c */
struct watcher *watcher_new(struct watches *w, struct watch_stream *s, struct watch_range *range, int64_t id, revision cursor, unsigned flags);
void watcher_remove(struct watches *w, struct watcher *x); /* its ID is free */
void watcher_unplace(struct watches *w, struct watcher *x); /* to PLACE_NONE */
void watcher_sync(struct watches *w, struct watcher *x);
void watcher_park(struct watches *w, struct watcher *x);   /* behind, at its cursor */
void watcher_pick(struct watches *w, struct watcher *x);   /* parked: goes on its way */
void watcher_select(struct watches *w, struct watcher *x); /* on its way: into the pass under way */
void watcher_lose(struct watches *w, struct watcher *x);   /* its history is compacted */
static inline bool watcher_is_behind(const struct watcher *x)
{
	return x->place != PLACE_SYNCED && x->place != PLACE_NONE;
}

/* stream.c */
/* Whether one more, of a range with so many bytes, is within all bounds; it is noted when not. */
bool stream_may_have_more(struct watches *w, const struct watch_stream *s, size_t bytes);
struct watch_stream *stream_find(const struct watches *w, uint64_t tag);
void stream_control(struct watches *w, struct watch_stream *s, struct control c); /* queues an answer */
bool stream_has_room(const struct watches *w, const struct watch_stream *s);      /* one more response may be written */
bool stream_say_controls(struct watches *w, struct watch_stream *s);              /* false: some are left */
void stream_wake(struct watches *w, struct watch_stream *s);
void stream_end(struct watches *w, struct watch_stream *s, enum err e);
void stream_feed(struct watches *w, struct watch_stream *s);
void stream_wrote(struct watches *w, struct watch_stream *s, size_t bytes);       /* so many were added to out */
void stream_tick(struct watches *w, struct watch_stream *s);                      /* progress notices are due */
void stream_want_ticks(struct watches *w, struct watch_stream *s);
void streams_bury(struct watches *w, size_t budget);

/* request.c */
void request_message(struct watches *w, struct watch_stream *s, struct slice bytes);

/* reply.c: each adds one message to the stream's output */
void reply_control(struct watches *w, struct watch_stream *s, const struct control *c);
void reply_progress(struct watches *w, struct watch_stream *s, int64_t id);
/* Events of the chain from `from` up to, not including, `to` (NO_MATCH: all), which have `count` events of `size` bytes for this watcher. */
struct reply_run {
	uint32_t from, to;
	size_t count, size;
	revision revision; /* of the header */
};
void reply_events(struct watches *w, const struct watcher *x, const struct reply_run *run);
void reply_leader(struct watches *w, struct watch_stream *s, revision at, const struct kv *kv); /* kv NULL: vacant */
const struct pass_event *pass_event_render(struct watches *w, uint32_t event, bool prev);
static inline bool watcher_wants(const struct watcher *x, const struct kv *kv)
{
	return !(x->flags & (kv_is_tombstone(kv) ? WATCHER_NO_DELETE : WATCHER_NO_PUT));
}

/* pass.c */
void watches_note(struct watches *w);                      /* I1 */
void watches_advance(struct watches *w);                   /* one pass of each kind for those who are on their way */
void pass_deinit(struct pass *p);
/* One pass over history from `from` on for those in pass.selected, then each goes to its next place. */
void pass_selected(struct watches *w, revision from);
void pass_select(struct watches *w, struct watcher *x);    /* unless it is synced or lost by now */
revision pass_limit(const struct watches *w, revision from); /* about where a pass from there would end */

/* observe.c */
void observe_open(struct watches *w, struct watch_stream *s, struct slice request);
void observe_free(struct observer *o);
void observe_tell_present(struct watches *w, struct watch_stream *s); /* the stream has room */
/* The observer's part of a pass. Returns the revision of the first event it could not be told, 0: none, -1: the leader is gone, and it is
 * to be told the present one. */
revision observe_serve(struct watches *w, struct watcher *x);
void observe_again(struct watches *w, struct watcher *x); /* to be told the present leader */

#endif
