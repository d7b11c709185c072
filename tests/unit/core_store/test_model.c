/* test_model.c: the store against a model that is too simple to be wrong.
 *
 * The model remembers every change ever made, and a whole copy of what lived at every revision; it forgets nothing, and what the store may
 * have forgotten is worked out from its contract. A second store is fed the same log but reads nothing, opens no views and is never
 * rebuilt: in the end both must be equal to the byte. The seed is the loop number. */
#include "core/store/store.h"

#include <check.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "world.h"

enum { KEYS = 24, STEPS = 1500, VIEWS = 3, OPS_MAX = 8 };

/* In order; with bytes that sort badly when signed, a zero byte, and names that are another's prefix. */
static const struct slice keys[KEYS] = {
#define K(s) { (const uint8_t *)(s), sizeof(s) - 1 }
	K("\0"), K("\0\0"), K("a"), K("a\0"), K("a\0a"), K("a/1"), K("a/10"), K("a/2"), K("aa"), K("ab"), K("b"), K("ba"),
	K("bb"), K("bbb"), K("bbbb"), K("c"), K("d"), K("e"), K("f"), K("\x7f"), K("\x80"), K("\xfe"), K("\xff"), K("\xff\xff"),
#undef K
};

struct change {
	int key;
	uint32_t sub, value; /* the value is that many bytes, made from it */
	revision create, mod;
	int64_t version; /* 0: a tombstone */
	lease_id lease;
	size_t prev;     /* the change before it of this key, 1-based; 0: none */
};

struct model {
	struct change *changes; /* 1-based; 0 is unused */
	size_t len, cap;
	size_t now[KEYS];       /* newest change of each key, 0: none */
	size_t (*at)[KEYS];     /* the same by revision */
	size_t at_cap;
	revision revision, compacted;
	uint32_t sub;
};

struct sim {
	struct rng rng;
	struct model m;
	struct world w, twin;
	struct view {
		struct tree tree;
		struct buf bytes;
		bool open;
	} views[VIEWS];
	size_t heard; /* changes that the listener was told of */
};

static struct slice value_of(uint32_t value)
{
	static uint8_t bytes[4096];
	size_t len = value % 61 == 0 ? value % 4000 : value % 40;

	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(value + i);
	return slice_of(bytes, len);
}

/* ---- the model ---- */

static void model_change(struct model *m, struct change c)
{
	if (m->len + 1 >= m->cap) {
		m->cap = m->cap ? m->cap * 2 : 256;
		m->changes = mem_realloc(m->changes, m->cap * sizeof *m->changes);
	}
	c.mod = m->revision + 1;
	c.sub = m->sub++;
	c.prev = m->now[c.key];
	m->changes[++m->len] = c;
	m->now[c.key] = m->len;
}

static void model_end(struct model *m)
{
	m->revision += m->sub > 0;
	m->sub = 0;
	if ((size_t)m->revision >= m->at_cap) {
		m->at_cap = m->at_cap ? m->at_cap * 2 : 256;
		m->at = mem_realloc(m->at, m->at_cap * sizeof *m->at);
	}
	memcpy(m->at[m->revision], m->now, sizeof m->now);
}

static const struct change *model_live(const struct model *m, int key, revision at)
{
	size_t n = at <= 0 || at > m->revision ? m->now[key] : m->at[at][key];

	return n && m->changes[n].version > 0 ? &m->changes[n] : NULL;
}

/* The contract of compaction, from the key's changes alone. */
static bool model_keeps(const struct model *m, size_t n)
{
	const struct change *c = &m->changes[n];

	return c->mod >= m->compacted || (c->version > 0 && m->at[m->compacted][c->key] == n);
}

static void model_put(struct model *m, int key, uint32_t value, lease_id lease)
{
	const struct change *prev = model_live(m, key, 0);

	model_change(m, (struct change){
		.key = key,
		.value = value,
		.lease = lease,
		.create = prev ? prev->create : m->revision + 1,
		.version = prev ? prev->version + 1 : 1,
	});
}

/* ---- equal? ---- */

static void ck_assert_kv(const struct change *c, const struct kv *kv)
{
	EXPECT(slice_eq(kv_key(kv), keys[c->key]));
	EXPECT(kv->mod_revision == c->mod);
	EXPECT(kv->sub == c->sub);
	EXPECT(kv->create_revision == c->create);
	EXPECT(kv->version == c->version);
	EXPECT(kv->lease == c->lease);
	EXPECT(slice_eq(kv_value(kv), c->version ? value_of(c->value) : slice_of("", 0)));
}

