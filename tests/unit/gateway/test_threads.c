/* test_threads.c: many clients at once, each doing what it likes; answers from the node's thread all the while. For the thread sanitizer, too. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "client.h"

enum { CLIENTS = 6, ROUNDS = 150 };

struct worker {
	pthread_t thread;
	struct setup *setup;
	uint64_t seed;
};

static void ask(struct client *c, struct rng *rng)
{
	static const char *const asks[][2] = {
		{ "/v3/kv/put", "{\"key\":\"Zm9v\"}" },
		{ "/v3/kv/range", "{\"key\":\"Zm9v\",\"limit\":20000}" },
		{ "/v3/lease/keepalive", "{\"ID\":1}{\"ID\":2}{\"ID\":3}{\"ID\":500}" },
		{ "/v3/lock/lock", "{\"name\":\"bGs=\",\"wait_ms\":0}" },
		{ "/v3/kv/put", "{" },
		{ "/v3/election/observe", "{\"name\":\"ZW5k\"}" },
	};
	struct response r;
	size_t i = rng_below(rng, sizeof(asks) / sizeof(asks[0]));
	client_post(c, asks[i][0], asks[i][1]);
	client_read(c, &r, 20000);
	ASSERT(r.status != 0);
	ASSERT(r.whole);
	response_free(&r);
}

/* A watch or a waiter, left in the middle. */
static void leave(struct client *c, struct rng *rng)
{
	struct response r;
	if (rng_below(rng, 2)) {
		client_post(c, "/v3/watch", "{\"create_request\":{\"key\":\"Zmxvb2Q=\"}}");
		client_read(c, &r, (int)rng_below(rng, 20));
		response_free(&r);
	} else {
		client_post(c, "/v3/lock/lock", "{\"name\":\"bGs=\"}");
		pause_ms((int)rng_below(rng, 5));
	}
}

static void *run(void *arg)
{
	struct worker *w = arg;
	struct rng rng;
	rng_init(&rng, w->seed);
	for (int round = 0; round < ROUNDS / 5; round++) {
		struct client c;
		client_open(&c, w->setup);
		for (int i = 0; i < 5; i++)
			ask(&c, &rng);
		if (rng_below(&rng, 2))
			leave(&c, &rng);
		client_close(&c);
	}
	return NULL;
}

int main(void)
{
	struct setup setup;
	struct worker workers[CLIENTS];
	signal(SIGPIPE, SIG_IGN);
	setup_start_with(&setup, (struct gateway_config){ .max_request_bytes = 64 * 1024, .max_connections = 1000, .max_header_bytes = 4096,
							  .request_timeout_ms = 20000, .idle_timeout_ms = 20000 });
	for (int i = 0; i < CLIENTS; i++) {
		workers[i] = (struct worker){ .setup = &setup, .seed = (uint64_t)i + 1 };
		ASSERT(pthread_create(&workers[i].thread, NULL, run, &workers[i]) == 0);
	}
	for (int i = 0; i < CLIENTS; i++)
		pthread_join(workers[i].thread, NULL);
	setup_end(&setup);
	printf("%d clients, %d requests each\n", CLIENTS, ROUNDS);
	return EXIT_SUCCESS;
}
