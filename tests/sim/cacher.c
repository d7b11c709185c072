/* cacher.c: users of holdfast.v1.Session and Nodes who cache: each has one stream to some replica, reads keys with leave to cache them, forgets them
 * when told to, and resumes its session elsewhere when its stream breaks. A plain model of what docs/sessions.md asks of a client.
 *
 *   (P3) its clocks start when it sends, run for 99 % of the TTL by its own clock, and are looked at before anything else.
 *   (P6) at the instant when a write takes effect nobody who may still use a cached value of it has one; and what is put into a cache is what the
 *        key is at that instant. That is more than the promise, which is of writes that are completed.
 * Some acknowledge late, or are stopped for longer than their lease. */
#include "sim.h"

#include "base/pbw.h"
#include "core/wire.h"

#define DRIFT_MS 2
#define TAG_BASE (UINT64_C(1) << 41) /* of its reads; all others are below */

static sim_us own_time(const struct cacher *c, sim_us local)
{
	return local * 1000000 / (uint64_t)(1000000 + c->ppm);
}

static sim_us clock_end(const struct cacher *c, sim_us sent)
{
	return sent + own_time(c, (sim_us)c->ttl * SIM_SECOND * 99 / 100 - DRIFT_MS * SIM_MS);
}

static void post(struct cacher *c, enum core_event_kind kind, struct slice bytes);
static void send(struct cacher *c, uint32_t field, struct slice body);

/* ---- its cache ---- */

static void forget(struct cacher *c, uint32_t item)
{
	c->cached[item].is = false;
	c->drops[item]++;
}

static void forget_all(struct cacher *c)
{
	for (uint32_t i = 0; i < CACHE_ITEMS; i++)
		c->cached[i].is = false;
	c->flushes++;
}

static void lose_session(struct cacher *c)
{
	if (c->session)
		TRACE(c->w, "cacher %u has no session %llx any more", c->id, (unsigned long long)c->session);
	forget_all(c);
	c->session = 0;
	c->valid_until = c->right_until = 0;
	c->opened = c->owes = c->closing = false;
}

/* Before it does or believes anything. */
static void look_at_clock(struct cacher *c)
{
	if (c->session && c->w->now >= c->right_until && c->right_until) {
		c->right_until = 0;
		forget_all(c);
	}
	if (!c->session || c->w->now < c->valid_until)
		return;
	lose_session(c);
	/* What it does not want any more it mostly says so of, and need not. */
	if (c->open && !c->closing && (c->w->phase != PHASE_CHAOS || rng_chance(&c->rng, 500000)))
		send(c, 5, (struct slice){ 0 });
	if (c->open && !c->closing)
		post(c, EVENT_STREAM_CLOSED, (struct slice){ 0 });
	c->open = false;
}

static void see_term(struct cacher *c, raft_term term)
{
	if (term <= c->term)
		return;
	c->term = term;
	c->owes = false;
	forget_all(c);
}

bool cacher_may_use(const struct cacher *c, uint32_t item)
{
	return c->cached[item].is && c->session && c->w->now < c->right_until;
}

static revision mod_now(const struct world *w, uint32_t key)
{
	const struct version *v = history_at(w, key, INT64_MAX);

	return v ? v->mod : 0;
}

/* A version of a key has just come to be. */
void check_cached(struct world *w, uint32_t key)
{
	check_users_cached(w, key);
	for (uint32_t i = 0; i < w->config.cachers; i++) {
		const struct cacher *c = &w->cachers[i];

		CHECK(w, "P6", !cacher_may_use(c, key), "key k%02u is written, cacher %u may go on to use an older value for %llu ms (session %llx, term %llu)",
		      key, i, (unsigned long long)((c->right_until - w->now) / SIM_MS), (unsigned long long)c->session, (unsigned long long)c->term);
		CHECK(w, "P6", !cacher_may_use(c, CACHE_LIST), "key k%02u is written, cacher %u may go on to use an older list", key, i);
	}
}

