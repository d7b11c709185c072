/* mini_cell.c: see mini_cell.h. The owner's duties of core.h, in the order it names, with the disk and the network as lists. */
#include "mini_cell.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "base/rng.h"
#include "core/member/member.h"
#include "core/once/once.h"
#include "core/snapshot/snapshot.h"
#include "core/store/store.h"
#include "core/wire.h"
#include "etcd/rpc.pb-c.h"
#include "etcd/v3lock.pb-c.h"

enum { TICK_MS = 10, TAKES_MAX = 10000 };

struct mini_snapshot {
	struct entry_id id;
	uint64_t state_hash;
	struct buf *chunks;
	size_t len;
	uint64_t whole; /* one that comes: how many it has */
};

struct mini_write { /* handed to the disk, not durable */
	struct list link;
	time_ms due;
	uint64_t seq;
	bool hard_changed;
	struct raft_hard_state hard;
	raft_index truncate_from, trim_to;
	struct raft_entry **entries;
	size_t entries_len;
};

struct mini_job {
	struct list link;
	time_ms due;
	struct snapshot_job job;
};

struct mini_message { /* on the network, or held back until a write is durable */
	struct list link;
	time_ms due;
	size_t from, to;
	uint64_t wait_seq;
	struct buf bytes;
};

struct mini_read {
	struct list link;
	struct raft_read read;
};

struct mini_node {
	struct core *core;
	member_id id;
	uint64_t boot, data_dir_id;
	bool paused, isolated, dead, stalled;
	time_ms ticked_at;
	enum core_fatal fatal;
	/* the disk */
	struct raft_hard_state hard;
	struct raft_entry **log; /* log[i] has index first + i */
	size_t log_len, log_cap;
	raft_index first;
	struct mini_snapshot snapshot, incoming;
	/* under way */
	struct list writes, jobs, held, reads;
	uint64_t durable_seq;
};

struct mini_cell {
	struct mini_options o;
	time_ms now;
	struct rng rng;
	struct mini_node nodes[MINI_REPLICAS_MAX];
	uint64_t cell_id;
	struct list network;
	bool cut[MINI_REPLICAS_MAX][MINI_REPLICAS_MAX];
	uint32_t lost, doubled;
	uint64_t next_tag, sent, takes;
	struct map64 answers; /* tag -> struct mini_answer */
	struct map64 hashes;  /* applied index -> hash of the state, boxed */
	struct once_id once;  /* of the next request */
	struct caller caller; /* of all of them; its name or token is in `user` */
	char user[MINI_TOKEN_MAX];
	struct buf scratch;
	void (*on_output)(void *ctx, size_t i, struct core_output *o);
	void *on_output_ctx;
	void (*on_event)(void *ctx, size_t i, const struct core_event *e);
	void *on_event_ctx;
	bool (*on_job)(void *ctx, size_t i, const struct snapshot_job *job, bool done);
	void *on_job_ctx;
};

static char urls[MINI_REPLICAS_MAX][48];

/* ---- disk ---- */

static void snapshot_drop(struct mini_snapshot *s)
{
	for (size_t i = 0; i < s->len; i++)
		buf_free(&s->chunks[i]);
	free(s->chunks);
	memset(s, 0, sizeof *s);
}

static void snapshot_add(struct mini_snapshot *s, struct buf bytes)
{
	s->chunks = mem_realloc(s->chunks, (s->len + 1) * sizeof *s->chunks);
	s->chunks[s->len++] = bytes;
}

static raft_index log_last(const struct mini_node *n)
{
	return n->first + n->log_len - 1;
}

static void log_truncate(struct mini_node *n, raft_index from)
{
	while (n->log_len > 0 && log_last(n) >= from)
		raft_entry_unref(n->log[--n->log_len]);
}

static void log_trim(struct mini_node *n, raft_index to)
{
	size_t drop = 0;

	ASSERT(to <= n->snapshot.id.index);
	while (drop < n->log_len && n->log[drop]->index <= to)
		raft_entry_unref(n->log[drop++]);
	if (drop == 0)
		return;
	memmove(n->log, n->log + drop, (n->log_len - drop) * sizeof *n->log);
	n->log_len -= drop;
	n->first += drop;
}

static void log_append(struct mini_node *n, struct raft_entry *e)
{
	ASSERT(e->index == n->first + n->log_len);
	if (n->log_len == n->log_cap) {
		n->log_cap = n->log_cap ? 2 * n->log_cap : 64;
		n->log = mem_realloc(n->log, n->log_cap * sizeof *n->log);
	}
	n->log[n->log_len++] = e;
}

static void write_done(struct mini_node *n, struct mini_write *w)
{
	if (w->hard_changed)
		n->hard = w->hard;
	if (w->truncate_from)
		log_truncate(n, w->truncate_from);
	for (size_t i = 0; i < w->entries_len; i++)
		log_append(n, w->entries[i]);
	if (w->trim_to)
		log_trim(n, w->trim_to);
	if (w->seq)
		n->durable_seq = w->seq;
	list_remove(&w->link);
	free(w->entries);
	free(w);
}

static void write_lost(struct mini_write *w)
{
	for (size_t i = 0; i < w->entries_len; i++)
		raft_entry_unref(w->entries[i]);
	list_remove(&w->link);
	free(w->entries);
	free(w);
}

