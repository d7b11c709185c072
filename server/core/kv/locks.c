/* locks.c: Lock, Unlock and what becomes of a call that gave up, as commands of the log.
 *
 *   (J1) a refused try leaves nothing behind: no key, no lease that it would have made, no revision. It is decided before the first
 *        write. Only when its lease was queued already, and it takes over from who asked for that (J6), does it change something: that place is
 *        given up, as errors.h promises, since a caller that was told "held by another" must not come to hold the lock later without knowing.
 *   (J2) asking again keeps place and mode.
 *   (J3) an Unlock with a token frees that very hold or nothing. Sent twice, it is answered OK twice: a hold that is over needs no
 *        freeing, whether the key is gone or by now belongs to a later hold of the same lease. A token from the future is no hold's.
 *   (J4) the place goes with the last of those who ask for it. One that is held goes only when all who ever asked for it have given up: somebody
 *        whose place another took over (J6) may have been told of the hold. What the leader ends (waiting_only) it leaves once it is held, too,
 *        since the call itself may have been told.
 *   (J5) a call that says so (with_stream) does something only while the replica that it was asked of has its session's stream, the very one that it had then: one
 *        that its client gave up for another replica, and that comes late, even if the session is back by then, neither makes a place that nobody remembers, nor takes away that of a later call, nor puts
 *        its campaign's value over what was proclaimed since. Which stream it was is known where it came in; but it may have been held up on its way there until the
 *        next one was open, so its client may say so itself (attempt).
 *   (J6) a call says which one was the latest that had asked, as was known where it was asked (saw). When that is the latest still, its client made it after
 *        all that ask, and it takes over: it alone asks from then on. One that has given up stays the latest: with an earlier one in its stead, who saw no more than
 *        that would count as newer than both. Otherwise nobody can tell which of them the client made last. It may be one that
 *        was given up for another replica, and comes late; it may be its only one, asked where little was known. So it asks beside the others, and the
 *        place lasts while any asks. Without a stream it changes nothing of theirs: a try that fails leaves the place alone, and a campaign whose value is another one is
 *        refused, as is one more than there is room for. Of one replica it is known which call is newer: that has room made for it, and its value put when nobody asks by another replica;
 *        an older one (it was lost with a leader and proposed again) is refused. Where a call of the very replica asks, the newer one asks beside it, too, though it saw all. Whoever is
 *        there to hear that asks again, and sees more.
 *   (J7) an ABANDON tells of one call. What it means for the request of that call, and for others that name the same place, is kept before the place goes
 *        (O5 of once.h): sent again, each is told what its own call was or will be told.
 *
 * An empty name is refused, though etcd takes it: its key would be "/<lease>", which belongs to whoever owns the root of a tree of keys.
 */
#include "core/kv/kv.h"

#include "core/kv/kv_internal.h"
#include "core/session/session.h"
#include "etcd/v3lock.pb-c.h"
#include "holdfast/internal.pb-c.h"

static struct call_id call_of(const Holdfast__Internal__CallId *m)
{
	return m ? (struct call_id){ .member = m->member, .boot = m->boot, .call = m->call } : (struct call_id){ 0 };
}

/* J6 */
static bool saw_latest(const struct contender *c, const Holdfast__Internal__LockCommand *m)
{
	return !m->saw || call_id_eq(call_of(m->saw), c->last);
}

/* It alone asks from then on. */
static bool asks_alone(const struct contender *c, const Holdfast__Internal__LockCommand *m)
{
	return saw_latest(c, m) && !m->beside;
}

/* What others said counts no more. With a stream a call counts only where its session is (J5), so it is no late one. */
static bool takes_over(const struct contender *c, const Holdfast__Internal__LockCommand *m)
{
	return m->with_stream || asks_alone(c, m);
}

/* All who ask do so by that replica; who came last may be a late one itself. */
static bool asks_here_alone(const struct contender *c, uint64_t member)
{
	struct asker askers[LOCK_ASKERS_MAX];
	size_t n = contender_askers(c, askers);

	for (size_t i = 0; i < n; i++)
		if (askers[i].call.member != member)
			return false;
	return n > 0;
}

