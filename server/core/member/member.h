/* member.h: who belongs to the cell. */
#ifndef HOLDFAST_CORE_MEMBER_H
#define HOLDFAST_CORE_MEMBER_H

#include "core/state.h"

/* Bounds of what a member says of itself. */
#define MEMBER_NAME_MAX 255 /* bytes */
#define MEMBER_URLS_MAX 32
#define MEMBER_URL_BYTES_MAX 1024

struct member_record {
	struct tree_record base;
	member_id id;
	bool learner;
	uint64_t data_dir_id; /* 0: not bound yet; once bound it never changes (a wiped disk cannot pass for the old one) */
	char *name;           /* NUL-terminated, owned; "" when not known yet */
	char **peer_urls, **client_urls; /* owned */
	size_t peer_urls_len, client_urls_len;
	uint8_t key[8];
};
extern const struct tree_type member_record_type;

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

#endif