static raft_term log_term(const struct mini_node *n, raft_index index)
{
	if (index == n->snapshot.id.index)
		return n->snapshot.id.term;
	return index >= n->first && index <= log_last(n) ? n->log[index - n->first]->term : 0;
}

/* A received snapshot is whole: it takes the old one's place, and the log goes unless it has the snapshot's last entry. */
static void install_done(struct mini_node *n)
{
	struct entry_id id = n->incoming.id;
	bool keep = id.index >= n->first && id.index <= log_last(n) && n->log[id.index - n->first]->term == id.term;

	if (!keep) {
		log_truncate(n, 0);
		n->first = id.index + 1;
	}
	snapshot_drop(&n->snapshot);
	n->snapshot = n->incoming;
	memset(&n->incoming, 0, sizeof n->incoming);
}

/* ---- network ---- */

static void network_send(struct mini_cell *m, struct mini_message *msg)
{
	m->sent++;
	msg->due = m->now + m->o.net_ms;
	if (rng_chance(&m->rng, m->lost)) {
		buf_free(&msg->bytes);
		free(msg);
		return;
	}
	if (rng_chance(&m->rng, m->doubled)) {
		struct mini_message *copy = mem_zalloc(sizeof *copy);

		*copy = *msg;
		copy->bytes = buf_copy_of(buf_view(&msg->bytes));
		copy->due += rng_below(&m->rng, 2000);
		list_push_back(&m->network, &copy->link);
	}
	list_push_back(&m->network, &msg->link);
}

static size_t node_of(const struct mini_cell *m, member_id id)
{
	for (size_t i = 0; i < m->o.replicas; i++)
		if (m->nodes[i].id == id)
			return i;
	return m->o.replicas;
}

static void message_new(struct mini_cell *m, size_t from, struct core_message *cm)
{
	struct mini_node *n = &m->nodes[from];
	struct mini_message *msg = mem_zalloc(sizeof *msg);

	msg->from = from;
	msg->to = node_of(m, cm->to);
	msg->wait_seq = cm->wait_seq;
	msg->bytes = buf_take(&cm->bytes);
	if (msg->to == m->o.replicas) {
		buf_free(&msg->bytes);
		free(msg);
	} else if (msg->wait_seq > n->durable_seq) {
		list_push_back(&n->held, &msg->link);
	} else {
		network_send(m, msg);
	}
}

/* ---- carrying out an update ---- */

static void answer_new(struct mini_cell *m, struct core_answer *a)
{
	struct mini_answer *kept = mem_zalloc(sizeof *kept);

	ASSERT(map64_get(&m->answers, a->tag) == NULL); /* once */
	kept->err = a->err;
	kept->reply = buf_take(&a->reply);
	kept->details = buf_take(&a->details);
	kept->at = m->now;
	map64_put(&m->answers, a->tag, kept);
}

static void write_new(struct mini_cell *m, struct mini_node *n, struct core_write *cw)
{
	struct mini_write *w;

	if (cw->seq == 0 && cw->trim_to == 0)
		return;
	w = mem_zalloc(sizeof *w);
	w->due = m->now + m->o.disk_ms;
	w->seq = cw->seq;
	w->hard_changed = cw->hard_changed;
	w->hard = cw->hard;
	w->truncate_from = cw->truncate_from;
	w->trim_to = cw->trim_to;
	w->entries_len = cw->entries_len;
	w->entries = mem_alloc((cw->entries_len + 1) * sizeof *w->entries);
	if (cw->entries_len)
		memcpy(w->entries, cw->entries, cw->entries_len * sizeof *w->entries);
	cw->entries_len = 0; /* the references are ours */
	list_push_back(&n->writes, &w->link);
}

static void job_new(struct mini_cell *m, struct mini_node *n, struct snapshot_job *sj)
{
	struct mini_job *j = mem_zalloc(sizeof *j);

	j->job = *sj;
	j->job.bytes = buf_take(&sj->bytes);
	j->due = m->now + m->o.disk_ms;
	list_push_back(&n->jobs, &j->link);
}

static void compare_hash(struct mini_cell *m, const struct mini_node *n)
{
	const struct state *st = core_state(n->core);
	uint64_t hash = state_hash(st), *box = map64_get(&m->hashes, st->applied.index + 1);

	if (!box) {
		box = mem_alloc(sizeof *box);
		*box = hash;
		map64_put(&m->hashes, st->applied.index + 1, box);
	}
	ASSERT(*box == hash || m->o.may_differ); /* P10 */
}

static bool carry_out(struct mini_cell *m, size_t i)
{
	struct mini_node *n = &m->nodes[i];
	struct core_update u;

	core_take(n->core, &u);
	write_new(m, n, &u.write);
	for (size_t k = 0; k < u.messages_len; k++)
		message_new(m, i, &u.messages[k]);
	for (size_t k = 0; k < u.answers_len; k++)
		answer_new(m, &u.answers[k]);
	for (size_t k = 0; m->on_output && k < u.outputs_len; k++)
		m->on_output(m->on_output_ctx, i, &u.outputs[k]);
	for (size_t k = 0; k < u.jobs_len; k++)
		job_new(m, n, &u.jobs[k]);
	for (size_t k = 0; k < u.reads_len; k++) {
		struct mini_read *r = mem_zalloc(sizeof *r);

		r->read = u.reads[k];
		list_push_back(&n->reads, &r->link);
	}
	core_update_release(&u);
	n->fatal = u.fatal;
	if (m->o.check_every == 0 || ++m->takes % m->o.check_every == 0)
		core_check(n->core);
	compare_hash(m, n);
	return u.again;
}

