/* calls.c: every public call of libholdfast, in both its forms, with what it answers when all is well and when it is asked for what cannot be.
 *
 *   calls ENDPOINTS
 *
 * Prints "hit NS", the least processor time that a read from memory took on the average of some thousands, and "done"; or "FAIL", the line and what was not so. */
#include <holdfast.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SOON 20000

#define CHECK(x)                                                  \
	do {                                                      \
		if (!(x)) {                                       \
			printf("FAIL line %d: %s\n", __LINE__, #x); \
			fflush(stdout);                           \
			_Exit(1);                                 \
		}                                                 \
	} while (0)

/* What a callback was told last, and how often. */
struct got {
	int times;
	enum hf_code code;
	char text[200], path[1200], value[64];
	struct hf_node node;
	size_t nodes, places;
	int64_t first_token;
	struct hf_lock *lock;
	int64_t holder_session, holder_token, waiters;
	enum hf_change change;
	enum hf_reason lost;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void tell_all(struct got *g)
{
	g->times++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mu);
}

static void on(void *arg, const struct hf_result *r)
{
	struct got *g = arg;
	CHECK(r->text && *r->text);
	pthread_mutex_lock(&mu);
	g->code = r->code;
	snprintf(g->text, sizeof(g->text), "%s", r->text);
	g->nodes = r->nodes_len;
	if (r->nodes_len) {
		g->node = r->nodes[0];
		snprintf(g->path, sizeof(g->path), "%s", r->nodes[0].path);
		snprintf(g->value, sizeof(g->value), "%.*s", (int)(r->nodes[0].value.len < 60 ? r->nodes[0].value.len : 60), (const char *)r->nodes[0].value.ptr);
	}
	g->places = r->places_len;
	g->first_token = r->places_len ? r->places[0].token : 0;
	g->lock = r->lock;
	g->holder_session = r->holder_session;
	g->holder_token = r->holder_token;
	g->waiters = r->waiters;
	tell_all(g);
}

static void on_fired(void *arg, struct hf_watch *watch, enum hf_code code, enum hf_change change, const char *path, int64_t revision)
{
	struct got *g = arg;
	CHECK(watch && path && (code || revision > 0));
	pthread_mutex_lock(&mu);
	g->code = code;
	g->change = change;
	snprintf(g->path, sizeof(g->path), "%s", path);
	tell_all(g);
}

static void on_lost(void *arg, struct hf_lock *lock, enum hf_reason reason)
{
	struct got *g = arg;
	CHECK(hf_lock_token(lock) == 0 && hf_lock_lost(lock) == reason);
	pthread_mutex_lock(&mu);
	g->lost = reason;
	tell_all(g);
	CHECK(hf_unlock_async(lock, 0, NULL, NULL) == HF_OK);
}

static void wait_times(struct got *g, int times)
{
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += SOON / 1000;
	pthread_mutex_lock(&mu);
	while (g->times < times)
		CHECK(pthread_cond_timedwait(&changed, &mu, &end) == 0);
	pthread_mutex_unlock(&mu);
}

/* The callback form, waited for. */
#define ASYNC(g, call) (memset(&(g), 0, sizeof(g)), (call) == HF_OK ? (wait_times(&(g), 1), (g).code) : HF_FAILED)

static struct hf_slice text(const char *s)
{
	return (struct hf_slice){ s, strlen(s) };
}

static struct hf_client *client;
static struct hf_session *a, *b; /* b caches below /c */

/* ---- clients and sessions ---- */

static void client_options(const char *endpoints)
{
	static const char *const bad[] = { NULL, "", "host", ":1", "host:", "a:1,,b:2", "a:1,", "http://a:1", "a b:1" };
	char many[33 * 4 + 1] = "";
	struct hf_client_options o = { 0 };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		o.endpoints = bad[i];
		CHECK(hf_client_new(&o, &client) == HF_INVALID);
	}
	for (int i = 0; i < 33; i++)
		strcat(many, i ? ",a:1" : "a:1");
	o.endpoints = many;
	CHECK(hf_client_new(&o, &client) == HF_INVALID);
	o.endpoints = endpoints;
	o.tls_cert = "cert";
	CHECK(hf_client_new(&o, &client) == HF_INVALID);
	o.tls_cert = NULL;
	o.user = "u";
	CHECK(hf_client_new(&o, &client) == HF_INVALID);
	o.user = NULL;
	CHECK(client == NULL && hf_client_new(&o, &client) == HF_OK);
	hf_client_free(NULL);
	CHECK(strchr(hf_version(), '.'));
	for (int c = HF_OK; c <= HF_FAILED; c++)
		CHECK(strlen(hf_text(c)) > 1);
	for (int r = HF_REASON_NONE; r <= HF_REASON_BROKEN; r++)
		CHECK(strlen(hf_reason_text(r)) > 1);
	CHECK(!strcmp(hf_text(HF_FAILED + 1), "?") && !strcmp(hf_reason_text(HF_REASON_BROKEN + 1), "?"));
}

