/* table.c: cells in rows, printed with columns as wide as their widest cell. */
#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "out.h"
#include "text.h"

enum { CELL_MAX = 256 }; /* characters of a cell; what is longer is cut, with "..." */

static void cell_done(struct table *t)
{
	if (t->len == t->cap) {
		t->cap = t->cap ? t->cap * 2 : 64;
		t->ends = mem_realloc(t->ends, t->cap * sizeof(t->ends[0]));
	}
	t->ends[t->len++] = t->text.len;
}

void table_cell(struct table *t, const char *fmt, ...)
{
	char text[CELL_MAX + 1];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	buf_append(&t->text, text, strlen(text));
	cell_done(t);
}

void table_cell_bytes(const struct out *o, struct table *t, struct slice s)
{
	struct buf b = { .ptr = NULL };
	bool cut = s.len > CELL_MAX;
	if (cut)
		s.len = CELL_MAX;
	/* Not in the middle of a character. */
	while (cut && !o->hex && s.len > CELL_MAX - 4 && !text_is_utf8(s))
		s.len--;
	if (o->hex) {
		text_to_hex(s, &t->text);
	} else if (text_is_utf8(s)) {
		out_json_string(s, &b);
		buf_append(&t->text, b.ptr + 1, b.len - 2);
	} else {
		for (size_t i = 0; i < s.len; i++)
			buf_printf(&t->text, s.ptr[i] >= 0x20 && s.ptr[i] < 0x7f ? "%c" : "\\x%02x", s.ptr[i]);
	}
	if (cut)
		buf_printf(&t->text, "...");
	cell_done(t);
	buf_free(&b);
}

void table_head_done(struct table *t)
{
	t->columns = t->len;
}

static struct slice cell(const struct table *t, size_t i)
{
	size_t begin = i ? t->ends[i - 1] : 0;
	return slice_of(t->text.ptr + begin, t->ends[i] - begin);
}

static size_t width_of(struct slice s)
{
	size_t n = 0;
	for (size_t i = 0; i < s.len; i++)
		n += (s.ptr[i] & 0xc0) != 0x80;
	return n;
}

void table_print(const struct table *t, struct buf *ret)
{
	size_t *widths = mem_zalloc((t->columns ? t->columns : 1) * sizeof(widths[0]));
	ASSERT(t->columns > 0 && t->len % t->columns == 0);
	for (size_t i = 0; i < t->len; i++) {
		size_t w = width_of(cell(t, i));
		if (w > widths[i % t->columns])
			widths[i % t->columns] = w;
	}
	for (size_t i = 0; i < t->len; i++) {
		struct slice s = cell(t, i);
		bool last = i % t->columns == t->columns - 1;
		buf_append_slice(ret, s);
		for (size_t w = width_of(s); !last && w < widths[i % t->columns] + 2; w++)
			buf_append_byte(ret, ' ');
		if (last) {
			/* No blanks at the end of a line. */
			while (ret->len && ret->ptr[ret->len - 1] == ' ')
				ret->len--;
			buf_append_byte(ret, '\n');
		}
	}
	free(widths);
}

void table_free(struct table *t)
{
	buf_free(&t->text);
	free(t->ends);
	*t = (struct table){ .len = 0 };
}
