/* leader.c: two candidates and one who watches, in one process: campaign, publish an address, proclaim another, resign.
 *
 *   leader ENDPOINTS           cc leader.c $(pkg-config --cflags --libs holdfast) */
#include <holdfast.h>
#include <pthread.h>
#include <stdio.h>

static const struct hf_slice name = { "example/leader", 14 };

/* ---- one who watches ---- */

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static int times;

static void on_leader(void *arg, const struct hf_result *r)
{
	(void)arg;
	pthread_mutex_lock(&mu);
	if (r->code == HF_OK)
		printf("leads: %.*s\n", (int)r->nodes[0].value.len, (const char *)r->nodes[0].value.ptr);
	else if (r->code == HF_NOT_FOUND)
		printf("nobody leads\n");
	times++;
	pthread_cond_signal(&told);
	pthread_mutex_unlock(&mu);
}

static void await_told(int n)
{
	pthread_mutex_lock(&mu);
	while (times < n)
		pthread_cond_wait(&told, &mu);
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

int main(int argc, char **argv)
{
	struct hf_client_options options = { .endpoints = argc > 1 ? argv[1] : "127.0.0.1:2379" };
	struct hf_lock_options try_once = { .mode = HF_EXCLUSIVE, .timeout_ms = 0 };
	struct hf_session *a, *b;
	struct hf_lock *leadership, *second;
	struct hf_places *places;
	struct hf_client *client;
	struct hf_watch *watch;

	if (failed("endpoints", hf_client_new(&options, &client)) || failed("session", hf_session_open(client, NULL, 10000, &a)) ||
	    failed("session", hf_session_open(client, NULL, 10000, &b)))
		return 1;
	if (failed("observe", hf_observe(b, name, on_leader, NULL, &watch)))
		return 1;
	await_told(1);
	if (failed("campaign", hf_campaign(a, name, text("host-a:80", 9), NULL, &leadership)))
		return 1;
	await_told(2);
	printf("the other's try: %s\n", hf_text(hf_campaign(b, name, text("host-b:80", 9), &try_once, &second)));
	if (failed("proclaim", hf_proclaim(leadership, text("host-a:81", 9), 5000)))
		return 1;
	await_told(3);
	if (failed("members", hf_members(b, name, 5000, &places)))
		return 1;
	printf("members: %zu, the first leads: %s\n", places->len, places->len && places->at[0].held ? "yes" : "no");
	hf_places_free(places);
	hf_unlock(leadership, 5000); /* resigns */
	await_told(4);
	if (failed("campaign", hf_campaign(b, name, text("host-b:80", 9), NULL, &second)))
		return 1;
	await_told(5);
	hf_watch_stop(watch);
	hf_unlock(second, 5000);
	hf_session_close(a, 5000);
	hf_session_close(b, 5000);
	hf_client_free(client);
	return 0;
}
