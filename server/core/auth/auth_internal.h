/* auth_internal.h: for the files of this folder alone. */
#ifndef HOLDFAST_CORE_AUTH_INTERNAL_H
#define HOLDFAST_CORE_AUTH_INTERNAL_H

#include "base/arena.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "core/auth/auth.h"
#include "etcd/auth.pb-c.h"
#include "etcd/rpc.pb-c.h"

enum { KIND_HEAD = 'h', KIND_ROLE = 'r', KIND_USER = 'u' };

static inline struct slice root_name(void)
{
	return slice_of_str("root");
}

/* ---- what records say ---- */

struct auth_user {
	struct slice name, password; /* password: its bcrypt hash; empty: none will do */
	bool no_password;
	struct slice *roles;         /* sorted */
	size_t roles_len;
};

struct auth_permission {
	uint32_t type; /* authpb.Permission.Type */
	struct slice key, end;
};

struct auth_role {
	struct slice name;
	struct auth_permission *permissions; /* by key, then end */
	size_t permissions_len;
};

struct auth {
	struct state *state;
	bool enabled;
	uint64_t revision, changes;
	uint64_t bytes;      /* of all records */
	struct mapb perms;   /* user's name -> struct auth_perms; of the present revision */
	struct arena arena;
};

/* record.c */
struct auth_record *auth_record_new(uint8_t kind, struct slice name, struct slice body);
const struct auth_record *auth_record_find(const struct state *st, uint8_t kind, struct slice name);
static inline struct slice auth_record_name(const struct auth_record *r)
{
	return slice_of(r->bytes + 1, r->key_len - 1);
}
static inline struct slice auth_record_body(const struct auth_record *r)
{
	return slice_of(r->bytes + r->key_len, r->body_len);
}
/* Into the arena; slices are lent by it. False: absent, or not what we write. */
bool auth_user_parse(struct slice body, struct arena *arena, struct auth_user *ret);
bool auth_role_parse(struct slice body, struct arena *arena, struct auth_role *ret);
void auth_user_write(const struct auth_user *u, struct buf *out);
void auth_role_write(const struct auth_role *r, struct buf *out);
int auth_permission_cmp(const struct auth_permission *a, const struct auth_permission *b); /* by key, then end */

/* auth.c */
bool auth_find_user(struct auth *a, struct slice name, struct auth_user *ret); /* lent by a->arena */
bool auth_find_role(struct auth *a, struct slice name, struct auth_role *ret);
bool auth_user_is_root(const struct auth_user *u);

/* perms.c */
void perms_forget(struct auth *a);

#endif
