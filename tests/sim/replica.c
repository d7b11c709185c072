/* replica.c: a node around a core: takes a batch of events, lets the core decide, carries the update out, in the order of
 * server/node/node.c (V2). A process may be stopped between two batches, or in the middle of one: after it has read the clock and decided, before
 * anything has left. */
#include "sim.h"

#define TICK_MS 50
#define GAP_MS 500

time_ms replica_now_ms(const struct replica *r)
{
	int64_t run = (int64_t)(r->w->now - r->clock_from);

	return (r->clock_base_us + (uint64_t)(run + run * r->ppm / 1000000)) / 1000;
}

/* The wall clock, which is of no consequence: it jumps by decades, forward and back, every second, and each replica has its own. Times come again. */
int64_t replica_unix_ms(const struct replica *r)
{
	static const int64_t eras[] = { 0, 1000000000000, 1700000000000, 4100000000000 };
	uint64_t mixed = (r->w->now / SIM_SECOND * (REPLICAS_MAX + 1) + r->id + 1) * UINT64_C(0x9e3779b97f4a7c15);

	return eras[mixed >> 62] + (int64_t)(r->w->now % SIM_SECOND / 1000);
}

/* The first instant at which its clock shows ms. */
static sim_us instant_of(const struct replica *r, time_ms ms)
{
	uint64_t local = ms * 1000;
	uint64_t ahead;

	if (ms > UINT64_MAX / 4000)
		return SIM_NEVER;
	if (local <= r->clock_base_us)
		return r->w->now;
	ahead = (local - r->clock_base_us) * 1000000 / (uint64_t)(1000000 + r->ppm);
	return r->clock_from + ahead + 2;
}

void inbox_item_free(struct inbox_item *item)
{
	for (size_t i = 0; item->entries && i < item->event.log_read.len; i++)
		raft_entry_unref(item->entries[i]);
	free(item->entries);
	if (item->state)
		state_deinit(item->state);
	free(item->state);
	buf_free(&item->bytes);
}

void replica_put(struct replica *r, inbox_items *to, struct inbox_item item)
{
	*SIM_PUSH(to) = item;
	replica_poke(r);
}

void replica_wake(struct replica *r, sim_us at)
{
	if (at < r->w->now)
		at = r->w->now;
	if (at >= r->wake_at)
		return;
	r->wake_at = at;
	sim_at(r->w, at, (struct ev){ .kind = EV_WAKE, .a = r->id });
}

void replica_poke(struct replica *r)
{
	if (replica_runs(r))
		replica_wake(r, r->w->now + 50 + rng_below(&r->w->net_rng, 350));
}

/* ---- carrying out ---- */

static void queue_write(struct replica *r, struct core_write *wr)
{
	struct disk_item item = { .kind = ITEM_WRITE, .write = *wr };

	if (!wr->seq && !wr->trim_to)
		return;
	item.write.entries = NULL;
	if (wr->entries_len > 0) {
		item.write.entries = mem_alloc(wr->entries_len * sizeof *wr->entries);
		memcpy(item.write.entries, wr->entries, wr->entries_len * sizeof *wr->entries);
	}
	wr->entries_len = 0;
	disk_queue(r, item);
}

/* It goes to an address, and to whoever lives there by now. */
static void send_message(struct replica *r, struct core_message *m)
{
	uint32_t to = world_slot_of(r->w, m->to);

	CHECK(r->w, "core", (to != UINT32_MAX && to != r->id) || r->w->config.members, "%s: a message to nobody", r->name);
	if (to == UINT32_MAX || to == r->id || r->w->replicas[to].absent) { /* a member that is gone, or has yet to be started */
		buf_free(&m->bytes);
		return;
	}
	check_promise(r, m->to, buf_view(&m->bytes));
	net_send(r->w, r->id, to, &m->bytes, m->bulk);
}

