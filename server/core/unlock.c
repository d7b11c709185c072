/* unlock.c: an Unlock comes behind the Locks of its place that were asked for before it.
 *
 * Whoever gives up a Lock that he knows no end of sends an Unlock of its key behind it: the cancel may be lost on its way here, or come late. But Locks wait in line
 * where Unlocks pass by (admit.c), and one that was lost with its leader is proposed again (W3 of propose.c). Carried out before, the Unlock would free nothing, and
 * the Lock's hold be known to nobody until its lease ends.
 *
 *   (N1) an Unlock that names no token is handed on once every Lock and Campaign for its key that this replica took in before it has its outcome: a place in the
 *        queue, a hold, an error, or none for certain. So the log has them in the order in which they were asked for here, and what the Unlock does is decided in
 *        the log alone: whether its caller may, whether it is a repetition. One that names a token is about a hold that was told, and waits for nothing.
 *   (N2) a Lock that is asked for while an Unlock of its key waits goes behind it, so that this does not free its hold. Once the Unlock is handed on,
 *        they are two calls under way like others: lost with its leader, the Unlock may come behind.
 *   (N3) nobody waits but for commands that were asked for before, as long as these take to be applied (a Lock in the queue of its lock has its outcome), and at the
 *        most until his own deadline. Whoever waits was tried by nobody, and is certainly not carried out when he gives up.
 *   (N4) a busy place is there while one of its Locks was handed on and has no outcome. There are no more of them than calls under way (E1 of request.c), and who
 *        waits there is a call under way like others. A Lock's bytes count as those of the queue do.
 *
 * A Lock with a lease of its own is in no busy place: nobody knows its key before it is answered. Two keys of one hash do no harm: somebody waits for a stranger. Of what
 * is asked at different replicas nobody promises an order; a session's calls at the replica that it left do nothing (J5 of kv/locks.c). */
#include "internal.h"

struct busy_place {
	uint64_t hash; /* of the key */
	struct list locks;   /* lock_call.link: handed on */
	struct list waiting; /* call.link: Unlocks and Locks in the order they were asked, an Unlock first unless it gave up */
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
	list_init(&b->locks);
	list_init(&b->waiting);
	map64_put(&c->waiters.busy, hash, b);
	return b;
}

void unlocks_deinit(struct core *c)
{
	ASSERT(c->waiters.busy.len == 0);
	map64_deinit(&c->waiters.busy);
}

void unlock_lock_asked(struct core *c, struct call *call)
{
	struct lock_call *lk = call->lock;
	struct buf key = { 0 };

	if (lk->own_lease)
		return;
	lock_key(buf_view(&lk->name), lk->lease, &key);
	lk->busy = busy_get(c, hash_of(buf_view(&key)));
	buf_free(&key);
	if (list_empty(&lk->busy->waiting))
		list_push_back(&lk->busy->locks, &lk->link);
	else
		propose_set_aside(call, &lk->busy->waiting); /* N2 */
}

void unlock_submit(struct core *c, const struct core_request *r)
{
	struct call *call = call_new(c, CALL_COMMAND, r->tag, r->method);
	struct busy_place *b = NULL;

	propose_submit_request(c, call, CMD(UNLOCK), r->bytes, r, false);
	if (wire_find_u64(r->bytes, 100, 0) == 0)
		b = map64_get(&c->waiters.busy, hash_of(wire_find_bytes(r->bytes, 1)));
	if (b)
		propose_set_aside(call, &b->waiting); /* N1 */
}

static void hand_on(struct core *c, struct busy_place *b)
{
	while (!list_empty(&b->waiting)) {
		struct call *call = CONTAINER_OF(b->waiting.next, struct call, link);

		if (!call->lock && !list_empty(&b->locks))
			return;
		if (call->lock)
			list_push_back(&b->locks, &call->lock->link);
		propose_hand_on(c, call);
	}
}

void unlock_lock_settled(struct core *c, struct lock_call *lk)
{
	struct busy_place *b = lk->busy;

	if (!b)
		return;
	lk->busy = NULL;
	list_remove(&lk->link);
	if (list_empty(&b->locks))
		hand_on(c, b);
	if (!list_empty(&b->locks))
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
	uint64_t hash;
	void *value;

	for (size_t pos = 0; map64_next(&c->waiters.busy, &pos, &hash, &value);) {
		const struct busy_place *b = value;

		ASSERT(b->hash == hash && !list_empty(&b->locks)); /* N4 */
		LIST_FOR_EACH(l, &b->locks) {
			const struct lock_call *lk = CONTAINER_OF(l, struct lock_call, link);

			ASSERT(lk->busy == b && !lk->row);
		}
		LIST_FOR_EACH(l, &b->waiting) {
			const struct call *call = CONTAINER_OF(l, struct call, link);

			ASSERT(call->place == PLACE_QUEUE && !call->tried);
			ASSERT_IF(call->lock, call->lock->busy == b && list_empty(&call->lock->link));
		}
	}
}
