/* fence.h: what the helpers for databases share. */
#ifndef HOLDFAST_FENCE_INTERNAL_H
#define HOLDFAST_FENCE_INTERNAL_H

#include <stdbool.h>

#include "holdfast_fence.h"

bool fence_args_ok(const void *name, size_t name_len);
bool fence_marks_ok(const struct hf_fence_marks *m); /* F1; false: not ours, or damaged */

#endif
