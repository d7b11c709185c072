/* main.c: many seeds, each in a process of its own, so that an assertion that fails in one does not end the others.
 *
 *   sim [--seeds N] [--first SEED] [--minutes M] [--file FILE] [--seed SEED [--trace]] [--replicas R] [--clients C] [--seconds S] [--jobs J]
 *       [--slots K] [--one-failure]
 *   sim --seed SEED --shrink [--runs N] [--within S] [--trap LIST]                  --trap: fails once all of LIST have been there, to try it out
 *   sim --seed SEED [--without LIST] [--only LIST] [--gap MS] [--sooner MS] [--heal MS] [--timing N] [--trace]      as --shrink prints it (plan.h)
 *
 * Prints a line a failure with the command that replays it, then the totals, then "COUNT passed failed". */
#include "shrink.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FAILURES_MAX = 30, CHILD_SECONDS = 240, POOR_ONE_IN = 100 };

struct run {
	struct sim_options opts;
	uint64_t first, seeds;
	double minutes;
	const char *file;
	unsigned jobs;
	bool one_seed, one_failure, shrinks;
	struct shrink_options how;
	struct cut cut, trap;
	SIM_VEC(uint64_t) listed; /* of the file */
	uint64_t next;
	SIM_VEC(double) speeds; /* simulated seconds in one of a processor, of each run that is good */
	double processor;       /* seconds, of those */
	struct timespec began;
	struct totals totals;
};

struct job {
	pid_t pid;
	int fd;
	uint64_t seed;
};

double seconds_since(const struct timespec *t)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - t->tv_sec) + (double)(now.tv_nsec - t->tv_nsec) / 1e9;
}

/* ---- one seed ---- */

static struct world the_world;

static void run_one(const struct run *run, uint64_t seed)
{
	struct world *w = &the_world;

	memset(w, 0, sizeof *w);
	w->opts = run->opts;
	w->opts.seed = seed;
	world_run(w);
}

static void child(const struct run *run, uint64_t seed, int fd)
{
	alarm(CHILD_SECONDS);
	run_one(run, seed);
	if (write(fd, &the_world.totals, sizeof the_world.totals) != (ssize_t)sizeof the_world.totals)
		exit(3);
	exit(0);
}

static void start(struct run *run, struct job *j, uint64_t seed)
{
	int fds[2];

	if (pipe(fds) != 0) {
		perror("pipe");
		exit(2);
	}
	fflush(stdout);
	j->seed = seed;
	j->pid = fork();
	if (j->pid == 0) {
		close(fds[0]);
		child(run, seed, fds[1]);
	}
	close(fds[1]);
	j->fd = fds[0];
}

/* ---- totals ---- */

static void add(struct totals *to, const struct totals *t)
{
	uint64_t *a = (uint64_t *)to;
	const uint64_t *b = (const uint64_t *)t;

	for (size_t i = 0; i < sizeof *t / sizeof *a; i++)
		a[i] += b[i];
}

static double seconds_of(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }

static void note_speed(struct run *run, const struct totals *t, const struct rusage *used)
{
	double took = seconds_of(used->ru_utime) + seconds_of(used->ru_stime);

	run->processor += took;
	*SIM_PUSH(&run->speeds) = (double)t->sim_us / 1e6 / (took > 1e-6 ? took : 1e-6);
}

static void print_commands(const struct sim_options *opts, uint64_t seed)
{
	struct sim_options failed = *opts;

	failed.seed = seed;
	printf("     replay: ");
	options_print(&failed, "--trace", stdout);
	if (!failed.plan) {
		printf("     smaller: ");
		options_print(&failed, "--shrink", stdout);
	}
	fflush(stdout);
}

