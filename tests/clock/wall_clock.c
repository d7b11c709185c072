/* wall_clock.c: a library to be preloaded, with which the wall clock of a process jumps on demand.
 *
 * WALL_CLOCK names a file of eight bytes that the test changes while the process runs: seconds that are added to the time of day, as int64_t. Clocks that
 * are not the time of day are left as they are. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t offset(void)
{
	static const volatile int64_t *added;
	static bool tried;

	if (!added && !tried) {
		const char *path = getenv("WALL_CLOCK");
		int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

		tried = true;
		if (fd >= 0) {
			void *map = mmap(NULL, sizeof *added, PROT_READ, MAP_SHARED, fd, 0);

			added = map == MAP_FAILED ? NULL : map;
			close(fd);
		}
	}
	return added ? *added : 0;
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	static int (*real)(clockid_t, struct timespec *);
	int rc;

	if (!real)
		real = (int (*)(clockid_t, struct timespec *))(uintptr_t)dlsym(RTLD_NEXT, "clock_gettime");
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
