/* main.h: runs one case of tests. */
#ifndef HOLDFAST_TESTS_NODE_MAIN_H
#define HOLDFAST_TESTS_NODE_MAIN_H

#include <check.h>

/* tests: NULL-terminated. Returns what main() does. */
int run_tests(const char *name, const TTest *const *tests);

#endif
