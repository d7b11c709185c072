/* gate.c: before a command that may touch what somebody caches enters the log, all who cache it have forgotten it.
 *
 *   (G1) every command enters the log through here. One that has to wait is taken (its caller's channel goes on) and kept until every session that may
 *        cache what it may touch has acknowledged, has lost its right or has ended; others overtake it.
 *   (G2) from before a command is kept or proposed until it is applied here, or this replica leads no more, nothing that it may touch is granted.
 *        While no session that caches is known, what is proposed is not looked at: then nothing is granted before all of it is applied
 *        (`untracked`). A session that comes to be known later was opened by an entry behind it, or is granted nothing until then.
 *   (G3) a leader that has not yet applied an entry of its own term does not know all sessions that may cache: what may write keys comes by later (T1 of admit.c). Then
 *        each session that may cache where a command writes owes one acknowledgement of "everything", until its right, which an
 *        earlier leader may have given it, has ended: a full TTL from then on (N1 of renew.c says why that is enough).
 *   (G4) what is kept is this term's alone. When the term or the leadership ends it is dropped, and its callers propose anew (W3 of propose.c).
 *   (G5) who may not write cannot empty caches either: what would be refused as things stand waits for nobody, and is marked in the log, so that it is
 *        refused even if it is allowed by the time it is applied (its caller is told that his rights have changed, or asks anew). */
#include "internal.h"

void gate_init(struct core *c)
{
	list_init(&c->gate.held);
	list_init(&c->gate.ready);
	list_init(&c->gate.flights);
	c->gate.cache = cache_new();
}

/* ---- spans ---- */

static struct slice put_slice(uint8_t **at, struct slice s)
{
	struct slice copy = slice_of(*at, s.len);

	if (s.len)
		memcpy(*at, s.ptr, s.len);
	*at += s.len;
	return copy;
}

static struct held_spans *spans_copy(const struct kv_write_set *set)
{
	size_t bytes = 0;
	struct held_spans *h;
	uint8_t *at;

	for (size_t i = 0; i < set->len; i++)
		bytes += set->at[i].key.len + set->at[i].end.len;
	h = mem_alloc(sizeof(*h) + set->len * sizeof(h->at[0]) + bytes);
	h->len = set->len;
	at = (uint8_t *)&h->at[set->len];
	for (size_t i = 0; i < set->len; i++) {
		h->at[i].key = put_slice(&at, set->at[i].key);
		h->at[i].end = put_slice(&at, set->at[i].end);
	}
	return h;
}

static bool spans_touch(const struct held_spans *h, enum cache_aspect aspect, struct slice path)
{
	for (size_t i = 0; i < h->len; i++)
		if (cache_span_touches(&h->at[i], aspect, path))
			return true;
	return false;
}

static struct held_spans *spans_of(struct core *c, const struct command *cmd)
{
	struct kv_write_set set;
	struct held_spans *h;

	kv_write_set(&c->arena, cmd->kind, cmd->payload, &set);
	h = spans_copy(&set);
	arena_clear(&c->arena);
	return h;
}

/* ---- into the log ---- */

static void note_flight(struct core *c, raft_index index, struct held_spans *spans)
{
	struct flight *f = mem_zalloc(sizeof(*f));

	f->index = index;
	f->spans = spans;
	list_push_back(&c->gate.flights, &f->link);
}

static void flight_free(struct flight *f)
{
	list_remove(&f->link);
	free(f->spans);
	free(f);
}

/* Takes the spans on ERR_OK. */
static enum err propose_tracked(struct core *c, struct slice bytes, struct held_spans *spans)
{
	raft_index index;
	enum err e = raft_propose(c->raft, RAFT_ENTRY_COMMAND, bytes, &index);

	if (e)
		return e;
	admit_entered(c, bytes.len);
	note_flight(c, index, spans);
	return ERR_OK;
}

static enum err propose_untracked(struct core *c, const struct command *cmd, struct slice bytes)
{
	raft_index index;
	enum err e = raft_propose(c->raft, RAFT_ENTRY_COMMAND, bytes, &index);

	if (e)
		return e;
	admit_entered(c, bytes.len);
	if (kv_may_write_keys(cmd->kind))
		c->gate.untracked = index;
	return ERR_OK;
}

/* G5 */
static bool is_refused(struct core *c, const struct command *cmd)
{
	struct authoriser az = core_authoriser(c);
	bool refused = authorise_command(&az, cmd) != ERR_OK;

	arena_clear(&c->arena);
	return refused;
}

