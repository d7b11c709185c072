/* cell.c: see cell.h. */
#include "cell.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/member/member.h"
#include "core/snapshot/snapshot.h"
#include "holdfast/internal.pb-c.h"
#include "log/log.h"
#include "node/internal.h"

#define RAFT_KIND(name) HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__RAFT_##name

struct flight {
	struct list link;
	size_t from, to;
	struct buf bytes;
};

static struct cell *the_cell; /* of this process, for hooks_on_step */

void pause_ms(unsigned ms)
{
	nanosleep(&(struct timespec){ ms / 1000, (long)(ms % 1000) * 1000000 }, NULL);
}

/* ---- what the node calls ---- */

/* (N2) What a replica promises is durable there. What it promised in a term that is over may have been cut since: nobody counts it. */
static void check_promise(struct replica *r, struct slice bytes)
{
	Holdfast__Internal__PeerMessage *pm = holdfast__internal__peer_message__unpack(NULL, bytes.len, bytes.ptr);
	struct hooks h = hooks_look(&r->hooks);
	ck_assert_ptr_nonnull(pm);
	ck_assert_uint_eq(pm->from, r->id);
	if (pm->body_case == HOLDFAST__INTERNAL__PEER_MESSAGE__BODY_RAFT) {
		const Holdfast__Internal__RaftMessage *m = pm->raft;
		if (m->kind == RAFT_KIND(APPEND_REPLY) && !m->reject && m->term == h.durable_term)
			ck_assert_uint_le(m->match_index, h.durable_index);
		if (m->kind == RAFT_KIND(VOTE_REPLY) && !m->reject) {
			ck_assert_uint_ge(h.durable_term, m->term);
			if (h.durable_term == m->term)
				ck_assert_uint_eq(h.durable_vote, pm->to);
		}
	}
	holdfast__internal__peer_message__free_unpacked(pm, NULL);
}

static void on_send(void *ctx, member_id to, struct buf *bytes, bool bulk)
{
	struct replica *r = ctx;
	struct cell *c = r->cell;
	struct flight *f = mem_zalloc(sizeof(*f));
	(void)bulk;
	check_promise(r, buf_view(bytes));
	atomic_fetch_add(&r->sent, 1);
	f->bytes = buf_take(bytes);
	f->from = r->number;
	while (f->to < c->o.replicas && c->replicas[f->to].id != to)
		f->to++;
	ck_assert_uint_lt(f->to, c->o.replicas);
	pthread_mutex_lock(&c->mu);
	list_push_back(&c->messages, &f->link);
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->mu);
}

static void on_members(void *ctx, const struct state *state)
{
	ck_assert_uint_eq(state->members.len, ((struct replica *)ctx)->cell->o.replicas);
}

static void on_fatal(void *ctx, const char *reason)
{
	ck_assert_ptr_nonnull(reason);
	atomic_fetch_add(&((struct replica *)ctx)->fatals, 1);
}

static void on_step(struct core *core, const struct core_event *e)
{
	for (size_t i = 0; i < the_cell->o.replicas; i++) {
		struct replica *r = &the_cell->replicas[i];
		if (atomic_load(&r->core) != core)
			continue;
		atomic_fetch_add(&r->events[e->kind], 1);
		if (e->kind == EVENT_GAP)
			atomic_store(&r->gap_ms, e->gap_ms);
		if (e->kind == EVENT_SPACE)
			atomic_fetch_add(e->low ? &r->lows : &r->highs, 1);
		while (atomic_load(&r->blocked)) {
			atomic_store(&r->stands, true);
			sem_wait(&r->pass);
		}
	}
}

void replica_block(struct replica *r, bool on)
{
	atomic_store(&r->stands, false);
	atomic_store(&r->blocked, on);
	if (on)
		WAIT_UNTIL(atomic_load(&r->stands)); /* the next tick at the latest */
	else
		sem_post(&r->pass);
}

/* ---- the network ---- */

static void deliver(struct cell *c, struct flight *f, bool lost)
{
	struct replica *r = &c->replicas[f->to];
	if (!lost && !atomic_load(&r->isolated) && !atomic_load(&c->replicas[f->from].isolated)) {
		pthread_mutex_lock(&r->life);
		if (r->node)
			node_message(r->node, buf_view(&f->bytes));
		pthread_mutex_unlock(&r->life);
	}
	buf_free(&f->bytes);
	free(f);
}