static void session_options(void)
{
	static const char *const relative[] = { "x", NULL }, *const here[] = { "/c", NULL };
	const char *many[18] = { NULL };
	char name[258];
	struct hf_session *s = NULL;
	struct hf_client_options nobody = { .endpoints = "127.0.0.1:1" };
	struct hf_client *alone;
	struct got g = { 0 };
	memset(name, 'x', 257);
	name[257] = 0;
	for (int i = 0; i < 17; i++)
		many[i] = "/c";
#define REFUSED(...) (hf_session_open(client, &(struct hf_session_options){ __VA_ARGS__ }, SOON, &s) == HF_INVALID && !s)
	CHECK(REFUSED(.ttl_s = -1));
	CHECK(REFUSED(.ttl_s = 3601)); /* by the cell */
	CHECK(REFUSED(.ttl_s = 61, .cache_prefixes = here));
	CHECK(REFUSED(.cache_max = 10001));
	CHECK(REFUSED(.cache_prefixes = relative));
	CHECK(REFUSED(.cache_prefixes = many));
	CHECK(REFUSED(.name = name));
	CHECK(hf_client_new(&nobody, &alone) == HF_OK);
	CHECK(hf_session_open(alone, NULL, 200, &s) == HF_TIMEOUT && !s);
	CHECK(hf_session_open_async(alone, NULL, 200, on, &g, &s) == HF_OK && hf_session_id(s) == 0);
	CHECK(hf_create(s, "/n/early", text(""), HF_EPHEMERAL, SOON, NULL) == HF_INVALID);
	CHECK(hf_create(s, "/n/early", text(""), 0, SOON, NULL) == HF_SESSION_LOST);
	wait_times(&g, 1);
	CHECK(g.code == HF_TIMEOUT && hf_session_close(s, SOON) == HF_SESSION_LOST);
	s = NULL;
	hf_client_free(alone);

	CHECK(hf_session_open(client, NULL, SOON, &a) == HF_OK);
	CHECK(ASYNC(g, hf_session_open_async(client, &(struct hf_session_options){ .ttl_s = 60, .cache_prefixes = here, .name = "b" }, SOON, on, &g, &b)) == HF_OK);
	CHECK(hf_session_id(a) > 0 && hf_session_id(b) > 0 && hf_session_id(a) != hf_session_id(b));
	CHECK(hf_session_state(b) == HF_SAFE && hf_session_remaining_ms(b) > 0 && hf_session_remaining_ms(b) < 60000);
}

/* ---- locks and elections ---- */

