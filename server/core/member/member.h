/* member.h: who belongs to the cell. */
#ifndef HOLDFAST_CORE_MEMBER_H
#define HOLDFAST_CORE_MEMBER_H

#include "core/state.h"
#include "holdfast/internal.pb-c.h"

/* Bounds of what a member says of itself. */
#define MEMBER_NAME_MAX 255 /* bytes */
#define MEMBER_URLS_MAX 32
#define MEMBER_URL_BYTES_MAX 1024

#define MEMBERS_MAX 16            /* voters and learners */
#define MEMBER_LEARNERS_MAX 1     /* as etcd has it; those that join as voters are not counted */
#define MEMBER_REMOVED_MAX 1024   /* remembered; the oldest go */

struct member_record {
	struct tree_record base;
	member_id id;
	bool learner;
	bool joining;         /* added as a voter, and not counted before it has caught up; of these three one at most */
	bool leaving;         /* was a voter, and is to be removed */
	uint64_t data_dir_id; /* 0: not bound yet; once bound it never changes (a wiped disk cannot pass for the old one) */
	char *name;           /* NUL-terminated, owned; "" when not known yet */
	char **peer_urls, **client_urls; /* owned */
	size_t peer_urls_len, client_urls_len;
	uint8_t key[8];
};
extern const struct tree_type member_record_type;

struct removed_record {
	struct tree_record base;
	member_id id;
	uint64_t index; /* of the entry that removed it */
	uint8_t key[8];
};
extern const struct tree_type removed_record_type;

struct member_spec {
	const char *name; /* from the configuration; NULL: known when it publishes itself */
	const char *const *peer_urls; /* in any order */
	size_t peer_urls_len;
};

/* Member ID and cell ID as etcd derives them from addresses and token (etcd's first eight bytes of SHA-1). */
member_id member_derive_id(const char *const *peer_urls, size_t len, const char *token);
uint64_t member_derive_cell_id(const member_id *ids, size_t len);

/* The state before the first entry, equal on all replicas of a new cell: its initial members, one a call. The configuration has been checked
 * before: within the bounds above, at least one address, no two members with the same addresses. */
void member_add_initial(struct state *st, const struct member_spec *spec, const char *token);
const struct member_record *member_find(const struct state *st, member_id id); /* lent; NULL */
/* COMMAND_MEMBER_PUBLISH. ERR_MEMBER_NOT_FOUND; ERR_WRONG_MEMBER: bound to another data directory;
 * ERR_MEMBER_BAD_URLS: beyond the bounds above. Strings are copied. */
enum err member_publish(struct state *st, member_id id, const char *name, const char *const *client_urls, size_t len, uint64_t data_dir_id);

/* ---- changes (member_change.c) ---- */

struct member_change {
	uint32_t kind; /* HOLDFAST__INTERNAL__MEMBER_CHANGE_KIND__* */
	member_id id;
	const char *const *peer_urls; /* ADD_*, UPDATE */
	size_t peer_urls_len;
};
#define MEMBER_CHANGE(name) HOLDFAST__INTERNAL__MEMBER_CHANGE_KIND__MEMBER_##name

/* Whether it counts toward quorums. */
static inline bool member_counts(const struct member_record *m)
{
	return !m->learner && !m->joining && !m->leaving;
}
bool member_was_removed(const struct state *st, member_id id);
/* What can be said against the change by the state alone: ERR_MEMBER_EXISTS, ERR_PEER_URL_EXISTS, ERR_TOO_MANY_LEARNERS, ERR_TOO_MANY_MEMBERS,
 * ERR_MEMBER_NOT_FOUND, ERR_MEMBER_NOT_LEARNER, ERR_MEMBER_BAD_URLS, ERR_MEMBER_NOT_ENOUGH_STARTED (nobody would be left that counts),
 * ERR_MALFORMED. */
enum err member_change_check(const struct state *st, const struct member_change *ch);
/* COMMAND_MEMBER_CHANGE, from an entry with that index. Checked first; an error changes nothing. */
enum err member_change_apply(struct state *st, const struct member_change *ch, uint64_t index);
/* http(s)://HOST:PORT and nothing behind it, or unix://PATH, within the bounds above, none twice. */
bool member_peer_urls_are_valid(const char *const *urls, size_t len);
/* The ID of a member that is added to a cell at that time, as etcd derives it. */
member_id member_derive_added_id(const char *const *peer_urls, size_t len, uint64_t unix_s);

#endif
