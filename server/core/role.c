/* role.c: what changes when leadership does, and what a leader does from time to time.
 *
 *   (R1) a replica serves as leader (core_leads) from when an entry of its own term is applied here: then it knows every lease and every
 *        contender there is, and each lease gets a full TTL. It ends with its term or its leadership, and everything that only a leader
 *        has (deadlines, bounds, rounds, senders of snapshots) goes.
 *   (R2) a lease past its deadline is closed and its end proposed with the term (LEASE_END); a refused proposal is made again. Nothing but
 *        the applied entry ends a lease.
 *   (R3) each replica publishes its name, addresses and data directory by a command once it knows a leader and its record differs. */
#include "internal.h"

static void promote(struct core *c)
{
	c->promoted = c->term;
	c->change_index = 0; /* whatever came before is applied */
	c->leave_at = core_clock(c);
	lessor_promote(c->lessor, c->now);
	memset(&c->compact, 0, sizeof c->compact);
	bounds_begin(c);
	gate_promote(c);
	compare_promoted(c);
	c->alarms.again_at = 0;
	renew_role_changed(c);
}

static void demote(struct core *c)
{
	c->promoted = 0;
	lessor_demote(c->lessor);
	bounds_end(c);
}

static void role_emit(struct core *c, enum raft_role before, raft_term term_before)
{
	if (c->role == RAFT_LEADER && (before != RAFT_LEADER || term_before != c->term))
		core_emit(c, TRACE_LEADER, c->term, c->config.member, 0);
	else if (c->role != RAFT_LEADER && before == RAFT_LEADER)
		core_emit(c, TRACE_STEP_DOWN, c->term, c->leader, 0);
}

static void role_change(struct core *c)
{
	enum raft_role role_before = c->role;
	raft_term term_before = c->term;

	c->role = raft_role(c->raft);
	c->term = raft_current_term(c->raft);
	c->leader = raft_leader(c->raft);
	propose_leader(c);
	if (c->leader && c->leader != c->seen.leader) {
		c->seen.leader = c->leader;
		c->seen.leader_changes++;
	}
	c->env.header.term = c->term;
	c->out.role_changed = true;
	alarms_role_changed(c);
	if (c->promoted && !core_leads(c))
		demote(c);
	if (c->term != term_before)
		propose_term(c);
	if (role_before == RAFT_LEADER && (c->role != RAFT_LEADER || c->term != term_before)) {
		rounds_dissolve(c);
		admit_clear(c);
		gate_clear(c);
		snapshot_send_stop(c);
	}
	read_batches_dissolve(c);
	renew_batches_dissolve(c);
	renew_role_changed(c);
	cache_link_role_changed(c);
	role_emit(c, role_before, term_before);
}

void role_sync(struct core *c)
{
	if (raft_current_term(c->raft) != c->term || raft_role(c->raft) != c->role || raft_leader(c->raft) != c->leader)
		role_change(c);
	if (c->role != RAFT_LEADER || c->promoted == c->term || c->state.applied.term != c->term)
		return;
	if (c->state.restored)
		restored_sync(c);
	else
		promote(c);
}

/* ---- R2 ---- */

static enum err propose_lease_end(struct core *c, const lease_id *ids, size_t n)
{
	struct buf payload = { 0 };
	size_t mark = pbw_open(&payload, 1);
	enum err e;

	for (size_t i = 0; i < n; i++)
		for (unsigned byte = 0; byte < 8; byte++)
			buf_append_byte(&payload, (uint8_t)((uint64_t)ids[i] >> (8 * byte)));
	pbw_close(&payload, mark);
	pbw_u64(&payload, 2, c->term);
	e = core_propose_own(c, CMD(LEASE_END), buf_view(&payload));
	buf_free(&payload);
	return e;
}

/* One slice. Returns whether there may be more. */
static bool end_some(struct core *c)
{
	lease_id ids[LEASE_END_MAX];
	size_t n = lessor_close_due(c->lessor, c->now, ids, LEASE_END_MAX);

	if (n > 0 && propose_lease_end(c, ids, n) != ERR_OK) {
		for (size_t i = 0; i < n; i++)
			lessor_end_refused(c->lessor, ids[i]);
		return false;
	}
	return lessor_next_deadline(c->lessor) <= c->now;
}

static void end_leases(struct core *c)
{
	for (unsigned slices = 0; slices < LEASE_END_SLICES && end_some(c); slices++)
		;
}

void role_tick(struct core *c)
{
	if (!core_leads(c))
		return;
	end_leases(c);
	gate_tick(c);
	bounds_due(c);
	orphans_due(c);
	auto_compact_tick(c);
	members_tick(c);
}

/* ---- R3 ---- */

static bool record_differs(const struct core *c, const struct member_record *r)
{
	if (r->data_dir_id != c->config.data_dir_id || strcmp(r->name, c->config.name) != 0 ||
	    r->client_urls_len != c->config.client_urls_len)
		return true;
	for (size_t i = 0; i < r->client_urls_len; i++)
		if (strcmp(r->client_urls[i], c->config.client_urls[i]) != 0)
			return true;
	return false;
}

static void publish(struct core *c)
{
	struct call *call = call_new(c, CALL_COMMAND, 0, METHOD_CLUSTER_MEMBER_UPDATE);
	struct buf payload = { 0 };

	call_no_deadline(call);
	pbw_fixed64(&payload, 1, c->config.member);
	pbw_bytes(&payload, 2, slice_of_str(c->config.name));
	for (size_t i = 0; i < c->config.client_urls_len; i++)
		pbw_bytes_always(&payload, 3, slice_of_str(c->config.client_urls[i]));
	pbw_fixed64(&payload, 4, c->config.data_dir_id);
	propose_submit(c, call, CMD(MEMBER_PUBLISH), buf_view(&payload));
	c->publish_call = call->number;
	buf_free(&payload);
}

void publish_tick(struct core *c)
{
	const struct member_record *r;

	if (!c->publish_due || !c->leader || c->now < c->publish_at)
		return;
	if (c->publish_call && map64_get(&c->calls.by_number, c->publish_call))
		return;
	r = member_find(&c->state, c->config.member);
	c->publish_call = 0;
	if (r && r->data_dir_id != 0 && r->data_dir_id != c->config.data_dir_id) {
		c->fatal = CORE_FATAL_DATA_DIR;
		return;
	}
	c->publish_due = r && record_differs(c, r);
	if (!c->publish_due)
		return;
	publish(c);
	c->publish_at = c->now + c->config.election_timeout_ms;
}
