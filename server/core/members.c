/* members.c: changes of the cell's members: asked for, weighed by the leader, applied.
 *
 *   (V1) a leader proposes one change at a time, and none before an entry of its own term is applied here: until then an older change may
 *        be under way that it has not heard of. Majorities of two neighbouring configurations meet; of any two they need not.
 *   (V2) it proposes none that would leave fewer voters that are heard than the new quorum takes. Adding is always safe, since who is
 *        added is not counted before it has caught up (G3 in member_change.c).
 *   (V3) who is to be counted has bound its data directory first: from then on a wiped disk cannot pass for its own.
 *   (V4) a leader hands the lead over before its own removal enters a log: it stays in no cell that it leads.
 *   (V5) raft learns of a change when it is applied. A replica that applies its own removal stops.
 *   (V6) a voter leaves first (G5 in member_change.c), and its removal is proposed when that is applied. Should nobody ask for it any more by then,
 *        the leader does.
 * What only waits for its turn (V1, V4, V6) stays where it is and is tried again. */
#include "internal.h"

enum { CATCH_UP_MAX = 1000 }; /* entries that one may lack who is to be counted: little enough for less than a second */

size_t members_for_raft(const struct state *st, struct raft_member out[RAFT_MEMBERS_MAX])
{
	struct tree_cursor cursor;
	size_t n = 0;

	for (struct tree_record *r = tree_first(&cursor, &st->members); r; r = tree_next(&cursor)) {
		const struct member_record *m = CONTAINER_OF(r, struct member_record, base);

		ASSERT(n < RAFT_MEMBERS_MAX);
		out[n++] = (struct raft_member){ .id = m->id, .learner = !member_counts(m) };
	}
	return n;
}

/* ---- asking ---- */

static enum err change_submit(struct core *c, const struct core_request *r, uint32_t kind, member_id id, const char *const *urls, size_t len)
{
	struct buf payload = { 0 };

	pbw_u64(&payload, 1, kind);
	pbw_fixed64(&payload, 2, id);
	for (size_t i = 0; i < len; i++)
		pbw_bytes_always(&payload, 3, slice_of_str(urls[i]));
	propose_submit_request(c, call_new(c, CALL_COMMAND, r->tag, r->method), CMD(MEMBER_CHANGE), buf_view(&payload), r, false);
	buf_free(&payload);
	return ERR_OK;
}

/* The ID is made of the addresses and the second; who adds the same address again within one gets the next. */
static enum err submit_add(struct core *c, const struct core_request *r, const Etcdserverpb__MemberAddRequest *m)
{
	const char *const *urls = (const char *const *)m->peerurls;
	uint64_t second = (uint64_t)(r->now_unix_ms / 1000);
	member_id id;

	if (!member_peer_urls_are_valid(urls, m->n_peerurls))
		return ERR_MEMBER_BAD_URLS;
	do
		id = member_derive_added_id(urls, m->n_peerurls, second++);
	while (id == 0 || member_find(&c->state, id) || member_was_removed(&c->state, id));
	return change_submit(c, r, m->islearner ? MEMBER_CHANGE(ADD_LEARNER) : MEMBER_CHANGE(ADD_VOTER), id, urls, m->n_peerurls);
}

static enum err submit_update(struct core *c, const struct core_request *r, const Etcdserverpb__MemberUpdateRequest *m)
{
	const char *const *urls = (const char *const *)m->peerurls;

	if (!member_peer_urls_are_valid(urls, m->n_peerurls))
		return ERR_MEMBER_BAD_URLS;
	return change_submit(c, r, MEMBER_CHANGE(UPDATE), m->id, urls, m->n_peerurls);
}

void members_submit(struct core *c, const struct core_request *r)
{
	const struct method *method = method_by_id(r->method);
	ProtobufCMessage *m = NULL;
	enum err e = ERR_MALFORMED;

	if (pb_check(method->request, r->bytes, 1) == PB_CHECK_OK)
		m = protobuf_c_message_unpack(method->request, &c->arena.pb, r->bytes.len, r->bytes.ptr);
	if (m && r->method == METHOD_CLUSTER_MEMBER_ADD)
		e = submit_add(c, r, (const Etcdserverpb__MemberAddRequest *)m);
	else if (m && r->method == METHOD_CLUSTER_MEMBER_UPDATE)
		e = submit_update(c, r, (const Etcdserverpb__MemberUpdateRequest *)m);
	else if (m)
		e = change_submit(c, r, r->method == METHOD_CLUSTER_MEMBER_REMOVE ? MEMBER_CHANGE(REMOVE) : MEMBER_CHANGE(PROMOTE),
				  wire_find_u64(r->bytes, 1, 0), NULL, 0);
	arena_clear(&c->arena);
	if (e)
		answer_now(c, r->tag, e, NULL);
}

/* ---- weighing, by the leader ---- */

