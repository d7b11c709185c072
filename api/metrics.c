/* metrics.c: see metrics.h.
 *
 * A shard is struct metrics seen as numbers; only its thread writes to it, with relaxed stores, and others read with relaxed loads. A thread's shard is
 * added to `retired` when the thread ends. */
#include "metrics.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/mem.h"

enum { WORDS = sizeof(struct metrics) / sizeof(uint64_t) };

struct shard {
	struct list link;
	_Atomic uint64_t words[WORDS];
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct list shards = { &shards, &shards }; /* guarded by mu */
static uint64_t retired[WORDS];                   /* guarded by mu */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static _Thread_local struct shard *own;

static void shard_end(void *arg)
{
	struct shard *s = arg;
	pthread_mutex_lock(&mu);
	for (size_t i = 0; i < WORDS; i++)
		retired[i] += atomic_load_explicit(&s->words[i], memory_order_relaxed);
	list_remove(&s->link);
	pthread_mutex_unlock(&mu);
	own = NULL;
	free(s);
}

static void key_init(void)
{
	ASSERT(pthread_key_create(&key, shard_end) == 0);
}

static struct shard *shard_new(void)
{
	struct shard *s = mem_zalloc(sizeof(*s));
	pthread_once(&once, key_init);
	pthread_mutex_lock(&mu);
	list_push_back(&shards, &s->link);
	pthread_mutex_unlock(&mu);
	ASSERT(pthread_setspecific(key, s) == 0);
	own = s;
	return s;
}

static void add(size_t offset, uint64_t n)
{
	struct shard *s = own ? own : shard_new();
	_Atomic uint64_t *w = &s->words[offset / sizeof(uint64_t)];
	atomic_store_explicit(w, atomic_load_explicit(w, memory_order_relaxed) + n, memory_order_relaxed);
}

#define NTH(field, i) (offsetof(struct metrics, field) + (size_t)(i) * sizeof(((struct metrics *)0)->field[0]))

void metric_add(enum metric m, uint64_t n)
{
	add(NTH(counters, m), n);
}

void metric_took(enum metric_time t, uint64_t us)
{
	size_t base = NTH(times, t), bucket = 0;
	add(base + offsetof(__typeof__(((struct metrics *)0)->times[0]), count), 1);
	add(base + offsetof(__typeof__(((struct metrics *)0)->times[0]), sum_us), us);
	while (bucket < METRIC_BUCKETS && us > (UINT64_C(1000) << bucket))
		bucket++;
	if (bucket < METRIC_BUCKETS)
		add(base + offsetof(__typeof__(((struct metrics *)0)->times[0]), buckets) + bucket * sizeof(uint64_t), 1);
}

const double metric_call_bounds_s[METRIC_CALL_BUCKETS] = { .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10 };

void metric_call_took(enum method_id m, uint64_t us)
{
	size_t base = NTH(calls, m), bucket = 0;
	while (bucket < METRIC_CALL_BUCKETS && (double)us > metric_call_bounds_s[bucket] * 1e6)
		bucket++;
	add(base + offsetof(__typeof__(((struct metrics *)0)->calls[0]), sum_us), us);
	add(base + offsetof(__typeof__(((struct metrics *)0)->calls[0]), buckets) + bucket * sizeof(uint64_t), 1);
}

/* ---- who calls ---- */

#define VERSION_MAX 32

static char versions[METRIC_CLIENTS_MAX][VERSION_MAX] = { "unknown", "other" }; /* written under mu, once each, before versions_len says so */
static _Atomic unsigned versions_len = METRIC_CLIENT_OTHER + 1;

/* It becomes a label, and goes to whoever looks at the figures. */
static bool is_version(struct slice s)
{
	for (size_t i = 0; i < s.len; i++) {
		uint8_t b = s.ptr[i];
		if (!(b >= '0' && b <= '9') && !(b >= 'a' && b <= 'z') && !(b >= 'A' && b <= 'Z') && b != '.' && b != '-' && b != '+')
			return false;
	}
	return s.len > 0 && s.len < VERSION_MAX;
}

static unsigned find_version(struct slice version, unsigned from, unsigned len)
{
	for (; from < len; from++) {
		if (slice_eq(version, slice_of_str(versions[from])))
			return from;
	}
	return METRIC_CLIENT_OTHER;
}

static unsigned add_version(struct slice version, unsigned from)
{
	unsigned len, at;
	pthread_mutex_lock(&mu);
	len = atomic_load_explicit(&versions_len, memory_order_relaxed);
	at = find_version(version, from, len);
	if (at == METRIC_CLIENT_OTHER && len < METRIC_CLIENTS_MAX) {
		at = len;
		memcpy(versions[at], version.ptr, version.len);
		atomic_store_explicit(&versions_len, len + 1, memory_order_release);
	}
	pthread_mutex_unlock(&mu);
	return at;
}

unsigned metric_client(struct slice version)
{
	unsigned len = atomic_load_explicit(&versions_len, memory_order_acquire);
	unsigned at = find_version(version, 0, len);
	if (at != METRIC_CLIENT_OTHER || len == METRIC_CLIENTS_MAX || !is_version(version))
		return at;
	return add_version(version, len);
}

const char *metric_client_version(unsigned client)
{
	return client < atomic_load_explicit(&versions_len, memory_order_acquire) ? versions[client] : NULL;
}

void metric_client_call(unsigned client, bool stream)
{
	add(NTH(clients, client) + (size_t)stream * sizeof(uint64_t), 1);
}

/* ---- calls ---- */

void metric_call_started(enum method_id m)
{
	add(NTH(started, m), 1);
}

void metric_call_handled(enum method_id m, enum status_code status)
{
	add(NTH(handled, m) + (size_t)status * sizeof(uint64_t), 1);
}

void metric_call_received(enum method_id m, uint64_t messages, uint64_t bytes)
{
	add(NTH(received, m), messages);
	add(NTH(counters, METRIC_CLIENT_BYTES_IN), bytes);
}

void metric_call_sent(enum method_id m, uint64_t messages, uint64_t bytes)
{
	add(NTH(sent, m), messages);
	add(NTH(counters, METRIC_CLIENT_BYTES_OUT), bytes);
}

void metrics_sum(struct metrics *ret)
{
	uint64_t *words = (uint64_t *)(void *)ret;
	pthread_mutex_lock(&mu);
	memcpy(words, retired, sizeof(retired));
	LIST_FOR_EACH(it, &shards) {
		struct shard *s = CONTAINER_OF(it, struct shard, link);
		for (size_t i = 0; i < WORDS; i++)
			words[i] += atomic_load_explicit(&s->words[i], memory_order_relaxed);
	}
	pthread_mutex_unlock(&mu);
}
