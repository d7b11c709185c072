/* test_auth.c: users and roles change as etcd's do; records survive their encoding; tokens run out. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "fixture.h"

static struct world w;

static void setup(void)
{
	world_init(&w);
}

static void teardown(void)
{
	world_deinit(&w);
}

#define A slice_of_str("a")
#define NONE slice_of(NULL, 0)
enum { READ = AUTHPB__PERMISSION__TYPE__READ, WRITE = AUTHPB__PERMISSION__TYPE__WRITE, BOTH = AUTHPB__PERMISSION__TYPE__READWRITE };

START_TEST(enable__wants_root_with_its_role)
{
	ck_assert_int_eq(switch_to(&w, true), ERR_ROOT_USER_MISSING);
	ck_assert_int_eq(user_add(&w, "root"), ERR_OK);
	ck_assert_int_eq(switch_to(&w, true), ERR_ROOT_ROLE_MISSING);
	ck_assert_int_eq(grant_role(&w, "root", "root"), ERR_OK);
	ck_assert_int_eq(switch_to(&w, true), ERR_OK);
	ck_assert(auth_is_enabled(w.auth));
	ck_assert_int_eq(user_delete(&w, "root"), ERR_AUTH_INVALID_MANAGEMENT);
	ck_assert_int_eq(revoke_role(&w, "root", "root"), ERR_AUTH_INVALID_MANAGEMENT);
	ck_assert_int_eq(switch_to(&w, false), ERR_OK);
	ck_assert_int_eq(user_delete(&w, "root"), ERR_OK);
}
END_TEST

START_TEST(revision__rises_with_changes_alone)
{
	uint64_t before = auth_revision(w.auth);

	ck_assert_uint_eq(before, 1);
	ck_assert_int_eq(user_add(&w, "u"), ERR_OK);
	ck_assert_int_eq(user_add(&w, "u"), ERR_USER_EXISTS);
	ck_assert_int_eq(user_add(&w, ""), ERR_USER_EMPTY);
	ck_assert_int_eq(role_add(&w, "r"), ERR_OK);
	ck_assert_int_eq(role_add(&w, "r"), ERR_ROLE_EXISTS);
	ck_assert_int_eq(role_add(&w, ""), ERR_ROLE_EMPTY);
	ck_assert_int_eq(grant_role(&w, "u", "r"), ERR_OK);
	ck_assert_uint_eq(auth_revision(w.auth), before + 3);
	ck_assert_int_eq(grant_role(&w, "u", "r"), ERR_OK); /* he has it */
	ck_assert_uint_eq(auth_revision(w.auth), before + 3);
	ck_assert_int_eq(grant_role(&w, "v", "r"), ERR_USER_NOT_FOUND);
	ck_assert_int_eq(grant_role(&w, "u", "s"), ERR_ROLE_NOT_FOUND);
	ck_assert_int_eq(revoke_role(&w, "u", "s"), ERR_ROLE_NOT_GRANTED);
	ck_assert_int_eq(revoke_role(&w, "v", "s"), ERR_USER_NOT_FOUND);
	ck_assert_int_eq(role_delete(&w, "s"), ERR_ROLE_NOT_FOUND);
	ck_assert_int_eq(forbid(&w, "r", A, NONE), ERR_PERMISSION_NOT_GRANTED);
	ck_assert_int_eq(permit(&w, "s", READ, A, NONE), ERR_ROLE_NOT_FOUND);
	ck_assert_uint_eq(auth_revision(w.auth), before + 3);
	ck_assert_int_eq(permit(&w, "r", READ, A, NONE), ERR_OK);
	ck_assert_int_eq(permit(&w, "r", WRITE, A, NONE), ERR_OK); /* replaces it */
	ck_assert_int_eq(forbid(&w, "r", A, NONE), ERR_OK);
	ck_assert_int_eq(role_delete(&w, "r"), ERR_OK);
	ck_assert(!auth_has_role(w.auth, slice_of_str("u"), slice_of_str("r")));
	ck_assert_uint_eq(auth_revision(w.auth), before + 7);
}
END_TEST

START_TEST(permission__must_hold_something)
{
	ck_assert_int_eq(role_add(&w, "r"), ERR_OK);
	ck_assert_int_eq(permit(&w, "r", READ, slice_of_str("b"), slice_of_str("a")), ERR_AUTH_INVALID_MANAGEMENT);
	ck_assert_int_eq(permit(&w, "r", READ, slice_of_str("b"), slice_of_str("b")), ERR_AUTH_INVALID_MANAGEMENT);
	ck_assert_int_eq(permit(&w, "r", READ, NONE, NONE), ERR_AUTH_INVALID_MANAGEMENT);
	ck_assert_int_eq(permit(&w, "r", 3, A, NONE), ERR_AUTH_INVALID_MANAGEMENT);
	ck_assert_int_eq(permit(&w, "r", READ, A, slice_of("", 1)), ERR_OK);
}
END_TEST

