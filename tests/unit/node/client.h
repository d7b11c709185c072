/* client.h: calls to a node, made as a front end makes them. Every call is counted: done() exactly once, or the test fails. */
#ifndef HOLDFAST_TESTS_NODE_CLIENT_H
#define HOLDFAST_TESTS_NODE_CLIENT_H

#include "cell.h"

struct client {
	struct submit_call base;
	struct replica *replica;
	struct buf request;
	sem_t over;
	atomic_uint times; /* done() was called */
	enum err err;
	struct buf reply, details;
};

/* request NULL: an empty one. NULL: it was refused, with what is in *ret_refused (may be NULL: then that fails the test). */
struct client *client_try(struct replica *r, enum method_id method, const ProtobufCMessage *request, enum err *ret_refused);
struct client *client_start(struct replica *r, enum method_id method, const ProtobufCMessage *request);
void client_cancel(struct client *c);
bool client_is_over(struct client *c);
enum err client_wait(struct client *c);  /* asserts that it is over within WAIT_MS */
void client_free(struct client *c);      /* must be over; asserts once more that it was so once */
enum err client_end(struct client *c);   /* both */

struct client *put_start(struct replica *r, const char *key, struct slice value, lease_id lease);
struct client *lock_start(struct replica *r, const char *name, lease_id lease);
struct client *get_start(struct replica *r, const char *key);
enum err put(struct replica *r, const char *key, const char *value);
enum err delete(struct replica *r, const char *key);
enum err grant(struct replica *r, lease_id id, int64_t ttl_s);
enum err revoke(struct replica *r, lease_id id);
enum err keep_alive(struct replica *r, lease_id id);
enum err lock(struct replica *r, const char *name, lease_id lease);
enum err unlock(struct replica *r, const char *name, lease_id lease);
/* Asserts that the key has this value; NULL: that there is no such key. Linearizable. */
void expect(struct replica *r, const char *key, const char *value);

#endif