static void release_held(struct replica *r)
{
	size_t kept = 0;

	for (size_t i = 0; i < r->held.len; i++) {
		if (r->held.at[i].wait_seq > r->disk_done)
			r->held.at[kept++] = r->held.at[i];
		else
			send_message(r, &r->held.at[i]);
	}
	r->held.len = kept;
}

static void answer(struct replica *r, struct core_answer *a)
{
	struct world *w = r->w;

	if (user_answered(r, a) || cacher_answered(r, a))
		return;
	if (a->tag > OPERATOR_TAGS) {
		operator_answer(w, a->err);
		return;
	}
	CHECK(w, "core", a->tag > 0 && a->tag <= w->ops.len, "%s: an answer for an unknown call", r->name);
	check_answer(w, r, a->tag, a->err, buf_view(&a->reply));
	net_answer(w, a->tag, a->err, &a->reply);
}

static void carry_out(struct replica *r, struct core_update *up)
{
	bool again = up->again;

	queue_write(r, &up->write);
	for (size_t i = 0; i < up->messages_len; i++) {
		struct core_message *m = &up->messages[i];

		if (m->wait_seq <= r->disk_done) {
			send_message(r, m);
		} else {
			*SIM_PUSH(&r->held) = *m;
			m->bytes = (struct buf){ 0 };
		}
	}
	for (size_t i = 0; i < up->reads_len; i++)
		disk_queue(r, (struct disk_item){ .kind = ITEM_READ, .read = up->reads[i] });
	for (size_t i = 0; i < up->answers_len; i++)
		answer(r, &up->answers[i]);
	for (size_t i = 0; i < up->outputs_len; i++)
		if (!user_output(r, &up->outputs[i]) && !cacher_output(r, &up->outputs[i]))
			watcher_output(r, &up->outputs[i]);
	for (size_t i = 0; i < up->jobs_len; i++)
		snap_queue(r, &up->jobs[i]);
	CHECK(r->w, "core", up->fatal == CORE_OK || (r->wiped && up->fatal == CORE_FATAL_DATA_DIR) || (operator_removed(r->w, r) && up->fatal == CORE_FATAL_REMOVED), "%s: the core gave up: %d", r->name, (int)up->fatal);
	core_update_release(up);
	if (up->fatal && !r->out) {
		r->out = true;
		r->w->totals.removed += up->fatal == CORE_FATAL_REMOVED;
		TRACE(r->w, "%s: %s, it stops", r->name, r->wiped ? "the cell knows it by another disk" : "it was removed");
		sim_at(r->w, r->w->now, (struct ev){ .kind = EV_STOP, .a = r->id, .n = r->generation });
	}
	if (again)
		replica_wake(r, r->w->now + 1);
	else
		replica_wake(r, instant_of(r, r->ticked_ms + TICK_MS < core_next_deadline(r->core) ? r->ticked_ms + TICK_MS : core_next_deadline(r->core)));
}

/* ---- one batch ---- */

static void step_items(struct replica *r, inbox_items *items, time_ms now)
{
	for (size_t i = 0; i < items->len; i++) {
		struct inbox_item *item = &items->at[i];

		if (item->probe) {
			user_probed(r, item);
			inbox_item_free(item);
			continue;
		}
		struct core_request asked = { .tag = item->tag, .method = item->method, .bytes = buf_view(&item->bytes),
					      .now_unix_ms = replica_unix_ms(r) };

		item->event.now = now;
		if (item->tag)
			item->event.request = &asked;
		if (item->cacher)
			cacher_steps(r->w, item);
		else if (item->user)
			user_steps(item);
		else if (item->stream)
			watcher_stepped(r->w, &item->event);
		core_step(r->core, &item->event);
		if (item->installed.index)
			check_installed(r, item->installed);
		inbox_item_free(item);
	}
	items->len = 0;
}

