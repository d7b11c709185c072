/* request.c: what a client says on a Watch stream, taken as etcd takes it.
 *
 * An empty key is the smallest one, a range_end of one zero byte is no end, an end that is not above the key is an error; watch ID 0 asks for
 * the next free one, any other is the client's choice. What cannot be created is answered as created and cancelled at once, under the ID -1,
 * with etcd's reasons. A cancel of what is not there is passed over, and so is a message with nothing in it. */
#include "watch_internal.h"

enum { DEPTH_MAX = 4, PROGRESS_MAX = 1024 };

static struct slice bytes_of(ProtobufCBinaryData b)
{
	return slice_of(b.data, b.len);
}

/* Not that of a watch that was lost either: its client may be about to cancel it, and would hit another. */
static int64_t next_id(struct watch_stream *s)
{
	while (map64_get(&s->ids, (uint64_t)s->next_id))
		s->next_id++;
	return s->next_id++;
}

static unsigned flags_of(const Etcdserverpb__WatchCreateRequest *r)
{
	unsigned flags = (r->prev_kv ? WATCHER_PREV : 0) | (r->progress_notify ? WATCHER_PROGRESS : 0) | (r->fragment ? WATCHER_FRAGMENT : 0);

	for (size_t i = 0; i < r->n_filters; i++) {
		if (r->filters[i] == ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NOPUT)
			flags |= WATCHER_NO_PUT;
		else if (r->filters[i] == ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NODELETE)
			flags |= WATCHER_NO_DELETE;
	}
	return flags;
}

static bool id_is_taken(const struct watch_stream *s, int64_t id)
{
	void *there = id ? map64_get(&s->ids, (uint64_t)id) : NULL;

	return there && there != &watch_lost_mark;
}

static void start(struct watches *w, struct watcher *x, revision from)
{
	revision now = w->env->state->revision;

	x->cursor = from == 0 ? now + 1 : from;
	/* What is applied and not noted yet is matched against the synced: one that starts there is one of them. */
	if (x->cursor > w->noted)
		watcher_sync(w, x);
	else
		watcher_park(w, x);
}

static void create(struct watches *w, struct watch_stream *s, const Etcdserverpb__WatchCreateRequest *r)
{
	static const uint8_t smallest[1];
	struct slice key = r->key.len ? bytes_of(r->key) : slice_of(smallest, 1), end = bytes_of(r->range_end);
	enum range_kind kind = end.len == 0 ? RANGE_KEY : end.len == 1 && end.ptr[0] == 0 ? RANGE_FROM : RANGE_SPAN;
	struct control c = { .kind = CONTROL_CREATED, .id = -1, .at = w->env->state->revision };

	if (kind == RANGE_SPAN && slice_cmp(key, end) >= 0)
		c.kind = CONTROL_EMPTY_RANGE;
	else if (r->start_revision < 0)
		c.kind = CONTROL_NEGATIVE;
	else if (id_is_taken(s, r->watch_id))
		c.kind = CONTROL_DUPLICATE;
	else if (!stream_may_have_more(w, s, key.len + end.len))
		c.kind = CONTROL_TOO_MANY;
	else
		c.id = r->watch_id ? r->watch_id : next_id(s);
	stream_control(w, s, c);
	if (c.kind == CONTROL_CREATED && !s->ended) {
		struct watch_range *range = range_get(&w->index, key, kind == RANGE_SPAN ? end : slice_of(NULL, 0), kind);

		start(w, watcher_new(w, s, range, c.id, 0, flags_of(r)), r->start_revision);
		if (r->progress_notify)
			stream_want_ticks(w, s);
	}
}

static void cancel(struct watches *w, struct watch_stream *s, int64_t id)
{
	void *there = map64_get(&s->ids, (uint64_t)id);

	if (!there)
		return;
	if (there == &watch_lost_mark)
		map64_remove(&s->ids, (uint64_t)id);
	else
		watcher_remove(w, there);
	stream_control(w, s, (struct control){ .kind = CONTROL_CANCELED, .id = id, .at = w->env->state->revision });
}

static Etcdserverpb__WatchRequest *unpack(struct arena *a, struct slice bytes)
{
	if (pb_check(&etcdserverpb__watch_request__descriptor, bytes, DEPTH_MAX) != PB_CHECK_OK)
		return NULL;
	return etcdserverpb__watch_request__unpack(&a->pb, bytes.len, bytes.ptr);
}

void request_message(struct watches *w, struct watch_stream *s, struct slice bytes)
{
	struct arena arena;
	Etcdserverpb__WatchRequest *r;

	arena_init(&arena);
	r = unpack(&arena, bytes);
	if (!r) {
		stream_end(w, s, ERR_MALFORMED);
	} else if (r->request_union_case == ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST) {
		create(w, s, r->create_request);
	} else if (r->request_union_case == ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CANCEL_REQUEST) {
		cancel(w, s, r->cancel_request->watch_id);
	} else if (r->request_union_case == ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_PROGRESS_REQUEST) {
		/* Answered once all has been told (W3); who asks on and on meanwhile gets fewer answers. */
		s->progress_wanted += s->progress_wanted < PROGRESS_MAX;
		stream_wake(w, s);
	}
	arena_deinit(&arena);
}

bool watch_message_starts_now(struct slice bytes)
{
	struct arena arena;
	Etcdserverpb__WatchRequest *r;
	bool now;

	arena_init(&arena);
	r = unpack(&arena, bytes);
	now = r && r->request_union_case == ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST &&
	      r->create_request->start_revision == 0;
	arena_deinit(&arena);
	return now;
}

bool watch_message_creates(struct slice bytes)
{
	struct arena arena;
	Etcdserverpb__WatchRequest *r;
	bool creates;

	arena_init(&arena);
	r = unpack(&arena, bytes);
	creates = r && r->request_union_case == ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	arena_deinit(&arena);
	return creates;
}