static bool heard_lately(struct core *c, member_id id)
{
	const struct peer *p = peer_find(c, id);

	return id == c->config.member || (p && p->heard_at && core_clock(c) - p->heard_at <= c->config.election_timeout_ms);
}

struct tally {
	size_t voters, heard, started;
};

/* Of those that would count after the change. */
static struct tally tally_after(struct core *c, const struct member_change *ch)
{
	bool counts_then = ch->kind == MEMBER_CHANGE(PROMOTE) || ch->kind == MEMBER_CHANGE(JOIN);
	struct tree_cursor cursor;
	struct tally t = { 0 };

	for (struct tree_record *r = tree_first(&cursor, &c->state.members); r; r = tree_next(&cursor)) {
		const struct member_record *m = CONTAINER_OF(r, struct member_record, base);

		if (m->id == ch->id ? !counts_then : !member_counts(m))
			continue;
		t.voters++;
		t.heard += heard_lately(c, m->id);
		t.started += m->data_dir_id != 0;
	}
	return t;
}

static void tell_tally(const struct tally *t, const char *reason, struct buf *details)
{
	pbw_bytes(details, 1, slice_of_str(reason));
	pbw_u64(details, 4, t->voters);
	pbw_u64(details, 5, t->heard);
	pbw_u64(details, 6, t->voters / 2 + 1);
}

/* V2 */
static enum err weigh_quorum(struct core *c, const struct member_change *ch, struct buf *details)
{
	struct tally t = tally_after(c, ch);
	size_t quorum = t.voters / 2 + 1;

	if (t.started < quorum) {
		tell_tally(&t, "too few of the voters that would be left have ever been started", details);
		return ERR_MEMBER_NOT_ENOUGH_STARTED;
	}
	if (t.heard < quorum) {
		tell_tally(&t, "too few of the voters that would be left are heard: there would be no quorum", details);
		return ERR_UNHEALTHY;
	}
	return ERR_OK;
}

/* V3. What is missing goes to details. */
static enum err weigh_readiness(struct core *c, const struct member_record *m, struct buf *details)
{
	struct raft_peer_status all[RAFT_MEMBERS_MAX], its = { 0 };
	size_t n = raft_peers(c->raft, all, RAFT_MEMBERS_MAX);
	const struct peer *p = peer_find(c, m->id);
	bool ever = p && p->heard_at;
	uint64_t behind;

	for (size_t i = 0; i < n; i++)
		if (all[i].id == m->id)
			its = all[i];
	behind = raft_last_index(c->raft) - its.match;
	if (m->data_dir_id != 0 && heard_lately(c, m->id) && !its.in_snapshot && its.match > 0 && behind <= CATCH_UP_MAX)
		return ERR_OK;
	/* A new one says which data directory is its own once it has a state, and so knows that it is a member. */
	pbw_bytes(details, 1, slice_of_str(m->data_dir_id == 0 && !ever ? "it has never been started" : !heard_lately(c, m->id) ? "it is not heard" :
					   its.in_snapshot ? "it is being sent a snapshot" : "it has not caught up"));
	pbw_u64(details, 2, behind);
	pbw_i64(details, 3, ever ? (int64_t)(core_clock(c) - p->heard_at) : -1);
	return ERR_LEARNER_NOT_READY;
}

/* V4 */
static enum err leave_first(struct core *c, struct buf *details)
{
	if (raft_transfer(c->raft, 0) == ERR_OK)
		return ERR_TOO_MANY_REQUESTS; /* the next leader takes it */
	pbw_bytes(details, 1, slice_of_str("the leader is to be removed, and no other voter is heard that could take the lead"));
	return ERR_UNHEALTHY;
}

static enum err propose_own(struct core *c, uint32_t kind, member_id id)
{
	struct buf payload = { 0 };
	enum err e;

	pbw_u64(&payload, 1, kind);
	pbw_fixed64(&payload, 2, id);
	e = core_propose_own(c, CMD(MEMBER_CHANGE), buf_view(&payload));
	buf_free(&payload);
	return e;
}

/* V6. Those that are left are known to be enough. */
static enum err weigh_removal(struct core *c, const struct member_change *ch, struct buf *details)
{
	enum err e = weigh_quorum(c, ch, details);

	if (!e && ch->id == c->config.member)
		e = leave_first(c, details);
	if (!e)
		e = propose_own(c, MEMBER_CHANGE(LEAVE), ch->id);
	return e ? e : ERR_TOO_MANY_REQUESTS;
}

static enum err weigh(struct core *c, const struct member_change *ch, struct buf *details)
{
	const struct member_record *m = member_find(&c->state, ch->id);
	enum err e = ERR_OK;

	if (member_change_check(&c->state, ch)) /* it goes into the log all the same, and does nothing but to be answered, in its order */
		return ERR_OK;
	switch (ch->kind) {
	case MEMBER_CHANGE(PROMOTE):
	case MEMBER_CHANGE(JOIN):
		e = weigh_readiness(c, m, details);
		return e ? e : weigh_quorum(c, ch, details);
	case MEMBER_CHANGE(REMOVE):
		return member_counts(m) ? weigh_removal(c, ch, details) : ERR_OK;
	default:
		return ERR_OK;
	}
}

