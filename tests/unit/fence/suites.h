/* suites.h: the parts of unit-fence. */
#ifndef HOLDFAST_TESTS_FENCE_SUITES_H
#define HOLDFAST_TESTS_FENCE_SUITES_H

#include <check.h>

TCase *lmdb_case(void);
TCase *sqlite_case(void);

#endif
