#include "story.h"

#include <stdio.h>

#include "base/mem.h"

struct story {
	const char *path;
	struct slice rest;
	struct buf rewritten;
	int line, failed;
	bool rewrite;
	story_run_fn run;
	void *ctx;
};

bool story_line(struct slice *text, struct slice *ret_line)
{
	const uint8_t *end;

	if (text->len == 0)
		return false;
	end = memchr(text->ptr, '\n', text->len);
	*ret_line = slice_of(text->ptr, end ? (size_t)(end - text->ptr) : text->len);
	*text = slice_of(text->ptr + ret_line->len + (end ? 1 : 0), text->len - ret_line->len - (end ? 1 : 0));
	return true;
}

struct slice story_word(struct slice *line)
{
	struct slice word;

	while (line->len && line->ptr[0] == ' ')
		*line = slice_of(line->ptr + 1, line->len - 1);
	word = *line;
	for (word.len = 0; word.len < line->len && word.ptr[word.len] != ' ';)
		word.len++;
	*line = slice_of(line->ptr + word.len, line->len - word.len);
	return word;
}

static bool read_file(const char *path, struct buf *ret)
{
	FILE *f = fopen(path, "rb");
	char part[4096];
	size_t n;

	if (!f)
		return false;
	while ((n = fread(part, 1, sizeof(part), f)))
		buf_append(ret, part, n);
	n = (size_t)ferror(f);
	fclose(f);
	return n == 0;
}

static bool write_file(const char *path, struct slice bytes)
{
	FILE *f = fopen(path, "wb");
	bool ok = f && fwrite(bytes.ptr, 1, bytes.len, f) == bytes.len;

	return (!f || fclose(f) == 0) && ok;
}

static bool next_line(struct story *s, struct slice *ret)
{
	if (!story_line(&s->rest, ret))
		return false;
	s->line++;
	return true;
}

static void keep_line(struct buf *b, struct slice line)
{
	buf_append_slice(b, line);
	buf_append_byte(b, '\n');
}

/* Input has been read up to its "----". */
static void run_block(struct story *s, struct slice input)
{
	struct buf want = { 0 }, got = { 0 };
	struct slice line;
	int at = s->line;

	while (next_line(s, &line) && line.len)
		keep_line(&want, line);
	s->run(s->ctx, input, &got);
	if (!s->rewrite && !slice_eq(buf_view(&want), buf_view(&got))) {
		s->failed++;
		fprintf(stderr, "%s:%d: the block above it answers\n%.*s", s->path, at, (int)got.len, (const char *)got.ptr);
		fprintf(stderr, "and not\n%.*s", (int)want.len, (const char *)want.ptr);
	}
	buf_append_slice(&s->rewritten, buf_view(&got));
	if (s->rest.len)
		buf_append_byte(&s->rewritten, '\n');
	buf_free(&want);
	buf_free(&got);
}

static bool run_all(struct story *s)
{
	struct buf input = { 0 };
	struct slice line;

	while (next_line(s, &line)) {
		keep_line(&s->rewritten, line);
		if (slice_eq(line, slice_of_str("----"))) {
			run_block(s, buf_view(&input));
			buf_clear(&input);
		} else if (line.len && line.ptr[0] != '#') {
			keep_line(&input, line);
		}
	}
	line = buf_view(&input);
	buf_free(&input);
	return line.len == 0;
}

int story_file(const char *path, bool rewrite, story_run_fn run, void *ctx)
{
	struct story s = { .path = path, .rewrite = rewrite, .run = run, .ctx = ctx };
	struct buf text = { 0 };
	bool ok = read_file(path, &text);

	s.rest = buf_view(&text);
	if (ok && !run_all(&s)) {
		fprintf(stderr, "%s:%d: commands without a line \"----\" after them\n", path, s.line);
		ok = false;
	}
	if (ok && rewrite)
		ok = write_file(path, buf_view(&s.rewritten));
	if (!ok)
		fprintf(stderr, "%s: cannot be read, written or understood\n", path);
	buf_free(&text);
	buf_free(&s.rewritten);
	return ok ? s.failed : -1;
}
