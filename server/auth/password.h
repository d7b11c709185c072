/* password.h: bcrypt, on threads of its own: a comparison takes as long as it takes, by design, and nobody else waits for it.
 *
 * Jobs wait in one queue with a bound; one that finds it full is refused. Passwords are wiped from memory once they have been used. */
#ifndef HOLDFAST_AUTH_PASSWORD_H
#define HOLDFAST_AUTH_PASSWORD_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/list.h"
#include "errors.h"

enum {
	PASSWORD_COST_MIN = 4,
	PASSWORD_COST_MAX = 31,
	PASSWORD_COST = 10,       /* as etcd's */
	PASSWORD_BYTES_MAX = 72,  /* bcrypt looks at no more, so more is refused when a password is set */
	PASSWORD_THREADS = 2,
	PASSWORD_QUEUE_MAX = 256,
};

struct passwords;

struct passwords *passwords_new(unsigned cost);
void passwords_free(struct passwords *p); /* what is queued is done with ERR_STOPPED */

/* One password to hash, or to compare with a hash. Owned by the caller; p's until done(), which comes on a thread of p's. */
struct password_job {
	struct buf password;       /* wiped and emptied before done() */
	struct buf hash;           /* to compare with: compare; else written: base64 of the new hash */
	bool compare;
	enum err err;              /* out: ERR_OK, ERR_STOPPED */
	bool right;                /* out, of a comparison */
	void (*done)(struct password_job *job);
	struct list link;
};
/* A comparison with an empty hash takes as long as any, and is never right. ERR_TOO_MANY_REQUESTS: done() will not come. */
enum err passwords_submit(struct passwords *p, struct password_job *job);

/* Whether a password may be set: not empty, not too long, no zero byte. NULL: it may. */
const char *password_objection(struct slice password);
/* Whether this is base64 of a bcrypt hash, such as another cell's. */
bool password_hash_is_known(struct slice base64);
void password_wipe(struct buf *b); /* zeroes and frees */

#endif
