/* node_watch.c: one-shot watches of nodes: armed with the answer of a Get or List, fired by the first change after it.
 *
 * A watch lives where its session's stream is, and sees what is applied there. It is armed in the step that answers the read, from the state that the
 * answer tells, so nothing can come between. It goes with its stream: after a resume the client reads again, and so learns what it missed. */
#include "internal.h"

#include "path.h"

#define NODE_CHANGE(name) HOLDFAST__V1__NODE_CHANGE__NODE_##name

enum { RESPONSE_EVENT = 4 };

static struct slice write_key(uint8_t *to, enum cache_aspect aspect, struct slice path)
{
	to[0] = (uint8_t)aspect;
	memcpy(to + 1, path.ptr, path.len);
	return slice_of(to, path.len + 1);
}

static struct watch_point *point_find(const struct core *c, enum cache_aspect aspect, struct slice path)
{
	uint8_t key[PATH_LEN_MAX + 1];

	if (path.len == 0 || path.len > PATH_LEN_MAX)
		return NULL;
	return mapb_get(&c->sessions.points, write_key(key, aspect, path));
}

static struct watch_point *point_get(struct core *c, enum cache_aspect aspect, struct slice path)
{
	struct watch_point *p = point_find(c, aspect, path);

	if (p)
		return p;
	p = mem_zalloc(sizeof(*p) + path.len + 1);
	list_init(&p->watches);
	p->key_len = (uint32_t)write_key(p->key, aspect, path).len;
	mapb_put(&c->sessions.points, slice_of(p->key, p->key_len), p);
	return p;
}

static void watch_free(struct core *c, struct node_watch *w)
{
	struct watch_point *p = w->point;

	list_remove(&w->in_point);
	ASSERT(map64_remove(&w->stream->watches, w->id) == w);
	free(w);
	if (!list_empty(&p->watches))
		return;
	mapb_remove(&c->sessions.points, slice_of(p->key, p->key_len));
	free(p);
}

void node_watch_disarm(struct core *c, struct client_stream *s, uint64_t id)
{
	struct node_watch *w = map64_get(&s->watches, id);

	if (w)
		watch_free(c, w);
}

void node_watches_drop(struct core *c, struct client_stream *s)
{
	size_t at = 0;
	uint64_t id;
	void *w;

	while (map64_next(&s->watches, &at, &id, &w))
		watch_free(c, w);
	map64_deinit(&s->watches);
}

/* ---- who may hear of it ---- */

enum err node_may_read(struct core *c, struct auth_who who, enum cache_aspect aspect, struct slice path)
{
	uint8_t from[PATH_LEN_MAX + 1], to[PATH_LEN_MAX + 1];
	size_t len = path.len;

	if (aspect != CACHE_CHILDREN || len == 0 || len >= PATH_LEN_MAX)
		return auth_check_range(c->auth, who, path, slice_of(NULL, 0), AUTH_READ);
	memcpy(from, path.ptr, len);
	if (len > 1) /* "/" ends in one */
		from[len++] = '/';
	memcpy(to, from, len);
	to[len - 1] = '/' + 1;
	return auth_check_range(c->auth, who, slice_of(from, len), slice_of(to, len), AUTH_READ);
}

static enum err may_hear(struct core *c, const struct client_stream *s, enum cache_aspect aspect, struct slice path)
{
	struct auth_who who;
	enum err e = stream_user(c, s->tag, &who);

	return e ? e : node_may_read(c, who, aspect, path);
}

/* ---- arming ---- */

static revision seen_now(const struct core *c, enum cache_aspect aspect, struct slice path)
{
	const struct kv *kv = aspect == CACHE_VALUE ? store_get(c->store, path, 0) : NULL;

	return kv ? kv->mod_revision : 0;
}

enum err node_watch_arm(struct core *c, struct client_stream *s, uint64_t id, enum cache_aspect aspect, struct slice path)
{
	struct node_watch *w;
	enum err e = may_hear(c, s, aspect, path); /* whoever reads: it is the stream's user who is told */