/* So that its value is the later one. */
static bool is_newest(const struct contender *c, const Holdfast__Internal__LockCommand *m)
{
	struct call_id call = call_of(m->call);

	if (m->with_stream || saw_latest(c, m))
		return true;
	return call.member == c->last.member && call_id_older(c->last, call) && asks_here_alone(c, call.member);
}

/* ---- Lock ---- */

static enum err check_lock(const Holdfast__Internal__LockCommand *m)
{
	if (m->name.len == 0)
		return ERR_EMPTY_KEY;
	if (m->mode > LOCK_SHARED)
		return ERR_MALFORMED;
	return m->bounded && m->wait_ms < 0 ? ERR_NEGATIVE : ERR_OK;
}

static enum err check_lock_lease(const struct kv_env *env, const Holdfast__Internal__LockCommand *m)
{
	bool exists = lease_find(env->lessor, m->lease) != NULL;

	if (m->lease == 0 || (!m->grant_lease && !exists))
		return ERR_LEASE_NOT_FOUND;
	if (m->grant_lease && m->lease_ttl > LEASE_TTL_MAX_S)
		return ERR_LEASE_TTL_TOO_LARGE;
	return m->grant_lease && exists ? ERR_LEASE_EXISTS : ERR_OK;
}

/* J5 */
static bool comes_late(const struct kv_env *env, const Holdfast__Internal__LockCommand *m)
{
	const struct open_session *s = m->with_stream ? session_find(env->state, m->lease) : NULL;
	struct call_id call = call_of(m->call);

	if (!m->with_stream)
		return false;
	if (!s || (m->attempt && (uint64_t)m->attempt < s->generation))
		return true;
	return call.member != s->place.member || call.boot != s->place.boot || (m->stream && m->stream != s->place.stream);
}

/* Whether a contender that joins the queue now holds at once. */
static bool would_be_held(const struct kv_env *env, struct slice name, enum lock_mode mode)
{
	const struct contender *first = lock_next(env->locks, name, NULL);

	if (!first)
		return true;
	/* Behind shared holders only: an exclusive contender anywhere would either be first or make somebody wait. */
	return mode == LOCK_SHARED && first->mode == LOCK_SHARED && lock_waiters(env->locks, name) == 0;
}

static void put_key(struct kv_env *env, struct slice key, struct slice value, lease_id lease)
{
	store_txn_begin(env->store);
	store_put(env->store, key, value, lease, NULL);
	store_txn_end(env->store);
}

/* The state of the call after its command; NULL when nobody asks. */
static void tell(const struct kv_env *env, struct slice key, struct kv_lock_result *ret)
{
	const struct contender *c;
	const struct lease_record *lease;

	if (!ret)
		return;
	c = lock_find(env->locks, store_get(env->store, key, 0));
	ASSERT(c);
	lease = lease_find(env->lessor, c->lease);
	ASSERT(lease);
	*ret = (struct kv_lock_result){
		.outcome = lock_is_held(env->locks, c) ? KV_LOCK_HELD : KV_LOCK_WAITING,
		.key = buf_copy_of(key),
		.token = c->create_revision,
		.lease = c->lease,
		.ttl_s = lease->ttl_s,
	};
}

static enum err join_queue(struct kv_env *env, const Holdfast__Internal__LockCommand *m, const struct lock_attributes *a,
			   struct slice key)
{
	bool try_only = m->bounded && m->wait_ms == 0;
	int64_t ttl_s;
	enum err e = lock_check_put(env->locks, key, m->lease, NULL);

	if (e)
		return e;
	if (try_only && !would_be_held(env, kv_slice(m->name), a->mode))
		return ERR_LOCK_HELD;
	if (m->grant_lease) {
		e = lease_grant(env->lessor, m->lease, m->lease_ttl, env->now, &ttl_s);
		if (e)
			return e;
	}
	lock_next_attributes(env->locks, a);
	put_key(env, key, kv_slice(m->value), m->lease);
	return ERR_OK;
}

