/* propose.c: how a command that was asked for here gets into the log, once.
 *
 * The leader proposes its own at once. Any other replica forwards through a channel: for each (term, boot of the sender) commands have
 * numbers from 1; the leader takes them in order without a gap and acknowledges; what is not acknowledged is sent again, from the first
 * on (go-back-N). So a message may be lost, doubled or late, and yet no command enters a log twice in one term (intake.c).
 *
 *   (W1) `first` and `queue` hold what was handed to nobody, the queue what waits in line at the leader (admit.c), the other what passes it by (but for Locks and Unlocks that
 *        wait for others of their place, unlock.c); `sent` what is in the channel of the present term and not acknowledged, with consecutive
 *        numbers acked+1 .. next-1; `taken` what was proposed here, was acknowledged, or was sent in an earlier term. Terms in `taken`
 *        never fall from front to back.
 *   (W2) a command that was handed out in term T can enter a log only as an entry of term T: a Propose names its term, and only the
 *        leader of that very term takes it.
 *   (W3) Once an entry of a term T' > T is applied here, a command handed out in term T and not applied by then never will be: terms never
 *        fall along a log, so behind that entry, which is committed, no entry of term T can ever be. Applied means in order, so all entries
 *        before it have been seen. Only then it is proposed anew, in the present term. So retries never double a command.
 *   (W4) a snapshot skips entries that nobody here sees: what was handed out in a term up to the snapshot's may be among them. Its outcome
 *        is unknown; it is never proposed anew (`skipped`), unless it names a session: then it is, and finds out what came of it. Of the present term, that is
 *        when the leader has said that it is in no log ahead (skipped.c).
 *   (W5) a refused number counts as taken by the leader, so that a late copy of the message cannot have it taken after all, when the
 *        caller has been told that it was not. Acknowledgements repeat refusals until Propose.acked says that they were heard.
 *   (W6) a command whose caller is gone keeps its place in `sent` until acknowledged (dead), since numbers have no holes; it is not
 *        proposed anew.
 * An acknowledgement is no promise: the leader may lose what it took when it crashes, which W3 covers. */
#include "internal.h"

void proposer_init(struct core *c)
{
	list_init(&c->proposer.first);
	list_init(&c->proposer.queue);
	list_init(&c->proposer.sent);
	list_init(&c->proposer.taken);
	c->proposer.next = 1;
	c->proposer.resend_at = TIME_NEVER;
}

static bool is_in_line(const struct call *call)
{
	return command_waits_in_line(call->command);
}

static struct list *queue_of(struct core *c, const struct call *call)
{
	return is_in_line(call) ? &c->proposer.queue : &c->proposer.first;
}

static void count_queued(struct core *c, struct call *call)
{
	if (!is_in_line(call))
		return;
	call->queued = (uint32_t)call->bytes.len;
	c->proposer.line_queued += call->queued;
}

void propose_unqueue(struct core *c, struct call *call)
{
	c->proposer.line_queued -= call->queued;
	call->queued = 0;
}

static void wrap(struct core *c, struct call *call, struct command *cmd)
{
	propose_unqueue(c, call);
	call_number(c, call);
	call->command = (uint8_t)cmd->kind;
	identity_put(c, call, cmd);
	cmd->origin_member = c->config.member;
	cmd->origin_boot = c->config.boot;
	cmd->origin_call = call->number;
	buf_clear(&call->bytes);
	command_encode(cmd, &call->bytes);
	call->tried = call->skipped = false;
	propose_hand_on(c, call);
}

void propose_submit(struct core *c, struct call *call, uint32_t kind, struct slice payload)
{
	struct command cmd = { .kind = kind, .payload = payload };

	wrap(c, call, &cmd);
}

void propose_submit_request(struct core *c, struct call *call, uint32_t kind, struct slice payload, const struct core_request *r, bool chosen)
{
	struct command cmd = {
		.kind = kind,
		.payload = payload,
		.session = r->session,
		.request = r->request_id,
		.first_unanswered = r->first_unanswered,
		.chosen = chosen,
	};

	call->once = r->session != 0;
	wrap(c, call, &cmd);
}

void propose_submit_again(struct core *c, struct call *call, struct slice payload, const struct command *before)
{
	struct command cmd = *before;

	cmd.payload = payload;
	wrap(c, call, &cmd);
}

void propose_set_aside(struct call *call, struct list *in)
{
	ASSERT(call->place == PLACE_QUEUE && !call->tried);
	call_move(call, PLACE_QUEUE, in);
}

