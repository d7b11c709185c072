/* story_test.c: raft's stories, told as text and held against what really happens.
 *
 * A file in testdata/ is a sequence of commands, `----`, and what they say, up to an empty line. Nothing happens by
 * itself: messages wait until they are delivered, writes until the disk is told to finish, timers until they are ticked.
 *
 *   cell 3 [learners=1] [spare=1] [seed=7] [memory=BYTES] [append=BYTES] [inflight=N] [gather=MS]
 *   timeout 1              time passes until 1 wants to be ticked, and only 1 is
 *   tick 500 [1 2]         time passes, all or those named are ticked when they want to be; nothing is delivered
 *   run 500                as tick, but messages arrive and disks work meanwhile
 *   deliver [1>2] [2] [*]  what is in flight now, or only from and to; prints each message
 *   drop 1>2 | drop *      what is in flight is lost
 *   cut 1>2 | cut 1        what is sent from now on is lost; all of 1's links both ways
 *   heal
 *   propose 1 TEXT         members 1 1 2 3 4l  proposes voters 1 2 3 and learner 4 on 1
 *   persist 1 [N]          1's disk finishes all its writes, or the first N
 *   reads 1 [N]            1's disk answers what raft wants to read, at most N entries each
 *   settle [quiet]         messages arrive and disks work until nothing more happens
 *   crash 1 [keep=N]       the first N of the queued writes had reached the disk
 *   restart 1
 *   read 1                 a linearizable read arrives: its index, and a quorum round begins
 *   lost 2 1               2's stream from 1 broke
 *   shift 1 3000           1 stood still that long
 *   timeout-now 1>2        1 hands over to 2
 *   snapshot 1 keep=2      of what 1 has applied; trims its log
 *   install 1              1's received snapshot is durable now
 *   state [1] | log 1
 *
 *   test_raft_story [--rewrite] DIRECTORY | FILE...   --rewrite puts what happens into the files */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cell.h"
#include "holdfast/internal.pb-c.h"

enum { WORDS_MAX = 20 };

struct story {
	struct cell *c;
	struct buf out;
	bool quiet;
	char *words[WORDS_MAX + 1]; /* of the command; ends with NULL */
	char *rest;                 /* of the line, after the second word */
};

static void say(struct story *s, const char *line)
{
	buf_printf(&s->out, "%s\n", line);
}

static void on_trace(void *ctx, const char *line)
{
	struct story *s = ctx;

	if (!s->quiet)
		say(s, line);
}

/* ---- arguments ---- */

static uint64_t option(const struct story *s, const char *name, uint64_t otherwise)
{
	size_t len = strlen(name);

	for (size_t i = 1; s->words[i]; i++) {
		if (!strncmp(s->words[i], name, len) && s->words[i][len] == '=')
			return strtoull(s->words[i] + len + 1, NULL, 10);
	}
	return otherwise;
}

static uint64_t number(const struct story *s, size_t i, uint64_t otherwise)
{
	for (size_t w = 0; w < i; w++) {
		if (!s->words[w])
			return otherwise;
	}
	return s->words[i] && isdigit((unsigned char)s->words[i][0]) ? strtoull(s->words[i], NULL, 10) : otherwise;
}

static struct node *node_arg(struct story *s, size_t i)
{
	uint64_t id = number(s, i, 0);

	if (id < 1 || id > s->c->nodes_len) {
		fprintf(stderr, "no such node in '%s'\n", s->words[0]);
		exit(2);
	}
	return cell_node(s->c, id);
}

/* "1>2": both; "2": to 2; nothing or "*": all. 0 stands for all. */
static void link_arg(const struct story *s, member_id *from, member_id *to)
{
	const char *w = s->words[1], *arrow = w ? strchr(w, '>') : NULL;

	*from = *to = 0;
	if (!w || !strcmp(w, "*"))
		return;
	*to = strtoull(arrow ? arrow + 1 : w, NULL, 10);
	if (arrow)
		*from = strtoull(w, NULL, 10);
}

