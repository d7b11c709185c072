/* nodes.c: holdfast.v1.Nodes: paths over the keys that the etcd API has.
 *
 *   (B1) a node is a key whose bytes are a path; whatever wrote it. Keys that are no paths are in no list.
 *   (B2) a sequential node's number is the revision of its creation: it rises with every one, over all paths, restarts and restores, and nothing
 *        has to be kept for it. So no two are ever alike.
 *   (B3) Set leaves a node with whom it belongs to; contenders of locks obey the rules of their queues, as in a Put.
 *   (B4) what belongs to a session is never granted to a cache, nor is a list that holds such a node, or that is not whole. */
#include "core/kv/kv.h"

#include "core/kv/kv_internal.h"
#include "path.h"

enum { VALUE_MAX = 64 * 1024, NUMBER_LEN = 19, LIST_MAX = 1000, LIST_BYTES_MAX = 1 << 20 };

static struct slice text(const char *s)
{
	return slice_of_str(s ? s : "");
}

static bool is_root(struct slice path)
{
	return slice_eq(path, slice_of("/", 1));
}

/* ---- checks that need no state ---- */

static void number_path(struct slice path, revision number, struct buf *ret)
{
	buf_clear(ret);
	buf_append_slice(ret, path);
	for (int64_t digits = NUMBER_LEN, at = INT64_C(1000000000000000000); digits > 0; digits--, at /= 10)
		buf_append_byte(ret, (uint8_t)('0' + number / at % 10));
}

enum err kv_check_node_create(const Holdfast__V1__NodesCreateRequest *r)
{
	struct buf numbered = { 0 };
	enum err e;

	if (r->sequential)
		number_path(text(r->path), 0, &numbered);
	e = path_check(r->sequential ? buf_view(&numbered) : text(r->path));
	buf_free(&numbered);
	return e ? e : r->value.len > VALUE_MAX ? ERR_VALUE_TOO_LARGE : ERR_OK;
}

enum err kv_check_node_get(const Holdfast__V1__NodesGetRequest *r)
{
	return path_check(text(r->path));
}

enum err kv_check_node_set(const Holdfast__V1__NodesSetRequest *r)
{
	enum err e = path_check(text(r->path));

	if (e)
		return e;
	if (r->value.len > VALUE_MAX)
		return ERR_VALUE_TOO_LARGE;
	return r->condition_case != HOLDFAST__V1__NODES_SET_REQUEST__CONDITION__NOT_SET && (r->if_version < 0 || r->if_mod_revision < 0) ?
		       ERR_NEGATIVE :
		       ERR_OK;
}

enum err kv_check_node_delete(const Holdfast__V1__NodesDeleteRequest *r)
{
	enum err e = path_check(text(r->path));

	if (e)
		return e;
	return r->condition_case != HOLDFAST__V1__NODES_DELETE_REQUEST__CONDITION__NOT_SET && (r->if_version < 0 || r->if_mod_revision < 0) ?
		       ERR_NEGATIVE :
		       ERR_OK;
}

enum err kv_check_node_list(const Holdfast__V1__NodesListRequest *r)
{
	enum err e = path_check_or_root(text(r->path));

	return e ? e : r->limit < 0 ? ERR_NEGATIVE : ERR_OK;
}

/* ---- replies ---- */

static void write_node(struct buf *out, uint32_t field, const struct kv *kv, bool value)
{
	size_t mark = pbw_open(out, field);

	pbw_bytes(out, 1, kv_key(kv));
	if (value)
		pbw_bytes(out, 2, kv_value(kv));
	pbw_i64(out, 3, kv->version);
	pbw_i64(out, 4, kv->create_revision);
	pbw_i64(out, 5, kv->mod_revision);
	pbw_i64(out, 6, kv->lease);
	pbw_close(out, mark);
}

static void write_grant(struct buf *out, uint32_t field, raft_term grant)
{
	size_t mark = pbw_open(out, field);

	pbw_u64(out, 1, grant);
	pbw_close(out, mark);
}

static void written_reply(const struct kv_env *env, struct slice path, struct buf *ret)
{
	if (!ret)
		return;
	kv_header_reply(env, ret);
	write_node(ret, 2, store_get(env->store, path, 0), false);
}

