/* reduce.c: leaves out one share of what is left after the other, and keeps to it where the failure stays. */
#include "reduce.h"

#include "base/mem.h"

static size_t those_left(const struct reduce *r, const size_t *things, size_t len, size_t *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		if (!r->out[things[i]])
			ret[n++] = things[i];
	return n;
}

static void mark(struct reduce *r, const size_t *things, size_t len, bool out)
{
	for (size_t i = 0; i < len; i++)
		r->out[things[i]] = out;
}

/* Each share of so many once. */
static bool leave_out_shares(struct reduce *r, const size_t *left, size_t len, size_t share)
{
	bool any = false;

	for (size_t at = 0; at < len; at += share) {
		size_t n = share < len - at ? share : len - at;

		mark(r, left + at, n, true);
		if (r->fails(r->ctx, r->out))
			any = true;
		else
			mark(r, left + at, n, false);
	}
	return any;
}

bool reduce_things(struct reduce *r, const size_t *things, size_t len, size_t parts)
{
	size_t *left = mem_alloc((len ? len : 1) * sizeof *left);
	size_t n = those_left(r, things, len, left), share = n;
	bool any = false;

	while (share > 0 && n > 0 && (parts == 0 || share >= n / parts)) {
		if (leave_out_shares(r, left, n, share)) {
			any = true;
			n = those_left(r, things, len, left);
		}
		share = share > n ? n : share / 2;
	}
	free(left);
	return any;
}

uint64_t reduce_value(bool (*fails)(void *ctx, uint64_t value), void *ctx, uint64_t lo, uint64_t hi, unsigned steps)
{
	if (lo >= hi)
		return hi;
	if (fails(ctx, lo))
		return lo;
	for (unsigned i = 0; i < steps && hi - lo > 1; i++) {
		uint64_t mid = lo + (hi - lo) / 2;

		if (fails(ctx, mid))
			hi = mid;
		else
			lo = mid;
	}
	return hi;
}
