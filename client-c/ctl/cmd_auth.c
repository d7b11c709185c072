/* cmd_auth.c: user, role, auth: who there is, and what they may do. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctl.h"
#include "etcd/rpc.pb-c.h"
#include "kv.h"
#include "login.h"

static char *word(const struct ctl *c, int i)
{
	return (char *)(uintptr_t)c->args.words[i];
}

/* ---- auth ---- */

static void print_enabled(struct ctl *c, const ProtobufCMessage *reply)
{
	(void)c, (void)reply;
	out_printf("Authentication Enabled\n");
}

int command_auth_enable(struct ctl *c)
{
	Etcdserverpb__AuthEnableRequest r = ETCDSERVERPB__AUTH_ENABLE_REQUEST__INIT;
	return ctl_run(c, METHOD_AUTH_ENABLE, &r.base, ASK_AGAIN, print_enabled, "enable authentication");
}

static void print_disabled(struct ctl *c, const ProtobufCMessage *reply)
{
	(void)c, (void)reply;
	out_printf("Authentication Disabled\n");
}

int command_auth_disable(struct ctl *c)
{
	Etcdserverpb__AuthDisableRequest r = ETCDSERVERPB__AUTH_DISABLE_REQUEST__INIT;
	return ctl_run(c, METHOD_AUTH_DISABLE, &r.base, ASK_ONCE, print_disabled, "disable authentication");
}

static void print_status(struct ctl *c, const ProtobufCMessage *reply)
{
	const Etcdserverpb__AuthStatusResponse *r = (const void *)reply;
	(void)c;
	out_printf("Authentication Status: %s\nAuthRevision: %" PRIu64 "\n", r->enabled ? "true" : "false", r->authrevision);
}

int command_auth_status(struct ctl *c)
{
	Etcdserverpb__AuthStatusRequest r = ETCDSERVERPB__AUTH_STATUS_REQUEST__INIT;
	return ctl_run(c, METHOD_AUTH_STATUS, &r.base, ASK_AGAIN, print_status, "ask whether authentication is on");
}

/* ---- users ---- */

/* NAME or NAME:PASSWORD; the password, if it has to be asked for. False: said why not. */
static bool take_password(struct ctl *c, char **ret_name, char **ret_password)
{
	const char *colon = strchr(c->args.words[0], ':');
	*ret_name = strndup(c->args.words[0], colon ? (size_t)(colon - c->args.words[0]) : strlen(c->args.words[0]));
	*ret_password = c->args.no_password ? strdup("") : colon ? strdup(colon + 1) : login_new_password(*ret_name);
	if (*ret_password)
		return true;
	free(*ret_name);
	return false;
}

static void print_user_added(struct ctl *c, const ProtobufCMessage *reply)
{
	(void)reply;
	out_printf("User %.*s created\n", (int)strcspn(c->args.words[0], ":"), c->args.words[0]);
}

int command_user_add(struct ctl *c)
{
	Etcdserverpb__AuthUserAddRequest r = ETCDSERVERPB__AUTH_USER_ADD_REQUEST__INIT;
	Authpb__UserAddOptions options = AUTHPB__USER_ADD_OPTIONS__INIT;
	int code;
	if (!take_password(c, &r.name, &r.password))
		return EXIT_USAGE;
	options.no_password = c->args.no_password;
	r.options = &options;
	code = ctl_run(c, METHOD_AUTH_USER_ADD, &r.base, ASK_ONCE, print_user_added, "add user '%s'", r.name);
	free(r.name);
	login_wipe(r.password);
	return code;
}

static void print_user_deleted(struct ctl *c, const ProtobufCMessage *reply)
{
	(void)reply;
	out_printf("User %s deleted\n", c->args.words[0]);
}

int command_user_delete(struct ctl *c)
{
	Etcdserverpb__AuthUserDeleteRequest r = ETCDSERVERPB__AUTH_USER_DELETE_REQUEST__INIT;
	r.name = word(c, 0);
	return ctl_run(c, METHOD_AUTH_USER_DELETE, &r.base, ASK_ONCE, print_user_deleted, "delete user '%s'", r.name);
}

static void print_user(struct ctl *c, const ProtobufCMessage *reply)
{
	const Etcdserverpb__AuthUserGetResponse *r = (const void *)reply;
	out_printf("User: %s\nRoles:", c->args.words[0]);
	for (size_t i = 0; i < r->n_roles; i++)
		out_printf(" %s", r->roles[i]);
	out_printf("\n");
}

int command_user_get(struct ctl *c)
{
	Etcdserverpb__AuthUserGetRequest r = ETCDSERVERPB__AUTH_USER_GET_REQUEST__INIT;
	r.name = word(c, 0);
	return ctl_run(c, METHOD_AUTH_USER_GET, &r.base, ASK_AGAIN, print_user, "look at user '%s'", r.name);
}