static void finish(struct run *run, struct job *j)
{
	struct totals t;
	struct rusage used;
	int status = 0;
	bool ok = read(j->fd, &t, sizeof t) == (ssize_t)sizeof t;

	close(j->fd);
	while (wait4(j->pid, &status, 0, &used) < 0 && errno == EINTR)
		;
	if (ok && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		add(&run->totals, &t);
		note_speed(run, &t, &used);
		j->pid = 0;
		return;
	}
	run->totals.failed++;
	if (WIFSIGNALED(status))
		printf("FAIL seed %llu: %s\n", (unsigned long long)j->seed,
		       WTERMSIG(status) == SIGALRM ? "it does not come to an end" : WTERMSIG(status) == SIGABRT ? "an assertion failed" : strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) != 1)
		printf("FAIL seed %llu: status %d\n", (unsigned long long)j->seed, WEXITSTATUS(status));
	print_commands(&run->opts, j->seed);
	j->pid = 0;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* By the processor's time of each run, from its fork to its end: what else the machine does does not count. */
static void print_speed(struct run *run)
{
	const struct totals *t = &run->totals;
	const double *v = run->speeds.at;
	size_t n = run->speeds.len;

	if (n == 0)
		return;
	qsort(run->speeds.at, n, sizeof *run->speeds.at, by_size);
	printf("TOTAL speed: %.0f times real time on one processor: the slowest run %.0f, a tenth below %.0f, median %.0f, the fastest %.0f; %.1f operations "
	       "a second of each client while it works\n",
	       (double)t->sim_us / 1e6 / run->processor, v[0], v[n / 10], v[n / 2], v[n - 1], (double)t->operations * 1e6 / (double)t->work_us);
}

/* Runs that prove little are rare, or something is wrong with what is drawn, or with the cell. */
static void judge_worth(struct run *run)
{
	if (run->totals.poor <= 2 + run->totals.seeds / POOR_ONE_IN)
		return;
	printf("FAIL worth: %llu of %llu runs prove little (--trace says why)\n", (unsigned long long)run->totals.poor, (unsigned long long)run->totals.seeds);
	run->totals.failed++;
}

#define N(x) (unsigned long long)t->x

static void print_totals(struct run *run)
{
	const struct totals *t = &run->totals;
	double took = seconds_since(&run->began);

	printf("TOTAL %llu seeds, %llu simulated seconds in %.1f s: %.1f seeds/s, %.0f times real time\n", N(seeds), N(sim_us) / SIM_SECOND, took,
	       (double)t->seeds / took, (double)t->sim_us / 1e6 / took);
	print_speed(run);
	printf("TOTAL faults: %llu crashes, %llu partitions, %llu pauses, %llu disk stalls, %llu slow links, %llu of %llu packets lost, %llu client stops\n",
	       N(crashes), N(partitions), N(pauses), N(stalls), N(slow_links), N(lost_packets), N(packets), N(client_freezes));
	printf("TOTAL more faults: %llu leads handed over, %llu disks exchanged, %llu damaged (%llu lost what was acknowledged)\n", N(transfers), N(wipes), N(damages), N(losses));
	printf("TOTAL cells: %llu elections, %llu leader changes, %llu entries, %llu snapshots, %llu installs (%llu chunks; %llu went on after a crash, %llu thrown away), "
	       "%llu proposals made anew, %llu compactions\n",
	       N(elections), N(leader_changes), N(entries), N(snapshots), N(installs), N(chunks), N(resumed), N(parts_dropped), N(anew), N(compactions));
	printf("TOTAL clients: %llu requests, %llu acknowledged writes, %llu reads, %llu keep-alives, %llu outcomes unknown, %llu cancels\n", N(requests),
	       N(writes), N(reads), N(keep_alives), N(unknown), N(cancels));
	printf("TOTAL locks: %llu grants told, %llu hand-overs, %llu refusals, %llu campaigns, %llu by etcd's recipe, %llu leases ended by time\n", N(grants),
	       N(hand_overs), N(lock_refusals), N(campaigns), N(recipes), N(lease_ends));
	printf("TOTAL watches: %llu events told, %llu cancelled by compaction, %llu leaders and values observed\n", N(watch_events), N(watch_cancels),
	       N(observed));
	printf("TOTAL members: %llu changes, %llu refused, %llu processes joined, %llu removed ones stopped\n", N(changes), N(changes_refused), N(joined), N(removed));
	printf("TOTAL request IDs: %llu sent again, %llu answered from the table\n", N(retries), N(repeated));
	printf("TOTAL caches: %llu sessions, %llu things cached, %llu reads from caches, %llu invalidations, %llu watches fired, %llu writes made to wait\n", N(sessions),
	       N(cached), N(cached_reads), N(invalidations), N(watch_fires), N(gated));
	printf("TOTAL library: %llu sessions, %llu in jeopardy, %llu reads from memory, %llu writes, %llu values told, %llu holds granted, %llu lost, "
	       "%llu leaders told; %llu sessions in calm runs\n",
	       N(library_sessions), N(library_jeopardies), N(library_hits), N(library_writes), N(library_told), N(library_grants), N(library_lost),
	       N(library_leaders), N(library_calm));
	if (t->poor > 0)
		printf("TOTAL worth: %llu runs prove little\n", N(poor));
	printf("COUNT %llu %llu\n", N(seeds), N(failed));
}