/* ---- commands ---- */

static void do_cell(struct story *s)
{
	struct cell_opts o = {
		.seed = option(s, "seed", 1), .voters = number(s, 1, 3), .learners = option(s, "learners", 0),
		.spare = option(s, "spare", 0), .election_timeout_ms = 1000, .heartbeat_ms = 100,
		.max_append_bytes = option(s, "append", 1000), .max_uncommitted_bytes = option(s, "uncommitted", 100000),
		.memory_bytes = option(s, "memory", 100000), .max_inflight = (uint32_t)option(s, "inflight", 8),
		.gather_ms = (uint32_t)option(s, "gather", 0),
	};

	if (s->c) {
		s->c->trace = NULL;
		cell_free(s->c);
	}
	s->c = cell_new(&o);
	s->c->trace = on_trace;
	s->c->trace_ctx = s;
}

static bool named(const struct story *s, size_t from, member_id id)
{
	if (!s->words[from])
		return true;
	for (size_t i = from; s->words[i]; i++) {
		if (strtoull(s->words[i], NULL, 10) == id)
			return true;
	}
	return false;
}

static void do_timeout(struct story *s)
{
	struct node *n = node_arg(s, 1);
	time_ms at = raft_next_deadline(n->raft);

	if (at == TIME_NEVER) {
		say(s, "it wants no tick");
		return;
	}
	if (at - n->clock_offset > s->c->now)
		s->c->now = at - n->clock_offset;
	node_tick(s->c, n);
}

static bool disks_work(struct cell *c)
{
	bool worked = false;

	for (size_t i = 1; i <= c->nodes_len; i++) {
		struct node *n = cell_node(c, i);

		if (!n->raft)
			continue;
		worked = worked || disk_pending(&n->disk) > 0 || n->reads_len > 0 || n->install.active;
		node_persist(c, n, SIZE_MAX);
		while (n->reads_len > 0)
			node_read_done(c, n, 0, SIZE_MAX);
		node_install(c, n);
	}
	return worked;
}

static void settle(struct story *s)
{
	struct cell *c = s->c;

	for (unsigned i = 0; c->net_len > 0 || disks_work(c); i++) {
		if (i > 10000) {
			say(s, "it does not settle");
			return;
		}
		if (c->net_len == 0)
			continue;
		if (cell_node(c, c->net[0].m.to)->raft)
			cell_deliver(c, 0);
		else
			cell_drop(c, 0);
	}
}

static void pass_time(struct story *s, uint64_t ms, bool live)
{
	for (uint64_t end = s->c->now + ms; s->c->now < end;) {
		s->c->now += end - s->c->now < 50 ? end - s->c->now : 50;
		for (size_t i = 1; i <= s->c->nodes_len; i++) {
			struct node *n = cell_node(s->c, i);

			if (n->raft && (live || named(s, 2, i)) && raft_next_deadline(n->raft) <= node_now(s->c, n))
				node_tick(s->c, n);
		}
		if (live)
			settle(s);
	}
}

static void do_deliver(struct story *s)
{
	struct cell *c = s->c;
	size_t left = c->net_len;
	member_id from, to;

	link_arg(s, &from, &to);
	for (size_t i = 0; left > 0; left--) {
		struct raft_message *m = &c->net[i].m;
		char text[256];

		if ((from && m->from != from) || (to && m->to != to)) {
			i++;
			continue;
		}
		message_print(m, text, sizeof(text));
		if (cell_node(c, m->to)->raft) {
			say(s, text);
			cell_deliver(c, i);
		} else {
			buf_printf(&s->out, "%s: nobody there\n", text);
			cell_drop(c, i);
		}
	}
}

