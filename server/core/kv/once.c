/* once.c: commands that name a session and a request ID are carried out at most once, and answered the same however often they come.
 *
 *   (Y1) what is decided about such a command is decided at its position in the log, an error as well as a reply; asked again it is told, not
 *        decided anew. What is not kept: that there is no such session, that the ID is no good, that an ID which the proposer chose
 *        is taken (it proposes another for the same request), and that others ask by other replicas (J5, J6 of locks.c).
 *   (Y2) a kept reply names no replica and no term but the entry's; whoever tells it puts its own there (kv_own_reply). All else in it, the
 *        header's revision too, is of the moment when the command was applied.
 *   (Y3) a Lock or Campaign that joined its queue is not answered from a copy, but by its contender as it stands: it has its place, or its
 *        hold and token. The newest call to ask is then the contender's call. Once the contender is gone, the answer is an error that says so:
 *        a hold that is over is never told as one.
 *   (Y4) a Lock whose place was given up with its calls is undone: sent again, it queues anew. One whose last call's bound is over is told that time
 *        is up, whatever becomes of the place (O5 of once.h). */
#include "core/kv/kv.h"

#include "core/kv/kv_internal.h"
#include "core/wire.h"

static struct once_id id_of(const struct command *cmd)
{
	return (struct once_id){ .session = cmd->session, .request = cmd->request, .first_unanswered = cmd->first_unanswered };
}

static enum err repeat(struct kv_env *env, const struct command *cmd, const struct result_record *r, struct kv_outcome *ret)
{
	ret->repeated = true;
	if (r->too_large)
		return ERR_RESULT_TOO_LARGE;
	if (r->token) /* Y3 */
		return kv_lock_again(env, cmd->payload, r, &ret->lock);
	if (r->err)
		ret->details = buf_copy_of(result_details(r));
	else
		ret->reply = buf_copy_of(result_reply(r));
	return r->err;
}

static bool lives(void *ctx, const struct result_record *r)
{
	const struct kv_env *env = ctx;
	const struct kv *kv = store_get(env->store, result_reply(r), 0);

	return kv && kv->create_revision == r->token;
}

static void keep(struct kv_env *env, const struct command *cmd, enum err e, const struct kv_outcome *o)
{
	struct once_id id = id_of(cmd);
	bool lock = cmd->kind == CMD(LOCK) && !e;
	struct call_id call = lock ? call_id_find(cmd->payload, 6) : (struct call_id){ 0 };
	struct once_outcome outcome = {
		.kind = cmd->kind,
		.err = e,
		.reply = e ? (struct slice){ 0 } : lock ? buf_view(&o->lock.key) : buf_view(&o->reply),
		.details = buf_view(&o->details),
		.token = lock ? o->lock.token : 0,
		.lease = lock ? o->lock.lease : 0,
		.calls = &call,
		.calls_len = lock,
	};

	if (e == ERR_UNIMPLEMENTED || e == ERR_SESSION_ELSEWHERE || e == ERR_LOCK_ASKED_ELSEWHERE || (e == ERR_LEASE_EXISTS && cmd->chosen) ||
	    !lease_find(env->lessor, cmd->session)) /* Y1 */
		return;
	once_keep(env->once, &id, &outcome, lives, env);
}

enum err kv_once(struct kv_env *env, const struct command *cmd, raft_term term, kv_execute_fn fn, void *ctx, struct kv_outcome *ret)
{
	const struct kv_header header = env->header;
	const struct result_record *known = NULL;
	struct once_id id = id_of(cmd);
	enum err e;

	if (!lease_find(env->lessor, cmd->session))
		return ERR_UNKNOWN_SESSION;
	e = once_begin(env->once, &id, cmd->kind, &known);
	if (e)
		return e;
	if (known)
		return repeat(env, cmd, known, ret);
	env->header.member = 0; /* Y2 */
	env->header.term = term;
	e = fn(ctx, ret);
	env->header = header;
	if (e == ERR_LOCK_HELD)
		kv_lock_refusal(env, wire_find_bytes(cmd->payload, 1), &ret->details);
	keep(env, cmd, e, ret);
	return e;
}

void kv_own_reply(const struct kv_env *env, struct slice kept, struct buf *ret)
{
	struct wire w;

	for (wire_init(&w, kept); wire_next(&w);) {
		const uint8_t *rest = w.at;

		if (w.field != FIELD_HEADER)
			break;
		kv_write_header(env, (revision)wire_find_u64(wire_bytes(&w), HEADER_REVISION, 0), ret, FIELD_HEADER);
		kept = slice_of(rest, (size_t)(w.end - rest));
		break;
	}
	buf_append_slice(ret, kept);
}
