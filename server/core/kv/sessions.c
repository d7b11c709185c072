/* sessions.c: opening, resuming and closing a session, as commands of the log.
 *
 * What is judged here is judged by the state and fixed rules alone. The secret is known to the client and to the replica that made it; the log has its
 * hash, so who reads a log or a snapshot can take over no session. */
#include "core/kv/kv.h"

#include "core/kv/kv_internal.h"
#include "holdfast/internal.pb-c.h"

static struct session_place place_of(const Holdfast__Internal__SessionPlace *p)
{
	return p ? (struct session_place){ .member = p->member, .boot = p->boot, .stream = p->stream } : (struct session_place){ 0 };
}

static void result(const struct kv_env *env, lease_id id, struct buf *ret)
{
	if (!ret)
		return;
	pbw_fixed64(ret, 1, (uint64_t)id);
	pbw_i64(ret, 2, lease_find(env->lessor, id)->ttl_s);
	pbw_i64(ret, 3, env->state->revision);
}

/* ---- open ---- */

static enum err check_opening(const struct kv_env *env, const Holdfast__Internal__SessionOpening *m)
{
	if (m->secret_hash.len != SESSION_HASH_LEN)
		return ERR_MALFORMED;
	if (m->ttl < 0 || m->ttl > (m->prefixes.len > 0 ? SESSION_TTL_CACHING_MAX_S : SESSION_TTL_MAX_S))
		return ERR_SESSION_TTL;
	if (!session_prefixes_are_good(kv_slice(m->prefixes)))
		return ERR_SESSION_PREFIX;
	if (m->name.len > SESSION_NAME_MAX)
		return ERR_SESSION_NAME;
	return env->state->open_sessions.len >= SESSIONS_MAX ? ERR_TOO_MANY_SESSIONS : ERR_OK;
}

enum err kv_session_open(struct kv_env *env, struct slice payload, struct buf *ret)
{
	Holdfast__Internal__SessionOpening *m;
	struct session_opening o;
	int64_t ttl_s;
	enum err e = kv_unpack(env, &holdfast__internal__session_opening__descriptor, payload, &m);

	if (!e)
		e = check_opening(env, m);
	if (!e && m->session == 0)
		e = ERR_LEASE_NOT_FOUND;
	if (!e)
		e = lease_grant(env->lessor, m->session, m->ttl ? m->ttl : SESSION_TTL_DEFAULT_S, env->now, &ttl_s);
	if (e)
		return e;
	o = (struct session_opening){
		.session = m->session,
		.place = place_of(m->place),
		.prefixes = kv_slice(m->prefixes),
		.name = kv_slice(m->name),
	};
	memcpy(o.secret_hash, m->secret_hash.data, sizeof(o.secret_hash));
	session_put(env->state, &o);
	result(env, m->session, ret);
	return ERR_OK;
}

/* ---- resume ---- */

/* In a time that does not tell how much of it was right. */
static bool hash_is(const struct open_session *s, struct slice hash)
{
	uint8_t differs = 0;

	if (hash.len != SESSION_HASH_LEN)
		return false;
	for (size_t i = 0; i < SESSION_HASH_LEN; i++)
		differs |= s->secret_hash[i] ^ hash.ptr[i];
	return differs == 0;
}

enum err kv_session_resume(struct kv_env *env, struct slice payload, struct buf *ret)
{
	Holdfast__Internal__SessionResuming *m;
	const struct open_session *s;
	enum err e = kv_unpack(env, &holdfast__internal__session_resuming__descriptor, payload, &m);

	if (e)
		return e;
	s = session_find(env->state, m->session);
	if (!s)
		return ERR_UNKNOWN_SESSION;
	if (!hash_is(s, kv_slice(m->secret_hash)))
		return ERR_SESSION_SECRET;
	if (m->revision > env->state->revision)
		return ERR_FUTURE_REVISION;
	if (m->attempt < 0)
		return ERR_NEGATIVE;
	if (m->attempt && (uint64_t)m->attempt <= s->generation)
		return ERR_SESSION_SUPERSEDED; /* E2 */
	session_attach(env->state, m->session, place_of(m->place), (uint64_t)m->attempt);
	result(env, m->session, ret);
	return ERR_OK;
}

/* ---- close ---- */

enum err kv_session_close(struct kv_env *env, struct slice payload)
{
	Holdfast__Internal__SessionClosing *m;
	const struct open_session *s;
	struct session_place place;
	enum err e = kv_unpack(env, &holdfast__internal__session_closing__descriptor, payload, &m);

	if (e)
		return e;
	s = session_find(env->state, m->session);
	if (!s)
		return ERR_UNKNOWN_SESSION;
	place = place_of(m->place);
	if (s->place.member == place.member && s->place.boot == place.boot && s->place.stream == place.stream)
		kv_end_lease(env, m->session);
	return ERR_OK;
}
