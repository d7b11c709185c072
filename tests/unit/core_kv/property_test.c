/* Random requests, whole and damaged, to two states that were built alike:
 *   - both answer the same, byte for byte, and stay equal by hash (P10), though they differ in whether anybody asks for the reply, in
 *     their options, in the time, and in having derived everything anew in between;
 *   - what fails changes nothing (S4 of store.h);
 *   - what answers, answers what protobuf-c would have packed (world_do).
 * A loop test: the number of the round is the seed. */
#include <check.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "etcd/v3election.pb-c.h"
#include "etcd/v3lock.pb-c.h"
#include "holdfast/internal.pb-c.h"
#include "world.h"

enum { ROUNDS = 8, STEPS = 2500 };

struct gen {
	struct rng rng;
	struct buf line;
	const struct world *w;
};

static uint64_t below(struct gen *g, uint64_t n)
{
	return rng_below(&g->rng, n);
}

#define PICK(g, ...) pick(g, (const char *const[]){ __VA_ARGS__, NULL })

static const char *pick(struct gen *g, const char *const *names)
{
	size_t n = 0;

	while (names[n])
		n++;
	return names[below(g, n)];
}

static const char *key(struct gen *g)
{
	return PICK(g, "a", "b", "c", "a/b", "m/10", "m/11", "m/16", "n/10", "n/1", "n/2", "_", "*", "b*");
}

static const char *end(struct gen *g)
{
	return below(g, 3) ? PICK(g, "", "", "*", "b", "m0", "z", "a") : key(g);
}

static long long some_revision(struct gen *g)
{
	return (long long)below(g, (uint64_t)g->w->st.revision + 2) - 1;
}

static void say_get(struct gen *g)
{
	buf_printf(&g->line, "get %s %s", key(g), end(g));
	if (below(g, 3) == 0)
		buf_printf(&g->line, " limit=%d", (int)below(g, 4));
	if (below(g, 4) == 0)
		buf_printf(&g->line, " rev=%lld", some_revision(g));
	if (below(g, 4) == 0)
		buf_printf(&g->line, " by=%s order=%d", PICK(g, "key", "version", "create", "mod", "value"), (int)below(g, 4));
	if (below(g, 5) == 0)
		buf_printf(&g->line, " %s=%lld", PICK(g, "minmod", "maxmod", "mincreate", "maxcreate"), some_revision(g));
	if (below(g, 5) == 0)
		buf_printf(&g->line, " %s", PICK(g, "keys", "count", "serial"));
}

static void say_put(struct gen *g)
{
	buf_printf(&g->line, "put %s %s", key(g), PICK(g, "-", "1", "22", "*"));
	if (below(g, 3))
		buf_printf(&g->line, " lease=%d", (int)(below(g, 4) ? 16 + below(g, 2) : 1 + below(g, 3)));
	if (below(g, 4) == 0)
		buf_printf(&g->line, " %s", PICK(g, "prev", "keep_value", "keep_lease"));
}

static void say_del(struct gen *g)
{
	buf_printf(&g->line, "del %s %s %s", key(g), end(g), PICK(g, "", "prev"));
}

static void say_txn(struct gen *g, unsigned depth);

static void say_ops(struct gen *g, unsigned depth)
{
	uint64_t n = below(g, 4);

	buf_printf(&g->line, " { ");
	for (uint64_t i = 0; i < n; i++) {
		uint64_t what = below(g, 10);

		if (what < 2)
			say_get(g);
		else if (what < 6)
			say_put(g);
		else if (what < 8)
			say_del(g);
		else if (what == 8 && depth < 3)
			say_txn(g, depth + 1);
		else
			buf_printf(&g->line, "%s", below(g, 30) ? "get a" : "none");
		buf_printf(&g->line, " ; ");
	}
	buf_printf(&g->line, " } ");
}

static void say_txn(struct gen *g, unsigned depth)
{
	buf_printf(&g->line, "txn { ");
	for (uint64_t n = below(g, 3); n > 0; n--) {
		bool ranged = below(g, 4) == 0;

		buf_printf(&g->line, "%s%s%s.%s%s%lld ", key(g), ranged ? ".." : "", ranged ? "z" : "",
			   PICK(g, "version", "create", "mod", "value", "lease", "8"), PICK(g, "=", "!", "<", ">"), some_revision(g));
	}
	buf_printf(&g->line, "}");
	say_ops(g, depth);
	say_ops(g, depth);
}

