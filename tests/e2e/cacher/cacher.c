/* cacher.c: a process that caches values, or one that writes them, and the history of what it asked and was told (read by tests/lib/cached.py).
 *
 *   cacher ENDPOINTS TTL_S KEYS HISTORY write PERIOD_MS      writes rising numbers to each key, the next so long after the last was answered
 *   cacher ENDPOINTS TTL_S KEYS HISTORY read SESSIONS RATE   reads RATE times a second in all, by so many sessions; every second read is of key 0
 *
 * A key that a session waits for is passed over, so it goes on to read what it has in memory, as do the others. A session that is over is closed, and another opened
 * in its place. HISTORY is a file of struct record, "-": none. The clock that its times are of is the machine's: histories of several
 * processes fit together.
 *
 * Prints "open"; for each line of input "counts READS HITS MISSES FAILED JEOPARDY EXPIRED" or "counts WRITTEN FAILED"; at the end of its input the same, and ends. */
#include <holdfast.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SESSIONS_MAX = 2000, KEYS_MAX = 64, CALL_MS = 60000, CLOSE_MS = 2000 };

enum what { READ_MEMORY, READ_CELL, WRITTEN, WRITE_UNKNOWN };

struct record {
	uint64_t begin_ns, end_ns, value;
	uint32_t session;
	uint16_t key;
	uint8_t what, zero;
};

struct reading {
	uint32_t session;
	uint16_t key;
	atomic_bool busy; /* under way: only its callback touches the rest */
	uint64_t begin_ns;
};

struct reader {
	struct hf_session *session;
	atomic_bool opening, expired;
	struct reading readings[KEYS_MAX];
};

struct writer {
	uint16_t key;
	atomic_bool busy;
	bool failed;         /* whether its last number was written is not known: no more */
	uint64_t next, begin_ns, due_ns;
};

static struct hf_client *client;
static const char *const prefixes[] = { "/cached", NULL };
static int ttl_s, keys, sessions, rate;
static uint64_t period_ns;
static struct reader readers[SESSIONS_MAX];
static struct writer writers[KEYS_MAX];
static atomic_bool over;
static atomic_ulong done, failed, jeopardies, expiries, hits, misses, closed; /* hits, misses: of sessions that are closed */
static unsigned long closing;
static pthread_mutex_t sessions_mu = PTHREAD_MUTEX_INITIALIZER; /* readers[].session is exchanged */
static _Thread_local bool calling; /* a callback that runs meanwhile is told what is in memory */
static pthread_mutex_t history_mu = PTHREAD_MUTEX_INITIALIZER;
static FILE *history;

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void nap_ms(int ms)
{
	struct timespec t = { 0, ms * 1000000L };
	nanosleep(&t, NULL);
}

static void note(const struct record *r)
{
	if (!history)
		return;
	pthread_mutex_lock(&history_mu);
	fwrite(r, sizeof(*r), 1, history);
	pthread_mutex_unlock(&history_mu);
}

static const char *path_of(uint16_t key, char path[24])
{
	snprintf(path, 24, "/cached/%u", key);
	return path;
}

/* ---- writing ---- */

static void on_written(void *arg, const struct hf_result *result)
{
	struct writer *w = arg;
	struct record r = { w->begin_ns, now_ns(), w->next, 0, w->key, WRITTEN, 0 };
	if (result->code == HF_OK) {
		atomic_fetch_add(&done, 1);
	} else {
		r.end_ns = UINT64_MAX;
		r.what = WRITE_UNKNOWN;
		w->failed = true;
		atomic_fetch_add(&failed, 1);
	}
	note(&r);
	w->due_ns = now_ns() + period_ns;
	atomic_store(&w->busy, false);
}

static void write_one(struct writer *w)
{
	char path[24], text[24];
	int len = snprintf(text, sizeof(text), "%" PRIu64, ++w->next);
	w->begin_ns = now_ns();
	atomic_store(&w->busy, true);
	if (hf_set_async(readers[0].session, path_of(w->key, path), (struct hf_slice){ text, (size_t)len }, HF_ANY_VERSION, CALL_MS, on_written, w))
		abort();
}

static void *write_on(void *arg)
{
	for (int i = 0; i < keys; i++) {
		writers[i].key = (uint16_t)i;
		writers[i].due_ns = now_ns() + period_ns / (uint64_t)keys * (uint64_t)i; /* one after the other */
	}
	while (!atomic_load(&over)) {
		for (int i = 0; i < keys; i++) {
			struct writer *w = &writers[i];
			if (!atomic_load(&w->busy) && !w->failed && now_ns() >= w->due_ns)
				write_one(w);
		}
		nap_ms(1);
	}
	for (int i = 0; i < keys; i++) {
		while (atomic_load(&writers[i].busy))
			nap_ms(1);
	}
	return arg;
}

/* ---- reading ---- */

static void on_state(void *arg, struct hf_session *s, enum hf_state state, enum hf_reason reason)
{
	struct reader *r = arg;
	(void)s, (void)reason;
	if (state == HF_JEOPARDY)
		atomic_fetch_add(&jeopardies, 1);
	if (state == HF_EXPIRED) {
		atomic_fetch_add(&expiries, 1);
		atomic_store(&r->expired, true);
	}
}

static void on_open(void *arg, const struct hf_result *result)
{
	struct reader *r = arg;
	(void)result; /* one that could not be opened has expired */
	atomic_store(&r->opening, false);
}

