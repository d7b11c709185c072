/* session.h: the replicated side of a client's session: that it is open, who may resume it, what it may cache, and which stream it has.
 *
 * A session is a lease; its record stands beside the lease, comes with it in one entry and goes with it in one entry. A lease that was merely
 * granted has none, and is no session.
 *
 *   (E1) a record exists only while its lease does.
 *   (E2) of a session one stream counts at every log position: the one that opened or last resumed it. Each has a higher generation, which is the client's
 *        own number of the stream when it gives one: a resume that it gave up, and that comes late, has a lower one than what it would take over.
 *   (E3) what a session may cache is fixed when it is opened: a new leader finds here all for whom a write of its may have to wait.
 * The secret itself is in no log and no snapshot, only its hash. */
#ifndef HOLDFAST_CORE_SESSION_H
#define HOLDFAST_CORE_SESSION_H

#include "core/state.h"

#define SESSIONS_MAX 200000u
#define SESSION_SECRET_LEN 32u
#define SESSION_HASH_LEN 20u
#define SESSION_PREFIXES_MAX 16u
#define SESSION_PREFIX_BYTES_MAX 4096u /* with a zero byte each */
#define SESSION_NAME_MAX 256u
#define SESSION_TTL_DEFAULT_S 12
#define SESSION_TTL_MAX_S 3600
#define SESSION_TTL_CACHING_MAX_S 60 /* a writer may have to wait so long for one that is gone */

/* Which stream of which start of which replica serves it. */
struct session_place {
	member_id member;
	uint64_t boot, stream;
};

struct open_session {
	struct tree_record base;
	lease_id session;
	uint64_t generation;
	struct session_place place;
	uint8_t secret_hash[SESSION_HASH_LEN];
	uint16_t prefixes_len, name_len; /* bytes */
	uint64_t hash;
	uint8_t key[8];
	uint8_t bytes[]; /* the prefixes, a zero byte behind each; the name */
};
extern const struct tree_type open_session_type;

struct session_opening {
	lease_id session;
	struct session_place place;
	uint8_t secret_hash[SESSION_HASH_LEN];
	struct slice prefixes, name; /* prefixes: as in the record, and well-formed */
};

void session_hash_secret(struct slice secret, uint8_t ret[SESSION_HASH_LEN]);
/* Whether they are paths (or "/"), each with its zero byte, and neither too many nor too long. */
bool session_prefixes_are_good(struct slice prefixes);

const struct open_session *session_find(const struct state *st, lease_id id); /* lent until the next change; NULL */
void session_put(struct state *st, const struct session_opening *o); /* its lease exists and it has none */
void session_attach(struct state *st, lease_id id, struct session_place place, uint64_t attempt); /* 0: the next generation */
bool session_remove(struct state *st, lease_id id); /* whether there was one */

static inline bool session_caches(const struct open_session *s)
{
	return s->prefixes_len > 0;
}
bool session_may_cache(const struct open_session *s, struct slice path); /* the prefixes cover it */
/* Whether [key, end) (as in requests: empty: the one key; one zero byte: all that follow) touches anything that it may cache, a value or a list. */
bool session_is_touched(const struct open_session *s, struct slice key, struct slice end);
uint64_t sessions_bytes(const struct state *st); /* about */

#endif
