/* shrink.c: makes a run that fails smaller, as long as it fails by the same check.
 *
 * Left out are those who take part, single faults, traits of the network, of disks and of the cell's limits, and kinds of calls, by halves (reduce.c); then
 * the last replicas; and what is left to go wrong is moved toward the beginning, and the healing after it. With anything left out the messages there are, and
 * so how long each takes, are others: so each try is of a few runs in which that is drawn anew, and the first that fails counts. It goes round until nothing
 * goes any more, or until it has taken its runs or its time: a few times from the whole run down, and on from the smallest that was found.
 *
 *   (K1) what is printed has been run, and failed by the same check; by another only if it says so.
 *   (K2) nothing is kept that makes the run longer by more than a moment: what has not failed by then is good. */
#include "shrink.h"

#include "reduce.h"

enum { THINGS_MAX = PLAN_EVENTS + 256, PATIENCE_MIN = 2, PATIENCE_LOW = 16, PATIENCE_MAX = 64, DESCENTS = 4, STEPS = 6 };
#define LONGER (200 * SIM_MS)
#define GAP_MIN (200 * SIM_MS)
#define HEAL_MIN (2 * SIM_SECOND)

struct thing {
	enum piece piece;
	uint32_t number;
	sim_us at; /* of a fault */
};

struct shrink {
	const struct shrink_options *how;
	struct timespec began;
	struct trial *trials;  /* as many as jobs */
	struct plan *plan;
	struct thing things[THINGS_MAX];
	size_t things_len;
	bool out[THINGS_MAX];
	uint32_t runs, timings, patience; /* timings drawn; how many are tried of each */
	bool tired;
	struct sim_options whole;
	struct sim_options best;     /* with best_cut */
	struct cut *best_cut, *cuts; /* shared; one a job */
	struct verdict first, is;
	struct sim_options other;    /* the smallest run that fails by another check; seed 0: none */
	struct cut other_cut;
	struct verdict other_is;
};

struct descent { /* where one ended */
	struct sim_options best;
	struct cut cut;
	struct verdict is;
	bool out[THINGS_MAX];
};

/* ---- tries ---- */

static bool may_try(struct shrink *s)
{
	s->tired |= s->runs + s->how->jobs > s->how->runs || seconds_since(&s->began) > s->how->seconds;
	return !s->tired;
}

static bool fails_alike(const struct shrink *s, const struct verdict *v)
{
	return v->failed && strcmp(v->check, s->first.check) == 0;
}

static bool is_the_same(const struct shrink *s, const struct verdict *v)
{
	return fails_alike(s, v) && strcmp(v->text, s->is.text) == 0 && v->at == s->is.at && v->events == s->is.events;
}

static void keep(struct shrink *s, const struct trial *t)
{
	*s->best_cut = *t->opts.cut;
	s->best = t->opts;
	s->best.cut = s->best_cut;
	s->is = *t->verdict;
}

static void keep_other(struct shrink *s, const struct trial *t)
{
	if (!t->verdict->failed || (s->other.seed && t->verdict->events >= s->other_is.events))
		return;
	s->other_cut = *t->opts.cut;
	s->other = t->opts;
	s->other.cut = &s->other_cut;
	s->other_is = *t->verdict;
}

/* What has failed by a check at the end fails there; what failed on the way is to do so no later. */
static sim_us stop_at(const struct shrink *s)
{
	return s->is.at + LONGER;
}

/* A batch of runs, each with another timing. True: one fails alike, and is the best now. */
static bool try_timings(struct shrink *s, const struct sim_options *opts, const struct cut *cut, uint32_t from, bool fewer)
{
	const struct trial *found = NULL;

	for (uint32_t i = 0; i < s->how->jobs; i++) {
		s->cuts[i] = *cut;
		s->trials[i].opts = *opts;
		s->trials[i].opts.cut = &s->cuts[i];
		s->trials[i].opts.timing = from == 0 && i == 0 ? opts->timing : ++s->timings;
		s->trials[i].opts.stop_at = stop_at(s);
	}
	trials_run(s->trials, s->how->jobs);
	s->runs += s->how->jobs;
	for (uint32_t i = 0; i < s->how->jobs; i++) {
		const struct trial *t = &s->trials[i];
		bool alike = fails_alike(s, t->verdict) && (!fewer || t->verdict->events < s->is.events);

		if (alike && (!found || t->verdict->events < found->verdict->events))
			found = t;
		else if (!alike && !fails_alike(s, t->verdict))
			keep_other(s, t);
	}
	if (found)
		keep(s, found);
	return found != NULL;
}

