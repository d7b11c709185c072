/* audit.h: who did what, one JSON line an act, in a file of its own.
 *
 * Writers hand in a line and go on: it is written by a thread of its own. When that cannot keep up, lines are dropped and counted; the next line
 * that is written says how many. The file is opened for appending, so it may be moved away and reopened (audit_reopen) or copied and truncated. */
#ifndef HOLDFAST_AUTH_AUDIT_H
#define HOLDFAST_AUTH_AUDIT_H

#include <stdint.h>

#include "base/buf.h"
#include "errors.h"

enum { AUDIT_QUEUE_MAX = 16384, AUDIT_QUEUE_BYTES_MAX = 16 << 20 };

struct audit;

enum err audit_open(const char *path, struct audit **ret, struct errmsg *em);
void audit_close(struct audit *a); /* writes what is queued */
void audit_line(struct audit *a, struct buf *line); /* taken; without its newline. Any thread; never waits for the disk */
void audit_reopen(struct audit *a);                 /* after a SIGHUP; any thread */
uint64_t audit_dropped(const struct audit *a);

/* Appends a JSON string, quotes and all; bytes that are no UTF-8 become U+FFFD. */
void audit_json_string(struct buf *out, struct slice s);

#endif