struct walk {
	const struct model *m;
	revision at;
	int key; /* next to come */
	uint64_t seen;
};

static bool walked(void *ctx, const struct kv *kv)
{
	struct walk *walk = ctx;

	while (walk->key < KEYS && !model_live(walk->m, walk->key, walk->at))
		walk->key++;
	EXPECT(walk->key < KEYS);
	ck_assert_kv(model_live(walk->m, walk->key, walk->at), kv);
	walk->key++;
	walk->seen++;
	return true;
}

/* A range of keys [lo, hi), hi KEYS: to the end. */
static struct store_range range_of(int lo, int hi, revision at)
{
	return (struct store_range){ .key = keys[lo], .end = hi == KEYS ? slice_of("", 1) : keys[hi], .at = at };
}

/* keys[0] as an end means "no end", so hi is never 0 here. */
static void check_range(const struct sim *s, int lo, int hi, revision at)
{
	struct walk walk = { .m = &s->m, .at = at, .key = lo };
	uint64_t want = 0;

	for (int k = lo; k < hi; k++)
		want += model_live(&s->m, k, at) != NULL;
	store_walk(s->w.store, range_of(lo, hi, at), walked, &walk);
	EXPECT(walk.seen == want);
	EXPECT(store_count(s->w.store, range_of(lo, hi, at)) == want);
}

static void check_get(const struct sim *s, int key, revision at)
{
	const struct kv *kv = store_get(s->w.store, keys[key], at);
	const struct change *c = model_live(&s->m, key, at);
	struct store_range one = { .key = keys[key], .at = at };

	EXPECT((kv != NULL) == (c != NULL));
	if (kv)
		ck_assert_kv(c, kv);
	EXPECT(store_count(s->w.store, one) == (c != NULL));
}

static void check_all_revisions(const struct sim *s)
{
	revision first = s->m.compacted > 0 ? s->m.compacted : 1;

	for (revision at = first; at <= s->m.revision; at++) {
		EXPECT(store_check_revision(s->w.store, at) == ERR_OK);
		check_range(s, 0, KEYS, at);
	}
	if (first > 1)
		EXPECT(store_check_revision(s->w.store, first - 1) == ERR_COMPACTED);
	EXPECT(store_check_revision(s->w.store, s->m.revision + 1) == ERR_FUTURE_REVISION);
}

static void check_history(const struct sim *s)
{
	uint64_t number = store_history_begin(s->w.store, 0);
	revision before = -1;

	for (size_t n = 1; n <= s->m.len; n++) {
		const struct change *c = &s->m.changes[n];
		struct store_event e;
		bool has_prev;

		if (c->mod < s->m.compacted)
			continue;
		if (c->mod != before)
			EXPECT(store_history_begin(s->w.store, c->mod) == number);
		before = c->mod;
		e = store_history_at(s->w.store, number++);
		ck_assert_kv(c, e.kv);
		has_prev = c->prev && s->m.changes[c->prev].version > 0 && model_keeps(&s->m, c->prev);
		EXPECT((e.prev != NULL) == has_prev);
		if (has_prev)
			ck_assert_kv(&s->m.changes[c->prev], e.prev);
	}
	EXPECT(number == store_history_end(s->w.store));
}

static void check_kept(const struct sim *s)
{
	uint32_t at[KEYS] = { 0 };
	uint64_t records = 0;

	for (size_t n = 1; n <= s->m.len; n++) {
		const struct key_record *r;
		int key = s->m.changes[n].key;

		if (!model_keeps(&s->m, n))
			continue;
		r = (const void *)tree_get(&s->w.st.keys, keys[key]);
		EXPECT(r != NULL);
		EXPECT(at[key] < r->len);
		ck_assert_kv(&s->m.changes[n], r->cap ? r->versions[at[key]] : r->one);
		records += at[key]++ == 0;
		if (s->m.now[key] == n)
			EXPECT(at[key] == r->len);
	}
	EXPECT(records == s->w.st.keys.len);
}

static void check_unchanged(const struct sim *s, int key, revision from)
{
	size_t newest = s->m.now[key];
	bool unchanged = newest == 0 || s->m.changes[newest].mod < from;
	bool known = (newest && model_keeps(&s->m, newest)) || from >= s->m.compacted;

	EXPECT(store_key_unchanged_since(s->w.store, keys[key], from) == (unchanged && known));
}