static bool try(struct shrink *s, const struct sim_options *opts, const struct cut *cut, bool fewer)
{
	for (uint32_t n = 0; n < s->patience; n += s->how->jobs)
		if (!may_try(s))
			return false;
		else if (try_timings(s, opts, cut, n, fewer))
			return true;
	return false;
}

/* ---- things ---- */

static void cut_of(const struct shrink *s, const bool *out, struct cut *ret)
{
	*ret = *s->best_cut; /* for its replicas */
	for (size_t i = 0; i < s->things_len; i++) {
		const struct thing *t = &s->things[i];

		if (t->piece >= PIECE_NUMBERED_END)
			ret->whole[t->piece] = out[i];
		else
			cut_set(ret, t->piece, t->number, out[i]);
	}
}

static bool fails_without(void *ctx, const bool *out)
{
	struct shrink *s = ctx;
	struct cut c;

	cut_of(s, out, &c);
	return try(s, &s->best, &c, false);
}

static void add(struct shrink *s, enum piece piece, uint32_t number, sim_us at)
{
	if (s->things_len < THINGS_MAX)
		s->things[s->things_len++] = (struct thing){ piece, number, at };
}

static void list_things(struct shrink *s)
{
	static const enum piece people[] = { PIECE_WATCHER, PIECE_CACHER, PIECE_USER, PIECE_CLIENT };
	bool works = strstr(s->first.check, "nobody can ") != NULL; /* without anybody that would fail of itself */

	for (size_t k = 0; k < sizeof people / sizeof *people && !works; k++)
		for (uint32_t i = 0; i < s->plan->counts[people[k]]; i++)
			add(s, people[k], i, 0);
	for (size_t i = 0; i < s->plan->len; i++)
		if (s->plan->at[i].number < CUT_NUMBERS)
			add(s, s->plan->at[i].piece, s->plan->at[i].number, s->plan->at[i].at);
	for (unsigned p = PIECE_NUMBERED_END; p < (works ? PIECE_PUT : PIECE_COUNT); p++)
		add(s, (enum piece)p, 0, 0);
}

static bool reduce_range(struct shrink *s, enum piece from, enum piece to)
{
	struct reduce r = { .fails = fails_without, .ctx = s, .out = s->out };
	size_t *list = mem_alloc((s->things_len + 1) * sizeof *list), n = 0;
	bool any;

	for (size_t i = 0; i < s->things_len; i++)
		if (s->things[i].piece >= from && s->things[i].piece <= to)
			list[n++] = i;
	any = reduce_things(&r, list, n, (size_t)2 * s->patience); /* what fails rarely is tried in large parts first */
	free(list);
	return any;
}

static bool reduce_things_all(struct shrink *s)
{
	bool any = reduce_range(s, PIECE_WATCHER, PIECE_USER);

	any |= reduce_range(s, PIECE_CLIENT, PIECE_CLIENT);
	any |= reduce_range(s, PIECE_CRASH, PIECE_CHANGE);
	any |= reduce_range(s, PIECE_LOSS, PIECE_REQUEST_IDS);
	any |= reduce_range(s, PIECE_PUT, PIECE_USER_OBSERVES);
	return any;
}

/* ---- replicas and time ---- */

static uint32_t replicas_of(const struct shrink *s)
{
	uint32_t n = s->plan->counts[PIECE_REPLICA];

	while (n > 1 && cut_has(s->best_cut, PIECE_REPLICA, n))
		n--;
	return n;
}

/* Odd numbers: four are as three to most failures. */
static bool fewer_replicas(struct shrink *s)
{
	uint32_t least = s->best.seed % 5 == 2 && !s->best_cut->whole[PIECE_MEMBERS] ? operator_slots(0) : 1;

	for (uint32_t n = least; n < replicas_of(s); n += 2) {
		struct cut c = *s->best_cut;

		for (uint32_t i = n + 1; i <= s->plan->counts[PIECE_REPLICA]; i++)
			cut_set(&c, PIECE_REPLICA, i, true);
		if (try(s, &s->best, &c, false))
			return true;
	}
	return false;
}

static bool fails_healed_at(void *ctx, uint64_t ms)
{
	struct shrink *s = ctx;
	struct sim_options o = s->best;
	struct cut c = *s->best_cut;

	o.heal = ms * SIM_MS;
	return try(s, &o, &c, true);
}

/* When the first thing that is left to go wrong does, were none moved to the beginning; 0: there is none. */
static sim_us first_fault(const struct shrink *s, sim_us sooner)
{
	struct sim_options o = s->best;

	o.sooner = sooner;
	for (size_t i = 0; i < s->plan->len; i++)
		if (!cut_has(o.cut, s->plan->at[i].piece, s->plan->at[i].number))
			return plan_moved(&o, &s->plan->at[i]);
	return 0;
}

