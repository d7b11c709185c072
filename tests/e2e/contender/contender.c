/* contender.c: a process with many sessions that all want one lock, and a guarded table in SQLite (and PostgreSQL, by psql) that its holder writes to.
 *
 *   contender ENDPOINTS NAME SESSIONS TTL_S SQLITE_FILE [PSQL COMMAND]
 *
 * It prints what happens, a line each: "open N", "queued", "granted I TOKEN", "wrote TARGET TOKEN RESULT", "state I STATE REASON", "lost I REASON",
 * "unlocked RESULT", "counts SAFE JEOPARDY EXPIRED REMAINING_MS" (sessions that were ever in JEOPARDY or EXPIRED; the least that any has left). On its input it is told:
 *   write   the holder writes with the token it was granted, whatever has become of the lock since: a write that was prepared before
 *   unlock  the holder gives the lock up
 *   token   prints what hf_lock_token says now
 *   counts  prints counts
 * and ends at the end of its input (a user, a password and PEM text for TLS are taken from CONTENDER_* in the environment), leaving its sessions to themselves; with "close" it closes them first. */
#include <holdfast.h>
#include <holdfast_fence.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SESSIONS_MAX 6000

struct contender {
	int number;
	struct hf_session *session;
	int jeopardy, expired;
};

static struct contender contenders[SESSIONS_MAX];
static int sessions, opened, closed;
static const char *name, *psql;
static sqlite3 *db;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* guarded by mu */
static struct hf_lock *held;
static long long token; /* as granted */

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	flockfile(stdout);
	vprintf(fmt, ap);
	putchar('\n');
	fflush(stdout);
	funlockfile(stdout);
	va_end(ap);
}

/* ---- what the lock guards ---- */

static void write_sqlite(long long with)
{
	enum hf_fence_code c;
	char sql[100];
	snprintf(sql, sizeof(sql), "UPDATE guarded SET owner = %lld", with);
	if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL)) {
		say("wrote sqlite %lld %s", with, sqlite3_errmsg(db));
		return;
	}
	c = hf_fence_sqlite(db, name, strlen(name), HF_FENCE_EXCLUSIVE, with);
	if (!c && sqlite3_exec(db, sql, NULL, NULL, NULL))
		c = HF_FENCE_FAILED;
	sqlite3_exec(db, c ? "ROLLBACK" : "COMMIT", NULL, NULL, NULL);
	say("wrote sqlite %lld %s", with, c == HF_FENCE_OK ? "ok" : c == HF_FENCE_STALE ? "stale" : hf_fence_text(c));
}

static void write_postgres(long long with)
{
	char line[1000], sql[1600];
	int stale = 0, status;
	FILE *p;
	if (!psql)
		return;
	snprintf(sql, sizeof(sql), "%s -c \"BEGIN; SELECT holdfast_fence('%s', %lld); UPDATE guarded SET owner = %lld; COMMIT\" 2>&1", psql, name, with, with);
	p = popen(sql, "r");
	while (p && fgets(line, sizeof(line), p))
		stale |= strstr(line, "HF001") != NULL;
	status = p ? pclose(p) : -1;
	say("wrote postgres %lld %s", with, stale ? "stale" : status == 0 ? "ok" : "failed");
}

static void write_both(void)
{
	long long with;
	pthread_mutex_lock(&mu);
	with = token;
	pthread_mutex_unlock(&mu);
	write_sqlite(with);
	write_postgres(with);
}

/* ---- sessions ---- */

static void on_state(void *arg, struct hf_session *s, enum hf_state state, enum hf_reason reason)
{
	static const char *const names[] = { "OPENING", "SAFE", "JEOPARDY", "EXPIRED", "CLOSING", "CLOSED" };
	struct contender *c = arg;
	(void)s;
	pthread_mutex_lock(&mu);
	c->jeopardy |= state == HF_JEOPARDY;
	c->expired |= state == HF_EXPIRED;
	pthread_mutex_unlock(&mu);
	if (state == HF_JEOPARDY || state == HF_EXPIRED)
		say("state %d %s %s", c->number, names[state], hf_reason_text(reason));
}

static void on_lost(void *arg, struct hf_lock *lock, enum hf_reason reason)
{
	struct contender *c = arg;
	(void)lock;
	say("lost %d %s", c->number, hf_reason_text(reason));
}

