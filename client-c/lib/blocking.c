/* blocking.c: the blocking forms: each starts its callback form and waits. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "lib.h"

void waiter_init(struct waiter *w, int (*take)(void *, const struct hf_result *), void *out)
{
	*w = (struct waiter){ .code = HF_FAILED, .take = take, .out = out };
	pthread_mutex_init(&w->mu, NULL);
	pthread_cond_init(&w->over, NULL);
}

void waiter_tell(void *arg, const struct hf_result *result)
{
	struct waiter *w = arg;
	if (result->code == HF_OK && w->take)
		w->take(w->out, result);
	pthread_mutex_lock(&w->mu);
	w->code = result->code;
	w->done = true;
	pthread_cond_signal(&w->over);
	pthread_mutex_unlock(&w->mu);
}

enum hf_code waiter_wait(struct waiter *w, enum hf_code started)
{
	pthread_mutex_lock(&w->mu);
	while (started == HF_OK && !w->done)
		pthread_cond_wait(&w->over, &w->mu);
	pthread_mutex_unlock(&w->mu);
	pthread_mutex_destroy(&w->mu);
	pthread_cond_destroy(&w->over);
	return started == HF_OK ? w->code : started;
}

/* ---- copies ---- */

static struct hf_value *value_copy(const struct hf_node *n, int64_t revision, int cached)
{
	size_t path = n->path ? strlen(n->path) : 0;
	struct hf_value *v = mem_alloc(sizeof(*v) + path + 1 + n->value.len);
	char *at = (char *)(v + 1);
	v->node = *n;
	v->revision = revision;
	v->cached = cached;
	if (path)
		memcpy(at, n->path, path);
	at[path] = 0;
	v->node.path = at;
	if (n->value.len)
		memcpy(at + path + 1, n->value.ptr, n->value.len);
	v->node.value.ptr = at + path + 1;
	return v;
}

void hf_value_free(struct hf_value *value)
{
	free(value);
}

static int take_value(void *out, const struct hf_result *r)
{
	struct hf_value **ret = out;
	if (ret && r->nodes_len)
		*ret = value_copy(&r->nodes[0], r->revision, 0);
	return 0;
}

static int take_list(void *out, const struct hf_result *r)
{
	struct hf_list **ret = out, *l = mem_zalloc(sizeof(*l) + r->nodes_len * sizeof(l->at[0]));
	struct hf_node *at = (struct hf_node *)(l + 1);
	l->len = r->nodes_len;
	l->more = r->more;
	l->at = at;
	for (size_t i = 0; i < l->len; i++) {
		at[i] = r->nodes[i];
		at[i].value = (struct hf_slice){ NULL, 0 };
		at[i].path = strcpy(mem_alloc(strlen(r->nodes[i].path) + 1), r->nodes[i].path);
	}
	*ret = l;
	return 0;
}

void hf_list_free(struct hf_list *list)
{
	for (size_t i = 0; list && i < list->len; i++)
		free((char *)(uintptr_t)list->at[i].path);
	free(list);
}

static int take_places(void *out, const struct hf_result *r)
{
	struct hf_places **ret = out, *p = mem_zalloc(sizeof(*p) + r->places_len * sizeof(p->at[0]));
	struct hf_place *at = (struct hf_place *)(p + 1);
	p->len = r->places_len;
	p->more = r->more;
	p->at = at;
	for (size_t i = 0; i < p->len; i++) {
		void *key = mem_alloc(r->places[i].key.len + 1);
		at[i] = r->places[i];
		if (at[i].key.len)
			memcpy(key, at[i].key.ptr, at[i].key.len);
		at[i].key.ptr = key;
	}
	*ret = p;
	return 0;
}

void hf_places_free(struct hf_places *places)
{
	for (size_t i = 0; places && i < places->len; i++)
		free((void *)(uintptr_t)places->at[i].key.ptr);
	free(places);
}

static int take_version(void *out, const struct hf_result *r)
{
	int64_t *ret = out;
	if (ret && r->nodes_len)
		*ret = r->nodes[0].version;
	return 0;
}

static int take_path(void *out, const struct hf_result *r)
{
	char **ret = out;
	if (ret && r->nodes_len)
		*ret = strcpy(mem_alloc(strlen(r->nodes[0].path) + 1), r->nodes[0].path);
	return 0;
}

void hf_string_free(char *string)
{
	free(string);
}

static int take_lock(void *out, const struct hf_result *r)
{
	struct hf_lock **ret = out;
	*ret = r->lock;
	return 0;
}

/* ---- the calls ---- */

/* Runs `call`, a callback form that takes waiter_tell and &w, unless this is the thread that would have to answer. */
#define BLOCK(client, take, out, call)                          \
	struct waiter w;                                        \
	if (client_is_here(client))                             \
		return HF_INVALID;                              \
	waiter_init(&w, take, out);                             \
	return waiter_wait(&w, call)

enum hf_code hf_session_open(struct hf_client *client, const struct hf_session_options *options, uint32_t timeout_ms, struct hf_session **ret_session)
{
	struct hf_session *s = NULL;
	struct waiter w;
	enum hf_code c;
	if (client_is_here(client))
		return HF_INVALID;
	waiter_init(&w, NULL, NULL);
	c = waiter_wait(&w, hf_session_open_async(client, options, timeout_ms, waiter_tell, &w, &s));
	if (c == HF_OK)
		*ret_session = s;
	else if (s)
		hf_session_close(s, 0);
	return c;
}

