/* slice.h: borrowed bytes. A slice never owns: do not free it, do not keep it past its lender's call. */
#ifndef HOLDFAST_BASE_SLICE_H
#define HOLDFAST_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct slice {
	const uint8_t *ptr; /* may be NULL only when len is 0 */
	size_t len;
};

static inline struct slice slice_of(const void *ptr, size_t len)
{
	return (struct slice){ .ptr = ptr, .len = len };
}

static inline struct slice slice_of_str(const char *str)
{
	return (struct slice){ .ptr = (const uint8_t *)str, .len = strlen(str) };
}

/* Byte order, then length: the order of keys in the store. Negative, zero or positive. */
static inline int slice_cmp(struct slice a, struct slice b)
{
	size_t n = a.len < b.len ? a.len : b.len;
	int c = n ? memcmp(a.ptr, b.ptr, n) : 0;
	return c ? c : (a.len > b.len) - (a.len < b.len);
}

static inline bool slice_eq(struct slice a, struct slice b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool slice_starts_with(struct slice s, struct slice prefix)
{
	return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

#endif
