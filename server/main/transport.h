/* transport.h: the TLS contexts of a replica, as its options say. */
#ifndef HOLDFAST_MAIN_TRANSPORT_H
#define HOLDFAST_MAIN_TRANSPORT_H

#include "net/tls.h"
#include "options.h"

/* One for all that clients reach (client, HTTP and metrics URLs): whom to let in is decided in one place. NULL: no URL asks for it. */
struct transport {
	struct tls_context *client, *peer;
};

enum err transport_open(const struct options *o, struct transport *ret, struct errmsg *em); /* *ret zeroed before; close it in any case */
void transport_close(struct transport *t);

#endif
