/* event.c: the queue of what happens when, and how a run ends early. By (instant, number): (V1).
 *
 * Most of what waits is far off (patience, ends of leases) and mostly nothing comes of it; most of what is put in comes out within milliseconds. So
 * what is due soon lies in a wheel of short slots, a list each, whose first is found by looking; and the rest in a binary heap, out of which it
 * comes into the wheel as time goes on.
 *   (W1) all in the wheel is due before the horizon, all in the heap from there on; the wheel spans no more than a turn. */
#include "sim.h"

#include <stdarg.h>
#include <unistd.h>

void *sim_vec_grow(void *at, size_t len, size_t *cap, size_t size)
{
	if (len < *cap)
		return at;
	*cap = *cap ? *cap * 2 : 8;
	return mem_realloc(at, *cap * size);
}

static bool before(const struct ev *a, const struct ev *b)
{
	return a->at < b->at || (a->at == b->at && a->seq < b->seq);
}

#define SLOT_US UINT64_C(32)
#define TURN_US (SLOT_US * WHEEL_SLOTS)

static void heap_push(struct queue *q, const struct ev *e)
{
	size_t i = q->far.len;

	(void)SIM_PUSH(&q->far);
	while (i > 0 && before(e, &q->far.at[(i - 1) / 2])) {
		q->far.at[i] = q->far.at[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	q->far.at[i] = *e;
}

static void heap_pop(struct queue *q, struct ev *ret)
{
	struct ev *h = q->far.at, last = h[q->far.len - 1];
	size_t n = --q->far.len, i = 0;

	*ret = h[0];
	for (size_t child; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && before(&h[child + 1], &h[child]))
			child++;
		if (!before(&h[child], &last))
			break;
		h[i] = h[child];
	}
	if (n > 0)
		h[i] = last;
}

static void wheel_push(struct queue *q, const struct ev *e)
{
	size_t slot = e->at / SLOT_US % WHEEL_SLOTS;
	uint32_t n = q->free;

	if (n) {
		q->free = q->near.at[n - 1].next;
	} else {
		(void)SIM_PUSH(&q->near);
		n = (uint32_t)q->near.len;
	}
	q->near.at[n - 1] = (struct near_ev){ .e = *e, .next = q->slots[slot] };
	q->slots[slot] = n;
	q->used[slot / 64] |= UINT64_C(1) << slot % 64;
	q->near_len++;
}

/* The first slot in use at or after that of `now`; there is one. */
static size_t first_slot(const struct queue *q, sim_us now)
{
	size_t at = now / SLOT_US % WHEEL_SLOTS, word = at / 64;
	uint64_t bits = q->used[word] & UINT64_MAX << at % 64;

	while (!bits) {
		word = (word + 1) % (WHEEL_SLOTS / 64);
		bits = q->used[word];
	}
	return word * 64 + (size_t)__builtin_ctzll(bits);
}

static void wheel_pop(struct queue *q, sim_us now, struct ev *ret)
{
	size_t slot = first_slot(q, now);
	uint32_t *first = &q->slots[slot], n;

	for (uint32_t *link = first; *link; link = &q->near.at[*link - 1].next)
		if (before(&q->near.at[*link - 1].e, &q->near.at[*first - 1].e))
			first = link;
	n = *first;
	*ret = q->near.at[n - 1].e;
	*first = q->near.at[n - 1].next;
	q->near.at[n - 1].next = q->free;
	q->free = n;
	if (!q->slots[slot])
		q->used[slot / 64] &= ~(UINT64_C(1) << slot % 64);
	q->near_len--;
}

void sim_at(struct world *w, sim_us at, struct ev e)
{
	e.at = at < w->now ? w->now : at;
	e.seq = w->next_seq++;
	if (e.at < w->queue.horizon)
		wheel_push(&w->queue, &e);
	else
		heap_push(&w->queue, &e);
}

bool sim_next(struct world *w, struct ev *ret)
{
	struct queue *q = &w->queue;
	struct ev e;

	if (q->near_len == 0) {
		if (q->far.len == 0)
			return false;
		w->now = q->far.at[0].at;
	}
	q->horizon = w->now / SLOT_US * SLOT_US + TURN_US; /* W1 */
	while (q->far.len > 0 && q->far.at[0].at < q->horizon) {
		heap_pop(q, &e);
		wheel_push(q, &e);
	}
	wheel_pop(q, w->now, ret);
	w->now = ret->at;
	return true;
}

static void event_free(struct ev *e)
{
	if (e->kind == EV_PACKET)
		buf_free(&((struct packet *)e->ptr)->bytes);
	else if (e->ptr)
		buf_free(&((struct call_msg *)e->ptr)->bytes);
	free(e->ptr);
}

void sim_forget(struct world *w)
{
	struct ev e;

	while (sim_next(w, &e))
		event_free(&e);
	free(w->queue.near.at);
	free(w->queue.far.at);
}

void sim_trace_line(struct world *w, const char *fmt, ...)
{
	va_list ap;

	w->trace_lines++;
	printf("%4llu.%06llu ", (unsigned long long)(w->now / SIM_SECOND), (unsigned long long)(w->now % SIM_SECOND));
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

void verdict_note(const struct world *w, const char *check, const char *text)
{
	struct verdict *v = w->opts.verdict;

	if (!v || v->failed)
		return;
	v->failed = true;
	v->at = w->now;
	v->events = w->totals.events;
	v->lines = w->trace_lines;
	snprintf(v->check, sizeof v->check, "%s", check);
	snprintf(v->text, sizeof v->text, "%s", text);
}

void sim_fail(struct world *w, const char *promise, const char *fmt, ...)
{
	char text[1024], check[320];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	printf("FAIL seed %llu (%u replicas) at %llu.%06llu s: %s: %s\n", (unsigned long long)w->opts.seed, w->config.replicas,
	       (unsigned long long)(w->now / SIM_SECOND), (unsigned long long)(w->now % SIM_SECOND), promise, text);
	fflush(stdout);
	snprintf(check, sizeof check, "%s: %s", promise, fmt);
	verdict_note(w, check, text);
	_exit(1);
}
