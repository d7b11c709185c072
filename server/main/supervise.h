/* supervise.h: the main thread's work once all is started: waits for the end, and tells log and supervisor how far this replica is. */
#ifndef HOLDFAST_MAIN_SUPERVISE_H
#define HOLDFAST_MAIN_SUPERVISE_H

#include <stdbool.h>

struct node;

struct supervise_config {
	struct node *node;
	int signal_fd, fatal_fd;
	const char *name, *address, *data_dir, *version, *etcd_version;
	unsigned long long member, cell;
	void *ctx;
	void (*tick)(void *ctx);    /* at least every second */
	void (*hang_up)(void *ctx); /* SIGHUP */
};

/* True: a signal asked for the end. False: fatal_fd. */
bool supervise(const struct supervise_config *config);

#endif
