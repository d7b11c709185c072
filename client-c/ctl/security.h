/* security.h: what connections under TLS need, from files. */
#ifndef HOLDFAST_CTL_SECURITY_H
#define HOLDFAST_CTL_SECURITY_H

#include <grpc/grpc_security.h>

#include "args.h"

/* Texts of PEM; NULL: none. */
struct security {
	char *roots;      /* who may vouch for replicas; NULL: the system's CAs */
	char *cert, *key; /* ours */
	bool trust_any;   /* believe whoever answers */
};

/* True when the flags ask for TLS: endpoints without a scheme are then https://. */
bool security_asked(const struct args *a);
/* False with em: a file is missing, or one without the other. */
bool security_load(const struct args *a, struct security *ret, struct errmsg *em);
void security_clear(struct security *s);
/* gRPC has been initialised. NULL: gRPC refuses the certificate or its key. */
grpc_channel_credentials *security_credentials(const struct security *s);

#endif
