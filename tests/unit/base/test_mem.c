#include "base/mem.h"

#include <signal.h>
#include <string.h>

#include "suites.h"

struct pair {
	int first;
	int second;
};

START_TEST(mem__zero_bytes_are_a_pointer_too)
{
	void *a = mem_alloc(0), *b = mem_zalloc(0);

	ck_assert_ptr_nonnull(a);
	ck_assert_ptr_nonnull(b);
	a = mem_realloc(a, 0);
	ck_assert_ptr_nonnull(a);
	free(a);
	free(b);
}
END_TEST

START_TEST(mem__realloc_keeps_bytes_and_zalloc_zeroes)
{
	char *a = mem_realloc(NULL, 4);
	unsigned char *b = mem_zalloc(1000);

	memcpy(a, "abc", 4);
	a = mem_realloc(a, 100000);
	ck_assert_str_eq(a, "abc");
	for (size_t i = 0; i < 1000; i++)
		ck_assert_uint_eq(b[i], 0);
	free(a);
	free(b);
}
END_TEST

START_TEST(mem__assert_that_holds_is_silent)
{
	ASSERT(1 + 1 == 2);
	ASSERT_IF(0, 1 == 2);
	ASSERT_IF(1, 2 == 2);
}
END_TEST

START_TEST(mem__assert_that_fails_aborts)
{
	ASSERT(1 + 1 == 3);
}
END_TEST

START_TEST(mem__long_assert_aborts_within_its_buffer)
{
	char expr[2000];

	memset(expr, 'e', sizeof(expr) - 1);
	expr[sizeof(expr) - 1] = '\0';
	mem_assert_failed(expr, "file.c", 2147483647);
}
END_TEST

START_TEST(mem__container_of_finds_the_struct)
{
	struct pair p = { 1, 2 };

	ck_assert_ptr_eq(CONTAINER_OF(&p.second, struct pair, second), &p);
}
END_TEST

Suite *mem_suite(void)
{
	Suite *s = suite_create("mem");
	TCase *tc = tcase_create("mem");

	tcase_add_test(tc, mem__zero_bytes_are_a_pointer_too);
	tcase_add_test(tc, mem__realloc_keeps_bytes_and_zalloc_zeroes);
	tcase_add_test(tc, mem__assert_that_holds_is_silent);
	tcase_add_test_raise_signal(tc, mem__assert_that_fails_aborts, SIGABRT);
	tcase_add_test_raise_signal(tc, mem__long_assert_aborts_within_its_buffer, SIGABRT);
	tcase_add_test(tc, mem__container_of_finds_the_struct);
	suite_add_tcase(s, tc);
	return s;
}
