/* event.c: the queue of what happens when, and how a run ends early. A binary heap by (instant, number): (V1). */
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

void sim_at(struct world *w, sim_us at, struct ev e)
{
	size_t i = w->heap.len;

	e.at = at < w->now ? w->now : at;
	e.seq = w->next_seq++;
	(void)SIM_PUSH(&w->heap);
	while (i > 0 && before(&e, &w->heap.at[(i - 1) / 2])) {
		w->heap.at[i] = w->heap.at[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	w->heap.at[i] = e;
}

bool sim_next(struct world *w, struct ev *ret)
{
	struct ev *h = w->heap.at;
	struct ev last;
	size_t i = 0, n;

	if (w->heap.len == 0)
		return false;
	*ret = h[0];
	last = h[--w->heap.len];
	n = w->heap.len;
	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= n)
			break;
		if (child + 1 < n && before(&h[child + 1], &h[child]))
			child++;
		if (!before(&h[child], &last))
			break;
		h[i] = h[child];
		i = child;
	}
	if (n > 0)
		h[i] = last;
	w->now = ret->at;
	return true;
}

void sim_trace_line(struct world *w, const char *fmt, ...)
{
	va_list ap;

	printf("%4llu.%06llu ", (unsigned long long)(w->now / SIM_SECOND), (unsigned long long)(w->now % SIM_SECOND));
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

void sim_fail(struct world *w, const char *promise, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	printf("FAIL seed %llu (%u replicas) at %llu.%06llu s: %s: %s\n", (unsigned long long)w->opts.seed, w->config.replicas,
	       (unsigned long long)(w->now / SIM_SECOND), (unsigned long long)(w->now % SIM_SECOND), promise, text);
	fflush(stdout);
	_exit(1);
}
