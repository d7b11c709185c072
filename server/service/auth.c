/* auth.c: the calls of etcdserverpb.Auth that have to do with passwords. The others are plain requests.
 *
 * Authenticate:  look (what is the hash?) ─► compare, on a password thread ─► assign, through the log, or sign a token here.
 *                When users have changed meanwhile it begins anew: the hash may be another.
 * UserAdd, UserChangePassword:  ask (may the caller?) ─► hash ─► the command, which holds the hash alone.
 *
 *   (Y1) a password goes no further than the password thread, and is wiped from this call's memory once it was used there.
 *   (Y2) one step is under way at a time, at the node or at the password threads; `mu` guards which, so that a cancel finds it.
 *   (Y3) whoever ends the call touches it no more. */
#include <sys/random.h>
#include <time.h>

#include "auth/password.h"
#include "auth/signed_token.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "checks.h"
#include "core/wire.h"
#include "etcd/rpc.pb-c.h"

enum { TRIES_MAX = 10, TOKEN_LETTERS = 16 };

enum step { STEP_NONE, STEP_LOOK, STEP_ASK, STEP_PASSWORD, STEP_COMMAND };

struct auth_call {
	struct service_call *call;
	struct submit_call submit;
	struct password_job job;
	struct buf name, password, request; /* request: without its password */
	struct buf header;
	uint64_t revision;
	int tries;
	pthread_mutex_t mu;
	/* guarded by mu */
	enum step step;
	bool canceled;
};

static void node_done(struct submit_call *submit, enum err e, struct buf *reply, struct buf *details);

static void finish(struct auth_call *a, enum err e)
{
	struct service_call *c = a->call;
	service_audit(c, e, buf_view(&a->submit.user), buf_view(&a->request));
	service_tell_end(c, e, NULL, slice_of(NULL, 0));
}

static void reply_and_finish(struct auth_call *a, struct buf *reply)
{
	service_audit(a->call, ERR_OK, buf_view(&a->submit.user), buf_view(&a->request));
	service_reply_one(a->call, reply);
	service_tell_end(a->call, ERR_OK, NULL, slice_of(NULL, 0));
}

/* ---- steps ---- */

static void to_node(struct auth_call *a, enum step step, struct slice bytes)
{
	struct service_call *c = a->call;
	enum err e;
	buf_free(&a->submit.user);
	a->submit = (struct submit_call){
		.method = c->method->id,
		.bytes = bytes,
		.client = c->client,
		.caller = c->caller,
		.ask = step == STEP_ASK,
		.assign = step == STEP_COMMAND && c->method->id == METHOD_AUTH_AUTHENTICATE,
		.done = node_done,
	};
	pthread_mutex_lock(&a->mu);
	a->step = step;
	e = a->canceled ? ERR_CANCELED : node_submit(c->service->node, &a->submit);
	pthread_mutex_unlock(&a->mu);
	if (e)
		finish(a, e);
}

static void job_done(struct password_job *job);

static void to_passwords(struct auth_call *a)
{
	struct passwords *p = a->call->service->parts.passwords;
	enum err e;
	if (!p) {
		finish(a, ERR_UNIMPLEMENTED);
		return;
	}
	a->job.done = job_done;
	a->job.password = buf_copy_of(buf_view(&a->password));
	pthread_mutex_lock(&a->mu);
	a->step = STEP_PASSWORD;
	e = a->canceled ? ERR_CANCELED : passwords_submit(p, &a->job);
	pthread_mutex_unlock(&a->mu);
	if (e) {
		password_wipe(&a->job.password);
		finish(a, e);
	}
}

/* ---- Authenticate ---- */

static void look(struct auth_call *a)
{
	if (a->tries++ == TRIES_MAX) {
		finish(a, ERR_AUTH_OLD_REVISION);
		return;
	}
	to_node(a, STEP_LOOK, buf_view(&a->request));
}

