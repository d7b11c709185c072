/* library.c: users of libholdfast: the client's own core (client-c/core), with its connections and its clock played, against the real cell.
 *
 *   (P3) when a session ends no user believes in it, by its own clock, wherever that user stands or is stopped.
 *   (P6) at the instant when a write takes effect nobody is given an older value out of a cache any more; and what a cache gives out is what the key is.
 *   (P7) who follows a value is told of a newer one, or asks for it, and in the end has the newest.
 *   (P9) a write that was asked once is applied once, over lost streams and whatever answers were lost: the version of a node that only one user writes tells.
 *   (F1) in a calm run, where only leaders fall silent and followers are cut off, none is in jeopardy that a leader was there for FOUND_WITHIN.
 *   (F2) no stream of a user is ended for another of its session: there is a later one, but none that it has not begun itself.
 *   (F3) a call is under way once at a time: before it is sent again the attempt before was answered or cancelled; and only what is under way is cancelled.
 * A user is stopped now and then for longer than its lease: in between nothing of it moves, and when it goes on, a read from memory comes first of all. */
#include "sim.h"

#include "core/wire.h"
#include "holdfast/v1.pb-c.h"
#include "sess.h"

#define FOUND_WITHIN SIM_SECOND
#define FOUND_TTL_MIN_S 4 /* who is cut off may say for an election timeout that it serves: too long for shorter ones */
#define TAG_BASE (UINT64_C(1) << 42) /* of its calls; all others are below */

#define PROBE ((enum core_event_kind)1000) /* no event of a core */

enum { ASK_OPEN = 1, ASK_FOLLOW, ASK_CLOSE, ASK_FREE };

uint64_t user_local_ms(const struct user *u)
{
	int64_t run = (int64_t)u->w->now;

	return (uint64_t)(run + run * u->ppm / 1000000) / 1000 + 1000000;
}

static bool chaos(const struct user *u)
{
	return u->w->phase == PHASE_CHAOS && !u->w->config.calm;
}

static revision mod_now(const struct world *w, uint32_t key)
{
	const struct version *v = history_at(w, key, INT64_MAX);

	return v ? v->mod : 0;
}

/* ---- what is believed ---- */

static bool cached(struct user *u, uint32_t key, struct sess_cached *ret)
{
	char path[8];

	key_text(key, path);
	return u->core && sess_cache_load(u->core, slice_of_str(path), false, ret) && sess_cache_confirm(u->core, ret, user_local_ms(u));
}

void check_users_cached(struct world *w, uint32_t key)
{
	struct sess_cached c;

	for (uint32_t i = 0; i < w->config.users; i++)
		CHECK(w, "P6", !cached(&w->users[i], key, &c), "key k%02u is written, user %u may go on to read revision %lld from memory for %llu ms (session %llx)", key,
		      i, (long long)c.node.mod_revision, (unsigned long long)sess_cache_remaining_ms(w->users[i].core, user_local_ms(&w->users[i])),
		      (unsigned long long)sess_id(w->users[i].core));
}

void check_users_lease_ended(struct world *w, lease_id id)
{
	for (uint32_t i = 0; i < w->config.users; i++) {
		const struct user *u = &w->users[i];

		if (u->core && sess_id(u->core) == id && sess_state(u->core) != HF_CLOSING)
			CHECK(w, "P3", sess_remaining_ms(u->core, user_local_ms(u)) == 0, "session %llx ends, user %u believes in it for %llu ms more",
			      (unsigned long long)id, i, (unsigned long long)sess_remaining_ms(u->core, user_local_ms(u)));
	}
}

static void read_from_memory(struct user *u)
{
	uint32_t key = (uint32_t)rng_below(&u->rng, u->w->config.keys);
	struct sess_cached c;

	if (!cached(u, key, &c))
		return;
	CHECK(u->w, "P6", (c.exists ? c.node.mod_revision : 0) == mod_now(u->w, key), "user %u reads k%02u of revision %lld from memory, it is %lld by now", u->id, key,
	      (long long)c.node.mod_revision, (long long)mod_now(u->w, key));
	u->w->totals.library_hits++;
}

