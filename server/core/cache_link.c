/* cache_link.c: reads that want to be cached or watched, and what the replica of a session's stream and the leader say to each other about it.
 *
 * A Get that wants a grant first asks the leader for it, who notes that the session caches the thing unless a write of it is under way; only then it is
 * read as any linearizable read, here.
 *   (K1) so whatever was written before the grant is in the answer; and whatever is proposed after it waits for this session to acknowledge. Should
 *        such a write be seen by the read already, or have been waited for, the client has acknowledged an invalidation since it asked, or lost its
 *        right, and by either renounces the answer.
 *   (K2) a grant names the term of the leader that gave it. In an answer it stands only while this replica knows no later term.
 *   (K3) invalidations go to the stream in the order of their numbers, none left out: a cumulative acknowledgement vouches for all. What arrives out of
 *        order is dropped; the leader sends all that is owed again until it is acknowledged.
 *   (K4) nothing is granted that the user of the session's stream may not read by the leader's state: he would hear when it changes. What takes a right
 *        away comes into the log as a write of what it was a right to, so K1 holds for that too.
 * Every message may be lost or come twice. Questions are repeated by whoever asked, invalidations by the leader, and an acknowledgement that was
 * lost is repeated when its invalidation comes again. */
#include "internal.h"

enum { TO_LEADER = 20, FROM_LEADER = 21, RESPONSE_INVALIDATION = 3 };

/* ---- reads ---- */

struct node_read {
	lease_id session;
	bool cache;
	uint64_t watch;
	enum cache_aspect aspect;
	struct slice path;
};

static struct node_read parse_read(uint32_t method, struct slice request)
{
	return (struct node_read){
		.session = (lease_id)wire_find_u64(request, 2, 0),
		.cache = wire_find_u64(request, 3, 0) != 0,
		.watch = wire_find_u64(request, 4, 0),
		.aspect = method == METHOD_NODES_LIST ? CACHE_CHILDREN : CACHE_VALUE,
		.path = kv_node_path(request),
	};
}

static bool wants_grant(const struct core *c, const struct node_read *n)
{
	const struct open_session *record = n->cache ? session_find(&c->state, n->session) : NULL;

	return record && session_may_cache(record, n->path);
}

void node_read_submit(struct core *c, const struct core_request *r)
{
	struct node_read n = parse_read(r->method, r->bytes);
	const struct client_stream *s = sessions_find(c, n.session);
	struct call *call;

	if ((n.cache || n.watch) && !s) {
		answer_now(c, r->tag, ERR_SESSION_ELSEWHERE, NULL);
		return;
	}
	call = call_new(c, CALL_READ, r->tag, r->method);
	call->bytes = buf_copy_of(r->bytes);
	if (wants_grant(c, &n))
		call_move(call, PLACE_FRESH, &c->sessions.asks_fresh);
	else
		read_submit(c, call);
}

/* The state is recent enough. */
enum err node_read_run(struct core *c, const struct call *call, struct buf *reply)
{
	struct node_read n = parse_read(call->method, buf_view(&call->bytes));
	struct client_stream *s = sessions_find(c, n.session);
	raft_term grant = call->grant == c->term ? call->grant : 0; /* K2 */
	enum err e;

	if ((n.cache || n.watch) && !s)
		return ERR_SESSION_ELSEWHERE;
	e = n.aspect == CACHE_VALUE ? kv_node_get(&c->env, buf_view(&call->bytes), grant, reply) :
				      kv_node_list(&c->env, buf_view(&call->bytes), grant, reply);
	if (!e && n.watch)
		e = node_watch_arm(c, s, n.watch, n.aspect, n.path);
	return e;
}

/* ---- asking for grants ---- */

static void granted(struct core *c, struct call *call, bool yes, raft_term term)
{
	call->grant = yes ? term : 0;
	call_forget_number(c, call);
	read_submit(c, call);
}

/* Whom the invalidations would tell; lent until the next event. */
static struct slice user_of(struct core *c, lease_id session)
{
	const struct client_stream *s = sessions_find(c, session);
	struct auth_who who = { 0 };

	return s && stream_user(c, s->tag, &who) == ERR_OK ? who.user : slice_of(NULL, 0);
}

static void ask_here(struct core *c)
{
	while (!list_empty(&c->sessions.asks_fresh)) {
		struct call *call = CONTAINER_OF(c->sessions.asks_fresh.next, struct call, link);
		struct node_read n = parse_read(call->method, buf_view(&call->bytes));

		granted(c, call, gate_grant(c, n.session, user_of(c, n.session), n.aspect, n.path), c->term);
	}
}

static void write_ask(struct core *c, const struct call *call, struct buf *out)
{
	struct node_read n = parse_read(call->method, buf_view(&call->bytes));
	size_t mark = pbw_open(out, 2);

	pbw_u64(out, 1, call->number);
	pbw_fixed64(out, 2, (uint64_t)n.session);
	pbw_u64(out, 3, n.aspect);
	pbw_bytes(out, 4, n.path);
	pbw_bytes(out, 5, user_of(c, n.session));
	pbw_close(out, mark);
}

