/* recheck.c: watchers that are not, or no longer, permitted. What somebody may watch is not known here: the owner says. */
#include "watch_internal.h"

void watches_refuse(struct watches *w, uint64_t tag, enum err e, time_ms now)
{
	struct watch_stream *s = stream_find(w, tag);

	w->now = now;
	if (s)
		stream_control(w, s, (struct control){ .kind = CONTROL_REFUSED, .id = -1, .at = w->env->state->revision, .err = e });
}

static struct slice end_of(const struct watch_range *r)
{
	return r->kind == RANGE_FROM ? slice_of("", 1) : r->kind == RANGE_KEY ? slice_of(NULL, 0) : range_end(r);
}

static void revoke(struct watches *w, struct watch_stream *s, struct watcher *x, enum err e)
{
	struct control c = { .kind = CONTROL_REVOKED, .id = x->id, .at = w->env->state->revision, .err = e };

	if (s->observer) {
		stream_end(w, s, e); /* its watcher goes when it is buried */
		return;
	}
	watcher_remove(w, x);
	stream_control(w, s, c);
}

static void recheck_stream(struct watches *w, struct watch_stream *s, watch_may_fn may, void *ctx)
{
	size_t pos = 0;
	uint64_t id;
	void *x;

	while (!s->closed && !s->ended && map64_next(&s->ids, &pos, &id, &x)) {
		struct watcher *watcher = x;
		enum err e;

		if (x == &watch_lost_mark)
			continue;
		e = may(ctx, s->tag, range_key(watcher->range), end_of(watcher->range));
		if (e)
			revoke(w, s, watcher, e);
	}
}

void watches_recheck(struct watches *w, watch_may_fn may, void *ctx)
{
	size_t pos = 0;
	uint64_t tag;
	void *s;

	while (map64_next(&w->tags, &pos, &tag, &s))
		recheck_stream(w, s, may, ctx);
}