static int some_lease(struct gen *g)
{
	return below(g, 3) ? 16 + (int)below(g, 2) : 1 + (int)below(g, 3);
}

static void say_lock(struct gen *g)
{
	buf_printf(&g->line, "lock %s lease=%d", PICK(g, "m", "n", "m", "-"), some_lease(g));
	if (below(g, 3) == 0)
		buf_printf(&g->line, " mode=shared");
	if (below(g, 3) == 0)
		buf_printf(&g->line, " wait=%d", (int)below(g, 2));
	if (below(g, 4) == 0)
		buf_printf(&g->line, " grant=%d", (int)below(g, 20));
	if (below(g, 2))
		buf_printf(&g->line, " call=%d", (int)below(g, 3));
	if (below(g, 3) == 0)
		buf_printf(&g->line, " value=v%d", (int)below(g, 3));
}

static void say_request(struct gen *g)
{
	uint64_t what = below(g, 100);

	if (what < 10)
		say_get(g);
	else if (what < 25)
		say_put(g);
	else if (what < 32)
		say_del(g);
	else if (what < 62)
		say_txn(g, 0);
	else if (what < 64)
		buf_printf(&g->line, "compact %lld", some_revision(g));
	else if (what < 69)
		buf_printf(&g->line, "grant %d %d", some_lease(g), (int)below(g, 100));
	else if (what < 71)
		buf_printf(&g->line, "revoke %d", some_lease(g));
	else if (what < 73)
		buf_printf(&g->line, "end %d %d %d", 2 + (int)below(g, 2), some_lease(g), some_lease(g));
	else if (what < 84)
		say_lock(g);
	else if (what < 88)
		buf_printf(&g->line, "unlock %s %lld", key(g), some_revision(g));
	else if (what < 92)
		buf_printf(&g->line, "abandon %s call=%d revoke=%d %s", key(g), (int)below(g, 3), some_lease(g), PICK(g, "", "waiting"));
	else if (what < 95)
		buf_printf(&g->line, "proclaim %s %lld v lease=%d", key(g), some_revision(g), below(g, 2) ? some_lease(g) : 0);
	else if (what < 98)
		buf_printf(&g->line, "resign %s %lld", key(g), some_revision(g));
	else
		buf_printf(&g->line, "leader %s", PICK(g, "m", "n", "o"));
	buf_append_byte(&g->line, 0);
}

/* ---- applying ---- */

static enum err apply(struct world *w, const ProtobufCMessageDescriptor *desc, struct slice request, struct buf *reply)
{
	struct kv_lock_result r = { 0 };
	enum err e;

	arena_clear(&w->scratch);
	if (desc == &etcdserverpb__range_request__descriptor)
		return kv_range(&w->env, request, reply);
	if (desc == &etcdserverpb__put_request__descriptor)
		return kv_put(&w->env, request, reply);
	if (desc == &etcdserverpb__delete_range_request__descriptor)
		return kv_delete_range(&w->env, request, reply);
	if (desc == &etcdserverpb__txn_request__descriptor)
		return kv_txn(&w->env, request, reply);
	if (desc == &etcdserverpb__compaction_request__descriptor)
		return kv_compact(&w->env, request, reply);
	if (desc == &etcdserverpb__lease_grant_request__descriptor)
		return kv_lease_grant(&w->env, request, reply);
	if (desc == &etcdserverpb__lease_revoke_request__descriptor)
		return kv_lease_revoke(&w->env, request, reply);
	if (desc == &holdfast__internal__lease_end__descriptor)
		return kv_lease_end(&w->env, request, 3);
	if (desc == &v3lockpb__unlock_request__descriptor)
		return kv_unlock(&w->env, request, reply);
	if (desc == &holdfast__internal__abandon_command__descriptor)
		return kv_abandon(&w->env, request);
	if (desc == &v3electionpb__proclaim_request__descriptor)
		return kv_proclaim(&w->env, request, reply);
	if (desc == &v3electionpb__resign_request__descriptor)
		return kv_resign(&w->env, request, reply);
	if (desc == &v3electionpb__leader_request__descriptor) {
		struct buf unwanted = { 0 };

		e = kv_leader(&w->env, request, reply ? reply : &unwanted);
		buf_free(&unwanted);
		return e;
	}
	ck_assert_ptr_eq(desc, &holdfast__internal__lock_command__descriptor);
	e = kv_lock(&w->env, request, reply ? &r : NULL);
	if (!e && reply) {
		kv_lock_reply(&w->env, &r, reply);
		buf_append_byte(reply, (uint8_t)r.outcome);
		buf_free(&r.key);
	}
	return e;
}

