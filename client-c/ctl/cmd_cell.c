/* cmd_cell.c: member list, endpoint status, health and hashkv, version. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ctl.h"
#include "etcd/rpc.pb-c.h"
#include "signals.h"
#include "version.h"

/* ---- members ---- */

static void join(char *const *list, size_t len, struct buf *ret)
{
	for (size_t i = 0; i < len; i++)
		buf_printf(ret, "%s%s", i ? "," : "", list[i]);
}

static void print_members(struct ctl *c, const ProtobufCMessage *reply)
{
	const Etcdserverpb__MemberListResponse *r = (const Etcdserverpb__MemberListResponse *)reply;
	(void)c;
	for (size_t i = 0; i < r->n_members; i++) {
		const Etcdserverpb__Member *m = r->members[i];
		struct buf b = { .ptr = NULL };
		buf_printf(&b, "%" PRIx64 ", %s, %s, ", m->id, *m->name ? "started" : "unstarted", m->name);
		join(m->peerurls, m->n_peerurls, &b);
		buf_printf(&b, ", ");
		join(m->clienturls, m->n_clienturls, &b);
		buf_printf(&b, ", %s\n", m->islearner ? "true" : "false");
		out_write(&b);
		buf_free(&b);
	}
}

int command_member_list(struct ctl *c)
{
	Etcdserverpb__MemberListRequest r = ETCDSERVERPB__MEMBER_LIST_REQUEST__INIT;
	r.linearizable = !c->args.local;
	return ctl_run(c, METHOD_CLUSTER_MEMBER_LIST, &r.base, ASK_AGAIN, print_members, "list the members");
}

/* ---- every endpoint ---- */

struct every {
	struct ctl *c;
	enum method_id method;
	const ProtobufCMessage *request;
	void (*simple)(struct ctl *c, const char *endpoint, const ProtobufCMessage *reply, uint64_t took_ms);
	bool only_whether; /* it answers, and how soon: what it answers is of no interest */
	struct buf json;
	struct table table;
	int code;
};

static void every_fields(struct every *v, const char *endpoint, const struct answer *a, uint64_t took)
{
	struct buf b = { .ptr = NULL }, name = { .ptr = NULL };
	out_json_string(slice_of_str(endpoint), &name);
	buf_printf(&b, "endpoint: %.*s\nok: %s\nms: %" PRIu64 "\n", (int)name.len, (const char *)name.ptr, a->reply ? "true" : "false", took);
	if (a->reply)
		out_fields(&v->c->out, "", a->reply, &b);
	out_write(&b);
	buf_free(&b);
	buf_free(&name);
}

static void every_json(struct every *v, const char *endpoint, const struct answer *a, uint64_t took)
{
	buf_printf(&v->json, "%s{\"endpoint\":", v->json.len ? "," : "");
	out_json_string(slice_of_str(endpoint), &v->json);
	buf_printf(&v->json, ",\"ok\":%s,\"ms\":%" PRIu64, a->reply ? "true" : "false", took);
	if (a->reply) {
		buf_printf(&v->json, ",\"reply\":");
		out_json(&v->c->out, a->reply, &v->json);
	} else {
		buf_printf(&v->json, ",\"error\":");
		out_json_string(slice_of_str(a->text), &v->json);
	}
	buf_printf(&v->json, "}");
}

static void every_table(struct every *v, const char *endpoint, const struct answer *a, uint64_t took)
{
	const ProtobufCMessageDescriptor *d = method_by_id(v->method)->reply;
	if (!v->table.len) {
		table_cell(&v->table, "endpoint");
		table_cell(&v->table, "ms");
		if (!v->only_whether)
			table_head(&v->table, d, NULL);
		table_head_done(&v->table);
	}
	if (!a->reply)
		return;
	table_cell(&v->table, "%s", endpoint);
	table_cell(&v->table, "%" PRIu64, took);
	if (!v->only_whether)
		table_row(&v->table, &v->c->out, a->reply, NULL);
}

static void every_one(struct every *v, int i, bool *ret_interrupted)
{
	const struct ask a = { .method = v->method, .request = v->request, .again = ASK_AGAIN, .timeout_ms = v->c->args.timeout_ms, .only = i + 1 };
	const char *endpoint = link_name(v->c->link, i);
	struct answer answer;
	uint64_t begun = boot_ms(), took;
	ask(v->c->link, &a, &answer);
	took = boot_ms() - begun;
	*ret_interrupted = answer.kind == ANSWER_INTERRUPTED;
	if (answer.kind != ANSWER_OK) {
		answer.where[0] = '\0';
		answer.kind = answer.kind == ANSWER_UNKNOWN ? ANSWER_NONE : answer.kind;
		v->code = ctl_failed(&answer, "%s %s", answer.kind == ANSWER_REFUSED ? "refused by" : "no answer from", endpoint);
	}
	if (v->c->out.format == OUTPUT_JSON)
		every_json(v, endpoint, &answer, took);
	else if (v->c->out.format == OUTPUT_TABLE)
		every_table(v, endpoint, &answer, took);
	else if (v->c->out.format == OUTPUT_FIELDS)
		every_fields(v, endpoint, &answer, took);
	else if (answer.reply)
		v->simple(v->c, endpoint, answer.reply, took);
	answer_free(&answer);
}

