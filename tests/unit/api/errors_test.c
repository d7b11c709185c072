/* errors_test.c: the error table is whole, and its texts are what clients compare with. */
#include "errors.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

START_TEST(errors__every_row_has_a_name_a_text_and_a_failing_code)
{
	for (int e = ERR_OK + 1; e < ERR_COUNT; e++) {
		ck_assert_ptr_nonnull(err_name((enum err)e));
		ck_assert_ptr_nonnull(err_text((enum err)e));
		ck_assert_msg(strncmp(err_name((enum err)e), "ERR_", 4) == 0, "%s", err_name((enum err)e));
		ck_assert_msg(err_text((enum err)e)[0] != '\0', "%s", err_name((enum err)e));
		ck_assert_msg(err_status((enum err)e) > STATUS_OK, "%s", err_name((enum err)e));
		ck_assert_msg(err_status((enum err)e) < STATUS_COUNT, "%s", err_name((enum err)e));
	}
}
END_TEST

START_TEST(errors__success_is_zero_and_says_nothing)
{
	ck_assert_int_eq(ERR_OK, 0);
	ck_assert_str_eq(err_name(ERR_OK), "ERR_OK");
	ck_assert_str_eq(err_text(ERR_OK), "");
	ck_assert_int_eq(err_status(ERR_OK), STATUS_OK);
}
END_TEST

START_TEST(errors__a_text_stands_for_one_error)
{
	for (int a = ERR_OK + 1; a < ERR_COUNT; a++) {
		for (int b = a + 1; b < ERR_COUNT; b++) {
			/* To a client both mean that its lease is gone. */
			if (a == ERR_LEASE_NOT_FOUND && b == ERR_LEASE_ENDED_WAITING)
				continue;
			ck_assert_str_ne(err_text((enum err)a), err_text((enum err)b));
		}
	}
}
END_TEST

START_TEST(errors__every_text_says_whose_it_is)
{
	int etcd = 0, election = 0, ours = 0;

	for (int e = ERR_OK + 1; e < ERR_COUNT; e++) {
		const char *text = err_text((enum err)e);

		ck_assert_msg(text[strlen(text) - 1] != '.', "%s", text);
		if (strncmp(text, "etcdserver: ", 12) == 0)
			etcd++;
		else if (strncmp(text, "election: ", 10) == 0)
			election++;
		else if (strncmp(text, "holdfast: ", 10) == 0)
			ours++;
		else
			ck_abort_msg("%s: whose is \"%s\"?", err_name((enum err)e), text);
	}
	ck_assert_int_eq(etcd, 63 + 1); /* and ERR_LEASE_ENDED_WAITING */
	ck_assert_int_eq(election, 2);
	ck_assert_int_eq(etcd + election + ours, ERR_COUNT - 1);
}
END_TEST