static void check_copy(struct sim *s)
{
	struct world copy;

	world_copy(&s->w, &copy);
	ck_assert_same_state(&s->w, &copy);
	world_deinit(&copy);
}

/* ---- what happens ---- */

static void on_change(void *ctx, const struct kv *prev, const struct kv *next)
{
	struct sim *s = ctx;
	const struct change *c = &s->m.changes[++s->heard];

	EXPECT(s->heard <= s->m.len);
	ck_assert_kv(c, next);
	EXPECT((prev != NULL) == (c->prev && s->m.changes[c->prev].version > 0));
	if (prev)
		ck_assert_kv(&s->m.changes[c->prev], prev);
}

static int any_key(struct sim *s)
{
	/* Some keys are written far more often than others. */
	return (int)(rng_chance(&s->rng, 400000) ? rng_below(&s->rng, 3) * 5 : rng_below(&s->rng, KEYS));
}

static void do_put(struct sim *s)
{
	int key = any_key(s);
	uint32_t value = (uint32_t)rng_below(&s->rng, 100000);
	lease_id lease = rng_chance(&s->rng, 300000) ? (lease_id)rng_next(&s->rng) : 0;
	const struct change *prev = model_live(&s->m, key, 0);
	const struct kv *kv;

	EXPECT((prev != NULL) == (store_get(s->w.store, keys[key], 0) != NULL));
	size_t prev_number = prev ? s->m.now[key] : 0;
	model_put(&s->m, key, value, lease);
	store_put(s->w.store, keys[key], value_of(value), lease, &kv);
	EXPECT((kv != NULL) == (prev_number != 0));
	if (kv)
		ck_assert_kv(&s->m.changes[prev_number], kv);
	store_put(s->twin.store, keys[key], value_of(value), lease, NULL);
}

struct deletion {
	const struct sim *s;
	size_t next; /* the change whose prev is told next */
};

static void deleted(void *ctx, const struct kv *prev)
{
	struct deletion *d = ctx;

	EXPECT(d->next <= d->s->m.len);
	ck_assert_kv(&d->s->m.changes[d->s->m.changes[d->next++].prev], prev);
}

static void do_delete(struct sim *s)
{
	bool one = rng_chance(&s->rng, 700000);
	int lo = any_key(s), hi = one ? lo + 1 : (int)rng_between(&s->rng, (uint64_t)lo + 1, KEYS);
	struct deletion d = { .s = s, .next = s->m.len + 1 };
	struct slice end = one ? slice_of("", 0) : range_of(lo, hi, 0).end;
	uint64_t want;

	for (int k = lo; k < hi; k++)
		if (model_live(&s->m, k, 0))
			model_change(&s->m, (struct change){ .key = k });
	want = s->m.len + 1 - d.next;
	EXPECT(store_delete_range(s->w.store, keys[lo], end, deleted, &d) == want);
	EXPECT(d.next == s->m.len + 1);
	EXPECT(store_delete_range(s->twin.store, keys[lo], end, NULL, NULL) == want);
}

static void do_txn(struct sim *s)
{
	uint64_t ops = rng_chance(&s->rng, 500000) ? 1 : rng_between(&s->rng, 0, OPS_MAX);
	bool changed;

	store_txn_begin(s->w.store);
	store_txn_begin(s->twin.store);
	while (ops-- > 0) {
		if (rng_chance(&s->rng, 650000))
			do_put(s);
		else
			do_delete(s);
		EXPECT(store_txn_revision(s->w.store) == s->m.revision + (s->m.sub > 0));
		check_get(s, any_key(s), 0);
		check_get(s, any_key(s), s->m.revision);
		check_range(s, any_key(s), KEYS, rng_chance(&s->rng, 500000) ? 0 : store_txn_revision(s->w.store));
	}
	changed = s->m.sub > 0;
	model_end(&s->m);
	EXPECT(store_txn_end(s->w.store) == changed);
	EXPECT(store_txn_end(s->twin.store) == changed);
	EXPECT(s->w.st.revision == s->m.revision);
}

