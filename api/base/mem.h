/* mem.h: allocation that does not fail, and asserts that stay on in release.
 * Out of memory and a failed ASSERT print one line to stderr and abort: the replica restarts as after a crash. */
#ifndef HOLDFAST_BASE_MEM_H
#define HOLDFAST_BASE_MEM_H

#include <stddef.h>
#include <stdlib.h>

void *mem_alloc(size_t size);              /* never NULL, free() it */
void *mem_zalloc(size_t size);             /* zeroed */
void *mem_realloc(void *ptr, size_t size);
_Noreturn void mem_assert_failed(const char *expr, const char *file, int line);

/* An assert says that we are wrong; never use it on input from outside. */
#define ASSERT(expr) ((expr) ? (void)0 : mem_assert_failed(#expr, __FILE__, __LINE__))
#define ASSERT_IF(cond, expr) ASSERT(!(cond) || (expr))

/* The struct that holds member `m` at `ptr`. */
#define CONTAINER_OF(ptr, type, m) ((type *)(void *)((char *)(ptr) - offsetof(type, m)))

#endif
