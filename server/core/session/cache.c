/* cache.c: who caches what, what each owes, and what waits for that. See cache.h.
 *
 *   (C1) a pair (a session, a thing) is live until an invalidation names it; then it is that invalidation's, and gone with its acknowledgement. While it
 *        is there, whoever writes the thing waits for the session.
 *   (C2) a session whose right has ended has no pairs and nobody waits for it. What it owes it still owes: its right is not extended before.
 *   (C3) owing holds the sessions that owe something, the one that has owed for longest first; due those of them that are to be told. */
#include "internal.h"

#include "base/pbw.h"

struct invalidation {
	struct list link;
	uint64_t number;
	bool all;
	time_ms since;
	size_t items_len;
	struct buf items; /* packed, as field 4 of a v1.SessionInvalidation */
	struct list pairs;
};

struct session {
	lease_id id;
	time_ms until;
	uint64_t sent, acked;
	struct list pairs;    /* all of its */
	struct list live;     /* of those, the ones that no invalidation has named */
	size_t pairs_len;
	struct list owed;     /* invalidations, by number */
	size_t owed_len;
	struct list waits;
	struct list owing, due, flushing; /* in the cache's lists */
	time_ms sent_at;
	/* of the write being looked at */
	uint64_t stamp, wait_stamp;
	struct invalidation *build;
	struct wait *wait;
};

struct pair {
	struct list in_thing, in_session, in_state; /* in_state: session.live, or invalidation.pairs */
	struct thing *thing;
	struct session *session;
	uint64_t number; /* of the invalidation; 0: live */
};

struct wait {
	struct list in_session, in_write;
	struct cache_write *write;
	uint64_t number;
};

struct cache {
	struct map64 sessions;
	struct things things;
	size_t pairs_len;
	struct list owing, due, flushing, ready;
	uint64_t stamp, invalidations;
	time_ms scan_at;
};

/* ---- pairs and waits ---- */

static void pair_free(struct cache *c, struct pair *p)
{
	struct thing *t = p->thing;

	list_remove(&p->in_thing);
	list_remove(&p->in_session);
	list_remove(&p->in_state);
	p->session->pairs_len--;
	c->pairs_len--;
	if (--t->pairs_len == 0)
		things_idle(&c->things, t);
	free(p);
}

static void pairs_free(struct cache *c, struct list *pairs, size_t offset)
{
	while (!list_empty(pairs))
		pair_free(c, (struct pair *)(void *)((char *)pairs->next - offset));
}

static void wait_free(struct wait *w)
{
	list_remove(&w->in_session);
	list_remove(&w->in_write);
	free(w);
}

/* The session is in nobody's way any more, up to that number. */
static void release(struct cache *c, struct session *s, uint64_t number)
{
	LIST_FOR_EACH_SAFE(l, next, &s->waits) {
		struct wait *wait = CONTAINER_OF(l, struct wait, in_session);
		struct cache_write *w = wait->write;

		if (wait->number > number)
			continue;
		wait_free(wait);
		if (--w->left == 0)
			list_push_back(&c->ready, &w->link);
	}
}

/* C2 */
static void lapse(struct cache *c, struct session *s)
{
	release(c, s, UINT64_MAX);
	pairs_free(c, &s->pairs, offsetof(struct pair, in_session));
	list_remove(&s->flushing);
}

/* ---- invalidations ---- */

static void invalidation_free(struct cache *c, struct session *s, struct invalidation *v)
{
	pairs_free(c, &v->pairs, offsetof(struct pair, in_state));
	list_remove(&v->link);
	s->owed_len--;
	buf_free(&v->items);
	free(v);
}

static struct invalidation *invalidation_new(struct cache *c, struct session *s, time_ms now)
{
	struct invalidation *v = mem_zalloc(sizeof(*v));

	v->number = ++s->sent;
	v->since = now;
	list_init(&v->pairs);
	list_push_back(&s->owed, &v->link);
	s->owed_len++;
	c->invalidations++;
	if (s->owed_len == 1) {
		list_remove(&s->owing);
		list_push_back(&c->owing, &s->owing);
	}
	list_remove(&s->due);
	list_push_back(&c->due, &s->due);
	return v;
}

static void add_pair(struct invalidation *v, struct pair *p)
{
	p->number = v->number;
	list_remove(&p->in_state);
	list_push_back(&v->pairs, &p->in_state);
}

static void make_all(struct session *s, struct invalidation *v)
{
	v->all = true;
	buf_free(&v->items);
	while (!list_empty(&s->live))
		add_pair(v, CONTAINER_OF(s->live.next, struct pair, in_state));
}

