/* Random histories against a model that knows, for every watcher, the exact list of events it must get.
 *
 * The model keeps all events that ever were. A watcher's position in it moves with each event that it is told: that event must be the
 * next one that matches, and nothing else. It may end as lost only if what it still needed is below the compaction; progress notices may
 * name no revision that has an event in store for it. In the end all streams are read to their end, and everybody must have everything. */
#include <stdio.h>

#include "support/scale.h"
#include "world.h"

#include "base/rng.h"

enum { STREAMS = 6, WATCHERS = 400, EVENTS = 16000, STEPS = 1500, PRELUDE = 6000 };

struct event {
	char key[8];
	revision at;
	bool deleted;
	int64_t version;
};

struct expect {
	bool created, cancel_sent, over, lost;
	struct client *client;
	int64_t id;
	struct watch_spec spec;
	char key[8], end[8];
	size_t next; /* in events */
	revision start;
};

static struct world w;
static struct rng rng;
static struct event events[EVENTS];
static size_t events_len;
static struct expect watchers[WATCHERS];
static size_t watchers_len;
static revision last_compaction;
static struct client *streams[STREAMS];
static uint64_t told, lost;
static char value[30000 + 1]; /* long: outputs fill up */

/* ---- the model ---- */

static void collect(revision from)
{
	for (uint64_t n = store_history_begin(w.store, from); n < store_history_end(w.store); n++) {
		const struct kv *kv = store_history_at(w.store, n).kv;
		struct event *e = &events[events_len++];

		EXPECT(events_len < EVENTS && kv->key_len < sizeof e->key);
		memset(e, 0, sizeof *e);
		memcpy(e->key, kv->bytes, kv->key_len);
		e->at = kv->mod_revision;
		e->deleted = kv_is_tombstone(kv);
		e->version = kv->version;
	}
}

static bool wants(const struct expect *x, const struct event *e)
{
	if (e->at < x->start || (e->deleted ? x->spec.no_delete : x->spec.no_put))
		return false;
	if (!x->spec.end)
		return strcmp(e->key, x->key) == 0;
	return strcmp(e->key, x->key) >= 0 && (strcmp(x->spec.end, "0") == 0 || strcmp(e->key, x->end) < 0);
}

static struct event *next_event(struct expect *x)
{
	while (x->next < events_len && !wants(x, &events[x->next]))
		x->next++;
	return x->next < events_len ? &events[x->next] : NULL;
}

static struct expect *find(struct client *c, int64_t id)
{
	for (size_t i = watchers_len; i-- > 0;)
		if (watchers[i].client == c && watchers[i].id == id)
			return &watchers[i];
	return NULL;
}

/* ---- what came ---- */

static void saw_event(struct expect *x, const Mvccpb__Event *e)
{
	struct event *want = next_event(x);
	bool deleted = e->type == MVCCPB__EVENT__EVENT_TYPE__DELETE;

	EXPECT(want);
	EXPECT(want->at == e->kv->mod_revision);
	EXPECT(strlen(want->key) == e->kv->key.len && memcmp(want->key, e->kv->key.data, e->kv->key.len) == 0);
	EXPECT(want->deleted == deleted);
	EXPECT(deleted || want->version == e->kv->version);
	EXPECT(x->spec.prev_kv || !e->prev_kv);
	if (e->prev_kv)
		EXPECT(e->prev_kv->mod_revision < e->kv->mod_revision && (deleted || e->prev_kv->version + 1 == e->kv->version));
	else if (x->spec.prev_kv && !deleted && e->kv->version > 1)
		EXPECT(e->kv->mod_revision <= last_compaction); /* only there it may be missing */
	x->next++;
	told++;
}

static void saw_progress(struct client *c, int64_t id, revision at)
{
	for (size_t i = 0; i < watchers_len; i++) {
		struct expect *x = &watchers[i];
		struct event *e;

		if (x->client != c || x->over || !x->created || (id != -1 && x->id != id))
			continue;
		e = next_event(x);
		EXPECT(!e || e->at > at);
	}
}