/* ---- writes ---- */

static enum err put(struct kv_env *env, struct slice path, struct slice value, lease_id lease)
{
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	struct kv_run run = { .env = env, .writing = true };
	struct kv_put_check check = { .request = &put };
	enum err e;

	put.key = (ProtobufCBinaryData){ .len = path.len, .data = (uint8_t *)(uintptr_t)path.ptr };
	put.value = (ProtobufCBinaryData){ .len = value.len, .data = (uint8_t *)(uintptr_t)value.ptr };
	put.lease = lease;
	e = kv_put_check_lease(env, &put);
	if (!e)
		e = kv_put_check_key(env, &check);
	if (e)
		return e;
	store_txn_begin(env->store);
	kv_run_put(&run, &put);
	store_txn_end(env->store);
	return ERR_OK;
}

enum err kv_node_create(struct kv_env *env, struct slice request, struct buf *ret)
{
	Holdfast__V1__NodesCreateRequest *r;
	struct buf path = { 0 };
	enum err e = kv_unpack(env, &holdfast__v1__nodes_create_request__descriptor, request, &r);

	if (!e)
		e = kv_check_node_create(r);
	if (!e && r->session && !session_find(env->state, r->session))
		e = ERR_UNKNOWN_SESSION;
	if (e)
		return e;
	if (r->sequential)
		number_path(text(r->path), env->state->revision + 1, &path); /* B2 */
	else
		buf_append_slice(&path, text(r->path));
	e = store_get(env->store, buf_view(&path), 0) ? ERR_NODE_EXISTS : put(env, buf_view(&path), kv_slice(r->value), r->session);
	if (!e)
		written_reply(env, buf_view(&path), ret);
	buf_free(&path);
	return e;
}

/* kv NULL: there is none. */
static enum err check_condition(const struct kv *kv, bool by_version, bool by_revision, int64_t wanted)
{
	int64_t has = !kv ? 0 : by_version ? kv->version : kv->mod_revision;

	if (!by_version && !by_revision)
		return kv ? ERR_OK : ERR_NODE_NOT_FOUND;
	if (has == wanted)
		return ERR_OK;
	return !kv ? ERR_NODE_NOT_FOUND : wanted == 0 ? ERR_NODE_EXISTS : ERR_NODE_VERSION;
}

enum err kv_node_set(struct kv_env *env, struct slice request, struct buf *ret)
{
	Holdfast__V1__NodesSetRequest *r;
	const struct kv *kv;
	bool by_version, by_revision;
	enum err e = kv_unpack(env, &holdfast__v1__nodes_set_request__descriptor, request, &r);

	if (!e)
		e = kv_check_node_set(r);
	if (e)
		return e;
	kv = store_get(env->store, text(r->path), 0);
	by_version = r->condition_case == HOLDFAST__V1__NODES_SET_REQUEST__CONDITION_IF_VERSION;
	by_revision = r->condition_case == HOLDFAST__V1__NODES_SET_REQUEST__CONDITION_IF_MOD_REVISION;
	e = check_condition(kv, by_version, by_revision, by_version ? r->if_version : r->if_mod_revision);
	if (e == ERR_NODE_NOT_FOUND && r->create && !by_version && !by_revision)
		e = ERR_OK;
	if (!e)
		e = put(env, text(r->path), kv_slice(r->value), kv ? kv->lease : 0);
	if (!e)
		written_reply(env, text(r->path), ret);
	return e;
}

enum err kv_node_delete(struct kv_env *env, struct slice request, struct buf *ret)
{
	Holdfast__V1__NodesDeleteRequest *r;
	const struct kv *kv;
	struct buf was = { 0 };
	bool by_version, by_revision;
	enum err e = kv_unpack(env, &holdfast__v1__nodes_delete_request__descriptor, request, &r);

