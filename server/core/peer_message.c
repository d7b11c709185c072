/* peer_message.c: what replicas say to each other, in and out, and who may say it.
 *
 *   (M1) a message counts only if it is for this member, of this cell, of a version we read, from a member's bound data directory, and not
 *        from a past incarnation of it. Everything else is dropped: to drop a message is always safe.
 *   (M2) who is refused is told why, once a second at most, however many others are; no more than TOLD_MAX are told in one second. A refusal is never
 *        answered with one.
 *   (M3) one word is not enough to stop a replica: it takes the leader's, or those of a quorum of voters. Of those that it knows all may be
 *        gone by now: that it was removed it believes anybody of its cell when it has no vote, or has had no leader for long. No quorum needs it then.
 *   (M4) who was removed is told so by whoever it reaches. It knows its peers of before, and at their addresses may be members that it never heard of: they
 *        get what was meant for those who lived there, and nobody else could tell it.
 * A replica that lags may not know its own leader as a member yet, nor who asks for its vote, which may be the one that is missing: so what only leaders send, and
 * requests for a vote, are taken from anybody of the cell. Its vote counts by the configuration of whoever asks.
 * The envelope is read by hand, the body by whoever it is for; nothing here trusts a byte. */
#include "internal.h"

#include "core/raft/raft_codec.h"

enum { REFUSAL_INTERVAL_MS = 1000, REFUSAL_COUNTS_MS = 10000, LEADERLESS_LONG = 3, FIRST_BODY = 10, LAST_BODY = 31, BODY_RAFT = 10, BODY_REFUSED = 17 };

#define REFUSED(name) HOLDFAST__INTERNAL__REFUSED_REASON__REFUSED_##name
#define RAFT_KIND(name) HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__RAFT_##name

struct envelope {
	uint64_t version, cell, from, to, data_dir, boot;
	uint32_t body_field;
	struct slice body;
};

/* ---- out ---- */

static void write_envelope(const struct core *c, member_id to, struct buf *out)
{
	pbw_u64(out, 1, PEER_VERSION);
	pbw_fixed64(out, 2, c->config.cell_id);
	pbw_fixed64(out, 3, c->config.member);
	pbw_fixed64(out, 4, to);
	pbw_fixed64(out, 5, c->config.data_dir_id);
	pbw_u64(out, 6, c->config.boot);
}

void peer_send(struct core *c, member_id to, uint32_t body_field, struct slice body)
{
	struct core_message *m = VEC_PUSH(&c->out.messages);

	m->to = to;
	buf_reserve(&m->bytes, body.len + 80);
	write_envelope(c, to, &m->bytes);
	pbw_bytes_always(&m->bytes, body_field, body);
}

void peer_send_raft(struct core *c, const struct raft_message *rm)
{
	struct core_message *m = VEC_PUSH(&c->out.messages);
	size_t size = raft_message_encoded_size(rm);

	m->to = rm->to;
	m->wait_seq = rm->wait_seq;
	m->bulk = rm->kind == RAFT_KIND(SNAPSHOT);
	buf_reserve(&m->bytes, size + 80);
	write_envelope(c, rm->to, &m->bytes);
	pbw_varint(&m->bytes, BODY_RAFT << 3 | WIRE_BYTES);
	pbw_varint(&m->bytes, size);
	raft_message_encode(rm, &m->bytes);
}

/* M2: whether it may be told now. Who was told longest ago is forgotten for it, and nobody that was told within the last second. */
static bool may_tell(struct core *c, member_id to)
{
	struct told *oldest = &c->told[0], *t;

	for (t = c->told; t < c->told + TOLD_MAX && t->to != to; t++)
		if (t->at < oldest->at)
			oldest = t;
	t = t < c->told + TOLD_MAX ? t : oldest;
	if (t->to != 0 && core_clock(c) - t->at < REFUSAL_INTERVAL_MS)
		return false;
	*t = (struct told){ to, core_clock(c) };
	return true;
}

static void send_refusal(struct core *c, member_id to, uint32_t reason)
{
	struct buf body = { 0 };

	if (!may_tell(c, to))
		return;
	pbw_u64(&body, 1, reason);
	peer_send(c, to, BODY_REFUSED, buf_view(&body));
	buf_free(&body);
}

