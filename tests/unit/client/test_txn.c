/* test_txn.c: transactions as text. */
#include <check.h>
#include <stdlib.h>

#include "txn.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static struct arena arena;
static Etcdserverpb__TxnRequest txn;
static struct errmsg em;

static bool parse(const char *text, bool hex)
{
	return txn_parse(slice_of_str(text), hex, &arena, &txn, &em);
}

static bool is(ProtobufCBinaryData d, const char *text)
{
	return slice_eq(slice_of(d.data, d.len), slice_of_str(text));
}

START_TEST(txn__all_three_parts)
{
	ck_assert_msg(parse("value(\"a b\") = \"1\"\nmod(\"c\") > \"7\"\nlease(\"d\") != \"1f\"\n\nput a \"new value\"\nput l v --lease=ff\n\nget a\nget p --prefix\ndel a z\n", false),
		      "%s", em.text);
	ck_assert(txn.n_compare == 3 && txn.n_success == 2 && txn.n_failure == 3);
	ck_assert(is(txn.compare[0]->key, "a b") && is(txn.compare[0]->value, "1"));
	ck_assert(txn.compare[1]->target == ETCDSERVERPB__COMPARE__COMPARE_TARGET__MOD && txn.compare[1]->mod_revision == 7);
	ck_assert(txn.compare[1]->result == ETCDSERVERPB__COMPARE__COMPARE_RESULT__GREATER);
	ck_assert(txn.compare[2]->lease == 0x1f && txn.compare[2]->result == ETCDSERVERPB__COMPARE__COMPARE_RESULT__NOT_EQUAL);
	ck_assert(is(txn.success[0]->request_put->value, "new value") && txn.success[1]->request_put->lease == 0xff);
	ck_assert(is(txn.failure[1]->request_range->range_end, "q"));
	ck_assert(is(txn.failure[2]->request_delete_range->range_end, "z"));
}
END_TEST

START_TEST(txn__parts_may_be_empty)
{
	ck_assert(parse("", false) && txn.n_compare + txn.n_success + txn.n_failure == 0);
	ck_assert(parse("\n\nget a", false) && txn.n_failure == 1);
	ck_assert(parse("\nput a b\n\n\n\n", false) && txn.n_success == 1);
	ck_assert(parse("\r\nput a b\r\n", false) && txn.n_success == 1);
}
END_TEST

START_TEST(txn__hex)
{
	ck_assert(parse("value(\"61\") = \"62\"\n\nput 63 64\n", true));
	ck_assert(is(txn.compare[0]->key, "a") && is(txn.compare[0]->value, "b") && is(txn.success[0]->request_put->key, "c"));
	ck_assert(!parse("\nput 6 64\n", true) && strstr(em.text, "line 2"));
}
END_TEST

static const struct {
	const char *text, *why;
} wrong[] = {
	{ "frob", "line 1: a compare is written" }, { "value(\"a\") == \"1\"", "a compare is written" }, { "size(\"a\") = \"1\"", "a compare is written" },
	{ "value() = \"1\"", "a compare is written" }, { "mod(\"a\") = \"x\"", "'x' is not a number" }, { "value(\"a\") = \"1", "a quote is not closed" },
	{ "\nput a", "line 2: written: put KEY VALUE" }, { "\nput a b c", "written: put" }, { "\n\nget", "line 3: written: get" }, { "\nget a b --prefix", "written: get" },
	{ "\nget a --lease=1", "only put takes --lease" }, { "\nput a b --lease=x", "is not a lease ID" }, { "\nput a b --frob", "flags are" }, { "\nmove a b", "put, get or del" },
	{ "\n\n\nget a", "line 4: there are three parts" }, { "\nput a b c d e f g h i", "too many words" },
};

START_TEST(txn__what_is_wrong_is_said)
{
	ck_assert_msg(!parse(wrong[_i].text, false), "%d was taken", _i);
	ck_assert_msg(strstr(em.text, wrong[_i].why), "%d says '%s'", _i, em.text);
}
END_TEST

static void setup(void)
{
	arena_init(&arena);
}

static void teardown(void)
{
	arena_deinit(&arena);
}

int main(void)
{
	Suite *s = suite_create("txn");
	TCase *t = tcase_create("txn");
	SRunner *r = srunner_create(s);
	int failed;
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, txn__all_three_parts);
	tcase_add_test(t, txn__parts_may_be_empty);
	tcase_add_test(t, txn__hex);
	tcase_add_loop_test(t, txn__what_is_wrong_is_said, 0, LEN(wrong));
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