/* The first of them so long after the beginning. */
static bool fails_with_first_at(void *ctx, uint64_t ms)
{
	struct shrink *s = ctx;
	struct sim_options o = s->best;
	struct cut c = *s->best_cut;

	o.sooner = (first_fault(s, 0) / SIM_MS - ms) * SIM_MS;
	return try(s, &o, &c, true);
}

static bool fails_with_gap(void *ctx, uint64_t ms)
{
	struct shrink *s = ctx;
	struct sim_options o = s->best;
	struct cut c = *s->best_cut;

	o.gap = ms * SIM_MS;
	o.sooner = 0;
	return try(s, &o, &c, true);
}

static bool less_time(struct shrink *s)
{
	uint64_t events = s->is.events, heal = (s->best.heal ? s->best.heal : world_chaos(&s->best)), first;

	(void)reduce_value(fails_with_gap, s, GAP_MIN / SIM_MS, (s->best.gap ? s->best.gap : world_chaos(&s->best)) / SIM_MS, STEPS);
	first = first_fault(s, s->best.sooner);
	if (first > PLAN_EARLIEST)
		(void)reduce_value(fails_with_first_at, s, PLAN_EARLIEST / SIM_MS, first / SIM_MS, STEPS);
	if (s->is.at > heal)
		(void)reduce_value(fails_healed_at, s, HEAL_MIN / SIM_MS, heal / SIM_MS, STEPS);
	return s->is.events < events;
}

static void another_timing(struct shrink *s)
{
	struct cut c = *s->best_cut;

	while (try(s, &s->best, &c, true))
		;
}

/* ---- what is said ---- */

static uint32_t count_left(const struct shrink *s, enum piece from, enum piece to, const bool *out)
{
	uint32_t n = 0;

	for (size_t i = 0; i < s->things_len; i++)
		n += s->things[i].piece >= from && s->things[i].piece <= to && !(out && out[i]);
	return n;
}

static void print_smaller(const struct shrink *s)
{
	printf("SMALL seed %llu at %llu.%06llu s: %s\n", (unsigned long long)s->best.seed, (unsigned long long)(s->is.at / SIM_SECOND),
	       (unsigned long long)(s->is.at % SIM_SECOND), s->is.text);
	printf("     replicas %u -> %u, clients %u -> %u, others %u -> %u, faults %u -> %u, simulated ms %llu -> %llu, events %llu -> %llu, trace lines %llu -> %llu\n",
	       s->plan->counts[PIECE_REPLICA], replicas_of(s), s->plan->counts[PIECE_CLIENT], count_left(s, PIECE_CLIENT, PIECE_CLIENT, s->out),
	       count_left(s, PIECE_WATCHER, PIECE_USER, NULL), count_left(s, PIECE_WATCHER, PIECE_USER, s->out), count_left(s, PIECE_CRASH, PIECE_CHANGE, NULL),
	       count_left(s, PIECE_CRASH, PIECE_CHANGE, s->out), (unsigned long long)(s->first.at / SIM_MS), (unsigned long long)(s->is.at / SIM_MS),
	       (unsigned long long)s->first.events, (unsigned long long)s->is.events, (unsigned long long)s->first.lines, (unsigned long long)s->is.lines);
}

static void print_command(const struct sim_options *o)
{
	struct sim_options said = *o;

	said.stop_at = 0;
	printf("     replay: ");
	options_print(&said, "--trace", stdout);
}

static void progress(const struct shrink *s, const char *what)
{
	printf("%s after %u runs, %.0f s: %u clients, %u faults, %llu ms, %llu events\n", what, s->runs, seconds_since(&s->began),
	       count_left(s, PIECE_CLIENT, PIECE_CLIENT, s->out), count_left(s, PIECE_CRASH, PIECE_CHANGE, s->out), (unsigned long long)(s->is.at / SIM_MS),
	       (unsigned long long)s->is.events);
	fflush(stdout);
}

/* ---- all of it ---- */

/* time_first: what fails at the end is tried in less time then. */
static void rounds(struct shrink *s, uint32_t patience, uint32_t to, bool time_first)
{
	for (s->patience = patience; s->patience <= to && !s->tired;) {
		bool more = time_first && less_time(s);

		more |= reduce_things_all(s);
		more |= fewer_replicas(s);
		more |= !time_first && less_time(s);
		another_timing(s);
		progress(s, "round");
		if (!more)
			s->patience *= 2;
	}
}

