/* identity.c: from what a caller brings (a token, a certificate) to a user's name, and when that is looked at.
 *
 *   (J1) commands are judged when they are applied, by the name and the revision that they carry (H1). What was asked for and refused only since
 *        users or roles had changed in between is proposed anew by the replica that was asked, with its caller looked up again.
 *   (J2) reads are judged once the state here is as recent as the read has to be; what is answered at once is judged at once.
 *   (J3) a token names the index of its entry. One that is unknown here and from an entry that is not applied here yet sets its request aside until
 *        this replica has caught up, as a read waits: nobody is refused for our lagging. Any other unknown token is refused at once.
 *   (J4) tokens of entries that were in the log when this process began are not taken: they may have been given up long ago.
 *   (J5) a method that nobody has said more about is judged when it arrives. */
#include "internal.h"

/* ---- what is kept ---- */

static struct slice put(uint8_t **at, struct slice s)
{
	struct slice copy = slice_of(*at, s.len);

	if (s.len)
		memcpy(*at, s.ptr, s.len);
	*at += s.len;
	return copy;
}

struct call_auth *call_auth_new(const struct caller *caller, const struct core_request *r)
{
	struct call_auth *auth;
	uint8_t *at;

	if (!caller || (caller->token_is == TOKEN_NONE && caller->common_name.len == 0))
		return NULL;
	auth = mem_zalloc(sizeof *auth + caller->token.len + caller->user.len + caller->common_name.len + (r ? r->client.len : 0));
	at = auth->bytes;
	auth->caller = *caller;
	auth->caller.token = put(&at, caller->token);
	auth->caller.user = put(&at, caller->user);
	auth->caller.common_name = put(&at, caller->common_name);
	if (!r)
		return auth;
	auth->client = put(&at, r->client);
	auth->session = r->session;
	auth->request_id = r->request_id;
	auth->first_unanswered = r->first_unanswered;
	auth->now_unix_ms = r->now_unix_ms;
	auth->assign = r->assign;
	auth->ask = r->ask;
	return auth;
}

void call_auth_free(struct call_auth *auth)
{
	if (!auth)
		return;
	buf_free(&auth->user);
	free(auth);
}

/* ---- who ---- */

enum err core_identify(struct core *c, const struct caller *caller, struct auth_who *ret)
{
	struct auth_who who = { .revision = auth_revision(c->auth) };

	*ret = (struct auth_who){ 0 };
	if (!auth_is_enabled(c->auth) || !caller)
		return ERR_OK;
	switch ((enum caller_token)caller->token_is) {
	case TOKEN_NONE:
		who.user = caller->common_name;
		break;
	case TOKEN_SIMPLE:
		who.user = tokens_use(c->tokens, caller->token, core_clock(c));
		if (who.user.len == 0)
			return ERR_AUTH_INVALID_TOKEN;
		break;
	case TOKEN_VERIFIED:
		who = (struct auth_who){ caller->user, caller->revision };
		break;
	default:
		return ERR_AUTH_INVALID_TOKEN;
	}
	if (who.user.len > 0)
		*ret = who;
	return ERR_OK;
}

struct authoriser core_authoriser(struct core *c)
{
	return (struct authoriser){ .auth = c->auth, .lessor = c->lessor, .arena = &c->arena };
}

enum err core_may(struct core *c, const struct caller *caller, enum method_id method, struct slice request)
{
	struct authoriser az = core_authoriser(c);
	struct auth_who who;
	enum err e;

	if (!auth_is_enabled(c->auth) || method_by_id(method)->permission == PERMISSION_NONE)
		return ERR_OK;
	e = core_identify(c, caller, &who);
	if (!e)
		e = authorise_request(&az, who, method, request);
	arena_clear(&c->arena);
	return e;
}

static void remember(struct call_auth *auth, struct auth_who who)
{
	if (!auth->caller.wanted)
		return;
	buf_clear(&auth->user);
	buf_append_slice(&auth->user, who.user);
}

enum err call_may(struct core *c, struct call *call, struct slice request)
{
	struct auth_who who;