static void looked(struct auth_call *a, struct slice reply)
{
	a->revision = wire_find_u64(reply, 1, 0);
	buf_free(&a->job.hash);
	a->job.hash = buf_copy_of(wire_find_bytes(reply, 2));
	a->job.compare = true;
	buf_free(&a->header);
	a->header = buf_copy_of(wire_find_bytes(reply, 3));
	to_passwords(a);
}

static void sign(struct auth_call *a)
{
	struct buf token = { .ptr = NULL }, reply = { .ptr = NULL };
	enum err e = signed_tokens_sign(a->call->service->parts.signed_tokens, buf_view(&a->name), a->revision, (int64_t)time(NULL), &token);
	if (!e) {
		pbw_bytes_always(&reply, 1, buf_view(&a->header));
		pbw_bytes(&reply, 2, buf_view(&token));
		reply_and_finish(a, &reply);
	} else {
		finish(a, e);
	}
	buf_free(&token);
}

static void assign(struct auth_call *a)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
	char prefix[TOKEN_LETTERS];
	struct buf command = { .ptr = NULL };
	for (size_t i = 0; i < TOKEN_LETTERS;) {
		uint8_t byte;
		ASSERT(getrandom(&byte, 1, 0) == 1);
		if (byte < 4 * 52)
			prefix[i++] = letters[byte % 52];
	}
	pbw_bytes(&command, 1, buf_view(&a->name));
	pbw_bytes(&command, 2, slice_of(prefix, sizeof(prefix)));
	pbw_u64(&command, 3, a->revision);
	buf_free(&a->header);
	a->header = command; /* until the answer */
	to_node(a, STEP_COMMAND, buf_view(&a->header));
}

/* ---- UserAdd, UserChangePassword ---- */

/* The request as it goes into the log: its fields but the password, and the hash. */
static void put_hash(struct auth_call *a)
{
	bool add = a->call->method->id == METHOD_AUTH_USER_ADD;
	struct buf request = buf_take(&a->request);
	struct wire w;
	for (wire_init(&w, buf_view(&request)); wire_next(&w);)
		if (w.type == WIRE_BYTES && (w.field == 1 || (add && w.field == 3)))
			pbw_bytes_always(&a->request, w.field, w.bytes);
	pbw_bytes(&a->request, add ? 4 : 3, buf_view(&a->job.hash));
	buf_free(&request);
}

/* A password thread. */
static void job_done(struct password_job *job)
{
	struct auth_call *a = CONTAINER_OF(job, struct auth_call, job);
	if (job->err) {
		finish(a, job->err);
	} else if (!job->compare) {
		put_hash(a);
		to_node(a, STEP_COMMAND, buf_view(&a->request));
	} else if (!job->right) {
		finish(a, ERR_AUTH_FAILED);
	} else if (a->call->service->parts.signed_tokens) {
		sign(a);
	} else {
		assign(a);
	}
}

/* Core's thread. */
static void node_done(struct submit_call *submit, enum err e, struct buf *reply, struct buf *details)
{
	struct auth_call *a = CONTAINER_OF(submit, struct auth_call, submit);
	enum step step;
	bool canceled;
	pthread_mutex_lock(&a->mu);
	step = a->step;
	canceled = a->canceled;
	a->step = STEP_NONE;
	pthread_mutex_unlock(&a->mu);
	if (canceled && step != STEP_COMMAND)
		e = e ? e : ERR_CANCELED;
	if (e == ERR_AUTH_OLD_REVISION && step == STEP_COMMAND && a->call->method->id == METHOD_AUTH_AUTHENTICATE)
		look(a);
	else if (e)
		finish(a, e);
	else if (step == STEP_LOOK)
		looked(a, buf_view(reply));
	else if (step == STEP_ASK)
		to_passwords(a);
	else
		reply_and_finish(a, reply);
	if (reply)
		buf_free(reply);
	if (details)
		buf_free(details);
}

/* ---- calls in ---- */

static void auth_call_free(struct auth_call *a)
{
	password_wipe(&a->password);
	password_wipe(&a->job.password);
	buf_free(&a->job.hash);
	buf_free(&a->name);
	buf_free(&a->request);
	buf_free(&a->header);
	buf_free(&a->submit.user);
	pthread_mutex_destroy(&a->mu);
	free(a);
}

