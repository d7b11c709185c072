/* internal.h: what the node's threads share. */
#ifndef HOLDFAST_NODE_INTERNAL_H
#define HOLDFAST_NODE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "node/node.h"

/* An event on its way to the core's thread that owns its bytes. */
struct task;
struct inbox_item {
	struct list link;
	struct core_event event; /* its slices point into `bytes` */
	struct buf bytes;
	struct raft_entry **entries; /* EVENT_LOG_READ: owned references */
	struct submit_stream *stream; /* EVENT_STREAM_OPEN */
	struct state *state;         /* EVENT_SNAPSHOT_LOADED: owned, and what is left in it */
	/* Not an event: run by the core's thread in its place. */
	void (*run)(struct node *n, struct inbox_item *item);
	struct task *task;
};

struct inbox {
	pthread_mutex_t mu;
	pthread_cond_t wake;
	/* guarded by mu */
	struct list done;     /* completions of disk and snapshot work: unbounded by need, bounded by the work that is out */
	struct list messages; /* of peers */
	struct list calls;    /* struct submit_call.link */
	struct list others;   /* cancels, streams, lost peers */
	size_t calls_len, message_bytes, others_len, stream_bytes;
	uint64_t disk_done;   /* highest completed write */
	bool sleeping, stop;
	bool writing;         /* a write is under way */
	bool gathering;       /* the core's thread waits for calls to be gather_len */
	size_t gather_len;
	bool urgent;          /* a call is among `calls` that needs no write */
};

/* One log write, or a job that must stand in line with the log's writes. */
struct disk_item {
	struct list link;
	enum { DISK_WRITE, DISK_READ, DISK_INSTALL } kind;
	struct core_write write;
	struct raft_read read;
	struct snapshot_job job;                 /* INSTALL */
	struct storage_snapshot_writer *writer;  /* INSTALL */
	struct storage_snapshot_meta meta;       /* INSTALL */
};

struct disk {
	struct node *node;
	pthread_t thread;
	pthread_mutex_t mu;
	pthread_cond_t wake;
	struct list queue; /* guarded by mu */
	bool stop;         /* guarded by mu */
	/* disk thread */
	bool low;           /* what grows is refused */
	bool failed;        /* a write failed: nothing is written any more */
	uint64_t looked_ms; /* when the space was last looked at */
	uint64_t written;   /* bytes of entries since then */
	raft_index installed; /* the newest snapshot put in force here; the log begins behind it */
};

/* Snapshots that transfers to followers may be reading at once: each goes on with the one it began with. */
#define SNAP_READERS 3

struct snap {
	struct node *node;
	pthread_t thread;
	pthread_mutex_t mu;
	pthread_cond_t wake;
	struct list queue; /* guarded by mu; struct snap_item */
	bool stop;         /* guarded by mu */
	/* snapshot thread */
	struct storage_snapshot_reader *reader; /* the one last used, or NULL */
	struct {
		struct storage_snapshot_reader *reader;
		uint64_t used_ms;
	} readers[SNAP_READERS];
	struct storage_snapshot_writer *writer; /* of what is received, or NULL */
	struct save *save;                      /* the snapshot of our own that is being written, or NULL */
};

/* See task.c. The functions are the core's thread's, but for work. */
struct task {
	struct list link;
	struct node *node;
	struct state view;
	bool busy;
	void (*work)(struct task *t); /* snapshot thread */
	void (*done)(struct task *t); /* the work is done; task_run again, or task_end */
	void (*tick)(struct task *t); /* NULL: nothing; a few times a second */
	void (*stop)(struct task *t); /* tell the caller */
	void (*free)(struct task *t); /* the view is closed */
};

struct waiting_message {
	struct list link;
	struct core_message message;
};

