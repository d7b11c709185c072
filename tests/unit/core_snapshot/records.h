/* records.h: stand-ins for the records of the store, of leases and of locks: a key, a number and some padding. They are linked in place of
 * the real ones (see meson.build), so that these tests are about snapshots and nothing else. */
#ifndef HOLDFAST_TEST_RECORDS_H
#define HOLDFAST_TEST_RECORDS_H

#include "core/state.h"

extern long records_alive;

struct tree_record *record_new(struct slice key, uint64_t number, size_t padding);

#endif