static void do_drop(struct story *s)
{
	struct cell *c = s->c;
	member_id from, to;

	link_arg(s, &from, &to);
	for (size_t i = 0; i < c->net_len;) {
		struct raft_message *m = &c->net[i].m;

		if ((!from || m->from == from) && (!to || m->to == to))
			cell_drop(c, i);
		else
			i++;
	}
}

static void do_cut(struct story *s)
{
	member_id from, to;

	link_arg(s, &from, &to);
	for (size_t i = 1; i <= s->c->nodes_len; i++) {
		if (!from && i != to)
			s->c->cut[i][to] = s->c->cut[to][i] = true;
	}
	if (from)
		s->c->cut[from][to] = true;
}

static void do_propose(struct story *s)
{
	raft_index index = 0;
	enum err e = node_propose(s->c, node_arg(s, 1), RAFT_ENTRY_COMMAND, slice_of_str(s->rest), &index);

	if (e)
		say(s, err_name(e));
	else
		buf_printf(&s->out, "index %llu\n", (unsigned long long)index);
}

static void do_members(struct story *s)
{
	struct cell_members m = { .len = 0 };
	enum err e;

	for (size_t i = 2; s->words[i]; i++) {
		char *end;

		m.list[m.len].id = strtoull(s->words[i], &end, 10);
		m.list[m.len++].learner = *end == 'l';
	}
	e = node_propose_members(s->c, node_arg(s, 1), &m);
	if (e)
		say(s, err_name(e));
}

static void do_reads(struct story *s)
{
	struct node *n = node_arg(s, 1);

	for (size_t left = n->reads_len; left > 0; left--) {
		buf_printf(&s->out, "%u: reads %llu..%llu\n", (unsigned)n->id, (unsigned long long)n->reads[0].read.from,
			   (unsigned long long)n->reads[0].read.to);
		node_read_done(s->c, n, 0, number(s, 2, SIZE_MAX));
	}
}

static void do_read(struct story *s)
{
	struct node *n = node_arg(s, 1);
	raft_index index = raft_read_index(n->raft);
	uint64_t round = node_begin_round(s->c, n);

	if (!round)
		say(s, "not the leader");
	else if (!index)
		buf_printf(&s->out, "round %llu, but nothing of this term is committed: ask again\n", (unsigned long long)round);
	else
		buf_printf(&s->out, "round %llu, read index %llu\n", (unsigned long long)round, (unsigned long long)index);
}

static void do_timeout_now(struct story *s)
{
	struct raft_message m = { .kind = HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__RAFT_TIMEOUT_NOW };

	link_arg(s, &m.from, &m.to);
	m.term = raft_current_term(cell_node(s->c, m.from)->raft);
	cell_send(s->c, &m);
}

static void print_state(struct story *s, const struct node *n)
{
	const struct raft *r = n->raft;

	if (!r) {
		buf_printf(&s->out, "%u: down, on disk: term %llu, log to %llu\n", (unsigned)n->id, (unsigned long long)n->disk.hard.term,
			   (unsigned long long)disk_last(&n->disk));
		return;
	}
	buf_printf(&s->out, "%u: %s, term %llu, leader %llu, last %llu, durable %llu, commit %llu, applied %llu\n", (unsigned)n->id,
		   raft_role_name(raft_role(r)), (unsigned long long)raft_current_term(r), (unsigned long long)raft_leader(r),
		   (unsigned long long)raft_last_index(r), (unsigned long long)raft_stable_index(r),
		   (unsigned long long)raft_commit_index(r), (unsigned long long)n->sm.id.index);
}

static void do_state(struct story *s)
{
	for (size_t i = 1; i <= s->c->nodes_len; i++) {
		if (named(s, 1, i))
			print_state(s, cell_node(s->c, i));
	}
}