static void locks(void)
{
	struct hf_lock_options shared = { .mode = HF_SHARED, .timeout_ms = SOON }, none = { .mode = 7 }, try = { 0 }, brief = { .timeout_ms = 100 };
	char name[HF_NAME_MAX + 1];
	struct got g;
	struct hf_places *p;
	struct hf_lock *l = NULL, *m = NULL;
	uint64_t call;
	int64_t token;
	memset(name, 'n', sizeof(name));
	CHECK(hf_lock(a, text(""), NULL, &l) == HF_INVALID);
	CHECK(hf_lock(a, (struct hf_slice){ name, sizeof(name) }, NULL, &l) == HF_INVALID);
	CHECK(hf_lock(a, text("l"), &none, &l) == HF_INVALID);
	CHECK(hf_lock_async(a, text("l"), NULL, NULL, NULL, NULL) == HF_INVALID);
	CHECK(hf_campaign(a, text("l"), text(""), &shared, &l) == HF_INVALID);
	CHECK(hf_campaign(a, text(""), text(""), NULL, &l) == HF_INVALID);
	CHECK(!l);

	CHECK(ASYNC(g, hf_lock_async(a, text("l"), NULL, on, &g, &call)) == HF_OK && g.lock);
	l = g.lock;
	token = hf_lock_token(l);
	CHECK(token > 0 && hf_lock_lost(l) == HF_REASON_NONE);
	CHECK(hf_lock(a, text("l"), &try, &m) == HF_BUSY);
	CHECK(hf_lock(b, text("l"), &try, &m) == HF_HELD && hf_lock(b, text("l"), &brief, &m) == HF_TIMEOUT && !m);
	CHECK(ASYNC(g, hf_lock_async(b, text("l"), &try, on, &g, NULL)) == HF_HELD && g.holder_session == hf_session_id(a) && g.holder_token == token && !g.waiters);
	memset(&g, 0, sizeof(g));
	CHECK(hf_lock_async(b, text("l"), NULL, on, &g, &call) == HF_OK);
	for (size_t queued = 0; queued < 2;) {
		CHECK(hf_members(a, text("l"), SOON, &p) == HF_OK && !p->more);
		queued = p->len;
		CHECK(queued >= 1 && p->at[0].session == hf_session_id(a) && p->at[0].token == token && p->at[0].held && !p->at[0].shared);
		CHECK(queued == 1 || (p->at[1].session == hf_session_id(b) && !p->at[1].held && p->at[1].token > token));
		hf_places_free(p);
	}
	hf_cancel(b, call);
	wait_times(&g, 1);
	CHECK(g.code == HF_CANCELED);
	CHECK(hf_proclaim(l, text("no"), SOON) == HF_CONFLICT); /* it is no leadership */
	CHECK(ASYNC(g, hf_unlock_async(l, SOON, on, &g)) == HF_OK);

	CHECK(hf_lock(a, text("s"), &shared, &l) == HF_OK && hf_lock(b, text("s"), &shared, &m) == HF_OK);
	CHECK(hf_lock_token(l) && hf_lock_token(m));
	CHECK(hf_unlock(l, SOON) == HF_OK && hf_unlock(m, SOON) == HF_OK);
	CHECK(ASYNC(g, hf_members_async(a, text("s"), SOON, on, &g)) == HF_OK && g.places == 0);
}