static void settle(struct mini_cell *m, size_t i)
{
	struct core_event tick = { .kind = EVENT_TICK, .now = m->now };

	for (size_t takes = 0; carry_out(m, i); takes++) {
		ASSERT(takes < TAKES_MAX);
		core_step(m->nodes[i].core, &tick);
	}
}

/* ---- what a step brings to one replica ---- */

static bool step(struct mini_cell *m, size_t i, struct core_event e)
{
	e.now = m->now;
	if (m->on_event)
		m->on_event(m->on_event_ctx, i, &e);
	core_step(m->nodes[i].core, &e);
	return true;
}

static bool disk_events(struct mini_cell *m, size_t i)
{
	struct mini_node *n = &m->nodes[i];
	bool any = false;

	if (n->stalled)
		return false;
	LIST_FOR_EACH_SAFE(l, next, &n->writes) {
		struct mini_write *w = CONTAINER_OF(l, struct mini_write, link);

		if (w->due > m->now)
			break;
		write_done(n, w);
		any = true;
	}
	if (!any)
		return false;
	LIST_FOR_EACH_SAFE(l, next, &n->held) {
		struct mini_message *msg = CONTAINER_OF(l, struct mini_message, link);

		if (msg->wait_seq > n->durable_seq)
			continue;
		list_remove(l);
		network_send(m, msg);
	}
	return step(m, i, (struct core_event){ .kind = EVENT_DISK_DONE, .seq = n->durable_seq });
}

static bool read_events(struct mini_cell *m, size_t i)
{
	struct mini_node *n = &m->nodes[i];
	struct list *l;
	bool any = false;

	while ((l = list_pop_front(&n->reads))) {
		struct mini_read *r = CONTAINER_OF(l, struct mini_read, link);
		struct core_event e = { .kind = EVENT_LOG_READ };
		raft_index to = r->read.to < log_last(n) ? r->read.to : log_last(n);

		e.log_read.id = r->read.id;
		if (r->read.from < n->first || r->read.from > to) {
			e.log_read.err = ERR_NOT_FOUND;
		} else {
			e.log_read.entries = n->log + (r->read.from - n->first);
			e.log_read.len = (size_t)(to + 1 - r->read.from);
		}
		any = step(m, i, e);
		free(r);
	}
	return any;
}

static void job_save(struct mini_cell *m, size_t i, const struct snapshot_job *job)
{
	struct mini_node *n = &m->nodes[i];
	struct snapshot_encoder *enc = snapshot_encoder_new(job->view, m->cell_id);
	struct core_event e = { .kind = EVENT_SNAPSHOT_SAVED };
	struct buf chunk = { 0 };

	if (n->snapshot.id.index >= job->id.index) {
		e.saved.err = ERR_EXISTS;
	} else {
		snapshot_drop(&n->snapshot);
		if (m->o.chunk_bytes)
			snapshot_encoder_chunk_bytes(enc, m->o.chunk_bytes);
		while (snapshot_encoder_next(enc, &chunk))
			snapshot_add(&n->snapshot, buf_take(&chunk));
		n->snapshot.id = job->id;
		n->snapshot.state_hash = job->state_hash;
	}
	buf_free(&chunk);
	snapshot_encoder_free(enc);
	e.saved.index = job->id.index;
	step(m, i, e);
}

static void job_read(struct mini_cell *m, size_t i, const struct snapshot_job *job)
{
	struct mini_node *n = &m->nodes[i];
	struct core_event e = { .kind = EVENT_CHUNK_READ };

	e.chunk.job = job->job;
	e.chunk.id = n->snapshot.id;
	e.chunk.chunks = n->snapshot.len;
	e.chunk.state_hash = n->snapshot.state_hash;
	if (job->chunk >= n->snapshot.len || (job->id.index && job->id.index != n->snapshot.id.index))
		e.chunk.err = ERR_NOT_FOUND;
	else
		e.chunk.bytes = buf_view(&n->snapshot.chunks[job->chunk]);
	step(m, i, e);
}

static void job_write(struct mini_cell *m, size_t i, struct snapshot_job *job)
{
	struct mini_node *n = &m->nodes[i];
	struct core_event e = { .kind = EVENT_CHUNK_WRITTEN };

	if (job->chunk == 0) {
		snapshot_drop(&n->incoming);
		n->incoming.id = job->id;
		n->incoming.state_hash = job->state_hash;
		n->incoming.whole = job->chunks;
	}
	ASSERT(job->chunk == n->incoming.len && job->id.index == n->incoming.id.index && job->state_hash == n->incoming.state_hash);
	snapshot_add(&n->incoming, buf_take(&job->bytes));
	e.chunk.job = job->job;
	step(m, i, e);
}

