/* locks.c: locks and elections. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "etcd/v3election.pb-c.h"
#include "holdfast/v1.pb-c.h"
#include "lib.h"

static struct slice slice_in(struct hf_slice s)
{
	return slice_of(s.ptr, s.len);
}

static bool name_is_ok(struct hf_slice name)
{
	return name.ptr && name.len > 0 && name.len <= HF_NAME_MAX;
}

static enum hf_code ask_lock(struct hf_session *s, struct sess_ask *what, const struct hf_lock_options *options, hf_callback callback, void *arg, uint64_t *ret_call)
{
	static const struct hf_lock_options usual = { .mode = HF_EXCLUSIVE, .timeout_ms = HF_FOREVER };
	const struct hf_lock_options *o = options ? options : &usual;
	struct hf_lock *lock;
	struct ask *a;
	if (o->mode != HF_EXCLUSIVE && (o->mode != HF_SHARED || what->kind == SESS_ASK_CAMPAIGN))
		return HF_INVALID;
	lock = mem_zalloc(sizeof(*lock));
	lock->session = s;
	lock->on_lost = o->on_lost;
	lock->arg = o->arg;
	a = ask_new(s, ASK_LOCK, callback, arg);
	a->lock = lock;
	what->mode = o->mode;
	what->wait_ms = o->timeout_ms == HF_FOREVER ? -1 : (int64_t)o->timeout_ms;
	pthread_mutex_lock(&s->mu);
	lock->tag = s->next_tag + 1;
	session_ask(s, a, what);
	if (ret_call)
		*ret_call = what->tag;
	pthread_mutex_unlock(&s->mu);
	return HF_OK;
}

enum hf_code hf_lock_async(struct hf_session *session, struct hf_slice name, const struct hf_lock_options *options, hf_callback callback, void *arg,
			   uint64_t *ret_call)
{
	struct sess_ask what = { .kind = SESS_ASK_LOCK, .name = slice_in(name) };
	if (!name_is_ok(name) || !callback)
		return HF_INVALID;
	return ask_lock(session, &what, options, callback, arg, ret_call);
}

enum hf_code hf_campaign_async(struct hf_session *session, struct hf_slice name, struct hf_slice value, const struct hf_lock_options *options, hf_callback callback,
			       void *arg, uint64_t *ret_call)
{
	struct sess_ask what = { .kind = SESS_ASK_CAMPAIGN, .name = slice_in(name), .bytes = slice_in(value) };
	if (!name_is_ok(name) || !callback || value.len > HF_VALUE_MAX)
		return HF_INVALID;
	return ask_lock(session, &what, options, callback, arg, ret_call);
}

void hf_cancel(struct hf_session *s, uint64_t call)
{
	struct sess_event e = { .kind = SESS_ASK, .ask = { .kind = SESS_ASK_CANCEL, .tag = call } };
	pthread_mutex_lock(&s->mu);
	e.now_ms = boot_ms();
	sess_step(s->core, &e);
	session_poke(s);
	pthread_mutex_unlock(&s->mu);
}

int64_t hf_lock_token(struct hf_lock *lock)
{
	struct hf_session *s = lock->session;
	int64_t token;
	pthread_mutex_lock(&s->mu);
	token = sess_hold_token(s->core, lock->tag);
	if (sess_remaining_ms(s->core, boot_ms()) == 0)
		token = 0;
	pthread_mutex_unlock(&s->mu);
	return token;
}

enum hf_reason hf_lock_lost(struct hf_lock *lock)
{
	enum hf_reason lost;
	pthread_mutex_lock(&lock->session->mu);
	lost = lock->lost;
	pthread_mutex_unlock(&lock->session->mu);
	return lost;
}

enum hf_code hf_unlock_async(struct hf_lock *lock, uint32_t timeout_ms, hf_callback callback, void *arg)
{
	struct hf_session *s = lock->session;
	struct ask *a = ask_new(s, ASK_PLAIN, callback, arg);
	struct sess_ask what = { .kind = SESS_ASK_UNLOCK, .hold = lock->tag };
	pthread_mutex_lock(&s->mu);
	session_forget(s, lock->tag);
	what.deadline_ms = deadline_of(boot_ms(), timeout_ms);
	session_ask(s, a, &what);
	pthread_mutex_unlock(&s->mu);
	free(lock);
	return HF_OK;
}

/* ---- elections ---- */

