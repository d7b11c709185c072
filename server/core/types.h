/* types.h: the scalars of the core, with one meaning each (docs/architecture.md has the words). */
#ifndef HOLDFAST_CORE_TYPES_H
#define HOLDFAST_CORE_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"
#include "errors.h"

typedef uint64_t raft_term;
typedef uint64_t raft_index;
typedef uint64_t member_id;
typedef int64_t revision;
typedef int64_t lease_id;
typedef uint64_t time_ms; /* monotonic, of this machine alone; arrives in events */

#define TIME_NEVER UINT64_MAX

struct entry_id {
	raft_index index;
	raft_term term;
};

#endif
