/* acts.c: every change of users, roles and permissions, with etcd's checks in etcd's order.
 *
 * A change that turns out to be none (a role that the user has already, enabling what is on) leaves the revision alone, as in etcd. Beyond etcd's
 * checks: names and tables have bounds, no name holds a zero byte, and a permission is of a known type and a range that holds something. */
#include "base/base64.h"
#include "core/auth/auth_internal.h"
#include "core/wire.h"

enum { HASH_BYTES_MAX = 256 };

/* ---- records ---- */

static void put_record(struct auth *a, uint8_t kind, struct slice name, struct buf *body)
{
	const struct auth_record *old = auth_record_find(a->state, kind, name);

	if (old)
		a->bytes -= old->key_len + old->body_len;
	a->bytes += 1 + name.len + body->len;
	tree_put_take(&a->state->auth, &auth_record_new(kind, name, buf_view(body))->base);
	buf_free(body);
}

static void put_user(struct auth *a, const struct auth_user *u)
{
	struct buf body = { 0 };

	auth_user_write(u, &body);
	put_record(a, KIND_USER, u->name, &body);
}

static void put_role(struct auth *a, const struct auth_role *r)
{
	struct buf body = { 0 };

	auth_role_write(r, &body);
	put_record(a, KIND_ROLE, r->name, &body);
}

static void remove_record(struct auth *a, uint8_t kind, struct slice name)
{
	const struct auth_record *r = auth_record_find(a->state, kind, name);

	a->bytes -= r->key_len + r->body_len;
	tree_remove(&a->state->auth, slice_of(r->bytes, r->key_len));
}

static void put_head(struct auth *a)
{
	struct buf body = { 0 };

	pbw_u64(&body, 1, a->enabled);
	pbw_u64(&body, 2, a->revision);
	put_record(a, KIND_HEAD, slice_of(NULL, 0), &body);
	perms_forget(a);
	a->changes++;
}

static enum err changed(struct auth *a)
{
	a->revision++;
	put_head(a);
	return ERR_OK;
}

/* ---- on and off ---- */

static enum err enable(struct auth *a)
{
	struct auth_user root;

	if (a->enabled)
		return ERR_OK;
	if (!auth_find_user(a, root_name(), &root))
		return ERR_ROOT_USER_MISSING;
	if (!auth_user_is_root(&root))
		return ERR_ROOT_ROLE_MISSING;
	a->enabled = true;
	put_head(a);
	return ERR_OK;
}

static enum err disable(struct auth *a, struct auth_effect *effect)
{
	if (!a->enabled)
		return ERR_OK;
	a->enabled = false;
	effect->forget_all = true;
	return changed(a);
}

/* ---- users ---- */

static bool grows_too_large(const struct auth *a, size_t more)
{
	return a->bytes + more > AUTH_BYTES_MAX;
}

/* Appends to ret. False: not base64, or longer than any hash. */
static bool decode_hash(struct slice text, struct buf *ret)
{
	return text.len / 4 * 3 <= HASH_BYTES_MAX && base64_decode_exact(ret, text);
}

static enum err user_add(struct auth *a, const Etcdserverpb__AuthUserAddRequest *r)
{
	struct auth_user u = { .name = slice_of_str(r->name), .no_password = r->options && r->options->no_password };
	struct buf hash = { .ptr = NULL };
	bool known;

	if (u.name.len == 0)
		return ERR_USER_EMPTY;
	if (auth_has_user(a, u.name))
		return ERR_USER_EXISTS;
	if (u.name.len > AUTH_NAME_MAX || grows_too_large(a, u.name.len + HASH_BYTES_MAX))
		return ERR_AUTH_INVALID_MANAGEMENT;
	known = u.no_password || decode_hash(slice_of_str(r->hashedpassword), &hash);
	if (known) {
		u.password = buf_view(&hash);
		put_user(a, &u);
	}
	buf_free(&hash);
	return known ? changed(a) : ERR_AUTH_INVALID_MANAGEMENT;
}

