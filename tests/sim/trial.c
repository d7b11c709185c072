/* trial.c: runs in processes of their own, as many at a time as are asked for, and what became of each: it came to its end, or failed, by which check. */
#include "shrink.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TRIALS_MAX = 64, TRIAL_SECONDS = 120 };

void *shared_zalloc(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	return p;
}

static struct world the_world;

/* An assertion, or worse. What it was stands in its last words. */
static void died(int sig)
{
	verdict_note(&the_world, "", "");
	signal(sig, SIG_DFL);
	raise(sig);
}

static _Noreturn void child(const struct trial *t, int words)
{
	if (dup2(words, STDERR_FILENO) < 0 || !freopen("/dev/null", "w", stdout))
		_exit(3);
	signal(SIGABRT, died);
	signal(SIGSEGV, died);
	alarm(TRIAL_SECONDS);
	the_world.opts = t->opts;
	the_world.opts.verdict = t->verdict;
	world_run(&the_world);
	t->verdict->over = true;
	_exit(0);
}

/* The first line that it wrote before it died, or the signal. */
static void read_last_words(struct verdict *v, int words, int status)
{
	ssize_t n = pread(words, v->check, sizeof v->check - 1, 0);

	v->failed = true;
	v->check[n > 0 ? n : 0] = '\0';
	v->check[strcspn(v->check, "\n")] = '\0';
	if (!v->check[0])
		snprintf(v->check, sizeof v->check, "%s", !WIFSIGNALED(status) ? "it ends with an error" : WTERMSIG(status) == SIGALRM ? "it does not come to an end" :
			 strsignal(WTERMSIG(status)));
	snprintf(v->text, sizeof v->text, "%s", v->check);
}

static void wait_for(struct trial *t, pid_t pid, int words)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!t->verdict->over && (!t->verdict->failed || !t->verdict->check[0]))
		read_last_words(t->verdict, words, status);
	close(words);
}

void trials_run(struct trial *trials, size_t len)
{
	pid_t pids[TRIALS_MAX];
	int words[TRIALS_MAX];

	ASSERT(len <= TRIALS_MAX);
	fflush(stdout);
	for (size_t i = 0; i < len; i++) {
		memset(trials[i].verdict, 0, sizeof *trials[i].verdict);
		words[i] = memfd_create("words", MFD_CLOEXEC);
		pids[i] = words[i] < 0 ? -1 : fork();
		if (pids[i] < 0) {
			perror("a run cannot be started");
			exit(2);
		}
		if (pids[i] == 0)
			child(&trials[i], words[i]);
	}
	for (size_t i = 0; i < len; i++)
		wait_for(&trials[i], pids[i], words[i]);
}

/* ---- the whole run ---- */

struct plan *trial_plan(const struct sim_options *opts, struct verdict *ret)
{
	struct trial t = { .opts = *opts, .verdict = shared_zalloc(sizeof *t.verdict) };
	struct plan *p = shared_zalloc(sizeof *p);

	t.opts.noted = p;
	t.opts.plan = NULL;
	t.opts.cut = NULL;
	t.opts.gap = t.opts.sooner = t.opts.heal = 0;
	t.opts.timing = 0;
	t.opts.trace = true;
	trials_run(&t, 1);
	*ret = *t.verdict;
	return p;
}

void trial_make_plan(struct sim_options *opts)
{
	struct verdict v;

	opts->plan = trial_plan(opts, &v);
}

/* ---- as a command ---- */

void options_print(const struct sim_options *o, const char *rest, FILE *to)
{
	fprintf(to, "scripts/sim --seed %llu", (unsigned long long)o->seed);
	if (o->replicas)
		fprintf(to, " --replicas %u", o->replicas);
	if (o->clients)
		fprintf(to, " --clients %u", o->clients);
	if (o->slots)
		fprintf(to, " --slots %u", o->slots);
	fprintf(to, " --seconds %u", o->seconds);
	if (o->trap)
		fprintf(to, " --trap %s", o->trap_list);
	if (o->cut && o->plan)
		cut_print(o->cut, o->plan->counts, to);
	if (o->gap)
		fprintf(to, " --gap %llu", (unsigned long long)(o->gap / SIM_MS));
	if (o->sooner)
		fprintf(to, " --sooner %llu", (unsigned long long)(o->sooner / SIM_MS));
	if (o->heal)
		fprintf(to, " --heal %llu", (unsigned long long)(o->heal / SIM_MS));
	if (o->timing)
		fprintf(to, " --timing %u", o->timing);
	fprintf(to, " %s\n", rest);
}