static void print_users(struct ctl *c, const ProtobufCMessage *reply)
{
	const Etcdserverpb__AuthUserListResponse *r = (const void *)reply;
	(void)c;
	for (size_t i = 0; i < r->n_users; i++)
		out_printf("%s\n", r->users[i]);
}

int command_user_list(struct ctl *c)
{
	Etcdserverpb__AuthUserListRequest r = ETCDSERVERPB__AUTH_USER_LIST_REQUEST__INIT;
	return ctl_run(c, METHOD_AUTH_USER_LIST, &r.base, ASK_AGAIN, print_users, "list the users");
}

static void print_password_changed(struct ctl *c, const ProtobufCMessage *reply)
{
	(void)c, (void)reply;
	out_printf("Password updated\n");
}

int command_user_passwd(struct ctl *c)
{
	Etcdserverpb__AuthUserChangePasswordRequest r = ETCDSERVERPB__AUTH_USER_CHANGE_PASSWORD_REQUEST__INIT;
	int code;
	if (!take_password(c, &r.name, &r.password))
		return EXIT_USAGE;
	code = ctl_run(c, METHOD_AUTH_USER_CHANGE_PASSWORD, &r.base, ASK_ONCE, print_password_changed, "change the password of '%s'", r.name);
	free(r.name);
	login_wipe(r.password);
	return code;
}

static void print_granted(struct ctl *c, const ProtobufCMessage *reply)
{
	(void)reply;
	out_printf("Role %s is granted to user %s\n", c->args.words[1], c->args.words[0]);
}

int command_user_grant_role(struct ctl *c)
{
	Etcdserverpb__AuthUserGrantRoleRequest r = ETCDSERVERPB__AUTH_USER_GRANT_ROLE_REQUEST__INIT;
	r.user = word(c, 0);
	r.role = word(c, 1);
	return ctl_run(c, METHOD_AUTH_USER_GRANT_ROLE, &r.base, ASK_AGAIN, print_granted, "grant role '%s' to '%s'", r.role, r.user);
}

static void print_revoked(struct ctl *c, const ProtobufCMessage *reply)
{
	(void)reply;
	out_printf("Role %s is revoked from user %s\n", c->args.words[1], c->args.words[0]);
}

int command_user_revoke_role(struct ctl *c)
{
	Etcdserverpb__AuthUserRevokeRoleRequest r = ETCDSERVERPB__AUTH_USER_REVOKE_ROLE_REQUEST__INIT;
	r.name = word(c, 0);
	r.role = word(c, 1);
	return ctl_run(c, METHOD_AUTH_USER_REVOKE_ROLE, &r.base, ASK_ONCE, print_revoked, "revoke role '%s' from '%s'", r.role, r.name);
}

/* ---- roles ---- */

static void print_role_added(struct ctl *c, const ProtobufCMessage *reply)
{
	(void)reply;
	out_printf("Role %s created\n", c->args.words[0]);
}

int command_role_add(struct ctl *c)
{
	Etcdserverpb__AuthRoleAddRequest r = ETCDSERVERPB__AUTH_ROLE_ADD_REQUEST__INIT;
	r.name = word(c, 0);
	return ctl_run(c, METHOD_AUTH_ROLE_ADD, &r.base, ASK_ONCE, print_role_added, "add role '%s'", r.name);
}

static void print_role_deleted(struct ctl *c, const ProtobufCMessage *reply)
{
	(void)reply;
	out_printf("Role %s deleted\n", c->args.words[0]);
}

int command_role_delete(struct ctl *c)
{
	Etcdserverpb__AuthRoleDeleteRequest r = ETCDSERVERPB__AUTH_ROLE_DELETE_REQUEST__INIT;
	r.role = word(c, 0);
	return ctl_run(c, METHOD_AUTH_ROLE_DELETE, &r.base, ASK_ONCE, print_role_deleted, "delete role '%s'", r.role);
}

static void print_range(const struct ctl *c, const Authpb__Permission *p)
{
	struct buf b = { .ptr = NULL };
	struct slice end = slice_of(p->range_end.data, p->range_end.len);
	buf_printf(&b, end.len ? "\t[" : "\t");
	out_bytes(&c->out, slice_of(p->key.data, p->key.len), &b);
	if (end.len == 1 && end.ptr[0] == 0) {
		buf_printf(&b, ", <open ended>");
	} else if (end.len) {
		buf_printf(&b, ", ");
		out_bytes(&c->out, end, &b);
		buf_printf(&b, ")");
	}
	buf_append_byte(&b, '\n');
	out_write(&b);
	buf_free(&b);
}

static void print_role(struct ctl *c, const ProtobufCMessage *reply)
{
	const Etcdserverpb__AuthRoleGetResponse *r = (const void *)reply;
	out_printf("Role %s\n", c->args.words[0]);
	for (int write = 0; write < 2; write++) {
		Authpb__Permission__Type other = write ? AUTHPB__PERMISSION__TYPE__READ : AUTHPB__PERMISSION__TYPE__WRITE;
		out_printf("KV %s:\n", write ? "Write" : "Read");
		for (size_t i = 0; i < r->n_perm; i++)
			if (r->perm[i]->permtype != other)
				print_range(c, r->perm[i]);
	}
}