static void on_lock(void *arg, const struct hf_result *r)
{
	struct contender *c = arg;
	if (r->code != HF_OK) {
		say("refused %d %s: %s", c->number, hf_text(r->code), r->text);
		return;
	}
	pthread_mutex_lock(&mu);
	held = r->lock;
	token = hf_lock_token(r->lock);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mu);
	say("granted %d %lld", c->number, token);
}

static void ask(struct contender *c)
{
	struct hf_lock_options o = { .mode = HF_EXCLUSIVE, .timeout_ms = HF_FOREVER, .on_lost = on_lost, .arg = c };
	hf_lock_async(c->session, (struct hf_slice){ name, strlen(name) }, &o, on_lock, c, NULL);
}

static void on_open(void *arg, const struct hf_result *r)
{
	struct contender *c = arg;
	if (r->code != HF_OK) {
		say("failed %d %s: %s", c->number, hf_text(r->code), r->text);
		return;
	}
	pthread_mutex_lock(&mu);
	opened++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mu);
	if (*name)
		ask(c);
}

static void on_close(void *arg, const struct hf_result *r)
{
	(void)arg, (void)r;
	pthread_mutex_lock(&mu);
	closed++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mu);
}

static void counts(void)
{
	int safe = 0, jeopardy = 0, expired = 0;
	uint32_t least = UINT32_MAX;
	for (int i = 0; i < sessions; i++) {
		uint32_t remaining = hf_session_remaining_ms(contenders[i].session);
		safe += hf_session_state(contenders[i].session) == HF_SAFE;
		least = remaining < least ? remaining : least;
	}
	pthread_mutex_lock(&mu);
	for (int i = 0; i < sessions; i++) {
		jeopardy += contenders[i].jeopardy;
		expired += contenders[i].expired;
	}
	pthread_mutex_unlock(&mu);
	say("counts %d %d %d %u", safe, jeopardy, expired, least);
}

static void unlock(void)
{
	struct hf_lock *l;
	pthread_mutex_lock(&mu);
	l = held;
	held = NULL;
	pthread_mutex_unlock(&mu);
	if (l)
		say("unlocked %s", hf_text(hf_unlock(l, 10000)));
}

static void show_token(void)
{
	struct hf_lock *l;
	pthread_mutex_lock(&mu);
	l = held;
	pthread_mutex_unlock(&mu);
	if (l)
		say("token %lld", (long long)hf_lock_token(l));
}

int main(int argc, char **argv)
{
	struct hf_client_options options = { 0 };
	struct hf_client *client;
	char line[100];
	int orderly = 0;
	if (argc < 6)
		return 2;
	options.endpoints = argv[1];
	options.user = getenv("CONTENDER_USER");
	options.password = getenv("CONTENDER_PASSWORD");
	options.tls_ca = getenv("CONTENDER_CA");
	options.tls_cert = getenv("CONTENDER_CERT");
	options.tls_key = getenv("CONTENDER_KEY");
	name = argv[2];
	sessions = atoi(argv[3]);
	psql = argc > 6 ? argv[6] : NULL;
	if (sessions < 1 || sessions > SESSIONS_MAX || hf_client_new(&options, &client))
		return 2;
	if (*argv[5] && (sqlite3_open(argv[5], &db) || sqlite3_busy_timeout(db, 10000) || hf_fence_sqlite_init(db)))
		return 2;
	for (int i = 0; i < sessions; i++) {
		struct contender *c = &contenders[i];
		struct hf_session_options o = { .ttl_s = atoi(argv[4]), .grace_ms = 45000, .on_state = on_state, .arg = c };
		c->number = i;
		if (hf_session_open_async(client, &o, 60000, on_open, c, &c->session))
			return 2;
	}
	pthread_mutex_lock(&mu);
	while (opened < sessions)
		pthread_cond_wait(&changed, &mu);
	pthread_mutex_unlock(&mu);
	say("open %d", sessions);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!strcmp(line, "write"))
			write_both();
		else if (!strcmp(line, "unlock"))
			unlock();
		else if (!strcmp(line, "token"))
			show_token();
		else if (!strcmp(line, "counts"))
			counts();
		else if (!strcmp(line, "close"))
			orderly = 1;
		if (orderly)
			break;
	}
	if (!orderly)
		_exit(0);
	unlock();
	for (int i = 0; i < sessions; i++)
		hf_session_close_async(contenders[i].session, 10000, on_close, NULL);
	pthread_mutex_lock(&mu);
	while (closed < sessions)
		pthread_cond_wait(&changed, &mu);
	pthread_mutex_unlock(&mu);
	hf_client_free(client);
	sqlite3_close(db);
	say("closed");
	return 0;
}