/* --cluster: the endpoints become the client URLs of all members. */
static int use_cluster(struct ctl *c)
{
	Etcdserverpb__MemberListRequest r = ETCDSERVERPB__MEMBER_LIST_REQUEST__INIT;
	const struct ask a = { .method = METHOD_CLUSTER_MEMBER_LIST, .request = &r.base, .again = ASK_AGAIN, .timeout_ms = c->args.timeout_ms };
	struct answer answer;
	struct buf urls = { .ptr = NULL };
	struct errmsg em;
	int code = EXIT_DONE;
	ask(c->link, &a, &answer);
	if (answer.kind != ANSWER_OK) {
		code = ctl_failed(&answer, "cannot list the members");
		goto out;
	}
	for (size_t i = 0; i < ((const Etcdserverpb__MemberListResponse *)answer.reply)->n_members; i++) {
		const Etcdserverpb__Member *m = ((const Etcdserverpb__MemberListResponse *)answer.reply)->members[i];
		join(m->clienturls, m->n_clienturls, &urls);
		buf_append_byte(&urls, ',');
	}
	buf_append_byte(&urls, 0);
	endpoints_free(c->endpoints, c->endpoints_len);
	c->endpoints_len = 0;
	if (!args_endpoints((const char *)urls.ptr, false, c->endpoints, &c->endpoints_len, &em)) {
		ctl_error("the members' client URLs: %s", em.text);
		code = EXIT_FAILED;
	} else if (!link_renew(c->link, c->endpoints, c->endpoints_len)) {
		ctl_error("the connection to %s does not end", answer.where);
		code = EXIT_FAILED;
	}
out:
	answer_free(&answer);
	buf_free(&urls);
	return code;
}

static int every_endpoint(struct every *v)
{
	bool interrupted = false;
	if (v->c->args.cluster) {
		int code = use_cluster(v->c);
		if (code)
			return code;
	}
	for (int i = 0; i < link_len(v->c->link) && !interrupted; i++)
		every_one(v, i, &interrupted);
	if (v->c->out.format == OUTPUT_JSON)
		out_printf("[%.*s]\n", (int)v->json.len, v->json.len ? (const char *)v->json.ptr : "");
	if (v->c->out.format == OUTPUT_TABLE && v->table.len) {
		struct buf b = { .ptr = NULL };
		table_print(&v->table, &b);
		out_write(&b);
		buf_free(&b);
	}
	buf_free(&v->json);
	table_free(&v->table);
	return interrupted ? EXIT_SIGNAL + signals_stopped() : v->code;
}

static void print_status(struct ctl *c, const char *endpoint, const ProtobufCMessage *reply, uint64_t took)
{
	const Etcdserverpb__StatusResponse *r = (const Etcdserverpb__StatusResponse *)reply;
	bool leads = r->header && r->leader == r->header->member_id;
	(void)c, (void)took;
	out_printf("%s, member %" PRIx64 ", version %s, %" PRId64 " bytes, %s, term %" PRIu64 ", index %" PRIu64 ", applied %" PRIu64, endpoint,
		   r->header ? r->header->member_id : 0, r->version, r->dbsize, r->islearner ? "learner" : leads ? "leader" : r->leader ? "follower" : "no leader",
		   r->raftterm, r->raftindex, r->raftappliedindex);
	for (size_t i = 0; i < r->n_errors; i++)
		out_printf(", %s", r->errors[i]);
	out_printf("\n");
}

int command_endpoint_status(struct ctl *c)
{
	Etcdserverpb__StatusRequest r = ETCDSERVERPB__STATUS_REQUEST__INIT;
	struct every v = { .c = c, .method = METHOD_MAINTENANCE_STATUS, .request = &r.base, .simple = print_status };
	return every_endpoint(&v);
}

static void print_health(struct ctl *c, const char *endpoint, const ProtobufCMessage *reply, uint64_t took)
{
	(void)c, (void)reply;
	out_printf("%s is healthy: answered in %" PRIu64 "ms\n", endpoint, took);
}

/* A linearizable read by that very replica: it has a leader, and the leader has a quorum. */
int command_endpoint_health(struct ctl *c)
{
	Etcdserverpb__RangeRequest r = ETCDSERVERPB__RANGE_REQUEST__INIT;
	struct every v = { .c = c, .method = METHOD_KV_RANGE, .request = &r.base, .simple = print_health, .only_whether = true };
	r.key = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)"health", .len = 6 };
	r.count_only = true;
	return every_endpoint(&v);
}

static void print_hash(struct ctl *c, const char *endpoint, const ProtobufCMessage *reply, uint64_t took)
{
	const Etcdserverpb__HashKVResponse *r = (const Etcdserverpb__HashKVResponse *)reply;
	(void)c, (void)took;
	out_printf("%s, %" PRIu32 "\n", endpoint, r->hash);
}

int command_endpoint_hashkv(struct ctl *c)
{
	Etcdserverpb__HashKVRequest r = ETCDSERVERPB__HASH_KVREQUEST__INIT;
	struct every v = { .c = c, .method = METHOD_MAINTENANCE_HASH_KV, .request = &r.base, .simple = print_hash };
	r.revision = c->args.rev;
	return every_endpoint(&v);
}

/* ---- version ---- */

int command_version(struct ctl *c)
{
	if (c->out.format == OUTPUT_JSON)
		out_printf("{\"holdfastctl\":\"%s\",\"api\":\"v3\"}\n", HOLDFAST_VERSION);
	else
		out_printf("holdfastctl: %s\napi: v3\n", HOLDFAST_VERSION);
	return EXIT_DONE;
}