static void add_item(struct invalidation *v, const struct thing *t)
{
	size_t mark = pbw_open(&v->items, 4);

	pbw_bytes(&v->items, 1, thing_path(t));
	pbw_u64(&v->items, 2, thing_aspect(t));
	pbw_close(&v->items, mark);
	v->items_len++;
}

static void invalidate(struct cache *c, struct pair *p, time_ms now)
{
	struct session *s = p->session;

	if (s->stamp != c->stamp) {
		s->stamp = c->stamp;
		s->build = invalidation_new(c, s, now);
		if (s->owed_len > CACHE_OWED_MAX)
			make_all(s, s->build);
	}
	if (p->number)
		return;
	add_item(s->build, p->thing);
	add_pair(s->build, p);
	if (s->build->items_len > CACHE_ITEMS_MAX)
		make_all(s, s->build);
}

/* ---- sessions ---- */

static struct session *session_get(const struct cache *c, lease_id id)
{
	return map64_get(&c->sessions, (uint64_t)id);
}

void cache_session_add(struct cache *c, lease_id id, time_ms until, bool flush, time_ms now)
{
	struct session *s = mem_zalloc(sizeof(*s));

	ASSERT(!session_get(c, id));
	s->id = id;
	s->until = until;
	list_init(&s->pairs);
	list_init(&s->live);
	list_init(&s->owed);
	list_init(&s->waits);
	list_init(&s->owing);
	list_init(&s->due);
	list_init(&s->flushing);
	map64_put(&c->sessions, (uint64_t)id, s);
	if (flush) {
		invalidation_new(c, s, now)->all = true;
		list_push_back(&c->flushing, &s->flushing);
	}
}

static void session_free(struct cache *c, struct session *s)
{
	lapse(c, s);
	while (!list_empty(&s->owed))
		invalidation_free(c, s, CONTAINER_OF(s->owed.next, struct invalidation, link));
	list_remove(&s->owing);
	list_remove(&s->due);
	free(s);
}

void cache_session_end(struct cache *c, lease_id id, time_ms now)
{
	struct session *s = map64_remove(&c->sessions, (uint64_t)id);

	(void)now;
	if (s)
		session_free(c, s);
}

bool cache_session_renew(struct cache *c, lease_id id, time_ms until, time_ms now)
{
	struct session *s = session_get(c, id);

	if (!s || s->acked != s->sent) /* H2 */
		return false;
	if (now >= s->until)
		lapse(c, s); /* it has emptied its cache meanwhile */
	if (until > s->until)
		s->until = until;
	return true;
}

bool cache_ack(struct cache *c, lease_id id, uint64_t number, time_ms now)
{
	struct session *s = session_get(c, id);

	(void)now;
	if (!s)
		return true; /* it is over, or caches nothing: there is nothing to settle */
	if (number > s->sent)
		return false;
	if (number <= s->acked)
		return true;
	s->acked = number;
	while (!list_empty(&s->owed)) {
		struct invalidation *v = CONTAINER_OF(s->owed.next, struct invalidation, link);

		if (v->number > number)
			break;
		invalidation_free(c, s, v);
	}
	list_remove(&s->flushing);
	if (list_empty(&s->owed)) {
		list_remove(&s->owing);
		list_remove(&s->due);
	}
	release(c, s, number);
	return true;
}

void cache_session_moved(struct cache *c, lease_id id)
{
	struct session *s = session_get(c, id);

	if (!s || list_empty(&s->owed))
		return;
	list_remove(&s->due);
	list_push_back(&c->due, &s->due);
}

size_t cache_sessions(const struct cache *c)
{
	return c->sessions.len;
}

/* ---- grants ---- */

static bool has_pair(const struct session *s, const struct thing *t)
{
	const struct list *few = t->pairs_len < s->pairs_len ? &t->pairs : &s->pairs;

	LIST_FOR_EACH(l, few) {
		const struct pair *p = few == &t->pairs ? CONTAINER_OF(l, struct pair, in_thing) : CONTAINER_OF(l, struct pair, in_session);

		if (p->thing == t && p->session == s)
			return true;
	}
	return false;
}

bool cache_grant(struct cache *c, lease_id id, enum cache_aspect aspect, struct slice path, time_ms now)
{
	struct session *s = session_get(c, id);
	struct thing *t;
	struct pair *p;

	if (!s || now >= s->until || s->owed_len >= CACHE_OWED_MAX)
		return false;
	t = things_get(&c->things, aspect, path, false);
	if (t && thing_is_hot(t, now))
		return false;
	if (t && has_pair(s, t))
		return true;
	if (s->pairs_len >= CACHE_SESSION_PAIRS_MAX || c->pairs_len >= CACHE_PAIRS_MAX)
		return false;
	t = things_get(&c->things, aspect, path, true);
	if (!t)
		return false;
	p = mem_zalloc(sizeof(*p));
	p->thing = t;
	p->session = s;
	list_push_back(&t->pairs, &p->in_thing);
	list_push_back(&s->pairs, &p->in_session);
	list_push_back(&s->live, &p->in_state);
	list_remove(&t->idle);
	t->pairs_len++;
	s->pairs_len++;
	c->pairs_len++;
	return true;
}

