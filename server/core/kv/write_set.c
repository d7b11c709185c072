/* write_set.c: which keys a command may touch, before anybody knows what it will come to.
 *
 * Whatever may take away the right to read keys touches those keys: it comes into the log only once whoever caches any of them has forgotten it, and
 * until it is applied nobody may cache them anew.
 *
 * What is left out, and why that is safe: whatever only removes keys that have a lease (the end of a lease, Unlock, Resign, Abandon, a broken
 * hold), or gives such a key another value (Proclaim). No key with a lease is in any cache, nor is a list with one in it, so nobody has to forget
 * anything for them. All that *creates* a key counts, with or without a lease: that it was not there may be cached. */
#include "core/kv/kv.h"

#include "core/auth/auth.h"
#include "core/kv/kv_internal.h"
#include "core/wire.h"
#include "holdfast/internal.pb-c.h"

bool kv_may_write_keys(uint32_t kind)
{
	return kind == CMD(PUT) || kind == CMD(DELETE_RANGE) || kind == CMD(TXN) || kind == CMD(LOCK) || kind == CMD(NODE_CREATE) ||
	       kind == CMD(NODE_SET) || kind == CMD(NODE_DELETE) || kind == CMD(AUTH);
}

static void add(struct arena *arena, struct kv_write_set *set, struct slice key, struct slice end)
{
	if (set->len == set->cap) {
		size_t cap = set->cap ? 2 * set->cap : 4;
		struct cache_span *more = arena_alloc(arena, cap * sizeof(*more));

		if (set->len)
			memcpy(more, set->at, set->len * sizeof(*more));
		set->at = more;
		set->cap = cap;
	}
	set->at[set->len++] = (struct cache_span){ .key = key, .end = end };
}

static void add_ops(struct arena *arena, struct kv_write_set *set, Etcdserverpb__RequestOp *const *ops, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const Etcdserverpb__RequestOp *op = ops[i];

		switch (op->request_case) {
		case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT:
			add(arena, set, kv_slice(op->request_put->key), (struct slice){ 0 });
			break;
		case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE:
			add(arena, set, kv_slice(op->request_delete_range->key), kv_slice(op->request_delete_range->range_end));
			break;
		case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_TXN:
			add_ops(arena, set, op->request_txn->success, op->request_txn->n_success);
			add_ops(arena, set, op->request_txn->failure, op->request_txn->n_failure);
			break;
		default:
			break;
		}
	}
}

static void add_txn(struct arena *arena, struct kv_write_set *set, struct slice payload)
{
	Etcdserverpb__TxnRequest *r;

	if (pb_check(&etcdserverpb__txn_request__descriptor, payload, KV_DEPTH_MAX) != PB_CHECK_OK)
		return;
	r = etcdserverpb__txn_request__unpack(&arena->pb, payload.len, payload.ptr);
	if (!r)
		return;
	add_ops(arena, set, r->success, r->n_success);
	add_ops(arena, set, r->failure, r->n_failure);
}

static void add_lock(struct arena *arena, struct kv_write_set *set, struct slice payload)
{
	struct buf key = { 0 };

	lock_key(wire_find_bytes(payload, 1), (lease_id)wire_find_u64(payload, 2, 0), &key);
	add(arena, set, arena_copy(arena, buf_view(&key)), (struct slice){ 0 });
	buf_free(&key);
}

/* As the request is read when it is carried out: a string of C ends at its first zero byte. */
struct slice kv_node_path(struct slice request)
{
	struct slice path = wire_find_bytes(request, 1);
	const uint8_t *zero = path.len > 0 ? memchr(path.ptr, 0, path.len) : NULL;

	return zero ? slice_of(path.ptr, (size_t)(zero - path.ptr)) : path;
}

/* A sequential one's key is not known before it is applied: its path, and whatever digits. */
static void add_create(struct arena *arena, struct kv_write_set *set, struct slice payload)
{
	struct slice path = kv_node_path(payload);
	struct buf begin = { 0 }, end = { 0 };

	if (!wire_find_u64(payload, 4, 0)) {
		add(arena, set, path, (struct slice){ 0 });
		return;
	}
	buf_append_slice(&begin, path);
	buf_append_byte(&begin, '0');
	buf_append_slice(&end, path);
	buf_append_byte(&end, '9' + 1);
	add(arena, set, arena_copy(arena, buf_view(&begin)), arena_copy(arena, buf_view(&end)));
	buf_free(&begin);
	buf_free(&end);
}

/* What an act of the Auth service may put out of somebody's sight. A permission that is given anew may be less than the one it replaces; whose roles and
 * permissions are which is not looked at, so for whole users and roles it is everything. */
static void add_auth(struct arena *arena, struct kv_write_set *set, struct slice payload)
{
	struct slice request = wire_find_bytes(payload, 2);
	Etcdserverpb__AuthRoleGrantPermissionRequest *r;

	switch (wire_find_u64(payload, 1, 0)) {
	case AUTH_ACT(ROLE_GRANT_PERMISSION): /* unpacked, since a message that comes twice is put together */
		if (pb_check(&etcdserverpb__auth_role_grant_permission_request__descriptor, request, 2) != PB_CHECK_OK)
			return;
		r = etcdserverpb__auth_role_grant_permission_request__unpack(&arena->pb, request.len, request.ptr);
		if (r && r->perm)
			add(arena, set, kv_slice(r->perm->key), kv_slice(r->perm->range_end));
		break;
	case AUTH_ACT(ROLE_REVOKE_PERMISSION):
		add(arena, set, wire_find_bytes(request, 2), wire_find_bytes(request, 3));
		break;
	case AUTH_ACT(ENABLE):
	case AUTH_ACT(USER_DELETE):
	case AUTH_ACT(USER_REVOKE_ROLE):
	case AUTH_ACT(ROLE_DELETE):
		add(arena, set, slice_of("", 1), slice_of("", 1)); /* from the least key on */
		break;
	default:
		break; /* takes nothing away */
	}
}

void kv_write_set(struct arena *arena, uint32_t kind, struct slice payload, struct kv_write_set *ret)
{
	*ret = (struct kv_write_set){ 0 };
	switch (kind) {
	case CMD(NODE_SET):
	case CMD(NODE_DELETE):
		add(arena, ret, kv_node_path(payload), (struct slice){ 0 });
		break;
	case CMD(PUT):
		add(arena, ret, wire_find_bytes(payload, 1), (struct slice){ 0 });
		break;
	case CMD(DELETE_RANGE):
		add(arena, ret, wire_find_bytes(payload, 1), wire_find_bytes(payload, 2));
		break;
	case CMD(TXN):
		add_txn(arena, ret, payload);
		break;
	case CMD(LOCK):
		add_lock(arena, ret, payload);
		break;
	case CMD(NODE_CREATE):
		add_create(arena, ret, payload);
		break;
	case CMD(AUTH):
		add_auth(arena, ret, payload);
		break;
	default:
		break;
	}
}
