/* status.c: what a replica answers at once from what it has, without asking anybody: about itself, and reads that may be old. */
#include "internal.h"

#include "core/alarm/alarm.h"

static const char *alarm_name(uint32_t type)
{
	return type == ALARM_NOSPACE ? "NOSPACE" : "CORRUPT";
}

/* One string for each thing that is wrong; an alarm as etcd's text form of it, with its last space. */
static void write_errors(struct core *c, struct buf *out)
{
	struct buf text = { 0 };

	if (raft_leader(c->raft) == 0)
		pbw_bytes_always(out, 8, slice_of_str(err_text(ERR_NO_LEADER)));
	for (const struct alarm_record *a = NULL; (a = alarm_next(&c->state, ALARM_NONE, a));) {
		buf_clear(&text);
		if (a->member)
			buf_printf(&text, "memberID:%llu ", (unsigned long long)a->member);
		buf_printf(&text, "alarm:%s ", alarm_name(a->type));
		pbw_bytes_always(out, 8, buf_view(&text));
	}
	if (c->recovering)
		pbw_bytes_always(out, 8, slice_of_str("holdfast: the disk was damaged, recovering from the peers"));
	if (c->disk_low)
		pbw_bytes_always(out, 8, slice_of_str("holdfast: disk space is low"));
	buf_free(&text);
}

static void status_reply(struct core *c, struct buf *out)
{
	const struct member_record *self = member_find(&c->state, c->config.member);
	uint64_t bytes = core_store_bytes(c);
	size_t mark;

	kv_write_header(&c->env, c->state.revision, out, 1);
	pbw_bytes(out, 2, slice_of_str(c->config.version));
	pbw_u64(out, 3, bytes);
	pbw_u64(out, 4, raft_leader(c->raft));
	pbw_u64(out, 5, raft_commit_index(c->raft));
	pbw_u64(out, 6, raft_current_term(c->raft));
	pbw_u64(out, 7, c->state.applied.index);
	write_errors(c, out);
	pbw_u64(out, 9, bytes);
	pbw_u64(out, 10, self && self->learner);
	pbw_bytes(out, 11, slice_of_str(c->config.version));
	pbw_u64(out, 12, c->config.quota_bytes);
	mark = pbw_open(out, 13); /* downgradeInfo: there is none under way */
	pbw_close(out, mark);
}

/* etcd's Cluster service says who answers, and no revision. */
void members_write_header(const struct core *c, struct buf *out)
{
	size_t mark = pbw_open(out, 1);

	pbw_u64(out, 1, c->config.cell_id);
	pbw_u64(out, 2, c->config.member);
	pbw_u64(out, 4, raft_current_term(c->raft));
	pbw_close(out, mark);
}

void member_write(const struct member_record *m, uint32_t field, struct buf *out)
{
	size_t mark = pbw_open(out, field);

	pbw_u64(out, 1, m->id);
	pbw_bytes(out, 2, slice_of_str(m->name));
	for (size_t i = 0; i < m->peer_urls_len; i++)
		pbw_bytes_always(out, 3, slice_of_str(m->peer_urls[i]));
	for (size_t i = 0; i < m->client_urls_len; i++)
		pbw_bytes_always(out, 4, slice_of_str(m->client_urls[i]));
	pbw_u64(out, 5, m->learner);
	pbw_close(out, mark);
}

void members_write(const struct core *c, uint32_t field, struct buf *out)
{
	struct tree_cursor cursor;

	for (struct tree_record *r = tree_first(&cursor, &c->state.members); r; r = tree_next(&cursor))
		member_write(CONTAINER_OF(r, struct member_record, base), field, out);
}

void member_list_reply(struct core *c, struct buf *out)
{
	members_write_header(c, out);
	members_write(c, 2, out);
}

/* All but the hash, which takes too long to reckon here: the owner adds it (core.h). */
static enum err hash_kv(struct core *c, struct slice request, struct buf *out)
{
	revision at = (revision)wire_find_u64(request, 1, 0), compacted = c->state.compact_revision;
	enum err e = at > 0 && at == compacted ? ERR_COMPACTED : store_check_revision(c->store, at); /* etcd: at the compaction is too early */

	if (e)
		return e;
	kv_write_header(&c->env, c->state.revision, out, 1);
	pbw_i64(out, 3, compacted ? compacted : -1);
	pbw_i64(out, 4, at > 0 ? at : c->state.revision);
	return ERR_OK;
}

static void hash_reply(struct core *c, struct buf *out)
{
	kv_write_header(&c->env, c->state.revision, out, 1);
	pbw_u64(out, 2, state_hash(&c->state) & UINT32_MAX);
}

bool status_answer(struct core *c, const struct core_request *r)
{
	struct buf out = { 0 };
	enum err e = ERR_OK;

	c->env.header.term = raft_current_term(c->raft);
	switch (r->method) {
	case METHOD_MAINTENANCE_STATUS:
		status_reply(c, &out);
		break;
	case METHOD_MAINTENANCE_HASH:
		hash_reply(c, &out);
		break;
	case METHOD_MAINTENANCE_HASH_KV:
		e = hash_kv(c, r->bytes, &out);
		break;
	case METHOD_MAINTENANCE_DEFRAGMENT: /* nothing to do: memory is given back as it is freed */
		kv_write_header(&c->env, c->state.revision, &out, 1);
		break;
	case METHOD_CLUSTER_MEMBER_LIST:
		if (wire_find_u64(r->bytes, 1, 0))
			return false;
		member_list_reply(c, &out);
		break;
	default:
		return false;
	}
	answer_now(c, r->tag, e, &out);
	return true;
}