static void job_load(struct mini_cell *m, size_t i, const struct snapshot_job *job)
{
	struct mini_node *n = &m->nodes[i];
	struct snapshot_decoder *dec = snapshot_decoder_new(m->cell_id);
	struct core_event e = { .kind = EVENT_SNAPSHOT_LOADED };
	struct state st = { 0 };

	ASSERT(n->incoming.len == job->chunks);
	for (size_t k = 0; k < n->incoming.len && !e.loaded.err; k++)
		e.loaded.err = snapshot_decoder_feed(dec, buf_view(&n->incoming.chunks[k]));
	if (!e.loaded.err)
		e.loaded.err = snapshot_decoder_finish(dec, &st);
	snapshot_decoder_free(dec);
	e.loaded.job = job->job;
	e.loaded.state = &st;
	step(m, i, e);
	ASSERT(st.applied.index == 0); /* the core's now */
}

static void job_install(struct mini_cell *m, size_t i, const struct snapshot_job *job)
{
	struct mini_node *n = &m->nodes[i];
	struct core_event e = { .kind = EVENT_CHUNK_WRITTEN };

	ASSERT(n->incoming.id.index == job->id.index && n->incoming.len == job->chunks);
	ASSERT(list_empty(&n->writes)); /* X3: the log is quiet */
	if (n->snapshot.id.index >= n->incoming.id.index)
		e.chunk.err = ERR_EXISTS;
	else
		install_done(n);
	e.chunk.job = job->job;
	step(m, i, e);
}

static void run_job(struct mini_cell *m, size_t i, struct snapshot_job *job)
{
	switch (job->kind) {
	case SNAPSHOT_SAVE: job_save(m, i, job); break;
	case SNAPSHOT_READ: job_read(m, i, job); break;
	case SNAPSHOT_WRITE: job_write(m, i, job); break;
	case SNAPSHOT_LOAD: job_load(m, i, job); break;
	case SNAPSHOT_INSTALL: job_install(m, i, job); break;
	case SNAPSHOT_ABORT: snapshot_drop(&m->nodes[i].incoming); break;
	}
}

static bool dies_at(struct mini_cell *m, size_t i, const struct snapshot_job *job, bool done)
{
	return m->on_job && m->on_job(m->on_job_ctx, i, job, done);
}

static bool job_events(struct mini_cell *m, size_t i)
{
	struct mini_node *n = &m->nodes[i];
	bool any = false, dies = false;

	while (!dies && !list_empty(&n->jobs)) {
		struct mini_job *j = CONTAINER_OF(n->jobs.next, struct mini_job, link);

		if (j->due > m->now)
			break;
		list_remove(&j->link);
		dies = dies_at(m, i, &j->job, /*done=*/false);
		if (!dies) {
			run_job(m, i, &j->job);
			dies = dies_at(m, i, &j->job, /*done=*/true);
		}
		buf_free(&j->job.bytes);
		free(j);
		any = true;
	}
	if (dies)
		mini_crash(m, i);
	return any && !dies;
}

static bool blocked(const struct mini_cell *m, const struct mini_message *msg)
{
	return m->cut[msg->from][msg->to] || m->nodes[msg->from].isolated || m->nodes[msg->to].isolated;
}

static void deliver(struct mini_cell *m, bool *busy)
{
	LIST_FOR_EACH_SAFE(l, next, &m->network) {
		struct mini_message *msg = CONTAINER_OF(l, struct mini_message, link);
		struct mini_node *to = &m->nodes[msg->to];

		if (msg->due > m->now || (to->paused && to->core && !blocked(m, msg)))
			continue; /* what a stopped process does not read waits in its socket */
		list_remove(l);
		if (to->core && !blocked(m, msg))
			busy[msg->to] = step(m, msg->to, (struct core_event){ .kind = EVENT_MESSAGE, .message = buf_view(&msg->bytes) });
		buf_free(&msg->bytes);
		free(msg);
	}
}

static bool tick(struct mini_cell *m, size_t i)
{
	struct mini_node *n = &m->nodes[i];

	if (m->now - n->ticked_at < TICK_MS && core_next_deadline(n->core) > m->now)
		return false;
	n->ticked_at = m->now;
	return step(m, i, (struct core_event){ .kind = EVENT_TICK });
}

static void step_ms(struct mini_cell *m)
{
	bool busy[MINI_REPLICAS_MAX] = { false };

	m->now++;
	for (size_t i = 0; i < m->o.replicas; i++) {
		if (!m->nodes[i].core || m->nodes[i].paused)
			continue;
		busy[i] |= disk_events(m, i);
		busy[i] |= job_events(m, i);
	}
	deliver(m, busy);
	for (size_t i = 0; i < m->o.replicas; i++) {
		if (!m->nodes[i].core || m->nodes[i].paused)
			continue;
		busy[i] |= read_events(m, i);
		busy[i] |= tick(m, i);
		if (busy[i])
			settle(m, i);
	}
}

/* ---- birth, death and rebirth ---- */

