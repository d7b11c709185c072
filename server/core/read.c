/* read.c: linearizable reads, by ReadIndex.
 *
 * A read may be answered from the state here once two things hold: the cell's commit index of a moment after the read arrived is known,
 * and everything up to it is applied here. The leader knows its own commit index, but not that it still leads: a quorum round tells.
 *
 *   (D1) a round is begun after everything in it arrived, and its index is taken then. What arrives later goes with a later round.
 *   (D2) a round counts in the term in which it was begun; when this replica no longer leads in it, its reads start over and followers are
 *        told to ask again.
 *   (D3) a follower's batch is closed when it is sent. Whatever copy of the question the leader answers, it was asked after all reads in
 *        it had arrived. A batch's number is never used again by this incarnation, and answers name the incarnation.
 *   (D4) reads wait in order of their index, and run when it is applied.
 * A leader that has committed nothing of its own term does not know the commit index: reads wait (raft_read_index is 0). */
#include "internal.h"

#define SLOW_READ_MS 500 /* as etcd counts it */

void reads_init(struct core *c)
{
	list_init(&c->reads.fresh);
	list_init(&c->reads.waiting);
	list_init(&c->reads.rounds);
	list_init(&c->reads.asks);
	list_init(&c->reads.batches);
	c->reads.next_id = 1;
}

static void asks_free(struct list *asks)
{
	struct list *l;

	while ((l = list_pop_front(asks)))
		free(CONTAINER_OF(l, struct ask, link));
}

void reads_deinit(struct core *c)
{
	struct list *l;

	while ((l = list_pop_front(&c->reads.rounds))) {
		struct round *r = CONTAINER_OF(l, struct round, link);

		asks_free(&r->asks);
		free(r);
	}
	asks_free(&c->reads.asks);
	while ((l = list_pop_front(&c->reads.batches)))
		free(CONTAINER_OF(l, struct read_batch, link));
}

/* Moves all calls of a list to the end of another, in order. */
static void move_all(struct list *from, enum call_place place, struct list *to)
{
	while (!list_empty(from))
		call_move(CONTAINER_OF(from->next, struct call, link), place, to);
}

void read_submit(struct core *c, struct call *call)
{
	call_move(call, PLACE_FRESH, &c->reads.fresh);
}

/* ---- leader: rounds ---- */

static bool round_wanted(const struct core *c)
{
	return !list_empty(&c->reads.fresh) || !list_empty(&c->reads.asks) || (core_leads(c) && !list_empty(&c->renews.fresh));
}

static void begin_round(struct core *c)
{
	struct round *r;
	raft_index index = raft_read_index(c->raft);

	if (!round_wanted(c) || c->reads.rounds_len >= ROUNDS_MAX || index == 0)
		return;
	r = mem_alloc(sizeof *r);
	r->number = raft_begin_round(c->raft);
	ASSERT(r->number > 0);
	r->index = index;
	r->begun_at = c->now;
	list_init(&r->reads);
	list_init(&r->renews);
	list_init(&r->asks);
	move_all(&c->reads.fresh, PLACE_ASKED, &r->reads);
	if (core_leads(c))
		renew_join(c, r);
	while (!list_empty(&c->reads.asks)) {
		struct list *l = list_pop_front(&c->reads.asks);

		list_push_back(&r->asks, l);
	}
	list_push_back(&c->reads.rounds, &r->link);
	c->reads.rounds_len++;
}

static void send_index(struct core *c, const struct ask *a, raft_index index)
{
	struct buf body = { 0 };

	pbw_u64(&body, 1, a->id);
	pbw_u64(&body, 2, index);
	pbw_u64(&body, 3, index == 0);
	pbw_u64(&body, 4, a->boot);
	peer_send(c, a->from, 14, buf_view(&body));
	buf_free(&body);
}

static void answer_asks(struct core *c, struct round *r)
{
	struct list *l;

	while ((l = list_pop_front(&r->asks))) {
		struct ask *a = CONTAINER_OF(l, struct ask, link);

		if (a->renew)
			renew_ask_finish(c, r, a);
		else
			send_index(c, a, r->index);
		c->reads.asks_len--;
		free(a);
	}
}

/* A quorum, or the leader, took long to say where the reads have to wait for. */
static void note_time(struct core *c, time_ms begun_at)
{
	c->seen.reads_slow += c->now - begun_at > SLOW_READ_MS;
}

static void finish_round(struct core *c, struct round *r)
{
	note_time(c, r->begun_at);
	list_remove(&r->link);
	c->reads.rounds_len--;
	while (!list_empty(&r->reads))
		read_wait_applied(c, CONTAINER_OF(r->reads.next, struct call, link), r->index);
	renew_finish(c, r);
	answer_asks(c, r);
	free(r);
}

