/* renew.c: keep-alives and questions for the time to live, answered without a log entry.
 *
 *   (N1) the leader moves a deadline when the keep-alive arrives, and answers only once a quorum round begun afterwards is confirmed. So
 *        whoever led later took over after the client had sent it, and gives the lease a full TTL from then on (lessor_promote). A leader
 *        that has been replaced without knowing gets no confirmation, and promises nothing.
 *   (N2) only a leader that has applied an entry of its own term serves: before that it does not know which leases there are.
 *   (N3) "the lease is gone" (TTL 0) is said only after the same confirmation, and once everything is applied that was committed when the
 *        round began: neither a deposed leader nor one that lags may say so wrongly.
 *   (N4) a closed lease (its end is proposed) is not renewed, and not declared gone either: the call is parked until its end is applied or
 *        this replica stops leading.
 *   (N5) "it lives" likewise: a leader whose disk is slow may apply a revoke after others did and told of it, and must not say of a lease that was
 *        revoked before the call came that it lives on.
 * A follower sends batches; the answer names one number a lease. What was not answered is sent again with the next batch: to renew twice
 * does no harm. A follower moves no deadline and knows none. */
#include "internal.h"

#define TTL_ASK_AGAIN (-2)

void renews_init(struct core *c)
{
	list_init(&c->renews.fresh);
	list_init(&c->renews.parked);
	list_init(&c->renews.batches);
	c->renews.parked_at = TIME_NEVER;
}

static void batch_free(struct core *c, struct renew_batch *b)
{
	list_remove(&b->link);
	c->renews.batches_len--;
	buf_free(&b->body);
	free(b->calls);
	free(b);
}

void renews_deinit(struct core *c)
{
	renew_batches_dissolve(c);
}

/* ---- one call ---- */

static void renew_here(struct core *c, struct call *call)
{
	call->renewed = true;
	call->renewed_err = lessor_renew(c->lessor, call->lease, c->now, &call->ttl_s);
	call->extended = call->renewed_err == ERR_OK && gate_extend(c, call->lease, call->ttl_s);
	c->seen.leases_renewed += call->renewed_err == ERR_OK;
}

void renew_submit(struct core *c, struct call *call)
{
	if (call->kind == CALL_RENEW && core_leads(c))
		renew_here(c, call);
	call_move(call, PLACE_FRESH, &c->renews.fresh);
}

void renew_own(struct core *c, lease_id lease)
{
	struct call *call = call_new(c, CALL_RENEW, 0, METHOD_LEASE_KEEP_ALIVE);

	call->lease = lease;
	renew_submit(c, call);
}

static void answer_renew(struct core *c, struct call *call, int64_t ttl_s)
{
	struct buf reply = { 0 };

	if (call->tag) {
		buf_reserve(&reply, 64);
		kv_write_header(&c->env, c->state.revision, &reply, 1);
		pbw_i64(&reply, 2, call->lease);
		pbw_i64(&reply, 3, ttl_s);
	}
	if (call->session_tag)
		sessions_kept_alive(c, call, ttl_s);
	call_answer(c, call, ERR_OK, &reply);
}

/* N4 */
static void park(struct core *c, struct call *call)
{
	call->renewed = false;
	call_move(call, PLACE_PARKED, &c->renews.parked);
	if (c->renews.parked_at == TIME_NEVER)
		c->renews.parked_at = c->now + resend_ms(c);
}

static void back_to_fresh(struct core *c, struct call *call)
{
	call->renewed = false;
	call->batch = NULL;
	call_move(call, PLACE_FRESH, &c->renews.fresh);
}

void renew_unpark(struct core *c)
{
	while (!list_empty(&c->renews.parked))
		back_to_fresh(c, CONTAINER_OF(c->renews.parked.next, struct call, link));
	c->renews.parked_at = TIME_NEVER;
}

void renew_role_changed(struct core *c)
{
	LIST_FOR_EACH(l, &c->renews.fresh)
		CONTAINER_OF(l, struct call, link)->renewed = false;
	renew_unpark(c);
}

void renew_query_run(struct core *c, struct call *call)
{
	struct buf reply = { 0 };

	struct buf question = { 0 };
	enum err e;

	pbw_i64(&question, 1, call->lease);
	pbw_u64(&question, 2, call->keys);
	e = call_may(c, call, buf_view(&question));
	if (!e)
		kv_lease_ttl_reply(&c->env, call->lease, call->ttl_s, call->keys, &reply);
	arena_clear(&c->arena);
	buf_free(&question);
	call_answer(c, call, e, &reply);
}

/* ---- leader ---- */

void renew_join(struct core *c, struct round *r)
{
	while (!list_empty(&c->renews.fresh)) {
		struct call *call = CONTAINER_OF(c->renews.fresh.next, struct call, link);

		if (call->kind == CALL_RENEW && !call->renewed)
			renew_here(c, call);
		call_move(call, PLACE_ASKED, &r->renews);
	}
}

