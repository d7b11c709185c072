/* null_node.h: see null_node.c. One call at a time. */
#ifndef HOLDFAST_TESTS_NULL_NODE_H
#define HOLDFAST_TESTS_NULL_NODE_H

#include "node/submit.h"

void null_node_settle(bool end); /* answers what is held; end: the stream, too */

#endif