/* Cuts, flips, inserts: bytes that no client of ours would send. */
static struct slice damage(struct gen *g, struct slice s, struct buf *out)
{
	buf_clear(out);
	buf_append_slice(out, s);
	for (uint64_t n = 1 + below(g, 3); n > 0; n--) {
		size_t at = out->len ? (size_t)below(g, out->len) : 0;

		switch (below(g, 4)) {
		case 0:
			out->len = at;
			break;
		case 1:
			buf_append_byte(out, (uint8_t)below(g, 256));
			break;
		default:
			if (out->len)
				out->ptr[at] = (uint8_t)(out->ptr[at] ^ (below(g, 2) ? below(g, 256) : UINT64_C(1) << below(g, 8)));
		}
	}
	return buf_view(out);
}

static void step(struct gen *g, struct world *a, struct world *b)
{
	uint64_t before = state_hash(&a->st);
	const ProtobufCMessageDescriptor *desc;
	struct buf left = { 0 }, right = { 0 }, damaged = { 0 };
	bool asked = below(g, 4) != 0;
	struct slice request;
	enum err e;

	buf_clear(&g->line);
	say_request(g);
	request = world_request(a, (const char *)g->line.ptr, &desc);
	if (below(g, 5) == 0)
		request = damage(g, request, &damaged);
	if (below(g, 20) == 0) {
		const char *other = PICK(g, "put a 1", "txn { } { } { }", "lock m", "unlock a", "abandon m", "end 3", "resign", "get a");
		struct slice kept = slice_of(request.ptr, request.len);

		buf_clear(&a->text);
		buf_append_slice(&a->text, kept);
		world_request(a, other, &desc); /* another message's bytes */
		request = buf_view(&a->text);
	}
	b->env.now += below(g, 1000);
	e = apply(a, desc, request, &left);
	ck_assert_msg(apply(b, desc, request, asked ? &right : NULL) == e, "%s", (const char *)g->line.ptr);
	if (asked)
		ck_assert_msg(slice_eq(buf_view(&left), buf_view(&right)), "%s", (const char *)g->line.ptr);
	ck_assert_msg(state_hash(&a->st) == state_hash(&b->st), "%s", (const char *)g->line.ptr);
	if (e) {
		ck_assert_uint_eq(left.len, 0);
		ck_assert_msg(e == ERR_LOCK_HELD || state_hash(&a->st) == before, "%s", (const char *)g->line.ptr);
	}
	buf_free(&left);
	buf_free(&right);
	buf_free(&damaged);
}

START_TEST(requests__the_same_on_equal_states)
{
	struct gen g = { 0 };
	struct world a, b;

	rng_init(&g.rng, (uint64_t)_i + 1);
	world_init(&a);
	world_init(&b);
	b.env.max_txn_ops = 1;
	lessor_promote(b.env.lessor, 5);
	g.w = &a;
	for (int i = 0; i < STEPS; i++) {
		step(&g, &a, &b);
		if (i % 16 == 0) {
			world_check(&a);
			world_check(&b);
		}
		if (below(&g, 200) == 0)
			kv_rebuild(&b.env);
		if (below(&g, 10) == 0)
			world_do(&a, "queue m");
	}
	world_deinit(&a);
	world_deinit(&b);
	buf_free(&g.line);
}
END_TEST

/* What say_request makes goes through world_do too, which looks at every reply. */
START_TEST(replies__as_protobuf_packs_them)
{
	struct gen g = { 0 };
	struct world w;

	rng_init(&g.rng, (uint64_t)_i + 1000);
	world_init(&w);
	g.w = &w;
	for (int i = 0; i < STEPS / 2; i++) {
		buf_clear(&g.line);
		say_request(&g);
		world_do(&w, (const char *)g.line.ptr);
	}
	world_deinit(&w);
	buf_free(&g.line);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_kv_property");
	TCase *c = tcase_create("property");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 120);
	tcase_add_loop_test(c, requests__the_same_on_equal_states, 0, ROUNDS);
	tcase_add_loop_test(c, replies__as_protobuf_packs_them, 0, ROUNDS);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