void propose_hand_on(struct core *c, struct call *call)
{
	call_move(call, PLACE_QUEUE, queue_of(c, call));
	propose_unqueue(c, call); /* it counts already when it was set aside */
	count_queued(c, call);
	c->proposer.fresh = true;
}

/* It was certainly not applied and never will be: the caller may be told so. */
static void refuse(struct core *c, struct call *call, enum err e, struct buf *details)
{
	if (call->lock && call->canceled)
		call_free(c, call);
	else if (call->dead)
		call_free(c, call);
	else {
		/* It may have been applied in an earlier term, by an entry that nobody here saw. */
		call_tell(c, call, call->skipped ? ERR_OUTCOME_UNKNOWN : e, NULL, details);
		call_free(c, call);
	}
}

/* ---- too much ---- */

/* Whether what was asked first of all that waits here has waited too long, with a leader to take it. */
static bool is_late(const struct core *c, time_ms most)
{
	const struct proposer *p = &c->proposer;
	time_ms since = p->led_since;

	if (list_empty(&p->queue) || !c->leader)
		return false;
	/* C4 of call.c: every deadline is this far from the call's beginning. */
	if (CONTAINER_OF(p->queue.next, struct call, link)->deadline > since + c->config.request_timeout_ms)
		since = CONTAINER_OF(p->queue.next, struct call, link)->deadline - c->config.request_timeout_ms;
	return core_clock(c) > since + most;
}

static bool would_refuse(const struct core *c, bool reserved, size_t len)
{
	const struct proposer *p = &c->proposer;
	unsigned factor = reserved ? 2 : 1;

	if (p->line_queued + len > (size_t)PROPOSE_QUEUE_BYTES * factor || is_late(c, ADMIT_WAIT_MS * factor))
		return true;
	if (c->role == RAFT_LEADER)
		return list_empty(&p->queue) && admit_refuses(c, reserved, len);
	return !reserved && p->pushed_back && core_clock(c) < p->pushed_back + PROPOSE_PUSHED_BACK_MS;
}

bool core_refuses_load(const struct core *c)
{
	return would_refuse(c, false, 0);
}

bool propose_refuses(const struct core *c, uint32_t kind, size_t len)
{
	return command_waits_in_line(kind) && would_refuse(c, command_is_reserved(kind), len);
}

void propose_leader(struct core *c)
{
	c->proposer.led_since = core_clock(c);
	c->proposer.pushed_back = 0;
}

/* ---- as leader ---- */

static bool propose_local(struct core *c, struct call *call)
{
	struct command cmd;
	struct buf details = { 0 };
	enum err e;

	ASSERT(command_parse(buf_view(&call->bytes), &cmd));
	e = core_propose(c, &cmd, buf_view(&call->bytes), &details);
	if (e == ERR_NOT_LEADER)
		return false;
	if (e == ERR_TOO_MANY_REQUESTS && !is_in_line(call))
		return true; /* stays where it is: room comes as entries commit */
	if (e) {
		refuse(c, call, e, &details);
		buf_free(&details);
		return true;
	}
	call->term = c->term;
	call->tried = true;
	propose_unqueue(c, call);
	call_move(call, PLACE_TAKEN, &c->proposer.taken);
	return true;
}

static void flush_local(struct core *c)
{
	LIST_FOR_EACH_SAFE(l, next, &c->proposer.first)
		if (!propose_local(c, CONTAINER_OF(l, struct call, link)))
			return;
	LIST_FOR_EACH_SAFE(l, next, &c->proposer.queue)
		if (!propose_local(c, CONTAINER_OF(l, struct call, link)))
			return;
}

/* ---- through the channel ---- */

static bool window_open(const struct proposer *p)
{
	return p->next - 1 - p->acked < PROPOSE_WINDOW && p->sent_bytes < PROPOSE_WINDOW_BYTES;
}

static bool line_open(const struct proposer *p)
{
	return p->line_sent < PROPOSE_LINE && p->line_bytes < PROPOSE_LINE_BYTES;
}

static void enter_channel(struct core *c, struct call *call)
{
	struct proposer *p = &c->proposer;

	call->term = p->term;
	call->channel = p->next++;
	call->tried = true;
	p->sent_bytes += call->bytes.len;
	if (is_in_line(call)) {
		p->line_sent++;
		p->line_bytes += call->bytes.len;
	}
	propose_unqueue(c, call);
	call_move(call, PLACE_SENT, &p->sent);
}

