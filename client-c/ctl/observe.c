/* observe.c: see observe.h. A stream that is opened anew begins with the present leader, who is told once. */
#include "observe.h"

#include <inttypes.h>

#include "etcd/v3election.pb-c.h"
#include "flow.h"
#include "text.h"

struct observer {
	struct buf name;
	bool told, vacant;
	int64_t create_revision, mod_revision; /* of what was told last */
	int64_t events;
};

static struct call *open_stream(struct flow *f, struct endpoint *e, const struct call_class *class)
{
	struct observer *o = f->owner;
	V3electionpb__LeaderRequest r = V3ELECTIONPB__LEADER_REQUEST__INIT;
	r.name = (ProtobufCBinaryData){ .data = o->name.ptr, .len = o->name.len };
	r.vacancy = true;
	return call_start(f->c->link, e, METHOD_ELECTION_OBSERVE, &r.base, NEVER_MS, class, f);
}

static void print_leader(struct ctl *c, const Mvccpb__KeyValue *kv)
{
	struct buf b = { .ptr = NULL };
	char id[24];
	text_print_lease(id, kv->lease);
	buf_printf(&b, "leader token %" PRId64 " lease %s value '", kv->create_revision, id);
	out_bytes(&c->out, slice_of(kv->value.data, kv->value.len), &b);
	buf_printf(&b, "'\n");
	out_write(&b);
	buf_free(&b);
}

static void reply(struct flow *f, const ProtobufCMessage *m)
{
	struct observer *o = f->owner;
	const V3electionpb__LeaderResponse *r = (const V3electionpb__LeaderResponse *)m;
	bool vacant = r->vacant || !r->kv;
	int64_t create = vacant ? 0 : r->kv->create_revision, mod = vacant ? 0 : r->kv->mod_revision;
	if (o->told && o->vacant == vacant && o->create_revision == create && o->mod_revision == mod)
		return;
	o->told = true;
	o->vacant = vacant;
	o->create_revision = create;
	o->mod_revision = mod;
	if (!out_message(&f->c->out, m)) {
		if (vacant)
			out_printf("vacant\n");
		else
			print_leader(f->c, r->kv);
	}
	if (++o->events == f->c->args.events)
		flow_end(f, EXIT_DONE, NULL);
}

int observe(struct ctl *c)
{
	static const struct flow_class class = { METHOD_ELECTION_OBSERVE, open_stream, reply, "observe the election" };
	struct observer o = { .told = false };
	struct flow f = { .class = &class, .c = c, .owner = &o };
	int code = EXIT_USAGE;
	if (ctl_bytes(c, c->args.words[0], &o.name))
		code = flow_run(&f);
	buf_free(&o.name);
	return code;
}
