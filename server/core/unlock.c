/* unlock.c: Locks and Unlocks of one place come in the order in which they were asked for here.
 *
 * Whoever gives up a Lock that he knows no end of sends an Unlock of its key behind it: the cancel may be lost on its way here, or come late. But Locks wait in line
 * where Unlocks pass by (admit.c), and what was lost with its leader is proposed again (W3 of propose.c). Carried out before, the Unlock would free nothing, and
 * the Lock's hold be known to nobody until its lease ends; carried out behind a Lock that was asked for after it, it would free that one's hold, which was told.
 *
 *   (N1) an Unlock that names no token is handed on once every Lock and Campaign for its key that this replica took in before it has its outcome: a place in the
 *        queue, a hold, an error, or none for certain (skipped.c, when a snapshot hides it). So the log has them in the order in which they were asked for here, and what the Unlock does is decided in
 *        the log alone: whether its caller may, whether it is a repetition. One that names a token is about a hold that was told, and waits for nothing.
 *   (N2) a Lock that is asked for while an Unlock of its key has no outcome goes behind it. An Unlock that its caller gave up is proposed no more (W6), so whatever log
 *        it may be in yet, what is handed on from then on is behind it.
 *   (N3) nobody waits but for commands that were asked for before, as long as these take to be applied (a Lock in the queue of its lock has its outcome), and at the
 *        most until his own deadline. Whoever waits was tried by nobody, and is certainly not carried out when he gives up.
 *   (N4) a busy place is there while Locks of it, or Unlocks, were handed on and have no outcome. There are no more of them than calls under way (E1 of request.c), and
 *        who waits there is a call under way like others. A Lock's bytes count as those of the queue do.
 *
 * A Lock with a lease of its own is in no busy place: nobody knows its key before it is answered. Two keys of one hash do no harm: somebody waits for a stranger. Of what
 * is asked at different replicas nobody promises an order; a session's calls at the replica that it left do nothing (J5 of kv/locks.c). */
#include "internal.h"

struct busy_place {
	uint64_t hash; /* of the key */
	size_t handed_on; /* without an outcome: Locks, or Unlocks */
	bool locks;
	struct list waiting; /* call.link, of those that are behind; an outcome that they wait for is handed on */
};

static uint64_t hash_of(struct slice key)
{
	return hash64(0, key.ptr, key.len);
}

static struct busy_place *busy_get(struct core *c, uint64_t hash)
{
	struct busy_place *b = map64_get(&c->waiters.busy, hash);

	if (b)
		return b;
	b = mem_zalloc(sizeof *b);
	b->hash = hash;
	list_init(&b->waiting);
	map64_put(&c->waiters.busy, hash, b);
	return b;
}

void unlocks_deinit(struct core *c)
{
	ASSERT(c->waiters.busy.len == 0);
	map64_deinit(&c->waiters.busy);
}

static bool goes_with(const struct busy_place *b, const struct call *call)
{
	return b->handed_on == 0 || b->locks == (call->lock != NULL);
}

static void join(struct core *c, struct call *call, struct slice key)
{
	struct busy_place *b = busy_get(c, hash_of(key));

	call->busy = b;
	call->behind = !list_empty(&b->waiting) || !goes_with(b, call);
	if (call->behind) {
		propose_set_aside(call, &b->waiting);
		return;
	}
	b->handed_on++;
	b->locks = call->lock != NULL;
}

void unlock_lock_asked(struct core *c, struct call *call)
{
	struct buf key = { 0 };

	if (call->lock->own_lease)
		return;
	lock_key(buf_view(&call->lock->name), call->lock->lease, &key);
	join(c, call, buf_view(&key));
	buf_free(&key);
}

void unlock_submit(struct core *c, const struct core_request *r)
{
	struct call *call = call_new(c, CALL_COMMAND, r->tag, r->method);

	propose_submit_request(c, call, CMD(UNLOCK), r->bytes, r, false);
	if (wire_find_u64(r->bytes, 100, 0) == 0)
		join(c, call, wire_find_bytes(r->bytes, 1));
}

static void hand_on(struct core *c, struct busy_place *b)
{
	while (!list_empty(&b->waiting)) {
		struct call *call = CONTAINER_OF(b->waiting.next, struct call, link);

		if (!goes_with(b, call))
			return;
		b->handed_on++;
		b->locks = call->lock != NULL;
		call->behind = false;
		propose_hand_on(c, call);
	}
}

void unlock_settled(struct core *c, struct call *call)
{
	struct busy_place *b = call->busy;

	if (!b)
		return;
	call->busy = NULL;
	if (call->behind) {
		call->behind = false;
		list_remove(&call->link);
		return;
	}
	if (--b->handed_on == 0)
		hand_on(c, b);
	if (b->handed_on > 0)
		return;
	map64_remove(&c->waiters.busy, b->hash);
	free(b);
}

size_t unlocks_queued(const struct core *c)
{
	size_t queued = 0;
	uint64_t hash;
	void *value;

	for (size_t pos = 0; map64_next(&c->waiters.busy, &pos, &hash, &value);)
		LIST_FOR_EACH(l, &((const struct busy_place *)value)->waiting)
			queued += CONTAINER_OF(l, struct call, link)->queued;
	return queued;
}

void unlocks_check(const struct core *c)
{
	size_t handed_on = 0;
	uint64_t key;
	void *value;

	for (size_t pos = 0; map64_next(&c->waiters.busy, &pos, &key, &value);) {
		const struct busy_place *b = value;

		ASSERT(b->hash == key && b->handed_on > 0); /* N4 */
		handed_on += b->handed_on;
		LIST_FOR_EACH(l, &b->waiting) {
			const struct call *call = CONTAINER_OF(l, struct call, link);

			ASSERT(call->busy == b && call->behind && call->place == PLACE_QUEUE && !call->tried);
		}
	}
	for (size_t pos = 0; map64_next(&c->calls.by_number, &pos, &key, &value);) {
		const struct call *call = value;

		if (call->busy && !call->behind) {
			ASSERT((call->lock != NULL) == call->busy->locks);
			ASSERT_IF(call->lock, !call->lock->row);
			handed_on--;
		}
	}
	ASSERT(handed_on == 0);
}
