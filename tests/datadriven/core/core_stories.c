/* core_stories.c: stories of a cell, as text: core_stories [--rewrite] FILE...
 *
 * A story is blocks of commands, a line `----`, what came of them, and an empty line. Lines that begin with # are for the reader. Replicas
 * are called as of the last `elect`: leader, first, second (the others, in order). Leases are decimal, keys bear them in hexadecimal.
 *
 *   cell N | elect                     a new cell; until one leads
 *   run MS | until LABEL               time passes; until that call is answered
 *   grant WHO LEASE TTL | revoke WHO LEASE | alive WHO LEASE | put WHO KEY VALUE | get WHO KEY | unlock WHO KEY
 *                                      asked and answered
 *   lock WHO LABEL NAME LEASE [shared] [try | wait=MS] | cancel WHO LABEL
 *                                      asked; answered whenever it is. Lease 0: one of its own
 *   unlock WHO KEY as LABEL            the same
 *   once SESSION REQUEST[/FIRST] COMMAND...
 *                                      the same, named by session and request ID (and the first that is unanswered): a write tells the revision of its
 *                                      answer
 *   crash WHO | restart WHO | cut WHO | join WHO | pause WHO | resume WHO | stall WHO | write WHO (its disk)
 *   leads                              who does
 *   queue NAME | leases                the lock, and the leases, as the leader's state has them */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "core/store/store.h"
#include "etcd/rpc.pb-c.h"
#include "support/mini_cell.h"

enum { LABELS_MAX = 64, WORDS_MAX = 12, NAMED = 3, PATIENCE_MS = 20000 };

struct label {
	char name[32];
	uint64_t tag;
	time_ms asked;
	bool lock, told;
};

struct story {
	struct mini_cell *m;
	size_t replicas;
	size_t named[NAMED]; /* leader, first, second */
	struct label labels[LABELS_MAX];
	size_t labels_len;
	bool once; /* the command at hand names a request */
	struct buf out;
};

static size_t replica(const struct story *s, const char *who)
{
	static const char *const names[NAMED] = { "leader", "first", "second" };

	for (size_t i = 0; i < NAMED; i++)
		if (who && strcmp(who, names[i]) == 0 && s->named[i] < s->replicas)
			return s->named[i];
	fprintf(stderr, "no such replica: %s\n", who ? who : "(none)");
	exit(2);
}

static void elect(struct story *s)
{
	size_t n = 1;

	for (size_t i = 0; i < NAMED; i++)
		s->named[i] = s->replicas;
	s->named[0] = mini_elect(s->m, PATIENCE_MS);
	for (size_t i = 0; i < s->replicas && n < NAMED; i++)
		if (i != s->named[0])
			s->named[n++] = i;
	mini_run(s->m, 300);
}

/* ---- what is told ---- */

static void tell_time(struct story *s, time_ms asked, time_ms at)
{
	if (at - asked >= 500)
		buf_printf(&s->out, " after %llu.%llu s", (unsigned long long)((at - asked + 50) / 1000),
			   (unsigned long long)((at - asked + 50) / 100 % 10));
	buf_printf(&s->out, "\n");
}

static void tell_labels(struct story *s)
{
	for (size_t i = 0; i < s->labels_len; i++) {
		struct label *l = &s->labels[i];
		const struct mini_answer *a = l->told ? NULL : mini_answer(s->m, l->tag);

		if (!a)
			continue;
		l->told = true;
		if (a->err)
			buf_printf(&s->out, "%s: %s", l->name, err_name(a->err));
		else if (!l->lock)
			buf_printf(&s->out, "%s: ok", l->name);
		else
			buf_printf(&s->out, "%s: granted, token %lld", l->name, (long long)mini_token(a));
		tell_time(s, l->asked, a->at);
	}
}

static const struct mini_answer *answered(struct story *s, uint64_t tag)
{
	const struct mini_answer *a = mini_wait(s->m, tag, PATIENCE_MS);

	if (!a)
		buf_printf(&s->out, "no answer\n");
	return a;
}

