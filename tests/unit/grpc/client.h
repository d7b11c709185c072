/* client.h: a gRPC client for tests, one step at a time: each function waits until its step is done, and fails the test after some seconds. */
#ifndef HOLDFAST_TESTS_CLIENT_H
#define HOLDFAST_TESTS_CLIENT_H

#include "grpc/grpc_front.h"
#include "rpc/rpc.h"

struct client {
	grpc_channel *channel;
	grpc_completion_queue *cq;
	int fd; /* a second descriptor of the connection, to break it by */
};

/* A connection over the loopback, its server end adopted by f as `address`. */
struct client *client_new(struct grpc_front *f, const char *address);
void client_break(struct client *c); /* the machine is gone: the connection is shut down, not ended politely */
void client_free(struct client *c);  /* all its calls are freed */

/* A connection without a client: its own end, to write to by hand. */
int client_raw(struct grpc_front *f, const char *address);

struct client_metadata {
	const char *key, *value;
};

struct client_call {
	struct client *client;
	grpc_call *rpc;
	grpc_metadata_array initial, trailing;
	grpc_byte_buffer *received;
	grpc_status_code code;
	grpc_slice text;
	struct client_step {
		struct rpc_tag tag;
		bool started, done, ok;
	} opened, sent, closed, got, ended;
	char text_copy[256];
};

struct client_call *client_call(struct client *c, const char *path, const struct client_metadata *metadata, size_t len, uint64_t deadline_ms);
void client_send(struct client_call *c, struct slice message);
void client_send_start(struct client_call *c, struct slice message); /* does not wait */
bool client_send_done(struct client_call *c, uint64_t ms);           /* within so long? */
void client_half_close(struct client_call *c);
bool client_receive(struct client_call *c, struct buf *ret);         /* false: no more comes */
void client_receive_start(struct client_call *c);
/* Waits for the end; messages that still come are dropped. text: borrowed from the call. */
grpc_status_code client_status(struct client_call *c, const char **ret_text);
void client_cancel(struct client_call *c);
void client_call_free(struct client_call *c); /* cancels what is open */

/* All of a unary call. reply may be NULL. */
grpc_status_code client_unary(struct client *c, const char *path, struct slice request, struct buf *ret_reply, char text[256]);

#endif