/* ---- the way to a replica ---- */

static sim_us soon(struct user *u, uint32_t server)
{
	const struct replica *r = &u->w->replicas[server];

	return (u->w->now < r->unseen_until ? r->unseen_until : u->w->now) + rng_between(&u->rng, 50, 4 * SIM_MS);
}

static sim_us in_order(sim_us at, sim_us *last)
{
	if (at <= *last)
		at = *last + 1;
	*last = at;
	return at;
}

static struct call_msg *message(uint64_t tag, enum core_event_kind kind, enum method_id method, struct slice bytes)
{
	struct call_msg *m = mem_zalloc(sizeof *m);

	m->op = tag;
	m->err = (enum err)kind;
	m->method = method;
	m->bytes = buf_copy_of(bytes);
	return m;
}

/* Of the session's stream. */
static void post(struct user *u, uint64_t tag, enum core_event_kind kind, struct slice bytes)
{
	sim_at(u->w, in_order(soon(u, u->server), &u->last_sent), (struct ev){ .kind = EV_USER_IN, .a = u->id, .b = u->server, .n = u->generation,
								    .ptr = message(tag, kind, METHOD_SESSION_CONNECT, bytes) });
}

/* Of a call: a stream of its own. */
static void post_call(struct user *u, struct user_call *c, sim_us at, struct call_msg *m)
{
	sim_at(u->w, in_order(at, &c->last_sent), (struct ev){ .kind = EV_USER_IN, .a = u->id, .b = c->server, .n = c->generation, .ptr = m });
}

/* The stream ends: told by the connection. */
static void post_lost(struct user *u, uint64_t tag)
{
	struct call_msg *m = mem_zalloc(sizeof *m);

	m->op = tag;
	m->err = ERR_CLOSED;
	sim_at(u->w, soon(u, u->server), (struct ev){ .kind = EV_USER_OUT, .a = u->id, .ptr = m });
}

static void connect(struct user *u, const struct sess_out *o)
{
	const struct replica *r = &u->w->replicas[o->endpoint];
	uint8_t secret[32];

	u->server = o->endpoint;
	u->generation = r->generation;
	u->stream = o->stream;
	u->tag = ++u->w->next_stream;
	u->last_sent = u->last_told = 0;
	TRACE(u->w, "user %u connects to %s as %llu", u->id, r->name, (unsigned long long)o->stream);
	if (!r->up || (r->paused_until && rng_chance(&u->rng, 500000))) {
		/* Refused, or not answered at all; of one that is stopped there may be a connection, and it hears all of it later. */
		if (rng_chance(&u->rng, 700000) && !r->up)
			post_lost(u, u->tag);
		return;
	}
	for (size_t i = 0; i < sizeof secret; i++)
		secret[i] = (uint8_t)rng_next(&u->rng);
	post(u, u->tag, EVENT_STREAM_OPEN, slice_of(secret, sizeof secret));
}

/* The cell hears of it sooner or later. */
static void drop(struct user *u)
{
	sim_us late = 0;

	if (!u->tag)
		return;
	if (rng_chance(&u->rng, 200000))
		late = rng_below(&u->rng, 3 * SIM_SECOND);
	sim_at(u->w, in_order(soon(u, u->server) + late, &u->last_sent), (struct ev){ .kind = EV_USER_IN, .a = u->id, .b = u->server, .n = u->generation,
										      .ptr = message(u->tag, EVENT_STREAM_CLOSED, METHOD_SESSION_CONNECT, (struct slice){ 0 }) });
	u->tag = 0;
}