static enum err ask(struct kv_env *env, const Holdfast__Internal__LockCommand *m, const struct lock_attributes *a, const struct contender *c)
{
	if (asks_alone(c, m))
		lock_ask_again(env->locks, c, a);
	else if (!lock_ask_beside(env->locks, c, a))
		return ERR_LOCK_ASKED_ELSEWHERE;
	return ERR_OK;
}

static enum err ask_again(struct kv_env *env, const Holdfast__Internal__LockCommand *m, const struct lock_attributes *a,
			  const struct kv *kv)
{
	const struct contender *c = lock_find(env->locks, kv);
	bool try_only = m->bounded && m->wait_ms == 0;
	bool new_value;
	enum err e;

	/* Another's contender may bear the very key, when that client writes leases in decimal. */
	if (!c || c->lease != m->lease)
		return ERR_CONTENDER_EXISTING_KEY;
	if (c->mode != a->mode)
		return ERR_LOCK_MODE_CHANGED;
	if (try_only && !lock_is_held(env->locks, c)) {
		if (takes_over(c, m))
			kv_delete_key(env, arena_copy(env->arena, kv_key(kv)));
		return ERR_LOCK_HELD;
	}
	/* A campaign's new value takes the place of the old one; a lock has none, and leaves it. */
	new_value = m->value.len > 0 && !slice_eq(kv_slice(m->value), kv_value(kv));
	if (new_value && !is_newest(c, m))
		return ERR_LOCK_ASKED_ELSEWHERE; /* J6 */
	e = ask(env, m, a, c);
	if (!e && new_value)
		put_key(env, arena_copy(env->arena, kv_key(kv)), kv_slice(m->value), m->lease);
	return e;
}

static struct lock_attributes attributes_of(const Holdfast__Internal__LockCommand *m)
{
	return (struct lock_attributes){
		.mode = (enum lock_mode)m->mode,
		.bounded = m->bounded,
		.own_lease = m->grant_lease,
		.wait_ms = m->bounded ? m->wait_ms : 0,
		.call = call_of(m->call),
		.client = kv_slice(m->client),
		.since_unix_ms = m->now_unix_ms,
	};
}

enum err kv_lock(struct kv_env *env, struct slice payload, struct kv_lock_result *ret)
{
	Holdfast__Internal__LockCommand *m;
	struct lock_attributes a;
	struct buf key = { 0 };
	const struct kv *kv;
	enum err e = kv_unpack(env, &holdfast__internal__lock_command__descriptor, payload, &m);

	if (!e)
		e = check_lock(m);
	if (!e)
		e = check_lock_lease(env, m);
	if (!e && comes_late(env, m))
		e = ERR_SESSION_ELSEWHERE;
	if (e)
		return e;
	a = attributes_of(m);
	lock_key(kv_slice(m->name), m->lease, &key);
	kv = store_get(env->store, buf_view(&key), 0);
	e = kv ? ask_again(env, m, &a, kv) : join_queue(env, m, &a, buf_view(&key));
	if (!e)
		tell(env, buf_view(&key), ret);
	buf_free(&key);
	return e;
}

enum err kv_lock_again(struct kv_env *env, struct slice payload, const struct result_record *r, struct kv_lock_result *ret)
{
	const struct kv *kv = store_get(env->store, result_reply(r), 0);
	const struct contender *c = kv ? lock_find(env->locks, kv) : NULL;
	Holdfast__Internal__LockCommand *m;
	struct lock_attributes a;
	bool alone;
	enum err e = kv_unpack(env, &holdfast__internal__lock_command__descriptor, payload, &m);

	if (!e)
		e = check_lock(m);
	if (e)
		return e;
	if (!c || c->create_revision != r->token)
		return lease_find(env->lessor, r->lease) ? ERR_NOT_CONTENDER : ERR_LEASE_ENDED_WAITING;
	if (comes_late(env, m))
		return ERR_SESSION_ELSEWHERE;
	a = attributes_of(m);
	if (c->mode != a.mode)
		return ERR_LOCK_MODE_CHANGED;
	alone = asks_alone(c, m);
	e = ask(env, m, &a, c);
	if (e)
		return e;
	tell(env, result_reply(r), ret);
	once_ask(env->once, r, a.call, alone);
	return ERR_OK;
}