	if (!auth_is_enabled(c->auth))
		return ERR_OK;
	if (call->auth && core_identify(c, &call->auth->caller, &who) == ERR_OK)
		remember(call->auth, who);
	return core_may(c, call->auth ? &call->auth->caller : NULL, (enum method_id)call->method, request);
}

void identity_put(struct core *c, struct call *call, struct command *cmd)
{
	struct auth_who who = { 0 };

	if (call->auth && core_identify(c, &call->auth->caller, &who) == ERR_OK)
		remember(call->auth, who);
	cmd->user = who.user;
	cmd->auth_revision = who.revision;
	cmd->refused = false; /* of him as he was known before */
}

/* J1. What only administrators may is judged by a name, at whatever revision (auth_check_root); his token may have been lost since. */
static bool may_be_of_before(struct core *c, const struct command *cmd, enum err e)
{
	return e == ERR_AUTH_OLD_REVISION || e == ERR_USER_EMPTY || (e == ERR_PERMISSION_DENIED && cmd->auth_revision != auth_revision(c->auth));
}

bool identity_again(struct core *c, const struct call *call, const struct command *cmd, enum err *ret_e)
{
	struct auth_who who;
	enum err e;

	if (!may_be_of_before(c, cmd, *ret_e) || !call->auth || (!call->tag && !call->session_tag) || call->canceled)
		return false;
	e = core_identify(c, &call->auth->caller, &who);
	if (e)
		*ret_e = e;
	return !e && who.revision == auth_revision(c->auth) && (cmd->refused || who.revision != cmd->auth_revision);
}

/* ---- requests as they arrive ---- */

/* Those that J1 or J2 judges later. */
static bool is_judged_later(const struct core_request *r)
{
	switch (r->method) {
	case METHOD_KV_RANGE: /* a serializable one in read_now */
	case METHOD_KV_RANGE_STREAM:
	case METHOD_KV_TXN:
	case METHOD_KV_PUT:
	case METHOD_KV_DELETE_RANGE:
	case METHOD_KV_COMPACT:
	case METHOD_LEASE_GRANT:
	case METHOD_LEASE_REVOKE:
	case METHOD_LEASE_TIME_TO_LIVE:
	case METHOD_LEASE_LEASES:
	case METHOD_ELECTION_LEADER:
	case METHOD_ELECTION_CAMPAIGN:
	case METHOD_ELECTION_PROCLAIM:
	case METHOD_ELECTION_RESIGN:
	case METHOD_LOCK_LOCK:
	case METHOD_LOCK_UNLOCK:
	case METHOD_LOCKS_LIST:
	case METHOD_LOCKS_VERIFY:
	case METHOD_LOCKS_BREAK_HOLD:
	case METHOD_NODES_CREATE:
	case METHOD_NODES_GET:
	case METHOD_NODES_SET:
	case METHOD_NODES_DELETE:
	case METHOD_NODES_LIST:
		return true;
	case METHOD_CLUSTER_MEMBER_LIST: /* a linearizable one */
		return wire_find_u64(r->bytes, 1, 0) != 0;
	default:
		return method_by_id(r->method)->service == method_by_id(METHOD_AUTH_ENABLE)->service;
	}
}

/* J3 */
static void set_aside(struct core *c, const struct core_request *r)
{
	struct call *call = call_new(c, CALL_READ, r->tag, r->method);

	call->aside = true;
	call->bytes = buf_copy_of(r->bytes);
	read_submit(c, call);
}

static bool token_may_come(const struct core *c, const struct caller *caller)
{
	uint64_t index;

	return caller->token_is == TOKEN_SIMPLE && !caller->settled && token_index(caller->token, &index) && index > c->state.applied.index;
}

static enum err judge(struct core *c, const struct core_request *r, bool *ret_wait)
{
	struct auth_who who;
	enum err e;

	if (method_by_id(r->method)->permission == PERMISSION_NONE || (r->method == METHOD_LEASE_KEEP_ALIVE && r->caller.let_in))
		return ERR_OK;
	e = core_identify(c, &r->caller, &who);
	if (e) {
		*ret_wait = token_may_come(c, &r->caller);
		return e;
	}
	return r->ask || is_judged_later(r) ? ERR_OK : core_may(c, &r->caller, r->method, r->bytes);
}