static enum err user_delete(struct auth *a, const Etcdserverpb__AuthUserDeleteRequest *r, struct auth_effect *effect)
{
	struct slice name = slice_of_str(r->name);

	if (a->enabled && slice_eq(name, root_name()))
		return ERR_AUTH_INVALID_MANAGEMENT;
	if (!auth_has_user(a, name))
		return ERR_USER_NOT_FOUND;
	remove_record(a, KIND_USER, name);
	effect->forget_user = name;
	return changed(a);
}

static enum err user_change_password(struct auth *a, const Etcdserverpb__AuthUserChangePasswordRequest *r, struct auth_effect *effect)
{
	struct auth_user u;
	struct buf hash = { .ptr = NULL };
	bool known;

	if (!auth_find_user(a, slice_of_str(r->name), &u))
		return ERR_USER_NOT_FOUND;
	known = u.no_password || decode_hash(slice_of_str(r->hashedpassword), &hash);
	if (known) {
		if (!u.no_password)
			u.password = buf_view(&hash);
		put_user(a, &u);
		effect->forget_user = slice_of_str(r->name);
	}
	buf_free(&hash);
	return known ? changed(a) : ERR_AUTH_INVALID_MANAGEMENT;
}

static enum err user_grant_role(struct auth *a, const Etcdserverpb__AuthUserGrantRoleRequest *r)
{
	struct slice role = slice_of_str(r->role), *roles;
	struct auth_user u;
	size_t at = 0;

	if (!auth_find_user(a, slice_of_str(r->user), &u))
		return ERR_USER_NOT_FOUND;
	if (!slice_eq(role, root_name()) && !auth_record_find(a->state, KIND_ROLE, role))
		return ERR_ROLE_NOT_FOUND;
	while (at < u.roles_len && slice_cmp(u.roles[at], role) < 0)
		at++;
	if (at < u.roles_len && slice_eq(u.roles[at], role))
		return ERR_OK;
	if (u.roles_len >= AUTH_ROLES_MAX || grows_too_large(a, role.len))
		return ERR_AUTH_INVALID_MANAGEMENT;
	roles = arena_alloc(&a->arena, (u.roles_len + 1) * sizeof(*roles));
	for (size_t i = 0; i < u.roles_len; i++)
		roles[i + (i >= at)] = u.roles[i];
	roles[at] = role;
	u.roles = roles;
	u.roles_len++;
	put_user(a, &u);
	return changed(a);
}

/* Whether it had the role. */
static bool drop_role(struct auth_user *u, struct slice role)
{
	size_t n = 0;

	for (size_t i = 0; i < u->roles_len; i++)
		if (!slice_eq(u->roles[i], role))
			u->roles[n++] = u->roles[i];
	if (n == u->roles_len)
		return false;
	u->roles_len = n;
	return true;
}

static enum err user_revoke_role(struct auth *a, const Etcdserverpb__AuthUserRevokeRoleRequest *r)
{
	struct slice name = slice_of_str(r->name), role = slice_of_str(r->role);
	struct auth_user u;

	if (a->enabled && slice_eq(name, root_name()) && slice_eq(role, root_name()))
		return ERR_AUTH_INVALID_MANAGEMENT;
	if (!auth_find_user(a, name, &u))
		return ERR_USER_NOT_FOUND;
	if (!drop_role(&u, role))
		return ERR_ROLE_NOT_GRANTED;
	put_user(a, &u);
	return changed(a);
}

/* ---- roles ---- */

static enum err role_add(struct auth *a, const Etcdserverpb__AuthRoleAddRequest *r)
{
	struct auth_role role = { .name = slice_of_str(r->name) };

	if (role.name.len == 0)
		return ERR_ROLE_EMPTY;
	if (auth_record_find(a->state, KIND_ROLE, role.name))
		return ERR_ROLE_EXISTS;
	if (role.name.len > AUTH_NAME_MAX || grows_too_large(a, role.name.len))
		return ERR_AUTH_INVALID_MANAGEMENT;
	put_role(a, &role);
	return changed(a);
}

