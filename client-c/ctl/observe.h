/* observe.h: elect --observe: who leads, and every change. */
#ifndef HOLDFAST_CTL_OBSERVE_H
#define HOLDFAST_CTL_OBSERVE_H

#include "ctl.h"

int observe(struct ctl *c);

#endif