/* Every write's reply begins with the header. */
static void tell_revision(struct story *s, const struct mini_answer *a)
{
	Etcdserverpb__PutResponse *r = etcdserverpb__put_response__unpack(NULL, a->reply.len, a->reply.ptr);

	ASSERT(r && r->header);
	buf_printf(&s->out, ", revision %lld", (long long)r->header->revision);
	etcdserverpb__put_response__free_unpacked(r, NULL);
}

static void tell(struct story *s, uint64_t tag)
{
	time_ms asked = mini_now(s->m);
	const struct mini_answer *a = answered(s, tag);

	if (!a)
		return;
	buf_printf(&s->out, "%s", a->err ? err_name(a->err) : "ok");
	if (s->once && !a->err)
		tell_revision(s, a);
	tell_time(s, asked, a->at);
}

static void tell_alive(struct story *s, uint64_t tag)
{
	const struct mini_answer *a = answered(s, tag);

	if (!a)
		return;
	if (a->err)
		buf_printf(&s->out, "%s\n", err_name(a->err));
	else if (mini_ttl(a) == 0)
		buf_printf(&s->out, "the lease is gone\n");
	else
		buf_printf(&s->out, "ttl %lld\n", (long long)mini_ttl(a));
}

static void tell_get(struct story *s, uint64_t tag, size_t i, const char *key)
{
	const struct mini_answer *a = answered(s, tag);
	const char *value;

	if (!a)
		return;
	value = a->err ? err_name(a->err) : mini_value(s->m, i, key);
	buf_printf(&s->out, "%s\n", value ? value : "(none)");
}

static void queue(struct story *s, const char *name)
{
	const struct state *st = core_state(mini_core(s->m, mini_leader(s->m)));
	struct tree_cursor cursor;
	bool exclusive = false, any = false;

	for (struct tree_record *r = tree_first(&cursor, &st->contenders); r; r = tree_next(&cursor)) {
		const struct contender *c = CONTAINER_OF(r, struct contender, base);
		bool held;

		if (!slice_eq(contender_name(c), slice_of_str(name)))
			continue;
		held = c->mode == LOCK_SHARED ? !exclusive : !any;
		exclusive |= c->mode == LOCK_EXCLUSIVE;
		any = true;
		buf_printf(&s->out, "%s: lease %lld %s%s, token %lld\n", name, (long long)c->lease, held ? "holds" : "waits",
			   c->mode == LOCK_SHARED ? " shared" : "", (long long)c->create_revision);
	}
	if (!any)
		buf_printf(&s->out, "%s: free\n", name);
}

static void leases(struct story *s)
{
	const struct state *st = core_state(mini_core(s->m, mini_leader(s->m)));
	struct tree_cursor cursor;

	buf_printf(&s->out, "leases:");
	for (struct tree_record *r = tree_first(&cursor, &st->leases); r; r = tree_next(&cursor))
		buf_printf(&s->out, " %lld", (long long)((const struct lease_record *)r)->id);
	buf_printf(&s->out, "\n");
}

static void leads(struct story *s)
{
	static const char *const names[NAMED] = { "leader", "first", "second" };
	size_t now = mini_leader(s->m);

	for (size_t i = 0; i < NAMED; i++)
		if (s->named[i] == now && now < s->replicas)
			buf_printf(&s->out, "%s leads\n", names[i]);
	if (now >= s->replicas)
		buf_printf(&s->out, "nobody leads\n");
}

/* ---- commands ---- */

static long long number(const char *word)
{
	return word ? strtoll(word, NULL, 10) : 0;
}

static struct label *label_of(struct story *s, const char *name)
{
	for (size_t i = s->labels_len; name && i-- > 0;)
		if (strcmp(s->labels[i].name, name) == 0)
			return &s->labels[i];
	fprintf(stderr, "no such call: %s\n", name ? name : "(none)");
	exit(2);
}