void kv_lock_refusal(struct kv_env *env, struct slice name, struct buf *ret)
{
	const struct contender *first = lock_next(env->locks, name, NULL);
	size_t mark;

	if (!first)
		return;
	pbw_bytes(ret, 1, name);
	mark = pbw_open(ret, 2);
	pbw_i64(ret, 1, first->lease);
	pbw_i64(ret, 2, first->create_revision);
	pbw_i64(ret, 3, first->since_unix_ms);
	pbw_u64(ret, 4, first->mode);
	pbw_close(ret, mark);
	pbw_u64(ret, 3, lock_waiters(env->locks, name));
}

void kv_lock_reply(struct kv_env *env, const struct kv_lock_result *r, struct buf *ret)
{
	kv_header_reply(env, ret);
	pbw_bytes(ret, 2, buf_view(&r->key));
	pbw_i64(ret, 100, r->token);
	pbw_i64(ret, 101, r->lease);
	pbw_i64(ret, 102, r->ttl_s);
}

/* ---- Unlock ---- */

enum err kv_unlock(struct kv_env *env, struct slice request, struct buf *ret)
{
	V3lockpb__UnlockRequest *r;
	const struct contender *c;
	const struct kv *kv;
	enum err e = kv_unpack(env, &v3lockpb__unlock_request__descriptor, request, &r);

	if (!e && r->key.len == 0)
		e = ERR_EMPTY_KEY;
	if (!e && r->fencing_token < 0)
		e = ERR_NEGATIVE;
	if (e)
		return e;
	kv = store_get(env->store, kv_slice(r->key), 0);
	c = kv ? lock_find(env->locks, kv) : NULL;
	if (kv && !c)
		return ERR_NOT_CONTENDER;
	if (kv && r->fencing_token > c->create_revision)
		return ERR_STALE_TOKEN;
	if (kv && (r->fencing_token == 0 || r->fencing_token == c->create_revision))
		kv_delete_key(env, kv_slice(r->key));
	kv_header_reply(env, ret);
	return ERR_OK;
}

/* ---- a call that gave up ---- */

struct place {
	revision token;
	lease_id lease;
	bool held;
};

/* Or did, until another took over. */
static bool asked(const struct contender *c, struct call_id call)
{
	struct call_id before[LOCK_BEFORE_MAX];
	size_t n = contender_before(c, before);

	for (size_t i = 0; i < n; i++)
		if (call_id_eq(before[i], call))
			return true;
	return contender_is_asked_by(c, call);
}

/* J7 */
static void tell_requests(struct kv_env *env, const struct place *p, const struct once_end *end)
{
	if (!env->once)
		return;
	if (!p->held)
		once_call_ended(env->once, p->token, p->lease, end);
	else if (end->place_goes)
		once_undo_place(env->once, p->token, p->lease);
}

enum err kv_abandon(struct kv_env *env, struct slice payload)
{
	Holdfast__Internal__AbandonCommand *m;
	const struct contender *c;
	const struct kv *kv;
	struct place p;
	struct once_end end;
	enum err e = kv_unpack(env, &holdfast__internal__abandon_command__descriptor, payload, &m);

	if (e)
		return e;
	kv = m->key.len > 0 ? store_get(env->store, kv_slice(m->key), 0) : NULL;
	c = kv ? lock_find(env->locks, kv) : NULL;
	if (!c)
		return ERR_OK;
	p = (struct place){ .token = c->create_revision, .lease = c->lease, .held = lock_is_held(env->locks, c) };
	if (p.held && m->waiting_only)
		return ERR_OK;
	end = (struct once_end){ .call = call_of(m->call), .bound_is_over = m->bound_is_over };
	end.place_goes = asked(c, end.call) && !lock_ask_no_more(env->locks, c, end.call) && !(p.held && c->unlisted); /* J4 */
	tell_requests(env, &p, &end);
	if (!end.place_goes)
		return ERR_OK;
	if (m->revoke_lease != 0 && m->revoke_lease == p.lease)
		kv_end_lease(env, m->revoke_lease);
	else
		kv_delete_key(env, kv_slice(m->key));
	return ERR_OK;
}