static enum err propose_refused(struct core *c, const struct command *cmd)
{
	struct command marked = *cmd;
	struct buf bytes = { 0 };
	raft_index index;
	enum err e;

	marked.refused = true;
	command_encode(&marked, &bytes);
	e = raft_propose(c->raft, RAFT_ENTRY_COMMAND, buf_view(&bytes), &index);
	if (!e)
		admit_entered(c, bytes.len);
	buf_free(&bytes);
	return e;
}

/* ---- what is kept ---- */

static bool is_full(const struct core *c, size_t bytes)
{
	return c->gate.len >= GATED_MAX || c->gate.bytes + bytes > GATED_BYTES_MAX;
}

static struct gated *gated_new(struct core *c, struct slice bytes)
{
	struct gated *g = mem_zalloc(sizeof(*g));

	list_init(&g->link);
	list_init(&g->write.link);
	list_init(&g->write.waits);
	g->bytes = buf_copy_of(bytes);
	c->gate.len++;
	c->gate.bytes += bytes.len;
	return g;
}

static void gated_free(struct core *c, struct gated *g)
{
	cache_write_drop(c->gate.cache, &g->write);
	list_remove(&g->link);
	c->gate.len--;
	c->gate.bytes -= g->bytes.len;
	buf_free(&g->bytes);
	free(g->spans);
	free(g);
}

/* With its spans: into the log if it waits for nobody. */
static void gated_begin(struct core *c, struct gated *g)
{
	bool waits = cache_write_begin(c->gate.cache, &c->state, g->spans->at, g->spans->len, &g->write, c->now);

	list_remove(&g->link);
	list_push_back(waits ? &c->gate.held : &c->gate.ready, &g->link);
	c->gate.total += waits;
	g->since = c->now;
}

/* To find out by gate_begin would be to send invalidations. */
static bool has_room(struct core *c, const struct held_spans *spans, struct slice bytes)
{
	return !is_full(c, bytes.len) || !cache_write_would_wait(c->gate.cache, &c->state, spans->at, spans->len, c->now);
}

bool gate_has_room(struct core *c, const struct command *cmd, struct slice bytes)
{
	struct held_spans *spans;
	bool room;

	if (!is_full(c, bytes.len) || !kv_may_write_keys(cmd->kind) || cache_sessions(c->gate.cache) == 0 || is_refused(c, cmd))
		return true;
	spans = spans_of(c, cmd);
	room = has_room(c, spans, bytes);
	free(spans);
	return room;
}

enum err gate_propose(struct core *c, const struct command *cmd, struct slice bytes)
{
	struct gated *g;
	struct held_spans *spans;
	enum err e;

	if (!kv_may_write_keys(cmd->kind))
		return propose_untracked(c, cmd, bytes);
	ASSERT(core_leads(c)); /* G3 */
	if (cache_sessions(c->gate.cache) == 0)
		return propose_untracked(c, cmd, bytes); /* G2 */
	if (is_refused(c, cmd))
		return propose_refused(c, cmd);
	spans = spans_of(c, cmd);
	if (!has_room(c, spans, bytes)) {
		free(spans);
		return ERR_TOO_MANY_REQUESTS;
	}
	g = gated_new(c, (struct slice){ 0 });
	g->spans = spans;
	gated_begin(c, g);
	if (g->write.left > 0) {
		g->bytes = buf_copy_of(bytes);
		c->gate.bytes += bytes.len;
		return ERR_OK;
	}
	g->spans = NULL;
	gated_free(c, g);
	e = propose_tracked(c, bytes, spans);
	if (e)
		free(spans);
	return e;
}

/* Nobody has to be waited for any more; in the order in which that came about. */
void gate_flush(struct core *c)
{
	struct gate *g = &c->gate;
	struct cache_write *w;

	g->fresh = false;
	while ((w = cache_next_ready(g->cache))) {
		struct gated *gd = CONTAINER_OF(w, struct gated, write);

		list_remove(&gd->link);
		list_push_back(&g->ready, &gd->link);
	}
	while (!list_empty(&g->ready)) {
		struct gated *gd = CONTAINER_OF(g->ready.next, struct gated, link);

		if (propose_tracked(c, buf_view(&gd->bytes), gd->spans) != ERR_OK)
			return; /* no room, or leadership is being handed over: with a later take, if at all */
		gd->spans = NULL;
		gated_free(c, gd);
	}
}

