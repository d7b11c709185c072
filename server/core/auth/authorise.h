/* authorise.h: the one place that decides whether somebody may do something, for every method of every service and every command of the log.
 *
 * What a method needs is its permission in the method table (api/methods.h); for those that depend on the request there is a rule here, which unpacks
 * the request as whoever carries it out does, and asks for each range in it. */
#ifndef HOLDFAST_CORE_AUTH_AUTHORISE_H
#define HOLDFAST_CORE_AUTH_AUTHORISE_H

#include "core/auth/auth.h"
#include "core/command.h"
#include "core/lease/lease.h"

struct authoriser {
	struct auth *auth;
	const struct lessor *lessor;
	struct arena *arena; /* scratch, cleared by the caller */
};

/* ERR_OK; ERR_USER_EMPTY: nobody, where somebody is wanted; ERR_PERMISSION_DENIED; ERR_AUTH_OLD_REVISION (H2); ERR_MALFORMED. */
enum err authorise_request(const struct authoriser *az, struct auth_who who, enum method_id method, struct slice request);
/* The same for a command that is about to be applied. What replicas say to each other needs nobody's permission. */
enum err authorise_command(const struct authoriser *az, const struct command *cmd);

/* Whether the tables are whole; for the test that derives it. */
bool authorise_method_has_rule(enum method_id method);
bool authorise_command_has_rule(uint32_t kind);

#endif