enum hf_code hf_session_close(struct hf_session *session, uint32_t timeout_ms)
{
	BLOCK(session->client, NULL, NULL, hf_session_close_async(session, timeout_ms, waiter_tell, &w));
}

enum hf_code hf_lock(struct hf_session *session, struct hf_slice name, const struct hf_lock_options *options, struct hf_lock **ret_lock)
{
	BLOCK(session->client, take_lock, ret_lock, hf_lock_async(session, name, options, waiter_tell, &w, NULL));
}

enum hf_code hf_unlock(struct hf_lock *lock, uint32_t timeout_ms)
{
	BLOCK(lock->session->client, NULL, NULL, hf_unlock_async(lock, timeout_ms, waiter_tell, &w));
}

enum hf_code hf_campaign(struct hf_session *session, struct hf_slice name, struct hf_slice value, const struct hf_lock_options *options, struct hf_lock **ret_lock)
{
	BLOCK(session->client, take_lock, ret_lock, hf_campaign_async(session, name, value, options, waiter_tell, &w, NULL));
}

enum hf_code hf_proclaim(struct hf_lock *leadership, struct hf_slice value, uint32_t timeout_ms)
{
	BLOCK(leadership->session->client, NULL, NULL, hf_proclaim_async(leadership, value, timeout_ms, waiter_tell, &w));
}

enum hf_code hf_leader(struct hf_session *session, struct hf_slice name, uint32_t timeout_ms, struct hf_value **ret_leader)
{
	BLOCK(session->client, take_value, ret_leader, hf_leader_async(session, name, timeout_ms, waiter_tell, &w));
}

enum hf_code hf_members(struct hf_session *session, struct hf_slice name, uint32_t timeout_ms, struct hf_places **ret_places)
{
	BLOCK(session->client, take_places, ret_places, hf_members_async(session, name, timeout_ms, waiter_tell, &w));
}

/* The quick way: C4, S4. */
static bool from_memory(struct hf_session *s, const char *path, struct hf_value **ret_value, enum hf_code *ret_code)
{
	struct slice p = slice_of_str(path);
	struct hf_value *v = NULL;
	struct sess_cached c;
	bool hit;
	pthread_mutex_lock(&s->mu);
	hit = sess_cache_load(s->core, p, false, &c);
	if (hit && c.exists)
		v = value_copy(&c.node, c.revision, 1);
	hit = hit && sess_cache_confirm(s->core, &c, boot_ms());
	pthread_mutex_unlock(&s->mu);
	if (!hit) {
		free(v);
		return false;
	}
	*ret_code = v ? HF_OK : HF_NOT_FOUND;
	if (v)
		*ret_value = v;
	return true;
}

enum hf_code hf_get(struct hf_session *session, const char *path, uint32_t timeout_ms, struct hf_value **ret_value)
{
	enum hf_code code;
	if (path && from_memory(session, path, ret_value, &code))
		return code;
	BLOCK(session->client, take_value, ret_value, hf_get_async(session, path, timeout_ms, waiter_tell, &w));
}

enum hf_code hf_set(struct hf_session *session, const char *path, struct hf_slice value, int64_t if_version, uint32_t timeout_ms, int64_t *ret_version)
{
	BLOCK(session->client, take_version, ret_version, hf_set_async(session, path, value, if_version, timeout_ms, waiter_tell, &w));
}

enum hf_code hf_create(struct hf_session *session, const char *path, struct hf_slice value, unsigned int flags, uint32_t timeout_ms, char **ret_path)
{
	BLOCK(session->client, take_path, ret_path, hf_create_async(session, path, value, flags, timeout_ms, waiter_tell, &w));
}

enum hf_code hf_delete(struct hf_session *session, const char *path, int64_t if_version, uint32_t timeout_ms)
{
	BLOCK(session->client, NULL, NULL, hf_delete_async(session, path, if_version, timeout_ms, waiter_tell, &w));
}

enum hf_code hf_list(struct hf_session *session, const char *path, uint32_t timeout_ms, struct hf_list **ret_list)
{
	BLOCK(session->client, take_list, ret_list, hf_list_async(session, path, timeout_ms, waiter_tell, &w));
}

enum hf_code hf_watch(struct hf_session *session, const char *path, enum hf_watch_kind kind, uint32_t timeout_ms, hf_watch_callback callback, void *arg,
		      struct hf_value **ret_value, struct hf_watch **ret_watch)
{
	struct hf_watch *watch = NULL;
	struct waiter w;
	enum hf_code c;
	if (client_is_here(session->client))
		return HF_INVALID;
	waiter_init(&w, kind == HF_WATCH_VALUE ? take_value : NULL, ret_value);
	c = waiter_wait(&w, watch_start(session, path, kind, timeout_ms, callback, arg, waiter_tell, &w, &watch));
	if (c == HF_OK)
		*ret_watch = watch;
	else if (watch)
		hf_watch_stop(watch);
	return c;
}