/* ---- peers ---- */

struct peer *peer_find(struct core *c, member_id id)
{
	for (size_t i = 0; i < c->peers_len; i++)
		if (c->peers[i].id == id)
			return &c->peers[i];
	return NULL;
}

/* Room for a new one: that of whoever is no member any more. */
static struct peer *peer_room(struct core *c)
{
	if (c->peers_len < PEERS_MAX)
		return &c->peers[c->peers_len++];
	for (size_t i = 0; i < c->peers_len; i++)
		if (!member_find(&c->state, c->peers[i].id)) {
			intake_free(&c->peers[i].intake);
			return &c->peers[i];
		}
	return NULL;
}

static struct peer *peer_get(struct core *c, member_id id)
{
	struct peer *p = peer_find(c, id);

	if (p)
		return p;
	p = peer_room(c);
	if (!p)
		return NULL;
	memset(p, 0, sizeof *p);
	p->id = id;
	return p;
}

void peers_deinit(struct core *c)
{
	for (size_t i = 0; i < c->peers_len; i++)
		intake_free(&c->peers[i].intake);
}

/* ---- refused ---- */

static bool is_voter(const struct core *c, member_id id)
{
	const struct member_record *r = member_find(&c->state, id);

	return r && member_counts(r);
}

static size_t voters(const struct core *c)
{
	struct tree_cursor cursor;
	size_t n = 0;

	for (struct tree_record *r = tree_first(&cursor, &c->state.members); r; r = tree_next(&cursor))
		n += member_counts(CONTAINER_OF(r, struct member_record, base));
	return n;
}

static size_t refusing(const struct core *c, uint32_t reason)
{
	size_t n = 0;

	for (size_t i = 0; i < c->peers_len; i++) {
		const struct peer *p = &c->peers[i];

		n += p->refusal == reason && core_clock(c) - p->refusal_at <= REFUSAL_COUNTS_MS && is_voter(c, p->id);
	}
	return n;
}

static enum core_fatal fatal_of(uint32_t reason)
{
	switch (reason) {
	case REFUSED(CELL):
		return CORE_FATAL_CELL;
	case REFUSED(MEMBER):
		return CORE_FATAL_REMOVED;
	case REFUSED(DATA_DIR):
		return CORE_FATAL_DATA_DIR;
	default: /* a version: the other end may be older, and be replaced soon */
		return CORE_OK;
	}
}

bool peer_is_needed_by_nobody(const struct core *c)
{
	return !is_voter(c, c->config.member) || core_clock(c) - c->led_at > LEADERLESS_LONG * (time_ms)c->config.election_timeout_ms;
}

/* M3 */
static bool is_believed(const struct core *c, const struct envelope *env, uint32_t reason)
{
	if (fatal_of(reason) == CORE_FATAL_REMOVED && env->cell == c->config.cell_id && peer_is_needed_by_nobody(c))
		return true;
	return env->from == raft_leader(c->raft) || refusing(c, reason) > voters(c) / 2;
}

static void receive_refused(struct core *c, const struct envelope *env)
{
	uint32_t reason = (uint32_t)wire_find_u64(env->body, 1, 0);
	struct peer *p = is_voter(c, env->from) ? peer_get(c, env->from) : NULL;

	if (p) {
		p->refusal = reason;
		p->refusal_at = core_clock(c);
	}
	if (fatal_of(reason) != CORE_OK && c->fatal == CORE_OK && is_believed(c, env, reason))
		c->fatal = fatal_of(reason);
}

/* ---- in ---- */

static bool parse_envelope(struct slice bytes, struct envelope *env)
{
	struct wire w;

	memset(env, 0, sizeof *env);
	for (wire_init(&w, bytes); wire_next(&w);) {
		switch (w.field) {
		case 1: env->version = wire_u64(&w); break;
		case 2: env->cell = wire_u64(&w); break;
		case 3: env->from = wire_u64(&w); break;
		case 4: env->to = wire_u64(&w); break;
		case 5: env->data_dir = wire_u64(&w); break;
		case 6: env->boot = wire_u64(&w); break;
		default:
			if (w.field < FIRST_BODY || w.field > LAST_BODY)
				break;
			env->body_field = w.field;
			env->body = wire_bytes(&w);
			break;
		}
	}
	return !w.bad && env->body_field != 0 && env->from != 0;
}

