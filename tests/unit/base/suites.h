/* suites.h: the test suites of api/base, one a file. */
#ifndef HOLDFAST_TESTS_UNIT_BASE_SUITES_H
#define HOLDFAST_TESTS_UNIT_BASE_SUITES_H

#include <check.h>

Suite *arena_suite(void);
Suite *base64_suite(void);
Suite *buf_suite(void);
Suite *hash_suite(void);
Suite *heap_suite(void);
Suite *list_suite(void);
Suite *map_suite(void);
Suite *mem_suite(void);
Suite *pb_check_suite(void);
Suite *pbw_suite(void);
Suite *rng_suite(void);
Suite *slice_suite(void);

#endif