void check_cacher_lease_ended(struct world *w, lease_id id)
{
	for (uint32_t i = 0; i < w->config.cachers; i++)
		CHECK(w, "P3", w->cachers[i].session != id || w->now >= w->cachers[i].valid_until, "session %llx ends, cacher %u believes in it for %llu ms more",
		      (unsigned long long)id, i, (unsigned long long)((w->cachers[i].valid_until - w->now) / SIM_MS));
}

/* ---- what it sends ---- */

static sim_us soon(struct cacher *c)
{
	return c->w->now + rng_between(&c->rng, 50, 4 * SIM_MS);
}

static void post(struct cacher *c, enum core_event_kind kind, struct slice bytes)
{
	struct call_msg *m = mem_zalloc(sizeof *m);
	sim_us at = soon(c);

	if (at <= c->last_sent)
		at = c->last_sent + 1; /* a stream keeps its order */
	c->last_sent = at;
	m->op = c->tag;
	m->err = (enum err)kind;
	m->bytes = buf_copy_of(bytes);
	sim_at(c->w, at, (struct ev){ .kind = EV_CACHER_IN, .a = c->id, .b = c->server, .n = c->generation, .ptr = m });
}

static void send(struct cacher *c, uint32_t field, struct slice body)
{
	struct buf b = { 0 };

	pbw_bytes_always(&b, field, body);
	post(c, EVENT_STREAM_MESSAGE, buf_view(&b));
	buf_free(&b);
}

static void open_stream(struct cacher *c)
{
	struct replica *r;
	struct buf b = { 0 };
	uint8_t secret[32];

	c->server = (uint32_t)rng_below(&c->rng, c->w->config.replicas);
	r = &c->w->replicas[c->server];
	if (!r->up)
		return;
	for (size_t i = 0; i < sizeof secret; i++)
		secret[i] = (uint8_t)rng_next(&c->rng);
	c->generation = r->generation;
	c->tag = ++c->w->next_stream;
	c->open = true;
	c->opened = c->owes = false;
	c->read_tag = 0;
	c->open_sent = c->w->now;
	post(c, EVENT_STREAM_OPEN, slice_of(secret, sizeof secret));
	if (c->session) {
		pbw_i64(&b, 1, c->session);
		pbw_bytes(&b, 2, slice_of(c->secret, sizeof c->secret));
		pbw_i64(&b, 3, c->seen);
		send(c, 2, buf_view(&b));
	} else {
		pbw_i64(&b, 1, (int64_t)rng_between(&c->rng, 2, CACHER_TTL_MAX_S));
		pbw_bytes_always(&b, 2, slice_of_str(rng_chance(&c->rng, 700000) ? "/" : "/k01"));
		send(c, 1, buf_view(&b));
	}
	buf_free(&b);
}

static void keep_alive(struct cacher *c)
{
	struct buf b = { 0 };
	uint64_t seq = ++c->sequence;

	c->sent_at[seq % CACHER_SEQ] = c->w->now;
	c->stepped_at[seq % CACHER_SEQ] = 0;
	pbw_u64(&b, 1, seq);
	send(c, 3, buf_view(&b));
	buf_free(&b);
	c->keep_alive_at = c->w->now + (sim_us)c->ttl * SIM_SECOND / rng_between(&c->rng, 3, 6);
}

static void ack(struct cacher *c)
{
	struct buf b = { 0 };

	pbw_u64(&b, 1, c->owed_number);
	pbw_u64(&b, 2, c->owed_term);
	send(c, 4, buf_view(&b));
	buf_free(&b);
	c->owes = false;
	TRACE(c->w, "cacher %u acknowledges %llu of term %llu (session %llx)", c->id, (unsigned long long)c->owed_number, (unsigned long long)c->owed_term,
	      (unsigned long long)c->session);
}