static void send_some(struct core *c, member_id to, uint32_t field, struct buf *body, size_t more_than)
{
	if (body->len <= more_than)
		return;
	peer_send(c, to, field, buf_view(body));
	buf_clear(body);
}

static void write_acks(struct core *c, struct buf *body)
{
	struct list *l;

	while ((l = list_pop_front(&c->sessions.acks))) {
		struct client_stream *s = CONTAINER_OF(l, struct client_stream, ack_link);
		size_t mark = pbw_open(body, 1);

		s->ack_due = false;
		pbw_fixed64(body, 1, (uint64_t)s->session);
		pbw_u64(body, 2, s->owed_term);
		pbw_u64(body, 3, s->acked);
		pbw_close(body, mark);
		send_some(c, c->leader, TO_LEADER, body, CACHE_MESSAGE_BYTES);
	}
}

static void ask_leader(struct core *c)
{
	struct buf body = { 0 };

	write_acks(c, &body);
	while (!list_empty(&c->sessions.asks_fresh)) {
		struct call *call = CONTAINER_OF(c->sessions.asks_fresh.next, struct call, link);

		if (!call->number)
			call_number(c, call);
		call->asked_at = c->now;
		call_move(call, PLACE_ASKED, &c->sessions.asks_sent);
		write_ask(c, call, &body);
		send_some(c, c->leader, TO_LEADER, &body, CACHE_MESSAGE_BYTES);
	}
	send_some(c, c->leader, TO_LEADER, &body, 0);
	buf_free(&body);
}

/* In front, in order. */
static void ask_again(struct core *c, time_ms older_than)
{
	while (!list_empty(&c->sessions.asks_sent)) {
		struct call *call = CONTAINER_OF(c->sessions.asks_sent.next, struct call, link);

		if (call->asked_at > older_than)
			return;
		call_move(call, PLACE_FRESH, &c->sessions.asks_fresh);
	}
}

/* Nothing that the former leader granted counts for the present one: who has not begun to read asks anew. */
void cache_link_role_changed(struct core *c)
{
	ask_again(c, TIME_NEVER);
}

void cache_link_tick(struct core *c)
{
	if (c->now >= resend_ms(c))
		ask_again(c, c->now - resend_ms(c));
}

/* ---- acknowledgements and questions, at the leader ---- */

/* False: forged. */
static bool take_ack(struct core *c, lease_id session, raft_term term, uint64_t number)
{
	return !core_leads(c) || term != c->term || cache_ack(c->gate.cache, session, number, c->now);
}

static void acks_here(struct core *c)
{
	struct list *l;

	while ((l = list_pop_front(&c->sessions.acks))) {
		struct client_stream *s = CONTAINER_OF(l, struct client_stream, ack_link);

		s->ack_due = false;
		if (!take_ack(c, s->session, s->owed_term, s->acked))
			client_stream_end(c, s, ERR_SESSION_ACK);
	}
}

static void answer_ask(struct core *c, struct slice ask, struct buf *out)
{
	struct slice path = wire_find_bytes(ask, 4);
	uint64_t aspect = wire_find_u64(ask, 3, 0);
	bool yes = aspect <= CACHE_CHILDREN && gate_grant(c, (lease_id)wire_find_u64(ask, 2, 0), wire_find_bytes(ask, 5),
							       (enum cache_aspect)aspect, path);
	size_t mark = pbw_open(out, 3);

	pbw_u64(out, 1, wire_find_u64(ask, 1, 0));
	pbw_u64(out, 2, yes);
	pbw_close(out, mark);
}

void cache_link_to_leader(struct core *c, struct peer *p, struct slice body)
{
	struct buf reply = { 0 };
	struct wire w;

	if (!core_leads(c))
		return; /* asked again, as soon as it knows who does */
	for (wire_init(&w, body); wire_next(&w);) {
		struct slice item = w.field == 1 || w.field == 2 ? wire_bytes(&w) : (struct slice){ 0 };
		lease_id session = (lease_id)wire_find_u64(item, 1, 0);

		if (w.field == 2)
			answer_ask(c, item, &reply);
		else if (w.field == 1 && !take_ack(c, session, wire_find_u64(item, 2, 0), wire_find_u64(item, 3, 0)))
			pbw_fixed64(&reply, 4, (uint64_t)session);
	}
	if (reply.len > 0) {
		pbw_u64(&reply, 1, c->term);
		pbw_u64(&reply, 5, p->boot);
		peer_send(c, p->id, FROM_LEADER, buf_view(&reply));
	}
	buf_free(&reply);
}

/* ---- invalidations, to the streams ---- */

struct outbound {
	struct core *core;
	struct {
		member_id to;
		struct buf body;
	} at[RAFT_MEMBERS_MAX];
	size_t len;
};

