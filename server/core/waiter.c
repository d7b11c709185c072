/* waiter.c: Lock and Campaign, from the request to the grant.
 *
 * The command decides at one log position: held, refused, or queued. A queued call waits here, at the replica that was asked, until its
 * contender is held or gone; both are seen when entries are applied.
 *
 *   (Q1) a call that is answered "held" by its own command was so at that very position. A call that waited is answered only after a
 *        ReadIndex round begun after its grant was applied here, and only if its contender is still there and held: this replica may lag
 *        behind, and its lease may have ended since.
 *   (Q2) a call that ends otherwise leaves nothing behind: an ABANDON in its name is proposed until it is applied, in the order of the
 *        channel, so behind its LOCK. While the LOCK itself is under way the call stays (canceled) until it is known what came of it.
 *        The ABANDON leaves the contender to whoever asks for it as well, or was told of it (J4, J6 of kv/locks.c). An Unlock of its key that is asked for here
 *        meanwhile waits until then (N1 of unlock.c).
 *   (Q3) several calls may wait for one contender here; all are answered by its grant, and all by its end.
 *   (Q4) a lease that a call had made for itself is kept alive by us while it waits; the client has it in full from the grant on.
 *   (Q5) one that the leader ended while others ask for its place hears of its own end at once. One with a request ID hears what is kept for that (O5
 *        of once.h), as whoever sends the request again does: when it is the last with that ID, that its time is up; else another may yet hold, and
 *        it is to ask again. So do its others here, once that is kept, and when the place goes.
 *
 * Why a waiter fails: its lease ended (etcd's own text for it), its bound ran out, or somebody deleted its key, by Unlock or otherwise:
 * ERR_NOT_CONTENDER, since the client should not believe that its lease has ended. etcd's own recipe does not wait on either.
 * An orphaned call (bound.c) whose replica comes back learns it as ERR_TIMEOUT_CONN_LOST, and may ask again. */
#include "internal.h"

void waiters_init(struct core *c)
{
	list_init(&c->waiters.all);
	c->waiters.orphans_at = TIME_NEVER;
}

void waiters_deinit(struct core *c)
{
	bounds_end(c);
	ASSERT(c->waiters.rows_len == 0);
	map64_deinit(&c->waiters.rows);
	heap_deinit(&c->waiters.bounds);
	heap_deinit(&c->waiters.renewals);
}

/* ---- the request ---- */

struct lock_request {
	struct slice name, value;
	lease_id lease;
	uint64_t mode;
	bool bounded, with_stream;
	int64_t wait_ms, attempt;
};

static enum err parse_request(struct slice bytes, bool campaign, struct lock_request *r)
{
	struct wire w;

	memset(r, 0, sizeof *r);
	for (wire_init(&w, bytes); wire_next(&w);) {
		switch (w.field) {
		case 1: r->name = wire_bytes(&w); break;
		case 2: r->lease = wire_i64(&w); break;
		case 3: r->value = campaign ? wire_bytes(&w) : (struct slice){ 0 }; break;
		case 100: r->mode = campaign ? 0 : wire_u64(&w); break;
		case 101:
			r->bounded = true;
			r->wait_ms = wire_i64(&w);
			break;
		case 102: r->with_stream = wire_u64(&w) != 0; break;
		case 103: r->attempt = wire_i64(&w); break;
		default: break;
		}
	}
	if (w.bad || r->mode > LOCK_SHARED)
		return ERR_MALFORMED;
	if (r->name.len == 0)
		return ERR_EMPTY_KEY;
	return r->wait_ms < 0 || r->attempt < 0 ? ERR_NEGATIVE : ERR_OK;
}

static bool waits_here(const struct core *c, const struct contender *ct)
{
	const struct contender_row *row = row_find(c, ct->create_revision, contender_key(ct));

	if (!row)
		return false;
	LIST_FOR_EACH(l, &row->waiters)
		if (CONTAINER_OF(l, struct lock_call, link)->call->number == ct->call.call)
			return true;
	return false;
}

