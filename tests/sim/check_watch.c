/* check_watch.c: a watch delivers every matching change once, in the order of revisions, never from the past (P7). Each watch has a place in the
 * list of all events that ever were; what it is told must be exactly what matches from there on, and a header's revision must not be ahead of it. */
#include "sim.h"

#include "base/hash.h"
#include "core/wire.h"

void check_watch_note(struct world *w, const struct kv *kv)
{
	struct seen_event *e = SIM_PUSH(&w->events);

	*e = (struct seen_event){ .mod = kv->mod_revision, .create = kv->create_revision, .version = kv->version, .lease = kv->lease,
				  .value_hash = hash64(1, kv_value(kv).ptr, kv_value(kv).len), .key_len = kv->key_len };
	ASSERT(kv->key_len <= sizeof e->key);
	memcpy(e->key, kv->bytes, kv->key_len);
}

/* The number of the first event with a revision >= rev. */
static size_t first_from(const struct world *w, revision rev)
{
	size_t lo = 0, hi = w->events.len;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (w->events.at[mid].mod < rev)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool matches(const struct watch_spec *s, const struct seen_event *e)
{
	struct slice key = slice_of(e->key, e->key_len);

	if (e->version == 0 ? s->no_delete : s->no_put)
		return false;
	if (!s->end[0])
		return slice_eq(key, slice_of_str(s->key));
	return slice_cmp(key, slice_of_str(s->key)) >= 0 && slice_cmp(key, slice_of_str(s->end)) < 0;
}

static const struct seen_event *next_event(const struct world *w, struct watch_spec *s)
{
	while (s->at < w->events.len && !matches(s, &w->events.at[s->at]))
		s->at++;
	return s->at < w->events.len ? &w->events.at[s->at] : NULL;
}

struct told {
	revision header, compact_revision;
	int64_t watch;
	bool created, canceled, fragment;
};

static struct reply_kv read_kv(struct slice bytes)
{
	struct reply_kv kv = { 0 };
	struct wire w;

	for (wire_init(&w, bytes); wire_next(&w);) {
		switch (w.field) {
		case 1: kv.key = wire_bytes(&w); break;
		case 2: kv.create = wire_i64(&w); break;
		case 3: kv.mod = wire_i64(&w); break;
		case 4: kv.version = wire_i64(&w); break;
		case 5: kv.value = wire_bytes(&w); break;
		case 6: kv.lease = wire_i64(&w); break;
		default: break;
		}
	}
	return kv;
}

/* What was there before, unless compaction has taken it. */
static void check_prev(struct watcher *x, const struct watch_spec *s, const struct seen_event *e, struct slice bytes)
{
	uint32_t k = key_number(slice_of(e->key, e->key_len));
	const struct version *v = k < x->w->config.keys ? history_at(x->w, k, e->mod - 1) : NULL;
	struct reply_kv kv = read_kv(bytes);

	if (bytes.len == 0 || k >= x->w->config.keys)
		return;
	CHECK(x->w, "P7", s->prev_kv && v && kv.mod == v->mod && kv.version == v->version && hash64(1, kv.value.ptr, kv.value.len) == v->value_hash,
	      "watcher %u: revision %lld is told with another value before it", x->id, (long long)e->mod);
}

static void check_one(struct watcher *x, struct watch_spec *s, struct slice bytes)
{
	const struct seen_event *e = next_event(x->w, s);
	bool deleted = wire_find_u64(bytes, 1, 0) == 1;
	struct reply_kv kv = read_kv(wire_find_bytes(bytes, 2));

	CHECK(x->w, "P7", e, "watcher %u is told of revision %lld of %.*s, which never was (or for the second time)", x->id, (long long)kv.mod,
	      (int)kv.key.len, (const char *)kv.key.ptr);
	CHECK(x->w, "P7",
	      kv.mod == e->mod && deleted == (e->version == 0) && slice_eq(kv.key, slice_of(e->key, e->key_len)) && kv.version == e->version,
	      "watcher %u, [%s, %s): next is %.*s at revision %lld, told is %.*s at %lld", x->id, s->key, s->end, (int)e->key_len, e->key,
	      (long long)e->mod, (int)kv.key.len, (const char *)kv.key.ptr, (long long)kv.mod);
	if (!deleted)
		CHECK(x->w, "P7", kv.create == e->create && kv.lease == e->lease && hash64(1, kv.value.ptr, kv.value.len) == e->value_hash,
		      "watcher %u: revision %lld is told with another value", x->id, (long long)kv.mod);
	check_prev(x, s, e, wire_find_bytes(bytes, 3));
	s->at++;
	s->next = kv.mod + 1;
	x->w->totals.watch_events++;
}

/* All up to the header's revision has been told. */
static void check_told(struct watcher *x, struct watch_spec *s, revision header)
{
	const struct seen_event *e = next_event(x->w, s);

	CHECK(x->w, "P7", header <= referee_revision(x->w->referee), "watcher %u is told of revision %lld, which is not there yet", x->id,
	      (long long)header);
	CHECK(x->w, "P7", !e || e->mod > header, "watcher %u, [%s, %s): told up to %lld, but not of %.*s at %lld", x->id, s->key, s->end,
	      (long long)header, (int)e->key_len, e->key, (long long)e->mod);
	if (s->next <= header)
		s->next = header + 1;
}

static void created(struct watcher *x, struct watch_spec *s, const struct told *t)
{
	s->created = true;
	if (s->asked == 0) {
		/* From now: from a now that is not past, unless no quorum could be had in the time of a request. */
		CHECK(x->w, "P5", t->header >= s->floor || x->w->now - s->asked_at > x->w->config.request_timeout_ms * SIM_MS * 9 / 10,
		      "watcher %u starts from revision %lld, another call was told %lld before it asked", x->id, (long long)t->header,
		      (long long)s->floor);
		s->next = t->header + 1;
	}
	s->at = first_from(x->w, s->next);
}

static void canceled(struct watcher *x, struct watch_spec *s, const struct told *t)
{
	CHECK(x->w, "P7", t->compact_revision > 0, "watcher %u: a watch is cancelled without a reason", x->id);
	CHECK(x->w, "P7", t->compact_revision > s->next && t->compact_revision <= referee_state(x->w->referee)->compact_revision,
	      "watcher %u: cancelled by a compaction at %lld, it needs %lld", x->id, (long long)t->compact_revision, (long long)s->next);
	s->next = t->compact_revision;
	s->created = false;
	s->canceled = true;
	x->w->totals.watch_cancels++;
}

void check_watch_response(struct watcher *x, struct slice bytes)
{
	struct told t = { 0 };
	struct watch_spec *s;
	struct wire w;
	size_t events = 0;

	for (wire_init(&w, bytes); wire_next(&w);) {
		switch (w.field) {
		case 1: t.header = (revision)wire_find_u64(wire_bytes(&w), 3, 0); break;
		case 2: t.watch = wire_i64(&w); break;
		case 3: t.created = wire_u64(&w) != 0; break;
		case 4: t.canceled = wire_u64(&w) != 0; break;
		case 5: t.compact_revision = wire_i64(&w); break;
		case 7: t.fragment = wire_u64(&w) != 0; break;
		default: break;
		}
	}
	CHECK(x->w, "P7", !w.bad, "watcher %u: a response cannot be read", x->id);
	if (t.watch == -1) {
		for (uint32_t i = 0; i < x->watches_len; i++)
			if (x->watches[i].created)
				check_told(x, &x->watches[i], t.header);
		return;
	}
	CHECK(x->w, "P7", t.watch >= 1 && t.watch <= (int64_t)x->watches_len, "watcher %u: a response for nobody", x->id);
	s = &x->watches[t.watch - 1];
	if (t.created)
		created(x, s, &t);
	CHECK(x->w, "P7", s->created, "watcher %u: a response before its creation, or after its end", x->id);
	for (wire_init(&w, bytes); wire_next(&w);) {
		if (w.field == 11) {
			check_one(x, s, wire_bytes(&w));
			events++;
		}
	}
	if (t.canceled)
		canceled(x, s, &t);
	else if (!t.created && !t.fragment)
		check_told(x, s, t.header);
}

/* An observer is told leaders that led, and their values, in order: each write to the leader's key once. A first answer that is older than what was
 * known when it asked would be a leader of the past. */
void check_observed(struct watcher *x, struct slice bytes)
{
	struct world *w = x->w;
	struct reply_kv kv = read_kv(wire_find_bytes(bytes, 2));
	revision header = (revision)wire_find_u64(wire_find_bytes(bytes, 1), 3, 0);
	const struct lock_history *l = &w->locks[x->election];
	const struct hold *h = NULL;
	size_t at;

	CHECK(w, "P7", header <= referee_revision(w->referee), "watcher %u observes at revision %lld, which is not there yet", x->id, (long long)header);
	/* Without a quorum in the time of a request it starts from what its replica has. */
	if (!x->told_any && w->now - x->opened_at > w->config.request_timeout_ms * SIM_MS * 9 / 10)
		x->told_create = x->told_mod = 0;
	else if (!x->told_any)
		CHECK(w, "P5", header >= x->observe_floor,
		      "watcher %u observes from revision %lld, another call was told %lld before it asked", x->id, (long long)header,
		      (long long)x->observe_floor);
	if (kv.key.len == 0) {
		x->told_any = true;
		return;
	}
	at = first_from(w, kv.mod);
	while (at < w->events.len && w->events.at[at].mod == kv.mod && !slice_eq(slice_of(w->events.at[at].key, w->events.at[at].key_len), kv.key))
		at++;
	CHECK(w, "P7", at < w->events.len && w->events.at[at].mod == kv.mod && w->events.at[at].create == kv.create &&
	      w->events.at[at].value_hash == hash64(1, kv.value.ptr, kv.value.len),
	      "watcher %u observes a value that never was, at %lld", x->id, (long long)kv.mod);
	for (size_t i = l->holds.len; i-- > 0 && !h;)
		if (l->holds.at[i].token == kv.create)
			h = &l->holds.at[i];
	CHECK(w, "P7", h, "watcher %u observes a leader that never led, token %lld", x->id, (long long)kv.create);
	/* A leader that was elected later may have written its value before, while it waited. */
	CHECK(w, "P7", kv.create > x->told_create || (kv.create == x->told_create && (kv.mod > x->told_mod || (!x->told_any && kv.mod == x->told_mod))),
	      "watcher %u observes (%lld, %lld) after (%lld, %lld)", x->id, (long long)kv.create, (long long)kv.mod, (long long)x->told_create,
	      (long long)x->told_mod);
	x->told_any = true;
	x->told_create = kv.create;
	x->told_mod = kv.mod;
	w->totals.observed++;
}

/* It was removed while it was away, and no member lives at any address that it knows: nothing can reach it, so nobody who asks there can be told. */
static bool is_out_of_reach(struct world *w, const struct replica *r)
{
	return r->up && operator_removed(w, r) && !check_reaches_a_member(w, r);
}

/* Long after all was healed: everybody has heard of everything. */
void check_watch_end(struct world *w)
{
	for (uint32_t i = 0; i < w->config.watchers; i++) {
		struct watcher *x = &w->watchers[i];

		if (is_out_of_reach(w, &w->replicas[x->server]))
			continue;
		CHECK(w, "liveness", x->open, "watcher %u has no stream", i);
		for (uint32_t k = 0; k < x->watches_len && !x->observes; k++) {
			struct watch_spec *s = &x->watches[k];
			const struct seen_event *e;

			if (s->canceled)
				continue;
			CHECK(w, "liveness", s->created, "watcher %u: watch %u was never answered", i, k + 1);
			e = next_event(w, s);
			CHECK(w, "liveness", !e || e->mod > w->quiet_revision, "watcher %u, [%s, %s): not told of %.*s at %lld", i, s->key, s->end,
			      (int)e->key_len, e->key, (long long)e->mod);
		}
	}
}