static void initial_state(struct mini_cell *m, struct state *st)
{
	state_init(st);
	for (size_t i = 0; i < m->o.replicas; i++) {
		const char *url = urls[i];
		char name[32];
		struct member_spec spec = { .name = name, .peer_urls = &url, .peer_urls_len = 1 };

		snprintf(name, sizeof name, "r%zu", i);
		member_add_initial(st, &spec, "mini");
	}
	st->restored = m->o.restored;
}

static void load_state(struct mini_cell *m, struct mini_node *n, struct state *st)
{
	struct snapshot_decoder *d;

	if (n->snapshot.id.index == 0) {
		initial_state(m, st);
		return;
	}
	d = snapshot_decoder_new(m->cell_id);
	for (size_t i = 0; i < n->snapshot.len; i++)
		ASSERT(snapshot_decoder_feed(d, buf_view(&n->snapshot.chunks[i])) == ERR_OK);
	ASSERT(snapshot_decoder_finish(d, st) == ERR_OK);
	snapshot_decoder_free(d);
}

static void find_part(struct mini_cell *m, size_t i)
{
	struct mini_node *n = &m->nodes[i];
	struct core_event e = { .kind = EVENT_SNAPSHOT_PART };

	if (n->incoming.id.index <= n->snapshot.id.index)
		snapshot_drop(&n->incoming);
	if (n->incoming.len == 0)
		return;
	e.part.id = n->incoming.id;
	e.part.chunks = n->incoming.whole;
	e.part.state_hash = n->incoming.state_hash;
	e.part.have = n->incoming.len;
	step(m, i, e);
}

static void boot(struct mini_cell *m, size_t i)
{
	struct mini_node *n = &m->nodes[i];
	const char *client_url = urls[i];
	char name[32];
	struct core_config config = {
		.cell_id = m->cell_id,
		.member = n->id,
		.data_dir_id = n->data_dir_id,
		.boot = ++n->boot,
		.seed = m->o.seed * 1000 + i,
		.name = name,
		.client_urls = &client_url,
		.client_urls_len = 1,
		.election_timeout_ms = 1000,
		.heartbeat_ms = 100,
		.snapshot_count = m->o.snapshot_count ? m->o.snapshot_count : 100000,
		.snapshot_keep = m->o.snapshot_keep,
		.max_txn_ops = 128,
		.max_request_bytes = 1536 * 1024,
		.request_timeout_ms = 7000,
		.max_pending = m->o.max_pending ? m->o.max_pending : 100000,
		.max_waiters = m->o.max_waiters ? m->o.max_waiters : 100000,
		.quota_bytes = m->o.quota_bytes,
		.admit_window = m->o.admit_window,
		.log_memory_bytes = m->o.log_memory,
		.auto_compact_ms = m->o.auto_compact_ms,
		.no_auto_clear = m->o.no_auto_clear,
		.compare_ms = m->o.compare_ms,
		.compare_initial = m->o.compare_ms != 0,
		.boot_unix_ms = m->o.boot_unix_ms,
		.version = "3.5.0",
	};
	struct raft_boot rb = { .hard = n->hard, .snapshot = n->snapshot.id, .first = n->first };
	struct state st;
	raft_index from;

	snprintf(name, sizeof name, "r%zu", i);
	if (rb.hard.commit < rb.snapshot.index)
		rb.hard.commit = rb.snapshot.index;
	rb.last.index = n->log_len ? log_last(n) : n->snapshot.id.index;
	rb.last.term = log_term(n, rb.last.index);
	from = (rb.hard.commit < rb.last.index ? rb.hard.commit : rb.last.index) + 1;
	rb.tail = n->log_len && from >= n->first ? n->log + (from - n->first) : NULL;
	rb.tail_len = (size_t)(rb.last.index + 1 - from);
	load_state(m, n, &st);
	n->core = core_new(&config, &st, &rb, m->now);
	find_part(m, i);
	n->ticked_at = m->now;
	n->fatal = CORE_OK;
	n->durable_seq = 0;
	settle(m, i);
}

static void drop_under_way(struct mini_node *n)
{
	struct list *l;

	while (!list_empty(&n->writes))
		write_lost(CONTAINER_OF(n->writes.next, struct mini_write, link));
	while ((l = list_pop_front(&n->jobs))) {
		struct mini_job *j = CONTAINER_OF(l, struct mini_job, link);

		buf_free(&j->job.bytes);
		free(j);
	}
	while ((l = list_pop_front(&n->held))) {
		struct mini_message *msg = CONTAINER_OF(l, struct mini_message, link);

		buf_free(&msg->bytes);
		free(msg);
	}
	while ((l = list_pop_front(&n->reads)))
		free(CONTAINER_OF(l, struct mini_read, link));
}

struct mini_cell *mini_new(const struct mini_options *o)
{
	struct mini_cell *m = mem_zalloc(sizeof *m);
	member_id ids[MINI_REPLICAS_MAX];