static void saw_events(struct expect *x, const Etcdserverpb__WatchResponse *r)
{
	revision last = r->events[r->n_events - 1]->kv->mod_revision;
	struct event *after;

	EXPECT(!r->fragment);
	for (size_t i = 0; i < r->n_events; i++)
		saw_event(x, r->events[i]);
	EXPECT(r->header->revision >= last);
	after = next_event(x);
	EXPECT(!after || after->at > r->header->revision);
}

static void saw(struct client *c, const Etcdserverpb__WatchResponse *r)
{
	struct expect *x = find(c, r->watch_id);

	if (r->n_events == 0 && !r->created && !r->canceled) {
		saw_progress(c, r->watch_id, r->header->revision);
		return;
	}
	EXPECT(!(r->created && r->canceled));
	EXPECT(x);
	EXPECT(!x->over || (x->lost && r->canceled && r->compact_revision == 0)); /* its cancel may have crossed */
	if (r->created) {
		EXPECT(!x->created);
		x->created = true;
	} else if (r->canceled && r->compact_revision) {
		EXPECT(x->created);
		EXPECT(r->compact_revision <= last_compaction);
		/* It needed something below: what comes next for it, or may have. */
		EXPECT(x->start < r->compact_revision);
		x->over = x->lost = true;
		lost++;
	} else if (r->canceled) {
		EXPECT(x->cancel_sent);
		x->over = true;
	} else {
		EXPECT(x->created);
		saw_events(x, r);
	}
}