void rounds_confirm(struct core *c)
{
	while (!list_empty(&c->reads.rounds)) {
		struct round *r = CONTAINER_OF(c->reads.rounds.next, struct round, link);

		if (r->number > c->reads.confirmed || c->state.applied.index < r->index)
			return;
		finish_round(c, r);
	}
}

static void refuse_asks(struct core *c, struct list *asks)
{
	struct list *l;

	while ((l = list_pop_front(asks))) {
		struct ask *a = CONTAINER_OF(l, struct ask, link);

		if (a->renew)
			renew_not_ready(c, a->from, a->boot, a->id);
		else
			send_index(c, a, 0);
		c->reads.asks_len--;
		free(a);
	}
}

/* D2 */
void rounds_dissolve(struct core *c)
{
	struct list *l;

	while ((l = list_pop_front(&c->reads.rounds))) {
		struct round *r = CONTAINER_OF(l, struct round, link);

		move_all(&r->reads, PLACE_FRESH, &c->reads.fresh);
		move_all(&r->renews, PLACE_FRESH, &c->renews.fresh);
		refuse_asks(c, &r->asks);
		free(r);
	}
	refuse_asks(c, &c->reads.asks);
	c->reads.rounds_len = 0;
	c->reads.confirmed = 0;
}

struct ask *ask_new(struct core *c, struct peer *p, uint64_t id, size_t leases, size_t queries)
{
	struct ask *a = mem_zalloc(sizeof *a + (2 * leases + queries) * sizeof(int64_t) + leases * sizeof(bool));

	a->from = p->id;
	a->boot = p->boot;
	a->id = id;
	a->leases_len = leases;
	a->queries_len = queries;
	a->ids = (lease_id *)(void *)(a + 1);
	a->ttls = a->ids + leases + queries;
	a->extended = (bool *)(void *)(a->ttls + leases);
	list_push_back(&c->reads.asks, &a->link);
	c->reads.asks_len++;
	return a;
}

void read_ask(struct core *c, struct peer *p, struct slice body)
{
	uint64_t id = wire_find_u64(body, 1, 0);
	struct ask none = { .from = p->id, .boot = p->boot, .id = id };

	if (raft_role(c->raft) != RAFT_LEADER || raft_read_index(c->raft) == 0)
		send_index(c, &none, 0);
	else if (c->reads.asks_len < ASKS_MAX) /* else: it is asked again */
		ask_new(c, p, id, 0, 0);
}

/* ---- follower: batches ---- */

static void send_batch(struct core *c, struct read_batch *b)
{
	struct buf body = { 0 };

	pbw_u64(&body, 1, b->id);
	peer_send(c, c->leader, 13, buf_view(&body));
	buf_free(&body);
	b->sent_at = c->now;
}

static void begin_batch(struct core *c)
{
	struct read_batch *b;

	if (list_empty(&c->reads.fresh) || c->reads.batches_len >= BATCHES_MAX || c->now < c->reads.retry_at)
		return;
	b = mem_alloc(sizeof *b);
	list_init(&b->reads);
	b->id = c->reads.next_id++;
	b->begun_at = c->now;
	move_all(&c->reads.fresh, PLACE_ASKED, &b->reads);
	list_push_back(&c->reads.batches, &b->link);
	c->reads.batches_len++;
	send_batch(c, b);
}

static void batch_free(struct core *c, struct read_batch *b)
{
	list_remove(&b->link);
	c->reads.batches_len--;
	free(b);
}

void read_flush(struct core *c)
{
	if (c->role == RAFT_LEADER) {
		begin_round(c);
	} else if (c->leader) {
		begin_batch(c);
		renew_flush(c);
	}
}

void read_batches_dissolve(struct core *c)
{
	while (!list_empty(&c->reads.batches)) {
		struct read_batch *b = CONTAINER_OF(c->reads.batches.next, struct read_batch, link);

		move_all(&b->reads, PLACE_FRESH, &c->reads.fresh);
		batch_free(c, b);
	}
	c->reads.retry_at = 0;
}

static struct read_batch *find_batch(const struct core *c, uint64_t id)
{
	LIST_FOR_EACH(l, &c->reads.batches) {
		struct read_batch *b = CONTAINER_OF(l, struct read_batch, link);

		if (b->id == id)
			return b;
	}
	return NULL;
}

void read_reply(struct core *c, struct slice body)
{
	struct read_batch *b = find_batch(c, wire_find_u64(body, 1, 0));
	raft_index index = wire_find_u64(body, 2, 0);

	if (!b || wire_find_u64(body, 4, 0) != c->config.boot)
		return;
	if (wire_find_u64(body, 3, 0) || index == 0) {
		move_all(&b->reads, PLACE_FRESH, &c->reads.fresh);
		c->reads.retry_at = c->now + c->config.heartbeat_ms / 2;
	}
	note_time(c, b->begun_at);
	while (!list_empty(&b->reads))
		read_wait_applied(c, CONTAINER_OF(b->reads.next, struct call, link), index);
	batch_free(c, b);
}