static void leave_channel(struct core *c, const struct call *call)
{
	struct proposer *p = &c->proposer;

	p->sent_bytes -= call->bytes.len;
	if (is_in_line(call)) {
		p->line_sent--;
		p->line_bytes -= call->bytes.len;
	}
}

static void fill_window(struct core *c)
{
	struct proposer *p = &c->proposer;

	while (!list_empty(&p->first) && window_open(p))
		enter_channel(c, CONTAINER_OF(p->first.next, struct call, link));
	while (!list_empty(&p->queue) && window_open(p) && line_open(p))
		enter_channel(c, CONTAINER_OF(p->queue.next, struct call, link));
}

static void send_message(struct core *c, struct buf *body, uint64_t first)
{
	struct buf head = { 0 };

	pbw_u64(&head, 1, c->proposer.term);
	pbw_u64(&head, 2, first);
	pbw_u64(&head, 4, c->proposer.acked);
	buf_append_slice(&head, buf_view(body));
	peer_send(c, c->leader, 11, buf_view(&head));
	buf_free(&head);
	buf_clear(body);
}

/* Everything in the channel that is in no message yet. */
static void transmit(struct core *c)
{
	struct proposer *p = &c->proposer;
	struct buf body = { 0 };
	uint64_t first = 0;

	if (p->transmitted + 1 == p->next)
		return;
	LIST_FOR_EACH(l, &p->sent) {
		const struct call *call = CONTAINER_OF(l, struct call, link);

		if (call->channel <= p->transmitted)
			continue;
		if (body.len > 0 && body.len + call->bytes.len > PROPOSE_MESSAGE_BYTES)
			send_message(c, &body, first);
		if (body.len == 0)
			first = call->channel;
		pbw_bytes_always(&body, 3, buf_view(&call->bytes));
		p->transmitted = call->channel;
	}
	if (body.len > 0)
		send_message(c, &body, first);
	buf_free(&body);
	if (p->resend_at == TIME_NEVER) /* what follows does not put it off: without what was lost nothing that follows is taken */
		p->resend_at = c->now + resend_ms(c);
}

static void flush_channel(struct core *c)
{
	struct proposer *p = &c->proposer;

	if (!list_empty(&p->sent) && c->now >= p->resend_at) {
		p->transmitted = p->acked;
		p->resend_at = TIME_NEVER;
	}
	fill_window(c);
	transmit(c);
	if (list_empty(&p->sent))
		p->resend_at = TIME_NEVER;
}

void propose_flush(struct core *c)
{
	if (c->role != RAFT_LEADER && !c->leader)
		return;
	c->proposer.fresh = false; /* what comes meanwhile goes with the next take */
	if (c->role == RAFT_LEADER)
		flush_local(c);
	else
		flush_channel(c);
}

/* ---- acknowledgements ---- */

static enum err refusal_error(uint64_t reason)
{
	switch (reason) {
	case HOLDFAST__INTERNAL__PROPOSE_REFUSAL__PROPOSE_REFUSED_NO_SPACE:
		return ERR_NO_SPACE;
	case HOLDFAST__INTERNAL__PROPOSE_REFUSAL__PROPOSE_REFUSED_MALFORMED:
		return ERR_MALFORMED;
	case HOLDFAST__INTERNAL__PROPOSE_REFUSAL__PROPOSE_REFUSED_UNHEALTHY:
		return ERR_UNHEALTHY;
	case HOLDFAST__INTERNAL__PROPOSE_REFUSAL__PROPOSE_REFUSED_NOT_ENOUGH_STARTED:
		return ERR_MEMBER_NOT_ENOUGH_STARTED;
	case HOLDFAST__INTERNAL__PROPOSE_REFUSAL__PROPOSE_REFUSED_LEARNER_NOT_READY:
		return ERR_LEARNER_NOT_READY;
	default:
		return ERR_TOO_MANY_REQUESTS;
	}
}

struct ack {
	uint64_t term, taken, boot;
	VEC(uint64_t) refused;
	VEC(uint64_t) reasons;
	VEC(struct slice) details; /* one each, or none at all */
};

/* A repeated number, packed or not. */
static void read_numbers(struct wire *w, uint64_t *(*push)(void *), void *to)
{
	struct slice s;

	if (w->type != WIRE_BYTES) {
		*push(to) = wire_u64(w);
		return;
	}
	for (s = w->bytes; s.len > 0;) {
		uint64_t v = 0;
		unsigned shift = 0;
		size_t n = 0;

		do {
			v |= shift < 64 ? (uint64_t)(s.ptr[n] & 0x7f) << shift : 0;
			shift += 7;
		} while (s.ptr[n++] & 0x80 && n < s.len);
		s = slice_of(s.ptr + n, s.len - n);
		*push(to) = v;
	}
}