/* As it will be on disk when all that is queued is written. */
static void do_log(struct story *s)
{
	struct node *n = node_arg(s, 1);
	raft_index last = n->raft ? raft_last_index(n->raft) : disk_last(&n->disk);

	buf_printf(&s->out, "%u:", (unsigned)n->id);
	if (n->disk.snapshot.id.index > 0)
		buf_printf(&s->out, " snapshot %llu/%llu;", (unsigned long long)n->disk.snapshot.id.index,
			   (unsigned long long)n->disk.snapshot.id.term);
	for (raft_index i = 1; i <= last; i++) {
		const struct raft_entry *e = disk_queued_entry(&n->disk, i);

		if (!e)
			continue;
		buf_printf(&s->out, " %llu/%llu", (unsigned long long)e->index, (unsigned long long)e->term);
		if (e->kind == RAFT_ENTRY_COMMAND)
			buf_printf(&s->out, "=%.*s", (int)e->len, (const char *)e->data);
		else
			buf_printf(&s->out, "=%s", e->kind == RAFT_ENTRY_NOOP ? "noop" : "members");
	}
	buf_append_byte(&s->out, '\n');
}

static void do_settle(struct story *s)
{
	s->quiet = s->words[1] && !strcmp(s->words[1], "quiet");
	settle(s);
	s->quiet = false;
}

static void do_run(struct story *s)
{
	pass_time(s, number(s, 1, 0), true);
}

static void do_tick(struct story *s)
{
	pass_time(s, number(s, 1, 0), false);
}

static void do_heal(struct story *s)
{
	memset(s->c->cut, 0, sizeof(s->c->cut));
}

static void do_persist(struct story *s)
{
	node_persist(s->c, node_arg(s, 1), number(s, 2, SIZE_MAX));
}

static void do_crash(struct story *s)
{
	node_crash(s->c, node_arg(s, 1), option(s, "keep", 0));
}

static void do_restart(struct story *s)
{
	node_start(s->c, node_arg(s, 1));
}

static void do_lost(struct story *s)
{
	node_peer_lost(s->c, node_arg(s, 1), number(s, 2, 0));
}

static void do_shift(struct story *s)
{
	s->c->now += number(s, 2, 0);
	node_shift(s->c, node_arg(s, 1), number(s, 2, 0));
}

static void do_snapshot(struct story *s)
{
	node_snapshot(s->c, node_arg(s, 1), option(s, "keep", 0));
}

static void do_install(struct story *s)
{
	node_install(s->c, node_arg(s, 1));
}

static const struct command {
	const char *name;
	void (*run)(struct story *s);
} commands[] = {
	{ "cell", do_cell }, { "timeout", do_timeout }, { "tick", do_tick }, { "run", do_run }, { "deliver", do_deliver },
	{ "drop", do_drop }, { "cut", do_cut }, { "heal", do_heal }, { "propose", do_propose }, { "members", do_members },
	{ "persist", do_persist }, { "reads", do_reads }, { "settle", do_settle }, { "crash", do_crash },
	{ "restart", do_restart }, { "read", do_read }, { "lost", do_lost }, { "shift", do_shift },
	{ "timeout-now", do_timeout_now }, { "snapshot", do_snapshot }, { "install", do_install }, { "state", do_state },
	{ "log", do_log },
};

static void run_command(struct story *s, const char *line)
{
	char *copy = strdup(line), *save = NULL;
	size_t n = 0;

	s->rest = strchr(copy, ' ');
	s->rest = s->rest ? strchr(s->rest + 1, ' ') : NULL;
	s->rest = strdup(s->rest ? s->rest + 1 : "");
	for (char *w = strtok_r(copy, " ", &save); w && n < WORDS_MAX; w = strtok_r(NULL, " ", &save))
		s->words[n++] = w;
	s->words[n] = NULL;
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (n > 0 && !strcmp(commands[i].name, s->words[0])) {
			commands[i].run(s);
			n = 0;
		}
	}
	if (n > 0)
		buf_printf(&s->out, "no such command: %s\n", line);
	free(s->rest);
	free(copy);
}

/* ---- files ---- */