static void elections(void)
{
	struct hf_lock *l = NULL;
	struct hf_watch *w = NULL;
	struct hf_places *p;
	struct hf_value *v = NULL;
	struct got g, seen = { 0 };
	char *big = calloc(1, HF_VALUE_MAX + 1);
	CHECK(hf_leader(a, text("ele"), SOON, &v) == HF_NOT_FOUND && !v);
	CHECK(ASYNC(g, hf_leader_async(a, text("ele"), SOON, on, &g)) == HF_NOT_FOUND);
	CHECK(hf_observe(b, text("ele"), NULL, NULL, &w) == HF_INVALID && !w);
	CHECK(hf_observe(b, text("ele"), on, &seen, &w) == HF_OK);
	wait_times(&seen, 1);
	CHECK(seen.code == HF_NOT_FOUND);
	CHECK(hf_campaign(a, text("ele"), (struct hf_slice){ big, HF_VALUE_MAX + 1 }, NULL, &l) == HF_INVALID);
	CHECK(ASYNC(g, hf_campaign_async(a, text("ele"), text("v1"), NULL, on, &g, NULL)) == HF_OK);
	l = g.lock;
	wait_times(&seen, 2);
	CHECK(seen.code == HF_OK && !strcmp(seen.value, "v1") && seen.node.create_revision == hf_lock_token(l) && seen.node.session == hf_session_id(a));
	CHECK(hf_leader(b, text("ele"), SOON, &v) == HF_OK && v->node.value.len == 2 && v->node.create_revision == hf_lock_token(l));
	hf_value_free(v);
	hf_value_free(NULL);
	CHECK(ASYNC(g, hf_leader_async(b, text("ele"), SOON, on, &g)) == HF_OK && !strcmp(g.value, "v1"));
	CHECK(hf_proclaim(l, (struct hf_slice){ big, HF_VALUE_MAX + 1 }, SOON) == HF_INVALID);
	CHECK(ASYNC(g, hf_proclaim_async(l, text("v2"), SOON, on, &g)) == HF_OK);
	wait_times(&seen, 3);
	CHECK(!strcmp(seen.value, "v2"));
	CHECK(hf_proclaim(l, text("v3"), SOON) == HF_OK);
	wait_times(&seen, 4);
	CHECK(hf_members(b, text("ele"), SOON, &p) == HF_OK && p->len == 1 && p->at[0].held);
	hf_places_free(p);
	/* The queue of another name that begins with it is not its own. */
	CHECK(hf_members(b, text("el"), SOON, &p) == HF_OK && p->len == 0);
	hf_places_free(p);
	hf_places_free(NULL);
	CHECK(ASYNC(g, hf_members_async(b, text("ele"), SOON, on, &g)) == HF_OK && g.places == 1 && g.first_token == hf_lock_token(l));
	CHECK(hf_unlock(l, SOON) == HF_OK);
	wait_times(&seen, 5);
	CHECK(seen.code == HF_NOT_FOUND);
	hf_watch_stop(w);
	free(big);
}

/* ---- nodes ---- */

static void bad_paths(void)
{
	char deep[33 * 2 + 1] = "", longer[HF_PATH_MAX + 2];
	const char *bad[] = { NULL, "", "x", "/", "/a/", "//a", "/a//b", longer, "/a/../b", "/.", deep };
	struct hf_value *v;
	struct hf_list *list;
	for (int i = 0; i < 33; i++)
		strcat(deep, "/a");
	memset(longer, 'a', sizeof(longer) - 1);
	longer[0] = '/';
	longer[sizeof(longer) - 1] = 0;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct hf_watch *w = NULL;
		struct got g = { 0 };
		CHECK(hf_get(a, bad[i], SOON, &v) == HF_INVALID);
		CHECK(hf_get(b, bad[i], SOON, &v) == HF_INVALID);
		CHECK(hf_set(a, bad[i], text(""), HF_ANY_VERSION, SOON, NULL) == HF_INVALID);
		CHECK(hf_create(a, bad[i], text(""), 0, SOON, NULL) == HF_INVALID);
		CHECK(hf_delete(a, bad[i], HF_ANY_VERSION, SOON) == HF_INVALID);
		CHECK((bad[i] && !strcmp(bad[i], "/")) || hf_list(a, bad[i], SOON, &list) == HF_INVALID);
		CHECK(hf_watch(a, bad[i], HF_WATCH_VALUE, SOON, on_fired, &g, NULL, &w) == HF_INVALID && !w);
	}
	CHECK(hf_session_state(a) == HF_SAFE && hf_session_state(b) == HF_SAFE);
}