/* The place that a call asks for again, if it is known here. Of a lease that was made for the call nobody knows, but by the request ID. */
static const struct contender *place_here(struct core *c, const struct lock_request *r, const struct core_request *from)
{
	const struct result_record *before = from->session ? once_find(c->once, from->session, from->request_id) : NULL;
	struct buf key = { 0 };
	const struct kv *kv;
	const struct contender *ct;

	if (before && before->token)
		buf_append_slice(&key, result_reply(before));
	else if (r->lease)
		lock_key(r->name, r->lease, &key);
	kv = key.len > 0 ? store_get(c->store, buf_view(&key), 0) : NULL;
	ct = kv ? lock_find(c->locks, kv) : NULL;
	buf_free(&key);
	return ct;
}

/* Whether a call of ours, of this start, asks for it: whether that gives up, or was told of the hold, we are the ones to say, so they ask side by side (J4).
 * But a try that is asked where a call of its session waits takes that one's place from it (J1). */
static bool asks_beside(const struct core *c, const struct lock_request *r, const struct contender *ct)
{
	if (ct->call.member != c->config.member || ct->call.boot != c->config.boot)
		return false;
	return !(r->bounded && r->wait_ms == 0 && waits_here(c, ct));
}

static void encode_lock(struct core *c, const struct call *call, const struct lock_request *r, const struct core_request *from,
			struct buf *out)
{
	const struct client_stream *stream = r->with_stream ? sessions_find(c, r->lease) : NULL;
	const struct contender *place = place_here(c, r, from);

	pbw_bytes(out, 1, r->name);
	pbw_fixed64(out, 2, (uint64_t)call->lock->lease);
	pbw_u64(out, 3, r->mode);
	pbw_u64(out, 4, r->bounded);
	pbw_i64(out, 5, r->wait_ms);
	call_id_put(out, 6, core_call_id(c, c->calls.next_number)); /* what propose_submit will give it */
	pbw_u64(out, 7, call->lock->own_lease);
	if (call->lock->own_lease)
		pbw_i64(out, 8, OWN_LEASE_TTL_S);
	pbw_bytes(out, 9, from->client);
	pbw_bytes(out, 10, r->value);
	pbw_i64(out, 11, from->now_unix_ms);
	pbw_u64(out, 12, r->with_stream);
	call_id_put(out, 13, place ? place->last : (struct call_id){ 0 }); /* J6 */
	pbw_u64(out, 14, stream ? stream->tag : 0);
	pbw_u64(out, 15, place && asks_beside(c, r, place));
	pbw_i64(out, 16, r->attempt);
}

static lease_id random_lease(struct core *c)
{
	return (lease_id)rng_between(&c->rng, 1, INT64_MAX);
}

void lock_submit(struct core *c, const struct core_request *req)
{
	struct lock_request r;
	struct call *call;
	struct buf payload = { 0 };
	enum err e = parse_request(req->bytes, req->method == METHOD_ELECTION_CAMPAIGN, &r);

	if (!e && (c->waiters.len >= c->config.max_waiters || propose_refuses(c, CMD(LOCK), req->bytes.len)))
		e = ERR_TOO_MANY_REQUESTS;
	if (e) {
		answer_now(c, req->tag, e, NULL);
		return;
	}
	call = call_new(c, CALL_COMMAND, req->tag, req->method);
	call->lock = mem_zalloc(sizeof *call->lock);
	call->lock->call = call;
	list_init(&call->lock->link);
	list_init(&call->lock->all);
	call->lock->name = buf_copy_of(r.name);
	call->lock->bounded = r.bounded;
	call->lock->session = req->session;
	call->lock->request = req->request_id;
	call->lock->own_lease = r.lease == 0;
	call->lock->lease = r.lease ? r.lease : random_lease(c);
	encode_lock(c, call, &r, req, &payload);
	propose_submit_request(c, call, CMD(LOCK), buf_view(&payload), req, call->lock->own_lease);
	unlock_lock_asked(c, call);
	buf_free(&payload);
}

