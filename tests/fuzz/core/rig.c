/* rig.c: see rig.h. */
#include "rig.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/pbw.h"
#include "core/member/member.h"
#include "core/snapshot/snapshot.h"

enum { SETTLE_MAX = 10000, TICK_MS = 10 };

/* As tests/support/mini_cell names them: its sessions are the seeds. */
static const char *const urls[RIG_MEMBERS] = { "http://r0:2380", "http://r1:2380", "http://r2:2380" };

member_id rig_member(size_t i)
{
	return member_derive_id(&urls[i], 1, "mini");
}

uint64_t rig_data_dir(size_t i)
{
	return 7000 + i;
}

uint64_t rig_cell(size_t members)
{
	member_id ids[RIG_MEMBERS];
	for (size_t i = 0; i < members; i++)
		ids[i] = rig_member(i);
	return member_derive_cell_id(ids, members);
}

static void initial_state(struct state *st, size_t members)
{
	state_init(st);
	for (size_t i = 0; i < members; i++) {
		char name[24];
		snprintf(name, sizeof(name), "r%zu", i);
		member_add_initial(st, &(struct member_spec){ .name = name, .peer_urls = &urls[i], .peer_urls_len = 1 }, "mini");
	}
}

struct rig *rig_new(size_t members, uint64_t seed, struct raft_entry **tail, size_t tail_len)
{
	struct rig *r = mem_zalloc(sizeof(*r));
	struct core_config config = {
		.cell_id = rig_cell(members), .member = rig_member(0), .data_dir_id = rig_data_dir(0), .boot = 1, .seed = seed, .name = "r0", .client_urls = &urls[0],
		.client_urls_len = 1, .election_timeout_ms = 1000, .heartbeat_ms = 100, .snapshot_count = 50, .snapshot_keep = 10, .max_txn_ops = 128,
		.max_request_bytes = 65536, .request_timeout_ms = 7000, .max_pending = 1000, .max_waiters = 1000, .quota_bytes = 16 << 20,
		.log_memory_bytes = 16384, .version = "3.5.0",
	};
	struct raft_boot boot = { .hard = { .term = tail_len ? 1 : 0 }, .last = { tail_len, tail_len ? 1 : 0 }, .first = 1, .tail = tail, .tail_len = tail_len };
	struct state st;
	initial_state(&st, members);
	r->now = 1000;
	r->first = 1;
	r->next_tag = 1;
	for (size_t i = 0; i < tail_len; i++) {
		r->log = mem_realloc(r->log, (tail_len + 64) * sizeof(*r->log));
		r->log_cap = tail_len + 64;
		r->log[r->log_len++] = tail[i];
	}
	r->core = core_new(&config, &st, &boot, r->now);
	rig_step(r, (struct core_event){ .kind = EVENT_TICK });
	return r;
}

static void chunks_drop(struct rig *r)
{
	while (r->chunks_len)
		buf_free(&r->chunks[--r->chunks_len]);
}

static void received_drop(struct rig *r)
{
	while (r->received_len)
		buf_free(&r->received[--r->received_len]);
}

void rig_free(struct rig *r)
{
	core_free(r->core);
	while (r->log_len)
		raft_entry_unref(r->log[--r->log_len]);
	free(r->log);
	chunks_drop(r);
	free(r->chunks);
	received_drop(r);
	free(r->received);
	free(r);
}

/* ---- the disk; its asserts are those of storage ---- */

static struct entry_id last_of(const struct rig *r)
{
	if (!r->log_len)
		return r->first == r->snapshot.index + 1 ? r->snapshot : (struct entry_id){ r->first - 1, 0 };
	return (struct entry_id){ r->log[r->log_len - 1]->index, r->log[r->log_len - 1]->term };
}

static void append(struct rig *r, struct raft_entry *e)
{
	ASSERT(e->index == last_of(r).index + 1);
	ASSERT(e->term >= last_of(r).term);
	if (r->log_len == r->log_cap) {
		r->log_cap = r->log_cap ? 2 * r->log_cap : 64;
		r->log = mem_realloc(r->log, r->log_cap * sizeof(*r->log));
	}
	r->log[r->log_len++] = e;
}

static void trim(struct rig *r, raft_index to)
{
	size_t n = 0;
	ASSERT(to <= r->snapshot.index);
	while (n < r->log_len && r->log[n]->index <= to)
		raft_entry_unref(r->log[n++]);
	if (!n)
		return;
	memmove(r->log, r->log + n, (r->log_len - n) * sizeof(*r->log));
	r->log_len -= n;
	r->first += n;
}

