/* help.h: explanations, made from the tables of args.h. */
#ifndef HOLDFAST_CTL_HELP_H
#define HOLDFAST_CTL_HELP_H

#include "args.h"

void help_all(const char *group);               /* the commands of a group ("lease"), or all of them with NULL */
void help_command(const struct command *cmd);
void help_man(void);                            /* the man page, as roff */
/* For the completion in a shell: what may come next after these words, one a line. */
void help_words(const char *const *words, int len);

extern const char help_exit_codes[];            /* lines "CODE  MEANING" */

#endif