static void *network_main(void *arg)
{
	struct cell *c = arg;
	for (;;) {
		struct list *it;
		bool lost;
		pthread_mutex_lock(&c->mu);
		while (list_empty(&c->messages) && !c->stop)
			pthread_cond_wait(&c->wake, &c->mu);
		it = list_pop_front(&c->messages);
		lost = c->stop || rng_chance(&c->rng, c->o.lost_per_million);
		pthread_mutex_unlock(&c->mu);
		if (!it)
			return NULL;
		deliver(c, CONTAINER_OF(it, struct flight, link), lost);
	}
}

/* ---- life ---- */

static void initial_state(struct cell *c, struct state *st)
{
	state_init(st);
	for (size_t i = 0; i < c->o.replicas; i++) {
		const char *url = c->replicas[i].url;
		char name[24];
		snprintf(name, sizeof(name), "r%zu", i);
		member_add_initial(st, &(struct member_spec){ name, &url, 1 }, "node-test");
	}
}

struct cell *cell_new(const struct cell_options *o)
{
	struct cell *c = mem_zalloc(sizeof(*c));
	member_id ids[CELL_MAX];
	log_set_level(getenv("NODE_TEST_LOG") ? LOG_DEBUG : (enum log_level)(LOG_ERROR + 1));
	c->o = *o;
	snprintf(c->dir, sizeof(c->dir), "/tmp/holdfast-node-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(c->dir));
	pthread_mutex_init(&c->mu, NULL);
	pthread_cond_init(&c->wake, NULL);
	list_init(&c->messages);
	rng_init(&c->rng, 1);
	for (size_t i = 0; i < o->replicas; i++) {
		struct replica *r = &c->replicas[i];
		const char *url = r->url;
		r->cell = c;
		r->number = i;
		snprintf(r->url, sizeof(r->url), "http://r%zu:2380", i);
		snprintf(r->dir, sizeof(r->dir), "%s/r%zu", c->dir, i);
		r->id = ids[i] = member_derive_id(&url, 1, "node-test");
		pthread_mutex_init(&r->life, NULL);
		sem_init(&r->pass, 0, 0);
		hooks_init(&r->hooks);
	}
	c->cell_id = member_derive_cell_id(ids, o->replicas);
	the_cell = c;
	hooks_on_step = on_step;
	ck_assert_int_eq(pthread_create(&c->thread, NULL, network_main, c), 0);
	return c;
}

struct cell *cell_started(const struct cell_options *o)
{
	struct cell *c = cell_new(o);
	for (size_t i = 0; i < o->replicas; i++)
		cell_start(c, i);
	return c;
}

static struct core_config core_config_of(struct cell *c, struct replica *r, const struct storage_state *s)
{
	static const char *const client_url = "http://client:2379";
	uint32_t election = c->o.election_ms ? c->o.election_ms : 300;
	return (struct core_config){
		.cell_id = c->cell_id,
		.member = r->id,
		.data_dir_id = s->identity.data_dir_id,
		.boot = s->boot,
		.seed = s->boot * 100 + r->number,
		.name = r->url + strlen("http://"),
		.client_urls = &client_url,
		.client_urls_len = 1,
		.election_timeout_ms = election,
		.heartbeat_ms = election / 10,
		.snapshot_count = c->o.snapshot_count ? c->o.snapshot_count : 100000,
		.snapshot_keep = c->o.snapshot_keep,
		.max_txn_ops = 128,
		.max_request_bytes = 1536 * 1024,
		.request_timeout_ms = WAIT_MS,
		.max_pending = 100000,
		.max_waiters = 100000,
		.log_memory_bytes = c->o.log_memory_bytes,
		.version = "3.5.0",
	};
}

void cell_start(struct cell *c, size_t i)
{
	struct replica *r = &c->replicas[i];
	struct storage_options so = {
		.dir = r->dir,
		.identity = { .cell_id = c->cell_id, .member_id = r->id, .data_dir_id = 7000 + i, .name = slice_of_str("r") },
		.map_bytes = 256 << 20,
		.snapshot_map_bytes = 256 << 20,
		.ballast_bytes = 1 << 20,
	};
	struct errmsg em = { .text = "" };
	struct state initial;
	struct node *n;
	enum err e = storage_open(&so, &r->storage, &em);
	ck_assert_msg(!e, "%s", em.text);
	hooks_attach(&r->hooks, r->storage);
	initial_state(c, &initial);
	e = node_new(&(struct node_config){
			     .core = core_config_of(c, r, storage_state(r->storage)),
			     .storage = r->storage,
			     .initial = &initial,
			     .callbacks = { r, on_send, on_members, on_fatal, NULL },
			     .max_queued_calls = c->o.max_queued_calls ? c->o.max_queued_calls : 100000,
			     .max_queued_message_bytes = c->o.max_queued_message_bytes ? c->o.max_queued_message_bytes : 64 << 20,
			     .max_queued_stream_bytes = c->o.max_queued_stream_bytes ? c->o.max_queued_stream_bytes : 64 << 20,
		     },
		     &n, &em);
	ck_assert_msg(!e, "%s", em.text);
	state_deinit(&initial);
	atomic_store(&r->core, n->core);
	pthread_mutex_lock(&r->life);
	r->node = n;
	pthread_mutex_unlock(&r->life);
	node_start(n);
}

static void note_state(struct replica *r)
{
	struct state st = *core_state(r->node->core);
	core_check(r->node->core);
	r->applied = st.applied;
	r->hash = state_hash(&st);
	st.applied = (struct entry_id){ 0, 0 };
	r->content_hash = state_hash(&st);
}

void cell_stop(struct cell *c, size_t i)
{
	struct replica *r = &c->replicas[i];
	struct node *n = r->node;
	node_stop(n);
	note_state(r);
	atomic_store(&r->core, NULL);
	pthread_mutex_lock(&r->life);
	r->node = NULL;
	pthread_mutex_unlock(&r->life);
	node_free(n);
	hooks_detach(&r->hooks);
	storage_close(r->storage);
	r->storage = NULL;
}

static void remove_tree(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	char inner[512];
	while (d && (e = readdir(d))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		snprintf(inner, sizeof(inner), "%s/%s", path, e->d_name);
		if (unlink(inner))
			remove_tree(inner);
	}
	if (d)
		closedir(d);
	rmdir(path);
}

void cell_free(struct cell *c)
{
	struct list *it;
	for (size_t i = 0; i < c->o.replicas; i++) {
		if (c->replicas[i].node)
			cell_stop(c, i);
	}
	pthread_mutex_lock(&c->mu);
	c->stop = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->mu);
	pthread_join(c->thread, NULL);
	while ((it = list_pop_front(&c->messages)))
		deliver(c, CONTAINER_OF(it, struct flight, link), true);
	for (size_t i = 0; i < c->o.replicas; i++) {
		hooks_deinit(&c->replicas[i].hooks);
		sem_destroy(&c->replicas[i].pass);
		pthread_mutex_destroy(&c->replicas[i].life);
	}
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->mu);
	remove_tree(c->dir);
	hooks_on_step = NULL;
	free(c);
}

