/* observe.c: Observe, which tells who leads an election.
 *
 * The leader is the first contender of the lock of that name, as Campaign and Leader have it; a key below the name that is no contender is
 * nothing here. An observer is a watcher of all keys below the name:
 *   - while somebody leads, each write to the leader's key is told, in order: these are the values it proclaims;
 *   - when the leader's key is deleted, or compaction has taken what the observer still needed, it is told who leads at present, and goes on
 *     from there. As in etcd, leaders that came and went meanwhile are not told;
 *   - while nobody leads, the first contender that is created is the leader. */
#include "watch_internal.h"

#include "etcd/v3election.pb-c.h"

static struct slice leader_key(const struct observer *o)
{
	return buf_view(&o->key);
}

static void follow(struct observer *o, const struct kv *leader)
{
	buf_clear(&o->key);
	o->create_revision = leader ? leader->create_revision : 0;
	if (leader)
		buf_append_slice(&o->key, kv_key(leader));
}

static void tell(struct watches *w, struct watch_stream *s, revision at, const struct kv *kv)
{
	struct observer *o = s->observer;

	o->vacant_told = !kv;
	o->told_create = kv ? kv->create_revision : 0;
	o->told_mod = kv ? kv->mod_revision : 0;
	reply_leader(w, s, at, kv);
}

/* ---- opening ---- */

static enum err parse(struct observer *o, struct slice request)
{
	V3electionpb__LeaderRequest *r;
	struct arena arena;

	if (pb_check(&v3electionpb__leader_request__descriptor, request, 1) != PB_CHECK_OK)
		return ERR_MALFORMED;
	arena_init(&arena);
	r = v3electionpb__leader_request__unpack(&arena.pb, request.len, request.ptr);
	if (r) {
		o->vacancy = r->vacancy;
		buf_append(&o->name, r->name.data, r->name.len);
	}
	arena_deinit(&arena);
	return r ? ERR_OK : ERR_MALFORMED;
}

void observe_open(struct watches *w, struct watch_stream *s, struct slice request)
{
	struct buf key = { 0 }, end = { 0 };
	struct watch_range *range;
	enum err e;

	s->observer = mem_zalloc(sizeof *s->observer);
	e = parse(s->observer, request);
	if (!e && !stream_may_have_more(w, s, 2 * s->observer->name.len))
		e = ERR_TOO_MANY_REQUESTS;
	if (e) {
		stream_end(w, s, e);
		return;
	}
	buf_append_slice(&key, buf_view(&s->observer->name));
	buf_append_byte(&key, '/');
	buf_append_slice(&end, buf_view(&s->observer->name));
	buf_append_byte(&end, '/' + 1);
	range = range_get(&w->index, buf_view(&key), buf_view(&end), RANGE_SPAN);
	s->observing = watcher_new(w, s, range, 0, 0, WATCHER_OBSERVER);
	observe_again(w, s->observing);
	buf_free(&key);
	buf_free(&end);
}

void observe_free(struct observer *o)
{
	if (!o)
		return;
	buf_free(&o->name);
	buf_free(&o->key);
	free(o);
}

/* ---- the present ---- */

void observe_again(struct watches *w, struct watcher *x)
{
	watcher_unplace(w, x);
	x->stream->observer->due = true;
	stream_wake(w, x->stream);
}

static const struct kv *present_leader(const struct watches *w, const struct observer *o)
{
	const struct contender *first = lock_next(w->env->locks, buf_view(&o->name), NULL);
	const struct kv *kv = first ? store_get(w->env->store, contender_key(first), 0) : NULL;

	ASSERT_IF(first, kv);
	return kv;
}

void observe_tell_present(struct watches *w, struct watch_stream *s)
{
	struct observer *o = s->observer;
	const struct kv *kv = present_leader(w, o);

	follow(o, kv);
	if (kv && (kv->create_revision != o->told_create || kv->mod_revision != o->told_mod))
		tell(w, s, w->noted, kv);
	else if (!kv && o->vacancy && !o->vacant_told)
		tell(w, s, w->noted, NULL);
	o->due = false;
	s->observing->cursor = w->noted + 1;
	watcher_sync(w, s->observing);
}

/* ---- history ---- */

static bool is_new_contender(const struct observer *o, const struct kv *kv)
{
	struct slice name;

	return !kv_is_tombstone(kv) && kv->create_revision == kv->mod_revision && lock_parse(kv_key(kv), kv->lease, &name) &&
	       slice_eq(name, buf_view(&o->name));
}

revision observe_serve(struct watches *w, struct watcher *x)
{
	struct watch_stream *s = x->stream;
	struct observer *o = s->observer;

	for (uint32_t m = x->range->first; m != NO_MATCH; m = w->pass.matches[m].next) {
		const struct kv *kv = w->pass.events[w->pass.matches[m].event].kv;
		bool leads = o->create_revision != 0;

		if (kv->mod_revision < x->cursor)
			continue;
		if (leads ? !slice_eq(kv_key(kv), leader_key(o)) : !is_new_contender(o, kv))
			continue;
		if (kv_is_tombstone(kv))
			return -1;
		if (!stream_has_room(w, s))
			return kv->mod_revision;
		if (!leads)
			follow(o, kv);
		tell(w, s, kv->mod_revision, kv);
	}
	return 0;
}
