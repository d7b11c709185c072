/* once.h: what commands with a request ID came to, so that one that is sent again is answered and not done again.
 *
 * A session is a lease. A caller numbers its requests within it, rising, and may say which of them it still wants answers to. Any
 * replica, at any later time, finds here what became of a request that was applied.
 *
 *   (O1) of every request of a living session that was applied there is a result, or its ID is below the session's window; and no command
 *        changes anything for an ID that has a result or is below the window. So no ID takes effect twice. (A Lock that was undone, see
 *        O5, counts as never applied.)
 *   (O2) the window only ever moves up: to first_unanswered, which takes all results below along; or past the oldest result when there are
 *        more than ONCE_RESULTS_MAX. Then a Lock whose contender lives is passed over while there are others: it may wait for as long as it
 *        likes, and is still found by its ID.
 *   (O3) results and windows go with the session's lease, in the same entry.
 *   (O4) all of it is replicated, and equal on all replicas: a reply is kept as it would be told by nobody in particular (kv/once.c).
 *   (O5) a Lock that joined its queue has a result that names its place, and the calls that ask for it with this very ID; several IDs may name one
 *        place. What becomes of a place is told of each ID by its own calls. That time is up is kept for the ID whose last call's bound is over, whether the
 *        place lasts or not, and for no other. When a place that waits goes with the last that asks for it, the ID of that call, and those whose calls had all
 *        given up before, are undone; so are all that name it when it was held and nobody was told. Of any other end, and for whoever else waits,
 *        the result goes on to name a place that is gone, and that is what is told (Y3 of kv/once.c).
 */
#ifndef HOLDFAST_CORE_ONCE_H
#define HOLDFAST_CORE_ONCE_H

#include "core/lock/lock.h"

#define ONCE_RESULTS_MAX 64u             /* of a session */
#define ONCE_RESULT_BYTES_MAX (64 * 1024) /* reply and details; of a larger one only that it was applied is kept */
#define ONCE_REQUEST_MAX (UINT64_MAX / 2)
enum { ONCE_CALLS_MAX = 4 }; /* of one result; of more the oldest of the same replica counts no more, or the oldest of all */

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
	const struct call_id *calls; /* that ask for it; who came first first */
	size_t calls_len;
};

struct result_record {
	struct tree_record base;
	lease_id session;
	uint64_t request;
	uint32_t kind;
	enum err err;
	bool too_large; /* reply and details were not kept */
	uint8_t calls_len;
	revision token;
	lease_id lease;
	uint64_t hash;
	uint32_t reply_len, details_len;
	uint8_t key[16];
	uint8_t bytes[]; /* reply, details, calls */
};
struct slice result_reply(const struct result_record *r);
struct slice result_details(const struct result_record *r);
size_t result_calls(const struct result_record *r, struct call_id ret[ONCE_CALLS_MAX]);
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
/* Of a request that was applied: it counts as never applied (O5), and would be carried out anew. */
bool once_is_undone(const struct once *o, lease_id session, uint64_t request);

/* ---- from applied commands only ---- */
/* Moves the window; then the result of this very ID (lent until the next change), or NULL: it is new, to be carried out and kept. The session
 * exists. ERR_REQUEST_ID_TOO_OLD; ERR_REQUEST_ID_REUSED: there is a result, of another kind of command; ERR_BAD_METADATA: no such ID may be. */
enum err once_begin(struct once *o, const struct once_id *id, uint32_t kind, const struct result_record **ret);
/* The session still exists, and once_begin said that the ID is new. lives: whether the contender that a result names is there (O2). */
typedef bool (*once_lives_fn)(void *ctx, const struct result_record *r);
void once_keep(struct once *o, const struct once_id *id, const struct once_outcome *outcome, once_lives_fn lives, void *ctx);
void once_end_session(struct once *o, lease_id session); /* its lease ends; harmless when it is none */
/* A result that names a place, which is there: it is asked for again, by that call, alone (those before are answered, or have given up) or not. */
void once_ask(struct once *o, const struct result_record *r, struct call_id call, bool alone);
/* A call asks no more for the place of this token and lease, which waits: since its bound is over, or it has given up. And the place goes with it, or not. O5. */
struct once_end {
	struct call_id call;
	bool bound_is_over, place_goes;
};
void once_call_ended(struct once *o, revision token, lease_id lease, const struct once_end *end);
/* The place was held, and goes, since all who ever asked for it have given up and were not told. */
void once_undo_place(struct once *o, revision token, lease_id lease);

uint64_t once_bytes(const struct once *o);
void once_check(const struct once *o);

#endif