static void read(struct cacher *c)
{
	struct call_msg *m = mem_zalloc(sizeof *m);
	uint32_t item = rng_chance(&c->rng, 150000) ? CACHE_LIST : (uint32_t)rng_below(&c->rng, c->w->config.keys);
	char path[8] = "/";

	if (item != CACHE_LIST)
		key_text(item, path);
	c->read_tag = TAG_BASE + ++c->w->next_stream;
	c->read_item = item;
	c->read_flushes = c->flushes;
	c->read_drops = c->drops[item];
	c->read_sent = c->w->now;
	pbw_bytes(&m->bytes, 1, slice_of_str(path));
	pbw_i64(&m->bytes, 2, c->session);
	pbw_u64(&m->bytes, 3, 1);
	if (item != CACHE_LIST && rng_chance(&c->rng, 100000))
		pbw_u64(&m->bytes, 4, item + 1);
	m->op = c->read_tag;
	m->err = (enum err)EVENT_REQUEST;
	/* Another stream of the same connection: it keeps no order with the first. */
	sim_at(c->w, soon(c), (struct ev){ .kind = EV_CACHER_IN, .a = c->id, .b = c->server, .n = c->generation, .ptr = m });
}

/* ---- its life ---- */

void cacher_init(struct world *w, uint32_t id)
{
	struct cacher *c = &w->cachers[id];

	memset(c, 0, sizeof *c);
	c->w = w;
	c->id = id;
	rng_init(&c->rng, rng_next(&w->cache_rng));
	c->ppm = w->config.equal_clocks ? 0 : (int32_t)rng_below(&c->rng, 2 * PPM_MAX + 1) - PPM_MAX;
	if (!w->config.equal_clocks && rng_chance(&c->rng, 400000))
		c->ppm = -PPM_MAX;
	if (does_without(w, PIECE_CLOCKS))
		c->ppm = 0;
	c->lazy = rng_chance(&c->rng, 300000);
	if (!left_out(w, PIECE_CACHER, id))
		sim_at(w, rng_below(&c->rng, SIM_SECOND), (struct ev){ .kind = EV_CACHER, .a = id });
}

static bool chaos(const struct cacher *c)
{
	return c->w->phase == PHASE_CHAOS;
}

static bool frozen(struct cacher *c)
{
	if (c->w->now >= c->frozen_until && chaos(c) && rng_chance(&c->rng, 4000) && !does_without(c->w, PIECE_FREEZES))
		c->frozen_until = c->w->now + rng_between(&c->rng, SIM_SECOND / 2, 9 * SIM_SECOND);
	return c->w->now < c->frozen_until;
}

static void leave(struct cacher *c)
{
	if (c->session && c->opened && !c->closing && rng_chance(&c->rng, 500000)) {
		forget_all(c); /* it wants nothing more of it */
		c->closing = true;
		c->right_until = 0;
		c->valid_until = c->w->now;
		send(c, 5, (struct slice){ 0 });
	}
}

static void session_step(struct cacher *c)
{
	struct world *w = c->w;

	if (c->owes && (w->now >= c->ack_at || !chaos(c)))
		ack(c);
	if (w->now >= c->keep_alive_at)
		keep_alive(c);
	if (!c->read_tag && w->now < c->right_until)
		read(c);
	else if (c->read_tag && w->now > c->read_sent + 3 * SIM_SECOND)
		c->read_tag = 0;
	for (uint32_t i = 0; i < w->config.keys; i++)
		w->totals.cached_reads += cacher_may_use(c, i);
}

void cacher_think(struct cacher *c)
{
	struct world *w = c->w;
	const struct replica *r = &w->replicas[c->server];

	if (frozen(c)) {
		sim_at(w, c->frozen_until, (struct ev){ .kind = EV_CACHER, .a = c->id });
		return;
	}
	look_at_clock(c);
	if (c->open && (!r->up || r->generation != c->generation))
		c->open = false;
	if (c->open && !c->opened && w->now > c->open_sent + 8 * SIM_SECOND)
		c->open = false; /* it was lost with a connection */
	if (c->open && chaos(c) && rng_chance(&c->rng, 20000)) {
		post(c, EVENT_STREAM_CLOSED, (struct slice){ 0 });
		c->open = false;
	}
	if (w->phase >= PHASE_DRAIN)
		leave(c);
	else if (!c->open)
		open_stream(c);
	else if (c->opened && c->session)
		session_step(c);
	else if (c->opened)
		c->open = false; /* the session is over by its own clock */
	sim_at(w, w->now + rng_between(&c->rng, 20 * SIM_MS, 150 * SIM_MS), (struct ev){ .kind = EV_CACHER, .a = c->id });
}

