/* mem.c: allocation that ends the process instead of failing.
 *
 * The last words are put together by hand and leave by one write(2): when memory has run out, or a struct is known
 * to be wrong, stdio and its locks are not to be relied on. */
#include "base/mem.h"

#include <string.h>
#include <unistd.h>

#include "base/slice.h"

struct last_words {
	char text[512];
	size_t len;
};

static void say(struct last_words *w, const char *text)
{
	size_t room = sizeof(w->text) - 1 - w->len; /* the last byte is kept for the line feed */
	size_t len = strlen(text);

	if (len > room)
		len = room;
	memcpy(w->text + w->len, text, len);
	w->len += len;
}

static void say_number(struct last_words *w, size_t n)
{
	char digits[24];
	size_t at = sizeof(digits) - 1;

	digits[at] = '\0';
	do {
		digits[--at] = (char)('0' + n % 10);
		n /= 10;
	} while (n > 0);
	say(w, digits + at);
}

static _Noreturn void die(struct last_words *w)
{
	w->text[w->len++] = '\n';
	if (write(STDERR_FILENO, w->text, w->len) < 0) {
		/* nobody left to tell */
	}
	abort();
}

static _Noreturn void die_out_of_memory(size_t size)
{
	struct last_words w = { .len = 0 };

	say(&w, "out of memory, asked for bytes: ");
	say_number(&w, size);
	die(&w);
}

void *mem_alloc(size_t size)
{
	void *ptr = malloc(size ? size : 1);

	if (!ptr)
		die_out_of_memory(size);
	return ptr;
}

void *mem_zalloc(size_t size)
{
	void *ptr = calloc(1, size ? size : 1);

	if (!ptr)
		die_out_of_memory(size);
	return ptr;
}

void *mem_realloc(void *ptr, size_t size)
{
	void *moved = realloc(ptr, size ? size : 1);

	if (!moved)
		die_out_of_memory(size);
	return moved;
}

_Noreturn void mem_assert_failed(const char *expr, const char *file, int line)
{
	struct last_words w = { .len = 0 };

	say(&w, "assert failed: ");
	say(&w, expr);
	say(&w, ", ");
	say(&w, file);
	say(&w, ":");
	say_number(&w, (size_t)line);
	die(&w);
}