/* ---- writes ---- */

struct touching {
	struct cache *cache;
	struct cache_write *write;
	time_ms now;
};

static void wait_for(struct touching *x, struct session *s, uint64_t number)
{
	if (s->wait_stamp != x->cache->stamp) {
		s->wait_stamp = x->cache->stamp;
		s->wait = mem_zalloc(sizeof(*s->wait));
		s->wait->write = x->write;
		list_push_back(&s->waits, &s->wait->in_session);
		list_push_back(&x->write->waits, &s->wait->in_write);
		x->write->left++;
	}
	if (number > s->wait->number)
		s->wait->number = number;
}

static void touch(void *ctx, struct thing *t)
{
	struct touching *x = ctx;

	if (t->pairs_len > 0)
		thing_hit(t, x->now);
	for (struct list *l = t->pairs.next; l != &t->pairs;) {
		struct pair *p = CONTAINER_OF(l, struct pair, in_thing);

		if (x->now >= p->session->until) { /* H4 */
			lapse(x->cache, p->session);
			l = t->pairs.next; /* others of its pairs may have been here; what was looked at already is found so */
			continue;
		}
		if (p->number == 0)
			invalidate(x->cache, p, x->now);
		wait_for(x, p->session, p->number);
		l = l->next;
	}
}

/* Sessions of an earlier leader: what they cache is not known, only where it may be. */
static void touch_flushing(struct touching *x, const struct state *st, const struct cache_span *spans, size_t n)
{
	LIST_FOR_EACH_SAFE(l, next, &x->cache->flushing) {
		struct session *s = CONTAINER_OF(l, struct session, flushing);
		const struct open_session *record = session_find(st, s->id);

		ASSERT(record);
		if (x->now >= s->until) {
			lapse(x->cache, s);
			continue;
		}
		for (size_t i = 0; i < n; i++)
			if (session_is_touched(record, spans[i].key, spans[i].end))
				wait_for(x, s, 1);
	}
}

bool cache_write_begin(struct cache *c, const struct state *st, const struct cache_span *spans, size_t n, struct cache_write *w, time_ms now)
{
	struct touching x = { .cache = c, .write = w, .now = now };

	list_init(&w->link);
	list_init(&w->waits);
	w->left = 0;
	c->stamp++;
	for (size_t i = 0; i < n; i++)
		things_touched(&c->things, &spans[i], touch, &x);
	touch_flushing(&x, st, spans, n);
	return w->left > 0;
}

struct looking {
	time_ms now;
	bool waits;
};

static void look_at(void *ctx, struct thing *t)
{
	struct looking *x = ctx;

	LIST_FOR_EACH(l, &t->pairs)
		x->waits |= x->now < CONTAINER_OF(l, struct pair, in_thing)->session->until;
}

bool cache_write_would_wait(struct cache *c, const struct state *st, const struct cache_span *spans, size_t n, time_ms now)
{
	struct looking x = { .now = now };

	for (size_t i = 0; i < n && !x.waits; i++)
		things_touched(&c->things, &spans[i], look_at, &x);
	LIST_FOR_EACH(l, &c->flushing) {
		const struct session *s = CONTAINER_OF(l, struct session, flushing);

		for (size_t i = 0; i < n && now < s->until; i++)
			x.waits |= session_is_touched(session_find(st, s->id), spans[i].key, spans[i].end);
	}
	return x.waits;
}

void cache_write_drop(struct cache *c, struct cache_write *w)
{
	(void)c;
	while (!list_empty(&w->waits))
		wait_free(CONTAINER_OF(w->waits.next, struct wait, in_write));
	list_remove(&w->link);
}

struct cache_write *cache_next_ready(struct cache *c)
{
	struct list *l = list_pop_front(&c->ready);

	return l ? CONTAINER_OF(l, struct cache_write, link) : NULL;
}

bool cache_has_ready(const struct cache *c)
{
	return !list_empty(&c->ready);
}

void cache_expire(struct cache *c, time_ms now)
{
	LIST_FOR_EACH(l, &c->owing) {
		struct session *s = CONTAINER_OF(l, struct session, owing);

		if (now >= s->until && (s->pairs_len > 0 || !list_empty(&s->waits) || !list_empty(&s->flushing)))
			lapse(c, s);
	}
	things_purge(&c->things, now);
}