int command_role_get(struct ctl *c)
{
	Etcdserverpb__AuthRoleGetRequest r = ETCDSERVERPB__AUTH_ROLE_GET_REQUEST__INIT;
	r.role = word(c, 0);
	return ctl_run(c, METHOD_AUTH_ROLE_GET, &r.base, ASK_AGAIN, print_role, "look at role '%s'", r.role);
}

static void print_roles(struct ctl *c, const ProtobufCMessage *reply)
{
	const Etcdserverpb__AuthRoleListResponse *r = (const void *)reply;
	(void)c;
	for (size_t i = 0; i < r->n_roles; i++)
		out_printf("%s\n", r->roles[i]);
}

int command_role_list(struct ctl *c)
{
	Etcdserverpb__AuthRoleListRequest r = ETCDSERVERPB__AUTH_ROLE_LIST_REQUEST__INIT;
	return ctl_run(c, METHOD_AUTH_ROLE_LIST, &r.base, ASK_AGAIN, print_roles, "list the roles");
}

/* KEY [RANGE_END], --prefix, --from-key, from the i-th word on; the keys' bytes. False: said why not. An empty key is the smallest there is. */
static bool take_range(struct ctl *c, int i, struct buf *key, struct buf *end)
{
	bool has_end = c->args.words_len > i + 1;
	if (has_end + c->args.prefix + c->args.from_key > 1) {
		ctl_error("RANGE_END, --prefix and --from-key exclude one another");
		return false;
	}
	if (!ctl_bytes(c, c->args.words[i], key) || (has_end && !ctl_bytes(c, c->args.words[i + 1], end)))
		return false;
	if (c->args.prefix && key->len) {
		buf_append_slice(end, buf_view(key));
		while (end->len && end->ptr[end->len - 1] == 0xff)
			end->len--;
		if (end->len)
			end->ptr[end->len - 1]++;
	}
	if ((c->args.prefix && !end->len) || c->args.from_key)
		buf_append_byte(end, 0);
	if (!key->len)
		buf_append_byte(key, 0);
	return true;
}

static void print_updated(struct ctl *c, const ProtobufCMessage *reply)
{
	(void)reply;
	out_printf("Role %s updated\n", c->args.words[0]);
}

static bool permission_type(const char *text, Authpb__Permission__Type *ret)
{
	static const char *const names[] = { "read", "write", "readwrite" };
	for (int i = 0; i < 3; i++) {
		if (strcmp(text, names[i]) == 0) {
			*ret = (Authpb__Permission__Type)i;
			return true;
		}
	}
	ctl_error("'%s' is none of read, write, readwrite", text);
	return false;
}

int command_role_grant_permission(struct ctl *c)
{
	Etcdserverpb__AuthRoleGrantPermissionRequest r = ETCDSERVERPB__AUTH_ROLE_GRANT_PERMISSION_REQUEST__INIT;
	Authpb__Permission p = AUTHPB__PERMISSION__INIT;
	struct buf key = { .ptr = NULL }, end = { .ptr = NULL };
	int code = EXIT_USAGE;
	if (permission_type(c->args.words[1], &p.permtype) && take_range(c, 2, &key, &end)) {
		r.name = word(c, 0);
		p.key = (ProtobufCBinaryData){ key.len, key.ptr };
		p.range_end = (ProtobufCBinaryData){ end.len, end.ptr };
		r.perm = &p;
		code = ctl_run(c, METHOD_AUTH_ROLE_GRANT_PERMISSION, &r.base, ASK_AGAIN, print_updated, "change role '%s'", r.name);
	}
	buf_free(&key);
	buf_free(&end);
	return code;
}

static void print_taken_back(struct ctl *c, const ProtobufCMessage *reply)
{
	(void)reply;
	out_printf("Permission of key %s is revoked from role %s\n", c->args.words[1], c->args.words[0]);
}

int command_role_revoke_permission(struct ctl *c)
{
	Etcdserverpb__AuthRoleRevokePermissionRequest r = ETCDSERVERPB__AUTH_ROLE_REVOKE_PERMISSION_REQUEST__INIT;
	struct buf key = { .ptr = NULL }, end = { .ptr = NULL };
	int code = EXIT_USAGE;
	if (take_range(c, 1, &key, &end)) {
		r.role = word(c, 0);
		r.key = (ProtobufCBinaryData){ key.len, key.ptr };
		r.range_end = (ProtobufCBinaryData){ end.len, end.ptr };
		code = ctl_run(c, METHOD_AUTH_ROLE_REVOKE_PERMISSION, &r.base, ASK_ONCE, print_taken_back, "change role '%s'", r.role);
	}
	buf_free(&key);
	buf_free(&end);
	return code;
}