/* The first user behind `after` who has the role; its name is lent by the arena. */
static bool next_user_with(struct auth *a, struct slice role, struct slice after, struct auth_user *ret)
{
	struct buf key = { 0 };
	struct tree_cursor c;
	struct tree_record *r;
	bool found = false;

	buf_append_byte(&key, KIND_USER);
	buf_append_slice(&key, after);
	buf_append_byte(&key, 0); /* the least that is above it */
	for (r = tree_seek(&c, &a->state->auth, buf_view(&key)); r && !found; r = tree_next(&c)) {
		const struct auth_record *record = (const struct auth_record *)r;

		if (record->bytes[0] != KIND_USER)
			break;
		ASSERT(auth_user_parse(auth_record_body(record), &a->arena, ret));
		found = drop_role(ret, role);
	}
	buf_free(&key);
	return found;
}

static enum err role_delete(struct auth *a, const Etcdserverpb__AuthRoleDeleteRequest *r)
{
	struct slice role = slice_of_str(r->role), after = { 0 };
	struct auth_user u;

	if (a->enabled && slice_eq(role, root_name()))
		return ERR_AUTH_INVALID_MANAGEMENT;
	if (!auth_record_find(a->state, KIND_ROLE, role))
		return ERR_ROLE_NOT_FOUND;
	remove_record(a, KIND_ROLE, role);
	while (next_user_with(a, role, after, &u)) {
		put_user(a, &u);
		after = u.name;
	}
	return changed(a);
}

static bool is_range(struct slice key, struct slice end)
{
	return end.len == 0 || (end.len == 1 && end.ptr[0] == 0) || slice_cmp(key, end) < 0;
}

static enum err role_grant_permission(struct auth *a, const Etcdserverpb__AuthRoleGrantPermissionRequest *r)
{
	struct auth_permission p, *list;
	struct auth_role role;
	size_t at = 0;

	if (!r->perm)
		return ERR_PERMISSION_NOT_GIVEN;
	p = (struct auth_permission){ (uint32_t)r->perm->permtype, slice_of(r->perm->key.data, r->perm->key.len),
				      slice_of(r->perm->range_end.data, r->perm->range_end.len) };
	if (p.key.len == 0 || !is_range(p.key, p.end) || p.type > AUTHPB__PERMISSION__TYPE__READWRITE)
		return ERR_AUTH_INVALID_MANAGEMENT;
	if (!auth_find_role(a, slice_of_str(r->name), &role))
		return ERR_ROLE_NOT_FOUND;
	while (at < role.permissions_len && auth_permission_cmp(&role.permissions[at], &p) < 0)
		at++;
	if (at < role.permissions_len && auth_permission_cmp(&role.permissions[at], &p) == 0) {
		role.permissions[at].type = p.type;
		put_role(a, &role);
		return changed(a);
	}
	if (role.permissions_len >= AUTH_PERMISSIONS_MAX || grows_too_large(a, p.key.len + p.end.len + 16))
		return ERR_AUTH_INVALID_MANAGEMENT;
	list = arena_alloc(&a->arena, (role.permissions_len + 1) * sizeof(*list));
	for (size_t i = 0; i < role.permissions_len; i++)
		list[i + (i >= at)] = role.permissions[i];
	list[at] = p;
	role.permissions = list;
	role.permissions_len++;
	put_role(a, &role);
	return changed(a);
}

static enum err role_revoke_permission(struct auth *a, const Etcdserverpb__AuthRoleRevokePermissionRequest *r)
{
	struct slice key = slice_of(r->key.data, r->key.len), end = slice_of(r->range_end.data, r->range_end.len);
	struct auth_role role;
	size_t n = 0;

	if (!auth_find_role(a, slice_of_str(r->role), &role))
		return ERR_ROLE_NOT_FOUND;
	for (size_t i = 0; i < role.permissions_len; i++)
		if (!slice_eq(role.permissions[i].key, key) || !slice_eq(role.permissions[i].end, end))
			role.permissions[n++] = role.permissions[i];
	if (n == role.permissions_len)
		return ERR_PERMISSION_NOT_GRANTED;
	role.permissions_len = n;
	put_role(a, &role);
	return changed(a);
}

