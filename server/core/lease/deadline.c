/* deadline.c: until when each lease lives, in the opinion of the leader.
 *
 * Keep-alives are by far the most frequent thing a cell does, so a renewal only writes the new deadline. The heap keeps the old, earlier
 * one as its key, and is put right when that comes due:
 *   (D1) an open lease lies in the heap under a key that is at most its deadline; so the top is early at times, but never late.
 * One correction moves a key by what is most of a TTL, during which the lease was renewed at least once: O(1) a renewal, amortised.
 *
 * A lease is closed in one of two ways, both for good while we lead (L3): lessor_close_due finds it past its deadline; or a keep-alive finds
 * it so first. The second kind, and those whose proposal was refused, wait in `due` to be handed out.
 *
 * No timers here: whoever owns us asks lessor_next_deadline() and comes back. */
#include "internal.h"

#include "base/mem.h"

enum {
	DUE_RETRY_MS = 50,       /* a refused end is proposed again after this: a refusal tends to last, so no sooner */
	CORRECTIONS_MAX = 16384, /* heap keys put right in one call, some 2 ms: a leader that was just elected has all deadlines at once */
};

#define TO(state) (1U << (state))
static const uint8_t lease_edges[LEASE_STATES] = {
	[LEASE_IDLE] = TO(LEASE_OPEN),
	[LEASE_OPEN] = TO(LEASE_CLOSED) | TO(LEASE_DUE) | TO(LEASE_IDLE),
	[LEASE_CLOSED] = TO(LEASE_DUE) | TO(LEASE_IDLE),
	[LEASE_DUE] = TO(LEASE_CLOSED) | TO(LEASE_IDLE),
};

static time_ms time_add(time_ms t, uint64_t ms)
{
	return t < TIME_NEVER - ms ? t + ms : TIME_NEVER - 1;
}

static uint64_t lease_ttl_ms(const struct lease *l)
{
	return (uint64_t)l->ttl_s * 1000; /* fits: the TTL has a maximum */
}

static struct lease *lease_of_node(struct heap_node *n)
{
	return CONTAINER_OF(n, struct lease, open);
}

static void lessor_hear(struct lessor *ls, time_ms now)
{
	if (now > ls->last_now)
		ls->last_now = now;
}

/* Leaves the old state's place and enters the new one's; the union changes its meaning here and nowhere else. */
static void lease_to(struct lessor *ls, struct lease *l, enum lease_state to)
{
	ASSERT(lease_edges[l->state] & TO(to));
	if (l->state == LEASE_OPEN)
		heap_remove(&ls->heap, &l->open);
	if (l->state == LEASE_DUE)
		list_remove(&l->due);
	l->state = to;
	if (to == LEASE_OPEN) {
		l->open = (struct heap_node){ 0 };
		heap_insert(&ls->heap, &l->open, l->deadline);
	}
	if (to == LEASE_DUE)
		list_push_back(&ls->due, &l->due);
	if (to == LEASE_IDLE)
		l->deadline = 0;
}

static void lessor_due_by(struct lessor *ls, time_ms at)
{
	if (list_empty(&ls->due) || at < ls->due_at)
		ls->due_at = at;
}

void lease_start(struct lessor *ls, struct lease *l, time_ms now)
{
	ASSERT(ls->leading);
	lessor_hear(ls, now);
	l->deadline = time_add(now, lease_ttl_ms(l));
	lease_to(ls, l, LEASE_OPEN);
}

void lease_stop(struct lessor *ls, struct lease *l)
{
	if (l->state != LEASE_IDLE)
		lease_to(ls, l, LEASE_IDLE);
}

void lessor_promote(struct lessor *ls, time_ms now)
{
	struct tree_cursor c;

	ASSERT(!ls->leading);
	ls->leading = true;
	ls->promoted_at = now;
	ls->last_now = now;
	/* In ID order: equal states and equal times then close equal deadlines in the same order, which makes runs repeatable. */
	for (struct tree_record *r = tree_first(&c, &ls->state->leases); r; r = tree_next(&c))
		lease_start(ls, lessor_lease(ls, ((const struct lease_record *)(const void *)r)->id), now);
}

void lessor_demote(struct lessor *ls)
{
	size_t pos = 0;
	uint64_t id;
	void *l;

	if (!ls->leading)
		return;
	heap_deinit(&ls->heap);
	while (map64_next(&ls->leases, &pos, &id, &l)) {
		((struct lease *)l)->state = LEASE_IDLE; /* all at once: neither heap nor list outlives this */
		((struct lease *)l)->deadline = 0;
	}
	list_init(&ls->due);
	ls->leading = false;
	ls->promoted_at = ls->last_now = ls->due_at = 0;
}