/* A sample over all codes: what etcd clients match on to the letter. */
static const struct wire_case {
	enum err err;
	enum status_code status;
	const char *text;
} wire_cases[] = {
	{ ERR_CANCELED, STATUS_CANCELED, "etcdserver: request canceled" },
	{ ERR_ELECTION_NO_LEADER, STATUS_UNKNOWN, "election: no leader" },
	{ ERR_EMPTY_KEY, STATUS_INVALID_ARGUMENT, "etcdserver: key is not provided" },
	{ ERR_DUPLICATE_KEY, STATUS_INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request" },
	{ ERR_AUTH_FAILED, STATUS_INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password" },
	{ ERR_DEADLINE_EXCEEDED, STATUS_DEADLINE_EXCEEDED, "etcdserver: context deadline exceeded" },
	{ ERR_LEASE_NOT_FOUND, STATUS_NOT_FOUND, "etcdserver: requested lease not found" },
	{ ERR_LEASE_ENDED_WAITING, STATUS_NOT_FOUND, "etcdserver: requested lease not found" },
	{ ERR_PERMISSION_DENIED, STATUS_PERMISSION_DENIED, "etcdserver: permission denied" },
	{ ERR_NO_SPACE, STATUS_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded" },
	{ ERR_TOO_MANY_REQUESTS, STATUS_RESOURCE_EXHAUSTED, "etcdserver: too many requests" },
	{ ERR_LEASE_EXISTS, STATUS_FAILED_PRECONDITION, "etcdserver: lease already exists" },
	{ ERR_NOT_LEADER, STATUS_FAILED_PRECONDITION, "etcdserver: not leader" },
	{ ERR_COMPACTED, STATUS_OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted" },
	{ ERR_FUTURE_REVISION, STATUS_OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision" },
	{ ERR_LEASE_TTL_TOO_LARGE, STATUS_OUT_OF_RANGE, "etcdserver: too large lease TTL" },
	{ ERR_UNIMPLEMENTED, STATUS_UNIMPLEMENTED, "holdfast: not implemented" },
	{ ERR_MALFORMED, STATUS_INTERNAL, "holdfast: malformed request" },
	{ ERR_NO_LEADER, STATUS_UNAVAILABLE, "etcdserver: no leader" },
	{ ERR_TIMEOUT_CONN_LOST, STATUS_UNAVAILABLE,
	  "etcdserver: request timed out, possibly due to connection lost" },
	{ ERR_CLUSTER_CORRUPT, STATUS_DATA_LOSS, "etcdserver: corrupt cluster" },
	{ ERR_AUTH_INVALID_TOKEN, STATUS_UNAUTHENTICATED, "etcdserver: invalid auth token" },
	{ ERR_LOCK_HELD, STATUS_FAILED_PRECONDITION, "holdfast: the lock is held" },
	{ ERR_LOCK_WAIT_TIMEOUT, STATUS_DEADLINE_EXCEEDED, "holdfast: the lock was not granted in the time given" },
};

START_TEST(errors__wire_rows_are_to_the_letter)
{
	const struct wire_case *c = &wire_cases[_i];

	ck_assert_str_eq(err_text(c->err), c->text);
	ck_assert_int_eq(err_status(c->err), c->status);
}
END_TEST

START_TEST(errors__a_stranger_is_internal)
{
	ck_assert_str_eq(err_name(ERR_COUNT), "ERR_?");
	ck_assert_str_eq(err_text((enum err)-1), "holdfast: unknown error");
	ck_assert_int_eq(err_status((enum err)9999), STATUS_INTERNAL);
}
END_TEST

START_TEST(errors__status_numbers_are_grpcs)
{
	ck_assert_int_eq(STATUS_COUNT, 17);
	ck_assert_int_eq(STATUS_FAILED_PRECONDITION, 9);
	ck_assert_int_eq(STATUS_UNAUTHENTICATED, 16);
	for (int s = 0; s < STATUS_COUNT; s++)
		ck_assert_str_ne(status_name((enum status_code)s), "?");
	ck_assert_str_eq(status_name(STATUS_NOT_FOUND), "NotFound");
	ck_assert_str_eq(status_name(STATUS_COUNT), "?");
}
END_TEST

START_TEST(errmsg__formats)
{
	struct errmsg em;

	errmsg_set(&em, "open snapshot in '%s'", "dir");
	ck_assert_str_eq(em.text, "open snapshot in 'dir'");
}
END_TEST

START_TEST(errmsg__null_is_nobody)
{
	errmsg_set(NULL, "%d", 1);
}
END_TEST

START_TEST(errmsg__may_wrap_itself)
{
	struct errmsg em;

	errmsg_set(&em, "inner");
	errmsg_set(&em, "outer: %s", em.text);
	ck_assert_str_eq(em.text, "outer: inner");
}
END_TEST

START_TEST(errmsg__cuts_what_does_not_fit)
{
	char longer[600];
	struct errmsg em;

	memset(longer, 'x', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	errmsg_set(&em, "%s", longer);
	ck_assert_uint_eq(strlen(em.text), sizeof em.text - 1);
}
END_TEST

static const struct cut_case {
	const char *what;
	const char *character;
	size_t before; /* one-byte characters ahead of it; 511 bytes fit */
	size_t want;
} cut_cases[] = {
	{ "two bytes, one fits", "\xc3\xa9", 510, 510 },
	{ "two bytes, both fit", "\xc3\xa9", 509, 511 },
	{ "three bytes, one fits", "\xe2\x82\xac", 510, 510 },
	{ "three bytes, two fit", "\xe2\x82\xac", 509, 509 },
	{ "three bytes, all fit", "\xe2\x82\xac", 508, 511 },
	{ "four bytes, three fit", "\xf0\x9f\x94\x92", 508, 508 },
	{ "four bytes, all fit", "\xf0\x9f\x94\x92", 507, 511 },
	{ "no UTF-8 at all", "\x80\x80\x80\x80\x80", 508, 511 },
};

START_TEST(errmsg__never_cuts_a_character_in_two)
{
	const struct cut_case *c = &cut_cases[_i];
	char text[600];
	struct errmsg em;

	memset(text, 'x', c->before);
	strcpy(text + c->before, c->character);
	strcat(text, "yyyyyy");
	errmsg_set(&em, "%s", text);
	ck_assert_msg(strlen(em.text) == c->want, "%s: %zu", c->what, strlen(em.text));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("errors");
	TCase *tc = tcase_create("errors");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, errors__every_row_has_a_name_a_text_and_a_failing_code);
	tcase_add_test(tc, errors__success_is_zero_and_says_nothing);
	tcase_add_test(tc, errors__a_text_stands_for_one_error);
	tcase_add_test(tc, errors__every_text_says_whose_it_is);
	tcase_add_loop_test(tc, errors__wire_rows_are_to_the_letter, 0, sizeof wire_cases / sizeof *wire_cases);
	tcase_add_test(tc, errors__a_stranger_is_internal);
	tcase_add_test(tc, errors__status_numbers_are_grpcs);
	tcase_add_test(tc, errmsg__formats);
	tcase_add_test(tc, errmsg__null_is_nobody);
	tcase_add_test(tc, errmsg__may_wrap_itself);
	tcase_add_test(tc, errmsg__cuts_what_does_not_fit);
	tcase_add_loop_test(tc, errmsg__never_cuts_a_character_in_two, 0, sizeof cut_cases / sizeof *cut_cases);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
