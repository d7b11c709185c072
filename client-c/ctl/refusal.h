/* refusal.h: who holds what was not given. */
#ifndef HOLDFAST_CTL_REFUSAL_H
#define HOLDFAST_CTL_REFUSAL_H

#include "ctl.h"

/* One line on standard error; when the output is not simple, the LockRefusal itself on standard output. details: a google.rpc.Status, or empty. */
void refusal_print(struct ctl *c, const char *noun, struct slice name, struct slice details);

/* Of a change of members: what the cell had to say, if anything. */
void refusal_print_member(struct slice details);

#endif