/* ---- leaving ---- */

static void stop_waiting(struct core *c, struct call *call)
{
	struct lock_call *lk = call->lock;
	struct contender_row *row = lk->row;

	if (!row)
		return;
	list_remove(&lk->link);
	list_remove(&lk->all);
	heap_remove(&c->waiters.renewals, &lk->renew);
	lk->row = NULL;
	c->waiters.len--;
	row_release(c, row);
}

void lock_leave(struct core *c, struct call *call)
{
	stop_waiting(c, call);
	buf_free(&call->lock->name);
	free(call->lock);
	call->lock = NULL;
}

static const struct contender *contender_at(const struct core *c, struct slice key, revision token)
{
	const struct kv *kv = store_get(c->store, key, 0);
	const struct contender *ct = kv ? lock_find(c->locks, kv) : NULL;

	return ct && ct->create_revision == token ? ct : NULL;
}

void abandon_encode(const struct abandoning *a, struct buf *out)
{
	pbw_bytes(out, 1, a->name);
	pbw_bytes(out, 2, a->key);
	call_id_put(out, 3, a->call);
	pbw_i64(out, 4, a->revoke);
	pbw_u64(out, 5, a->waiting_only);
	pbw_u64(out, 6, a->bound_is_over);
}

/* Q2. A call without a tag and without a deadline: it is proposed until it is applied. */
static void abandon(struct core *c, const struct lock_call *lk, uint64_t number, struct slice key)
{
	struct call *call = call_new(c, CALL_COMMAND, 0, METHOD_LOCK_UNLOCK);
	struct abandoning a = { .name = buf_view(&lk->name), .key = key, .call = core_call_id(c, number), .revoke = lk->own_lease ? lk->lease : 0 };
	struct buf payload = { 0 };

	call_no_deadline(call);
	abandon_encode(&a, &payload);
	propose_submit(c, call, CMD(ABANDON), buf_view(&payload));
	buf_free(&payload);
}

void lock_cancel(struct core *c, struct call *call)
{
	struct lock_call *lk = call->lock;

	ASSERT(call->tag == 0);
	if (lk->row) {
		abandon(c, lk, call->number, slice_of(lk->row->key, lk->row->key_len));
		call_free(c, call);
	} else if (call->place == PLACE_QUEUE) { /* in no log, for certain */
		call_free(c, call);
	} else {
		call->canceled = true;
	}
}

/* ---- what the command came to ---- */

static void reply_granted(struct core *c, struct call *call, const struct kv_lock_result *r)
{
	struct buf reply = { 0 };

	if (call->method == METHOD_ELECTION_CAMPAIGN)
		kv_campaign_reply(&c->env, buf_view(&call->lock->name), r, &reply);
	else
		kv_lock_reply(&c->env, r, &reply);
	core_emit(c, TRACE_GRANT, (uint64_t)r->token, (uint64_t)r->lease, call->tag);
	call_tell(c, call, ERR_OK, &reply, NULL);
}

/* details: what is known already; NULL or empty: as things stand. */
static void refuse_with(struct core *c, struct call *call, enum err e, struct buf *details)
{
	struct buf now = { 0 };

	if (details)
		now = buf_take(details);
	if (call->tag && now.len == 0 && (e == ERR_LOCK_HELD || e == ERR_LOCK_WAIT_TIMEOUT))
		kv_lock_refusal(&c->env, buf_view(&call->lock->name), &now);
	core_emit(c, TRACE_REFUSED, (uint64_t)e, (uint64_t)call->lock->lease, call->tag);
	call_tell(c, call, e, NULL, &now);
	call_free(c, call);
}

static void refuse(struct core *c, struct call *call, enum err e)
{
	refuse_with(c, call, e, NULL);
}

