/* sim_test.c: thousands of short lives of small cells, each replayed exactly by its seed.
 *
 * A life has two halves. In the first, messages are lost, doubled, delayed and reordered, disks are slow and report several
 * writes at once, nodes crash (with all, some or none of what their disks were asked to write), start again, stand still,
 * are cut off, make snapshots and trim their logs, and members come and go. check.c looks on. In the second half the faults
 * stop, and the cell must come to life: one leader, and a new entry applied by every member.
 *
 *   test_core_raft_sim                    the seeds of the test suite
 *   test_core_raft_sim --seed 17 --trace  one of them, told line by line
 *   test_core_raft_sim --from 1 --count 100000 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cell.h"
#include "holdfast/internal.pb-c.h"
#include "support/scale.h"

enum { SEEDS_DEFAULT = 3000, LIVE_LIMIT_MS = 60000 };

struct sim {
	struct cell *c;
	struct rng rng;       /* apart from the cell's, so that a story stays the same when the cell draws once more */
	uint32_t crash, start, pause, cut, heal, snapshot, lost, transfer, members, weather; /* chances a step, in millionths */
	time_ms stride;       /* a step takes up to this much longer than it must: much happens at once, and faults are far apart in events */
	uint64_t next_value;
	bool faults;
};

static unsigned long long current_seed;
static const char *program;

