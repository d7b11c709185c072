/* internal.h: what the files of session/ share. */
#ifndef HOLDFAST_CORE_SESSION_INTERNAL_H
#define HOLDFAST_CORE_SESSION_INTERNAL_H

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "cache.h"

/* Something that may be cached: a value or a list. Kept while somebody caches it, or it was invalidated a moment ago. */
struct thing {
	struct tree_record base;
	struct list pairs;
	struct list idle;      /* in things.idle, when it has no pairs */
	size_t pairs_len;
	uint32_t hits;         /* invalidations since hits_since */
	time_ms hits_since, hot_until;
	uint32_t key_len;
	uint8_t key[];         /* the aspect, the path */
};

static inline enum cache_aspect thing_aspect(const struct thing *t)
{
	return (enum cache_aspect)t->key[0];
}
static inline struct slice thing_path(const struct thing *t)
{
	return slice_of(t->key + 1, t->key_len - 1);
}
static inline struct thing *thing_of(struct tree_record *r)
{
	return (struct thing *)(void *)r;
}

struct things {
	struct tree tree;
	struct list idle;
	size_t lists; /* things that are lists of children */
};

void things_init(struct things *ts);
void things_deinit(struct things *ts); /* no pairs are left */
struct thing *things_get(struct things *ts, enum cache_aspect aspect, struct slice path, bool make); /* NULL: none, or no room */
void things_idle(struct things *ts, struct thing *t);   /* its last pair is gone */
void things_purge(struct things *ts, time_ms now);
/* Calls fn with every thing that the span touches. fn must not add or remove things. */
void things_touched(struct things *ts, const struct cache_span *span, void (*fn)(void *ctx, struct thing *t), void *ctx);
bool thing_is_hot(const struct thing *t, time_ms now);
void thing_hit(struct thing *t, time_ms now);

#endif