static void begin_waiting(struct core *c, struct call *call, revision token, struct slice key)
{
	struct lock_call *lk = call->lock;

	unlock_settled(c, call);
	lk->row = row_get(c, token, key);
	list_push_back(&lk->row->waiters, &lk->link);
	list_push_back(&c->waiters.all, &lk->all);
	c->waiters.len++;
	call_no_deadline(call);
	call_move(call, PLACE_WAITING, NULL);
	if (lk->own_lease)
		heap_insert(&c->waiters.renewals, &lk->renew, core_clock(c) + OWN_LEASE_TTL_S * 1000 / 3);
}

/* The command once more, under the number that it will have then. The lease is field 2 of the payload, fixed in size, so it is replaced in place. */
void lock_again(struct core *c, struct call *call)
{
	struct command cmd;
	struct buf payload = { 0 };
	struct wire w;

	ASSERT(command_parse(buf_view(&call->bytes), &cmd));
	for (wire_init(&w, cmd.payload); wire_next(&w);) {
		switch (w.field) {
		case 2: pbw_fixed64(&payload, 2, (uint64_t)call->lock->lease); break;
		case 6: call_id_put(&payload, 6, core_call_id(c, c->calls.next_number)); break;
		default:
			if (w.type == WIRE_BYTES)
				pbw_bytes_always(&payload, w.field, w.bytes);
			else
				pbw_u64_always(&payload, w.field, w.value);
			break;
		}
	}
	propose_release(c, call);
	propose_submit_again(c, call, buf_view(&payload), &cmd);
	buf_free(&payload);
}

void lock_applied(struct core *c, struct call *call, enum err e, struct kv_lock_result *r, struct buf *details)
{
	if (e == ERR_LEASE_EXISTS && call->lock->own_lease && !call->canceled) {
		call->lock->lease = random_lease(c); /* our choice of an ID was taken: another one */
		lock_again(c, call);
		return;
	}
	propose_release(c, call);
	if (!e)
		call->lock->lease = r->lease; /* one made for an earlier call with this request ID */
	if (call->canceled && e == ERR_OK) {
		abandon(c, call->lock, call->number, buf_view(&r->key));
		call_free(c, call);
	} else if (e) {
		refuse_with(c, call, e, details);
	} else if (r->outcome == KV_LOCK_HELD) {
		reply_granted(c, call, r);
		call_free(c, call);
	} else {
		begin_waiting(c, call, r->token, buf_view(&r->key));
	}
}

/* ---- the grant ---- */

static void confirm(struct core *c, struct call *call)
{
	if (call->place != PLACE_WAITING)
		return; /* on its way already */
	if (call->lock->own_lease)
		renew_own(c, call->lock->lease); /* Q4 */
	read_submit(c, call);
}

void lock_granted(struct core *c, const struct contender *ct)
{
	struct contender_row *row = row_find(c, ct->create_revision, contender_key(ct));

	if (!row)
		return;
	heap_remove(&c->waiters.bounds, &row->bound);
	LIST_FOR_EACH(l, &row->waiters) {
		struct lock_call *lk = CONTAINER_OF(l, struct lock_call, link);

		confirm(c, lk->call);
	}
	row_release(c, row);
}

/* Rights may have gone while it waited; a command that holds at once was judged when it was applied. */
static enum err may_hold(struct core *c, struct call *call)
{
	struct buf request = { 0 };
	enum err e;

	pbw_bytes(&request, 1, buf_view(&call->lock->name));
	pbw_i64(&request, 2, call->lock->lease);
	e = call_may(c, call, buf_view(&request));
	buf_free(&request);
	return e;
}