static void nodes(void)
{
	char *big = calloc(1, HF_VALUE_MAX + 1), *path = NULL;
	struct hf_slice most = { big, HF_VALUE_MAX }, too_much = { big, HF_VALUE_MAX + 1 };
	struct hf_value *v = NULL;
	struct hf_list *list;
	int64_t version = 0;
	struct got g;
	bad_paths();
	CHECK(hf_set(a, "/n/x", too_much, HF_ANY_VERSION, SOON, NULL) == HF_INVALID && hf_create(a, "/n/x", too_much, 0, SOON, NULL) == HF_INVALID);
	CHECK(hf_set(a, "/n/x", text("1"), -2, SOON, NULL) == HF_INVALID && hf_create(a, "/n/x", text("1"), 4, SOON, NULL) == HF_INVALID);
	CHECK(hf_delete(a, "/n/x", 0, SOON) == HF_INVALID);
	CHECK(hf_get(a, "/n/x", SOON, &v) == HF_NOT_FOUND && hf_delete(a, "/n/x", HF_ANY_VERSION, SOON) == HF_NOT_FOUND);
	CHECK(ASYNC(g, hf_get_async(a, "/n/x", SOON, on, &g)) == HF_NOT_FOUND);
	CHECK(hf_set(a, "/n/x", text("1"), 5, SOON, NULL) == HF_NOT_FOUND);
	CHECK(hf_set(a, "/n/x", most, 0, SOON, &version) == HF_OK && version == 1);
	CHECK(hf_set(a, "/n/x", text("1"), 0, SOON, NULL) == HF_EXISTS || hf_set(a, "/n/x", text("1"), 0, SOON, NULL) == HF_CONFLICT);
	CHECK(hf_get(b, "/n/x", SOON, &v) == HF_OK && v->node.value.len == HF_VALUE_MAX && v->node.version == 1 && !v->cached && !strcmp(v->node.path, "/n/x"));
	hf_value_free(v);
	CHECK(ASYNC(g, hf_set_async(a, "/n/x", text("two"), 1, SOON, on, &g)) == HF_OK && g.node.version == 2);
	CHECK(hf_set(a, "/n/x", text("3"), 1, SOON, &version) == HF_CONFLICT);
	CHECK(ASYNC(g, hf_get_async(a, "/n/x", SOON, on, &g)) == HF_OK && !strcmp(g.value, "two") && !strcmp(g.path, "/n/x"));
	CHECK(hf_create(a, "/n/x", text("1"), 0, SOON, &path) == HF_EXISTS && !path);
	CHECK(ASYNC(g, hf_create_async(a, "/n/q-", text("q"), HF_SEQUENTIAL, SOON, on, &g)) == HF_OK && strlen(g.path) == 5 + 19);
	CHECK(hf_create(a, "/n/here", text(""), HF_EPHEMERAL, SOON, &path) == HF_OK && !strcmp(path, "/n/here"));
	hf_string_free(path);
	hf_string_free(NULL);
	CHECK(hf_get(b, "/n/here", SOON, &v) == HF_OK && v->node.session == hf_session_id(a));
	hf_value_free(v);
	CHECK(hf_list(b, "/n", SOON, &list) == HF_OK && list->len == 3 && !list->more && !strcmp(list->at[0].path, "/n/here"));
	hf_list_free(list);
	hf_list_free(NULL);
	CHECK(ASYNC(g, hf_list_async(b, "/", SOON, on, &g)) == HF_OK);
	CHECK(ASYNC(g, hf_delete_async(a, "/n/x", 1, SOON, on, &g)) == HF_CONFLICT);
	CHECK(hf_delete(a, "/n/x", 2, SOON) == HF_OK);
	free(big);
}

static double hit_ns(void)
{
	double best = 1e9;
	struct hf_value *v;
	for (int round = 0; round < 20; round++) {
		struct timespec from, to;
		double ns;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
		for (int i = 0; i < 2000; i++) {
			if (hf_get(b, "/c/x", SOON, &v) == HF_OK)
				hf_value_free(v);
		}
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
		ns = ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / 2000;
		best = ns < best ? ns : best;
	}
	return best;
}