	if (!e)
		e = kv_check_node_delete(r);
	if (e)
		return e;
	kv = store_get(env->store, text(r->path), 0);
	by_version = r->condition_case == HOLDFAST__V1__NODES_DELETE_REQUEST__CONDITION_IF_VERSION;
	by_revision = r->condition_case == HOLDFAST__V1__NODES_DELETE_REQUEST__CONDITION_IF_MOD_REVISION;
	e = check_condition(kv, by_version, by_revision, by_version ? r->if_version : r->if_mod_revision);
	if (e || !kv)
		return e ? e : ERR_NODE_NOT_FOUND;
	if (ret)
		write_node(&was, 2, kv, false);
	kv_delete_key(env, text(r->path));
	kv_header_reply(env, ret);
	if (ret)
		buf_append_slice(ret, buf_view(&was));
	buf_free(&was);
	return ERR_OK;
}

/* ---- reads ---- */

enum err kv_node_get(struct kv_env *env, struct slice request, raft_term grant, struct buf *ret)
{
	Holdfast__V1__NodesGetRequest *r;
	const struct kv *kv;
	enum err e = kv_unpack(env, &holdfast__v1__nodes_get_request__descriptor, request, &r);

	if (!e)
		e = kv_check_node_get(r);
	if (e)
		return e;
	kv = store_get(env->store, text(r->path), 0);
	kv_header_reply(env, ret);
	if (kv)
		write_node(ret, 2, kv, true);
	if (grant && (!kv || kv->lease == 0))
		write_grant(ret, 3, grant);
	return ERR_OK;
}

/* One level below a path. What lies deeper is leapt over: `from` goes on behind it. */
struct list_walk {
	size_t prefix; /* of the keys: the path and its slash */
	int64_t room;
	bool values, leased, more, deeper;
	struct buf from;
	struct buf *out;
};

static void leap(struct list_walk *w, struct slice key, size_t slash)
{
	buf_clear(&w->from);
	buf_append(&w->from, key.ptr, slash);
	buf_append_byte(&w->from, '0'); /* the byte behind the slash */
	w->deeper = true;
}

static bool list_next_node(void *ctx, const struct kv *kv)
{
	struct list_walk *w = ctx;
	struct slice key = kv_key(kv);
	const uint8_t *slash = memchr(key.ptr + w->prefix, '/', key.len - w->prefix);

	if (slash) {
		leap(w, key, (size_t)(slash - key.ptr));
		return false;
	}
	if (path_check(key)) /* B1 */
		return true;
	if (w->room == 0 || w->out->len > LIST_BYTES_MAX - VALUE_MAX) {
		w->more = true;
		return false;
	}
	w->room--;
	w->leased |= kv->lease != 0;
	write_node(w->out, 2, kv, w->values);
	return true;
}

static void list_children(const struct kv_env *env, const Holdfast__V1__NodesListRequest *r, struct list_walk *w)
{
	struct slice path = text(r->path);
	struct buf end = { 0 };

	if (!is_root(path))
		buf_append_slice(&end, path);
	w->prefix = end.len + 1;
	buf_append_slice(&w->from, buf_view(&end));
	buf_append_byte(&w->from, '/');
	buf_append_byte(&end, '0');
	if (r->after && *r->after) { /* behind that very name */
		buf_append_slice(&w->from, text(r->after));
		buf_append_byte(&w->from, 0);
	}
	do {
		struct buf from = buf_take(&w->from);

		w->deeper = false;
		store_walk(env->store, (struct store_range){ .key = buf_view(&from), .end = buf_view(&end) }, list_next_node, w);
		buf_free(&from);
	} while (w->deeper);
	buf_free(&w->from);
	buf_free(&end);
}

enum err kv_node_list(struct kv_env *env, struct slice request, raft_term grant, struct buf *ret)
{
	Holdfast__V1__NodesListRequest *r;
	struct list_walk w = { .out = ret };
	enum err e = kv_unpack(env, &holdfast__v1__nodes_list_request__descriptor, request, &r);

	if (!e)
		e = kv_check_node_list(r);
	if (e)
		return e;
	w.values = r->values;
	w.room = r->limit == 0 || r->limit > LIST_MAX ? LIST_MAX : r->limit;
	kv_header_reply(env, ret);
	list_children(env, r, &w);
	pbw_u64(ret, 3, w.more);
	if (grant && !w.leased && !w.more && !(r->after && *r->after)) /* B4 */
		write_grant(ret, 4, grant);
	return ERR_OK;
}
