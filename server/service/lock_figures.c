/* lock_figures.c: how locks fare, by the first part of their names: calls as this replica's callers see them, and, while it leads, the ends of all holds
 * in the cell. Bounded in number: what finds no row counts under "other".
 *
 * A row is of one of the prefixes that were asked for (the longest that fits), or, when none were, of a name's first segment: "jobs" of "jobs/nightly/7". */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/wire.h"
#include "internal.h"

enum { PREFIX_MAX = 64 };

static struct lock_row *row_add(struct lock_figures *f, struct slice prefix)
{
	struct lock_row *r = &f->rows[f->rows_len++];
	r->prefix_len = prefix.len < PREFIX_MAX ? prefix.len : PREFIX_MAX - 1;
	memcpy(r->prefix, prefix.ptr, r->prefix_len);
	return r;
}

static struct slice prefix_of(const struct lock_row *r)
{
	return slice_of(r->prefix, r->prefix_len);
}

void lock_figures_init(struct lock_figures *f, const char *const *prefixes, size_t len)
{
	pthread_mutex_init(&f->mu, NULL);
	row_add(f, slice_of_str("other"));
	f->fixed = len > 0;
	for (size_t i = 0; i < len && f->rows_len < LOCK_ROWS_MAX; i++)
		row_add(f, slice_of_str(prefixes[i]));
}

void lock_figures_deinit(struct lock_figures *f)
{
	pthread_mutex_destroy(&f->mu);
}

/* ---- with mu ---- */

static struct lock_row *longest(struct lock_figures *f, struct slice name)
{
	struct lock_row *best = &f->rows[0];
	size_t best_len = 0;
	for (size_t i = 1; i < f->rows_len; i++) {
		struct slice p = prefix_of(&f->rows[i]);
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
		if (slice_eq(name, prefix_of(&f->rows[i])))
			return &f->rows[i];
	}
	if (f->rows_len == LOCK_ROWS_MAX)
		return &f->rows[0];
	return row_add(f, name);
}

static struct lock_row *row_of(struct lock_figures *f, struct slice name)
{
	return f->fixed ? longest(f, name) : by_segment(f, name);
}

static void note_time(struct lock_times *t, uint64_t us)
{
	size_t bucket = 0;
	while (bucket < HOLD_BUCKETS && us > (UINT64_C(1000) << (2 * bucket)))
		bucket++;
	if (bucket < HOLD_BUCKETS)
		t->buckets[bucket]++;
	t->sum_us += us;
	t->len++;
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
		note_time(&r->waits, us);
	pthread_mutex_unlock(&f->mu);
}

void lock_figures_hold(struct lock_figures *f, struct slice name, enum hold_end why, uint64_t ms)
{
	pthread_mutex_lock(&f->mu);
	note_time(&row_of(f, name)->holds[why], 1000 * ms);
	pthread_mutex_unlock(&f->mu);
}

void service_hold_ended(struct service *s, struct slice name, enum hold_end why, uint64_t held_ms)
{
	lock_figures_hold(&s->lock_figures, name, why, held_ms);
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

/* buckets: so many; the others count as above all. */
static void times(struct buf *out, const char *name, const char *labels, const struct lock_times *t, int buckets)
{
	uint64_t sum = 0;
	for (int i = 0; i < buckets; i++) {
		sum += t->buckets[i];
		buf_printf(out, "%s_bucket{%s,le=\"%g\"} %" PRIu64 "\n", name, labels, (double)(1 << (2 * i)) / 1000, sum);
	}
	buf_printf(out, "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n%s_sum{%s} %.6f\n%s_count{%s} %" PRIu64 "\n", name, labels, t->len, name, labels,
		   (double)t->sum_us / 1e6, name, labels, t->len);
}

static void waits(struct lock_figures *f, struct buf *out)
{
	char labels[128];
	head(out, "holdfast_lock_wait_seconds", "histogram", "From the call to the grant.");
	for (size_t i = 0; i < f->rows_len; i++) {
		snprintf(labels, sizeof(labels), "prefix=\"%s\"", f->rows[i].prefix);
		times(out, "holdfast_lock_wait_seconds", labels, &f->rows[i].waits, LOCK_BUCKETS);
	}
}

/* What has not happened yet has no line: there are many ends. */
static void holds(struct lock_figures *f, struct buf *out)
{
	static const char *const ends[HOLD_ENDS] = { [HOLD_UNLOCKED] = "unlock", [HOLD_EXPIRED] = "expiry", [HOLD_REVOKED] = "revoke", [HOLD_BROKEN] = "break",
						     [HOLD_DELETED] = "delete", [HOLD_ABANDONED] = "abandon" };
	char labels[128];
	head(out, "holdfast_lock_hold_seconds", "histogram",
	     "From the grant of a lock or an election to its end, by what ended it; of all the cell, counted by the replica that leads it then: add up all replicas.");
	for (size_t i = 0; i < f->rows_len; i++) {
		for (int end = 0; end < HOLD_ENDS; end++) {
			const struct lock_times *t = &f->rows[i].holds[end];
			snprintf(labels, sizeof(labels), "prefix=\"%s\",end=\"%s\"", f->rows[i].prefix, ends[end]);
			if (t->len)
				times(out, "holdfast_lock_hold_seconds", labels, t, HOLD_BUCKETS);
		}
	}
}

void service_write_metrics(struct service *s, struct buf *out)
{
	struct lock_figures *f = &s->lock_figures;
	pthread_mutex_lock(&f->mu);
	column(f, out, "holdfast_lock_grants_total", "Locks and elections granted to callers of this replica, by the beginning of their names.",
	       offsetof(struct lock_row, waits.len));
	column(f, out, "holdfast_lock_refused_total", "Such calls that ended without a grant.", offsetof(struct lock_row, refused));
	column(f, out, "holdfast_lock_unlocks_total", "Locks freed by Unlock here.", offsetof(struct lock_row, unlocked));
	waits(f, out);
	holds(f, out);
	pthread_mutex_unlock(&f->mu);
}
