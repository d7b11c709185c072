/* tls_drain.h: a thread that waits for room in sockets on behalf of those who cannot. It has nothing to do but when a client does not read. */
#ifndef HOLDFAST_NET_TLS_DRAIN_H
#define HOLDFAST_NET_TLS_DRAIN_H

#include <stdbool.h>

#include "base/list.h"

struct tls_drained {
	struct list link;
};

struct tls_drain;

struct tls_drain_callbacks {
	void (*room)(struct tls_drained *item); /* once after each watch. May still come while tls_drain_drop() is under way, or just after it */
	void (*over)(struct tls_drained *item); /* after a drop: nothing will come any more */
};

struct tls_drain *tls_drain_new(const struct tls_drain_callbacks *cb);
void tls_drain_stop(struct tls_drain *d); /* waits for the thread: no callback comes any more */
void tls_drain_free(struct tls_drain *d); /* it has been stopped */

/* Whoever has fd holds a lock of its own around these, that `room` takes as well. */
bool tls_drain_watch(struct tls_drain *d, struct tls_drained *item, int fd); /* false: the system's bound on watches */
void tls_drain_again(struct tls_drain *d, struct tls_drained *item, int fd); /* from within room */
void tls_drain_done(struct tls_drain *d, int fd);                            /* from within room: there will be no other */
/* Before fd is closed. False: it has been stopped, and `over` will not come. */
bool tls_drain_drop(struct tls_drain *d, struct tls_drained *item, int fd);

#endif