static void write_log(struct rig *r, struct core_write *w)
{
	if (w->truncate_from) {
		ASSERT(w->truncate_from > r->snapshot.index);
		while (r->log_len && last_of(r).index >= w->truncate_from)
			raft_entry_unref(r->log[--r->log_len]);
	}
	for (size_t i = 0; i < w->entries_len; i++)
		append(r, w->entries[i]);
	w->entries_len = 0;
	if (w->trim_to)
		trim(r, w->trim_to);
	if (w->seq)
		r->held_seq = w->seq;
}

static void read_log(struct rig *r, const struct raft_read *read)
{
	struct core_event e = { .kind = EVENT_LOG_READ, .now = r->now };
	raft_index to = read->to < last_of(r).index ? read->to : last_of(r).index;
	e.log_read.id = read->id;
	if (read->from < r->first || read->from > to) {
		e.log_read.err = ERR_NOT_FOUND;
	} else {
		e.log_read.entries = r->log + (read->from - r->first);
		e.log_read.len = (size_t)(to + 1 - read->from);
	}
	core_step(r->core, &e);
}

static void save(struct rig *r, const struct snapshot_job *job)
{
	struct snapshot_encoder *enc = snapshot_encoder_new(job->view, rig_cell(RIG_MEMBERS));
	struct core_event e = { .kind = EVENT_SNAPSHOT_SAVED, .now = r->now };
	struct buf chunk = { .ptr = NULL };
	e.saved.index = job->id.index;
	if (r->snapshot.index >= job->id.index) {
		e.saved.err = ERR_EXISTS;
	} else {
		ASSERT(job->id.index <= last_of(r).index);
		chunks_drop(r);
		while (snapshot_encoder_next(enc, &chunk)) {
			r->chunks = mem_realloc(r->chunks, (r->chunks_len + 1) * sizeof(*r->chunks));
			r->chunks[r->chunks_len++] = buf_take(&chunk);
		}
		r->snapshot = job->id;
	}
	buf_free(&chunk);
	snapshot_encoder_free(enc);
	core_step(r->core, &e);
}

static void read_chunk(struct rig *r, const struct snapshot_job *job)
{
	struct core_event e = { .kind = EVENT_CHUNK_READ, .now = r->now };
	e.chunk.job = job->job;
	e.chunk.id = r->snapshot;
	e.chunk.chunks = r->chunks_len;
	e.chunk.err = job->chunk < r->chunks_len ? ERR_OK : ERR_NOT_FOUND;
	if (!e.chunk.err)
		e.chunk.bytes = buf_view(&r->chunks[job->chunk]);
	core_step(r->core, &e);
}

static void install(struct rig *r, const struct snapshot_job *job)
{
	struct entry_id last = last_of(r);
	bool keep = job->id.index >= r->first && job->id.index <= last.index && r->log[job->id.index - r->first]->term == job->id.term;
	if (!keep) {
		while (r->log_len)
			raft_entry_unref(r->log[--r->log_len]);
		r->first = job->id.index + 1;
	}
	chunks_drop(r);
	r->snapshot = job->id;
}

static void received_add(struct rig *r, struct slice bytes)
{
	r->received = mem_realloc(r->received, (r->received_len + 1) * sizeof(*r->received));
	r->received[r->received_len++] = buf_copy_of(bytes);
}

static void write_chunk(struct rig *r, const struct snapshot_job *job)
{
	struct core_event e = { .kind = EVENT_CHUNK_WRITTEN, .now = r->now };
	if (job->chunk == 0)
		received_drop(r);
	ASSERT(job->chunk == r->received_len);
	e.chunk.job = job->job;
	if (job->id.index <= r->snapshot.index)
		e.chunk.err = ERR_EXISTS;
	else
		received_add(r, buf_view(&job->bytes));
	core_step(r->core, &e);
}

static void load(struct rig *r, const struct snapshot_job *job)
{
	struct snapshot_decoder *dec = snapshot_decoder_new(rig_cell(RIG_MEMBERS));
	struct core_event e = { .kind = EVENT_SNAPSHOT_LOADED, .now = r->now };
	struct state st = { .restored = 0 };
	ASSERT(r->received_len == job->chunks);
	for (size_t i = 0; i < r->received_len && !e.loaded.err; i++)
		e.loaded.err = snapshot_decoder_feed(dec, buf_view(&r->received[i]));
	if (!e.loaded.err)
		e.loaded.err = snapshot_decoder_finish(dec, &st);
	snapshot_decoder_free(dec);
	e.loaded.job = job->job;
	e.loaded.state = &st;
	core_step(r->core, &e);
}