static void probe(struct user *u, uint32_t server)
{
	const struct replica *r = &u->w->replicas[server];

	if (r->up && !(chaos(u) && rng_chance(&u->rng, 50000)))
		sim_at(u->w, soon(u, server), (struct ev){ .kind = EV_USER_IN, .a = u->id, .b = server, .n = r->generation, .ptr = message(0, PROBE, METHOD_HEALTH_CHECK,
																	 (struct slice){ 0 }) });
}

static struct user_call *call_slot(struct user *u, uint64_t tag)
{
	for (uint32_t i = 0; i < USER_CALLS_MAX; i++)
		if (u->calls[i].tag == tag)
			return &u->calls[i];
	return NULL;
}

static struct user_call *under_way(struct user *u, uint64_t call)
{
	for (uint32_t i = 0; i < USER_CALLS_MAX; i++)
		if (u->calls[i].tag && u->calls[i].call == call)
			return &u->calls[i];
	return NULL;
}

/* Calls share no order with each other, nor with the session's stream: whoever takes one in may be held up with it. */
static sim_us held_up(struct user *u)
{
	return chaos(u) && rng_chance(&u->rng, 20000) ? rng_below(&u->rng, SIM_SECOND) : 0;
}

static void start_call(struct user *u, const struct sess_out *o)
{
	struct user_call *c = call_slot(u, 0), *before = under_way(u, o->call);
	struct slice bytes = buf_view(&o->bytes);
	struct call_msg *m;

	CHECK(u->w, "calls", !before, "user %u sends call %llu.%u, and %llu.%u is still under way", u->id, (unsigned long long)o->call, o->attempt,
	      (unsigned long long)before->call, before->attempt); /* F3 */
	ASSERT(c);
	*c = (struct user_call){ .tag = TAG_BASE + ++u->w->next_stream, .call = o->call, .attempt = o->attempt, .method = o->method, .server = u->server,
				 .generation = u->generation, .stream = o->method == METHOD_WATCH_WATCH || o->method == METHOD_ELECTION_OBSERVE };
	if (o->method == METHOD_WATCH_WATCH)
		post_call(u, c, soon(u, c->server), message(c->tag, EVENT_STREAM_OPEN, c->method, (struct slice){ 0 }));
	m = message(c->tag, !c->stream ? EVENT_REQUEST : o->method == METHOD_WATCH_WATCH ? EVENT_STREAM_MESSAGE : EVENT_STREAM_OPEN, c->method, bytes);
	TRACE(u->w, "user %u calls method %d as %llu.%u at r%u", u->id, (int)o->method, (unsigned long long)o->call, o->attempt, c->server + 1);
	m->session = o->request_id ? sess_id(u->core) : 0;
	m->request_id = o->request_id;
	m->first_unanswered = o->first_unanswered;
	post_call(u, c, soon(u, c->server) + held_up(u), m);
}

/* The cell hears of it sooner or later. */
static void cancel_call(struct user *u, const struct sess_out *o)
{
	struct user_call *c = under_way(u, o->call);

	CHECK(u->w, "calls", c && c->attempt == o->attempt, "user %u cancels call %llu.%u, which is not under way", u->id, (unsigned long long)o->call,
	      o->attempt); /* F3 */
	post_call(u, c, soon(u, c->server) + (chaos(u) && rng_chance(&u->rng, 100000) ? rng_below(&u->rng, 2 * SIM_SECOND) : 0),
		  message(c->tag, c->stream ? EVENT_STREAM_CLOSED : EVENT_CANCEL, c->method, (struct slice){ 0 }));
	c->tag = 0;
}

/* ---- what it is told ---- */

static void wrote(struct user *u, const struct sess_out *o)
{
	Holdfast__V1__NodesSetResponse *r;

	u->writing = false;
	if (o->code != HF_OK) {
		u->version = -1; /* not known */
		return;
	}
	r = holdfast__v1__nodes_set_response__unpack(NULL, o->bytes.len, o->bytes.ptr);
	CHECK(u->w, "P9", r && r->node, "an answer to a write that is none");
	CHECK(u->w, "P9", u->version < 0 || r->node->version == u->version + 1, "user %u wrote once, the node's version went from %lld to %lld", u->id,
	      (long long)u->version, (long long)r->node->version);
	u->version = r->node->version;
	holdfast__v1__nodes_set_response__free_unpacked(r, NULL);
	u->w->totals.library_writes++;
}

