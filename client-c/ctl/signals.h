/* signals.h: signals as facts that the one main thread looks at, and that wake it wherever it waits.
 *
 * A thread of its own takes them. A stop (SIGINT, SIGTERM, SIGHUP, the parent's death) that the main thread does not look at within a second, since it is
 * stuck in a write or in a look-up, ends the process; so does the second one, or the third while it is guarded. */
#ifndef HOLDFAST_CTL_SIGNALS_H
#define HOLDFAST_CTL_SIGNALS_H

#include <stdbool.h>

void signals_block(void);         /* before any other thread begins, and once */
/* From now on wake(arg) may be called from the thread of the signals, until signals_stop. */
void signals_start(void (*wake)(void *arg), void *arg);
void signals_stop(void);

int signals_stopped(void);        /* the first signal that asks to stop; 0: none */
int signals_stop_count(void);     /* how many did */
bool signals_child_changed(void); /* SIGCHLD since the last call */
int signals_fd(void);             /* readable once a stop was asked for: for poll() */
void signals_guard(void);         /* something is being held: release it before the end */

/* Stops this process when its parent dies, which is looked for from now on. */
void signals_follow_parent(void);
/* In a child between fork and exec: everything as it was before signals_block. */
void signals_reset_in_child(void);

#endif