static void put_in_force(struct rig *r, const struct snapshot_job *job)
{
	struct core_event e = { .kind = EVENT_CHUNK_WRITTEN, .now = r->now };
	e.chunk.job = job->job;
	if (job->id.index <= r->snapshot.index)
		e.chunk.err = ERR_EXISTS;
	else
		install(r, job);
	core_step(r->core, &e);
}

static void do_job(struct rig *r, const struct snapshot_job *job)
{
	switch (job->kind) {
	case SNAPSHOT_SAVE:
		save(r, job);
		break;
	case SNAPSHOT_READ:
		read_chunk(r, job);
		break;
	case SNAPSHOT_WRITE:
		write_chunk(r, job);
		break;
	case SNAPSHOT_LOAD:
		load(r, job);
		break;
	case SNAPSHOT_INSTALL:
		put_in_force(r, job);
		break;
	case SNAPSHOT_ABORT:
		break;
	}
}

/* ---- steps ---- */

/* What an update asks for is copied out: it lives until the next step. True: there was something to do. */
static bool carry_out(struct rig *r)
{
	struct core_update u;
	struct raft_read reads[16];
	struct snapshot_job jobs[64];
	size_t reads_len, jobs_len;
	bool again;
	core_take(r->core, &u);
	write_log(r, &u.write);
	ASSERT(u.reads_len <= 16);
	ASSERT(u.jobs_len <= 64);
	reads_len = u.reads_len;
	jobs_len = u.jobs_len;
	if (reads_len)
		memcpy(reads, u.reads, reads_len * sizeof(reads[0]));
	if (jobs_len)
		memcpy(jobs, u.jobs, jobs_len * sizeof(jobs[0]));
	u.jobs_len = 0;
	again = u.again;
	r->fatal = u.fatal;
	core_update_release(&u);
	if (r->held_seq && !r->disk_held) {
		struct core_event e = { .kind = EVENT_DISK_DONE, .now = r->now, .seq = r->held_seq };
		r->held_seq = 0;
		again = true;
		core_step(r->core, &e);
	}
	for (size_t i = 0; i < reads_len; i++)
		read_log(r, &reads[i]);
	for (size_t i = 0; i < jobs_len; i++) {
		do_job(r, &jobs[i]);
		buf_free(&jobs[i].bytes);
	}
	return again || reads_len || jobs_len;
}

void rig_step(struct rig *r, struct core_event e)
{
	struct core_event tick = { .kind = EVENT_TICK, .now = r->now };
	if (r->fatal)
		return;
	e.now = r->now;
	core_step(r->core, &e);
	for (size_t n = 0; carry_out(r) && !r->fatal; n++) {
		ASSERT(n < SETTLE_MAX);
		core_step(r->core, &tick);
	}
}

void rig_pass(struct rig *r, time_ms ms)
{
	for (time_ms done = 0; done < ms; done += TICK_MS) {
		r->now += TICK_MS;
		rig_step(r, (struct core_event){ .kind = EVENT_TICK });
	}
}

void rig_hold_disk(struct rig *r, bool on)
{
	r->disk_held = on;
	rig_step(r, (struct core_event){ .kind = EVENT_TICK });
}

void rig_message(struct rig *r, size_t from, uint32_t body_field, struct slice body)
{
	struct buf b = { .ptr = NULL };
	pbw_u64(&b, 1, 1);
	pbw_fixed64(&b, 2, rig_cell(RIG_MEMBERS));
	pbw_fixed64(&b, 3, rig_member(from));
	pbw_fixed64(&b, 4, rig_member(0));
	pbw_fixed64(&b, 5, rig_data_dir(from));
	pbw_u64(&b, 6, 1);
	pbw_bytes_always(&b, body_field, body);
	rig_step(r, (struct core_event){ .kind = EVENT_MESSAGE, .message = buf_view(&b) });
	buf_free(&b);
}

void rig_check_snapshot(const struct rig *r)
{
	struct snapshot_encoder *enc = snapshot_encoder_new(core_state(r->core), rig_cell(RIG_MEMBERS));
	struct snapshot_decoder *dec = snapshot_decoder_new(rig_cell(RIG_MEMBERS));
	struct buf chunk = { .ptr = NULL };
	struct state st;
	while (snapshot_encoder_next(enc, &chunk)) {
		ASSERT(snapshot_decoder_feed(dec, buf_view(&chunk)) == ERR_OK);
		buf_clear(&chunk);
	}
	ASSERT(snapshot_decoder_finish(dec, &st) == ERR_OK);
	ASSERT(state_hash(&st) == state_hash(core_state(r->core)));
	state_deinit(&st);
	buf_free(&chunk);
	snapshot_decoder_free(dec);
	snapshot_encoder_free(enc);
}