/* ---- all of them ---- */

static bool next_seed(struct run *run, uint64_t *ret)
{
	uint64_t n = run->next++;

	if (run->totals.failed >= (run->one_failure ? 1 : FAILURES_MAX))
		return false;
	if (n < run->listed.len) {
		*ret = run->listed.at[n];
		return true;
	}
	n -= run->listed.len;
	if (run->minutes > 0 ? seconds_since(&run->began) > run->minutes * 60 : n >= run->seeds)
		return false;
	*ret = run->first + n;
	return true;
}

static void run_all(struct run *run)
{
	struct job jobs[64] = { { 0 } };
	uint64_t seed;
	size_t running = 0;
	bool more = true;

	for (;;) {
		int status;
		siginfo_t info = { 0 };

		for (size_t i = 0; more && i < run->jobs; i++) {
			if (jobs[i].pid)
				continue;
			more = next_seed(run, &seed);
			if (more) {
				start(run, &jobs[i], seed);
				running++;
			}
		}
		if (running == 0)
			return;
		(void)status;
		if (waitid(P_ALL, 0, &info, WEXITED | WNOWAIT) != 0)
			continue;
		for (size_t i = 0; i < run->jobs; i++) {
			if (jobs[i].pid == info.si_pid) {
				finish(run, &jobs[i]);
				running--;
			}
		}
	}
}

static void read_file(struct run *run)
{
	FILE *f = fopen(run->file, "r");
	char line[256];

	if (!f) {
		perror(run->file);
		exit(2);
	}
	while (fgets(line, sizeof line, f)) {
		char *end;
		unsigned long long seed = strtoull(line, &end, 10);

		if (end != line)
			*SIM_PUSH(&run->listed) = seed;
	}
	fclose(f);
}

static const struct cut *parse_list(struct cut *c, const char *list, bool only)
{
	char why[96];

	if (!cut_parse(c, list, only, why)) {
		fprintf(stderr, "sim: %s\n", why);
		exit(2);
	}
	return c;
}

