/* config.c: configuration that is read all the time and changed now and then: cached values that are never stale, compare-and-set, watches.
 *
 *   config ENDPOINTS           cc config.c $(pkg-config --cflags --libs holdfast) */
#include <holdfast.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static char latest[32];
static int fired;

static void on_value(void *arg, const struct hf_result *r)
{
	(void)arg;
	if (r->code != HF_OK)
		return;
	pthread_mutex_lock(&mu);
	snprintf(latest, sizeof(latest), "%.*s", (int)r->nodes[0].value.len, (const char *)r->nodes[0].value.ptr);
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&mu);
}

static void on_change(void *arg, struct hf_watch *watch, enum hf_code code, enum hf_change change, const char *path, int64_t revision)
{
	(void)arg, (void)watch, (void)change, (void)path, (void)revision;
	pthread_mutex_lock(&mu);
	fired = code == HF_OK;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&mu);
}

static struct hf_slice text(const char *s, size_t len)
{
	return (struct hf_slice){ s, len };
}

/* Says what went wrong. */
static int failed(const char *what, enum hf_code c)
{
	if (c)
		fprintf(stderr, "%s: %s\n", what, hf_text(c));
	return c != HF_OK;
}

static void show(struct hf_session *session, const char *path)
{
	struct hf_value *v;
	enum hf_code c = hf_get(session, path, 5000, &v);
	if (c) {
		printf("%s: %s\n", path, hf_text(c));
		return;
	}
	printf("%s = %.*s, version %lld\n", path, (int)v->node.value.len, (const char *)v->node.value.ptr, (long long)v->node.version);
	hf_value_free(v);
}

static double read_often(struct hf_session *session, const char *path, int times)
{
	struct timespec from, to;
	struct hf_value *v;
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < times; i++) {
		if (hf_get(session, path, 5000, &v) == HF_OK)
			hf_value_free(v);
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / times;
}

int main(int argc, char **argv)
{
	static const char *const prefixes[] = { "/config", NULL };
	struct hf_client_options options = { .endpoints = argc > 1 ? argv[1] : "127.0.0.1:2379" };
	struct hf_session_options caching = { .cache_prefixes = prefixes };
	struct hf_session *reader, *writer;
	struct hf_cache_stats stats;
	struct hf_client *client;
	struct hf_watch *follow, *watch;
	struct hf_list *list;
	int64_t version = 0;
	char *path;

	if (failed("endpoints", hf_client_new(&options, &client)) || failed("session", hf_session_open(client, &caching, 10000, &reader)) ||
	    failed("session", hf_session_open(client, NULL, 10000, &writer)))
		return 1;
	show(reader, "/config/limit"); /* that there is none is cached, too */
	if (failed("set", hf_set(writer, "/config/limit", text("10", 2), 0, 5000, &version)))
		return 1;
	show(reader, "/config/limit");
	printf("compare and set: %s\n", hf_text(hf_set(writer, "/config/limit", text("20", 2), version, 5000, &version)));
	printf("with an old version: %s\n", hf_text(hf_set(writer, "/config/limit", text("30", 2), 1, 5000, NULL)));
	show(reader, "/config/limit");

	if (failed("watch", hf_watch(reader, "/config/limit", HF_WATCH_VALUE, 5000, on_change, NULL, NULL, &watch)) ||
	    failed("follow", hf_follow(reader, "/config/limit", on_value, NULL, &follow)))
		return 1;
	if (failed("set", hf_set(writer, "/config/limit", text("40", 2), HF_ANY_VERSION, 5000, NULL)))
		return 1;
	pthread_mutex_lock(&mu);
	while (!fired || latest[0] != '4')
		pthread_cond_wait(&changed, &mu);
	printf("the watch fired, and the follower has %s\n", latest);
	pthread_mutex_unlock(&mu);
	hf_watch_stop(watch);
	hf_watch_stop(follow);

	if (hf_create(writer, "/config/workers/w-", text("", 0), HF_EPHEMERAL | HF_SEQUENTIAL, 5000, &path) == HF_OK)
		hf_string_free(path);
	if (hf_list(reader, "/config/workers", 5000, &list) == HF_OK) {
		printf("workers: %zu\n", list->len);
		hf_list_free(list);
	}

	show(reader, "/config/limit");
	fprintf(stderr, "%.0f ns a read\n", read_often(reader, "/config/limit", 200000));
	hf_cache_stats(reader, &stats);
	printf("most reads came from memory: %s\n", stats.hits > 100 * (stats.misses + 1) ? "yes" : "no");
	hf_delete(writer, "/config/limit", HF_ANY_VERSION, 5000);
	show(reader, "/config/limit");
	hf_session_close(writer, 5000);
	hf_session_close(reader, 5000);
	hf_client_free(client);
	return 0;
}