static void followed(struct user *u, const struct sess_out *o)
{
	Holdfast__V1__NodesGetResponse *r;
	int64_t mod;

	if (o->code != HF_OK && o->code != HF_NOT_FOUND) {
		u->following = false;
		u->followed = 0;
		return;
	}
	r = holdfast__v1__nodes_get_response__unpack(NULL, o->bytes.len, o->bytes.ptr);
	CHECK(u->w, "P7", r, "an answer to a read that is none");
	mod = r->node ? r->node->mod_revision : 0;
	CHECK(u->w, "P7", mod == 0 || mod > u->followed, "user %u is told revision %lld of what it follows after %lld", u->id, (long long)mod, (long long)u->followed);
	u->shown = mod;
	if (mod)
		u->followed = mod;
	holdfast__v1__nodes_get_response__free_unpacked(r, NULL);
	u->w->totals.library_told++;
}

static void over(struct user *u)
{
	for (uint32_t i = 0; i < USER_CALLS_MAX; i++)
		u->calls[i].tag = 0;
	u->following = u->writing = false;
	u->gone = true;
	user_locks_over(u);
}

/* F1 */
static void in_jeopardy(struct user *u)
{
	struct world *w = u->w;
	const struct replica *leader = NULL;

	w->totals.library_jeopardies++;
	for (uint32_t i = 0; i < w->config.replicas; i++) {
		const struct replica *r = &w->replicas[i];

		if (replica_runs(r) && r->leads && (!leader || r->noted_term > leader->noted_term))
			leader = r;
	}
	CHECK(w, "fail-over", !w->config.calm || u->ttl_s < FOUND_TTL_MIN_S || !leader || w->now < leader->unseen_until || w->now < leader->leads_since + FOUND_WITHIN,
	      "user %u is in jeopardy, %s has led for %llu ms", u->id, leader->name, (unsigned long long)((w->now - leader->leads_since) / SIM_MS));
}

static void carry_out(struct user *u)
{
	struct sess_update up;

	sess_take(u->core, &up);
	for (size_t i = 0; i < up.len; i++) {
		const struct sess_out *o = &up.at[i];

		switch (o->kind) {
		case SESS_CONNECT: connect(u, o); break;
		case SESS_SEND:
			if (o->stream == u->stream)
				post(u, u->tag, EVENT_STREAM_MESSAGE, buf_view(&o->bytes));
			break;
		case SESS_DROP:
			if (o->stream == u->stream)
				drop(u);
			break;
		case SESS_PROBE: probe(u, o->endpoint); break;
		case SESS_CALL: start_call(u, o); break;
		case SESS_CANCEL: cancel_call(u, o); break;
		case SESS_ANSWER:
			if (o->tag == u->write_tag)
				wrote(u, o);
			else if (o->tag == u->read_tag)
				u->reading = false;
			else if (o->tag == ASK_CLOSE)
				u->gone = true;
			else
				(void)user_locks_answer(u, o);
			break;
		case SESS_TOLD:
			if (o->tag == u->follow_tag)
				followed(u, o);
			else
				user_locks_told(u, o);
			break;
		case SESS_LOST: user_locks_lost(u, o); break;
		case SESS_FIRED: break;
		case SESS_STATE:
			TRACE(u->w, "user %u: session %llx, state %d, reason %d", u->id, (unsigned long long)sess_id(u->core), (int)o->state, (int)o->reason);
			if (o->state == HF_JEOPARDY)
				in_jeopardy(u);
			if (o->state == HF_EXPIRED)
				u->gone = true;
			break;
		}
	}
	sess_update_free(&up);
	if (u->gone)
		over(u);
}