	ASSERT(o->replicas >= 1 && o->replicas <= MINI_REPLICAS_MAX);
	m->o = *o;
	m->now = 1000;
	m->next_tag = 1;
	rng_init(&m->rng, o->seed);
	list_init(&m->network);
	for (size_t i = 0; i < o->replicas; i++) {
		struct mini_node *n = &m->nodes[i];
		const char *url = urls[i];

		snprintf(urls[i], sizeof urls[i], "http://r%zu:2380", i);
		n->id = ids[i] = member_derive_id(&url, 1, "mini");
		n->data_dir_id = 7000 + i;
		n->first = 1;
		list_init(&n->writes);
		list_init(&n->jobs);
		list_init(&n->held);
		list_init(&n->reads);
	}
	m->cell_id = member_derive_cell_id(ids, o->replicas);
	for (size_t i = 0; i < o->replicas; i++)
		boot(m, i);
	return m;
}

void mini_crash(struct mini_cell *m, size_t i)
{
	struct mini_node *n = &m->nodes[i];

	core_free(n->core);
	n->core = NULL;
	n->paused = false;
	drop_under_way(n);
	while (m->o.sync_chunks && n->incoming.len < n->incoming.whole && n->incoming.len % m->o.sync_chunks)
		buf_free(&n->incoming.chunks[--n->incoming.len]);
	for (size_t k = 0; k < m->o.replicas; k++)
		if (k != i && m->nodes[k].core && !m->nodes[k].paused) {
			step(m, k, (struct core_event){ .kind = EVENT_PEER_LOST, .member = n->id });
			settle(m, k);
		}
}

void mini_restart(struct mini_cell *m, size_t i)
{
	ASSERT(!m->nodes[i].core);
	boot(m, i);
}

void mini_wipe(struct mini_cell *m, size_t i)
{
	struct mini_node *n = &m->nodes[i];

	ASSERT(!n->core);
	log_truncate(n, 0);
	snapshot_drop(&n->snapshot);
	snapshot_drop(&n->incoming);
	memset(&n->hard, 0, sizeof n->hard);
	n->first = 1;
	n->boot = 0;
	n->data_dir_id += 1000;
}

void mini_free(struct mini_cell *m)
{
	size_t pos = 0;
	uint64_t key;
	void *value;
	struct list *l;

	if (!m)
		return;
	for (size_t i = 0; i < m->o.replicas; i++) {
		struct mini_node *n = &m->nodes[i];

		core_free(n->core);
		drop_under_way(n);
		log_truncate(n, 0);
		free(n->log);
		snapshot_drop(&n->snapshot);
		snapshot_drop(&n->incoming);
	}
	while ((l = list_pop_front(&m->network))) {
		struct mini_message *msg = CONTAINER_OF(l, struct mini_message, link);

		buf_free(&msg->bytes);
		free(msg);
	}
	while (map64_next(&m->answers, &pos, &key, &value)) {
		struct mini_answer *a = value;

		buf_free(&a->reply);
		buf_free(&a->details);
		free(a);
	}
	map64_deinit(&m->answers);
	for (pos = 0; map64_next(&m->hashes, &pos, &key, &value);)
		free(value);
	map64_deinit(&m->hashes);
	buf_free(&m->scratch);
	free(m);
}

void mini_isolate(struct mini_cell *m, size_t i, bool on)
{
	m->nodes[i].isolated = on;
}

void mini_cut(struct mini_cell *m, size_t from, size_t to, bool on)
{
	m->cut[from][to] = on;
}

void mini_pause(struct mini_cell *m, size_t i, bool on)
{
	struct mini_node *n = &m->nodes[i];
	time_ms gap = m->now - n->ticked_at;

	if (n->paused && !on && gap > 500)
		step(m, i, (struct core_event){ .kind = EVENT_GAP, .gap_ms = gap });
	n->paused = on;
}

void mini_stall(struct mini_cell *m, size_t i, bool on)
{
	m->nodes[i].stalled = on;
}

void mini_space(struct mini_cell *m, size_t i, bool low)
{
	step(m, i, (struct core_event){ .kind = EVENT_SPACE, .low = low });
	settle(m, i);
}

void mini_loss(struct mini_cell *m, uint32_t lost, uint32_t doubled)
{
	m->lost = lost;
	m->doubled = doubled;
}

/* ---- time ---- */

time_ms mini_now(const struct mini_cell *m)
{
	return m->now;
}

void mini_run(struct mini_cell *m, time_ms ms)
{
	while (ms-- > 0)
		step_ms(m);
}

const struct mini_answer *mini_wait(struct mini_cell *m, uint64_t tag, time_ms max_ms)
{
	while (!mini_answer(m, tag) && max_ms-- > 0)
		step_ms(m);
	return mini_answer(m, tag);
}

size_t mini_leader(const struct mini_cell *m)
{
	size_t found = m->o.replicas;
	raft_term term = 0;

	for (size_t i = 0; i < m->o.replicas; i++) {
		struct core_status st;

		if (!m->nodes[i].core || m->nodes[i].paused)
			continue;
		core_status(m->nodes[i].core, &st);
		if (st.role == RAFT_LEADER && st.term > term && core_state(m->nodes[i].core)->applied.term == st.term) {
			found = i;
			term = st.term;
		}
	}
	return found;
}

size_t mini_elect(struct mini_cell *m, time_ms max_ms)
{
	while (mini_leader(m) == m->o.replicas) {
		ASSERT(max_ms-- > 0);
		step_ms(m);
	}
	return mini_leader(m);
}

/* ---- clients ---- */

