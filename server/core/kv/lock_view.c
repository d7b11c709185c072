/* lock_view.c: holdfast.v1.Locks: locks as people look at them, and the one thing an operator may do to them.
 *
 *   (N1) List and Verify read the state as it is; that it is recent enough is the caller's business.
 *   (N2) a page is bounded in places and in bytes, and tells where the next one begins by the last place's position in the order, which
 *        stays good when that place goes.
 *   (N3) Break ends exactly the hold that is named, never a place that waits, and never a later hold. */
#include "core/kv/kv.h"

#include "core/kv/kv_internal.h"
#include "holdfast/v1.pb-c.h"

enum { PLACES_MAX = 1000, PAGE_BYTES_MAX = 1 << 20 };

static void write_place(const struct kv_env *env, const struct contender *c, struct buf *out, uint32_t field)
{
	size_t mark = pbw_open(out, field);

	pbw_bytes(out, 1, contender_key(c));
	pbw_i64(out, 2, c->lease);
	pbw_u64(out, 3, c->mode);
	pbw_i64(out, 4, c->create_revision);
	pbw_u64(out, 5, lock_is_held(env->locks, c));
	pbw_i64(out, 6, c->since_unix_ms);
	pbw_bytes(out, 7, contender_client(c));
	pbw_close(out, mark);
}

/* ---- List ---- */

/* The places of one lock from *at on, as many as there is room for; *at: the next one of whatever lock, or NULL. */
static void write_queue(struct kv_env *env, struct slice prefix, const struct contender **at, int64_t *room, struct buf *last, struct buf *out)
{
	struct slice name = contender_name(*at);
	size_t mark = pbw_open(out, 2);

	pbw_bytes_always(out, 1, name);
	while (*at && slice_eq(contender_name(*at), name) && *room > 0 && out->len < PAGE_BYTES_MAX) {
		write_place(env, *at, out, 2);
		(*room)--;
		buf_clear(last);
		buf_append_slice(last, contender_sort_key_view(*at));
		*at = lock_next_by_prefix(env->locks, prefix, buf_view(last));
	}
	pbw_close(out, mark);
}

enum err kv_locks_list(struct kv_env *env, struct slice request, struct buf *ret)
{
	Holdfast__V1__LocksListRequest *r;
	const struct contender *at;
	struct buf last = { 0 };
	struct slice prefix;
	int64_t room;
	enum err e = kv_unpack(env, &holdfast__v1__locks_list_request__descriptor, request, &r);

	if (!e && r->limit < 0)
		e = ERR_NEGATIVE;
	if (e)
		return e;
	prefix = kv_slice(r->prefix);
	room = r->limit == 0 || r->limit > PLACES_MAX ? PLACES_MAX : r->limit;
	kv_header_reply(env, ret);
	at = lock_next_by_prefix(env->locks, prefix, kv_slice(r->after));
	while (at && room > 0 && ret->len < PAGE_BYTES_MAX)
		write_queue(env, prefix, &at, &room, &last, ret);
	if (at) /* N2 */
		pbw_bytes(ret, 3, buf_view(&last));
	buf_free(&last);
	return ERR_OK;
}

/* ---- Verify ---- */

enum err kv_locks_verify(struct kv_env *env, struct slice request, struct buf *ret)
{
	Holdfast__V1__LocksVerifyRequest *r;
	const struct contender *c;
	enum err e = kv_unpack(env, &holdfast__v1__locks_verify_request__descriptor, request, &r);

	if (!e && r->name.len == 0)
		e = ERR_EMPTY_KEY;
	if (e)
		return e;
	kv_header_reply(env, ret);
	c = r->fencing_token > 0 ? lock_by_token(env->locks, kv_slice(r->name), r->fencing_token) : NULL;
	if (!c || !lock_is_held(env->locks, c))
		return ERR_OK;
	pbw_u64(ret, 2, 1);
	write_place(env, c, ret, 3);
	return ERR_OK;
}

/* ---- Break ---- */

static enum err find_hold(struct kv_env *env, const Holdfast__V1__LocksBreakRequest *r, const struct contender **ret)
{
	const struct kv *kv;

	if (r->fencing_token < 0 || (r->key.len == 0 && r->name.len > 0 && r->fencing_token == 0))
		return ERR_NEGATIVE;
	if (r->key.len == 0 && r->name.len == 0)
		return ERR_EMPTY_KEY;
	if (r->key.len == 0) {
		*ret = lock_by_token(env->locks, kv_slice(r->name), r->fencing_token);
	} else {
		kv = store_get(env->store, kv_slice(r->key), 0);
		*ret = kv ? lock_find(env->locks, kv) : NULL;
		if (kv && !*ret)
			return ERR_NOT_CONTENDER;
	}
	if (*ret && ((r->fencing_token && (*ret)->create_revision != r->fencing_token) || !lock_is_held(env->locks, *ret)))
		*ret = NULL; /* N3 */
	return ERR_OK;
}

enum err kv_lock_break(struct kv_env *env, struct slice request, struct buf *ret)
{
	Holdfast__V1__LocksBreakRequest *r;
	const struct contender *c = NULL;
	struct buf broken = { 0 };
	enum err e = kv_unpack(env, &holdfast__v1__locks_break_request__descriptor, request, &r);

	if (!e)
		e = find_hold(env, r, &c);
	if (e)
		return e;
	if (c) {
		write_place(env, c, &broken, 2);
		kv_delete_key(env, arena_copy(env->arena, contender_key(c)));
	}
	kv_header_reply(env, ret);
	if (ret)
		buf_append_slice(ret, buf_view(&broken));
	buf_free(&broken);
	return ERR_OK;
}