static void step(struct user *u, struct sess_event e)
{
	e.now_ms = user_local_ms(u);
	sess_step(u->core, &e);
	carry_out(u);
}

void user_ask(struct user *u, struct sess_ask ask)
{
	step(u, (struct sess_event){ .kind = SESS_ASK, .ask = ask });
}

/* ---- its life ---- */

void user_init(struct world *w, uint32_t id)
{
	struct user *u = &w->users[id];

	memset(u, 0, sizeof *u);
	u->w = w;
	u->id = id;
	rng_init(&u->rng, rng_next(&w->cache_rng));
	u->ppm = w->config.equal_clocks ? 0 : (int32_t)rng_below(&u->rng, 2 * PPM_MAX + 1) - PPM_MAX;
	if (!w->config.equal_clocks && rng_chance(&u->rng, 400000))
		u->ppm = -PPM_MAX;
	if (does_without(w, PIECE_CLOCKS))
		u->ppm = 0;
	u->version = -1;
	u->follow_key = (uint32_t)rng_below(&u->rng, w->config.keys);
	user_locks_init(u);
	if (!left_out(w, PIECE_USER, id))
		sim_at(w, rng_below(&u->rng, SIM_SECOND), (struct ev){ .kind = EV_USER, .a = id });
}

void user_deinit(struct user *u)
{
	sess_free(u->core);
	u->core = NULL;
}

static void begin_session(struct user *u)
{
	static const char *const prefixes[] = { "/", NULL };
	struct sess_config config = { .endpoints = u->w->config.replicas, .seed = rng_next(&u->rng), .ttl_s = (int64_t)rng_between(&u->rng, 2, CACHER_TTL_MAX_S),
				      .grace_ms = (uint32_t)rng_between(&u->rng, 1000, 20000), .cache_max = (uint32_t)rng_between(&u->rng, 2, 60),
				      .cache_prefixes = prefixes, .open_tag = ASK_OPEN, .open_deadline_ms = user_local_ms(u) + 20000 };

	sess_free(u->core);
	u->ttl_s = config.ttl_s;
	u->core = sess_new(&config, user_local_ms(u));
	u->gone = u->closing = false;
	u->followed = 0;
	u->version = 0; /* there is none yet */
	u->w->totals.library_sessions++;
	u->w->totals.library_calm += u->w->config.calm;
}

static void read_key(struct user *u)
{
	char path[8];

	key_text((uint32_t)rng_below(&u->rng, u->w->config.keys), path);
	u->reading = true;
	u->read_tag = ++u->next_tag + ASK_FREE;
	step(u, (struct sess_event){ .kind = SESS_ASK, .ask = { .kind = SESS_ASK_GET, .tag = u->read_tag, .path = slice_of_str(path), .deadline_ms = user_local_ms(u) + 4000 } });
}

static void write_own(struct user *u)
{
	Holdfast__V1__NodesSetRequest r = HOLDFAST__V1__NODES_SET_REQUEST__INIT;
	uint8_t bytes[80];
	char path[40];

	/* A session's own: what an earlier one asked may come late, as long as the cell has not ended that. */
	snprintf(path, sizeof path, "/own/s%llx", (unsigned long long)sess_id(u->core));
	r.path = path;
	r.create = 1;
	u->writing = true;
	u->write_tag = ++u->next_tag + ASK_FREE;
	step(u, (struct sess_event){ .kind = SESS_ASK,
				     .ask = { .kind = SESS_ASK_CALL, .tag = u->write_tag, .method = METHOD_NODES_SET, .once = true, .deadline_ms = SESS_NEVER,
					      .bytes = slice_of(bytes, holdfast__v1__nodes_set_request__pack(&r, bytes)) } });
}

static void follow(struct user *u)
{
	char path[8];

	key_text(u->follow_key, path);
	u->following = true;
	u->follow_tag = ++u->next_tag + ASK_FREE;
	step(u, (struct sess_event){ .kind = SESS_ASK, .ask = { .kind = SESS_ASK_FOLLOW, .tag = u->follow_tag, .path = slice_of_str(path), .deadline_ms = SESS_NEVER } });
}

