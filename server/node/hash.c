/* hash.c: the hash in the reply to HashKV. The core has checked the revision and written the rest of the reply; a hundred megabytes take a tenth of
 * a second to hash, which the core's thread has not got. */
#include "internal.h"

#include "base/clock.h"
#include "base/pbw.h"
#include "core/store/store.h"
#include "core/wire.h"
#include "metrics.h"

struct hash_task {
	struct task task;
	struct submit_call *call; /* NULL: it has been told that the node stops */
	struct buf reply;
	revision at;
	uint32_t hash;
};

static struct hash_task *hash_of(struct task *t)
{
	return CONTAINER_OF(t, struct hash_task, task);
}

static void hash_work(struct task *t)
{
	struct hash_task *h = hash_of(t);
	uint64_t from = boot_ms();
	h->hash = store_hash_kv_view(&t->view, h->at);
	metric_took(METRIC_TIME_HASH_REV, (boot_ms() - from) * 1000);
}

static void hash_done(struct task *t)
{
	struct hash_task *h = hash_of(t);
	struct buf none = { .ptr = NULL };
	if (h->call) {
		pbw_u64(&h->reply, 2, h->hash);
		h->call->done(h->call, ERR_OK, &h->reply, &none);
	}
	task_end(t);
}

static void hash_stop(struct task *t)
{
	struct hash_task *h = hash_of(t);
	struct buf none = { .ptr = NULL };
	if (h->call)
		h->call->done(h->call, ERR_STOPPED, &none, &none);
	h->call = NULL;
}

static void hash_free(struct task *t)
{
	buf_free(&hash_of(t)->reply);
	free(hash_of(t));
}

void hash_answer(struct node *n, struct submit_call *call, struct buf *reply)
{
	struct hash_task *h = mem_zalloc(sizeof(*h));
	struct buf none = { .ptr = NULL };
	h->task = (struct task){ .work = hash_work, .done = hash_done, .stop = hash_stop, .free = hash_free };
	h->call = call;
	h->at = (revision)wire_find_u64(buf_view(reply), 4, 0);
	if (!task_begin(&h->task, n)) {
		free(h);
		call->done(call, ERR_TOO_MANY_REQUESTS, &none, &none);
		return;
	}
	h->reply = buf_take(reply);
	task_run(&h->task);
}
