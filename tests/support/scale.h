/* scale.h: how much of a long test is run. HOLDFAST_TEST_SCALE is in percent: below 100 for builds that are slow (sanitizers), above for long runs. */
#ifndef HOLDFAST_TESTS_SUPPORT_SCALE_H
#define HOLDFAST_TESTS_SUPPORT_SCALE_H

#include <stddef.h>
#include <stdlib.h>

static inline size_t test_scaled(size_t n)
{
	const char *percent = getenv("HOLDFAST_TEST_SCALE");
	size_t p = percent ? strtoul(percent, NULL, 10) : 100;
	size_t r = n * p / 100;
	return r ? r : 1;
}

#endif
