/* internal.h: what the files of once/ share. */
#ifndef HOLDFAST_CORE_ONCE_INTERNAL_H
#define HOLDFAST_CORE_ONCE_INTERNAL_H

#include "once.h"

static inline const struct result_record *result_of(const struct tree_record *r)
{
	return (const struct result_record *)(const void *)r;
}

static inline const struct session_record *session_of(const struct tree_record *r)
{
	return (const struct session_record *)(const void *)r;
}

/* One reference each. What is too large is left out. */
struct result_record *result_new(lease_id session, uint64_t request, const struct once_outcome *outcome);
struct session_record *session_new(lease_id session, uint64_t window);

#endif
