/* credentials.h: passwords, signed tokens and the audit log, as the options ask for them. */
#ifndef HOLDFAST_MAIN_CREDENTIALS_H
#define HOLDFAST_MAIN_CREDENTIALS_H

#include "base/buf.h"
#include "options.h"
#include "service/service.h"

enum err credentials_open(const struct options *o, struct service_parts *ret, struct errmsg *em); /* on error what is there is there */
void credentials_tick(const struct service_parts *p);   /* every second or so, one thread: keys that changed */
void credentials_hang_up(const struct service_parts *p); /* SIGHUP */
void credentials_metrics(const struct service_parts *p, struct buf *out);
/* In this order at the stop: no password is looked at any more; later, when no call is open, the rest. */
void credentials_stop(struct service_parts *p);
void credentials_close(struct service_parts *p);

#endif
