/* cmd_watch.c: watch: goes on where it was, on whichever replica, without an event lost or told twice. */
#include <inttypes.h>
#include <stdio.h>

#include "etcd/rpc.pb-c.h"
#include "flow.h"
#include "kv.h"

struct watching {
	struct buf key, end;
	int64_t next_rev; /* 0: from now on */
	int64_t events;
};

static struct call *open_stream(struct flow *f, struct endpoint *e, const struct call_class *class)
{
	struct watching *w = f->owner;
	const struct args *a = &f->c->args;
	Etcdserverpb__WatchRequest r = ETCDSERVERPB__WATCH_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest create = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest__FilterType filter = a->only == 0 ? ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NODELETE
									    : ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NOPUT;
	struct call *c = call_start(f->c->link, e, METHOD_WATCH_WATCH, NULL, NEVER_MS, class, f);
	create.key = (ProtobufCBinaryData){ .data = w->key.ptr, .len = w->key.len };
	create.range_end = (ProtobufCBinaryData){ .data = w->end.ptr, .len = w->end.len };
	create.start_revision = w->next_rev;
	create.prev_kv = a->prev_kv;
	create.progress_notify = a->progress;
	create.filters = &filter;
	create.n_filters = a->only >= 0;
	r.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	r.create_request = &create;
	call_send(c, &r.base);
	return c;
}

static void print_event(struct ctl *c, const Mvccpb__Event *e)
{
	out_printf("%s\n", e->type == MVCCPB__EVENT__EVENT_TYPE__DELETE ? "DELETE" : "PUT");
	if (e->prev_kv)
		kv_print(c, e->prev_kv, true, true);
	if (e->kv)
		kv_print(c, e->kv, true, true);
}

static void canceled(struct flow *f, const Etcdserverpb__WatchResponse *r)
{
	char text[600];
	if (r->compact_revision)
		snprintf(text, sizeof(text), "history before revision %" PRId64 " is compacted", r->compact_revision);
	else
		snprintf(text, sizeof(text), "%s", *r->cancel_reason ? r->cancel_reason : "cancelled by the replica");
	flow_end(f, EXIT_FAILED, text);
}

/* Events one by one, so that --events N ends after exactly so many. */
static void tell_simple(struct flow *f, const Etcdserverpb__WatchResponse *r)
{
	struct watching *w = f->owner;
	for (size_t i = 0; i < r->n_events && !f->over; i++) {
		print_event(f->c, r->events[i]);
		if (++w->events == f->c->args.events)
			flow_end(f, EXIT_DONE, NULL);
	}
}

static void tell(struct flow *f, Etcdserverpb__WatchResponse *r)
{
	struct watching *w = f->owner;
	size_t all = r->n_events;
	if (f->c->out.format == OUTPUT_SIMPLE) {
		tell_simple(f, r);
		return;
	}
	if (f->c->args.events && (int64_t)all > f->c->args.events - w->events)
		r->n_events = (size_t)(f->c->args.events - w->events);
	out_message(&f->c->out, &r->base);
	w->events += (int64_t)r->n_events;
	r->n_events = all; /* for who frees it */
	if (w->events == f->c->args.events)
		flow_end(f, EXIT_DONE, NULL);
}

static void reply(struct flow *f, const ProtobufCMessage *m)
{
	struct watching *w = f->owner;
	Etcdserverpb__WatchResponse *r = (Etcdserverpb__WatchResponse *)(uintptr_t)m;
	int64_t rev = r->header ? r->header->revision : 0;
	if (r->canceled) {
		canceled(f, r);
		return;
	}
	if (r->n_events)
		tell(f, r);
	else if (!r->created && f->c->args.progress && !out_message(&f->c->out, m))
		out_printf("PROGRESS\n%" PRId64 "\n", rev);
	/* Where it goes on. A watch of history is told its past only after it was created. */
	if (r->n_events)
		w->next_rev = r->events[r->n_events - 1]->kv->mod_revision + 1;
	else if ((r->created && !w->next_rev) || (!r->created && rev >= w->next_rev))
		w->next_rev = rev + 1;
}

int command_watch(struct ctl *c)
{
	struct watching w = { .next_rev = c->args.rev };
	char what[150];
	struct flow_class class = { METHOD_WATCH_WATCH, open_stream, reply, what };
	struct flow f = { .class = &class, .c = c, .owner = &w };
	int code = EXIT_USAGE;
	if (kv_range(c, &w.key, &w.end)) {
		snprintf(what, sizeof(what), "watch '%s'", ctl_show(c, buf_view(&w.key)));
		code = flow_run(&f);
	}
	buf_free(&w.key);
	buf_free(&w.end);
	return code;
}
