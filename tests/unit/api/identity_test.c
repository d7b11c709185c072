/* identity_test.c: who is at the other end: copied, shared, and nothing of it believed that was not checked. */
#include "identity.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct identity_name names[] = {
	{ IDENTITY_DNS, { (const uint8_t *)"db.example.org", 14 } },
	{ IDENTITY_IP, { (const uint8_t *)"192.0.2.1", 9 } },
	{ IDENTITY_URI, { NULL, 0 } },
};

static struct identity_spec spec_of(char *cn)
{
	return (struct identity_spec){ .address = "192.0.2.1:4242", .tls = true, .certified = true, .common_name = slice_of_str(cn), .names = names, .names_len = 3 };
}

START_TEST(identity__is_a_copy_of_what_was_given)
{
	char cn[] = "alice";
	struct identity_spec spec = spec_of(cn);
	struct identity *id = identity_new(&spec);
	memset(cn, 'x', sizeof(cn));
	ck_assert_str_eq(id->address, "192.0.2.1:4242");
	ck_assert(id->tls && id->certified);
	ck_assert(slice_eq(id->common_name, slice_of_str("alice")));
	ck_assert_uint_eq(id->names_len, 3);
	ck_assert_int_eq(id->names[1].kind, IDENTITY_IP);
	ck_assert(slice_eq(id->names[0].text, slice_of_str("db.example.org")));
	ck_assert(slice_eq(id->names[1].text, slice_of_str("192.0.2.1")));
	ck_assert_uint_eq(id->names[2].text.len, 0);
	identity_unref(id);
}
END_TEST

START_TEST(identity__has_no_name_that_nobody_vouched_for)
{
	char cn[] = "root";
	struct identity_spec spec = spec_of(cn);
	struct identity *id;
	spec.certified = false;
	id = identity_new(&spec);
	ck_assert_uint_eq(id->common_name.len, 0);
	ck_assert_uint_eq(id->names_len, 0);
	identity_unref(id);
}
END_TEST

START_TEST(identity__lives_as_long_as_its_last_reference)
{
	struct identity *id = identity_of_address("[::1]:1"), *second = identity_ref(id);
	identity_unref(id);
	ck_assert_str_eq(second->address, "[::1]:1");
	ck_assert(!second->tls && !second->certified);
	identity_unref(second);
	identity_unref(NULL);
}
END_TEST

START_TEST(identity__names_and_address_have_a_bound)
{
	char cn[] = "a", address[200];
	struct identity_name many[IDENTITY_NAMES_MAX + 5];
	struct identity_spec spec = spec_of(cn);
	struct identity *id;
	memset(address, '1', sizeof(address));
	address[sizeof(address) - 1] = '\0';
	for (size_t i = 0; i < IDENTITY_NAMES_MAX + 5; i++)
		many[i] = names[0];
	spec.names = many;
	spec.names_len = IDENTITY_NAMES_MAX + 5;
	spec.address = address;
	id = identity_new(&spec);
	ck_assert_uint_eq(id->names_len, IDENTITY_NAMES_MAX);
	ck_assert_uint_eq(strlen(id->address), IDENTITY_ADDRESS_MAX - 1);
	identity_unref(id);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("identity");
	TCase *t = tcase_create("all");
	SRunner *sr = srunner_create(s);
	int failed;
	tcase_add_test(t, identity__is_a_copy_of_what_was_given);
	tcase_add_test(t, identity__has_no_name_that_nobody_vouched_for);
	tcase_add_test(t, identity__lives_as_long_as_its_last_reference);
	tcase_add_test(t, identity__names_and_address_have_a_bound);
	suite_add_tcase(s, t);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