/* ---- what it is told ---- */

static void take_opened(struct cacher *c, struct slice body)
{
	bool resumed = wire_find_u64(body, 6, 0) != 0;

	c->opened = true;
	TRACE(c->w, "cacher %u has %s session %llx at r%u", c->id, resumed ? "resumed" : "opened", (unsigned long long)wire_find_u64(body, 1, 0), c->server + 1);
	c->seen = (revision)wire_find_u64(body, 5, 0);
	see_term(c, wire_find_u64(body, 4, 0));
	c->keep_alive_at = c->w->now;
	if (resumed)
		return;
	c->session = (lease_id)wire_find_u64(body, 1, 0);
	CHECK(c->w, "core", wire_find_bytes(body, 2).len == sizeof c->secret, "a session without a secret");
	memcpy(c->secret, wire_find_bytes(body, 2).ptr, sizeof c->secret);
	c->ttl = (int64_t)wire_find_u64(body, 3, 0);
	c->valid_until = c->right_until = clock_end(c, c->open_sent);
	look_at_clock(c);
	c->w->totals.sessions++;
}

static void take_kept_alive(struct cacher *c, struct slice body)
{
	uint64_t seq = wire_find_u64(body, 1, 0);
	sim_us until;

	see_term(c, wire_find_u64(body, 3, 0));
	if (!c->session || seq > c->sequence || seq + CACHER_SEQ <= c->sequence)
		return;
	check_session_kept(c->w, c->session, c->ttl, c->stepped_at[seq % CACHER_SEQ]);
	until = clock_end(c, c->sent_at[seq % CACHER_SEQ]);
	if (until > c->valid_until)
		c->valid_until = until;
	if (wire_find_u64(body, 5, 0) && until > c->right_until && until > c->w->now)
		c->right_until = until;
}

static void take_invalidation(struct cacher *c, struct slice body)
{
	raft_term term = wire_find_u64(body, 2, 0);
	struct wire w;

	see_term(c, term);
	if (term < c->term)
		return;
	if (wire_find_u64(body, 3, 0))
		forget_all(c);
	for (wire_init(&w, body); wire_next(&w);) {
		struct slice item = w.field == 4 ? wire_bytes(&w) : (struct slice){ 0 }, path = wire_find_bytes(item, 1);
		uint32_t key = wire_find_u64(item, 2, 0) ? CACHE_LIST : key_number(path);

		if (w.field == 4 && key < CACHE_ITEMS)
			forget(c, key);
	}
	c->w->totals.invalidations++;
	TRACE(c->w, "cacher %u is told to forget: %llu of term %llu%s (session %llx)", c->id, (unsigned long long)wire_find_u64(body, 1, 0), (unsigned long long)term,
	      wire_find_u64(body, 3, 0) ? ", everything" : "", (unsigned long long)c->session);
	if (!c->owes)
		c->ack_at = c->w->now + (c->lazy && rng_chance(&c->rng, 300000) ? rng_below(&c->rng, 9 * SIM_SECOND) : rng_below(&c->rng, 20 * SIM_MS));
	c->owes = true;
	c->owed_number = wire_find_u64(body, 1, 0);
	c->owed_term = term;
}

static void take_event(struct cacher *c, struct slice body)
{
	uint32_t key = key_number(wire_find_bytes(body, 2));
	revision rev = (revision)wire_find_u64(body, 4, 0);

	CHECK(c->w, "P7", key < c->w->config.keys && wire_find_u64(body, 1, 0) == key + 1, "an event of a watch that nobody armed");
	CHECK(c->w, "P7", rev > 0 && rev <= referee_revision(c->w->referee), "an event at revision %lld, which is not there yet", (long long)rev);
	c->w->totals.watch_fires++;
}