static void finish_one(struct core *c, struct call *call)
{
	if (call->kind == CALL_QUERY) {
		call->ttl_s = lessor_remaining_s(c->lessor, call->lease, c->now);
		renew_query_run(c, call);
		return;
	}
	/* N3, N5: what has been applied since may have granted it, or revoked it. */
	if (call->renewed_err == ERR_LEASE_NOT_FOUND || !lease_find(c->lessor, call->lease))
		renew_here(c, call);
	if (call->renewed_err == ERR_OK)
		answer_renew(c, call, call->ttl_s);
	else if (call->renewed_err == ERR_LEASE_NOT_FOUND)
		answer_renew(c, call, 0);
	else
		park(c, call); /* N4 */
}

void renew_finish(struct core *c, struct round *r)
{
	while (!list_empty(&r->renews))
		finish_one(c, CONTAINER_OF(r->renews.next, struct call, link));
}

static int64_t ask_renew(struct core *c, lease_id id, bool *ret_extended)
{
	int64_t ttl_s;
	enum err e = lessor_renew(c->lessor, id, c->now, &ttl_s);

	*ret_extended = e == ERR_OK && gate_extend(c, id, ttl_s);
	c->seen.leases_renewed += e == ERR_OK;
	return e == ERR_OK ? ttl_s : e == ERR_LEASE_NOT_FOUND ? 0 : TTL_ASK_AGAIN;
}

/* How many numbers a packed field holds; 0 too when it is malformed. */
static size_t packed_len(struct slice s)
{
	return s.len % 8 == 0 ? s.len / 8 : 0;
}

static lease_id packed_at(struct slice s, size_t i)
{
	uint64_t v = 0;

	for (unsigned n = 0; n < 8; n++)
		v |= (uint64_t)s.ptr[i * 8 + n] << (8 * n);
	return (lease_id)v;
}

void renew_not_ready(struct core *c, member_id to, uint64_t boot, uint64_t id)
{
	struct buf body = { 0 };

	pbw_u64(&body, 1, id);
	pbw_u64(&body, 2, 1);
	pbw_u64(&body, 6, boot);
	peer_send(c, to, 16, buf_view(&body));
	buf_free(&body);
}

void renew_ask(struct core *c, struct peer *p, struct slice body)
{
	struct slice leases = wire_find_bytes(body, 2), queries = wire_find_bytes(body, 3);
	uint64_t id = wire_find_u64(body, 1, 0);
	size_t leases_len = packed_len(leases), queries_len = packed_len(queries);
	struct ask *a;

	if (!core_leads(c)) { /* N2 */
		renew_not_ready(c, p->id, p->boot, id);
		return;
	}
	if (c->reads.asks_len >= ASKS_MAX || leases_len + queries_len > BATCH_LEASES)
		return;
	a = ask_new(c, p, id, leases_len, queries_len);
	a->renew = true;
	for (size_t i = 0; i < leases_len; i++) {
		a->ids[i] = packed_at(leases, i);
		a->ttls[i] = ask_renew(c, a->ids[i], &a->extended[i]);
	}
	for (size_t i = 0; i < queries_len; i++)
		a->ids[leases_len + i] = packed_at(queries, i);
}

void renew_ask_finish(struct core *c, const struct round *r, struct ask *a)
{
	struct buf body = { 0 };
	size_t mark;

	pbw_u64(&body, 1, a->id);
	mark = pbw_open(&body, 3);
	for (size_t i = 0; i < a->leases_len; i++) {
		if (a->ttls[i] == 0 || !lease_find(c->lessor, a->ids[i])) /* N3, N5 */
			a->ttls[i] = ask_renew(c, a->ids[i], &a->extended[i]);
		pbw_varint(&body, (uint64_t)a->ttls[i]);
	}
	pbw_close(&body, mark);
	mark = pbw_open(&body, 4);
	for (size_t i = 0; i < a->queries_len; i++)
		pbw_varint(&body, (uint64_t)lessor_remaining_s(c->lessor, a->ids[a->leases_len + i], c->now));
	pbw_close(&body, mark);
	pbw_u64(&body, 5, r->index);
	pbw_u64(&body, 6, a->boot);
	mark = pbw_open(&body, 7);
	for (size_t i = 0; i < a->leases_len; i++)
		pbw_varint(&body, a->extended[i]);
	pbw_close(&body, mark);
	peer_send(c, a->from, 16, buf_view(&body));
	buf_free(&body);
}

/* ---- follower ---- */

static void send_batch(struct core *c, struct renew_batch *b)
{
	peer_send(c, c->leader, 15, buf_view(&b->body));
	b->sent_at = c->now;
}

