/* result.c: what came back, as the application is shown it. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/pbw.h"
#include "etcd/v3election.pb-c.h"
#include "holdfast/v1.pb-c.h"
#include "lib.h"

static struct hf_slice bytes_of(ProtobufCBinaryData d)
{
	return (struct hf_slice){ d.data, d.len };
}

static void node_of(struct hf_node *ret, const Holdfast__V1__Node *n)
{
	*ret = (struct hf_node){ .path = n->path,
				 .value = bytes_of(n->value),
				 .version = n->version,
				 .create_revision = n->create_revision,
				 .mod_revision = n->mod_revision,
				 .session = n->session };
}

static void one_node(struct told *t, const Holdfast__V1__Node *n)
{
	t->result.nodes = &t->one;
	t->result.nodes_len = 1;
	t->one = (struct hf_node){ .path = "" };
	if (n)
		node_of(&t->one, n);
}

static void read_list(struct told *t, const Holdfast__V1__NodesListResponse *r)
{
	t->nodes = mem_zalloc((r->n_nodes + 1) * sizeof(*t->nodes));
	for (size_t i = 0; i < r->n_nodes; i++)
		node_of(&t->nodes[i], r->nodes[i]);
	t->result.nodes = t->nodes;
	t->result.nodes_len = r->n_nodes;
	t->result.more = r->more != 0;
}

static void read_leader(struct told *t, const V3electionpb__LeaderResponse *r)
{
	if (!r->kv)
		return;
	one_node(t, NULL);
	t->one.value = bytes_of(r->kv->value);
	t->one.version = r->kv->version;
	t->one.create_revision = r->kv->create_revision;
	t->one.mod_revision = r->kv->mod_revision;
	t->one.session = r->kv->lease;
}

static void read_places(struct told *t, const Holdfast__V1__LocksListResponse *r, struct slice name)
{
	const Holdfast__V1__LockQueue *q = r->n_locks && slice_eq(slice_of(r->locks[0]->name.data, r->locks[0]->name.len), name) ? r->locks[0] : NULL;
	t->places = mem_zalloc(((q ? q->n_places : 0) + 1) * sizeof(*t->places));
	t->result.places = t->places;
	for (size_t i = 0; q && i < q->n_places; i++) {
		const Holdfast__V1__LockPlace *p = q->places[i];
		t->places[i] = (struct hf_place){ .key = bytes_of(p->key),
						  .session = p->lease,
						  .token = p->fencing_token,
						  .held = p->held != 0,
						  .shared = p->mode == V3LOCKPB__LOCK_MODE__SHARED };
		t->result.places_len = i + 1;
	}
	t->result.more = q && r->n_locks == 1 && r->next.len > 0;
}

static void read_reply(struct told *t, enum method_id method, struct slice name)
{
	switch (method) {
	case METHOD_NODES_GET: {
		const Holdfast__V1__NodesGetResponse *r = (const Holdfast__V1__NodesGetResponse *)t->message;
		one_node(t, r->node);
		if (!r->node)
			t->result.code = HF_NOT_FOUND;
		break;
	}
	case METHOD_NODES_LIST: read_list(t, (const Holdfast__V1__NodesListResponse *)t->message); break;
	case METHOD_NODES_CREATE: one_node(t, ((const Holdfast__V1__NodesCreateResponse *)t->message)->node); break;
	case METHOD_NODES_SET: one_node(t, ((const Holdfast__V1__NodesSetResponse *)t->message)->node); break;
	case METHOD_NODES_DELETE: one_node(t, ((const Holdfast__V1__NodesDeleteResponse *)t->message)->node); break;
	case METHOD_ELECTION_LEADER:
	case METHOD_ELECTION_OBSERVE: read_leader(t, (const V3electionpb__LeaderResponse *)t->message); break;
	case METHOD_LOCKS_LIST: read_places(t, (const Holdfast__V1__LocksListResponse *)t->message, name); break;
	default: break;
	}
}

/* ---- refusals ---- */

static void read_refusal(struct hf_result *r, struct slice details)
{
	const ProtobufCMessageDescriptor *d = &holdfast__v1__lock_refusal__descriptor;
	Holdfast__V1__LockRefusal *m;
	struct slice url, value;
	if (!rpc_status_detail(details, &url, &value) || pb_check(d, value, 8) != PB_CHECK_OK)
		return;
	m = (Holdfast__V1__LockRefusal *)protobuf_c_message_unpack(d, NULL, value.len, value.ptr);
	if (!m)
		return;
	if (m->holder) {
		r->holder_session = m->holder->lease;
		r->holder_token = m->holder->fencing_token;
		r->holder_since_unix_ms = m->holder->since_unix_ms;
	}
	r->waiters = m->waiters;
	protobuf_c_message_free_unpacked(&m->base, NULL);
}

/* ---- */

void told_init(struct told *t, const struct sess_out *o, struct slice name)
{
	const ProtobufCMessageDescriptor *d = method_by_id(o->method)->reply;
	memset(t, 0, sizeof(*t));
	t->text = mem_alloc(o->text.len + 1);
	if (o->text.len)
		memcpy(t->text, o->text.ptr, o->text.len);
	t->text[o->text.len] = 0;
	t->result.code = o->code;
	t->result.revision = o->revision;
	if (o->bytes.len && (o->code == HF_OK || o->code == HF_NOT_FOUND)) {
		if (pb_check(d, buf_view(&o->bytes), 60) == PB_CHECK_OK)
			t->message = protobuf_c_message_unpack(d, NULL, o->bytes.len, o->bytes.ptr);
		if (t->message)
			read_reply(t, o->method, name);
		else
			t->result.code = HF_FAILED;
	}
	if (o->details.len)
		read_refusal(&t->result, buf_view(&o->details));
	t->result.text = *t->text ? t->text : hf_text(t->result.code);
}

void told_deinit(struct told *t)
{
	if (t->message)
		protobuf_c_message_free_unpacked(t->message, NULL);
	free(t->text);
	free(t->nodes);
	free(t->places);
}
