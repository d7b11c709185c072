/* caller.h: a front end for tests: one call, what came back, and waiting for it. */
#ifndef HOLDFAST_TESTS_CALLER_H
#define HOLDFAST_TESTS_CALLER_H

#include <pthread.h>

#include "service/service.h"

enum { CALLER_REPLIES_MAX = 8192 };

struct test_caller {
	struct service_call call;
	pthread_mutex_t mu;
	pthread_cond_t change;
	/* guarded by mu */
	struct buf replies[CALLER_REPLIES_MAX]; /* single messages, without their length */
	size_t replies_len;                     /* messages */
	size_t reply_calls;                     /* ops->reply calls */
	size_t ready;
	bool finished;
	enum err err;
	char detail[128];
	struct buf details;
};

struct test_caller *caller_new(enum method_id method);      /* set more in ->call, then start */
void caller_start(struct test_caller *c, struct service *s);
bool caller_send(struct test_caller *c, const ProtobufCMessage *m);
bool caller_send_bytes(struct test_caller *c, const void *bytes, size_t len);
/* Each fails the test after some seconds. */
void caller_wait_finished(struct test_caller *c, enum err e);
void caller_wait_replies(struct test_caller *c, size_t len);
void caller_free(struct test_caller *c);                    /* waits until it is finished first */

#endif
