/* cacher.c: processes that cache values, and one that writes them in turn, against each other: no read is older than a write that was completed before it began.
 *
 *   cacher ENDPOINTS TTL_S FILE write            writes rising numbers; notes in FILE the last one that was acknowledged
 *   cacher ENDPOINTS TTL_S FILE SESSIONS RATE    reads RATE times a second in all
 *
 * There are several, each of which is written seldom enough to be cached. FILE is mapped by all processes: the number that a read must at least show is loaded from it before the read begins. A read that shows less prints "stale". At the
 * end of its input each prints "counts READS HITS MISSES" or "wrote ACKNOWLEDGED TRIED", and ends. */
#include <fcntl.h>
#include <holdfast.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SESSIONS_MAX 2000
#define PATHS 16

static _Atomic uint64_t *floor_;
static atomic_bool over;
static struct hf_session *sessions[SESSIONS_MAX];

static void nap_us(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };
	nanosleep(&t, NULL);
}

static void *write_on(void *arg)
{
	uint64_t n = 0, acknowledged = 0;
	(void)arg;
	while (!atomic_load(&over)) {
		char text[24], path[24];
		int len = snprintf(text, sizeof(text), "%llu", (unsigned long long)++n);
		snprintf(path, sizeof(path), "/cached/%llu", (unsigned long long)(n % PATHS));
		if (hf_set(sessions[0], path, (struct hf_slice){ text, (size_t)len }, HF_ANY_VERSION, 20000, NULL) == HF_OK) {
			acknowledged++;
			atomic_store(&floor_[n % PATHS], n);
		}
		nap_us(90000);
	}
	printf("wrote %llu %llu\n", (unsigned long long)acknowledged, (unsigned long long)n);
	return NULL;
}

static void read_once(int i, uint64_t *reads)
{
	static unsigned turn;
	unsigned k = turn++ / 7 % PATHS;
	uint64_t least = atomic_load(&floor_[k]), shown = 0;
	struct hf_value *v;
	enum hf_code c;
	char path[24];
	snprintf(path, sizeof(path), "/cached/%u", k);
	c = hf_get(sessions[i], path, 20000, &v);
	if (c == HF_OK) {
		char text[24];
		snprintf(text, sizeof(text), "%.*s", (int)v->node.value.len, (const char *)v->node.value.ptr);
		shown = strtoull(text, NULL, 10);
		if (shown < least)
			printf("stale %llu, %llu was acknowledged; cached: %d, session %d\n", (unsigned long long)shown, (unsigned long long)least, v->cached, i);
		hf_value_free(v);
	} else if (c == HF_NOT_FOUND) {
		if (least)
			printf("stale: nothing there, %llu was acknowledged\n", (unsigned long long)least);
	} else {
		return;
	}
	++*reads;
}

int main(int argc, char **argv)
{
	static const char *const prefixes[] = { "/cached", NULL };
	struct hf_client_options options = { 0 };
	struct hf_client *client;
	uint64_t reads = 0, hits = 0, misses = 0;
	int writer, len, rate;
	pthread_t thread;
	int fd;
	if (argc < 5)
		return 2;
	options.endpoints = argv[1];
	fd = open(argv[3], O_RDWR);
	if (fd < 0 || hf_client_new(&options, &client))
		return 2;
	floor_ = mmap(NULL, PATHS * sizeof(*floor_), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	writer = !strcmp(argv[4], "write");
	len = writer ? 1 : atoi(argv[4]);
	rate = argc > 5 ? atoi(argv[5]) : 1000;
	if (floor_ == MAP_FAILED || len < 1 || len > SESSIONS_MAX || rate < 1)
		return 2;
	for (int i = 0; i < len; i++) {
		struct hf_session_options o = { .ttl_s = atoi(argv[2]), .cache_prefixes = writer ? NULL : prefixes };
		if (hf_session_open(client, &o, 30000, &sessions[i]))
			return 2;
	}
	printf("open %d\n", len);
	fflush(stdout);
	if (writer) {
		pthread_create(&thread, NULL, write_on, NULL);
		while (getchar() != EOF)
			;
		atomic_store(&over, true);
		pthread_join(thread, NULL);
	} else {
		fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
		for (int i = 0;; i = (i + 1) % len) {
			char c;
			read_once(i, &reads);
			if (i % 16 == 0) {
				if (read(0, &c, 1) == 0)
					break;
				nap_us(16000000 / rate);
			}
		}
	}
	for (int i = 0; i < len; i++) {
		struct hf_cache_stats s;
		hf_cache_stats(sessions[i], &s);
		hits += s.hits;
		misses += s.misses;
		hf_session_close(sessions[i], 2000);
	}
	if (!writer)
		printf("counts %llu %llu %llu\n", (unsigned long long)reads, (unsigned long long)hits, (unsigned long long)misses);
	hf_client_free(client);
	return 0;
}
