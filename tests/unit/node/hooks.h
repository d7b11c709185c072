/* hooks.h: a hand between the node and its disk, and between the node and its core (by the linker's --wrap).
 *
 * Each replica's storage has one struct hooks: commits can be held up or made to fail, space can be feigned, and what is durable is noted as it
 * becomes so. Steps of cores are shown to one function of the test's. */
#ifndef HOLDFAST_TESTS_NODE_HOOKS_H
#define HOLDFAST_TESTS_NODE_HOOKS_H

#include <pthread.h>

#include "core/core.h"
#include "storage/storage.h"

#define HOOKS_MAX 8
#define HOOKS_WRITERS 4

struct hooks {
	struct storage *storage;
	pthread_mutex_t mu;
	pthread_cond_t changed;
	/* guarded by mu: what the test asks for */
	bool gate;              /* commits wait */
	enum err fail;          /* what the next fail_times commits say, without being made */
	unsigned fail_times;
	bool fail_until_release; /* ERR_DISK_FULL until the ballast is released */
	unsigned install_full_times; /* ERR_DISK_FULL for so many tries to put a received snapshot in force */
	enum err read_fail;     /* what storage_read says */
	uint64_t free_bytes;    /* not 0: what storage_space says */
	/* guarded by mu: what was seen */
	uint64_t durable_index, durable_term, durable_vote;
	uint64_t commits, in_commit, most_entries, cuts;
	uint64_t releases, restores, installs, created;
	struct storage_snapshot_writer *writers[HOOKS_WRITERS];
};

void hooks_init(struct hooks *h);
void hooks_deinit(struct hooks *h);
void hooks_attach(struct hooks *h, struct storage *st); /* before the node is made */
void hooks_detach(struct hooks *h);

void hooks_gate(struct hooks *h, bool on);
void hooks_fail(struct hooks *h, enum err e, unsigned times);
void hooks_full_until_release(struct hooks *h);
void hooks_install_full(struct hooks *h, unsigned times);
void hooks_read_fail(struct hooks *h, enum err e);
void hooks_free_bytes(struct hooks *h, uint64_t bytes);
struct hooks hooks_look(struct hooks *h); /* a copy, to read the figures of */

/* On the thread of the core, before each step. Set before nodes start. */
extern void (*hooks_on_step)(struct core *c, const struct core_event *event);
/* On the snapshot thread, before each chunk of any replica's snapshot is written; on the core's, when the snapshot thread has been given a task. */
extern void (*hooks_on_snapshot_write)(uint64_t chunk);
extern void (*hooks_on_task)(void);

#endif