static void caches(void)
{
	struct hf_cache_stats s, t;
	struct hf_list *list;
	struct hf_value *v;
	struct got g = { 0 };
	CHECK(hf_get(b, "/c/x", SOON, &v) == HF_NOT_FOUND);
	CHECK(hf_get(b, "/c/none", SOON, &v) == HF_NOT_FOUND && hf_get(b, "/c/none", SOON, &v) == HF_NOT_FOUND);
	CHECK(hf_set(a, "/c/x", text("1"), HF_ANY_VERSION, SOON, NULL) == HF_OK);
	/* Twice, so that what is read next is there; unless the right to cache has ended meanwhile, it is told from memory. */
	for (int i = 0, cached = 0; !cached; i++) {
		CHECK(i < 1000 && hf_get(b, "/c/x", SOON, &v) == HF_OK && v->node.value.len == 1 && !memcmp(v->node.value.ptr, "1", 1));
		cached = v->cached;
		hf_value_free(v);
	}
	CHECK(hf_get_async(b, "/c/x", SOON, on, &g) == HF_OK);
	wait_times(&g, 1);
	CHECK(g.code == HF_OK && !strcmp(g.value, "1") && !strcmp(g.path, "/c/x"));
	hf_cache_stats(b, &s);
	CHECK(s.hits > 0 && s.misses > 0 && s.entries > 0);
	CHECK(hf_get(b, "/n/none", SOON, &v) == HF_NOT_FOUND && hf_get(b, "/n/none", SOON, &v) == HF_NOT_FOUND);
	hf_cache_stats(b, &t);
	CHECK(t.hits == s.hits && t.misses == s.misses); /* what may not be cached is neither */
	CHECK(hf_set(a, "/c/x", text("2"), HF_ANY_VERSION, SOON, NULL) == HF_OK);
	CHECK(hf_get(b, "/c/x", SOON, &v) == HF_OK && !memcmp(v->node.value.ptr, "2", 1));
	hf_value_free(v);
	hf_cache_stats(b, &t);
	CHECK(t.invalidations > s.invalidations);
	for (int i = 0; i < 2; i++) {
		CHECK(hf_list(b, "/c", SOON, &list) == HF_OK && list->len == 1 && !strcmp(list->at[0].path, "/c/x"));
		hf_list_free(list);
	}
	printf("hit %.0f\n", hit_ns());
	hf_cache_stats(b, &s);
	CHECK(s.hits >= t.hits + 20000 && s.hit_age_ms >= t.hit_age_ms && s.oldest_ms < 600000);
	hf_cache_stats(a, &t);
	CHECK(!t.hits && !t.misses && !t.entries);
}

/* ---- watches ---- */