START_TEST(names__no_zero_byte)
{
	struct auth_effect effect;
	struct buf b = { 0 };

	pbw_bytes(&b, 1, slice_of("root\0x", 6));
	ck_assert_int_eq(auth_apply(w.auth, AUTH_ACT(ROLE_ADD), buf_view(&b), &effect), ERR_AUTH_INVALID_MANAGEMENT);
	ck_assert_int_eq(auth_apply(w.auth, 99, buf_view(&b), &effect), ERR_MALFORMED);
	ck_assert_int_eq(auth_apply(w.auth, AUTH_ACT(NONE), buf_view(&b), &effect), ERR_MALFORMED);
	buf_free(&b);
}
END_TEST

START_TEST(decisions__old_revisions_and_unknown_users)
{
	struct auth_who old;

	world_enable(&w);
	ck_assert_int_eq(user_add(&w, "u"), ERR_OK);
	ck_assert_int_eq(role_add(&w, "r"), ERR_OK);
	ck_assert_int_eq(permit(&w, "r", BOTH, A, NONE), ERR_OK);
	ck_assert_int_eq(grant_role(&w, "u", "r"), ERR_OK);
	old = who(&w, "u");
	ck_assert_int_eq(auth_check_range(w.auth, old, A, NONE, AUTH_READ | AUTH_WRITE), ERR_OK);
	ck_assert_int_eq(auth_check_range(w.auth, who(&w, NULL), A, NONE, AUTH_READ), ERR_USER_EMPTY);
	ck_assert_int_eq(auth_check_range(w.auth, who(&w, "x"), A, NONE, AUTH_READ), ERR_PERMISSION_DENIED);
	ck_assert_int_eq(revoke_role(&w, "u", "r"), ERR_OK);
	ck_assert_int_eq(auth_check_range(w.auth, old, A, NONE, AUTH_READ), ERR_AUTH_OLD_REVISION);
	ck_assert_int_eq(auth_check_range(w.auth, who(&w, "u"), A, NONE, AUTH_READ), ERR_PERMISSION_DENIED);
	ck_assert_int_eq(auth_check_root(w.auth, who(&w, "u")), ERR_PERMISSION_DENIED);
	ck_assert_int_eq(auth_check_root(w.auth, who(&w, "root")), ERR_OK);
	ck_assert_int_eq(switch_to(&w, false), ERR_OK);
	ck_assert_int_eq(auth_check_range(w.auth, who(&w, NULL), A, NONE, AUTH_READ), ERR_OK);
}
END_TEST

/* ---- records ---- */

static void check_round_trip(const struct tree_record *r)
{
	struct tree_record *again = NULL;
	struct buf b = { 0 };

	auth_record_type.encode(r, &b);
	ck_assert_int_eq(auth_record_type.decode(buf_view(&b), &again), ERR_OK);
	ck_assert_uint_eq(auth_record_type.hash(r), auth_record_type.hash(again));
	ck_assert(slice_eq(auth_record_type.key(r), auth_record_type.key(again)));
	tree_record_unref(&auth_record_type, again);
	buf_append_byte(&b, 0);
	ck_assert_int_eq(auth_record_type.decode(buf_view(&b), &again), ERR_CORRUPT);
	buf_free(&b);
}

START_TEST(records__come_back_as_they_were)
{
	struct tree_cursor c;
	int n = 0;

	world_enable(&w);
	ck_assert_int_eq(role_add(&w, "r"), ERR_OK);
	for (int i = 0; i < 20; i++) {
		char key[8];

		snprintf(key, sizeof key, "k%d", i * 7 % 20);
		ck_assert_int_eq(permit(&w, "r", (uint32_t)i % 3, slice_of_str(key), i % 2 ? NONE : slice_of_str("z")), ERR_OK);
	}
	ck_assert_int_eq(grant_role(&w, "root", "r"), ERR_OK);
	for (struct tree_record *r = tree_first(&c, &w.state.auth); r; r = tree_next(&c), n++)
		check_round_trip(r);
	ck_assert_int_eq(n, 3); /* head, root, r */
}
END_TEST