static void read_all(struct client *c)
{
	for (size_t at = 0; at < c->in.len;) {
		const uint8_t *p = c->in.ptr + at;
		size_t len = (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
		Etcdserverpb__WatchResponse *r = etcdserverpb__watch_response__unpack(NULL, len, p + 4);

		EXPECT(r);
		saw(c, r);
		etcdserverpb__watch_response__free_unpacked(r, NULL);
		at += 4 + len;
	}
	buf_clear(&c->in);
}

/* ---- what is done ---- */

static const char *random_key(char to[8])
{
	snprintf(to, 8, "%c%c", 'a' + (char)rng_below(&rng, 4), 'a' + (char)rng_below(&rng, 3));
	return to;
}

static void change(void)
{
	char key[8], other[8];
	revision before = w.st.revision;

	switch (rng_below(&rng, 6)) {
	case 0:
		world_delete(&w, random_key(key), "");
		break;
	case 1:
		world_delete(&w, random_key(key), random_key(other));
		break;
	case 2:
		random_key(key);
		random_key(other);
		if (strcmp(key, other) != 0)
			world_put_two(&w, key, other);
		break;
	default:
		world_put(&w, random_key(key), value);
		break;
	}
	if (w.st.revision > before)
		collect(before + 1);
}

static void create(void)
{
	struct expect *x = &watchers[watchers_len];
	struct client *c = streams[rng_below(&rng, STREAMS)];

	if (watchers_len == WATCHERS)
		return;
	memset(x, 0, sizeof *x);
	random_key(x->key);
	random_key(x->end);
	x->client = c;
	x->id = 1000 + (int64_t)watchers_len;
	x->spec = (struct watch_spec){
		.key = x->key,
		.id = x->id,
		.prev_kv = rng_below(&rng, 2),
		.progress = rng_below(&rng, 3) == 0,
		.no_put = rng_below(&rng, 8) == 0,
		.no_delete = rng_below(&rng, 8) == 0,
	};
	if (rng_below(&rng, 3) == 0)
		x->spec.end = "0";
	else if (rng_below(&rng, 2) && strcmp(x->key, x->end) < 0)
		x->spec.end = x->end;
	x->start = w.st.revision + 1;
	if (rng_below(&rng, 2)) {
		x->start = (revision)rng_between(&rng, 1, (uint64_t)w.st.revision + 20);
		x->spec.from = x->start;
	}
	watchers_len++;
	client_create(c, x->spec);
}

static void cancel(void)
{
	struct expect *x = watchers_len ? &watchers[rng_below(&rng, watchers_len)] : NULL;

	if (!x || x->over || x->cancel_sent)
		return;
	x->cancel_sent = true;
	client_cancel(x->client, x->id);
}

static void compact(void)
{
	revision at = w.st.revision - (revision)rng_below(&rng, 40);

	if (at <= w.st.compact_revision || at < 2)
		return;
	world_compact(&w, at);
	last_compaction = at;
}

static revision install_before;

static void install_changes(struct world *o)
{
	char key[8];

	install_before = o->st.revision;
	for (uint64_t n = rng_below(&rng, 12); n > 0; n--)
		world_put(o, random_key(key), "i");
}

/* Another replica's state, which is ahead and may be compacted further. */
static void install(void)
{
	world_install(&w, 0, install_changes);
	collect(install_before + 1);
	if (rng_below(&rng, 3) == 0 && w.st.revision > w.st.compact_revision) {
		last_compaction = (revision)rng_between(&rng, (uint64_t)w.st.compact_revision + 1, (uint64_t)w.st.revision);
		world_install(&w, last_compaction, NULL);
	}
}

static void step(void)
{
	struct client *c = streams[rng_below(&rng, STREAMS)];
	uint64_t what = rng_below(&rng, 100);

	if (what < 50)
		change();
	else if (what < 62)
		create();
	else if (what < 66)
		cancel();
	else if (what < 68)
		compact();
	else if (what < 69)
		install();
	else if (what < 72)
		client_progress(c);
	else if (what < 76)
		c->stalled = !c->stalled;
	else if (what < 77)
		w.now += 60000;
	else if (what < 88)
		world_run(&w);
	else
		world_take(&w);
	for (size_t i = 0; i < STREAMS; i++)
		if (!streams[i]->stalled || rng_below(&rng, 4) == 0)
			read_all(streams[i]);
	watches_check(w.watches);
}

static void finish(void)
{
	for (size_t i = 0; i < STREAMS; i++)
		streams[i]->stalled = false;
	world_run(&w);
	for (size_t i = 0; i < STREAMS; i++) {
		EXPECT(!streams[i]->finished);
		read_all(streams[i]);
	}
	for (size_t i = 0; i < watchers_len; i++) {
		struct expect *x = &watchers[i];

		EXPECT(x->created);
		if (!x->over)
			EXPECT(!next_event(x));
		EXPECT(!x->cancel_sent || x->over);
	}
}

START_TEST(model__everybody_gets_everything_once_and_in_order)
{
	struct watch_stats stats;

	rng_init(&rng, (uint64_t)_i + 1);
	events_len = watchers_len = 0;
	last_compaction = 0;
	told = lost = 0;
	memset(value, 0, sizeof value);
	memset(value, 'v', _i % 3 == 1 ? sizeof value - 1 : 1);
	world_init(&w);
	for (size_t i = 0; i < STREAMS; i++)
		streams[i] = world_watch(&w);
	for (int i = 0; i < (_i % 3 == 2 ? PRELUDE : 0); i++) /* then a pass does not reach the head */
		change();
	for (int i = 0; i < STEPS; i++)
		step();
	finish();
	watches_stats(w.watches, &stats);
	EXPECT(stats.behind == 0);
	EXPECT(stats.events == told);
	EXPECT(stats.lost == lost);
	EXPECT(told > 100);
	for (size_t i = 0; i < STREAMS; i++)
		client_close(streams[i]);
	world_run(&w);
	watches_stats(w.watches, &stats);
	EXPECT(stats.watchers == 0 && stats.streams == 0 && stats.ranges == 0);
	world_deinit(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_watch_model");
	TCase *tc = tcase_create("model");
	SRunner *r;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, model__everybody_gets_everything_once_and_in_order, 0, (int)test_scaled(60));
	suite_add_tcase(s, tc);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
