/* cache.h: the leader's knowledge of who caches what, and the writes that wait for somebody to forget it.
 *
 * In memory only, and only while this replica serves as leader: a new leader begins with every session that may cache owing it one
 * acknowledgement, of "everything" (cache_session_add with flush).
 *
 *   (H1) whoever may hold a value or a list in its cache by this leader's grant is found under that thing, until it has acknowledged an
 *        invalidation of it, or its right has ended, or its session has.
 *   (H2) a session's right is extended only while it owes no acknowledgement. It then ends `until`, a full TTL after the keep-alive arrived:
 *        later than the client, whose clock started when it was sent, believes.
 *   (H3) numbers of a session's invalidations are consecutive from 1; an acknowledgement settles all up to its number.
 *   (H4) a write is ready once every session that it had to wait for has acknowledged, or lost its right, or ended; and it was never kept
 *        waiting for one whose right had ended by then.
 * Bounds: below; what does not fit is not granted. Core's thread only. */
#ifndef HOLDFAST_CORE_CACHE_H
#define HOLDFAST_CORE_CACHE_H

#include "base/list.h"
#include "core/session/session.h"

#define CACHE_THINGS_MAX 200000u
#define CACHE_PAIRS_MAX 2000000u
#define CACHE_SESSION_PAIRS_MAX 10000u
#define CACHE_OWED_MAX 256u  /* invalidations of one session that are not acknowledged; the next says "everything" */
#define CACHE_ITEMS_MAX 128u /* named by one invalidation; more become "everything" */
#define CACHE_HOT_HITS 5u    /* a thing invalidated so often ... */
#define CACHE_HOT_MS 5000u   /* ... within this is not granted for as long again */
#define CACHE_RESEND_MS 500u

enum cache_aspect { CACHE_VALUE = 0, CACHE_CHILDREN = 1 }; /* as v1.NodeAspect */

/* Keys that a write may touch, as requests name them: end empty: the one key; one zero byte: all that follow. */
struct cache_span {
	struct slice key, end;
};
bool cache_span_touches(const struct cache_span *s, enum cache_aspect aspect, struct slice path);

struct cache;

struct cache *cache_new(void);
void cache_free(struct cache *c);
void cache_clear(struct cache *c); /* no leader any more; the writes that wait are their owner's to drop */

/* ---- sessions that cache ---- */
void cache_session_add(struct cache *c, lease_id id, time_ms until, bool flush, time_ms now); /* not known yet */
void cache_session_end(struct cache *c, lease_id id, time_ms now);   /* harmless when it is none */
bool cache_session_renew(struct cache *c, lease_id id, time_ms until, time_ms now); /* whether the right was extended (H2) */
bool cache_ack(struct cache *c, lease_id id, uint64_t number, time_ms now);  /* false: that was never sent */
void cache_session_moved(struct cache *c, lease_id id); /* it has another stream: what it owes is sent again at once */
size_t cache_sessions(const struct cache *c);

/* ---- grants ---- */
/* Whether it is noted; it must not be granted otherwise. The caller has looked for writes under way. */
bool cache_grant(struct cache *c, lease_id id, enum cache_aspect aspect, struct slice path, time_ms now);

/* ---- writes ---- */
struct cache_write {
	struct list link;  /* in the list of what is ready */
	struct list waits;
	size_t left;
};
/* Sends for whatever the spans touch. Whether it has to wait; then it comes out of cache_next_ready, unless it is dropped before. */
bool cache_write_begin(struct cache *c, const struct state *st, const struct cache_span *spans, size_t n, struct cache_write *w, time_ms now);
/* Whether it would have to; nobody is told. */
bool cache_write_would_wait(struct cache *c, const struct state *st, const struct cache_span *spans, size_t n, time_ms now);
void cache_write_drop(struct cache *c, struct cache_write *w);
struct cache_write *cache_next_ready(struct cache *c); /* NULL: none */
bool cache_has_ready(const struct cache *c);
void cache_expire(struct cache *c, time_ms now); /* rights that have ended; often enough, since nothing else looks at the time */

/* ---- messages ---- */
/* Calls fn for every session that is due to be told what it owes. base: it owes nothing up to that number. invalidations: packed
 * v1.SessionInvalidation, each as field 3 of what is being written, without their term. */
typedef void (*cache_send_fn)(void *ctx, lease_id id, uint64_t base, struct slice invalidations);
void cache_send(struct cache *c, time_ms now, cache_send_fn fn, void *ctx);
bool cache_has_due(const struct cache *c); /* something that was never sent */

struct cache_stats {
	uint64_t sessions, things, pairs;
	uint64_t owing;          /* sessions that owe an acknowledgement */
	time_ms oldest;          /* since when the one that owes for longest does; TIME_NEVER */
	uint64_t invalidations;  /* sent, since the start */
};
void cache_stats(const struct cache *c, struct cache_stats *ret);
void cache_check(const struct cache *c);

#endif
