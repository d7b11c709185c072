/* story.h: files of "commands, ----, what they answer", run and compared, or rewritten with what they answer now.
 *
 * A file is a row of blocks, separated by an empty line. A block is lines of input, a line "----" and the lines of output (none empty).
 * Lines that begin with '#' tell the story; they may stand before any block. */
#ifndef HOLDFAST_TEST_LOCK_STORY_H
#define HOLDFAST_TEST_LOCK_STORY_H

#include "base/buf.h"

/* Runs one block: input is its lines, each ended by a newline; output is appended, each line ended by a newline. */
typedef void (*story_run_fn)(void *ctx, struct slice input, struct buf *output);

/* Returns how many blocks answered otherwise (each told on stderr), or -1 when the file cannot be read, written or understood. */
int story_file(const char *path, bool rewrite, story_run_fn run, void *ctx);
/* The next line of *text without its newline; *text moves on. False at the end. */
bool story_line(struct slice *text, struct slice *ret_line);
/* The next word of *line; empty at the end. */
struct slice story_word(struct slice *line);

#endif
