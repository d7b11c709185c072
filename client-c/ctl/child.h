/* child.h: the COMMAND that runs while something is held, and all that it started.
 *
 * The COMMAND stays in our process group, so a terminal treats the two as one job. Should we be killed, the system kills it; what it started and left comes to
 * us, so that its end can be waited for too. */
#ifndef HOLDFAST_CTL_CHILD_H
#define HOLDFAST_CTL_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

struct child {
	pid_t pid;
	bool over;
	int status; /* of wait(2) */
};

/* argv ends with NULL; environment: NAME=VALUE to add or replace, ends with NULL. 0, or why it cannot be run (an errno). */
int child_start(struct child *c, char *const argv[], char *const environment[]);
void child_reap(struct child *c);     /* takes note of who has ended */
bool child_any_left(void);            /* the COMMAND or anything it started */
void child_signal_all(int signo);     /* to the COMMAND and all that it started */
int child_exit_code(const struct child *c); /* 128 + the signal when it was one */

#endif
