/* control.h: how a test tells a process that runs already what a preloaded library is to do: in a file that the process has mapped. */
#ifndef HOLDFAST_TEST_CONTROL_H
#define HOLDFAST_TEST_CONTROL_H

#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The first `len` bytes of the file that the environment names; NULL: none. Not from a constructor: the first call may come from another library's. */
static inline const volatile void *control_of(const char *variable, size_t len)
{
	static const volatile void *mapped;
	static bool tried;

	if (!tried) {
		const char *path = getenv(variable);
		int fd;

		tried = true; /* before open(), which may be such a library's own */
		fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
		if (fd >= 0) {
			void *map = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);

			mapped = map == MAP_FAILED ? NULL : map;
			close(fd);
		}
	}
	return mapped;
}

/* The call that a library of this kind stands in front of. */
static inline void *next(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f)
		abort();
	return f;
}

#endif
