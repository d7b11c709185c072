/* nodes.c: values with a path, cached reads, watches. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "holdfast/v1.pb-c.h"
#include "lib.h"

uint64_t deadline_of(uint64_t now_ms, uint32_t timeout_ms)
{
	return timeout_ms == HF_FOREVER ? SESS_NEVER : now_ms + timeout_ms;
}

/* The cell checks it again, and more of it: this catches what would be a mistake. */
bool path_is_ok(const char *path)
{
	size_t len = path ? strnlen(path, HF_PATH_MAX + 1) : 0;
	return len > 1 && len <= HF_PATH_MAX && path[0] == '/' && path[len - 1] != '/' && !strstr(path, "//");
}

static enum hf_code ask(struct hf_session *s, struct sess_ask *what, uint32_t timeout_ms, hf_callback callback, void *arg)
{
	struct ask *a = ask_new(s, ASK_PLAIN, callback, arg);
	pthread_mutex_lock(&s->mu);
	what->deadline_ms = deadline_of(boot_ms(), timeout_ms);
	session_ask(s, a, what);
	pthread_mutex_unlock(&s->mu);
	return HF_OK;
}

static enum hf_code ask_write(struct hf_session *s, enum method_id method, const ProtobufCMessage *m, uint32_t timeout_ms, hf_callback callback, void *arg)
{
	struct sess_ask what = { .kind = SESS_ASK_CALL, .method = method, .once = true };
	size_t len = protobuf_c_message_get_packed_size(m);
	uint8_t *bytes = mem_alloc(len + 1);
	enum hf_code c;
	what.bytes = slice_of(bytes, protobuf_c_message_pack(m, bytes));
	c = ask(s, &what, timeout_ms, callback, arg);
	free(bytes);
	return c;
}

/* What is in memory is told at once, on this thread. */
static bool tell_cached(struct hf_session *s, const char *path, bool children, hf_callback callback, void *arg)
{
	struct sess_out o = { .kind = SESS_ANSWER, .method = METHOD_NODES_LIST };
	struct sess_cached c;
	struct told t;
	bool hit;
	char *value = NULL;
	pthread_mutex_lock(&s->mu);
	hit = sess_cache_load(s->core, slice_of_str(path), children, &c);
	if (hit) {
		buf_append_slice(&o.bytes, c.bytes);
		value = mem_alloc(c.node.value.len + 1);
		if (c.node.value.len)
			memcpy(value, c.node.value.ptr, c.node.value.len);
		hit = sess_cache_confirm(s->core, &c, boot_ms());
	}
	pthread_mutex_unlock(&s->mu);
	if (hit) {
		o.code = c.exists ? HF_OK : HF_NOT_FOUND;
		o.revision = c.revision;
		told_init(&t, &o, slice_of(NULL, 0));
		if (!children) {
			t.one = c.node;
			t.one.path = c.exists ? path : "";
			t.one.value.ptr = value;
			t.result.nodes = &t.one;
			t.result.nodes_len = 1;
		}
		if (callback)
			callback(arg, &t.result);
		told_deinit(&t);
	}
	buf_free(&o.bytes);
	free(value);
	return hit;
}

static enum hf_code read_node(struct hf_session *s, const char *path, bool children, uint32_t timeout_ms, hf_callback callback, void *arg)
{
	struct sess_ask what = { .kind = children ? SESS_ASK_LIST : SESS_ASK_GET };
	if (!path_is_ok(path) && !(children && path && strcmp(path, "/") == 0))
		return HF_INVALID;
	if (tell_cached(s, path, children, callback, arg))
		return HF_OK;
	what.path = slice_of_str(path);
	return ask(s, &what, timeout_ms, callback, arg);
}

enum hf_code hf_get_async(struct hf_session *session, const char *path, uint32_t timeout_ms, hf_callback callback, void *arg)
{
	return read_node(session, path, false, timeout_ms, callback, arg);
}

enum hf_code hf_list_async(struct hf_session *session, const char *path, uint32_t timeout_ms, hf_callback callback, void *arg)
{
	return read_node(session, path, true, timeout_ms, callback, arg);
}

enum hf_code hf_set_async(struct hf_session *session, const char *path, struct hf_slice value, int64_t if_version, uint32_t timeout_ms, hf_callback callback,
			  void *arg)
{
	Holdfast__V1__NodesSetRequest r = HOLDFAST__V1__NODES_SET_REQUEST__INIT;
	if (!path_is_ok(path) || value.len > HF_VALUE_MAX || if_version < HF_ANY_VERSION)
		return HF_INVALID;
	r.path = (char *)(uintptr_t)path;
	r.value = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)value.ptr, .len = value.len };
	r.create = if_version <= 0;
	if (if_version != HF_ANY_VERSION) {
		r.condition_case = HOLDFAST__V1__NODES_SET_REQUEST__CONDITION_IF_VERSION;
		r.if_version = if_version;
	}
	return ask_write(session, METHOD_NODES_SET, &r.base, timeout_ms, callback, arg);
}