struct node {
	struct node_config config;
	struct inbox inbox;
	struct disk disk;
	struct snap snap;
	pthread_t thread;
	bool started;
	atomic_uint_fast64_t next_tag;
	atomic_bool failed; /* fatal() has been called */
	atomic_bool refuses_load; /* what core_refuses_load() said last */
	atomic_uint_fast64_t turn_ms; /* when the core's thread last had a turn; 0: not yet */

	/* core's thread */
	struct core *core;
	struct map64 calls;      /* tag -> struct submit_call */
	struct map64 streams;    /* tag -> struct submit_stream */
	struct list held_back;   /* struct waiting_message, in wait_seq order */
	struct list tasks;       /* struct task */
	size_t tasks_len;
	struct list backups;     /* those that have no view yet */
	uint64_t disk_queued, disk_done; /* seq of writes */
	uint64_t write_began_us;       /* the one under way, or the first of them */
	size_t batch_calls, write_calls; /* calls of the last batch; of the one that began the write */
	uint64_t gather_us;            /* for how long the next look at the inbox leaves calls there; see node.c */
	uint64_t ticked_ms; /* when the core last had a tick */
	uint64_t slow_told_ms;
	uint64_t looked_ms; /* when we last looked at the clock */

	pthread_mutex_t status_mu;
	pthread_cond_t status_changed;
	struct core_status status; /* guarded by status_mu */
	uint64_t leaderless_since; /* guarded by status_mu; counts while the status knows no leader */
	bool alone;                /* guarded by status_mu, written by the core's thread alone: nobody could take the lead */
};


void inbox_init(struct inbox *in);
void inbox_deinit(struct inbox *in);
void inbox_unlock_wake(struct inbox *in);
void inbox_put_done(struct node *n, struct inbox_item *item);
void inbox_put_disk_done(struct node *n, uint64_t seq);
enum err inbox_put_other(struct node *n, struct inbox_item *item); /* takes the item. ERR_OVERLOADED, ERR_STOPPED: to no effect */
void inbox_item_free(struct inbox_item *item);

void disk_start(struct disk *d, struct node *n);
void disk_stop(struct disk *d); /* finishes what is queued */
void disk_queue(struct disk *d, struct disk_item *item);
void disk_item_free(struct disk_item *item);

/* save.c; all on the snapshot thread */
void save_begin(struct snap *s, const struct snapshot_job *job);
uint64_t save_due_us(const struct snap *s);    /* when the next piece is; UINT64_MAX: none is left */
void save_step(struct snap *s);                /* writes it; the core is told when it was the last one */
void save_drop(struct snap *s);                /* gives up without a word */

void snap_start(struct snap *s, struct node *n);
void snap_stop(struct snap *s);
void snap_queue(struct snap *s, struct snapshot_job *job); /* takes its bytes */
void snap_queue_task(struct snap *s, struct task *t);

bool task_begin(struct task *t, struct node *n); /* opens its view; false: there are too many */
void task_run(struct task *t);
void task_work(struct task *t);                  /* snapshot thread */
void task_end(struct task *t);                   /* closes its view */
void tasks_tick(struct node *n);
void tasks_stop(struct node *n);
void tasks_free(struct node *n);

void hash_answer(struct node *n, struct submit_call *call, struct buf *reply);
void backup_open(struct node *n, struct submit_stream *s, uint64_t now);
void backup_step(struct node *n, const struct core_event *e); /* of a stream that is no backup: nothing */
void node_trace(void *ctx, const struct core_trace *t);

enum err node_load(struct node *n, struct errmsg *em); /* makes n->core from what is stored */
/* A state of chunks 0 .. chunks - 1. */
typedef enum err (*chunk_source)(void *ctx, uint64_t number, struct buf *ret, struct errmsg *em);
enum err node_decode_snapshot(struct node *n, uint64_t chunks, chunk_source source, void *ctx, struct state *ret, struct errmsg *em);
void node_fail(struct node *n, const char *reason);    /* any thread: the replica must stop; told once */

#endif
