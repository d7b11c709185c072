/* watcher.c: users of Watch: each has a stream to some replica with a few watches on it, takes what comes at its own pace, and when the stream
 * ends, or for no reason, goes on elsewhere from the revision where it stopped. What it is told is held against the history (check_watch.c). */
#include "sim.h"

#include "base/pbw.h"

static sim_us soon(struct watcher *x)
{
	return x->w->now + rng_between(&x->rng, 50, 4 * SIM_MS);
}

/* ---- what it sends ---- */

static void post(struct watcher *x, enum core_event_kind kind, struct buf *bytes)
{
	struct call_msg *m = mem_zalloc(sizeof *m);
	sim_us at = soon(x);

	/* A stream keeps its order. */
	if (at <= x->last_sent)
		at = x->last_sent + 1;
	x->last_sent = at;
	m->op = x->tag;
	m->err = (enum err)kind;
	if (bytes)
		m->bytes = buf_take(bytes);
	sim_at(x->w, at, (struct ev){ .kind = EV_STREAM, .a = x->id, .b = x->server, .n = x->generation, .ptr = m });
}

static void create(struct watcher *x, uint32_t i)
{
	struct watch_spec *s = &x->watches[i];
	struct buf b = { 0 };
	size_t mark = pbw_open(&b, 1);

	pbw_bytes(&b, 1, slice_of_str(s->key));
	pbw_bytes(&b, 2, slice_of_str(s->end));
	pbw_i64(&b, 3, s->next);
	pbw_u64(&b, 4, s->progress);
	if (s->no_put || s->no_delete) {
		size_t filters = pbw_open(&b, 5);

		pbw_varint(&b, s->no_put ? 0 : 1);
		pbw_close(&b, filters);
	}
	pbw_u64(&b, 6, s->prev_kv);
	pbw_i64(&b, 7, i + 1);
	pbw_close(&b, mark);
	s->asked_at = x->w->now;
	s->asked = s->next;
	s->created = false;
	TRACE(x->w, "watcher %u asks r%u for [%s, %s) from %lld", x->id, x->server + 1, s->key, s->end, (long long)s->next);
	post(x, EVENT_STREAM_MESSAGE, &b);
	buf_free(&b);
}

static void observe(struct watcher *x)
{
	struct buf b = { 0 };
	char name[8];

	lock_text(x->election, name);
	pbw_bytes(&b, 1, slice_of_str(name));
	pbw_u64(&b, 100, x->slow); /* vacancies too */
	post(x, EVENT_STREAM_OPEN, &b);
	buf_free(&b);
}

static void open_stream(struct watcher *x)
{
	struct replica *r;

	x->server = (uint32_t)rng_below(&x->rng, x->w->config.replicas);
	r = &x->w->replicas[x->server];
	if (!r->up)
		return;
	x->generation = r->generation;
	x->tag = ++x->w->next_stream;
	x->open = true;
	x->told_any = false;
	x->opened_at = x->w->now;
	if (x->observes) {
		observe(x);
		return;
	}
	post(x, EVENT_STREAM_OPEN, NULL);
	for (uint32_t i = 0; i < x->watches_len; i++)
		create(x, i);
}

static void close_stream(struct watcher *x)
{
	post(x, EVENT_STREAM_CLOSED, NULL);
	x->open = false;
}

static void ask_progress(struct watcher *x)
{
	struct buf b = { 0 };

	pbw_bytes_always(&b, 3, (struct slice){ 0 });
	post(x, EVENT_STREAM_MESSAGE, &b);
	buf_free(&b);
}

/* ---- its life ---- */

static void draw_watch(struct watcher *x, struct watch_spec *s)
{
	uint32_t a = (uint32_t)rng_below(&x->rng, x->w->config.keys);

	*s = (struct watch_spec){ .prev_kv = rng_chance(&x->rng, 300000), .progress = rng_chance(&x->rng, 300000) };
	switch (rng_below(&x->rng, 4)) {
	case 0: key_text(a, s->key); break;
	case 1:
		key_text(a, s->key);
		key_text(a + 1 + (uint32_t)rng_below(&x->rng, 20), s->end);
		break;
	case 2:
		lock_text((uint32_t)rng_below(&x->rng, x->w->config.locks), s->key);
		strcpy(s->end, s->key);
		strcat(s->key, "/");
		strcat(s->end, "0"); /* the byte behind '/' */
		break;
	default:
		strcpy(s->key, "/");
		strcpy(s->end, "z");
		break;
	}
	if (rng_chance(&x->rng, 150000))
		s->no_put = true;
	else if (rng_chance(&x->rng, 150000))
		s->no_delete = true;
}

