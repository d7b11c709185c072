/* world.h: a whole state with kv over it, driven by lines of text, so that tests read as stories.
 *
 * Requests                                              Words
 *   put K V                                             lease=N prev keep_value keep_lease
 *   get K [END]                                         limit=N rev=N order=asc|desc by=version|create|mod|value keys count serial
 *                                                       minmod=N maxmod=N mincreate=N maxcreate=N
 *   del K [END]                                         prev
 *   txn { COMPARE ... } { OP ; OP } { OP ; OP }         COMPARE: K.create=0  K.value>x  K..END.mod<5  (= ! < >)
 *   none                                                an operation that is none
 *   compact N · grant ID TTL · revoke ID · end TERM ID ID ... · ttl ID [keys] · leases
 *   lock NAME lease=N                                   mode=shared wait=MS grant=TTL call=N value=V
 *   unlock KEY [TOKEN] · abandon KEY call=N             revoke=ID waiting
 *   proclaim KEY REV V [lease=N] · resign KEY REV · leader NAME · queue NAME
 * In keys and values "*" is one zero byte, "-" nothing at all, and "_" one byte 0xff.
 *
 * Answers: the error's name, or the reply: "@REV" is a full header, "~REV" one with the revision alone; a pair is K=V(create mod version lease);
 * what a transaction answered stands in brackets. After every line the modules' invariants are checked, and a request that failed must have
 * left the state's hash as it was. */
#ifndef HOLDFAST_TEST_CORE_KV_WORLD_H
#define HOLDFAST_TEST_CORE_KV_WORLD_H

#include "core/kv/kv.h"

struct world {
	struct state st;
	struct kv_env env;
	struct arena scratch; /* env.arena */
	struct arena words;   /* requests being built */
	struct buf text;      /* the last answer */
	struct buf reply;
};

void world_init(struct world *w);
void world_deinit(struct world *w);
void world_check(const struct world *w); /* all invariants; and that leases hold exactly the keys that name them */

struct slice world_request(struct world *w, const char *line, const ProtobufCMessageDescriptor **ret); /* packed, lent until the next call */
const char *world_do(struct world *w, const char *line); /* lent until the next call */

struct story {
	const char *line, *want;
};
void story_tell(struct world *w, const struct story *story); /* up to a row whose line is NULL; asserts each answer */

#endif
