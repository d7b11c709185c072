/* tls_desk.h: a server under TLS whose front ends are the test itself; a CA, certificates, and a config that wants clients' certificates. */
#ifndef HOLDFAST_TESTS_TLS_DESK_H
#define HOLDFAST_TESTS_TLS_DESK_H

#include <check.h>
#include <pthread.h>

#include "net/acceptor.h"
#include "net/tls.h"
#include "tls_kit.h"

struct desk {
	struct acceptor *acceptor;
	struct tls_context *tls;
	uint16_t port;
	pthread_mutex_t mu;
	size_t http2, http1;
	int fd; /* the last one, kept */
	struct identity *who;
};

extern struct kit_ca ca;          /* ca.pem; the server's certificate has serial number 2 */
extern struct tls_config config;  /* of the server: server.pem, asks for certificates of the CA */
extern const struct kit_client_spec alice;
extern const struct acceptor_limits usual;

int desk_run(const char *name, void (*add_tests)(TCase *c)); /* all of a program's tests, each with files of its own; what main returns */

struct tls_context *context_of(const struct tls_config *c);
void desk_open(struct desk *d, struct acceptor_limits limits, bool http1, bool http2); /* which kinds it serves */
void desk_open_as_grpc(struct desk *d, struct acceptor_limits limits); /* both; of http2, desk.fd is read and written as gRPC does */
void desk_close(struct desk *d);
size_t count(struct desk *d, const size_t *counter); /* &d->http1, &d->http2 */
bool is_let_in(struct desk *d, const struct kit_client_spec *spec); /* true when the client gets to the http1 sink */
int read_all(int fd, char *text, size_t cap);
void expect(int fd, const char *text); /* waits for exactly that text */

#endif