void watcher_init(struct world *w, uint32_t id)
{
	struct watcher *x = &w->watchers[id];

	memset(x, 0, sizeof *x);
	x->w = w;
	x->id = id;
	rng_init(&x->rng, rng_next(&w->rng));
	x->watches_len = (uint32_t)rng_between(&x->rng, 1, WATCHES_MAX);
	x->slow = rng_chance(&x->rng, 300000);
	for (uint32_t i = 0; i < x->watches_len; i++)
		draw_watch(x, &x->watches[i]);
	x->observes = rng_chance(&x->rng, 250000);
	x->election = w->config.locks - 1 - (uint32_t)rng_below(&x->rng, ELECTIONS_MAX);
	if (!left_out(w, PIECE_WATCHER, id))
		sim_at(w, rng_below(&x->rng, SIM_SECOND), (struct ev){ .kind = EV_WATCHER, .a = id });
}

void watcher_think(struct watcher *x)
{
	struct replica *r = &x->w->replicas[x->server];

	if (x->open && (!r->up || r->generation != x->generation))
		x->open = false; /* the process is gone, and the stream with it */
	else if (x->open && x->w->phase == PHASE_CHAOS && rng_chance(&x->rng, 30000))
		close_stream(x);
	else if (x->open && !x->observes && rng_chance(&x->rng, 50000))
		ask_progress(x);
	if (!x->open)
		open_stream(x);
	sim_at(x->w, x->w->now + rng_between(&x->rng, 100 * SIM_MS, 700 * SIM_MS), (struct ev){ .kind = EV_WATCHER, .a = x->id });
}

/* ---- on the way ---- */

void watcher_event(struct world *w, const struct ev *e)
{
	struct call_msg *m = e->ptr;
	struct replica *r = &w->replicas[e->b];
	struct inbox_item item = { .event = { .kind = (enum core_event_kind)m->err }, .bytes = buf_take(&m->bytes) };

	item.event.stream.tag = m->op;
	item.event.stream.method = w->watchers[e->a].observes ? METHOD_ELECTION_OBSERVE : METHOD_WATCH_WATCH;
	item.event.stream.bytes = buf_view(&item.bytes);
	item.stream = true;
	if (r->up && r->generation == e->n)
		replica_put(r, &r->others, item);
	else
		buf_free(&item.bytes);
	free(m);
}

static struct watcher *watcher_of(struct world *w, uint64_t tag)
{
	for (uint32_t i = 0; i < w->config.watchers; i++)
		if (w->watchers[i].tag == tag && w->watchers[i].open)
			return &w->watchers[i];
	return NULL;
}

/* The core had an order of its own when it took the message. */
void watcher_stepped(struct world *w, const struct core_event *e)
{
	struct watcher *x = watcher_of(w, e->stream.tag);

	if (x && e->kind == EVENT_STREAM_OPEN)
		x->observe_floor = w->told;
	for (uint32_t i = 0; x && e->kind == EVENT_STREAM_OPEN && i < x->watches_len; i++)
		x->watches[i].floor = w->told;
}

void watcher_output(struct replica *r, struct core_output *o)
{
	struct watcher *x = watcher_of(r->w, o->stream);
	struct call_msg *m;
	sim_us at;

	if (!x) {
		buf_free(&o->messages);
		return;
	}
	m = mem_zalloc(sizeof *m);
	m->op = o->stream;
	m->err = o->finished ? (o->err ? o->err : ERR_CLOSED) : ERR_OK;
	m->bytes = buf_take(&o->messages);
	at = soon(x);
	if (x->slow && r->w->phase == PHASE_CHAOS && rng_chance(&x->rng, 300000))
		at += rng_below(&x->rng, 6 * SIM_SECOND);
	sim_at(r->w, at, (struct ev){ .kind = EV_OUTPUT, .a = x->id, .n = r->generation, .ptr = m });
}

void watcher_take(struct watcher *x, const struct ev *e)
{
	struct call_msg *m = e->ptr;
	struct slice left = buf_view(&m->bytes);

	if (x->open && x->tag == m->op) {
		while (left.len >= 4) {
			uint32_t len = (uint32_t)left.ptr[0] | (uint32_t)left.ptr[1] << 8 | (uint32_t)left.ptr[2] << 16 | (uint32_t)left.ptr[3] << 24;

			CHECK(x->w, "P7", len <= left.len - 4, "a message of a stream is cut short");
			(x->observes ? check_observed : check_watch_response)(x, slice_of(left.ptr + 4, len));
			left = slice_of(left.ptr + 4 + len, left.len - 4 - len);
		}
		if (m->err)
			x->open = false;
		else
			post(x, EVENT_STREAM_WRITABLE, NULL);
	}
	buf_free(&m->bytes);
	free(m);
}
