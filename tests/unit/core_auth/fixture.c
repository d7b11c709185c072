/* fixture.c: see fixture.h. */
#include "fixture.h"

#include <check.h>

void world_init(struct world *w)
{
	state_init(&w->state);
	arena_init(&w->arena);
	w->auth = auth_new(&w->state);
	w->lessor = lessor_new(&w->state, 1);
}

void world_deinit(struct world *w)
{
	auth_check_invariants(w->auth);
	lessor_free(w->lessor);
	auth_free(w->auth);
	state_deinit(&w->state);
	arena_deinit(&w->arena);
}

enum err act(struct world *w, uint32_t what, const ProtobufCMessage *request)
{
	struct auth_effect effect;
	struct buf b = { 0 };
	enum err e;

	buf_reserve(&b, protobuf_c_message_get_packed_size(request) + 1);
	b.len = protobuf_c_message_pack(request, b.ptr);
	e = auth_apply(w->auth, what, buf_view(&b), &effect);
	buf_free(&b);
	return e;
}

enum err user_add(struct world *w, const char *name)
{
	Etcdserverpb__AuthUserAddRequest r = ETCDSERVERPB__AUTH_USER_ADD_REQUEST__INIT;

	r.name = (char *)(uintptr_t)name;
	r.hashedpassword = (char *)(uintptr_t)HASH_BASE64;
	return act(w, AUTH_ACT(USER_ADD), &r.base);
}

enum err user_delete(struct world *w, const char *name)
{
	Etcdserverpb__AuthUserDeleteRequest r = ETCDSERVERPB__AUTH_USER_DELETE_REQUEST__INIT;

	r.name = (char *)(uintptr_t)name;
	return act(w, AUTH_ACT(USER_DELETE), &r.base);
}

enum err grant_role(struct world *w, const char *user, const char *role)
{
	Etcdserverpb__AuthUserGrantRoleRequest r = ETCDSERVERPB__AUTH_USER_GRANT_ROLE_REQUEST__INIT;

	r.user = (char *)(uintptr_t)user;
	r.role = (char *)(uintptr_t)role;
	return act(w, AUTH_ACT(USER_GRANT_ROLE), &r.base);
}

enum err revoke_role(struct world *w, const char *user, const char *role)
{
	Etcdserverpb__AuthUserRevokeRoleRequest r = ETCDSERVERPB__AUTH_USER_REVOKE_ROLE_REQUEST__INIT;

	r.name = (char *)(uintptr_t)user;
	r.role = (char *)(uintptr_t)role;
	return act(w, AUTH_ACT(USER_REVOKE_ROLE), &r.base);
}

enum err role_add(struct world *w, const char *name)
{
	Etcdserverpb__AuthRoleAddRequest r = ETCDSERVERPB__AUTH_ROLE_ADD_REQUEST__INIT;

	r.name = (char *)(uintptr_t)name;
	return act(w, AUTH_ACT(ROLE_ADD), &r.base);
}

enum err role_delete(struct world *w, const char *name)
{
	Etcdserverpb__AuthRoleDeleteRequest r = ETCDSERVERPB__AUTH_ROLE_DELETE_REQUEST__INIT;

	r.role = (char *)(uintptr_t)name;
	return act(w, AUTH_ACT(ROLE_DELETE), &r.base);
}

static ProtobufCBinaryData data(struct slice s)
{
	return (ProtobufCBinaryData){ s.len, (uint8_t *)(uintptr_t)s.ptr };
}

enum err permit(struct world *w, const char *role, uint32_t type, struct slice key, struct slice end)
{
	Etcdserverpb__AuthRoleGrantPermissionRequest r = ETCDSERVERPB__AUTH_ROLE_GRANT_PERMISSION_REQUEST__INIT;
	Authpb__Permission p = AUTHPB__PERMISSION__INIT;

	p.permtype = (Authpb__Permission__Type)type;
	p.key = data(key);
	p.range_end = data(end);
	r.name = (char *)(uintptr_t)role;
	r.perm = &p;
	return act(w, AUTH_ACT(ROLE_GRANT_PERMISSION), &r.base);
}

enum err forbid(struct world *w, const char *role, struct slice key, struct slice end)
{
	Etcdserverpb__AuthRoleRevokePermissionRequest r = ETCDSERVERPB__AUTH_ROLE_REVOKE_PERMISSION_REQUEST__INIT;

	r.role = (char *)(uintptr_t)role;
	r.key = data(key);
	r.range_end = data(end);
	return act(w, AUTH_ACT(ROLE_REVOKE_PERMISSION), &r.base);
}

enum err switch_to(struct world *w, bool on)
{
	Etcdserverpb__AuthEnableRequest r = ETCDSERVERPB__AUTH_ENABLE_REQUEST__INIT;

	return act(w, on ? AUTH_ACT(ENABLE) : AUTH_ACT(DISABLE), &r.base);
}

void world_enable(struct world *w)
{
	ck_assert_int_eq(user_add(w, "root"), ERR_OK);
	ck_assert_int_eq(grant_role(w, "root", "root"), ERR_OK);
	ck_assert_int_eq(switch_to(w, true), ERR_OK);
}

struct auth_who who(const struct world *w, const char *user)
{
	return user ? (struct auth_who){ slice_of_str(user), auth_revision(w->auth) } : (struct auth_who){ 0 };
}

struct authoriser authoriser_of(struct world *w)
{
	return (struct authoriser){ .auth = w->auth, .lessor = w->lessor, .arena = &w->arena };
}