/* ---- any of them ---- */

static const ProtobufCMessageDescriptor *const requests[] = {
	[AUTH_ACT(ENABLE)] = &etcdserverpb__auth_enable_request__descriptor,
	[AUTH_ACT(DISABLE)] = &etcdserverpb__auth_disable_request__descriptor,
	[AUTH_ACT(USER_ADD)] = &etcdserverpb__auth_user_add_request__descriptor,
	[AUTH_ACT(USER_DELETE)] = &etcdserverpb__auth_user_delete_request__descriptor,
	[AUTH_ACT(USER_CHANGE_PASSWORD)] = &etcdserverpb__auth_user_change_password_request__descriptor,
	[AUTH_ACT(USER_GRANT_ROLE)] = &etcdserverpb__auth_user_grant_role_request__descriptor,
	[AUTH_ACT(USER_REVOKE_ROLE)] = &etcdserverpb__auth_user_revoke_role_request__descriptor,
	[AUTH_ACT(ROLE_ADD)] = &etcdserverpb__auth_role_add_request__descriptor,
	[AUTH_ACT(ROLE_DELETE)] = &etcdserverpb__auth_role_delete_request__descriptor,
	[AUTH_ACT(ROLE_GRANT_PERMISSION)] = &etcdserverpb__auth_role_grant_permission_request__descriptor,
	[AUTH_ACT(ROLE_REVOKE_PERMISSION)] = &etcdserverpb__auth_role_revoke_permission_request__descriptor,
};

/* Strings of C end at a zero byte: a name with one would stand for another name. */
static bool has_zero_byte(const ProtobufCMessageDescriptor *desc, struct slice request)
{
	struct wire w;

	for (wire_init(&w, request); wire_next(&w);) {
		const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(desc, w.field);

		if (f && f->type == PROTOBUF_C_TYPE_STRING && w.type == WIRE_BYTES && w.bytes.len && memchr(w.bytes.ptr, 0, w.bytes.len))
			return true;
	}
	return false;
}

static enum err dispatch(struct auth *a, uint32_t act, const void *r, struct auth_effect *effect)
{
	switch (act) {
	case AUTH_ACT(ENABLE): return enable(a);
	case AUTH_ACT(DISABLE): return disable(a, effect);
	case AUTH_ACT(USER_ADD): return user_add(a, r);
	case AUTH_ACT(USER_DELETE): return user_delete(a, r, effect);
	case AUTH_ACT(USER_CHANGE_PASSWORD): return user_change_password(a, r, effect);
	case AUTH_ACT(USER_GRANT_ROLE): return user_grant_role(a, r);
	case AUTH_ACT(USER_REVOKE_ROLE): return user_revoke_role(a, r);
	case AUTH_ACT(ROLE_ADD): return role_add(a, r);
	case AUTH_ACT(ROLE_DELETE): return role_delete(a, r);
	case AUTH_ACT(ROLE_GRANT_PERMISSION): return role_grant_permission(a, r);
	default: return role_revoke_permission(a, r);
	}
}

enum err auth_apply(struct auth *a, uint32_t act, struct slice request, struct auth_effect *ret)
{
	const ProtobufCMessageDescriptor *desc = act < sizeof(requests) / sizeof(*requests) ? requests[act] : NULL;
	const ProtobufCMessage *m;
	struct slice user;
	enum err e;

	*ret = (struct auth_effect){ 0 };
	if (!desc || pb_check(desc, request, 2) != PB_CHECK_OK)
		return ERR_MALFORMED;
	if (has_zero_byte(desc, request))
		return ERR_AUTH_INVALID_MANAGEMENT;
	m = protobuf_c_message_unpack(desc, &a->arena.pb, request.len, request.ptr);
	if (!m)
		return ERR_MALFORMED;
	e = dispatch(a, act, m, ret);
	user = ret->forget_user.len ? wire_find_bytes(request, 1) : slice_of(NULL, 0); /* the arena goes */
	ret->forget_user = user;
	arena_clear(&a->arena);
	return e;
}