bool identity_refuses(struct core *c, const struct core_request *r)
{
	bool wait = false;
	enum err e;

	if (!auth_is_enabled(c->auth)) /* H4 */
		return false;
	e = judge(c, r, &wait);
	if (wait && calls_pending(c) < c->config.max_pending)
		set_aside(c, r);
	else if (e)
		answer_now(c, r->tag, e, NULL);
	return e != ERR_OK;
}

void identity_resume(struct core *c, struct call *call)
{
	struct call_auth *auth = call->auth;
	struct buf bytes = buf_take(&call->bytes);
	struct core_request r = {
		.tag = call->tag,
		.method = (enum method_id)call->method,
		.bytes = buf_view(&bytes),
		.client = auth->client,
		.session = auth->session,
		.request_id = auth->request_id,
		.first_unanswered = auth->first_unanswered,
		.now_unix_ms = auth->now_unix_ms,
		.caller = auth->caller,
		.assign = auth->assign,
		.ask = auth->ask,
	};

	r.caller.settled = true;
	call->auth = NULL;
	call_free(c, call);
	request_step(c, &r);
	call_auth_free(auth);
	buf_free(&bytes);
}

/* ---- commands and reads of the Auth service ---- */

enum err apply_auth(struct core *c, struct slice payload, struct buf *reply)
{
	struct auth_effect effect;
	enum err e = auth_apply(c->auth, (uint32_t)wire_find_u64(payload, 1, 0), wire_find_bytes(payload, 2), &effect);

	if (e)
		return e;
	if (effect.forget_all)
		tokens_forget_all(c->tokens);
	if (effect.forget_user.len > 0)
		tokens_forget_user(c->tokens, effect.forget_user);
	if (reply)
		kv_write_header(&c->env, c->state.revision, reply, 1);
	return ERR_OK;
}

enum err apply_authenticate(struct core *c, raft_index index, struct slice payload, struct buf *reply)
{
	struct slice name = wire_find_bytes(payload, 1), prefix = wire_find_bytes(payload, 2);
	struct buf token = { 0 };

	if (!auth_is_enabled(c->auth))
		return ERR_AUTH_NOT_ENABLED;
	if (wire_find_u64(payload, 3, 0) != auth_revision(c->auth))
		return ERR_AUTH_OLD_REVISION; /* the password may be another by now */
	if (!auth_has_user(c->auth, name))
		return ERR_AUTH_FAILED;
	buf_append_slice(&token, prefix);
	buf_printf(&token, ".%llu", (unsigned long long)index);
	if (index > c->boot_last) /* J4 */
		tokens_add(c->tokens, buf_view(&token), name, core_clock(c));
	if (reply) {
		kv_write_header(&c->env, c->state.revision, reply, 1);
		pbw_bytes(reply, 2, buf_view(&token));
	}
	buf_free(&token);
	return ERR_OK;
}

enum err identity_read(struct core *c, enum method_id method, struct slice request, struct buf *reply)
{
	if (method == METHOD_AUTH_AUTHENTICATE) {
		enum err e = auth_look(c->auth, wire_find_bytes(request, 1), reply);

		if (!e)
			kv_write_header(&c->env, c->state.revision, reply, 3);
		return e;
	}
	kv_write_header(&c->env, c->state.revision, reply, 1);
	switch (method) {
	case METHOD_AUTH_STATUS:
		auth_status_fields(c->auth, reply);
		return ERR_OK;
	case METHOD_AUTH_USER_GET:
		return auth_user_get_fields(c->auth, request, reply);
	case METHOD_AUTH_ROLE_GET:
		return auth_role_get_fields(c->auth, request, reply);
	case METHOD_AUTH_USER_LIST:
		auth_user_list_fields(c->auth, reply);
		return ERR_OK;
	default:
		auth_role_list_fields(c->auth, reply);
		return ERR_OK;
	}
}

/* What happened to users in the entries that were skipped nobody here has seen: all log in again, unless nothing did. */
void identity_installed(struct core *c, uint64_t revision_before)
{
	auth_rebuild(c->auth);
	if (auth_revision(c->auth) != revision_before || !auth_is_enabled(c->auth))
		tokens_forget_all(c->tokens);
}
