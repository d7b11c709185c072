/* fixture.h: a table of users and roles, changed by requests as the log brings them. */
#ifndef CORE_AUTH_FIXTURE_H
#define CORE_AUTH_FIXTURE_H

#include "base/arena.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "core/auth/auth.h"
#include "core/auth/authorise.h"
#include "core/auth/tokens.h"
#include "core/snapshot/snapshot.h"
#include "etcd/rpc.pb-c.h"

struct world {
	struct state state;
	struct auth *auth;
	struct lessor *lessor;
	struct arena arena;
};

void world_init(struct world *w);
void world_deinit(struct world *w);
enum err act(struct world *w, uint32_t what, const ProtobufCMessage *request);
enum err user_add(struct world *w, const char *name);
enum err user_delete(struct world *w, const char *name);
enum err grant_role(struct world *w, const char *user, const char *role);
enum err revoke_role(struct world *w, const char *user, const char *role);
enum err role_add(struct world *w, const char *name);
enum err role_delete(struct world *w, const char *name);
enum err permit(struct world *w, const char *role, uint32_t type, struct slice key, struct slice end);
enum err forbid(struct world *w, const char *role, struct slice key, struct slice end);
enum err switch_to(struct world *w, bool on);
void world_enable(struct world *w); /* with root */
struct auth_who who(const struct world *w, const char *user); /* NULL: nobody */
struct authoriser authoriser_of(struct world *w);

#define HASH_BASE64 "JDJiJDA0JGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6MDEyMzQ1Njc4OUFCQ0RFRkdISUpLTE1OT1BR"

#endif
