/* lock_figures.c: how locks fare, by the first part of their names, as this replica's callers see it. Bounded in number: what finds no row counts under "other".
 *
 * A row is of one of the prefixes that were asked for (the longest that fits), or, when none were, of a name's first segment: "jobs" of "jobs/nightly/7". */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "core/wire.h"
#include "internal.h"

enum { PREFIX_MAX = 64 };

void lock_figures_init(struct lock_figures *f, const char *const *prefixes, size_t len)
{
	pthread_mutex_init(&f->mu, NULL);
	f->rows_len = 1; /* other */
	snprintf(f->rows[0].prefix, sizeof(f->rows[0].prefix), "other");
	f->fixed = len > 0;
	for (size_t i = 0; i < len && f->rows_len < LOCK_ROWS_MAX; i++)
		snprintf(f->rows[f->rows_len++].prefix, PREFIX_MAX, "%s", prefixes[i]);
}

void lock_figures_deinit(struct lock_figures *f)
{
	pthread_mutex_destroy(&f->mu);
}

uint64_t lock_figures_now_us(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* ---- with mu ---- */

static struct lock_row *longest(struct lock_figures *f, struct slice name)
{
	struct lock_row *best = &f->rows[0];
	size_t best_len = 0;
	for (size_t i = 1; i < f->rows_len; i++) {
		struct slice p = slice_of_str(f->rows[i].prefix);
		if (p.len >= best_len && slice_starts_with(name, p)) {
			best = &f->rows[i];
			best_len = p.len;
		}
	}
	return best;
}

/* A label is text: what is none goes under "other". */
static bool is_plain(struct slice s)
{
	for (size_t i = 0; i < s.len; i++) {
		if (s.ptr[i] < ' ' || s.ptr[i] > '~' || s.ptr[i] == '"' || s.ptr[i] == '\\')
			return false;
	}
	return s.len > 0 && s.len < PREFIX_MAX;
}

static struct lock_row *by_segment(struct lock_figures *f, struct slice name)
{
	const uint8_t *slash;
	while (name.len && name.ptr[0] == '/')
		name = slice_of(name.ptr + 1, name.len - 1);
	slash = name.len ? memchr(name.ptr, '/', name.len) : NULL;
	if (slash)
		name.len = (size_t)(slash - name.ptr);
	if (!is_plain(name))
		return &f->rows[0];
	for (size_t i = 1; i < f->rows_len; i++) {
		if (slice_eq(name, slice_of_str(f->rows[i].prefix)))
			return &f->rows[i];
	}
	if (f->rows_len == LOCK_ROWS_MAX)
		return &f->rows[0];
	memcpy(f->rows[f->rows_len].prefix, name.ptr, name.len);
	return &f->rows[f->rows_len++];
}

static struct lock_row *row_of(struct lock_figures *f, struct slice name)
{
	return f->fixed ? longest(f, name) : by_segment(f, name);
}

static void note_wait(struct lock_row *r, uint64_t us)
{
	size_t bucket = 0;
	while (bucket < LOCK_BUCKETS && us > (UINT64_C(1000) << (2 * bucket)))
		bucket++;
	if (bucket < LOCK_BUCKETS)
		r->buckets[bucket]++;
	r->wait_us += us;
	r->granted++;
}

/* ---- */

/* The key of an Unlock, without the lease behind its last slash. */
static struct slice name_in_key(struct slice key)
{
	while (key.len && key.ptr[key.len - 1] != '/')
		key.len--;
	return key.len ? slice_of(key.ptr, key.len - 1) : key;
}

void lock_figures_note(struct lock_figures *f, enum method_id method, struct slice request, enum err e, uint64_t us)
{
	struct slice name = wire_find_bytes(request, 1);
	struct lock_row *r;
	if (method == METHOD_LOCK_UNLOCK)
		name = name_in_key(name);
	pthread_mutex_lock(&f->mu);
	r = row_of(f, name);
	if (method == METHOD_LOCK_UNLOCK)
		r->unlocked += e == ERR_OK;
	else if (e)
		r->refused++;
	else
		note_wait(r, us);
	pthread_mutex_unlock(&f->mu);
}

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void column(struct lock_figures *f, struct buf *out, const char *name, const char *help, size_t at)
{
	head(out, name, "counter", help);
	for (size_t i = 0; i < f->rows_len; i++)
		buf_printf(out, "%s{prefix=\"%s\"} %" PRIu64 "\n", name, f->rows[i].prefix,
			   *(const uint64_t *)(const void *)((const char *)&f->rows[i] + at));
}

static void waits(struct buf *out, const struct lock_row *r)
{
	const char *name = "holdfast_lock_wait_seconds";
	uint64_t sum = 0;
	for (int i = 0; i < LOCK_BUCKETS; i++) {
		sum += r->buckets[i];
		buf_printf(out, "%s_bucket{prefix=\"%s\",le=\"%g\"} %" PRIu64 "\n", name, r->prefix, (double)(1 << (2 * i)) / 1000, sum);
	}
	buf_printf(out, "%s_bucket{prefix=\"%s\",le=\"+Inf\"} %" PRIu64 "\n%s_sum{prefix=\"%s\"} %.6f\n%s_count{prefix=\"%s\"} %" PRIu64 "\n", name, r->prefix,
		   r->granted, name, r->prefix, (double)r->wait_us / 1e6, name, r->prefix, r->granted);
}

void service_write_metrics(struct service *s, struct buf *out)
{
	struct lock_figures *f = &s->lock_figures;
	pthread_mutex_lock(&f->mu);
	column(f, out, "holdfast_lock_grants_total", "Locks and elections granted to callers of this replica, by the beginning of their names.",
	       offsetof(struct lock_row, granted));
	column(f, out, "holdfast_lock_refused_total", "Such calls that ended without a grant.", offsetof(struct lock_row, refused));
	column(f, out, "holdfast_lock_unlocks_total", "Locks freed by Unlock here.", offsetof(struct lock_row, unlocked));
	head(out, "holdfast_lock_wait_seconds", "histogram", "From the call to the grant.");
	for (size_t i = 0; i < f->rows_len; i++)
		waits(out, &f->rows[i]);
	pthread_mutex_unlock(&f->mu);
}
