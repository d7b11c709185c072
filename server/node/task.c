/* task.c: work on a view of the state that the snapshot thread does for a caller: the hash of all keys, the next piece of a backup.
 *
 *   (K1) a task's view is opened and closed by the core's thread, or when that is no more; the snapshot thread reads it while `busy`.
 *   (K2) there are at most TASKS_MAX: each view may keep what has been replaced in the state since. */
#include "internal.h"

#include <string.h>

enum { TASKS_MAX = 8 };

bool task_begin(struct task *t, struct node *n)
{
	if (n->tasks_len >= TASKS_MAX)
		return false;
	t->node = n;
	t->busy = false;
	t->view = state_view(core_state(n->core));
	list_push_back(&n->tasks, &t->link);
	n->tasks_len++;
	return true;
}

/* Core's thread: comes as a completion. */
static void task_done(struct node *n, struct inbox_item *item)
{
	struct task *t = item->task;
	(void)n;
	t->busy = false;
	t->done(t);
}

void task_work(struct task *t)
{
	struct inbox_item *out = mem_zalloc(sizeof(*out));
	t->work(t);
	out->task = t;
	out->run = task_done;
	inbox_put_done(t->node, out);
}

void task_run(struct task *t)
{
	ASSERT(!t->busy);
	t->busy = true;
	snap_queue_task(&t->node->snap, t);
}

void task_end(struct task *t)
{
	ASSERT(!t->busy);
	state_deinit(&t->view);
	list_remove(&t->link);
	t->node->tasks_len--;
	t->free(t);
}

void tasks_tick(struct node *n)
{
	LIST_FOR_EACH_SAFE(it, tmp, &n->tasks) {
		struct task *t = CONTAINER_OF(it, struct task, link);
		if (t->tick)
			t->tick(t);
	}
}

/* Their callers hear that the node stops; what is busy is freed by tasks_free. */
void tasks_stop(struct node *n)
{
	LIST_FOR_EACH_SAFE(it, tmp, &n->tasks) {
		struct task *t = CONTAINER_OF(it, struct task, link);
		t->stop(t);
	}
}

void tasks_free(struct node *n)
{
	while (!list_empty(&n->tasks)) {
		struct task *t = CONTAINER_OF(n->tasks.next, struct task, link);
		t->busy = false; /* the thread is gone */
		task_end(t);
	}
}