/* Takes the first `n` of the fresh calls of one kind along, and writes their leases as one packed field. */
static void fill_batch(struct core *c, struct renew_batch *b, enum call_kind kind, uint32_t field, size_t n)
{
	size_t mark = pbw_open(&b->body, field);

	LIST_FOR_EACH_SAFE(l, next, &c->renews.fresh) {
		struct call *call = CONTAINER_OF(l, struct call, link);
		uint64_t id = (uint64_t)call->lease;
		uint8_t bytes[8];

		if (n-- == 0)
			break;
		if (call->kind != kind)
			continue;
		for (unsigned i = 0; i < 8; i++)
			bytes[i] = (uint8_t)(id >> (8 * i));
		buf_append(&b->body, bytes, sizeof bytes);
		call->batch = b;
		call->slot = b->leases_len + b->queries_len;
		b->calls[call->slot] = call;
		*(kind == CALL_RENEW ? &b->leases_len : &b->queries_len) += 1;
		call_move(call, PLACE_ASKED, NULL);
	}
	pbw_close(&b->body, mark);
}

static size_t fresh_len(const struct core *c)
{
	size_t n = 0;

	LIST_FOR_EACH(l, &c->renews.fresh)
		if (++n == BATCH_LEASES)
			break;
	return n;
}

void renew_flush(struct core *c)
{
	struct renew_batch *b;
	size_t n = fresh_len(c);

	if (n == 0 || c->renews.batches_len >= BATCHES_MAX || c->now < c->renews.retry_at)
		return;
	b = mem_zalloc(sizeof *b);
	b->id = c->reads.next_id++;
	b->calls = mem_alloc(n * sizeof *b->calls);
	pbw_u64(&b->body, 1, b->id);
	fill_batch(c, b, CALL_RENEW, 2, n);
	fill_batch(c, b, CALL_QUERY, 3, n - b->leases_len);
	list_push_back(&c->renews.batches, &b->link);
	c->renews.batches_len++;
	send_batch(c, b);
}

/* In front of what came later, in order. */
static void batch_again(struct core *c, struct renew_batch *b)
{
	for (size_t i = b->leases_len + b->queries_len; i-- > 0;) {
		if (!b->calls[i])
			continue;
		call_move(b->calls[i], PLACE_FRESH, NULL);
		b->calls[i]->batch = NULL;
		list_push_front(&c->renews.fresh, &b->calls[i]->link);
	}
	batch_free(c, b);
}

void renew_batches_dissolve(struct core *c)
{
	while (!list_empty(&c->renews.batches))
		batch_again(c, CONTAINER_OF(c->renews.batches.prev, struct renew_batch, link));
	c->renews.retry_at = 0;
}

static struct renew_batch *find_batch(const struct core *c, uint64_t id)
{
	LIST_FOR_EACH(l, &c->renews.batches) {
		struct renew_batch *b = CONTAINER_OF(l, struct renew_batch, link);

		if (b->id == id)
			return b;
	}
	return NULL;
}

/* One answer for one call. The leader's word is confirmed already (N1, N3). */
static void settle(struct core *c, struct call *call, int64_t value, raft_index index)
{
	call->batch = NULL;
	if (call->kind == CALL_QUERY) {
		call->ttl_s = value;
		read_wait_applied(c, call, index); /* for its keys */
	} else if (value == TTL_ASK_AGAIN) {
		park(c, call);
	} else {
		answer_renew(c, call, value);
	}
}

void renew_reply(struct core *c, struct slice body)
{
	struct renew_batch *b = find_batch(c, wire_find_u64(body, 1, 0));
	struct slice ttls = wire_find_bytes(body, 3), remaining = wire_find_bytes(body, 4), extended = wire_find_bytes(body, 7);
	raft_index index = wire_find_u64(body, 5, 0);
	int64_t value, more;

	if (!b || wire_find_u64(body, 6, 0) != c->config.boot)
		return;
	if (wire_find_u64(body, 2, 0)) {
		c->renews.retry_at = c->now + c->config.heartbeat_ms / 2;
		batch_again(c, b);
		return;
	}
	for (size_t i = 0; i < b->leases_len + b->queries_len; i++) {
		if (!wire_take_varint(i < b->leases_len ? &ttls : &remaining, &value))
			break;
		more = i < b->leases_len && wire_take_varint(&extended, &more) && more;
		if (b->calls[i])
			b->calls[i]->extended = more != 0;
		if (b->calls[i])
			settle(c, b->calls[i], value, index);
		b->calls[i] = NULL;
	}
	batch_again(c, b); /* nothing is left, unless the answer was short */
}

void renew_resend(struct core *c)
{
	if (c->now >= c->renews.parked_at)
		renew_unpark(c);
	if (c->role == RAFT_LEADER || !c->leader)
		return;
	LIST_FOR_EACH(l, &c->renews.batches) {
		struct renew_batch *b = CONTAINER_OF(l, struct renew_batch, link);

		if (c->now - b->sent_at >= resend_ms(c))
			send_batch(c, b);
	}
}