/* Signal-safe enough for a process that is about to die. */
static void say_seed(void)
{
	char line[256];
	int n = snprintf(line, sizeof(line), "seed %llu failed; see it with: %s --seed %llu --trace\n", current_seed, program,
			 current_seed);

	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

static void on_abort(int sig)
{
	say_seed();
	signal(sig, SIG_DFL);
	raise(sig);
}

void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void print_line(void *ctx, const char *line)
{
	struct cell *c = ctx;

	printf("%8llu  %s\n", (unsigned long long)c->now, line);
}

static bool chance(struct sim *s, uint32_t ppm)
{
	return rng_chance(&s->rng, ppm);
}

static struct node *any_node(struct sim *s)
{
	return cell_node(s->c, rng_between(&s->rng, 1, s->c->nodes_len));
}

static struct node *any_leader(struct sim *s)
{
	struct node *found = NULL;
	uint64_t seen = 0;

	for (size_t i = 1; i <= s->c->nodes_len; i++) {
		struct node *n = cell_node(s->c, i);

		if (n->raft && !n->paused && raft_role(n->raft) == RAFT_LEADER && rng_below(&s->rng, ++seen) == 0)
			found = n;
	}
	return found;
}

/* ---- what clients and operators do ---- */

static void propose(struct sim *s)
{
	struct node *n = chance(s, 950000) ? any_leader(s) : any_node(s);
	uint8_t bytes[400] = { 0 };
	size_t len = chance(s, 900000) ? 8 : rng_between(&s->rng, 8, sizeof(bytes));
	enum err e;

	if (!n)
		return;
	memcpy(bytes, &s->next_value, sizeof(s->next_value));
	s->next_value++;
	e = node_propose(s->c, n, RAFT_ENTRY_COMMAND, slice_of(bytes, len), NULL);
	ASSERT(e == ERR_OK || e == ERR_NOT_LEADER || e == ERR_TOO_MANY_REQUESTS || e == ERR_CLOSED);
}

static size_t voters(const struct cell_members *m)
{
	size_t n = 0;

	for (size_t i = 0; i < m->len; i++)
		n += !m->list[i].learner;
	return n;
}

/* One change at a time, on a leader that has applied all of its log: those are the owner's rules. */
static void change_members(struct sim *s)
{
	struct node *n = any_leader(s);
	struct cell_members m;
	member_id id = any_node(s)->id;
	size_t at = 0;

	if (!n || !raft_read_index(n->raft) || n->sm.id.index != raft_last_index(n->raft))
		return;
	m = n->sm.members;
	while (at < m.len && m.list[at].id != id)
		at++;
	if (at == m.len)
		m.list[m.len++] = (struct raft_member){ .id = id, .learner = true };
	else if (m.list[at].learner && chance(s, 700000))
		m.list[at].learner = false;
	else if (m.list[at].learner || voters(&m) > (id == n->id ? 2 : 1)) /* see raft_set_members() */
		m.list[at] = m.list[--m.len];
	else
		return;
	cell_trace(s->c, "%u: proposes members, %zu of them, for %u", (unsigned)n->id, m.len, (unsigned)id);
	node_propose_members(s->c, n, &m);
}

static void transfer(struct sim *s)
{
	struct node *n = any_leader(s);
	struct raft_message m = { .kind = HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__RAFT_TIMEOUT_NOW };

	if (!n)
		return;
	m.from = n->id;
	m.to = any_node(s)->id;
	m.term = raft_current_term(n->raft);
	if (m.to != m.from)
		cell_send(s->c, &m);
}

/* ---- faults ---- */

static void pause_or_resume(struct sim *s, struct node *n, bool may_pause)
{
	struct cell *c = s->c;

	if (!n->raft)
		return;
	if (!n->paused && may_pause) {
		cell_trace(c, "%u: stands still", (unsigned)n->id);
		n->paused = true;
		n->paused_at = c->now;
	} else if (n->paused) {
		cell_trace(c, "%u: goes on after %llu ms", (unsigned)n->id, (unsigned long long)(c->now - n->paused_at));
		n->paused = false;
		/* mostly it notices */
		if (c->now > n->paused_at && chance(s, 800000))
			node_shift(c, n, c->now - n->paused_at);
	}
}

static void cut_some(struct sim *s)
{
	struct cell *c = s->c;
	member_id a = any_node(s)->id, b = any_node(s)->id;
	uint64_t how = rng_below(&s->rng, 4);

	for (size_t i = 1; i <= c->nodes_len; i++) {
		for (size_t j = 1; j <= c->nodes_len; j++) {
			if (how == 0) /* one alone */
				c->cut[i][j] = (i == a) != (j == a);
			else if (how == 1) /* two halves */
				c->cut[i][j] = (i <= a) != (j <= a);
			else if (how == 2) /* one link, one way */
				c->cut[i][j] = c->cut[i][j] || (i == a && j == b);
			else if (how == 3) /* one hears nobody, but is heard */
				c->cut[i][j] = c->cut[i][j] || j == a;
		}
	}
	cell_trace(c, "links are cut (%llu, %u, %u)", (unsigned long long)how, (unsigned)a, (unsigned)b);
}

static void heal(struct sim *s)
{
	memset(s->c->cut, 0, sizeof(s->c->cut));
	cell_trace(s->c, "links are whole");
}

static void change_weather(struct sim *s)
{
	struct cell *c = s->c;

	c->drop_ppm = chance(s, 500000) ? 0 : (uint32_t)rng_below(&s->rng, 300000);
	c->dup_ppm = chance(s, 500000) ? 0 : (uint32_t)rng_below(&s->rng, 200000);
	c->net_delay_max = chance(s, 600000) ? rng_below(&s->rng, 20) : rng_below(&s->rng, 800);
	c->disk_delay_max = chance(s, 600000) ? rng_below(&s->rng, 20) : rng_below(&s->rng, 600);
	c->read_delay_max = rng_below(&s->rng, 200);
	c->lazy_applied = chance(s, 300000);
}

static void crash(struct sim *s)
{
	struct node *n = any_node(s);

	node_crash(s->c, n, chance(s, 500000) ? 0 : rng_below(&s->rng, disk_pending(&n->disk) + 1));
}

static void start_one(struct sim *s, struct node *n)
{
	if (n->raft)
		return;
	cell_trace(s->c, "%u: starts", (unsigned)n->id);
	node_start(s->c, n);
}

static void misfortune(struct sim *s)
{
	if (chance(s, s->crash))
		crash(s);
	if (chance(s, s->start))
		start_one(s, any_node(s));
	if (chance(s, s->pause))
		pause_or_resume(s, any_node(s), true);
	if (chance(s, 10 * s->pause))
		pause_or_resume(s, any_node(s), false);
	if (chance(s, s->cut))
		cut_some(s);
	if (chance(s, s->heal))
		heal(s);
	if (chance(s, s->lost))
		node_peer_lost(s->c, any_node(s), any_node(s)->id);
	if (chance(s, s->weather))
		change_weather(s);
	if (chance(s, s->transfer))
		transfer(s);
	if (chance(s, s->members))
		change_members(s);
}

static void act(struct sim *s)
{
	struct node *leader;

	if (chance(s, 300000))
		propose(s);
	if (chance(s, 200000) && (leader = any_leader(s)))
		node_begin_round(s->c, leader);
	if (chance(s, s->snapshot))
		node_snapshot(s->c, any_node(s), rng_below(&s->rng, 6));
	if (s->faults)
		misfortune(s);
}

/* ---- time ---- */

static void deliver_due(struct sim *s)
{
	struct cell *c = s->c;

	for (size_t i = 0; i < c->net_len;) {
		const struct node *to = cell_node(c, c->net[i].m.to);

		if (c->net[i].due > c->now || to->paused) {
			i++;
		} else if (!to->raft) {
			cell_drop(c, i);
		} else {
			char text[256];

			if (c->trace) {
				message_print(&c->net[i].m, text, sizeof(text));
				cell_trace(c, "%s", text);
			}
			cell_deliver(c, i);
		}
	}
}

static void disk_due(struct sim *s, struct node *n)
{
	size_t done = 0;

	while (done < n->disk.queue_len && n->disk.queue[done].due <= s->c->now)
		done++;
	if (done)
		node_persist(s->c, n, done);
	for (size_t i = 0; i < n->reads_len;) {
		if (n->reads[i].due <= s->c->now)
			node_read_done(s->c, n, i, chance(s, 500000) ? SIZE_MAX : rng_between(&s->rng, 1, 4));
		else
			i++;
	}
	if (n->install.active && n->install.due <= s->c->now)
		node_install(s->c, n);
}

static time_ms next_due(const struct cell *c)
{
	time_ms next = TIME_NEVER;

	for (size_t i = 0; i < c->net_len; i++) {
		if (c->net[i].due < next && !c->nodes[c->net[i].m.to].paused)
			next = c->net[i].due;
	}
	for (size_t i = 1; i <= c->nodes_len; i++) {
		const struct node *n = &c->nodes[i];
		time_ms deadline;

		if (!n->raft || n->paused)
			continue;
		deadline = raft_next_deadline(n->raft);
		if (deadline != TIME_NEVER && deadline - n->clock_offset < next)
			next = deadline - n->clock_offset;
		if (n->disk.queue_len > 0 && n->disk.queue[0].due < next)
			next = n->disk.queue[0].due;
		for (size_t r = 0; r < n->reads_len; r++)
			next = n->reads[r].due < next ? n->reads[r].due : next;
		if (n->install.active && n->install.due < next)
			next = n->install.due;
	}
	return next;
}

static void step(struct sim *s)
{
	struct cell *c = s->c;
	time_ms next = next_due(c), at_most = c->now + rng_between(&s->rng, 1, 40);
	bool batch = chance(s, 300000);

	if (next > at_most)
		next = at_most;
	if (s->faults && s->stride)
		next = next > c->now ? next + rng_below(&s->rng, s->stride) : c->now + rng_below(&s->rng, s->stride);
	if (next > c->now)
		c->now = next;
	if (batch)
		cell_batch(c, true);
	deliver_due(s);
	for (size_t i = 1; i <= c->nodes_len; i++) {
		struct node *n = cell_node(c, i);

		if (!n->raft || n->paused)
			continue;
		disk_due(s, n);
		if (raft_next_deadline(n->raft) <= node_now(c, n) || chance(s, 20000))
			node_tick(c, n);
	}
	act(s);
	if (batch)
		cell_batch(c, false);
}

/* ---- a life ---- */

static struct cell_opts any_opts(uint64_t seed, struct rng *rng)
{
	struct cell_opts o = {
		.seed = seed, .election_timeout_ms = 1000, .heartbeat_ms = 100,
		.max_append_bytes = rng_chance(rng, 500000) ? 100 : 2000,
		.max_uncommitted_bytes = rng_chance(rng, 200000) ? 100 : 100000,
		.memory_bytes = rng_chance(rng, 500000) ? rng_below(rng, 200) : 100000,
		.max_inflight = (uint32_t)rng_between(rng, 1, 8), .gather_ms = (uint32_t)rng_between(rng, 0, 20),
	};

	o.voters = rng_chance(rng, 100000) ? rng_between(rng, 1, 2) : rng_between(rng, 3, 5);
	o.learners = rng_chance(rng, 600000) ? 0 : rng_between(rng, 1, 2);
	o.spare = rng_chance(rng, 700000) ? 0 : 1;
	return o;
}

static void choose_fortune(struct sim *s)
{
	uint32_t calm = chance(s, 300000) ? 4 : 1;

	s->crash = (uint32_t)rng_below(&s->rng, 20000) / calm;
	s->start = 30000;
	s->pause = (uint32_t)rng_below(&s->rng, 6000) / calm;
	s->cut = (uint32_t)rng_below(&s->rng, 20000) / calm;
	s->heal = 15000;
	s->snapshot = chance(s, 300000) ? 0 : (uint32_t)rng_below(&s->rng, 60000);
	s->lost = (uint32_t)rng_below(&s->rng, 6000) / calm;
	s->transfer = chance(s, 700000) ? 0 : 5000;
	s->members = chance(s, 600000) ? 0 : 30000;
	s->weather = 8000;
	s->stride = chance(s, 400000) ? 0 : rng_between(&s->rng, 1, 150);
	change_weather(s);
}

static void calm_down(struct sim *s)
{
	struct cell *c = s->c;

	s->faults = false;
	s->snapshot = 0;
	heal(s);
	c->drop_ppm = c->dup_ppm = 0;
	c->net_delay_max = 5;
	c->disk_delay_max = 5;
	c->read_delay_max = 5;
	c->lazy_applied = false;
	for (size_t i = 1; i <= c->nodes_len; i++) {
		pause_or_resume(s, cell_node(c, i), false);
		start_one(s, cell_node(c, i));
	}
}

static bool all_have(struct sim *s, const struct node *leader, raft_index index)
{
	const struct cell_members *m = &leader->sm.members;

	for (size_t i = 0; i < m->len; i++) {
		if (cell_node(s->c, m->list[i].id)->sm.id.index < index)
			return false;
	}
	return true;
}

/* With nothing in the way: a leader, and everybody applies what it has now. */
static void must_live(struct sim *s)
{
	time_ms limit = s->c->now + LIVE_LIMIT_MS;
	struct node *leader = NULL;
	raft_index want = 0;

	while (s->c->now < limit) {
		step(s);
		if (!leader || !leader->raft || raft_role(leader->raft) != RAFT_LEADER || raft_last_index(leader->raft) < want) {
			leader = any_leader(s);
			want = leader ? raft_last_index(leader->raft) + 1 : 0;
		}
		if (leader && all_have(s, leader, want))
			return;
	}
	cell_fail(s->c, leader ? "a member does not come along" : "nobody leads");
}

struct sums {
	uint64_t steps, committed, elections, rounds, installs, reads, members;
};

static void live(uint64_t seed, bool trace, struct sums *sums)
{
	struct sim s = { .faults = true };
	struct cell_opts opts;
	uint64_t steps;

	rng_init(&s.rng, seed);
	opts = any_opts(seed, &s.rng);
	s.c = cell_new(&opts);
	if (trace) {
		s.c->trace = print_line;
		s.c->trace_ctx = s.c;
	}
	choose_fortune(&s);
	steps = rng_between(&s.rng, 200, 1500);
	for (uint64_t i = 0; i < steps; i++)
		step(&s);
	cell_trace(s.c, "the faults stop");
	calm_down(&s);
	must_live(&s);
	sums->steps += steps;
	sums->committed += check_committed(s.c);
	sums->elections += s.c->elections;
	sums->rounds += s.c->rounds_confirmed;
	sums->installs += s.c->snapshots_installed;
	sums->reads += s.c->disk_reads;
	cell_free(s.c);
}

static unsigned long long number(const char *text)
{
	return text ? strtoull(text, NULL, 0) : 0;
}

int main(int argc, char **argv)
{
	unsigned long long from = 1, count = test_scaled(SEEDS_DEFAULT);
	struct sums sums = { 0 };
	bool trace = false;

	program = argv[0];
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--trace"))
			trace = true;
		else if (!strcmp(argv[i], "--seed"))
			from = number(argv[++i]), count = 1;
		else if (!strcmp(argv[i], "--from"))
			from = number(argv[++i]);
		else if (!strcmp(argv[i], "--count"))
			count = number(argv[++i]);
		else
			return fprintf(stderr, "usage: %s [--seed N | --from N --count N] [--trace]\n", program), 2;
	}
	signal(SIGABRT, on_abort);
	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(say_seed);
	for (current_seed = from; current_seed < from + count; current_seed++)
		live(current_seed, trace, &sums);
	printf("%llu lives: %llu steps, %llu entries committed, %llu elections, %llu rounds confirmed, %llu snapshots installed, "
	       "%llu disk reads\n", count, (unsigned long long)sums.steps, (unsigned long long)sums.committed,
	       (unsigned long long)sums.elections, (unsigned long long)sums.rounds, (unsigned long long)sums.installs,
	       (unsigned long long)sums.reads);
	return 0;
}