void lock_confirmed(struct core *c, struct call *call)
{
	struct lock_call *lk = call->lock;
	struct slice key = slice_of(lk->row->key, lk->row->key_len);
	const struct contender *ct = contender_at(c, key, lk->row->token);
	const struct lease_record *lease;
	struct kv_lock_result r;
	enum err e;

	ASSERT(ct); /* else waiters_gone would have ended the call */
	call_move(call, PLACE_WAITING, NULL);
	if (!lock_is_held(c->locks, ct))
		return;
	e = may_hold(c, call);
	if (e) {
		abandon(c, lk, call->number, key);
		refuse(c, call, e);
		return;
	}
	lease = lease_find(c->lessor, ct->lease);
	ASSERT(lease);
	r = (struct kv_lock_result){ .outcome = KV_LOCK_HELD, .key = buf_copy_of(key), .token = ct->create_revision, .lease = ct->lease, .ttl_s = lease->ttl_s };
	reply_granted(c, call, &r);
	buf_free(&r.key);
	call_free(c, call);
}

/* ---- the end ---- */

static bool is_named(const struct core *c, const struct call *call, struct call_id id)
{
	return call_id_eq(id, core_call_id(c, call->number));
}

/* What is kept for the request of a call that waits; NULL: nothing, or it names no request. */
static const struct result_record *kept_for(const struct core *c, const struct lock_call *lk)
{
	return lk->session ? once_find(c->once, lk->session, lk->request) : NULL;
}

/* ERR_OK: that is still open. */
static enum err kept_error(const struct core *c, const struct lock_call *lk)
{
	const struct result_record *r = kept_for(c, lk);

	return r ? r->err : ERR_OK;
}

/* Q5. What a call hears; e: of its place, ERR_OK when that lasts, and then it may have nothing to hear. */
static enum err hears(const struct core *c, const struct lock_call *lk, enum err e, const struct ended_call *ended)
{
	const struct result_record *r = kept_for(c, lk);
	bool is_ended = is_named(c, lk->call, ended->id);

	if (r && r->err)
		return r->err;
	if (is_ended && !ended->bound_is_over)
		return ERR_TIMEOUT_CONN_LOST;
	if (is_ended && r) /* with others */
		return e ? e : ERR_OUTCOME_UNKNOWN;
	if (is_ended)
		return ERR_LOCK_WAIT_TIMEOUT;
	return e && lk->session && once_is_undone(c->once, lk->session, lk->request) ? ERR_OUTCOME_UNKNOWN : e;
}

void waiters_gone(struct core *c, struct contender_row *row, enum err e, const struct ended_call *ended)
{
	bool last;

	heap_remove(&c->waiters.bounds, &row->bound);
	if (list_empty(&row->waiters)) {
		row_release(c, row);
		return;
	}
	do { /* the row goes with its last waiter */
		struct lock_call *lk = CONTAINER_OF(row->waiters.next, struct lock_call, link);

		last = lk->link.next == &row->waiters;
		refuse(c, lk->call, hears(c, lk, e, ended));
	} while (!last);
}

/* While its place lasts, and bears its name: without the ABANDON of Q2 the place would be kept for a call that is there no more. */
static void refuse_and_abandon(struct core *c, struct call *call, enum err e)
{
	const struct contender_row *row = call->lock->row;

	abandon(c, call->lock, call->number, slice_of(row->key, row->key_len));
	refuse(c, call, e);
}

/* Q5 */
void lock_ended(struct core *c, const struct contender *ct, const struct ended_call *ended)
{
	struct contender_row *row = row_find(c, ct->create_revision, contender_key(ct));

	if (!row || contender_is_asked_by(ct, ended->id) || lock_is_held(c->locks, ct))
		return;
	for (struct list *l = row->waiters.next, *next; l != &row->waiters; l = next) {
		struct lock_call *lk = CONTAINER_OF(l, struct lock_call, link);
		enum err e = hears(c, lk, ERR_OK, ended);
		bool last = (next = l->next) == &row->waiters;

		if (e && is_named(c, lk->call, ended->id))
			refuse(c, lk->call, e);
		else if (e)
			refuse_and_abandon(c, lk->call, e);
		if (last)
			return; /* the row goes with its last waiter */
	}
}

/* Its command was not applied and never will be, or nobody can tell: `skipped` calls may stand in the queue all the same, and be taken over from by now.
 * A lease of its own ends by itself. */
