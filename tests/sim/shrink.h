/* shrink.h: a small run that fails as a large one does, and the flags of runs of which something is left out. */
#ifndef HOLDFAST_SIM_SHRINK_H
#define HOLDFAST_SIM_SHRINK_H

#include <time.h>

#include "sim.h"

struct shrink_options {
	uint32_t runs, seconds; /* at most so many, and so long */
	uint32_t jobs;
};

/* Prints a small run that fails by the same check as that of opts, and by how much it is smaller. False: that one does not fail, or cannot be made smaller. */
bool shrink(const struct sim_options *opts, const struct shrink_options *how);

double seconds_since(const struct timespec *t); /* main.c */

/* ---- trial.c: a run in a process of its own, of which nothing is seen but what became of it ---- */

struct trial {
	struct sim_options opts;
	struct verdict *verdict; /* shared; filled by trials_run() */
};
void trials_run(struct trial *trials, size_t len); /* all at the same time */
void *shared_zalloc(size_t size);                  /* seen by processes that are started later; not freed */

/* Runs the whole run of opts, of which nothing is left out, and notes its plan. */
struct plan *trial_plan(const struct sim_options *opts, struct verdict *ret);
void trial_make_plan(struct sim_options *opts); /* something is left out of it: has it go by the plan of the whole run */
void options_print(const struct sim_options *opts, const char *rest, FILE *to); /* as a command */

#endif