static void watches(void)
{
	struct got fired = { 0 }, armed = { 0 }, follow = { 0 }, children = { 0 };
	struct hf_watch *w, *x, *y, *z;
	struct hf_value *v = NULL;
	CHECK(hf_watch(a, "/w/x", 9, SOON, on_fired, &fired, NULL, &w) == HF_INVALID && hf_watch(a, "/w/x", HF_WATCH_VALUE, SOON, NULL, NULL, NULL, &w) == HF_INVALID);
	CHECK(hf_follow(a, "/w/x", NULL, NULL, &w) == HF_INVALID && hf_follow(a, "w", on, NULL, &w) == HF_INVALID);
	CHECK(hf_watch(a, "/w/x", HF_WATCH_VALUE, SOON, on_fired, &fired, &v, &w) == HF_OK && v && v->node.version == 0);
	hf_value_free(v);
	CHECK(hf_watch(a, "/w", HF_WATCH_CHILDREN, SOON, on_fired, &children, NULL, &x) == HF_OK);
	CHECK(hf_follow(b, "/w/x", on, &follow, &y) == HF_OK);
	wait_times(&follow, 1);
	CHECK(follow.code == HF_NOT_FOUND);
	CHECK(hf_set(b, "/w/x", text("1"), HF_ANY_VERSION, SOON, NULL) == HF_OK);
	wait_times(&fired, 1);
	CHECK(fired.code == HF_OK && fired.change == HF_CHANGED && !strcmp(fired.path, "/w/x"));
	wait_times(&children, 1);
	CHECK(children.code == HF_OK && children.change == HF_CHILDREN_CHANGED && !strcmp(children.path, "/w"));
	wait_times(&follow, 2);
	CHECK(follow.code == HF_OK && !strcmp(follow.value, "1"));
	hf_watch_stop(w);
	hf_watch_stop(x);
	hf_watch_stop(NULL);
	/* One arg for both callbacks: armed, then fired. */
	CHECK(hf_watch_async(a, "/w/x", HF_WATCH_VALUE, SOON, on_fired, on, &armed, &w) == HF_OK);
	wait_times(&armed, 1);
	CHECK(armed.code == HF_OK && !strcmp(armed.value, "1"));
	CHECK(hf_watch_async(a, "/w/y", HF_WATCH_VALUE, SOON, on_fired, NULL, &children, &z) == HF_OK);
	CHECK(hf_delete(b, "/w/x", HF_ANY_VERSION, SOON) == HF_OK);
	wait_times(&armed, 2);
	CHECK(armed.code == HF_OK && armed.change == HF_DELETED);
	wait_times(&follow, 3);
	CHECK(follow.code == HF_NOT_FOUND);
	hf_watch_stop(w);
	hf_watch_stop(y);
	hf_watch_stop(z);
	CHECK(fired.times == 1 && children.times == 1 && follow.times == 3);
}

/* ---- on the client's own thread ---- */

static void on_here(void *arg, const struct hf_result *r)
{
	struct hf_value *v = NULL;
	struct hf_list *list;
	struct hf_places *p;
	struct hf_lock *l;
	struct hf_watch *w;
	struct hf_session *s;
	CHECK(hf_session_open(client, NULL, SOON, &s) == HF_INVALID && hf_session_close(a, SOON) == HF_INVALID);
	CHECK(hf_lock(a, text("l"), NULL, &l) == HF_INVALID && hf_campaign(a, text("l"), text(""), NULL, &l) == HF_INVALID);
	CHECK(hf_leader(a, text("l"), SOON, &v) == HF_INVALID && hf_members(a, text("l"), SOON, &p) == HF_INVALID);
	CHECK(hf_get(a, "/n/x", SOON, &v) == HF_INVALID && hf_set(a, "/n/x", text(""), HF_ANY_VERSION, SOON, NULL) == HF_INVALID);
	CHECK(hf_create(a, "/n/x", text(""), 0, SOON, NULL) == HF_INVALID && hf_delete(a, "/n/x", HF_ANY_VERSION, SOON) == HF_INVALID);
	CHECK(hf_list(a, "/n", SOON, &list) == HF_INVALID && hf_watch(a, "/n", HF_WATCH_VALUE, SOON, on_fired, arg, NULL, &w) == HF_INVALID);
	CHECK(hf_unlock(r->lock, SOON) == HF_INVALID && hf_proclaim(r->lock, text(""), SOON) == HF_INVALID);
	/* The callback form is all right, and a handle may be given back where it was handed out. */
	CHECK(hf_unlock_async(r->lock, SOON, on, arg) == HF_OK);
}

static void on_stop(void *arg, struct hf_watch *watch, enum hf_code code, enum hf_change change, const char *path, int64_t revision)
{
	hf_watch_stop(watch);
	on_fired(arg, watch, code, change, path, revision);
}

static void own_thread(void)
{
	struct got g = { 0 }, fired = { 0 };
	struct hf_watch *w;
	CHECK(hf_lock_async(a, text("here"), NULL, on_here, &g, NULL) == HF_OK);
	wait_times(&g, 1);
	CHECK(g.code == HF_OK);
	CHECK(hf_watch(a, "/w/z", HF_WATCH_VALUE, SOON, on_stop, &fired, NULL, &w) == HF_OK);
	CHECK(hf_set(b, "/w/z", text(""), HF_ANY_VERSION, SOON, NULL) == HF_OK);
	wait_times(&fired, 1);
}

