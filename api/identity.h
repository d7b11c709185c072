/* identity.h: who is at the other end of a connection, as the transport knows it.
 *
 * Made once, when the connection is accepted (and, under TLS, its handshake is over); never changed afterwards, but for the counters; shared by the calls that come by the
 * connection, from any thread, each with a reference of its own. What of it comes from a certificate is there only when one of our CAs vouches for it:
 * the word of a client that was not checked is nowhere in here. */
#ifndef HOLDFAST_IDENTITY_H
#define HOLDFAST_IDENTITY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

enum {
	IDENTITY_ADDRESS_MAX = 64, /* "[...]:65535" with its zero byte */
	IDENTITY_NAMES_MAX = 64,   /* of a certificate; what it has beyond is left out */
};

enum identity_name_kind { IDENTITY_DNS, IDENTITY_IP, IDENTITY_EMAIL, IDENTITY_URI };

/* A subject alternative name: text, as people write it ("db.example.org", "192.0.2.1", "2001:db8::1"). */
struct identity_name {
	enum identity_name_kind kind;
	struct slice text;
};

struct identity {
	atomic_uint refs;
	uint64_t number; /* of this process's connections, from 1 on: no two have the same */
	/* counted by the services, of all calls of this connection */
	atomic_uint calls;   /* open */
	atomic_size_t bytes; /* of unary requests under way */
	char address[IDENTITY_ADDRESS_MAX]; /* the client's own, "127.0.0.1:4242" or "[::1]:4242" */
	bool tls;                           /* the connection is encrypted */
	bool certified;                     /* the client has proved to hold a certificate that our CA vouches for; what follows is empty otherwise */
	struct slice common_name;           /* of the certificate's subject; may be empty */
	const struct identity_name *names;
	size_t names_len;
};

/* One reference. What is given is copied; names may be NULL when there are none. certified: common_name and names come from a checked certificate. */
struct identity_spec {
	const char *address;
	bool tls, certified;
	struct slice common_name;
	const struct identity_name *names;
	size_t names_len;
};
struct identity *identity_new(const struct identity_spec *spec);
struct identity *identity_of_address(const char *address); /* one of whom no more is known */
struct identity *identity_ref(struct identity *id);
void identity_unref(struct identity *id); /* NULL is fine */

#endif