static void do_compact(struct sim *s)
{
	revision lo = s->m.compacted, at = (revision)rng_between(&s->rng, (uint64_t)lo, (uint64_t)s->m.revision + 1);
	enum err want = at == 0 ? ERR_OK : at <= lo && lo != 0 ? ERR_COMPACTED : at > s->m.revision ? ERR_FUTURE_REVISION : ERR_OK;

	if (rng_chance(&s->rng, 200000))
		at = lo + 1, want = at > s->m.revision ? ERR_FUTURE_REVISION : ERR_OK;
	EXPECT(store_compact(s->w.store, at) == want);
	EXPECT(store_compact(s->twin.store, at) == want);
	if (want == ERR_OK)
		s->m.compacted = at;
	EXPECT(s->w.st.compact_revision == s->m.compacted);
}

static void view_close(struct view *v)
{
	struct buf now;

	if (!v->open)
		return;
	now = tree_encode(&v->tree);
	EXPECT(slice_eq(buf_view(&now), buf_view(&v->bytes)));
	tree_check(&v->tree);
	tree_deinit(&v->tree);
	buf_free(&now);
	buf_free(&v->bytes);
	v->open = false;
}

static void do_view(struct sim *s)
{
	struct view *v = &s->views[rng_below(&s->rng, VIEWS)];

	if (v->open) {
		view_close(v);
		return;
	}
	v->tree = tree_view(&s->w.st.keys);
	v->bytes = tree_encode(&v->tree);
	v->open = true;
}

static void check_some(struct sim *s)
{
	int lo = any_key(s);
	revision first = s->m.compacted > 0 ? s->m.compacted : 1;
	revision at = (revision)rng_between(&s->rng, (uint64_t)first, (uint64_t)s->m.revision);

	check_range(s, lo, (int)rng_between(&s->rng, (uint64_t)(lo ? lo : 1), KEYS), at);
	check_range(s, lo, KEYS, 0);
	check_get(s, any_key(s), at);
	check_unchanged(s, any_key(s), (revision)rng_below(&s->rng, (uint64_t)s->m.revision + 2));
}

static void check_everything(struct sim *s)
{
	store_check(s->w.store);
	check_all_revisions(s);
	check_history(s);
	check_kept(s);
	for (int k = 0; k < KEYS; k++)
		for (revision from = 0; from <= s->m.revision + 1; from += 1 + from / 16)
			check_unchanged(s, k, from);
}

static void sim_init(struct sim *s, uint64_t seed)
{
	*s = (struct sim){ .heard = 0 };
	rng_init(&s->rng, seed);
	world_init(&s->w);
	world_init(&s->twin);
	store_on_change(s->w.store, on_change, s);
	model_end(&s->m);
	s->m.revision = 1;
	model_end(&s->m);
}

static void sim_deinit(struct sim *s)
{
	for (int i = 0; i < VIEWS; i++)
		view_close(&s->views[i]);
	world_deinit(&s->w);
	world_deinit(&s->twin);
	free(s->m.changes);
	free(s->m.at);
}

static void sim_step(struct sim *s)
{
	uint64_t dice = rng_below(&s->rng, 1000);

	if (dice < 900)
		do_txn(s);
	else if (dice < 930)
		do_compact(s);
	else if (dice < 980)
		do_view(s);
	else if (dice < 990)
		world_reload(&s->w);
	else
		check_copy(s);
	EXPECT(s->heard == s->m.len);
	check_some(s);
}

START_TEST(model__the_store_does_what_the_model_does)
{
	struct sim s;

	sim_init(&s, (uint64_t)_i + 1);
	for (int step = 0; step < STEPS; step++) {
		sim_step(&s);
		if (step % 100 == 99)
			check_everything(&s);
	}
	ck_assert_same_state(&s.w, &s.twin);
	EXPECT((store_compact(s.w.store, s.m.revision) == ERR_OK) == (s.m.compacted < s.m.revision));
	s.m.compacted = s.m.revision;
	check_everything(&s);
	sim_deinit(&s);
}
END_TEST

/* History is never compacted: every revision ever is still there at the end. */
START_TEST(model__nothing_is_forgotten_before_compaction)
{
	struct sim s;

	sim_init(&s, (uint64_t)_i + 100);
	for (int step = 0; step < STEPS; step++)
		do_txn(&s);
	check_everything(&s);
	check_copy(&s);
	sim_deinit(&s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("core_store_model");
	TCase *tc = tcase_create("model");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, model__the_store_does_what_the_model_does, 0, 40);
	tcase_add_loop_test(tc, model__nothing_is_forgotten_before_compaction, 0, 4);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
