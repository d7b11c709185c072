/* wall_clock.c: a library to be preloaded, with which the wall clock of a process jumps on demand.
 *
 * WALL_CLOCK names a file of eight bytes that the test changes while the process runs: seconds that are added to the time of day, as int64_t. Clocks that
 * are not the time of day are left as they are. */
#include "control.h"

#include <stdint.h>
#include <sys/time.h>
#include <time.h>

static int64_t offset(void)
{
	const volatile int64_t *added = control_of("WALL_CLOCK", sizeof *added);

	return added ? *added : 0;
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	static int (*real)(clockid_t, struct timespec *);
	int rc;

	if (!real)
		real = (int (*)(clockid_t, struct timespec *))(uintptr_t)next("clock_gettime");
	rc = real(clock, ret);
	if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		ret->tv_sec += offset();
	return rc;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
	struct timespec ts;
	int rc = clock_gettime(CLOCK_REALTIME, &ts);

	(void)zone;
	if (rc == 0) {
		ret->tv_sec = ts.tv_sec;
		ret->tv_usec = ts.tv_nsec / 1000;
	}
	return rc;
}

time_t time(time_t *ret)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_REALTIME, &ts))
		return -1;
	if (ret)
		*ret = ts.tv_sec;
	return ts.tv_sec;
}