void mini_once(struct mini_cell *m, lease_id session, uint64_t request, uint64_t first_unanswered)
{
	m->once.session = session;
	m->once.request = request;
	m->once.first_unanswered = first_unanswered;
}

void mini_as(struct mini_cell *m, const char *user)
{
	snprintf(m->user, sizeof m->user, "%s", user ? user : "");
	m->caller = (struct caller){ .common_name = slice_of_str(m->user) };
}

void mini_with_token(struct mini_cell *m, const char *token)
{
	snprintf(m->user, sizeof m->user, "%s", token);
	m->caller = (struct caller){ .token = slice_of_str(m->user), .token_is = TOKEN_SIMPLE };
}

static struct slice authenticate(struct mini_cell *m, size_t i, struct slice bytes, bool assign)
{
	struct core_request r = { .tag = m->next_tag++, .method = METHOD_AUTH_AUTHENTICATE, .bytes = bytes, .assign = assign };
	const struct mini_answer *a;

	step(m, i, (struct core_event){ .kind = EVENT_REQUEST, .request = &r });
	settle(m, i);
	a = mini_wait(m, r.tag, 10000);
	ASSERT(a && a->err == ERR_OK);
	return buf_view(&a->reply);
}

void mini_log_in(struct mini_cell *m, size_t i, const char *user, char *ret_token)
{
	struct buf bytes = { .ptr = NULL };
	struct slice token;

	pbw_bytes(&bytes, 1, slice_of_str(user));
	pbw_bytes(&bytes, 2, slice_of_str("ABCDEFGHIJKLMNOP"));
	pbw_u64(&bytes, 3, wire_find_u64(authenticate(m, i, buf_view(&bytes), false), 1, 0));
	token = wire_find_bytes(authenticate(m, i, buf_view(&bytes), true), 2);
	snprintf(ret_token, MINI_TOKEN_MAX, "%.*s", (int)token.len, (const char *)token.ptr);
	buf_free(&bytes);
}

uint64_t mini_request(struct mini_cell *m, size_t i, enum method_id method, const ProtobufCMessage *request)
{
	struct core_request r = { .tag = m->next_tag++, .method = method, .client = slice_of_str("test"), .now_unix_ms = (int64_t)m->now, .caller = m->caller };

	r.session = m->once.session;
	r.request_id = m->once.request;
	r.first_unanswered = m->once.first_unanswered;
	memset(&m->once, 0, sizeof m->once);

	buf_clear(&m->scratch);
	buf_reserve(&m->scratch, protobuf_c_message_get_packed_size(request) + 1);
	m->scratch.len = protobuf_c_message_pack(request, m->scratch.ptr);
	r.bytes = buf_view(&m->scratch);
	step(m, i, (struct core_event){ .kind = EVENT_REQUEST, .request = &r });
	settle(m, i);
	return r.tag;
}

void mini_on_output(struct mini_cell *m, void (*fn)(void *ctx, size_t i, struct core_output *o), void *ctx)
{
	m->on_output = fn;
	m->on_output_ctx = ctx;
}

void mini_on_event(struct mini_cell *m, void (*fn)(void *ctx, size_t i, const struct core_event *e), void *ctx)
{
	m->on_event = fn;
	m->on_event_ctx = ctx;
}

void mini_stream(struct mini_cell *m, size_t i, enum core_event_kind kind, uint64_t stream, enum method_id method, struct slice bytes)
{
	step(m, i, (struct core_event){ .kind = kind, .stream = { .tag = stream, .method = method, .bytes = bytes, .caller = &m->caller } });
	settle(m, i);
}

void mini_cancel(struct mini_cell *m, size_t i, uint64_t tag)
{
	step(m, i, (struct core_event){ .kind = EVENT_CANCEL, .tag = tag });
	settle(m, i);
}

const struct mini_answer *mini_answer(const struct mini_cell *m, uint64_t tag)
{
	return map64_get(&m->answers, tag);
}

static ProtobufCBinaryData bin(const char *s)
{
	return (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)s, .len = strlen(s) };
}

uint64_t mini_put(struct mini_cell *m, size_t i, const char *key, const char *value, lease_id lease)
{
	Etcdserverpb__PutRequest r = ETCDSERVERPB__PUT_REQUEST__INIT;

	r.key = bin(key);
	r.value = bin(value);
	r.lease = lease;
	return mini_request(m, i, METHOD_KV_PUT, &r.base);
}

uint64_t mini_get(struct mini_cell *m, size_t i, const char *key, bool serializable)
{
	Etcdserverpb__RangeRequest r = ETCDSERVERPB__RANGE_REQUEST__INIT;

	r.key = bin(key);
	r.serializable = serializable;
	return mini_request(m, i, METHOD_KV_RANGE, &r.base);
}

uint64_t mini_grant(struct mini_cell *m, size_t i, lease_id id, int64_t ttl_s)
{
	Etcdserverpb__LeaseGrantRequest r = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;

	r.id = id;
	r.ttl = ttl_s;
	return mini_request(m, i, METHOD_LEASE_GRANT, &r.base);
}

uint64_t mini_revoke(struct mini_cell *m, size_t i, lease_id id)
{
	Etcdserverpb__LeaseRevokeRequest r = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;

	r.id = id;
	return mini_request(m, i, METHOD_LEASE_REVOKE, &r.base);
}