/* Before it leaves, long after everything was healed, and some time after the last write. */
static void check_end_of_following(const struct user *u)
{
	const struct world *w = u->w;

	if (sess_state(u->core) == HF_SAFE && u->following && !u->closing && mod_now(w, u->follow_key) == u->settled)
		CHECK(u->w, "P7", u->shown == u->settled, "user %u follows k%02u and was last told revision %lld, it is %lld", u->id, u->follow_key,
		      (long long)u->shown, (long long)mod_now(w, u->follow_key));
}

static void work(struct user *u)
{
	if (sess_state(u->core) != HF_SAFE && sess_state(u->core) != HF_JEOPARDY)
		return;
	if (u->w->now < u->w->drain_at + 4 * SIM_SECOND)
		u->settled = mod_now(u->w, u->follow_key);
	if (u->w->now >= u->w->drain_at + 7 * SIM_SECOND) {
		check_end_of_following(u);
		if (!u->closing)
			user_locks_check_end(u);
		if (!u->closing)
			step(u, (struct sess_event){ .kind = SESS_ASK, .ask = { .kind = SESS_ASK_CLOSE, .tag = ASK_CLOSE, .deadline_ms = user_local_ms(u) + 3000 } });
		u->closing = true;
		return;
	}
	if (!u->following && !does_without(u->w, PIECE_USER_FOLLOWS))
		follow(u);
	if (!u->gone && !u->reading && !does_without(u->w, PIECE_USER_READS))
		read_key(u);
	if (!u->gone && !u->writing && u->w->phase < PHASE_DRAIN && rng_chance(&u->rng, 200000) && !does_without(u->w, PIECE_USER_WRITES))
		write_own(u);
	if (!u->gone)
		user_locks_work(u);
}

static bool frozen(struct user *u)
{
	if (u->w->now >= u->frozen_until && chaos(u) && rng_chance(&u->rng, 4000) && !does_without(u->w, PIECE_FREEZES))
		u->frozen_until = u->w->now + rng_between(&u->rng, SIM_SECOND / 2, 9 * SIM_SECOND);
	return u->w->now < u->frozen_until;
}

/* The process at the other end is gone, and the stream with it. */
static void lose_stream_of_dead(struct user *u)
{
	const struct replica *r = &u->w->replicas[u->server];

	if (!u->tag || (r->up && r->generation == u->generation))
		return;
	u->tag = 0;
	step(u, (struct sess_event){ .kind = SESS_STREAM_ENDED, .stream = u->stream, .status = STATUS_UNAVAILABLE });
}

void user_think(struct user *u)
{
	struct world *w = u->w;

	if (frozen(u)) {
		sim_at(w, u->frozen_until, (struct ev){ .kind = EV_USER, .a = u->id });
		return;
	}
	if (u->core)
		read_from_memory(u); /* before anything has looked at a clock */
	if ((!u->core || u->gone) && w->phase < PHASE_DRAIN)
		begin_session(u);
	if (u->core && !u->gone) {
		lose_stream_of_dead(u);
		if (u->tag && chaos(u) && rng_chance(&u->rng, 10000)) {
			post(u, u->tag, EVENT_STREAM_CLOSED, (struct slice){ 0 });
			post_lost(u, u->tag); /* a connection breaks */
		}
		step(u, (struct sess_event){ .kind = SESS_TICK });
	}
	if (u->core && !u->gone)
		work(u);
	sim_at(w, w->now + rng_between(&u->rng, 20 * SIM_MS, 150 * SIM_MS), (struct ev){ .kind = EV_USER, .a = u->id });
}

/* ---- what comes back ---- */

static enum status_code status_of(enum err e)
{
	return e == ERR_CLOSED ? STATUS_UNAVAILABLE : err_status(e);
}