static void step_calls(struct replica *r, time_ms now)
{
	for (size_t i = 0; i < r->calls.len; i++) {
		struct inbox_item *item = &r->calls.at[i];
		struct op *o = op_get(r->w, item->op), *root = op_root(r->w, item->op);
		struct core_request req = { .tag = item->op, .method = op_method(o), .bytes = buf_view(&item->bytes),
					    .client = slice_of((const uint8_t *)&item->op, sizeof item->op), /* note_place of referee.c reads it */
					    .session = o->session, .request_id = o->request_id, .first_unanswered = o->first_unanswered,
					    .now_unix_ms = replica_unix_ms(r) };
		struct core_event ev = { .kind = EVENT_REQUEST, .now = now, .request = &req };

		if (!root->seen) {
			root->stepped_at = r->w->now;
			root->floor = r->w->told;
			root->seen = true;
		}
		o->stepped = true;
		o->stepped_at = root->stepped_at;
		o->floor = root->floor;
		o->asked_at = r->w->now;
		o->generation = r->generation;
		r->w->totals.requests++;
		core_step(r->core, &ev);
		inbox_item_free(item);
	}
	r->calls.len = 0;
}

static void look_at_clock(struct replica *r, time_ms now)
{
	if (now - r->looked_ms > GAP_MS) {
		struct core_event gap = { .kind = EVENT_GAP, .now = now, .gap_ms = now - r->looked_ms - TICK_MS };

		TRACE(r->w, "%s notices that it stood still for %llu ms", r->name, (unsigned long long)gap.gap_ms);
		core_step(r->core, &gap);
	}
	r->looked_ms = now;
}

static void step_all(struct replica *r, time_ms now)
{
	look_at_clock(r, now);
	if (r->disk_done_in > r->disk_done) {
		struct core_event done = { .kind = EVENT_DISK_DONE, .now = now, .seq = r->disk_done_in };

		r->disk_done = r->disk_done_in;
		release_held(r);
		core_step(r->core, &done);
	}
	step_items(r, &r->done, now);
	step_items(r, &r->messages, now);
	step_calls(r, now);
	step_items(r, &r->others, now);
	if (now >= core_next_deadline(r->core) || now - r->ticked_ms >= TICK_MS) {
		struct core_event tick = { .kind = EVENT_TICK, .now = now };

		r->ticked_ms = now;
		core_step(r->core, &tick);
	}
}

void replica_run(struct replica *r)
{
	struct core_update up;

	r->w->totals.batches++;
	step_all(r, replica_now_ms(r));
	core_take(r->core, &up);
	check_taken(r, &up.write);
	check_step(r);
	check_goes_on(r, up.fatal != CORE_OK);
	if (r->pause_next) {
		r->held_update = up;
		r->holding = true;
		r->paused_until = r->w->now + r->pause_next;
		sim_at(r->w, r->paused_until, (struct ev){ .kind = EV_RESUME, .a = r->id, .n = r->generation });
		r->pause_next = 0;
		return;
	}
	carry_out(r, &up);
}

/* ---- stopped and going on ---- */

void replica_pause(struct replica *r, sim_us length, bool in_batch)
{
	if (!replica_runs(r) || r->pause_next)
		return;
	r->w->totals.pauses++;
	TRACE(r->w, "%s stops for %llu ms%s", r->name, (unsigned long long)(length / SIM_MS), in_batch ? ", in the middle of a batch" : "");
	if (in_batch) {
		r->pause_next = length;
		return;
	}
	r->paused_until = r->w->now + length;
	sim_at(r->w, r->paused_until, (struct ev){ .kind = EV_RESUME, .a = r->id, .n = r->generation });
}

void replica_resume(struct replica *r)
{
	if (!r->up || !r->paused_until)
		return;
	TRACE(r->w, "%s goes on", r->name);
	r->paused_until = 0;
	r->wake_at = SIM_NEVER;
	if (r->holding) {
		r->holding = false;
		carry_out(r, &r->held_update);
	}
	replica_poke(r);
}