static bool unpack_change(struct core *c, struct slice payload, struct member_change *ret)
{
	Holdfast__Internal__MemberChange *m;

	if (pb_check(&holdfast__internal__member_change__descriptor, payload, 0) != PB_CHECK_OK)
		return false;
	m = holdfast__internal__member_change__unpack(&c->arena.pb, payload.len, payload.ptr);
	if (m)
		*ret = (struct member_change){ m->kind, m->id, (const char *const *)m->peer_urls, m->n_peer_urls };
	return m != NULL;
}

enum err members_before_propose(struct core *c, struct slice payload, struct buf *details)
{
	struct member_change ch;
	enum err e = ERR_MALFORMED;

	if (!core_leads(c) || c->change_index > c->state.applied.index || raft_transferee(c->raft)) /* V1 */
		return raft_role(c->raft) == RAFT_LEADER ? ERR_TOO_MANY_REQUESTS : ERR_NOT_LEADER;
	if (unpack_change(c, payload, &ch))
		e = weigh(c, &ch, details);
	arena_clear(&c->arena);
	return e;
}

bool members_only_leaders_change(struct slice payload)
{
	uint64_t kind = wire_find_u64(payload, 1, 0);

	return kind == MEMBER_CHANGE(JOIN) || kind == MEMBER_CHANGE(LEAVE);
}

/* Leader: who was added as a voter and has caught up is counted from now on; who was about to be removed when whoever asked for it fell silent is. */
void members_tick(struct core *c)
{
	bool forgotten = core_clock(c) - c->leave_at > 2 * (time_ms)c->config.election_timeout_ms;
	struct tree_cursor cursor;
	struct buf details = { 0 };
	member_id ready = 0;
	uint32_t kind = 0;

	for (struct tree_record *r = tree_first(&cursor, &c->state.members); r && !ready; r = tree_next(&cursor)) {
		const struct member_record *m = CONTAINER_OF(r, struct member_record, base);

		if (m->joining && weigh_readiness(c, m, &details) == ERR_OK)
			kind = MEMBER_CHANGE(JOIN);
		else if (m->leaving && forgotten)
			kind = MEMBER_CHANGE(REMOVE);
		ready = kind ? m->id : 0;
	}
	buf_free(&details);
	if (ready)
		propose_own(c, kind, ready);
}

/* One that has no vote, or has heard nothing of its own joining yet, never campaigns, and one that slept for long may know the present voters as learners
 * only, so nobody hears of it when no leader does: should it have been removed, nobody would tell it so. It asks everybody for a read index, of a
 * batch that there never is. */
void members_ask_tick(struct core *c)
{
	const struct member_record *self = member_find(&c->state, c->config.member);
	struct tree_cursor cursor;

	if (c->leader || !peer_is_needed_by_nobody(c) || c->now < c->member_ask_at)
		return;
	c->member_ask_at = c->now + c->config.election_timeout_ms;
	for (struct tree_record *r = tree_first(&cursor, &c->state.members); r; r = tree_next(&cursor)) {
		const struct member_record *m = CONTAINER_OF(r, struct member_record, base);

		if (m != self)
			peer_send(c, m->id, 13, (struct slice){ 0 });
	}
}

/* ---- applying ---- */

static void write_reply(struct core *c, const struct member_change *ch, struct buf *reply)
{
	bool added = ch->kind == MEMBER_CHANGE(ADD_LEARNER) || ch->kind == MEMBER_CHANGE(ADD_VOTER);

	members_write_header(c, reply);
	if (added)
		member_write(member_find(&c->state, ch->id), 2, reply);
	members_write(c, added ? 3 : 2, reply);
}

enum err members_apply(struct core *c, struct slice payload, raft_index index, struct buf *reply)
{
	struct raft_member members[RAFT_MEMBERS_MAX];
	struct member_change ch;
	enum err e;

	if (!unpack_change(c, payload, &ch))
		return ERR_MALFORMED;
	e = member_change_apply(&c->state, &ch, index);
	if (e)
		return e;
	raft_set_members(c->raft, members, members_for_raft(&c->state, members)); /* V5 */
	c->out.members_changed = true;
	if (ch.id == c->config.member)
		c->publish_due = true;
	if (ch.kind == MEMBER_CHANGE(LEAVE))
		c->leave_at = core_clock(c);
	c->seen.promotions += ch.kind == MEMBER_CHANGE(PROMOTE) && core_leads(c);
	if (ch.kind == MEMBER_CHANGE(REMOVE)) {
		snapshot_send_forget(c, ch.id);
		if (ch.id == c->config.member)
			c->fatal = CORE_FATAL_REMOVED;
	}
	core_emit(c, TRACE_MEMBERS, index, ch.id, ch.kind);
	if (reply)
		write_reply(c, &ch, reply);
	return ERR_OK;
}