/* From the whole run again: every way down ends somewhere else. */
static void descend(struct shrink *s, struct descent *smallest, bool time_first)
{
	memset(s->best_cut, 0, sizeof *s->best_cut);
	memset(s->out, 0, sizeof s->out);
	s->best = s->whole;
	s->is = s->first;
	rounds(s, PATIENCE_MIN, PATIENCE_LOW, time_first);
	if (s->is.events >= smallest->is.events)
		return;
	*smallest = (struct descent){ .best = s->best, .cut = *s->best_cut, .is = s->is };
	memcpy(smallest->out, s->out, sizeof s->out);
}

static void go_on_from(struct shrink *s, const struct descent *d)
{
	*s->best_cut = d->cut;
	memcpy(s->out, d->out, sizeof s->out);
	s->best = d->best;
	s->is = d->is;
}

static void find_smallest(struct shrink *s)
{
	static struct descent smallest;
	bool time_first = s->first.at > world_chaos(&s->whole);

	smallest.is.events = UINT64_MAX;
	for (unsigned n = 0; n < DESCENTS && !s->tired; n++)
		descend(s, &smallest, (n % 2 == 0) == time_first);
	go_on_from(s, &smallest);
	rounds(s, PATIENCE_LOW, PATIENCE_MAX, time_first);
}

static bool is_needless(struct shrink *s, const struct sim_options *opts, const struct cut *cut)
{
	struct trial t = { .opts = *opts, .verdict = s->trials[0].verdict };

	s->cuts[0] = *cut;
	t.opts.cut = &s->cuts[0];
	trials_run(&t, 1);
	s->runs++;
	return is_the_same(s, t.verdict);
}

/* What need not be said: without it the run is the very same. */
static void say_less(struct shrink *s)
{
	sim_us *times[] = { &s->best.gap, &s->best.sooner };

	for (unsigned p = PIECE_NUMBERED_END; p < PIECE_COUNT; p++) {
		struct cut c = *s->best_cut;

		c.whole[p] = false;
		if (s->best_cut->whole[p] && is_needless(s, &s->best, &c))
			*s->best_cut = c;
	}
	for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
		sim_us was = *times[i];

		*times[i] = 0;
		if (was && !is_needless(s, &s->best, s->best_cut))
			*times[i] = was;
	}
}

/* As the command that is printed does it: with the whole run before, and no end but its own (K1). */
static void run_as_printed(struct shrink *s)
{
	struct trial t = { .opts = s->best, .verdict = s->trials[0].verdict };

	t.opts.stop_at = 0;
	t.opts.trace = true;
	trial_make_plan(&t.opts);
	trials_run(&t, 1);
	ASSERT(is_the_same(s, t.verdict));
	s->is.lines = t.verdict->lines;
}

static bool report(struct shrink *s)
{
	printf("%u runs of at most %u, %.0f s of at most %u%s\n", s->runs, s->how->runs, seconds_since(&s->began), s->how->seconds,
	       s->tired ? ": more of them might make it smaller" : "");
	if (s->is.events < s->first.events) {
		run_as_printed(s);
		print_smaller(s);
		print_command(&s->best);
		return true;
	}
	printf("no smaller run was found that fails by the same check\n");
	if (s->other.seed && s->other_is.events < s->first.events) {
		printf("OTHER seed %llu: a smaller one fails by another: %s\n", (unsigned long long)s->other.seed, s->other_is.text);
		print_command(&s->other);
	}
	return false;
}

bool shrink(const struct sim_options *opts, const struct shrink_options *how)
{
	static struct shrink the_shrink;
	struct shrink *s = &the_shrink;

	s->how = how;
	clock_gettime(CLOCK_MONOTONIC, &s->began);
	s->plan = trial_plan(opts, &s->first);
	s->best_cut = shared_zalloc(sizeof *s->best_cut);
	s->cuts = shared_zalloc(how->jobs * sizeof *s->cuts);
	s->trials = shared_zalloc(how->jobs * sizeof *s->trials);
	for (uint32_t i = 0; i < how->jobs; i++)
		s->trials[i].verdict = shared_zalloc(sizeof *s->trials[i].verdict);
	s->whole = *opts;
	s->whole.plan = s->plan;
	s->whole.cut = s->best_cut;
	s->best = s->whole;
	s->is = s->first;
	if (!s->first.failed) {
		printf("seed %llu is good: there is nothing to shrink\n", (unsigned long long)opts->seed);
		return false;
	}
	printf("seed %llu at %llu.%06llu s: %s\n", (unsigned long long)opts->seed, (unsigned long long)(s->first.at / SIM_SECOND),
	       (unsigned long long)(s->first.at % SIM_SECOND), s->first.text);
	list_things(s);
	progress(s, "begins");
	find_smallest(s);
	say_less(s);
	return report(s);
}
