/* steps.h: the system calls by which storage changes what is on disk, counted, so that a process can be ended between any two of them. */
#ifndef HOLDFAST_TEST_STORAGE_STEPS_H
#define HOLDFAST_TEST_STORAGE_STEPS_H

enum { STEPS_CRASHED = 77, STEPS_UNSYNCED = 78, STEPS_CRASHED_LATE = 79 };

/* Ends this process before its n-th step from now on (0: never), and from now on syncs nothing: a process that is ended keeps the page cache. With
 * STEPS_CRASHED; with STEPS_UNSYNCED where a file is given another name, or a second one, while what was written to it may not be on disk. */
void steps_begin(unsigned n);
void steps_sync(void);               /* from now on syncs do what they say, for a test that cuts the power */
void steps_end_with(int status);     /* from now on, instead of STEPS_CRASHED */

#endif