static void take_message(struct cacher *c, struct slice bytes)
{
	struct wire w;

	for (wire_init(&w, bytes); wire_next(&w);) {
		struct slice body = wire_bytes(&w);

		switch (w.field) {
		case 1: take_opened(c, body); break;
		case 2: take_kept_alive(c, body); break;
		case 3: take_invalidation(c, body); break;
		case 4: take_event(c, body); break;
		case 5: see_term(c, wire_find_u64(body, 1, 0)); break;
		case 6:
			/* Taken over: a resume of its own, on a connection that it gave up, came late. The session lives on. */
			if (wire_find_u64(body, 1, 0) != 3)
				lose_session(c);
			break;
		default: sim_fail(c->w, "core", "a message of kind %u", w.field);
		}
	}
	CHECK(c->w, "core", !w.bad || !c->open, "a malformed message");
}

static void stream_ended(struct cacher *c, enum err e)
{
	c->open = c->opened = false;
	CHECK(c->w, "core", e != ERR_SESSION_ACK && e != ERR_SESSION_SECRET && e != ERR_SESSION_ORDER && e != ERR_FUTURE_REVISION && e != ERR_MALFORMED,
	      "cacher %u is told: %s", c->id, err_text(e));
	if (e == ERR_UNKNOWN_SESSION)
		lose_session(c);
}

void cacher_take(struct cacher *c, struct ev *e)
{
	struct call_msg *m = e->ptr;
	struct slice left = buf_view(&m->bytes);

	if (c->w->now < c->frozen_until) {
		sim_at(c->w, c->frozen_until, *e);
		return;
	}
	look_at_clock(c);
	while (c->open && c->tag == m->op && left.len >= 4) {
		uint32_t len = (uint32_t)left.ptr[0] | (uint32_t)left.ptr[1] << 8 | (uint32_t)left.ptr[2] << 16 | (uint32_t)left.ptr[3] << 24;

		take_message(c, slice_of(left.ptr + 4, len));
		left = slice_of(left.ptr + 4 + len, left.len - 4 - len);
	}
	if (c->open && c->tag == m->op && m->err)
		stream_ended(c, m->err);
	else if (c->open && c->tag == m->op)
		post(c, EVENT_STREAM_WRITABLE, (struct slice){ 0 });
	buf_free(&m->bytes);
	free(m);
}

/* What the rules let it keep of an answer. */
static bool may_cache(const struct cacher *c, raft_term grant)
{
	return grant != 0 && grant == c->term && c->session && c->w->now < c->right_until && c->flushes == c->read_flushes &&
	       c->drops[c->read_item] == c->read_drops;
}

static revision parse_mod(struct slice node)
{
	return (revision)wire_find_u64(node, 5, 0);
}

static void keep_value(struct cacher *c, struct slice reply)
{
	uint32_t key = c->read_item;

	c->cached[key].is = true;
	CHECK(c->w, "P6", parse_mod(wire_find_bytes(reply, 2)) == mod_now(c->w, key), "cacher %u caches k%02u of revision %lld, it is %lld by now", c->id, key,
	      (long long)parse_mod(wire_find_bytes(reply, 2)), (long long)mod_now(c->w, key));
	c->w->totals.cached++;
}

static void keep_list(struct cacher *c, struct slice reply)
{
	revision mods[KEYS_MAX] = { 0 };
	struct wire w;

	for (wire_init(&w, reply); wire_next(&w);) {
		struct slice node = w.field == 2 ? wire_bytes(&w) : (struct slice){ 0 };
		uint32_t key = key_number(wire_find_bytes(node, 1));

		if (w.field == 2 && key < KEYS_MAX)
			mods[key] = parse_mod(node);
	}
	for (uint32_t k = 0; k < c->w->config.keys; k++)
		CHECK(c->w, "P6", mods[k] == mod_now(c->w, k), "cacher %u caches a list with k%02u of revision %lld, it is %lld by now", c->id, k,
		      (long long)mods[k], (long long)mod_now(c->w, k));
	c->cached[CACHE_LIST].is = true;
	c->w->totals.cached++;
}