/* F2 */
static void check_is_ours(const struct user *u, struct slice message)
{
	struct slice ended = wire_find_bytes(message, 6);

	CHECK(u->w, "fail-over", wire_find_u64(ended, 1, 0) != HOLDFAST__V1__SESSION_END__SESSION_TAKEN_OVER, "user %u: its newest stream is taken over by one that it gave up",
	      u->id);
}

void user_take(struct user *u, struct ev *e)
{
	struct call_msg *m = e->ptr;
	struct slice left = buf_view(&m->bytes);

	if (u->w->now < u->frozen_until) {
		sim_at(u->w, u->frozen_until, *e);
		return;
	}
	while (!u->gone && u->tag && u->tag == m->op && left.len >= 4) {
		uint32_t len = (uint32_t)left.ptr[0] | (uint32_t)left.ptr[1] << 8 | (uint32_t)left.ptr[2] << 16 | (uint32_t)left.ptr[3] << 24;

		check_is_ours(u, slice_of(left.ptr + 4, len));
		step(u, (struct sess_event){ .kind = SESS_STREAM_MESSAGE, .stream = u->stream, .bytes = slice_of(left.ptr + 4, len) });
		left = slice_of(left.ptr + 4 + len, left.len - 4 - len);
	}
	if (!u->gone && u->tag && u->tag == m->op && m->err) {
		CHECK(u->w, "core", m->err != ERR_SESSION_ACK && m->err != ERR_SESSION_SECRET && m->err != ERR_SESSION_ORDER && m->err != ERR_FUTURE_REVISION &&
					    m->err != ERR_MALFORMED && m->err != ERR_SESSION_SUPERSEDED, "user %u is told: %s", u->id, err_text(m->err));
		u->tag = 0;
		step(u, (struct sess_event){ .kind = SESS_STREAM_ENDED, .stream = u->stream, .status = (int)status_of(m->err), .text = slice_of_str(err_text(m->err)) });
	} else if (!u->gone && u->tag && u->tag == m->op) {
		post(u, u->tag, EVENT_STREAM_WRITABLE, (struct slice){ 0 });
	}
	buf_free(&m->bytes);
	free(m);
}

void user_answer(struct user *u, struct ev *e)
{
	struct call_msg *m = e->ptr;
	struct slice left = buf_view(&m->bytes);
	struct user_call *c;

	if (u->w->now < u->frozen_until) {
		sim_at(u->w, u->frozen_until, *e);
		return;
	}
	c = u->gone ? NULL : call_slot(u, m->op);
	while (c && c->stream && left.len >= 4) {
		uint32_t len = (uint32_t)left.ptr[0] | (uint32_t)left.ptr[1] << 8 | (uint32_t)left.ptr[2] << 16 | (uint32_t)left.ptr[3] << 24;

		step(u, (struct sess_event){ .kind = SESS_PART, .call = c->call, .attempt = c->attempt, .bytes = slice_of(left.ptr + 4, len) });
		left = slice_of(left.ptr + 4 + len, left.len - 4 - len);
		c = u->gone ? NULL : call_slot(u, m->op);
	}
	if (c && c->stream && !m->err) {
		post_call(u, c, soon(u, c->server), message(c->tag, EVENT_STREAM_WRITABLE, c->method, (struct slice){ 0 }));
	} else if (c) {
		c->tag = 0;
		TRACE(u->w, "user %u is answered %llu.%u: %s", u->id, (unsigned long long)c->call, c->attempt, m->err ? err_text(m->err) : "ok");
		step(u, (struct sess_event){ .kind = SESS_REPLY, .call = c->call, .attempt = c->attempt, .status = (int)status_of(m->err),
					     .text = slice_of_str(m->err ? err_text(m->err) : ""), .bytes = c->stream ? (struct slice){ 0 } : buf_view(&m->bytes) });
	}
	buf_free(&m->bytes);
	free(m);
}

/* ---- at its replica ---- */