static bool read_file(const char *path, struct buf *ret)
{
	FILE *f = fopen(path, "rb");
	char block[4096];
	size_t n;

	if (!f)
		return false;
	while ((n = fread(block, 1, sizeof(block), f)) > 0)
		buf_append(ret, block, n);
	buf_append_byte(ret, 0);
	fclose(f);
	return true;
}

static void write_file(const char *path, const struct buf *text)
{
	FILE *f = fopen(path, "wb");

	if (!f || fwrite(text->ptr, 1, text->len, f) != text->len || fclose(f) != 0) {
		perror(path);
		exit(2);
	}
}

/* Runs the whole file; *ret is what it should say. */
static void tell(char *text, struct buf *ret)
{
	struct story s = { .c = NULL };
	bool expected = false;

	for (char *line = text, *end; *line; line = end) {
		end = strchr(line, '\n');
		if (end)
			*end++ = 0;
		else
			end = line + strlen(line);
		if (expected) {
			expected = *line != 0;
			if (!expected)
				buf_append_byte(ret, '\n');
			continue;
		}
		buf_printf(ret, "%s\n", line);
		if (!strcmp(line, "----")) {
			buf_append(ret, s.out.ptr ? (const char *)s.out.ptr : "", s.out.len);
			buf_clear(&s.out);
			expected = true;
		} else if (*line && *line != '#') {
			run_command(&s, line);
		}
	}
	if (s.c) {
		s.c->trace = NULL;
		cell_free(s.c);
	}
	buf_free(&s.out);
}

static void show_difference(const char *path, const char *was, const char *is)
{
	size_t line = 1, i = 0, start = 0;

	for (; was[i] && was[i] == is[i]; i++) {
		if (was[i] == '\n') {
			line++;
			start = i + 1;
		}
	}
	printf("FAIL %s:%zu\n  told:     %.*s\n  happened: %.*s\n", path, line, (int)strcspn(was + start, "\n"), was + start,
	       (int)strcspn(is + start, "\n"), is + start);
}

static bool story_file(const char *path, bool rewrite)
{
	struct buf was = { 0 }, copy, is = { 0 };
	bool same;

	if (!read_file(path, &was)) {
		perror(path);
		return false;
	}
	copy = buf_copy_of(buf_view(&was));
	fprintf(stderr, "%s\n", path);
	tell((char *)copy.ptr, &is);
	same = is.len + 1 == was.len && !memcmp(is.ptr, was.ptr, is.len);
	if (!same && rewrite)
		write_file(path, &is);
	buf_append_byte(&is, 0);
	if (!same && !rewrite)
		show_difference(path, (const char *)was.ptr, (const char *)is.ptr);
	buf_free(&was);
	buf_free(&copy);
	buf_free(&is);
	return same || rewrite;
}

static size_t story_directory(const char *path, bool rewrite, size_t *ret_failed)
{
	struct dirent **names;
	int n = scandir(path, &names, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		const char *dot = strrchr(names[i]->d_name, '.');
		struct buf file = { 0 };

		buf_printf(&file, "%s/%s", path, names[i]->d_name);
		buf_append_byte(&file, 0);
		if (dot && !strcmp(dot, ".txt"))
			*ret_failed += !story_file((const char *)file.ptr, rewrite);
		buf_free(&file);
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	return n < 0 ? 0 : (size_t)n;
}

int main(int argc, char **argv)
{
	bool rewrite = false;
	size_t told = 0, failed = 0;

	for (int i = 1; i < argc; i++) {
		struct stat st;

		if (!strcmp(argv[i], "--rewrite")) {
			rewrite = true;
		} else if (stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode)) {
			told += story_directory(argv[i], rewrite, &failed);
		} else {
			told++;
			failed += !story_file(argv[i], rewrite);
		}
	}
	if (told == 0)
		return fprintf(stderr, "usage: %s [--rewrite] DIRECTORY | FILE...\n", argv[0]), 2;
	printf("%zu failed\n", failed);
	return failed ? 1 : 0;
}