uint64_t mini_keep_alive(struct mini_cell *m, size_t i, lease_id id)
{
	Etcdserverpb__LeaseKeepAliveRequest r = ETCDSERVERPB__LEASE_KEEP_ALIVE_REQUEST__INIT;

	r.id = id;
	return mini_request(m, i, METHOD_LEASE_KEEP_ALIVE, &r.base);
}

static uint64_t lock_request(struct mini_cell *m, size_t i, const char *name, lease_id id, enum lock_mode mode, bool bounded, int64_t wait_ms)
{
	V3lockpb__LockRequest r = V3LOCKPB__LOCK_REQUEST__INIT;

	r.name = bin(name);
	r.lease = id;
	r.mode = (V3lockpb__LockMode)mode;
	if (bounded) {
		r.wait_case = V3LOCKPB__LOCK_REQUEST__WAIT_WAIT_MS;
		r.wait_ms = wait_ms;
	}
	return mini_request(m, i, METHOD_LOCK_LOCK, &r.base);
}

uint64_t mini_lock(struct mini_cell *m, size_t i, const char *name, lease_id id)
{
	return lock_request(m, i, name, id, LOCK_EXCLUSIVE, false, 0);
}

uint64_t mini_lock_bounded(struct mini_cell *m, size_t i, const char *name, lease_id id, enum lock_mode mode, int64_t wait_ms)
{
	return lock_request(m, i, name, id, mode, true, wait_ms);
}

uint64_t mini_unlock(struct mini_cell *m, size_t i, const char *key)
{
	V3lockpb__UnlockRequest r = V3LOCKPB__UNLOCK_REQUEST__INIT;

	r.key = bin(key);
	return mini_request(m, i, METHOD_LOCK_UNLOCK, &r.base);
}

/* ---- to look at ---- */

struct core *mini_core(struct mini_cell *m, size_t i)
{
	return m->nodes[i].core;
}

member_id mini_member(const struct mini_cell *m, size_t i)
{
	return m->nodes[i].id;
}

raft_index mini_log_first(const struct mini_cell *m, size_t i)
{
	return m->nodes[i].first;
}

enum core_fatal mini_fatal(const struct mini_cell *m, size_t i)
{
	return m->nodes[i].fatal;
}

uint64_t mini_messages(const struct mini_cell *m)
{
	return m->sent;
}

revision mini_token(const struct mini_answer *a)
{
	V3lockpb__LockResponse *r = v3lockpb__lock_response__unpack(NULL, a->reply.len, a->reply.ptr);
	revision token;

	ASSERT(r);
	token = r->fencing_token;
	v3lockpb__lock_response__free_unpacked(r, NULL);
	return token;
}

int64_t mini_ttl(const struct mini_answer *a)
{
	Etcdserverpb__LeaseKeepAliveResponse *r = etcdserverpb__lease_keep_alive_response__unpack(NULL, a->reply.len, a->reply.ptr);
	int64_t ttl;

	ASSERT(r);
	ttl = r->ttl;
	etcdserverpb__lease_keep_alive_response__free_unpacked(r, NULL);
	return ttl;
}

size_t mini_contenders(struct mini_cell *m, size_t i, const char *name)
{
	struct tree_cursor cursor;
	const struct state *st = core_state(m->nodes[i].core);
	size_t n = 0;

	for (struct tree_record *r = tree_first(&cursor, &st->contenders); r; r = tree_next(&cursor))
		n += slice_eq(contender_name(CONTAINER_OF(r, struct contender, base)), slice_of_str(name));
	return n;
}

const char *mini_value(struct mini_cell *m, size_t i, const char *key)
{
	struct tree_record *r = tree_get(&core_state(m->nodes[i].core)->keys, slice_of_str(key));
	const struct key_record *rec;
	const struct kv *kv;

	if (!r)
		return NULL;
	rec = CONTAINER_OF(r, struct key_record, base);
	kv = rec->cap == 0 ? rec->one : rec->versions[rec->len - 1];
	if (kv_is_tombstone(kv))
		return NULL;
	buf_clear(&m->scratch);
	buf_append_slice(&m->scratch, kv_value(kv));
	buf_append_byte(&m->scratch, 0);
	return (const char *)m->scratch.ptr;
}

void mini_on_job(struct mini_cell *m, bool (*fn)(void *ctx, size_t i, const struct snapshot_job *job, bool done), void *ctx)
{
	m->on_job = fn;
	m->on_job_ctx = ctx;
}

raft_index mini_snapshot(const struct mini_cell *m, size_t i)
{
	return m->nodes[i].snapshot.id.index;
}

size_t mini_chunks_kept(const struct mini_cell *m, size_t i)
{
	return m->nodes[i].incoming.len;
}

void mini_plant_part(struct mini_cell *m, size_t i, struct entry_id id)
{
	struct mini_snapshot *s = &m->nodes[i].incoming;

	ASSERT(!m->nodes[i].core);
	snapshot_drop(s);
	*s = (struct mini_snapshot){ .id = id, .state_hash = 1, .whole = 3 };
	snapshot_add(s, buf_copy_of(slice_of_str("chunk")));
}
