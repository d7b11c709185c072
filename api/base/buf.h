/* buf.h: owned, growing bytes. Zero-initialised is empty and valid. Running out of memory ends the process
 * (see mem.h): a replica that cannot allocate cannot keep its promises, and restarts as after a crash. */
#ifndef HOLDFAST_BASE_BUF_H
#define HOLDFAST_BASE_BUF_H

#include "base/slice.h"

struct buf {
	uint8_t *ptr;
	size_t len, cap;
};

void buf_free(struct buf *b);                          /* leaves *b empty; NULL is fine */
void buf_clear(struct buf *b);                         /* length 0, capacity kept */
void buf_grow(struct buf *b, size_t extra);            /* of buf_reserve alone */
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct buf buf_take(struct buf *src);                  /* moves: *src is empty afterwards */
struct buf buf_copy_of(struct slice s);                /* a new owner of the same bytes */

static inline void buf_reserve(struct buf *b, size_t extra) /* room for `extra` more bytes */
{
	if (extra > b->cap - b->len)
		buf_grow(b, extra);
}

static inline void buf_append(struct buf *b, const void *ptr, size_t len) /* never from *b itself */
{
	if (len == 0)
		return;
	buf_reserve(b, len);
	memcpy(b->ptr + b->len, ptr, len);
	b->len += len;
}

static inline void buf_append_slice(struct buf *b, struct slice s)
{
	buf_append(b, s.ptr, s.len);
}

static inline void buf_append_byte(struct buf *b, uint8_t byte)
{
	buf_reserve(b, 1);
	b->ptr[b->len++] = byte;
}

static inline struct slice buf_view(const struct buf *b) /* dies with the next change of *b */
{
	return (struct slice){ .ptr = b->ptr, .len = b->len };
}

#endif
