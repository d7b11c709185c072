/* buf.c: owned, growing bytes. Capacity doubles, so that appending n bytes one by one copies fewer than 2n. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"

enum { BUF_CAP_MIN = 64 };

void buf_free(struct buf *b)
{
	if (!b)
		return;
	free(b->ptr);
	*b = (struct buf){ 0 };
}

void buf_clear(struct buf *b)
{
	b->len = 0;
}

void buf_grow(struct buf *b, size_t extra)
{
	size_t cap;

	ASSERT(extra <= SIZE_MAX / 4 && b->len <= SIZE_MAX / 4);
	cap = b->cap ? b->cap * 2 : BUF_CAP_MIN;
	if (cap < b->len + extra)
		cap = b->len + extra;
	b->ptr = mem_realloc(b->ptr, cap);
	b->cap = cap;
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list args;
	int len;

	buf_reserve(b, 32);
	va_start(args, fmt);
	len = vsnprintf((char *)b->ptr + b->len, b->cap - b->len, fmt, args);
	va_end(args);
	ASSERT(len >= 0);
	if ((size_t)len >= b->cap - b->len) {
		/* vsnprintf also writes a NUL, which needs room but is no part of the text */
		buf_reserve(b, (size_t)len + 1);
		va_start(args, fmt);
		len = vsnprintf((char *)b->ptr + b->len, b->cap - b->len, fmt, args);
		va_end(args);
		ASSERT(len >= 0 && (size_t)len < b->cap - b->len);
	}
	b->len += (size_t)len;
}

struct buf buf_take(struct buf *src)
{
	struct buf taken = *src;

	*src = (struct buf){ 0 };
	return taken;
}

struct buf buf_copy_of(struct slice s)
{
	struct buf copy = { 0 };

	if (s.len > 0) {
		copy.ptr = mem_alloc(s.len);
		memcpy(copy.ptr, s.ptr, s.len);
		copy.len = copy.cap = s.len;
	}
	return copy;
}