static uint64_t *push_refused(void *to)
{
	return VEC_PUSH(&((struct ack *)to)->refused);
}

static uint64_t *push_reason(void *to)
{
	return VEC_PUSH(&((struct ack *)to)->reasons);
}

static bool parse_ack(struct slice body, struct ack *a)
{
	struct wire w;

	for (wire_init(&w, body); wire_next(&w);) {
		switch (w.field) {
		case 1: a->term = wire_u64(&w); break;
		case 2: a->taken = wire_u64(&w); break;
		case 5: a->boot = wire_u64(&w); break;
		case 6: read_numbers(&w, push_refused, a); break;
		case 7: read_numbers(&w, push_reason, a); break;
		case 8: *VEC_PUSH(&a->details) = wire_bytes(&w); break;
		default: break;
		}
	}
	return !w.bad && a->refused.len == a->reasons.len && (a->details.len == 0 || a->details.len == a->refused.len);
}

static void refuse_with(struct core *c, struct call *call, const struct ack *a, size_t at)
{
	struct buf details = { 0 };
	enum err e = refusal_error(a->reasons.at[at]);

	if (e == ERR_TOO_MANY_REQUESTS)
		c->proposer.pushed_back = core_clock(c) + 1;
	if (a->details.len > 0)
		buf_append_slice(&details, a->details.at[at]);
	refuse(c, call, e, &details);
	buf_free(&details);
}

/* The first of the channel is settled: acknowledged or refused. */
static void settle_first(struct core *c, const struct ack *a, size_t *at)
{
	struct proposer *p = &c->proposer;
	struct call *call = CONTAINER_OF(p->sent.next, struct call, link);

	while (*at < a->refused.len && a->refused.at[*at] < call->channel)
		(*at)++;
	p->acked = call->channel;
	leave_channel(c, call);
	if (*at < a->refused.len && a->refused.at[*at] == call->channel)
		refuse_with(c, call, a, *at);
	else if (call->dead)
		call_free(c, call);
	else
		call_move(call, PLACE_TAKEN, &p->taken);
}

void propose_ack(struct core *c, struct slice body)
{
	struct proposer *p = &c->proposer;
	struct ack a = { 0 };
	size_t at = 0;

	if (parse_ack(body, &a) && a.term == p->term && a.boot == c->config.boot && a.taken < p->next && a.taken > p->acked) {
		while (!list_empty(&p->sent) && p->acked < a.taken)
			settle_first(c, &a, &at);
		if (p->transmitted < p->acked)
			p->transmitted = p->acked;
		p->resend_at = list_empty(&p->sent) ? TIME_NEVER : c->now + resend_ms(c);
	}
	free(a.refused.at);
	free(a.reasons.at);
	free(a.details.at);
}

/* ---- what becomes of it ---- */

void propose_term(struct core *c)
{
	struct proposer *p = &c->proposer;

	LIST_FOR_EACH_SAFE(l, next, &p->sent) {
		struct call *call = CONTAINER_OF(l, struct call, link);

		if (call->dead)
			call_free(c, call);
		else
			call_move(call, PLACE_TAKEN, &p->taken);
	}
	p->term = raft_current_term(c->raft);
	p->next = 1;
	p->acked = p->transmitted = 0;
	p->sent_bytes = p->line_sent = p->line_bytes = 0;
	p->resend_at = TIME_NEVER;
	p->settled.index = 0;
}

/* W3 proves that it is in no log. */
static void lost(struct core *c, struct call *call, struct list *again)
{
	if (call->lock && (call->canceled || (call->skipped && !call->once))) {
		lock_lost(c, call);
	} else if (call->skipped && !call->once) {
		call_fail(c, call, ERR_OUTCOME_UNKNOWN);
	} else {
		call->tried = false; /* its outcome is certain again */
		call_move(call, PLACE_QUEUE, again);
	}
}

/* In front, in order: what was asked first goes first. */
static void go_again(struct core *c, struct list *again)
{
	while (!list_empty(again)) {
		struct list *l = again->prev;

		list_remove(l);
		list_push_front(queue_of(c, CONTAINER_OF(l, struct call, link)), l);
		count_queued(c, CONTAINER_OF(l, struct call, link));
		c->proposer.fresh = true;
	}
}