/* ---- messages ---- */

static void resend(struct cache *c, time_ms now)
{
	if (now < c->scan_at)
		return;
	c->scan_at = now + CACHE_RESEND_MS / 5;
	LIST_FOR_EACH(l, &c->owing) {
		struct session *s = CONTAINER_OF(l, struct session, owing);

		if (list_empty(&s->due) && now >= s->sent_at + CACHE_RESEND_MS)
			list_push_back(&c->due, &s->due);
	}
}

static void write_owed(const struct session *s, struct buf *out)
{
	LIST_FOR_EACH(l, &s->owed) {
		const struct invalidation *v = CONTAINER_OF(l, struct invalidation, link);
		size_t mark = pbw_open(out, 3);

		pbw_u64(out, 1, v->number);
		pbw_u64(out, 3, v->all);
		buf_append_slice(out, buf_view(&v->items));
		pbw_close(out, mark);
	}
}

void cache_send(struct cache *c, time_ms now, cache_send_fn fn, void *ctx)
{
	struct buf owed = { 0 };
	struct list *l;

	resend(c, now);
	while ((l = list_pop_front(&c->due))) {
		struct session *s = CONTAINER_OF(l, struct session, due);

		buf_clear(&owed);
		write_owed(s, &owed);
		s->sent_at = now;
		fn(ctx, s->id, s->acked, buf_view(&owed));
	}
	buf_free(&owed);
}

bool cache_has_due(const struct cache *c)
{
	return !list_empty(&c->due);
}

/* ---- life ---- */

struct cache *cache_new(void)
{
	struct cache *c = mem_zalloc(sizeof(*c));

	list_init(&c->owing);
	list_init(&c->due);
	list_init(&c->flushing);
	list_init(&c->ready);
	things_init(&c->things);
	return c;
}

void cache_clear(struct cache *c)
{
	size_t at = 0;
	uint64_t id;
	void *s;

	while (map64_next(&c->sessions, &at, &id, &s))
		session_free(c, s);
	map64_deinit(&c->sessions);
	list_init(&c->ready);
	ASSERT(c->pairs_len == 0);
	things_deinit(&c->things);
	things_init(&c->things);
}

void cache_free(struct cache *c)
{
	if (!c)
		return;
	cache_clear(c);
	things_deinit(&c->things);
	free(c);
}

void cache_stats(const struct cache *c, struct cache_stats *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->sessions = c->sessions.len;
	ret->things = c->things.tree.len;
	ret->pairs = c->pairs_len;
	ret->invalidations = c->invalidations;
	ret->oldest = TIME_NEVER;
	LIST_FOR_EACH(l, &c->owing) {
		const struct session *s = CONTAINER_OF(l, struct session, owing);
		const struct invalidation *v = CONTAINER_OF(s->owed.next, struct invalidation, link);

		ret->owing++;
		if (v->since < ret->oldest)
			ret->oldest = v->since;
	}
}

static void session_check(const struct session *s)
{
	uint64_t number = s->acked;
	size_t pairs = 0, owed = 0;

	LIST_FOR_EACH(l, &s->owed) { /* H3 */
		ASSERT(CONTAINER_OF(l, struct invalidation, link)->number == ++number);
		owed++;
	}
	ASSERT(number == s->sent);
	ASSERT(owed == s->owed_len);
	ASSERT(list_empty(&s->owing) == (owed == 0));
	ASSERT_IF(!list_empty(&s->due), owed > 0);
	LIST_FOR_EACH(l, &s->pairs) {
		const struct pair *p = CONTAINER_OF(l, struct pair, in_session);

		ASSERT(p->session == s);
		ASSERT_IF(p->number, p->number > s->acked); /* C1 */
		pairs++;
	}
	ASSERT(pairs == s->pairs_len);
	LIST_FOR_EACH(l, &s->waits)
		ASSERT(CONTAINER_OF(l, struct wait, in_session)->number > s->acked);
}

void cache_check(const struct cache *c)
{
	struct tree_cursor cursor;
	size_t at = 0, pairs = 0;
	uint64_t id;
	void *s;

	while (map64_next(&c->sessions, &at, &id, &s)) {
		session_check(s);
		pairs += ((const struct session *)s)->pairs_len;
	}
	ASSERT(pairs == c->pairs_len);
	for (struct tree_record *r = tree_first(&cursor, &c->things.tree); r; r = tree_next(&cursor)) {
		const struct thing *t = thing_of(r);
		size_t n = 0;

		LIST_FOR_EACH(l, &t->pairs)
			n++;
		ASSERT(n == t->pairs_len);
		ASSERT(list_empty(&t->idle) == (n > 0));
		pairs -= n;
	}
	ASSERT(pairs == 0);
}
