/* cmd_member.c: member add, remove, update, promote; move-leader. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "etcd/rpc.pb-c.h"
#include "refusal.h"

typedef Etcdserverpb__Member member;

static bool parse_id(const char *text, uint64_t *ret)
{
	char *end;
	errno = 0;
	*ret = strtoull(text, &end, 16);
	if (!errno && *text && !*end && strspn(text, "0123456789abcdefABCDEF") == strlen(text) && *ret)
		return true;
	ctl_error("'%s' is no member's ID: they are written in hexadecimal, as member list prints them", text);
	return false;
}

/* As ctl_run, and says why the cell refused. */
static int change(struct ctl *c, enum method_id method, const ProtobufCMessage *request, print_fn simple, const char *what)
{
	const struct ask a = { .method = method, .request = request, .again = ASK_ONCE, .timeout_ms = c->args.timeout_ms, .patient = args_given(&c->args, FLAG_TIMEOUT) };
	struct answer answer;
	int code = EXIT_DONE;
	ask(c->link, &a, &answer);
	if (answer.kind != ANSWER_OK) {
		code = ctl_failed(&answer, "cannot %s", what);
		refusal_print_member(buf_view(&answer.details));
	} else if (!out_message(&c->out, answer.reply)) {
		simple(c, answer.reply);
	}
	answer_free(&answer);
	return code;
}

/* ---- add ---- */

static void print_cluster(const Etcdserverpb__MemberAddResponse *r)
{
	const char *between = "";
	out_printf("--initial-cluster ");
	for (size_t i = 0; i < r->n_members; i++) {
		const member *m = r->members[i];
		for (size_t j = 0; j < m->n_peerurls; j++) {
			out_printf("%s%s=%s", between, m->id == r->member->id ? "NAME" : *m->name ? m->name : "unstarted", m->peerurls[j]);
			between = ",";
		}
	}
	out_printf(" --initial-cluster-state existing\n");
}

static void print_added(struct ctl *c, const ProtobufCMessage *reply)
{
	const Etcdserverpb__MemberAddResponse *r = (const Etcdserverpb__MemberAddResponse *)reply;
	(void)c;
	if (!r->member)
		return;
	out_printf("added member %" PRIx64 "%s; start it with an empty data directory and\n", r->member->id, r->member->islearner ? " as a learner" : "");
	print_cluster(r);
}

int command_member_add(struct ctl *c)
{
	Etcdserverpb__MemberAddRequest r = ETCDSERVERPB__MEMBER_ADD_REQUEST__INIT;
	r.peerurls = (char **)c->args.words;
	r.n_peerurls = (size_t)c->args.words_len;
	r.islearner = c->args.learner;
	return change(c, METHOD_CLUSTER_MEMBER_ADD, &r.base, print_added, "add a member");
}

/* ---- the others ---- */

static void print_removed(struct ctl *c, const ProtobufCMessage *reply)
{
	(void)reply;
	out_printf("removed member %s: it stops by itself\n", c->args.words[0]);
}

int command_member_remove(struct ctl *c)
{
	Etcdserverpb__MemberRemoveRequest r = ETCDSERVERPB__MEMBER_REMOVE_REQUEST__INIT;
	if (!parse_id(c->args.words[0], &r.id))
		return EXIT_USAGE;
	return change(c, METHOD_CLUSTER_MEMBER_REMOVE, &r.base, print_removed, "remove the member");
}

static void print_updated(struct ctl *c, const ProtobufCMessage *reply)
{
	(void)reply;
	out_printf("updated member %s\n", c->args.words[0]);
}

int command_member_update(struct ctl *c)
{
	Etcdserverpb__MemberUpdateRequest r = ETCDSERVERPB__MEMBER_UPDATE_REQUEST__INIT;
	if (!parse_id(c->args.words[0], &r.id))
		return EXIT_USAGE;
	r.peerurls = (char **)&c->args.words[1];
	r.n_peerurls = (size_t)c->args.words_len - 1;
	return change(c, METHOD_CLUSTER_MEMBER_UPDATE, &r.base, print_updated, "update the member");
}

static void print_promoted(struct ctl *c, const ProtobufCMessage *reply)
{
	(void)reply;
	out_printf("promoted member %s: it votes\n", c->args.words[0]);
}

int command_member_promote(struct ctl *c)
{
	Etcdserverpb__MemberPromoteRequest r = ETCDSERVERPB__MEMBER_PROMOTE_REQUEST__INIT;
	if (!parse_id(c->args.words[0], &r.id))
		return EXIT_USAGE;
	return change(c, METHOD_CLUSTER_MEMBER_PROMOTE, &r.base, print_promoted, "promote the member");
}

/* ---- move-leader ---- */

/* Which of the endpoints leads: its number from 1; 0: none of them. */
static int find_leader(struct ctl *c)
{
	Etcdserverpb__StatusRequest r = ETCDSERVERPB__STATUS_REQUEST__INIT;
	int found = 0;
	for (int i = 0; i < link_len(c->link) && !found; i++) {
		const struct ask a = { .method = METHOD_MAINTENANCE_STATUS, .request = &r.base, .again = ASK_AGAIN, .timeout_ms = c->args.timeout_ms, .only = i + 1 };
		struct answer answer;
		ask(c->link, &a, &answer);
		if (answer.kind == ANSWER_OK) {
			const Etcdserverpb__StatusResponse *s = (const Etcdserverpb__StatusResponse *)answer.reply;
			found = s->header && s->leader && s->leader == s->header->member_id ? i + 1 : 0;
		}
		answer_free(&answer);
	}
	return found;
}

int command_move_leader(struct ctl *c)
{
	Etcdserverpb__MoveLeaderRequest r = ETCDSERVERPB__MOVE_LEADER_REQUEST__INIT;
	struct ask a = { .method = METHOD_MAINTENANCE_MOVE_LEADER, .request = &r.base, .again = ASK_ONCE, .timeout_ms = c->args.timeout_ms };
	struct answer answer;
	int code = EXIT_DONE;
	if (!parse_id(c->args.words[0], &r.targetid))
		return EXIT_USAGE;
	a.only = find_leader(c);
	if (!a.only) {
		ctl_error("none of the endpoints leads: name all of them, or that of the leader (endpoint status --cluster)");
		return EXIT_FAILED;
	}
	ask(c->link, &a, &answer);
	if (answer.kind != ANSWER_OK)
		code = ctl_failed(&answer, "cannot hand the lead over");
	else if (!out_message(&c->out, answer.reply))
		out_printf("member %s leads\n", c->args.words[0]);
	answer_free(&answer);
	return code;
}