/* What has a value. False: it is none of them. */
static bool parse_value(struct run *run, const char *a, const char *v)
{
	struct { const char *name; uint32_t *at; } numbers[] = {
		{ "--replicas", &run->opts.replicas }, { "--clients", &run->opts.clients }, { "--slots", &run->opts.slots }, { "--seconds", &run->opts.seconds },
		{ "--timing", &run->opts.timing }, { "--jobs", &run->jobs }, { "--runs", &run->how.runs }, { "--within", &run->how.seconds },
	};

	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		if (!strcmp(a, numbers[i].name)) {
			*numbers[i].at = (uint32_t)strtoul(v, NULL, 10);
			return true;
		}
	}
	if (!strcmp(a, "--seeds")) {
		run->seeds = strtoull(v, NULL, 10);
	} else if (!strcmp(a, "--first")) {
		run->first = strtoull(v, NULL, 10);
	} else if (!strcmp(a, "--seed")) {
		run->first = strtoull(v, NULL, 10);
		run->seeds = 1;
		run->one_seed = true;
	} else if (!strcmp(a, "--minutes")) {
		run->minutes = strtod(v, NULL);
	} else if (!strcmp(a, "--file")) {
		run->file = v;
	} else if (!strcmp(a, "--without") || !strcmp(a, "--only")) {
		run->opts.cut = parse_list(&run->cut, v, !strcmp(a, "--only"));
	} else if (!strcmp(a, "--trap")) {
		run->opts.trap = parse_list(&run->trap, v, false);
		run->opts.trap_list = v;
	} else if (!strcmp(a, "--gap")) {
		run->opts.gap = strtoull(v, NULL, 10) * SIM_MS;
	} else if (!strcmp(a, "--sooner")) {
		run->opts.sooner = strtoull(v, NULL, 10) * SIM_MS;
	} else if (!strcmp(a, "--heal")) {
		run->opts.heal = strtoull(v, NULL, 10) * SIM_MS;
	} else {
		return false;
	}
	return true;
}

static bool parse_flag(struct run *run, const char *a)
{
	if (!strcmp(a, "--trace"))
		run->opts.trace = true;
	else if (!strcmp(a, "--one-failure"))
		run->one_failure = true;
	else if (!strcmp(a, "--shrink"))
		run->shrinks = true;
	else
		return false;
	return true;
}

static bool leaves_something_out(const struct run *run)
{
	return run->opts.cut || run->opts.gap || run->opts.sooner || run->opts.heal || run->opts.timing;
}

static void parse(struct run *run, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (i + 1 < argc && parse_value(run, argv[i], argv[i + 1])) {
			i++;
		} else if (!parse_flag(run, argv[i])) {
			fprintf(stderr, "sim: unknown option '%s', or no value for it\n", argv[i]);
			exit(2);
		}
	}
	if (run->opts.replicas > REPLICAS_MAX || run->opts.clients > CLIENTS_MAX || run->opts.slots > KV_SLOTS_MAX || run->opts.seconds < 30 || run->jobs < 1 || run->jobs > 64) {
		fprintf(stderr, "sim: at most %d replicas, %d clients and %d calls of each, at least 30 seconds, 1 to 64 jobs\n", REPLICAS_MAX, CLIENTS_MAX,
			KV_SLOTS_MAX);
		exit(2);
	}
	if ((leaves_something_out(run) || run->shrinks) && !run->one_seed) {
		fprintf(stderr, "sim: what is left out, and what is to be shrunk, is of one run: --seed SEED\n");
		exit(2);
	}
	if (run->shrinks && leaves_something_out(run)) {
		fprintf(stderr, "sim: only a whole run can be shrunk\n");
		exit(2);
	}
}

int main(int argc, char **argv)
{
	static struct run run = { .first = 1, .seeds = 100, .jobs = 2, .opts = { .seconds = 60 }, .how = { .runs = 20000, .seconds = 60 } };

	parse(&run, argc, argv);
	run.opts.seed = run.first;
	run.how.jobs = run.jobs;
	if (run.shrinks)
		return shrink(&run.opts, &run.how) ? 0 : 1;
	if (leaves_something_out(&run))
		trial_make_plan(&run.opts);
	clock_gettime(CLOCK_MONOTONIC, &run.began);
	if (run.file)
		read_file(&run);
	if (run.opts.trace) { /* in this process: for a debugger */
		setvbuf(stdout, NULL, _IOLBF, 0); /* what came before an assertion that failed is seen */
		run_one(&run, run.first);
		puts("the run is good");
		return 0;
	}
	run_all(&run);
	judge_worth(&run);
	print_totals(&run);
	free(run.listed.at);
	free(run.speeds.at);
	return run.totals.failed ? 1 : 0;
}