	if (e)
		return e;
	node_watch_disarm(c, s, id);
	if (s->watches.len >= SESSION_WATCHES_MAX)
		return ERR_TOO_MANY_WATCHES;
	w = mem_zalloc(sizeof(*w));
	w->point = point_get(c, aspect, path);
	w->stream = s;
	w->id = id;
	w->seen = seen_now(c, aspect, path);
	list_push_back(&w->point->watches, &w->in_point);
	map64_put(&s->watches, id, w);
	return ERR_OK;
}

/* ---- firing ---- */

static void fire(struct core *c, struct node_watch *w, uint32_t change, revision rev)
{
	struct client_stream *s = w->stream;
	struct buf body = { 0 };

	pbw_u64(&body, 1, w->id);
	pbw_bytes(&body, 2, slice_of(w->point->key + 1, w->point->key_len - 1));
	pbw_u64(&body, 3, change);
	pbw_i64(&body, 4, rev);
	watch_free(c, w);
	client_stream_emit(c, s, RESPONSE_EVENT, buf_view(&body)); /* which may end the stream, and with it all of its watches */
	buf_free(&body);
}

/* The point goes with its last watch, so it is looked up anew each time. */
static void fire_all(struct core *c, enum cache_aspect aspect, struct slice path, uint32_t change, revision rev)
{
	struct watch_point *p;

	while ((p = point_find(c, aspect, path)))
		fire(c, CONTAINER_OF(p->watches.next, struct node_watch, in_point), change, rev);
}

void node_watches_applied(struct core *c, uint64_t from)
{
	for (uint64_t i = from; c->sessions.points.len > 0 && i < store_history_end(c->store); i++) {
		const struct kv *kv = store_history_at(c->store, i).kv;
		bool gone = kv_is_tombstone(kv);

		fire_all(c, CACHE_VALUE, kv_key(kv), gone ? NODE_CHANGE(DELETED) : NODE_CHANGE(CHANGED), kv->mod_revision);
		if (gone || kv->version == 1)
			fire_all(c, CACHE_CHILDREN, path_parent(kv_key(kv)), NODE_CHANGE(CHILDREN_CHANGED), kv->mod_revision);
	}
}

/* A snapshot tells no changes. A value shows them; of a list it is not known, so better once too often. */
static void recheck(struct core *c, struct node_watch *w)
{
	enum cache_aspect aspect = (enum cache_aspect)w->point->key[0];
	revision now = seen_now(c, aspect, slice_of(w->point->key + 1, w->point->key_len - 1));

	if (aspect == CACHE_CHILDREN)
		fire(c, w, NODE_CHANGE(CHILDREN_CHANGED), c->state.revision);
	else if (now != w->seen)
		fire(c, w, now ? NODE_CHANGE(CHANGED) : NODE_CHANGE(DELETED), now ? now : c->state.revision);
}

static void recheck_stream(struct core *c, struct client_stream *s)
{
	size_t at = 0;
	uint64_t id;
	void *w;

	while (map64_next(&s->watches, &at, &id, &w)) /* empty once the stream is over */
		recheck(c, w);
}

static bool is_to_hear(struct core *c, const struct node_watch *w)
{
	const struct watch_point *p = w->point;

	return may_hear(c, w->stream, (enum cache_aspect)p->key[0], slice_of(p->key + 1, p->key_len - 1)) == ERR_OK;
}

/* Permissions have changed: who may not read a node, or the keys of its children, hears that and nothing else of it. In the step that applies the
 * change: what the next entry does is none of his business any more. */
void node_watches_permitted(struct core *c)
{
	LIST_FOR_EACH_SAFE(l, next, &c->sessions.all) {
		struct client_stream *s = CONTAINER_OF(l, struct client_stream, all);
		size_t at = 0;
		uint64_t id;
		void *w;

		while (map64_next(&s->watches, &at, &id, &w)) /* empty once the stream is over */
			if (!is_to_hear(c, w))
				fire(c, w, NODE_CHANGE(DENIED), c->state.revision);
	}
}

void node_watches_recheck(struct core *c)
{
	LIST_FOR_EACH_SAFE(l, next, &c->sessions.all)
		recheck_stream(c, CONTAINER_OF(l, struct client_stream, all));
}