/* Strings of C end at a zero byte: a name with one would stand for another. */
static bool has_zero_byte(struct slice s)
{
	return s.len > 0 && memchr(s.ptr, 0, s.len) != NULL;
}

/* Takes the request apart: its password aside, the rest to a->request. */
static enum err take_request(struct auth_call *a, struct slice bytes, const char **ret_detail)
{
	enum method_id method = a->call->method->id;
	struct slice password = wire_find_bytes(bytes, 2), hash = wire_find_bytes(bytes, method == METHOD_AUTH_USER_ADD ? 4 : 3);
	bool no_password = method == METHOD_AUTH_USER_ADD && wire_find_u64(wire_find_bytes(bytes, 3), 1, 0);
	struct wire w;
	a->name = buf_copy_of(wire_find_bytes(bytes, 1));
	a->password = buf_copy_of(password);
	for (wire_init(&w, bytes); wire_next(&w);)
		if (w.field != 2 && w.type == WIRE_BYTES && (method != METHOD_AUTH_AUTHENTICATE || w.field == 1))
			pbw_bytes_always(&a->request, w.field, w.bytes);
	if (method == METHOD_AUTH_AUTHENTICATE)
		return has_zero_byte(buf_view(&a->name)) ? ERR_AUTH_FAILED : ERR_OK;
	if (has_zero_byte(buf_view(&a->name)))
		return ERR_AUTH_INVALID_MANAGEMENT;
	if (no_password)
		return ERR_OK;
	if (password.len == 0 && hash.len > 0) {
		if (password_hash_is_known(hash))
			return ERR_OK;
		*ret_detail = "holdfast: hashedPassword is not a bcrypt hash in base64";
		return ERR_AUTH_INVALID_MANAGEMENT;
	}
	*ret_detail = password_objection(password);
	return *ret_detail ? ERR_AUTH_INVALID_MANAGEMENT : ERR_OK;
}

static void begin(struct auth_call *a, struct slice bytes)
{
	bool ready = a->password.len == 0; /* no password, or its hash: nothing to be done with it */
	(void)bytes;
	if (a->call->method->id == METHOD_AUTH_AUTHENTICATE)
		look(a);
	else
		to_node(a, ready ? STEP_COMMAND : STEP_ASK, buf_view(&a->request));
}

static bool auth_message(struct service_call *c, struct slice bytes)
{
	struct auth_call *a = c->state;
	const char *detail = NULL;
	enum err e;
	if (a) /* a second one is passed over: the first is being carried out */
		return true;
	e = service_check_form(c, bytes);
	if (e) {
		service_finish(c, e, NULL);
		return true;
	}
	a = mem_zalloc(sizeof(*a));
	a->call = c;
	pthread_mutex_init(&a->mu, NULL);
	e = take_request(a, bytes, &detail);
	if (e) {
		auth_call_free(a);
		service_finish(c, e, detail);
		return true;
	}
	c->state = a;
	begin(a, bytes);
	return true;
}

static void auth_half_close(struct service_call *c)
{
	if (!c->state)
		service_finish(c, ERR_MALFORMED, NULL);
}

static void auth_cancel(struct service_call *c)
{
	struct auth_call *a = c->state;
	if (!a) {
		service_finish(c, ERR_CANCELED, NULL);
		return;
	}
	pthread_mutex_lock(&a->mu);
	a->canceled = true;
	if (a->step == STEP_LOOK || a->step == STEP_ASK || a->step == STEP_COMMAND)
		node_cancel(c->service->node, a->submit.tag);
	pthread_mutex_unlock(&a->mu);
}

static void auth_end(struct service_call *c)
{
	auth_call_free(c->state);
}

const struct call_class auth_class = {
	.message = auth_message,
	.half_close = auth_half_close,
	.cancel = auth_cancel,
	.end = auth_end,
};