void user_arrives(struct world *w, const struct ev *e)
{
	struct call_msg *m = e->ptr;
	struct replica *r = &w->replicas[e->b];
	struct inbox_item item = { .event = { .kind = (enum core_event_kind)m->err }, .bytes = buf_take(&m->bytes), .user = e->a + 1 };

	if (item.event.kind == PROBE) {
		item.probe = true;
	} else if (item.event.kind == EVENT_REQUEST) {
		item.request = (struct core_request){ .tag = m->op, .method = m->method, .client = slice_of_str("u"), .session = m->session,
						      .request_id = m->request_id, .first_unanswered = m->first_unanswered,
						      .now_unix_ms = replica_unix_ms(r) };
	} else if (item.event.kind == EVENT_CANCEL) {
		item.event.tag = m->op;
	} else {
		item.event.stream.tag = m->op;
		item.event.stream.method = m->method;
		item.event.stream.bytes = buf_view(&item.bytes);
	}
	if (r->up && r->generation == e->n)
		replica_put(r, &r->others, item);
	else
		buf_free(&item.bytes);
	free(m);
}

/* Asked as it runs, between two batches. */
void user_probed(struct replica *r, const struct inbox_item *item)
{
	struct world *w = r->w;
	struct user *u = &w->users[item->user - 1];
	struct core_status st;

	core_status(r->core, &st);
	sim_at(w, soon(u, r->id), (struct ev){ .kind = EV_USER_HEARD, .a = u->id, .b = r->id, .n = st.serving });
}

void user_heard(struct user *u, const struct ev *e)
{
	if (u->w->now < u->frozen_until)
		sim_at(u->w, u->frozen_until, *e);
	else if (u->core && !u->gone)
		TRACE(u->w, "user %u hears of r%u: %s", u->id, e->b + 1, e->n ? "serves" : "does not serve"),
		step(u, (struct sess_event){ .kind = SESS_HEARD, .endpoint = e->b, .serves = e->n != 0 });
}

/* Right before the core has it. */
void user_steps(struct inbox_item *item)
{
	if (item->event.kind != EVENT_REQUEST)
		return;
	item->request.bytes = buf_view(&item->bytes);
	item->event.request = &item->request;
}

/* False: not one of a user's. */
bool user_answered(struct replica *r, struct core_answer *a)
{
	struct world *w = r->w;

	if (a->tag < TAG_BASE)
		return false;
	for (uint32_t i = 0; i < w->config.users; i++) {
		struct user *u = &w->users[i];
		struct call_msg *m;

		if (!call_slot(u, a->tag))
			continue;
		m = mem_zalloc(sizeof *m);
		m->op = a->tag;
		m->err = a->err;
		m->bytes = buf_take(&a->reply);
		sim_at(w, soon(u, r->id) + (rng_chance(&u->rng, 100000) ? rng_below(&u->rng, 2 * SIM_SECOND) : 0), (struct ev){ .kind = EV_USER_ANSWER, .a = i, .ptr = m });
		break;
	}
	buf_free(&a->reply);
	return true;
}

/* False: nothing of a user's. */
bool user_output(struct replica *r, struct core_output *o)
{
	struct world *w = r->w;

	for (uint32_t i = 0; i < w->config.users; i++) {
		struct user *u = &w->users[i];
		struct user_call *c = o->stream > TAG_BASE ? call_slot(u, o->stream) : NULL;
		struct call_msg *m;

		if (u->tag != o->stream && !c)
			continue;
		m = mem_zalloc(sizeof *m);
		m->op = o->stream;
		m->err = o->finished ? (o->err ? o->err : ERR_CLOSED) : ERR_OK;
		m->bytes = buf_take(&o->messages);
		sim_at(w, in_order(soon(u, r->id), c ? &c->last_told : &u->last_told),
		       (struct ev){ .kind = c ? EV_USER_ANSWER : EV_USER_OUT, .a = i, .ptr = m });
		return true;
	}
	return false;
}
