/* tokens.h: simple tokens: random names that stand for a user for a while, as every replica has heard of them through the log.
 *
 * Of this replica alone, and gone with the process: nothing that is replicated depends on them. A token lives for the TTL after it was last used here;
 * when there are too many, the one that was not used for longest goes. */
#ifndef HOLDFAST_CORE_AUTH_TOKENS_H
#define HOLDFAST_CORE_AUTH_TOKENS_H

#include "core/types.h"
#include "base/slice.h"

#define AUTH_TOKENS_MAX 100000u

struct tokens;

struct tokens *tokens_new(time_ms ttl_ms);
void tokens_free(struct tokens *t);
void tokens_add(struct tokens *t, struct slice token, struct slice user, time_ms now); /* replaces one of that name */
struct slice tokens_use(struct tokens *t, struct slice token, time_ms now);            /* its user, lent until the next call; empty: unknown */
void tokens_forget_user(struct tokens *t, struct slice user);
void tokens_forget_all(struct tokens *t);
void tokens_expire(struct tokens *t, time_ms now);
uint64_t tokens_len(const struct tokens *t);
/* LETTERS.INDEX, as etcd writes them. False: it cannot be one. */
bool token_index(struct slice token, uint64_t *ret_index);

#endif