/* ---- many threads, and the end ---- */

static void *come_and_go(void *arg)
{
	struct got g[3];
	(void)arg;
	for (int i = 0; i < 6; i++) {
		struct hf_watch *follow, *observe;
		struct hf_session *s;
		struct hf_value *v;
		struct got told[2];
		uint64_t call;
		memset(g, 0, sizeof(g));
		memset(told, 0, sizeof(told));
		CHECK(hf_session_open(client, NULL, SOON, &s) == HF_OK);
		CHECK(hf_follow(s, "/t/x", on, &told[0], &follow) == HF_OK && hf_observe(s, text("t"), on, &told[1], &observe) == HF_OK);
		CHECK(hf_lock_async(s, text("t"), NULL, on, &g[0], &call) == HF_OK);
		CHECK(hf_set_async(s, "/t/x", text("1"), HF_ANY_VERSION, SOON, on, &g[1]) == HF_OK);
		CHECK(hf_get(s, "/t/x", SOON, &v) != HF_OK || (hf_value_free(v), 1));
		/* While they are being told. */
		hf_watch_stop(follow);
		hf_watch_stop(observe);
		if (i % 2) {
			wait_times(&g[0], 1);
			CHECK(g[0].code == HF_OK && hf_unlock(g[0].lock, SOON) == HF_OK);
			CHECK(hf_session_close(s, SOON) == HF_OK);
		} else {
			hf_cancel(s, call);
			wait_times(&g[0], 1);
			CHECK(g[0].code == HF_CANCELED || (g[0].code == HF_OK && hf_unlock_async(g[0].lock, 0, NULL, NULL) == HF_OK));
			CHECK(hf_session_close_async(s, SOON, on, &g[2]) == HF_OK);
			wait_times(&g[2], 1);
			CHECK(g[2].code == HF_OK && g[1].times == 1); /* all that was asked is answered before */
		}
	}
	return NULL;
}

/* The last of a follow. */
static struct hf_watch *followed;
static void on_follow(void *arg, const struct hf_result *r)
{
	if (r->code == HF_CANCELED)
		hf_watch_stop(followed);
	on(arg, r);
}

static void the_end(void)
{
	struct got waits = { 0 }, lost = { 0 }, fired = { 0 }, follow = { 0 }, closed = { 0 };
	struct hf_lock_options o = { .timeout_ms = SOON, .on_lost = on_lost, .arg = &lost };
	pthread_t threads[6];
	struct hf_watch *w;
	struct hf_lock *l;
	for (int i = 0; i < 6; i++)
		CHECK(pthread_create(&threads[i], NULL, come_and_go, NULL) == 0);
	for (int i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
	CHECK(hf_lock(a, text("z"), &o, &l) == HF_OK && hf_lock_async(b, text("z"), NULL, on, &waits, NULL) == HF_OK);
	CHECK(hf_watch(b, "/w/q", HF_WATCH_VALUE, SOON, on_stop, &fired, NULL, &w) == HF_OK);
	CHECK(hf_follow(b, "/w/q", on_follow, &follow, &followed) == HF_OK);
	wait_times(&follow, 1);
	CHECK(hf_session_close_async(b, SOON, on, &closed) == HF_OK);
	wait_times(&closed, 1);
	CHECK(closed.code == HF_OK && waits.code == HF_CANCELED && fired.code == HF_CANCELED && follow.code == HF_CANCELED);
	CHECK(hf_session_close(a, SOON) == HF_OK && lost.times == 1 && lost.lost == HF_REASON_CLOSED);
	hf_client_free(client);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	client_options(argc > 1 ? argv[1] : "127.0.0.1:2379");
	session_options();
	locks();
	elections();
	nodes();
	caches();
	watches();
	own_thread();
	the_end();
	puts("done");
	return 0;
}