static struct label *label_new(struct story *s, const char *name)
{
	struct label *l = &s->labels[s->labels_len++];

	ASSERT(s->labels_len <= LABELS_MAX);
	memset(l, 0, sizeof *l);
	snprintf(l->name, sizeof l->name, "%s", name);
	l->asked = mini_now(s->m);
	return l;
}

static void unlock(struct story *s, char **w, size_t n)
{
	uint64_t tag = mini_unlock(s->m, replica(s, w[1]), w[2]);

	if (n == 5)
		label_new(s, w[4])->tag = tag;
	else
		tell(s, tag);
}

static void lock(struct story *s, char **w, size_t n)
{
	struct label *l = label_new(s, w[2]);
	enum lock_mode mode = LOCK_EXCLUSIVE;
	bool bounded = false;
	int64_t wait_ms = 0;

	ASSERT(n >= 5);
	l->lock = true;
	for (size_t i = 5; i < n; i++) {
		if (strcmp(w[i], "shared") == 0)
			mode = LOCK_SHARED;
		else
			bounded = true;
		if (strncmp(w[i], "wait=", 5) == 0)
			wait_ms = number(w[i] + 5);
	}
	l->tag = bounded || mode == LOCK_SHARED ?
			 mini_lock_bounded(s->m, replica(s, w[1]), w[3], number(w[4]), mode, bounded ? wait_ms : 1000000000) :
			 mini_lock(s->m, replica(s, w[1]), w[3], number(w[4]));
}

static bool client_command(struct story *s, char **w, size_t n)
{
	if (strcmp(w[0], "grant") == 0)
		tell(s, mini_grant(s->m, replica(s, w[1]), number(w[2]), number(w[3])));
	else if (strcmp(w[0], "revoke") == 0)
		tell(s, mini_revoke(s->m, replica(s, w[1]), number(w[2])));
	else if (strcmp(w[0], "alive") == 0)
		tell_alive(s, mini_keep_alive(s->m, replica(s, w[1]), number(w[2])));
	else if (strcmp(w[0], "put") == 0)
		tell(s, mini_put(s->m, replica(s, w[1]), w[2], w[3], 0));
	else if (strcmp(w[0], "get") == 0)
		tell_get(s, mini_get(s->m, replica(s, w[1]), w[2], false), replica(s, w[1]), w[2]);
	else if (strcmp(w[0], "unlock") == 0)
		unlock(s, w, n);
	else if (strcmp(w[0], "lock") == 0)
		lock(s, w, n);
	else if (strcmp(w[0], "cancel") == 0)
		mini_cancel(s->m, replica(s, w[1]), label_of(s, w[2])->tag);
	else if (strcmp(w[0], "queue") == 0)
		queue(s, w[1]);
	else if (strcmp(w[0], "leads") == 0)
		leads(s);
	else if (strcmp(w[0], "leases") == 0)
		leases(s);
	else
		return false;
	return true;
}

static bool mishap_command(struct story *s, char **w)
{
	if (strcmp(w[0], "crash") == 0)
		mini_crash(s->m, replica(s, w[1]));
	else if (strcmp(w[0], "restart") == 0)
		mini_restart(s->m, replica(s, w[1]));
	else if (strcmp(w[0], "cut") == 0)
		mini_isolate(s->m, replica(s, w[1]), true);
	else if (strcmp(w[0], "join") == 0)
		mini_isolate(s->m, replica(s, w[1]), false);
	else if (strcmp(w[0], "pause") == 0)
		mini_pause(s->m, replica(s, w[1]), true);
	else if (strcmp(w[0], "resume") == 0)
		mini_pause(s->m, replica(s, w[1]), false);
	else if (strcmp(w[0], "stall") == 0)
		mini_stall(s->m, replica(s, w[1]), true);
	else if (strcmp(w[0], "write") == 0)
		mini_stall(s->m, replica(s, w[1]), false);
	else
		return false;
	return true;
}