static void open_one(struct reader *r)
{
	struct hf_session_options o = { .ttl_s = ttl_s, .cache_prefixes = rate ? prefixes : NULL, .on_state = on_state, .arg = r };
	atomic_store(&r->opening, true);
	atomic_store(&r->expired, false);
	if (hf_session_open_async(client, &o, CALL_MS, on_open, r, &r->session))
		abort();
}

static void on_closed(void *arg, const struct hf_result *result)
{
	(void)arg, (void)result;
	atomic_fetch_add(&closed, 1);
}

static void close_one(struct reader *r)
{
	struct hf_cache_stats s;
	hf_cache_stats(r->session, &s);
	atomic_fetch_add(&hits, s.hits);
	atomic_fetch_add(&misses, s.misses);
	closing++;
	hf_session_close_async(r->session, CLOSE_MS, on_closed, NULL);
}

static void on_read(void *arg, const struct hf_result *result)
{
	struct reading *g = arg;
	struct record record = { g->begin_ns, now_ns(), 0, g->session, g->key, calling ? READ_MEMORY : READ_CELL, 0 };
	if (result->code == HF_OK || result->code == HF_NOT_FOUND) {
		if (result->code == HF_OK) {
			char text[24];
			snprintf(text, sizeof(text), "%.*s", (int)result->nodes[0].value.len, (const char *)result->nodes[0].value.ptr);
			record.value = strtoull(text, NULL, 10);
		}
		note(&record);
		atomic_fetch_add(&done, 1);
	} else {
		atomic_fetch_add(&failed, 1);
	}
	atomic_store(&g->busy, false);
}

static void read_one(struct reader *r, struct reading *g)
{
	char path[24];
	if (atomic_load(&r->opening))
		return;
	if (atomic_load(&r->expired)) {
		pthread_mutex_lock(&sessions_mu);
		close_one(r);
		open_one(r);
		pthread_mutex_unlock(&sessions_mu);
		return;
	}
	if (atomic_load(&g->busy))
		return;
	atomic_store(&g->busy, true);
	path_of(g->key, path);
	g->begin_ns = now_ns();
	calling = true;
	if (hf_get_async(r->session, path, CALL_MS, on_read, g))
		abort();
	calling = false;
}

static void *read_on(void *arg)
{
	uint64_t begin = now_ns(), asked = 0;
	while (!atomic_load(&over)) {
		uint64_t due = (now_ns() - begin) / 1000 * (uint64_t)rate / 1000000;
		if (due > asked + (uint64_t)rate / 10)
			asked = due - (uint64_t)rate / 10; /* it was stopped: what it has not read is not read now */
		for (; asked < due; asked++) {
			struct reader *r = &readers[asked % (uint64_t)sessions];
			uint64_t round = asked / (uint64_t)sessions;
			read_one(r, &r->readings[round % 2 == 0 ? 0 : round / 2 % (uint64_t)keys]);
		}
		nap_ms(1);
	}
	return arg;
}

/* ---- the process ---- */

static void say_counts(void)
{
	unsigned long h, m;
	pthread_mutex_lock(&sessions_mu);
	h = atomic_load(&hits);
	m = atomic_load(&misses);
	if (!rate) {
		printf("counts %lu %lu\n", atomic_load(&done), atomic_load(&failed));
	} else {
		for (int i = 0; i < sessions && !atomic_load(&over); i++) {
			struct hf_cache_stats s;
			hf_cache_stats(readers[i].session, &s);
			h += s.hits;
			m += s.misses;
		}
		printf("counts %lu %lu %lu %lu %lu %lu\n", atomic_load(&done), h, m, atomic_load(&failed), atomic_load(&jeopardies), atomic_load(&expiries));
	}
	pthread_mutex_unlock(&sessions_mu);
	fflush(stdout);
}

static void end_all(void)
{
	for (int i = 0; i < sessions; i++)
		close_one(&readers[i]);
	while (atomic_load(&closed) < closing)
		nap_ms(1);
	hf_client_free(client);
	if (history)
		fclose(history);
	say_counts();
}

int main(int argc, char **argv)
{
	struct hf_client_options options = { 0 };
	pthread_t thread;
	bool writes;
	char line[16];
	if (argc < 7)
		return 2;
	options.endpoints = argv[1];
	ttl_s = atoi(argv[2]);
	keys = atoi(argv[3]);
	writes = strcmp(argv[5], "write") == 0;
	sessions = writes ? 1 : atoi(argv[6]);
	rate = writes || argc < 8 ? 0 : atoi(argv[7]);
	period_ns = writes ? strtoull(argv[6], NULL, 10) * 1000000 : 0;
	if (keys < 1 || keys > KEYS_MAX || sessions < 1 || sessions > SESSIONS_MAX || (!writes && rate < 1) || hf_client_new(&options, &client))
		return 2;
	if (strcmp(argv[4], "-") != 0 && !(history = fopen(argv[4], "wb")))
		return 2;
	for (int i = 0; i < sessions; i++) {
		for (int k = 0; k < keys; k++)
			readers[i].readings[k] = (struct reading){ .session = (uint32_t)i, .key = (uint16_t)k };
		open_one(&readers[i]);
	}
	for (int i = 0; i < sessions; i++) {
		while (atomic_load(&readers[i].opening))
			nap_ms(1);
	}
	puts("open");
	fflush(stdout);
	pthread_create(&thread, NULL, writes ? write_on : read_on, NULL);
	while (fgets(line, sizeof(line), stdin))
		say_counts();
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	end_all();
	return 0;
}