enum hf_code hf_create_async(struct hf_session *session, const char *path, struct hf_slice value, unsigned int flags, uint32_t timeout_ms, hf_callback callback,
			     void *arg)
{
	Holdfast__V1__NodesCreateRequest r = HOLDFAST__V1__NODES_CREATE_REQUEST__INIT;
	if (!path_is_ok(path) || value.len > HF_VALUE_MAX || (flags & ~(unsigned)(HF_EPHEMERAL | HF_SEQUENTIAL)))
		return HF_INVALID;
	r.path = (char *)(uintptr_t)path;
	r.value = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)value.ptr, .len = value.len };
	r.session = flags & HF_EPHEMERAL ? hf_session_id(session) : 0;
	if ((flags & HF_EPHEMERAL) && !r.session)
		return HF_INVALID; /* not open yet: it would stay for ever */
	r.sequential = (flags & HF_SEQUENTIAL) != 0;
	return ask_write(session, METHOD_NODES_CREATE, &r.base, timeout_ms, callback, arg);
}

enum hf_code hf_delete_async(struct hf_session *session, const char *path, int64_t if_version, uint32_t timeout_ms, hf_callback callback, void *arg)
{
	Holdfast__V1__NodesDeleteRequest r = HOLDFAST__V1__NODES_DELETE_REQUEST__INIT;
	if (!path_is_ok(path) || if_version < HF_ANY_VERSION || if_version == 0)
		return HF_INVALID;
	r.path = (char *)(uintptr_t)path;
	if (if_version != HF_ANY_VERSION) {
		r.condition_case = HOLDFAST__V1__NODES_DELETE_REQUEST__CONDITION_IF_VERSION;
		r.if_version = if_version;
	}
	return ask_write(session, METHOD_NODES_DELETE, &r.base, timeout_ms, callback, arg);
}

void hf_cache_stats(struct hf_session *s, struct hf_cache_stats *ret_stats)
{
	pthread_mutex_lock(&s->mu);
	sess_cache_stats(s->core, boot_ms(), ret_stats);
	pthread_mutex_unlock(&s->mu);
}

/* ---- watches ---- */

static enum hf_code start(struct hf_session *s, struct ask *a, struct sess_ask *what, uint32_t timeout_ms, struct hf_watch **ret_watch)
{
	struct hf_watch *w = mem_zalloc(sizeof(*w));
	w->session = s;
	a->watch = w;
	*ret_watch = w;
	pthread_mutex_lock(&s->mu);
	w->tag = s->next_tag + 1;
	what->deadline_ms = deadline_of(boot_ms(), timeout_ms);
	session_ask(s, a, what);
	pthread_mutex_unlock(&s->mu);
	return HF_OK;
}

enum hf_code watch_start(struct hf_session *s, const char *path, enum hf_watch_kind kind, uint32_t timeout_ms, hf_watch_callback callback, void *arg,
			 hf_callback armed, void *armed_arg, struct hf_watch **ret_watch)
{
	struct sess_ask what = { .kind = SESS_ASK_WATCH, .children = kind == HF_WATCH_CHILDREN };
	struct ask *a;
	if (!callback || (kind != HF_WATCH_VALUE && kind != HF_WATCH_CHILDREN) || (!path_is_ok(path) && !(what.children && path && strcmp(path, "/") == 0)))
		return HF_INVALID;
	what.path = slice_of_str(path);
	a = ask_new(s, ASK_WATCH, armed, armed_arg);
	a->fired = callback;
	a->fired_arg = arg;
	return start(s, a, &what, timeout_ms, ret_watch);
}

enum hf_code hf_watch_async(struct hf_session *session, const char *path, enum hf_watch_kind kind, uint32_t timeout_ms, hf_watch_callback callback,
			    hf_callback armed, void *arg, struct hf_watch **ret_watch)
{
	return watch_start(session, path, kind, timeout_ms, callback, arg, armed, arg, ret_watch);
}

enum hf_code hf_follow(struct hf_session *session, const char *path, hf_callback callback, void *arg, struct hf_watch **ret_watch)
{
	struct sess_ask what = { .kind = SESS_ASK_FOLLOW };
	if (!callback || !path_is_ok(path))
		return HF_INVALID;
	what.path = slice_of_str(path);
	return start(session, ask_new(session, ASK_TOLD, callback, arg), &what, HF_FOREVER, ret_watch);
}

void hf_watch_stop(struct hf_watch *w)
{
	struct sess_event e = { .kind = SESS_ASK };
	struct hf_session *s;
	if (!w)
		return;
	s = w->session;
	pthread_mutex_lock(&s->mu);
	e.now_ms = boot_ms();
	e.ask = (struct sess_ask){ .kind = SESS_ASK_STOP, .tag = w->tag };
	sess_step(s->core, &e);
	session_forget(s, w->tag);
	session_poke(s);
	pthread_mutex_unlock(&s->mu);
	free(w);
}