void propose_applied_term(struct core *c, raft_term term)
{
	struct proposer *p = &c->proposer;
	struct list again;

	if (term <= p->applied_term)
		return;
	ASSERT(term <= p->term);
	p->applied_term = term;
	list_init(&again);
	while (!list_empty(&p->taken)) {
		struct call *call = CONTAINER_OF(p->taken.next, struct call, link);

		if (call->term >= term)
			break;
		lost(c, call, &again);
	}
	go_again(c, &again);
}

void propose_settle(struct core *c, uint64_t channel, uint64_t below)
{
	struct proposer *p = &c->proposer;
	struct list again;

	list_init(&again);
	LIST_FOR_EACH_SAFE(l, next, &p->taken) {
		struct call *call = CONTAINER_OF(l, struct call, link);

		if (call->skipped && call->term == p->term && call->channel <= channel && call->number < below)
			lost(c, call, &again);
	}
	go_again(c, &again);
}

void propose_skipped(struct core *c, raft_term term)
{
	struct proposer *p = &c->proposer;

	LIST_FOR_EACH(l, &p->taken) {
		struct call *call = CONTAINER_OF(l, struct call, link);

		if (call->term <= term)
			call->skipped = true;
	}
	LIST_FOR_EACH(l, &p->sent) {
		struct call *call = CONTAINER_OF(l, struct call, link);

		if (call->term <= term)
			call->skipped = true;
	}
	p->skipped = true;
	p->skipped_at = c->now;
}

void propose_drop(struct core *c, struct call *call)
{
	ASSERT(call->tag == 0);
	if (call->place != PLACE_SENT) {
		call_free(c, call);
		return;
	}
	unlock_settled(c, call);
	call_forget_number(c, call);
	list_remove(&call->age);
	call->dead = true; /* W6 */
}

/* W6 for a call that lives on: a stand-in keeps its number. */
static void leave_stand_in(struct core *c, struct call *call)
{
	struct call *dead = call_new(c, CALL_COMMAND, 0, (enum method_id)call->method);

	call_no_deadline(dead);
	dead->dead = dead->tried = true;
	dead->place = PLACE_SENT;
	dead->command = call->command;
	dead->term = call->term;
	dead->channel = call->channel;
	dead->bytes = buf_take(&call->bytes);
	list_insert_between(&dead->link, call->link.prev, &call->link);
}

void propose_release(struct core *c, struct call *call)
{
	if (call->place == PLACE_SENT)
		leave_stand_in(c, call);
	call_forget_number(c, call);
	buf_free(&call->bytes);
	call_move(call, PLACE_NONE, NULL);
}

/* ---- for the owner ---- */

bool propose_waits(const struct core *c)
{
	return c->proposer.fresh && (c->role == RAFT_LEADER || c->leader != 0);
}

time_ms propose_next_deadline(const struct core *c)
{
	if (c->role == RAFT_LEADER || !c->leader)
		return TIME_NEVER;
	return c->proposer.resend_at;
}

void propose_check(const struct core *c)
{
	const struct proposer *p = &c->proposer;
	uint64_t number = p->acked;
	raft_term term = 0;
	size_t queued = 0, bytes = 0, line = 0;

	LIST_FOR_EACH(l, &p->first)
		ASSERT(!is_in_line(CONTAINER_OF(l, struct call, link)));
	LIST_FOR_EACH(l, &p->queue) {
		ASSERT(is_in_line(CONTAINER_OF(l, struct call, link)));
		queued += CONTAINER_OF(l, struct call, link)->queued;
	}
	ASSERT(queued + unlocks_queued(c) == p->line_queued);

	LIST_FOR_EACH(l, &p->sent) { /* W1 */
		const struct call *call = CONTAINER_OF(l, struct call, link);

		ASSERT(call->place == PLACE_SENT);
		ASSERT(call->channel == number + 1);
		ASSERT(call->term == p->term);
		number = call->channel;
		bytes += is_in_line(call) ? call->bytes.len : 0;
		line += is_in_line(call);
	}
	ASSERT(bytes == p->line_bytes);
	ASSERT(line == p->line_sent);
	ASSERT(number + 1 == p->next || list_empty(&p->sent));
	LIST_FOR_EACH(l, &p->taken) {
		const struct call *call = CONTAINER_OF(l, struct call, link);

		ASSERT(call->place == PLACE_TAKEN);
		ASSERT(call->term >= term);
		ASSERT(call->term >= p->applied_term); /* W3 */
		term = call->term;
	}
}