bool gate_waits(const struct core *c)
{
	return c->gate.fresh || cache_has_ready(c->gate.cache);
}

void gate_applied(struct core *c)
{
	while (!list_empty(&c->gate.flights)) {
		struct flight *f = CONTAINER_OF(c->gate.flights.next, struct flight, link);

		if (f->index > c->state.applied.index)
			return;
		flight_free(f);
	}
}

/* ---- leadership ---- */

void gate_promote(struct core *c)
{
	struct tree_cursor cursor;

	ASSERT(cache_sessions(c->gate.cache) == 0);
	for (const struct tree_record *r = tree_first(&cursor, &c->state.open_sessions); r; r = tree_next(&cursor)) {
		const struct open_session *s = (const struct open_session *)(const void *)r;

		if (session_caches(s))
			cache_session_add(c->gate.cache, s->session, c->now + (time_ms)lease_find(c->lessor, s->session)->ttl_s * 1000,
					  /*flush=*/true, c->now);
	}
}

static void drop_all(struct core *c, struct list *of)
{
	while (!list_empty(of))
		gated_free(c, CONTAINER_OF(of->next, struct gated, link));
}

void gate_clear(struct core *c)
{
	drop_all(c, &c->gate.held);
	drop_all(c, &c->gate.ready);
	while (!list_empty(&c->gate.flights))
		flight_free(CONTAINER_OF(c->gate.flights.next, struct flight, link));
	cache_clear(c->gate.cache);
	c->gate.untracked = 0;
	c->gate.fresh = false;
	ASSERT(c->gate.len == 0 && c->gate.bytes == 0);
}

void gate_deinit(struct core *c)
{
	gate_clear(c);
	cache_free(c->gate.cache);
}

void gate_tick(struct core *c)
{
	cache_expire(c->gate.cache, c->now);
}

/* ---- rights and grants ---- */

static bool is_being_written(const struct core *c, enum cache_aspect aspect, struct slice path)
{
	const struct list *kept[] = { &c->gate.held, &c->gate.ready };

	if (c->state.applied.index < c->gate.untracked)
		return true;
	for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
		LIST_FOR_EACH(l, kept[i])
			if (spans_touch(CONTAINER_OF(l, struct gated, link)->spans, aspect, path))
				return true;
	LIST_FOR_EACH(l, &c->gate.flights)
		if (spans_touch(CONTAINER_OF(l, struct flight, link)->spans, aspect, path))
			return true;
	return false;
}

bool gate_grant(struct core *c, lease_id session, struct slice user, enum cache_aspect aspect, struct slice path)
{
	const struct open_session *s = session_find(&c->state, session);
	struct auth_who who = { user, user.len > 0 ? auth_revision(c->auth) : 0 };

	if (!core_leads(c) || !s || !session_may_cache(s, path) || is_being_written(c, aspect, path))
		return false;
	if (node_may_read(c, who, aspect, path))
		return false; /* an invalidation would tell that it changes */
	return cache_grant(c->gate.cache, session, aspect, path, c->now);
}

bool gate_extend(struct core *c, lease_id session, int64_t ttl_s)
{
	return cache_session_renew(c->gate.cache, session, c->now + (time_ms)ttl_s * 1000, c->now);
}

uint64_t gate_first_of(const struct core *c, member_id member, uint64_t boot, uint64_t first)
{
	const struct list *kept[] = { &c->gate.held, &c->gate.ready };

	for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
		LIST_FOR_EACH(l, kept[i])
			first = command_earlier_call(first, buf_view(&CONTAINER_OF(l, struct gated, link)->bytes), member, boot);
	return first;
}

time_ms gate_oldest_ms(const struct core *c)
{
	return list_empty(&c->gate.held) ? 0 : c->now - CONTAINER_OF(c->gate.held.next, struct gated, link)->since;
}

void gate_check(const struct core *c)
{
	raft_index before = 0;

	cache_check(c->gate.cache);
	LIST_FOR_EACH(l, &c->gate.flights) {
		const struct flight *f = CONTAINER_OF(l, struct flight, link);

		ASSERT(f->index > before);
		before = f->index;
	}
	ASSERT_IF(!core_leads(c) && raft_role(c->raft) != RAFT_LEADER, cache_sessions(c->gate.cache) == 0 || c->role == RAFT_LEADER);
}
