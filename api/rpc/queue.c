/* queue.c: a completion queue and its threads. */
#include <grpc/support/time.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/mem.h"
#include "rpc/rpc.h"

#define THREADS_MAX 8
#define BURST_MAX 32 /* tags between two calls of idle.fn */
#define LOOK_MS 100 /* how often a thread looks whether it is to end without the queue being empty */

struct rpc_queue {
	grpc_completion_queue *cq;
	pthread_t threads[THREADS_MAX];
	unsigned threads_len;
	atomic_bool leave;
	struct rpc_idle idle;
	bool left_behind;
};

static void *run(void *arg)
{
	struct rpc_queue *q = arg;
	enum rpc_ran ran = RPC_TIMEOUT;
	for (unsigned n = 0; ran != RPC_SHUTDOWN && !atomic_load(&q->leave);) {
		if (ran == RPC_TIMEOUT || ++n == BURST_MAX) {
			n = 0;
			if (q->idle.fn)
				q->idle.fn(q->idle.ctx);
		}
		/* With nothing there it has to wait; with somebody to tell, it looks first. */
		ran = rpc_run(q->cq, ran == RPC_TIMEOUT || !q->idle.fn ? rpc_in_ms(LOOK_MS) : gpr_time_0(GPR_CLOCK_MONOTONIC));
	}
	return NULL;
}

static struct rpc_queue *queue_of(grpc_completion_queue *cq, unsigned threads, const char *name, const struct rpc_idle *idle)
{
	struct rpc_queue *q = mem_zalloc(sizeof(*q));
	ASSERT(threads > 0 && threads <= THREADS_MAX);
	q->cq = cq;
	q->threads_len = threads;
	if (idle)
		q->idle = *idle;
	for (unsigned i = 0; i < threads; i++) {
		ASSERT(pthread_create(&q->threads[i], NULL, run, q) == 0);
		pthread_setname_np(q->threads[i], name);
	}
	return q;
}

struct rpc_queue *rpc_queue_new(unsigned threads, const char *name, const struct rpc_idle *idle)
{
	grpc_init();
	return queue_of(grpc_completion_queue_create_for_next(NULL), threads, name, idle);
}

struct rpc_queue *rpc_queue_new_blind(unsigned threads, const char *name)
{
	grpc_completion_queue_attributes attr = { .version = 1, .cq_completion_type = GRPC_CQ_NEXT, .cq_polling_type = GRPC_CQ_NON_POLLING };
	grpc_init();
	return queue_of(grpc_completion_queue_create(grpc_completion_queue_factory_lookup(&attr), &attr, NULL), threads, name, NULL);
}

grpc_completion_queue *rpc_queue_cq(struct rpc_queue *q)
{
	return q->cq;
}

void rpc_queue_stop(struct rpc_queue *q, bool left_behind)
{
	q->left_behind = left_behind;
	if (left_behind)
		atomic_store(&q->leave, true);
	else
		grpc_completion_queue_shutdown(q->cq);
	for (unsigned i = 0; i < q->threads_len; i++)
		pthread_join(q->threads[i], NULL);
	q->threads_len = 0;
}

void rpc_queue_free(struct rpc_queue *q)
{
	if (!q)
		return;
	ASSERT(q->threads_len == 0);
	if (q->left_behind) /* gRPC still has tags on it */
		return;
	grpc_completion_queue_destroy(q->cq);
	free(q);
	grpc_shutdown_blocking();
}