void lock_lost(struct core *c, struct call *call)
{
	struct buf key = { 0 };

	if (call->skipped && !call->lock->own_lease) {
		lock_key(buf_view(&call->lock->name), call->lock->lease, &key);
		abandon(c, call->lock, call->number, buf_view(&key));
		buf_free(&key);
	}
	call_fail(c, call, ERR_OUTCOME_UNKNOWN);
}

static const struct contender *find_by_call(const struct core *c, const struct call *call)
{
	struct slice name = buf_view(&call->lock->name);
	const struct contender *ct = NULL;

	while ((ct = lock_next(c->locks, name, ct)))
		if (contender_is_asked_by(ct, core_call_id(c, call->number)))
			return ct;
	return NULL;
}

/* The LOCK of a call lies in a snapshot that was installed, when its contender bears the call's name. */
static void recheck_command(struct core *c, struct call *call)
{
	const struct contender *ct = find_by_call(c, call);
	struct buf key;

	if (!ct)
		return;
	key = buf_copy_of(contender_key(ct));
	propose_release(c, call);
	if (call->canceled) {
		abandon(c, call->lock, call->number, buf_view(&key));
		call_free(c, call);
	} else {
		begin_waiting(c, call, ct->create_revision, buf_view(&key));
		if (lock_is_held(c->locks, ct))
			confirm(c, call);
	}
	buf_free(&key);
}

static void recheck_commands(struct core *c, struct list *in)
{
	LIST_FOR_EACH_SAFE(l, next, in) {
		struct call *call = CONTAINER_OF(l, struct call, link);

		if (call->lock && call->skipped)
			recheck_command(c, call);
	}
}

static void recheck_waiter(struct core *c, struct call *call)
{
	struct contender_row *row = call->lock->row;
	const struct contender *ct = contender_at(c, slice_of(row->key, row->key_len), row->token);
	enum err kept = kept_error(c, call->lock); /* Q5 */

	if (!ct)
		refuse(c, call, kept ? kept : lease_find(c->lessor, call->lock->lease) ? ERR_OUTCOME_UNKNOWN : ERR_LEASE_ENDED_WAITING);
	else if (kept)
		refuse_and_abandon(c, call, kept);
	else if (lock_is_held(c->locks, ct))
		confirm(c, call);
	else if (call->lock->bounded && !contender_is_asked_by(ct, core_call_id(c, call->number)))
		refuse_and_abandon(c, call, ERR_OUTCOME_UNKNOWN); /* nobody keeps its bound any more */
}

void waiters_recheck(struct core *c)
{
	LIST_FOR_EACH_SAFE(l, next, &c->waiters.all)
		recheck_waiter(c, CONTAINER_OF(l, struct lock_call, all)->call);
	recheck_commands(c, &c->proposer.taken);
	recheck_commands(c, &c->proposer.sent);
}

void waiters_renew(struct core *c)
{
	struct heap_node *n;

	while ((n = heap_peek(&c->waiters.renewals)) && n->key <= core_clock(c)) {
		struct lock_call *lk = CONTAINER_OF(n, struct lock_call, renew);

		renew_own(c, lk->lease);
		heap_update(&c->waiters.renewals, n, core_clock(c) + OWN_LEASE_TTL_S * 1000 / 3);
	}
}

void waiters_check(const struct core *c)
{
	size_t n = 0;

	LIST_FOR_EACH(l, &c->waiters.all) {
		const struct lock_call *lk = CONTAINER_OF(l, struct lock_call, all);
		const struct contender *ct;

		ASSERT(lk->row);
		ct = contender_at(c, slice_of(lk->row->key, lk->row->key_len), lk->row->token);
		ASSERT(ct); /* a waiter whose contender is gone has been told */
		ASSERT_IF(lock_is_held(c->locks, ct), lk->call->place != PLACE_WAITING);
		n++;
	}
	ASSERT(n == c->waiters.len);
}
