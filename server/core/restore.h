/* restore.h: from the state of a backup to the first state of a new cell. Pure; used offline. */
#ifndef HOLDFAST_CORE_RESTORE_H
#define HOLDFAST_CORE_RESTORE_H

#include "core/member/member.h"
#include "core/state.h"

#define RESTORE_INDEX 1u /* the restored state stands for this entry, which no log holds */
#define RESTORE_TERM 1u

/* Every lease ends, with its keys, its locks and its results; alarms go; the members are those given, bound to no data directory; all
 * history is compacted; and the state is marked, so that the first leader raises the revision (core/restored.c). Equal states and members
 * give equal states. */
void restore_new_cell(struct state *st, const struct member_spec *members, size_t len, const char *token);
#endif
