/* auth.h: users, roles, permissions, and who may do what, as agreed by the log.
 *
 * Replicated: one table (state->auth) with a head (on or off, revision), users and roles. Derived: each user's permissions, put together when
 * first asked for. Of this replica alone: simple tokens (tokens.h), which say who somebody is and never what he may do.
 *
 *   (H1) whether a command is let in depends on the command and the state alone: it carries the user's name and the revision at which the
 *        name was taken for his, never a token.
 *   (H2) a command whose revision is not the present one is refused, as in etcd: its user may be another one by now. Nothing came of it, so
 *        the replica that was asked may look its caller up again and propose it anew.
 *   (H3) the revision rises with every change of users, roles and permissions, and when authentication is switched off.
 *   (H4) while authentication is off everybody may do everything, and it costs one test of a flag.
 */
#ifndef HOLDFAST_CORE_AUTH_H
#define HOLDFAST_CORE_AUTH_H

#include "core/state.h"
#include "holdfast/internal.pb-c.h"
#include "methods.h"

/* Bounds of the table; what goes beyond is refused with ERR_AUTH_INVALID_MANAGEMENT. */
#define AUTH_NAME_MAX 1024u          /* bytes of a user's or role's name */
#define AUTH_ROLES_MAX 1000u         /* of one user */
#define AUTH_PERMISSIONS_MAX 10000u  /* of one role */
#define AUTH_BYTES_MAX (64u << 20)   /* of all records */

#define AUTH_ACT(name) HOLDFAST__INTERNAL__AUTH_ACT__AUTH_ACT_##name

/* A head ("h"), a user ("u" and the name) or a role ("r" and the name). The body is a packed internal.AuthHead, authpb.User or authpb.Role in the one
 * form that we write. */
struct auth_record {
	struct tree_record base;
	uint64_t hash;
	uint32_t key_len, body_len;
	uint8_t bytes[]; /* key, body */
};
extern const struct tree_type auth_record_type;

/* Who asks, as far as it is known. */
struct auth_who {
	struct slice user; /* empty: nobody */
	uint64_t revision; /* at which this was found; 0: nobody */
};

struct auth; /* core's thread only */

struct auth *auth_new(struct state *st); /* st is borrowed; what it holds is taken up as by auth_rebuild */
void auth_free(struct auth *a);
void auth_rebuild(struct auth *a); /* state was replaced */
bool auth_is_enabled(const struct auth *a);
uint64_t auth_revision(const struct auth *a);
uint64_t auth_changes(const struct auth *a); /* another number after anything changed, or the state was replaced */
bool auth_has_user(const struct auth *a, struct slice name);

/* ---- from applied commands only ---- */
/* What becomes of tokens. */
struct auth_effect {
	bool forget_all;          /* authentication is off */
	struct slice forget_user; /* this one's tokens are good no more; lent by the request */
};
/* act: AUTH_ACT(...); request: the etcdserverpb request of that act, with hashedPassword and without password. etcd's checks and errors. */
enum err auth_apply(struct auth *a, uint32_t act, struct slice request, struct auth_effect *ret);

/* ---- reads: fields behind the header are appended ---- */
void auth_status_fields(const struct auth *a, struct buf *out);
enum err auth_user_get_fields(struct auth *a, struct slice request, struct buf *out);
enum err auth_role_get_fields(struct auth *a, struct slice request, struct buf *out);
void auth_user_list_fields(const struct auth *a, struct buf *out);
void auth_role_list_fields(const struct auth *a, struct buf *out);
/* Before a password is compared: internal.AuthLook. ERR_AUTH_NOT_ENABLED. */
enum err auth_look(struct auth *a, struct slice name, struct buf *out);

/* ---- permissions ---- */
enum auth_need { AUTH_READ = 1, AUTH_WRITE = 2 };
/* [key, end) as requests give it: no end is the one key, one zero byte is all that follows. An end that is not above the key asks for the key. */
enum err auth_check_range(struct auth *a, struct auth_who who, struct slice key, struct slice end, unsigned need);
enum err auth_check_user(struct auth *a, struct auth_who who); /* any user; the revision as in H2 */
enum err auth_check_root(struct auth *a, struct auth_who who); /* etcd's IsAdminPermitted: the revision does not matter */
bool auth_has_role(struct auth *a, struct slice user, struct slice role);

void auth_check_invariants(const struct auth *a);

#endif
