/* signed_token.h: JSON web tokens: who somebody is, signed, so that any replica that has the key believes it.
 *
 * As etcd's: claims "username", "revision" and "exp"; the header must name the very method that was configured (so that nobody can have a public key taken
 * for a secret one). Keys are files; they are read again when they change, and the old ones stay in use when the new ones are bad. */
#ifndef HOLDFAST_AUTH_SIGNED_TOKEN_H
#define HOLDFAST_AUTH_SIGNED_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "errors.h"

enum { SIGNED_TOKEN_BYTES_MAX = 8192 };

struct signed_tokens;

/* options: "pub-key=FILE,priv-key=FILE,sign-method=RS256,ttl=10m": what follows "jwt," in etcd's --auth-token. ERR_SYNTAX, ERR_IO with em. */
enum err signed_tokens_new(const char *options, struct signed_tokens **ret, struct errmsg *em);
void signed_tokens_free(struct signed_tokens *t);

/* Any thread. ERR_UNIMPLEMENTED: there is no private key. */
enum err signed_tokens_sign(struct signed_tokens *t, struct slice user, uint64_t revision, int64_t now_s, struct buf *ret);
/* ERR_AUTH_INVALID_TOKEN: malformed, of another method, not signed by our key, expired. *ret_user is the caller's. Any thread. */
enum err signed_tokens_verify(struct signed_tokens *t, struct slice token, int64_t now_s, struct buf *ret_user, uint64_t *ret_revision);
/* Reads changed key files; a few times a minute, one thread. Returns what happened, for the log: NULL: nothing. *ret_bad: the old keys stay. */
const char *signed_tokens_reload(struct signed_tokens *t, bool *ret_bad);

#endif
