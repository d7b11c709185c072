/* kv.h: what the commands about keys share. */
#ifndef HOLDFAST_CTL_KV_H
#define HOLDFAST_CTL_KV_H

#include "ctl.h"
#include "etcd/kv.pb-c.h"

/* KEY [RANGE_END], --prefix, --from-key as a range. False: an error was printed. */
bool kv_range(const struct ctl *c, struct buf *key, struct buf *end);
void kv_print(const struct ctl *c, const Mvccpb__KeyValue *kv, bool key, bool value); /* a line each */

#endif
