/* txn.h: a transaction as people write it: compares, a blank line, what to do when all are true, a blank line, what to do otherwise. Pure.
 *
 *   value("a") = "1"      also: version, create, mod, lease; and = != < >
 *   put a 2   ·   put a 2 --lease=LEASE   ·   get a [END] [--prefix]   ·   del a [END] [--prefix]
 *
 * Words are separated by blanks; quotes and their escapes as in text.h. */
#ifndef HOLDFAST_CTL_TXN_H
#define HOLDFAST_CTL_TXN_H

#include "base/arena.h"
#include "errors.h"
#include "etcd/rpc.pb-c.h"

enum { TXN_LINES_MAX = 4096 };

/* Everything in *ret lives in the arena. False: em says which line, and what is wrong with it. hex: keys and values are hexadecimal. */
bool txn_parse(struct slice text, bool hex, struct arena *a, Etcdserverpb__TxnRequest *ret, struct errmsg *em);

#endif