/* Whatever a disk or a peer says: a record, or ERR_CORRUPT, and what is a record is what we would write. */
START_TEST(records__believe_nothing)
{
	struct rng rng;
	struct buf good = { 0 };
	struct tree_cursor c;

	rng_init(&rng, (uint64_t)_i + 1);
	world_enable(&w);
	ck_assert_int_eq(role_add(&w, "r"), ERR_OK);
	ck_assert_int_eq(permit(&w, "r", READ, A, slice_of_str("c")), ERR_OK);
	for (struct tree_record *r = tree_first(&c, &w.state.auth); r; r = tree_next(&c)) {
		buf_clear(&good);
		auth_record_type.encode(r, &good);
		for (int i = 0; i < 3000; i++) {
			struct buf b = buf_copy_of(buf_view(&good));
			struct tree_record *out = NULL;
			uint64_t changes = rng_between(&rng, 1, 3);

			for (uint64_t k = 0; k < changes; k++)
				b.ptr[rng_below(&rng, b.len)] = (uint8_t)rng_next(&rng);
			b.len = rng_between(&rng, 0, b.len);
			if (auth_record_type.decode(buf_view(&b), &out) == ERR_OK) {
				struct buf again = { 0 };

				auth_record_type.encode(out, &again);
				ck_assert(slice_eq(buf_view(&again), buf_view(&b)));
				buf_free(&again);
				tree_record_unref(&auth_record_type, out);
			}
			buf_free(&b);
		}
	}
	buf_free(&good);
}
END_TEST

/* ---- tokens ---- */

START_TEST(tokens__live_for_the_ttl_after_their_last_use)
{
	struct tokens *t = tokens_new(100);
	struct slice token = slice_of_str("ABCDEFGHIJKLMNOP.7"), other = slice_of_str("ABCDEFGHIJKLMNOP.8");

	tokens_add(t, token, slice_of_str("u"), 0);
	tokens_add(t, other, slice_of_str("v"), 0);
	ck_assert(slice_eq(tokens_use(t, token, 90), slice_of_str("u")));
	ck_assert(slice_eq(tokens_use(t, token, 180), slice_of_str("u")));
	ck_assert_uint_eq(tokens_use(t, other, 180).len, 0);
	ck_assert_uint_eq(tokens_use(t, token, 280).len, 0);
	tokens_add(t, token, slice_of_str("u"), 300);
	tokens_add(t, other, slice_of_str("v"), 300);
	tokens_forget_user(t, slice_of_str("u"));
	ck_assert_uint_eq(tokens_len(t), 1);
	tokens_forget_all(t);
	ck_assert_uint_eq(tokens_use(t, other, 301).len, 0);
	for (uint64_t i = 0; i < AUTH_TOKENS_MAX + 10; i++)
		tokens_add(t, slice_of(&i, sizeof i), slice_of_str("u"), 400);
	ck_assert_uint_eq(tokens_len(t), AUTH_TOKENS_MAX);
	tokens_free(t);
}
END_TEST

START_TEST(tokens__index_of_what_may_be_one)
{
	static const struct {
		const char *token;
		bool ok;
		uint64_t index;
	} cases[] = {
		{ "ABCDEFGHIJKLMNOP.7", true, 7 },
		{ "ABCDEFGHIJKLMNOP.18446744073709551615", true, UINT64_MAX },
		{ "ABCDEFGHIJKLMNOP.18446744073709551616", false, 0 },
		{ "ABCDEFGHIJKLMNOP.", false, 0 },
		{ "ABCDEFGHIJKLMNOP", false, 0 },
		{ "ABCDEFGHIJKLMNOP.-1", false, 0 },
		{ "ABC.7", false, 0 },
		{ "", false, 0 },
		{ ".", false, 0 },
		{ "ABCDEFGHIJKLMNOP.7.8", false, 0 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint64_t index = 0;

		ck_assert_msg(token_index(slice_of_str(cases[i].token), &index) == cases[i].ok, "%s", cases[i].token);
		ck_assert_uint_eq(index, cases[i].index);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("auth");
	TCase *t = tcase_create("auth");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, enable__wants_root_with_its_role);
	tcase_add_test(t, revision__rises_with_changes_alone);
	tcase_add_test(t, permission__must_hold_something);
	tcase_add_test(t, names__no_zero_byte);
	tcase_add_test(t, decisions__old_revisions_and_unknown_users);
	tcase_add_test(t, records__come_back_as_they_were);
	tcase_add_loop_test(t, records__believe_nothing, 0, 4);
	tcase_add_test(t, tokens__live_for_the_ttl_after_their_last_use);
	tcase_add_test(t, tokens__index_of_what_may_be_one);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