static void pass_on(struct core *c, struct client_stream *s, raft_term term, struct slice invalidation)
{
	struct buf body = { 0 };

	pbw_u64(&body, 2, term);
	buf_append_slice(&body, invalidation);
	client_stream_emit(c, s, RESPONSE_INVALIDATION, buf_view(&body));
	buf_free(&body);
}

/* K3. owed: with invalidations as field 3. */
static void receive_owed(struct core *c, lease_id session, raft_term term, uint64_t settled, struct slice owed)
{
	struct client_stream *s = sessions_find(c, session);
	struct wire w;

	if (!s || term < s->owed_term || term < c->term)
		return;
	if (term > s->owed_term) {
		s->owed_term = term;
		s->passed = s->acked = 0;
	}
	if (settled > s->passed)
		s->passed = settled;
	for (wire_init(&w, owed); wire_next(&w) && s->state == CLIENT_OPEN;) {
		struct slice v = w.field == 3 ? wire_bytes(&w) : (struct slice){ 0 };

		if (w.field != 3 || wire_find_u64(v, 1, 0) != s->passed + 1)
			continue;
		s->passed++;
		pass_on(c, s, term, v);
	}
	if (s->state == CLIENT_OPEN && s->acked > settled && !s->ack_due) {
		s->ack_due = true;
		list_push_back(&c->sessions.acks, &s->ack_link);
	}
}

static struct buf *body_for(struct outbound *o, member_id to)
{
	size_t i = 0;

	while (i < o->len && o->at[i].to != to)
		i++;
	if (i == RAFT_MEMBERS_MAX)
		return NULL;
	if (i == o->len) {
		o->at[i].to = to;
		o->len++;
	}
	if (o->at[i].body.len == 0)
		pbw_u64(&o->at[i].body, 1, o->core->term);
	return &o->at[i].body;
}

static void send_owed(void *ctx, lease_id id, uint64_t settled, struct slice invalidations)
{
	struct outbound *o = ctx;
	const struct open_session *record = session_find(&o->core->state, id);
	struct buf *body;
	size_t mark;

	if (!record || !member_find(&o->core->state, record->place.member))
		return; /* where its stream was there is no replica any more: it comes again once it has another */
	if (record->place.member == o->core->config.member) {
		receive_owed(o->core, id, o->core->term, settled, invalidations);
		return;
	}
	body = body_for(o, record->place.member);
	if (!body)
		return; /* more members than there can be: those that left; it comes again */
	mark = pbw_open(body, 2);
	pbw_fixed64(body, 1, (uint64_t)id);
	pbw_u64(body, 2, settled);
	buf_append_slice(body, invalidations);
	pbw_close(body, mark);
	send_some(o->core, record->place.member, FROM_LEADER, body, CACHE_MESSAGE_BYTES);
}

static void send_invalidations(struct core *c)
{
	struct outbound o = { .core = c };

	cache_send(c->gate.cache, c->now, send_owed, &o);
	for (size_t i = 0; i < o.len; i++) {
		send_some(c, o.at[i].to, FROM_LEADER, &o.at[i].body, 0);
		buf_free(&o.at[i].body);
	}
}

static void receive_granted(struct core *c, struct slice item, raft_term term)
{
	struct call *call = map64_get(&c->calls.by_number, wire_find_u64(item, 1, 0));

	if (call && call->kind == CALL_READ && call->place == PLACE_ASKED)
		granted(c, call, wire_find_u64(item, 2, 0) != 0, term);
}

void cache_link_from_leader(struct core *c, struct slice body)
{
	raft_term term = wire_find_u64(body, 1, 0);
	bool ours = wire_find_u64(body, 5, 0) == c->config.boot;
	struct wire w;

	if (term != c->term)
		return;
	for (wire_init(&w, body); wire_next(&w);) {
		struct slice item = w.field == 2 || w.field == 3 ? wire_bytes(&w) : (struct slice){ 0 };
		struct client_stream *s;

		if (w.field == 2) {
			receive_owed(c, (lease_id)wire_find_u64(item, 1, 0), term, wire_find_u64(item, 2, 0), item);
		} else if (w.field == 3 && ours) {
			receive_granted(c, item, term);
		} else if (w.field == 4 && (s = sessions_find(c, wire_i64(&w)))) {
			client_stream_end(c, s, ERR_SESSION_ACK);
		}
	}
}

/* ---- in each take ---- */

void cache_link_flush(struct core *c)
{
	if (core_leads(c)) {
		ask_here(c);
		acks_here(c);
		send_invalidations(c);
		acks_here(c);
	} else if (c->role != RAFT_LEADER && c->leader) {
		ask_leader(c);
	}
}

bool cache_link_waits(const struct core *c)
{
	if (core_leads(c))
		return !list_empty(&c->sessions.asks_fresh) || !list_empty(&c->sessions.acks) || cache_has_due(c->gate.cache);
	return c->role != RAFT_LEADER && c->leader && (!list_empty(&c->sessions.asks_fresh) || !list_empty(&c->sessions.acks));
}