void read_resend(struct core *c)
{
	if (c->role == RAFT_LEADER || !c->leader)
		return;
	LIST_FOR_EACH(l, &c->reads.batches) {
		struct read_batch *b = CONTAINER_OF(l, struct read_batch, link);

		if (c->now - b->sent_at >= resend_ms(c))
			send_batch(c, b);
	}
}

/* ---- both: the state has to be there ---- */

void read_wait_applied(struct core *c, struct call *call, raft_index index)
{
	struct list *after = c->reads.waiting.prev;

	while (after != &c->reads.waiting && CONTAINER_OF(after, struct call, link)->index > index)
		after = after->prev;
	call_move(call, PLACE_APPLY, NULL);
	call->index = index;
	list_insert_between(&call->link, after, after->next);
}

static enum err read_from_state(struct core *c, struct call *call, struct buf *reply)
{
	enum err e = call_may(c, call, buf_view(&call->bytes));

	if (e)
		return e;
	switch ((enum method_id)call->method) {
	case METHOD_AUTH_AUTHENTICATE:
	case METHOD_AUTH_STATUS:
	case METHOD_AUTH_USER_GET:
	case METHOD_AUTH_USER_LIST:
	case METHOD_AUTH_ROLE_GET:
	case METHOD_AUTH_ROLE_LIST:
		return identity_read(c, (enum method_id)call->method, buf_view(&call->bytes), reply);
	case METHOD_KV_RANGE:
		return kv_range(&c->env, buf_view(&call->bytes), reply);
	case METHOD_KV_RANGE_STREAM:
		return kv_range_part(&c->env, buf_view(&call->bytes), reply);
	case METHOD_KV_TXN:
		return kv_txn_read(&c->env, buf_view(&call->bytes), reply);
	case METHOD_LEASE_LEASES:
		kv_lease_list_reply(&c->env, reply);
		return ERR_OK;
	case METHOD_CLUSTER_MEMBER_LIST:
		member_list_reply(c, reply);
		return ERR_OK;
	case METHOD_ELECTION_LEADER:
		return kv_leader(&c->env, buf_view(&call->bytes), reply);
	case METHOD_LOCKS_LIST:
		return kv_locks_list(&c->env, buf_view(&call->bytes), reply);
	case METHOD_LOCKS_VERIFY:
		return kv_locks_verify(&c->env, buf_view(&call->bytes), reply);
	case METHOD_NODES_GET:
	case METHOD_NODES_LIST:
		return node_read_run(c, call, reply);
	case METHOD_MAINTENANCE_ALARM:
		alarms_list(c, buf_view(&call->bytes), reply);
		return ERR_OK;
	case METHOD_MAINTENANCE_SNAPSHOT: /* the stream follows, once the state here is recent enough */
		kv_write_header(&c->env, c->state.revision, reply, 1);
		return ERR_OK;
	default:
		return ERR_UNIMPLEMENTED;
	}
}

static void read_run(struct core *c, struct call *call)
{
	struct buf reply = { 0 };
	enum err e;

	if (call->lock) {
		lock_confirmed(c, call);
	} else if (call->ask) {
		call_answer(c, call, call_may(c, call, buf_view(&call->bytes)), &reply);
	} else if (call->aside) {
		identity_resume(c, call);
	} else if (call->kind == CALL_QUERY) {
		renew_query_run(c, call);
	} else if (call->kind == CALL_STREAM) {
		streams_confirmed(c, call);
	} else {
		e = read_from_state(c, call, &reply);
		arena_clear(&c->arena);
		call_answer(c, call, e, &reply);
	}
}

void reads_run(struct core *c)
{
	while (!list_empty(&c->reads.waiting)) {
		struct call *call = CONTAINER_OF(c->reads.waiting.next, struct call, link);

		if (call->index > c->state.applied.index)
			return;
		read_run(c, call);
	}
}

/* Something has come up since the flush that could go now. */
bool read_waits(const struct core *c)
{
	if (c->role == RAFT_LEADER)
		return round_wanted(c) && c->reads.rounds_len < ROUNDS_MAX && raft_read_index(c->raft) != 0;
	if (!c->leader)
		return false;
	return (!list_empty(&c->reads.fresh) && c->reads.batches_len < BATCHES_MAX && c->now >= c->reads.retry_at) ||
	       (!list_empty(&c->renews.fresh) && c->renews.batches_len < BATCHES_MAX && c->now >= c->renews.retry_at);
}