void cacher_answer(struct cacher *c, struct ev *e)
{
	struct call_msg *m = e->ptr;
	struct slice reply = buf_view(&m->bytes);
	uint32_t grant_field = c->read_item == CACHE_LIST ? 4 : 3;

	if (c->w->now < c->frozen_until) {
		sim_at(c->w, c->frozen_until, *e);
		return;
	}
	look_at_clock(c);
	if (c->read_tag == m->op) {
		c->read_tag = 0;
		see_term(c, m->err ? 0 : wire_find_u64(wire_find_bytes(reply, 1), 4, 0));
		if (!m->err && may_cache(c, wire_find_u64(wire_find_bytes(reply, grant_field), 1, 0)))
			(c->read_item == CACHE_LIST ? keep_list : keep_value)(c, reply);
	}
	buf_free(&m->bytes);
	free(m);
}

/* ---- at its replica ---- */

void cacher_arrives(struct world *w, const struct ev *e)
{
	struct call_msg *m = e->ptr;
	struct replica *r = &w->replicas[e->b];
	struct inbox_item item = { .event = { .kind = (enum core_event_kind)m->err }, .bytes = buf_take(&m->bytes), .cacher = e->a + 1 };

	if (item.event.kind == EVENT_REQUEST) {
		item.request = (struct core_request){ .tag = m->op, .method = w->cachers[e->a].read_item == CACHE_LIST ? METHOD_NODES_LIST : METHOD_NODES_GET,
						      .client = slice_of_str("c") };
	} else {
		item.event.stream.tag = m->op;
		item.event.stream.method = METHOD_SESSION_CONNECT;
		item.event.stream.bytes = buf_view(&item.bytes);
	}
	/* A read that is not the latest any more would be taken for one of another kind. */
	if (r->up && r->generation == e->n && (item.event.kind != EVENT_REQUEST || w->cachers[e->a].read_tag == m->op))
		replica_put(r, &r->others, item);
	else
		buf_free(&item.bytes);
	free(m);
}

/* Right before the core has it. */
void cacher_steps(struct world *w, struct inbox_item *item)
{
	struct cacher *c = &w->cachers[item->cacher - 1];
	struct slice keep = item->event.kind == EVENT_STREAM_MESSAGE ? wire_find_bytes(buf_view(&item->bytes), 3) : (struct slice){ 0 };

	if (item->event.kind == EVENT_REQUEST) {
		item->request.bytes = buf_view(&item->bytes);
		item->event.request = &item->request;
	} else if (keep.len > 0) {
		c->stepped_at[wire_find_u64(keep, 1, 0) % CACHER_SEQ] = w->now;
	}
}

/* False: not one of a cacher's. */
bool cacher_answered(struct replica *r, struct core_answer *a)
{
	struct world *w = r->w;

	if (a->tag < TAG_BASE)
		return false;
	for (uint32_t i = 0; i < w->config.cachers; i++) {
		struct cacher *c = &w->cachers[i];
		struct call_msg *m;

		if (c->read_tag != a->tag)
			continue;
		m = mem_zalloc(sizeof *m);
		m->op = a->tag;
		m->err = a->err;
		m->bytes = buf_take(&a->reply);
		sim_at(w, soon(c) + (rng_chance(&c->rng, 100000) ? rng_below(&c->rng, 2 * SIM_SECOND) : 0),
		       (struct ev){ .kind = EV_CACHER_ANSWER, .a = i, .ptr = m });
	}
	buf_free(&a->reply);
	return true;
}

bool cacher_output(struct replica *r, struct core_output *o)
{
	struct world *w = r->w;

	for (uint32_t i = 0; i < w->config.cachers; i++) {
		struct cacher *c = &w->cachers[i];
		struct call_msg *m;
		sim_us at;

		if (c->tag != o->stream)
			continue;
		m = mem_zalloc(sizeof *m);
		m->op = o->stream;
		m->err = o->finished ? (o->err ? o->err : ERR_CLOSED) : ERR_OK;
		m->bytes = buf_take(&o->messages);
		at = soon(c);
		if (at <= c->last_told)
			at = c->last_told + 1;
		c->last_told = at;
		sim_at(w, at, (struct ev){ .kind = EV_CACHER_OUT, .a = i, .n = r->generation, .ptr = m });
		return true;
	}
	return false;
}
