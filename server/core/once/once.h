/* once.h: what commands with a request ID came to, so that one that is sent again is answered and not done again.
 *
 * A session is a lease. A caller numbers its requests within it, rising, and may say which of them it still wants answers to. Any
 * replica, at any later time, finds here what became of a request that was applied.
 *
 *   (O1) of every request of a living session that was applied there is a result, or its ID is below the session's window; and no command
 *        changes anything for an ID that has a result or is below the window. So no ID takes effect twice. (A Lock that was undone, see
 *        once_place_gone, counts as never applied.)
 *   (O2) the window only ever moves up: to first_unanswered, which takes all results below along; or past the oldest result when there are
 *        more than ONCE_RESULTS_MAX. Then a Lock whose contender lives is passed over while there are others: it may wait for as long as it
 *        likes, and is still found by its ID.
 *   (O3) results and windows go with the session's lease, in the same entry.
 *   (O4) all of it is replicated, and equal on all replicas: a reply is kept as it would be told by nobody in particular (kv/once.c).
 */
#ifndef HOLDFAST_CORE_ONCE_H
#define HOLDFAST_CORE_ONCE_H

#include "core/state.h"

#define ONCE_RESULTS_MAX 64u             /* of a session */
#define ONCE_RESULT_BYTES_MAX (64 * 1024) /* reply and details; of a larger one only that it was applied is kept */
#define ONCE_REQUEST_MAX (UINT64_MAX / 2)

struct once_id {
	lease_id session;                   /* not 0 */
	uint64_t request, first_unanswered; /* request: 1 to ONCE_REQUEST_MAX */
};

/* What a command came to. */
struct once_outcome {
	uint32_t kind; /* of the command */
	enum err err;
	struct slice reply, details;
	/* A Lock that joined its queue, which may still wait: the contender, reply being its key. 0: it is none. */
	revision token;
	lease_id lease;
};

struct result_record {
	struct tree_record base;
	lease_id session;
	uint64_t request;
	uint32_t kind;
	enum err err;
	bool too_large; /* reply and details were not kept */
	revision token;
	lease_id lease;
	uint64_t hash;
	uint32_t reply_len, details_len;
	uint8_t key[16];
	uint8_t bytes[]; /* reply, details */
};
struct slice result_reply(const struct result_record *r);
struct slice result_details(const struct result_record *r);
extern const struct tree_type result_record_type;

struct session_record { /* of a lease that has ever been named as a session */
	struct tree_record base;
	lease_id session;
	uint64_t window; /* IDs below are refused */
	uint8_t key[8];
};
extern const struct tree_type session_record_type;

struct once; /* core's thread only */

struct once *once_new(struct state *st); /* st is borrowed; what it holds is taken up as by once_rebuild */
void once_free(struct once *o);
void once_rebuild(struct once *o); /* state was replaced */

/* What is known by now of a request, or NULL; lent until the next change. Changes nothing. */
const struct result_record *once_find(const struct once *o, lease_id session, uint64_t request);

/* ---- from applied commands only ---- */
/* Moves the window; then the result of this very ID (lent until the next change), or NULL: it is new, to be carried out and kept. The session
 * exists. ERR_REQUEST_ID_TOO_OLD; ERR_REQUEST_ID_REUSED: there is a result, of another kind of command; ERR_BAD_METADATA: no such ID may be. */
enum err once_begin(struct once *o, const struct once_id *id, uint32_t kind, const struct result_record **ret);
/* The session still exists, and once_begin said that the ID is new. lives: whether the contender that a result names is there (O2). */
typedef bool (*once_lives_fn)(void *ctx, const struct result_record *r);
void once_keep(struct once *o, const struct once_id *id, const struct once_outcome *outcome, once_lives_fn lives, void *ctx);
void once_end_session(struct once *o, lease_id session); /* its lease ends; harmless when it is none */
/* The contender of this lock's key and token was taken out of the queue for its call's sake. e: what whoever asked for it has come to by
 * that; ERR_OK: its Locks are undone, and may be sent again as if for the first time. So are several that asked for it: that the time of one is up
 * is no answer to the others, and nothing says whose it was. */
void once_place_gone(struct once *o, revision token, lease_id lease, enum err e);

uint64_t once_bytes(const struct once *o);
void once_check(const struct once *o);

#endif