void lessor_shift(struct lessor *ls, time_ms gap_ms)
{
	for (size_t i = 0; i < ls->heap.len; i++) {
		struct lease *l = lease_of_node(ls->heap.at[i]);

		l->deadline = time_add(l->deadline, gap_ms); /* D1 lets the heap's key stay */
	}
}

enum err lessor_renew(struct lessor *ls, lease_id id, time_ms now, int64_t *ret_ttl_s)
{
	struct lease *l = lessor_lease(ls, id);
	time_ms deadline;

	if (!ls->leading)
		return ERR_NOT_LEADER;
	if (!l)
		return ERR_LEASE_NOT_FOUND;
	lessor_hear(ls, now);
	if (l->state != LEASE_OPEN)
		return ERR_BUSY;
	if (l->deadline <= now) {
		/* Closed here and now: were it left open, a shift of the deadlines could bring it back to life (L3). */
		lessor_due_by(ls, now);
		lease_to(ls, l, LEASE_DUE);
		return ERR_BUSY;
	}
	deadline = time_add(now, lease_ttl_ms(l));
	if (deadline > l->deadline) /* L5; a shift may have moved it beyond */
		l->deadline = deadline;
	if (ret_ttl_s)
		*ret_ttl_s = l->ttl_s;
	return ERR_OK;
}

int64_t lessor_remaining_s(const struct lessor *ls, lease_id id, time_ms now)
{
	const struct lease *l = lessor_lease(ls, id);

	if (!l)
		return -1;
	return l->deadline > now ? (int64_t)((l->deadline - now) / 1000) : 0;
}

size_t lessor_close_due(struct lessor *ls, time_ms now, lease_id *ret_ids, size_t max)
{
	struct heap_node *top;
	size_t n = 0, corrections = 0;

	lessor_hear(ls, now);
	while (n < max && !list_empty(&ls->due)) {
		struct lease *l = CONTAINER_OF(ls->due.next, struct lease, due);

		lease_to(ls, l, LEASE_CLOSED);
		ret_ids[n++] = l->id;
	}
	while (n < max && (top = heap_peek(&ls->heap)) && top->key <= now) {
		struct lease *l = lease_of_node(top);

		if (top->key == l->deadline) {
			lease_to(ls, l, LEASE_CLOSED);
			ret_ids[n++] = l->id;
			continue;
		}
		if (corrections++ == CORRECTIONS_MAX)
			break;
		heap_update(&ls->heap, top, l->deadline);
	}
	return n;
}

void lessor_end_refused(struct lessor *ls, lease_id id)
{
	struct lease *l = lessor_lease(ls, id);

	/* It may be gone, or we no longer lead: then there is nothing left to propose. */
	if (!l || l->state != LEASE_CLOSED)
		return;
	lessor_due_by(ls, time_add(ls->last_now, DUE_RETRY_MS));
	lease_to(ls, l, LEASE_DUE);
}

time_ms lessor_next_deadline(const struct lessor *ls)
{
	const struct heap_node *top = heap_peek(&ls->heap);
	time_ms at = top ? top->key : TIME_NEVER;

	return !list_empty(&ls->due) && ls->due_at < at ? ls->due_at : at;
}

void lessor_check_deadlines(const struct lessor *ls)
{
	size_t pos = 0, open = 0, due = 0, listed = 0;
	uint64_t id;
	void *v;

	while (map64_next(&ls->leases, &pos, &id, &v)) {
		const struct lease *l = v;

		ASSERT((l->state == LEASE_IDLE) == !ls->leading);
		open += l->state == LEASE_OPEN;
		due += l->state == LEASE_DUE;
		ASSERT_IF(l->state == LEASE_OPEN, ls->heap.at[l->open.pos - 1] == &l->open);
		ASSERT_IF(l->state == LEASE_OPEN, l->open.key <= l->deadline);                                       /* D1 */
		ASSERT_IF(l->state == LEASE_CLOSED || l->state == LEASE_DUE, l->deadline <= ls->last_now);           /* L3 */
		ASSERT_IF(ls->leading, l->deadline >= time_add(ls->promoted_at, lease_ttl_ms(l)));                   /* L4, L5 */
		ASSERT_IF(!ls->leading, l->deadline == 0);
	}
	LIST_FOR_EACH(it, &ls->due)
		listed++;
	ASSERT(ls->heap.len == open); /* L2 */
	ASSERT(listed == due);
}