void cell_isolate(struct cell *c, size_t i, bool on)
{
	atomic_store(&c->replicas[i].isolated, on);
}

static bool serves(struct cell *c, size_t i, bool leads)
{
	struct node_health h = { .serving = false };
	if (c->replicas[i].node && !atomic_load(&c->replicas[i].isolated))
		node_health(c->replicas[i].node, &h);
	return h.serving && (h.leader || !leads);
}

size_t cell_leader_but(struct cell *c, size_t other)
{
	size_t i = 0;
	WAIT_UNTIL((i = (i + 1) % c->o.replicas) != other && serves(c, i, true));
	return i;
}

size_t cell_leader(struct cell *c)
{
	return cell_leader_but(c, SIZE_MAX);
}

void cell_wait_serving(struct cell *c, size_t i)
{
	WAIT_UNTIL(serves(c, i, false));
}

static bool all_applied(struct cell *c)
{
	uint64_t applied = 0;
	for (size_t i = 0; i < c->o.replicas; i++) {
		struct core_status s;
		if (!c->replicas[i].node)
			continue;
		node_status(c->replicas[i].node, &s);
		if (s.applied != s.commit || s.applied != s.last || (applied && s.applied != applied))
			return false;
		applied = s.applied;
	}
	return true;
}

void cell_stop_equal(struct cell *c)
{
	struct replica *first = NULL;
	cell_leader(c);
	WAIT_UNTIL(all_applied(c));
	for (size_t i = 0; i < c->o.replicas; i++) /* the last ones hear of no election: nobody counts for one */
		atomic_store(&c->replicas[i].isolated, true);
	for (size_t i = 0; i < c->o.replicas; i++) {
		struct replica *r = &c->replicas[i];
		if (!r->node)
			continue;
		cell_stop(c, i);
		if (!first)
			first = r;
		ck_assert_uint_eq(r->content_hash, first->content_hash);
		if (r->applied.index == first->applied.index)
			ck_assert_uint_eq(r->hash, first->hash);
		atomic_store(&r->isolated, false);
	}
	for (size_t i = 0; i < c->o.replicas; i++)
		atomic_store(&c->replicas[i].isolated, false);
}