static enum hf_code ask_call(struct hf_session *s, struct ask *a, struct sess_ask *what, uint32_t timeout_ms)
{
	pthread_mutex_lock(&s->mu);
	what->deadline_ms = deadline_of(boot_ms(), timeout_ms);
	session_ask(s, a, what);
	pthread_mutex_unlock(&s->mu);
	return HF_OK;
}

enum hf_code hf_proclaim_async(struct hf_lock *leadership, struct hf_slice value, uint32_t timeout_ms, hf_callback callback, void *arg)
{
	struct sess_ask what = { .kind = SESS_ASK_PROCLAIM, .hold = leadership->tag, .bytes = slice_in(value) };
	if (value.len > HF_VALUE_MAX)
		return HF_INVALID;
	return ask_call(leadership->session, ask_new(leadership->session, ASK_PLAIN, callback, arg), &what, timeout_ms);
}

static enum hf_code ask_packed(struct hf_session *s, struct ask *a, enum method_id method, const ProtobufCMessage *m, uint32_t timeout_ms)
{
	struct sess_ask what = { .kind = SESS_ASK_CALL, .method = method };
	size_t len = protobuf_c_message_get_packed_size(m);
	uint8_t *bytes = mem_alloc(len + 1);
	enum hf_code c;
	what.bytes = slice_of(bytes, protobuf_c_message_pack(m, bytes));
	c = ask_call(s, a, &what, timeout_ms);
	free(bytes);
	return c;
}

static ProtobufCBinaryData data_in(struct hf_slice s)
{
	return (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)s.ptr, .len = s.len };
}

enum hf_code hf_leader_async(struct hf_session *session, struct hf_slice name, uint32_t timeout_ms, hf_callback callback, void *arg)
{
	V3electionpb__LeaderRequest r = V3ELECTIONPB__LEADER_REQUEST__INIT;
	if (!name_is_ok(name))
		return HF_INVALID;
	r.name = data_in(name);
	return ask_packed(session, ask_new(session, ASK_PLAIN, callback, arg), METHOD_ELECTION_LEADER, &r.base, timeout_ms);
}

/* The queue of this very name comes first, when there is one: shorter names are before longer ones that begin with them. */
enum hf_code hf_members_async(struct hf_session *session, struct hf_slice name, uint32_t timeout_ms, hf_callback callback, void *arg)
{
	Holdfast__V1__LocksListRequest r = HOLDFAST__V1__LOCKS_LIST_REQUEST__INIT;
	struct ask *a;
	if (!name_is_ok(name))
		return HF_INVALID;
	r.prefix = data_in(name);
	a = ask_new(session, ASK_PLAIN, callback, arg);
	buf_append_slice(&a->name, slice_in(name));
	return ask_packed(session, a, METHOD_LOCKS_LIST, &r.base, timeout_ms);
}

enum hf_code hf_observe(struct hf_session *session, struct hf_slice name, hf_callback callback, void *arg, struct hf_watch **ret_watch)
{
	struct sess_ask what = { .kind = SESS_ASK_OBSERVE, .name = slice_in(name), .deadline_ms = SESS_NEVER };
	struct hf_watch *w;
	struct ask *a;
	if (!name_is_ok(name) || !callback)
		return HF_INVALID;
	w = mem_zalloc(sizeof(*w));
	w->session = session;
	a = ask_new(session, ASK_TOLD, callback, arg);
	a->watch = w;
	*ret_watch = w;
	pthread_mutex_lock(&session->mu);
	w->tag = session->next_tag + 1;
	session_ask(session, a, &what);
	pthread_mutex_unlock(&session->mu);
	return HF_OK;
}
