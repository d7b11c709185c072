/* watch.h: Watch and Observe streams, as cursors into the store's history.
 *
 * A watcher is a range, some flags and the next revision it needs. What is due is rendered when its stream is writable, straight from
 * history; a stream that is not writable costs nothing but its watchers' cursors. Core's thread only; pure as the rest of the core.
 *
 * The owner calls, in each batch: the streams' events as they come; watches_before_compact() right before every compaction; and once all
 * that is committed has been applied, watches_take() and then watches_next_output() until it has no more. Nothing is told when a snapshot
 * replaces the state: cursors are revisions, and go on.
 *
 *   (W1) a watcher gets every matching event with a revision >= the one it starts at, once, in the order of history; or it is cancelled,
 *        and is told the revision of the compaction. It gets none from before its start.
 *   (W2) the answer to a creation comes before its events; after the answer to a cancel come none.
 *   (W3) the header of a response that carries events, and of a progress notice, names a revision up to which the watcher (all watchers of
 *        the stream, for watch ID -1) has been told everything.
 *   (W4) the events of one revision are in one response, unless the watcher allows fragments.
 *   (W5) memory: a bounded number of bytes a watcher, and OUTPUT_MAX and one response a stream, whatever its reader does.
 */
#ifndef HOLDFAST_CORE_WATCH_H
#define HOLDFAST_CORE_WATCH_H

#include "core/kv/kv.h"
#include "methods.h"

struct watches;

struct watch_config {
	uint64_t seed;
	time_ms progress_ms;    /* between progress notices to idle watchers that want them: 600000. Up to a tenth is added a stream */
	uint32_t max_watchers;  /* of one stream: 100000. A creation beyond is answered as cancelled, one of an observer ends its stream */
	uint32_t max_connection;/* of all streams of one connection: 100000. The same */
	uint32_t max_total;     /* of all streams: 1000000 */
	uint32_t max_streams;   /* 100000: a stream beyond ends at once with ERR_TOO_MANY_REQUESTS */
	uint32_t fragment_bytes;/* a larger response is split, if its watcher allows: 1.5 MiB */
};
extern const struct watch_config watch_config_default;

/* env is borrowed, and its state, store, locks and header are looked at: its state may be replaced between calls. */
struct watches *watches_new(const struct watch_config *config, const struct kv_env *env);
void watches_free(struct watches *w);

/* ---- the streams' events. An unknown tag is a stream that has ended: nothing happens. ---- */
struct watch_opening {
	uint64_t tag;
	uint64_t connection; /* streams that have the same share its bound; 0: it has none */
	enum method_id method;
	struct slice bytes;
};
/* method: METHOD_WATCH_WATCH, or METHOD_ELECTION_OBSERVE with a packed LeaderRequest (else bytes are not looked at). A tag is never used again.
 * The stream is writable from the start. Each stream gets exactly one output that is finished. */
void watches_open(struct watches *w, struct watch_opening opening, time_ms now);
void watches_message(struct watches *w, uint64_t tag, struct slice bytes, time_ms now); /* a packed WatchRequest */
void watches_writable(struct watches *w, uint64_t tag);
void watches_closed(struct watches *w, uint64_t tag); /* the client is gone: an empty output that is finished follows, and nothing else */

/* Whether a message wants to start from now: such a one may be held back until this replica is known to be up to date. */
bool watch_message_starts_now(struct slice bytes);

/* Whether a message creates a watch. */
bool watch_message_creates(struct slice bytes);
/* Instead of watches_message, for a creation that is not permitted: it is answered as created and cancelled, with the error as the reason. */
void watches_refuse(struct watches *w, uint64_t tag, enum err e, time_ms now);
/* Permissions have changed: asks for each watcher whether it may stay; those that may not are cancelled with the reason, an observer's stream ends.
 * Nothing that was not told yet is told to them. end: as requests have it. */
typedef enum err (*watch_may_fn)(void *ctx, uint64_t tag, struct slice key, struct slice end);
void watches_recheck(struct watches *w, watch_may_fn may, void *ctx);

/* ---- with the state ---- */
/* State is about to be compacted at `at`. Everything that is due is rendered, for streams that are not writable too, within their bounds:
 * who lags by a moment is not cancelled for it. */
void watches_before_compact(struct watches *w, revision at);

/* ---- output ---- */
/* Serves what is due, within a budget. Returns true when more is due that could be served now: to be called again soon. */
bool watches_take(struct watches *w, time_ms now);
/* Messages one after another, each a 32-bit little-endian length and its bytes. finished: the stream ends with err after these. */
struct watch_output {
	uint64_t tag;
	struct buf messages; /* the taker's */
	bool finished;
	enum err err;
};
bool watches_next_output(struct watches *w, struct watch_output *ret);
time_ms watches_next_deadline(const struct watches *w); /* when a tick is wanted at the latest; TIME_NEVER */

/* ---- to look at ---- */
struct watch_stats {
	uint64_t streams, watchers, ranges;
	uint64_t behind;  /* watchers that have not been told everything */
	uint64_t events, responses, lost; /* since the start: events told, messages sent, watchers cancelled by compaction */
	uint64_t refused;                 /* creations and streams that a bound forbade */
};
void watches_stats(const struct watches *w, struct watch_stats *ret);
void watches_check(const struct watches *w); /* asserts the invariants of watch_internal.h; slow, for tests */

#endif