static bool counts_from_anybody(const struct envelope *env)
{
	return env->body_field == BODY_RAFT && raft_counts_from_anybody((uint32_t)wire_find_u64(env->body, 1, 0));
}

/* Until the log has bound it, the first directory that this replica heard of is the one. */
static bool is_its_directory(struct peer *p, const struct member_record *r, uint64_t data_dir)
{
	if (r->data_dir_id != 0)
		return r->data_dir_id == data_dir;
	if (p->data_dir == 0)
		p->data_dir = data_dir;
	return p->data_dir == data_dir;
}

/* M1. Returns the sender, or NULL when the message does not count. */
static struct peer *admit(struct core *c, const struct envelope *env)
{
	const struct member_record *r = member_find(&c->state, env->from);
	struct peer *p;

	/* Who was removed is told so. Who is just not known here may have been added a moment ago. */
	if (!r && member_was_removed(&c->state, env->from)) {
		send_refusal(c, env->from, REFUSED(MEMBER));
		return NULL;
	}
	if (!r && !counts_from_anybody(env))
		return NULL;
	p = peer_get(c, env->from);
	if (!p)
		return NULL;
	if (r && !is_its_directory(p, r, env->data_dir)) {
		send_refusal(c, env->from, REFUSED(DATA_DIR));
		return NULL;
	}
	if (env->boot < p->boot)
		return NULL;
	if (env->boot > p->boot) {
		p->boot = env->boot;
		p->boot_since = core_clock(c);
		compare_soon(c);
	}
	p->heard_at = core_clock(c);
	return p;
}

static void receive_raft(struct core *c, struct peer *p, struct slice body)
{
	struct raft_message m;

	if (raft_message_decode(body, &c->arena, &m) == ERR_OK) {
		m.from = p->id;
		m.to = c->config.member;
		if (!(m.kind == RAFT_KIND(APPEND) && snapshot_blocks_appends(c)))
			raft_receive(c->raft, &m, c->now);
		if (m.kind == RAFT_KIND(SNAPSHOT_REPLY))
			snapshot_send_reply(c, &m);
		raft_message_release(&m);
	}
	arena_clear(&c->arena);
}

static void dispatch(struct core *c, struct peer *p, const struct envelope *env)
{
	switch (env->body_field) {
	case BODY_RAFT:
		receive_raft(c, p, env->body);
		break;
	case 11:
		intake_propose(c, p, env->body);
		break;
	case 12:
		propose_ack(c, env->body);
		break;
	case 13:
		read_ask(c, p, env->body);
		break;
	case 14:
		read_reply(c, env->body);
		break;
	case 15:
		renew_ask(c, p, env->body);
		break;
	case 16:
		renew_reply(c, env->body);
		break;
	case 20:
		cache_link_to_leader(c, p, env->body);
		break;
	case 21:
		cache_link_from_leader(c, env->body);
		break;
	case 24:
		compare_ask(c, p, env->body);
		break;
	case 25:
		compare_reply(c, p, env->body);
		break;
	case 26:
		skipped_ask(c, p, env->body);
		break;
	case 27:
		skipped_answer(c, env->body);
		break;
	default:
		break;
	}
}

/* M4 */
static void receive_for_another(struct core *c, const struct envelope *env)
{
	if (env->body_field != BODY_REFUSED && env->version <= PEER_VERSION && env->cell == c->config.cell_id && member_was_removed(&c->state, env->from))
		send_refusal(c, env->from, REFUSED(MEMBER));
}

void peer_receive(struct core *c, struct slice bytes)
{
	struct envelope env;
	struct peer *p;

	if (!parse_envelope(bytes, &env) || env.from == c->config.member)
		return;
	if (env.to != c->config.member) {
		receive_for_another(c, &env);
		return;
	}
	if (env.body_field == BODY_REFUSED) {
		receive_refused(c, &env); /* M2 */
		return;
	}
	if (env.version > PEER_VERSION) {
		send_refusal(c, env.from, REFUSED(VERSION));
		return;
	}
	if (env.cell != c->config.cell_id) {
		send_refusal(c, env.from, REFUSED(CELL));
		return;
	}
	p = admit(c, &env);
	if (p)
		dispatch(c, p, &env);
}