static void command(struct story *s, char *line)
{
	char *words[WORDS_MAX + 1] = { 0 }, **w = words;
	size_t n = 0;

	for (char *p = strtok(line, " "); p && n < WORDS_MAX; p = strtok(NULL, " "))
		w[n++] = p;
	s->once = strcmp(w[0], "once") == 0 && n > 3;
	if (s->once) {
		const char *first = strchr(w[2], '/');

		mini_once(s->m, number(w[1]), (uint64_t)number(w[2]), first ? (uint64_t)number(first + 1) : 0);
		w += 3;
		n -= 3;
	}
	if (strcmp(w[0], "cell") == 0) {
		mini_free(s->m);
		s->labels_len = 0;
		s->replicas = (size_t)number(w[1]);
		s->m = mini_new(&(struct mini_options){ .replicas = s->replicas, .seed = 1, .disk_ms = 1, .net_ms = 1 });
	} else if (strcmp(w[0], "elect") == 0) {
		elect(s);
	} else if (strcmp(w[0], "run") == 0) {
		mini_run(s->m, (time_ms)number(w[1]));
	} else if (strcmp(w[0], "until") == 0) {
		mini_wait(s->m, label_of(s, w[1])->tag, 10 * PATIENCE_MS);
	} else if (!client_command(s, w, n) && !mishap_command(s, w)) {
		fprintf(stderr, "no such command: %s\n", w[0]);
		exit(2);
	}
	tell_labels(s);
}

/* ---- files ---- */

static bool read_line(FILE *f, char *line, size_t size)
{
	if (!fgets(line, (int)size, f))
		return false;
	line[strcspn(line, "\n")] = 0;
	return true;
}

/* Runs a story; what it comes to now, whole, is appended to ret. */
static void run_file(FILE *f, struct buf *ret)
{
	struct story s = { 0 };
	char line[512];
	bool expected = false;

	while (read_line(f, line, sizeof line)) {
		if (expected) { /* what came of it before: up to the empty line */
			expected = line[0] != 0;
			if (!expected)
				buf_printf(ret, "\n");
			continue;
		}
		buf_printf(ret, "%s\n", line);
		if (strcmp(line, "----") == 0) {
			buf_append_slice(ret, buf_view(&s.out));
			buf_clear(&s.out);
			expected = true;
		} else if (line[0] && line[0] != '#') {
			command(&s, line);
		}
	}
	mini_free(s.m);
	buf_free(&s.out);
}

static void slurp(FILE *f, struct buf *ret)
{
	char bytes[4096];
	size_t n;

	rewind(f);
	while ((n = fread(bytes, 1, sizeof bytes, f)) > 0)
		buf_append(ret, bytes, n);
}

static bool run_path(const char *path, bool rewrite)
{
	struct buf now = { 0 }, before = { 0 };
	FILE *f = fopen(path, "r");
	bool same;

	if (!f) {
		fprintf(stderr, "cannot open %s\n", path);
		return false;
	}
	run_file(f, &now);
	slurp(f, &before);
	fclose(f);
	same = slice_eq(buf_view(&now), buf_view(&before));
	if (!same && rewrite) {
		f = fopen(path, "w");
		ASSERT(f);
		fwrite(now.ptr, 1, now.len, f);
		fclose(f);
	} else if (!same) {
		fprintf(stderr, "%s tells another story now:\n%.*s", path, (int)now.len, (const char *)now.ptr);
	}
	buf_free(&now);
	buf_free(&before);
	return same || rewrite;
}

int main(int argc, char **argv)
{
	bool rewrite = argc > 1 && strcmp(argv[1], "--rewrite") == 0, all = true;

	for (int i = rewrite ? 2 : 1; i < argc; i++)
		all &= run_path(argv[i], rewrite);
	return all ? EXIT_SUCCESS : EXIT_FAILURE;
}
